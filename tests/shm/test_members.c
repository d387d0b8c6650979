/*
 * Many members: a thousand at once join, work and die, and what they had comes back by itself, soon
 * and completely, whoever else is stopped or killed meanwhile.
 */
#include <dirent.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unity.h>

#include "farm.h"
#include "handle.h"
#include "lock.h"
#include "queue.h"

#define CROWD   400u
#define RUN     3u
#define SOON_MS 8000u /* very generous; what it took is printed */

void setUp(void)
{
}

void tearDown(void)
{
    crew_store_drop();
}

/* --- processes that hold shards with many handles --- */

struct camp {
    char store[128];
    uint32_t handles; /* of each process */
    uint32_t shards;
    uint32_t count;
    _Atomic uint32_t settled; /* processes that hold all that they are to hold */
    _Atomic uint32_t round;   /* raised by the test: give up one shard and claim one */
    _Atomic uint32_t rounds_done;
    _Atomic uint64_t ticket;
    pid_t pids[CROWD];
    rf_store *boss;
};

static rf_tenant camp_tenant(void)
{
    return farm_tenant(1);
}

static void claim_one(rf_store *store, uint64_t worker, rf_lease *lease)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = camp_tenant();
    rf_result result = {0};
    rf_status status = rf_claim(store, rf_now(store), &tenant, RUN, worker, RF_BOUND,
                                30 * RF_SECOND, &grant, &result);
    CREW_CHECK(status == RF_OK, "a claim answered %d: %s", (int)status, result.detail.where);
    *lease = grant.lease;
}

/* A thousand and one handles on two cores: a lock holder may not run for a while. */
static int live_in_camp(void *argument)
{
    struct camp *camp = argument;
    rf_store **stores = calloc(camp->handles, sizeof(rf_store *));
    rf_lease *leases = calloc(camp->handles, sizeof(rf_lease));
    rf_tenant tenant = camp_tenant();
    uint32_t done = atomic_load(&camp->round);
    CREW_CHECK(stores != NULL && leases != NULL, "memory");
    for (uint32_t i = 0; i < camp->handles; i++) {
        stores[i] = crew_open(camp->store, &(rf_options){.busy_timeout = 20 * RF_SECOND});
        claim_one(stores[i], atomic_fetch_add(&camp->ticket, 17), &leases[i]);
    }
    atomic_fetch_add(&camp->settled, 1);
    for (;;) {
        crew_sleep_ms(5);
        if (atomic_load(&camp->round) == done) {
            continue;
        }
        done++;
        for (uint32_t i = 0; i < camp->handles; i++) {
            rf_status status = rf_release(stores[i], rf_now(stores[i]), &tenant, &leases[i], NULL,
                                          rf_new_op(stores[i]), NULL);
            CREW_CHECK(status == RF_OK, "a release answered %d", (int)status);
            claim_one(stores[i], leases[i].shard, &leases[i]);
        }
        atomic_fetch_add(&camp->rounds_done, 1);
    }
}

static void make_run(rf_store *store, uint32_t shards)
{
    rf_shard_input *inputs = calloc(shards, sizeof(*inputs));
    struct farm_key *keys = calloc(shards + 1, sizeof(*keys));
    rf_tenant tenant = camp_tenant();
    rf_run_config config = {.lease_duration = 3600 * RF_SECOND};
    TEST_ASSERT_TRUE(inputs != NULL && keys != NULL);
    for (uint32_t i = 0; i <= shards; i++) {
        keys[i] = farm_key(i + 1);
    }
    for (uint32_t i = 0; i < shards; i++) {
        inputs[i] = (rf_shard_input){
            .shard = i + 1, .spec = {.start = {keys[i].bytes, 8}, .end = {keys[i + 1].bytes, 8}}};
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &config,
                                                       inputs, shards, 1, NULL));
    free(inputs);
    free(keys);
}

static bool all_settled(void *context)
{
    struct camp *camp = context;
    return atomic_load(&camp->settled) == camp->count;
}

