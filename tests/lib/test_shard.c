/* The operations on a shard: what each does, and what it does at the edges of time, fence, ring and
 * sizes. That refusals and replays change nothing is checked by the desk on every call. */
#include "shard.h"

#include <unity.h>

#include "desk.h"

static struct rf_box box;
static struct rf_desk desk;
static const uint8_t zeros[RF_TOKEN_MAX + 1];

#define WORKER 42u

static void make(const char *start, const char *end)
{
    rf_tenant tenant = rf_tenant_of(1);
    rf_box_make_root(&box, &tenant, 7, 100, rf_spec_of(start, end), (rf_cursor){0});
    rf_desk_open(&desk, &box);
}

static void hold(void)
{
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_acquire(&desk, WORKER));
}

void setUp(void)
{
    make("d", "w");
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

/* Checkpoints with op ids first .. first + count - 1. */
static void checkpoint_times(uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        desk.op = first + i;
        expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    }
}

/* --- acquire and renew --- */

static void the_first_grant_of_a_new_shard_has_fence_2(void)
{
    TEST_ASSERT_EQUAL_UINT64(1, box.state.fence);
    hold();
    TEST_ASSERT_EQUAL_UINT64(2, box.state.fence);
    TEST_ASSERT_EQUAL_UINT64(WORKER, box.state.owner);
    TEST_ASSERT_EQUAL_UINT64(1100, box.state.deadline);
    TEST_ASSERT_EQUAL_UINT32(1, box.state.attempts);
    TEST_ASSERT_EQUAL_UINT8(0, box.state.ring_count);
    TEST_ASSERT_EQUAL(RF_EVENT_ACQUIRED, desk.event.kind);
    TEST_ASSERT_EQUAL_UINT64(WORKER, desk.event.worker);
}

static void a_leased_shard_is_refused_also_to_its_owner(void)
{
    hold();
    expect(RF_ALREADY_LEASED, rf_desk_acquire(&desk, WORKER));
    TEST_ASSERT_EQUAL_UINT64(1100, desk.detail.deadline);
    expect(RF_ALREADY_LEASED, rf_desk_acquire(&desk, WORKER + 1));
    TEST_ASSERT_EQUAL_UINT64(1100, desk.detail.deadline);
}

static void a_lease_ends_exactly_at_its_deadline(void)
{
    hold();
    desk.now = 1099;
    expect(RF_ALREADY_LEASED, rf_desk_acquire(&desk, WORKER + 1));
    desk.op = 1;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.now = 1100;
    desk.op = 2;
    expect(RF_LEASE_EXPIRED, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    TEST_ASSERT_EQUAL_UINT64(1100, desk.detail.deadline);
    expect(RF_LEASE_EXPIRED, rf_desk_renew(&desk));
    expect(RF_OK, rf_desk_acquire(&desk, WORKER + 1));
    TEST_ASSERT_EQUAL_UINT64(3, box.state.fence);
}

static void available_and_leased_agree_about_the_deadline(void)
{
    hold();
    TEST_ASSERT_TRUE(rf_shard_leased_at(&box.state, 1099));
    TEST_ASSERT_FALSE(rf_shard_available_at(&box.state, 1099));
    TEST_ASSERT_FALSE(rf_shard_leased_at(&box.state, 1100));
    TEST_ASSERT_TRUE(rf_shard_available_at(&box.state, 1100));
    box.state.status = RF_SHARD_PARKED;
    TEST_ASSERT_FALSE(rf_shard_available_at(&box.state, 1100));
}

static void only_the_records_deadline_counts(void)
{
    hold();
    desk.lease.deadline = 1;
    expect(RF_OK, rf_desk_renew(&desk));
    desk.now = 5000;
    desk.lease.deadline = UINT64_MAX;
    expect(RF_LEASE_EXPIRED, rf_desk_renew(&desk));
    desk.lease.slot_hint = 12345; /* any value is safe */
    expect(RF_LEASE_EXPIRED, rf_desk_renew(&desk));
}

static void a_deadline_saturates_at_the_end_of_time(void)
{
    desk.now = UINT64_MAX - 10;
    desk.env.lease_duration = 100;
    hold();
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, box.state.deadline);
    desk.now = UINT64_MAX - 1;
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, box.state.deadline);
    desk.now = UINT64_MAX;
    expect(RF_LEASE_EXPIRED, rf_desk_renew(&desk));
}

static void a_renewed_deadline_saturates_too(void)
{
    hold();
    desk.env.lease_duration = UINT64_MAX;
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, box.state.deadline);
}

static void a_renewal_moves_the_deadline_and_nothing_else(void)
{
    hold();
    desk.now = 600;
    struct rf_shard_state expected = box.state;
    expected.deadline = 1600;
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_EQUAL_MEMORY(&expected, &box.state, sizeof(expected));
    TEST_ASSERT_EQUAL_UINT64(1600, desk.event.deadline);
}

