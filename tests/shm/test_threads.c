/*
 * Several handles in threads of one process share one mapping and one guardian. ThreadSanitizer,
 * under which this is run too, sees every access that they make to it.
 *
 * What a tool finds only counts if it would have found something: with RF_PLANT_RACE=plain in the
 * environment this program makes a race on a word of the region and nothing else, with =atomic the
 * same without the race, and a case of its own runs both.
 */
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unity.h>

#include "farm.h"
#include "handle.h"

#define THREADS 6u

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define UNDER_ASAN 1
#else
#define UNDER_ASAN 0
#endif

extern char **environ;

void setUp(void)
{
}

void tearDown(void)
{
    crew_store_drop();
}

static void make_store(const char *store)
{
    rf_close(crew_open(store, &(rf_options){.create = true,
                                            .max_shards = 60000,
                                            .max_bytes = 256u << 20,
                                            .max_runs = 64,
                                            .max_members = 64}));
}

/* --- all operations --- */

struct job {
    struct farm *farm;
    uint32_t index;
};

static void *work(void *argument)
{
    const struct job *job = argument;
    farm_work(job->farm, job->index);
    return NULL;
}

static void *watch(void *argument)
{
    farm_watch(argument);
    return NULL;
}

static void threads_with_handles_of_their_own_keep_every_rule(void)
{
    struct farm *farm =
        farm_make(crew_store("threads"), THREADS, crew_amount(100000, 1000000), false);
    struct job jobs[THREADS];
    pthread_t threads[THREADS], watcher;
    farm->read_only = false; /* a read-only handle has a mapping of its own */
    make_store(farm->store);
    TEST_ASSERT_EQUAL(0, pthread_create(&watcher, NULL, watch, farm));
    for (uint32_t i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){farm, i};
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, work, &jobs[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    atomic_store(&farm->stop, true);
    pthread_join(watcher, NULL);
    TEST_ASSERT_EQUAL(0, farm_audit(farm));
    farm_drop(farm);
}

/* --- sessions that are kept alive --- */

/* The guardian renews at a third of it, and may not run for a while on a machine with much to do. */
#define SESSION_LEASE_MS (UNDER_TSAN ? 1000u : 500u)

struct session_job {
    const char *store;
    uint64_t worker;
    _Atomic uint64_t *completed;
};

static void *work_by_sessions(void *argument)
{
    const struct session_job *job = argument;
    rf_store *store = crew_open(job->store, &(rf_options){0});
    rf_session *session = NULL;
    const rf_grant *grant;
    CREW_CHECK(rf_session_create(store,
                                 &(rf_session_options){.tenant = farm_tenant(1),
                                                       .worker = job->worker,
                                                       .keep_alive = true},
                                 &session) == RF_OK,
               "session");
    while (rf_session_claim(session, 1, 0, &grant, NULL) == RF_OK) {
        rf_cursor cursor = {.key = grant->spec.start};
        crew_sleep_ms(SESSION_LEASE_MS * 5 / 4); /* the guardian has to renew it */
        CREW_CHECK(rf_session_checkpoint(session, cursor, NULL) == RF_OK, "checkpoint");
        CREW_CHECK(rf_session_check(session) == RF_OK, "check");
        CREW_CHECK(rf_session_complete(session, cursor, NULL) == RF_OK, "complete");
        atomic_fetch_add(job->completed, 1);
    }
    rf_session_destroy(session);
    rf_close(store);
    return NULL;
}

static void sessions_in_threads_are_kept_alive_by_one_guardian(void)
{
    enum { SHARDS = 2 * THREADS };
    const char *name = crew_store("sessions");
    rf_shard_input inputs[SHARDS];
    struct farm_key keys[2 * SHARDS];
    struct session_job jobs[THREADS];
    pthread_t threads[THREADS];
    _Atomic uint64_t completed = 0;
    rf_tenant tenant = farm_tenant(1);
    rf_run_config config = {.lease_duration = SESSION_LEASE_MS * RF_MILLISECOND};
    rf_store *store = crew_open(name, NULL);
    for (uint32_t i = 0; i < SHARDS; i++) {
        keys[2 * i] = farm_key(i + 1);
        keys[2 * i + 1] = farm_key(i + 2);
        inputs[i] = (rf_shard_input){
            .shard = i + 1,
            .spec = {.start = {keys[2 * i].bytes, 8}, .end = {keys[2 * i + 1].bytes, 8}}};
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, 1, &config,
                                                       inputs, SHARDS, 1, NULL));
    for (uint32_t i = 0; i < THREADS; i++) {
        jobs[i] = (struct session_job){name, i * 2, &completed};
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, work_by_sessions, &jobs[i]));
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    TEST_ASSERT_EQUAL_UINT64(SHARDS, atomic_load(&completed));
    rf_close(store);
}

/* --- opening, closing and forking at once --- */

