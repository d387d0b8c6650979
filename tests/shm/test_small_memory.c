/*
 * Shared memory that is used up, and what a shard costs. In a /dev/shm of 64 MB (a mount namespace
 * of its own, so this needs root) a store works until there is no room, then the operation that
 * needs more is refused and nothing of it is left, everything else goes on, a purge makes room, and
 * nobody is ever killed by SIGBUS.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "desk.h"
#include "hands.h"
#include "shop.h"

#define RUN       7u
#define NO_MOUNTS 77
#define A_MILLION 1000000u

static struct rf_shop shop;
static rf_tenant tenant;
static rf_detail detail;
static rf_result result;
static const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};

void setUp(void)
{
    tenant = rf_tenant_of(1);
    rf_shop_found(&shop);
}

void tearDown(void)
{
    rf_shop_raze(&shop);
}

/* --- in a /dev/shm of 64 MB --- */

static rf_store *enter_small(void)
{
    static const rf_options defaults = {.create = true};
    rf_store *store = NULL;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") != 0) {
        _exit(NO_MOUNTS);
    }
    rf_status status = rf_open(shop.directory, &defaults, &store, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    return store;
}

static void leave_small(rf_store *store)
{
    rf_close(store);
    RF_EXPECT(RF_OK, rf_destroy(shop.directory, &detail));
    rmdir(shop.directory);
    shop.directory[0] = 0;
}

static void same_room(const rf_inspection *before, rf_store *store)
{
    rf_inspection after = rf_shop_inspect(store);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before->runs, after.runs, "runs");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before->shards, after.shards, "shards");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before->extents, after.extents, "extents");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before->leaves, after.leaves, "leaves");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before->blocks, after.blocks, "blocks");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(before->members, after.members, "members");
}

static bool see_shard(void *context, const rf_shard_info *shard)
{
    (void)shard;
    ++*(uint64_t *)context;
    return true;
}

static bool see_member(void *context, const rf_member_info *member)
{
    (void)member;
    ++*(uint64_t *)context;
    return true;
}

/* Everything that only looks, on an ordinary and on a read-only handle: none of it touches memory
 * that is not there. */
static void look_at_everything(rf_store *store, uint64_t run)
{
    rf_store *watcher = NULL;
    rf_monitor *monitor;
    rf_event events[8];
    size_t count;
    uint64_t n = 0, lost;
    rf_progress p;
    const rf_options look = {.read_only = true};
    RF_EXPECT(RF_OK, rf_open(shop.directory, &look, &watcher, &detail));
    rf_store *const both[2] = {store, watcher};
    for (unsigned i = 0; i < 2; i++) {
        RF_EXPECT(RF_OK, rf_list_shards(both[i], rf_now(store), &tenant, run, RF_LIST_ALL,
                                        see_shard, &n, NULL));
        RF_EXPECT(RF_OK, rf_get_progress(both[i], rf_now(store), &tenant, run, &p, NULL, NULL));
        RF_EXPECT(RF_OK, rf_list_members(both[i], see_member, &n, NULL));
        RF_EXPECT(RF_OK, rf_monitor_create(both[i], &monitor));
        RF_EXPECT(RF_OK, rf_monitor_read(monitor, events, 8, &count, &lost));
        rf_monitor_destroy(monitor);
        rf_shop_inspect(both[i]);
        rf_shard_info info;
        RF_EXPECT(RF_NOT_FOUND,
                  rf_get_shard(both[i], &tenant, run, 987654321, &info, NULL, 0, NULL));
    }
    rf_close(watcher);
}

/* One shard from claim to end, with short bytes: needs no room. */
static void work_goes_on(rf_store *store, uint64_t run)
{
    rf_grant g = rf_shop_blank(0);
    uint64_t now = rf_now(store);
    RF_EXPECT(RF_OK, rf_claim(store, now, &tenant, run, 0, RF_BOUND, 0, &g, &result));
    RF_EXPECT(RF_OK, rf_renew(store, now, &tenant, &g.lease, &result));
    const rf_cursor cursor = {.key = g.spec.start};
    RF_EXPECT(RF_OK, rf_checkpoint(store, now, &tenant, &g.lease, &cursor, rf_new_op(store), NULL));
    RF_EXPECT(RF_OK, rf_complete(store, now, &tenant, &g.lease, &cursor, rf_new_op(store), NULL));
}

