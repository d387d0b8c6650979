/*
 * The protocol's stories, told through the public API on a region: one shard or run at a time, with
 * a clock that the test turns, by one process and by several real ones. That every status and byte
 * is the pure transitions' is test_differential.c's claim; here it is written out what they mean.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "desk.h"
#include "hands.h"
#include "shop.h"

#define RUN 7u

static struct rf_shop shop;
static rf_store *a, *b; /* two handles */
static rf_tenant tenant, stranger;
static rf_result result;
static const rf_run_config config = {.lease_duration = 1000};

void setUp(void)
{
    tenant = rf_tenant_of(1);
    stranger = rf_tenant_of(2);
    rf_shop_found(&shop);
    a = rf_shop_enter(&shop, NULL);
    b = rf_shop_enter(&shop, NULL);
    memset(&result, 0, sizeof(result));
}

void tearDown(void)
{
    if (a != NULL) {
        rf_close(a);
    }
    if (b != NULL) {
        rf_close(b);
    }
    a = b = NULL;
    rf_shop_raze(&shop);
}

static void stock(uint32_t count)
{
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, count);
}

static rf_lease take(rf_store *store, uint64_t shard, uint64_t worker)
{
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK,
              rf_acquire(store, shop.now, &tenant, RUN, shard, worker, RF_BOUND, &g, &result));
    return g.lease;
}

static rf_shard_info shown(uint64_t shard)
{
    return rf_shop_shard(b, &tenant, RUN, shard);
}

static rf_cursor at(const char *key)
{
    return rf_cursor_at(key);
}

/* --- grants and leases --- */

static void the_first_grant_has_fence_2_and_each_later_one_is_above(void)
{
    stock(1);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &tenant, RUN, 1, 5, RF_BOUND, &g, &result));
    TEST_ASSERT_EQUAL_UINT64(2, g.lease.fence);
    TEST_ASSERT_EQUAL_UINT64(RUN, g.lease.run);
    TEST_ASSERT_EQUAL_UINT64(5, g.lease.worker);
    TEST_ASSERT_EQUAL_UINT64(shop.now + 1000, g.lease.deadline);
    TEST_ASSERT_EQUAL(RF_SHARD_ACTIVE, g.status);
    TEST_ASSERT_EQUAL_UINT32(1, g.attempts);
    TEST_ASSERT_FALSE(g.has_parent);
    TEST_ASSERT_EQUAL_UINT32(0, g.spawned_count);
    TEST_ASSERT_NULL(g.cursor.key.data);
    TEST_ASSERT_EQUAL_MEMORY("k00000", g.spec.start.data, 6);
    TEST_ASSERT_EQUAL_MEMORY("k00001", g.spec.end.data, 6);
    TEST_ASSERT_EQUAL_UINT64(0, result.capacity.available);
    TEST_ASSERT_EQUAL_UINT64(g.lease.deadline, result.capacity.earliest_deadline);
    for (uint64_t fence = 3; fence < 8; fence++) {
        RF_EXPECT(RF_OK, rf_release(a, shop.now, &tenant, &g.lease, NULL, fence, NULL));
        RF_EXPECT(RF_OK, rf_acquire(b, shop.now, &tenant, RUN, 1, fence, RF_BOUND, &g, NULL));
        TEST_ASSERT_EQUAL_UINT64(fence, g.lease.fence);
        TEST_ASSERT_EQUAL_UINT32(1, g.attempts); /* a release is progress */
    }
}

static void a_leased_shard_is_refused_to_everybody_its_owner_too(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    rf_grant g = rf_shop_blank(0);
    rf_store *const both[] = {a, b};
    for (unsigned i = 0; i < 2; i++) {
        RF_EXPECT(RF_ALREADY_LEASED,
                  rf_acquire(both[i], shop.now, &tenant, RUN, 1, 5, RF_BOUND, &g, &result));
        TEST_ASSERT_EQUAL_UINT64(lease.deadline, result.detail.deadline);
    }
    TEST_ASSERT_EQUAL_UINT64(2, shown(1).fence);
}

static void a_lease_is_over_at_its_deadline_and_not_before(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    rf_grant g = rf_shop_blank(0);
    const rf_cursor cursor = at("k00000a");
    uint64_t last = lease.deadline - 1;
    RF_EXPECT(RF_OK, rf_checkpoint(a, last, &tenant, &lease, &cursor, 1, NULL));
    RF_EXPECT(RF_ALREADY_LEASED, rf_acquire(b, last, &tenant, RUN, 1, 6, RF_BOUND, &g, NULL));
    RF_EXPECT(RF_LEASE_EXPIRED,
              rf_checkpoint(a, lease.deadline, &tenant, &lease, &cursor, 2, &result));
    TEST_ASSERT_EQUAL_UINT64(lease.deadline, result.detail.deadline);
    RF_EXPECT(RF_LEASE_EXPIRED, rf_renew(a, lease.deadline, &tenant, &lease, NULL));
    RF_EXPECT(RF_OK, rf_acquire(b, lease.deadline, &tenant, RUN, 1, 6, RF_BOUND, &g, NULL));
    TEST_ASSERT_EQUAL_UINT64(3, g.lease.fence);
    TEST_ASSERT_EQUAL_MEMORY("k00000a", g.cursor.key.data, 7);
    RF_EXPECT(RF_STALE_FENCE, rf_renew(a, lease.deadline, &tenant, &lease, NULL));
}

static void a_renewal_moves_the_deadline_on_and_never_back(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    RF_EXPECT(RF_OK, rf_renew(b, shop.now + 500, &tenant, &lease, &result));
    TEST_ASSERT_EQUAL_UINT64(shop.now + 1500, lease.deadline);
    TEST_ASSERT_EQUAL(RF_RUN_ACTIVE, result.run_status);
    RF_EXPECT(RF_OK, rf_renew(a, shop.now + 10, &tenant, &lease, &result));
    TEST_ASSERT_EQUAL_UINT64(shop.now + 1500, lease.deadline);
    TEST_ASSERT_EQUAL_UINT64(shop.now + 1500, shown(1).deadline);
    TEST_ASSERT_EQUAL_UINT64(2, shown(1).fence);
    RF_EXPECT(RF_OK, rf_complete_run(b, shop.now, &tenant, RUN, 77, NULL));
    RF_EXPECT(RF_OK, rf_renew(a, shop.now + 20, &tenant, &lease, &result));
    TEST_ASSERT_EQUAL(RF_RUN_DONE, result.run_status);
}

static void a_refused_renewal_tells_nothing_of_the_call_before_it(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    static const uint8_t big[RF_KEY_MAX + 1];
    const rf_cursor cursor = {.key = rf_bytes_of(big, sizeof(big))};
    RF_EXPECT(RF_KEY_TOO_LARGE, rf_checkpoint(a, shop.now, &tenant, &lease, &cursor, 1, &result));
    TEST_ASSERT_EQUAL_UINT64(sizeof(big), result.detail.size);
    lease.fence++;
    result.want_event = true;
    RF_EXPECT(RF_STALE_FENCE, rf_renew(a, shop.now, &tenant, &lease, &result));
    TEST_ASSERT_EQUAL_UINT64(0, result.detail.size);
    TEST_ASSERT_FALSE(result.has_event);
}

