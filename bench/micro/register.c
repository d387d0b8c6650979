/* Registrations: thousands of shards in one call. */
#include "micro.h"

#define ROUNDS_MAX 15u
#define LEASE_NS   RF_SECOND

static double register_ns(struct farm *farm, const struct farm_manifest *m, rf_durability mode)
{
    const rf_run_config config = {.lease_duration = LEASE_NS};
    rf_result result = {.durability = mode};
    uint64_t start = bench_now();
    rf_status status = rf_create_run_with_shards(farm->store, ++farm->now, &farm->tenant, RUN_BULK,
                                                 &config, m->shards, m->count, ++farm->op, &result);
    uint64_t took = bench_now() - start;
    must_have(status, &result, "create_run_with_shards");
    assert(mode != RF_WAIT || rf_durable(farm->store) >= result.epoch);
    return (double)took / m->count;
}

void measure_register(struct farm *farm, rf_durability mode)
{
    static const struct size {
        const char *name;
        uint32_t shards;
        uint32_t rounds; /* usually */
    } sizes[] = {
        {"register 1,000, a shard", 1000, ROUNDS_MAX},
        {"register 100,000, a shard", 100000, 5},
        {"register 1,000,000, a shard", 1000000, 3},
    };
    for (uint32_t i = 0; i < COUNT(sizes); i++) {
        char name[64], facts[128];
        double values[ROUNDS_MAX];
        snprintf(name, sizeof(name), "%s: %s", mode_name(mode), sizes[i].name);
        if (!bench_wanted(&options, name) || (options.quick && i > 0)) {
            continue;
        }
        const uint32_t rounds = bench_rounds(&options, sizes[i].rounds, 3, ROUNDS_MAX);
        struct farm_manifest manifest = farm_manifest(sizes[i].shards);
        for (uint32_t r = 0; r < rounds; r++) {
            values[r] = register_ns(farm, &manifest, mode);
            farm_purge(farm, RUN_BULK);
        }
        farm_manifest_free(&manifest);
        snprintf(facts, sizeof(facts), "\"op\":\"register\",\"mode\":\"%s\",\"shards\":%u",
                 mode_name(mode), sizes[i].shards);
        struct bench_case row = {.name = name, .facts = facts};
        bench_summarize(&row, values, rounds);
        bench_print_rows(stdout, &options, "micro", "", &row, 1);
    }
}
