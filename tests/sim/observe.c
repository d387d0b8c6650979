/*
 * What the store shows, against the model, after every step.
 *
 * Reading hundreds of shards by the public calls costs more than a step. So the front part of every
 * record (lock, sequence, lengths, scalars, version, references) is compared with a copy of it, and
 * a shard is read and compared field by field when that changed, or when the model touched it. The
 * rest of a record changes only together with its sequence word; to be sure of that too, everything
 * is read once in a while. A run is compared when its own record changed, when the model touched it,
 * or when one of its shards was looked at.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "directory.h"
#include "fsck.h"
#include "handle.h"
#include "operation.h"
#include "sim.h"

#define FRONT      offsetof(struct rf_rec, ring)
#define FULL_EVERY 64u

static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];

void observe_forget(struct world *w)
{
    for (uint32_t t = 0; t < SIM_TENANTS; t++) {
        for (uint32_t r = 0; r <= SIM_RUN_IDS; r++) {
            free(w->watches[t][r].copies);
            w->watches[t][r] = (struct watch){0};
        }
    }
}

/* --- one shard --- */

static bool same_bytes(rf_bytes store, const struct model_bytes *model)
{
    return (store.data != NULL || store.len == 0) && store.len == model->len &&
           (store.len == 0 || memcmp(store.data, model->data, store.len) == 0);
}

static const char *ring_difference(const rf_ring_entry *ring, uint32_t count,
                                   const struct model_entry *m, uint32_t model_count)
{
    if (count != model_count) {
        return "the number of operations remembered";
    }
    for (uint32_t i = 0; i < count; i++) {
        if (ring[i].op != m[i].op || ring[i].kind != m[i].kind ||
            ring[i].executed_at != m[i].executed_at || ring[i].result != RF_RESULT_COMPLETED) {
            return "an operation remembered";
        }
    }
    return NULL;
}

static const char *shard_difference(const rf_shard_info *i, const struct model_shard *m)
{
    const struct {
        bool same;
        const char *what;
    } facts[] = {
        {i->shard == m->shard, "the id"},
        {i->status == m->status, "the status"},
        {i->has_reason == m->has_reason, "whether it has a park reason"},
        {!m->has_reason || i->reason == m->reason, "the park reason"},
        {i->semantics == m->semantics, "the semantics"},
        {i->leased == m->leased, "whether it is leased"},
        {!m->leased || i->owner == m->owner, "the owner"},
        {!m->leased || i->deadline == m->deadline, "the deadline"},
        {i->fence == m->fence, "the fence"},
        {i->has_parent == m->has_parent, "whether it has a parent"},
        {!m->has_parent || i->parent == m->parent, "the parent"},
        {i->attempts == m->attempts, "the attempts"},
        {same_bytes(i->spec.start, &m->start), "the start"},
        {same_bytes(i->spec.end, &m->end), "the end"},
        {same_bytes(i->spec.metadata, &m->metadata), "the metadata"},
        {(i->cursor.key.data != NULL) == m->key.present, "whether it has a key"},
        {same_bytes(i->cursor.key, &m->key), "the key"},
        {(i->cursor.token.data != NULL) == m->token.present, "whether it has a token"},
        {same_bytes(i->cursor.token, &m->token), "the token"},
        {i->spawned_count == m->spawned_count, "the number of spawned shards"},
    };
    for (size_t k = 0; k < sizeof(facts) / sizeof(facts[0]); k++) {
        if (!facts[k].same) {
            return facts[k].what;
        }
    }
    if (m->spawned_count != 0 &&
        memcmp(i->spawned, m->spawned, m->spawned_count * sizeof(*m->spawned)) != 0) {
        return "the spawned shards";
    }
    return ring_difference(i->ring, i->ring_count, m->ring, m->ring_count);
}

