#include "fsck.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "directory.h"
#include "handle.h"
#include "index.h"
#include "lock.h"
#include "slab.h"

static char words[256];

static const char *wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    return words;
}

static const char *check_members(const struct rf_map *map)
{
    uint32_t used = atomic_load(&map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        struct rf_member *m = rf_member_at(map, slot);
        if (atomic_load(&m->joined_at) == 0) {
            continue; /* never used: there may be no memory behind it */
        }
        const struct rf_desc *d = &rf_slot_at(map, slot)->desc;
        uint64_t state = atomic_load(&d->state);
        if (RF_DESC_STATE(state) != RF_DESC_IDLE) {
            return wrong("member %u: descriptor in state %u", slot, RF_DESC_STATE(state));
        }
        for (unsigned i = 0; i < RF_LOCK_KINDS; i++) {
            if (atomic_load(&d->locks[i]) != 0) {
                return wrong("member %u: names a lock of kind %u", slot, i);
            }
        }
        if (atomic_load(&d->waiting_run) != 0 || atomic_load(&d->wake_run) != 0) {
            return wrong("member %u: names a run to wait for or to wake", slot);
        }
        if (atomic_load(&d->chain) != 0) {
            return wrong("member %u: has a chain open, which holds every snapshot back", slot);
        }
        /* A reaper that died right after it freed the slot is replaced when that is needed. */
        uint64_t reaper = atomic_load(&m->reaper);
        bool reaped = reaper != 0 && !rf_id_over(map, (uint32_t)reaper);
        if (atomic_load(&m->phase) != RF_PHASE_LIVE || reaped) {
            return wrong("member %u: phase %u, reaper %" PRIx64, slot, atomic_load(&m->phase),
                         reaper);
        }
    }
    for (uint64_t i = 0; i < map->header->stripes.count; i++) {
        if (!rf_lock_is_free(map, rf_section_at(map, &map->header->stripes, i))) {
            return wrong("stripe %" PRIu64 " is locked", i);
        }
    }
    return NULL;
}

/* What all runs refer to. */
struct census {
    uint64_t shards;
    uint64_t blocks;
    uint64_t extents;
    uint64_t leaves;
    uint8_t *block_seen; /* by number */
};

static const char *check_block(const struct rf_map *map, const struct rf_block_ref *ref,
                               struct census *census)
{
    if (ref->block == 0) {
        return NULL;
    }
    const rf_word64 *tag = rf_section_at(map, &map->header->slab_tags, ref->block - 1);
    if (tag == NULL || rf_slab_capacity(map, ref) < ref->bytes || atomic_load(tag) != ref->tag) {
        return wrong("block %u is referred to and does not belong to whoever does", ref->block);
    }
    if (census->block_seen[ref->block - 1]++ != 0) {
        return wrong("block %u is referred to twice", ref->block);
    }
    census->blocks++;
    return NULL;
}

static const char *check_blocks(const struct rf_map *map, const struct rf_rec *rec,
                                struct census *census)
{
    const char *why = check_block(map, &rec->body.cursor_ref, census);
    why = why == NULL ? check_block(map, &rec->body.spec_ref, census) : why;
    return why == NULL ? check_block(map, &rec->body.spawned_ref, census) : why;
}

static bool is_the_runs(const struct rf_map *map, const struct rf_section *tags, uint64_t number,
                        uint64_t uid)
{
    const rf_word64 *tag = rf_section_at(map, tags, number);
    return tag != NULL && atomic_load(tag) == uid;
}

/* Extents and leaves are the run's. What is remembered of deadlines and bits above the shards is what is
 * below; deadlines may be early, never late: whose lease has run out would not be found. */
