/*
 * Power cuts: histories of a durable store on a disk that remembers (tests/support/simdisk.h), cut at every
 * moment that matters, and every image that the disk may have left then (or a sample of them)
 * opened cold. What is asked of each:
 *
 *   - it opens;
 *   - what it holds is what the store held after some step of the history (without leases), and that
 *     step is not before the last one that was acknowledged: nothing acknowledged is lost, and what is
 *     there is a prefix;
 *   - every shard that can be granted is granted with a fence above all that were ever granted on it;
 *   - it can be worked on, and what is then acknowledged survives another cold open.
 *
 * And that this judge finds a library that leaves out a sync: the same histories, with syncs that are not believed.
 *
 *   RF_SEED=17 test_shm_points_power                    other histories
 *   RF_SOAK=1 RF_SECONDS=600 test_shm_points_power      and on and on, from RF_SEED
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unity.h>

#include "desk.h"
#include "hands.h"
#include "point.h"
#include "prng.h"
#include "shop.h"
#include "simdisk.h"

#define HANDLES_MAX 3u
#define STEPS_MAX   400u
#define LEASES_MAX  32u
#define GRANTS_MAX  1024u
#define RUNS        2u
#define ROOTS       4u
#define SPAN        1000u /* keys of a root shard */
#define WIDE        256u  /* children of one split */
#define LASTING     (3600 * RF_SECOND)
#define GRANT_NOTE  (1ull << 32)

struct held {
    rf_lease lease;
    unsigned handle;
    char key[8]; /* the last one */
};

struct world {
    struct rf_prng prng;
    uint64_t now;
    rf_tenant tenant;
    char directory[64];
    char image[80];
    char region[96]; /* of an image that is opened */
    unsigned handles;
    rf_store *stores[HANDLES_MAX];
    rf_durability usual; /* what a step does that does not say; RF_VOLATILE: either */
    bool breaking;       /* the disk fails: refusals by the machine are no surprise */
    rf_status broken;    /* the first one */
    uint32_t large;      /* shards of one registration, 0: none is large */
    bool wide;           /* shards are split into as many as can be */
    unsigned wide_splits;
    bool often; /* snapshots are taken */
    uint64_t segment_bytes;

    char *states[STEPS_MAX + 1]; /* after that many steps */
    uint64_t epochs[STEPS_MAX + 1];
    unsigned steps;
    unsigned acknowledged;
    unsigned snapshots;

    struct held held[LEASES_MAX];
    unsigned held_count;
    struct {
        uint64_t run, shard, fence;
    } grants[GRANTS_MAX];
    unsigned grant_count;
    unsigned old_grants; /* of them from an earlier life */
};

static struct world world;
static uint8_t scratch[RF_GRANT_SCRATCH];
static char long_bytes[RF_TOKEN_MAX];

/* --- what a store holds, as text --- */

struct text {
    char *at;
    size_t len, room;
};

static void say(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *text, const char *format, ...)
{
    va_list args;
    if (text->room - text->len < 256) {
        text->room = text->room * 2 + 1024;
        text->at = realloc(text->at, text->room);
        TEST_ASSERT_NOT_NULL(text->at);
    }
    va_start(args, format);
    text->len += (size_t)vsnprintf(text->at + text->len, text->room - text->len, format, args);
    va_end(args);
}

static unsigned hash_of(rf_bytes bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes.len; i++) {
        hash = (hash ^ ((const uint8_t *)bytes.data)[i]) * 0x100000001b3u;
    }
    return bytes.data == NULL ? 0 : (unsigned)(hash >> 32 | 1);
}

static void say_ring(struct text *text, const rf_ring_entry *ring, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        say(text, " (%" PRIx64 " %u %u @%" PRIu64 ")", ring[i].op, ring[i].kind, ring[i].result,
            ring[i].executed_at);
    }
    say(text, "\n");
}

/* Leases are void after a cold open; everything else is as it was. */
static bool say_shard(void *context, const rf_shard_info *s)
{
    struct text *text = context;
    say(text,
        "  %016" PRIx64 " %d/%d [%.*s, %.*s) meta %x key %.*s token %zu:%x fence %" PRIx64
        " attempts %u parent %" PRIx64,
        s->shard, s->status, s->has_reason ? (int)s->reason : -1, (int)s->spec.start.len,
        (const char *)s->spec.start.data, (int)s->spec.end.len, (const char *)s->spec.end.data,
        hash_of(s->spec.metadata), (int)s->cursor.key.len,
        s->cursor.key.data == NULL ? "" : (const char *)s->cursor.key.data, s->cursor.token.len,
        hash_of(s->cursor.token), s->fence, s->attempts, s->has_parent ? s->parent : 0);
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        say(text, " %" PRIx64, s->spawned[i]);
    }
    say_ring(text, s->ring, s->ring_count);
    return true;
}

static char *state_of(rf_store *store)
{
    struct text text = {0};
    say(&text, "store\n");
    for (uint64_t run = 1; run <= RUNS; run++) {
        rf_run_info r;
        rf_status status = rf_get_run(store, &world.tenant, run, &r, NULL);
        if (status == RF_RUN_NOT_FOUND) {
            continue;
        }
        RF_EXPECT(RF_OK, status);
        say(&text,
            " run %" PRIu64 " %d @%" PRIu64 "-%" PRIu64 " roots %" PRIu64 " of %" PRIu64
            " done %" PRIu64 " split %" PRIu64 " parked %" PRIu64,
            run, r.status, r.created_at, r.completed_at, r.root_count, r.shard_count, r.done,
            r.split, r.parked);
        say_ring(&text, r.ring, r.ring_count);
        RF_EXPECT(RF_OK, rf_list_shards(store, world.now, &world.tenant, run, RF_LIST_ALL,
                                        say_shard, &text, NULL));
    }
    return text.at;
}

/* The first line that differs. */
static const char *difference(const char *a, const char *b)
{
    static char out[600];
    while (*a != 0 && strcspn(a, "\n") == strcspn(b, "\n") &&
           strncmp(a, b, strcspn(a, "\n")) == 0) {
        a += strcspn(a, "\n") + (a[strcspn(a, "\n")] == '\n');
        b += strcspn(b, "\n") + (b[strcspn(b, "\n")] == '\n');
    }
    snprintf(out, sizeof(out), "\"%.*s\" and not \"%.*s\"",
             (int)(strcspn(a, "\n") > 280 ? 280 : strcspn(a, "\n")), a,
             (int)(strcspn(b, "\n") > 280 ? 280 : strcspn(b, "\n")), b);
    return out;
}

/* --- opening --- */

static uint64_t clock_of(void *context)
{
    return ((const struct world *)context)->now;
}

