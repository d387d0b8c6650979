/* The operations on a shard: find and lock, let the pure transition decide, do what it says. */
#include "shard_ops.h"
#include "admit.h"
#include "handle.h"
#include "operation.h"
#include "range.h"
#include "renew.h"

/* Unlocks, counts, and tells the caller what there is to tell. */
static rf_status finish(struct rf_op *op, rf_op_class class, rf_status status, uint64_t now,
                        rf_result *result)
{
    if (status == RF_OK && result != NULL) {
        result->outcome = op->step.outcome;
        result->has_event = result->want_event && op->step.outcome == RF_EXECUTED;
        if (result->has_event) {
            rf_shard_event(&op->view, &op->step, now, &result->event);
        }
    }
    if (status == RF_OK && op->step.outcome == RF_REPLAYED) {
        op->epoch = op->rec->body.epoch; /* not below that of what it repeats */
    }
    rf_op_end(op);
    if (status == RF_OK) {
        status = rf_op_settle(op, class != RF_CLASS_ACQUIRE, result);
    }
    return rf_counted(op->actor, class, status, op->step.outcome);
}

/* Whether any lease of this member is left in the extent; if not, a sweep need not look there. */
static void forget_extent(struct rf_op *op)
{
    const struct rf_extent *extent = rf_extent_at(op->map, op->shard_slot / RF_EXTENT_SHARDS);
    uint32_t e = op->shard_slot / RF_EXTENT_SHARDS;
    uint32_t mine = 0;
    for (uint32_t i = 0; i < RF_EXTENT_SHARDS; i++) {
        uint32_t b = atomic_load_explicit(&extent->bound[i], memory_order_relaxed);
        mine |= (uint32_t)(b == op->actor->id);
    }
    if (mine == 0) {
        rf_word64 *word = &op->actor->me->held[e / 64];
        uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
        atomic_store_explicit(word, bits & ~(1ull << (e % 64)), memory_order_relaxed);
    }
}

static void remember_extent(struct rf_op *op)
{
    uint32_t e = op->shard_slot / RF_EXTENT_SHARDS;
    rf_word64 *word = &op->actor->me->held[e / 64];
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);
    if ((bits >> (e % 64) & 1) == 0) {
        /* Before the commit: a sweep that finds the grant finds where to look for it. */
        atomic_store_explicit(word, bits | 1ull << (e % 64), memory_order_release);
    }
}

/* Does an op->step that ends the lease or changes the shard's standing in its run. */
static rf_status execute_ending(struct rf_op *op, uint64_t now, rf_detail *detail)
{
    uint64_t bound = op->rec->body.bound;
    rf_status status = rf_op_lock_run(op, RF_NOT_FOUND, detail);
    if (status == RF_OK) {
        status = rf_op_execute(op, now, 0, detail);
    }
    if (status == RF_OK && bound == op->actor->id) {
        forget_extent(op);
    }
    return status;
}

/* --- grants --- */

static size_t grant_bytes(const struct rf_shard *v)
{
    return v->state->spawned_count * 8u + v->spec.start.len + v->spec.end.len +
           v->spec.metadata.len + v->cursor.key.len + v->cursor.token.len;
}

static rf_bytes copy_out(uint8_t **at, rf_bytes b)
{
    if (b.data == NULL) {
        return b;
    }
    rf_bytes copy = rf_bytes_of(*at, b.len);
    if (b.len != 0) {
        memcpy(*at, b.data, b.len);
        *at += b.len;
    }
    return copy;
}

/* Ids first, so that they are aligned as the scratch is. */
static void fill_grant(const struct rf_shard *v, rf_grant *g)
{
    uint8_t *at = g->scratch;
    uint32_t n = v->state->spawned_count;
    g->spawned_count = n;
    g->spawned = (const uint64_t *)(const void *)at;
    if (n != 0) {
        memcpy(at, v->spawned, n * 8u);
        at += n * 8u;
    }
    g->spec.start = copy_out(&at, v->spec.start);
    g->spec.end = copy_out(&at, v->spec.end);
    g->spec.metadata = copy_out(&at, v->spec.metadata);
    g->cursor.key = copy_out(&at, v->cursor.key);
    g->cursor.token = copy_out(&at, v->cursor.token);
    g->semantics = (rf_semantics)v->state->semantics;
    g->has_parent = (v->state->flags & RF_SHARD_HAS_PARENT) != 0;
    g->parent = v->state->parent;
}

