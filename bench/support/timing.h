/*
 * Timing of short pieces of code.
 *
 * A case is a function that does its work n times. All cases of a program are sampled in turn, round
 * after round, so that whatever slows the machine for a while slows all of them; a sample takes a
 * fraction of a millisecond, so that most samples run undisturbed; and the median of the rounds is
 * reported. A ratio is the median of the rounds' own ratios, each of two samples in a row.
 *
 * A neighbour on the same core, in another virtual machine perhaps, slows code that keeps the core's
 * units busy far more than a chain of dependent steps such as a hash, and so changes even ratios. A
 * canary, which does nothing but keep them busy, runs before and after every sample; only rounds in
 * which it was about as fast as ever, and in which nobody took the core away, count.
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
bool bench_pin_to(int core);
/* Any core again that the program was allowed when it started. */
void bench_unpin(void);
/* How often this thread was made to wait for a core that others wanted. */
uint64_t bench_interruptions(void);
/* Up to `count` cores that the program was allowed when it started; returns how many. */
uint32_t bench_cores(int *cores, uint32_t count);

enum bench_goal {
    BENCH_NO_GOAL = 0,
    BENCH_AT_MOST,       /* ratio <= goal */
    BENCH_BELOW,         /* ratio < goal */
    BENCH_AT_LEAST,      /* ratio >= goal */
    BENCH_VALUE_AT_MOST, /* value <= goal */
    BENCH_VALUE_BELOW,   /* value < goal */
};

/* A row of a table, and how to measure it. Rows that come about in another way have no `run`. */
struct bench_case {
    const char *name;
    void (*run)(void *context, uint64_t n);
    void (*prepare)(void *context, uint64_t n); /* before each sample, not timed; or NULL */
    void *context;
    uint64_t n_max; /* calls in a sample; 0: any number */
    uint64_t per;   /* what one call does so many of, such as shards; 0: 1 */
    const char *unit;
    const char *ratio_to; /* NULL: what the table says */
    const char *facts;    /* more members of the JSON object, such as "processes":8; or NULL */
    enum bench_goal kind;
    double goal;

    /* what came of it */
    uint64_t n;      /* calls in a sample; may be given, and is chosen otherwise */
    double value;    /* ns a call, or whatever the unit says: the median */
    double low;      /* the 10th and 90th percentile of the rounds */
    double high;     /* */
    uint32_t rounds; /* that these are of */
    double ratio;    /* to the first case; 0: there is none */
};

/* How fast the canary was at its fastest, ns, and which part of the samples was quiet. */
struct bench_quiet {
    double canary_ns;
    double part;
    uint64_t samples;
};
struct bench_quiet bench_quiet(void);

/* How fast it is when nobody disturbs it, from another run on this machine: only rounds in which it
 * comes close to that are quiet, and there will be more rounds until there are enough of them. */
void bench_expect_canary(double ns);

/* Measures all cases; the first is what the others are compared to. rounds is odd. */
void bench_measure(struct bench_case *cases, uint32_t count, uint32_t rounds);

/* Sorts, and picks the value below which this part of them lies. */
double bench_quantile(double *values, uint32_t count, double part);

/* Median, 10th and 90th percentile of the values, into the case. Sorts them. */
void bench_summarize(struct bench_case *c, double *values, uint32_t count);

bool bench_met(const struct bench_case *c);

#endif