static struct camp *pitch_camp(const char *label, uint32_t processes, uint32_t handles,
                               uint32_t shards)
{
    struct camp *camp = crew_shared(sizeof(*camp));
    snprintf(camp->store, sizeof(camp->store), "%s", crew_store(label));
    camp->handles = handles;
    camp->shards = shards;
    camp->boss = crew_open(camp->store, &(rf_options){.create = true,
                                                      .max_shards = shards + 64,
                                                      .max_bytes = 1u << 20,
                                                      .max_runs = 4,
                                                      .max_members = 1200,
                                                      .busy_timeout = 20 * RF_SECOND});
    make_run(camp->boss, shards);
    uint64_t at = crew_ns();
    for (uint32_t i = 0; i < processes; i++) {
        camp->pids[camp->count++] = crew_start(live_in_camp, camp);
    }
    TEST_ASSERT_TRUE_MESSAGE(crew_until(all_settled, camp, 60000), "they do not settle");
    printf("  %u processes with %u handles each joined and claimed in %.0f ms\n", processes,
           handles, (double)(crew_ns() - at) / 1e6);
    return camp;
}

static void strike_camp(struct camp *camp)
{
    for (uint32_t i = 0; i < camp->count; i++) {
        if (camp->pids[i] != 0) {
            crew_kill(camp->pids[i]);
        }
    }
    rf_close(camp->boss);
    crew_unshare(camp, sizeof(*camp));
    crew_store_drop();
}

static uint64_t available(struct camp *camp)
{
    rf_capacity capacity = {0};
    rf_tenant tenant = camp_tenant();
    TEST_ASSERT_EQUAL(RF_OK, rf_get_capacity(camp->boss, &tenant, RUN, &capacity, NULL));
    return capacity.available;
}

static rf_inspection inspect(struct camp *camp)
{
    rf_inspection inspection;
    TEST_ASSERT_EQUAL(RF_OK, rf_inspect(camp->boss, &inspection, NULL));
    return inspection;
}

struct hope {
    struct camp *camp;
    uint64_t available;
    uint64_t members;
    uint32_t rounds;
};

static bool fulfilled(void *context)
{
    struct hope *hope = context;
    rf_inspection i = inspect(hope->camp);
    return available(hope->camp) == hope->available && i.members == hope->members &&
           i.dead_members == 0;
}

/* Without any call that would sweep: the guardians have to do it. */
static void expect_back(struct camp *camp, uint32_t alive, const char *what)
{
    struct hope hope = {.camp = camp,
                        .available = camp->shards - (uint64_t)alive * camp->handles,
                        .members = 2 + (uint64_t)alive * (camp->handles + 1)};
    uint64_t at = crew_ns();
    bool came = crew_until(fulfilled, &hope, SOON_MS);
    rf_inspection i = inspect(camp);
    printf("  %s: all is back after %.1f ms\n", what, (double)(crew_ns() - at) / 1e6);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(hope.available, available(camp), what);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(hope.members, i.members, what);
    TEST_ASSERT_TRUE_MESSAGE(came, what);
}

static bool round_done(void *context)
{
    struct hope *hope = context;
    return atomic_load(&hope->camp->rounds_done) == hope->rounds;
}

/* Everybody who is left gives one up and claims one. */
static void expect_all_work(struct camp *camp, uint32_t alive)
{
    struct hope hope = {.camp = camp, .rounds = atomic_load(&camp->rounds_done) + alive};
    atomic_fetch_add(&camp->round, 1);
    TEST_ASSERT_TRUE_MESSAGE(crew_until(round_done, &hope, 40000), "the living do not work");
}

static void kill_at_once(struct camp *camp, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        kill(camp->pids[i], SIGKILL);
    }
    for (uint32_t i = from; i < to; i++) {
        crew_kill(camp->pids[i]);
        camp->pids[i] = 0;
    }
}

/* --- a thousand --- */

