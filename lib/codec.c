#include "codec.h"

#include "range.h"

/* --- writing --- */

struct writer {
    uint8_t *at;
    size_t room;
    bool full; /* sticky; after it nothing is written */
};

static uint8_t *grow(struct writer *w, size_t n)
{
    if (w->full || w->room < n) {
        w->full = true;
        return NULL;
    }
    uint8_t *at = w->at;
    w->at += n;
    w->room -= n;
    return at;
}

static void put_raw(struct writer *w, const void *data, size_t n)
{
    uint8_t *at = grow(w, n);
    if (at != NULL && n != 0) {
        memcpy(at, data, n);
    }
}

static void put_u8(struct writer *w, uint8_t v)
{
    put_raw(w, &v, 1);
}

static void put_u32(struct writer *w, uint32_t v)
{
    uint8_t *at = grow(w, 4);
    if (at != NULL) {
        rf_store_le32(at, v);
    }
}

static void put_u64(struct writer *w, uint64_t v)
{
    uint8_t *at = grow(w, 8);
    if (at != NULL) {
        rf_store_le64(at, v);
    }
}

static void put_bytes(struct writer *w, rf_bytes b, size_t max)
{
    assert(b.len <= max); /* or it could never be read back */
    put_u32(w, (uint32_t)b.len);
    put_raw(w, b.data, b.len);
}

static void put_spec(struct writer *w, const rf_spec *s)
{
    put_bytes(w, s->start, RF_KEY_MAX);
    put_bytes(w, s->end, RF_KEY_MAX);
    put_bytes(w, s->metadata, RF_METADATA_MAX);
}

static void put_cursor(struct writer *w, const rf_cursor *c)
{
    put_u8(w, c->key.data != NULL);
    if (c->key.data != NULL) {
        put_bytes(w, c->key, RF_KEY_MAX);
    }
    put_u8(w, c->token.len != 0);
    if (c->token.len != 0) {
        put_bytes(w, c->token, RF_TOKEN_MAX);
    }
}

static void put_entry(struct writer *w, uint64_t op, uint8_t kind, uint8_t result, uint64_t hash,
                      uint64_t at)
{
    put_u64(w, op);
    put_u8(w, kind);
    put_u8(w, result);
    put_u64(w, hash);
    put_u64(w, at);
}

static void put_state(struct writer *w, const struct rf_shard_state *s)
{
    put_u8(w, s->status);
    put_u8(w, s->park_reason);
    put_u8(w, s->semantics);
    put_u8(w, s->flags);
    put_u64(w, s->fence);
    put_u32(w, s->attempts);
    if ((s->flags & RF_SHARD_LEASED) != 0) {
        put_u64(w, s->owner);
        put_u64(w, s->deadline);
    }
    if ((s->flags & RF_SHARD_HAS_PARENT) != 0) {
        put_u64(w, s->parent);
    }
}

/* Where the i-th oldest entry of a shard's ring is. */
static uint32_t ring_slot(const struct rf_shard_state *s, uint32_t i)
{
    return (s->ring_next + RF_SHARD_RING - s->ring_count + i) % RF_SHARD_RING;
}

static struct writer begin_record(uint8_t *out, size_t cap, enum rf_codec_type type)
{
    struct writer w = {.at = out, .room = cap, .full = false};
    uint8_t *at = grow(&w, RF_CODEC_HEADER);
    if (at != NULL) {
        memset(at, 0, RF_CODEC_HEADER);
        at[0] = (uint8_t)type;
        at[1] = RF_CODEC_VERSION;
    }
    return w;
}

static rf_status end_record(struct writer *w, uint8_t *out, size_t *len)
{
    if (w->full) {
        return RF_BUFFER_TOO_SMALL;
    }
    *len = (size_t)(w->at - out);
    rf_store_le32(out + 4, (uint32_t)(*len - RF_CODEC_HEADER));
    return RF_OK;
}

