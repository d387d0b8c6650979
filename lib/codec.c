#include "codec.h"

#include "range.h"

/* --- writing --- */

/*
 * A record's size is worked out first and checked against the room once; the puts after that are
 * bare stores that return where the next one goes. Encoding a step is part of every operation.
 */

static inline uint8_t *put_raw(uint8_t *at, const void *data, size_t n)
{
    if (n != 0) {
        memcpy(at, data, n);
    }
    return at + n;
}

static inline uint8_t *put_u8(uint8_t *at, uint8_t v)
{
    *at = v;
    return at + 1;
}

static inline uint8_t *put_u32(uint8_t *at, uint32_t v)
{
    rf_store_le32(at, v);
    return at + 4;
}

static inline uint8_t *put_u64(uint8_t *at, uint64_t v)
{
    rf_store_le64(at, v);
    return at + 8;
}

static inline size_t bytes_size(rf_bytes b, size_t max)
{
    assert(b.len <= max); /* or it could never be read back */
    return 4 + b.len;
}

static inline uint8_t *put_bytes(uint8_t *at, rf_bytes b)
{
    at = put_u32(at, (uint32_t)b.len);
    return put_raw(at, b.data, b.len);
}

static inline size_t spec_size(const rf_spec *s)
{
    return bytes_size(s->start, RF_KEY_MAX) + bytes_size(s->end, RF_KEY_MAX) +
           bytes_size(s->metadata, RF_METADATA_MAX);
}

static inline uint8_t *put_spec(uint8_t *at, const rf_spec *s)
{
    at = put_bytes(at, s->start);
    at = put_bytes(at, s->end);
    return put_bytes(at, s->metadata);
}

static inline size_t cursor_size(const rf_cursor *c)
{
    return 2 + (c->key.data != NULL ? bytes_size(c->key, RF_KEY_MAX) : 0) +
           (c->token.len != 0 ? bytes_size(c->token, RF_TOKEN_MAX) : 0);
}

static inline uint8_t *put_cursor(uint8_t *at, const rf_cursor *c)
{
    at = put_u8(at, c->key.data != NULL);
    if (c->key.data != NULL) {
        at = put_bytes(at, c->key);
    }
    at = put_u8(at, c->token.len != 0);
    return c->token.len != 0 ? put_bytes(at, c->token) : at;
}

#define ENTRY_SIZE 26u

static inline uint8_t *put_entry(uint8_t *at, uint64_t op, uint8_t kind, uint8_t result,
                                 uint64_t hash, uint64_t executed_at)
{
    at = put_u64(at, op);
    at = put_u8(at, kind);
    at = put_u8(at, result);
    at = put_u64(at, hash);
    return put_u64(at, executed_at);
}

static inline size_t state_size(const struct rf_shard_state *s)
{
    return 16u + ((s->flags & RF_SHARD_LEASED) != 0 ? 16u : 0u) +
           ((s->flags & RF_SHARD_HAS_PARENT) != 0 ? 8u : 0u);
}

static inline uint8_t *put_state(uint8_t *at, const struct rf_shard_state *s)
{
    at = put_u32(at, (uint32_t)s->status | (uint32_t)s->park_reason << 8 |
                         (uint32_t)s->semantics << 16 | (uint32_t)s->flags << 24);
    at = put_u64(at, s->fence);
    at = put_u32(at, s->attempts);
    if ((s->flags & RF_SHARD_LEASED) != 0) {
        at = put_u64(at, s->owner);
        at = put_u64(at, s->deadline);
    }
    return (s->flags & RF_SHARD_HAS_PARENT) != 0 ? put_u64(at, s->parent) : at;
}

/* Where the i-th oldest entry of a shard's ring is. */
static uint32_t ring_slot(const struct rf_shard_state *s, uint32_t i)
{
    return (s->ring_next + RF_SHARD_RING - s->ring_count + i) % RF_SHARD_RING;
}

/* The header of a record with a body of this size, or NULL if there is no room for it. */
static inline uint8_t *put_header(uint8_t *out, size_t cap, enum rf_codec_type type, size_t body,
                                  size_t *len)
{
    if (cap < RF_CODEC_HEADER || cap - RF_CODEC_HEADER < body) {
        return NULL;
    }
    *len = RF_CODEC_HEADER + body;
    out = put_u32(out, (uint32_t)type | RF_CODEC_VERSION << 8);
    return put_u32(out, (uint32_t)body);
}

