/* How far a run is: a fold over its shards, in any order. */
#ifndef RF_PROGRESS_H
#define RF_PROGRESS_H

#include "shard.h"

void rf_progress_begin(rf_progress *progress);
/* watermark has room for RF_KEY_MAX bytes and keeps the smallest key between calls. */
void rf_progress_add(rf_progress *progress, const struct rf_shard_state *state,
                     const rf_cursor *cursor, uint64_t now, uint8_t *watermark);
/* The evaluation; call it when all shards were added. */
void rf_progress_end(rf_progress *progress);

#endif
