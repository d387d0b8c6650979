/* The model against the protocol's text: its published vectors, and its sentences as small stories. */
#include <string.h>
#include <unity.h>

#include "model.h"

static struct model m;
static struct model_answer a;
static rf_tenant tenant, other;

void setUp(void)
{
    memset(&tenant, 7, sizeof(tenant));
    memset(&other, 8, sizeof(other));
    model_init(&m, 1000, 600, 0);
}

void tearDown(void)
{
    model_free(&m);
}

#define SAYS(status, call) TEST_ASSERT_EQUAL_STRING(rf_status_name(status), rf_status_name(call))

static rf_bytes text(const char *s)
{
    return (rf_bytes){.data = s, .len = strlen(s)};
}

static rf_cursor at(const char *key)
{
    return (rf_cursor){.key = text(key)};
}

static const rf_run_config plain = {.lease_duration = 100};

/* Run 1 with the shards 1 [a, m) and 2 [m, z). */
static void stock(const rf_run_config *config)
{
    const rf_shard_input shards[] = {
        {.shard = 1, .spec = {.start = text("a"), .end = text("m")}},
        {.shard = 2, .spec = {.start = text("m"), .end = text("z")}},
    };
    SAYS(RF_OK, model_create_run_with_shards(&m, 10, &tenant, 1, config, shards, 2, 900, &a));
}

static rf_lease take(uint64_t shard, uint64_t worker, uint64_t now)
{
    SAYS(RF_OK, model_acquire(&m, now, &tenant, 1, shard, worker, worker + 1, &a));
    return (rf_lease){.run = 1,
                      .shard = shard,
                      .worker = worker,
                      .fence = a.granted->fence,
                      .deadline = a.granted->deadline};
}

static const struct model_shard *shard(uint64_t id)
{
    return model_find_shard(model_find_run(&m, &tenant, 1), id);
}

static void ids_and_hashes_are_the_published_ones(void)
{
    TEST_ASSERT_EQUAL_HEX64(0xada8c6fca3894936u, model_split_id(1, 100, 999, RF_CHILD, 0));
    TEST_ASSERT_EQUAL_HEX64(0xac88444c76bdfa28u, model_split_id(1, 100, 999, RF_CHILD, 1));
    TEST_ASSERT_EQUAL_HEX64(0xfea10675fdf78c46u, model_split_id(1, 100, 999, RF_RESIDUAL, 0));
    const rf_cursor cursor = at("golden-cursor-key");
    TEST_ASSERT_EQUAL_HEX64(0x0806b9d383fd8430u, model_hash_cursor("checkpoint", &cursor));
    TEST_ASSERT_EQUAL_HEX64(0x9a83e072185abf89u, model_hash_cursor("complete", &cursor));
    TEST_ASSERT_EQUAL_HEX64(0xf0e5baaa11b56d8du, model_hash_park(RF_PARK_POISONED));
    const rf_child children[] = {{.spec = {.start = text("a"), .end = text("m")}},
                                 {.spec = {.start = text("m"), .end = text("z")}}};
    TEST_ASSERT_EQUAL_HEX64(0xa592eea6db2fcb49u, model_hash_replace(children, 2));
    TEST_ASSERT_EQUAL_HEX64(0x4be2bdea63447e13u,
                            model_hash_residual(&children[0].spec, &children[1].spec));
}

static void a_first_grant_has_fence_2_and_the_next_one_more(void)
{
    stock(&plain);
    TEST_ASSERT_EQUAL_UINT64(2, take(1, 5, 20).fence);
    SAYS(RF_ALREADY_LEASED, model_acquire(&m, 119, &tenant, 1, 1, 5, 6, &a));
    TEST_ASSERT_EQUAL_UINT64(120, a.detail.deadline);
    TEST_ASSERT_EQUAL_UINT64(3, take(1, 6, 120).fence);
    TEST_ASSERT_EQUAL_UINT32(2, shard(1)->attempts);
    SAYS(RF_NOT_FOUND, model_acquire(&m, 20, &other, 1, 1, 5, 6, &a));
    SAYS(RF_INVALID_TIME, model_acquire(&m, 0, &other, 1, 1, 5, 6, &a));
}

