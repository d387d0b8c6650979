/*
 * Replaying logs made by hand: what versions, chains, purges and uids mean, and what is refused though every
 * hash is right.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "directory.h"
#include "handle.h"
#include "recover.h"
#include "scribe.h"
#include "shop.h"
#include "snapshot.h"

#define SEGMENT (64u * RF_LOG_BLOCK)
#define UID     7u

static struct rf_scribe book;
static struct rf_shop shop;
static rf_store *like;
static rf_detail detail;
static struct rf_map region;
static bool has_region;
static struct rf_replay *replay;
static struct rf_recovered recovered;

void setUp(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    rf_shop_found(&shop);
    like = rf_shop_enter(&shop, NULL);
}

static void drop_region(void)
{
    if (replay != NULL) {
        rf_replay_free(replay);
        replay = NULL;
    }
    if (has_region) {
        rf_region_shadow_drop(&region);
        has_region = false;
    }
}

void tearDown(void)
{
    drop_region();
    rf_close(like);
    rf_shop_raze(&shop);
    rf_scribe_close(&book);
}

/* --- what is written --- */

static struct rf_run run_of(uint64_t id, rf_run_status status, uint64_t roots)
{
    struct rf_run run = {.run = id,
                         .config = {.lease_duration = 10, .semantics = RF_DISPATCHED},
                         .status = status,
                         .created_at = 5,
                         .root_count = roots};
    run.tenant.bytes[0] = 1;
    return run;
}

static const struct rf_made_record *roots(uint32_t count)
{
    static struct rf_made_record made[64];
    static uint8_t keys[65][2];
    for (uint32_t i = 0; i <= count; i++) {
        keys[i][0] = (uint8_t)(1 + i);
        keys[i][1] = 7;
    }
    for (uint32_t i = 0; i < count; i++) {
        made[i] = (struct rf_made_record){.shard = 100 + i,
                                          .spec = {.start = {keys[i], 2}, .end = {keys[i + 1], 2}}};
    }
    return made;
}

static void put_run(uint32_t lane, uint64_t stamp, uint32_t shards)
{
    struct rf_run run = run_of(1, RF_RUN_ACTIVE, shards);
    const struct rf_scribe_made made = {.shards = roots(shards), .count = shards};
    rf_scribe_run(&book, lane, stamp, UID, 1, true, &run, &made);
}

static struct rf_shard_step granted(uint64_t fence)
{
    return (struct rf_shard_step){.outcome = RF_EXECUTED,
                                  .event = RF_EVENT_ACQUIRED,
                                  .next = {.fence = fence,
                                           .owner = 3,
                                           .deadline = 1000,
                                           .attempts = 1,
                                           .status = RF_SHARD_ACTIVE,
                                           .park_reason = RF_NO_REASON,
                                           .semantics = RF_DISPATCHED,
                                           .flags = RF_SHARD_LEASED}};
}

static void put_grant(uint32_t lane, uint64_t stamp, uint32_t position, uint64_t version,
                      uint64_t fence)
{
    struct rf_shard_step step = granted(fence);
    rf_scribe_step(&book, lane, stamp, UID, position, 100 + position, version, 9, &step, NULL);
}

/* --- what is read --- */

static rf_status replay_all(enum rf_leases leases)
{
    drop_region();
    RF_EXPECT(RF_OK, rf_region_shadow(rf_handle_of(like)->map, 1, &region, &detail));
    has_region = true;
    region.header->segment_bytes = book.segment_bytes;
    memcpy(region.header->store_id, book.store_id, 16);
    return rf_recover_state(&region, book.disk, book.dir_fd, true, UINT64_MAX, leases, &recovered,
                            &replay, &detail);
}

static void expect_replayed(void)
{
    rf_status status = replay_all(RF_LEASES_VOID);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
}

static void expect_refused(const char *words)
{
    RF_EXPECT(RF_CORRUPT, replay_all(RF_LEASES_VOID));
    rf_shop_expect_words(RF_CORRUPT, &detail, words);
}

static struct rf_runrec *the_run(void)
{
    uint32_t slot = rf_replay_find(replay, UID);
    TEST_ASSERT_TRUE(slot != RF_NO_SLOT);
    return rf_run_at(&region, slot);
}

static struct rf_rec *shard_at(uint32_t position)
{
    struct rf_rec *rec = rf_rec_at(&region, rf_dir_slot(&region, the_run(), position));
    TEST_ASSERT_NOT_NULL(rec);
    return rec;
}

/* --- versions --- */

