#include "slab.h"

#include "point.h"

#define BLOCKS_PER_PAGE (RF_SLAB_PAGE / RF_SLAB_BLOCK_MIN)

/* A block's number is its page times 256 plus its place in units of the smallest block, so that the
 * number alone gives the address. */

static rf_word64 *tag_at(const struct rf_map *map, uint32_t block)
{
    return rf_section_at(map, &map->header->slab_tags, block);
}

static rf_word32 *class_at(const struct rf_map *map, uint32_t page)
{
    return rf_section_at(map, &map->header->slab_classes, page);
}

static uint32_t class_for(size_t bytes)
{
    uint32_t class = 0;
    while ((size_t)RF_SLAB_BLOCK_MIN << class < bytes) {
        class ++;
    }
    assert(class < RF_SLAB_CLASSES);
    return class;
}

size_t rf_slab_capacity(const struct rf_map *map, const struct rf_block_ref *ref)
{
    if (ref->block == 0) {
        return 0;
    }
    uint32_t block = ref->block - 1;
    rf_word32 *class = class_at(map, block / BLOCKS_PER_PAGE);
    uint32_t c = class == NULL ? 0 : atomic_load_explicit(class, memory_order_relaxed);
    if (c == 0 || c > RF_SLAB_CLASSES || (block % BLOCKS_PER_PAGE) % (1u << (c - 1)) != 0) {
        return 0;
    }
    return (size_t)RF_SLAB_BLOCK_MIN << (c - 1);
}

uint8_t *rf_slab_bytes(const struct rf_map *map, const struct rf_block_ref *ref)
{
    size_t capacity = rf_slab_capacity(map, ref);
    if (capacity == 0 || ref->bytes > capacity) {
        return NULL;
    }
    return map->base + map->header->slab.offset + (uint64_t)(ref->block - 1) * RF_SLAB_BLOCK_MIN;
}

/* Tries to take one block of a page. */
static bool take_in_page(struct rf_map *map, uint32_t page, uint32_t class, uint64_t tag,
                         struct rf_block_ref *ref)
{
    for (uint32_t i = 0; i < BLOCKS_PER_PAGE; i += 1u << class) {
        rf_word64 *word = tag_at(map, page * BLOCKS_PER_PAGE + i);
        uint64_t unused = 0;
        if (atomic_load_explicit(word, memory_order_relaxed) != 0) {
            continue;
        }
        ref->tag = tag;
        ref->block = page * BLOCKS_PER_PAGE + i + 1;
        /* release: the reference is there for whoever finds the tag; acquire: the last user's
         * stores are over (rf_slab_give). */
        atomic_thread_fence(memory_order_release);
        RF_POINT("slab.named");
        if (atomic_compare_exchange_strong_explicit(word, &unused, tag, memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            RF_POINT("slab.taken");
            return true;
        }
    }
    return false;
}

/* Cuts a fresh page for a size; somebody else may win it for another size. */
static rf_status cut_page(struct rf_actor *actor, uint32_t page, uint32_t class, rf_detail *detail)
{
    struct rf_map *map = actor->map;
    const struct rf_header *h = map->header;
    uint32_t fresh = 0;
    rf_status status =
        rf_region_ensure(map, h->slab.offset + (uint64_t)page * RF_SLAB_PAGE, RF_SLAB_PAGE, detail);
    if (status == RF_OK) {
        status = rf_region_ensure(map, h->slab_tags.offset + (uint64_t)page * BLOCKS_PER_PAGE * 8,
                                  BLOCKS_PER_PAGE * 8, detail);
    }
    if (status == RF_OK) {
        /* release: whoever sees the size may touch the page (class_at). */
        atomic_compare_exchange_strong_explicit(class_at(map, page), &fresh, class + 1,
                                                memory_order_acq_rel, memory_order_relaxed);
        RF_POINT("slab.cut");
    }
    return status;
}

rf_status rf_slab_take(struct rf_actor *actor, uint64_t tag, size_t bytes, struct rf_block_ref *ref,
                       rf_detail *detail)
{
    struct rf_map *map = actor->map;
    uint32_t class = class_for(bytes);
    uint32_t pages = (uint32_t)map->header->slab_classes.count;
    rf_word32 *hint = &map->header->slab_hint[class];
    uint32_t seen = atomic_load_explicit(hint, memory_order_relaxed);
    rf_status cut = RF_OK; /* once no page can be had, only the ones that are there */
    ref->bytes = (uint32_t)bytes;
    for (uint32_t n = 0; n < pages; n++) {
        uint32_t page = (seen % pages + n) % pages;
        uint32_t c = atomic_load_explicit(class_at(map, page), memory_order_acquire);
        if (c == 0 && cut == RF_OK) {
            cut = cut_page(actor, page, class, detail);
            c = atomic_load_explicit(class_at(map, page), memory_order_acquire);
        }
        if (c == class + 1 && take_in_page(map, page, class, tag, ref)) {
            rf_hint_raise(hint, seen, page);
            return RF_OK;
        }
    }
    *ref = (struct rf_block_ref){0};
    if (cut != RF_OK) {
        return cut;
    }
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0,
                     "no block of %zu bytes is left; purge runs or make the store with more bytes",
                     bytes);
}

void rf_slab_give(struct rf_map *map, const struct rf_block_ref *ref)
{
    uint64_t expected = ref->tag;
    size_t capacity = rf_slab_capacity(map, ref);
    if (capacity == 0 || expected == 0) {
        return;
    }
    /* release: pairs with the take of the next user. */
    bool given = atomic_compare_exchange_strong_explicit(
        tag_at(map, ref->block - 1), &expected, 0, memory_order_acq_rel, memory_order_relaxed);
    RF_POINT("slab.given");
    if (given) {
        rf_hint_lower(&map->header->slab_hint[class_for(capacity)],
                      (ref->block - 1) / BLOCKS_PER_PAGE);
    }
}

uint64_t rf_slab_used(const struct rf_map *map)
{
    uint64_t used = 0;
    for (uint32_t page = 0; page < map->header->slab_classes.count; page++) {
        uint32_t c = atomic_load_explicit(class_at(map, page), memory_order_acquire);
        for (uint32_t i = 0; c != 0 && i < BLOCKS_PER_PAGE; i += 1u << (c - 1)) {
            used += atomic_load_explicit(tag_at(map, page * BLOCKS_PER_PAGE + i),
                                         memory_order_relaxed) != 0;
        }
    }
    return used;
}