static rf_options options_of(bool image)
{
    return (rf_options){.create = true,
                        .max_shards = 4096,
                        .max_bytes = 16u << 20,
                        .max_runs = 8,
                        .max_members = 8,
                        .durability = RF_WAIT,
                        .segment_bytes = world.segment_bytes,
                        .snapshot_bytes = 1u << 30,
                        .manual = true,
                        .clock = clock_of,
                        .clock_context = &world,
                        .region_path = image ? world.region : NULL};
}

static rf_status open_handle(unsigned h, rf_detail *detail)
{
    rf_options options = options_of(false);
    return rf_open(world.directory, &options, &world.stores[h], detail);
}

/* --- a history --- */

static unsigned below(unsigned bound)
{
    return rf_prng_below(&world.prng, bound);
}

static void number_key(char key[8], unsigned n)
{
    snprintf(key, 8, "%06u", n % 1000000);
}

/* Of what a call answered: the machine's refusals end the history; those of the protocol are answers. */
static void take_answer(rf_status status, const rf_detail *detail)
{
    if (status == RF_IO_ERROR || status == RF_RESOURCE_EXHAUSTED || status == RF_CORRUPT ||
        status == RF_BUSY) {
        if (!world.breaking) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, detail));
        }
        if (world.broken == RF_OK) {
            world.broken = status;
        }
    }
}

static void drop_held(unsigned i)
{
    world.held[i] = world.held[--world.held_count];
}

static void drop_leases_of(unsigned handle)
{
    for (unsigned i = 0; i < world.held_count;) {
        if (world.held[i].handle == handle) {
            drop_held(i);
        } else {
            i++;
        }
    }
}

static void remember_grant(uint64_t run, uint64_t shard, uint64_t fence)
{
    TEST_ASSERT_TRUE(world.grant_count < GRANTS_MAX);
    world.grants[world.grant_count].run = run;
    world.grants[world.grant_count].shard = shard;
    world.grants[world.grant_count].fence = fence;
    rf_simdisk_note(GRANT_NOTE | world.grant_count++);
}

static rf_status claim(unsigned h, uint64_t run, rf_result *result)
{
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    if (world.held_count == LEASES_MAX) {
        return RF_NONE_AVAILABLE;
    }
    rf_status status = rf_claim(world.stores[h], world.now, &world.tenant, run, below(1000),
                                below(3) == 0 ? RF_DETACHED : RF_BOUND, 0, &grant, result);
    if (status == RF_OK) {
        struct held *held = &world.held[world.held_count++];
        *held = (struct held){.lease = grant.lease, .handle = h};
        rf_bytes from = grant.cursor.key.data != NULL ? grant.cursor.key : grant.spec.start;
        memcpy(held->key, from.data, from.len < 7 ? from.len : 7);
        remember_grant(run, grant.lease.shard, grant.lease.fence);
    }
    return status;
}

/* A key that is not below the last one, and rarely outside. */
static rf_cursor onward(struct held *held)
{
    unsigned n = (unsigned)atoi(held->key) + below(SPAN / 20);
    number_key(held->key, n);
    rf_cursor cursor = {.key = rf_text(held->key)};
    if (below(4) == 0) {
        cursor.token = (rf_bytes){long_bytes, 1 + below(below(8) == 0 ? RF_TOKEN_MAX : 200)};
    }
    return cursor;
}

/* Into children with metadata that fits no record: a chain. */
static rf_status split_wide(rf_store *store, const struct held *held, unsigned from, unsigned to,
                            rf_result *result)
{
    static char keys[WIDE + 1][8];
    static rf_child parts[WIDE];
    uint64_t ids[WIDE];
    for (unsigned i = 0; i <= WIDE; i++) {
        number_key(keys[i], from + (to - from) * i / WIDE);
    }
    for (unsigned i = 0; i < WIDE; i++) {
        parts[i] = rf_child_of(keys[i], keys[i + 1]);
        parts[i].spec.metadata = (rf_bytes){long_bytes, 600};
    }
    rf_status status = rf_split_replace(store, world.now, &world.tenant, &held->lease, parts, WIDE,
                                        rf_new_op(store), ids, result);
    world.wide_splits += status == RF_OK;
    return status;
}

static rf_status split_it(rf_store *store, const struct held *held, bool residual,
                          rf_result *result)
{
    rf_shard_info info;
    uint64_t ids[2];
    char middle[8], start[8] = {0}, end[8] = {0};
    rf_status status = rf_get_shard(store, &world.tenant, held->lease.run, held->lease.shard, &info,
                                    scratch, sizeof(scratch), NULL);
    if (status != RF_OK) {
        return status;
    }
    memcpy(start, info.spec.start.data, 6);
    memcpy(end, info.spec.end.data, 6);
    if (world.wide && !residual && atoi(end) - atoi(start) >= (int)WIDE) {
        return split_wide(store, held, (unsigned)atoi(start), (unsigned)atoi(end), result);
    }
    number_key(middle, (unsigned)(atoi(held->key) + atoi(end)) / 2 + 1);
    rf_child parts[2] = {rf_child_of(start, middle), rf_child_of(middle, end)};
    if (residual) {
        return rf_split_residual(store, world.now, &world.tenant, &held->lease, &parts[0].spec,
                                 &parts[1].spec, rf_new_op(store), ids, result);
    }
    return rf_split_replace(store, world.now, &world.tenant, &held->lease, parts, 2,
                            rf_new_op(store), ids, result);
}

static rf_status work_on_lease(rf_store *store, unsigned i, rf_result *result)
{
    struct held *held = &world.held[i];
    uint64_t op = rf_new_op(store);
    rf_cursor cursor;
    rf_status status;
    switch (world.wide && below(2) == 0 ? 3 : below(10)) {
    case 0:
        status =
            rf_park(store, world.now, &world.tenant, &held->lease, RF_PARK_POISONED, op, result);
        break;
    case 1:
        status = rf_release(store, world.now, &world.tenant, &held->lease, NULL, op, result);
        break;
    case 2:
        cursor = onward(held);
        status = rf_complete(store, world.now, &world.tenant, &held->lease, &cursor, op, result);
        break;
    case 3:
        status = split_it(store, held, false, result);
        break;
    case 4:
        return split_it(store, held, true, result);
    default:
        cursor = onward(held);
        return rf_checkpoint(store, world.now, &world.tenant, &held->lease, &cursor, op, result);
    }
    if (status == RF_OK) {
        drop_held(i);
    }
    return status;
}

static rf_status add_work(rf_store *store, uint64_t run, bool add, rf_result *result)
{
    static char keys[4096][2][8];
    static rf_shard_input shards[4096];
    uint32_t count = world.large != 0 ? world.large : ROOTS;
    rf_run_info info;
    uint64_t there = 0;
    if (rf_get_run(store, &world.tenant, run, &info, NULL) == RF_OK) {
        there = info.root_count;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t n = (add ? there : 0) + i;
        number_key(keys[i][0], (unsigned)(n * (world.large != 0 ? 10 : SPAN)));
        number_key(keys[i][1], (unsigned)((n + 1) * (world.large != 0 ? 10 : SPAN)));
        shards[i] = rf_input_of(n + 1, keys[i][0], keys[i][1]);
        shards[i].spec.metadata = (rf_bytes){long_bytes, world.large != 0 ? 100 : below(300)};
    }
    return add ? rf_add_shards(store, world.now, &world.tenant, run, shards, count,
                               rf_new_op(store), result)
               : rf_register_shards(store, world.now, &world.tenant, run, shards, count,
                                    rf_new_op(store), result);
}

