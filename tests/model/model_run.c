/* Section 5 of the protocol. */
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
    a->id_count = 0;
}

static rf_event *tell(struct model_answer *a, rf_event_kind kind, const struct model_run *r,
                      uint64_t now)
{
    a->has_event = true;
    a->event = (rf_event){.kind = kind, .tenant = r->tenant, .run = r->run, .time = now};
    return &a->event;
}

static rf_status check_config(const rf_run_config *c)
{
    bool good =
        c->lease_duration != 0 && (c->semantics == RF_COMPLETED || c->semantics == RF_DISPATCHED);
    return good ? RF_OK : RF_INVALID_CONFIG;
}

static bool same_config(const rf_run_config *a, const rf_run_config *b)
{
    return a->lease_duration == b->lease_duration && a->semantics == b->semantics &&
           a->has_max_retries == b->has_max_retries &&
           (!a->has_max_retries || a->max_retries == b->max_retries);
}

static struct model_run *add_run(struct model *m, uint64_t now, const rf_tenant *tenant,
                                 uint64_t run, const rf_run_config *config)
{
    if (m->run_count == m->run_room) {
        m->run_room = 2 * m->run_room + 4;
        m->runs = realloc(m->runs, m->run_room * sizeof(*m->runs));
        if (m->runs == NULL) {
            abort();
        }
    }
    struct model_run *r = &m->runs[m->run_count++];
    *r = (struct model_run){.tenant = *tenant,
                            .run = run,
                            .config = *config,
                            .status = RF_RUN_INITIALIZING,
                            .created_at = now,
                            .touched = true};
    if (!config->has_max_retries) {
        r->config.max_retries = 0;
    }
    return r;
}

rf_status model_create_run(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           const rf_run_config *config, struct model_answer *a)
{
    begin(a);
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    if (model_find_run(m, tenant, run) != NULL) {
        return RF_RUN_EXISTS;
    }
    rf_status status = check_config(config);
    if (status != RF_OK) {
        return status;
    }
    tell(a, RF_EVENT_RUN_CREATED, add_run(m, now, tenant, run, config), now);
    return RF_OK;
}

/* --- manifests --- */

static rf_status refuse_shard(struct model_answer *a, rf_status status,
                              const rf_shard_input *shards, uint32_t i)
{
    a->detail.shard = shards[i].shard;
    return model_refuse_index(a, status, i);
}

static bool before(const rf_shard_input *x, const rf_shard_input *y, bool by_id)
{
    return by_id ? x->shard < y->shard : model_compare(x->spec.start, y->spec.start) < 0;
}

