/*
 * Coming and going: fork, exec, kill, clean leaving, stores that are full or full of the dead.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unity.h>

#include "box.h"
#include "fsck.h"
#include "hands.h"
#include "prng.h"

#define RUN      7u
#define SHARDS   24u
#define DURATION (60 * RF_SECOND)

#if defined(__SANITIZE_ADDRESS__)
#define SLOW_BUILD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLOW_BUILD 1
#endif
#endif
#ifndef SLOW_BUILD
#define SLOW_BUILD 0
#endif

static char name[64];
static rf_tenant tenant;
static rf_store *store;
static uint8_t scratch[RF_GRANT_SCRATCH];

static rf_store *open_with(uint32_t members, bool manual)
{
    const rf_options options = {.create = true,
                                .max_shards = 4096,
                                .max_bytes = 8u << 20,
                                .max_runs = 64,
                                .max_members = members,
                                .manual = manual,
                                .busy_timeout = 5 * RF_SECOND};
    rf_store *opened = NULL;
    rf_detail detail;
    if (rf_open(name, &options, &opened, &detail) != RF_OK) {
        fprintf(stderr, "can't open: %s\n", detail.where);
        return NULL;
    }
    return opened;
}

void setUp(void)
{
    snprintf(name, sizeof(name), "lifecycle-%d", (int)getpid());
    rf_tenant_from_name("lifecycle", &tenant);
    rf_destroy(name, NULL);
    store = NULL;
}

void tearDown(void)
{
    if (store != NULL) {
        rf_close(store);
        store = NULL;
    }
    rf_destroy(name, NULL);
}

static void open_and_fill(uint32_t members)
{
    const rf_run_config config = {.lease_duration = DURATION};
    static char edges[SHARDS + 1][4];
    rf_shard_input shards[SHARDS];
    for (unsigned i = 0; i <= SHARDS; i++) {
        snprintf(edges[i], sizeof(edges[i]), "k%02u", i);
    }
    for (unsigned i = 0; i < SHARDS; i++) {
        shards[i] = rf_input_of(i + 1, edges[i], edges[i + 1]);
    }
    store = open_with(members, false);
    TEST_ASSERT_NOT_NULL(store);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, RUN,
                                                           &config, shards, SHARDS, 1, NULL));
}

static rf_status acquire(rf_store *by, uint64_t shard, uint32_t flags, rf_lease *lease)
{
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_status status = rf_acquire(by, rf_now(by), &tenant, RUN, shard, 3, flags, &grant, NULL);
    *lease = grant.lease;
    return status;
}

static rf_status claim(rf_store *by, uint64_t timeout, rf_lease *lease)
{
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_status status = rf_claim(by, rf_now(by), &tenant, RUN, 3, RF_BOUND, timeout, &grant, NULL);
    *lease = grant.lease;
    return status;
}

static void until_settled(uint64_t members)
{
    rf_inspection seen;
    for (unsigned i = 0; i < 100000; i++) {
        TEST_ASSERT_EQUAL_INT(RF_OK, rf_inspect(store, &seen, NULL));
        if (seen.dead_members == 0 && seen.members == members) {
            return;
        }
        usleep(100);
    }
    TEST_FAIL_MESSAGE("the dead are not settled");
}

/* --- fork --- */

static int use_parents_handle(void *context)
{
    rf_lease *lease = context;
    rf_run_info run;
    rf_inspection seen;
    rf_capacity capacity;
    rf_cursor cursor = rf_cursor_at("k00");
    rf_lease mine;
    TEST_ASSERT_TRUE(rf_now(store) != 0 && rf_new_op(store) != rf_new_op(store));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, acquire(store, 2, RF_BOUND, &mine));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, claim(store, 0, &mine));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_renew(store, 5, &tenant, lease, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_checkpoint(store, 5, &tenant, lease, &cursor, 5, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_complete_run(store, 5, &tenant, RUN, 5, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_get_run(store, &tenant, RUN, &run, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_get_capacity(store, &tenant, RUN, &capacity, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_inspect(store, &seen, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_tend(store, 5));
    rf_store *own = open_with(16, false);
    TEST_ASSERT_NOT_NULL(own);
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_tend(store, 5));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_close(store)); /* only forgets */
    TEST_ASSERT_EQUAL_INT(RF_OK, acquire(own, 2, RF_BOUND, &mine));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_close(own));
    return 0;
}

static void a_child_of_fork_may_not_use_its_parents_handle_and_opens_its_own(void)
{
    rf_lease lease;
    open_and_fill(16);
    TEST_ASSERT_EQUAL_INT(RF_OK, acquire(store, 1, RF_BOUND, &lease));
    TEST_ASSERT_EQUAL_INT(0, rf_hands_wait(rf_hands_send(use_parents_handle, &lease)));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_renew(store, rf_now(store), &tenant, &lease, NULL));
    until_settled(2);
    TEST_ASSERT_NULL(rf_fsck(store));
}

