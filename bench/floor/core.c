/* On one core: the hash, a lock that nobody else wants, the copy of a record, the clock. */
#include "floor.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "bare.h"
#include "layout.h"

#define RECORDS 100000u
#define COLD    512u

static void run_lock(void *context, uint64_t n)
{
    _Atomic uint32_t *word = context;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t unlocked = 0;
        bool taken = atomic_compare_exchange_strong_explicit(
            word, &unlocked, 1, memory_order_acq_rel, memory_order_relaxed);
        assert(taken);
        uint32_t was = atomic_exchange_explicit(word, 0, memory_order_release);
        bench_use(was);
    }
}

/* Records by the position at which they are visited. */
struct shelf {
    struct rf_rec *records;
    uint32_t *order;
    uint32_t count;
    uint32_t at;
    struct rf_rec copy;
};

static void run_copy(void *context, uint64_t n)
{
    struct shelf *s = context;
    for (uint64_t i = 0; i < n; i++) {
        memcpy(&s->copy, &s->records[s->order[s->at]], sizeof(s->copy));
        bench_use(&s->copy);
        s->at = s->at + 1 == s->count ? 0 : s->at + 1;
    }
}

static struct shelf *make_shelf(uint32_t count)
{
    struct shelf *s = calloc(1, sizeof(*s));
    assert(s != NULL);
    s->records = calloc(count, sizeof(*s->records));
    s->order = calloc(count, sizeof(*s->order));
    assert(s->records != NULL && s->order != NULL);
    s->count = count;
    memset(s->records, 1, count * sizeof(*s->records)); /* real pages, not the zero page */
    uint64_t state = 1;
    for (uint32_t i = 0; i < count; i++) {
        s->order[i] = i;
    }
    for (uint32_t i = count - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t j = (uint32_t)((state >> 33) % (i + 1)), kept = s->order[i];
        s->order[i] = s->order[j];
        s->order[j] = kept;
    }
    return s;
}

static void free_shelf(struct shelf *s)
{
    free(s->records);
    free(s->order);
    free(s);
}

static void run_clock(void *context, uint64_t n)
{
    struct timespec t;
    for (uint64_t i = 0; i < n; i++) {
        clock_gettime(*(const clockid_t *)context, &t);
        bench_use(&t);
    }
}

void measure_core(void)
{
    static struct bare bare;
    static _Atomic uint32_t word;
    static clockid_t monotonic = CLOCK_MONOTONIC, boottime = CLOCK_BOOTTIME;
    uint8_t key[BARE_KEY_LEN];
    memset(key, 'k', sizeof(key));
    bare_init(&bare, key);
    struct shelf *hot = make_shelf(16), *all = make_shelf(RECORDS);
    struct bench_case cases[] = {
        {.name = bare_name(), .run = bare_run, .context = &bare, .facts = "\"floor\":\"h\""},
        {.name = "lock + unlock of a word, nobody else",
         .run = run_lock,
         .context = &word,
         .facts = "\"floor\":\"lock\""},
        {.name = "copy of a record (896 bytes), hot",
         .run = run_copy,
         .context = hot,
         .facts = "\"floor\":\"copy\""},
        {.name = "copy of a record, random of 100,000",
         .run = run_copy,
         .context = all,
         .n = COLD,
         .facts = "\"floor\":\"copy_random\""},
        {.name = "clock, CLOCK_MONOTONIC", .run = run_clock, .context = &monotonic},
        {.name = "clock, CLOCK_BOOTTIME (rf_now)",
         .run = run_clock,
         .context = &boottime,
         .facts = "\"floor\":\"clock\""},
    };
    uint32_t count = COUNT(cases);
    if (!bench_wanted(&options, "core")) {
        count = bench_select(&options, cases, count);
    }
    if (count > 1) {
        bench_measure(cases, count, options.rounds);
        report(cases, count);
    }
    free_shelf(hot);
    free_shelf(all);
}
