/*
 * The input is a little program of operations on one run with two root shards and whatever they are
 * split into. The desks hold every call to the rules that have no exception (desk.h, run_desk.h);
 * this adds what takes more than one call or more than one shard to see:
 *
 *   an operation repeated at once, or while the ring remembers it, is a replay with the same answer;
 *   the same op id with another payload is a conflict;
 *   the shards that were not split cover exactly the ranges of the roots (S10);
 *   a copy of every shard that is fed only with encoded steps, and now and then with an encoded
 *   record, equals it: what the log and snapshots say is all there is.
 */
#include <stdlib.h>

#include "codec.h"
#include "desk.h"
#include "run_desk.h"
#include "unity.h"

#define SHARDS 24u
#define STEPS  400u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void setUp(void);
void tearDown(void);

/* Unity wants them. */
void setUp(void)
{
}

void tearDown(void)
{
}

/* --- the program --- */

struct input {
    const uint8_t *at;
    const uint8_t *end;
};

static uint8_t take(struct input *in)
{
    return in->at == in->end ? 0 : *in->at++;
}

/* --- the world --- */

enum op_kind {
    DO_CHECKPOINT,
    DO_COMPLETE,
    DO_PARK,
    DO_RELEASE,
    DO_SPLIT_REPLACE,
    DO_SPLIT_RESIDUAL,
    DO_UNPARK,
    DO_KINDS,
};

#define CHILDREN 4u

/* One call with an op id, in full, so that it can be made again. */
struct saved {
    enum op_kind kind;
    uint64_t op;
    rf_cursor cursor;
    rf_park_reason reason;
    uint32_t count;
    rf_child children[CHILDREN]; /* of a residual split: the two parts */
    uint8_t key[RF_KEY_MAX + 1];
    uint8_t token[RF_TOKEN_MAX + 1];
    uint8_t start[RF_KEY_MAX], end[RF_KEY_MAX], metadata[RF_METADATA_MAX];
    uint8_t points[CHILDREN][2];

    /* what it did */
    bool executed;
    uint32_t pushes; /* the shard's operations when it was done, this one counted */
    uint64_t ids[CHILDREN];
};

static struct world {
    struct rf_run_desk run;
    struct rf_desk desk;
    uint32_t count;
    struct rf_box boxes[SHARDS];
    struct rf_box copies[SHARDS]; /* fed with encoded steps */
    uint64_t versions[SHARDS];
    uint32_t pushes[SHARDS];
    rf_lease leases[SHARDS];
    struct saved last[SHARDS];
    struct saved next;
    uint64_t op;
} w;

static uint8_t bytes[RF_CODEC_SHARD_MAX];
static struct rf_shard_decoded decoded_shard;
static struct rf_step_record decoded_step;

static bool id_exists(void *context, uint64_t shard)
{
    (void)context;
    for (uint32_t i = 0; i < w.count; i++) {
        if (w.boxes[i].shard == shard) {
            return true;
        }
    }
    return false;
}

static void add_box(const struct rf_box *parent, uint64_t shard, rf_spec spec, rf_cursor cursor)
{
    TEST_ASSERT_TRUE(w.count < SHARDS);
    struct rf_box *box = &w.boxes[w.count];
    if (parent == NULL) {
        rf_box_make_root(box, &w.desk.tenant, w.run.id, shard, spec, cursor);
    } else {
        rf_box_make_derived(box, parent, shard, spec, cursor);
    }
    rf_box_copy(&w.copies[w.count], box);
    w.versions[w.count] = 0;
    w.pushes[w.count] = 0;
    w.leases[w.count] = (rf_lease){.run = w.run.id, .shard = shard};
    w.last[w.count].executed = false;
    w.count++;
}

static void begin_world(void)
{
    const rf_tenant tenant = rf_tenant_of(1);
    const rf_shard_input roots[] = {rf_input_of(1, "b", "m"), rf_input_of(2, "m", "y")};
    w.count = 0;
    w.op = 0;
    rf_run_desk_open(&w.run, &tenant, 7);
    TEST_ASSERT_EQUAL(RF_OK, rf_run_desk_create_with_shards(&w.run, roots, 2));
    w.desk.tenant = tenant;
    for (uint32_t i = 0; i < 2; i++) {
        add_box(NULL, roots[i].shard, roots[i].spec, roots[i].cursor);
    }
    rf_desk_open(&w.desk, &w.boxes[0]);
    w.desk.env.exists = id_exists;
}

/* --- what must hold between shards --- */