struct inherited {
    rf_session *working, *idle;
    rf_monitor *monitor;
};

static int use_what_was_inherited(void *context)
{
    struct inherited *in = context;
    rf_session *more;
    rf_bytes point = rf_text("k01m");
    rf_cursor cursor = rf_cursor_at("k00");
    rf_event events[4];
    uint64_t lost, id;
    size_t count;
    alarm(20); /* whoever locks the guardian's mutex here may hang */
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_check(in->working));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_renew(in->working, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_checkpoint(in->working, cursor, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_split_residual(in->working, point, &id, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_split_replace(in->working, &point, 1, &id, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_complete(in->working, cursor, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_park(in->working, RF_PARK_OTHER, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_release(in->working, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_claim(in->working, RUN, 0, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_check(in->idle));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_claim(in->idle, RUN, 0, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_acquire(in->idle, RUN, 3, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_session_create(store, &(rf_session_options){0}, &more));
    TEST_ASSERT_EQUAL_INT(RF_FORKED, rf_monitor_read(in->monitor, events, 4, &count, &lost));
    rf_session_destroy(in->working); /* these only forget */
    rf_session_destroy(in->idle);
    rf_monitor_destroy(in->monitor);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_close(store));
    return 0;
}

static void a_child_of_fork_may_not_use_sessions_and_monitors_either(void)
{
    struct inherited in;
    const rf_session_options options = {.tenant = tenant, .worker = 1, .keep_alive = true};
    rf_event events[4];
    uint64_t lost;
    size_t count;
    open_and_fill(16);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_monitor_create(store, &in.monitor));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_session_create(store, &options, &in.working));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_session_create(store, &options, &in.idle));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_session_acquire(in.working, RUN, 2, NULL, NULL));
    TEST_ASSERT_EQUAL_INT(0, rf_hands_wait(rf_hands_send(use_what_was_inherited, &in)));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_session_check(in.working));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_monitor_read(in.monitor, events, 4, &count, &lost));
    TEST_ASSERT_EQUAL_INT(1, count);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_session_release(in.working, NULL));
    rf_session_destroy(in.working);
    rf_session_destroy(in.idle);
    rf_monitor_destroy(in.monitor);
}

static int wait_for_the_end(void *gate)
{
    if (gate != NULL) {
        atomic_store((_Atomic uint32_t *)gate, 1); /* it has run: its fork handlers are behind it */
    }
    for (;;) {
        pause();
    }
    return 0;
}

static void a_child_of_fork_does_not_keep_the_store_in_use(void)
{
    open_and_fill(16);
    _Atomic uint32_t *gate = rf_hands_board(sizeof(*gate));
    pid_t child = rf_hands_send(wait_for_the_end, gate);
    /* Until it runs for the first time, the child has its parent's lock. */
    rf_hands_until(gate, 1);
    rf_close(store);
    store = NULL;
    rf_detail detail;
    rf_status status = rf_destroy(name, &detail);
    rf_hands_kill(child);
    TEST_ASSERT_EQUAL_INT_MESSAGE(RF_OK, status, detail.where);
}

/* --- exec --- */

static int become_another_program(void *context)
{
    _Atomic uint32_t *gate = context;
    rf_lease lease;
    rf_store *own = open_with(16, false);
    if (own == NULL || acquire(own, 1, RF_BOUND, &lease) != RF_OK) {
        return 1;
    }
    atomic_store(gate, 1);
    execlp("sleep", "sleep", "60", (char *)NULL);
    return 2;
}

