/*
 * Making, finding, refusing and removing a region: every row of the table in shm/region.h, by real
 * processes, with files that others left, damaged, planted or took away. Each case is resolved, or
 * refused with a sentence that says what to do; nothing is lost or half done.
 *
 * What needs another user or a namespace of its own is left out when the test is not run by root.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "desk.h"
#include "hands.h"
#include "layout.h"
#include "shop.h"

#define RUN    7u
#define NOBODY 65534u

static struct rf_shop shop;
static rf_tenant tenant;
static rf_detail detail;
static char region[96]; /* the region's path */
static const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};

void setUp(void)
{
    struct stat st;
    tenant = rf_tenant_of(1);
    rf_shop_found(&shop);
    TEST_ASSERT_EQUAL(0, stat(shop.directory, &st));
    snprintf(region, sizeof(region), "/dev/shm/ringfence.%jx.%jx", (uintmax_t)st.st_dev,
             (uintmax_t)st.st_ino);
    memset(&detail, 0, sizeof(detail));
}

void tearDown(void)
{
    char path[128];
    unlink(region);
    rf_shop_raze(&shop);
    snprintf(path, sizeof(path), "%s/link", shop.directory);
    unlink(path);
}

static rf_status open_it(rf_store **store)
{
    rf_options options = rf_shop_small();
    options.create = true;
    return rf_open(shop.directory, &options, store, &detail);
}

static rf_status look_at_it(rf_store **store)
{
    const rf_options options = {.read_only = true};
    return rf_open(shop.directory, &options, store, &detail);
}

static rf_store *enter(void)
{
    return rf_shop_enter_living(&shop, NULL);
}

/* Refused, in these words, and everything is as before. */
static void expect_refusal(rf_status expected, const char *words)
{
    rf_store *store = (rf_store *)&shop;
    rf_status status = open_it(&store);
    rf_shop_expect_words(status, &detail, words);
    RF_EXPECT(expected, status);
    TEST_ASSERT_NULL(store);
}

/* --- a store with a history, to see what survives --- */

static uint64_t fence_of_a_grant(rf_store *store)
{
    rf_grant g = rf_shop_blank(0);
    rf_status status = rf_claim(store, rf_now(store), &tenant, RUN, 0, RF_DETACHED, 0, &g, NULL);
    RF_EXPECT(RF_OK, status);
    return g.lease.fence;
}

/* One run with shards, grants on the first; returns the highest fence given. */
static uint64_t live_a_while(void)
{
    rf_store *store = enter();
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 5);
    uint64_t fence = fence_of_a_grant(store);
    for (uint64_t op = 1; op < 10; op++) {
        rf_grant g = rf_shop_blank(0);
        RF_EXPECT(RF_OK, rf_acquire(store, rf_now(store), &tenant, RUN, 2, 5, 0, &g, NULL));
        RF_EXPECT(RF_OK, rf_release(store, rf_now(store), &tenant, &g.lease, NULL, op, NULL));
        fence = g.lease.fence > fence ? g.lease.fence : fence;
    }
    rf_close(store);
    return fence;
}

/* The store is a new one: empty, of the next incarnation, with fences above all that were. */
static void expect_rebuilt(uint64_t incarnation, uint64_t above)
{
    rf_store *store = enter();
    rf_inspection seen = rf_shop_inspect(store);
    TEST_ASSERT_EQUAL_UINT64(incarnation, seen.incarnation);
    TEST_ASSERT_EQUAL_UINT64(0, seen.runs);
    TEST_ASSERT_TRUE(seen.fence_floor >= incarnation << 40);
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 5);
    TEST_ASSERT_TRUE_MESSAGE(fence_of_a_grant(store) > above, "a fence was repeated");
    rf_close(store);
}

/* The store is the one that it was. */
static void expect_unharmed(uint64_t fence)
{
    rf_store *store = enter();
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).incarnation);
    TEST_ASSERT_EQUAL_UINT64(5, rf_shop_run(store, &tenant, RUN).shard_count);
    TEST_ASSERT_EQUAL_UINT64(fence, rf_shop_shard(store, &tenant, RUN, 2).fence);
    rf_close(store);
}

/* --- changing files behind the store's back --- */

static void patch(const char *path, off_t offset, const void *bytes, size_t len)
{
    int fd = open(path, O_RDWR);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)len, pwrite(fd, bytes, len, offset));
    close(fd);
}

static void fetch(const char *path, off_t offset, void *bytes, size_t len)
{
    int fd = open(path, O_RDONLY);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)len, pread(fd, bytes, len, offset));
    close(fd);
}

static const char *in_store(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", shop.directory, name);
    return path;
}

static void plant(const char *path, const void *bytes, size_t len, mode_t mode)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)len, write(fd, bytes, len));
    TEST_ASSERT_EQUAL(0, fchmod(fd, mode));
    close(fd);
}

#define HEADER(field) ((off_t)offsetof(struct rf_header, field))

/* The header as somebody would have made it who meant what it says. */
static void sign_header(void)
{
    static struct rf_header h;
    fetch(region, 0, &h, sizeof(h));
    uint64_t sum = rf_header_sum(&h);
    patch(region, HEADER(sum), &sum, sizeof(sum));
}

/* --- opening and closing --- */

static void a_store_outlives_its_processes(void)
{
    uint64_t fence = live_a_while();
    expect_unharmed(fence);
    expect_unharmed(fence);
}

static void what_may_not_be_is_refused_before_anything_is_made(void)
{
    rf_store *store;
    const rf_options nothing = {0};
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_open(NULL, NULL, &store, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_open("", NULL, &store, &detail));
    RF_EXPECT(RF_NOT_FOUND, rf_open(shop.directory, &nothing, &store, &detail));
    rf_shop_expect_words(RF_NOT_FOUND, &detail, "no such store|lock");
    rf_options odd = {.create = true, .max_members = 5000};
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_open(shop.directory, &odd, &store, &detail));
    rf_shop_expect_words(RF_INVALID_ARGUMENT, &detail, "max_members|5000|2047");
    RF_EXPECT(RF_IO_ERROR,
              rf_open("/dev/null/store", &(rf_options){.create = true}, &store, &detail));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "directory|/dev/null/store");
    TEST_ASSERT_EQUAL(-1, access(in_store("lock"), F_OK));
    TEST_ASSERT_EQUAL(-1, access(region, F_OK));
}

