/* Splits: coverage, ids, positions, replays; and the functions that plan them. */
#include "split.h"

#include <stdio.h>
#include <unity.h>

#include "desk.h"
#include "prng.h"
#include "range.h"

static struct rf_box box;
static struct rf_desk desk;
static const uint8_t zeros[RF_TOKEN_MAX + 1];

/* A shard [d, w) of run 7 with id 100, held by worker 42. */
static void hold(const char *start, const char *end, const char *key)
{
    rf_tenant tenant = rf_tenant_of(1);
    rf_box_make_root(&box, &tenant, 7, 100, rf_spec_of(start, end), rf_cursor_at(key));
    rf_desk_open(&desk, &box);
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_acquire(&desk, 42));
}

void setUp(void)
{
    hold("d", "w", NULL);
}

void tearDown(void)
{
}

/* --- split_replace --- */

static void a_split_shard_is_terminal_and_its_children_are_named_in_start_order(void)
{
    rf_child children[3] = {rf_child_of("m", "q"), rf_child_of("d", "m"), rf_child_of("q", "w")};
    desk.op = 900;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 3));
    TEST_ASSERT_EQUAL(RF_EXECUTED, desk.step.outcome);
    TEST_ASSERT_EQUAL_UINT32(3, desk.step.spawned_new);
    static const uint16_t start_order[3] = {1, 0, 2};
    for (uint32_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_UINT16(start_order[i], desk.step.spawned_order[i]);
        TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, 900, RF_CHILD, i), desk.step.spawned_ids[i]);
        TEST_ASSERT_EQUAL_HEX64(desk.step.spawned_ids[i], box.spawned[i]);
    }
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_SPLIT, box.state.status);
    TEST_ASSERT_EQUAL_UINT8(0, box.state.flags);
    TEST_ASSERT_EQUAL_UINT64(2, box.state.fence);
    TEST_ASSERT_EQUAL(RF_EVENT_SPLIT, desk.event.kind);
    TEST_ASSERT_EQUAL_UINT32(3, desk.event.count);
    TEST_ASSERT_EQUAL(RF_SHARD_TERMINAL, rf_desk_renew(&desk));
}

static void a_child_starts_active_at_fence_1_with_its_parents_semantics(void)
{
    struct rf_shard_state child = rf_shard_new_derived(100, RF_DISPATCHED);
    TEST_ASSERT_EQUAL_UINT64(1, child.fence);
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_ACTIVE, child.status);
    TEST_ASSERT_EQUAL_UINT8(RF_DISPATCHED, child.semantics);
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_HAS_PARENT, child.flags);
    TEST_ASSERT_EQUAL_UINT64(100, child.parent);
    TEST_ASSERT_NULL(rf_shard_state_violation(&child, RF_DERIVED_BIT | 1));
}

static void ids_do_not_depend_on_the_callers_order(void)
{
    rf_child sorted[4] = {rf_child_of("d", "f"), rf_child_of("f", "k"), rf_child_of("k", "p"),
                          rf_child_of("p", "w")};
    desk.op = 900;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, sorted, 4));
    uint64_t ids[4];
    memcpy(ids, desk.step.spawned_ids, sizeof(ids));
    rf_child shuffled[4] = {sorted[3], sorted[1], sorted[0], sorted[2]};
    hold("d", "w", NULL);
    desk.op = 900;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, shuffled, 4));
    TEST_ASSERT_EQUAL_HEX64_ARRAY(ids, desk.step.spawned_ids, 4);
    static const uint16_t order[4] = {2, 1, 3, 0};
    TEST_ASSERT_EQUAL_HEX16_ARRAY(order, desk.step.spawned_order, 4);
}

static void the_order_is_right_for_every_permutation_of_six(void)
{
    static const char *const letter[7] = {"d", "f", "h", "k", "n", "q", "w"};
    uint32_t place[6] = {0, 1, 2, 3, 4, 5};
    struct rf_split_scratch scratch;
    rf_spec parent = rf_spec_of("d", "w");
    uint32_t c[6] = {0};
    for (uint32_t i = 0;;) { /* Heap's algorithm */
        rf_child children[6];
        for (uint32_t k = 0; k < 6; k++) {
            children[k] = rf_child_of(letter[place[k]], letter[place[k] + 1]);
        }
        TEST_ASSERT_EQUAL(RF_OK, rf_split_check_replace(&parent, children, 6, &scratch, NULL));
        for (uint32_t k = 0; k < 6; k++) {
            TEST_ASSERT_EQUAL_UINT32(k, place[scratch.order[k]]);
        }
        while (i < 6 && c[i] >= i) {
            c[i++] = 0;
        }
        if (i == 6) {
            break;
        }
        uint32_t j = i % 2 == 0 ? 0 : c[i];
        uint32_t swap = place[j];
        place[j] = place[i];
        place[i] = swap;
        c[i]++;
        i = 0;
    }
}

