/* The operations on a run. That refusals and replays change nothing is checked by the desk. */
#include "run.h"

#include <stdio.h>
#include <unity.h>

#include "desk.h"
#include "run_desk.h"

static struct rf_run_desk desk;
static rf_shard_input two[2];

void setUp(void)
{
    rf_tenant tenant = rf_tenant_of(1);
    rf_run_desk_open(&desk, &tenant, 7);
    two[0] = rf_input_of(1, "a", "m");
    two[1] = rf_input_of(2, "m", "z");
}

void tearDown(void)
{
}

static void expect(rf_status expected, rf_status got)
{
    TEST_ASSERT_EQUAL_STRING(rf_status_name(expected), rf_status_name(got));
}

static void expect_replay(rf_status got)
{
    expect(RF_OK, got);
    TEST_ASSERT_EQUAL(RF_REPLAYED, desk.step.outcome);
}

static void expect_execution(rf_status got)
{
    expect(RF_OK, got);
    TEST_ASSERT_EQUAL(RF_EXECUTED, desk.step.outcome);
}

static void begin_run(void)
{
    expect_execution(rf_run_desk_create(&desk));
    desk.op = 1;
    expect_execution(rf_run_desk_register(&desk, two, 2));
}

static void a_created_run_is_initializing_and_empty(void)
{
    desk.config.semantics = RF_DISPATCHED;
    desk.config.has_max_retries = true;
    desk.config.max_retries = 3;
    expect_execution(rf_run_desk_create(&desk));
    TEST_ASSERT_EQUAL(RF_RUN_INITIALIZING, desk.run.status);
    TEST_ASSERT_EQUAL_UINT64(100, desk.run.created_at);
    TEST_ASSERT_EQUAL_UINT64(0, desk.run.completed_at);
    TEST_ASSERT_EQUAL_UINT64(0, desk.run.root_count);
    TEST_ASSERT_EQUAL_UINT32(0, desk.run.ring_count);
    TEST_ASSERT_TRUE(rf_run_config_equal(&desk.config, &desk.run.config));
    TEST_ASSERT_EQUAL(RF_EVENT_RUN_CREATED, desk.event.kind);
    expect(RF_RUN_EXISTS, rf_run_desk_create(&desk));
}

static void an_impossible_config_is_refused(void)
{
    desk.config.lease_duration = 0;
    expect(RF_INVALID_CONFIG, rf_run_desk_create(&desk));
    desk.config.lease_duration = 1;
    desk.config.semantics = (rf_semantics)2;
    expect(RF_INVALID_CONFIG, rf_run_desk_create(&desk));
    expect(RF_INVALID_CONFIG, rf_run_desk_create_with_shards(&desk, two, 2));
    desk.config.semantics = (rf_semantics)-1;
    expect(RF_INVALID_CONFIG, rf_run_desk_create(&desk));
    desk.config.semantics = RF_COMPLETED;
    expect(RF_OK, rf_run_desk_create(&desk));
}

static void a_limit_of_retries_that_is_not_set_is_kept_as_0(void)
{
    desk.config.has_max_retries = false;
    desk.config.max_retries = 99;
    expect(RF_OK, rf_run_desk_create(&desk));
    TEST_ASSERT_EQUAL_UINT32(0, desk.run.config.max_retries);
    expect(RF_OK, rf_run_desk_create_with_shards(&desk, two, 2)); /* and is the same config */
}

static void configs_differ_by_any_field_that_is_set(void)
{
    rf_run_config a = {.lease_duration = 5, .has_max_retries = true, .max_retries = 3}, b = a;
    TEST_ASSERT_TRUE(rf_run_config_equal(&a, &b));
    b.lease_duration = 6;
    TEST_ASSERT_FALSE(rf_run_config_equal(&a, &b));
    b = a;
    b.semantics = RF_DISPATCHED;
    TEST_ASSERT_FALSE(rf_run_config_equal(&a, &b));
    b = a;
    b.max_retries = 4;
    TEST_ASSERT_FALSE(rf_run_config_equal(&a, &b));
    b = a;
    b.has_max_retries = false;
    TEST_ASSERT_FALSE(rf_run_config_equal(&a, &b));
    a.has_max_retries = false;
    b.max_retries = 77;
    TEST_ASSERT_TRUE(rf_run_config_equal(&a, &b));
}

