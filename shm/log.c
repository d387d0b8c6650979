#define _GNU_SOURCE
#include "log.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "admit.h"
#include "batch.h"
#include "futex.h"
#include "log_entry.h"
#include "member.h"
#include "point.h"
#include "reap.h"

#define HURRY_NS      20000000ull /* a batch in somebody's hands for longer is written again */
#define DEPTH_MAX     4u
#define CROWD         16u /* lanes in a batch, times depth: more in flight only cuts them smaller */
#define GATHER_YIELDS 4u
#define PATIENCE      200u       /* looks at a batch that somebody is just computing */
#define AHEAD         2u         /* segments that are made before they are needed, at least */
#define AHEAD_BYTES   (1u << 20) /* and bytes */
#define GRANT_UNITS   2u         /* of a lane, for a record that grants a lease: no less */
#define RETRY_NS      100000000ull
/* How long whoever needs a segment leaves it to the one who makes it, and how often he looks. */
#define FILLER_NS          100000000ull
#define FILLER_NS_PER_BYTE 5u
#define FILLER_LOOK_US     200u

struct rf_logger {
    struct rf_map *map;
    struct rf_disk *disk;
    uint32_t id;
    uint64_t unique;   /* for temporary names */
    uint64_t retry_at; /* monotonic: when to try again to make a segment on a full disk */
    uint64_t leases;   /* bytes for them, when they were last counted, */
    uint64_t counted;  /* and how far the lanes had come then, all together, in units */
    struct rf_batcher batcher;
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
    rf_status status = rf_batcher_init(&l->batcher, map, detail);
    if (status == RF_OK) {
        status = rf_disk_open(map->dir_fd, (mode_t)h->mode, (gid_t)h->gid, h->segment_bytes,
                              &l->disk, detail);
        if (status != RF_OK) {
            rf_batcher_drop(&l->batcher);
        }
    }
    if (status != RF_OK) {
        free(l);
        return status;
    }
    *out = l;
    return RF_OK;
}

void rf_logger_drop(struct rf_logger *l)
{
    rf_disk_close(l->disk);
    rf_batcher_drop(&l->batcher);
    free(l);
}

void rf_logger_forget(struct rf_logger *l)
{
    rf_disk_forget(l->disk);
    rf_batcher_drop(&l->batcher);
    free(l);
}

struct rf_disk *rf_logger_disk(struct rf_logger *l)
{
    return l->disk;
}

