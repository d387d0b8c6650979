/*
 * What runs out, and what goes wrong, by its real cause: a disk that is gone under a running store, no more
 * descriptors, a directory that was removed, a process that scribbles over the region. Other causes have
 * their tests beside what they are about: a small /dev/shm (test_small_memory), full disks and io_uring
 * denied (test_disk, test_log), foreign users, regions and time namespaces (test_region), member slots
 * (test_lifecycle, test_members).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unity.h>

#include "handle.h"
#include "shop.h"
#include "vault.h"

#define RUN       1u
#define ACKED     20u
#define EXIT_SKIP 77

#ifndef EXT4_IOC_SHUTDOWN
#define EXT4_IOC_SHUTDOWN _IOR('X', 125, uint32_t)
#endif
#define SHUTDOWN_NOLOGFLUSH 2u

static struct vault vault;

void setUp(void)
{
    vault.directory[0] = 0;
}

void tearDown(void)
{
    vault_raze(&vault);
}

static void found(rf_durability durability)
{
    vault_found(&vault, durability);
    vault.options.segment_bytes = 65536;
    vault.options.max_shards = 2048;
    vault.options.max_bytes = 4u << 20;
}

/* In a process of its own. Ends the test if it failed, or could not be tried. */
static void in_child(void (*story)(void), const char *why_not)
{
    int how;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(100);
        story();
        fflush(NULL);
        _exit(0);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &how, 0));
    if (WIFEXITED(how) && WEXITSTATUS(how) == EXIT_SKIP) {
        TEST_IGNORE_MESSAGE(why_not);
    }
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) == 0, "the story failed");
}

/* How far the shard's cursor is; see vault_step. */
static uint64_t steps_of(rf_store *store, uint64_t shard)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    rf_status status =
        rf_get_shard(store, &vault.tenant, RUN, shard, &info, scratch, sizeof(scratch), NULL);
    CREW_CHECK(status == RF_OK, "the shard is not there: %s", rf_status_name(status));
    char text[64] = {0};
    snprintf(text, sizeof(text), "%.*s", (int)info.cursor.key.len,
             info.cursor.key.data == NULL ? "" : (const char *)info.cursor.key.data);
    const char *dash = strchr(text, '-');
    return dash == NULL ? 0 : strtoull(dash + 1, NULL, 10);
}

/* --- the disk is gone --- */

static bool run_command(const char *format, ...) __attribute__((format(printf, 1, 2)));
static bool run_command(const char *format, ...)
{
    char command[512];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    return system(command) == 0;
}

/* What ends the disk under the store; returns whether that can be done here. */
static bool shut_down(const char *mount_point)
{
    uint32_t how = SHUTDOWN_NOLOGFLUSH;
    int fd = open(mount_point, O_RDONLY | O_DIRECTORY);
    bool done = ioctl(fd, EXT4_IOC_SHUTDOWN, &how) == 0;
    close(fd);
    return done;
}

/* An error of the file system, after which it takes no more writes (errors=remount-ro). */
static bool make_read_only(const char *mount_point)
{
    return run_command("dev=$(findmnt -no SOURCE %s) && "
                       "echo test > /sys/fs/ext4/${dev##*/}/trigger_fs_error 2>/dev/null",
                       mount_point);
}

static bool (*end_disk)(const char *mount_point);

