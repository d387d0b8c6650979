/*
 * Every operation, in every mode, by 1 to 64 processes, on shards of their own and on one for all: how many
 * a second, and how long one takes at a fixed rate. Every call is asserted to have been executed, and to be
 * durable if it waited for that. README.md says how.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "micro/micro.h"

#define ROUNDS       3u /* at full speed, and one before that does not count */
#define ROUNDS_PACED 3u /* at a fixed rate */
#define ROUNDS_MAX   31u
#define STEPS_MAX    24u
#define SHARDS_MAX   1300000u /* the largest registration, and what was there before */
#define PACED_S      0.2
#define LOAD         0.5    /* the fixed rate, of the highest one */
#define SLEEPS_MAX   32000u /* a second, of all together: what the timers of two cores do with ease */
#define SLEEPS_EACH  2000u
#define LOOKS_EACH   500000u /* a second: looking at the clock must not be what it is busy with */

struct bench_options options;

static const double parts[] = {0.5, 0.9, 0.99, 0.999, 1};
static const char *const part_names[] = {"p50", "p90", "p99", "p99.9", "max"};

const char *mode_name(rf_durability mode)
{
    switch (mode) {
    case RF_VOLATILE:
        return "volatile";
    case RF_NOWAIT:
        return "nowait";
    case RF_WAIT:
        break;
    }
    return "durable";
}

void open_mode(struct farm *farm, rf_durability mode)
{
    if (mode == RF_VOLATILE) {
        farm_open(farm, "micro", SHARDS_MAX, false);
    } else {
        farm_open_durable(farm, "micro", SHARDS_MAX, false);
    }
}

static struct parcel parcel_of(rf_durability mode, uint32_t processes)
{
    uint32_t all = mode == RF_WAIT ? 16384 : 65536, most = mode == RF_WAIT ? 1024 : 8192;
    uint32_t lives = all / processes < most ? all / processes : most;
    return (struct parcel){
        .lives = lives,
        .residuals = lives / 8,
        .splits_2 = lives / 8,
        .splits_16 = lives / 64 > 2 ? lives / 64 : 2,
        .splits_256 = lives / 512 > 2 ? lives / 512 : 2,
    };
}

static bool is_crowded(uint32_t processes)
{
    int cores[GANG_MAX];
    return processes > bench_cores(cores, GANG_MAX);
}

/* --- one round --- */

struct row {
    char name[96];
    char facts[96]; /* which one it is */
    const struct step *step;
    bool wanted;
    double rates[ROUNDS_MAX];
    double rate;                            /* the median of these */
    double fixed;                           /* the rate of the others */
    double times[COUNT(parts)][ROUNDS_MAX]; /* us */
    uint64_t calls;                         /* of the round that had the fewest */
};

struct table {
    struct row rows[STEPS_MAX];
    uint32_t count;
};

static void make_runs(struct farm *farm, struct setting *setting)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    struct farm_manifest own = farm_manifest(setting->processes * parcel_size(&setting->parcel));
    struct farm_manifest one = farm_manifest(1), look = farm_manifest(LOOK_SHARDS);
    farm_purge(farm, RUN_LOOK);
    farm_purge(farm, RUN_OWN);
    farm_purge(farm, RUN_ONE);
    farm_purge(farm, RUN_TURN);
    farm_register(farm, RUN_OWN, &own);
    farm_register(farm, RUN_ONE, &one);
    farm_register(farm, RUN_TURN, &one);
    farm_register(farm, RUN_LOOK, &look);
    farm_manifest_free(&look);
    farm_manifest_free(&own);
    farm_manifest_free(&one);
    must_have(rf_acquire(farm->store, ++farm->now, &farm->tenant, RUN_ONE, 1, 0, RF_DETACHED,
                         &grant, &result),
              &result, "acquire");
    setting->one = grant.lease;
}

/* How long a step is done that can be done over and over. */
static double length_s(const struct setting *setting)
{
    return setting->mode == RF_WAIT ? 0.2 : is_crowded(setting->processes) ? 0.1 : 0.03;
}

