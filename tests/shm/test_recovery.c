/*
 * Durable stores, closed and lost and opened again: what is there afterwards is what was there before,
 * without its leases; and what opening does is one row of a table for every case.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <blake3.h>

#include "admit.h"
#include "directory.h"
#include "formats.h"
#include "fsck.h"
#include "handle.h"
#include "hands.h"
#include "history.h"
#include "prng.h"
#include "recover.h"
#include "snapshot.h"

static struct rf_shop shop;
static struct rf_history history;
static rf_detail detail;

static rf_options durable(void)
{
    rf_options o = rf_shop_small();
    o.durability = RF_NOWAIT;
    o.segment_bytes = 256 * 1024;
    o.snapshot_bytes = 1ull << 40; /* only when asked for */
    return o;
}

void setUp(void)
{
    rf_shop_found(&shop);
}

void tearDown(void)
{
    rf_shop_raze(&shop);
}

static const char *in_store(const char *name)
{
    static char path[4][128];
    static unsigned next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof(path[0]), "%s/%s", shop.directory, name);
    return p;
}

/* The region goes away as in a reboot. Nobody has the store open. */
static void lose_region(const char *directory)
{
    struct stat st;
    char path[128];
    TEST_ASSERT_EQUAL(0, stat(directory, &st));
    snprintf(path, sizeof(path), "/dev/shm/ringfence.%jx.%jx", (uintmax_t)st.st_dev,
             (uintmax_t)st.st_ino);
    TEST_ASSERT_EQUAL(0, unlink(path));
}

static void enter_all(void)
{
    rf_options o = durable();
    for (unsigned i = 0; i < RF_HISTORY_HANDLES; i++) {
        history.stores[i] = rf_shop_enter(&shop, &o);
    }
}

static void leave_all(void)
{
    for (unsigned i = 0; i < RF_HISTORY_HANDLES; i++) {
        if (history.stores[i] != NULL) {
            rf_close(history.stores[i]);
        }
        history.stores[i] = NULL;
    }
    rf_history_forget_leases(&history);
}

static void tell(void *context, const char *what)
{
    (void)context;
    printf("  differs: %s\n", what);
}

static void expect_verified(rf_store *store)
{
    rf_verification v;
    rf_status status = rf_verify(store, tell, NULL, &v, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, v.differences, "the log and the region differ");
}

static void expect_sound(rf_store *store)
{
    const char *why = rf_fsck(store);
    if (why != NULL) {
        TEST_FAIL_MESSAGE(why);
    }
}

/* The first line in which they differ. */
static void expect_same(char *before, char *after)
{
    char *a = before, *b = after;
    while (*a != 0 && *b != 0) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0) {
            printf("  was: %.*s\n  is:  %.*s\n", (int)n, a, (int)m, b);
            TEST_FAIL_MESSAGE("not what it was");
        }
        a += n + (a[n] != 0);
        b += m + (b[m] != 0);
    }
    TEST_ASSERT_TRUE(*a == 0 && *b == 0);
    free(before);
    free(after);
}

/* A cold open shows what was there. */
static void expect_recovered(void)
{
    char *before = rf_history_picture(history.stores[0]);
    leave_all();
    enter_all();
    /* Closing gives bound leases back, which is an operation too: taken again. */
    free(before);
    before = rf_history_picture(history.stores[0]);
    leave_all();
    lose_region(shop.directory);
    enter_all();
    expect_same(before, rf_history_picture(history.stores[0]));
    expect_sound(history.stores[0]);
}

/* --- histories --- */

#define OPERATIONS (RF_SHOP_SANITIZED ? 10000u : 100000u)

static void a_random_history_is_recovered_from_the_log_alone(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 20240);
    printf("  seed %" PRIu64 "\n", seed);
    rf_history_begin(&history, &shop, seed);
    enter_all();
    for (unsigned i = 0; i < 10; i++) {
        rf_history_play(&history, OPERATIONS / 10);
    }
    expect_sound(history.stores[0]);
    expect_verified(history.stores[0]);
    expect_recovered();
    expect_verified(history.stores[0]);
    for (unsigned i = 0; i <= RF_EVENT_RUN_PURGED; i++) {
        printf("  %-18s %" PRIu64 "\n", rf_event_name((rf_event_kind)i), history.done[i]);
        /* Of owner lost only monitors hear. */
        TEST_ASSERT_TRUE_MESSAGE(history.done[i] != 0 || i == RF_EVENT_OWNER_LOST,
                                 "a kind of event never happened");
    }
    printf("  %" PRIu64 " refused\n", history.refused);
    leave_all();
}

static void a_random_history_is_recovered_from_snapshots_and_the_log_behind_them(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 777);
    printf("  seed %" PRIu64 "\n", seed);
    rf_history_begin(&history, &shop, seed);
    enter_all();
    for (unsigned i = 0; i < 12; i++) {
        rf_history_play(&history, OPERATIONS / 12 / 2);
        rf_status status = rf_snapshot(history.stores[i % RF_HISTORY_HANDLES], &detail);
        if (status != RF_OK) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
        }
        rf_history_play(&history, OPERATIONS / 12 / 2);
        expect_verified(history.stores[0]);
        if (i % 3 == 2) {
            expect_recovered();
            expect_verified(history.stores[0]);
        }
    }
    leave_all();
}

/* --- reopening --- */

static void twenty_cold_opens_lose_nothing_and_repeat_no_fence(void)
{
    rf_history_begin(&history, &shop, rf_env_number("RF_SEED", 4711));
    uint64_t incarnation = 0, floor = 0, now = 0;
    enter_all();
    for (unsigned i = 0; i < 20; i++) {
        rf_history_play(&history, RF_SHOP_SANITIZED ? 300 : 1500);
        if (i % 7 == 3) {
            RF_EXPECT(RF_OK, rf_snapshot(history.stores[1], &detail));
        }
        expect_recovered();
        rf_inspection seen = rf_shop_inspect(history.stores[0]);
        TEST_ASSERT_EQUAL_UINT64(++incarnation, seen.incarnation);
        TEST_ASSERT_TRUE(seen.fence_floor >= incarnation << 40 && seen.fence_floor > floor);
        floor = seen.fence_floor;
        expect_verified(history.stores[0]);
        rf_options o = durable();
        rf_store *living = rf_shop_enter_living(&shop, &o);
        TEST_ASSERT_TRUE(rf_now(living) > now);
        now = rf_now(living);
        rf_close(living);
    }
    leave_all();
    /* what segments were made ahead, or came to nothing, does not pile up */
    unsigned segments = 0;
    DIR *listing = opendir(shop.directory);
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        segments += strncmp(e->d_name, "log.", 4) == 0;
    }
    closedir(listing);
    printf("  %u segments\n", segments);
    TEST_ASSERT_TRUE(segments < 200);
}

static rf_tenant tenant;
#define RUN 1u

/* A durable store with a run of eight shards, one of them held by a lease that is not bound. */
static rf_lease live_a_while(const rf_options *options)
{
    const rf_run_config config = {.lease_duration = 1000000};
    rf_grant grant = rf_shop_blank(0);
    rf_tenant_from_name("t", &tenant);
    rf_store *store = rf_shop_enter(&shop, options);
    rf_shop_stock(store, shop.now, &tenant, RUN, &config, 8);
    RF_EXPECT(RF_OK, rf_acquire(store, shop.now, &tenant, RUN, 3, 7, RF_DETACHED, &grant, NULL));
    const rf_cursor cursor = {.key = grant.spec.start};
    RF_EXPECT(RF_OK, rf_checkpoint(store, shop.now, &tenant, &grant.lease, &cursor, 55, NULL));
    rf_close(store);
    return grant.lease;
}

static void a_cold_open_voids_leases_and_keeps_all_else(void)
{
    rf_options o = durable();
    rf_lease lease = live_a_while(&o);
    lose_region(shop.directory);
    rf_store *store = rf_shop_enter(&shop, &o);
    rf_shard_info s = rf_shop_shard(store, &tenant, RUN, 3);
    TEST_ASSERT_FALSE(s.leased);
    TEST_ASSERT_EQUAL_UINT64(lease.fence, s.fence);
    TEST_ASSERT_EQUAL(1, s.ring_count);
    TEST_ASSERT_EQUAL(6, s.cursor.key.len);
    TEST_ASSERT_EQUAL_UINT64(8, rf_shop_capacity(store, &tenant, RUN).available);
    const rf_cursor cursor = {.key = rf_shop_key(2)};
    RF_EXPECT(RF_STALE_FENCE, rf_checkpoint(store, shop.now, &tenant, &lease, &cursor, 56, NULL));
    /* what was done is known */
    rf_result r = {0};
    RF_EXPECT(RF_OK, rf_checkpoint(store, shop.now, &tenant, &lease, &cursor, 55, &r));
    TEST_ASSERT_EQUAL(RF_REPLAYED, r.outcome);
    rf_grant grant = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(store, shop.now, &tenant, RUN, 3, 7, 0, &grant, NULL));
    TEST_ASSERT_EQUAL_UINT64((1ull << 40) + 1, grant.lease.fence);
    rf_close(store);
}

