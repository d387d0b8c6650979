/* ringfence-sim: plays seeds, compares, judges, reports. See README.md beside it. */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static const char *const levels[SIM_LEVELS] = {"sunny", "stormy", "radioactive"};
static const char *const overloads[OVERLOADS] = {"none", "burst-claim", "capacity-drop",
                                                 "burst-shards"};

static const char usage[] =
    "ringfence-sim: the store against its model, by a seed\n"
    "\n"
    "  --seed N        the first seed [1]\n"
    "  --runs K        how many seeds, one after the other [1]\n"
    "  --jobs J        processes at a time [1]\n"
    "  --level L       sunny, stormy, radioactive [stormy]\n"
    "  --workers N     [4], at most 32\n"
    "  --shards N      of a run at its beginning [15], at most 512\n"
    "  --ops N         with faults [10000]\n"
    "  --liveness N    without, at most; then every shard is terminal [2000]\n"
    "  --cooldown T    ticks between two claims of a worker [every fourth seed: 7]\n"
    "  --overload S    none, burst-claim, capacity-drop, burst-shards [by seed]\n"
    "  --durable       a store with a log [every second seed, where it is built in]\n"
    "  --volatile      never one\n"
    "  --judge J       both, reference, checker [both]\n"
    "  --no-points     nobody dies or stops inside a call; then the stream is one and the same\n"
    "                  for all versions that answer alike\n"
    "  --keep-going    count violations of rules, do not end at the first\n"
    "  --json FILE     the report; - is standard output\n"
    "  --events FILE   the stream of events, 40 bytes each (one seed)\n"
    "  --trace FILE    every call in words (one seed)\n"
    "  --steps LIST    of the plan only the steps of these numbers: 1,7,20-31 (one seed)\n"
    "  --no-shrink     do not shorten a failing plan\n"
    "  --false-rule    the checker believes in a cooldown that nobody keeps: to see a failure\n"
    "  --quiet         no line for a seed that is well\n";

struct options {
    struct sim_config config;
    uint64_t runs;
    uint32_t jobs;
    int cooldown; /* -1: by seed */
    int overload;
    int durable;
    bool shrink, quiet;
    const char *json, *events, *trace, *steps;
};

static void refuse(const char *why, const char *word)
{
    fprintf(stderr, "ringfence-sim: %s %s\n\n%s", why, word, usage);
    exit(2);
}

static uint64_t number(const char *option, const char *text, uint64_t max)
{
    char *end;
    if (text == NULL || *text == 0 || *text == '-') {
        refuse("a number is missing after", option);
    }
    unsigned long long v = strtoull(text, &end, 0);
    if (*end != 0 || v > max) {
        refuse("not a number, or too large, after", option);
    }
    return v;
}

