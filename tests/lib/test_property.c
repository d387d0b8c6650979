/*
 * A small world of two runs and their shards, driven by random calls from a seed: good ones, wrong
 * ones, repeated ones, from owners, zombies and strangers, with clocks that disagree.
 *
 * Every call is held to the desks' rules, and to an oracle that says by itself what an operation on
 * a shard has to answer. After every step the world as a whole is looked at: each grant of a shard
 * has a higher fence than all before it, even after its run was purged and made again; the shards
 * of a run that are not split cover its root ranges exactly once; a split shard's children are
 * there and name it.
 *
 * RF_SEED=n repeats a run from that seed, with RF_SOAK=1 RF_SECONDS=s it goes on for so long.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unity.h>

#include "desk.h"
#include "prng.h"
#include "range.h"
#include "run_desk.h"

#define SHARDS   64u /* at most, in both runs */
#define RUNS     2u
#define PAST     24u    /* requests to a shard that may be repeated */
#define GRANTS   16384u /* slots for the highest fence of each shard that ever was */
#define KEY_MAX  6u
#define STEPS    3000u
#define EPISODES 200u

static const uint8_t alphabet[] = {0x00, 0x01, 'a', 'b', 'c', 0xFE, 0xFF};

struct word {
    bool present;
    uint8_t len;
    uint8_t bytes[KEY_MAX];
};

enum kind {
    ACQUIRE,
    RENEW,
    CHECKPOINT,
    COMPLETE,
    PARK,
    RELEASE,
    SPLIT_REPLACE,
    SPLIT_RESIDUAL,
    UNPARK,
    KINDS,
};

/* All that the payload of a call is made from, so that it can be made again. */
struct request {
    enum kind kind;
    uint64_t op;
    struct word key, token;
    rf_park_reason reason;
    struct word start, end, points[4];
    uint32_t point_count;
    uint32_t rotation; /* of the children */
};

struct remembered {
    uint64_t op, hash;
};

struct shard {
    struct rf_box box;
    uint32_t run;                          /* which of the two */
    struct remembered ring[RF_SHARD_RING]; /* oldest first */
    uint32_t ring_count;
    struct request past[PAST];
    uint32_t past_count;
    rf_lease leases[4];
    uint32_t lease_count;
};

struct grant {
    uint64_t run, shard, fence;
};

static struct world {
    struct rf_prng prng;
    uint64_t clock;
    uint64_t fence_floor;
    struct rf_run_desk runs[RUNS];
    rf_spec roots[RUNS][SHARDS];
    struct word root_words[RUNS][SHARDS][2];
    uint32_t root_count[RUNS];
    uint64_t next_root_id;
    struct shard shards[SHARDS];
    uint32_t shard_count;
    struct grant grants[GRANTS];
    uint32_t grant_count;
    struct rf_desk desk;
    uint64_t steps, executed, replayed, refused, forgotten;
} world;

static uint64_t current_seed;

void setUp(void)
{
}

void tearDown(void)
{
    if (Unity.CurrentTestFailed != 0) {
        printf("step %" PRIu64 " of RF_SEED=%" PRIu64 "\n", world.steps, current_seed);
    }
}

static uint32_t pick(uint32_t bound)
{
    return rf_prng_below(&world.prng, bound);
}

static bool chance(uint32_t percent)
{
    return rf_prng_chance(&world.prng, percent);
}

/* --- words --- */

static rf_bytes bytes_of(const struct word *w)
{
    return w->present ? rf_bytes_of(w->bytes, w->len) : rf_bytes_none();
}

static struct word word_of(rf_bytes bytes)
{
    struct word w = {.present = bytes.data != NULL, .len = (uint8_t)bytes.len};
    TEST_ASSERT_TRUE(bytes.len <= KEY_MAX);
    if (bytes.len != 0) {
        memcpy(w.bytes, bytes.data, bytes.len);
    }
    return w;
}

static struct word any_word(void)
{
    struct word w = {.present = true, .len = (uint8_t)pick(KEY_MAX + 1)};
    for (uint32_t i = 0; i < w.len; i++) {
        w.bytes[i] = alphabet[pick(sizeof(alphabet))];
    }
    return w;
}

/* Bytewise, written out again. */
static bool below(rf_bytes a, rf_bytes b)
{
    const uint8_t *x = a.data, *y = b.data;
    for (size_t i = 0; i < a.len && i < b.len; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i];
        }
    }
    return a.len < b.len;
}

