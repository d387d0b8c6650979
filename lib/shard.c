#include "shard.h"

#include "range.h"
#include "split.h"

/* These numbers are stored and hashed. */
_Static_assert(RF_SHARD_ACTIVE == 0 && RF_SHARD_DONE == 1 && RF_SHARD_SPLIT == 2 &&
                   RF_SHARD_PARKED == 3,
               "ShardStatus");
_Static_assert(RF_OP_CHECKPOINT == 0 && RF_OP_COMPLETE == 1 && RF_OP_PARK == 2 &&
                   RF_OP_SPLIT_REPLACE == 3 && RF_OP_SPLIT_RESIDUAL == 4 && RF_OP_UNPARK == 5 &&
                   RF_OP_RELEASE == 6,
               "OpKind");
_Static_assert(RF_RESULT_COMPLETED == 0 && RF_RESULT_ERROR == 1 && RF_RESULT_SUPERSEDED == 2,
               "OpResult");
_Static_assert(RF_PARK_PERMISSION_DENIED == 0 && RF_PARK_NOT_FOUND == 1 && RF_PARK_POISONED == 2 &&
                   RF_PARK_TOO_MANY_ERRORS == 3 && RF_PARK_OTHER == 4,
               "ParkReason");
_Static_assert(RF_COMPLETED == 0 && RF_DISPATCHED == 1, "CursorSemantics");
_Static_assert(RF_CHILD == 0 && RF_RESIDUAL == 1, "DerivedShardKind");
_Static_assert(sizeof(struct rf_shard_state) == 48, "no hidden padding");
_Static_assert(sizeof(struct rf_shard_ring) == 416, "no hidden padding");

/* --- the shared checks, in the order of PROTOCOL section 3 --- */

static inline rf_status look_up(const struct rf_shard *shard, const struct rf_call *call)
{
    if (call->now == 0) {
        return RF_INVALID_TIME;
    }
    if (shard == NULL || !rf_tenant_equal(shard->tenant, call->tenant)) {
        return RF_NOT_FOUND;
    }
    if (call->lease != NULL &&
        (call->lease->run != shard->run || call->lease->shard != shard->shard)) {
        return RF_NOT_FOUND;
    }
    return RF_OK;
}

/* Has this op id been here? RF_OK and *slot = RF_RING_MISS if not. */
static inline rf_status find_op(const struct rf_shard *shard, const struct rf_call *call, int *slot)
{
    *slot = rf_ring_find(shard->ring->op, shard->state->ring_count, RF_SHARD_RING, call->op);
    if (*slot != RF_RING_MISS && shard->ring->hash[*slot] != rf_call_hash(call)) {
        return RF_OP_ID_CONFLICT;
    }
    return RF_OK;
}

static inline rf_status check_lease(const struct rf_shard *shard, const struct rf_call *call,
                                    rf_detail *detail)
{
    const struct rf_shard_state *s = shard->state;
    if (s->status != RF_SHARD_ACTIVE) {
        return RF_SHARD_TERMINAL;
    }
    if (s->fence != call->lease->fence || (s->flags & RF_SHARD_LEASED) == 0) {
        return RF_STALE_FENCE;
    }
    if (call->now >= s->deadline) {
        if (detail != NULL) {
            detail->deadline = s->deadline;
        }
        return RF_LEASE_EXPIRED;
    }
    return s->owner == call->lease->worker ? RF_OK : RF_STALE_FENCE;
}

/* Lookup, idempotency and lease for an operation with an op id. *replayed tells whether the answer
 * is already known. */
__attribute__((always_inline)) static inline rf_status begin(const struct rf_shard *shard,
                                                             const struct rf_call *call,
                                                             struct rf_shard_step *step,
                                                             rf_detail *detail, bool *replayed)
{
    int slot;
    rf_status status = look_up(shard, call);
    if (status != RF_OK) {
        return status;
    }
    status = find_op(shard, call, &slot);
    if (status != RF_OK) {
        return status;
    }
    step->changes = 0;
    step->spawned_new = 0;
    step->next = *shard->state;
    *replayed = slot != RF_RING_MISS;
    if (*replayed) {
        step->outcome = RF_REPLAYED;
        return RF_OK;
    }
    step->outcome = RF_EXECUTED;
    return check_lease(shard, call, detail);
}

/* --- the pieces of a step --- */

