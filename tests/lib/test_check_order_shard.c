/* The order of the checks of every operation on a shard (PROTOCOL sections 3 and 4): of several
 * faults in one call the earliest is reported, the rows of the STATUS TABLE say the same, and no
 * refusal gives a secret away. */
#include <unity.h>

#include "desk.h"
#include "drill.h"
#include "secret.h"
#include "status_table.h"

/* In the order of the checks, for all operations together. */
enum fault {
    TIME,
    REASON,
    ABSENT,
    TENANT,
    OTHER_RUN,
    OTHER_SHARD,
    RUN_ENDED,
    CONFLICT,
    TERMINAL,
    NOT_PARKED,
    LEASED,
    FENCE,
    NO_LEASE,
    EXPIRED,
    OWNER,
    FENCE_MAX,
    FLOOR_MAX,
    COUNT,
    START,
    END,
    COVERAGE,
    INVERTED,
    KEY,
    METADATA,
    NO_KEY,
    CURSOR_KEY,
    TOKEN,
    REGRESSION,
    OUTSIDE,
    SPAWNED,
    TENANT_LIMIT,
    TOTAL_LIMIT,
    COLLISION,
};

#define BIT(fault) (1ull << (fault))

static const struct rf_fault faults_in_order[64] = {
    [TIME] = {"TIME", RF_INVALID_TIME, 0},
    [REASON] = {"REASON", RF_INVALID_ARGUMENT, 0},
    [ABSENT] = {"ABSENT", RF_NOT_FOUND, 0},
    [TENANT] = {"TENANT", RF_NOT_FOUND, 0},
    [OTHER_RUN] = {"OTHER_RUN", RF_NOT_FOUND, 0},
    [OTHER_SHARD] = {"OTHER_SHARD", RF_NOT_FOUND, 0},
    [RUN_ENDED] = {"RUN_ENDED", RF_RUN_TERMINAL, 0},
    [CONFLICT] = {"CONFLICT", RF_OP_ID_CONFLICT, 0},
    [TERMINAL] = {"TERMINAL", RF_SHARD_TERMINAL, 0},
    [NOT_PARKED] = {"NOT_PARKED", RF_NOT_PARKED, 0},
    [LEASED] = {"LEASED", RF_ALREADY_LEASED, 0},
    [FENCE] = {"FENCE", RF_STALE_FENCE, 0},
    [NO_LEASE] = {"NO_LEASE", RF_STALE_FENCE, 0},
    [EXPIRED] = {"EXPIRED", RF_LEASE_EXPIRED, 0},
    [OWNER] = {"OWNER", RF_STALE_FENCE, 0},
    [FENCE_MAX] = {"FENCE_MAX", RF_FENCE_EXHAUSTED, 0},
    [FLOOR_MAX] = {"FLOOR_MAX", RF_FENCE_EXHAUSTED, 0},
    [COUNT] = {"COUNT", RF_SPLIT_COUNT, 0},
    [START] = {"START", RF_SPLIT_COVERAGE, 0},
    [END] = {"END", RF_SPLIT_COVERAGE, 0},
    [COVERAGE] = {"COVERAGE", RF_SPLIT_COVERAGE, 0},
    [INVERTED] = {"INVERTED", RF_RANGE_INVERTED, 0},
    [KEY] = {"KEY", RF_KEY_TOO_LARGE, RF_KEY_MAX},
    [METADATA] = {"METADATA", RF_METADATA_TOO_LARGE, RF_METADATA_MAX},
    [NO_KEY] = {"NO_KEY", RF_MISSING_KEY, 0},
    [CURSOR_KEY] = {"CURSOR_KEY", RF_KEY_TOO_LARGE, RF_KEY_MAX},
    [TOKEN] = {"TOKEN", RF_TOKEN_TOO_LARGE, RF_TOKEN_MAX},
    [REGRESSION] = {"REGRESSION", RF_CURSOR_REGRESSION, 0},
    [OUTSIDE] = {"OUTSIDE", RF_CURSOR_OUT_OF_BOUNDS, 0},
    [SPAWNED] = {"SPAWNED", RF_SPAWNED_LIMIT, RF_SPAWNED_MAX},
    [TENANT_LIMIT] = {"TENANT_LIMIT", RF_SHARD_LIMIT, 1000},
    [TOTAL_LIMIT] = {"TOTAL_LIMIT", RF_SHARD_LIMIT, 2000},
    [COLLISION] = {"COLLISION", RF_DERIVED_ID_COLLISION, 0},
};

