#include "operation.h"

#include <stdio.h>
#include <stdlib.h>

#include "admit.h"
#include "futex.h"
#include "index.h"
#include "log.h"
#include "point.h"
#include "reap.h"
#include "seq.h"
#include "slab.h"

#define LOAD64(word) atomic_load_explicit(&(word), memory_order_relaxed)

/* --- finding --- */

/* Of a run slot that may be filled for another run meanwhile. */
static bool is_tenants(const struct rf_runrec *run, const rf_tenant *tenant)
{
    _Alignas(8) rf_tenant name;
    rf_words_load(&name, &run->tenant, sizeof(name));
    return rf_tenant_equal(&name, tenant);
}

/* Whether what was read of the run since `live` was is all the same run's. */
static bool still_live(const struct rf_runrec *run, uint64_t live)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(&run->live, memory_order_relaxed) == live;
}

rf_status rf_find_run(const struct rf_map *map, const rf_tenant *tenant, uint64_t run,
                      uint32_t *slot, uint64_t *uid)
{
    uint64_t hash = rf_index_hash_run(map, tenant, run);
    uint32_t at = 0, candidate;
    while (rf_index_next_run(map, hash, &at, &candidate)) {
        const struct rf_runrec *r = rf_run_at(map, candidate);
        if (r == NULL) {
            continue;
        }
        /* acquire: pairs with the store in rf_apply; the name is fixed while it lives. */
        uint64_t live = atomic_load_explicit(&r->live, memory_order_acquire);
        if (live != 0 && __atomic_load_n(&r->run, __ATOMIC_RELAXED) == run &&
            is_tenants(r, tenant) && still_live(r, live)) {
            *slot = candidate;
            *uid = live;
            return RF_OK;
        }
    }
    return RF_RUN_NOT_FOUND;
}

bool rf_rec_visible(const struct rf_map *map, const struct rf_runrec *run, const struct rf_rec *rec)
{
    uint64_t position = __atomic_load_n(&rec->position, __ATOMIC_RELAXED);
    if (position >= atomic_load_explicit(&run->count, memory_order_acquire)) {
        return false;
    }
    uint32_t parent = __atomic_load_n(&rec->parent_slot, __ATOMIC_RELAXED);
    if (parent == 0) {
        return true;
    }
    const struct rf_rec *from = rf_rec_at(map, parent - 1);
    return from != NULL && rf_rec_version(from) >= __atomic_load_n(&rec->born, __ATOMIC_RELAXED);
}

uint32_t rf_find_shard(const struct rf_map *map, uint32_t run_slot, uint64_t uid, uint64_t shard)
{
    uint64_t hash = rf_index_hash_shard(map, uid, shard);
    const struct rf_runrec *run = rf_run_at(map, run_slot);
    uint32_t at = 0, slot;
    while (rf_index_next_shard(map, hash, &at, &slot)) {
        const struct rf_rec *rec = rf_rec_at(map, slot);
        if (rec != NULL && __atomic_load_n(&rec->shard, __ATOMIC_RELAXED) == shard &&
            __atomic_load_n(&rec->run_uid, __ATOMIC_RELAXED) == uid &&
            rf_rec_visible(map, run, rec)) {
            return slot;
        }
    }
    return RF_NO_SLOT;
}

/* A hint may be any number. An extent that belongs to nobody may not even be there. */
static inline struct rf_rec *rec_by_hint(const struct rf_map *map, uint64_t hint)
{
    uint64_t extent = (hint - 1) / RF_EXTENT_SHARDS;
    if (hint == 0 || extent >= map->extent_count ||
        atomic_load_explicit(&map->extent_tags[extent], memory_order_acquire) == 0) {
        return NULL;
    }
    return &map->extents[extent].recs[(hint - 1) % RF_EXTENT_SHARDS];
}

/* --- stages --- */

void rf_op_begin(struct rf_op *op, struct rf_actor *actor)
{
    op->actor = actor;
    op->map = actor->map;
    op->run = NULL;
    op->rec = NULL;
    op->stripe = NULL;
    op->wakes = 0;
    op->shard_locked = false;
    op->run_locked = false;
    op->taking = false;
    op->ending = false;
    op->impatient = false;
    op->epoch = 0;
    op->made.count = 0;
    op->made.chain = 0;
}

static inline void unlock_shard(struct rf_op *op)
{
    rf_unlock(op->actor, &op->rec->lock, RF_LOCK_SHARD);
    op->shard_locked = false;
}

