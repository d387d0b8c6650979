/*
 * Timing of short pieces of code.
 *
 * A case is a function that does its work n times. All cases of a program are sampled in turn, round
 * after round, so that whatever slows the machine for a while slows all of them; a sample takes a
 * fraction of a millisecond, so that most samples run undisturbed; and the median of the rounds is
 * reported. A ratio is the median of the rounds' own ratios, each of two samples in a row.
 */
#ifndef RF_BENCH_TIMING_H
#define RF_BENCH_TIMING_H

#include <stdbool.h>
#include <stdint.h>

/* The compiler must assume that the value is used. */
#define bench_use(value) __asm__ volatile("" : : "g"(value) : "memory")
/* ... and that it could be anything: nothing computed from it can be moved out of a loop. */
#define bench_hide(lvalue) __asm__ volatile("" : "+r"(lvalue) : : "memory")

/* CLOCK_MONOTONIC in ns */
uint64_t bench_now(void);

/* Stays on the core it is on, and returns that core's number; -1 if that is not allowed. */
int bench_pin(void);

enum bench_goal {
    BENCH_NO_GOAL = 0,
    BENCH_AT_MOST, /* ratio <= goal */
    BENCH_BELOW,   /* ratio < goal */
};

struct bench_case {
    const char *name;
    void (*run)(void *context, uint64_t n);
    void *context;
    enum bench_goal kind;
    double goal;

    /* what came of it */
    uint64_t n;     /* calls in a sample */
    double ns;      /* a call, median */
    double ns_low;  /* the 10th and 90th percentile of the rounds */
    double ns_high; /* */
    double ratio;   /* to the first case */
};

/* Measures all cases; the first is what the others are compared to. rounds is odd. */
void bench_measure(struct bench_case *cases, uint32_t count, uint32_t rounds);

bool bench_met(const struct bench_case *c);

#endif
