#include "log_read.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <blake3.h>

#include "formats.h"
#include "lane.h"
#include "region.h"

#define WINDOW_BYTES (1u << 20)
#define AHEAD_BYTES  (8u << 20) /* that the disk may bring while what is there is worked on */

struct incarnation {
    uint64_t number;
    uint64_t first;   /* segment in which it began; may be gone */
    uint64_t last;    /* the highest one that is there */
    uint64_t durable; /* one of its segments says that everything up to here was */
    uint64_t
        begun; /* its first epoch, less one; if its first segment is gone, perhaps a later one */
    struct rf_log_end after;
};

struct segment {
    uint64_t number;
    uint64_t durable;     /* when it was made: no batch up to here begins in it */
    uint32_t incarnation; /* index */
};

/* One whose header is damaged, or another store's. What it holds is not known. */
struct bad_segment {
    uint64_t number;
    bool foreign;
};

struct rf_log_reader {
    struct rf_disk *disk;
    uint64_t data_bytes; /* of a segment */
    uint8_t store_id[16];
    struct incarnation *incarnations; /* ascending */
    struct segment *segments;         /* ascending */
    struct bad_segment *bad;          /* ascending */
    size_t incarnation_count, segment_count, segment_room, bad_count;
    rf_status status; /* while listing */
    rf_detail *detail;

    /* where the next batch is expected */
    size_t in; /* index of the incarnation */
    uint64_t epoch;
    uint64_t position;
    uint8_t previous[RF_LOG_HASH];
    struct rf_log_end behind; /* the last batch that was read, or what stands for it */
    bool fresh;               /* no batch of this incarnation was delivered yet */
    bool onward;              /* what follows will be read, too */
    bool ended;
    bool vouched; /* what is not there was written: a later batch, or a later segment, says so */
    uint64_t read_from; /* segment */

    /* bytes [window_at, window_at + window_len) of the log */
    uint8_t *window;
    size_t window_room;
    uint64_t window_at;
    size_t window_len;
};

void rf_batch_hash(const struct rf_batch_header *header, const uint8_t *records,
                   uint8_t out[RF_LOG_HASH])
{
    static const uint8_t zeros[RF_LOG_HASH];
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_BATCH_CONTEXT);
    blake3_hasher_update(&hasher, header, offsetof(struct rf_batch_header, hash));
    blake3_hasher_update(&hasher, zeros, sizeof(zeros));
    blake3_hasher_update(&hasher, records, header->record_bytes);
    blake3_hasher_finalize(&hasher, out, RF_LOG_HASH);
}

/* --- segments and incarnations --- */

static rf_status refuse_memory(rf_detail *detail)
{
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for reading the log");
}

/* Segments of one incarnation say the same, and a later one never begins before an earlier. */
static rf_status add_segment(struct rf_log_reader *r, const struct rf_segment_header *h)
{
    struct incarnation *last =
        r->incarnation_count == 0 ? NULL : &r->incarnations[r->incarnation_count - 1];
    bool same = last != NULL && last->number == h->incarnation;
    bool sound = h->first_number <= h->number;
    if (same) {
        sound = sound && h->first_number == last->first &&
                memcmp(&h->after, &last->after, sizeof(h->after)) == 0;
    } else if (last != NULL) {
        sound = sound && h->incarnation > last->number && h->first_number > last->last &&
                h->after.epoch >= last->after.epoch;
    }
    if (!sound) {
        return rf_refuse(r->detail, RF_CORRUPT, 0,
                         "log.%016" PRIx64 " (incarnation %" PRIu64
                         ") contradicts the segments before it",
                         h->number, h->incarnation);
    }
    if (!same) {
        struct incarnation *more =
            realloc(r->incarnations, (r->incarnation_count + 1) * sizeof(r->incarnations[0]));
        if (more == NULL) {
            return refuse_memory(r->detail);
        }
        r->incarnations = more;
        last = &more[r->incarnation_count++];
        *last = (struct incarnation){
            .number = h->incarnation, .first = h->first_number, .after = h->after};
        last->begun = h->durable > h->after.epoch ? h->durable : h->after.epoch;
    }
    last->last = h->number;
    last->durable = h->durable > last->durable ? h->durable : last->durable;
    if (r->segment_count == r->segment_room) {
        size_t room = r->segment_room == 0 ? 16 : 2 * r->segment_room;
        struct segment *more = realloc(r->segments, room * sizeof(r->segments[0]));
        if (more == NULL) {
            return refuse_memory(r->detail);
        }
        r->segments = more;
        r->segment_room = room;
    }
    r->segments[r->segment_count++] =
        (struct segment){.number = h->number,
                         .durable = h->durable,
                         .incarnation = (uint32_t)(r->incarnation_count - 1)};
    return RF_OK;
}

