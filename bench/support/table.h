/* What was measured, for people or as JSON lines. */
#ifndef RF_BENCH_TABLE_H
#define RF_BENCH_TABLE_H

#include <stdio.h>

#include "timing.h"

struct bench_options {
    bool json;
    bool check; /* a missed goal is an error */
    bool quick; /* what has goals, with fewer and shorter rounds */
    uint32_t rounds;
    bool rounds_given;
    const char *only; /* a part of the names of the rows, or groups of rows, wanted; NULL: all */
};

/* --json, --check, --quick, --rounds=N, --only=NAME, --canary=NS. Says what is wrong or asked for, and ends the
 * program, otherwise. */
struct bench_options bench_parse(int argc, char **argv);

/* For what takes too long to be sampled as often as rounds says: as often as was asked for, but no more than
 * `most`, and else `usual` or `quick`. */
uint32_t bench_rounds(const struct bench_options *options, uint32_t usual, uint32_t quick,
                      uint32_t most);

/* Whether --only asks for this one. */
bool bench_wanted(const struct bench_options *options, const char *name);
/* Keeps the cases that --only asks for, and the first; returns how many are left. */
uint32_t bench_select(const struct bench_options *options, struct bench_case *cases,
                      uint32_t count);

/* The line that says what the columns are; nothing with --json. */
void bench_print_head(FILE *out, const struct bench_options *options, const char *bench,
                      const char *reference);
/* reference: what ratios are to, such as "h". */
void bench_print_rows(FILE *out, const struct bench_options *options, const char *bench,
                      const char *reference, const struct bench_case *cases, uint32_t count);
/* Instead of a row that can't be measured here. */
void bench_print_skipped(FILE *out, const struct bench_options *options, const char *bench,
                         const char *name, const char *why);
/* Head and rows. */
void bench_print(FILE *out, const struct bench_options *options, const char *bench,
                 const char *reference, const struct bench_case *cases, uint32_t count);

/* How quiet the machine was, in a line. */
void bench_print_quiet(FILE *out, const struct bench_options *options, const char *bench);

/* The exit status of the program: how the goals were met counts only if --check asked for it. */
int bench_status(const struct bench_options *options, const struct bench_case *cases,
                 uint32_t count);

#endif