static int word(const char *option, const char *text, const char *const *words, int count)
{
    for (int i = 0; text != NULL && i < count; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    refuse("an unknown word after", option);
    return 0;
}

static void parse(int argc, char **argv, struct options *o)
{
    static const char *const judges[] = {"both", "reference", "checker"};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        bool takes = true;
        if (strcmp(a, "--seed") == 0) {
            o->config.seed = number(a, v, UINT64_MAX);
        } else if (strcmp(a, "--runs") == 0) {
            o->runs = number(a, v, UINT32_MAX);
        } else if (strcmp(a, "--jobs") == 0) {
            o->jobs = (uint32_t)number(a, v, 256);
        } else if (strcmp(a, "--level") == 0) {
            o->config.level = (enum sim_level)word(a, v, levels, SIM_LEVELS);
        } else if (strcmp(a, "--workers") == 0) {
            o->config.workers = (uint32_t)number(a, v, SIM_WORKERS_MAX);
        } else if (strcmp(a, "--shards") == 0) {
            o->config.shards = (uint32_t)number(a, v, SIM_SHARDS_MAX);
        } else if (strcmp(a, "--ops") == 0) {
            o->config.ops = (uint32_t)number(a, v, 100000000);
        } else if (strcmp(a, "--liveness") == 0) {
            o->config.liveness = (uint32_t)number(a, v, 100000000);
        } else if (strcmp(a, "--cooldown") == 0) {
            o->cooldown = (int)number(a, v, 1000000);
        } else if (strcmp(a, "--overload") == 0) {
            o->overload = word(a, v, overloads, OVERLOADS);
        } else if (strcmp(a, "--judge") == 0) {
            o->config.judges = 3u & ~(uint32_t)((const int[]){
                                        0, JUDGE_CHECKER, JUDGE_REFERENCE})[word(a, v, judges, 3)];
        } else if (strcmp(a, "--json") == 0) {
            o->json = v;
        } else if (strcmp(a, "--events") == 0) {
            o->events = v;
        } else if (strcmp(a, "--trace") == 0) {
            o->trace = v;
        } else if (strcmp(a, "--steps") == 0) {
            o->steps = v;
        } else {
            takes = false;
            if (strcmp(a, "--keep-going") == 0) {
                o->config.keep_going = true;
            } else if (strcmp(a, "--no-points") == 0) {
                o->config.no_points = true;
            } else if (strcmp(a, "--false-rule") == 0) {
                o->config.false_rule = true;
            } else if (strcmp(a, "--durable") == 0) {
                o->durable = 1;
            } else if (strcmp(a, "--volatile") == 0) {
                o->durable = 0;
            } else if (strcmp(a, "--no-shrink") == 0) {
                o->shrink = false;
            } else if (strcmp(a, "--quiet") == 0) {
                o->quiet = true;
            } else if (strcmp(a, "--help") == 0) {
                fputs(usage, stdout);
                exit(0);
            } else {
                refuse("unknown option", a);
            }
        }
        if (takes && v == NULL) {
            refuse("nothing after", a);
        }
        i += takes;
    }
    if (o->config.workers == 0 || o->config.shards == 0 || o->runs == 0 || o->jobs == 0) {
        refuse("0 is too few", "");
    }
}

/* What the seed decides where the command does not. */
static struct sim_config config_of(const struct options *o, uint64_t seed)
{
    struct sim_config c = o->config;
    c.seed = seed;
    c.cooldown = o->cooldown >= 0 ? (uint64_t)o->cooldown : seed % 4 == 3 ? 7 : 0;
    c.overload = (enum sim_overload)(o->overload >= 0 ? (uint64_t)o->overload : seed % OVERLOADS);
    c.durable = o->durable >= 0 ? o->durable != 0 : seed % 2 == 0;
    return c;
}

static const char *program = "ringfence-sim"; /* as it was called */

static void print_command(const struct sim_config *c, FILE *out)
{
    fprintf(out,
            "%s --seed %" PRIu64
            " --level %s --workers %u --shards %u --ops %u --liveness %u --cooldown %" PRIu64
            " --overload %s %s%s%s%s%s",
            program, c->seed, levels[c->level], c->workers, c->shards, c->ops, c->liveness,
            c->cooldown, overloads[c->overload], c->durable ? "--durable" : "--volatile",
            c->judges == JUDGE_CHECKER     ? " --judge checker"
            : c->judges == JUDGE_REFERENCE ? " --judge reference"
                                           : "",
            c->keep_going ? " --keep-going" : "", c->no_points ? " --no-points" : "",
            c->false_rule ? " --false-rule" : "");
}

static void print_steps(const struct plan *p, FILE *out)
{
    fputs(" --steps ", out);
    for (uint32_t i = 0, from; i < p->count; i++) {
        fprintf(out, "%s%u", i == 0 ? "" : ",", p->steps[i].number);
        for (from = i; i + 1 < p->count && p->steps[i + 1].number == p->steps[i].number + 1; i++) {
        }
        if (i != from) {
            fprintf(out, "-%u", p->steps[i].number);
        }
    }
    fputs(p->count == 0 ? "0" : "", out);
}

/* The plan of the seed, or what is asked for of it. */
static void make_plan(const struct options *o, const struct sim_config *c, struct plan *plan)
{
    plan_make(plan, c);
    if (o->steps != NULL && !plan_keep(plan, o->steps)) {
        refuse("not numbers of the plan's steps, in order, after --steps:", o->steps);
    }
}

