/*
 * The indexes: from (tenant, run) to a run slot, and from (run, shard id) to a shard slot.
 *
 * A table of buckets with 8 cells. A key has two buckets (in a table that ever ran over, four); an
 * entry goes to the emptier one and stays there. A cell is one word: 32 bits of the key's hash and
 * the slot. Entering is a compare-and-swap of an empty cell, leaving one of the expected value, so
 * both can be repeated by a survivor. There are no tombstones: a search reads whole buckets.
 *
 * A cell says where to look and nothing more: whether the slot is that shard is for the caller to
 * check, so a stale or half-made entry is safe. Two entries for one key can't be made at once,
 * because the maker holds the run's lock (shards) or the name's stripe (runs).
 */
#ifndef RF_INDEX_H
#define RF_INDEX_H

#include "actor.h"

uint64_t rf_index_hash_shard(const struct rf_map *map, uint64_t run_uid, uint64_t shard);
uint64_t rf_index_hash_run(const struct rf_map *map, const rf_tenant *tenant, uint64_t run);

rf_status rf_index_enter_shard(struct rf_actor *actor, uint64_t hash, uint32_t slot,
                               rf_detail *detail);
/* What entering will look at first comes into the cache. */
void rf_index_prefetch_shard(const struct rf_map *map, uint64_t hash);
void rf_index_leave_shard(struct rf_map *map, uint64_t hash, uint32_t slot);
/* Slots that may be the key's, one after another; *at starts at 0. Returns false when done. */
bool rf_index_next_shard(const struct rf_map *map, uint64_t hash, uint32_t *at, uint32_t *slot);

rf_status rf_index_enter_run(struct rf_actor *actor, uint64_t hash, uint32_t slot,
                             rf_detail *detail);
void rf_index_leave_run(struct rf_map *map, uint64_t hash, uint32_t slot);
bool rf_index_next_run(const struct rf_map *map, uint64_t hash, uint32_t *at, uint32_t *slot);

#endif
