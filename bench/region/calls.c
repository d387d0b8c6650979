/* No allocation and no system call in a renewal or a checkpoint: counted, not timed. */
#include "region.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "tracer.h"

#define CALLS     1000000u
#define CALLS_HOT 16u

/* Not there in builds with sanitizers, which bring an allocator of their own. */
extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len)
    __attribute__((weak));

static uint64_t heap_counter(const char *name)
{
    uint64_t bytes = 0;
    size_t len = sizeof(bytes);
    int failed = mallctl(name, &bytes, &len, NULL, 0);
    assert(failed == 0);
    return bytes;
}

/* All that this thread ever took and gave back. */
static uint64_t heap_traffic(void)
{
    return heap_counter("thread.allocated") + heap_counter("thread.deallocated");
}

static double heap_traffic_of(void (*run)(void *context, uint64_t n), void *context)
{
    uint64_t before = heap_traffic();
    run(context, CALLS);
    return (double)(heap_traffic() - before);
}

/* In a process of its own, which opens the store like any worker. */
static void be_counted(void *argument)
{
    static struct farm farm;
    static rf_lease leases[CALLS_HOT];
    (void)argument;
    farm_open(&farm, "main", 0, false);
    farm_acquire(&farm, RUN_SCRATCH, CALLS_HOT, CALLS_HOT, leases);
    struct lot *lot = make_lot(&farm, leases, CALLS_HOT);
    run_checkpoint(lot, CALLS_HOT);
    tracer_mark();
    syscall(SYS_getuid); /* who hears nothing here is deaf */
    tracer_mark();
    run_renew(lot, CALLS);
    tracer_mark();
    run_checkpoint(lot, CALLS);
    tracer_mark();
}

static struct bench_case count_row(const char *name, const char *unit, double count)
{
    return (struct bench_case){
        .name = name, .unit = unit, .value = count, .kind = BENCH_VALUE_AT_MOST};
}

void measure_calls(struct farm *farm)
{
    static rf_lease leases[CALLS_HOT];
    if (!bench_wanted(&options, "calls")) {
        return;
    }
    struct farm_manifest manifest = farm_manifest(2 * CALLS_HOT);
    farm_purge(farm, RUN_SCRATCH);
    farm_register(farm, RUN_SCRATCH, &manifest);
    farm_manifest_free(&manifest);
    farm_acquire(farm, RUN_SCRATCH, 0, CALLS_HOT, leases);
    struct lot *lot = make_lot(farm, leases, CALLS_HOT);

    if (mallctl != NULL) {
        uint64_t before = heap_traffic();
        void *volatile some = malloc(100);
        free(some);
        assert(heap_traffic() >= before + 200); /* both are heard */
        struct bench_case rows[] = {
            count_row("heap traffic of 1,000,000 renewals", "bytes",
                      heap_traffic_of(run_renew, lot)),
            count_row("heap traffic of 1,000,000 checkpoints", "bytes",
                      heap_traffic_of(run_checkpoint, lot)),
        };
        report(rows, COUNT(rows));
    } else {
        bench_print_skipped(stdout, &options, "region", "heap traffic",
                            "not linked with jemalloc, whose counters are needed");
    }
    uint64_t counts[3];
    if (tracer_run(be_counted, NULL, counts, COUNT(counts))) {
        assert(counts[0] == 1);
        struct bench_case rows[] = {
            count_row("system calls of 1,000,000 renewals", "calls", (double)counts[1]),
            count_row("system calls of 1,000,000 checkpoints", "calls", (double)counts[2]),
        };
        report(rows, COUNT(rows));
    } else {
        bench_print_skipped(stdout, &options, "region", "system calls",
                            "tracing is not allowed here");
    }
    free_lots();
}