rf_status rf_codec_put_shard(const struct rf_shard *shard, uint8_t *out, size_t cap, size_t *len)
{
    const struct rf_shard_state *s = shard->state;
    size_t size = sizeof(shard->tenant->bytes) + 16 + state_size(s) + spec_size(&shard->spec) +
                  cursor_size(&shard->cursor) + 4 + 8u * s->spawned_count + 2 +
                  ENTRY_SIZE * s->ring_count;
    uint8_t *at = put_header(out, cap, RF_CODEC_SHARD, size, len);
    if (at == NULL) {
        return RF_BUFFER_TOO_SMALL;
    }
    at = put_raw(at, shard->tenant->bytes, sizeof(shard->tenant->bytes));
    at = put_u64(at, shard->run);
    at = put_u64(at, shard->shard);
    at = put_state(at, s);
    at = put_spec(at, &shard->spec);
    at = put_cursor(at, &shard->cursor);
    at = put_u32(at, s->spawned_count);
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        at = put_u64(at, shard->spawned[i]);
    }
    at = put_u8(at, s->ring_count);
    at = put_u8(at, s->ring_next);
    for (uint32_t i = 0; i < s->ring_count; i++) {
        uint32_t slot = ring_slot(s, i);
        at =
            put_entry(at, shard->ring->op[slot], shard->ring->kind[slot], shard->ring->result[slot],
                      shard->ring->hash[slot], shard->ring->executed_at[slot]);
    }
    assert(at == out + *len);
    return RF_OK;
}

rf_status rf_codec_put_run(const struct rf_run *run, uint8_t *out, size_t cap, size_t *len)
{
    size_t size = sizeof(run->tenant.bytes) + 8 + 3 + 4 + 4 * 8 + 1 + ENTRY_SIZE * run->ring_count;
    uint8_t *at = put_header(out, cap, RF_CODEC_RUN, size, len);
    if (at == NULL) {
        return RF_BUFFER_TOO_SMALL;
    }
    at = put_raw(at, run->tenant.bytes, sizeof(run->tenant.bytes));
    at = put_u64(at, run->run);
    at = put_u8(at, (uint8_t)run->status);
    at = put_u8(at, (uint8_t)run->config.semantics);
    at = put_u8(at, run->config.has_max_retries);
    at = put_u32(at, run->config.has_max_retries ? run->config.max_retries : 0);
    at = put_u64(at, run->config.lease_duration);
    at = put_u64(at, run->created_at);
    at = put_u64(at, run->completed_at);
    at = put_u64(at, run->root_count);
    at = put_u8(at, (uint8_t)run->ring_count);
    for (uint32_t i = 0; i < run->ring_count; i++) {
        uint32_t slot = (run->ring_next + RF_RUN_RING - run->ring_count + i) % RF_RUN_RING;
        at = put_entry(at, run->ring.op[slot], run->ring.kind[slot], run->ring.result[slot],
                       run->ring.hash[slot], run->ring.executed_at[slot]);
    }
    assert(at == out + *len);
    return RF_OK;
}

static inline size_t step_size(const struct rf_shard_step *step)
{
    size_t size = 3 * 8 + 2 + state_size(&step->next) + 6;
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        size += cursor_size(&step->cursor);
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0) {
        size += spec_size(&step->spec);
    }
    if ((step->changes & RF_CHANGED_RING) != 0) {
        size += ENTRY_SIZE;
    }
    if ((step->changes & RF_CHANGED_SPAWNED) != 0) {
        size += 4 + 8u * step->spawned_new;
    }
    return size;
}

rf_status rf_codec_put_step(uint64_t shard, uint64_t version, uint64_t time,
                            const struct rf_shard_step *step, uint8_t *out, size_t cap, size_t *len)
{
    assert(step->outcome == RF_EXECUTED); /* a replay did nothing that could be recorded */
    uint8_t *at = put_header(out, cap, RF_CODEC_STEP, step_size(step), len);
    if (at == NULL) {
        return RF_BUFFER_TOO_SMALL;
    }
    at = put_u64(at, shard);
    at = put_u64(at, version);
    at = put_u64(at, time);
    at = put_u8(at, (uint8_t)step->event);
    at = put_u8(at, (uint8_t)step->changes);
    at = put_state(at, &step->next);
    at = put_u8(at, step->next.ring_count);
    at = put_u8(at, step->next.ring_next);
    at = put_u32(at, step->next.spawned_count);
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        at = put_cursor(at, &step->cursor);
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0) {
        at = put_spec(at, &step->spec);
    }
    if ((step->changes & RF_CHANGED_RING) != 0) {
        assert(step->ring_slot == rf_ring_newest(step->next.ring_next, RF_SHARD_RING));
        at = put_entry(at, step->entry.op, step->entry.kind, step->entry.result, step->entry.hash,
                       step->entry.executed_at);
    }
    if ((step->changes & RF_CHANGED_SPAWNED) != 0) {
        at = put_u32(at, step->spawned_new);
        for (uint32_t i = 0; i < step->spawned_new; i++) {
            at = put_u64(at, step->spawned_ids[i]);
        }
    }
    assert(at == out + *len);
    return RF_OK;
}

