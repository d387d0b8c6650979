/* A manifest: sorting, and the checks of a registration as a whole. */
#include "manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <unity.h>

#include "box.h"
#include "prng.h"

static rf_detail detail;
static struct rf_env env;
static const uint8_t zeros[RF_TOKEN_MAX + 1];

void setUp(void)
{
    memset(&detail, 0, sizeof(detail));
    env = (struct rf_env){.tenant_limit = UINT64_MAX, .total_limit = UINT64_MAX};
}

void tearDown(void)
{
}

static rf_status check_beside(const rf_shard_input *shards, uint32_t count, const rf_spec *existing,
                              uint32_t existing_count)
{
    static uint32_t by_id[64], by_start[64];
    TEST_ASSERT_TRUE(count <= 32);
    memset(&detail, 0, sizeof(detail));
    rf_manifest_order_by_id(shards, count, by_id);
    struct rf_manifest manifest = {
        .shards = shards,
        .count = count,
        .by_id = by_id,
        .by_start = by_start,
        .existing = existing,
        .existing_count = existing_count,
    };
    return rf_manifest_check(&manifest, &env, &detail);
}

static rf_status check(const rf_shard_input *shards, uint32_t count)
{
    return check_beside(shards, count, NULL, 0);
}

static void expect_at(rf_status status, uint64_t index, uint64_t shard, rf_status got)
{
    TEST_ASSERT_EQUAL_STRING(rf_status_name(status), rf_status_name(got));
    TEST_ASSERT_TRUE(detail.has_index);
    TEST_ASSERT_EQUAL_UINT64(index, detail.index);
    TEST_ASSERT_EQUAL_UINT64(shard, detail.shard);
}

static void touching_ranges_and_gaps_are_fine_in_any_order(void)
{
    rf_shard_input shards[4] = {rf_input_of(4, "x", "z"), rf_input_of(3, "c", "d"),
                                rf_input_of(2, "a", "c"), rf_input_of(1, "m", "p")};
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 4));
}

static void an_empty_manifest_is_refused(void)
{
    TEST_ASSERT_EQUAL(RF_MANIFEST_EMPTY, check(NULL, 0));
}

static void a_duplicate_id_is_refused_at_its_second_place(void)
{
    rf_shard_input shards[3] = {rf_input_of(9, "a", "b"), rf_input_of(5, "c", "d"),
                                rf_input_of(9, "e", "f")};
    expect_at(RF_DUPLICATE_SHARD, 2, 9, check(shards, 3));
}

static bool is_five(void *context, uint64_t shard)
{
    (*(int *)context)++;
    return shard == 5;
}

static void an_id_that_exists_in_the_run_is_a_duplicate(void)
{
    rf_shard_input shards[2] = {rf_input_of(9, "a", "b"), rf_input_of(5, "c", "d")};
    int asked = 0;
    env.exists = is_five;
    env.context = &asked;
    expect_at(RF_DUPLICATE_SHARD, 1, 5, check(shards, 2));
    TEST_ASSERT_EQUAL_INT(1, asked);
    shards[1].shard = 6;
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 2));
}

static void a_root_shard_needs_a_start_and_an_end(void)
{
    rf_shard_input shards[2] = {rf_input_of(1, "a", "b"), rf_input_of(2, "c", "")};
    expect_at(RF_UNBOUNDED_RANGE, 1, 2, check(shards, 2));
    shards[1] = rf_input_of(2, NULL, "d");
    expect_at(RF_UNBOUNDED_RANGE, 1, 2, check(shards, 2));
}

static void inverted_and_empty_ranges_are_refused(void)
{
    rf_shard_input shards[2] = {rf_input_of(1, "a", "b"), rf_input_of(2, "d", "c")};
    expect_at(RF_RANGE_INVERTED, 1, 2, check(shards, 2));
    shards[1] = rf_input_of(2, "d", "d");
    expect_at(RF_RANGE_INVERTED, 1, 2, check(shards, 2));
}