static void disk_story(void)
{
    char image[128], mount_point[96], store_path[128];
    snprintf(mount_point, sizeof(mount_point), "%.90s", vault.directory);
    snprintf(image, sizeof(image), "%s.ext4", mount_point);
    snprintf(store_path, sizeof(store_path), "%.80s/store", mount_point);
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        !run_command("truncate -s 64M %s && mkfs.ext4 -q -F %s >/dev/null 2>&1 && "
                     "mount -o loop,errors=remount-ro %s %s 2>/dev/null",
                     image, image, image, mount_point)) {
        unlink(image);
        _exit(EXIT_SKIP);
    }
    snprintf(vault.directory, sizeof(vault.directory), "%.90s", store_path);
    rf_store *store = vault_open(&vault);
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, RUN, 1);
    for (uint64_t n = 1; n <= ACKED; n++) {
        rf_result result = {0};
        CREW_CHECK(vault_step(store, &vault, &lease, n, n, 0, &result) == RF_OK, "a step: %s",
                   result.detail.where);
    }
    if (!end_disk(mount_point)) {
        rf_close(store);
        rf_destroy(store_path, NULL);
        run_command("umount %s", mount_point);
        unlink(image);
        _exit(EXIT_SKIP);
    }
    rf_result result = {0};
    rf_status status = vault_step(store, &vault, &lease, ACKED + 1, ACKED + 1, 0, &result);
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("  after the end of the disk: %s, %s\n", rf_status_name(status), result.detail.where);
    CREW_CHECK(status == RF_IO_ERROR, "acknowledged, or not said to be an I/O error");
    for (uint64_t n = 2; n < 5; n++) {
        status = vault_step(store, &vault, &lease, ACKED + n, ACKED + n, 0, &result);
        CREW_CHECK(status != RF_OK, "acknowledged after a write had failed");
    }
    status = rf_barrier(store, NULL);
    CREW_CHECK(status == RF_IO_ERROR, "a barrier after a write had failed: %s",
               rf_status_name(status));
    rf_inspection seen;
    CREW_CHECK(rf_inspect(store, &seen, NULL) == RF_OK && seen.log_failed, "not latched");
    rf_close(store);
    CREW_CHECK(run_command("umount %s && mount -o loop %s %s", mount_point, image, mount_point),
               "mounting it again");
    store = vault_open(&vault);
    uint64_t steps = steps_of(store, 1);
    printf("  after a cold open: %" PRIu64 " steps\n", steps);
    CREW_CHECK(steps >= ACKED && steps <= ACKED + 1, "an acknowledged step is lost");
    rf_close(store);
    CREW_CHECK(rf_destroy(store_path, NULL) == RF_OK, "destroying it");
    run_command("umount %s", mount_point);
    unlink(image);
}

static void a_disk_that_is_gone_is_an_io_error_and_nothing_acknowledged_is_lost(void)
{
    found(RF_WAIT);
    end_disk = shut_down;
    in_child(disk_story, "no root, loop device or mkfs.ext4");
}

static void a_disk_that_turns_read_only_is_an_io_error_and_nothing_acknowledged_is_lost(void)
{
    found(RF_WAIT);
    end_disk = make_read_only;
    in_child(disk_story, "no root, loop device, mkfs.ext4 or /sys/fs/ext4/*/trigger_fs_error");
}

/* --- descriptors --- */

#define DESCRIPTORS 64u

static unsigned open_descriptors(void)
{
    unsigned n = 0;
    for (unsigned fd = 0; fd < DESCRIPTORS; fd++) {
        n += fcntl((int)fd, F_GETFD) >= 0;
    }
    return n;
}

static int used_up[DESCRIPTORS];
static unsigned used_up_count;

/* So many can still be opened. */
static void leave_descriptors(unsigned spare)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = DESCRIPTORS;
    CREW_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    /* The guardian may open and close some meanwhile. */
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (; fd >= 0; fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) {
        used_up[used_up_count++] = fd;
    }
    for (; spare > 0 && used_up_count > 0; spare--) {
        close(used_up[--used_up_count]);
    }
}

static void free_descriptors(void)
{
    while (used_up_count > 0) {
        close(used_up[--used_up_count]);
    }
}