static rf_status add_bad(struct rf_log_reader *r, uint64_t number, bool foreign)
{
    struct bad_segment *more = realloc(r->bad, (r->bad_count + 1) * sizeof(r->bad[0]));
    if (more == NULL) {
        return refuse_memory(r->detail);
    }
    r->bad = more;
    r->bad[r->bad_count++] = (struct bad_segment){.number = number, .foreign = foreign};
    return RF_OK;
}

/* A bad one is refused when it turns out to be needed. */
static void take_segment(void *context, uint64_t number)
{
    struct rf_log_reader *r = context;
    struct rf_segment_header header;
    rf_detail found = {0};
    if (r->status != RF_OK) {
        return;
    }
    r->status = rf_segment_header_read(r->disk, number, &header, &found);
    if (r->status == RF_CORRUPT) {
        r->status = add_bad(r, number, false);
    } else if (r->status != RF_OK) {
        rf_refuse(r->detail, r->status, found.os_error, "%s", found.where);
    } else if (memcmp(header.store_id, r->store_id, sizeof(header.store_id)) != 0) {
        r->status = add_bad(r, number, true);
    } else {
        r->status = add_segment(r, &header);
    }
}

rf_status rf_log_reader_open(struct rf_disk *disk, uint64_t segment_bytes,
                             const uint8_t store_id[16], struct rf_log_reader **out,
                             rf_detail *detail)
{
    struct rf_log_reader *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return refuse_memory(detail);
    }
    r->disk = disk;
    r->data_bytes = segment_bytes - RF_LOG_BLOCK;
    r->detail = detail;
    memcpy(r->store_id, store_id, sizeof(r->store_id));
    r->window_room = WINDOW_BYTES;
    r->window = aligned_alloc(RF_LOG_BLOCK, r->window_room);
    rf_status status = r->window == NULL ? refuse_memory(detail)
                                         : rf_disk_list(disk, "log.", take_segment, r, detail);
    status = status == RF_OK ? r->status : status;
    if (status != RF_OK) {
        rf_log_reader_close(r);
        return status;
    }
    *out = r;
    return RF_OK;
}

void rf_log_reader_close(struct rf_log_reader *r)
{
    free(r->incarnations);
    free(r->segments);
    free(r->bad);
    free(r->window);
    free(r);
}

bool rf_log_reader_empty(const struct rf_log_reader *r)
{
    return r->segment_count == 0 && r->bad_count == 0;
}

/* Up to which epoch an incarnation counts. */
static uint64_t last_counted(const struct rf_log_reader *r, size_t in)
{
    return in + 1 < r->incarnation_count ? r->incarnations[in + 1].after.epoch : UINT64_MAX;
}

static uint64_t begin_of(const struct rf_log_reader *r, uint64_t segment)
{
    return segment * r->data_bytes;
}

/* Behind the last byte that the incarnation has room for. */
static uint64_t limit_of(const struct rf_log_reader *r, size_t in)
{
    return begin_of(r, r->incarnations[in].last + 1);
}

static rf_status refuse_at(const struct rf_log_reader *r, uint64_t position, uint64_t epoch,
                           const char *what, rf_detail *detail)
{
    return rf_refuse(
        detail, RF_CORRUPT, 0, "log.%016" PRIx64 " at offset %" PRIu64 ", epoch %" PRIu64 ": %s",
        position / r->data_bytes, RF_LOG_BLOCK + position % r->data_bytes, epoch, what);
}

/* --- bytes --- */

/* Makes [position, position + len) readable at *at; reads ahead up to `limit`. */
static rf_status look(struct rf_log_reader *r, uint64_t position, size_t len, uint64_t limit,
                      const uint8_t **at, rf_detail *detail)
{
    if (position >= r->window_at && position + len <= r->window_at + r->window_len) {
        *at = r->window + (position - r->window_at);
        return RF_OK;
    }
    if (len > r->window_room) {
        uint8_t *more = aligned_alloc(RF_LOG_BLOCK, len);
        if (more == NULL) {
            return refuse_memory(detail);
        }
        memcpy(more, r->window, r->window_len);
        free(r->window);
        r->window = more;
        r->window_room = len;
    }
    /* What is there already moves to the front. */
    size_t have = 0;
    if (position >= r->window_at && position < r->window_at + r->window_len) {
        have = (size_t)(r->window_at + r->window_len - position);
        memmove(r->window, r->window + (position - r->window_at), have);
    }
    r->window_at = position;
    r->window_len = have;
    uint64_t all = limit - position < r->window_room ? limit - position : r->window_room;
    uint64_t ahead = limit - position - all < AHEAD_BYTES ? limit - position - all : AHEAD_BYTES;
    bool missing;
    if (r->onward && ahead != 0) {
        rf_log_expect(r->disk, position + all, (size_t)ahead);
    }
    rf_status status = rf_log_pread(r->disk, position + have, r->window + have, (size_t)all - have,
                                    &missing, detail);
    if (status == RF_OK) {
        r->window_len = (size_t)all;
        *at = r->window;
    }
    return status;
}

