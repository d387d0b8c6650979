#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "handle.h"
#include "log.h"
#include "point.h"
#include "reap.h"
#include "record.h"
#include "sim.h"

#define STREAM_BYTES 65536u

/* --- failing --- */

void sim_fail(struct world *w, const char *kind, const char *format, ...)
{
    struct sim_report *r = w->report;
    if (!r->failed) {
        va_list args;
        r->failed = true;
        snprintf(r->kind, sizeof(r->kind), "%s", kind);
        va_start(args, format);
        vsnprintf(r->what, sizeof(r->what), format, args);
        va_end(args);
    }
    longjmp(w->failed, 1);
}

void sim_trace(const struct world *w, const char *format, ...)
{
    if (w->config->trace != NULL) {
        va_list args;
        va_start(args, format);
        fprintf(w->config->trace, "%6u t=%-8" PRIu64 " ", w->step.number, w->now);
        vfprintf(w->config->trace, format, args);
        fputc('\n', w->config->trace);
        va_end(args);
    }
}

static void on_violation(void *context, enum rule rule, const char *what)
{
    struct world *w = context;
    struct sim_report *r = w->report;
    if ((w->config->judges & JUDGE_CHECKER) == 0) {
        return;
    }
    r->violations[rule]++;
    if (!w->config->keep_going) {
        sim_fail(w, rule_name(rule), "%s", what);
    }
    if (!r->failed) {
        r->failed = true;
        snprintf(r->kind, sizeof(r->kind), "%s", rule_name(rule));
        snprintf(r->what, sizeof(r->what), "%s", what);
    }
}

/* --- the stream of events: fixed records, little-endian, hashed in pages --- */

static void hash_page(struct world *w, uint32_t len)
{
    uint64_t was = w->report->stream_hash;
    for (int i = 0; i < 8; i++) {
        w->stream[i] = (uint8_t)(was >> (8 * i));
    }
    w->report->stream_hash =
        rf_hash64("ringfence/sim/stream/v1", (rf_bytes){.data = w->stream, .len = len});
    if (w->config->events != NULL) {
        fwrite(w->stream + 8, 1, len - 8, w->config->events);
    }
    w->report->stream_bytes += len - 8;
    w->stream_used = 8;
}

void world_emit(struct world *w, uint32_t kind, uint32_t who, uint32_t a, uint64_t b, uint64_t c,
                uint64_t d)
{
    const uint64_t words[6] = {
        (uint64_t)w->step.number << 32 | kind << 16 | who << 8 | (a & 255), w->now, b, c, d, 0};
    if (w->stream_used + 40 > STREAM_BYTES) {
        hash_page(w, w->stream_used);
    }
    uint8_t *p = w->stream + w->stream_used;
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < 8; i++) {
            *p++ = (uint8_t)(words[k] >> (8 * i));
        }
    }
    w->stream_used += 40;
}

void world_end_stream(struct world *w)
{
    if (w->stream_used > 8) {
        hash_page(w, w->stream_used);
    }
}

/* --- handles --- */

static uint64_t tell_time(void *context)
{
    return ((const struct world *)context)->now;
}

static rf_status open_store(struct world *w, rf_store **store, rf_detail *detail)
{
    const rf_options options = {
        .create = true,
        .max_shards = w->model.max_shards,
        .max_tenant_shards = w->model.max_tenant_shards,
        .max_bytes = 32u << 20,
        .max_runs = 4 * SIM_TENANTS * SIM_RUN_IDS,
        .max_members = 2 * SIM_WORKERS_MAX + 8,
        .claim_cooldown = w->model.cooldown,
        .busy_timeout = 1,
        .manual = true,
        .clock = tell_time,
        .clock_context = w,
        .region_path = w->region,
        .durability = w->config->durable ? RF_NOWAIT : RF_VOLATILE,
        .segment_bytes = 256u << 10,
        .snapshot_bytes = 256u << 10,
    };
    return rf_open(w->directory, &options, store, detail);
}

static rf_store *enter(struct world *w)
{
    rf_store *store = NULL;
    rf_detail detail;
    rf_status status = open_store(w, &store, &detail);
    if (status != RF_OK) {
        char words[256];
        rf_explain(status, &detail, words, sizeof(words));
        sim_fail(w, "error", "the store can't be opened: %s", words);
    }
    return store;
}

static void enter_worker(struct world *w, uint32_t worker)
{
    w->workers[worker].handle = enter(w);
    w->workers[worker].member = ++w->next_member;
}