struct parked {
    uint64_t shards[8];
    unsigned count;
};
static bool note_parked(void *context, const rf_shard_info *s)
{
    struct parked *parked = context;
    parked->shards[parked->count++] = s->shard;
    return parked->count < 8;
}

static rf_status work_on_run(rf_store *store, uint64_t run, rf_result *result)
{
    static const rf_run_config config = {.lease_duration = LASTING};
    rf_run_info info;
    struct parked parked = {0};
    rf_status status = rf_get_run(store, &world.tenant, run, &info, NULL);
    if (status == RF_RUN_NOT_FOUND) {
        return rf_create_run(store, world.now, &world.tenant, run, &config, result);
    }
    RF_EXPECT(RF_OK, status);
    switch (info.status) {
    case RF_RUN_INITIALIZING:
        return add_work(store, run, false, result);
    case RF_RUN_ACTIVE:
        rf_list_shards(store, world.now, &world.tenant, run, RF_LIST_PARKED, note_parked, &parked,
                       NULL);
        if (parked.count != 0) {
            return rf_unpark(store, world.now, &world.tenant, run,
                             parked.shards[below(parked.count)], rf_new_op(store), result);
        }
        if (below(3) == 0) {
            return add_work(store, run, true, result);
        }
        if (below(3) != 0) {
            return claim(below(world.handles), run, result);
        }
        return below(2) == 0
                   ? rf_complete_run(store, world.now, &world.tenant, run, rf_new_op(store), result)
                   : rf_cancel_run(store, world.now, &world.tenant, run, rf_new_op(store), result);
    default:
        return rf_purge_run(store, world.now, &world.tenant, run, result);
    }
}

static rf_status tend_to(unsigned h, rf_result *result)
{
    rf_store *store = world.stores[h];
    rf_status status;
    /* A failed log that somebody has open is waited for: that takes its time. */
    switch (below(world.breaking ? 3 : 4)) {
    case 0:
        return rf_barrier(store, &result->detail);
    case 1:
        status = rf_snapshot(store, &result->detail);
        world.snapshots += status == RF_OK;
        return status;
    case 2:
        return rf_tend(store, world.now);
    default:
        drop_leases_of(h);
        status = rf_close(store);
        world.stores[h] = NULL;
        if (status == RF_OK) {
            status = open_handle(h, &result->detail);
        }
        return status;
    }
}

/* What is on the disk for sure: the last step whose epoch, and those of all before, are durable. */
static void acknowledge(void)
{
    uint64_t durable = 0;
    for (unsigned h = 0; h < world.handles && durable == 0; h++) {
        durable = world.stores[h] == NULL ? 0 : rf_durable(world.stores[h]);
    }
    unsigned upto = world.acknowledged;
    while (upto < world.steps && world.epochs[upto + 1] <= durable) {
        upto++;
    }
    if (upto != world.acknowledged) {
        world.acknowledged = upto;
        rf_simdisk_note(upto);
    }
}

static void step(void)
{
    unsigned h = below(world.handles);
    unsigned i = world.held_count == 0 ? 0 : below(world.held_count);
    rf_store *store = world.stores[h];
    rf_result result = {.durability = world.usual != RF_VOLATILE ? world.usual
                                      : below(2) == 0            ? RF_WAIT
                                                                 : RF_NOWAIT};
    uint64_t run = 1 + below(RUNS);
    unsigned dice = below(100);
    bool waits = false; /* for sure: a claim does not */
    rf_status status;
    world.now += 1 + below(1000);
    if (world.steps < 2) {
        status = work_on_run(store, 1, &result);
    } else if (dice < 55 && world.held_count != 0) {
        status = work_on_lease(world.stores[world.held[i].handle], i, &result);
        waits = true;
    } else if (dice < 80) {
        status = claim(h, run, &result);
    } else if (dice < (world.often ? 86 : 92)) {
        status = work_on_run(store, run, &result);
    } else if (world.often && dice < 96) {
        status = rf_snapshot(store, &result.detail);
        world.snapshots += status == RF_OK;
    } else {
        status = tend_to(h, &result);
    }
    take_answer(status, &result.detail);
    for (h = 0; h < world.handles && world.stores[h] == NULL; h++) {
    }
    if (h == world.handles) {
        return; /* nobody could come back */
    }
    world.steps++;
    TEST_ASSERT_TRUE(world.steps <= STEPS_MAX);
    world.states[world.steps] = state_of(world.stores[h]);
    world.epochs[world.steps] =
        result.epoch > world.epochs[world.steps - 1] ? result.epoch : world.epochs[world.steps - 1];
    acknowledge();
    if (status == RF_OK && result.durability == RF_WAIT && result.epoch != 0 && waits) {
        TEST_ASSERT_TRUE_MESSAGE(world.acknowledged == world.steps,
                                 "a call that waits came back before its epoch was durable");
    }
}

