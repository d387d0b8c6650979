/* Claiming on a region: which shard, when not, what is told about the rest, how sleepers are woken,
 * and that limits hold when processes race at them. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "desk.h"
#include "hands.h"
#include "shop.h"

#define RUN 7u

static struct rf_shop shop;
static rf_store *a, *b;
static rf_tenant tenant;
static rf_result result;
static const rf_run_config config = {.lease_duration = 1000};

static void open_shop(const rf_options *options)
{
    rf_shop_found(&shop);
    a = rf_shop_enter(&shop, options);
    b = rf_shop_enter(&shop, options);
}

void setUp(void)
{
    tenant = rf_tenant_of(1);
    memset(&result, 0, sizeof(result));
    open_shop(NULL);
}

static void close_shop(void)
{
    rf_close(a);
    rf_close(b);
    rf_shop_raze(&shop);
}

void tearDown(void)
{
    close_shop();
}

static void reopen_with(const rf_options *options)
{
    close_shop();
    open_shop(options);
}

static rf_status claim_of(uint64_t worker, rf_grant *g)
{
    *g = rf_shop_blank(0);
    return rf_claim(a, shop.now, &tenant, RUN, worker, RF_BOUND, 0, g, &result);
}

static uint64_t claimed(uint64_t worker)
{
    rf_grant g;
    RF_EXPECT(RF_OK, claim_of(worker, &g));
    return g.lease.shard;
}

/* --- which --- */

static void a_claim_starts_at_worker_mod_count_and_wraps(void)
{
    const rf_shard_input out_of_order[5] = {rf_input_of(50, "m", "n"), rf_input_of(10, "a", "b"),
                                            rf_input_of(40, "x", "y"), rf_input_of(20, "c", "d"),
                                            rf_input_of(30, "e", "f")};
    RF_EXPECT(RF_OK, rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, out_of_order, 5,
                                               1, NULL));
    TEST_ASSERT_EQUAL_UINT64(40, claimed(7)); /* 7 mod 5: the caller's third */
    TEST_ASSERT_EQUAL_UINT64(20, claimed(2));
    TEST_ASSERT_EQUAL_UINT64(30, claimed(UINT64_MAX - 1)); /* 2^64 - 2 mod 5 is 4 */
    TEST_ASSERT_EQUAL_UINT64(50, claimed(4));
    TEST_ASSERT_EQUAL_UINT64(10, claimed(4));
    rf_grant g;
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(0, &g));
}

static void split_products_and_added_shards_come_as_they_came(void)
{
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 2);
    rf_grant g;
    const rf_child parts[2] = {rf_child_of("k00000m", "k00001"), rf_child_of("k00000", "k00000m")};
    const rf_shard_input more = rf_input_of(3, "a", "b");
    const rf_spec left = rf_spec_of("k00001", "k00001m"), right = rf_spec_of("k00001m", "k00002");
    uint64_t ids[2], residual;
    RF_EXPECT(RF_OK, claim_of(0, &g));
    RF_EXPECT(RF_OK, rf_split_replace(a, shop.now, &tenant, &g.lease, parts, 2, 1, ids, NULL));
    RF_EXPECT(RF_OK, rf_add_shards(b, shop.now, &tenant, RUN, &more, 1, 2, NULL));
    RF_EXPECT(RF_OK, claim_of(1, &g));
    TEST_ASSERT_EQUAL_UINT64(2, g.lease.shard);
    RF_EXPECT(RF_OK,
              rf_split_residual(a, shop.now, &tenant, &g.lease, &left, &right, 3, &residual, NULL));
    /* positions: 1 (split), 2 (held), two children by start, 3, the residual */
    TEST_ASSERT_EQUAL_HEX64(ids[0], claimed(0));
    TEST_ASSERT_EQUAL_UINT64(3, claimed(6 + 4));
    TEST_ASSERT_EQUAL_HEX64(residual, claimed(4));
    TEST_ASSERT_EQUAL_HEX64(ids[1], claimed(5));
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(0, &g));
}

