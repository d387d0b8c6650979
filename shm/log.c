#define _GNU_SOURCE
#include "log.h"

#include <sched.h>
#include <stdlib.h>

#include <blake3.h>

#include "futex.h"
#include "guardian.h"
#include "point.h"
#include "reap.h"

#define ENTRIES       RF_LOG_ENTRIES
#define HURRY_NS      20000000ull /* a batch in somebody's hands for longer is written again */
#define BUFFER_LEAST  (64u * 1024u)
#define DEPTH_MAX     8u
#define CROWD         32u /* lanes in a batch, times depth: more in flight only cuts them smaller */
#define GATHER_YIELDS 4u
#define NUDGES        8u /* how often in a round of its lane an owner asks for it to be written */
#define AHEAD         2u /* segments that are made before they are needed */

struct hint {
    uint64_t epoch;    /* records of this epoch and earlier ones lie below */
    uint64_t position; /* the start of a record, or the lane's end */
};

struct rf_logger {
    struct rf_map *map;
    struct rf_disk *disk;
    uint32_t id;
    uint8_t *buffer;
    size_t capacity;
    struct hint *hints; /* where to go on in each lane */
    uint32_t hint_count;
    uint64_t unique;
    blake3_hasher fresh; /* with the context of batches */
};

#define LOAD(word)         atomic_load_explicit(&(word), memory_order_acquire)
#define LOAD_RELAXED(word) atomic_load_explicit(&(word), memory_order_relaxed)

/* --- making one --- */

rf_status rf_logger_make(struct rf_map *map, uint32_t id, struct rf_logger **out, rf_detail *detail)
{
    const struct rf_header *h = map->header;
    struct rf_logger *l = calloc(1, sizeof(*l));
    if (l == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the log");
    }
    l->map = map;
    l->id = id;
    l->hint_count = h->slot_count;
    l->hints = calloc(l->hint_count, sizeof(*l->hints));
    l->capacity = BUFFER_LEAST;
    l->buffer = aligned_alloc(RF_LOG_BLOCK, l->capacity);
    blake3_hasher_init_derive_key(&l->fresh, RF_BATCH_CONTEXT);
    rf_status status = RF_OK;
    if (l->hints == NULL || l->buffer == NULL) {
        status = rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the log");
    } else {
        status = rf_disk_open(map->dir_fd, (mode_t)h->mode, (gid_t)h->gid, h->segment_bytes,
                              &l->disk, detail);
    }
    if (status != RF_OK) {
        free(l->hints);
        free(l->buffer);
        free(l);
        return status;
    }
    *out = l;
    return RF_OK;
}

void rf_logger_drop(struct rf_logger *l)
{
    rf_disk_close(l->disk);
    free(l->hints);
    free(l->buffer);
    free(l);
}

void rf_logger_forget(struct rf_logger *l)
{
    rf_disk_forget(l->disk);
    free(l->hints);
    free(l->buffer);
    free(l);
}

struct rf_disk *rf_logger_disk(struct rf_logger *l)
{
    return l->disk;
}

/* --- entries --- */

static uint64_t tag_of(uint64_t epoch)
{
    return (epoch + ENTRIES) / ENTRIES;
}

static struct rf_log_entry *entry_of(const struct rf_map *map, uint64_t epoch)
{
    return &map->header->log[epoch % ENTRIES];
}

/* Whether the word speaks of this epoch; then *value is what it says. */
static bool says(const rf_word64 *word, uint64_t epoch, uint32_t *value)
{
    uint64_t w = atomic_load_explicit(word, memory_order_acquire);
    *value = (uint32_t)w;
    return w >> 32 == (uint32_t)tag_of(epoch);
}

/* Makes the word say `*value` of this epoch, if it says nothing yet. False: the entry is not this
 * epoch's any more, whoever asks is late. Pairs with says. */
static bool agree(rf_word64 *word, uint64_t epoch, uint32_t *value)
{
    uint32_t tag = (uint32_t)tag_of(epoch);
    uint64_t w = atomic_load_explicit(word, memory_order_acquire);
    for (;;) {
        if (w >> 32 == tag) {
            *value = (uint32_t)w;
            return true;
        }
        if (w >> 32 != tag - 1u) {
            return false;
        }
        if (atomic_compare_exchange_strong_explicit(word, &w, (uint64_t)tag << 32 | *value,
                                                    memory_order_acq_rel, memory_order_acquire)) {
            return true;
        }
    }
}

