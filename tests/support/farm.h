/*
 * A farm: workers that make random calls of every kind on a few shared runs, each with a log of its
 * own, and the checks of what came of it.
 *
 * Keys are 8-byte numbers, most significant byte first. Root shard i covers [i << 32, (i + 1) << 32),
 * so anybody can tell from the ids alone what a run's shards have to cover. A token is made from
 * its key and a shard's metadata from the making of its run: a mixture of two writes shows.
 *
 *   worker   farm_work      one handle, random calls; wrong answers end the process
 *   watcher  farm_watch     PROTOCOL's rules S1 to S11 from outside, without a lock
 *   auditor  farm_audit     afterwards: the logs against each other and against what is there
 */
#ifndef RF_TEST_FARM_H
#define RF_TEST_FARM_H

#include "crew.h"
#include "prng.h"

#define FARM_WORKERS 16u
#define FARM_RUNS    6u
#define FARM_ROOTS   24u  /* that a run begins with */
#define FARM_IDS     160u /* root ids are below this */

enum farm_kind {
    FARM_GRANT = 1,
    FARM_CHECKPOINT,
    FARM_COMPLETE,
    FARM_PARK,
    FARM_RELEASE,
    FARM_SPLIT,
    FARM_RESIDUAL,
    FARM_UNPARK,
};

/* Something that was acknowledged. */
struct farm_entry {
    uint32_t kind;
    uint32_t run;
    uint64_t shard;
    uint64_t made; /* which making of the run; 0: not known */
    uint64_t fence;
    uint64_t key;
    uint64_t before; /* tickets drawn before and after the call */
    uint64_t after;
    uint64_t child;
};

struct farm_log {
    _Atomic uint64_t count; /* entries; an entry is whole when it counts */
    _Atomic uint64_t ops;   /* calls made */
    _Atomic uint64_t finished;
    _Atomic(const char *) doing;
    struct farm_entry entries[];
};

/* In shared memory, as the logs are. */
struct farm {
    char store[128];
    uint64_t seed;
    uint64_t ops_each;
    uint32_t workers;
    bool may_stop;  /* somebody may be stopped: leases run out and locks are busy */
    bool read_only; /* how the watcher opens the store */
    _Atomic uint64_t ticket;
    _Atomic uint64_t life; /* numbers every start of a worker */
    _Atomic bool stop;     /* the watcher's work is over */
    _Atomic uint64_t scans;
    _Atomic uint64_t events;
    _Atomic uint64_t events_lost;
    struct farm_log *logs[FARM_WORKERS];
    size_t log_bytes;
};

struct farm *farm_make(const char *store, uint32_t workers, uint64_t ops_each, bool may_stop);
void farm_drop(struct farm *farm);
rf_tenant farm_tenant(uint32_t run);

/* The worker's calls, from where its log is to ops_each. 0, or does not return. */
int farm_work(struct farm *farm, uint32_t worker);
/* Until farm->stop. */
int farm_watch(struct farm *farm);
/* After the workers: ends and purges everything. */
int farm_audit(struct farm *farm);

/* --- shared by the three --- */

struct farm_key {
    uint8_t bytes[8];
};
struct farm_key farm_key(uint64_t number);
uint64_t farm_number(rf_bytes key);
/* Which making of the run the metadata is from; checks that it is whole. */
uint64_t farm_made(rf_bytes metadata);
/* Whether the token is the one that belongs to the key. */
void farm_check_cursor(rf_cursor cursor, const char *where);

#endif
