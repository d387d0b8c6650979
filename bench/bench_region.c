/*
 * What the operations cost on a region in shared memory.
 *
 * The unit is h (bare.h). Every call that is timed is asserted to have returned RF_OK and to have
 * been executed: a refusal would be fast, and worth nothing. README.md says what each row is and
 * where its goal comes from.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "bare.h"
#include "farm.h"
#include "table.h"

#define SHARDS      100000u
#define HOT         16u
#define AHEAD       16u
#define DESK        1024u /* shards that acquire, release, park and unpark work on */
#define RUN_HELD    1u
#define RUN_DESK    2u
#define RUN_SCRATCH 3u
#define SLOW_ROUNDS 7u

static struct bare bare;
static struct bench_options options;
static bool missed; /* a goal */

/* --- leases that are held, worked through in turn; each row has a lot of its own --- */

struct lot {
    struct farm *farm;
    rf_lease *leases; /* in the order in which they are visited */
    uint32_t count;
    uint32_t at;
    uint64_t number; /* of the next key: keys only grow */
    /* Keys are written some calls before they are used, so that what is timed is not the wait for
     * a store that was just made. */
    uint8_t keys[AHEAD][FARM_KEY_LEN];
    rf_result result;
};

static void write_ahead(struct lot *lot, uint32_t at)
{
    const rf_lease *lease = &lot->leases[at % lot->count];
    farm_key(lot->keys[at % AHEAD], (uint32_t)lease->shard - 1, lot->number++);
}

static struct lot *make_lot(struct farm *farm, rf_lease *leases, uint32_t count)
{
    struct lot *lot = calloc(1, sizeof(*lot));
    assert(lot != NULL && count % AHEAD == 0);
    *lot = (struct lot){.farm = farm, .leases = leases, .count = count, .number = 1};
    for (uint32_t i = 0; i < AHEAD; i++) {
        write_ahead(lot, i);
    }
    return lot;
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void shuffle(rf_lease *leases, uint32_t count)
{
    uint64_t state = 1;
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(&state) % (i + 1));
        rf_lease lease = leases[i];
        leases[i] = leases[j];
        leases[j] = lease;
    }
}

static inline void must_execute(rf_status status, const rf_result *result)
{
    if (__builtin_expect(status != RF_OK || result->outcome != RF_EXECUTED, 0)) {
        fprintf(stderr, "%s, %s\n", rf_status_name(status),
                result->outcome == RF_EXECUTED ? "executed" : "replayed");
        abort();
    }
    bench_use(result);
}

static inline rf_lease *visit(struct lot *lot)
{
    rf_lease *lease = &lot->leases[lot->at];
    lot->at = lot->at + 1 == lot->count ? 0 : lot->at + 1;
    return lease;
}

static void run_checkpoint(void *context, uint64_t n)
{
    struct lot *lot = context;
    struct farm *farm = lot->farm;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t at = lot->at;
        const rf_lease *lease = visit(lot);
        const rf_cursor cursor = {.key = {.data = lot->keys[at % AHEAD], .len = FARM_KEY_LEN}};
        must_execute(rf_checkpoint(farm->store, ++farm->now, &farm->tenant, lease, &cursor,
                                   ++farm->op, &lot->result),
                     &lot->result);
        write_ahead(lot, at + AHEAD);
    }
}

static void run_renew(void *context, uint64_t n)
{
    struct lot *lot = context;
    struct farm *farm = lot->farm;
    for (uint64_t i = 0; i < n; i++) {
        lot->result.outcome = RF_REPLAYED;
        must_execute(rf_renew(farm->store, ++farm->now, &farm->tenant, visit(lot), &lot->result),
                     &lot->result);
    }
}

static void run_now(void *context, uint64_t n)
{
    struct lot *lot = context;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t now = rf_now(lot->farm->store);
        bench_use(now);
    }
}

static void run_get_shard(void *context, uint64_t n)
{
    struct lot *lot = context;
    static rf_shard_info info;
    static _Alignas(8) uint8_t scratch[4096];
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_get_shard(lot->farm->store, &lot->farm->tenant, RUN_HELD,
                                        visit(lot)->shard, &info, scratch, sizeof(scratch), NULL);
        assert(status == RF_OK);
        bench_use(&info);
    }
}

static void run_get_run(void *context, uint64_t n)
{
    struct lot *lot = context;
    static rf_run_info info;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_get_run(lot->farm->store, &lot->farm->tenant, RUN_HELD, &info, NULL);
        assert(status == RF_OK);
        bench_use(&info);
    }
}

