/* Shard records in the region: seen by a lock holder, copied by a reader, written by an apply. */
#ifndef RF_RECORD_H
#define RF_RECORD_H

#include "actor.h"
#include "codec.h"

/* The record as the transitions see it; the bytes stay where they are. The caller holds the lock.
 * RF_CORRUPT if a length or a reference in it can't be. */
rf_status rf_rec_view(const struct rf_map *map, const struct rf_rec *rec,
                      const struct rf_runrec *run, struct rf_shard *view, rf_detail *detail);

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
