#include "read.h"

#include <stdlib.h>

#include "futex.h"
#include "handle.h"
#include "progress.h"
#include "range.h"
#include "reap.h"
#include "renew.h"
#include "seq.h"
#include "slab.h"

#define LOAD64(word)     atomic_load_explicit(&(word), memory_order_relaxed)
#define SPINS            1000u
#define OBSERVER_BUSY_NS RF_SECOND

/* An observer has no member slot and can't help anybody out. */
static struct rf_actor *actor_of(struct rf_handle *h)
{
    return h->store.read_only ? NULL : &h->actor;
}

/* --- runs --- */

static void copy_run(const struct rf_runrec *r, struct rf_run_body *body, rf_run_info *info)
{
    rf_words_load(body, &r->body, sizeof(*body));
    rf_words_load(&info->tenant, &r->tenant, sizeof(info->tenant));
    info->run = __atomic_load_n(&r->run, __ATOMIC_RELAXED);
    info->config.lease_duration = __atomic_load_n(&r->lease_duration, __ATOMIC_RELAXED);
    info->config.max_retries = __atomic_load_n(&r->max_retries, __ATOMIC_RELAXED);
    info->config.has_max_retries = __atomic_load_n(&r->has_max_retries, __ATOMIC_RELAXED) != 0;
    info->config.semantics = (rf_semantics)__atomic_load_n(&r->semantics, __ATOMIC_RELAXED);
    info->shard_count = LOAD64(r->count);
    info->done = LOAD64(r->done);
    info->split = LOAD64(r->split);
    info->parked = LOAD64(r->parked);
}

static rf_status read_run(struct rf_handle *h, struct rf_runrec *r, rf_run_info *info,
                          rf_detail *detail)
{
    struct rf_actor *actor = actor_of(h);
    struct rf_run_body body;
    uint64_t until = 0;
    for (uint64_t n = 0;; n++) {
        uint32_t begun = rf_seq_begin(&r->seq);
        if ((begun & 1u) == 0) {
            copy_run(r, &body, info);
            if (rf_seq_valid(&r->seq, begun)) {
                break;
            }
            continue;
        }
        if (n < SPINS) {
            continue;
        }
        uint32_t w = atomic_load_explicit(&r->lock, memory_order_acquire);
        if (actor != NULL && w != 0) {
            rf_reap_if_dead(actor, rf_id_slot(w));
        }
        uint64_t now = rf_monotonic_ns();
        until = until == 0 ? now + (actor != NULL ? actor->busy_ns : OBSERVER_BUSY_NS) : until;
        if (now > until) {
            rf_refuse(detail, RF_BUSY, 0, "reading a run that is being changed");
            if (detail != NULL) {
                detail->pid = rf_lock_holder_pid(h->map, &r->lock);
            }
            return RF_BUSY;
        }
        usleep(50);
    }
    if (body.status > RF_RUN_CANCELLED || body.ring_count > RF_RUN_RING ||
        body.ring_next >= RF_RUN_RING) {
        return rf_refuse(detail, RF_CORRUPT, 0, "a run's record");
    }
    info->status = (rf_run_status)body.status;
    info->created_at = body.created_at;
    info->completed_at = body.completed_at;
    info->root_count = body.root_count;
    info->ring_count = body.ring_count;
    for (uint32_t i = 0; i < body.ring_count; i++) {
        uint32_t at = (body.ring_next + RF_RUN_RING - body.ring_count + i) % RF_RUN_RING;
        info->ring[i] = (rf_ring_entry){.op = body.ring.op[at],
                                        .executed_at = body.ring.executed_at[at],
                                        .kind = body.ring.kind[at],
                                        .result = body.ring.result[at]};
    }
    return RF_OK;
}

rf_status rf_shm_get_run(rf_store *store, const rf_tenant *tenant, uint64_t run, rf_run_info *info,
                         rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t slot;
    uint64_t uid;
    rf_status status = rf_find_run(h->map, tenant, run, &slot, &uid);
    if (status != RF_OK) {
        return status;
    }
    struct rf_runrec *r = rf_run_at(h->map, slot);
    status = read_run(h, r, info, detail);
    if (status == RF_OK && atomic_load_explicit(&r->live, memory_order_acquire) != uid) {
        status = RF_RUN_NOT_FOUND;
    }
    return status;
}

rf_status rf_shm_get_capacity(rf_store *store, const rf_tenant *tenant, uint64_t run,
                              rf_capacity *capacity, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t slot;
    uint64_t uid;
    (void)detail;
    rf_status status = rf_find_run(h->map, tenant, run, &slot, &uid);
    if (status == RF_OK) {
        rf_run_capacity(rf_run_at(h->map, slot), capacity);
    }
    return status;
}

