/*
 * The log under several handles in threads of one process, over one mapping: some wait, some do not, one looks
 * on, and the guardian writes for all. ThreadSanitizer, under which this is run too, sees every access that they
 * make to the lanes, the entries and each other.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "farm.h"
#include "handle.h"
#include "logbook.h"
#include "shop.h"
#include "vault.h"

#define THREADS 6u

static struct vault vault;

void setUp(void)
{
}

void tearDown(void)
{
    vault_raze(&vault);
}

struct hand {
    unsigned index;
    uint64_t ops;
    uint64_t *epochs;
    _Atomic uint64_t *running;
};

/* Waits for every third, for the last, and now and then for everything. */
static void *work(void *argument)
{
    const struct hand *hand = argument;
    rf_store *own = vault_open(&vault);
    rf_lease lease = vault_lease(own, &vault, 1, hand->index + 1);
    struct rf_prng prng = {hand->index + 1};
    rf_detail detail;
    for (uint64_t n = 1; n <= hand->ops; n++) {
        bool waits = n % 3 == 0 || n == hand->ops;
        rf_result result = {.durability = waits ? RF_WAIT : RF_NOWAIT};
        size_t token = rf_prng_chance(&prng, 10) ? RF_TOKEN_MAX : rf_prng_below(&prng, 300);
        rf_status status = vault_step(own, &vault, &lease, n, (uint64_t)(hand->index + 1) << 32 | n,
                                      token, &result);
        CREW_CHECK(status == RF_OK, "%s %s", rf_status_name(status), result.detail.where);
        CREW_CHECK(!waits || rf_durable(own) >= result.epoch, "waited, and it is not durable");
        hand->epochs[n] = result.epoch;
        if (rf_prng_chance(&prng, 2)) {
            CREW_CHECK(rf_barrier(own, &detail) == RF_OK, "%s", detail.where);
            CREW_CHECK(rf_durable(own) >= result.epoch, "a barrier, and it is not durable");
        }
    }
    rf_close(own);
    atomic_fetch_sub(hand->running, 1);
    return NULL;
}

/* What is durable never goes back, and never before the open epoch. */
static void *look_on(void *argument)
{
    _Atomic uint64_t *running = argument;
    rf_store *own = vault_open(&vault);
    uint64_t last = 0;
    while (atomic_load(running) != 0) {
        rf_inspection seen;
        uint64_t durable = rf_durable(own);
        CREW_CHECK(durable >= last, "durable went back");
        last = durable;
        CREW_CHECK(rf_inspect(own, &seen, NULL) == RF_OK, "inspect");
        CREW_CHECK(seen.durable_epoch >= durable && seen.open_epoch > durable, "epochs");
        usleep(500);
    }
    rf_close(own);
    return NULL;
}

static void threads_that_wait_and_threads_that_do_not_share_a_log(void)
{
    struct hand hands[THREADS];
    pthread_t threads[THREADS], observer;
    _Atomic uint64_t running = THREADS;
    uint64_t ops = crew_amount(600 * crew_slowness(), 20000);
    vault_found(&vault, RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    vault.options.flush_interval = RF_MILLISECOND;
    vault_small_lanes(&vault, 262144);
    rf_store *store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, THREADS, RF_WAIT);
    for (unsigned i = 0; i < THREADS; i++) {
        hands[i] = (struct hand){i, ops, calloc(ops + 1, sizeof(uint64_t)), &running};
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, work, &hands[i]));
    }
    TEST_ASSERT_EQUAL(0, pthread_create(&observer, NULL, look_on, &running));
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_join(observer, NULL);
    struct logbook book;
    uint64_t durable = rf_durable(store);
    if (!logbook_read(&book, vault.directory, durable)) {
        TEST_FAIL_MESSAGE(book.broken);
    }
    printf("  %llu records in %llu batches, %llu of several lanes\n",
           (unsigned long long)book.records, (unsigned long long)book.batches,
           (unsigned long long)book.wide);
    for (unsigned i = 0; i < THREADS; i++) {
        for (uint64_t n = 1; n <= ops; n++) {
            const struct logbook_op *found = logbook_find(&book, (uint64_t)(i + 1) << 32 | n);
            TEST_ASSERT_NOT_NULL_MESSAGE(found, "something acknowledged is not in the log");
            TEST_ASSERT_EQUAL(hands[i].epochs[n], found->epoch);
        }
        free(hands[i].epochs);
    }
    logbook_free(&book);
    rf_close(store);
}

/* --- every operation there is --- */

struct job {
    struct farm *farm;
    uint32_t index;
};

static void *farm_hand(void *argument)
{
    const struct job *job = argument;
    farm_work(job->farm, job->index);
    return NULL;
}

static void say(void *context, const char *what)
{
    (void)context;
    printf("  %s\n", what);
}

static void every_operation_by_threads_on_a_store_with_a_log(void)
{
    struct job jobs[THREADS];
    pthread_t threads[THREADS];
    vault_found(&vault, RF_NOWAIT);
    vault.options.max_shards = 60000;
    vault.options.max_bytes = 256u << 20;
    vault.options.flush_interval = RF_MILLISECOND;
    rf_close(vault_open(&vault));
    struct farm *farm = farm_make(vault.directory, THREADS, crew_amount(80000, 400000), false);
    for (uint32_t i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){farm, i};
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, farm_hand, &jobs[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    TEST_ASSERT_EQUAL(0, farm_audit(farm));
    farm_drop(farm);
    rf_store *store = vault_open(&vault);
    rf_detail detail;
    rf_verification v;
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    struct logbook book;
    if (!logbook_read(&book, vault.directory, rf_durable(store))) {
        TEST_FAIL_MESSAGE(book.broken);
    }
    printf("  %llu records in %llu batches, %llu shards made\n", (unsigned long long)book.records,
           (unsigned long long)book.batches, (unsigned long long)book.made);
    logbook_free(&book);
    RF_EXPECT(RF_OK, rf_verify(store, say, NULL, &v, &detail));
    TEST_ASSERT_EQUAL(0, v.differences);
    rf_close(store);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(threads_that_wait_and_threads_that_do_not_share_a_log);
    RUN_TEST(every_operation_by_threads_on_a_store_with_a_log);
    return UNITY_END();
}
