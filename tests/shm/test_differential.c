/*
 * The region against a model: random calls by several handles, with clocks that disagree, with
 * replays, conflicts, zombies, deaths and faults of every kind. The model keeps its shards in plain
 * memory and asks the same pure transitions, so whatever differs is the machine's: a status, an
 * outcome, an id, an event, a number of a refusal, or any byte that the region shows.
 *
 *   RF_SEED=17 test_shm_differential                    the same worlds again
 *   RF_SOAK=1 RF_SECONDS=600 test_shm_differential      and on and on
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "manifest.h"
#include "prng.h"
#include "progress.h"
#include "range.h"
#include "run.h"
#include "shop.h"

#define TENANTS      2u
#define RUN_IDS      2u
#define HANDLES      4u
#define WORKERS      7u
#define TOTAL_LIMIT  200u
#define TENANT_LIMIT 140u
#define PAST         48u
#define LEASES       40u
#define POINTS       40u
#define INPUTS       80u
#define STEPS        (RF_SHOP_SANITIZED ? 10000u : 52000u)
#define LOOK_EVERY   1u

/* Bytes that can be long without taking room: a head, and one byte over and over. */
struct blob {
    bool present;
    uint8_t fill;
    uint16_t head_len;
    uint32_t len;
    uint8_t head[48];
};

enum kind {
    ACQUIRE,
    CLAIM,
    RENEW,
    CHECKPOINT,
    COMPLETE,
    PARK,
    RELEASE,
    SPLIT_REPLACE,
    SPLIT_RESIDUAL,
    UNPARK,
    CREATE,
    REGISTER,
    CREATE_WITH,
    ADD,
    END,
    PURGE,
    KINDS,
};

/* One call with all that it needs to be made again. */
struct request {
    enum kind kind;
    uint32_t tenant;
    uint64_t run;
    uint64_t shard;
    uint64_t worker;
    uint32_t flags;
    uint64_t op;
    rf_lease lease;
    struct blob key, token;
    rf_park_reason reason;
    rf_run_op_kind ending;
    rf_run_config config;
    uint32_t count; /* children, or shards */
    uint32_t rotation;
    struct blob points[POINTS]; /* count + 1 for a split; 3 for a residual; 2 a shard */
    uint64_t ids[INPUTS / 2];
    struct blob metadata;
};

struct lot {
    struct rf_box box;
    uint64_t bound; /* serial of the handle that its lease dies with; 0: none */
    bool used;
};

struct run_model {
    bool exists;
    struct rf_run run;
    struct lot *lots[TOTAL_LIMIT]; /* in creation order */
    uint32_t count;
};

struct worker_model {
    uint64_t claimed_at;
};

static struct world {
    struct rf_prng prng;
    struct rf_shop shop;
    uint64_t cooldown;
    uint64_t floor;
    rf_tenant tenants[TENANTS];
    struct run_model runs[TENANTS][RUN_IDS];
    struct lot lots[TOTAL_LIMIT];
    struct worker_model workers[WORKERS];
    rf_store *handles[HANDLES];
    uint64_t serials[HANDLES];
    uint64_t next_serial;
    uint64_t dead[HANDLES]; /* serials of the dead that nobody has settled yet */
    uint32_t dead_count;
    rf_lease leases[LEASES];
    uint32_t lease_tenants[LEASES];
    uint32_t lease_count;
    struct request past[PAST];
    uint32_t past_count;
    uint64_t next_op;
    uint64_t steps, executed, replayed, refused;
    struct rf_hasher hasher;
    struct rf_split_scratch scratch;
    struct rf_shard_step step;
    struct rf_run_step run_step;
    rf_detail detail; /* the model's */
    rf_result result; /* the region's */
    rf_store *handle; /* who makes the call */
    uint64_t serial;
    uint64_t now;
} world;

static uint64_t current_seed;
static uint64_t by_kind[KINDS][2]; /* of all worlds: done, refused */
static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
static uint8_t rooms[POINTS + 4][RF_TOKEN_MAX + 8];
static rf_child children[POINTS];
static rf_shard_input inputs[INPUTS / 2];
static uint32_t by_id[INPUTS], by_start[INPUTS];
static rf_spec existing[TOTAL_LIMIT];

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

/* --- bytes --- */

static rf_bytes blob_bytes(const struct blob *b, uint32_t room)
{
    if (!b->present) {
        return rf_bytes_none();
    }
    uint8_t *at = rooms[room];
    memcpy(at, b->head, b->head_len);
    memset(at + b->head_len, b->fill, b->len - b->head_len);
    return rf_bytes_of(at, b->len);
}

static struct blob blob_of(rf_bytes bytes)
{
    struct blob b = {.present = bytes.data != NULL, .len = (uint32_t)bytes.len};
    const uint8_t *from = bytes.data;
    b.head_len = (uint16_t)(b.len < sizeof(b.head) ? b.len : sizeof(b.head));
    if (b.head_len != 0) {
        memcpy(b.head, from, b.head_len);
    }
    b.fill = b.len > b.head_len ? from[b.head_len] : 'x';
    return b; /* what does not repeat is another key then: good for a refusal */
}

static uint32_t some_length(uint32_t max)
{
    static const uint32_t edges[] = {0,   1,   2,   31,  94,  95,  96, 97,
                                     127, 128, 129, 255, 256, 257, 600};
    uint32_t n = edges[pick(sizeof(edges) / sizeof(edges[0]))];
    if (chance(4)) {
        n = chance(30) ? max + 1 : max - pick(3);
    }
    return n;
}

static struct blob some_blob(uint32_t max)
{
    struct blob b = {.present = true, .fill = (uint8_t)('A' + pick(26))};
    b.len = chance(60) ? pick(12) : some_length(max);
    return b;
}

static void lengthen(struct blob *b, uint32_t max)
{
    uint32_t len = b->len + some_length(max);
    b->len = len > max + 1 ? max + 1 : len;
}

static struct blob any_key(void)
{
    struct blob b = {.present = true, .fill = 'm', .head_len = (uint16_t)(1 + pick(2))};
    b.head[0] = (uint8_t)('a' + pick(26));
    b.head[1] = (uint8_t)('a' + pick(26));
    b.len = b.head_len;
    return b;
}

/* A key between two, most of the time. */
static struct blob key_between(rf_bytes low, rf_bytes high)
{
    static uint8_t middle[RF_KEY_MAX];
    size_t len = 0;
    struct blob b = any_key();
    if (!chance(6) && rf_key_midpoint(low, high, middle, &len) == RF_OK) {
        b = blob_of(rf_bytes_of(middle, len));
    }
    if (chance(12)) {
        lengthen(&b, RF_KEY_MAX);
    }
    return b;
}

/* --- the model --- */

static struct run_model *model_run(uint32_t tenant, uint64_t run)
{
    struct run_model *r = run < RUN_IDS ? &world.runs[tenant][run] : NULL;
    return r != NULL && r->exists ? r : NULL;
}

static struct lot *model_shard(const struct run_model *r, uint64_t shard)
{
    for (uint32_t i = 0; r != NULL && i < r->count; i++) {
        if (r->lots[i]->box.shard == shard) {
            return r->lots[i];
        }
    }
    return NULL;
}

