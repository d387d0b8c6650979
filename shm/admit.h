/*
 * Between an operation and the log: whether it may begin, where in its lane it may write, and who is told afterwards.
 *
 * A lane is written round and round. What is not durable must not be overwritten, so room for a record of any
 * size is made sure of before any lock is taken; an owner whose lane is full seals and writes like any waiter. He knows
 * how far the records of each epoch reach (marks) and moves the lane's base over the durable ones; whoever computes a batch
 * without knowing better walks from there.
 */
#ifndef RF_ADMIT_H
#define RF_ADMIT_H

#include "lane.h"

/* What a member may commit before it asks the log again, and there is room on the disk for (rf_log_secure). The last
 * record may be of any size. A lease that is granted counts as what it takes to end it. */
#define RF_LANE_UNASKED (4u * (uint64_t)RF_LANE_UNITS_MAX)
/* Of log to end a lease, with a short cursor: a batch alone, and one that vouches for it. */
#define RF_LEASE_BYTES (2u * RF_LOG_BLOCK)
/* Key and token; a record with them fits into a block. */
#define RF_SHORT_CURSOR (RF_LOG_BLOCK - 1024u)

rf_status rf_log_admit_slow(struct rf_actor *actor, bool ending, rf_detail *detail);

/* Before any lock is taken: the log takes another record, and the lane has room for one of any size.
 * RF_IO_ERROR, or RF_RESOURCE_EXHAUSTED unless it gives up a lease (with a short cursor). */
static inline rf_status rf_log_admit(struct rf_actor *actor, bool ending, rf_detail *detail)
{
    const struct rf_header *h = actor->map->header;
    if (h->sealing == 0 ||
        (atomic_load_explicit(&actor->me->lane.end, memory_order_relaxed) < actor->lane_limit &&
         atomic_load_explicit(&h->condemned, memory_order_relaxed) == 0 &&
         atomic_load_explicit(&h->log_short, memory_order_relaxed) == 0)) {
        return RF_OK;
    }
    return rf_log_admit_slow(actor, ending, detail);
}

/* After a grant. */
static inline void rf_log_granted(struct rf_actor *actor)
{
    const uint64_t units = RF_LEASE_BYTES / RF_LINE;
    actor->lane_limit = actor->lane_limit > units ? actor->lane_limit - units : 0;
}

/* After a commit: what nobody waits for has to be written by somebody. No system call while some guardian is at
 * it and the lane is not filling up. The commit and the look at the flusher are seq_cst, so that one who leaves sees the
 * commit, or is seen to have left. */
void rf_log_note_slow(struct rf_actor *actor);
static inline void rf_log_note(struct rf_actor *actor)
{
    if (atomic_load_explicit(&actor->map->header->flusher, memory_order_seq_cst) == 0 ||
        atomic_load_explicit(&actor->me->lane.end, memory_order_relaxed) >= actor->lane_nudge) {
        rf_log_note_slow(actor);
    }
}

/* A lane goes on under a new owner. */
void rf_log_resume(struct rf_actor *actor);

/* A number that changes whenever anybody commits anything. */
uint64_t rf_log_activity(const struct rf_map *map);
/* The last epoch in which anybody has committed anything. */
uint64_t rf_log_last(const struct rf_map *map);

#endif
