/*
 * Eight processes make random calls of every kind on shared runs, while another one holds what it
 * can see from outside to PROTOCOL's rules; afterwards their logs are held against each other and
 * against what is in the store. Once in peace, and once with workers that are killed and stopped.
 *
 * RF_SEED=n repeats a run as far as that can be done, RF_SOAK=1 does ten times as much.
 */
#include <signal.h>
#include <string.h>
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

/* --- reading while runs go away --- */

struct churn {
    char store[128];
    _Atomic bool stop;
    _Atomic uint64_t reads;
    _Atomic uint64_t purges;
};

#define CHURN_SHARDS 64u
#define CHURN_TOKEN  12000u

/* Every byte of a token is the one that its key ends with. */
static int read_what_goes_away(void *argument)
{
    struct churn *churn = argument;
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    rf_store *store = crew_open(churn->store, &(rf_options){.read_only = true});
    struct rf_prng prng = {(uint64_t)getpid()};
    while (!atomic_load(&churn->stop)) {
        rf_shard_info info;
        rf_detail detail = {0};
        rf_status status = rf_get_shard(store, &tenant, rf_prng_chance(&prng, 75) ? 1 : 2,
                                        1 + rf_prng_below(&prng, CHURN_SHARDS), &info, scratch,
                                        sizeof(scratch), &detail);
        CREW_CHECK(status == RF_OK || status == RF_NOT_FOUND, "get_shard answered %d: %s",
                   (int)status, detail.where);
        if (status != RF_OK || info.cursor.key.data == NULL) {
            continue;
        }
        const uint8_t *token = info.cursor.token.data;
        uint64_t key = farm_number(info.cursor.key);
        CREW_CHECK(info.cursor.token.len == CHURN_TOKEN, "another token");
        /* Quickly, so that most of the time goes into the reading. */
        CREW_CHECK(token[0] == (uint8_t)key && memcmp(token, token + 1, CHURN_TOKEN - 1) == 0,
                   "a torn token");
        atomic_fetch_add(&churn->reads, 1);
    }
    rf_close(store);
    return 0;
}

static void make_churned(rf_store *store, uint64_t run)
{
    rf_tenant tenant = farm_tenant(1);
    rf_shard_input inputs[CHURN_SHARDS];
    struct farm_key keys[CHURN_SHARDS + 1];
    rf_run_config config = {.lease_duration = 60 * RF_SECOND};
    for (uint64_t i = 0; i <= CHURN_SHARDS; i++) {
        keys[i] = farm_key((i + 1) << 8);
    }
    for (uint32_t i = 0; i < CHURN_SHARDS; i++) {
        inputs[i] = (rf_shard_input){
            .shard = i + 1, .spec = {.start = {keys[i].bytes, 8}, .end = {keys[i + 1].bytes, 8}}};
    }
    CREW_CHECK(rf_create_run_with_shards(store, rf_now(store), &tenant, run, &config, inputs,
                                         CHURN_SHARDS, rf_new_op(store), NULL) == RF_OK,
               "create");
}

static void fill_churned(rf_store *store, uint64_t run, uint8_t mark)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    uint8_t token[CHURN_TOKEN];
    memset(token, mark, sizeof(token));
    for (uint64_t i = 1; i <= CHURN_SHARDS; i++) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        struct farm_key key = farm_key(i << 8 | mark);
        rf_cursor cursor = {.key = {key.bytes, 8}, .token = {token, sizeof(token)}};
        CREW_CHECK(rf_acquire(store, rf_now(store), &tenant, run, i, 1, RF_BOUND, &grant, NULL) ==
                       RF_OK,
                   "acquire");
        CREW_CHECK(rf_complete(store, rf_now(store), &tenant, &grant.lease, &cursor,
                               rf_new_op(store), NULL) == RF_OK,
                   "complete");
    }
}

static void end_and_purge(rf_store *store, struct churn *churn, uint64_t run)
{
    rf_tenant tenant = farm_tenant(1);
    CREW_CHECK(rf_complete_run(store, rf_now(store), &tenant, run, rf_new_op(store), NULL) == RF_OK,
               "end");
    CREW_CHECK(rf_purge_run(store, rf_now(store), &tenant, run, NULL) == RF_OK, "purge");
    atomic_fetch_add(&churn->purges, 1);
}

/* A reader is stopped, with luck in the middle of a reading; its run goes away, and the next one
 * writes into the same blocks, since there are hardly any others. */