static const char *run_difference(const rf_run_info *i, const struct model_run *m)
{
    uint64_t by_status[4] = {0};
    for (uint32_t k = 0; k < m->count; k++) {
        by_status[m->shards[k].status]++;
    }
    const struct {
        bool same;
        const char *what;
    } facts[] = {
        {i->status == m->status, "the run's status"},
        {i->created_at == m->created_at, "created_at"},
        {i->completed_at == m->completed_at, "completed_at"},
        {i->root_count == m->root_count, "the number of roots"},
        {i->shard_count == m->count, "the number of shards"},
        {i->done == by_status[RF_SHARD_DONE], "the number done"},
        {i->split == by_status[RF_SHARD_SPLIT], "the number split"},
        {i->parked == by_status[RF_SHARD_PARKED], "the number parked"},
        {i->config.lease_duration == m->config.lease_duration, "the lease duration"},
        {i->config.semantics == m->config.semantics, "the semantics"},
        {i->config.has_max_retries == m->config.has_max_retries, "whether retries are limited"},
        {i->config.max_retries == m->config.max_retries, "the limit of retries"},
    };
    for (size_t k = 0; k < sizeof(facts) / sizeof(facts[0]); k++) {
        if (!facts[k].same) {
            return facts[k].what;
        }
    }
    return ring_difference(i->ring, i->ring_count, m->ring, m->ring_count);
}

/* --- a run --- */

struct looking {
    struct world *w;
    bool full;
    bool quiet; /* only say what differs; the checker is not shown anything */
    const char *difference;
    uint64_t shard;
};

static void look_at_shard(struct looking *l, uint32_t t, uint64_t run, uint64_t shard,
                          struct model_shard *m)
{
    struct world *w = l->w;
    rf_shard_info info;
    rf_status status = rf_get_shard(w->overseer, &w->tenants[t], run, shard, &info, scratch,
                                    sizeof(scratch), NULL);
    const char *difference = status != RF_OK ? rf_status_name(status)
                             : m == NULL     ? "it is there"
                                             : shard_difference(&info, m);
    if (m != NULL) {
        m->touched = false;
    }
    if (l->quiet) {
        if (difference != NULL && l->difference == NULL) {
            l->difference = difference;
            l->shard = shard;
        }
        return;
    }
    w->report->looks++;
    if (difference != NULL && (w->config->judges & JUDGE_REFERENCE) != 0) {
        sim_fail(w, "difference", "tenant %u run %" PRIu64 " shard %" PRIx64 ": %s differs", t, run,
                 shard, difference);
    }
    if (status == RF_OK) {
        checker_shard(&w->checker, t, run, &info);
    }
}

/* Whether anything had to be looked at. */
static bool look_at_shards(struct looking *l, uint32_t t, uint64_t run, struct model_run *m)
{
    struct world *w = l->w;
    struct watch *watch = &w->watches[t][run];
    const struct rf_map *map = rf_handle_of(w->overseer)->map;
    const struct rf_runrec *rec = rf_run_at(map, watch->slot);
    uint64_t count = atomic_load(&rec->count);
    bool any = count != watch->count;
    if (count > watch->room) {
        watch->room = (uint32_t)(2 * count);
        watch->copies = realloc(watch->copies, watch->room * FRONT);
        if (watch->copies == NULL) {
            abort();
        }
    }
    const struct rf_rec *extent = NULL;
    for (uint32_t p = 0; p < count; p++) {
        if (p % RF_EXTENT_SHARDS == 0) {
            extent = rf_rec_at(map, rf_dir_slot(map, rec, p));
        }
        const struct rf_rec *r = extent + p % RF_EXTENT_SHARDS;
        uint8_t *copy = watch->copies + p * FRONT;
        struct model_shard *his = m != NULL && p < m->count ? &m->shards[p] : NULL;
        bool known = p < watch->count;
        if (known && !l->full && !l->quiet && (his == NULL || !his->touched) &&
            memcmp(copy, r, FRONT) == 0) {
            continue;
        }
        look_at_shard(l, t, run, r->shard, his);
        memcpy(copy, r, FRONT);
        any = true;
    }
    watch->count = (uint32_t)count;
    return any;
}