static int by_start(const void *a, const void *b)
{
    const struct rf_box *x = *(const struct rf_box *const *)a;
    const struct rf_box *y = *(const struct rf_box *const *)b;
    return rf_key_compare(rf_box_spec(x).start, rf_box_spec(y).start);
}

static void judge_cover(void)
{
    const struct rf_box *live[SHARDS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < w.count; i++) {
        if (w.boxes[i].state.status != RF_SHARD_SPLIT) {
            live[count++] = &w.boxes[i];
        }
    }
    qsort(live, count, sizeof(live[0]), by_start);
    rf_bytes reached = rf_text("b");
    for (uint32_t i = 0; i < count; i++) {
        TEST_ASSERT_TRUE_MESSAGE(rf_bytes_equal(reached, rf_box_spec(live[i]).start),
                                 "the ranges do not cover the roots");
        reached = rf_box_spec(live[i]).end;
    }
    TEST_ASSERT_TRUE(rf_bytes_equal(reached, rf_text("y")));
}

/* --- the copies --- */

static void feed_copy(uint32_t i)
{
    struct rf_desk *d = &w.desk;
    size_t len = 0, used = 0;
    w.versions[i]++;
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_put_step(d->box->shard, w.versions[i], d->now, &d->step,
                                               bytes, sizeof(bytes), &len));
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_get_step(rf_bytes_of(bytes, len), &decoded_step, &used));
    TEST_ASSERT_EQUAL_size_t(len, used);
    TEST_ASSERT_EQUAL_UINT64(d->box->shard, decoded_step.shard);
    TEST_ASSERT_EQUAL_UINT64(w.versions[i], decoded_step.version);
    TEST_ASSERT_EQUAL_UINT64(d->now, decoded_step.time);
    rf_box_apply(&w.copies[i], &decoded_step.step);
    TEST_ASSERT_TRUE_MESSAGE(rf_box_equal(&w.boxes[i], &w.copies[i]),
                             "the log tells another story");
}

/* As if from a snapshot. */
static void reload_copy(uint32_t i)
{
    struct rf_shard view = rf_box_view(&w.boxes[i]);
    struct rf_box *copy = &w.copies[i];
    size_t len = 0, used = 0;
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_put_shard(&view, bytes, sizeof(bytes), &len));
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_get_shard(rf_bytes_of(bytes, len), &decoded_shard, &used));
    copy->tenant = decoded_shard.tenant;
    copy->run = decoded_shard.view.run;
    copy->shard = decoded_shard.view.shard;
    copy->state = decoded_shard.state;
    copy->ring = decoded_shard.ring;
    memcpy(copy->spawned, decoded_shard.spawned, sizeof(copy->spawned));
    rf_box_set_spec(copy, decoded_shard.view.spec);
    rf_box_set_cursor(copy, decoded_shard.view.cursor);
    TEST_ASSERT_TRUE_MESSAGE(rf_box_equal(&w.boxes[i], copy), "the snapshot tells another story");
}

/* --- arguments --- */

/* Mostly keys of one or two letters, so that they meet; the rest is where the borders are. */
static void take_cursor(struct input *in, const struct rf_box *box, struct saved *s)
{
    uint8_t choice = take(in);
    size_t len = 1;
    s->cursor = (rf_cursor){0};
    s->key[0] = (uint8_t)('a' + choice % 26);
    if (choice == 255) {
        return; /* no key */
    }
    if (choice >= 252) {
        len = choice == 252 ? RF_KEY_MAX : choice == 253 ? RF_KEY_MAX + 1 : 0;
        memset(s->key, 'c', len);
    } else if (choice >= 240) {
        len = box->key_len;
        memcpy(s->key, box->key, len);
    } else if (choice % 2 == 1) {
        s->key[len++] = take(in);
    }
    s->cursor.key = rf_bytes_of(s->key, len);
}

static void take_token(struct input *in, struct saved *s)
{
    uint8_t choice = take(in);
    size_t len = choice < 128 ? 0 : choice % 8u;
    if (choice >= 254) {
        len = choice == 254 ? RF_TOKEN_MAX : RF_TOKEN_MAX + 1;
    }
    memset(s->token, choice, len);
    if (len != 0) {
        s->cursor.token = rf_bytes_of(s->token, len);
    }
}

/* The shard's range now, copied, since a replay has to present it when it has changed. */
static rf_spec keep_spec(const struct rf_box *box, struct saved *s)
{
    rf_spec spec = rf_box_spec(box);
    memcpy(s->start, spec.start.data, spec.start.len);
    memcpy(s->end, spec.end.data, spec.end.len);
    memcpy(s->metadata, spec.metadata.data, spec.metadata.len);
    return (rf_spec){
        .start = rf_bytes_of(s->start, spec.start.len),
        .end = rf_bytes_of(s->end, spec.end.len),
        .metadata = rf_bytes_of(s->metadata, spec.metadata.len),
    };
}

