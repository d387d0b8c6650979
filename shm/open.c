/* Opening, closing and looking after a store in shared memory; the backend's table. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "admit.h"
#include "backup.h"
#include "directory.h"
#include "guardian.h"
#include "handle.h"
#include "hold.h"
#include "log.h"
#include "member.h"
#include "range.h"
#include "reap.h"
#include "record.h"
#include "slab.h"
#include "snapshot.h"
#include "sweep.h"
#include "verify.h"

#define LANE_BYTES      (128u * 1024u)
#define LANE_BYTES_LOG  (4u * 1024u * 1024u) /* what may be done before some of it is durable */
#define SEGMENT_BYTES   (16ull << 20)
#define SNAPSHOT_BYTES  (64ull << 20)
#define FLUSH_NS        5000000ull
#define DEFAULT_BYTES   (1ull << 30)
#define DEFAULT_RUNS    4096u
#define DEFAULT_MEMBERS 1000u
#define BUSY_MOST       (UINT64_MAX / 4) /* 146 years: a point of time behind it is still a number */

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value != 0 ? value : fallback;
}

static struct rf_region_options region_options(const rf_options *o)
{
    uint64_t shards = or_default(o->max_shards, RF_SHARDS_DEFAULT);
    return (struct rf_region_options){
        .max_shards = shards,
        .max_tenant_shards = or_default(o->max_tenant_shards, shards),
        .max_bytes = or_default(o->max_bytes, DEFAULT_BYTES),
        .max_runs = (uint32_t)or_default(o->max_runs, DEFAULT_RUNS),
        .max_members = (uint32_t)or_default(o->max_members, DEFAULT_MEMBERS),
        .claim_cooldown = o->claim_cooldown,
        .lane_bytes = o->durability == RF_VOLATILE ? LANE_BYTES : LANE_BYTES_LOG,
        .durability = (uint32_t)o->durability,
        .segment_bytes = or_default(o->segment_bytes, SEGMENT_BYTES),
        .snapshot_bytes = or_default(o->snapshot_bytes, SNAPSHOT_BYTES),
        .flush_ns = or_default(o->flush_interval, FLUSH_NS),
        .create = o->create && !o->read_only,
        .read_only = o->read_only,
        .region_path = o->region_path,
        .has_group = o->has_group,
        .group = o->group,
    };
}

/* One guardian for all handles of the process; started by the first that wants one. */
static rf_status join_with_guardian(struct rf_handle *h, uint64_t busy_ns, uint32_t *slot,
                                    rf_detail *detail)
{
    rf_status status = RF_OK;
    pthread_mutex_lock(&rf_process.guardian_lock);
    if (h->map->guardian == NULL) {
        status = rf_guardian_start(h->map, busy_ns, detail);
    }
    if (status == RF_OK) {
        status = rf_guardian_join(h->map, slot, detail);
        if (status == RF_OK) {
            h->map->guarded++;
        } else if (h->map->guarded == 0) {
            rf_guardian_stop(h->map);
        }
    }
    pthread_mutex_unlock(&rf_process.guardian_lock);
    return status;
}

static void leave_with_guardian(struct rf_handle *h, bool clean)
{
    pthread_mutex_lock(&rf_process.guardian_lock);
    if (clean) {
        rf_guardian_leave(h->map, h->actor.slot);
    } else {
        rf_guardian_abandon(h->map, h->actor.slot);
    }
    if (--h->map->guarded == 0) {
        rf_guardian_stop(h->map);
    }
    pthread_mutex_unlock(&rf_process.guardian_lock);
}

/* Not clean: somebody holds a lock of one of its shards. It leaves as the dead do, and the survivors
 * finish. */
static void leave(struct rf_handle *h, bool clean)
{
    if (!h->manual) {
        leave_with_guardian(h, clean);
    } else if (clean) {
        rf_member_leave(h->map, NULL, h->actor.slot);
    } else {
        rf_member_abandon(h->map, NULL, h->actor.slot);
    }
}