static void a_warm_open_replays_nothing(void)
{
    rf_options o = durable();
    rf_lease lease = live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).incarnation);
    const rf_cursor cursor = {.key = rf_shop_key(2)};
    RF_EXPECT(RF_OK, rf_checkpoint(store, shop.now, &tenant, &lease, &cursor, 56, NULL));
    rf_close(store);
}

/* The store is as it was made, whoever opens it; and it need not be somebody who may create. */
static void a_cold_open_takes_the_options_of_the_store(void)
{
    rf_options o = durable();
    o.max_shards = 777;
    o.max_tenant_shards = 555;
    o.max_runs = 9;
    o.claim_cooldown = 5;
    live_a_while(&o);
    lose_region(shop.directory);
    const rf_options plain = {.manual = true};
    rf_store *store;
    RF_EXPECT(RF_OK, rf_open(shop.directory, &plain, &store, &detail));
    const struct rf_header *h = rf_handle_of(store)->map->header;
    TEST_ASSERT_EQUAL_UINT64(777, h->max_shards);
    TEST_ASSERT_EQUAL_UINT64(555, h->max_tenant_shards);
    TEST_ASSERT_EQUAL_UINT64(9, h->runs.count);
    TEST_ASSERT_EQUAL_UINT64(5, h->claim_cooldown);
    TEST_ASSERT_EQUAL(RF_NOWAIT, h->durability);
    TEST_ASSERT_EQUAL_UINT64(256 * 1024, h->segment_bytes);
    TEST_ASSERT_EQUAL_UINT64(8, rf_shop_inspect(store).shards);
    rf_close(store);
}

static void many_shards_at_once_are_recovered_whole(void)
{
    rf_options o = durable();
    const rf_run_config config = {.lease_duration = 1000000};
    rf_tenant_from_name("t", &tenant);
    rf_store *store = rf_shop_enter(&shop, &o);
    rf_shop_stock(store, shop.now, &tenant, RUN, &config,
                  19000); /* far more than one record holds */
    rf_grant grant = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(store, shop.now, &tenant, RUN, 3, 7, 0, &grant, NULL));
    /* 256 children with metadata that fits no record either */
    static uint8_t keys[255][7], metadata[4096];
    rf_bytes points[255];
    static rf_child children[256];
    uint64_t ids[256];
    for (unsigned i = 0; i < 255; i++) {
        memcpy(keys[i], grant.spec.start.data, 6);
        keys[i][6] = (uint8_t)(i + 1);
        points[i] = (rf_bytes){keys[i], 7};
    }
    rf_spec spec = grant.spec;
    spec.metadata = (rf_bytes){metadata, sizeof(metadata)};
    RF_EXPECT(RF_OK, rf_plan_replace(spec, points, 255, children, &detail));
    RF_EXPECT(RF_OK, rf_split_replace(store, shop.now, &tenant, &grant.lease, children, 256, 9, ids,
                                      NULL));
    expect_verified(store);
    rf_close(store);
    lose_region(shop.directory);
    store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(19256, rf_shop_run(store, &tenant, RUN).shard_count);
    TEST_ASSERT_EQUAL(256, rf_shop_shard(store, &tenant, RUN, 3).spawned_count);
    for (unsigned i = 0; i < 256; i++) {
        rf_shard_info child = rf_shop_shard(store, &tenant, RUN, ids[i]);
        TEST_ASSERT_EQUAL(sizeof(metadata), child.spec.metadata.len);
        TEST_ASSERT_EQUAL_UINT64(3, child.parent);
    }
    expect_sound(store);
    expect_verified(store);
    rf_close(store);
}

/* --- damaged snapshots --- */

static void damage(const char *name, off_t at)
{
    uint8_t byte;
    int fd = open(in_store(name), O_RDWR | O_CLOEXEC);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, name);
    TEST_ASSERT_EQUAL(1, pread(fd, &byte, 1, at));
    byte ^= 0x40;
    TEST_ASSERT_EQUAL(1, pwrite(fd, &byte, 1, at));
    close(fd);
}

/* The names of the snapshots, newest first. */
static unsigned snapshots(char names[4][RF_SNAPSHOT_NAME])
{
    struct rf_disk *disk;
    uint64_t epochs[4];
    unsigned count;
    int fd = open(shop.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    RF_EXPECT(RF_OK, rf_disk_open(fd, 0600, (gid_t)-1, 256 * 1024, &disk, &detail));
    RF_EXPECT(RF_OK, rf_snapshot_list(disk, epochs, 4, &count, &detail));
    rf_disk_close(disk);
    close(fd);
    for (unsigned i = 0; i < count; i++) {
        rf_snapshot_name(epochs[i], names[i]);
    }
    return count;
}

static void play_with_snapshots(unsigned count)
{
    rf_history_begin(&history, &shop, 31337);
    enter_all();
    for (unsigned i = 0; i < count; i++) {
        rf_history_play(&history, 3000);
        RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail));
    }
    rf_history_play(&history, 1000);
    leave_all();
}

static void a_damaged_snapshot_costs_a_longer_replay(void)
{
    char names[4][RF_SNAPSHOT_NAME];
    struct stat st;
    play_with_snapshots(3);
    enter_all();
    char *before = rf_history_picture(history.stores[0]);
    leave_all();
    TEST_ASSERT_EQUAL_MESSAGE(2, snapshots(names), "two are kept");
    TEST_ASSERT_EQUAL(0, stat(in_store(names[0]), &st));
    off_t places[] = {0, 9, 40, 130, 1000, 4096, st.st_size / 2, st.st_size - 1};
    for (unsigned i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        damage(names[0], places[i]);
        lose_region(shop.directory);
        enter_all();
        rf_inspection seen = rf_shop_inspect(history.stores[0]);
        char older[RF_SNAPSHOT_NAME];
        rf_snapshot_name(seen.snapshot_epoch, older);
        TEST_ASSERT_EQUAL_STRING(names[1], older);
        char *copy = strdup(before);
        expect_same(copy, rf_history_picture(history.stores[0]));
        leave_all();
        damage(names[0], places[i]);
    }
    /* cut short, and grown */
    TEST_ASSERT_EQUAL(0, truncate(in_store(names[0]), st.st_size - 8));
    lose_region(shop.directory);
    enter_all();
    expect_same(strdup(before), rf_history_picture(history.stores[0]));
    leave_all();
    /* both: what is left of the log begins too late */
    damage(names[1], 4100);
    lose_region(shop.directory);
    rf_store *none;
    const rf_options o = {.manual = true};
    RF_EXPECT(RF_CORRUPT, rf_open(shop.directory, &o, &none, &detail));
    rf_shop_expect_words(RF_CORRUPT, &detail, "reach back|no snapshot");
    damage(names[1], 4100);
    enter_all();
    expect_same(before, rf_history_picture(history.stores[0]));
    leave_all();
}

static void the_only_snapshot_damaged_leaves_the_whole_log(void)
{
    char names[4][RF_SNAPSHOT_NAME];
    play_with_snapshots(1);
    enter_all();
    char *before = rf_history_picture(history.stores[0]);
    leave_all();
    TEST_ASSERT_EQUAL(1, snapshots(names));
    damage(names[0], 5000);
    lose_region(shop.directory);
    enter_all();
    expect_same(before, rf_history_picture(history.stores[0]));
    leave_all();
}

/* The older of the two good ones, and its log, stay until there are two newer good ones. */
static void a_damaged_snapshot_does_not_count_as_one_that_is_kept(void)
{
    char names[4][RF_SNAPSHOT_NAME], foreign[RF_SNAPSHOT_NAME];
    play_with_snapshots(2); /* N0, N1 */
    TEST_ASSERT_EQUAL(2, snapshots(names));
    damage(names[0], 5000);
    lose_region(shop.directory);
    rf_snapshot_name(UINT64_MAX - 5, foreign);
    int fd = open(in_store(foreign), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    TEST_ASSERT_EQUAL(7, write(fd, "foreign", 7));
    close(fd);
    enter_all();
    rf_history_play(&history, 3000);
    RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail)); /* N2 */
    rf_history_play(&history, 1000);
    leave_all(); /* which gives leases back */
    enter_all();
    char *before = rf_history_picture(history.stores[0]);
    leave_all();
    TEST_ASSERT_EQUAL(4, snapshots(names)); /* foreign, N2, N1, N0 */
    damage(names[1], 5000);
    lose_region(shop.directory);
    enter_all();
    expect_same(before, rf_history_picture(history.stores[0]));
    for (unsigned i = 0; i < 2; i++) {
        rf_history_play(&history, 1000);
        RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail));
    }
    leave_all();
    TEST_ASSERT_EQUAL_MESSAGE(3, snapshots(names), "the foreign one and two");
    lose_region(shop.directory);
    damage(names[1], 5000);
    enter_all();
    expect_sound(history.stores[0]);
    leave_all();
}

