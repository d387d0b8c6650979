/*
 * The log of a durable store, read by somebody who knows nothing but shm/log_format.h: for tests that
 * want to see that what was acknowledged is on the disk, and that the disk holds nothing but a log.
 *
 * Held against the format: segment headers, magic, store id and incarnation of every batch, positions one
 * behind the other, epochs one after the other, the chain of hashes, zeros where zeros have to be, lanes in
 * the order of their slots, stamps that rise in a lane, versions of every shard and run without a gap
 * in the order of replay, places of new shards without a gap, chains whose chunks are all there.
 */
#ifndef RF_TEST_LOGBOOK_H
#define RF_TEST_LOGBOOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An operation with an op id, on a shard or on a run. */
struct logbook_op {
    uint64_t op;
    uint64_t epoch;
    uint64_t uid;
    uint64_t shard; /* 0: of the run itself */
    uint64_t version;
    uint32_t lane;
};

struct logbook_shard {
    uint64_t shard;
    uint64_t version;
};

struct logbook {
    uint64_t batches;
    uint64_t empty; /* of them without records */
    uint64_t records;
    uint64_t chunks;
    uint64_t chains;   /* closed */
    uint64_t made;     /* shards */
    uint64_t crossing; /* batches that lie in more than one segment */
    uint64_t largest;  /* bytes of a batch */
    uint64_t wide;     /* batches with records of several lanes */
    uint64_t content;  /* the last epoch with records */
    uint64_t last;     /* the last epoch */
    uint64_t end;      /* the position behind it */
    uint64_t vouched;  /* durable, as the last batch says */
    size_t op_count;
    struct logbook_op *ops; /* by op id */
    size_t shard_count;
    struct logbook_shard *shards; /* by id */
    char broken[300];             /* what is wrong; "" */
};

/* Reads one incarnation's log from its first segment to its end, which must not come before batch
 * `at_least`. False: `broken` says what is wrong. */
bool logbook_read(struct logbook *book, const char *directory, uint64_t at_least);
void logbook_free(struct logbook *book);
/* NULL: not there. */
const struct logbook_op *logbook_find(const struct logbook *book, uint64_t op);

/* The last version of a shard; of tests whose runs do not share ids. 0: it was never made. */
uint64_t logbook_version(const struct logbook *book, uint64_t shard);

/* A hash of all bytes of the log below the end of batch `last` of a book, and of the names and sizes of its
 * segments: equal, if nothing was changed. */
uint64_t logbook_fingerprint(const struct logbook *book, const char *directory);

#endif