/* Under the record's lock its identity can't change, and its run can't be taken apart. */
static inline bool is_shard(struct rf_op *op, const rf_tenant *tenant, uint64_t run, uint64_t shard)
{
    const struct rf_rec *rec = op->rec;
    if (rec->shard != shard || rec->run_uid == 0) {
        return false;
    }
    op->run = rf_run_at(op->map, rec->run_slot);
    /* seq_cst: behind the lock, see rf_lock. */
    if (op->run == NULL ||
        atomic_load_explicit(&op->run->live, memory_order_seq_cst) != rec->run_uid) {
        return false;
    }
    op->uid = rec->run_uid;
    op->run_slot = rec->run_slot;
    return op->run->run == run && rf_tenant_equal(&op->run->tenant, tenant);
}

static inline rf_status lock_rec(struct rf_op *op, struct rf_rec *rec, uint32_t slot,
                                 rf_detail *detail)
{
    op->rec = rec;
    op->shard_slot = slot;
    rf_status status = rf_lock(op->actor, &rec->lock, RF_LOCK_SHARD, detail);
    op->shard_locked = status == RF_OK;
    return status;
}

rf_status rf_op_lock_shard(struct rf_op *op, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                           uint64_t hint, rf_detail *detail)
{
    struct rf_rec *rec = rec_by_hint(op->map, hint);
    rf_status status = rf_log_admit(op->actor, op->ending, detail);
    if (__builtin_expect(status != RF_OK, 0)) {
        return status;
    }
    if (rec != NULL && __atomic_load_n(&rec->shard, __ATOMIC_RELAXED) == shard) {
        status = lock_rec(op, rec, (uint32_t)(hint - 1), detail);
        if (status != RF_OK) {
            return status;
        }
        /* Hints come from leases. Whether the shard is visible need not be asked: a lease that fits
         * was granted when it was, and one that does not is refused by its fence. */
        if (is_shard(op, tenant, run, shard)) {
            return RF_OK;
        }
        unlock_shard(op);
    }
    uint32_t run_slot;
    uint64_t uid;
    if (rf_find_run(op->map, tenant, run, &run_slot, &uid) != RF_OK) {
        return RF_NOT_FOUND;
    }
    uint32_t slot = rf_find_shard(op->map, run_slot, uid, shard);
    if (slot == RF_NO_SLOT) {
        return RF_NOT_FOUND;
    }
    status = lock_rec(op, rf_rec_at(op->map, slot), slot, detail);
    if (status != RF_OK) {
        return status;
    }
    if (!is_shard(op, tenant, run, shard)) {
        unlock_shard(op); /* purged meanwhile */
        return RF_NOT_FOUND;
    }
    return RF_OK;
}

