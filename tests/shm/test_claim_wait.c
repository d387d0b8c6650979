/*
 * Waiting for a shard: whatever makes one claimable, or ends the waiting, wakes whoever sleeps; one
 * freed shard wakes one; nobody polls; and the number of those who wait is right whoever dies.
 */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unity.h>

#include "prng.h"
#include "queue.h"

#define LONG_LEASE (60 * RF_SECOND)
#define SOON_MS    1500u /* generous: 2 cores with other work on them */

static struct queue *q;

void setUp(void)
{
    q = NULL;
}

void tearDown(void)
{
    if (q != NULL) {
        queue_drop(q);
    }
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

/* One waiter; `wake` is done at a time that is noted; it must have an answer soon. */
static void expect_woken(const char *what, rf_status (*wake)(const rf_lease *lease),
                         const rf_lease *lease, rf_status answer)
{
    queue_wait_in_line(q, 1);
    struct queue_waiter *w = &q->waiters[q->count - 1];
    uint64_t at = crew_ns();
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, wake(lease), what);
    queue_answers(q, q->count, SOON_MS);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(2, atomic_load(&w->stage), what);
    TEST_ASSERT_EQUAL_MESSAGE(answer, w->status, what);
    printf("  %-14s wakes after %.3f ms\n", what, ms(w->ended_at - at));
}

static rf_status by_release(const rf_lease *lease)
{
    return queue_release(q, lease);
}

static void a_release_wakes(void)
{
    q = queue_make("release", 1, LONG_LEASE);
    rf_lease lease = queue_hold(q, 1);
    expect_woken("release", by_release, &lease, RF_OK);
    TEST_ASSERT_EQUAL_UINT64(1, q->waiters[0].shard);
    TEST_ASSERT_GREATER_THAN_UINT64(lease.fence, q->waiters[0].fence);
}

static rf_status by_split(const rf_lease *lease)
{
    return queue_split(q, lease, 2);
}

static rf_status by_residual(const rf_lease *lease)
{
    return queue_residual(q, lease);
}

static void a_split_wakes(void)
{
    q = queue_make("split", 2, LONG_LEASE);
    rf_lease first = queue_hold(q, 1), second = queue_hold(q, 2);
    expect_woken("split_residual", by_residual, &first, RF_OK);
    TEST_ASSERT_TRUE((q->waiters[0].shard & RF_DERIVED_BIT) != 0);
    expect_woken("split_replace", by_split, &second, RF_OK);
    TEST_ASSERT_TRUE((q->waiters[1].shard & RF_DERIVED_BIT) != 0);
}

static rf_status by_unpark(const rf_lease *lease)
{
    return queue_unpark(q, lease->shard);
}

static void an_unpark_wakes(void)
{
    q = queue_make("unpark", 1, LONG_LEASE);
    rf_lease lease = queue_hold(q, 1);
    TEST_ASSERT_EQUAL(RF_OK, queue_park(q, &lease));
    expect_woken("unpark", by_unpark, &lease, RF_OK);
}

static rf_status by_add(const rf_lease *lease)
{
    (void)lease;
    return queue_add(q, 20, 1);
}

static void added_shards_wake(void)
{
    q = queue_make("add", 1, LONG_LEASE);
    rf_lease lease = queue_hold(q, 1);
    expect_woken("add_shards", by_add, &lease, RF_OK);
    TEST_ASSERT_EQUAL_UINT64(20, q->waiters[0].shard);
}

/* --- holders that die or forget --- */

static rf_status by_kill(const rf_lease *lease)
{
    (void)lease;
    crew_kill(q->pids[0]);
    q->pids[0] = 0;
    return RF_OK;
}

static void the_death_of_a_holder_wakes(void)
{
    q = queue_make("death", 1, LONG_LEASE);
    queue_wait_in_line(q, 0);
    rf_lease lease = queue_hold(q, 1);
    queue_wait_in_line(q, 1);
    TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &lease));
    TEST_ASSERT_EQUAL_UINT32(1, queue_answers(q, 1, SOON_MS));
    expect_woken("kill -9", by_kill, &lease, RF_OK);
}