/* n children of a shard [, ), cut at 000, 001, ... and given backwards. */
static void make_children(rf_child *children, uint32_t n)
{
    static char cut[RF_SPLIT_CHILDREN_MAX + 1][4];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(cut[i], sizeof(cut[i]), "%03u", i % 1000);
    }
    for (uint32_t i = 0; i < n; i++) {
        children[n - 1 - i] = rf_child_of(i == 0 ? "" : cut[i - 1], i + 1 == n ? "" : cut[i]);
    }
}

static void children_may_be_2_to_256(void)
{
    static rf_child children[RF_SPLIT_CHILDREN_MAX + 1];
    static const uint32_t counts[] = {0, 1, 2, 3, 255, 256, 257, UINT32_MAX};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        uint32_t count = counts[i];
        hold("", "", NULL);
        if (count <= RF_SPLIT_CHILDREN_MAX + 1) {
            make_children(children, count);
            TEST_ASSERT_EQUAL(count >= 2 && count <= 256 ? RF_OK : RF_SPLIT_COUNT,
                              rf_desk_split_replace(&desk, children, count));
        } else {
            struct rf_split_scratch scratch;
            rf_spec parent = rf_box_spec(&box);
            TEST_ASSERT_EQUAL(RF_SPLIT_COUNT, rf_split_check_replace(&parent, children, count,
                                                                     &scratch, &desk.detail));
        }
        if (count >= 2 && count <= 256) {
            TEST_ASSERT_EQUAL_UINT32(count, box.state.spawned_count);
            TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, desk.op, RF_CHILD, count - 1),
                                    box.spawned[count - 1]);
        } else {
            TEST_ASSERT_EQUAL_UINT64(count, desk.detail.size);
            TEST_ASSERT_EQUAL_UINT64(256, desk.detail.limit);
        }
    }
}

static void expect_refused_at(rf_status status, uint64_t index, const rf_child *children,
                              uint32_t count)
{
    TEST_ASSERT_EQUAL_STRING(rf_status_name(status),
                             rf_status_name(rf_desk_split_replace(&desk, children, count)));
    TEST_ASSERT_TRUE(desk.detail.has_index);
    TEST_ASSERT_EQUAL_UINT64(index, desk.detail.index);
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_ACTIVE, box.state.status);
}

static void gaps_overlaps_and_wrong_ends_are_refused_with_the_callers_position(void)
{
    struct {
        rf_child children[3];
        uint64_t index;
    } cases[] = {
        {{rf_child_of("p", "w"), rf_child_of("e", "k"), rf_child_of("k", "p")}, 1}, /* late start */
        {{rf_child_of("p", "w"), rf_child_of("c", "k"), rf_child_of("k", "p")},
         1}, /* early start */
        {{rf_child_of("p", "v"), rf_child_of("d", "k"), rf_child_of("k", "p")}, 0}, /* early end */
        {{rf_child_of("p", "x"), rf_child_of("d", "k"), rf_child_of("k", "p")}, 0}, /* late end */
        {{rf_child_of("p", "w"), rf_child_of("d", "j"), rf_child_of("k", "p")}, 1}, /* a gap */
        {{rf_child_of("p", "w"), rf_child_of("d", "l"), rf_child_of("k", "p")}, 1}, /* an overlap */
        {{rf_child_of("p", "w"), rf_child_of("d", "k"), rf_child_of("k", "o")}, 2}, /* a gap */
        {{rf_child_of("p", "w"), rf_child_of("d", "k"), rf_child_of("k", "")}, 2}, /* open inside */
        {{rf_child_of("p", ""), rf_child_of("d", "k"), rf_child_of("k", "p")}, 0}, /* open end */
        {{rf_child_of("p", "w"), rf_child_of("", "k"), rf_child_of("k", "p")}, 1}, /* open start */
        {{rf_child_of("d", "w"), rf_child_of("d", "w"), rf_child_of("d", "w")}, 0}, /* thrice */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_refused_at(RF_SPLIT_COVERAGE, cases[i].index, cases[i].children, 3);
    }
}

static void an_unbounded_parent_needs_unbounded_outer_children(void)
{
    hold("", "", NULL);
    rf_child bounded[2] = {rf_child_of("a", "m"), rf_child_of("m", "")};
    expect_refused_at(RF_SPLIT_COVERAGE, 0, bounded, 2);
    rf_child open[2] = {rf_child_of("m", NULL), rf_child_of(NULL, "m")};
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, open, 2));
}

/* An empty child next to another of the same start: the sort is stable, so it is found to be empty
 * where it stands first and to break the chain where it stands second. */
