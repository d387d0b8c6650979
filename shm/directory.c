#include "directory.h"

#include "point.h"

static rf_word64 *extent_tag(const struct rf_map *map, uint32_t extent)
{
    return rf_section_at(map, &map->header->extent_tags, extent);
}

static rf_word64 *leaf_tag(const struct rf_map *map, uint32_t leaf)
{
    return rf_section_at(map, &map->header->leaf_tags, leaf);
}

struct rf_leaf *rf_dir_leaf(const struct rf_map *map, const struct rf_runrec *run, uint64_t extent)
{
    uint64_t k = extent / RF_LEAF_EXTENTS;
    uint32_t leaf =
        k < RF_RUN_LEAVES ? atomic_load_explicit(&run->leaf[k], memory_order_acquire) : 0;
    return leaf == 0 ? NULL : rf_leaf_at(map, leaf - 1);
}

static uint32_t extent_at(const struct rf_map *map, const struct rf_runrec *run, uint64_t extent)
{
    const struct rf_leaf *leaf = rf_dir_leaf(map, run, extent);
    return leaf == NULL ? RF_NO_SLOT
                        : atomic_load_explicit(&leaf->extent[extent % RF_LEAF_EXTENTS],
                                               memory_order_acquire);
}

uint32_t rf_dir_slot(const struct rf_map *map, const struct rf_runrec *run, uint64_t position)
{
    uint32_t extent = extent_at(map, run, position / RF_EXTENT_SHARDS);
    if (extent == RF_NO_SLOT || extent >= map->header->extents.count) {
        return RF_NO_SLOT;
    }
    return extent * RF_EXTENT_SHARDS + (uint32_t)(position % RF_EXTENT_SHARDS);
}

/* Finds a tag that is 0, tells `name` about it, and swaps the uid in. */
static uint32_t take_tag(const struct rf_map *map, const struct rf_section *tags, rf_word32 *hint,
                         uint64_t uid, rf_word32 *place, uint32_t bias)
{
    uint32_t count = (uint32_t)tags->count;
    uint32_t seen = atomic_load_explicit(hint, memory_order_relaxed);
    uint32_t start = seen % count;
    for (uint32_t n = 0; n < count; n++) {
        uint32_t i = start + n < count ? start + n : start + n - count;
        rf_word64 *tag = rf_section_at(map, tags, i);
        uint64_t unused = 0;
        if (atomic_load_explicit(tag, memory_order_relaxed) != 0) {
            continue;
        }
        atomic_store_explicit(place, i + bias, memory_order_release);
        RF_POINT("directory.named");
        /* release: the name is there for whoever finds the tag. */
        if (atomic_compare_exchange_strong_explicit(tag, &unused, uid, memory_order_acq_rel,
                                                    memory_order_relaxed)) {
            RF_POINT("directory.taken");
            rf_hint_raise(hint, seen, i + 1);
            return i;
        }
    }
    return RF_NO_SLOT;
}

static void give_tag(rf_word64 *tag, uint64_t uid)
{
    uint64_t expected = uid;
    if (tag != NULL) {
        atomic_compare_exchange_strong_explicit(tag, &expected, 0, memory_order_acq_rel,
                                                memory_order_relaxed);
        RF_POINT("directory.given");
    }
}

static void give_extent(struct rf_map *map, uint32_t extent, uint64_t uid)
{
    give_tag(extent_tag(map, extent), uid);
    rf_hint_lower(&map->header->extent_hint, extent);
}

static void give_leaf(struct rf_map *map, uint32_t leaf, uint64_t uid)
{
    give_tag(leaf_tag(map, leaf), uid);
    rf_hint_lower(&map->header->leaf_hint, leaf);
}

/* A fresh extent. Locks and sequence words stay as they are: somebody with an old hint may be
 * looking at them. */
static void clear_extent(struct rf_extent *extent)
{
    atomic_store_explicit(&extent->claimable, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < RF_EXTENT_SHARDS; i++) {
        atomic_store_explicit(&extent->deadline[i], RF_NO_DEADLINE, memory_order_relaxed);
        atomic_store_explicit(&extent->bound[i], 0, memory_order_relaxed);
    }
}