static void the_expiry_of_a_living_owners_lease_wakes(void)
{
    const uint64_t lease_ns = 400 * RF_MILLISECOND;
    q = queue_make("expiry", 1, lease_ns);
    uint64_t granted_at = crew_ns();
    queue_hold(q, 1);
    struct queue_waiter *w = &q->waiters[0];
    queue_wait_in_line(q, 1);
    TEST_ASSERT_EQUAL_UINT32(1, queue_answers(q, 1, 3000));
    TEST_ASSERT_EQUAL(RF_OK, w->status);
    TEST_ASSERT_GREATER_OR_EQUAL_UINT64(granted_at + lease_ns, w->ended_at);
    printf("  expiry is noticed %.3f ms after the deadline\n",
           ms(w->ended_at - granted_at - lease_ns));
    TEST_ASSERT_LESS_THAN_UINT64(granted_at + lease_ns + SOON_MS * RF_MILLISECOND, w->ended_at);
}

/* The waiter went to sleep when nothing was leased, so it had no deadline to wake at. */
static void a_lease_granted_while_others_sleep_is_noticed_when_it_expires(void)
{
    q = queue_make("later", 1, 300 * RF_MILLISECOND);
    rf_lease lease = queue_hold(q, 1);
    TEST_ASSERT_EQUAL(RF_OK, queue_park(q, &lease));
    rf_tenant tenant = queue_tenant();
    TEST_ASSERT_EQUAL(RF_OK, rf_sweep(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, NULL));
    queue_wait_in_line(q, 2);
    uint64_t at = crew_ns();
    TEST_ASSERT_EQUAL(RF_OK, queue_unpark(q, 1)); /* one gets it, and keeps it too long */
    TEST_ASSERT_EQUAL_UINT32(2, queue_answers(q, 2, 6000));
    uint64_t last = q->waiters[0].ended_at > q->waiters[1].ended_at ? q->waiters[0].ended_at
                                                                    : q->waiters[1].ended_at;
    printf("  the second has it %.3f ms after the first's deadline\n",
           ms(last - at - 300 * RF_MILLISECOND));
    TEST_ASSERT_LESS_THAN_UINT64(3500 * RF_MILLISECOND, last - at);
}

/* --- runs that end --- */

static void the_end_of_the_run_wakes_all(void)
{
    rf_status (*const ends[])(rf_store *, uint64_t, const rf_tenant *, uint64_t, uint64_t,
                              rf_result *) = {rf_complete_run, rf_fail_run, rf_cancel_run};
    rf_tenant tenant = queue_tenant();
    for (unsigned i = 0; i < 3; i++) {
        q = queue_make("end", 1, LONG_LEASE);
        queue_hold(q, 1);
        queue_wait_in_line(q, 3);
        TEST_ASSERT_EQUAL(RF_OK, ends[i](q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, 99, NULL));
        TEST_ASSERT_EQUAL_UINT32(3, queue_answers(q, 3, SOON_MS));
        for (unsigned w = 0; w < 3; w++) {
            TEST_ASSERT_EQUAL(RF_RUN_TERMINAL, q->waiters[w].status);
        }
        TEST_ASSERT_EQUAL_UINT64(0, queue_waiting(q));
        queue_drop(q);
        q = NULL;
    }
}

/* Who is stopped while the run ends and is purged finds it gone. */
static void a_purge_wakes(void)
{
    rf_tenant tenant = queue_tenant();
    q = queue_make("purge", 1, LONG_LEASE);
    queue_hold(q, 1);
    queue_wait_in_line(q, 1);
    kill(q->pids[0], SIGSTOP);
    TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, 99, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_purge_run(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, NULL));
    kill(q->pids[0], SIGCONT);
    TEST_ASSERT_EQUAL_UINT32(1, queue_answers(q, 1, SOON_MS));
    TEST_ASSERT_EQUAL(RF_RUN_NOT_FOUND, q->waiters[0].status);
}

static void a_timeout_ends_the_wait_in_time(void)
{
    const uint64_t timeouts[] = {RF_MILLISECOND, 50 * RF_MILLISECOND, 700 * RF_MILLISECOND};
    q = queue_make("timeout", 1, LONG_LEASE);
    queue_hold(q, 1);
    rf_tenant tenant = queue_tenant();
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    for (unsigned i = 0; i < 3; i++) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_result result = {0};
        uint64_t at = crew_ns();
        TEST_ASSERT_EQUAL(RF_NONE_AVAILABLE, rf_claim(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN,
                                                      5, RF_BOUND, timeouts[i], &grant, &result));
        uint64_t took = crew_ns() - at;
        TEST_ASSERT_GREATER_OR_EQUAL_UINT64(timeouts[i], took);
        TEST_ASSERT_LESS_THAN_UINT64(timeouts[i] + 300 * RF_MILLISECOND, took);
        TEST_ASSERT_GREATER_THAN_UINT64(rf_now(q->boss), result.detail.deadline);
        TEST_ASSERT_EQUAL_UINT64(0, queue_waiting(q));
    }
}

