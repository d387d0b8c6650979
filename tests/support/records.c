#include "records.h"

#include <assert.h>

_Static_assert(RF_CODEC_SHARD_MAX >= RF_CODEC_STEP_MAX && RF_CODEC_SHARD_MAX >= RF_CODEC_MADE_MAX &&
                   RF_CODEC_SHARD_MAX >= RF_CODEC_RUN_MAX,
               "room for a shard is room for any record");

static bool one_in(struct rf_prng *prng, uint32_t n)
{
    return rf_prng_below(prng, n) == 0;
}

/* Any number, the ends of its range often. */
static uint64_t any_u64(struct rf_prng *prng)
{
    switch (rf_prng_below(prng, 4)) {
    case 0:
        return rf_prng_below(prng, 3);
    case 1:
        return UINT64_MAX - rf_prng_below(prng, 3);
    default:
        return rf_prng_next(prng);
    }
}

static uint32_t any_len(struct rf_prng *prng, enum records_size size, uint32_t max)
{
    if (size == RECORDS_SMALL) {
        return rf_prng_below(prng, (max < 5 ? max : 5) + 1);
    }
    switch (rf_prng_below(prng, 6)) {
    case 0:
        return 0;
    case 1:
        return max;
    case 2:
        return rf_prng_below(prng, max + 1);
    default:
        return rf_prng_below(prng, (max < 80 ? max : 80) + 1);
    }
}

static rf_bytes fill(struct rf_prng *prng, uint8_t *buffer, size_t len)
{
    rf_prng_bytes(prng, buffer, len);
    return rf_bytes_of(buffer, len);
}

static rf_spec any_spec(struct rf_prng *prng, enum records_size size, struct records_bytes *b)
{
    rf_spec s = {
        .start = fill(prng, b->start, any_len(prng, size, RF_KEY_MAX)),
        .end = fill(prng, b->end, any_len(prng, size, RF_KEY_MAX)),
        .metadata = fill(prng, b->metadata, any_len(prng, size, RF_METADATA_MAX)),
    };
    if (s.start.len != 0 && s.end.len != 0) {
        int order = rf_bytes_compare(s.start, s.end);
        if (order == 0) {
            s.end.len = 0;
        } else if (order > 0) {
            rf_bytes low = s.end;
            s.end = s.start;
            s.start = low;
        }
    }
    return s;
}

/* The smallest key of a range is its start, and one byte more is often inside too. */
static rf_cursor any_cursor(struct rf_prng *prng, enum records_size size, const rf_spec *range,
                            struct records_bytes *b)
{
    rf_cursor c = {0};
    uint32_t len = (uint32_t)range->start.len;
    if (len != 0) {
        memcpy(b->key, range->start.data, len);
    }
    uint32_t more = any_len(prng, size, RF_KEY_MAX - len);
    fill(prng, b->key + len, more);
    c.key = rf_bytes_of(b->key, len + more);
    if (range->end.len != 0 && rf_bytes_compare(c.key, range->end) >= 0) {
        c.key.len = len;
    }
    uint32_t token = any_len(prng, size, RF_TOKEN_MAX);
    if (token != 0) {
        c.token = fill(prng, b->token, token);
    }
    return c;
}

static struct rf_shard_state any_state(struct rf_prng *prng, enum records_size size, uint64_t shard)
{
    uint32_t spawned_bound = size == RECORDS_SMALL ? 5 : RF_SPAWNED_MAX + 1;
    struct rf_shard_state s = {
        .fence = any_u64(prng) | 1,
        .attempts = (uint32_t)any_u64(prng),
        .status = (uint8_t)rf_prng_below(prng, RF_SHARD_PARKED + 1),
        .park_reason = RF_NO_REASON,
        .semantics = (uint8_t)rf_prng_below(prng, RF_DISPATCHED + 1),
    };
    switch (rf_prng_below(prng, 3)) {
    case 0:
        s.spawned_count = rf_prng_below(prng, spawned_bound);
        break;
    case 1:
        s.spawned_count = spawned_bound - 1;
        break;
    default:
        break;
    }
    if (s.status == RF_SHARD_PARKED) {
        s.park_reason = (uint8_t)rf_prng_below(prng, RF_PARK_OTHER + 1);
    }
    if (s.status == RF_SHARD_SPLIT && s.spawned_count == 0) {
        s.spawned_count = 1;
    }
    if (s.status == RF_SHARD_ACTIVE && one_in(prng, 2)) {
        s.flags |= RF_SHARD_LEASED;
        s.owner = any_u64(prng);
        s.deadline = any_u64(prng);
    }
    if ((shard & RF_DERIVED_BIT) != 0) {
        s.flags |= RF_SHARD_HAS_PARENT;
        s.parent = any_u64(prng);
    }
    uint32_t ring_bound = size == RECORDS_SMALL && !one_in(prng, 4) ? 3 : RF_SHARD_RING + 1;
    uint32_t ring = one_in(prng, 3) ? ring_bound - 1 : rf_prng_below(prng, ring_bound);
    s.ring_count = (uint8_t)ring;
    s.ring_next = (uint8_t)(ring == RF_SHARD_RING ? rf_prng_below(prng, RF_SHARD_RING) : ring);
    return s;
}