/* B's clock is ahead: it finds A's lease expired and lists the shard. A's own clock says that there
 * is time left, and A is right as long as nobody has taken the shard. */
static void an_owner_with_an_earlier_clock_renews_what_another_has_listed(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_sweep(b, lease.deadline + 5, &tenant, RUN, NULL));
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_capacity(b, &tenant, RUN).available);
    RF_EXPECT(RF_OK, rf_renew(a, lease.deadline - 10, &tenant, &lease, &result));
    TEST_ASSERT_EQUAL_UINT64(0, result.capacity.available);
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_capacity(b, &tenant, RUN).available);
    RF_EXPECT(RF_NONE_AVAILABLE,
              rf_claim(b, lease.deadline - 1, &tenant, RUN, 0, RF_BOUND, 0, &g, &result));
    TEST_ASSERT_EQUAL_UINT64(lease.deadline, result.detail.deadline);
    RF_EXPECT(RF_OK, rf_claim(b, lease.deadline, &tenant, RUN, 0, RF_BOUND, 0, &g, NULL));
    RF_EXPECT(RF_STALE_FENCE, rf_renew(a, lease.deadline - 10, &tenant, &lease, NULL));
}

static void a_split_by_an_owner_with_an_earlier_clock_does_not_hide_the_shard(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    rf_grant g = rf_shop_blank(0);
    uint64_t id;
    const rf_spec left = rf_spec_of("k00000", "k00000m"), right = rf_spec_of("k00000m", "k00001");
    RF_EXPECT(RF_OK, rf_sweep(b, lease.deadline, &tenant, RUN, NULL));
    RF_EXPECT(RF_OK, rf_split_residual(a, lease.deadline - 1, &tenant, &lease, &left, &right, 1,
                                       &id, NULL));
    RF_EXPECT(RF_OK, rf_claim(b, lease.deadline, &tenant, RUN, 0, RF_BOUND, 0, &g, NULL));
    TEST_ASSERT_EQUAL_UINT64(1, g.lease.shard);
    RF_EXPECT(RF_OK, rf_claim(b, lease.deadline, &tenant, RUN, 0, RF_BOUND, 0, &g, NULL));
    TEST_ASSERT_EQUAL_HEX64(id, g.lease.shard);
}

/* --- zombies --- */

/* Every operation of an owner, presented with this lease, gets this answer. */
static void expect_of_every_operation(rf_store *store, uint64_t now, const rf_lease *held,
                                      rf_status expected)
{
    rf_lease lease = *held;
    const rf_cursor cursor = at("k00000c");
    const rf_child parts[2] = {rf_child_of("k00000", "k00000m"), rf_child_of("k00000m", "k00001")};
    uint64_t ids[2];
    RF_EXPECT(expected, rf_renew(store, now, &tenant, &lease, &result));
    RF_EXPECT(expected, rf_checkpoint(store, now, &tenant, &lease, &cursor, 901, &result));
    RF_EXPECT(expected, rf_complete(store, now, &tenant, &lease, &cursor, 902, &result));
    RF_EXPECT(expected, rf_park(store, now, &tenant, &lease, RF_PARK_OTHER, 903, &result));
    RF_EXPECT(expected, rf_release(store, now, &tenant, &lease, NULL, 904, &result));
    RF_EXPECT(expected, rf_release(store, now, &tenant, &lease, &cursor, 905, &result));
    RF_EXPECT(expected, rf_split_replace(store, now, &tenant, &lease, parts, 2, 906, ids, &result));
    RF_EXPECT(expected, rf_split_residual(store, now, &tenant, &lease, &parts[0].spec,
                                          &parts[1].spec, 907, ids, &result));
}

static void a_zombie_is_refused_by_every_operation_and_changes_nothing(void)
{
    stock(1);
    rf_lease old = take(a, 1, 5);
    expect_of_every_operation(a, old.deadline, &old, RF_LEASE_EXPIRED);
    rf_grant g = rf_shop_blank(1);
    RF_EXPECT(RF_OK, rf_claim(b, old.deadline, &tenant, RUN, 6, RF_BOUND, 0, &g, NULL));
    uint64_t version = shown(1).version;
    expect_of_every_operation(a, old.deadline, &old, RF_STALE_FENCE);
    expect_of_every_operation(a, shop.now, &old, RF_STALE_FENCE); /* whatever its clock says */
    rf_lease forged = g.lease;
    forged.worker++;
    expect_of_every_operation(a, old.deadline, &forged, RF_STALE_FENCE);
    rf_shard_info info = shown(1);
    TEST_ASSERT_EQUAL_UINT64(version, info.version);
    TEST_ASSERT_EQUAL_UINT64(6, info.owner);
    TEST_ASSERT_EQUAL_UINT64(3, info.fence);
    TEST_ASSERT_EQUAL_UINT32(0, info.ring_count);
}

struct zombie {
    rf_lease lease;
    _Atomic uint32_t granted, taken;
};

static int be_a_zombie(void *context)
{
    struct zombie *z = context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(mine, rf_now(mine), &tenant, RUN, 1, 5, RF_BOUND, &g, NULL));
    z->lease = g.lease;
    atomic_store(&z->granted, 1);
    rf_hands_until(&z->taken, 1);
    expect_of_every_operation(mine, rf_now(mine), &g.lease, RF_STALE_FENCE);
    rf_close(mine);
    return 0;
}

static void a_living_process_that_was_slow_is_a_zombie(void)
{
    const rf_run_config brief = {.lease_duration = 30 * RF_MILLISECOND};
    struct zombie *z = rf_hands_board(sizeof(*z));
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_shop_stock(mine, rf_now(mine), &tenant, RUN, &brief, 1);
    pid_t child = rf_hands_send(be_a_zombie, z);
    rf_hands_until(&z->granted, 1);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK,
              rf_claim(mine, rf_now(mine), &tenant, RUN, 6, RF_BOUND, 5 * RF_SECOND, &g, NULL));
    TEST_ASSERT_TRUE(rf_now(mine) >= z->lease.deadline);
    TEST_ASSERT_EQUAL_UINT64(z->lease.fence + 1, g.lease.fence);
    atomic_store(&z->taken, 1);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(child));
    TEST_ASSERT_EQUAL_UINT64(6, rf_shop_shard(mine, &tenant, RUN, 1).owner);
    rf_close(mine);
}

/* --- the death of an owner --- */

struct mortal {
    rf_lease bound, detached;
    _Atomic uint32_t ready;
};

