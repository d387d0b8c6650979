/* Operations that nobody waits for: how many there can be, and how long until they are durable. */
#include <string.h>

#include "log.h"

#define BURST      256u /* operations between two looks at the clock */
#define NOTES      65536u
#define ROUNDS     3u
#define ROUNDS_MAX 31u
#define RATE       2500000.0 /* a second: the goal, and the load under which the lag is measured */

struct note {
    uint64_t epoch;
    uint64_t at;
};

struct flood {
    rf_store *store;
    rf_tenant tenant;
    rf_lease lease;
    uint64_t number;
    uint64_t time;
};

static void burst(struct flood *f, rf_result *result)
{
    for (unsigned i = 0; i < BURST; i++) {
        uint8_t key[FARM_KEY_LEN];
        farm_key(key, 0, ++f->number);
        const rf_cursor cursor = {.key = {key, sizeof(key)}};
        must(rf_checkpoint(f->store, ++f->time, &f->tenant, &f->lease, &cursor, rf_new_op(f->store),
                           result),
             &result->detail, "checkpoint");
        assert(result->outcome == RF_EXECUTED);
    }
}

/* Checkpoints for a while, at most `most` a second (0: as many as there can be). Returns how many a second there
 * were; the time from the return of a call to the moment it is seen to be durable, in ns, goes to `lags`. */
static double pour(struct flood *f, double most, double seconds, struct histogram *lags)
{
    static struct note notes[NOTES];
    uint32_t head = 0, tail = 0;
    uint64_t start = bench_now(), now = start, done = 0;
    rf_result result = {.durability = RF_NOWAIT};
    rf_detail detail = {0};
    while (now - start < (uint64_t)(seconds * 1e9)) {
        burst(f, &result);
        done += BURST;
        now = bench_now();
        if (head - tail < NOTES) {
            notes[head++ % NOTES] = (struct note){.epoch = result.epoch, .at = now};
        }
        do {
            uint64_t durable = rf_durable(f->store);
            while (tail != head && notes[tail % NOTES].epoch <= durable) {
                histogram_add(lags, now - notes[tail++ % NOTES].at);
            }
            now = bench_now();
        } while (most > 0 && (double)done > most * (double)(now - start) / 1e9);
    }
    double rate = (double)done / ((double)(now - start) / 1e9);
    must(rf_sync(f->store, result.epoch, &detail), &detail, "sync");
    now = bench_now();
    while (tail != head) {
        histogram_add(lags, now - notes[tail++ % NOTES].at);
    }
    return rate;
}

void measure_flood(void)
{
    if (!bench_wanted(&options, "flood")) {
        return;
    }
    static struct histogram any, lags;
    double rates[ROUNDS_MAX], kepts[ROUNDS_MAX], ratios[ROUNDS_MAX], kept_ratios[ROUNDS_MAX];
    double any_ms[ROUNDS_MAX], lag_ms[2][ROUNDS_MAX];
    const uint32_t rounds = bench_rounds(&options, ROUNDS, 1, ROUNDS_MAX);
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    const double seconds = options.quick ? 1 : 2;
    rf_options o = field_options("flood");
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    rf_detail detail = {0};
    struct flood f = {0};
    memset(f.tenant.bytes, 7, sizeof(f.tenant.bytes));
    field_make("flood", 16, NULL);
    must(rf_open(field_directory("flood"), &o, &f.store, &detail), &detail, "opening");
    must(rf_acquire(f.store, rf_now(f.store), &f.tenant, 1, 1, 0, RF_BOUND, &grant, &result),
         &result.detail, "acquire");
    f.lease = grant.lease;
    f.number = f.time = rf_now(f.store);
    for (uint32_t i = 0; i < rounds; i++) {
        memset(&any, 0, sizeof(any));
        memset(&lags, 0, sizeof(lags));
        rates[i] = pour(&f, 0, seconds, &any);
        kepts[i] = pour(&f, RATE, seconds, &lags);
        ratios[i] = rates[i] / RATE;
        kept_ratios[i] = kepts[i] / RATE;
        any_ms[i] = (double)histogram_quantile(&any, 0.99) / 1e6;
        lag_ms[0][i] = (double)histogram_quantile(&lags, 0.5) / 1e6;
        lag_ms[1][i] = (double)histogram_quantile(&lags, 0.99) / 1e6;
    }
    struct bench_case rows[] = {
        {.name = "checkpoints without waiting, 1 process",
         .unit = "ops/s",
         .ratio_to = "2,500,000",
         .kind = BENCH_AT_LEAST,
         .goal = 1},
        {.name = "  lag until durable at full speed, 99%", .unit = "ms"},
        /* A slower one would be no load to measure the lag under. */
        {.name = "  at most 2,500,000 a second",
         .unit = "ops/s",
         .ratio_to = "2,500,000",
         .kind = BENCH_AT_LEAST,
         .goal = 0.99},
        {.name = "  lag until durable, median", .unit = "ms"},
        {.name = "  lag until durable, 99%", .unit = "ms", .kind = BENCH_VALUE_BELOW, .goal = 10},
    };
    double *const values[] = {rates, any_ms, kepts, lag_ms[0], lag_ms[1]};
    for (uint32_t i = 0; i < COUNT(rows); i++) {
        bench_summarize(&rows[i], values[i], rounds);
    }
    rows[0].ratio = bench_quantile(ratios, rounds, 0.5);
    rows[2].ratio = bench_quantile(kept_ratios, rounds, 0.5);
    report(rows, COUNT(rows));
    must(rf_close(f.store), NULL, "closing");
    field_destroy("flood");
}
