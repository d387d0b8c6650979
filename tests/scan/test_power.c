/*
 * The power goes while a durable scan is on. What is left then: the log up to some point, what the scan
 * synced of its own files, and nothing in shared memory. The worst of that is made: everything is killed,
 * the region is removed, the end of the log is wiped, and of the scan's files only that is left which
 * was synced (shadow.h).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "prng.h"
#include "scan.h"
#include "shadow.h"
#include "trial.h"

static struct trial trial;
static struct corpus corpus;
static char store_dir[128], shadow[128];

void setUp(void)
{
    const struct corpus_options options = {.seed = trial_number("RF_SEED", 12),
                                           .bytes = RF_SCAN_SLOW ? 1500000 : 5000000,
                                           .secrets = 400,
                                           .near_misses = 100};
    trial_begin(&trial);
    snprintf(store_dir, sizeof(store_dir), "%s/store", trial.state);
    snprintf(shadow, sizeof(shadow), "%s/shadow", trial.dir);
    TEST_ASSERT_EQUAL_INT(0, mkdir(shadow, 0700));
    TEST_ASSERT_EQUAL_INT(0, setenv("RF_SCAN_SHADOW", shadow, 1));
    trial.program = RF_SCAN_FRAIL;
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
}

void tearDown(void)
{
    corpus_free(&corpus);
    trial_end(&trial);
}

/* Shared memory does not survive. */
static bool remove_region(void)
{
    struct stat st;
    char path[128];
    if (stat(store_dir, &st) != 0) {
        return false;
    }
    snprintf(path, sizeof(path), "/dev/shm/ringfence.%llx.%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return unlink(path) == 0;
}

/* The last bytes of the log, up to half of it: its beginning was waited for when the store was made.
 * Only of the first segment, before anything was recovered. */
static void wipe_end_of_log(size_t wipe)
{
    char path[160];
    size_t len;
    snprintf(path, sizeof(path), "%s/log.%016x", store_dir, 0);
    char *log = trial_read(path, &len);
    size_t end = len;
    while (end > 0 && log[end - 1] == 0) {
        end--;
    }
    TEST_ASSERT_TRUE_MESSAGE(end > 0 && end < len, "the log is empty, or in its second segment");
    wipe = wipe < end / 2 ? wipe : end / 2;
    memset(log + end - wipe, 0, wipe);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_TRUE(pwrite(fd, log + end - wipe, wipe, (off_t)(end - wipe)) == (ssize_t)wipe);
    close(fd);
    free(log);
}

static bool add_bytes(void *context, const rf_shard_info *shard)
{
    struct progress p;
    TEST_ASSERT_TRUE(progress_decode(shard->cursor.token, &p));
    *(uint64_t *)context += p.bytes;
    return true;
}

/* How many bytes are known to be scanned. */
static uint64_t bytes_done(void)
{
    struct items items;
    char path[160];
    uint64_t done = 0;
    rf_store *store;
    rf_tenant tenant;
    rf_detail detail = {0};
    snprintf(path, sizeof(path), "%s/items", trial.state);
    TEST_ASSERT_TRUE(items_open(&items, path));
    rf_tenant_from_name(TENANT, &tenant);
    rf_status status = rf_open(store_dir, &(rf_options){0}, &store, &detail);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("OK", rf_status_name(status), detail.where);
    status = rf_list_shards(store, rf_now(store), &tenant, items.header->run, RF_LIST_ALL,
                            add_bytes, &done, NULL);
    TEST_ASSERT_TRUE(status == RF_OK || status == RF_RUN_NOT_FOUND);
    rf_close(store);
    items_close(&items);
    return done;
}

static void wait_for_workers(pid_t scan)
{
    pid_t workers[8];
    for (unsigned ms = 0; trial_workers(scan, workers, 8) == 0; ms++) {
        siginfo_t info = {0};
        waitid(P_PID, (id_t)scan, &info, WEXITED | WNOHANG | WNOWAIT);
        if (info.si_pid != 0 || ms > 60000) {
            char *said = trial_read(trial.out, NULL);
            TEST_FAIL_MESSAGE(said);
        }
        trial_sleep_ms(1);
    }
}

static void a_scan_goes_on_after_a_power_cut(void)
{
    struct rf_prng prng = {trial_number("RF_SEED", 13)};
    unsigned rounds = getenv("RF_SOAK") != NULL ? 40 : 2, gone_on = 0;
    const char *slowly = RF_SCAN_SLOW ? "-j3 --durable --chunk 16384 --rate 500K --commit 1"
                                      : "-j3 --durable --chunk 16384 --rate 2M --commit 1";
    for (unsigned round = 0; round < rounds || (gone_on == 0 && round < 20); round++) {
        for (unsigned cuts = 0; cuts < 3; cuts++) {
            pid_t scan = trial_start(&trial, slowly);
            wait_for_workers(scan);
            trial_sleep_ms(300 + rf_prng_below(&prng, 400));
            trial_kill_all(scan);
            TEST_ASSERT_TRUE(remove_region());
            if (cuts == 0) {
                wipe_end_of_log(1 + rf_prng_below(&prng, 100000));
            }
            shadow_restore(shadow, trial.dir, "state");
            gone_on += bytes_done() > 0;
        }
        int status = trial_scan(&trial, "-j3 --durable --chunk 16384");
        char *said = trial_read(trial.out, NULL);
        TEST_ASSERT_EQUAL_INT_MESSAGE(1, status, said);
        free(said);
        trial_check_planted(&trial, &corpus);
    }
    TEST_ASSERT_GREATER_THAN_UINT_MESSAGE(0, gone_on, "it always started over");
}

/* Without --durable a reboot starts the scan over, and what earlier fences wrote does not count. */
static void a_volatile_scan_starts_over_after_a_reboot(void)
{
    const char *slowly = RF_SCAN_SLOW ? "-j3 --chunk 16384 --rate 500K --commit 1"
                                      : "-j3 --chunk 16384 --rate 2M --commit 1";
    pid_t scan = trial_start(&trial, slowly);
    wait_for_workers(scan);
    trial_sleep_ms(500);
    trial_kill_all(scan);
    TEST_ASSERT_TRUE(remove_region());
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3 --chunk 16384"));
    trial_check_planted(&trial, &corpus);
    struct found found = trial_found(&trial);
    TEST_ASSERT_FALSE(found.resumed);
    found_free(&found);
}

/* One rule is enough here, and is compiled at once. */
static void take_one_rule(void)
{
    static char file[128];
    const char *end = strstr(rules_builtin, "[aws-secret-access-key]");
    snprintf(file, sizeof(file), "%s/one.conf", trial.dir);
    FILE *out = fopen(file, "w");
    TEST_ASSERT_TRUE(out != NULL && end != NULL);
    fwrite(rules_builtin, 1, (size_t)(end - rules_builtin), out);
    fclose(out);
    trial.rules = file;
    remove_tree(trial.tree);
    corpus_free(&corpus);
    const struct corpus_options options = {.seed = 1, .bytes = 300000, .secrets = 1};
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
    TEST_ASSERT_EQUAL_STRING("aws-access-key-id", corpus.planted[0].rule);
}

/* Everything from the first file to the last one that is removed. At no moment is something left that
 * the same command can't go on with, or a finished scan without its report. */
static void the_power_may_go_at_any_change_of_a_file(void)
{
    int status = 0;
    unsigned at = 1;
    take_one_rule();
    for (; status != 1; at += RF_SCAN_SLOW ? 9 : 1) {
        char number[16];
        snprintf(number, sizeof(number), "%u", at);
        setenv("RF_SCAN_DIE_AT", number, 1);
        status = trial_scan(&trial, "-j1 --durable");
        unsetenv("RF_SCAN_DIE_AT");
        TEST_ASSERT_TRUE_MESSAGE(status == 1 || status == -SIGKILL, number);
        remove_region();
        shadow_restore(shadow, trial.dir, "state");
        shadow_restore(shadow, trial.dir, "found.jsonl");
        if (status != 1) {
            int again = trial_scan(&trial, "-j1 --durable");
            char *said = trial_read(trial.out, NULL);
            TEST_ASSERT_EQUAL_INT_MESSAGE(1, again, said);
            free(said);
        }
        trial_check_planted(&trial, &corpus);
        unlink(trial.json);
    }
    TEST_ASSERT_GREATER_THAN_UINT(20, at);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_scan_goes_on_after_a_power_cut);
    RUN_TEST(a_volatile_scan_starts_over_after_a_reboot);
    RUN_TEST(the_power_may_go_at_any_change_of_a_file);
    return UNITY_END();
}
