/*
 * What the matcher finds is what a plain search finds, wherever the text is cut. Random texts of few
 * letters, rules that overlap themselves, random cuts; the judge is PCRE2 over the whole text.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "matcher.h"
#include "prng.h"
#include "trial.h"

static const char text_of_rules[] =
    "[one]\nname = one\nmatch = ab{1,5}a\nyes = aba\nno = x\n"
    "[two]\nname = two\nmatch = \\bx[ab]{2,6}\\b\nyes = xab\nno = y\n"
    "[three]\nname = three\nmatch = (?:a|ab)(?:c|bcd)\nyes = ac\nno = x\n"
    "[four]\nname = four\nmatch = a[^x]{0,20}?(b{2,3})\\s\nyes = abb\\n \nno = x\n"
    "[five]\nname = five\nmatch = [abcd]{3,40}\nyes = abcd\nno = x\n"
    "[six]\nname = six\nmatch = (?i:B)A{2}\nyes = bAA\nno = x\n";

/* The second stage would drop these: it is not what is tried here. */
static struct rules rules;

struct hit {
    uint32_t rule;
    uint64_t start, end;
};

struct hits {
    struct hit list[40000];
    size_t count;
};
static struct hits got, want;

void setUp(void)
{
    char why[512];
    TEST_ASSERT_TRUE_MESSAGE(
        rules_load(&rules, text_of_rules, sizeof(text_of_rules) - 1, why, sizeof(why)), why);
    for (uint32_t i = 0; i < rules.count; i++) {
        rules.list[i].checks = CHECK_PLACEHOLDER_OK;
    }
}

void tearDown(void)
{
    rules_free(&rules);
}

static void note(void *context, const struct match *m)
{
    struct hits *hits = context;
    TEST_ASSERT_TRUE(hits->count < 40000);
    hits->list[hits->count++] = (struct hit){m->rule, m->start, m->end};
}

static int by_place(const void *a, const void *b)
{
    const struct hit *x = a, *y = b;
    return x->rule != y->rule     ? (x->rule < y->rule ? -1 : 1)
           : x->start != y->start ? (x->start < y->start ? -1 : 1)
                                  : 0;
}

static void search_plainly(const uint8_t *text, size_t len)
{
    pcre2_match_data *data = pcre2_match_data_create(8, NULL);
    want.count = 0;
    for (uint32_t r = 0; r < rules.count; r++) {
        for (size_t at = 0; pcre2_match(rules.list[r].code, text, len, at, 0, data, NULL) > 0;) {
            const PCRE2_SIZE *places = pcre2_get_ovector_pointer(data);
            note(&want, &(struct match){.rule = r, .start = places[0], .end = places[1]});
            at = places[1];
        }
    }
    pcre2_match_data_free(data);
}

/* As the scanner does: a little before, the widest rule and one byte behind, and what was taken. */
static void search_in_spans(struct matcher *m, const uint8_t *text, size_t len,
                            struct rf_prng *prng)
{
    got.count = 0;
    matcher_reset(m);
    for (size_t from = 0; from < len;) {
        size_t until = from + 1 + rf_prng_below(prng, rf_prng_chance(prng, 50) ? 9 : 200);
        until = until < len ? until : len;
        size_t before = from < 8 ? from : 8;
        size_t end = until + rules.width + 1 < len ? until + rules.width + 1 : len;
        struct span span = {.bytes = text + from - before,
                            .len = end - from + before,
                            .from = before,
                            .until = before + until - from,
                            .base = from - before};
        /* Sometimes another process goes on, and knows only what is behind the cut. */
        if (rf_prng_chance(prng, 30)) {
            uint64_t taken[8];
            for (uint32_t r = 0; r < rules.count; r++) {
                taken[r] = matcher_taken(m, r);
            }
            matcher_reset(m);
            for (uint32_t r = 0; r < rules.count; r++) {
                if (taken[r] > from) {
                    matcher_set_taken(m, r, taken[r]);
                }
            }
        }
        matcher_scan(m, &span, note, &got);
        from = until;
    }
    qsort(got.list, got.count, sizeof(got.list[0]), by_place);
}