static void run_progress(void *context, uint64_t n)
{
    struct lot *lot = context;
    static rf_progress progress;
    static uint8_t watermark[RF_KEY_MAX];
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_get_progress(lot->farm->store, lot->farm->now, &lot->farm->tenant,
                                           RUN_HELD, &progress, watermark, NULL);
        assert(status == RF_OK && progress.total == SHARDS);
    }
}

static bool count_shard(void *context, const rf_shard_info *shard)
{
    bench_use(shard);
    ++*(uint32_t *)context;
    return true;
}

static void run_list(void *context, uint64_t n)
{
    struct lot *lot = context;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t seen = 0;
        rf_status status = rf_list_shards(lot->farm->store, lot->farm->now, &lot->farm->tenant,
                                          RUN_HELD, RF_LIST_ALL, count_shard, &seen, NULL);
        assert(status == RF_OK && seen == SHARDS);
    }
}

/* --- a session, as a worker uses it --- */

struct seat {
    rf_session *session;
    uint64_t number;
    uint32_t at;
    uint32_t index;
    uint8_t keys[AHEAD][FARM_KEY_LEN];
    rf_result result;
};

static void run_session_checkpoint(void *context, uint64_t n)
{
    struct seat *seat = context;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *key = seat->keys[seat->at++ % AHEAD];
        const rf_cursor cursor = {.key = {.data = key, .len = FARM_KEY_LEN}};
        must_execute(rf_session_checkpoint(seat->session, cursor, &seat->result), &seat->result);
        farm_key(key, seat->index, seat->number++);
    }
}

static void sit_down(struct seat *seat, struct farm *farm, uint32_t index)
{
    const rf_session_options o = {.tenant = farm->tenant, .worker = 7};
    rf_status status = rf_session_create(farm->store, &o, &seat->session);
    assert(status == RF_OK);
    status = rf_session_acquire(seat->session, RUN_HELD, index + 1ul, NULL, NULL);
    assert(status == RF_OK);
    seat->index = index;
    for (uint32_t i = 0; i < AHEAD; i++) {
        farm_key(seat->keys[i], index, seat->number++);
    }
}

/* --- operations that take and end leases: prepared, timed, and undone by the next preparation --- */

struct desk {
    struct farm *farm;
    struct farm_manifest manifest;
    uint32_t children;
    rf_lease leases[DESK];
    rf_child plan[DESK][RF_SPLIT_CHILDREN_MAX];
    uint8_t points[DESK][RF_SPLIT_CHILDREN_MAX][FARM_KEY_LEN];
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
    uint8_t scratch[4096];
    rf_grant grant;
    rf_result result;
};

static struct desk *make_desk(struct farm *farm, uint32_t shards, uint32_t children)
{
    struct desk *d = calloc(1, sizeof(*d));
    assert(d != NULL && shards <= DESK);
    d->farm = farm;
    d->manifest = farm_manifest(shards);
    d->children = children;
    d->grant = (rf_grant){.scratch = d->scratch, .scratch_size = sizeof(d->scratch)};
    return d;
}

/* A run of n fresh shards that nobody holds. */
static void prepare_fresh(void *context, uint64_t n)
{
    struct desk *d = context;
    const struct farm_manifest some = {.shards = d->manifest.shards, .count = (uint32_t)n};
    assert(n <= d->manifest.count);
    farm_purge(d->farm, RUN_SCRATCH);
    farm_register(d->farm, RUN_SCRATCH, &some);
}

static void prepare_held(void *context, uint64_t n)
{
    struct desk *d = context;
    prepare_fresh(d, n);
    farm_acquire(d->farm, RUN_SCRATCH, 0, (uint32_t)n, d->leases);
}

static void run_acquire(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_acquire(farm->store, ++farm->now, &farm->tenant, RUN_SCRATCH, i + 1, 1,
                                RF_BOUND, &d->grant, &d->result),
                     &d->result);
        d->leases[i] = d->grant.lease;
    }
}

static void run_claim(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_claim(farm->store, ++farm->now, &farm->tenant, RUN_SCRATCH, 1, RF_BOUND, 0,
                              &d->grant, &d->result),
                     &d->result);
        d->leases[i] = d->grant.lease;
    }
}

static void run_release(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_release(farm->store, ++farm->now, &farm->tenant, &d->leases[i], NULL,
                                ++farm->op, &d->result),
                     &d->result);
    }
}

static void run_complete(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        const rf_cursor cursor = {.key = d->manifest.shards[i].spec.start};
        must_execute(rf_complete(farm->store, ++farm->now, &farm->tenant, &d->leases[i], &cursor,
                                 ++farm->op, &d->result),
                     &d->result);
    }
}