/* A log that ends before what a snapshot holds was not cut by a power cut. */
static void a_log_that_lost_what_a_snapshot_holds_is_refused(void)
{
    char names[4][RF_SNAPSHOT_NAME];
    rf_history_begin(&history, &shop, 5);
    enter_all();
    rf_history_play(&history, 2000);
    RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail));
    uint64_t position = rf_shop_inspect(history.stores[0]).log_position;
    leave_all();
    TEST_ASSERT_EQUAL(1, snapshots(names));
    /* everything from the block before the end on, in all segments */
    uint64_t data = 256 * 1024 - RF_LOG_BLOCK, from = position - RF_LOG_BLOCK;
    for (uint64_t n = from / data;; n++) {
        char name[32];
        static const uint8_t zeros[RF_LOG_BLOCK];
        snprintf(name, sizeof(name), "log.%016" PRIx64, n);
        int fd = open(in_store(name), O_RDWR | O_CLOEXEC);
        if (fd < 0) {
            break;
        }
        uint64_t at = n == from / data ? from % data : 0;
        for (; at < data; at += RF_LOG_BLOCK) {
            TEST_ASSERT_EQUAL(sizeof(zeros),
                              pwrite(fd, zeros, sizeof(zeros), (off_t)(RF_LOG_BLOCK + at)));
        }
        close(fd);
    }
    lose_region(shop.directory);
    rf_store *none;
    const rf_options o = {.manual = true};
    RF_EXPECT(RF_CORRUPT, rf_open(shop.directory, &o, &none, &detail));
    rf_shop_expect_words(RF_CORRUPT, &detail, "snapshot says");
}

/* --- formats --- */

static rf_status open_with(bool create, bool read_only);

static void overwrite(const char *name, const void *bytes, size_t len)
{
    int fd = open(in_store(name), O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL(len, pwrite(fd, bytes, len, 0));
    close(fd);
}

static void fetch(const char *name, void *bytes, size_t len)
{
    int fd = open(in_store(name), O_RDONLY | O_CLOEXEC);
    TEST_ASSERT_EQUAL(len, pread(fd, bytes, len, 0));
    close(fd);
}

/* With a hash that is right for what it says. */
static void write_store_format(const char *name, uint32_t format)
{
    struct rf_store_file file;
    blake3_hasher hasher;
    fetch(name, &file, sizeof(file));
    file.format = format;
    blake3_hasher_init_derive_key(&hasher, "ringfence/store-file/v1");
    blake3_hasher_update(&hasher, &file, offsetof(struct rf_store_file, hash));
    blake3_hasher_finalize(&hasher, file.hash, sizeof(file.hash));
    overwrite(name, &file, sizeof(file));
}

static void a_damaged_byte_in_one_copy_of_the_store_file_costs_nothing(void)
{
    rf_options o = durable();
    live_a_while(&o);
    for (off_t at = 0; at < (off_t)sizeof(struct rf_store_file); at += at == 8 ? 1 : 8) {
        const char *name = at % 16 == 8 ? "store" : "store.2";
        lose_region(shop.directory);
        damage(name, at); /* the open writes both anew */
        RF_EXPECT(RF_OK, open_with(true, false));
    }
    lose_region(shop.directory);
    damage("store", 8);
    damage("store.2", 9);
    RF_EXPECT(RF_CORRUPT, open_with(true, false));
    rf_shop_expect_words(RF_CORRUPT, &detail, "store is damaged or missing");
}

/* It may be the newer one, of a library that was about to convert the store. */
static void a_store_file_of_another_format_is_refused_and_left_alone(void)
{
    static const char *const names[] = {"store", "store.2"};
    rf_options o = durable();
    live_a_while(&o);
    lose_region(shop.directory);
    for (unsigned i = 0; i < 4; i++) {
        struct rf_store_file before, now;
        write_store_format(names[i % 2], i < 2 ? RF_STORE_FORMAT + 1 : RF_STORE_FORMAT - 1);
        fetch(names[i % 2], &before, sizeof(before));
        RF_EXPECT(RF_VERSION_MISMATCH, open_with(true, false));
        rf_shop_expect_words(RF_VERSION_MISMATCH, &detail,
                             i < 2 ? "store format 2, ringfence 0.1.0 reads 1|later one"
                                   : "never released");
        fetch(names[i % 2], &now, sizeof(now));
        TEST_ASSERT_EQUAL_MEMORY(&before, &now, sizeof(now));
        write_store_format(names[i % 2], RF_STORE_FORMAT);
    }
    RF_EXPECT(RF_OK, open_with(true, false));
}

static void a_snapshot_of_another_format_is_refused(void)
{
    char names[4][RF_SNAPSHOT_NAME];
    static uint8_t bytes[8u << 20];
    struct rf_snapshot_header header;
    struct stat st;
    play_with_snapshots(3);
    lose_region(shop.directory);
    snapshots(names);
    TEST_ASSERT_EQUAL_STRING("0.1.0", rf_format_since(RF_FORMAT_SNAPSHOT, RF_SNAPSHOT_FORMAT));
    TEST_ASSERT_NULL(rf_format_since(RF_FORMAT_SNAPSHOT, 1));
    TEST_ASSERT_EQUAL(0, stat(in_store(names[0]), &st));
    TEST_ASSERT_TRUE((size_t)st.st_size < sizeof(bytes));
    fetch(names[0], bytes, (size_t)st.st_size);
    memcpy(&header, bytes, sizeof(header));
    struct rf_snapshot_header other = header;
    other.format++;
    memset(other.hash, 0, sizeof(other.hash));
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SNAPSHOT_CONTEXT);
    blake3_hasher_update(&hasher, bytes + RF_LOG_BLOCK, (size_t)st.st_size - RF_LOG_BLOCK);
    blake3_hasher_update(&hasher, &other, sizeof(other));
    blake3_hasher_finalize(&hasher, other.hash, sizeof(other.hash));
    overwrite(names[0], &other, sizeof(other));
    RF_EXPECT(RF_VERSION_MISMATCH, open_with(true, false));
    rf_shop_expect_words(RF_VERSION_MISMATCH, &detail,
                         "snapshot format 3, ringfence 0.1.0 reads 2");
    damage(names[0], 5000); /* then it is nothing any more */
    RF_EXPECT(RF_OK, open_with(true, false));
    lose_region(shop.directory);
    damage(names[0], 5000);
    overwrite(names[0], &header, sizeof(header));
    RF_EXPECT(RF_OK, open_with(true, false));
}

/* --- the table --- */

static void exactly_one_row_fits_every_case(void)
{
    unsigned cases = 0;
    for (unsigned store = 1; store <= RF_CASE_STORE_LOST; store *= 2) {
        for (unsigned region = 1; region <= RF_CASE_REGION_FOREIGN; region *= 2) {
            for (unsigned lock = 1; lock <= RF_CASE_HELD; lock *= 2) {
                for (unsigned who = 1; who <= RF_CASE_LOOK; who *= 2) {
                    unsigned rows = 0;
                    for (size_t i = 0; i < rf_open_rows; i++) {
                        const struct rf_open_case *c = &rf_open_table[i].fits;
                        rows += (c->store & store) != 0 && (c->region & region) != 0 &&
                                (c->lock & lock) != 0 && (c->who & who) != 0;
                    }
                    TEST_ASSERT_EQUAL_MESSAGE(1, rows, "rows for one case");
                    cases++;
                }
            }
        }
    }
    printf("  %u cases, %zu rows\n", cases, rf_open_rows);
}

static rf_status open_with(bool create, bool read_only)
{
    const rf_options o = {.create = create, .read_only = read_only, .manual = !read_only};
    rf_store *store = NULL;
    rf_status status = rf_open(shop.directory, &o, &store, &detail);
    if (status == RF_OK) {
        rf_close(store);
    }
    return status;
}

