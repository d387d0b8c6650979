#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "point.h"
#include "sim.h"

#define ARENA_BYTES (4u << 20)
#define SCRATCH     RF_GRANT_SCRATCH

const char *call_name(enum call call)
{
    static const char *const names[CALLS] = {"acquire",
                                             "claim",
                                             "renew",
                                             "checkpoint",
                                             "complete",
                                             "park",
                                             "release",
                                             "split",
                                             "residual",
                                             "unpark",
                                             "create_run",
                                             "register",
                                             "create_with_shards",
                                             "add_shards",
                                             "end_run",
                                             "purge"};
    return names[call];
}

/* --- bytes --- */

static uint8_t *arena;
static size_t arena_used;

static uint8_t *room_for(size_t len)
{
    if (arena == NULL) {
        arena = malloc(ARENA_BYTES);
    }
    if (arena == NULL || arena_used + len > ARENA_BYTES) {
        abort();
    }
    uint8_t *at = arena + arena_used;
    arena_used += (len + 15) & ~(size_t)15;
    return at;
}

static rf_bytes key_bytes(const struct sim_key *k)
{
    if (!k->present) {
        return (rf_bytes){0};
    }
    uint8_t *at = room_for(8 + k->extra);
    for (int i = 0; i < 8; i++) {
        at[i] = (uint8_t)(k->n >> (56 - 8 * i));
    }
    memset(at + 8, k->fill, k->extra);
    return (rf_bytes){.data = at, .len = 8 + k->extra};
}

static rf_bytes blob_bytes(const struct sim_blob *b)
{
    if (!b->present) {
        return (rf_bytes){0};
    }
    uint8_t *at = room_for(b->len + 1);
    memset(at, b->fill, b->len);
    return (rf_bytes){.data = at, .len = b->len};
}

struct sim_key key_parse(rf_bytes bytes)
{
    const uint8_t *p = bytes.data;
    struct sim_key k = {0};
    if (p == NULL || bytes.len < 8) {
        return k;
    }
    k.present = true;
    for (int i = 0; i < 8; i++) {
        k.n = k.n << 8 | p[i];
    }
    k.extra = (uint32_t)bytes.len - 8;
    k.fill = k.extra != 0 ? p[8] : 0;
    return k;
}

/* --- arguments --- */

struct args {
    rf_cursor cursor;
    bool no_cursor;
    rf_child *children;
    uint32_t count;
    rf_spec parent_new, residual;
    rf_shard_input *inputs;
};

static struct sim_key beside(struct sim_key k, uint64_t by)
{
    k.n += by;
    return k;
}

static void make_children(const struct request *q, struct args *a)
{
    uint32_t n = q->mistake == WRONG_COUNT ? 1 : q->count;
    a->count = n;
    a->children = (rf_child *)(void *)room_for(n * sizeof(rf_child));
    rf_bytes metadata = blob_bytes(&q->metadata);
    for (uint32_t i = 0; i < n; i++) {
        rf_child *c = &a->children[(i + q->rotation) % n];
        bool here = i == q->at % n;
        struct sim_key from = q->points[i], to = q->points[i + 1];
        if (here && q->mistake == WRONG_GAP) {
            from = beside(from, 1);
        } else if (here && q->mistake == WRONG_ORDER) {
            from = q->points[i + 1];
            to = q->points[i];
        } else if (here && q->mistake == WRONG_SIZE) {
            metadata = blob_bytes(&(struct sim_blob){.present = true, .len = RF_METADATA_MAX + 1});
        }
        *c = (rf_child){
            .spec = {.start = key_bytes(&from), .end = key_bytes(&to), .metadata = metadata}};
        if (here && q->key.present) {
            struct sim_key cursor = q->mistake == WRONG_CURSOR ? to : from;
            c->cursor.key = key_bytes(&cursor);
            c->cursor.token = blob_bytes(&q->token);
        }
        if (here && q->mistake == WRONG_TOKEN) {
            c->cursor.key = (rf_bytes){0};
            c->cursor.token = blob_bytes(&(struct sim_blob){.present = true, .len = 3});
        }
    }
}

