#include "index.h"

#include "point.h"

#define CHOICES 4u

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)(a ^ 0x9E3779B97F4A7C15ull) * (b | 1u);
    uint64_t h = (uint64_t)product ^ (uint64_t)(product >> 64) ^ a;
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ull;
    return h ^ h >> 29;
}

uint64_t rf_index_hash_shard(const struct rf_map *map, uint64_t run_uid, uint64_t shard)
{
    uint64_t seed = map->header->hash_seed;
    return mix(mix(shard, seed), run_uid + seed);
}

uint64_t rf_index_hash_run(const struct rf_map *map, const rf_tenant *tenant, uint64_t run)
{
    uint64_t words[4];
    uint64_t h = map->header->hash_seed;
    memcpy(words, tenant->bytes, sizeof(words));
    for (unsigned i = 0; i < 4; i++) {
        h = mix(h, words[i] + i);
    }
    return mix(h, run);
}

static uint64_t choice(const struct rf_section *table, uint64_t hash, uint32_t n)
{
    static const uint64_t odd[CHOICES] = {1, 0x9E3779B97F4A7C15ull, 0xC2B2AE3D27D4EB4Full,
                                          0x165667B19E3779F9ull};
    uint64_t h = hash * odd[n];
    return (n == 0 ? h : h >> 20) & (table->count - 1);
}

static uint64_t cell_value(uint64_t hash, uint32_t slot)
{
    return (hash & 0xFFFFFFFF00000000ull) | (slot + 1u);
}

/* The shard table grows as it is used; a bucket that is not there yet is empty. */
static bool present(const struct rf_map *map, const struct rf_section *table, uint64_t bucket)
{
    return table != &map->header->shard_index || rf_region_index_present(map, bucket);
}

static uint32_t choices_in_use(const struct rf_map *map)
{
    /* acquire: pairs with the store in enter, made before a cell goes to a third bucket. */
    return atomic_load_explicit(&map->header->index_overflow, memory_order_acquire) != 0 ? CHOICES
                                                                                         : 2u;
}

static uint32_t used_cells(const struct rf_bucket *bucket)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < RF_BUCKET_CELLS; i++) {
        used += atomic_load_explicit(&bucket->cell[i], memory_order_relaxed) != 0;
    }
    return used;
}

static bool enter_bucket(struct rf_bucket *bucket, uint64_t value)
{
    for (uint32_t i = 0; i < RF_BUCKET_CELLS; i++) {
        uint64_t empty = 0;
        /* release: what the entry points to is written. */
        if (atomic_load_explicit(&bucket->cell[i], memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&bucket->cell[i], &empty, value,
                                                    memory_order_acq_rel, memory_order_relaxed)) {
            RF_POINT("index.entered");
            return true;
        }
    }
    return false;
}

static rf_status ensure_bucket(struct rf_map *map, const struct rf_section *table, uint64_t bucket,
                               rf_detail *detail)
{
    return table == &map->header->shard_index ? rf_region_ensure_index(map, bucket, detail) : RF_OK;
}

static rf_status enter(struct rf_actor *actor, const struct rf_section *table, uint64_t hash,
                       uint32_t slot, rf_detail *detail)
{
    struct rf_map *map = actor->map;
    uint64_t value = cell_value(hash, slot);
    uint64_t a = choice(table, hash, 0), b = choice(table, hash, 1);
    rf_status status = ensure_bucket(map, table, a, detail);
    if (status != RF_OK) {
        return status;
    }
    struct rf_bucket *first = rf_section_at(map, table, a);
    if (used_cells(first) < RF_BUCKET_CELLS / 2 && enter_bucket(first, value)) {
        return RF_OK;
    }
    status = ensure_bucket(map, table, b, detail);
    if (status != RF_OK) {
        return status;
    }
    struct rf_bucket *second = rf_section_at(map, table, b);
    if (used_cells(second) < used_cells(first)) {
        struct rf_bucket *swap = first;
        first = second;
        second = swap;
    }
    if (enter_bucket(first, value) || enter_bucket(second, value)) {
        return RF_OK;
    }
    atomic_store_explicit(&map->header->index_overflow, 1, memory_order_release);
    for (uint32_t n = 2; n < CHOICES; n++) {
        uint64_t at = choice(table, hash, n);
        status = ensure_bucket(map, table, at, detail);
        if (status != RF_OK) {
            return status;
        }
        if (enter_bucket(rf_section_at(map, table, at), value)) {
            return RF_OK;
        }
    }
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0, "the index is full; purge runs");
}

