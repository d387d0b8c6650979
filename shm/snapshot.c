#define _GNU_SOURCE
#include "snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include <blake3.h>

#include "codec.h"
#include "directory.h"
#include "futex.h"
#include "lock.h"
#include "log_entry.h"
#include "point.h"
#include "reap.h"
#include "record.h"
#include "seq.h"

#define BUFFER_BYTES (256u * 1024u) /* several of the largest entries */
#define BUSY_NS      1000000000ull
#define LATE_NS      10000000000ull
#define SPINS        1000u
#define KEEP         2u
#define LOOKED_AT    16u /* for two that are good */
#define REST_US_MAX  1000u
#define PER_SIZE     2u /* of log, for each byte of the last snapshot, at least */

#define REMOVED_PER_US 2048u /* bytes of segments that nobody needs any more */
#define PAUSES_US_MAX  1000000u

#define LOAD(word) atomic_load_explicit(&(word), memory_order_acquire)

_Static_assert(BUFFER_BYTES > 2 * (sizeof(struct rf_snapshot_shard) + RF_CODEC_SHARD_MAX),
               "an entry fits");

/* --- who may --- */

/* One word says who and when he was last heard of, so that nobody is judged by another's time: the lower half is his
 * id, the upper half the time in units of 2^26 ns, or RF_SNAPSHOTTER_KEPT. */
#define TICK_BITS 26u

static uint32_t tick_now(void)
{
    uint64_t tick = rf_monotonic_ns() >> TICK_BITS; /* nine years of them */
    return tick < RF_SNAPSHOTTER_KEPT ? (uint32_t)tick : RF_SNAPSHOTTER_KEPT - 1;
}

static uint64_t word_of(uint32_t id, uint32_t tick)
{
    return (uint64_t)tick << 32 | id;
}

static uint32_t taker_of(const struct rf_map *map)
{
    return (uint32_t)LOAD(map->header->snapshotter);
}

/* Not heard of for so long. Two at it at once harm nobody: a snapshot that is published late is older than those that
 * are there, and is removed after the next. Of one that is kept the time lies in the future. */
static bool is_late(uint64_t word, uint64_t than_ns)
{
    uint32_t at = (uint32_t)(word >> 32), now = tick_now();
    return now > at && now - at > than_ns >> TICK_BITS;
}

static bool may_replace(const struct rf_map *map, uint64_t word)
{
    return word == 0 || rf_id_gone(map, (uint32_t)word) || is_late(word, LATE_NS);
}

/* While the word is mine. Whoever is to be kept remains so until he leaves. */
static void say(struct rf_map *map, uint32_t id, uint32_t tick)
{
    rf_word64 *word = &map->header->snapshotter;
    uint64_t is = LOAD(*word);
    while ((uint32_t)is == id && is >> 32 != RF_SNAPSHOTTER_KEPT &&
           !atomic_compare_exchange_weak(word, &is, word_of(id, tick))) {
    }
}

void rf_snapshotter_keep(struct rf_actor *actor)
{
    say(actor->map, actor->id, RF_SNAPSHOTTER_KEPT);
}

rf_status rf_snapshotter_enter(struct rf_actor *actor, rf_detail *detail)
{
    rf_word64 *word = &actor->map->header->snapshotter;
    uint64_t current = LOAD(*word);
    if (may_replace(actor->map, current)) {
        /* acq_rel: what the last one removed or published is seen. */
        if (atomic_compare_exchange_strong_explicit(word, &current, word_of(actor->id, tick_now()),
                                                    memory_order_acq_rel, memory_order_acquire)) {
            RF_POINT("snapshot.entered");
            return RF_OK;
        }
    }
    rf_refuse(detail, RF_BUSY, 0, "somebody else is taking a snapshot");
    const struct rf_member *m = rf_member_at(actor->map, rf_id_slot((uint32_t)current));
    if (detail != NULL && m != NULL) {
        detail->pid = atomic_load_explicit(&m->pid, memory_order_relaxed);
    }
    return RF_BUSY;
}