static void what_can_not_be_opened_is_said_and_left_alone(void)
{
    rf_options o = durable();
    live_a_while(&o);
    lose_region(shop.directory);
    RF_EXPECT(RF_NOT_FOUND, open_with(false, true)); /* a look does not recover */
    rf_shop_expect_words(RF_NOT_FOUND, &detail, "no region now");

    /* both store files */
    TEST_ASSERT_EQUAL(0, rename(in_store("store"), in_store("aside")));
    TEST_ASSERT_EQUAL(0, rename(in_store("store.2"), in_store("aside.2")));
    RF_EXPECT(RF_CORRUPT, open_with(true, false));
    rf_shop_expect_words(RF_CORRUPT, &detail, "store is damaged or missing");
    TEST_ASSERT_EQUAL(0, rename(in_store("aside"), in_store("store")));
    TEST_ASSERT_EQUAL(0, rename(in_store("aside.2"), in_store("store.2")));

    /* a newer format of one segment's header: its hash is right by the rules of any format */
    int fd = open(in_store("log.0000000000000000"), O_RDWR | O_CLOEXEC);
    struct rf_segment_header good, newer;
    TEST_ASSERT_EQUAL(sizeof(good), pread(fd, &good, sizeof(good), 0));
    close(fd);
    newer = good;
    newer.format = 2;
    TEST_ASSERT_EQUAL(0, rename(in_store("log.0000000000000000"), in_store("aside")));
    int dir = open(shop.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct rf_disk *disk;
    RF_EXPECT(RF_OK, rf_disk_open(dir, 0600, (gid_t)-1, 256 * 1024, &disk, &detail));
    RF_EXPECT(RF_OK, rf_segment_make(disk, &newer, 1, &detail));
    rf_disk_close(disk);
    close(dir);
    RF_EXPECT(RF_VERSION_MISMATCH, open_with(true, false));
    rf_shop_expect_words(RF_VERSION_MISMATCH, &detail,
                         "log format 2, ringfence 0.1.0 reads 1: use the later one");
    TEST_ASSERT_EQUAL(0, rename(in_store("aside"), in_store("log.0000000000000000")));

    /* the log */
    for (unsigned i = 0;; i++) {
        char name[32], aside[32];
        snprintf(name, sizeof(name), "log.%016x", i);
        snprintf(aside, sizeof(aside), "aside.%016x", i);
        if (rename(in_store(name), in_store(aside)) != 0) {
            break;
        }
    }
    RF_EXPECT(RF_CORRUPT, open_with(true, false));
    rf_shop_expect_words(RF_CORRUPT, &detail, "log is gone");
    for (unsigned i = 0;; i++) {
        char name[32], aside[32];
        snprintf(name, sizeof(name), "log.%016x", i);
        snprintf(aside, sizeof(aside), "aside.%016x", i);
        if (rename(in_store(aside), in_store(name)) != 0) {
            break;
        }
    }
    RF_EXPECT(RF_OK, open_with(false, false));
}

static void a_condemned_region_is_left_by_all_before_it_is_recovered(void)
{
    rf_options o = durable();
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    atomic_store(&rf_handle_of(store)->map->header->condemned, 1 + 5);
    RF_EXPECT(RF_IO_ERROR, open_with(true, false));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "write of its log failed|open it again");
    TEST_ASSERT_EQUAL(5, detail.os_error);
    rf_close(store);
    store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(store).incarnation);
    TEST_ASSERT_EQUAL_UINT64(8, rf_shop_inspect(store).shards);
    rf_close(store);
}

static void a_directory_in_use_elsewhere_is_refused(void)
{
    rf_options o = durable();
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    lose_region(shop.directory); /* as if it were in another container's /dev/shm */
    RF_EXPECT(RF_BUSY, open_with(true, false));
    rf_shop_expect_words(RF_BUSY, &detail, "not visible here");
    rf_close(store);
}

/* --- verifying --- */

static char first_difference[192];

static void keep_first(void *context, const char *what)
{
    (void)context;
    if (first_difference[0] == 0) {
        snprintf(first_difference, sizeof(first_difference), "%s", what);
    }
}

/* Whatever is changed behind its back, it is seen; and no longer when it is changed back. */
static void verify_sees_every_kind_of_difference(void)
{
    rf_options o = durable();
    const rf_run_config config = {.lease_duration = 1000000};
    rf_grant grant = rf_shop_blank(0);
    rf_tenant_from_name("t", &tenant);
    rf_store *store = rf_shop_enter(&shop, &o);
    rf_shop_stock(store, shop.now, &tenant, RUN, &config, 100);
    RF_EXPECT(RF_OK, rf_acquire(store, shop.now, &tenant, RUN, 3, 7, RF_DETACHED, &grant, NULL));
    const rf_cursor cursor = {.key = grant.spec.start};
    RF_EXPECT(RF_OK, rf_checkpoint(store, shop.now, &tenant, &grant.lease, &cursor, 55, NULL));
    expect_verified(store);

    struct rf_map *map = rf_handle_of(store)->map;
    struct rf_runrec *run = rf_run_at(map, 0);
    uint32_t slot = rf_dir_slot(map, run, 2);
    struct rf_rec *rec = rf_rec_at(map, slot);
    struct rf_extent *extent = rf_extent_at(map, slot / RF_EXTENT_SHARDS);
    struct rf_leaf *leaf = rf_dir_leaf(map, run, 0);
    const struct {
        const char *words;
        void *at;
        uint8_t mask;
    } changes[] = {
        {"fence", &rec->body.state.fence, 1},
        {"status", &rec->body.state.status, 2},
        {"attempts", &rec->body.state.attempts, 1},
        {"owner", &rec->body.state.owner, 1},
        {"version", &rec->body.version, 4},
        {"epoch", &rec->body.epoch, 128},
        {"ring", &rec->ring.hash[0], 1},
        {"ring", &rec->ring.op[0], 1},
        {"cursor", &rec->cursor_bytes[1], 1},
        {"spec", &rec->spec_bytes[1], 1},
        {"id", &rec->shard, 64},
        {"claimable bit", &extent->claimable, 4},
        {"binding", &extent->bound[2], 1},
        {"summary of extent", &leaf->summary[0], 1},
        {"summary of leaf", &run->top[0], 1},
        {"available", &run->available, 1},
        {"counts", &run->done, 1},
        {"status", &run->body.status, 3},
        {"configuration", &run->lease_duration, 1},
        {"times", &run->body.created_at, 1},
        {"root count", &run->body.root_count, 1},
        {"ring", &run->body.ring.op[0], 1},
        {"fence floor", &map->header->fence_floor, 1},
        {"late", &extent->deadline[2], 0},
    };
    for (unsigned i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        rf_verification v;
        uint64_t kept;
        memcpy(&kept, changes[i].at, changes[i].mask == 0 ? 8 : 1);
        if (changes[i].mask == 0) {
            memset(changes[i].at, 0xFF, 8);
        } else {
            *(uint8_t *)changes[i].at ^= changes[i].mask;
        }
        first_difference[0] = 0;
        rf_status status = rf_verify(store, keep_first, NULL, &v, &detail);
        memcpy(changes[i].at, &kept, changes[i].mask == 0 ? 8 : 1);
        if (status != RF_OK) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
        }
        TEST_ASSERT_TRUE_MESSAGE(v.differences != 0, changes[i].words);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(first_difference, changes[i].words), first_difference);
    }
    /* an index entry that leads nowhere; a block that nobody refers to */
    struct rf_bucket *bucket = rf_section_at(map, &map->header->run_index, 0);
    uint64_t cell = atomic_load(&bucket->cell[7]);
    atomic_store(&bucket->cell[7], 1);
    first_difference[0] = 0;
    rf_verification v;
    RF_EXPECT(RF_OK, rf_verify(store, keep_first, NULL, &v, &detail));
    TEST_ASSERT_NOT_NULL(strstr(first_difference, "index entries"));
    atomic_store(&bucket->cell[7], cell);
    expect_verified(store);
    rf_verify(store, keep_first, NULL, &v, &detail);
    TEST_ASSERT_EQUAL_UINT64(100, v.shards);
    TEST_ASSERT_EQUAL_UINT64(1, v.runs);
    TEST_ASSERT_EQUAL_UINT64(3, v.records);
    rf_close(store);
}

/* A byte that is not padding, behind the middle of a segment. */
static off_t somewhere_in(const char *segment)
{
    uint8_t byte = 0;
    off_t at = 128 * 1024;
    int fd = open(in_store(segment), O_RDONLY | O_CLOEXEC);
    while (byte == 0) {
        TEST_ASSERT_EQUAL(1, pread(fd, &byte, 1, ++at));
    }
    close(fd);
    return at;
}