struct churn {
    const char *store;
    _Atomic bool stop;
};

static void *open_and_close(void *argument)
{
    struct churn *churn = argument;
    while (!atomic_load(&churn->stop)) {
        rf_close(crew_open(churn->store, &(rf_options){0}));
    }
    return NULL;
}

static void handles_come_and_go_in_many_threads(void)
{
    struct churn churn = {.store = crew_store("churn")};
    pthread_t threads[4];
    make_store(churn.store);
    for (uint32_t i = 0; i < 4; i++) {
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, open_and_close, &churn));
    }
    crew_sleep_ms(500);
    atomic_store(&churn.stop, true);
    for (uint32_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    rf_inspection inspection;
    rf_store *store = crew_open(churn.store, &(rf_options){0});
    TEST_ASSERT_EQUAL(RF_OK, rf_inspect(store, &inspection, NULL));
    TEST_ASSERT_EQUAL_UINT64(2, inspection.members);
    TEST_ASSERT_EQUAL_UINT64(0, inspection.dead_members);
    rf_close(store);
}

static int open_in_child(void *argument)
{
    rf_close(crew_open(argument, &(rf_options){0}));
    return 0;
}

/* The fork may come while another thread is inside rf_open or rf_close with a lock. */
static void a_child_forked_while_other_threads_open_can_open_too(void)
{
#if UNDER_TSAN
    TEST_IGNORE_MESSAGE("ThreadSanitizer allows no threads after a fork of a threaded process");
#endif
#if UNDER_ASAN
    TEST_IGNORE_MESSAGE("AddressSanitizer's allocator may be locked for ever in a child of fork");
#endif
    struct churn churn = {.store = crew_store("fork")};
    pthread_t threads[3];
    make_store(churn.store);
    for (uint32_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL(0, pthread_create(&threads[i], NULL, open_and_close, &churn));
    }
    int rc = 0;
    for (uint32_t i = 0; i < crew_amount(200, 2000) && rc == 0; i++) {
        rc = crew_join(crew_start(open_in_child, (void *)(uintptr_t)churn.store), 10000);
    }
    atomic_store(&churn.stop, true);
    for (uint32_t i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
    }
    TEST_ASSERT_EQUAL(0, rc);
}

/* --- would a race be found? --- */

static uint64_t *planted_word;
static bool planted_atomic;

static void *touch_planted(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < 1000; i++) {
        if (planted_atomic) {
            __atomic_fetch_add(planted_word, 1, __ATOMIC_RELAXED);
        } else {
            *(volatile uint64_t *)planted_word += 1;
        }
    }
    return NULL;
}

static int plant(const char *kind)
{
    char name[64];
    snprintf(name, sizeof(name), "planted-%d", (int)getpid());
    rf_store *store = crew_open(name, NULL);
    struct rf_map *map = rf_handle_of(store)->map;
    /* The rest of a stripe's cache line is nobody's. */
    planted_word = (uint64_t *)rf_section_at(map, &map->header->stripes, 0) + 4;
    planted_atomic = strcmp(kind, "atomic") == 0;
    pthread_t threads[2];
    for (unsigned i = 0; i < 2; i++) {
        CREW_CHECK(pthread_create(&threads[i], NULL, touch_planted, NULL) == 0, "thread");
    }
    for (unsigned i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    rf_close(store);
    rf_destroy(name, NULL);
    return 0;
}

static int run_planted(const char *kind)
{
    char plant_env[64];
    char *const arguments[] = {(char *)(uintptr_t) "planted", NULL};
    char *const environment[] = {plant_env, (char *)(uintptr_t) "TSAN_OPTIONS=exitcode=66", NULL};
    pid_t pid;
    int status = 0;
    snprintf(plant_env, sizeof(plant_env), "RF_PLANT_RACE=%s", kind);
    TEST_ASSERT_EQUAL(0, posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environment));
    TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_planted_race_on_the_region_is_reported(void)
{
    TEST_ASSERT_EQUAL_MESSAGE(0, run_planted("atomic"), "without the race");
#if UNDER_TSAN
    TEST_ASSERT_EQUAL_MESSAGE(66, run_planted("plain"), "with the race");
#else
    TEST_IGNORE_MESSAGE("only ThreadSanitizer reports races, and this is built without it");
#endif
}

int main(void)
{
    const char *planted = getenv("RF_PLANT_RACE");
    if (planted != NULL) {
        return plant(planted);
    }
    UNITY_BEGIN();
    RUN_TEST(threads_with_handles_of_their_own_keep_every_rule);
    RUN_TEST(sessions_in_threads_are_kept_alive_by_one_guardian);
    RUN_TEST(handles_come_and_go_in_many_threads);
    RUN_TEST(a_child_forked_while_other_threads_open_can_open_too);
    RUN_TEST(a_planted_race_on_the_region_is_reported);
    return UNITY_END();
}
