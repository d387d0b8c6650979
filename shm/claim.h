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
 * A shard whose lock somebody living has is not waited for: he may be stopped, and nothing else is in his
 * hands. A claimer passes it over and remembers that. If there is something else it takes that. If there
 * is not, it does not know that there is nothing: RF_NONE_AVAILABLE is said only by whoever has looked at
 * all that may be available (whose bit is set, or whose lease has run out; not what is bound to the
 * dead: it is not available before it is given up). It looks again after naps that grow, listed as a
 * waiter, for as long as it may wait for a lock, or for a shard if that is longer. Then it says RF_BUSY
 * with the holder's pid, and passes on the wake that it may have used up.
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