static void registering_makes_the_run_active_with_its_roots(void)
{
    begin_run();
    TEST_ASSERT_EQUAL(RF_RUN_ACTIVE, desk.run.status);
    TEST_ASSERT_EQUAL_UINT64(2, desk.run.root_count);
    TEST_ASSERT_EQUAL_UINT32(2, desk.step.count);
    TEST_ASSERT_EQUAL(RF_EVENT_RUN_ACTIVATED, desk.event.kind);
    TEST_ASSERT_EQUAL_UINT8(RF_RUN_OP_REGISTER_SHARDS, desk.run.ring.kind[0]);
}

static void a_repeated_registration_is_replayed_in_any_order_of_its_shards(void)
{
    begin_run();
    expect_replay(rf_run_desk_register(&desk, two, 2));
    rf_shard_input swapped[2] = {two[1], two[0]};
    expect_replay(rf_run_desk_register(&desk, swapped, 2));
    desk.now = 1; /* any time will do */
    expect_replay(rf_run_desk_register(&desk, two, 2));
    expect(RF_OP_ID_CONFLICT, rf_run_desk_register(&desk, two, 1));
    desk.op = 2;
    expect(RF_WRONG_STATUS, rf_run_desk_register(&desk, two, 2));
}

static void a_registration_is_replayed_after_the_run_has_ended(void)
{
    begin_run();
    desk.op = 2;
    expect_execution(rf_run_desk_end(&desk, RF_RUN_OP_COMPLETE));
    desk.op = 1;
    expect_replay(rf_run_desk_register(&desk, two, 2));
    desk.op = 3;
    expect(RF_WRONG_STATUS, rf_run_desk_register(&desk, two, 2));
}

static void a_refused_registration_leaves_the_run_as_it_was(void)
{
    expect(RF_OK, rf_run_desk_create(&desk));
    two[1].spec.start = rf_text("l");
    expect(RF_OVERLAPPING_RANGES, rf_run_desk_register(&desk, two, 2));
    TEST_ASSERT_EQUAL(RF_RUN_INITIALIZING, desk.run.status);
    two[1].spec.start = rf_text("m");
    expect_execution(rf_run_desk_register(&desk, two, 2)); /* the op id is still free */
}

static void a_large_manifest_is_registered_from_any_order(void)
{
    enum { N = RF_RUN_DESK_SHARDS };
    static rf_shard_input shards[N];
    static char bound[N + 1][5];
    for (uint32_t i = 0; i <= N; i++) {
        snprintf(bound[i], sizeof(bound[i]), "%04u", i % 10000);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t at = (uint32_t)(i * 1021u % N);
        shards[i] = rf_input_of(at, bound[at], bound[at + 1]);
    }
    expect(RF_OK, rf_run_desk_create(&desk));
    expect_execution(rf_run_desk_register(&desk, shards, N));
    TEST_ASSERT_EQUAL_UINT64(N, desk.run.root_count);
}

static void create_with_shards_does_both_and_is_safe_to_repeat(void)
{
    expect_execution(rf_run_desk_create_with_shards(&desk, two, 2));
    TEST_ASSERT_EQUAL(RF_RUN_ACTIVE, desk.run.status);
    TEST_ASSERT_EQUAL_UINT64(100, desk.run.created_at);
    desk.now = 200;
    expect_replay(rf_run_desk_create_with_shards(&desk, two, 2));
    expect_replay(rf_run_desk_register(&desk, two, 2)); /* the same operation by its other name */
    desk.op = 2;
    expect_execution(rf_run_desk_end(&desk, RF_RUN_OP_FAIL));
    desk.op = 1;
    expect_replay(rf_run_desk_create_with_shards(&desk, two, 2));
}