static void order_by(const rf_shard_input *shards, uint32_t count, bool by_id, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        while (at > 0 && before(&shards[i], &shards[order[at - 1]], by_id)) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

static bool overlap(const rf_spec *x, const rf_spec *y)
{
    return (y->end.len == 0 || model_compare(x->start, y->end) < 0) &&
           (x->end.len == 0 || model_compare(y->start, x->end) < 0);
}

/* With a shard of the run that was not replaced by its children. */
static bool overlaps_existing(const struct model_run *r, const rf_spec *range)
{
    for (uint32_t i = 0; i < r->count; i++) {
        const struct model_shard *s = &r->shards[i];
        const rf_spec his = {.start = model_view(&s->start), .end = model_view(&s->end)};
        if (s->status != RF_SHARD_SPLIT && overlap(range, &his)) {
            return true;
        }
    }
    return false;
}

static rf_status check_one_by_one(const rf_shard_input *shards, uint32_t count,
                                  struct model_answer *a)
{
    for (uint32_t i = 0; i < count; i++) {
        if (shards[i].spec.start.len == 0 || shards[i].spec.end.len == 0) {
            return refuse_shard(a, RF_UNBOUNDED_RANGE, shards, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        rf_status status = model_check_sizes(&shards[i].spec, a);
        if (status != RF_OK) {
            return refuse_shard(a, status, shards, i);
        }
        if (model_inverted(&shards[i].spec)) {
            return refuse_shard(a, RF_RANGE_INVERTED, shards, i);
        }
    }
    return RF_OK;
}

static rf_status check_cursors(const rf_shard_input *shards, uint32_t count, struct model_answer *a)
{
    for (uint32_t i = 0; i < count; i++) {
        const rf_cursor *c = &shards[i].cursor;
        if (c->key.data == NULL && c->token.len != 0) {
            return refuse_shard(a, RF_MISSING_KEY, shards, i);
        }
        if (c->key.data != NULL && c->key.len > RF_KEY_MAX) {
            model_refuse_size(a, RF_KEY_TOO_LARGE, c->key.len, RF_KEY_MAX);
            return refuse_shard(a, RF_KEY_TOO_LARGE, shards, i);
        }
        if (c->key.data != NULL && !model_inside(&shards[i].spec, c->key)) {
            return refuse_shard(a, RF_CURSOR_OUT_OF_BOUNDS, shards, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (shards[i].cursor.token.len > RF_TOKEN_MAX) {
            model_refuse_size(a, RF_TOKEN_TOO_LARGE, shards[i].cursor.token.len, RF_TOKEN_MAX);
            return refuse_shard(a, RF_TOKEN_TOO_LARGE, shards, i);
        }
    }
    return RF_OK;
}

static rf_status check_manifest(const struct model *m, const struct model_run *r,
                                const rf_shard_input *shards, uint32_t count, uint32_t *order,
                                struct model_answer *a)
{
    if (count == 0) {
        return RF_MANIFEST_EMPTY;
    }
    order_by(shards, count, true, order);
    for (uint32_t i = 0; i < count; i++) {
        bool twice = i != 0 && shards[order[i - 1]].shard == shards[order[i]].shard;
        if (twice || model_find_shard(r, shards[order[i]].shard) != NULL) {
            return refuse_shard(a, RF_DUPLICATE_SHARD, shards, order[i]);
        }
    }
    rf_status status = check_one_by_one(shards, count, a);
    if (status != RF_OK) {
        return status;
    }
    order_by(shards, count, false, order);
    for (uint32_t i = 0; i < count; i++) {
        const rf_spec *s = &shards[order[i]].spec;
        bool bad = overlaps_existing(r, s);
        for (uint32_t k = 0; k < i; k++) {
            bad = bad || overlap(&shards[order[k]].spec, s);
        }
        if (bad) {
            return refuse_shard(a, RF_OVERLAPPING_RANGES, shards, order[i]);
        }
    }
    status = check_cursors(shards, count, a);
    if (status != RF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        if ((shards[i].shard >> 63) != 0) {
            return refuse_shard(a, RF_DERIVED_ROOT_ID, shards, i);
        }
    }
    return model_check_limits(m, &r->tenant, count, a);
}

/* Stored times of a run never go down either. */
static uint64_t not_before(const struct model_run *r, uint64_t now)
{
    uint64_t at = now < r->created_at ? r->created_at : now;
    uint64_t newest = r->ring_count != 0 ? r->ring[r->ring_count - 1].executed_at : 0;
    return at < newest ? newest : at;
}

static void remember(struct model_run *r, rf_run_op_kind kind, uint64_t op, uint64_t hash,
                     uint64_t now)
{
    r->touched = true;
    model_ring_push(
        r->ring, &r->ring_count, RF_RUN_RING,
        (struct model_entry){
            .op = op, .hash = hash, .executed_at = not_before(r, now), .kind = (uint8_t)kind});
}

static rf_status take_shards(struct model *m, struct model_run *r, uint64_t now, bool adding,
                             const rf_shard_input *shards, uint32_t count, uint64_t op,
                             struct model_answer *a)
{
    uint64_t hash = model_hash_manifest(adding ? "add_shards" : "register_shards", shards, count);
    const struct model_entry *e = model_ring_find(r->ring, r->ring_count, op);
    if (e != NULL && e->hash != hash) {
        return RF_OP_ID_CONFLICT;
    }
    if (e != NULL) {
        a->outcome = RF_REPLAYED;
        return RF_OK;
    }
    if (r->status != (adding ? RF_RUN_ACTIVE : RF_RUN_INITIALIZING)) {
        return RF_WRONG_STATUS;
    }
    uint32_t *order = malloc((count + 1) * sizeof(*order));
    rf_status status = check_manifest(m, r, shards, count, order, a);
    free(order);
    if (status != RF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        model_add_shard(r, shards[i].shard, &shards[i].spec, &shards[i].cursor);
    }
    r->status = RF_RUN_ACTIVE;
    r->root_count += count;
    remember(r, adding ? RF_RUN_OP_ADD_SHARDS : RF_RUN_OP_REGISTER_SHARDS, op, hash, now);
    tell(a, adding ? RF_EVENT_SHARDS_ADDED : RF_EVENT_RUN_ACTIVATED, r, now)->count = count;
    return RF_OK;
}

rf_status model_register_shards(struct model *m, uint64_t now, const rf_tenant *tenant,
                                uint64_t run, const rf_shard_input *shards, uint32_t count,
                                uint64_t op, struct model_answer *a)
{
    begin(a);
    struct model_run *r = model_find_run(m, tenant, run);
    if (now == 0 || r == NULL) {
        return now == 0 ? RF_INVALID_TIME : RF_RUN_NOT_FOUND;
    }
    return take_shards(m, r, now, false, shards, count, op, a);
}

rf_status model_add_shards(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           const rf_shard_input *shards, uint32_t count, uint64_t op,
                           struct model_answer *a)
{
    begin(a);
    struct model_run *r = model_find_run(m, tenant, run);
    if (now == 0 || r == NULL) {
        return now == 0 ? RF_INVALID_TIME : RF_RUN_NOT_FOUND;
    }
    return take_shards(m, r, now, true, shards, count, op, a);
}

rf_status model_create_run_with_shards(struct model *m, uint64_t now, const rf_tenant *tenant,
                                       uint64_t run, const rf_run_config *config,
                                       const rf_shard_input *shards, uint32_t count, uint64_t op,
                                       struct model_answer *a)
{
    begin(a);
    if (now == 0) {
        return RF_INVALID_TIME;
    }
    struct model_run *r = model_find_run(m, tenant, run);
    if (r != NULL) {
        return same_config(&r->config, config) ? take_shards(m, r, now, false, shards, count, op, a)
                                               : RF_CONFIG_MISMATCH;
    }
    rf_status status = check_config(config);
    if (status != RF_OK) {
        return status;
    }
    r = add_run(m, now, tenant, run, config);
    status = take_shards(m, r, now, false, shards, count, op, a);
    if (status != RF_OK) {
        m->run_count--; /* all or nothing */
    }
    return status;
}

/* --- ending --- */

rf_status model_end_run(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        rf_run_op_kind kind, uint64_t op, struct model_answer *a)
{
    const char *tag = kind == RF_RUN_OP_COMPLETE ? "complete_run"
                      : kind == RF_RUN_OP_FAIL   ? "fail_run"
                                                 : "cancel_run";
    begin(a);
    struct model_run *r = model_find_run(m, tenant, run);
    if (now == 0 || r == NULL) {
        return now == 0 ? RF_INVALID_TIME : RF_RUN_NOT_FOUND;
    }
    uint64_t hash = model_hash_empty(tag);
    const struct model_entry *e = model_ring_find(r->ring, r->ring_count, op);
    if (e != NULL && e->hash != hash) {
        return RF_OP_ID_CONFLICT;
    }
    if (e != NULL) {
        a->outcome = RF_REPLAYED;
        return RF_OK;
    }
    if (model_terminal_run(r)) {
        return RF_RUN_TERMINAL;
    }
    if (kind != RF_RUN_OP_CANCEL && r->status != RF_RUN_ACTIVE) {
        return RF_WRONG_STATUS;
    }
    r->completed_at = not_before(r, now);
    r->status = kind == RF_RUN_OP_COMPLETE ? RF_RUN_DONE
                : kind == RF_RUN_OP_FAIL   ? RF_RUN_FAILED
                                           : RF_RUN_CANCELLED;
    remember(r, kind, op, hash, now);
    tell(a,
         kind == RF_RUN_OP_COMPLETE ? RF_EVENT_RUN_COMPLETED
         : kind == RF_RUN_OP_FAIL   ? RF_EVENT_RUN_FAILED
                                    : RF_EVENT_RUN_CANCELLED,
         r, now);
    return RF_OK;
}

rf_status model_purge_run(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          struct model_answer *a)
{
    begin(a);
    struct model_run *r = model_find_run(m, tenant, run);
    if (now == 0 || r == NULL) {
        return now == 0 ? RF_INVALID_TIME : RF_RUN_NOT_FOUND;
    }
    if (!model_terminal_run(r)) {
        return RF_WRONG_STATUS;
    }
    tell(a, RF_EVENT_RUN_PURGED, r, now);
    for (uint32_t i = 0; i < r->count; i++) {
        struct model_shard *s = &r->shards[i];
        m->floor = s->fence > m->floor ? s->fence : m->floor;
        free(s->start.data);
        free(s->end.data);
        free(s->metadata.data);
        free(s->key.data);
        free(s->token.data);
        free(s->spawned);
    }
    free(r->shards);
    *r = m->runs[--m->run_count];
    return RF_OK;
}