static void leave(struct rf_map *map, const struct rf_section *table, uint64_t hash, uint32_t slot)
{
    uint64_t value = cell_value(hash, slot);
    for (uint32_t n = 0; n < CHOICES; n++) {
        uint64_t at = choice(table, hash, n);
        if (!present(map, table, at)) {
            continue;
        }
        struct rf_bucket *bucket = rf_section_at(map, table, at);
        for (uint32_t i = 0; i < RF_BUCKET_CELLS; i++) {
            uint64_t expected = value;
            if (atomic_load_explicit(&bucket->cell[i], memory_order_relaxed) == value) {
                atomic_compare_exchange_strong_explicit(&bucket->cell[i], &expected, 0,
                                                        memory_order_acq_rel, memory_order_relaxed);
                RF_POINT("index.left");
            }
        }
    }
}

static bool next(const struct rf_map *map, const struct rf_section *table, uint64_t hash,
                 uint32_t *at, uint32_t *slot)
{
    uint32_t end = choices_in_use(map) * RF_BUCKET_CELLS;
    for (; *at < end; (*at)++) {
        uint64_t b = choice(table, hash, *at / RF_BUCKET_CELLS);
        if (!present(map, table, b)) {
            *at |= RF_BUCKET_CELLS - 1;
            continue;
        }
        struct rf_bucket *bucket = rf_section_at(map, table, b);
        /* acquire: pairs with enter_bucket. */
        uint64_t cell =
            atomic_load_explicit(&bucket->cell[*at % RF_BUCKET_CELLS], memory_order_acquire);
        if (cell != 0 && cell >> 32 == hash >> 32) {
            *slot = (uint32_t)cell - 1;
            (*at)++;
            return true;
        }
    }
    return false;
}

rf_status rf_index_enter_shard(struct rf_actor *actor, uint64_t hash, uint32_t slot,
                               rf_detail *detail)
{
    return enter(actor, &actor->map->header->shard_index, hash, slot, detail);
}

void rf_index_prefetch_shard(const struct rf_map *map, uint64_t hash)
{
    const struct rf_section *table = &map->header->shard_index;
    uint64_t bucket = choice(table, hash, 0);
    if (rf_region_index_present(map, bucket)) {
        __builtin_prefetch(rf_section_at(map, table, bucket), 1);
    }
}

void rf_index_leave_shard(struct rf_map *map, uint64_t hash, uint32_t slot)
{
    leave(map, &map->header->shard_index, hash, slot);
}

bool rf_index_next_shard(const struct rf_map *map, uint64_t hash, uint32_t *at, uint32_t *slot)
{
    return next(map, &map->header->shard_index, hash, at, slot);
}

rf_status rf_index_enter_run(struct rf_actor *actor, uint64_t hash, uint32_t slot,
                             rf_detail *detail)
{
    return enter(actor, &actor->map->header->run_index, hash, slot, detail);
}

void rf_index_leave_run(struct rf_map *map, uint64_t hash, uint32_t slot)
{
    leave(map, &map->header->run_index, hash, slot);
}

bool rf_index_next_run(const struct rf_map *map, uint64_t hash, uint32_t *at, uint32_t *slot)
{
    return next(map, &map->header->run_index, hash, at, slot);
}
