/*
 * Each structure of the region on its own, with several processes at it: locks, blocks, indexes,
 * claimable bits, lanes and sequence locks.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h" /* before unity.h, which makes a macro of noreturn */

#include <unity.h>

#include "crew.h"
#include "directory.h"
#include "farm.h"
#include "handle.h"
#include "index.h"
#include "lane.h"
#include "lock.h"
#include "prng.h"
#include "seq.h"
#include "slab.h"

#define PROCESSES 4u

/* What the processes of a case share. */
struct bench {
    char store[128];
    uint32_t number; /* of the process; each has a copy at its start */
    _Atomic uint32_t ready;
    _Atomic bool stop;
    volatile uint64_t plain; /* guarded by a lock, or by nothing */
    volatile uint64_t inside;
    _Atomic uint64_t total;
    rf_word32 seq;
    uint64_t words[64];
    uint8_t bytes[80] RF_ALIGNED(8);
};

static struct bench *bench;
static rf_store *store;
static struct rf_actor *actor;
static struct rf_map *map;

static void enter(uint64_t busy)
{
    store = crew_open(bench->store, &(rf_options){.busy_timeout = busy});
    actor = &rf_handle_of(store)->actor;
    map = actor->map;
}

static void set_up(const char *label, uint64_t max_bytes)
{
    snprintf(bench->store, sizeof(bench->store), "%s", crew_store(label));
    rf_close(crew_open(bench->store, &(rf_options){.create = true,
                                                   .max_shards = 200000,
                                                   .max_bytes = max_bytes,
                                                   .max_runs = 4,
                                                   .max_members = 32}));
}

void setUp(void)
{
    bench = crew_shared(sizeof(*bench));
    store = NULL;
}

void tearDown(void)
{
    if (store != NULL) {
        rf_close(store);
    }
    crew_unshare(bench, sizeof(*bench));
    crew_store_drop();
}

static void run_processes(int (*body)(void *), uint32_t count)
{
    pid_t pids[PROCESSES];
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = i;
        pids[i] = crew_start(body, &number);
    }
    for (uint32_t i = 0; i < count; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(pids[i], 60000));
    }
}

static bool somebody_is_ready(void *context)
{
    (void)context;
    return atomic_load(&bench->ready) != 0;
}

static rf_word32 *any_lock(void)
{
    return rf_section_at(map, &map->header->stripes, 5);
}

/* --- locks --- */

static int lock_and_count(void *argument)
{
    struct rf_prng prng = {*(uint32_t *)argument};
    enter(30 * RF_SECOND);
    for (uint64_t i = 0; i < crew_amount(100000, 1000000); i++) {
        CREW_CHECK(rf_lock(actor, any_lock(), RF_LOCK_STRIPE, NULL) == RF_OK, "lock");
        CREW_CHECK(bench->inside == 0, "two are inside");
        bench->inside = actor->id;
        bench->plain += 1;
        if (rf_prng_below(&prng, 5000) == 0) {
            usleep(200); /* long enough for others to sleep */
        }
        CREW_CHECK(bench->inside == actor->id, "two are inside");
        bench->inside = 0;
        rf_unlock(actor, any_lock(), RF_LOCK_STRIPE);
    }
    rf_close(store);
    return 0;
}

static void a_lock_lets_one_process_in(void)
{
    set_up("lock", 1u << 20);
    run_processes(lock_and_count, PROCESSES);
    TEST_ASSERT_EQUAL_UINT64(PROCESSES * crew_amount(100000, 1000000), bench->plain);
}

static int lock_and_stay(void *argument)
{
    (void)argument;
    enter(RF_SECOND);
    CREW_CHECK(rf_lock(actor, any_lock(), RF_LOCK_STRIPE, NULL) == RF_OK, "lock");
    atomic_store(&bench->ready, 1);
    while (pause() != 0) {
    }
    return 0;
}

static int lock_in_vain_then_get_it(void *argument)
{
    (void)argument;
    enter(30 * RF_SECOND);
    atomic_fetch_add(&bench->total, 1);
    CREW_CHECK(rf_lock(actor, any_lock(), RF_LOCK_STRIPE, NULL) == RF_OK, "lock");
    rf_unlock(actor, any_lock(), RF_LOCK_STRIPE);
    rf_close(store);
    return 0;
}