static bool inside(rf_spec range, rf_bytes key)
{
    return (range.start.len == 0 || !below(key, range.start)) &&
           (range.end.len == 0 || below(key, range.end));
}

/* The first bytes of this one, and others behind them. */
static struct word word_near(rf_bytes bytes)
{
    struct word w = any_word();
    size_t shared = bytes.len != 0 ? pick((uint32_t)bytes.len + 1) : 0;
    if (shared != 0) {
        memcpy(w.bytes, bytes.data, shared);
    }
    if (w.len < shared) {
        w.len = (uint8_t)shared;
    }
    return w;
}

/* A word of the range, if one is found quickly. */
static struct word word_inside(rf_spec range)
{
    struct word w = any_word();
    for (int tries = 0; tries < 30 && !inside(range, bytes_of(&w)); tries++) {
        w = word_near(chance(50) ? range.start : range.end);
    }
    return w;
}

/* --- the world --- */

static bool id_exists(void *context, uint64_t id)
{
    uint32_t run = *(const uint32_t *)context;
    for (uint32_t i = 0; i < world.shard_count; i++) {
        if (world.shards[i].run == run && world.shards[i].box.shard == id) {
            return true;
        }
    }
    return false;
}

static struct rf_env env_of(uint32_t *run)
{
    return (struct rf_env){
        .fence_floor = world.fence_floor,
        .lease_duration = world.runs[*run].config.lease_duration,
        .run_status = world.runs[*run].run.status,
        .tenant_shards = world.shard_count,
        .tenant_limit = SHARDS,
        .total_shards = world.shard_count,
        .total_limit = SHARDS,
        .exists = id_exists,
        .context = run,
    };
}

static struct shard *new_shard(uint32_t run)
{
    TEST_ASSERT_TRUE(world.shard_count < SHARDS);
    struct shard *s = &world.shards[world.shard_count++];
    s->run = run;
    s->ring_count = s->past_count = s->lease_count = 0;
    return s;
}

/* The fence of a grant must be above all that this shard was ever granted with. */
static void note_grant(uint64_t run, uint64_t shard, uint64_t fence)
{
    uint64_t at = (shard * 0x9e3779b97f4a7c15u ^ run) >> 50;
    struct grant *g = &world.grants[at];
    while (g->fence != 0 && (g->run != run || g->shard != shard)) {
        at = (at + 1) % GRANTS;
        g = &world.grants[at];
    }
    TEST_ASSERT_TRUE_MESSAGE(fence > g->fence, "a fence was granted twice");
    if (g->fence == 0) {
        world.grant_count++;
    }
    *g = (struct grant){.run = run, .shard = shard, .fence = fence};
    TEST_ASSERT_TRUE(world.grant_count < GRANTS / 2);
}

static uint64_t some_time(void)
{
    if (chance(1)) {
        return 0;
    }
    if (chance(20)) { /* somebody whose clock is behind */
        uint64_t back = pick(300);
        return world.clock > back ? world.clock - back : 1;
    }
    world.clock += pick(chance(3) ? 400 : 8);
    return world.clock;
}

/* --- what an operation on a shard has to answer, up to its arguments --- */

static const struct remembered *recall(const struct shard *s, uint64_t op)
{
    for (uint32_t i = 0; i < s->ring_count; i++) {
        if (s->ring[i].op == op) {
            return &s->ring[i];
        }
    }
    return NULL;
}

static void remember(struct shard *s, uint64_t op, uint64_t hash)
{
    if (s->ring_count == RF_SHARD_RING) {
        memmove(&s->ring[0], &s->ring[1], sizeof(s->ring[0]) * (RF_SHARD_RING - 1));
        s->ring_count--;
        world.forgotten++;
    }
    s->ring[s->ring_count++] = (struct remembered){.op = op, .hash = hash};
}

struct answer {
    rf_status status;
    bool replay;
    bool open; /* the arguments decide */
};

