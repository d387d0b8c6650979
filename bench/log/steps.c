/* Where the time of a durable complete goes: each one is done in memory first, then waited for, next to a
 * raw write. */
#include <string.h>
#include <time.h>

#include "log.h"
#include "raw.h"

#define CALLS       2000u
#define CALLS_QUICK 500u

static uint64_t on_processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

enum { MEMORY, SYNC, SYNC_BUSY, ALL, RAW, RAW_BUSY, KINDS };

static void complete(struct farm *farm, const rf_lease *lease, rf_result *result)
{
    uint8_t key[FARM_KEY_LEN];
    const rf_cursor cursor = {.key = {key, sizeof(key)}};
    farm_key(key, (uint32_t)lease->shard - 1, 1);
    result->durability = RF_NOWAIT;
    must(rf_complete(farm->store, ++farm->now, &farm->tenant, lease, &cursor, ++farm->op, result),
         &result->detail, "complete");
    assert(result->outcome == RF_EXECUTED);
}

static void take_steps(struct farm *farm, const rf_lease *lease, struct raw *raw,
                       struct histogram *times)
{
    rf_result result = {0};
    rf_detail detail = {0};
    uint64_t begun = bench_now();
    complete(farm, lease, &result);
    uint64_t done = bench_now(), busy = on_processor_ns();
    must(rf_sync(farm->store, result.epoch, &detail), &detail, "sync");
    uint64_t busy_after = on_processor_ns(), durable = bench_now();
    assert(rf_durable(farm->store) >= result.epoch);
    histogram_add(&times[MEMORY], done - begun);
    histogram_add(&times[SYNC], durable - done);
    histogram_add(&times[SYNC_BUSY], busy_after - busy);
    histogram_add(&times[ALL], durable - begun);
    begun = bench_now();
    busy = on_processor_ns();
    raw_write(raw);
    histogram_add(&times[RAW_BUSY], on_processor_ns() - busy);
    histogram_add(&times[RAW], bench_now() - begun);
}

void measure_steps(void)
{
    static struct histogram times[KINDS];
    static const char *const names[KINDS] = {
        [MEMORY] = "complete, in memory",
        [SYNC] = "then rf_sync of it",
        [SYNC_BUSY] = "  on the processor meanwhile",
        [ALL] = "durable complete, in all",
        [RAW] = "raw write, by turns with it",
        [RAW_BUSY] = "  on the processor in a raw write",
    };
    static const char *const facts[KINDS] = {
        [MEMORY] = "\"steps\":\"memory\"",
        [SYNC] = "\"steps\":\"sync\"",
        [SYNC_BUSY] = "\"steps\":\"sync busy\"",
        [ALL] = "\"steps\":\"all\"",
        [RAW] = "\"steps\":\"raw\"",
        [RAW_BUSY] = "\"steps\":\"raw busy\"",
    };
    const uint32_t calls = options.quick ? CALLS_QUICK : CALLS;
    if (!bench_wanted(&options, "steps")) {
        return;
    }
    struct farm farm = {0};
    rf_detail detail = {0};
    rf_options o = field_options("steps");
    char path[256];
    field_make("steps", calls, NULL);
    must(rf_open(field_directory("steps"), &o, &farm.store, &detail), &detail, "opening");
    memset(farm.tenant.bytes, 7, sizeof(farm.tenant.bytes));
    farm.now = rf_now(farm.store);
    rf_lease *leases = calloc(calls, sizeof(*leases));
    assert(leases != NULL);
    farm_acquire(&farm, 1, 0, calls, leases);
    snprintf(path, sizeof(path), "%s/raw.steps", place);
    struct raw *raw = raw_open(path);
    for (uint32_t i = 0; i < calls; i++) {
        take_steps(&farm, &leases[i], raw, times);
    }
    struct bench_case rows[KINDS];
    for (uint32_t k = 0; k < KINDS; k++) {
        rows[k] = (struct bench_case){
            .name = names[k],
            .unit = "us",
            .facts = facts[k],
            .value = (double)histogram_quantile(&times[k], 0.5) / 1e3,
            .low = (double)histogram_quantile(&times[k], 0.1) / 1e3,
            .high = (double)histogram_quantile(&times[k], 0.9) / 1e3,
        };
    }
    rows[ALL].ratio = rows[ALL].value / rows[RAW].value;
    rows[ALL].ratio_to = "raw write";
    report(rows, KINDS);
    raw_close(raw);
    free(leases);
    must(rf_close(farm.store), NULL, "closing");
    field_destroy("steps");
}
