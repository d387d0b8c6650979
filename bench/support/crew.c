#include "crew.h"

#include <assert.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

#define TURN_NS   1000000u /* short: most are undisturbed */
#define LEAD_NS   150000u  /* from the word to the start: time to wake up */
#define BATCH     16u      /* calls between two looks at the clock */
#define TRIES     10u
#define KINDS_MAX 8u

struct place {
    _Alignas(64) uint64_t calls;
    uint64_t took_ns;
    bool disturbed;
};

struct crew {
    _Alignas(64) _Atomic uint32_t turn; /* futex */
    uint32_t kind;
    uint32_t who;
    uint64_t start_ns;
    _Alignas(64) _Atomic uint32_t working; /* futex: workers not yet done with the turn */
    struct place places[CREW];
    pid_t pids[CREW];
};

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void take_turn(struct crew *crew, struct place *place, crew_work *work, void *context)
{
    uint64_t before = bench_interruptions(), now = bench_now(), calls = 0;
    uint64_t start = crew->start_ns;
    bool late = now > start;
    while (now < start) {
        now = bench_now();
    }
    uint64_t begun = now;
    while (now < begun + TURN_NS) {
        work(context, BATCH);
        calls += BATCH;
        now = bench_now();
    }
    place->calls = calls;
    place->took_ns = now - begun;
    place->disturbed = late || bench_interruptions() != before;
}

static void serve(struct crew *crew, uint32_t number, crew_work *const *work, void **contexts)
{
    uint32_t seen = 0;
    for (;;) {
        while (atomic_load(&crew->turn) == seen) {
            futex_wait(&crew->turn, seen);
        }
        seen = atomic_load(&crew->turn);
        if ((crew->who >> number & 1) == 0) {
            continue;
        }
        take_turn(crew, &crew->places[number], work[crew->kind], contexts[crew->kind]);
        if (atomic_fetch_sub(&crew->working, 1) == 1) {
            futex_wake(&crew->working);
        }
    }
}

struct crew *crew_start(crew_arrive *arrive, void *argument, crew_work *const *work, uint32_t kinds)
{
    int cores[CREW];
    if (bench_cores(cores, CREW) < CREW) {
        return NULL;
    }
    struct crew *crew =
        mmap(NULL, sizeof(*crew), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(crew != MAP_FAILED && kinds <= KINDS_MAX);
    atomic_store(&crew->working, CREW);
    for (uint32_t i = 0; i < CREW; i++) {
        pid_t pid = fork();
        assert(pid >= 0);
        if (pid == 0) {
            void *contexts[KINDS_MAX] = {NULL};
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            bench_pin_to(cores[i]);
            arrive(argument, i, contexts);
            if (atomic_fetch_sub(&crew->working, 1) == 1) {
                futex_wake(&crew->working);
            }
            serve(crew, i, work, contexts);
        }
        crew->pids[i] = pid;
    }
    return crew;
}

void crew_stop(struct crew *crew)
{
    for (uint32_t i = 0; i < CREW; i++) {
        assert(crew->pids[i] > 0);
        kill(crew->pids[i], SIGKILL);
        waitpid(crew->pids[i], NULL, 0);
    }
    munmap(crew, sizeof(*crew));
}

/* A worker that failed has said why; without it nobody would be waited for but for ever. */
static void wait_for_all(struct crew *crew)
{
    uint32_t left;
    while ((left = atomic_load(&crew->working)) != 0) {
        struct timespec patience = {.tv_sec = 1};
        syscall(SYS_futex, &crew->working, FUTEX_WAIT, left, &patience, NULL, 0);
        for (uint32_t i = 0; i < CREW; i++) {
            if (waitpid(crew->pids[i], NULL, WNOHANG) != 0) {
                abort();
            }
        }
    }
}

double crew_rate(struct crew *crew, uint32_t kind, uint32_t who)
{
    double rate = 0;
    bool disturbed = true;
    wait_for_all(crew);
    for (uint32_t tries = 0; disturbed && tries < TRIES; tries++) {
        crew->kind = kind;
        crew->who = who;
        crew->start_ns = bench_now() + LEAD_NS;
        atomic_store(&crew->working, (uint32_t)__builtin_popcount(who));
        atomic_fetch_add(&crew->turn, 1);
        futex_wake(&crew->turn);
        wait_for_all(crew);
        rate = 0;
        disturbed = false;
        for (uint32_t i = 0; i < CREW; i++) {
            if ((who >> i & 1) != 0) {
                rate += (double)crew->places[i].calls / (double)crew->places[i].took_ns;
                disturbed = disturbed || crew->places[i].disturbed;
            }
        }
    }
    return rate;
}