static void empty_and_inverted_children_are_refused_with_the_callers_position(void)
{
    rf_child empty[3] = {rf_child_of("m", "m"), rf_child_of("d", "m"), rf_child_of("m", "w")};
    expect_refused_at(RF_RANGE_INVERTED, 0, empty, 3);
    rf_child empty_behind[3] = {rf_child_of("m", "w"), rf_child_of("d", "m"),
                                rf_child_of("m", "m")};
    expect_refused_at(RF_SPLIT_COVERAGE, 2, empty_behind, 3);
    rf_child inverted[2] = {rf_child_of("z", "w"), rf_child_of("d", "z")};
    expect_refused_at(RF_RANGE_INVERTED, 0, inverted, 2);
}

static void sizes_of_children_are_checked_at_their_limits(void)
{
    static uint8_t cut[RF_KEY_MAX + 1];
    memset(cut, 'm', sizeof(cut));
    rf_child children[2] = {rf_child_of(NULL, "w"), rf_child_of("d", NULL)};
    children[0].spec.start = children[1].spec.end = rf_bytes_of(cut, RF_KEY_MAX + 1);
    expect_refused_at(RF_KEY_TOO_LARGE, 0, children, 2);
    TEST_ASSERT_EQUAL_UINT64(4097, desk.detail.size);
    children[0].spec.start = children[1].spec.end = rf_bytes_of(cut, RF_KEY_MAX);
    children[1].spec.metadata = rf_bytes_of(zeros, RF_METADATA_MAX + 1);
    expect_refused_at(RF_METADATA_TOO_LARGE, 1, children, 2);
    TEST_ASSERT_EQUAL_UINT64(16385, desk.detail.size);
    children[1].spec.metadata = rf_bytes_of(zeros, RF_METADATA_MAX);
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 2));
}

static void a_childs_cursor_is_absent_or_inside_the_child(void)
{
    rf_child children[2] = {rf_child_of("m", "w"), rf_child_of("d", "m")};
    children[1].cursor = rf_cursor_at("m"); /* inside the parent, but not the child */
    expect_refused_at(RF_CURSOR_OUT_OF_BOUNDS, 1, children, 2);
    children[1].cursor = rf_cursor_with(NULL, "token");
    expect_refused_at(RF_MISSING_KEY, 1, children, 2);
    children[1].cursor = rf_cursor_at("d");
    children[1].cursor.token = rf_bytes_of(zeros, RF_TOKEN_MAX + 1);
    expect_refused_at(RF_TOKEN_TOO_LARGE, 1, children, 2);
    children[1].cursor.token = rf_bytes_of(zeros, RF_TOKEN_MAX);
    children[1].cursor.key = rf_bytes_of(zeros, RF_KEY_MAX + 1);
    expect_refused_at(RF_KEY_TOO_LARGE, 1, children, 2);
    children[1].cursor.key = rf_text("d");
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 2));
}

static void spawned_ids_are_limited_to_1024_for_life(void)
{
    rf_child children[3] = {rf_child_of("d", "k"), rf_child_of("k", "p"), rf_child_of("p", "w")};
    box.state.spawned_count = 1022;
    for (uint32_t i = 0; i < 1022; i++) {
        box.spawned[i] = RF_DERIVED_BIT | i;
    }
    TEST_ASSERT_EQUAL(RF_SPAWNED_LIMIT, rf_desk_split_replace(&desk, children, 3));
    TEST_ASSERT_EQUAL_UINT64(1025, desk.detail.size);
    TEST_ASSERT_EQUAL_UINT64(1024, desk.detail.limit);
    box.state.spawned_count = 1021;
    desk.op = 900;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 3));
    TEST_ASSERT_EQUAL_UINT32(1024, box.state.spawned_count);
    TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, 900, RF_CHILD, 1021), box.spawned[1021]);
    TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, 900, RF_CHILD, 1023), box.spawned[1023]);
}

static void shard_limits_are_reached_and_not_passed(void)
{
    rf_child children[3] = {rf_child_of("d", "k"), rf_child_of("k", "p"), rf_child_of("p", "w")};
    desk.env.tenant_limit = 10;
    desk.env.total_limit = 20;
    desk.env.tenant_shards = 8;
    desk.env.total_shards = 17;
    TEST_ASSERT_EQUAL(RF_SHARD_LIMIT, rf_desk_split_replace(&desk, children, 3));
    TEST_ASSERT_EQUAL_UINT64(10, desk.detail.limit);
    desk.env.tenant_shards = 7;
    desk.env.total_shards = 18;
    TEST_ASSERT_EQUAL(RF_SHARD_LIMIT, rf_desk_split_replace(&desk, children, 3));
    TEST_ASSERT_EQUAL_UINT64(20, desk.detail.limit);
    TEST_ASSERT_EQUAL_UINT64(3, desk.detail.size); /* what was asked for, not what others have */
    desk.env.total_shards = UINT64_MAX;
    desk.env.total_limit = UINT64_MAX - 1;
    TEST_ASSERT_EQUAL(RF_SHARD_LIMIT, rf_desk_split_replace(&desk, children, 3));
    desk.env.total_shards = 17;
    desk.env.total_limit = 20;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 3));
}

