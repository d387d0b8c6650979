#include "record.h"

#include "futex.h"
#include "lock.h"
#include "point.h"
#include "reap.h"
#include "seq.h"
#include "slab.h"

rf_status rf_rec_view_outside(const struct rf_map *map, const struct rf_rec *rec,
                              struct rf_shard *view, rf_detail *detail)
{
    const struct rf_rec_body *b = &rec->body;
    const uint8_t *cursor = NULL, *spec = NULL, *spawned = NULL;
    if (rf_rec_lengths_ok(b)) {
        cursor = rf_rec_bytes(map, rec->cursor_bytes, RF_CURSOR_INLINE, &b->cursor_ref,
                              (size_t)b->key_len + b->token_len);
        spec = rf_rec_bytes(map, rec->spec_bytes, RF_SPEC_INLINE, &b->spec_ref,
                            (size_t)b->start_len + b->end_len + b->meta_len);
        spawned = b->state.spawned_count == 0
                      ? rec->spec_bytes
                      : rf_rec_bytes(map, NULL, 0, &b->spawned_ref, b->state.spawned_count * 8u);
    }
    if (cursor == NULL || spec == NULL || spawned == NULL) {
        return rf_refuse(detail, RF_CORRUPT, 0, "the record at position %u of run slot %u",
                         rec->position, rec->run_slot);
    }
    view->spawned = (const uint64_t *)(const void *)spawned;
    rf_rec_cut_spec(b, spec, &view->spec);
    rf_rec_cut_cursor(b, cursor, &view->cursor);
    return RF_OK;
}

/* --- copied by a reader --- */

#define READ_SPINS   1000u
#define READ_BUSY_NS 1000000000ull

static void copy_identity(const struct rf_rec *rec, struct rf_rec_copy *copy)
{
    copy->shard = __atomic_load_n(&rec->shard, __ATOMIC_RELAXED);
    copy->run_uid = __atomic_load_n(&rec->run_uid, __ATOMIC_RELAXED);
    copy->run_slot = __atomic_load_n(&rec->run_slot, __ATOMIC_RELAXED);
    copy->position = __atomic_load_n(&rec->position, __ATOMIC_RELAXED);
    copy->parent_slot = __atomic_load_n(&rec->parent_slot, __ATOMIC_RELAXED);
    copy->born = __atomic_load_n(&rec->born, __ATOMIC_RELAXED);
    rf_words_load(&copy->body, &rec->body, sizeof(copy->body));
}

/* What was copied may be a mixture: every length is checked before it is used, and the caller
 * checks the sequence word before it believes anything. */
static bool copy_bytes(const struct rf_map *map, const struct rf_rec *rec, struct rf_rec_copy *copy)
{
    const struct rf_rec_body *b = &copy->body;
    if (!rf_rec_lengths_ok(b)) {
        return false;
    }
    size_t cursor_len = (size_t)b->key_len + b->token_len;
    size_t spec_len = (size_t)b->start_len + b->end_len + b->meta_len;
    const uint8_t *cursor =
        rf_rec_bytes(map, rec->cursor_bytes, RF_CURSOR_INLINE, &b->cursor_ref, cursor_len);
    const uint8_t *spec =
        rf_rec_bytes(map, rec->spec_bytes, RF_SPEC_INLINE, &b->spec_ref, spec_len);
    if (cursor == NULL || spec == NULL) {
        return false;
    }
    rf_words_load(&copy->ring, &rec->ring, sizeof(copy->ring));
    rf_bytes_load(copy->cursor, cursor, cursor_len);
    rf_bytes_load(copy->spec, spec, spec_len);
    if (b->state.spawned_count != 0) {
        const uint8_t *spawned =
            rf_rec_bytes(map, NULL, 0, &b->spawned_ref, b->state.spawned_count * 8u);
        if (spawned == NULL) {
            return false;
        }
        rf_words_load(copy->spawned, spawned, b->state.spawned_count * 8u);
    }
    return true;
}

static rf_status read_record(struct rf_map *map, struct rf_actor *actor, struct rf_rec *rec,
                             struct rf_rec_copy *copy, bool whole, rf_detail *detail)
{
    uint64_t until = 0;
    for (uint64_t n = 0;; n++) {
        uint32_t begun = rf_seq_begin(&rec->seq);
        if ((begun & 1u) == 0) {
            copy_identity(rec, copy);
            RF_POINT("record.reading");
            bool sound = !whole || copy_bytes(map, rec, copy);
            if (rf_seq_valid(&rec->seq, begun)) {
                if (!sound) {
                    return rf_refuse(detail, RF_CORRUPT, 0,
                                     "the record in shard slot %u of run slot %u", copy->position,
                                     copy->run_slot);
                }
                break;
            }
            continue;
        }
        if (n < READ_SPINS) {
            continue;
        }
        /* Odd for long: a dead writer is reaped, a stopped one waited for, but not for ever. */
        uint32_t w = atomic_load_explicit(&rec->lock, memory_order_acquire);
        if (actor != NULL && w != 0) {
            rf_reap_if_dead(actor, rf_id_slot(w));
        }
        uint64_t now = rf_monotonic_ns();
        until = until == 0 ? now + (actor != NULL ? actor->busy_ns : READ_BUSY_NS) : until;
        if (now > until) {
            rf_refuse(detail, RF_BUSY, 0, "reading a record that is being written");
            if (detail != NULL) {
                detail->pid = rf_lock_holder_pid(map, &rec->lock);
            }
            return RF_BUSY;
        }
        usleep(50);
    }
    if (whole) {
        copy->view.shard = copy->shard;
        copy->view.state = &copy->body.state;
        copy->view.ring = &copy->ring;
        copy->view.spawned = copy->spawned;
        rf_rec_cut_spec(&copy->body, copy->spec, &copy->view.spec);
        rf_rec_cut_cursor(&copy->body, copy->cursor, &copy->view.cursor);
    }
    return RF_OK;
}

