/* Sections 3, 4 and 6 of the protocol. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

static void begin(struct model_answer *a)
{
    memset(&a->detail, 0, sizeof(a->detail));
    a->outcome = RF_EXECUTED;
    a->has_event = false;
    a->granted = NULL;
    a->where = NULL;
    a->parked = 0;
    a->id_count = 0;
}

static rf_event *tell(struct model_answer *a, rf_event_kind kind, const struct model_run *r,
                      const struct model_shard *s, uint64_t now)
{
    a->has_event = true;
    a->event = (rf_event){
        .kind = kind, .tenant = r->tenant, .run = r->run, .shard = s->shard, .time = now};
    return &a->event;
}

static rf_status look_up(const struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                         uint64_t shard, struct model_run **r, struct model_shard **s)
{
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    *r = model_find_run(m, tenant, run);
    *s = model_find_shard(*r, shard);
    return *s == NULL ? RF_NOT_FOUND : RF_OK;
}

static rf_status check_lease(const struct model_shard *s, uint64_t now, const rf_lease *lease,
                             struct model_answer *a)
{
    if (s->status != RF_SHARD_ACTIVE) {
        return RF_SHARD_TERMINAL;
    }
    if (s->fence != lease->fence) {
        return RF_STALE_FENCE;
    }
    if (!s->leased) {
        return RF_STALE_FENCE;
    }
    if (now >= s->deadline) {
        a->detail.deadline = s->deadline;
        return RF_LEASE_EXPIRED;
    }
    if (s->owner != lease->worker) {
        return RF_STALE_FENCE;
    }
    return RF_OK;
}

/* Lookup, idempotency, lease. *known: the answer is the first one again. */
static rf_status open_leased(const struct model *m, uint64_t now, const rf_tenant *tenant,
                             const rf_lease *lease, uint64_t op, uint64_t hash,
                             struct model_run **r, struct model_shard **s, bool *known,
                             struct model_answer *a)
{
    begin(a);
    *known = false;
    rf_status status = look_up(m, now, tenant, lease->run, lease->shard, r, s);
    if (status != RF_OK) {
        return status;
    }
    const struct model_entry *e = model_ring_find((*s)->ring, (*s)->ring_count, op);
    if (e != NULL && e->hash != hash) {
        return RF_OP_ID_CONFLICT;
    }
    if (e != NULL) {
        *known = true;
        a->outcome = RF_REPLAYED;
        return RF_OK;
    }
    return check_lease(*s, now, lease, a);
}

static rf_spec spec_of(const struct model_shard *s)
{
    return (rf_spec){.start = model_view(&s->start),
                     .end = model_view(&s->end),
                     .metadata = model_view(&s->metadata)};
}

/* A cursor against a range and the key that is stored, if any. */
static rf_status check_cursor(const rf_cursor *c, const struct model_bytes *stored,
                              const rf_spec *range, struct model_answer *a)
{
    if (c->key.data == NULL) {
        return RF_MISSING_KEY;
    }
    if (c->key.len > RF_KEY_MAX) {
        return model_refuse_size(a, RF_KEY_TOO_LARGE, c->key.len, RF_KEY_MAX);
    }
    if (c->token.len > RF_TOKEN_MAX) {
        return model_refuse_size(a, RF_TOKEN_TOO_LARGE, c->token.len, RF_TOKEN_MAX);
    }
    if (stored != NULL && stored->present && model_compare(c->key, model_view(stored)) < 0) {
        return model_refuse_size(a, RF_CURSOR_REGRESSION, c->key.len, RF_KEY_MAX);
    }
    if (!model_inside(range, c->key)) {
        return model_refuse_size(a, RF_CURSOR_OUT_OF_BOUNDS, c->key.len, RF_KEY_MAX);
    }
    return RF_OK;
}

static void store_cursor(struct model_shard *s, const rf_cursor *c)
{
    model_set(&s->key, c->key);
    model_set(&s->token, c->token.len != 0 ? c->token : (rf_bytes){0});
}

static void end_lease(struct model_shard *s)
{
    s->leased = false;
    s->owner = s->deadline = s->bound = 0;
}