/* --- costs --- */

/* System calls of all threads of a process between one and six seconds after strace came. */
static int count_calls(pid_t pid, const char *file)
{
    char command[256], line[512];
    double first = 0;
    int calls = 0;
    snprintf(command, sizeof(command),
             "timeout -s INT 6.5 strace -f -ttt -o %s -p %d >/dev/null 2>&1", file, (int)pid);
    int rc = system(command);
    FILE *f = fopen(file, "re");
    if (f == NULL || rc == -1) {
        return -1;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        char *at = strchr(line, ' ');
        double t = at == NULL ? 0 : strtod(at, NULL);
        first = first == 0 ? t : first;
        if (t > first + 1 && t < first + 6) {
            printf("  %s", line);
            calls++;
        }
    }
    fclose(f);
    unlink(file);
    return first == 0 ? -1 : calls;
}

static void a_waiter_does_not_poll(void)
{
    if (system("command -v strace >/dev/null 2>&1") != 0) {
        TEST_IGNORE_MESSAGE("strace is not there");
    }
    char file[64];
    q = queue_make("strace", 1, LONG_LEASE);
    queue_hold(q, 1);
    queue_wait_in_line(q, 1);
    snprintf(file, sizeof(file), "/tmp/rf-strace-%d", (int)getpid());
    int calls = count_calls(q->pids[0], file);
    if (calls < 0) {
        TEST_IGNORE_MESSAGE("strace may not look at processes here");
    }
    printf("  %d system calls in 5 seconds\n", calls);
    TEST_ASSERT_LESS_OR_EQUAL_INT(5, calls);
}

/* How often each has gone to sleep. */
static void note_sleeps(uint64_t *sleeps)
{
    for (uint32_t i = 0; i < q->count; i++) {
        sleeps[i] = crew_sleeps(q->pids[i]);
    }
}

static void expect_only_answered_moved(const uint64_t *before, uint32_t answered, const char *what)
{
    uint32_t moved = 0;
    crew_sleep_ms(50); /* a herd would have run by now */
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(answered, queue_answers(q, answered, SOON_MS), what);
    for (uint32_t i = 0; i < q->count; i++) {
        bool has_answer = atomic_load(&q->waiters[i].stage) == 2;
        if (!has_answer && crew_sleeps(q->pids[i]) != before[i]) {
            moved++;
        }
    }
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, moved, what);
}

static void one_freed_shard_wakes_one_of_sixteen(void)
{
    uint64_t sleeps[QUEUE_MAX];
    q = queue_make("herd", 3, LONG_LEASE);
    rf_lease leases[3] = {queue_hold(q, 1), queue_hold(q, 2), queue_hold(q, 3)};
    queue_wait_in_line(q, 16);
    for (uint32_t i = 0; i < 3; i++) {
        note_sleeps(sleeps);
        TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &leases[i]));
        TEST_ASSERT_EQUAL_UINT32(i + 1, queue_answers(q, i + 1, SOON_MS));
        expect_only_answered_moved(sleeps, i + 1, "one was freed");
        TEST_ASSERT_EQUAL_UINT64(16 - i - 1, queue_waiting(q));
    }
}

static void as_many_wake_as_shards_were_freed(void)
{
    uint64_t sleeps[QUEUE_MAX];
    q = queue_make("many", 2, LONG_LEASE);
    rf_lease split = queue_hold(q, 1);
    queue_hold(q, 2);
    queue_wait_in_line(q, 16);
    note_sleeps(sleeps);
    TEST_ASSERT_EQUAL(RF_OK, queue_add(q, 20, 5));
    TEST_ASSERT_EQUAL_UINT32(5, queue_answers(q, 5, SOON_MS));
    expect_only_answered_moved(sleeps, 5, "five were added");
    note_sleeps(sleeps);
    TEST_ASSERT_EQUAL(RF_OK, queue_split(q, &split, 4));
    TEST_ASSERT_EQUAL_UINT32(9, queue_answers(q, 9, SOON_MS));
    expect_only_answered_moved(sleeps, 9, "four were split off");
    TEST_ASSERT_EQUAL_UINT64(7, queue_waiting(q));
}