/* --- one batch --- */

enum verdict { BATCH_GOOD, BATCH_BAD, BATCH_OTHER };

/* Whether the block can be the start of a batch of this place and incarnation. */
static bool looks_right(const struct rf_log_reader *r, const struct rf_batch_header *h, size_t in,
                        uint64_t position)
{
    return h->magic == RF_BATCH_MAGIC && h->position == position &&
           h->incarnation == r->incarnations[in].number &&
           memcmp(h->store_id, r->store_id, sizeof(h->store_id)) == 0;
}

/* One of a format that is not ours, if its hash is right. In every format magic, format, the header's length and the
 * fields up to record_bytes are where they are, the hash ends the header, and the records follow. */
static rf_status judge_other(struct rf_log_reader *r, const struct rf_batch_header *h,
                             uint64_t position, uint64_t limit, enum verdict *verdict,
                             rf_detail *detail)
{
    static const uint8_t zeros[RF_LOG_HASH];
    const uint8_t *at;
    uint8_t hash[RF_LOG_HASH];
    if (h->header_bytes < offsetof(struct rf_batch_header, records) + RF_LOG_HASH ||
        h->header_bytes > RF_LOG_BLOCK || h->bytes > limit - position ||
        h->bytes < h->header_bytes || h->record_bytes > h->bytes - h->header_bytes) {
        return RF_OK;
    }
    rf_status status = look(r, position, (size_t)h->bytes, limit, &at, detail);
    if (status != RF_OK) {
        return status;
    }
    const uint8_t *end = at + h->header_bytes;
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_BATCH_CONTEXT);
    blake3_hasher_update(&hasher, at, h->header_bytes - RF_LOG_HASH);
    blake3_hasher_update(&hasher, zeros, sizeof(zeros));
    blake3_hasher_update(&hasher, end, h->record_bytes);
    blake3_hasher_finalize(&hasher, hash, sizeof(hash));
    *verdict = memcmp(hash, end - RF_LOG_HASH, sizeof(hash)) == 0 ? BATCH_OTHER : BATCH_BAD;
    return RF_OK;
}

/* A batch that is right in itself: whether it is the one that should be there is for the caller. */
static rf_status judge(struct rf_log_reader *r, size_t in, uint64_t position,
                       struct rf_batch_header *h, const uint8_t **records, enum verdict *verdict,
                       rf_detail *detail)
{
    const uint8_t *at;
    uint64_t limit = limit_of(r, in);
    uint8_t hash[RF_LOG_HASH];
    *verdict = BATCH_BAD;
    if (position + RF_LOG_BLOCK > limit) {
        return RF_OK;
    }
    rf_status status = look(r, position, RF_LOG_BLOCK, limit, &at, detail);
    if (status != RF_OK) {
        return status;
    }
    memcpy(h, at, sizeof(*h));
    if (!looks_right(r, h, in, position)) {
        return RF_OK;
    }
    if (h->format != RF_LOG_FORMAT) {
        return judge_other(r, h, position, limit, verdict, detail);
    }
    if (h->header_bytes != sizeof(*h) || h->zero != 0 || h->bytes % RF_LOG_BLOCK != 0 ||
        h->bytes < RF_LOG_BLOCK || h->bytes > limit - position ||
        h->record_bytes > h->bytes - sizeof(*h) ||
        h->bytes - sizeof(*h) - h->record_bytes >= RF_LOG_BLOCK || h->durable >= h->epoch) {
        return RF_OK;
    }
    status = look(r, position, (size_t)h->bytes, limit, &at, detail);
    if (status != RF_OK) {
        return status;
    }
    *records = at + sizeof(*h);
    rf_batch_hash(h, *records, hash);
    *verdict = memcmp(hash, h->hash, sizeof(hash)) == 0 ? BATCH_GOOD : BATCH_BAD;
    return RF_OK;
}