rf_status rf_op_grant(struct rf_op *op, const struct rf_call *call, uint64_t worker, uint32_t flags,
                      rf_grant *grant, rf_result *result)
{
    rf_detail *detail = rf_detail_of(result);
    if (!op->run_locked) {
        rf_status locked = rf_op_lock_run(op, RF_NOT_FOUND, detail);
        if (locked != RF_OK) {
            return locked;
        }
    }
    const struct rf_env env = rf_op_env(op);
    rf_status status = rf_shard_acquire(&op->view, call, worker, &env, &op->step, detail);
    if (status != RF_OK) {
        return status;
    }
    size_t need = grant_bytes(&op->view);
    if (grant->scratch_size < need || (grant->scratch == NULL && need != 0)) {
        return rf_refuse_size(detail, RF_BUFFER_TOO_SMALL, need, grant->scratch_size);
    }
    fill_grant(&op->view, grant);
    uint32_t bound = (flags & RF_DETACHED) != 0 ? 0 : op->actor->id;
    if (bound != 0) {
        remember_extent(op);
    }
    status = rf_op_execute(op, call->now, bound, detail);
    if (status == RF_OK) {
        rf_log_granted(op->actor);
        grant->status = RF_SHARD_ACTIVE;
        grant->attempts = op->step.next.attempts;
        grant->lease = (rf_lease){.run = op->run->run,
                                  .shard = op->rec->shard,
                                  .worker = worker,
                                  .fence = op->step.next.fence,
                                  .deadline = op->step.next.deadline,
                                  .slot_hint = op->shard_slot + 1u};
        if (result != NULL) {
            rf_run_capacity(op->run, &result->capacity);
        }
    }
    return status;
}

rf_status rf_shm_acquire(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         uint64_t shard, uint64_t worker, uint32_t flags, rf_grant *grant,
                         rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    rf_detail *detail = rf_detail_fresh(result);
    rf_op_begin(&op, &h->actor);
    if (now == 0) {
        return finish(&op, RF_CLASS_ACQUIRE, RF_INVALID_TIME, now, result);
    }
    rf_status status = rf_op_open_shard(&op, tenant, run, shard, 0, detail);
    if (status == RF_OK) {
        const struct rf_call call = {.tenant = tenant, .now = now};
        status = rf_op_grant(&op, &call, worker, flags, grant, result);
    }
    return finish(&op, RF_CLASS_ACQUIRE, status, now, result);
}

/* --- operations of an owner --- */

/* For those there is room on a full disk; with a long cursor it would be others' room. */
static bool is_short(const rf_cursor *cursor)
{
    return cursor == NULL || cursor->key.len + cursor->token.len <= RF_SHORT_CURSOR;
}

/* What they have in common: an op id, a payload hash, a lease. */
static rf_status open_leased(struct rf_op *op, struct rf_handle *h, const struct rf_call *call,
                             bool ending, rf_detail *detail)
{
    rf_op_begin(op, &h->actor);
    op->ending = ending;
    op->step.outcome = RF_EXECUTED;
    if (call->now == 0) {
        return RF_INVALID_TIME;
    }
    return rf_op_open_shard(op, call->tenant, call->lease->run, call->lease->shard,
                            call->lease->slot_hint, detail);
}

