/* A short storm: `make storm` is the long one. RF_SEED chooses who is killed, and when it is tried. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include <unity.h>

#include "prng.h"
#include "shop.h"
#include "storm.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static void workers_killed_stopped_and_replaced_lose_nothing_and_do_nothing_twice(void)
{
    char directory[64];
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside a thread");
    }
    snprintf(directory, sizeof(directory), "/tmp/rf-test-storm-%d", (int)getpid());
    const struct rf_storm storm = {.directory = directory,
                                   .workers = 5,
                                   .kills = 200,
                                   .seconds = 5,
                                   .kills_pause = 30,
                                   .seed = rf_env_number("RF_SEED", 1)};
    struct rf_storm_report r;
    const char *why = rf_storm_play(&storm, &r);
    printf("  seed %" PRIu64 ": %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64 " pauses, %" PRIu64
           " cold opens, %" PRIu64 " items\n",
           storm.seed, r.kills, r.stops, r.pauses, r.cold, r.items);
    if (why != NULL) {
        TEST_FAIL_MESSAGE(why);
    }
    TEST_ASSERT_NOT_EQUAL(0, r.kills);
    TEST_ASSERT_NOT_EQUAL(0, r.items);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(workers_killed_stopped_and_replaced_lose_nothing_and_do_nothing_twice);
    return UNITY_END();
}