/* --- where it ends --- */

/* Batches lie side by side, and within one of them a record begins every RF_LANE_BODY_MAX bytes at the latest,
 * whatever is in it. So where that much and more is zero, no batch goes on; and whatever follows a damaged one
 * begins near its place, or there is something at the beginning of the stride in which it begins. The zeros of
 * segments that were made ahead need not all be read. */
#define NEAR_BYTES   (4u << 20)
#define STRIDE_BYTES (1u << 20)
#define GAP_BYTES    (128u << 10)
_Static_assert(GAP_BYTES >= RF_LANE_BODY_MAX + sizeof(struct rf_log_record) + 2 * RF_LOG_BLOCK +
                                sizeof(struct rf_batch_header),
               "a gap in which a block is damaged is still longer than a record");
_Static_assert(STRIDE_BYTES % GAP_BYTES == 0, "whole ones");

static rf_status is_gap(struct rf_log_reader *r, uint64_t position, uint64_t *probe, bool *gap,
                        rf_detail *detail)
{
    uint64_t any = 0;
    bool missing;
    memset(probe, 0, GAP_BYTES);
    rf_status status = rf_log_pread(r->disk, position, probe, GAP_BYTES, &missing, detail);
    for (size_t i = 0; status == RF_OK && i < GAP_BYTES / 8; i++) {
        any |= probe[i];
    }
    *gap = any == 0;
    return status;
}

/* The batch of r->epoch is not there. Looks for one that knows better. */
static rf_status look_behind(struct rf_log_reader *r, uint64_t *probe, rf_detail *detail)
{
    uint64_t limit = limit_of(r, r->in);
    if (r->epoch <= r->incarnations[r->in].durable) {
        r->vouched = true;
        return refuse_at(r, r->position, r->epoch,
                         "the batch is damaged, though a later segment says that it was written",
                         detail);
    }
    uint64_t near = r->position + NEAR_BYTES + 2 * (uint64_t)r->window_room;
    for (uint64_t p = r->position + RF_LOG_BLOCK; p < limit; p += RF_LOG_BLOCK) {
        const uint8_t *at;
        struct rf_batch_header h;
        rf_status status = RF_OK;
        if (p >= near && p % STRIDE_BYTES == 0) {
            bool gap;
            status = is_gap(r, p, probe, &gap, detail);
            if (status == RF_OK && gap) {
                p += STRIDE_BYTES - RF_LOG_BLOCK;
                continue;
            }
        }
        if (status == RF_OK) {
            status = look(r, p, RF_LOG_BLOCK, limit, &at, detail);
        }
        if (status != RF_OK) {
            return status;
        }
        memcpy(&h, at, sizeof(h));
        if (!looks_right(r, &h, r->in, p) || h.durable < r->epoch) {
            continue;
        }
        const uint8_t *records;
        enum verdict verdict;
        status = judge(r, r->in, p, &h, &records, &verdict, detail);
        if (status != RF_OK) {
            return status;
        }
        if (verdict == BATCH_GOOD && h.durable >= r->epoch) {
            r->vouched = true;
            return refuse_at(r, r->position, r->epoch,
                             "the batch is damaged, though a later one says that it was written",
                             detail);
        }
    }
    r->ended = true;
    return RF_OK;
}

static rf_status tail(struct rf_log_reader *r, rf_detail *detail)
{
    uint64_t *probe = malloc(GAP_BYTES);
    if (probe == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for reading the log");
    }
    rf_status status = look_behind(r, probe, detail);
    free(probe);
    return status;
}

/* --- walking --- */

static void stand_at(struct rf_log_reader *r, size_t in, uint64_t epoch, uint64_t position,
                     const uint8_t previous[RF_LOG_HASH])
{
    r->in = in;
    r->epoch = epoch;
    r->position = position;
    memcpy(r->previous, previous, RF_LOG_HASH);
    r->fresh = true;
    r->ended = false;
    r->read_from = position / r->data_bytes;
}

/* At the start of an incarnation. */
static void stand_at_start(struct rf_log_reader *r, size_t in)
{
    const struct incarnation *i = &r->incarnations[in];
    stand_at(r, in, i->begun + 1, begin_of(r, i->first), i->after.hash);
    r->behind = i->after;
}

/* The last epoch of the log before the place where it stands. */
static uint64_t epoch_before(const struct rf_log_reader *r)
{
    const struct incarnation *i = &r->incarnations[r->in];
    return r->position == begin_of(r, i->first) ? i->after.epoch : r->epoch - 1;
}

