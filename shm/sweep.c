#include "sweep.h"

#include "futex.h"
#include "index.h"
#include "point.h"
#include "reap.h"

#define LOAD64(word) atomic_load_explicit(&(word), memory_order_relaxed)

/* --- the leases of the dead --- */

/* One lease: an ordinary operation on an ordinary shard. */
static bool lose_lease(struct rf_actor *actor, uint32_t shard_slot, uint32_t bound, bool impatient,
                       uint64_t now)
{
    struct rf_op op;
    bool gone = false;
    struct rf_rec *rec = rf_rec_at(actor->map, shard_slot);
    rf_op_begin(&op, actor);
    op.ending = true;
    op.impatient = impatient;
    uint32_t run_slot = __atomic_load_n(&rec->run_slot, __ATOMIC_RELAXED);
    uint64_t uid = __atomic_load_n(&rec->run_uid, __ATOMIC_RELAXED);
    if (rf_run_at(actor->map, run_slot) == NULL) {
        return true;
    }
    rf_status status = rf_op_open_slot(&op, run_slot, uid, shard_slot, &gone, NULL);
    if (status == RF_OK && !gone && op.rec->body.bound == bound &&
        rf_shard_owner_lost(&op.view, &op.step)) {
        status = rf_op_lock_run(&op, RF_NOT_FOUND, NULL);
        if (status == RF_OK) {
            status = rf_op_execute(&op, now, 0, NULL);
            rf_count_repair(actor, RF_REPAIR_LEASES);
        } else if (status == RF_NOT_FOUND) {
            status = RF_OK;
        }
    }
    rf_op_end(&op);
    return status == RF_OK;
}

bool rf_sweep_leases(struct rf_actor *actor, struct rf_slot *holder, uint32_t id, bool over,
                     uint64_t now)
{
    struct rf_map *map = actor->map;
    uint32_t extents = (uint32_t)map->header->extents.count;
    bool clean = true;
    for (uint32_t w = 0; w < (extents + 63) / 64; w++) {
        uint64_t bits = atomic_load_explicit(&holder->held[w], memory_order_acquire);
        bool word_clean = true;
        for (; bits != 0; bits &= bits - 1) {
            uint32_t e = w * 64 + (uint32_t)__builtin_ctzll(bits);
            struct rf_extent *extent = rf_extent_at(map, e);
            for (uint32_t i = 0; i < RF_EXTENT_SHARDS; i++) {
                uint32_t b = atomic_load_explicit(&extent->bound[i], memory_order_acquire);
                bool his = b != 0 && rf_id_slot(b) == rf_id_slot(id) &&
                           (over ? rf_id_over(map, b) : b == id);
                /* Those of the dead are looked at again; whoever gives up his own can't. */
                if (his && !lose_lease(actor, e * RF_EXTENT_SHARDS + i, b, over, now)) {
                    word_clean = false;
                }
            }
        }
        if (word_clean) {
            atomic_store_explicit(&holder->held[w], 0, memory_order_relaxed);
            RF_POINT("sweep.unheld");
        }
        clean = clean && word_clean;
    }
    return clean;
}

bool rf_sweep_member(struct rf_actor *actor, uint32_t slot, uint64_t now)
{
    struct rf_member *member = rf_member_at(actor->map, slot);
    if (!rf_reap_if_dead(actor, slot) || !rf_reaper_enter(actor, member)) {
        return false;
    }
    bool free_now = false;
    uint32_t life = atomic_load_explicit(&member->liveness, memory_order_acquire);
    if ((life & FUTEX_OWNER_DIED) != 0 &&
        atomic_load_explicit(&member->phase, memory_order_acquire) == RF_PHASE_REAPED) {
        uint32_t id = rf_id(slot, atomic_load(&member->generation));
        free_now = rf_sweep_leases(actor, rf_slot_at(actor->map, slot), id, true, now);
    }
    if (free_now) {
        atomic_store_explicit(&member->phase, RF_PHASE_LIVE, memory_order_release);
        RF_POINT("sweep.phase");
        /* From here on anybody may take the slot. Still as its reaper: another one that came in
         * between would find it dead and not reaped, and would reap whoever takes it next. */
        atomic_compare_exchange_strong_explicit(&member->liveness, &life, 0, memory_order_acq_rel,
                                                memory_order_relaxed);
        RF_POINT("sweep.freed");
    }
    rf_reaper_leave(actor, member);
    return free_now;
}

/* --- leases that ran out --- */

