/* The operations on runs. */
#include <errno.h>
#include <stdlib.h>

#include "admit.h"
#include "directory.h"
#include "handle.h"
#include "index.h"
#include "operation.h"
#include "point.h"
#include "range.h"
#include "read.h"
#include "seq.h"
#include "sweep.h"

#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)

static rf_status finish(struct rf_op *op, rf_op_class class, rf_status status,
                        const struct rf_run_step *step, uint64_t now, rf_result *result)
{
    rf_outcome outcome = RF_EXECUTED;
    if (status == RF_OK && step != NULL) {
        outcome = step->outcome;
        if (result != NULL) {
            result->outcome = outcome;
            result->has_event = result->want_event && outcome == RF_EXECUTED;
            if (result->has_event) {
                rf_run_event(step, now, &result->event);
            }
        }
    }
    if (status == RF_OK && outcome == RF_REPLAYED) {
        op->epoch = op->run->body.epoch;
    }
    rf_op_end(op);
    if (status == RF_OK) {
        status = rf_op_settle(op, true, result);
    }
    return rf_counted(op->actor, class, status, outcome);
}

/* The stripe of a name that may not exist yet. */
static rf_status lock_name(struct rf_op *op, uint64_t hash, rf_detail *detail)
{
    rf_word32 *stripe = rf_section_at(op->map, &op->map->header->stripes, hash % RF_STRIPES);
    rf_status status = rf_log_admit(op->actor, false, detail);
    if (status == RF_OK) {
        status = rf_lock(op->actor, stripe, RF_LOCK_STRIPE, detail);
    }
    if (status == RF_OK) {
        op->stripe = stripe;
    }
    return status;
}

/* The run as the transitions see it, from under its lock. */
static void load_run(const struct rf_runrec *rec, struct rf_run *run)
{
    struct rf_run_body b;
    rf_words_load(&b, &rec->body, sizeof(b));
    *run = (struct rf_run){
        .tenant = rec->tenant,
        .run = rec->run,
        .config = {.lease_duration = rec->lease_duration,
                   .semantics = (rf_semantics)rec->semantics,
                   .has_max_retries = rec->has_max_retries != 0,
                   .max_retries = rec->max_retries},
        .status = (rf_run_status)b.status,
        .created_at = b.created_at,
        .completed_at = b.completed_at,
        .root_count = b.root_count,
        .ring_count = b.ring_count,
        .ring_next = b.ring_next,
        .ring = b.ring,
    };
}

/* Looks the run up and locks it. */
static rf_status open_run(struct rf_op *op, const rf_tenant *tenant, uint64_t run,
                          struct rf_run *loaded, rf_detail *detail)
{
    rf_status status = rf_find_run(op->map, tenant, run, &op->run_slot, &op->uid);
    if (status != RF_OK) {
        return status;
    }
    op->run = rf_run_at(op->map, op->run_slot);
    status = rf_op_lock_run(op, RF_RUN_NOT_FOUND, detail);
    if (status == RF_OK) {
        load_run(op->run, loaded);
        const char *broken = rf_run_violation(loaded);
        if (broken != NULL) {
            return rf_refuse(detail, RF_CORRUPT, 0, "the record in run slot %u: %s", op->run_slot,
                             broken);
        }
    }
    return status;
}

