/*
 * The same work by ringfence and by the systems that people use instead: workers that claim a shard,
 * checkpoint it eight times and complete it, every step refused to an owner that is none any more. README.md
 * says how each peer is used, and what it can't do.
 *
 * Everything is made in $RF_BENCH_DIR, or /var/tmp: it should be on the disk that is meant.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "peers/peers.h"

#define ROUNDS      3u
#define ROUNDS_MAX  31u
#define ENTRIES_MAX 32u
#define REDIS_GOAL  20.0 /* over Redis everysec */
#define ROW_MAX     96u
#define FACTS_MAX   200u
#define PATIENCE_S  300u /* for a turn of one peer in one configuration */

static struct bench_options options;
static uint32_t rounds;
static struct window window;
static bool missed;

static const uint32_t worker_counts[] = {1, 8, 32};
#define COUNTS COUNT(worker_counts)

/* Who there is; the address is NULL where the client library was not there to build with. */
static const struct {
    const struct peer *peer;
    const char *name;
    const char *packages;
} known[] = {
    {&peer_ringfence, "ringfence", ""},          {&peer_redis, "Redis", "libhiredis-dev"},
    {&peer_sqlite, "SQLite", "libsqlite3-dev"},  {&peer_lmdb, "LMDB", "liblmdb-dev"},
    {&peer_postgres, "PostgreSQL", "libpq-dev"}, {&peer_etcd, "etcd", "libnghttp2-dev"},
    {&peer_beanstalkd, "beanstalkd", ""},
};

/* A peer in one configuration, and what came of it. */
struct entry {
    const struct peer *peer;
    const struct setting *setting;
    bool wanted[COUNTS];
    bool skipped;
    bool failed;
    double steps[COUNTS][ROUNDS_MAX];
    double seconds[COUNTS][ROUNDS_MAX]; /* of the windows */
};
static struct entry *entries; /* in memory that all processes share */
static uint32_t entries_count;
static bool failed;

static const char *const promise_names[PROMISES] = {
    [PROMISE_VOLATILE] = "volatile",
    [PROMISE_SOON] = "soon",
    [PROMISE_NOW] = "now",
};

/* --- what is printed --- */

static void print_skipped(const char *peer, const char *setting, const char *why)
{
    if (options.json) {
        printf("{\"bench\":\"peers\",\"name\":\"%s%s%s\",\"peer\":\"%s\",\"skipped\":\"%s\"}\n",
               peer, setting != NULL ? ", " : "", setting != NULL ? setting : "", peer, why);
    } else {
        printf("%s%s%s: skipped: %s\n", peer, setting != NULL ? ", " : "",
               setting != NULL ? setting : "", why);
    }
    fflush(stdout);
}

static void print_about(const struct entry *e, const char *about)
{
    const char *cannot = e->peer->cannot;
    if (options.json) {
        printf("{\"bench\":\"peers\",\"name\":\"%s, %s\",\"peer\":\"%s\",\"configuration\":\"%s\","
               "\"durability\":\"%s\",\"about\":\"%s\",\"stale_refused\":true%s%s%s}\n",
               e->peer->name, e->setting->name, e->peer->name, e->setting->name,
               promise_names[e->setting->promise], about, cannot != NULL ? ",\"cannot\":\"" : "",
               cannot != NULL ? cannot : "", cannot != NULL ? "\"" : "");
    } else {
        printf("%s, %s: %s; stale owners are refused%s%s\n", e->peer->name, e->setting->name, about,
               cannot != NULL ? "; can't: " : "", cannot != NULL ? cannot : "");
    }
    fflush(stdout);
}

static void row_name(const struct entry *e, uint32_t which, char *name)
{
    snprintf(name, ROW_MAX, "%s, %s, %u worker%s", e->peer->name, e->setting->name,
             worker_counts[which], worker_counts[which] == 1 ? "" : "s");
}

