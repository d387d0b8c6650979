/* From kill -9 of a holder to the next worker, blocked in rf_claim, holding the lease. */
#include "histogram.h"
#include "region.h"

#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KILLS       1000u
#define KILLS_QUICK 101u
#define PATIENCE_NS (10 * RF_SECOND)

/* What a worker that got the shard tells the program. */
struct news {
    _Atomic uint32_t heard; /* futex: how many got it so far */
    uint64_t at_ns;
    uint64_t fence;
};

static void wait_news(struct news *news, uint32_t count)
{
    uint64_t give_up = bench_now() + PATIENCE_NS;
    uint32_t seen;
    while ((seen = atomic_load(&news->heard)) < count) {
        struct timespec second = {.tv_sec = 1};
        syscall(SYS_futex, &news->heard, FUTEX_WAIT, seen, &second, NULL, 0);
        if (bench_now() > give_up) {
            fprintf(stderr, "kill: nobody took the shard over\n");
            abort();
        }
    }
}

/* Waits for the shard, tells, and works on it until it is killed, most likely in the middle of an
 * operation. */
static void work(struct news *news, uint64_t worker)
{
    static struct farm farm;
    static _Alignas(8) uint8_t scratch[4096];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    farm_open(&farm, "kill", 0, false);
    rf_status status = rf_claim(farm.store, rf_now(farm.store), &farm.tenant, RUN_SCRATCH, worker,
                                RF_BOUND, RF_FOREVER, &grant, NULL);
    uint64_t now = bench_now();
    if (status != RF_OK) {
        fprintf(stderr, "rf_claim: %s\n", rf_status_name(status));
    } else {
        news->at_ns = now;
        news->fence = grant.lease.fence;
        atomic_fetch_add(&news->heard, 1);
        syscall(SYS_futex, &news->heard, FUTEX_WAKE, 1, NULL, NULL, 0);
        farm.now = rf_now(farm.store);
        struct lot *lot = make_lot(&farm, &grant.lease, 1);
        for (;;) {
            run_checkpoint(lot, LOT_AHEAD);
        }
    }
    _exit(1);
}

static pid_t start_worker(struct news *news, uint64_t worker)
{
    pid_t pid = fork();
    assert(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bench_unpin();
        work(news, worker);
    }
    return pid;
}

/* Until a worker is asleep in rf_claim, and a little longer. */
static void wait_waiter(struct farm *farm)
{
    rf_capacity capacity = {0};
    while (capacity.waiting == 0) {
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
        rf_status status =
            rf_get_capacity(farm->store, &farm->tenant, RUN_SCRATCH, &capacity, NULL);
        assert(status == RF_OK);
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void bury(pid_t pid)
{
    int how = 0;
    pid_t gone = waitpid(pid, &how, 0);
    assert(gone == pid && WIFSIGNALED(how));
}

void measure_kill(void)
{
    static struct farm farm;
    if (!bench_wanted(&options, "kill")) {
        return;
    }
    const uint32_t kills = options.quick ? KILLS_QUICK : KILLS;
    static struct histogram times; /* ns */
    struct news *news =
        mmap(NULL, sizeof(*news), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert(news != MAP_FAILED);
    struct farm_manifest manifest = farm_manifest(1);
    farm_open(&farm, "kill", 1000, false);
    farm_register(&farm, RUN_SCRATCH, &manifest);
    farm_manifest_free(&manifest);

    pid_t holder = start_worker(news, 0);
    wait_news(news, 1);
    for (uint32_t i = 0; i < kills; i++) {
        uint64_t fence = news->fence;
        pid_t next = start_worker(news, i + 1);
        wait_waiter(&farm);
        uint64_t killed_ns = bench_now();
        kill(holder, SIGKILL);
        wait_news(news, i + 2);
        assert(news->fence > fence);
        histogram_add(&times, news->at_ns - killed_ns);
        bury(holder);
        holder = next;
    }
    kill(holder, SIGKILL);
    bury(holder);
    farm_close(&farm);

    static const struct part {
        const char *name;
        double percent;
    } parts[] = {
        {"kill -9 to the next holder, 10%", 10},     {"kill -9 to the next holder, median", 50},
        {"kill -9 to the next holder, 90%", 90},     {"kill -9 to the next holder, 99%", 99},
        {"kill -9 to the next holder, 99.9%", 99.9}, {"kill -9 to the next holder, longest", 100},
    };
    struct bench_case rows[COUNT(parts)];
    char facts[COUNT(parts)][64];
    for (uint32_t i = 0; i < COUNT(parts); i++) {
        snprintf(facts[i], sizeof(facts[i]), "\"failover\":%g,\"kills\":%u", parts[i].percent,
                 kills);
        rows[i] = (struct bench_case){
            .name = parts[i].name,
            .unit = "us",
            .facts = facts[i],
            .value = (double)histogram_quantile(&times, parts[i].percent / 100) / 1000,
            .kind = parts[i].percent == 50 ? BENCH_VALUE_BELOW : BENCH_NO_GOAL,
            .goal = 1000,
        };
    }
    report(rows, COUNT(rows));
    munmap(news, sizeof(*news));
}
