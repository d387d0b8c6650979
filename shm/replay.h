/*
 * Replaying: a snapshot and the records of the log into a region that nobody else can see.
 *
 * Runs are found by their uid, shards by their position in the run; no index is searched. What is
 * written is written with the same building blocks that operations use. Only at the end, when every
 * record is what it was, the counts, claimable bits and summaries are worked out from the records.
 *
 * A snapshot is not one moment: some of its records are older than others. The versions make up for it.
 *
 *   record's version   ->
 *   at or below        it is in the snapshot already: skip (but what it made is made, if not there)
 *   the next           apply
 *   beyond             corruption: something between is lost
 *
 *   unknown run, the record made it                  make it
 *   unknown run, purged in this replay               skip: stamps do not order a purge behind steps
 *                                                      that took no lock of the run
 *   unknown run, uid below the snapshot's next_uid   skip: it was purged before it was copied
 *   unknown run otherwise                            corruption
 *
 * Within a batch purges come first, so that there is never more than there was at the end of it; then what is
 * made is made, so that a shard is there when its first step comes; then the steps.
 * A chain's chunks are kept until the record comes that closes it; at the start of the next incarnation,
 * and at the end, open ones are dropped.
 */
#ifndef RF_REPLAY_H
#define RF_REPLAY_H

#include "log_read.h"
#include "region.h"

struct rf_replay;

/* map: a fresh region. */
rf_status rf_replay_begin(struct rf_map *map, struct rf_replay **out, rf_detail *detail);
void rf_replay_free(struct rf_replay *replay);

/* --- from a snapshot: before the log --- */

/* What the snapshot's header says; without one next_uid is 1. */
void rf_replay_base(struct rf_replay *replay, uint64_t next_uid, uint64_t floor, uint64_t time);
/* A run, then its shards. `body` is the codec's record. */
rf_status rf_replay_run(struct rf_replay *replay, const struct rf_snapshot_run *entry,
                        rf_bytes body, rf_detail *detail);
rf_status rf_replay_shard(struct rf_replay *replay, const struct rf_snapshot_shard *entry,
                          rf_bytes body, rf_detail *detail);
/* The last run was purged while it was copied: the log says so too. */
rf_status rf_replay_forget(struct rf_replay *replay, rf_detail *detail);

/* --- from the log --- */

rf_status rf_replay_batch(struct rf_replay *replay, const struct rf_log_batch *batch,
                          rf_detail *detail);

/* --- the end --- */

/* Completes the region: counts, bits, limits, floor, next uid. A lease is kept if it was granted or
 * changed behind `leases_after` (UINT64_MAX: all are void); its bits are then as a grant leaves
 * them. */
rf_status rf_replay_finish(struct rf_replay *replay, uint64_t leases_after, rf_detail *detail);

struct rf_replay_tally {
    uint64_t batches;
    uint64_t records;
    uint64_t applied; /* of them */
    uint64_t runs;    /* in the end */
    uint64_t shards;
    uint64_t time; /* the largest time seen */
};
struct rf_replay_tally rf_replay_tally(const struct rf_replay *replay);

/* The run slot of a uid in the region, RF_NO_SLOT if there is none. */
uint32_t rf_replay_find(const struct rf_replay *replay, uint64_t uid);

#endif
