/* Keys and their neighbours: order, successors, midpoints. */
#include <unity.h>

#include "box.h"
#include "prng.h"

static uint8_t out[RF_KEY_MAX];
static size_t out_len;
static uint8_t low_bytes[RF_KEY_MAX + 1], high_bytes[RF_KEY_MAX + 1];

void setUp(void)
{
    memset(out, 0xA5, sizeof(out));
    out_len = 12345;
}

void tearDown(void)
{
}

static rf_bytes made(void)
{
    return rf_bytes_of(out, out_len);
}

static rf_bytes raw(const char *bytes, size_t len)
{
    return rf_bytes_of(bytes, len);
}

#define RAW(literal) raw(literal, sizeof(literal) - 1)

static void assert_made(rf_bytes expected)
{
    TEST_ASSERT_EQUAL_size_t(expected.len, out_len);
    TEST_ASSERT_TRUE(rf_bytes_equal(expected, made()));
}

static void keys_are_ordered_bytewise_and_a_prefix_is_smaller(void)
{
    const rf_bytes rising[] = {RAW(""),     RAW("\0"),     RAW("\0\0"),     RAW("\0\1"),
                               RAW("\1"),   RAW("a"),      RAW("a\0"),      RAW("a\0b"),
                               RAW("aa"),   RAW("b"),      RAW("\x7f"),     RAW("\x80"),
                               RAW("\xff"), RAW("\xff\0"), RAW("\xff\xfe"), RAW("\xff\xff")};
    size_t n = sizeof(rising) / sizeof(rising[0]);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            int order = rf_key_compare(rising[i], rising[j]);
            TEST_ASSERT_EQUAL_INT((i > j) - (i < j), (order > 0) - (order < 0));
        }
    }
}

static void an_absent_key_compares_as_an_empty_one(void)
{
    TEST_ASSERT_EQUAL_INT(0, rf_key_compare(rf_bytes_none(), RAW("")));
    TEST_ASSERT_TRUE(rf_key_compare(rf_bytes_none(), RAW("\0")) < 0);
}

static void the_successor_is_the_key_and_a_zero_byte(void)
{
    TEST_ASSERT_EQUAL(RF_OK, rf_key_successor(RAW("abc"), out, &out_len));
    assert_made(RAW("abc\0"));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_successor(RAW("\xff\xff"), out, &out_len));
    assert_made(RAW("\xff\xff\0"));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_successor(RAW(""), out, &out_len));
    assert_made(RAW("\0"));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_successor(rf_bytes_none(), out, &out_len));
    assert_made(RAW("\0"));
}

static void the_successor_may_be_made_in_place(void)
{
    memcpy(out, "abc", 3);
    TEST_ASSERT_EQUAL(RF_OK, rf_key_successor(rf_bytes_of(out, 3), out, &out_len));
    assert_made(RAW("abc\0"));
}

static void the_successor_of_4095_bytes_fits_and_of_4096_does_not(void)
{
    memset(low_bytes, 'k', sizeof(low_bytes));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_successor(rf_bytes_of(low_bytes, 4095), out, &out_len));
    TEST_ASSERT_EQUAL_size_t(4096, out_len);
    TEST_ASSERT_EQUAL_UINT8(0, out[4095]);
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE,
                      rf_key_successor(rf_bytes_of(low_bytes, 4096), out, &out_len));
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE,
                      rf_key_successor(rf_bytes_of(low_bytes, 4097), out, &out_len));
    TEST_ASSERT_EQUAL_size_t_MESSAGE(4096, out_len, "a refusal writes nothing");
}

static void a_length_that_no_memory_has_is_too_large(void)
{
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE,
                      rf_key_successor(rf_bytes_of(low_bytes, SIZE_MAX), out, &out_len));
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE,
                      rf_prefix_successor(rf_bytes_of(low_bytes, SIZE_MAX), out, &out_len));
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_key_midpoint(rf_bytes_of(low_bytes, SIZE_MAX),
                                                        rf_bytes_none(), out, &out_len));
    TEST_ASSERT_EQUAL_size_t(12345, out_len);
}