rf_status rf_rec_read(struct rf_map *map, struct rf_actor *actor, struct rf_rec *rec,
                      struct rf_rec_copy *copy, rf_detail *detail)
{
    return read_record(map, actor, rec, copy, true, detail);
}

rf_status rf_rec_read_body(struct rf_map *map, struct rf_actor *actor, struct rf_rec *rec,
                           struct rf_rec_copy *copy, rf_detail *detail)
{
    return read_record(map, actor, rec, copy, false, detail);
}

/* --- placing bytes --- */

static void store_run_of(uint8_t *to, const rf_bytes *parts, unsigned count)
{
    /* Parts follow one another without gaps, so all but the first may start inside a word. */
    uint8_t word[8] = {0};
    size_t at = 0;
    for (unsigned p = 0; p < count; p++) {
        const uint8_t *from = parts[p].data;
        size_t len = parts[p].len, i = 0;
        while (i < len) {
            if (at % 8 == 0 && len - i >= 8) {
                size_t whole = (len - i) & ~(size_t)7;
                rf_bytes_store(to + at, from + i, whole);
                at += whole;
                i += whole;
                continue;
            }
            word[at % 8] = from[i++];
            if (++at % 8 == 0) {
                rf_bytes_store(to + at - 8, word, 8);
            }
        }
    }
    if (at % 8 != 0) {
        rf_bytes_store(to + (at & ~(size_t)7), word, at % 8);
    }
}

static void store_cursor(uint8_t *to, const rf_cursor *c)
{
    if (c->token.len == 0) {
        rf_bytes_store(to, c->key.data, c->key.len);
        return;
    }
    const rf_bytes parts[2] = {c->key, c->token};
    store_run_of(to, parts, 2);
}

static void store_spec(uint8_t *to, const rf_spec *s)
{
    const rf_bytes parts[3] = {s->start, s->end, s->metadata};
    store_run_of(to, parts, 3);
}

rf_status rf_rec_place_cursor(struct rf_actor *actor, const rf_cursor *cursor,
                              struct rf_block_ref *ref, rf_detail *detail)
{
    uint64_t tag = atomic_load_explicit(&actor->desc->tag, memory_order_relaxed);
    rf_status status = rf_slab_take(actor, tag, cursor->key.len + cursor->token.len, ref, detail);
    if (status == RF_OK) {
        store_cursor(rf_slab_bytes(actor->map, ref), cursor);
    }
    return status;
}

rf_status rf_rec_place_spec(struct rf_actor *actor, const rf_spec *spec, struct rf_block_ref *ref,
                            rf_detail *detail)
{
    uint64_t tag = atomic_load_explicit(&actor->desc->tag, memory_order_relaxed);
    size_t len = spec->start.len + spec->end.len + spec->metadata.len;
    rf_status status = rf_slab_take(actor, tag, len, ref, detail);
    if (status == RF_OK) {
        store_spec(rf_slab_bytes(actor->map, ref), spec);
    }
    return status;
}

/* --- new records --- */

void rf_rec_undo(struct rf_map *map, const struct rf_rec *rec)
{
    rf_slab_give(map, &rec->body.cursor_ref);
    rf_slab_give(map, &rec->body.spec_ref);
    rf_slab_give(map, &rec->body.spawned_ref);
}

