/* The groups of rows of rf-bench-floor, and what they share. README.md says what each row is. */
#ifndef RF_BENCH_FLOOR_H
#define RF_BENCH_FLOOR_H

#include <assert.h>
#include <stdlib.h>

#include "table.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

extern struct bench_options options;

/* Prints rows. */
void report(struct bench_case *cases, uint32_t count);

void measure_core(void);   /* core: h, lock, copy, clock */
void measure_cross(void);  /* cross: from core to core, by memory and by futex; the timer */
void measure_memory(void); /* memory: bandwidth */
void measure_disk(void);   /* disk: raw writes at several depths */

#endif