static void a_thousand_members_join_work_die_and_are_replaced(void)
{
    const uint32_t processes = 25, handles = crew_slowness() == 1 ? 40 : 10;
    struct camp *camp = pitch_camp("thousand", processes, handles, processes * handles * 2);
    TEST_ASSERT_EQUAL_UINT64(processes * (handles + 1) + 2, inspect(camp).members);
    expect_all_work(camp, processes);

    /* One in the middle: hardly anybody watches it. */
    for (uint32_t i = 0; i < 3; i++) {
        kill_at_once(camp, 7 + i, 8 + i);
        expect_back(camp, processes - 1 - i, "one of 25 processes was killed");
    }
    expect_all_work(camp, processes - 3);
    kill_at_once(camp, 0, 7);
    kill_at_once(camp, 10, 24);
    expect_back(camp, 1, "all but one were killed at once");
    expect_all_work(camp, 1);

    /* Their slots serve the next. */
    atomic_store(&camp->settled, 1);
    for (uint32_t i = 0; i < 24; i++) {
        camp->pids[i] = crew_start(live_in_camp, camp);
    }
    TEST_ASSERT_TRUE(crew_until(all_settled, camp, 60000));
    expect_all_work(camp, processes);
    kill_at_once(camp, 0, processes);
    expect_back(camp, 0, "all were killed at once");
    strike_camp(camp);
}

static void hundreds_of_processes_die_at_once(void)
{
    const uint32_t processes = crew_slowness() == 1 ? 300 : 40, kept = processes / 6;
    struct camp *camp = pitch_camp("hundreds", processes, 1, processes * 2);
    kill_at_once(camp, 0, processes - kept);
    expect_back(camp, kept, "most were killed at once");
    expect_all_work(camp, kept);
    strike_camp(camp);
}

/* --- the dead among the stopped --- */

/* A newcomer is watched by the three before it at once, and by all that are near after the two seconds
 * that a guardian sleeps at most; by then whoever is not stopped hears of every death. */
static void a_death_is_noticed_at_once_though_all_others_are_stopped(void)
{
    enum { PROCESSES = 8 };
    struct camp *camp = pitch_camp("stopped", PROCESSES, 2, 64);
    crew_sleep_ms(2200);
    for (uint32_t i = 1; i < PROCESSES; i++) {
        crew_stop(camp->pids[i]);
    }
    for (uint32_t victim = 0; victim < 4; victim++) {
        uint64_t at = crew_ns();
        kill_at_once(camp, victim, victim + 1);
        expect_back(camp, PROCESSES - 1 - victim,
                    victim == 0 ? "one was killed, all others are stopped" : "a stopped one was");
        TEST_ASSERT_LESS_THAN_UINT64(RF_SECOND, crew_ns() - at);
    }
    for (uint32_t i = 4; i < PROCESSES; i++) {
        kill(camp->pids[i], SIGCONT);
    }
    expect_all_work(camp, PROCESSES - 4);
    strike_camp(camp);
}

static void a_death_is_noticed_soon_though_all_who_were_told_are_stopped(void)
{
    enum { PROCESSES = 8 };
    struct camp *camp = pitch_camp("untold", PROCESSES, 2, 64);
    /* Stopped for sure: one that still ran could be stopped as the reaper of the newest. */
    for (uint32_t i = 0; i < PROCESSES - 1; i++) {
        crew_stop(camp->pids[i]);
    }
    kill_at_once(camp, PROCESSES - 1, PROCESSES);
    expect_back(camp, PROCESSES - 1, "the newest was killed, all others are stopped");
    strike_camp(camp);
}

/* --- many handles in one process --- */

static int hold_one(void *argument)
{
    rf_lease lease;
    struct camp *camp = argument;
    claim_one(crew_open(camp->store, &(rf_options){0}), 0, &lease);
    atomic_fetch_add(&camp->settled, 1);
    while (pause() != 0) {
    }
    return 0;
}