/* Goes over to the next incarnation, and past those that came to nothing, where this one ends. */
static rf_status change_incarnation(struct rf_log_reader *r, rf_detail *detail)
{
    while (epoch_before(r) == last_counted(r, r->in)) {
        const struct rf_log_end *end = &r->incarnations[r->in + 1].after;
        if (memcmp(&r->behind, end, sizeof(*end)) != 0) {
            return refuse_at(r, r->position, r->epoch,
                             "the log goes on elsewhere behind another batch", detail);
        }
        uint64_t read_from = r->read_from;
        stand_at_start(r, r->in + 1);
        r->read_from = read_from;
    }
    return RF_OK;
}

static rf_status next_batch(struct rf_log_reader *r, struct rf_log_batch *batch, bool *end,
                            rf_detail *detail)
{
    enum verdict verdict;
    rf_status status = change_incarnation(r, detail);
    *end = r->ended;
    if (status != RF_OK || r->ended) {
        return status;
    }
    r->onward = true;
    status = judge(r, r->in, r->position, &batch->header, &batch->records, &verdict, detail);
    r->onward = false;
    if (status != RF_OK) {
        return status;
    }
    const struct rf_batch_header *h = &batch->header;
    if (verdict == BATCH_OTHER) {
        char file[32];
        snprintf(file, sizeof(file), "log.%016" PRIx64, r->position / r->data_bytes);
        return rf_refuse_format(RF_FORMAT_LOG, h->format, file, detail);
    }
    if (verdict == BATCH_GOOD) {
        /* It is what somebody wrote; if it is not what follows, no torn write explains it. */
        if (h->epoch != r->epoch || memcmp(h->previous, r->previous, RF_LOG_HASH) != 0) {
            return refuse_at(r, r->position, r->epoch, "a batch that does not follow the last one",
                             detail);
        }
        batch->new_incarnation = r->fresh;
        r->fresh = false;
        r->epoch++;
        r->position += h->bytes;
        memcpy(r->previous, h->hash, RF_LOG_HASH);
        r->behind.epoch = h->epoch;
        r->behind.position = r->position;
        memcpy(r->behind.hash, h->hash, RF_LOG_HASH);
        return RF_OK;
    }
    if (r->in + 1 < r->incarnation_count) {
        return refuse_at(r, r->position, r->epoch, "the batch is damaged or missing", detail);
    }
    uint64_t segment = r->position / r->data_bytes;
    if (segment < r->incarnations[r->in].last && !rf_segment_exists(r->disk, segment)) {
        return refuse_at(r, r->position, r->epoch, "the segment is missing", detail);
    }
    status = tail(r, detail);
    *end = r->ended;
    return status;
}

/* A log that is in use may have grown between the look at a batch and the look behind it. Whoever vouches
 * for a batch was written after it was on the disk: if it is still not there now, it is damaged. */
rf_status rf_log_next(struct rf_log_reader *r, struct rf_log_batch *batch, bool *end,
                      rf_detail *detail)
{
    rf_detail first = {0};
    r->vouched = false;
    rf_status status = next_batch(r, batch, end, &first);
    if (r->vouched) {
        first = (rf_detail){0};
        r->window_len = 0;
        status = next_batch(r, batch, end, &first);
    }
    if (status != RF_OK && detail != NULL) {
        *detail = first;
    }
    return status;
}

/* --- seeking --- */

/* A later incarnation says that the log ended before this segment: whatever is in it does not count. */
static bool is_idle(const struct rf_log_reader *r, uint64_t number)
{
    for (size_t in = 0; in < r->incarnation_count; in++) {
        const struct incarnation *i = &r->incarnations[in];
        if (number < i->first && begin_of(r, number) >= i->after.position) {
            return true;
        }
    }
    return false;
}

/* Refuses if there is a bad segment from `number` on that may hold something. */
static rf_status refuse_bad(const struct rf_log_reader *r, uint64_t number, rf_detail *detail)
{
    for (size_t i = 0; i < r->bad_count; i++) {
        const struct bad_segment *b = &r->bad[i];
        struct rf_segment_header header;
        if (b->number < number || is_idle(r, b->number)) {
            continue;
        }
        if (b->foreign) {
            return rf_refuse(detail, RF_CORRUPT, 0, "log.%016" PRIx64 " belongs to another store",
                             b->number);
        }
        rf_status status = rf_segment_header_read(r->disk, b->number, &header, detail);
        return status != RF_OK ? status
                               : rf_refuse(detail, RF_CORRUPT, 0,
                                           "the header of log.%016" PRIx64 " was damaged a "
                                           "moment ago",
                                           b->number);
    }
    return RF_OK;
}

