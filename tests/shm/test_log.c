/*
 * What is on the disk when a call returns. Every case ends by reading the segments with a reader that knows
 * nothing but their format (logbook.h): what was acknowledged is there, and nothing but a log is.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unity.h>

#include "futex.h"
#include "handle.h"
#include "lane.h"
#include "log.h"
#include "log_entry.h"
#include "logbook.h"
#include "prng.h"
#include "shop.h"
#include "snapshot.h"
#include "vault.h"

#define PATIENCE_MS 60000u /* ends a hang */
#define CANT_TEST   77

static struct vault vault;
static rf_store *store;
static rf_detail detail;

void setUp(void)
{
}

void tearDown(void)
{
    if (store != NULL) {
        rf_close(store);
        store = NULL;
    }
    vault_raze(&vault);
}

/* A store that nobody writes for but those who wait. */
static void found(rf_durability durability)
{
    vault_found(&vault, durability);
    vault.options.flush_interval = VAULT_NEVER;
}

static struct rf_header *header(void)
{
    return rf_handle_of(store)->map->header;
}

static rf_inspection inspect(void)
{
    rf_inspection seen;
    RF_EXPECT(RF_OK, rf_inspect(store, &seen, NULL));
    return seen;
}

/* The disk's own word, at least up to what is said to be durable. */
static struct logbook read_disk(uint64_t at_least)
{
    struct logbook book;
    if (!logbook_read(&book, vault.directory, at_least)) {
        TEST_FAIL_MESSAGE(book.broken);
    }
    return book;
}

static void expect_on_disk(const struct logbook *book, uint64_t op, uint64_t epoch)
{
    char text[80];
    const struct logbook_op *found_op = logbook_find(book, op);
    snprintf(text, sizeof(text), "op %llx of epoch %llu", (unsigned long long)op,
             (unsigned long long)epoch);
    TEST_ASSERT_NOT_NULL_MESSAGE(found_op, text);
    TEST_ASSERT_EQUAL_MESSAGE(epoch, found_op->epoch, text);
}

/* --- one of each --- */

/* Every operation that changes a shard or a run, one after another, with ids from 1 on. */
struct deeds {
    rf_durability how;
    uint64_t epochs[32];
    rf_outcome outcomes[32];
    uint64_t durable[32]; /* right after each */
    unsigned count;
    rf_lease leases[8];
};

static void did(struct deeds *d, rf_status status, const rf_result *result)
{
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &result->detail));
    }
    d->durable[d->count] = rf_durable(store);
    d->epochs[d->count] = result->epoch;
    d->outcomes[d->count] = result->outcome;
    d->count++;
}

#define DID(call)                                                                                  \
    do {                                                                                           \
        rf_result result = {.durability = d->how};                                                 \
        op++;                                                                                      \
        did(d, call, &result);                                                                     \
    } while (0)

/* Whatever is done with a lease, if the leases were taken before. */
static void do_shards(struct deeds *d, uint64_t op)
{
    const rf_tenant *t = &vault.tenant;
    uint64_t now = rf_now(store), ids[2];
    rf_cursor at1 = rf_cursor_at("s00000001a"), at2 = rf_cursor_at("s00000002a");
    rf_child children[] = {rf_child_of("s00000005", "s00000005m"),
                           rf_child_of("s00000005m", "s00000006")};
    rf_spec left = rf_spec_of("s00000006", "s00000006m"),
            right = rf_spec_of("s00000006m", "s00000007");
    DID(rf_checkpoint(store, now, t, &d->leases[1], &at1, op, &result));
    DID(rf_complete(store, now, t, &d->leases[2], &at2, op, &result));
    DID(rf_park(store, now, t, &d->leases[3], RF_PARK_OTHER, op, &result));
    DID(rf_release(store, now, t, &d->leases[4], NULL, op, &result));
    DID(rf_split_replace(store, now, t, &d->leases[5], children, 2, op, ids, &result));
    DID(rf_split_residual(store, now, t, &d->leases[6], &left, &right, op, ids, &result));
    DID(rf_unpark(store, now, t, 1, 3, op, &result));
}

static void do_runs(struct deeds *d, uint64_t op)
{
    const rf_tenant *t = &vault.tenant;
    const rf_run_config config = {.lease_duration = RF_SECOND};
    uint64_t now = rf_now(store);
    rf_shard_input some = rf_input_of(1, "a", "b"), more = rf_input_of(2, "b", "c");
    DID(rf_create_run_with_shards(store, now, t, 2, &config, &some, 1, op, &result));
    DID(rf_add_shards(store, now, t, 2, &more, 1, op, &result));
    DID(rf_complete_run(store, now, t, 2, op, &result));
    DID(rf_create_run_with_shards(store, now, t, 3, &config, &some, 1, op, &result));
    DID(rf_fail_run(store, now, t, 3, op, &result));
    DID(rf_create_run_with_shards(store, now, t, 4, &config, &some, 1, op, &result));
    DID(rf_cancel_run(store, now, t, 4, op, &result));
}

static void take_leases(struct deeds *d)
{
    vault_run(store, &vault, 1, 1, 8, RF_WAIT);
    for (uint64_t i = 1; i <= 6; i++) {
        d->leases[i] = vault_lease(store, &vault, 1, i);
    }
}

static void expect_all_on_disk(const struct deeds *d)
{
    struct logbook book = read_disk(rf_durable(store));
    for (unsigned i = 0; i < d->count; i++) {
        expect_on_disk(&book, i + 1, d->epochs[i]);
    }
    logbook_free(&book);
}

static void waited_deeds(rf_durability of_the_store, rf_durability of_the_call)
{
    struct deeds d = {.how = of_the_call};
    found(of_the_store);
    store = vault_open(&vault);
    take_leases(&d);
    do_shards(&d, 0);
    do_runs(&d, 7);
    for (unsigned i = 0; i < d.count; i++) {
        TEST_ASSERT_TRUE(d.epochs[i] != 0);
        TEST_ASSERT_TRUE(d.durable[i] >= d.epochs[i]);
    }
    expect_all_on_disk(&d);

    const rf_run_config config = {.lease_duration = RF_SECOND};
    rf_result result = {.durability = of_the_call};
    RF_EXPECT(RF_OK, rf_purge_run(store, rf_now(store), &vault.tenant, 3, &result));
    TEST_ASSERT_TRUE(result.epoch > d.epochs[13] && rf_durable(store) >= result.epoch);
    uint64_t purged = result.epoch;
    RF_EXPECT(RF_OK, rf_create_run(store, rf_now(store), &vault.tenant, 9, &config, &result));
    TEST_ASSERT_TRUE(result.epoch > purged && rf_durable(store) >= result.epoch);
}

static void what_waits_is_durable_when_it_returns(void)
{
    waited_deeds(RF_WAIT, 0);
}

static void a_call_may_wait_in_a_store_that_does_not(void)
{
    waited_deeds(RF_NOWAIT, RF_WAIT);
}

static void unwaited_deeds(rf_durability of_the_store, rf_durability of_the_call)
{
    struct deeds d = {.how = of_the_call};
    found(of_the_store);
    store = vault_open(&vault);
    take_leases(&d);
    uint64_t before = rf_durable(store);
    do_shards(&d, 0);
    do_runs(&d, 7);
    for (unsigned i = 0; i < d.count; i++) {
        TEST_ASSERT_TRUE(d.epochs[i] > before);
        TEST_ASSERT_EQUAL(before, d.durable[i]);
    }
    RF_EXPECT(RF_OK, rf_sync(store, d.epochs[d.count - 1], &detail));
    TEST_ASSERT_TRUE(rf_durable(store) >= d.epochs[d.count - 1]);
    expect_all_on_disk(&d);
}

static void what_does_not_wait_gets_an_epoch_to_wait_for(void)
{
    unwaited_deeds(RF_NOWAIT, 0);
}

