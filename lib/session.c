/* Sessions: one shard at a time, the lease threaded through. Built on the public calls alone. */
#include <stdlib.h>

#include "backend.h"
#include "range.h"

struct rf_session {
    rf_store *store;
    rf_session_options options;
    bool held;
    rf_grant grant;
    rf_status lost; /* why the last lease ended before its time; RF_OK if it did not */
    void *keeper;
    rf_spec spec; /* the range as it is now: a residual split makes it smaller */
    uint8_t cut[RF_KEY_MAX];
    _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
};

rf_status rf_session_create(rf_store *store, const rf_session_options *options,
                            rf_session **session)
{
    if (store == NULL || options == NULL || session == NULL) {
        return RF_INVALID_ARGUMENT;
    }
    rf_status status = rf_store_usable(store, false);
    if (status != RF_OK) {
        return status;
    }
    rf_session *s = calloc(1, sizeof(*s));
    if (s == NULL) {
        return RF_RESOURCE_EXHAUSTED;
    }
    s->store = store;
    s->options = *options;
    s->grant.scratch = s->scratch;
    s->grant.scratch_size = sizeof(s->scratch);
    *session = s;
    return RF_OK;
}

/* The lease is over, one way or another. */
static void let_go(rf_session *s, rf_status why)
{
    if (s->keeper != NULL) {
        s->store->backend->unkeep(s->store, s->keeper);
        s->keeper = NULL;
    }
    s->held = false;
    s->lost = why;
}

void rf_session_destroy(rf_session *s)
{
    if (s == NULL) {
        return;
    }
    if (s->held) {
        rf_session_release(s, NULL);
    }
    if (s->held) {
        let_go(s, RF_OK);
    }
    free(s);
}

/* Before anything is said of the lease: in a child of fork it is the parent's. */
static rf_status ours(const rf_session *s)
{
    return s == NULL ? RF_INVALID_ARGUMENT : rf_store_usable(s->store, false);
}

static rf_status need_lease(const rf_session *s, rf_result *result)
{
    rf_status status = ours(s);
    if (status == RF_OK && !s->held) {
        status = s->lost != RF_OK ? s->lost : RF_STALE_FENCE;
    }
    return status == RF_OK ? RF_OK : rf_refuse_call(result, status, NULL);
}

static rf_status need_no_lease(const rf_session *s, rf_result *result)
{
    rf_status status = ours(s);
    if (status == RF_OK && s->held) {
        return rf_refuse_call(result, RF_INVALID_ARGUMENT,
                              "the session holds a shard; end its lease before");
    }
    return status == RF_OK ? RF_OK : rf_refuse_call(result, status, NULL);
}

static rf_status begin(rf_session *s, rf_status status, const rf_grant **grant)
{
    if (status != RF_OK) {
        return status;
    }
    s->held = true;
    s->lost = RF_OK;
    s->spec = s->grant.spec;
    if (s->options.keep_alive) {
        s->keeper = s->store->backend->keep(s->store, &s->options.tenant, &s->grant.lease);
    }
    if (grant != NULL) {
        *grant = &s->grant;
    }
    return RF_OK;
}

static uint32_t flags_of(const rf_session *s)
{
    return s->options.detached ? RF_DETACHED : RF_BOUND;
}

rf_status rf_session_claim(rf_session *s, uint64_t run, uint64_t timeout, const rf_grant **grant,
                           rf_result *result)
{
    rf_status status = need_no_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_claim(s->store, rf_now(s->store), &s->options.tenant, run, s->options.worker,
                      flags_of(s), timeout, &s->grant, result);
    return begin(s, status, grant);
}

rf_status rf_session_acquire(rf_session *s, uint64_t run, uint64_t shard, const rf_grant **grant,
                             rf_result *result)
{
    rf_status status = need_no_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_acquire(s->store, rf_now(s->store), &s->options.tenant, run, shard,
                        s->options.worker, flags_of(s), &s->grant, result);
    return begin(s, status, grant);
}

rf_status rf_session_check(const rf_session *s)
{
    uint64_t deadline;
    rf_status status = need_lease(s, NULL);
    if (status != RF_OK) {
        return status;
    }
    return s->keeper == NULL ? RF_OK : s->store->backend->kept(s->store, s->keeper, &deadline);
}

/* These mean that somebody else has, or may have, the shard. */
static rf_status settle(rf_session *s, rf_status status, bool terminal)
{
    bool lost = status == RF_STALE_FENCE || status == RF_LEASE_EXPIRED ||
                status == RF_SHARD_TERMINAL || status == RF_NOT_FOUND;
    if (lost) {
        let_go(s, status);
    } else if (terminal && status == RF_OK) {
        let_go(s, RF_OK);
    }
    return status;
}

rf_status rf_session_renew(rf_session *s, rf_result *result)
{
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_renew(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease, result);
    return settle(s, status, false);
}

rf_status rf_session_checkpoint(rf_session *s, rf_cursor cursor, rf_result *result)
{
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_checkpoint(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease, &cursor,
                           rf_new_op(s->store), result);
    return settle(s, status, false);
}

rf_status rf_session_split_residual(rf_session *s, rf_bytes point, uint64_t *id, rf_result *result)
{
    rf_spec parent_new, residual;
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    rf_detail *detail = result == NULL ? NULL : &result->detail;
    status = rf_plan_residual_at(s->spec, point, &parent_new, &residual, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_split_residual(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease,
                               &parent_new, &residual, rf_new_op(s->store), id, result);
    if (status == RF_OK) {
        memcpy(s->cut, point.data, point.len);
        s->spec.end = rf_bytes_of(s->cut, point.len);
        s->grant.spec.end = s->spec.end;
    }
    return settle(s, status, false);
}

rf_status rf_session_split_replace(rf_session *s, const rf_bytes *points, uint32_t count,
                                   uint64_t *ids, rf_result *result)
{
    rf_child children[RF_SPLIT_CHILDREN_MAX];
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    rf_detail *detail = result == NULL ? NULL : &result->detail;
    status = rf_plan_replace(s->spec, points, count, children, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_split_replace(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease,
                              children, count + 1, rf_new_op(s->store), ids, result);
    return settle(s, status, true);
}

rf_status rf_session_complete(rf_session *s, rf_cursor cursor, rf_result *result)
{
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_complete(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease, &cursor,
                         rf_new_op(s->store), result);
    return settle(s, status, true);
}

rf_status rf_session_park(rf_session *s, rf_park_reason reason, rf_result *result)
{
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_park(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease, reason,
                     rf_new_op(s->store), result);
    return settle(s, status, true);
}

rf_status rf_session_release(rf_session *s, rf_result *result)
{
    rf_status status = need_lease(s, result);
    if (status != RF_OK) {
        return status;
    }
    status = rf_release(s->store, rf_now(s->store), &s->options.tenant, &s->grant.lease, NULL,
                        rf_new_op(s->store), result);
    return settle(s, status, true);
}