static void run_park(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_park(farm->store, ++farm->now, &farm->tenant, &d->leases[i], RF_PARK_OTHER,
                             ++farm->op, &d->result),
                     &d->result);
    }
}

static void prepare_parked(void *context, uint64_t n)
{
    prepare_held(context, n);
    run_park(context, n);
}

static void run_unpark(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_unpark(farm->store, ++farm->now, &farm->tenant, RUN_SCRATCH, i + 1,
                               ++farm->op, &d->result),
                     &d->result);
    }
}

static void prepare_split(void *context, uint64_t n)
{
    struct desk *d = context;
    rf_bytes points[RF_SPLIT_CHILDREN_MAX];
    prepare_held(d, n);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t c = 0; c + 1 < d->children; c++) {
            farm_key(d->points[i][c], i, c + 1ul);
            points[c] = (rf_bytes){.data = d->points[i][c], .len = FARM_KEY_LEN};
        }
        rf_status status =
            rf_plan_replace(d->manifest.shards[i].spec, points, d->children - 1, d->plan[i], NULL);
        assert(status == RF_OK);
    }
}

static void run_split_replace(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_split_replace(farm->store, ++farm->now, &farm->tenant, &d->leases[i],
                                      d->plan[i], d->children, ++farm->op, d->ids, &d->result),
                     &d->result);
    }
}

static void run_split_residual(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_split_residual(farm->store, ++farm->now, &farm->tenant, &d->leases[i],
                                       &d->plan[i][0].spec, &d->plan[i][1].spec, ++farm->op, d->ids,
                                       &d->result),
                     &d->result);
    }
}

/* --- registrations --- */

struct registration {
    struct farm *farm;
    struct farm_manifest manifest;
};

static void prepare_register(void *context, uint64_t n)
{
    struct registration *r = context;
    assert(n == 1);
    farm_purge(r->farm, RUN_SCRATCH);
}

static void run_register(void *context, uint64_t n)
{
    struct registration *r = context;
    assert(n == 1);
    farm_register(r->farm, RUN_SCRATCH, &r->manifest);
}

/* --- the groups of rows --- */

static void report(struct bench_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count && !bare_is_bare(); i++) {
        cases[i].kind = BENCH_NO_GOAL; /* they are about the bare compressions */
    }
    bench_print_rows(stdout, &options, "region", "h", cases, count);
    for (uint32_t i = 0; i < count; i++) {
        missed = missed || !bench_met(&cases[i]);
    }
}

/* Times the cases, the first being h, and prints them; h itself once in a run. */
static void measure_and_report(struct bench_case *cases, uint32_t count, uint32_t rounds)
{
    static bool shown;
    uint32_t skip = shown ? 1 : 0;
    bench_measure(cases, count, rounds);
    report(cases + skip, count - skip);
    shown = true;
}

static struct bench_case h_case(void)
{
    return (struct bench_case){.name = bare_name(), .run = bare_run, .context = &bare};
}

/* Leases on all of SHARDS shards: HOT ones, one for a session, and all others in a random order. */
static void measure_held(struct farm *farm)
{
    static struct seat seat;
    const uint32_t rest = SHARDS - 2 * HOT;
    rf_lease *hot = calloc(HOT, sizeof(*hot)), *all = calloc(rest, sizeof(*all));
    assert(hot != NULL && all != NULL);
    farm_acquire(farm, RUN_HELD, 0, HOT, hot);
    farm_acquire(farm, RUN_HELD, 2 * HOT, rest, all);
    shuffle(all, rest);
    sit_down(&seat, farm, HOT);

    if (bench_wanted(&options, "held")) {
        struct bench_case cases[] = {
            h_case(),
            {.name = "checkpoint, hot in cache",
             .run = run_checkpoint,
             .context = make_lot(farm, hot, HOT),
             .kind = BENCH_AT_MOST,
             .goal = 1.6},
            {.name = "checkpoint, random of 100,000",
             .run = run_checkpoint,
             .context = make_lot(farm, all, rest),
             .kind = BENCH_AT_MOST,
             .goal = 2.5},
            {.name = "renew, hot in cache",
             .run = run_renew,
             .context = make_lot(farm, hot, HOT),
             .kind = BENCH_AT_MOST,
             .goal = 0.3},
            {.name = "renew, random of 100,000",
             .run = run_renew,
             .context = make_lot(farm, all, rest)},
            {.name = "session checkpoint, hot in cache",
             .run = run_session_checkpoint,
             .context = &seat},
            {.name = "rf_now", .run = run_now, .context = make_lot(farm, hot, HOT)},
        };
        measure_and_report(cases, sizeof(cases) / sizeof(cases[0]), options.rounds);
    }
    if (bench_wanted(&options, "look")) {
        struct bench_case cases[] = {
            h_case(),
            {.name = "get_shard, hot in cache",
             .run = run_get_shard,
             .context = make_lot(farm, hot, HOT)},
            {.name = "get_shard, random of 100,000",
             .run = run_get_shard,
             .context = make_lot(farm, all, rest)},
            {.name = "get_run", .run = run_get_run, .context = make_lot(farm, hot, HOT)},
            {.name = "get_progress of 100,000, a shard",
             .run = run_progress,
             .context = make_lot(farm, hot, HOT),
             .n_max = 1,
             .per = SHARDS},
            {.name = "list_shards of 100,000, a shard",
             .run = run_list,
             .context = make_lot(farm, hot, HOT),
             .n_max = 1,
             .per = SHARDS},
        };
        measure_and_report(cases, 4, options.rounds);
        cases[3] = h_case();
        measure_and_report(&cases[3], 3, SLOW_ROUNDS);
    }
    rf_session_destroy(seat.session);
}

