/*
 * The journal. Every member appends to a lane of its own: a ring of 64-byte units in the region.
 *
 * The lane word holds an epoch (44 bits) and an offset (20 bits). Only the owner moves the offset;
 * anybody may raise the epoch. Moving the offset over a record is the commit of the operation that
 * wrote it, and the only place where an operation happens.
 *
 * A record does not wrap: where it would, a filler takes the rest of the ring and both are passed in
 * one move. Before anything is overwritten the owner stores the new head, so that somebody who
 * reads the lane can tell what was still there (the head has not passed it) from what may be torn.
 * Read that way a lane is also the list of what its member did last; observers follow it.
 */
#ifndef RF_LANE_H
#define RF_LANE_H

#include "actor.h"
#include "point.h"
#include "seq.h"

enum rf_lane_kind {
    RF_LANE_FILLER = 1, /* nothing, to the end of the ring */
    RF_LANE_STEP = 2,   /* a step of a shard (codec) */
    RF_LANE_RUN = 3,    /* the next record of a run (codec) */
    RF_LANE_PURGE = 4,  /* a run goes away */
    RF_LANE_CHUNK = 5,  /* shards that a later record of this lane makes */
};

/* The bodies are those of the log: log_format.h. */
struct rf_lane_record {
    uint32_t units; /* with this header */
    uint16_t kind;
    uint16_t event; /* rf_event_kind */
    uint64_t epoch;
    uint64_t stamp;
    uint64_t uid; /* of the run */
    uint64_t run;
    uint64_t time;
    uint32_t run_slot;
    uint32_t body_bytes;
    uint32_t count; /* shards made */
    uint32_t sequence;
};
_Static_assert(sizeof(struct rf_lane_record) == 64, "one unit");

/* The largest body: a step of any size, and what it makes if that is not much; else it is a chain. */
#define RF_LANE_BODY_MAX  (64u * 1024u)
#define RF_LANE_UNITS_MAX (1u + RF_LANE_BODY_MAX / RF_LINE)

/* The codec's record in a body: behind what says where it belongs. Empty if there is none. */
static inline rf_bytes rf_lane_codec(const struct rf_lane_record *record)
{
    const uint8_t *body = (const uint8_t *)(record + 1);
    uint32_t fixed = 0, made = 0;
    if (record->kind == RF_LANE_STEP) {
        fixed = sizeof(struct rf_log_step);
        made = ((const struct rf_log_step *)(const void *)body)->made;
    } else if (record->kind == RF_LANE_RUN) {
        fixed = sizeof(struct rf_log_run);
        made = ((const struct rf_log_run *)(const void *)body)->made;
    }
    fixed += made != 0 ? (uint32_t)sizeof(struct rf_log_made) : 0;
    return record->body_bytes < fixed || fixed == 0
               ? rf_bytes_none()
               : rf_bytes_of(body + fixed, record->body_bytes - fixed);
}

#define RF_LANE_OFFSET_BITS 20u
#define RF_LANE_OFFSET_MASK ((1u << RF_LANE_OFFSET_BITS) - 1u)

static inline uint32_t rf_lane_offset(uint64_t word)
{
    return (uint32_t)word & RF_LANE_OFFSET_MASK;
}

/* The endless position behind the last commit, by the lane word: `end` may lag. */
static inline uint64_t rf_lane_end(const struct rf_lane_head *lane)
{
    uint64_t end = atomic_load_explicit(&lane->end, memory_order_acquire);
    uint32_t offset = rf_lane_offset(atomic_load_explicit(&lane->word, memory_order_acquire));
    return end + ((offset - end) & RF_LANE_OFFSET_MASK);
}

/* A lane's owner writes its records as plain memory, which costs it nothing, and others may read while they
 * are being overwritten. What they got then is thrown away (the head has passed it), so that the
 * race is meant; ThreadSanitizer is told. */
__attribute__((no_sanitize("thread"))) static inline void rf_lane_copy(void *to, const void *from,
                                                                       size_t bytes)
{
    rf_any64 *t = to;
    const volatile rf_any64 *f = from;
    for (size_t i = 0; i < bytes / 8; i++) {
        t[i] = f[i];
    }
}

/* An operation's record between rf_lane_begin and rf_lane_commit. */
struct rf_lane_draft {
    struct rf_lane_record *record;
    uint8_t *body;
    uint32_t offset; /* of the lane word now: what PREPARED names */
    uint32_t filler;
    uint32_t units;
};

static inline uint8_t *rf_lane_unit(const struct rf_map *map, uint8_t *lane, uint64_t position)
{
    return lane + (position & map->lane_mask) * RF_LINE;
}