static struct rf_op_entry any_entry(struct rf_prng *prng, uint32_t kind_max)
{
    return (struct rf_op_entry){
        .op = rf_prng_next(prng),
        .hash = any_u64(prng),
        .executed_at = any_u64(prng),
        .kind = (uint8_t)rf_prng_below(prng, kind_max + 1),
        .result = (uint8_t)rf_prng_below(prng, RF_RESULT_SUPERSEDED + 1),
    };
}

void records_make_shard(struct rf_prng *prng, enum records_size size, struct records_shard *out)
{
    fill(prng, out->tenant.bytes, sizeof(out->tenant.bytes));
    uint64_t shard = any_u64(prng);
    out->state = any_state(prng, size, shard);
    memset(&out->ring, 0, sizeof(out->ring));
    for (uint32_t i = 0; i < out->state.ring_count; i++) {
        struct rf_op_entry e = any_entry(prng, RF_OP_RELEASE);
        out->ring.op[i] = e.op;
        out->ring.hash[i] = e.hash;
        out->ring.executed_at[i] = e.executed_at;
        out->ring.kind[i] = e.kind;
        out->ring.result[i] = e.result;
    }
    for (uint32_t i = 0; i < out->state.spawned_count; i++) {
        out->spawned[i] = rf_prng_next(prng) | RF_DERIVED_BIT;
    }
    out->view = (struct rf_shard){
        .tenant = &out->tenant,
        .run = any_u64(prng),
        .shard = shard,
        .state = &out->state,
        .ring = &out->ring,
        .spawned = out->spawned,
        .spec = any_spec(prng, size, &out->bytes),
    };
    if (!one_in(prng, 4)) {
        out->view.cursor = any_cursor(prng, size, &out->view.spec, &out->bytes);
    }
    assert(rf_shard_violation(&out->view) == NULL);
}

void records_make_run(struct rf_prng *prng, struct rf_run *out)
{
    memset(out, 0, sizeof(*out));
    fill(prng, out->tenant.bytes, sizeof(out->tenant.bytes));
    out->run = any_u64(prng);
    out->config.lease_duration = any_u64(prng) | 1;
    out->config.semantics = (rf_semantics)rf_prng_below(prng, RF_DISPATCHED + 1);
    out->config.has_max_retries = one_in(prng, 2);
    out->config.max_retries = out->config.has_max_retries ? (uint32_t)any_u64(prng) : 0;
    out->status = (rf_run_status)rf_prng_below(prng, RF_RUN_CANCELLED + 1);
    out->created_at = any_u64(prng);
    if (rf_run_is_terminal(out->status)) {
        out->completed_at = rf_add_saturating(out->created_at, any_u64(prng));
        out->completed_at += out->completed_at == 0;
    }
    out->root_count = out->status == RF_RUN_INITIALIZING ? 0 : any_u64(prng) | 1;
    out->ring_count = one_in(prng, 2) ? RF_RUN_RING : rf_prng_below(prng, RF_RUN_RING);
    out->ring_next =
        out->ring_count == RF_RUN_RING ? rf_prng_below(prng, RF_RUN_RING) : out->ring_count;
    for (uint32_t i = 0; i < out->ring_count; i++) {
        struct rf_op_entry e = any_entry(prng, RF_RUN_OP_ADD_SHARDS);
        out->ring.op[i] = e.op;
        out->ring.hash[i] = e.hash;
        out->ring.executed_at[i] = e.executed_at;
        out->ring.kind[i] = e.kind;
        out->ring.result[i] = e.result;
    }
    assert(rf_run_violation(out) == NULL);
}

