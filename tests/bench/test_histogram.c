/* The histogram of the benchmarks: how far off it may be, and that adding up loses nothing. */
#include "histogram.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "unity.h"

#define VALUES 20000u

static struct histogram one, two, both;
static uint64_t values[VALUES];

void setUp(void)
{
    memset(&one, 0, sizeof(one));
    memset(&two, 0, sizeof(two));
    memset(&both, 0, sizeof(both));
}

void tearDown(void)
{
}

/* Every magnitude is equally likely. */
static uint64_t next_value(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = *state >> 58;
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> bits;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void small_values_are_exact(void)
{
    for (uint64_t v = 0; v < 256; v++) {
        memset(&one, 0, sizeof(one));
        histogram_add(&one, v);
        histogram_add(&one, UINT64_MAX);
        TEST_ASSERT_EQUAL_UINT64(v, histogram_quantile(&one, 0.5));
    }
}

static void buckets_rise_by_one_and_cover_every_value(void)
{
    TEST_ASSERT_EQUAL_UINT32(HISTOGRAM_BUCKETS - 1, histogram_bucket(UINT64_MAX));
    for (uint32_t bit = 1; bit < 64; bit++) {
        for (uint64_t part = 0; part < 128; part++) {
            uint64_t v = (1ull << bit) + (bit > 7 ? part << (bit - 7) : part % (1ull << bit));
            uint32_t below = histogram_bucket(v - 1), at = histogram_bucket(v);
            TEST_ASSERT_TRUE_MESSAGE(at == below + 1, "each of these begins a bucket");
        }
    }
}

static void quantiles_are_never_below_and_at_most_a_128th_above(void)
{
    static const double parts[] = {0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};
    uint64_t state = 1, wide = 0;
    for (uint32_t i = 0; i < VALUES; i++) {
        values[i] = next_value(&state);
        histogram_add(&one, values[i]);
    }
    qsort(values, VALUES, sizeof(values[0]), by_value);
    for (uint32_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        uint32_t rank = (uint32_t)ceil(parts[i] * VALUES);
        uint64_t exact = values[rank == 0 ? 0 : rank - 1];
        uint64_t got = histogram_quantile(&one, parts[i]);
        TEST_ASSERT_TRUE(got >= exact);
        TEST_ASSERT_TRUE(got - exact <= exact / 128);
        wide += got != exact;
    }
    TEST_ASSERT_TRUE_MESSAGE(wide > 0, "the values were too small to show anything");
    TEST_ASSERT_EQUAL_UINT64(values[VALUES - 1], histogram_quantile(&one, 1));
    TEST_ASSERT_EQUAL_UINT64(values[0], one.least);
}

static void merging_is_the_same_as_adding_to_one(void)
{
    uint64_t state = 7;
    for (uint32_t i = 0; i < VALUES; i++) {
        uint64_t v = next_value(&state);
        histogram_add(i % 3 == 0 ? &one : &two, v);
        histogram_add(&both, v);
    }
    histogram_merge(&one, &two);
    TEST_ASSERT_EQUAL_MEMORY(&both, &one, sizeof(one));
}

static void merging_with_an_empty_one_changes_nothing(void)
{
    histogram_add(&one, 1000);
    histogram_add(&both, 1000);
    histogram_merge(&one, &two);
    TEST_ASSERT_EQUAL_MEMORY(&both, &one, sizeof(one));
    histogram_merge(&two, &one);
    TEST_ASSERT_EQUAL_MEMORY(&both, &two, sizeof(two));
}

static void an_empty_one_says_nothing(void)
{
    TEST_ASSERT_EQUAL_UINT64(0, histogram_quantile(&one, 0.5));
    TEST_ASSERT_EQUAL_UINT64(0, one.count);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(small_values_are_exact);
    RUN_TEST(buckets_rise_by_one_and_cover_every_value);
    RUN_TEST(quantiles_are_never_below_and_at_most_a_128th_above);
    RUN_TEST(merging_is_the_same_as_adding_to_one);
    RUN_TEST(merging_with_an_empty_one_changes_nothing);
    RUN_TEST(an_empty_one_says_nothing);
    return UNITY_END();
}
