/*
 * What the protocol costs by itself: no shared memory, no log, one thread.
 *
 * The unit is h, the time of the two bare BLAKE3 compressions that the payload of a checkpoint with
 * a 64-byte key can't do without. What is not h is ours: building the payload and keeping a hasher,
 * the checks of a transition, the ring, the step. Every call that is timed is asserted to have done
 * its work: a refusal would be fast, and worth nothing.
 */
#include <assert.h>
#include <stdlib.h>

#include "bare.h"
#include "codec.h"
#include "range.h"
#include "run.h"
#include "shard.h"
#include "table.h"

#define KEY_LEN        BARE_KEY_LEN
#define MANIFEST_COUNT 1000u

/* --- one shard, leased, with a full ring --- */

struct desk {
    rf_tenant tenant;
    struct rf_shard_state state;
    struct rf_shard_ring ring;
    struct rf_shard shard;
    rf_lease lease;
    struct rf_call call;
    struct rf_env env;
    rf_cursor cursor; /* of the next checkpoint */
    uint8_t start[KEY_LEN], end[KEY_LEN], stored[KEY_LEN], next[KEY_LEN];
    struct rf_hasher hasher;
    struct rf_split_scratch scratch;
    rf_child children[RF_SPLIT_CHILDREN_MAX];
    uint8_t points[RF_SPLIT_CHILDREN_MAX][KEY_LEN];
    uint32_t child_count;
};

/* A key of 64 bytes that differs from its neighbours only at the end, as paths do. */
static void write_key(uint8_t *key, uint32_t number)
{
    memset(key, 'k', KEY_LEN);
    for (uint32_t i = 0; i < 4; i++) {
        key[KEY_LEN - 4 + i] = (uint8_t)(number >> (24 - 8 * i));
    }
}

static void make_desk(struct desk *d)
{
    memset(d, 0, sizeof(*d));
    write_key(d->start, 0);
    write_key(d->stored, 1000);
    write_key(d->next, 1001);
    write_key(d->end, 1000000);
    memset(d->tenant.bytes, 7, sizeof(d->tenant.bytes));
    d->state = rf_shard_new_root(RF_COMPLETED);
    d->state.fence = 2;
    d->state.flags = RF_SHARD_LEASED;
    d->state.owner = 3;
    d->state.deadline = 1u << 30;
    d->state.ring_count = RF_SHARD_RING;
    d->state.ring_next = 5;
    for (uint32_t i = 0; i < RF_SHARD_RING; i++) {
        d->ring.op[i] = i + 1;
        d->ring.hash[i] = i;
        d->ring.executed_at[i] = 1;
    }
    d->shard = (struct rf_shard){
        .tenant = &d->tenant,
        .run = 1,
        .shard = 2,
        .state = &d->state,
        .ring = &d->ring,
        .spec = {.start = rf_bytes_of(d->start, KEY_LEN), .end = rf_bytes_of(d->end, KEY_LEN)},
        .cursor = {.key = rf_bytes_of(d->stored, KEY_LEN)},
    };
    d->lease = (rf_lease){.run = 1, .shard = 2, .worker = 3, .fence = 2};
    d->call = (struct rf_call){.tenant = &d->tenant, .now = 1000, .lease = &d->lease, .op = 100};
    d->env = (struct rf_env){
        .lease_duration = 1000,
        .run_status = RF_RUN_ACTIVE,
        .tenant_limit = RF_SHARDS_DEFAULT,
        .total_limit = RF_SHARDS_DEFAULT,
    };
    d->cursor.key = rf_bytes_of(d->next, KEY_LEN);
    rf_hasher_init(&d->hasher);
    assert(rf_shard_violation(&d->shard) == NULL);
}

static void plan_children(struct desk *d, uint32_t count)
{
    rf_bytes points[RF_SPLIT_CHILDREN_MAX];
    for (uint32_t i = 0; i + 1 < count; i++) {
        write_key(d->points[i], 2000 + i);
        points[i] = rf_bytes_of(d->points[i], KEY_LEN);
    }
    rf_status status = rf_plan_replace(d->shard.spec, points, count - 1, d->children, NULL);
    assert(status == RF_OK);
    d->child_count = count;
}

static inline void must_execute(rf_status status, const struct rf_shard_step *step)
{
    assert(status == RF_OK && step->outcome == RF_EXECUTED);
    bench_use(step);
}

static void run_hasher(void *context, uint64_t n)
{
    struct desk *d = context;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t hash = rf_hasher_checkpoint(&d->hasher, &d->cursor);
        bench_use(hash);
    }
}

static void run_public_hash(void *context, uint64_t n)
{
    struct desk *d = context;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t hash = rf_hash_checkpoint(d->cursor);
        bench_use(hash);
    }
}

static void run_checkpoint(void *context, uint64_t n)
{
    struct desk *d = context;
    struct rf_shard_step step;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        d->call.op = 100 + i;
        must_execute(rf_shard_checkpoint(&d->shard, &d->call, &d->cursor, &step, &detail), &step);
    }
}