static void begin_world(uint64_t seed, unsigned handles, rf_durability usual)
{
    world.prng = (struct rf_prng){.state = seed};
    world.now = 1000;
    world.tenant = rf_tenant_of(1);
    world.handles = handles;
    world.usual = usual;
    if (world.segment_bytes == 0) {
        world.segment_bytes = 256u << 10; /* of which some are made ahead of need */
    }
    strcpy(world.directory, "/dev/shm/rf-test-power-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(world.directory));
    snprintf(world.image, sizeof(world.image), "%s.image", world.directory);
    snprintf(world.region, sizeof(world.region), "%s.region", world.directory);
    world.states[0] = strdup("store\n");
    rf_simdisk_watch(world.directory);
}

static void open_world(void)
{
    for (unsigned h = 0; h < world.handles; h++) {
        rf_detail detail = {0};
        rf_status status = open_handle(h, &detail);
        take_answer(status, &detail);
        if (status != RF_OK) {
            world.stores[h] = NULL;
        }
    }
}

static void close_world(void)
{
    for (unsigned h = 0; h < world.handles; h++) {
        if (world.stores[h] != NULL) {
            rf_close(world.stores[h]);
            world.stores[h] = NULL;
        }
    }
}

static void live(uint64_t seed, unsigned handles, unsigned steps, rf_durability usual)
{
    begin_world(seed, handles, usual);
    open_world();
    for (unsigned i = 0; i < steps; i++) {
        step();
    }
    rf_disk_trace = NULL; /* what the judge does is not part of it */
}

static void end_world(void)
{
    rf_detail detail;
    char command[256];
    rf_disk_trace = NULL;
    close_world();
    for (unsigned i = 0; i <= world.steps; i++) {
        free(world.states[i]);
    }
    int left = 0;
    if (world.directory[0] != 0) {
        rf_destroy(world.directory, &detail);
        unlink(world.region);
        snprintf(command, sizeof(command), "rm -rf %s %s", world.directory, world.image);
        left = system(command);
    }
    memset(&world, 0, sizeof(world));
    rf_simdisk_end();
    TEST_ASSERT_EQUAL(0, left);
}

void setUp(void)
{
    memset(long_bytes, 'x', sizeof(long_bytes));
}

void tearDown(void)
{
    rf_point_on_hit = NULL;
    end_world();
}

/* --- the judge --- */

static char wrong[1200];

static const char *blame(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *blame(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(wrong, sizeof(wrong), format, args);
    va_end(args);
    return wrong;
}

static unsigned acknowledged_at(uint32_t cut)
{
    static uint64_t notes[STEPS_MAX + GRANTS_MAX];
    unsigned most = 0;
    size_t count = rf_simdisk_notes(cut, notes, sizeof(notes) / sizeof(notes[0]));
    for (size_t i = 0; i < count; i++) {
        if (notes[i] < GRANT_NOTE && notes[i] > most) {
            most = (unsigned)notes[i];
        }
    }
    return most;
}

static uint64_t higher_fence(uint64_t highest, uint64_t g, uint64_t run, uint64_t shard)
{
    bool same = world.grants[g].run == run && world.grants[g].shard == shard;
    return same && world.grants[g].fence > highest ? world.grants[g].fence : highest;
}

/* The highest fence that was granted on a shard before the cut. */
static uint64_t fence_before(uint32_t cut, uint64_t run, uint64_t shard)
{
    static uint64_t notes[STEPS_MAX + GRANTS_MAX];
    uint64_t highest = 0;
    size_t count = rf_simdisk_notes(cut, notes, sizeof(notes) / sizeof(notes[0]));
    for (size_t i = 0; i < count; i++) {
        if (notes[i] >= GRANT_NOTE) {
            highest = higher_fence(highest, notes[i] & (GRANT_NOTE - 1), run, shard);
        }
    }
    for (unsigned g = 0; g < world.old_grants; g++) {
        highest = higher_fence(highest, g, run, shard);
    }
    return highest;
}

static const char *judge_state(const char *state, uint32_t cut)
{
    unsigned from = acknowledged_at(cut);
    for (unsigned k = from; k <= world.steps; k++) {
        if (strcmp(world.states[k], state) == 0) {
            return NULL;
        }
    }
    for (unsigned k = 0; k < from; k++) {
        if (strcmp(world.states[k], state) == 0) {
            return blame("step %u was acknowledged, and the store is at step %u", from, k);
        }
    }
    return blame("not a prefix: not after step %u, which was acknowledged: %s", from,
                 difference(state, world.states[from]));
}

struct granting {
    rf_store *store;
    uint32_t cut;
    uint64_t run;
    uint64_t least; /* no fence of it is below */
    const char *wrong;
    rf_lease lease; /* one that was granted */
    char key[8];
    bool has_lease;
};

struct claimable {
    uint64_t shards[4096];
    unsigned count;
};
static bool note_claimable(void *context, const rf_shard_info *s)
{
    struct claimable *c = context;
    c->shards[c->count++] = s->shard;
    return c->count < 4096;
}

static void grant_all(struct granting *g)
{
    static struct claimable claimable;
    static uint8_t room[RF_GRANT_SCRATCH];
    claimable.count = 0;
    if (rf_list_shards(g->store, world.now, &world.tenant, g->run, RF_LIST_ACTIVE, note_claimable,
                       &claimable, NULL) != RF_OK) {
        return;
    }
    unsigned stride = claimable.count / 16 + 1; /* of a large run a few */
    for (unsigned i = 0; i < claimable.count && g->wrong == NULL; i += stride) {
        rf_grant grant = {.scratch = room, .scratch_size = sizeof(room)};
        rf_result result = {0};
        uint64_t before = fence_before(g->cut, g->run, claimable.shards[i]);
        rf_status status = rf_acquire(g->store, world.now, &world.tenant, g->run,
                                      claimable.shards[i], 5, RF_BOUND, &grant, &result);
        if (status != RF_OK) {
            g->wrong = blame("shard %" PRIx64 " can't be had: %s", claimable.shards[i],
                             rf_shop_sentence(status, &result.detail));
        } else if (grant.lease.fence <= before || grant.lease.fence < g->least) {
            g->wrong = blame("shard %" PRIx64 " has fence %" PRIx64 " after %" PRIx64,
                             claimable.shards[i], grant.lease.fence, before);
        } else {
            g->lease = grant.lease;
            memset(g->key, 0, sizeof(g->key));
            memcpy(g->key,
                   grant.cursor.key.data != NULL ? grant.cursor.key.data : grant.spec.start.data,
                   6);
            g->has_lease = true;
        }
    }
}

/* Grants what can be, and works on one of them. */
static const char *work_on(rf_store *store, uint32_t cut, uint64_t *least)
{
    struct granting g = {.store = store, .cut = cut, .least = *least};
    for (g.run = 1; g.run <= RUNS && g.wrong == NULL; g.run++) {
        grant_all(&g);
    }
    if (g.wrong == NULL && g.has_lease) {
        rf_result result = {.durability = RF_WAIT};
        rf_cursor cursor = {.key = rf_text(g.key)};
        rf_status status = rf_checkpoint(store, world.now, &world.tenant, &g.lease, &cursor,
                                         rf_new_op(store), &result);
        if (status != RF_OK) {
            return blame("no work can be done: %s", rf_shop_sentence(status, &result.detail));
        }
        *least = g.lease.fence >> 40 << 40; /* fences of the next life are above this one's */
    }
    return g.wrong;
}

static rf_store *open_image(const char **reason)
{
    rf_options options = options_of(true);
    rf_store *store = NULL;
    rf_detail detail = {0};
    unlink(world.region);
    rf_status status = rf_open(world.image, &options, &store, &detail);
    *reason = status == RF_OK ? NULL : blame("refused: %s", rf_shop_sentence(status, &detail));
    return status == RF_OK ? store : NULL;
}

/* NULL: all is well with the image that was just made. */
static const char *judge_image(uint32_t cut)
{
    const char *reason;
    uint64_t least = 0;
    rf_store *store = open_image(&reason);
    if (store == NULL) {
        return reason;
    }
    char *state = state_of(store);
    reason = judge_state(state, cut);
    free(state);
    if (reason == NULL) {
        reason = work_on(store, cut, &least);
    }
    if (reason != NULL) {
        rf_close(store);
        return reason;
    }
    char *before = state_of(store);
    rf_close(store);
    store = open_image(&reason); /* and again */
    if (store != NULL) {
        state = state_of(store);
        if (strcmp(before, state) != 0) {
            reason = blame("after another cold open: %s", difference(state, before));
        } else {
            least += least == 0 ? 0 : 1ull << 40;
            reason = work_on(store, cut, &least);
        }
        free(state);
        rf_close(store);
    }
    free(before);
    return reason;
}

/* Every cut that matters, at most so many images of each; the first thing that is wrong, or NULL. */
static const char *judge_cuts_from(uint32_t first, uint64_t most, uint64_t seed, uint64_t *judged)
{
    for (uint32_t cut = first; cut <= rf_simdisk_cuts(); cut++) {
        if (!rf_simdisk_matters(cut)) {
            continue;
        }
        for (uint64_t i = 0; rf_simdisk_next(cut, i, most, seed, world.image); i++) {
            const char *reason = judge_image(cut);
            ++*judged;
            if (reason != NULL) {
                printf("  cut %" PRIu32 ", image %" PRIu64 " of %" PRIu64 ", after %s\n", cut, i,
                       rf_simdisk_images(cut), rf_simdisk_words(cut == 0 ? 0 : cut - 1));
                return reason;
            }
        }
    }
    return NULL;
}

static const char *judge_cuts(uint64_t most, uint64_t seed, uint64_t *judged)
{
    return judge_cuts_from(0, most, seed, judged);
}

static void expect_all_well(uint64_t most, uint64_t seed)
{
    uint64_t judged = 0;
    const char *reason = judge_cuts(most, seed, &judged);
    printf("  %u steps, %" PRIu32 " events, %u snapshots, %" PRIu64 " images\n", world.steps,
           rf_simdisk_cuts(), world.snapshots, judged);
    if (reason != NULL) {
        TEST_FAIL_MESSAGE(reason);
    }
    TEST_ASSERT_TRUE(judged > 10);
}

/* --- tests --- */

static void one_handle_that_waits_cut_everywhere(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 1);
    live(seed, 1, 40, RF_WAIT);
    TEST_ASSERT_TRUE(world.acknowledged > 20);
    expect_all_well(RF_SHOP_SANITIZED ? 3 : 8, seed);
}

static void three_handles_that_wait_or_not(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 2);
    for (uint64_t round = 0; round < (RF_SHOP_SANITIZED ? 1 : 2); round++) {
        live(seed + round, 3, 60, RF_VOLATILE);
        expect_all_well(4, seed + round);
        end_world();
    }
}

