/*
 * The op-log rings: what a shard (16) and a run (8) remember of the operations done to them, so
 * that a repeated call is answered and not done twice. The newest entry overwrites the oldest.
 *
 * Columns, not rows: a search for an op id that is not there reads all ids, and 16 of them side by
 * side are two cache lines instead of eight.
 */
#ifndef RF_OPLOG_H
#define RF_OPLOG_H

#include <assert.h>

#include "ringfence/ringfence.h"

struct rf_op_entry {
    uint64_t op;
    uint64_t hash;
    uint64_t executed_at;
    uint8_t kind;
    uint8_t result;
};

struct rf_shard_ring {
    uint64_t op[RF_SHARD_RING];
    uint64_t hash[RF_SHARD_RING];
    uint64_t executed_at[RF_SHARD_RING];
    uint8_t kind[RF_SHARD_RING];
    uint8_t result[RF_SHARD_RING];
};

struct rf_run_ring {
    uint64_t op[RF_RUN_RING];
    uint64_t hash[RF_RUN_RING];
    uint64_t executed_at[RF_RUN_RING];
    uint8_t kind[RF_RUN_RING];
    uint8_t result[RF_RUN_RING];
};

/* Both rings keep `count` entries, the next one going to slot `next`. */
#define RF_RING_MISS (-1)

/* The slot of an op id, or RF_RING_MISS. Op ids in a ring are unique, so the order of the search
 * can't be told from outside. Slots fill from 0, so the first `count` are used; a hit behind them is
 * an old byte. One compare and one branch a slot, which is never taken: cheaper than gathering. */
static inline int rf_ring_find(const uint64_t *ops, uint32_t count, uint32_t size, uint64_t op)
{
#pragma GCC unroll 16
    for (uint32_t i = 0; i < size; i++) {
        if (__builtin_expect(ops[i] == op, 0)) {
            return i < count ? (int)i : RF_RING_MISS;
        }
    }
    return RF_RING_MISS;
}

static inline uint32_t rf_ring_newest(uint32_t next, uint32_t size)
{
    return (next + size - 1u) % size;
}

static inline bool rf_ring_shape_ok(uint32_t count, uint32_t next, uint32_t size)
{
    return count <= size && next < size && (count == size || next == count);
}

static inline bool rf_ring_ids_unique(const uint64_t *ops, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count; j++) {
            if (ops[i] == ops[j]) {
                return false;
            }
        }
    }
    return true;
}

#endif