rf_status rf_codec_put_made(const struct rf_made_record *made, uint8_t *out, size_t cap,
                            size_t *len)
{
    size_t size = 8 + spec_size(&made->spec) + cursor_size(&made->cursor);
    uint8_t *at = put_header(out, cap, RF_CODEC_MADE, size, len);
    if (at == NULL) {
        return RF_BUFFER_TOO_SMALL;
    }
    at = put_u64(at, made->shard);
    at = put_spec(at, &made->spec);
    at = put_cursor(at, &made->cursor);
    assert(at == out + *len);
    return RF_OK;
}

/* --- reading --- */

struct reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad; /* sticky; after it every value reads as 0 */
};

static inline const uint8_t *take(struct reader *r, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += n;
    return at;
}

static inline uint8_t get_u8(struct reader *r)
{
    const uint8_t *at = take(r, 1);
    return at == NULL ? 0 : *at;
}

static inline uint32_t get_u32(struct reader *r)
{
    const uint8_t *at = take(r, 4);
    return at == NULL ? 0 : rf_load_le32(at);
}

static inline uint64_t get_u64(struct reader *r)
{
    const uint8_t *at = take(r, 8);
    return at == NULL ? 0 : rf_load_le64(at);
}

/* A discriminant or flag of at most `max`. */
static inline uint8_t get_enum(struct reader *r, uint8_t max)
{
    uint8_t v = get_u8(r);
    r->bad = r->bad || v > max;
    return v;
}

static inline rf_bytes get_bytes(struct reader *r, size_t max)
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

static inline rf_cursor get_cursor(struct reader *r)
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

static inline void get_entry(struct reader *r, uint8_t max_kind, uint64_t *op, uint8_t *kind,
                             uint8_t *result, uint64_t *hash, uint64_t *executed_at)
{
    const uint8_t *at = take(r, ENTRY_SIZE);
    if (at == NULL) {
        return;
    }
    *op = rf_load_le64(at);
    *kind = at[8];
    *result = at[9];
    *hash = rf_load_le64(at + 10);
    *executed_at = rf_load_le64(at + 18);
    r->bad = *kind > max_kind || *result > RF_RESULT_SUPERSEDED;
}

static inline struct rf_shard_state get_state(struct reader *r)
{
    struct rf_shard_state s = {0};
    const uint8_t *at = take(r, 16); /* what every state has */
    if (at == NULL) {
        return s;
    }
    s.status = at[0];
    s.park_reason = at[1];
    s.semantics = at[2];
    s.flags = at[3];
    s.fence = rf_load_le64(at + 4);
    s.attempts = rf_load_le32(at + 12);
    r->bad = s.status > RF_SHARD_PARKED || s.semantics > RF_DISPATCHED ||
             s.flags > (RF_SHARD_LEASED | RF_SHARD_HAS_PARENT);
    if ((s.flags & RF_SHARD_LEASED) != 0 && (at = take(r, 16)) != NULL) {
        s.owner = rf_load_le64(at);
        s.deadline = rf_load_le64(at + 8);
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
    const uint8_t *fixed = take(&r, 26);
    if (fixed == NULL) {
        return RF_CORRUPT;
    }
    out->shard = rf_load_le64(fixed);
    out->version = rf_load_le64(fixed + 8);
    out->time = rf_load_le64(fixed + 16);
    step->event = (rf_event_kind)fixed[24];
    step->changes = fixed[25];
    step->next = get_state(&r);
    r.bad =
        r.bad || fixed[24] > RF_EVENT_OWNER_LOST ||
        fixed[25] > (RF_CHANGED_CURSOR | RF_CHANGED_SPEC | RF_CHANGED_RING | RF_CHANGED_SPAWNED);
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