rf_status rf_codec_put_shard(const struct rf_shard *shard, uint8_t *out, size_t cap, size_t *len)
{
    const struct rf_shard_state *s = shard->state;
    struct writer w = begin_record(out, cap, RF_CODEC_SHARD);
    put_raw(&w, shard->tenant->bytes, sizeof(shard->tenant->bytes));
    put_u64(&w, shard->run);
    put_u64(&w, shard->shard);
    put_state(&w, s);
    put_spec(&w, &shard->spec);
    put_cursor(&w, &shard->cursor);
    put_u32(&w, s->spawned_count);
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        put_u64(&w, shard->spawned[i]);
    }
    put_u8(&w, s->ring_count);
    put_u8(&w, s->ring_next);
    for (uint32_t i = 0; i < s->ring_count; i++) {
        uint32_t at = ring_slot(s, i);
        put_entry(&w, shard->ring->op[at], shard->ring->kind[at], shard->ring->result[at],
                  shard->ring->hash[at], shard->ring->executed_at[at]);
    }
    return end_record(&w, out, len);
}

rf_status rf_codec_put_run(const struct rf_run *run, uint8_t *out, size_t cap, size_t *len)
{
    struct writer w = begin_record(out, cap, RF_CODEC_RUN);
    put_raw(&w, run->tenant.bytes, sizeof(run->tenant.bytes));
    put_u64(&w, run->run);
    put_u8(&w, (uint8_t)run->status);
    put_u8(&w, (uint8_t)run->config.semantics);
    put_u8(&w, run->config.has_max_retries);
    put_u32(&w, run->config.has_max_retries ? run->config.max_retries : 0);
    put_u64(&w, run->config.lease_duration);
    put_u64(&w, run->created_at);
    put_u64(&w, run->completed_at);
    put_u64(&w, run->root_count);
    put_u8(&w, (uint8_t)run->ring_count);
    for (uint32_t i = 0; i < run->ring_count; i++) {
        uint32_t at = (run->ring_next + RF_RUN_RING - run->ring_count + i) % RF_RUN_RING;
        put_entry(&w, run->ring.op[at], run->ring.kind[at], run->ring.result[at],
                  run->ring.hash[at], run->ring.executed_at[at]);
    }
    return end_record(&w, out, len);
}

rf_status rf_codec_put_step(uint64_t shard, uint64_t version, uint64_t time,
                            const struct rf_shard_step *step, uint8_t *out, size_t cap, size_t *len)
{
    struct writer w = begin_record(out, cap, RF_CODEC_STEP);
    assert(step->outcome == RF_EXECUTED); /* a replay did nothing that could be recorded */
    put_u64(&w, shard);
    put_u64(&w, version);
    put_u64(&w, time);
    put_u8(&w, (uint8_t)step->event);
    put_u8(&w, (uint8_t)step->changes);
    put_state(&w, &step->next);
    put_u8(&w, step->next.ring_count);
    put_u8(&w, step->next.ring_next);
    put_u32(&w, step->next.spawned_count);
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        put_cursor(&w, &step->cursor);
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0) {
        put_spec(&w, &step->spec);
    }
    if ((step->changes & RF_CHANGED_RING) != 0) {
        assert(step->ring_slot == rf_ring_newest(step->next.ring_next, RF_SHARD_RING));
        put_entry(&w, step->entry.op, step->entry.kind, step->entry.result, step->entry.hash,
                  step->entry.executed_at);
    }
    if ((step->changes & RF_CHANGED_SPAWNED) != 0) {
        put_u32(&w, step->spawned_new);
        for (uint32_t i = 0; i < step->spawned_new; i++) {
            put_u64(&w, step->spawned_ids[i]);
        }
    }
    return end_record(&w, out, len);
}

rf_status rf_codec_put_made(const struct rf_made_record *made, uint8_t *out, size_t cap,
                            size_t *len)
{
    struct writer w = begin_record(out, cap, RF_CODEC_MADE);
    put_u64(&w, made->shard);
    put_spec(&w, &made->spec);
    put_cursor(&w, &made->cursor);
    return end_record(&w, out, len);
}