/* Damages a byte: verify tells it, in these words, and nothing when it is good again. */
static void expect_told(const char *name, off_t at)
{
    rf_verification v;
    damage(name, at);
    first_difference[0] = 0;
    rf_status status = rf_verify(history.stores[0], keep_first, NULL, &v, &detail);
    damage(name, at);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    TEST_ASSERT_TRUE_MESSAGE(v.differences != 0, name);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(first_difference, name), first_difference);
    expect_verified(history.stores[0]);
}

static void verify_looks_at_all_that_is_kept(void)
{
    char names[4][RF_SNAPSHOT_NAME], segment[32] = "";
    rf_history_begin(&history, &shop, 31337);
    enter_all();
    for (unsigned i = 0; i < 3; i++) {
        rf_history_play(&history, 8000);
        RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail));
    }
    TEST_ASSERT_EQUAL(2, snapshots(names));
    expect_verified(history.stores[0]);
    expect_told(names[0], 5000);
    expect_told(names[0], 9); /* its format */
    expect_told(names[1], 5000);
    uint64_t first = 0;
    for (; segment[0] == 0 || access(in_store(segment), F_OK) != 0; first++) {
        snprintf(segment, sizeof(segment), "log.%016" PRIx64, first);
    }
    snprintf(segment, sizeof(segment), "log.%016" PRIx64, first); /* behind the older one's epoch */
    TEST_ASSERT_TRUE_MESSAGE(rf_shop_inspect(history.stores[0]).snapshot_position >
                                 (first + 1) * (256 * 1024 - RF_LOG_BLOCK),
                             "a cold open reads it anyway");
    expect_told(segment, somewhere_in(segment));
    leave_all();
}

static off_t read_whole(const char *name, uint8_t *room, size_t size)
{
    int fd = open(in_store(name), O_RDONLY | O_CLOEXEC);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, name);
    ssize_t len = read(fd, room, size);
    close(fd);
    TEST_ASSERT_TRUE(len > 0 && (size_t)len < size);
    return len;
}

/* In a power cut the removal of segments may be kept, and that of the snapshot before them not. */
static void verify_asks_for_no_log_of_a_snapshot_that_is_not_kept(void)
{
    static uint8_t old[1 << 20];
    char names[4][RF_SNAPSHOT_NAME], oldest[RF_SNAPSHOT_NAME];
    off_t len = 0;
    rf_history_begin(&history, &shop, 31337);
    enter_all();
    for (unsigned i = 0; i < 3; i++) {
        rf_history_play(&history, 8000);
        RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail));
        if (i == 0) {
            TEST_ASSERT_EQUAL(1, snapshots(names));
            memcpy(oldest, names[0], sizeof(oldest));
            len = read_whole(oldest, old, sizeof(old));
        }
    }
    TEST_ASSERT_EQUAL(2, snapshots(names));
    int fd = open(in_store(oldest), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    TEST_ASSERT_EQUAL(len, write(fd, old, (size_t)len));
    close(fd);
    TEST_ASSERT_EQUAL(3, snapshots(names));
    expect_verified(history.stores[0]);
    rf_history_play(&history, 1000);
    RF_EXPECT(RF_OK, rf_snapshot(history.stores[0], &detail));
    TEST_ASSERT_EQUAL(2, snapshots(names));
    leave_all();
}

static void verify_refuses_a_damaged_log(void)
{
    rf_options o = durable();
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    damage("log.0000000000000000", RF_LOG_BLOCK + 200);
    rf_verification v;
    RF_EXPECT(RF_CORRUPT, rf_verify(store, tell, NULL, &v, &detail));
    rf_shop_expect_words(RF_CORRUPT, &detail, "log.0000000000000000|offset 4096|epoch 1");
    damage("log.0000000000000000", RF_LOG_BLOCK + 200);
    expect_verified(store);
    rf_close(store);
}

/* --- backups --- */

static void a_backup_of_a_live_store_is_a_store(void)
{
    char copy[96];
    rf_history_begin(&history, &shop, rf_env_number("RF_SEED", 8));
    enter_all();
    rf_history_play(&history, 8000);
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory);
    rf_status status = rf_backup(history.stores[0], copy, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    char *before = rf_history_picture(history.stores[0]);
    rf_history_play(&history, 2000); /* the live one goes on */
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_backup(history.stores[0], copy, &detail));
    rf_shop_expect_words(RF_INVALID_ARGUMENT, &detail, "not empty");
    expect_verified(history.stores[0]);
    const rf_options o = {.manual = true};
    rf_store *store;
    status = rf_open(copy, &o, &store, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    expect_same(before, rf_history_picture(store));
    expect_sound(store);
    expect_verified(store);
    rf_close(store);
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
    TEST_ASSERT_EQUAL(-1, access(copy, F_OK));
    leave_all();
}

static void a_backup_into_the_store_itself_is_refused(void)
{
    static const char *const below[] = {"", "/b", "/b/c"};
    char copy[96];
    rf_options o = durable();
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(copy, sizeof(copy), "%s%s", shop.directory, below[i]);
        bool there = access(copy, F_OK) == 0;
        RF_EXPECT(RF_INVALID_ARGUMENT, rf_backup(store, copy, &detail));
        rf_shop_expect_words(RF_INVALID_ARGUMENT, &detail, "inside of it");
        TEST_ASSERT_EQUAL(there, access(copy, F_OK) == 0);
        snprintf(copy, sizeof(copy), "%s/b", shop.directory);
        TEST_ASSERT_EQUAL(0, i == 1 ? mkdir(copy, 0700) : 0); /* for b/c */
    }
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_backup(store, copy, &detail)); /* empty, and there */
    TEST_ASSERT_EQUAL(0, rmdir(copy));
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory); /* beside it */
    RF_EXPECT(RF_OK, rf_backup(store, copy, &detail));
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
    rf_close(store);
}

static void a_backup_that_fails_leaves_nothing(void)
{
    char copy[96];
    rf_options o = durable();
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory);
    damage("log.0000000000000000", 20); /* a segment's header */
    RF_EXPECT(RF_CORRUPT, rf_backup(store, copy, &detail));
    TEST_ASSERT_EQUAL(-1, access(copy, F_OK));
    TEST_ASSERT_EQUAL(0, mkdir(copy, 0700));
    RF_EXPECT(RF_CORRUPT, rf_backup(store, copy, &detail));
    TEST_ASSERT_EQUAL_MESSAGE(0, rmdir(copy), "it was there before, and is to be there, empty");
    damage("log.0000000000000000", 20);
    RF_EXPECT(RF_OK, rf_backup(store, copy, &detail));
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
    rf_close(store);
}

/* One batch after another. */
static void go_on(rf_store *store, unsigned batches)
{
    for (unsigned i = 0; i < batches; i++) {
        rf_grant grant = rf_shop_blank(1);
        RF_EXPECT(RF_OK,
                  rf_acquire(store, shop.now, &tenant, RUN, 5, 9, RF_DETACHED, &grant, NULL));
        RF_EXPECT(RF_OK,
                  rf_release(store, shop.now, &tenant, &grant.lease, NULL, rf_new_op(store), NULL));
        RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    }
}

static void copy_file(const char *from, const char *to)
{
    static uint8_t bytes[1u << 20];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    TEST_ASSERT_TRUE_MESSAGE(in >= 0 && out >= 0, from);
    for (ssize_t n; (n = read(in, bytes, sizeof(bytes))) > 0;) {
        TEST_ASSERT_EQUAL(n, write(out, bytes, (size_t)n));
    }
    close(in);
    close(out);
}

/* Both have the same store id, and epochs of the same numbers. */
static void a_snapshot_of_a_copy_that_went_its_own_way_is_refused(void)
{
    char copy[96], names[4][RF_SNAPSHOT_NAME], from[160], foreign[RF_SNAPSHOT_NAME];
    rf_options o = durable();
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o), *other;
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory);
    RF_EXPECT(RF_OK, rf_backup(store, copy, &detail));
    const rf_options plain = {.manual = true};
    RF_EXPECT(RF_OK, rf_open(copy, &plain, &other, &detail));
    go_on(other, 10);
    RF_EXPECT(RF_OK, rf_snapshot(other, &detail));
    rf_snapshot_name(rf_shop_inspect(other).snapshot_epoch, foreign);
    rf_close(other);
    go_on(store, 100); /* past all that the copy has: its epochs begin 32 later */
    rf_close(store);
    lose_region(shop.directory);
    snprintf(from, sizeof(from), "%.96s/%.32s", copy, foreign);
    copy_file(from, in_store(foreign));
    TEST_ASSERT_EQUAL(2, snapshots(names));
    TEST_ASSERT_EQUAL_STRING(foreign, names[0]);
    RF_EXPECT(RF_CORRUPT, open_with(true, false));
    rf_shop_expect_words(RF_CORRUPT, &detail, foreign);
    rf_shop_expect_words(RF_CORRUPT, &detail, "went its own way");
    TEST_ASSERT_EQUAL(0, unlink(in_store(foreign)));
    store = rf_shop_enter(&shop, &o);
    copy_file(from, in_store(foreign));
    rf_verification v;
    first_difference[0] = 0;
    rf_status status = rf_verify(store, keep_first, NULL, &v, &detail);
    RF_EXPECT(RF_CORRUPT, status);
    TEST_ASSERT_EQUAL(0, unlink(in_store(foreign)));
    expect_verified(store);
    rf_close(store);
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
}

