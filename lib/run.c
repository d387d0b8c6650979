#include "run.h"

#include "range.h"

_Static_assert(RF_RUN_INITIALIZING == 0 && RF_RUN_ACTIVE == 1 && RF_RUN_DONE == 2 &&
                   RF_RUN_FAILED == 3 && RF_RUN_CANCELLED == 4,
               "RunStatus");
_Static_assert(RF_RUN_OP_REGISTER_SHARDS == 0 && RF_RUN_OP_COMPLETE == 1 && RF_RUN_OP_FAIL == 2 &&
                   RF_RUN_OP_CANCEL == 3 && RF_RUN_OP_ADD_SHARDS == 4,
               "RunOpKind");

static rf_status look_up(const struct rf_run *run, const struct rf_call *call)
{
    if (call->now == 0) {
        return RF_INVALID_TIME;
    }
    if (run == NULL || !rf_tenant_equal(&run->tenant, call->tenant)) {
        return RF_RUN_NOT_FOUND;
    }
    return RF_OK;
}

/* Lookup and idempotency. */
static rf_status begin(const struct rf_run *run, const struct rf_call *call,
                       struct rf_run_step *step, bool *replayed)
{
    rf_status status = look_up(run, call);
    if (status != RF_OK) {
        return status;
    }
    int slot = rf_ring_find(run->ring.op, run->ring_count, RF_RUN_RING, call->op);
    *replayed = slot != RF_RING_MISS;
    if (*replayed && run->ring.hash[slot] != call->hash) {
        return RF_OP_ID_CONFLICT;
    }
    step->outcome = *replayed ? RF_REPLAYED : RF_EXECUTED;
    step->next = *run;
    step->count = 0;
    return RF_OK;
}

static uint64_t not_before_newest(const struct rf_run *run, uint64_t now)
{
    uint64_t at = now < run->created_at ? run->created_at : now;
    if (run->ring_count != 0) {
        uint64_t newest = run->ring.executed_at[rf_ring_newest(run->ring_next, RF_RUN_RING)];
        at = at < newest ? newest : at;
    }
    return at;
}

static void push_op(struct rf_run *run, const struct rf_call *call, rf_run_op_kind kind)
{
    uint32_t slot = run->ring_next;
    uint64_t at = not_before_newest(run, call->now);
    run->ring.op[slot] = call->op;
    run->ring.hash[slot] = call->hash;
    run->ring.executed_at[slot] = at;
    run->ring.kind[slot] = (uint8_t)kind;
    run->ring.result[slot] = RF_RESULT_COMPLETED;
    run->ring_next = (slot + 1) % RF_RUN_RING;
    run->ring_count += run->ring_count < RF_RUN_RING;
}

bool rf_run_config_equal(const rf_run_config *a, const rf_run_config *b)
{
    return a->lease_duration == b->lease_duration && a->semantics == b->semantics &&
           a->has_max_retries == b->has_max_retries &&
           (!a->has_max_retries || a->max_retries == b->max_retries);
}

static rf_status check_config(const rf_run_config *config)
{
    if (config->lease_duration == 0 || (unsigned)config->semantics > RF_DISPATCHED) {
        return RF_INVALID_CONFIG;
    }
    return RF_OK;
}

static struct rf_run new_run(const struct rf_call *call, uint64_t run, const rf_run_config *config)
{
    return (struct rf_run){
        .tenant = *call->tenant,
        .run = run,
        .config = {.lease_duration = config->lease_duration,
                   .semantics = config->semantics,
                   .has_max_retries = config->has_max_retries,
                   .max_retries = config->has_max_retries ? config->max_retries : 0},
        .status = RF_RUN_INITIALIZING,
        .created_at = call->now,
    };
}

rf_status rf_run_create(const struct rf_run *existing, const struct rf_call *call, uint64_t run,
                        const rf_run_config *config, struct rf_run_step *step, rf_detail *detail)
{
    (void)detail;
    if (call->now == 0) {
        return RF_INVALID_TIME;
    }
    if (existing != NULL) {
        return RF_RUN_EXISTS;
    }
    rf_status status = check_config(config);
    if (status != RF_OK) {
        return status;
    }
    step->outcome = RF_EXECUTED;
    step->next = new_run(call, run, config);
    step->event = RF_EVENT_RUN_CREATED;
    step->count = 0;
    return RF_OK;
}

static rf_status take_shards(const struct rf_run *run, const struct rf_call *call,
                             rf_run_op_kind kind, rf_run_status needed,
                             const struct rf_manifest *manifest, const struct rf_env *env,
                             struct rf_run_step *step, rf_detail *detail)
{
    bool replayed = false;
    rf_status status = begin(run, call, step, &replayed);
    if (status != RF_OK || replayed) {
        return status;
    }
    if (run->status != needed) {
        return RF_WRONG_STATUS;
    }
    status = rf_manifest_check(manifest, env, detail);
    if (status != RF_OK) {
        return status;
    }
    step->next.status = RF_RUN_ACTIVE;
    step->next.root_count += manifest->count;
    step->count = manifest->count;
    push_op(&step->next, call, kind);
    step->event = kind == RF_RUN_OP_ADD_SHARDS ? RF_EVENT_SHARDS_ADDED : RF_EVENT_RUN_ACTIVATED;
    return RF_OK;
}