static void nobody_waits_until_the_end(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 3);
    live(seed, 2, 60, RF_NOWAIT);
    expect_all_well(RF_SHOP_SANITIZED ? 6 : 20, seed);
}

/* Runs that are registered by more than a record holds are there as a whole or not at all. */
static void large_registrations_are_whole_or_not_at_all(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 4);
    world.large = 1500;
    world.segment_bytes = 64u << 10; /* batches of several segments */
    live(seed, 2, 12, RF_NOWAIT);
    expect_all_well(RF_SHOP_SANITIZED ? 3 : 10, seed);
}

/* So are the 256 children of a split, and their parent knows of all or of none. */
static void wide_splits_are_whole_or_not_at_all(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 5);
    world.wide = true;
    world.segment_bytes = 64u << 10;
    live(seed, 2, 30, RF_NOWAIT);
    printf("  %u splits\n", world.wide_splits);
    TEST_ASSERT_TRUE(world.wide_splits != 0);
    expect_all_well(RF_SHOP_SANITIZED ? 3 : 10, seed);
}

static bool there(const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", world.directory, name);
    return access(path, F_OK) == 0;
}

/* Snapshots come, and segments behind two of them go. */
static void snapshots_are_taken_all_the_time(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 11);
    world.often = true;
    world.segment_bytes = 64u << 10;
    live(seed, 2, RF_SHOP_SANITIZED ? 70 : 100, RF_VOLATILE);
    TEST_ASSERT_TRUE(world.snapshots > 2);
    TEST_ASSERT_FALSE(there("log.0000000000000000"));
    expect_all_well(RF_SHOP_SANITIZED ? 1 : 3, seed);
}

/* That the same judge would see it. */
static void expect_found_out(unsigned lie, const char *words)
{
    uint64_t judged = 0;
    rf_simdisk_disbelieve(lie);
    const char *reason = judge_cuts(12, 1, &judged);
    TEST_ASSERT_NOT_NULL_MESSAGE(reason, words);
    printf("  %s\n", reason);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(reason, words), reason);
}

static void a_log_without_its_syncs_would_be_found_out(void)
{
    live(5, 2, 40, RF_WAIT);
    expect_found_out(RF_SIMDISK_BIT(RF_DISK_WRITE_END), "acknowledged");
    expect_found_out(RF_SIMDISK_BIT(RF_DISK_SYNC), "refused");
    expect_found_out(RF_SIMDISK_BIT(RF_DISK_SYNC_DIR), "the log is gone");
    rf_simdisk_disbelieve(0);
    expect_all_well(2, 1);
}

/* --- a power cut, and another one while the store recovers from it --- */

/* In a process of its own, with a memory of its own: an image becomes the store. */
static int recover_and_cut(void *context)
{
    uint32_t cut = *(const uint32_t *)context;
    char image[64];
    uint64_t judged = 0;
    rf_detail detail = {0};
    /* What was granted before the cut stays granted. */
    for (unsigned g = 0; g < world.grant_count; g++) {
        if (fence_before(cut, world.grants[g].run, world.grants[g].shard) >=
            world.grants[g].fence) {
            world.grants[world.old_grants++] = world.grants[g];
        }
    }
    world.grant_count = world.old_grants;
    world.held_count = 0;
    memset(world.stores, 0, sizeof(world.stores)); /* the parent's */
    memset(world.epochs, 0, sizeof(world.epochs));
    TEST_ASSERT_TRUE(strlen(world.image) < sizeof(image));
    snprintf(image, sizeof(image), "%s", world.image);
    strcpy(world.directory, image);
    snprintf(world.image, sizeof(world.image), "%s.image", image);
    snprintf(world.region, sizeof(world.region), "%s.region", image);

    rf_simdisk_watch(world.directory);
    RF_EXPECT(RF_OK, open_handle(0, &detail));
    world.steps = world.acknowledged = 0;
    world.states[0] = state_of(world.stores[0]); /* from here on nothing of this may be lost */
    for (unsigned h = 1; h < world.handles; h++) {
        RF_EXPECT(RF_OK, open_handle(h, &detail));
    }
    while (world.steps < 5) {
        step();
    }
    rf_disk_trace = NULL;
    const char *reason = judge_cuts(RF_SHOP_SANITIZED ? 2 : 3, cut, &judged);
    close_world();
    rf_destroy(world.directory, &detail);
    unlink(world.region);
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", world.image);
    if (system(command) != 0 || reason != NULL) {
        TEST_FAIL_MESSAGE(reason == NULL ? command : reason);
    }
    TEST_ASSERT_TRUE(judged > 10);
    return 0;
}