static bool is_done(const struct rf_map *map, uint64_t epoch)
{
    uint32_t value;
    return says(&entry_of(map, epoch)->done, epoch, &value);
}

/* Where batch `epoch` ended and its hash; false if that is not published (any more). */
static bool read_end(const struct rf_map *map, uint64_t epoch, struct rf_log_end *end)
{
    const struct rf_log_entry *e = entry_of(map, epoch);
    uint32_t low, high;
    bool there = says(&e->end[0], epoch, &low) && says(&e->end[1], epoch, &high);
    for (unsigned k = 0; there && k < RF_LOG_HASH / 4; k++) {
        uint32_t part;
        there = says(&e->hash[k], epoch, &part);
        memcpy(end->hash + 4 * k, &part, 4);
    }
    if (there) {
        end->epoch = epoch;
        end->position = ((uint64_t)high << 32 | low) * RF_LOG_BLOCK;
    }
    return there;
}

static bool publish_end(const struct rf_map *map, const struct rf_log_end *end)
{
    struct rf_log_entry *e = entry_of(map, end->epoch);
    uint64_t blocks = end->position / RF_LOG_BLOCK;
    uint32_t low = (uint32_t)blocks, high = (uint32_t)(blocks >> 32);
    bool mine = agree(&e->end[0], end->epoch, &low) && agree(&e->end[1], end->epoch, &high);
    assert(!mine || (low == (uint32_t)blocks && high == blocks >> 32));
    for (unsigned k = 0; mine && k < RF_LOG_HASH / 4; k++) {
        uint32_t part, agreed;
        memcpy(&part, end->hash + 4 * k, 4);
        agreed = part;
        mine = agree(&e->hash[k], end->epoch, &agreed);
        assert(!mine || agreed == part); /* a batch has one value */
        RF_POINT("log.publishing");
    }
    return mine;
}

void rf_log_start(struct rf_header *h, uint64_t first, const struct rf_log_end *after)
{
    uint64_t blocks = first * ((h->segment_bytes - RF_LOG_BLOCK) / RF_LOG_BLOCK);
    h->log_first = first;
    h->log_after = *after;
    atomic_store(&h->epoch, after->epoch + 1);
    atomic_store(&h->durable, after->epoch);
    atomic_store(&h->log_content, after->epoch);
    atomic_store(&h->log_vouched, after->epoch);
    atomic_store(&h->log_made, first);
    atomic_store(&h->snapshot_position, blocks * RF_LOG_BLOCK);
    for (uint64_t back = 0; back < ENTRIES; back++) {
        /* The last epochs before the first one, done. Tags are counted from one round on, so that
         * epoch 0 has predecessors too. */
        uint64_t last = after->epoch + ENTRIES - back;
        struct rf_log_entry *e = &h->log[last % ENTRIES];
        uint64_t tag = (last / ENTRIES) << 32;
        atomic_store(&e->writer, tag);
        atomic_store(&e->durable, tag);
        atomic_store(&e->done, tag);
        atomic_store(&e->end[0], tag | (uint32_t)blocks);
        atomic_store(&e->end[1], tag | blocks >> 32);
        for (unsigned k = 0; k < RF_LOG_HASH / 4; k++) {
            uint32_t part;
            memcpy(&part, after->hash + 4 * k, 4);
            atomic_store(&e->hash[k], tag | part);
        }
    }
}

struct rf_segment_header rf_log_segment_header(const struct rf_header *h, uint64_t number)
{
    struct rf_segment_header s = {.magic = RF_SEGMENT_MAGIC,
                                  .format = RF_LOG_FORMAT,
                                  .header_bytes = sizeof(s),
                                  .number = number,
                                  .segment_bytes = h->segment_bytes,
                                  .incarnation = h->incarnation,
                                  .first_number = h->log_first,
                                  .after = h->log_after};
    memcpy(s.store_id, h->store_id, sizeof(s.store_id));
    return s;
}

/* --- sealing --- */

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

