#include "apply.h"

#include <limits.h>

#include "directory.h"
#include "futex.h"
#include "index.h"
#include "point.h"
#include "seq.h"
#include "slab.h"

#define STORE64(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)

static void apply_run_body(struct rf_runrec *run, const struct rf_desc *d,
                           const struct rf_applied *a)
{
    const struct rf_run *r = a->run;
    struct rf_run_body body = {
        .version = d->next_version,
        .epoch = a->epoch,
        .stamp = a->stamp,
        .created_at = r->created_at,
        .completed_at = r->completed_at,
        .root_count = r->root_count,
        .status = (uint32_t)r->status,
        .ring_count = r->ring_count,
        .ring_next = r->ring_next,
        .ring = r->ring,
    };
    rf_words_store(&run->body, &body, sizeof(body));
    RF_POINT("apply.run_body");
    atomic_store_explicit(&run->status, (uint32_t)r->status, memory_order_relaxed);
    RF_POINT("apply.run_status");
}

static void apply_counts(struct rf_runrec *run, const struct rf_desc *d, uint64_t stamp)
{
    /* Whoever changes the run's numbers comes after the last who did, in the log as well. */
    __atomic_store_n(&run->body.stamp, stamp, __ATOMIC_RELAXED);
    STORE64(run->available, d->available);
    STORE64(run->done, d->done);
    STORE64(run->split, d->split);
    STORE64(run->parked, d->parked);
    RF_POINT("apply.counts");
    STORE64(run->earliest, d->earliest);
    STORE64(run->count, d->count);
    STORE64(run->pending, 0);
    RF_POINT("apply.count");
}

/* The grant's deadline and owner where the sweeps look for them. */
static void apply_lease_arrays(struct rf_map *map, struct rf_runrec *run, const struct rf_desc *d,
                               const struct rf_rec *rec)
{
    struct rf_extent *extent = rf_extent_at(map, d->shard_slot / RF_EXTENT_SHARDS);
    uint32_t i = d->shard_slot % RF_EXTENT_SHARDS;
    uint64_t j = rec->position / RF_EXTENT_SHARDS;
    struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
    rf_word64 *earliest = &leaf->earliest[j % RF_LEAF_EXTENTS];
    STORE64(extent->deadline[i], d->deadline_hint);
    RF_POINT("apply.deadline");
    if (d->deadline_hint < atomic_load_explicit(earliest, memory_order_relaxed)) {
        STORE64(*earliest, d->deadline_hint);
        RF_POINT("apply.earliest");
    }
    atomic_store_explicit(&extent->bound[i], d->bound, memory_order_release);
    RF_POINT("apply.bound");
}

static void raise_floor(struct rf_header *h, uint64_t floor)
{
    uint64_t old = atomic_load_explicit(&h->fence_floor, memory_order_relaxed);
    while (old < floor &&
           !atomic_compare_exchange_weak_explicit(&h->fence_floor, &old, floor,
                                                  memory_order_release, memory_order_relaxed)) {
    }
    RF_POINT("apply.floor");
}

