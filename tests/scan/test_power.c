/*
 * The power goes while a durable scan is on. What is left then: the log up to some point, the ledgers
 * up to what was synced before the cursors of that point, and nothing in shared memory. The worst of
 * that is made by hand: everything is killed, the region is removed, the end of the log is wiped, and
 * the ledgers are cut to the last byte that the recovered cursors speak of.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
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
static char store_dir[128];

void setUp(void)
{
    const struct corpus_options options = {.seed = trial_number("RF_SEED", 12),
                                           .bytes = RF_SCAN_SLOW ? 1500000 : 5000000,
                                           .secrets = 400,
                                           .near_misses = 100};
    trial_begin(&trial);
    snprintf(store_dir, sizeof(store_dir), "%s/store", trial.state);
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
}

void tearDown(void)
{
    corpus_free(&corpus);
    trial_end(&trial);
}

/* Shared memory does not survive. */
static void remove_region(void)
{
    struct stat st;
    char path[128];
    TEST_ASSERT_EQUAL_INT(0, stat(store_dir, &st));
    snprintf(path, sizeof(path), "/dev/shm/ringfence.%llx.%llx", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, unlink(path), path);
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

struct cutting {
    int found;  /* directory */
    char *kept; /* names of files that cursors speak of, one behind the other */
    size_t kept_len;
    uint64_t done;
};

static void nothing(void *context, const struct record *record)
{
    (void)context;
    (void)record;
}

static void keep_to(struct cutting *c, uint64_t shard, uint64_t fence, uint64_t length)
{
    char name[40];
    struct stat st;
    snprintf(name, sizeof(name), "%016" PRIx64 "-%016" PRIx64, shard, fence);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, fstatat(c->found, name, &st, 0), name);
    TEST_ASSERT_TRUE_MESSAGE((uint64_t)st.st_size >= length,
                             "a cursor speaks of what is not there");
    int fd = openat(c->found, name, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL_INT(0, ftruncate(fd, (off_t)length));
    struct ledger_header header;
    TEST_ASSERT_EQUAL_INT(sizeof(header), pread(fd, &header, sizeof(header), 0));
    close(fd);
    c->kept = realloc(c->kept, c->kept_len + sizeof(name));
    memcpy(c->kept + c->kept_len, name, sizeof(name));
    c->kept_len += sizeof(name);
    if (header.before_fence != 0) {
        keep_to(c, shard, header.before_fence, header.before_length);
    }
}

static bool cut_ledgers_of(void *context, const rf_shard_info *shard)
{
    struct cutting *c = context;
    struct progress p;
    TEST_ASSERT_TRUE(progress_decode(shard->cursor.token, &p));
    c->done += p.bytes;
    if (p.ledger_fence != 0) {
        keep_to(c, shard->shard, p.ledger_fence, p.ledger_length);
        uint64_t bytes = 0;
        TEST_ASSERT_TRUE(
            ledger_read(c->found, shard->shard, shard->fence, &p, nothing, NULL, &bytes));
    }
    return true;
}

static void remove_what_is_not_kept(const struct cutting *c, const char *dir)
{
    DIR *list = opendir(dir);
    struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        bool kept = entry->d_name[0] == '.';
        for (size_t at = 0; at < c->kept_len && !kept; at += 40) {
            kept = strcmp(c->kept + at, entry->d_name) == 0;
        }
        if (!kept) {
            unlinkat(c->found, entry->d_name, 0);
        }
    }
    closedir(list);
}

/* Returns how many bytes are known to be scanned. */
static uint64_t cut_ledgers(void)
{
    struct items items;
    char path[160];
    struct cutting c = {0};
    rf_store *store;
    rf_tenant tenant;
    rf_detail detail = {0};
    snprintf(path, sizeof(path), "%s/items", trial.state);
    TEST_ASSERT_TRUE(items_open(&items, path));
    snprintf(path, sizeof(path), "%s/found-%016" PRIx64, trial.state, items.header->run);
    c.found = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(c.found >= 0);
    rf_tenant_from_name(TENANT, &tenant);
    rf_status status = rf_open(store_dir, &(rf_options){0}, &store, &detail);
    TEST_ASSERT_EQUAL_STRING_MESSAGE("OK", rf_status_name(status), detail.where);
    status = rf_list_shards(store, rf_now(store), &tenant, items.header->run, RF_LIST_ALL,
                            cut_ledgers_of, &c, NULL);
    TEST_ASSERT_TRUE(status == RF_OK || status == RF_RUN_NOT_FOUND);
    rf_close(store);
    remove_what_is_not_kept(&c, path);
    close(c.found);
    free(c.kept);
    items_close(&items);
    return c.done;
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
            remove_region();
            if (cuts == 0) {
                wipe_end_of_log(1 + rf_prng_below(&prng, 100000));
            }
            gone_on += cut_ledgers() > 0;
        }
        TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3 --durable --chunk 16384"));
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
    remove_region();
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3 --chunk 16384"));
    trial_check_planted(&trial, &corpus);
    struct found found = trial_found(&trial);
    TEST_ASSERT_FALSE(found.resumed);
    found_free(&found);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_scan_goes_on_after_a_power_cut);
    RUN_TEST(a_volatile_scan_starts_over_after_a_reboot);
    return UNITY_END();
}