static void a_renewal_at_an_earlier_now_never_shortens_the_deadline(void)
{
    hold();
    desk.now = 50;
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_EQUAL_UINT64(1100, box.state.deadline);
    desk.now = 1;
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_EQUAL_UINT64(1100, box.state.deadline);
    desk.now = 101;
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_EQUAL_UINT64(1101, box.state.deadline);
}

static void the_time_0_is_refused_by_every_operation(void)
{
    hold();
    desk.now = 0;
    rf_child children[2] = {rf_child_of("d", "m"), rf_child_of("m", "w")};
    expect(RF_INVALID_TIME, rf_desk_acquire(&desk, WORKER));
    expect(RF_INVALID_TIME, rf_desk_renew(&desk));
    expect(RF_INVALID_TIME, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect(RF_INVALID_TIME, rf_desk_complete(&desk, rf_cursor_at("e")));
    expect(RF_INVALID_TIME, rf_desk_park(&desk, RF_PARK_OTHER));
    expect(RF_INVALID_TIME, rf_desk_release(&desk, rf_cursor_at("e")));
    expect(RF_INVALID_TIME, rf_desk_split_replace(&desk, children, 2));
    expect(RF_INVALID_TIME, rf_desk_split_residual(&desk, children[0].spec, children[1].spec));
    expect(RF_INVALID_TIME, rf_desk_unpark(&desk));
    desk.now = 1;
    expect(RF_OK, rf_desk_renew(&desk));
}

static void a_grant_is_above_the_stores_floor(void)
{
    desk.env.fence_floor = 1000;
    hold();
    TEST_ASSERT_EQUAL_UINT64(1001, box.state.fence);
    desk.now = 5000;
    desk.env.fence_floor = 500; /* a floor below the fence does not lower it */
    hold();
    TEST_ASSERT_EQUAL_UINT64(1002, box.state.fence);
    desk.now = 9000;
    desk.env.fence_floor = 1002; /* equal to it */
    hold();
    TEST_ASSERT_EQUAL_UINT64(1003, box.state.fence);
}

static void the_last_fence_is_granted_once_and_never_wraps(void)
{
    box.state.fence = UINT64_MAX - 1;
    hold();
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, box.state.fence);
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.now = 5000;
    expect(RF_FENCE_EXHAUSTED, rf_desk_acquire(&desk, WORKER));
}

static void a_floor_at_the_maximum_exhausts_the_fence(void)
{
    desk.env.fence_floor = UINT64_MAX;
    expect(RF_FENCE_EXHAUSTED, rf_desk_acquire(&desk, WORKER));
    desk.env.fence_floor = UINT64_MAX - 1;
    hold();
    TEST_ASSERT_EQUAL_UINT64(UINT64_MAX, box.state.fence);
}

static void attempts_count_grants_and_stop_at_the_maximum(void)
{
    for (uint32_t i = 1; i <= 3; i++) {
        hold();
        TEST_ASSERT_EQUAL_UINT32(i, box.state.attempts);
        desk.now += 1000;
    }
    box.state.attempts = UINT32_MAX - 1;
    hold();
    TEST_ASSERT_EQUAL_UINT32(UINT32_MAX, box.state.attempts);
    desk.now += 1000;
    hold();
    TEST_ASSERT_EQUAL_UINT32(UINT32_MAX, box.state.attempts);
}

static void worker_0_and_the_largest_are_workers_like_any_other(void)
{
    expect(RF_OK, rf_desk_acquire(&desk, 0));
    expect(RF_OK, rf_desk_renew(&desk));
    desk.now = 5000;
    expect(RF_OK, rf_desk_acquire(&desk, UINT64_MAX));
    expect(RF_OK, rf_desk_renew(&desk));
}

/* --- checkpoint --- */

static void a_checkpoint_stores_the_cursor_and_clears_the_attempts(void)
{
    hold();
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_with("m", "token")));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("m"), rf_box_cursor(&box).key));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("token"), rf_box_cursor(&box).token));
    TEST_ASSERT_EQUAL_UINT32(0, box.state.attempts);
    TEST_ASSERT_EQUAL_UINT8(RF_OP_CHECKPOINT, box.ring.kind[0]);
    TEST_ASSERT_EQUAL_UINT64(100, box.ring.executed_at[0]);
    TEST_ASSERT_EQUAL_HEX64(rf_hash_checkpoint(rf_cursor_with("m", "token")), box.ring.hash[0]);
    TEST_ASSERT_EQUAL_UINT32(1, desk.event.key_len);
}

static void an_equal_key_may_replace_or_clear_the_token(void)
{
    hold();
    desk.op = 1;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_with("m", "one")));
    desk.op = 2;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_with("m", "another")));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("another"), rf_box_cursor(&box).token));
    desk.op = 3;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_with("m", "")));
    TEST_ASSERT_EQUAL_size_t(0, box.token_len);
    TEST_ASSERT_NULL_MESSAGE(desk.step.cursor.token.data, "an empty token is absent");
}

