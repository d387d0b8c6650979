/* Everything is killed at once, again and again: the same command goes on. Ctrl-C. --fresh. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prng.h"
#include "scan.h"
#include "trial.h"

static struct trial trial;
static struct corpus corpus;

/* The first of the built-in rules, and of the planted secrets those of these: what is tried here does not
 * depend on how many there are, and compiling them all is most of the time that a scan needs to begin. */
static void take_few_rules(void)
{
    static char file[128];
    size_t kept = 0;
    const char *end = strstr(rules_builtin, "[github-pat]");
    TEST_ASSERT_NOT_NULL(end);
    snprintf(file, sizeof(file), "%s/few.conf", trial.dir);
    FILE *out = fopen(file, "w");
    TEST_ASSERT_NOT_NULL(out);
    fwrite(rules_builtin, 1, (size_t)(end - rules_builtin), out);
    fclose(out);
    trial.rules = file;
    for (size_t i = 0; i < corpus.count; i++) {
        char section[64];
        snprintf(section, sizeof(section), "\n[%s]\n", corpus.planted[i].rule);
        const char *at = strstr(rules_builtin, section);
        if (at != NULL && at + 1 < end) {
            corpus.planted[kept++] = corpus.planted[i];
        } else {
            free(corpus.planted[i].path);
        }
    }
    corpus.count = kept;
    TEST_ASSERT_GREATER_THAN_UINT64(0, kept);
}

void setUp(void)
{
    const struct corpus_options options = {.seed = trial_number("RF_SEED", 4),
                                           .bytes = RF_SCAN_SLOW ? 1500000 : 6000000,
                                           .secrets = 1200,
                                           .near_misses = 100};
    trial_begin(&trial);
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
    take_few_rules();
}

void tearDown(void)
{
    corpus_free(&corpus);
    trial_end(&trial);
}

#if RF_SCAN_SLOW
#define SLOWLY "-j3 --rate 700K --chunk 16384"
#else
#define SLOWLY "-j3 --rate 3M --chunk 16384"
#endif

/* A scan that is done: all there, and by going on if it could. */
static void check_report(bool begun)
{
    trial_check_planted(&trial, &corpus);
    struct found found = trial_found(&trial);
    bool resumed = found.resumed;
    found_free(&found);
    TEST_ASSERT_TRUE_MESSAGE(resumed || !begun, "it started over");
    struct stat st;
    TEST_ASSERT_NOT_EQUAL(0, stat(trial.state, &st));
}

static void killed_at_random_moments(void)
{
    struct rf_prng prng = {trial_number("RF_SEED", 8)};
    unsigned rounds = getenv("RF_SOAK") != NULL ? 20 : 1, moments = RF_SCAN_SLOW ? 6 : 20;
    for (unsigned round = 0; round < rounds; round++) {
        bool begun = false; /* somebody worked on what is there */
        for (unsigned kills = 0; kills < moments;) {
            pid_t scan = trial_start(&trial, SLOWLY);
            /* Some moments hit the walk and the registration, the others the workers. */
            pid_t workers[8];
            bool early = rf_prng_chance(&prng, 30), seen = false;
            for (unsigned ms = 0; !early && !seen && ms < 5000; ms++) {
                trial_sleep_ms(1);
                seen = trial_workers(scan, workers, 8) > 0;
            }
            usleep(rf_prng_below(&prng, 100000));
            siginfo_t info = {0};
            waitid(P_PID, (id_t)scan, &info, WEXITED | WNOHANG | WNOWAIT);
            if (info.si_pid != 0) {
                TEST_ASSERT_EQUAL_INT(1, trial_wait(scan));
                check_report(begun);
                begun = false;
                continue; /* with another one */
            }
            /* Sometimes only the supervisor dies, and takes the workers with it. */
            if (rf_prng_chance(&prng, 25)) {
                kill(scan, SIGKILL);
                trial_wait(scan);
            } else {
                trial_kill_all(scan);
            }
            begun = begun || seen;
            kills++;
        }
        TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3 --chunk 16384"));
        check_report(begun);
    }
}