static bool model_exists(void *context, uint64_t shard)
{
    return model_shard(context, shard) != NULL;
}

static uint32_t shards_of(uint32_t tenant)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < RUN_IDS; r++) {
        n += world.runs[tenant][r].exists ? world.runs[tenant][r].count : 0;
    }
    return n;
}

static struct rf_env model_env(struct run_model *r, uint32_t tenant)
{
    struct rf_env env = {.fence_floor = world.floor,
                         .tenant_shards = shards_of(tenant),
                         .tenant_limit = TENANT_LIMIT,
                         .total_limit = TOTAL_LIMIT,
                         .exists = model_exists,
                         .context = r};
    for (uint32_t t = 0; t < TENANTS; t++) {
        env.total_shards += shards_of(t);
    }
    if (r != NULL) {
        env.lease_duration = r->run.config.lease_duration;
        env.run_status = r->run.status;
    }
    return env;
}

static struct lot *new_lot(struct run_model *r)
{
    for (uint32_t i = 0; i < TOTAL_LIMIT; i++) {
        if (!world.lots[i].used) {
            world.lots[i].used = true;
            world.lots[i].bound = 0;
            r->lots[r->count++] = &world.lots[i];
            return &world.lots[i];
        }
    }
    TEST_FAIL_MESSAGE("the limits let too many shards through");
    return NULL;
}

static void apply_step(struct lot *lot)
{
    rf_box_apply(&lot->box, &world.step);
    if ((lot->box.state.flags & RF_SHARD_LEASED) == 0) {
        lot->bound = 0;
    }
    const struct rf_shard view = rf_box_view(&lot->box);
    const char *broken = rf_shard_violation(&view);
    TEST_ASSERT_NULL_MESSAGE(broken, broken);
}

static void lose_owner(uint64_t serial)
{
    for (uint32_t i = 0; i < TOTAL_LIMIT; i++) {
        struct lot *lot = &world.lots[i];
        if (lot->used && lot->bound == serial) {
            const struct rf_shard view = rf_box_view(&lot->box);
            TEST_ASSERT_TRUE(rf_shard_owner_lost(&view, &world.step));
            apply_step(lot);
        }
    }
}

/* --- comparing answers --- */

static const char *describe(const struct request *q)
{
    static const char *const names[KINDS] = {"acquire",     "claim",  "renew",      "checkpoint",
                                             "complete",    "park",   "release",    "replace",
                                             "residual",    "unpark", "create_run", "register",
                                             "create_with", "add",    "end_run",    "purge"};
    return names[q->kind];
}

static void same_number(uint64_t expected, uint64_t got, const struct request *q, const char *what)
{
    if (expected != got) {
        char message[160];
        snprintf(message, sizeof(message), "%s: %s is %" PRIu64 ", the model says %" PRIu64,
                 describe(q), what, got, expected);
        TEST_FAIL_MESSAGE(message);
    }
}

static void same_detail(const struct request *q, rf_status status)
{
    const rf_detail *m = &world.detail, *r = &world.result.detail;
    if (status == RF_OK) {
        return;
    }
    same_number(m->size, r->size, q, "detail.size");
    same_number(m->limit, r->limit, q, "detail.limit");
    same_number(m->index, r->index, q, "detail.index");
    same_number(m->has_index, r->has_index, q, "detail.has_index");
    same_number(m->shard, r->shard, q, "detail.shard");
    same_number(m->retry_after, r->retry_after, q, "detail.retry_after");
    if (status != RF_NONE_AVAILABLE) {
        same_number(m->deadline, r->deadline, q, "detail.deadline");
    }
    same_number(0, world.result.has_event, q, "an event of a refusal");
}

static void same_event(const struct request *q, const rf_event *m, rf_outcome outcome)
{
    const rf_event *r = &world.result.event;
    same_number(world.result.want_event && outcome == RF_EXECUTED, world.result.has_event, q,
                "has_event");
    if (!world.result.has_event) {
        return;
    }
    same_number(m->kind, r->kind, q, "event.kind");
    TEST_ASSERT_TRUE_MESSAGE(rf_tenant_equal(&m->tenant, &r->tenant), "event.tenant");
    same_number(m->run, r->run, q, "event.run");
    same_number(m->shard, r->shard, q, "event.shard");
    same_number(m->time, r->time, q, "event.time");
    same_number(m->worker, r->worker, q, "event.worker");
    same_number(m->fence, r->fence, q, "event.fence");
    same_number(m->deadline, r->deadline, q, "event.deadline");
    same_number(m->child, r->child, q, "event.child");
    same_number(m->count, r->count, q, "event.count");
    same_number(m->key_len, r->key_len, q, "event.key_len");
    same_number(m->reason, r->reason, q, "event.reason");
}

static void same_status(const struct request *q, rf_status expected, rf_status got)
{
    if (expected != got) {
        char message[160];
        snprintf(message, sizeof(message), "%s: %s, the model says %s", describe(q),
                 rf_status_name(got), rf_status_name(expected));
        TEST_FAIL_MESSAGE(message);
    }
    by_kind[q->kind][expected != RF_OK]++;
    same_detail(q, expected);
}

/* The capacity that a call tells may lag in its count. Its deadline is never late: not behind that
 * of a lease which is active for everybody. */
static void check_capacity(const struct run_model *r)
{
    uint64_t earliest = RF_FOREVER;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct rf_shard_state *s = &r->lots[i]->box.state;
        if (rf_shard_leased_at(s, world.shop.now) && s->deadline < earliest) {
            earliest = s->deadline;
        }
    }
    uint64_t told = world.result.capacity.earliest_deadline;
    TEST_ASSERT_TRUE_MESSAGE(earliest == RF_FOREVER || (told != 0 && told <= earliest),
                             "the earliest deadline is late");
    TEST_ASSERT_TRUE(world.result.capacity.available <= r->count);
    TEST_ASSERT_EQUAL_UINT64(0, world.result.capacity.waiting);
}

/* --- comparing state --- */

static void compare_shard(uint32_t tenant, uint64_t run, const struct lot *lot)
{
    rf_shard_info info;
    rf_status status = rf_get_shard(world.handle, &world.tenants[tenant], run, lot->box.shard,
                                    &info, scratch, sizeof(scratch), NULL);
    TEST_ASSERT_EQUAL_STRING("OK", rf_status_name(status));
    const char *difference = rf_shop_difference(&info, &lot->box);
    if (difference != NULL) {
        char message[160];
        snprintf(message, sizeof(message), "shard %" PRIx64 " of run %" PRIu64 ": %s", info.shard,
                 run, difference);
        TEST_FAIL_MESSAGE(message);
    }
}

static uint64_t count_status(const struct run_model *r, rf_shard_status status)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        n += r->lots[i]->box.state.status == status;
    }
    return n;
}

