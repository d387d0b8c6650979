/* How far a run is. */
#include "progress.h"

#include <unity.h>

#include "box.h"

static rf_progress progress;
static uint8_t watermark[RF_KEY_MAX];

void setUp(void)
{
    memset(&progress, 0xA5, sizeof(progress));
    rf_progress_begin(&progress);
}

void tearDown(void)
{
}

static void add(rf_shard_status status, uint64_t deadline, rf_cursor cursor)
{
    struct rf_shard_state state = rf_shard_new_root(RF_COMPLETED);
    state.status = (uint8_t)status;
    state.deadline = deadline;
    state.flags = deadline != 0 ? RF_SHARD_LEASED : 0;
    rf_progress_add(&progress, &state, &cursor, 100, watermark);
}

static void every_shard_is_counted_in_one_status(void)
{
    rf_cursor none = {0};
    for (int i = 0; i < 10; i++) {
        add(i < 4   ? RF_SHARD_ACTIVE
            : i < 7 ? RF_SHARD_DONE
            : i < 9 ? RF_SHARD_SPLIT
                    : RF_SHARD_PARKED,
            0, none);
    }
    rf_progress_end(&progress);
    TEST_ASSERT_EQUAL_UINT64(10, progress.total);
    TEST_ASSERT_EQUAL_UINT64(4, progress.active);
    TEST_ASSERT_EQUAL_UINT64(3, progress.done);
    TEST_ASSERT_EQUAL_UINT64(2, progress.split);
    TEST_ASSERT_EQUAL_UINT64(1, progress.parked);
    TEST_ASSERT_EQUAL_UINT64(0, progress.leased);
    TEST_ASSERT_EQUAL(RF_STILL_ACTIVE, progress.evaluation);
    TEST_ASSERT_FALSE(progress.has_watermark);
}

static void a_lease_counts_until_its_deadline(void)
{
    rf_cursor none = {0};
    add(RF_SHARD_ACTIVE, 101, none);
    add(RF_SHARD_ACTIVE, 100, none);
    add(RF_SHARD_ACTIVE, 99, none);
    add(RF_SHARD_ACTIVE, 0, none);
    TEST_ASSERT_EQUAL_UINT64(1, progress.leased);
}

static void the_watermark_is_the_smallest_key_of_the_active_shards_that_have_one(void)
{
    static const char *const keys[] = {"m", NULL, "zz", "c", "d", "cc"};
    for (size_t i = 0; i < 6; i++) {
        add(RF_SHARD_ACTIVE, 0, rf_cursor_at(keys[i]));
    }
    add(RF_SHARD_DONE, 0, rf_cursor_at("a"));
    add(RF_SHARD_SPLIT, 0, rf_cursor_at("a"));
    add(RF_SHARD_PARKED, 0, rf_cursor_at("a"));
    TEST_ASSERT_TRUE(progress.has_watermark);
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("c"), rf_bytes_of(watermark, progress.watermark_len)));
}

static void an_empty_key_and_a_key_of_4096_bytes_can_be_the_watermark(void)
{
    static uint8_t key[RF_KEY_MAX];
    memset(key, 0xFF, sizeof(key));
    add(RF_SHARD_ACTIVE, 0, (rf_cursor){.key = rf_bytes_of(key, sizeof(key))});
    TEST_ASSERT_EQUAL_size_t(RF_KEY_MAX, progress.watermark_len);
    TEST_ASSERT_EQUAL_MEMORY(key, watermark, sizeof(key));
    add(RF_SHARD_ACTIVE, 0, rf_cursor_at(""));
    TEST_ASSERT_TRUE(progress.has_watermark);
    TEST_ASSERT_EQUAL_size_t(0, progress.watermark_len);
    add(RF_SHARD_ACTIVE, 0, rf_cursor_at("a"));
    TEST_ASSERT_EQUAL_size_t(0, progress.watermark_len);
}

static rf_evaluation evaluate(int active, int done, int split, int parked)
{
    rf_cursor none = {0};
    rf_progress_begin(&progress);
    const int counts[4] = {active, done, split, parked};
    for (unsigned status = 0; status < 4; status++) {
        for (int i = 0; i < counts[status]; i++) {
            add((rf_shard_status)status, 0, none);
        }
    }
    rf_progress_end(&progress);
    return progress.evaluation;
}

static void the_evaluation_looks_at_active_then_parked(void)
{
    for (int done = 0; done < 2; done++) {
        for (int split = 0; split < 2; split++) {
            TEST_ASSERT_EQUAL(RF_STILL_ACTIVE, evaluate(1, done, split, 0));
            TEST_ASSERT_EQUAL(RF_STILL_ACTIVE, evaluate(1, done, split, 1));
            TEST_ASSERT_EQUAL(RF_HAS_FAILURES, evaluate(0, done, split, 1));
            TEST_ASSERT_EQUAL(done + split == 0 ? RF_STILL_ACTIVE : RF_ALL_DONE,
                              evaluate(0, done, split, 0));
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_shard_is_counted_in_one_status);
    RUN_TEST(a_lease_counts_until_its_deadline);
    RUN_TEST(the_watermark_is_the_smallest_key_of_the_active_shards_that_have_one);
    RUN_TEST(an_empty_key_and_a_key_of_4096_bytes_can_be_the_watermark);
    RUN_TEST(the_evaluation_looks_at_active_then_parked);
    return UNITY_END();
}