/* It has really gone on: the work of before is not done again. */
static void work_is_not_done_again(void)
{
    pid_t scan = trial_start(&trial, SLOWLY);
    struct stat st;
    char items[128];
    snprintf(items, sizeof(items), "%s/items", trial.state);
    for (unsigned ms = 0; stat(items, &st) != 0 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    trial_sleep_ms(600);
    trial_kill_all(scan);
    /* What was committed is gone from disk; only what was not is scanned. */
    size_t scanned_before = 0;
    for (size_t i = 0; i < corpus.count; i++) {
        char path[256];
        snprintf(path, sizeof(path), "%s/%s", trial.tree, corpus.planted[i].path);
        scanned_before += unlink(path) == 0;
    }
    TEST_ASSERT_GREATER_THAN_UINT64(0, scanned_before);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, SLOWLY));
    struct found found = trial_found(&trial);
    TEST_ASSERT_TRUE(found.resumed);
    TEST_ASSERT_GREATER_THAN_UINT64_MESSAGE(0, found.count, "nothing was kept");
    TEST_ASSERT_GREATER_THAN_UINT64_MESSAGE(0, found.vanished, "all was kept");
    struct reckoning r = found_reckon(&found, &corpus);
    TEST_ASSERT_EQUAL_UINT64(0, r.wrong);
    TEST_ASSERT_EQUAL_UINT64(0, r.twice);
    found_free(&found);
}

static void fresh_starts_over(void)
{
    pid_t scan = trial_start(&trial, SLOWLY);
    trial_sleep_ms(400);
    trial_kill_all(scan);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, SLOWLY " --fresh --rate 1G"));
    trial_check_planted(&trial, &corpus);
    struct found found = trial_found(&trial);
    TEST_ASSERT_FALSE(found.resumed);
    found_free(&found);
    char *said = trial_read(trial.out, NULL);
    TEST_ASSERT_NULL_MESSAGE(strstr(said, "going on with the scan"), said);
    free(said);
}

static void another_scan_does_not_take_the_place_of_this_one(void)
{
    pid_t scan = trial_start(&trial, SLOWLY " --rate 100K");
    char lock[128];
    struct stat st;
    snprintf(lock, sizeof(lock), "%s/items", trial.state);
    for (unsigned ms = 0; stat(lock, &st) != 0 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    struct trial other = trial;
    snprintf(other.out, sizeof(other.out), "%s/other", trial.dir);
    snprintf(other.json, sizeof(other.json), "%s/other.jsonl", trial.dir);
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&other, SLOWLY));
    char *said = trial_read(other.out, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "under way"), said);
    free(said);
    trial_kill_all(scan);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, SLOWLY " --rate 1G"));
    trial_check_planted(&trial, &corpus);
    /* Other rules, other answers: a state that is not this scan's is not gone on with. */
    scan = trial_start(&trial, SLOWLY);
    trial_sleep_ms(300);
    trial_kill_all(scan);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, SLOWLY " --rate 1G --binary"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_FALSE(found.resumed);
    found_free(&found);
}

