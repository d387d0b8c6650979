/* Sessions on a region with the real clock: a worker's whole loop, leases kept alive in the
 * background, and how a session learns that it has lost its shard. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "desk.h"
#include "hands.h"
#include "shop.h"

#define RUN 7u

static struct rf_shop shop;
static rf_store *store;
static rf_tenant tenant;
static rf_session *session, *second;
static const rf_grant *grant;
static const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};
static const rf_run_config brief = {.lease_duration = 60 * RF_MILLISECOND};

void setUp(void)
{
    tenant = rf_tenant_of(1);
    rf_shop_found(&shop);
    store = rf_shop_enter_living(&shop, NULL);
    session = second = NULL;
}

void tearDown(void)
{
    rf_session_destroy(session);
    rf_session_destroy(second);
    rf_close(store);
    rf_shop_raze(&shop);
}

static rf_session *begin(uint64_t worker, bool keep_alive)
{
    rf_session *s;
    const rf_session_options options = {
        .tenant = tenant, .worker = worker, .keep_alive = keep_alive};
    RF_EXPECT(RF_OK, rf_session_create(store, &options, &s));
    return s;
}

static void nap_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static rf_shard_info shown(uint64_t shard)
{
    return rf_shop_shard(store, &tenant, RUN, shard);
}

static rf_cursor at(const char *key)
{
    return rf_cursor_at(key);
}

/* Works through every shard that it gets, with residual splits on the way. */
static int work_until_the_end(void *context)
{
    _Atomic uint32_t *done = context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_session *s;
    const rf_session_options options = {
        .tenant = tenant, .worker = (uint64_t)getpid(), .keep_alive = true};
    RF_EXPECT(RF_OK, rf_session_create(mine, &options, &s));
    const rf_grant *g;
    rf_status status;
    while ((status = rf_session_claim(s, RUN, 10 * RF_SECOND, &g, NULL)) == RF_OK) {
        uint8_t cut[RF_KEY_MAX], key[RF_KEY_MAX];
        size_t cut_len, key_len;
        uint64_t id;
        memcpy(key, g->spec.start.data, key_len = g->spec.start.len);
        const rf_cursor cursor = {.key = {.data = key, .len = key_len}};
        if (g->spec.start.len < 9 &&
            rf_key_midpoint(g->spec.start, g->spec.end, cut, &cut_len) == RF_OK) {
            const rf_bytes point = {.data = cut, .len = cut_len};
            RF_EXPECT(RF_OK, rf_session_split_residual(s, point, &id, NULL));
        }
        RF_EXPECT(RF_OK, rf_session_check(s));
        RF_EXPECT(RF_OK, rf_session_checkpoint(s, cursor, NULL));
        RF_EXPECT(RF_OK, rf_session_complete(s, cursor, NULL));
        RF_EXPECT(RF_STALE_FENCE, rf_session_check(s)); /* it holds nothing */
        atomic_fetch_add(done, 1);
        rf_progress p;
        RF_EXPECT(RF_OK, rf_get_progress(mine, rf_now(mine), &tenant, RUN, &p, NULL, NULL));
        if (p.evaluation == RF_ALL_DONE) {
            rf_complete_run(mine, rf_now(mine), &tenant, RUN, 4711, NULL);
        }
    }
    RF_EXPECT(RF_RUN_TERMINAL, status);
    rf_session_destroy(s);
    return rf_close(mine) == RF_OK ? 0 : 1;
}

static void workers_in_several_processes_work_a_run_off(void)
{
    _Atomic uint32_t *done = rf_hands_board(sizeof(*done));
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 40);
    pid_t workers[4];
    for (unsigned i = 0; i < 4; i++) {
        workers[i] = rf_hands_send(work_until_the_end, done);
    }
    for (unsigned i = 0; i < 4; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(workers[i]));
    }
    rf_run_info run = rf_shop_run(store, &tenant, RUN);
    TEST_ASSERT_EQUAL(RF_RUN_DONE, run.status);
    TEST_ASSERT_TRUE(run.shard_count > 40);
    TEST_ASSERT_EQUAL_UINT64(run.shard_count, run.done);
    TEST_ASSERT_EQUAL_UINT64(run.done, *done);
}