/* What the step before left to be written is not part of the next one's time. */
static void write_out(struct farm *farm, const struct setting *setting)
{
    rf_detail detail = {0};
    rf_status status = setting->mode == RF_VOLATILE ? RF_OK : rf_barrier(farm->store, &detail);
    assert(status == RF_OK);
}

static struct gang_outcome run_closed(struct farm *farm, struct gang *gang,
                                      const struct setting *setting, const struct step *step)
{
    write_out(farm, setting);
    return gang_run(gang, &(struct gang_order){
                              .step = step->step,
                              .count = step->count != NULL ? step->count(&setting->parcel) : 0,
                              .seconds = length_s(setting),
                          });
}

static double fixed_rate(const struct setting *setting, double highest)
{
    bool crowded = is_crowded(setting->processes);
    double rate = LOAD * highest, most = (crowded ? SLEEPS_EACH : LOOKS_EACH) * setting->processes;
    most = crowded && most > SLEEPS_MAX ? SLEEPS_MAX : most;
    return rate < most ? rate : most;
}

static struct gang_outcome run_paced(struct farm *farm, struct gang *gang,
                                     const struct setting *setting, const struct step *step,
                                     double rate)
{
    write_out(farm, setting);
    struct gang_order order = {.step = step->step, .rate = rate, .seconds = PACED_S};
    if (step->count != NULL) {
        uint64_t paced = (uint64_t)(rate / setting->processes * PACED_S) + 1;
        order.count = step->count(&setting->parcel);
        order.paced = paced < order.count ? paced : order.count;
    }
    return gang_run(gang, &order);
}

/* round < 0: to warm up. */
static void play_closed(struct farm *farm, struct gang *gang, const struct setting *setting,
                        struct table *table, int round)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct gang_outcome outcome = run_closed(farm, gang, setting, table->rows[i].step);
        if (round >= 0) {
            table->rows[i].rates[round] = outcome.rate;
        }
    }
}

static void play_paced(struct farm *farm, struct gang *gang, const struct setting *setting,
                       struct table *table, uint32_t round)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct row *row = &table->rows[i];
        if (!row->wanted) {
            run_closed(farm, gang, setting, row->step);
            continue;
        }
        struct gang_outcome outcome = run_paced(farm, gang, setting, row->step, row->fixed);
        for (uint32_t p = 0; p < COUNT(parts); p++) {
            row->times[p][round] = (double)histogram_quantile(outcome.times, parts[p]) / 1e3;
        }
        row->calls =
            round == 0 || outcome.times->count < row->calls ? outcome.times->count : row->calls;
    }
}

/* --- rows --- */

static void print_row(struct row *row, uint32_t rounds, uint32_t rounds_paced)
{
    char facts[1024];
    struct bench_case c = {.name = row->name, .unit = "ops/s", .facts = facts};
    int at =
        snprintf(facts, sizeof(facts), "%s,\"rate\":%.0f,\"calls\":%" PRIu64 ",\"rounds_paced\":%u",
                 row->facts, row->fixed, row->calls, rounds_paced);
    bench_summarize(&c, row->rates, rounds);
    for (uint32_t p = 0; p < COUNT(parts); p++) {
        double least = bench_quantile(row->times[p], rounds_paced, 0);
        double most = bench_quantile(row->times[p], rounds_paced, 1);
        double middle = bench_quantile(row->times[p], rounds_paced, 0.5);
        at += snprintf(facts + at, sizeof(facts) - (size_t)at,
                       ",\"us_%s\":%.3f,\"us_%s_least\":%.3f,\"us_%s_most\":%.3f", part_names[p],
                       middle, part_names[p], least, part_names[p], most);
    }
    bench_print_rows(stdout, &options, "micro", "", &c, 1);
    if (!options.json) {
        printf("    at %.0f/s, us:", row->fixed);
        for (uint32_t p = 0; p < COUNT(parts); p++) {
            printf("  %s %.2f", part_names[p], bench_quantile(row->times[p], rounds_paced, 0.5));
        }
        printf("\n");
        fflush(stdout);
    }
}