static void facts_of(const struct entry *e, uint32_t which, char *facts)
{
    snprintf(facts, FACTS_MAX,
             "\"peer\":\"%s\",\"configuration\":\"%s\",\"durability\":\"%s\",\"workers\":%u",
             e->peer->name, e->setting->name, promise_names[e->setting->promise],
             worker_counts[which]);
}

static void report(struct bench_case *row)
{
    missed = missed || !bench_met(row);
    bench_print_rows(stdout, &options, "peers", "", row, 1);
}

static void report_steps(struct entry *e)
{
    for (uint32_t i = 0; i < COUNTS; i++) {
        char name[ROW_MAX], which[FACTS_MAX], facts[FACTS_MAX + 40];
        double values[ROUNDS_MAX];
        struct bench_case row = {.name = name, .unit = "ops/s", .facts = facts};
        if (e->wanted[i]) {
            row_name(e, i, name);
            facts_of(e, i, which);
            snprintf(facts, sizeof(facts), "%s,\"window_s\":%.2f", which,
                     bench_quantile(e->seconds[i], rounds, 0));
            memcpy(values, e->steps[i], sizeof(values));
            bench_summarize(&row, values, rounds);
            report(&row);
        }
    }
}

/* --- goals --- */

/* Ours that keeps the same promise and does the same work. */
static const struct entry *counterpart(const struct entry *e)
{
    for (uint32_t i = 0; i < entries_count; i++) {
        const struct entry *ours = &entries[i];
        if (ours->peer == &peer_ringfence && ours->setting->promise == e->setting->promise &&
            ours->setting->renewals == e->peer->keeps_no_cursor && !ours->setting->claims_wait) {
            return ours;
        }
    }
    abort();
}

/* Ratios are of neighbours in time: each round has its own. */
static void report_goal(const struct entry *e, uint32_t which)
{
    char name[ROW_MAX], facts[FACTS_MAX], to[ROW_MAX];
    double ratios[ROUNDS_MAX], values[ROUNDS_MAX];
    const struct entry *ours = counterpart(e);
    const bool everysec = e->setting->value != NULL && strcmp(e->setting->value, "everysec") == 0;
    snprintf(name, sizeof(name), "ringfence %s over %s %s, %u", ours->setting->name, e->peer->name,
             e->setting->name, worker_counts[which]);
    if (ours->failed || e->failed) {
        print_skipped(name, NULL, "one of both failed");
        return;
    }
    for (uint32_t i = 0; i < rounds; i++) {
        if (e->steps[which][i] <= 0 || ours->steps[which][i] <= 0) {
            print_skipped(name, NULL,
                          "a window passed without a single step, and there is no ratio");
            return;
        }
        ratios[i] = ours->steps[which][i] / e->steps[which][i];
    }
    snprintf(to, sizeof(to), "%s, %s", e->peer->name, e->setting->name);
    facts_of(e, which, facts);
    struct bench_case row = {
        .name = name,
        .unit = "ops/s",
        .facts = facts,
        .ratio_to = to,
        .ratio = bench_quantile(ratios, rounds, 0.5),
        .kind = BENCH_AT_LEAST,
        .goal = everysec ? REDIS_GOAL : 1,
    };
    memcpy(values, ours->steps[which], sizeof(values));
    bench_summarize(&row, values, rounds);
    report(&row);
}

static void report_goals(void)
{
    if (!options.json) {
        printf("\nours over each peer that promises the same, by workers\n");
    }
    for (uint32_t i = 0; i < entries_count; i++) {
        for (uint32_t k = 0; k < COUNTS; k++) {
            const struct entry *e = &entries[i];
            if (e->peer != &peer_ringfence && !e->skipped && e->wanted[k]) {
                report_goal(e, k);
            }
        }
    }
}

/* --- measuring --- */

struct turn {
    struct entry *entry;
    uint32_t round;
};