static void sizes_are_checked_at_their_limits(void)
{
    static uint8_t key[RF_KEY_MAX + 1];
    memset(key, 'b', sizeof(key));
    rf_shard_input shards[2] = {rf_input_of(1, "a", "b"), rf_input_of(2, NULL, "c")};
    shards[1].spec.start = rf_bytes_of(key, 4097);
    expect_at(RF_KEY_TOO_LARGE, 1, 2, check(shards, 2));
    TEST_ASSERT_EQUAL_UINT64(4097, detail.size);
    shards[1].spec.start = rf_bytes_of(key, 4096);
    shards[1].spec.metadata = rf_bytes_of(zeros, 16385);
    expect_at(RF_METADATA_TOO_LARGE, 1, 2, check(shards, 2));
    TEST_ASSERT_EQUAL_UINT64(16385, detail.size);
    shards[1].spec.metadata = rf_bytes_of(zeros, 16384);
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 2));
    key[0] = 'c';
    shards[1].spec.end = rf_bytes_of(key, 4097);
    shards[1].spec.start = rf_text("b");
    expect_at(RF_KEY_TOO_LARGE, 1, 2, check(shards, 2));
}

static void overlaps_are_refused_at_the_later_starting_shard(void)
{
    rf_shard_input shards[3] = {rf_input_of(1, "m", "p"), rf_input_of(2, "a", "mm"),
                                rf_input_of(3, "x", "z")};
    expect_at(RF_OVERLAPPING_RANGES, 0, 1, check(shards, 3));
    shards[1] = rf_input_of(2, "m", "p"); /* the same */
    expect_at(RF_OVERLAPPING_RANGES, 1, 2, check(shards, 3));
    shards[1] = rf_input_of(2, "n", "o"); /* inside */
    expect_at(RF_OVERLAPPING_RANGES, 1, 2, check(shards, 3));
    shards[1] = rf_input_of(2, "a", "zz"); /* around */
    expect_at(RF_OVERLAPPING_RANGES, 0, 1, check(shards, 3));
}

static void cursors_are_absent_or_inside_their_shard(void)
{
    rf_shard_input shards[2] = {rf_input_of(1, "a", "b"), rf_input_of(2, "b", "c")};
    shards[1].cursor = rf_cursor_at("c");
    expect_at(RF_CURSOR_OUT_OF_BOUNDS, 1, 2, check(shards, 2));
    shards[1].cursor = rf_cursor_at("a");
    expect_at(RF_CURSOR_OUT_OF_BOUNDS, 1, 2, check(shards, 2));
    shards[1].cursor = rf_cursor_at("");
    expect_at(RF_CURSOR_OUT_OF_BOUNDS, 1, 2, check(shards, 2));
    shards[1].cursor = rf_cursor_with(NULL, "token");
    expect_at(RF_MISSING_KEY, 1, 2, check(shards, 2));
    shards[1].cursor = rf_cursor_with(NULL, "");
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 2));
    static uint8_t key[RF_KEY_MAX + 1];
    memset(key, 'b', sizeof(key));
    shards[1].cursor.key = rf_bytes_of(key, 4097);
    expect_at(RF_KEY_TOO_LARGE, 1, 2, check(shards, 2));
    shards[1].cursor.key = rf_bytes_of(key, 4096);
    shards[1].cursor.token = rf_bytes_of(zeros, 16385);
    expect_at(RF_TOKEN_TOO_LARGE, 1, 2, check(shards, 2));
    TEST_ASSERT_EQUAL_UINT64(16385, detail.size);
    shards[1].cursor.token = rf_bytes_of(zeros, 16384);
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 2));
}

static void a_root_id_with_bit_63_is_refused(void)
{
    rf_shard_input shards[2] = {rf_input_of(RF_DERIVED_BIT | 1, "b", "c"),
                                rf_input_of(1, "a", "b")};
    expect_at(RF_DERIVED_ROOT_ID, 0, RF_DERIVED_BIT | 1, check(shards, 2));
    shards[0].shard = RF_DERIVED_BIT - 1;
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 2));
    shards[0].shard = 0;
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 2));
}

