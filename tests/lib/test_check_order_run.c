/* The order of the checks of every operation on a run, and of a manifest (PROTOCOL section 5); and
 * that no refusal gives a secret away. */
#include <unity.h>

#include "drill.h"
#include "run_desk.h"
#include "secret.h"

/* In the order of the checks, for all operations together. */
enum fault {
    TIME,
    ABSENT,
    TENANT,
    EXISTS,
    MISMATCH,
    DURATION,
    SEMANTICS,
    CONFLICT,
    ENDED,
    STATUS,
    EMPTY,
    DUPLICATE,
    TAKEN,
    UNBOUNDED,
    KEY,
    METADATA,
    INVERTED,
    OVERLAP,
    OVERLAP_OLD,
    NO_KEY,
    CURSOR_KEY,
    OUTSIDE,
    TOKEN,
    DERIVED,
    TENANT_LIMIT,
    TOTAL_LIMIT,
};

#define BIT(fault) (1ull << (fault))

static const struct rf_fault faults_in_order[64] = {
    [TIME] = {"TIME", RF_INVALID_TIME, 0},
    [ABSENT] = {"ABSENT", RF_RUN_NOT_FOUND, 0},
    [TENANT] = {"TENANT", RF_RUN_NOT_FOUND, 0},
    [EXISTS] = {"EXISTS", RF_RUN_EXISTS, 0},
    [MISMATCH] = {"MISMATCH", RF_CONFIG_MISMATCH, 0},
    [DURATION] = {"DURATION", RF_INVALID_CONFIG, 0},
    [SEMANTICS] = {"SEMANTICS", RF_INVALID_CONFIG, 0},
    [CONFLICT] = {"CONFLICT", RF_OP_ID_CONFLICT, 0},
    [ENDED] = {"ENDED", RF_RUN_TERMINAL, 0},
    [STATUS] = {"STATUS", RF_WRONG_STATUS, 0},
    [EMPTY] = {"EMPTY", RF_MANIFEST_EMPTY, 0},
    [DUPLICATE] = {"DUPLICATE", RF_DUPLICATE_SHARD, 0},
    [TAKEN] = {"TAKEN", RF_DUPLICATE_SHARD, 0},
    [UNBOUNDED] = {"UNBOUNDED", RF_UNBOUNDED_RANGE, 0},
    [KEY] = {"KEY", RF_KEY_TOO_LARGE, RF_KEY_MAX},
    [METADATA] = {"METADATA", RF_METADATA_TOO_LARGE, RF_METADATA_MAX},
    [INVERTED] = {"INVERTED", RF_RANGE_INVERTED, 0},
    [OVERLAP] = {"OVERLAP", RF_OVERLAPPING_RANGES, 0},
    [OVERLAP_OLD] = {"OVERLAP_OLD", RF_OVERLAPPING_RANGES, 0},
    [NO_KEY] = {"NO_KEY", RF_MISSING_KEY, 0},
    [CURSOR_KEY] = {"CURSOR_KEY", RF_KEY_TOO_LARGE, RF_KEY_MAX},
    [OUTSIDE] = {"OUTSIDE", RF_CURSOR_OUT_OF_BOUNDS, 0},
    [TOKEN] = {"TOKEN", RF_TOKEN_TOO_LARGE, RF_TOKEN_MAX},
    [DERIVED] = {"DERIVED", RF_DERIVED_ROOT_ID, 0},
    [TENANT_LIMIT] = {"TENANT_LIMIT", RF_SHARD_LIMIT, 1000},
    [TOTAL_LIMIT] = {"TOTAL_LIMIT", RF_SHARD_LIMIT, 2000},
};

#define LOOKUP (BIT(TIME) | BIT(ABSENT) | BIT(TENANT))
#define MANIFEST                                                                                   \
    (BIT(EMPTY) | BIT(DUPLICATE) | BIT(TAKEN) | BIT(UNBOUNDED) | BIT(KEY) | BIT(METADATA) |        \
     BIT(INVERTED) | BIT(OVERLAP) | BIT(NO_KEY) | BIT(CURSOR_KEY) | BIT(OUTSIDE) | BIT(TOKEN) |    \
     BIT(DERIVED) | BIT(TENANT_LIMIT) | BIT(TOTAL_LIMIT))

static struct rf_run_desk desk;

void setUp(void)
{
}

void tearDown(void)
{
}

static bool shard_13_exists(void *context, uint64_t shard)
{
    (void)context;
    return shard == 13;
}

