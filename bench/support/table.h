/* What was measured, for people or as JSON lines. */
#ifndef RF_BENCH_TABLE_H
#define RF_BENCH_TABLE_H

#include <stdio.h>

#include "timing.h"

struct bench_options {
    bool json;
    bool check; /* a missed goal is an error */
    uint32_t rounds;
};

/* --json, --check, --rounds=N. Says what is wrong or asked for, and ends the program, otherwise. */
struct bench_options bench_parse(int argc, char **argv);

/* reference: what ratios are to, such as "h". */
void bench_print(FILE *out, const struct bench_options *options, const char *bench,
                 const char *reference, const struct bench_case *cases, uint32_t count);

/* The exit status of the program: how the goals were met counts only if --check asked for it. */
int bench_status(const struct bench_options *options, const struct bench_case *cases,
                 uint32_t count);

#endif