/* --- reading --- */

struct reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad; /* sticky; after it every value reads as 0 */
};

static const uint8_t *take(struct reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += n;
    return at;
}

static uint8_t get_u8(struct reader *r)
{
    const uint8_t *at = take(r, 1);
    return at == NULL ? 0 : *at;
}

static uint32_t get_u32(struct reader *r)
{
    const uint8_t *at = take(r, 4);
    return at == NULL ? 0 : rf_load_le32(at);
}

static uint64_t get_u64(struct reader *r)
{
    const uint8_t *at = take(r, 8);
    return at == NULL ? 0 : rf_load_le64(at);
}

/* A discriminant or flag of at most `max`. */
static uint8_t get_enum(struct reader *r, uint8_t max)
{
    uint8_t v = get_u8(r);
    r->bad = r->bad || v > max;
    return v;
}

static rf_bytes get_bytes(struct reader *r, size_t max)
{
    uint32_t len = get_u32(r);
    if (len > max) {
        r->bad = true;
    }
    const uint8_t *at = take(r, len);
    return at == NULL ? rf_bytes_none() : rf_bytes_of(at, len);
}

static rf_spec get_spec(struct reader *r)
{
    rf_spec s;
    s.start = get_bytes(r, RF_KEY_MAX);
    s.end = get_bytes(r, RF_KEY_MAX);
    s.metadata = get_bytes(r, RF_METADATA_MAX);
    return s;
}

static rf_cursor get_cursor(struct reader *r)
{
    rf_cursor c = {0};
    if (get_enum(r, 1) == 1) {
        c.key = get_bytes(r, RF_KEY_MAX);
    }
    if (get_enum(r, 1) == 1) {
        c.token = get_bytes(r, RF_TOKEN_MAX);
        r->bad = r->bad || c.token.len == 0 || c.key.data == NULL;
    }
    return c;
}

static void get_entry(struct reader *r, uint8_t max_kind, uint64_t *op, uint8_t *kind,
                      uint8_t *result, uint64_t *hash, uint64_t *at)
{
    *op = get_u64(r);
    *kind = get_enum(r, max_kind);
    *result = get_enum(r, RF_RESULT_SUPERSEDED);
    *hash = get_u64(r);
    *at = get_u64(r);
}

static struct rf_shard_state get_state(struct reader *r)
{
    struct rf_shard_state s = {0};
    s.status = get_enum(r, RF_SHARD_PARKED);
    s.park_reason = get_u8(r);
    s.semantics = get_enum(r, RF_DISPATCHED);
    s.flags = get_enum(r, RF_SHARD_LEASED | RF_SHARD_HAS_PARENT);
    s.fence = get_u64(r);
    s.attempts = get_u32(r);
    if ((s.flags & RF_SHARD_LEASED) != 0) {
        s.owner = get_u64(r);
        s.deadline = get_u64(r);
    }
    if ((s.flags & RF_SHARD_HAS_PARENT) != 0) {
        s.parent = get_u64(r);
    }
    return s;
}

rf_status rf_codec_peek(rf_bytes in, enum rf_codec_type *type, size_t *size)
{
    if (in.data == NULL || in.len < RF_CODEC_HEADER) {
        return RF_CORRUPT;
    }
    const uint8_t *header = in.data;
    uint32_t body = rf_load_le32(header + 4);
    /* A later version may have types of its own, and a use for the zeros: it is judged first. */
    if (header[1] > RF_CODEC_VERSION) {
        return RF_VERSION_MISMATCH;
    }
    if (header[1] == 0 || header[0] < RF_CODEC_SHARD || header[0] > RF_CODEC_MADE ||
        header[2] != 0 || header[3] != 0 || body > in.len - RF_CODEC_HEADER) {
        return RF_CORRUPT;
    }
    *type = (enum rf_codec_type)header[0];
    *size = (size_t)RF_CODEC_HEADER + body;
    return RF_OK;
}