static void set_scene(uint64_t faults, rf_run_status status)
{
    rf_tenant tenant = rf_secret_tenant();
    rf_run_desk_open(&desk, &tenant, 7);
    desk.exists = (faults & BIT(ABSENT)) == 0;
    desk.op = 900;
    desk.run = (struct rf_run){
        .tenant = tenant,
        .run = 7,
        .config = desk.config,
        .status = status,
        .created_at = 50,
        .root_count = status == RF_RUN_INITIALIZING ? 0 : 3,
        .completed_at = status >= RF_RUN_DONE ? 60 : 0,
    };
    if (faults & BIT(CONFLICT)) {
        desk.run.ring.op[0] = desk.op;
        desk.run.ring.hash[0] = RF_SECRET_HASH;
        desk.run.ring.executed_at[0] = 55;
        desk.run.ring_count = desk.run.ring_next = 1;
    }
    if (faults & BIT(MISMATCH)) {
        desk.run.config.lease_duration++;
    }
    if (faults & BIT(DURATION)) {
        desk.config.lease_duration = 0;
    }
    if (faults & BIT(SEMANTICS)) {
        desk.config.semantics = (rf_semantics)(RF_DISPATCHED + 1);
    }
    if (faults & BIT(TENANT)) {
        desk.tenant = rf_secret_other_tenant();
    }
    if (faults & BIT(TIME)) {
        desk.now = 0;
    }
    desk.env.tenant_limit = 1000;
    desk.env.total_limit = 2000;
    desk.env.tenant_shards = faults & BIT(TENANT_LIMIT) ? 1000 : 0;
    desk.env.total_shards = faults & BIT(TOTAL_LIMIT) ? 2000 : 0;
    desk.env.exists = faults & BIT(TAKEN) ? shard_13_exists : NULL;
}

/* Shards 10 .. 17 of [a, c), [c, e) ... [o, q), not in this order. Each class of faults sits on a
 * shard that stands before those of the earlier classes, so that it is the class that decides and
 * not the position; faults that are looked for shard by shard share one. */
static const rf_shard_input *manifest_with(uint64_t faults, uint32_t *count)
{
    static rf_shard_input shards[8];
    static const uint32_t span[8] = {3, 1, 6, 0, 5, 2, 7, 4};
    *count = faults & BIT(EMPTY) ? 0 : 8;
    for (uint32_t i = 0; i < 8; i++) {
        char start = (char)('a' + 2 * span[i]), end = (char)(start + 2);
        shards[i] = (rf_shard_input){
            .shard = 10 + i,
            .spec = {.start = rf_secret_key(start),
                     .end = rf_secret_key(end),
                     .metadata = rf_secret_metadata(20)},
        };
    }
    if (faults & BIT(DUPLICATE)) {
        shards[7].shard = shards[5].shard;
    }
    if (faults & BIT(UNBOUNDED)) {
        shards[6].spec.end = rf_bytes_none();
    }
    if (faults & BIT(INVERTED)) { /* [k, m) */
        shards[4].spec.end = rf_secret_key('j');
    }
    if (faults & BIT(KEY)) {
        shards[4].spec.start = rf_secret_long_key('k', RF_KEY_MAX + 1);
    }
    if (faults & BIT(METADATA)) {
        shards[4].spec.metadata = rf_secret_metadata(RF_METADATA_MAX + 1);
    }
    if (faults & BIT(OVERLAP)) { /* [a, c) into [c, e) */
        shards[3].spec.end = rf_secret_key('d');
    }
    rf_cursor *cursor = &shards[2].cursor; /* [m, o) */
    char letter = faults & BIT(OUTSIDE) ? 'p' : 'n';
    *cursor = (rf_cursor){.key = rf_secret_key(letter), .token = rf_secret_token(20)};
    if (faults & BIT(CURSOR_KEY)) {
        cursor->key = rf_secret_long_key(letter, RF_KEY_MAX + 1);
    }
    if (faults & BIT(NO_KEY)) {
        cursor->key = rf_bytes_none();
    }
    if (faults & BIT(TOKEN)) {
        shards[1].cursor =
            (rf_cursor){.key = rf_secret_key('d'), .token = rf_secret_token(RF_TOKEN_MAX + 1)};
    }
    if (faults & BIT(DERIVED)) {
        shards[0].shard |= RF_DERIVED_BIT;
    }
    return shards;
}

static rf_status finish(rf_status status, rf_detail *detail)
{
    *detail = desk.detail;
    const char *leak = rf_secret_leak(status, detail, &desk.hash, desk.hash != 0);
    TEST_ASSERT_NULL_MESSAGE(leak, leak);
    return status;
}

static rf_status create(uint64_t faults, rf_detail *detail)
{
    set_scene(faults, RF_RUN_ACTIVE);
    desk.exists = (faults & BIT(EXISTS)) != 0;
    return finish(rf_run_desk_create(&desk), detail);
}

static rf_status register_shards(uint64_t faults, rf_detail *detail)
{
    uint32_t count;
    const rf_shard_input *shards = manifest_with(faults, &count);
    set_scene(faults, faults & BIT(STATUS) ? RF_RUN_ACTIVE : RF_RUN_INITIALIZING);
    return finish(rf_run_desk_register(&desk, shards, count), detail);
}