rf_status rf_shm_list_runs(rf_store *store, const rf_tenant *tenant, rf_visit_run *visit,
                           void *context, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t used = atomic_load_explicit(&h->map->header->runs_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < used; slot++) {
        struct rf_runrec *r = rf_run_at(h->map, slot);
        rf_run_info info = {0};
        uint64_t uid = atomic_load_explicit(&r->live, memory_order_acquire);
        if (uid == 0) {
            continue;
        }
        rf_status status = read_run(h, r, &info, detail);
        if (status != RF_OK) {
            return status;
        }
        if (atomic_load_explicit(&r->live, memory_order_acquire) == uid &&
            (tenant == NULL || rf_tenant_equal(&info.tenant, tenant)) && !visit(context, &info)) {
            break;
        }
    }
    return RF_OK;
}

/* --- one shard --- */

static void fill_info(const struct rf_rec_copy *copy, rf_shard_info *info)
{
    const struct rf_shard_state *s = &copy->body.state;
    *info = (rf_shard_info){
        .shard = copy->shard,
        .status = (rf_shard_status)s->status,
        .has_reason = s->status == RF_SHARD_PARKED,
        .reason = s->status == RF_SHARD_PARKED ? (rf_park_reason)s->park_reason : RF_PARK_OTHER,
        .semantics = (rf_semantics)s->semantics,
        .spec = copy->view.spec,
        .cursor = copy->view.cursor,
        .leased = (s->flags & RF_SHARD_LEASED) != 0,
        .owner = s->owner,
        .deadline = s->deadline,
        .fence = s->fence,
        .has_parent = (s->flags & RF_SHARD_HAS_PARENT) != 0,
        .parent = s->parent,
        .spawned = copy->spawned,
        .spawned_count = s->spawned_count,
        .attempts = s->attempts,
        .version = copy->body.version,
        .ring_count = s->ring_count,
    };
    for (uint32_t i = 0; i < s->ring_count; i++) {
        uint32_t at = (s->ring_next + RF_SHARD_RING - s->ring_count + i) % RF_SHARD_RING;
        info->ring[i] = (rf_ring_entry){.op = copy->ring.op[at],
                                        .executed_at = copy->ring.executed_at[at],
                                        .kind = copy->ring.kind[at],
                                        .result = copy->ring.result[at]};
    }
}

static size_t info_bytes(const rf_shard_info *i)
{
    return i->spawned_count * 8u + i->spec.start.len + i->spec.end.len + i->spec.metadata.len +
           i->cursor.key.len + i->cursor.token.len;
}

static rf_bytes move_bytes(uint8_t **at, rf_bytes b)
{
    if (b.data == NULL) {
        return b;
    }
    rf_bytes moved = rf_bytes_of(*at, b.len);
    if (b.len != 0) {
        memcpy(*at, b.data, b.len);
    }
    *at += b.len;
    return moved;
}

/* Everything that the info points to, into memory that is aligned for ids. */
static void pack_info(rf_shard_info *info, uint8_t *at)
{
    if (info->spawned_count != 0) {
        memcpy(at, info->spawned, info->spawned_count * 8u);
    }
    info->spawned = (const uint64_t *)(const void *)at;
    at += info->spawned_count * 8u;
    info->spec.start = move_bytes(&at, info->spec.start);
    info->spec.end = move_bytes(&at, info->spec.end);
    info->spec.metadata = move_bytes(&at, info->spec.metadata);
    info->cursor.key = move_bytes(&at, info->cursor.key);
    info->cursor.token = move_bytes(&at, info->cursor.token);
}

rf_status rf_shm_get_shard(rf_store *store, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                           rf_shard_info *info, void *scratch, size_t scratch_size,
                           rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t run_slot;
    uint64_t uid;
    if (rf_find_run(h->map, tenant, run, &run_slot, &uid) != RF_OK) {
        return RF_NOT_FOUND;
    }
    uint32_t slot = rf_find_shard(h->map, run_slot, uid, shard);
    if (slot == RF_NO_SLOT) {
        return RF_NOT_FOUND;
    }
    rf_status status = rf_rec_read(h->map, actor_of(h), rf_rec_at(h->map, slot), h->copy, detail);
    /* Its bytes were its own as long as its run was there: a purge gives them back without touching
     * the record. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&rf_run_at(h->map, run_slot)->live, memory_order_relaxed) != uid) {
        return RF_NOT_FOUND;
    }
    if (status != RF_OK) {
        return status;
    }
    if (h->copy->shard != shard || h->copy->run_uid != uid) {
        return RF_NOT_FOUND; /* purged, and the slot used again */
    }
    fill_info(h->copy, info);
    if (info_bytes(info) > scratch_size) {
        return rf_refuse_size(detail, RF_BUFFER_TOO_SMALL, info_bytes(info), scratch_size);
    }
    pack_info(info, scratch);
    return RF_OK;
}