static void a_plain_name_is_a_directory_in_dev_shm(void)
{
    rf_store *store;
    char name[64], path[96];
    rf_options options = rf_shop_small();
    snprintf(name, sizeof(name), "test-%d", (int)getpid());
    snprintf(path, sizeof(path), "/dev/shm/ringfence-%s", name);
    RF_EXPECT(RF_NOT_FOUND, rf_open(name, &options, &store, &detail));
    options.create = true;
    RF_EXPECT(RF_OK, rf_open(name, &options, &store, &detail));
    TEST_ASSERT_EQUAL(0, access(path, F_OK));
    RF_EXPECT(RF_OK, rf_close(store));
    RF_EXPECT(RF_OK, rf_destroy(name, &detail));
    TEST_ASSERT_EQUAL(-1, access(path, F_OK));
}

static void looking_at_a_store_without_a_region_finds_none_and_makes_none(void)
{
    rf_store *store;
    live_a_while();
    unlink(region);
    RF_EXPECT(RF_NOT_FOUND, look_at_it(&store));
    rf_shop_expect_words(RF_NOT_FOUND, &detail, "no region");
    const rf_options no_create = {0};
    RF_EXPECT(RF_NOT_FOUND, rf_open(shop.directory, &no_create, &store, &detail));
    TEST_ASSERT_EQUAL(-1, access(region, F_OK));
}

/* The ranges that ringfence.h names. */
static void options_out_of_range_are_refused_with_the_range(void)
{
    const struct {
        rf_options options;
        const char *words;
    } cases[] = {
        {{.max_shards = 16000001}, "max_shards|1 to 16000000"},
        {{.max_tenant_shards = 16000001}, "max_tenant_shards|1 to 16000000"},
        {{.max_bytes = (64u << 10) - 1}, "max_bytes|65536 to 274877906944"},
        {{.max_bytes = (256ull << 30) + 1}, "max_bytes|65536 to 274877906944"},
        {{.max_runs = 1000001}, "max_runs|1 to 1000000"},
        {{.max_members = 2048}, "max_members|1 to 2047"},
        {{.segment_bytes = (64u << 10) - 1}, "segment_bytes|65536 to 4294967296"},
        {{.segment_bytes = (4ull << 30) + 1}, "segment_bytes|65536 to 4294967296"},
        {{.segment_bytes = (64u << 10) + 1}, "segment_bytes|a multiple of 4096"},
        {{.snapshot_bytes = (64u << 10) - 1}, "snapshot_bytes|65536 to 1099511627776"},
        {{.snapshot_bytes = (1ull << 40) + 1}, "snapshot_bytes|65536 to 1099511627776"},
        {{.flush_interval = 99999}, "flush_interval|100000 to 3600000000000"},
        {{.flush_interval = 3600 * RF_SECOND + 1}, "flush_interval|100000 to 3600000000000"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rf_store *store;
        rf_options o = cases[i].options;
        o.create = true;
        RF_EXPECT(RF_INVALID_ARGUMENT, rf_open(shop.directory, &o, &store, &detail));
        rf_shop_expect_words(RF_INVALID_ARGUMENT, &detail, cases[i].words);
    }
    TEST_ASSERT_EQUAL(-1, access(region, F_OK));
}

static int hold_it_open(void *context)
{
    _Atomic uint32_t *ready = context;
    enter();
    atomic_store(ready, 1);
    pause();
    return 0;
}

static void a_store_in_use_is_not_destroyed(void)
{
    _Atomic uint32_t *ready = rf_hands_board(sizeof(*ready));
    pid_t child = rf_hands_send(hold_it_open, ready);
    rf_hands_until(ready, 1);
    RF_EXPECT(RF_BUSY, rf_destroy(shop.directory, &detail));
    char words[64];
    snprintf(words, sizeof(words), "in the way|in use, by process %d|end its processes",
             (int)child);
    rf_shop_expect_words(RF_BUSY, &detail, words);
    TEST_ASSERT_NULL(strstr(rf_shop_sentence(RF_BUSY, &detail), "lock"));
    rf_store *store = enter();
    RF_EXPECT(RF_BUSY, rf_destroy(shop.directory, &detail));
    rf_hands_kill(child);
    RF_EXPECT(RF_BUSY, rf_destroy(shop.directory, &detail)); /* by this one */
    rf_close(store);
    RF_EXPECT(RF_OK, rf_destroy(shop.directory, &detail));
    TEST_ASSERT_EQUAL(-1, access(region, F_OK));
    TEST_ASSERT_EQUAL(-1, access(shop.directory, F_OK));
    RF_EXPECT(RF_NOT_FOUND, rf_destroy(shop.directory, &detail));
    rf_shop_expect_words(RF_NOT_FOUND, &detail, "no such store");
}

static void members_that_died_do_not_fill_the_store(void)
{
    const rf_options few = {.max_shards = 64, .max_bytes = 65536, .max_runs = 2, .max_members = 3};
    rf_store *store[4];
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 3; i++) {
            store[i] = rf_shop_enter(&shop, &few);
        }
        for (unsigned i = 0; i < 3; i++) {
            rf_shop_die(store[i]);
        }
    }
    for (unsigned i = 0; i < 3; i++) {
        store[i] = rf_shop_enter(&shop, &few);
    }
    for (unsigned i = 0; i < 3; i++) {
        rf_close(store[i]);
    }
}

static void too_many_handles_are_refused_and_the_others_go_on(void)
{
    const rf_options few = {
        .create = true, .max_shards = 64, .max_bytes = 65536, .max_runs = 2, .max_members = 2};
    rf_store *store[16], *one_more;
    unsigned count = 0;
    rf_status status;
    while ((status = rf_open(shop.directory, &few, &one_more, &detail)) == RF_OK && count < 15) {
        store[count++] = one_more;
    }
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(status, &detail, "member slots|more members");
    TEST_ASSERT_TRUE(count >= 2);
    rf_close(store[--count]);
    store[count++] = rf_shop_enter_living(&shop, &few);
    while (count != 0) {
        rf_close(store[--count]);
    }
}

/* --- limits and signals --- */

