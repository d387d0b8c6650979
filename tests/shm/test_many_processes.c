/*
 * Eight processes make random calls of every kind on shared runs, while another one holds what it
 * can see from outside to PROTOCOL's rules; afterwards their logs are held against each other and
 * against what is in the store. Once in peace, and once with workers that are killed and stopped.
 *
 * RF_SEED=n repeats a run as far as that can be done, RF_SOAK=1 does ten times as much.
 */
#include <signal.h>
#include <sys/wait.h>
#include <unity.h>

#include "farm.h"

#define WORKERS  8u
#define STALL_NS (20 * RF_SECOND)

void setUp(void)
{
}

void tearDown(void)
{
    crew_store_drop();
}

struct job {
    struct farm *farm;
    uint32_t index;
};

static int work(void *argument)
{
    const struct job *job = argument;
    return farm_work(job->farm, job->index);
}

static int watch(void *argument)
{
    return farm_watch(argument);
}

static int audit(void *argument)
{
    return farm_audit(argument);
}

/* The store is there before anybody needs it. */
static int prepare(void *argument)
{
    struct farm *farm = argument;
    rf_close(crew_open(farm->store, &(rf_options){.create = true,
                                                  .max_shards = 60000,
                                                  .max_bytes = 256u << 20,
                                                  .max_runs = 64,
                                                  .max_members = 64}));
    return 0;
}

struct crowd {
    struct farm *farm;
    struct job jobs[WORKERS];
    pid_t pids[WORKERS];
    bool ended[WORKERS];
    uint32_t running;
    struct rf_prng prng;
    uint64_t moved_at;
    uint64_t ops;
    uint32_t kills, stops;
};

static void tell_all(const struct crowd *c)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        fprintf(stderr, "worker %u, %llu calls, %s:\n", i,
                (unsigned long long)atomic_load(&c->farm->logs[i]->ops),
                (const char *)atomic_load(&c->farm->logs[i]->doing));
        if (!c->ended[i]) {
            crew_tell(c->pids[i]);
        }
    }
}

static void end_all(struct crowd *c, pid_t watcher)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        if (!c->ended[i]) {
            crew_kill(c->pids[i]);
        }
    }
    crew_kill(watcher);
}

static bool stalled(struct crowd *c)
{
    uint64_t ops = 0, now = crew_ns();
    for (uint32_t i = 0; i < WORKERS; i++) {
        ops += atomic_load(&c->farm->logs[i]->ops);
    }
    if (ops != c->ops) {
        c->ops = ops;
        c->moved_at = now;
    }
    return now - c->moved_at > STALL_NS;
}

/* Looks after the workers that ended. Returns false if one ended badly. */
static bool collect(struct crowd *c)
{
    for (uint32_t i = 0; i < WORKERS; i++) {
        int status;
        if (c->ended[i] || waitpid(c->pids[i], &status, WNOHANG) != c->pids[i]) {
            continue;
        }
        c->ended[i] = true;
        c->running--;
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "worker %u ended with status %x while: %s\n", i, (unsigned)status,
                    (const char *)atomic_load(&c->farm->logs[i]->doing));
            return false;
        }
    }
    return true;
}

/* A worker is killed and replaced at once, or stopped for some milliseconds. */
static void disturb(struct crowd *c)
{
    uint32_t i = rf_prng_below(&c->prng, WORKERS);
    if (c->ended[i]) {
        return;
    }
    if (rf_prng_chance(&c->prng, 70)) {
        kill(c->pids[i], SIGKILL);
        int status = 0;
        waitpid(c->pids[i], &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
            c->ended[i] = true; /* it had just finished */
            c->running--;
            return;
        }
        c->kills++;
        c->pids[i] = crew_start(work, &c->jobs[i]);
        return;
    }
    kill(c->pids[i], SIGSTOP);
    crew_sleep_ms(1 + rf_prng_below(&c->prng, 30));
    kill(c->pids[i], SIGCONT);
    c->stops++;
}

static void run_farm(const char *label, uint64_t ops_each, bool disturbed)
{
    struct farm *farm = farm_make(crew_store(label), WORKERS, ops_each, disturbed);
    struct crowd c = {.farm = farm, .running = WORKERS, .prng = {farm->seed + 77}};
    printf("RF_SEED=%llu\n", (unsigned long long)farm->seed);
    TEST_ASSERT_EQUAL(0, crew_join(crew_start(prepare, farm), 20000));
    pid_t watcher = crew_start(watch, farm);
    for (uint32_t i = 0; i < WORKERS; i++) {
        c.jobs[i] = (struct job){farm, i};
        c.pids[i] = crew_start(work, &c.jobs[i]);
    }
    c.moved_at = crew_ns();
    bool good = true;
    while (good && c.running != 0) {
        crew_sleep_ms(disturbed ? rf_prng_below(&c.prng, 3) : 5);
        good = collect(&c);
        if (good && disturbed) {
            disturb(&c);
        }
        if (good && stalled(&c)) {
            tell_all(&c);
            end_all(&c, watcher);
            TEST_FAIL_MESSAGE("nothing moved for 20 seconds");
        }
    }
    atomic_store(&farm->stop, true);
    if (!good) {
        end_all(&c, watcher);
        TEST_FAIL_MESSAGE("a worker ended badly");
    }
    TEST_ASSERT_EQUAL_MESSAGE(0, crew_join(watcher, 30000), "the watcher saw something");
    TEST_ASSERT_EQUAL_MESSAGE(0, crew_join(crew_start(audit, farm), 120000), "the audit");
    printf("%u kills, %u stops\n", c.kills, c.stops);
    farm_drop(farm);
}

static void eight_processes_in_peace_keep_every_rule(void)
{
    run_farm("peace", crew_amount(200000, 2000000), false);
}

static void eight_processes_that_are_killed_and_stopped_keep_every_rule(void)
{
    run_farm("war", crew_amount(100000, 1000000), true);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(eight_processes_in_peace_keep_every_rule);
    RUN_TEST(eight_processes_that_are_killed_and_stopped_keep_every_rule);
    return UNITY_END();
}
