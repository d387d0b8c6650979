#include "model.h"

#include <stdlib.h>
#include <string.h>

/* --- memory --- */

static void *grown(void *old, uint32_t *room, uint32_t need, size_t size)
{
    if (need > *room) {
        *room = 2 * need + 8;
        old = realloc(old, *room * size);
        if (old == NULL) {
            abort();
        }
    }
    return old;
}

void model_set(struct model_bytes *to, rf_bytes from)
{
    if (from.data == NULL) {
        free(to->data);
        *to = (struct model_bytes){0};
        return;
    }
    uint8_t *data = malloc(from.len + 1);
    if (data == NULL) {
        abort();
    }
    memcpy(data, from.data, from.len);
    free(to->data);
    *to = (struct model_bytes){.present = true, .len = (uint32_t)from.len, .data = data};
}

rf_bytes model_view(const struct model_bytes *b)
{
    return b->present ? (rf_bytes){.data = b->data, .len = b->len} : (rf_bytes){0};
}

static void free_shard(struct model_shard *s)
{
    free(s->start.data);
    free(s->end.data);
    free(s->metadata.data);
    free(s->key.data);
    free(s->token.data);
    free(s->spawned);
}

static void free_run(struct model_run *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        free_shard(&r->shards[i]);
    }
    free(r->shards);
}

void model_init(struct model *m, uint64_t max_shards, uint64_t max_tenant_shards, uint64_t cooldown)
{
    *m = (struct model){
        .max_shards = max_shards, .max_tenant_shards = max_tenant_shards, .cooldown = cooldown};
}

void model_free(struct model *m)
{
    for (uint32_t i = 0; i < m->run_count; i++) {
        free_run(&m->runs[i]);
    }
    free(m->runs);
    free(m->workers);
    *m = (struct model){0};
}

static void *copied(const void *from, size_t count, size_t size)
{
    void *to = malloc(count * size + 1);
    if (to == NULL) {
        abort();
    }
    if (count != 0) {
        memcpy(to, from, count * size);
    }
    return to;
}

static void copy_bytes(struct model_bytes *b)
{
    if (b->present) {
        b->data = copied(b->data, b->len, 1);
    }
}

void model_copy(struct model *to, const struct model *from)
{
    *to = *from;
    to->run_room = from->run_count;
    to->worker_room = from->worker_count;
    to->workers = copied(from->workers, from->worker_count, sizeof(*from->workers));
    to->runs = copied(from->runs, from->run_count, sizeof(*from->runs));
    for (uint32_t i = 0; i < to->run_count; i++) {
        struct model_run *r = &to->runs[i];
        r->room = r->count;
        r->shards = copied(r->shards, r->count, sizeof(*r->shards));
        for (uint32_t k = 0; k < r->count; k++) {
            struct model_shard *s = &r->shards[k];
            copy_bytes(&s->start);
            copy_bytes(&s->end);
            copy_bytes(&s->metadata);
            copy_bytes(&s->key);
            copy_bytes(&s->token);
            s->spawned = copied(s->spawned, s->spawned_count, sizeof(*s->spawned));
        }
    }
}

void model_forget_claims(struct model *m, uint64_t now)
{
    m->worker_count = 0;
    m->claims_from = UINT64_MAX - now < m->cooldown ? UINT64_MAX : now + m->cooldown;
}

void model_rebuild(struct model *m, uint64_t incarnation, uint64_t now)
{
    const struct model was = *m;
    model_free(m);
    model_init(m, was.max_shards, was.max_tenant_shards, was.cooldown);
    m->floor = incarnation << 40;
    model_forget_claims(m, now);
}

/* --- bytes and ranges --- */

int model_compare(rf_bytes a, rf_bytes b)
{
    const uint8_t *x = a.data, *y = b.data;
    for (size_t i = 0; i < a.len && i < b.len; i++) {
        if (x[i] != y[i]) {
            return x[i] < y[i] ? -1 : 1;
        }
    }
    return a.len == b.len ? 0 : a.len < b.len ? -1 : 1;
}

bool model_inside(const rf_spec *range, rf_bytes key)
{
    return (range->start.len == 0 || model_compare(range->start, key) <= 0) &&
           (range->end.len == 0 || model_compare(key, range->end) < 0);
}

bool model_inverted(const rf_spec *range)
{
    return range->start.len != 0 && range->end.len != 0 &&
           model_compare(range->start, range->end) >= 0;
}

rf_status model_check_sizes(const rf_spec *spec, struct model_answer *a)
{
    if (spec->start.len > RF_KEY_MAX) {
        return model_refuse_size(a, RF_KEY_TOO_LARGE, spec->start.len, RF_KEY_MAX);
    }
    if (spec->end.len > RF_KEY_MAX) {
        return model_refuse_size(a, RF_KEY_TOO_LARGE, spec->end.len, RF_KEY_MAX);
    }
    if (spec->metadata.len > RF_METADATA_MAX) {
        return model_refuse_size(a, RF_METADATA_TOO_LARGE, spec->metadata.len, RF_METADATA_MAX);
    }
    return RF_OK;
}

/* --- refusals --- */

rf_status model_refuse_size(struct model_answer *a, rf_status status, uint64_t size, uint64_t limit)
{
    a->detail.size = size;
    a->detail.limit = limit;
    return status;
}

rf_status model_refuse_index(struct model_answer *a, rf_status status, uint64_t index)
{
    a->detail.has_index = true;
    a->detail.index = index;
    return status;
}

/* --- rings --- */

