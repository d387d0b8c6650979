/* Processes that do the same thing for so long, and how often they did it. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"

struct board {
    _Atomic uint32_t ready;
    _Atomic uint32_t go;
    _Atomic uint32_t stop;
    struct {
        _Atomic uint64_t steps;
        uint64_t apart[7];
    } done[PROCESSES];
};

static void live(struct board *board, const struct crowd_work *work, uint32_t number)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    void *context = work->begin(work->argument, number);
    atomic_fetch_add(&board->ready, 1);
    while (atomic_load(&board->go) == 0) {
        usleep(200);
    }
    uint64_t steps = 0;
    while (atomic_load_explicit(&board->stop, memory_order_relaxed) == 0) {
        work->step(context);
        atomic_store_explicit(&board->done[number].steps, ++steps, memory_order_relaxed);
    }
    _exit(0);
}

static uint64_t sum(struct board *board, uint32_t processes)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < processes; i++) {
        total += atomic_load_explicit(&board->done[i].steps, memory_order_relaxed);
    }
    return total;
}

double crowd_rate(const struct crowd_work *work, uint32_t processes, double seconds)
{
    struct board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(board != MAP_FAILED && processes <= PROCESSES);
    pid_t pids[PROCESSES];
    for (uint32_t i = 0; i < processes; i++) {
        pids[i] = fork();
        assert(pids[i] >= 0);
        if (pids[i] == 0) {
            live(board, work, i);
        }
    }
    while (atomic_load(&board->ready) < processes) {
        int status;
        usleep(1000);
        if (waitpid(-1, &status, WNOHANG) > 0) {
            abort(); /* it has said why */
        }
    }
    atomic_store(&board->go, 1);
    usleep((useconds_t)(seconds * 0.2e6)); /* warming up */
    uint64_t start = bench_now(), before = sum(board, processes);
    usleep((useconds_t)(seconds * 1e6));
    uint64_t after = sum(board, processes);
    double took = (double)(bench_now() - start) / 1e9;
    atomic_store(&board->stop, 1);
    for (uint32_t i = 0; i < processes; i++) {
        int status;
        waitpid(pids[i], &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            abort();
        }
    }
    munmap(board, sizeof(*board));
    return (double)(after - before) / took;
}