static void a_call_may_choose_not_to_wait(void)
{
    unwaited_deeds(RF_WAIT, RF_NOWAIT);
}

static void an_epoch_that_has_not_begun_can_not_be_waited_for(void)
{
    found(RF_WAIT);
    store = vault_open(&vault);
    RF_EXPECT(RF_OK, rf_sync(store, 0, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_sync(store, inspect().open_epoch + 1, &detail));
    /* The open one can: it is sealed, with nothing in it. */
    uint64_t open = inspect().open_epoch;
    RF_EXPECT(RF_OK, rf_sync(store, open, &detail));
    TEST_ASSERT_EQUAL(open, rf_durable(store));
    rf_options options = {.read_only = true};
    rf_store *reader;
    RF_EXPECT(RF_OK, rf_open(vault.directory, &options, &reader, &detail));
    TEST_ASSERT_EQUAL(open, rf_durable(reader));
    rf_close(reader);
}

/* --- replays --- */

/* Done without waiting; repeated without waiting, and nothing is written; repeated waiting, and it is there. */
static void expect_replay_waits(const char *what, rf_status (*call)(uint64_t op, rf_result *),
                                uint64_t op)
{
    rf_result first = {.durability = RF_NOWAIT}, again = {.durability = RF_WAIT},
              unwaited = {.durability = RF_NOWAIT};
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, call(op, &first), what);
    TEST_ASSERT_EQUAL_MESSAGE(RF_EXECUTED, first.outcome, what);
    TEST_ASSERT_TRUE_MESSAGE(rf_durable(store) < first.epoch, what);
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, call(op, &unwaited), what);
    TEST_ASSERT_EQUAL_MESSAGE(RF_REPLAYED, unwaited.outcome, what);
    TEST_ASSERT_TRUE_MESSAGE(unwaited.epoch >= first.epoch, what);
    TEST_ASSERT_TRUE_MESSAGE(rf_durable(store) < first.epoch, what);
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, call(op, &again), what);
    TEST_ASSERT_EQUAL_MESSAGE(RF_REPLAYED, again.outcome, what);
    TEST_ASSERT_TRUE_MESSAGE(rf_durable(store) >= first.epoch, what);
    struct logbook book = read_disk(first.epoch);
    expect_on_disk(&book, op, first.epoch);
    logbook_free(&book);
}

static rf_lease held[8];

static rf_status call_checkpoint(uint64_t op, rf_result *result)
{
    rf_cursor at = rf_cursor_at("s00000001a");
    return rf_checkpoint(store, rf_now(store), &vault.tenant, &held[1], &at, op, result);
}
static rf_status call_complete(uint64_t op, rf_result *result)
{
    rf_cursor at = rf_cursor_at("s00000002a");
    return rf_complete(store, rf_now(store), &vault.tenant, &held[2], &at, op, result);
}
static rf_status call_park(uint64_t op, rf_result *result)
{
    return rf_park(store, rf_now(store), &vault.tenant, &held[3], RF_PARK_OTHER, op, result);
}
static rf_status call_release(uint64_t op, rf_result *result)
{
    return rf_release(store, rf_now(store), &vault.tenant, &held[4], NULL, op, result);
}
static rf_status call_split(uint64_t op, rf_result *result)
{
    rf_child children[] = {rf_child_of("s00000005", "s00000005m"),
                           rf_child_of("s00000005m", "s00000006")};
    uint64_t ids[2];
    return rf_split_replace(store, rf_now(store), &vault.tenant, &held[5], children, 2, op, ids,
                            result);
}
static rf_status call_residual(uint64_t op, rf_result *result)
{
    rf_spec left = rf_spec_of("s00000006", "s00000006m"),
            right = rf_spec_of("s00000006m", "s00000007");
    uint64_t id;
    return rf_split_residual(store, rf_now(store), &vault.tenant, &held[6], &left, &right, op, &id,
                             result);
}
static rf_status call_unpark(uint64_t op, rf_result *result)
{
    return rf_unpark(store, rf_now(store), &vault.tenant, 1, 3, op, result);
}
static rf_status call_register(uint64_t op, rf_result *result)
{
    const rf_run_config config = {.lease_duration = RF_SECOND};
    rf_shard_input some = rf_input_of(1, "a", "b");
    return rf_create_run_with_shards(store, rf_now(store), &vault.tenant, 2, &config, &some, 1, op,
                                     result);
}
static rf_status call_add(uint64_t op, rf_result *result)
{
    rf_shard_input some = rf_input_of(2, "b", "c");
    return rf_add_shards(store, rf_now(store), &vault.tenant, 2, &some, 1, op, result);
}
static rf_status call_end(uint64_t op, rf_result *result)
{
    return rf_complete_run(store, rf_now(store), &vault.tenant, 2, op, result);
}

static void a_replay_of_each_kind_waits_like_the_first_time(void)
{
    found(RF_NOWAIT);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, RF_WAIT);
    for (uint64_t i = 1; i <= 6; i++) {
        held[i] = vault_lease(store, &vault, 1, i);
    }
    expect_replay_waits("checkpoint", call_checkpoint, 1);
    expect_replay_waits("complete", call_complete, 2);
    expect_replay_waits("park", call_park, 3);
    expect_replay_waits("release", call_release, 4);
    expect_replay_waits("split_replace", call_split, 5);
    expect_replay_waits("split_residual", call_residual, 6);
    expect_replay_waits("unpark", call_unpark, 7);
    expect_replay_waits("register_shards", call_register, 8);
    expect_replay_waits("add_shards", call_add, 9);
    expect_replay_waits("complete_run", call_end, 10);
}

/* --- what does not wait --- */

static void grants_never_wait_and_renewals_are_not_logged(void)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {.durability = RF_WAIT};
    found(RF_WAIT);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, RF_WAIT);
    uint64_t before = rf_durable(store), open = inspect().open_epoch;
    RF_EXPECT(RF_OK,
              rf_acquire(store, rf_now(store), &vault.tenant, 1, 1, 7, RF_BOUND, &grant, &result));
    TEST_ASSERT_EQUAL(open, result.epoch);
    rf_lease lease = grant.lease;
    RF_EXPECT(RF_OK,
              rf_claim(store, rf_now(store), &vault.tenant, 1, 7, RF_BOUND, 0, &grant, &result));
    TEST_ASSERT_EQUAL(open, result.epoch);
    TEST_ASSERT_EQUAL(before, rf_durable(store));

    struct rf_actor *me = &rf_handle_of(store)->actor;
    uint64_t end = atomic_load(&me->me->lane.end);
    for (unsigned i = 0; i < 100; i++) {
        result.epoch = 99;
        RF_EXPECT(RF_OK, rf_renew(store, rf_now(store), &vault.tenant, &lease, &result));
        TEST_ASSERT_EQUAL(0, result.epoch);
    }
    TEST_ASSERT_EQUAL(end, atomic_load(&me->me->lane.end));
    TEST_ASSERT_EQUAL(open, inspect().open_epoch);
    TEST_ASSERT_EQUAL(before, rf_durable(store));

    /* They are in the log all the same when somebody waits for what came after. */
    result = (rf_result){.durability = RF_WAIT};
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 1, 77, 0, &result));
    struct logbook book = read_disk(result.epoch);
    TEST_ASSERT_EQUAL(3, logbook_find(&book, 77)->version); /* made, acquired, this */
    logbook_free(&book);
}

static void a_barrier_is_for_what_anybody_did(void)
{
    found(RF_NOWAIT);
    store = vault_open(&vault);
    rf_store *other = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    rf_result result = {0};
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 1, 1, 0, &result));
    TEST_ASSERT_TRUE(rf_durable(other) < result.epoch);
    RF_EXPECT(RF_OK, rf_barrier(other, &detail));
    TEST_ASSERT_TRUE(rf_durable(other) >= result.epoch);
    uint64_t batches = inspect().open_epoch;
    RF_EXPECT(RF_OK, rf_barrier(other, &detail)); /* nothing was done since */
    TEST_ASSERT_EQUAL(batches, inspect().open_epoch);
    rf_close(other);
}