static void descriptors_story(void)
{
    rf_store *store = vault_open(&vault); /* it is there */
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    rf_close(store);
    unsigned refused = 0;
    rf_status status = RF_CORRUPT;
    for (unsigned spare = 0; status != RF_OK; spare++) {
        rf_options o = vault.options;
        rf_detail detail = {0};
        o.create = false;
        leave_descriptors(spare);
        status = rf_open(vault.directory, &o, &store, &detail);
        unsigned left = DESCRIPTORS - open_descriptors();
        free_descriptors();
        CREW_CHECK(spare < 40, "it never opens: %s %s", rf_status_name(status), detail.where);
        if (status != RF_OK) {
            refused++;
            CREW_CHECK(status == RF_IO_ERROR || status == RF_RESOURCE_EXHAUSTED ||
                           status == RF_UNSUPPORTED,
                       "%u descriptors: %s %s", spare, rf_status_name(status), detail.where);
            CREW_CHECK(left == spare, "%u descriptors leaked by %s", spare - left, detail.where);
        }
    }
    printf("  refused with 0 to %u descriptors\n", refused - 1);
    CREW_CHECK(refused != 0, "it needs no descriptors?");
    /* With none to spare it says so when it needs one, and goes on when it can have it. */
    rf_lease lease = vault_lease(store, &vault, RUN, 1);
    rf_result result = {0};
    leave_descriptors(0);
    uint64_t n = 1;
    for (status = RF_OK; n <= 500 && status == RF_OK; n++) {
        status = vault_step(store, &vault, &lease, n, n, 8000, &result);
    }
    printf("  %" PRIu64 " steps with no descriptor to spare, then %s: %s\n", n - 2,
           rf_status_name(status), result.detail.where);
    CREW_CHECK(status == RF_RESOURCE_EXHAUSTED, "not said as what it is");
    free_descriptors();
    for (uint64_t until = n + 20; n <= until; n++) {
        status = vault_step(store, &vault, &lease, n, n, 8000, &result);
        CREW_CHECK(status == RF_OK, "it does not go on: %s %s", rf_status_name(status),
                   result.detail.where);
    }
    rf_inspection seen;
    CREW_CHECK(rf_inspect(store, &seen, NULL) == RF_OK && !seen.log_failed,
               "the log was given up for a lack of descriptors");
    rf_close(store);
    store = vault_open(&vault);
    CREW_CHECK(steps_of(store, 1) == n - 1, "an acknowledged step is lost");
    rf_close(store);
}

static void without_descriptors_it_is_refused_and_leaks_none(void)
{
    found(RF_WAIT);
    in_child(descriptors_story, "");
}

/* He has written nothing yet, and has no descriptor left when the first thing is to be written. */
static int flush_without_descriptors(void *context)
{
    _Atomic uint32_t *ready = context;
    rf_store *store = vault_open(&vault);
    leave_descriptors(0);
    rf_lease lease = vault_lease(store, &vault, RUN, 1);
    CREW_CHECK(vault_step(store, &vault, &lease, 1, 1, 0, NULL) == RF_OK, "a step");
    atomic_store(ready, 1);
    for (;;) {
        pause();
    }
}

static bool is_ready(void *context)
{
    return atomic_load((_Atomic uint32_t *)context) != 0;
}

struct durable {
    rf_store *store;
    uint64_t epoch;
};

static bool is_durable(void *context)
{
    const struct durable *d = context;
    return rf_durable(d->store) >= d->epoch;
}