static void make_parts(const struct request *q, struct args *a)
{
    struct sim_key start = q->points[0], cut = q->points[1], end = q->points[2];
    struct sim_key other = q->mistake == WRONG_GAP ? beside(cut, 1) : cut;
    rf_bytes metadata = blob_bytes(&q->metadata);
    if (q->mistake == WRONG_ORDER) {
        other = cut = end;
    } else if (q->mistake == WRONG_COUNT) {
        start = beside(start, 1);
    } else if (q->mistake == WRONG_SIZE) {
        metadata = blob_bytes(&(struct sim_blob){.present = true, .len = RF_METADATA_MAX + 1});
    }
    a->parent_new = (rf_spec){
        .start = key_bytes(&start), .end = key_bytes(&cut), .metadata = blob_bytes(&q->metadata)};
    a->residual =
        (rf_spec){.start = key_bytes(&other), .end = key_bytes(&end), .metadata = metadata};
}

/* Shards side by side, each 2^32 keys wide, with a gap behind every fourth. */
static void make_manifest(const struct request *q, struct args *a)
{
    a->count = q->mistake == WRONG_COUNT ? 0 : q->count;
    a->inputs = (rf_shard_input *)(void *)room_for((a->count + 1) * sizeof(rf_shard_input));
    rf_bytes metadata = blob_bytes(&q->metadata);
    for (uint32_t i = 0; i < a->count; i++) {
        rf_shard_input *in = &a->inputs[(i + q->rotation) % a->count];
        uint64_t number = q->first + i;
        bool here = i == q->at % a->count;
        struct sim_key start = q->points[0], end = q->points[0];
        start.n = (number + number / 4) << 32;
        end.n = start.n + (1ull << 32);
        *in = (rf_shard_input){.shard = number};
        rf_bytes cursor = (rf_bytes){0}, token = (rf_bytes){0};
        if (here && q->key.present) {
            struct sim_key first = beside(start, q->mistake == WRONG_CURSOR ? 2ull << 32 : 5);
            cursor = key_bytes(&first);
            token = blob_bytes(&q->token);
        }
        if (here) {
            switch (q->mistake) {
            case WRONG_ORDER:
                end.n = start.n;
                break;
            case WRONG_GAP:
                end.n += 3ull << 32;
                break;
            case WRONG_SIZE:
                end.extra = RF_KEY_MAX;
                break;
            case WRONG_TWICE:
                in->shard = q->first;
                break;
            case WRONG_ID:
                in->shard |= RF_DERIVED_BIT;
                break;
            case WRONG_TOKEN:
                token = blob_bytes(&(struct sim_blob){.present = true, .len = RF_TOKEN_MAX + 1});
                break;
            default:
                break;
            }
        }
        in->spec =
            (rf_spec){.start = key_bytes(&start), .end = key_bytes(&end), .metadata = metadata};
        if (here && q->mistake == WRONG_UNBOUNDED) {
            in->spec.end = (rf_bytes){0};
        }
        in->cursor = (rf_cursor){.key = cursor, .token = token};
    }
}

static void make_args(const struct request *q, struct args *a)
{
    *a = (struct args){0};
    switch (q->call) {
    case CALL_CHECKPOINT:
    case CALL_COMPLETE:
    case CALL_RELEASE:
        a->cursor = (rf_cursor){.key = key_bytes(&q->key), .token = blob_bytes(&q->token)};
        a->no_cursor = q->call == CALL_RELEASE && !q->key.present && !q->token.present;
        break;
    case CALL_SPLIT_REPLACE:
        make_children(q, a);
        break;
    case CALL_SPLIT_RESIDUAL:
        make_parts(q, a);
        break;
    case CALL_REGISTER:
    case CALL_CREATE_WITH:
    case CALL_ADD:
        make_manifest(q, a);
        break;
    default:
        break;
    }
}

/* --- the two sides --- */

struct answers {
    struct args args;
    rf_status real;
    rf_result result;
    rf_grant grant;
    rf_lease lease;
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
    rf_status expected;
    struct model_answer model;
    bool told;      /* the model was asked */
    uint64_t epoch; /* the open one when the call began */
    uint64_t member;
    uint32_t worker;
};

