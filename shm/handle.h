/* A handle on a store in shared memory: what rf_open gives. */
#ifndef RF_HANDLE_H
#define RF_HANDLE_H

#include "actor.h"
#include "backend.h"

struct rf_rec_copy;

struct rf_handle {
    struct rf_store store; /* first */
    struct rf_actor actor; /* under its own member slot; not if read_only */
    struct rf_map *map;
    uint64_t op_nonce;
    uint64_t op_counter;
    bool manual;
    uint64_t (*clock)(void *context);
    void *clock_context;
    struct rf_rec_copy *copy; /* room for a reader */
};

static inline struct rf_handle *rf_handle_of(rf_store *store)
{
    return (struct rf_handle *)(void *)store;
}

static inline uint64_t rf_handle_now(const struct rf_handle *h)
{
    return h->clock != NULL ? h->clock(h->clock_context) : rf_region_now(h->map);
}

/* The detail to fill in, if the caller wants one. */
static inline rf_detail *rf_detail_of(rf_result *result)
{
    return result == NULL ? NULL : &result->detail;
}

/* The same at the start of a call: nothing of the last call's is left in it. Field by field, because
 * all of `where` would cost more than the rest of a renewal. */
static inline rf_detail *rf_detail_fresh(rf_result *result)
{
    if (result != NULL) {
        rf_detail *d = &result->detail;
        result->has_event = false;
        result->epoch = 0;
        d->size = d->limit = d->index = d->shard = d->deadline = d->retry_after = 0;
        d->pid = 0;
        d->os_error = 0;
        d->has_index = false;
        d->where[0] = 0;
    }
    return rf_detail_of(result);
}

/* Counts a call and passes its status on. */
static inline rf_status rf_counted(struct rf_actor *actor, rf_op_class class, rf_status status,
                                   rf_outcome outcome)
{
    struct rf_counters *c = &actor->me->counters;
    if (__builtin_expect(status == RF_OK, 1)) {
        rf_count(outcome == RF_REPLAYED ? &c->replayed[class] : &c->executed[class], 1);
    } else {
        rf_count(&c->refused[class][(unsigned)status % RF_STATUS_SLOTS], 1);
    }
    return status;
}

/* The operations, as the backend table lists them. */
rf_status rf_shm_acquire(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         uint64_t shard, uint64_t worker, uint32_t flags, rf_grant *grant,
                         rf_result *result);
rf_status rf_shm_claim(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       uint64_t worker, uint32_t flags, uint64_t timeout, rf_grant *grant,
                       rf_result *result);
rf_status rf_shm_renew(rf_store *store, uint64_t now, const rf_tenant *tenant, rf_lease *lease,
                       rf_result *result);
rf_status rf_shm_checkpoint(rf_store *store, uint64_t now, const rf_tenant *tenant,
                            const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                            rf_result *result);
rf_status rf_shm_complete(rf_store *store, uint64_t now, const rf_tenant *tenant,
                          const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                          rf_result *result);
rf_status rf_shm_park(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      rf_park_reason reason, uint64_t op, rf_result *result);
rf_status rf_shm_release(rf_store *store, uint64_t now, const rf_tenant *tenant,
                         const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                         rf_result *result);
rf_status rf_shm_split_replace(rf_store *store, uint64_t now, const rf_tenant *tenant,
                               const rf_lease *lease, const rf_child *children, uint32_t count,
                               uint64_t op, uint64_t *ids, rf_result *result);
rf_status rf_shm_split_residual(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                const rf_lease *lease, const rf_spec *parent_new,
                                const rf_spec *residual, uint64_t op, uint64_t *id,
                                rf_result *result);
rf_status rf_shm_unpark(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t shard, uint64_t op, rf_result *result);
rf_status rf_shm_create_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                            const rf_run_config *config, rf_result *result);
rf_status rf_shm_take_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_run_op_kind kind, const rf_run_config *config,
                             const rf_shard_input *shards, uint32_t count, uint64_t op,
                             rf_result *result);
rf_status rf_shm_end_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         rf_run_op_kind kind, uint64_t op, rf_result *result);
rf_status rf_shm_purge_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           rf_result *result);
rf_status rf_shm_get_run(rf_store *store, const rf_tenant *tenant, uint64_t run, rf_run_info *info,
                         rf_detail *detail);
rf_status rf_shm_get_progress(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                              rf_progress *progress, uint8_t *watermark, rf_detail *detail);
rf_status rf_shm_get_capacity(rf_store *store, const rf_tenant *tenant, uint64_t run,
                              rf_capacity *capacity, rf_detail *detail);
rf_status rf_shm_get_shard(rf_store *store, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                           rf_shard_info *info, void *scratch, size_t scratch_size,
                           rf_detail *detail);
rf_status rf_shm_list_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_filter filter, rf_visit *visit, void *context, rf_detail *detail);
rf_status rf_shm_list_runs(rf_store *store, const rf_tenant *tenant, rf_visit_run *visit,
                           void *context, rf_detail *detail);
rf_status rf_shm_inspect(rf_store *store, rf_inspection *inspection, rf_detail *detail);
rf_status rf_shm_list_members(rf_store *store, rf_visit_member *visit, void *context,
                              rf_detail *detail);
rf_status rf_shm_monitor_create(rf_store *store, rf_monitor **monitor);
rf_status rf_shm_monitor_read(rf_monitor *monitor, rf_event *events, size_t capacity, size_t *count,
                              uint64_t *lost);
void rf_shm_monitor_destroy(rf_monitor *monitor);

extern const struct rf_backend rf_shm_backend;

#endif