/* --- who waits --- */

static void the_number_waiting_is_right_after_waiters_were_killed(void)
{
    q = queue_make("count", 1, LONG_LEASE);
    rf_lease lease = queue_hold(q, 1);
    queue_wait_in_line(q, 8);
    TEST_ASSERT_EQUAL_UINT64(8, queue_waiting(q));
    for (uint32_t i = 0; i < 3; i++) {
        crew_kill(q->pids[2 * i]);
        q->pids[2 * i] = 0;
    }
    TEST_ASSERT_TRUE(queue_waiting_becomes(q, 5, SOON_MS));
    TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &lease));
    TEST_ASSERT_EQUAL_UINT32(1, queue_answers(q, 1, SOON_MS));
    TEST_ASSERT_TRUE(queue_waiting_becomes(q, 4, SOON_MS));
}

/* --- no wake is ever lost --- */

struct relay {
    char store[128];
    _Atomic uint64_t handovers;
    _Atomic uint64_t longest_gap; /* between two grants, ns */
    _Atomic uint64_t last;
    _Atomic bool stop;
};

/* Claims, holds the shard for a moment, gives it to the next. */
static int run_in_relay(void *argument)
{
    struct relay *relay = argument;
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = queue_tenant();
    rf_store *store = crew_open(relay->store, &(rf_options){0});
    while (!atomic_load(&relay->stop)) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_status status = rf_claim(store, rf_now(store), &tenant, QUEUE_RUN, 1, RF_BOUND,
                                    20 * RF_SECOND, &grant, NULL);
        if (status == RF_RUN_TERMINAL) {
            break;
        }
        CREW_CHECK(status == RF_OK, "a claim answered %d", (int)status);
        uint64_t now = crew_ns(), last = atomic_exchange(&relay->last, now);
        uint64_t gap = now - last;
        if (gap > atomic_load(&relay->longest_gap)) {
            atomic_store(&relay->longest_gap, gap);
        }
        atomic_fetch_add(&relay->handovers, 1);
        CREW_CHECK(rf_release(store, rf_now(store), &tenant, &grant.lease, NULL, rf_new_op(store),
                              NULL) == RF_OK,
                   "release");
    }
    rf_close(store);
    return 0;
}

static void run_relay(unsigned milliseconds, bool killing)
{
    enum { RUNNERS = 8 };
    struct relay *relay = crew_shared(sizeof(*relay));
    struct rf_prng prng = {rf_env_number("RF_SEED", 1)};
    rf_tenant tenant = queue_tenant();
    pid_t pids[RUNNERS];
    uint32_t kills = 0;
    q = queue_make("relay", 1, LONG_LEASE);
    memcpy(relay->store, q->store, sizeof(relay->store));
    atomic_store(&relay->last, crew_ns());
    for (unsigned i = 0; i < RUNNERS; i++) {
        pids[i] = crew_start(run_in_relay, relay);
    }
    uint64_t until = crew_ns() + milliseconds * RF_MILLISECOND;
    while (crew_ns() < until) {
        crew_sleep_ms(1 + rf_prng_below(&prng, 4));
        if (killing) {
            unsigned i = rf_prng_below(&prng, RUNNERS);
            crew_kill(pids[i]);
            pids[i] = crew_start(run_in_relay, relay);
            kills++;
        }
    }
    atomic_store(&relay->stop, true);
    TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, 5, NULL));
    for (unsigned i = 0; i < RUNNERS; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(pids[i], 5000));
    }
    printf("  %" PRIu64 " handovers, %u kills, longest gap %.3f ms\n",
           (uint64_t)atomic_load(&relay->handovers), kills, ms(atomic_load(&relay->longest_gap)));
    TEST_ASSERT_LESS_THAN_UINT64(1500 * RF_MILLISECOND, atomic_load(&relay->longest_gap));
    TEST_ASSERT_GREATER_THAN_UINT64(100, atomic_load(&relay->handovers));
    TEST_ASSERT_EQUAL_UINT64(0, queue_waiting(q));
    crew_unshare(relay, sizeof(*relay));
}