/* The body of the record at the front, if it is of this type. */
static rf_status open_record(rf_bytes in, enum rf_codec_type wanted, struct reader *r, size_t *used)
{
    enum rf_codec_type type;
    rf_status status = rf_codec_peek(in, &type, used);
    if (status != RF_OK) {
        return status;
    }
    if (type != wanted) {
        return RF_CORRUPT;
    }
    const uint8_t *start = in.data;
    *r = (struct reader){.at = start + RF_CODEC_HEADER, .end = start + *used, .bad = false};
    return RF_OK;
}

static rf_status close_record(const struct reader *r)
{
    return r->bad || r->at != r->end ? RF_CORRUPT : RF_OK;
}

rf_status rf_codec_get_shard(rf_bytes in, struct rf_shard_decoded *out, size_t *used)
{
    struct reader r;
    rf_status status = open_record(in, RF_CODEC_SHARD, &r, used);
    if (status != RF_OK) {
        return status;
    }
    memset(&out->ring, 0, sizeof(out->ring));
    const uint8_t *tenant = take(&r, sizeof(out->tenant.bytes));
    if (tenant == NULL) {
        return RF_CORRUPT;
    }
    memcpy(out->tenant.bytes, tenant, sizeof(out->tenant.bytes));
    out->view.tenant = &out->tenant;
    out->view.run = get_u64(&r);
    out->view.shard = get_u64(&r);
    out->state = get_state(&r);
    out->view.spec = get_spec(&r);
    out->view.cursor = get_cursor(&r);
    uint32_t spawned = get_u32(&r);
    if (spawned > RF_SPAWNED_MAX) {
        return RF_CORRUPT;
    }
    out->state.spawned_count = spawned;
    for (uint32_t i = 0; i < spawned; i++) {
        out->spawned[i] = get_u64(&r);
    }
    out->state.ring_count = get_enum(&r, RF_SHARD_RING);
    out->state.ring_next = get_enum(&r, RF_SHARD_RING - 1);
    if (r.bad) {
        return RF_CORRUPT;
    }
    for (uint32_t i = 0; i < out->state.ring_count; i++) {
        uint32_t at = ring_slot(&out->state, i);
        get_entry(&r, RF_OP_RELEASE, &out->ring.op[at], &out->ring.kind[at], &out->ring.result[at],
                  &out->ring.hash[at], &out->ring.executed_at[at]);
    }
    out->view.state = &out->state;
    out->view.ring = &out->ring;
    out->view.spawned = out->spawned;
    status = close_record(&r);
    if (status == RF_OK && rf_shard_violation(&out->view) != NULL) {
        status = RF_CORRUPT;
    }
    return status;
}

rf_status rf_codec_get_run(rf_bytes in, struct rf_run *out, size_t *used)
{
    struct reader r;
    rf_status status = open_record(in, RF_CODEC_RUN, &r, used);
    if (status != RF_OK) {
        return status;
    }
    memset(out, 0, sizeof(*out));
    const uint8_t *tenant = take(&r, sizeof(out->tenant.bytes));
    if (tenant == NULL) {
        return RF_CORRUPT;
    }
    memcpy(out->tenant.bytes, tenant, sizeof(out->tenant.bytes));
    out->run = get_u64(&r);
    out->status = (rf_run_status)get_enum(&r, RF_RUN_CANCELLED);
    out->config.semantics = (rf_semantics)get_enum(&r, RF_DISPATCHED);
    out->config.has_max_retries = get_enum(&r, 1) == 1;
    out->config.max_retries = get_u32(&r);
    r.bad = r.bad || (!out->config.has_max_retries && out->config.max_retries != 0);
    out->config.lease_duration = get_u64(&r);
    out->created_at = get_u64(&r);
    out->completed_at = get_u64(&r);
    out->root_count = get_u64(&r);
    uint8_t ring = get_enum(&r, RF_RUN_RING);
    if (r.bad) {
        return RF_CORRUPT;
    }
    for (uint32_t i = 0; i < ring; i++) {
        get_entry(&r, RF_RUN_OP_ADD_SHARDS, &out->ring.op[i], &out->ring.kind[i],
                  &out->ring.result[i], &out->ring.hash[i], &out->ring.executed_at[i]);
    }
    out->ring_count = ring;
    out->ring_next = ring % RF_RUN_RING;
    status = close_record(&r);
    if (status == RF_OK && rf_run_violation(out) != NULL) {
        status = RF_CORRUPT;
    }
    return status;
}

