/* The groups of rows of rf-bench-log, and what they share. README.md says what each row is. */
#ifndef RF_BENCH_LOG_H
#define RF_BENCH_LOG_H

#include <assert.h>
#include <stdlib.h>

#include "farm.h"
#include "gang.h"
#include "table.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

extern struct bench_options options;
/* A directory of this run's own, on a disk, removed at its end. */
extern char place[160];

/* Prints rows, and remembers missed goals. */
void report(struct bench_case *cases, uint32_t count);

/* What each of several processes does; a step is one durable operation that was seen to succeed. */
struct durable_work {
    gang_begin *begin;
    gang_step *step;
};

/* --- a durable store to measure on (field.c) --- */

/* The options of every store here: a region with a name of its own, so that it can be lost. */
rf_options field_options(const char *which);
const char *field_directory(const char *which);
/* Makes it, with a run 1 of `shards` shards, and closes it. */
void field_make(const char *which, uint32_t shards, const rf_options *more);
/* What a restart of the machine does to it. */
void field_lose_region(const char *which);
void field_destroy(const char *which);

void must(rf_status status, const rf_detail *detail, const char *what);

/* --- the groups --- */

void measure_waiting(
    void);                /* waiting: durable operations against the raw write and against peers */
void measure_steps(void); /* steps: of a durable complete */
void measure_flood(void); /* flood: what nobody waits for */
void measure_recovery(void); /* recovery */
void measure_snapshot(void); /* snapshot */

/* Peers (peers.c): NULL if it can't be had here, with the reason in *why. */
const struct durable_work *redis_start(const char **why);
void redis_stop(void);
const struct durable_work *sqlite_start(const char **why);
void sqlite_stop(void);

#endif