static void claims_go_in_order_through_many_extents(void)
{
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 1000);
    for (uint64_t i = 0; i < 1000; i++) {
        TEST_ASSERT_EQUAL_UINT64((500 + i) % 1000 + 1, claimed(500));
    }
    rf_grant g;
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(3, &g));
}

/* --- when not --- */

static void an_absent_or_ended_run_has_nothing_to_claim(void)
{
    rf_grant g;
    RF_EXPECT(RF_RUN_NOT_FOUND, claim_of(1, &g));
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 2);
    TEST_ASSERT_EQUAL_UINT64(2, claimed(1));
    RF_EXPECT(RF_OK, rf_complete_run(b, shop.now, &tenant, RUN, 1, NULL));
    RF_EXPECT(RF_RUN_TERMINAL, claim_of(1, &g));
}

static void none_available_tells_the_earliest_deadline(void)
{
    rf_grant g;
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 3);
    uint64_t first = shop.now;
    for (unsigned i = 0; i < 3; i++, shop.now += 100) {
        claimed(0);
    }
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(0, &g));
    TEST_ASSERT_EQUAL_UINT64(first + 1000, result.detail.deadline);
    shop.now = first + 999;
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(0, &g));
    shop.now = first + 1000;
    TEST_ASSERT_EQUAL_UINT64(1, claimed(2)); /* a living owner's lease ran out */
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(0, &g));
    TEST_ASSERT_EQUAL_UINT64(first + 1100, result.detail.deadline);
    shop.now = first + 5000;
    TEST_ASSERT_EQUAL_UINT64(3, claimed(2));
}

static void a_buffer_that_is_too_small_costs_nothing(void)
{
    rf_options cooled = rf_shop_small();
    cooled.claim_cooldown = 500;
    reopen_with(&cooled);
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 1);
    uint8_t little[4];
    rf_grant g = {.scratch = little, .scratch_size = sizeof(little)};
    RF_EXPECT(RF_BUFFER_TOO_SMALL,
              rf_claim(a, shop.now, &tenant, RUN, 1, RF_BOUND, 0, &g, &result));
    TEST_ASSERT_EQUAL_UINT64(12, result.detail.size);
    TEST_ASSERT_EQUAL_UINT64(4, result.detail.limit);
    RF_EXPECT(RF_BUFFER_TOO_SMALL,
              rf_acquire(a, shop.now, &tenant, RUN, 1, 1, RF_BOUND, &g, &result));
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_shard(a, &tenant, RUN, 1).fence);
    TEST_ASSERT_EQUAL_UINT64(1, claimed(1)); /* and no cooldown */
}

/* --- cooldown --- */

static void two_claims_of_a_worker_are_a_cooldown_apart(void)
{
    rf_options cooled = rf_shop_small();
    cooled.claim_cooldown = 500;
    reopen_with(&cooled);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_RUN_NOT_FOUND, claim_of(1, &g));
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 10);
    TEST_ASSERT_EQUAL_UINT64(2, claimed(1)); /* a claim that found no run did not count */
    shop.now += 200;
    RF_EXPECT(RF_THROTTLED, claim_of(1, &g));
    TEST_ASSERT_EQUAL_UINT64(300, result.detail.retry_after);
    RF_EXPECT(RF_THROTTLED, rf_claim(b, shop.now, &tenant, 99, 1, RF_BOUND, 0, &g, &result));
    TEST_ASSERT_EQUAL_UINT64(3, claimed(2)); /* another worker */
    shop.now += 299;
    RF_EXPECT(RF_THROTTLED, claim_of(1, &g));
    TEST_ASSERT_EQUAL_UINT64(1, result.detail.retry_after);
    shop.now += 1;
    TEST_ASSERT_EQUAL_UINT64(4, claimed(1));
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &tenant, RUN, 9, 1, RF_BOUND, &g, NULL));
    shop.now -= 400; /* a clock that is behind does not help */
    RF_EXPECT(RF_THROTTLED, claim_of(1, &g));
    TEST_ASSERT_EQUAL_UINT64(900, result.detail.retry_after);
}