static int hold_two_shards(void *context)
{
    struct mortal *m = context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_grant g = rf_shop_blank(0);
    const rf_cursor cursor = at("k00000f");
    RF_EXPECT(RF_OK, rf_acquire(mine, rf_now(mine), &tenant, RUN, 1, 5, RF_BOUND, &g, NULL));
    RF_EXPECT(RF_OK, rf_checkpoint(mine, rf_now(mine), &tenant, &g.lease, &cursor, 1, NULL));
    m->bound = g.lease;
    RF_EXPECT(RF_OK, rf_acquire(mine, rf_now(mine), &tenant, RUN, 2, 5, RF_DETACHED, &g, NULL));
    m->detached = g.lease;
    atomic_store(&m->ready, 1);
    pause();
    return 0;
}

static void a_killed_owners_bound_shard_is_claimable_at_once_and_a_detached_one_is_not(void)
{
    const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};
    struct mortal *m = rf_hands_board(sizeof(*m));
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_shop_stock(mine, rf_now(mine), &tenant, RUN, &lasting, 2);
    pid_t child = rf_hands_send(hold_two_shards, m);
    rf_hands_until(&m->ready, 1);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_NONE_AVAILABLE,
              rf_claim(mine, rf_now(mine), &tenant, RUN, 6, RF_BOUND, 0, &g, NULL));
    rf_hands_kill(child);
    uint64_t died = rf_now(mine);
    RF_EXPECT(RF_OK,
              rf_claim(mine, rf_now(mine), &tenant, RUN, 6, RF_BOUND, 10 * RF_SECOND, &g, NULL));
    printf("  claimed %" PRIu64 " us after the death\n", (rf_now(mine) - died) / 1000);
    TEST_ASSERT_TRUE(rf_now(mine) - died < RF_SECOND);
    TEST_ASSERT_EQUAL_UINT64(1, g.lease.shard);
    TEST_ASSERT_EQUAL_UINT64(3, g.lease.fence);
    TEST_ASSERT_EQUAL_UINT32(1, g.attempts); /* its checkpoint was progress; the death is counted */
    TEST_ASSERT_EQUAL_MEMORY("k00000f", g.cursor.key.data, 7);
    RF_EXPECT(RF_ALREADY_LEASED,
              rf_acquire(mine, rf_now(mine), &tenant, RUN, 2, 6, RF_BOUND, &g, NULL));
    rf_lease legacy = m->detached; /* any process may present it */
    const rf_cursor cursor = at("k00001b");
    RF_EXPECT(RF_STALE_FENCE, rf_renew(mine, rf_now(mine), &tenant, &m->bound, NULL));
    RF_EXPECT(RF_OK, rf_renew(mine, rf_now(mine), &tenant, &legacy, NULL));
    RF_EXPECT(RF_OK, rf_complete(mine, rf_now(mine), &tenant, &legacy, &cursor, 9, NULL));
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(mine).leases_lost);
    rf_close(mine);
}

static void closing_a_handle_gives_up_its_own_bound_leases_and_no_others(void)
{
    stock(4);
    rf_grant g = rf_shop_blank(0);
    rf_lease mine = take(a, 1, 5), others = take(b, 2, 5);
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &tenant, RUN, 3, 5, RF_DETACHED, &g, NULL));
    rf_close(a);
    a = rf_shop_enter(&shop, NULL);
    TEST_ASSERT_FALSE(shown(1).leased);
    TEST_ASSERT_EQUAL_UINT64(2, shown(1).fence);
    TEST_ASSERT_EQUAL_UINT32(1, shown(1).attempts);
    TEST_ASSERT_TRUE(shown(2).leased);
    TEST_ASSERT_TRUE(shown(3).leased);
    RF_EXPECT(RF_STALE_FENCE, rf_renew(b, shop.now, &tenant, &mine, NULL));
    RF_EXPECT(RF_OK, rf_renew(b, shop.now, &tenant, &others, NULL));
    RF_EXPECT(RF_OK, rf_renew(b, shop.now, &tenant, &g.lease, NULL));
}

static void a_dead_manual_handle_is_settled_by_whoever_tends(void)
{
    stock(130); /* three extents */
    const uint64_t held[] = {1, 64, 65, 128, 130};
    for (unsigned i = 0; i < 5; i++) {
        take(a, held[i], 5);
    }
    take(b, 66, 6);
    rf_shop_die(a);
    a = NULL;
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(b).dead_members);
    TEST_ASSERT_TRUE(shown(64).leased);
    RF_EXPECT(RF_OK, rf_tend(b, shop.now));
    for (unsigned i = 0; i < 5; i++) {
        TEST_ASSERT_FALSE(shown(held[i]).leased);
    }
    TEST_ASSERT_TRUE(shown(66).leased);
    rf_inspection seen = rf_shop_inspect(b);
    TEST_ASSERT_EQUAL_UINT64(0, seen.dead_members);
    TEST_ASSERT_EQUAL_UINT64(5, seen.leases_lost);
    TEST_ASSERT_EQUAL_UINT64(1, seen.members);
    TEST_ASSERT_EQUAL_UINT64(129, rf_shop_capacity(b, &tenant, RUN).available);
}

/* --- endings of a shard, and unpark --- */

static void a_parked_shard_comes_back_with_a_new_fence_and_its_cursor(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    const rf_cursor cursor = at("k00000k");
    RF_EXPECT(RF_NOT_PARKED, rf_unpark(b, shop.now, &tenant, RUN, 1, 1, NULL));
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, &cursor, 2, NULL));
    RF_EXPECT(RF_OK, rf_park(a, shop.now, &tenant, &lease, RF_PARK_POISONED, 3, NULL));
    rf_shard_info info = shown(1);
    TEST_ASSERT_EQUAL(RF_SHARD_PARKED, info.status);
    TEST_ASSERT_TRUE(info.has_reason);
    TEST_ASSERT_EQUAL(RF_PARK_POISONED, info.reason);
    TEST_ASSERT_EQUAL_UINT64(2, info.fence);
    TEST_ASSERT_FALSE(info.leased);
    expect_of_every_operation(a, shop.now, &lease, RF_SHARD_TERMINAL);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_SHARD_TERMINAL, rf_acquire(a, shop.now, &tenant, RUN, 1, 5, RF_BOUND, &g, NULL));
    RF_EXPECT(RF_OK, rf_unpark(b, shop.now, &tenant, RUN, 1, 4, NULL));
    TEST_ASSERT_EQUAL_UINT64(3, shown(1).fence);
    TEST_ASSERT_FALSE(shown(1).has_reason);
    RF_EXPECT(RF_OK, rf_claim(b, shop.now, &tenant, RUN, 0, RF_BOUND, 0, &g, NULL));
    TEST_ASSERT_EQUAL_UINT64(4, g.lease.fence);
    TEST_ASSERT_EQUAL_MEMORY("k00000k", g.cursor.key.data, 7);
    RF_EXPECT(RF_OK, rf_park(b, shop.now, &tenant, &g.lease, RF_PARK_OTHER, 5, NULL));
    RF_EXPECT(RF_OK, rf_fail_run(a, shop.now, &tenant, RUN, 6, NULL));
    RF_EXPECT(RF_RUN_TERMINAL, rf_unpark(b, shop.now, &tenant, RUN, 1, 7, NULL));
}