static int by_point(const void *a, const void *b)
{
    return memcmp(a, b, 2);
}

static rf_bytes successor(rf_bytes key, struct saved *s)
{
    size_t len = 0;
    return rf_key_successor(key, s->key, &len) == RF_OK ? rf_bytes_of(s->key, len) : key;
}

/* Cuts of the range at points of two bytes, then perhaps a fault. */
static void take_plan(struct input *in, const struct rf_box *box, struct saved *s)
{
    rf_spec spec = keep_spec(box, s);
    uint32_t count = s->kind == DO_SPLIT_RESIDUAL ? 2 : 2 + take(in) % (CHILDREN - 1);
    for (uint32_t i = 0; i + 1 < count; i++) {
        s->points[i][0] = (uint8_t)('a' + take(in) % 26);
        s->points[i][1] = take(in);
    }
    qsort(s->points, count - 1, sizeof(s->points[0]), by_point);
    rf_bytes from = spec.start;
    for (uint32_t i = 0; i < count; i++) {
        rf_bytes to = i + 1 < count ? rf_bytes_of(s->points[i], 2) : spec.end;
        s->children[i] = (rf_child){.spec = {.start = from, .end = to, .metadata = spec.metadata}};
        from = to;
    }
    uint8_t fault = take(in);
    rf_child *child = &s->children[fault % count];
    switch (fault >> 4) {
    case 15:
        child->spec.end = rf_bytes_none();
        break;
    case 14:
        child->cursor.token = rf_bytes_of("t", 1);
        break;
    case 13:
        child->cursor.key = child->spec.start;
        break;
    case 12:
        child->cursor.key = child->spec.end;
        break;
    case 11: {
        rf_child swap = s->children[0];
        s->children[0] = *child;
        *child = swap;
        break;
    }
    case 8: /* a gap of one key */
        child->spec.start = successor(child->spec.start, s);
        break;
    case 7: /* an overlap of one key */
        child->spec.end = successor(child->spec.end, s);
        break;
    case 10:
        child->spec.metadata = rf_bytes_of(s->metadata, RF_METADATA_MAX);
        break;
    default:
        break;
    }
    s->count = (fault >> 4) == 9 ? 1 : count;
}

/* --- operations --- */

static rf_status call(const struct saved *s)
{
    struct rf_desk *d = &w.desk;
    d->op = s->op;
    switch (s->kind) {
    case DO_CHECKPOINT:
        return rf_desk_checkpoint(d, s->cursor);
    case DO_COMPLETE:
        return rf_desk_complete(d, s->cursor);
    case DO_PARK:
        return rf_desk_park(d, s->reason);
    case DO_RELEASE:
        return rf_desk_release(d, s->cursor);
    case DO_SPLIT_REPLACE:
        return rf_desk_split_replace(d, s->children, s->count);
    case DO_SPLIT_RESIDUAL:
        return rf_desk_split_residual(d, s->children[0].spec, s->children[1].spec);
    case DO_UNPARK:
        d->lease.run = d->box->run; /* it has none, but the desk names the shard by it */
        d->lease.shard = d->box->shard;
        return rf_desk_unpark(d);
    case DO_KINDS:
        break;
    }
    return RF_INVALID_ARGUMENT;
}

static void judge_replay(uint32_t i, const struct saved *s)
{
    /* Of the lease only the names count: idempotency comes before it. */
    w.desk.lease = (rf_lease){.run = w.boxes[i].run, .shard = w.boxes[i].shard};
    rf_status status = call(s);
    if (status == RF_RUN_TERMINAL || status == RF_INVALID_TIME) {
        TEST_ASSERT_TRUE(status == RF_INVALID_TIME ? w.desk.now == 0 : s->kind == DO_UNPARK);
        return;
    }
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, status, "a repeated operation was refused");
    TEST_ASSERT_EQUAL_MESSAGE(RF_REPLAYED, w.desk.step.outcome, "an operation was done twice");
    uint32_t ids = s->kind == DO_SPLIT_REPLACE ? s->count : s->kind == DO_SPLIT_RESIDUAL;
    TEST_ASSERT_EQUAL_UINT32(ids, w.desk.step.spawned_new);
    for (uint32_t k = 0; k < ids; k++) {
        TEST_ASSERT_EQUAL_HEX64(s->ids[k], w.desk.step.spawned_ids[k]);
    }
    TEST_ASSERT_TRUE(rf_box_equal(&w.boxes[i], &w.copies[i]));
}