static struct answer expect_lease(const struct rf_desk *d)
{
    const struct rf_shard_state *s = &d->before.state;
    struct answer a = {.status = RF_OK};
    bool leased = (s->flags & RF_SHARD_LEASED) != 0;
    if (s->status != RF_SHARD_ACTIVE) {
        a.status = RF_SHARD_TERMINAL;
    } else if (s->fence != d->lease.fence || !leased) {
        a.status = RF_STALE_FENCE;
    } else if (s->deadline <= d->now) {
        a.status = RF_LEASE_EXPIRED;
    } else if (s->owner != d->lease.worker) {
        a.status = RF_STALE_FENCE;
    }
    return a;
}

static rf_status expect_cursor(const struct rf_desk *d, const struct request *r)
{
    rf_cursor stored = rf_box_cursor(&d->before);
    if (!r->key.present) {
        return RF_MISSING_KEY;
    }
    if (stored.key.data != NULL && below(bytes_of(&r->key), stored.key)) {
        return RF_CURSOR_REGRESSION;
    }
    return inside(rf_box_spec(&d->before), bytes_of(&r->key)) ? RF_OK : RF_CURSOR_OUT_OF_BOUNDS;
}

static bool made_residual(const struct rf_desk *d)
{
    for (uint32_t i = 0; i < d->before.state.spawned_count; i++) {
        if (d->before.spawned[i] ==
            rf_split_id(d->before.run, d->before.shard, d->op, RF_RESIDUAL, i)) {
            return true;
        }
    }
    return false;
}

static struct answer expect(const struct shard *s, const struct rf_desk *d, const struct request *r)
{
    const struct rf_shard_state *was = &d->before.state;
    struct answer a = {.status = RF_OK};
    if (d->now == 0) {
        a.status = RF_INVALID_TIME;
        return a;
    }
    if (!rf_tenant_equal(&d->tenant, &d->before.tenant)) {
        a.status = RF_NOT_FOUND;
        return a;
    }
    if (r->kind == ACQUIRE) {
        a.status = was->status != RF_SHARD_ACTIVE ? RF_SHARD_TERMINAL
                   : (was->flags & RF_SHARD_LEASED) != 0 && d->now < was->deadline
                       ? RF_ALREADY_LEASED
                       : RF_OK;
        return a;
    }
    if (r->kind == RENEW) {
        return expect_lease(d);
    }
    if (r->kind == UNPARK && rf_run_is_terminal(d->env.run_status)) {
        a.status = RF_RUN_TERMINAL;
        return a;
    }
    const struct remembered *before = recall(s, r->op);
    if (before != NULL && before->hash != d->hash) {
        a.status = RF_OP_ID_CONFLICT;
        return a;
    }
    if (before != NULL || (r->kind == SPLIT_RESIDUAL && made_residual(d))) {
        a.replay = true;
        return a;
    }
    if (r->kind == UNPARK) {
        a.status = was->status == RF_SHARD_PARKED ? RF_OK : RF_NOT_PARKED;
        return a;
    }
    a = expect_lease(d);
    if (a.status != RF_OK) {
        return a;
    }
    bool moves = r->kind == CHECKPOINT || r->kind == COMPLETE ||
                 (r->kind == RELEASE && (r->key.present || r->token.len != 0));
    if (moves) {
        a.status = expect_cursor(d, r);
    }
    a.open = r->kind == SPLIT_REPLACE || r->kind == SPLIT_RESIDUAL;
    return a;
}

/* --- calls --- */

static uint32_t children_of(const struct request *r, rf_child *children)
{
    uint32_t n = r->point_count + 1;
    for (uint32_t i = 0; i < n; i++) {
        const struct word *start = i == 0 ? &r->start : &r->points[i - 1];
        const struct word *end = i == r->point_count ? &r->end : &r->points[i];
        children[(i + r->rotation) % n] =
            (rf_child){.spec = {.start = bytes_of(start), .end = bytes_of(end)}};
    }
    if (r->key.present) { /* one of them has been begun */
        children[0].cursor = (rf_cursor){.key = bytes_of(&r->key), .token = bytes_of(&r->token)};
    }
    return n;
}

