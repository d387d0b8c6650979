#include "rules.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <hs/hs.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matcher.h"
#include "memory.h"
#include "ringfence/ringfence.h"

/* The file itself, so that the program needs nothing beside it. */
__asm__(".pushsection .rodata\n"
        ".global rules_builtin\n"
        ".global rules_builtin_end\n"
        "rules_builtin:\n"
        ".incbin \"" RF_SCAN_RULES_FILE "\"\n"
        "rules_builtin_end:\n"
        ".byte 0\n"
        ".popsection\n");

struct line {
    unsigned number;
    char *text; /* trimmed */
};

static char *trim(char *text)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1])) {
        text[--len] = '\0';
    }
    return text;
}

/* An example as the bytes it stands for: <> is nothing, \n a new line. */
static char *unfold(const char *text)
{
    char *out = must_alloc(strlen(text) + 1);
    char *to = out;
    while (*text != '\0') {
        if (text[0] == '<' && text[1] == '>') {
            text += 2;
        } else if (text[0] == '\\' && text[1] == 'n') {
            *to++ = '\n';
            text += 2;
        } else {
            *to++ = *text++;
        }
    }
    *to = '\0';
    return out;
}

static bool add_check(struct rule *rule, const char *word)
{
    static const struct {
        const char *word;
        uint32_t check;
    } known[] = {
        {"mixed", CHECK_MIXED},
        {"ends:base64", CHECK_ENDS_BASE64},
        {"ends:base64url", CHECK_ENDS_BASE64URL},
        {"crc62", CHECK_CRC62},
        {"crc36", CHECK_CRC36},
        {"crc32hex", CHECK_CRC32HEX},
        {"bech32", CHECK_BECH32},
        {"jwt", CHECK_JWT},
        {"pem", CHECK_PEM},
        {"placeholder", CHECK_PLACEHOLDER_OK},
    };
    char *end = NULL;
    if (strncmp(word, "entropy:", 8) == 0) {
        rule->entropy_min = strtod(word + 8, &end);
        return end != word + 8 && *end == '\0' && rule->entropy_min >= 0 && rule->entropy_min <= 8;
    }
    if (strncmp(word, "base64:", 7) == 0) {
        rule->base64_bytes = (uint32_t)strtoul(word + 7, &end, 10);
        return *end == '\0' && rule->base64_bytes > 0 && rule->base64_bytes < RULE_WIDTH_MAX;
    }
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(word, known[i].word) == 0) {
            rule->checks |= known[i].check;
            return true;
        }
    }
    return false;
}

static bool set_field(struct rule *rule, const char *key, char *value)
{
    char **field = strcmp(key, "name") == 0    ? &rule->name
                   : strcmp(key, "match") == 0 ? &rule->match
                   : strcmp(key, "yes") == 0   ? &rule->yes
                   : strcmp(key, "no") == 0    ? &rule->no
                                               : NULL;
    if (field != NULL) {
        bool again = *field != NULL;
        free(*field);
        *field = field == &rule->yes || field == &rule->no ? unfold(value) : must_copy(value);
        return !again && value[0] != '\0';
    }
    if (strcmp(key, "level") == 0) {
        rule->warning = strcmp(value, "warning") == 0;
        return rule->warning || strcmp(value, "error") == 0;
    }
    if (strcmp(key, "checks") == 0) {
        char *rest = NULL;
        for (char *w = strtok_r(value, " \t", &rest); w != NULL; w = strtok_r(NULL, " \t", &rest)) {
            if (!add_check(rule, w)) {
                return false;
            }
        }
        return true;
    }
    return false;
}

static bool known_id(const struct rules *rules, const char *id)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        if (strcmp(rules->list[i].id, id) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_line(struct rules *rules, char *text, bool *in_words)
{
    if (text[0] == '[') {
        size_t len = strlen(text);
        if (text[len - 1] != ']' || len < 3 || rules->count == RULES_MAX) {
            return false;
        }
        text[len - 1] = '\0';
        *in_words = strcmp(text + 1, "placeholders") == 0;
        if (*in_words) {
            return true;
        }
        if (known_id(rules, text + 1)) {
            return false;
        }
        for (const char *c = text + 1; *c != '\0'; c++) {
            if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '-') {
                return false;
            }
        }
        rules->list = must_grow(rules->list, rules->count + 1, sizeof(*rules->list));
        rules->list[rules->count] = (struct rule){.id = must_copy(text + 1)};
        rules->count++;
        return true;
    }
    char *equals = strchr(text, '=');
    if (equals == NULL) {
        return false;
    }
    *equals = '\0';
    const char *key = trim(text);
    char *value = trim(equals + 1);
    if (*in_words) {
        if (strcmp(key, "word") != 0 || value[0] == '\0') {
            return false;
        }
        rules->words = must_grow(rules->words, rules->word_count + 1, sizeof(*rules->words));
        char *word = rules->words[rules->word_count++] = must_copy(value);
        for (; *word != '\0'; word++) {
            *word = (char)tolower((unsigned char)*word);
        }
        return true;
    }
    return rules->count > 0 && set_field(&rules->list[rules->count - 1], key, value);
}

/* ^ and $ would mean the ends of what is read at once. */
static bool has_anchor(const char *match)
{
    bool in_class = false;
    for (; *match != '\0'; match++) {
        if (*match == '\\' && match[1] != '\0') {
            match++;
        } else if (*match == '[' && !in_class) {
            in_class = true;
            match += match[1] == '^';
            match += match[1] == ']';
        } else if (*match == ']') {
            in_class = false;
        } else if (!in_class && (*match == '^' || *match == '$')) {
            return true;
        }
    }
    return false;
}