rf_status rf_rec_make(struct rf_actor *actor, struct rf_rec *rec, const struct rf_rec_new *made,
                      rf_detail *detail)
{
    rf_status status = RF_OK;
    if (!rf_cursor_fits(&made->cursor)) {
        status = rf_rec_place_cursor(actor, &made->cursor, &rec->body.cursor_ref, detail);
    }
    if (status == RF_OK && !rf_spec_fits(&made->spec)) {
        status = rf_rec_place_spec(actor, &made->spec, &rec->body.spec_ref, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    struct rf_rec_body b = {
        .version = 1,
        .state = made->state,
        .key_len = (uint16_t)made->cursor.key.len,
        .token_len = (uint16_t)made->cursor.token.len,
        .start_len = (uint16_t)made->spec.start.len,
        .end_len = (uint16_t)made->spec.end.len,
        .meta_len = (uint16_t)made->spec.metadata.len,
        .has_key = made->cursor.key.data != NULL,
        .listed = 1,
    };
    if (!rf_cursor_fits(&made->cursor)) {
        b.cursor_ref = rec->body.cursor_ref;
        b.cursor_out = 1;
    }
    if (!rf_spec_fits(&made->spec)) {
        b.spec_ref = rec->body.spec_ref;
    }
    /* Somebody with an old hint may be reading. */
    uint32_t odd = rf_seq_open(&rec->seq);
    __atomic_store_n(&rec->shard, made->shard, __ATOMIC_RELAXED);
    __atomic_store_n(&rec->run_uid, made->run_uid, __ATOMIC_RELAXED);
    __atomic_store_n(&rec->run_slot, made->run_slot, __ATOMIC_RELAXED);
    __atomic_store_n(&rec->position, made->position, __ATOMIC_RELAXED);
    __atomic_store_n(&rec->parent_slot, made->parent_slot, __ATOMIC_RELAXED);
    __atomic_store_n(&rec->born, made->born, __ATOMIC_RELAXED);
    rf_words_store(&rec->body, &b, sizeof(b));
    if (rf_cursor_fits(&made->cursor)) {
        store_cursor(rec->cursor_bytes, &made->cursor);
    }
    if (rf_spec_fits(&made->spec)) {
        store_spec(rec->spec_bytes, &made->spec);
    }
    rf_seq_close(&rec->seq, odd);
    RF_POINT("record.made");
    return RF_OK;
}

/* --- applying --- */

#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)

static void write_cursor(struct rf_rec *rec, const struct rf_desc *d, const rf_cursor *c)
{
    struct rf_rec_body *b = &rec->body;
    STORE(b->key_len, (uint16_t)c->key.len);
    STORE(b->token_len, (uint16_t)c->token.len);
    STORE(b->has_key, (uint8_t)(c->key.data != NULL));
    if ((d->redo & RF_REDO_CURSOR_OUT) != 0) {
        rf_words_store(&b->cursor_ref, &d->blocks[0], sizeof(d->blocks[0]));
        STORE(b->cursor_out, 1);
        return;
    }
    if (__atomic_load_n(&b->cursor_out, __ATOMIC_RELAXED) != 0) {
        const struct rf_block_ref none = {0};
        rf_words_store(&b->cursor_ref, &none, sizeof(none));
        STORE(b->cursor_out, 0);
    }
    store_cursor(rec->cursor_bytes, c);
}

static void write_spec(struct rf_rec *rec, const struct rf_desc *d, const rf_spec *s)
{
    struct rf_rec_body *b = &rec->body;
    const struct rf_block_ref none = {0};
    STORE(b->start_len, (uint16_t)s->start.len);
    STORE(b->end_len, (uint16_t)s->end.len);
    STORE(b->meta_len, (uint16_t)s->metadata.len);
    if ((d->redo & RF_REDO_SPEC_OUT) != 0) {
        rf_words_store(&b->spec_ref, &d->blocks[1], sizeof(d->blocks[1]));
        return;
    }
    rf_words_store(&b->spec_ref, &none, sizeof(none));
    store_spec(rec->spec_bytes, s);
}

void rf_rec_write(struct rf_map *map, struct rf_rec *rec, const struct rf_desc *d,
                  const struct rf_shard_step *step, uint64_t epoch, uint64_t stamp)
{
    struct rf_rec_body *b = &rec->body;
    (void)map;
    uint32_t odd = rf_seq_open(&rec->seq);
    RF_POINT("record.open");
    STORE(b->version, d->next_version);
    STORE(b->epoch, epoch);
    STORE(b->stamp, stamp);
    rf_words_store(&b->state, &step->next, sizeof(b->state));
    RF_POINT("record.state");
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        write_cursor(rec, d, &step->cursor);
        RF_POINT("record.cursor");
    }
    if ((step->changes & RF_CHANGED_RING) != 0) {
        uint32_t i = step->ring_slot;
        STORE(rec->ring.op[i], step->entry.op);
        STORE(rec->ring.hash[i], step->entry.hash);
        STORE(rec->ring.executed_at[i], step->entry.executed_at);
        STORE(rec->ring.kind[i], step->entry.kind);
        STORE(rec->ring.result[i], step->entry.result);
        RF_POINT("record.ring");
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0) {
        write_spec(rec, d, &step->spec);
        RF_POINT("record.spec");
    }
    if ((d->redo & RF_REDO_SPAWNED_OUT) != 0) {
        rf_words_store(&b->spawned_ref, &d->blocks[2], sizeof(d->blocks[2]));
        RF_POINT("record.spawned");
    }
    if ((d->redo & RF_REDO_BOUND) != 0) {
        STORE(b->bound, d->bound);
    }
    if ((d->redo & RF_REDO_CLAIM_BIT) != 0) {
        STORE(b->listed, (uint8_t)d->claim_bit);
    }
    rf_seq_close(&rec->seq, odd);
    RF_POINT("record.close");
}