static void measure_ops(struct farm *farm)
{
    struct desk *desk = make_desk(farm, DESK, 2);
    struct desk *split_16 = make_desk(farm, 64, 16);
    struct desk *split_256 = make_desk(farm, 8, 256);
    struct bench_case cases[] = {
        h_case(),
        {.name = "acquire", .run = run_acquire, .prepare = prepare_fresh, .context = desk},
        {.name = "claim", .run = run_claim, .prepare = prepare_fresh, .context = desk},
        {.name = "release", .run = run_release, .prepare = prepare_held, .context = desk},
        {.name = "complete", .run = run_complete, .prepare = prepare_held, .context = desk},
        {.name = "park", .run = run_park, .prepare = prepare_held, .context = desk},
        {.name = "unpark", .run = run_unpark, .prepare = prepare_parked, .context = desk},
        {.name = "split_residual",
         .run = run_split_residual,
         .prepare = prepare_split,
         .context = desk},
        {.name = "split_replace 2",
         .run = run_split_replace,
         .prepare = prepare_split,
         .context = desk},
        {.name = "split_replace 16",
         .run = run_split_replace,
         .prepare = prepare_split,
         .context = split_16},
        {.name = "split_replace 256",
         .run = run_split_replace,
         .prepare = prepare_split,
         .context = split_256},
    };
    const uint32_t count = sizeof(cases) / sizeof(cases[0]);
    for (uint32_t i = 1; i < count; i++) {
        cases[i].n_max = ((struct desk *)cases[i].context)->manifest.count;
    }
    measure_and_report(cases, count, options.rounds);
}

static void measure_bulk(struct farm *farm)
{
    struct registration few = {.farm = farm, .manifest = farm_manifest(1000)};
    struct registration many = {.farm = farm, .manifest = farm_manifest(SHARDS)};
    struct bench_case cases[] = {
        h_case(),
        {.name = "register 1,000, a shard",
         .run = run_register,
         .prepare = prepare_register,
         .context = &few,
         .n_max = 1,
         .per = 1000},
        {.name = "register 100,000, a shard",
         .run = run_register,
         .prepare = prepare_register,
         .context = &many,
         .n_max = 1,
         .per = SHARDS},
    };
    measure_and_report(cases, sizeof(cases) / sizeof(cases[0]), SLOW_ROUNDS);
    farm_manifest_free(&few.manifest);
    farm_manifest_free(&many.manifest);
}

static int program(int argc, char **argv)
{
    static struct farm farm;
    uint8_t key[FARM_KEY_LEN];
    (void)argc;
    (void)argv;
    int core = bench_pin();
    if (!options.json) {
        printf("median of %u rounds, core %d, %s\n", options.rounds, core, __VERSION__);
    }
    bench_print_head(stdout, &options, "region", "h");
    farm_key(key, 1, 1);
    bare_init(&bare, key);

    farm_open(&farm, "main", 4 * SHARDS, false);
    if (bench_wanted(&options, "held") || bench_wanted(&options, "look")) {
        struct farm_manifest manifest = farm_manifest(SHARDS);
        farm_register(&farm, RUN_HELD, &manifest);
        farm_manifest_free(&manifest);
        measure_held(&farm);
        farm_purge(&farm, RUN_HELD);
    }
    if (bench_wanted(&options, "ops")) {
        measure_ops(&farm);
    }
    if (bench_wanted(&options, "bulk")) {
        measure_bulk(&farm);
    }
    farm_close(&farm);
    return options.check && missed ? 1 : 0;
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    return farm_supervise(program, argc, argv);
}