static void nothing_lies_between_a_key_and_its_successor(void)
{
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED, rf_key_midpoint(RAW("k"), RAW("k\0"), out, &out_len));
}

static void the_prefix_successor_is_above_all_that_begin_so(void)
{
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW("abc"), out, &out_len));
    assert_made(RAW("abd"));
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW("ab\xff"), out, &out_len));
    assert_made(RAW("ac"));
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW("a\xfe\xff\xff"), out, &out_len));
    assert_made(RAW("a\xff"));
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW("\0"), out, &out_len));
    assert_made(RAW("\1"));
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW("\0\xff"), out, &out_len));
    assert_made(RAW("\1"));
}

static void a_prefix_without_a_successor_is_unbounded(void)
{
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW(""), out, &out_len));
    TEST_ASSERT_EQUAL_size_t(0, out_len);
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(RAW("\xff"), out, &out_len));
    TEST_ASSERT_EQUAL_size_t(0, out_len);
    memset(low_bytes, 0xFF, sizeof(low_bytes));
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(rf_bytes_of(low_bytes, 4096), out, &out_len));
    TEST_ASSERT_EQUAL_size_t(0, out_len);
}

static void a_prefix_of_4096_bytes_fits_and_of_4097_does_not(void)
{
    memset(low_bytes, 'k', sizeof(low_bytes));
    TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(rf_bytes_of(low_bytes, 4096), out, &out_len));
    TEST_ASSERT_EQUAL_size_t(4096, out_len);
    TEST_ASSERT_EQUAL_UINT8('l', out[4095]);
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE,
                      rf_prefix_successor(rf_bytes_of(low_bytes, 4097), out, &out_len));
}

/* Every key with the prefix is below, every key from there on has it not. */
static void prefix_successors_of_random_prefixes_divide_the_keys(void)
{
    struct rf_prng prng = {.state = 11};
    for (int round = 0; round < 20000; round++) {
        uint8_t prefix[4], key[6];
        size_t prefix_len = rf_prng_below(&prng, 5), key_len = rf_prng_below(&prng, 7);
        for (size_t i = 0; i < sizeof(prefix); i++) {
            prefix[i] = (uint8_t)(rf_prng_chance(&prng, 50) ? 0xFD + rf_prng_below(&prng, 3)
                                                            : rf_prng_below(&prng, 3));
        }
        memcpy(key, prefix, sizeof(prefix));
        for (size_t i = rf_prng_below(&prng, 6); i < sizeof(key); i++) {
            key[i] = (uint8_t)(rf_prng_chance(&prng, 50) ? 0xFD + rf_prng_below(&prng, 3)
                                                         : rf_prng_below(&prng, 3));
        }
        rf_bytes p = rf_bytes_of(prefix, prefix_len), k = rf_bytes_of(key, key_len);
        TEST_ASSERT_EQUAL(RF_OK, rf_prefix_successor(p, out, &out_len));
        bool has_prefix = key_len >= prefix_len && memcmp(key, prefix, prefix_len) == 0;
        bool inside = rf_key_compare(k, p) >= 0 && (out_len == 0 || rf_key_compare(k, made()) < 0);
        TEST_ASSERT_EQUAL(has_prefix, inside);
    }
}

/* Is there a key between the two at all? The only one that could be missing is low and a zero. */
static bool something_fits(rf_bytes low, rf_bytes high)
{
    uint8_t next[RF_KEY_MAX];
    size_t len = 0;
    if (high.len != 0 && rf_key_compare(low, high) >= 0) {
        return false;
    }
    if (rf_key_successor(low, next, &len) == RF_OK) {
        return high.len == 0 || rf_key_compare(rf_bytes_of(next, len), high) < 0;
    }
    /* low has 4096 bytes: what is above it is at most as long, and differs earlier or at the end */
    size_t n = low.len;
    memcpy(next, low.data, n);
    while (n != 0 && next[n - 1] == 0xFF) {
        n--;
    }
    if (n == 0) {
        return false;
    }
    next[n - 1]++;
    return high.len == 0 || rf_key_compare(rf_bytes_of(next, n), high) < 0;
}

