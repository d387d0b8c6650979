/*
 * Snapshots: taking one while everybody goes on, and loading one.
 *
 * R, where replay begins, is worked out in this order, and in no other:
 *
 *   R = the open epoch
 *   every lane is raised to R: from here on nothing is committed with an earlier epoch
 *   the descriptors are looked at: R is at most the epoch of every operation that is committed and
 *     not yet applied, and of every open chain's first chunk
 *
 * So what is not in memory now has an epoch of R or later, and is in the log that is replayed. Then every
 * record is copied under its sequence lock. What was copied may be in an epoch that is still open; the
 * snapshot is published only when everything up to the epoch that is open after the copy is durable: it
 * never holds what the log might lose.
 *
 * One process at a time takes a snapshot (header.snapshotter names it; a dead one is replaced). What a
 * killed one leaves is a temporary file, or a published snapshot behind which older files were not removed
 * yet: the next one does.
 *
 * The two newest that are good are kept, and the log from where the older one's replay begins: one that is damaged, or
 * somebody else's, does not count.
 */
#ifndef RF_SNAPSHOT_H
#define RF_SNAPSHOT_H

#include "log.h"
#include "replay.h"

/* Takes one now. RF_BUSY: somebody else is at it, or a process that is stopped in the middle of a write
 * (detail.pid) can't be copied. */
rf_status rf_snapshot_take(struct rf_actor *actor, struct rf_logger *logger, rf_detail *detail);
/* Whether enough log was written since the last one. */
bool rf_snapshot_due(const struct rf_map *map);
/* The pid of a member whose operation holds the next snapshot's R back, 0 if there is none. */
uint32_t rf_snapshot_held_by(const struct rf_map *map);

#define RF_SNAPSHOTTER_KEPT UINT32_MAX /* in the upper half of header.snapshotter */

/* Being the one who may. A backup holds it too, so that no segment is removed meanwhile. */
rf_status rf_snapshotter_enter(struct rf_actor *actor, rf_detail *detail);
void rf_snapshotter_leave(struct rf_actor *actor);
/* He is not to be replaced while he lives, until he leaves, though nothing is heard of him. Who only takes a snapshot is,
 * after ten seconds. */
void rf_snapshotter_keep(struct rf_actor *actor);
/* The same as rf_snapshot_take for one who is. */
rf_status rf_snapshot_take_entered(struct rf_actor *actor, struct rf_logger *logger,
                                   rf_detail *detail);

/* --- files --- */

#define RF_SNAPSHOT_PREFIX "snapshot."
#define RF_SNAPSHOT_NAME   32u
void rf_snapshot_name(uint64_t epoch, char name[RF_SNAPSHOT_NAME]);

/* Reads the header and checks the hash over everything. RF_NOT_FOUND, RF_CORRUPT (also: of another
 * store), RF_VERSION_MISMATCH, RF_IO_ERROR. */
rf_status rf_snapshot_check(int dir_fd, uint64_t epoch, const uint8_t store_id[16],
                            struct rf_snapshot_header *header, rf_detail *detail);
/* The same for somebody who has time: calls rest after every megabyte. */
rf_status rf_snapshot_check_slowly(int dir_fd, uint64_t epoch, const uint8_t store_id[16],
                                   struct rf_snapshot_header *header, void (*rest)(void *context),
                                   void *context, rf_detail *detail);
/* Loads one that was checked. */
rf_status rf_snapshot_load(int dir_fd, const struct rf_snapshot_header *header,
                           struct rf_replay *replay, rf_detail *detail);

/* The epochs of the snapshots that are there, newest first; at most `room` of them. */
rf_status rf_snapshot_list(struct rf_disk *disk, uint64_t *epochs, unsigned room, unsigned *count,
                           rf_detail *detail);

#endif
