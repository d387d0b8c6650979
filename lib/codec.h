/*
 * Records as bytes, for logs, snapshots and other backends. Explicit little-endian; every record is
 *
 *     u8 type, u8 version, u16 zero, u32 length of the body, body
 *
 * and equal values have equal bytes: nothing can be written in two ways. Decoding reads only inside
 * its input, trusts no length, and refuses what it does not know (RF_CORRUPT, or, for a later
 * version, whatever else it holds, RF_VERSION_MISMATCH) as well as what breaks an invariant.
 *
 * Bodies (Spec and Cursor as in PROTOCOL section 1; entry: op8 kind1 result1 hash8 at8):
 *   shard  tenant32 run8 shard8 | scalars | Spec Cursor | u32 n, n x spawned8
 *          | ring_count1 ring_next1, entries oldest first
 *   run    tenant32 run8 | status1 semantics1 has_retries1 | retries4 lease_duration8 created8
 *          completed8 roots8 | ring_count1, entries oldest first
 *   step   what an operation did to a shard: shard8 version8 time8 | event1 changes1 | the next
 *          scalars, ring_count1 ring_next1 spawned4 | changed cursor: Cursor | changed spec: Spec
 *          | changed ring: the newest entry | changed spawned: u32 n, n x spawned8
 *   made   a shard that an operation made: shard8 Spec Cursor
 *   scalars of a shard: status1 reason1 semantics1 flags1 | fence8 attempts4
 *          | leased: owner8 deadline8 | derived: parent8
 *
 * A shard keeps ring_next, though the order of the entries says it all, because steps name slots: a
 * step from the log must find each slot where it was, in a record that came from a snapshot too. A
 * run has no steps, its log records are whole, so its ring is decoded to begin at slot 0.
 */
#ifndef RF_CODEC_H
#define RF_CODEC_H

#include "run.h"
#include "shard.h"

#define RF_CODEC_VERSION 1u
#define RF_CODEC_HEADER  8u

enum rf_codec_type {
    RF_CODEC_SHARD = 1,
    RF_CODEC_RUN = 2,
    RF_CODEC_STEP = 3,
    RF_CODEC_MADE = 4,
};

/* The largest record of each type; enough for any value that the protocol allows. */
#define RF_CODEC_SHARD_MAX                                                                         \
    (RF_CODEC_HEADER + 128u + 3u * RF_KEY_MAX + RF_TOKEN_MAX + RF_METADATA_MAX +                   \
     8u * RF_SPAWNED_MAX + 26u * RF_SHARD_RING)
#define RF_CODEC_RUN_MAX (RF_CODEC_HEADER + 128u + 26u * RF_RUN_RING)
#define RF_CODEC_STEP_MAX                                                                          \
    (RF_CODEC_HEADER + 192u + 3u * RF_KEY_MAX + RF_TOKEN_MAX + RF_METADATA_MAX +                   \
     8u * RF_SPLIT_CHILDREN_MAX)
#define RF_CODEC_MADE_MAX (RF_CODEC_HEADER + 64u + 3u * RF_KEY_MAX + RF_TOKEN_MAX + RF_METADATA_MAX)

/* A decoded shard owns its scalars; its byte strings point into the input. */
struct rf_shard_decoded {
    rf_tenant tenant;
    struct rf_shard_state state;
    struct rf_shard_ring ring;
    uint64_t spawned[RF_SPAWNED_MAX];
    struct rf_shard view;
};

/* What an operation did to a shard, with what makes it replayable. */
struct rf_step_record {
    uint64_t shard;
    uint64_t version; /* the shard's version after it */
    uint64_t time;
    struct rf_shard_step step;
    uint64_t spawned[RF_SPLIT_CHILDREN_MAX]; /* decoded: what step.spawned_ids points to */
};

struct rf_made_record {
    uint64_t shard;
    rf_spec spec;
    rf_cursor cursor;
};

/* Encoders return RF_OK and *len, or RF_BUFFER_TOO_SMALL; then *len is not set and the buffer may hold
 * a part. What they are given has passed the checks of the protocol. */
rf_status rf_codec_put_shard(const struct rf_shard *shard, uint8_t *out, size_t cap, size_t *len);
rf_status rf_codec_put_run(const struct rf_run *run, uint8_t *out, size_t cap, size_t *len);
rf_status rf_codec_put_step(uint64_t shard, uint64_t version, uint64_t time,
                            const struct rf_shard_step *step, uint8_t *out, size_t cap,
                            size_t *len);
rf_status rf_codec_put_made(const struct rf_made_record *made, uint8_t *out, size_t cap,
                            size_t *len);

/* Decoders take one record from the front of the input and say how long it was. After a refusal
 * nothing in *out means anything. */
rf_status rf_codec_get_shard(rf_bytes in, struct rf_shard_decoded *out, size_t *used);
rf_status rf_codec_get_run(rf_bytes in, struct rf_run *out, size_t *used);
rf_status rf_codec_get_step(rf_bytes in, struct rf_step_record *out, size_t *used);
rf_status rf_codec_get_made(rf_bytes in, struct rf_made_record *out, size_t *used);
/* The type of the record at the front, if a whole one of a known version is there. */
rf_status rf_codec_peek(rf_bytes in, enum rf_codec_type *type, size_t *size);

#endif