rf_status rf_shm_checkpoint(rf_store *store, uint64_t now, const rf_tenant *tenant,
                            const rf_lease *lease, const rf_cursor *cursor, uint64_t op_id,
                            rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .lease = lease, .op = op_id};
    rf_prefetch_rec(h->map, lease->slot_hint); /* it comes while the payload is hashed */
    rf_prefetch_lane(&h->actor);
    struct rf_payload payload;
    call.payload = &payload;
    rf_payload_checkpoint(&h->actor.hasher, cursor, &payload);
    rf_status status = open_leased(&op, h, &call, false, detail);
    if (status == RF_OK) {
        status = rf_shard_checkpoint(&op.view, &call, cursor, &op.step, detail);
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        status = rf_op_execute(&op, now, 0, detail);
    }
    return finish(&op, RF_CLASS_CHECKPOINT, status, now, result);
}

rf_status rf_shm_complete(rf_store *store, uint64_t now, const rf_tenant *tenant,
                          const rf_lease *lease, const rf_cursor *cursor, uint64_t op_id,
                          rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .lease = lease, .op = op_id};
    rf_prefetch_rec(h->map, lease->slot_hint);
    call.hash = rf_hasher_complete(&h->actor.hasher, cursor);
    rf_status status = open_leased(&op, h, &call, is_short(cursor), detail);
    if (status == RF_OK) {
        status = rf_shard_complete(&op.view, &call, cursor, &op.step, detail);
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        status = execute_ending(&op, now, detail);
    }
    return finish(&op, RF_CLASS_COMPLETE, status, now, result);
}

rf_status rf_shm_park(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      rf_park_reason reason, uint64_t op_id, rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .lease = lease, .op = op_id};
    if (now != 0 && (unsigned)reason > RF_PARK_OTHER) {
        rf_op_begin(&op, &h->actor);
        return finish(&op, RF_CLASS_PARK, RF_INVALID_ARGUMENT, now, result);
    }
    call.hash = rf_hasher_park(&h->actor.hasher, reason);
    rf_status status = open_leased(&op, h, &call, true, detail);
    if (status == RF_OK) {
        status = rf_shard_park(&op.view, &call, reason, &op.step, detail);
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        status = execute_ending(&op, now, detail);
    }
    return finish(&op, RF_CLASS_PARK, status, now, result);
}

rf_status rf_shm_release(rf_store *store, uint64_t now, const rf_tenant *tenant,
                         const rf_lease *lease, const rf_cursor *cursor, uint64_t op_id,
                         rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .lease = lease, .op = op_id};
    rf_prefetch_rec(h->map, lease->slot_hint);
    call.hash = rf_hasher_release(&h->actor.hasher, cursor);
    rf_status status = open_leased(&op, h, &call, is_short(cursor), detail);
    if (status == RF_OK) {
        status = rf_shard_release(&op.view, &call, cursor, &op.step, detail);
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        status = execute_ending(&op, now, detail);
    }
    return finish(&op, RF_CLASS_RELEASE, status, now, result);
}

rf_status rf_shm_unpark(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t shard, uint64_t op_id, rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .op = op_id};
    call.hash = rf_hasher_unpark(&h->actor.hasher, run, shard);
    rf_op_begin(&op, &h->actor);
    op.step.outcome = RF_EXECUTED;
    rf_status status =
        now == 0 ? RF_INVALID_TIME : rf_op_open_shard(&op, tenant, run, shard, 0, detail);
    if (status == RF_OK) {
        status = rf_op_lock_run(&op, RF_NOT_FOUND, detail);
    }
    if (status == RF_OK) {
        const struct rf_env env = rf_op_env(&op);
        status = rf_shard_unpark(&op.view, &call, &env, &op.step, detail);
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        status = rf_op_execute(&op, now, 0, detail);
    }
    return finish(&op, RF_CLASS_UNPARK, status, now, result);
}

/* --- splits --- */

/* One shard split off op->rec, prepared at the end of the run. */
static rf_status make_child(struct rf_op *op, uint64_t id, const rf_spec *spec,
                            const rf_cursor *cursor, rf_detail *detail)
{
    struct rf_rec_new made = {
        .shard = id,
        .born = op->rec->body.version + 1,
        .parent_slot = op->shard_slot + 1,
        .state = rf_shard_new_derived(op->rec->shard, (rf_semantics)op->view.state->semantics),
        .spec = *spec,
        .cursor = *cursor,
    };
    if (cursor->token.len == 0) {
        made.cursor.token = rf_bytes_none();
    }
    return rf_op_make(op, &made, detail);
}