static int create_with_small_files_only(void *context)
{
    struct rlimit few = {.rlim_cur = 1u << 20, .rlim_max = 1u << 20};
    (void)context;
    TEST_ASSERT_EQUAL(0, setrlimit(RLIMIT_FSIZE, &few)); /* and SIGXFSZ kills, as by default */
    expect_refusal(RF_RESOURCE_EXHAUSTED, "region|ulimit -f");
    TEST_ASSERT_EQUAL(-1, access(region, F_OK));
    return 0;
}

static int work_with_small_files_only(void *context)
{
    struct rlimit few = {.rlim_cur = 1u << 16, .rlim_max = 1u << 16};
    (void)context;
    TEST_ASSERT_EQUAL(0, setrlimit(RLIMIT_FSIZE, &few));
    rf_store *store = enter();
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 5);
    return rf_close(store) == RF_OK ? 0 : 1;
}

static void a_limit_of_file_sizes_refuses_a_new_region_and_kills_nobody(void)
{
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(create_with_small_files_only, NULL)));
    rf_close(enter());
    /* One that is there is as large as it will ever be. */
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(work_with_small_files_only, NULL)));
}

static unsigned signals; /* that will come while memory is taken */

/* In place of the C library's: as on a kernel that gives up at any signal. */
int fallocate(int fd, int mode, off_t offset, off_t len)
{
    if (signals != 0) {
        signals--;
        errno = EINTR;
        return -1;
    }
    return (int)syscall(SYS_fallocate, fd, mode, offset, len);
}

static void signals_are_in_nobodys_way(void)
{
    signals = 3;
    rf_store *store = enter();
    TEST_ASSERT_EQUAL(0, signals);
    signals = 3;
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 5);
    TEST_ASSERT_EQUAL(0, signals);
    rf_close(store);
}

static bool no_locks;

/* In place of the C library's: as on a file system that has none. */
int flock(int fd, int operation)
{
    if (no_locks) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static int open_without_locks(void *context)
{
    (void)context;
    no_locks = true;
    alarm(20); /* it must not wait for a builder that is not there */
    expect_refusal(RF_UNSUPPORTED, "lock|flock|another file system");
    return 0;
}

static void a_file_system_without_locks_is_refused_at_once(void)
{
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_without_locks, NULL)));
}

/* --- many at once --- */

#define CREATORS 24u

struct crowd {
    _Atomic uint32_t ready, go, incarnations, failed;
};

static int come_with_the_crowd(void *context)
{
    struct crowd *c = context;
    rf_store *store = NULL;
    atomic_fetch_add(&c->ready, 1);
    rf_hands_until(&c->go, 1);
    rf_status status = open_it(&store);
    if (status != RF_OK) {
        atomic_fetch_add(&c->failed, 1);
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    atomic_fetch_add(&c->incarnations, (uint32_t)rf_shop_inspect(store).incarnation);
    const rf_shard_input one = rf_input_of(1, "a", "b");
    rf_result r = {0};
    RF_EXPECT(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &lasting, &one,
                                               1, 1, &r));
    atomic_fetch_add(&c->ready, 1);
    rf_hands_until(&c->ready, 2 * CREATORS); /* all of them are inside */
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(store).runs);
    return rf_close(store) == RF_OK ? 0 : 1;
}

static void of_many_creators_at_once_one_builds_and_all_attach(void)
{
    for (unsigned round = 0; round < 3; round++) {
        struct crowd *c = rf_hands_board(sizeof(*c));
        pid_t children[CREATORS];
        for (unsigned i = 0; i < CREATORS; i++) {
            children[i] = rf_hands_send(come_with_the_crowd, c);
        }
        rf_hands_until(&c->ready, CREATORS);
        atomic_store(&c->go, 1);
        for (unsigned i = 0; i < CREATORS; i++) {
            TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
        }
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, c->incarnations, "somebody built over another's");
        RF_EXPECT(RF_OK, rf_destroy(shop.directory, &detail));
    }
}

struct churn {
    _Atomic uint32_t stop, opened, destroyed, refused;
};

/* Opens, works, closes, destroys, as often as it can. */
static int come_and_go(void *context)
{
    struct churn *c = context;
    for (unsigned n = (unsigned)getpid(); atomic_load(&c->stop) == 0;
         n = n * 1103515245u + 12345u) {
        rf_store *store = NULL;
        usleep(n >> 16 & 1023); /* so that now and then nobody is in it */
        rf_status status = open_it(&store);
        if (status == RF_OK) {
            rf_run_info info;
            rf_status made =
                rf_create_run(store, rf_now(store), &tenant, (uint64_t)getpid(), &lasting, NULL);
            TEST_ASSERT_TRUE(made == RF_OK || made == RF_RUN_EXISTS);
            RF_EXPECT(RF_BUSY, rf_destroy(shop.directory, NULL)); /* at least this one is in it */
            RF_EXPECT(RF_OK, rf_get_run(store, &tenant, (uint64_t)getpid(), &info, NULL));
            rf_close(store);
            atomic_fetch_add(&c->opened, 1);
        } else {
            atomic_fetch_add(&c->refused, 1);
            printf("  %s: %s\n", rf_status_name(status), rf_shop_sentence(status, &detail));
        }
        status = rf_destroy(shop.directory, &detail);
        TEST_ASSERT_TRUE_MESSAGE(status == RF_OK || status == RF_BUSY || status == RF_NOT_FOUND,
                                 rf_shop_sentence(status, &detail));
        atomic_fetch_add(&c->destroyed, status == RF_OK);
    }
    return 0;
}

/* Whoever has the store open can't have it destroyed under it, whatever the others do. */
static void opening_and_destroying_at_once_never_meet(void)
{
    struct churn *c = rf_hands_board(sizeof(*c));
    pid_t children[4];
    for (unsigned i = 0; i < 4; i++) {
        children[i] = rf_hands_send(come_and_go, c);
    }
    sleep(2);
    atomic_store(&c->stop, 1);
    for (unsigned i = 0; i < 4; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
    }
    printf("  opened %u times, destroyed %u times, %u refusals\n", c->opened, c->destroyed,
           c->refused);
    TEST_ASSERT_TRUE(c->opened > 20 && c->destroyed > 5);
    TEST_ASSERT_EQUAL_UINT32(0, c->refused);
    mkdir(shop.directory, 0700);
}

/* --- forks --- */