/* Seals the open epoch, if it is still this one and there is an entry for the next. */
static bool seal(struct rf_map *map, uint64_t epoch)
{
    struct rf_header *h = map->header;
    uint64_t open = epoch;
    /* Entry E is taken over by E + ENTRIES only when E + 1 is durable: its end is needed till then. */
    if (epoch - LOAD(h->durable) >= ENTRIES - 1u) {
        return false;
    }
    RF_POINT("log.before_seal");
    bool mine = atomic_compare_exchange_strong_explicit(&h->epoch, &open, epoch + 1,
                                                        memory_order_acq_rel, memory_order_acquire);
    RF_POINT("log.sealed");
    return mine;
}

/* --- the batch of an epoch --- */

static bool reserve(struct rf_logger *l, size_t bytes)
{
    if (bytes <= l->capacity) {
        return true;
    }
    size_t capacity = l->capacity;
    while (capacity < bytes) {
        capacity *= 2;
    }
    uint8_t *buffer = aligned_alloc(RF_LOG_BLOCK, capacity);
    if (buffer == NULL) {
        return false;
    }
    memcpy(buffer, l->buffer, l->capacity);
    free(l->buffer);
    l->buffer = buffer;
    l->capacity = capacity;
    return true;
}

enum copied { COPIED, COPY_TORN, COPY_NO_MEMORY };

/* Appends one lane's records of the epoch to the buffer at *at. */
static enum copied copy_lane(struct rf_logger *l, uint32_t slot, uint64_t epoch, size_t *at,
                             uint32_t *records)
{
    struct rf_map *map = l->map;
    const struct rf_lane_head *lane = &rf_slot_at(map, slot)->lane;
    uint8_t *ring = rf_lane_at(map, slot);
    uint64_t units = map->lane_mask + 1;
    struct hint *hint = &l->hints[slot];
    uint64_t base = LOAD(lane->base);
    uint64_t from = hint->epoch < epoch && hint->position > base ? hint->position : base;
    uint64_t end = rf_lane_end(lane);
    uint64_t p = from;
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
            return COPY_TORN;
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
            if (!reserve(l, *at + sizeof(out) + body)) {
                return COPY_NO_MEMORY;
            }
            memcpy(l->buffer + *at, &out, sizeof(out));
            rf_lane_copy(l->buffer + *at + sizeof(out), unit + sizeof(r), body);
            memset(l->buffer + *at + sizeof(out) + r.body_bytes, 0, body - r.body_bytes);
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
    *hint = (struct hint){.epoch = epoch, .position = p};
    return COPIED;
}

/* The batch of a sealed epoch into the buffer, hashed. *late: it is durable already, or its entry is
 * another's; there is nothing to do. */
static rf_status compose(struct rf_logger *l, uint64_t epoch, const struct rf_log_end *before,
                         struct rf_batch_header *out, bool *late, rf_detail *detail)
{
    struct rf_map *map = l->map;
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
    if (durable >= epoch || !agree(&entry_of(map, epoch)->durable, epoch, &lag)) {
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
            enum copied copied = copy_lane(l, slot, epoch, &at, &b.records);
            if (copied == COPIED) {
                break;
            }
            if (copied == COPY_NO_MEMORY) {
                return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a batch");
            }
            if (LOAD(h->durable) >= epoch) {
                return RF_OK;
            }
            l->hints[slot] = (struct hint){0};
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
    if (!reserve(l, b.bytes)) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a batch");
    }
    memset(l->buffer + at, 0, b.bytes - at);
    memcpy(b.store_id, h->store_id, sizeof(b.store_id));
    memcpy(b.previous, before->hash, sizeof(b.previous));
    memcpy(l->buffer, &b, sizeof(b));
    blake3_hasher hasher = l->fresh;
    blake3_hasher_update(&hasher, l->buffer, at);
    blake3_hasher_finalize(&hasher, b.hash, sizeof(b.hash));
    memcpy(l->buffer, &b, sizeof(b));
    *out = b;
    *late = false;
    return RF_OK;
}

/* --- segments --- */

static void raise_word(rf_word64 *word, uint64_t to)
{
    uint64_t seen = LOAD_RELAXED(*word);
    while (seen < to && !atomic_compare_exchange_weak_explicit(
                            word, &seen, to, memory_order_acq_rel, memory_order_relaxed)) {
    }
}