#define SEEK_BYTES (64u << 10) /* a batch begins soon behind the start of a segment, as a rule */

/* The first batch that begins in a segment and counts. */
static rf_status first_in_segment(struct rf_log_reader *r, const struct segment *s,
                                  struct rf_batch_header *h, bool *found, rf_detail *detail)
{
    uint64_t limit = limit_of(r, s->incarnation);
    *found = false;
    for (uint64_t p = begin_of(r, s->number); p < begin_of(r, s->number + 1); p += RF_LOG_BLOCK) {
        const uint8_t *at, *records;
        enum verdict verdict;
        uint64_t ahead = limit - p < SEEK_BYTES ? limit : p + SEEK_BYTES;
        rf_status status = look(r, p, RF_LOG_BLOCK, ahead, &at, detail);
        if (status != RF_OK) {
            return status;
        }
        memcpy(h, at, sizeof(*h));
        if (!looks_right(r, h, s->incarnation, p)) {
            continue;
        }
        status = judge(r, s->incarnation, p, h, &records, &verdict, detail);
        if (status != RF_OK) {
            return status;
        }
        if (verdict == BATCH_GOOD) {
            *found = h->epoch <= last_counted(r, s->incarnation);
            return RF_OK; /* what follows counts no more than this one does */
        }
    }
    return RF_OK;
}

/* A segment that has, at its start or behind it, a batch of this epoch or an earlier one, as late as can
 * be; *header is that batch. */
static rf_status find_before(struct rf_log_reader *r, uint64_t epoch, size_t *index,
                             struct rf_batch_header *h, bool *found, rf_detail *detail)
{
    *found = false;
    for (size_t i = r->segment_count; i-- > 0 && !*found;) {
        const struct segment *s = &r->segments[i];
        if (epoch <= r->incarnations[s->incarnation].after.epoch || epoch <= s->durable) {
            continue; /* nothing in it is so old */
        }
        rf_status status = first_in_segment(r, s, h, found, detail);
        if (status != RF_OK) {
            return status;
        }
        *found = *found && h->epoch <= epoch;
        *index = i;
    }
    return RF_OK;
}

/* At the latest place that is known to lie before an epoch or at it: a batch, else the start of the last
 * incarnation, which may have none yet. */
static rf_status stand_before(struct rf_log_reader *r, uint64_t epoch, bool *found,
                              rf_detail *detail)
{
    size_t index;
    struct rf_batch_header h;
    for (size_t in = r->incarnation_count; in-- > 0;) {
        const struct incarnation *i = &r->incarnations[in];
        if (i->after.epoch < epoch && epoch <= i->begun + 1 &&
            rf_segment_exists(r->disk, i->first)) {
            stand_at_start(r, in);
            *found = true;
            return RF_OK;
        }
    }
    rf_status status = find_before(r, epoch, &index, &h, found, detail);
    if (status != RF_OK) {
        return status;
    }
    if (*found) {
        stand_at(r, r->segments[index].incarnation, h.epoch, h.position, h.previous);
        return RF_OK;
    }
    if (r->incarnation_count != 0) {
        const struct incarnation *last = &r->incarnations[r->incarnation_count - 1];
        *found = last->after.epoch < epoch && rf_segment_exists(r->disk, last->first);
        if (*found) {
            stand_at_start(r, r->incarnation_count - 1);
        }
    }
    return RF_OK;
}

/* What is damaged or missing before an epoch is not needed by whoever reads from there on: the next good batch that is
 * not behind it will do as well. That the log is the right one is for the caller to know, as it is with any batch at
 * which reading begins. */
static rf_status stand_further(struct rf_log_reader *r, uint64_t epoch, bool *found,
                               rf_detail *detail)
{
    uint64_t limit = limit_of(r, r->in), counted = last_counted(r, r->in);
    uint64_t last = epoch < counted ? epoch : counted;
    *found = false;
    for (uint64_t p = r->position; p < limit; p += RF_LOG_BLOCK) {
        const uint8_t *at, *records;
        struct rf_batch_header h;
        enum verdict verdict;
        rf_status status = look(r, p, RF_LOG_BLOCK, limit, &at, detail);
        if (status != RF_OK) {
            return status;
        }
        memcpy(&h, at, sizeof(h));
        if (!looks_right(r, &h, r->in, p) || h.epoch < r->epoch) {
            continue;
        }
        status = judge(r, r->in, p, &h, &records, &verdict, detail);
        if (status != RF_OK) {
            return status;
        }
        if (verdict == BATCH_GOOD) {
            *found = h.epoch <= last;
            if (*found) {
                stand_at(r, r->in, h.epoch, p, h.previous);
            }
            return RF_OK; /* what comes later is later */
        }
    }
    return RF_OK;
}