static void a_volatile_store_takes_no_notice_of_any_of_it(void)
{
    vault_found(&vault, RF_VOLATILE);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    rf_result result = {.durability = RF_WAIT, .epoch = 5};
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 1, 1, 0, &result));
    TEST_ASSERT_EQUAL(0, result.epoch);
    TEST_ASSERT_EQUAL(0, rf_durable(store));
    RF_EXPECT(RF_OK, rf_sync(store, 12345, &detail));
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    rf_inspection seen = inspect();
    TEST_ASSERT_EQUAL(RF_VOLATILE, seen.durability);
    TEST_ASSERT_EQUAL(0, seen.open_epoch | seen.durable_epoch | seen.log_position);
    TEST_ASSERT_EQUAL_STRING("", seen.io_path);
    struct logbook book;
    TEST_ASSERT_FALSE(logbook_read(&book, vault.directory, 0));
    logbook_free(&book);
}

/* --- what nobody waits for --- */

static bool is_durable(void *context)
{
    return rf_durable(store) >= *(const uint64_t *)context;
}

static bool is_vouched_for(void *context)
{
    (void)context;
    return atomic_load(&header()->log_vouched) >= atomic_load(&header()->log_content);
}

static void the_guardian_writes_what_nobody_waits_for(void)
{
    vault_found(&vault, RF_NOWAIT);
    vault.options.flush_interval = 2 * RF_MILLISECOND;
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, 0);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    uint64_t last = 0, moved = 0;
    for (uint64_t i = 1; i <= 20; i++) {
        rf_result result = {0};
        uint64_t before = rf_durable(store);
        RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, i, i, 0, &result));
        TEST_ASSERT_TRUE(result.epoch > before && result.epoch > last);
        last = result.epoch;
        /* No call is made until it is there: the guardian has to come by itself. */
        TEST_ASSERT_TRUE_MESSAGE(crew_until(is_durable, &last, PATIENCE_MS), "nobody wrote it");
        moved += rf_durable(store) > before;
    }
    TEST_ASSERT_EQUAL(20, moved);
    struct logbook book = read_disk(last);
    expect_on_disk(&book, 20, last);
    logbook_free(&book);
}

static bool is_nobody_flushing(void *context)
{
    (void)context;
    return atomic_load(&header()->flusher) == 0;
}

static void an_idle_store_has_its_last_batch_vouched_for(void)
{
    vault_found(&vault, RF_WAIT);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, 0);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    for (uint64_t i = 1; i <= 3; i++) {
        rf_result result = {0};
        RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, i, i, 0, &result));
        TEST_ASSERT_TRUE_MESSAGE(crew_until(is_vouched_for, NULL, PATIENCE_MS), "nobody vouched");
        TEST_ASSERT_TRUE(atomic_load(&header()->log_content) >= result.epoch);
        struct logbook book = read_disk(rf_durable(store));
        TEST_ASSERT_TRUE(book.vouched >= book.content && book.content >= result.epoch);
        logbook_free(&book);
    }
    /* Then it is quiet: no batch follows the closing one, however often the guardian is woken. */
    TEST_ASSERT_TRUE_MESSAGE(crew_until(is_nobody_flushing, NULL, PATIENCE_MS), "it goes on");
    uint64_t open_epoch = inspect().open_epoch;
    for (unsigned i = 0; i < 5; i++) {
        rf_close(vault_open(&vault)); /* he makes it a member, and looks at the log */
    }
    TEST_ASSERT_EQUAL(open_epoch, inspect().open_epoch);
    TEST_ASSERT_EQUAL(0, atomic_load(&header()->flusher));
}

static void the_last_who_leaves_writes_what_is_left_and_vouches_for_it(void)
{
    for (int manual = 0; manual < 2; manual++) {
        found(RF_NOWAIT);
        store = manual ? vault_open_manual(&vault) : vault_open(&vault);
        vault_run(store, &vault, 1, 1, 8, 0);
        rf_lease lease = vault_lease(store, &vault, 1, 1);
        rf_result result = {0};
        for (uint64_t i = 1; i <= 10; i++) {
            RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, i, i, 0, &result));
        }
        TEST_ASSERT_TRUE(rf_durable(store) < result.epoch);
        rf_close(store);
        store = NULL;
        struct logbook book = read_disk(result.epoch);
        expect_on_disk(&book, 10, result.epoch);
        TEST_ASSERT_TRUE(book.vouched >= book.content);
        logbook_free(&book);
        vault_raze(&vault);
    }
}

/* --- forks --- */

struct child {
    rf_lease lease; /* the parent's */
    uint64_t number;
};

static int use_the_parents_handle(void *argument)
{
    const struct child *child = argument;
    const rf_lease *lease = &child->lease;
    rf_result result = {.durability = RF_WAIT};
    CREW_CHECK(vault_step(store, &vault, lease, 500, 500, 0, &result) == RF_FORKED, "a checkpoint");
    CREW_CHECK(rf_sync(store, 1, &detail) == RF_FORKED, "sync");
    CREW_CHECK(rf_barrier(store, &detail) == RF_FORKED, "barrier");
    CREW_CHECK(rf_durable(store) == 0, "durable");
    rf_close(store);
    /* One of its own works, beside the parent's. */
    rf_store *own = vault_open(&vault);
    rf_lease mine = vault_lease(own, &vault, 1, 2);
    for (uint64_t i = 1; i <= 20; i++) {
        result = (rf_result){.durability = RF_WAIT};
        CREW_CHECK(vault_step(own, &vault, &mine, 100 * child->number + i, 1000 * child->number + i,
                              0, &result) == RF_OK,
                   "its own: %s", result.detail.where);
        CREW_CHECK(rf_durable(own) >= result.epoch, "its own, durable");
    }
    rf_close(own);
    return 0;
}

static void a_child_of_fork_is_refused_and_the_parents_log_goes_on(void)
{
    vault_found(&vault, RF_WAIT);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 8, 0);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    uint64_t op = 0;
    for (uint64_t n = 1; n <= 3; n++) {
        struct child child = {lease, n};
        pid_t pid = crew_start(use_the_parents_handle, &child);
        for (unsigned i = 0; i < 20; i++) {
            rf_result result = {0};
            op++;
            RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, op, op, 0, &result));
            TEST_ASSERT_TRUE(rf_durable(store) >= result.epoch);
        }
        TEST_ASSERT_EQUAL(0, crew_join(pid, PATIENCE_MS));
        rf_lease again = vault_lease(store, &vault, 1, 2); /* the child's is over */
        RF_EXPECT(RF_OK,
                  rf_release(store, rf_now(store), &vault.tenant, &again, NULL, 5000 + op, NULL));
    }
    struct logbook book = read_disk(rf_durable(store));
    TEST_ASSERT_NOT_NULL(logbook_find(&book, op));
    TEST_ASSERT_NOT_NULL(logbook_find(&book, 1020));
    TEST_ASSERT_NULL(logbook_find(&book, 500)); /* nothing of the refused */
    logbook_free(&book);
}

/* --- lanes that were scribbled over --- */

/* The batch is another's, who has not said where it ends: whoever has the next one computes it, and finds that it
 * can't be. That is the log's end, as it would be for its writer. */