static void exec_of_another_program_is_the_death_of_the_first(void)
{
    _Atomic uint32_t *gate = rf_hands_board(sizeof(*gate));
    rf_lease lease;
    open_and_fill(16);
    pid_t child = rf_hands_send(become_another_program, gate);
    rf_hands_until(gate, 1);
    until_settled(2);
    rf_status status = acquire(store, 1, RF_BOUND, &lease);
    bool living = waitpid(child, NULL, WNOHANG) == 0;
    rf_hands_kill(child);
    TEST_ASSERT_EQUAL_INT(RF_OK, status);
    TEST_ASSERT_TRUE_MESSAGE(living, "the other program ended by itself");
    TEST_ASSERT_NULL(rf_fsck(store));
}

/* --- leaving --- */

static void a_clean_close_gives_up_bound_leases_and_no_detached_ones(void)
{
    rf_lease bound, detached, next;
    open_and_fill(16);
    rf_store *leaving = open_with(16, false);
    TEST_ASSERT_EQUAL_INT(RF_OK, acquire(leaving, 1, RF_BOUND, &bound));
    TEST_ASSERT_EQUAL_INT(RF_OK, acquire(leaving, 2, RF_DETACHED, &detached));
    TEST_ASSERT_EQUAL_INT(RF_ALREADY_LEASED, acquire(store, 1, RF_BOUND, &next));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_close(leaving));
    TEST_ASSERT_EQUAL_INT(RF_OK, acquire(store, 1, RF_BOUND, &next));
    TEST_ASSERT_TRUE(next.fence > bound.fence);
    TEST_ASSERT_EQUAL_INT(RF_ALREADY_LEASED, acquire(store, 2, RF_BOUND, &next));
    TEST_ASSERT_EQUAL_INT(RF_STALE_FENCE, rf_renew(store, rf_now(store), &tenant, &bound, NULL));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_renew(store, rf_now(store), &tenant, &detached, NULL));
}

static int present_lease(void *context)
{
    const char *text = context;
    rf_tenant whose;
    rf_lease lease;
    rf_cursor cursor = rf_cursor_at("k01x");
    rf_store *own = open_with(16, false);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_lease_parse(text, &whose, &lease));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_renew(own, rf_now(own), &whose, &lease, NULL));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_complete(own, rf_now(own), &whose, &lease, &cursor, 99, NULL));
    rf_close(own);
    return 0;
}

static void a_detached_lease_is_handed_to_another_process_as_text(void)
{
    char *text = rf_hands_board(RF_LEASE_TEXT);
    rf_lease lease, parsed;
    rf_tenant whose;
    rf_shard_info info;
    open_and_fill(16);
    TEST_ASSERT_EQUAL_INT(RF_OK, acquire(store, 2, RF_DETACHED, &lease));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_lease_format(&tenant, &lease, text, RF_LEASE_TEXT));
    for (size_t i = 0; text[i] != 0; i++) {
        char damaged[RF_LEASE_TEXT];
        snprintf(damaged, sizeof(damaged), "%s", text);
        damaged[i] = damaged[i] == 'x' ? 'y' : 'x';
        TEST_ASSERT_EQUAL_INT(RF_INVALID_ARGUMENT, rf_lease_parse(damaged, &whose, &parsed));
    }
    TEST_ASSERT_EQUAL_INT(0, rf_hands_wait(rf_hands_send(present_lease, text)));
    TEST_ASSERT_EQUAL_INT(
        RF_OK, rf_get_shard(store, &tenant, RUN, 2, &info, scratch, sizeof(scratch), NULL));
    TEST_ASSERT_EQUAL_INT(RF_SHARD_DONE, info.status);
}

/* --- full --- */

static void a_full_store_says_so_in_a_clear_sentence(void)
{
    rf_store *handles[4], *more = NULL;
    rf_detail detail;
    char words[512];
    const rf_options options = {.manual = true, .busy_timeout = 100 * RF_MILLISECOND};
    for (unsigned i = 0; i < 4; i++) {
        handles[i] = open_with(2, true);
        TEST_ASSERT_NOT_NULL(handles[i]);
    }
    TEST_ASSERT_EQUAL_INT(RF_RESOURCE_EXHAUSTED, rf_open(name, &options, &more, &detail));
    rf_explain(RF_RESOURCE_EXHAUSTED, &detail, words, sizeof(words));
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(words, "all 4 member slots are in use"), words);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_close(handles[2]));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_open(name, &options, &more, &detail));
    rf_close(more);
    rf_close(handles[0]);
    rf_close(handles[1]);
    rf_close(handles[3]);
}

