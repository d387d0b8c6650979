/* Ranges and cursors: what is inside what, and what can't be. */
#include "range.h"

#include <unity.h>

#include "box.h"

static rf_detail detail;
static const uint8_t zeros[RF_TOKEN_MAX + 2];

void setUp(void)
{
    memset(&detail, 0, sizeof(detail));
}

void tearDown(void)
{
}

static bool holds(const char *start, const char *end, rf_bytes key)
{
    rf_spec range = rf_spec_of(start, end);
    return rf_range_holds(&range, key);
}

static void a_range_holds_its_start_and_not_its_end(void)
{
    TEST_ASSERT_TRUE(holds("b", "d", rf_text("b")));
    TEST_ASSERT_TRUE(holds("b", "d", rf_text("c")));
    TEST_ASSERT_TRUE(holds("b", "d", rf_bytes_of("c\xff\xff", 3)));
    TEST_ASSERT_FALSE(holds("b", "d", rf_text("d")));
    TEST_ASSERT_FALSE(holds("b", "d", rf_text("a")));
    TEST_ASSERT_FALSE(holds("b", "d", rf_bytes_of("a\xff", 2)));
    TEST_ASSERT_FALSE(holds("b", "d", rf_bytes_of("d\0", 2)));
}

static void an_empty_end_or_start_is_unbounded(void)
{
    TEST_ASSERT_TRUE(holds("", "d", rf_text("")));
    TEST_ASSERT_TRUE(holds("", "d", rf_bytes_of("\0", 1)));
    TEST_ASSERT_FALSE(holds("", "d", rf_text("d")));
    TEST_ASSERT_TRUE(holds("b", "", rf_bytes_of("\xff\xff\xff", 3)));
    TEST_ASSERT_FALSE(holds("b", "", rf_text("a")));
    TEST_ASSERT_TRUE(holds("", "", rf_text("anything")));
    TEST_ASSERT_TRUE(holds(NULL, NULL, rf_text("anything")));
}

static void zero_and_ff_bytes_are_bytes_like_any_other(void)
{
    rf_spec range = {.start = rf_bytes_of("a\0", 2), .end = rf_bytes_of("a\0\xff", 3)};
    TEST_ASSERT_FALSE(rf_range_holds(&range, rf_text("a")));
    TEST_ASSERT_TRUE(rf_range_holds(&range, rf_bytes_of("a\0", 2)));
    TEST_ASSERT_TRUE(rf_range_holds(&range, rf_bytes_of("a\0\xfe\xff", 4)));
    TEST_ASSERT_FALSE(rf_range_holds(&range, rf_bytes_of("a\0\xff", 3)));
}

static void a_range_is_upright_if_start_is_below_end(void)
{
    struct {
        const char *start, *end;
        bool upright;
    } cases[] = {
        {"a", "b", true}, {"a", "a", false}, {"b", "a", false}, {"", "a", true},
        {"a", "", true},  {"", "", true},    {"a", "aa", true}, {"aa", "a", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rf_spec range = rf_spec_of(cases[i].start, cases[i].end);
        TEST_ASSERT_EQUAL(cases[i].upright, rf_range_upright(&range));
    }
}

static void sizes_are_checked_at_their_limits(void)
{
    rf_spec spec = {.start = rf_bytes_of(zeros, RF_KEY_MAX),
                    .end = rf_bytes_of(zeros, RF_KEY_MAX),
                    .metadata = rf_bytes_of(zeros, RF_METADATA_MAX)};
    TEST_ASSERT_EQUAL(RF_OK, rf_spec_check_sizes(&spec, &detail));
    spec.metadata.len++;
    TEST_ASSERT_EQUAL(RF_METADATA_TOO_LARGE, rf_spec_check_sizes(&spec, &detail));
    TEST_ASSERT_EQUAL_UINT64(16385, detail.size);
    TEST_ASSERT_EQUAL_UINT64(16384, detail.limit);
    spec.end.len++;
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_spec_check_sizes(&spec, &detail));
    TEST_ASSERT_EQUAL_UINT64(4097, detail.size);
    TEST_ASSERT_EQUAL_UINT64(4096, detail.limit);
    spec.start.len += 2;
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_spec_check_sizes(&spec, &detail));
    TEST_ASSERT_EQUAL_UINT64(4098, detail.size);
}

static rf_status check(rf_cursor cursor, rf_cursor stored, const char *start, const char *end)
{
    rf_spec range = rf_spec_of(start, end);
    memset(&detail, 0, sizeof(detail));
    return rf_cursor_check(&cursor, &stored, &range, &detail);
}

static void a_cursor_needs_a_key(void)
{
    rf_cursor initial = {0}, token_only = rf_cursor_with(NULL, "token");
    TEST_ASSERT_EQUAL(RF_MISSING_KEY, check(initial, initial, "", ""));
    TEST_ASSERT_EQUAL(RF_MISSING_KEY, check(token_only, initial, "", ""));
}

static void an_empty_key_is_a_key_where_the_range_has_no_start(void)
{
    rf_cursor initial = {0};
    TEST_ASSERT_EQUAL(RF_OK, check(rf_cursor_at(""), initial, "", "z"));
    TEST_ASSERT_EQUAL(RF_CURSOR_OUT_OF_BOUNDS, check(rf_cursor_at(""), initial, "a", "z"));
}