/* Writes the redo image and the lane's record of a run step; then commits and applies. */
static void execute(struct rf_op *op, const struct rf_run_step *step, uint32_t redo, uint64_t now)
{
    struct rf_desc *d = op->actor->desc;
    const char *broken = rf_run_violation(&step->next);
    size_t len = 0;
    if (broken != NULL) {
        rf_op_broken(op, broken);
    }
    if (!op->taking) {
        d->redo = 0;
        d->run_slot = op->run_slot;
        d->run_uid = op->uid;
    }
    d->redo |= redo | RF_REDO_RUN;
    d->next_version = op->run->body.version + 1;
    d->time = now;
    if ((redo & RF_REDO_MADE) != 0) {
        uint32_t made = d->made_to - d->made_from;
        d->redo |= RF_REDO_COUNTS;
        rf_op_load_counts(op);
        d->count += made;
        d->available += made;
        op->wakes = made;
    }
    if (rf_run_is_terminal(step->next.status)) {
        op->wakes = UINT32_MAX; /* there is nothing to wait for any more */
    }
    if (op->wakes != 0) {
        atomic_store_explicit(&d->wake_run, op->run_slot + 1u, memory_order_release);
    }
    rf_lane_begin(op->actor, rf_op_body_max(op, RF_CODEC_RUN_MAX), &op->draft);
    const struct rf_log_run where = {.version = d->next_version,
                                     .made = op->made.count,
                                     .flags = (redo & RF_REDO_LIVE) != 0 ? RF_LOG_RUN_CREATED : 0};
    uint8_t *at = op->draft.body;
    memcpy(at, &where, sizeof(where));
    at += sizeof(where);
    if (where.made != 0) {
        at += rf_op_put_made_place(op, at);
    }
    rf_status status = rf_codec_put_run(&step->next, at, RF_CODEC_RUN_MAX, &len);
    assert(status == RF_OK);
    (void)status;
    at += len;
    if (where.made != 0) {
        at += rf_op_put_made(op, at);
    }
    len = (size_t)(at - op->draft.body);
    op->draft.record->event = (uint16_t)step->event;
    op->draft.record->uid = op->uid;
    op->draft.record->run = step->next.run;
    op->draft.record->run_slot = op->run_slot;
    op->draft.record->time = now;
    op->draft.record->count = step->count;
    uint64_t stamp = op->actor->me->lane.stamp;
    stamp = op->run->body.stamp > stamp ? op->run->body.stamp : stamp;
    rf_lane_finish(op->actor, &op->draft, RF_LANE_RUN, len, stamp + 1);
    atomic_store_explicit(&d->state, RF_DESC_WORD(RF_DESC_PREPARED, op->draft.offset),
                          memory_order_release);
    RF_POINT("run.prepared");
    struct rf_applied applied = {.run = &step->next};
    rf_op_commit(op, &applied);
}

/* --- creating --- */

/* A run slot for a run that is about to be made; in state TAKING, under the name's stripe. */
static rf_status take_run_slot(struct rf_op *op, rf_detail *detail)
{
    struct rf_map *map = op->map;
    struct rf_header *h = map->header;
    struct rf_desc *d = op->actor->desc;
    for (uint32_t slot = 0; slot < h->runs.count; slot++) {
        uint32_t used = atomic_load_explicit(&h->runs_used, memory_order_acquire);
        if (slot >= used) {
            rf_status status = rf_region_ensure(map, h->runs.offset + slot * h->runs.stride,
                                                h->runs.stride, detail);
            if (status != RF_OK) {
                return status;
            }
            atomic_compare_exchange_strong(&h->runs_used, &used, slot + 1);
            RF_POINT("run.used");
        }
        struct rf_runrec *run = rf_run_at(map, slot);
        uint64_t unused = 0;
        /* A free slot may still be locked by who freed it, or by somebody with an old number; if he
         * is stopped, that must not be in the way of new runs. */
        if (atomic_load_explicit(&run->tag, memory_order_relaxed) != 0 ||
            !rf_lock_is_free(map, &run->lock)) {
            continue;
        }
        d->run_slot = slot;
        __atomic_store_n(&d->run_taken, 1, __ATOMIC_RELEASE);
        RF_POINT("run.named");
        if (atomic_compare_exchange_strong_explicit(&run->tag, &unused, op->uid,
                                                    memory_order_acq_rel, memory_order_relaxed)) {
            RF_POINT("run.taken");
            op->run = run;
            op->run_slot = slot;
            return RF_OK;
        }
        d->run_taken = 0;
    }
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0,
                     "all %u runs are in use; purge some, or make the store with more",
                     (unsigned)h->runs.count);
}

/* The parts of a run that stay as they are, and the index entry. Nobody can see it yet; somebody
 * with an old slot number may be waiting in the lock, which therefore is not reset. */