static struct request new_request(const struct shard *s)
{
    static const uint8_t weights[KINDS] = {6, 10, 50, 2, 3, 5, 5, 8, 2};
    rf_spec range = rf_box_spec(&s->box);
    struct request r = {.op = pick(200), .reason = (rf_park_reason)pick(RF_PARK_OTHER + 1)};
    uint32_t sum = 0;
    for (uint32_t i = 0; i < KINDS; i++) {
        sum += weights[i];
    }
    uint32_t at = pick(sum);
    while (at >= weights[r.kind]) {
        at -= weights[r.kind];
        r.kind = (enum kind)(r.kind + 1);
    }
    /* mostly what makes sense next */
    if (chance(50) && rf_shard_available_at(&s->box.state, world.clock)) {
        r.kind = ACQUIRE;
    } else if (chance(50) && s->box.state.status == RF_SHARD_PARKED) {
        r.kind = UNPARK;
    }
    rf_spec ahead = range;
    if (s->box.has_key != 0 && chance(80)) {
        ahead.start = rf_box_cursor(&s->box).key;
    }
    if (chance(95)) {
        r.key = chance(90) ? word_inside(ahead) : any_word();
    }
    if (chance(40)) {
        r.token = any_word();
    }
    r.start = word_of(range.start);
    r.end = word_of(range.end);
    r.rotation = pick(5);
    r.point_count = r.kind == SPLIT_RESIDUAL ? 1 : chance(95) ? 1 + pick(4) : 0;
    for (uint32_t i = 0; i < r.point_count; i++) {
        r.points[i] = chance(97) ? word_inside(ahead) : any_word();
    }
    /* mostly rising, as they have to be */
    for (uint32_t i = 1; i < r.point_count && chance(97); i++) {
        for (uint32_t j = i; j > 0 && below(bytes_of(&r.points[j]), bytes_of(&r.points[j - 1]));
             j--) {
            struct word swap = r.points[j];
            r.points[j] = r.points[j - 1];
            r.points[j - 1] = swap;
        }
    }
    if (r.kind == SPLIT_REPLACE && chance(70)) {
        r.key.present = false;
    }
    return r;
}

static rf_status call(struct rf_desk *d, const struct request *r)
{
    rf_cursor cursor = {.key = bytes_of(&r->key), .token = bytes_of(&r->token)};
    rf_child children[5];
    d->op = r->op;
    switch (r->kind) {
    case ACQUIRE:
        return rf_desk_acquire(d, pick(4));
    case RENEW:
        return rf_desk_renew(d);
    case CHECKPOINT:
        return rf_desk_checkpoint(d, cursor);
    case COMPLETE:
        return rf_desk_complete(d, cursor);
    case PARK:
        return rf_desk_park(d, r->reason);
    case RELEASE:
        return rf_desk_release(d, cursor);
    case SPLIT_REPLACE:
        return rf_desk_split_replace(d, children, children_of(r, children));
    case SPLIT_RESIDUAL:
        return rf_desk_split_residual(
            d, (rf_spec){.start = bytes_of(&r->start), .end = bytes_of(&r->points[0])},
            (rf_spec){.start = bytes_of(&r->points[0]), .end = bytes_of(&r->end)});
    case UNPARK:
        return rf_desk_unpark(d);
    case KINDS:
        break;
    }
    abort();
}

/* The shards that a split has made come to be. */
static void make_spawned(struct shard *s, const struct rf_desk *d, const struct request *r)
{
    if (r->kind == SPLIT_RESIDUAL) {
        rf_spec spec = {.start = bytes_of(&r->points[0]), .end = bytes_of(&r->end)};
        rf_box_make_derived(&new_shard(s->run)->box, &s->box, d->step.spawned_ids[0], spec,
                            (rf_cursor){0});
        return;
    }
    rf_child children[5];
    uint32_t n = children_of(r, children);
    TEST_ASSERT_EQUAL_UINT32(n, d->step.spawned_new);
    for (uint32_t i = 0; i < n; i++) {
        const rf_child *child = &children[d->step.spawned_order[i]];
        rf_box_make_derived(&new_shard(s->run)->box, &s->box, d->step.spawned_ids[i], child->spec,
                            child->cursor);
    }
}

static void check_answer(const struct rf_desk *d, struct answer expected, rf_status got)
{
    if (expected.replay) {
        TEST_ASSERT_EQUAL_STRING("OK", rf_status_name(got));
        TEST_ASSERT_EQUAL_MESSAGE(RF_REPLAYED, d->step.outcome, "it was done before");
        return;
    }
    if (!expected.open || expected.status != RF_OK) {
        TEST_ASSERT_EQUAL_STRING(rf_status_name(expected.status), rf_status_name(got));
    } else {
        TEST_ASSERT_TRUE_MESSAGE(got == RF_OK || got >= RF_MISSING_KEY, rf_status_name(got));
    }
    if (got == RF_OK) {
        TEST_ASSERT_EQUAL_MESSAGE(RF_EXECUTED, d->step.outcome, "it was not done before");
    }
}