static void a_session_holds_one_shard_at_a_time(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 3);
    session = begin(1, false);
    RF_EXPECT(RF_STALE_FENCE, rf_session_check(session));
    RF_EXPECT(RF_STALE_FENCE, rf_session_renew(session, NULL));
    RF_EXPECT(RF_STALE_FENCE, rf_session_release(session, NULL));
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    TEST_ASSERT_EQUAL_UINT64(2, grant->lease.shard);
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_session_claim(session, RUN, 0, &grant, NULL));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_session_acquire(session, RUN, 1, &grant, NULL));
    RF_EXPECT(RF_OK, rf_session_renew(session, NULL));
    RF_EXPECT(RF_OK, rf_session_release(session, NULL));
    RF_EXPECT(RF_OK, rf_session_acquire(session, RUN, 1, &grant, NULL));
    TEST_ASSERT_EQUAL_UINT64(1, grant->lease.shard);
}

static void each_terminal_call_ends_the_lease(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 4);
    session = begin(1, true);
    const rf_bytes points[2] = {rf_text("k00003a"), rf_text("k00003b")};
    uint64_t ids[3];
    for (uint64_t shard = 1; shard <= 4; shard++) {
        RF_EXPECT(RF_OK, rf_session_acquire(session, RUN, shard, &grant, NULL));
        RF_EXPECT(RF_OK, rf_session_check(session));
        RF_EXPECT(RF_OK, shard == 1   ? rf_session_complete(session, at("k00000x"), NULL)
                         : shard == 2 ? rf_session_park(session, RF_PARK_POISONED, NULL)
                         : shard == 3 ? rf_session_release(session, NULL)
                                      : rf_session_split_replace(session, points, 2, ids, NULL));
        RF_EXPECT(RF_STALE_FENCE, rf_session_check(session));
        RF_EXPECT(RF_STALE_FENCE, rf_session_checkpoint(session, at("k00000y"), NULL));
        TEST_ASSERT_FALSE(shown(shard).leased);
    }
    TEST_ASSERT_EQUAL(RF_SHARD_DONE, shown(1).status);
    TEST_ASSERT_EQUAL(RF_SHARD_PARKED, shown(2).status);
    TEST_ASSERT_EQUAL(RF_SHARD_ACTIVE, shown(3).status);
    TEST_ASSERT_EQUAL(RF_SHARD_SPLIT, shown(4).status);
    TEST_ASSERT_EQUAL_MEMORY("k00003a", shown(ids[1]).spec.start.data, 7);
}

static void residual_splits_make_the_sessions_range_smaller(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 1);
    session = begin(1, false);
    uint64_t id;
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    RF_EXPECT(RF_OK, rf_session_split_residual(session, rf_text("k00000p"), &id, NULL));
    RF_EXPECT(RF_OK, rf_session_split_residual(session, rf_text("k00000f"), &id, NULL));
    TEST_ASSERT_EQUAL_MEMORY("k00000f", grant->spec.end.data, 7);
    TEST_ASSERT_EQUAL_MEMORY("k00000f", shown(id).spec.start.data, 7);
    TEST_ASSERT_EQUAL_MEMORY("k00000p", shown(id).spec.end.data, 7);
    rf_result result = {0};
    RF_EXPECT(RF_CURSOR_OUT_OF_BOUNDS, rf_session_checkpoint(session, at("k00000g"), &result));
    RF_EXPECT(RF_OK, rf_session_complete(session, at("k00000e"), NULL));
}

/* --- kept alive --- */