/* Before anything is begun. */
static void check_steps(const struct options *o)
{
    const struct sim_config c = config_of(o, o->config.seed);
    struct plan plan;
    make_plan(o, &c, &plan);
    plan_free(&plan);
}

static FILE *open_for(const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "w");
    if (f == NULL) {
        fprintf(stderr, "ringfence-sim: %s can't be written\n", path);
        exit(2);
    }
    return f;
}

static void print_line(const struct sim_config *c, const struct sim_report *r, FILE *out)
{
    uint64_t executed = 0, refused = 0;
    for (int i = 0; i < CALLS; i++) {
        executed += r->executed[i];
    }
    for (int i = 0; i < 100; i++) {
        refused += r->refused[i];
    }
    fprintf(out,
            "seed %" PRIu64 " %s: %s, %" PRIu64 " ops, %" PRIu64 " calls (%" PRIu64
            " executed, %" PRIu64 " refused), %" PRIu64 " deaths (%" PRIu64 " at points), %" PRIu64
            " stops, %" PRIu64 " regions lost, %" PRIu64 " recoveries, liveness after %" PRIu64
            ", stream %016" PRIx64 "\n",
            r->seed, levels[c->level], r->failed ? r->kind : "ok", r->ops, r->calls, executed,
            refused, r->deaths, r->deaths_at_points, r->stops, r->rebuilds, r->recoveries,
            r->liveness_used, r->stream_hash);
}

static void investigate(const struct options *o, const struct sim_config *c,
                        const struct sim_report *r)
{
    struct plan plan;
    printf("FAILED seed %" PRIu64 " at step %u of %u: %s: %s\n  again: ", r->seed, r->step,
           r->plan_steps, r->kind, r->what);
    make_plan(o, c, &plan);
    print_command(c, stdout);
    if (o->steps != NULL) {
        print_steps(&plan, stdout);
    }
    fputc('\n', stdout);
    if (!o->shrink) {
        plan_free(&plan);
        return;
    }
    sim_shrink(c, &plan, r, 400);
    printf("  shorter: ");
    print_command(c, stdout);
    print_steps(&plan, stdout);
    printf("\n  shortened to ");
    sim_explain(c, &plan, stdout);
    plan_free(&plan);
}

/* --- many seeds --- */

struct sums {
    uint64_t seeds, failed, ops, calls, nanoseconds, looks, full_scans;
    uint64_t violations[RULES], refused[100], events[RF_EVENT_RUN_PURGED + 1];
    uint64_t executed[CALLS], replayed[CALLS], by_step[STEP_KINDS];
    uint64_t deaths, deaths_at_points, stops, busy, rebuilds, restarts, recoveries, lost_ops, idle;
    uint64_t expired, opens_killed;
    uint64_t liveness_max;
    uint64_t available, scanned, overloaded, recovered;
    struct sim_goodput goodput[3];
    uint64_t differences, crashes, other;
};

static void add_up(struct sums *s, const struct sim_config *c, const struct sim_report *r)
{
    s->seeds++;
    s->failed += r->failed;
    s->ops += r->ops;
    s->calls += r->calls;
    s->nanoseconds += r->nanoseconds;
    s->looks += r->looks;
    s->full_scans += r->full_scans;
    for (int i = 0; i < RULES; i++) {
        s->violations[i] += r->violations[i];
    }
    for (int i = 0; i < 100; i++) {
        s->refused[i] += r->refused[i];
    }
    for (int i = 0; i <= RF_EVENT_RUN_PURGED; i++) {
        s->events[i] += r->events[i];
    }
    for (int i = 0; i < CALLS; i++) {
        s->executed[i] += r->executed[i];
        s->replayed[i] += r->replayed[i];
    }
    for (int i = 0; i < STEP_KINDS; i++) {
        s->by_step[i] += r->by_step[i];
    }
    s->deaths += r->deaths;
    s->deaths_at_points += r->deaths_at_points;
    s->stops += r->stops;
    s->busy += r->busy;
    s->rebuilds += r->rebuilds;
    s->restarts += r->restarts;
    s->recoveries += r->recoveries;
    s->lost_ops += r->lost_ops;
    s->idle += r->idle;
    s->expired += r->expired;
    s->opens_killed += r->opens_killed;
    s->available += r->available;
    s->scanned += r->scanned;
    s->liveness_max = r->liveness_used > s->liveness_max ? r->liveness_used : s->liveness_max;
    s->overloaded += c->overload != OVERLOAD_NONE;
    s->recovered += c->overload != OVERLOAD_NONE && r->goodput[2].completed != 0;
    for (int i = 0; i < 3; i++) {
        s->goodput[i].steps += r->goodput[i].steps;
        s->goodput[i].completed += r->goodput[i].completed;
        s->goodput[i].checkpointed += r->goodput[i].checkpointed;
    }
    if (r->failed) {
        s->differences += strcmp(r->kind, "difference") == 0;
        s->crashes += r->crashed;
    }
}