static void clear_leaf(struct rf_leaf *leaf)
{
    for (uint32_t i = 0; i < RF_LEAF_EXTENTS / 64; i++) {
        atomic_store_explicit(&leaf->summary[i], 0, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < RF_LEAF_EXTENTS; i++) {
        atomic_store_explicit(&leaf->earliest[i], RF_NO_DEADLINE, memory_order_relaxed);
        atomic_store_explicit(&leaf->extent[i], RF_NO_SLOT, memory_order_relaxed);
    }
}

static rf_status grow_leaf(struct rf_actor *actor, struct rf_runrec *run, uint64_t uid, uint32_t k,
                           rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_header *h = map->header;
    if (k >= RF_RUN_LEAVES) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0, "a run can't have more shards");
    }
    /* As in grow_extent. */
    atomic_store_explicit(&run->leaf[k], 0, memory_order_release);
    __atomic_store_n(&actor->desc->leaf_to, k + 1, __ATOMIC_RELEASE);
    uint32_t leaf = take_tag(map, &h->leaf_tags, &h->leaf_hint, uid, &run->leaf[k], 1);
    if (leaf == RF_NO_SLOT) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0, "no directory leaf is left");
    }
    rf_status status =
        rf_region_ensure(map, h->leaves.offset + leaf * h->leaves.stride, h->leaves.stride, detail);
    if (status == RF_OK) {
        clear_leaf(rf_leaf_at(map, leaf));
    }
    return status;
}

static rf_status grow_extent(struct rf_actor *actor, struct rf_runrec *run, uint64_t uid,
                             uint32_t j, rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_header *h = map->header;
    struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
    rf_word32 *place = &leaf->extent[j % RF_LEAF_EXTENTS];
    /* A name left by an operation that came to nothing must not be mistaken for ours. */
    atomic_store_explicit(place, RF_NO_SLOT, memory_order_release);
    __atomic_store_n(&actor->desc->extent_to, j + 1, __ATOMIC_RELEASE);
    uint32_t extent = take_tag(map, &h->extent_tags, &h->extent_hint, uid, place, 0);
    if (extent == RF_NO_SLOT) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0, "no extent of shards is left");
    }
    rf_status status = rf_region_ensure(map, h->extents.offset + extent * h->extents.stride,
                                        h->extents.stride, detail);
    if (status == RF_OK) {
        clear_extent(rf_extent_at(map, extent));
        atomic_store_explicit(&leaf->earliest[j % RF_LEAF_EXTENTS], RF_NO_DEADLINE,
                              memory_order_relaxed);
    }
    return status;
}

