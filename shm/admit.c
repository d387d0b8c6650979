#include "admit.h"

#include <errno.h>

#include "guardian.h"
#include "log.h"

#define NUDGES             8u /* how often in a round of its lane an owner asks for it to be written */
#define LOAD(word)         atomic_load_explicit(&(word), memory_order_acquire)
#define LOAD_RELAXED(word) atomic_load_explicit(&(word), memory_order_relaxed)

uint64_t rf_log_activity(const struct rf_map *map)
{
    uint64_t sum = 0;
    uint32_t used = LOAD(map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        if (rf_slot_was_used(map, slot)) {
            sum += rf_lane_end(&rf_slot_at(map, slot)->lane);
        }
    }
    return sum;
}

uint64_t rf_log_last(const struct rf_map *map)
{
    uint64_t last = 0;
    uint32_t used = LOAD(map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        if (rf_slot_was_used(map, slot)) {
            uint64_t e = LOAD_RELAXED(rf_slot_at(map, slot)->lane.last);
            last = e > last ? e : last;
        }
    }
    return last;
}

/* Room in the lane for one record of any size, and its filler. */
#define ROOM (2u * (uint64_t)RF_LANE_UNITS_MAX)
_Static_assert(ROOM <= RF_LANE_UNASKED, "memory is made sure of for that");

/* What the owner may overwrite: everything below the end of a durable epoch. */
static void raise_base(struct rf_actor *actor)
{
    struct rf_lane_head *lane = &actor->me->lane;
    uint64_t durable = LOAD(actor->map->header->durable);
    uint64_t base = LOAD_RELAXED(lane->base);
    for (unsigned i = 0; i < RF_LANE_MARKS; i++) {
        const struct rf_lane_mark *m = &actor->marks[i];
        if (m->epoch <= durable && m->end > base) {
            base = m->end;
        }
    }
    /* release: pairs with the load in copy_lane; the head follows before anything is overwritten. */
    atomic_store_explicit(&lane->base, base, memory_order_release);
}

rf_status rf_log_admit_slow(struct rf_actor *actor, bool ending, rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_header *h = map->header;
    struct rf_lane_head *lane = &actor->me->lane;
    uint64_t ring = map->lane_mask + 1;
    uint64_t end = LOAD_RELAXED(lane->end);
    if (LOAD(h->condemned) == 0) {
        rf_log_secure(actor->logger);
    }
    if (LOAD(h->condemned) != 0) {
        return rf_log_failure(map, detail);
    }
    if (LOAD(h->log_short) != 0 && !ending) {
        rf_guardian_hurry(map); /* there may be room by now */
        return rf_refuse(
            detail, RF_RESOURCE_EXHAUSTED, ENOSPC,
            "the log of %.100s needs room on its disk; what is leased can be ended, with "
            "a cursor of %u bytes or less",
            map->directory, RF_SHORT_CURSOR);
    }
    /* Memory for what will be written; in the first round it may not be there yet. */
    if (end < ring) {
        uint64_t offset = h->lanes.offset + actor->slot * h->lanes.stride;
        uint64_t upto = end + RF_LANE_UNASKED < ring ? end + RF_LANE_UNASKED : ring;
        rf_status status = rf_region_ensure(map, offset, upto * RF_LINE, detail);
        if (status != RF_OK) {
            return status;
        }
    }
    /* Otherwise there is room, and those who compose know by `walked` where to begin. */
    if (end < ring || end + ROOM > LOAD_RELAXED(lane->base) + ring) {
        raise_base(actor);
    }
    while (end + ROOM > LOAD_RELAXED(lane->base) + ring) {
        /* The oldest of this lane that is not durable. */
        uint64_t durable = LOAD(h->durable), oldest = UINT64_MAX;
        for (unsigned i = 0; i < RF_LANE_MARKS; i++) {
            uint64_t e = actor->marks[i].epoch;
            oldest = e > durable && e < oldest ? e : oldest;
        }
        if (oldest != UINT64_MAX) {
            rf_status status = rf_log_wait(actor->logger, oldest, detail);
            if (status != RF_OK) {
                return status;
            }
        }
        raise_base(actor);
    }
    /* Ask again when the memory that was made sure of is used up, or the room on the disk: rf_log_secure. */
    uint64_t limit = LOAD_RELAXED(lane->base) + ring - ROOM;
    uint64_t sure = end + RF_LANE_UNASKED - RF_LANE_UNITS_MAX;
    actor->lane_limit = limit < sure ? limit : sure;
    return RF_OK;
}

void rf_log_note_slow(struct rf_actor *actor)
{
    struct rf_map *map = actor->map;
    uint64_t end = LOAD_RELAXED(actor->me->lane.end);
    if (end >= actor->lane_nudge) {
        actor->lane_nudge = end + (map->lane_mask + 1) / NUDGES;
        atomic_store(&map->flush_now, true);
    }
    rf_guardian_hurry(map);
}

void rf_log_resume(struct rf_actor *actor)
{
    struct rf_map *map = actor->map;
    const struct rf_lane_head *lane = &actor->me->lane;
    uint64_t end = LOAD_RELAXED(lane->end), ring = map->lane_mask + 1;
    actor->lane_limit = 0;
    actor->lane_nudge = end + ring / NUDGES;
    memset(actor->marks, 0, sizeof(actor->marks));
    if (map->header->sealing == 0) {
        return;
    }
    for (uint64_t p = LOAD_RELAXED(lane->base); p < end;) {
        const struct rf_lane_record *r = (const void *)rf_lane_unit(map, actor->lane, p);
        assert(r->units != 0);
        p += r->units;
        if (r->kind != RF_LANE_FILLER) {
            actor->marks[r->epoch % RF_LANE_MARKS] =
                (struct rf_lane_mark){.epoch = r->epoch, .end = p};
        }
    }
}