static void cut_recoveries(uint64_t seed, unsigned rounds)
{
    struct rf_prng prng = {.state = seed};
    for (unsigned round = 0; round < rounds;) {
        uint32_t cut = rf_prng_below(&prng, rf_simdisk_cuts() + 1);
        if (!rf_simdisk_matters(cut)) {
            continue;
        }
        rf_simdisk_sample(cut, 2 + rf_prng_below(&prng, 1000), world.image);
        TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(recover_and_cut, &cut)));
        round++;
    }
}

static void a_recovery_may_be_cut_too(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 8);
    live(seed, 2, 40, RF_VOLATILE);
    cut_recoveries(seed, RF_SHOP_SANITIZED ? 1 : 4);
}

/* --- failures of the disk --- */

/* After a write has failed: nothing is acknowledged any more, by nobody; what is there can be looked at. */
static void expect_latched(void)
{
    for (unsigned h = 0; h < world.handles; h++) {
        static const rf_run_config config = {.lease_duration = LASTING};
        rf_store *store = world.stores[h];
        rf_inspection inspection;
        rf_detail detail = {0};
        rf_result result = {.durability = RF_WAIT};
        if (store == NULL) {
            continue;
        }
        RF_EXPECT(RF_OK, rf_inspect(store, &inspection, &detail));
        TEST_ASSERT_TRUE(inspection.log_failed);
        RF_EXPECT(RF_IO_ERROR,
                  rf_create_run(store, world.now, &world.tenant, RUNS + 1, &config, &result));
        result.durability = RF_NOWAIT;
        RF_EXPECT(RF_IO_ERROR,
                  rf_create_run(store, world.now, &world.tenant, RUNS + 1, &config, &result));
        /* Even if what failed was only the batch that vouches for the last one. */
        RF_EXPECT(RF_IO_ERROR, rf_barrier(store, &detail));
        RF_EXPECT(RF_OK, rf_sync(store, rf_durable(store), &detail));
        free(state_of(store));
    }
}

static bool log_failed(void)
{
    for (unsigned h = 0; h < world.handles; h++) {
        rf_inspection inspection;
        if (world.stores[h] != NULL && rf_inspect(world.stores[h], &inspection, NULL) == RF_OK) {
            return inspection.log_failed;
        }
    }
    return false;
}