static void others_write_what_one_without_descriptors_can_not(void)
{
    found(RF_NOWAIT);
    rf_store *store = vault_open_manual(&vault);
    vault_run(store, &vault, RUN, 1, 3, RF_NOWAIT);
    RF_EXPECT(RF_OK, rf_barrier(store, NULL));
    _Atomic uint32_t *ready = crew_shared(sizeof(*ready));
    pid_t pid = crew_start(flush_without_descriptors, (void *)ready);
    bool came = crew_until(is_ready, (void *)ready, 30000);
    rf_store *other = vault_open(&vault);
    rf_lease lease = vault_lease(other, &vault, RUN, 2);
    rf_result result = {0};
    rf_status status = RF_OK;
    bool all = came;
    for (uint64_t n = 1; n <= 20 && all && status == RF_OK; n++) {
        status = vault_step(other, &vault, &lease, n, 100 + n, 0, &result);
        struct durable d = {.store = other, .epoch = result.epoch};
        all = crew_until(is_durable, &d, 20000);
    }
    crew_kill(pid);
    crew_unshare((void *)ready, sizeof(*ready));
    rf_close(other);
    rf_close(store);
    TEST_ASSERT_TRUE(came);
    RF_EXPECT(RF_OK, status);
    TEST_ASSERT_TRUE_MESSAGE(all, "nobody writes it");
}

/* --- the directory is gone --- */

static void directory_story(void)
{
    rf_store *store = vault_open(&vault);
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, RUN, 1);
    /* Again and again, as long as files come into being meanwhile. */
    CREW_CHECK(run_command("until rm -rf %s 2>/dev/null; do :; done", vault.directory), "rm");
    uint64_t n = 1;
    rf_status status = RF_OK;
    rf_result result = {0};
    for (; n <= 2000 && status == RF_OK; n++) {
        status = vault_step(store, &vault, &lease, n, n, 8000, &result);
    }
    printf("  after %" PRIu64 " steps: %s, %s\n", n - 1, rf_status_name(status),
           result.detail.where);
    CREW_CHECK(status != RF_OK, "it goes on for ever without a directory");
    rf_close(store);
    rf_options o = vault.options;
    o.create = false;
    status = rf_open(vault.directory, &o, &store, NULL);
    CREW_CHECK(status == RF_NOT_FOUND, "opening what is gone: %s", rf_status_name(status));
}

static void a_store_whose_directory_was_removed_stops_with_an_error(void)
{
    found(RF_WAIT);
    in_child(directory_story, "");
}

/* --- a directory that may only be read --- */

static void read_only_story(void)
{
    rf_options look = {.read_only = true};
    rf_store *store;
    rf_detail detail = {0};
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        _exit(EXIT_SKIP);
    }
    store = vault_open(&vault);
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, RUN, 1);
    CREW_CHECK(vault_step(store, &vault, &lease, 1, 1, 0, NULL) == RF_OK, "a step");
    char region[128];
    snprintf(region, sizeof(region), "%.120s", rf_handle_of(store)->map->region_path);
    rf_close(store);
    CREW_CHECK(run_command("mount --bind %s %s && mount -o remount,ro,bind %s", vault.directory,
                           vault.directory, vault.directory),
               "mounting it read-only");
    rf_options work = vault.options;
    for (unsigned i = 0; i < 2; i++) {
        work.create = i != 0;
        rf_status status = rf_open(vault.directory, &work, &store, &detail);
        printf("  to work: %s, %s\n", rf_status_name(status), detail.where);
        CREW_CHECK(status == RF_PERMISSION_DENIED && detail.os_error == EROFS,
                   "not said as what it is");
        CREW_CHECK(strstr(detail.where, vault.directory) != NULL, "nor where");
    }
    CREW_CHECK(rf_open(vault.directory, &look, &store, &detail) == RF_OK, "to look: %s",
               detail.where);
    CREW_CHECK(steps_of(store, 1) == 1, "what is there can't be seen");
    rf_close(store);
    CREW_CHECK(access(region, F_OK) == 0, "the region is gone");
    CREW_CHECK(run_command("umount %s", vault.directory), "umount");
    store = vault_open(&vault);
    CREW_CHECK(steps_of(store, 1) == 1, "an acknowledged step is lost");
    rf_close(store);
}

static void a_directory_that_may_only_be_read_can_be_looked_at(void)
{
    found(RF_WAIT);
    in_child(read_only_story, "no root, or no mounts");
}

/* --- the region is gone --- */