void rf_snapshotter_leave(struct rf_actor *actor)
{
    rf_word64 *word = &actor->map->header->snapshotter;
    uint64_t is = LOAD(*word);
    while ((uint32_t)is == actor->id &&
           !atomic_compare_exchange_weak_explicit(word, &is, 0, memory_order_acq_rel,
                                                  memory_order_acquire)) {
    }
    RF_POINT("snapshot.left");
}

/* The log has grown enough since the last one. */
static bool is_wanted(const struct rf_map *map)
{
    const struct rf_header *h = map->header;
    uint64_t enough = PER_SIZE * LOAD(h->snapshot_size);
    enough = enough < h->snapshot_bytes ? h->snapshot_bytes : enough;
    return rf_log_position(map) - LOAD(h->snapshot_position) >= enough;
}

bool rf_snapshot_due(const struct rf_map *map)
{
    const struct rf_header *h = map->header;
    return h->sealing != 0 && LOAD(h->condemned) == 0 && may_replace(map, LOAD(h->snapshotter)) &&
           is_wanted(map);
}

/* --- where replay begins --- */

/* The epoch from which on one member's operation must be replayed; UINT64_MAX: it needs none. */
static uint64_t epoch_of(const struct rf_map *map, uint32_t slot)
{
    const struct rf_slot *s = rf_slot_at(map, slot);
    uint64_t epoch = LOAD(s->desc.chain);
    epoch = epoch == 0 ? UINT64_MAX : epoch;
    uint64_t state = LOAD(s->desc.state);
    if (RF_DESC_STATE(state) != RF_DESC_PREPARED ||
        rf_lane_offset(LOAD(s->lane.word)) == RF_DESC_OFFSET(state)) {
        return epoch; /* not committed: whatever comes of it has the epoch to which the lane was raised */
    }
    struct rf_lane_record record;
    rf_lane_peek(map, slot, RF_DESC_OFFSET(state), &record);
    uint64_t its = record.epoch;
    /* If it is over by now, its record may have been overwritten, and memory has all of it. */
    atomic_thread_fence(memory_order_acquire);
    if (atomic_load_explicit(&s->desc.state, memory_order_relaxed) != state) {
        return epoch;
    }
    return its < epoch ? its : epoch;
}

static uint64_t scan_descriptors(const struct rf_map *map, uint64_t r, uint32_t *holder)
{
    uint32_t used = LOAD(map->header->members_used);
    *holder = UINT32_MAX;
    for (uint32_t slot = 0; slot < used; slot++) {
        uint64_t epoch = rf_slot_was_used(map, slot) ? epoch_of(map, slot) : UINT64_MAX;
        if (epoch < r) {
            r = epoch;
            *holder = slot;
        }
    }
    return r;
}

uint32_t rf_snapshot_held_by(const struct rf_map *map)
{
    uint32_t holder;
    /* Whoever is not done though his epoch is on the disk already is slow, or stopped. */
    scan_descriptors(map, LOAD(map->header->durable) + 1, &holder);
    uint64_t taker = LOAD(map->header->snapshotter);
    bool kept = taker >> 32 == RF_SNAPSHOTTER_KEPT;
    if (holder == UINT32_MAX && taker != 0 && !rf_id_gone(map, (uint32_t)taker) &&
        (kept ? map->header->sealing != 0 && is_wanted(map) : is_late(taker, 2 * BUSY_NS))) {
        holder = rf_id_slot((uint32_t)taker);
    }
    return holder == UINT32_MAX || map->header->sealing == 0
               ? 0
               : atomic_load_explicit(&rf_member_at(map, holder)->pid, memory_order_relaxed);
}

/* --- copying --- */

struct taking {
    struct rf_map *map;
    struct rf_disk_file *file;
    struct rf_snapshot_header header;
    struct rf_rec_copy *copy;
    uint32_t taker; /* his id */
    uint8_t *buffer;
    size_t filled;
    uint64_t began; /* to work, after the last rest; monotonic */
    blake3_hasher hasher;
};

/* For as long as it has worked: others want the processor and the disk as well, and they are waited for. */
static void rest(struct taking *t)
{
    uint64_t worked_us = (rf_monotonic_ns() - t->began) / 1000;
    say(t->map, t->taker, tick_now());
    if (!atomic_load(&t->map->closing)) {
        usleep((useconds_t)(worked_us < REST_US_MAX ? worked_us : REST_US_MAX));
    }
    t->began = rf_monotonic_ns();
}

