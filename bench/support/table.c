#include "table.h"

#include <stdlib.h>
#include <string.h>

struct bench_options bench_parse(int argc, char **argv)
{
    struct bench_options o = {.json = false, .check = false, .rounds = 101};
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
        } else if (strcmp(argv[i], "--check") == 0) {
            o.check = true;
        } else if (strncmp(argv[i], "--rounds=", 9) == 0) {
            unsigned long rounds = strtoul(argv[i] + 9, &end, 10);
            if (*end != 0 || rounds == 0 || rounds > 100000) {
                fprintf(stderr, "%s: a number from 1 to 100000\n", argv[i]);
                exit(2);
            }
            o.rounds = (uint32_t)rounds | 1u; /* odd, so that there is a middle */
        } else {
            bool help = strcmp(argv[i], "--help") == 0;
            fprintf(help ? stdout : stderr, "usage: %s [--json] [--check] [--rounds=N]\n", argv[0]);
            exit(help ? 0 : 2);
        }
    }
    return o;
}

static void print_json(FILE *out, const char *bench, const char *reference,
                       const struct bench_case *c)
{
    fprintf(out,
            "{\"bench\":\"%s\",\"name\":\"%s\",\"ns\":%.2f,\"ns_p10\":%.2f,\"ns_p90\":%.2f,"
            "\"ratio\":%.4f,\"ratio_to\":\"%s\"",
            bench, c->name, c->ns, c->ns_low, c->ns_high, c->ratio, reference);
    if (c->kind != BENCH_NO_GOAL) {
        fprintf(out, ",\"goal\":\"%s%.2f\",\"met\":%s", c->kind == BENCH_AT_MOST ? "<=" : "<",
                c->goal, bench_met(c) ? "true" : "false");
    }
    fputs("}\n", out);
}

static void print_row(FILE *out, const struct bench_case *c)
{
    fprintf(out, "%-40s %11.1f %11.1f %11.1f %9.3f", c->name, c->ns, c->ns_low, c->ns_high,
            c->ratio);
    if (c->kind != BENCH_NO_GOAL) {
        fprintf(out, "  %2s %.2f  %s", c->kind == BENCH_AT_MOST ? "<=" : "<", c->goal,
                bench_met(c) ? "met" : "NOT MET");
    }
    fputc('\n', out);
}

void bench_print(FILE *out, const struct bench_options *options, const char *bench,
                 const char *reference, const struct bench_case *cases, uint32_t count)
{
    if (!options->json) {
        fprintf(out, "%-40s %11s %11s %11s %8s%s  goal\n", bench, "ns", "p10", "p90", "/ ",
                reference);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (options->json) {
            print_json(out, bench, reference, &cases[i]);
        } else {
            print_row(out, &cases[i]);
        }
    }
}

int bench_status(const struct bench_options *options, const struct bench_case *cases,
                 uint32_t count)
{
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        all = all && (cases[i].kind == BENCH_NO_GOAL || bench_met(&cases[i]));
    }
    return options->check && !all ? 1 : 0;
}