static rf_status list_if_expired(struct rf_actor *actor, uint32_t run_slot, uint64_t uid,
                                 struct rf_extent *extent, uint32_t shard_slot, uint64_t now,
                                 bool impatient, struct rf_skipped *skipped, rf_detail *detail)
{
    struct rf_op op;
    bool gone = false;
    rf_word64 *hint = &extent->deadline[shard_slot % RF_EXTENT_SHARDS];
    rf_op_begin(&op, actor);
    op.ending = true;
    op.impatient = impatient;
    rf_status status = rf_op_open_slot(&op, run_slot, uid, shard_slot, &gone, detail);
    if (rf_op_skips(&op, status, skipped)) {
        status = RF_OK; /* its hint stays, so the next sweep comes by again */
    } else if (status == RF_OK && !gone) {
        status = rf_op_lock_run(&op, RF_RUN_NOT_FOUND, detail);
        const struct rf_shard_state *s = op.view.state;
        bool leased = (s->flags & RF_SHARD_LEASED) != 0;
        if (status == RF_OK && leased && s->deadline <= now && op.rec->body.listed == 0) {
            status = rf_op_list_expired(&op, now, detail);
            rf_count_repair(actor, RF_REPAIR_EXPIRED);
        }
        if (status == RF_OK) {
            /* What the sweep looks at next time: not before this lease can run out. */
            uint64_t next = leased && s->deadline > now ? s->deadline : RF_NO_DEADLINE;
            atomic_store_explicit(hint, next, memory_order_relaxed);
        }
    }
    rf_op_end(&op);
    return status;
}

/* Under the run's lock no lease is granted, and renewing only moves deadlines away. */
static void refresh_earliest(const struct rf_map *map, struct rf_runrec *run, uint64_t extents)
{
    uint64_t earliest = RF_NO_DEADLINE;
    for (uint64_t j = 0; j < extents; j++) {
        const struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
        uint64_t e = LOAD64(leaf->earliest[j % RF_LEAF_EXTENTS]);
        earliest = e < earliest ? e : earliest;
    }
    atomic_store_explicit(&run->earliest, earliest, memory_order_relaxed);
    RF_POINT("sweep.earliest");
}

static void refresh_extent(const struct rf_map *map, struct rf_runrec *run, uint64_t j,
                           const struct rf_extent *extent)
{
    struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
    uint64_t earliest = RF_NO_DEADLINE;
    for (uint32_t i = 0; i < RF_EXTENT_SHARDS; i++) {
        uint64_t d = LOAD64(extent->deadline[i]);
        earliest = d < earliest ? d : earliest;
    }
    atomic_store_explicit(&leaf->earliest[j % RF_LEAF_EXTENTS], earliest, memory_order_relaxed);
}

static rf_status sweep_extent(struct rf_actor *actor, uint32_t run_slot, uint64_t uid, uint64_t j,
                              uint64_t count, uint64_t now, bool all, struct rf_skipped *skipped,
                              rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_runrec *run = rf_run_at(map, run_slot);
    uint32_t first = rf_dir_slot(map, run, j * RF_EXTENT_SHARDS);
    struct rf_extent *extent = rf_extent_at(map, first / RF_EXTENT_SHARDS);
    if (first == RF_NO_SLOT || extent == NULL) {
        return RF_RUN_NOT_FOUND;
    }
    for (uint32_t i = 0; i < RF_EXTENT_SHARDS && j * RF_EXTENT_SHARDS + i < count; i++) {
        uint64_t deadline = LOAD64(extent->deadline[i]);
        if (deadline <= now || (all && deadline != RF_NO_DEADLINE)) {
            /* Whoever looks at all of them wants to know it exactly, and waits: for one lock. */
            bool impatient = !all || skipped->any;
            rf_status status = list_if_expired(actor, run_slot, uid, extent, first + i, now,
                                               impatient, skipped, detail);
            if (status != RF_OK) {
                return status;
            }
        }
    }
    return RF_OK;
}