static void a_dead_owners_lock_is_taken_over_by_whoever_sleeps_for_it(void)
{
    set_up("takeover", 1u << 20);
    for (unsigned round = 0; round < 20; round++) {
        atomic_store(&bench->ready, 0);
        pid_t holder = crew_start(lock_and_stay, NULL), sleepers[3];
        TEST_ASSERT_TRUE(crew_until(somebody_is_ready, NULL, 10000));
        for (unsigned i = 0; i < 3; i++) {
            sleepers[i] = crew_start(lock_in_vain_then_get_it, NULL);
        }
        crew_sleep_ms(10);
        uint64_t at = crew_ns();
        crew_kill(holder);
        for (unsigned i = 0; i < 3; i++) {
            TEST_ASSERT_EQUAL(0, crew_join(sleepers[i], 5000));
        }
        TEST_ASSERT_LESS_THAN_UINT64(2 * RF_SECOND, crew_ns() - at);
    }
}

static void a_stopped_owner_gives_busy_and_its_pid(void)
{
    set_up("busy", 1u << 20);
    pid_t holder = crew_start(lock_and_stay, NULL);
    TEST_ASSERT_TRUE(crew_until(somebody_is_ready, NULL, 10000));
    crew_stop(holder);
    enter(150 * RF_MILLISECOND);
    rf_detail detail = {0};
    uint64_t at = crew_ns();
    TEST_ASSERT_EQUAL(RF_BUSY, rf_lock(actor, any_lock(), RF_LOCK_STRIPE, &detail));
    TEST_ASSERT_EQUAL_UINT32(holder, detail.pid);
    TEST_ASSERT_UINT64_WITHIN(100 * RF_MILLISECOND, 200 * RF_MILLISECOND, crew_ns() - at);
    TEST_ASSERT_EQUAL_UINT32(holder, rf_lock_holder_pid(map, any_lock()));
    TEST_ASSERT_FALSE(rf_lock_is_free(map, any_lock()));
    crew_kill(holder);
    TEST_ASSERT_EQUAL(RF_OK, rf_lock(actor, any_lock(), RF_LOCK_STRIPE, &detail));
    rf_unlock(actor, any_lock(), RF_LOCK_STRIPE);
    TEST_ASSERT_TRUE(rf_lock_is_free(map, any_lock()));
}

/* --- blocks --- */

#define KEPT 32u

static int take_and_give(void *argument)
{
    struct rf_prng prng = {77 + *(uint32_t *)argument};
    struct rf_block_ref kept[KEPT] = {0};
    enter(RF_SECOND);
    for (uint64_t i = 1; i <= crew_amount(60000, 600000); i++) {
        struct rf_block_ref *ref = &kept[rf_prng_below(&prng, KEPT)];
        uint64_t tag = i << 12 | actor->slot;
        if (ref->block != 0) {
            const uint8_t *bytes = rf_slab_bytes(map, ref);
            for (uint32_t b = 0; b < ref->bytes; b += 61) {
                CREW_CHECK(bytes[b] == (uint8_t)(ref->tag * 7 + b), "somebody wrote into a block");
            }
            rf_slab_give(map, ref);
            rf_slab_give(map, ref);
            *ref = (struct rf_block_ref){0};
            continue;
        }
        size_t size = 1 + rf_prng_below(&prng, rf_prng_chance(&prng, 90) ? 600 : 32768);
        CREW_CHECK(rf_slab_take(actor, tag, size, ref, NULL) == RF_OK, "no block");
        CREW_CHECK(rf_slab_capacity(map, ref) >= size && ref->tag == tag, "another block");
        uint8_t *bytes = rf_slab_bytes(map, ref);
        for (uint32_t b = 0; b < ref->bytes; b += 61) {
            bytes[b] = (uint8_t)(ref->tag * 7 + b);
        }
    }
    for (uint32_t i = 0; i < KEPT; i++) {
        rf_slab_give(map, &kept[i]);
    }
    rf_close(store);
    return 0;
}