static void check_midpoint(rf_bytes low, rf_bytes high)
{
    rf_status status = rf_key_midpoint(low, high, out, &out_len);
    if (!something_fits(low, high)) {
        TEST_ASSERT_EQUAL(RF_RANGE_INVERTED, status);
        return;
    }
    TEST_ASSERT_EQUAL(RF_OK, status);
    TEST_ASSERT_TRUE(out_len >= 1 && out_len <= RF_KEY_MAX);
    TEST_ASSERT_TRUE_MESSAGE(rf_key_compare(made(), low) > 0, "not above low");
    TEST_ASSERT_TRUE_MESSAGE(high.len == 0 || rf_key_compare(made(), high) < 0, "not below high");
}

static void midpoints_of_all_short_keys_are_strictly_between(void)
{
    static const uint8_t alphabet[] = {0, 1, 2, 0x7f, 0xfe, 0xff};
    enum { A = sizeof(alphabet), KEYS = 1 + A + A * A + A * A * A };
    static uint8_t keys[KEYS][3];
    static size_t lens[KEYS];
    size_t n = 1;
    for (size_t from = 0, len = 1; len <= 3; len++) {
        size_t to = n;
        for (size_t k = from; k < to; k++) {
            for (size_t a = 0; a < A && lens[k] == len - 1; a++) {
                memcpy(keys[n], keys[k], 3);
                keys[n][len - 1] = alphabet[a];
                lens[n++] = len;
            }
        }
        from = to;
    }
    TEST_ASSERT_EQUAL_size_t(KEYS, n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            check_midpoint(rf_bytes_of(keys[i], lens[i]), rf_bytes_of(keys[j], lens[j]));
        }
    }
}

static void midpoints_of_random_keys_are_strictly_between(void)
{
    struct rf_prng prng = {.state = 12};
    for (int round = 0; round < 50000; round++) {
        size_t low_len = rf_prng_below(&prng, 12), high_len = rf_prng_below(&prng, 12);
        size_t shared = rf_prng_below(&prng, 12);
        rf_prng_bytes(&prng, low_bytes, 12);
        rf_prng_bytes(&prng, high_bytes, 12);
        memcpy(high_bytes, low_bytes, shared);
        if (rf_prng_chance(&prng, 50)) {
            memset(low_bytes + shared, 0xFF, 12 - shared);
        }
        if (rf_prng_chance(&prng, 50)) {
            memset(high_bytes + shared, 0, 12 - shared);
        }
        check_midpoint(rf_bytes_of(low_bytes, low_len), rf_bytes_of(high_bytes, high_len));
    }
}

static void midpoints_at_the_length_limit_are_found_or_refused(void)
{
    static const uint8_t tails[] = {0, 1, 2, 0x80, 0xfe, 0xff};
    for (size_t l = 4094; l <= 4096; l++) {
        for (size_t h = 4094; h <= 4096; h++) {
            for (size_t i = 0; i < sizeof(tails) * sizeof(tails); i++) {
                memset(low_bytes, 'x', sizeof(low_bytes));
                memset(high_bytes, 'x', sizeof(high_bytes));
                low_bytes[l - 1] = tails[i % sizeof(tails)];
                high_bytes[h - 1] = tails[i / sizeof(tails)];
                check_midpoint(rf_bytes_of(low_bytes, l), rf_bytes_of(high_bytes, h));
                check_midpoint(rf_bytes_of(low_bytes, l), RAW("y"));
                check_midpoint(rf_bytes_of(low_bytes, l), rf_bytes_none());
            }
        }
    }
    memset(low_bytes, 0xFF, sizeof(low_bytes));
    check_midpoint(rf_bytes_of(low_bytes, 4095), rf_bytes_none());
    check_midpoint(rf_bytes_of(low_bytes, 4096), rf_bytes_none());
    low_bytes[0] = 'x';
    check_midpoint(rf_bytes_of(low_bytes, 4096), RAW("y"));
    check_midpoint(rf_bytes_of(low_bytes, 4095), RAW("y"));
}