static void keys_at_their_limits_are_stored(void)
{
    static uint8_t key[RF_KEY_MAX + 1];
    memset(key, 'e', sizeof(key));
    hold();
    for (size_t len = 4095; len <= 4096; len++) {
        desk.op = len;
        expect(RF_OK, rf_desk_checkpoint(&desk, (rf_cursor){.key = rf_bytes_of(key, len)}));
        TEST_ASSERT_EQUAL_size_t(len, box.key_len);
    }
    desk.op = 1;
    expect(RF_KEY_TOO_LARGE, rf_desk_checkpoint(&desk, (rf_cursor){.key = rf_bytes_of(key, 4097)}));
    TEST_ASSERT_EQUAL_UINT64(4097, desk.detail.size);
}

static void tokens_at_their_limits_are_stored(void)
{
    hold();
    rf_cursor cursor = {.key = rf_text("m"), .token = rf_bytes_of(zeros, 16384)};
    expect(RF_OK, rf_desk_checkpoint(&desk, cursor));
    TEST_ASSERT_EQUAL_size_t(16384, box.token_len);
    cursor.token.len = 16385;
    desk.op = 2;
    expect(RF_TOKEN_TOO_LARGE, rf_desk_checkpoint(&desk, cursor));
    TEST_ASSERT_EQUAL_UINT64(16385, desk.detail.size);
}

static void keys_of_zero_and_ff_bytes_move_in_bytewise_order(void)
{
    make("", "");
    hold();
    static const struct {
        const char *bytes;
        size_t len;
    } rising[] = {{"", 0},   {"\0", 1},   {"\0\0", 2},      {"\0\xff", 2},
                  {"\1", 1}, {"\xff", 1}, {"\xff\xff\0", 3}};
    for (size_t i = 0; i < sizeof(rising) / sizeof(rising[0]); i++) {
        desk.op = 10 + i;
        rf_cursor cursor = {.key = rf_bytes_of(rising[i].bytes, rising[i].len)};
        expect_execution(rf_desk_checkpoint(&desk, cursor));
        if (i != 0) {
            rf_cursor back = {.key = rf_bytes_of(rising[i - 1].bytes, rising[i - 1].len)};
            desk.op = 100;
            expect(RF_CURSOR_REGRESSION, rf_desk_checkpoint(&desk, back));
        }
    }
}

static void an_empty_key_is_progress_in_an_unbounded_range(void)
{
    make("", "m");
    hold();
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("")));
    TEST_ASSERT_TRUE(box.has_key != 0);
    TEST_ASSERT_EQUAL_size_t(0, box.key_len);
}

static void the_first_and_the_last_key_of_the_range_are_inside(void)
{
    hold();
    desk.op = 1;
    expect(RF_CURSOR_OUT_OF_BOUNDS, rf_desk_checkpoint(&desk, rf_cursor_at("c")));
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("d")));
    desk.op = 2;
    expect(RF_OK, rf_desk_checkpoint(&desk, (rf_cursor){.key = rf_bytes_of("v\xff\xff", 3)}));
    desk.op = 3;
    expect(RF_CURSOR_OUT_OF_BOUNDS, rf_desk_checkpoint(&desk, rf_cursor_at("w")));
}

static void the_key_is_monotone_across_owners_release_and_unpark(void)
{
    hold();
    desk.op = 1;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("m")));
    desk.now = 5000;
    expect(RF_OK, rf_desk_acquire(&desk, WORKER + 1));
    desk.op = 2;
    expect(RF_CURSOR_REGRESSION, rf_desk_checkpoint(&desk, rf_cursor_at("l")));
    expect(RF_OK, rf_desk_park(&desk, RF_PARK_OTHER));
    desk.op = 3;
    expect(RF_OK, rf_desk_unpark(&desk));
    hold();
    desk.op = 4;
    expect(RF_CURSOR_REGRESSION, rf_desk_complete(&desk, rf_cursor_at("l")));
    expect(RF_OK, rf_desk_release(&desk, (rf_cursor){0}));
    hold();
    desk.op = 5;
    expect(RF_CURSOR_REGRESSION, rf_desk_release(&desk, rf_cursor_at("l")));
}

/* --- complete, park, release, owner lost --- */

static void completing_stores_the_cursor_and_ends_the_shard(void)
{
    hold();
    expect_execution(rf_desk_complete(&desk, rf_cursor_with("v", "end")));
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_DONE, box.state.status);
    TEST_ASSERT_EQUAL_UINT8(0, box.state.flags);
    TEST_ASSERT_EQUAL_UINT64(0, box.state.owner);
    TEST_ASSERT_EQUAL_UINT64(0, box.state.deadline);
    TEST_ASSERT_EQUAL_UINT64(2, box.state.fence);
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("v"), rf_box_cursor(&box).key));
    TEST_ASSERT_EQUAL_UINT8(RF_OP_COMPLETE, box.ring.kind[0]);
}

