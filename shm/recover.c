#define _GNU_SOURCE /* sync_file_range */
#include "recover.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "point.h"
#include "snapshot.h"

/* --- the table --- */

#define ANY      0xFFu
#define NOT_HELD (RF_CASE_SHARED | RF_CASE_ALONE)
#define NOTHING_GOOD                                                                               \
    (RF_CASE_REGION_NONE | RF_CASE_REGION_HALF | RF_CASE_REGION_STALE | RF_CASE_REGION_CONDEMNED)
#define EMPTY   (RF_CASE_STORE_NONE | RF_CASE_STORE_VOLATILE)
#define KNOWN   (EMPTY | RF_CASE_STORE_DURABLE)
#define WRITERS (RF_CASE_CREATE | RF_CASE_OPEN)

const struct rf_open_row rf_open_table[] = {
    {{ANY, RF_CASE_REGION_GOOD, NOT_HELD, ANY}, RF_DO_ATTACH},
    {{ANY, RF_CASE_REGION_FOREIGN, ANY, ANY}, RF_DO_REFUSE_LAYOUT},
    {{ANY, RF_CASE_REGION_GOOD | NOTHING_GOOD, RF_CASE_HELD, ANY}, RF_DO_WAIT},
    {{RF_CASE_STORE_LOST, NOTHING_GOOD, NOT_HELD, ANY}, RF_DO_REFUSE_LOST},
    {{KNOWN, NOTHING_GOOD, NOT_HELD, RF_CASE_LOOK}, RF_DO_REFUSE_NO_REGION},
    {{EMPTY, NOTHING_GOOD, NOT_HELD, RF_CASE_OPEN}, RF_DO_REFUSE_NO_REGION},
    {{EMPTY, NOTHING_GOOD, RF_CASE_SHARED, RF_CASE_CREATE}, RF_DO_GO_ALONE},
    {{RF_CASE_STORE_DURABLE, NOTHING_GOOD, RF_CASE_SHARED, WRITERS}, RF_DO_GO_ALONE},
    {{EMPTY, NOTHING_GOOD, RF_CASE_ALONE, RF_CASE_CREATE}, RF_DO_BUILD},
    {{RF_CASE_STORE_DURABLE, NOTHING_GOOD, RF_CASE_ALONE, WRITERS}, RF_DO_RECOVER},
};
const size_t rf_open_rows = sizeof(rf_open_table) / sizeof(rf_open_table[0]);

enum rf_case_action rf_open_decide(struct rf_open_case c)
{
    for (size_t i = 0; i < rf_open_rows; i++) {
        const struct rf_open_case *row = &rf_open_table[i].fits;
        if ((row->store & c.store) != 0 && (row->region & c.region) != 0 &&
            (row->lock & c.lock) != 0 && (row->who & c.who) != 0) {
            return rf_open_table[i].action;
        }
    }
    assert(false && "a case that the table does not have");
    return RF_DO_WAIT;
}

/* --- the state --- */

#define SNAPSHOTS 16u

/* The newest snapshot that is good. *header->epoch is 0 if there is none. */
static rf_status choose_snapshot(struct rf_disk *disk, int dir_fd, const uint8_t store_id[16],
                                 struct rf_snapshot_header *header, unsigned *there,
                                 rf_detail *detail)
{
    uint64_t epochs[SNAPSHOTS];
    rf_status status = rf_snapshot_list(disk, epochs, SNAPSHOTS, there, detail);
    for (unsigned i = 0; status == RF_OK && i < *there; i++) {
        status = rf_snapshot_check(dir_fd, epochs[i], store_id, header, detail);
        if (status == RF_OK) {
            return RF_OK;
        }
        /* Damaged: the one before it, and a longer replay, come to the same. */
        status = status == RF_CORRUPT || status == RF_IO_ERROR || status == RF_NOT_FOUND ? RF_OK
                                                                                         : status;
    }
    header->epoch = 0;
    return status;
}

rf_status rf_recover_is_followed(const struct rf_snapshot_header *snapshot,
                                 const struct rf_batch_header *batch, rf_detail *detail)
{
    if (batch->epoch != snapshot->complete ||
        memcmp(batch->hash, snapshot->complete_hash, sizeof(batch->hash)) == 0) {
        return RF_OK;
    }
    char name[RF_SNAPSHOT_NAME];
    rf_snapshot_name(snapshot->epoch, name);
    return rf_refuse(detail, RF_CORRUPT, 0,
                     "%s does not belong to this log, of which epoch %" PRIu64
                     " is another: it is of a copy that went its own way; take it away",
                     name, batch->epoch);
}