/* What a worker held it may still believe to hold. */
static void drop_held(struct worker *k)
{
    for (uint32_t i = 0; i < k->held_count; i++) {
        k->old[k->old_next++ % SIM_OLD] = k->held[i];
        k->old_count += k->old_count < SIM_OLD;
    }
    k->held_count = 0;
}

/* The handle's process is gone, at whatever instruction it was; nothing is said to the store. One that
 * was in the middle of a write leaves its files open and its buffers alone: the kernel may be at them. */
static void forget(rf_store *store, bool writing)
{
    struct rf_handle *h = rf_handle_of(store);
    rf_declare_dead(h->map, h->actor.slot);
    if (h->actor.logger != NULL && !writing) {
        rf_logger_drop(h->actor.logger);
    }
    rf_region_close(h->map);
    free(h->copy);
    free(h);
}

void world_die(struct world *w, uint32_t worker)
{
    struct worker *k = &w->workers[worker];
    forget(k->handle, w->death.inside);
    w->death.inside = false;
    w->dead[w->dead_count++] = k->member;
    checker_member_gone(&w->checker, k->member);
    drop_held(k);
    enter_worker(w, worker);
    w->report->deaths++;
    if (w->dead_count > SIM_WORKERS_MAX / 2) {
        world_tend(w, w->overseer);
    }
}

static void tend(struct world *w, rf_store *by)
{
    rf_status status = rf_tend(by, w->now);
    if (status != RF_OK) {
        sim_fail(w, "error", "rf_tend: %s", rf_status_name(status));
    }
}

/* The dead are settled; this began when that epoch was open. */
static void settled(struct world *w, uint64_t epoch)
{
    for (uint32_t i = 0; i < w->dead_count; i++) {
        w->report->events[RF_EVENT_OWNER_LOST] += model_owner_lost(&w->model, w->dead[i]);
        journal_lost(w, w->dead[i], epoch);
    }
    w->dead_count = 0;
    w->unsettled = 0;
}

void world_tend(struct world *w, rf_store *by)
{
    uint64_t epoch = journal_epoch(w);
    tend(w, by);
    settled(w, epoch);
}

static void tend_by_worker(struct world *w, uint32_t worker)
{
    tend(w, w->workers[worker].handle);
}

void world_tend_mortally(struct world *w, uint32_t worker)
{
    uint64_t epoch = journal_epoch(w);
    if (!request_killable(w, worker, tend_by_worker)) {
        settled(w, epoch);
    }
}

static void close_worker(struct world *w, uint32_t worker)
{
    rf_close(w->workers[worker].handle);
}

void world_reopen(struct world *w, uint32_t worker)
{
    struct worker *k = &w->workers[worker];
    uint64_t member = k->member, epoch = journal_epoch(w);
    checker_member_gone(&w->checker, member);
    if (!request_killable(w, worker, close_worker)) {
        w->report->events[RF_EVENT_OWNER_LOST] += model_owner_lost(&w->model, member);
        journal_lost(w, member, epoch);
        drop_held(k);
        enter_worker(w, worker);
    }
}

static void barrier(struct world *w, uint32_t worker)
{
    rf_detail detail;
    rf_status status = rf_barrier(w->workers[worker].handle, &detail);
    if (status != RF_OK) {
        char words[256];
        rf_explain(status, &detail, words, sizeof(words));
        sim_fail(w, "error", "rf_barrier: %s", words);
    }
}

void world_sync(struct world *w, uint32_t worker)
{
    request_killable(w, worker, barrier);
}

static void snapshot(struct world *w, uint32_t worker)
{
    rf_detail detail;
    rf_status status = rf_snapshot(w->workers[worker].handle, &detail);
    if (status != RF_OK) {
        char words[256];
        rf_explain(status, &detail, words, sizeof(words));
        sim_fail(w, "error", "rf_snapshot: %s", words);
    }
}

void world_snapshot(struct world *w, uint32_t worker)
{
    if (w->config->durable) {
        request_killable(w, worker, snapshot);
    }
}

/* --- opening and closing it all --- */

static void enter_all(struct world *w)
{
    for (uint32_t i = 0; i < w->config->workers; i++) {
        enter_worker(w, i);
    }
}

