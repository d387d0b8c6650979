/*
 * A fixed number of calls of each of the hot operations, for tools that count instead of timing:
 * bench/instructions runs it under callgrind, which is told by the program itself what to collect.
 * The handle has no guardian, because valgrind does not know all the system calls that one needs,
 * and the clock stands still but for the calls.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "farm.h"
#include "table.h"

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name)
#endif

#define CALLS  2000u
#define SPLITS 100u
#define LOGGED                                                                                     \
    500u /* calls that are logged: so few that no lane gets full, and nobody has to write */
#define SHARDS (CALLS + SPLITS + 1)
#define RUN    1u

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)
#if defined(__clang__)
#define COMPILER "clang-" TEXT(__clang_major__)
#else
#define COMPILER "gcc-" TEXT(__GNUC__)
#endif
#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#else
#define MACHINE "other"
#endif

static struct bench_options options;
static struct farm farm;
static rf_lease leases[SHARDS];
static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
static rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
static rf_result result;

/* The call, and nothing around it, is counted; and it must have happened. */
#define COUNTED(call)                                                                              \
    do {                                                                                           \
        CALLGRIND_TOGGLE_COLLECT;                                                                  \
        rf_status counted_status = (call);                                                         \
        CALLGRIND_TOGGLE_COLLECT;                                                                  \
        assert(counted_status == RF_OK && result.outcome == RF_EXECUTED);                          \
    } while (0)

/* What was counted since the last of these is of this operation. */
static void counted(const char *operation, uint32_t calls)
{
    CALLGRIND_DUMP_STATS_AT(operation);
    if (options.json) {
        printf("{\"bench\":\"count\",\"name\":\"%s\",\"calls\":%u}\n", operation, calls);
    } else {
        printf("%-44s %11u calls\n", operation, calls);
    }
}

static void acquire(void)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        COUNTED(rf_acquire(farm.store, ++farm.now, &farm.tenant, RUN, i + 1ul, 0, RF_BOUND, &grant,
                           &result));
        leases[i] = grant.lease;
    }
    counted("acquire", SHARDS);
}

static void renew(rf_lease *lease)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        COUNTED(rf_renew(farm.store, ++farm.now, &farm.tenant, lease, &result));
    }
    counted("renew", CALLS);
}

static void checkpoint(const rf_lease *lease, uint32_t calls)
{
    static uint64_t number;
    uint8_t key[FARM_KEY_LEN];
    const rf_cursor cursor = {.key = {.data = key, .len = sizeof(key)}};
    for (uint32_t i = 0; i < calls; i++) {
        farm_key(key, (uint32_t)lease->shard - 1, number++);
        COUNTED(rf_checkpoint(farm.store, ++farm.now, &farm.tenant, lease, &cursor, ++farm.op,
                              &result));
    }
}

static void get(void)
{
    static rf_shard_info info;
    result.outcome = RF_EXECUTED;
    for (uint32_t i = 0; i < CALLS; i++) {
        COUNTED(rf_get_shard(farm.store, &farm.tenant, RUN, i + 1ul, &info, scratch,
                             sizeof(scratch), NULL));
    }
    counted("get_shard", CALLS);
}

static void release(void)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        COUNTED(
            rf_release(farm.store, ++farm.now, &farm.tenant, &leases[i], NULL, ++farm.op, &result));
    }
    counted("release", CALLS);
}

static void claim(uint32_t calls)
{
    for (uint32_t i = 0; i < calls; i++) {
        COUNTED(
            rf_claim(farm.store, ++farm.now, &farm.tenant, RUN, 0, RF_BOUND, 0, &grant, &result));
        leases[i] = grant.lease;
    }
}

static void park_and_unpark(void)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        COUNTED(rf_park(farm.store, ++farm.now, &farm.tenant, &leases[i], RF_PARK_OTHER, ++farm.op,
                        &result));
    }
    counted("park", CALLS);
    for (uint32_t i = 0; i < CALLS; i++) {
        COUNTED(rf_unpark(farm.store, ++farm.now, &farm.tenant, RUN, i + 1ul, ++farm.op, &result));
    }
    counted("unpark", CALLS);
}

static void complete(uint32_t calls)
{
    uint8_t key[FARM_KEY_LEN];
    const rf_cursor cursor = {.key = {.data = key, .len = sizeof(key)}};
    for (uint32_t i = 0; i < calls; i++) {
        farm_key(key, (uint32_t)leases[i].shard - 1, UINT64_MAX);
        COUNTED(rf_complete(farm.store, ++farm.now, &farm.tenant, &leases[i], &cursor, ++farm.op,
                            &result));
    }
}

static void split_residual(void)
{
    uint8_t ends[3][FARM_KEY_LEN];
    const rf_bytes start = {ends[0], FARM_KEY_LEN}, cut = {ends[1], FARM_KEY_LEN};
    const rf_spec left = {.start = start, .end = cut};
    const rf_spec right = {.start = cut, .end = {ends[2], FARM_KEY_LEN}};
    for (uint32_t i = CALLS; i < CALLS + SPLITS; i++) {
        uint64_t id;
        farm_key(ends[0], i, 0);
        farm_key(ends[1], i, 1);
        farm_key(ends[2], i + 1, 0);
        COUNTED(rf_split_residual(farm.store, ++farm.now, &farm.tenant, &leases[i], &left, &right,
                                  ++farm.op, &id, &result));
    }
    counted("split_residual", SPLITS);
}

static void fill(void)
{
    struct farm_manifest manifest = farm_manifest(SHARDS);
    farm_register(&farm, RUN, &manifest);
    farm_manifest_free(&manifest);
}

static void count_volatile(void)
{
    farm_open(&farm, "count", 2 * SHARDS, true);
    fill();
    acquire();
    renew(&leases[SHARDS - 1]);
    checkpoint(&leases[SHARDS - 1], CALLS);
    counted("checkpoint", CALLS);
    get();
    release();
    claim(CALLS);
    counted("claim", CALLS);
    park_and_unpark();
    claim(CALLS);
    CALLGRIND_ZERO_STATS; /* the same once more, for what follows */
    complete(CALLS);
    counted("complete", CALLS);
    split_residual();
    farm_close(&farm);
}

/* What a worker calls, in a store with a log, without waiting for it. */
static void count_logged(void)
{
    rf_detail detail = {0};
    farm_open_durable(&farm, "count", 2 * SHARDS, true);
    fill();
    rf_status status = rf_barrier(farm.store, &detail);
    assert(status == RF_OK);
    result.durability = RF_NOWAIT;
    claim(LOGGED);
    counted("claim logged", LOGGED);
    checkpoint(&leases[0], LOGGED);
    counted("checkpoint logged", LOGGED);
    complete(LOGGED);
    counted("complete logged", LOGGED);
    status = rf_barrier(farm.store, &detail);
    assert(status == RF_OK && rf_durable(farm.store) >= result.epoch);
    farm_close(&farm);
}

static int program(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    if (!options.json) {
        printf("compiler %s-%s\n", COMPILER, MACHINE);
    }
    count_volatile();
    count_logged();
    return 0;
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    return farm_supervise(program, argc, argv);
}
