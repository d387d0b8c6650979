/* The same findings whatever the number of workers, wherever files are cut, and whoever is killed or
 * stopped meanwhile. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "prng.h"
#include "ringfence/ringfence.h"
#include "scan.h"
#include "trial.h"

static struct trial trial;
static struct corpus corpus;
static char *expected; /* the findings of one worker, undisturbed */

void setUp(void)
{
    const struct corpus_options options = {.seed = trial_number("RF_SEED", 3),
                                           .bytes = RF_SCAN_SLOW ? 1500000 : 5000000,
                                           .secrets = 400,
                                           .near_misses = 300};
    trial_begin(&trial);
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1"));
    trial_check_planted(&trial, &corpus);
    expected = trial_findings(&trial);
}

void tearDown(void)
{
    free(expected);
    corpus_free(&corpus);
    trial_end(&trial);
}

static void same_findings(void)
{
    char *findings = trial_findings(&trial);
    bool same = strcmp(expected, findings) == 0;
    free(findings);
    trial_check_planted(&trial, &corpus);
    TEST_ASSERT_TRUE_MESSAGE(same, "the findings differ");
}

/* Nothing of a scan stays behind when its report is out. */
static void nothing_left(void)
{
    struct stat st;
    TEST_ASSERT_NOT_EQUAL(0, stat(trial.state, &st));
}

static void any_number_of_workers(void)
{
    static const char *const counts[] = {"-j2", "-j8", "-j2 --uncoordinated"};
    for (size_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(1, trial_scan(&trial, counts[i]), counts[i]);
        same_findings();
        nothing_left();
    }
}

/* Lines and columns as well: they are part of the text that is compared. */
static void any_cutting_of_files(void)
{
    static const char *const cuts[] = {
        "-j2 --chunk 16384 --commit 1",
        "-j4 --chunk 50000",
    };
    for (size_t i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT_MESSAGE(1, trial_scan(&trial, cuts[i]), cuts[i]);
        same_findings();
    }
    /* Segments do not know the column of a line that began in another one. */
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j4 --segment 65536 --chunk 16384"));
    trial_check_planted(&trial, &corpus);
    char *findings = trial_findings(&trial), *a = findings, *b = expected;
    for (unsigned lines = 0; *b != '\0'; lines++) {
        const char *line_a = strstr(a, "\"line\":"), *line_b = strstr(b, "\"line\":");
        TEST_ASSERT_TRUE(line_a != NULL && line_b != NULL);
        TEST_ASSERT_EQUAL_UINT64(strtoull(line_b + 7, NULL, 10), strtoull(line_a + 7, NULL, 10));
        a = strchr(a, '\n') + 1;
        b = strchr(b, '\n') + 1;
    }
    free(findings);
}

static unsigned kill_some(pid_t scan, struct rf_prng *prng, unsigned percent)
{
    pid_t workers[16];
    unsigned kills = 0;
    size_t count = trial_workers(scan, workers, 16);
    for (size_t i = 0; i < count; i++) {
        if (rf_prng_chance(prng, percent) && kill(workers[i], SIGKILL) == 0) {
            kills++;
        }
    }
    return kills;
}

