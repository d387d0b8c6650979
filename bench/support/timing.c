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

static void prepare(const struct bench_case *c)
{
    if (c->prepare != NULL) {
        c->prepare(c->context, c->n);
    }
}

/* Doubles n until a sample is long enough; this is the warm-up as well. */
static void choose_n(struct bench_case *c)
{
    uint64_t most = c->n_max != 0 ? c->n_max : 1u << 30;
    c->n = 1;
    prepare(c);
    while (sample(c) < SAMPLE_NS && c->n < most) {
        c->n = 2 * c->n < most ? 2 * c->n : most;
        prepare(c);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *values, uint32_t count, double part)
{
    qsort(values, count, sizeof(*values), by_value);
    return values[(uint32_t)(part * (count - 1) + 0.5)];
}

void bench_summarize(struct bench_case *c, double *values, uint32_t count)
{
    c->low = bench_quantile(values, count, 0.1);
    c->value = bench_quantile(values, count, 0.5);
    c->high = bench_quantile(values, count, 0.9);
}

static double ns_of_one(const struct bench_case *c)
{
    uint64_t per = c->per != 0 ? c->per : 1;
    return (double)sample(c) / (double)(c->n * per);
}

/* The reference is sampled again next to each sample of each case, so that a round's ratio is of two
 * neighbours in time. */
static void measure_one(const struct bench_case *reference, struct bench_case *c, double *ns,
                        double *ratio)
{
    prepare(c);
    double base = ns_of_one(reference);
    *ns = c == reference ? base : ns_of_one(c);
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
        bench_summarize(&cases[i], &ns[(size_t)i * rounds], rounds);
        cases[i].ratio = bench_quantile(&ratio[(size_t)i * rounds], rounds, 0.5);
    }
    free(ns);
    free(ratio);
}

bool bench_met(const struct bench_case *c)
{
    switch (c->kind) {
    case BENCH_AT_MOST:
        return c->ratio <= c->goal;
    case BENCH_BELOW:
        return c->ratio < c->goal;
    case BENCH_AT_LEAST:
        return c->ratio >= c->goal;
    case BENCH_VALUE_AT_MOST:
        return c->value <= c->goal;
    case BENCH_VALUE_BELOW:
        return c->value < c->goal;
    case BENCH_NO_GOAL:
        break;
    }
    return true;
}
