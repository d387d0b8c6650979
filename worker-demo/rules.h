/*
 * The rules: what a secret looks like, read from a file in the format that rules.conf explains, and
 * compiled twice. Hyperscan gets all of them at once and says where to look; PCRE2 gets each alone
 * and says what is there. See matcher.h.
 */
#ifndef RF_SCAN_RULES_H
#define RF_SCAN_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RULES_MAX      1000u
#define RULE_WIDTH_MAX 8192u /* bytes of the longest match of a rule */

enum rule_check {
    CHECK_MIXED = 1u << 0,
    CHECK_ENDS_BASE64 = 1u << 1,
    CHECK_ENDS_BASE64URL = 1u << 2,
    CHECK_CRC62 = 1u << 3,
    CHECK_CRC32HEX = 1u << 4,
    CHECK_BECH32 = 1u << 5,
    CHECK_JWT = 1u << 6,
    CHECK_PEM = 1u << 7,
    CHECK_PLACEHOLDER_OK = 1u << 8,
    CHECK_CRC36 = 1u << 9,
};

struct rule {
    char *id;
    char *name;
    char *match;
    char *yes; /* examples as the bytes they stand for */
    char *no;
    bool warning; /* "warning" instead of "error" in SARIF */
    double entropy_min;
    uint32_t checks;
    uint32_t base64_bytes; /* 0: not checked */
    uint32_t width;        /* bytes of the longest match */
    void *code;            /* pcre2_code */
};

struct rules {
    struct rule *list;
    uint32_t count;
    char **words; /* of placeholders, lower case */
    uint32_t word_count;
    uint32_t width; /* of the widest rule */
    uint64_t hash;  /* of the text they were read from */
    void *database; /* hs_database_t */
};

/* The rules that are built in. */
extern const char rules_builtin[];
extern const char rules_builtin_end[];

/* Reads and compiles. Returns false and a sentence in `why`. */
bool rules_load(struct rules *rules, const char *text, size_t len, char *why, size_t why_size);
void rules_free(struct rules *rules);
/* Tries every example; prints those that go wrong. Returns how many did. */
unsigned rules_try_examples(const struct rules *rules);

#endif