void records_make_step(struct rf_prng *prng, enum records_size size, struct records_step *out)
{
    struct rf_shard_step *step = &out->step;
    memset(step, 0, sizeof(*step));
    out->shard = any_u64(prng);
    out->version = any_u64(prng);
    out->time = any_u64(prng);
    step->event = (rf_event_kind)rf_prng_below(prng, RF_EVENT_OWNER_LOST + 1);
    step->next = any_state(prng, size, out->shard);
    rf_spec spec = any_spec(prng, size, &out->bytes);
    if (one_in(prng, 2)) {
        step->changes |= RF_CHANGED_CURSOR;
        step->cursor = any_cursor(prng, size, &spec, &out->bytes);
    }
    if (one_in(prng, 2)) {
        step->changes |= RF_CHANGED_SPEC;
        step->spec = spec;
    }
    if (step->next.ring_count != 0 && one_in(prng, 2)) {
        step->changes |= RF_CHANGED_RING;
        step->ring_slot = rf_ring_newest(step->next.ring_next, RF_SHARD_RING);
        step->entry = any_entry(prng, RF_OP_RELEASE);
    }
    if (step->next.spawned_count != 0 && one_in(prng, 2)) {
        uint32_t most = step->next.spawned_count < RF_SPLIT_CHILDREN_MAX ? step->next.spawned_count
                                                                         : RF_SPLIT_CHILDREN_MAX;
        step->changes |= RF_CHANGED_SPAWNED;
        step->spawned_new = one_in(prng, 2) ? most : 1 + rf_prng_below(prng, most);
        step->spawned_ids = out->spawned;
        for (uint32_t i = 0; i < step->spawned_new; i++) {
            out->spawned[i] = rf_prng_next(prng) | RF_DERIVED_BIT;
        }
    }
    assert(rf_shard_state_violation(&step->next, out->shard) == NULL);
}

void records_make_made(struct rf_prng *prng, enum records_size size, struct records_made *out)
{
    out->made = (struct rf_made_record){
        .shard = any_u64(prng),
        .spec = any_spec(prng, size, &out->bytes),
    };
    if (!one_in(prng, 4)) {
        out->made.cursor = any_cursor(prng, size, &out->made.spec, &out->bytes);
    }
}

/* --- the largest --- */

static rf_spec largest_spec(struct records_bytes *b)
{
    memset(b->start, 'a', sizeof(b->start));
    memset(b->end, 'c', sizeof(b->end));
    memset(b->metadata, 'm', sizeof(b->metadata));
    return (rf_spec){
        .start = rf_bytes_of(b->start, sizeof(b->start)),
        .end = rf_bytes_of(b->end, sizeof(b->end)),
        .metadata = rf_bytes_of(b->metadata, sizeof(b->metadata)),
    };
}

static rf_cursor largest_cursor(struct records_bytes *b)
{
    memset(b->key, 'b', sizeof(b->key));
    memset(b->token, 't', sizeof(b->token));
    return (rf_cursor){
        .key = rf_bytes_of(b->key, sizeof(b->key)),
        .token = rf_bytes_of(b->token, sizeof(b->token)),
    };
}

static struct rf_shard_state largest_state(void)
{
    return (struct rf_shard_state){
        .fence = UINT64_MAX,
        .owner = UINT64_MAX,
        .deadline = UINT64_MAX,
        .parent = UINT64_MAX,
        .attempts = UINT32_MAX,
        .spawned_count = RF_SPAWNED_MAX,
        .status = RF_SHARD_ACTIVE,
        .park_reason = RF_NO_REASON,
        .semantics = RF_DISPATCHED,
        .flags = RF_SHARD_LEASED | RF_SHARD_HAS_PARENT,
        .ring_count = RF_SHARD_RING,
        .ring_next = RF_SHARD_RING - 1,
    };
}

static struct rf_op_entry largest_entry(uint32_t i, uint8_t kind)
{
    return (struct rf_op_entry){
        .op = UINT64_MAX - i,
        .hash = UINT64_MAX,
        .executed_at = UINT64_MAX,
        .kind = kind,
        .result = RF_RESULT_SUPERSEDED,
    };
}

void records_make_largest_shard(struct records_shard *out)
{
    memset(out->tenant.bytes, 0xFF, sizeof(out->tenant.bytes));
    out->state = largest_state();
    for (uint32_t i = 0; i < RF_SHARD_RING; i++) {
        struct rf_op_entry e = largest_entry(i, RF_OP_RELEASE);
        out->ring.op[i] = e.op;
        out->ring.hash[i] = e.hash;
        out->ring.executed_at[i] = e.executed_at;
        out->ring.kind[i] = e.kind;
        out->ring.result[i] = e.result;
    }
    for (uint32_t i = 0; i < RF_SPAWNED_MAX; i++) {
        out->spawned[i] = UINT64_MAX - i;
    }
    out->view = (struct rf_shard){
        .tenant = &out->tenant,
        .run = UINT64_MAX,
        .shard = UINT64_MAX,
        .state = &out->state,
        .ring = &out->ring,
        .spawned = out->spawned,
        .spec = largest_spec(&out->bytes),
        .cursor = largest_cursor(&out->bytes),
    };
    assert(rf_shard_violation(&out->view) == NULL);
}

