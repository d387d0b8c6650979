#include "reap.h"

#include <linux/membarrier.h>
#include <unistd.h>

#include "apply.h"
#include "claim.h"
#include "futex.h"
#include "lock.h"
#include "point.h"

#define SETTLING_NS      500000000ull
#define SETTLING_LOOK_US 200u

bool rf_is_dead(const struct rf_member *member)
{
    /* acquire: what the kernel saw of the process before it set the bit. */
    return (atomic_load_explicit(&member->liveness, memory_order_acquire) & FUTEX_OWNER_DIED) != 0;
}

void rf_declare_dead(struct rf_map *map, uint32_t slot)
{
    struct rf_member *member = rf_member_at(map, slot);
    atomic_fetch_or_explicit(&member->liveness, FUTEX_OWNER_DIED, memory_order_release);
    rf_futex_wake(&member->liveness, 1);
}

/* seq_cst, here and in rf_settling_end_all: either the one who ends it sees the count, or the one who
 * begins sees the end. */
bool rf_settling_begin(struct rf_actor *actor)
{
    atomic_fetch_add(&actor->settling, 1);
    atomic_fetch_add(&actor->map->settling, 1);
    if (!atomic_load(&actor->map->ending)) {
        return true;
    }
    rf_settling_end(actor);
    return false;
}

void rf_settling_end(struct rf_actor *actor)
{
    atomic_fetch_sub(&actor->settling, 1);
    atomic_fetch_sub(&actor->map->settling, 1);
}

void rf_settling_end_all(struct rf_actor *actor)
{
    struct rf_map *map = actor->map;
    uint64_t until = rf_monotonic_ns() + SETTLING_NS;
    atomic_store(&map->ending, true);
    while (atomic_load(&map->settling) > atomic_load(&actor->settling) &&
           rf_monotonic_ns() < until) {
        usleep(SETTLING_LOOK_US);
    }
}

rf_status rf_reap_register(rf_detail *detail)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) != 0) {
        return rf_refuse(detail, RF_UNSUPPORTED, errno, "membarrier; Linux 4.16 or later has it");
    }
    return RF_OK;
}

bool rf_id_gone(const struct rf_map *map, uint32_t id)
{
    const struct rf_member *m = rf_member_at(map, rf_id_slot(id));
    return m == NULL || rf_id_over(map, id) || rf_is_dead(m);
}

bool rf_reaper_enter(struct rf_actor *actor, struct rf_member *member)
{
    uint64_t current = atomic_load_explicit(&member->reaper, memory_order_acquire);
    if (current == actor->id) {
        return true; /* one thread an actor: it came back in the middle of its own reap */
    }
    if (current != 0 && !rf_id_gone(actor->map, (uint32_t)current)) {
        return false;
    }
    if (current != 0) {
        rf_count_repair(actor, RF_REPAIR_REAPERS);
    }
    bool mine = atomic_compare_exchange_strong_explicit(&member->reaper, &current, actor->id,
                                                        memory_order_acq_rel, memory_order_relaxed);
    /* Then it looks whether the member is still dead; pairs with enter_repair, who takes the life of
     * a dead one and then looks for its reaper. */
    atomic_thread_fence(memory_order_seq_cst);
    RF_POINT("reap.entered");
    return mine;
}

bool rf_reaper_at_work(const struct rf_map *map, const struct rf_member *member)
{
    atomic_thread_fence(memory_order_seq_cst);
    uint64_t reaper = atomic_load_explicit(&member->reaper, memory_order_acquire);
    return reaper != 0 && !rf_id_gone(map, (uint32_t)reaper);
}

void rf_reaper_leave(struct rf_actor *actor, struct rf_member *member)
{
    uint64_t mine = actor->id;
    atomic_compare_exchange_strong_explicit(&member->reaper, &mine, 0, memory_order_acq_rel,
                                            memory_order_relaxed);
    RF_POINT("reap.left");
}

