/*
 * A storm: real processes work on one durable store, and are killed, stopped and replaced all the time.
 *
 * The work is items, which lie in the key ranges of a run's shards. To commit an item is to checkpoint the
 * shard at its key. Whoever works writes into a ledger of its own, under its fence: what it was granted,
 * what it is about to commit, what was acknowledged, what was refused. At pauses and at the end the
 * ledgers are held against each other and against the store.
 */
#ifndef RF_CRASH_STORM_H
#define RF_CRASH_STORM_H

#include <stdint.h>

struct rf_storm {
    const char *directory; /* to work in; it is made, and removed */
    unsigned workers;      /* 1 to 64 */
    uint64_t kills;        /* to end after; 0: only the time counts */
    uint64_t seconds;      /* to end after */
    uint64_t kills_pause;  /* between pauses, about */
    uint64_t seed;
    int verbose;
};

struct rf_storm_report {
    uint64_t kills, stops, pauses, cold;
    uint64_t runs;      /* worked off and checked */
    uint64_t items;     /* committed and acknowledged */
    uint64_t orphans;   /* committed by somebody who was killed before he knew */
    uint64_t refused;   /* writes of zombies */
    uint64_t grants;    /* every one with a fence of its own */
    uint64_t snapshots; /* taken by request; guardians take theirs as they are due */
    uint64_t redone, undone, leases_lost;
};

/* Returns NULL, or what is wrong, in words. */
const char *rf_storm_play(const struct rf_storm *storm, struct rf_storm_report *report);

#endif
