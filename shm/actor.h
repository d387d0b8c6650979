/* Somebody who acts on the region under a member slot: a handle, or a guardian. */
#ifndef RF_ACTOR_H
#define RF_ACTOR_H

#include "codec.h"
#include "region.h"

/* What a handle can be told to use instead of the real clock. */
typedef uint64_t rf_clock(void *context);

struct rf_logger;

/* How far the lane's records of an epoch reach. */
struct rf_lane_mark {
    uint64_t epoch;
    uint64_t end;
};
#define RF_LANE_MARKS (2u * RF_LOG_ENTRIES)

struct rf_actor {
    struct rf_map *map;
    struct rf_member *member;
    struct rf_slot *me;
    struct rf_desc *desc;
    uint8_t *lane;
    uint32_t slot;
    uint32_t id;
    uint64_t busy_ns; /* how long a lock may be waited for */
    _Atomic uint32_t
        settling; /* how deep it is in rf_settling_begin; the snapshot, too, acts as the guardian */

    /* With a log only. */
    struct rf_logger *logger;
    uint64_t lane_limit; /* below it records begin without asking (rf_log_admit); 0 at first */
    uint64_t lane_nudge; /* from here on the guardian is told to hurry */
    struct rf_lane_mark marks[RF_LANE_MARKS];

    struct rf_hasher hasher;
    struct rf_split_scratch split;
    struct rf_step_record redo_step; /* room to read back what a dead member wrote */
    struct rf_run redo_run;
};

/* Counters are written by their owner alone, so a load and a store do; readers may be late. */
static inline void rf_count(rf_word64 *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline void rf_count_repair(struct rf_actor *actor, enum rf_repair_kind kind)
{
    rf_count(&actor->me->counters.repairs[kind], 1);
}

/* Whether the generation that an id names is over: then its locks are free and its leases lost. */
static inline bool rf_id_over(const struct rf_map *map, uint32_t id)
{
    const struct rf_member *m = rf_member_at(map, rf_id_slot(id));
    return m == NULL || (atomic_load_explicit(&m->generation, memory_order_acquire) &
                         RF_ID_GENERATIONS) != rf_id_generation(id);
}

#endif