/* Who claimed when is lost with the region: then all wait, and nobody claims too soon. */
static void a_lost_region_does_not_shorten_a_cooldown(void)
{
    char region[96];
    rf_options cooled = rf_shop_small();
    close_shop();
    rf_shop_found(&shop);
    snprintf(region, sizeof(region), "%s/region", shop.directory);
    cooled.claim_cooldown = 500;
    cooled.region_path = region;
    a = rf_shop_enter(&shop, &cooled);
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 10);
    TEST_ASSERT_EQUAL_UINT64(2, claimed(1)); /* a new store makes nobody wait */
    rf_close(a);
    TEST_ASSERT_EQUAL(0, unlink(region));
    shop.now += 100;
    a = rf_shop_enter(&shop, &cooled);
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 10);
    rf_grant g;
    RF_EXPECT(RF_THROTTLED, claim_of(1, &g));
    TEST_ASSERT_EQUAL_UINT64(500, result.detail.retry_after);
    RF_EXPECT(RF_THROTTLED, claim_of(2, &g));
    shop.now += 499;
    b = rf_shop_enter(&shop, &cooled); /* whoever comes later does not begin it anew */
    RF_EXPECT(RF_THROTTLED, claim_of(1, &g));
    shop.now += 1;
    TEST_ASSERT_EQUAL_UINT64(2, claimed(1));
    RF_EXPECT(RF_THROTTLED, claim_of(1, &g));
    TEST_ASSERT_EQUAL_UINT64(3, claimed(2));
    TEST_ASSERT_EQUAL(0, unlink(region)); /* it is not where a store's is as a rule */
}

static void a_thousand_workers_have_a_cooldown_each(void)
{
    rf_options cooled = rf_shop_small();
    cooled.claim_cooldown = 500;
    reopen_with(&cooled);
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 3000);
    rf_grant g;
    for (uint64_t round = 0; round < 3; round++, shop.now += 500) {
        for (uint64_t worker = 0; worker < 1000; worker++) {
            RF_EXPECT(RF_OK, claim_of(worker * 7919, &g));
        }
        for (uint64_t worker = 0; worker < 1000; worker++) {
            RF_EXPECT(RF_THROTTLED, claim_of(worker * 7919, &g));
        }
    }
}

/* --- retries --- */

static void a_shard_that_kills_its_owners_is_parked_in_the_end(void)
{
    const rf_run_config stubborn = {
        .lease_duration = 1000, .has_max_retries = true, .max_retries = 2};
    rf_shop_stock(a, shop.now, &tenant, RUN, &stubborn, 2);
    rf_grant g;
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        RF_EXPECT(RF_OK, claim_of(0, &g));
        TEST_ASSERT_EQUAL_UINT64(1, g.lease.shard);
        TEST_ASSERT_EQUAL_UINT32(attempt, g.attempts);
        shop.now += 1000;
    }
    TEST_ASSERT_EQUAL_UINT64(2, claimed(0)); /* 3 attempts exceed 2 retries: parked, not granted */
    rf_shard_info info = rf_shop_shard(b, &tenant, RUN, 1);
    TEST_ASSERT_EQUAL(RF_SHARD_PARKED, info.status);
    TEST_ASSERT_EQUAL(RF_PARK_TOO_MANY_ERRORS, info.reason);
    TEST_ASSERT_EQUAL_UINT64(4, info.fence);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_run(b, &tenant, RUN).parked);
    RF_EXPECT(RF_OK, rf_unpark(b, shop.now, &tenant, RUN, 1, 1, NULL));
    RF_EXPECT(RF_OK, claim_of(0, &g));
    TEST_ASSERT_EQUAL_UINT32(1, g.attempts);
    TEST_ASSERT_EQUAL_UINT64(6, g.lease.fence);
}

