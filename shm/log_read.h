/*
 * Reading the log: from a directory to a line of batches, each verified.
 *
 * Segments belong to incarnations. An incarnation's segments all say where the log before it ended
 * (`after`); so the newest one says up to where the one before it counts, and so on back:
 *
 *   incarnation 3, after 90        epochs 155 ..
 *   incarnation 2, after 90        none: it came to nothing
 *   incarnation 1, after 25        epochs 58 .. 90; what lies behind batch 90 is ignored for ever
 *   incarnation 0, after  0        epochs  1 .. 25
 *
 * Between them epochs are skipped, so that none that anybody was told of comes again.
 *
 * What a bad or missing batch means:
 *
 *   in an older incarnation, up to where it counts     corruption
 *   in the newest, a later batch of it that is good    corruption: it was acknowledged
 *     says that this one was durable
 *   in the newest, a segment of it says the same       corruption
 *   in the newest, segments behind it, one missing     corruption
 *   in the newest, otherwise                           the log ends here: a torn tail
 *
 * Corruption is refused with the segment, the offset in the file and the epoch in the detail.
 * Reading changes nothing and needs no memory beyond the largest batch.
 */
#ifndef RF_LOG_READ_H
#define RF_LOG_READ_H

#include "disk.h"
#include "layout.h"

/* A batch that was verified; the records stay where they are until the next call. */
struct rf_log_batch {
    struct rf_batch_header header;
    const uint8_t *records;
    bool new_incarnation; /* the first one of it that was read */
};

struct rf_log_reader;

/* Lists the segments and looks at their headers. RF_CORRUPT for incarnations that contradict each other; a segment whose
 * header is damaged, or of another store, is refused only by whoever seeks a place from which on it may be needed.
 * disk stays the caller's. */
rf_status rf_log_reader_open(struct rf_disk *disk, uint64_t segment_bytes,
                             const uint8_t store_id[16], struct rf_log_reader **out,
                             rf_detail *detail);
void rf_log_reader_close(struct rf_log_reader *reader);

/* Whether there is any segment. */
bool rf_log_reader_empty(const struct rf_log_reader *reader);

/* The next batch is the one of this epoch. RF_NOT_FOUND: the log does not reach back so far. RF_CORRUPT
 * also if it ends before: for whoever knows from elsewhere that it must not. What is damaged before that batch is passed
 * over, as long as there is a good one between (or itself) at which reading can begin. */
rf_status rf_log_seek(struct rf_log_reader *reader, uint64_t epoch, rf_detail *detail);
/* The same for an epoch that somebody made up; *end: the log ends before, and there is nothing to read. */
rf_status rf_log_seek_or_end(struct rf_log_reader *reader, uint64_t epoch, bool *end,
                             rf_detail *detail);
/* The next batch; *end: there is none. */
rf_status rf_log_next(struct rf_log_reader *reader, struct rf_log_batch *batch, bool *end,
                      rf_detail *detail);

/* What is known after rf_log_next came to the end. */
struct rf_log_shape {
    struct rf_log_end end;               /* the last batch that counts */
    uint64_t last_incarnation;           /* the highest of any segment */
    uint64_t last_after;                 /* the epoch behind which it begins */
    uint64_t reached;                    /* the greatest epoch that can have been durable */
    uint64_t told_from;                  /* what became of epochs up to here can't be told */
    struct rf_log_gap gaps[RF_LOG_GAPS]; /* the newest first; unused ones are 0 */
    uint64_t next_segment;               /* a number above all */
    uint64_t read_from;                  /* segments [read_from, next_segment) were read */
};
struct rf_log_shape rf_log_reader_shape(const struct rf_log_reader *reader);

/* The number of the segment from which on batches are needed to read from `epoch` on: those below it
 * are not. 0 if that can't be told. */
rf_status rf_log_first_needed(struct rf_log_reader *reader, uint64_t epoch, uint64_t *number,
                              rf_detail *detail);

/* Calls visit for segments in which nothing counts, and never will, since a later incarnation has begun:
 * made ahead of need, or by a cold open that did not come to its end. */
void rf_log_idle_segments(const struct rf_log_reader *reader,
                          void (*visit)(void *context, uint64_t number), void *context);

/* --- the records of a batch, in the order of their stamps --- */

/*
 * Lanes come one after another, and stamps rise within a lane; so this is a merge. A lane in which a
 * stamp does not rise is taken for two.
 */
struct rf_log_order {
    const uint8_t *end;
    struct rf_log_lane {
        const struct rf_log_record *next;
        const uint8_t *end;
    } * heap; /* by the stamp of `next`, smallest first */
    uint32_t count;
    uint32_t room;
    bool makes; /* there are records that make runs or shards, or end them */
};

void rf_log_order_free(struct rf_log_order *order);
/* Checks how the records lie in the batch. RF_CORRUPT: not as a batch is written. */
rf_status rf_log_order_begin(struct rf_log_order *order, const struct rf_log_batch *batch,
                             rf_detail *detail);
/* NULL after the last one. */
const struct rf_log_record *rf_log_order_next(struct rf_log_order *order);

/* The hash of a batch: header with its hash as zeros, then the records. */
void rf_batch_hash(const struct rf_batch_header *header, const uint8_t *records,
                   uint8_t out[RF_LOG_HASH]);

#endif