static uint64_t segment_of(const struct rf_header *h, uint64_t position)
{
    return position / (h->segment_bytes - RF_LOG_BLOCK);
}

/* Segments below `number` are there afterwards. */
static rf_status make_segments(struct rf_logger *l, uint64_t number, rf_detail *detail)
{
    struct rf_header *h = l->map->header;
    for (;;) {
        uint64_t made = LOAD(h->log_made);
        if (made >= number) {
            return RF_OK;
        }
        struct rf_segment_header header = rf_log_segment_header(h, made);
        rf_status status =
            rf_segment_make(l->disk, &header, (uint64_t)l->id << 32 | ++l->unique, detail);
        if (status != RF_OK) {
            if (status == RF_RESOURCE_EXHAUSTED) {
                atomic_store_explicit(&h->log_short, 1, memory_order_release);
            }
            return status;
        }
        RF_POINT("log.segment");
        raise_word(&h->log_made, made + 1);
        atomic_store_explicit(&h->log_short, 0, memory_order_release);
    }
}

bool rf_log_needs_room(const struct rf_map *map)
{
    const struct rf_header *h = map->header;
    return LOAD_RELAXED(h->log_made) < segment_of(h, rf_log_position(map)) + 1 + AHEAD;
}

rf_status rf_log_make_room(struct rf_logger *l, rf_detail *detail)
{
    struct rf_header *h = l->map->header;
    uint64_t nobody = LOAD(h->filler);
    if (!rf_log_needs_room(l->map) ||
        (nobody != 0 && nobody != l->id && !rf_id_gone(l->map, (uint32_t)nobody))) {
        return RF_OK;
    }
    if (!atomic_compare_exchange_strong_explicit(&h->filler, &nobody, l->id, memory_order_acq_rel,
                                                 memory_order_relaxed)) {
        return RF_OK;
    }
    rf_status status = make_segments(l, segment_of(h, rf_log_position(l->map)) + 1 + AHEAD, detail);
    uint64_t mine = l->id;
    atomic_compare_exchange_strong_explicit(&h->filler, &mine, 0, memory_order_acq_rel,
                                            memory_order_relaxed);
    return status;
}

/* --- writing --- */

uint64_t rf_log_position(const struct rf_map *map)
{
    struct rf_log_end end;
    for (;;) {
        uint64_t durable = LOAD(map->header->durable);
        if (read_end(map, durable, &end)) {
            return end.position;
        }
    }
}

static void wake_waiters(struct rf_map *map, uint32_t mask)
{
    rf_futex_wake_low(&map->header->durable, INT32_MAX, mask);
}

/* The first failure is final: nothing is acknowledged after it, nothing is written over it. */
static rf_status condemn(struct rf_logger *l, int error, rf_detail *detail)
{
    struct rf_header *h = l->map->header;
    uint32_t fine = 0;
    atomic_compare_exchange_strong(&h->condemned, &fine, (uint32_t)error + 1u);
    wake_waiters(l->map, FUTEX_BITSET_MATCH_ANY);
    return rf_log_failure(l->map, detail);
}

rf_status rf_log_failure(const struct rf_map *map, rf_detail *detail)
{
    int error = (int)LOAD(map->header->condemned) - 1;
    return rf_refuse(detail, RF_IO_ERROR, error,
                     "writing the log of %.100s; close all handles, then open the store again",
                     map->directory);
}

/* Moves `durable` over everything that is done. Returns the bits of the epochs it passed. */
static uint32_t move_durable(struct rf_map *map)
{
    struct rf_header *h = map->header;
    uint32_t mask = 0;
    uint64_t d = LOAD(h->durable);
    while (d + 1 < LOAD(h->epoch) && is_done(map, d + 1)) {
        RF_POINT("log.before_durable");
        /* release: who sees the epoch durable sees all that was done before; acquire by waiters. */
        if (atomic_compare_exchange_strong_explicit(&h->durable, &d, d + 1, memory_order_acq_rel,
                                                    memory_order_acquire)) {
            d++;
            mask |= 1u << (d % 32);
        }
    }
    return mask;
}

