/*
 * What is cleaned up later, holding nothing and taking ordinary locks: the leases of the dead, the
 * leases that ran out, and runs whose purge was cut short. Each of them is a chain of ordinary
 * operations, so a sweeper may die anywhere and the next one goes on. A shard that is in somebody's
 * hands is passed over and left for later: who is stopped with its lock keeps nothing else.
 */
#ifndef RF_SWEEP_H
#define RF_SWEEP_H

#include "operation.h"

/* Reaps and sweeps a dead member and frees its slot. Returns whether the slot is free now; false if
 * somebody else is at it, or a lock was busy and it has to be done again. */
bool rf_sweep_member(struct rf_actor *actor, uint32_t slot, uint64_t now);
/* Gives up every lease that is bound to a member id (or, if it is over, to its slot's past). False if
 * some could not be. */
bool rf_sweep_leases(struct rf_actor *actor, struct rf_slot *holder, uint32_t id, bool over,
                     uint64_t now);

/* Makes the expired leases of a run claimable. Cheap while no deadline can have passed. `all` looks
 * at every extent, after which count and earliest deadline are exact for `now`, but for what was
 * skipped. RF_OK if that is all that was in the way. */
rf_status rf_sweep_expired(struct rf_actor *actor, uint32_t run_slot, uint64_t uid, uint64_t now,
                           bool all, struct rf_skipped *skipped, rf_detail *detail);

/* Takes a purged run apart. RF_BUSY if somebody still holds one of its shards' locks: at once, if it is
 * not the purger who asks but somebody in his place. */
rf_status rf_sweep_purged(struct rf_actor *actor, uint32_t run_slot, bool purger,
                          rf_detail *detail);

/* Everything that is due, in every slot: dead members, unfinished purges. Returns false if
 * something had to be left for later. */
bool rf_sweep_all(struct rf_actor *actor, uint64_t now);

#endif
