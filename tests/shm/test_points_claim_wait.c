/*
 * Deaths at every place of waiting and waking: whoever sleeps for a shard gets it all the same, and
 * the number of those who wait is right.
 */
#include <signal.h>
#include <string.h>
#include <unity.h>

#include "point.h"
#include "queue.h"

#define SOON_MS 1500u

static struct queue *q;

void setUp(void)
{
    q = NULL;
    queue_in_child = NULL;
}

void tearDown(void)
{
    rf_point_on_hit = NULL;
    if (q != NULL) {
        queue_drop(q);
    }
}

/* --- whoever comes to the point first dies --- */

static struct queue *hooked;

static void die_at_point(const char *name)
{
    if (strcmp(name, hooked->point) == 0 && atomic_fetch_add(&hooked->point_hits, 1) == 0) {
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    }
}

static void hook_child(struct queue *queue)
{
    hooked = queue;
    rf_point_on_hit = queue->point == NULL ? NULL : die_at_point;
}

static uint32_t who_died(void)
{
    for (uint32_t i = 0; i < q->count; i++) {
        if (q->pids[i] != 0 && kill(q->pids[i], 0) == 0 && !crew_asleep(q->pids[i]) &&
            atomic_load(&q->waiters[i].stage) != 2) {
            return i;
        }
    }
    return QUEUE_MAX;
}

static void a_woken_waiter_that_is_killed_passes_the_wake_on(void)
{
    q = queue_make("woken", 1, 60 * RF_SECOND);
    q->point = "claim.woken";
    queue_in_child = hook_child;
    rf_lease lease = queue_hold(q, 1);
    queue_wait_in_line(q, 6);
    TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &lease));
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, queue_answers(q, 1, SOON_MS), "the wake was lost");
    TEST_ASSERT_GREATER_OR_EQUAL_UINT32(1, atomic_load(&q->point_hits));
    TEST_ASSERT_LESS_THAN_UINT32(QUEUE_MAX, who_died());
    TEST_ASSERT_TRUE(queue_waiting_becomes(q, 4, SOON_MS));
}

/* A waiter dies while it gets in line or leaves it, among `others` who stay. */
static void expect_uncounted(const char *point, uint32_t others)
{
    q = queue_make("listed", 1, 60 * RF_SECOND);
    queue_in_child = hook_child;
    rf_lease lease = queue_hold(q, 1);
    queue_wait_in_line(q, others);
    q->point = point;
    q->timeout = 30 * RF_MILLISECOND;
    uint32_t victim = queue_start_waiter(q);
    TEST_ASSERT_EQUAL_MESSAGE(-SIGKILL, crew_join(q->pids[victim], 5000), point);
    q->pids[victim] = 0;
    TEST_ASSERT_TRUE_MESSAGE(queue_waiting_becomes(q, others, SOON_MS), point);
    q->point = NULL;
    q->timeout = RF_FOREVER;
    queue_wait_in_line(q, 1);
    TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &lease));
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, queue_answers(q, 1, SOON_MS), point);
    TEST_ASSERT_TRUE_MESSAGE(queue_waiting_becomes(q, others, SOON_MS), point);
    queue_drop(q);
    q = NULL;
}

static void a_waiter_that_is_killed_anywhere_is_not_counted(void)
{
    static const char *const points[] = {"claim.listed", "claim.summed", "claim.woken",
                                         "claim.unlisted"};
    for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        expect_uncounted(points[i], 2);
        expect_uncounted(points[i], 0);
    }
    expect_uncounted("claim.unsummed", 0); /* only the last one comes there */
}

/* --- between the last look and the sleep --- */

/* At the second look, the one after getting in line, it waits until the shard has been freed. */
static void linger_after_looking(const char *name)
{
    struct queue_waiter *gate = &hooked->waiters[QUEUE_MAX - 1];
    if (strcmp(name, "claim.none") == 0 && atomic_fetch_add(&hooked->point_hits, 1) == 1) {
        atomic_store(&gate->stage, 1);
        while (!atomic_load(&gate->quit)) {
            crew_sleep_ms(1);
        }
    }
}