static bool run_is_as_it_was(const struct world *w, const struct watch *watch)
{
    const struct rf_runrec *rec = rf_run_at(rf_handle_of(w->overseer)->map, watch->slot);
    return watch->here && memcmp(watch->run_front, rec, sizeof(watch->run_front)) == 0 &&
           memcmp(&watch->run_body, &rec->body, sizeof(watch->run_body)) == 0;
}

static void compare_run(struct looking *l, uint32_t t, uint64_t run, struct model_run *m)
{
    struct world *w = l->w;
    struct watch *watch = &w->watches[t][run];
    const struct rf_map *map = rf_handle_of(w->overseer)->map;
    rf_run_info info;
    uint64_t uid = 0;
    rf_status status = rf_get_run(w->overseer, &w->tenants[t], run, &info, NULL);
    const char *difference = (status == RF_OK) != (m != NULL) ? "whether the run is there"
                             : status == RF_OK && m != NULL   ? run_difference(&info, m)
                             : status == RF_RUN_NOT_FOUND     ? NULL
                                                              : rf_status_name(status);
    watch->here =
        status == RF_OK && rf_find_run(map, &w->tenants[t], run, &watch->slot, &uid) == RF_OK;
    if (watch->here) {
        const struct rf_runrec *rec = rf_run_at(map, watch->slot);
        memcpy(watch->run_front, rec, sizeof(watch->run_front));
        memcpy(&watch->run_body, &rec->body, sizeof(watch->run_body));
    }
    if (watch->uid != uid) {
        watch->uid = uid;
        watch->count = 0;
    }
    if (m != NULL) {
        m->touched = false;
    }
    if (l->quiet) {
        l->difference = l->difference == NULL ? difference : l->difference;
        return;
    }
    if (difference != NULL && (w->config->judges & JUDGE_REFERENCE) != 0) {
        sim_fail(w, "difference", "tenant %u run %" PRIu64 ": %s differs", t, run, difference);
    }
    if (status == RF_OK) {
        checker_run(&w->checker, t, &info);
    }
}

static void look_at_run(struct looking *l, uint32_t t, uint64_t run)
{
    struct world *w = l->w;
    struct model_run *m = model_find_run(&w->model, &w->tenants[t], run);
    struct watch *watch = &w->watches[t][run];
    bool all = l->full || l->quiet;
    if (m == NULL && !watch->here && !all) {
        return;
    }
    bool same = !all && m != NULL && !m->touched && run_is_as_it_was(w, watch);
    if (!same) {
        compare_run(l, t, run, m);
    }
    if (watch->here && look_at_shards(l, t, run, m) && same) {
        compare_run(l, t, run, m); /* its shards are counted in it */
    }
}

static void look(struct looking *l)
{
    for (uint32_t t = 0; t < SIM_TENANTS; t++) {
        for (uint64_t run = 1; run <= SIM_RUN_IDS; run++) {
            look_at_run(l, t, run);
        }
    }
}

void observe(struct world *w)
{
    struct looking l = {.w = w, .full = w->step.number % FULL_EVERY == 0};
    look(&l);
    checker_step(&w->checker);
    w->report->full_scans += l.full;
}

const char *observe_difference(struct world *w)
{
    struct looking l = {.w = w, .quiet = true};
    look(&l);
    return l.difference;
}

void observe_fully(struct world *w)
{
    struct looking l = {.w = w, .full = true};
    look(&l);
    checker_step(&w->checker);
    w->report->full_scans++;
    if ((w->config->judges & JUDGE_REFERENCE) == 0) {
        return;
    }
    rf_inspection seen;
    if (rf_inspect(w->overseer, &seen, NULL) == RF_OK && seen.fence_floor != w->model.floor) {
        sim_fail(w, "difference", "the fence floor is %" PRIu64 ", the model says %" PRIu64,
                 seen.fence_floor, w->model.floor);
    }
    const char *wrong = w->dead_count == 0 ? rf_fsck(w->overseer) : NULL;
    if (wrong != NULL) {
        sim_fail(w, "fsck", "%s", wrong);
    }
}