static bool is_this_id(void *context, uint64_t shard)
{
    return shard == *(const uint64_t *)context;
}

static void a_taken_id_is_refused_with_the_callers_position(void)
{
    rf_child children[3] = {rf_child_of("p", "w"), rf_child_of("d", "k"), rf_child_of("k", "p")};
    static const uint64_t position[3] = {1, 2, 0};
    desk.op = 900;
    desk.env.exists = is_this_id;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t taken = rf_split_id(7, 100, 900, RF_CHILD, i);
        desk.env.context = &taken;
        expect_refused_at(RF_DERIVED_ID_COLLISION, position[i], children, 3);
    }
    uint64_t other = rf_split_id(7, 100, 900, RF_CHILD, 3);
    desk.env.context = &other;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 3));
}

static void equal_ids_within_one_split_collide(void)
{
    uint64_t ids[3] = {RF_DERIVED_BIT | 1, RF_DERIVED_BIT | 2, RF_DERIVED_BIT | 1};
    static const uint16_t order[3] = {2, 0, 1};
    struct rf_env env = {0};
    TEST_ASSERT_EQUAL(RF_OK, rf_split_check_ids(ids, order, 2, &env, &desk.detail));
    TEST_ASSERT_EQUAL(RF_DERIVED_ID_COLLISION,
                      rf_split_check_ids(ids, order, 3, &env, &desk.detail));
    TEST_ASSERT_EQUAL_UINT64(1, desk.detail.index);
}

static void a_replayed_split_returns_the_same_ids(void)
{
    rf_child children[3] = {rf_child_of("m", "q"), rf_child_of("d", "m"), rf_child_of("q", "w")};
    desk.op = 5;
    rf_spec left = rf_spec_of("d", "w"), cut = rf_spec_of("w", "z");
    hold("d", "z", NULL);
    desk.op = 5;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, left, cut)); /* one spawned before */
    desk.op = 6;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 3));
    uint64_t ids[3];
    memcpy(ids, desk.step.spawned_ids, sizeof(ids));
    TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, 6, RF_CHILD, 1), ids[0]);
    desk.now = 1000000;   /* long expired */
    desk.lease.fence = 1; /* and by another's lease */
    desk.lease.worker = 999;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 3));
    TEST_ASSERT_EQUAL(RF_REPLAYED, desk.step.outcome);
    TEST_ASSERT_EQUAL_UINT32(3, desk.step.spawned_new);
    TEST_ASSERT_EQUAL_HEX64_ARRAY(ids, desk.step.spawned_ids, 3);
}

static void the_same_children_in_another_order_are_another_payload(void)
{
    rf_child children[2] = {rf_child_of("d", "m"), rf_child_of("m", "w")};
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 2));
    rf_child swapped[2] = {children[1], children[0]};
    TEST_ASSERT_EQUAL(RF_OP_ID_CONFLICT, rf_desk_split_replace(&desk, swapped, 2));
    TEST_ASSERT_EQUAL(RF_OP_ID_CONFLICT, rf_desk_split_replace(&desk, children, 1));
}

/* --- split_residual --- */

static void a_residual_takes_the_end_of_the_range_and_the_parent_goes_on(void)
{
    desk.op = 900;
    struct rf_shard_state was = box.state;
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_desk_split_residual(&desk, rf_spec_of("d", "m"), rf_spec_of("m", "w")));
    TEST_ASSERT_EQUAL(RF_EXECUTED, desk.step.outcome);
    TEST_ASSERT_EQUAL_UINT32(1, desk.step.spawned_new);
    TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, 900, RF_RESIDUAL, 0), desk.step.spawned_ids[0]);
    TEST_ASSERT_EQUAL_HEX64(desk.step.spawned_ids[0], desk.event.child);
    TEST_ASSERT_EQUAL_UINT16(0, desk.step.spawned_order[0]);
    TEST_ASSERT_EQUAL_UINT8(RF_SHARD_ACTIVE, box.state.status);
    TEST_ASSERT_EQUAL_UINT64(was.deadline, box.state.deadline);
    TEST_ASSERT_EQUAL_UINT64(was.fence, box.state.fence);
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_text("m"), rf_box_spec(&box).end));
    desk.op = 901;
    TEST_ASSERT_EQUAL(RF_CURSOR_OUT_OF_BOUNDS, rf_desk_checkpoint(&desk, rf_cursor_at("m")));
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("l")));
}