static void run_hash_and_checkpoint(void *context, uint64_t n)
{
    struct desk *d = context;
    struct rf_shard_step step;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        d->call.op = 100 + i;
        d->call.hash = rf_hasher_checkpoint(&d->hasher, &d->cursor);
        must_execute(rf_shard_checkpoint(&d->shard, &d->call, &d->cursor, &step, &detail), &step);
    }
}

static void run_complete(void *context, uint64_t n)
{
    struct desk *d = context;
    struct rf_shard_step step;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        d->call.op = 100 + i;
        must_execute(rf_shard_complete(&d->shard, &d->call, &d->cursor, &step, &detail), &step);
    }
}

static void run_renew(void *context, uint64_t n)
{
    struct desk *d = context;
    struct rf_shard_step step;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_shard_renew(&d->shard, &d->call, &d->env, &step, &detail), &step);
    }
}

/* On a desk whose shard nobody holds. */
static void run_acquire(void *context, uint64_t n)
{
    struct desk *d = context;
    struct rf_shard_step step;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_shard_acquire(&d->shard, &d->call, 3, &d->env, &step, &detail), &step);
    }
}

static void run_split_replace(void *context, uint64_t n)
{
    struct desk *d = context;
    struct rf_shard_step step;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        d->call.op = 100 + i;
        must_execute(rf_shard_split_replace(&d->shard, &d->call, d->children, d->child_count,
                                            &d->env, &d->hasher, &d->scratch, &step, &detail),
                     &step);
    }
}

/* --- a registration --- */

struct registration {
    rf_tenant tenant;
    struct rf_run run;
    struct rf_call call;
    struct rf_env env;
    rf_shard_input shards[MANIFEST_COUNT];
    uint8_t keys[MANIFEST_COUNT + 1][KEY_LEN];
    uint32_t by_id[2 * MANIFEST_COUNT];
    uint32_t by_start[2 * MANIFEST_COUNT];
    struct rf_run_step step;
};

/* Shards side by side; stride 1 leaves them in order, any other number without a common factor with
 * their count mixes them. */
static void make_registration(struct registration *r, uint32_t stride)
{
    memset(r, 0, sizeof(*r));
    r->run.config.lease_duration = 1000;
    r->call = (struct rf_call){.tenant = &r->tenant, .now = 1, .op = 1};
    r->env.tenant_limit = r->env.total_limit = RF_SHARDS_DEFAULT;
    for (uint32_t i = 0; i <= MANIFEST_COUNT; i++) {
        write_key(r->keys[i], i);
    }
    for (uint32_t i = 0; i < MANIFEST_COUNT; i++) {
        uint32_t at = (uint32_t)((uint64_t)i * stride % MANIFEST_COUNT);
        r->shards[i].shard = at + 1;
        r->shards[i].spec.start = rf_bytes_of(r->keys[at], KEY_LEN);
        r->shards[i].spec.end = rf_bytes_of(r->keys[at + 1], KEY_LEN);
    }
}

static void run_register(void *context, uint64_t n)
{
    struct registration *r = context;
    rf_detail detail;
    for (uint64_t i = 0; i < n; i++) {
        rf_manifest_order_by_id(r->shards, MANIFEST_COUNT, r->by_id);
        const struct rf_manifest manifest = {.shards = r->shards,
                                             .count = MANIFEST_COUNT,
                                             .by_id = r->by_id,
                                             .by_start = r->by_start};
        rf_status status =
            rf_run_register(&r->run, &r->call, &manifest, &r->env, &r->step, &detail);
        assert(status == RF_OK && r->step.outcome == RF_EXECUTED);
        bench_use(&r->step);
    }
}

/* --- records as bytes --- */

struct coding {
    struct desk *desk;
    struct rf_run run;
    struct rf_shard_step step;
    struct rf_made_record made;
    uint8_t shard_bytes[RF_CODEC_SHARD_MAX];
    uint8_t run_bytes[RF_CODEC_RUN_MAX];
    uint8_t step_bytes[RF_CODEC_STEP_MAX];
    uint8_t made_bytes[RF_CODEC_MADE_MAX];
    size_t shard_len, run_len, step_len, made_len;
    struct rf_shard_decoded shard_back;
    struct rf_run run_back;
    struct rf_step_record step_back;
    struct rf_made_record made_back;
};

