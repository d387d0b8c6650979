/* Looking without locks. */
#ifndef RF_READ_H
#define RF_READ_H

#include "operation.h"

/* The ranges of a run that are not split any further, sorted by start, in fresh memory (*specs and
 * *bytes). For add_shards, which holds the run's lock. */
rf_status rf_read_ranges(struct rf_map *map, struct rf_actor *actor, struct rf_runrec *run,
                         rf_spec **specs, uint32_t *count, void **bytes, rf_detail *detail);

#endif