static void a_damaged_lane_ends_the_log_for_whoever_meets_it(void)
{
    found(RF_NOWAIT);
    store = vault_open_manual(&vault);
    rf_store *other = vault_open_manual(&vault);
    struct rf_handle *h = rf_handle_of(store);
    vault_run(store, &vault, 1, 1, 2, RF_NOWAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));

    rf_result result = {0};
    uint64_t at = atomic_load(&h->actor.me->lane.end);
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 1, 1, 0, &result));
    uint64_t epoch = result.epoch;
    TEST_ASSERT_EQUAL_UINT64(epoch, atomic_load(&header()->epoch));
    /* Sealed, and in the other's hands for as long as the test takes. */
    struct rf_log_entry *entry = rf_entry_of(h->map, epoch);
    atomic_store(&header()->epoch, epoch + 1);
    atomic_store(&entry->since, rf_monotonic_ns() + 3600 * RF_SECOND);
    atomic_store(&entry->writer, rf_entry_tag(epoch) << 32 | rf_handle_of(other)->actor.id);
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 2, 2, 0, &result));
    TEST_ASSERT_EQUAL_UINT64(epoch + 1, result.epoch);
    struct rf_lane_record *r = (void *)rf_lane_unit(h->map, h->actor.lane, at);
    TEST_ASSERT_EQUAL_UINT64(epoch, r->epoch);
    uint32_t units = r->units;
    r->units = 0;

    RF_EXPECT(RF_IO_ERROR, rf_sync(store, result.epoch, &detail));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "log|open the store again");
    TEST_ASSERT_TRUE(inspect().log_failed);
    RF_EXPECT(RF_IO_ERROR, rf_barrier(other, &detail));
    r->units = units; /* closing walks over it */
    rf_close(other);
}

/* A limit of this process, which would kill it if it were asked too much, is no fault of the disk's. */
static void a_limit_of_file_sizes_does_not_end_the_log(void)
{
    struct rlimit all, few;
    rf_result result = {0};
    found(RF_WAIT);
    store = vault_open_manual(&vault);
    vault_run(store, &vault, 1, 1, 2, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    TEST_ASSERT_EQUAL(0, getrlimit(RLIMIT_FSIZE, &all));
    few = all;
    few.rlim_cur = 1u << 20;
    TEST_ASSERT_EQUAL(0, setrlimit(RLIMIT_FSIZE, &few));
    rf_status status = vault_step(store, &vault, &lease, 1, 1, 0, &result);
    TEST_ASSERT_EQUAL(0, setrlimit(RLIMIT_FSIZE, &all));
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(RF_RESOURCE_EXHAUSTED, &result.detail, "ulimit -f");
    TEST_ASSERT_FALSE(inspect().log_failed);
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 2, 2, 0, &result));
    TEST_ASSERT_TRUE(rf_durable(store) >= result.epoch);
}

/* The word of somebody who was last heard of so many seconds ago. */
static uint64_t heard_of(uint32_t id, uint64_t seconds)
{
    return (rf_monotonic_ns() - seconds * RF_SECOND) >> 26 << 32 | id;
}

/* Somebody who lives and is stopped in the middle of one. */
static void a_snapshotter_who_is_not_heard_of_is_named_and_replaced(void)
{
    found(RF_NOWAIT);
    store = vault_open_manual(&vault);
    rf_store *stopped = vault_open_manual(&vault);
    struct rf_actor *actor = &rf_handle_of(stopped)->actor;
    vault_run(store, &vault, 1, 1, 2, RF_NOWAIT);
    TEST_ASSERT_TRUE(rf_monotonic_ns() > 12 * RF_SECOND);
    RF_EXPECT(RF_OK, rf_snapshotter_enter(actor, &detail));
    RF_EXPECT(RF_BUSY, rf_snapshot(store, &detail));
    TEST_ASSERT_EQUAL_UINT32(0, inspect().snapshot_held_by);
    atomic_store(&header()->snapshotter, heard_of(actor->id, 5));
    RF_EXPECT(RF_BUSY, rf_snapshot(store, &detail));
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), inspect().snapshot_held_by);
    atomic_store(&header()->snapshotter, heard_of(actor->id, 11));
    RF_EXPECT(RF_OK, rf_snapshot(store, &detail));
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&header()->snapshotter));
    atomic_store(&header()->snapshotter, heard_of(actor->id, 11));
    rf_snapshotter_leave(actor);
    TEST_ASSERT_EQUAL_UINT64(0, atomic_load(&header()->snapshotter));
    rf_close(stopped);
}

/* Then the log grows until it has come to its end, or is killed. */
static void who_takes_a_backup_is_named_when_the_next_snapshot_is_due(void)
{
    found(RF_NOWAIT);
    vault.options.snapshot_bytes = 1u << 20;
    store = vault_open_manual(&vault);
    rf_store *keeper = vault_open_manual(&vault);
    struct rf_actor *actor = &rf_handle_of(keeper)->actor;
    vault_run(store, &vault, 1, 1, 2, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    RF_EXPECT(RF_OK, rf_snapshotter_enter(actor, &detail));
    rf_snapshotter_keep(actor);
    for (uint64_t n = 1; n <= 80; n++) {
        TEST_ASSERT_TRUE(n > 40 || inspect().snapshot_held_by == 0);
        rf_result result = {.durability = RF_WAIT};
        RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, n, n, RF_TOKEN_MAX, &result));
    }
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), inspect().snapshot_held_by);
    rf_snapshotter_leave(actor);
    TEST_ASSERT_EQUAL_UINT32(0, inspect().snapshot_held_by);
    rf_close(keeper);
}

/* Neither the snapshot that it begins with nor anybody who would like to take one changes that. */
static void who_takes_a_backup_is_not_replaced_however_long_it_takes(void)
{
    found(RF_NOWAIT);
    store = vault_open_manual(&vault);
    rf_store *keeper = vault_open_manual(&vault);
    struct rf_actor *actor = &rf_handle_of(keeper)->actor;
    vault_run(store, &vault, 1, 1, 2, RF_NOWAIT);
    RF_EXPECT(RF_OK, rf_snapshotter_enter(actor, &detail));
    rf_snapshotter_keep(actor);
    uint64_t kept = (uint64_t)RF_SNAPSHOTTER_KEPT << 32 | actor->id;
    TEST_ASSERT_EQUAL_HEX64(kept, atomic_load(&header()->snapshotter));
    RF_EXPECT(RF_OK, rf_snapshot_take_entered(actor, actor->logger, &detail));
    TEST_ASSERT_EQUAL_HEX64(kept, atomic_load(&header()->snapshotter));
    RF_EXPECT(RF_BUSY, rf_snapshot(store, &detail));
    TEST_ASSERT_EQUAL_HEX64(kept, atomic_load(&header()->snapshotter));
    TEST_ASSERT_EQUAL_UINT32(0, inspect().snapshot_held_by);
    rf_snapshotter_leave(actor);
    RF_EXPECT(RF_OK, rf_snapshot(store, &detail));
    rf_close(keeper);
}

static void tell(void *context, const char *what)
{
    (void)context;
    printf("  %s\n", what);
}

/* Leases two shards, and is killed with them. */
static int lease_two(void *argument)
{
    _Atomic uint32_t *ready = argument;
    rf_store *own = vault_open(&vault);
    uint32_t first = 2 * atomic_load(ready) + 1;
    for (uint32_t i = first; i < first + 2; i++) {
        vault_lease(own, &vault, 1, i);
    }
    atomic_fetch_add(ready, 1);
    crew_sleep_ms(PATIENCE_MS);
    return 1;
}