static void *open_and_close(void *context)
{
    _Atomic uint32_t *stop = context;
    while (atomic_load(stop) == 0) {
        rf_close(enter());
    }
    return NULL;
}

static int open_in_a_child(void *context)
{
    (void)context;
    alarm(20);
    return rf_close(enter()) == RF_OK ? 0 : 1;
}

static int live_in_a_child(void *context)
{
    atomic_fetch_add((_Atomic uint32_t *)context, 1);
    pause();
    return 0;
}

/* A child gets none of the locks that another thread of its parent happened to hold. */
static void children_forked_in_the_middle_of_an_open_are_not_in_the_way(void)
{
    static _Atomic uint32_t stop;
    _Atomic uint32_t *living = rf_hands_board(sizeof(*living));
    pthread_t thread;
    atomic_store(&stop, 0);
    pid_t idle[40];
    TEST_ASSERT_EQUAL(0, pthread_create(&thread, NULL, open_and_close, &stop));
    for (unsigned i = 0; i < 40; i++) {
        idle[i] = rf_hands_send(live_in_a_child, living);
        if (!RF_SHOP_SANITIZED) {
            TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_in_a_child, NULL)));
        }
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    /* A child that has not run at all yet still has what its parent had open. */
    rf_hands_until(living, 40);
    RF_EXPECT(RF_OK, rf_destroy(shop.directory, &detail)); /* nobody has it open */
    for (unsigned i = 0; i < 40; i++) {
        rf_hands_kill(idle[i]);
    }
}

/* --- what builders leave that die --- */

static void a_half_made_region_is_built_again(void)
{
    const uint32_t none = 0;
    const uint64_t nothing = 0;
    static const uint8_t zeros[4096];
    /* an empty file; one of zeros; and one that is complete but for its version */
    for (unsigned stage = 0; stage < 4; stage++) {
        uint64_t fence = live_a_while();
        switch (stage) {
        case 0:
            TEST_ASSERT_EQUAL(0, truncate(region, 0));
            break;
        case 1:
            plant(region, zeros, sizeof(zeros), 0600);
            break;
        case 2:
            patch(region, HEADER(version), &none, sizeof(none));
            patch(region, HEADER(magic), &nothing, sizeof(nothing));
            break;
        default:
            patch(region, HEADER(version), &none, sizeof(none));
            break;
        }
        expect_rebuilt(1, fence);
        RF_EXPECT(RF_OK, rf_destroy(shop.directory, NULL));
        TEST_ASSERT_EQUAL(0, mkdir(shop.directory, 0700));
        setUp();
    }
}

/* It named its region in `store` and died before it published it; or wrote the new `store` aside. */
static void a_builder_that_died_costs_an_incarnation_at_most(void)
{
    uint64_t fence = live_a_while();
    plant(in_store("tmp.store.00000000000004d2"), "half", 4, 0600);
    expect_unharmed(fence);
    uint8_t uuid[16] = {9};
    patch(region, HEADER(uuid), uuid, sizeof(uuid)); /* a region that `store` does not name */
    sign_header();
    expect_rebuilt(1, fence);
}

struct builder {
    _Atomic uint32_t locked;
};

/* A process that holds the builder's lock over a half-made region. */
static int build_slowly(void *context)
{
    struct builder *b = context;
    int lock = open(in_store("lock"), O_RDWR | O_CREAT, 0600);
    TEST_ASSERT_EQUAL(0, flock(lock, LOCK_EX));
    plant(region, "", 0, 0600);
    atomic_store(&b->locked, 1);
    usleep(300000);
    return 0; /* died */
}

static void openers_wait_for_a_builder_and_build_if_it_dies(void)
{
    struct builder *b = rf_hands_board(sizeof(*b));
    pid_t child = rf_hands_send(build_slowly, b);
    rf_hands_until(&b->locked, 1);
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    rf_store *store = enter();
    clock_gettime(CLOCK_MONOTONIC, &to);
    TEST_ASSERT_TRUE(to.tv_sec - from.tv_sec < 3);
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).incarnation);
    rf_close(store);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(child));
}

static int open_and_be_killed(void *context)
{
    (void)context;
    rf_store *store = enter();
    rf_close(store);
    return 0;
}

/* Killed after a random time, over and over: the next one always gets in. */
static void a_creator_may_be_killed_at_any_time(void)
{
    uint64_t incarnation = 0;
    for (unsigned i = 0; i < 60; i++) {
        pid_t child = rf_hands_send(open_and_be_killed, NULL);
        usleep(i * 40);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (i % 3 == 2) {
            rf_store *store = enter();
            uint64_t now = rf_shop_inspect(store).incarnation;
            TEST_ASSERT_TRUE_MESSAGE(now >= incarnation, "the incarnation went down");
            incarnation = now;
            rf_close(store);
        }
        if (i % 5 == 4) {
            unlink(region);
        }
    }
    printf("  incarnation %" PRIu64 "\n", incarnation);
    TEST_ASSERT_TRUE(incarnation >= 8);
}

/* --- what an earlier boot, another version or an accident left --- */

static void a_region_of_an_earlier_boot_is_built_anew_with_higher_fences(void)
{
    uint8_t boot[16] = {1, 2, 3};
    uint64_t fence = live_a_while();
    for (uint64_t incarnation = 1; incarnation < 4; incarnation++) {
        patch(region, HEADER(boot_id), boot, sizeof(boot));
        sign_header();
        rf_store *none;
        RF_EXPECT(RF_NOT_FOUND, look_at_it(&none)); /* a look does not build */
        expect_rebuilt(incarnation, fence);
        rf_store *store = enter();
        fence = rf_shop_shard(store, &tenant, RUN, 1).fence;
        rf_close(store);
    }
    TEST_ASSERT_TRUE(fence >> 40 == 3);
}

static void a_region_that_is_gone_is_built_anew_with_higher_fences(void)
{
    uint64_t fence = live_a_while();
    unlink(region);
    expect_rebuilt(1, fence);
}

static void another_layout_is_refused_with_both_values(void)
{
    uint64_t fence = live_a_while(), hash, other = 0x1122334455667788u;
    char words[64];
    fetch(region, HEADER(layout_hash), &hash, sizeof(hash));
    patch(region, HEADER(layout_hash), &other, sizeof(other));
    snprintf(words, sizeof(words), "1122334455667788|%016" PRIx64 "|layout|remove it", hash);
    expect_refusal(RF_VERSION_MISMATCH, words);
    rf_store *none;
    RF_EXPECT(RF_VERSION_MISMATCH, look_at_it(&none));
    patch(region, HEADER(layout_hash), &hash, sizeof(hash));
    expect_unharmed(fence);
}