static void limits_are_reached_and_not_passed(void)
{
    rf_shard_input shards[3] = {rf_input_of(1, "a", "b"), rf_input_of(2, "b", "c"),
                                rf_input_of(3, "c", "d")};
    env.tenant_limit = 10;
    env.total_limit = 20;
    env.tenant_shards = 7;
    env.total_shards = 17;
    TEST_ASSERT_EQUAL(RF_OK, check(shards, 3));
    env.total_shards = 18;
    TEST_ASSERT_EQUAL(RF_SHARD_LIMIT, check(shards, 3));
    TEST_ASSERT_EQUAL_UINT64(20, detail.limit);
    env.tenant_shards = 8;
    TEST_ASSERT_EQUAL(RF_SHARD_LIMIT, check(shards, 3));
    TEST_ASSERT_EQUAL_UINT64(11, detail.size);
    TEST_ASSERT_EQUAL_UINT64(10, detail.limit);
}

static void added_ranges_may_touch_existing_ones_and_fill_gaps(void)
{
    rf_spec existing[3] = {rf_spec_of("c", "f"), rf_spec_of("f", "h"), rf_spec_of("m", "p")};
    rf_shard_input shards[4] = {rf_input_of(1, "h", "m"), rf_input_of(2, "a", "c"),
                                rf_input_of(3, "x", "z"), rf_input_of(4, "p", "q")};
    TEST_ASSERT_EQUAL(RF_OK, check_beside(shards, 4, existing, 3));
}

static void added_ranges_must_not_overlap_existing_ones(void)
{
    rf_spec existing[3] = {rf_spec_of("c", "f"), rf_spec_of("f", "h"), rf_spec_of("m", "p")};
    static const char *const wrong[][2] = {
        {"a", "cc"}, {"c", "f"}, {"d", "e"}, {"e", "g"}, {"g", "i"},
        {"a", "z"},  {"h", "n"}, {"n", "o"}, {"o", "z"}, {"m", "p"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rf_shard_input shards[2] = {rf_input_of(7, wrong[i][0], wrong[i][1]),
                                    rf_input_of(1, "A", "B")};
        expect_at(RF_OVERLAPPING_RANGES, 0, 7, check_beside(shards, 2, existing, 3));
    }
    rf_spec open[2] = {rf_spec_of("", "c"), rf_spec_of("m", "")};
    rf_shard_input low = rf_input_of(1, "b", "d"), high = rf_input_of(2, "z", "zz"),
                   between = rf_input_of(3, "c", "m");
    expect_at(RF_OVERLAPPING_RANGES, 0, 1, check_beside(&low, 1, open, 2));
    expect_at(RF_OVERLAPPING_RANGES, 0, 2, check_beside(&high, 1, open, 2));
    TEST_ASSERT_EQUAL(RF_OK, check_beside(&between, 1, open, 2));
}

static bool overlap(rf_spec a, rf_spec b)
{
    return rf_key_compare(a.start, b.end) < 0 && rf_key_compare(b.start, a.end) < 0;
}

/* Against every pair, one by one. */
static void overlaps_of_random_manifests_are_found_exactly(void)
{
    struct rf_prng prng = {.state = 31};
    static char text[128][2];
    for (int i = 0; i < 127; i++) {
        text[i][0] = (char)(i + 1);
    }
    uint32_t found = 0;
    for (int round = 0; round < 20000; round++) {
        rf_shard_input shards[6];
        rf_spec existing[6];
        uint32_t count = 1 + rf_prng_below(&prng, 6), existing_count = rf_prng_below(&prng, 5),
                 at = 0;
        for (uint32_t i = 0; i < existing_count; i++) {
            at += rf_prng_below(&prng, 6);
            uint32_t end = at + 1 + rf_prng_below(&prng, 6);
            existing[i] = rf_spec_of(text[at], text[end]);
            at = end;
        }
        for (uint32_t i = 0; i < count; i++) {
            uint32_t start = rf_prng_below(&prng, 60);
            shards[i] =
                rf_input_of(100 - i, text[start], text[start + 1 + rf_prng_below(&prng, 6)]);
        }
        bool expected = false;
        for (uint32_t i = 0; i < count; i++) {
            for (uint32_t j = 0; j < i; j++) {
                expected = expected || overlap(shards[i].spec, shards[j].spec);
            }
            for (uint32_t j = 0; j < existing_count; j++) {
                expected = expected || overlap(shards[i].spec, existing[j]);
            }
        }
        found += expected;
        TEST_ASSERT_EQUAL(expected ? RF_OVERLAPPING_RANGES : RF_OK,
                          check_beside(shards, count, existing, existing_count));
    }
    TEST_ASSERT_TRUE(found > 2000 && found < 18000);
}

static void checks_work_without_a_detail(void)
{
    rf_shard_input shard = rf_input_of(1, "b", "a");
    uint32_t by_id[2], by_start[2];
    rf_manifest_order_by_id(&shard, 1, by_id);
    struct rf_manifest manifest = {
        .shards = &shard, .count = 1, .by_id = by_id, .by_start = by_start};
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED, rf_manifest_check(&manifest, &env, NULL));
}

