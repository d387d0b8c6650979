/* A short storm: `make storm` is the long one. RF_SEED chooses who is killed, and when it is tried. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unity.h>

#include "prng.h"
#include "shop.h"
#include "storm.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void workers_killed_stopped_and_replaced_lose_nothing_and_do_nothing_twice(void)
{
    char directory[64];
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside a thread");
    }
    snprintf(directory, sizeof(directory), "/tmp/rf-test-storm-%d", (int)getpid());
    const struct rf_storm storm = {.directory = directory,
                                   .workers = 5,
                                   .kills = 200,
                                   .seconds = 5,
                                   .kills_pause = 30,
                                   .seed = rf_env_number("RF_SEED", 1)};
    struct rf_storm_report r;
    const char *why = rf_storm_play(&storm, &r);
    printf("  seed %" PRIu64 ": %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64 " pauses, %" PRIu64
           " cold opens, %" PRIu64 " items\n",
           storm.seed, r.kills, r.stops, r.pauses, r.cold, r.items);
    if (why != NULL) {
        TEST_FAIL_MESSAGE(why);
    }
    TEST_ASSERT_NOT_EQUAL(0, r.kills);
    TEST_ASSERT_NOT_EQUAL(0, r.items);
}

/* --- the watchdog --- */

static char shown[1 << 20];

static struct rf_storm small_storm(char *directory, size_t size)
{
    snprintf(directory, size, "/tmp/rf-test-storm-%d", (int)getpid());
    return (struct rf_storm){.directory = directory,
                             .workers = 2,
                             .seconds = 60,
                             .kills_pause = 1000,
                             .seed = rf_env_number("RF_SEED", 1)};
}

/* Plays it in a process of its own; what that one shows is in `shown`. */
static int play_apart(int (*play)(void))
{
    int ends[2], how = 0;
    size_t got = 0;
    TEST_ASSERT_EQUAL_INT(0, pipe(ends));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        _exit(play());
    }
    close(ends[1]);
    for (ssize_t n = 1; n > 0 && got<sizeof(shown) - 1; got += n> 0 ? (size_t)n : 0) {
        n = read(ends[0], shown + got, sizeof(shown) - 1 - got);
    }
    shown[got] = 0;
    close(ends[0]);
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &how, 0));
    /* What is kept for whoever looks after a hang. */
    char command[256];
    snprintf(command, sizeof(command), "rm -rf /tmp/rf-test-storm-%d /dev/shm/rf-storm-%d",
             (int)pid, (int)pid);
    TEST_ASSERT_EQUAL_INT(0, system(command));
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

static void expect_shown(const char *what)
{
    if (strstr(shown, what) == NULL) {
        fprintf(stderr, "%s", shown);
        TEST_FAIL_MESSAGE(what);
    }
}

/* With gdb there are stacks. Without, what each thread waits for. */
static void expect_stack_with(const char *function)
{
    expect_shown("comm: ");
    expect_shown("syscall: ");
    if (system("command -v gdb >/dev/null") == 0 && strstr(shown, "no stacks") == NULL) {
        expect_shown("#0 ");
        expect_shown(function);
    }
}

static int play_without_patience(void)
{
    char directory[64];
    struct rf_storm storm = small_storm(directory, sizeof(directory));
    struct rf_storm_report r;
    storm.patience = 1; /* less than it takes to look twice */
    const char *why = rf_storm_play(&storm, &r);
    return why != NULL && strstr(why, "nothing was committed") != NULL ? 0 : 1;
}

static void when_nothing_is_committed_all_stacks_are_shown(void)
{
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside a thread");
    }
    TEST_ASSERT_EQUAL_INT(0, play_apart(play_without_patience));
    expect_shown("worker 0");
    expect_shown("worker 1");
    expect_shown("the director:");
    expect_stack_with("rf_storm_play");
}

static void hang_for_ever(const char *store)
{
    (void)store;
    for (;;) {
        pause();
    }
}

static int play_with_a_director_who_hangs(void)
{
    static const struct rf_storm_watch watch = {.begin = hang_for_ever};
    char directory[64];
    struct rf_storm storm = small_storm(directory, sizeof(directory));
    struct rf_storm_report r;
    storm.watch = &watch;
    storm.director_s = 1;
    rf_storm_play(&storm, &r);
    return 1;
}

static void a_director_who_hangs_is_seen_too(void)
{
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside a thread");
    }
    TEST_ASSERT_EQUAL_INT(RF_STORM_HANGS, play_apart(play_with_a_director_who_hangs));
    expect_shown("the director hangs");
    expect_stack_with("hang_for_ever");
}

static void hang_in_worker_0(unsigned ledger, uint64_t line)
{
    (void)line;
    while (ledger == 0) {
        pause();
    }
}

static void ignore_store(const char *store)
{
    (void)store;
}

static void ignore_birth(unsigned worker)
{
    (void)worker;
}

static void ignore_death(unsigned worker, pid_t pid)
{
    (void)worker, (void)pid;
}

static bool never_enough(void)
{
    return false;
}

static void ignore_end(void)
{
}

static int play_with_a_worker_who_hangs(void)
{
    static const struct rf_storm_watch watch = {.begin = ignore_store,
                                                .noted = hang_in_worker_0,
                                                .born = ignore_birth,
                                                .died = ignore_death,
                                                .enough = never_enough,
                                                .end = ignore_end};
    char directory[64];
    struct rf_storm storm = small_storm(directory, sizeof(directory));
    struct rf_storm_report r;
    storm.watch = &watch;
    storm.kills_pause = 1;
    storm.patience = 4 * RF_SECOND;
    const char *why = rf_storm_play(&storm, &r);
    return why != NULL && strstr(why, "worker 0 does not come back") != NULL ? 0 : 1;
}

static void one_worker_who_hangs_while_others_work_is_seen(void)
{
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside a thread");
    }
    TEST_ASSERT_EQUAL_INT(0, play_apart(play_with_a_worker_who_hangs));
    expect_stack_with("hang_in_worker_0");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(one_worker_who_hangs_while_others_work_is_seen);
    RUN_TEST(when_nothing_is_committed_all_stacks_are_shown);
    RUN_TEST(a_director_who_hangs_is_seen_too);
    RUN_TEST(workers_killed_stopped_and_replaced_lose_nothing_and_do_nothing_twice);
    return UNITY_END();
}