static void another_version_is_refused(void)
{
    uint64_t fence = live_a_while();
    const uint32_t later = RF_REGION_VERSION + 1, good = RF_REGION_VERSION;
    patch(region, HEADER(version), &later, sizeof(later));
    expect_refusal(RF_VERSION_MISMATCH, "version 3|version 2");
    patch(region, HEADER(version), &good, sizeof(good));
    expect_unharmed(fence);
}

static void another_byte_order_is_refused(void)
{
    uint64_t fence = live_a_while();
    const uint32_t big = __builtin_bswap32(RF_BYTE_ORDER_MARK), good = RF_BYTE_ORDER_MARK;
    patch(region, HEADER(byte_order), &big, sizeof(big));
    expect_refusal(RF_VERSION_MISMATCH, "byte order");
    patch(region, HEADER(byte_order), &good, sizeof(good));
    expect_unharmed(fence);
}

static void a_truncated_region_is_refused_and_not_touched(void)
{
    live_a_while();
    struct stat st;
    TEST_ASSERT_EQUAL(0, stat(region, &st));
    TEST_ASSERT_EQUAL(0, truncate(region, st.st_size - 65536));
    expect_refusal(RF_CORRUPT, "shorter|ringfence.");
    TEST_ASSERT_EQUAL(0, truncate(region, 65536));
    expect_refusal(RF_CORRUPT, "shorter");
    RF_EXPECT(RF_OK, rf_destroy(shop.directory, NULL)); /* the way out */
}

static void garbage_in_place_of_a_region_is_refused(void)
{
    static uint8_t garbage[65536];
    for (size_t i = 0; i < sizeof(garbage); i++) {
        garbage[i] = (uint8_t)(i * 131 + 7);
    }
    plant(region, garbage, sizeof(garbage), 0600);
    expect_refusal(RF_CORRUPT, "not a ringfence region");
    uint8_t still[16];
    fetch(region, 0, still, sizeof(still));
    TEST_ASSERT_EQUAL_MEMORY(garbage, still, sizeof(still));
}

/* Any single byte of what never changes in the header, damaged: it is not attached. */
static int open_with_each_byte_damaged(void *context)
{
    (void)context;
    unsigned counts[3] = {0};
    for (off_t at = 0; at < HEADER(epoch); at++) {
        uint8_t byte, bad;
        fetch(region, at, &byte, 1);
        bad = byte ^ 0x41;
        patch(region, at, &bad, 1);
        const rf_options look = {.read_only = true};
        rf_store *store = NULL;
        rf_status status = rf_open(shop.directory, &look, &store, &detail);
        counts[status == RF_OK ? 0 : status == RF_NOT_FOUND ? 1 : 2]++;
        if (status == RF_OK) {
            rf_close(store);
        }
        patch(region, at, &byte, 1);
    }
    printf("  %u attached, %u to be built anew, %u refused\n", counts[0], counts[1], counts[2]);
    return counts[0] == 0 ? 0 : 1;
}

static void a_damaged_header_is_never_attached(void)
{
    uint64_t fence = live_a_while();
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_with_each_byte_damaged, NULL)));
    expect_unharmed(fence);
    uint64_t good, bad;
    fetch(region, HEADER(hash_seed), &good, sizeof(good));
    bad = good ^ 1;
    patch(region, HEADER(hash_seed), &bad, sizeof(bad));
    expect_refusal(RF_CORRUPT, "header|ringfence.|remove the file");
    patch(region, HEADER(hash_seed), &good, sizeof(good));
    expect_unharmed(fence);
}

/* With a good sum, and sections that would lead out of the file or into each other. */
static void sections_that_do_not_fit_are_refused(void)
{
    static const off_t fields[] = {
        HEADER(roster.offset),     HEADER(slots.stride), HEADER(runs.count),
        HEADER(extents.offset),    HEADER(slab.offset),  HEADER(growth.count),
        HEADER(shard_index.count), HEADER(lanes.stride), HEADER(slab_classes.count),
        HEADER(region_bytes),      HEADER(fixed_bytes),  HEADER(lane_units),
        HEADER(max_shards)};
    static const uint64_t values[] = {0, 1, 64, 1ull << 20, 1ull << 40, UINT64_MAX};
    uint64_t fence = live_a_while(), good;
    for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
        fetch(region, fields[f], &good, sizeof(good));
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            /* 64 extents more or less make no other layout: max_shards is a limit, too */
            if (values[v] == good || (fields[f] == HEADER(max_shards) && values[v] < 1ull << 20)) {
                continue;
            }
            patch(region, fields[f], &values[v], sizeof(values[v]));
            sign_header();
            rf_store *store = NULL;
            RF_EXPECT(RF_CORRUPT, open_it(&store));
        }
        patch(region, fields[f], &good, sizeof(good));
        sign_header();
    }
    expect_unharmed(fence);
}

/* How much is in use, of members and runs: everybody walks by it. */
static void counts_beyond_the_tables_are_refused(void)
{
    static const off_t fields[] = {HEADER(runs_used), HEADER(members_used)};
    uint64_t fence = live_a_while();
    uint32_t good, bad = UINT32_MAX;
    for (size_t f = 0; f < 2; f++) {
        fetch(region, fields[f], &good, sizeof(good));
        patch(region, fields[f], &bad, sizeof(bad));
        expect_refusal(RF_CORRUPT, "header|ringfence.");
        patch(region, fields[f], &good, sizeof(good));
    }
    expect_unharmed(fence);
}

/* --- the file `store` --- */

