#include "hold.h"

#include "futex.h"
#include "handle.h"
#include "lock.h"
#include "reap.h"
#include "seq.h"

#define PAUSE_NS RF_SECOND

#define LOAD32(word) atomic_load_explicit(&(word), memory_order_relaxed)
#define LOAD64(word) atomic_load_explicit(&(word), memory_order_relaxed)

struct hold {
    uint32_t slot;
    uint32_t id;
    uint64_t offset; /* of the lock */
    uint32_t digest; /* the same number: the same hold; never 0 */
    uint32_t at_ms;  /* when it was seen; in milliseconds that wrap after 49 days */
};

static uint32_t now_ms(const struct rf_map *map)
{
    return (uint32_t)(rf_region_now(map) / RF_MILLISECOND);
}

/* What its owner has done so far, as a number that grows with it. */
static uint64_t progress_of(const struct rf_slot *slot)
{
    const struct rf_counters *c = &slot->counters;
    uint64_t done = LOAD64(slot->desc.chain) != 0 ? 0 : LOAD64(slot->lane.sequence);
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        done += LOAD64(c->executed[k]) + LOAD64(c->replayed[k]);
        for (unsigned s = 0; s < RF_STATUS_SLOTS; s++) {
            done += LOAD64(c->refused[k][s]);
        }
    }
    for (unsigned r = 0; r < RF_REPAIR_KINDS; r++) {
        done += LOAD64(c->repairs[r]);
    }
    return done;
}

static uint32_t digest_of(const struct hold *hold, uint64_t progress)
{
    uint64_t x = hold->offset ^ (uint64_t)hold->id << 32 ^ progress * 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    x ^= x >> 31;
    return (uint32_t)x != 0 ? (uint32_t)x : 1;
}

static bool holds(const struct rf_map *map, uint64_t offset, uint32_t id)
{
    if (offset == 0 || offset % sizeof(rf_word32) != 0 ||
        offset + sizeof(rf_word32) > map->header->region_bytes) {
        return false;
    }
    const rf_word32 *lock = (const rf_word32 *)(const void *)(map->base + offset);
    return (atomic_load_explicit(lock, memory_order_acquire) & ~RF_ID_WAITERS) == id;
}

/* Whether the member of a slot, living or dead, holds a lock of this kind. */
static bool see(const struct rf_map *map, uint32_t slot, enum rf_lock_kind kind, struct hold *hold)
{
    const struct rf_member *member = rf_member_at(map, slot);
    if (LOAD32(member->liveness) == 0 || !rf_slot_was_used(map, slot)) {
        return false;
    }
    const struct rf_slot *s = rf_slot_at(map, slot);
    hold->slot = slot;
    hold->id = rf_id(slot, atomic_load_explicit(&member->generation, memory_order_acquire));
    hold->offset = atomic_load_explicit(&s->desc.locks[kind], memory_order_acquire);
    if (!holds(map, hold->offset, hold->id)) {
        return false;
    }
    /* The clock last: if one hold ended here and another began, and the digest is that of the
     * later one, then that one had begun by now. */
    hold->digest = digest_of(hold, progress_of(s));
    hold->at_ms = now_ms(map);
    return holds(map, hold->offset, hold->id);
}

/* --- noting --- */

#define NOTE(digest, ms)  (((uint64_t)(digest) << 32) | (ms))
#define NOTE_DIGEST(note) ((uint32_t)((note) >> 32))
#define NOTE_MS(note)     ((uint32_t)(note))

void rf_hold_note_all(struct rf_map *map)
{
    uint32_t members = atomic_load_explicit(&map->header->members_used, memory_order_acquire);
    for (uint32_t i = 0; i < members * RF_LOCK_KINDS; i++) {
        uint32_t slot = i / RF_LOCK_KINDS;
        enum rf_lock_kind kind = (enum rf_lock_kind)(i % RF_LOCK_KINDS);
        struct hold hold;
        if (!rf_slot_was_used(map, slot)) {
            continue;
        }
        rf_word64 *note = &rf_slot_at(map, slot)->noted[kind];
        uint64_t seen = LOAD64(*note);
        if (see(map, slot, kind, &hold) && NOTE_DIGEST(seen) != hold.digest) {
            atomic_compare_exchange_strong_explicit(note, &seen, NOTE(hold.digest, hold.at_ms),
                                                    memory_order_relaxed, memory_order_relaxed);
        }
    }
}