/* The operation was committed: read back what it wrote and apply it again. */
static void redo(struct rf_actor *actor, uint32_t slot, struct rf_desc *d, uint32_t offset)
{
    const struct rf_lane_record *record = rf_lane_find(actor->map, slot, offset);
    /* A record that can't be read is a wild write; stop before anything is published. */
    assert(record != NULL);
    struct rf_applied applied = {.epoch = record->epoch, .stamp = record->stamp};
    rf_bytes body = rf_lane_codec(record);
    size_t used;
    if ((d->redo & RF_REDO_SHARD) != 0) {
        rf_status status = rf_codec_get_step(body, &actor->redo_step, &used);
        assert(status == RF_OK);
        (void)status;
        applied.step = &actor->redo_step.step;
    }
    if ((d->redo & RF_REDO_RUN) != 0) {
        rf_status status = rf_codec_get_run(body, &actor->redo_run, &used);
        assert(status == RF_OK);
        (void)status;
        applied.run = &actor->redo_run;
    }
    rf_apply(actor->map, d, &applied);
}

/* He may have died before he noted in which epoch he had committed. */
static void note_last(struct rf_slot *dead, const struct rf_lane_record *record)
{
    if (atomic_load_explicit(&dead->lane.last, memory_order_relaxed) < record->epoch) {
        atomic_store_explicit(&dead->lane.last, record->epoch, memory_order_relaxed);
    }
}

static void settle(struct rf_actor *actor, uint32_t slot, struct rf_desc *d)
{
    struct rf_slot *dead = rf_slot_at(actor->map, slot);
    uint64_t word = atomic_load_explicit(&d->state, memory_order_acquire);
    uint64_t lane = atomic_load_explicit(&dead->lane.word, memory_order_acquire);
    uint32_t offset = RF_DESC_OFFSET(word);
    switch (RF_DESC_STATE(word)) {
    case RF_DESC_PREPARED:
        if ((uint32_t)(lane & RF_LANE_OFFSET_MASK) != offset) {
            redo(actor, slot, d, offset);
            note_last(dead, rf_lane_find(actor->map, slot, offset));
            rf_count_repair(actor, RF_REPAIR_REDONE);
            break;
        }
        rf_undo(actor->map, d);
        rf_count_repair(actor, RF_REPAIR_UNDONE);
        break;
    case RF_DESC_TAKING:
        rf_undo(actor->map, d);
        rf_count_repair(actor, RF_REPAIR_UNDONE);
        break;
    default:
        break;
    }
    atomic_store_explicit(&d->chain, 0, memory_order_release); /* closed by now, or never to be */
    RF_POINT("reap.settled");
}

/* What it had announced to add to a run counts no more. Holding the run's lock it was the only one
 * that could have announced anything. */
static void clear_pending(struct rf_actor *actor, struct rf_desc *d, uint32_t dead_id)
{
    const struct rf_section *runs = &actor->map->header->runs;
    uint64_t offset = atomic_load_explicit(&d->locks[RF_LOCK_RUN], memory_order_acquire);
    if (offset < runs->offset || offset >= runs->offset + runs->stride * runs->count) {
        return;
    }
    struct rf_runrec *run =
        rf_run_at(actor->map, (uint32_t)((offset - runs->offset) / runs->stride));
    uint32_t w = atomic_load_explicit(&run->lock, memory_order_acquire);
    if ((w & ~RF_ID_WAITERS) == dead_id) {
        atomic_store_explicit(&run->pending, 0, memory_order_relaxed);
        RF_POINT("reap.pending");
    }
}

/* Everything it had named: cleared if it is still the dead one's, and all sleepers woken. */
static void clear_locks(struct rf_actor *actor, struct rf_desc *d, uint32_t dead_id)
{
    for (unsigned i = 0; i < RF_LOCK_KINDS; i++) {
        uint64_t offset = atomic_load_explicit(&d->locks[i], memory_order_acquire);
        if (offset == 0 || offset + 4 > actor->map->header->region_bytes) {
            continue;
        }
        rf_word32 *lock = (rf_word32 *)(void *)(actor->map->base + offset);
        uint32_t w = atomic_load_explicit(lock, memory_order_relaxed);
        if ((w & ~RF_ID_WAITERS) == dead_id) {
            /* release: pairs with the taker's acquire; the redo is complete. */
            if (atomic_compare_exchange_strong_explicit(lock, &w, 0, memory_order_acq_rel,
                                                        memory_order_relaxed)) {
                rf_count_repair(actor, RF_REPAIR_LOCKS);
            }
            RF_POINT("reap.unlocked");
        }
        rf_futex_wake(lock, INT32_MAX);
        RF_POINT("reap.woken");
        atomic_store_explicit(&d->locks[i], 0, memory_order_release);
    }
}