static void compare_run(uint32_t tenant, uint64_t run)
{
    const struct run_model *r = model_run(tenant, run);
    rf_run_info info;
    rf_status status = rf_get_run(world.handle, &world.tenants[tenant], run, &info, NULL);
    TEST_ASSERT_EQUAL_STRING(rf_status_name(r != NULL ? RF_OK : RF_RUN_NOT_FOUND),
                             rf_status_name(status));
    if (r == NULL) {
        return;
    }
    const struct rf_run *m = &r->run;
    TEST_ASSERT_TRUE(rf_tenant_equal(&m->tenant, &info.tenant));
    TEST_ASSERT_TRUE(rf_run_config_equal(&m->config, &info.config));
    TEST_ASSERT_EQUAL(m->status, info.status);
    TEST_ASSERT_EQUAL_UINT64(m->created_at, info.created_at);
    TEST_ASSERT_EQUAL_UINT64(m->completed_at, info.completed_at);
    TEST_ASSERT_EQUAL_UINT64(m->root_count, info.root_count);
    TEST_ASSERT_EQUAL_UINT64(r->count, info.shard_count);
    TEST_ASSERT_EQUAL_UINT64(count_status(r, RF_SHARD_DONE), info.done);
    TEST_ASSERT_EQUAL_UINT64(count_status(r, RF_SHARD_SPLIT), info.split);
    TEST_ASSERT_EQUAL_UINT64(count_status(r, RF_SHARD_PARKED), info.parked);
    TEST_ASSERT_EQUAL_UINT32(m->ring_count, info.ring_count);
    for (uint32_t i = 0; i < m->ring_count; i++) {
        uint32_t at = (m->ring_next + RF_RUN_RING - m->ring_count + i) % RF_RUN_RING;
        TEST_ASSERT_EQUAL_UINT64(m->ring.op[at], info.ring[i].op);
        TEST_ASSERT_EQUAL_UINT64(m->ring.executed_at[at], info.ring[i].executed_at);
        TEST_ASSERT_EQUAL(m->ring.kind[at], info.ring[i].kind);
    }
}

static uint64_t blocks_of(const struct rf_box *b)
{
    return (uint64_t)(b->key_len + b->token_len > 96) +
           (b->start_len + b->end_len + b->metadata_len > 128) + (b->state.spawned_count != 0);
}

/* What the store has taken is what its shards need, no more. */
static void compare_room(void)
{
    rf_inspection seen;
    uint64_t runs = 0, shards = 0, extents = 0, leaves = 0, blocks = 0;
    for (uint32_t t = 0; t < TENANTS; t++) {
        for (uint32_t i = 0; i < RUN_IDS; i++) {
            const struct run_model *r = model_run(t, i);
            if (r != NULL) {
                runs++;
                shards += r->count;
                extents += (r->count + 63) / 64;
                leaves += r->count != 0;
            }
        }
    }
    for (uint32_t i = 0; i < TOTAL_LIMIT; i++) {
        blocks += world.lots[i].used ? blocks_of(&world.lots[i].box) : 0;
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_inspect(world.handle, &seen, NULL));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(runs, seen.runs, "runs");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(shards, seen.shards, "shards");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(extents, seen.extents, "extents");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(leaves, seen.leaves, "leaves");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(blocks, seen.blocks, "blocks");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(world.floor, seen.fence_floor, "the fence floor");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(HANDLES + world.dead_count, seen.members, "members");
}

static void compare_all(void)
{
    for (uint32_t t = 0; t < TENANTS; t++) {
        for (uint32_t run = 0; run < RUN_IDS; run++) {
            const struct run_model *r = model_run(t, run);
            compare_run(t, run);
            for (uint32_t i = 0; r != NULL && i < r->count; i++) {
                compare_shard(t, run, r->lots[i]);
            }
        }
    }
    compare_room();
}

/* --- looking --- */

struct listing {
    const struct run_model *run;
    rf_filter filter;
    uint64_t now;
    uint32_t count;
    uint8_t start[RF_KEY_MAX];
    size_t start_len;
    uint64_t shard;
};

static bool passes(const struct listing *l, const struct rf_shard_state *s)
{
    switch (l->filter) {
    case RF_LIST_ACTIVE:
        return s->status == RF_SHARD_ACTIVE;
    case RF_LIST_AVAILABLE:
        return rf_shard_available_at(s, l->now);
    case RF_LIST_PARKED:
        return s->status == RF_SHARD_PARKED;
    case RF_LIST_ROOTS:
        return (s->flags & RF_SHARD_HAS_PARENT) == 0;
    default:
        return true;
    }
}

static bool see(void *context, const rf_shard_info *info)
{
    struct listing *l = context;
    const struct lot *lot = model_shard(l->run, info->shard);
    TEST_ASSERT_NOT_NULL(lot);
    TEST_ASSERT_NULL(rf_shop_difference(info, &lot->box));
    TEST_ASSERT_TRUE(passes(l, &lot->box.state));
    if (l->count++ != 0) {
        int order = rf_bytes_compare(rf_bytes_of(l->start, l->start_len), info->spec.start);
        TEST_ASSERT_TRUE_MESSAGE(order < 0 || (order == 0 && l->shard < info->shard), "the order");
    }
    l->start_len = info->spec.start.len;
    memcpy(l->start, info->spec.start.data, l->start_len);
    l->shard = info->shard;
    return true;
}

static void look_at_list(uint32_t tenant, uint64_t run)
{
    static struct listing l;
    l = (struct listing){.run = model_run(tenant, run), .filter = pick(5), .now = world.now};
    rf_status status = rf_list_shards(world.handle, world.now, &world.tenants[tenant], run,
                                      l.filter, see, &l, NULL);
    if (l.run == NULL) {
        RF_EXPECT(RF_RUN_NOT_FOUND, status);
        return;
    }
    RF_EXPECT(RF_OK, status);
    uint32_t expected = 0;
    for (uint32_t i = 0; i < l.run->count; i++) {
        expected += passes(&l, &l.run->lots[i]->box.state);
    }
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(expected, l.count, "shards listed");
}

static void look_at_progress(uint32_t tenant, uint64_t run)
{
    static uint8_t mark[RF_KEY_MAX], mine[RF_KEY_MAX];
    rf_progress p, m;
    const struct run_model *r = model_run(tenant, run);
    rf_status status =
        rf_get_progress(world.handle, world.now, &world.tenants[tenant], run, &p, mark, NULL);
    RF_EXPECT(r == NULL ? RF_RUN_NOT_FOUND : RF_OK, status);
    if (r == NULL) {
        return;
    }
    rf_progress_begin(&m);
    for (uint32_t i = 0; i < r->count; i++) {
        const rf_cursor cursor = rf_box_cursor(&r->lots[i]->box);
        rf_progress_add(&m, &r->lots[i]->box.state, &cursor, world.now, mine);
    }
    rf_progress_end(&m);
    TEST_ASSERT_EQUAL_UINT64(m.total, p.total);
    TEST_ASSERT_EQUAL_UINT64(m.active, p.active);
    TEST_ASSERT_EQUAL_UINT64(m.leased, p.leased);
    TEST_ASSERT_EQUAL(m.evaluation, p.evaluation);
    TEST_ASSERT_EQUAL(m.has_watermark, p.has_watermark);
    TEST_ASSERT_EQUAL_UINT64(m.watermark_len, p.watermark_len);
    TEST_ASSERT_EQUAL(0, memcmp(mine, mark, m.has_watermark ? m.watermark_len : 0));
}