static void sorting_is_right_and_stable_at_every_size(void)
{
    enum { MAX = 300 };
    static rf_shard_input shards[MAX];
    static uint32_t order[2 * MAX];
    static char text[26][2];
    struct rf_prng prng = {.state = 32};
    for (int i = 0; i < 26; i++) {
        text[i][0] = (char)('a' + i);
    }
    for (uint32_t n = 0; n <= MAX; n = n < 40 ? n + 1 : n + 13) {
        for (int sorted = 0; sorted < 2; sorted++) {
            for (uint32_t i = 0; i < n; i++) {
                uint32_t value = sorted ? i * 26 / n : rf_prng_below(&prng, 26);
                shards[i] = rf_input_of(value, text[value], "zz");
            }
            for (int by_start = 0; by_start < 2; by_start++) {
                memset(order, 0xFF, sizeof(order));
                if (by_start) {
                    rf_manifest_order_by_start(shards, n, order);
                } else {
                    rf_manifest_order_by_id(shards, n, order);
                }
                bool seen[MAX] = {false};
                for (uint32_t i = 0; i < n; i++) {
                    TEST_ASSERT_TRUE(order[i] < n && !seen[order[i]]);
                    seen[order[i]] = true;
                    if (i != 0) {
                        uint64_t a = shards[order[i - 1]].shard, b = shards[order[i]].shard;
                        TEST_ASSERT_TRUE(a < b || (a == b && order[i - 1] < order[i]));
                    }
                }
            }
        }
    }
}

static void a_length_without_bytes_is_unsound_in_any_shard(void)
{
    rf_shard_input shards[2] = {rf_input_of(1, "a", "b"), rf_input_of(2, "c", "d")};
    rf_bytes bad = {.data = NULL, .len = 4};
    TEST_ASSERT_TRUE(rf_manifest_sound(shards, 2));
    TEST_ASSERT_TRUE(rf_manifest_sound(NULL, 0));
    TEST_ASSERT_FALSE(rf_manifest_sound(NULL, 1));
    for (size_t at = 0; at < 2; at++) {
        rf_shard_input kept = shards[at];
        rf_bytes *fields[] = {&shards[at].spec.start, &shards[at].spec.end,
                              &shards[at].spec.metadata, &shards[at].cursor.key,
                              &shards[at].cursor.token};
        for (size_t i = 0; i < 5; i++) {
            *fields[i] = bad;
            TEST_ASSERT_FALSE(rf_manifest_sound(shards, 2));
            shards[at] = kept;
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(touching_ranges_and_gaps_are_fine_in_any_order);
    RUN_TEST(an_empty_manifest_is_refused);
    RUN_TEST(a_duplicate_id_is_refused_at_its_second_place);
    RUN_TEST(an_id_that_exists_in_the_run_is_a_duplicate);
    RUN_TEST(a_root_shard_needs_a_start_and_an_end);
    RUN_TEST(inverted_and_empty_ranges_are_refused);
    RUN_TEST(sizes_are_checked_at_their_limits);
    RUN_TEST(overlaps_are_refused_at_the_later_starting_shard);
    RUN_TEST(cursors_are_absent_or_inside_their_shard);
    RUN_TEST(a_root_id_with_bit_63_is_refused);
    RUN_TEST(limits_are_reached_and_not_passed);
    RUN_TEST(added_ranges_may_touch_existing_ones_and_fill_gaps);
    RUN_TEST(added_ranges_must_not_overlap_existing_ones);
    RUN_TEST(overlaps_of_random_manifests_are_found_exactly);
    RUN_TEST(checks_work_without_a_detail);
    RUN_TEST(sorting_is_right_and_stable_at_every_size);
    RUN_TEST(a_length_without_bytes_is_unsound_in_any_shard);
    return UNITY_END();
}