static rf_status fill_run_slot(struct rf_op *op, const rf_tenant *tenant, uint64_t run,
                               const rf_run_config *config, uint64_t hash, rf_detail *detail)
{
    struct rf_runrec *r = op->run;
    uint32_t odd = rf_seq_open(&r->seq);
    const struct rf_run_body empty = {.version = r->body.version};
    _Alignas(8) const rf_tenant name = *tenant;
    /* Somebody with an old slot number may be reading. */
    STORE(r->run, run);
    rf_words_store(&r->tenant, &name, sizeof(name));
    STORE(r->lease_duration, config->lease_duration);
    STORE(r->has_max_retries, (uint8_t)config->has_max_retries);
    STORE(r->max_retries, config->has_max_retries ? config->max_retries : 0);
    STORE(r->semantics, (uint8_t)config->semantics);
    rf_words_store(&r->body, &empty, sizeof(empty));
    atomic_store_explicit(&r->status, RF_RUN_INITIALIZING, memory_order_relaxed);
    atomic_store_explicit(&r->count, 0, memory_order_relaxed);
    atomic_store_explicit(&r->available, 0, memory_order_relaxed);
    atomic_store_explicit(&r->done, 0, memory_order_relaxed);
    atomic_store_explicit(&r->split, 0, memory_order_relaxed);
    atomic_store_explicit(&r->parked, 0, memory_order_relaxed);
    atomic_store_explicit(&r->pending, 0, memory_order_relaxed);
    atomic_store_explicit(&r->earliest, RF_NO_DEADLINE, memory_order_relaxed);
    for (uint32_t i = 0; i < RF_RUN_LEAVES / 64; i++) {
        atomic_store_explicit(&r->top[i], 0, memory_order_relaxed);
    }
    for (uint32_t i = 0; i < RF_RUN_LEAVES; i++) {
        atomic_store_explicit(&r->leaf[i], 0, memory_order_relaxed);
    }
    rf_seq_close(&r->seq, odd);
    RF_POINT("run.filled");
    return rf_index_enter_run(op->actor, hash, op->run_slot, detail);
}

/* TAKING, a run slot, its lock, its contents. Without the lock others would change the run from the
 * moment that it is visible, and if its maker died before IDLE, the redo would take that back. */
static rf_status make_run(struct rf_op *op, const rf_tenant *tenant, uint64_t run,
                          const rf_run_config *config, uint64_t hash, rf_detail *detail)
{
    op->uid = atomic_fetch_add_explicit(&op->map->header->next_uid, 1, memory_order_relaxed);
    op->run_slot = UINT32_MAX;
    rf_op_take(op);
    rf_status status = take_run_slot(op, detail);
    if (status == RF_OK) {
        status = rf_lock(op->actor, &op->run->lock, RF_LOCK_RUN, detail);
        op->run_locked = status == RF_OK;
    }
    if (status == RF_OK) {
        status = fill_run_slot(op, tenant, run, config, hash, detail);
    }
    return status;
}

rf_status rf_shm_create_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                            const rf_run_config *config, rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    struct rf_run_step step;
    rf_detail *detail = rf_detail_fresh(result);
    const struct rf_call call = {.tenant = tenant, .now = now};
    uint64_t hash = rf_index_hash_run(h->map, tenant, run);
    uint32_t slot;
    uint64_t uid;
    struct rf_run existing = {0};
    rf_op_begin(&op, &h->actor);
    rf_status status = lock_name(&op, hash, detail);
    if (status == RF_OK) {
        bool there = rf_find_run(h->map, tenant, run, &slot, &uid) == RF_OK;
        status = rf_run_create(there ? &existing : NULL, &call, run, config, &step, detail);
    }
    if (status == RF_OK) {
        status = make_run(&op, tenant, run, config, hash, detail);
        if (status == RF_OK) {
            execute(&op, &step, RF_REDO_LIVE, now);
        } else {
            rf_op_abort(&op);
        }
    }
    return finish(&op, RF_CLASS_CREATE_RUN, status, &step, now, result);
}

/* --- shards --- */

/* Memory for sorting a manifest; not a hot path. */
struct manifest_room {
    uint32_t *by_id;
    uint32_t *by_start;
    rf_spec *existing;
    void *existing_bytes;
};