static void choose_lease(const struct shard *s, struct rf_desk *d)
{
    const struct rf_shard_state *is = &s->box.state;
    d->lease = (rf_lease){
        .run = s->box.run, .shard = s->box.shard, .worker = is->owner, .fence = is->fence};
    if (chance(12) && s->lease_count != 0) { /* a zombie */
        d->lease = s->leases[pick(s->lease_count)];
    } else if (chance(3)) {
        d->lease.worker = pick(4);
    } else if (chance(3)) {
        d->lease.fence += pick(3) - 1u;
    }
}

static void use_shard(struct shard *s)
{
    struct rf_desk *d = &world.desk;
    struct request r =
        s->past_count != 0 && chance(12) ? s->past[pick(s->past_count)] : new_request(s);
    if (s->past_count != 0 && chance(4)) {
        r.op = s->past[pick(s->past_count)].op;
    }
    uint32_t run = s->run;
    d->box = &s->box;
    d->tenant = s->box.tenant;
    if (chance(1)) {
        d->tenant.bytes[pick(32)] ^= 1;
    }
    d->env = env_of(&run);
    d->now = some_time();
    choose_lease(s, d);
    rf_lease presented = d->lease;
    rf_status got = call(d, &r);
    rf_lease granted = d->lease;
    d->lease = presented;
    check_answer(d, expect(s, d, &r), got);
    if (got != RF_OK) {
        world.refused++;
        return;
    }
    if (d->step.outcome == RF_REPLAYED) {
        world.replayed++;
        return;
    }
    world.executed++;
    if (r.kind != ACQUIRE && r.kind != RENEW) {
        remember(s, r.op, d->hash);
        s->past[s->past_count < PAST ? s->past_count++ : pick(PAST)] = r;
    }
    if (r.kind == ACQUIRE) {
        note_grant(s->box.run, s->box.shard, s->box.state.fence);
        s->leases[s->lease_count < 4 ? s->lease_count++ : pick(4)] = granted;
    }
    if (r.kind == SPLIT_REPLACE || r.kind == SPLIT_RESIDUAL) {
        make_spawned(s, d, &r);
    }
}

/* What happens to a shard without being asked for. */
static void disturb_shard(struct shard *s)
{
    uint32_t run = s->run;
    world.desk.box = &s->box;
    world.desk.env = env_of(&run);
    world.desk.now = world.clock;
    bool leased = (s->box.state.flags & RF_SHARD_LEASED) != 0;
    if (chance(80)) {
        TEST_ASSERT_EQUAL(leased, rf_desk_owner_lost(&world.desk));
    } else if (rf_shard_available_at(&s->box.state, world.clock) && s->box.state.attempts > 2) {
        rf_desk_park_exhausted(&world.desk);
    }
}

/* --- runs --- */

/* Up to 4 shards beside those that are there; now and then one that can't be. */
static uint32_t new_manifest(rf_shard_input *shards, struct word (*words)[2])
{
    uint32_t n = chance(3) ? 0 : 1 + pick(4);
    for (uint32_t i = 0; i < n; i++) {
        words[i][0] = any_word();
        words[i][1] = any_word();
        if (chance(90) && below(bytes_of(&words[i][1]), bytes_of(&words[i][0]))) {
            struct word swap = words[i][0];
            words[i][0] = words[i][1];
            words[i][1] = swap;
        }
        shards[i] = (rf_shard_input){
            .shard = chance(95) ? world.next_root_id + i : pick(20),
            .spec = {.start = bytes_of(&words[i][0]), .end = bytes_of(&words[i][1])},
        };
        if (chance(1)) {
            shards[i].shard |= RF_DERIVED_BIT;
        }
    }
    return n;
}

static bool root_below(const rf_spec *a, const rf_spec *b)
{
    return below(a->start, b->start);
}

