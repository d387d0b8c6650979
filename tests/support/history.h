/*
 * A random history: every kind of operation, by several handles of one store, from a seed. Keys, tokens and
 * metadata are short and long; splits are small and as large as they can be. Refusals are part of it, except
 * those that say that the machine is broken.
 */
#ifndef RF_TEST_HISTORY_H
#define RF_TEST_HISTORY_H

#include "prng.h"
#include "shop.h"

#define RF_HISTORY_HANDLES 3u
#define RF_HISTORY_RUNS    5u
#define RF_HISTORY_LEASES  24u

struct rf_history {
    struct rf_shop *shop;
    struct rf_prng prng;
    rf_store *stores[RF_HISTORY_HANDLES];
    rf_tenant tenants[2];
    rf_durability durability; /* of its calls; 0: the store's */
    struct {
        bool held;
        rf_tenant tenant;
        rf_lease lease;
        uint8_t start[RF_KEY_MAX], end[RF_KEY_MAX], key[RF_KEY_MAX];
        size_t start_len, end_len, key_len;
        bool has_key;
    } leases[RF_HISTORY_LEASES];
    uint64_t next_shard;
    uint64_t done[32]; /* by event */
    uint64_t refused;
    uint64_t epoch; /* of the last one that was done */
    uint32_t large; /* percent of long values and large splits */
    uint32_t waits; /* of 1000 operations that wait for the disk */
};

/* The stores are opened by the caller, and may be replaced between two calls of rf_history_play. */
void rf_history_begin(struct rf_history *history, struct rf_shop *shop, uint64_t seed);
void rf_history_play(struct rf_history *history, uint32_t operations);
/* After a cold open: nothing is leased any more. */
void rf_history_forget_leases(struct rf_history *history);

/* Everything that a store shows of all runs of the history, as text, without what a cold open changes: leases,
 * and fences of shards that were never granted since are as they were. To be freed. */
char *rf_history_picture(rf_store *store);

#endif