static rf_status replay_log(struct rf_log_reader *reader, const struct rf_snapshot_header *snapshot,
                            uint64_t until, struct rf_replay *replay, struct rf_recovered *out,
                            rf_detail *detail)
{
    uint64_t from = snapshot->epoch == 0 ? 1 : snapshot->epoch;
    rf_status status = rf_log_seek(reader, from, detail);
    if (status == RF_NOT_FOUND) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "the log does not reach back to epoch %" PRIu64 ", and %s", from,
                         from == 1 ? "no snapshot can be read" : "the snapshot begins there");
    }
    bool first = true;
    while (status == RF_OK) {
        struct rf_log_batch batch;
        bool end;
        status = rf_log_next(reader, &batch, &end, detail);
        if (status != RF_OK || end) {
            break;
        }
        if (first) {
            out->replayed_position = batch.header.position;
            first = false;
        }
        status =
            snapshot->epoch == 0 ? RF_OK : rf_recover_is_followed(snapshot, &batch.header, detail);
        if (status == RF_OK) {
            status = rf_replay_batch(replay, &batch, detail);
        }
        if (batch.header.epoch == until) {
            break;
        }
    }
    return status;
}

static rf_status recover_with(struct rf_map *map, struct rf_disk *disk, int dir_fd, bool has_log,
                              uint64_t until, enum rf_leases leases, struct rf_log_reader *reader,
                              struct rf_replay *replay, struct rf_recovered *out, rf_detail *detail)
{
    struct rf_snapshot_header snapshot;
    unsigned snapshots;
    rf_status status =
        choose_snapshot(disk, dir_fd, map->header->store_id, &snapshot, &snapshots, detail);
    if (status != RF_OK) {
        return status;
    }
    if (rf_log_reader_empty(reader)) {
        /* Made and left before its first segment was; or the log is lost. */
        if (has_log || snapshots != 0) {
            return rf_refuse(detail, RF_CORRUPT, 0,
                             "the log is gone (no file log.*); put it back from a backup");
        }
        return rf_replay_finish(replay, UINT64_MAX, detail);
    }
    if (snapshot.epoch != 0) {
        out->snapshot_epoch = snapshot.epoch;
        out->snapshot_size = snapshot.bytes;
        status = rf_snapshot_load(dir_fd, &snapshot, replay, detail);
        RF_POINT("recover.loaded");
    }
    if (status == RF_OK) {
        status = replay_log(reader, &snapshot, until, replay, out, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    out->log = rf_log_reader_shape(reader);
    if (snapshot.epoch != 0 && out->log.end.epoch < snapshot.complete) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "the log ends with epoch %" PRIu64 ", but a snapshot says that %" PRIu64
                         " was written",
                         out->log.end.epoch, snapshot.complete);
    }
    RF_POINT("recover.replayed");
    return rf_replay_finish(replay, leases == RF_LEASES_KEEP ? out->log.last_after : UINT64_MAX,
                            detail);
}

/* After a write that failed, and not by O_DIRECT, the kernel keeps pages that look written: reads find what the disk
 * does not have, and a later fsync of them says that all is well. So what is cached goes before anything is believed;
 * what still can be written is written before. */