static rf_status ask_store(struct world *w, const struct request *q, struct answers *x)
{
    rf_store *s = w->workers[x->worker].handle;
    const rf_tenant *t = &w->tenants[q->tenant];
    const struct args *a = &x->args;
    rf_result *r = &x->result;
    switch (q->call) {
    case CALL_ACQUIRE:
        return rf_acquire(s, q->now, t, q->run, q->shard, q->worker, q->flags, &x->grant, r);
    case CALL_CLAIM:
        return rf_claim(s, q->now, t, q->run, q->worker, q->flags, 0, &x->grant, r);
    case CALL_RENEW:
        x->lease = q->lease;
        return rf_renew(s, q->now, t, &x->lease, r);
    case CALL_CHECKPOINT:
        return rf_checkpoint(s, q->now, t, &q->lease, &a->cursor, q->op, r);
    case CALL_COMPLETE:
        return rf_complete(s, q->now, t, &q->lease, &a->cursor, q->op, r);
    case CALL_PARK:
        return rf_park(s, q->now, t, &q->lease, q->reason, q->op, r);
    case CALL_RELEASE:
        return rf_release(s, q->now, t, &q->lease, a->no_cursor ? NULL : &a->cursor, q->op, r);
    case CALL_SPLIT_REPLACE:
        return rf_split_replace(s, q->now, t, &q->lease, a->children, a->count, q->op, x->ids, r);
    case CALL_SPLIT_RESIDUAL:
        return rf_split_residual(s, q->now, t, &q->lease, &a->parent_new, &a->residual, q->op,
                                 x->ids, r);
    case CALL_UNPARK:
        return rf_unpark(s, q->now, t, q->run, q->shard, q->op, r);
    case CALL_CREATE:
        return rf_create_run(s, q->now, t, q->run, &q->config, r);
    case CALL_REGISTER:
        return rf_register_shards(s, q->now, t, q->run, a->inputs, a->count, q->op, r);
    case CALL_CREATE_WITH:
        return rf_create_run_with_shards(s, q->now, t, q->run, &q->config, a->inputs, a->count,
                                         q->op, r);
    case CALL_ADD:
        return rf_add_shards(s, q->now, t, q->run, a->inputs, a->count, q->op, r);
    case CALL_END:
        return q->ending == RF_RUN_OP_COMPLETE ? rf_complete_run(s, q->now, t, q->run, q->op, r)
               : q->ending == RF_RUN_OP_FAIL   ? rf_fail_run(s, q->now, t, q->run, q->op, r)
                                               : rf_cancel_run(s, q->now, t, q->run, q->op, r);
    default:
        return rf_purge_run(s, q->now, t, q->run, r);
    }
}

static rf_status ask_model(struct world *w, const struct request *q, struct answers *x)
{
    struct model *m = &w->model;
    const rf_tenant *t = &w->tenants[q->tenant];
    const struct args *a = &x->args;
    struct model_answer *r = &x->model;
    uint64_t member = q->flags == RF_BOUND ? x->member : 0;
    switch (q->call) {
    case CALL_ACQUIRE:
        return model_acquire(m, q->now, t, q->run, q->shard, q->worker, member, r);
    case CALL_CLAIM:
        return model_claim(m, q->now, t, q->run, q->worker, member, r);
    case CALL_RENEW:
        return model_renew(m, q->now, t, &q->lease, r);
    case CALL_CHECKPOINT:
        return model_checkpoint(m, q->now, t, &q->lease, &a->cursor, q->op, r);
    case CALL_COMPLETE:
        return model_complete(m, q->now, t, &q->lease, &a->cursor, q->op, r);
    case CALL_PARK:
        return model_park(m, q->now, t, &q->lease, q->reason, q->op, r);
    case CALL_RELEASE:
        return model_release(m, q->now, t, &q->lease, a->no_cursor ? NULL : &a->cursor, q->op, r);
    case CALL_SPLIT_REPLACE:
        return model_split_replace(m, q->now, t, &q->lease, a->children, a->count, q->op, r);
    case CALL_SPLIT_RESIDUAL:
        return model_split_residual(m, q->now, t, &q->lease, &a->parent_new, &a->residual, q->op,
                                    r);
    case CALL_UNPARK:
        return model_unpark(m, q->now, t, q->run, q->shard, q->op, r);
    case CALL_CREATE:
        return model_create_run(m, q->now, t, q->run, &q->config, r);
    case CALL_REGISTER:
        return model_register_shards(m, q->now, t, q->run, a->inputs, a->count, q->op, r);
    case CALL_CREATE_WITH:
        return model_create_run_with_shards(m, q->now, t, q->run, &q->config, a->inputs, a->count,
                                            q->op, r);
    case CALL_ADD:
        return model_add_shards(m, q->now, t, q->run, a->inputs, a->count, q->op, r);
    case CALL_END:
        return model_end_run(m, q->now, t, q->run, q->ending, q->op, r);
    default:
        return model_purge_run(m, q->now, t, q->run, r);
    }
}