void records_make_largest_run(struct rf_run *out)
{
    memset(out, 0, sizeof(*out));
    memset(out->tenant.bytes, 0xFF, sizeof(out->tenant.bytes));
    out->run = UINT64_MAX;
    out->config = (rf_run_config){
        .lease_duration = UINT64_MAX,
        .semantics = RF_DISPATCHED,
        .has_max_retries = true,
        .max_retries = UINT32_MAX,
    };
    out->status = RF_RUN_CANCELLED;
    out->created_at = UINT64_MAX;
    out->completed_at = UINT64_MAX;
    out->root_count = UINT64_MAX;
    out->ring_count = RF_RUN_RING;
    for (uint32_t i = 0; i < RF_RUN_RING; i++) {
        struct rf_op_entry e = largest_entry(i, RF_RUN_OP_ADD_SHARDS);
        out->ring.op[i] = e.op;
        out->ring.hash[i] = e.hash;
        out->ring.executed_at[i] = e.executed_at;
        out->ring.kind[i] = e.kind;
        out->ring.result[i] = e.result;
    }
    assert(rf_run_violation(out) == NULL);
}

void records_make_largest_step(struct records_step *out)
{
    memset(&out->step, 0, sizeof(out->step));
    out->shard = UINT64_MAX;
    out->version = UINT64_MAX;
    out->time = UINT64_MAX;
    out->step.event = RF_EVENT_OWNER_LOST;
    out->step.changes = RF_CHANGED_CURSOR | RF_CHANGED_SPEC | RF_CHANGED_RING | RF_CHANGED_SPAWNED;
    out->step.next = largest_state();
    out->step.cursor = largest_cursor(&out->bytes);
    out->step.spec = largest_spec(&out->bytes);
    out->step.entry = largest_entry(0, RF_OP_RELEASE);
    out->step.ring_slot = rf_ring_newest(out->step.next.ring_next, RF_SHARD_RING);
    out->step.spawned_new = RF_SPLIT_CHILDREN_MAX;
    out->step.spawned_ids = out->spawned;
    for (uint32_t i = 0; i < RF_SPLIT_CHILDREN_MAX; i++) {
        out->spawned[i] = UINT64_MAX - i;
    }
}

void records_make_largest_made(struct records_made *out)
{
    out->made = (struct rf_made_record){
        .shard = UINT64_MAX,
        .spec = largest_spec(&out->bytes),
        .cursor = largest_cursor(&out->bytes),
    };
}

size_t records_encode_any(struct rf_prng *prng, enum records_size size, uint8_t *out)
{
    static struct {
        struct records_shard shard;
        struct rf_run run;
        struct records_step step;
        struct records_made made;
    } m;
    size_t len = 0;
    rf_status status = RF_OK;
    switch (rf_prng_below(prng, 4)) {
    case 0:
        records_make_shard(prng, size, &m.shard);
        status = rf_codec_put_shard(&m.shard.view, out, RF_CODEC_SHARD_MAX, &len);
        break;
    case 1:
        records_make_run(prng, &m.run);
        status = rf_codec_put_run(&m.run, out, RF_CODEC_RUN_MAX, &len);
        break;
    case 2:
        records_make_step(prng, size, &m.step);
        status = rf_codec_put_step(m.step.shard, m.step.version, m.step.time, &m.step.step, out,
                                   RF_CODEC_STEP_MAX, &len);
        break;
    default:
        records_make_made(prng, size, &m.made);
        status = rf_codec_put_made(&m.made.made, out, RF_CODEC_MADE_MAX, &len);
        break;
    }
    assert(status == RF_OK && len != 0);
    return len;
}

rf_status records_recode(enum rf_codec_type type, rf_bytes in, uint8_t *out, size_t cap,
                         size_t *len, size_t *used)
{
    static struct rf_shard_decoded shard;
    static struct rf_run run;
    static struct rf_step_record step;
    static struct rf_made_record made;
    rf_status status = RF_CORRUPT;
    switch (type) {
    case RF_CODEC_SHARD:
        status = rf_codec_get_shard(in, &shard, used);
        if (status == RF_OK) {
            assert(rf_shard_violation(&shard.view) == NULL);
            status = rf_codec_put_shard(&shard.view, out, cap, len);
        }
        break;
    case RF_CODEC_RUN:
        status = rf_codec_get_run(in, &run, used);
        if (status == RF_OK) {
            assert(rf_run_violation(&run) == NULL);
            status = rf_codec_put_run(&run, out, cap, len);
        }
        break;
    case RF_CODEC_STEP:
        status = rf_codec_get_step(in, &step, used);
        if (status == RF_OK) {
            assert(rf_shard_state_violation(&step.step.next, step.shard) == NULL);
            status =
                rf_codec_put_step(step.shard, step.version, step.time, &step.step, out, cap, len);
        }
        break;
    case RF_CODEC_MADE:
        status = rf_codec_get_made(in, &made, used);
        if (status == RF_OK) {
            status = rf_codec_put_made(&made, out, cap, len);
        }
        break;
    }
    return status;
}