static void make_children(uint32_t i, const struct saved *s)
{
    const struct rf_shard_step step = w.desk.step;
    for (uint32_t k = 0; k < step.spawned_new; k++) {
        const rf_child *child =
            s->kind == DO_SPLIT_RESIDUAL ? &s->children[1] : &s->children[step.spawned_order[k]];
        add_box(&w.boxes[i], step.spawned_ids[k], child->spec,
                s->kind == DO_SPLIT_RESIDUAL ? (rf_cursor){0} : child->cursor);
    }
}

static void remember(uint32_t i, struct saved *s)
{
    const struct rf_shard_step *step = &w.desk.step;
    s->executed = true;
    s->pushes = ++w.pushes[i];
    for (uint32_t k = 0; k < step->spawned_new; k++) {
        s->ids[k] = step->spawned_ids[k];
    }
}

/* Moves a saved call and what it points to in itself. */
static void move_saved(struct saved *to, const struct saved *from)
{
    ptrdiff_t by = (const char *)to - (const char *)from;
    memcpy(to, from, sizeof(*to));
    rf_bytes *inner[4 + 5 * CHILDREN] = {&to->cursor.key, &to->cursor.token};
    uint32_t count = 2;
    for (uint32_t k = 0; k < CHILDREN; k++) {
        inner[count++] = &to->children[k].spec.start;
        inner[count++] = &to->children[k].spec.end;
        inner[count++] = &to->children[k].spec.metadata;
        inner[count++] = &to->children[k].cursor.key;
        inner[count++] = &to->children[k].cursor.token;
    }
    for (uint32_t k = 0; k < count; k++) {
        const char *data = inner[k]->data;
        if (data >= (const char *)from && data < (const char *)(from + 1)) {
            inner[k]->data = data + by;
        }
    }
}

static void do_op(struct input *in, uint32_t i, enum op_kind kind)
{
    struct saved *s = &w.next;
    bool splits = kind == DO_SPLIT_REPLACE || kind == DO_SPLIT_RESIDUAL;
    if (splits && w.count + CHILDREN > SHARDS) {
        return; /* the world is full */
    }
    memset(s, 0, offsetof(struct saved, key));
    s->kind = kind;
    s->op = ++w.op;
    s->executed = false;
    if (kind == DO_PARK) {
        s->reason = (rf_park_reason)(take(in) % (RF_PARK_OTHER + 2));
    } else if (splits) {
        take_plan(in, w.desk.box, s);
    } else if (kind != DO_UNPARK) {
        take_cursor(in, w.desk.box, s);
        take_token(in, s);
    }
    if (call(s) != RF_OK) {
        return;
    }
    TEST_ASSERT_EQUAL_MESSAGE(RF_EXECUTED, w.desk.step.outcome, "a new op id was replayed");
    remember(i, s);
    feed_copy(i);
    if (splits) {
        make_children(i, s);
    }
    judge_cover();
    judge_replay(i, s);
    move_saved(&w.last[i], s);
}

/* The shard's last operation again; and its op id with another payload. */
static void do_again(uint32_t i)
{
    const struct saved *s = &w.last[i];
    if (!s->executed || w.pushes[i] - s->pushes >= RF_SHARD_RING || w.desk.now == 0) {
        return;
    }
    judge_replay(i, s);
    w.desk.op = s->op;
    rf_cursor other = rf_cursor_with("another", "payload");
    TEST_ASSERT_EQUAL(RF_OP_ID_CONFLICT, rf_desk_checkpoint(&w.desk, other));
}

static void do_lease(struct input *in, uint32_t i, uint8_t action)
{
    struct rf_desk *d = &w.desk;
    if (action == 0) {
        /* Half of the old leases are forgotten, half stay around to be refused. */
        rf_lease before = d->lease;
        uint8_t choice = take(in);
        if (rf_desk_acquire(d, choice % 3) == RF_OK) {
            feed_copy(i);
            w.leases[i] = choice >= 128 ? before : d->lease;
        }
    } else if (action == 1) {
        if (rf_desk_renew(d) == RF_OK) {
            feed_copy(i);
            w.leases[i] = d->lease;
        }
    } else if (action == 2) {
        if (rf_desk_owner_lost(d)) {
            feed_copy(i);
        }
    } else if (rf_shard_available_at(&d->box->state, d->now)) {
        rf_desk_park_exhausted(d);
        feed_copy(i);
    }
}

