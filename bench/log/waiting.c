/* Durable operations that are waited for, one by one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "raw.h"

#define ROUNDS       5u
#define ROUNDS_QUICK 3u
#define ROUNDS_MAX   31u

/* --- the floor --- */

static void *raw_begin(void *argument, uint32_t number)
{
    char path[256];
    (void)argument;
    snprintf(path, sizeof(path), "%s/raw.%u", place, number);
    return raw_open(path);
}

static void raw_step(void *context, uint64_t i)
{
    (void)i;
    raw_write(context);
}

/* --- ours --- */

struct worker {
    rf_store *store;
    rf_tenant tenant;
    rf_lease lease;
    uint32_t index;
    uint64_t number;
};

static void *worker_begin(void *argument, uint32_t number)
{
    struct worker *w = calloc(1, sizeof(*w));
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_options o = field_options("waiting");
    rf_result result = {0};
    rf_detail detail = {0};
    (void)argument;
    assert(w != NULL);
    must(rf_open(field_directory("waiting"), &o, &w->store, &detail), &detail, "opening");
    memset(w->tenant.bytes, 7, sizeof(w->tenant.bytes));
    w->index = number;
    w->number = rf_now(w->store);
    /* The last one's may have been killed just now, and not be settled yet. */
    rf_status status = RF_ALREADY_LEASED;
    for (unsigned i = 0; i < 1000 && status == RF_ALREADY_LEASED; i++) {
        status = rf_acquire(w->store, rf_now(w->store), &w->tenant, 1, number + 1, number, RF_BOUND,
                            &grant, &result);
        usleep(status == RF_OK ? 0 : 2000);
    }
    must(status, &result.detail, "acquire");
    w->lease = grant.lease;
    return w;
}

static void worker_step(void *context, uint64_t i)
{
    (void)i;
    struct worker *w = context;
    uint8_t key[FARM_KEY_LEN];
    rf_result result = {.durability = RF_WAIT};
    farm_key(key, w->index, ++w->number);
    const rf_cursor cursor = {.key = {key, sizeof(key)}};
    must(rf_checkpoint(w->store, rf_now(w->store), &w->tenant, &w->lease, &cursor,
                       rf_new_op(w->store), &result),
         &result.detail, "checkpoint");
    if (result.outcome != RF_EXECUTED || rf_durable(w->store) < result.epoch) {
        abort();
    }
    if (w->number % 1024 == 0) {
        must(rf_renew(w->store, rf_now(w->store), &w->tenant, &w->lease, NULL), NULL, "renew");
    }
}

/* --- rows --- */

static double seconds(void)
{
    return options.quick ? 0.4 : 1;
}

/* Steps a second of all together. */
static double rate_of(const struct durable_work *work, uint32_t processes, double length)
{
    struct gang *gang = gang_start(work->begin, NULL, processes);
    gang_run(gang, &(struct gang_order){.step = work->step, .seconds = length * 0.2});
    struct gang_outcome outcome =
        gang_run(gang, &(struct gang_order){.step = work->step, .seconds = length});
    gang_stop(gang);
    return outcome.rate;
}

static uint32_t rounds(void)
{
    return bench_rounds(&options, ROUNDS, ROUNDS_QUICK, ROUNDS_MAX);
}

static void report_row(struct bench_case row, double *values, double *ratios)
{
    bench_summarize(&row, values, rounds());
    row.ratio = ratios != NULL ? bench_quantile(ratios, rounds(), 0.5) : 0;
    report(&row, 1);
}

/* In turn, so that whatever slows the disk for a while slows all of them. */
static void against_peers(const struct durable_work *ours, uint32_t processes)
{
    const char *why_redis = NULL, *why_sqlite = NULL;
    char names[3][64];
    double mine[ROUNDS_MAX], redis[ROUNDS_MAX], sqlite[ROUNDS_MAX];
    double to_redis[ROUNDS_MAX], to_sqlite[ROUNDS_MAX];
    for (unsigned i = 0; i < rounds(); i++) {
        mine[i] = rate_of(ours, processes, seconds());
        const struct durable_work *peer = redis_start(&why_redis);
        redis[i] = peer == NULL ? 0 : rate_of(peer, processes, seconds());
        redis_stop();
        peer = sqlite_start(&why_sqlite);
        sqlite[i] = peer == NULL ? 0 : rate_of(peer, processes, seconds());
        sqlite_stop();
        to_redis[i] = redis[i] > 0 ? mine[i] / redis[i] : 0;
        to_sqlite[i] = sqlite[i] > 0 ? mine[i] / sqlite[i] : 0;
    }
    snprintf(names[0], sizeof(names[0]), "%u processes, each waiting", processes);
    snprintf(names[1], sizeof(names[1]), "%u processes over Redis (AOF always, SET)", processes);
    snprintf(names[2], sizeof(names[2]), "%u processes over SQLite (WAL, FULL)", processes);
    report_row((struct bench_case){.name = names[0], .unit = "ops/s"}, mine, NULL);
    if (why_redis == NULL) {
        struct bench_case row = {.name = names[1],
                                 .unit = "ops/s",
                                 .ratio_to = "Redis",
                                 .kind = BENCH_AT_LEAST,
                                 .goal = 1.3};
        report_row(row, redis, to_redis);
    } else {
        bench_print_skipped(stdout, &options, "log", names[1], why_redis);
    }
    if (why_sqlite == NULL) {
        struct bench_case row = {.name = names[2],
                                 .unit = "ops/s",
                                 .ratio_to = "SQLite",
                                 .kind = BENCH_AT_LEAST,
                                 .goal = 3};
        report_row(row, sqlite, to_sqlite);
    } else {
        bench_print_skipped(stdout, &options, "log", names[2], why_sqlite);
    }
}

void measure_waiting(void)
{
    if (!bench_wanted(&options, "waiting")) {
        return;
    }
    const struct durable_work raw = {.begin = raw_begin, .step = raw_step};
    const struct durable_work ours = {.begin = worker_begin, .step = worker_step};
    double floor[ROUNDS_MAX], mine[ROUNDS_MAX], ratio[ROUNDS_MAX];
    field_make("waiting", 256, NULL);
    for (unsigned i = 0; i < rounds(); i++) {
        floor[i] = 1e6 / rate_of(&raw, 1, seconds());
        mine[i] = 1e6 / rate_of(&ours, 1, seconds());
        ratio[i] = mine[i] / floor[i];
    }
    struct bench_case row = {.name = "1 process, waiting for every operation",
                             .unit = "us",
                             .ratio_to = "raw write",
                             .kind = BENCH_AT_MOST,
                             .goal = 1.15};
    report_row((struct bench_case){.name = "raw write, O_DIRECT + DSYNC, 4 KiB", .unit = "us"},
               floor, NULL);
    report_row(row, mine, ratio);
    against_peers(&ours, 8);
    against_peers(&ours, 64);
    field_destroy("waiting");
}
