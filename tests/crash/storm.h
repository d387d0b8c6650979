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

#include <stdbool.h>
#include <sys/types.h>

#include "ringfence/ringfence.h"

#define RF_STORM_WORKERS_MAX 64u
#define RF_STORM_DIRECTOR    RF_STORM_WORKERS_MAX /* whose ledger is behind those of the workers */
#define RF_STORM_ROOTS       24u
#define RF_STORM_ITEMS       48u /* of a root */
#define RF_STORM_ALL_ITEMS   (RF_STORM_ROOTS * RF_STORM_ITEMS)
#define RF_STORM_NO_ITEM     UINT32_MAX
#define RF_STORM_HANGS       3 /* exit status of a director who hangs; all stacks are on stderr then */

enum rf_storm_note {
    RF_STORM_GRANT = 1,
    RF_STORM_INTENT, /* an item is about to be committed */
    RF_STORM_ACK,    /* it is, and durable */
    RF_STORM_REFUSED,
    RF_STORM_HURRIED, /* a checkpoint came back that nobody waited for */
    /* The director's: */
    RF_STORM_MADE, /* a run, durably */
    RF_STORM_ENDING,
    RF_STORM_PURGED,
    RF_STORM_COLD, /* the region is removed: what was not waited for may be lost */
};

/* One line of a ledger. */
struct rf_storm_line {
    uint32_t note;
    uint32_t item; /* GRANT: the last one that the cursor has passed */
    uint64_t run;
    uint64_t shard;
    uint64_t fence;
    uint64_t step; /* ACK, HURRIED: which checkpoint under this fence, from 1 */
    uint64_t at;   /* when it was written, by CLOCK_MONOTONIC: what it tells had happened by then */
};

/* What a token begins with: which checkpoint left it. */
struct rf_storm_stamp {
    uint64_t fence;
    uint64_t step;
    uint64_t called; /* when the call began */
};

/* How a storm is watched from outside. */
struct rf_storm_watch {
    void (*begin)(const char *store); /* the directory is there, and empty */
    /* By whoever wrote the line, after it was written. */
    void (*noted)(unsigned ledger, uint64_t line);
    void (*born)(unsigned worker); /* before it is forked */
    void (*died)(unsigned worker, pid_t pid);
    bool (*enough)(void); /* to end early */
    void (*end)(void);    /* everybody is gone; the store is closed and still there */
};

struct rf_storm {
    const char *directory; /* to work in; it is made, and removed */
    unsigned workers;      /* 1 to 64 */
    uint64_t kills;        /* to end after; 0: only the time counts */
    uint64_t seconds;      /* to end after */
    uint64_t kills_pause;  /* between pauses, about */
    uint64_t seed;
    /* Without a sign of life until it is a hang. */
    uint64_t patience;   /* with the workers, nanoseconds; 0: a minute */
    unsigned director_s; /* with the director, seconds; 0: two minutes */
    uint32_t hurry;      /* checkpoints that nobody waits for between two items, below; 0: 400 */
    const struct rf_storm_watch
        *watch; /* then lines are kept, and it ends in the middle of it all */
};

struct rf_storm_report {
    uint64_t kills, stops, pauses, cold;
    uint64_t runs;      /* worked off and checked */
    uint64_t items;     /* committed and acknowledged */
    uint64_t orphans;   /* committed by somebody who was killed before he knew */
    uint64_t refused;   /* writes of zombies */
    uint64_t hurried;   /* checkpoints that nobody waited for, and that survived every kill */
    uint64_t grants;    /* every one with a fence of its own */
    uint64_t snapshots; /* taken by request; guardians take theirs as they are due */
    uint64_t redone, undone, leases_lost;
};

/* Returns NULL, or what is wrong, in words; what hangs is on stderr, with the stacks of all. */
const char *rf_storm_play(const struct rf_storm *storm, struct rf_storm_report *report);

/* --- for the watch --- */

/* How the store is opened by everybody. */
rf_options rf_storm_options(const char *region_path);
void rf_storm_tenant(rf_tenant *tenant);
/* Until the play is over. */
const struct rf_storm_line *rf_storm_lines(unsigned ledger, uint64_t *count);
uint32_t rf_storm_item(rf_bytes key);
/* What left the cursor; zeros if nothing did. */
struct rf_storm_stamp rf_storm_stamp(rf_cursor cursor);

#endif