static const char *check_directory(const struct rf_map *map, const struct rf_runrec *run,
                                   uint64_t uid, uint64_t extents)
{
    const struct rf_header *h = map->header;
    uint64_t summary[RF_LEAF_EXTENTS / 64] = {0};
    for (uint64_t j = 0; j < extents; j++) {
        uint64_t l = j / RF_LEAF_EXTENTS, k = j % RF_LEAF_EXTENTS;
        const struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
        uint32_t number = rf_dir_slot(map, run, j * RF_EXTENT_SHARDS) / RF_EXTENT_SHARDS;
        const struct rf_extent *extent = rf_extent_at(map, number);
        if (leaf == NULL || extent == NULL ||
            !is_the_runs(map, &h->leaf_tags, atomic_load(&run->leaf[l]) - 1, uid) ||
            !is_the_runs(map, &h->extent_tags, number, uid)) {
            return wrong("extent %" PRIu64 " of the run, or its leaf, is not the run's", j);
        }
        summary[k / 64] |= (uint64_t)(atomic_load(&extent->claimable) != 0) << k % 64;
        if (atomic_load(&run->earliest) > atomic_load(&leaf->earliest[k])) {
            return wrong("extent %" PRIu64 " has an earlier deadline than its run knows", j);
        }
        if (j + 1 < extents && k + 1 < RF_LEAF_EXTENTS) {
            continue;
        }
        uint64_t any = 0;
        for (uint32_t w = 0; w < RF_LEAF_EXTENTS / 64; w++) {
            if (atomic_load(&leaf->summary[w]) != summary[w]) {
                return wrong("a leaf says that extents %" PRIx64 " have claimable shards, and it "
                             "is %" PRIx64,
                             atomic_load(&leaf->summary[w]), summary[w]);
            }
            any |= summary[w];
            summary[w] = 0;
        }
        if ((atomic_load(&run->top[l / 64]) >> l % 64 & 1) != (any != 0)) {
            return wrong("the run's bit for leaf %" PRIu64 " is not what the leaf says", l);
        }
    }
    return NULL;
}

static const char *check_lease(const struct rf_map *map, const struct rf_runrec *run,
                               const struct rf_rec *rec, const struct rf_extent *extent, uint32_t i)
{
    const struct rf_shard_state *s = &rec->body.state;
    uint64_t j = rec->position / RF_EXTENT_SHARDS, hint = atomic_load(&extent->deadline[i]);
    bool leased = (s->flags & RF_SHARD_LEASED) != 0;
    if (leased && rec->body.listed == 0 && hint > s->deadline) {
        return wrong("position %u: its lease runs out before anybody looks", rec->position);
    }
    if (hint < atomic_load(&rf_dir_leaf(map, run, j)->earliest[j % RF_LEAF_EXTENTS])) {
        return wrong("position %u has an earlier deadline than its leaf knows", rec->position);
    }
    return NULL;
}

static const char *check_shards(const struct rf_map *map, const struct rf_runrec *run, uint64_t uid,
                                struct census *census)
{
    uint64_t count = atomic_load(&run->count), bits = 0;
    for (uint64_t p = 0; p < count; p++) {
        uint32_t slot = rf_dir_slot(map, run, p);
        const struct rf_rec *rec = slot == RF_NO_SLOT ? NULL : rf_rec_at(map, slot);
        if (rec == NULL || rec->run_uid != uid || rec->position != p) {
            return wrong("position %" PRIu64 " leads to no shard of the run", p);
        }
        if (!rf_lock_is_free(map, &rec->lock) || (atomic_load(&rec->seq) & 1u) != 0) {
            return wrong("position %" PRIu64 ": lock %x, sequence %u", p, atomic_load(&rec->lock),
                         atomic_load(&rec->seq));
        }
        const struct rf_extent *extent = rf_extent_at(map, slot / RF_EXTENT_SHARDS);
        uint32_t i = slot % RF_EXTENT_SHARDS;
        bool bit = (atomic_load(&extent->claimable) >> i & 1) != 0;
        if (bit != (rec->body.listed != 0)) {
            return wrong("position %" PRIu64 ": claimable bit %d, listed %u", p, bit,
                         rec->body.listed);
        }
        if (atomic_load(&extent->bound[i]) != rec->body.bound) {
            return wrong("position %" PRIu64 ": bound to %x in the extent, to %" PRIx64 " in the "
                         "record",
                         p, atomic_load(&extent->bound[i]), rec->body.bound);
        }
        bits += bit;
        const char *why = check_blocks(map, rec, census);
        why = why == NULL ? check_lease(map, run, rec, extent, i) : why;
        if (why != NULL) {
            return why;
        }
    }
    census->shards += count;
    if (bits != atomic_load(&run->available)) {
        return wrong("%" PRIu64 " claimable bits, %" PRIu64 " available", bits,
                     atomic_load(&run->available));
    }
    return NULL;
}

