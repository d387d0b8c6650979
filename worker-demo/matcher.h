/*
 * Finds what the rules describe in a span of bytes.
 *
 * Hyperscan runs over the span once, for all rules, and says at which ends something matches. How it
 * says so (every end, in what order, how often) is its own business: the ends of a rule are gathered
 * into stretches, and within these PCRE2 finds the matches of that rule as a plain search through
 * the whole file would: leftmost first, the next one behind the end of the last. What is found does
 * not depend on the engine's reports, and not on where a file is cut into spans:
 *
 *      what was read:     bytes [ ............................................. ) len
 *                                 ^ from                  ^ until      ^ until + the widest rule + 1
 *      a match counts here if it begins in [from, until); it may end behind. `taken` remembers, for
 *      each rule, how far the last match reached, and goes from one span to the next.
 *
 * A match becomes a finding if it passes the second stage (check.h).
 */
#ifndef RF_SCAN_MATCHER_H
#define RF_SCAN_MATCHER_H

#include "rules.h"

struct span {
    const uint8_t *bytes;
    size_t len;
    size_t from, until; /* of matches that count, in bytes[] */
    uint64_t base;      /* where bytes[0] is in the file */
};

struct match {
    uint32_t rule;
    uint64_t start, end;   /* in the file */
    const uint8_t *secret; /* in the span */
    size_t secret_len;
    uint64_t secret_start; /* in the file */
};

typedef void matcher_emit(void *context, const struct match *match);

struct matcher;
struct matcher *matcher_create(const struct rules *rules);
void matcher_destroy(struct matcher *matcher);

/* A new file. */
void matcher_reset(struct matcher *matcher);
/* Without an emit, the matches are only gone past. */
void matcher_scan(struct matcher *matcher, const struct span *span, matcher_emit *emit,
                  void *context);
/* Whether a rule needed too long for something in the last span, so that a match may be missing. The
 * rules that are built in never do. */
bool matcher_gave_up(const struct matcher *matcher);
/* Where the last match of a rule ended, in the file; 0 if there was none. */
uint64_t matcher_taken(const struct matcher *matcher, uint32_t rule);
void matcher_set_taken(struct matcher *matcher, uint32_t rule, uint64_t end);

#endif