/* What opening it again finds, without a power cut: all, or, after a failure, what the disk has. */
static void expect_prefix_after_reopen(void)
{
    rf_detail detail = {0};
    bool cold = log_failed();
    close_world();
    rf_simdisk_fail(0, 0, 0, false);
    rf_status status = open_handle(0, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    char *state = state_of(world.stores[0]);
    const char *reason = judge_state(state, rf_simdisk_cuts());
    if (!cold && strcmp(state, world.states[world.steps]) != 0) {
        reason = blame("lost without a failure: %s", difference(state, world.states[world.steps]));
    }
    free(state);
    uint64_t least = 0;
    rf_disk_trace = NULL; /* what the judge does is not part of it */
    if (reason == NULL && cold) {
        reason = work_on(world.stores[0], rf_simdisk_cuts(), &least);
    }
    if (reason != NULL) {
        TEST_FAIL_MESSAGE(reason);
    }
}

/* The n-th operation of the disk fails, for every n. */
static void fail_everywhere(uint64_t seed, int error, unsigned steps)
{
    uint64_t images = 0;
    unsigned latched = 0;
    unsigned went_on = 0;
    uint64_t n = 1;
    for (bool all = false; !all; n++) {
        begin_world(seed, 2, RF_VOLATILE);
        world.breaking = true;
        rf_simdisk_fail(RF_SIMDISK_CHANGES, n, error, false);
        open_world();
        /* Images of the time before were judged with a later failure. */
        uint32_t since = rf_simdisk_cuts() > 12 ? rf_simdisk_cuts() - 12 : 0;
        while (world.steps < steps && world.broken == RF_OK) {
            since = rf_simdisk_cuts();
            step();
        }
        all = rf_simdisk_counted() < n;
        n += RF_SHOP_SANITIZED ? 2 : 0;
        bool cold = log_failed();
        if (cold) {
            RF_EXPECT(RF_IO_ERROR, world.broken);
            expect_latched();
            latched++;
        } else if (world.stores[0] != NULL && world.stores[1] != NULL) {
            /* Refused for want of room, or never noticed (a removal): it goes on. */
            rf_simdisk_fail(0, 0, 0, false);
            world.breaking = false;
            world.broken = RF_OK;
            usleep(110000); /* when making a segment is tried again */
            for (unsigned i = 0; i < 6; i++) {
                step();
            }
            went_on++;
        }
        expect_prefix_after_reopen();
        close_world();
        const char *reason = judge_cuts_from(since, cold ? 2 : 1, seed + n, &images);
        if (reason != NULL) {
            printf("  failure of operation %" PRIu64 "\n", n);
            TEST_FAIL_MESSAGE(reason);
        }
        end_world();
    }
    printf("  %" PRIu64 " operations tried in turn, %u latched, %u went on, %" PRIu64 " images\n",
           n, latched, went_on, images);
    TEST_ASSERT_TRUE(latched != 0 && went_on != 0);
}

static void any_operation_of_the_disk_may_fail_with_eio(void)
{
    fail_everywhere(rf_env_number("RF_SEED", 6), EIO, 16);
}

static void any_operation_of_the_disk_may_fail_with_enospc(void)
{
    fail_everywhere(rf_env_number("RF_SEED", 7), ENOSPC, 16);
}

/* --- several processes at once, with their guardians --- */

#define WORKERS   3u
#define WORKS     14u
#define WORK_NOTE (1ull << 40)
#define NOT_YET   UINT32_MAX

/* When each checkpoint was begun and had returned, by a clock that all can see. */
struct crowd {
    _Atomic uint32_t clock;
    _Atomic uint32_t ready;
    struct {
        _Atomic uint32_t begun, returned;
    } works[WORKERS][WORKS + 1];
};

static struct crowd *crowd;
static unsigned worker; /* copied by fork */
static uint32_t die_at; /* the worker's hit; 0: it lives */
static _Atomic uint32_t hits;

static void die_at_hit(const char *name)
{
    (void)name;
    if (atomic_fetch_add(&hits, 1) + 1 == die_at) {
        kill(getpid(), SIGKILL);
    }
}

static rf_options options_of_workers(void)
{
    rf_options options = options_of(false);
    options.manual = false;
    options.clock = NULL;
    options.clock_context = NULL;
    options.flush_interval = 2 * RF_MILLISECOND;
    return options;
}

/* Checkpoints of a shard of its own; every other one is waited for. */
static int be_a_worker(void *context)
{
    rf_options options = options_of_workers();
    rf_store *store;
    rf_detail detail = {0};
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    (void)context;
    if (rf_point_on_hit == NULL && die_at != 0) {
        rf_point_on_hit = die_at_hit;
    }
    rf_status status = rf_open(world.directory, &options, &store, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    RF_EXPECT(RF_OK, rf_acquire(store, rf_now(store), &world.tenant, 1, worker + 1, worker,
                                RF_BOUND, &grant, NULL));
    atomic_fetch_add(&crowd->ready, 1);
    for (uint32_t n = 1; n <= WORKS; n++) {
        char key[8];
        rf_result result = {.durability = n % 2 == 0 ? RF_WAIT : RF_NOWAIT};
        number_key(key, worker * SPAN + n);
        rf_cursor cursor = {.key = rf_text(key), .token = {long_bytes, n % 5 == 0 ? 9000 : 10}};
        atomic_store(&crowd->works[worker][n].begun, atomic_fetch_add(&crowd->clock, 1));
        status = rf_checkpoint(store, rf_now(store), &world.tenant, &grant.lease, &cursor,
                               rf_new_op(store), &result);
        atomic_store(&crowd->works[worker][n].returned, atomic_fetch_add(&crowd->clock, 1));
        if (status != RF_OK) {
            TEST_FAIL_MESSAGE(rf_shop_sentence(status, &result.detail));
        }
        if (n % 2 == 0) {
            rf_simdisk_note(WORK_NOTE | (uint64_t)worker << 16 | n);
        }
    }
    RF_EXPECT(RF_OK, rf_close(store));
    return 0;
}

/* How far each worker's shard is in the image. */
static const char *read_works(rf_store *store, uint32_t reached[WORKERS])
{
    const char *reason = NULL;
    for (unsigned w = 0; w < WORKERS && reason == NULL; w++) {
        rf_shard_info info;
        if (rf_get_shard(store, &world.tenant, 1, w + 1, &info, scratch, sizeof(scratch), NULL) !=
            RF_OK) {
            reason = blame("shard %u is gone", w + 1);
        } else {
            char key[8] = {0};
            memcpy(key, info.cursor.key.data == NULL ? "" : info.cursor.key.data,
                   info.cursor.key.len);
            reached[w] = key[0] == 0 ? 0 : (uint32_t)atoi(key) - w * SPAN;
        }
    }
    return reason;
}

/* What is there is a prefix: with every checkpoint, all that had returned before it was begun. */
static const char *judge_works(uint32_t cut)
{
    uint32_t reached[WORKERS] = {0};
    static uint64_t notes[WORKERS * WORKS + 8];
    const char *reason;
    rf_store *store = open_image(&reason);
    if (store != NULL) {
        reason = read_works(store, reached);
        rf_close(store);
    }
    if (reason != NULL) {
        return reason;
    }
    size_t count = rf_simdisk_notes(cut, notes, sizeof(notes) / sizeof(notes[0]));
    for (size_t i = 0; i < count; i++) {
        if (notes[i] >= WORK_NOTE) {
            unsigned w = notes[i] >> 16 & 0xff;
            if ((notes[i] & 0xffff) > reached[w]) {
                return blame("worker %u: %u was acknowledged, %u is there", w,
                             (unsigned)(notes[i] & 0xffff), reached[w]);
            }
        }
    }
    for (unsigned w = 0; w < WORKERS; w++) {
        for (unsigned v = 0; v < WORKERS; v++) {
            uint32_t next = reached[v] + 1;
            if (reached[w] != 0 && next <= WORKS &&
                atomic_load(&crowd->works[v][next].returned) <
                    atomic_load(&crowd->works[w][reached[w]].begun)) {
                return blame("not a prefix: %u of worker %u is there, and not %u of worker %u, "
                             "which came before it",
                             reached[w], w, next, v);
            }
        }
    }
    return NULL;
}

/* A store with a run for the workers, and nobody who has it open. */
static void begin_works(uint64_t seed)
{
    static const rf_run_config config = {.lease_duration = LASTING};
    begin_world(seed, 1, RF_WAIT);
    crowd = rf_hands_board(sizeof(*crowd));
    for (unsigned w = 0; w < WORKERS; w++) {
        for (unsigned n = 0; n <= WORKS; n++) {
            atomic_store(&crowd->works[w][n].begun, NOT_YET);
            atomic_store(&crowd->works[w][n].returned, NOT_YET);
        }
    }
    open_world();
    RF_EXPECT(RF_OK, rf_create_run(world.stores[0], rf_now(world.stores[0]), &world.tenant, 1,
                                   &config, NULL));
    RF_EXPECT(RF_OK, add_work(world.stores[0], 1, false, NULL));
    close_world();
}

static void judge_all_works(uint32_t since, uint64_t most, uint64_t seed, uint64_t *judged)
{
    for (uint32_t cut = since; cut <= rf_simdisk_cuts(); cut++) {
        for (uint64_t i = 0;
             rf_simdisk_matters(cut) && rf_simdisk_next(cut, i, most, seed, world.image); i++) {
            const char *reason = judge_works(cut);
            ++*judged;
            if (reason != NULL) {
                printf("  cut %" PRIu32 ", after %s\n", cut, rf_simdisk_words(cut - 1));
                TEST_FAIL_MESSAGE(reason);
            }
        }
    }
}

static unsigned work_together(uint64_t seed, unsigned victims)
{
    pid_t pids[WORKERS];
    struct rf_prng prng = {.state = seed};
    unsigned killed = 0;
    uint64_t judged = 0;
    begin_works(seed);
    uint32_t since = rf_simdisk_cuts();
    for (worker = 0; worker < WORKERS; worker++) {
        die_at = worker < victims ? 1 + rf_prng_below(&prng, 500) : 0;
        pids[worker] = rf_hands_send(be_a_worker, NULL);
    }
    for (unsigned w = 0; w < WORKERS; w++) {
        int status;
        TEST_ASSERT_EQUAL(pids[w], waitpid(pids[w], &status, 0));
        TEST_ASSERT_TRUE(WIFEXITED(status) ? WEXITSTATUS(status) == 0
                                           : w < victims && WTERMSIG(status) == SIGKILL);
        killed += WIFSIGNALED(status);
    }
    rf_disk_trace = NULL;
    judge_all_works(since, 3, seed, &judged);
    printf("  %u killed, %" PRIu32 " events, %" PRIu64 " images\n", killed, rf_simdisk_cuts(),
           judged);
    TEST_ASSERT_TRUE(judged > 5);
    end_world();
    return killed;
}

/* --- what the dead have written, and nobody has synced --- */

static void die_when_written(const char *name)
{
    if (strcmp(name, "disk.attempted") == 0 && atomic_fetch_add(&hits, 1) + 1 == die_at) {
        kill(getpid(), SIGKILL);
    }
}

static int be_killed_after_a_write(void *context)
{
    rf_point_on_hit = die_when_written;
    return be_a_worker(context);
}

/* A batch is in the file, and its writer was killed before it could say so; the region is lost, so that the next open
 * is cold and finds the batch. From then on it must not be lost any more. */
static void what_a_cold_open_found_is_durable(void)
{
    uint64_t judged = 0;
    unsigned found_more = 0;
    for (die_at = 1; die_at <= 7; die_at++) {
        int status;
        rf_detail detail = {0};
        uint32_t reached[WORKERS];
        struct stat st;
        char region[96];
        begin_works(die_at);
        worker = 0;
        pid_t pid = rf_hands_send(be_killed_after_a_write, NULL);
        TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
        TEST_ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        rf_simdisk_settle();
        uint32_t since = rf_simdisk_cuts();
        TEST_ASSERT_EQUAL(0, stat(world.directory, &st));
        snprintf(region, sizeof(region), "/dev/shm/ringfence.%jx.%jx", (uintmax_t)st.st_dev,
                 (uintmax_t)st.st_ino);
        TEST_ASSERT_EQUAL(0, unlink(region));
        RF_EXPECT(RF_OK, open_handle(0, &detail));
        TEST_ASSERT_NULL(read_works(world.stores[0], reached));
        rf_simdisk_note(WORK_NOTE | reached[0]);
        found_more += reached[0] % 2 == 0 && reached[0] != 0 &&
                      atomic_load(&crowd->works[0][reached[0]].returned) == NOT_YET;
        rf_disk_trace = NULL;
        close_world();
        judge_all_works(since, RF_SHOP_SANITIZED ? 4 : 12, die_at, &judged);
        end_world();
    }
    printf("  %u times something that was not acknowledged, %" PRIu64 " images\n", found_more,
           judged);
    TEST_ASSERT_TRUE(found_more > 2);
}

static void processes_at_once_cut_everywhere(void)
{
    work_together(rf_env_number("RF_SEED", 9), 0);
}

static void some_are_killed_and_then_the_power_is_cut(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 10);
    unsigned killed = 0;
    for (unsigned round = 0; round < (RF_SHOP_SANITIZED ? 2 : 5); round++) {
        killed += work_together(seed + round, 1 + round % 2);
    }
    TEST_ASSERT_TRUE(killed != 0);
}

/* --- destroyed --- */

/* A store that was being destroyed is there as it was, or it is none. */
static const char *judge_remains(uint32_t cut, bool *whole)
{
    rf_options options = options_of(true);
    rf_store *store;
    rf_detail detail = {0};
    const char *reason = NULL;
    char lock[100];
    snprintf(lock, sizeof(lock), "%s/lock", world.image);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    TEST_ASSERT_TRUE(fd >= 0 && close(fd) == 0);
    options.create = false;
    unlink(world.region);
    rf_status status = rf_open(world.image, &options, &store, &detail);
    *whole = status == RF_OK;
    if (status == RF_OK) {
        char *state = state_of(store);
        reason = judge_state(state, cut);
        free(state);
        rf_close(store);
    } else if (status != RF_NOT_FOUND && strstr(detail.where, "or destroy the store") == NULL) {
        reason = blame("refused: %s", rf_shop_sentence(status, &detail));
    }
    return reason;
}

static void a_store_that_is_destroyed_is_whole_or_none(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 12), judged = 0;
    unsigned whole = 0;
    bool is_whole = true;
    rf_detail detail = {0};
    world.segment_bytes = 64u << 10;
    live(seed, 1, 60, RF_WAIT);
    rf_disk_trace = rf_simdisk_trace;
    close_world();
    uint32_t since = rf_simdisk_cuts();
    RF_EXPECT(RF_OK, rf_destroy(world.directory, &detail));
    rf_disk_trace = NULL;
    for (uint32_t cut = since; cut <= rf_simdisk_cuts(); cut++) {
        for (uint64_t i = 0;
             rf_simdisk_matters(cut) && rf_simdisk_next(cut, i, 100, seed, world.image); i++) {
            const char *reason = judge_remains(cut, &is_whole);
            judged++;
            whole += is_whole;
            if (reason != NULL) {
                printf("  cut %" PRIu32 ", after %s\n", cut, rf_simdisk_words(cut - 1));
                TEST_FAIL_MESSAGE(reason);
            }
        }
    }
    printf("  %" PRIu64 " images, %u of them whole\n", judged, whole);
    TEST_ASSERT_TRUE(whole != 0 && whole < judged);
    TEST_ASSERT_FALSE_MESSAGE(is_whole, "it came back");
}