static void a_damaged_store_file_is_refused_and_kept(void)
{
    uint64_t fence = live_a_while();
    uint8_t whole[256], byte;
    struct stat st;
    TEST_ASSERT_EQUAL(0, unlink(in_store("store.2")));
    TEST_ASSERT_EQUAL(0, stat(in_store("store"), &st));
    TEST_ASSERT_TRUE((size_t)st.st_size <= sizeof(whole));
    fetch(in_store("store"), 0, whole, (size_t)st.st_size);
    for (off_t at = 16; at < st.st_size; at += 7) {
        byte = whole[at] ^ 0x10;
        patch(in_store("store"), at, &byte, 1);
        rf_store *store;
        RF_EXPECT(RF_CORRUPT, open_it(&store));
        patch(in_store("store"), at, &whole[at], 1);
    }
    rf_shop_expect_words(RF_CORRUPT, &detail, "store is damaged|restore|destroy");
    plant(in_store("store"), whole, (size_t)st.st_size - 1, 0600);
    expect_refusal(RF_CORRUPT, "damaged");
    plant(in_store("store"), "", 0, 0600);
    expect_refusal(RF_CORRUPT, "damaged");
    unlink(region); /* not even then is it built over: its incarnation is not known */
    expect_refusal(RF_CORRUPT, "damaged");
    plant(in_store("store"), whole, (size_t)st.st_size, 0600);
    expect_rebuilt(1, fence);
}

static void expect_incarnation(uint64_t incarnation)
{
    rf_store *store = enter();
    TEST_ASSERT_EQUAL_UINT64(incarnation, rf_shop_inspect(store).incarnation);
    rf_close(store);
}

/* Either of the two, every byte of it, or all. */
static void damage_to_one_copy_of_the_store_file_costs_nothing(void)
{
    static const char *const copies[] = {"store", "store.2"};
    uint64_t fence = live_a_while(), incarnation = 0;
    uint8_t whole[256], byte;
    struct stat st;
    for (unsigned c = 0; c < 2; c++) {
        TEST_ASSERT_EQUAL(0, stat(in_store(copies[c]), &st));
        fetch(in_store(copies[c]), 0, whole, (size_t)st.st_size);
        for (off_t at = 0; at < st.st_size; at++) {
            if (at >= 8 && at < 12) {
                continue; /* the format: a later one is refused */
            }
            byte = whole[at] ^ 0x10;
            patch(in_store(copies[c]), at, &byte, 1);
            rf_store *store;
            RF_EXPECT(RF_OK, open_it(&store));
            rf_close(store);
            patch(in_store(copies[c]), at, &whole[at], 1);
        }
        plant(in_store(copies[c]), whole, 20, 0600);
        expect_incarnation(incarnation);
        TEST_ASSERT_EQUAL(0, unlink(in_store(copies[c])));
        expect_incarnation(incarnation);
        unlink(region); /* the next region's builder writes both */
        expect_rebuilt(++incarnation, fence);
        fetch(in_store("store"), 0, whole, (size_t)st.st_size);
        uint8_t other[256];
        fetch(in_store("store.2"), 0, other, (size_t)st.st_size);
        TEST_ASSERT_EQUAL_MEMORY(whole, other, (size_t)st.st_size);
        rf_store *store = enter();
        fence = rf_shop_shard(store, &tenant, RUN, 1).fence;
        rf_close(store);
    }
}

/* A builder that died between the two leaves one that is behind. */
static void the_newer_copy_of_the_store_file_counts(void)
{
    uint64_t fence = live_a_while();
    uint8_t old[256];
    struct stat st;
    TEST_ASSERT_EQUAL(0, stat(in_store("store"), &st));
    fetch(in_store("store"), 0, old, (size_t)st.st_size);
    unlink(region);
    expect_rebuilt(1, fence);
    static const char *const copies[] = {"store", "store.2"};
    for (unsigned c = 0; c < 2; c++) {
        uint8_t now[256];
        fetch(in_store(copies[c]), 0, now, (size_t)st.st_size);
        plant(in_store(copies[c]), old, (size_t)st.st_size, 0600);
        expect_incarnation(1);
        plant(in_store(copies[c]), now, (size_t)st.st_size, 0600);
    }
}

/* --- files that are not ours --- */

static void a_symbolic_link_is_refused(void)
{
    TEST_ASSERT_EQUAL(0, symlink("/etc/passwd", region));
    expect_refusal(RF_PERMISSION_DENIED, "symbolic link|remove");
}

static void a_file_with_a_second_name_is_refused(void)
{
    char other[128];
    uint64_t fence = live_a_while();
    snprintf(other, sizeof(other), "%s.other", region);
    TEST_ASSERT_EQUAL(0, link(region, other));
    expect_refusal(RF_PERMISSION_DENIED, "one name");
    unlink(other);
    expect_unharmed(fence);
}

static void a_file_that_everybody_may_write_is_refused(void)
{
    uint64_t fence = live_a_while();
    TEST_ASSERT_EQUAL(0, chmod(region, 0666));
    expect_refusal(RF_PERMISSION_DENIED, "everybody|666|0600");
    TEST_ASSERT_EQUAL(0, chmod(region, 0600));
    expect_unharmed(fence);
}

static void a_directory_or_a_pipe_in_its_place_is_refused(void)
{
    TEST_ASSERT_EQUAL(0, mkfifo(region, 0600));
    expect_refusal(RF_PERMISSION_DENIED, "plain file");
    unlink(region);
    TEST_ASSERT_EQUAL(0, mkdir(region, 0700));
    rf_store *store;
    rf_status status = open_it(&store);
    TEST_ASSERT_TRUE(status != RF_OK);
    rf_shop_expect_words(status, &detail, "ringfence.");
    rmdir(region);
}

static void only_root(void)
{
    if (geteuid() != 0) {
        TEST_IGNORE_MESSAGE("needs root");
    }
}

static void become_nobody(void)
{
    TEST_ASSERT_EQUAL(0, setgid(NOBODY));
    TEST_ASSERT_EQUAL(0, setuid(NOBODY));
}

static int open_as_nobody(void *context)
{
    become_nobody();
    expect_refusal(RF_PERMISSION_DENIED, context);
    return 0;
}

static void another_users_region_is_refused(void)
{
    only_root();
    TEST_ASSERT_EQUAL(0, chown(shop.directory, NOBODY, NOBODY));
    plant(region, "", 0, 0600); /* planted under the name that the store will have */
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_as_nobody, "ringfence.|denied")));
    TEST_ASSERT_EQUAL(0, chmod(region, 0644));
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_as_nobody, "ringfence.|denied")));
    TEST_ASSERT_EQUAL(0, chmod(region, 0606));
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_as_nobody, "belongs to user 0")));
    /* a group that the victim is in does not make it his */
    TEST_ASSERT_EQUAL(0, chown(region, 0, NOBODY));
    TEST_ASSERT_EQUAL(0, chmod(region, 0660));
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_as_nobody, "ringfence.")));
    struct stat st;
    TEST_ASSERT_EQUAL(0, stat(region, &st));
    TEST_ASSERT_EQUAL(0, st.st_size);
}