/* After a sweep with the latest clock that anybody has, the capacity is that of a full scan. */
static void sweep(uint32_t tenant, uint64_t run)
{
    rf_capacity seen;
    const struct run_model *r = model_run(tenant, run);
    uint64_t now = world.shop.now, available = 0, earliest = 0;
    rf_status status = rf_sweep(world.handle, now, &world.tenants[tenant], run, NULL);
    RF_EXPECT(r == NULL ? RF_RUN_NOT_FOUND : RF_OK, status);
    if (r == NULL) {
        return;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        const struct rf_shard_state *s = &r->lots[i]->box.state;
        available += rf_shard_available_at(s, now);
        if (rf_shard_leased_at(s, now) && (earliest == 0 || s->deadline < earliest)) {
            earliest = s->deadline;
        }
    }
    RF_EXPECT(RF_OK, rf_get_capacity(world.handle, &world.tenants[tenant], run, &seen, NULL));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(available, seen.available, "available after a sweep");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(earliest, seen.earliest_deadline, "deadline after a sweep");
}

/* --- calls: the same to the model and to the region --- */

static struct rf_call call_of(const struct request *q, uint64_t hash)
{
    return (struct rf_call){.tenant = &world.tenants[q->tenant],
                            .now = world.now,
                            .lease = &q->lease,
                            .op = q->op,
                            .hash = hash};
}

static void keep_lease(const rf_lease *lease, uint32_t tenant)
{
    uint32_t at = world.lease_count < LEASES ? world.lease_count++ : pick(LEASES);
    world.leases[at] = *lease;
    world.lease_tenants[at] = tenant;
}

static void check_grant(const struct request *q, const struct lot *lot, const rf_grant *g)
{
    const struct rf_box *box = &lot->box;
    same_number(box->shard, g->lease.shard, q, "lease.shard");
    same_number(q->run, g->lease.run, q, "lease.run");
    same_number(q->worker, g->lease.worker, q, "lease.worker");
    same_number(box->state.fence, g->lease.fence, q, "lease.fence");
    same_number(box->state.deadline, g->lease.deadline, q, "lease.deadline");
    same_number(box->state.attempts, g->attempts, q, "attempts");
    same_number(box->state.semantics, g->semantics, q, "semantics");
    same_number(RF_SHARD_ACTIVE, g->status, q, "status");
    same_number((box->state.flags & RF_SHARD_HAS_PARENT) != 0, g->has_parent, q, "has_parent");
    same_number(box->state.parent, g->parent, q, "parent");
    same_number(box->state.spawned_count, g->spawned_count, q, "spawned_count");
    rf_spec spec = rf_box_spec(box);
    rf_cursor cursor = rf_box_cursor(box);
    TEST_ASSERT_TRUE(rf_bytes_equal(spec.start, g->spec.start));
    TEST_ASSERT_TRUE(rf_bytes_equal(spec.end, g->spec.end));
    TEST_ASSERT_TRUE(rf_bytes_equal(spec.metadata, g->spec.metadata));
    TEST_ASSERT_TRUE(rf_bytes_equal(cursor.key, g->cursor.key));
    TEST_ASSERT_TRUE(rf_bytes_equal(cursor.token, g->cursor.token));
    TEST_ASSERT_EQUAL(0, memcmp(box->spawned, g->spawned, g->spawned_count * 8u));
}

static void take_grant(const struct request *q, struct lot *lot, const rf_grant *g)
{
    rf_event event;
    const struct rf_shard view = rf_box_view(&lot->box);
    rf_shard_event(&view, &world.step, world.now, &event);
    same_event(q, &event, RF_EXECUTED);
    apply_step(lot);
    lot->bound = q->flags == RF_BOUND ? world.serial : 0;
    check_grant(q, lot, g);
    check_capacity(model_run(q->tenant, q->run));
    keep_lease(&g->lease, q->tenant);
    world.executed++;
}

static void acquire(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->run);
    struct lot *lot = model_shard(r, q->shard);
    const struct rf_shard view = lot != NULL ? rf_box_view(&lot->box) : (struct rf_shard){0};
    const struct rf_env env = model_env(r, q->tenant);
    struct rf_call call = call_of(q, 0);
    call.lease = NULL;
    rf_grant g = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_status expected = rf_shard_acquire(lot == NULL ? NULL : &view, &call, q->worker, &env,
                                          &world.step, &world.detail);
    rf_status got = rf_acquire(world.handle, world.now, &world.tenants[q->tenant], q->run, q->shard,
                               q->worker, q->flags, &g, &world.result);
    same_status(q, expected, got);
    if (expected == RF_OK) {
        take_grant(q, lot, &g);
    }
}

/* Position worker mod n, creation order, wrapping; what was granted too often is parked. */
static rf_status model_claim(const struct request *q, struct lot **lot)
{
    struct run_model *r = model_run(q->tenant, q->run);
    uint64_t *last = &world.workers[q->worker].claimed_at;
    if (world.now == 0) {
        return RF_INVALID_TIME;
    }
    if (world.cooldown != 0 && *last != 0 && world.now < *last + world.cooldown) {
        world.detail.retry_after = *last + world.cooldown - world.now;
        return RF_THROTTLED;
    }
    if (r == NULL || rf_run_is_terminal(r->run.status)) {
        return r == NULL ? RF_RUN_NOT_FOUND : RF_RUN_TERMINAL;
    }
    struct rf_call call = call_of(q, 0);
    const struct rf_env env = model_env(r, q->tenant);
    call.lease = NULL;
    for (uint32_t n = 0; n < r->count; n++) {
        *lot = r->lots[(q->worker + n) % r->count];
        const struct rf_shard view = rf_box_view(&(*lot)->box);
        if (!rf_shard_available_at(view.state, world.now)) {
            continue;
        }
        if (r->run.config.has_max_retries && view.state->attempts > r->run.config.max_retries) {
            rf_shard_park_exhausted(&view, &world.step);
            apply_step(*lot);
            continue;
        }
        *last = world.now;
        return rf_shard_acquire(&view, &call, q->worker, &env, &world.step, &world.detail);
    }
    return RF_NONE_AVAILABLE;
}

static void claim(const struct request *q)
{
    struct lot *lot = NULL;
    rf_grant g = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_status expected = model_claim(q, &lot);
    rf_status got = rf_claim(world.handle, world.now, &world.tenants[q->tenant], q->run, q->worker,
                             q->flags, 0, &g, &world.result);
    same_status(q, expected, got);
    if (expected == RF_OK) {
        take_grant(q, lot, &g);
    } else if (expected == RF_NONE_AVAILABLE) {
        world.result.capacity = (rf_capacity){.earliest_deadline = world.result.detail.deadline};
        check_capacity(model_run(q->tenant, q->run));
        uint64_t deadline = world.result.detail.deadline;
        TEST_ASSERT_TRUE_MESSAGE(deadline == 0 || deadline > world.now, "a deadline in the past");
    }
}