static void what_is_read_while_its_run_is_purged_is_whole_or_not_found(void)
{
    enum { READERS = 4 };
    struct churn *churn = crew_shared(sizeof(*churn));
    pid_t readers[READERS];
    struct rf_prng prng = {rf_env_number("RF_SEED", 1)};
    snprintf(churn->store, sizeof(churn->store), "%s", crew_store("churn"));
    rf_store *store =
        crew_open(churn->store, &(rf_options){.create = true,
                                              .max_shards = 1000,
                                              .max_bytes = CHURN_SHARDS * 16384u + 65536u,
                                              .max_runs = 8,
                                              .max_members = 16});
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = crew_start(read_what_goes_away, churn);
    }
    uint64_t until = crew_ns() + crew_amount(1200, 30000) * RF_MILLISECOND;
    while (crew_ns() < until) {
        unsigned i = rf_prng_below(&prng, READERS);
        make_churned(store, 1);
        make_churned(store, 2); /* in records of its own: only the blocks are taken over */
        fill_churned(store, 1, (uint8_t)(1 + rf_prng_below(&prng, 100)));
        usleep(rf_prng_below(&prng, 300));
        kill(readers[i], SIGSTOP);
        end_and_purge(store, churn, 1);
        fill_churned(store, 2, (uint8_t)(101 + rf_prng_below(&prng, 100)));
        kill(readers[i], SIGCONT);
        end_and_purge(store, churn, 2);
    }
    atomic_store(&churn->stop, true);
    for (unsigned i = 0; i < READERS; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(readers[i], 20000));
    }
    printf("%llu purges, %llu readings\n", (unsigned long long)atomic_load(&churn->purges),
           (unsigned long long)atomic_load(&churn->reads));
    rf_close(store);
    crew_unshare(churn, sizeof(*churn));
}

/* --- S9 --- */

struct cool {
    char store[128];
    uint64_t cooldown;
    uint32_t claims_each;
    _Atomic uint32_t count;
    uint64_t claimed_at[4096];
};

/* Several processes claim in the name of the same few workers. */
static int claim_for_one_worker(void *argument)
{
    struct cool *cool = argument;
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    rf_store *store = crew_open(cool->store, &(rf_options){0});
    for (uint32_t n = 0; n < cool->claims_each;) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_result result = {0};
        uint64_t now = rf_now(store);
        rf_status status = rf_claim(store, now, &tenant, 1, 42, RF_BOUND, 0, &grant, &result);
        if (status == RF_THROTTLED) {
            CREW_CHECK(result.detail.retry_after != 0, "throttled for no time");
            continue;
        }
        CREW_CHECK(status == RF_OK, "a claim answered %d", (int)status);
        cool->claimed_at[atomic_fetch_add(&cool->count, 1)] = now;
        n++;
        CREW_CHECK(rf_release(store, rf_now(store), &tenant, &grant.lease, NULL, rf_new_op(store),
                              NULL) == RF_OK,
                   "release");
    }
    rf_close(store);
    return 0;
}

static int by_time(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void two_claims_of_one_worker_are_a_cooldown_apart(void)
{
    struct cool *cool = crew_shared(sizeof(*cool));
    struct farm_key keys[9];
    rf_shard_input inputs[8];
    rf_tenant tenant = farm_tenant(1);
    rf_run_config config = {.lease_duration = 60 * RF_SECOND};
    pid_t pids[4];
    snprintf(cool->store, sizeof(cool->store), "%s", crew_store("cool"));
    cool->cooldown = RF_MILLISECOND;
    cool->claims_each = 100;
    rf_store *store = crew_open(cool->store, &(rf_options){.create = true,
                                                           .max_shards = 100,
                                                           .max_runs = 2,
                                                           .max_members = 16,
                                                           .claim_cooldown = cool->cooldown});
    for (uint32_t i = 0; i < 9; i++) {
        keys[i] = farm_key(i + 1);
    }
    for (uint32_t i = 0; i < 8; i++) {
        inputs[i] = (rf_shard_input){
            .shard = i + 1, .spec = {.start = {keys[i].bytes, 8}, .end = {keys[i + 1].bytes, 8}}};
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, 1, &config,
                                                       inputs, 8, 1, NULL));
    for (unsigned i = 0; i < 4; i++) {
        pids[i] = crew_start(claim_for_one_worker, cool);
    }
    for (unsigned i = 0; i < 4; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(pids[i], 60000));
    }
    rf_close(store);
    uint32_t count = atomic_load(&cool->count);
    TEST_ASSERT_EQUAL_UINT32(400, count);
    qsort(cool->claimed_at, count, sizeof(uint64_t), by_time);
    for (uint32_t i = 1; i < count; i++) {
        TEST_ASSERT_GREATER_OR_EQUAL_UINT64(cool->cooldown,
                                            cool->claimed_at[i] - cool->claimed_at[i - 1]);
    }
    crew_unshare(cool, sizeof(*cool));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(eight_processes_in_peace_keep_every_rule);
    RUN_TEST(eight_processes_that_are_killed_and_stopped_keep_every_rule);
    RUN_TEST(what_is_read_while_its_run_is_purged_is_whole_or_not_found);
    RUN_TEST(two_claims_of_one_worker_are_a_cooldown_apart);
    return UNITY_END();
}