static void cursor_sizes_are_checked_at_their_limits(void)
{
    rf_cursor initial = {0};
    rf_cursor cursor = {.key = rf_bytes_of(zeros, RF_KEY_MAX),
                        .token = rf_bytes_of(zeros, RF_TOKEN_MAX)};
    TEST_ASSERT_EQUAL(RF_OK, check(cursor, initial, "", ""));
    cursor.token.len++;
    TEST_ASSERT_EQUAL(RF_TOKEN_TOO_LARGE, check(cursor, initial, "", ""));
    TEST_ASSERT_EQUAL_UINT64(16385, detail.size);
    TEST_ASSERT_EQUAL_UINT64(16384, detail.limit);
    cursor.key.len++;
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, check(cursor, initial, "", ""));
    TEST_ASSERT_EQUAL_UINT64(4097, detail.size);
    TEST_ASSERT_EQUAL_UINT64(4096, detail.limit);
}

static void a_cursor_may_stay_but_not_go_back(void)
{
    rf_cursor stored = rf_cursor_at("mm");
    TEST_ASSERT_EQUAL(RF_OK, check(rf_cursor_at("mm"), stored, "a", "z"));
    TEST_ASSERT_EQUAL(RF_OK, check(rf_cursor_at("mma"), stored, "a", "z"));
    TEST_ASSERT_EQUAL(RF_CURSOR_REGRESSION, check(rf_cursor_at("m"), stored, "a", "z"));
    TEST_ASSERT_EQUAL(RF_CURSOR_REGRESSION, check(rf_cursor_at("ml"), stored, "a", "z"));
    TEST_ASSERT_EQUAL(RF_CURSOR_REGRESSION, check(rf_cursor_at(""), stored, "a", "z"));
    rf_cursor at_empty = rf_cursor_at("");
    TEST_ASSERT_EQUAL(RF_OK, check(rf_cursor_at(""), at_empty, "", "z"));
}

static void a_refused_cursor_is_told_by_its_length_alone(void)
{
    TEST_ASSERT_EQUAL(RF_CURSOR_REGRESSION,
                      check(rf_cursor_at("abc"), rf_cursor_at("m"), "a", "z"));
    TEST_ASSERT_EQUAL_UINT64(3, detail.size);
    TEST_ASSERT_EQUAL(RF_CURSOR_OUT_OF_BOUNDS,
                      check(rf_cursor_at("zz"), rf_cursor_at("m"), "a", "z"));
    TEST_ASSERT_EQUAL_UINT64(2, detail.size);
}

static void checks_work_without_a_detail(void)
{
    rf_cursor cursor = rf_cursor_at("a"), stored = rf_cursor_at("b");
    rf_spec range = rf_spec_of("a", "z");
    TEST_ASSERT_EQUAL(RF_CURSOR_REGRESSION, rf_cursor_check(&cursor, &stored, &range, NULL));
    range.start.len = RF_KEY_MAX + 1;
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_spec_check_sizes(&range, NULL));
    rf_detail_clear(NULL);
}

static void a_length_without_bytes_is_unsound_wherever_it_stands(void)
{
    const rf_bytes bad = {.data = NULL, .len = 1};
    rf_cursor cursor = rf_cursor_with("k", "t");
    TEST_ASSERT_TRUE(rf_cursor_sound(&cursor));
    TEST_ASSERT_FALSE(rf_cursor_sound(&(rf_cursor){.key = bad}));
    TEST_ASSERT_FALSE(rf_cursor_sound(&(rf_cursor){.key = rf_text("k"), .token = bad}));
    TEST_ASSERT_TRUE(rf_cursor_sound(&(rf_cursor){0}));
    rf_spec spec = rf_spec_of("a", "b");
    TEST_ASSERT_TRUE(rf_spec_sound(&spec));
    TEST_ASSERT_TRUE(rf_spec_sound(&(rf_spec){0}));
    TEST_ASSERT_FALSE(rf_spec_sound(&(rf_spec){.start = bad}));
    TEST_ASSERT_FALSE(rf_spec_sound(&(rf_spec){.end = bad}));
    TEST_ASSERT_FALSE(rf_spec_sound(&(rf_spec){.metadata = bad}));
}

static void sums_of_times_stop_at_the_maximum(void)
{
    TEST_ASSERT_EQUAL_UINT64(3, rf_add_saturating(1, 2));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, rf_add_saturating(UINT64_MAX - 1, 1));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, rf_add_saturating(UINT64_MAX - 1, 2));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, rf_add_saturating(2, UINT64_MAX));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, rf_add_saturating(UINT64_MAX, UINT64_MAX));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_range_holds_its_start_and_not_its_end);
    RUN_TEST(an_empty_end_or_start_is_unbounded);
    RUN_TEST(zero_and_ff_bytes_are_bytes_like_any_other);
    RUN_TEST(a_range_is_upright_if_start_is_below_end);
    RUN_TEST(sizes_are_checked_at_their_limits);
    RUN_TEST(a_cursor_needs_a_key);
    RUN_TEST(an_empty_key_is_a_key_where_the_range_has_no_start);
    RUN_TEST(cursor_sizes_are_checked_at_their_limits);
    RUN_TEST(a_cursor_may_stay_but_not_go_back);
    RUN_TEST(a_refused_cursor_is_told_by_its_length_alone);
    RUN_TEST(checks_work_without_a_detail);
    RUN_TEST(a_length_without_bytes_is_unsound_wherever_it_stands);
    RUN_TEST(sums_of_times_stop_at_the_maximum);
    return UNITY_END();
}
