#include "layout.h"

#include <string.h>

#include <blake3.h>

/* FNV-1a over the numbers that must be the same in every program that maps a region. */
uint64_t rf_layout_hash(void)
{
    const uint64_t facts[] = {
        RF_REGION_VERSION,
        sizeof(struct rf_header),
        _Alignof(struct rf_header),
        offsetof(struct rf_header, roster),
        offsetof(struct rf_header, slab),
        offsetof(struct rf_header, epoch),
        offsetof(struct rf_header, claims_from),
        offsetof(struct rf_header, condemned),
        offsetof(struct rf_header, log_first),
        offsetof(struct rf_header, log),
        sizeof(struct rf_log_entry),
        RF_LOG_ENTRIES,
        sizeof(struct rf_member),
        offsetof(struct rf_member, robust_next),
        sizeof(struct rf_desc),
        offsetof(struct rf_desc, redo),
        offsetof(struct rf_desc, made_from),
        offsetof(struct rf_desc, blocks),
        offsetof(struct rf_desc, count),
        sizeof(struct rf_counters),
        sizeof(struct rf_lane_head),
        offsetof(struct rf_lane_head, walked),
        sizeof(struct rf_slot),
        offsetof(struct rf_slot, noted),
        offsetof(struct rf_slot, held),
        sizeof(struct rf_rec_body),
        offsetof(struct rf_rec_body, state),
        offsetof(struct rf_rec_body, version),
        sizeof(struct rf_rec),
        offsetof(struct rf_rec, body),
        offsetof(struct rf_rec, ring),
        offsetof(struct rf_rec, spec_bytes),
        sizeof(struct rf_extent),
        offsetof(struct rf_extent, recs),
        sizeof(struct rf_leaf),
        sizeof(struct rf_runrec),
        offsetof(struct rf_runrec, count),
        offsetof(struct rf_runrec, body),
        offsetof(struct rf_runrec, leaf),
        sizeof(struct rf_shard_state),
        sizeof(struct rf_shard_ring),
        sizeof(struct rf_run_ring),
        RF_EXTENT_SHARDS,
        RF_LEAF_EXTENTS,
        RF_RUN_LEAVES,
        RF_SLAB_PAGE,
        RF_SLAB_BLOCK_MIN,
        RF_SLAB_CLASSES,
        RF_GRANULE,
        RF_INDEX_GRANULE,
        RF_STATUS_SLOTS,
    };
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        for (unsigned b = 0; b < 64; b += 8) {
            hash = (hash ^ ((facts[i] >> b) & 0xFFu)) * 0x100000001b3ull;
        }
    }
    return hash;
}

uint64_t rf_header_sum(const struct rf_header *header)
{
    static const struct {
        size_t from, to;
    } parts[] = {
        {0, offsetof(struct rf_header, version)},
        {offsetof(struct rf_header, layout_hash), offsetof(struct rf_header, sum)},
        {offsetof(struct rf_header, sum) + sizeof(uint64_t), offsetof(struct rf_header, epoch)},
    };
    blake3_hasher hasher;
    uint64_t sum;
    blake3_hasher_init_derive_key(&hasher, "ringfence/region-header/v1");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        blake3_hasher_update(&hasher, (const uint8_t *)header + parts[i].from,
                             parts[i].to - parts[i].from);
    }
    blake3_hasher_finalize(&hasher, (uint8_t *)&sum, sizeof(sum));
    return sum;
}
