/* From an open without a region to the first grant. */
#include <string.h>

#include "log.h"

#define KEEP_ALL (1ull << 40) /* no snapshot by itself */

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

void measure_recovery(void)
{
    if (!bench_wanted(&options, "recovery")) {
        return;
    }
    const rf_options keep = {.snapshot_bytes = KEEP_ALL};
    const uint64_t few = 100000, many = 2000000;
    field_make("replay", 1000, &keep);
    write_records("replay", 1000, few);
    double small = first_grant_ms("replay");
    field_destroy("replay");

    field_make("long", 1000, &keep);
    write_records("long", 1000, many);
    double long_ms = first_grant_ms("long");
    field_destroy("long");

    field_make("snapshot", 1000000, &keep);
    rf_options o = field_options("snapshot");
    rf_detail detail = {0};
    rf_store *store;
    must(rf_open(field_directory("snapshot"), &o, &store, &detail), &detail, "opening");
    uint64_t start = bench_now();
    must(rf_snapshot(store, &detail), &detail, "snapshot");
    double taken = (double)(bench_now() - start) / 1e9;
    must(rf_close(store), NULL, "closing");
    double loaded = first_grant_ms("snapshot") / 1e3;
    field_destroy("snapshot");

    double rate = (double)many / (long_ms / 1e3);
    struct bench_case rows[] = {
        {.name = "open to first grant, 100,000 log records",
         .unit = "ms",
         .value = small,
         .kind = BENCH_VALUE_BELOW,
         .goal = 50},
        {.name = "replay of 2,000,000 records, verified",
         .unit = "records/s",
         .ratio_to = "4,000,000",
         .value = rate,
         .ratio = rate / 4e6,
         .kind = BENCH_AT_LEAST,
         .goal = 1},
        {.name = "snapshot of 1,000,000 shards, taken", .unit = "s", .value = taken},
        {.name = "open to first grant, 1,000,000 shards",
         .unit = "s",
         .value = loaded,
         .kind = BENCH_VALUE_BELOW,
         .goal = 2},
    };
    report(rows, COUNT(rows));
}
