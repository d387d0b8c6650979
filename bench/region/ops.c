/* Operations that take and end leases, splits and registrations. Each needs its shards in a certain
 * state, which an untimed preparation brings about anew for every sample. */
#include "region.h"

/* --- some shards --- */

struct desk {
    struct farm *farm;
    struct farm_manifest manifest;
    uint32_t children; /* of a split */
    rf_lease *leases;
    rf_child *plans; /* `children` of them for every shard */
    uint8_t *points; /* where they are cut: a key each */
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
    _Alignas(8) uint8_t scratch[4096];
    rf_grant grant;
    rf_result result;
};

static struct desk *make_desk(struct farm *farm, uint32_t shards, uint32_t children)
{
    struct desk *d = calloc(1, sizeof(*d));
    assert(d != NULL);
    *d = (struct desk){
        .farm = farm,
        .manifest = farm_manifest(shards),
        .children = children,
        .leases = calloc(shards, sizeof(*d->leases)),
        .plans = calloc((size_t)shards * children, sizeof(*d->plans)),
        .points = calloc((size_t)shards * children, FARM_KEY_LEN),
        .grant = {.scratch = d->scratch, .scratch_size = sizeof(d->scratch)},
    };
    assert(d->leases != NULL && d->plans != NULL && d->points != NULL);
    return d;
}

static void free_desk(struct desk *d)
{
    farm_manifest_free(&d->manifest);
    free(d->leases);
    free(d->plans);
    free(d->points);
    free(d);
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
            uint8_t *point = d->points + ((size_t)i * d->children + c) * FARM_KEY_LEN;
            farm_key(point, i, c + 1ul);
            points[c] = (rf_bytes){.data = point, .len = FARM_KEY_LEN};
        }
        rf_status status = rf_plan_replace(d->manifest.shards[i].spec, points, d->children - 1,
                                           &d->plans[(size_t)i * d->children], NULL);
        assert(status == RF_OK);
    }
}

static void run_split_replace(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_split_replace(farm->store, ++farm->now, &farm->tenant, &d->leases[i],
                                      &d->plans[i * d->children], d->children, ++farm->op, d->ids,
                                      &d->result),
                     &d->result);
    }
}

static void run_split_residual(void *context, uint64_t n)
{
    struct desk *d = context;
    struct farm *farm = d->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_split_residual(farm->store, ++farm->now, &farm->tenant, &d->leases[i],
                                       &d->plans[2 * i].spec, &d->plans[2 * i + 1].spec, ++farm->op,
                                       d->ids, &d->result),
                     &d->result);
    }
}

void measure_ops(struct farm *farm)
{
    struct desk *desk = make_desk(farm, 1024, 2);
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
    for (uint32_t i = 1; i < COUNT(cases); i++) {
        cases[i].n_max = ((struct desk *)cases[i].context)->manifest.count;
    }
    measure("ops", cases, COUNT(cases), options.rounds);
    free_desk(desk);
    free_desk(split_16);
    free_desk(split_256);
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

void measure_bulk(struct farm *farm)
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
    measure("bulk", cases, COUNT(cases), SLOW_ROUNDS);
    farm_manifest_free(&few.manifest);
    farm_manifest_free(&many.manifest);
}
