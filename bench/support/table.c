#include "table.h"

#include <stdlib.h>
#include <string.h>

#define USAGE "usage: %s [--json] [--check] [--quick] [--rounds=N] [--only=NAME] [--canary=NS]\n"

/* The value of an option given as --name=value or as two words; NULL if this is another one. */
static const char *value_of(const char *name, int argc, char **argv, int *i)
{
    size_t len = strlen(name);
    if (strncmp(argv[*i], name, len) != 0) {
        return NULL;
    }
    if (argv[*i][len] == '=') {
        return argv[*i] + len + 1;
    }
    return argv[*i][len] == 0 && *i + 1 < argc ? argv[++*i] : NULL;
}

static uint32_t parse_rounds(const char *text)
{
    char *end = NULL;
    unsigned long rounds = strtoul(text, &end, 10);
    if (*end != 0 || rounds == 0 || rounds > 100000) {
        fprintf(stderr, "--rounds=%s: a number from 1 to 100000\n", text);
        exit(2);
    }
    return (uint32_t)rounds | 1u; /* odd, so that there is a middle */
}

static double parse_canary(const char *text)
{
    char *end = NULL;
    double ns = strtod(text, &end);
    if (*end != 0 || !(ns > 0)) {
        fprintf(stderr, "--canary=%s: a time in ns, as the last line of a quiet run says it\n",
                text);
        exit(2);
    }
    return ns;
}

struct bench_options bench_parse(int argc, char **argv)
{
    struct bench_options o = {0};
    for (int i = 1; i < argc; i++) {
        const char *value;
        if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
        } else if (strcmp(argv[i], "--check") == 0) {
            o.check = true;
        } else if (strcmp(argv[i], "--quick") == 0) {
            o.quick = true;
        } else if ((value = value_of("--rounds", argc, argv, &i)) != NULL) {
            o.rounds = parse_rounds(value);
            o.rounds_given = true;
        } else if ((value = value_of("--canary", argc, argv, &i)) != NULL) {
            bench_expect_canary(parse_canary(value));
        } else if ((value = value_of("--only", argc, argv, &i)) != NULL) {
            o.only = value;
        } else {
            bool help = strcmp(argv[i], "--help") == 0;
            fprintf(help ? stdout : stderr, USAGE, argv[0]);
            exit(help ? 0 : 2);
        }
    }
    if (o.rounds == 0) {
        o.rounds = o.quick ? 31 : 101;
    }
    return o;
}

uint32_t bench_rounds(const struct bench_options *options, uint32_t usual, uint32_t quick,
                      uint32_t most)
{
    uint32_t rounds = options->rounds_given ? options->rounds : options->quick ? quick : usual;
    return rounds < most ? rounds : most;
}

bool bench_wanted(const struct bench_options *options, const char *name)
{
    return options->only == NULL || strstr(name, options->only) != NULL;
}

uint32_t bench_select(const struct bench_options *options, struct bench_case *cases, uint32_t count)
{
    uint32_t kept = 1;
    for (uint32_t i = 1; i < count; i++) {
        if (bench_wanted(options, cases[i].name)) {
            cases[kept++] = cases[i];
        }
    }
    return kept;
}

static const char *goal_sign(enum bench_goal kind)
{
    switch (kind) {
    case BENCH_AT_MOST:
    case BENCH_VALUE_AT_MOST:
        return "<=";
    case BENCH_AT_LEAST:
        return ">=";
    default:
        return "<";
    }
}

static void print_json(FILE *out, const char *bench, const char *reference,
                       const struct bench_case *c)
{
    const char *unit = c->unit != NULL ? c->unit : "ns";
    fprintf(out, "{\"bench\":\"%s\",\"name\":\"%s\",\"%s\":%.2f", bench, c->name, unit, c->value);
    if (c->high != 0) {
        fprintf(out, ",\"%s_p10\":%.2f,\"%s_p90\":%.2f", unit, c->low, unit, c->high);
    }
    if (c->rounds != 0) {
        fprintf(out, ",\"rounds\":%u", c->rounds);
    }
    if (c->facts != NULL) {
        fprintf(out, ",%s", c->facts);
    }
    if (c->ratio != 0) {
        fprintf(out, ",\"ratio\":%.4f,\"ratio_to\":\"%s\"", c->ratio,
                c->ratio_to != NULL ? c->ratio_to : reference);
    }
    if (c->kind != BENCH_NO_GOAL) {
        fprintf(out, ",\"goal\":\"%s%.2f\",\"met\":%s", goal_sign(c->kind), c->goal,
                bench_met(c) ? "true" : "false");
    }
    fputs("}\n", out);
}