/* Begins a scan of another path in the same --state, which is killed when its workers are at it. */
static void leave_another_scan(void)
{
    struct trial other = trial;
    char below[64];
    pid_t workers[8];
    snprintf(below, sizeof(below), "/%s", corpus.planted[0].path);
    below[1 + strcspn(below + 1, "/")] = '\0';
    strcat(other.tree, below);
    pid_t scan = trial_start(&other, "-j1 --rate 1K");
    for (unsigned ms = 0; trial_workers(scan, workers, 8) == 0 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    trial_kill_all(scan);
}

/* From the first file to the last one that is removed; and the place is that of another scan, of which
 * nothing must be taken for this one's. */
static void killed_at_every_change_of_its_files(void)
{
    int status = 0;
    unsigned at = 1;
    for (; status != 1; at += RF_SCAN_SLOW ? 7 : 1) {
        struct trial frail = trial;
        struct stat st;
        char number[16];
        frail.program = RF_SCAN_FRAIL;
        snprintf(number, sizeof(number), "%u", at);
        leave_another_scan();
        setenv("RF_SCAN_DIE_AT", number, 1);
        status = trial_scan(&frail, "-j2");
        unsetenv("RF_SCAN_DIE_AT");
        TEST_ASSERT_TRUE_MESSAGE(status == 1 || status == -SIGKILL, number);
        if (status != 1) {
            int again = trial_scan(&trial, "-j2");
            char *said = trial_read(trial.out, NULL);
            TEST_ASSERT_EQUAL_INT_MESSAGE(1, again, said);
            free(said);
        }
        trial_check_planted(&trial, &corpus);
        TEST_ASSERT_NOT_EQUAL_INT_MESSAGE(0, stat(trial.state, &st), number);
    }
    TEST_ASSERT_GREATER_THAN_UINT(20, at);
}

/* After a reboot, say. Then the list of files is of no use either: there may be others by now. */
static void a_scan_whose_store_is_gone_walks_again(void)
{
    char store[128];
    pid_t workers[8];
    pid_t scan = trial_start(&trial, SLOWLY);
    for (unsigned ms = 0; trial_workers(scan, workers, 8) == 0 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    trial_kill_all(scan);
    snprintf(store, sizeof(store), "%s/store", trial.state);
    TEST_ASSERT_EQUAL_STRING("OK", rf_status_name(rf_destroy(store, NULL)));
    trial_write_text(&trial, "new-file", "nothing\n");
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_FALSE(found.resumed);
    TEST_ASSERT_EQUAL_UINT64(corpus.files + 1, found.files);
    found_free(&found);
}

static pid_t start_three(const char *arguments, pid_t *workers)
{
    pid_t scan = trial_start(&trial, arguments);
    for (unsigned ms = 0; trial_workers(scan, workers, 8) < 3 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    trial_sleep_ms(200);
    return scan;
}

static void expect_interrupted(pid_t scan)
{
    int status = trial_wait(scan);
    char *said = trial_read(trial.out, NULL);
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, status, said);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "goes on from here"), said);
    free(said);
}

static bool somebody_works(void)
{
    char path[128];
    struct items items;
    rf_store *store;
    rf_tenant tenant;
    rf_progress progress = {0};
    snprintf(path, sizeof(path), "%s/items", trial.state);
    if (!items_open(&items, path)) {
        return false;
    }
    snprintf(path, sizeof(path), "%s/store", trial.state);
    if (rf_open(path, &(rf_options){.read_only = true}, &store, NULL) == RF_OK) {
        rf_tenant_from_name(TENANT, &tenant);
        rf_get_progress(store, rf_now(store), &tenant, items.header->run, &progress, NULL, NULL);
        rf_close(store);
    }
    items_close(&items);
    return progress.leased > 0;
}

/* What a worker is at is committed: here the first part of a file, for which it sleeps for 16 seconds. */
static void an_interrupt_drains(void)
{
    static char text[100000];
    char *said;
    memset(text, 'x', sizeof(text));
    remove_tree(trial.tree);
    TEST_ASSERT_EQUAL_INT(0, mkdir(trial.tree, 0755));
    trial_write(&trial, "file", text, sizeof(text));
    pid_t scan = trial_start(&trial, "-j1 --rate 1K --chunk 16384");
    for (unsigned ms = 0; !somebody_works() && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    kill(-scan, SIGINT); /* as a terminal does: to all of the group */
    expect_interrupted(scan);
    said = trial_read(trial.out, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "interrupted at 16%"), said);
    free(said);
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, "-j3 --chunk 16384"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_TRUE(found.resumed);
    TEST_ASSERT_EQUAL_UINT64(sizeof(text), found.bytes);
    found_free(&found);
    said = trial_read(trial.out, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "going on with the scan that was begun at 20"), said);
    free(said);
}