static void tell(struct world *w, const struct request *q, struct answers *x)
{
    if (!x->told) {
        x->told = true;
        x->expected = ask_model(w, q, x);
    }
}

/* --- comparing answers --- */

static void same(struct world *w, const struct request *q, const char *what, uint64_t store,
                 uint64_t model)
{
    if (store != model) {
        sim_fail(w, "difference", "%s: %s is %" PRIu64 ", the model says %" PRIu64,
                 call_name(q->call), what, store, model);
    }
}

static void same_bytes(struct world *w, const struct request *q, const char *what, rf_bytes store,
                       const struct model_bytes *model)
{
    if ((store.data != NULL) != model->present && (store.len != 0 || model->len != 0)) {
        sim_fail(w, "difference", "%s: %s is there or not", call_name(q->call), what);
    }
    if (store.len != model->len ||
        (store.len != 0 && memcmp(store.data, model->data, store.len) != 0)) {
        sim_fail(w, "difference", "%s: %s differs", call_name(q->call), what);
    }
}

static void same_detail(struct world *w, const struct request *q, const struct answers *x)
{
    const rf_detail *r = &x->result.detail, *m = &x->model.detail;
    same(w, q, "detail.size", r->size, m->size);
    same(w, q, "detail.limit", r->limit, m->limit);
    same(w, q, "detail.index", r->index, m->index);
    same(w, q, "detail.has_index", r->has_index, m->has_index);
    same(w, q, "detail.shard", r->shard, m->shard);
    same(w, q, "detail.retry_after", r->retry_after, m->retry_after);
    if (x->real != RF_NONE_AVAILABLE) {
        same(w, q, "detail.deadline", r->deadline, m->deadline);
    }
    same(w, q, "an event of a refusal", x->result.has_event, false);
}

static void same_event(struct world *w, const struct request *q, const struct answers *x)
{
    const rf_event *r = &x->result.event, *m = &x->model.event;
    same(w, q, "has_event", x->result.has_event, x->model.has_event);
    if (!x->result.has_event) {
        return;
    }
    same(w, q, "event.kind", r->kind, m->kind);
    same(w, q, "event.tenant", memcmp(&r->tenant, &m->tenant, sizeof(r->tenant)) == 0, true);
    same(w, q, "event.run", r->run, m->run);
    same(w, q, "event.shard", r->shard, m->shard);
    same(w, q, "event.time", r->time, m->time);
    same(w, q, "event.worker", r->worker, m->worker);
    same(w, q, "event.fence", r->fence, m->fence);
    same(w, q, "event.deadline", r->deadline, m->deadline);
    same(w, q, "event.child", r->child, m->child);
    same(w, q, "event.count", r->count, m->count);
    same(w, q, "event.key_len", r->key_len, m->key_len);
    same(w, q, "event.reason", r->reason, m->reason);
}

/* The count may lag, the deadline may be early; neither may promise too much or come too late. */
static void check_hint(struct world *w, const struct request *q, const struct model_run *r,
                       const rf_capacity *c)
{
    uint64_t available, earliest;
    if (w->outer != NULL || w->unsettled != 0) {
        return; /* one that is stopped or dead has perhaps taken a lease that shows only later */
    }
    model_capacity(r, w->now, &available, &earliest);
    if (earliest != 0 && (c->earliest_deadline == 0 || c->earliest_deadline > earliest)) {
        sim_fail(w, "difference",
                 "%s: the hint's deadline %" PRIu64 " is late, a lease ends at %" PRIu64,
                 call_name(q->call), c->earliest_deadline, earliest);
    }
    if (c->available > r->count || c->waiting != 0) {
        sim_fail(w, "difference", "%s: the hint counts %" PRIu64 " shards, %" PRIu64 " waiting",
                 call_name(q->call), c->available, c->waiting);
    }
}

