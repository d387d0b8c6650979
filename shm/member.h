/*
 * Member slots: who takes part, and how others learn of a death.
 *
 * The liveness word of a slot is a robust futex that belongs to the guardian thread of its process.
 * Taking a slot follows the protocol of robust mutexes, so that there is no instruction at which a
 * kill could lose it: the node is named as pending, the word swapped from 0 to the TID, the node
 * linked, the pending mark cleared. When the thread goes away, in whatever way, the kernel walks
 * the list, sets FUTEX_OWNER_DIED in every word and wakes one sleeper of each (which it does only
 * if FUTEX_WAITERS is set, so it always is).
 *
 * Slot 0 is for repairs: whoever finds all other slots taken enters by it, settles the dead, and
 * moves on to a slot of its own.
 */
#ifndef RF_MEMBER_H
#define RF_MEMBER_H

#include <linux/futex.h>

#include "actor.h"

/* The robust list of one guardian; in shared memory of its own, which survives until the kernel has
 * read it even if the process is killed for lack of memory. The kernel reads ROBUST_LIST_LIMIT nodes and no
 * more: of the others it would tell nobody. */
struct rf_robust {
    struct robust_list_head head;
    uint32_t nodes; /* linked; the guardian's */
};

rf_status rf_robust_make(struct rf_robust **robust, rf_detail *detail);
void rf_robust_drop(struct rf_robust *robust);
/* Makes it the list of the calling thread. */
rf_status rf_robust_adopt(struct rf_robust *robust, rf_detail *detail);

/* Takes a slot for a process whose guardian is the calling thread (robust != NULL), or for a handle
 * whose death will be declared by hand. */
rf_status rf_member_join(struct rf_map *map, struct rf_robust *robust, bool is_guardian,
                         uint64_t now, uint32_t *slot, rf_detail *detail);
/* Gives it back. Its leases are given up and its descriptor is idle. */
void rf_member_leave(struct rf_map *map, struct rf_robust *robust, uint32_t slot);

/* Leaves it behind as the dead do, for survivors to settle: its leases could not be given up. Not on
 * the robust list any more, whose links lie in the slots: this one may soon be another's. */
void rf_member_abandon(struct rf_map *map, struct rf_robust *robust, uint32_t slot);

/* Readies an actor for a slot that was joined. */
void rf_actor_init(struct rf_actor *actor, struct rf_map *map, uint32_t slot, uint64_t busy_ns);

/* Settles the dead from the repair slot, for somebody who found no slot free. */
rf_status rf_member_repair(struct rf_map *map, struct rf_robust *robust, uint64_t busy_ns,
                           uint64_t now, rf_detail *detail);

static inline bool rf_member_alive(const struct rf_member *m)
{
    uint32_t life = atomic_load_explicit(&m->liveness, memory_order_acquire);
    return life != 0 && (life & FUTEX_OWNER_DIED) == 0;
}

/* Makes the guardian behind a slot look at the roster again. */
void rf_member_poke(struct rf_member *member);
/* Pokes the guardians that should watch a new slot: the nearest ones before it. */
void rf_member_announce(struct rf_map *map, uint32_t slot);

#endif