rf_status rf_run_register(const struct rf_run *run, const struct rf_call *call,
                          const struct rf_manifest *manifest, const struct rf_env *env,
                          struct rf_run_step *step, rf_detail *detail)
{
    return take_shards(run, call, RF_RUN_OP_REGISTER_SHARDS, RF_RUN_INITIALIZING, manifest, env,
                       step, detail);
}

rf_status rf_run_add(const struct rf_run *run, const struct rf_call *call,
                     const struct rf_manifest *manifest, const struct rf_env *env,
                     struct rf_run_step *step, rf_detail *detail)
{
    return take_shards(run, call, RF_RUN_OP_ADD_SHARDS, RF_RUN_ACTIVE, manifest, env, step, detail);
}

rf_status rf_run_create_with_shards(const struct rf_run *existing, const struct rf_call *call,
                                    uint64_t run, const rf_run_config *config,
                                    const struct rf_manifest *manifest, const struct rf_env *env,
                                    struct rf_run_step *step, rf_detail *detail)
{
    if (call->now == 0) {
        return RF_INVALID_TIME;
    }
    if (existing != NULL) {
        if (!rf_run_config_equal(&existing->config, config)) {
            return RF_CONFIG_MISMATCH;
        }
        return rf_run_register(existing, call, manifest, env, step, detail);
    }
    rf_status status = check_config(config);
    if (status != RF_OK) {
        return status;
    }
    struct rf_run fresh = new_run(call, run, config);
    return rf_run_register(&fresh, call, manifest, env, step, detail);
}

rf_status rf_run_end(const struct rf_run *run, const struct rf_call *call, rf_run_op_kind kind,
                     struct rf_run_step *step, rf_detail *detail)
{
    bool replayed = false;
    (void)detail;
    assert(kind == RF_RUN_OP_COMPLETE || kind == RF_RUN_OP_FAIL || kind == RF_RUN_OP_CANCEL);
    rf_status status = begin(run, call, step, &replayed);
    if (status != RF_OK || replayed) {
        return status;
    }
    if (rf_run_is_terminal(run->status)) {
        return RF_RUN_TERMINAL;
    }
    if (kind != RF_RUN_OP_CANCEL && run->status != RF_RUN_ACTIVE) {
        return RF_WRONG_STATUS;
    }
    step->next.completed_at = not_before_newest(run, call->now);
    push_op(&step->next, call, kind);
    switch (kind) {
    case RF_RUN_OP_COMPLETE:
        step->next.status = RF_RUN_DONE;
        step->event = RF_EVENT_RUN_COMPLETED;
        break;
    case RF_RUN_OP_FAIL:
        step->next.status = RF_RUN_FAILED;
        step->event = RF_EVENT_RUN_FAILED;
        break;
    default:
        step->next.status = RF_RUN_CANCELLED;
        step->event = RF_EVENT_RUN_CANCELLED;
        break;
    }
    return RF_OK;
}

void rf_run_event(const struct rf_run_step *step, uint64_t now, rf_event *event)
{
    assert(step->outcome == RF_EXECUTED);
    *event = (rf_event){
        .kind = step->event,
        .tenant = step->next.tenant,
        .run = step->next.run,
        .time = now,
        .count = step->count,
    };
}

const char *rf_run_violation(const struct rf_run *run)
{
    if ((unsigned)run->status > RF_RUN_CANCELLED) {
        return "unknown run status";
    }
    if (run->config.lease_duration == 0) {
        return "the lease duration is not 0";
    }
    if ((unsigned)run->config.semantics > RF_DISPATCHED) {
        return "unknown cursor semantics";
    }
    if (run->status == RF_RUN_ACTIVE && run->root_count == 0) {
        return "an active run has root shards";
    }
    if (run->status == RF_RUN_INITIALIZING && run->root_count != 0) {
        return "an initializing run has no shards";
    }
    if (rf_run_is_terminal(run->status) != (run->completed_at != 0)) {
        return "completed_at exactly if terminal";
    }
    if (run->completed_at != 0 && run->completed_at < run->created_at) {
        return "completed_at is not before created_at";
    }
    if (!rf_ring_shape_ok(run->ring_count, run->ring_next, RF_RUN_RING)) {
        return "the ring holds at most 8";
    }
    for (uint32_t i = 0; i < run->ring_count; i++) {
        if (run->ring.kind[i] > RF_RUN_OP_ADD_SHARDS ||
            run->ring.result[i] > RF_RESULT_SUPERSEDED) {
            return "unknown kind or result in the ring";
        }
    }
    if (!rf_ring_ids_unique(run->ring.op, run->ring_count)) {
        return "op ids in the ring are unique";
    }
    return NULL;
}