static void same_grant(struct world *w, const struct request *q, const struct answers *x)
{
    const struct model_shard *s = x->model.granted;
    const rf_grant *g = &x->grant;
    same(w, q, "lease.run", g->lease.run, q->run);
    same(w, q, "lease.shard", g->lease.shard, s->shard);
    same(w, q, "lease.worker", g->lease.worker, q->worker);
    same(w, q, "lease.fence", g->lease.fence, s->fence);
    same(w, q, "lease.deadline", g->lease.deadline, s->deadline);
    same(w, q, "attempts", g->attempts, s->attempts);
    same(w, q, "semantics", g->semantics, s->semantics);
    same(w, q, "status", g->status, s->status);
    same(w, q, "has_parent", g->has_parent, s->has_parent);
    same(w, q, "parent", g->parent, s->parent);
    same(w, q, "spawned_count", g->spawned_count, s->spawned_count);
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        same(w, q, "spawned", g->spawned[i], s->spawned[i]);
    }
    same_bytes(w, q, "start", g->spec.start, &s->start);
    same_bytes(w, q, "end", g->spec.end, &s->end);
    same_bytes(w, q, "metadata", g->spec.metadata, &s->metadata);
    same_bytes(w, q, "key", g->cursor.key, &s->key);
    same_bytes(w, q, "token", g->cursor.token, &s->token);
    check_hint(w, q, x->model.where, &x->result.capacity);
}

static void compare(struct world *w, const struct request *q, const struct answers *x)
{
    if (x->real != x->expected) {
        sim_fail(w, "difference", "%s: %s, the model says %s", call_name(q->call),
                 rf_status_name(x->real), rf_status_name(x->expected));
    }
    if (x->real != RF_OK) {
        if (x->real == RF_NONE_AVAILABLE) {
            const struct model_run *r = model_find_run(&w->model, &w->tenants[q->tenant], q->run);
            uint64_t told = x->result.detail.deadline;
            check_hint(w, q, r, &(rf_capacity){.earliest_deadline = told});
            if (told != 0 && told <= q->now) {
                sim_fail(w, "difference", "claim: a deadline in the past");
            }
        }
        same_detail(w, q, x);
        return;
    }
    if (q->call == CALL_PURGE) {
        return;
    }
    same(w, q, "outcome", x->result.outcome, x->model.outcome);
    same_event(w, q, x);
    switch (q->call) {
    case CALL_ACQUIRE:
    case CALL_CLAIM:
        same_grant(w, q, x);
        break;
    case CALL_RENEW:
        same(w, q, "lease.deadline", x->lease.deadline, x->model.granted->deadline);
        same(w, q, "run_status", x->result.run_status, x->model.run_status);
        check_hint(w, q, x->model.where, &x->result.capacity);
        break;
    case CALL_SPLIT_REPLACE:
    case CALL_SPLIT_RESIDUAL:
        for (uint32_t i = 0; i < x->model.id_count; i++) {
            same(w, q, "a child's id", x->ids[i], x->model.ids[i]);
        }
        break;
    default:
        break;
    }
}

/* --- dying and stopping in the middle --- */

static struct world *hooked;
static struct answers *outer;
static struct request *outer_request;

static void on_point(const char *name)
{
    struct death *d = &hooked->death;
    if (!d->here) {
        return;
    }
    /* Chunks of a chain are committed before its closing record is prepared. */
    d->prepared = d->prepared || strstr(name, ".prepared") != NULL;
    d->commits += d->prepared && strcmp(name, "lane.committed") == 0;
    d->cooled = d->cooled || strcmp(name, "claim.cooled") == 0;
    d->renewed = d->renewed || strcmp(name, "renew.deadline") == 0;
    if (d->rare && points_is_common(name)) {
        return;
    }
    if (d->countdown > 1) {
        d->countdown--;
        return;
    }
    if (d->countdown == 0) {
        return;
    }
    d->countdown = 0;
    snprintf(d->point, sizeof(d->point), "%s", name);
    if (!d->stopping) {
        points_count(name, false);
        d->here = false;
        d->inside = true;
        longjmp(d->jump, 1);
    }
    if (outer_request == NULL) {
        return; /* not a call that others could tell from one that has not begun */
    }
    /* What is committed has happened, as far as the others are concerned. */
    bool committed = outer_request->call == CALL_RENEW ? d->renewed : d->commits != 0;
    if (committed && outer_request->call != CALL_CLAIM) {
        tell(hooked, outer_request, outer);
    }
    points_count(name, true);
    d->here = false;
    hooked->outer = outer_request;
    hooked->report->stops++;
    driver_meanwhile(hooked);
    hooked->outer = NULL;
    d->here = true;
}

