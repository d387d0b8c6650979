/* There and back between two processes on two cores: through a line of cache that both look at, and
 * through futexes on which they sleep. And how late a sleeper is woken by the clock. */
#include "floor.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"

#define SAMPLES     51u
#define LOOK_TRIPS  20000u
#define SLEEP_TRIPS 1000u
#define SLEEPS      2000u
#define SLEEP_NS    200000u

struct table_tennis {
    _Alignas(128) _Atomic uint32_t there;
    _Alignas(128) _Atomic uint32_t back;
};

typedef void await(_Atomic uint32_t *word, uint32_t value);
typedef void tell(_Atomic uint32_t *word, uint32_t value);

static void await_looking(_Atomic uint32_t *word, uint32_t value)
{
    while (atomic_load_explicit(word, memory_order_acquire) != value) {
    }
}

static void tell_looking(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

static void await_sleeping(_Atomic uint32_t *word, uint32_t value)
{
    uint32_t seen;
    while ((seen = atomic_load(word)) != value) {
        syscall(SYS_futex, word, FUTEX_WAIT, seen, NULL, NULL, 0);
    }
}

static void tell_sleeping(_Atomic uint32_t *word, uint32_t value)
{
    atomic_store(word, value);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static struct bench_case rally(const char *name, const char *facts, await *wait_for, tell *say,
                               uint32_t trips)
{
    struct bench_case row = {.name = name, .facts = facts};
    int cores[2];
    double values[SAMPLES];
    uint32_t ball = 0;
    uint32_t found = bench_cores(cores, 2);
    struct table_tennis *t =
        mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(t != MAP_FAILED && found == 2);
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bench_pin_to(cores[1]);
        for (uint32_t i = 1;; i++) {
            wait_for(&t->there, i);
            say(&t->back, i);
        }
    }
    bench_pin_to(cores[0]);
    for (uint32_t s = 0; s < SAMPLES; s++) {
        uint64_t start = bench_now();
        for (uint32_t i = 0; i < trips; i++) {
            ball++;
            say(&t->there, ball);
            wait_for(&t->back, ball);
        }
        values[s] = (double)(bench_now() - start) / trips;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    bench_unpin();
    munmap(t, sizeof(*t));
    bench_summarize(&row, values, SAMPLES);
    return row;
}

/* As the open-loop load sleeps: to an absolute time, with the smallest slack. */
static void measure_timer(void)
{
    static struct histogram late;
    prctl(PR_SET_TIMERSLACK, 1);
    uint64_t due = bench_now() + SLEEP_NS;
    for (uint32_t i = 0; i < SLEEPS; i++, due += SLEEP_NS) {
        const struct timespec t = {.tv_sec = (time_t)(due / 1000000000u),
                                   .tv_nsec = (long)(due % 1000000000u)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        uint64_t now = bench_now();
        histogram_add(&late, now - due);
        due = now > due + SLEEP_NS ? now : due;
    }
    struct bench_case rows[] = {
        {.name = "timer: woken too late by, median",
         .value = (double)histogram_quantile(&late, 0.5),
         .facts = "\"floor\":\"timer\""},
        {.name = "timer: woken too late by, 99%", .value = (double)histogram_quantile(&late, 0.99)},
    };
    report(rows, COUNT(rows));
}

void measure_cross(void)
{
    int cores[2];
    if (!bench_wanted(&options, "cross")) {
        return;
    }
    if (bench_cores(cores, 2) == 2) {
        struct bench_case rows[] = {
            rally("cross-core round trip, both looking", "\"floor\":\"cross\"", await_looking,
                  tell_looking, LOOK_TRIPS),
            rally("futex round trip, both sleeping", "\"floor\":\"futex\"", await_sleeping,
                  tell_sleeping, SLEEP_TRIPS),
        };
        report(rows, COUNT(rows));
    } else {
        bench_print_skipped(stdout, &options, "floor", "cross-core and futex round trip",
                            "there is one core only");
    }
    measure_timer();
}