static bool fill_table(struct table *table, const struct setting *setting, const struct step *steps,
                       uint32_t count, bool one)
{
    bool any = false;
    assert(count <= STEPS_MAX);
    memset(table, 0, sizeof(*table));
    for (uint32_t i = 0; i < count; i++) {
        struct row *row = &table->rows[i];
        row->step = &steps[i];
        if (!steps[i].unseen) {
            snprintf(row->name, sizeof(row->name), "%s, %u%s: %s", mode_name(setting->mode),
                     setting->processes, one ? " on one shard" : "", steps[i].name);
            snprintf(row->facts, sizeof(row->facts),
                     "\"op\":\"%s\",\"mode\":\"%s\",\"processes\":%u,\"shard\":\"%s\"",
                     steps[i].name, mode_name(setting->mode), setting->processes,
                     one ? "one" : "own");
            row->wanted = bench_wanted(&options, row->name);
            any = any || row->wanted;
        }
    }
    table->count = count;
    return any;
}

static void settle_rates(struct table *table, const struct setting *setting, uint32_t rounds)
{
    for (uint32_t i = 0; i < table->count; i++) {
        struct row *row = &table->rows[i];
        row->rate = bench_quantile(row->rates, rounds, 0.5);
        row->fixed = fixed_rate(setting, row->rate);
    }
}

static void print_table(struct table *table, uint32_t rounds, uint32_t rounds_paced)
{
    for (uint32_t i = 0; i < table->count; i++) {
        if (table->rows[i].wanted) {
            print_row(&table->rows[i], rounds, rounds_paced);
        }
    }
}

static void measure_setting(struct farm *farm, struct setting *setting)
{
    static struct table own, one;
    const uint32_t rounds = bench_rounds(&options, ROUNDS, 1, ROUNDS_MAX);
    const uint32_t rounds_paced = bench_rounds(&options, ROUNDS_PACED, 1, ROUNDS_MAX);
    const struct gang_order anew = {.step = start_over, .count = 1};
    bool own_wanted = fill_table(&own, setting, own_steps, own_step_count, false);
    bool one_wanted = fill_table(&one, setting, one_steps, one_step_count, true);
    own.count = own_wanted ? own.count : 0;
    one.count = one_wanted ? one.count : 0;
    if (!own_wanted && !one_wanted) {
        return;
    }
    struct gang *gang = gang_start(begin_worker, setting, setting->processes);
    for (int r = -1; r < (int)rounds; r++) {
        make_runs(farm, setting);
        gang_run(gang, &anew);
        play_closed(farm, gang, setting, &own, r);
        play_closed(farm, gang, setting, &one, r);
    }
    settle_rates(&own, setting, rounds);
    settle_rates(&one, setting, rounds);
    for (uint32_t r = 0; r < rounds_paced; r++) {
        make_runs(farm, setting);
        gang_run(gang, &anew);
        play_paced(farm, gang, setting, &own, r);
        play_paced(farm, gang, setting, &one, r);
    }
    gang_stop(gang);
    print_table(&own, rounds, rounds_paced);
    print_table(&one, rounds, rounds_paced);
}

static int program(int argc, char **argv)
{
    static const rf_durability modes[] = {RF_VOLATILE, RF_NOWAIT, RF_WAIT};
    static const uint32_t crowds[] = {1, 2, 4, 8, 32, 64};
    struct setting *setting =
        mmap(NULL, sizeof(*setting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)argc;
    (void)argv;
    assert(setting != MAP_FAILED);
    bench_print_head(stdout, &options, "micro", "");
    fflush(stdout);
    for (uint32_t m = 0; m < COUNT(modes); m++) {
        static struct farm farm;
        open_mode(&farm, modes[m]);
        for (uint32_t c = 0; c < COUNT(crowds); c++) {
            if (options.quick && crowds[c] != 1 && crowds[c] != 8) {
                continue;
            }
            *setting = (struct setting){
                .mode = modes[m], .processes = crowds[c], .parcel = parcel_of(modes[m], crowds[c])};
            measure_setting(&farm, setting);
        }
        farm_purge(&farm, RUN_OWN);
        measure_register(&farm, modes[m]);
        farm_close(&farm);
        farm_destroy(&farm);
    }
    return 0;
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    return farm_supervise(program, argc, argv);
}