/* A claim that would park shards on its way is more than one operation. */
static bool parks(const struct world *w, const struct request *q)
{
    const struct model_run *r = model_find_run(&w->model, &w->tenants[q->tenant], q->run);
    for (uint32_t i = 0; r != NULL && r->config.has_max_retries && i < r->count; i++) {
        if (model_available_at(&r->shards[i], q->now) &&
            r->shards[i].attempts > r->config.max_retries) {
            return true;
        }
    }
    return false;
}

/* A claim may have done other people's work before it died: whether it happened is looked up. */
static bool claim_happened(struct world *w, const struct request *q, struct answers *x)
{
    struct model before;
    model_copy(&before, &w->model);
    tell(w, q, x);
    bool happened = false;
    if (x->expected == RF_OK) {
        static _Alignas(8) uint8_t scratch[SCRATCH];
        rf_shard_info info;
        rf_status status =
            rf_get_shard(w->overseer, &w->tenants[q->tenant], q->run, x->model.granted->shard,
                         &info, scratch, sizeof(scratch), NULL);
        happened = status == RF_OK && info.fence == x->model.granted->fence;
    }
    if (happened) {
        model_free(&before);
        return true;
    }
    model_free(&w->model);
    w->model = before;
    x->model.granted = NULL; /* it was the other model's */
    x->model.where = NULL;
    if (w->death.cooled) {
        for (uint32_t i = 0; i < w->model.worker_count; i++) {
            if (w->model.workers[i].worker == q->worker) {
                w->model.workers[i].claimed_at = q->now;
                return false;
            }
        }
        struct model_answer a; /* makes the worker known, and finds nothing */
        model_claim(&w->model, q->now, &w->tenants[q->tenant], UINT64_MAX, q->worker, 0, &a);
        w->model.workers[w->model.worker_count - 1].claimed_at = q->now;
    }
    return false;
}

/* Whoever settles it dies over it as well, or not. */
static void settle_mortally(struct world *w, uint32_t dead)
{
    uint32_t others = w->config->workers - 1;
    w->death.armed = true;
    w->death.stopping = w->death.rare = false;
    w->death.countdown = 1 + chacha_below(&w->rng, 2u << chacha_below(&w->rng, 6));
    world_tend_mortally(w, (dead + 1 + chacha_below(&w->rng, others)) % w->config->workers);
}

/* The caller is dead. What of it did happen is decided by the points that it passed. */
static void bury(struct world *w, const struct request *q, struct answers *x, struct reply *reply)
{
    bool committed = q->call == CALL_RENEW ? w->death.renewed : w->death.commits != 0;
    w->report->deaths_at_points++;
    reply->died = true;
    w->death.armed = w->death.here = false;
    rf_point_on_hit = NULL;
    world_die(w, x->worker);
    if (q->call == CALL_CLAIM) {
        w->unsettled = 0;
        (void)rf_tend(w->overseer,
                      w->now); /* the model is told by world_tend, when it has decided */
        reply->happened = claim_happened(w, q, x);
    } else if (committed) {
        tell(w, q, x);
        if (x->expected != RF_OK || x->model.outcome != RF_EXECUTED) {
            sim_fail(w, "difference", "%s committed before it died at %s, the model says %s",
                     call_name(q->call), w->death.point, rf_status_name(x->expected));
        }
        reply->happened = true;
    }
    if (reply->happened) {
        journal_add(w, q, x->member, x->epoch);
    }
    bool simple = q->call <= CALL_RELEASE && q->call != CALL_CLAIM;
    sim_trace(w, "  ... died at %s: it %s", w->death.point,
              reply->happened ? "happened" : "did not happen");
    if (simple && chacha_percent(&w->rng, 60)) {
        w->unsettled = 1 + chacha_below(&w->rng, 3); /* others run into what it left */
    } else if (w->config->workers > 1 && chacha_percent(&w->rng, 50)) {
        settle_mortally(w, x->worker);
    } else {
        world_tend(w, w->overseer);
    }
}