static void print_row(FILE *out, const struct bench_case *c)
{
    int digits = c->unit != NULL && c->value != 0 && c->value < 100 ? 3 : 1;
    fprintf(out, "%-44s %11.*f", c->name, digits, c->value);
    if (c->high != 0) {
        fprintf(out, " %11.*f %11.*f", digits, c->low, digits, c->high);
    } else {
        fprintf(out, " %11s %11s", "", "");
    }
    if (c->ratio != 0) {
        fprintf(out, " %9.3f", c->ratio);
    } else {
        fprintf(out, " %9s", "");
    }
    if (c->kind != BENCH_NO_GOAL) {
        fprintf(out, "  %2s %.4g  %s", goal_sign(c->kind), c->goal,
                bench_met(c) ? "met" : "NOT MET");
    }
    if (c->unit != NULL || c->ratio_to != NULL) {
        fprintf(out, "  [%s%s%s]", c->unit != NULL ? c->unit : "",
                c->unit != NULL && c->ratio_to != NULL ? ", " : "",
                c->ratio_to != NULL ? c->ratio_to : "");
    }
    fputc('\n', out);
}

void bench_print_head(FILE *out, const struct bench_options *options, const char *bench,
                      const char *reference)
{
    if (!options->json) {
        fprintf(out, "%-44s %11s %11s %11s %8s%s  goal\n", bench, "ns", "p10", "p90", "/ ",
                reference);
    }
}

void bench_print_rows(FILE *out, const struct bench_options *options, const char *bench,
                      const char *reference, const struct bench_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (options->json) {
            print_json(out, bench, reference, &cases[i]);
        } else {
            print_row(out, &cases[i]);
        }
    }
    fflush(out);
}

void bench_print_skipped(FILE *out, const struct bench_options *options, const char *bench,
                         const char *name, const char *why)
{
    if (options->json) {
        fprintf(out, "{\"bench\":\"%s\",\"name\":\"%s\",\"skipped\":\"%s\"}\n", bench, name, why);
    } else {
        fprintf(out, "%-44s skipped: %s\n", name, why);
    }
    fflush(out);
}

void bench_print(FILE *out, const struct bench_options *options, const char *bench,
                 const char *reference, const struct bench_case *cases, uint32_t count)
{
    bench_print_head(out, options, bench, reference);
    bench_print_rows(out, options, bench, reference, cases, count);
}

void bench_print_quiet(FILE *out, const struct bench_options *options, const char *bench)
{
    struct bench_quiet quiet = bench_quiet();
    if (quiet.samples == 0) {
        return;
    }
    if (options->json) {
        fprintf(out,
                "{\"bench\":\"%s\",\"name\":\"samples that were quiet\",\"percent\":%.0f,"
                "\"canary_ns\":%.0f}\n",
                bench, 100 * quiet.part, quiet.canary_ns);
        return;
    }
    if (quiet.part < 0.5) {
        fprintf(
            out,
            "only %.0f %% of the samples were quiet (canary %.0f ns): others were using this core\n",
            100 * quiet.part, quiet.canary_ns);
    } else {
        fprintf(out, "%.0f %% of the samples were quiet (canary %.0f ns)\n", 100 * quiet.part,
                quiet.canary_ns);
    }
}

int bench_status(const struct bench_options *options, const struct bench_case *cases,
                 uint32_t count)
{
    bool all = true;
    for (uint32_t i = 0; i < count; i++) {
        all = all && bench_met(&cases[i]);
    }
    return options->check && !all ? 1 : 0;
}