static void cuts_do_not_change_what_is_found(void)
{
    static const char letters[] = "aabbabxcd \nBAAab";
    uint64_t seed = trial_number("RF_SEED", 1);
    uint64_t seconds = getenv("RF_SOAK") != NULL ? trial_number("RF_SECONDS", 10) : 0;
    time_t end = time(NULL) + (time_t)seconds;
    struct rf_prng prng = {seed};
    struct matcher *m = matcher_create(&rules);
    uint64_t all = 0;
    for (unsigned round = 0; round < (RF_SCAN_SLOW ? 150u : 600u) || time(NULL) < end; round++) {
        uint8_t text[1500];
        size_t len = 1 + rf_prng_below(&prng, sizeof(text));
        for (size_t i = 0; i < len; i++) {
            text[i] = (uint8_t)letters[rf_prng_below(&prng, sizeof(letters) - 1)];
        }
        search_plainly(text, len);
        search_in_spans(m, text, len, &prng);
        char message[128];
        snprintf(message, sizeof(message), "seed %llu, round %u", (unsigned long long)seed, round);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(want.count, got.count, message);
        for (size_t i = 0; i < want.count; i++) {
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(want.list[i].rule, got.list[i].rule, message);
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(want.list[i].start, got.list[i].start, message);
            TEST_ASSERT_EQUAL_UINT64_MESSAGE(want.list[i].end, got.list[i].end, message);
        }
        all += want.count;
    }
    matcher_destroy(m);
    TEST_ASSERT_GREATER_THAN_UINT64(1000, all);
}

/* More places than are remembered one by one. */
static void a_crowd_of_matches_is_found_too(void)
{
    static uint8_t text[1u << 20];
    memset(text, ' ', sizeof(text));
    size_t planted = 0;
    for (size_t at = 0; at + 80 < sizeof(text) && planted < 19000;
         at += 80 - planted % 7, planted++) {
        memcpy(text + at, "xaab", 4);
    }
    struct matcher *m = matcher_create(&rules);
    got.count = 0;
    matcher_scan(m, &(struct span){.bytes = text, .len = sizeof(text), .until = sizeof(text)}, note,
                 &got);
    matcher_destroy(m);
    size_t of_two = 0;
    for (size_t i = 0; i < got.count; i++) {
        of_two += got.list[i].rule == 1;
    }
    TEST_ASSERT_EQUAL_UINT64(planted, of_two);
}

static void load(const char *text)
{
    char why[512];
    rules_free(&rules);
    TEST_ASSERT_TRUE_MESSAGE(rules_load(&rules, text, strlen(text), why, sizeof(why)), why);
    rules.list[0].checks = CHECK_PLACEHOLDER_OK;
}

static bool scan_text(const char *text)
{
    size_t len = strlen(text);
    struct matcher *m = matcher_create(&rules);
    got.count = 0;
    matcher_scan(m, &(struct span){.bytes = (const uint8_t *)text, .len = len, .until = len}, note,
                 &got);
    bool gave_up = matcher_gave_up(m);
    matcher_destroy(m);
    return gave_up;
}

/* Compiled rules have a small stack; what needs more is matched without. */
static void a_match_of_many_parts_is_found(void)
{
    char text[4200] = "K";
    load("[a]\nname = a\nmatch = K(?:a|b){3990,4000}Z\nyes = Kab\nno = x\n");
    for (unsigned i = 0; i < 3990; i++) {
        strcat(text, i % 3 == 0 ? "a" : "b");
    }
    strcat(text, "Z");
    TEST_ASSERT_FALSE(scan_text(text));
    TEST_ASSERT_EQUAL_UINT64(1, got.count);
    TEST_ASSERT_EQUAL_UINT64(strlen(text), got.list[0].end);
}

/* A rule that would need for ever is given up, and that is known. */
static void a_rule_that_needs_too_long_is_not_passed_over(void)
{
    char text[256] = "L";
    load("[a]\nname = a\nmatch = L(?:a|aa){1,60}b\nyes = Lab\nno = x\n");
    TEST_ASSERT_FALSE(scan_text("Lab"));
    TEST_ASSERT_EQUAL_UINT64(1, got.count);
    for (unsigned i = 0; i < 100; i++) {
        strcat(text, "a");
    }
    strcat(text, "c Lab");
    TEST_ASSERT_TRUE(scan_text(text));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(cuts_do_not_change_what_is_found);
    RUN_TEST(a_crowd_of_matches_is_found_too);
    RUN_TEST(a_match_of_many_parts_is_found);
    RUN_TEST(a_rule_that_needs_too_long_is_not_passed_over);
    return UNITY_END();
}