static void forget_cached(void *context, uint64_t number)
{
    const int *dir_fd = context;
    char name[32];
    snprintf(name, sizeof(name), "log.%016" PRIx64, number);
    int fd = openat(*dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0) {
        sync_file_range(fd, 0, 0,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE |
                            SYNC_FILE_RANGE_WAIT_AFTER);
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
}

rf_status rf_recover_state(struct rf_map *map, struct rf_disk *disk, int dir_fd, bool has_log,
                           uint64_t until, enum rf_leases leases, struct rf_recovered *out,
                           struct rf_replay **replay, rf_detail *detail)
{
    const struct rf_header *h = map->header;
    struct rf_log_reader *reader;
    *out = (struct rf_recovered){0};
    *replay = NULL;
    rf_status status = rf_disk_list(disk, "log.", forget_cached, &dir_fd, detail);
    RF_POINT("recover.forgotten");
    if (status == RF_OK) {
        status = rf_log_reader_open(disk, h->segment_bytes, h->store_id, &reader, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    status = rf_replay_begin(map, replay, detail);
    if (status == RF_OK) {
        status =
            recover_with(map, disk, dir_fd, has_log, until, leases, reader, *replay, out, detail);
        out->tally = rf_replay_tally(*replay);
    }
    rf_log_reader_close(reader);
    return status;
}

/* --- starting --- */

static rf_status sync_read(struct rf_disk *disk, const struct rf_log_shape *log, rf_detail *detail)
{
    for (uint64_t n = log->read_from; n < log->next_segment; n++) {
        if (!rf_segment_exists(disk, n)) {
            continue;
        }
        rf_status status = rf_segment_sync(disk, n, detail);
        if (status != RF_OK) {
            return status;
        }
    }
    return RF_OK;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Time goes on behind the largest that was seen, whatever the wall clock says today. */
static void continue_time(struct rf_header *h, uint64_t seen)
{
    uint64_t boot = clock_ns(CLOCK_BOOTTIME);
    if (h->time_base + boot <= seen) {
        h->time_base = seen + 1 - boot;
    }
}

/* Epochs that somebody may ask for though they are not in the log; the last incarnation's are the newest ones. */
static void remember_gaps(struct rf_header *h, const struct rf_log_shape *log)
{
    if (log->next_segment == 0) {
        return;
    }
    const unsigned kept = RF_LOG_GAPS - 1;
    h->log_gaps[0] =
        (struct rf_log_gap){.after = log->end.epoch, .until = rf_log_used(log->reached)};
    memcpy(&h->log_gaps[1], log->gaps, kept * sizeof(log->gaps[0]));
    const struct rf_log_gap *left_out = &log->gaps[kept];
    h->log_told_from = left_out->until > log->told_from ? left_out->until : log->told_from;
}

/* The first segment of this incarnation. A number that somebody else took is his. */
static rf_status make_first_segment(struct rf_header *h, struct rf_disk *disk,
                                    const struct rf_log_shape *log, rf_detail *detail)
{
    bool fresh = log->next_segment == 0;
    for (uint64_t first = log->next_segment;; first++) {
        struct rf_segment_header mine, there;
        rf_log_start(h, first, &log->end, fresh ? 0 : rf_log_used(log->reached));
        mine = rf_log_segment_header(h, first);
        rf_status status = rf_segment_make(disk, &mine, (uint64_t)getpid(), detail);
        if (status == RF_OK) {
            status = rf_segment_header_read(disk, first, &there, detail);
        }
        if (status != RF_OK) {
            return status;
        }
        if (there.incarnation == h->incarnation) {
            atomic_store(&h->log_made, first + 1);
            return RF_OK;
        }
    }
}

#define IDLE_MAX 12u /* segments; giving their room back takes time that an open need not spend */

struct removal {
    struct rf_disk *disk;
    uint64_t below;
    unsigned count;
};

static void count_idle(void *context, uint64_t number)
{
    struct removal *r = context;
    r->count += number < r->below;
}

static void remove_idle(void *context, uint64_t number)
{
    struct removal *r = context;
    if (number < r->below) {
        rf_segment_remove(r->disk, number, NULL);
    }
}

/* Segments that were made ahead, or of incarnations that came to nothing. Now that a later one says where the log
 * ended, nobody asks them. A snapshot removes them too; here only what many cold opens in a row have left. */
static void remove_idle_segments(const struct rf_header *h, struct rf_disk *disk)
{
    struct rf_log_reader *reader;
    struct removal removal = {.disk = disk, .below = h->log_first};
    if (rf_log_reader_open(disk, h->segment_bytes, h->store_id, &reader, NULL) == RF_OK) {
        rf_log_idle_segments(reader, count_idle, &removal);
        if (removal.count > IDLE_MAX) {
            rf_log_idle_segments(reader, remove_idle, &removal);
        }
        rf_log_reader_close(reader);
    }
}

rf_status rf_recover_start(struct rf_header *h, struct rf_disk *disk, const struct rf_recovered *r,
                           struct rf_store_file *store, bool fresh, rf_detail *detail)
{
    uint64_t incarnation = fresh ? 0 : store->incarnation + 1;
    bool durable = h->sealing != 0, had_segments = r->log.next_segment != 0;
    rf_status status = sync_read(disk, &r->log, detail);
    if (status != RF_OK) {
        return status;
    }
    RF_POINT("recover.synced");
    if (had_segments && incarnation <= r->log.last_incarnation) {
        incarnation = r->log.last_incarnation + 1; /* a store file from a backup, say */
    }
    h->incarnation = incarnation;
    if (atomic_load(&h->fence_floor) < incarnation << 40) {
        atomic_store(&h->fence_floor, incarnation << 40);
    }
    if (incarnation != 0 && h->claim_cooldown != 0) {
        atomic_store(&h->claims_from, RF_CLAIMS_UNSET);
    }
    continue_time(h, r->tally.time);
    store->incarnation = incarnation;
    store->has_log = durable && had_segments;
    status = rf_store_file_write(disk, store, detail);
    RF_POINT("region.named");
    if (status != RF_OK || !durable) {
        return status;
    }
    remember_gaps(h, &r->log);
    status = make_first_segment(h, disk, &r->log, detail);
    RF_POINT("recover.segment");
    if (status == RF_OK && store->has_log == 0) {
        store->has_log = 1;
        status = rf_store_file_write(disk, store, detail);
    }
    if (status == RF_OK && had_segments) {
        atomic_store(&h->snapshot_epoch, r->snapshot_epoch);
        atomic_store(&h->snapshot_position, r->replayed_position);
        atomic_store(&h->snapshot_size, r->snapshot_size);
        remove_idle_segments(h, disk);
        RF_POINT("recover.tidied");
    }
    return status;
}