static void a_lease_is_refused_in_the_order_of_the_text(void)
{
    stock(&plain);
    rf_lease lease = take(1, 5, 20), stale = lease, foreign = lease;
    stale.fence++;
    foreign.worker++;
    SAYS(RF_STALE_FENCE, model_renew(&m, 120, &tenant, &stale, &a));
    SAYS(RF_LEASE_EXPIRED, model_renew(&m, 120, &tenant, &foreign, &a));
    SAYS(RF_STALE_FENCE, model_renew(&m, 119, &tenant, &foreign, &a));
    SAYS(RF_OK, model_renew(&m, 119, &tenant, &lease, &a));
    TEST_ASSERT_EQUAL_UINT64(219, shard(1)->deadline);
    SAYS(RF_OK, model_renew(&m, 50, &tenant, &lease, &a));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(219, shard(1)->deadline, "a renewal never shortens");
    SAYS(RF_OK, model_release(&m, 50, &tenant, &lease, NULL, 1, &a));
    SAYS(RF_STALE_FENCE, model_renew(&m, 50, &tenant, &lease, &a));
}

static void cursors_only_go_forward_inside_the_range(void)
{
    stock(&plain);
    rf_lease lease = take(1, 5, 20);
    rf_cursor none = {0}, b = at("b"), c = at("c"), z = at("z");
    SAYS(RF_MISSING_KEY, model_checkpoint(&m, 30, &tenant, &lease, &none, 1, &a));
    SAYS(RF_OK, model_checkpoint(&m, 30, &tenant, &lease, &c, 2, &a));
    SAYS(RF_CURSOR_REGRESSION, model_checkpoint(&m, 30, &tenant, &lease, &b, 3, &a));
    SAYS(RF_CURSOR_OUT_OF_BOUNDS, model_complete(&m, 30, &tenant, &lease, &z, 3, &a));
    SAYS(RF_OK, model_complete(&m, 25, &tenant, &lease, &c, 4, &a));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(30, shard(1)->ring[1].executed_at, "times never go down");
    TEST_ASSERT_EQUAL(RF_SHARD_DONE, shard(1)->status);
    TEST_ASSERT_FALSE(shard(1)->leased);
}

static void an_op_id_is_remembered_for_16_operations(void)
{
    stock(&plain);
    rf_lease lease = take(1, 5, 20);
    rf_cursor c = at("c"), d = at("d");
    SAYS(RF_OK, model_checkpoint(&m, 30, &tenant, &lease, &c, 1, &a));
    SAYS(RF_NOT_FOUND, model_checkpoint(&m, 500, &other, &lease, &c, 1, &a));
    SAYS(RF_OK, model_checkpoint(&m, 500, &tenant, &lease, &c, 1, &a));
    TEST_ASSERT_EQUAL_MESSAGE(RF_REPLAYED, a.outcome, "before the lease is looked at");
    SAYS(RF_OP_ID_CONFLICT, model_checkpoint(&m, 500, &tenant, &lease, &d, 1, &a));
    for (uint64_t op = 2; op <= 17; op++) {
        SAYS(RF_OK, model_checkpoint(&m, 31, &tenant, &lease, &c, op, &a));
    }
    SAYS(RF_OK, model_checkpoint(&m, 31, &tenant, &lease, &c, 1, &a));
    TEST_ASSERT_EQUAL_MESSAGE(RF_EXECUTED, a.outcome, "the ring has forgotten it");
    TEST_ASSERT_EQUAL_UINT32(16, shard(1)->ring_count);
}

static void parking_keeps_the_fence_and_unparking_raises_it(void)
{
    stock(&plain);
    rf_lease lease = take(1, 5, 20);
    SAYS(RF_OK, model_park(&m, 30, &tenant, &lease, RF_PARK_NOT_FOUND, 1, &a));
    TEST_ASSERT_EQUAL_UINT64(2, shard(1)->fence);
    SAYS(RF_NOT_PARKED, model_unpark(&m, 30, &tenant, 1, 2, 2, &a));
    SAYS(RF_OK, model_unpark(&m, 30, &tenant, 1, 1, 2, &a));
    TEST_ASSERT_EQUAL_UINT64(3, shard(1)->fence);
    TEST_ASSERT_FALSE(shard(1)->has_reason);
    SAYS(RF_OK, model_end_run(&m, 40, &tenant, 1, RF_RUN_OP_FAIL, 3, &a));
    SAYS(RF_RUN_TERMINAL, model_unpark(&m, 40, &tenant, 1, 1, 2, &a));
}