static void the_two_parts_are_exactly_the_old_range(void)
{
    struct {
        const char *start, *end, *residual_start, *residual_end;
        uint64_t index;
    } cases[] = {
        {"e", "m", "m", "w", 0}, {"", "m", "m", "w", 0},  {"d", "m", "m", "v", 1},
        {"d", "m", "m", "", 1},  {"d", "m", "n", "w", 0}, {"d", "n", "m", "w", 0},
        {"d", "", "", "w", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        TEST_ASSERT_EQUAL(
            RF_SPLIT_COVERAGE,
            rf_desk_split_residual(&desk, rf_spec_of(cases[i].start, cases[i].end),
                                   rf_spec_of(cases[i].residual_start, cases[i].residual_end)));
        TEST_ASSERT_EQUAL_UINT64(cases[i].index, desk.detail.index);
    }
}

static void neither_part_may_be_empty(void)
{
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED,
                      rf_desk_split_residual(&desk, rf_spec_of("d", "d"), rf_spec_of("d", "w")));
    TEST_ASSERT_EQUAL_UINT64(0, desk.detail.index);
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED,
                      rf_desk_split_residual(&desk, rf_spec_of("d", "w"), rf_spec_of("w", "w")));
    TEST_ASSERT_EQUAL_UINT64(1, desk.detail.index);
}

static void the_stored_key_stays_inside_the_parent(void)
{
    hold("d", "w", "m");
    TEST_ASSERT_EQUAL(RF_CURSOR_OUT_OF_BOUNDS,
                      rf_desk_split_residual(&desk, rf_spec_of("d", "m"), rf_spec_of("m", "w")));
    rf_spec parent_new = {.start = rf_text("d"), .end = rf_bytes_of("m\0", 2)};
    rf_spec residual = {.start = rf_bytes_of("m\0", 2), .end = rf_text("w")};
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
}

static void a_residual_is_replayed_after_the_ring_forgot_it(void)
{
    rf_spec parent_new = rf_spec_of("d", "m"), residual = rf_spec_of("m", "w");
    desk.op = 900;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
    uint64_t id = desk.step.spawned_ids[0];
    for (uint64_t i = 0; i < RF_SHARD_RING; i++) {
        desk.op = i;
        TEST_ASSERT_EQUAL(RF_OK, rf_desk_checkpoint(&desk, rf_cursor_at("e")));
        desk.op = 900;
        TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
        TEST_ASSERT_EQUAL(RF_REPLAYED, desk.step.outcome);
        TEST_ASSERT_EQUAL_UINT32(1, desk.step.spawned_new);
        TEST_ASSERT_EQUAL_HEX64(id, desk.step.spawned_ids[0]);
    }
    TEST_ASSERT_EQUAL_INT(RF_RING_MISS, rf_ring_find(box.ring.op, 16, 16, 900));
    desk.op = 20;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_complete(&desk, rf_cursor_at("l")));
    desk.op = 900;
    desk.now = 1000000;
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
    TEST_ASSERT_EQUAL(RF_REPLAYED, desk.step.outcome);
    TEST_ASSERT_EQUAL_HEX64(id, desk.step.spawned_ids[0]);
}

static void every_one_of_many_residuals_is_replayed_as_itself(void)
{
    enum { N = 40 };
    uint64_t ids[N];
    static char cut[N + 1][4];
    hold("", "", NULL);
    for (uint32_t i = 0; i <= N; i++) {
        snprintf(cut[i], sizeof(cut[i]), "%03u", 999 - i);
    }
    for (uint32_t i = 0; i < N; i++) {
        desk.op = 900 + i;
        TEST_ASSERT_EQUAL(RF_OK,
                          rf_desk_split_residual(&desk, rf_spec_of("", cut[i]),
                                                 rf_spec_of(cut[i], i == 0 ? "" : cut[i - 1])));
        TEST_ASSERT_EQUAL_HEX64(rf_split_id(7, 100, desk.op, RF_RESIDUAL, i),
                                desk.step.spawned_ids[0]);
        ids[i] = desk.step.spawned_ids[0];
    }
    for (uint32_t i = 0; i < N; i++) {
        desk.op = 900 + i;
        TEST_ASSERT_EQUAL(RF_OK,
                          rf_desk_split_residual(&desk, rf_spec_of("", cut[i]),
                                                 rf_spec_of(cut[i], i == 0 ? "" : cut[i - 1])));
        TEST_ASSERT_EQUAL(RF_REPLAYED, desk.step.outcome);
        TEST_ASSERT_EQUAL_HEX64(ids[i], desk.step.spawned_ids[0]);
    }
}

/* 1024 for life, one at a time; the 1024th is made, the 1025th is not. */
static void residuals_end_at_1024(void)
{
    hold("", "", NULL);
    box.state.spawned_count = 1023;
    for (uint32_t i = 0; i < 1023; i++) {
        box.spawned[i] = RF_DERIVED_BIT | i;
    }
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_desk_split_residual(&desk, rf_spec_of("", "m"), rf_spec_of("m", "")));
    TEST_ASSERT_EQUAL_UINT32(1024, box.state.spawned_count);
    desk.op = 2;
    TEST_ASSERT_EQUAL(RF_SPAWNED_LIMIT,
                      rf_desk_split_residual(&desk, rf_spec_of("", "k"), rf_spec_of("k", "m")));
    TEST_ASSERT_EQUAL_UINT64(1025, desk.detail.size);
}

