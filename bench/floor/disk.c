/* The raw write at several depths, through io_uring. */
#include "floor.h"

#include <string.h>
#include <unistd.h>

#include "raw.h"

#define ROUNDS 3u

void measure_disk(void)
{
    static const uint32_t depths[] = {1, 2, 4, 8, 16};
    static struct histogram times[ROUNDS];
    const char *where = getenv("RF_BENCH_DIR");
    char path[200];
    if (!bench_wanted(&options, "disk")) {
        return;
    }
    snprintf(path, sizeof(path), "%.150s/rf-bench-floor-%d", where != NULL ? where : "/var/tmp",
             (int)getpid());
    struct raw *raw = raw_open(path);
    unlink(path); /* it goes with the program, however that ends */
    const double seconds = options.quick ? 0.2 : 1;
    if (raw_flood(raw, 1, seconds / 4, &times[0]) == 0) {
        bench_print_skipped(stdout, &options, "floor", "raw write",
                            "io_uring is not to be had here");
        raw_close(raw);
        return;
    }
    for (uint32_t d = 0; d < COUNT(depths); d++) {
        double rates[ROUNDS], medians[ROUNDS], tails[ROUNDS];
        char names[3][64], facts[64];
        memset(times, 0, sizeof(times));
        for (uint32_t i = 0; i < ROUNDS; i++) {
            rates[i] = raw_flood(raw, depths[d], seconds, &times[i]);
            medians[i] = (double)histogram_quantile(&times[i], 0.5) / 1e3;
            tails[i] = (double)histogram_quantile(&times[i], 0.99) / 1e3;
        }
        snprintf(names[0], sizeof(names[0]), "raw write, depth %u, all", depths[d]);
        snprintf(names[1], sizeof(names[1]), "raw write, depth %u, median", depths[d]);
        snprintf(names[2], sizeof(names[2]), "raw write, depth %u, 99%%", depths[d]);
        snprintf(facts, sizeof(facts), "\"floor\":\"raw\",\"depth\":%u", depths[d]);
        struct bench_case rows[] = {
            {.name = names[0], .unit = "writes/s", .facts = facts},
            {.name = names[1], .unit = "us", .facts = facts},
            {.name = names[2], .unit = "us", .facts = facts},
        };
        bench_summarize(&rows[0], rates, ROUNDS);
        bench_summarize(&rows[1], medians, ROUNDS);
        bench_summarize(&rows[2], tails, ROUNDS);
        report(rows, COUNT(rows));
    }
    raw_close(raw);
}