static void json_numbers(FILE *f, const char *name, const uint64_t *values, int count,
                         const char *(*word_of)(int))
{
    bool first = true;
    fprintf(f, "\"%s\": {", name);
    for (int i = 0; i < count; i++) {
        if (values[i] != 0) {
            fprintf(f, "%s\"%s\": %" PRIu64, first ? "" : ", ", word_of(i), values[i]);
            first = false;
        }
    }
    fputs("}", f);
}

static const char *status_word(int i)
{
    return rf_status_name((rf_status)i);
}
static const char *event_word(int i)
{
    return rf_event_name((rf_event_kind)i);
}
static const char *call_word(int i)
{
    return call_name((enum call)i);
}
static const char *step_word(int i)
{
    return step_name((enum step_kind)i);
}
static const char *rule_word(int i)
{
    return rule_name((enum rule)i);
}

static void json_goodput(FILE *f, const char *name, const struct sim_goodput *g, const char *end)
{
    fprintf(f,
            "\"%s\": {\"steps\": %" PRIu64 ", \"completed\": %" PRIu64
            ", \"checkpointed\": %" PRIu64 ", \"per_1000_steps\": %" PRIu64 "}%s",
            name, g->steps, g->completed, g->checkpointed,
            g->steps == 0 ? 0 : (g->completed + g->checkpointed) * 1000 / g->steps, end);
}

static void json_line(FILE *f, const char *name, const uint64_t *values, int count,
                      const char *(*word_of)(int))
{
    fputs("  ", f);
    json_numbers(f, name, values, count, word_of);
    fputs(",\n", f);
}

/* Where somebody died or was stopped, and how often; shortening a failing plan counts as well. */
static void json_points(FILE *f)
{
    enum { ROOM = 256 };
    const char *names[ROOM];
    uint64_t deaths[ROOM], stops[ROOM];
    uint32_t count = points_list(names, deaths, stops, ROOM);
    fputs("  \"points\": {", f);
    for (uint32_t i = 0; i < count; i++) {
        fprintf(f, "%s\"%s\": {\"deaths\": %" PRIu64 ", \"stops\": %" PRIu64 "}",
                i == 0 ? "" : ", ", names[i], deaths[i], stops[i]);
    }
    fputs("},\n", f);
}

static void json_run(FILE *f, const struct sim_config *c, const struct sim_report *r)
{
    fprintf(f, "    {\"seed\": %" PRIu64 ", \"result\": \"%s\", \"again\": \"", r->seed,
            r->failed ? r->kind : "ok");
    print_command(c, f);
    fprintf(f,
            "\", \"operations\": %" PRIu64 ", \"calls\": %" PRIu64 ", \"end_time\": %" PRIu64
            ", \"liveness_ops\": %" PRIu64 ", \"stream\": \"%016" PRIx64 "\", ",
            r->ops, r->calls, r->end_time, r->liveness_used, r->stream_hash);
    json_numbers(f, "events", r->events, RF_EVENT_RUN_PURGED + 1, event_word);
    fputs(", ", f);
    json_numbers(f, "rejections", r->refused, 100, status_word);
    fputs(", ", f);
    json_numbers(f, "violations", r->violations, RULES, rule_word);
    fprintf(
        f,
        ", \"overload\": {\"kind\": \"%s\", \"completed_in_recovery\": %s, \"available\": %" PRIu64
        ", \"full_scan\": %" PRIu64 ", ",
        overloads[c->overload], r->goodput[2].completed != 0 ? "true" : "false", r->available,
        r->scanned);
    json_goodput(f, "before", &r->goodput[0], ", ");
    json_goodput(f, "during", &r->goodput[1], ", ");
    json_goodput(f, "after", &r->goodput[2], "}}");
}

