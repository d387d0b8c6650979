/*
 * Processes that wait in rf_claim for a shard of one small run, and what came of their waiting.
 */
#ifndef RF_TEST_QUEUE_H
#define RF_TEST_QUEUE_H

#include "crew.h"

#define QUEUE_RUN 7u
#define QUEUE_MAX 64u

/* In shared memory. */
struct queue_waiter {
    _Atomic uint32_t stage; /* 1: about to wait, 2: has an answer */
    _Atomic bool quit;      /* it keeps what it has until then */
    rf_status status;
    uint64_t began_at; /* crew_ns */
    uint64_t ended_at;
    uint64_t shard;
    uint64_t fence;
};

struct queue {
    char store[128];
    uint64_t timeout;
    const char *point; /* with the points library: whoever comes here dies */
    _Atomic uint32_t point_hits;
    struct queue_waiter waiters[QUEUE_MAX];
    pid_t pids[QUEUE_MAX];
    uint32_t count;
    rf_store *boss; /* the test's own handle */
};

rf_tenant queue_tenant(void);
/* A store with a run of `shards` shards, 1 to shards, in ten-key ranges. */
struct queue *queue_make(const char *label, uint32_t shards, uint64_t lease);
void queue_drop(struct queue *q);

/* Starts so many more waiters, and returns when all of them sleep. */
void queue_wait_in_line(struct queue *q, uint32_t more);
/* Starts one and returns its number at once. */
uint32_t queue_start_waiter(struct queue *q);
/* So that a test with points can set its hook in the child before it opens the store. */
extern void (*queue_in_child)(struct queue *q);

/* A grant of this shard to the test itself. */
rf_lease queue_hold(struct queue *q, uint64_t shard);
/* Waits until so many have an answer; returns how many have. */
uint32_t queue_answers(struct queue *q, uint32_t at_least, unsigned timeout_ms);
uint64_t queue_waiting(struct queue *q); /* by the capacity */
bool queue_waiting_becomes(struct queue *q, uint64_t number, unsigned timeout_ms);

rf_status queue_release(struct queue *q, const rf_lease *lease);
rf_status queue_split(struct queue *q, const rf_lease *lease, uint32_t children);
rf_status queue_residual(struct queue *q, const rf_lease *lease);
rf_status queue_park(struct queue *q, const rf_lease *lease);
rf_status queue_unpark(struct queue *q, uint64_t shard);
rf_status queue_add(struct queue *q, uint64_t first, uint32_t count);

#endif