static int hold_with_as_many_as_can_be(void *argument)
{
    rf_lease lease;
    struct camp *camp = argument;
    rf_store *store;
    rf_detail detail;
    claim_one(crew_open(camp->store, &(rf_options){0}), 0,
              &lease); /* the last on the robust list */
    for (camp->handles = 1; rf_open(camp->store, NULL, &store, &detail) == RF_OK; camp->handles++) {
    }
    CREW_CHECK(strstr(detail.where, "close some") != NULL, "the answer was: %s", detail.where);
    atomic_fetch_add(&camp->settled, 1);
    while (pause() != 0) {
    }
    return 0;
}

/* The kernel does not follow a robust list for ever. */
static void all_handles_of_a_process_die_with_it_however_many(void)
{
    struct camp *camp = crew_shared(sizeof(*camp));
    snprintf(camp->store, sizeof(camp->store), "%s", crew_store("thousands"));
    const rf_options options = {
        .create = true, .max_shards = 64, .max_runs = 2, .max_members = 1100};
    camp->boss = crew_open(camp->store, &options);
    camp->shards = camp->count = 1;
    make_run(camp->boss, camp->shards);
    camp->pids[0] = crew_start(hold_with_as_many_as_can_be, camp);
    TEST_ASSERT_TRUE(crew_until(all_settled, camp, 60000));
    TEST_ASSERT_GREATER_THAN_UINT32(1100, camp->handles);
    rf_close(crew_open(camp->store, &(rf_options){0})); /* it is not the store that is full */
    kill_at_once(camp, 0, 1);
    expect_back(camp, 0, "a process with very many handles was killed");
    strike_camp(camp);
}

/* Whether this process's guardian sleeps on that word: the kernel shows with which arguments. */
static bool is_slept_on(void *word)
{
    char line[256], path[300];
    DIR *threads = opendir("/proc/self/task");
    struct dirent *entry;
    bool found = false;
    TEST_ASSERT_NOT_NULL(threads);
    while (!found && (entry = readdir(threads)) != NULL) {
        unsigned long call, words, count;
        snprintf(path, sizeof(path), "/proc/self/task/%s/syscall", entry->d_name);
        FILE *f = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f == NULL) {
            continue;
        }
        if (fgets(line, sizeof(line), f) != NULL &&
            sscanf(line, "%lu %lx %lx ", &call, &words, &count) == 3 && call == SYS_futex_waitv) {
            const struct futex_waitv *watch = (const struct futex_waitv *)words;
            for (unsigned long i = 0; i < count; i++) {
                found = found || watch[i].uaddr == (uintptr_t)word;
            }
        }
        fclose(f);
    }
    closedir(threads);
    return found;
}

/* More than a guardian has eyes for; what it does not see it finds when it looks around, every two seconds. */
static void a_process_with_many_handles_still_watches_others(void)
{
    enum { HANDLES = 150 };
    struct camp *camp = pitch_camp("dazzled", 0, 1, 1);
    rf_store *handles[HANDLES];
    camp->count = 1;
    for (uint32_t i = 0; i < HANDLES; i++) {
        handles[i] = crew_open(camp->store, &(rf_options){0});
    }
    camp->pids[0] = crew_start(hold_one, camp);
    TEST_ASSERT_TRUE(crew_until(all_settled, camp, 20000));

    struct rf_map *map = rf_handle_of(camp->boss)->map;
    struct rf_member *other = NULL;
    for (uint32_t i = 0; i < atomic_load(&map->header->members_used); i++) {
        struct rf_member *m = rf_member_at(map, i);
        if (atomic_load(&m->is_guardian) != 0 && atomic_load(&m->pid) == (uint32_t)camp->pids[0]) {
            other = m;
        }
    }
    TEST_ASSERT_NOT_NULL(other);
    TEST_ASSERT_TRUE_MESSAGE(crew_until(is_slept_on, &other->liveness, SOON_MS),
                             "nobody would wake this process when the other dies");
    kill_at_once(camp, 0, 1);
    struct hope back = {.camp = camp, .available = 1, .members = 2 + HANDLES};
    TEST_ASSERT_TRUE(crew_until(fulfilled, &back, SOON_MS));
    for (uint32_t i = 0; i < HANDLES; i++) {
        rf_close(handles[i]);
    }
    strike_camp(camp);
}

