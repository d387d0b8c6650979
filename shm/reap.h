/*
 * Settling the affairs of a dead member. What a reaper may find, and what it does:
 *
 *   descriptor       lane offset                      ->
 *   IDLE             any                              nothing was going on
 *   TAKING           any                              undo: give back what it names
 *   PREPARED, at o   still o                          undo: it never happened
 *   PREPARED, at o   moved                            it happened: apply it again
 *
 * Only the dead one ever moved that offset, so the verdict can't change, and both ways can be walked
 * again from the start: a reaper that dies is replaced by one that does. Then, in this order: IDLE,
 * the generation, and the locks it had named are cleared and their sleepers woken. A reap takes no
 * locks, so it can be made in the middle of another operation.
 *
 * A death is the kernel's word that the guardian thread is gone (robust list). Other threads of the
 * process may still be finishing a store, so the reaper first waits for them with membarrier.
 *
 * After the reap the member's leases are still there; giving them up takes locks and is the sweep's
 * business (sweep.h). Only then is the slot free.
 */
#ifndef RF_REAP_H
#define RF_REAP_H

#include "actor.h"

/* Reaps the member in `slot` if it is dead and not yet reaped. Returns whether it is settled (now,
 * or before); false: alive, or somebody else is at it. */
bool rf_reap_if_dead(struct rf_actor *actor, uint32_t slot);

/* Whether a member is dead or its generation is over. */
bool rf_id_gone(const struct rf_map *map, uint32_t id);
/* Whether the kernel, its own process (rf_op_broken) or a test has declared it dead. */
bool rf_is_dead(const struct rf_member *member);
void rf_declare_dead(struct rf_map *map, uint32_t slot);

/*
 * A process that aborts is alive until its core is written, and the kernel stops all its threads while it
 * does that. So whoever settles the dead, or sweeps, says so while he is at it; and one who is going to
 * abort lets nobody of his process begin any more and waits (for half a second at the longest) until all
 * have ended. Otherwise his own guardian would begin to settle him, be stopped in the middle, and keep
 * everybody else from it until the core is written.
 */
bool rf_settling_begin(
    struct rf_actor *actor); /* false: the process is about to end, leave it to others */
void rf_settling_end(struct rf_actor *actor);
void rf_settling_end_all(struct rf_actor *actor);

/* Takes the right to settle a slot for this actor; one at a time, the dead are replaced. */
bool rf_reaper_enter(struct rf_actor *actor, struct rf_member *member);
void rf_reaper_leave(struct rf_actor *actor, struct rf_member *member);
/* Whether a living process is settling the slot. */
bool rf_reaper_at_work(const struct rf_map *map, const struct rf_member *member);

/* Settles what the last owner of the actor's own slot left: for the repair slot, whose next user
 * takes over the dead one's liveness word and sees to it that no reaper is still at work there. The
 * actor goes on under a new generation. */
void rf_reap_predecessor(struct rf_actor *actor);

/* Registers this process so that others can wait for its stores. */
rf_status rf_reap_register(rf_detail *detail);

#endif