static void a_done_shard_stays_done(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    const rf_cursor cursor = rf_cursor_with("k00000z", "the end");
    RF_EXPECT(RF_OK, rf_complete(a, shop.now, &tenant, &lease, &cursor, 1, &result));
    RF_EXPECT(RF_OK, rf_complete(b, shop.now + 5, &tenant, &lease, &cursor, 1, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    expect_of_every_operation(b, shop.now, &lease, RF_SHARD_TERMINAL);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_SHARD_TERMINAL, rf_acquire(b, shop.now, &tenant, RUN, 1, 6, 0, &g, NULL));
    RF_EXPECT(RF_NONE_AVAILABLE, rf_claim(b, shop.now, &tenant, RUN, 6, RF_BOUND, 0, &g, &result));
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_capacity(b, &tenant, RUN).available);
    RF_EXPECT(RF_NOT_PARKED, rf_unpark(b, shop.now, &tenant, RUN, 1, 2, NULL));
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_run(b, &tenant, RUN).done);
}

/* --- splits --- */

static void children_replace_their_parent_in_the_order_of_their_starts(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    rf_child parts[3] = {rf_child_of("k00000p", "k00001"), rf_child_of("k00000", "k00000f"),
                         rf_child_of("k00000f", "k00000p")};
    uint64_t ids[3], again[3];
    parts[2].cursor = rf_cursor_with("k00000g", "token");
    RF_EXPECT(RF_OK, rf_split_replace(a, shop.now, &tenant, &lease, parts, 3, 9, ids, &result));
    for (uint32_t i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_HEX64(rf_split_id(RUN, 1, 9, RF_CHILD, i), ids[i]);
    }
    RF_EXPECT(RF_OK, rf_split_replace(b, shop.now, &tenant, &lease, parts, 3, 9, again, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    TEST_ASSERT_EQUAL_MEMORY(ids, again, sizeof(ids));
    rf_shard_info parent = shown(1);
    TEST_ASSERT_EQUAL(RF_SHARD_SPLIT, parent.status);
    TEST_ASSERT_EQUAL_UINT32(3, parent.spawned_count);
    TEST_ASSERT_EQUAL_MEMORY(ids, parent.spawned, sizeof(ids));
    rf_shard_info child = shown(ids[1]);
    TEST_ASSERT_TRUE(child.has_parent);
    TEST_ASSERT_EQUAL_UINT64(1, child.parent);
    TEST_ASSERT_EQUAL_UINT64(1, child.fence);
    TEST_ASSERT_EQUAL_MEMORY("k00000g", child.cursor.key.data, 7);
    TEST_ASSERT_EQUAL_MEMORY("token", child.cursor.token.data, 5);
    TEST_ASSERT_EQUAL_UINT64(4, rf_shop_run(b, &tenant, RUN).shard_count);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_run(b, &tenant, RUN).root_count);
    TEST_ASSERT_EQUAL_UINT64(3, rf_shop_capacity(b, &tenant, RUN).available);
}

static void a_residual_split_is_known_after_the_ring_forgot_it(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    const rf_spec left = rf_spec_of("k00000", "k00000t"), right = rf_spec_of("k00000t", "k00001");
    uint64_t id, again = 0;
    RF_EXPECT(RF_OK, rf_split_residual(a, shop.now, &tenant, &lease, &left, &right, 50, &id, NULL));
    TEST_ASSERT_EQUAL_HEX64(rf_split_id(RUN, 1, 50, RF_RESIDUAL, 0), id);
    for (uint64_t op = 100; op < 100 + RF_SHARD_RING; op++) {
        const rf_cursor cursor = at("k00000a");
        RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, &cursor, op, NULL));
    }
    TEST_ASSERT_EQUAL_UINT32(RF_SHARD_RING, shown(1).ring_count);
    TEST_ASSERT_EQUAL_UINT64(100, shown(1).ring[0].op);
    RF_EXPECT(RF_OK,
              rf_split_residual(b, shop.now, &tenant, &lease, &left, &right, 50, &again, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    TEST_ASSERT_EQUAL_HEX64(id, again);
    TEST_ASSERT_EQUAL_UINT64(2, rf_shop_run(b, &tenant, RUN).shard_count);
    TEST_ASSERT_EQUAL_MEMORY("k00000t", shown(1).spec.end.data, 7);
}

/* --- op ids --- */

static void the_ring_remembers_16_operations_from_any_process(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    const rf_cursor one = at("k00000b"), other = at("k00000c");
    for (uint64_t op = 1; op <= 17; op++) {
        shop.now += 1;
        RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, &one, op, &result));
        TEST_ASSERT_EQUAL(RF_EXECUTED, result.outcome);
    }
    RF_EXPECT(RF_OK, rf_checkpoint(b, shop.now, &tenant, &lease, &one, 2, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    RF_EXPECT(RF_OP_ID_CONFLICT, rf_checkpoint(b, shop.now, &tenant, &lease, &other, 2, &result));
    RF_EXPECT(RF_OP_ID_CONFLICT, rf_complete(b, shop.now, &tenant, &lease, &one, 2, &result));
    RF_EXPECT(RF_OK, rf_checkpoint(b, shop.now, &tenant, &lease, &one, 1, &result));
    TEST_ASSERT_EQUAL_MESSAGE(RF_EXECUTED, result.outcome, "the oldest is forgotten");
    TEST_ASSERT_EQUAL_UINT64(1, shown(1).ring[15].op);
    TEST_ASSERT_EQUAL_UINT64(3, shown(1).ring[0].op);
}

/* --- runs --- */

static void a_run_goes_from_initializing_to_its_end(void)
{
    const rf_shard_input one = rf_input_of(1, "a", "m");
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_cancel_run(a, shop.now, &tenant, RUN, 1, NULL));
    RF_EXPECT(RF_INVALID_CONFIG,
              rf_create_run(a, shop.now, &tenant, RUN, &(rf_run_config){0}, NULL));
    RF_EXPECT(RF_OK, rf_create_run(a, shop.now, &tenant, RUN, &config, NULL));
    RF_EXPECT(RF_RUN_EXISTS, rf_create_run(b, shop.now, &tenant, RUN, &config, NULL));
    TEST_ASSERT_EQUAL(RF_RUN_INITIALIZING, rf_shop_run(b, &tenant, RUN).status);
    RF_EXPECT(RF_NONE_AVAILABLE, rf_claim(b, shop.now, &tenant, RUN, 0, 0, 0, &g, NULL));
    RF_EXPECT(RF_WRONG_STATUS, rf_add_shards(b, shop.now, &tenant, RUN, &one, 1, 2, NULL));
    RF_EXPECT(RF_WRONG_STATUS, rf_complete_run(b, shop.now, &tenant, RUN, 3, NULL));
    RF_EXPECT(RF_WRONG_STATUS, rf_purge_run(b, shop.now, &tenant, RUN, NULL));
    RF_EXPECT(RF_OK, rf_register_shards(b, shop.now, &tenant, RUN, &one, 1, 4, NULL));
    RF_EXPECT(RF_OK, rf_register_shards(a, shop.now, &tenant, RUN, &one, 1, 4, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    RF_EXPECT(RF_WRONG_STATUS, rf_register_shards(a, shop.now, &tenant, RUN, &one, 1, 5, NULL));
    RF_EXPECT(RF_WRONG_STATUS, rf_purge_run(b, shop.now, &tenant, RUN, NULL));
    shop.now += 50;
    RF_EXPECT(RF_OK, rf_fail_run(a, shop.now, &tenant, RUN, 6, NULL));
    RF_EXPECT(RF_OK, rf_fail_run(b, shop.now, &tenant, RUN, 6, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    RF_EXPECT(RF_RUN_TERMINAL, rf_cancel_run(b, shop.now, &tenant, RUN, 7, NULL));
    RF_EXPECT(RF_RUN_TERMINAL, rf_claim(b, shop.now, &tenant, RUN, 0, 0, 0, &g, NULL));
    rf_run_info info = rf_shop_run(b, &tenant, RUN);
    TEST_ASSERT_EQUAL(RF_RUN_FAILED, info.status);
    TEST_ASSERT_EQUAL_UINT64(shop.now, info.completed_at);
    TEST_ASSERT_EQUAL_UINT64(shop.now - 50, info.created_at);
}

static void create_with_shards_can_be_repeated_whatever_was_left(void)
{
    const rf_shard_input two[2] = {rf_input_of(1, "a", "m"), rf_input_of(2, "m", "z")};
    const rf_run_config other = {.lease_duration = 999};
    RF_EXPECT(RF_OK, rf_create_run(a, shop.now, &tenant, RUN, &config, NULL));
    RF_EXPECT(RF_CONFIG_MISMATCH,
              rf_create_run_with_shards(b, shop.now, &tenant, RUN, &other, two, 2, 1, NULL));
    RF_EXPECT(RF_OK,
              rf_create_run_with_shards(b, shop.now, &tenant, RUN, &config, two, 2, 1, &result));
    TEST_ASSERT_EQUAL(RF_EXECUTED, result.outcome);
    RF_EXPECT(RF_OK,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, two, 2, 1, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    RF_EXPECT(RF_OP_ID_CONFLICT,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, two, 1, 1, &result));
    RF_EXPECT(RF_WRONG_STATUS,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, two, 2, 2, &result));
    RF_EXPECT(RF_OK, rf_complete_run(a, shop.now, &tenant, RUN, 3, NULL));
    RF_EXPECT(RF_OK,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, two, 2, 1, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    TEST_ASSERT_EQUAL_UINT64(2, rf_shop_run(b, &tenant, RUN).shard_count);
}

struct founding {
    _Atomic uint32_t go, ready, executed, replayed;
};

static int found_runs(void *context)
{
    struct founding *f = context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    const rf_shard_input two[2] = {rf_input_of(1, "a", "m"), rf_input_of(2, "m", "z")};
    atomic_fetch_add(&f->ready, 1);
    rf_hands_until(&f->go, 1);
    for (uint64_t run = 100; run < 130; run++) {
        rf_result r = {0};
        RF_EXPECT(RF_OK, rf_create_run_with_shards(mine, rf_now(mine), &tenant, run, &config, two,
                                                   2, run, &r));
        atomic_fetch_add(r.outcome == RF_EXECUTED ? &f->executed : &f->replayed, 1);
    }
    rf_close(mine);
    return 0;
}

static void of_many_creators_at_once_one_creates_each_run(void)
{
    struct founding *f = rf_hands_board(sizeof(*f));
    pid_t children[6];
    for (unsigned i = 0; i < 6; i++) {
        children[i] = rf_hands_send(found_runs, f);
    }
    rf_hands_until(&f->ready, 6);
    atomic_store(&f->go, 1);
    for (unsigned i = 0; i < 6; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
    }
    TEST_ASSERT_EQUAL_UINT32(30, f->executed);
    TEST_ASSERT_EQUAL_UINT32(150, f->replayed);
    rf_inspection seen = rf_shop_inspect(a);
    TEST_ASSERT_EQUAL_UINT64(30, seen.runs);
    TEST_ASSERT_EQUAL_UINT64(60, seen.shards);
    TEST_ASSERT_EQUAL_UINT64(30, seen.extents);
}

static void added_shards_may_not_touch_what_the_run_covers(void)
{
    const rf_shard_input first[2] = {rf_input_of(1, "b", "d"), rf_input_of(2, "h", "k")};
    const rf_child parts[2] = {rf_child_of("b", "c"), rf_child_of("c", "d")};
    uint64_t ids[2];
    RF_EXPECT(RF_OK, rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, first, 2, 1, 0));
    rf_lease lease = take(a, 1, 5);
    RF_EXPECT(RF_OK, rf_split_replace(a, shop.now, &tenant, &lease, parts, 2, 2, ids, NULL));
    const struct {
        const char *start, *end;
        uint64_t id;
        rf_status expected;
    } tries[] = {
        {"a", "ba", 10, RF_OVERLAPPING_RANGES},
        {"ca", "cb", 10, RF_OVERLAPPING_RANGES},
        {"b", "d", 10, RF_OVERLAPPING_RANGES},
        {"a", "z", 10, RF_OVERLAPPING_RANGES},
        {"jz", "kk", 10, RF_OVERLAPPING_RANGES},
        {"x", "y", 1, RF_DUPLICATE_SHARD},
        {"x", "y", 2, RF_DUPLICATE_SHARD},
        {"d", "h", 10, RF_OK},
        {"a", "b", 11, RF_OK},
        {"k", "kk", 12, RF_OK},
        {"e", "f", 13, RF_OVERLAPPING_RANGES},
    };
    for (unsigned i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        const rf_shard_input one = rf_input_of(tries[i].id, tries[i].start, tries[i].end);
        RF_EXPECT(tries[i].expected,
                  rf_add_shards(b, shop.now, &tenant, RUN, &one, 1, 20 + i, &result));
    }
    const rf_shard_input again = rf_input_of(10, "d", "h");
    RF_EXPECT(RF_OK, rf_add_shards(a, shop.now, &tenant, RUN, &again, 1, 27, &result));
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    TEST_ASSERT_EQUAL_UINT64(7, rf_shop_run(b, &tenant, RUN).shard_count);
    TEST_ASSERT_EQUAL_UINT64(5, rf_shop_run(b, &tenant, RUN).root_count);
}

/* --- purging --- */

static rf_lease work_through(const rf_run_config *lasting)
{
    static const uint8_t long_bytes[3000];
    rf_shop_stock(a, shop.now, &tenant, RUN, lasting, 70);
    rf_lease lease = take(a, 1, 5);
    const rf_cursor cursor = {.key = rf_shop_key(0),
                              .token = rf_bytes_of(long_bytes, sizeof(long_bytes))};
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, &cursor, 1, NULL));
    for (unsigned i = 0; i < 20; i++) {
        rf_lease next = take(b, 2, 6);
        RF_EXPECT(RF_OK, rf_release(b, shop.now, &tenant, &next, NULL, 100 + i, NULL));
    }
    const rf_child parts[2] = {rf_child_of("k00001", "k00001a"), rf_child_of("k00001a", "k00002")};
    uint64_t ids[2];
    rf_lease parent = take(b, 2, 6);
    RF_EXPECT(RF_OK, rf_split_replace(b, shop.now, &tenant, &parent, parts, 2, 3, ids, NULL));
    return lease;
}

static void a_purge_gives_all_room_back_and_raises_the_floor(void)
{
    rf_inspection before = rf_shop_inspect(a);
    rf_lease lease = work_through(&config);
    uint64_t highest = shown(2).fence;
    TEST_ASSERT_TRUE(highest > 20);
    RF_EXPECT(RF_OK, rf_cancel_run(a, shop.now, &tenant, RUN, 4, NULL));
    result.want_event = true;
    RF_EXPECT(RF_OK, rf_purge_run(b, shop.now, &tenant, RUN, &result));
    TEST_ASSERT_EQUAL(RF_EVENT_RUN_PURGED, result.event.kind);
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_purge_run(b, shop.now, &tenant, RUN, &result));
    rf_inspection after = rf_shop_inspect(a);
    TEST_ASSERT_EQUAL_UINT64(before.runs, after.runs);
    TEST_ASSERT_EQUAL_UINT64(before.shards, after.shards);
    TEST_ASSERT_EQUAL_UINT64(before.extents, after.extents);
    TEST_ASSERT_EQUAL_UINT64(before.leaves, after.leaves);
    TEST_ASSERT_EQUAL_UINT64(before.blocks, after.blocks);
    TEST_ASSERT_EQUAL_UINT64(highest, after.fence_floor);
    expect_of_every_operation(a, shop.now, &lease, RF_NOT_FOUND); /* its lease was still active */
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 70);
    expect_of_every_operation(a, shop.now, &lease, RF_STALE_FENCE);
    rf_lease again = take(b, 1, 5);
    TEST_ASSERT_EQUAL_UINT64(highest + 1, again.fence);
}