/* --- slots --- */

static void a_store_whose_slots_are_all_dead_can_be_entered(void)
{
    struct camp *camp = crew_shared(sizeof(*camp));
    snprintf(camp->store, sizeof(camp->store), "%s", crew_store("full"));
    const rf_options small = {.create = true, .max_shards = 64, .max_runs = 2, .max_members = 3};
    rf_store *store = crew_open(camp->store, &small);
    make_run(store, 3);
    rf_close(store);
    camp->count = 3;
    for (uint32_t i = 0; i < 3; i++) {
        camp->pids[i] = crew_start(hold_one, camp);
    }
    TEST_ASSERT_TRUE(crew_until(all_settled, camp, 20000));
    rf_detail detail = {0};
    TEST_ASSERT_EQUAL(RF_RESOURCE_EXHAUSTED, rf_open(camp->store, &small, &store, &detail));
    kill_at_once(camp, 0, 3);
    store = crew_open(camp->store, &small);
    camp->boss = store;
    camp->shards = 3;
    camp->handles = 1;
    expect_back(camp, 0, "nobody was there when they died");
    rf_close(store);
    crew_unshare(camp, sizeof(*camp));
}

/* Closing can't give a shard up whose lock somebody has. The handle is gone all the same, and so,
 * a little later, is its lease; and what else its process has is still noticed when that dies. */
static int close_while_locked(void *argument)
{
    struct camp *camp = argument;
    rf_store *kept = crew_open(camp->store, &(rf_options){0});
    rf_store *closed = crew_open(camp->store, &(rf_options){.busy_timeout = 30 * RF_MILLISECOND});
    rf_store *locker = crew_open(camp->store, &(rf_options){0});
    rf_lease lease, other;
    claim_one(kept, 0, &other);
    claim_one(closed, 1, &lease);
    struct rf_handle *h = rf_handle_of(locker);
    struct rf_rec *rec = rf_rec_at(h->map, (uint32_t)lease.slot_hint - 1);
    CREW_CHECK(rf_lock(&h->actor, &rec->lock, RF_LOCK_SHARD, NULL) == RF_OK, "lock");
    rf_close(closed);
    rf_unlock(&h->actor, &rec->lock, RF_LOCK_SHARD);
    atomic_fetch_add(&camp->settled, 1);
    while (pause() != 0) {
    }
    return 0;
}

static void a_handle_closed_while_its_shard_is_locked_gives_it_up_later(void)
{
    struct camp *camp = crew_shared(sizeof(*camp));
    snprintf(camp->store, sizeof(camp->store), "%s", crew_store("locked"));
    camp->boss =
        crew_open(camp->store,
                  &(rf_options){.create = true, .max_shards = 64, .max_runs = 2, .max_members = 8});
    camp->shards = 4;
    camp->handles = 1;
    make_run(camp->boss, camp->shards);
    camp->count = 1;
    camp->pids[0] = crew_start(close_while_locked, camp);
    TEST_ASSERT_TRUE(crew_until(all_settled, camp, 20000));
    struct hope one_back = {.camp = camp, .available = 3, .members = 5};
    TEST_ASSERT_TRUE(crew_until(fulfilled, &one_back, SOON_MS));
    /* Others take the slot that became free. */
    rf_store *others[4];
    for (unsigned i = 0; i < 4; i++) {
        others[i] = crew_open(camp->store, &(rf_options){0});
    }
    kill_at_once(camp, 0, 1);
    struct hope all_back = {.camp = camp, .available = 4, .members = 6};
    TEST_ASSERT_TRUE_MESSAGE(crew_until(fulfilled, &all_back, SOON_MS), "a death was not noticed");
    for (unsigned i = 0; i < 4; i++) {
        rf_close(others[i]);
    }
    rf_close(camp->boss);
    crew_unshare(camp, sizeof(*camp));
}