rf_status rf_sweep_expired(struct rf_actor *actor, uint32_t run_slot, uint64_t uid, uint64_t now,
                           bool all, struct rf_skipped *skipped, rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_runrec *run = rf_run_at(map, run_slot);
    if (!all && now < LOAD64(run->earliest)) {
        return RF_OK;
    }
    uint64_t count = atomic_load_explicit(&run->count, memory_order_acquire);
    uint64_t extents = (count + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS;
    struct rf_op op;
    for (uint64_t j = 0; j < extents; j++) {
        const struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
        if (leaf == NULL) {
            return RF_OK; /* purged meanwhile */
        }
        if (!all && now < LOAD64(leaf->earliest[j % RF_LEAF_EXTENTS])) {
            continue;
        }
        rf_status status = sweep_extent(actor, run_slot, uid, j, count, now, all, skipped, detail);
        if (status != RF_OK) {
            return status == RF_RUN_NOT_FOUND ? RF_OK : status;
        }
        rf_op_begin(&op, actor);
        op.ending = true;
        op.run = run;
        op.uid = uid;
        status = rf_op_lock_run(&op, RF_RUN_NOT_FOUND, detail);
        if (status == RF_OK) {
            uint32_t slot = rf_dir_slot(map, run, j * RF_EXTENT_SHARDS);
            refresh_extent(map, run, j, rf_extent_at(map, slot / RF_EXTENT_SHARDS));
        }
        rf_op_end(&op);
        if (status != RF_OK) {
            return status == RF_RUN_NOT_FOUND ? RF_OK : status;
        }
    }
    rf_op_begin(&op, actor);
    op.ending = true;
    op.run = run;
    op.uid = uid;
    rf_status status = rf_op_lock_run(&op, RF_RUN_NOT_FOUND, detail);
    if (status == RF_OK) {
        /* Shards may have come meanwhile: all of them count. */
        count = LOAD64(run->count);
        refresh_earliest(map, run, (count + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS);
    }
    rf_op_end(&op);
    return status == RF_RUN_NOT_FOUND ? RF_OK : status;
}

/* --- purged runs --- */

/* Nobody begins anything on a shard of a run that is not alive; those who had begun are waited
 * for: by the purger himself, for a while. Others have more to do, and come by again. */
static rf_status drain(struct rf_actor *actor, struct rf_runrec *run, uint64_t count, bool patient,
                       rf_detail *detail)
{
    uint64_t until = 0;
    for (uint64_t p = 0; p < count; p++) {
        uint32_t slot = rf_dir_slot(actor->map, run, p);
        struct rf_rec *rec = rf_rec_at(actor->map, slot);
        while (rec != NULL && !rf_lock_is_free(actor->map, &rec->lock)) {
            uint32_t w = atomic_load_explicit(&rec->lock, memory_order_acquire);
            if (w != 0) {
                rf_reap_if_dead(actor, rf_id_slot(w));
            }
            uint64_t now = rf_monotonic_ns();
            until = until == 0 ? now + actor->busy_ns : until;
            if (now > until || (!patient && !rf_lock_is_free(actor->map, &rec->lock))) {
                rf_refuse(detail, RF_BUSY, 0, "a shard of the purged run is still in use");
                return RF_BUSY;
            }
            usleep(50);
        }
    }
    return RF_OK;
}

static void free_shards(struct rf_actor *actor, struct rf_runrec *run, uint64_t uid, uint64_t count)
{
    struct rf_map *map = actor->map;
    for (uint64_t p = 0; p < count; p++) {
        uint32_t slot = rf_dir_slot(map, run, p);
        struct rf_rec *rec = slot == RF_NO_SLOT ? NULL : rf_rec_at(map, slot);
        const rf_word64 *tag =
            rf_section_at(map, &map->header->extent_tags, slot / RF_EXTENT_SHARDS);
        /* An extent that was given back by an earlier attempt may be somebody else's by now. */
        if (rec == NULL || atomic_load_explicit(tag, memory_order_acquire) != uid) {
            continue;
        }
        rf_index_leave_shard(map, rf_index_hash_shard(map, uid, rec->shard), slot);
        rf_rec_undo(map, rec);
    }
}

rf_status rf_sweep_purged(struct rf_actor *actor, uint32_t run_slot, bool purger, rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_runrec *run = rf_run_at(map, run_slot);
    uint64_t uid = atomic_load_explicit(&run->purging, memory_order_acquire);
    if (uid == 0 || atomic_load_explicit(&run->tag, memory_order_acquire) != uid ||
        atomic_load_explicit(&run->live, memory_order_acquire) != 0) {
        return RF_OK;
    }
    rf_status status = drain(actor, run, atomic_load(&run->count), purger, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_lock(actor, &run->lock, RF_LOCK_RUN, detail);
    if (status != RF_OK) {
        return status;
    }
    if (atomic_load(&run->tag) == uid && atomic_load(&run->purging) == uid) {
        free_shards(actor, run, uid, atomic_load(&run->count));
        rf_dir_drop(map, run, uid);
        rf_index_leave_run(map, rf_index_hash_run(map, &run->tenant, run->run), run_slot);
        RF_POINT("purge.emptied");
        atomic_store_explicit(&run->count, 0, memory_order_relaxed); /* counts in no limit now */
        RF_POINT("purge.uncounted");
        /* Last: from here on the slot may be taken for another run. `purging` keeps the old uid,
         * which fits no other run. */
        atomic_store_explicit(&run->tag, 0, memory_order_release);
        RF_POINT("purge.freed");
        if (!purger) {
            rf_count_repair(actor, RF_REPAIR_PURGES);
        }
    }
    rf_unlock(actor, &run->lock, RF_LOCK_RUN);
    return RF_OK;
}

bool rf_sweep_all(struct rf_actor *actor, uint64_t now)
{
    struct rf_map *map = actor->map;
    bool clean = true;
    uint32_t members = atomic_load_explicit(&map->header->members_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < members; slot++) {
        if (slot != actor->slot && rf_is_dead(rf_member_at(map, slot))) {
            clean = rf_sweep_member(actor, slot, now) && clean;
        }
    }
    uint32_t runs = atomic_load_explicit(&map->header->runs_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < runs; slot++) {
        struct rf_runrec *run = rf_run_at(map, slot);
        /* Its purger may be at it: then its lock is held, and this waits no longer than others. */
        uint64_t uid = atomic_load_explicit(&run->purging, memory_order_acquire);
        if (uid != 0 && atomic_load_explicit(&run->tag, memory_order_acquire) == uid &&
            rf_lock_is_free(map, &run->lock)) {
            clean = rf_sweep_purged(actor, slot, false, NULL) == RF_OK && clean;
        }
    }
    return clean;
}