static rf_status stock(rf_store *store, uint64_t run, uint32_t count)
{
    static rf_shard_input shards[4096];
    static char keys[4097][8];
    for (uint32_t i = 0; i <= count; i++) {
        snprintf(keys[i], sizeof(keys[0]), "k%05u", i);
    }
    for (uint32_t i = 0; i < count; i++) {
        shards[i] = rf_input_of(i + 1, keys[i], keys[i + 1]);
    }
    return rf_create_run_with_shards(store, rf_now(store), &tenant, run, &lasting, shards, count, 1,
                                     &result);
}

static void purge(rf_store *store, uint64_t run)
{
    RF_EXPECT(RF_OK, rf_cancel_run(store, rf_now(store), &tenant, run, 99, NULL));
    RF_EXPECT(RF_OK, rf_purge_run(store, rf_now(store), &tenant, run, NULL));
}

static int fill_with_shards(void *context)
{
    (void)context;
    rf_store *store = enter_small();
    rf_inspection before = rf_shop_inspect(store);
    uint64_t run = 0, first_fill;
    rf_status status;
    while ((status = stock(store, run, 4096)) == RF_OK) {
        before = rf_shop_inspect(store);
        run++;
    }
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(status, &result.detail, "shared memory|/dev/shm|purge");
    printf("  %" PRIu64 " shards fit, %" PRIu64 " MB taken\n", before.shards,
           before.taken_bytes >> 20);
    TEST_ASSERT_TRUE(run >= 4);
    same_room(&before, store);
    first_fill = before.shards;
    look_at_everything(store, 0);
    for (unsigned round = 0; round < 6; round++) {
        work_goes_on(store, 1);
        purge(store, 0);
        RF_EXPECT(RF_OK, stock(store, 0, 4096));
        RF_EXPECT(RF_RESOURCE_EXHAUSTED, stock(store, 900, 4096));
        TEST_ASSERT_EQUAL_UINT64(first_fill, rf_shop_inspect(store).shards);
    }
    leave_small(store);
    return 0;
}

static int fill_with_long_keys(void *context)
{
    (void)context;
    static uint8_t start[RF_KEY_MAX], cut[RF_KEY_MAX], token[RF_TOKEN_MAX];
    rf_store *store = enter_small();
    memset(start, 'a', sizeof(start));
    const rf_shard_input wide = {.shard = 1,
                                 .spec = {.start = {start, sizeof(start)}, .end = rf_text("z")}};
    RF_EXPECT(RF_OK, stock(store, 0, 64));
    RF_EXPECT(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &lasting, &wide,
                                               1, 1, &result));
    rf_inspection before;
    rf_status status;
    rf_grant g = rf_shop_blank(0);
    uint64_t ids[2], splits = 0;
    do { /* always the right child, at a long point */
        RF_EXPECT(RF_OK, rf_claim(store, rf_now(store), &tenant, RUN, 2 * splits, RF_BOUND, 0, &g,
                                  &result));
        memset(cut, 'b', sizeof(cut));
        snprintf((char *)cut, 16, "c%08" PRIu64, splits * 2 + 1);
        const rf_child parts[2] = {{.spec = {.start = g.spec.start,
                                             .end = {cut, sizeof(cut)},
                                             .metadata = {token, sizeof(token)}}},
                                   {.spec = {.start = {cut, sizeof(cut)},
                                             .end = g.spec.end,
                                             .metadata = {token, sizeof(token)}}}};
        before = rf_shop_inspect(store);
        status =
            rf_split_replace(store, rf_now(store), &tenant, &g.lease, parts, 2, 5, ids, &result);
        splits++;
        if (status == RF_OK) { /* the left one is finished, the right one is next */
            rf_lease left = {0};
            rf_grant l = rf_shop_blank(1);
            RF_EXPECT(RF_OK, rf_acquire(store, rf_now(store), &tenant, RUN, ids[0], 5, RF_BOUND, &l,
                                        NULL));
            left = l.lease;
            RF_EXPECT(RF_OK, rf_park(store, rf_now(store), &tenant, &left, RF_PARK_OTHER, 6, NULL));
        }
    } while (status == RF_OK);
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(status, &result.detail, "shared memory|/dev/shm");
    printf("  %" PRIu64 " splits fit\n", splits - 1);
    same_room(&before, store);
    rf_shard_info parent = rf_shop_shard(store, &tenant, RUN, g.lease.shard);
    TEST_ASSERT_EQUAL(RF_SHARD_ACTIVE, parent.status);
    TEST_ASSERT_EQUAL_UINT32(0, parent.spawned_count);
    const rf_cursor heavy = {.key = g.spec.start, .token = {token, sizeof(token)}};
    unsigned refused = 0;
    for (uint64_t op = 100; op < 110; op++) { /* may fit once more; later ones take its place */
        status = rf_checkpoint(store, rf_now(store), &tenant, &g.lease, &heavy, op, &result);
        TEST_ASSERT_TRUE(status == RF_OK || status == RF_RESOURCE_EXHAUSTED);
        refused += status != RF_OK;
    }
    printf("  %u of 10 heavy checkpoints refused\n", refused);
    RF_EXPECT(RF_OK, rf_renew(store, rf_now(store), &tenant, &g.lease, &result));
    look_at_everything(store, RUN);
    work_goes_on(store, 0);
    RF_EXPECT(RF_OK, rf_release(store, rf_now(store), &tenant, &g.lease, NULL, 200, NULL));
    purge(store, RUN);
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).blocks);
    RF_EXPECT(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &lasting, &wide,
                                               1, 1, &result));
    leave_small(store);
    return 0;
}