static void create_with_shards_goes_on_where_a_creation_stopped(void)
{
    expect_execution(rf_run_desk_create(&desk));
    desk.now = 300;
    expect_execution(rf_run_desk_create_with_shards(&desk, two, 2));
    TEST_ASSERT_EQUAL(RF_RUN_ACTIVE, desk.run.status);
    TEST_ASSERT_EQUAL_UINT64(100, desk.run.created_at);
}

static void create_with_shards_refuses_another_config_even_as_a_replay(void)
{
    expect_execution(rf_run_desk_create_with_shards(&desk, two, 2));
    desk.config.lease_duration++;
    expect(RF_CONFIG_MISMATCH, rf_run_desk_create_with_shards(&desk, two, 2));
    desk.config.lease_duration = 0; /* impossible is also another */
    expect(RF_CONFIG_MISMATCH, rf_run_desk_create_with_shards(&desk, two, 2));
}

static void create_with_shards_makes_nothing_if_a_shard_is_refused(void)
{
    expect(RF_MANIFEST_EMPTY, rf_run_desk_create_with_shards(&desk, NULL, 0));
    TEST_ASSERT_FALSE(desk.exists);
    two[0].shard = two[1].shard;
    expect(RF_DUPLICATE_SHARD, rf_run_desk_create_with_shards(&desk, two, 2));
    TEST_ASSERT_FALSE(desk.exists);
}

static void shards_are_added_to_an_active_run_only(void)
{
    rf_shard_input more = rf_input_of(3, "z", "zz");
    expect(RF_OK, rf_run_desk_create(&desk));
    desk.op = 5;
    expect(RF_WRONG_STATUS, rf_run_desk_add(&desk, &more, 1));
    desk.op = 1;
    expect(RF_OK, rf_run_desk_register(&desk, two, 2));
    desk.op = 5;
    expect_execution(rf_run_desk_add(&desk, &more, 1));
    TEST_ASSERT_EQUAL(RF_RUN_ACTIVE, desk.run.status);
    TEST_ASSERT_EQUAL_UINT64(3, desk.run.root_count);
    TEST_ASSERT_EQUAL(RF_EVENT_SHARDS_ADDED, desk.event.kind);
    TEST_ASSERT_EQUAL_UINT8(RF_RUN_OP_ADD_SHARDS, desk.run.ring.kind[1]);
    expect_replay(rf_run_desk_add(&desk, &more, 1));
    expect(RF_OP_ID_CONFLICT, rf_run_desk_register(&desk, &more, 1)); /* another tag */
    desk.op = 6;
    expect(RF_OK, rf_run_desk_end(&desk, RF_RUN_OP_CANCEL));
    desk.op = 7;
    expect(RF_WRONG_STATUS, rf_run_desk_add(&desk, &more, 1));
    desk.op = 5;
    expect_replay(rf_run_desk_add(&desk, &more, 1));
}

static bool id_is_known(void *context, uint64_t shard)
{
    return shard < *(const uint64_t *)context;
}

