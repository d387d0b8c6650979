/* The rules: every example, what the second stage takes and drops, what a rules file may not say. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "matcher.h"
#include "trial.h"

static struct rules rules;
static char why[512];
static struct matcher *matcher;

void setUp(void)
{
    TEST_ASSERT_TRUE_MESSAGE(rules_load(&rules, rules_builtin,
                                        (size_t)(rules_builtin_end - rules_builtin), why,
                                        sizeof(why)),
                             why);
    matcher = matcher_create(&rules);
}

void tearDown(void)
{
    matcher_destroy(matcher);
    rules_free(&rules);
}

static void every_example_goes_as_it_must(void)
{
    TEST_ASSERT_GREATER_OR_EQUAL_UINT32(40, rules.count);
    TEST_ASSERT_EQUAL_UINT(0, rules_try_examples(&rules));
}

struct count {
    unsigned count;
    uint64_t start;
    uint32_t rule;
};

static void count_match(void *context, const struct match *match)
{
    struct count *c = context;
    c->count++;
    c->start = match->start;
    c->rule = match->rule;
}

static struct count matches_in(const char *text)
{
    struct count c = {0};
    size_t len = strlen(text);
    matcher_reset(matcher);
    matcher_scan(matcher, &(struct span){.bytes = (const uint8_t *)text, .len = len, .until = len},
                 count_match, &c);
    return c;
}

/* Each planted kind belongs to a rule and each rule is planted, so that scans are a test of all. And
 * whatever chance makes of a template is a secret. */
static void every_rule_has_a_template_that_it_finds(void)
{
    uint64_t seed = 0;
    TEST_ASSERT_EQUAL_UINT32(rules.count, corpus_rules());
    for (unsigned round = 0, i = 0; round < (RF_SCAN_SLOW ? 200 : 2000) * corpus_rules(); round++) {
        char line[2048];
        size_t start;
        const char *rule;
        i = round % corpus_rules();
        corpus_secret(i, &seed, line, sizeof(line), &start, &rule);
        TEST_ASSERT_EQUAL_STRING(rules.list[i].id, rule);
        struct count found = matches_in(line);
        TEST_ASSERT_EQUAL_UINT_MESSAGE(1, found.count, line);
        TEST_ASSERT_EQUAL_STRING(rule, rules.list[found.rule].id);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(start, found.start, rule);
    }
}

/* One changed character of a token with a checksum, and it is none. */
static void a_wrong_checksum_is_no_secret(void)
{
    static const char *const checked[] = {"github-pat", "npm-token", "grafana-token", "age-key",
                                          "gitlab-routable"};
    for (size_t k = 0; k < sizeof(checked) / sizeof(checked[0]); k++) {
        for (unsigned i = 0; i < corpus_rules(); i++) {
            uint64_t seed = 99;
            char line[2048];
            size_t start;
            const char *rule;
            size_t len = corpus_secret(i, &seed, line, sizeof(line), &start, &rule);
            if (strcmp(rule, checked[k]) != 0) {
                continue;
            }
            TEST_ASSERT_EQUAL_UINT_MESSAGE(1, matches_in(line).count, rule);
            line[len - 20] = line[len - 20] == 'A' ? 'C' : 'A';
            TEST_ASSERT_EQUAL_UINT_MESSAGE(0, matches_in(line).count, rule);
        }
    }
}

static void known_values_of_the_second_stage(void)
{
    uint8_t out[16];
    TEST_ASSERT_EQUAL_HEX32(0xcbf43926, check_crc32((const uint8_t *)"123456789", 9));
    TEST_ASSERT_TRUE(check_entropy((const uint8_t *)"aaaa", 4) == 0);
    TEST_ASSERT_TRUE(check_entropy((const uint8_t *)"abcd", 4) == 2);
    TEST_ASSERT_EQUAL_INT(4, check_base64((const uint8_t *)"Zm9vYg==", 8, out, sizeof(out)));
    TEST_ASSERT_EQUAL_MEMORY("foob", out, 4);
    TEST_ASSERT_EQUAL_INT(4, check_base64((const uint8_t *)"Zm9vYg", 6, out, sizeof(out)));
    TEST_ASSERT_EQUAL_INT(-1, check_base64((const uint8_t *)"Zm9vY", 5, out, sizeof(out)));
    TEST_ASSERT_EQUAL_INT(-1, check_base64((const uint8_t *)"Zm 9", 4, out, sizeof(out)));
    TEST_ASSERT_EQUAL_INT(
        -1, check_base64((const uint8_t *)"Zm9vYmFyYmF6Zm9vYmFyYmF6", 24, out, sizeof(out)));
}

static void a_token_that_goes_on_is_another_thing(void)
{
    char text[256];
    snprintf(text, sizeof(text), "x AIza%s y", "SyB2cD3fGh4JkL5mN6pQ7rS8tU9vW0xYzAb");
    TEST_ASSERT_EQUAL_UINT(1, matches_in(text).count);
    snprintf(text, sizeof(text), "x AIza%sC y", "SyB2cD3fGh4JkL5mN6pQ7rS8tU9vW0xYzAb");
    TEST_ASSERT_EQUAL_UINT(0, matches_in(text).count);
}