static void renew(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->lease.run);
    struct lot *lot = model_shard(r, q->lease.shard);
    const struct rf_shard view = lot != NULL ? rf_box_view(&lot->box) : (struct rf_shard){0};
    const struct rf_env env = model_env(r, q->tenant);
    const struct rf_call call = call_of(q, 0);
    rf_lease lease = q->lease;
    rf_event event;
    rf_status expected =
        rf_shard_renew(lot == NULL ? NULL : &view, &call, &env, &world.step, &world.detail);
    rf_status got =
        rf_renew(world.handle, world.now, &world.tenants[q->tenant], &lease, &world.result);
    same_status(q, expected, got);
    if (expected == RF_OK) {
        rf_shard_event(&view, &world.step, world.now, &event);
        same_event(q, &event, RF_EXECUTED);
        apply_step(lot);
        same_number(lot->box.state.deadline, lease.deadline, q, "lease.deadline");
        same_number(r->run.status, world.result.run_status, q, "run_status");
        check_capacity(r);
        world.executed++;
    }
}

static struct lot *lot_of(const struct request *q)
{
    return model_shard(model_run(q->tenant, q->lease.run), q->lease.shard);
}

/* What the operations of an owner have in common once both have answered. */
static void settle(const struct request *q, struct lot *lot, rf_status expected, rf_status got)
{
    rf_event event;
    same_status(q, expected, got);
    if (expected != RF_OK) {
        world.refused++;
        return;
    }
    same_number(world.step.outcome, world.result.outcome, q, "outcome");
    if (world.step.outcome == RF_REPLAYED) {
        same_event(q, &event, RF_REPLAYED);
        world.replayed++;
        return;
    }
    const struct rf_shard view = rf_box_view(&lot->box);
    rf_shard_event(&view, &world.step, world.now, &event);
    same_event(q, &event, RF_EXECUTED);
    apply_step(lot);
    world.executed++;
}

static void with_cursor(const struct request *q)
{
    struct lot *lot = lot_of(q);
    const struct rf_shard view = lot != NULL ? rf_box_view(&lot->box) : (struct rf_shard){0};
    const struct rf_shard *shard = lot == NULL ? NULL : &view;
    const rf_cursor cursor = {.key = blob_bytes(&q->key, 0), .token = blob_bytes(&q->token, 1)};
    const rf_tenant *tenant = &world.tenants[q->tenant];
    struct rf_call call = call_of(q, 0);
    rf_status expected, got;
    switch (q->kind) {
    case CHECKPOINT:
        call.hash = rf_hash_checkpoint(cursor);
        expected = rf_shard_checkpoint(shard, &call, &cursor, &world.step, &world.detail);
        got = rf_checkpoint(world.handle, world.now, tenant, &q->lease, &cursor, q->op,
                            &world.result);
        break;
    case COMPLETE:
        call.hash = rf_hash_complete(cursor);
        expected = rf_shard_complete(shard, &call, &cursor, &world.step, &world.detail);
        got =
            rf_complete(world.handle, world.now, tenant, &q->lease, &cursor, q->op, &world.result);
        break;
    default:
        call.hash = rf_hash_release(cursor);
        expected = rf_shard_release(shard, &call, &cursor, &world.step, &world.detail);
        got = rf_release(world.handle, world.now, tenant, &q->lease, &cursor, q->op, &world.result);
        break;
    }
    settle(q, lot, expected, got);
}

static void park_or_unpark(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->lease.run);
    struct lot *lot = lot_of(q);
    const struct rf_shard view = lot != NULL ? rf_box_view(&lot->box) : (struct rf_shard){0};
    const struct rf_shard *shard = lot == NULL ? NULL : &view;
    const rf_tenant *tenant = &world.tenants[q->tenant];
    struct rf_call call = call_of(q, rf_hash_park(q->reason));
    rf_status expected, got;
    if (q->kind == PARK) {
        expected = rf_shard_park(shard, &call, q->reason, &world.step, &world.detail);
        got = rf_park(world.handle, world.now, tenant, &q->lease, q->reason, q->op, &world.result);
    } else {
        const struct rf_env env = model_env(r, q->tenant);
        call.lease = NULL;
        call.hash = rf_hash_unpark(q->lease.run, q->lease.shard);
        expected = rf_shard_unpark(shard, &call, &env, &world.step, &world.detail);
        got = rf_unpark(world.handle, world.now, tenant, q->lease.run, q->lease.shard, q->op,
                        &world.result);
    }
    settle(q, lot, expected, got);
}

static void add_children(struct run_model *r, struct lot *parent, const rf_child *made)
{
    for (uint32_t i = 0; i < world.step.spawned_new; i++) {
        const rf_child *child = &made[world.step.spawned_order[i]];
        rf_cursor cursor = child->cursor;
        cursor.token = cursor.token.len == 0 ? rf_bytes_none() : cursor.token;
        struct lot *lot = new_lot(r);
        rf_box_make_derived(&lot->box, &parent->box, world.step.spawned_ids[i], child->spec,
                            cursor);
    }
}

static void split_replace(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->lease.run);
    struct lot *lot = lot_of(q);
    const struct rf_shard view = lot != NULL ? rf_box_view(&lot->box) : (struct rf_shard){0};
    const struct rf_env env = model_env(r, q->tenant);
    uint64_t ids[POINTS];
    rf_bytes points[POINTS];
    rf_bytes metadata = blob_bytes(&q->metadata, POINTS);
    for (uint32_t i = 0; i <= q->count; i++) {
        points[i] = blob_bytes(&q->points[i], i);
    }
    for (uint32_t i = 0; i < q->count; i++) {
        children[(i + q->rotation) % q->count] =
            (rf_child){.spec = {.start = points[i], .end = points[i + 1], .metadata = metadata}};
    }
    if (q->key.present && q->count != 0) {
        children[0].cursor.key = children[0].spec.start;
        children[0].cursor.token = blob_bytes(&q->token, POINTS + 1);
    }
    const struct rf_call call = call_of(q, rf_hash_split_replace(children, q->count));
    rf_status expected =
        rf_shard_split_replace(lot == NULL ? NULL : &view, &call, children, q->count, &env,
                               &world.hasher, &world.scratch, &world.step, &world.detail);
    rf_status got = rf_split_replace(world.handle, world.now, &world.tenants[q->tenant], &q->lease,
                                     children, q->count, q->op, ids, &world.result);
    if (expected == RF_OK && got == RF_OK) {
        TEST_ASSERT_EQUAL(0, memcmp(ids, world.step.spawned_ids, q->count * sizeof(*ids)));
    }
    settle(q, lot, expected, got);
    if (expected == RF_OK && world.step.outcome == RF_EXECUTED) {
        add_children(r, lot, children);
    }
}

