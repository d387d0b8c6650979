/* Cost does not grow with what is not touched: claim and complete with a million shards, against the
 * same with a thousand; and what a million shards take to make, and to keep. */
#include "region.h"

#define FEW  1000u
#define MANY 1000000u
#define N    500u /* claims in a sample: FEW lasts for two */

struct field {
    struct farm farm;
    struct farm_manifest manifest;
    uint64_t left; /* not yet completed */
    _Alignas(8) uint8_t scratch[4096];
    rf_grant grant;
    rf_result result;
};

static struct field *make_field(const char *store, uint32_t count)
{
    struct field *f = calloc(1, sizeof(*f));
    assert(f != NULL);
    farm_open(&f->farm, store, count, false);
    f->manifest = farm_manifest(count);
    f->grant = (rf_grant){.scratch = f->scratch, .scratch_size = sizeof(f->scratch)};
    return f;
}

static void leave_field(struct field *f)
{
    farm_manifest_free(&f->manifest);
    farm_close(&f->farm);
    free(f);
}

static void sow(struct field *f)
{
    farm_purge(&f->farm, RUN_SCRATCH);
    farm_register(&f->farm, RUN_SCRATCH, &f->manifest);
    f->left = f->manifest.count;
}

static void prepare_claims(void *context, uint64_t n)
{
    struct field *f = context;
    if (f->left < n) {
        sow(f);
    }
}

static void run_claim_complete(void *context, uint64_t n)
{
    struct field *f = context;
    struct farm *farm = &f->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_claim(farm->store, ++farm->now, &farm->tenant, RUN_SCRATCH, 0, RF_BOUND, 0,
                              &f->grant, &f->result),
                     &f->result);
        const rf_cursor cursor = {.key = f->grant.spec.start};
        must_execute(rf_complete(farm->store, ++farm->now, &farm->tenant, &f->grant.lease, &cursor,
                                 ++farm->op, &f->result),
                     &f->result);
    }
    f->left -= n;
}

static double taken_bytes(struct field *f)
{
    rf_inspection inspection;
    rf_status status = rf_inspect(f->farm.store, &inspection, NULL);
    assert(status == RF_OK && inspection.shards == f->manifest.count);
    return (double)inspection.taken_bytes;
}

void measure_growth(void)
{
    if (!bench_wanted(&options, "growth")) {
        return;
    }
    struct field *few = make_field("small", FEW);
    struct field *many = make_field("large", MANY);
    uint64_t start = bench_now();
    sow(many);
    double sown_ns = (double)(bench_now() - start);
    sow(few);
    struct bench_case sums[] = {
        {.name = "register 1,000,000 at once, a shard", .value = sown_ns / MANY},
        {.name = "memory of 1,000,000 shards, a shard",
         .unit = "bytes",
         .value = taken_bytes(many) / MANY,
         .kind = BENCH_VALUE_AT_MOST,
         .goal = 1024},
    };
    report(sums, COUNT(sums));

    struct bench_case cases[] = {
        {.name = "claim + complete of 1,000",
         .run = run_claim_complete,
         .prepare = prepare_claims,
         .context = few,
         .n_max = N},
        {.name = "claim + complete of 1,000,000",
         .run = run_claim_complete,
         .prepare = prepare_claims,
         .context = many,
         .n_max = N,
         .ratio_to = "of 1,000",
         .kind = BENCH_AT_MOST,
         .goal = 1.5},
    };
    bench_measure(cases, COUNT(cases), options.rounds);
    cases[0].ratio = 0;
    report(cases, COUNT(cases));
    leave_field(few);
    leave_field(many);
}
