/* Worker processes that loop at the same time, and how many steps they get done. */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers.h"

#define WARM_SHARE 0.2 /* of the shards: no more than this goes into warming up, */
#define USED_SHARE 0.8 /* and when so many are used up, the window ends */
#define LEASE_MS   60000u

struct board {
    _Atomic uint32_t ready;
    _Atomic uint32_t go;
    _Atomic uint32_t stop;
    struct {
        _Alignas(64) _Atomic uint64_t steps;
        _Atomic uint64_t shards;
    } of[WORKERS_MAX];
};

void *shared_memory(size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        fail("no memory to share: %s", strerror(errno));
    }
    return at;
}

static pid_t fork_child(void)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        fail("fork: %s", strerror(errno));
    }
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static bool ended_well(pid_t pid)
{
    int status = 0;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void await(pid_t pid)
{
    if (!ended_well(pid)) {
        _exit(2); /* it has said why */
    }
}

bool attempt_apart(void (*work)(void *argument), void *argument, unsigned seconds)
{
    pid_t pid = fork_child();
    if (pid == 0) {
        alarm(seconds);
        work(argument);
        exit(0);
    }
    return ended_well(pid);
}

void apart(void (*work)(void *argument), void *argument)
{
    if (!attempt_apart(work, argument, 0)) {
        _exit(2); /* it has said why */
    }
}

/* --- a worker --- */

static void step_done(struct board *board, uint32_t number)
{
    uint64_t steps = atomic_load_explicit(&board->of[number].steps, memory_order_relaxed);
    atomic_store_explicit(&board->of[number].steps, steps + 1, memory_order_relaxed);
}

static void loop(const struct peer *peer, void *worker, struct board *board, uint32_t number)
{
    uint8_t key[FARM_KEY_LEN];
    struct claim claim = {0};
    if (peer->claim(worker, &claim) != ACCEPTED) {
        fail("%s has run dry within the window", peer->name);
    }
    step_done(board, number);
    farm_key(key, claim.index, 0);
    if (claim.start != NULL && memcmp(claim.start, key, FARM_KEY_LEN) != 0) {
        fail("%s: shard %u does not begin where it should", peer->name, claim.index);
    }
    for (uint64_t i = 1; i <= CHECKPOINTS; i++) {
        farm_key(key, claim.index, i);
        if (peer->checkpoint(worker, key) != ACCEPTED) {
            fail("%s: checkpoint %u of shard %u was refused", peer->name, (unsigned)i, claim.index);
        }
        step_done(board, number);
    }
    farm_key(key, claim.index, CHECKPOINTS + 1);
    if (peer->complete(worker, key) != ACCEPTED) {
        fail("%s: completing shard %u was refused", peer->name, claim.index);
    }
    step_done(board, number);
    atomic_fetch_add_explicit(&board->of[number].shards, 1, memory_order_relaxed);
}

static _Noreturn void live(const struct peer *peer, struct board *board, uint32_t shards,
                           uint32_t number, uint32_t workers)
{
    void *worker = peer->join(number, workers, shards);
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->go) == 0) {
        usleep(200);
    }
    while (atomic_load_explicit(&board->stop, memory_order_relaxed) == 0) {
        loop(peer, worker, board, number);
    }
    peer->leave(worker);
    exit(0);
}

/* --- all of them --- */

static uint64_t steps_of_all(struct board *board)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < WORKERS_MAX; i++) {
        sum += atomic_load_explicit(&board->of[i].steps, memory_order_relaxed);
    }
    return sum;
}

static void see_that_all_live(const struct peer *peer, const pid_t *pids, uint32_t workers)
{
    for (uint32_t i = 0; i < workers; i++) {
        if (waitpid(pids[i], NULL, WNOHANG) != 0) {
            fail("%s: a worker has ended", peer->name);
        }
    }
}

/* Until the time is over or so many steps are done; the steps at the end, and when that was. */
static uint64_t watch(const struct peer *peer, struct board *board, const pid_t *pids,
                      uint32_t workers, double seconds, double most, uint64_t *ended)
{
    const uint64_t until = bench_now() + (uint64_t)(seconds * 1e9);
    uint64_t steps, now;
    do {
        usleep(1000);
        steps = steps_of_all(board);
        now = bench_now();
        see_that_all_live(peer, pids, workers);
    } while (now < until && (double)steps < most);
    *ended = now;
    return steps;
}

static void start_workers(const struct peer *peer, struct board *board, uint32_t shards,
                          pid_t *pids, uint32_t workers)
{
    for (uint32_t i = 0; i < workers; i++) {
        pids[i] = fork_child();
        if (pids[i] == 0) {
            live(peer, board, shards, i, workers);
        }
    }
    while (atomic_load(&board->ready) < workers) {
        usleep(1000);
        see_that_all_live(peer, pids, workers);
    }
    atomic_store(&board->go, 1);
}

struct errand {
    const struct peer *peer;
    uint32_t shards;
    struct tally tally;
};

static void fill(void *argument)
{
    const struct errand *e = argument;
    e->peer->fill(e->shards, LEASE_MS);
}

static void count(void *argument)
{
    struct errand *e = argument;
    e->tally = e->peer->tally(e->shards);
}

static void compare_with_workers(const struct errand *of, struct board *board)
{
    const struct peer *peer = of->peer;
    struct errand *errand = shared_memory(sizeof(*errand));
    uint64_t shards = 0;
    for (uint32_t i = 0; i < WORKERS_MAX; i++) {
        shards += atomic_load(&board->of[i].shards);
    }
    *errand = *of;
    apart(count, errand);
    if (errand->tally.done != shards || errand->tally.held != 0) {
        fail("%s has %llu done shards and %llu held ones; its workers completed %llu and hold none",
             peer->name, (unsigned long long)errand->tally.done,
             (unsigned long long)errand->tally.held, (unsigned long long)shards);
    }
    munmap(errand, sizeof(*errand));
}

struct outcome fleet_measure(const struct peer *peer, const struct setting *setting,
                             uint32_t workers, struct window window)
{
    struct board *board = shared_memory(sizeof(*board));
    const uint32_t shards = (uint32_t)(setting->shards * window.shards_part);
    struct errand errand = {.peer = peer, .shards = shards};
    const double all = (double)shards * STEPS;
    pid_t pids[WORKERS_MAX];
    uint64_t begun, ended;
    assert(workers <= WORKERS_MAX);
    apart(fill, &errand);
    sync(); /* what was written before is not for the window to wait for */
    start_workers(peer, board, shards, pids, workers);
    uint64_t before = watch(peer, board, pids, workers, window.warm_s, WARM_SHARE * all, &begun);
    uint64_t after = watch(peer, board, pids, workers, window.timed_s, USED_SHARE * all, &ended);
    atomic_store(&board->stop, 1);
    for (uint32_t i = 0; i < workers; i++) {
        await(pids[i]);
    }
    compare_with_workers(&errand, board);
    struct outcome outcome = {.seconds = (double)(ended - begun) / 1e9};
    outcome.steps_per_s = (double)(after - before) / outcome.seconds;
    munmap(board, sizeof(*board));
    return outcome;
}