/* --- for long --- */

static void a_random_world(uint64_t seed)
{
    struct rf_prng prng = {.state = seed};
    static const rf_durability usual[] = {RF_WAIT, RF_NOWAIT, RF_VOLATILE, RF_VOLATILE};
    world.segment_bytes = (64u << 10) * (1 + rf_prng_below(&prng, 4));
    world.often = rf_prng_chance(&prng, 40);
    world.large = rf_prng_chance(&prng, 10) ? 200 + rf_prng_below(&prng, 1500) : 0;
    printf("  RF_SEED=%" PRIu64 ":", seed);
    live(seed, 1 + rf_prng_below(&prng, HANDLES_MAX), 20 + rf_prng_below(&prng, 130),
         usual[rf_prng_below(&prng, 4)]);
    expect_all_well(5, seed);
    cut_recoveries(seed, 2);
    end_world();
}

static void and_on_and_on(void)
{
    if (getenv("RF_SOAK") == NULL) {
        TEST_IGNORE_MESSAGE("only with RF_SOAK=1");
    }
    uint64_t seed = rf_env_number("RF_SEED", 1);
    time_t until = time(NULL) + (time_t)rf_env_number("RF_SECONDS", 600);
    for (; time(NULL) < until; seed++) {
        a_random_world(seed);
        if (seed % 8 == 0) {
            fail_everywhere(seed, seed % 16 == 0 ? EIO : ENOSPC, 10 + (unsigned)(seed % 23));
        }
        if (seed % 3 == 0) {
            work_together(seed, (unsigned)(seed % 4));
        }
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(one_handle_that_waits_cut_everywhere);
    RUN_TEST(three_handles_that_wait_or_not);
    RUN_TEST(nobody_waits_until_the_end);
    RUN_TEST(large_registrations_are_whole_or_not_at_all);
    RUN_TEST(wide_splits_are_whole_or_not_at_all);
    RUN_TEST(snapshots_are_taken_all_the_time);
    RUN_TEST(a_log_without_its_syncs_would_be_found_out);
    RUN_TEST(a_recovery_may_be_cut_too);
    RUN_TEST(any_operation_of_the_disk_may_fail_with_eio);
    RUN_TEST(any_operation_of_the_disk_may_fail_with_enospc);
    RUN_TEST(processes_at_once_cut_everywhere);
    RUN_TEST(some_are_killed_and_then_the_power_is_cut);
    RUN_TEST(what_a_cold_open_found_is_durable);
    RUN_TEST(a_store_that_is_destroyed_is_whole_or_none);
    RUN_TEST(and_on_and_on);
    return UNITY_END();
}