static void split_residual(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->lease.run);
    struct lot *lot = lot_of(q);
    const struct rf_shard view = lot != NULL ? rf_box_view(&lot->box) : (struct rf_shard){0};
    const struct rf_env env = model_env(r, q->tenant);
    uint64_t id = 0;
    rf_bytes start = blob_bytes(&q->points[0], 0), cut = blob_bytes(&q->points[1], 1),
             end = blob_bytes(&q->points[2], 2), metadata = blob_bytes(&q->metadata, 3);
    const rf_spec parent_new = {.start = start, .end = cut, .metadata = metadata};
    const rf_spec residual = {.start = q->rotation == 0 ? cut : start, .end = end};
    const struct rf_call call = call_of(q, rf_hash_split_residual(parent_new, residual));
    rf_status expected =
        rf_shard_split_residual(lot == NULL ? NULL : &view, &call, &parent_new, &residual, &env,
                                &world.hasher, &world.scratch, &world.step, &world.detail);
    rf_status got = rf_split_residual(world.handle, world.now, &world.tenants[q->tenant], &q->lease,
                                      &parent_new, &residual, q->op, &id, &world.result);
    if (expected == RF_OK) {
        same_number(world.step.spawned_ids[0], id, q, "the residual's id");
    }
    settle(q, lot, expected, got);
    if (expected == RF_OK && world.step.outcome == RF_EXECUTED) {
        const uint16_t first = 0;
        const rf_child child = {.spec = residual};
        world.step.spawned_order = &first;
        add_children(r, lot, &child);
    }
}

/* --- runs --- */

static uint32_t ranges_of(const struct run_model *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->lots[i]->box.state.status != RF_SHARD_SPLIT) {
            existing[n++] = rf_box_spec(&r->lots[i]->box);
        }
    }
    rf_ranges_sort(existing, n);
    return n;
}

static void settle_run(const struct request *q, rf_status expected, rf_status got)
{
    rf_event event = {0};
    same_status(q, expected, got);
    if (expected != RF_OK) {
        world.refused++;
        return;
    }
    same_number(world.run_step.outcome, world.result.outcome, q, "outcome");
    if (world.run_step.outcome == RF_REPLAYED) {
        same_event(q, &event, RF_REPLAYED);
        world.replayed++;
        return;
    }
    struct run_model *r = &world.runs[q->tenant][q->run];
    if (!r->exists) {
        r->exists = true;
        r->count = 0;
    }
    r->run = world.run_step.next;
    const char *broken = rf_run_violation(&r->run);
    TEST_ASSERT_NULL_MESSAGE(broken, broken);
    rf_run_event(&world.run_step, world.now, &event);
    same_event(q, &event, RF_EXECUTED);
    world.executed++;
}

static void make_inputs(const struct request *q)
{
    rf_bytes metadata = blob_bytes(&q->metadata, POINTS);
    for (uint32_t i = 0; i < q->count; i++) {
        uint32_t at = (i + q->rotation) % q->count;
        rf_shard_input *in = &inputs[at];
        *in = (rf_shard_input){.shard = q->ids[i],
                               .spec = {.start = blob_bytes(&q->points[2 * i], 2 * i),
                                        .end = blob_bytes(&q->points[2 * i + 1], 2 * i + 1),
                                        .metadata = metadata}};
        if (q->key.present && i == 0) {
            in->cursor.key = in->spec.start;
            in->cursor.token = blob_bytes(&q->token, POINTS + 1);
        }
    }
}

static void take_shards(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->run);
    const rf_tenant *tenant = &world.tenants[q->tenant];
    const struct rf_env env = model_env(r, q->tenant);
    make_inputs(q);
    rf_manifest_order_by_id(inputs, q->count, by_id);
    rf_run_op_kind kind = q->kind == ADD ? RF_RUN_OP_ADD_SHARDS : RF_RUN_OP_REGISTER_SHARDS;
    const struct rf_call call =
        call_of(q, rf_hasher_manifest(&world.hasher, kind, inputs, q->count, by_id));
    struct rf_manifest m = {
        .shards = inputs, .count = q->count, .by_id = by_id, .by_start = by_start};
    const struct rf_run *run = r == NULL ? NULL : &r->run;
    rf_status expected, got;
    if (q->kind == ADD) {
        m.existing_count = r == NULL ? 0 : ranges_of(r);
        m.existing = existing;
        expected = rf_run_add(run, &call, &m, &env, &world.run_step, &world.detail);
        got = rf_add_shards(world.handle, world.now, tenant, q->run, inputs, q->count, q->op,
                            &world.result);
    } else if (q->kind == REGISTER) {
        expected = rf_run_register(run, &call, &m, &env, &world.run_step, &world.detail);
        got = rf_register_shards(world.handle, world.now, tenant, q->run, inputs, q->count, q->op,
                                 &world.result);
    } else {
        expected = rf_run_create_with_shards(run, &call, q->run, &q->config, &m, &env,
                                             &world.run_step, &world.detail);
        got = rf_create_run_with_shards(world.handle, world.now, tenant, q->run, &q->config, inputs,
                                        q->count, q->op, &world.result);
    }
    settle_run(q, expected, got);
    if (expected == RF_OK && world.run_step.outcome == RF_EXECUTED) {
        r = model_run(q->tenant, q->run);
        for (uint32_t i = 0; i < q->count; i++) {
            rf_cursor cursor = inputs[i].cursor;
            cursor.token = cursor.token.len == 0 ? rf_bytes_none() : cursor.token;
            struct lot *lot = new_lot(r);
            rf_box_make_root(&lot->box, tenant, q->run, inputs[i].shard, inputs[i].spec, cursor);
            lot->box.state.semantics = (uint8_t)r->run.config.semantics;
        }
    }
}

static void create(const struct request *q)
{
    const struct run_model *r = model_run(q->tenant, q->run);
    const struct rf_call call = call_of(q, 0);
    rf_status expected = rf_run_create(r == NULL ? NULL : &r->run, &call, q->run, &q->config,
                                       &world.run_step, &world.detail);
    rf_status got = rf_create_run(world.handle, world.now, &world.tenants[q->tenant], q->run,
                                  &q->config, &world.result);
    settle_run(q, expected, got);
}

static void end_run(const struct request *q)
{
    const struct run_model *r = model_run(q->tenant, q->run);
    const rf_tenant *tenant = &world.tenants[q->tenant];
    const struct rf_call call = call_of(q, rf_hash_run_op(q->ending));
    rf_status expected =
        rf_run_end(r == NULL ? NULL : &r->run, &call, q->ending, &world.run_step, &world.detail);
    rf_status got =
        q->ending == RF_RUN_OP_COMPLETE
            ? rf_complete_run(world.handle, world.now, tenant, q->run, q->op, &world.result)
        : q->ending == RF_RUN_OP_FAIL
            ? rf_fail_run(world.handle, world.now, tenant, q->run, q->op, &world.result)
            : rf_cancel_run(world.handle, world.now, tenant, q->run, q->op, &world.result);
    settle_run(q, expected, got);
}

static void purge(const struct request *q)
{
    struct run_model *r = model_run(q->tenant, q->run);
    rf_status expected = world.now == 0                       ? RF_INVALID_TIME
                         : r == NULL                          ? RF_RUN_NOT_FOUND
                         : !rf_run_is_terminal(r->run.status) ? RF_WRONG_STATUS
                                                              : RF_OK;
    rf_status got =
        rf_purge_run(world.handle, world.now, &world.tenants[q->tenant], q->run, &world.result);
    same_status(q, expected, got);
    if (expected == RF_OK) {
        for (uint32_t i = 0; i < r->count; i++) {
            uint64_t fence = r->lots[i]->box.state.fence;
            world.floor = fence > world.floor ? fence : world.floor;
            r->lots[i]->used = false;
        }
        r->exists = false;
        world.executed++;
    }
}

/* --- making requests up --- */