void rf_hold_note_sometimes(struct rf_map *map)
{
    rf_word64 *looked_at = &map->header->holds_looked_at;
    uint64_t last = LOAD64(*looked_at), now = rf_monotonic_ns();
    if (now - last >= PAUSE_NS &&
        atomic_compare_exchange_strong_explicit(looked_at, &last, now, memory_order_relaxed,
                                                memory_order_relaxed)) {
        rf_hold_note_all(map);
    }
}

/* --- listing --- */

static void fill_run(const struct rf_runrec *run, rf_lock_info *info)
{
    if (run != NULL && LOAD64(run->tag) != 0) {
        _Alignas(8) rf_tenant tenant;
        rf_words_load(&tenant, &run->tenant, sizeof(tenant));
        info->tenant = tenant;
        info->run = __atomic_load_n(&run->run, __ATOMIC_RELAXED);
    }
}

/* What a lock guards, by where it lies. */
static bool name_lock(const struct rf_map *map, uint64_t offset, rf_lock_info *info)
{
    const struct rf_header *h = map->header;
    if (offset >= h->extents.offset &&
        offset < h->extents.offset + h->extents.stride * h->extents.count) {
        uint64_t e = (offset - h->extents.offset) / h->extents.stride;
        uint64_t in = (offset - h->extents.offset) % h->extents.stride;
        if (in < offsetof(struct rf_extent, recs)) {
            return false;
        }
        const struct rf_rec *rec = rf_rec_at(
            map, (uint32_t)(e * RF_EXTENT_SHARDS +
                            (in - offsetof(struct rf_extent, recs)) / sizeof(struct rf_rec)));
        info->what = RF_LOCK_OF_SHARD;
        info->shard = __atomic_load_n(&rec->shard, __ATOMIC_RELAXED);
        fill_run(rf_run_at(map, __atomic_load_n(&rec->run_slot, __ATOMIC_RELAXED)), info);
        return true;
    }
    if (offset >= h->runs.offset && offset < h->runs.offset + h->runs.stride * h->runs.count) {
        info->what = RF_LOCK_OF_RUN;
        fill_run(rf_run_at(map, (uint32_t)((offset - h->runs.offset) / h->runs.stride)), info);
        return true;
    }
    info->what = RF_LOCK_OF_NAME;
    return offset >= h->stripes.offset &&
           offset < h->stripes.offset + h->stripes.stride * h->stripes.count;
}

rf_status rf_shm_list_locks(rf_store *store, rf_visit_lock *visit, void *context, rf_detail *detail)
{
    const struct rf_map *map = rf_handle_of(store)->map;
    uint32_t members = atomic_load_explicit(&map->header->members_used, memory_order_acquire);
    (void)detail;
    for (uint32_t i = 0; i < members * RF_LOCK_KINDS; i++) {
        uint32_t slot = i / RF_LOCK_KINDS;
        enum rf_lock_kind kind = (enum rf_lock_kind)(i % RF_LOCK_KINDS);
        struct hold hold;
        if (!see(map, slot, kind, &hold)) {
            continue;
        }
        const struct rf_member *member = rf_member_at(map, slot);
        rf_lock_info info = {.slot = slot,
                             .pid = LOAD32(member->pid),
                             .dead = rf_is_dead(member),
                             .hold = hold.digest};
        uint64_t note = LOAD64(rf_slot_at(map, slot)->noted[kind]);
        /* The note may be newer than what was seen. */
        if (NOTE_DIGEST(note) == hold.digest && (int32_t)(hold.at_ms - NOTE_MS(note)) > 0) {
            info.held = (uint32_t)(hold.at_ms - NOTE_MS(note)) * RF_MILLISECOND;
        }
        if (name_lock(map, hold.offset, &info) && !visit(context, &info)) {
            break;
        }
    }
    return RF_OK;
}