static void drop_room(struct manifest_room *room)
{
    free(room->by_id);
    free(room->by_start);
    free(room->existing);
    free(room->existing_bytes);
}

static rf_status make_room(uint32_t count, struct manifest_room *room, rf_detail *detail)
{
    size_t n = (count == 0 ? 1 : (size_t)count) * 2;
    *room = (struct manifest_room){0};
    room->by_id = malloc(n * sizeof(uint32_t));
    room->by_start = malloc(n * sizeof(uint32_t));
    if (room->by_id == NULL || room->by_start == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the manifest");
    }
    return RF_OK;
}

static rf_status make_roots(struct rf_op *op, const struct rf_manifest *m, rf_semantics semantics,
                            rf_detail *detail)
{
    rf_status status = rf_op_grow(op, m->count, detail);
    for (uint32_t i = 0; status == RF_OK && i < m->count; i++) {
        const rf_shard_input *s = &m->shards[i];
        struct rf_rec_new made = {.shard = s->shard,
                                  .state = rf_shard_new_root(semantics),
                                  .spec = s->spec,
                                  .cursor = s->cursor};
        if (s->cursor.token.len == 0) {
            made.cursor.token = rf_bytes_none();
        }
        status = rf_op_make(op, &made, detail);
    }
    return status;
}

/* The log has to know what is made, even if it was not expected to come to this. */
static rf_status log_made(struct rf_op *op, const struct rf_manifest *m, rf_detail *detail)
{
    if (op->made.count != 0) {
        return RF_OK;
    }
    op->made = (struct rf_op_made){.count = m->count, .inputs = m->shards};
    return rf_op_log_made(op, RF_CODEC_RUN_MAX, detail);
}

/* register and add, on a run that is there. */
static rf_status take_into(struct rf_op *op, const struct rf_call *call, uint64_t run_id,
                           rf_run_op_kind kind, const rf_run_config *config, struct rf_manifest *m,
                           struct manifest_room *room, struct rf_run_step *step, rf_detail *detail)
{
    struct rf_run run;
    rf_status status = open_run(op, call->tenant, run_id, &run, detail);
    if (status != RF_OK) {
        return status;
    }
    if (config != NULL && !rf_run_config_equal(&run.config, config)) {
        return RF_CONFIG_MISMATCH;
    }
    struct rf_env env = rf_op_env(op);
    rf_op_env_limits(op, call->tenant, m->count, &env);
    if (kind == RF_RUN_OP_ADD_SHARDS && run.status == RF_RUN_ACTIVE) {
        status = rf_read_ranges(op->map, op->actor, op->run, &room->existing, &m->existing_count,
                                &room->existing_bytes, detail);
        if (status != RF_OK) {
            return status;
        }
        m->existing = room->existing;
    }
    status = kind == RF_RUN_OP_ADD_SHARDS ? rf_run_add(&run, call, m, &env, step, detail)
                                          : rf_run_register(&run, call, m, &env, step, detail);
    if (status != RF_OK || step->outcome == RF_REPLAYED) {
        return status;
    }
    rf_op_take(op);
    status = log_made(op, m, detail);
    if (status == RF_OK) {
        status = make_roots(op, m, run.config.semantics, detail);
    }
    if (status != RF_OK) {
        rf_op_abort(op);
        return status;
    }
    execute(op, step, RF_REDO_MADE, call->now);
    return RF_OK;
}

/* A run and its shards in one commit. */
static rf_status take_into_new(struct rf_op *op, const struct rf_call *call, uint64_t run,
                               const rf_run_config *config, uint64_t hash, struct rf_manifest *m,
                               struct rf_run_step *step, rf_detail *detail)
{
    /* Checked before anything is taken; the limits only once there is a run slot to announce in. */
    struct rf_env env = {.tenant_limit = UINT64_MAX, .total_limit = UINT64_MAX};
    rf_status status = rf_run_create_with_shards(NULL, call, run, config, m, &env, step, detail);
    if (status != RF_OK) {
        return status;
    }
    status = make_run(op, call->tenant, run, config, hash, detail);
    if (status == RF_OK) {
        env = rf_op_env(op);
        rf_op_env_limits(op, call->tenant, m->count, &env);
        env.exists = NULL;
        status = rf_run_create_with_shards(NULL, call, run, config, m, &env, step, detail);
    }
    if (status == RF_OK) {
        status = log_made(op, m, detail);
    }
    if (status == RF_OK) {
        status = make_roots(op, m, config->semantics, detail);
    }
    if (status != RF_OK) {
        rf_op_abort(op);
        return status;
    }
    execute(op, step, RF_REDO_MADE | RF_REDO_LIVE, call->now);
    return RF_OK;
}