/* --- all shards of a run --- */

/*
 * A scan sees every split wholly or not at all, though it takes no lock and others go on. It
 * remembers with which version it saw each shard, and shows a shard that was split off only if its
 * parent was seen with the version that made it, or a later one. Children have higher positions
 * than their parents, and the run's count covers them before the parent shows the split, so going
 * through the positions in order, and on to where the count has got to meanwhile, misses nothing.
 */
struct scan {
    struct rf_handle *handle;
    struct rf_runrec *run;
    uint64_t uid;
    uint64_t *seen; /* by position: version, 0 if not shown */
    uint64_t room;
    bool (*visit)(void *context, const struct rf_rec_copy *copy);
    void *context;
};

static rf_status scan_room(struct scan *s, uint64_t count, rf_detail *detail)
{
    if (count <= s->room) {
        return RF_OK;
    }
    uint64_t *more = realloc(s->seen, count * sizeof(*more));
    if (more == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a scan");
    }
    memset(more + s->room, 0, (count - s->room) * sizeof(*more));
    s->seen = more;
    s->room = count;
    return RF_OK;
}

/* Whether this scan shows the shard in the copy. `first` is the count when it began. */
static bool shown(const struct scan *s, const struct rf_rec_copy *copy, uint64_t first)
{
    if (copy->parent_slot == 0) {
        return copy->position < first;
    }
    const struct rf_rec *parent = rf_rec_at(s->handle->map, copy->parent_slot - 1);
    uint64_t at =
        parent == NULL ? UINT64_MAX : __atomic_load_n(&parent->position, __ATOMIC_RELAXED);
    return at < s->room && s->seen[at] != 0 && s->seen[at] >= copy->born;
}

static rf_status scan_run(struct scan *s, rf_detail *detail)
{
    struct rf_map *map = s->handle->map;
    struct rf_rec_copy *copy = s->handle->copy;
    rf_run_info now;
    rf_status status = read_run(s->handle, s->run, &now, detail);
    uint64_t first = now.shard_count, count = first;
    for (uint64_t p = 0; status == RF_OK && p < count; p++) {
        status = scan_room(s, count, detail);
        uint32_t slot = rf_dir_slot(map, s->run, p);
        if (status == RF_OK && slot == RF_NO_SLOT) {
            status = RF_RUN_NOT_FOUND;
        }
        if (status == RF_OK) {
            status = rf_rec_read(map, actor_of(s->handle), rf_rec_at(map, slot), copy, detail);
        }
        if (status == RF_OK && copy->run_uid != s->uid) {
            status = RF_RUN_NOT_FOUND;
        }
        if (status == RF_OK && shown(s, copy, first)) {
            s->seen[p] = copy->body.version;
            if (!s->visit(s->context, copy)) {
                break;
            }
        }
        if (p + 1 == count) {
            count = atomic_load_explicit(&s->run->count, memory_order_acquire);
        }
    }
    /* Purged under the scan: what it saw belongs to nothing. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&s->run->live, memory_order_relaxed) != s->uid) {
        status = RF_RUN_NOT_FOUND;
    }
    free(s->seen);
    s->seen = NULL;
    s->room = 0;
    return status;
}

static rf_status open_scan(struct scan *s, struct rf_handle *h, const rf_tenant *tenant,
                           uint64_t run)
{
    uint32_t slot;
    rf_status status = rf_find_run(h->map, tenant, run, &slot, &s->uid);
    if (status == RF_OK) {
        s->handle = h;
        s->run = rf_run_at(h->map, slot);
    }
    return status;
}

struct progress_fold {
    rf_progress *progress;
    uint64_t now;
    uint8_t watermark[RF_KEY_MAX];
};

static bool fold_progress(void *context, const struct rf_rec_copy *copy)
{
    struct progress_fold *fold = context;
    rf_progress_add(fold->progress, &copy->body.state, &copy->view.cursor, fold->now,
                    fold->watermark);
    return true;
}

rf_status rf_shm_get_progress(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                              rf_progress *progress, uint8_t *watermark, rf_detail *detail)
{
    struct progress_fold fold = {.progress = progress, .now = now};
    struct scan scan = {.visit = fold_progress, .context = &fold};
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    rf_status status = open_scan(&scan, rf_handle_of(store), tenant, run);
    if (status != RF_OK) {
        return status;
    }
    rf_progress_begin(progress);
    status = scan_run(&scan, detail);
    rf_progress_end(progress);
    if (status == RF_OK && watermark != NULL) {
        memcpy(watermark, fold.watermark, progress->watermark_len);
    }
    return status;
}

/* Shards gathered for sorting; each with its bytes in one piece of memory. */
struct gathered {
    rf_shard_info **items;
    size_t count;
    size_t room;
    uint64_t now;
    rf_filter filter;
    bool short_of_memory;
};

static bool passes(const struct gathered *g, const struct rf_rec_copy *copy)
{
    const struct rf_shard_state *s = &copy->body.state;
    switch (g->filter) {
    case RF_LIST_ACTIVE:
        return s->status == RF_SHARD_ACTIVE;
    case RF_LIST_AVAILABLE:
        return rf_shard_available_at(s, g->now);
    case RF_LIST_PARKED:
        return s->status == RF_SHARD_PARKED;
    case RF_LIST_ROOTS:
        return (s->flags & RF_SHARD_HAS_PARENT) == 0;
    case RF_LIST_ALL:
        break;
    }
    return true;
}

static bool gather(void *context, const struct rf_rec_copy *copy)
{
    struct gathered *g = context;
    if (!passes(g, copy)) {
        return true;
    }
    if (g->count == g->room) {
        size_t room = g->room == 0 ? 64 : g->room * 2;
        rf_shard_info **items = realloc(g->items, room * sizeof(*items));
        if (items == NULL) {
            g->short_of_memory = true;
            return false;
        }
        g->items = items;
        g->room = room;
    }
    rf_shard_info info;
    fill_info(copy, &info);
    rf_shard_info *item = malloc(sizeof(*item) + info_bytes(&info));
    if (item == NULL) {
        g->short_of_memory = true;
        return false;
    }
    *item = info;
    pack_info(item, (uint8_t *)(item + 1));
    g->items[g->count++] = item;
    return true;
}

static int by_start_and_id(const void *a, const void *b)
{
    const rf_shard_info *x = *(rf_shard_info *const *)a, *y = *(rf_shard_info *const *)b;
    int order = rf_bytes_compare(x->spec.start, y->spec.start);
    return order != 0 ? order : (x->shard > y->shard) - (x->shard < y->shard);
}

static void drop_gathered(struct gathered *g)
{
    for (size_t i = 0; i < g->count; i++) {
        free(g->items[i]);
    }
    free(g->items);
}

rf_status rf_shm_list_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             rf_filter filter, rf_visit *visit, void *context, rf_detail *detail)
{
    struct gathered g = {.now = now, .filter = filter};
    struct scan scan = {.visit = gather, .context = &g};
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    rf_status status = open_scan(&scan, rf_handle_of(store), tenant, run);
    if (status != RF_OK) {
        return status;
    }
    status = scan_run(&scan, detail);
    if (status == RF_OK && g.short_of_memory) {
        status = rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a list");
    }
    if (status == RF_OK && g.count != 0) {
        qsort(g.items, g.count, sizeof(*g.items), by_start_and_id);
        for (size_t i = 0; i < g.count && visit(context, g.items[i]); i++) {
        }
    }
    drop_gathered(&g);
    return status;
}