static void steps_are_applied_in_the_order_of_epochs_and_stamps(void)
{
    put_run(1, 1, 3);
    rf_scribe_batch(&book, 0);
    /* one shard, two lanes, one epoch */
    put_grant(2, 20, 0, 3, 11);
    put_grant(2, 40, 0, 5, 13);
    put_grant(5, 10, 0, 2, 10);
    put_grant(5, 30, 0, 4, 12);
    rf_scribe_batch(&book, 1);
    put_grant(1, 2, 0, 6, 14);
    rf_scribe_batch(&book, 2);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT64(6, shard_at(0)->body.version);
    TEST_ASSERT_EQUAL_UINT64(14, shard_at(0)->body.state.fence);
    TEST_ASSERT_EQUAL_UINT64(1, shard_at(1)->body.version);
    TEST_ASSERT_EQUAL_UINT64(3, atomic_load(&the_run()->count));
    TEST_ASSERT_EQUAL_UINT64(3, atomic_load(&the_run()->available));
    TEST_ASSERT_EQUAL_UINT64(UID + 1, atomic_load(&region.header->next_uid));
    TEST_ASSERT_EQUAL_UINT64(9, recovered.tally.time);
}

static void leases_are_void_but_for_those_of_the_last_incarnation_if_asked_for(void)
{
    put_run(1, 1, 3);
    put_grant(1, 2, 0, 2, 10);
    put_grant(1, 3, 1, 2, 10);
    rf_scribe_batch(&book, 0);
    rf_scribe_incarnation(&book, 1, NULL);
    put_grant(1, 4, 1, 3, 11);
    rf_scribe_batch(&book, 1);
    RF_EXPECT(RF_OK, replay_all(RF_LEASES_KEEP));
    TEST_ASSERT_EQUAL(0, shard_at(0)->body.state.flags & RF_SHARD_LEASED);
    TEST_ASSERT_EQUAL(RF_SHARD_LEASED, shard_at(1)->body.state.flags & RF_SHARD_LEASED);
    TEST_ASSERT_EQUAL_UINT64(2, atomic_load(&the_run()->available));
    expect_replayed();
    TEST_ASSERT_EQUAL(0, shard_at(1)->body.state.flags & RF_SHARD_LEASED);
    TEST_ASSERT_EQUAL_UINT64(11, shard_at(1)->body.state.fence);
    TEST_ASSERT_EQUAL_UINT64(3, atomic_load(&the_run()->available));
}

static void a_version_that_is_there_already_is_skipped(void)
{
    put_run(1, 1, 2);
    put_grant(1, 2, 0, 2, 10);
    put_grant(1, 3, 0, 2, 99);
    put_grant(1, 4, 0, 1, 98);
    rf_scribe_batch(&book, 0);
    put_run(1, 5, 2);
    rf_scribe_batch(&book, 1);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT64(10, shard_at(0)->body.state.fence);
    TEST_ASSERT_EQUAL_UINT64(2, atomic_load(&the_run()->count));
}

static void a_gap_in_the_versions_is_refused(void)
{
    put_run(1, 1, 2);
    put_grant(1, 2, 0, 3, 10);
    rf_scribe_batch(&book, 0);
    expect_refused("epoch 1|lane 1|stamp 2|missing");
}

static void a_gap_in_a_runs_versions_is_refused(void)
{
    put_run(1, 1, 2);
    struct rf_run run = run_of(1, RF_RUN_ACTIVE, 2);
    rf_scribe_run(&book, 1, 2, UID, 3, false, &run, NULL);
    rf_scribe_batch(&book, 0);
    expect_refused("run before it is missing");
}

/* --- runs and shards --- */

static void a_shard_is_made_before_its_first_step_whatever_the_stamps_say(void)
{
    put_grant(1, 3, 1, 2, 10);
    put_run(2, 90, 2);
    rf_scribe_batch(&book, 0);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT64(2, shard_at(1)->body.version);
}

static void records_of_a_run_that_was_never_made_are_refused(void)
{
    put_grant(1, 3, 1, 2, 10);
    rf_scribe_batch(&book, 0);
    expect_refused("never made");
}

static void a_step_of_a_shard_that_was_never_made_is_refused(void)
{
    put_run(1, 1, 2);
    put_grant(1, 3, 2, 2, 10);
    rf_scribe_batch(&book, 0);
    expect_refused("a shard that was never made");
}

static void a_step_of_another_shard_than_its_position_says_is_refused(void)
{
    put_run(1, 1, 2);
    struct rf_shard_step step = granted(10);
    rf_scribe_step(&book, 1, 2, UID, 0, 101, 2, 9, &step, NULL);
    rf_scribe_batch(&book, 0);
    expect_refused("can't be read");
}