static void run_put_shard(void *context, uint64_t n)
{
    struct coding *c = context;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_codec_put_shard(&c->desk->shard, c->shard_bytes,
                                              sizeof(c->shard_bytes), &c->shard_len);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_put_run(void *context, uint64_t n)
{
    struct coding *c = context;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status =
            rf_codec_put_run(&c->run, c->run_bytes, sizeof(c->run_bytes), &c->run_len);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_put_step(void *context, uint64_t n)
{
    struct coding *c = context;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_codec_put_step(2, i, 1000, &c->step, c->step_bytes,
                                             sizeof(c->step_bytes), &c->step_len);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_put_made(void *context, uint64_t n)
{
    struct coding *c = context;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status =
            rf_codec_put_made(&c->made, c->made_bytes, sizeof(c->made_bytes), &c->made_len);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_get_shard(void *context, uint64_t n)
{
    struct coding *c = context;
    size_t used;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status =
            rf_codec_get_shard(rf_bytes_of(c->shard_bytes, c->shard_len), &c->shard_back, &used);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_get_run(void *context, uint64_t n)
{
    struct coding *c = context;
    size_t used;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status =
            rf_codec_get_run(rf_bytes_of(c->run_bytes, c->run_len), &c->run_back, &used);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_get_step(void *context, uint64_t n)
{
    struct coding *c = context;
    size_t used;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status =
            rf_codec_get_step(rf_bytes_of(c->step_bytes, c->step_len), &c->step_back, &used);
        assert(status == RF_OK);
        bench_use(c);
    }
}

static void run_get_made(void *context, uint64_t n)
{
    struct coding *c = context;
    size_t used;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status =
            rf_codec_get_made(rf_bytes_of(c->made_bytes, c->made_len), &c->made_back, &used);
        assert(status == RF_OK);
        bench_use(c);
    }
}

/* Encodes each once, so that there is something to decode. */
static void make_coding(struct coding *c, struct desk *desk, const struct rf_run *run)
{
    memset(c, 0, sizeof(*c));
    c->desk = desk;
    c->run = *run;
    for (uint32_t i = 0; i < RF_RUN_RING; i++) {
        c->run.ring.op[i] = i;
    }
    c->run.ring_count = RF_RUN_RING;
    rf_status status =
        rf_shard_checkpoint(&desk->shard, &desk->call, &desk->cursor, &c->step, NULL);
    must_execute(status, &c->step);
    c->made =
        (struct rf_made_record){.shard = 1, .spec = desk->shard.spec, .cursor = desk->shard.cursor};
    run_put_shard(c, 1);
    run_put_run(c, 1);
    run_put_step(c, 1);
    run_put_made(c, 1);
}

int main(int argc, char **argv)
{
    static struct bare bare;
    static struct desk held, free_desk, split_2, split_256;
    static struct registration sorted, mixed;
    static struct coding coding;
    struct bench_options options = bench_parse(argc, argv);
    int core = bench_pin();

    make_desk(&held);
    make_desk(&free_desk);
    free_desk.state.flags = 0;
    free_desk.call.lease = NULL;
    make_desk(&split_2);
    plan_children(&split_2, 2);
    make_desk(&split_256);
    plan_children(&split_256, RF_SPLIT_CHILDREN_MAX);
    make_registration(&sorted, 1);
    make_registration(&mixed, 617);
    make_coding(&coding, &held, &sorted.run);

    bare_init(&bare, held.next);
    assert(rf_hash_checkpoint(held.cursor) == rf_hasher_checkpoint(&held.hasher, &held.cursor));

    struct bench_case cases[] = {
        {.name = bare_name(), .run = bare_run, .context = &bare},
        {.name = "hash of a checkpoint, kept hasher",
         .run = run_hasher,
         .context = &held,
         .kind = BENCH_AT_MOST,
         .goal = 1.35},
        {.name = "checkpoint, hash given",
         .run = run_checkpoint,
         .context = &held,
         .kind = BENCH_BELOW,
         .goal = 0.4},
        {.name = "checkpoint with its hash", .run = run_hash_and_checkpoint, .context = &held},
        {.name = "hash of a checkpoint, public", .run = run_public_hash, .context = &held},
        {.name = "acquire", .run = run_acquire, .context = &free_desk},
        {.name = "renew", .run = run_renew, .context = &held},
        {.name = "complete, hash given", .run = run_complete, .context = &held},
        {.name = "split_replace 2, hash given", .run = run_split_replace, .context = &split_2},
        {.name = "split_replace 256, hash given", .run = run_split_replace, .context = &split_256},
        {.name = "register 1000 in order, hash given", .run = run_register, .context = &sorted},
        {.name = "register 1000 mixed, hash given", .run = run_register, .context = &mixed},
        {.name = "encode shard", .run = run_put_shard, .context = &coding},
        {.name = "decode shard", .run = run_get_shard, .context = &coding},
        {.name = "encode run", .run = run_put_run, .context = &coding},
        {.name = "decode run", .run = run_get_run, .context = &coding},
        {.name = "encode step", .run = run_put_step, .context = &coding},
        {.name = "decode step", .run = run_get_step, .context = &coding},
        {.name = "encode made", .run = run_put_made, .context = &coding},
        {.name = "decode made", .run = run_get_made, .context = &coding},
    };
    const uint32_t count = bench_select(&options, cases, sizeof(cases) / sizeof(cases[0]));
    for (uint32_t i = 0; i < count && !bare_is_bare(); i++) {
        cases[i].kind = BENCH_NO_GOAL; /* they are about the bare compressions */
    }
    bench_measure(cases, count, options.rounds);
    if (!options.json) {
        printf("median of %u rounds, core %d, %s\n", options.rounds, core, __VERSION__);
    }
    bench_print(stdout, &options, "lib", "h", cases, count);
    bench_print_quiet(stdout, &options, "lib");
    return bench_status(&options, cases, count);
}