rf_status rf_op_open_slot(struct rf_op *op, uint32_t run_slot, uint64_t uid, uint32_t shard_slot,
                          bool *gone, rf_detail *detail)
{
    struct rf_rec *rec = rf_rec_at(op->map, shard_slot);
    *gone = true;
    rf_status status = rf_log_admit(op->actor, op->ending, detail);
    if (status == RF_OK && op->impatient) {
        op->rec = rec;
        op->shard_slot = shard_slot;
        op->shard_locked = rf_try_lock(op->actor, &rec->lock, RF_LOCK_SHARD);
        status = op->shard_locked ? RF_OK : RF_BUSY;
    } else if (status == RF_OK) {
        status = lock_rec(op, rec, shard_slot, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    op->run = rf_run_at(op->map, run_slot);
    op->run_slot = run_slot;
    op->uid = uid;
    if (rec->run_uid != uid || atomic_load_explicit(&op->run->live, memory_order_seq_cst) != uid ||
        !rf_rec_visible(op->map, op->run, rec)) {
        unlock_shard(op);
        return RF_OK;
    }
    *gone = false;
    return rf_rec_view(op->map, rec, op->run, &op->run->tenant, &op->view, detail);
}

bool rf_op_skips(const struct rf_op *op, rf_status status, struct rf_skipped *skipped)
{
    /* The record is set when its lock is gone for, and not before. */
    if (status != RF_BUSY || op->rec == NULL || op->shard_locked) {
        return false;
    }
    if (!skipped->any) {
        skipped->any = true;
        skipped->pid = rf_lock_holder_pid(op->map, &op->rec->lock);
    }
    return true;
}

rf_status rf_refuse_skipped(const struct rf_skipped *skipped, rf_detail *detail)
{
    rf_refuse(detail, RF_BUSY, 0, "waiting for the lock of a shard");
    if (detail != NULL) {
        detail->pid = skipped->pid;
    }
    return RF_BUSY;
}

rf_status rf_op_lock_run(struct rf_op *op, rf_status if_gone, rf_detail *detail)
{
    rf_status status = RF_OK;
    if (!op->shard_locked && op->stripe == NULL) {
        status = rf_log_admit(op->actor, op->ending, detail);
    }
    if (status == RF_OK) {
        status = rf_lock(op->actor, &op->run->lock, RF_LOCK_RUN, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    op->run_locked = true;
    /* Purged while we waited: nothing of it may change any more, its fences least of all. */
    return atomic_load_explicit(&op->run->live, memory_order_acquire) == op->uid ? RF_OK : if_gone;
}

static bool shard_exists(void *context, uint64_t shard)
{
    struct rf_op *op = context;
    uint64_t hash = rf_index_hash_shard(op->map, op->uid, shard);
    uint32_t at = 0, slot;
    /* Not only the visible ones: under the run's lock there are no others. */
    while (rf_index_next_shard(op->map, hash, &at, &slot)) {
        const struct rf_rec *rec = rf_rec_at(op->map, slot);
        if (rec != NULL && rec->shard == shard && rec->run_uid == op->uid &&
            rec->position < LOAD64(op->run->count)) {
            return true;
        }
    }
    return false;
}

struct rf_env rf_op_env(struct rf_op *op)
{
    return (struct rf_env){
        .fence_floor = atomic_load_explicit(&op->map->header->fence_floor, memory_order_acquire),
        .lease_duration = op->run->lease_duration,
        .run_status = (rf_run_status)atomic_load_explicit(&op->run->status, memory_order_relaxed),
        .exists = shard_exists,
        .context = op,
    };
}

/* Shards of a tenant and of the store are the sums over the runs, not counters of their own: there
 * is nothing that a kill could leave wrong. What other operations are about to add counts as well,
 * so that two at once can't both slip below a limit; at worst both are refused. */
void rf_op_env_limits(struct rf_op *op, const rf_tenant *tenant, uint64_t adding,
                      struct rf_env *env)
{
    struct rf_header *h = op->map->header;
    uint32_t used = atomic_load_explicit(&h->runs_used, memory_order_acquire);
    /* seq_cst: of two operations that announce and then add up, one sees the other. */
    atomic_store_explicit(&op->run->pending, adding, memory_order_seq_cst);
    RF_POINT("limits.announced");
    env->tenant_shards = env->total_shards = 0;
    env->tenant_limit = h->max_tenant_shards;
    env->total_limit = h->max_shards;
    for (uint32_t i = 0; i < used; i++) {
        struct rf_runrec *run = rf_run_at(op->map, i);
        if (atomic_load_explicit(&run->tag, memory_order_acquire) == 0) {
            continue;
        }
        uint64_t n = atomic_load_explicit(&run->count, memory_order_seq_cst);
        if (i != op->run_slot) {
            n += atomic_load_explicit(&run->pending, memory_order_seq_cst);
        }
        env->total_shards += n;
        if (is_tenants(run, tenant)) {
            env->tenant_shards += n;
        }
    }
}

/* --- taking --- */

static void clear_taken(struct rf_desc *d)
{
    memset(d->blocks, 0, sizeof(d->blocks));
    memset(d->frees, 0, sizeof(d->frees));
    d->made_from = d->made_to = 0;
    d->extent_from = d->extent_to = 0;
    d->leaf_from = d->leaf_to = 0;
    d->run_taken = 0;
}

void rf_op_take(struct rf_op *op)
{
    struct rf_desc *d = op->actor->desc;
    uint64_t counter = LOAD64(d->tag_counter) + 1;
    op->taking = true;
    d->redo = 0;
    d->run_slot = op->run_slot;
    d->run_uid = op->uid;
    atomic_store_explicit(&d->tag_counter, counter, memory_order_relaxed);
    atomic_store_explicit(&d->tag, counter << 12 | op->actor->slot, memory_order_relaxed);
    /* release: a survivor that sees TAKING sees a descriptor that names nothing yet. */
    atomic_store_explicit(&d->state, RF_DESC_WORD(RF_DESC_TAKING, 0), memory_order_release);
    RF_POINT("op.taking");
}

/* A descriptor at rest names nothing: the next operation need not look. */
static inline void set_idle(struct rf_op *op)
{
    atomic_store_explicit(&op->actor->desc->state, RF_DESC_WORD(RF_DESC_IDLE, 0),
                          memory_order_release);
    RF_POINT("op.idle");
    /* Dying between two of its stores, a process leaves those before them and none behind: only the compiler
     * could put what is forgotten here before IDLE. */
    atomic_signal_fence(memory_order_seq_cst);
    if (op->taking) {
        clear_taken(op->actor->desc);
        op->taking = false;
    }
}

void rf_op_abort(struct rf_op *op)
{
    rf_undo(op->map, op->actor->desc);
    set_idle(op);
}

/* In state TAKING what lies from `from` to `to` is given back if we die. Both are 0 so far, so `from` goes
 * first: the other way round, and which way a compiler chooses if it may, all that the run has would be named in
 * between. */
static void begin_range(uint32_t *from, uint32_t *to, uint32_t at)
{
    assert(*from == 0 && *to == 0);
    __atomic_store_n(from, at, __ATOMIC_RELAXED);
    __atomic_store_n(to, at, __ATOMIC_RELEASE);
}

rf_status rf_op_grow(struct rf_op *op, uint64_t count, rf_detail *detail)
{
    struct rf_desc *d = op->actor->desc;
    uint64_t have = LOAD64(op->run->count);
    uint32_t extents = (uint32_t)((have + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS);
    begin_range(&d->extent_from, &d->extent_to, extents);
    begin_range(&d->leaf_from, &d->leaf_to, (extents + RF_LEAF_EXTENTS - 1) / RF_LEAF_EXTENTS);
    begin_range(&d->made_from, &d->made_to, (uint32_t)have);
    RF_POINT("op.ranges");
    return rf_dir_grow(op->actor, op->run, op->uid, have, have + count, detail);
}

rf_status rf_op_make(struct rf_op *op, struct rf_rec_new *made, rf_detail *detail)
{
    struct rf_desc *d = op->actor->desc;
    uint32_t position = d->made_to;
    uint32_t slot = rf_dir_slot(op->map, op->run, position);
    made->position = position;
    made->run_slot = op->run_slot;
    made->run_uid = op->uid;
    /* Named before anything of it is taken. */
    __atomic_store_n(&d->made_to, position + 1, __ATOMIC_RELEASE);
    RF_POINT("op.made_named");
    rf_status status = rf_rec_make(op->actor, rf_rec_at(op->map, slot), made, detail);
    if (status == RF_OK) {
        uint64_t hash = rf_index_hash_shard(op->map, op->uid, made->shard);
        status = rf_index_enter_shard(op->actor, hash, slot, detail);
    }
    return status;
}

/* --- executing --- */

void rf_op_load_counts(struct rf_op *op)
{
    struct rf_desc *d = op->actor->desc;
    d->count = LOAD64(op->run->count);
    d->available = LOAD64(op->run->available);
    d->done = LOAD64(op->run->done);
    d->split = LOAD64(op->run->split);
    d->parked = LOAD64(op->run->parked);
    d->earliest = LOAD64(op->run->earliest);
}

void rf_op_commit(struct rf_op *op, struct rf_applied *applied)
{
    applied->epoch = op->epoch = rf_lane_commit(op->actor, &op->draft);
    applied->stamp = op->draft.record->stamp;
    rf_apply(op->map, op->actor->desc, applied);
    set_idle(op);
}

static inline uint64_t next_stamp(const struct rf_op *op)
{
    uint64_t stamp = op->actor->me->lane.stamp;
    if (op->rec != NULL && op->rec->body.stamp > stamp) {
        stamp = op->rec->body.stamp;
    }
    if (op->run_locked && op->run->body.stamp > stamp) {
        stamp = op->run->body.stamp;
    }
    return stamp + 1;
}

/* The state and the place in the lane in one word: from here on the commit decides. */
static inline void announce(struct rf_op *op)
{
    /* release: the redo image is complete for whoever sees PREPARED. */
    atomic_store_explicit(&op->actor->desc->state, RF_DESC_WORD(RF_DESC_PREPARED, op->draft.offset),
                          memory_order_release);
    RF_POINT("op.prepared");
}

/* How the run's numbers change with this shard. */
static void recount(struct rf_op *op, bool listed)
{
    struct rf_desc *d = op->actor->desc;
    const struct rf_shard_state *was = op->view.state, *next = &op->step.next;
    uint32_t made = d->made_to - d->made_from;
    d->redo |= RF_REDO_COUNTS;
    rf_op_load_counts(op);
    d->count += made;
    d->available += made + (uint64_t)listed - op->rec->body.listed;
    d->done += (next->status == RF_SHARD_DONE) - (uint64_t)(was->status == RF_SHARD_DONE);
    d->split += (next->status == RF_SHARD_SPLIT) - (uint64_t)(was->status == RF_SHARD_SPLIT);
    d->parked += (next->status == RF_SHARD_PARKED) - (uint64_t)(was->status == RF_SHARD_PARKED);
    if ((next->flags & RF_SHARD_LEASED) != 0 && next->deadline < d->earliest) {
        d->earliest = next->deadline;
    }
    if (made != 0) {
        d->redo |= RF_REDO_MADE;
    }
    if (listed != (op->rec->body.listed != 0)) {
        d->redo |= RF_REDO_CLAIM_BIT;
        d->claim_bit = listed;
    }
    op->wakes = made + (uint32_t)(listed && op->rec->body.listed == 0);
    if (op->wakes != 0) {
        /* Named until the wake is done: if we die before it, the reaper wakes them. */
        atomic_store_explicit(&d->wake_run, op->run_slot + 1u, memory_order_release);
    }
}

static rf_status place_bytes(struct rf_op *op, rf_detail *detail)
{
    struct rf_desc *d = op->actor->desc;
    const struct rf_rec_body *b = &op->rec->body;
    rf_status status = RF_OK;
    if ((op->step.changes & RF_CHANGED_CURSOR) != 0) {
        if (!rf_cursor_fits(&op->step.cursor)) {
            status = rf_rec_place_cursor(op->actor, &op->step.cursor, &d->blocks[0], detail);
            d->redo |= RF_REDO_CURSOR_OUT;
        }
        d->frees[0] = b->cursor_ref;
    }
    if (status == RF_OK && (op->step.changes & RF_CHANGED_SPEC) != 0) {
        if (!rf_spec_fits(&op->step.spec)) {
            status = rf_rec_place_spec(op->actor, &op->step.spec, &d->blocks[1], detail);
            d->redo |= RF_REDO_SPEC_OUT;
        }
        d->frees[1] = b->spec_ref;
    }
    return status;
}

/* New ids go behind the ones that count; where the list has no room left, it moves. */
static rf_status place_spawned(struct rf_op *op, rf_detail *detail)
{
    struct rf_desc *d = op->actor->desc;
    const struct rf_rec_body *b = &op->rec->body;
    uint32_t old = b->state.spawned_count, all = op->step.next.spawned_count;
    uint64_t tag = LOAD64(d->tag);
    struct rf_block_ref *list = (struct rf_block_ref *)&op->rec->body.spawned_ref;
    if (b->spawned_ref.block == 0 || (size_t)all * 8 > b->spawned_ref.bytes) {
        rf_status status = rf_slab_take(op->actor, tag, (size_t)all * 8, &d->blocks[2], detail);
        if (status != RF_OK) {
            return status;
        }
        d->blocks[2].bytes = (uint32_t)rf_slab_capacity(op->map, &d->blocks[2]);
        d->redo |= RF_REDO_SPAWNED_OUT;
        d->frees[2] = b->spawned_ref;
        list = &d->blocks[2];
    }
    uint64_t *ids = (uint64_t *)(void *)rf_slab_bytes(op->map, list);
    if (list == &d->blocks[2] && old != 0) {
        rf_words_store(ids, op->view.spawned, old * 8u);
    }
    rf_words_store(ids + old, op->step.spawned_ids, op->step.spawned_new * 8u);
    RF_POINT("op.spawned_written");
    return RF_OK;
}

static inline bool needs_blocks(const struct rf_op *op)
{
    const struct rf_rec_body *b = &op->rec->body;
    uint32_t changes = op->step.changes;
    return (changes & (RF_CHANGED_SPAWNED | RF_CHANGED_SPEC)) != 0 ||
           ((changes & RF_CHANGED_CURSOR) != 0 &&
            (b->cursor_out != 0 || !rf_cursor_fits(&op->step.cursor)));
}

/* Whether the step changes what the run knows about the shard. */
static inline bool changes_run(const struct rf_op *op)
{
    const struct rf_shard_state *was = op->view.state, *next = &op->step.next;
    return was->status != next->status || was->fence != next->fence ||
           (was->flags & RF_SHARD_LEASED) != (next->flags & RF_SHARD_LEASED) ||
           (op->step.changes & RF_CHANGED_SPAWNED) != 0;
}

/* --- what the log is told about new shards --- */

static struct rf_made_record made_at(const struct rf_op_made *m, uint32_t i)
{
    struct rf_made_record r;
    if (m->inputs != NULL) {
        r = (struct rf_made_record){
            .shard = m->inputs[i].shard, .spec = m->inputs[i].spec, .cursor = m->inputs[i].cursor};
    } else {
        const rf_child *child = &m->children[m->order[i]];
        r = (struct rf_made_record){
            .shard = m->ids[i], .spec = child->spec, .cursor = child->cursor};
    }
    if (r.cursor.token.len == 0) {
        r.cursor.token = rf_bytes_none();
    }
    return r;
}

static size_t made_bytes(const struct rf_made_record *r)
{
    return RF_CODEC_HEADER + 64 + r->spec.start.len + r->spec.end.len + r->spec.metadata.len +
           r->cursor.key.len + r->cursor.token.len;
}

/* Of all of them; more than SIZE_LIMIT is not counted to its end. */
static size_t made_bytes_all(const struct rf_op_made *m, size_t limit)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < m->count && bytes <= limit; i++) {
        struct rf_made_record r = made_at(m, i);
        bytes += made_bytes(&r);
    }
    return bytes;
}

/* A body with a codec record of `codec` bytes and what the operation makes. */
size_t rf_op_body_max(const struct rf_op *op, size_t codec)
{
    size_t fixed = sizeof(struct rf_log_run) + sizeof(struct rf_log_made) + codec;
    return op->made.chain != 0 ? fixed : fixed + made_bytes_all(&op->made, RF_LANE_BODY_MAX);
}

size_t rf_op_put_made_place(const struct rf_op *op, uint8_t *out)
{
    const struct rf_log_made place = {.chain = op->made.chain,
                                      .made_from = op->actor->desc->made_from};
    memcpy(out, &place, sizeof(place));
    return sizeof(place);
}

/* [from, to) of them. */
static size_t put_made(const struct rf_op_made *m, uint32_t from, uint32_t to, uint8_t *out)
{
    size_t at = 0;
    for (uint32_t i = from; i < to; i++) {
        struct rf_made_record r = made_at(m, i);
        size_t len = 0;
        rf_status status = rf_codec_put_made(&r, out + at, RF_LANE_BODY_MAX - at, &len);
        assert(status == RF_OK);
        (void)status;
        at += len;
    }
    return at;
}

size_t rf_op_put_made(const struct rf_op *op, uint8_t *out)
{
    return op->made.chain != 0 ? 0 : put_made(&op->made, 0, op->made.count, out);
}

#define CHUNK_BYTES (48u * 1024u)
_Static_assert(RF_CODEC_MADE_MAX + sizeof(struct rf_log_chunk) <= RF_LANE_BODY_MAX &&
                   CHUNK_BYTES + sizeof(struct rf_log_chunk) <= RF_LANE_BODY_MAX &&
                   RF_CODEC_STEP_MAX + 64 <= RF_LANE_BODY_MAX,
               "a body holds any one thing");

bool rf_op_made_is_long(const struct rf_op *op, size_t codec)
{
    return op->map->header->sealing != 0 && rf_op_body_max(op, codec) > RF_LANE_BODY_MAX;
}

/* Chunk after chunk into the lane, as far as each is filled. */
static rf_status write_chain(struct rf_op *op, rf_detail *detail)
{
    struct rf_actor *actor = op->actor;
    const struct rf_op_made *m = &op->made;
    uint32_t index = 0;
    for (uint32_t from = 0; from < m->count;) {
        uint32_t to = from;
        size_t bytes = sizeof(struct rf_log_chunk), len = 0;
        while (to < m->count) {
            struct rf_made_record r = made_at(m, to);
            if (to > from && bytes + made_bytes(&r) > CHUNK_BYTES) {
                break;
            }
            bytes += made_bytes(&r);
            to++;
        }
        /* The lane has to have room again; whoever holds locks waits for the disk with them. On a full disk the rest
         * of a chain is growth like any other: what was written of it is never closed. */
        rf_status status = rf_log_admit(actor, op->ending, detail);
        if (status != RF_OK) {
            return status;
        }
        struct rf_lane_draft draft;
        const struct rf_log_chunk chunk = {.chain = m->chain, .index = index++, .count = to - from};
        rf_lane_begin(actor, bytes, &draft);
        memcpy(draft.body, &chunk, sizeof(chunk));
        len = sizeof(chunk) + put_made(m, from, to, draft.body + sizeof(chunk));
        draft.record->event = UINT16_MAX;
        draft.record->uid =
            0; /* perhaps there is no run yet; the record that closes the chain knows */
        draft.record->run = 0;
        draft.record->run_slot = 0;
        draft.record->time = 0;
        draft.record->count = to - from;
        rf_lane_finish(actor, &draft, RF_LANE_CHUNK, len, actor->me->lane.stamp + 1);
        rf_lane_commit(actor, &draft);
        RF_POINT("op.chunk");
        from = to;
    }
    return RF_OK;
}

rf_status rf_op_log_made(struct rf_op *op, size_t codec, rf_detail *detail)
{
    struct rf_desc *d = op->actor->desc;
    if (op->map->header->sealing == 0) {
        op->made.count = 0;
        return RF_OK;
    }
    if (!rf_op_made_is_long(op, codec)) {
        return RF_OK;
    }
    uint64_t counter = LOAD64(d->tag_counter) + 1;
    atomic_store_explicit(&d->tag_counter, counter, memory_order_relaxed);
    op->made.chain = counter << 12 | op->actor->slot;
    /* Before the first chunk is committed, hence at or below its epoch: a snapshot that raises this lane
     * after that commit finds it. */
    atomic_store_explicit(&d->chain,
                          atomic_load_explicit(&op->map->header->epoch, memory_order_acquire),
                          memory_order_release);
    RF_POINT("op.chain");
    return write_chain(op, detail);
}

rf_status rf_op_settle(struct rf_op *op, bool may_wait, rf_result *result)
{
    const struct rf_header *h = op->map->header;
    if (h->sealing == 0) {
        return RF_OK;
    }
    uint32_t how =
        result != NULL && result->durability != 0 ? (uint32_t)result->durability : h->durability;
    if (result != NULL) {
        result->epoch = op->epoch;
    }
    return may_wait && how == RF_WAIT && op->epoch != 0
               ? rf_log_wait(op->actor->logger, op->epoch, result == NULL ? NULL : &result->detail)
               : RF_OK;
}

__attribute__((always_inline)) static inline void write_lane(struct rf_op *op, uint64_t now,
                                                             uint16_t event)
{
    struct rf_desc *d = op->actor->desc;
    const struct rf_log_step where = {.position = op->rec->position, .made = op->made.count};
    uint8_t *at = op->draft.body;
    size_t len = 0;
    memcpy(at, &where, sizeof(where));
    at += sizeof(where);
    if (__builtin_expect(where.made != 0, 0)) {
        at += rf_op_put_made_place(op, at);
    }
    rf_status status = rf_codec_put_step(op->rec->shard, d->next_version, now, &op->step, at,
                                         RF_CODEC_STEP_MAX, &len);
    assert(status == RF_OK);
    (void)status;
    at += len;
    if (__builtin_expect(where.made != 0, 0)) {
        at += rf_op_put_made(op, at);
    }
    op->draft.record->event = event;
    op->draft.record->uid = op->uid;
    op->draft.record->run = op->run->run;
    op->draft.record->run_slot = op->run_slot;
    op->draft.record->time = now;
    op->draft.record->count = op->step.spawned_new;
    rf_lane_finish(op->actor, &op->draft, RF_LANE_STEP, (size_t)(at - op->draft.body),
                   next_stamp(op));
}

/* An upper bound of the record's body: the bytes that vary, and the rest. */
static inline size_t step_bytes_max(const struct rf_shard_step *s)
{
    size_t bytes = 256;
    if ((s->changes & RF_CHANGED_CURSOR) != 0) {
        bytes += s->cursor.key.len + s->cursor.token.len;
    }
    if ((s->changes & RF_CHANGED_SPEC) != 0) {
        bytes += s->spec.start.len + s->spec.end.len + s->spec.metadata.len;
    }
    if ((s->changes & RF_CHANGED_SPAWNED) != 0) {
        bytes += 8u * s->spawned_new;
    }
    return bytes;
}

rf_status rf_op_execute(struct rf_op *op, uint64_t now, uint32_t bound, rf_detail *detail)
{
    struct rf_desc *d = op->actor->desc;
    const char *broken = rf_shard_step_violation(&op->view, &op->step);
    if (broken != NULL) {
        rf_op_broken(op, broken);
    }
    if (!op->taking) {
        if (needs_blocks(op)) {
            rf_op_take(op);
        } else {
            d->redo = 0;
            d->run_slot = op->run_slot;
            d->run_uid = op->uid;
        }
    }
    if (op->taking) {
        rf_status status = place_bytes(op, detail);
        if (status == RF_OK && (op->step.changes & RF_CHANGED_SPAWNED) != 0) {
            status = place_spawned(op, detail);
        }
        if (status != RF_OK) {
            rf_op_abort(op);
            return status;
        }
    }
    d->redo |= RF_REDO_SHARD;
    d->shard_slot = op->shard_slot;
    d->next_version = op->rec->body.version + 1;
    d->time = now;
    if (changes_run(op)) {
        const struct rf_shard_state *next = &op->step.next;
        bool leased = (next->flags & RF_SHARD_LEASED) != 0;
        bool same_lease = leased == ((op->view.state->flags & RF_SHARD_LEASED) != 0) &&
                          op->view.state->fence == next->fence;
        /* A lease that goes on and that somebody with a later clock has listed as expired stays
         * listed: the sweep has put its deadline out of its mind. */
        recount(op, same_lease && leased ? op->rec->body.listed != 0
                                         : next->status == RF_SHARD_ACTIVE && !leased);
        if (!same_lease) {
            d->redo |= RF_REDO_BOUND;
            d->bound = leased ? bound : 0;
            d->deadline_hint = leased ? next->deadline : RF_NO_DEADLINE;
        }
    }
    rf_lane_begin(op->actor, rf_op_body_max(op, step_bytes_max(&op->step)), &op->draft);
    write_lane(op, now, (uint16_t)op->step.event);
    announce(op);
    if (d->redo == RF_REDO_SHARD && !op->taking) {
        /* Nothing but the record: the same as rf_apply does, without its questions. */
        op->epoch = rf_lane_commit(op->actor, &op->draft);
        rf_rec_write(op->map, op->rec, d, &op->step, op->epoch, op->draft.record->stamp);
        set_idle(op);
        return RF_OK;
    }
    struct rf_applied applied = {.step = &op->step};
    rf_op_commit(op, &applied);
    return RF_OK;
}

static rf_status relist(struct rf_op *op, uint64_t now, bool listed)
{
    struct rf_desc *d = op->actor->desc;
    op->step = (struct rf_shard_step){
        .outcome = RF_EXECUTED, .next = *op->view.state, .event = RF_EVENT_LEASE_RENEWED};
    d->redo = RF_REDO_SHARD;
    d->run_slot = op->run_slot;
    d->run_uid = op->uid;
    d->shard_slot = op->shard_slot;
    d->next_version = op->rec->body.version + 1;
    d->time = now;
    recount(op, listed);
    /* The sweep looks again at what has been taken off the list. */
    d->redo |= RF_REDO_BOUND;
    d->bound = (uint32_t)op->rec->body.bound;
    d->deadline_hint = listed ? RF_NO_DEADLINE : op->view.state->deadline;
    rf_lane_begin(op->actor, rf_op_body_max(op, step_bytes_max(&op->step)), &op->draft);
    write_lane(op, now, UINT16_MAX); /* nothing that observers would want to see */
    announce(op);
    struct rf_applied applied = {.step = &op->step};
    rf_op_commit(op, &applied);
    return RF_OK;
}

rf_status rf_op_list_expired(struct rf_op *op, uint64_t now, rf_detail *detail)
{
    (void)detail;
    return relist(op, now, true);
}

rf_status rf_op_unlist(struct rf_op *op, uint64_t now, rf_detail *detail)
{
    struct rf_shard_step renewed = op->step;
    (void)detail;
    rf_status status = relist(op, now, false);
    op->step = renewed;
    return status;
}

void rf_op_end(struct rf_op *op)
{
    struct rf_desc *d = op->actor->desc;
    if (op->run_locked) {
        if (LOAD64(op->run->pending) != 0) {
            atomic_store_explicit(&op->run->pending, 0, memory_order_relaxed); /* refused */
        }
        rf_unlock(op->actor, &op->run->lock, RF_LOCK_RUN);
        op->run_locked = false;
    }
    if (op->shard_locked) {
        unlock_shard(op);
    }
    if (op->stripe != NULL) {
        rf_unlock(op->actor, op->stripe, RF_LOCK_STRIPE);
        op->stripe = NULL;
    }
    if (op->made.chain != 0) {
        /* Closed, or never to be: a snapshot need not look at it any more. */
        atomic_store_explicit(&d->chain, 0, memory_order_release);
    }
    if (op->epoch != 0 && op->map->header->sealing != 0) {
        rf_log_note(op->actor);
    }
    if (op->wakes != 0) {
        rf_wake_claimers(op->map, op->run, op->wakes);
        atomic_store_explicit(&d->wake_run, 0, memory_order_release);
        op->wakes = 0;
    }
}

void rf_op_broken(struct rf_op *op, const char *what)
{
    /* Nothing is published. Dead first, so that nobody waits while a core is written. */
    fprintf(stderr, "ringfence: a broken invariant, the process stops: %s\n", what);
    rf_settling_end_all(op->actor);
    rf_declare_dead(op->map, op->actor->slot);
    abort();
}
