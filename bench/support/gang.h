/*
 * Any number of processes that do the same thing at the same time: each as fast as it can, for the rate, or
 * all together at a fixed rate, for the time that an operation takes.
 *
 * At a fixed rate every step has a time at which it is due, whether or not the one before has ended, and
 * what it took counts from there: a step that is kept waiting by a slow one before it is slow as well.
 * (Counting from when it was really begun would leave out just those that had to wait: coordinated
 * omission.) Up to a process a core waits for the time by looking at the clock; more of them sleep, and
 * how late the timer wakes them is in the result (rf-bench-floor: timer).
 */
#ifndef RF_BENCH_GANG_H
#define RF_BENCH_GANG_H

#include <stdint.h>

#include "histogram.h"

#define GANG_MAX 64u

struct gang;

/* What each process does once, when it starts; returns its context. */
typedef void *gang_begin(void *argument, uint32_t number);
/* One step, the i-th of this order. It must not return unless it did what it should. */
typedef void gang_step(void *context, uint64_t i);

struct gang_order {
    gang_step *step;
    uint64_t count; /* steps of each process; 0: until the time is over */
    double seconds; /* only without a count */
    double rate;    /* steps a second of all together; 0: as fast as they can */
    uint64_t
        paced; /* steps of each at that rate, 0: all; the others follow, and are not looked at */
};

struct gang_outcome {
    double rate; /* steps a second of all together, from the first start to the last end */
    const struct histogram *times; /* ns, if there was a rate; valid until the next order */
};

struct gang *gang_start(gang_begin *begin, void *argument, uint32_t processes);
/* The processes leave what they have as a killed one would. */
void gang_stop(struct gang *gang);

struct gang_outcome gang_run(struct gang *gang, const struct gang_order *order);

#endif
