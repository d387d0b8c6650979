/* The public face of a store: every argument is looked at here, once, and the rest is the
 * backend's. */
#include <stdio.h>
#include <stdlib.h>

#include "backend.h"
#include "manifest.h"
#include "range.h"

static rf_status refuse(rf_detail *detail, rf_status status, const char *why)
{
    rf_detail_clear(detail);
    if (detail != NULL && why != NULL) {
        snprintf(detail->where, sizeof(detail->where), "%s", why);
    }
    return status;
}

rf_status rf_refuse_call(rf_result *result, rf_status status, const char *why)
{
    if (result != NULL) {
        result->has_event = false;
    }
    return refuse(result == NULL ? NULL : &result->detail, status, why);
}

static const char *why_not(rf_status status)
{
    return status == RF_PERMISSION_DENIED ? "the handle was opened read-only" : NULL;
}

static inline rf_status usable(const rf_store *store, rf_result *result, bool good)
{
    if (store == NULL || !good) {
        return rf_refuse_call(result, RF_INVALID_ARGUMENT, NULL);
    }
    if (result != NULL && (unsigned)result->durability > RF_WAIT) {
        return rf_refuse_call(result, RF_INVALID_ARGUMENT,
                              "result.durability is no rf_durability; a result begins as {0}");
    }
    rf_status status = rf_store_usable(store, true);
    return status == RF_OK ? RF_OK : rf_refuse_call(result, status, why_not(status));
}

static rf_status readable(const rf_store *store, rf_detail *detail, bool good)
{
    rf_detail_clear(detail);
    if (store == NULL || !good) {
        return RF_INVALID_ARGUMENT;
    }
    return rf_store_usable(store, false);
}

/* As usable(), for the calls that tell nothing but a detail. */
static rf_status writable(const rf_store *store, rf_detail *detail, bool good)
{
    if (store == NULL || !good) {
        return refuse(detail, RF_INVALID_ARGUMENT, NULL);
    }
    rf_status status = rf_store_usable(store, true);
    return refuse(detail, status, why_not(status));
}

static bool cursor_good(const rf_cursor *cursor)
{
    return cursor != NULL && rf_cursor_sound(cursor);
}

rf_status rf_open(const char *store, const rf_options *options, rf_store **out, rf_detail *detail)
{
    const rf_options defaults = {0};
    rf_detail_clear(detail);
    if (store == NULL || store[0] == 0 || out == NULL) {
        return refuse(detail, RF_INVALID_ARGUMENT,
                      out == NULL ? "where the handle goes" : "a store needs a name");
    }
    *out = NULL;
    return rf_backend_open(store, options == NULL ? &defaults : options, out, detail);
}

rf_status rf_close(rf_store *store)
{
    if (store == NULL) {
        return RF_INVALID_ARGUMENT;
    }
    store->backend->close(store);
    return RF_OK;
}

rf_status rf_destroy(const char *store, rf_detail *detail)
{
    rf_detail_clear(detail);
    return store == NULL || store[0] == 0
               ? refuse(detail, RF_INVALID_ARGUMENT, "a store needs a name")
               : rf_backend_destroy(store, detail);
}

uint64_t rf_now(const rf_store *store)
{
    return store->backend->now(store);
}

uint64_t rf_new_op(rf_store *store)
{
    return store->backend->new_op(store);
}

/* --- shards --- */

rf_status rf_acquire(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                     uint64_t shard, uint64_t worker, uint32_t flags, rf_grant *grant,
                     rf_result *result)
{
    rf_status status =
        usable(store, result, tenant != NULL && grant != NULL && flags <= RF_DETACHED);
    return status != RF_OK ? status
                           : store->backend->acquire(store, now, tenant, run, shard, worker, flags,
                                                     grant, result);
}