static void kills_change_nothing(void)
{
    uint64_t seed = trial_number("RF_SEED", 5);
    struct rf_prng prng = {seed};
    static const unsigned workers[] = {1, 2, 8};
    unsigned rounds = getenv("RF_SOAK") != NULL ? 60 : 3, kills = 0;
    for (unsigned round = 0; round < rounds; round++) {
        char arguments[128];
        snprintf(arguments, sizeof(arguments),
                 "-j%u --rate %s --chunk 16384 --restarts 1000 --retries 100000",
                 workers[round % 3], RF_SCAN_SLOW ? "800K" : "3M");
        pid_t scan = trial_start(&trial, arguments);
        for (siginfo_t info = {0};
             waitid(P_PID, (id_t)scan, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
             info.si_pid == 0;) {
            trial_sleep_ms(RF_SCAN_SLOW ? 100 + rf_prng_below(&prng, 200)
                                        : 10 + rf_prng_below(&prng, 60));
            kills +=
                kill_some(scan, &prng, round % 3 == 0 ? 10 : 25); /* one worker: it has to get on */
        }
        TEST_ASSERT_EQUAL_INT(1, trial_wait(scan));
        same_findings();
        nothing_left();
    }
    TEST_ASSERT_GREATER_THAN_UINT(4, kills);
}

/* Workers are stopped for longer than their leases; they wake up, go on, and are refused. */
static void zombies_change_nothing(void)
{
    struct rf_prng prng = {trial_number("RF_SEED", 6)};
    unsigned rounds = getenv("RF_SOAK") != NULL ? 30 : 1;
    for (unsigned round = 0; round < rounds; round++) {
        struct found found;
        for (unsigned tries = 0;; tries++) {
            pid_t scan =
                trial_start(&trial, RF_SCAN_SLOW ? "-j4 --rate 600K --chunk 16384 --lease 100"
                                                 : "-j4 --rate 2M --chunk 16384 --lease 100");
            for (siginfo_t info = {0};
                 waitid(P_PID, (id_t)scan, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
                 info.si_pid == 0;) {
                pid_t workers[16];
                size_t count = trial_workers(scan, workers, 16);
                pid_t one = count == 0 ? 0 : workers[rf_prng_below(&prng, (uint32_t)count)];
                if (one != 0) {
                    kill(one, SIGSTOP);
                    trial_sleep_ms(250);
                    kill(one, SIGCONT);
                }
                trial_sleep_ms(20 + rf_prng_below(&prng, 100));
            }
            TEST_ASSERT_EQUAL_INT(1, trial_wait(scan));
            same_findings();
            found = trial_found(&trial);
            uint64_t refused = found.refused;
            found_free(&found);
            if (refused > 0) {
                break; /* otherwise none had a lease when it was stopped: try again */
            }
            TEST_ASSERT_LESS_THAN_UINT_MESSAGE(20, tries, "no zombie was ever refused");
        }
    }
}

/* A tree that is too small for two shards: the second worker has work only if the first gives some. */
static void a_busy_worker_shares_its_shard(void)
{
    const struct corpus_options options = {.seed = 1, .bytes = 500000, .secrets = 200};
    for (unsigned tries = 0;; tries++) {
        corpus_free(&corpus);
        remove_tree(trial.tree);
        TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
        TEST_ASSERT_LESS_THAN_UINT64(1000000, corpus.bytes + 8192 * corpus.files);
        TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2 --rate 300K --chunk 16384"));
        trial_check_planted(&trial, &corpus);
        struct found found = trial_found(&trial);
        uint64_t splits = found.splits;
        found_free(&found);
        if (splits > 0) {
            break; /* otherwise the second began when the first was done: try again */
        }
        TEST_ASSERT_LESS_THAN_UINT_MESSAGE(10, tries, "nothing was ever shared");
    }
}

static bool note_deadline(void *context, const rf_shard_info *shard)
{
    rf_shard_info *leased = context;
    if (shard->leased) {
        *leased = *shard;
    }
    return true;
}

/* The shard that somebody holds; not leased: nobody does. */
static rf_shard_info leased_shard(void)
{
    char path[128];
    struct items items;
    rf_store *store;
    rf_tenant tenant;
    rf_shard_info leased = {0};
    snprintf(path, sizeof(path), "%s/items", trial.state);
    if (!items_open(&items, path)) {
        return leased;
    }
    snprintf(path, sizeof(path), "%s/store", trial.state);
    if (rf_open(path, &(rf_options){.read_only = true}, &store, NULL) == RF_OK) {
        rf_tenant_from_name(TENANT, &tenant);
        rf_list_shards(store, rf_now(store), &tenant, items.header->run, RF_LIST_ALL, note_deadline,
                       &leased, NULL);
        rf_close(store);
    }
    items_close(&items);
    return leased;
}

/* A worker that is at one part of a file for longer than a lease lasts keeps it. */
static void a_lease_is_renewed_while_a_worker_is_at_it(void)
{
    static char text[200000];
    memset(text, 'x', sizeof(text));
    remove_tree(trial.tree);
    TEST_ASSERT_EQUAL_INT(0, mkdir(trial.tree, 0755));
    trial_write(&trial, "file", text, sizeof(text));
    pid_t scan = trial_start(&trial, "-j1 --rate 1K --chunk 65536 --lease 4000"); /* a minute */
    rf_shard_info first = {0}, now = {0};
    for (unsigned ms = 0; !first.leased && ms < 60000; ms++) {
        first = leased_shard();
        trial_sleep_ms(1);
    }
    for (unsigned ms = 0; now.deadline <= first.deadline && ms < 50000; ms += 10) {
        trial_sleep_ms(10);
        now = leased_shard();
    }
    trial_kill_all(scan);
    TEST_ASSERT_TRUE(first.leased && now.leased);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(first.version, now.version, "it was not at one part");
    TEST_ASSERT_GREATER_THAN_UINT64_MESSAGE(first.deadline, now.deadline, "never renewed");
}

int main(void)
{
    /* The leak checker stops its process by a helper, and waits for ever if that is killed
     * too. */
    setenv("ASAN_OPTIONS", "detect_leaks=0:quarantine_size_mb=4", 1);
    UNITY_BEGIN();
    RUN_TEST(any_number_of_workers);
    RUN_TEST(any_cutting_of_files);
    RUN_TEST(kills_change_nothing);
    RUN_TEST(zombies_change_nothing);
    RUN_TEST(a_busy_worker_shares_its_shard);
    RUN_TEST(a_lease_is_renewed_while_a_worker_is_at_it);
    return UNITY_END();
}
