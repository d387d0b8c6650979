#define _GNU_SOURCE
#include "replay.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "codec.h"
#include "directory.h"
#include "index.h"
#include "record.h"
#include "seq.h"
#include "slab.h"

#define STORE64(word, value) atomic_store_explicit(&(word), (value), memory_order_relaxed)
#define LOAD64(word)         atomic_load_explicit(&(word), memory_order_relaxed)

/* No member has this slot (RF_SLOTS_MAX - 1 is odd and slot counts are odd too, but smaller), so that
 * tags of blocks taken here are never those of an operation. */
#define REPLAY_SLOT (RF_SLOTS_MAX - 1u)
#define AHEAD       8u
#define ENTRIES     16u /* of the index that wait until their places are in the cache */
#define PURGED      UINT32_MAX
#define PURGED_SOON (UINT32_MAX - 1u) /* in this batch, and not seen to be made yet */
#define NO_RUN      (UINT32_MAX - 2u) /* or above: no slot */
/* Times are callers' own; one beyond this (the year 2262) says nothing about the clock. */
#define TIME_MAX ((uint64_t)INT64_MAX)

/* What is known about a run slot besides what is in it. */
struct run_side {
    uint64_t made;    /* shards */
    uint32_t extents; /* that its directory has */
};

struct chunk {
    struct chunk *next;
    uint32_t index;
    uint32_t count;
    size_t bytes;
    uint8_t body[];
};

struct chain {
    uint64_t id; /* 0: free */
    struct chunk *first, *last;
    uint32_t next_index;
    bool broken; /* its beginning was not seen */
};

struct uid_cell {
    uint64_t uid;  /* 0: free */
    uint32_t slot; /* or PURGED, PURGED_SOON, NO_RUN */
};

struct rf_replay {
    struct rf_map *map;
    struct rf_actor actor; /* acts under no member: nobody else is there */
    struct rf_slot *me;
    struct run_side *sides;
    uint32_t free_hint; /* run slots below are taken */

    struct uid_cell *uids; /* open addressing; never more than half full */
    uint64_t uid_mask, uid_used;
    uint64_t last_uid; /* the cell that was found last */
    uint32_t last_slot;

    struct chain *chains;
    uint32_t chain_count;

    uint64_t base_uid; /* below it a run may have been purged before it was copied */
    uint32_t purged_soon;
    uint64_t next_uid;
    uint64_t floor;
    uint64_t current_uid; /* of the snapshot's run */
    struct rf_replay_tally tally;

    struct {
        uint64_t hash;
        uint32_t slot;
    } entries[ENTRIES];
    uint32_t entry_count;

    struct rf_log_order order;
    struct rf_step_record step;
    struct rf_run run;
    struct rf_shard_decoded shard;
};

/* --- what is wrong --- */

static rf_status refuse_memory(rf_detail *detail)
{
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for replaying the log");
}

static rf_status refuse_record(rf_detail *detail, uint64_t epoch, const struct rf_log_record *r,
                               const char *what)
{
    return rf_refuse(detail, RF_CORRUPT, 0,
                     "log, epoch %" PRIu64 ", lane %" PRIu32 ", stamp %" PRIu64 ": %s", epoch,
                     r->lane, r->stamp, what);
}

static void see_time(struct rf_replay *p, uint64_t time)
{
    if (time > p->tally.time && time <= TIME_MAX) {
        p->tally.time = time;
    }
}

/* --- uids --- */

static struct uid_cell *uid_cell(const struct rf_replay *p, uint64_t uid)
{
    uint64_t i = (uid * 0x9E3779B97F4A7C15ull) >> 20;
    while (p->uids[i & p->uid_mask].uid != 0 && p->uids[i & p->uid_mask].uid != uid) {
        i++;
    }
    return &p->uids[i & p->uid_mask];
}

static inline uint32_t find_uid(struct rf_replay *p, uint64_t uid)
{
    if (__builtin_expect(uid == p->last_uid, 1)) {
        return p->last_slot;
    }
    const struct uid_cell *cell = uid_cell(p, uid);
    if (cell->uid == 0) {
        return NO_RUN;
    }
    p->last_uid = uid;
    p->last_slot = cell->slot;
    return cell->slot;
}

uint32_t rf_replay_find(const struct rf_replay *p, uint64_t uid)
{
    const struct uid_cell *cell = uid_cell(p, uid);
    return cell->uid == 0 || cell->slot >= NO_RUN ? RF_NO_SLOT : cell->slot;
}

static rf_status set_uid(struct rf_replay *p, uint64_t uid, uint32_t slot, rf_detail *detail)
{
    if (2 * p->uid_used >= p->uid_mask) {
        uint64_t size = 2 * (p->uid_mask + 1);
        struct uid_cell *old = p->uids;
        struct uid_cell *more = calloc(size, sizeof(*more));
        if (more == NULL) {
            return refuse_memory(detail);
        }
        uint64_t count = p->uid_mask + 1;
        p->uids = more;
        p->uid_mask = size - 1;
        for (uint64_t i = 0; i < count; i++) {
            if (old[i].uid != 0) {
                *uid_cell(p, old[i].uid) = old[i];
            }
        }
        free(old);
    }
    struct uid_cell *cell = uid_cell(p, uid);
    p->uid_used += cell->uid == 0;
    *cell = (struct uid_cell){.uid = uid, .slot = slot};
    p->last_uid = uid;
    p->last_slot = slot;
    return RF_OK;
}

/* --- making --- */

