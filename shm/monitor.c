/*
 * Following what members do, from outside and without their help: an observer reads along their
 * lanes. A record is believed only if the lane's head has not passed it after it was read; if the
 * owner was faster, the observer goes on at the lane's end and counts what it missed by the
 * records' sequence numbers.
 */
#include <stdlib.h>

#include "handle.h"
#include "lane.h"
#include "seq.h"

struct follower {
    uint64_t position;
    uint32_t sequence; /* of the record at that position */
};

struct monitor {
    struct rf_monitor monitor; /* first */
    struct rf_map *map;
    uint32_t slots;
    uint32_t next; /* where the next read begins, so that no member is favoured */
    uint64_t lost;
    struct rf_step_record step;
    _Alignas(8) uint8_t record[sizeof(struct rf_lane_record) + RF_LANE_BODY_MAX + RF_LINE];
    struct follower followers[];
};

rf_status rf_shm_monitor_create(rf_store *store, rf_monitor **out)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t slots = h->map->header->slot_count;
    struct monitor *m = calloc(1, sizeof(*m) + slots * sizeof(m->followers[0]));
    if (m == NULL) {
        return RF_RESOURCE_EXHAUSTED;
    }
    m->monitor.backend = store->backend;
    m->monitor.store = store;
    m->map = h->map;
    m->slots = slots;
    uint32_t used = atomic_load_explicit(&h->map->header->members_used, memory_order_acquire);
    for (uint32_t slot = 0; slot < used; slot++) {
        const struct rf_lane_head *lane = &rf_slot_at(h->map, slot)->lane;
        if (slot == 0 && atomic_load(&rf_member_at(h->map, 0)->joined_at) == 0) {
            continue; /* the repair slot was never used, and may have no memory */
        }
        m->followers[slot].sequence =
            (uint32_t)atomic_load_explicit(&lane->sequence, memory_order_relaxed);
        m->followers[slot].position = atomic_load_explicit(&lane->end, memory_order_acquire);
    }
    *out = &m->monitor;
    return RF_OK;
}

void rf_shm_monitor_destroy(rf_monitor *monitor)
{
    free(monitor);
}

static void fill_event(struct monitor *m, const struct rf_lane_record *r, rf_event *e)
{
    const struct rf_runrec *run = rf_run_at(m->map, r->run_slot);
    *e = (rf_event){
        .kind = (rf_event_kind)r->event, .run = r->run, .time = r->time, .count = r->count};
    if (run != NULL && __atomic_load_n(&run->run, __ATOMIC_RELAXED) == r->run) {
        _Alignas(8) rf_tenant tenant; /* an event's own is not aligned for words */
        rf_words_load(&tenant, &run->tenant, sizeof(tenant));
        e->tenant = tenant;
    }
    size_t used;
    if (r->kind != RF_LANE_STEP || rf_codec_get_step(rf_lane_codec(r), &m->step, &used) != RF_OK) {
        return;
    }
    const struct rf_shard_state *next = &m->step.step.next;
    e->shard = m->step.shard;
    switch (e->kind) {
    case RF_EVENT_ACQUIRED:
        e->worker = next->owner;
        e->deadline = next->deadline;
        e->fence = next->fence;
        break;
    case RF_EVENT_UNPARKED:
        e->fence = next->fence;
        break;
    case RF_EVENT_CHECKPOINTED:
    case RF_EVENT_COMPLETED:
        e->key_len = (uint32_t)m->step.step.cursor.key.len;
        break;
    case RF_EVENT_PARKED:
        e->reason = (rf_park_reason)next->park_reason;
        break;
    case RF_EVENT_RESIDUAL_CREATED:
        e->child = m->step.step.spawned_ids != NULL ? m->step.step.spawned_ids[0] : 0;
        break;
    default:
        break;
    }
}

/* Goes on at the end of the lane: what lies between is gone. */
static void skip_to_end(struct monitor *m, struct follower *f, const struct rf_lane_head *lane)
{
    f->position = atomic_load_explicit(&lane->end, memory_order_acquire);
    uint32_t sequence = (uint32_t)atomic_load_explicit(&lane->sequence, memory_order_relaxed);
    uint32_t missed = sequence - f->sequence; /* they wrap */
    m->lost += missed < UINT32_MAX / 2 ? missed : 0;
    f->sequence = sequence;
}

enum step { STEP_NONE, STEP_QUIET, STEP_EVENT };

/* The next record of a lane. */
static enum step follow(struct monitor *m, uint32_t slot, rf_event *event)
{
    struct follower *f = &m->followers[slot];
    const struct rf_lane_head *lane = &rf_slot_at(m->map, slot)->lane;
    uint64_t ring = m->map->header->lane_units;
    if (f->position == atomic_load_explicit(&lane->end, memory_order_acquire)) {
        return STEP_NONE;
    }
    const uint8_t *base = rf_lane_at(m->map, slot);
    const uint8_t *at = base + (f->position & (ring - 1)) * RF_LINE;
    struct rf_lane_record *r = (void *)m->record;
    rf_lane_copy(r, at, sizeof(*r));
    uint64_t units = r->units;
    bool whole = units >= 1 && units <= ring - (f->position & (ring - 1));
    if (whole && r->kind != RF_LANE_FILLER) {
        size_t body = (units - 1) * RF_LINE;
        whole = body <= sizeof(m->record) - sizeof(*r) && r->body_bytes <= body;
        if (whole) {
            rf_lane_copy(r + 1, at + sizeof(*r), body);
        }
    }
    /* Pairs with the fence in rf_lane_begin. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&lane->head, memory_order_relaxed) > f->position || !whole) {
        skip_to_end(m, f, lane);
        return STEP_QUIET;
    }
    f->position += units;
    if (r->kind == RF_LANE_FILLER) {
        return STEP_QUIET;
    }
    f->sequence = r->sequence + 1;
    if (r->event > RF_EVENT_RUN_PURGED || r->kind == RF_LANE_CHUNK) {
        return STEP_QUIET; /* housekeeping */
    }
    fill_event(m, r, event);
    return STEP_EVENT;
}

static int by_time(const void *a, const void *b)
{
    const rf_event *x = a, *y = b;
    return (x->time > y->time) - (x->time < y->time);
}

rf_status rf_shm_monitor_read(rf_monitor *monitor, rf_event *events, size_t capacity, size_t *count,
                              uint64_t *lost)
{
    struct monitor *m = (struct monitor *)(void *)monitor;
    uint32_t used = atomic_load_explicit(&m->map->header->members_used, memory_order_acquire);
    size_t n = 0;
    for (uint32_t i = 0; i < used && n < capacity; i++) {
        uint32_t slot = (m->next + i) % used;
        if (atomic_load_explicit(&rf_member_at(m->map, slot)->joined_at, memory_order_acquire) ==
            0) {
            continue; /* never used: it may have no memory */
        }
        enum step step = STEP_QUIET;
        while (n < capacity && step != STEP_NONE) {
            step = follow(m, slot, &events[n]);
            n += step == STEP_EVENT;
        }
    }
    m->next = used == 0 ? 0 : (m->next + 1) % used;
    qsort(events, n, sizeof(*events), by_time);
    *count = n;
    *lost = m->lost;
    m->lost = 0;
    return RF_OK;
}