static rf_status flush(struct taking *t, rf_detail *detail)
{
    blake3_hasher_update(&t->hasher, t->buffer, t->filled);
    rf_status status = rf_file_append(t->file, t->buffer, t->filled, detail);
    t->header.bytes += t->filled;
    t->filled = 0;
    rest(t);
    RF_POINT("snapshot.flushed");
    return status;
}

/* Room for any entry. */
static rf_status reserve(struct taking *t, rf_detail *detail)
{
    size_t most = sizeof(struct rf_snapshot_shard) + RF_CODEC_SHARD_MAX + 8;
    return BUFFER_BYTES - t->filled < most ? flush(t, detail) : RF_OK;
}

/* Both kinds of entries begin with their length and their body's. */
static void put_entry(struct taking *t, void *entry, size_t fixed, size_t body)
{
    uint32_t bytes[2] = {(uint32_t)((fixed + body + 7) & ~(size_t)7), (uint32_t)body};
    memcpy(entry, bytes, sizeof(bytes));
    memcpy(t->buffer + t->filled, entry, fixed);
    memset(t->buffer + t->filled + fixed + body, 0, bytes[0] - fixed - body);
    t->filled += bytes[0];
}

/* A run as it was at one moment. *alive: it was that run's. */
static rf_status copy_run(struct taking *t, struct rf_runrec *r, uint64_t uid, struct rf_run *run,
                          struct rf_run_body *b, uint64_t *count, bool *alive, rf_detail *detail)
{
    uint64_t until = 0;
    for (uint64_t n = 0;; n++) {
        uint32_t begun = rf_seq_begin(&r->seq);
        if ((begun & 1u) == 0) {
            _Alignas(8) rf_tenant tenant;
            rf_words_load(b, &r->body, sizeof(*b));
            rf_words_load(&tenant, &r->tenant, sizeof(tenant));
            *run = (struct rf_run){
                .tenant = tenant,
                .run = __atomic_load_n(&r->run, __ATOMIC_RELAXED),
                .config = {.lease_duration = __atomic_load_n(&r->lease_duration, __ATOMIC_RELAXED),
                           .semantics =
                               (rf_semantics)__atomic_load_n(&r->semantics, __ATOMIC_RELAXED),
                           .has_max_retries =
                               __atomic_load_n(&r->has_max_retries, __ATOMIC_RELAXED) != 0,
                           .max_retries = __atomic_load_n(&r->max_retries, __ATOMIC_RELAXED)},
                .status = (rf_run_status)b->status,
                .created_at = b->created_at,
                .completed_at = b->completed_at,
                .root_count = b->root_count,
                .ring_count = b->ring_count,
                .ring_next = b->ring_next,
                .ring = b->ring,
            };
            *count = atomic_load_explicit(&r->count, memory_order_relaxed);
            if (rf_seq_valid(&r->seq, begun)) {
                break;
            }
            continue;
        }
        uint64_t now = rf_monotonic_ns();
        until = until == 0 ? now + BUSY_NS : until;
        if (now > until) {
            rf_refuse(detail, RF_BUSY, 0, "copying a run that is being changed");
            if (detail != NULL) {
                detail->pid = rf_lock_holder_pid(t->map, &r->lock);
            }
            return RF_BUSY;
        }
        if (n > SPINS) {
            usleep(50);
        }
    }
    *alive = LOAD(r->live) == uid;
    return RF_OK;
}

/* Says that the run goes away: what follows is the next run. */
static void end_early(struct taking *t)
{
    struct rf_snapshot_shard end = {.position = UINT32_MAX};
    put_entry(t, &end, sizeof(end), 0);
}