/* What is given out today, where it differs from the templates; in pieces, so that this file is no leak.
 * A number stands for so many characters. */
static void other_forms_of_a_token_are_found(void)
{
    static const char filler[] = "Qz7Xc2Vb9Nm4Kj6Hg3Fd8Sa5Pw1";
    static const struct {
        const char *rule, *before;
        unsigned count;
        const char *middle;
        unsigned again;
    } forms[] = {
        {"openai-key", "sk-svcacct-", 74, "T3BlbkFJ", 74},
        {"openai-key", "sk-admin-", 58, "T3BlbkFJ", 58},
        {"openai-key", "sk-", 20, "T3BlbkFJ", 20},
        {"anthropic-key", "sk-ant-oat01-", 95, "", 0},
        {"docker-pat", "dckr_oat_", 32, "", 0},
        {"doppler-token", "dp.st.prd_eu.", 43, "", 0},
        {"vault-token", "hvb.", 140, "", 0},
        {"slack-rotating", "xoxe.xoxp-1-", 163, "", 0},
        {"private-key",
         "-----BEGIN PRIVATE KEY-----\n                        MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
         32, "", 0},
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        char text[512];
        size_t len = (size_t)snprintf(text, sizeof(text), "x %s", forms[i].before);
        for (unsigned k = 0; k < forms[i].count; k++) {
            text[len++] = filler[k * 11 % (sizeof(filler) - 1)];
        }
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", forms[i].middle);
        for (unsigned k = 0; k < forms[i].again; k++) {
            text[len++] = filler[k * 5 % (sizeof(filler) - 1)];
        }
        text[len] = '\0';
        struct count found = matches_in(text);
        TEST_ASSERT_EQUAL_UINT_MESSAGE(1, found.count, text);
        TEST_ASSERT_EQUAL_STRING(forms[i].rule, rules.list[found.rule].id);
    }
}

/* Published examples of both forms, with their checksums, and of one that is wrong. */
static void known_checksums_of_gitlab(void)
{
    static const char payload[] = "bzox79Of-KE9FD2LjoXXF4CvyxA";
    static const struct {
        const char *behind;
        unsigned count;
    } known[] = {{".01.0r0l8l6ir", 1}, {".0r03gxo7s", 1}, {".01.0r03gxo7a", 0}};
    for (size_t i = 0; i < 3; i++) {
        char text[128];
        snprintf(text, sizeof(text), "t: glpat%s%s%s", "-", payload, known[i].behind);
        TEST_ASSERT_EQUAL_UINT_MESSAGE(known[i].count, matches_in(text).count, text);
    }
}

static void refused(const char *text, const char *because)
{
    struct rules other;
    bool loaded = rules_load(&other, text, strlen(text), why, sizeof(why));
    if (loaded) {
        rules_free(&other);
    }
    TEST_ASSERT_FALSE_MESSAGE(loaded, text);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(why, because), why);
}

static void a_bad_rules_file_is_refused_with_a_reason(void)
{
    const char *rest = "\nname = x\nyes = abc\nno = d\n";
    char text[512];
    refused("", "no rules");
    refused("# nothing\n", "no rules");
    refused("[a]\nname = x\nmatch = abc\nyes = abc\n", "needs");
    refused("[a]\nwhat = x\n", "line 2");
    refused("[A]\n", "line 1");
    refused("[a]\n[a]\n", "line 2");
    refused("stray\n", "line 1");
    refused("[a]\nchecks = nonsense\n", "line 2");
    refused("[a]\nchecks = entropy:9\n", "line 2");
    static const char *const bad[][2] = {
        {"ab*", "longer"}, {"(?:abc)?", "empty"}, {"^abc", "^"},        {"abc$", "^"},
        {"ab(", "rule a"}, {"a{9000}", "longer"}, {"(?=a)b", "rule a"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "[a]\nmatch = %s%s", bad[i][0], rest);
        refused(text, bad[i][1]);
    }
}

static void the_rules_are_no_leak_themselves(void)
{
    struct trial t;
    size_t len;
    trial_begin(&t);
    char *text = trial_read(RF_SCAN_SOURCES "/rules.conf", &len);
    trial_write(&t, "rules.conf", text, len);
    free(text);
    text = trial_read(RF_SCAN_SOURCES "/demo/corpus.c", &len);
    trial_write(&t, "corpus.c", text, len);
    free(text);
    int status = trial_scan(&t, "-j1");
    if (status != 0) {
        text = trial_read(t.out, NULL);
        printf("%s\n", text);
        free(text);
    }
    TEST_ASSERT_EQUAL_INT(0, status);
    trial_end(&t);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_example_goes_as_it_must);
    RUN_TEST(every_rule_has_a_template_that_it_finds);
    RUN_TEST(a_wrong_checksum_is_no_secret);
    RUN_TEST(known_values_of_the_second_stage);
    RUN_TEST(other_forms_of_a_token_are_found);
    RUN_TEST(known_checksums_of_gitlab);
    RUN_TEST(a_token_that_goes_on_is_another_thing);
    RUN_TEST(a_bad_rules_file_is_refused_with_a_reason);
    RUN_TEST(the_rules_are_no_leak_themselves);
    return UNITY_END();
}