static void a_backup_repeats_no_fence_that_the_store_has_granted_since(void)
{
    char copy[96];
    uint64_t highest = 0;
    rf_options o = durable();
    const rf_options plain = {.manual = true};
    live_a_while(&o);
    rf_store *store = rf_shop_enter(&shop, &o);
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory);
    RF_EXPECT(RF_OK, rf_backup(store, copy, &detail));
    for (unsigned i = 0; i < 4; i++) {
        rf_grant grant = rf_shop_blank(0);
        RF_EXPECT(RF_OK,
                  rf_acquire(store, shop.now, &tenant, RUN, 6, 9, RF_DETACHED, &grant, NULL));
        TEST_ASSERT_TRUE(grant.lease.fence > highest);
        highest = grant.lease.fence;
        RF_EXPECT(RF_OK,
                  rf_release(store, shop.now, &tenant, &grant.lease, NULL, rf_new_op(store), NULL));
        rf_close(store);
        lose_region(shop.directory);
        store = rf_shop_enter(&shop, &o);
    }
    rf_close(store);
    RF_EXPECT(RF_OK, rf_open(copy, &plain, &store, &detail));
    rf_grant grant = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(store, shop.now, &tenant, RUN, 6, 9, 0, &grant, NULL));
    TEST_ASSERT_TRUE(grant.lease.fence > highest);
    rf_close(store);
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
}

/* --- a whole store, and what is put into it --- */

/* A store with two snapshots and several segments, copied to memory as it was while it was in use: its last batch is
 * not vouched for. */
struct image {
    char directory[64], scratch[64];
    char *whole, *cut;  /* what a cold open shows, with and without the last operations */
    uint64_t tail_from; /* position of these in the log */
    uint64_t segment_bytes;
};

static void copy_directory(const char *from, const char *to)
{
    DIR *listing = opendir(from);
    TEST_ASSERT_NOT_NULL(listing);
    TEST_ASSERT_EQUAL(0, mkdir(to, 0700));
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        char a[400], b[400];
        snprintf(a, sizeof(a), "%s/%s", from, e->d_name);
        snprintf(b, sizeof(b), "%s/%s", to, e->d_name);
        /* A temporary file may be gone, or have its name, before it is opened. */
        if (e->d_name[0] != '.' && strncmp(e->d_name, "tmp.", 4) != 0) {
            copy_file(a, b);
        }
    }
    closedir(listing);
}

/* NULL: refused, as damage or another's; detail says why. */
static char *cold_picture(const char *directory)
{
    const rf_options o = {.manual = true};
    rf_store *store;
    detail = (rf_detail){0};
    rf_status status = rf_open(directory, &o, &store, &detail);
    if (status != RF_OK) {
        TEST_ASSERT_TRUE_MESSAGE(status == RF_CORRUPT, rf_shop_sentence(status, &detail));
        return NULL;
    }
    char *picture = rf_history_picture(store);
    rf_close(store);
    return picture;
}

static void in_scratch(const struct image *image, const char *name, char path[128])
{
    snprintf(path, 128, "%.60s/%.40s", image->scratch, name);
}

static void begin_scratch(const struct image *image)
{
    copy_directory(image->directory, image->scratch);
}

/* Opens what is there and removes it. */
static char *judge_scratch(const struct image *image)
{
    char *picture = cold_picture(image->scratch);
    if (rf_destroy(image->scratch, NULL) != RF_OK) {
        /* its store file is damaged, or what is in it is not ours */
        DIR *listing = opendir(image->scratch);
        for (struct dirent *e; (e = readdir(listing)) != NULL;) {
            char path[400];
            snprintf(path, sizeof(path), "%s/%s", image->scratch, e->d_name);
            unlink(path);
        }
        closedir(listing);
        TEST_ASSERT_EQUAL(0, rmdir(image->scratch));
    }
    return picture;
}

/* Into which the current segment, as it is before the last part, is put aside if `old` is given. */
static void make_image(struct image *image, uint64_t seed, char *old_name, char *old_copy)
{
    char before[64];
    rf_options o = durable();
    o.segment_bytes = image->segment_bytes = 64 * 1024;
    snprintf(image->directory, sizeof(image->directory), "/dev/shm/rf-image-%d", (int)getpid());
    snprintf(image->scratch, sizeof(image->scratch), "%.40s-open", image->directory);
    snprintf(before, sizeof(before), "%.40s-before", image->directory);
    rf_tenant_from_name("t", &tenant);
    rf_history_begin(&history, &shop, seed);
    for (unsigned i = 0; i < RF_HISTORY_HANDLES; i++) {
        history.stores[i] = rf_shop_enter(&shop, &o);
    }
    rf_store *store = history.stores[0];
    for (unsigned i = 0; i < 2; i++) {
        rf_history_play(&history, 300);
        RF_EXPECT(RF_OK, rf_snapshot(store, &detail));
    }
    for (unsigned i = 0; i < 20; i++) {
        rf_history_play(&history, 20);
        RF_EXPECT(RF_OK, rf_barrier(store, &detail));
        if (i == 10 && old_name != NULL) {
            uint64_t n = rf_shop_inspect(store).log_position / (64 * 1024 - RF_LOG_BLOCK);
            snprintf(old_name, 32, "log.%016" PRIx64, n);
            copy_file(in_store(old_name), old_copy);
        }
    }
    image->tail_from = rf_shop_inspect(store).log_position;
    copy_directory(shop.directory, before);
    rf_history_play(&history, 20);
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    copy_directory(shop.directory, image->directory);
    leave_all();
    image->cut = cold_picture(before);
    TEST_ASSERT_NOT_NULL(image->cut);
    RF_EXPECT(RF_OK, rf_destroy(before, &detail));
    begin_scratch(image);
    image->whole = judge_scratch(image);
    TEST_ASSERT_NOT_NULL(image->whole);
    TEST_ASSERT_TRUE(strcmp(image->whole, image->cut) != 0);
}

static void drop_image(struct image *image)
{
    free(image->whole);
    free(image->cut);
    RF_EXPECT(RF_OK, rf_destroy(image->directory, &detail));
}

static struct {
    unsigned harmless, cut, refused;
} outcomes;

/* One byte of a file of the image is another: all is there, or the end of the log is cut where nothing vouches
 * for it, or it is refused. */
