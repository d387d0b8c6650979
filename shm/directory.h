/*
 * Where a run's shards are. Shards of a run are numbered in the order in which they came (their
 * position); 64 positions are an extent, 1,024 extents hang on a leaf, 256 leaves on the run.
 *
 * Extents and leaves belong to a run from the moment their tag word holds its uid. Whoever grows a
 * run holds its lock and first writes the number into the directory and the place into its
 * descriptor, then swaps the tag in. Places behind the run's count mean nothing to anybody else, so
 * an operation that comes to nothing leaves nothing behind but the tags that its descriptor names.
 */
#ifndef RF_DIRECTORY_H
#define RF_DIRECTORY_H

#include "actor.h"

#define RF_NO_SLOT UINT32_MAX

/* The slot at a position, RF_NO_SLOT if the directory does not lead there. */
uint32_t rf_dir_slot(const struct rf_map *map, const struct rf_runrec *run, uint64_t position);
struct rf_leaf *rf_dir_leaf(const struct rf_map *map, const struct rf_runrec *run, uint64_t extent);

/* Makes room for positions below `to`. Called in state TAKING with the run's lock held. */
rf_status rf_dir_grow(struct rf_actor *actor, struct rf_runrec *run, uint64_t uid, uint64_t from,
                      uint64_t to, rf_detail *detail);
/* Gives back what an operation that did not commit had taken. */
void rf_dir_undo(struct rf_map *map, struct rf_runrec *run, const struct rf_desc *desc);
/* Gives back everything of a run that goes away. */
void rf_dir_drop(struct rf_map *map, struct rf_runrec *run, uint64_t uid);

/* Claimable bits. All of them change only under the run's lock. */
void rf_dir_set_claimable(const struct rf_map *map, struct rf_runrec *run, uint64_t position,
                          bool claimable);
/* The first claimable position at or behind `from` and below `count`, or UINT64_MAX. May be wrong
 * by what changes meanwhile; a claim looks again under the locks. */
uint64_t rf_dir_next_claimable(const struct rf_map *map, const struct rf_runrec *run, uint64_t from,
                               uint64_t count);

uint64_t rf_extents_used(const struct rf_map *map);
uint64_t rf_leaves_used(const struct rf_map *map);

#endif