/* In whose hands a sealed batch is: false if it needs somebody. */
static bool in_good_hands(const struct rf_map *map, uint64_t epoch, uint64_t now)
{
    const struct rf_log_entry *e = entry_of(map, epoch);
    uint32_t id;
    if (!says(&e->writer, epoch, &id)) {
        return false;
    }
    uint64_t since = LOAD_RELAXED(e->since);
    return now < since + HURRY_NS && !rf_id_gone(map, id);
}

/* Takes a batch in hand. Two may have it; that costs a write and harms nobody. */
static void take_in_hand(struct rf_logger *l, uint64_t epoch)
{
    struct rf_log_entry *e = entry_of(l->map, epoch);
    uint64_t w = LOAD(e->writer);
    uint64_t tag = tag_of(epoch) << 32;
    if (w >> 32 == (uint32_t)tag_of(epoch) || w >> 32 == (uint32_t)(tag_of(epoch) - 1)) {
        atomic_store_explicit(&e->since, rf_monotonic_ns(), memory_order_relaxed);
        atomic_compare_exchange_strong_explicit(&e->writer, &w, tag | l->id, memory_order_acq_rel,
                                                memory_order_relaxed);
    }
    RF_POINT("log.in_hand");
}

/* Computes and writes one batch whose predecessor is published. */
static rf_status write_batch(struct rf_logger *l, uint64_t epoch, const struct rf_log_end *before,
                             rf_detail *detail)
{
    struct rf_map *map = l->map;
    struct rf_header *h = map->header;
    struct rf_batch_header b;
    bool late;
    rf_status status = compose(l, epoch, before, &b, &late, detail);
    if (status != RF_OK || late) {
        return status;
    }
    RF_POINT("log.composed");
    struct rf_log_end end = {.epoch = epoch, .position = b.position + b.bytes};
    memcpy(end.hash, b.hash, sizeof(end.hash));
    if (!publish_end(map, &end)) {
        return RF_OK;
    }
    RF_POINT("log.published");
    if (b.records != 0) {
        raise_word(&h->log_content, epoch);
    }
    atomic_store_explicit(&h->log_lanes, b.lanes, memory_order_relaxed);
    rf_detail why = {0};
    status = make_segments(l, segment_of(h, end.position - 1) + 1, &why);
    if (status == RF_RESOURCE_EXHAUSTED) {
        /* The records stay where they are; they can be written when there is room. */
        return rf_refuse(detail, status, why.os_error, "the log of %.100s needs room on its disk",
                         map->directory);
    }
    if (status != RF_OK) {
        return condemn(l, why.os_error, detail);
    }
    RF_POINT("log.before_write");
    status = rf_log_write(l->disk, b.position, l->buffer, b.bytes, &why);
    if (status != RF_OK) {
        return condemn(l, why.os_error, detail);
    }
    RF_POINT("log.written");
    uint32_t yes = 1;
    if (agree(&entry_of(map, epoch)->done, epoch, &yes)) {
        raise_word(&h->log_vouched, b.durable);
    }
    RF_POINT("log.done");
    return RF_OK;
}

/* --- waiting --- */

/* How many batches may be in flight: few lanes in each, many batches; many lanes, few. */
static uint64_t depth_now(const struct rf_header *h)
{
    uint64_t lanes = LOAD_RELAXED(h->log_lanes);
    uint64_t depth = CROWD / (lanes + 1);
    return depth < 1 ? 1 : depth > DEPTH_MAX ? DEPTH_MAX : depth;
}

/* The others of the last batch were woken with us; let those commit who are about to. */
static void gather(const struct rf_map *map, uint64_t epoch)
{
    const struct rf_header *h = map->header;
    uint64_t lanes = LOAD_RELAXED(h->log_lanes);
    for (uint64_t i = 0; i < GATHER_YIELDS && i + 1 < lanes && LOAD_RELAXED(h->epoch) == epoch;
         i++) {
        sched_yield();
    }
}