void rf_log_start(struct rf_header *h, uint64_t first, const struct rf_log_end *after,
                  uint64_t used)
{
    uint64_t blocks = first * ((h->segment_bytes - RF_LOG_BLOCK) / RF_LOG_BLOCK);
    h->log_first = first;
    h->log_after = *after;
    assert(used >= after->epoch);
    atomic_store(&h->epoch, used + 1);
    atomic_store(&h->durable, used);
    atomic_store(&h->log_content, used);
    atomic_store(&h->log_vouched, used);
    atomic_store(&h->log_made, first);
    atomic_store(&h->snapshot_position, blocks * RF_LOG_BLOCK);
    for (uint64_t back = 0; back < RF_LOG_ENTRIES; back++) {
        /* The last epochs before the first one, done. Tags are counted from one round on, so that
         * epoch 0 has predecessors too. */
        uint64_t last = used + RF_LOG_ENTRIES - back;
        struct rf_log_entry *e = &h->log[last % RF_LOG_ENTRIES];
        uint64_t tag = (last / RF_LOG_ENTRIES) << 32;
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

bool rf_log_lost(const struct rf_map *map, uint64_t epoch)
{
    const struct rf_header *h = map->header;
    bool lost = epoch != 0 && epoch <= h->log_told_from;
    for (unsigned i = 0; i < RF_LOG_GAPS; i++) {
        lost = lost || (epoch > h->log_gaps[i].after && epoch <= h->log_gaps[i].until);
    }
    return lost;
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
                                  .after = h->log_after,
                                  .durable = LOAD(h->durable)};
    memcpy(s.store_id, h->store_id, sizeof(s.store_id));
    return s;
}

/* --- sealing --- */

/* Seals the open epoch, if it is still this one and there is an entry for the next. */
static bool seal(struct rf_map *map, uint64_t epoch)
{
    struct rf_header *h = map->header;
    uint64_t open = epoch;
    /* Entry E is taken over by E + RF_LOG_ENTRIES only when E + 1 is durable: its end is needed till then. */
    if (epoch - LOAD(h->durable) >= RF_LOG_ENTRIES - 1u) {
        return false;
    }
    RF_POINT("log.before_seal");
    bool mine = atomic_compare_exchange_strong_explicit(&h->epoch, &open, epoch + 1,
                                                        memory_order_acq_rel, memory_order_acquire);
    RF_POINT("log.sealed");
    return mine;
}

/* --- failing --- */

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
    int error = (int)(LOAD(map->header->condemned) - 1);
    return rf_refuse(detail, RF_IO_ERROR, error,
                     "writing the log of %.100s; close all handles, then open the store again",
                     map->directory);
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

/* Becomes the one who makes segments, unless somebody living is. */
static bool begin_filling(struct rf_logger *l)
{
    rf_word64 *word = &l->map->header->filler;
    uint64_t who = LOAD(*word);
    return (who == 0 || rf_id_gone(l->map, (uint32_t)who)) &&
           atomic_compare_exchange_strong_explicit(word, &who, l->id, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

static void end_filling(struct rf_logger *l)
{
    uint64_t mine = l->id;
    atomic_compare_exchange_strong_explicit(&l->map->header->filler, &mine, 0, memory_order_acq_rel,
                                            memory_order_relaxed);
}

/* Many may need the next segment at the same moment, and if each made it, all but one would have written it for
 * nothing. So all but one wait until it is there or its maker has given up; but not for long, since he may
 * have been stopped: then one of them takes his place. True if there is something new to look at. */
static bool wait_for_filler(struct rf_logger *l, uint64_t made)
{
    struct rf_header *h = l->map->header;
    const uint64_t until = rf_monotonic_ns() + FILLER_NS + FILLER_NS_PER_BYTE * h->segment_bytes;
    uint64_t who = LOAD(h->filler);
    if (who == l->id) {
        return false; /* another thread of this guardian: the two have one id */
    }
    while (rf_monotonic_ns() < until) {
        if (LOAD(h->log_made) != made || LOAD(h->filler) != who ||
            rf_id_gone(l->map, (uint32_t)who)) {
            return true;
        }
        usleep(FILLER_LOOK_US);
    }
    atomic_compare_exchange_strong_explicit(&h->filler, &who, 0, memory_order_acq_rel,
                                            memory_order_relaxed);
    return true;
}

/* Segments below `number` are there afterwards; filler: begin_filling has let us. */
static rf_status fill_segments(struct rf_logger *l, uint64_t number, bool *filler,
                               rf_detail *detail)
{
    struct rf_header *h = l->map->header;
    for (;;) {
        uint64_t made = LOAD(h->log_made);
        if (made >= number) {
            return RF_OK;
        }
        *filler = *filler || begin_filling(l);
        if (!*filler && wait_for_filler(l, made)) {
            continue;
        }
        if (rf_monotonic_ns() < l->retry_at) {
            /* Others may have found room meanwhile, and it may be used up again. */
            atomic_store_explicit(&h->log_short, 1, memory_order_release);
            return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOSPC, "the next segment of the log");
        }
        struct rf_segment_header header = rf_log_segment_header(h, made);
        rf_detail why = {0};
        rf_status status =
            rf_segment_make(l->disk, &header, (uint64_t)l->id << 32 | ++l->unique, &why);
        if (status == RF_IO_ERROR && !rf_log_own_limit(l, why.os_error)) {
            /* Its name may be there, and a second sync of the directory may say that it is durable, and lie. */
            return condemn(l, why.os_error, detail);
        }
        if (status != RF_OK) {
            if (status == RF_RESOURCE_EXHAUSTED) {
                atomic_store_explicit(&h->log_short, 1, memory_order_release);
                l->retry_at = rf_monotonic_ns() + RETRY_NS;
            }
            if (detail != NULL) {
                *detail = why;
            }
            return status;
        }
        RF_POINT("log.segment");
        raise_word(&h->log_made, made + 1);
        l->retry_at = 0;
    }
}

static rf_status make_segments(struct rf_logger *l, uint64_t number, rf_detail *detail)
{
    bool filler = false;
    rf_status status = fill_segments(l, number, &filler, detail);
    if (filler) {
        end_filling(l);
    }
    return status;
}

/* Of log, to end every lease. No more of them are believed in than there can be: a damaged record must not
 * fill the disk. */
static uint64_t bytes_for_leases(const struct rf_map *map)
{
    uint64_t leases = 0, most = map->header->max_shards;
    uint32_t runs = LOAD(map->header->runs_used);
    for (uint32_t i = 0; i < runs; i++) {
        const struct rf_runrec *r = rf_run_at(map, i);
        if (LOAD_RELAXED(r->live) != 0) {
            uint64_t idle = LOAD_RELAXED(r->available) + LOAD_RELAXED(r->done) +
                            LOAD_RELAXED(r->split) + LOAD_RELAXED(r->parked);
            uint64_t count = LOAD_RELAXED(r->count);
            leases += count <= most && count > idle ? count - idle : 0;
        }
    }
    return (leases < most ? leases : most) * RF_LEASE_BYTES;
}

/* What may yet be committed by those who were admitted before, until they ask again. */
static uint64_t bytes_unasked(const struct rf_map *map)
{
    uint64_t bytes = 0;
    uint32_t used = LOAD(map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        const struct rf_member *m = rf_member_at(map, slot);
        /* Guardians end leases, for which there is room of its own. */
        if (rf_member_alive(m) && LOAD_RELAXED(m->is_guardian) == 0) {
            bytes += RF_LANE_UNASKED * RF_LINE;
        }
    }
    return bytes < AHEAD_BYTES / 2 ? AHEAD_BYTES / 2 : bytes;
}

/* Bytes that were committed and are not known to be durable; *ends: how far the lanes have come, all together. */
static uint64_t bytes_pending(const struct rf_logger *l, uint64_t *ends)
{
    uint64_t units = 0, durable = LOAD(l->map->header->durable);
    uint32_t used = LOAD(l->map->header->members_used);
    *ends = 0;
    for (uint32_t slot = 0; slot < used; slot++) {
        if (rf_slot_was_used(l->map, slot)) {
            const struct rf_lane_head *lane = &rf_slot_at(l->map, slot)->lane;
            const struct rf_batch_hint *hint = &l->batcher.hints[slot];
            uint64_t known = LOAD(lane->base), walked = LOAD(lane->walked);
            uint64_t end = rf_lane_end(lane);
            known = walked > known ? walked : known;
            known = hint->epoch <= durable && hint->position > known ? hint->position : known;
            units += end > known ? end - known : 0;
            *ends += end;
        }
    }
    return units * RF_LINE;
}

/* The segment in which all of this ends, and one more: batches are whole blocks, and are looked after again when a
 * segment is full. */
static uint64_t segments_for(const struct rf_map *map, uint64_t bytes)
{
    return segment_of(map->header, rf_log_position(map) + RF_LOG_ENTRIES * RF_LOG_BLOCK + bytes) +
           2;
}

/* Segments below this number should be there: room for what is under way, and to end every lease, and some to
 * spare, so that nobody has to make one who needs it. */
static uint64_t segments_wanted(const struct rf_map *map)
{
    uint64_t least = segment_of(map->header, rf_log_position(map)) + 1 + AHEAD;
    uint64_t ahead =
        segments_for(map, AHEAD_BYTES / 2 + bytes_unasked(map) + bytes_for_leases(map));
    return least < ahead ? ahead : least;
}

void rf_log_secure(struct rf_logger *l)
{
    struct rf_header *h = l->map->header;
    uint64_t ends, bytes = bytes_pending(l, &ends) + bytes_unasked(l->map);
    /* As long as there is much room, leases need not be counted: there are no more than there were, and one for each
     * record since. */
    uint64_t at_most = l->leases + (ends - l->counted) / GRANT_UNITS * RF_LEASE_BYTES;
    if (LOAD(h->log_short) == 0 && ends >= l->counted &&
        LOAD(h->log_made) >= segments_for(l->map, bytes + at_most)) {
        return;
    }
    l->leases = bytes_for_leases(l->map);
    l->counted = ends;
    if (make_segments(l, segments_for(l->map, bytes + l->leases), NULL) == RF_OK &&
        LOAD(h->log_short) != 0) {
        /* There is room again, or leases were ended, and what there is is enough. */
        atomic_store_explicit(&h->log_short, 0, memory_order_release);
    }
}

bool rf_log_needs_room(const struct rf_map *map)
{
    return LOAD_RELAXED(map->header->log_made) < segments_wanted(map);
}

rf_status rf_log_make_room(struct rf_logger *l, rf_detail *detail)
{
    bool filler = begin_filling(l);
    if (!filler) {
        return RF_OK;
    }
    rf_status status = fill_segments(l, segments_wanted(l->map), &filler, detail);
    if (status == RF_OK) {
        rf_log_secure(l);
    }
    end_filling(l);
    return status;
}

/* --- writing --- */

uint64_t rf_log_position(const struct rf_map *map)
{
    struct rf_log_end end;
    for (;;) {
        uint64_t durable = LOAD(map->header->durable);
        if (rf_entry_end(map, durable, &end)) {
            return end.position;
        }
    }
}

/* Moves `durable` over everything that is done. Returns the bits of the epochs it passed. */
static uint32_t move_durable(struct rf_map *map)
{
    struct rf_header *h = map->header;
    uint32_t mask = 0;
    uint64_t d = LOAD(h->durable);
    while (d + 1 < LOAD(h->epoch) && rf_entry_done(map, d + 1)) {
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
    const struct rf_log_entry *e = rf_entry_of(map, epoch);
    uint32_t id;
    if (!rf_entry_says(&e->writer, epoch, &id)) {
        return false;
    }
    uint64_t since = LOAD_RELAXED(e->since);
    return now < since + HURRY_NS && !rf_id_gone(map, id);
}

/* Takes a batch in hand. Two may have it; that costs a write and harms nobody. */
static void take_in_hand(struct rf_logger *l, uint64_t epoch)
{
    struct rf_log_entry *e = rf_entry_of(l->map, epoch);
    uint64_t w = LOAD(e->writer);
    uint64_t tag = rf_entry_tag(epoch) << 32;
    if (w >> 32 == (uint32_t)rf_entry_tag(epoch) ||
        w >> 32 == (uint32_t)(rf_entry_tag(epoch) - 1)) {
        atomic_store_explicit(&e->since, rf_monotonic_ns(), memory_order_relaxed);
        atomic_compare_exchange_strong_explicit(&e->writer, &w, tag | l->id, memory_order_acq_rel,
                                                memory_order_relaxed);
    }
    RF_POINT("log.in_hand");
}

/* It is in no hands any more; if somebody else has taken it meanwhile, a third may do so as well. */
static void let_go(const struct rf_logger *l, uint64_t epoch)
{
    struct rf_log_entry *e = rf_entry_of(l->map, epoch);
    uint32_t id;
    if (rf_entry_says(&e->writer, epoch, &id) && id == l->id) {
        atomic_store_explicit(&e->since, 0, memory_order_relaxed);
    }
}

/* Whoever runs without the fast path should know it, and what to do. */
static void say_once(const struct rf_logger *l)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    const char *why = "";
    if (rf_disk_backend(l->disk, &why) != RF_DISK_URING_DIRECT && why[0] != 0 &&
        !atomic_flag_test_and_set(&said)) {
        fprintf(stderr, "ringfence: %s\n", why);
    }
}

bool rf_log_own_limit(const struct rf_logger *l, int error)
{
    return rf_disk_own_limit(l->disk, error);
}

static rf_status refuse_own_limit(const struct rf_logger *l, int error, rf_detail *detail)
{
    bool may_not = error == EACCES || error == EPERM;
    return rf_refuse(detail, may_not ? RF_PERMISSION_DENIED : RF_RESOURCE_EXHAUSTED, error,
                     "writing the log of %.100s: %s", l->map->directory,
                     may_not           ? "this process may not open or make its files"
                     : error == ENOMEM ? "this process gets no memory to open or make its files"
                     : error == EFBIG
                         ? "this process's limit of file sizes (ulimit -f) is below a segment"
                         : "this process has too few descriptors");
}

/* Computes and writes one batch whose predecessor is published. */
static rf_status write_batch(struct rf_logger *l, uint64_t epoch, const struct rf_log_end *before,
                             rf_detail *detail)
{
    struct rf_map *map = l->map;
    struct rf_header *h = map->header;
    struct rf_batch_header b;
    bool late;
    rf_status status = rf_batch_compose(&l->batcher, epoch, before, &b, &late, detail);
    if (status == RF_CORRUPT) {
        return condemn(l, EIO, detail);
    }
    if (status != RF_OK || late) {
        return status;
    }
    RF_POINT("log.composed");
    struct rf_log_end end = {.epoch = epoch, .position = b.position + b.bytes};
    memcpy(end.hash, b.hash, sizeof(end.hash));
    if (!rf_entry_publish(map, &end)) {
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
    if (status == RF_OK) {
        RF_POINT("log.before_write");
        status = rf_log_write(l->disk, b.position, l->batcher.buffer, b.bytes, &why);
    }
    if (status != RF_OK && rf_log_own_limit(l, why.os_error)) {
        return refuse_own_limit(l, why.os_error, detail);
    }
    if (status == RF_NOT_FOUND && LOAD(h->durable) >= epoch) {
        return RF_OK; /* stopped for long: others have written it, and its segment is not needed any more */
    }
    if (status != RF_OK) {
        return condemn(l, why.os_error, detail);
    }
    say_once(l);
    RF_POINT("log.written");
    uint32_t yes = 1;
    if (rf_entry_agree(&rf_entry_of(map, epoch)->done, epoch, &yes)) {
        raise_word(&h->log_vouched, b.durable);
    }
    RF_POINT("log.done");
    if (segment_of(h, end.position) != segment_of(h, b.position)) {
        rf_log_secure(l);
    }
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

/* Where batch `epoch` begins: the end of the one before it, whose writer may have been stopped before he could
 * say; then it is computed here, and left to others to write. */
static rf_status find_before(struct rf_logger *l, uint64_t epoch, struct rf_log_end *before,
                             bool *there, rf_detail *detail)
{
    struct rf_map *map = l->map;
    uint64_t durable = LOAD(map->header->durable);
    *there = rf_entry_end(map, durable, before);
    for (uint64_t e = durable + 1; *there && e < epoch; e++) {
        struct rf_log_end end;
        for (unsigned spin = 0; spin < PATIENCE && !rf_entry_end(map, e, &end); spin++) {
            rf_pause();
        }
        if (!rf_entry_end(map, e, &end)) {
            struct rf_batch_header b;
            bool late;
            rf_status status = rf_batch_compose(&l->batcher, e, before, &b, &late, detail);
            if (status != RF_OK) {
                return status == RF_CORRUPT ? condemn(l, EIO, detail) : status;
            }
            end = (struct rf_log_end){.epoch = e, .position = b.position + b.bytes};
            memcpy(end.hash, b.hash, sizeof(end.hash));
            *there = !late && rf_entry_publish(map, &end);
        }
        *before = end;
    }
    return RF_OK;
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
        if (rf_entry_done(map, e) || in_good_hands(map, e, now)) {
            continue;
        }
        take_in_hand(l, e);
        bool there;
        rf_status known = find_before(l, e, &before, &there, detail);
        if (known != RF_OK || !there) {
            /* Everything has moved on, but perhaps not past this one: it must not seem to be in hand. */
            let_go(l, e);
            return known;
        }
        rf_status status = write_batch(l, e, &before, detail);
        if (status != RF_OK) {
            let_go(l, e); /* others may be able to */
        }
        uint32_t mask = move_durable(map);
        if (mask != 0) {
            RF_POINT("log.durable");
            wake_waiters(map, mask);
            rf_batcher_tell(&l->batcher);
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

rf_status rf_log_close(struct rf_logger *l, rf_detail *detail)
{
    struct rf_header *h = l->map->header;
    return LOAD(h->log_vouched) < LOAD(h->log_content) ? rf_log_wait(l, LOAD(h->epoch), detail)
                                                       : RF_OK;
}
