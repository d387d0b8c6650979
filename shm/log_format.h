/*
 * The log and the snapshots as they lie on disk. Little-endian, fixed widths, every file and every
 * batch says its format and is vouched for by a BLAKE3 hash.
 *
 *   DIR/store              which region and incarnation is current, and how the store was made
 *   DIR/log.<number>       segments of the log, 16 hexadecimal digits
 *   DIR/snapshot.<epoch>   16 hexadecimal digits; the two newest are kept
 *   DIR/tmp.*              files that are not published yet; nobody's, once nobody is attached
 *
 * THE LOG is a line of bytes, its positions counted from 0 for ever. Segment n holds the positions
 * [n * D, (n + 1) * D), D = segment_bytes - 4096: a header block, then the bytes. A batch begins on a
 * block of 4 KiB, is a whole number of blocks, and may run on into the next segment. Batch E begins
 * where batch E - 1 ends, except the first batch of an incarnation: that begins at the start of a
 * new segment, whose header says where the log before it ended (`after`). What lies behind that
 * place in older segments was written by the dying and is ignored for ever. Its epochs begin behind
 * all that the last incarnation can have told anybody: the first one's is the `durable` of the header
 * of that segment, and one.
 *
 * A BATCH is a header and the records of one epoch: lane by lane in the order of the member slots, each lane's
 * in the order in which they were committed. Replay goes by (epoch, stamp). A record is 32 bytes and
 * a body, padded with zeros to 8 bytes; its body is what the member wrote into its lane:
 *
 *   STEP   u32 position, u32 made [made != 0: u64 chain, u32 made_from, u32 0]
 *          | step (codec) [made != 0 and chain == 0: `made` x made (codec)]
 *   RUN    u64 version, u32 made, u32 flags (1: this made the run) [made != 0: as above]
 *          | run (codec) [as above]
 *   PURGE  u64 floor, u64 time
 *   CHUNK  u64 chain, u32 index, u32 count | `count` x made (codec)
 *
 * `uid` names the run: never used twice in a store's life, so that a run made again under the same id
 * is another; in a chunk it is 0, and whoever closes its chain says whose it is. `position` is the shard's place in its run. `made` shards take the positions from
 * made_from on, in order. If they did not fit, they were written before, in the chunks of `chain`
 * (index 0, 1, ...), all of the same lane; the record that names the chain closes it. A chain that
 * nobody closes never happened.
 *
 * A step belongs to a shard's next version: an older one is in the snapshot already, a gap is corruption.
 * The same holds for a run's version. Shards that a record made are made by replay if they are not there yet,
 * whatever the version of the record's own shard or run.
 *
 * A SNAPSHOT holds every run that was alive and its shards as they were some time between its begin
 * and its end; with the log from epoch `epoch` on it is the whole state. A block with the header, its rest
 * zeros, then entries: runs, each followed by its shards. If a run is purged while its shards are copied, an
 * entry of a shard without a body, position UINT32_MAX, ends them: forget the run, the log knows.
 * The hash is over the entries, then the header with the hash itself taken as zeros. `complete_hash` is that of the
 * batch of epoch `complete`: the hash chain makes it stand for the whole log before, so a snapshot of a copy of the
 * store that went its own way is not taken for one of this log.
 *
 * IN EVERY FORMAT a file begins with magic, format and, in the log and in snapshots, the header's length; the header ends
 * with its hash, made as it is made here; and a batch's header is the same up to record_bytes. So damage is told apart
 * from a format that is not known, and no byte is believed before a hash is right.
 */
#ifndef RF_LOG_FORMAT_H
#define RF_LOG_FORMAT_H

#include <stdint.h>

/* Of segments and batches, and of snapshots; formats.h knows them all. */
#define RF_LOG_FORMAT      1u
#define RF_SNAPSHOT_FORMAT 2u

#define RF_LOG_BLOCK      4096u
#define RF_LOG_HASH       32u
#define RF_SEGMENT_MAGIC  0x3167657366676e72ull /* "rngfseg1" */
#define RF_BATCH_MAGIC    0x3162746266676e72ull /* "rngfbtb1" */
#define RF_SNAPSHOT_MAGIC 0x316e707366676e72ull /* "rngfspn1" */

/* Contexts of the derive-key hashes. */
#define RF_SEGMENT_CONTEXT  "ringfence/log-segment/v1"
#define RF_BATCH_CONTEXT    "ringfence/log-batch/v1"
#define RF_SNAPSHOT_CONTEXT "ringfence/snapshot/v1"