void world_open(struct world *w, const struct sim_config *config, struct sim_report *report)
{
    const char *root = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    w->config = config;
    w->report = report;
    w->now = 1000;
    w->stream = malloc(STREAM_BYTES);
    w->stream_used = 8;
    snprintf(w->directory, sizeof(w->directory), "%s/ringfence-sim-XXXXXX", root);
    if (w->stream == NULL || mkdtemp(w->directory) == NULL) {
        sim_fail(w, "error", "no directory in %s: errno %d", root, errno);
    }
    snprintf(w->region, sizeof(w->region), "%s/region", w->directory);
    snprintf(report->directory, sizeof(report->directory), "%s", w->directory);
    for (uint32_t t = 0; t < SIM_TENANTS; t++) {
        memset(w->tenants[t].bytes, (int)(0x41 + t), sizeof(w->tenants[t].bytes));
    }
    model_init(&w->model, 5 * config->shards + 40, 4 * config->shards + 20, config->cooldown);
    checker_init(&w->checker, config->false_rule ? 1000 : config->cooldown, on_violation, w);
    w->overseer = enter(w);
    enter_all(w);
    journal_begin(w);
}

static void leave_all(struct world *w)
{
    for (uint32_t i = 0; i < w->config->workers; i++) {
        if (w->workers[i].handle != NULL) {
            rf_close(w->workers[i].handle);
        }
    }
    if (w->overseer != NULL) {
        rf_close(w->overseer);
    }
}

/* Nobody says good-bye. */
static void forget_all(struct world *w)
{
    for (uint32_t i = 0; i < w->config->workers; i++) {
        struct worker *k = &w->workers[i];
        forget(k->handle, false);
        w->dead[w->dead_count++] = k->member;
        checker_member_gone(&w->checker, k->member);
        drop_held(k);
    }
    forget(w->overseer, false);
}

void world_lose_everybody(struct world *w)
{
    world_tend(w, w->overseer);
    forget_all(w);
    w->overseer = enter(w);
    world_tend(w, w->overseer);
    enter_all(w);
    w->report->restarts++;
}

/* --- opening what lost its memory, by a process that is killed over it --- */

enum { OPENED = 0, KILLED = 1 };
static uint32_t points_left;
static bool rare_points;

static void on_point_of_open(const char *name)
{
    if (strncmp(name, "member.", 7) == 0) {
        points_left = 0; /* the store is open, and nobody would declare this member dead */
    }
    if (points_left != 0 && !(rare_points && points_is_common(name)) && --points_left == 0) {
        points_count(name, false);
        _exit(KILLED);
    }
}

/* Another process opens the store, and dies at a point or closes it again. */
static void open_mortally(struct world *w)
{
    int how = 0;
    points_left = 1 + chacha_below(&w->rng, 2u << chacha_below(&w->rng, 8));
    rare_points = chacha_percent(&w->rng, 50);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        rf_store *store = NULL;
        rf_detail detail;
        rf_point_on_hit = on_point_of_open;
        rf_status status = open_store(w, &store, &detail);
        if (status == RF_OK) {
            rf_point_on_hit = NULL;
            rf_close(store);
        }
        _exit(status == RF_OK ? OPENED : 2);
    }
    if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how) || WEXITSTATUS(how) > 1) {
        sim_fail(w, "error", "a process that should open the store ended with status %x", how);
    }
    w->report->opens_killed += WEXITSTATUS(how) == KILLED;
}

void world_lose_region(struct world *w)
{
    bool kindly = chacha_percent(&w->rng, 25);
    if (kindly) {
        world_tend(w, w->overseer); /* which makes everything durable, too */
    }
    uint64_t durable = rf_durable(w->overseer);
    forget_all(w);
    if (unlink(w->region) != 0) {
        sim_fail(w, "error", "the region can't be unlinked: errno %d", errno);
    }
    observe_forget(w);
    w->dead_count = w->unsettled = 0;
    for (int i = 0; i < 3 && !w->config->no_points && chacha_percent(&w->rng, 50); i++) {
        open_mortally(w);
    }
    w->overseer = enter(w);
    rf_inspection seen;
    if (rf_inspect(w->overseer, &seen, NULL) != RF_OK || seen.incarnation <= w->incarnation) {
        sim_fail(w, "error", "a rebuilt region did not raise the incarnation");
    }
    w->incarnation = seen.incarnation;
    checker_recovered(&w->checker, w->config->durable ? durable : 0);
    if (w->config->durable) {
        journal_go_back(w, durable, w->incarnation);
        w->report->recoveries++;
    } else {
        model_rebuild(&w->model, w->incarnation, w->now);
        w->report->rebuilds++;
    }
    enter_all(w);
}

void world_clear_away(const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
        rmdir(directory);
    }
}

void world_close(struct world *w)
{
    rf_point_on_hit = NULL;
    if (!w->report->failed) {
        leave_all(w); /* else anything may be in the middle of anything */
    }
    world_clear_away(w->directory);
    w->report->directory[0] = 0;
    observe_forget(w);
    journal_free(w);
    model_free(&w->model);
    checker_free(&w->checker);
    free(w->stream);
}
