/*
 * Ids and payload hashes: BLAKE3 in derive-key mode over the canonical bytes.
 *
 * A hasher keyed for a domain costs a hash of the domain string to make. Callers that hash often
 * own a struct rf_hasher, which is made once. What fits one chunk of BLAKE3 (1 KiB: almost
 * everything) only reads its key; anything longer resets and uses it, which is cheaper than copying
 * a prepared one (1.9 KiB). One user at a time.
 */
#ifndef RF_HASH_H
#define RF_HASH_H

#include <blake3.h>

#include "ringfence/ringfence.h"

struct rf_hasher {
    blake3_hasher payload;
    blake3_hasher split;
};

void rf_hasher_init(struct rf_hasher *hasher);

uint64_t rf_hasher_split_id(struct rf_hasher *hasher, uint64_t run, uint64_t parent, uint64_t op,
                            rf_derived_kind kind, uint32_t index);

/*
 * A payload hash that is begun now and finished when somebody asks for it: its second compression then
 * runs beside whatever comes in between, instead of before all of it.
 */
struct rf_payload {
    uint64_t hash; /* valid if rest == 0 */
    uint32_t cv[8];
    uint32_t rest; /* bytes of the last block that are not yet compressed */
    uint8_t flags;
    uint8_t blocks[128] __attribute__((aligned(16)));
};
void rf_payload_checkpoint(struct rf_hasher *hasher, const rf_cursor *cursor,
                           struct rf_payload *payload);
uint64_t rf_payload_finish(struct rf_payload *payload);
static inline uint64_t rf_payload_hash(struct rf_payload *payload)
{
    return payload->rest == 0 ? payload->hash : rf_payload_finish(payload);
}

uint64_t rf_hasher_checkpoint(struct rf_hasher *hasher, const rf_cursor *cursor);
uint64_t rf_hasher_complete(struct rf_hasher *hasher, const rf_cursor *cursor);
uint64_t rf_hasher_release(struct rf_hasher *hasher, const rf_cursor *cursor);
uint64_t rf_hasher_park(struct rf_hasher *hasher, rf_park_reason reason);
uint64_t rf_hasher_unpark(struct rf_hasher *hasher, uint64_t run, uint64_t shard);
uint64_t rf_hasher_split_replace(struct rf_hasher *hasher, const rf_child *children,
                                 uint32_t count);
uint64_t rf_hasher_split_residual(struct rf_hasher *hasher, const rf_spec *parent_new,
                                  const rf_spec *residual);
uint64_t rf_hasher_run_op(struct rf_hasher *hasher, rf_run_op_kind kind);
/* order: the input's positions stable-sorted by shard id. */
uint64_t rf_hasher_manifest(struct rf_hasher *hasher, rf_run_op_kind kind,
                            const rf_shard_input *shards, uint32_t count, const uint32_t *order);

#endif
