/*
 * The shard record, its invariants, and one pure function per operation on a shard:
 *
 *     (record, call, env) -> step or status
 *
 * A record is seen through struct rf_shard, a view whose variable bytes are borrowed from wherever
 * the record lives. A step says what changes: the next scalars in full, and of the bytes, the ring
 * and the spawned list only what is new, borrowed from the caller's arguments. Nothing here
 * allocates, locks, reads a clock or does I/O; a refusal changes nothing.
 *
 * The region, the replay of a log, the simulator and other backends all call these.
 */
#ifndef RF_SHARD_H
#define RF_SHARD_H

#include "bytes.h"
#include "hash.h"
#include "oplog.h"

#define RF_NO_REASON 0xFFu

enum {
    RF_SHARD_LEASED = 1,     /* owner and deadline mean something */
    RF_SHARD_HAS_PARENT = 2, /* parent means something */
};

/* The scalars of a shard. The last 8 bytes are one aligned word. */
struct rf_shard_state {
    uint64_t fence;
    uint64_t owner;
    uint64_t deadline;
    uint64_t parent;
    uint32_t attempts; /* grants since the last progress, saturating */
    uint32_t spawned_count;
    uint8_t status;
    uint8_t park_reason; /* RF_NO_REASON unless parked */
    uint8_t semantics;
    uint8_t flags;
    uint8_t ring_count;
    uint8_t ring_next;
    uint8_t reserved[2];
};

struct rf_shard {
    const rf_tenant *tenant;
    uint64_t run;
    uint64_t shard;
    const struct rf_shard_state *state;
    const struct rf_shard_ring *ring;
    const uint64_t *spawned;
    rf_spec spec;
    rf_cursor cursor;
};

/* What every operation is called with. */
struct rf_call {
    const rf_tenant *tenant;
    uint64_t now;
    const rf_lease *lease; /* NULL for acquire and unpark */
    uint64_t op;           /* op id and payload hash, where the operation has them */
    uint64_t hash;
    struct rf_payload *payload; /* if not NULL: instead of hash, finished when it is needed */
};

static inline uint64_t rf_call_hash(const struct rf_call *call)
{
    return call->payload == NULL ? call->hash : rf_payload_hash(call->payload);
}

/* What an operation needs to know that is not in the record. */
struct rf_env {
    uint64_t fence_floor;
    uint64_t lease_duration;
    rf_run_status run_status;
    uint64_t tenant_shards;
    uint64_t tenant_limit;
    uint64_t total_shards;
    uint64_t total_limit;
    bool (*exists)(void *context, uint64_t shard); /* an id in this run; NULL: none does */
    void *context;
};

enum {
    RF_CHANGED_CURSOR = 1,
    RF_CHANGED_SPEC = 2,
    RF_CHANGED_RING = 4,
    RF_CHANGED_SPAWNED = 8,
};

struct rf_shard_step {
    rf_outcome outcome;
    uint32_t changes;
    struct rf_shard_state next;
    rf_cursor cursor;         /* RF_CHANGED_CURSOR */
    rf_spec spec;             /* RF_CHANGED_SPEC */
    struct rf_op_entry entry; /* RF_CHANGED_RING: goes to ring slot ring_slot */
    uint32_t ring_slot;
    uint32_t spawned_new;          /* RF_CHANGED_SPAWNED: this many ids are appended */
    const uint64_t *spawned_ids;   /* ... and on a replay of a split, the ids it made */
    const uint16_t *spawned_order; /* split_replace: child i in start order is the caller's [i] */
    rf_event_kind event;
};

/* Room for what a split works out; owned by the caller, borrowed by the step. */
struct rf_split_scratch {
    uint16_t order[RF_SPLIT_CHILDREN_MAX];
    uint16_t merge[RF_SPLIT_CHILDREN_MAX];
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
};

/* In all of them shard == NULL is "no such record"; detail may be NULL. */
rf_status rf_shard_acquire(const struct rf_shard *shard, const struct rf_call *call,
                           uint64_t worker, const struct rf_env *env, struct rf_shard_step *step,
                           rf_detail *detail);
rf_status rf_shard_renew(const struct rf_shard *shard, const struct rf_call *call,
                         const struct rf_env *env, struct rf_shard_step *step, rf_detail *detail);
rf_status rf_shard_checkpoint(const struct rf_shard *shard, const struct rf_call *call,
                              const rf_cursor *cursor, struct rf_shard_step *step,
                              rf_detail *detail);
rf_status rf_shard_complete(const struct rf_shard *shard, const struct rf_call *call,
                            const rf_cursor *cursor, struct rf_shard_step *step, rf_detail *detail);
rf_status rf_shard_park(const struct rf_shard *shard, const struct rf_call *call,
                        rf_park_reason reason, struct rf_shard_step *step, rf_detail *detail);
/* cursor->key.data == NULL and no token: hand over without moving the cursor. */
rf_status rf_shard_release(const struct rf_shard *shard, const struct rf_call *call,
                           const rf_cursor *cursor, struct rf_shard_step *step, rf_detail *detail);
/* The owner is gone, or closed its handle. Returns false if there is no lease to lose. */
bool rf_shard_owner_lost(const struct rf_shard *shard, struct rf_shard_step *step);
/* A shard that was granted too often without progress; called where a grant would be made. */
void rf_shard_park_exhausted(const struct rf_shard *shard, struct rf_shard_step *step);
rf_status rf_shard_split_replace(const struct rf_shard *shard, const struct rf_call *call,
                                 const rf_child *children, uint32_t count, const struct rf_env *env,
                                 struct rf_hasher *hasher, struct rf_split_scratch *scratch,
                                 struct rf_shard_step *step, rf_detail *detail);
rf_status rf_shard_split_residual(const struct rf_shard *shard, const struct rf_call *call,
                                  const rf_spec *parent_new, const rf_spec *residual,
                                  const struct rf_env *env, struct rf_hasher *hasher,
                                  struct rf_split_scratch *scratch, struct rf_shard_step *step,
                                  rf_detail *detail);
rf_status rf_shard_unpark(const struct rf_shard *shard, const struct rf_call *call,
                          const struct rf_env *env, struct rf_shard_step *step, rf_detail *detail);

/* A lease is active while now < deadline. */
static inline bool rf_shard_leased_at(const struct rf_shard_state *state, uint64_t now)
{
    return (state->flags & RF_SHARD_LEASED) != 0 && now < state->deadline;
}

/* Active and without an active lease: what a claim may take. */
static inline bool rf_shard_available_at(const struct rf_shard_state *state, uint64_t now)
{
    return state->status == RF_SHARD_ACTIVE && !rf_shard_leased_at(state, now);
}

/* The scalars of a new root shard, and of a shard split off `parent`. */
struct rf_shard_state rf_shard_new_root(rf_semantics semantics);
struct rf_shard_state rf_shard_new_derived(uint64_t parent, rf_semantics semantics);

/* The event of a step that was executed. */
void rf_shard_event(const struct rf_shard *shard, const struct rf_shard_step *step, uint64_t now,
                    rf_event *event);

/* The first invariant of PROTOCOL section 7 that does not hold, in words, or NULL. */
const char *rf_shard_violation(const struct rf_shard *shard);
/* Those of the scalars alone. */
const char *rf_shard_state_violation(const struct rf_shard_state *state, uint64_t shard);
/* Those that a step can break, checked on its outcome; cheap enough for every publish. */
const char *rf_shard_step_violation(const struct rf_shard *shard, const struct rf_shard_step *step);

#endif