static void fill_dev_shm(const char *path)
{
    static uint8_t zeros[65536];
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    TEST_ASSERT_TRUE(fd >= 0);
    for (size_t chunk = sizeof(zeros); chunk >= 4096; chunk /= 2) {
        while (write(fd, zeros, chunk) == (ssize_t)chunk) {
        }
    }
    close(fd);
}

/* Somebody else fills /dev/shm: everything that has its room goes on. */
static int be_crowded_out(void *context)
{
    (void)context;
    rf_store *store = enter_small(), *more[64];
    rf_grant g = rf_shop_blank(1);
    RF_EXPECT(RF_OK, stock(store, 0, 200));
    RF_EXPECT(RF_OK, rf_claim(store, rf_now(store), &tenant, 0, 0, RF_BOUND, 0, &g, &result));
    fill_dev_shm("/dev/shm/ballast");
    rf_inspection before = rf_shop_inspect(store);
    rf_status status = RF_OK;
    unsigned joined = 0;
    while (joined < 64) {
        status = rf_open(shop.directory, NULL, &more[joined], &detail);
        if (status != RF_OK) {
            break;
        }
        joined++;
    }
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(status, &detail, "shared memory|/dev/shm");
    printf("  %u more joined\n", joined);
    while (joined != 0) {
        rf_close(more[--joined]);
    }
    same_room(&before, store);
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, stock(store, RUN, 4096));
    same_room(&before, store);
    static uint8_t token[RF_TOKEN_MAX];
    const rf_cursor heavy = {.key = g.spec.start, .token = {token, sizeof(token)}};
    RF_EXPECT(RF_RESOURCE_EXHAUSTED,
              rf_checkpoint(store, rf_now(store), &tenant, &g.lease, &heavy, 1, &result));
    look_at_everything(store, 0);
    for (unsigned i = 0; i < 50; i++) {
        work_goes_on(store, 0);
    }
    same_room(&before, store);
    unlink("/dev/shm/ballast");
    RF_EXPECT(RF_OK, rf_checkpoint(store, rf_now(store), &tenant, &g.lease, &heavy, 1, &result));
    RF_EXPECT(RF_OK, stock(store, RUN, 4096));
    rf_store *one_more = NULL;
    RF_EXPECT(RF_OK, rf_open(shop.directory, NULL, &one_more, &detail));
    rf_close(one_more);
    leave_small(store);
    return 0;
}

static int make_without_room(void *context)
{
    (void)context;
    static const rf_options defaults = {.create = true};
    rf_store *store = enter_small();
    leave_small(store);
    rf_shop_found(&shop);
    fill_dev_shm("/dev/shm/ballast");
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, rf_open(shop.directory, &defaults, &store, &detail));
    rf_shop_expect_words(RF_RESOURCE_EXHAUSTED, &detail, "room|/dev/shm");
    unlink("/dev/shm/ballast");
    RF_EXPECT(RF_OK, rf_open(shop.directory, &defaults, &store, &detail));
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).incarnation);
    leave_small(store);
    return 0;
}