/* --- lists and counts --- */

struct listing {
    struct world *w;
    const struct model_run *run;
    rf_filter filter;
    uint32_t count;
    struct model_bytes start;
    uint64_t shard;
    const char *wrong;
};

static bool list_one(void *context, const rf_shard_info *info)
{
    struct listing *l = context;
    const struct model_shard *m = model_find_shard(l->run, info->shard);
    if (m == NULL || !model_listed(m, l->filter, l->w->now)) {
        l->wrong = "a shard that should not be listed";
        return false;
    }
    l->wrong = shard_difference(info, m);
    if (l->count++ != 0 && l->wrong == NULL) {
        int order = model_compare(model_view(&l->start), info->spec.start);
        l->wrong = order > 0 || (order == 0 && l->shard >= info->shard) ? "the order" : NULL;
    }
    model_set(&l->start, info->spec.start);
    l->shard = info->shard;
    return l->wrong == NULL;
}

void observe_list(struct world *w, rf_store *by, uint32_t t, uint64_t run)
{
    struct listing l = {.w = w,
                        .run = model_find_run(&w->model, &w->tenants[t], run),
                        .filter = (rf_filter)chacha_below(&w->rng, 5)};
    static uint8_t mark[RF_KEY_MAX];
    rf_progress store, model;
    rf_bytes watermark;
    uint32_t expected = 0;
    if ((w->config->judges & JUDGE_REFERENCE) == 0) {
        return;
    }
    rf_status status =
        rf_list_shards(by, w->now, &w->tenants[t], run, l.filter, list_one, &l, NULL);
    free(l.start.data);
    rf_status progress = rf_get_progress(by, w->now, &w->tenants[t], run, &store, mark, NULL);
    rf_status right = l.run == NULL ? RF_RUN_NOT_FOUND : RF_OK;
    if (status != right || progress != right) {
        sim_fail(w, "difference", "list or progress: %s and %s", rf_status_name(status),
                 rf_status_name(progress));
    }
    if (l.run == NULL) {
        return;
    }
    for (uint32_t i = 0; i < l.run->count; i++) {
        expected += model_listed(&l.run->shards[i], l.filter, w->now);
    }
    if (l.wrong != NULL || l.count != expected) {
        sim_fail(w, "difference", "list by filter %d: %u shards, the model has %u; %s", l.filter,
                 l.count, expected, l.wrong == NULL ? "" : l.wrong);
    }
    model_progress(l.run, w->now, &model, &watermark);
    bool same =
        store.total == model.total && store.active == model.active && store.done == model.done &&
        store.split == model.split && store.parked == model.parked &&
        store.leased == model.leased && store.evaluation == model.evaluation &&
        store.has_watermark == model.has_watermark && store.watermark_len == model.watermark_len &&
        (watermark.len == 0 || memcmp(mark, watermark.data, watermark.len) == 0);
    if (!same) {
        sim_fail(w, "difference", "the progress of tenant %u run %" PRIu64, t, run);
    }
}

/* After a sweep the hint equals a full scan. */
void observe_sweep(struct world *w, rf_store *by, uint32_t t, uint64_t run)
{
    const struct model_run *r = model_find_run(&w->model, &w->tenants[t], run);
    rf_capacity seen = {0};
    uint64_t available = 0, earliest = 0;
    rf_status status = rf_sweep(by, w->now, &w->tenants[t], run, NULL);
    if (status == RF_OK) {
        status = rf_get_capacity(by, &w->tenants[t], run, &seen, NULL);
    }
    if ((w->config->judges & JUDGE_REFERENCE) == 0) {
        return;
    }
    if (status != (r == NULL ? RF_RUN_NOT_FOUND : RF_OK)) {
        sim_fail(w, "difference", "sweep: %s", rf_status_name(status));
    }
    if (r == NULL) {
        return;
    }
    model_capacity(r, w->now, &available, &earliest);
    w->report->available += seen.available;
    w->report->scanned += available;
    if (seen.available != available || seen.earliest_deadline != earliest) {
        sim_fail(w, "capacity",
                 "after a sweep %" PRIu64 " available until %" PRIu64 ", a full scan finds %" PRIu64
                 " and %" PRIu64,
                 seen.available, seen.earliest_deadline, available, earliest);
    }
}