/* Forgotten by the ring, an addition is still not made twice: its ids are there. */
static void the_ninth_operation_takes_the_oldest_place(void)
{
    static char bound[12][3];
    begin_run();
    uint64_t known = 3;
    desk.env.exists = id_is_known;
    desk.env.context = &known;
    for (uint32_t i = 0; i < 11; i++) {
        snprintf(bound[i], sizeof(bound[i]), "A%c", (char)('a' + i));
    }
    rf_shard_input added[8];
    for (uint32_t i = 0; i < 7; i++) {
        desk.op = 10 + i;
        added[i] = rf_input_of(3 + i, bound[i], bound[i + 1]);
        expect_execution(rf_run_desk_add(&desk, &added[i], 1));
        known++;
    }
    TEST_ASSERT_EQUAL_UINT32(8, desk.run.ring_count);
    desk.op = 1;
    expect_replay(rf_run_desk_register(&desk, two, 2));
    desk.op = 20;
    added[7] = rf_input_of(10, bound[8], bound[9]);
    expect_execution(rf_run_desk_add(&desk, &added[7], 1));
    TEST_ASSERT_EQUAL_UINT32(8, desk.run.ring_count);
    TEST_ASSERT_EQUAL_UINT32(1, desk.run.ring_next);
    known++;
    desk.op = 1;
    expect(RF_WRONG_STATUS, rf_run_desk_register(&desk, two, 2));
    desk.op = 10;
    expect_replay(rf_run_desk_add(&desk, &added[0], 1));
    desk.op = 21;
    rf_shard_input last = rf_input_of(11, bound[9], bound[10]);
    expect_execution(rf_run_desk_add(&desk, &last, 1));
    desk.op = 10;
    expect(RF_DUPLICATE_SHARD, rf_run_desk_add(&desk, &added[0], 1));
}

static void a_run_ends_once(void)
{
    static const struct {
        rf_run_op_kind kind;
        rf_run_status status;
        rf_event_kind event;
    } ends[] = {
        {RF_RUN_OP_COMPLETE, RF_RUN_DONE, RF_EVENT_RUN_COMPLETED},
        {RF_RUN_OP_FAIL, RF_RUN_FAILED, RF_EVENT_RUN_FAILED},
        {RF_RUN_OP_CANCEL, RF_RUN_CANCELLED, RF_EVENT_RUN_CANCELLED},
    };
    for (size_t i = 0; i < 3; i++) {
        setUp();
        begin_run();
        desk.now = 200;
        desk.op = 2;
        expect_execution(rf_run_desk_end(&desk, ends[i].kind));
        TEST_ASSERT_EQUAL(ends[i].status, desk.run.status);
        TEST_ASSERT_EQUAL(ends[i].event, desk.event.kind);
        TEST_ASSERT_EQUAL_UINT64(200, desk.run.completed_at);
        desk.now = 300;
        expect_replay(rf_run_desk_end(&desk, ends[i].kind));
        for (size_t j = 0; j < 3; j++) {
            desk.op = 2;
            if (j != i) {
                expect(RF_OP_ID_CONFLICT, rf_run_desk_end(&desk, ends[j].kind));
            }
            desk.op = 3;
            expect(RF_RUN_TERMINAL, rf_run_desk_end(&desk, ends[j].kind));
        }
    }
}

static void an_initializing_run_is_cancelled_but_neither_done_nor_failed(void)
{
    expect(RF_OK, rf_run_desk_create(&desk));
    expect(RF_WRONG_STATUS, rf_run_desk_end(&desk, RF_RUN_OP_COMPLETE));
    expect(RF_WRONG_STATUS, rf_run_desk_end(&desk, RF_RUN_OP_FAIL));
    expect_execution(rf_run_desk_end(&desk, RF_RUN_OP_CANCEL));
    TEST_ASSERT_EQUAL_UINT64(0, desk.run.root_count);
    expect(RF_OP_ID_CONFLICT, rf_run_desk_register(&desk, two, 2));
    desk.op = 2;
    expect(RF_WRONG_STATUS, rf_run_desk_register(&desk, two, 2));
}

static void times_of_a_run_never_go_down(void)
{
    desk.now = 500;
    expect(RF_OK, rf_run_desk_create(&desk));
    desk.now = 50; /* before the creation */
    desk.op = 1;
    expect(RF_OK, rf_run_desk_register(&desk, two, 2));
    TEST_ASSERT_EQUAL_UINT64(500, desk.run.ring.executed_at[0]);
    desk.now = 800;
    desk.op = 2;
    rf_shard_input more = rf_input_of(3, "z", "zz");
    expect(RF_OK, rf_run_desk_add(&desk, &more, 1));
    desk.now = 600;
    desk.op = 3;
    expect(RF_OK, rf_run_desk_end(&desk, RF_RUN_OP_COMPLETE));
    TEST_ASSERT_EQUAL_UINT64(800, desk.run.completed_at);
    TEST_ASSERT_EQUAL_UINT64(800, desk.run.ring.executed_at[2]);
}

