/* Snapshots: the state of the store in one file, taken while everybody works on. */
#ifndef RF_SNAPSHOT_H
#define RF_SNAPSHOT_H

#include "log.h"

/* Whether so much log has been written since the last one that it is time for the next, and nobody is taking it. */
bool rf_snapshot_due(const struct rf_map *map);
/* Takes one. RF_BUSY if somebody else does. */
rf_status rf_snapshot_take(struct rf_actor *actor, struct rf_logger *logger, rf_detail *detail);
/* The pid of a member whose unfinished operation holds the next one back; 0: nobody's. */
uint32_t rf_snapshot_held_by(const struct rf_map *map);

#endif