/* One shard. *alive: its run was still there when all of it was copied. */
static rf_status copy_shard(struct taking *t, struct rf_runrec *r, uint64_t uid,
                            const struct rf_run *run, uint64_t position, bool *alive,
                            rf_detail *detail)
{
    struct rf_rec_copy *c = t->copy;
    struct rf_rec *rec = rf_rec_at(t->map, rf_dir_slot(t->map, r, position));
    rf_status status = reserve(t, detail);
    *alive = false;
    if (status != RF_OK || rec == NULL) {
        return status;
    }
    /* Without an actor: whoever takes a snapshot for a guardian is another thread than the guardian, who
     * settles the dead. */
    status = rf_rec_read(t->map, NULL, rec, c, detail);
    /* Bytes outside of the record may be another's once its run is gone. */
    atomic_thread_fence(memory_order_acquire);
    *alive = atomic_load_explicit(&r->live, memory_order_relaxed) == uid;
    if (!*alive) {
        return RF_OK;
    }
    if (status != RF_OK) {
        return status;
    }
    if (c->run_uid != uid || c->position != position) {
        return rf_refuse(detail, RF_CORRUPT, 0, "position %" PRIu64 " leads to no shard of its run",
                         position);
    }
    struct rf_snapshot_shard entry = {.position = (uint32_t)position,
                                      .born = c->born,
                                      .version = c->body.version,
                                      .epoch = c->body.epoch,
                                      .stamp = c->body.stamp};
    if (c->parent_slot != 0) {
        const struct rf_rec *parent = rf_rec_at(t->map, c->parent_slot - 1);
        entry.parent =
            parent == NULL ? 0 : 1 + __atomic_load_n(&parent->position, __ATOMIC_RELAXED);
    }
    size_t len;
    c->view.tenant = &run->tenant;
    c->view.run = run->run;
    status = rf_codec_put_shard(&c->view, t->buffer + t->filled + sizeof(entry), RF_CODEC_SHARD_MAX,
                                &len);
    assert(status == RF_OK);
    put_entry(t, &entry, sizeof(entry), len);
    t->header.shards++;
    return RF_OK;
}

static rf_status copy_one(struct taking *t, struct rf_runrec *r, uint64_t uid, rf_detail *detail)
{
    struct rf_run run;
    struct rf_run_body body;
    uint64_t count;
    bool alive;
    size_t len;
    rf_status status = reserve(t, detail);
    if (status == RF_OK) {
        status = copy_run(t, r, uid, &run, &body, &count, &alive, detail);
    }
    if (status != RF_OK || !alive) {
        return status; /* purged: not even begun */
    }
    const char *broken = rf_run_violation(&run);
    if (broken != NULL) {
        return rf_refuse(detail, RF_CORRUPT, 0, "a run's record: %s", broken);
    }
    struct rf_snapshot_run entry = {.uid = uid,
                                    .version = body.version,
                                    .epoch = body.epoch,
                                    .stamp = body.stamp,
                                    .shards = count};
    status = rf_codec_put_run(&run, t->buffer + t->filled + sizeof(entry), RF_CODEC_RUN_MAX, &len);
    assert(status == RF_OK);
    put_entry(t, &entry, sizeof(entry), len);
    t->header.runs++;
    RF_POINT("snapshot.run");
    for (uint64_t p = 0; status == RF_OK && alive && p < count; p++) {
        status = copy_shard(t, r, uid, &run, p, &alive, detail);
        if (status == RF_OK && !alive) {
            end_early(t);
        }
    }
    return status;
}

static rf_status copy_all(struct taking *t, rf_detail *detail)
{
    rf_status status = RF_OK;
    uint32_t used = LOAD(t->map->header->runs_used);
    for (uint32_t slot = 0; status == RF_OK && slot < used; slot++) {
        struct rf_runrec *r = rf_run_at(t->map, slot);
        uint64_t uid = LOAD(r->live);
        if (uid != 0) {
            status = copy_one(t, r, uid, detail);
        }
    }
    return status == RF_OK && t->filled != 0 ? flush(t, detail) : status;
}

/* --- publishing --- */

static rf_status publish(struct taking *t, rf_detail *detail)
{
    struct rf_snapshot_header *h = &t->header;
    blake3_hasher_update(&t->hasher, h, sizeof(*h));
    blake3_hasher_finalize(&t->hasher, h->hash, sizeof(h->hash));
    rf_status status = rf_file_patch(t->file, 0, h, sizeof(*h), detail);
    if (status != RF_OK) {
        return status;
    }
    RF_POINT("snapshot.complete");
    status = rf_file_publish(t->file, detail);
    t->file = NULL;
    RF_POINT("snapshot.published");
    return status;
}