/* What a step says must fit together, or a record to which it is applied would break. */
static bool step_fits(const struct rf_shard_step *step)
{
    if ((step->changes & RF_CHANGED_CURSOR) != 0 && step->cursor.key.data == NULL) {
        return false; /* no operation takes a cursor's key away */
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0 && !rf_range_upright(&step->spec)) {
        return false;
    }
    if ((step->changes & RF_CHANGED_RING) != 0 && step->next.ring_count == 0) {
        return false;
    }
    return step->spawned_new <= step->next.spawned_count;
}

rf_status rf_codec_get_step(rf_bytes in, struct rf_step_record *out, size_t *used)
{
    struct reader r;
    rf_status status = open_record(in, RF_CODEC_STEP, &r, used);
    if (status != RF_OK) {
        return status;
    }
    struct rf_shard_step *step = &out->step;
    memset(step, 0, sizeof(*step));
    out->shard = get_u64(&r);
    out->version = get_u64(&r);
    out->time = get_u64(&r);
    step->event = (rf_event_kind)get_enum(&r, RF_EVENT_OWNER_LOST);
    step->changes =
        get_enum(&r, RF_CHANGED_CURSOR | RF_CHANGED_SPEC | RF_CHANGED_RING | RF_CHANGED_SPAWNED);
    step->next = get_state(&r);
    step->next.ring_count = get_enum(&r, RF_SHARD_RING);
    step->next.ring_next = get_enum(&r, RF_SHARD_RING - 1);
    step->next.spawned_count = get_u32(&r);
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        step->cursor = get_cursor(&r);
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0) {
        step->spec = get_spec(&r);
    }
    if ((step->changes & RF_CHANGED_RING) != 0) {
        step->ring_slot = rf_ring_newest(step->next.ring_next, RF_SHARD_RING);
        get_entry(&r, RF_OP_RELEASE, &step->entry.op, &step->entry.kind, &step->entry.result,
                  &step->entry.hash, &step->entry.executed_at);
    }
    if ((step->changes & RF_CHANGED_SPAWNED) != 0) {
        uint32_t n = get_u32(&r);
        if (n == 0 || n > RF_SPLIT_CHILDREN_MAX) {
            return RF_CORRUPT;
        }
        for (uint32_t i = 0; i < n; i++) {
            out->spawned[i] = get_u64(&r);
            r.bad = r.bad || (out->spawned[i] & RF_DERIVED_BIT) == 0;
        }
        step->spawned_new = n;
        step->spawned_ids = out->spawned;
    }
    status = close_record(&r);
    if (status == RF_OK &&
        (!step_fits(step) || rf_shard_state_violation(&step->next, out->shard) != NULL)) {
        status = RF_CORRUPT;
    }
    return status;
}

rf_status rf_codec_get_made(rf_bytes in, struct rf_made_record *out, size_t *used)
{
    struct reader r;
    rf_status status = open_record(in, RF_CODEC_MADE, &r, used);
    if (status != RF_OK) {
        return status;
    }
    out->shard = get_u64(&r);
    out->spec = get_spec(&r);
    out->cursor = get_cursor(&r);
    status = close_record(&r);
    if (status == RF_OK &&
        (!rf_range_upright(&out->spec) ||
         (out->cursor.key.data != NULL && !rf_range_holds(&out->spec, out->cursor.key)))) {
        status = RF_CORRUPT;
    }
    return status;
}
