#include "lane.h"

uint64_t rf_lane_commit_sealed(struct rf_actor *actor, struct rf_lane_draft *draft, uint32_t moved)
{
    struct rf_lane_head *lane = &actor->me->lane;
    /* acquire: the open epoch is read after everything that the operation depends on. */
    uint64_t epoch = atomic_load_explicit(&actor->map->header->epoch, memory_order_acquire);
    uint64_t word = atomic_load_explicit(&lane->word, memory_order_relaxed);
    draft->record->epoch = epoch;
    for (;;) {
        if (word >> RF_LANE_OFFSET_BITS > epoch) {
            /* Somebody sealed the epoch that the header names. */
            epoch = atomic_load_explicit(&actor->map->header->epoch, memory_order_acquire);
            draft->record->epoch = epoch;
        }
        RF_POINT("lane.before_commit");
        /* release: the record and the redo image are there for whoever sees the offset moved. */
        if (word >> RF_LANE_OFFSET_BITS <= epoch &&
            atomic_compare_exchange_strong_explicit(&lane->word, &word,
                                                    epoch << RF_LANE_OFFSET_BITS | moved,
                                                    memory_order_seq_cst, memory_order_relaxed)) {
            return epoch;
        }
    }
}

const struct rf_lane_record *rf_lane_find(const struct rf_map *map, uint32_t slot, uint32_t offset)
{
    uint64_t ring = map->header->lane_units;
    uint8_t *lane = rf_lane_at(map, slot);
    const struct rf_lane_record *record = (void *)rf_lane_unit(map, lane, offset);
    uint64_t at = offset & (ring - 1);
    if (record->kind == RF_LANE_FILLER) {
        if (at + record->units != ring) {
            return NULL;
        }
        record = (const void *)lane;
        at = 0;
    }
    bool fits = record->units >= 1 && at + record->units <= ring &&
                record->body_bytes <= (record->units - 1u) * (uint64_t)RF_LINE;
    return fits ? record : NULL;
}

void rf_lane_peek(const struct rf_map *map, uint32_t slot, uint32_t offset,
                  struct rf_lane_record *copy)
{
    uint8_t *lane = rf_lane_at(map, slot);
    rf_lane_copy(copy, rf_lane_unit(map, lane, offset), sizeof(*copy));
    if (copy->kind == RF_LANE_FILLER) {
        rf_lane_copy(copy, lane, sizeof(*copy));
    }
}