static void a_block_has_one_owner(void)
{
    set_up("slab", 64u << 20);
    run_processes(take_and_give, PROCESSES);
    enter(RF_SECOND);
    TEST_ASSERT_EQUAL_UINT64(0, rf_slab_used(map));
}

static void giving_back_twice_does_not_take_the_next_owners_block(void)
{
    struct rf_block_ref first = {0}, second = {0};
    set_up("twice", 1u << 20);
    enter(RF_SECOND);
    TEST_ASSERT_EQUAL(RF_OK, rf_slab_take(actor, 1 << 12, 100, &first, NULL));
    struct rf_block_ref stale = first;
    rf_slab_give(map, &first);
    TEST_ASSERT_EQUAL(RF_OK, rf_slab_take(actor, 2 << 12, 100, &second, NULL));
    TEST_ASSERT_EQUAL_UINT32(stale.block, second.block);
    rf_slab_give(map, &stale);
    TEST_ASSERT_EQUAL_UINT64(1, rf_slab_used(map));
    rf_slab_give(map, &second);
    TEST_ASSERT_EQUAL_UINT64(0, rf_slab_used(map));
}

static void blocks_run_out_and_come_back(void)
{
    enum { PAGES = 4 };
    static struct rf_block_ref refs[PAGES * 256 + 1];
    rf_detail detail = {0};
    set_up("out", PAGES * 65536);
    enter(RF_SECOND);
    for (unsigned round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < PAGES * 256; i++) {
            TEST_ASSERT_EQUAL(
                RF_OK, rf_slab_take(actor, (round * 5000 + i + 1) << 12, 256, &refs[i], &detail));
        }
        struct rf_block_ref *none = &refs[PAGES * 256];
        TEST_ASSERT_EQUAL(RF_RESOURCE_EXHAUSTED,
                          rf_slab_take(actor, 9999999ull << 12, 256, none, &detail));
        TEST_ASSERT_EQUAL_UINT32(0, none->block);
        /* Pages keep their size. */
        TEST_ASSERT_EQUAL(RF_RESOURCE_EXHAUSTED,
                          rf_slab_take(actor, 9999999ull << 12, 5000, none, &detail));
        TEST_ASSERT_EQUAL_UINT64(PAGES * 256, rf_slab_used(map));
        for (uint32_t i = 0; i < PAGES * 256; i++) {
            rf_slab_give(map, &refs[i]);
        }
        TEST_ASSERT_EQUAL_UINT64(0, rf_slab_used(map));
    }
}

/* --- the index --- */

static uint32_t count_in_index(uint64_t hash, uint32_t wanted, bool *there)
{
    uint32_t at = 0, slot, n = 0;
    *there = false;
    while (rf_index_next_shard(map, hash, &at, &slot)) {
        n++;
        *there = *there || slot == wanted;
    }
    return n;
}

static void the_index_runs_over_into_four_buckets_and_no_further(void)
{
    const uint64_t hash = 0x123456789abcdef0u;
    bool there;
    rf_detail detail = {0};
    set_up("overflow", 1u << 20);
    enter(RF_SECOND);
    for (uint32_t i = 0; i < 4 * RF_BUCKET_CELLS; i++) {
        TEST_ASSERT_EQUAL(RF_OK, rf_index_enter_shard(actor, hash, 100 + i, &detail));
        TEST_ASSERT_EQUAL_UINT32(i + 1, count_in_index(hash, 100 + i, &there));
        TEST_ASSERT_TRUE(there);
    }
    TEST_ASSERT_EQUAL(RF_RESOURCE_EXHAUSTED, rf_index_enter_shard(actor, hash, 999, &detail));
    TEST_ASSERT_EQUAL_UINT32(0, count_in_index(hash ^ 1ull << 40, 100, &there));
    for (uint32_t i = 0; i < 4 * RF_BUCKET_CELLS; i++) {
        rf_index_leave_shard(map, hash, 100 + i);
        rf_index_leave_shard(map, hash, 100 + i); /* a survivor may repeat it */
        count_in_index(hash, 100 + i, &there);
        TEST_ASSERT_FALSE(there);
    }
    TEST_ASSERT_EQUAL_UINT32(0, count_in_index(hash, 0, &there));
}