/* A worker that is stopped can't drain; it is waited for until the user has enough of that. */
static void a_second_interrupt_stops(void)
{
    pid_t workers[8], left[8];
    pid_t scan = start_three(SLOWLY " --rate 100K", workers);
    kill(workers[0], SIGSTOP);
    kill(-scan, SIGINT);
    for (unsigned ms = 0; trial_workers(scan, left, 8) > 1 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    TEST_ASSERT_EQUAL_UINT64(1, trial_workers(scan, left, 8));
    TEST_ASSERT_EQUAL_INT(workers[0], left[0]);
    kill(-scan, SIGINT);
    expect_interrupted(scan);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3 --chunk 16384"));
    trial_check_planted(&trial, &corpus);
}

/* One that is stopped for good is no reason to wait when others have done its work. */
static void a_scan_ends_without_a_worker_that_is_stopped(void)
{
    pid_t workers[8];
    pid_t scan = start_three(SLOWLY " --lease 300 --restarts 1000", workers);
    kill(workers[0], SIGSTOP);
    TEST_ASSERT_EQUAL_INT(1, trial_wait(scan));
    trial_check_planted(&trial, &corpus);
}

/* Kills the workers whenever one of them holds a shard, until the scan ends. */
static int kill_every_worker(const char *arguments)
{
    pid_t scan = trial_start(&trial, arguments);
    for (siginfo_t info = {0};
         waitid(P_PID, (id_t)scan, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;) {
        pid_t workers[8];
        size_t count = somebody_works() ? trial_workers(scan, workers, 8) : 0;
        for (size_t i = 0; i < count; i++) {
            kill(workers[i], SIGKILL);
        }
        trial_sleep_ms(1);
    }
    return trial_wait(scan);
}

#define WITHOUT_PROGRESS "-j2 --rate 4K --chunk 16384 --commit 1G "

/* Workers that can't live are not started for ever, and what they did not do is not lost. */
static void the_restart_budget_ends(void)
{
    TEST_ASSERT_EQUAL_INT(2, kill_every_worker(WITHOUT_PROGRESS "--restarts 2"));
    char *said = trial_read(trial.out, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "goes on from here"), said);
    free(said);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2"));
    trial_check_planted(&trial, &corpus);
}

/* A shard whose workers die again and again is set aside with a reason; the next command tries it
 * again. */
static void what_kills_its_workers_is_set_aside(void)
{
    corpus_free(&corpus);
    remove_tree(trial.tree);
    const struct corpus_options options = {.seed = 1, .bytes = 200000, .secrets = 80};
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
    take_few_rules();
    for (unsigned time = 0; time < 2; time++) {
        int status = kill_every_worker(WITHOUT_PROGRESS "--restarts 100000 --retries 2");
        TEST_ASSERT_EQUAL_INT(2, status);
        char *said = trial_read(trial.out, NULL);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(said, "too many workers died of it"), said);
        free(said);
        struct found found = trial_found(&trial);
        TEST_ASSERT_GREATER_THAN_UINT64(0, found.set_aside);
        found_free(&found);
    }
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2 --chunk 65536"));
    trial_check_planted(&trial, &corpus);
}

int main(void)
{
    /* The leak checker stops its process by a helper, and waits for ever if that is killed
     * too. */
    setenv("ASAN_OPTIONS", "detect_leaks=0:quarantine_size_mb=4", 1);
    UNITY_BEGIN();
    RUN_TEST(killed_at_random_moments);
    RUN_TEST(work_is_not_done_again);
    RUN_TEST(fresh_starts_over);
    RUN_TEST(another_scan_does_not_take_the_place_of_this_one);
    RUN_TEST(killed_at_every_change_of_its_files);
    RUN_TEST(a_scan_whose_store_is_gone_walks_again);
    RUN_TEST(an_interrupt_drains);
    RUN_TEST(a_second_interrupt_stops);
    RUN_TEST(a_scan_ends_without_a_worker_that_is_stopped);
    RUN_TEST(the_restart_budget_ends);
    RUN_TEST(what_kills_its_workers_is_set_aside);
    return UNITY_END();
}