#define LOOKUP (BIT(TIME) | BIT(ABSENT) | BIT(TENANT))
#define LEASE                                                                                      \
    (BIT(OTHER_RUN) | BIT(OTHER_SHARD) | BIT(TERMINAL) | BIT(FENCE) | BIT(NO_LEASE) |              \
     BIT(EXPIRED) | BIT(OWNER))
#define CURSOR     (BIT(NO_KEY) | BIT(CURSOR_KEY) | BIT(TOKEN) | BIT(REGRESSION) | BIT(OUTSIDE))
#define COVER      (BIT(START) | BIT(END) | BIT(COVERAGE))
#define SPLIT_ROOM (BIT(SPAWNED) | BIT(TENANT_LIMIT) | BIT(TOTAL_LIMIT) | BIT(COLLISION))

static struct rf_box box;
static struct rf_desk desk;

void setUp(void)
{
}

void tearDown(void)
{
}

static bool any_id_exists(void *context, uint64_t shard)
{
    (void)context;
    return (shard & RF_DERIVED_BIT) != 0;
}

static rf_spec span(char start, char end)
{
    return (rf_spec){.start = rf_secret_key(start), .end = rf_secret_key(end)};
}

/* A shard [d, w) at m, fence 5, held until 1000; it is 500. */
static void set_scene(uint64_t faults)
{
    rf_tenant tenant = rf_secret_tenant();
    rf_cursor cursor = {.key = rf_secret_key('m'), .token = rf_secret_token(20)};
    rf_spec spec = span('d', 'w');
    spec.metadata = rf_secret_metadata(20);
    rf_box_make_root(&box, &tenant, 7, 100, spec, cursor);
    rf_desk_open(&desk, &box);
    box.state.fence = 5;
    box.state.owner = RF_SECRET_OWNER;
    box.state.deadline = 1000;
    box.state.flags = RF_SHARD_LEASED;
    box.state.spawned_count = 0;
    rf_box_push(&box, 800, RF_SECRET_HASH, RF_OP_CHECKPOINT, 400);
    desk.now = 500;
    desk.op = 900;
    desk.lease.worker = RF_SECRET_OWNER;
    desk.lease.fence = 5;
    desk.env.tenant_limit = 1000;
    desk.env.total_limit = 2000;

    if (faults & BIT(CONFLICT)) {
        rf_box_push(&box, desk.op, RF_SECRET_HASH, RF_OP_PARK, 450);
    }
    if (faults & BIT(FENCE)) {
        desk.lease.fence = 4;
    }
    if (faults & BIT(EXPIRED)) {
        box.state.deadline = desk.now;
    }
    if (faults & BIT(OWNER)) {
        desk.lease.worker = 43;
    }
    if (faults & BIT(NO_LEASE)) {
        box.state.flags = 0;
    }
    if (faults & BIT(TERMINAL)) {
        box.state.status = RF_SHARD_DONE;
        box.state.flags = 0; /* but the stale owner and deadline stay, for the later faults */
    }
    if (faults & BIT(FENCE_MAX)) {
        box.state.fence = UINT64_MAX;
    }
    if (faults & BIT(FLOOR_MAX)) {
        desk.env.fence_floor = UINT64_MAX;
    }
    if (faults & BIT(RUN_ENDED)) {
        desk.env.run_status = RF_RUN_DONE;
    }
    if (faults & BIT(TENANT)) {
        desk.tenant = rf_secret_other_tenant();
    }
    if (faults & BIT(OTHER_RUN)) {
        desk.lease.run = 8;
    }
    if (faults & BIT(OTHER_SHARD)) {
        desk.lease.shard = 101;
    }
    if (faults & BIT(ABSENT)) {
        desk.box = NULL;
    }
    if (faults & BIT(TENANT_LIMIT)) {
        desk.env.tenant_shards = 1000;
    }
    if (faults & BIT(TOTAL_LIMIT)) {
        desk.env.total_shards = 2000;
    }
    if (faults & BIT(COLLISION)) {
        desk.env.exists = any_id_exists;
    }
    if (faults & BIT(SPAWNED)) {
        box.state.spawned_count = RF_SPAWNED_MAX;
        for (uint64_t i = 0; i < RF_SPAWNED_MAX; i++) {
            box.spawned[i] = RF_DERIVED_BIT | i;
        }
    }
    if (faults & BIT(TIME)) {
        desk.now = 0;
    }
}