static void write_json(const struct options *o, const struct sums *s, const struct sim_report *runs,
                       uint64_t wall_ms)
{
    FILE *f = open_for(o->json);
    fprintf(f, "{\n  \"seed\": %" PRIu64 ",\n  \"seeds\": %" PRIu64 ",\n  \"level\": \"%s\",\n",
            o->config.seed, s->seeds, levels[o->config.level]);
    fprintf(f, "  \"workers\": %u,\n  \"shards\": %u,\n", o->config.workers, o->config.shards);
    fprintf(f,
            "  \"failed\": %" PRIu64 ",\n  \"differences\": %" PRIu64 ",\n  \"crashes\": %" PRIu64
            ",\n",
            s->failed, s->differences, s->crashes);
    fprintf(f,
            "  \"operations\": %" PRIu64 ",\n  \"calls\": %" PRIu64 ",\n  \"cpu_ms\": %" PRIu64
            ",\n  \"wall_ms\": %" PRIu64 ",\n  \"operations_per_cpu_second\": %" PRIu64 ",\n",
            s->ops, s->calls, s->nanoseconds / 1000000, wall_ms,
            s->nanoseconds == 0 ? 0 : s->ops * 1000000 / (s->nanoseconds / 1000 + 1));
    fprintf(f, "  \"shards_compared\": %" PRIu64 ",\n  \"full_scans\": %" PRIu64 ",\n", s->looks,
            s->full_scans);
    fprintf(f,
            "  \"deaths\": %" PRIu64 ",\n  \"deaths_at_points\": %" PRIu64
            ",\n  \"stops\": %" PRIu64 ",\n  \"busy\": %" PRIu64 ",\n  \"regions_lost\": %" PRIu64
            ",\n  \"cold_recoveries\": %" PRIu64 ",\n  \"opens_killed\": %" PRIu64
            ",\n  \"operations_lost_with_tails\": %" PRIu64
            ",\n  \"leases_expired_by_faults\": %" PRIu64 ",\n",
            s->deaths, s->deaths_at_points, s->stops, s->busy, s->rebuilds, s->recoveries,
            s->opens_killed, s->lost_ops, s->expired);
    json_points(f);
    fprintf(f, "  \"idle\": %" PRIu64 ",\n  \"liveness_ops_max\": %" PRIu64 ",\n", s->idle,
            s->liveness_max);
    json_line(f, "steps", s->by_step, STEP_KINDS, step_word);
    json_line(f, "executed", s->executed, CALLS, call_word);
    json_line(f, "replayed", s->replayed, CALLS, call_word);
    json_line(f, "rejections", s->refused, 100, status_word);
    json_line(f, "events", s->events, RF_EVENT_RUN_PURGED + 1, event_word);
    json_line(f, "violations", s->violations, RULES, rule_word);
    fprintf(f,
            "  \"overload\": {\"seeds\": %" PRIu64 ", \"completed_in_recovery\": %" PRIu64
            ", \"available\": %" PRIu64 ", \"full_scan\": %" PRIu64 ", ",
            s->overloaded, s->recovered, s->available, s->scanned);
    json_goodput(f, "before", &s->goodput[0], ", ");
    json_goodput(f, "during", &s->goodput[1], ", ");
    json_goodput(f, "after", &s->goodput[2], "},\n  \"runs\": [\n");
    for (uint64_t i = 0; i < s->seeds; i++) {
        const struct sim_config c = config_of(o, runs[i].seed);
        json_run(f, &c, &runs[i]);
        fputs(i + 1 < s->seeds ? ",\n" : "\n  ]\n}\n", f);
    }
    if (f != stdout) {
        fclose(f);
    }
}