/* The last batch that is durable; its entry is there at least until the next one is. */
static void name_complete(struct taking *t)
{
    struct rf_log_end end;
    do {
        t->header.complete = LOAD(t->map->header->durable);
    } while (!rf_entry_end(t->map, t->header.complete, &end));
    memcpy(t->header.complete_hash, end.hash, sizeof(end.hash));
}

static rf_status write_snapshot(struct taking *t, struct rf_logger *logger, rf_detail *detail)
{
    static const uint8_t block[RF_LOG_BLOCK];
    char name[RF_SNAPSHOT_NAME];
    rf_snapshot_name(t->header.epoch, name);
    /* A name of its own for whoever is at it; a dead one's is left to the next cold open. */
    uint64_t unique = (uint64_t)t->taker << 32 | (uint32_t)rf_monotonic_ns();
    rf_status status = rf_file_begin(rf_logger_disk(logger), name, unique, &t->file, detail);
    if (status == RF_OK) {
        status = rf_file_append(t->file, block, sizeof(block), detail);
        t->header.bytes = sizeof(block);
    }
    if (status == RF_OK) {
        status = copy_all(t, detail);
    }
    if (status == RF_OK) {
        RF_POINT("snapshot.copied");
        /* What was copied must not be ahead of what the disk has. */
        t->header.complete = LOAD(t->map->header->epoch);
        status = rf_log_wait(logger, t->header.complete, detail);
    }
    if (status == RF_OK) {
        name_complete(t);
        RF_POINT("snapshot.durable");
        status = taker_of(t->map) == t->taker
                     ? publish(t, detail)
                     : rf_refuse(detail, RF_BUSY, 0, "somebody else has taken over the snapshot");
    }
    if (t->file != NULL) {
        rf_file_discard(t->file);
    }
    return status;
}

/* --- tidying up --- */

struct removal {
    const struct rf_map *map;
    struct rf_disk *disk;
    uint64_t below;
    uint32_t pause_us; /* between two segments */
    uint32_t paused_us;
};

/* A file system that tells its disk what is free (discard) keeps the disk from writing meanwhile, for the longer the
 * more it has to tell at once: so segments go one by one. */
static void remove_segment(void *context, uint64_t number)
{
    struct removal *r = context;
    if (number < r->below) {
        if (r->paused_us < PAUSES_US_MAX && !atomic_load(&r->map->closing)) {
            usleep(r->pause_us);
            r->paused_us += r->pause_us;
        }
        rf_segment_remove(r->disk, number, NULL);
        RF_POINT("snapshot.segment_removed");
    }
}

static void remove_snapshot(void *context, uint64_t epoch)
{
    struct removal *r = context;
    char name[RF_SNAPSHOT_NAME];
    if (epoch < r->below) {
        rf_snapshot_name(epoch, name);
        rf_file_remove(r->disk, name, NULL);
        RF_POINT("snapshot.old_removed");
    }
}

/* Both kinds of files are named for the member that makes them. */
static bool is_over(const void *context, uint64_t unique)
{
    return rf_id_gone(context, (uint32_t)(unique >> 32));
}

static void rest_between(void *context)
{
    rest(context);
}

/* The epoch of the second newest snapshot that is good; 0: there is none. What was just written needs no look; one that
 * was there before is read once in its life, when it becomes the second. */
static uint64_t second_good(struct taking *t, struct rf_disk *disk)
{
    uint64_t epochs[LOOKED_AT];
    unsigned count, good = 0;
    if (rf_snapshot_list(disk, epochs, LOOKED_AT, &count, NULL) != RF_OK) {
        return 0;
    }
    t->began = rf_monotonic_ns();
    for (unsigned i = 0; i < count; i++) {
        struct rf_snapshot_header header;
        good += epochs[i] == t->header.epoch ||
                rf_snapshot_check_slowly(t->map->dir_fd, epochs[i], t->header.store_id, &header,
                                         rest_between, t, NULL) == RF_OK;
        if (good == KEEP) {
            return epochs[i];
        }
    }
    return 0;
}

