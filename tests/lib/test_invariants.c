/* The checks before every publish bite: for each invariant of PROTOCOL section 7, a record that
 * breaks it and nothing else is reported, in the words for it. */
#include <unity.h>

#include "box.h"
#include "desk.h"
#include "run.h"

static struct rf_box box;
static struct rf_run run;

/* A root shard in the middle of its life: leased, moved, with 3 operations and 2 residuals. */
void setUp(void)
{
    rf_tenant tenant = rf_tenant_of(1);
    rf_box_make_root(&box, &tenant, 7, 100, rf_spec_of("d", "w"), rf_cursor_with("m", "token"));
    box.state.fence = 5;
    box.state.owner = 42;
    box.state.deadline = 1000;
    box.state.flags = RF_SHARD_LEASED;
    box.state.spawned_count = 2;
    box.spawned[0] = RF_DERIVED_BIT | 1;
    box.spawned[1] = RF_DERIVED_BIT | 2;
    for (uint64_t op = 1; op <= 3; op++) {
        rf_box_push(&box, op, op, RF_OP_CHECKPOINT, op);
    }
    run = (struct rf_run){
        .tenant = tenant,
        .run = 7,
        .config = {.lease_duration = 1000},
        .status = RF_RUN_ACTIVE,
        .created_at = 50,
        .root_count = 3,
        .ring_count = 2,
        .ring_next = 2,
        .ring = {.op = {1, 2}},
    };
}

void tearDown(void)
{
}

static void expect_box(const char *violation)
{
    struct rf_shard view = rf_box_view(&box);
    const char *found = rf_shard_violation(&view);
    if (violation == NULL) {
        TEST_ASSERT_NULL_MESSAGE(found, found);
    } else {
        TEST_ASSERT_NOT_NULL_MESSAGE(found, violation);
        TEST_ASSERT_EQUAL_STRING(violation, found);
    }
}

/* For what can be told from the scalars alone, all three checks must say so. */
static void expect_state(const char *violation)
{
    expect_box(violation);
    const char *found = rf_shard_state_violation(&box.state, box.shard);
    TEST_ASSERT_NOT_NULL_MESSAGE(found, violation);
    TEST_ASSERT_EQUAL_STRING(violation, found);
    struct rf_shard view = rf_box_view(&box);
    struct rf_shard_step step = {.next = box.state};
    TEST_ASSERT_EQUAL_STRING(violation, rf_shard_step_violation(&view, &step));
}

static void expect_run(const char *violation)
{
    const char *found = rf_run_violation(&run);
    if (violation == NULL) {
        TEST_ASSERT_NULL_MESSAGE(found, found);
    } else {
        TEST_ASSERT_NOT_NULL_MESSAGE(found, violation);
        TEST_ASSERT_EQUAL_STRING(violation, found);
    }
}

static void end_shard(rf_shard_status status)
{
    box.state.status = (uint8_t)status;
    box.state.flags = 0;
    box.state.park_reason = status == RF_SHARD_PARKED ? RF_PARK_OTHER : RF_NO_REASON;
}

static void valid_records_are_valid(void)
{
    expect_box(NULL);
    for (unsigned status = RF_SHARD_DONE; status <= RF_SHARD_PARKED; status++) {
        end_shard((rf_shard_status)status);
        expect_box(NULL);
    }
    expect_run(NULL);
    run.status = RF_RUN_INITIALIZING;
    run.root_count = 0;
    expect_run(NULL);
    for (unsigned status = RF_RUN_DONE; status <= RF_RUN_CANCELLED; status++) {
        setUp();
        run.status = (rf_run_status)status;
        run.completed_at = 50;
        expect_run(NULL);
    }
}

static void unknown_numbers_are_reported(void)
{
    box.state.status = 4;
    expect_state("unknown shard status");
    setUp();
    box.state.semantics = 2;
    expect_state("unknown cursor semantics");
    setUp();
    for (unsigned bit = 2; bit < 8; bit++) {
        box.state.flags = (uint8_t)(RF_SHARD_LEASED | 1u << bit);
        expect_state("unknown flags");
    }
}