static void a_lease_of_a_purged_run_does_not_fit_the_run_that_got_its_room(void)
{
    rf_lease old = work_through(&config);
    RF_EXPECT(RF_OK, rf_cancel_run(a, shop.now, &tenant, RUN, 4, NULL));
    RF_EXPECT(RF_OK, rf_purge_run(a, shop.now, &tenant, RUN, NULL));
    rf_shop_stock(a, shop.now, &tenant, RUN + 1, &config, 70);
    rf_shop_stock(a, shop.now, &stranger, RUN, &config, 70);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &stranger, RUN, 1, 5, RF_BOUND, &g, NULL));
    for (uint64_t hint = 0; hint < 300; hint++) {
        old.slot_hint = hint;
        RF_EXPECT(RF_NOT_FOUND, rf_renew(a, shop.now, &tenant, &old, NULL));
        old.fence = g.lease.fence; /* a good guess does not help */
    }
    TEST_ASSERT_EQUAL_UINT64(g.lease.deadline, rf_shop_shard(a, &stranger, RUN, 1).deadline);
}

static void a_store_of_one_run_can_be_filled_and_purged_for_ever(void)
{
    rf_close(a);
    rf_close(b);
    a = b = NULL;
    rf_shop_raze(&shop);
    rf_shop_found(&shop);
    const rf_options tight = {.max_shards = 100,
                              .max_tenant_shards = 100,
                              .max_bytes = 1u << 20,
                              .max_runs = 1,
                              .max_members = 2};
    a = rf_shop_enter(&shop, &tight);
    b = rf_shop_enter(&shop, &tight);
    uint64_t fence = 0, taken = 0;
    for (unsigned round = 0; round < 30; round++) {
        stock(98);
        rf_lease lease = take(a, 3, 5);
        TEST_ASSERT_TRUE(lease.fence > fence);
        fence = lease.fence;
        const rf_child parts[2] = {rf_child_of("k00002", "k00002a"),
                                   rf_child_of("k00002a", "k00003")};
        uint64_t ids[2];
        RF_EXPECT(RF_OK, rf_split_replace(a, shop.now, &tenant, &lease, parts, 2, 3, ids, NULL));
        RF_EXPECT(RF_RESOURCE_EXHAUSTED,
                  rf_create_run(b, shop.now, &tenant, RUN + 1, &config, &result));
        RF_EXPECT(RF_OK, rf_cancel_run(b, shop.now, &tenant, RUN, 4, NULL));
        RF_EXPECT(RF_OK, rf_purge_run(round % 2 == 0 ? a : b, shop.now, &tenant, RUN, NULL));
        uint64_t now_taken = rf_shop_inspect(a).taken_bytes;
        TEST_ASSERT_TRUE_MESSAGE(round < 8 || now_taken == taken, "it still grows");
        taken = now_taken;
    }
    rf_shop_expect_words(RF_RESOURCE_EXHAUSTED, &result.detail, "runs|purge");
}