/* From where it stands. exists: the caller knows that the epoch was written. */
static rf_status walk_to(struct rf_log_reader *r, uint64_t epoch, bool exists, bool *end,
                         rf_detail *detail)
{
    rf_status status = RF_OK;
    while (status == RF_OK && !*end && r->epoch < epoch) {
        struct rf_log_batch batch;
        status = rf_log_next(r, &batch, end, detail);
        if (status == RF_CORRUPT || (exists && status == RF_OK && *end)) {
            bool found;
            rf_detail ignored = {0};
            rf_status further = stand_further(r, epoch, &found, &ignored);
            if (further == RF_OK && found) {
                status = RF_OK;
                *end = false;
            }
        }
    }
    return status;
}

static rf_status seek(struct rf_log_reader *r, uint64_t epoch, bool exists, bool *end,
                      rf_detail *detail)
{
    bool found;
    *end = false;
    rf_status status = stand_before(r, epoch, &found, detail);
    if (status == RF_OK && !found) {
        status = refuse_bad(r, 0, detail); /* it may be there */
        if (status == RF_OK) {
            status = rf_refuse(detail, RF_NOT_FOUND, 0,
                               "the log does not reach back to epoch %" PRIu64, epoch);
            if (detail != NULL) {
                detail->size = epoch;
            }
        }
        return status;
    }
    if (status == RF_OK) {
        status = walk_to(r, epoch, exists, end, detail);
    }
    if (status == RF_OK) {
        status = refuse_bad(r, r->position / r->data_bytes, detail);
    }
    if (status == RF_OK && !*end) {
        r->fresh = true;
        r->read_from = r->position / r->data_bytes;
    }
    return status;
}

rf_status rf_log_seek_or_end(struct rf_log_reader *r, uint64_t epoch, bool *end, rf_detail *detail)
{
    return seek(r, epoch, false, end, detail);
}

rf_status rf_log_seek(struct rf_log_reader *r, uint64_t epoch, rf_detail *detail)
{
    bool end;
    rf_status status = seek(r, epoch, true, &end, detail);
    if (status == RF_OK && end) {
        return refuse_at(r, r->position, r->epoch,
                         "the log ends here, before what a snapshot says was written", detail);
    }
    return status;
}

rf_status rf_log_first_needed(struct rf_log_reader *r, uint64_t epoch, uint64_t *number,
                              rf_detail *detail)
{
    size_t index;
    bool found;
    struct rf_batch_header h;
    rf_status status = find_before(r, epoch, &index, &h, &found, detail);
    *number = status == RF_OK && found ? r->segments[index].number : 0;
    return status == RF_OK ? refuse_bad(r, *number, detail) : status;
}

/* What of the epochs before the last one can be told. */
static void tell_gaps(const struct rf_log_reader *r, struct rf_log_shape *shape)
{
    unsigned count = 0;
    for (size_t in = r->incarnation_count; in-- > 0;) {
        const struct incarnation *i = &r->incarnations[in];
        if (count == RF_LOG_GAPS) {
            return;
        }
        shape->told_from = i->after.epoch;
        if (i->begun != i->after.epoch) {
            shape->gaps[count++] = (struct rf_log_gap){.after = i->after.epoch, .until = i->begun};
        }
    }
}

struct rf_log_shape rf_log_reader_shape(const struct rf_log_reader *r)
{
    struct rf_log_shape shape = {.end = r->behind, .read_from = r->read_from};
    if (r->segment_count != 0) {
        const struct incarnation *last = &r->incarnations[r->incarnation_count - 1];
        shape.last_incarnation = last->number;
        shape.last_after = last->after.epoch;
        shape.reached = last->begun > shape.end.epoch ? last->begun : shape.end.epoch;
        tell_gaps(r, &shape);
        shape.next_segment = r->segments[r->segment_count - 1].number + 1;
        uint64_t bad = r->bad_count == 0 ? 0 : r->bad[r->bad_count - 1].number + 1;
        shape.next_segment = bad > shape.next_segment ? bad : shape.next_segment;
    }
    return shape;
}