/* Whoever finds all slots taken by the dead ends their leases from the slot for repairs: into the log, too. */
static void a_store_full_of_the_dead_can_be_entered(void)
{
    enum { MEMBERS = 2 };
    pid_t pids[MEMBERS];
    _Atomic uint32_t *ready = crew_shared(sizeof(*ready));
    rf_verification v = {0};
    found(RF_WAIT);
    vault.options.max_members = MEMBERS; /* a handle and a guardian each */
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 2 * MEMBERS, RF_WAIT);
    rf_close(store);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        pids[i] = crew_start(lease_two, (void *)ready);
        while (atomic_load(ready) == i) {
            usleep(1000);
        }
    }
    crew_stop(pids[0]); /* or it would settle the other */
    crew_kill(pids[1]);
    crew_kill(pids[0]);
    store = vault_open(&vault);
    TEST_ASSERT_NOT_EQUAL(0, inspect().leases_lost);
    for (uint32_t i = 1; i <= 2 * MEMBERS; i++) {
        vault_lease(store, &vault, 1, i);
    }
    RF_EXPECT(RF_OK, rf_verify(store, tell, NULL, &v, &detail));
    TEST_ASSERT_EQUAL_UINT64(0, v.differences);
    crew_unshare((void *)ready, sizeof(*ready));
}

static void touch(const char *name, uint32_t id, char path[200])
{
    snprintf(path, 200, "%.96s/tmp.%s.%08" PRIx32 "00000001.0", vault.directory, name, id);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, path);
    close(fd);
}

static void what_the_dead_had_begun_goes_with_the_next_snapshot(void)
{
    char theirs[2][200], ours[2][200];
    found(RF_NOWAIT);
    store = vault_open_manual(&vault);
    rf_store *other = vault_open_manual(&vault);
    vault_run(store, &vault, 1, 1, 2, RF_NOWAIT);
    uint32_t id = rf_handle_of(other)->actor.id;
    rf_close(other);
    touch("log.0000000000000007", id, theirs[0]);
    touch("snapshot.0000000000000007", id, theirs[1]);
    touch("log.0000000000000007", rf_handle_of(store)->actor.id, ours[0]);
    touch("snapshot.0000000000000007", rf_handle_of(store)->actor.id, ours[1]);
    RF_EXPECT(RF_OK, rf_snapshot(store, &detail));
    for (unsigned i = 0; i < 2; i++) {
        TEST_ASSERT_NOT_EQUAL(0, access(theirs[i], F_OK));
        TEST_ASSERT_EQUAL_MESSAGE(0, access(ours[i], F_OK), ours[i]);
    }
}

/* Far from its beginning a search that looks at a block here and there finds only zeros in it, and must not take them
 * for what is behind the end: a batch that vouches for this one follows. */
static void a_damaged_batch_full_of_zeros_is_not_taken_for_the_end(void)
{
    enum { HANDLES = 4, STEPS = 200 };
    rf_store *stores[HANDLES];
    char region[128], path[160];
    rf_result result = {0};
    found(RF_NOWAIT);
    vault.options.segment_bytes = 16u << 20;
    vault.options.max_bytes = 1u << 20;
    store = stores[0] = vault_open_manual(&vault);
    vault_run(store, &vault, 1, 1, HANDLES, RF_NOWAIT);
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    uint64_t position = inspect().log_position;
    for (uint32_t i = 0; i < HANDLES; i++) {
        stores[i] = i == 0 ? store : vault_open_manual(&vault);
        rf_lease lease = vault_lease(stores[i], &vault, 1, i + 1);
        for (uint64_t n = 1; n <= STEPS; n++) {
            RF_EXPECT(RF_OK, vault_step(stores[i], &vault, &lease, n, 1000 * i + n, RF_TOKEN_MAX,
                                        &result));
        }
    }
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    TEST_ASSERT_TRUE(inspect().log_position - position > 12000000);
    snprintf(region, sizeof(region), "%.120s", rf_handle_of(store)->map->region_path);
    for (uint32_t i = HANDLES; i-- > 0;) {
        rf_close(stores[i]);
    }
    store = NULL;
    TEST_ASSERT_EQUAL(0, unlink(region));
    snprintf(path, sizeof(path), "%s/log.0000000000000000", vault.directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    static const uint8_t zeros[RF_LOG_BLOCK];
    TEST_ASSERT_EQUAL(RF_LOG_BLOCK,
                      pwrite(fd, zeros, RF_LOG_BLOCK, (off_t)(RF_LOG_BLOCK + position)));
    close(fd);
    RF_EXPECT(RF_CORRUPT, rf_open(vault.directory, &vault.options, &store, &detail));
    rf_shop_expect_words(RF_CORRUPT, &detail, "log.0000000000000000|a later");
}

/* It is the whole store that has come to its end, though nothing of it is missing on the disk. */
static void a_barrier_fails_after_a_write_error_and_what_is_durable_stays_so(void)
{
    found(RF_WAIT);
    store = vault_open_manual(&vault);
    vault_run(store, &vault, 1, 1, 2, RF_WAIT);
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    uint64_t durable = rf_durable(store);
    TEST_ASSERT_TRUE(durable != 0);
    atomic_store(&header()->condemned,
                 EIO + 1); /* as if the next one, of somebody else, had failed */
    RF_EXPECT(RF_IO_ERROR, rf_barrier(store, &detail));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "log|open the store again");
    TEST_ASSERT_EQUAL_INT(EIO, detail.os_error);
    RF_EXPECT(RF_OK, rf_sync(store, durable, &detail));
}

/* --- sizes --- */

/* With less, a record of the largest size and its filler would be waited for for ever. */
static void a_lane_that_is_too_small_for_a_log_is_refused(void)
{
    found(RF_NOWAIT);
    RF_EXPECT(RF_INVALID_ARGUMENT, vault_try_lanes(&vault, 131072, &detail));
    rf_shop_expect_words(RF_INVALID_ARGUMENT, &detail, "lane_bytes|131072|262144");
    TEST_ASSERT_TRUE(131072 / RF_LINE < 2 * RF_LANE_UNITS_MAX);
    TEST_ASSERT_TRUE(262144 / RF_LINE >= 2 * RF_LANE_UNITS_MAX);
    RF_EXPECT(RF_OK, vault_try_lanes(&vault, 262144, &detail));
}

/* Lanes of 256 KiB, the least that holds two records of any size, and segments of 64 KiB. */
static void lanes_and_segments_are_passed_many_times(void)
{
    struct rf_prng prng = {rf_env_number("RF_SEED", 41)};
    uint64_t ops = crew_amount(4000, 400000), op = 0;
    vault_found(&vault, RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    vault_small_lanes(&vault, 262144);
    rf_store *handles[3];
    rf_lease leases[3];
    for (unsigned i = 0; i < 3; i++) {
        handles[i] = vault_open(&vault);
        if (i == 0) {
            vault_run(handles[0], &vault, 1, 1, 3, 0);
        }
        leases[i] = vault_lease(handles[i], &vault, 1, i + 1);
    }
    store = handles[0];
    uint64_t *epochs = calloc(ops + 1, sizeof(*epochs));
    while (op < ops) {
        unsigned who = rf_prng_below(&prng, 3);
        uint32_t kind = rf_prng_below(&prng, 20);
        rf_result result = {.durability = kind == 0 ? RF_WAIT : RF_NOWAIT};
        size_t token = kind < 3   ? RF_TOKEN_MAX - rf_prng_below(&prng, 5)
                       : kind < 8 ? rf_prng_below(&prng, 3000)
                                  : 0;
        op++;
        RF_EXPECT(RF_OK, vault_step(handles[who], &vault, &leases[who], op, op, token, &result));
        epochs[op] = result.epoch;
        TEST_ASSERT_TRUE(kind != 0 || rf_durable(store) >= result.epoch);
    }
    uint64_t units = atomic_load(&rf_handle_of(handles[0])->actor.me->lane.end);
    printf("  a lane was passed %.1f times\n", (double)units / 4096.0);
    TEST_ASSERT_TRUE(units / 4096 >= ops / 500);
    RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    struct logbook book = read_disk(rf_durable(store));
    printf(
        "  %llu records in %llu batches, %llu of which cross segments, the largest of %llu bytes\n",
        (unsigned long long)book.records, (unsigned long long)book.batches,
        (unsigned long long)book.crossing, (unsigned long long)book.largest);
    TEST_ASSERT_TRUE(book.crossing > 0 && book.end > 10 * 65536);
    for (uint64_t i = 1; i <= ops; i++) {
        expect_on_disk(&book, i, epochs[i]);
    }
    logbook_free(&book);
    free(epochs);
    rf_close(handles[1]);
    rf_close(handles[2]);
}

static void one_batch_of_many_segments(void)
{
    found(RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 3, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    rf_result result = {0};
    /* Below an eighth of the lane, or the guardian would be told to hurry. */
    for (uint64_t i = 1; i <= 25; i++) {
        RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, i, i, RF_TOKEN_MAX, &result));
    }
    uint64_t epoch = result.epoch;
    RF_EXPECT(RF_OK, rf_sync(store, epoch, &detail));
    struct logbook book = read_disk(epoch);
    for (uint64_t i = 1; i <= 25; i++) {
        expect_on_disk(&book, i, epoch);
    }
    TEST_ASSERT_TRUE(book.largest > 6 * 65536 && book.crossing == 1);
    logbook_free(&book);
}