rf_status rf_replay_begin(struct rf_map *map, struct rf_replay **out, rf_detail *detail)
{
    struct rf_replay *p = aligned_alloc(RF_LINE, (sizeof(*p) + RF_LINE - 1) / RF_LINE * RF_LINE);
    if (p == NULL) {
        return refuse_memory(detail);
    }
    memset(p, 0, sizeof(*p));
    size_t slot_bytes = (sizeof(struct rf_slot) + RF_LINE - 1) / RF_LINE * RF_LINE;
    p->map = map;
    p->me = aligned_alloc(RF_LINE, slot_bytes);
    p->sides = calloc(map->run_count, sizeof(p->sides[0]));
    p->uid_mask = 1023;
    p->uids = calloc(p->uid_mask + 1, sizeof(p->uids[0]));
    if (p->me == NULL || p->sides == NULL || p->uids == NULL) {
        rf_replay_free(p);
        return refuse_memory(detail);
    }
    memset(p->me, 0, slot_bytes);
    p->actor.map = map;
    p->actor.me = p->me;
    p->actor.desc = &p->me->desc;
    p->actor.slot = REPLAY_SLOT;
    p->base_uid = p->next_uid = 1;
    *out = p;
    return RF_OK;
}

static void drop_chain(struct chain *c)
{
    while (c->first != NULL) {
        struct chunk *next = c->first->next;
        free(c->first);
        c->first = next;
    }
    *c = (struct chain){0};
}

static void drop_chains(struct rf_replay *p)
{
    for (uint32_t i = 0; i < p->chain_count; i++) {
        drop_chain(&p->chains[i]);
    }
    p->chain_count = 0;
}

void rf_replay_free(struct rf_replay *p)
{
    drop_chains(p);
    rf_log_order_free(&p->order);
    free(p->chains);
    free(p->me);
    free(p->sides);
    free(p->uids);
    free(p);
}

void rf_replay_base(struct rf_replay *p, uint64_t next_uid, uint64_t floor, uint64_t time)
{
    p->base_uid = p->next_uid = next_uid;
    p->floor = floor;
    see_time(p, time);
}

struct rf_replay_tally rf_replay_tally(const struct rf_replay *p)
{
    return p->tally;
}

/* A tag for blocks that no other has. */
static void fresh_tag(struct rf_replay *p)
{
    struct rf_desc *d = p->actor.desc;
    uint64_t counter = LOAD64(d->tag_counter) + 1;
    STORE64(d->tag_counter, counter);
    STORE64(d->tag, counter << 12 | REPLAY_SLOT);
}

static struct rf_rec *rec_at(const struct rf_replay *p, const struct rf_runrec *run, uint32_t slot,
                             uint64_t position)
{
    if (position >= (uint64_t)p->sides[slot].extents * RF_EXTENT_SHARDS) {
        return NULL;
    }
    return rf_rec_at(p->map, rf_dir_slot(p->map, run, position));
}

static bool is_shard(const struct rf_rec *rec, uint64_t uid, uint64_t position)
{
    return rec != NULL && rec->run_uid == uid && rec->position == position;
}

static rf_status take_run_slot(struct rf_replay *p, uint32_t *slot, rf_detail *detail)
{
    struct rf_header *h = p->map->header;
    for (uint32_t s = p->free_hint; s < h->runs.count; s++) {
        if (s >= atomic_load(&h->runs_used)) {
            rf_status status = rf_region_ensure(p->map, h->runs.offset + s * h->runs.stride,
                                                h->runs.stride, detail);
            if (status != RF_OK) {
                return status;
            }
            atomic_store(&h->runs_used, s + 1);
        }
        if (atomic_load(&rf_run_at(p->map, s)->tag) == 0) {
            *slot = s;
            p->free_hint = s + 1;
            return RF_OK;
        }
    }
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0, "all run slots are in use");
}

static void write_run(struct rf_runrec *r, const struct rf_run *run, uint64_t version,
                      uint64_t epoch, uint64_t stamp)
{
    r->body = (struct rf_run_body){
        .version = version,
        .epoch = epoch,
        .stamp = stamp,
        .created_at = run->created_at,
        .completed_at = run->completed_at,
        .root_count = run->root_count,
        .status = (uint32_t)run->status,
        .ring_count = run->ring_count,
        .ring_next = run->ring_next,
        .ring = run->ring,
    };
    atomic_store_explicit(&r->status, (uint32_t)run->status, memory_order_relaxed);
}

static void see_run_times(struct rf_replay *p, const struct rf_run *run)
{
    see_time(p, run->created_at);
    see_time(p, run->completed_at);
    for (uint32_t i = 0; i < run->ring_count; i++) {
        see_time(p, run->ring.executed_at[i]);
    }
}