static void every_terminal_status_refuses_all_that_needs_a_lease(void)
{
    static const rf_shard_status terminal[] = {RF_SHARD_DONE, RF_SHARD_SPLIT, RF_SHARD_PARKED};
    rf_child children[2] = {rf_child_of("d", "m"), rf_child_of("m", "w")};
    for (size_t i = 0; i < 3; i++) {
        make("d", "w");
        hold();
        box.state.status = (uint8_t)terminal[i];
        box.state.flags = 0;
        expect(RF_SHARD_TERMINAL, rf_desk_acquire(&desk, WORKER));
        expect(RF_SHARD_TERMINAL, rf_desk_renew(&desk));
        expect(RF_SHARD_TERMINAL, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
        expect(RF_SHARD_TERMINAL, rf_desk_complete(&desk, rf_cursor_at("e")));
        expect(RF_SHARD_TERMINAL, rf_desk_park(&desk, RF_PARK_OTHER));
        expect(RF_SHARD_TERMINAL, rf_desk_release(&desk, rf_cursor_at("e")));
        expect(RF_SHARD_TERMINAL, rf_desk_split_replace(&desk, children, 2));
        expect(RF_SHARD_TERMINAL,
               rf_desk_split_residual(&desk, children[0].spec, children[1].spec));
    }
}

static void parking_keeps_cursor_spec_and_fence(void)
{
    hold();
    desk.op = 1;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_with("m", "token")));
    for (unsigned reason = 0; reason <= RF_PARK_OTHER; reason++) {
        uint64_t fence = box.state.fence;
        desk.op = 10 + reason;
        expect_execution(rf_desk_park(&desk, (rf_park_reason)reason));
        TEST_ASSERT_EQUAL_UINT8(RF_SHARD_PARKED, box.state.status);
        TEST_ASSERT_EQUAL_UINT8(reason, box.state.park_reason);
        TEST_ASSERT_EQUAL_UINT64(fence, box.state.fence);
        TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("token"), rf_box_cursor(&box).token));
        TEST_ASSERT_EQUAL(reason, desk.event.reason);
        desk.op = 20 + reason;
        expect(RF_OK, rf_desk_unpark(&desk));
        hold();
    }
}

static void an_unknown_park_reason_is_an_invalid_argument(void)
{
    hold();
    expect(RF_INVALID_ARGUMENT, rf_desk_park(&desk, (rf_park_reason)5));
    expect(RF_INVALID_ARGUMENT, rf_desk_park(&desk, (rf_park_reason)255));
    expect(RF_INVALID_ARGUMENT, rf_desk_park(&desk, (rf_park_reason)-1));
}

static void a_released_shard_is_claimable_at_once(void)
{
    hold();
    desk.op = 1;
    expect_execution(rf_desk_release(&desk, rf_cursor_with("m", "token")));
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_ACTIVE, box.state.status);
    TEST_ASSERT_TRUE(rf_shard_available_at(&box.state, desk.now));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("m"), rf_box_cursor(&box).key));
    TEST_ASSERT_EQUAL_UINT32(0, box.state.attempts);
    TEST_ASSERT_EQUAL_UINT8(RF_OP_RELEASE, box.ring.kind[0]);
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
    expect(RF_OK, rf_desk_acquire(&desk, WORKER + 1));
    TEST_ASSERT_EQUAL_UINT64(3, box.state.fence);
}

static void a_release_without_a_cursor_leaves_it_where_it_is(void)
{
    hold();
    desk.op = 1;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_with("m", "token")));
    desk.op = 2;
    expect_execution(rf_desk_release(&desk, (rf_cursor){0}));
    TEST_ASSERT_EQUAL_UINT32(RF_CHANGED_RING, desk.step.changes);
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("m"), rf_box_cursor(&box).key));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("token"), rf_box_cursor(&box).token));
}

static void a_release_with_a_token_needs_a_key(void)
{
    hold();
    expect(RF_MISSING_KEY, rf_desk_release(&desk, rf_cursor_with(NULL, "token")));
    expect(RF_OK, rf_desk_release(&desk, rf_cursor_with(NULL, ""))); /* empty counts as absent */
}

static void a_lost_owner_frees_the_shard_and_keeps_the_rest(void)
{
    TEST_ASSERT_FALSE(rf_desk_owner_lost(&desk));
    hold();
    struct rf_shard_state expected = box.state;
    expected.flags = 0;
    expected.owner = expected.deadline = 0;
    TEST_ASSERT_TRUE(rf_desk_owner_lost(&desk));
    TEST_ASSERT_EQUAL_MEMORY(&expected, &box.state, sizeof(expected));
    TEST_ASSERT_EQUAL(RF_EVENT_OWNER_LOST, desk.event.kind);
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
    TEST_ASSERT_FALSE(rf_desk_owner_lost(&desk));
    hold();
    TEST_ASSERT_EQUAL_UINT32(2, box.state.attempts);
    TEST_ASSERT_EQUAL_UINT64(3, box.state.fence);
}