/* Two good snapshots and the log behind the older one stay. What can't be removed now is removed after the
 * next one. */
static void tidy(struct taking *t, struct rf_disk *disk)
{
    const struct rf_header *h = t->map->header;
    struct rf_log_reader *reader;
    struct removal r = {
        .map = t->map, .disk = disk, .pause_us = (uint32_t)(h->segment_bytes / REMOVED_PER_US)};
    r.pause_us = r.pause_us < PAUSES_US_MAX ? r.pause_us : PAUSES_US_MAX - 1;
    uint64_t second = second_good(t, disk);
    if (second == 0) {
        return; /* if the only one were damaged, the whole log would be needed */
    }
    r.below = second;
    rf_disk_list(disk, RF_SNAPSHOT_PREFIX, remove_snapshot, &r, NULL);
    if (rf_log_reader_open(disk, h->segment_bytes, h->store_id, &reader, NULL) != RF_OK) {
        return;
    }
    if (rf_log_first_needed(reader, second, &r.below, NULL) == RF_OK) {
        rf_disk_list(disk, "log.", remove_segment, &r, NULL);
    }
    rf_log_reader_close(reader);
}

/* --- taking --- */

rf_status rf_snapshot_take_entered(struct rf_actor *actor, struct rf_logger *logger,
                                   rf_detail *detail)
{
    struct rf_map *map = actor->map;
    struct rf_header *h = map->header;
    struct taking t = {.map = map, .taker = actor->id, .began = rf_monotonic_ns()};
    uint32_t holder;
    t.copy = malloc(sizeof(*t.copy));
    t.buffer = malloc(BUFFER_BYTES);
    if (t.copy == NULL || t.buffer == NULL) {
        free(t.copy);
        free(t.buffer);
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a snapshot");
    }
    blake3_hasher_init_derive_key(&t.hasher, RF_SNAPSHOT_CONTEXT);
    t.header = (struct rf_snapshot_header){.magic = RF_SNAPSHOT_MAGIC,
                                           .format = RF_SNAPSHOT_FORMAT,
                                           .header_bytes = sizeof(t.header),
                                           .incarnation = h->incarnation};
    memcpy(t.header.store_id, h->store_id, sizeof(h->store_id));
    uint64_t position = rf_log_position(map);
    uint64_t r = atomic_load_explicit(&h->epoch, memory_order_seq_cst);
    RF_POINT("snapshot.begun");
    rf_lanes_raise(map, r - 1);
    RF_POINT("snapshot.raised");
    t.header.epoch = scan_descriptors(map, r, &holder);
    RF_POINT("snapshot.scanned");
    /* After the scan: what a purge did that is not replayed is in the floor; a run that was made in an
     * epoch that is not replayed has a smaller uid. */
    t.header.next_uid = LOAD(h->next_uid);
    t.header.floor = LOAD(h->fence_floor);
    t.header.time = rf_region_now(map);
    rf_status status = write_snapshot(&t, logger, detail);
    if (status == RF_OK && taker_of(map) == actor->id) {
        atomic_store(&h->snapshot_epoch, t.header.epoch);
        atomic_store(&h->snapshot_position, position);
        atomic_store(&h->snapshot_size, t.header.bytes);
        RF_POINT("snapshot.told");
        tidy(&t, rf_logger_disk(logger));
        rf_disk_sweep_left(rf_logger_disk(logger), RF_SNAPSHOT_PREFIX, is_over, map);
        rf_disk_sweep_left(rf_logger_disk(logger), "log.", is_over, map);
    }
    free(t.copy);
    free(t.buffer);
    return status;
}

rf_status rf_snapshot_take(struct rf_actor *actor, struct rf_logger *logger, rf_detail *detail)
{
    rf_status status = rf_snapshotter_enter(actor, detail);
    if (status == RF_OK) {
        status = rf_snapshot_take_entered(actor, logger, detail);
        rf_snapshotter_leave(actor);
    }
    return status;
}