static void a_split_is_all_or_nothing_and_covers_the_whole(void)
{
    stock(&plain);
    rf_lease lease = take(1, 5, 20);
    rf_child children[] = {{.spec = {.start = text("f"), .end = text("m")}},
                           {.spec = {.start = text("a"), .end = text("e")}}};
    SAYS(RF_SPLIT_COVERAGE, model_split_replace(&m, 30, &tenant, &lease, children, 2, 1, &a));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(1, a.detail.index, "the caller's position");
    SAYS(RF_SPLIT_COUNT, model_split_replace(&m, 30, &tenant, &lease, children, 1, 1, &a));
    children[1].spec.end = text("f");
    SAYS(RF_OK, model_split_replace(&m, 30, &tenant, &lease, children, 2, 1, &a));
    TEST_ASSERT_EQUAL(RF_SHARD_SPLIT, shard(1)->status);
    TEST_ASSERT_EQUAL_HEX64(model_split_id(1, 1, 1, RF_CHILD, 0), a.ids[0]);
    TEST_ASSERT_EQUAL_MEMORY("a", shard(a.ids[0])->start.data, 1);
    TEST_ASSERT_EQUAL_UINT64(1, shard(a.ids[1])->fence);
    TEST_ASSERT_EQUAL_UINT64(1, shard(a.ids[1])->parent);
    uint64_t first = a.ids[0];
    SAYS(RF_OK, model_split_replace(&m, 30, &tenant, &lease, children, 2, 1, &a));
    TEST_ASSERT_EQUAL(RF_REPLAYED, a.outcome);
    TEST_ASSERT_EQUAL_HEX64(first, a.ids[0]);
}

static void a_residual_is_replayed_even_after_the_ring_forgot(void)
{
    stock(&plain);
    rf_lease lease = take(1, 5, 20);
    const rf_spec left = {.start = text("a"), .end = text("f")};
    const rf_spec right = {.start = text("f"), .end = text("m")};
    rf_cursor c = at("c"), g = at("g");
    SAYS(RF_OK, model_split_residual(&m, 30, &tenant, &lease, &left, &right, 1, &a));
    uint64_t id = a.ids[0];
    SAYS(RF_CURSOR_OUT_OF_BOUNDS, model_checkpoint(&m, 30, &tenant, &lease, &g, 2, &a));
    for (uint64_t op = 10; op < 30; op++) {
        SAYS(RF_OK, model_checkpoint(&m, 31, &tenant, &lease, &c, op, &a));
    }
    SAYS(RF_OK, model_split_residual(&m, 900, &tenant, &lease, &left, &right, 1, &a));
    TEST_ASSERT_EQUAL(RF_REPLAYED, a.outcome);
    TEST_ASSERT_EQUAL_HEX64(id, a.ids[0]);
    TEST_ASSERT_TRUE(shard(1)->leased);
}

static void claims_go_round_from_the_workers_own_place(void)
{
    stock(&plain);
    SAYS(RF_OK, model_claim(&m, 20, &tenant, 1, 7, 1, &a));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(2, a.granted->shard, "7 mod 2 is the second");
    SAYS(RF_OK, model_claim(&m, 20, &tenant, 1, 7, 1, &a));
    TEST_ASSERT_EQUAL_UINT64(1, a.granted->shard);
    SAYS(RF_NONE_AVAILABLE, model_claim(&m, 20, &tenant, 1, 7, 1, &a));
    TEST_ASSERT_EQUAL_UINT64(120, a.detail.deadline);
    TEST_ASSERT_EQUAL_UINT32(2, model_owner_lost(&m, 1));
    SAYS(RF_OK, model_claim(&m, 20, &tenant, 1, 7, 1, &a));
    SAYS(RF_RUN_NOT_FOUND, model_claim(&m, 20, &other, 1, 7, 1, &a));
}

static void a_shard_that_kills_its_owners_is_parked(void)
{
    const rf_run_config config = {.lease_duration = 100, .has_max_retries = true, .max_retries = 1};
    stock(&config);
    for (int i = 0; i < 2; i++) {
        SAYS(RF_OK, model_claim(&m, 20, &tenant, 1, 0, 1, &a));
        TEST_ASSERT_EQUAL_UINT64(1, a.granted->shard);
        model_owner_lost(&m, 1);
    }
    SAYS(RF_OK, model_claim(&m, 20, &tenant, 1, 0, 1, &a));
    TEST_ASSERT_EQUAL_UINT64(2, a.granted->shard);
    TEST_ASSERT_EQUAL(RF_SHARD_PARKED, shard(1)->status);
    TEST_ASSERT_EQUAL(RF_PARK_TOO_MANY_ERRORS, shard(1)->reason);
}

