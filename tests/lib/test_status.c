/* Statuses and events in words, and what a refusal must not say. (That no refusal of any operation
 * does is checked where they are all made, in test_check_order_*.c.) */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unity.h>

#include "secret.h"
#include "status_table.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* The next NAME = NUMBER of an enum in the header's text, or false at its end. */
static bool next_enumerator(char **at, const char *prefix, char *name, size_t size, unsigned *value)
{
    char *end = strchr(*at, '}'), *hit = strstr(*at, prefix);
    if (hit == NULL || hit > end) {
        return false;
    }
    hit += strlen(prefix);
    size_t len = strspn(hit, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
    TEST_ASSERT_TRUE(len < size);
    memcpy(name, hit, len);
    name[len] = 0;
    TEST_ASSERT_EQUAL_MEMORY(" = ", hit + len, 3);
    *value = (unsigned)strtoul(hit + len + 3, at, 10);
    return true;
}

static void every_status_of_the_header_has_its_own_name_and_words(void)
{
    char *text = rf_source_text("lib/include/ringfence/ringfence.h"), name[64];
    char *at = strstr(text, "typedef enum rf_status {");
    TEST_ASSERT_NOT_NULL(at);
    unsigned value, count = 0;
    bool known[RF_TABLE_STATUS] = {false};
    at = strchr(at, '\n');
    while (next_enumerator(&at, "    RF_", name, sizeof(name), &value)) {
        TEST_ASSERT_TRUE(value < RF_TABLE_STATUS);
        TEST_ASSERT_FALSE_MESSAGE(known[value], "a number stands for two statuses");
        known[value] = true;
        TEST_ASSERT_EQUAL_STRING(name, rf_status_name((rf_status)value));
        TEST_ASSERT_TRUE(strcmp("unknown status", rf_strerror((rf_status)value)) != 0);
        count++;
    }
    TEST_ASSERT_TRUE(count >= 45);
    for (unsigned i = 0; i < RF_TABLE_STATUS; i++) {
        if (!known[i]) {
            TEST_ASSERT_EQUAL_STRING("UNKNOWN", rf_status_name((rf_status)i));
            TEST_ASSERT_EQUAL_STRING("unknown status", rf_strerror((rf_status)i));
        }
        for (unsigned j = 0; j < i && known[i]; j++) {
            TEST_ASSERT_TRUE(!known[j] ||
                             strcmp(rf_strerror((rf_status)i), rf_strerror((rf_status)j)) != 0);
        }
    }
    free(text);
}

static void every_event_of_the_header_has_its_name(void)
{
    char *text = rf_source_text("lib/include/ringfence/ringfence.h"), name[64];
    char *at = strstr(text, "typedef enum rf_event_kind {");
    TEST_ASSERT_NOT_NULL(at);
    unsigned value, count = 0;
    while (next_enumerator(&at, "RF_EVENT_", name, sizeof(name), &value)) {
        for (char *c = name; *c != 0; c++) {
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
        }
        TEST_ASSERT_EQUAL_STRING(name, rf_event_name((rf_event_kind)value));
        TEST_ASSERT_EQUAL_UINT_MESSAGE(count, value, "events are numbered without gaps");
        count++;
    }
    TEST_ASSERT_TRUE(count >= 17);
    TEST_ASSERT_EQUAL_STRING("unknown", rf_event_name((rf_event_kind)count));
    TEST_ASSERT_EQUAL_STRING("unknown", rf_event_name((rf_event_kind)-1));
    free(text);
}

static void numbers_of_statuses_do_not_change(void)
{
    TEST_ASSERT_EQUAL_INT(0, RF_OK);
    TEST_ASSERT_EQUAL_INT(10, RF_NOT_FOUND);
    TEST_ASSERT_EQUAL_INT(20, RF_OP_ID_CONFLICT);
    TEST_ASSERT_EQUAL_INT(31, RF_STALE_FENCE);
    TEST_ASSERT_EQUAL_INT(40, RF_MISSING_KEY);
    TEST_ASSERT_EQUAL_INT(55, RF_CONFIG_MISMATCH);
    TEST_ASSERT_EQUAL_INT(62, RF_WRONG_STATUS);
    TEST_ASSERT_EQUAL_INT(73, RF_RESOURCE_EXHAUSTED);
    TEST_ASSERT_EQUAL_INT(81, RF_NONE_AVAILABLE);
    TEST_ASSERT_EQUAL_INT(96, RF_IO_ERROR);
}

static void the_version_is_that_of_the_header(void)
{
    char version[32];
    snprintf(version, sizeof(version), "%d.%d.%d", RF_VERSION_MAJOR, RF_VERSION_MINOR,
             RF_VERSION_PATCH);
    TEST_ASSERT_EQUAL_STRING(version, rf_version_string());
}

static const char *explain(rf_status status, const rf_detail *detail)
{
    static char out[512];
    size_t len = rf_explain(status, detail, out, sizeof(out));
    TEST_ASSERT_EQUAL_size_t(strlen(out), len);
    return out;
}

static void a_sentence_says_what_how_much_and_where(void)
{
    rf_detail d = {.size = 5000, .limit = 4096, .index = 7, .has_index = true};
    TEST_ASSERT_EQUAL_STRING("a key is too large (at position 7): 5000, the limit is 4096",
                             explain(RF_KEY_TOO_LARGE, &d));
    d = (rf_detail){.deadline = 12345};
    TEST_ASSERT_EQUAL_STRING("the lease has expired: the deadline is 12345 ns",
                             explain(RF_LEASE_EXPIRED, &d));
    d = (rf_detail){.retry_after = 99};
    TEST_ASSERT_EQUAL_STRING("claimed again too soon: try again in 99 ns",
                             explain(RF_THROTTLED, &d));
    d = (rf_detail){.os_error = ENOENT, .where = "open"};
    TEST_ASSERT_NOT_NULL(strstr(explain(RF_IO_ERROR, &d), "open: No such file"));
    d = (rf_detail){.size = 200, .limit = 12};
    TEST_ASSERT_EQUAL_STRING("the buffer is too small: 200 bytes are needed, 12 were given",
                             explain(RF_BUFFER_TOO_SMALL, &d));
    d = (rf_detail){.size = 1, .limit = 256};
    TEST_ASSERT_EQUAL_STRING("a split makes 2 to 256 children: not 1", explain(RF_SPLIT_COUNT, &d));
    d = (rf_detail){.os_error = ENOENT, .where = "opening farm"};
    TEST_ASSERT_NOT_NULL(strstr(explain(RF_NOT_FOUND, &d), "no such store: opening farm: No such"));
    d = (rf_detail){.size = 9, .where = "epoch 9"};
    TEST_ASSERT_EQUAL_STRING("there is no such epoch: epoch 9", explain(RF_NOT_FOUND, &d));
    d = (rf_detail){.pid = 4711};
    TEST_ASSERT_NOT_NULL(strstr(explain(RF_BUSY, &d), "4711"));
}

static void a_sentence_without_detail_is_the_status_in_words(void)
{
    const rf_detail nothing = {0};
    for (unsigned i = 0; i < RF_TABLE_STATUS; i++) {
        TEST_ASSERT_EQUAL_STRING(rf_strerror((rf_status)i), explain((rf_status)i, NULL));
        TEST_ASSERT_EQUAL_INT(0, strncmp(rf_strerror((rf_status)i), explain((rf_status)i, &nothing),
                                         strlen(rf_strerror((rf_status)i))));
    }
}

static void a_sentence_that_does_not_fit_is_cut_and_its_length_told(void)
{
    rf_detail d = {.size = 5000, .limit = 4096, .index = 7, .has_index = true, .os_error = EIO};
    memset(d.where, 'w', sizeof(d.where)); /* not even ended by a NUL */
    char whole[512];
    size_t len = rf_explain(RF_KEY_TOO_LARGE, &d, whole, sizeof(whole));
    TEST_ASSERT_TRUE(len < sizeof(whole));
    TEST_ASSERT_EQUAL_size_t(len, strlen(whole));
    for (size_t size = 0; size <= len + 1; size++) {
        char out[512];
        memset(out, '#', sizeof(out));
        TEST_ASSERT_EQUAL_size_t(len,
                                 rf_explain(RF_KEY_TOO_LARGE, &d, size != 0 ? out : NULL, size));
        TEST_ASSERT_EQUAL_MEMORY("####", out + size, 4);
        if (size != 0) {
            TEST_ASSERT_EQUAL_size_t(size - 1, strlen(out));
            TEST_ASSERT_EQUAL_INT(0, memcmp(whole, out, size - 1));
        }
    }
}

/* --- the search for secrets finds them --- */

static void a_key_in_a_detail_is_noticed(void)
{
    rf_detail d = {0};
    TEST_ASSERT_NULL(rf_secret_leak(RF_CORRUPT, &d, NULL, 0));
    rf_bytes key = rf_secret_key('m');
    memcpy(d.where, key.data, 4);
    TEST_ASSERT_EQUAL_STRING("bytes of a key", rf_secret_leak(RF_CORRUPT, &d, NULL, 0));
    memset(d.where, 0, sizeof(d.where));
    memcpy(&d.shard, (const uint8_t *)key.data + 5, 3);
    TEST_ASSERT_EQUAL_STRING("bytes of a key", rf_secret_leak(RF_CORRUPT, &d, NULL, 0));
}

static void tokens_metadata_and_tenants_in_a_detail_are_noticed(void)
{
    rf_tenant tenant = rf_secret_tenant(), other = rf_secret_other_tenant();
    const struct {
        const void *bytes;
        const char *leak;
    } cases[] = {
        {rf_secret_token(20).data, "bytes of a token"},
        {rf_secret_metadata(20).data, "bytes of metadata"},
        {&tenant, "a tenant"},
        {&other, "another tenant"},
    };
    for (size_t i = 0; i < 4; i++) {
        for (size_t from = 0; from < 8; from++) {
            rf_detail d = {0};
            memcpy(d.where + 1, (const uint8_t *)cases[i].bytes + from, 3);
            TEST_ASSERT_EQUAL_STRING(cases[i].leak, rf_secret_leak(RF_NOT_FOUND, &d, NULL, 0));
        }
    }
}

static void owners_and_hashes_in_a_detail_are_noticed(void)
{
    rf_detail d = {.index = RF_SECRET_OWNER, .has_index = true};
    TEST_ASSERT_EQUAL_STRING("an owner", rf_secret_leak(RF_STALE_FENCE, &d, NULL, 0));
    d = (rf_detail){.pid = (uint32_t)RF_SECRET_OWNER};
    TEST_ASSERT_EQUAL_STRING("an owner", rf_secret_leak(RF_STALE_FENCE, &d, NULL, 0));
    d = (rf_detail){.size = RF_SECRET_HASH};
    TEST_ASSERT_EQUAL_STRING("a payload hash", rf_secret_leak(RF_OP_ID_CONFLICT, &d, NULL, 0));
    d = (rf_detail){0};
    snprintf(d.where, sizeof(d.where), "%" PRIX64, RF_SECRET_HASH);
    TEST_ASSERT_EQUAL_STRING("a payload hash", rf_secret_leak(RF_OP_ID_CONFLICT, &d, NULL, 0));
    uint64_t number = 0x1122334455667788u;
    d = (rf_detail){.limit = number};
    TEST_ASSERT_NULL(rf_secret_leak(RF_SHARD_LIMIT, &d, NULL, 0));
    TEST_ASSERT_EQUAL_STRING("a secret number", rf_secret_leak(RF_SHARD_LIMIT, &d, &number, 1));
}

static void refused_plans_give_nothing_away(void)
{
    rf_spec parent = {
        .start = rf_secret_key('d'), .end = rf_secret_key('w'), .metadata = rf_secret_metadata(50)};
    rf_bytes points[2] = {rf_secret_key('p'), rf_secret_key('m')};
    rf_child children[3];
    rf_spec a, b;
    uint8_t scratch[RF_KEY_MAX];
    rf_cursor cursor = {.key = rf_secret_key('x'), .token = rf_secret_token(20)};
    rf_status refused[5];
    rf_detail details[5];
    refused[0] = rf_plan_replace(parent, points, 2, children, &details[0]);
    refused[1] = rf_plan_residual_at(parent, rf_secret_key('c'), &a, &b, &details[1]);
    refused[2] = rf_plan_residual_from_cursor(parent, cursor, scratch, &a, &b, &details[2]);
    points[1] = rf_secret_long_key('q', RF_KEY_MAX + 1);
    refused[3] = rf_plan_replace(parent, points, 2, children, &details[3]);
    cursor.key = rf_secret_long_key('q', RF_KEY_MAX);
    refused[4] = rf_plan_residual_from_cursor(parent, cursor, scratch, &a, &b, &details[4]);
    for (size_t i = 0; i < 5; i++) {
        TEST_ASSERT_EQUAL(i < 3 ? RF_RANGE_INVERTED : RF_KEY_TOO_LARGE, refused[i]);
        TEST_ASSERT_NULL(rf_secret_leak(refused[i], &details[i], NULL, 0));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_status_of_the_header_has_its_own_name_and_words);
    RUN_TEST(every_event_of_the_header_has_its_name);
    RUN_TEST(numbers_of_statuses_do_not_change);
    RUN_TEST(the_version_is_that_of_the_header);
    RUN_TEST(a_sentence_says_what_how_much_and_where);
    RUN_TEST(a_sentence_without_detail_is_the_status_in_words);
    RUN_TEST(a_sentence_that_does_not_fit_is_cut_and_its_length_told);
    RUN_TEST(a_key_in_a_detail_is_noticed);
    RUN_TEST(tokens_metadata_and_tenants_in_a_detail_are_noticed);
    RUN_TEST(owners_and_hashes_in_a_detail_are_noticed);
    RUN_TEST(refused_plans_give_nothing_away);
    return UNITY_END();
}