static void remember(struct model_shard *s, rf_op_kind kind, uint64_t op, uint64_t hash,
                     uint64_t now)
{
    s->touched = true;
    model_ring_push(
        s->ring, &s->ring_count, RF_SHARD_RING,
        (struct model_entry){.op = op, .hash = hash, .executed_at = now, .kind = (uint8_t)kind});
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

/* max(stored, floor) + 1; 0 if there is none left. */
static uint64_t next_fence(const struct model *m, const struct model_shard *s)
{
    uint64_t fence = s->fence > m->floor ? s->fence : m->floor;
    return fence == UINT64_MAX ? 0 : fence + 1;
}

/* --- granting --- */

static rf_status grant(const struct model *m, struct model_run *r, struct model_shard *s,
                       uint64_t now, uint64_t worker, uint64_t member, struct model_answer *a)
{
    uint64_t fence = next_fence(m, s);
    if (fence == 0) {
        return RF_FENCE_EXHAUSTED;
    }
    s->fence = fence;
    s->leased = true;
    s->owner = worker;
    s->deadline = plus(now, r->config.lease_duration);
    s->bound = member;
    s->attempts += s->attempts != UINT32_MAX;
    s->touched = true;
    a->where = r;
    a->granted = s;
    rf_event *e = tell(a, RF_EVENT_ACQUIRED, r, s, now);
    e->worker = worker;
    e->fence = fence;
    e->deadline = s->deadline;
    return RF_OK;
}

rf_status model_acquire(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t shard, uint64_t worker, uint64_t member, struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    begin(a);
    rf_status status = look_up(m, now, tenant, run, shard, &r, &s);
    if (status != RF_OK) {
        return status;
    }
    if (s->status != RF_SHARD_ACTIVE) {
        return RF_SHARD_TERMINAL;
    }
    if (model_leased_at(s, now)) {
        a->detail.deadline = s->deadline;
        return RF_ALREADY_LEASED;
    }
    return grant(m, r, s, now, worker, member, a);
}

static struct model_worker *find_worker(struct model *m, uint64_t worker)
{
    for (uint32_t i = 0; i < m->worker_count; i++) {
        if (m->workers[i].worker == worker) {
            return &m->workers[i];
        }
    }
    if (m->worker_count == m->worker_room) {
        m->worker_room = 2 * m->worker_room + 8;
        m->workers = realloc(m->workers, m->worker_room * sizeof(*m->workers));
        if (m->workers == NULL) {
            abort();
        }
    }
    m->workers[m->worker_count] = (struct model_worker){.worker = worker};
    return &m->workers[m->worker_count++];
}

rf_status model_claim(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                      uint64_t worker, uint64_t member, struct model_answer *a)
{
    begin(a);
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    struct model_worker *w = find_worker(m, worker);
    uint64_t his = w->claimed_at != 0 ? plus(w->claimed_at, m->cooldown) : 0;
    uint64_t from = his > m->claims_from ? his : m->claims_from;
    if (m->cooldown != 0 && now < from) {
        a->detail.retry_after = from - now;
        return RF_THROTTLED;
    }
    struct model_run *r = model_find_run(m, tenant, run);
    if (r == NULL) {
        return RF_RUN_NOT_FOUND;
    }
    if (model_terminal_run(r)) {
        return RF_RUN_TERMINAL;
    }
    for (uint64_t n = 0; n < r->count; n++) {
        struct model_shard *s = &r->shards[(worker % r->count + n) % r->count];
        if (!model_available_at(s, now)) {
            continue;
        }
        if (r->config.has_max_retries && s->attempts > r->config.max_retries) {
            s->status = RF_SHARD_PARKED;
            s->has_reason = true;
            s->reason = RF_PARK_TOO_MANY_ERRORS;
            s->touched = true;
            end_lease(s);
            a->parked++;
            continue;
        }
        rf_status status = grant(m, r, s, now, worker, member, a);
        if (status == RF_OK) {
            w->claimed_at = now;
        }
        return status;
    }
    uint64_t available;
    model_capacity(r, now, &available, &a->detail.deadline);
    return RF_NONE_AVAILABLE;
}

/* --- operations of an owner --- */

rf_status model_renew(struct model *m, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    begin(a);
    rf_status status = look_up(m, now, tenant, lease->run, lease->shard, &r, &s);
    if (status == RF_OK) {
        status = check_lease(s, now, lease, a);
    }
    if (status != RF_OK) {
        return status;
    }
    uint64_t deadline = plus(now, r->config.lease_duration);
    if (deadline > s->deadline) {
        s->deadline = deadline;
        s->touched = true;
    }
    a->run_status = r->status;
    a->where = r;
    a->granted = s;
    tell(a, RF_EVENT_LEASE_RENEWED, r, s, now)->deadline = s->deadline;
    return RF_OK;
}

rf_status model_checkpoint(struct model *m, uint64_t now, const rf_tenant *tenant,
                           const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                           struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    bool known;
    uint64_t hash = model_hash_cursor("checkpoint", cursor);
    rf_status status = open_leased(m, now, tenant, lease, op, hash, &r, &s, &known, a);
    if (status != RF_OK || known) {
        return status;
    }
    const rf_spec range = spec_of(s);
    status = check_cursor(cursor, &s->key, &range, a);
    if (status != RF_OK) {
        return status;
    }
    store_cursor(s, cursor);
    s->attempts = 0;
    remember(s, RF_OP_CHECKPOINT, op, hash, now);
    tell(a, RF_EVENT_CHECKPOINTED, r, s, now)->key_len = (uint32_t)cursor->key.len;
    return RF_OK;
}

rf_status model_complete(struct model *m, uint64_t now, const rf_tenant *tenant,
                         const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                         struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    bool known;
    uint64_t hash = model_hash_cursor("complete", cursor);
    rf_status status = open_leased(m, now, tenant, lease, op, hash, &r, &s, &known, a);
    if (status != RF_OK || known) {
        return status;
    }
    const rf_spec range = spec_of(s);
    status = check_cursor(cursor, &s->key, &range, a);
    if (status != RF_OK) {
        return status;
    }
    store_cursor(s, cursor);
    s->attempts = 0;
    s->status = RF_SHARD_DONE;
    end_lease(s);
    remember(s, RF_OP_COMPLETE, op, hash, now);
    tell(a, RF_EVENT_COMPLETED, r, s, now)->key_len = (uint32_t)cursor->key.len;
    return RF_OK;
}

rf_status model_park(struct model *m, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                     rf_park_reason reason, uint64_t op, struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    bool known;
    if ((unsigned)reason > RF_PARK_OTHER) {
        begin(a);
        return now == 0 ? RF_INVALID_TIME : RF_INVALID_ARGUMENT;
    }
    uint64_t hash = model_hash_park(reason);
    rf_status status = open_leased(m, now, tenant, lease, op, hash, &r, &s, &known, a);
    if (status != RF_OK || known) {
        return status;
    }
    s->status = RF_SHARD_PARKED;
    s->has_reason = true;
    s->reason = reason;
    end_lease(s);
    remember(s, RF_OP_PARK, op, hash, now);
    tell(a, RF_EVENT_PARKED, r, s, now)->reason = reason;
    return RF_OK;
}

rf_status model_release(struct model *m, uint64_t now, const rf_tenant *tenant,
                        const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                        struct model_answer *a)
{
    const rf_cursor none = {0};
    struct model_run *r;
    struct model_shard *s;
    bool known;
    cursor = cursor == NULL ? &none : cursor;
    uint64_t hash = model_hash_cursor("release", cursor);
    rf_status status = open_leased(m, now, tenant, lease, op, hash, &r, &s, &known, a);
    if (status != RF_OK || known) {
        return status;
    }
    if (cursor->key.data != NULL || cursor->token.len != 0) {
        const rf_spec range = spec_of(s);
        status = check_cursor(cursor, &s->key, &range, a);
        if (status != RF_OK) {
            return status;
        }
        store_cursor(s, cursor);
    }
    s->attempts = 0;
    end_lease(s);
    remember(s, RF_OP_RELEASE, op, hash, now);
    tell(a, RF_EVENT_RELEASED, r, s, now);
    return RF_OK;
}

uint32_t model_owner_lost(struct model *m, uint64_t member)
{
    uint32_t lost = 0;
    for (uint32_t i = 0; i < m->run_count; i++) {
        for (uint32_t k = 0; k < m->runs[i].count; k++) {
            struct model_shard *s = &m->runs[i].shards[k];
            if (s->leased && member != 0 && s->bound == member) {
                end_lease(s);
                s->touched = true;
                lost++;
            }
        }
    }
    return lost;
}

/* --- splits --- */

/* The caller's positions in the order of their starts; equal starts stay in the caller's order. */
static void order_by_start(const rf_child *children, uint32_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        while (at > 0 &&
               model_compare(children[i].spec.start, children[order[at - 1]].spec.start) < 0) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

static bool same(rf_bytes a, rf_bytes b)
{
    return model_compare(a, b) == 0;
}

static rf_status check_children(const struct model_shard *parent, const rf_child *children,
                                uint32_t count, uint32_t *order, struct model_answer *a)
{
    if (count < 2 || count > 256) {
        return model_refuse_size(a, RF_SPLIT_COUNT, count, 256);
    }
    order_by_start(children, count, order);
    if (!same(children[order[0]].spec.start, model_view(&parent->start))) {
        return model_refuse_index(a, RF_SPLIT_COVERAGE, order[0]);
    }
    if (!same(children[order[count - 1]].spec.end, model_view(&parent->end))) {
        return model_refuse_index(a, RF_SPLIT_COVERAGE, order[count - 1]);
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        rf_bytes end = children[order[i]].spec.end;
        if (end.len == 0 || !same(end, children[order[i + 1]].spec.start)) {
            return model_refuse_index(a, RF_SPLIT_COVERAGE, order[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (model_inverted(&children[i].spec)) {
            return model_refuse_index(a, RF_RANGE_INVERTED, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        rf_status status = model_check_sizes(&children[i].spec, a);
        if (status != RF_OK) {
            return model_refuse_index(a, status, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        const rf_cursor *c = &children[i].cursor;
        if (c->key.data != NULL || c->token.len != 0) {
            rf_status status = check_cursor(c, NULL, &children[i].spec, a);
            if (status != RF_OK) {
                return model_refuse_index(a, status, i);
            }
        }
    }
    return RF_OK;
}

static rf_status check_room(const struct model *m, const struct model_run *r,
                            const struct model_shard *s, uint32_t count, struct model_answer *a)
{
    if (s->spawned_count + count > 1024) {
        return model_refuse_size(a, RF_SPAWNED_LIMIT, s->spawned_count + count, 1024);
    }
    return model_check_limits(m, &r->tenant, count, a);
}

static void spawn(struct model_shard *s, uint64_t id)
{
    s->spawned = realloc(s->spawned, (s->spawned_count + 1) * sizeof(*s->spawned));
    if (s->spawned == NULL) {
        abort();
    }
    s->spawned[s->spawned_count++] = id;
}

/* Shards move when the run grows: the parent is found again by its name. */
static void add_derived(struct model_run *r, uint64_t parent, uint64_t id, const rf_spec *spec,
                        const rf_cursor *cursor)
{
    rf_semantics semantics = model_find_shard(r, parent)->semantics;
    struct model_shard *child = model_add_shard(r, id, spec, cursor);
    child->semantics = semantics;
    child->has_parent = true;
    child->parent = parent;
}

rf_status model_split_replace(struct model *m, uint64_t now, const rf_tenant *tenant,
                              const rf_lease *lease, const rf_child *children, uint32_t count,
                              uint64_t op, struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    bool known;
    uint32_t order[RF_SPLIT_CHILDREN_MAX];
    uint64_t hash = model_hash_replace(children, count);
    rf_status status = open_leased(m, now, tenant, lease, op, hash, &r, &s, &known, a);
    if (status != RF_OK) {
        return status;
    }
    if (known) {
        a->id_count = count;
        memcpy(a->ids, s->spawned + (s->spawned_count - count), count * sizeof(*a->ids));
        return RF_OK;
    }
    status = check_children(s, children, count, order, a);
    if (status == RF_OK) {
        status = check_room(m, r, s, count, a);
    }
    if (status != RF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        a->ids[i] = model_split_id(r->run, s->shard, op, RF_CHILD, s->spawned_count + i);
        bool taken = model_find_shard(r, a->ids[i]) != NULL;
        for (uint32_t k = 0; k < i; k++) {
            taken = taken || a->ids[k] == a->ids[i];
        }
        if (taken) {
            return model_refuse_index(a, RF_DERIVED_ID_COLLISION, order[i]);
        }
    }
    a->id_count = count;
    uint64_t parent = s->shard;
    for (uint32_t i = 0; i < count; i++) {
        const rf_child *child = &children[order[i]];
        spawn(s, a->ids[i]);
        add_derived(r, parent, a->ids[i], &child->spec, &child->cursor);
        s = model_find_shard(r, parent);
    }
    s->status = RF_SHARD_SPLIT;
    end_lease(s);
    remember(s, RF_OP_SPLIT_REPLACE, op, hash, now);
    tell(a, RF_EVENT_SPLIT, r, s, now)->count = count;
    return RF_OK;
}

rf_status model_split_residual(struct model *m, uint64_t now, const rf_tenant *tenant,
                               const rf_lease *lease, const rf_spec *parent_new,
                               const rf_spec *residual, uint64_t op, struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    uint64_t hash = model_hash_residual(parent_new, residual);
    begin(a);
    rf_status status = look_up(m, now, tenant, lease->run, lease->shard, &r, &s);
    if (status != RF_OK) {
        return status;
    }
    const struct model_entry *e = model_ring_find(s->ring, s->ring_count, op);
    if (e != NULL && e->hash != hash) {
        return RF_OP_ID_CONFLICT;
    }
    /* The ids remember what the ring has forgotten. */
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        if (s->spawned[i] == model_split_id(r->run, s->shard, op, RF_RESIDUAL, i)) {
            a->outcome = RF_REPLAYED;
            a->id_count = 1;
            a->ids[0] = s->spawned[i];
            return RF_OK;
        }
    }
    status = check_lease(s, now, lease, a);
    if (status != RF_OK) {
        return status;
    }
    if (!same(parent_new->start, model_view(&s->start))) {
        return model_refuse_index(a, RF_SPLIT_COVERAGE, 0);
    }
    if (!same(residual->end, model_view(&s->end))) {
        return model_refuse_index(a, RF_SPLIT_COVERAGE, 1);
    }
    if (parent_new->end.len == 0 || !same(parent_new->end, residual->start)) {
        return model_refuse_index(a, RF_SPLIT_COVERAGE, 0);
    }
    if (model_inverted(parent_new)) {
        return model_refuse_index(a, RF_RANGE_INVERTED, 0);
    }
    if (model_inverted(residual)) {
        return model_refuse_index(a, RF_RANGE_INVERTED, 1);
    }
    status = model_check_sizes(parent_new, a);
    if (status != RF_OK) {
        return model_refuse_index(a, status, 0);
    }
    status = model_check_sizes(residual, a);
    if (status != RF_OK) {
        return model_refuse_index(a, status, 1);
    }
    if (s->key.present && !model_inside(parent_new, model_view(&s->key))) {
        return model_refuse_index(a, RF_CURSOR_OUT_OF_BOUNDS, 0);
    }
    status = check_room(m, r, s, 1, a);
    if (status != RF_OK) {
        return status;
    }
    uint64_t id = model_split_id(r->run, s->shard, op, RF_RESIDUAL, s->spawned_count);
    if (model_find_shard(r, id) != NULL) {
        return model_refuse_index(a, RF_DERIVED_ID_COLLISION, 0);
    }
    const rf_cursor initial = {0};
    uint64_t parent = s->shard;
    spawn(s, id);
    model_set(&s->start, parent_new->start);
    model_set(&s->end, parent_new->end);
    model_set(&s->metadata, parent_new->metadata);
    remember(s, RF_OP_SPLIT_RESIDUAL, op, hash, now);
    add_derived(r, parent, id, residual, &initial);
    a->id_count = 1;
    a->ids[0] = id;
    rf_event *event = tell(a, RF_EVENT_RESIDUAL_CREATED, r, model_find_shard(r, parent), now);
    event->child = id;
    event->count = 1;
    return RF_OK;
}

/* --- unparking --- */

rf_status model_unpark(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       uint64_t shard, uint64_t op, struct model_answer *a)
{
    struct model_run *r;
    struct model_shard *s;
    uint64_t hash = model_hash_unpark(run, shard);
    begin(a);
    rf_status status = look_up(m, now, tenant, run, shard, &r, &s);
    if (status != RF_OK) {
        return status;
    }
    if (model_terminal_run(r)) {
        return RF_RUN_TERMINAL;
    }
    const struct model_entry *e = model_ring_find(s->ring, s->ring_count, op);
    if (e != NULL && e->hash != hash) {
        return RF_OP_ID_CONFLICT;
    }
    if (e != NULL) {
        a->outcome = RF_REPLAYED;
        return RF_OK;
    }
    if (s->status != RF_SHARD_PARKED) {
        return RF_NOT_PARKED;
    }
    uint64_t fence = next_fence(m, s);
    if (fence == 0) {
        return RF_FENCE_EXHAUSTED;
    }
    s->fence = fence;
    s->status = RF_SHARD_ACTIVE;
    s->has_reason = false;
    s->reason = 0;
    s->attempts = 0;
    remember(s, RF_OP_UNPARK, op, hash, now);
    a->where = r;
    a->granted = s;
    tell(a, RF_EVENT_UNPARKED, r, s, now)->fence = fence;
    return RF_OK;
}