static void an_exhausted_shard_is_parked_and_not_remembered_as_an_operation(void)
{
    box.state.attempts = 9;
    rf_desk_park_exhausted(&desk);
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_PARKED, box.state.status);
    TEST_ASSERT_EQUAL_UINT8(RF_PARK_TOO_MANY_ERRORS, box.state.park_reason);
    TEST_ASSERT_EQUAL_UINT32(9, box.state.attempts);
    TEST_ASSERT_EQUAL_UINT8(0, box.state.ring_count);
    expect(RF_OK, rf_desk_unpark(&desk));
    TEST_ASSERT_EQUAL_UINT32(0, box.state.attempts);
}

/* --- unpark --- */

static void unparking_gives_a_new_fence_and_an_active_shard(void)
{
    hold();
    desk.op = 1;
    expect(RF_OK, rf_desk_park(&desk, RF_PARK_POISONED));
    rf_lease old = desk.lease;
    desk.op = 2;
    expect_execution(rf_desk_unpark(&desk));
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_ACTIVE, box.state.status);
    TEST_ASSERT_EQUAL_UINT8(RF_NO_REASON, box.state.park_reason);
    TEST_ASSERT_EQUAL_UINT64(3, box.state.fence);
    TEST_ASSERT_EQUAL_UINT8(RF_OP_UNPARK, box.ring.kind[1]);
    TEST_ASSERT_EQUAL_UINT64(3, desk.event.fence);
    desk.lease = old; /* a zombie from before the parking */
    desk.op = 3;
    expect(RF_STALE_FENCE, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    hold();
    TEST_ASSERT_EQUAL_UINT64(4, box.state.fence);
}

static void unparking_goes_above_the_floor_and_never_wraps(void)
{
    rf_desk_park_exhausted(&desk);
    desk.env.fence_floor = 77;
    expect(RF_OK, rf_desk_unpark(&desk));
    TEST_ASSERT_EQUAL_UINT64(78, box.state.fence);
    rf_desk_park_exhausted(&desk);
    box.state.fence = UINT64_MAX;
    desk.op = 2;
    expect(RF_FENCE_EXHAUSTED, rf_desk_unpark(&desk));
}

static void only_a_parked_shard_is_unparked(void)
{
    expect(RF_NOT_PARKED, rf_desk_unpark(&desk));
    hold();
    expect(RF_NOT_PARKED, rf_desk_unpark(&desk));
    desk.op = 1;
    expect(RF_OK, rf_desk_complete(&desk, rf_cursor_at("e")));
    desk.op = 2;
    expect(RF_NOT_PARKED, rf_desk_unpark(&desk));
}

static void nothing_is_unparked_in_a_run_that_has_ended(void)
{
    rf_desk_park_exhausted(&desk);
    static const rf_run_status ended[] = {RF_RUN_DONE, RF_RUN_FAILED, RF_RUN_CANCELLED};
    for (size_t i = 0; i < 3; i++) {
        desk.env.run_status = ended[i];
        expect(RF_RUN_TERMINAL, rf_desk_unpark(&desk));
    }
    desk.env.run_status = RF_RUN_ACTIVE;
    expect(RF_OK, rf_desk_unpark(&desk));
    desk.env.run_status = RF_RUN_DONE; /* not even replayed */
    expect(RF_RUN_TERMINAL, rf_desk_unpark(&desk));
}

/* --- who may --- */