/* --- for people --- */

static void print_model(const struct model_shard *s, FILE *out)
{
    fprintf(out,
            "status %d reason %d fence %" PRIu64 " leased %d owner %" PRIu64 " deadline %" PRIu64
            " attempts %u key %d/%u token %d/%u spawned %u ring",
            s->status, s->has_reason ? (int)s->reason : -1, s->fence, s->leased, s->owner,
            s->deadline, s->attempts, s->key.present, s->key.len, s->token.present, s->token.len,
            s->spawned_count);
    for (uint32_t i = 0; i < s->ring_count; i++) {
        fprintf(out, " %" PRIu64 "@%" PRIu64, s->ring[i].op, s->ring[i].executed_at);
    }
    fputc('\n', out);
}

static void print_store(const rf_shard_info *s, FILE *out)
{
    fprintf(out,
            "status %d reason %d fence %" PRIu64 " leased %d owner %" PRIu64 " deadline %" PRIu64
            " attempts %u key %d/%zu token %d/%zu spawned %u ring",
            s->status, s->has_reason ? (int)s->reason : -1, s->fence, s->leased,
            s->leased ? s->owner : 0, s->leased ? s->deadline : 0, s->attempts,
            s->cursor.key.data != NULL, s->cursor.key.len, s->cursor.token.data != NULL,
            s->cursor.token.len, s->spawned_count);
    for (uint32_t i = 0; i < s->ring_count; i++) {
        fprintf(out, " %" PRIu64 "@%" PRIu64, s->ring[i].op, s->ring[i].executed_at);
    }
    fputc('\n', out);
}

/* Both states; shards that are the same on both sides in one line. */
void observe_print(struct world *w, FILE *out)
{
    for (uint32_t t = 0; t < SIM_TENANTS; t++) {
        for (uint64_t run = 1; run <= SIM_RUN_IDS; run++) {
            const struct model_run *m = model_find_run(&w->model, &w->tenants[t], run);
            rf_run_info info;
            rf_status status = rf_get_run(w->overseer, &w->tenants[t], run, &info, NULL);
            if (m == NULL && status != RF_OK) {
                continue;
            }
            fprintf(out, "tenant %u run %" PRIu64 ": store %s status %d, model %s status %d\n", t,
                    run, rf_status_name(status), status == RF_OK ? (int)info.status : -1,
                    m != NULL ? "OK" : "RUN_NOT_FOUND", m != NULL ? (int)m->status : -1);
            for (uint32_t i = 0; m != NULL && i < m->count; i++) {
                rf_shard_info shard;
                status = rf_get_shard(w->overseer, &w->tenants[t], run, m->shards[i].shard, &shard,
                                      scratch, sizeof(scratch), NULL);
                if (status != RF_OK) {
                    fprintf(out, "  shard %" PRIx64 " store: %s\n", m->shards[i].shard,
                            rf_status_name(status));
                } else {
                    fprintf(out, "  shard %" PRIx64 " store: ", shard.shard);
                    print_store(&shard, out);
                    if (shard_difference(&shard, &m->shards[i]) == NULL) {
                        continue;
                    }
                }
                fprintf(out, "  shard %" PRIx64 " MODEL: ", m->shards[i].shard);
                print_model(&m->shards[i], out);
            }
        }
    }
}