static rf_status add_shards(uint64_t faults, rf_detail *detail)
{
    uint32_t count;
    const rf_shard_input *shards = manifest_with(faults, &count);
    set_scene(faults, faults & BIT(STATUS) ? RF_RUN_INITIALIZING : RF_RUN_ACTIVE);
    rf_spec old[3] = {{.start = rf_secret_key('A'), .end = rf_secret_key('a')},
                      {.start = rf_secret_key('q'), .end = rf_secret_key('t')},
                      {.start = rf_secret_key('t'), .end = rf_secret_key('u')}};
    if (faults & BIT(OVERLAP_OLD)) {
        old[1].start = rf_secret_key('p');
    }
    desk.existing = old;
    desk.existing_count = 3;
    return finish(rf_run_desk_add(&desk, shards, count), detail);
}

/* Without a run of this id there is nothing to conflict with; with one, a config that can't be is
 * only ever one that differs. */
static bool can_be_created(uint64_t faults)
{
    bool exists = (faults & (BIT(MISMATCH) | BIT(CONFLICT) | BIT(STATUS))) != 0;
    bool impossible_config = (faults & (BIT(DURATION) | BIT(SEMANTICS))) != 0;
    return !(exists && impossible_config) || (faults & BIT(MISMATCH)) != 0;
}

static rf_status create_with_shards(uint64_t faults, rf_detail *detail)
{
    uint32_t count;
    const rf_shard_input *shards = manifest_with(faults, &count);
    set_scene(faults, faults & BIT(STATUS) ? RF_RUN_ACTIVE : RF_RUN_INITIALIZING);
    desk.exists = (faults & (BIT(MISMATCH) | BIT(CONFLICT) | BIT(STATUS))) != 0;
    return finish(rf_run_desk_create_with_shards(&desk, shards, count), detail);
}

static bool not_ended_and_not_begun(uint64_t faults)
{
    return (faults & (BIT(ENDED) | BIT(STATUS))) != (BIT(ENDED) | BIT(STATUS));
}

static rf_status end(uint64_t faults, rf_run_op_kind kind, rf_detail *detail)
{
    set_scene(faults, faults & BIT(ENDED)    ? RF_RUN_FAILED
                      : faults & BIT(STATUS) ? RF_RUN_INITIALIZING
                                             : RF_RUN_ACTIVE);
    return finish(rf_run_desk_end(&desk, kind), detail);
}

static rf_status complete_run(uint64_t faults, rf_detail *detail)
{
    return end(faults, RF_RUN_OP_COMPLETE, detail);
}

static rf_status fail_run(uint64_t faults, rf_detail *detail)
{
    return end(faults, RF_RUN_OP_FAIL, detail);
}

static rf_status cancel_run(uint64_t faults, rf_detail *detail)
{
    return end(faults, RF_RUN_OP_CANCEL, detail);
}

static void create_run_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "create_run",
        .faults = faults_in_order,
        .mask = BIT(TIME) | BIT(EXISTS) | BIT(DURATION) | BIT(SEMANTICS),
        .attempt = create,
    });
}

static void register_shards_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "register_shards",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | BIT(STATUS) | MANIFEST,
        .attempt = register_shards,
    });
}

static void add_shards_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "add_shards",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | BIT(STATUS) | MANIFEST | BIT(OVERLAP_OLD),
        .attempt = add_shards,
    });
}

static void create_run_with_shards_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "create_run_with_shards",
        .faults = faults_in_order,
        .mask = BIT(TIME) | BIT(MISMATCH) | BIT(DURATION) | BIT(SEMANTICS) | BIT(CONFLICT) |
                BIT(STATUS) | MANIFEST,
        .attempt = create_with_shards,
        .possible = can_be_created,
    });
}

static void complete_run_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "complete_run",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | BIT(ENDED) | BIT(STATUS),
        .attempt = complete_run,
        .possible = not_ended_and_not_begun,
    });
}

static void fail_run_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "fail_run",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | BIT(ENDED) | BIT(STATUS),
        .attempt = fail_run,
        .possible = not_ended_and_not_begun,
    });
}

static void cancel_run_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "cancel_run",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | BIT(ENDED),
        .attempt = cancel_run,
    });
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(create_run_reports_the_first_fault_of_any_set);
    RUN_TEST(register_shards_reports_the_first_fault_of_any_set);
    RUN_TEST(add_shards_reports_the_first_fault_of_any_set);
    RUN_TEST(create_run_with_shards_reports_the_first_fault_of_any_set);
    RUN_TEST(complete_run_reports_the_first_fault_of_any_set);
    RUN_TEST(fail_run_reports_the_first_fault_of_any_set);
    RUN_TEST(cancel_run_reports_the_first_fault_of_any_set);
    return UNITY_END();
}
