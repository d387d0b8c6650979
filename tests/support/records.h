/* Valid records made from a seed, for whoever needs many of them: each is one that the protocol
 * allows, and the borders (empty, unbounded, full, 0, the maximum) come up often. */
#ifndef RF_TEST_RECORDS_H
#define RF_TEST_RECORDS_H

#include "codec.h"
#include "prng.h"

/* How long byte strings and lists may be. */
enum records_size {
    RECORDS_SMALL, /* a few hundred bytes in all, so that every bit can be tried */
    RECORDS_ANY,   /* as long as the protocol allows */
};

struct records_bytes {
    uint8_t start[RF_KEY_MAX];
    uint8_t end[RF_KEY_MAX];
    uint8_t metadata[RF_METADATA_MAX];
    uint8_t key[RF_KEY_MAX];
    uint8_t token[RF_TOKEN_MAX];
};

/* These point into themselves, so they stay where they were made. */
struct records_shard {
    struct rf_shard view;
    rf_tenant tenant;
    struct rf_shard_state state;
    struct rf_shard_ring ring;
    uint64_t spawned[RF_SPAWNED_MAX];
    struct records_bytes bytes;
};

struct records_step {
    uint64_t shard;
    uint64_t version;
    uint64_t time;
    struct rf_shard_step step;
    uint64_t spawned[RF_SPLIT_CHILDREN_MAX];
    struct records_bytes bytes;
};

struct records_made {
    struct rf_made_record made;
    struct records_bytes bytes;
};

void records_make_shard(struct rf_prng *prng, enum records_size size, struct records_shard *out);
void records_make_run(struct rf_prng *prng, struct rf_run *out);
void records_make_step(struct rf_prng *prng, enum records_size size, struct records_step *out);
void records_make_made(struct rf_prng *prng, enum records_size size, struct records_made *out);

/* Everything as long as it can be: no record is larger. */
void records_make_largest_shard(struct records_shard *out);
void records_make_largest_run(struct rf_run *out);
void records_make_largest_step(struct records_step *out);
void records_make_largest_made(struct records_made *out);

/* One record of any type, encoded; returns its length. out has room for RF_CODEC_SHARD_MAX bytes. */
size_t records_encode_any(struct rf_prng *prng, enum records_size size, uint8_t *out);

/* Decodes a record as this type, checks its invariants and encodes it again. */
rf_status records_recode(enum rf_codec_type type, rf_bytes in, uint8_t *out, size_t cap,
                         size_t *len, size_t *used);

#endif