/* Each process has slots of its own, all of them the same few hundred keys. */
static int enter_and_leave(void *argument)
{
    enum { MINE = 512 };
    uint32_t number = *(uint32_t *)argument;
    struct rf_prng prng = {number + 5};
    static bool in[MINE];
    bool there;
    enter(RF_SECOND);
    for (uint64_t n = 0; n < crew_amount(100000, 1000000); n++) {
        uint32_t i = rf_prng_below(&prng, MINE), slot = number * MINE + i;
        uint64_t hash = rf_index_hash_shard(map, 1, i % 300);
        if (!in[i]) {
            CREW_CHECK(rf_index_enter_shard(actor, hash, slot, NULL) == RF_OK, "the index is full");
        } else {
            rf_index_leave_shard(map, hash, slot);
        }
        in[i] = !in[i];
        count_in_index(hash, slot, &there);
        CREW_CHECK(there == in[i], "slot %u is %sthere", slot, there ? "" : "not ");
    }
    for (uint32_t i = 0; i < MINE; i++) {
        rf_index_leave_shard(map, rf_index_hash_shard(map, 1, i % 300), number * MINE + i);
    }
    rf_close(store);
    return 0;
}

static void what_is_entered_is_found_until_it_leaves(void)
{
    bool there;
    set_up("index", 1u << 20);
    run_processes(enter_and_leave, PROCESSES);
    enter(RF_SECOND);
    for (uint32_t i = 0; i < 300; i++) {
        TEST_ASSERT_EQUAL_UINT32(0, count_in_index(rf_index_hash_shard(map, 1, i), 0, &there));
    }
}

/* --- claimable bits --- */

static struct rf_runrec *make_wide_run(uint32_t shards)
{
    rf_shard_input *inputs = calloc(shards, sizeof(*inputs));
    struct farm_key *keys = calloc(shards + 1, sizeof(*keys));
    rf_tenant tenant = farm_tenant(1);
    TEST_ASSERT_TRUE(inputs != NULL && keys != NULL);
    for (uint32_t i = 0; i <= shards; i++) {
        keys[i] = farm_key(i + 1);
    }
    for (uint32_t i = 0; i < shards; i++) {
        inputs[i] = (rf_shard_input){
            .shard = i + 1, .spec = {.start = {keys[i].bytes, 8}, .end = {keys[i + 1].bytes, 8}}};
    }
    rf_run_config config = {.lease_duration = RF_SECOND};
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, 1, &config,
                                                       inputs, shards, 1, NULL));
    free(inputs);
    free(keys);
    return rf_run_at(map, 0);
}

static uint64_t naive_next(const bool *claimable, uint64_t from, uint64_t count)
{
    for (uint64_t i = from; i < count; i++) {
        if (claimable[i]) {
            return i;
        }
    }
    return UINT64_MAX;
}

static void claimable_bits_are_found_as_a_naive_list_has_them(void)
{
    /* More than one leaf: 65,536 shards each. */
    const uint32_t shards = crew_slowness() == 1 ? 140000 : 70000;
    bool *claimable = malloc(shards * sizeof(bool));
    struct rf_prng prng = {rf_env_number("RF_SEED", 3)};
    set_up("bits", 1u << 20);
    enter(RF_SECOND);
    struct rf_runrec *run = make_wide_run(shards);
    TEST_ASSERT_NOT_NULL(claimable);
    for (uint32_t i = 0; i < shards; i++) {
        claimable[i] = true;
        TEST_ASSERT_EQUAL_UINT64(i, rf_dir_next_claimable(map, run, i, shards));
    }
    for (uint32_t i = 0; i < shards; i++) { /* nearly nothing is left: summaries are cleared */
        claimable[i] = rf_prng_below(&prng, 20000) == 0;
        rf_dir_set_claimable(map, run, i, claimable[i]);
    }
    for (uint32_t n = 0; n < 3000; n++) {
        uint32_t i = rf_prng_below(&prng, shards), from = rf_prng_below(&prng, shards);
        claimable[i] = !claimable[i] && rf_prng_chance(&prng, 50);
        rf_dir_set_claimable(map, run, i, claimable[i]);
        uint64_t count = rf_prng_chance(&prng, 80) ? shards : rf_prng_below(&prng, shards);
        TEST_ASSERT_EQUAL_UINT64(naive_next(claimable, from, count),
                                 rf_dir_next_claimable(map, run, from, count));
    }
    free(claimable);
}

