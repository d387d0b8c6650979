#include "renew.h"

#include "handle.h"
#include "operation.h"
#include "point.h"
#include "range.h"

#define LOAD64(word) atomic_load_explicit(&(word), memory_order_relaxed)

void rf_run_capacity(const struct rf_runrec *run, rf_capacity *capacity)
{
    uint64_t earliest = LOAD64(run->earliest);
    capacity->available = LOAD64(run->available);
    capacity->earliest_deadline = earliest == RF_NO_DEADLINE ? 0 : earliest;
    capacity->waiting = 0;
    for (uint64_t words = LOAD64(run->waiter_summary); words != 0; words &= words - 1) {
        uint64_t w = LOAD64(run->waiters[__builtin_ctzll(words)]);
        capacity->waiting += (uint64_t)__builtin_popcountll(w);
    }
}

/* The shard was found expired by somebody with a later clock and made claimable; the owner, whose
 * clock says otherwise, still has it. */
static rf_status unlist(struct rf_op *op, uint64_t now, rf_detail *detail)
{
    rf_status status = rf_op_lock_run(op, RF_NOT_FOUND, detail);
    return status != RF_OK ? status : rf_op_unlist(op, now, detail);
}

rf_status rf_renew_lease(struct rf_actor *actor, const rf_tenant *tenant, const rf_lease *lease,
                         uint64_t now, struct rf_renewal *renewal, rf_detail *detail)
{
    struct rf_op op;
    rf_op_begin(&op, actor);
    op.ending = true; /* it is not logged; a full disk must not cost leases */
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    rf_status status =
        rf_op_lock_shard(&op, tenant, lease->run, lease->shard, lease->slot_hint, detail);
    if (status == RF_OK) {
        const struct rf_call call = {.tenant = tenant, .now = now, .lease = lease};
        const struct rf_env env = {.lease_duration = op.run->lease_duration};
        /* A renewal looks at the scalars alone, and so does this view. */
        op.view.tenant = tenant;
        op.view.run = op.run->run;
        op.view.shard = op.rec->shard;
        op.view.state = &op.rec->body.state;
        status = rf_shard_renew(&op.view, &call, &env, &op.step, detail);
    }
    if (status == RF_OK && op.rec->body.listed != 0) {
        status = unlist(&op, now, detail);
    }
    if (status == RF_OK) {
        __atomic_store_n(&op.rec->body.state.deadline, op.step.next.deadline, __ATOMIC_RELAXED);
        RF_POINT("renew.deadline");
        renewal->deadline = op.step.next.deadline;
        renewal->run_status =
            (rf_run_status)atomic_load_explicit(&op.run->status, memory_order_relaxed);
        rf_run_capacity(op.run, &renewal->capacity);
    }
    rf_op_end(&op);
    return status;
}

rf_status rf_shm_renew(rf_store *store, uint64_t now, const rf_tenant *tenant, rf_lease *lease,
                       rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_renewal renewal;
    rf_status status =
        rf_renew_lease(&h->actor, tenant, lease, now, &renewal, rf_detail_fresh(result));
    if (status == RF_OK) {
        lease->deadline = renewal.deadline;
        if (result != NULL) {
            result->outcome = RF_EXECUTED;
            result->run_status = renewal.run_status;
            result->capacity = renewal.capacity;
            result->has_event = result->want_event;
            if (result->want_event) {
                result->event = (rf_event){.kind = RF_EVENT_LEASE_RENEWED,
                                           .tenant = *tenant,
                                           .run = lease->run,
                                           .shard = lease->shard,
                                           .time = now,
                                           .deadline = renewal.deadline};
            }
        }
    }
    return rf_counted(&h->actor, RF_CLASS_RENEW, status, RF_EXECUTED);
}