static void a_kept_lease_outlives_its_deadline_many_times(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    session = begin(1, true);
    second = begin(2, false);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    uint64_t first = grant->lease.deadline;
    for (unsigned i = 0; i < 20; i++) {
        nap_ms(20);
        RF_EXPECT(RF_OK, rf_session_check(session));
        RF_EXPECT(RF_NONE_AVAILABLE, rf_session_claim(second, RUN, 0, NULL, NULL));
    }
    TEST_ASSERT_TRUE(rf_now(store) > first + 4 * brief.lease_duration);
    TEST_ASSERT_TRUE(shown(1).deadline > first + 4 * brief.lease_duration);
    RF_EXPECT(RF_OK, rf_session_checkpoint(session, at("k00000a"), NULL));
    RF_EXPECT(RF_OK, rf_session_complete(session, at("k00000b"), NULL));
    TEST_ASSERT_EQUAL_UINT64(2, shown(1).fence);
}

static void a_lease_that_is_not_kept_is_lost_at_its_deadline(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    session = begin(1, false);
    second = begin(2, false);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    RF_EXPECT(RF_OK, rf_session_claim(second, RUN, 10 * RF_SECOND, NULL, NULL));
    RF_EXPECT(RF_STALE_FENCE, rf_session_checkpoint(session, at("k00000a"), NULL));
    RF_EXPECT(RF_STALE_FENCE, rf_session_check(session)); /* and it stays so */
    RF_EXPECT(RF_STALE_FENCE, rf_session_complete(session, at("k00000a"), NULL));
    RF_EXPECT(RF_NONE_AVAILABLE, rf_session_claim(session, RUN, 0, &grant, NULL));
    TEST_ASSERT_EQUAL_UINT64(2, shown(1).owner);
}

static void until_check_says(rf_status expected)
{
    rf_status status = RF_OK;
    for (unsigned i = 0; i < 2000 && (status = rf_session_check(session)) == RF_OK; i++) {
        nap_ms(5);
    }
    RF_EXPECT(expected, status);
}

/* Somebody ends the shard behind the session's back, with a copy of its lease. */
static void the_keeper_tells_that_the_shard_has_ended(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    session = begin(1, true);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    RF_EXPECT(RF_OK, rf_session_check(session));
    RF_EXPECT(RF_OK, rf_park(store, rf_now(store), &tenant, &grant->lease, RF_PARK_OTHER, 1, NULL));
    until_check_says(RF_SHARD_TERMINAL);
    RF_EXPECT(RF_SHARD_TERMINAL, rf_session_complete(session, at("k00000a"), NULL));
    RF_EXPECT(RF_SHARD_TERMINAL, rf_session_check(session));
}

static void the_keeper_tells_that_the_shard_was_taken_over(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    session = begin(1, true);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    rf_grant g = rf_shop_blank(0);
    uint64_t later = rf_now(store) + 50 * RF_SECOND; /* a clock that is far ahead */
    RF_EXPECT(RF_OK, rf_claim(store, later, &tenant, RUN, 9, RF_BOUND, 0, &g, NULL));
    until_check_says(RF_STALE_FENCE);
    RF_EXPECT(RF_STALE_FENCE, rf_session_renew(session, NULL));
}

static void the_keeper_tells_that_the_run_has_ended(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    session = begin(1, true);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    RF_EXPECT(RF_OK, rf_cancel_run(store, rf_now(store), &tenant, RUN, 1, NULL));
    until_check_says(RF_RUN_TERMINAL);
    RF_EXPECT(RF_RUN_TERMINAL, rf_session_check(session));
}

static void a_destroyed_session_releases_its_shard(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 1);
    session = begin(1, true);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    rf_session_destroy(session);
    session = NULL;
    TEST_ASSERT_FALSE(shown(1).leased);
    TEST_ASSERT_EQUAL_UINT32(0, shown(1).attempts);
    TEST_ASSERT_EQUAL(RF_OP_RELEASE, shown(1).ring[0].kind);
}

static int claim_detached_and_vanish(void *context)
{
    (void)context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    rf_session *s;
    const rf_session_options options = {.tenant = tenant, .worker = 3, .detached = true};
    RF_EXPECT(RF_OK, rf_session_create(mine, &options, &s));
    RF_EXPECT(RF_OK, rf_session_claim(s, RUN, 0, NULL, NULL));
    return 0; /* ends without a word */
}