/* Takes room for the children, makes them, and commits the parent's step with them. */
static rf_status execute_split(struct rf_op *op, const struct rf_call *call,
                               const rf_child *children, rf_detail *detail)
{
    uint64_t bound = op->rec->body.bound;
    rf_op_take(op);
    rf_status status = rf_op_grow(op, op->step.spawned_new, detail);
    if (status == RF_OK) {
        op->made = (struct rf_op_made){.count = op->step.spawned_new,
                                       .children = children,
                                       .order = op->step.spawned_order,
                                       .ids = op->step.spawned_ids};
        status = rf_op_log_made(op, RF_CODEC_STEP_MAX, detail);
    }
    for (uint32_t i = 0; status == RF_OK && i < op->step.spawned_new; i++) {
        const rf_child *child = &children[op->step.spawned_order[i]];
        status = make_child(op, op->step.spawned_ids[i], &child->spec, &child->cursor, detail);
    }
    if (status != RF_OK) {
        rf_op_abort(op);
        return status;
    }
    bool ends = op->step.next.status == RF_SHARD_SPLIT;
    status = rf_op_execute(op, call->now, ends ? 0 : (uint32_t)bound, detail);
    if (status == RF_OK && ends && bound == op->actor->id) {
        forget_extent(op);
    }
    return status;
}

/* The run's lock comes before the transition: limits and ids are looked at under it. */
static rf_status lock_for_split(struct rf_op *op, const rf_tenant *tenant, uint64_t adding,
                                struct rf_env *env, rf_detail *detail)
{
    rf_status status = rf_op_lock_run(op, RF_NOT_FOUND, detail);
    if (status == RF_OK) {
        *env = rf_op_env(op);
        rf_op_env_limits(op, tenant, adding, env);
    }
    return status;
}

rf_status rf_shm_split_replace(rf_store *store, uint64_t now, const rf_tenant *tenant,
                               const rf_lease *lease, const rf_child *children, uint32_t count,
                               uint64_t op_id, uint64_t *ids, rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    struct rf_env env;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .lease = lease, .op = op_id};
    call.hash = rf_hasher_split_replace(&h->actor.hasher, children, count);
    rf_status status = open_leased(&op, h, &call, false, detail);
    if (status == RF_OK) {
        status = lock_for_split(&op, tenant, count, &env, detail);
    }
    if (status == RF_OK) {
        status = rf_shard_split_replace(&op.view, &call, children, count, &env, &h->actor.hasher,
                                        &h->actor.split, &op.step, detail);
    }
    if (status == RF_OK) {
        memcpy(ids, op.step.spawned_ids, count * sizeof(*ids));
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        status = execute_split(&op, &call, children, detail);
    }
    return finish(&op, RF_CLASS_SPLIT_REPLACE, status, now, result);
}

rf_status rf_shm_split_residual(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                const rf_lease *lease, const rf_spec *parent_new,
                                const rf_spec *residual, uint64_t op_id, uint64_t *id,
                                rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    struct rf_env env;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .lease = lease, .op = op_id};
    call.hash = rf_hasher_split_residual(&h->actor.hasher, parent_new, residual);
    rf_status status = open_leased(&op, h, &call, false, detail);
    if (status == RF_OK) {
        status = lock_for_split(&op, tenant, 1, &env, detail);
    }
    if (status == RF_OK) {
        status = rf_shard_split_residual(&op.view, &call, parent_new, residual, &env,
                                         &h->actor.hasher, &h->actor.split, &op.step, detail);
    }
    if (status == RF_OK) {
        *id = op.step.spawned_ids[0];
    }
    if (status == RF_OK && op.step.outcome == RF_EXECUTED) {
        const rf_child child = {.spec = *residual};
        status = execute_split(&op, &call, &child, detail);
    }
    return finish(&op, RF_CLASS_SPLIT_RESIDUAL, status, now, result);
}