/* Segments are left to the one who makes them; this one never goes on with it. */
static void segments_come_about_though_their_maker_has_stopped(void)
{
    found(RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    store = vault_open(&vault);
    rf_store *stopped = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 3, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    rf_result result = {0};
    uint64_t nobody = 0, id = rf_handle_of(stopped)->actor.id, op = 0;
    while (!atomic_compare_exchange_strong(&header()->filler, &nobody, id)) {
        nobody = 0; /* the guardian is at it */
    }
    uint64_t made = atomic_load(&header()->log_made);
    while (atomic_load(&header()->log_made) < made + 4 && op < 1000) {
        op++;
        RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, op, op, RF_TOKEN_MAX, &result));
    }
    TEST_ASSERT_TRUE(atomic_load(&header()->log_made) >= made + 4);
    TEST_ASSERT_NOT_EQUAL(id, atomic_load(&header()->filler));
    RF_EXPECT(RF_OK, rf_sync(store, result.epoch, &detail));
    struct logbook book = read_disk(result.epoch);
    expect_on_disk(&book, op, result.epoch);
    logbook_free(&book);
    rf_close(stopped);
}

/* --- chains --- */

static void a_registration_of_20000_shards_is_one_chain(void)
{
    for (int small = 0; small < 2; small++) {
        found(RF_WAIT);
        if (small) {
            vault_small_lanes(&vault, 262144); /* the chain is written while it is made */
        }
        store = vault_open(&vault);
        vault_run(store, &vault, 1, 1, 20000, RF_WAIT);
        struct logbook book = read_disk(rf_durable(store));
        TEST_ASSERT_EQUAL(20000, book.made);
        TEST_ASSERT_EQUAL(1, book.chains);
        TEST_ASSERT_TRUE(book.chunks > 10);
        TEST_ASSERT_NOT_NULL(logbook_find(&book, 0x7000001));
        logbook_free(&book);
        tearDown();
    }
}

static void split_in_256(const rf_lease *lease, uint64_t op, rf_result *result)
{
    static uint8_t metadata[RF_METADATA_MAX];
    static char points[257][32];
    static rf_child children[256];
    uint64_t ids[256];
    for (unsigned i = 0; i <= 256; i++) {
        if (i == 0 || i == 256) {
            snprintf(points[i], 32, "s%08u", (unsigned)lease->shard + (i == 256));
        } else {
            snprintf(points[i], 32, "s%08u-%03u", (unsigned)lease->shard, i);
        }
    }
    for (unsigned i = 0; i < 256; i++) {
        metadata[0] = (uint8_t)i;
        children[i] = rf_child_of(points[i], points[i + 1]);
        children[i].spec.metadata = rf_bytes_of(metadata, sizeof(metadata));
    }
    rf_status status = rf_split_replace(store, rf_now(store), &vault.tenant, lease, children, 256,
                                        op, ids, result);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &result->detail));
    }
}

static void a_split_in_256_with_much_metadata_is_one_chain(void)
{
    for (int small = 0; small < 2; small++) {
        found(RF_WAIT);
        if (small) {
            vault_small_lanes(&vault, 262144);
        }
        store = vault_open(&vault);
        vault_run(store, &vault, 1, 1, 3, RF_WAIT);
        rf_lease lease = vault_lease(store, &vault, 1, 2);
        rf_result result = {0};
        split_in_256(&lease, 1, &result);
        TEST_ASSERT_TRUE(rf_durable(store) >= result.epoch);
        struct logbook book = read_disk(rf_durable(store));
        expect_on_disk(&book, 1, result.epoch);
        TEST_ASSERT_EQUAL(3 + 256, book.made);
        TEST_ASSERT_EQUAL(1, book.chains);
        TEST_ASSERT_TRUE(book.chunks > 64);
        logbook_free(&book);
        tearDown();
    }
}

struct crowd {
    _Atomic uint32_t ready, stop;
    _Atomic uint64_t acknowledged[8];
    uint64_t epochs[8][65536];
};

/* Operation ids of process i: (i + 1) << 32 | n. */
struct walker {
    struct crowd *crowd;
    unsigned index;
    uint64_t ops; /* 0: until told to stop */
};

/* Steps on its own shard; every now and then one that others use, too. */
static int walk(void *argument)
{
    const struct walker *w = argument;
    struct crowd *c = w->crowd;
    rf_store *own = vault_open(&vault);
    rf_lease lease = vault_lease(own, &vault, 1, w->index + 1);
    struct rf_prng prng = {w->index + 1};
    static uint8_t scratch[RF_GRANT_SCRATCH];
    atomic_fetch_add(&c->ready, 1);
    for (uint64_t n = 1; w->ops == 0 ? atomic_load(&c->stop) == 0 : n <= w->ops; n++) {
        uint64_t op = (uint64_t)(w->index + 1) << 32 | n;
        rf_result result = {.durability = RF_WAIT};
        rf_status status;
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        if (rf_prng_chance(&prng, 25) && rf_acquire(own, rf_now(own), &vault.tenant, 1, 9, w->index,
                                                    RF_BOUND, &grant, NULL) == RF_OK) {
            status = rf_release(own, rf_now(own), &vault.tenant, &grant.lease, NULL, op, &result);
        } else {
            status = vault_step(own, &vault, &lease, n, op, rf_prng_below(&prng, 400), &result);
        }
        CREW_CHECK(status == RF_OK, "%s %s", rf_status_name(status), result.detail.where);
        CREW_CHECK(rf_durable(own) >= result.epoch, "acknowledged and not durable");
        c->epochs[w->index][n] = result.epoch;
        atomic_store(&c->acknowledged[w->index], n);
        if (n == 65535) {
            break;
        }
    }
    rf_close(own);
    return 0;
}

/* What was acknowledged before the disk was read is on it. */
static void expect_acknowledged(const struct crowd *c, unsigned walkers)
{
    uint64_t counts[8], total = 0;
    for (unsigned i = 0; i < walkers; i++) {
        counts[i] = atomic_load(&c->acknowledged[i]);
    }
    struct logbook book = read_disk(rf_durable(store));
    for (unsigned i = 0; i < walkers; i++) {
        for (uint64_t n = 1; n <= counts[i]; n++) {
            expect_on_disk(&book, (uint64_t)(i + 1) << 32 | n, c->epochs[i][n]);
        }
        total += counts[i];
    }
    printf("  %llu acknowledged: %llu batches, %llu of several lanes\n", (unsigned long long)total,
           (unsigned long long)book.batches, (unsigned long long)book.wide);
    logbook_free(&book);
}

