/*
 * What happens to the region after the commit, by the committer or by a survivor: every step stores
 * absolute values that were worked out before, so doing it again changes nothing.
 *
 * The order matters to readers, who take no locks. A run's numbers change inside its sequence lock;
 * new shards become reachable by the run's count and, if they were split off, visible by their
 * parent's version, so the split of the parent and the birth of its children are one event.
 */
#ifndef RF_APPLY_H
#define RF_APPLY_H

#include "lane.h"
#include "record.h"

/* What the lane's record said, in memory. */
struct rf_applied {
    const struct rf_shard_step *step; /* RF_REDO_SHARD */
    const struct rf_run *run;         /* RF_REDO_RUN */
    uint64_t epoch;
    uint64_t stamp;
};

void rf_apply(struct rf_map *map, const struct rf_desc *desc, const struct rf_applied *applied);

/* Gives back everything that an operation that did not commit had taken. */
void rf_undo(struct rf_map *map, struct rf_desc *desc);

/* Wakes claimers of a run: at most `count` of those who wait, everybody if it is UINT32_MAX. */
void rf_wake_claimers(struct rf_map *map, struct rf_runrec *run, uint32_t count);

#endif