static void a_shard_is_handed_on_without_a_lost_wake(void)
{
    run_relay((unsigned)crew_amount(2500, 60000), false);
}

static void a_shard_is_handed_on_though_waiters_and_holders_are_killed(void)
{
    run_relay((unsigned)crew_amount(4000, 60000), true);
}

/* Two who take turns: the one who is about to sleep is the only one who can go on, so that a wake
 * which it misses is missed by all. */
static int take_turns(void *argument)
{
    struct relay *relay = argument;
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = queue_tenant();
    struct rf_prng prng = {(uint64_t)getpid()};
    rf_store *store = crew_open(relay->store, &(rf_options){0});
    while (!atomic_load(&relay->stop)) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        uint64_t at = crew_ns();
        rf_status status = rf_claim(store, rf_now(store), &tenant, QUEUE_RUN, 1, RF_BOUND,
                                    20 * RF_SECOND, &grant, NULL);
        if (status == RF_RUN_TERMINAL) {
            break;
        }
        CREW_CHECK(status == RF_OK, "a claim answered %d", (int)status);
        uint64_t took = crew_ns() - at;
        if (took > atomic_load(&relay->longest_gap)) {
            atomic_store(&relay->longest_gap, took);
        }
        uint64_t mine = atomic_fetch_add(&relay->handovers, 1) + 1;
        /* The other one begins to claim now; it is let come as far as it may. */
        for (uint64_t hold = crew_ns() + rf_prng_below(&prng, 12000); crew_ns() < hold;) {
        }
        CREW_CHECK(rf_release(store, rf_now(store), &tenant, &grant.lease, NULL, rf_new_op(store),
                              NULL) == RF_OK,
                   "release");
        while (atomic_load(&relay->handovers) == mine && !atomic_load(&relay->stop)) {
            sched_yield();
        }
    }
    rf_close(store);
    return 0;
}

static void who_is_about_to_sleep_does_not_miss_the_wake(void)
{
    struct relay *relay = crew_shared(sizeof(*relay));
    rf_tenant tenant = queue_tenant();
    q = queue_make("turns", 1, LONG_LEASE);
    memcpy(relay->store, q->store, sizeof(relay->store));
    pid_t pids[2] = {crew_start(take_turns, relay), crew_start(take_turns, relay)};
    crew_sleep_ms((unsigned)crew_amount(2500, 60000));
    atomic_store(&relay->stop, true);
    TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, 5, NULL));
    TEST_ASSERT_EQUAL(0, crew_join(pids[0], 5000));
    TEST_ASSERT_EQUAL(0, crew_join(pids[1], 5000));
    printf("  %" PRIu64 " turns, longest wait %.3f ms\n", (uint64_t)atomic_load(&relay->handovers),
           ms(atomic_load(&relay->longest_gap)));
    TEST_ASSERT_LESS_THAN_UINT64(1500 * RF_MILLISECOND, atomic_load(&relay->longest_gap));
    TEST_ASSERT_GREATER_THAN_UINT64(100, atomic_load(&relay->handovers));
    crew_unshare(relay, sizeof(*relay));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_release_wakes);
    RUN_TEST(a_split_wakes);
    RUN_TEST(an_unpark_wakes);
    RUN_TEST(added_shards_wake);
    RUN_TEST(the_death_of_a_holder_wakes);
    RUN_TEST(the_expiry_of_a_living_owners_lease_wakes);
    RUN_TEST(a_lease_granted_while_others_sleep_is_noticed_when_it_expires);
    RUN_TEST(the_end_of_the_run_wakes_all);
    RUN_TEST(a_purge_wakes);
    RUN_TEST(a_timeout_ends_the_wait_in_time);
    RUN_TEST(a_waiter_does_not_poll);
    RUN_TEST(one_freed_shard_wakes_one_of_sixteen);
    RUN_TEST(as_many_wake_as_shards_were_freed);
    RUN_TEST(the_number_waiting_is_right_after_waiters_were_killed);
    RUN_TEST(a_shard_is_handed_on_without_a_lost_wake);
    RUN_TEST(who_is_about_to_sleep_does_not_miss_the_wake);
    RUN_TEST(a_shard_is_handed_on_though_waiters_and_holders_are_killed);
    return UNITY_END();
}