/* Room for a record with a body of up to `bytes`. Nothing visible changes but the head. */
static inline void rf_lane_begin(struct rf_actor *actor, size_t bytes, struct rf_lane_draft *draft)
{
    struct rf_lane_head *lane = &actor->me->lane;
    uint64_t ring = actor->map->lane_mask + 1;
    uint64_t need = 1 + (bytes + RF_LINE - 1) / RF_LINE;
    uint64_t end = atomic_load_explicit(&lane->end, memory_order_relaxed);
    uint64_t rest = ring - (end & (ring - 1));
    assert(2 * need <= ring && need <= RF_LANE_UNITS_MAX);

    draft->filler = need > rest ? (uint32_t)rest : 0;
    draft->offset = (uint32_t)end & RF_LANE_OFFSET_MASK;
    uint64_t head = end + draft->filler + need;
    head = head > ring ? head - ring : 0;
    /* With a log: nothing is overwritten that is not durable; rf_log_admit has seen to it. */
    assert(actor->map->header->sealing == 0 ||
           head <= atomic_load_explicit(&lane->base, memory_order_relaxed));
    if (head > atomic_load_explicit(&lane->head, memory_order_relaxed)) {
        /* Readers that find the old head again after reading have read whole records. */
        atomic_store_explicit(&lane->head, head, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        RF_POINT("lane.head");
    }
    if (draft->filler != 0) {
        struct rf_lane_record filler = {.units = draft->filler, .kind = RF_LANE_FILLER};
        rf_words_store(rf_lane_unit(actor->map, actor->lane, end), &filler, sizeof(filler));
    }
    draft->record = (void *)rf_lane_unit(actor->map, actor->lane, end + draft->filler);
    draft->body = (uint8_t *)(draft->record + 1);
}

/* Fixes the record's size and header, except for the epoch. */
static inline void rf_lane_finish(struct rf_actor *actor, struct rf_lane_draft *draft,
                                  enum rf_lane_kind kind, size_t bytes, uint64_t stamp)
{
    struct rf_lane_head *lane = &actor->me->lane;
    draft->units = (uint32_t)(1 + (bytes + RF_LINE - 1) / RF_LINE);
    draft->record->units = draft->units;
    draft->record->kind = (uint16_t)kind;
    draft->record->stamp = stamp;
    draft->record->sequence = (uint32_t)atomic_load_explicit(&lane->sequence, memory_order_relaxed);
    draft->record->body_bytes = (uint32_t)bytes;
}

/* Where others may raise the epoch: by compare-and-swap, until it has an epoch that is open. */
uint64_t rf_lane_commit_sealed(struct rf_actor *actor, struct rf_lane_draft *draft, uint32_t moved);

/* The commit. Returns the record's epoch. */
static inline uint64_t rf_lane_commit(struct rf_actor *actor, struct rf_lane_draft *draft)
{
    const struct rf_header *h = actor->map->header;
    struct rf_lane_head *lane = &actor->me->lane;
    uint32_t moved = (draft->offset + draft->filler + draft->units) & RF_LANE_OFFSET_MASK;
    uint64_t epoch;
    if (h->sealing == 0) {
        /* Nobody else writes the word, so a store does. release: the record and the redo image are
         * there for whoever sees the offset moved (rf_reap_if_dead). */
        epoch = 1;
        draft->record->epoch = epoch;
        RF_POINT("lane.before_commit");
        atomic_store_explicit(&lane->word, epoch << RF_LANE_OFFSET_BITS | moved,
                              memory_order_release);
    } else {
        epoch = rf_lane_commit_sealed(actor, draft, moved);
    }
    RF_POINT("lane.committed");
    lane->stamp = draft->record->stamp;
    atomic_store_explicit(&lane->sequence,
                          atomic_load_explicit(&lane->sequence, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    /* release: who sees this end sees the records below it. Follows the commit, so a member that
     * died in between has an end that lags; the next generation takes it from the lane word. */
    uint64_t end =
        atomic_load_explicit(&lane->end, memory_order_relaxed) + draft->filler + draft->units;
    atomic_store_explicit(&lane->end, end, memory_order_release);
    if (h->sealing != 0) {
        atomic_store_explicit(&lane->last, epoch, memory_order_relaxed);
        actor->marks[epoch % RF_LANE_MARKS] = (struct rf_lane_mark){.epoch = epoch, .end = end};
    }
    return epoch;
}

/* The record that an operation prepared at `offset` wrote, skipping a filler; NULL if what lies
 * there can't be one. For the reaper of its owner. */
const struct rf_lane_record *rf_lane_find(const struct rf_map *map, uint32_t slot, uint32_t offset);
/* The same for anybody, while the owner lives: a copy of its header, which is worth something only if the owner
 * is found to be in the same operation afterwards. */
void rf_lane_peek(const struct rf_map *map, uint32_t slot, uint32_t offset,
                  struct rf_lane_record *copy);

#endif