static void clear_waiting(struct rf_actor *actor, struct rf_desc *d, uint32_t slot)
{
    struct rf_map *map = actor->map;
    uint64_t waiting = atomic_load_explicit(&d->waiting_run, memory_order_acquire);
    struct rf_runrec *run = waiting == 0 ? NULL : rf_run_at(map, (uint32_t)waiting - 1);
    if (run != NULL) {
        rf_waiter_unlist(run, slot);
        RF_POINT("reap.unlisted");
        rf_wake_claimers(map, run, UINT32_MAX); /* it may have swallowed a wake */
    }
    atomic_store_explicit(&d->waiting_run, 0, memory_order_release);
    uint64_t wake = atomic_load_explicit(&d->wake_run, memory_order_acquire);
    run = wake == 0 ? NULL : rf_run_at(map, (uint32_t)wake - 1);
    if (run != NULL) {
        rf_wake_claimers(map, run, UINT32_MAX);
    }
    atomic_store_explicit(&d->wake_run, 0, memory_order_release);
    if (map->header->sealing != 0) {
        /* Or nobody would be told of what has to be written. Its generation is over by now. */
        uint64_t flusher = atomic_load(&map->header->flusher);
        if (flusher != 0 && rf_id_gone(map, (uint32_t)flusher)) {
            atomic_compare_exchange_strong(&map->header->flusher, &flusher, 0);
        }
        /* It may have made something durable and told nobody. */
        rf_futex_wake_low(&map->header->durable, INT32_MAX, FUTEX_BITSET_MATCH_ANY);
    }
}

static uint32_t next_generation(uint32_t generation)
{
    generation++;
    return (generation & RF_ID_GENERATIONS) == 0 ? generation + 1 : generation;
}

static void reap(struct rf_actor *actor, uint32_t slot, struct rf_member *member)
{
    struct rf_slot *dead = rf_slot_at(actor->map, slot);
    struct rf_desc *d = &dead->desc;
    uint32_t generation = atomic_load_explicit(&member->generation, memory_order_acquire);
    uint32_t dead_id = rf_id(slot, generation);

    syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    settle(actor, slot, d);
    clear_pending(actor, d, dead_id);
    atomic_store_explicit(&d->state, RF_DESC_WORD(RF_DESC_IDLE, 0), memory_order_release);
    RF_POINT("reap.idle");
    /* The locks are free from here on. release: the redo, and IDLE, come first. */
    atomic_store_explicit(&member->generation, next_generation(generation), memory_order_release);
    RF_POINT("reap.generation");
    /* The locks to clear are looked for with the id that is now over. */
    clear_locks(actor, d, dead_id);
    clear_waiting(actor, d, slot);
    /* Leases of the generation that is over are found by the sweep; a second reaper that finds the
     * generation bumped and the phase not yet stored bumps it once more, which is harmless: what
     * the sweep looks for is "over", not a number. */
    atomic_store_explicit(&member->phase, RF_PHASE_REAPED, memory_order_release);
    RF_POINT("reap.phase");
    rf_futex_wake(&member->liveness, INT32_MAX);
    rf_count_repair(actor, RF_REPAIR_REAPED);
}

bool rf_reap_if_dead(struct rf_actor *actor, uint32_t slot)
{
    struct rf_member *member = rf_member_at(actor->map, slot);
    if (member == NULL || !rf_is_dead(member)) {
        return false;
    }
    if (atomic_load_explicit(&member->phase, memory_order_acquire) == RF_PHASE_REAPED) {
        return true;
    }
    if (!rf_settling_begin(actor)) {
        return false;
    }
    if (!rf_reaper_enter(actor, member)) {
        rf_settling_end(actor);
        return false;
    }
    /* Settled by another between the look and the entry? */
    if (rf_is_dead(member) &&
        atomic_load_explicit(&member->phase, memory_order_acquire) != RF_PHASE_REAPED) {
        reap(actor, slot, member);
    }
    rf_reaper_leave(actor, member);
    rf_settling_end(actor);
    return true;
}

void rf_reap_predecessor(struct rf_actor *actor)
{
    /* The liveness word is this actor's and no reaper is left, so nobody else reaps meanwhile; if it
     * dies in between, the next one finds the generation that it had and does it again. */
    reap(actor, actor->slot, actor->member);
    atomic_store_explicit(&actor->member->phase, RF_PHASE_LIVE, memory_order_release);
    actor->id =
        rf_id(actor->slot, atomic_load_explicit(&actor->member->generation, memory_order_acquire));
}