static void a_cooldown_counts_grants_only(void)
{
    stock(&plain);
    m.cooldown = 50;
    SAYS(RF_OK, model_claim(&m, 20, &tenant, 1, 0, 1, &a));
    SAYS(RF_THROTTLED, model_claim(&m, 69, &tenant, 1, 0, 1, &a));
    TEST_ASSERT_EQUAL_UINT64(1, a.detail.retry_after);
    SAYS(RF_OK, model_claim(&m, 70, &tenant, 1, 0, 1, &a));
}

static void a_purge_raises_the_floor_for_whoever_comes_back(void)
{
    stock(&plain);
    take(1, 5, 20);
    SAYS(RF_WRONG_STATUS, model_purge_run(&m, 30, &tenant, 1, &a));
    SAYS(RF_OK, model_end_run(&m, 30, &tenant, 1, RF_RUN_OP_CANCEL, 5, &a));
    SAYS(RF_OK, model_purge_run(&m, 30, &tenant, 1, &a));
    stock(&plain);
    TEST_ASSERT_EQUAL_UINT64(3, take(1, 5, 20).fence);
    model_rebuild(&m, 2, 30);
    stock(&plain);
    TEST_ASSERT_EQUAL_UINT64((2ull << 40) + 1, take(1, 5, 20).fence);
}

static void a_manifest_is_refused_as_a_whole(void)
{
    rf_shard_input shards[] = {
        {.shard = 1, .spec = {.start = text("a"), .end = text("m")}},
        {.shard = 2, .spec = {.start = text("l"), .end = text("z")}},
    };
    SAYS(RF_OK, model_create_run(&m, 10, &tenant, 1, &plain, &a));
    SAYS(RF_MANIFEST_EMPTY, model_register_shards(&m, 10, &tenant, 1, shards, 0, 1, &a));
    SAYS(RF_OVERLAPPING_RANGES, model_register_shards(&m, 10, &tenant, 1, shards, 2, 1, &a));
    TEST_ASSERT_EQUAL_UINT64(1, a.detail.index);
    shards[1].spec.start = text("m");
    shards[1].shard = 1;
    SAYS(RF_DUPLICATE_SHARD, model_register_shards(&m, 10, &tenant, 1, shards, 2, 1, &a));
    shards[1].shard = 2 | RF_DERIVED_BIT;
    SAYS(RF_DERIVED_ROOT_ID, model_register_shards(&m, 10, &tenant, 1, shards, 2, 1, &a));
    shards[1].shard = 2;
    m.max_tenant_shards = 1;
    SAYS(RF_SHARD_LIMIT, model_register_shards(&m, 10, &tenant, 1, shards, 2, 1, &a));
    TEST_ASSERT_EQUAL_UINT32(0, model_find_run(&m, &tenant, 1)->count);
    m.max_tenant_shards = 2;
    SAYS(RF_OK, model_register_shards(&m, 10, &tenant, 1, shards, 2, 1, &a));
    SAYS(RF_OK, model_register_shards(&m, 10, &tenant, 1, shards, 2, 1, &a));
    TEST_ASSERT_EQUAL(RF_REPLAYED, a.outcome);
    SAYS(RF_WRONG_STATUS, model_register_shards(&m, 10, &tenant, 1, shards, 2, 2, &a));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(ids_and_hashes_are_the_published_ones);
    RUN_TEST(a_first_grant_has_fence_2_and_the_next_one_more);
    RUN_TEST(a_lease_is_refused_in_the_order_of_the_text);
    RUN_TEST(cursors_only_go_forward_inside_the_range);
    RUN_TEST(an_op_id_is_remembered_for_16_operations);
    RUN_TEST(parking_keeps_the_fence_and_unparking_raises_it);
    RUN_TEST(a_split_is_all_or_nothing_and_covers_the_whole);
    RUN_TEST(a_residual_is_replayed_even_after_the_ring_forgot);
    RUN_TEST(claims_go_round_from_the_workers_own_place);
    RUN_TEST(a_shard_that_kills_its_owners_is_parked);
    RUN_TEST(a_cooldown_counts_grants_only);
    RUN_TEST(a_purge_raises_the_floor_for_whoever_comes_back);
    RUN_TEST(a_manifest_is_refused_as_a_whole);
    return UNITY_END();
}
