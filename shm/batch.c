#define _GNU_SOURCE
#include "batch.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "log_entry.h"
#include "point.h"

#define BUFFER_LEAST       (64u * 1024u)
#define LOAD(word)         atomic_load_explicit(&(word), memory_order_acquire)
#define LOAD_RELAXED(word) atomic_load_explicit(&(word), memory_order_relaxed)

rf_status rf_batcher_init(struct rf_batcher *batcher, struct rf_map *map, rf_detail *detail)
{
    *batcher = (struct rf_batcher){.map = map, .capacity = BUFFER_LEAST};
    batcher->hints = calloc(map->header->slot_count, sizeof(*batcher->hints));
    /* Of its own mapping: it can become many times as large, and then is moved without being copied. */
    void *buffer =
        mmap(NULL, batcher->capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    batcher->buffer = buffer == MAP_FAILED ? NULL : buffer;
    blake3_hasher_init_derive_key(&batcher->fresh, RF_BATCH_CONTEXT);
    if (batcher->hints == NULL || batcher->buffer == NULL) {
        rf_batcher_drop(batcher);
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the log");
    }
    return RF_OK;
}

void rf_batcher_drop(struct rf_batcher *batcher)
{
    free(batcher->hints);
    if (batcher->buffer != NULL) {
        munmap(batcher->buffer, batcher->capacity);
    }
}

void rf_lanes_raise(struct rf_map *map, uint64_t epoch)
{
    /* Pairs with the fence in rf_member_join: a lane that is not seen here belongs to somebody who
     * has not read the open epoch yet. */
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t used = LOAD(map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        if (!rf_slot_was_used(map, slot)) {
            continue;
        }
        rf_word64 *lane = &rf_slot_at(map, slot)->lane.word;
        uint64_t word = atomic_load_explicit(lane, memory_order_acquire);
        /* acq_rel: what the lane's owner committed before is seen, by whoever raised it. */
        while (word >> RF_LANE_OFFSET_BITS <= epoch &&
               !atomic_compare_exchange_weak_explicit(
                   lane, &word, (epoch + 1) << RF_LANE_OFFSET_BITS | rf_lane_offset(word),
                   memory_order_acq_rel, memory_order_acquire)) {
        }
        RF_POINT("log.raised");
    }
}

static bool reserve(struct rf_batcher *batcher, size_t bytes)
{
    if (bytes <= batcher->capacity) {
        return true;
    }
    size_t capacity = batcher->capacity;
    while (capacity < bytes) {
        capacity *= 2;
    }
    void *buffer = mremap(batcher->buffer, batcher->capacity, capacity, MREMAP_MAYMOVE);
    if (buffer == MAP_FAILED) {
        return false;
    }
    batcher->buffer = buffer;
    batcher->capacity = capacity;
    return true;
}

enum copied { COPIED, COPY_TORN, COPY_NO_MEMORY, COPY_DAMAGED };

/* Appends one lane's records of the epoch to the buffer at *at. */
static enum copied copy_lane(struct rf_batcher *batcher, uint32_t slot, uint64_t epoch, size_t *at,
                             uint32_t *records)
{
    struct rf_map *map = batcher->map;
    const struct rf_lane_head *lane = &rf_slot_at(map, slot)->lane;
    uint8_t *ring = rf_lane_at(map, slot);
    uint64_t units = map->lane_mask + 1;
    struct rf_batch_hint *hint = &batcher->hints[slot];
    /* Below either lies nothing but what was durable when they were stored. If that is more than the epochs
     * before this one, this one is durable, and what comes of the walk is thrown away. */
    uint64_t base = LOAD(lane->base), walked = LOAD(lane->walked);
    uint64_t from = hint->epoch < epoch && hint->position > base ? hint->position : base;
    from = walked > from ? walked : from;
    uint64_t end = rf_lane_end(lane);
    uint64_t p = from;
    RF_POINT("log.walking");
    while (p < end) {
        struct rf_lane_record r;
        const uint8_t *unit = ring + (p & map->lane_mask) * RF_LINE;
        rf_lane_copy(&r, unit, sizeof(r));
        bool sound = r.units >= 1 && r.units <= units - (p & map->lane_mask);
        if (sound && r.kind == RF_LANE_FILLER) {
            p += r.units;
            continue;
        }
        if (!sound || r.body_bytes > (r.units - 1u) * (size_t)RF_LINE) {
            atomic_thread_fence(memory_order_acquire);
            return LOAD_RELAXED(lane->head) > from ? COPY_TORN : COPY_DAMAGED;
        }
        if (r.epoch > epoch) {
            break;
        }
        if (r.epoch == epoch) {
            size_t body = (r.body_bytes + 7u) & ~(size_t)7;
            struct rf_log_record out = {.bytes = (uint32_t)(sizeof(out) + body),
                                        .kind = r.kind,
                                        .event = r.event,
                                        .stamp = r.stamp,
                                        .uid = r.uid,
                                        .body_bytes = r.body_bytes,
                                        .lane = slot};
            if (!reserve(batcher, *at + sizeof(out) + body)) {
                return COPY_NO_MEMORY;
            }
            memcpy(batcher->buffer + *at, &out, sizeof(out));
            rf_lane_copy(batcher->buffer + *at + sizeof(out), unit + sizeof(r), body);
            memset(batcher->buffer + *at + sizeof(out) + r.body_bytes, 0, body - r.body_bytes);
            *at += sizeof(out) + body;
            (*records)++;
        }
        p += r.units;
    }
    RF_POINT("log.copied");
    /* Pairs with the fence in rf_lane_begin: what was copied was there if the head has not passed
     * where the walk began. */
    atomic_thread_fence(memory_order_acquire);
    if (LOAD_RELAXED(lane->head) > from) {
        return COPY_TORN;
    }
    *hint = (struct rf_batch_hint){.epoch = epoch, .position = p};
    return COPIED;
}

void rf_batcher_tell(struct rf_batcher *batcher)
{
    const struct rf_header *h = batcher->map->header;
    uint64_t durable = LOAD(h->durable);
    uint32_t used = LOAD(h->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        const struct rf_batch_hint *hint = &batcher->hints[slot];
        if (hint->epoch == 0 || hint->epoch > durable) {
            continue;
        }
        rf_word64 *walked = &rf_slot_at(batcher->map, slot)->lane.walked;
        uint64_t seen = LOAD_RELAXED(*walked);
        /* release: pairs with the load in copy_lane, who sees `durable` at least as it was here. */
        while (seen < hint->position &&
               !atomic_compare_exchange_weak_explicit(walked, &seen, hint->position,
                                                      memory_order_release, memory_order_relaxed)) {
        }
    }
}

rf_status rf_batch_compose(struct rf_batcher *batcher, uint64_t epoch,
                           const struct rf_log_end *before, struct rf_batch_header *out, bool *late,
                           rf_detail *detail)
{
    struct rf_map *map = batcher->map;
    struct rf_header *h = map->header;
    struct rf_batch_header b = {.magic = RF_BATCH_MAGIC,
                                .format = RF_LOG_FORMAT,
                                .header_bytes = sizeof(b),
                                .incarnation = h->incarnation,
                                .epoch = epoch,
                                .position = before->position};
    *late = true;
    /* What is not a function of the lanes is agreed upon. */
    uint64_t durable = LOAD(h->durable);
    uint32_t lag = (uint32_t)(epoch - durable);
    if (durable >= epoch || !rf_entry_agree(&rf_entry_of(map, epoch)->durable, epoch, &lag)) {
        return RF_OK;
    }
    RF_POINT("log.agreed");
    b.durable = epoch - lag;
    rf_lanes_raise(map, epoch);
    uint32_t used = LOAD(h->members_used);
    size_t at = sizeof(b);
    for (uint32_t slot = 0; slot < used; slot++) {
        uint32_t records = b.records;
        size_t start = at;
        if (!rf_slot_was_used(map, slot)) {
            continue;
        }
        for (;;) {
            enum copied copied = copy_lane(batcher, slot, epoch, &at, &b.records);
            if (copied == COPIED) {
                break;
            }
            if (copied == COPY_NO_MEMORY) {
                return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a batch");
            }
            if (LOAD(h->durable) >= epoch) {
                return RF_OK;
            }
            if (copied == COPY_DAMAGED) {
                return rf_refuse(detail, RF_CORRUPT, 0, "the lane of member slot %u", slot);
            }
            batcher->hints[slot] = (struct rf_batch_hint){0};
            at = start;
            b.records = records;
        }
        b.lanes += b.records != records;
    }
    /* The lanes may have been reused under us if somebody else has finished it. */
    if (LOAD(h->durable) >= epoch) {
        return RF_OK;
    }
    b.record_bytes = at - sizeof(b);
    b.bytes = (at + RF_LOG_BLOCK - 1) / RF_LOG_BLOCK * RF_LOG_BLOCK;
    if (!reserve(batcher, b.bytes)) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a batch");
    }
    memset(batcher->buffer + at, 0, b.bytes - at);
    memcpy(b.store_id, h->store_id, sizeof(b.store_id));
    memcpy(b.previous, before->hash, sizeof(b.previous));
    memcpy(batcher->buffer, &b, sizeof(b));
    blake3_hasher hasher = batcher->fresh;
    blake3_hasher_update(&hasher, batcher->buffer, at);
    blake3_hasher_finalize(&hasher, b.hash, sizeof(b.hash));
    memcpy(batcher->buffer, &b, sizeof(b));
    *out = b;
    *late = false;
    return RF_OK;
}