static int hold_a_lease(void *context)
{
    _Atomic uint32_t *gate = context;
    rf_lease lease;
    rf_store *own = open_with(2, false);
    if (own == NULL || claim(own, 0, &lease) != RF_OK) {
        return 1;
    }
    atomic_fetch_add(gate, 1);
    return wait_for_the_end(NULL);
}

static int enter_and_leave(void *context)
{
    (void)context;
    rf_store *own = open_with(2, false);
    return own == NULL ? 1 : rf_close(own) != RF_OK;
}

/* A store with four slots, all of them of the dead, who held leases. */
static void make_a_store_of_the_dead(void)
{
    _Atomic uint32_t *gate = rf_hands_board(sizeof(*gate));
    open_and_fill(2);
    pid_t first = rf_hands_send(hold_a_lease, gate);
    rf_hands_until(gate, 1);
    rf_close(store);
    store = NULL;
    pid_t second = rf_hands_send(hold_a_lease, gate);
    rf_hands_until(gate, 2);
    kill(first, SIGSTOP); /* or it would settle the second */
    rf_hands_kill(second);
    rf_hands_kill(first);
}

static void a_store_full_of_the_dead_can_be_entered_though_those_who_try_are_killed(void)
{
    struct rf_prng prng = {rf_env_number("RF_SEED", 1)};
    uint32_t rounds = SLOW_BUILD ? 10 : 60;
    rf_lease lease;
    for (uint32_t i = 0; i < rounds; i++) {
        make_a_store_of_the_dead();
        for (uint32_t repairer = 0; repairer < i % 4; repairer++) {
            pid_t pid = rf_hands_send(enter_and_leave, NULL);
            usleep(rf_prng_below(&prng, 2500));
            kill(pid, SIGKILL); /* if it is still there */
            TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, NULL, 0));
        }
        store = open_with(2, false);
        TEST_ASSERT_NOT_NULL(store);
        until_settled(2);
        for (unsigned n = 0; n < SHARDS; n++) {
            TEST_ASSERT_EQUAL_INT(RF_OK, claim(store, 0, &lease));
        }
        TEST_ASSERT_NULL(rf_fsck(store));
        tearDown();
    }
}

/* --- a thousand deaths --- */

static rf_status come_and_go(rf_store *own, struct rf_prng *prng, uint64_t run)
{
    const rf_run_config config = {.lease_duration = DURATION};
    rf_shard_input shards[2] = {rf_input_of(1, "a", "m"), rf_input_of(2, "m", "z")};
    static uint8_t bytes[6000];
    uint64_t now = rf_now(own);
    memset(bytes, 'b', sizeof(bytes));
    shards[0].spec.metadata = rf_bytes_of(bytes, 1 + rf_prng_below(prng, 6000));
    rf_status status =
        rf_create_run_with_shards(own, now, &tenant, run, &config, shards, 2, 1, NULL);
    if (status == RF_OK) {
        status = rf_cancel_run(own, now, &tenant, run, 2, NULL);
    }
    return status == RF_OK ? rf_purge_run(own, now, &tenant, run, NULL) : status;
}

static rf_status work_a_little(rf_store *own, struct rf_prng *prng)
{
    static uint8_t key[2000];
    rf_lease lease;
    rf_shard_info info;
    rf_status status = claim(own, 0, &lease);
    if (status != RF_OK) {
        return status == RF_NONE_AVAILABLE ? RF_OK : status;
    }
    status = rf_get_shard(own, &tenant, RUN, lease.shard, &info, scratch, sizeof(scratch), NULL);
    if (status != RF_OK) {
        return status;
    }
    /* The start of the range and then something that only grows. */
    size_t len = 1 + rf_prng_below(prng, sizeof(key) - 8);
    memset(key, 'a', sizeof(key));
    memcpy(key, info.spec.start.data, info.spec.start.len);
    rf_cursor cursor = {.key = rf_bytes_of(key, info.spec.start.len + len)};
    for (int i = 0; i < 3 && (status == RF_OK || status == RF_CURSOR_REGRESSION); i++) {
        cursor.key.len = info.spec.start.len + rf_prng_below(prng, (uint32_t)len);
        status = rf_checkpoint(own, rf_now(own), &tenant, &lease, &cursor, rf_new_op(own), NULL);
    }
    return rf_release(own, rf_now(own), &tenant, &lease, NULL, rf_new_op(own), NULL);
}

struct cycle {
    uint64_t number;
    _Atomic uint32_t *gate;
};