static void deaths_count_as_attempts_and_progress_clears_them(void)
{
    const rf_run_config stubborn = {
        .lease_duration = 1000, .has_max_retries = true, .max_retries = 1};
    rf_shop_stock(a, shop.now, &tenant, RUN, &stubborn, 1);
    rf_grant g;
    const rf_cursor cursor = rf_cursor_at("k00000a");
    for (uint32_t i = 0; i < 4; i++) {
        RF_EXPECT(RF_OK, claim_of(0, &g));
        TEST_ASSERT_EQUAL_UINT32(1, g.attempts);
        RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &g.lease, &cursor, 10 + i, NULL));
        rf_shop_die(a);
        RF_EXPECT(RF_OK, rf_tend(b, shop.now));
        a = rf_shop_enter(&shop, NULL);
    }
    for (uint32_t i = 0; i < 2; i++) {
        RF_EXPECT(RF_OK, claim_of(0, &g));
        TEST_ASSERT_EQUAL_UINT32(i + 1, g.attempts);
        rf_shop_die(a);
        RF_EXPECT(RF_OK, rf_tend(b, shop.now));
        a = rf_shop_enter(&shop, NULL);
    }
    RF_EXPECT(RF_NONE_AVAILABLE, claim_of(0, &g));
    TEST_ASSERT_EQUAL(RF_PARK_TOO_MANY_ERRORS, rf_shop_shard(b, &tenant, RUN, 1).reason);
}

/* --- capacity --- */

static void after_a_sweep_the_capacity_is_that_of_a_full_scan(void)
{
    rf_grant g;
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 300);
    uint64_t begun = shop.now;
    for (unsigned i = 0; i < 200; i++, shop.now++) {
        RF_EXPECT(RF_OK, claim_of(i * 17, &g));
        TEST_ASSERT_EQUAL_UINT64(299 - i, result.capacity.available);
        TEST_ASSERT_EQUAL_UINT64(begun + 1000, result.capacity.earliest_deadline);
        if (i % 3 == 0) {
            RF_EXPECT(RF_OK, rf_renew(a, shop.now + 500, &tenant, &g.lease, NULL));
        }
    }
    uint64_t now = begun + 1100; /* the first 101 have run out but for those renewed */
    rf_capacity lagging = rf_shop_capacity(b, &tenant, RUN);
    TEST_ASSERT_EQUAL_UINT64(100, lagging.available);
    TEST_ASSERT_TRUE(lagging.earliest_deadline <= begun + 1001);
    RF_EXPECT(RF_OK, rf_sweep(b, now, &tenant, RUN, NULL));
    rf_capacity exact = rf_shop_capacity(b, &tenant, RUN);
    TEST_ASSERT_EQUAL_UINT64(100 + 101 - 34, exact.available);
    TEST_ASSERT_EQUAL_UINT64(begun + 1101, exact.earliest_deadline);
    TEST_ASSERT_EQUAL_UINT64(101 - 34, rf_shop_inspect(b).leases_expired);
    RF_EXPECT(RF_OK, rf_sweep(b, begun + 9999, &tenant, RUN, NULL));
    exact = rf_shop_capacity(b, &tenant, RUN);
    TEST_ASSERT_EQUAL_UINT64(300, exact.available);
    TEST_ASSERT_EQUAL_UINT64(0, exact.earliest_deadline);
}

/* --- sleeping --- */

struct waiting {
    _Atomic uint32_t asleep, woken;
    rf_status status;
    rf_lease lease;
};

static int wait_for_work(void *context)
{
    struct waiting *w = context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_grant g = rf_shop_blank(0);
    atomic_store(&w->asleep, 1);
    w->status = rf_claim(mine, rf_now(mine), &tenant, RUN, 1, RF_BOUND, 20 * RF_SECOND, &g, NULL);
    w->lease = g.lease;
    atomic_store(&w->woken, 1);
    return rf_close(mine) == RF_OK ? 0 : 1;
}

static rf_store *living_with_one_lease(const rf_run_config *lasting, rf_grant *g)
{
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_shop_stock(mine, rf_now(mine), &tenant, RUN, lasting, 1);
    *g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_claim(mine, rf_now(mine), &tenant, RUN, 0, RF_BOUND, 0, g, NULL));
    return mine;
}