/* Where a log ended: the last batch that counts. */
struct rf_log_end {
    uint64_t epoch;    /* of that batch; 0: there was none */
    uint64_t position; /* behind it */
    uint8_t hash[RF_LOG_HASH];
};

/* The first block of a segment; the rest of the block is zeros. */
struct rf_segment_header {
    uint64_t magic;
    uint32_t format;
    uint32_t header_bytes;
    uint8_t store_id[16];
    uint64_t number;
    uint64_t segment_bytes;
    uint64_t incarnation;
    uint64_t first_number;   /* of the incarnation's first segment */
    struct rf_log_end after; /* what the incarnation's first batch follows */
    uint64_t durable;        /* everything up to this epoch was durable when it was made */
    uint8_t hash[RF_LOG_HASH];
};

struct rf_batch_header {
    uint64_t magic;
    uint32_t format;
    uint32_t header_bytes;
    uint8_t store_id[16];
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t position;
    uint64_t bytes;        /* whole blocks */
    uint64_t record_bytes; /* behind the header; the rest is zeros */
    uint32_t records;
    uint32_t lanes;   /* that had any */
    uint64_t durable; /* everything up to this epoch was durable when this one was sealed */
    uint64_t zero;
    uint8_t previous[RF_LOG_HASH];
    uint8_t hash[RF_LOG_HASH]; /* of header (this field as zeros) and records */
};

enum rf_log_kind {
    RF_LOG_STEP = 2, /* the numbers of enum rf_lane_kind */
    RF_LOG_RUN = 3,
    RF_LOG_PURGE = 4,
    RF_LOG_CHUNK = 5,
};

struct rf_log_record {
    uint32_t bytes; /* with this header and the padding */
    uint16_t kind;
    uint16_t event; /* rf_event_kind; UINT16_MAX: housekeeping */
    uint64_t stamp;
    uint64_t uid;
    uint32_t body_bytes;
    uint32_t lane; /* the member slot */
};

struct rf_log_step {
    uint32_t position;
    uint32_t made;
};
struct rf_log_run {
    uint64_t version;
    uint32_t made;
    uint32_t flags;
};
#define RF_LOG_RUN_CREATED 1u
struct rf_log_made {
    uint64_t chain;
    uint32_t made_from;
    uint32_t zero;
};
struct rf_log_purge {
    uint64_t floor;
    uint64_t time;
};
struct rf_log_chunk {
    uint64_t chain;
    uint32_t index;
    uint32_t count;
};

struct rf_snapshot_header {
    uint64_t magic;
    uint32_t format;
    uint32_t header_bytes;
    uint8_t store_id[16];
    uint64_t incarnation;
    uint64_t epoch; /* replay begins with this one */
    uint64_t
        complete; /* every epoch up to this one was durable when it was published, and no later one is in it */
    uint64_t next_uid; /* a run with this uid or a later one was made after the snapshot began */
    uint64_t floor;
    uint64_t time;
    uint64_t runs;
    uint64_t shards;
    uint64_t bytes; /* of the file */
    uint64_t zero;
    uint8_t complete_hash[RF_LOG_HASH];
    uint8_t hash[RF_LOG_HASH];
};

/* Entries, each padded with zeros to 8 bytes: a run, then its shards by position. */
struct rf_snapshot_run {
    uint32_t bytes; /* with this header and the padding */
    uint32_t body_bytes;
    uint64_t uid;
    uint64_t version;
    uint64_t epoch;
    uint64_t stamp;
    uint64_t shards; /* that follow */
    /* run (codec) */
};
struct rf_snapshot_shard {
    uint32_t bytes;
    uint32_t body_bytes;
    uint32_t position;
    uint32_t parent; /* 1 + the parent's position; 0: a root */
    uint64_t born;
    uint64_t version;
    uint64_t epoch;
    uint64_t stamp;
    /* shard (codec) */
};

_Static_assert(sizeof(struct rf_log_end) == 48 && sizeof(struct rf_segment_header) == 152 &&
                   sizeof(struct rf_batch_header) == 160 && sizeof(struct rf_log_record) == 32 &&
                   sizeof(struct rf_snapshot_header) == 176 &&
                   sizeof(struct rf_snapshot_run) == 48 && sizeof(struct rf_snapshot_shard) == 48,
               "as on disk");

#endif
