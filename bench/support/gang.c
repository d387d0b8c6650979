#include "gang.h"

#include <assert.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "timing.h"

#define LEAD_NS     200000u /* from the word to the start: time to wake up; more for each process: */
#define LEAD_ONE_NS 20000u
#define LOOK_NS                                                                                    \
    60000u /* before a step is due, looking at the clock begins, if there are cores for it */
#define CHUNK_NS  20000u /* about as long as it goes on without looking at the clock */
#define CHUNK_MAX 256u

struct place {
    _Alignas(64) uint64_t begun_ns;
    uint64_t ended_ns;
    uint64_t steps;
    struct histogram times;
};

struct gang {
    _Alignas(64) _Atomic uint32_t turn; /* futex */
    struct gang_order order;
    uint64_t start_ns;
    uint32_t processes;
    bool looks;                            /* a core for each */
    _Alignas(64) _Atomic uint32_t working; /* futex: those not yet done with the order */
    struct histogram all;
    pid_t pids[GANG_MAX];
    struct place places[GANG_MAX];
};

/* --- in the processes --- */

static void sleep_until(uint64_t due)
{
    const struct timespec t = {.tv_sec = (time_t)(due / 1000000000u),
                               .tv_nsec = (long)(due % 1000000000u)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void wait_until(const struct gang *gang, uint64_t due)
{
    uint64_t now = bench_now();
    if (!gang->looks) {
        if (now < due) {
            sleep_until(due);
        }
        return;
    }
    if (now + 2 * LOOK_NS < due) {
        sleep_until(due - LOOK_NS);
    }
    while (bench_now() < due) {
    }
}

static void run_count(struct place *place, const struct gang_order *order, void *context)
{
    for (uint64_t i = 0; i < order->count; i++) {
        order->step(context, i);
    }
    place->steps = order->count;
    place->ended_ns = bench_now();
}

/* The window is the same for all, and what ends after it does not count: else one that sleeps through its end, as a
 * peer that waits for a lock may, would stretch it for all others. */
static void run_time(const struct gang *gang, struct place *place, void *context)
{
    const struct gang_order *order = &gang->order;
    const uint64_t end = gang->start_ns + (uint64_t)(order->seconds * 1e9);
    uint64_t chunk = 1, i = 0, now = place->begun_ns;
    while (now < end) {
        place->steps = i;
        for (uint64_t c = 0; c < chunk; c++) {
            order->step(context, i++);
        }
        uint64_t after = bench_now();
        chunk = after - now < CHUNK_NS && chunk < CHUNK_MAX ? 2 * chunk : chunk;
        now = after;
    }
    place->begun_ns = gang->start_ns;
    place->ended_ns = end;
}

static void run_paced(const struct gang *gang, struct place *place, uint32_t number, void *context)
{
    const struct gang_order *order = &gang->order;
    const double apart_ns = 1e9 / order->rate;
    uint64_t end = gang->start_ns + (uint64_t)(order->seconds * 1e9), paced = order->paced, i = 0;
    if (paced == 0) {
        paced = order->count != 0 ? order->count : UINT64_MAX;
    }
    for (; i < paced; i++) {
        uint64_t due =
            gang->start_ns + (uint64_t)(((double)i * gang->processes + number) * apart_ns);
        if (order->count == 0 && due >= end) {
            break;
        }
        wait_until(gang, due);
        order->step(context, i);
        histogram_add(&place->times, bench_now() - due);
    }
    place->steps = i;
    place->ended_ns = bench_now();
    for (; i < order->count; i++) {
        order->step(context, i);
    }
}

static void obey(struct gang *gang, uint32_t number, void *context)
{
    struct place *place = &gang->places[number];
    const struct gang_order *order = &gang->order;
    memset(&place->times, 0, sizeof(place->times));
    place->steps = 0;
    wait_until(gang, gang->start_ns);
    place->begun_ns = bench_now();
    if (order->rate > 0) {
        run_paced(gang, place, number, context);
    } else if (order->count != 0) {
        run_count(place, order, context);
    } else {
        run_time(gang, place, context);
    }
}

static void done(struct gang *gang)
{
    if (atomic_fetch_sub(&gang->working, 1) == 1) {
        syscall(SYS_futex, &gang->working, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
}

static _Noreturn void serve(struct gang *gang, uint32_t number, gang_begin *begin, void *argument)
{
    uint32_t seen = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    void *context = begin(argument, number);
    done(gang);
    for (;;) {
        while (atomic_load(&gang->turn) == seen) {
            syscall(SYS_futex, &gang->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
        seen = atomic_load(&gang->turn);
        obey(gang, number, context);
        done(gang);
    }
}

/* --- the program --- */

/* A process that failed has said why; without it nobody would be waited for but for ever. */
static void wait_for_all(struct gang *gang)
{
    uint32_t left;
    while ((left = atomic_load(&gang->working)) != 0) {
        struct timespec patience = {.tv_sec = 1};
        syscall(SYS_futex, &gang->working, FUTEX_WAIT, left, &patience, NULL, 0);
        for (uint32_t i = 0; i < gang->processes; i++) {
            if (waitpid(gang->pids[i], NULL, WNOHANG) != 0) {
                abort();
            }
        }
    }
}

struct gang *gang_start(gang_begin *begin, void *argument, uint32_t processes)
{
    int cores[GANG_MAX];
    struct gang *gang =
        mmap(NULL, sizeof(*gang), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(gang != MAP_FAILED && processes <= GANG_MAX);
    gang->processes = processes;
    gang->looks = processes <= bench_cores(cores, GANG_MAX);
    atomic_store(&gang->working, processes);
    for (uint32_t i = 0; i < processes; i++) {
        pid_t pid = fork();
        assert(pid >= 0);
        if (pid == 0) {
            serve(gang, i, begin, argument);
        }
        gang->pids[i] = pid;
    }
    wait_for_all(gang);
    return gang;
}

void gang_stop(struct gang *gang)
{
    for (uint32_t i = 0; i < gang->processes; i++) {
        assert(gang->pids[i] > 0);
        kill(gang->pids[i], SIGKILL);
        waitpid(gang->pids[i], NULL, 0);
    }
    munmap(gang, sizeof(*gang));
}

struct gang_outcome gang_run(struct gang *gang, const struct gang_order *order)
{
    uint64_t first = UINT64_MAX, last = 0, steps = 0;
    gang->order = *order;
    gang->start_ns = bench_now() + LEAD_NS + gang->processes * LEAD_ONE_NS;
    atomic_store(&gang->working, gang->processes);
    atomic_fetch_add(&gang->turn, 1);
    syscall(SYS_futex, &gang->turn, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    wait_for_all(gang);
    memset(&gang->all, 0, sizeof(gang->all));
    for (uint32_t i = 0; i < gang->processes; i++) {
        const struct place *p = &gang->places[i];
        first = p->begun_ns < first ? p->begun_ns : first;
        last = p->ended_ns > last ? p->ended_ns : last;
        steps += p->steps;
        histogram_merge(&gang->all, &p->times);
    }
    return (struct gang_outcome){.rate = (double)steps / ((double)(last - first) / 1e9),
                                 .times = &gang->all};
}