/* --- tenants --- */

static bool count_runs(void *context, const rf_run_info *run)
{
    (void)run;
    ++*(uint32_t *)context;
    return true;
}

static bool see_nothing(void *context, const rf_shard_info *shard)
{
    (void)context;
    (void)shard;
    TEST_FAIL_MESSAGE("another tenant's shard is listed");
    return false;
}

static void a_tenant_never_sees_another_tenants_work(void)
{
    stock(2);
    rf_lease lease = take(a, 1, 5);
    rf_grant g = rf_shop_blank(0);
    rf_shard_info info;
    rf_run_info run;
    rf_progress progress;
    rf_capacity capacity;
    uint32_t runs = 0;
    uint8_t scratch[512];
    const rf_cursor cursor = at("k00000c");
    RF_EXPECT(RF_NOT_FOUND, rf_acquire(b, shop.now, &stranger, RUN, 2, 6, 0, &g, NULL));
    RF_EXPECT(RF_NOT_FOUND, rf_renew(b, shop.now, &stranger, &lease, NULL));
    RF_EXPECT(RF_NOT_FOUND, rf_complete(b, shop.now, &stranger, &lease, &cursor, 1, NULL));
    RF_EXPECT(RF_NOT_FOUND, rf_unpark(b, shop.now, &stranger, RUN, 1, 1, NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_claim(b, shop.now, &stranger, RUN, 6, 0, 0, &g, NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_cancel_run(b, shop.now, &stranger, RUN, 1, NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_purge_run(b, shop.now, &stranger, RUN, NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_get_run(b, &stranger, RUN, &run, NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND, rf_get_capacity(b, &stranger, RUN, &capacity, NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND,
              rf_get_progress(b, shop.now, &stranger, RUN, &progress, NULL, NULL));
    RF_EXPECT(RF_NOT_FOUND,
              rf_get_shard(b, &stranger, RUN, 1, &info, scratch, sizeof(scratch), NULL));
    RF_EXPECT(RF_RUN_NOT_FOUND,
              rf_list_shards(b, shop.now, &stranger, RUN, RF_LIST_ALL, see_nothing, NULL, NULL));
    RF_EXPECT(RF_OK, rf_list_runs(b, &stranger, count_runs, &runs, NULL));
    TEST_ASSERT_EQUAL_UINT32(0, runs);
    rf_shop_stock(b, shop.now, &stranger, RUN, &config, 3); /* the same number, another run */
    RF_EXPECT(RF_OK, rf_list_runs(b, NULL, count_runs, &runs, NULL));
    TEST_ASSERT_EQUAL_UINT32(2, runs);
    TEST_ASSERT_EQUAL_UINT64(2, rf_shop_run(a, &tenant, RUN).shard_count);
    RF_EXPECT(RF_STALE_FENCE, rf_renew(b, shop.now, &stranger, &lease, NULL));
}

/* --- events --- */

static void expect_event(rf_status status, rf_event_kind kind)
{
    RF_EXPECT(RF_OK, status);
    TEST_ASSERT_TRUE(result.has_event);
    TEST_ASSERT_EQUAL_STRING(rf_event_name(kind), rf_event_name(result.event.kind));
    TEST_ASSERT_EQUAL_UINT64(RUN, result.event.run);
    TEST_ASSERT_EQUAL_UINT64(shop.now, result.event.time);
    TEST_ASSERT_TRUE(memcmp(&tenant, &result.event.tenant, sizeof(tenant)) == 0);
}

static void expect_silence(rf_status status)
{
    RF_EXPECT(RF_OK, status);
    TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
    TEST_ASSERT_FALSE(result.has_event);
}

static void every_operation_tells_its_event_and_a_replay_none(void)
{
    const uint64_t now = shop.now;
    const rf_shard_input two[2] = {rf_input_of(1, "k00000", "k00001"),
                                   rf_input_of(2, "k00001", "k00002")};
    const rf_shard_input third = rf_input_of(3, "x", "y");
    const rf_spec left = rf_spec_of("k00000", "k00000t"), right = rf_spec_of("k00000t", "k00001");
    const rf_child parts[2] = {rf_child_of("k00000", "k00000m"), rf_child_of("k00000m", "k00000t")};
    const rf_cursor cursor = at("k00000c");
    rf_grant g = rf_shop_blank(0), h = rf_shop_blank(1);
    uint64_t id, ids[2];
    result.want_event = true;
    expect_event(rf_create_run(a, now, &tenant, RUN, &config, &result), RF_EVENT_RUN_CREATED);
    expect_event(rf_register_shards(a, now, &tenant, RUN, two, 2, 1, &result),
                 RF_EVENT_RUN_ACTIVATED);
    TEST_ASSERT_EQUAL_UINT32(2, result.event.count);
    expect_silence(rf_register_shards(b, now, &tenant, RUN, two, 2, 1, &result));
    expect_event(rf_add_shards(a, now, &tenant, RUN, &third, 1, 2, &result), RF_EVENT_SHARDS_ADDED);
    expect_silence(rf_add_shards(a, now, &tenant, RUN, &third, 1, 2, &result));
    expect_event(rf_acquire(a, now, &tenant, RUN, 1, 5, 0, &g, &result), RF_EVENT_ACQUIRED);
    TEST_ASSERT_EQUAL_UINT64(2, result.event.fence);
    TEST_ASSERT_EQUAL_UINT64(5, result.event.worker);
    expect_event(rf_claim(a, now, &tenant, RUN, 1, 0, 0, &h, &result), RF_EVENT_ACQUIRED);
    expect_event(rf_renew(a, now, &tenant, &g.lease, &result), RF_EVENT_LEASE_RENEWED);
    expect_event(rf_checkpoint(a, now, &tenant, &g.lease, &cursor, 3, &result),
                 RF_EVENT_CHECKPOINTED);
    TEST_ASSERT_EQUAL_UINT32(7, result.event.key_len);
    expect_silence(rf_checkpoint(a, now, &tenant, &g.lease, &cursor, 3, &result));
    expect_event(rf_split_residual(a, now, &tenant, &g.lease, &left, &right, 4, &id, &result),
                 RF_EVENT_RESIDUAL_CREATED);
    TEST_ASSERT_EQUAL_HEX64(id, result.event.child);
    expect_silence(rf_split_residual(a, now, &tenant, &g.lease, &left, &right, 4, &id, &result));
    expect_event(rf_release(a, now, &tenant, &g.lease, NULL, 5, &result), RF_EVENT_RELEASED);
    expect_silence(rf_release(a, now, &tenant, &g.lease, NULL, 5, &result));
    RF_EXPECT(RF_OK, rf_acquire(a, now, &tenant, RUN, 1, 5, 0, &g, NULL));
    expect_event(rf_park(a, now, &tenant, &g.lease, RF_PARK_NOT_FOUND, 6, &result),
                 RF_EVENT_PARKED);
    TEST_ASSERT_EQUAL(RF_PARK_NOT_FOUND, result.event.reason);
    expect_silence(rf_park(a, now, &tenant, &g.lease, RF_PARK_NOT_FOUND, 6, &result));
    expect_event(rf_unpark(a, now, &tenant, RUN, 1, 7, &result), RF_EVENT_UNPARKED);
    TEST_ASSERT_EQUAL_UINT64(4, result.event.fence);
    expect_silence(rf_unpark(a, now, &tenant, RUN, 1, 7, &result));
    RF_EXPECT(RF_OK, rf_acquire(a, now, &tenant, RUN, 1, 5, 0, &g, NULL));
    expect_event(rf_split_replace(a, now, &tenant, &g.lease, parts, 2, 8, ids, &result),
                 RF_EVENT_SPLIT);
    TEST_ASSERT_EQUAL_UINT32(2, result.event.count);
    expect_silence(rf_split_replace(a, now, &tenant, &g.lease, parts, 2, 8, ids, &result));
    const rf_cursor end = at("k00001c");
    expect_event(rf_complete(a, now, &tenant, &h.lease, &end, 9, &result), RF_EVENT_COMPLETED);
    expect_silence(rf_complete(a, now, &tenant, &h.lease, &end, 9, &result));
    expect_event(rf_cancel_run(a, now, &tenant, RUN, 10, &result), RF_EVENT_RUN_CANCELLED);
    expect_silence(rf_cancel_run(a, now, &tenant, RUN, 10, &result));
    expect_event(rf_purge_run(a, now, &tenant, RUN, &result), RF_EVENT_RUN_PURGED);
}

/* --- the call itself --- */

static void the_time_0_is_refused_by_every_operation(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    rf_grant g = rf_shop_blank(0);
    rf_progress progress;
    const rf_shard_input one = rf_input_of(9, "x", "y");
    expect_of_every_operation(a, 0, &lease, RF_INVALID_TIME);
    RF_EXPECT(RF_INVALID_TIME, rf_acquire(a, 0, &tenant, RUN, 1, 5, 0, &g, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_claim(a, 0, &tenant, 99, 5, 0, 0, &g, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_unpark(a, 0, &tenant, RUN, 1, 1, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_create_run(a, 0, &tenant, RUN, &config, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_register_shards(a, 0, &tenant, 99, &one, 1, 1, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_add_shards(a, 0, &tenant, RUN, &one, 1, 1, NULL));
    RF_EXPECT(RF_INVALID_TIME,
              rf_create_run_with_shards(a, 0, &tenant, 99, &config, &one, 1, 1, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_complete_run(a, 0, &tenant, RUN, 1, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_purge_run(a, 0, &tenant, RUN, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_tend(a, 0));
    RF_EXPECT(RF_INVALID_TIME, rf_sweep(a, 0, &tenant, RUN, NULL));
    RF_EXPECT(RF_INVALID_TIME, rf_get_progress(a, 0, &tenant, RUN, &progress, NULL, NULL));
}

static int use_the_parents_handle(void *context)
{
    rf_store *parents = context;
    rf_lease lease = {.run = RUN, .shard = 1};
    rf_run_info info;
    rf_grant g = rf_shop_blank(0);
    rf_inspection seen;
    RF_EXPECT(RF_FORKED, rf_renew(parents, 5, &tenant, &lease, NULL));
    RF_EXPECT(RF_FORKED, rf_claim(parents, 5, &tenant, RUN, 1, 0, 0, &g, NULL));
    RF_EXPECT(RF_FORKED, rf_get_run(parents, &tenant, RUN, &info, NULL));
    RF_EXPECT(RF_FORKED, rf_inspect(parents, &seen, NULL));
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    RF_EXPECT(RF_FORKED, rf_get_run(parents, &tenant, RUN, &info, NULL));
    RF_EXPECT(RF_OK, rf_get_run(mine, &tenant, RUN, &info, NULL));
    RF_EXPECT(RF_OK, rf_close(parents)); /* it only forgets */
    RF_EXPECT(RF_OK, rf_get_run(mine, &tenant, RUN, &info, NULL));
    return rf_close(mine) == RF_OK ? 0 : 1;
}

static void a_child_of_fork_may_not_use_the_handle_and_opens_its_own(void)
{
    stock(1);
    rf_lease lease = take(a, 1, 5);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(use_the_parents_handle, a)));
    rf_store *living = rf_shop_enter_living(&shop, NULL);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(use_the_parents_handle, living)));
    RF_EXPECT(RF_OK, rf_renew(a, shop.now, &tenant, &lease, NULL));
    rf_close(living);
}

static void the_watermark_is_the_smallest_key_of_the_active_shards(void)
{
    stock(4);
    uint8_t mark[RF_KEY_MAX];
    rf_progress p;
    RF_EXPECT(RF_OK, rf_get_progress(b, shop.now, &tenant, RUN, &p, mark, NULL));
    TEST_ASSERT_FALSE(p.has_watermark);
    rf_lease one = take(a, 2, 5), two = take(a, 3, 5), three = take(a, 4, 5);
    const rf_cursor first = at("k00001x"), second = at("k00002x"), third = at("k00003x");
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &two, &second, 1, NULL));
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &three, &third, 1, NULL));
    RF_EXPECT(RF_OK, rf_complete(a, shop.now, &tenant, &one, &first, 1, NULL));
    RF_EXPECT(RF_OK, rf_get_progress(b, shop.now, &tenant, RUN, &p, mark, NULL));
    TEST_ASSERT_EQUAL_UINT64(4, p.total);
    TEST_ASSERT_EQUAL_UINT64(3, p.active);
    TEST_ASSERT_EQUAL_UINT64(1, p.done);
    TEST_ASSERT_EQUAL_UINT64(2, p.leased);
    TEST_ASSERT_EQUAL(RF_STILL_ACTIVE, p.evaluation);
    TEST_ASSERT_EQUAL_UINT64(7, p.watermark_len);
    TEST_ASSERT_EQUAL_MEMORY("k00002x", mark, 7);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_first_grant_has_fence_2_and_each_later_one_is_above);
    RUN_TEST(a_leased_shard_is_refused_to_everybody_its_owner_too);
    RUN_TEST(a_lease_is_over_at_its_deadline_and_not_before);
    RUN_TEST(a_renewal_moves_the_deadline_on_and_never_back);
    RUN_TEST(a_refused_renewal_tells_nothing_of_the_call_before_it);
    RUN_TEST(an_owner_with_an_earlier_clock_renews_what_another_has_listed);
    RUN_TEST(a_split_by_an_owner_with_an_earlier_clock_does_not_hide_the_shard);
    RUN_TEST(a_zombie_is_refused_by_every_operation_and_changes_nothing);
    RUN_TEST(a_living_process_that_was_slow_is_a_zombie);
    RUN_TEST(a_killed_owners_bound_shard_is_claimable_at_once_and_a_detached_one_is_not);
    RUN_TEST(closing_a_handle_gives_up_its_own_bound_leases_and_no_others);
    RUN_TEST(a_dead_manual_handle_is_settled_by_whoever_tends);
    RUN_TEST(a_parked_shard_comes_back_with_a_new_fence_and_its_cursor);
    RUN_TEST(a_done_shard_stays_done);
    RUN_TEST(children_replace_their_parent_in_the_order_of_their_starts);
    RUN_TEST(a_residual_split_is_known_after_the_ring_forgot_it);
    RUN_TEST(the_ring_remembers_16_operations_from_any_process);
    RUN_TEST(a_run_goes_from_initializing_to_its_end);
    RUN_TEST(create_with_shards_can_be_repeated_whatever_was_left);
    RUN_TEST(of_many_creators_at_once_one_creates_each_run);
    RUN_TEST(added_shards_may_not_touch_what_the_run_covers);
    RUN_TEST(a_purge_gives_all_room_back_and_raises_the_floor);
    RUN_TEST(a_lease_of_a_purged_run_does_not_fit_the_run_that_got_its_room);
    RUN_TEST(a_store_of_one_run_can_be_filled_and_purged_for_ever);
    RUN_TEST(a_tenant_never_sees_another_tenants_work);
    RUN_TEST(every_operation_tells_its_event_and_a_replay_none);
    RUN_TEST(the_time_0_is_refused_by_every_operation);
    RUN_TEST(a_child_of_fork_may_not_use_the_handle_and_opens_its_own);
    RUN_TEST(the_watermark_is_the_smallest_key_of_the_active_shards);
    return UNITY_END();
}