bool request_killable(struct world *w, uint32_t worker, void (*what)(struct world *, uint32_t))
{
    if (!w->death.armed) {
        what(w, worker);
        return false;
    }
    bool died = false;
    w->death.here = true;
    hooked = w;
    outer = NULL;
    outer_request = NULL;
    rf_point_on_hit = on_point;
    if (setjmp(w->death.jump) == 0) {
        what(w, worker);
    } else {
        died = true;
    }
    w->death.armed = w->death.here = false;
    rf_point_on_hit = NULL;
    if (died) {
        sim_trace(w, "  ... died at %s", w->death.point);
        w->report->deaths_at_points++;
        world_die(w, worker);
        world_tend(w, w->overseer);
    }
    return died;
}

void request_again(struct world *w, const struct request *q, uint64_t member)
{
    static struct answers x;
    size_t mark = arena_used;
    x.told = false;
    x.member = member;
    make_args(q, &x.args);
    tell(w, q, &x);
    arena_used = mark;
}

/* --- the books of the checker --- */

static void keep_books(struct world *w, const struct request *q, const struct answers *x,
                       struct reply *reply)
{
    struct checker *c = &w->checker;
    /* A volatile store loses all or nothing: it is as if all were of one epoch. */
    bool logged = w->config->durable;
    uint64_t durable = logged ? rf_durable(w->overseer) : UINT64_MAX;
    uint64_t epoch = !logged                                ? 1
                     : !reply->died && x->result.epoch != 0 ? x->result.epoch
                                                            : x->epoch;
    uint64_t member = reply->died || q->flags != RF_BOUND ? 0 : x->member;
    bool lost = reply->died && q->flags == RF_BOUND;
    if (reply->died && (w->config->judges & JUDGE_REFERENCE) == 0 &&
        (q->call <= CALL_RENEW || q->call == CALL_UNPARK)) {
        return; /* what the dead were told only the model knows, and here it does not count */
    }
    switch (q->call) {
    case CALL_ACQUIRE:
    case CALL_CLAIM:
        checker_granted(c, q->tenant, &reply->lease, member, q->now);
        if (q->call == CALL_CLAIM) {
            checker_claimed(c, q->worker, q->now);
        }
        if (lost) {
            checker_ended(c, q->tenant, &reply->lease);
        }
        break;
    case CALL_RENEW:
        checker_renewed(c, q->tenant, &reply->lease);
        break;
    case CALL_COMPLETE:
    case CALL_PARK:
    case CALL_RELEASE:
    case CALL_SPLIT_REPLACE:
        checker_ended(c, q->tenant, &q->lease);
        break;
    case CALL_UNPARK:
        checker_unparked(c, q->tenant, q->run, q->shard,
                         reply->died ? x->model.event.fence : x->result.event.fence);
        break;
    case CALL_REGISTER:
    case CALL_CREATE_WITH:
    case CALL_ADD:
        for (uint32_t i = 0; i < x->args.count; i++) {
            checker_root(c, q->tenant, q->run, x->args.inputs[i].spec.start,
                         x->args.inputs[i].spec.end, epoch);
        }
        break;
    case CALL_PURGE:
        checker_purged(c, q->tenant, q->run, epoch, durable);
        break;
    default:
        break;
    }
}

static void fill_reply(const struct request *q, const struct answers *x, struct reply *reply)
{
    if (q->call == CALL_RENEW) {
        reply->lease = x->lease;
    } else if (q->call == CALL_ACQUIRE || q->call == CALL_CLAIM) {
        reply->lease = x->grant.lease;
        reply->start = key_parse(x->grant.spec.start);
        reply->end = key_parse(x->grant.spec.end);
        reply->key = key_parse(x->grant.cursor.key);
    }
}

/* What the dead would have been told, as the model has it. */
static void fill_from_model(const struct request *q, const struct answers *x, struct reply *reply)
{
    const struct model_shard *s = reply->happened ? x->model.granted : NULL;
    if (s != NULL) {
        reply->lease = (rf_lease){.run = q->call == CALL_RENEW ? q->lease.run : q->run,
                                  .shard = s->shard,
                                  .worker = s->owner,
                                  .fence = s->fence,
                                  .deadline = s->deadline};
    }
}

/* --- one call --- */