/* Whether a registration that is too long for one record is worth writing its chain: asked before, under
 * the run's lock, and decided again after. */
static bool would_execute(struct rf_handle *h, const struct rf_call *call, uint64_t run_id,
                          rf_run_op_kind kind, const rf_run_config *config, struct rf_manifest *m,
                          rf_detail *detail)
{
    struct rf_op op;
    struct rf_run run;
    struct rf_run_step step = {.outcome = RF_EXECUTED};
    const struct rf_env env = {.tenant_limit = UINT64_MAX, .total_limit = UINT64_MAX};
    rf_op_begin(&op, &h->actor);
    rf_status status = open_run(&op, call->tenant, run_id, &run, detail);
    if (status == RF_RUN_NOT_FOUND) {
        /* The manifest is looked at before a byte of it is logged: it may be of any size. */
        return config != NULL && rf_run_create_with_shards(NULL, call, run_id, config, m, &env,
                                                           &step, detail) == RF_OK;
    }
    if (status == RF_OK && config != NULL && !rf_run_config_equal(&run.config, config)) {
        status = RF_CONFIG_MISMATCH;
    }
    if (status == RF_OK) {
        status = kind == RF_RUN_OP_ADD_SHARDS ? rf_run_add(&run, call, m, &env, &step, detail)
                                              : rf_run_register(&run, call, m, &env, &step, detail);
    }
    rf_op_end(&op);
    return status == RF_OK && step.outcome == RF_EXECUTED;
}

rf_status rf_shm_take_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_run_op_kind kind, const rf_run_config *config,
                             const rf_shard_input *shards, uint32_t count, uint64_t op_id,
                             rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    struct rf_run_step step;
    struct manifest_room room = {0};
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .op = op_id};
    struct rf_manifest m = {.shards = shards, .count = count};
    uint64_t hash = rf_index_hash_run(h->map, tenant, run);
    rf_op_class class = kind == RF_RUN_OP_ADD_SHARDS ? RF_CLASS_ADD : RF_CLASS_REGISTER;
    rf_op_begin(&op, &h->actor);
    rf_status status = now == 0 ? RF_INVALID_TIME : make_room(count, &room, detail);
    if (status == RF_OK) {
        /* All that can be done before a lock is taken. */
        rf_manifest_order_by_id(shards, count, room.by_id);
        m.by_id = room.by_id;
        m.by_start = room.by_start;
        call.hash = rf_hasher_manifest(&h->actor.hasher, kind, shards, count, room.by_id);
    }
    if (status == RF_OK) {
        op.made = (struct rf_op_made){.count = count, .inputs = shards};
        if (!rf_op_made_is_long(&op, RF_CODEC_RUN_MAX) ||
            would_execute(h, &call, run, kind, config, &m, NULL)) { /* a guess: it tells nothing */
            status = rf_op_log_made(&op, RF_CODEC_RUN_MAX, detail);
        } else {
            op.made.count = 0; /* it will be refused or replayed */
        }
    }
    if (status == RF_OK && config != NULL) {
        status = lock_name(&op, hash, detail);
    }
    if (status == RF_OK) {
        uint32_t slot;
        uint64_t uid;
        rf_status found = rf_find_run(h->map, tenant, run, &slot, &uid);
        if (found == RF_OK) {
            status = take_into(&op, &call, run, kind, config, &m, &room, &step, detail);
        } else if (config != NULL) {
            status = take_into_new(&op, &call, run, config, hash, &m, &step, detail);
        } else {
            status = found;
        }
    }
    status = finish(&op, class, status, &step, now, result);
    drop_room(&room);
    return status;
}