static void flip_and_judge(const struct image *image, const char *name, off_t at, uint8_t mask)
{
    char path[128], what[96];
    uint8_t byte;
    begin_scratch(image);
    in_scratch(image, name, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL(1, pread(fd, &byte, 1, at));
    byte ^= mask;
    TEST_ASSERT_EQUAL(1, pwrite(fd, &byte, 1, at));
    close(fd);
    char *picture = judge_scratch(image);
    bool is_log = strncmp(name, "log.", 4) == 0;
    uint64_t position = 0;
    if (is_log && at >= (off_t)RF_LOG_BLOCK) {
        position = strtoull(name + 4, NULL, 16) * (image->segment_bytes - RF_LOG_BLOCK) +
                   (uint64_t)at - RF_LOG_BLOCK;
    }
    snprintf(what, sizeof(what), "%s at %jd, ^%02x", name, (intmax_t)at, mask);
    if (picture == NULL) {
        TEST_ASSERT_TRUE_MESSAGE(is_log, what); /* of all else there is another copy */
        outcomes.refused++;
    } else if (strcmp(picture, image->whole) == 0) {
        outcomes.harmless++;
    } else {
        TEST_ASSERT_TRUE_MESSAGE(position >= image->tail_from, what);
        TEST_ASSERT_EQUAL_STRING_MESSAGE(image->cut, picture, what);
        outcomes.cut++;
    }
    free(picture);
}

static void every_damaged_byte_of_a_store_is_harmless_a_cut_tail_or_a_refusal(void)
{
    static uint8_t bytes[4u << 20];
    struct rf_prng prng = {.state = rf_env_number("RF_SEED", 1)};
    unsigned tries = RF_SHOP_SANITIZED ? 8 : 30;
    struct image image = {0};
    memset(&outcomes, 0, sizeof(outcomes));
    make_image(&image, prng.state, NULL, NULL);
    DIR *listing = opendir(image.directory);
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        char path[400];
        snprintf(path, sizeof(path), "%s/%s", image.directory, e->d_name);
        int fd = e->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        ssize_t len = fd < 0 ? 0 : read(fd, bytes, sizeof(bytes));
        if (fd >= 0) {
            close(fd);
        }
        for (unsigned i = 0; len > 0 && i < tries; i++) {
            /* the first bytes, of which none may be forgotten, and others; those that are zero are passed over */
            uint32_t at = i < tries / 2 ? rf_prng_below(&prng, len < 200 ? (uint32_t)len : 200)
                                        : rf_prng_below(&prng, (uint32_t)len);
            for (unsigned k = 0; bytes[at] == 0 && k < 1000; k++) {
                at = rf_prng_below(&prng, (uint32_t)len);
            }
            if (bytes[at] != 0) {
                flip_and_judge(&image, e->d_name, at, (uint8_t)(1u << rf_prng_below(&prng, 8)));
            }
        }
    }
    closedir(listing);
    /* the last batch, which nobody vouches for */
    char name[32];
    uint64_t data = image.segment_bytes - RF_LOG_BLOCK;
    snprintf(name, sizeof(name), "log.%016" PRIx64, image.tail_from / data);
    for (unsigned i = 0; i < tries; i++) {
        flip_and_judge(&image, name,
                       (off_t)(RF_LOG_BLOCK + image.tail_from % data + rf_prng_below(&prng, 160)),
                       (uint8_t)(1u << rf_prng_below(&prng, 8)));
    }
    printf("  %u harmless, %u cut, %u refused\n", outcomes.harmless, outcomes.cut,
           outcomes.refused);
    TEST_ASSERT_TRUE(outcomes.harmless > 10 && outcomes.cut > 2 && outcomes.refused > 2);
    drop_image(&image);
}

static void expect_scratch(const struct image *image, const char *words)
{
    char *picture = judge_scratch(image);
    if (words == NULL) {
        TEST_ASSERT_NOT_NULL_MESSAGE(picture, detail.where);
        TEST_ASSERT_EQUAL_STRING(image->whole, picture);
    } else {
        TEST_ASSERT_NULL(picture);
        rf_shop_expect_words(RF_CORRUPT, &detail, words);
    }
    free(picture);
}

static void what_was_there_before_or_is_anothers_is_never_read_as_the_stores(void)
{
    struct image image = {0};
    char old_name[32], old_copy[96], path[128], names[4][RF_SNAPSHOT_NAME], other[64], from[160];
    snprintf(old_copy, sizeof(old_copy), "/dev/shm/rf-old-%d", (int)getpid());
    make_image(&image, 2, old_name, old_copy);

    /* an older copy of a segment that is full since, in its place */
    begin_scratch(&image);
    in_scratch(&image, old_name, path);
    copy_file(old_copy, path);
    expect_scratch(&image, old_name);
    unlink(old_copy);

    /* another store with the same history: its segments and its snapshots, in the place of ours and beside them */
    snprintf(other, sizeof(other), "%s", image.directory);
    struct image theirs = {0};
    snprintf(image.directory, sizeof(image.directory), "%.40s-mine", other);
    TEST_ASSERT_EQUAL(0, rename(other, image.directory));
    RF_EXPECT(RF_OK, rf_destroy(shop.directory, &detail));
    TEST_ASSERT_EQUAL(0, mkdir(shop.directory, 0700));
    make_image(&theirs, 2, NULL, NULL);
    TEST_ASSERT_TRUE(snapshots(names) >= 2);

    begin_scratch(&image);
    in_scratch(&image, old_name, path);
    snprintf(from, sizeof(from), "%.60s/%.40s", theirs.directory, old_name);
    copy_file(from, path);
    expect_scratch(&image, "belongs to another store");

    begin_scratch(&image);
    in_scratch(&image, "log.0000000000000fff", path);
    copy_file(from, path);
    expect_scratch(&image, "0fff");

    begin_scratch(&image);
    for (unsigned i = 0; i < 2; i++) {
        in_scratch(&image, names[i], path);
        snprintf(from, sizeof(from), "%.60s/%.40s", theirs.directory, names[i]);
        if (i == 0 || access(path, F_OK) != 0) { /* over the newest of ours, or beside it */
            copy_file(from, path);
        }
    }
    expect_scratch(&image, NULL);
    begin_scratch(&image);
    in_scratch(&image, "snapshot.0000000000ffffff", path);
    copy_file(from, path);
    expect_scratch(&image, NULL);
    drop_image(&theirs);
    drop_image(&image);
}

/* --- a warm open that has something to do --- */

/* Works without waiting for the disk, with a handle that no guardian looks after, and waits to be killed. */
static int leave_a_tail(void *context)
{
    _Atomic uint32_t *ready = context;
    rf_options o = durable();
    const rf_run_config config = {.lease_duration = 1000000};
    rf_grant grant = rf_shop_blank(0);
    rf_store *store = rf_shop_enter(&shop, &o);
    rf_shop_stock(store, shop.now, &tenant, RUN, &config, 8);
    RF_EXPECT(RF_OK, rf_acquire(store, shop.now, &tenant, RUN, 3, 7, RF_DETACHED, &grant, NULL));
    const rf_cursor cursor = {.key = grant.spec.start};
    RF_EXPECT(RF_OK, rf_checkpoint(store, shop.now, &tenant, &grant.lease, &cursor, 55, NULL));
    atomic_store(ready, 1);
    pause();
    return 1;
}

static void what_the_killed_left_in_memory_gets_to_the_disk_after_a_warm_open(void)
{
    _Atomic uint32_t *ready = rf_hands_board(sizeof(*ready));
    rf_options o = durable();
    rf_tenant_from_name("t", &tenant);
    pid_t child = rf_hands_send(leave_a_tail, ready);
    rf_hands_until(ready, 1);
    rf_hands_kill(child);
    rf_store *store = rf_shop_enter_living(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(store).incarnation); /* nothing was replayed */
    TEST_ASSERT_EQUAL(1, rf_shop_shard(store, &tenant, RUN, 3).ring_count);
    /* Nobody asks for it: the guardian finds it. */
    struct rf_map *map = rf_handle_of(store)->map;
    uint64_t last = rf_log_last(map);
    TEST_ASSERT_TRUE(last != 0);
    for (unsigned i = 0; i < 5000 && rf_durable(store) < last; i++) {
        usleep(1000);
    }
    TEST_ASSERT_TRUE(rf_durable(store) >= last);
    char *before = rf_history_picture(store);
    char copy[96];
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory);
    copy_directory(shop.directory, copy);
    expect_same(before, cold_picture(copy));
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
    rf_close(store);
    lose_region(shop.directory);
    store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(8, rf_shop_inspect(store).shards);
    TEST_ASSERT_EQUAL(1, rf_shop_shard(store, &tenant, RUN, 3).ring_count);
    rf_close(store);
}

/* --- while others work --- */

struct crowd {
    _Atomic uint32_t running;
    _Atomic uint32_t stop;
    uint64_t seed;
};

/* A worker with a guardian, on runs that all share. */
static int work(void *context)
{
    static struct rf_history mine;
    struct crowd *c = context;
    rf_options o = durable();
    rf_history_begin(&mine, &shop, c->seed + (uint64_t)getpid());
    mine.next_shard = (uint64_t)getpid() << 20; /* a part of the key space of its own */
    mine.large = 2;
    mine.waits = 50;
    mine.stores[0] = rf_shop_enter_living(&shop, &o);
    atomic_fetch_add(&c->running, 1);
    while (atomic_load(&c->stop) == 0) {
        rf_history_play(&mine, 50);
    }
    rf_close(mine.stores[0]);
    return 0;
}