static void a_zombie_is_refused_after_a_takeover(void)
{
    hold();
    rf_lease zombie = desk.lease;
    desk.now = 2000;
    expect(RF_OK, rf_desk_acquire(&desk, WORKER + 1));
    desk.lease = zombie;
    rf_child children[2] = {rf_child_of("d", "m"), rf_child_of("m", "w")};
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
    expect(RF_STALE_FENCE, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect(RF_STALE_FENCE, rf_desk_complete(&desk, rf_cursor_at("e")));
    expect(RF_STALE_FENCE, rf_desk_park(&desk, RF_PARK_OTHER));
    expect(RF_STALE_FENCE, rf_desk_release(&desk, rf_cursor_at("e")));
    expect(RF_STALE_FENCE, rf_desk_split_replace(&desk, children, 2));
    expect(RF_STALE_FENCE, rf_desk_split_residual(&desk, children[0].spec, children[1].spec));
}

static void a_fence_from_the_future_is_as_stale_as_one_from_the_past(void)
{
    hold();
    desk.lease.fence++;
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
    desk.lease.fence = 0;
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
    desk.lease.fence = UINT64_MAX;
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
}

static void the_fence_alone_does_not_make_an_owner(void)
{
    hold();
    desk.lease.worker++;
    rf_child children[2] = {rf_child_of("d", "m"), rf_child_of("m", "w")};
    expect(RF_STALE_FENCE, rf_desk_renew(&desk));
    expect(RF_STALE_FENCE, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect(RF_STALE_FENCE, rf_desk_complete(&desk, rf_cursor_at("e")));
    expect(RF_STALE_FENCE, rf_desk_park(&desk, RF_PARK_OTHER));
    expect(RF_STALE_FENCE, rf_desk_release(&desk, rf_cursor_at("e")));
    expect(RF_STALE_FENCE, rf_desk_split_replace(&desk, children, 2));
    expect(RF_STALE_FENCE, rf_desk_split_residual(&desk, children[0].spec, children[1].spec));
}

static void the_fence_of_a_shard_without_a_lease_is_stale_though_equal(void)
{
    hold();
    TEST_ASSERT_TRUE(rf_desk_owner_lost(&desk));
    TEST_ASSERT_EQUAL_UINT64(desk.lease.fence, box.state.fence);
    expect(RF_STALE_FENCE, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.lease.worker = 0; /* what a cleared lease has as its owner */
    expect(RF_STALE_FENCE, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
}

/* A foreign tenant must not learn that there is anything: not by a conflict, not by a replay. */
static void a_foreign_tenant_finds_nothing(void)
{
    hold();
    desk.op = 1;
    expect(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    for (size_t i = 0; i < sizeof(desk.tenant.bytes); i++) {
        desk.tenant = box.tenant;
        desk.tenant.bytes[i] ^= 1;
        expect(RF_NOT_FOUND, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
        expect(RF_NOT_FOUND, rf_desk_checkpoint(&desk, rf_cursor_at("f")));
        expect(RF_NOT_FOUND, rf_desk_acquire(&desk, WORKER));
        expect(RF_NOT_FOUND, rf_desk_unpark(&desk));
    }
}

/* --- idempotency --- */

static void a_repeated_operation_is_replayed_while_it_is_remembered(void)
{
    hold();
    desk.op = 1;
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.op = 2;
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("m")));
    desk.op = 1; /* though the cursor would go back */
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("m"), rf_box_cursor(&box).key));
}

static void a_replay_needs_neither_lease_nor_time_left(void)
{
    hold();
    desk.op = 1;
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.now = 1000000;
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.lease.fence = 77;
    desk.lease.worker = 77;
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.now = 1;
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
}

static void operations_are_replayed_after_the_shard_is_terminal(void)
{
    hold();
    desk.op = 1;
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.op = 2;
    expect_execution(rf_desk_complete(&desk, rf_cursor_at("f")));
    expect_replay(rf_desk_complete(&desk, rf_cursor_at("f")));
    desk.op = 1;
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));

    make("d", "w");
    hold();
    desk.op = 3;
    expect_execution(rf_desk_park(&desk, RF_PARK_POISONED));
    expect_replay(rf_desk_park(&desk, RF_PARK_POISONED));
    desk.op = 4;
    expect_execution(rf_desk_unpark(&desk));
    expect_replay(rf_desk_unpark(&desk));
    desk.op = 3; /* the shard is active again; parking it was done */
    expect_replay(rf_desk_park(&desk, RF_PARK_POISONED));
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_ACTIVE, box.state.status);

    hold();
    desk.op = 5;
    expect_execution(rf_desk_release(&desk, (rf_cursor){0}));
    expect_replay(rf_desk_release(&desk, (rf_cursor){0}));
}

static void expect_conflict_everywhere(void)
{
    rf_child children[2] = {rf_child_of("d", "m"), rf_child_of("m", "w")};
    expect(RF_OP_ID_CONFLICT, rf_desk_checkpoint(&desk, rf_cursor_at("f")));
    expect(RF_OP_ID_CONFLICT, rf_desk_checkpoint(&desk, rf_cursor_with("e", "t")));
    expect(RF_OP_ID_CONFLICT, rf_desk_complete(&desk, rf_cursor_at("e")));
    expect(RF_OP_ID_CONFLICT, rf_desk_park(&desk, RF_PARK_OTHER));
    expect(RF_OP_ID_CONFLICT, rf_desk_release(&desk, rf_cursor_at("e")));
    expect(RF_OP_ID_CONFLICT, rf_desk_split_replace(&desk, children, 2));
    expect(RF_OP_ID_CONFLICT, rf_desk_split_residual(&desk, children[0].spec, children[1].spec));
    expect(RF_OP_ID_CONFLICT, rf_desk_unpark(&desk));
}

static void an_op_id_with_another_payload_is_a_conflict_for_every_operation(void)
{
    hold();
    desk.op = 1;
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect_conflict_everywhere();
    desk.op = 2;
    expect_execution(rf_desk_complete(&desk, rf_cursor_at("g")));
    desk.op = 1;
    expect_conflict_everywhere();
}

