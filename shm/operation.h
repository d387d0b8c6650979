/*
 * One operation on the region, from lookup to unlock:
 *
 *   find and lock -> pure transition -> take what it needs (TAKING) -> redo image (PREPARED)
 *     -> commit in the lane -> apply -> IDLE -> unlock -> wake claimers
 *
 * A refusal before the commit leaves nothing. The steps after the commit need only locks held since
 * before it, and a survivor can do them as well (reap.h).
 */
#ifndef RF_OPERATION_H
#define RF_OPERATION_H

#include "apply.h"
#include "directory.h"
#include "lane.h"
#include "lock.h"
#include "record.h"

/* The shards that an operation makes, for the log: split off, or from a manifest. */
struct rf_op_made {
    uint32_t count;
    const rf_shard_input *inputs; /* or: */
    const rf_child *children;
    const uint16_t *order; /* of the children */
    const uint64_t *ids;
    uint64_t chain; /* they were written before, in chunks of this chain; 0: they were not */
};

struct rf_op {
    struct rf_actor *actor;
    struct rf_map *map;
    struct rf_runrec *run;
    struct rf_rec *rec;
    rf_word32 *stripe;
    uint64_t uid;
    uint32_t run_slot;
    uint32_t shard_slot;
    uint32_t wakes;
    bool shard_locked;
    bool run_locked;
    bool taking;    /* the descriptor names things that were taken */
    bool ending;    /* it gives up a lease: the last room of a full disk is kept for such */
    bool impatient; /* it does not wait for a shard's lock (rf_op_open_slot) */
    uint64_t epoch; /* of what it committed, or of what it found done */
    struct rf_op_made made;
    struct rf_shard view;
    struct rf_shard_step step;
    struct rf_lane_draft draft;
};

/* --- finding --- */

/* The run's slot and uid, or RF_RUN_NOT_FOUND. Nothing is locked. */
rf_status rf_find_run(const struct rf_map *map, const rf_tenant *tenant, uint64_t run,
                      uint32_t *slot, uint64_t *uid);
/* The slot of a visible shard of a run, or RF_NO_SLOT. */
uint32_t rf_find_shard(const struct rf_map *map, uint32_t run_slot, uint64_t uid, uint64_t shard);
/* Whether a reader may see the record: in the run's count, and its parent's split has happened. */
bool rf_rec_visible(const struct rf_map *map, const struct rf_runrec *run,
                    const struct rf_rec *rec);

/* Inlined by force: gcc 12 takes a function that only prefetches for one that does nothing, and
 * drops the call. */
__attribute__((always_inline)) static inline void rf_prefetch_rec(const struct rf_map *map,
                                                                  uint64_t hint)
{
    if (hint - 1 < map->extent_count * RF_EXTENT_SHARDS) {
        const char *rec = (const char *)&map->extents[(hint - 1) / RF_EXTENT_SHARDS]
                              .recs[(hint - 1) % RF_EXTENT_SHARDS];
        /* In no order that the processor would take for a stream: it would go on into the next
         * record, which may be another process's. */
        static const uint8_t lines[] = {0, 6, 12, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11};
#pragma GCC unroll 16
        for (size_t i = 0; i < sizeof(lines); i++) {
            __builtin_prefetch(rec + lines[i] * (size_t)RF_LINE, 1);
        }
    }
}

/* The lines of the lane that the next record will be written to. */
__attribute__((always_inline)) static inline void rf_prefetch_lane(const struct rf_actor *actor)
{
    uint64_t end = atomic_load_explicit(&actor->me->lane.end, memory_order_relaxed);
    const uint8_t *at = rf_lane_unit(actor->map, actor->lane, end);
#pragma GCC unroll 8
    for (size_t i = 0; i < 5; i++) {
        __builtin_prefetch(at + i * RF_LINE, 1);
    }
}

/* --- stages --- */

void rf_op_begin(struct rf_op *op, struct rf_actor *actor);
/* Finds and locks a shard (hint: 0, or what a lease carries); RF_NOT_FOUND if it is not there for
 * this tenant. Sets run and rec. */