static void a_residual_whose_id_is_taken_is_refused(void)
{
    desk.op = 900;
    uint64_t taken = rf_split_id(7, 100, 900, RF_RESIDUAL, 0);
    desk.env.exists = is_this_id;
    desk.env.context = &taken;
    TEST_ASSERT_EQUAL(RF_DERIVED_ID_COLLISION,
                      rf_desk_split_residual(&desk, rf_spec_of("d", "m"), rf_spec_of("m", "w")));
}

/* --- planning --- */

static void a_plan_to_replace_is_accepted_by_the_split(void)
{
    rf_bytes points[3] = {rf_text("g"), rf_text("m"), rf_text("p")};
    rf_child children[4];
    rf_spec parent = rf_box_spec(&box);
    parent.metadata = rf_text("meta");
    TEST_ASSERT_EQUAL(RF_OK, rf_plan_replace(parent, points, 3, children, NULL));
    for (int i = 0; i < 4; i++) {
        TEST_ASSERT_TRUE(rf_bytes_equal(parent.metadata, children[i].spec.metadata));
        TEST_ASSERT_NULL(children[i].cursor.key.data);
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 4));
}

static void a_plan_may_cut_an_unbounded_range(void)
{
    rf_bytes point = rf_text("m");
    rf_child children[2];
    hold("", "", NULL);
    TEST_ASSERT_EQUAL(RF_OK, rf_plan_replace(rf_box_spec(&box), &point, 1, children, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 2));
}

static void points_must_rise_inside_the_range(void)
{
    static const char *const wrong[][2] = {
        {"d", "m"}, {"c", "m"}, {"m", "m"}, {"m", "k"},
        {"m", "w"}, {"m", "x"}, {"", "m"},  {"m", ""},
    };
    static const uint64_t index[] = {0, 0, 1, 1, 1, 1, 0, 1};
    rf_child children[3];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rf_bytes points[2] = {rf_text(wrong[i][0]), rf_text(wrong[i][1])};
        TEST_ASSERT_EQUAL(RF_RANGE_INVERTED,
                          rf_plan_replace(rf_spec_of("d", "w"), points, 2, children, &desk.detail));
        TEST_ASSERT_EQUAL_UINT64(index[i], desk.detail.index);
    }
}

static void a_plan_to_replace_refuses_what_can_not_be(void)
{
    static uint8_t long_m[RF_KEY_MAX + 1];
    memset(long_m, 'm', sizeof(long_m));
    static rf_bytes points[RF_SPLIT_CHILDREN_MAX];
    static rf_child children[RF_SPLIT_CHILDREN_MAX + 1];
    rf_spec parent = rf_spec_of("d", "w");
    rf_detail *detail = &desk.detail;
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_replace(parent, NULL, 1, children, detail));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_replace(parent, points, 1, NULL, detail));
    rf_spec unsound = parent;
    unsound.metadata = rf_bytes_of(NULL, 5);
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_replace(unsound, points, 1, children, detail));
    points[0] = rf_bytes_of(NULL, 5);
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_replace(parent, points, 1, children, detail));
    points[0] = rf_bytes_of(long_m, sizeof(long_m));
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, rf_plan_replace(parent, points, 1, children, detail));
    TEST_ASSERT_EQUAL_UINT64(4097, detail->size);
    TEST_ASSERT_EQUAL(RF_SPLIT_COUNT, rf_plan_replace(parent, points, 0, children, detail));
    TEST_ASSERT_EQUAL_UINT64(1, detail->size);
    TEST_ASSERT_EQUAL(RF_SPLIT_COUNT, rf_plan_replace(parent, points, 256, children, detail));
    TEST_ASSERT_EQUAL_UINT64(257, detail->size);
    TEST_ASSERT_EQUAL(RF_SPLIT_COUNT,
                      rf_plan_replace(parent, points, UINT32_MAX, children, detail));
    TEST_ASSERT_EQUAL_UINT64((uint64_t)UINT32_MAX + 1, detail->size);
}