static void what_8_processes_were_told_is_on_the_disk(void)
{
    struct crowd *c = crew_shared(sizeof(*c));
    struct walker walkers[8];
    pid_t pids[8];
    vault_found(&vault, RF_WAIT);
    vault.options.segment_bytes = 65536;
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 9, 0);
    for (unsigned i = 0; i < 8; i++) {
        walkers[i] = (struct walker){c, i, crew_amount(400, 20000)};
        pids[i] = crew_start(walk, &walkers[i]);
    }
    /* In the middle of it, too: what is being written now is not wrong, only not there. */
    for (unsigned i = 0; i < 5; i++) {
        crew_sleep_ms(30);
        expect_acknowledged(c, 8);
    }
    for (unsigned i = 0; i < 8; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(pids[i], PATIENCE_MS));
    }
    expect_acknowledged(c, 8);
    for (unsigned i = 0; i < 8; i++) {
        TEST_ASSERT_EQUAL(walkers[i].ops, atomic_load(&c->acknowledged[i]));
    }
    crew_unshare(c, sizeof(*c));
}

static void shards_are_added_to_a_run_that_others_work_on(void)
{
    enum { BATCH = 2000 };
    struct crowd *c = crew_shared(sizeof(*c));
    struct walker walkers[2] = {{c, 0, 0}, {c, 1, 0}};
    static rf_shard_input inputs[BATCH];
    static char keys[BATCH + 1][32];
    pid_t pids[2];
    vault_found(&vault, RF_WAIT);
    vault_small_lanes(&vault, 262144);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 9, 0);
    for (unsigned i = 0; i < 2; i++) {
        pids[i] = crew_start(walk, &walkers[i]);
    }
    while (atomic_load(&c->ready) < 2) {
        crew_sleep_ms(1);
    }
    for (unsigned round = 0; round < 4; round++) {
        rf_result result = {0};
        for (unsigned i = 0; i <= BATCH; i++) {
            snprintf(keys[i], sizeof(keys[i]), "t%u-%05u", round, i);
        }
        for (unsigned i = 0; i < BATCH; i++) {
            inputs[i] = rf_input_of(1000 + round * BATCH + i, keys[i], keys[i + 1]);
        }
        RF_EXPECT(RF_OK, rf_add_shards(store, rf_now(store), &vault.tenant, 1, inputs, BATCH,
                                       round + 1, &result));
        TEST_ASSERT_TRUE(rf_durable(store) >= result.epoch);
    }
    atomic_store(&c->stop, 1);
    for (unsigned i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(pids[i], PATIENCE_MS));
    }
    expect_acknowledged(c, 2);
    struct logbook book = read_disk(rf_durable(store));
    TEST_ASSERT_EQUAL(4, book.chains);
    TEST_ASSERT_EQUAL(9 + 4 * BATCH, book.made);
    logbook_free(&book);
    crew_unshare(c, sizeof(*c));
}

/* --- looking at it --- */

static void an_inspection_tells_about_the_log(void)
{
    found(RF_NOWAIT);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 3, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    rf_result result = {0};
    RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, 1, 1, 0, &result));
    rf_inspection before = inspect();
    TEST_ASSERT_EQUAL(RF_NOWAIT, before.durability);
    TEST_ASSERT_FALSE(before.log_failed || before.log_short);
    TEST_ASSERT_EQUAL(rf_durable(store), before.durable_epoch);
    TEST_ASSERT_EQUAL(result.epoch, before.open_epoch);
    RF_EXPECT(RF_OK, rf_sync(store, result.epoch, &detail));
    rf_inspection after = inspect();
    TEST_ASSERT_EQUAL(result.epoch, after.durable_epoch);
    TEST_ASSERT_EQUAL(result.epoch + 1, after.open_epoch);
    TEST_ASSERT_EQUAL(before.log_position + RF_LOG_BLOCK, after.log_position);
    struct logbook book = read_disk(result.epoch);
    TEST_ASSERT_EQUAL(book.end, after.log_position);
    TEST_ASSERT_EQUAL(book.last, after.durable_epoch);
    logbook_free(&book);
    /* Whatever this machine allows; and if it is not the best, there is a reason. */
    printf("  %s%s%s\n", after.io_path, after.io_why[0] != 0 ? ": " : "", after.io_why);
    TEST_ASSERT_TRUE(strstr(after.io_path, "direct") != NULL ||
                     strstr(after.io_path, "buffered") != NULL);
    TEST_ASSERT_EQUAL(strcmp(after.io_path, "io_uring, direct") == 0, after.io_why[0] == 0);
}

/* --- what may be refused --- */

static bool deny_io_uring(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 4, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static bool mount_here(const char *type, const char *options)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount(type, vault.directory, type, 0, options) == 0;
}