static void gone_story(void)
{
    rf_store *store = vault_open(&vault), *late;
    rf_detail detail = {0};
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, RUN, 1);
    char region[128];
    snprintf(region, sizeof(region), "%.120s", rf_handle_of(store)->map->region_path);
    CREW_CHECK(unlink(region) == 0, "%s", region);
    uint64_t n = 1;
    for (; n <= 50; n++) {
        rf_result result = {0};
        CREW_CHECK(vault_step(store, &vault, &lease, n, n, 8000, &result) == RF_OK,
                   "who has it goes on: %s", result.detail.where);
    }
    /* Not a second one beside it: two would grant the same fences. */
    rf_status status = rf_open(vault.directory, &vault.options, &late, &detail);
    printf("  who comes: %s, %s\n", rf_status_name(status), detail.where);
    CREW_CHECK(status == RF_BUSY && access(region, F_OK) != 0, "a second region");
    rf_close(store);
    store = vault_open(&vault);
    CREW_CHECK(steps_of(store, 1) == n - 1, "an acknowledged step is lost");
    rf_lease again = vault_lease(store, &vault, RUN, 1);
    CREW_CHECK(again.fence > lease.fence, "a fence again");
    rf_close(store);
}

static void a_region_removed_under_its_processes_costs_nothing_acknowledged(void)
{
    found(RF_WAIT);
    in_child(gone_story, "");
}

/* --- a wild writer --- */

static _Atomic uint8_t *acknowledged; /* by shard: to him who goes on */

/* Somebody who goes on with it: whatever he meets, he must not publish it. */
static void meet_story(void)
{
    rf_store *store = vault_open_manual(&vault);
    static uint8_t scratch[RF_GRANT_SCRATCH];
    unsigned refused = 0;
    for (uint64_t shard = 1; shard <= 70; shard++) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_status status = rf_acquire(store, rf_now(store), &vault.tenant, RUN, shard, 5,
                                      RF_DETACHED, &grant, NULL);
        if (status == RF_OK) {
            status = vault_step(store, &vault, &grant.lease, 1, 900 + shard, 0, NULL);
            acknowledged[shard] = status == RF_OK;
        }
        refused += status != RF_OK;
    }
    _exit(refused != 0 ? 1 : 0);
}

static void scribble(struct rf_map *map, uint64_t offset)
{
    memset(map->base + offset / 4096 * 4096, 0xa5, 4096);
}

struct findings {
    unsigned count;
    unsigned placed; /* that name a place in words that were asked for */
    const char *words;
};

static void note_difference(void *context, const char *what)
{
    struct findings *f = context;
    if (f->count++ == 0) {
        printf("    verify: %s\n", what);
    }
    f->placed += f->words != NULL && strstr(what, f->words) != NULL;
}

