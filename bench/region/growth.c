/* What does not depend on how much there is, and what does: the same with a thousand to a million shards. */
#include "region.h"

#define N 500u /* claims in a sample: a thousand shards last for two */

static const struct size {
    const char *store;
    const char *name;
    uint32_t count;
} sizes[] = {
    {"thousand", "1,000", 1000},
    {"ten", "10,000", 10000},
    {"hundred", "100,000", 100000},
    {"million", "1,000,000", 1000000},
};
#define SIZES COUNT(sizes)

struct field {
    struct farm farm;
    struct farm_manifest manifest;
    uint64_t left; /* not yet completed */
    _Alignas(8) uint8_t scratch[4096];
    rf_grant grant;
    rf_result result;
};

static struct field *make_field(const struct size *size)
{
    struct field *f = calloc(1, sizeof(*f));
    assert(f != NULL);
    farm_open(&f->farm, size->store, size->count, false);
    f->manifest = farm_manifest(size->count);
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

/* --- rows; names and facts live as long as the program --- */

static const char *text(const char *format, const char *size)
{
    char *out = NULL;
    int len = asprintf(&out, format, size);
    assert(len > 0);
    return out;
}

static const char *fact(const char *what, uint32_t shards)
{
    char *out = NULL;
    int len = asprintf(&out, "\"growth\":\"%s\",\"shards\":%u", what, shards);
    assert(len > 0);
    return out;
}

static struct bench_case memory_row(struct field *f, const struct size *size)
{
    rf_inspection inspection;
    rf_status status = rf_inspect(f->farm.store, &inspection, NULL);
    assert(status == RF_OK && inspection.shards == size->count);
    struct bench_case row = {.name = text("memory of %s shards, a shard", size->name),
                             .unit = "bytes",
                             .value = (double)inspection.taken_bytes / size->count,
                             .facts = fact("memory", size->count)};
    if (size == &sizes[SIZES - 1]) {
        row.kind = BENCH_VALUE_AT_MOST;
        row.goal = 1024;
    }
    return row;
}

static struct bench_case claim_case(struct field *f, const struct size *size)
{
    struct bench_case row = {.name = text("claim + complete of %s", size->name),
                             .run = run_claim_complete,
                             .prepare = prepare_claims,
                             .context = f,
                             .n_max = N,
                             .ratio_to = "that of 1,000",
                             .facts = fact("claim + complete", size->count)};
    if (size == &sizes[SIZES - 1]) {
        row.kind = BENCH_AT_MOST;
        row.goal = 1.5;
    }
    return row;
}

/* On leases on all of the shards, in a random order; and over the whole run. */
static void measure_size(struct field *f, const struct size *size)
{
    const uint32_t held = size->count / LOT_AHEAD * LOT_AHEAD;
    rf_lease *leases = calloc(held, sizeof(*leases));
    assert(leases != NULL);
    sow(f);
    farm_acquire(&f->farm, RUN_SCRATCH, 0, held, leases);
    shuffle(leases, held);
    struct lot *lot = make_lot(&f->farm, leases, held);
    struct lot *half_behind = make_lot(&f->farm, leases, held);
    struct lot *third_behind = make_lot(&f->farm, leases, held);
    struct lot *two_thirds_behind = make_lot(&f->farm, leases, held);
    struct lot *sixth_behind = make_lot(&f->farm, leases, held);
    half_behind->at = held / 2;
    third_behind->at = held / 3;
    two_thirds_behind->at = held / 3 * 2;
    sixth_behind->at = held / 6;
    lot->shards = size->count;
    struct bench_case calls[] = {
        h_case(),
        {.name = text("checkpoint, random of %s, all held", size->name),
         .run = run_checkpoint,
         .context = lot,
         .n = LOT_COLD,
         .facts = fact("checkpoint", size->count)},
        {.name = text("renew, random of %s, all held", size->name),
         .run = run_renew,
         .context = third_behind,
         .n = LOT_COLD,
         .facts = fact("renew", size->count)},
        {.name = text("release + acquire, random of %s, all held", size->name),
         .run = run_release_acquire,
         .context = two_thirds_behind,
         .n = LOT_COLD,
         .facts = fact("release + acquire", size->count)},
        {.name = text("park + unpark + acquire, random of %s, all held", size->name),
         .run = run_park_unpark_acquire,
         .context = sixth_behind,
         .n = LOT_COLD,
         .facts = fact("park + unpark + acquire", size->count)},
        {.name = text("get_shard, random of %s, all held", size->name),
         .run = run_get_shard,
         .context = half_behind,
         .n = LOT_COLD,
         .facts = fact("get_shard", size->count)},
    };
    measure("growth", calls, COUNT(calls), options.rounds);
    struct bench_case walks[] = {
        h_case(),
        {.name = text("get_progress of %s, a shard", size->name),
         .run = run_progress,
         .context = lot,
         .n_max = 1,
         .per = size->count,
         .facts = fact("get_progress", size->count)},
        {.name = text("list_shards of %s, a shard", size->name),
         .run = run_list,
         .context = lot,
         .n_max = 1,
         .per = size->count,
         .facts = fact("list_shards", size->count)},
    };
    measure("growth", walks, COUNT(walks), SLOW_ROUNDS);
    free_lots();
    free(leases);
}

void measure_growth(void)
{
    if (!bench_wanted(&options, "growth")) {
        return;
    }
    struct field *fields[SIZES];
    struct bench_case memory[SIZES], claims[SIZES];
    for (uint32_t i = 0; i < SIZES; i++) {
        fields[i] = make_field(&sizes[i]);
        sow(fields[i]);
        memory[i] = memory_row(fields[i], &sizes[i]);
        claims[i] = claim_case(fields[i], &sizes[i]);
    }
    report(memory, SIZES);
    bench_measure(claims, SIZES, options.rounds);
    claims[0].ratio = 0;
    report(claims, SIZES);
    for (uint32_t i = 0; i < SIZES; i++) {
        if (!options.quick) {
            measure_size(fields[i], &sizes[i]);
        }
        leave_field(fields[i]);
    }
}