static void a_plan_of_255_points_makes_256_children(void)
{
    static rf_bytes points[RF_SPLIT_CHILDREN_MAX - 1];
    static rf_child children[RF_SPLIT_CHILDREN_MAX];
    static char cut[RF_SPLIT_CHILDREN_MAX][4];
    for (uint32_t i = 0; i < 255; i++) {
        snprintf(cut[i], sizeof(cut[i]), "%03u", i);
        points[i] = rf_text(cut[i]);
    }
    hold("", "", NULL);
    TEST_ASSERT_EQUAL(RF_OK, rf_plan_replace(rf_box_spec(&box), points, 255, children, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_replace(&desk, children, 256));
}

static void a_residual_plan_at_a_point_is_accepted_by_the_split(void)
{
    rf_spec parent_new, residual, parent = rf_box_spec(&box);
    parent.metadata = rf_text("meta");
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_plan_residual_at(parent, rf_text("m"), &parent_new, &residual, NULL));
    TEST_ASSERT_TRUE(rf_bytes_equal(parent.metadata, parent_new.metadata));
    TEST_ASSERT_TRUE(rf_bytes_equal(parent.metadata, residual.metadata));
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
}

static void a_residual_point_lies_strictly_inside(void)
{
    rf_spec parent_new, residual;
    static const char *const wrong[] = {"", "c", "d", "w", "x"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        TEST_ASSERT_EQUAL(RF_RANGE_INVERTED,
                          rf_plan_residual_at(rf_spec_of("d", "w"), rf_text(wrong[i]), &parent_new,
                                              &residual, &desk.detail));
    }
    static const uint8_t large[RF_KEY_MAX + 1] = {'m'};
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE,
                      rf_plan_residual_at(rf_spec_of("d", "w"), rf_bytes_of(large, sizeof(large)),
                                          &parent_new, &residual, &desk.detail));
    TEST_ASSERT_EQUAL_UINT64(4097, desk.detail.size);
}