/* --- what others make in /dev/shm under the name of a store --- */

static char named[64], name_path[96];

static void name_a_store(void)
{
    snprintf(named, sizeof(named), "planted-%d", (int)getpid());
    snprintf(name_path, sizeof(name_path), "/dev/shm/ringfence-%s", named);
}

static int create_by_name_as_nobody(void *words)
{
    rf_store *store;
    rf_options options = rf_shop_small();
    options.create = true;
    become_nobody();
    rf_status status = rf_open(named, &options, &store, &detail);
    rf_shop_expect_words(status, &detail, words);
    TEST_ASSERT_TRUE(status != RF_OK);
    return 0;
}

static void a_directory_that_another_user_planted_is_refused(void)
{
    only_root();
    name_a_store();
    TEST_ASSERT_EQUAL(0, mkdir(name_path, 0700));
    TEST_ASSERT_EQUAL(0, chown(name_path, NOBODY - 1, NOBODY - 1));
    TEST_ASSERT_EQUAL(0, chmod(name_path, 0707));
    char words[] = "belongs to user 65533|another name";
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(create_by_name_as_nobody, words)));
    TEST_ASSERT_EQUAL(0, chmod(name_path, 0777));
    char open_to_all[] = "everybody|777|0700";
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(create_by_name_as_nobody, open_to_all)));
    TEST_ASSERT_EQUAL(0, rmdir(name_path)); /* nothing was made in it */
}

/* Where the kernel does not see to it (fs.protected_symlinks), too. */
static void a_link_in_place_of_a_named_stores_directory_is_refused(void)
{
    only_root();
    name_a_store();
    TEST_ASSERT_EQUAL(0, chown(shop.directory, NOBODY, NOBODY));
    TEST_ASSERT_EQUAL(0, symlink(shop.directory, name_path));
    char words[] = "permission|planted-|symbolic link|remove";
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(create_by_name_as_nobody, words)));
    TEST_ASSERT_EQUAL(0, unlink(name_path));
    TEST_ASSERT_EQUAL(-1, access(in_store("lock"), F_OK));
}

static void another_users_store_is_refused(void)
{
    only_root();
    uint64_t fence = live_a_while();
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_as_nobody, "directory|denied")));
    TEST_ASSERT_EQUAL(0, chmod(shop.directory, 0755));
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(open_as_nobody, "lock|denied")));
    expect_unharmed(fence);
}

static int work_as_a_member_of_the_group(void *context)
{
    (void)context;
    TEST_ASSERT_EQUAL(0, setgid(4242));
    TEST_ASSERT_EQUAL(0, setuid(NOBODY));
    rf_store *store;
    rf_status status = rf_open(shop.directory, NULL, &store, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 1);
    return rf_close(store) == RF_OK ? 0 : 1;
}

static void a_group_shares_a_store_that_was_made_for_it(void)
{
    only_root();
    rf_options options = rf_shop_small();
    options.has_group = true;
    options.group = 4242;
    rf_store *store = rf_shop_enter_living(&shop, &options);
    struct stat st;
    TEST_ASSERT_EQUAL(0, stat(region, &st));
    TEST_ASSERT_EQUAL_HEX(0660, st.st_mode & 07777);
    TEST_ASSERT_EQUAL(4242, st.st_gid);
    TEST_ASSERT_EQUAL(0, chmod(shop.directory, 0770));
    TEST_ASSERT_EQUAL(0, chown(shop.directory, 0, 4242));
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(work_as_a_member_of_the_group, NULL)));
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_run(store, &tenant, RUN).shard_count);
    rf_close(store);
}

/* As its maker left it who was killed between making a thing and giving it the group's access. */
static void a_killed_maker_does_not_keep_the_group_out_for_ever(void)
{
    only_root();
    rf_options options = rf_shop_small();
    options.has_group = true;
    options.group = 4242;
    mode_t mask = umask(0077);
    TEST_ASSERT_EQUAL(0, chmod(shop.directory, 0700));
    plant(in_store("lock"), "", 0, 0600);
    rf_store *store = rf_shop_enter_living(&shop, &options);
    umask(mask);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(work_as_a_member_of_the_group, NULL)));
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_run(store, &tenant, RUN).shard_count);
    rf_close(store);
    /* Once there is a store, its access is its owner's business. */
    struct stat st;
    TEST_ASSERT_EQUAL(0, chmod(shop.directory, 0700));
    rf_close(rf_shop_enter_living(&shop, &options));
    TEST_ASSERT_EQUAL(0, stat(shop.directory, &st));
    TEST_ASSERT_EQUAL_HEX(0700, st.st_mode & 07777);
}

/* --- not visible here --- */

static void a_region_that_is_gone_while_in_use_is_not_built_again(void)
{
    _Atomic uint32_t *ready = rf_hands_board(sizeof(*ready));
    pid_t child = rf_hands_send(hold_it_open, ready);
    rf_hands_until(ready, 1);
    TEST_ASSERT_EQUAL(0, unlink(region));
    expect_refusal(RF_BUSY, "in use|not visible|/dev/shm");
    TEST_ASSERT_EQUAL(-1, access(region, F_OK));
    rf_hands_kill(child);
    expect_rebuilt(1, 0);
}

static int open_with_another_dev_shm(void *context)
{
    (void)context;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=16m") != 0) {
        return 77;
    }
    expect_refusal(RF_BUSY, "in use|another /dev/shm");
    return 0;
}