/* Workers come, work, and are killed while snapshots and backups are taken, over and over. */
static void snapshots_and_backups_under_load_are_whole(void)
{
    struct crowd *c = rf_hands_board(sizeof(*c));
    char copy[96];
    rf_options o = durable();
    o.busy_timeout = 10 * RF_SECOND;
    c->seed = rf_env_number("RF_SEED", 1);
    snprintf(copy, sizeof(copy), "%s-copy", shop.directory);
    /* Without a guardian: a process that forks has one thread. The workers' guardians do what is to be done. */
    rf_store *store = rf_shop_enter(&shop, &o);
    pid_t workers[3];
    for (unsigned i = 0; i < 3; i++) {
        workers[i] = rf_hands_send(work, c);
    }
    rf_hands_until(&c->running, 3);
    for (unsigned round = 0; round < (RF_SHOP_SANITIZED ? 5u : 12u); round++) {
        rf_status status = rf_snapshot(store, &detail);
        if (status != RF_OK) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
        }
        status = rf_backup(store, copy, &detail);
        if (status != RF_OK) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
        }
        const rf_options plain = {.manual = true};
        rf_store *other;
        status = rf_open(copy, &plain, &other, &detail);
        if (status != RF_OK) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
        }
        expect_sound(other);
        expect_verified(other);
        rf_close(other);
        RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
        if (round % 3 == 1) { /* in the middle of something */
            unsigned i = round / 3 % 3;
            rf_hands_kill(workers[i]);
            workers[i] = rf_hands_send(work, c);
        }
    }
    atomic_store(&c->stop, 1);
    for (unsigned i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(workers[i]));
    }
    expect_verified(store);
    expect_sound(store);
    char *before = rf_history_picture(store);
    rf_close(store);
    lose_region(shop.directory);
    store = rf_shop_enter(&shop, &o);
    expect_same(before, rf_history_picture(store));
    expect_verified(store);
    rf_close(store);
}

/* The guardian takes them when there is enough log, and old segments go. */
static void snapshots_come_by_themselves(void)
{
    rf_options o = durable();
    o.snapshot_bytes = 256 * 1024;
    rf_history_begin(&history, &shop, 3);
    history.stores[0] = rf_shop_enter_living(&shop, &o);
    uint64_t first = 0;
    for (unsigned i = 0; i < 2000 && rf_shop_inspect(history.stores[0]).snapshot_epoch <= first;
         i++) {
        rf_history_play(&history, 500);
        usleep(1000);
        uint64_t epoch = rf_shop_inspect(history.stores[0]).snapshot_epoch;
        first = first == 0 ? epoch : first; /* then another one */
    }
    TEST_ASSERT_TRUE(first != 0 && rf_shop_inspect(history.stores[0]).snapshot_epoch > first);
    leave_all();
    char names[4][RF_SNAPSHOT_NAME];
    TEST_ASSERT_TRUE(snapshots(names) >= 2);
    enter_all();
    expect_recovered();
    leave_all();
}

/* --- more than there ever was at once --- */

/* A run that was purged while the snapshot was taken and another one that has its room since: both are
 * replayed. Here the snapshot holds the second one, and the log behind it all of the first. */
static void a_snapshot_and_its_log_may_hold_more_than_the_store(void)
{
    const rf_run_config config = {.lease_duration = 1000000};
    rf_options o = durable();
    o.max_shards = 64;
    o.max_runs = 1;
    rf_tenant_from_name("t", &tenant);
    rf_store *store = rf_shop_enter(&shop, &o);
    struct rf_map *map = rf_handle_of(store)->map;
    for (uint64_t run = 1; run <= 6; run++) {
        rf_shop_stock(store, shop.now, &tenant, run, &config, 60);
        RF_EXPECT(RF_OK, rf_complete_run(store, shop.now, &tenant, run, 1, NULL));
        RF_EXPECT(RF_OK, rf_barrier(store, &detail));
        if (run < 6) {
            RF_EXPECT(RF_OK, rf_purge_run(store, shop.now, &tenant, run, NULL));
        }
    }
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    /* A chain that is said to be open since the beginning holds the snapshot back. */
    uint32_t slot = rf_handle_of(store)->actor.slot;
    atomic_store(&rf_slot_at(map, slot)->desc.chain, 1);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), rf_shop_inspect(store).snapshot_held_by);
    RF_EXPECT(RF_OK, rf_snapshot(store, &detail));
    atomic_store(&rf_slot_at(map, slot)->desc.chain, 0);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(store).snapshot_epoch);
    expect_verified(store);
    rf_close(store);
    lose_region(shop.directory);
    store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(60, rf_shop_inspect(store).shards);
    TEST_ASSERT_EQUAL_UINT64(60, rf_shop_run(store, &tenant, 6).shard_count);
    TEST_ASSERT_EQUAL_UINT64(64, rf_handle_of(store)->map->header->max_shards);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(2, rf_handle_of(store)->map->header->runs.count,
                                     "there was room enough");
    expect_sound(store);
    expect_verified(store);
    rf_close(store);
}

/* Hundreds of runs that come and go in one batch, where stamps say nothing about which came first. */
static void runs_that_come_and_go_in_one_batch_need_no_room(void)
{
    const rf_run_config config = {.lease_duration = 1000000};
    rf_options o = durable();
    o.max_shards = 64;
    o.max_runs = 2;
    rf_tenant_from_name("t", &tenant);
    rf_store *store = rf_shop_enter(&shop, &o), *other = rf_shop_enter(&shop, &o);
    rf_shop_stock(store, shop.now, &tenant, 1, &config, 60);
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    for (uint64_t run = 1; run <= 300; run++) {
        rf_grant grant = rf_shop_blank(0);
        for (unsigned i = 0; i < 5; i++) { /* the janitor's stamps run ahead */
            RF_EXPECT(RF_OK, rf_acquire(other, shop.now, &tenant, run, 7, 1, 0, &grant, NULL));
            RF_EXPECT(RF_OK, rf_release(other, shop.now, &tenant, &grant.lease, NULL, i, NULL));
        }
        RF_EXPECT(RF_OK, rf_complete_run(other, shop.now, &tenant, run, 1, NULL));
        RF_EXPECT(RF_OK, rf_purge_run(other, shop.now, &tenant, run, NULL));
        rf_shop_stock(store, shop.now, &tenant, run + 1, &config, 60);
    }
    expect_verified(store);
    rf_close(other);
    rf_close(store);
    lose_region(shop.directory);
    store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL_UINT64(60, rf_shop_inspect(store).shards);
    TEST_ASSERT_EQUAL_UINT64(60, rf_shop_run(store, &tenant, 301).shard_count);
    TEST_ASSERT_EQUAL_UINT64(2, rf_handle_of(store)->map->header->runs.count);
    expect_sound(store);
    expect_verified(store);
    rf_close(store);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_random_history_is_recovered_from_the_log_alone);
    RUN_TEST(a_random_history_is_recovered_from_snapshots_and_the_log_behind_them);
    RUN_TEST(twenty_cold_opens_lose_nothing_and_repeat_no_fence);
    RUN_TEST(a_cold_open_voids_leases_and_keeps_all_else);
    RUN_TEST(a_warm_open_replays_nothing);
    RUN_TEST(a_cold_open_takes_the_options_of_the_store);
    RUN_TEST(many_shards_at_once_are_recovered_whole);
    RUN_TEST(a_damaged_snapshot_costs_a_longer_replay);
    RUN_TEST(the_only_snapshot_damaged_leaves_the_whole_log);
    RUN_TEST(a_damaged_snapshot_does_not_count_as_one_that_is_kept);
    RUN_TEST(a_log_that_lost_what_a_snapshot_holds_is_refused);
    RUN_TEST(a_damaged_byte_in_one_copy_of_the_store_file_costs_nothing);
    RUN_TEST(a_store_file_of_another_format_is_refused_and_left_alone);
    RUN_TEST(a_snapshot_of_another_format_is_refused);
    RUN_TEST(exactly_one_row_fits_every_case);
    RUN_TEST(what_can_not_be_opened_is_said_and_left_alone);
    RUN_TEST(a_condemned_region_is_left_by_all_before_it_is_recovered);
    RUN_TEST(a_directory_in_use_elsewhere_is_refused);
    RUN_TEST(verify_sees_every_kind_of_difference);
    RUN_TEST(verify_looks_at_all_that_is_kept);
    RUN_TEST(verify_asks_for_no_log_of_a_snapshot_that_is_not_kept);
    RUN_TEST(verify_refuses_a_damaged_log);
    RUN_TEST(a_backup_of_a_live_store_is_a_store);
    RUN_TEST(a_backup_into_the_store_itself_is_refused);
    RUN_TEST(a_backup_that_fails_leaves_nothing);
    RUN_TEST(a_snapshot_of_a_copy_that_went_its_own_way_is_refused);
    RUN_TEST(a_backup_repeats_no_fence_that_the_store_has_granted_since);
    RUN_TEST(every_damaged_byte_of_a_store_is_harmless_a_cut_tail_or_a_refusal);
    RUN_TEST(what_was_there_before_or_is_anothers_is_never_read_as_the_stores);
    RUN_TEST(what_the_killed_left_in_memory_gets_to_the_disk_after_a_warm_open);
    RUN_TEST(snapshots_and_backups_under_load_are_whole);
    RUN_TEST(snapshots_come_by_themselves);
    RUN_TEST(runs_that_come_and_go_in_one_batch_need_no_room);
    RUN_TEST(a_snapshot_and_its_log_may_hold_more_than_the_store);
    return UNITY_END();
}
