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

#include "fsck.h"
#include "handle.h"
#include "history.h"
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

__attribute__((unused)) static const char *in_store(const char *name)
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

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_random_history_is_recovered_from_the_log_alone);
    RUN_TEST(a_random_history_is_recovered_from_snapshots_and_the_log_behind_them);
    return UNITY_END();
}