rf_status rf_op_lock_shard(struct rf_op *op, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                           uint64_t hint, rf_detail *detail);
/* The same, and the view. */
static inline rf_status rf_op_open_shard(struct rf_op *op, const rf_tenant *tenant, uint64_t run,
                                         uint64_t shard, uint64_t hint, rf_detail *detail)
{
    rf_status status = rf_op_lock_shard(op, tenant, run, shard, hint, detail);
    return status != RF_OK ? status
                           : rf_rec_view(op->map, op->rec, op->run, tenant, &op->view, detail);
}
/* The same for a slot of a run that was found before; *gone tells that it is not that shard. RF_BUSY
 * at once if the operation is impatient and somebody living has the shard's lock. */
rf_status rf_op_open_slot(struct rf_op *op, uint32_t run_slot, uint64_t uid, uint32_t shard_slot,
                          bool *gone, rf_detail *detail);

/* Shards that were passed over because somebody living had their lock: they say nothing about what
 * there is, and have to be looked at again. */
struct rf_skipped {
    bool any;
    uint32_t pid; /* of the first one's holder */
};
/* Whether the shard's lock is all that was in the way of rf_op_open_slot; notes it. */
bool rf_op_skips(const struct rf_op *op, rf_status status, struct rf_skipped *skipped);
/* RF_BUSY, with the pid. */
rf_status rf_refuse_skipped(const struct rf_skipped *skipped, rf_detail *detail);

/* Locks the run of the operation and checks that it is still there. */
rf_status rf_op_lock_run(struct rf_op *op, rf_status if_gone, rf_detail *detail);
/* What the transitions need to know; `limits` also counts the shards of the store. */
struct rf_env rf_op_env(struct rf_op *op);
void rf_op_env_limits(struct rf_op *op, const rf_tenant *tenant, uint64_t adding,
                      struct rf_env *env);

/* Does op->step: prepare, commit, apply. `made` shards were prepared by rf_op_make before. */
rf_status rf_op_execute(struct rf_op *op, uint64_t now, uint32_t bound, rf_detail *detail);
/* The shard becomes claimable though its lease is still recorded: it has expired. */
rf_status rf_op_list_expired(struct rf_op *op, uint64_t now, rf_detail *detail);
/* The reverse: a renewal with an earlier clock. */
rf_status rf_op_unlist(struct rf_op *op, uint64_t now, rf_detail *detail);

/* TAKING, with a fresh tag. Everything that is taken from here on is given back by rf_op_abort. */
void rf_op_take(struct rf_op *op);
void rf_op_abort(struct rf_op *op);
/* Makes the next shard of the run, at its end. */
rf_status rf_op_make(struct rf_op *op, struct rf_rec_new *made, rf_detail *detail);
/* Room in the directory for `count` more shards. */
rf_status rf_op_grow(struct rf_op *op, uint64_t count, rf_detail *detail);

/* The counts of the run as they are now, into the redo image. Needs the run's lock. */
void rf_op_load_counts(struct rf_op *op);
/* PREPARED is announced, the lane's record is complete: commit, apply, IDLE. */
void rf_op_commit(struct rf_op *op, struct rf_applied *applied);

/* Tells the log which shards the operation is going to make (op->made is filled in). What does not fit
 * the operation's own record is written here, as a chain of chunks: best before anything is locked,
 * for it may have to wait for the disk. Without a log it does nothing. `codec` is the size of the
 * step or run that will stand beside them. */
rf_status rf_op_log_made(struct rf_op *op, size_t codec, rf_detail *detail);
/* The same question without an answer: whether it would be a chain. */
bool rf_op_made_is_long(const struct rf_op *op, size_t codec);

/* What the caller asked for of durability, after the unlock: waits, or notes that somebody has to write. */
rf_status rf_op_settle(struct rf_op *op, bool may_wait, rf_result *result);

/* The parts of a log record about new shards, where op->made says that there are any. */
size_t rf_op_body_max(const struct rf_op *op, size_t codec);
size_t rf_op_put_made_place(const struct rf_op *op, uint8_t *out);
size_t rf_op_put_made(const struct rf_op *op, uint8_t *out);

/* Unlocks what is locked, then wakes op->wakes claimers. Safe at any stage that holds nothing
 * taken. */
void rf_op_end(struct rf_op *op);

/* Aborts the process because an invariant broke: nothing was published. */
void rf_op_broken(struct rf_op *op, const char *what) __attribute__((noreturn));

#endif