static void a_run_that_is_cancelled_before_it_was_made_ends_when_it_was_made(void)
{
    desk.now = 500;
    expect(RF_OK, rf_run_desk_create(&desk));
    desk.now = 1;
    expect(RF_OK, rf_run_desk_end(&desk, RF_RUN_OP_CANCEL));
    TEST_ASSERT_EQUAL_UINT64(500, desk.run.completed_at);
}

static void a_foreign_tenant_finds_no_run(void)
{
    begin_run();
    rf_shard_input more = rf_input_of(3, "z", "zz");
    for (size_t i = 0; i < sizeof(desk.tenant.bytes); i++) {
        desk.tenant = rf_tenant_of(1);
        desk.tenant.bytes[i] ^= 0x80;
        expect(RF_RUN_NOT_FOUND, rf_run_desk_register(&desk, two, 2)); /* not even replayed */
        expect(RF_RUN_NOT_FOUND, rf_run_desk_add(&desk, &more, 1));
        expect(RF_RUN_NOT_FOUND, rf_run_desk_end(&desk, RF_RUN_OP_COMPLETE));
    }
}

static void the_time_0_is_refused_by_every_operation(void)
{
    desk.now = 0;
    expect(RF_INVALID_TIME, rf_run_desk_create(&desk));
    expect(RF_INVALID_TIME, rf_run_desk_create_with_shards(&desk, two, 2));
    expect(RF_INVALID_TIME, rf_run_desk_register(&desk, two, 2));
    expect(RF_INVALID_TIME, rf_run_desk_add(&desk, two, 2));
    expect(RF_INVALID_TIME, rf_run_desk_end(&desk, RF_RUN_OP_COMPLETE));
    expect(RF_INVALID_TIME, rf_run_desk_end(&desk, RF_RUN_OP_CANCEL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_created_run_is_initializing_and_empty);
    RUN_TEST(an_impossible_config_is_refused);
    RUN_TEST(a_limit_of_retries_that_is_not_set_is_kept_as_0);
    RUN_TEST(configs_differ_by_any_field_that_is_set);
    RUN_TEST(registering_makes_the_run_active_with_its_roots);
    RUN_TEST(a_repeated_registration_is_replayed_in_any_order_of_its_shards);
    RUN_TEST(a_registration_is_replayed_after_the_run_has_ended);
    RUN_TEST(a_refused_registration_leaves_the_run_as_it_was);
    RUN_TEST(a_large_manifest_is_registered_from_any_order);
    RUN_TEST(create_with_shards_does_both_and_is_safe_to_repeat);
    RUN_TEST(create_with_shards_goes_on_where_a_creation_stopped);
    RUN_TEST(create_with_shards_refuses_another_config_even_as_a_replay);
    RUN_TEST(create_with_shards_makes_nothing_if_a_shard_is_refused);
    RUN_TEST(shards_are_added_to_an_active_run_only);
    RUN_TEST(the_ninth_operation_takes_the_oldest_place);
    RUN_TEST(a_run_ends_once);
    RUN_TEST(an_initializing_run_is_cancelled_but_neither_done_nor_failed);
    RUN_TEST(times_of_a_run_never_go_down);
    RUN_TEST(a_run_that_is_cancelled_before_it_was_made_ends_when_it_was_made);
    RUN_TEST(a_foreign_tenant_finds_no_run);
    RUN_TEST(the_time_0_is_refused_by_every_operation);
    return UNITY_END();
}