static void a_detached_session_keeps_its_lease_when_its_process_ends(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(claim_detached_and_vanish, NULL)));
    session = begin(1, false);
    rf_shard_info info = shown(1);
    TEST_ASSERT_TRUE(info.leased);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 10 * RF_SECOND, &grant, NULL));
    TEST_ASSERT_TRUE(rf_now(store) >= info.deadline);
    TEST_ASSERT_EQUAL_UINT64(3, grant->lease.fence);
}

/* What was in `used` before must not be in the sentence, nor an event in the result. */
static void expect_only(const char *sentence, rf_status status, const rf_result *used)
{
    char out[512];
    rf_explain(status, &used->detail, out, sizeof(out));
    TEST_ASSERT_EQUAL_STRING(sentence, out);
    TEST_ASSERT_FALSE(used->has_event);
}

static rf_result used(void)
{
    rf_result result;
    memset(&result, 'A', sizeof(result));
    result.want_event = result.has_event = true;
    result.durability = 0;
    return result;
}

static void a_refusal_of_a_session_says_nothing_of_the_result_before(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &brief, 1);
    session = begin(1, false);
    rf_result result = used();
    rf_status status = rf_session_checkpoint(session, at("b"), &result);
    expect_only(rf_strerror(RF_STALE_FENCE), status, &result);

    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    result = used();
    status = rf_session_claim(session, RUN, 0, &grant, &result);
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT, status);
    expect_only("an argument is missing or impossible: the session holds a shard; end its lease "
                "before",
                status, &result);

    nap_ms(80);
    RF_EXPECT(RF_LEASE_EXPIRED, rf_session_checkpoint(session, at("b"), NULL));
    result = used();
    status = rf_session_renew(session, &result);
    TEST_ASSERT_EQUAL(RF_LEASE_EXPIRED, status);
    expect_only(rf_strerror(RF_LEASE_EXPIRED), status, &result);
    result = used();
    expect_only(rf_strerror(RF_INVALID_ARGUMENT), rf_session_park(NULL, 0, &result), &result);
}

/* Taken for "do not wait", as before, an unknown one would promise less than was asked for. */
static void an_unknown_durability_is_refused_before_anything_happens(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 1);
    session = begin(1, false);
    RF_EXPECT(RF_OK, rf_session_claim(session, RUN, 0, &grant, NULL));
    rf_result result = {.durability = (rf_durability)(RF_WAIT + 1)};
    TEST_ASSERT_EQUAL(RF_INVALID_ARGUMENT,
                      rf_session_complete(session, (rf_cursor){.key = grant->spec.start}, &result));
    TEST_ASSERT_NOT_NULL(strstr(result.detail.where, "durability"));
    TEST_ASSERT_EQUAL(RF_SHARD_ACTIVE, shown(1).status);
    TEST_ASSERT_EQUAL_UINT32(0, shown(1).ring_count);
    result = (rf_result){.durability = RF_WAIT};
    RF_EXPECT(RF_OK, rf_session_complete(session, (rf_cursor){.key = grant->spec.start}, &result));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(workers_in_several_processes_work_a_run_off);
    RUN_TEST(a_session_holds_one_shard_at_a_time);
    RUN_TEST(each_terminal_call_ends_the_lease);
    RUN_TEST(residual_splits_make_the_sessions_range_smaller);
    RUN_TEST(a_kept_lease_outlives_its_deadline_many_times);
    RUN_TEST(a_lease_that_is_not_kept_is_lost_at_its_deadline);
    RUN_TEST(the_keeper_tells_that_the_shard_has_ended);
    RUN_TEST(the_keeper_tells_that_the_shard_was_taken_over);
    RUN_TEST(the_keeper_tells_that_the_run_has_ended);
    RUN_TEST(a_destroyed_session_releases_its_shard);
    RUN_TEST(a_detached_session_keeps_its_lease_when_its_process_ends);
    RUN_TEST(a_refusal_of_a_session_says_nothing_of_the_result_before);
    RUN_TEST(an_unknown_durability_is_refused_before_anything_happens);
    return UNITY_END();
}