static rf_status join(struct rf_handle *h, const rf_options *o, rf_detail *detail)
{
    uint64_t busy = or_default(o->busy_timeout, RF_SECOND);
    uint32_t slot = 0;
    busy = busy < BUSY_MOST ? busy : BUSY_MOST;
    rf_status status = rf_reap_register(detail);
    if (status != RF_OK) {
        return status;
    }
    if (h->manual) {
        uint64_t now = rf_handle_now(h);
        status = rf_member_join(h->map, NULL, false, now, &slot, detail);
        if (status == RF_RESOURCE_EXHAUSTED &&
            rf_member_repair(h->map, NULL, busy, now, detail) == RF_OK) {
            status = rf_member_join(h->map, NULL, false, now, &slot, detail);
        }
    } else {
        status = join_with_guardian(h, busy, &slot, detail);
    }
    if (status == RF_OK) {
        rf_actor_init(&h->actor, h->map, slot, busy);
        if (h->map->header->sealing != 0) {
            status = rf_logger_make(h->map, h->actor.id, &h->actor.logger, detail);
            if (status != RF_OK) {
                leave(h, true);
            }
        }
    }
    return status;
}

/* Who claimed when was lost with the region before this one, so all wait for one cooldown. The handle's
 * clock says from when on: no claim of an earlier region can be later than this. */
static void say_when_claims_begin(struct rf_handle *h)
{
    struct rf_header *header = h->map->header;
    uint64_t unset = RF_CLAIMS_UNSET;
    uint64_t from = rf_add_saturating(rf_handle_now(h), header->claim_cooldown);
    if (atomic_load(&header->claims_from) == unset) {
        atomic_compare_exchange_strong(&header->claims_from, &unset, from - (from == UINT64_MAX));
    }
}

static void free_handle(struct rf_handle *h)
{
    if (h->actor.logger != NULL) {
        rf_logger_drop(h->actor.logger);
    }
    if (h->map != NULL) {
        rf_region_close(h->map);
    }
    free(h->copy);
    free(h);
}

rf_status rf_backend_open(const char *store, const rf_options *o, rf_store **out, rf_detail *detail)
{
    struct rf_region_options region = region_options(o);
    struct rf_handle *h = aligned_alloc(64, (sizeof(*h) + 63) / 64 * 64);
    if (h == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a handle");
    }
    memset(h, 0, sizeof(*h));
    h->store.backend = &rf_shm_backend;
    h->store.read_only = o->read_only;
    h->manual = o->manual;
    h->clock = o->clock;
    h->clock_context = o->clock_context;
    h->copy = malloc(sizeof(*h->copy));
    rf_status status = h->copy == NULL
                           ? rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a handle")
                           : rf_process_enter(&h->store.cookie, detail);
    h->store.here = rf_process.cookie;
    if (status == RF_OK &&
        getrandom(&h->op_nonce, sizeof(h->op_nonce), 0) != (ssize_t)sizeof(h->op_nonce)) {
        status = rf_refuse(detail, RF_IO_ERROR, errno, "getrandom");
    }
    if (status == RF_OK) {
        status = rf_region_open(store, &region, &h->map, detail);
    }
    if (status == RF_OK && !h->store.read_only) {
        status = join(h, o, detail);
    }
    if (status != RF_OK) {
        free_handle(h);
        return status;
    }
    if (!h->store.read_only) {
        say_when_claims_begin(h);
    }
    *out = &h->store;
    return RF_OK;
}

rf_status rf_backend_destroy(const char *store, rf_detail *detail)
{
    return rf_region_destroy(store, NULL, detail);
}

/* Everything that anybody has logged so far, and a batch that vouches for it. */
static rf_status flush(struct rf_handle *h)
{
    if (h->actor.logger == NULL) {
        return RF_OK;
    }
    rf_status status = rf_log_wait(h->actor.logger, rf_log_last(h->map), NULL);
    return status != RF_OK ? status : rf_log_close(h->actor.logger, NULL);
}