static void residual_plans_refuse_missing_arguments(void)
{
    rf_spec parent_new, residual, parent = rf_spec_of("d", "w");
    uint8_t scratch[RF_KEY_MAX];
    rf_bytes bad = rf_bytes_of(NULL, 1), m = rf_text("m");
    rf_cursor cursor = rf_cursor_at("m"), unsound = {.key = m, .token = bad};
    rf_spec unsound_parent = {.start = bad};
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_residual_at(parent, m, NULL, &residual, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_residual_at(parent, m, &parent_new, NULL, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT,
                      rf_plan_residual_at(parent, bad, &parent_new, &residual, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT,
                      rf_plan_residual_at(unsound_parent, m, &parent_new, &residual, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, rf_plan_residual_from_cursor(
                                               parent, cursor, NULL, &parent_new, &residual, NULL));
    TEST_ASSERT_EQUAL(
        RF_INVALID_ARGUMENT,
        rf_plan_residual_from_cursor(parent, unsound, scratch, &parent_new, &residual, NULL));
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT,
                      rf_plan_residual_from_cursor(parent, cursor, scratch, NULL, &residual, NULL));
}

static rf_status plan_from(const char *start, const char *end, rf_cursor cursor,
                           rf_spec *parent_new, rf_spec *residual)
{
    static uint8_t scratch[RF_KEY_MAX];
    return rf_plan_residual_from_cursor(rf_spec_of(start, end), cursor, scratch, parent_new,
                                        residual, &desk.detail);
}

static void a_residual_from_the_cursor_begins_right_behind_it(void)
{
    rf_spec parent_new, residual;
    hold("d", "w", "m");
    TEST_ASSERT_EQUAL(RF_OK, plan_from("d", "w", rf_cursor_at("m"), &parent_new, &residual));
    TEST_ASSERT_TRUE(rf_bytes_equal(rf_bytes_of("m\0", 2), residual.start));
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
}

static void a_residual_from_the_cursor_of_an_unbounded_range_is_unbounded(void)
{
    rf_spec parent_new, residual;
    hold("", "", "m");
    TEST_ASSERT_EQUAL(RF_OK, plan_from("", "", rf_cursor_at("m"), &parent_new, &residual));
    TEST_ASSERT_EQUAL_size_t(0, parent_new.start.len);
    TEST_ASSERT_EQUAL_size_t(0, residual.end.len);
    TEST_ASSERT_EQUAL(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
    TEST_ASSERT_EQUAL_size_t(2, box.end_len);
}

static void nothing_behind_the_cursor_is_no_residual(void)
{
    rf_spec parent_new, residual;
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED,
                      plan_from("d", "w", rf_cursor_at("w"), &parent_new, &residual));
    rf_spec tight = {.start = rf_text("d"), .end = rf_bytes_of("m\0", 2)};
    uint8_t scratch[RF_KEY_MAX];
    TEST_ASSERT_EQUAL(RF_RANGE_INVERTED,
                      rf_plan_residual_from_cursor(tight, rf_cursor_at("m"), scratch, &parent_new,
                                                   &residual, NULL));
}

static void a_residual_needs_a_cursor_with_a_key_that_has_a_successor(void)
{
    rf_spec parent_new, residual;
    static uint8_t large[RF_KEY_MAX];
    memset(large, 'm', sizeof(large));
    rf_cursor initial = {0}, cursor = {.key = rf_bytes_of(large, RF_KEY_MAX)};
    TEST_ASSERT_EQUAL(RF_MISSING_KEY, plan_from("d", "w", initial, &parent_new, &residual));
    TEST_ASSERT_EQUAL(RF_KEY_TOO_LARGE, plan_from("d", "w", cursor, &parent_new, &residual));
    TEST_ASSERT_EQUAL_UINT64(4097, desk.detail.size);
    cursor.key.len = RF_KEY_MAX - 1;
    TEST_ASSERT_EQUAL(RF_OK, plan_from("d", "w", cursor, &parent_new, &residual));
    TEST_ASSERT_EQUAL_size_t(RF_KEY_MAX, residual.start.len);
}

/* Any plan that is made is accepted, any cut that the split would accept is planned. */
static void random_plans_and_splits_agree(void)
{
    struct rf_prng prng = {.state = 21};
    for (int round = 0; round < 5000; round++) {
        char text[4][2] = {"", "", "", ""};
        for (int i = 0; i < 4; i++) {
            if (!rf_prng_chance(&prng, 15)) {
                text[i][0] = (char)('a' + rf_prng_below(&prng, 6));
            }
        }
        rf_spec parent = rf_spec_of(text[0], text[1]);
        if (!rf_range_upright(&parent)) {
            continue;
        }
        hold(text[0], text[1], NULL);
        rf_bytes points[2] = {rf_text(text[2]), rf_text(text[3])};
        rf_child planned[3] = {
            {.spec = {.start = parent.start, .end = points[0]}},
            {.spec = {.start = points[0], .end = points[1]}},
            {.spec = {.start = points[1], .end = parent.end}},
        };
        rf_child children[3];
        bool made = rf_plan_replace(parent, points, 2, children, NULL) == RF_OK;
        TEST_ASSERT_EQUAL(made, rf_desk_split_replace(&desk, planned, 3) == RF_OK);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_split_shard_is_terminal_and_its_children_are_named_in_start_order);
    RUN_TEST(a_child_starts_active_at_fence_1_with_its_parents_semantics);
    RUN_TEST(ids_do_not_depend_on_the_callers_order);
    RUN_TEST(the_order_is_right_for_every_permutation_of_six);
    RUN_TEST(children_may_be_2_to_256);
    RUN_TEST(gaps_overlaps_and_wrong_ends_are_refused_with_the_callers_position);
    RUN_TEST(an_unbounded_parent_needs_unbounded_outer_children);
    RUN_TEST(empty_and_inverted_children_are_refused_with_the_callers_position);
    RUN_TEST(sizes_of_children_are_checked_at_their_limits);
    RUN_TEST(a_childs_cursor_is_absent_or_inside_the_child);
    RUN_TEST(spawned_ids_are_limited_to_1024_for_life);
    RUN_TEST(shard_limits_are_reached_and_not_passed);
    RUN_TEST(a_taken_id_is_refused_with_the_callers_position);
    RUN_TEST(equal_ids_within_one_split_collide);
    RUN_TEST(a_replayed_split_returns_the_same_ids);
    RUN_TEST(the_same_children_in_another_order_are_another_payload);
    RUN_TEST(a_residual_takes_the_end_of_the_range_and_the_parent_goes_on);
    RUN_TEST(the_two_parts_are_exactly_the_old_range);
    RUN_TEST(neither_part_may_be_empty);
    RUN_TEST(the_stored_key_stays_inside_the_parent);
    RUN_TEST(a_residual_is_replayed_after_the_ring_forgot_it);
    RUN_TEST(every_one_of_many_residuals_is_replayed_as_itself);
    RUN_TEST(residuals_end_at_1024);
    RUN_TEST(a_residual_whose_id_is_taken_is_refused);
    RUN_TEST(a_plan_to_replace_is_accepted_by_the_split);
    RUN_TEST(a_plan_may_cut_an_unbounded_range);
    RUN_TEST(points_must_rise_inside_the_range);
    RUN_TEST(a_plan_to_replace_refuses_what_can_not_be);
    RUN_TEST(a_plan_of_255_points_makes_256_children);
    RUN_TEST(a_residual_plan_at_a_point_is_accepted_by_the_split);
    RUN_TEST(a_residual_point_lies_strictly_inside);
    RUN_TEST(residual_plans_refuse_missing_arguments);
    RUN_TEST(a_residual_from_the_cursor_begins_right_behind_it);
    RUN_TEST(a_residual_from_the_cursor_of_an_unbounded_range_is_unbounded);
    RUN_TEST(nothing_behind_the_cursor_is_no_residual);
    RUN_TEST(a_residual_needs_a_cursor_with_a_key_that_has_a_successor);
    RUN_TEST(random_plans_and_splits_agree);
    return UNITY_END();
}