/* Until the run shows that many sleepers. */
static void until_waiting(rf_store *store, uint64_t count)
{
    for (unsigned i = 0; rf_shop_capacity(store, &tenant, RUN).waiting != count; i++) {
        TEST_ASSERT_TRUE_MESSAGE(i < 20000, "the number of sleepers");
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static void a_busy_worker_sees_how_many_wait_and_a_release_wakes_one(void)
{
    const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};
    struct waiting *w = rf_hands_board(3 * sizeof(*w));
    rf_grant g;
    rf_store *mine = living_with_one_lease(&lasting, &g);
    pid_t children[3];
    for (unsigned i = 0; i < 3; i++) {
        children[i] = rf_hands_send(wait_for_work, &w[i]);
    }
    until_waiting(mine, 3);
    RF_EXPECT(RF_OK, rf_renew(mine, rf_now(mine), &tenant, &g.lease, &result));
    TEST_ASSERT_EQUAL_UINT64(3, result.capacity.waiting);
    RF_EXPECT(RF_OK, rf_release(mine, rf_now(mine), &tenant, &g.lease, NULL, 1, NULL));
    /* whoever gets it closes its handle, which passes the shard on to the next */
    for (unsigned i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
        RF_EXPECT(RF_OK, w[i].status);
    }
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_capacity(mine, &tenant, RUN).waiting);
    TEST_ASSERT_EQUAL_UINT64(5, rf_shop_shard(mine, &tenant, RUN, 1).fence);
    rf_close(mine);
}

static void the_end_of_a_run_wakes_all_who_wait_for_it(void)
{
    const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};
    struct waiting *w = rf_hands_board(3 * sizeof(*w));
    rf_grant g;
    rf_store *mine = living_with_one_lease(&lasting, &g);
    pid_t children[3];
    for (unsigned i = 0; i < 3; i++) {
        children[i] = rf_hands_send(wait_for_work, &w[i]);
    }
    until_waiting(mine, 3);
    RF_EXPECT(RF_OK, rf_fail_run(mine, rf_now(mine), &tenant, RUN, 1, NULL));
    for (unsigned i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
        RF_EXPECT(RF_RUN_TERMINAL, w[i].status);
    }
    rf_close(mine);
}

static void a_sleeper_wakes_when_a_living_owners_lease_runs_out(void)
{
    const rf_run_config brief = {.lease_duration = 50 * RF_MILLISECOND};
    struct waiting *w = rf_hands_board(sizeof(*w));
    rf_grant g;
    rf_store *mine = living_with_one_lease(&brief, &g);
    uint64_t begun = rf_now(mine);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(wait_for_work, w)));
    RF_EXPECT(RF_OK, w->status);
    TEST_ASSERT_TRUE(rf_now(mine) >= g.lease.deadline);
    TEST_ASSERT_TRUE(rf_now(mine) - begun < 5 * RF_SECOND);
    RF_EXPECT(RF_STALE_FENCE, rf_renew(mine, rf_now(mine), &tenant, &g.lease, NULL));
    rf_close(mine);
}

static void a_timeout_ends_the_wait(void)
{
    const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};
    rf_grant g;
    rf_store *mine = living_with_one_lease(&lasting, &g);
    uint64_t begun = rf_now(mine);
    RF_EXPECT(RF_NONE_AVAILABLE, rf_claim(mine, rf_now(mine), &tenant, RUN, 3, RF_BOUND,
                                          60 * RF_MILLISECOND, &g, &result));
    uint64_t took = rf_now(mine) - begun;
    TEST_ASSERT_TRUE(took >= 60 * RF_MILLISECOND && took < 5 * RF_SECOND);
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_capacity(mine, &tenant, RUN).waiting);
    RF_EXPECT(RF_NONE_AVAILABLE, /* with a clock of its own it does not sleep at all */
              rf_claim(a, 1, &tenant, RUN, 3, RF_BOUND, RF_FOREVER, &g, &result));
    rf_close(mine);
}

/* --- limits --- */

