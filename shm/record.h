/* Shard records in the region: seen by a lock holder, copied by a reader, written by an apply. */
#ifndef RF_RECORD_H
#define RF_RECORD_H

#include "actor.h"
#include "codec.h"
#include "slab.h"

/* --- seen by the lock holder --- */

/* Where the cursor's and the spec's bytes are: key then token; start, end, metadata. */
static inline const uint8_t *rf_rec_bytes(const struct rf_map *map, const uint8_t *inside,
                                          size_t room, const struct rf_block_ref *ref, size_t len)
{
    if (len <= room) {
        return inside;
    }
    return ref->bytes >= len ? rf_slab_bytes(map, ref) : NULL;
}

static inline bool rf_rec_lengths_ok(const struct rf_rec_body *b)
{
    return b->key_len <= RF_KEY_MAX && b->token_len <= RF_TOKEN_MAX && b->start_len <= RF_KEY_MAX &&
           b->end_len <= RF_KEY_MAX && b->meta_len <= RF_METADATA_MAX &&
           b->state.spawned_count <= RF_SPAWNED_MAX && b->state.ring_count <= RF_SHARD_RING &&
           b->state.ring_next < RF_SHARD_RING;
}

static inline void rf_rec_cut_spec(const struct rf_rec_body *b, const uint8_t *at, rf_spec *spec)
{
    spec->start = rf_bytes_of(at, b->start_len);
    spec->end = rf_bytes_of(at + b->start_len, b->end_len);
    spec->metadata = rf_bytes_of(at + b->start_len + b->end_len, b->meta_len);
}

static inline void rf_rec_cut_cursor(const struct rf_rec_body *b, const uint8_t *at,
                                     rf_cursor *cursor)
{
    cursor->key = b->has_key != 0 ? rf_bytes_of(at, b->key_len) : rf_bytes_none();
    cursor->token =
        b->token_len != 0 ? rf_bytes_of(at + b->key_len, b->token_len) : rf_bytes_none();
}

/* The view of a record some of whose bytes are elsewhere. */
rf_status rf_rec_view_outside(const struct rf_map *map, const struct rf_rec *rec,
                              struct rf_shard *view, rf_detail *detail);

/* The record as the transitions see it; the bytes stay where they are. The caller holds the lock and
 * has compared the tenant. RF_CORRUPT if a length or a reference in it can't be. */
static inline rf_status rf_rec_view(const struct rf_map *map, const struct rf_rec *rec,
                                    const struct rf_runrec *run, const rf_tenant *tenant,
                                    struct rf_shard *view, rf_detail *detail)
{
    const struct rf_rec_body *b = &rec->body;
    size_t cursor = (size_t)b->key_len + b->token_len;
    size_t spec = (size_t)b->start_len + b->end_len + b->meta_len;
    view->tenant = tenant;
    view->run = run->run;
    view->shard = rec->shard;
    view->state = &b->state;
    view->ring = &rec->ring;
    view->spawned = NULL;
    /* Lengths that fit the record need no further look. */
    if (cursor > RF_CURSOR_INLINE || spec > RF_SPEC_INLINE || b->state.spawned_count != 0 ||
        b->state.ring_count > RF_SHARD_RING || b->state.ring_next >= RF_SHARD_RING) {
        return rf_rec_view_outside(map, rec, view, detail);
    }
    rf_rec_cut_spec(b, rec->spec_bytes, &view->spec);
    rf_rec_cut_cursor(b, rec->cursor_bytes, &view->cursor);
    return RF_OK;
}

/* A consistent copy without a lock. The view points into the copy. */
struct rf_rec_copy {
    uint64_t shard;
    uint64_t run_uid;
    uint32_t run_slot;
    uint32_t position;
    uint32_t parent_slot;
    uint64_t born;
    struct rf_rec_body body;
    struct rf_shard_ring ring;
    struct rf_shard view;
    uint64_t spawned[RF_SPAWNED_MAX];
    uint8_t cursor[RF_KEY_MAX + RF_TOKEN_MAX + 8] RF_ALIGNED(8);
    uint8_t spec[2 * RF_KEY_MAX + RF_METADATA_MAX + 8] RF_ALIGNED(8);
};

/* RF_BUSY if a writer stays inside for too long; *actor may be NULL for an observer, who can't help
 * a dead writer out. The identity is for the caller to check. */
rf_status rf_rec_read(struct rf_map *map, struct rf_actor *actor, struct rf_rec *rec,
                      struct rf_rec_copy *copy, rf_detail *detail);
/* The same without ring, bytes and spawned list. */
rf_status rf_rec_read_body(struct rf_map *map, struct rf_actor *actor, struct rf_rec *rec,
                           struct rf_rec_copy *copy, rf_detail *detail);

/* The version of a record, read on its own. */
static inline uint64_t rf_rec_version(const struct rf_rec *rec)
{
    return __atomic_load_n(&rec->body.version, __ATOMIC_ACQUIRE);
}

/* How an operation's new bytes are kept: in the record if they fit, else in a block that is taken,
 * named and filled here. Called in state TAKING. */
rf_status rf_rec_place_cursor(struct rf_actor *actor, const rf_cursor *cursor,
                              struct rf_block_ref *ref, rf_detail *detail);
rf_status rf_rec_place_spec(struct rf_actor *actor, const rf_spec *spec, struct rf_block_ref *ref,
                            rf_detail *detail);

static inline bool rf_cursor_fits(const rf_cursor *c)
{
    return c->key.len + c->token.len <= RF_CURSOR_INLINE;
}
static inline bool rf_spec_fits(const rf_spec *s)
{
    return s->start.len + s->end.len + s->metadata.len <= RF_SPEC_INLINE;
}

/* What a new shard is made of. */
struct rf_rec_new {
    uint64_t shard;
    uint64_t run_uid;
    uint64_t born;
    uint32_t run_slot;
    uint32_t position;
    uint32_t parent_slot;
    struct rf_shard_state state;
    rf_spec spec;
    rf_cursor cursor;
};

/* Writes a record that nobody can reach yet, taking blocks where its bytes need them: the record
 * itself names them. RF_RESOURCE_EXHAUSTED leaves it for rf_rec_undo. */
rf_status rf_rec_make(struct rf_actor *actor, struct rf_rec *rec, const struct rf_rec_new *made,
                      rf_detail *detail);
/* Gives back the blocks that a record names. What an earlier user of the slot named does no harm:
 * its tags are never used again. */
void rf_rec_undo(struct rf_map *map, const struct rf_rec *rec);

/* Writes a step into a record: the record's part of an apply. Idempotent. */
void rf_rec_write(struct rf_map *map, struct rf_rec *rec, const struct rf_desc *desc,
                  const struct rf_shard_step *step, uint64_t epoch, uint64_t stamp);

#endif