static void a_refused_operation_is_not_remembered(void)
{
    hold();
    desk.op = 1;
    expect(RF_CURSOR_OUT_OF_BOUNDS, rf_desk_checkpoint(&desk, rf_cursor_at("z")));
    TEST_ASSERT_EQUAL_UINT8(0, box.state.ring_count);
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e"))); /* the id is still free */
}

static void sixteen_operations_are_remembered_and_the_seventeenth_takes_the_oldest_place(void)
{
    hold();
    checkpoint_times(100, 16);
    TEST_ASSERT_EQUAL_UINT8(16, box.state.ring_count);
    TEST_ASSERT_EQUAL_UINT8(0, box.state.ring_next);
    for (uint64_t op = 100; op < 116; op++) {
        desk.op = op;
        expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    }
    checkpoint_times(116, 1);
    TEST_ASSERT_EQUAL_UINT8(16, box.state.ring_count);
    TEST_ASSERT_EQUAL_UINT8(1, box.state.ring_next);
    for (uint64_t op = 101; op < 117; op++) {
        desk.op = op;
        expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    }
    desk.op = 100; /* forgotten: the same call is executed again */
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.op = 101; /* and that pushed out the next */
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    desk.op = 103;
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
}

static void a_forgotten_op_id_no_longer_conflicts(void)
{
    hold();
    checkpoint_times(100, 16);
    desk.op = 100;
    expect(RF_OP_ID_CONFLICT, rf_desk_checkpoint(&desk, rf_cursor_at("f")));
    checkpoint_times(116, 1);
    desk.op = 100;
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("f")));
}

static void the_ring_goes_round_many_times(void)
{
    hold();
    for (uint64_t op = 0; op < 100; op++) {
        desk.op = op;
        expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
        TEST_ASSERT_EQUAL_UINT8((op + 1) % 16, box.state.ring_next);
        desk.op = op >= 15 ? op - 15 : 0;
        expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
        if (op >= 16) {
            TEST_ASSERT_EQUAL_INT(RF_RING_MISS, rf_ring_find(box.ring.op, 16, 16, op - 16));
        }
    }
}

