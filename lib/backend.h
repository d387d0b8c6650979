/*
 * What stands behind a store. The public functions check their arguments and call these; `shm` is
 * the one backend there is, and another one (for users who outgrow a host) would stand beside it.
 * `lib` knows it by this table only.
 */
#ifndef RF_BACKEND_H
#define RF_BACKEND_H

#include "run.h"
#include "shard.h"

struct rf_backend {
    void (*close)(rf_store *store);
    uint64_t (*now)(const rf_store *store);
    uint64_t (*new_op)(rf_store *store);

    rf_status (*acquire)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         uint64_t shard, uint64_t worker, uint32_t flags, rf_grant *grant,
                         rf_result *result);
    rf_status (*claim)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       uint64_t worker, uint32_t flags, uint64_t timeout, rf_grant *grant,
                       rf_result *result);
    rf_status (*renew)(rf_store *store, uint64_t now, const rf_tenant *tenant, rf_lease *lease,
                       rf_result *result);
    rf_status (*checkpoint)(rf_store *store, uint64_t now, const rf_tenant *tenant,
                            const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                            rf_result *result);
    rf_status (*complete)(rf_store *store, uint64_t now, const rf_tenant *tenant,
                          const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                          rf_result *result);
    rf_status (*park)(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      rf_park_reason reason, uint64_t op, rf_result *result);
    rf_status (*release)(rf_store *store, uint64_t now, const rf_tenant *tenant,
                         const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                         rf_result *result);
    rf_status (*split_replace)(rf_store *store, uint64_t now, const rf_tenant *tenant,
                               const rf_lease *lease, const rf_child *children, uint32_t count,
                               uint64_t op, uint64_t *ids, rf_result *result);
    rf_status (*split_residual)(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                const rf_lease *lease, const rf_spec *parent_new,
                                const rf_spec *residual, uint64_t op, uint64_t *id,
                                rf_result *result);
    rf_status (*unpark)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t shard, uint64_t op, rf_result *result);

    rf_status (*create_run)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                            const rf_run_config *config, rf_result *result);
    /* config != NULL: create the run as well, if it is not there. */
    rf_status (*take_shards)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_run_op_kind kind, const rf_run_config *config,
                             const rf_shard_input *shards, uint32_t count, uint64_t op,
                             rf_result *result);
    rf_status (*end_run)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         rf_run_op_kind kind, uint64_t op, rf_result *result);
    rf_status (*purge_run)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           rf_result *result);

    rf_status (*get_run)(rf_store *store, const rf_tenant *tenant, uint64_t run, rf_run_info *info,
                         rf_detail *detail);
    rf_status (*get_progress)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                              rf_progress *progress, uint8_t *watermark, rf_detail *detail);
    rf_status (*get_capacity)(rf_store *store, const rf_tenant *tenant, uint64_t run,
                              rf_capacity *capacity, rf_detail *detail);
    rf_status (*get_shard)(rf_store *store, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                           rf_shard_info *info, void *scratch, size_t scratch_size,
                           rf_detail *detail);
    rf_status (*list_shards)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_filter filter, rf_visit *visit, void *context, rf_detail *detail);
    rf_status (*list_runs)(rf_store *store, const rf_tenant *tenant, rf_visit_run *visit,
                           void *context, rf_detail *detail);

    rf_status (*sync)(rf_store *store, uint64_t epoch, rf_detail *detail);
    rf_status (*barrier)(rf_store *store, rf_detail *detail);
    uint64_t (*durable)(const rf_store *store);
    rf_status (*snapshot)(rf_store *store, rf_detail *detail);
    rf_status (*backup)(rf_store *store, const char *directory, rf_detail *detail);
    rf_status (*verify)(rf_store *store, rf_visit_difference *visit, void *context,
                        rf_verification *verification, rf_detail *detail);

    rf_status (*tend)(rf_store *store, uint64_t now);
    rf_status (*sweep)(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       rf_detail *detail);
    rf_status (*inspect)(rf_store *store, rf_inspection *inspection, rf_detail *detail);
    rf_status (*list_members)(rf_store *store, rf_visit_member *visit, void *context,
                              rf_detail *detail);
    rf_status (*list_locks)(rf_store *store, rf_visit_lock *visit, void *context,
                            rf_detail *detail);
    rf_status (*monitor_create)(rf_store *store, rf_monitor **monitor);
    rf_status (*monitor_read)(rf_monitor *monitor, rf_event *events, size_t capacity, size_t *count,
                              uint64_t *lost);
    void (*monitor_destroy)(rf_monitor *monitor);

    /* Renewing in the background, for sessions: an opaque thing that lives until it is dropped.
     * NULL if the handle has nobody to do it. In a child of fork, unkeep only frees it. */
    void *(*keep)(rf_store *store, const rf_tenant *tenant, const rf_lease *lease);
    rf_status (*kept)(rf_store *store, const void *keeper, uint64_t *deadline);
    void (*unkeep)(rf_store *store, void *keeper);
};

/* Every backend's store begins with this. A handle belongs to the process in which *here is still
 * what it was when the handle was made: the word is wiped in children of fork. */
struct rf_store {
    const struct rf_backend *backend;
    const volatile uint64_t *here;
    uint64_t cookie;
    bool read_only;
};

static inline rf_status rf_store_usable(const rf_store *store, bool writing)
{
    if (__builtin_expect(*store->here != store->cookie, 0)) {
        return RF_FORKED;
    }
    return writing && store->read_only ? RF_PERMISSION_DENIED : RF_OK;
}

/* Every backend's monitor begins with this. */
struct rf_monitor {
    const struct rf_backend *backend;
    const rf_store *store;
};

/* A refusal of the call itself; the state was not even looked at. result and why may be NULL. */
rf_status rf_refuse_call(rf_result *result, rf_status status, const char *why);

/* How a store is opened and removed: defined by the backend that is linked in. */
rf_status rf_backend_open(const char *store, const rf_options *options, rf_store **out,
                          rf_detail *detail);
rf_status rf_backend_destroy(const char *store, rf_detail *detail);

#endif