static void count(struct world *w, const struct request *q, const struct answers *x,
                  const struct reply *reply)
{
    struct sim_report *r = w->report;
    r->calls++;
    if (reply->died) {
        return;
    }
    if (x->real != RF_OK) {
        r->refused[(unsigned)x->real % 100]++;
        return;
    }
    bool executed = q->call == CALL_PURGE || x->result.outcome == RF_EXECUTED;
    (executed ? r->executed : r->replayed)[q->call]++;
    if (q->call != CALL_PURGE && x->result.has_event &&
        (unsigned)x->result.event.kind <= RF_EVENT_RUN_PURGED) {
        r->events[x->result.event.kind]++;
    }
    r->goodput[w->phase].completed += executed && q->call == CALL_COMPLETE;
    r->goodput[w->phase].checkpointed += executed && q->call == CALL_CHECKPOINT;
}

struct reply request_make(struct world *w, uint32_t worker, struct request *q)
{
    static struct answers room[2];
    static _Alignas(8) uint8_t scratch[2][SCRATCH];
    bool nested = w->outer != NULL;
    struct answers *x = &room[nested];
    size_t mark = arena_used;
    struct reply reply = {0};
    x->told = false;
    x->epoch = journal_epoch(w);
    x->worker = worker;
    x->member = w->workers[worker].member;
    x->grant = (rf_grant){.scratch = scratch[nested], .scratch_size = SCRATCH};
    x->result.want_event = true;
    x->result.durability = 0;
    x->result.epoch = 0;
    x->result.has_event = false;
    make_args(q, &x->args);

    bool armed = w->death.armed && !nested && !(q->call == CALL_CLAIM && parks(w, q));
    if (armed) {
        w->death.commits = 0;
        w->death.prepared = w->death.cooled = w->death.renewed = false;
        w->death.here = true;
        hooked = w;
        outer = x;
        outer_request = q;
        w->outer_worker = worker;
        rf_point_on_hit = on_point;
    }
    if (!armed || setjmp(w->death.jump) == 0) {
        x->real = ask_store(w, q, x);
        w->death.here = false;
        rf_point_on_hit = NULL;
        reply.status = x->real;
        if (nested && x->real == RF_BUSY) {
            w->report->busy++;
            reply.nothing = true;
        } else {
            tell(w, q, x);
            if ((w->config->judges & JUDGE_REFERENCE) != 0) {
                compare(w, q, x);
            }
        }
    } else {
        bury(w, q, x, &reply);
    }
    if (!nested) {
        w->death.armed = false;
    }
    if (reply.died) {
        reply.status = reply.happened ? RF_OK : RF_BUSY;
        fill_from_model(q, x, &reply);
    } else {
        fill_reply(q, x, &reply);
    }
    reply.replayed = !reply.died && reply.status == RF_OK && q->call != CALL_PURGE &&
                     x->result.outcome == RF_REPLAYED;
    if (reply.status == RF_OK && !reply.replayed) {
        keep_books(w, q, x, &reply);
    }
    bool parked = x->told && q->call == CALL_CLAIM && x->model.parked != 0;
    if (!reply.died && ((reply.status == RF_OK && !reply.replayed) || parked)) {
        bool known = reply.status == RF_OK && x->result.epoch != 0;
        journal_add(w, q, x->member, known ? x->result.epoch : x->epoch);
    }
    if (!reply.nothing) {
        count(w, q, x, &reply);
    }
    sim_trace(w,
              "%sworker %u %s tenant %u run %" PRIu64 " shard %" PRIx64 " fence %" PRIu64
              " op %" PRIu64 " now %" PRIu64 ": %s%s",
              nested ? "  meanwhile " : "", worker, call_name(q->call), q->tenant,
              q->call >= CALL_RENEW && q->call <= CALL_SPLIT_RESIDUAL ? q->lease.run : q->run,
              q->call >= CALL_RENEW && q->call <= CALL_SPLIT_RESIDUAL ? q->lease.shard
              : reply.status == RF_OK && q->call <= CALL_CLAIM        ? reply.lease.shard
                                                                      : q->shard,
              q->call >= CALL_RENEW ? q->lease.fence : reply.lease.fence, q->op, q->now,
              reply.died ? "died" : rf_status_name(reply.status),
              reply.replayed ? " (replayed)" : "");
    world_emit(w, (uint32_t)q->call, worker,
               (uint32_t)(reply.died ? 200u + reply.happened : (uint32_t)reply.status),
               reply.lease.shard != 0 ? reply.lease.shard : q->shard, reply.lease.fence,
               reply.replayed);
    arena_used = mark;
    return reply;
}