rf_status rf_claim(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                   uint64_t worker, uint32_t flags, uint64_t timeout, rf_grant *grant,
                   rf_result *result)
{
    rf_status status =
        usable(store, result, tenant != NULL && grant != NULL && flags <= RF_DETACHED);
    return status != RF_OK ? status
                           : store->backend->claim(store, now, tenant, run, worker, flags, timeout,
                                                   grant, result);
}

rf_status rf_renew(rf_store *store, uint64_t now, const rf_tenant *tenant, rf_lease *lease,
                   rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL && lease != NULL);
    return status != RF_OK ? status : store->backend->renew(store, now, tenant, lease, result);
}

rf_status rf_checkpoint(rf_store *store, uint64_t now, const rf_tenant *tenant,
                        const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                        rf_result *result)
{
    rf_status status =
        usable(store, result, tenant != NULL && lease != NULL && cursor_good(cursor));
    return status != RF_OK
               ? status
               : store->backend->checkpoint(store, now, tenant, lease, cursor, op, result);
}

rf_status rf_complete(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      const rf_cursor *cursor, uint64_t op, rf_result *result)
{
    rf_status status =
        usable(store, result, tenant != NULL && lease != NULL && cursor_good(cursor));
    return status != RF_OK
               ? status
               : store->backend->complete(store, now, tenant, lease, cursor, op, result);
}

rf_status rf_park(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                  rf_park_reason reason, uint64_t op, rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL && lease != NULL);
    return status != RF_OK ? status
                           : store->backend->park(store, now, tenant, lease, reason, op, result);
}

rf_status rf_release(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                     const rf_cursor *cursor, uint64_t op, rf_result *result)
{
    const rf_cursor as_it_is = {0};
    cursor = cursor == NULL ? &as_it_is : cursor;
    rf_status status =
        usable(store, result, tenant != NULL && lease != NULL && cursor_good(cursor));
    return status != RF_OK ? status
                           : store->backend->release(store, now, tenant, lease, cursor, op, result);
}

static bool children_good(const rf_child *children, uint32_t count)
{
    if (children == NULL) {
        return count == 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!rf_spec_sound(&children[i].spec) || !rf_cursor_sound(&children[i].cursor)) {
            return false;
        }
    }
    return true;
}

rf_status rf_split_replace(rf_store *store, uint64_t now, const rf_tenant *tenant,
                           const rf_lease *lease, const rf_child *children, uint32_t count,
                           uint64_t op, uint64_t *ids, rf_result *result)
{
    rf_status status =
        usable(store, result,
               tenant != NULL && lease != NULL && ids != NULL && children_good(children, count));
    return status != RF_OK ? status
                           : store->backend->split_replace(store, now, tenant, lease, children,
                                                           count, op, ids, result);
}

rf_status rf_split_residual(rf_store *store, uint64_t now, const rf_tenant *tenant,
                            const rf_lease *lease, const rf_spec *parent_new,
                            const rf_spec *residual, uint64_t op, uint64_t *id, rf_result *result)
{
    bool good = tenant != NULL && lease != NULL && parent_new != NULL && residual != NULL &&
                id != NULL && rf_spec_sound(parent_new) && rf_spec_sound(residual);
    rf_status status = usable(store, result, good);
    return status != RF_OK ? status
                           : store->backend->split_residual(store, now, tenant, lease, parent_new,
                                                            residual, op, id, result);
}

rf_status rf_unpark(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                    uint64_t shard, uint64_t op, rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL);
    return status != RF_OK ? status
                           : store->backend->unpark(store, now, tenant, run, shard, op, result);
}

/* --- runs --- */

rf_status rf_create_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        const rf_run_config *config, rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL && config != NULL);
    return status != RF_OK ? status
                           : store->backend->create_run(store, now, tenant, run, config, result);
}

static rf_status take_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_run_op_kind kind, const rf_run_config *config,
                             const rf_shard_input *shards, uint32_t count, uint64_t op,
                             rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL && rf_manifest_sound(shards, count));
    return status != RF_OK ? status
                           : store->backend->take_shards(store, now, tenant, run, kind, config,
                                                         shards, count, op, result);
}