/* --- lanes --- */

static void a_lane_wraps_over_a_filler_and_keeps_the_last_record_whole(void)
{
    struct rf_prng prng = {rf_env_number("RF_SEED", 4)};
    uint32_t fillers = 0, laps = 0;
    uint64_t before = 0, ring = 0;
    set_up("lane", 1u << 20);
    enter(RF_SECOND);
    ring = map->header->lane_units;
    for (uint32_t n = 0; n < crew_amount(50000, 500000); n++) {
        struct rf_lane_draft draft;
        size_t room = rf_prng_below(&prng, rf_prng_chance(&prng, 95) ? 300 : 20000);
        size_t bytes = room == 0 ? 0 : rf_prng_below(&prng, (uint32_t)room) + 1u;
        rf_lane_begin(actor, room, &draft);
        fillers += draft.filler != 0;
        memset(draft.body, (int)(n & 0xFF), bytes);
        draft.record->event = UINT16_MAX;
        draft.record->run = n;
        rf_lane_finish(actor, &draft, RF_LANE_STEP, bytes, n + 1);
        rf_lane_commit(actor, &draft);
        const struct rf_lane_record *found = rf_lane_find(map, actor->slot, draft.offset);
        TEST_ASSERT_EQUAL_PTR(draft.record, found);
        TEST_ASSERT_EQUAL_UINT64(n, found->run);
        TEST_ASSERT_EQUAL_UINT32(bytes, found->body_bytes);
        for (size_t b = 0; b < bytes; b += 37) {
            TEST_ASSERT_EQUAL_UINT8(n & 0xFF, ((const uint8_t *)(found + 1))[b]);
        }
        uint64_t end = atomic_load(&actor->me->lane.end);
        TEST_ASSERT_EQUAL_UINT64(before + draft.filler + draft.units, end);
        TEST_ASSERT_EQUAL_UINT32(end & RF_LANE_OFFSET_MASK,
                                 rf_lane_offset(atomic_load(&actor->me->lane.word)));
        TEST_ASSERT_TRUE(atomic_load(&actor->me->lane.head) + ring >= end);
        laps += (uint32_t)(end / ring - before / ring);
        before = end;
    }
    TEST_ASSERT_GREATER_THAN_UINT32(10, laps);
    TEST_ASSERT_GREATER_THAN_UINT32(5, fillers);
}

/* --- sequence locks --- */

static int write_under_seq(void *argument)
{
    uint64_t value[64];
    uint8_t text[77];
    (void)argument;
    for (uint64_t n = 1; !atomic_load(&bench->stop); n++) {
        for (unsigned i = 0; i < 64; i++) {
            value[i] = n;
        }
        memset(text, (int)(n & 0xFF), sizeof(text));
        uint32_t odd = rf_seq_open(&bench->seq);
        rf_words_store(bench->words, value, sizeof(value));
        rf_bytes_store(bench->bytes, text, sizeof(text));
        rf_seq_close(&bench->seq, odd);
        atomic_store(&bench->total, n);
    }
    return 0;
}

static int read_under_seq(void *argument)
{
    uint64_t value[64], good = 0, last = 0;
    uint8_t text[77];
    (void)argument;
    while (good < crew_amount(200000, 5000000)) {
        uint32_t begun = rf_seq_begin(&bench->seq);
        if ((begun & 1u) != 0) {
            continue;
        }
        rf_words_load(value, bench->words, sizeof(value));
        rf_bytes_load(text, bench->bytes, sizeof(text));
        if (!rf_seq_valid(&bench->seq, begun)) {
            continue;
        }
        good++;
        for (unsigned i = 0; i < 64; i++) {
            CREW_CHECK(value[i] == value[0], "a torn reading");
        }
        for (unsigned i = 0; i < sizeof(text); i++) {
            CREW_CHECK(text[i] == (uint8_t)value[0], "torn bytes");
        }
        CREW_CHECK(value[0] >= last, "time went back");
        last = value[0];
    }
    return 0;
}

