/* Whether anybody notices that a snapshot is taken. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "log.h"

#define SHARDS       100000u
#define ROUNDS       15u
#define ROUNDS_QUICK 5u
#define ROUNDS_MAX   101u

static _Atomic bool leave;
static rf_store *snapshotter;
static double snapshot_s;

static void *take(void *argument)
{
    rf_detail detail = {0};
    (void)argument;
    uint64_t start = bench_now();
    must(rf_snapshot(snapshotter, &detail), &detail, "snapshot");
    snapshot_s = (double)(bench_now() - start) / 1e9;
    atomic_store(&leave, true);
    return NULL;
}

/* The slowest checkpoint until told to leave, or for `seconds`, in ms. */
static double slowest(struct farm *farm, const rf_lease *leases, double seconds)
{
    uint64_t start = bench_now(), last = start, worst = 0, time = rf_now(farm->store);
    static uint64_t number;
    number = number > time ? number : time;
    rf_result result = {.durability = RF_NOWAIT};
    for (uint32_t i = 0;; i = (i + 7919) % SHARDS) {
        uint8_t key[FARM_KEY_LEN];
        farm_key(key, i, ++number);
        const rf_cursor cursor = {.key = {key, sizeof(key)}};
        must(rf_checkpoint(farm->store, time, &farm->tenant, &leases[i], &cursor,
                           rf_new_op(farm->store), &result),
             &result.detail, "checkpoint");
        uint64_t now = bench_now();
        worst = now - last > worst ? now - last : worst;
        last = now;
        if (seconds > 0 ? (double)(now - start) / 1e9 > seconds : atomic_load(&leave)) {
            return (double)worst / 1e6;
        }
    }
}

/* The slowest one while a snapshot is taken. */
static double slowest_beside(struct farm *farm, const rf_lease *leases)
{
    pthread_t thread;
    atomic_store(&leave, false);
    int rc = pthread_create(&thread, NULL, take, NULL);
    assert(rc == 0);
    double ms = slowest(farm, leases, 0);
    pthread_join(thread, NULL);
    return ms;
}

void measure_snapshot(void)
{
    if (!bench_wanted(&options, "snapshot")) {
        return;
    }
    double without[ROUNDS_MAX], with[ROUNDS_MAX], took[ROUNDS_MAX];
    const uint32_t rounds = bench_rounds(&options, ROUNDS, ROUNDS_QUICK, ROUNDS_MAX);
    field_make("live", SHARDS, &(rf_options){.snapshot_bytes = 1ull << 40});
    rf_options o = field_options("live");
    rf_detail detail = {0};
    struct farm farm = {0};
    must(rf_open(field_directory("live"), &o, &farm.store, &detail), &detail, "opening");
    must(rf_open(field_directory("live"), &o, &snapshotter, &detail), &detail, "opening");
    farm.now = rf_now(farm.store);
    memset(farm.tenant.bytes, 7, sizeof(farm.tenant.bytes));
    rf_lease *leases = calloc(SHARDS, sizeof(*leases));
    assert(leases != NULL);
    farm_acquire(&farm, 1, 0, SHARDS, leases);
    slowest(&farm, leases, 0.5);
    slowest_beside(&farm, leases);
    /* By turns, and for as long: of a longer time the slowest one would be slower by itself. */
    for (uint32_t i = 0; i < rounds; i++) {
        without[i] = slowest(&farm, leases, snapshot_s);
        with[i] = slowest_beside(&farm, leases);
        took[i] = snapshot_s;
    }
    struct bench_case rows[] = {
        {.name = "slowest checkpoint of 100,000, full load", .unit = "ms"},
        {.name = "  while a snapshot is taken", .unit = "ms"},
        {.name = "  the snapshot took", .unit = "s"},
        {.name = "  longer because of it, slowest of all rounds",
         .unit = "ms",
         .kind = BENCH_VALUE_AT_MOST,
         .goal = 5},
    };
    double *const values[] = {without, with, took};
    for (uint32_t i = 0; i < COUNT(values); i++) {
        bench_summarize(&rows[i], values[i], rounds);
    }
    const double longer = bench_quantile(with, rounds, 1) - bench_quantile(without, rounds, 1);
    rows[COUNT(values)].value = longer > 0 ? longer : 0;
    report(rows, COUNT(rows));
    free(leases);
    must(rf_close(snapshotter), NULL, "closing");
    must(rf_close(farm.store), NULL, "closing");
    field_destroy("live");
}
