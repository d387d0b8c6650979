/*
 * Worker processes that work at the same time, for so long, on a word of the program: how much more
 * do two get done than one?
 *
 * Every worker has a core of its own. A turn counts only if no worker came late or was interrupted;
 * it is tried again otherwise.
 */
#ifndef RF_BENCH_CREW_H
#define RF_BENCH_CREW_H

#include <stdbool.h>
#include <stdint.h>

#define CREW 2u

/* Kinds of work, as bench_case has them: does something n times. */
typedef void crew_work(void *context, uint64_t n);

/* What a worker does when it starts: fills in a context for every kind of work. */
typedef void crew_arrive(void *argument, uint32_t number, void **contexts);

struct crew;

/* NULL if there are not enough cores. The workers end with the program. */
struct crew *crew_start(crew_arrive *arrive, void *argument, crew_work *const *work,
                        uint32_t kinds);
void crew_stop(struct crew *crew);

/* Workers whose bits are set in `who` do work of a kind; returns calls per ns of all together. */
double crew_rate(struct crew *crew, uint32_t kind, uint32_t who);

#endif
