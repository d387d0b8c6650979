/*
 * Short storms and power cuts: `make power` is the long one. RF_SEED chooses who is killed, and the moments of
 * the cuts. And that the same judge finds a library out that leaves out its syncs.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <unity.h>

#include "power.h"
#include "prng.h"
#include "shop.h"
#include "simdisk.h"

static struct rf_power_report report;
static char directory[64];

void setUp(void)
{
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside a thread");
    }
}

void tearDown(void)
{
}

static const char *play(uint64_t images, unsigned lie)
{
    snprintf(directory, sizeof(directory), "/tmp/rf-test-power-%d", (int)getpid());
    const struct rf_power power = {.directory = directory,
                                   .workers = 6,
                                   .images = images,
                                   .images_storm = images,
                                   .storm_seconds = 1,
                                   .jobs = 2,
                                   .seed = rf_env_number("RF_SEED", 1) + lie,
                                   .disbelieve = lie};
    return rf_power_play(&power, &report);
}

static void nothing_acknowledged_in_a_storm_is_lost_in_a_power_cut(void)
{
    const char *why = play(60, 0);
    printf("  %" PRIu64 " kills, %" PRIu64 " events, %" PRIu64 " images, %" PRIu64
           " items, %" PRIu64 " checkpoints, %" PRIu64 " fences\n",
           report.kills, report.events, report.images, report.acks, report.steps, report.fences);
    if (why != NULL) {
        TEST_FAIL_MESSAGE(why);
    }
    TEST_ASSERT_EQUAL(60, report.images);
    TEST_ASSERT_NOT_EQUAL(0, report.kills);
    TEST_ASSERT_NOT_EQUAL(0, report.unsettled);
    TEST_ASSERT_NOT_EQUAL(0, report.acks);
    TEST_ASSERT_NOT_EQUAL(0, report.steps);
    TEST_ASSERT_NOT_EQUAL(0, report.fences);
}

static void expect_found_out(unsigned lie)
{
    const char *why = play(60, lie);
    TEST_ASSERT_NOT_NULL(why);
    printf("  %s\n", why);
}

static void writes_that_are_not_durable_would_be_found_out(void)
{
    expect_found_out(RF_SIMDISK_BIT(RF_DISK_WRITE_END));
}

static void a_directory_that_is_not_synced_would_be_found_out(void)
{
    expect_found_out(RF_SIMDISK_BIT(RF_DISK_SYNC_DIR));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(nothing_acknowledged_in_a_storm_is_lost_in_a_power_cut);
    RUN_TEST(writes_that_are_not_durable_would_be_found_out);
    RUN_TEST(a_directory_that_is_not_synced_would_be_found_out);
    return UNITY_END();
}
