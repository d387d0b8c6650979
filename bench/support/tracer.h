/* Counts the system calls of a piece of code, by tracing a child process that runs it. */
#ifndef RF_BENCH_TRACER_H
#define RF_BENCH_TRACER_H

#include <stdbool.h>
#include <stdint.h>

/* In the traced code: the calls from here to the next mark are counted together. */
void tracer_mark(void);

/* Runs `traced` in a child process, one thread of which is traced: the calling one. counts[i] are
 * the calls between mark i and the next, for `spans` spans. False if tracing is not allowed. */
bool tracer_run(void (*traced)(void *argument), void *argument, uint64_t *counts, uint32_t spans);

#endif
