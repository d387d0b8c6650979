/*
 * Claiming: the first shard that can be had, or a sleep until there is one.
 *
 * A claimer that would sleep lists itself in the run's waiter bitmap (a bit for every member slot),
 * remembers the claim word, looks once more, and sleeps on that word. Whoever makes something
 * claimable stores the bits, changes the claim word, and then looks for waiters; all of that is
 * sequentially consistent, so either the claimer sees the shard or the other sees the claimer. One
 * freed shard wakes one sleeper. The bits are set and cleared by absolute operations that a
 * survivor can repeat, so the number of waiters is right whoever dies.
 *
 * Leases that run out wake nobody: a sleeper's timeout does, at the earliest deadline that it knows,
 * the n-th waiter a little after the one before, so that one of them finds the shard for all.
 */
#ifndef RF_CLAIM_H
#define RF_CLAIM_H

#include "actor.h"

void rf_waiter_list(struct rf_runrec *run, uint32_t slot);
void rf_waiter_unlist(struct rf_runrec *run, uint32_t slot);

#endif
