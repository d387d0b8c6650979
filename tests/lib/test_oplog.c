/* The ring of remembered operations. */
#include "oplog.h"

#include <string.h>
#include <unity.h>

static uint64_t ops[RF_SHARD_RING];

void setUp(void)
{
    for (uint32_t i = 0; i < RF_SHARD_RING; i++) {
        ops[i] = 100 + i;
    }
}

void tearDown(void)
{
}

static void every_used_slot_is_found_and_no_other(void)
{
    for (uint32_t count = 0; count <= RF_SHARD_RING; count++) {
        for (uint32_t i = 0; i < RF_SHARD_RING; i++) {
            int expected = i < count ? (int)i : RF_RING_MISS;
            TEST_ASSERT_EQUAL_INT(expected, rf_ring_find(ops, count, RF_SHARD_RING, 100 + i));
        }
        TEST_ASSERT_EQUAL_INT(RF_RING_MISS, rf_ring_find(ops, count, RF_SHARD_RING, 99));
    }
    for (uint32_t count = 0; count <= RF_RUN_RING; count++) {
        for (uint32_t i = 0; i < RF_RUN_RING; i++) {
            int expected = i < count ? (int)i : RF_RING_MISS;
            TEST_ASSERT_EQUAL_INT(expected, rf_ring_find(ops, count, RF_RUN_RING, 100 + i));
        }
    }
}

static void op_id_0_and_the_largest_are_ids_like_any_other(void)
{
    memset(ops, 0, sizeof(ops));
    TEST_ASSERT_EQUAL_INT(RF_RING_MISS, rf_ring_find(ops, 0, RF_SHARD_RING, 0));
    TEST_ASSERT_EQUAL_INT(0, rf_ring_find(ops, 1, RF_SHARD_RING, 0));
    ops[15] = UINT64_MAX;
    TEST_ASSERT_EQUAL_INT(15, rf_ring_find(ops, RF_SHARD_RING, RF_SHARD_RING, UINT64_MAX));
}

static void the_newest_is_the_one_before_next(void)
{
    TEST_ASSERT_EQUAL_UINT32(0, rf_ring_newest(1, RF_SHARD_RING));
    TEST_ASSERT_EQUAL_UINT32(15, rf_ring_newest(0, RF_SHARD_RING));
    TEST_ASSERT_EQUAL_UINT32(14, rf_ring_newest(15, RF_SHARD_RING));
    TEST_ASSERT_EQUAL_UINT32(7, rf_ring_newest(0, RF_RUN_RING));
}

static void a_ring_that_is_not_full_is_filled_from_slot_0(void)
{
    for (uint32_t count = 0; count <= RF_SHARD_RING + 1; count++) {
        for (uint32_t next = 0; next <= RF_SHARD_RING + 1; next++) {
            bool ok = count < RF_SHARD_RING    ? next == count
                      : count == RF_SHARD_RING ? next < RF_SHARD_RING
                                               : false;
            TEST_ASSERT_EQUAL(ok, rf_ring_shape_ok(count, next, RF_SHARD_RING));
        }
    }
}

static void a_repeated_id_is_noticed_wherever_it_stands(void)
{
    TEST_ASSERT_TRUE(rf_ring_ids_unique(ops, RF_SHARD_RING));
    for (uint32_t i = 0; i < RF_SHARD_RING; i++) {
        for (uint32_t j = 0; j < i; j++) {
            uint64_t kept = ops[i];
            ops[i] = ops[j];
            TEST_ASSERT_FALSE(rf_ring_ids_unique(ops, RF_SHARD_RING));
            TEST_ASSERT_TRUE_MESSAGE(rf_ring_ids_unique(ops, i), "only the used slots count");
            ops[i] = kept;
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_used_slot_is_found_and_no_other);
    RUN_TEST(op_id_0_and_the_largest_are_ids_like_any_other);
    RUN_TEST(the_newest_is_the_one_before_next);
    RUN_TEST(a_ring_that_is_not_full_is_filled_from_slot_0);
    RUN_TEST(a_repeated_id_is_noticed_wherever_it_stands);
    return UNITY_END();
}