static void in_a_small_dev_shm(rf_hands_work *work)
{
    if (geteuid() != 0) {
        TEST_IGNORE_MESSAGE("needs root");
    }
    int code = rf_hands_wait(rf_hands_send(work, NULL));
    if (code == NO_MOUNTS) {
        TEST_IGNORE_MESSAGE("no mount namespaces here");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static void shards_fill_a_small_dev_shm_and_a_purge_makes_room(void)
{
    in_a_small_dev_shm(fill_with_shards);
}

static void long_keys_fill_a_small_dev_shm_and_a_refused_split_leaves_nothing(void)
{
    in_a_small_dev_shm(fill_with_long_keys);
}

static void a_store_goes_on_when_others_fill_dev_shm(void)
{
    in_a_small_dev_shm(be_crowded_out);
}

static void a_store_that_does_not_fit_is_not_half_made(void)
{
    in_a_small_dev_shm(make_without_room);
}

/* --- what a shard costs --- */

static rf_shard_input *a_million_inputs(char (*keys)[12])
{
    rf_shard_input *shards = calloc(A_MILLION, sizeof(*shards));
    TEST_ASSERT_NOT_NULL(shards);
    for (uint32_t i = 0; i <= A_MILLION; i++) {
        snprintf(keys[i], sizeof(keys[0]), "key%07u", i);
    }
    for (uint32_t i = 0; i < A_MILLION; i++) {
        shards[i] = rf_input_of(i, keys[i], keys[i + 1]);
    }
    return shards;
}

static uint64_t elapsed_ms(struct timespec *from)
{
    struct timespec to;
    clock_gettime(CLOCK_MONOTONIC, &to);
    uint64_t ms = (uint64_t)(to.tv_sec - from->tv_sec) * 1000 +
                  (uint64_t)((to.tv_nsec - from->tv_nsec) / 1000000);
    *from = to;
    return ms;
}

static void a_million_shards_cost_at_most_1_KiB_each(void)
{
    struct statvfs fs;
    TEST_ASSERT_EQUAL(0, statvfs("/dev/shm", &fs));
    if ((uint64_t)fs.f_bavail * fs.f_frsize < 1200ull << 20) {
        TEST_IGNORE_MESSAGE("needs 1.2 GB in /dev/shm");
    }
    char(*keys)[12] = calloc(A_MILLION + 1, sizeof(*keys));
    rf_shard_input *shards = a_million_inputs(keys);
    const rf_options defaults = {0};
    rf_store *store = rf_shop_enter_living(&shop, &defaults);
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    RF_EXPECT(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &lasting, shards,
                                               A_MILLION, 1, &result));
    uint64_t made_ms = elapsed_ms(&at);
    rf_inspection seen = rf_shop_inspect(store);
    printf("  %" PRIu64 " bytes a shard; registered in %" PRIu64 " ms\n",
           seen.taken_bytes / A_MILLION, made_ms);
    TEST_ASSERT_EQUAL_UINT64(A_MILLION, seen.shards);
    TEST_ASSERT_TRUE(seen.taken_bytes / A_MILLION <= 1024);
    TEST_ASSERT_EQUAL_UINT64(0, seen.blocks);
    rf_grant g = rf_shop_blank(0);
    elapsed_ms(&at);
    for (uint64_t worker = 0; worker < 1000; worker++) {
        RF_EXPECT(RF_OK, rf_claim(store, rf_now(store), &tenant, RUN, worker * 999, RF_BOUND, 0, &g,
                                  NULL));
        TEST_ASSERT_EQUAL_UINT64(worker * 999, g.lease.shard);
    }
    printf("  1000 claims in %" PRIu64 " ms\n", elapsed_ms(&at));
    const rf_shard_input one_more = rf_input_of(A_MILLION, "z", "zz");
    RF_EXPECT(RF_SHARD_LIMIT,
              rf_add_shards(store, rf_now(store), &tenant, RUN, &one_more, 1, 2, &result));
    purge(store, RUN);
    printf("  ended and purged in %" PRIu64 " ms\n", elapsed_ms(&at));
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).extents);
    rf_close(store);
    free(shards);
    free(keys);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(shards_fill_a_small_dev_shm_and_a_purge_makes_room);
    RUN_TEST(long_keys_fill_a_small_dev_shm_and_a_refused_split_leaves_nothing);
    RUN_TEST(a_store_goes_on_when_others_fill_dev_shm);
    RUN_TEST(a_store_that_does_not_fit_is_not_half_made);
    RUN_TEST(a_million_shards_cost_at_most_1_KiB_each);
    return UNITY_END();
}