void rf_log_idle_segments(const struct rf_log_reader *r,
                          void (*visit)(void *context, uint64_t number), void *context)
{
    for (size_t i = 0; i < r->segment_count; i++) {
        size_t in = r->segments[i].incarnation;
        if (in + 1 == r->incarnation_count) {
            return;
        }
        const struct rf_log_end *end = &r->incarnations[in + 1].after;
        if (end->epoch == r->incarnations[in].after.epoch ||
            begin_of(r, r->segments[i].number) >= end->position) {
            visit(context, r->segments[i].number);
        }
    }
}

/* --- the records of a batch --- */

void rf_log_order_free(struct rf_log_order *o)
{
    free(o->heap);
    *o = (struct rf_log_order){0};
}

static bool add_lane(struct rf_log_order *o, const struct rf_log_record *first)
{
    if (o->count == o->room) {
        uint32_t room = o->room == 0 ? 64 : 2 * o->room;
        struct rf_log_lane *more = realloc(o->heap, room * sizeof(o->heap[0]));
        if (more == NULL) {
            return false;
        }
        o->heap = more;
        o->room = room;
    }
    o->heap[o->count++] = (struct rf_log_lane){.next = first};
    return true;
}

/* Equal stamps of different lanes belong to different things; the order of the lanes decides. */
static bool comes_before(const struct rf_log_lane *a, const struct rf_log_lane *b)
{
    return a->next->stamp < b->next->stamp ||
           (a->next->stamp == b->next->stamp && a->next < b->next);
}

static void sift(struct rf_log_order *o, uint32_t i)
{
    for (;;) {
        uint32_t least = i, left = 2 * i + 1, right = left + 1;
        least = left < o->count && comes_before(&o->heap[left], &o->heap[least]) ? left : least;
        least = right < o->count && comes_before(&o->heap[right], &o->heap[least]) ? right : least;
        if (least == i) {
            return;
        }
        struct rf_log_lane swap = o->heap[i];
        o->heap[i] = o->heap[least];
        o->heap[least] = swap;
        i = least;
    }
}

static bool lies_right(const struct rf_log_record *r, size_t room)
{
    return r->bytes >= sizeof(*r) && r->bytes <= room && r->bytes % 8 == 0 &&
           r->body_bytes <= r->bytes - sizeof(*r) && r->bytes - sizeof(*r) - r->body_bytes < 8 &&
           r->kind >= RF_LOG_STEP && r->kind <= RF_LOG_CHUNK;
}

/* Steps that only change their shard are what most batches consist of. */
static bool is_plain_step(const struct rf_log_record *r)
{
    struct rf_log_step step;
    if (r->kind != RF_LOG_STEP || r->body_bytes < sizeof(step)) {
        return false;
    }
    memcpy(&step, r + 1, sizeof(step));
    return step.made == 0;
}

rf_status rf_log_order_begin(struct rf_log_order *o, const struct rf_log_batch *batch,
                             rf_detail *detail)
{
    const uint8_t *at = batch->records, *end = at + batch->header.record_bytes;
    const struct rf_log_record *last = NULL;
    uint32_t records = 0;
    o->count = 0;
    o->makes = false;
    o->end = end;
    for (; at != end; records++) {
        const struct rf_log_record *r = (const void *)at;
        if ((size_t)(end - at) < sizeof(*r) || !lies_right(r, (size_t)(end - at))) {
            break;
        }
        if (last == NULL || r->lane != last->lane || r->stamp <= last->stamp) {
            if (o->count != 0) {
                o->heap[o->count - 1].end = at;
            }
            if (!add_lane(o, r)) {
                return refuse_memory(detail);
            }
        }
        o->makes = o->makes || !is_plain_step(r);
        last = r;
        at += r->bytes;
    }
    if (at != end || records != batch->header.records) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "the batch of epoch %" PRIu64 " holds what is not a record",
                         batch->header.epoch);
    }
    if (o->count != 0) {
        o->heap[o->count - 1].end = end;
    }
    for (uint32_t i = o->count / 2; i-- > 0;) {
        sift(o, i);
    }
    return RF_OK;
}

const struct rf_log_record *rf_log_order_next(struct rf_log_order *o)
{
    if (o->count == 0) {
        return NULL;
    }
    struct rf_log_lane *lane = &o->heap[0];
    const struct rf_log_record *r = lane->next;
    const uint8_t *next = (const uint8_t *)r + r->bytes;
    if (next == lane->end) {
        *lane = o->heap[--o->count];
    } else {
        lane->next = (const void *)next;
    }
    sift(o, 0);
    return r;
}