static struct lot *some_lot(const struct run_model *r)
{
    return r == NULL || r->count == 0 ? NULL : r->lots[pick(r->count)];
}

/* A lease that somebody was granted: the shard's own, an old one, or one with a flaw. */
static void present_lease(struct request *q)
{
    if (world.lease_count == 0) {
        return;
    }
    uint32_t i = pick(world.lease_count);
    for (uint32_t tries = 0; tries < 12; tries++) {
        q->lease = world.leases[i];
        q->tenant = world.lease_tenants[i];
        const struct lot *lot = lot_of(q);
        if (lot != NULL && lot->box.state.fence == q->lease.fence &&
            rf_shard_leased_at(&lot->box.state, world.shop.now)) {
            break;
        }
        i = pick(world.lease_count);
    }
    q->run = q->lease.run;
    q->shard = q->lease.shard;
    switch (pick(60)) {
    case 0:
        q->lease.fence += 1;
        break;
    case 1:
        q->lease.worker += 1;
        break;
    case 2:
        q->lease.shard += 1;
        break;
    case 3:
        q->tenant ^= 1u;
        break;
    case 4:
        q->lease.run ^= 1u;
        break;
    case 5:
    case 6:
        q->lease.slot_hint = rf_prng_next(&world.prng) >> pick(64); /* any value is safe */
        break;
    case 7:
        q->lease.slot_hint = 1 + pick(300);
        break;
    default:
        break;
    }
}

static void plan_cursor(struct request *q)
{
    const struct lot *lot = lot_of(q);
    if (q->kind == RELEASE && chance(50)) {
        return; /* as it is */
    }
    if (lot == NULL || chance(3)) {
        q->key = any_key();
    } else {
        rf_spec spec = rf_box_spec(&lot->box);
        rf_cursor cursor = rf_box_cursor(&lot->box);
        rf_bytes low = cursor.key.data != NULL ? cursor.key : spec.start;
        q->key = chance(20) ? blob_of(low) : key_between(low, spec.end);
    }
    q->key.present = q->key.present && !chance(2);
    if (chance(40)) {
        q->token = some_blob(RF_TOKEN_MAX);
    }
}

/* Cuts the shard's range at rising points; now and then something is wrong with it. */
static void plan_replace(struct request *q)
{
    const struct lot *lot = lot_of(q);
    if (lot == NULL) {
        return;
    }
    rf_spec spec = rf_box_spec(&lot->box);
    q->count = chance(80) ? 2 + pick(4) : 1 + pick(POINTS - 2);
    q->rotation = pick(q->count);
    q->points[0] = blob_of(spec.start);
    for (uint32_t i = 1; i < q->count; i++) {
        q->points[i] = key_between(blob_bytes(&q->points[i - 1], 0), spec.end);
    }
    q->points[q->count] = blob_of(spec.end);
    if (chance(8)) {
        q->points[pick(q->count + 1)] = any_key();
    }
    q->metadata = some_blob(RF_METADATA_MAX);
    q->key.present = chance(20);
    if (chance(20)) {
        q->token = some_blob(RF_TOKEN_MAX);
    }
}

static void plan_residual(struct request *q)
{
    const struct lot *lot = lot_of(q);
    if (lot == NULL) {
        return;
    }
    rf_spec spec = rf_box_spec(&lot->box);
    rf_cursor cursor = rf_box_cursor(&lot->box);
    rf_bytes low = cursor.key.data != NULL && !chance(5) ? cursor.key : spec.start;
    q->points[0] = blob_of(spec.start);
    q->points[1] = key_between(low, spec.end);
    q->points[2] = chance(95) ? blob_of(spec.end) : any_key();
    q->rotation = chance(3);
    q->metadata = some_blob(RF_METADATA_MAX);
}

static void plan_manifest(struct request *q)
{
    uint8_t letter = (uint8_t)('a' + pick(26));
    q->count = chance(3) ? 0 : 1 + pick(chance(70) ? 5 : POINTS / 2 - 2);
    q->rotation = q->count == 0 ? 0 : pick(q->count);
    for (uint32_t i = 0; i < q->count; i++) {
        q->ids[i] = world.steps * 64 + i;
        for (uint32_t side = 0; side < 2; side++) {
            struct blob *b = &q->points[2 * i + side];
            *b = (struct blob){.present = true, .fill = 'q', .head_len = 2, .len = 2};
            b->head[0] = letter;
            b->head[1] = (uint8_t)('A' + i + side);
        }
    }
    if (q->count != 0 && chance(12)) {
        uint32_t i = pick(q->count);
        switch (pick(6)) {
        case 0:
            q->ids[i] |= RF_DERIVED_BIT;
            break;
        case 1:
            q->ids[i] = q->ids[0];
            break;
        case 2:
            q->points[2 * i] = (struct blob){.present = true};
            break;
        case 3:
            lengthen(&q->points[2 * i + 1], RF_KEY_MAX);
            break;
        case 4:
            q->points[2 * i] = any_key();
            break;
        default:
            q->ids[i] = 64;
            break;
        }
    }
    q->metadata = some_blob(RF_METADATA_MAX);
    q->key.present = chance(25);
    q->token = some_blob(RF_TOKEN_MAX);
}

static rf_run_config some_config(uint32_t tenant, uint64_t run)
{
    return (rf_run_config){.lease_duration = chance(2) ? 0 : 250 + 350 * run,
                           .semantics = chance(95) ? (rf_semantics)tenant : RF_COMPLETED,
                           .has_max_retries = run == 1,
                           .max_retries = 2};
}

static enum kind some_kind(void)
{
    static const uint8_t weights[KINDS] = {
        [ACQUIRE] = 10,       [CLAIM] = 14, [RENEW] = 10,  [CHECKPOINT] = 16,
        [COMPLETE] = 5,       [PARK] = 3,   [RELEASE] = 5, [SPLIT_REPLACE] = 3,
        [SPLIT_RESIDUAL] = 4, [UNPARK] = 4, [CREATE] = 1,  [REGISTER] = 1,
        [CREATE_WITH] = 2,    [ADD] = 1,    [END] = 1,     [PURGE] = 1,
    };
    uint32_t total = 0;
    for (uint32_t k = 0; k < KINDS; k++) {
        total += weights[k];
    }
    uint32_t n = pick(total);
    enum kind kind = ACQUIRE;
    while (n >= weights[kind]) {
        n -= weights[kind++];
    }
    return kind;
}

static void make_up(struct request *q)
{
    memset(q, 0, sizeof(*q));
    q->kind = some_kind();
    if (q->kind == END && chance(70)) {
        q->kind = CLAIM; /* runs should live for a while */
    }
    q->tenant = pick(TENANTS);
    q->run = pick(RUN_IDS);
    q->worker = pick(WORKERS);
    q->flags = chance(15) ? RF_DETACHED : RF_BOUND;
    q->op = ++world.next_op;
    q->reason = chance(99) ? (rf_park_reason)pick(5) : (rf_park_reason)7;
    q->ending = RF_RUN_OP_COMPLETE + pick(3);
    q->config = some_config(q->tenant, q->run);
    const struct lot *lot = some_lot(model_run(q->tenant, q->run));
    q->shard = lot == NULL || chance(2) ? pick(100) : lot->box.shard;
    q->lease = (rf_lease){.run = q->run, .shard = q->shard, .worker = q->worker, .fence = 2};
    if (q->kind >= RENEW && q->kind <= SPLIT_RESIDUAL) {
        present_lease(q);
    }
    switch (q->kind) {
    case CHECKPOINT:
    case COMPLETE:
    case RELEASE:
        plan_cursor(q);
        break;
    case SPLIT_REPLACE:
        plan_replace(q);
        break;
    case SPLIT_RESIDUAL:
        plan_residual(q);
        break;
    case REGISTER:
    case CREATE_WITH:
    case ADD:
        plan_manifest(q);
        break;
    default:
        break;
    }
}