static void take_over(uint32_t run, const rf_shard_input *shards, struct word (*words)[2],
                      uint32_t n)
{
    struct rf_run_desk *d = &world.runs[run];
    TEST_ASSERT_EQUAL_UINT32(n, d->step.count);
    for (uint32_t i = 0; i < n; i++) {
        rf_box_make_root(&new_shard(run)->box, &d->run.tenant, d->id, shards[i].shard,
                         shards[i].spec, shards[i].cursor);
        /* sorted into the run's root ranges, with words of their own */
        uint32_t at = world.root_count[run]++;
        struct word(*kept)[2] = world.root_words[run];
        for (; at > 0 && root_below(&shards[i].spec, &world.roots[run][at - 1]); at--) {
            memcpy(kept[at], kept[at - 1], sizeof(kept[at]));
            world.roots[run][at] =
                (rf_spec){.start = bytes_of(&kept[at][0]), .end = bytes_of(&kept[at][1])};
        }
        memcpy(kept[at], words[i], sizeof(kept[at]));
        world.roots[run][at] =
            (rf_spec){.start = bytes_of(&kept[at][0]), .end = bytes_of(&kept[at][1])};
    }
    world.next_root_id += n;
    TEST_ASSERT_EQUAL_UINT64(world.root_count[run], d->run.root_count);
}

/* The run and its shards are gone, their room is free, and the floor is above their fences. */
static void purge(uint32_t run)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < world.shard_count; i++) {
        struct shard *s = &world.shards[i];
        if (s->run == run) {
            world.fence_floor =
                s->box.state.fence > world.fence_floor ? s->box.state.fence : world.fence_floor;
            continue;
        }
        if (kept != i) {
            memcpy(&world.shards[kept], s, sizeof(*s));
        }
        kept++;
    }
    world.shard_count = kept;
    world.root_count[run] = 0;
    rf_tenant tenant = world.runs[run].run.tenant;
    rf_run_desk_open(&world.runs[run], &tenant, 10 + run);
    world.runs[run].config.lease_duration = 100 + pick(200);
    world.next_root_id = 1000; /* the same ids again */
}

static void use_run(uint32_t run)
{
    struct rf_run_desk *d = &world.runs[run];
    rf_shard_input shards[4];
    struct word words[4][2];
    uint32_t index = run;
    if (d->exists && rf_run_is_terminal(d->run.status) && chance(30)) {
        purge(run);
        return;
    }
    d->env = env_of(&index);
    d->existing = world.roots[run];
    d->existing_count = world.root_count[run];
    d->now = some_time();
    d->op = pick(20);
    uint32_t n = new_manifest(shards, words);
    struct rf_run was = d->run;
    bool existed = d->exists, full = world.shard_count + n > SHARDS;
    rf_status got;
    uint32_t what = pick(100);
    if (what < 20) {
        got = rf_run_desk_create(d);
    } else if (what < 40) {
        got = rf_run_desk_register(d, shards, n);
    } else if (what < 60) {
        got = rf_run_desk_create_with_shards(d, shards, n);
    } else if (what < 94) {
        got = rf_run_desk_add(d, shards, n);
    } else {
        rf_run_op_kind end = what < 96   ? RF_RUN_OP_COMPLETE
                             : what < 98 ? RF_RUN_OP_FAIL
                                         : RF_RUN_OP_CANCEL;
        got = rf_run_desk_end(d, end);
    }
    if (got != RF_OK) {
        TEST_ASSERT_EQUAL(existed, d->exists);
        TEST_ASSERT_EQUAL(was.status, d->run.status);
        return;
    }
    if (d->step.outcome == RF_EXECUTED && d->step.count != 0) {
        TEST_ASSERT_FALSE_MESSAGE(full, "more shards than the limit");
        take_over(run, shards, words, n);
    }
}

/* --- the world as a whole --- */

static void check_cover(uint32_t run)
{
    struct word w = any_word();
    uint32_t roots = 0, live = 0;
    for (uint32_t i = 0; i < world.root_count[run]; i++) {
        roots += inside(world.roots[run][i], bytes_of(&w));
    }
    for (uint32_t i = 0; i < world.shard_count; i++) {
        const struct shard *s = &world.shards[i];
        live += s->run == run && s->box.state.status != RF_SHARD_SPLIT &&
                inside(rf_box_spec(&s->box), bytes_of(&w));
    }
    TEST_ASSERT_TRUE_MESSAGE(roots <= 1, "root ranges overlap");
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(roots, live, "the ranges do not cover the roots exactly once");
}