static void close_store(rf_store *store)
{
    struct rf_handle *h = rf_handle_of(store);
    if (rf_store_usable(store, false) != RF_OK) {
        /* A child of fork: the mapping is not there, the descriptors were closed. */
        if (h->actor.logger != NULL) {
            rf_logger_forget(h->actor.logger);
        }
        free(h->copy);
        free(h);
        return;
    }
    if (!h->store.read_only) {
        bool clean = rf_sweep_leases(&h->actor, h->actor.me, h->actor.id, false, rf_handle_now(h));
        if (h->manual) {
            flush(h); /* there is no guardian to do it */
        }
        leave(h, clean);
    }
    free_handle(h);
}

static uint64_t store_now(const rf_store *store)
{
    return rf_handle_now((const struct rf_handle *)(const void *)store);
}

static uint64_t store_new_op(rf_store *store)
{
    struct rf_handle *h = rf_handle_of(store);
    uint64_t x = h->op_nonce + ++h->op_counter * 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return x ^ x >> 31; /* a bijection of the counter: no repeats within the handle */
}

/* --- tending --- */

static rf_status store_tend(rf_store *store, uint64_t now)
{
    struct rf_handle *h = rf_handle_of(store);
    bool clean = rf_sweep_all(&h->actor, now);
    rf_hold_note_all(h->map);
    if (h->actor.logger != NULL) {
        rf_status status = flush(h);
        if (status == RF_OK) {
            status = rf_log_make_room(h->actor.logger, NULL);
        }
        if (status == RF_OK && rf_snapshot_due(h->map)) {
            status = rf_snapshot_take(&h->actor, h->actor.logger, NULL);
        }
        if (status != RF_OK) {
            return status;
        }
    }
    return clean ? RF_OK : RF_BUSY;
}

/* --- durability --- */

static rf_status store_sync(rf_store *store, uint64_t epoch, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    const struct rf_header *head = h->map->header;
    if (head->sealing == 0) {
        return RF_OK;
    }
    if (epoch > atomic_load_explicit(&head->epoch, memory_order_acquire)) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0, "an epoch that has not begun yet");
    }
    if (rf_log_lost(h->map, epoch)) {
        rf_refuse(detail, RF_NOT_FOUND, 0,
                  "epoch %" PRIu64 " is of before the store was last recovered from its disk, "
                  "and not in its log",
                  epoch);
        if (detail != NULL) {
            detail->size = epoch;
        }
        return RF_NOT_FOUND;
    }
    if (h->store.read_only && atomic_load(&head->durable) < epoch) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0, "a read-only handle can't write the log");
    }
    return rf_log_wait(h->actor.logger, epoch, detail);
}

static rf_status store_barrier(rf_store *store, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    const struct rf_header *head = h->map->header;
    if (head->sealing == 0) {
        return RF_OK;
    }
    rf_status status = rf_log_wait(h->actor.logger, rf_log_last(h->map), detail);
    /* It speaks for the whole store, which is at its end: even if nothing of it is missing on the disk, or
     * only the batch is that vouches for the last one. */
    return status == RF_OK && atomic_load(&head->condemned) != 0 ? rf_log_failure(h->map, detail)
                                                                 : status;
}

static uint64_t store_durable(const rf_store *store)
{
    const struct rf_map *map = ((const struct rf_handle *)(const void *)store)->map;
    return map->header->sealing == 0
               ? 0
               : atomic_load_explicit(&map->header->durable, memory_order_acquire);
}

static rf_status store_snapshot(rf_store *store, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    if (h->map->header->sealing == 0 || h->store.read_only) {
        return rf_refuse(detail, RF_UNSUPPORTED, 0, "a snapshot of a %s",
                         h->store.read_only ? "read-only handle" : "volatile store");
    }
    return rf_snapshot_take(&h->actor, h->actor.logger, detail);
}

static rf_status store_sweep(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t slot;
    uint64_t uid;
    rf_status status = rf_find_run(h->map, tenant, run, &slot, &uid);
    struct rf_skipped skipped = {0};
    if (status == RF_OK) {
        status = rf_sweep_expired(&h->actor, slot, uid, now, true, &skipped, detail);
    }
    return status == RF_OK && skipped.any ? rf_refuse_skipped(&skipped, detail) : status;
}

