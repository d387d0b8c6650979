#include "timing.h"

#include <assert.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define SAMPLE_NS 200000u

uint64_t bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- cores --- */

static cpu_set_t *allowed(void)
{
    static cpu_set_t set;
    static bool known;
    if (!known) {
        known = sched_getaffinity(0, sizeof(set), &set) == 0;
    }
    return &set;
}

bool bench_pin_to(int core)
{
    cpu_set_t set;
    allowed();
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0;
}

int bench_pin(void)
{
    int core = sched_getcpu();
    return core >= 0 && bench_pin_to(core) ? core : -1;
}

void bench_unpin(void)
{
    sched_setaffinity(0, sizeof(cpu_set_t), allowed());
}

uint32_t bench_cores(int *cores, uint32_t count)
{
    uint32_t found = 0;
    for (int i = 0; i < CPU_SETSIZE && found < count; i++) {
        if (CPU_ISSET((size_t)i, allowed())) {
            cores[found++] = i;
        }
    }
    return found;
}

uint64_t bench_interruptions(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (uint64_t)usage.ru_nivcsw;
}

/* --- samples --- */

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
    if (c->n != 0) {
        prepare(c);
        sample(c);
        return;
    }
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

/* --- the canary --- */

#define CANARY_STEPS   2000u
#define CANARY_SLACK   1.08
#define QUIET_MIN      5u
#define INTERRUPTED_NS 1e9 /* more than any canary */

static double canary_best = INFINITY;
static uint64_t samples_all, samples_quiet;

/* Eight chains of additions that do not wait for each other. */
static double canary(void)
{
    uint64_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8;
    uint64_t start = bench_now();
    for (uint32_t i = 0; i < CANARY_STEPS; i++) {
        a += i, b += a, c ^= i, d += c, e ^= i, f += e, g += i, h ^= g;
        __asm__ volatile(""
                         : "+r"(a), "+r"(b), "+r"(c), "+r"(d), "+r"(e), "+r"(f), "+r"(g), "+r"(h));
    }
    double took = (double)(bench_now() - start);
    canary_best = took < canary_best ? took : canary_best;
    return took;
}

struct bench_quiet bench_quiet(void)
{
    return (struct bench_quiet){
        .canary_ns = canary_best,
        .samples = samples_all,
        .part = samples_all == 0 ? 1 : (double)samples_quiet / (double)samples_all,
    };
}

/* --- rounds --- */

struct round {
    double ns;
    double ratio;
    double noise; /* what the canary took */
};

static int by_noise(const void *a, const void *b)
{
    double x = ((const struct round *)a)->noise, y = ((const struct round *)b)->noise;
    return (x > y) - (x < y);
}

/* The reference is sampled again next to each sample of each case, so that a round's ratio is of two
 * neighbours in time. */
static struct round measure_one(const struct bench_case *reference, const struct bench_case *c)
{
    struct round r;
    prepare(reference);
    if (c != reference) {
        prepare(c);
    }
    uint64_t interruptions = bench_interruptions();
    double before = canary();
    double base = ns_of_one(reference);
    r.ns = c == reference ? base : ns_of_one(c);
    r.ratio = r.ns / base;
    double after = canary();
    r.noise = before > after ? before : after;
    if (bench_interruptions() != interruptions) {
        r.noise += INTERRUPTED_NS;
    }
    return r;
}

/* Of the quiet rounds; if they are too few, of the quietest. */
static void conclude(struct bench_case *c, struct round *rounds, uint32_t count)
{
    double *values = calloc(count, sizeof(*values));
    uint32_t quiet = 0, least = count < QUIET_MIN ? count : QUIET_MIN;
    assert(values != NULL);
    qsort(rounds, count, sizeof(*rounds), by_noise);
    while (quiet < count && rounds[quiet].noise <= CANARY_SLACK * canary_best) {
        quiet++;
    }
    samples_all += count;
    samples_quiet += quiet;
    quiet = quiet < least ? least : quiet;
    for (uint32_t i = 0; i < quiet; i++) {
        values[i] = rounds[i].ratio;
    }
    c->ratio = bench_quantile(values, quiet, 0.5);
    for (uint32_t i = 0; i < quiet; i++) {
        values[i] = rounds[i].ns;
    }
    bench_summarize(c, values, quiet);
    free(values);
}

void bench_measure(struct bench_case *cases, uint32_t count, uint32_t rounds)
{
    assert(count != 0 && rounds % 2 == 1);
    struct round *all = calloc((size_t)count * rounds, sizeof(*all));
    assert(all != NULL);
    for (uint32_t i = 0; i < count; i++) {
        choose_n(&cases[i]);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < count; i++) {
            all[(size_t)i * rounds + round] = measure_one(&cases[0], &cases[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        conclude(&cases[i], &all[(size_t)i * rounds], rounds);
    }
    free(all);
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