/* PCRE2 for one rule, and how wide its matches can get. */
static bool compile_one(struct rule *rule, char *why, size_t why_size)
{
    hs_expr_info_t *info = NULL;
    hs_compile_error_t *error = NULL;
    if (hs_expression_info(rule->match, 0, &info, &error) != HS_SUCCESS) {
        snprintf(why, why_size, "rule %s: %s", rule->id, error->message);
        hs_free_compile_error(error);
        return false;
    }
    rule->width = info->max_width;
    bool bounded = info->max_width <= RULE_WIDTH_MAX && info->min_width > 0;
    bool anchored = has_anchor(rule->match);
    free(info);
    if (!bounded || anchored) {
        snprintf(why, why_size, "rule %s: %s", rule->id,
                 anchored ? "^ and $ can't be used"
                          : "its match may be empty or longer than 8192 bytes");
        return false;
    }
    int code = 0;
    PCRE2_SIZE at = 0;
    rule->code = pcre2_compile((PCRE2_SPTR)rule->match, PCRE2_ZERO_TERMINATED, 0, &code, &at, NULL);
    if (rule->code == NULL) {
        char message[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof(message));
        snprintf(why, why_size, "rule %s, at %zu: %s", rule->id, at, message);
        return false;
    }
    pcre2_jit_compile(rule->code, PCRE2_JIT_COMPLETE); /* without it: slower, not different */
    return true;
}

static bool compile_all(struct rules *rules, char *why, size_t why_size)
{
    const char **expressions = must_alloc(rules->count * sizeof(*expressions));
    unsigned *flags = must_alloc(rules->count * sizeof(*flags));
    unsigned *ids = must_alloc(rules->count * sizeof(*ids));
    for (uint32_t i = 0; i < rules->count; i++) {
        expressions[i] = rules->list[i].match;
        flags[i] = 0;
        ids[i] = i;
    }
    hs_compile_error_t *error = NULL;
    hs_database_t *database = NULL;
    bool good = hs_compile_multi(expressions, flags, ids, rules->count, HS_MODE_BLOCK, NULL,
                                 &database, &error) == HS_SUCCESS;
    if (!good) {
        snprintf(why, why_size, "rule %s: %s",
                 error->expression >= 0 ? rules->list[error->expression].id : "?", error->message);
        hs_free_compile_error(error);
    }
    rules->database = database;
    free(expressions);
    free(flags);
    free(ids);
    return good;
}

bool rules_load(struct rules *rules, const char *text, size_t len, char *why, size_t why_size)
{
    *rules = (struct rules){.hash = rf_hash64("rf-scan/rules/v1", (rf_bytes){text, len})};
    char *copy = must_alloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    bool good = memchr(text, '\0', len) == NULL;
    bool in_words = false;
    unsigned number = 0;
    if (!good) {
        snprintf(why, why_size, "the rules hold a zero byte");
    }
    for (char *line = copy, *next; good && line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        number++;
        char *trimmed = trim(line);
        if (trimmed[0] != '\0' && trimmed[0] != '#' && !read_line(rules, trimmed, &in_words)) {
            snprintf(why, why_size, "the rules, line %u: not understood", number);
            good = false;
        }
    }
    free(copy);
    if (good && rules->count == 0) {
        snprintf(why, why_size, "there are no rules");
        good = false;
    }
    for (uint32_t i = 0; good && i < rules->count; i++) {
        struct rule *rule = &rules->list[i];
        if (rule->name == NULL || rule->match == NULL || rule->yes == NULL || rule->no == NULL) {
            snprintf(why, why_size, "rule %s needs name, match, yes and no", rule->id);
            good = false;
        } else {
            good = compile_one(rule, why, why_size);
        }
        if (good && rule->width > rules->width) {
            rules->width = rule->width;
        }
    }
    good = good && compile_all(rules, why, why_size);
    if (!good) {
        rules_free(rules);
    }
    return good;
}

void rules_free(struct rules *rules)
{
    for (uint32_t i = 0; i < rules->count; i++) {
        struct rule *rule = &rules->list[i];
        free(rule->id);
        free(rule->name);
        free(rule->match);
        free(rule->yes);
        free(rule->no);
        pcre2_code_free(rule->code);
    }
    for (uint32_t i = 0; i < rules->word_count; i++) {
        free(rules->words[i]);
    }
    free(rules->list);
    free(rules->words);
    hs_free_database(rules->database);
    *rules = (struct rules){0};
}

struct trial {
    const struct rule *rule;
    const struct rules *rules;
    bool found;
};

static void note_trial(void *context, const struct match *match)
{
    struct trial *trial = context;
    trial->found = trial->found || &trial->rules->list[match->rule] == trial->rule;
}

unsigned rules_try_examples(const struct rules *rules)
{
    unsigned wrong = 0;
    struct matcher *matcher = matcher_create(rules);
    for (uint32_t i = 0; i < rules->count; i++) {
        const struct rule *rule = &rules->list[i];
        for (int yes = 0; yes <= 1; yes++) {
            struct trial trial = {.rule = rule, .rules = rules};
            const char *text = yes != 0 ? rule->yes : rule->no;
            matcher_reset(matcher);
            matcher_scan(matcher,
                         &(struct span){.bytes = (const uint8_t *)text,
                                        .len = strlen(text),
                                        .until = strlen(text)},
                         note_trial, &trial);
            if (trial.found != (yes != 0)) {
                fprintf(stderr, "rule %s: its example of what must %sbe found is %sfound\n",
                        rule->id, yes != 0 ? "" : "not ", trial.found ? "" : "not ");
                wrong++;
            }
        }
    }
    matcher_destroy(matcher);
    return wrong;
}