static void midpoints_are_about_half_way(void)
{
    TEST_ASSERT_EQUAL(RF_OK, rf_key_midpoint(RAW("a"), RAW("e"), out, &out_len));
    assert_made(RAW("c"));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_midpoint(rf_bytes_none(), rf_bytes_none(), out, &out_len));
    assert_made(RAW("\x80"));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_midpoint(RAW("a"), RAW("b"), out, &out_len));
    assert_made(RAW("a\x80"));
    TEST_ASSERT_EQUAL(RF_OK, rf_key_midpoint(RAW("user:1000"), RAW("user:9000"), out, &out_len));
    assert_made(RAW("user:5"));
}

static void midpoints_of_inverted_or_equal_ends_are_refused(void)
{
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED, rf_key_midpoint(RAW("b"), RAW("a"), out, &out_len));
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED, rf_key_midpoint(RAW("a"), RAW("a"), out, &out_len));
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED, rf_key_midpoint(RAW("a\0"), RAW("a"), out, &out_len));
}

static void midpoints_of_keys_that_are_too_large_are_refused(void)
{
    memset(low_bytes, 'a', sizeof(low_bytes));
    rf_bytes large = rf_bytes_of(low_bytes, 4097);
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_key_midpoint(large, RAW("b"), out, &out_len));
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_key_midpoint(RAW(""), large, out, &out_len));
}

static void a_length_without_bytes_is_an_invalid_argument(void)
{
    rf_bytes bad = {.data = NULL, .len = 3};
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_successor(bad, out, &out_len));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_prefix_successor(bad, out, &out_len));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_midpoint(bad, RAW("b"), out, &out_len));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_midpoint(RAW("a"), bad, out, &out_len));
    TEST_ASSERT_EQUAL_size_t_MESSAGE(12345, out_len, "a refusal writes nothing");
}

static void a_place_to_write_to_is_needed(void)
{
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_successor(RAW("a"), NULL, &out_len));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_successor(RAW("a"), out, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_prefix_successor(RAW("a"), NULL, &out_len));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_prefix_successor(RAW("a"), out, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_midpoint(RAW("a"), RAW("b"), NULL, &out_len));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_key_midpoint(RAW("a"), RAW("b"), out, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(keys_are_ordered_bytewise_and_a_prefix_is_smaller);
    RUN_TEST(an_absent_key_compares_as_an_empty_one);
    RUN_TEST(the_successor_is_the_key_and_a_zero_byte);
    RUN_TEST(the_successor_may_be_made_in_place);
    RUN_TEST(the_successor_of_4095_bytes_fits_and_of_4096_does_not);
    RUN_TEST(a_length_that_no_memory_has_is_too_large);
    RUN_TEST(nothing_lies_between_a_key_and_its_successor);
    RUN_TEST(the_prefix_successor_is_above_all_that_begin_so);
    RUN_TEST(a_prefix_without_a_successor_is_unbounded);
    RUN_TEST(a_prefix_of_4096_bytes_fits_and_of_4097_does_not);
    RUN_TEST(prefix_successors_of_random_prefixes_divide_the_keys);
    RUN_TEST(midpoints_of_all_short_keys_are_strictly_between);
    RUN_TEST(midpoints_of_random_keys_are_strictly_between);
    RUN_TEST(midpoints_at_the_length_limit_are_found_or_refused);
    RUN_TEST(midpoints_are_about_half_way);
    RUN_TEST(midpoints_of_inverted_or_equal_ends_are_refused);
    RUN_TEST(midpoints_of_keys_that_are_too_large_are_refused);
    RUN_TEST(a_length_without_bytes_is_an_invalid_argument);
    RUN_TEST(a_place_to_write_to_is_needed);
    return UNITY_END();
}