static void a_park_reason_goes_with_parked_and_with_nothing_else(void)
{
    for (unsigned status = 0; status < RF_SHARD_PARKED; status++) {
        end_shard((rf_shard_status)status);
        for (unsigned reason = 0; reason <= RF_PARK_OTHER; reason++) {
            box.state.park_reason = (uint8_t)reason;
            expect_state("a park reason exactly if parked");
        }
    }
    end_shard(RF_SHARD_PARKED);
    box.state.park_reason = RF_NO_REASON;
    expect_state("a park reason exactly if parked");
    box.state.park_reason = RF_PARK_OTHER + 1;
    expect_state("a park reason exactly if parked");
    for (unsigned reason = 0; reason <= RF_PARK_OTHER; reason++) {
        box.state.park_reason = (uint8_t)reason;
        expect_box(NULL);
    }
}

static void a_terminal_shard_with_a_lease_is_reported(void)
{
    for (unsigned status = RF_SHARD_DONE; status <= RF_SHARD_PARKED; status++) {
        end_shard((rf_shard_status)status);
        box.state.flags = RF_SHARD_LEASED;
        expect_state("a terminal shard has no lease");
    }
}

static void a_fence_of_0_is_reported(void)
{
    box.state.fence = 0;
    expect_state("the fence is at least 1");
}

static void a_fence_that_goes_down_is_reported_of_a_step(void)
{
    struct rf_shard view = rf_box_view(&box);
    struct rf_shard_step step = {.next = box.state};
    TEST_ASSERT_NULL(rf_shard_step_violation(&view, &step));
    step.next.fence--;
    TEST_ASSERT_EQUAL_STRING("the fence never goes down", rf_shard_step_violation(&view, &step));
    step.next.fence = 0;
    TEST_ASSERT_EQUAL_STRING("the fence never goes down", rf_shard_step_violation(&view, &step));
}

static void a_ring_of_more_than_16_or_out_of_shape_is_reported(void)
{
    box.state.ring_count = 17;
    expect_state("the ring holds at most 16");
    box.state.ring_count = 3;
    box.state.ring_next = 4;
    expect_state("the ring holds at most 16");
    box.state.ring_next = 2;
    expect_state("the ring holds at most 16");
    box.state.ring_count = 16;
    box.state.ring_next = 16;
    expect_state("the ring holds at most 16");
}

static void equal_op_ids_in_the_ring_are_reported(void)
{
    for (uint64_t op = 4; op <= 16; op++) {
        rf_box_push(&box, op, op, RF_OP_CHECKPOINT, op);
    }
    expect_box(NULL);
    for (uint32_t slot = 1; slot < 16; slot++) {
        uint64_t kept = box.ring.op[slot];
        box.ring.op[slot] = box.ring.op[slot - 1];
        expect_box("op ids in the ring are unique");
        box.ring.op[slot] = kept;
    }
    box.ring.op[15] = box.ring.op[0];
    expect_box("op ids in the ring are unique");
}

static void unknown_kinds_and_results_in_the_ring_are_reported(void)
{
    box.ring.kind[2] = RF_OP_RELEASE + 1;
    expect_box("unknown kind or result in the ring");
    box.ring.kind[2] = RF_OP_RELEASE;
    expect_box(NULL);
    box.ring.result[0] = RF_RESULT_SUPERSEDED + 1;
    expect_box("unknown kind or result in the ring");
    box.ring.result[0] = RF_RESULT_SUPERSEDED;
    expect_box(NULL);
    box.ring.kind[3] = 0xFF; /* a slot that is not used */
    expect_box(NULL);
}

static void a_split_shard_without_children_is_reported(void)
{
    end_shard(RF_SHARD_SPLIT);
    box.state.spawned_count = 0;
    expect_state("a split shard has spawned");
}

static void more_than_1024_spawned_are_reported(void)
{
    for (uint32_t i = 0; i < RF_SPAWNED_MAX; i++) {
        box.spawned[i] = RF_DERIVED_BIT | i;
    }
    box.state.spawned_count = 1024;
    expect_box(NULL);
    box.state.spawned_count = 1025;
    expect_state("at most 1024 spawned");
}

static void a_spawned_id_without_bit_63_is_reported(void)
{
    box.spawned[1] = 2;
    expect_box("spawned ids are derived");
    box.state.spawned_count = 1; /* no longer one of them */
    expect_box(NULL);
    box.spawned[0] = 1;
    expect_box("spawned ids are derived");
}

static void a_parent_goes_with_bit_63_and_with_nothing_else(void)
{
    box.state.flags |= RF_SHARD_HAS_PARENT;
    expect_state("a parent exactly if derived");
    box.shard |= RF_DERIVED_BIT;
    expect_box(NULL);
    box.state.flags = RF_SHARD_LEASED;
    expect_state("a parent exactly if derived");
}