static const char *check_runs(const struct rf_map *map, struct census *census)
{
    uint32_t used = atomic_load(&map->header->runs_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        struct rf_runrec *run = rf_run_at(map, slot);
        uint64_t uid = atomic_load(&run->tag);
        /* A free slot may have been left in the middle of being filled: its next user goes on there. */
        if (!rf_lock_is_free(map, &run->lock) || (uid != 0 && (atomic_load(&run->seq) & 1u) != 0) ||
            atomic_load(&run->pending) != 0) {
            return wrong("run slot %u: lock %x, sequence %u, pending %" PRIu64, slot,
                         atomic_load(&run->lock), atomic_load(&run->seq),
                         atomic_load(&run->pending));
        }
        for (uint32_t w = 0; w < RF_SLOTS_MAX / 64; w++) {
            if (atomic_load(&run->waiters[w]) != 0) {
                return wrong("run slot %u: somebody is listed as waiting", slot);
            }
        }
        if (atomic_load(&run->live) != uid) {
            return wrong("run slot %u: tag %" PRIu64 ", live %" PRIu64, slot, uid,
                         atomic_load(&run->live));
        }
        if (uid == 0) {
            continue;
        }
        uint64_t n = (atomic_load(&run->count) + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS;
        census->extents += n;
        census->leaves += (n + RF_LEAF_EXTENTS - 1) / RF_LEAF_EXTENTS;
        const char *why = check_directory(map, run, uid, n);
        why = why == NULL ? check_shards(map, run, uid, census) : why;
        if (why != NULL) {
            return why;
        }
    }
    if (census->blocks != rf_slab_used(map) || census->extents != rf_extents_used(map) ||
        census->leaves != rf_leaves_used(map)) {
        return wrong("in use and referred to: blocks %" PRIu64 " %" PRIu64 ", extents %" PRIu64
                     " %" PRIu64 ", leaves %" PRIu64 " %" PRIu64,
                     rf_slab_used(map), census->blocks, rf_extents_used(map), census->extents,
                     rf_leaves_used(map), census->leaves);
    }
    return NULL;
}

/* Every cell leads to what it was entered for, and every shard has one cell. */
static const char *check_index(const struct rf_map *map, const struct census *census)
{
    uint64_t shards_seen = 0;
    const struct rf_section *runs = &map->header->run_index, *shards = &map->header->shard_index;
    for (uint64_t b = 0; b < runs->count; b++) {
        const struct rf_bucket *bucket = rf_section_at(map, runs, b);
        for (uint32_t i = 0; i < RF_BUCKET_CELLS; i++) {
            uint64_t cell = atomic_load(&bucket->cell[i]);
            struct rf_runrec *run = cell == 0 ? NULL : rf_run_at(map, (uint32_t)cell - 1);
            if (cell != 0 && (run == NULL || atomic_load(&run->tag) == 0 ||
                              rf_index_hash_run(map, &run->tenant, run->run) >> 32 != cell >> 32)) {
                return wrong("the run index has a cell that leads nowhere");
            }
        }
    }
    for (uint64_t b = 0; b < shards->count; b++) {
        if (!rf_region_index_present(map, b)) {
            continue;
        }
        const struct rf_bucket *bucket = rf_section_at(map, shards, b);
        for (uint32_t i = 0; i < RF_BUCKET_CELLS; i++) {
            uint64_t cell = atomic_load(&bucket->cell[i]);
            if (cell == 0) {
                continue;
            }
            uint32_t slot = (uint32_t)cell - 1;
            const struct rf_rec *rec = rf_rec_at(map, slot);
            const rf_word64 *tag =
                rf_section_at(map, &map->header->extent_tags, slot / RF_EXTENT_SHARDS);
            if (rec == NULL || atomic_load(tag) == 0 || rec->run_uid != atomic_load(tag) ||
                rec->position >= atomic_load(&rf_run_at(map, rec->run_slot)->count) ||
                rf_index_hash_shard(map, rec->run_uid, rec->shard) >> 32 != cell >> 32) {
                return wrong("the shard index has a cell that leads nowhere: slot %u", slot);
            }
            shards_seen++;
        }
    }
    return shards_seen == census->shards
               ? NULL
               : wrong("the shard index has %" PRIu64 " cells for %" PRIu64 " shards", shards_seen,
                       census->shards);
}

const char *rf_fsck(rf_store *store)
{
    const struct rf_map *map = rf_handle_of(store)->map;
    struct census census = {.block_seen = calloc(map->header->slab_tags.count + 1, 1)};
    const char *why = check_members(map);
    if (census.block_seen == NULL) {
        return wrong("no memory to look with");
    }
    if (why == NULL) {
        why = check_runs(map, &census);
    }
    if (why == NULL) {
        why = check_index(map, &census);
    }
    free(census.block_seen);
    return why;
}
