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

/* The stack lies elsewhere for each sample: with some places runs were slower as a whole, presumably
 * by their distance from other memory in the page, and no run must be stuck with such a one. */
static __attribute__((noinline)) uint64_t sample(const struct bench_case *c)
{
    static uint32_t places;
    char *room = __builtin_alloca(places++ * 13 % 64 * 64 + 16);
    bench_use(room);
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

/* Whether a sample of n calls is long enough by itself, and not because somebody took the core. */
static bool long_enough(const struct bench_case *c)
{
    for (int i = 0; i < 3; i++) {
        prepare(c);
        if (sample(c) < SAMPLE_NS) {
            return false;
        }
    }
    return true;
}

/* Doubles n until a sample is long enough; this is the warm-up as well. */
static void choose_n(struct bench_case *c)
{
    uint64_t most = c->n_max != 0 ? c->n_max : 1u << 30;
    if (c->n != 0 || most == 1) {
        c->n = c->n != 0 ? c->n : 1;
        prepare(c);
        sample(c);
        return;
    }
    c->n = 1;
    while (c->n < most && !long_enough(c)) {
        c->n = 2 * c->n < most ? 2 * c->n : most;
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
    c->rounds = count;
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
#define QUIET_WANTED   15u /* rounds, and up to so many times the rounds to get them: */
#define PATIENCE       20u
#define INTERRUPTED_NS 1e9 /* more than any canary */

static double canary_best = INFINITY, canary_fastest = INFINITY;
static bool canary_given;
static uint64_t samples_all, samples_quiet;

void bench_expect_canary(double ns)
{
    canary_best = ns;
    canary_given = true;
}

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
    canary_fastest = took < canary_fastest ? took : canary_fastest;
    if (!canary_given) {
        canary_best = canary_fastest;
    }
    return took;
}

struct bench_quiet bench_quiet(void)
{
    return (struct bench_quiet){
        .canary_ns = canary_fastest,
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

static bool is_quiet(const struct round *r)
{
    return r->noise <= CANARY_SLACK * canary_best;
}

/* Of the quiet rounds; if they are too few, of the quietest. */
static void conclude(struct bench_case *c, struct round *rounds, uint32_t count)
{
    double *values = calloc(count, sizeof(*values));
    uint32_t quiet = 0, least = count < QUIET_MIN ? count : QUIET_MIN;
    assert(values != NULL);
    qsort(rounds, count, sizeof(*rounds), by_noise);
    while (quiet < count && is_quiet(&rounds[quiet])) {
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

/* Whether each case has had its rounds, and enough quiet ones if it is known what quiet means. */
static bool enough(const struct round *all, uint32_t count, uint32_t stride, uint32_t done,
                   uint32_t rounds)
{
    if (done < rounds || !canary_given) {
        return done >= rounds;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t quiet = 0;
        for (uint32_t r = 0; r < done; r++) {
            quiet += is_quiet(&all[(size_t)i * stride + r]);
        }
        if (quiet < QUIET_WANTED) {
            return false;
        }
    }
    return true;
}

void bench_measure(struct bench_case *cases, uint32_t count, uint32_t rounds)
{
    const uint32_t most = canary_given ? PATIENCE * rounds : rounds;
    uint32_t done = 0;
    assert(count != 0 && rounds % 2 == 1);
    struct round *all = calloc((size_t)count * most, sizeof(*all));
    assert(all != NULL);
    for (uint32_t i = 0; i < count; i++) {
        choose_n(&cases[i]);
    }
    while (done < most && !enough(all, count, most, done, rounds)) {
        for (uint32_t i = 0; i < count; i++) {
            all[(size_t)i * most + done] = measure_one(&cases[0], &cases[i]);
        }
        done++;
    }
    for (uint32_t i = 0; i < count; i++) {
        conclude(&cases[i], &all[(size_t)i * most], done);
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