static int live_until_killed(void *context)
{
    const struct cycle *c = context;
    struct rf_prng prng = {c->number};
    rf_lease lease;
    rf_store *own = open_with(16, false);
    if (own == NULL) {
        return 1;
    }
    rf_status status = c->number % 3 == 1 ? claim(own, 0, &lease) : RF_OK;
    atomic_store(c->gate, (uint32_t)c->number);
    while (c->number % 3 == 2 && status == RF_OK) {
        status = rf_prng_chance(&prng, 30) ? come_and_go(own, &prng, 1000 + c->number)
                                           : work_a_little(own, &prng);
    }
    if (status != RF_OK) {
        fprintf(stderr, "cycle %u: %s\n", (unsigned)c->number, rf_status_name(status));
        return 2;
    }
    return wait_for_the_end(NULL);
}

/* Runs that their makers could not purge any more. */
static bool note_run(void *context, const rf_run_info *run)
{
    uint64_t *runs = context;
    if (run->run != RUN && runs[0] < 63) {
        runs[++runs[0]] = run->run;
    }
    return true;
}

static void purge_what_was_left(void)
{
    uint64_t runs[64] = {0};
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_list_runs(store, &tenant, note_run, runs, NULL));
    for (uint64_t i = 1; i <= runs[0]; i++) {
        rf_cancel_run(store, rf_now(store), &tenant, runs[i], 3, NULL);
        TEST_ASSERT_EQUAL_INT(RF_OK, rf_purge_run(store, rf_now(store), &tenant, runs[i], NULL));
    }
}

static void claim_nothing_leaked(void)
{
    rf_lease lease;
    rf_inspection seen;
    until_settled(2);
    purge_what_was_left();
    const char *why = rf_fsck(store);
    TEST_ASSERT_NULL_MESSAGE(why, why);
    for (unsigned n = 0; n < SHARDS; n++) {
        TEST_ASSERT_EQUAL_INT(RF_OK, claim(store, 0, &lease));
    }
    TEST_ASSERT_EQUAL_INT(RF_NONE_AVAILABLE, claim(store, 0, &lease));
    rf_complete_run(store, rf_now(store), &tenant, RUN, 77, NULL);
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_purge_run(store, rf_now(store), &tenant, RUN, NULL));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_inspect(store, &seen, NULL));
    TEST_ASSERT_EQUAL_UINT64(0, seen.runs);
    TEST_ASSERT_EQUAL_UINT64(0, seen.shards);
    TEST_ASSERT_EQUAL_UINT64(0, seen.extents);
    TEST_ASSERT_EQUAL_UINT64(0, seen.leaves);
    TEST_ASSERT_EQUAL_UINT64(0, seen.blocks);
    TEST_ASSERT_EQUAL_UINT64(2, seen.members);
}

static void a_thousand_processes_come_and_are_killed_and_nothing_leaks(void)
{
    struct rf_prng prng = {rf_env_number("RF_SEED", 1)};
    struct cycle cycle = {.gate = rf_hands_board(sizeof(*cycle.gate))};
    uint32_t cycles = SLOW_BUILD ? 150 : 1000;
    pid_t before = 0;
    open_and_fill(16);
    for (cycle.number = 1; cycle.number <= cycles; cycle.number++) {
        pid_t pid = rf_hands_send(live_until_killed, &cycle);
        rf_hands_until(cycle.gate, (uint32_t)cycle.number);
        /* Two at a time, so that they are in each other's way. */
        if (before != 0) {
            usleep(rf_prng_below(&prng, 300));
            rf_hands_kill(before);
        }
        before = pid;
    }
    rf_hands_kill(before);
    claim_nothing_leaked();
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_child_of_fork_may_not_use_its_parents_handle_and_opens_its_own);
    RUN_TEST(a_child_of_fork_may_not_use_sessions_and_monitors_either);
    RUN_TEST(a_child_of_fork_does_not_keep_the_store_in_use);
    RUN_TEST(exec_of_another_program_is_the_death_of_the_first);
    RUN_TEST(a_clean_close_gives_up_bound_leases_and_no_detached_ones);
    RUN_TEST(a_detached_lease_is_handed_to_another_process_as_text);
    RUN_TEST(a_full_store_says_so_in_a_clear_sentence);
    RUN_TEST(a_store_full_of_the_dead_can_be_entered_though_those_who_try_are_killed);
    RUN_TEST(a_thousand_processes_come_and_are_killed_and_nothing_leaks);
    return UNITY_END();
}