/* --- endings --- */

rf_status rf_shm_end_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         rf_run_op_kind kind, uint64_t op_id, rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    struct rf_run loaded;
    struct rf_run_step step;
    rf_detail *detail = rf_detail_fresh(result);
    struct rf_call call = {.tenant = tenant, .now = now, .op = op_id};
    call.hash = rf_hasher_run_op(&h->actor.hasher, kind);
    rf_op_begin(&op, &h->actor);
    rf_status status = now == 0 ? RF_INVALID_TIME : open_run(&op, tenant, run, &loaded, detail);
    if (status == RF_OK) {
        status = rf_run_end(&loaded, &call, kind, &step, detail);
    }
    if (status == RF_OK && step.outcome == RF_EXECUTED) {
        execute(&op, &step, 0, now);
    }
    return finish(&op, RF_CLASS_END_RUN, status, &step, now, result);
}

/* The highest fence that was ever granted in the run. Under its lock none is granted. */
static uint64_t highest_fence(const struct rf_op *op)
{
    uint64_t highest = 0;
    uint64_t count = atomic_load_explicit(&op->run->count, memory_order_relaxed);
    for (uint64_t p = 0; p < count; p++) {
        const struct rf_rec *rec = rf_rec_at(op->map, rf_dir_slot(op->map, op->run, p));
        uint64_t fence = __atomic_load_n(&rec->body.state.fence, __ATOMIC_RELAXED);
        highest = fence > highest ? fence : highest;
    }
    return highest;
}

static void execute_purge(struct rf_op *op, uint64_t now)
{
    struct rf_desc *d = op->actor->desc;
    d->redo = RF_REDO_PURGE;
    d->run_slot = op->run_slot;
    d->run_uid = op->uid;
    d->floor = highest_fence(op);
    d->time = now;
    op->wakes = UINT32_MAX;
    atomic_store_explicit(&d->wake_run, op->run_slot + 1u, memory_order_release);
    const struct rf_log_purge body = {.floor = d->floor, .time = now};
    rf_lane_begin(op->actor, sizeof(body), &op->draft);
    memcpy(op->draft.body, &body, sizeof(body));
    op->draft.record->event = RF_EVENT_RUN_PURGED;
    op->draft.record->uid = op->uid;
    op->draft.record->run = op->run->run;
    op->draft.record->run_slot = op->run_slot;
    op->draft.record->time = now;
    op->draft.record->count = 0;
    uint64_t stamp = op->actor->me->lane.stamp;
    stamp = op->run->body.stamp > stamp ? op->run->body.stamp : stamp;
    rf_lane_finish(op->actor, &op->draft, RF_LANE_PURGE, sizeof(body), stamp + 1);
    atomic_store_explicit(&d->state, RF_DESC_WORD(RF_DESC_PREPARED, op->draft.offset),
                          memory_order_release);
    RF_POINT("purge.prepared");
    struct rf_applied applied = {0};
    rf_op_commit(op, &applied);
}

rf_status rf_shm_purge_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_op op;
    struct rf_run loaded;
    rf_detail *detail = rf_detail_fresh(result);
    rf_op_begin(&op, &h->actor);
    rf_status status = now == 0 ? RF_INVALID_TIME : open_run(&op, tenant, run, &loaded, detail);
    if (status == RF_OK && !rf_run_is_terminal(loaded.status)) {
        status = RF_WRONG_STATUS;
    }
    if (status == RF_OK) {
        execute_purge(&op, now);
        if (result != NULL) {
            result->outcome = RF_EXECUTED;
            result->has_event = result->want_event;
            result->event =
                (rf_event){.kind = RF_EVENT_RUN_PURGED, .tenant = *tenant, .run = run, .time = now};
        }
    }
    rf_op_end(&op);
    if (status == RF_OK) {
        /* It is gone; giving its room back may have to wait for a stopped process, and then the
         * guardians do it. */
        rf_sweep_purged(&h->actor, op.run_slot, true, NULL);
        status = rf_op_settle(&op, true, result);
    }
    return rf_counted(&h->actor, RF_CLASS_PURGE, status, RF_EXECUTED);
}