static void a_sequence_lock_shows_nothing_torn(void)
{
    pid_t writer = crew_start(write_under_seq, NULL);
    run_processes(read_under_seq, 3);
    atomic_store(&bench->stop, true);
    TEST_ASSERT_EQUAL(0, crew_join(writer, 10000));
    TEST_ASSERT_GREATER_THAN_UINT64(1000, atomic_load(&bench->total));
}

/* The same on a shard: its token is made of its key, in the record or in a block. */
static int read_shard(void *argument)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    (void)argument;
    store = crew_open(bench->store, &(rf_options){.read_only = true});
    atomic_fetch_add(&bench->ready, 1);
    while (!atomic_load(&bench->stop)) {
        rf_shard_info info;
        CREW_CHECK(rf_get_shard(store, &tenant, 1, 1, &info, scratch, sizeof(scratch), NULL) ==
                       RF_OK,
                   "get_shard");
        const uint8_t *token = info.cursor.token.data;
        for (size_t i = 0; i < info.cursor.token.len; i++) {
            CREW_CHECK(token[i] == (uint8_t)farm_number(info.cursor.key), "a torn token");
        }
        atomic_fetch_add(&bench->total, 1);
    }
    rf_close(store);
    return 0;
}

static bool three_are_ready(void *context)
{
    (void)context;
    return atomic_load(&bench->ready) == 3;
}

static void a_shard_that_is_written_all_the_time_is_read_whole(void)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    uint8_t token[4000];
    rf_tenant tenant = farm_tenant(1);
    struct farm_key start = farm_key(1), end = farm_key(UINT64_MAX);
    rf_shard_input input = {.shard = 1, .spec = {.start = {start.bytes, 8}, .end = {end.bytes, 8}}};
    rf_run_config config = {.lease_duration = 3600 * RF_SECOND};
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    struct rf_prng prng = {rf_env_number("RF_SEED", 5)};
    pid_t readers[3];
    set_up("whole", 4u << 20);
    enter(RF_SECOND);
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, 1, &config,
                                                       &input, 1, 1, NULL));
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_acquire(store, rf_now(store), &tenant, 1, 1, 1, RF_BOUND, &grant, NULL));
    for (unsigned i = 0; i < 3; i++) {
        readers[i] = crew_start(read_shard, NULL);
    }
    TEST_ASSERT_TRUE(crew_until(three_are_ready, NULL, 10000));
    uint64_t until = crew_ns() + crew_amount(1500, 20000) * RF_MILLISECOND;
    for (uint64_t n = 2; crew_ns() < until; n++) {
        struct farm_key key = farm_key(n);
        size_t len = 1 + rf_prng_below(&prng, n % 2 == 0 ? 80 : sizeof(token));
        memset(token, (int)(n & 0xFF), len);
        rf_cursor cursor = {.key = {key.bytes, 8}, .token = {token, len}};
        TEST_ASSERT_EQUAL(RF_OK, rf_checkpoint(store, rf_now(store), &tenant, &grant.lease, &cursor,
                                               rf_new_op(store), NULL));
    }
    atomic_store(&bench->stop, true);
    for (unsigned i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL(0, crew_join(readers[i], 10000));
    }
    TEST_ASSERT_GREATER_THAN_UINT64(1000, atomic_load(&bench->total));
}

/* --- slots that are used again --- */

/* A run of one shard under this id; the shard is leased to the test. */
static rf_lease make_and_hold(uint64_t run)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    struct farm_key start = farm_key(1), end = farm_key(9);
    rf_shard_input input = {.shard = 1, .spec = {.start = {start.bytes, 8}, .end = {end.bytes, 8}}};
    rf_run_config config = {.lease_duration = 3600 * RF_SECOND};
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, run, &config,
                                                       &input, 1, 1, NULL));
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_acquire(store, rf_now(store), &tenant, run, 1, 1, RF_BOUND, &grant, NULL));
    return grant.lease;
}

static void end_and_purge(uint64_t run)
{
    rf_tenant tenant = farm_tenant(1);
    TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(store, rf_now(store), &tenant, run, 2, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_purge_run(store, rf_now(store), &tenant, run, NULL));
}