rf_status rf_dir_grow(struct rf_actor *actor, struct rf_runrec *run, uint64_t uid, uint64_t from,
                      uint64_t to, rf_detail *detail)
{
    struct rf_desc *d = actor->desc;
    uint32_t have = (uint32_t)((from + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS);
    uint32_t need = (uint32_t)((to + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS);
    assert(d->extent_from == have && d->extent_to == have);
    rf_status status = RF_OK;
    for (uint32_t j = have; j < need && status == RF_OK; j++) {
        if (j % RF_LEAF_EXTENTS == 0) {
            status = grow_leaf(actor, run, uid, j / RF_LEAF_EXTENTS, detail);
        }
        if (status == RF_OK) {
            status = grow_extent(actor, run, uid, j, detail);
        }
    }
    return status;
}

void rf_dir_undo(struct rf_map *map, struct rf_runrec *run, const struct rf_desc *d)
{
    for (uint32_t j = d->extent_from; j < d->extent_to; j++) {
        uint32_t extent = extent_at(map, run, j);
        if (extent < map->header->extents.count) {
            give_extent(map, extent, d->run_uid);
        }
    }
    for (uint32_t k = d->leaf_from; k < d->leaf_to && k < RF_RUN_LEAVES; k++) {
        uint32_t leaf = atomic_load_explicit(&run->leaf[k], memory_order_acquire);
        if (leaf != 0) {
            give_leaf(map, leaf - 1, d->run_uid);
        }
    }
}

void rf_dir_drop(struct rf_map *map, struct rf_runrec *run, uint64_t uid)
{
    for (uint32_t k = 0; k < RF_RUN_LEAVES; k++) {
        uint32_t number = atomic_load_explicit(&run->leaf[k], memory_order_acquire);
        rf_word64 *tag = number == 0 ? NULL : leaf_tag(map, number - 1);
        /* Extents first: a leaf that is no longer the run's has none left. */
        if (tag == NULL || atomic_load_explicit(tag, memory_order_acquire) != uid) {
            continue;
        }
        struct rf_leaf *leaf = rf_leaf_at(map, number - 1);
        for (uint32_t i = 0; i < RF_LEAF_EXTENTS; i++) {
            uint32_t extent = atomic_load_explicit(&leaf->extent[i], memory_order_relaxed);
            if (extent < map->header->extents.count) {
                give_extent(map, extent, uid);
            }
        }
        give_leaf(map, number - 1, uid);
    }
}

/* --- claimable bits --- */

static void set_bit(rf_word64 *word, uint32_t bit, bool on)
{
    uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
    uint64_t mask = 1ull << bit;
    uint64_t next = on ? old | mask : old & ~mask;
    if (next != old) {
        /* Only holders of the run's lock write; release: what the bit speaks of is written.
         * seq_cst: a claimer that goes to sleep either sees the bit or is seen (claim.c). */
        atomic_store_explicit(word, next, memory_order_seq_cst);
        RF_POINT("directory.bit");
    }
}

void rf_dir_set_claimable(const struct rf_map *map, struct rf_runrec *run, uint64_t position,
                          bool claimable)
{
    uint64_t j = position / RF_EXTENT_SHARDS;
    struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
    struct rf_extent *extent = rf_extent_at(map, extent_at(map, run, j));
    uint32_t k = (uint32_t)(j % RF_LEAF_EXTENTS);
    set_bit(&extent->claimable, (uint32_t)(position % RF_EXTENT_SHARDS), claimable);
    bool any = atomic_load_explicit(&extent->claimable, memory_order_relaxed) != 0;
    set_bit(&leaf->summary[k / 64], k % 64, any);
    for (uint32_t i = 0; i < RF_LEAF_EXTENTS / 64 && !any; i++) {
        any = atomic_load_explicit(&leaf->summary[i], memory_order_relaxed) != 0;
    }
    uint32_t l = (uint32_t)(j / RF_LEAF_EXTENTS);
    set_bit(&run->top[l / 64], l % 64, any);
}

/* The first set bit at or behind `from`, or UINT32_MAX; `words` words of 64 bits. */
static uint32_t first_set(const rf_word64 *word, uint32_t words, uint32_t from)
{
    uint32_t w = from / 64;
    uint64_t mask = ~0ull << (from % 64);
    for (; w < words; w++, mask = ~0ull) {
        uint64_t bits = atomic_load_explicit(&word[w], memory_order_seq_cst) & mask;
        if (bits != 0) {
            return w * 64 + (uint32_t)__builtin_ctzll(bits);
        }
    }
    return UINT32_MAX;
}

/* In one leaf, at or behind extent k and bit `bit` of it. */
static uint64_t next_in_leaf(const struct rf_map *map, const struct rf_leaf *leaf, uint32_t k,
                             uint32_t bit)
{
    while (k < RF_LEAF_EXTENTS) {
        uint32_t next = first_set(leaf->summary, RF_LEAF_EXTENTS / 64, k);
        if (next == UINT32_MAX) {
            break;
        }
        bit = next == k ? bit : 0;
        k = next;
        uint32_t number = atomic_load_explicit(&leaf->extent[k], memory_order_acquire);
        const struct rf_extent *extent = rf_extent_at(map, number);
        uint32_t found = extent == NULL ? UINT32_MAX : first_set(&extent->claimable, 1, bit);
        if (found != UINT32_MAX) {
            return (uint64_t)k * RF_EXTENT_SHARDS + found;
        }
        k++;
        bit = 0;
    }
    return UINT64_MAX;
}

uint64_t rf_dir_next_claimable(const struct rf_map *map, const struct rf_runrec *run, uint64_t from,
                               uint64_t count)
{
    const uint64_t per_leaf = (uint64_t)RF_LEAF_EXTENTS * RF_EXTENT_SHARDS;
    uint32_t l = (uint32_t)(from / per_leaf);
    uint64_t within = from % per_leaf;
    while (l < RF_RUN_LEAVES) {
        uint32_t next = first_set(run->top, RF_RUN_LEAVES / 64, l);
        if (next == UINT32_MAX) {
            break;
        }
        if (next != l) {
            within = 0;
        }
        l = next;
        const struct rf_leaf *leaf = rf_dir_leaf(map, run, (uint64_t)l * RF_LEAF_EXTENTS);
        uint64_t found = leaf == NULL
                             ? UINT64_MAX
                             : next_in_leaf(map, leaf, (uint32_t)(within / RF_EXTENT_SHARDS),
                                            (uint32_t)(within % RF_EXTENT_SHARDS));
        if (found != UINT64_MAX) {
            uint64_t position = l * per_leaf + found;
            return position < count ? position : UINT64_MAX;
        }
        l++;
        within = 0;
    }
    return UINT64_MAX;
}

static uint64_t tags_used(const struct rf_map *map, const struct rf_section *tags)
{
    uint64_t used = 0;
    for (uint64_t i = 0; i < tags->count; i++) {
        const rf_word64 *tag = rf_section_at(map, tags, i);
        used += atomic_load_explicit(tag, memory_order_relaxed) != 0;
    }
    return used;
}

uint64_t rf_extents_used(const struct rf_map *map)
{
    return tags_used(map, &map->header->extent_tags);
}

uint64_t rf_leaves_used(const struct rf_map *map)
{
    return tags_used(map, &map->header->leaf_tags);
}