static uint64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Many write into one pipe. */
_Static_assert(sizeof(struct sim_report) <= PIPE_BUF, "a report is written whole or not at all");

/* A job plays every jobs-th seed and sends its reports home. */
static void job(const struct options *o, uint32_t me, int to)
{
    for (uint64_t i = me; i < o->runs; i += o->jobs) {
        struct sim_config c = config_of(o, o->config.seed + i);
        struct plan plan;
        struct sim_report r;
        c.events = o->events != NULL ? open_for(o->events) : NULL;
        c.trace = o->trace != NULL ? open_for(o->trace) : NULL;
        make_plan(o, &c, &plan);
        sim_run_apart(&c, &plan, &r);
        plan_free(&plan);
        if (write(to, &r, sizeof(r)) != (ssize_t)sizeof(r)) {
            _exit(1);
        }
    }
    fflush(NULL);
    _exit(0);
}

static bool receive(int from, struct sim_report *r)
{
    size_t got = 0;
    while (got < sizeof(*r)) {
        ssize_t n = read(from, (uint8_t *)r + got, sizeof(*r) - got);
        if (n <= 0) {
            return false;
        }
        got += (size_t)n;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct sums sums;
    struct options o = {.config = {.seed = 1,
                                   .level = SIM_STORMY,
                                   .workers = 4,
                                   .shards = 15,
                                   .ops = 10000,
                                   .liveness = 2000,
                                   .judges = JUDGE_REFERENCE | JUDGE_CHECKER},
                        .runs = 1,
                        .jobs = 1,
                        .cooldown = -1,
                        .overload = -1,
                        .durable = -1,
                        .shrink = true};
    program = argv[0];
    parse(argc, argv, &o);
    if (o.runs != 1 && (o.events != NULL || o.trace != NULL || o.steps != NULL)) {
        refuse("only for one seed:", "--events, --trace, --steps");
    }
    check_steps(&o);
    struct sim_report *runs = calloc(o.runs, sizeof(*runs));
    if (runs == NULL) {
        return 2;
    }
    points_share();
    uint64_t begun = wall_ms(), shown = begun;
    int ends[2];
    if (pipe(ends) != 0) {
        return 2;
    }
    fflush(NULL);
    for (uint32_t j = 0; j < o.jobs; j++) {
        pid_t child = fork();
        if (child < 0) {
            return 2;
        }
        if (child == 0) {
            close(ends[0]);
            job(&o, j, ends[1]);
        }
    }
    close(ends[1]);
    struct sim_report r;
    bool terminal = isatty(2);
    while (receive(ends[0], &r)) {
        struct sim_config c = config_of(&o, r.seed);
        runs[r.seed - o.config.seed] = r;
        add_up(&sums, &c, &r);
        if (!o.quiet || r.failed) {
            print_line(&c, &r, stdout);
        }
        if (r.failed) {
            investigate(&o, &c, &r);
        }
        fflush(stdout);
        if (wall_ms() - shown > (terminal ? 500 : 10000)) {
            shown = wall_ms();
            fprintf(stderr,
                    "%s%" PRIu64 " of %" PRIu64 " seeds, %" PRIu64 " failed, %" PRIu64 " s%s",
                    terminal ? "\r" : "", sums.seeds, o.runs, sums.failed, (shown - begun) / 1000,
                    terminal ? "" : "\n");
        }
    }
    while (wait(NULL) > 0) {
    }
    uint64_t took = wall_ms() - begun;
    printf("%" PRIu64 " seeds (%s), %" PRIu64 " operations, %" PRIu64 " calls: %" PRIu64
           " failed; %" PRIu64 " operations a second of one core, %" PRIu64 ".%01" PRIu64 " s\n",
           sums.seeds, levels[o.config.level], sums.ops, sums.calls, sums.failed,
           sums.nanoseconds == 0 ? 0 : sums.ops * 1000000 / (sums.nanoseconds / 1000 + 1),
           took / 1000, took % 1000 / 100);
    if (o.json != NULL) {
        write_json(&o, &sums, runs, took);
    }
    free(runs);
    return sums.failed == 0 && sums.seeds == o.runs ? 0 : 1;
}