/* words: how verify calls the place. met: whoever works on all shards can't miss it. */
static void scribble_and_recover(const char *what, uint64_t (*where)(struct rf_map *map),
                                 const char *words, bool met)
{
    int how;
    found(RF_WAIT);
    rf_store *store = vault_open_manual(&vault);
    vault_run(store, &vault, RUN, 1, 70, RF_WAIT);
    CREW_CHECK(rf_barrier(store, NULL) == RF_OK, "barrier");
    struct rf_map *map = rf_handle_of(store)->map;
    char region[128];
    snprintf(region, sizeof(region), "%.120s", map->region_path);
    scribble(map, where(map));

    acknowledged = crew_shared(128);
    struct findings found_here = {.words = words};
    rf_verification v = {0};
    rf_detail detail = {0};
    /* In a child: it may stop. */
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        rf_store *own = vault_open_manual(&vault);
        rf_status status = rf_verify(own, note_difference, &found_here, &v, &detail);
        printf("    verify: %s, %u differences, %u of them %s %s\n", rf_status_name(status),
               found_here.count, found_here.placed, words, detail.where);
        fflush(NULL);
        _exit(status == RF_OK && v.differences != 0 && found_here.placed != 0 ? 0 : 1);
    }
    waitpid(pid, &how, 0);
    TEST_ASSERT_FALSE_MESSAGE(WIFSIGNALED(how), "verify ended by a signal");
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, WEXITSTATUS(how),
                                  "verify calls it clean, or does not say where");

    fflush(NULL);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        freopen("/dev/null", "w", stderr);
        meet_story();
    }
    waitpid(pid, &how, 0);
    printf("  %s: who meets it %s\n", what,
           WIFSIGNALED(how)        ? strsignal(WTERMSIG(how))
           : WEXITSTATUS(how) == 1 ? "is refused"
                                   : "does not");
    TEST_ASSERT_FALSE_MESSAGE(WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM, "it hangs");
    TEST_ASSERT_TRUE_MESSAGE(!met || WIFSIGNALED(how) || WEXITSTATUS(how) == 1, "nobody noticed");

    /* Nobody closes properly any more; a cold open. What was done to records that are whole counts. */
    rf_region_close(map);
    unlink(region);
    store = vault_open_manual(&vault);
    found_here = (struct findings){0};
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_verify(store, note_difference, &found_here, &v, &detail));
    TEST_ASSERT_EQUAL_UINT64(0, v.differences);
    TEST_ASSERT_EQUAL_UINT64(70, v.shards);
    for (uint64_t shard = 1; shard <= 70; shard++) {
        /* What was acknowledged, and at most what he did not hear of any more. */
        TEST_ASSERT_TRUE(steps_of(store, shard) >= acknowledged[shard]);
        TEST_ASSERT_TRUE(steps_of(store, shard) <= 1);
    }
    rf_close(store);
    crew_unshare((void *)acknowledged, 128);
    vault_raze(&vault);
}

static uint64_t where_shards(struct rf_map *map)
{
    return map->header->extents.offset + offsetof(struct rf_extent, recs) + 8192;
}

static uint64_t where_runs(struct rf_map *map)
{
    return map->header->runs.offset;
}

static uint64_t where_index(struct rf_map *map)
{
    return map->header->run_index.offset;
}

static uint64_t where_bits(struct rf_map *map)
{
    return map->header->extents.offset;
}

static void a_wild_writer_is_seen_and_a_cold_open_restores_the_last_good_state(void)
{
    /* On 4 KiB behind the eighth KiB of records of 896 bytes: those of positions 9 and beyond. */
    scribble_and_recover("records of shards", where_shards, "position 10", true);
    scribble_and_recover("claimable bits and deadlines", where_bits, "position 0", true);
    scribble_and_recover("records of runs", where_runs, "run", true);
    scribble_and_recover("the index of runs", where_index, "index entries", false);
}

static void with_a_sanitizer(void)
{
    TEST_IGNORE_MESSAGE(
        "limits of descriptors, and a wild writer: a sanitizer opens files of its own, and stops at "
        "what a wild writer leaves");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_disk_that_is_gone_is_an_io_error_and_nothing_acknowledged_is_lost);
    RUN_TEST(a_disk_that_turns_read_only_is_an_io_error_and_nothing_acknowledged_is_lost);
    RUN_TEST(a_store_whose_directory_was_removed_stops_with_an_error);
    RUN_TEST(a_directory_that_may_only_be_read_can_be_looked_at);
    RUN_TEST(a_region_removed_under_its_processes_costs_nothing_acknowledged);
    if (RF_SHOP_SANITIZED) {
        RUN_TEST(with_a_sanitizer);
        return UNITY_END();
    }
    RUN_TEST(without_descriptors_it_is_refused_and_leaks_none);
    RUN_TEST(others_write_what_one_without_descriptors_can_not);
    RUN_TEST(a_wild_writer_is_seen_and_a_cold_open_restores_the_last_good_state);
    return UNITY_END();
}