rf_status rf_register_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             const rf_shard_input *shards, uint32_t count, uint64_t op,
                             rf_result *result)
{
    return take_shards(store, now, tenant, run, RF_RUN_OP_REGISTER_SHARDS, NULL, shards, count, op,
                       result);
}

rf_status rf_create_run_with_shards(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                    uint64_t run, const rf_run_config *config,
                                    const rf_shard_input *shards, uint32_t count, uint64_t op,
                                    rf_result *result)
{
    if (config == NULL) {
        return rf_refuse_call(result, RF_INVALID_ARGUMENT, NULL);
    }
    return take_shards(store, now, tenant, run, RF_RUN_OP_REGISTER_SHARDS, config, shards, count,
                       op, result);
}

rf_status rf_add_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        const rf_shard_input *shards, uint32_t count, uint64_t op,
                        rf_result *result)
{
    return take_shards(store, now, tenant, run, RF_RUN_OP_ADD_SHARDS, NULL, shards, count, op,
                       result);
}

static rf_status end_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         rf_run_op_kind kind, uint64_t op, rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL);
    return status != RF_OK ? status
                           : store->backend->end_run(store, now, tenant, run, kind, op, result);
}

rf_status rf_complete_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          uint64_t op, rf_result *result)
{
    return end_run(store, now, tenant, run, RF_RUN_OP_COMPLETE, op, result);
}

rf_status rf_fail_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                      uint64_t op, rf_result *result)
{
    return end_run(store, now, tenant, run, RF_RUN_OP_FAIL, op, result);
}

rf_status rf_cancel_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t op, rf_result *result)
{
    return end_run(store, now, tenant, run, RF_RUN_OP_CANCEL, op, result);
}

rf_status rf_purge_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       rf_result *result)
{
    rf_status status = usable(store, result, tenant != NULL);
    return status != RF_OK ? status : store->backend->purge_run(store, now, tenant, run, result);
}

/* --- looking --- */

rf_status rf_get_run(rf_store *store, const rf_tenant *tenant, uint64_t run, rf_run_info *info,
                     rf_detail *detail)
{
    rf_status status = readable(store, detail, tenant != NULL && info != NULL);
    return status != RF_OK ? status : store->backend->get_run(store, tenant, run, info, detail);
}

rf_status rf_get_progress(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          rf_progress *progress, uint8_t *watermark, rf_detail *detail)
{
    rf_status status = readable(store, detail, tenant != NULL && progress != NULL);
    return status != RF_OK
               ? status
               : store->backend->get_progress(store, now, tenant, run, progress, watermark, detail);
}

rf_status rf_get_capacity(rf_store *store, const rf_tenant *tenant, uint64_t run,
                          rf_capacity *capacity, rf_detail *detail)
{
    rf_status status = readable(store, detail, tenant != NULL && capacity != NULL);
    return status != RF_OK ? status
                           : store->backend->get_capacity(store, tenant, run, capacity, detail);
}

rf_status rf_get_shard(rf_store *store, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                       rf_shard_info *info, void *scratch, size_t scratch_size, rf_detail *detail)
{
    rf_status status = readable(
        store, detail, tenant != NULL && info != NULL && (scratch != NULL || scratch_size == 0));
    return status != RF_OK ? status
                           : store->backend->get_shard(store, tenant, run, shard, info, scratch,
                                                       scratch_size, detail);
}

rf_status rf_list_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         rf_filter filter, rf_visit *visit, void *context, rf_detail *detail)
{
    rf_status status = readable(
        store, detail, tenant != NULL && visit != NULL && (unsigned)filter <= RF_LIST_ROOTS);
    return status != RF_OK ? status
                           : store->backend->list_shards(store, now, tenant, run, filter, visit,
                                                         context, detail);
}

