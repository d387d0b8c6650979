/* A manifest: the shards of one registration, checked as a whole before any of them exists. */
#ifndef RF_MANIFEST_H
#define RF_MANIFEST_H

#include "shard.h"

struct rf_manifest {
    const rf_shard_input *shards;
    uint32_t count;
    const uint32_t *by_id;   /* positions stable-sorted by shard id */
    uint32_t *by_start;      /* scratch of 2 * count entries */
    const rf_spec *existing; /* add_shards: the run's ranges, sorted by start */
    uint32_t existing_count;
};

/* Fills order[0 .. count) with the positions stable-sorted by shard id (or by start). The array has
 * 2 * count entries; the upper half is scratch. */
void rf_manifest_order_by_id(const rf_shard_input *shards, uint32_t count, uint32_t *order);
void rf_manifest_order_by_start(const rf_shard_input *shards, uint32_t count, uint32_t *order);

bool rf_manifest_sound(const rf_shard_input *shards, uint32_t count);

/* The checks of PROTOCOL section 5 in their order, then the limits. */
rf_status rf_manifest_check(const struct rf_manifest *manifest, const struct rf_env *env,
                            rf_detail *detail);

#endif