/* The system call, with any of these flags in this argument, fails. */
#define SAME_OWNER 0xFFFFFFFFu /* of fchown: only the group is given */
static bool deny(uint32_t call, unsigned argument, uint32_t flags, uint32_t error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 (uint32_t)(offsetof(struct seccomp_data, args) + 8 * argument)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = 6, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

struct ban {
    uint32_t call;
    unsigned argument;
    uint32_t flags;
    uint32_t error;
    rf_status status;
    const char *words;
    uint64_t number; /* operation ids from here on */
};

/* Without a guardian, and with large steps: sooner or later he has to write into a segment that he has not open, or
 * that is not there yet. */
static int work_banned(void *argument)
{
    const struct ban *ban = argument;
    rf_store *own = vault_open_manual(&vault);
    rf_lease lease = vault_lease(own, &vault, 1, ban->number / 1000 + 1);
    rf_status status = RF_OK;
    rf_result result = {0};
    if (!deny(ban->call, ban->argument, ban->flags, ban->error)) {
        return CANT_TEST;
    }
    for (uint64_t i = 1; status == RF_OK && i <= 300; i++) {
        result = (rf_result){.durability = RF_WAIT};
        status = vault_step(own, &vault, &lease, ban->number + i, ban->number + i, 16000, &result);
    }
    const char *sentence = rf_shop_sentence(status, &result.detail);
    CREW_CHECK(status == ban->status && result.detail.os_error == (int32_t)ban->error,
               "ban %llu: %s", (unsigned long long)ban->number / 1000, sentence);
    CREW_CHECK(strstr(sentence, ban->words) != NULL, "%s", sentence);
    rf_inspection seen;
    CREW_CHECK(rf_inspect(own, &seen, NULL) == RF_OK && !seen.log_failed, "the log has failed");
    _exit(0); /* closing would write */
}

/* Nothing was written, so nothing is lost: those who may go on. */
static void who_may_not_open_the_log_does_not_end_it_for_others(void)
{
    static const struct ban bans[] = {
        {SYS_openat, 2, O_DIRECT, EACCES, RF_PERMISSION_DENIED, "this process may not open", 1000},
        {SYS_openat, 2, O_DIRECT, EPERM, RF_PERMISSION_DENIED, "this process may not open", 2000},
        {SYS_openat, 2, O_DIRECT, ENOMEM, RF_RESOURCE_EXHAUSTED, "no memory to open", 3000},
        {SYS_openat, 2, O_CREAT, EACCES, RF_PERMISSION_DENIED, "this process may not open", 4000},
        /* what makes a segment: the store's group, and zeros */
        {SYS_fchown, 1, SAME_OWNER, EPERM, RF_PERMISSION_DENIED, "this process may not open", 5000},
        {SYS_mmap, 3, MAP_NORESERVE, ENOMEM, RF_RESOURCE_EXHAUSTED, "no memory to open", 6000},
    };
    found(RF_WAIT);
    vault.options.segment_bytes = 65536;
    vault.options.has_group = true;
    vault.options.group = (uint32_t)getgid();
    store = vault_open_manual(&vault);
    vault_run(store, &vault, 1, 1, 7, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    for (uint64_t i = 0; i < sizeof(bans) / sizeof(bans[0]); i++) {
        struct ban ban = bans[i];
        int code = crew_join(crew_start(work_banned, &ban), PATIENCE_MS);
        if (code == CANT_TEST) {
            TEST_IGNORE_MESSAGE("a seccomp filter can't be set here");
        }
        TEST_ASSERT_EQUAL(0, code);
        rf_result result = {0};
        RF_EXPECT(RF_OK, vault_step(store, &vault, &lease, i + 1, i + 1, 0, &result));
        RF_EXPECT(RF_OK, rf_barrier(store, &detail));
    }
    /* What could not be written by whoever did it was written by somebody else. */
    struct logbook book = read_disk(rf_durable(store));
    for (uint64_t i = 0; i < sizeof(bans) / sizeof(bans[0]); i++) {
        TEST_ASSERT_NOT_NULL(logbook_find(&book, bans[i].number + 1));
    }
    logbook_free(&book);
}

struct refusal {
    bool ramfs;
    bool uring;
    const char *path;
    const char *words[2];
};

/* The same work as everywhere, in a process of its own that something is kept from. */
static int work_without(void *argument)
{
    const struct refusal *refusal = argument;
    if ((refusal->ramfs && !mount_here("ramfs", NULL)) || (refusal->uring && !deny_io_uring())) {
        return CANT_TEST;
    }
    vault.options.segment_bytes = 65536;
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, 3000, 0);
    rf_lease lease = vault_lease(store, &vault, 1, 1);
    for (uint64_t i = 1; i <= 60; i++) {
        rf_result result = {.durability = i % 4 == 0 ? RF_WAIT : RF_NOWAIT};
        CREW_CHECK(vault_step(store, &vault, &lease, i, i, i % 3 * 8000, &result) == RF_OK, "%s",
                   result.detail.where);
        CREW_CHECK(i % 4 != 0 || rf_durable(store) >= result.epoch, "not durable");
    }
    CREW_CHECK(rf_barrier(store, &detail) == RF_OK, "%s", detail.where);
    rf_inspection seen;
    CREW_CHECK(rf_inspect(store, &seen, NULL) == RF_OK, "inspect");
    CREW_CHECK(strcmp(seen.io_path, refusal->path) == 0, "it writes by %s", seen.io_path);
    for (unsigned i = 0; i < 2 && refusal->words[i] != NULL; i++) {
        CREW_CHECK(strstr(seen.io_why, refusal->words[i]) != NULL, "it says: %s", seen.io_why);
    }
    struct logbook book;
    CREW_CHECK(logbook_read(&book, vault.directory, rf_durable(store)), "%s", book.broken);
    for (uint64_t i = 1; i <= 60; i++) {
        CREW_CHECK(logbook_find(&book, i) != NULL, "step %llu", (unsigned long long)i);
    }
    CREW_CHECK(book.made == 3000 && book.chains == 1, "the shards");
    rf_close(store);
    return 0;
}

/* What stderr was used for since `kept` stands for it; says it again there. */
static unsigned lines_of(FILE *kept, const char *word, unsigned *others)
{
    char line[600];
    unsigned count = 0;
    *others = 0;
    rewind(kept);
    while (fgets(line, sizeof(line), kept) != NULL) {
        fputs(line, stderr);
        bool one = strncmp(line, "ringfence: ", 11) == 0 && strstr(line, word) != NULL;
        count += one;
        *others += !one;
    }
    return count;
}

static void expect_the_same_without(struct refusal refusal, const char *needs)
{
    vault_found(&vault, RF_WAIT);
    FILE *kept = tmpfile();
    int before = dup(STDERR_FILENO);
    TEST_ASSERT_TRUE(kept != NULL && before >= 0);
    TEST_ASSERT_EQUAL(STDERR_FILENO, dup2(fileno(kept), STDERR_FILENO));
    int code = crew_join(crew_start(work_without, &refusal), PATIENCE_MS);
    TEST_ASSERT_EQUAL(STDERR_FILENO, dup2(before, STDERR_FILENO));
    close(before);
    unsigned others, said = lines_of(kept, refusal.words[0], &others);
    fclose(kept);
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE(needs);
    }
    TEST_ASSERT_EQUAL(0, code);
    /* Once a process, however many write in it and whatever they find out. */
    TEST_ASSERT_EQUAL(1, said);
    TEST_ASSERT_EQUAL(0, others);
}

static void without_io_uring_it_is_the_same(void)
{
    expect_the_same_without((struct refusal){.uring = true,
                                             .path = "pwritev2, direct",
                                             .words = {"io_uring", "not permitted"}},
                            "a seccomp filter can't be set here");
}

static void without_o_direct_it_is_the_same(void)
{
    expect_the_same_without(
        (struct refusal){.ramfs = true, .path = "io_uring, buffered", .words = {"O_DIRECT"}},
        "needs root, for a mount of its own");
}

static void without_both_it_is_the_same(void)
{
    expect_the_same_without((struct refusal){.ramfs = true,
                                             .uring = true,
                                             .path = "pwritev2, buffered",
                                             .words = {"io_uring", "O_DIRECT"}},
                            "needs root, for a mount of its own");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_waits_is_durable_when_it_returns);
    RUN_TEST(a_call_may_wait_in_a_store_that_does_not);
    RUN_TEST(what_does_not_wait_gets_an_epoch_to_wait_for);
    RUN_TEST(a_call_may_choose_not_to_wait);
    RUN_TEST(an_epoch_that_has_not_begun_can_not_be_waited_for);
    RUN_TEST(a_replay_of_each_kind_waits_like_the_first_time);
    RUN_TEST(grants_never_wait_and_renewals_are_not_logged);
    RUN_TEST(a_barrier_is_for_what_anybody_did);
    RUN_TEST(a_volatile_store_takes_no_notice_of_any_of_it);
    RUN_TEST(the_guardian_writes_what_nobody_waits_for);
    RUN_TEST(an_idle_store_has_its_last_batch_vouched_for);
    RUN_TEST(the_last_who_leaves_writes_what_is_left_and_vouches_for_it);
    RUN_TEST(a_child_of_fork_is_refused_and_the_parents_log_goes_on);
    RUN_TEST(a_damaged_lane_ends_the_log_for_whoever_meets_it);
    RUN_TEST(a_limit_of_file_sizes_does_not_end_the_log);
    RUN_TEST(a_snapshotter_who_is_not_heard_of_is_named_and_replaced);
    RUN_TEST(who_takes_a_backup_is_not_replaced_however_long_it_takes);
    RUN_TEST(who_takes_a_backup_is_named_when_the_next_snapshot_is_due);
    RUN_TEST(a_store_full_of_the_dead_can_be_entered);
    RUN_TEST(what_the_dead_had_begun_goes_with_the_next_snapshot);
    RUN_TEST(a_damaged_batch_full_of_zeros_is_not_taken_for_the_end);
    RUN_TEST(a_barrier_fails_after_a_write_error_and_what_is_durable_stays_so);
    RUN_TEST(a_lane_that_is_too_small_for_a_log_is_refused);
    RUN_TEST(lanes_and_segments_are_passed_many_times);
    RUN_TEST(one_batch_of_many_segments);
    RUN_TEST(segments_come_about_though_their_maker_has_stopped);
    RUN_TEST(a_registration_of_20000_shards_is_one_chain);
    RUN_TEST(a_split_in_256_with_much_metadata_is_one_chain);
    RUN_TEST(what_8_processes_were_told_is_on_the_disk);
    RUN_TEST(shards_are_added_to_a_run_that_others_work_on);
    RUN_TEST(an_inspection_tells_about_the_log);
    RUN_TEST(who_may_not_open_the_log_does_not_end_it_for_others);
    RUN_TEST(without_io_uring_it_is_the_same);
    RUN_TEST(without_o_direct_it_is_the_same);
    RUN_TEST(without_both_it_is_the_same);
    return UNITY_END();
}