/* --- inspecting --- */

static uint64_t sum(const rf_word64 *words, size_t count)
{
    uint64_t total = 0;
    for (size_t i = 0; i < count; i++) {
        total += atomic_load_explicit(&words[i], memory_order_relaxed);
    }
    return total;
}

static void add_counters(const struct rf_counters *c, rf_inspection *out)
{
    out->operations += sum(c->executed, RF_CLASSES);
    out->replays += sum(c->replayed, RF_CLASSES);
    out->refusals += sum(&c->refused[0][0], RF_CLASSES * RF_STATUS_SLOTS);
    out->lock_waits += sum(&c->lock_waits, 1);
    out->busy += sum(&c->busy, 1);
    out->reaped += sum(&c->repairs[RF_REPAIR_REAPED], 1);
    out->redone += sum(&c->repairs[RF_REPAIR_REDONE], 1);
    out->undone += sum(&c->repairs[RF_REPAIR_UNDONE], 1);
    out->locks_freed += sum(&c->repairs[RF_REPAIR_LOCKS], 1);
    out->leases_lost += sum(&c->repairs[RF_REPAIR_LEASES], 1);
    out->leases_expired += sum(&c->repairs[RF_REPAIR_EXPIRED], 1);
    out->purges_finished += sum(&c->repairs[RF_REPAIR_PURGES], 1);
    out->reapers_replaced += sum(&c->repairs[RF_REPAIR_REAPERS], 1);
}

static void inspect_log(const struct rf_handle *h, rf_inspection *out)
{
    static const char *const paths[] = {"io_uring, direct", "io_uring, buffered",
                                        "pwritev2, direct", "pwritev2, buffered"};
    const struct rf_header *head = h->map->header;
    out->durability = (rf_durability)head->durability;
    out->log_failed = atomic_load(&head->condemned) != 0;
    out->log_short = atomic_load(&head->log_short) != 0;
    out->open_epoch = atomic_load(&head->epoch);
    out->durable_epoch = atomic_load(&head->durable);
    out->log_position = rf_log_position(h->map);
    out->snapshot_epoch = atomic_load(&head->snapshot_epoch);
    out->snapshot_position = atomic_load(&head->snapshot_position);
    out->snapshot_held_by = rf_snapshot_held_by(h->map);
    if (h->actor.logger != NULL) {
        const char *why = "";
        enum rf_disk_path path = rf_disk_backend(rf_logger_disk(h->actor.logger), &why);
        snprintf(out->io_path, sizeof(out->io_path), "%s", paths[path]);
        snprintf(out->io_why, sizeof(out->io_why), "%s", why);
    }
}

rf_status rf_shm_inspect(rf_store *store, rf_inspection *out, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_map *map = h->map;
    const struct rf_header *head = map->header;
    (void)detail;
    *out = (rf_inspection){
        .layout_hash = head->layout_hash,
        .incarnation = head->incarnation,
        .fence_floor = atomic_load(&head->fence_floor),
        .region_bytes = head->region_bytes,
        .taken_bytes = rf_region_taken(map),
        .extents = rf_extents_used(map),
        .leaves = rf_leaves_used(map),
        .blocks = rf_slab_used(map),
    };
    if (head->sealing != 0) {
        inspect_log(h, out);
    }
    uint32_t members = atomic_load_explicit(&head->members_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < members; slot++) {
        const struct rf_member *m = rf_member_at(map, slot);
        out->members += atomic_load(&m->liveness) != 0;
        out->dead_members += rf_is_dead(m);
        if (rf_slot_was_used(map, slot)) {
            add_counters(&rf_slot_at(map, slot)->counters, out);
        }
    }
    uint32_t runs = atomic_load_explicit(&head->runs_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < runs; slot++) {
        const struct rf_runrec *r = rf_run_at(map, slot);
        if (atomic_load(&r->tag) != 0) {
            out->runs++;
            out->shards += atomic_load(&r->count);
        }
    }
    return RF_OK;
}