static void cursors_that_can_not_be_are_reported(void)
{
    box.has_key = 0;
    box.key_len = 0;
    expect_box("no token without a key");
    box.token_len = 0;
    expect_box(NULL);
    rf_box_set_cursor(&box, rf_cursor_at("w"));
    expect_box("the cursor is inside the range");
    rf_box_set_cursor(&box, rf_cursor_at("c"));
    expect_box("the cursor is inside the range");
    rf_box_set_cursor(&box, rf_cursor_at("d"));
    expect_box(NULL);
}

static void an_inverted_range_is_reported(void)
{
    rf_box_set_spec(&box, rf_spec_of("n", "m"));
    expect_box("start is below end");
    rf_box_set_spec(&box, rf_spec_of("m", "m"));
    expect_box("start is below end");
}

static void unknown_numbers_of_a_run_are_reported(void)
{
    run.status = (rf_run_status)5;
    expect_run("unknown run status");
    setUp();
    run.config.semantics = (rf_semantics)2;
    expect_run("unknown cursor semantics");
    setUp();
    run.ring.kind[1] = RF_RUN_OP_ADD_SHARDS + 1;
    expect_run("unknown kind or result in the ring");
    run.ring.kind[1] = RF_RUN_OP_ADD_SHARDS;
    run.ring.result[0] = RF_RESULT_SUPERSEDED + 1;
    expect_run("unknown kind or result in the ring");
}

static void a_run_with_leases_of_0_is_reported(void)
{
    run.config.lease_duration = 0;
    expect_run("the lease duration is not 0");
}

static void an_active_run_without_roots_is_reported(void)
{
    run.root_count = 0;
    expect_run("an active run has root shards");
}

static void an_initializing_run_with_roots_is_reported(void)
{
    run.status = RF_RUN_INITIALIZING;
    expect_run("an initializing run has no shards");
}

static void completed_at_goes_with_terminal_and_with_nothing_else(void)
{
    run.completed_at = 60;
    expect_run("completed_at exactly if terminal");
    for (unsigned status = RF_RUN_DONE; status <= RF_RUN_CANCELLED; status++) {
        run.status = (rf_run_status)status;
        run.completed_at = 0;
        expect_run("completed_at exactly if terminal");
        run.completed_at = 49;
        expect_run("completed_at is not before created_at");
        run.completed_at = 50;
        expect_run(NULL);
    }
    run.status = RF_RUN_INITIALIZING;
    run.root_count = 0;
    expect_run("completed_at exactly if terminal");
}

static void the_ring_of_a_run_is_checked_like_that_of_a_shard(void)
{
    run.ring_count = 9;
    expect_run("the ring holds at most 8");
    run.ring_count = 2;
    run.ring_next = 3;
    expect_run("the ring holds at most 8");
    run.ring_count = run.ring_next = 8;
    expect_run("the ring holds at most 8");
    setUp();
    run.ring.op[1] = run.ring.op[0];
    expect_run("op ids in the ring are unique");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(valid_records_are_valid);
    RUN_TEST(unknown_numbers_are_reported);
    RUN_TEST(a_park_reason_goes_with_parked_and_with_nothing_else);
    RUN_TEST(a_terminal_shard_with_a_lease_is_reported);
    RUN_TEST(a_fence_of_0_is_reported);
    RUN_TEST(a_fence_that_goes_down_is_reported_of_a_step);
    RUN_TEST(a_ring_of_more_than_16_or_out_of_shape_is_reported);
    RUN_TEST(equal_op_ids_in_the_ring_are_reported);
    RUN_TEST(unknown_kinds_and_results_in_the_ring_are_reported);
    RUN_TEST(a_split_shard_without_children_is_reported);
    RUN_TEST(more_than_1024_spawned_are_reported);
    RUN_TEST(a_spawned_id_without_bit_63_is_reported);
    RUN_TEST(a_parent_goes_with_bit_63_and_with_nothing_else);
    RUN_TEST(cursors_that_can_not_be_are_reported);
    RUN_TEST(an_inverted_range_is_reported);
    RUN_TEST(unknown_numbers_of_a_run_are_reported);
    RUN_TEST(a_run_with_leases_of_0_is_reported);
    RUN_TEST(an_active_run_without_roots_is_reported);
    RUN_TEST(an_initializing_run_with_roots_is_reported);
    RUN_TEST(completed_at_goes_with_terminal_and_with_nothing_else);
    RUN_TEST(the_ring_of_a_run_is_checked_like_that_of_a_shard);
    return UNITY_END();
}
