/* Operations that nobody waits for: how many, and how long until they are durable. */
#include <string.h>

#include "log.h"

#define SECONDS 3.0
#define BURST   256u /* operations between two looks at the clock */
#define NOTES   65536u

struct note {
    uint64_t epoch;
    uint64_t at;
};

void measure_flood(void)
{
    if (!bench_wanted(&options, "flood")) {
        return;
    }
    static struct note notes[NOTES];
    static double lags[4u << 20];
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    uint32_t head = 0, tail = 0, lag_count = 0;
    rf_options o = field_options("flood");
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    rf_detail detail = {0};
    rf_store *store;
    rf_tenant tenant;
    memset(tenant.bytes, 7, sizeof(tenant.bytes));
    field_make("flood", 16, NULL);
    must(rf_open(field_directory("flood"), &o, &store, &detail), &detail, "opening");
    must(rf_acquire(store, rf_now(store), &tenant, 1, 1, 0, RF_BOUND, &grant, &result),
         &result.detail, "acquire");
    uint64_t start = bench_now(), now = start, operations = 0, number = rf_now(store);
    uint64_t time = rf_now(store);
    result.durability = RF_NOWAIT;
    while (now - start < (uint64_t)(SECONDS * 1e9)) {
        for (unsigned i = 0; i < BURST; i++) {
            uint8_t key[FARM_KEY_LEN];
            farm_key(key, 0, ++number);
            const rf_cursor cursor = {.key = {key, 16 + FARM_KEY_LEN - 16}};
            rf_status status = rf_checkpoint(store, ++time, &tenant, &grant.lease, &cursor,
                                             rf_new_op(store), &result);
            must(status, &result.detail, "checkpoint");
            operations += result.outcome == RF_EXECUTED;
        }
        now = bench_now();
        if (head - tail < NOTES) {
            notes[head++ % NOTES] = (struct note){.epoch = result.epoch, .at = now};
        }
        uint64_t durable = rf_durable(store);
        while (tail != head && notes[tail % NOTES].epoch <= durable) {
            lags[lag_count++ % COUNT(lags)] = (double)(now - notes[tail++ % NOTES].at) / 1e6;
        }
    }
    double rate = (double)operations / ((double)(now - start) / 1e9);
    must(rf_sync(store, result.epoch, &detail), &detail, "sync");
    now = bench_now();
    while (tail != head) {
        lags[lag_count++ % COUNT(lags)] = (double)(now - notes[tail++ % NOTES].at) / 1e6;
    }
    uint32_t n = lag_count < COUNT(lags) ? lag_count : COUNT(lags);
    struct bench_case rows[] = {
        {.name = "checkpoints without waiting, 1 process",
         .unit = "ops/s",
         .ratio_to = "2,500,000",
         .value = rate,
         .ratio = rate / 2.5e6,
         .kind = BENCH_AT_LEAST,
         .goal = 1},
        {.name = "  lag until durable, median",
         .unit = "ms",
         .value = bench_quantile(lags, n, 0.5)},
        {.name = "  lag until durable, 99%",
         .unit = "ms",
         .value = bench_quantile(lags, n, 0.99),
         .kind = BENCH_VALUE_BELOW,
         .goal = 10},
    };
    report(rows, COUNT(rows));
    must(rf_close(store), NULL, "closing");
    field_destroy("flood");
}
