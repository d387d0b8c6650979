#include "lane.h"

#include "point.h"
#include "seq.h"

static inline uint8_t *unit_at(const struct rf_map *map, uint8_t *lane, uint64_t position)
{
    return lane + (position & (map->header->lane_units - 1)) * RF_LINE;
}

void rf_lane_begin(struct rf_actor *actor, size_t bytes, struct rf_lane_draft *draft)
{
    struct rf_lane_head *lane = &actor->me->lane;
    uint64_t ring = actor->map->header->lane_units;
    uint64_t need = 1 + (bytes + RF_LINE - 1) / RF_LINE;
    uint64_t end = atomic_load_explicit(&lane->end, memory_order_relaxed);
    uint64_t rest = ring - (end & (ring - 1));
    assert(2 * need <= ring);

    draft->filler = need > rest ? (uint32_t)rest : 0;
    draft->offset = rf_lane_offset(atomic_load_explicit(&lane->word, memory_order_relaxed));
    assert(draft->offset == (end & RF_LANE_OFFSET_MASK));
    uint64_t head = end + draft->filler + need;
    head = head > ring ? head - ring : 0;
    if (head > atomic_load_explicit(&lane->head, memory_order_relaxed)) {
        /* Readers that find the old head again after reading have read whole records. */
        atomic_store_explicit(&lane->head, head, memory_order_relaxed);
        atomic_thread_fence(memory_order_release);
        RF_POINT("lane.head");
    }
    if (draft->filler != 0) {
        struct rf_lane_record filler = {.units = draft->filler, .kind = RF_LANE_FILLER};
        rf_words_store(unit_at(actor->map, actor->lane, end), &filler, sizeof(filler));
    }
    draft->record = (void *)unit_at(actor->map, actor->lane, end + draft->filler);
    draft->body = (uint8_t *)(draft->record + 1);
}

void rf_lane_finish(struct rf_actor *actor, struct rf_lane_draft *draft, enum rf_lane_kind kind,
                    size_t bytes, uint64_t stamp)
{
    struct rf_lane_head *lane = &actor->me->lane;
    draft->units = (uint32_t)(1 + (bytes + RF_LINE - 1) / RF_LINE);
    draft->record->units = draft->units;
    draft->record->kind = (uint16_t)kind;
    draft->record->stamp = stamp;
    draft->record->sequence = atomic_load_explicit(&lane->sequence, memory_order_relaxed);
    draft->record->body_bytes = (uint32_t)bytes;
}

uint64_t rf_lane_commit(struct rf_actor *actor, struct rf_lane_draft *draft)
{
    struct rf_lane_head *lane = &actor->me->lane;
    uint32_t moved = (draft->offset + draft->filler + draft->units) & RF_LANE_OFFSET_MASK;
    /* acquire: G is read after everything that the operation depends on. */
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
                                                    memory_order_acq_rel, memory_order_relaxed)) {
            break;
        }
    }
    RF_POINT("lane.committed");
    lane->stamp = draft->record->stamp;
    atomic_store_explicit(&lane->sequence, draft->record->sequence + 1, memory_order_relaxed);
    /* release: who sees this end sees the records below it. Follows the commit, so a member that
     * died in between has an end that lags; the next generation takes it from the lane word. */
    atomic_store_explicit(&lane->end,
                          atomic_load_explicit(&lane->end, memory_order_relaxed) + draft->filler +
                              draft->units,
                          memory_order_release);
    return epoch;
}

const struct rf_lane_record *rf_lane_find(const struct rf_map *map, uint32_t slot, uint32_t offset)
{
    uint64_t ring = map->header->lane_units;
    uint8_t *lane = rf_lane_at(map, slot);
    const struct rf_lane_record *record = (void *)unit_at(map, lane, offset);
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