static void limits_are_per_tenant_and_in_total_and_a_purge_frees_them(void)
{
    const rf_options limited = {.max_shards = 10,
                                .max_tenant_shards = 6,
                                .max_bytes = 1u << 20,
                                .max_runs = 8,
                                .max_members = 4};
    reopen_with(&limited);
    const rf_tenant other = rf_tenant_of(2);
    const rf_shard_input inputs[3] = {rf_input_of(101, "x", "xa"), rf_input_of(102, "xa", "xb"),
                                      rf_input_of(103, "xb", "xc")};
    rf_shop_stock(a, shop.now, &tenant, RUN, &config, 4);
    RF_EXPECT(RF_SHARD_LIMIT, rf_create_run_with_shards(b, shop.now, &tenant, RUN + 1, &config,
                                                        inputs, 3, 1, &result));
    TEST_ASSERT_EQUAL_UINT64(7, result.detail.size);
    TEST_ASSERT_EQUAL_UINT64(6, result.detail.limit);
    rf_shop_expect_words(RF_SHARD_LIMIT, &result.detail, "7|limit is 6");
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(a).runs);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(a).extents);
    RF_EXPECT(RF_SHARD_LIMIT, rf_add_shards(b, shop.now, &tenant, RUN, inputs, 3, 1, &result));
    RF_EXPECT(RF_OK, rf_add_shards(b, shop.now, &tenant, RUN, inputs, 2, 2, &result));
    rf_shop_stock(a, shop.now, &other, RUN, &config, 4);
    RF_EXPECT(RF_SHARD_LIMIT, rf_add_shards(b, shop.now, &other, RUN, inputs, 1, 1, &result));
    TEST_ASSERT_EQUAL_UINT64(1, result.detail.size); /* what others have is not told */
    TEST_ASSERT_EQUAL_UINT64(10, result.detail.limit);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_claim(a, shop.now, &other, RUN, 0, RF_BOUND, 0, &g, NULL));
    const rf_child parts[2] = {rf_child_of("k00000", "k00000m"), rf_child_of("k00000m", "k00001")};
    uint64_t ids[2];
    RF_EXPECT(RF_SHARD_LIMIT,
              rf_split_replace(a, shop.now, &other, &g.lease, parts, 2, 1, ids, &result));
    RF_EXPECT(RF_OK, rf_cancel_run(a, shop.now, &tenant, RUN, 9, NULL)); /* they still count */
    RF_EXPECT(RF_SHARD_LIMIT,
              rf_split_replace(a, shop.now, &other, &g.lease, parts, 2, 1, ids, &result));
    RF_EXPECT(RF_OK, rf_purge_run(a, shop.now, &tenant, RUN, NULL));
    RF_EXPECT(RF_OK, rf_split_replace(a, shop.now, &other, &g.lease, parts, 2, 1, ids, &result));
}

#define RACERS       4u
#define RACE_ROUNDS  150u
#define RACE_LIMIT   40u
#define TENANT_LIMIT 25u

struct race {
    _Atomic uint32_t round, done, over, refused, made;
};

/* Adds shards to a run of its own until the limit says no. */
static int race_at_the_limit(void *context)
{
    struct race *r = context;
    uint32_t me = atomic_fetch_add(&r->done, 1);
    const rf_tenant mine_is = rf_tenant_of((uint8_t)(1 + me % 2));
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    for (uint32_t round = 1; round <= RACE_ROUNDS; round++) {
        rf_hands_until(&r->round, round);
        for (uint32_t i = 0;; i++) {
            char start[8], end[8];
            snprintf(start, sizeof(start), "s%03u", i);
            snprintf(end, sizeof(end), "s%03ue", i);
            const rf_shard_input one = rf_input_of(100 + i, start, end);
            rf_status status =
                rf_add_shards(mine, rf_now(mine), &mine_is, me, &one, 1, 10 + i, NULL);
            if (status != RF_OK) {
                RF_EXPECT(RF_SHARD_LIMIT, status);
                atomic_fetch_add(&r->refused, 1);
                break;
            }
            atomic_fetch_add(&r->made, 1);
        }
        atomic_fetch_add(&r->done, 1);
    }
    return rf_close(mine) == RF_OK ? 0 : 1;
}