rf_status rf_shm_list_members(rf_store *store, rf_visit_member *visit, void *context,
                              rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_map *map = h->map;
    rf_member_info *info = malloc(sizeof(*info));
    if (info == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a list");
    }
    uint32_t members = atomic_load_explicit(&map->header->members_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < members; slot++) {
        const struct rf_member *m = rf_member_at(map, slot);
        if (atomic_load(&m->liveness) == 0 || !rf_slot_was_used(map, slot)) {
            continue;
        }
        const struct rf_counters *c = &rf_slot_at(map, slot)->counters;
        *info = (rf_member_info){.slot = slot,
                                 .pid = atomic_load(&m->pid),
                                 .guardian = atomic_load(&m->is_guardian) != 0,
                                 .dead = rf_is_dead(m),
                                 .joined_at = atomic_load(&m->joined_at),
                                 .lock_waits = sum(&c->lock_waits, 1),
                                 .busy = sum(&c->busy, 1)};
        for (unsigned k = 0; k < RF_CLASSES; k++) {
            info->executed[k] = sum(&c->executed[k], 1);
            info->replayed[k] = sum(&c->replayed[k], 1);
            for (unsigned s = 0; s < RF_STATUS_SLOTS; s++) {
                info->refused[k][s] = sum(&c->refused[k][s], 1);
            }
        }
        if (!visit(context, info)) {
            break;
        }
    }
    free(info);
    return RF_OK;
}

/* --- keeping leases alive --- */

static void *store_keep(rf_store *store, const rf_tenant *tenant, const rf_lease *lease)
{
    struct rf_handle *h = rf_handle_of(store);
    struct rf_keepalive *k = h->manual ? NULL : calloc(1, sizeof(*k));
    if (k != NULL) {
        uint64_t now = rf_handle_now(h);
        k->tenant = *tenant;
        k->lease = *lease;
        k->duration = lease->deadline > now ? lease->deadline - now : 0;
        rf_guardian_keep(h->map, k);
    }
    return k;
}

static rf_status store_kept(rf_store *store, const void *keeper, uint64_t *deadline)
{
    rf_run_status run_status;
    return rf_guardian_kept(rf_handle_of(store)->map, keeper, deadline, &run_status);
}

static void store_unkeep(rf_store *store, void *keeper)
{
    if (rf_store_usable(store, false) == RF_OK) {
        rf_guardian_unkeep(rf_handle_of(store)->map, keeper);
    } /* A child of fork has no guardian, and the mutex as it was left. */
    free(keeper);
}

const struct rf_backend rf_shm_backend = {
    .close = close_store,
    .now = store_now,
    .new_op = store_new_op,
    .acquire = rf_shm_acquire,
    .claim = rf_shm_claim,
    .renew = rf_shm_renew,
    .checkpoint = rf_shm_checkpoint,
    .complete = rf_shm_complete,
    .park = rf_shm_park,
    .release = rf_shm_release,
    .split_replace = rf_shm_split_replace,
    .split_residual = rf_shm_split_residual,
    .unpark = rf_shm_unpark,
    .create_run = rf_shm_create_run,
    .take_shards = rf_shm_take_shards,
    .end_run = rf_shm_end_run,
    .purge_run = rf_shm_purge_run,
    .get_run = rf_shm_get_run,
    .get_progress = rf_shm_get_progress,
    .get_capacity = rf_shm_get_capacity,
    .get_shard = rf_shm_get_shard,
    .list_shards = rf_shm_list_shards,
    .list_runs = rf_shm_list_runs,
    .sync = store_sync,
    .barrier = store_barrier,
    .durable = store_durable,
    .snapshot = store_snapshot,
    .backup = rf_shm_backup,
    .verify = rf_shm_verify,
    .tend = store_tend,
    .sweep = store_sweep,
    .inspect = rf_shm_inspect,
    .list_members = rf_shm_list_members,
    .list_locks = rf_shm_list_locks,
    .monitor_create = rf_shm_monitor_create,
    .monitor_read = rf_shm_monitor_read,
    .monitor_destroy = rf_shm_monitor_destroy,
    .keep = store_keep,
    .kept = store_kept,
    .unkeep = store_unkeep,
};