const struct model_entry *model_ring_find(const struct model_entry *ring, uint32_t count,
                                          uint64_t op)
{
    for (uint32_t i = count; i > 0; i--) {
        if (ring[i - 1].op == op) {
            return &ring[i - 1];
        }
    }
    return NULL;
}

/* Stored times never go down. */
void model_ring_push(struct model_entry *ring, uint32_t *count, uint32_t room,
                     struct model_entry entry)
{
    if (*count != 0 && entry.executed_at < ring[*count - 1].executed_at) {
        entry.executed_at = ring[*count - 1].executed_at;
    }
    if (*count == room) {
        memmove(&ring[0], &ring[1], (room - 1) * sizeof(*ring));
        *count -= 1;
    }
    ring[(*count)++] = entry;
}

/* --- looking --- */

struct model_run *model_find_run(const struct model *m, const rf_tenant *tenant, uint64_t run)
{
    for (uint32_t i = 0; i < m->run_count; i++) {
        struct model_run *r = &m->runs[i];
        if (r->run == run && memcmp(&r->tenant, tenant, sizeof(*tenant)) == 0) {
            return r;
        }
    }
    return NULL;
}

struct model_shard *model_find_shard(const struct model_run *r, uint64_t shard)
{
    for (uint32_t i = 0; r != NULL && i < r->count; i++) {
        if (r->shards[i].shard == shard) {
            return &r->shards[i];
        }
    }
    return NULL;
}

bool model_leased_at(const struct model_shard *s, uint64_t now)
{
    return s->leased && now < s->deadline;
}

bool model_available_at(const struct model_shard *s, uint64_t now)
{
    return s->status == RF_SHARD_ACTIVE && !model_leased_at(s, now);
}

bool model_terminal_run(const struct model_run *r)
{
    return r->status == RF_RUN_DONE || r->status == RF_RUN_FAILED || r->status == RF_RUN_CANCELLED;
}

void model_capacity(const struct model_run *r, uint64_t now, uint64_t *available,
                    uint64_t *earliest)
{
    *available = *earliest = 0;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct model_shard *s = &r->shards[i];
        *available += model_available_at(s, now);
        if (model_leased_at(s, now) && (*earliest == 0 || s->deadline < *earliest)) {
            *earliest = s->deadline;
        }
    }
}

bool model_listed(const struct model_shard *s, rf_filter filter, uint64_t now)
{
    switch (filter) {
    case RF_LIST_ACTIVE:
        return s->status == RF_SHARD_ACTIVE;
    case RF_LIST_AVAILABLE:
        return model_available_at(s, now);
    case RF_LIST_PARKED:
        return s->status == RF_SHARD_PARKED;
    case RF_LIST_ROOTS:
        return !s->has_parent;
    case RF_LIST_ALL:
        break;
    }
    return true;
}

void model_progress(const struct model_run *r, uint64_t now, rf_progress *p, rf_bytes *watermark)
{
    *p = (rf_progress){.total = r->count};
    *watermark = (rf_bytes){0};
    for (uint32_t i = 0; i < r->count; i++) {
        const struct model_shard *s = &r->shards[i];
        p->active += s->status == RF_SHARD_ACTIVE;
        p->done += s->status == RF_SHARD_DONE;
        p->split += s->status == RF_SHARD_SPLIT;
        p->parked += s->status == RF_SHARD_PARKED;
        p->leased += model_leased_at(s, now);
        rf_bytes key = model_view(&s->key);
        if (s->status == RF_SHARD_ACTIVE && s->key.present &&
            (!p->has_watermark || model_compare(key, *watermark) < 0)) {
            p->has_watermark = true;
            *watermark = key;
        }
    }
    p->watermark_len = watermark->len;
    p->evaluation = p->active != 0 || p->total == 0 ? RF_STILL_ACTIVE
                    : p->parked != 0                ? RF_HAS_FAILURES
                                                    : RF_ALL_DONE;
}

/* --- growing --- */

struct model_shard *model_add_shard(struct model_run *r, uint64_t shard, const rf_spec *spec,
                                    const rf_cursor *cursor)
{
    r->shards = grown(r->shards, &r->room, r->count + 1, sizeof(*r->shards));
    struct model_shard *s = &r->shards[r->count++];
    r->touched = true;
    *s = (struct model_shard){.shard = shard,
                              .status = RF_SHARD_ACTIVE,
                              .semantics = r->config.semantics,
                              .fence = 1,
                              .touched = true};
    model_set(&s->start, spec->start);
    model_set(&s->end, spec->end);
    model_set(&s->metadata, spec->metadata);
    model_set(&s->key, cursor->key);
    model_set(&s->token, cursor->token.len != 0 ? cursor->token : (rf_bytes){0});
    return s;
}

/* Per tenant first, then in total; a tenant is not told how much the others have. */
rf_status model_check_limits(const struct model *m, const rf_tenant *tenant, uint64_t count,
                             struct model_answer *a)
{
    uint64_t his = 0, all = 0;
    for (uint32_t i = 0; i < m->run_count; i++) {
        all += m->runs[i].count;
        his += memcmp(&m->runs[i].tenant, tenant, sizeof(*tenant)) == 0 ? m->runs[i].count : 0;
    }
    if (his + count > m->max_tenant_shards) {
        return model_refuse_size(a, RF_SHARD_LIMIT, his + count, m->max_tenant_shards);
    }
    if (all + count > m->max_shards) {
        return model_refuse_size(a, RF_SHARD_LIMIT, count, m->max_shards);
    }
    return RF_OK;
}