static int acquire_whatever_it_takes(void *argument)
{
    struct camp *camp = argument;
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_store *store = crew_open(camp->store, &(rf_options){.busy_timeout = UINT64_MAX});
    rf_tenant tenant = camp_tenant();
    atomic_fetch_add(&camp->settled, 1);
    rf_status status = rf_acquire(store, rf_now(store), &tenant, RUN, 1, 1, 0, &grant, NULL);
    CREW_CHECK(status == RF_OK, "it did not wait, it answered %d", (int)status);
    return 0;
}

static void whoever_waits_for_a_lock_for_ever_does(void)
{
    struct camp *camp = pitch_camp("patient", 0, 1, 1);
    struct rf_handle *h = rf_handle_of(camp->boss);
    rf_word32 *lock = &rf_run_at(h->map, 0)->lock;
    TEST_ASSERT_EQUAL(RF_OK, rf_lock(&h->actor, lock, RF_LOCK_RUN, NULL));
    camp->count = 1;
    camp->pids[0] = crew_start(acquire_whatever_it_takes, camp);
    TEST_ASSERT_TRUE(crew_until(all_settled, camp, 20000));
    crew_sleep_ms(50); /* it sleeps by now, or has given up; if not, the test is easier */
    rf_unlock(&h->actor, lock, RF_LOCK_RUN);
    TEST_ASSERT_EQUAL(0, crew_join(camp->pids[0], SOON_MS));
    camp->pids[0] = 0;
    strike_camp(camp);
}

/* --- how long it takes --- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void a_killed_holders_shard_is_held_by_the_next_at_once(void)
{
    enum { KILLS = 100, EACH = 50 };
    uint64_t took[KILLS];
    for (uint32_t n = 0; n < KILLS; n++) {
        static struct queue *q;
        if (n % EACH == 0) {
            q = queue_make("failover", 1, 3600 * RF_SECOND);
            rf_lease lease = queue_hold(q, 1);
            queue_wait_in_line(q, 1);
            TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &lease));
            TEST_ASSERT_EQUAL_UINT32(1, queue_answers(q, 1, SOON_MS));
        }
        uint32_t holder = q->count - 1;
        queue_wait_in_line(q, 1);
        uint64_t at = crew_ns();
        kill(q->pids[holder], SIGKILL);
        TEST_ASSERT_EQUAL_UINT32(holder + 2, queue_answers(q, holder + 2, SOON_MS));
        took[n] = q->waiters[holder + 1].ended_at - at;
        crew_kill(q->pids[holder]);
        q->pids[holder] = 0;
        if (n % EACH == EACH - 1) {
            queue_drop(q);
        }
    }
    qsort(took, KILLS, sizeof(took[0]), by_value);
    printf("  kill -9 to the next holder: median %.0f us, 90%% %.0f us, worst %.0f us\n",
           (double)took[KILLS / 2] / 1e3, (double)took[KILLS * 9 / 10] / 1e3,
           (double)took[KILLS - 1] / 1e3);
    TEST_ASSERT_LESS_THAN_UINT64(RF_SECOND, took[KILLS / 2]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_thousand_members_join_work_die_and_are_replaced);
    RUN_TEST(hundreds_of_processes_die_at_once);
    RUN_TEST(a_death_is_noticed_at_once_though_all_others_are_stopped);
    RUN_TEST(a_death_is_noticed_soon_though_all_who_were_told_are_stopped);
    RUN_TEST(all_handles_of_a_process_die_with_it_however_many);
    RUN_TEST(a_process_with_many_handles_still_watches_others);
    RUN_TEST(a_store_whose_slots_are_all_dead_can_be_entered);
    RUN_TEST(a_handle_closed_while_its_shard_is_locked_gives_it_up_later);
    RUN_TEST(whoever_waits_for_a_lock_for_ever_does);
    RUN_TEST(a_killed_holders_shard_is_held_by_the_next_at_once);
    return UNITY_END();
}
