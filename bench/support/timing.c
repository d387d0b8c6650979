#include "timing.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#define SAMPLE_NS 200000u

uint64_t bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int bench_pin(void)
{
    int core = sched_getcpu();
    cpu_set_t set;
    if (core < 0) {
        return -1;
    }
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0 ? core : -1;
}

static uint64_t sample(const struct bench_case *c)
{
    uint64_t start = bench_now();
    c->run(c->context, c->n);
    return bench_now() - start;
}

/* Doubles n until a sample is long enough; this is the warm-up as well. */
static void choose_n(struct bench_case *c)
{
    c->n = 1;
    while (sample(c) < SAMPLE_NS && c->n < (1u << 30)) {
        c->n *= 2;
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts, and picks the value below which this part of them lies. */
static double quantile(double *values, uint32_t count, double part)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[(uint32_t)(part * (count - 1) + 0.5)];
}

/* The reference is sampled again next to each sample of each case, so that a round's ratio is of two
 * neighbours in time. */
static void measure_one(const struct bench_case *reference, struct bench_case *c, double *ns,
                        double *ratio)
{
    double base = (double)sample(reference) / (double)reference->n;
    *ns = c == reference ? base : (double)sample(c) / (double)c->n;
    *ratio = *ns / base;
}

void bench_measure(struct bench_case *cases, uint32_t count, uint32_t rounds)
{
    assert(count != 0 && rounds % 2 == 1);
    double *ns = calloc((size_t)count * rounds, sizeof(*ns));
    double *ratio = calloc((size_t)count * rounds, sizeof(*ratio));
    assert(ns != NULL && ratio != NULL);
    for (uint32_t i = 0; i < count; i++) {
        choose_n(&cases[i]);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < count; i++) {
            size_t at = (size_t)i * rounds + round;
            measure_one(&cases[0], &cases[i], &ns[at], &ratio[at]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        double *own = &ns[(size_t)i * rounds];
        cases[i].ns_low = quantile(own, rounds, 0.1);
        cases[i].ns = quantile(own, rounds, 0.5);
        cases[i].ns_high = quantile(own, rounds, 0.9);
        cases[i].ratio = quantile(&ratio[(size_t)i * rounds], rounds, 0.5);
    }
    free(ns);
    free(ratio);
}

bool bench_met(const struct bench_case *c)
{
    return c->kind == BENCH_AT_MOST ? c->ratio <= c->goal : c->ratio < c->goal;
}