__attribute__((always_inline)) static inline void push_op(const struct rf_shard *shard,
                                                          const struct rf_call *call,
                                                          rf_op_kind kind,
                                                          struct rf_shard_step *step)
{
    const struct rf_shard_state *s = shard->state;
    uint64_t at = call->now;
    if (s->ring_count != 0) {
        uint64_t newest = shard->ring->executed_at[rf_ring_newest(s->ring_next, RF_SHARD_RING)];
        at = at < newest ? newest : at;
    }
    step->changes |= RF_CHANGED_RING;
    step->ring_slot = s->ring_next;
    step->entry = (struct rf_op_entry){
        .op = call->op,
        .hash = rf_call_hash(call),
        .executed_at = at,
        .kind = (uint8_t)kind,
        .result = RF_RESULT_COMPLETED,
    };
    step->next.ring_next = (uint8_t)((s->ring_next + 1u) % RF_SHARD_RING);
    step->next.ring_count = (uint8_t)(s->ring_count + (s->ring_count < RF_SHARD_RING));
}

static void set_cursor(struct rf_shard_step *step, const rf_cursor *cursor)
{
    step->changes |= RF_CHANGED_CURSOR;
    step->cursor.key = cursor->key;
    step->cursor.token = cursor->token.len != 0 ? cursor->token : rf_bytes_none();
}

static void clear_lease(struct rf_shard_state *s)
{
    s->flags = (uint8_t)(s->flags & ~RF_SHARD_LEASED);
    s->owner = 0;
    s->deadline = 0;
}

static void park(struct rf_shard_state *s, rf_park_reason reason)
{
    s->status = RF_SHARD_PARKED;
    s->park_reason = (uint8_t)reason;
    clear_lease(s);
}

/* The next fence, or 0 if there is none left. */
static uint64_t next_fence(const struct rf_shard *shard, const struct rf_env *env)
{
    uint64_t fence = shard->state->fence;
    fence = fence < env->fence_floor ? env->fence_floor : fence;
    return fence == UINT64_MAX ? 0 : fence + 1;
}

/* --- the operations --- */

rf_status rf_shard_acquire(const struct rf_shard *shard, const struct rf_call *call,
                           uint64_t worker, const struct rf_env *env, struct rf_shard_step *step,
                           rf_detail *detail)
{
    rf_status status = look_up(shard, call);
    if (status != RF_OK) {
        return status;
    }
    const struct rf_shard_state *s = shard->state;
    if (s->status != RF_SHARD_ACTIVE) {
        return RF_SHARD_TERMINAL;
    }
    if (rf_shard_leased_at(s, call->now)) {
        if (detail != NULL) {
            detail->deadline = s->deadline;
        }
        return RF_ALREADY_LEASED;
    }
    uint64_t fence = next_fence(shard, env);
    if (fence == 0) {
        return RF_FENCE_EXHAUSTED;
    }
    step->outcome = RF_EXECUTED;
    step->changes = 0;
    step->spawned_new = 0;
    step->next = *s;
    step->next.fence = fence;
    step->next.owner = worker;
    step->next.deadline = rf_add_saturating(call->now, env->lease_duration);
    step->next.flags |= RF_SHARD_LEASED;
    step->next.attempts += step->next.attempts != UINT32_MAX;
    step->event = RF_EVENT_ACQUIRED;
    return RF_OK;
}

