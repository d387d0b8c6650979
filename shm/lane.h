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

enum rf_lane_kind {
    RF_LANE_FILLER = 1, /* nothing, to the end of the ring */
    RF_LANE_STEP = 2,   /* a step of a shard (codec) */
    RF_LANE_RUN = 3,    /* the next record of a run (codec) */
    RF_LANE_PURGE = 4,  /* a run goes away; no body */
};

struct rf_lane_record {
    uint32_t units; /* with this header */
    uint16_t kind;
    uint16_t event; /* rf_event_kind */
    uint64_t epoch;
    uint64_t stamp;
    uint64_t sequence;
    uint64_t run;
    uint64_t time;
    uint32_t run_slot;
    uint32_t body_bytes;
    uint32_t count; /* shards made */
    uint32_t spare;
};
_Static_assert(sizeof(struct rf_lane_record) == 64, "one unit");

#define RF_LANE_OFFSET_BITS 20u
#define RF_LANE_OFFSET_MASK ((1u << RF_LANE_OFFSET_BITS) - 1u)

static inline uint32_t rf_lane_offset(uint64_t word)
{
    return (uint32_t)word & RF_LANE_OFFSET_MASK;
}

/* An operation's record between rf_lane_begin and rf_lane_commit. */
struct rf_lane_draft {
    struct rf_lane_record *record;
    uint8_t *body;
    uint32_t offset; /* of the lane word now: what PREPARED names */
    uint32_t filler;
    uint32_t units;
};

/* Room for a record with a body of up to `bytes`. Nothing visible changes but the head. */
void rf_lane_begin(struct rf_actor *actor, size_t bytes, struct rf_lane_draft *draft);

/* Fixes the record's size and header, except for the epoch. */
void rf_lane_finish(struct rf_actor *actor, struct rf_lane_draft *draft, enum rf_lane_kind kind,
                    size_t bytes, uint64_t stamp);

/* The commit. Returns the record's epoch. */
uint64_t rf_lane_commit(struct rf_actor *actor, struct rf_lane_draft *draft);

/* The record that an operation prepared at `offset` wrote, skipping a filler; NULL if what lies
 * there can't be one. For the reaper of its owner. */
const struct rf_lane_record *rf_lane_find(const struct rf_map *map, uint32_t slot, uint32_t offset);

#endif