static void check_spawned(const struct shard *s)
{
    for (uint32_t i = 0; i < s->box.state.spawned_count; i++) {
        bool found = false;
        for (uint32_t j = 0; j < world.shard_count && !found; j++) {
            const struct shard *c = &world.shards[j];
            found = c->run == s->run && c->box.shard == s->box.spawned[i] &&
                    c->box.state.parent == s->box.shard;
        }
        TEST_ASSERT_TRUE_MESSAGE(found, "a spawned shard is not there, or names another parent");
    }
}

static void check_world(void)
{
    for (uint32_t run = 0; run < RUNS; run++) {
        check_cover(run);
    }
    if (world.shard_count != 0) {
        const struct shard *s = &world.shards[pick(world.shard_count)];
        struct rf_shard view = rf_box_view(&s->box);
        const char *broken = rf_shard_violation(&view);
        TEST_ASSERT_NULL_MESSAGE(broken, broken);
        check_spawned(s);
    }
}

/* Mostly one of a few, so that their rings fill, and mostly one with which something can be done. */
static struct shard *choose_shard(void)
{
    uint32_t hot = (uint32_t)(world.steps / 300 * 7);
    struct shard *s = NULL;
    for (int tries = 0; tries < 4; tries++) {
        uint32_t at = chance(75) ? hot + pick(3) : pick(world.shard_count);
        s = &world.shards[at % world.shard_count];
        if (s->box.state.status == RF_SHARD_ACTIVE || s->box.state.status == RF_SHARD_PARKED) {
            break;
        }
    }
    return s;
}

static void play(uint64_t seed, uint32_t steps)
{
    current_seed = seed;
    world.prng.state = seed;
    world.clock = 1000;
    world.fence_floor = pick(2) * pick(100);
    world.shard_count = world.grant_count = 0;
    world.steps = 0;
    world.next_root_id = 1;
    memset(world.grants, 0, sizeof(world.grants));
    for (uint32_t run = 0; run < RUNS; run++) {
        rf_tenant tenant = rf_tenant_of((uint8_t)(run + 1));
        rf_run_desk_open(&world.runs[run], &tenant, 10 + run);
        world.runs[run].config.lease_duration = 100 + pick(200);
        world.root_count[run] = 0;
    }
    for (; world.steps < steps; world.steps++) {
        if (world.shard_count == 0 || chance(6)) {
            use_run(pick(RUNS));
        } else if (chance(4)) {
            disturb_shard(&world.shards[pick(world.shard_count)]);
        } else {
            use_shard(choose_shard());
        }
        check_world();
    }
}

static void every_step_of_a_random_world_keeps_the_rules(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 1);
    bool soak = rf_env_number("RF_SOAK", 0) != 0;
    time_t end = time(NULL) + (time_t)rf_env_number("RF_SECONDS", 600);
    world.executed = world.replayed = world.refused = world.forgotten = 0;
    rf_hasher_init(&world.desk.hasher);
    for (uint64_t i = 0; soak ? time(NULL) < end : i < EPISODES; i++) {
        play(seed + i, STEPS);
    }
    printf("%" PRIu64 " executed, %" PRIu64 " replayed, %" PRIu64 " refused, %" PRIu64
           " forgotten\n",
           world.executed, world.replayed, world.refused, world.forgotten);
    TEST_ASSERT_TRUE(world.executed > 1000 && world.replayed > 1000 && world.refused > 1000);
    TEST_ASSERT_TRUE_MESSAGE(world.forgotten > 100, "too few rings went round");
}

static void the_same_seed_plays_the_same_world(void)
{
    static struct shard first[SHARDS];
    play(77, 1500);
    uint32_t count = world.shard_count;
    uint64_t clock = world.clock, next = rf_prng_next(&world.prng);
    for (uint32_t i = 0; i < count; i++) {
        rf_box_copy(&first[i].box, &world.shards[i].box);
    }
    play(77, 1500);
    TEST_ASSERT_EQUAL_UINT32(count, world.shard_count);
    TEST_ASSERT_EQUAL_UINT64(clock, world.clock);
    TEST_ASSERT_EQUAL_HEX64(next, rf_prng_next(&world.prng));
    for (uint32_t i = 0; i < count; i++) {
        TEST_ASSERT_TRUE(rf_box_equal(&first[i].box, &world.shards[i].box));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_step_of_a_random_world_keeps_the_rules);
    RUN_TEST(the_same_seed_plays_the_same_world);
    return UNITY_END();
}