rf_status rf_shard_renew(const struct rf_shard *shard, const struct rf_call *call,
                         const struct rf_env *env, struct rf_shard_step *step, rf_detail *detail)
{
    rf_status status = look_up(shard, call);
    if (status == RF_OK) {
        status = check_lease(shard, call, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    uint64_t deadline = rf_add_saturating(call->now, env->lease_duration);
    step->outcome = RF_EXECUTED;
    step->changes = 0;
    step->spawned_new = 0;
    step->next = *shard->state;
    if (step->next.deadline < deadline) {
        step->next.deadline = deadline;
    }
    step->event = RF_EVENT_LEASE_RENEWED;
    return RF_OK;
}

rf_status rf_shard_checkpoint(const struct rf_shard *shard, const struct rf_call *call,
                              const rf_cursor *cursor, struct rf_shard_step *step,
                              rf_detail *detail)
{
    bool replayed = false;
    rf_status status = begin(shard, call, step, detail, &replayed);
    if (status != RF_OK || replayed) {
        return status;
    }
    status = rf_cursor_check(cursor, &shard->cursor, &shard->spec, detail);
    if (status != RF_OK) {
        return status;
    }
    set_cursor(step, cursor);
    step->next.attempts = 0;
    push_op(shard, call, RF_OP_CHECKPOINT, step);
    step->event = RF_EVENT_CHECKPOINTED;
    return RF_OK;
}

rf_status rf_shard_complete(const struct rf_shard *shard, const struct rf_call *call,
                            const rf_cursor *cursor, struct rf_shard_step *step, rf_detail *detail)
{
    bool replayed = false;
    rf_status status = begin(shard, call, step, detail, &replayed);
    if (status != RF_OK || replayed) {
        return status;
    }
    status = rf_cursor_check(cursor, &shard->cursor, &shard->spec, detail);
    if (status != RF_OK) {
        return status;
    }
    set_cursor(step, cursor);
    step->next.attempts = 0;
    step->next.status = RF_SHARD_DONE;
    clear_lease(&step->next);
    push_op(shard, call, RF_OP_COMPLETE, step);
    step->event = RF_EVENT_COMPLETED;
    return RF_OK;
}

rf_status rf_shard_park(const struct rf_shard *shard, const struct rf_call *call,
                        rf_park_reason reason, struct rf_shard_step *step, rf_detail *detail)
{
    if ((unsigned)reason > RF_PARK_OTHER) {
        return call->now == 0 ? RF_INVALID_TIME : RF_INVALID_ARGUMENT;
    }
    bool replayed = false;
    rf_status status = begin(shard, call, step, detail, &replayed);
    if (status != RF_OK || replayed) {
        return status;
    }
    park(&step->next, reason);
    push_op(shard, call, RF_OP_PARK, step);
    step->event = RF_EVENT_PARKED;
    return RF_OK;
}

rf_status rf_shard_release(const struct rf_shard *shard, const struct rf_call *call,
                           const rf_cursor *cursor, struct rf_shard_step *step, rf_detail *detail)
{
    bool replayed = false;
    rf_status status = begin(shard, call, step, detail, &replayed);
    if (status != RF_OK || replayed) {
        return status;
    }
    if (cursor->key.data != NULL || cursor->token.len != 0) {
        status = rf_cursor_check(cursor, &shard->cursor, &shard->spec, detail);
        if (status != RF_OK) {
            return status;
        }
        set_cursor(step, cursor);
    }
    step->next.attempts = 0;
    clear_lease(&step->next);
    push_op(shard, call, RF_OP_RELEASE, step);
    step->event = RF_EVENT_RELEASED;
    return RF_OK;
}

bool rf_shard_owner_lost(const struct rf_shard *shard, struct rf_shard_step *step)
{
    if ((shard->state->flags & RF_SHARD_LEASED) == 0) {
        return false;
    }
    step->outcome = RF_EXECUTED;
    step->changes = 0;
    step->spawned_new = 0;
    step->next = *shard->state;
    clear_lease(&step->next);
    step->event = RF_EVENT_OWNER_LOST;
    return true;
}

void rf_shard_park_exhausted(const struct rf_shard *shard, struct rf_shard_step *step)
{
    step->outcome = RF_EXECUTED;
    step->changes = 0;
    step->spawned_new = 0;
    step->next = *shard->state;
    park(&step->next, RF_PARK_TOO_MANY_ERRORS);
    step->event = RF_EVENT_PARKED;
}

rf_status rf_shard_split_replace(const struct rf_shard *shard, const struct rf_call *call,
                                 const rf_child *children, uint32_t count, const struct rf_env *env,
                                 struct rf_hasher *hasher, struct rf_split_scratch *scratch,
                                 struct rf_shard_step *step, rf_detail *detail)
{
    bool replayed = false;
    rf_status status = begin(shard, call, step, detail, &replayed);
    if (status != RF_OK) {
        return status;
    }
    uint32_t first = shard->state->spawned_count;
    if (replayed) {
        /* The same payload has the same count, and a split shard never spawns again. */
        assert(first >= count);
        step->spawned_ids = shard->spawned + (first - count);
        step->spawned_new = count;
        return RF_OK;
    }
    status = rf_split_check_replace(&shard->spec, children, count, scratch, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_split_check_room(first, count, env, detail);
    if (status != RF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        scratch->ids[i] =
            rf_hasher_split_id(hasher, shard->run, shard->shard, call->op, RF_CHILD, first + i);
    }
    status = rf_split_check_ids(scratch->ids, scratch->order, count, env, detail);
    if (status != RF_OK) {
        return status;
    }
    step->changes |= RF_CHANGED_SPAWNED;
    step->spawned_new = count;
    step->spawned_ids = scratch->ids;
    step->spawned_order = scratch->order;
    step->next.spawned_count = first + count;
    step->next.status = RF_SHARD_SPLIT;
    clear_lease(&step->next);
    push_op(shard, call, RF_OP_SPLIT_REPLACE, step);
    step->event = RF_EVENT_SPLIT;
    return RF_OK;
}

/* Which spawned shard this op id made; the ids themselves remember what the ring forgot. */
static const uint64_t *find_residual(const struct rf_shard *shard, uint64_t op,
                                     struct rf_hasher *hasher)
{
    for (uint32_t i = 0; i < shard->state->spawned_count; i++) {
        if (shard->spawned[i] ==
            rf_hasher_split_id(hasher, shard->run, shard->shard, op, RF_RESIDUAL, i)) {
            return &shard->spawned[i];
        }
    }
    return NULL;
}

rf_status rf_shard_split_residual(const struct rf_shard *shard, const struct rf_call *call,
                                  const rf_spec *parent_new, const rf_spec *residual,
                                  const struct rf_env *env, struct rf_hasher *hasher,
                                  struct rf_split_scratch *scratch, struct rf_shard_step *step,
                                  rf_detail *detail)
{
    int slot;
    rf_status status = look_up(shard, call);
    if (status != RF_OK) {
        return status;
    }
    status = find_op(shard, call, &slot);
    if (status != RF_OK) {
        return status;
    }
    step->outcome = RF_EXECUTED;
    step->changes = 0;
    step->next = *shard->state;
    const uint64_t *made = find_residual(shard, call->op, hasher);
    if (made != NULL) {
        step->outcome = RF_REPLAYED;
        step->spawned_new = 1;
        step->spawned_ids = made;
        return RF_OK;
    }
    assert(slot == RF_RING_MISS); /* a residual in the ring is among the spawned */
    status = check_lease(shard, call, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_split_check_residual(&shard->spec, &shard->cursor, parent_new, residual, detail);
    if (status != RF_OK) {
        return status;
    }
    uint32_t first = shard->state->spawned_count;
    status = rf_split_check_room(first, 1, env, detail);
    if (status != RF_OK) {
        return status;
    }
    scratch->ids[0] =
        rf_hasher_split_id(hasher, shard->run, shard->shard, call->op, RF_RESIDUAL, first);
    scratch->order[0] = 0;
    status = rf_split_check_ids(scratch->ids, scratch->order, 1, env, detail);
    if (status != RF_OK) {
        return status;
    }
    step->changes |= RF_CHANGED_SPAWNED | RF_CHANGED_SPEC;
    step->spec = *parent_new;
    step->spawned_new = 1;
    step->spawned_ids = scratch->ids;
    step->spawned_order = scratch->order;
    step->next.spawned_count = first + 1;
    push_op(shard, call, RF_OP_SPLIT_RESIDUAL, step);
    step->event = RF_EVENT_RESIDUAL_CREATED;
    return RF_OK;
}

rf_status rf_shard_unpark(const struct rf_shard *shard, const struct rf_call *call,
                          const struct rf_env *env, struct rf_shard_step *step, rf_detail *detail)
{
    int slot;
    (void)detail;
    rf_status status = look_up(shard, call);
    if (status != RF_OK) {
        return status;
    }
    if (env->run_status >= RF_RUN_DONE) {
        return RF_RUN_TERMINAL;
    }
    status = find_op(shard, call, &slot);
    if (status != RF_OK) {
        return status;
    }
    step->changes = 0;
    step->spawned_new = 0;
    step->next = *shard->state;
    if (slot != RF_RING_MISS) {
        step->outcome = RF_REPLAYED;
        return RF_OK;
    }
    if (shard->state->status != RF_SHARD_PARKED) {
        return RF_NOT_PARKED;
    }
    uint64_t fence = next_fence(shard, env);
    if (fence == 0) {
        return RF_FENCE_EXHAUSTED;
    }
    step->outcome = RF_EXECUTED;
    step->next.fence = fence;
    step->next.status = RF_SHARD_ACTIVE;
    step->next.park_reason = RF_NO_REASON;
    step->next.attempts = 0;
    push_op(shard, call, RF_OP_UNPARK, step);
    step->event = RF_EVENT_UNPARKED;
    return RF_OK;
}

/* --- new shards, events, invariants --- */

struct rf_shard_state rf_shard_new_root(rf_semantics semantics)
{
    return (struct rf_shard_state){
        .fence = 1,
        .status = RF_SHARD_ACTIVE,
        .park_reason = RF_NO_REASON,
        .semantics = (uint8_t)semantics,
    };
}

struct rf_shard_state rf_shard_new_derived(uint64_t parent, rf_semantics semantics)
{
    struct rf_shard_state s = rf_shard_new_root(semantics);
    s.parent = parent;
    s.flags = RF_SHARD_HAS_PARENT;
    return s;
}

void rf_shard_event(const struct rf_shard *shard, const struct rf_shard_step *step, uint64_t now,
                    rf_event *event)
{
    assert(step->outcome == RF_EXECUTED);
    *event = (rf_event){
        .kind = step->event,
        .tenant = *shard->tenant,
        .run = shard->run,
        .shard = shard->shard,
        .time = now,
    };
    switch (step->event) {
    case RF_EVENT_ACQUIRED:
        event->worker = step->next.owner;
        event->fence = step->next.fence;
        event->deadline = step->next.deadline;
        break;
    case RF_EVENT_LEASE_RENEWED:
        event->deadline = step->next.deadline;
        break;
    case RF_EVENT_CHECKPOINTED:
    case RF_EVENT_COMPLETED:
        event->key_len = (uint32_t)step->cursor.key.len;
        break;
    case RF_EVENT_PARKED:
        event->reason = (rf_park_reason)step->next.park_reason;
        break;
    case RF_EVENT_SPLIT:
        event->count = step->spawned_new;
        break;
    case RF_EVENT_RESIDUAL_CREATED:
        event->child = step->spawned_ids[0];
        event->count = 1;
        break;
    case RF_EVENT_UNPARKED:
        event->fence = step->next.fence;
        break;
    default:
        break;
    }
}

const char *rf_shard_state_violation(const struct rf_shard_state *s, uint64_t shard)
{
    if (s->status > RF_SHARD_PARKED) {
        return "unknown shard status";
    }
    if (s->semantics > RF_DISPATCHED) {
        return "unknown cursor semantics";
    }
    if ((s->flags & ~(RF_SHARD_LEASED | RF_SHARD_HAS_PARENT)) != 0) {
        return "unknown flags";
    }
    if (s->status == RF_SHARD_PARKED ? s->park_reason > RF_PARK_OTHER
                                     : s->park_reason != RF_NO_REASON) {
        return "a park reason exactly if parked";
    }
    if (s->status != RF_SHARD_ACTIVE && (s->flags & RF_SHARD_LEASED) != 0) {
        return "a terminal shard has no lease";
    }
    if (s->fence == 0) {
        return "the fence is at least 1";
    }
    if (!rf_ring_shape_ok(s->ring_count, s->ring_next, RF_SHARD_RING)) {
        return "the ring holds at most 16";
    }
    if (s->status == RF_SHARD_SPLIT && s->spawned_count == 0) {
        return "a split shard has spawned";
    }
    if (s->spawned_count > RF_SPAWNED_MAX) {
        return "at most 1024 spawned";
    }
    if (((s->flags & RF_SHARD_HAS_PARENT) != 0) != ((shard & RF_DERIVED_BIT) != 0)) {
        return "a parent exactly if derived";
    }
    return NULL;
}

const char *rf_shard_violation(const struct rf_shard *shard)
{
    const char *broken = rf_shard_state_violation(shard->state, shard->shard);
    if (broken != NULL) {
        return broken;
    }
    for (uint32_t i = 0; i < shard->state->ring_count; i++) {
        if (shard->ring->kind[i] > RF_OP_RELEASE || shard->ring->result[i] > RF_RESULT_SUPERSEDED) {
            return "unknown kind or result in the ring";
        }
    }
    if (!rf_ring_ids_unique(shard->ring->op, shard->state->ring_count)) {
        return "op ids in the ring are unique";
    }
    for (uint32_t i = 0; i < shard->state->spawned_count; i++) {
        if ((shard->spawned[i] & RF_DERIVED_BIT) == 0) {
            return "spawned ids are derived";
        }
    }
    if (shard->cursor.key.data == NULL && shard->cursor.token.len != 0) {
        return "no token without a key";
    }
    if (!rf_range_upright(&shard->spec)) {
        return "start is below end";
    }
    if (shard->cursor.key.data != NULL && !rf_range_holds(&shard->spec, shard->cursor.key)) {
        return "the cursor is inside the range";
    }
    return NULL;
}

const char *rf_shard_step_violation(const struct rf_shard *shard, const struct rf_shard_step *step)
{
    if (step->next.fence < shard->state->fence) {
        return "the fence never goes down";
    }
    return rf_shard_state_violation(&step->next, shard->shard);
}