void rf_apply(struct rf_map *map, const struct rf_desc *d, const struct rf_applied *a)
{
    struct rf_runrec *run = rf_run_at(map, d->run_slot);
    struct rf_rec *rec = (d->redo & RF_REDO_SHARD) != 0 ? rf_rec_at(map, d->shard_slot) : NULL;

    if ((d->redo & (RF_REDO_RUN | RF_REDO_COUNTS)) != 0) {
        uint32_t odd = rf_seq_open(&run->seq);
        RF_POINT("apply.run_open");
        if ((d->redo & RF_REDO_RUN) != 0) {
            apply_run_body(run, d, a);
        }
        if ((d->redo & RF_REDO_COUNTS) != 0) {
            apply_counts(run, d, a->stamp);
        }
        rf_seq_close(&run->seq, odd);
        RF_POINT("apply.run_close");
    }
    if (rec != NULL) {
        rf_rec_write(map, rec, d, a->step, a->epoch, a->stamp);
    }
    if ((d->redo & RF_REDO_MADE) != 0) {
        for (uint64_t p = d->made_from; p < d->made_to; p++) {
            rf_dir_set_claimable(map, run, p, true);
        }
    }
    if ((d->redo & RF_REDO_BOUND) != 0) {
        apply_lease_arrays(map, run, d, rec);
    }
    if ((d->redo & RF_REDO_CLAIM_BIT) != 0) {
        rf_dir_set_claimable(map, run, rec->position, d->claim_bit != 0);
    }
    for (unsigned i = 0; i < 3; i++) {
        if (d->frees[i].block != 0) {
            rf_slab_give(map, &d->frees[i]);
        }
    }
    if ((d->redo & RF_REDO_LIVE) != 0) {
        /* release: whoever finds the run alive finds all of it (rf_find_run). */
        atomic_store_explicit(&run->live, d->run_uid, memory_order_release);
        RF_POINT("apply.live");
    }
    if ((d->redo & RF_REDO_PURGE) != 0) {
        raise_floor(map->header, d->floor);
        atomic_store_explicit(&run->purging, d->run_uid, memory_order_release);
        RF_POINT("apply.purging");
        /* seq_cst: pairs with the look at it under a shard's lock (rf_lock). */
        atomic_store_explicit(&run->live, 0, memory_order_seq_cst);
        RF_POINT("apply.gone");
    }
}

void rf_undo(struct rf_map *map, struct rf_desc *d)
{
    struct rf_runrec *run = rf_run_at(map, d->run_slot);
    for (unsigned i = 0; i < 3; i++) {
        rf_slab_give(map, &d->blocks[i]);
    }
    if (run == NULL) {
        return;
    }
    /* Everything below belongs to a run whose lock the operation held, or that it was making. */
    for (uint64_t p = d->made_from; p < d->made_to; p++) {
        uint32_t slot = rf_dir_slot(map, run, p);
        struct rf_rec *rec = slot == RF_NO_SLOT ? NULL : rf_rec_at(map, slot);
        const rf_word64 *tag =
            rf_section_at(map, &map->header->extent_tags, slot / RF_EXTENT_SHARDS);
        /* An extent that a reaper gave back before he died may be somebody else's by now. */
        if (rec == NULL || atomic_load_explicit(tag, memory_order_acquire) != d->run_uid) {
            continue;
        }
        rf_rec_undo(map, rec);
        if (rec->run_uid == d->run_uid) {
            rf_index_leave_shard(map, rf_index_hash_shard(map, d->run_uid, rec->shard), slot);
        }
    }
    if (d->extent_to > d->extent_from || d->leaf_to > d->leaf_from) {
        rf_dir_undo(map, run, d);
    }
    if (d->run_taken != 0 && atomic_load_explicit(&run->tag, memory_order_acquire) == d->run_uid) {
        uint64_t uid = d->run_uid;
        rf_index_leave_run(map, rf_index_hash_run(map, &run->tenant, run->run), d->run_slot);
        atomic_store_explicit(&run->pending, 0, memory_order_relaxed);
        atomic_compare_exchange_strong_explicit(&run->tag, &uid, 0, memory_order_acq_rel,
                                                memory_order_relaxed);
        RF_POINT("undo.run");
    }
}

void rf_wake_claimers(struct rf_map *map, struct rf_runrec *run, uint32_t count)
{
    (void)map;
    /* The word changes first, so that a claimer about to sleep on its old value does not. seq_cst:
     * with the claimable bits before it and the waiters after it, against claim.c. */
    atomic_fetch_add_explicit(&run->claim, 1, memory_order_seq_cst);
    RF_POINT("wake.changed");
    if (atomic_load_explicit(&run->waiter_summary, memory_order_seq_cst) != 0) {
        rf_futex_wake(&run->claim, count > INT_MAX ? INT_MAX : (int)count);
        RF_POINT("wake.done");
    }
}