static void another_containers_dev_shm_with_the_same_directory_is_refused(void)
{
    only_root();
    rf_store *store = enter();
    int code = rf_hands_wait(rf_hands_send(open_with_another_dev_shm, NULL));
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 5);
    rf_close(store);
    if (code == 77) {
        TEST_IGNORE_MESSAGE("no mount namespaces here");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static int open_in_another_time(void *context)
{
    (void)context;
    if (unshare(CLONE_NEWTIME) != 0) {
        return 77;
    }
    int fd = open("/proc/self/timens_offsets", O_WRONLY);
    if (fd < 0 || write(fd, "boottime 1000 0\n", 16) != 16) {
        return 77;
    }
    close(fd);
    /* Only children are in the new namespace. */
    pid_t pid = fork();
    if (pid == 0) {
        rf_store *store;
        rf_status status = open_it(&store);
        printf("  %s: %s\n", rf_status_name(status), rf_shop_sentence(status, &detail));
        bool good = status == RF_UNSUPPORTED && strstr(detail.where, "time namespace") != NULL;
        fflush(NULL);
        _exit(good ? 0 : 1);
    }
    return rf_hands_wait(pid);
}

static void a_process_in_another_time_namespace_is_refused(void)
{
    only_root();
    uint64_t fence = live_a_while();
    int code = rf_hands_wait(rf_hands_send(open_in_another_time, NULL));
    if (code == 77) {
        expect_unharmed(fence);
        TEST_IGNORE_MESSAGE("no time namespaces here");
    }
    TEST_ASSERT_EQUAL(0, code);
    expect_unharmed(fence);
}

/* Makes a time namespace, and does not go into it: what is read in /proc is not its own time. */
static int open_before_entering_another_time(void *context)
{
    (void)context;
    if (unshare(CLONE_NEWTIME) != 0) {
        return 77;
    }
    expect_refusal(RF_UNSUPPORTED, "time namespace|child");
    return 0;
}

static void a_process_whose_children_will_have_another_time_is_refused(void)
{
    only_root();
    uint64_t fence = live_a_while();
    int code = rf_hands_wait(rf_hands_send(open_before_entering_another_time, NULL));
    expect_unharmed(fence);
    if (code == 77) {
        TEST_IGNORE_MESSAGE("no time namespaces here");
    }
    TEST_ASSERT_EQUAL(0, code);
}

/* A /proc in which the namespace's offsets can't be found. */
static int open_without_knowing_the_time(void *context)
{
    (void)context;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(in_store("lock"), "/proc/self/timens_offsets", NULL, MS_BIND, NULL) != 0) {
        return 77;
    }
    expect_refusal(RF_UNSUPPORTED, "timens_offsets|time namespace");
    /* Neither is one made. */
    unlink(region);
    expect_refusal(RF_UNSUPPORTED, "timens_offsets");
    return 0;
}

static void an_unknown_time_namespace_is_not_taken_for_the_first(void)
{
    only_root();
    uint64_t fence = live_a_while();
    int code = rf_hands_wait(rf_hands_send(open_without_knowing_the_time, NULL));
    if (code == 77) {
        expect_unharmed(fence);
        TEST_IGNORE_MESSAGE("no mount namespaces here, or nothing can be mounted over /proc");
    }
    TEST_ASSERT_EQUAL(0, code);
    expect_rebuilt(1, fence);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_store_outlives_its_processes);
    RUN_TEST(what_may_not_be_is_refused_before_anything_is_made);
    RUN_TEST(a_plain_name_is_a_directory_in_dev_shm);
    RUN_TEST(looking_at_a_store_without_a_region_finds_none_and_makes_none);
    RUN_TEST(options_out_of_range_are_refused_with_the_range);
    RUN_TEST(a_store_in_use_is_not_destroyed);
    RUN_TEST(members_that_died_do_not_fill_the_store);
    RUN_TEST(too_many_handles_are_refused_and_the_others_go_on);
    RUN_TEST(a_limit_of_file_sizes_refuses_a_new_region_and_kills_nobody);
    RUN_TEST(signals_are_in_nobodys_way);
    RUN_TEST(a_file_system_without_locks_is_refused_at_once);
    RUN_TEST(of_many_creators_at_once_one_builds_and_all_attach);
    RUN_TEST(opening_and_destroying_at_once_never_meet);
    RUN_TEST(children_forked_in_the_middle_of_an_open_are_not_in_the_way);
    RUN_TEST(a_half_made_region_is_built_again);
    RUN_TEST(a_builder_that_died_costs_an_incarnation_at_most);
    RUN_TEST(openers_wait_for_a_builder_and_build_if_it_dies);
    RUN_TEST(a_creator_may_be_killed_at_any_time);
    RUN_TEST(a_region_of_an_earlier_boot_is_built_anew_with_higher_fences);
    RUN_TEST(a_region_that_is_gone_is_built_anew_with_higher_fences);
    RUN_TEST(another_layout_is_refused_with_both_values);
    RUN_TEST(another_version_is_refused);
    RUN_TEST(another_byte_order_is_refused);
    RUN_TEST(a_truncated_region_is_refused_and_not_touched);
    RUN_TEST(garbage_in_place_of_a_region_is_refused);
    RUN_TEST(a_damaged_header_is_never_attached);
    RUN_TEST(sections_that_do_not_fit_are_refused);
    RUN_TEST(counts_beyond_the_tables_are_refused);
    RUN_TEST(a_damaged_store_file_is_refused_and_kept);
    RUN_TEST(damage_to_one_copy_of_the_store_file_costs_nothing);
    RUN_TEST(the_newer_copy_of_the_store_file_counts);
    RUN_TEST(a_symbolic_link_is_refused);
    RUN_TEST(a_file_with_a_second_name_is_refused);
    RUN_TEST(a_file_that_everybody_may_write_is_refused);
    RUN_TEST(a_directory_or_a_pipe_in_its_place_is_refused);
    RUN_TEST(another_users_region_is_refused);
    RUN_TEST(a_directory_that_another_user_planted_is_refused);
    RUN_TEST(a_link_in_place_of_a_named_stores_directory_is_refused);
    RUN_TEST(another_users_store_is_refused);
    RUN_TEST(a_group_shares_a_store_that_was_made_for_it);
    RUN_TEST(a_killed_maker_does_not_keep_the_group_out_for_ever);
    RUN_TEST(a_region_that_is_gone_while_in_use_is_not_built_again);
    RUN_TEST(another_containers_dev_shm_with_the_same_directory_is_refused);
    RUN_TEST(a_process_in_another_time_namespace_is_refused);
    RUN_TEST(a_process_whose_children_will_have_another_time_is_refused);
    RUN_TEST(an_unknown_time_namespace_is_not_taken_for_the_first);
    return UNITY_END();
}