static void who_comes_late_finds_that_the_slot_is_anothers(void)
{
    set_up("late", 1u << 20);
    enter(RF_SECOND);
    rf_tenant tenant = farm_tenant(1);
    rf_lease old = make_and_hold(1);
    uint32_t run_slot;
    uint64_t uid;
    TEST_ASSERT_EQUAL(RF_OK, rf_find_run(map, &tenant, 1, &run_slot, &uid));
    end_and_purge(1);
    /* Until the next run has the shard's slot; a claimer of the old one may still be on its way. */
    rf_lease now = {0};
    for (uint64_t run = 2; now.slot_hint != old.slot_hint; run++) {
        TEST_ASSERT_LESS_THAN_UINT64(100000, run);
        now = make_and_hold(run);
        if (now.slot_hint != old.slot_hint) {
            end_and_purge(run);
        }
    }
    struct rf_op op;
    bool gone = false;
    rf_op_begin(&op, actor);
    TEST_ASSERT_EQUAL(
        RF_OK, rf_op_open_slot(&op, run_slot, uid, (uint32_t)old.slot_hint - 1, &gone, NULL));
    rf_op_end(&op);
    TEST_ASSERT_TRUE(gone);
    /* Neither does the old lease open it, nor is the new one harmed. */
    TEST_ASSERT_EQUAL(RF_NOT_FOUND, rf_renew(store, rf_now(store), &tenant, &old, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_renew(store, rf_now(store), &tenant, &now, NULL));
}

static void any_hint_is_safe(void)
{
    set_up("hint", 1u << 20);
    enter(RF_SECOND);
    rf_tenant tenant = farm_tenant(1);
    rf_lease mine = make_and_hold(1), other = make_and_hold(2);
    struct rf_prng prng = {rf_env_number("RF_SEED", 6)};
    for (uint64_t n = 0; n < 5000; n++) {
        rf_lease lease = mine;
        lease.slot_hint = n < 300      ? n
                          : n == 300   ? other.slot_hint
                          : n == 301   ? UINT64_MAX
                          : n % 2 == 0 ? rf_prng_next(&prng)
                                       : rf_prng_below(&prng, 300000);
        TEST_ASSERT_EQUAL(RF_OK, rf_renew(store, rf_now(store), &tenant, &lease, NULL));
        lease.run = 3; /* no such run, whatever the hint says */
        TEST_ASSERT_EQUAL(RF_NOT_FOUND, rf_renew(store, rf_now(store), &tenant, &lease, NULL));
    }
}

static void a_sequence_that_a_dead_writer_left_odd_is_closed_by_the_next(void)
{
    rf_word32 seq = 6;
    TEST_ASSERT_EQUAL_UINT32(7, rf_seq_open(&seq));
    TEST_ASSERT_FALSE(rf_seq_valid(&seq, 6));
    uint32_t odd = rf_seq_open(&seq); /* the survivor */
    TEST_ASSERT_EQUAL_UINT32(7, odd);
    rf_seq_close(&seq, odd);
    TEST_ASSERT_EQUAL_UINT32(8, rf_seq_begin(&seq));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_lock_lets_one_process_in);
    RUN_TEST(a_dead_owners_lock_is_taken_over_by_whoever_sleeps_for_it);
    RUN_TEST(a_stopped_owner_gives_busy_and_its_pid);
    RUN_TEST(a_block_has_one_owner);
    RUN_TEST(giving_back_twice_does_not_take_the_next_owners_block);
    RUN_TEST(blocks_run_out_and_come_back);
    RUN_TEST(the_index_runs_over_into_four_buckets_and_no_further);
    RUN_TEST(what_is_entered_is_found_until_it_leaves);
    RUN_TEST(claimable_bits_are_found_as_a_naive_list_has_them);
    RUN_TEST(a_lane_wraps_over_a_filler_and_keeps_the_last_record_whole);
    RUN_TEST(a_sequence_lock_shows_nothing_torn);
    RUN_TEST(a_sequence_that_a_dead_writer_left_odd_is_closed_by_the_next);
    RUN_TEST(a_shard_that_is_written_all_the_time_is_read_whole);
    RUN_TEST(who_comes_late_finds_that_the_slot_is_anothers);
    RUN_TEST(any_hint_is_safe);
    return UNITY_END();
}