static void play_turn(void *argument)
{
    const struct turn *turn = argument;
    struct entry *e = turn->entry;
    char about[400];
    if (!e->peer->start(e->setting, about, sizeof(about))) {
        e->skipped = true;
        print_skipped(e->peer->name, e->setting->name, about);
        return;
    }
    if (turn->round == 0) {
        stale_check(e->peer, e->setting);
        print_about(e, about);
    }
    for (uint32_t i = 0; i < COUNTS; i++) {
        if (e->wanted[i]) {
            struct outcome outcome = fleet_measure(e->peer, e->setting, worker_counts[i], window);
            e->steps[i][turn->round] = outcome.steps_per_s;
            e->seconds[i][turn->round] = outcome.seconds;
        }
    }
    e->peer->stop();
}

/* A process of its own for each turn: one that fails, or hangs, costs the others nothing. */
static void measure_entry(struct entry *e, uint32_t round)
{
    struct turn turn = {.entry = e, .round = round};
    if (!attempt_apart(play_turn, &turn, PATIENCE_S)) {
        failed = e->failed = true;
        servers_clear();
        print_skipped(e->peer->name, e->setting->name, "it failed, or took too long");
    } else if (!e->skipped && round + 1 == rounds) {
        report_steps(e);
    }
}

static bool any_wanted(const struct entry *e)
{
    bool any = false;
    for (uint32_t i = 0; i < COUNTS; i++) {
        any = any || e->wanted[i];
    }
    return any;
}

static void list_entries(void)
{
    for (uint32_t p = 0; p < COUNT(known); p++) {
        for (uint32_t s = 0; known[p].peer != NULL && s < known[p].peer->settings_count; s++) {
            assert(entries_count < ENTRIES_MAX);
            struct entry *e = &entries[entries_count++];
            e->peer = known[p].peer;
            e->setting = &e->peer->settings[s];
            for (uint32_t k = 0; k < COUNTS; k++) {
                char name[ROW_MAX];
                row_name(e, k, name);
                /* ours that nobody else is compared with in this way stay out */
                e->wanted[k] =
                    bench_wanted(&options, name) &&
                    (p != 0 || options.only != NULL ||
                     (!e->setting->renewals && !(e->setting->claims_wait && options.quick)));
            }
        }
        if (known[p].peer == NULL && bench_wanted(&options, known[p].name)) {
            char why[100];
            snprintf(why, sizeof(why), "built without its client library (%s)", known[p].packages);
            print_skipped(known[p].name, NULL, why);
        }
    }
    /* Whatever is compared with ours needs ours. */
    for (uint32_t i = 0; i < entries_count; i++) {
        for (uint32_t k = 0; k < COUNTS; k++) {
            if (entries[i].peer != &peer_ringfence && entries[i].wanted[k]) {
                ((struct entry *)counterpart(&entries[i]))->wanted[k] = true;
            }
        }
    }
}

static int program(void)
{
    entries = shared_memory(ENTRIES_MAX * sizeof(*entries));
    list_entries();
    if (!options.json) {
        printf(
            "claim, %u checkpoints of 64 bytes, complete; steps a second of all workers together; "
            "median of %u rounds of %.1f s, in %s\n",
            CHECKPOINTS, rounds, window.timed_s, place);
    }
    for (uint32_t round = 0; round < rounds; round++) {
        if (round + 1 == rounds) {
            bench_print_head(stdout, &options, "peers", "");
        }
        for (uint32_t i = 0; i < entries_count; i++) {
            if (!entries[i].skipped && !entries[i].failed && any_wanted(&entries[i])) {
                measure_entry(&entries[i], round);
            }
        }
    }
    report_goals();
    return failed ? 2 : missed && options.check ? 1 : 0;
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    rounds = bench_rounds(&options, ROUNDS, 1, ROUNDS_MAX);
    window = options.quick ? (struct window){.warm_s = 0.1, .timed_s = 0.25, .shards_part = 0.6}
                           : (struct window){.warm_s = 0.2, .timed_s = 1.0, .shards_part = 1};
    return servers_supervise(program);
}