/* A cursor for the range [d, w) (or a child that ends there) with `stored` behind it. */
static rf_cursor cursor_with(uint64_t faults, char good, char below, char outside,
                             char below_and_outside)
{
    bool is_below = (faults & BIT(REGRESSION)) != 0, is_outside = (faults & BIT(OUTSIDE)) != 0;
    char letter = is_below && is_outside ? below_and_outside
                  : is_below             ? below
                  : is_outside           ? outside
                                         : good;
    rf_cursor cursor = {.key = rf_secret_key(letter), .token = rf_secret_token(20)};
    if (faults & BIT(CURSOR_KEY)) {
        cursor.key = rf_secret_long_key(letter, RF_KEY_MAX + 1);
    }
    if (faults & BIT(TOKEN)) {
        cursor.token = rf_secret_token(RF_TOKEN_MAX + 1);
    }
    if (faults & BIT(NO_KEY)) {
        cursor.key = rf_bytes_none();
    }
    return cursor;
}

static rf_status finish(rf_status status, rf_detail *detail)
{
    *detail = desk.detail;
    const char *leak = rf_secret_leak(status, detail, &desk.hash, desk.hash != 0);
    TEST_ASSERT_NULL_MESSAGE(leak, leak);
    return status;
}

static rf_status acquire(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    box.state.deadline = faults & BIT(LEASED) ? desk.now + 1 : desk.now;
    return finish(rf_desk_acquire(&desk, RF_SECRET_OWNER), detail);
}

static rf_status renew(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    return finish(rf_desk_renew(&desk), detail);
}

static rf_status checkpoint(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    return finish(rf_desk_checkpoint(&desk, cursor_with(faults, 'p', 'f', 'x', 'a')), detail);
}

static rf_status complete(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    return finish(rf_desk_complete(&desk, cursor_with(faults, 'p', 'f', 'x', 'a')), detail);
}

static rf_status release(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    return finish(rf_desk_release(&desk, cursor_with(faults, 'p', 'f', 'x', 'a')), detail);
}

static rf_status park(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    rf_park_reason reason =
        faults & BIT(REASON) ? (rf_park_reason)(RF_PARK_OTHER + 1) : RF_PARK_OTHER;
    return finish(rf_desk_park(&desk, reason), detail);
}

static rf_status unpark(uint64_t faults, rf_detail *detail)
{
    set_scene(faults);
    box.state.flags = 0;
    if ((faults & BIT(NOT_PARKED)) == 0) {
        box.state.status = RF_SHARD_PARKED;
        box.state.park_reason = RF_PARK_POISONED;
    }
    return finish(rf_desk_unpark(&desk), detail);
}

/* Six children, given out of order; every fault sits where it leaves the earlier checks content. */
static rf_status split_replace(uint64_t faults, rf_detail *detail)
{
    static rf_child children[RF_SPLIT_CHILDREN_MAX + 1];
    memset(children, 0, sizeof(children));
    rf_bytes points[7];
    for (int i = 0; i < 7; i++) {
        points[i] = rf_secret_key("dfhknqw"[i]);
    }
    if (faults & BIT(INVERTED)) {
        points[3] = points[2];
    }
    if (faults & BIT(KEY)) {
        points[4] = rf_secret_long_key('n', RF_KEY_MAX + 1);
    }
    static const int position[6] = {1, 5, 0, 2, 3, 4};
    for (int i = 0; i < 6; i++) {
        children[position[i]].spec = (rf_spec){.start = points[i], .end = points[i + 1]};
    }
    if (faults & BIT(START)) {
        children[position[0]].spec.start = rf_secret_key('e');
    }
    if (faults & BIT(END)) {
        children[position[5]].spec.end = rf_secret_key('v');
    }
    if (faults & BIT(COVERAGE)) {
        children[position[1]].spec.end = rf_secret_key('g');
    }
    if (faults & BIT(METADATA)) {
        children[position[3]].spec.metadata = rf_secret_metadata(RF_METADATA_MAX + 1);
    }
    set_scene(faults);
    children[position[5]].cursor = cursor_with(faults, 's', 0, 'b', 0);
    return finish(
        rf_desk_split_replace(&desk, children, faults & BIT(COUNT) ? RF_SPLIT_CHILDREN_MAX + 1 : 6),
        detail);
}

