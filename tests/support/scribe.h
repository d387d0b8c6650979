/*
 * A log written by hand: segments, batches and records as log_format.h says, right or wrong as a test wants
 * them, in a directory of its own.
 */
#ifndef RF_TEST_SCRIBE_H
#define RF_TEST_SCRIBE_H

#include "codec.h"
#include "disk.h"
#include "log_read.h"

#define RF_SCRIBE_BATCHES 512u

struct rf_scribe {
    char directory[64];
    int dir_fd;
    struct rf_disk *disk;
    uint8_t store_id[16];
    uint64_t segment_bytes;

    /* the incarnation that is being written */
    uint64_t incarnation;
    uint64_t first; /* its first segment */
    struct rf_log_end after;
    struct rf_log_end end; /* of the log so far */
    uint64_t vouched;      /* what the next segment's header will say was durable */
    uint64_t skip;         /* epochs, before the next incarnation */

    /* the batch that is being composed: records, lane by lane */
    uint8_t *records;
    size_t record_bytes, room;
    uint32_t count;

    /* what was written, by epoch */
    struct {
        uint64_t position, bytes, record_bytes, durable, incarnation;
    } batches[RF_SCRIBE_BATCHES];
};

void rf_scribe_open(struct rf_scribe *book, uint64_t segment_bytes);
/* Removes the directory and everything in it. */
void rf_scribe_close(struct rf_scribe *book);

/* Goes on in a new segment. after == NULL: where the log ended. */
void rf_scribe_incarnation(struct rf_scribe *book, uint64_t incarnation,
                           const struct rf_log_end *after);

/* --- records --- */

/* Appends to the batch. */
void rf_scribe_record(struct rf_scribe *book, enum rf_log_kind kind, uint32_t lane, uint64_t stamp,
                      uint64_t uid, const void *body, size_t bytes);
/* A run; made != NULL: with these shards, from position made_from on, or by a chain that holds them. */
struct rf_scribe_made {
    const struct rf_made_record *shards;
    uint32_t count;
    uint32_t made_from;
    uint64_t chain;
};
void rf_scribe_run(struct rf_scribe *book, uint32_t lane, uint64_t stamp, uint64_t uid,
                   uint64_t version, bool created, const struct rf_run *run,
                   const struct rf_scribe_made *made);
void rf_scribe_step(struct rf_scribe *book, uint32_t lane, uint64_t stamp, uint64_t uid,
                    uint32_t position, uint64_t shard, uint64_t version, uint64_t time,
                    const struct rf_shard_step *step, const struct rf_scribe_made *made);
void rf_scribe_chunk(struct rf_scribe *book, uint32_t lane, uint64_t stamp, uint64_t uid,
                     uint64_t chain, uint32_t index, const struct rf_made_record *shards,
                     uint32_t count);
void rf_scribe_purge(struct rf_scribe *book, uint32_t lane, uint64_t stamp, uint64_t uid,
                     uint64_t floor, uint64_t time);

/* --- batches --- */

/* Writes the composed records as the next batch, which says that `durable` was on the disk. */
void rf_scribe_batch(struct rf_scribe *book, uint64_t durable);
/* The same at any place and with any header, for what must not be there; hashed if `sealed`. Does not move the end. */
void rf_scribe_forge(struct rf_scribe *book, struct rf_batch_header header, bool sealed);
/* The header that the next batch would have. */
struct rf_batch_header rf_scribe_header(const struct rf_scribe *book, uint64_t durable);

/* --- damage --- */

/* The file and the offset of a position of the log. */
void rf_scribe_locate(const struct rf_scribe *book, uint64_t position, char name[64],
                      off_t *offset);
/* Changes one byte; the same again changes it back. */
void rf_scribe_flip(const char *name, off_t offset, uint8_t mask);

#endif
