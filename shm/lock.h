/*
 * Locks: one 32-bit futex word in the region.
 *
 *   0                        free
 *   waiters | generation | slot   held by that generation of that member slot
 *
 * A word whose generation is over counts as free. Before it is taken or slept on, its offset is
 * stored in the descriptor (desc.locks[which]); it is removed from there only after the unlocker's
 * wake. So whatever a dead member was doing with a lock, its reaper knows which one to clear, and
 * wakes all that sleep on it: the unlocker may have died between its store and its wake, and a
 * woken waiter before it took the lock.
 *
 * Order: stripe, shard, run. A sleep ends by a wake, by the owner's death (the sleeper reaps it) or
 * by a timeout; a living owner that holds on longer than busy_ns gives RF_BUSY with its pid.
 * Whoever goes through many shards on behalf of others waits for none of them (rf_try_lock).
 */
#ifndef RF_LOCK_H
#define RF_LOCK_H

#include "actor.h"

enum rf_lock_kind { RF_LOCK_STRIPE = 0, RF_LOCK_SHARD = 1, RF_LOCK_RUN = 2, RF_LOCK_KINDS = 3 };

rf_status rf_lock_slow(struct rf_actor *actor, rf_word32 *word, rf_detail *detail);
bool rf_lock_spin(struct rf_actor *actor, rf_word32 *word);
void rf_lock_wake(rf_word32 *word);

static inline rf_status rf_lock(struct rf_actor *actor, rf_word32 *word, enum rf_lock_kind kind,
                                rf_detail *detail)
{
    uint32_t unlocked = 0;
    atomic_store_explicit(&actor->desc->locks[kind], rf_offset_of(actor->map, word),
                          memory_order_relaxed);
    /* release: the name above is seen by whoever sees the lock taken (rf_reap). acquire: what the last
     * holder wrote is seen here (rf_unlock). seq_cst, with a look at the run's `live` behind it: pairs with a
     * purge, which stores `live` and then looks at the locks (drain in sweep.c). One sees the other. */
    if (__builtin_expect(atomic_compare_exchange_strong_explicit(word, &unlocked, actor->id,
                                                                 memory_order_seq_cst,
                                                                 memory_order_relaxed),
                         1)) {
        return RF_OK;
    }
    rf_status status = rf_lock_slow(actor, word, detail);
    if (status != RF_OK) {
        atomic_store_explicit(&actor->desc->locks[kind], 0, memory_order_release);
    }
    return status;
}

/* The same for whoever has other things to do: from the dead it is taken as well, the living are given
 * the microsecond that a hold lasts, and then it is left alone. */
static inline bool rf_try_lock(struct rf_actor *actor, rf_word32 *word, enum rf_lock_kind kind)
{
    uint32_t unlocked = 0;
    atomic_store_explicit(&actor->desc->locks[kind], rf_offset_of(actor->map, word),
                          memory_order_relaxed);
    /* As in rf_lock. */
    if (__builtin_expect(atomic_compare_exchange_strong_explicit(word, &unlocked, actor->id,
                                                                 memory_order_seq_cst,
                                                                 memory_order_relaxed),
                         1) ||
        rf_lock_spin(actor, word)) {
        return true;
    }
    atomic_store_explicit(&actor->desc->locks[kind], 0, memory_order_release);
    return false;
}

static inline void rf_unlock(struct rf_actor *actor, rf_word32 *word, enum rf_lock_kind kind)
{
    /* release: pairs with the compare-and-swap in rf_lock. */
    uint32_t was = atomic_exchange_explicit(word, 0, memory_order_release);
    assert((was & ~RF_ID_WAITERS) == actor->id);
    if (__builtin_expect((was & RF_ID_WAITERS) != 0, 0)) {
        rf_lock_wake(word);
    }
    atomic_store_explicit(&actor->desc->locks[kind], 0, memory_order_release);
}

/* Whether nobody holds it; what a dead owner left counts as free only after its reap. */
bool rf_lock_is_free(const struct rf_map *map, const rf_word32 *word);

/* The pid behind the holder of a lock, 0 if it is free. For messages. */
uint32_t rf_lock_holder_pid(const struct rf_map *map, const rf_word32 *word);

#endif
