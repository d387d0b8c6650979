/*
 * The batch of an epoch: a pure function of the lanes, once they are all raised past it and its place and
 * predecessor are known. Anybody can compute it, in private memory, and gets the same bytes; a copy that was taken
 * while the lanes were already reused is noticed and thrown away.
 */
#ifndef RF_BATCH_H
#define RF_BATCH_H

#include <blake3.h>

#include "lane.h"

/* How far a lane was walked: records of this epoch and earlier ones lie below the position. */
struct rf_batch_hint {
    uint64_t epoch;
    uint64_t position;
};

struct rf_batcher {
    struct rf_map *map;
    uint8_t *buffer; /* the last batch, on whole blocks, aligned to one */
    size_t capacity;
    struct rf_batch_hint *hints; /* for each lane */
    blake3_hasher fresh;         /* with the context of batches */
};

rf_status rf_batcher_init(struct rf_batcher *batcher, struct rf_map *map, rf_detail *detail);
void rf_batcher_drop(struct rf_batcher *batcher);

/* Raises every lane that is not past `epoch` to epoch + 1, lanes of free and dead slots included:
 * after it no record can be committed with that epoch or an earlier one. */
void rf_lanes_raise(struct rf_map *map, uint64_t epoch);

/* Says how far lanes were walked for batches that are durable by now: others begin there. */
void rf_batcher_tell(struct rf_batcher *batcher);

/* The batch of a sealed epoch that follows `before`. *late: it is durable already, or its entry is
 * another's by now; there is nothing to do. */
rf_status rf_batch_compose(struct rf_batcher *batcher, uint64_t epoch,
                           const struct rf_log_end *before, struct rf_batch_header *out, bool *late,
                           rf_detail *detail);

#endif
