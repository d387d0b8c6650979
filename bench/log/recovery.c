/* From an open without a region to the first grant. */
#include <string.h>

#include "log.h"

#define KEEP_ALL   (1ull << 40) /* no snapshot by itself */
#define ROUNDS     3u
#define ROUNDS_MAX 31u

static double first_grant_ms(const char *which)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_options o = field_options(which);
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    rf_detail detail = {0};
    rf_store *store;
    rf_tenant tenant;
    memset(tenant.bytes, 7, sizeof(tenant.bytes));
    field_lose_region(which);
    uint64_t start = bench_now();
    must(rf_open(field_directory(which), &o, &store, &detail), &detail, "opening");
    must(rf_claim(store, rf_now(store), &tenant, 1, 0, RF_BOUND, 0, &grant, &result),
         &result.detail, "claim");
    double ms = (double)(bench_now() - start) / 1e6;
    must(rf_close(store), NULL, "closing");
    return ms;
}

/* Checkpoints of `shards` shards in turn, logged and not waited for. */
static void write_records(const char *which, uint32_t shards, uint64_t records)
{
    rf_options o = field_options(which);
    rf_detail detail = {0};
    rf_store *store;
    must(rf_open(field_directory(which), &o, &store, &detail), &detail, "opening");
    struct farm farm = {.store = store, .now = rf_now(store)};
    memset(farm.tenant.bytes, 7, sizeof(farm.tenant.bytes));
    rf_lease *leases = calloc(shards, sizeof(*leases));
    assert(leases != NULL);
    farm_acquire(&farm, 1, 0, shards, leases);
    uint64_t time = rf_now(store);
    rf_result result = {.durability = RF_NOWAIT};
    for (uint64_t i = 0; i < records; i++) {
        uint8_t key[FARM_KEY_LEN];
        uint32_t index = (uint32_t)(i % shards);
        farm_key(key, index, time + i);
        const rf_cursor cursor = {.key = {key, sizeof(key)}};
        must(rf_checkpoint(store, time, &farm.tenant, &leases[index], &cursor, rf_new_op(store),
                           &result),
             &result.detail, "checkpoint");
    }
    must(rf_sync(store, result.epoch, &detail), &detail, "sync");
    free(leases);
    must(rf_close(store), NULL, "closing");
}

static const rf_options keep = {.snapshot_bytes = KEEP_ALL};

/* The region is lost, and there is no snapshot: the log is replayed. */
static double replay_ms(uint64_t records)
{
    field_make("replay", 1000, &keep);
    write_records("replay", 1000, records);
    double ms = first_grant_ms("replay");
    field_destroy("replay");
    return ms;
}

/* The region is lost, and everything is in a snapshot. */
static void load_snapshot(uint32_t shards, double *taken_ms, double *loaded_ms)
{
    rf_options o = field_options("snapshot");
    rf_detail detail = {0};
    rf_store *store;
    field_make("snapshot", shards, &keep);
    must(rf_open(field_directory("snapshot"), &o, &store, &detail), &detail, "opening");
    uint64_t start = bench_now();
    must(rf_snapshot(store, &detail), &detail, "snapshot");
    *taken_ms = (double)(bench_now() - start) / 1e6;
    must(rf_close(store), NULL, "closing");
    *loaded_ms = first_grant_ms("snapshot");
    field_destroy("snapshot");
}

static void measure_replay(void)
{
    static const struct size {
        const char *name;
        uint64_t records;
        double goal_ms;
    } sizes[] = {
        {"open to first grant, 10,000 log records", 10000, 0},
        {"open to first grant, 100,000 log records", 100000, 50},
        {"open to first grant, 1,000,000 log records", 1000000, 0},
        {"open to first grant, 2,000,000 log records", 2000000, 0},
    };
    for (uint32_t i = 0; i < COUNT(sizes); i++) {
        char facts[64];
        double ms[ROUNDS_MAX];
        if (options.quick && sizes[i].goal_ms == 0 && i + 1 < COUNT(sizes)) {
            continue;
        }
        const uint32_t rounds = bench_rounds(&options, ROUNDS, 1, ROUNDS_MAX);
        for (uint32_t r = 0; r < rounds; r++) {
            ms[r] = replay_ms(sizes[i].records);
        }
        snprintf(facts, sizeof(facts), "\"recovery\":\"log\",\"records\":%llu",
                 (unsigned long long)sizes[i].records);
        struct bench_case row = {.name = sizes[i].name, .unit = "ms", .facts = facts};
        if (sizes[i].goal_ms > 0) {
            row.kind = BENCH_VALUE_BELOW;
            row.goal = sizes[i].goal_ms;
        }
        bench_summarize(&row, ms, rounds);
        report(&row, 1);
        if (i + 1 == COUNT(sizes)) {
            double rate = (double)sizes[i].records / (row.value / 1e3);
            struct bench_case speed = {.name = "replay of 2,000,000 records, verified",
                                       .unit = "records/s",
                                       .ratio_to = "4,000,000",
                                       .value = rate,
                                       .ratio = rate / 4e6,
                                       .kind = BENCH_AT_LEAST,
                                       .goal = 1};
            report(&speed, 1);
        }
    }
}

static void measure_load(void)
{
    static const struct size {
        const char *name;
        uint32_t shards;
        double goal_ms;
    } sizes[] = {
        {"10,000 shards", 10000, 0},
        {"100,000 shards", 100000, 0},
        {"1,000,000 shards", 1000000, 2000},
    };
    for (uint32_t i = 0; i < COUNT(sizes); i++) {
        char names[2][64], facts[2][64];
        double taken[ROUNDS_MAX], loaded[ROUNDS_MAX];
        const uint32_t rounds = bench_rounds(&options, ROUNDS, 1, ROUNDS_MAX);
        if (options.quick && sizes[i].goal_ms == 0) {
            continue;
        }
        for (uint32_t r = 0; r < rounds; r++) {
            load_snapshot(sizes[i].shards, &taken[r], &loaded[r]);
        }
        snprintf(names[0], sizeof(names[0]), "snapshot of %s, taken", sizes[i].name);
        snprintf(names[1], sizeof(names[1]), "open to first grant, %s", sizes[i].name);
        snprintf(facts[0], sizeof(facts[0]), "\"recovery\":\"taken\",\"shards\":%u",
                 sizes[i].shards);
        snprintf(facts[1], sizeof(facts[1]), "\"recovery\":\"snapshot\",\"shards\":%u",
                 sizes[i].shards);
        struct bench_case rows[] = {
            {.name = names[0], .unit = "ms", .facts = facts[0]},
            {.name = names[1], .unit = "ms", .facts = facts[1]},
        };
        if (sizes[i].goal_ms > 0) {
            rows[1].kind = BENCH_VALUE_BELOW;
            rows[1].goal = sizes[i].goal_ms;
        }
        bench_summarize(&rows[0], taken, rounds);
        bench_summarize(&rows[1], loaded, rounds);
        report(rows, COUNT(rows));
    }
}

void measure_recovery(void)
{
    if (!bench_wanted(&options, "recovery")) {
        return;
    }
    measure_replay();
    measure_load();
}
