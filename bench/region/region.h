/* The groups of rows of rf-bench-region, and what they share. README.md says what each row is. */
#ifndef RF_BENCH_REGION_H
#define RF_BENCH_REGION_H

#include <assert.h>
#include <stdlib.h>

#include "bare.h"
#include "farm.h"
#include "table.h"

#define SHARDS      100000u
#define RUN_HELD    1u
#define RUN_SCRATCH 3u
#define SLOW_ROUNDS 7u /* of what takes long */

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

extern struct bench_options options;
extern struct bare bare;

/* --- reporting (bench_region.c) --- */

/* The first case of a group. */
struct bench_case h_case(void);
/* Times the cases that are wanted, the first being h, and prints them; h itself once in a run. */
void measure(const char *group, struct bench_case *cases, uint32_t count, uint32_t rounds);
/* Prints rows that came about in another way. */
void report(struct bench_case *cases, uint32_t count);

/* Whatever is timed must have happened. */
static inline void must_execute(rf_status status, const rf_result *result)
{
    if (__builtin_expect(status != RF_OK || result->outcome != RF_EXECUTED, 0)) {
        fprintf(stderr, "%s, %s\n", rf_status_name(status),
                result->outcome == RF_EXECUTED ? "executed" : "replayed");
        abort();
    }
    bench_use(result);
}

/* --- leases that are held, worked through in turn (held.c) --- */

#define LOT_AHEAD 16u
#define LOT_COLD  512u /* calls in a sample on random shards */

struct lot {
    struct lot *next; /* of all that were made */
    struct farm *farm;
    rf_lease *leases; /* in the order in which they are visited */
    uint32_t count;   /* 1, or a multiple of LOT_AHEAD */
    uint64_t shards;  /* of the run that they are of */
    uint32_t at;
    uint64_t number; /* of the next key: a time at first, so that keys only grow */
    /* Keys are written some calls before they are used, so that what is timed is not the wait for
     * a store that was just made. */
    uint8_t keys[LOT_AHEAD][FARM_KEY_LEN];
    rf_result result;
};

/* Each row has a lot of its own; the leases may be the same. */
struct lot *make_lot(struct farm *farm, rf_lease *leases, uint32_t count);
void free_lots(void);
void shuffle(rf_lease *leases, uint32_t count);
void run_checkpoint(void *context, uint64_t n);
void run_renew(void *context, uint64_t n);
void run_release_acquire(void *context, uint64_t n);
void run_park_unpark_acquire(void *context, uint64_t n);
void run_get_shard(void *context, uint64_t n);
/* The whole run at once. */
void run_progress(void *context, uint64_t n);
void run_list(void *context, uint64_t n);

/* --- the groups; `main` is a store that has room for 4 * SHARDS --- */

void measure_held(struct farm *farm);  /* held, look */
void measure_pair(struct farm *farm);  /* pair */
void measure_calls(struct farm *farm); /* calls */
void measure_growth(void);             /* growth */
void measure_kill(void);               /* kill */

#endif