static void a_fence_that_goes_down_is_refused(void)
{
    put_run(1, 1, 2);
    put_grant(1, 2, 0, 2, 10);
    put_grant(1, 3, 0, 3, 9);
    rf_scribe_batch(&book, 0);
    expect_refused("can't have made");
}

static void a_purged_run_is_gone_and_its_fences_are_not(void)
{
    put_run(1, 1, 5);
    rf_scribe_batch(&book, 0);
    /* a step that came before the purge, with a larger stamp: they share no lock that would order them */
    put_grant(2, 50, 0, 2, 77);
    rf_scribe_purge(&book, 3, 10, UID, 77, 20);
    rf_scribe_batch(&book, 1);
    struct rf_run run = run_of(1, RF_RUN_ACTIVE, 1);
    const struct rf_scribe_made made = {.shards = roots(1), .count = 1};
    rf_scribe_run(&book, 1, 60, UID + 1, 3, true, &run, &made);
    rf_scribe_batch(&book, 2);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT32(RF_NO_SLOT, rf_replay_find(replay, UID));
    TEST_ASSERT_EQUAL_UINT64(77, atomic_load(&region.header->fence_floor));
    TEST_ASSERT_EQUAL_UINT64(1, recovered.tally.shards);
    TEST_ASSERT_EQUAL_UINT64(1, rf_extents_used(&region));
    TEST_ASSERT_EQUAL_UINT64(UID + 2, atomic_load(&region.header->next_uid));
    TEST_ASSERT_EQUAL_UINT64(20, recovered.tally.time);
}

static void a_run_that_came_and_went_in_one_batch_leaves_its_fences(void)
{
    put_run(1, 1, 5);
    put_grant(2, 50, 0, 2, 77);
    rf_scribe_purge(&book, 3, 10, UID, 77, 20);
    rf_scribe_batch(&book, 0);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT64(0, recovered.tally.runs);
    TEST_ASSERT_EQUAL_UINT64(77, atomic_load(&region.header->fence_floor));
    TEST_ASSERT_EQUAL_UINT64(UID + 1, atomic_load(&region.header->next_uid));
    TEST_ASSERT_EQUAL_UINT64(0, rf_extents_used(&region));
}

static void a_purge_of_a_run_that_was_never_made_is_refused(void)
{
    rf_scribe_purge(&book, 3, 10, UID, 77, 20);
    rf_scribe_batch(&book, 0);
    expect_refused("never made");
}

static void a_run_that_is_purged_twice_is_refused(void)
{
    put_run(1, 1, 5);
    rf_scribe_batch(&book, 0);
    rf_scribe_purge(&book, 3, 10, UID, 77, 20);
    rf_scribe_batch(&book, 1);
    rf_scribe_purge(&book, 3, 11, UID, 77, 20);
    rf_scribe_batch(&book, 2);
    expect_refused("can't be read");
}

static void children_have_their_parent(void)
{
    put_run(1, 1, 2);
    put_grant(1, 2, 0, 2, 10);
    rf_scribe_batch(&book, 0);
    static uint64_t ids[] = {RF_DERIVED_BIT | 1, RF_DERIVED_BIT | 2};
    struct rf_made_record made[2] = {roots(2)[0], roots(2)[0]};
    made[0].shard = ids[0];
    made[1].shard = ids[1];
    struct rf_shard_step step = granted(10);
    step.next.flags = 0;
    step.next.owner = step.next.deadline = 0;
    step.next.status = RF_SHARD_SPLIT;
    step.next.spawned_count = 2;
    step.changes = RF_CHANGED_SPAWNED;
    step.event = RF_EVENT_SPLIT;
    step.spawned_new = 2;
    step.spawned_ids = ids;
    const struct rf_scribe_made children = {.shards = made, .count = 2, .made_from = 2};
    rf_scribe_step(&book, 1, 3, UID, 0, 100, 3, 9, &step, &children);
    rf_scribe_batch(&book, 1);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT64(4, atomic_load(&the_run()->count));
    TEST_ASSERT_EQUAL_UINT64(1, atomic_load(&the_run()->split));
    for (uint32_t i = 0; i < 2; i++) {
        const struct rf_rec *child = shard_at(2 + i);
        TEST_ASSERT_EQUAL_UINT64(ids[i], child->shard);
        TEST_ASSERT_EQUAL_UINT64(100, child->body.state.parent);
        TEST_ASSERT_EQUAL_UINT64(3, child->born);
        TEST_ASSERT_EQUAL_UINT32(rf_dir_slot(&region, the_run(), 0) + 1, child->parent_slot);
        TEST_ASSERT_EQUAL_UINT64(1, child->body.state.fence);
    }
}