/* --- a step --- */

static void execute(const struct request *q)
{
    switch (q->kind) {
    case ACQUIRE:
        acquire(q);
        break;
    case CLAIM:
        claim(q);
        break;
    case RENEW:
        renew(q);
        break;
    case CHECKPOINT:
    case COMPLETE:
    case RELEASE:
        with_cursor(q);
        break;
    case PARK:
    case UNPARK:
        park_or_unpark(q);
        break;
    case SPLIT_REPLACE:
        split_replace(q);
        break;
    case SPLIT_RESIDUAL:
        split_residual(q);
        break;
    case CREATE:
        create(q);
        break;
    case REGISTER:
    case CREATE_WITH:
    case ADD:
        take_shards(q);
        break;
    case END:
        end_run(q);
        break;
    default:
        purge(q);
        break;
    }
}

/* Callers race: a clock may be behind another's, never ahead of the latest. */
static uint64_t some_time(void)
{
    world.shop.now += pick(100) < 97 ? pick(6) : pick(120);
    if (chance(1)) {
        return 0;
    }
    return chance(15) ? world.shop.now - pick(80) : world.shop.now;
}

static void call_once(void)
{
    static struct request q;
    if (world.past_count != 0 && chance(10)) {
        q = world.past[pick(world.past_count)];
        if (chance(20)) {
            q.reason = (q.reason + 1) % 5;
            q.token = some_blob(32);
        }
    } else {
        make_up(&q);
        uint32_t at = world.past_count < PAST ? world.past_count++ : pick(PAST);
        world.past[at] = q;
    }
    world.now = some_time();
    memset(&world.detail, 0, sizeof(world.detail));
    world.result.want_event = chance(50);
    execute(&q);
    const struct lot *lot = lot_of(&q);
    if (lot != NULL) {
        compare_shard(q.tenant, q.lease.run, lot);
    }
    compare_run(q.tenant, q.run);
}

/* --- handles come and go --- */

static void enter_handle(uint32_t h)
{
    const rf_options options = {
        .max_shards = TOTAL_LIMIT,
        .max_tenant_shards = TENANT_LIMIT,
        .max_bytes = 32u << 20,
        .max_runs = 5,
        .max_members = 8,
        .claim_cooldown = world.cooldown,
    };
    world.handles[h] = rf_shop_enter(&world.shop, &options);
    world.serials[h] = ++world.next_serial;
}

static void tend(void)
{
    RF_EXPECT(RF_OK, rf_tend(world.handle, world.shop.now));
    for (uint32_t i = 0; i < world.dead_count; i++) {
        lose_owner(world.dead[i]);
    }
    world.dead_count = 0;
}

static void change_handle(uint32_t h)
{
    if (chance(50)) {
        rf_close(world.handles[h]);
        lose_owner(world.serials[h]);
    } else {
        rf_shop_die(world.handles[h]);
        world.dead[world.dead_count++] = world.serials[h];
    }
    enter_handle(h);
    world.handle = world.handles[pick(HANDLES)];
    if (world.dead_count == HANDLES) {
        tend();
    }
}

static void step(void)
{
    uint32_t h = pick(HANDLES);
    world.handle = world.handles[h];
    world.serial = world.serials[h];
    world.steps++;
    uint32_t what = pick(1000);
    if (what < 950) {
        call_once();
    } else if (what < 965) {
        world.now = world.shop.now;
        look_at_list(pick(TENANTS), pick(RUN_IDS));
    } else if (what < 975) {
        world.now = world.shop.now;
        look_at_progress(pick(TENANTS), pick(RUN_IDS));
    } else if (what < 990) {
        sweep(pick(TENANTS), pick(RUN_IDS));
    } else if (what < 994) {
        tend();
    } else {
        change_handle(h);
    }
    if (world.steps % LOOK_EVERY == 0) {
        compare_all();
    }
}

static void play(uint64_t seed, uint64_t cooldown, uint32_t steps)
{
    current_seed = seed;
    memset(&world, 0, sizeof(world));
    world.prng.state = seed;
    world.cooldown = cooldown;
    rf_hasher_init(&world.hasher);
    rf_shop_found(&world.shop);
    for (uint32_t t = 0; t < TENANTS; t++) {
        memset(world.tenants[t].bytes, (int)(0x51 + t), sizeof(world.tenants[t].bytes));
    }
    for (uint32_t h = 0; h < HANDLES; h++) {
        enter_handle(h);
    }
    for (uint32_t i = 0; i < steps; i++) {
        step();
    }
    world.handle = world.handles[0];
    tend();
    compare_all();
    for (uint32_t h = 0; h < HANDLES; h++) {
        rf_close(world.handles[h]);
    }
    rf_shop_raze(&world.shop);
    printf("  seed %" PRIu64 ": %" PRIu64 " steps, %" PRIu64 " executed, %" PRIu64
           " replayed, floor %" PRIu64 "\n",
           seed, world.steps, world.executed, world.replayed, world.floor);
}

static void every_operation_is_well_mixed(void)
{
    for (uint32_t k = 0; k < KINDS; k++) {
        const struct request q = {.kind = k};
        char message[64];
        snprintf(message, sizeof(message), "%s: %" PRIu64 " times, refused %" PRIu64, describe(&q),
                 by_kind[k][0], by_kind[k][1]);
        TEST_ASSERT_TRUE_MESSAGE(by_kind[k][0] >= 5 && by_kind[k][1] >= 5, message);
    }
    TEST_ASSERT_TRUE_MESSAGE(world.replayed >= 100, "hardly any replays");
}

static void the_region_answers_as_the_model_does(void)
{
    uint64_t seed = rf_env_number("RF_SEED", 1);
    for (uint64_t i = 0; i < 4; i++) {
        play(seed + i, i % 2 == 0 ? 0 : 12, STEPS);
    }
    every_operation_is_well_mixed();
}

static void and_on_and_on(void)
{
    if (getenv("RF_SOAK") == NULL) {
        TEST_IGNORE_MESSAGE("only with RF_SOAK=1");
    }
    uint64_t seed = rf_env_number("RF_SEED", 1) + 4;
    time_t until = time(NULL) + (time_t)rf_env_number("RF_SECONDS", 600);
    while (time(NULL) < until) {
        play(seed, rf_prng_chance(&(struct rf_prng){.state = seed}, 50) ? 0 : 12, STEPS);
        seed++;
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_region_answers_as_the_model_does);
    RUN_TEST(and_on_and_on);
    return UNITY_END();
}
