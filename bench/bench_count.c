/*
 * A fixed number of calls of each of the hot operations, for tools that count instead of timing:
 * bench/instructions runs it under callgrind. The handle has no guardian, because valgrind does not
 * know all the system calls that one needs, and the clock stands still but for the calls.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "farm.h"
#include "table.h"

#define CALLS  10000u
#define SHARDS (CALLS + 16u)
#define RUN    1u

static struct bench_options options;

static void must_execute(rf_status status, const rf_result *result)
{
    assert(status == RF_OK && result->outcome == RF_EXECUTED);
}

static void say(const char *name)
{
    if (options.json) {
        printf("{\"bench\":\"count\",\"name\":\"%s\",\"calls\":%u}\n", name, CALLS);
    } else {
        printf("%-44s %11u calls\n", name, CALLS);
    }
}

static void renew(struct farm *farm, rf_lease *lease)
{
    rf_result result = {0};
    for (uint32_t i = 0; i < CALLS; i++) {
        must_execute(rf_renew(farm->store, ++farm->now, &farm->tenant, lease, &result), &result);
    }
    say("rf_renew");
}

static void checkpoint(struct farm *farm, const rf_lease *lease)
{
    uint8_t key[FARM_KEY_LEN];
    const rf_cursor cursor = {.key = {.data = key, .len = sizeof(key)}};
    rf_result result = {0};
    for (uint32_t i = 0; i < CALLS; i++) {
        farm_key(key, (uint32_t)lease->shard - 1, i);
        must_execute(rf_checkpoint(farm->store, ++farm->now, &farm->tenant, lease, &cursor,
                                   ++farm->op, &result),
                     &result);
    }
    say("rf_checkpoint");
}

static void claim_and_complete(struct farm *farm)
{
    _Alignas(8) static uint8_t scratch[4096];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    for (uint32_t i = 0; i < CALLS; i++) {
        must_execute(
            rf_claim(farm->store, ++farm->now, &farm->tenant, RUN, 0, RF_BOUND, 0, &grant, &result),
            &result);
        const rf_cursor cursor = {.key = grant.spec.start};
        must_execute(rf_complete(farm->store, ++farm->now, &farm->tenant, &grant.lease, &cursor,
                                 ++farm->op, &result),
                     &result);
    }
    say("rf_claim");
    say("rf_complete");
}

static int program(int argc, char **argv)
{
    static struct farm farm;
    rf_lease lease;
    (void)argc;
    (void)argv;
    struct farm_manifest manifest = farm_manifest(SHARDS);
    farm_open(&farm, "count", SHARDS, true);
    farm_register(&farm, RUN, &manifest);
    farm_manifest_free(&manifest);
    farm_acquire(&farm, RUN, SHARDS - 1, 1, &lease);
    renew(&farm, &lease);
    checkpoint(&farm, &lease);
    claim_and_complete(&farm);
    farm_close(&farm);
    return 0;
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    return farm_supervise(program, argc, argv);
}
