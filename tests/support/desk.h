/*
 * A desk is where one worker works on one shard: it holds everything a call needs, makes the call,
 * applies the step to the box, and holds every single call, in whichever test, to the rules that
 * have no exception:
 *
 *   a refusal or a replay changes nothing;
 *   what is returned is in the operation's row of the STATUS TABLE;
 *   the record is valid after every step (PROTOCOL section 7);
 *   the fence never goes down, and every grant has one that is new and above the floor;
 *   the cursor's key never goes down; spawned ids are only appended;
 *   what is terminal stays so, except by unpark with a new fence;
 *   executed_at never goes down, and only operations with an op id are remembered.
 */
#ifndef RF_TEST_DESK_H
#define RF_TEST_DESK_H

#include "box.h"

struct rf_desk {
    /* what a call is made with */
    struct rf_box *box; /* NULL: there is no such record */
    rf_tenant tenant;
    uint64_t now;
    uint64_t op;
    rf_lease lease;
    struct rf_env env;

    /* what came of it */
    struct rf_shard_step step;
    rf_detail detail;
    uint64_t hash;        /* the payload hash of the call */
    rf_event event;       /* of the step, if it was executed */
    struct rf_box before; /* the record before the last call */

    struct rf_hasher hasher;
    struct rf_split_scratch scratch;
};

/* A desk for the box, with its tenant and run, at time 100; leases last 1000; no limits. */
void rf_desk_open(struct rf_desk *desk, struct rf_box *box);

/* A tenant all of whose bytes are this one. */
rf_tenant rf_tenant_of(uint8_t byte);

/* The operations, with the desk's now, op and lease. A grant or renewal changes the desk's lease. */
rf_status rf_desk_acquire(struct rf_desk *desk, uint64_t worker);
rf_status rf_desk_renew(struct rf_desk *desk);
rf_status rf_desk_checkpoint(struct rf_desk *desk, rf_cursor cursor);
rf_status rf_desk_complete(struct rf_desk *desk, rf_cursor cursor);
rf_status rf_desk_park(struct rf_desk *desk, rf_park_reason reason);
rf_status rf_desk_release(struct rf_desk *desk, rf_cursor cursor);
rf_status rf_desk_split_replace(struct rf_desk *desk, const rf_child *children, uint32_t count);
rf_status rf_desk_split_residual(struct rf_desk *desk, rf_spec parent_new, rf_spec residual);
rf_status rf_desk_unpark(struct rf_desk *desk);
bool rf_desk_owner_lost(struct rf_desk *desk);
void rf_desk_park_exhausted(struct rf_desk *desk);

#endif
