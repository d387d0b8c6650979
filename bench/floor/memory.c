/* Bytes a second between a core and memory, and of all cores together. */
#include "floor.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES   (128u << 20) /* far more than any cache */
#define SAMPLES 7u
#define CORES   64

enum work { READ, WRITE, COPY, WORKS };

static uint64_t read_all(const uint64_t *from)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (size_t i = 0; i < BYTES / sizeof(*from); i += 4) {
        a += from[i];
        b += from[i + 1];
        c += from[i + 2];
        d += from[i + 3];
    }
    return a + b + c + d;
}

static void touch(enum work work, uint64_t *from, uint64_t *to)
{
    if (work == READ) {
        uint64_t sum = read_all(from);
        bench_use(sum);
    } else if (work == WRITE) {
        memset(to, 1, BYTES);
        bench_use(to);
    } else {
        memcpy(to, from, BYTES);
        bench_use(to);
    }
}

/* GB a second of `count` processes, each on a core and with memory of its own. */
static double bandwidth(enum work work, const int *cores, uint32_t count)
{
    struct meeting {
        _Atomic uint32_t ready;
        uint64_t ended[CORES];
        uint64_t begun[CORES];
    } *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(m != MAP_FAILED);
    for (uint32_t i = 0; i < count; i++) {
        pid_t pid = fork();
        assert(pid >= 0);
        if (pid == 0) {
            bench_pin_to(cores[i]);
            uint64_t *from = aligned_alloc(4096, BYTES), *to = aligned_alloc(4096, BYTES);
            assert(from != NULL && to != NULL);
            memset(from, 1, BYTES);
            memset(to, 2, BYTES);
            atomic_fetch_add(&m->ready, 1);
            while (atomic_load(&m->ready) < count) {
            }
            m->begun[i] = bench_now();
            touch(work, from, to);
            m->ended[i] = bench_now();
            _exit(0);
        }
    }
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t i = 0; i < count; i++) {
        int status;
        pid_t gone = wait(&status);
        assert(gone > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        first = m->begun[i] < first ? m->begun[i] : first;
        last = m->ended[i] > last ? m->ended[i] : last;
    }
    munmap(m, sizeof(*m));
    return (double)BYTES * count / (double)(last - first);
}

void measure_memory(void)
{
    static const char *const names[2][WORKS] = {
        {"memory read, one core", "memory write, one core", "memory copy, one core"},
        {"memory read, all cores", "memory write, all cores", "memory copy, all cores"},
    };
    int cores[CORES];
    if (!bench_wanted(&options, "memory")) {
        return;
    }
    uint32_t found = bench_cores(cores, CORES);
    for (uint32_t all = 0; all < (found > 1 ? 2u : 1u); all++) {
        struct bench_case rows[WORKS];
        for (uint32_t w = 0; w < WORKS; w++) {
            double values[SAMPLES];
            for (uint32_t s = 0; s < SAMPLES; s++) {
                values[s] = bandwidth((enum work)w, cores, all != 0 ? found : 1);
            }
            rows[w] = (struct bench_case){.name = names[all][w], .unit = "GB/s"};
            bench_summarize(&rows[w], values, SAMPLES);
        }
        report(rows, WORKS);
    }
}