static rf_status make_run(struct rf_replay *p, uint64_t uid, const struct rf_run *run,
                          uint32_t *slot, rf_detail *detail)
{
    rf_status status = take_run_slot(p, slot, detail);
    if (status == RF_OK) {
        status = set_uid(p, uid, *slot, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    struct rf_runrec *r = rf_run_at(p->map, *slot);
    r->run = run->run;
    r->tenant = run->tenant;
    r->lease_duration = run->config.lease_duration;
    r->has_max_retries = run->config.has_max_retries;
    r->max_retries = run->config.has_max_retries ? run->config.max_retries : 0;
    r->semantics = (uint8_t)run->config.semantics;
    STORE64(r->count, 0);
    STORE64(r->available, 0);
    STORE64(r->done, 0);
    STORE64(r->split, 0);
    STORE64(r->parked, 0);
    STORE64(r->pending, 0);
    STORE64(r->earliest, RF_NO_DEADLINE);
    for (uint32_t i = 0; i < RF_RUN_LEAVES / 64; i++) {
        STORE64(r->top[i], 0);
    }
    for (uint32_t i = 0; i < RF_RUN_LEAVES; i++) {
        atomic_store_explicit(&r->leaf[i], 0, memory_order_relaxed);
    }
    STORE64(r->tag, uid);
    p->sides[*slot] = (struct run_side){0};
    p->next_uid = uid >= p->next_uid ? uid + 1 : p->next_uid;
    return rf_index_enter_run(&p->actor, rf_index_hash_run(p->map, &r->tenant, r->run), *slot,
                              detail);
}

static rf_status enter_all(struct rf_replay *p, rf_detail *detail)
{
    rf_status status = RF_OK;
    for (uint32_t i = 0; status == RF_OK && i < p->entry_count; i++) {
        status = rf_index_enter_shard(&p->actor, p->entries[i].hash, p->entries[i].slot, detail);
    }
    p->entry_count = 0;
    return status;
}

/* Into the index, soon: nobody looks for it before the end. */
static rf_status enter_soon(struct rf_replay *p, uint64_t hash, uint32_t slot, rf_detail *detail)
{
    rf_status status = p->entry_count == ENTRIES ? enter_all(p, detail) : RF_OK;
    rf_index_prefetch_shard(p->map, hash);
    p->entries[p->entry_count].hash = hash;
    p->entries[p->entry_count++].slot = slot;
    return status;
}

static rf_status drop_run(struct rf_replay *p, uint32_t slot, uint64_t uid, rf_detail *detail)
{
    struct rf_map *map = p->map;
    rf_status status = enter_all(p, detail); /* or they would be entered when it is gone */
    struct rf_runrec *r = rf_run_at(map, slot);
    uint64_t places = (uint64_t)p->sides[slot].extents * RF_EXTENT_SHARDS;
    for (uint64_t position = 0; position < places; position++) {
        uint32_t at = rf_dir_slot(map, r, position);
        struct rf_rec *rec = rf_rec_at(map, at);
        if (is_shard(rec, uid, position)) {
            rf_index_leave_shard(map, rf_index_hash_shard(map, uid, rec->shard), at);
            rf_rec_undo(map, rec);
            rec->run_uid = 0;
        }
    }
    rf_dir_drop(map, r, uid);
    rf_index_leave_run(map, rf_index_hash_run(map, &r->tenant, r->run), slot);
    STORE64(r->count, 0);
    STORE64(r->tag, 0);
    p->free_hint = slot < p->free_hint ? slot : p->free_hint;
    return status;
}

/* Many extents that will all be written: their pages at once, which is much cheaper than one by one. Where
 * the kernel can't, nothing is lost. */
static void populate(const struct rf_replay *p, const struct rf_runrec *run, uint32_t from,
                     uint32_t to)
{
    const size_t page = 4096;
    for (uint32_t j = from; j < to;) {
        uint32_t first = rf_dir_slot(p->map, run, (uint64_t)j * RF_EXTENT_SHARDS), count = 1;
        while (j + count < to &&
               rf_dir_slot(p->map, run, (uint64_t)(j + count) * RF_EXTENT_SHARDS) ==
                   first + count * RF_EXTENT_SHARDS) {
            count++;
        }
        uintptr_t begin = (uintptr_t)rf_extent_at(p->map, first / RF_EXTENT_SHARDS);
        uintptr_t end = begin + (size_t)count * sizeof(struct rf_extent);
        if (count > 4) {
            begin = (begin + page - 1) / page * page;
            madvise((void *)begin, (end - begin) / page * page, MADV_POPULATE_WRITE);
        }
        j += count;
    }
}

/* Room in the run's directory for a position. */
static rf_status grow(struct rf_replay *p, uint32_t slot, uint64_t uid, uint64_t positions,
                      rf_detail *detail)
{
    struct rf_desc *d = p->actor.desc;
    struct run_side *side = &p->sides[slot];
    uint64_t have = (uint64_t)side->extents * RF_EXTENT_SHARDS;
    if (positions <= have) {
        return RF_OK;
    }
    d->extent_from = d->extent_to = side->extents;
    d->leaf_from = d->leaf_to = (side->extents + RF_LEAF_EXTENTS - 1) / RF_LEAF_EXTENTS;
    rf_status status =
        rf_dir_grow(&p->actor, rf_run_at(p->map, slot), uid, have, positions, detail);
    if (status == RF_OK) {
        uint32_t from = side->extents;
        side->extents = (uint32_t)((positions + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS);
        populate(p, rf_run_at(p->map, slot), from, side->extents);
    }
    return status;
}

/* A shard that is not there yet. */
static rf_status make_shard(struct rf_replay *p, uint32_t slot, struct rf_rec_new *made,
                            rf_detail *detail)
{
    struct rf_runrec *run = rf_run_at(p->map, slot);
    uint32_t at = rf_dir_slot(p->map, run, made->position);
    made->run_slot = slot;
    fresh_tag(p);
    rf_status status = rf_rec_make(&p->actor, rf_rec_at(p->map, at), made, detail);
    if (status == RF_OK) {
        uint64_t hash = rf_index_hash_shard(p->map, made->run_uid, made->shard);
        status = enter_soon(p, hash, at, detail);
    }
    if (status == RF_OK) {
        p->sides[slot].made++;
        if (made->position >= LOAD64(run->count)) {
            STORE64(run->count, made->position + 1ull);
        }
    }
    return status;
}

/* --- from a snapshot --- */

rf_status rf_replay_run(struct rf_replay *p, const struct rf_snapshot_run *entry, rf_bytes body,
                        rf_detail *detail)
{
    size_t used;
    uint32_t slot;
    rf_status status = rf_codec_get_run(body, &p->run, &used);
    if (status != RF_OK || used != body.len || entry->uid == 0 ||
        find_uid(p, entry->uid) != NO_RUN) {
        return rf_refuse(detail, status == RF_VERSION_MISMATCH ? status : RF_CORRUPT, 0,
                         "snapshot: the run with uid %" PRIu64, entry->uid);
    }
    status = make_run(p, entry->uid, &p->run, &slot, detail);
    if (status == RF_OK) {
        write_run(rf_run_at(p->map, slot), &p->run, entry->version, entry->epoch, entry->stamp);
        see_run_times(p, &p->run);
        p->current_uid = entry->uid;
        if (entry->shards != 0) {
            status = grow(p, slot, entry->uid, entry->shards, detail);
        }
    }
    return status;
}

/* Where the parent is. Parents are older than their children, but another run's purge may have cut
 * the directory differently: only the position counts. */
static rf_status parent_slot(struct rf_replay *p, uint32_t slot, uint64_t uid, uint32_t position,
                             uint32_t *out, rf_detail *detail)
{
    rf_status status = grow(p, slot, uid, position + 1ull, detail);
    *out = status == RF_OK ? rf_dir_slot(p->map, rf_run_at(p->map, slot), position) + 1 : 0;
    return status;
}

static rf_status place_spawned(struct rf_replay *p, struct rf_rec *rec, const uint64_t *ids,
                               uint32_t count, rf_detail *detail)
{
    struct rf_block_ref *ref = &rec->body.spawned_ref;
    rf_status status =
        rf_slab_take(&p->actor, LOAD64(p->actor.desc->tag), (size_t)count * 8, ref, detail);
    if (status == RF_OK) {
        ref->bytes = (uint32_t)rf_slab_capacity(p->map, ref);
        rf_words_store(rf_slab_bytes(p->map, ref), ids, (size_t)count * 8);
    }
    return status;
}

rf_status rf_replay_shard(struct rf_replay *p, const struct rf_snapshot_shard *entry, rf_bytes body,
                          rf_detail *detail)
{
    size_t used;
    uint64_t uid = p->current_uid;
    uint32_t slot = find_uid(p, uid);
    struct rf_runrec *run = rf_run_at(p->map, slot);
    struct rf_shard_decoded *s = &p->shard;
    rf_status status = rf_codec_get_shard(body, s, &used);
    if (status == RF_OK &&
        (used != body.len || s->view.run != run->run ||
         !rf_tenant_equal(&s->tenant, &run->tenant) || entry->version == 0 ||
         (entry->parent != 0) != ((s->state.flags & RF_SHARD_HAS_PARENT) != 0))) {
        status = RF_CORRUPT;
    }
    if (status != RF_OK) {
        return rf_refuse(detail, status == RF_VERSION_MISMATCH ? status : RF_CORRUPT, 0,
                         "snapshot: position %" PRIu32 " of the run with uid %" PRIu64,
                         entry->position, uid);
    }
    struct rf_rec_new made = {.shard = s->view.shard,
                              .run_uid = uid,
                              .born = entry->born,
                              .position = entry->position,
                              .state = s->state,
                              .spec = s->view.spec,
                              .cursor = s->view.cursor};
    status = grow(p, slot, uid, entry->position + 1ull, detail);
    if (status == RF_OK && entry->parent != 0) {
        status = parent_slot(p, slot, uid, entry->parent - 1, &made.parent_slot, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    struct rf_rec *rec = rec_at(p, run, slot, entry->position);
    if (is_shard(rec, uid, entry->position)) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "snapshot: position %" PRIu32 " of the run with uid %" PRIu64 " twice",
                         entry->position, uid);
    }
    status = make_shard(p, slot, &made, detail);
    if (status == RF_OK && s->state.spawned_count != 0) {
        status = place_spawned(p, rec, s->spawned, s->state.spawned_count, detail);
    }
    rec->body.version = entry->version;
    rec->body.epoch = entry->epoch;
    rec->body.stamp = entry->stamp;
    memcpy(&rec->ring, &s->ring, sizeof(s->ring));
    if (s->state.ring_count != 0) {
        see_time(p, s->ring.executed_at[rf_ring_newest(s->state.ring_next, RF_SHARD_RING)]);
    }
    return status;
}

rf_status rf_replay_forget(struct rf_replay *p, rf_detail *detail)
{
    uint32_t slot = find_uid(p, p->current_uid);
    rf_status status = drop_run(p, slot, p->current_uid, detail);
    /* Not as purged: if the log has made it as well, it is made again and purged again. */
    uid_cell(p, p->current_uid)->slot = NO_RUN;
    p->last_uid = 0;
    return status;
}

/* --- chains --- */

static struct chain *chain_of(struct rf_replay *p, uint64_t id, bool make)
{
    for (uint32_t i = 0; i < p->chain_count; i++) {
        if (p->chains[i].id == id) {
            return &p->chains[i];
        }
    }
    if (!make) {
        return NULL;
    }
    for (uint32_t i = 0; i < p->chain_count; i++) {
        if (p->chains[i].id == 0) {
            p->chains[i].id = id;
            return &p->chains[i];
        }
    }
    struct chain *more = realloc(p->chains, (p->chain_count + 1) * sizeof(*more));
    if (more == NULL) {
        return NULL;
    }
    p->chains = more;
    p->chains[p->chain_count] = (struct chain){.id = id};
    return &p->chains[p->chain_count++];
}

static rf_status keep_chunk(struct rf_replay *p, uint64_t epoch, const struct rf_log_record *r,
                            rf_detail *detail)
{
    struct rf_log_chunk head;
    if (r->body_bytes < sizeof(head)) {
        return refuse_record(detail, epoch, r, "a chunk that is too short");
    }
    memcpy(&head, r + 1, sizeof(head));
    if (head.chain == 0) {
        return refuse_record(detail, epoch, r, "a chunk of no chain");
    }
    struct chain *c = chain_of(p, head.chain, true);
    size_t bytes = r->body_bytes - sizeof(head);
    struct chunk *chunk = c == NULL ? NULL : malloc(sizeof(*chunk) + bytes);
    if (chunk == NULL) {
        return refuse_memory(detail);
    }
    /* If its first chunks lie before where the replay began, what it made is in the snapshot. */
    c->broken = c->broken || head.index != c->next_index;
    c->next_index = head.index + 1;
    *chunk = (struct chunk){.index = head.index, .count = head.count, .bytes = bytes};
    memcpy(chunk->body, (const uint8_t *)(r + 1) + sizeof(head), bytes);
    if (c->last == NULL) {
        c->first = chunk;
    } else {
        c->last->next = chunk;
    }
    c->last = chunk;
    return RF_OK;
}

/* --- what a record makes --- */

/* The parts of a STEP's or RUN's body. */
struct parts {
    struct rf_log_step step;
    struct rf_log_run run;
    struct rf_log_made made;
    uint32_t count; /* shards made */
    rf_bytes codec; /* and what follows it */
};

static bool take_part(rf_bytes *from, void *to, size_t bytes)
{
    if (from->len < bytes) {
        return false;
    }
    memcpy(to, from->data, bytes);
    *from = rf_bytes_of((const uint8_t *)from->data + bytes, from->len - bytes);
    return true;
}

static inline bool cut(const struct rf_log_record *r, struct parts *parts)
{
    rf_bytes rest = rf_bytes_of(r + 1, r->body_bytes);
    bool whole = true;
    if (r->kind == RF_LOG_STEP) {
        whole = take_part(&rest, &parts->step, sizeof(parts->step));
        parts->count = parts->step.made;
    } else {
        whole = take_part(&rest, &parts->run, sizeof(parts->run));
        parts->count = parts->run.made;
    }
    if (whole && parts->count != 0) {
        whole = take_part(&rest, &parts->made, sizeof(parts->made));
    }
    parts->codec = rest;
    return whole;
}

/* Where made shards are read from: the rest of the record, or the chunks of a chain. */
struct source {
    rf_bytes rest;
    const struct chunk *chunk;
    uint32_t left; /* in this chunk */
};

static bool next_made(struct source *s, struct rf_made_record *made)
{
    size_t used;
    while (s->chunk != NULL && s->left == 0) {
        if (s->rest.len != 0) {
            return false;
        }
        s->left = s->chunk->count;
        s->rest = rf_bytes_of(s->chunk->body, s->chunk->bytes);
        s->chunk = s->chunk->next;
    }
    if (rf_codec_get_made(s->rest, made, &used) != RF_OK) {
        return false;
    }
    s->rest = rf_bytes_of((const uint8_t *)s->rest.data + used, s->rest.len - used);
    s->left -= s->left != 0;
    return true;
}

/* Skips the codec's own record: what follows are the made ones. */
static bool source_of(struct rf_replay *p, const struct parts *parts, struct source *s)
{
    *s = (struct source){.rest = parts->codec};
    if (parts->made.chain != 0) {
        const struct chain *c = chain_of(p, parts->made.chain, false);
        s->rest = rf_bytes_of("", 0);
        s->chunk = c == NULL || c->broken ? NULL : c->first;
        return s->chunk != NULL;
    }
    enum rf_codec_type type;
    size_t size;
    if (rf_codec_peek(parts->codec, &type, &size) != RF_OK) {
        return false;
    }
    s->rest = rf_bytes_of((const uint8_t *)parts->codec.data + size, parts->codec.len - size);
    return true;
}

static bool all_there(struct rf_replay *p, uint32_t slot, uint64_t uid, const struct parts *parts)
{
    const struct rf_runrec *run = rf_run_at(p->map, slot);
    for (uint32_t i = 0; i < parts->count; i++) {
        uint64_t position = (uint64_t)parts->made.made_from + i;
        if (!is_shard(rec_at(p, run, slot, position), uid, position)) {
            return false;
        }
    }
    return true;
}

/* The shards that a record made, where they are not there yet. */
static rf_status make_shards(struct rf_replay *p, uint64_t epoch, const struct rf_log_record *r,
                             const struct parts *parts, uint32_t slot, rf_detail *detail)
{
    struct rf_runrec *run = rf_run_at(p->map, slot);
    struct source source;
    bool split = r->kind == RF_LOG_STEP;
    if (all_there(p, slot, r->uid, parts)) {
        return RF_OK;
    }
    if (!source_of(p, parts, &source)) {
        return refuse_record(detail, epoch, r, "the shards that it made are not in the log");
    }
    rf_status status =
        grow(p, slot, r->uid, (uint64_t)parts->made.made_from + parts->count, detail);
    uint32_t parent = 0;
    uint64_t parent_id = 0, born = 0;
    if (status == RF_OK && split) {
        size_t used;
        if (rf_codec_get_step(parts->codec, &p->step, &used) != RF_OK) {
            return refuse_record(detail, epoch, r, "a step that can't be read");
        }
        parent_id = p->step.shard;
        born = p->step.version;
        status = parent_slot(p, slot, r->uid, parts->step.position, &parent, detail);
    }
    for (uint32_t i = 0; status == RF_OK && i < parts->count; i++) {
        struct rf_made_record made;
        uint64_t position = (uint64_t)parts->made.made_from + i;
        if (!next_made(&source, &made) || ((made.shard & RF_DERIVED_BIT) != 0) != split) {
            return refuse_record(detail, epoch, r, "a shard that it made can't be read");
        }
        const struct rf_rec *rec = rec_at(p, run, slot, position);
        if (is_shard(rec, r->uid, position)) {
            if (rec->shard != made.shard) {
                return refuse_record(detail, epoch, r, "it made a shard where another is");
            }
            continue;
        }
        struct rf_rec_new new = {
            .shard = made.shard,
            .run_uid = r->uid,
            .born = born,
            .position = (uint32_t)position,
            .parent_slot = parent,
            .state = split ? rf_shard_new_derived(parent_id, (rf_semantics)run->semantics)
                           : rf_shard_new_root((rf_semantics)run->semantics),
            .spec = made.spec,
            .cursor = made.cursor,
        };
        status = make_shard(p, slot, &new, detail);
    }
    if (status == RF_OK && (source.chunk != NULL || source.left != 0 || source.rest.len != 0)) {
        return refuse_record(detail, epoch, r, "it made more shards than it says");
    }
    return status;
}

/* Whether a record of a run that is not there can be left out. */
static rf_status unknown_run(const struct rf_replay *p, uint64_t epoch,
                             const struct rf_log_record *r, uint32_t slot, rf_detail *detail)
{
    if (slot != NO_RUN || r->uid < p->base_uid) {
        return RF_OK;
    }
    return refuse_record(detail, epoch, r, "a run that was never made");
}

/* Purges come first. Nothing else of a run matters that is purged in this batch, its making neither; and
 * its room is there for those that came after. */
static rf_status purge(struct rf_replay *p, uint64_t epoch, const struct rf_log_record *r,
                       rf_detail *detail)
{
    struct rf_log_purge purge;
    uint32_t slot = find_uid(p, r->uid);
    if (r->body_bytes < sizeof(purge) || r->uid == 0 || slot > NO_RUN) {
        return refuse_record(detail, epoch, r, "a purge that can't be read");
    }
    memcpy(&purge, r + 1, sizeof(purge));
    see_time(p, purge.time);
    p->floor = purge.floor > p->floor ? purge.floor : p->floor;
    if (slot == NO_RUN) {
        bool soon = r->uid >= p->base_uid;
        p->purged_soon += soon;
        return set_uid(p, r->uid, soon ? PURGED_SOON : PURGED, detail);
    }
    p->tally.applied++;
    rf_status status = drop_run(p, slot, r->uid, detail);
    return status != RF_OK ? status : set_uid(p, r->uid, PURGED, detail);
}

static rf_status purge_all(struct rf_replay *p, const struct rf_log_batch *batch, rf_detail *detail)
{
    const uint8_t *at = batch->records, *end = at + batch->header.record_bytes;
    rf_status status = RF_OK;
    while (status == RF_OK && at != end) {
        const struct rf_log_record *r = (const void *)at;
        if (r->kind == RF_LOG_PURGE) {
            status = purge(p, batch->header.epoch, r, detail);
        }
        at += r->bytes;
    }
    return status;
}

/* The second pass over a batch: runs, shards and chunks. */
static rf_status make(struct rf_replay *p, uint64_t epoch, const struct rf_log_record *r,
                      rf_detail *detail)
{
    if (r->kind == RF_LOG_CHUNK) {
        return keep_chunk(p, epoch, r, detail);
    }
    if (r->kind == RF_LOG_PURGE) {
        return RF_OK;
    }
    struct parts parts = {.count = 0};
    if (!cut(r, &parts)) {
        return refuse_record(detail, epoch, r, "a record that is too short");
    }
    uint32_t slot = find_uid(p, r->uid);
    rf_status status = RF_OK;
    bool created = r->kind == RF_LOG_RUN && (parts.run.flags & RF_LOG_RUN_CREATED) != 0;
    if (created && slot == PURGED_SOON) {
        p->purged_soon--;
        p->next_uid = r->uid >= p->next_uid ? r->uid + 1 : p->next_uid;
        status = set_uid(p, r->uid, slot = PURGED, detail);
    }
    if (created && slot == NO_RUN && r->uid != 0) {
        size_t used;
        if (rf_codec_get_run(parts.codec, &p->run, &used) != RF_OK || parts.run.version == 0) {
            return refuse_record(detail, epoch, r, "a run that can't be read");
        }
        status = make_run(p, r->uid, &p->run, &slot, detail);
        if (status == RF_OK) {
            /* As it was before this record, which is applied in its turn. */
            rf_run_at(p->map, slot)->body.version = parts.run.version - 1;
        }
    }
    if (status == RF_OK && parts.count != 0) {
        if (slot >= NO_RUN) {
            status = unknown_run(p, epoch, r, slot, detail);
        } else {
            status = make_shards(p, epoch, r, &parts, slot, detail);
        }
        struct chain *c = parts.made.chain == 0 ? NULL : chain_of(p, parts.made.chain, false);
        if (c != NULL) {
            drop_chain(c);
        }
    }
    return status;
}

/* --- what a record changes --- */

static rf_status apply_run(struct rf_replay *p, uint64_t epoch, const struct rf_log_record *r,
                           const struct parts *parts, uint32_t slot, rf_detail *detail)
{
    struct rf_runrec *run = rf_run_at(p->map, slot);
    size_t used;
    if (parts->run.version <= run->body.version) {
        return RF_OK;
    }
    if (parts->run.version != run->body.version + 1) {
        return refuse_record(detail, epoch, r, "a change of its run before it is missing");
    }
    rf_status status = rf_codec_get_run(parts->codec, &p->run, &used);
    if (status != RF_OK || p->run.run != run->run ||
        !rf_tenant_equal(&p->run.tenant, &run->tenant)) {
        return refuse_record(detail, epoch, r, "a run that can't be read");
    }
    write_run(run, &p->run, parts->run.version, epoch, r->stamp);
    see_run_times(p, &p->run);
    p->tally.applied++;
    return RF_OK;
}

/* Blocks for bytes that do not fit the record; what was there before goes to frees. */
static rf_status place_bytes(struct rf_replay *p, struct rf_rec *rec,
                             const struct rf_shard_step *step, rf_detail *detail)
{
    struct rf_desc *d = p->actor.desc;
    rf_status status = RF_OK;
    memset(d->blocks, 0, sizeof(d->blocks));
    memset(d->frees, 0, sizeof(d->frees));
    fresh_tag(p);
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        d->frees[0] = rec->body.cursor_ref;
        if (!rf_cursor_fits(&step->cursor)) {
            d->redo |= RF_REDO_CURSOR_OUT;
            status = rf_rec_place_cursor(&p->actor, &step->cursor, &d->blocks[0], detail);
        }
    }
    if (status == RF_OK && (step->changes & RF_CHANGED_SPEC) != 0) {
        d->frees[1] = rec->body.spec_ref;
        if (!rf_spec_fits(&step->spec)) {
            d->redo |= RF_REDO_SPEC_OUT;
            status = rf_rec_place_spec(&p->actor, &step->spec, &d->blocks[1], detail);
        }
    }
    return status;
}

static rf_status append_spawned(struct rf_replay *p, struct rf_rec *rec,
                                const struct rf_shard_step *step, rf_detail *detail)
{
    struct rf_desc *d = p->actor.desc;
    struct rf_block_ref *list = &rec->body.spawned_ref;
    uint32_t old = rec->body.state.spawned_count, all = step->next.spawned_count;
    if (list->block == 0 || (size_t)all * 8 > list->bytes) {
        rf_status status =
            rf_slab_take(&p->actor, LOAD64(d->tag), (size_t)all * 8, &d->blocks[2], detail);
        if (status != RF_OK) {
            return status;
        }
        d->blocks[2].bytes = (uint32_t)rf_slab_capacity(p->map, &d->blocks[2]);
        d->redo |= RF_REDO_SPAWNED_OUT;
        d->frees[2] = *list;
        if (old != 0) {
            rf_words_store(rf_slab_bytes(p->map, &d->blocks[2]), rf_slab_bytes(p->map, list),
                           old * 8u);
        }
        list = &d->blocks[2];
    }
    rf_words_store(rf_slab_bytes(p->map, list) + old * 8u, step->spawned_ids,
                   step->spawned_new * 8u);
    return RF_OK;
}

static inline bool needs_blocks(const struct rf_rec *rec, const struct rf_shard_step *step)
{
    return (step->changes & (RF_CHANGED_SPAWNED | RF_CHANGED_SPEC)) != 0 ||
           ((step->changes & RF_CHANGED_CURSOR) != 0 &&
            (rec->body.cursor_out != 0 || !rf_cursor_fits(&step->cursor)));
}

static rf_status apply_step(struct rf_replay *p, uint64_t epoch, const struct rf_log_record *r,
                            const struct parts *parts, struct rf_rec *rec, rf_detail *detail)
{
    struct rf_desc *d = p->actor.desc;
    size_t used;
    if (!is_shard(rec, r->uid, parts->step.position)) {
        return refuse_record(detail, epoch, r, "a shard that was never made");
    }
    if (rf_codec_get_step(parts->codec, &p->step, &used) != RF_OK || p->step.shard != rec->shard) {
        return refuse_record(detail, epoch, r, "a step that can't be read");
    }
    const struct rf_shard_step *step = &p->step.step;
    see_time(p, p->step.time);
    if (p->step.version <= rec->body.version) {
        return RF_OK;
    }
    if (p->step.version != rec->body.version + 1) {
        return refuse_record(detail, epoch, r, "a change of its shard before it is missing");
    }
    if (step->next.fence < rec->body.state.fence ||
        step->next.spawned_count != rec->body.state.spawned_count + step->spawned_new ||
        step->next.spawned_count > RF_SPAWNED_MAX) {
        return refuse_record(detail, epoch, r, "a step that its shard can't have made");
    }
    d->redo = RF_REDO_SHARD;
    d->next_version = p->step.version;
    bool placing = needs_blocks(rec, step);
    if (placing) {
        rf_status status = place_bytes(p, rec, step, detail);
        if (status == RF_OK && (step->changes & RF_CHANGED_SPAWNED) != 0) {
            status = append_spawned(p, rec, step, detail);
        }
        if (status != RF_OK) {
            return status;
        }
    }
    rf_rec_write(p->map, rec, d, step, epoch, r->stamp);
    for (unsigned i = 0; placing && i < 3; i++) {
        rf_slab_give(p->map, &d->frees[i]);
    }
    p->tally.applied++;
    return RF_OK;
}

/* A record that is about to be applied, and the shard that it will probably change. */
struct ahead {
    const struct rf_log_record *record;
    struct rf_rec *rec;
};

static inline rf_status apply(struct rf_replay *p, uint64_t epoch, const struct ahead *ahead,
                              rf_detail *detail)
{
    const struct rf_log_record *r = ahead->record;
    uint32_t slot = find_uid(p, r->uid);
    if (r->kind == RF_LOG_CHUNK || r->kind == RF_LOG_PURGE) {
        return RF_OK; /* done before */
    }
    if (slot >= NO_RUN) {
        return unknown_run(p, epoch, r, slot, detail);
    }
    struct parts parts = {.count = 0};
    if (!cut(r, &parts)) {
        return refuse_record(detail, epoch, r, "a record that is too short");
    }
    return r->kind == RF_LOG_STEP ? apply_step(p, epoch, r, &parts, ahead->rec, detail)
                                  : apply_run(p, epoch, r, &parts, slot, detail);
}

/* Where the ring's newest entry of a step will go, by a glance at the bytes; any answer does. */
static inline uint32_t glance_at_ring(const struct rf_log_record *r)
{
    enum { STATE = sizeof(struct rf_log_step) + RF_CODEC_HEADER + 26, FLAGS = STATE + 3 };
    const uint8_t *body = (const uint8_t *)(r + 1);
    uint32_t flags = r->body_bytes > FLAGS ? body[FLAGS] : 0;
    uint32_t at = STATE + 16u + ((flags & RF_SHARD_LEASED) != 0 ? 16u : 0u) +
                  ((flags & RF_SHARD_HAS_PARENT) != 0 ? 8u : 0u) + 1u;
    return r->body_bytes > at ? rf_ring_newest(body[at], RF_SHARD_RING) % RF_SHARD_RING : 0;
}

/* The lines that a step will write. */
static inline struct ahead look_ahead(struct rf_replay *p, const struct rf_log_record *r)
{
    struct ahead ahead = {.record = r};
    struct rf_log_step step;
    if (r->kind != RF_LOG_STEP || r->body_bytes < sizeof(step)) {
        return ahead;
    }
    uint32_t slot = find_uid(p, r->uid);
    if (slot >= NO_RUN) {
        return ahead;
    }
    memcpy(&step, r + 1, sizeof(step));
    ahead.rec = rec_at(p, rf_run_at(p->map, slot), slot, step.position);
    if (ahead.rec != NULL) {
        const char *rec = (const char *)ahead.rec;
        const struct rf_shard_ring *ring = &ahead.rec->ring;
        uint32_t at = glance_at_ring(r);
        __builtin_prefetch(rec, 1);
        __builtin_prefetch(rec + RF_LINE, 1);
        __builtin_prefetch(rec + 2 * RF_LINE, 1);
        __builtin_prefetch(&ring->op[at], 1);
        __builtin_prefetch(&ring->hash[at], 1);
        __builtin_prefetch(&ring->executed_at[at], 1);
        __builtin_prefetch(&ring->kind[at], 1);
        __builtin_prefetch(ahead.rec->cursor_bytes + RF_LINE / 2, 1);
    }
    return ahead;
}

rf_status rf_replay_batch(struct rf_replay *p, const struct rf_log_batch *batch, rf_detail *detail)
{
    uint64_t epoch = batch->header.epoch;
    struct ahead ahead[AHEAD];
    const struct rf_log_record *r;
    rf_status status = rf_log_order_begin(&p->order, batch, detail);
    if (batch->new_incarnation) {
        drop_chains(p);
    }
    if (status == RF_OK && p->order.makes) {
        status = purge_all(p, batch, detail);
        while (status == RF_OK && (r = rf_log_order_next(&p->order)) != NULL) {
            status = make(p, epoch, r, detail);
        }
        if (status == RF_OK && p->purged_soon != 0) {
            return rf_refuse(detail, RF_CORRUPT, 0,
                             "log, epoch %" PRIu64 ": a purge of a run that was never made", epoch);
        }
        if (status == RF_OK) {
            status = rf_log_order_begin(&p->order, batch, detail);
        }
    }
    uint32_t count = 0, at = 0;
    for (; status == RF_OK && count < AHEAD && (r = rf_log_order_next(&p->order)) != NULL;
         count++) {
        ahead[count] = look_ahead(p, r);
    }
    while (status == RF_OK && count != 0) {
        struct ahead this = ahead[at];
        r = rf_log_order_next(&p->order);
        if (r != NULL) {
            ahead[at] = look_ahead(p, r);
        } else {
            count--;
        }
        at = (at + 1) % AHEAD;
        status = apply(p, epoch, &this, detail);
    }
    p->tally.batches++;
    p->tally.records += batch->header.records;
    return status;
}

/* --- the end --- */

static void void_lease(struct rf_rec_body *b)
{
    b->state.flags &= (uint8_t)~RF_SHARD_LEASED;
    b->state.owner = b->state.deadline = 0;
}

static rf_status finish_run(struct rf_replay *p, uint32_t slot, uint64_t leases_after,
                            rf_detail *detail)
{
    struct rf_map *map = p->map;
    struct rf_runrec *run = rf_run_at(map, slot);
    uint64_t uid = LOAD64(run->tag), count = LOAD64(run->count);
    uint64_t available = 0, done = 0, split = 0, parked = 0;
    uint64_t earliest = RF_NO_DEADLINE, earliest_here = RF_NO_DEADLINE;
    if (p->sides[slot].made != count ||
        p->sides[slot].extents != (count + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "the run with uid %" PRIu64 " has %" PRIu64
                         " shards, the last at %" PRIu64,
                         uid, p->sides[slot].made, count);
    }
    for (uint64_t position = 0; position < count; position++) {
        uint32_t at = rf_dir_slot(map, run, position);
        struct rf_rec *rec = rf_rec_at(map, at);
        struct rf_extent *extent = rf_extent_at(map, at / RF_EXTENT_SHARDS);
        struct rf_rec_body *b = &rec->body;
        bool leased = (b->state.flags & RF_SHARD_LEASED) != 0;
        if (leased && (leases_after == UINT64_MAX || b->epoch <= leases_after)) {
            void_lease(b);
            leased = false;
        }
        uint64_t deadline = leased ? b->state.deadline : RF_NO_DEADLINE;
        b->bound = 0;
        b->listed = b->state.status == RF_SHARD_ACTIVE && !leased;
        STORE64(extent->deadline[at % RF_EXTENT_SHARDS], deadline);
        earliest_here = deadline < earliest_here ? deadline : earliest_here;
        available += b->listed;
        done += b->state.status == RF_SHARD_DONE;
        split += b->state.status == RF_SHARD_SPLIT;
        parked += b->state.status == RF_SHARD_PARKED;
        if (b->listed) {
            uint64_t bits = LOAD64(extent->claimable) | 1ull << at % RF_EXTENT_SHARDS;
            STORE64(extent->claimable, bits);
        }
        if ((position + 1) % RF_EXTENT_SHARDS == 0 || position + 1 == count) {
            /* The last one of its extent: the summaries follow. */
            uint64_t j = position / RF_EXTENT_SHARDS;
            uint64_t l = j / RF_LEAF_EXTENTS, k = j % RF_LEAF_EXTENTS;
            struct rf_leaf *leaf = rf_dir_leaf(map, run, j);
            STORE64(leaf->earliest[k], earliest_here);
            earliest = earliest_here < earliest ? earliest_here : earliest;
            earliest_here = RF_NO_DEADLINE;
            if (LOAD64(extent->claimable) != 0) {
                STORE64(leaf->summary[k / 64], LOAD64(leaf->summary[k / 64]) | 1ull << k % 64);
                STORE64(run->top[l / 64], LOAD64(run->top[l / 64]) | 1ull << l % 64);
            }
        }
    }
    STORE64(run->available, available);
    STORE64(run->done, done);
    STORE64(run->split, split);
    STORE64(run->parked, parked);
    STORE64(run->earliest, earliest);
    STORE64(run->live, uid);
    p->tally.runs++;
    p->tally.shards += count;
    return RF_OK;
}

rf_status rf_replay_finish(struct rf_replay *p, uint64_t leases_after, rf_detail *detail)
{
    struct rf_header *h = p->map->header;
    uint32_t used = atomic_load(&h->runs_used);
    rf_status status = enter_all(p, detail);
    drop_chains(p);
    for (uint32_t slot = 0; status == RF_OK && slot < used; slot++) {
        if (LOAD64(rf_run_at(p->map, slot)->tag) == 0) {
            continue;
        }
        status = finish_run(p, slot, leases_after, detail);
    }
    STORE64(h->next_uid, p->next_uid);
    STORE64(h->fence_floor, p->floor);
    return status;
}