rf_status rf_read_ranges(struct rf_map *map, struct rf_actor *actor, struct rf_runrec *run,
                         rf_spec **specs, uint32_t *count, void **bytes, rf_detail *detail)
{
    uint64_t total = LOAD64(run->count);
    struct rf_rec_copy *copy = malloc(sizeof(*copy));
    rf_spec *out = malloc((total == 0 ? 1 : total) * sizeof(*out));
    uint8_t *held = NULL;
    size_t used = 0, room = 0;
    uint32_t n = 0;
    rf_status status = RF_OK;
    if (copy == NULL || out == NULL) {
        status = rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the ranges");
    }
    for (uint64_t p = 0; status == RF_OK && p < total; p++) {
        status = rf_rec_read(map, actor, rf_rec_at(map, rf_dir_slot(map, run, p)), copy, detail);
        if (status != RF_OK || copy->body.state.status == RF_SHARD_SPLIT) {
            continue;
        }
        rf_bytes start = copy->view.spec.start, end = copy->view.spec.end;
        if (used + start.len + end.len > room) {
            room = room * 2 + start.len + end.len + 4096;
            uint8_t *more = realloc(held, room);
            if (more == NULL) {
                status = rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the ranges");
                break;
            }
            held = more;
        }
        /* Offsets for now: the memory may still move. */
        memcpy(held + used, start.data, start.len);
        memcpy(held + used + start.len, end.data, end.len);
        out[n++] = (rf_spec){.start = {.data = (void *)used, .len = start.len},
                             .end = {.data = (void *)(used + start.len), .len = end.len}};
        used += start.len + end.len;
    }
    for (uint32_t i = 0; i < n; i++) {
        out[i].start.data = held + (size_t)out[i].start.data;
        out[i].end.data = held + (size_t)out[i].end.data;
    }
    free(copy);
    if (status != RF_OK) {
        free(out);
        free(held);
        return status;
    }
    rf_ranges_sort(out, n);
    *specs = out;
    *count = n;
    *bytes = held;
    return RF_OK;
}