/* --- chains --- */

#define CHAIN 0x5001u

static void close_chain(uint64_t stamp, uint32_t count)
{
    struct rf_run run = run_of(1, RF_RUN_ACTIVE, count);
    const struct rf_scribe_made made = {.count = count, .chain = CHAIN};
    rf_scribe_run(&book, 1, stamp, UID, 1, true, &run, &made);
}

static void a_chain_over_several_batches_happens_when_it_is_closed(void)
{
    for (uint32_t i = 0; i < 4; i++) {
        rf_scribe_chunk(&book, 1, i + 1, UID, CHAIN, i, roots(40) + i * 10, 10);
        rf_scribe_batch(&book, i);
        expect_replayed();
        TEST_ASSERT_EQUAL_UINT64(0, recovered.tally.runs);
    }
    close_chain(5, 40);
    rf_scribe_batch(&book, 4);
    put_grant(1, 6, 39, 2, 10);
    rf_scribe_batch(&book, 5);
    expect_replayed();
    TEST_ASSERT_EQUAL_UINT64(40, recovered.tally.shards);
    for (uint32_t i = 0; i < 40; i++) {
        TEST_ASSERT_EQUAL_UINT64(100 + i, shard_at(i)->shard);
    }
}

static void chains_that_are_not_whole_are_refused(void)
{
    rf_scribe_chunk(&book, 1, 1, UID, CHAIN, 0, roots(40), 10);
    rf_scribe_chunk(&book, 1, 2, UID, CHAIN, 2, roots(40) + 10, 10); /* the second is missing */
    close_chain(3, 20);
    rf_scribe_batch(&book, 0);
    expect_refused("not in the log");
}

static void chains_that_hold_less_than_they_say_are_refused(void)
{
    rf_scribe_chunk(&book, 1, 1, UID, CHAIN, 0, roots(40), 10);
    close_chain(2, 11);
    rf_scribe_batch(&book, 0);
    expect_refused("can't be read");
}

static void chains_that_hold_more_than_they_say_are_refused(void)
{
    rf_scribe_chunk(&book, 1, 1, UID, CHAIN, 0, roots(40), 10);
    close_chain(2, 9);
    rf_scribe_batch(&book, 0);
    expect_refused("more shards than it says");
}

static void a_chain_is_not_closed_by_the_next_incarnation(void)
{
    rf_scribe_chunk(&book, 1, 1, UID, CHAIN, 0, roots(40), 10);
    rf_scribe_batch(&book, 0);
    rf_scribe_incarnation(&book, 1, NULL);
    expect_replayed();
    close_chain(2, 10);
    rf_scribe_batch(&book, 1);
    expect_refused("not in the log");
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(steps_are_applied_in_the_order_of_epochs_and_stamps);
    RUN_TEST(leases_are_void_but_for_those_of_the_last_incarnation_if_asked_for);
    RUN_TEST(a_version_that_is_there_already_is_skipped);
    RUN_TEST(a_gap_in_the_versions_is_refused);
    RUN_TEST(a_gap_in_a_runs_versions_is_refused);
    RUN_TEST(a_shard_is_made_before_its_first_step_whatever_the_stamps_say);
    RUN_TEST(records_of_a_run_that_was_never_made_are_refused);
    RUN_TEST(a_step_of_a_shard_that_was_never_made_is_refused);
    RUN_TEST(a_step_of_another_shard_than_its_position_says_is_refused);
    RUN_TEST(a_fence_that_goes_down_is_refused);
    RUN_TEST(a_purged_run_is_gone_and_its_fences_are_not);
    RUN_TEST(a_run_that_came_and_went_in_one_batch_leaves_its_fences);
    RUN_TEST(a_purge_of_a_run_that_was_never_made_is_refused);
    RUN_TEST(a_run_that_is_purged_twice_is_refused);
    RUN_TEST(children_have_their_parent);
    RUN_TEST(a_chain_over_several_batches_happens_when_it_is_closed);
    RUN_TEST(chains_that_are_not_whole_are_refused);
    RUN_TEST(chains_that_hold_less_than_they_say_are_refused);
    RUN_TEST(chains_that_hold_more_than_they_say_are_refused);
    RUN_TEST(a_chain_is_not_closed_by_the_next_incarnation);
    return UNITY_END();
}