/* Does the next thing that brings `epoch` closer to the disk; *idle: others have it in hand. */
static rf_status advance(struct rf_logger *l, uint64_t epoch, bool *idle, rf_detail *detail)
{
    struct rf_map *map = l->map;
    struct rf_header *h = map->header;
    uint64_t now = rf_monotonic_ns();
    uint64_t durable = LOAD(h->durable);
    uint64_t open = LOAD(h->epoch);
    *idle = false;
    for (uint64_t e = durable + 1; e < open && e <= epoch; e++) {
        struct rf_log_end before;
        if (is_done(map, e) || in_good_hands(map, e, now)) {
            continue;
        }
        if (!read_end(map, e - 1, &before)) {
            /* Its predecessor is being computed, or everything has moved on. */
            sched_yield();
            return RF_OK;
        }
        take_in_hand(l, e);
        rf_status status = write_batch(l, e, &before, detail);
        uint32_t mask = move_durable(map);
        if (mask != 0) {
            RF_POINT("log.durable");
            wake_waiters(map, mask);
            /* Somebody has to seal what came meanwhile: one of those who wait for it. */
            uint64_t next = LOAD(h->epoch);
            if (next - 1 - LOAD(h->durable) < depth_now(h)) {
                rf_futex_wake_low(&h->durable, 1, 1u << (next % 32));
            }
        }
        return status;
    }
    if (epoch >= open && open - 1 - durable < depth_now(h)) {
        gather(map, open);
        if (LOAD(h->epoch) == open) {
            seal(map, open);
        }
        return RF_OK;
    }
    *idle = true;
    return RF_OK;
}

rf_status rf_log_wait(struct rf_logger *l, uint64_t epoch, rf_detail *detail)
{
    struct rf_map *map = l->map;
    struct rf_header *h = map->header;
    for (;;) {
        uint64_t durable = LOAD(h->durable);
        if (durable >= epoch) {
            return RF_OK;
        }
        if (LOAD(h->condemned) != 0) {
            return rf_log_failure(map, detail);
        }
        bool idle = false;
        rf_status status = advance(l, epoch, &idle, detail);
        if (status != RF_OK) {
            return status;
        }
        if (idle) {
            uint32_t moved = move_durable(map); /* somebody may have died before he did */
            if (moved != 0) {
                wake_waiters(map, moved);
                continue;
            }
            RF_POINT("log.before_sleep");
            rf_futex_wait_low(&h->durable, durable, 1u << (epoch % 32),
                              rf_monotonic_ns() + HURRY_NS);
            RF_POINT("log.woken");
        }
    }
}

/* --- by the guardian --- */

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

rf_status rf_log_close(struct rf_logger *l, rf_detail *detail)
{
    struct rf_header *h = l->map->header;
    return LOAD(h->log_vouched) < LOAD(h->log_content) ? rf_log_wait(l, LOAD(h->epoch), detail)
                                                       : RF_OK;
}

/* --- admission --- */

/* Room in the lane for one record of any size, and its filler. */
#define ROOM (2u * (uint64_t)RF_LANE_UNITS_MAX)

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
    if (LOAD(h->condemned) != 0) {
        return rf_log_failure(map, detail);
    }
    if (LOAD(h->log_short) != 0 && !ending) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOSPC,
                         "the log of %.100s needs room on its disk; what is leased can be ended",
                         map->directory);
    }
    /* Memory for what will be written; in the first round it may not be there yet. */
    if (end < ring) {
        uint64_t offset = h->lanes.offset + actor->slot * h->lanes.stride;
        uint64_t upto = end + ROOM < ring ? end + ROOM : ring;
        rf_status status = rf_region_ensure(map, offset, upto * RF_LINE, detail);
        if (status != RF_OK) {
            return status;
        }
    }
    raise_base(actor);
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
    uint64_t limit = LOAD_RELAXED(lane->base) + ring - ROOM;
    if (end < ring) {
        /* Ask again when the memory that was made sure of is used up. */
        limit = limit < end + ROOM / 2 ? limit : end + ROOM / 2;
    }
    actor->lane_limit = limit;
    return RF_OK;
}

void rf_log_note_slow(struct rf_actor *actor)
{
    struct rf_map *map = actor->map;
    uint64_t end = LOAD_RELAXED(actor->me->lane.end);
    bool poke = false;
    if (end >= actor->lane_nudge) {
        actor->lane_nudge = end + (map->lane_mask + 1) / NUDGES;
        atomic_store(&map->flush_now, true);
        poke = true;
    }
    if (!atomic_exchange(&map->flush_wanted, true) || poke) {
        rf_guardian_hurry(map);
    }
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
