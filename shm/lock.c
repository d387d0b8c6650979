#include "lock.h"

#include "futex.h"
#include "point.h"
#include "reap.h"

#define SPINS        64u
#define SLEEP_NS_MAX 50000000ull

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void rf_lock_wake(rf_word32 *word)
{
    RF_POINT("lock.before_wake");
    rf_futex_wake(word, 1);
}

bool rf_lock_is_free(const struct rf_map *map, const rf_word32 *word)
{
    /* seq_cst: pairs with rf_lock, for a purge. */
    uint32_t w = atomic_load_explicit(word, memory_order_seq_cst);
    return w == 0 || rf_id_over(map, w & ~RF_ID_WAITERS);
}

uint32_t rf_lock_holder_pid(const struct rf_map *map, const rf_word32 *word)
{
    uint32_t w = atomic_load_explicit(word, memory_order_relaxed);
    const struct rf_member *m = w == 0 ? NULL : rf_member_at(map, rf_id_slot(w));
    if (m != NULL && rf_is_dead(m)) {
        /* What the dead held is held up by who settles it. */
        uint64_t reaper = atomic_load_explicit(&m->reaper, memory_order_relaxed);
        m = reaper == 0 ? m : rf_member_at(map, rf_id_slot((uint32_t)reaper));
    }
    return m == NULL ? 0 : atomic_load_explicit(&m->pid, memory_order_relaxed);
}

/* Sleeps on the lock and on its owner's life. */
static void sleep_on(struct rf_actor *actor, rf_word32 *word, uint32_t seen, uint64_t until)
{
    struct rf_member *owner = rf_member_at(actor->map, rf_id_slot(seen));
    uint32_t life = atomic_load_explicit(&owner->liveness, memory_order_acquire);
    if ((life & FUTEX_OWNER_DIED) != 0 || rf_id_over(actor->map, seen & ~RF_ID_WAITERS)) {
        return;
    }
    struct futex_waitv watch[2] = {
        rf_futex_watch(word, seen),
        rf_futex_watch(&owner->liveness, life),
    };
    rf_count(&actor->me->counters.lock_waits, 1);
    rf_futex_waitv(watch, 2, until);
    RF_POINT("lock.woken");
}

/* One look at a word that is not free: reap a dead owner, take over from one that is over. */
static bool try_once(struct rf_actor *actor, rf_word32 *word, uint32_t mine)
{
    uint32_t w = atomic_load_explicit(word, memory_order_acquire);
    uint32_t owner = w & ~RF_ID_WAITERS;
    if (w != 0 && !rf_id_over(actor->map, owner)) {
        rf_reap_if_dead(actor, rf_id_slot(owner));
        return false;
    }
    /* As in rf_lock. The waiters bit of a lock that is taken over stays. */
    return atomic_compare_exchange_strong_explicit(word, &w, mine | (w & RF_ID_WAITERS),
                                                   memory_order_seq_cst, memory_order_relaxed);
}

bool rf_lock_spin(struct rf_actor *actor, rf_word32 *word)
{
    for (unsigned i = 0; i < SPINS; i++) {
        if (try_once(actor, word, actor->id)) {
            return true;
        }
        relax();
    }
    return false;
}

rf_status rf_lock_slow(struct rf_actor *actor, rf_word32 *word, rf_detail *detail)
{
    if (rf_lock_spin(actor, word)) {
        return RF_OK;
    }
    uint64_t until = rf_monotonic_ns() + actor->busy_ns;
    /* Having slept, it can't know whether others sleep too: it takes the lock with the waiters bit
     * set, and wakes one too many at worst. */
    while (!try_once(actor, word, actor->id | RF_ID_WAITERS)) {
        uint64_t now = rf_monotonic_ns();
        if (now >= until || atomic_load_explicit(&actor->map->ending, memory_order_relaxed)) {
            rf_count(&actor->me->counters.busy, 1);
            rf_refuse(detail, RF_BUSY, 0, "waiting for a lock");
            if (detail != NULL) {
                detail->pid = rf_lock_holder_pid(actor->map, word);
            }
            return RF_BUSY;
        }
        uint32_t w = atomic_load_explicit(word, memory_order_relaxed);
        if (w == 0) {
            continue;
        }
        if ((w & RF_ID_WAITERS) == 0) {
            uint32_t marked = w | RF_ID_WAITERS;
            if (!atomic_compare_exchange_strong_explicit(word, &w, marked, memory_order_relaxed,
                                                         memory_order_relaxed)) {
                continue;
            }
            RF_POINT("lock.marked");
            w = marked;
        }
        uint64_t nap = now + SLEEP_NS_MAX;
        sleep_on(actor, word, w, nap < until ? nap : until);
    }
    return RF_OK;
}
