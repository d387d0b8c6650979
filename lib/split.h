/* What a split may look like: coverage, sizes, room and ids. */
#ifndef RF_SPLIT_H
#define RF_SPLIT_H

#include "shard.h"

/* Count, coverage, inversion, sizes, cursors, in this order; leaves the start order of the children
 * in scratch->order. detail->index is the caller's position. */
rf_status rf_split_check_replace(const rf_spec *parent, const rf_child *children, uint32_t count,
                                 struct rf_split_scratch *scratch, rf_detail *detail);

rf_status rf_split_check_residual(const rf_spec *parent, const rf_cursor *stored,
                                  const rf_spec *parent_new, const rf_spec *residual,
                                  rf_detail *detail);

/* The shard's own limit for life, then the limits of PROTOCOL section 3. */
rf_status rf_split_check_room(uint32_t spawned, uint32_t count, const struct rf_env *env,
                              rf_detail *detail);
rf_status rf_limit_check(uint64_t count, const struct rf_env *env, rf_detail *detail);

/* order[i] is the caller's position of the shard that ids[i] is for. */
rf_status rf_split_check_ids(const uint64_t *ids, const uint16_t *order, uint32_t count,
                             const struct rf_env *env, rf_detail *detail);

#endif