static void op_id_0_is_an_op_id_like_any_other(void)
{
    hold();
    desk.op = 0; /* an empty ring is all zeros */
    expect_execution(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect_replay(rf_desk_checkpoint(&desk, rf_cursor_at("e")));
    expect(RF_OP_ID_CONFLICT, rf_desk_checkpoint(&desk, rf_cursor_at("f")));
}

static void executed_at_never_goes_down(void)
{
    hold();
    desk.now = 500;
    checkpoint_times(1, 1);
    desk.now = 200;
    checkpoint_times(2, 1);
    TEST_ASSERT_EQUAL_UINT64(500, box.ring.executed_at[1]);
    desk.now = 501;
    checkpoint_times(3, 1);
    TEST_ASSERT_EQUAL_UINT64(501, box.ring.executed_at[2]);
    desk.now = 1;
    checkpoint_times(4, 20);
    for (uint32_t i = 0; i < 16; i++) {
        TEST_ASSERT_EQUAL_UINT64(501, box.ring.executed_at[i]);
    }
    desk.op = 50;
    expect(RF_OK, rf_desk_park(&desk, RF_PARK_OTHER));
    desk.op = 51;
    expect(RF_OK, rf_desk_unpark(&desk));
    TEST_ASSERT_EQUAL_UINT64(501, box.ring.executed_at[rf_ring_newest(box.state.ring_next, 16)]);
}

static void acquire_and_renew_are_not_remembered(void)
{
    hold();
    expect(RF_OK, rf_desk_renew(&desk));
    TEST_ASSERT_TRUE(rf_desk_owner_lost(&desk));
    TEST_ASSERT_EQUAL_UINT8(0, box.state.ring_count);
}

static void a_new_root_is_active_unleased_and_at_fence_1(void)
{
    struct rf_shard_state root = rf_shard_new_root(RF_DISPATCHED);
    struct rf_shard_state expected = {
        .fence = 1, .park_reason = RF_NO_REASON, .semantics = RF_DISPATCHED};
    TEST_ASSERT_EQUAL_MEMORY(&expected, &root, sizeof(root));
    TEST_ASSERT_NULL(rf_shard_state_violation(&root, 1));
}

static void every_refusal_works_without_a_detail(void)
{
    hold();
    struct rf_shard view = rf_box_view(&box);
    struct rf_call call = {.tenant = &desk.tenant, .now = desk.now, .lease = &desk.lease};
    rf_cursor outside = rf_cursor_at("z"), good = rf_cursor_at("e");
    rf_child one = rf_child_of("d", "w");
    expect(RF_ALREADY_LEASED, rf_shard_acquire(&view, &call, WORKER, &desk.env, &desk.step, NULL));
    expect(RF_CURSOR_OUT_OF_BOUNDS, rf_shard_checkpoint(&view, &call, &outside, &desk.step, NULL));
    expect(RF_SPLIT_COUNT, rf_shard_split_replace(&view, &call, &one, 1, &desk.env, &desk.hasher,
                                                  &desk.scratch, &desk.step, NULL));
    expect(RF_SPLIT_COVERAGE,
           rf_shard_split_residual(&view, &call, &one.spec, &one.spec, &desk.env, &desk.hasher,
                                   &desk.scratch, &desk.step, NULL));
    call.now = 5000;
    expect(RF_LEASE_EXPIRED, rf_shard_complete(&view, &call, &good, &desk.step, NULL));
    expect(RF_NOT_PARKED, rf_shard_unpark(&view, &call, &desk.env, &desk.step, NULL));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_first_grant_of_a_new_shard_has_fence_2);
    RUN_TEST(a_leased_shard_is_refused_also_to_its_owner);
    RUN_TEST(a_lease_ends_exactly_at_its_deadline);
    RUN_TEST(available_and_leased_agree_about_the_deadline);
    RUN_TEST(only_the_records_deadline_counts);
    RUN_TEST(a_deadline_saturates_at_the_end_of_time);
    RUN_TEST(a_renewed_deadline_saturates_too);
    RUN_TEST(a_renewal_moves_the_deadline_and_nothing_else);
    RUN_TEST(a_renewal_at_an_earlier_now_never_shortens_the_deadline);
    RUN_TEST(the_time_0_is_refused_by_every_operation);
    RUN_TEST(a_grant_is_above_the_stores_floor);
    RUN_TEST(the_last_fence_is_granted_once_and_never_wraps);
    RUN_TEST(a_floor_at_the_maximum_exhausts_the_fence);
    RUN_TEST(attempts_count_grants_and_stop_at_the_maximum);
    RUN_TEST(worker_0_and_the_largest_are_workers_like_any_other);
    RUN_TEST(a_checkpoint_stores_the_cursor_and_clears_the_attempts);
    RUN_TEST(an_equal_key_may_replace_or_clear_the_token);
    RUN_TEST(keys_at_their_limits_are_stored);
    RUN_TEST(tokens_at_their_limits_are_stored);
    RUN_TEST(keys_of_zero_and_ff_bytes_move_in_bytewise_order);
    RUN_TEST(an_empty_key_is_progress_in_an_unbounded_range);
    RUN_TEST(the_first_and_the_last_key_of_the_range_are_inside);
    RUN_TEST(the_key_is_monotone_across_owners_release_and_unpark);
    RUN_TEST(completing_stores_the_cursor_and_ends_the_shard);
    RUN_TEST(every_terminal_status_refuses_all_that_needs_a_lease);
    RUN_TEST(parking_keeps_cursor_spec_and_fence);
    RUN_TEST(an_unknown_park_reason_is_an_invalid_argument);
    RUN_TEST(a_released_shard_is_claimable_at_once);
    RUN_TEST(a_release_without_a_cursor_leaves_it_where_it_is);
    RUN_TEST(a_release_with_a_token_needs_a_key);
    RUN_TEST(a_lost_owner_frees_the_shard_and_keeps_the_rest);
    RUN_TEST(an_exhausted_shard_is_parked_and_not_remembered_as_an_operation);
    RUN_TEST(unparking_gives_a_new_fence_and_an_active_shard);
    RUN_TEST(unparking_goes_above_the_floor_and_never_wraps);
    RUN_TEST(only_a_parked_shard_is_unparked);
    RUN_TEST(nothing_is_unparked_in_a_run_that_has_ended);
    RUN_TEST(a_zombie_is_refused_after_a_takeover);
    RUN_TEST(a_fence_from_the_future_is_as_stale_as_one_from_the_past);
    RUN_TEST(the_fence_alone_does_not_make_an_owner);
    RUN_TEST(the_fence_of_a_shard_without_a_lease_is_stale_though_equal);
    RUN_TEST(a_foreign_tenant_finds_nothing);
    RUN_TEST(a_repeated_operation_is_replayed_while_it_is_remembered);
    RUN_TEST(a_replay_needs_neither_lease_nor_time_left);
    RUN_TEST(operations_are_replayed_after_the_shard_is_terminal);
    RUN_TEST(an_op_id_with_another_payload_is_a_conflict_for_every_operation);
    RUN_TEST(a_refused_operation_is_not_remembered);
    RUN_TEST(sixteen_operations_are_remembered_and_the_seventeenth_takes_the_oldest_place);
    RUN_TEST(a_forgotten_op_id_no_longer_conflicts);
    RUN_TEST(the_ring_goes_round_many_times);
    RUN_TEST(op_id_0_is_an_op_id_like_any_other);
    RUN_TEST(executed_at_never_goes_down);
    RUN_TEST(acquire_and_renew_are_not_remembered);
    RUN_TEST(a_new_root_is_active_unleased_and_at_fence_1);
    RUN_TEST(every_refusal_works_without_a_detail);
    return UNITY_END();
}