static void forge_lease(struct input *in, uint32_t i)
{
    rf_lease *lease = &w.leases[i];
    switch (take(in) % 6) {
    case 0:
        lease->fence += take(in);
        break;
    case 1:
        lease->fence -= take(in);
        break;
    case 2:
        lease->worker = take(in) % 4;
        break;
    case 3:
        lease->shard = take(in);
        break;
    case 4:
        lease->deadline = UINT64_MAX;
        break;
    default: /* the true one */
        *lease = (rf_lease){.run = w.boxes[i].run,
                            .shard = w.boxes[i].shard,
                            .worker = w.boxes[i].state.owner,
                            .fence = w.boxes[i].state.fence};
        break;
    }
}

static void move_time(struct input *in)
{
    uint64_t by = take(in);
    switch (take(in) % 8) {
    case 0:
        w.desk.now = w.desk.now > by ? w.desk.now - by : 0; /* callers race */
        break;
    case 1:
        w.desk.now += by * 100;
        break;
    case 2:
        w.desk.now = by == 255 ? UINT64_MAX : w.desk.now;
        break;
    case 3:
        w.desk.now = by == 0 ? 0 : w.desk.now;
        break;
    default:
        w.desk.now += by;
        break;
    }
}

static void change_env(struct input *in)
{
    struct rf_env *env = &w.desk.env;
    uint8_t value = take(in);
    switch (take(in) % 4) {
    case 0:
        env->fence_floor = value == 255 ? UINT64_MAX : env->fence_floor + value;
        break;
    case 1:
        env->lease_duration = value == 255 ? UINT64_MAX : 1u + value * 10u;
        break;
    case 2:
        env->tenant_limit = value < 32 ? value : UINT64_MAX;
        break;
    default:
        env->total_limit = value < 32 ? value : UINT64_MAX;
        break;
    }
    env->tenant_shards = env->total_shards = w.count;
}

/* Runs: ended, or given more shards beyond the ranges that they have. */
static void change_run(struct input *in)
{
    static const rf_run_op_kind ends[] = {RF_RUN_OP_COMPLETE, RF_RUN_OP_FAIL, RF_RUN_OP_CANCEL};
    uint8_t choice = take(in);
    w.run.now = w.desk.now;
    w.run.op = take(in) % 16;
    if (choice < 200) {
        rf_shard_input more[2] = {rf_input_of(100u + choice % 8, "z1", "z2"),
                                  rf_input_of(100u + take(in) % 8, "z2", "z3")};
        rf_spec existing[] = {rf_spec_of("b", "y")};
        w.run.existing = existing;
        w.run.existing_count = 1;
        more[1].spec.start = choice % 16 == 5 ? rf_text("x") : more[1].spec.start;
        if (rf_run_desk_add(&w.run, more, 2) == RF_OK) {
            TEST_ASSERT_EQUAL(RF_OK, rf_run_desk_add(&w.run, more, 2));
            TEST_ASSERT_EQUAL(RF_REPLAYED, w.run.step.outcome);
        }
        w.run.existing = NULL;
        w.run.existing_count = 0;
    } else if (rf_run_desk_end(&w.run, ends[choice % 3]) == RF_OK) {
        TEST_ASSERT_EQUAL(RF_OK, rf_run_desk_end(&w.run, ends[choice % 3]));
        TEST_ASSERT_EQUAL(RF_REPLAYED, w.run.step.outcome);
    }
    w.desk.env.run_status = w.run.run.status;
}

static void one_step(struct input *in)
{
    uint8_t action = take(in);
    uint32_t i = take(in) % w.count;
    w.desk.box = &w.boxes[i];
    w.desk.lease = w.leases[i];
    switch (action % 20) {
    case 0:
    case 1:
    case 2:
    case 3:
        do_lease(in, i, action % 20);
        break;
    case 4:
        do_lease(in, i, 0);
        break;
    case 5:
    case 6:
        move_time(in);
        break;
    case 7:
        forge_lease(in, i);
        break;
    case 8:
        change_env(in);
        break;
    case 9:
        do_again(i);
        break;
    case 10:
        reload_copy(i);
        break;
    case 11:
        change_run(in);
        break;
    case 12:
        do_op(in, i, DO_CHECKPOINT);
        break;
    default:
        do_op(in, i, (enum op_kind)(action % 20 - 13));
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {.at = data, .end = data + size};
    Unity.TestFile = __FILE__;
    if (!TEST_PROTECT()) {
        abort(); /* Unity has said what failed */
    }
    begin_world();
    for (uint32_t step = 0; step < STEPS && in.at != in.end; step++) {
        one_step(&in);
    }
    return 0;
}