static void prepare_race(void)
{
    const rf_shard_input one = rf_input_of(1, "a", "b");
    for (uint32_t i = 0; i < RACERS; i++) {
        const rf_tenant his = rf_tenant_of((uint8_t)(1 + i % 2));
        RF_EXPECT(RF_OK,
                  rf_create_run_with_shards(a, shop.now, &his, i, &config, &one, 1, 1, NULL));
    }
}

static void clear_race(void)
{
    for (uint32_t i = 0; i < RACERS; i++) {
        const rf_tenant his = rf_tenant_of((uint8_t)(1 + i % 2));
        RF_EXPECT(RF_OK, rf_cancel_run(a, shop.now, &his, i, 2, NULL));
        RF_EXPECT(RF_OK, rf_purge_run(a, shop.now, &his, i, NULL));
    }
}

static uint64_t shards_of(uint32_t first)
{
    const rf_tenant his = rf_tenant_of((uint8_t)(1 + first % 2));
    return rf_shop_run(b, &his, first).shard_count + rf_shop_run(b, &his, first + 2).shard_count;
}

static void processes_that_race_at_a_limit_never_pass_it(void)
{
    const rf_options limited = {.max_shards = RACE_LIMIT,
                                .max_tenant_shards = TENANT_LIMIT,
                                .max_bytes = 1u << 20,
                                .max_runs = RACERS,
                                .max_members = 16};
    reopen_with(&limited);
    struct race *r = rf_hands_board(sizeof(*r));
    pid_t children[RACERS];
    for (uint32_t i = 0; i < RACERS; i++) {
        children[i] = rf_hands_send(race_at_the_limit, r);
        rf_hands_until(&r->done, i + 1);
    }
    uint64_t fullest = 0;
    for (uint32_t round = 1; round <= RACE_ROUNDS; round++) {
        prepare_race();
        atomic_store(&r->done, 0);
        atomic_store(&r->round, round);
        rf_hands_until(&r->done, RACERS);
        uint64_t first = shards_of(0), second = shards_of(1), total = first + second;
        TEST_ASSERT_TRUE_MESSAGE(total <= RACE_LIMIT, "more shards than the store may have");
        TEST_ASSERT_TRUE_MESSAGE(first <= TENANT_LIMIT, "more shards than a tenant may have");
        TEST_ASSERT_TRUE_MESSAGE(second <= TENANT_LIMIT, "more shards than a tenant may have");
        fullest = total > fullest ? total : fullest;
        clear_race();
    }
    for (uint32_t i = 0; i < RACERS; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
    }
    printf("  at most %" PRIu64 " of %u, %u made, %u refusals\n", fullest, RACE_LIMIT, r->made,
           r->refused);
    TEST_ASSERT_EQUAL_UINT64(RACE_LIMIT, fullest);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_claim_starts_at_worker_mod_count_and_wraps);
    RUN_TEST(split_products_and_added_shards_come_as_they_came);
    RUN_TEST(claims_go_in_order_through_many_extents);
    RUN_TEST(an_absent_or_ended_run_has_nothing_to_claim);
    RUN_TEST(none_available_tells_the_earliest_deadline);
    RUN_TEST(a_buffer_that_is_too_small_costs_nothing);
    RUN_TEST(two_claims_of_a_worker_are_a_cooldown_apart);
    RUN_TEST(a_lost_region_does_not_shorten_a_cooldown);
    RUN_TEST(a_thousand_workers_have_a_cooldown_each);
    RUN_TEST(a_shard_that_kills_its_owners_is_parked_in_the_end);
    RUN_TEST(deaths_count_as_attempts_and_progress_clears_them);
    RUN_TEST(after_a_sweep_the_capacity_is_that_of_a_full_scan);
    RUN_TEST(a_busy_worker_sees_how_many_wait_and_a_release_wakes_one);
    RUN_TEST(the_end_of_a_run_wakes_all_who_wait_for_it);
    RUN_TEST(a_sleeper_wakes_when_a_living_owners_lease_runs_out);
    RUN_TEST(a_timeout_ends_the_wait);
    RUN_TEST(limits_are_per_tenant_and_in_total_and_a_purge_frees_them);
    RUN_TEST(processes_that_race_at_a_limit_never_pass_it);
    return UNITY_END();
}