rf_status rf_list_runs(rf_store *store, const rf_tenant *tenant, rf_visit_run *visit, void *context,
                       rf_detail *detail)
{
    rf_status status = readable(store, detail, visit != NULL);
    return status != RF_OK ? status
                           : store->backend->list_runs(store, tenant, visit, context, detail);
}

rf_status rf_inspect(rf_store *store, rf_inspection *inspection, rf_detail *detail)
{
    rf_status status = readable(store, detail, inspection != NULL);
    return status != RF_OK ? status : store->backend->inspect(store, inspection, detail);
}

rf_status rf_list_members(rf_store *store, rf_visit_member *visit, void *context, rf_detail *detail)
{
    rf_status status = readable(store, detail, visit != NULL);
    return status != RF_OK ? status : store->backend->list_members(store, visit, context, detail);
}

rf_status rf_list_locks(rf_store *store, rf_visit_lock *visit, void *context, rf_detail *detail)
{
    rf_status status = readable(store, detail, visit != NULL);
    return status != RF_OK ? status : store->backend->list_locks(store, visit, context, detail);
}

rf_status rf_monitor_create(rf_store *store, rf_monitor **monitor)
{
    rf_status status = readable(store, NULL, monitor != NULL);
    return status != RF_OK ? status : store->backend->monitor_create(store, monitor);
}

rf_status rf_monitor_read(rf_monitor *monitor, rf_event *events, size_t capacity, size_t *count,
                          uint64_t *lost)
{
    if (monitor == NULL || events == NULL || count == NULL || lost == NULL) {
        return RF_INVALID_ARGUMENT;
    }
    rf_status status = rf_store_usable(monitor->store, false);
    return status != RF_OK ? status
                           : monitor->backend->monitor_read(monitor, events, capacity, count, lost);
}

void rf_monitor_destroy(rf_monitor *monitor)
{
    if (monitor != NULL) {
        monitor->backend->monitor_destroy(monitor);
    }
}

/* --- durability --- */

rf_status rf_sync(rf_store *store, uint64_t epoch, rf_detail *detail)
{
    rf_status status = writable(store, detail, true);
    return status != RF_OK ? status : store->backend->sync(store, epoch, detail);
}

rf_status rf_barrier(rf_store *store, rf_detail *detail)
{
    rf_status status = writable(store, detail, true);
    return status != RF_OK ? status : store->backend->barrier(store, detail);
}

uint64_t rf_durable(const rf_store *store)
{
    return store == NULL || rf_store_usable(store, false) != RF_OK ? 0
                                                                   : store->backend->durable(store);
}

rf_status rf_snapshot(rf_store *store, rf_detail *detail)
{
    rf_status status = writable(store, detail, true);
    return status != RF_OK ? status : store->backend->snapshot(store, detail);
}

rf_status rf_backup(rf_store *store, const char *directory, rf_detail *detail)
{
    rf_status status = writable(store, detail, directory != NULL);
    return status != RF_OK ? status : store->backend->backup(store, directory, detail);
}

rf_status rf_verify(rf_store *store, rf_visit_difference *visit, void *context,
                    rf_verification *verification, rf_detail *detail)
{
    rf_status status = writable(store, detail, visit != NULL && verification != NULL);
    return status != RF_OK ? status
                           : store->backend->verify(store, visit, context, verification, detail);
}

/* --- tending --- */

rf_status rf_tend(rf_store *store, uint64_t now)
{
    rf_status status = usable(store, NULL, true);
    if (status == RF_OK && now == 0) {
        return RF_INVALID_TIME;
    }
    return status != RF_OK ? status : store->backend->tend(store, now);
}

rf_status rf_sweep(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                   rf_detail *detail)
{
    rf_status status = writable(store, detail, tenant != NULL);
    if (status == RF_OK && now == 0) {
        return RF_INVALID_TIME;
    }
    return status != RF_OK ? status : store->backend->sweep(store, now, tenant, run, detail);
}