/* [d, w) at m is cut at p, or where the faults want it. */
static rf_status split_residual(uint64_t faults, rf_detail *detail)
{
    bool inverted = (faults & BIT(INVERTED)) != 0, outside = (faults & BIT(OUTSIDE)) != 0;
    char cut = inverted && outside ? 'c' : inverted ? 'x' : outside ? 'k' : 'p';
    rf_bytes point =
        faults & BIT(KEY) ? rf_secret_long_key(cut, RF_KEY_MAX + 1) : rf_secret_key(cut);
    rf_spec parent_new = {.start = rf_secret_key(faults & BIT(START) ? 'e' : 'd'), .end = point};
    rf_spec residual = {.start = faults & BIT(COVERAGE) ? rf_secret_key('q') : point,
                        .end = rf_secret_key(faults & BIT(END) ? 'v' : 'w')};
    if (faults & BIT(METADATA)) {
        parent_new.metadata = rf_secret_metadata(RF_METADATA_MAX + 1);
    }
    set_scene(faults);
    return finish(rf_desk_split_residual(&desk, parent_new, residual), detail);
}

static void acquire_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "acquire",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(TERMINAL) | BIT(LEASED) | BIT(FENCE_MAX) | BIT(FLOOR_MAX),
        .attempt = acquire,
    });
}

static void renew_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "renew", .faults = faults_in_order, .mask = LOOKUP | LEASE, .attempt = renew});
}

static void checkpoint_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "checkpoint",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | LEASE | CURSOR,
        .attempt = checkpoint,
    });
}

static void complete_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "complete",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | LEASE | CURSOR,
        .attempt = complete,
    });
}

static void release_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "release",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | LEASE | CURSOR,
        .attempt = release,
    });
}

static void park_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "park",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(REASON) | BIT(CONFLICT) | LEASE,
        .attempt = park,
    });
}

static void unpark_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "unpark",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(RUN_ENDED) | BIT(CONFLICT) | BIT(NOT_PARKED) | BIT(FENCE_MAX) |
                BIT(FLOOR_MAX),
        .attempt = unpark,
    });
}

static void split_replace_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "split_replace",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | LEASE | BIT(COUNT) | COVER | BIT(INVERTED) | BIT(KEY) |
                BIT(METADATA) | (CURSOR & ~BIT(REGRESSION)) | SPLIT_ROOM,
        .attempt = split_replace,
    });
}

static void split_residual_reports_the_first_fault_of_any_set(void)
{
    rf_drill_run(&(struct rf_drill){
        .op = "split_residual",
        .faults = faults_in_order,
        .mask = LOOKUP | BIT(CONFLICT) | LEASE | COVER | BIT(INVERTED) | BIT(KEY) | BIT(METADATA) |
                BIT(OUTSIDE) | SPLIT_ROOM,
        .attempt = split_residual,
    });
}

/* Whoever puts an operation into the table is to give it a drill, here or for runs. */
static void every_row_of_the_table_has_a_drill(void)
{
    static const char *const drilled[] = {
        "acquire",    "renew",        "checkpoint",      "complete",
        "park",       "release",      "split_replace",   "split_residual",
        "unpark",     "create_run",   "register_shards", "create_run_with_shards",
        "add_shards", "complete_run", "fail_run",        "cancel_run",
    };
    uint32_t count;
    const struct rf_table_row *rows = rf_table_rows(&count);
    TEST_ASSERT_EQUAL_size_t(sizeof(drilled) / sizeof(drilled[0]), count);
    for (uint32_t i = 0; i < count; i++) {
        TEST_ASSERT_EQUAL_STRING(drilled[i], rows[i].op);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(acquire_reports_the_first_fault_of_any_set);
    RUN_TEST(renew_reports_the_first_fault_of_any_set);
    RUN_TEST(checkpoint_reports_the_first_fault_of_any_set);
    RUN_TEST(complete_reports_the_first_fault_of_any_set);
    RUN_TEST(release_reports_the_first_fault_of_any_set);
    RUN_TEST(park_reports_the_first_fault_of_any_set);
    RUN_TEST(unpark_reports_the_first_fault_of_any_set);
    RUN_TEST(split_replace_reports_the_first_fault_of_any_set);
    RUN_TEST(split_residual_reports_the_first_fault_of_any_set);
    RUN_TEST(every_row_of_the_table_has_a_drill);
    return UNITY_END();
}