static void hook_lingering(struct queue *queue)
{
    hooked = queue;
    rf_point_on_hit = linger_after_looking;
}

static bool gate_is_reached(void *context)
{
    (void)context;
    return atomic_load(&q->waiters[QUEUE_MAX - 1].stage) == 1;
}

static void a_shard_freed_between_the_last_look_and_the_sleep_is_not_missed(void)
{
    q = queue_make("linger", 1, 60 * RF_SECOND);
    queue_in_child = hook_lingering;
    rf_lease lease = queue_hold(q, 1);
    queue_start_waiter(q);
    TEST_ASSERT_TRUE(crew_until(gate_is_reached, NULL, 10000));
    TEST_ASSERT_EQUAL_UINT64(1, queue_waiting(q));
    TEST_ASSERT_EQUAL(RF_OK, queue_release(q, &lease));
    atomic_store(&q->waiters[QUEUE_MAX - 1].quit, true);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, queue_answers(q, 1, SOON_MS), "it sleeps all the same");
    TEST_ASSERT_EQUAL(RF_OK, q->waiters[0].status);
}

/* --- whoever frees a shard dies before it has woken anybody --- */

static int release_and_die(void *argument)
{
    struct queue *queue = argument;
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = queue_tenant();
    rf_store *store = crew_open(queue->store, &(rf_options){0});
    CREW_CHECK(rf_acquire(store, rf_now(store), &tenant, QUEUE_RUN, 2, 9, RF_BOUND, &grant, NULL) ==
                   RF_OK,
               "acquire");
    atomic_store(&queue->waiters[QUEUE_MAX - 1].stage, 1);
    while (!atomic_load(&queue->waiters[QUEUE_MAX - 1].quit)) {
        crew_sleep_ms(1);
    }
    hook_child(queue);
    rf_release(store, rf_now(store), &tenant, &grant.lease, NULL, rf_new_op(store), NULL);
    return 0;
}

static bool holder_has_it(void *context)
{
    (void)context;
    return atomic_load(&q->waiters[QUEUE_MAX - 1].stage) == 1;
}

static void a_releaser_that_dies_before_its_wake_wakes_all_the_same(void)
{
    static const char *const points[] = {"lane.committed", "apply.run_open", "record.open",
                                         "directory.bit",  "op.idle",        "wake.changed",
                                         "wake.done"};
    for (unsigned i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        q = queue_make("releaser", 2, 60 * RF_SECOND);
        queue_hold(q, 1);
        pid_t pid = crew_start(release_and_die, q);
        TEST_ASSERT_TRUE(crew_until(holder_has_it, NULL, 10000));
        queue_wait_in_line(q, 3);
        q->point = points[i];
        atomic_store(&q->waiters[QUEUE_MAX - 1].quit, true);
        TEST_ASSERT_EQUAL_MESSAGE(-SIGKILL, crew_join(pid, 10000), points[i]);
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(1, queue_answers(q, 1, SOON_MS), points[i]);
        TEST_ASSERT_EQUAL_UINT64(2,
                                 q->waiters[0].shard + q->waiters[1].shard + q->waiters[2].shard);
        TEST_ASSERT_TRUE_MESSAGE(queue_waiting_becomes(q, 2, SOON_MS), points[i]);
        queue_drop(q);
        q = NULL;
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_woken_waiter_that_is_killed_passes_the_wake_on);
    RUN_TEST(a_waiter_that_is_killed_anywhere_is_not_counted);
    RUN_TEST(a_shard_freed_between_the_last_look_and_the_sleep_is_not_missed);
    RUN_TEST(a_releaser_that_dies_before_its_wake_wakes_all_the_same);
    return UNITY_END();
}
