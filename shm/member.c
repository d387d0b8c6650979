#define _GNU_SOURCE
#include "member.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "admit.h"
#include "futex.h"
#include "lane.h"
#include "log.h"
#include "point.h"
#include "reap.h"
#include "sweep.h"

#define WATCHERS_TOLD 3u
#define REPAIR_SLOT   0u

rf_status rf_robust_make(struct rf_robust **robust, rf_detail *detail)
{
    struct rf_robust *r =
        mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r == MAP_FAILED) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, errno, "mapping a page of memory");
    }
    madvise(r, sizeof(*r), MADV_DONTFORK);
    r->head.list.next = &r->head.list;
    r->head.futex_offset =
        (long)offsetof(struct rf_member, liveness) - (long)offsetof(struct rf_member, robust_next);
    r->head.list_op_pending = NULL;
    *robust = r;
    return RF_OK;
}

void rf_robust_drop(struct rf_robust *robust)
{
    munmap(robust, sizeof(*robust));
}

rf_status rf_robust_adopt(struct rf_robust *robust, rf_detail *detail)
{
    if (syscall(SYS_set_robust_list, &robust->head, sizeof(robust->head)) != 0) {
        return rf_refuse(detail, RF_UNSUPPORTED, errno, "set_robust_list");
    }
    return RF_OK;
}

/* The compiler must not move these stores: the kernel may read them between any two. */
#define KERNEL_SEES() atomic_signal_fence(memory_order_seq_cst)

static struct robust_list *node_of(struct rf_member *member)
{
    return (struct robust_list *)(void *)&member->robust_next;
}

static void link_node(struct rf_robust *robust, struct rf_member *member)
{
    struct robust_list *node = node_of(member);
    node->next = robust->head.list.next;
    KERNEL_SEES();
    robust->head.list.next = node;
    KERNEL_SEES();
    robust->nodes++;
}

static void unlink_node(struct rf_robust *robust, struct rf_member *member)
{
    struct robust_list *node = node_of(member);
    for (struct robust_list *at = &robust->head.list;; at = at->next) {
        if (at->next == node) {
            at->next = node->next;
            KERNEL_SEES();
            robust->nodes--;
            return;
        }
        assert(at->next != &robust->head.list);
    }
}

/* Swaps the liveness word from `from` to this thread's life. */
static bool take_word(struct rf_robust *robust, struct rf_member *member, uint32_t from)
{
    uint32_t life = (uint32_t)gettid() | FUTEX_WAITERS;
    if (robust != NULL) {
        robust->head.list_op_pending = node_of(member);
        KERNEL_SEES();
    }
    /* acq_rel: what the last owner's sweeper wrote is seen (rf_sweep_member). */
    bool taken = atomic_compare_exchange_strong_explicit(
        &member->liveness, &from, life, memory_order_acq_rel, memory_order_relaxed);
    RF_POINT("member.taken");
    if (robust != NULL) {
        if (taken) {
            link_node(robust, member);
            RF_POINT("member.linked");
        }
        robust->head.list_op_pending = NULL;
        KERNEL_SEES();
    }
    return taken;
}

static void raise_used(rf_word32 *used, uint32_t to)
{
    uint32_t old = atomic_load_explicit(used, memory_order_relaxed);
    while (old < to && !atomic_compare_exchange_weak_explicit(used, &old, to, memory_order_release,
                                                              memory_order_relaxed)) {
    }
}

/* The room of a slot is taken before the slot is, so that whoever reaps it may touch it. */
static rf_status ensure_slot(struct rf_map *map, uint32_t slot, rf_detail *detail)
{
    const struct rf_header *h = map->header;
    rf_status status =
        rf_region_ensure(map, h->slots.offset + slot * h->slots.stride, h->slots.stride, detail);
    if (status == RF_OK) {
        /* With a log lanes are large, and most members use little of theirs: rf_log_admit asks for
         * the rest when it is needed. */
        uint64_t bytes = h->sealing != 0 ? RF_GRANULE : h->lanes.stride;
        status = rf_region_ensure(map, h->lanes.offset + slot * h->lanes.stride, bytes, detail);
    }
    return status;
}

/* A lane goes on where its last owner stopped, who may have died right after a commit. */
static void resume_lane(struct rf_map *map, uint32_t slot)
{
    struct rf_lane_head *lane = &rf_slot_at(map, slot)->lane;
    uint64_t end = atomic_load_explicit(&lane->end, memory_order_relaxed);
    uint64_t resumed = rf_lane_end(lane);
    if (resumed != end) {
        const struct rf_lane_record *last =
            rf_lane_find(map, slot, (uint32_t)end & RF_LANE_OFFSET_MASK);
        assert(last != NULL);
        atomic_store_explicit(&lane->end, resumed, memory_order_release);
        rf_count(&lane->sequence, 1);
        lane->stamp = last->stamp;
    }
}

static void settle_in(struct rf_map *map, uint32_t slot, bool is_guardian, uint64_t now)
{
    struct rf_member *member = rf_member_at(map, slot);
    atomic_store_explicit(&member->pid, (uint32_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&member->joined_at, now, memory_order_relaxed);
    atomic_store_explicit(&member->is_guardian, is_guardian, memory_order_relaxed);
    struct rf_desc *d = &rf_slot_at(map, slot)->desc;
    /* Idle, and named nothing when it was left; a dead one's names are settled by now. */
    d->made_from = d->made_to = d->extent_from = d->extent_to = d->leaf_from = d->leaf_to = 0;
    d->run_taken = 0;
    memset(d->blocks, 0, sizeof(d->blocks));
    memset(d->frees, 0, sizeof(d->frees));
    resume_lane(map, slot);
    /* Pairs with the fence in rf_lanes_raise: whoever seals sees this lane, or the open epoch that is
     * read from here on is a later one. */
    atomic_thread_fence(memory_order_seq_cst);
}

rf_status rf_member_join(struct rf_map *map, struct rf_robust *robust, bool is_guardian,
                         uint64_t now, uint32_t *slot, rf_detail *detail)
{
    struct rf_header *h = map->header;
    uint32_t usable = h->slot_count - 1;
    uint32_t used = atomic_load_explicit(&h->members_used, memory_order_acquire);
    used = used == 0 ? 0 : used - 1; /* without the repair slot */
    uint32_t start = atomic_load_explicit(&h->member_hint, memory_order_relaxed);
    if (robust != NULL && robust->nodes >= ROBUST_LIST_LIMIT) {
        return rf_refuse(
            detail, RF_RESOURCE_EXHAUSTED, 0,
            "this process has %u handles, of more the kernel would not tell others when "
            "it dies; close some, or use more processes",
            robust->nodes - 1);
    }
    for (uint32_t n = 0; n < usable; n++) {
        /* The longest unused first: rounds over the slots in use, then a fresh one. */
        uint32_t i = n < used ? (start + n) % used : n;
        uint32_t s = 1 + i;
        struct rf_member *member = rf_member_at(map, s);
        if (atomic_load_explicit(&member->liveness, memory_order_relaxed) != 0) {
            continue;
        }
        rf_status status = ensure_slot(map, s, detail);
        if (status != RF_OK) {
            return status;
        }
        raise_used(&h->members_used, s + 1);
        if (take_word(robust, member, 0)) {
            settle_in(map, s, is_guardian, now);
            atomic_store_explicit(&h->member_hint, i + 1, memory_order_relaxed);
            *slot = s;
            return RF_OK;
        }
    }
    return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0,
                     "all %u member slots are in use; make the store with more members",
                     h->slot_count - 1);
}

void rf_member_leave(struct rf_map *map, struct rf_robust *robust, uint32_t slot)
{
    struct rf_member *member = rf_member_at(map, slot);
    uint32_t generation = atomic_load_explicit(&member->generation, memory_order_relaxed) + 1;
    generation += (generation & RF_ID_GENERATIONS) == 0;
    if (robust != NULL) {
        robust->head.list_op_pending = node_of(member);
        KERNEL_SEES();
        unlink_node(robust, member);
    }
    atomic_store_explicit(&member->generation, generation, memory_order_release);
    RF_POINT("member.over");
    atomic_store_explicit(&member->liveness, 0, memory_order_release);
    RF_POINT("member.left");
    if (robust != NULL) {
        robust->head.list_op_pending = NULL;
        KERNEL_SEES();
    }
}

void rf_member_abandon(struct rf_map *map, struct rf_robust *robust, uint32_t slot)
{
    struct rf_member *member = rf_member_at(map, slot);
    if (robust != NULL) {
        robust->head.list_op_pending = node_of(member);
        KERNEL_SEES();
        unlink_node(robust, member);
    }
    rf_declare_dead(map, slot);
    RF_POINT("member.abandoned");
    if (robust != NULL) {
        robust->head.list_op_pending = NULL;
        KERNEL_SEES();
    }
}

void rf_actor_init(struct rf_actor *actor, struct rf_map *map, uint32_t slot, uint64_t busy_ns)
{
    actor->map = map;
    actor->slot = slot;
    actor->member = rf_member_at(map, slot);
    actor->me = rf_slot_at(map, slot);
    actor->desc = &actor->me->desc;
    actor->lane = rf_lane_at(map, slot);
    actor->id = rf_id(slot, atomic_load_explicit(&actor->member->generation, memory_order_acquire));
    actor->busy_ns = busy_ns;
    rf_hasher_init(&actor->hasher);
    actor->logger = NULL;
    rf_log_resume(actor);
}

/* The life of a dead repairer was taken over; somebody may have begun to settle him before. Two at
 * it would leave the slot reaped by the slower one while it is in use. */
static bool last_reaper_left(const struct rf_map *map, const struct rf_member *member,
                             uint64_t until)
{
    while (rf_reaper_at_work(map, member)) {
        if (rf_monotonic_ns() > until) {
            return false;
        }
        usleep(100);
    }
    return true;
}

/* Enters by the repair slot. If its last user died, the newcomer takes over his life and settles
 * what he left as its own reaper. */
static rf_status enter_repair(struct rf_map *map, struct rf_robust *robust, uint64_t busy_ns,
                              uint64_t now, struct rf_actor *actor, rf_detail *detail)
{
    struct rf_member *member = rf_member_at(map, REPAIR_SLOT);
    rf_status status = ensure_slot(map, REPAIR_SLOT, detail);
    if (status != RF_OK) {
        return status;
    }
    raise_used(&map->header->members_used, REPAIR_SLOT + 1);
    uint64_t until = rf_monotonic_ns() + busy_ns;
    for (;;) {
        uint32_t life = atomic_load_explicit(&member->liveness, memory_order_acquire);
        bool dead = (life & FUTEX_OWNER_DIED) != 0;
        bool mine = (life == 0 || (dead && !rf_reaper_at_work(map, member))) &&
                    take_word(robust, member, life);
        if (mine && dead && !last_reaper_left(map, member, until)) {
            rf_member_abandon(map, robust, REPAIR_SLOT);
            mine = false;
        }
        if (mine) {
            rf_actor_init(actor, map, REPAIR_SLOT, busy_ns);
            if (dead) {
                rf_reap_predecessor(actor);
            }
            settle_in(map, REPAIR_SLOT, true, now);
            return RF_OK;
        }
        if (rf_monotonic_ns() > until) {
            return rf_refuse(detail, RF_BUSY, 0, "another process is repairing the store");
        }
        usleep(500);
    }
}

rf_status rf_member_repair(struct rf_map *map, struct rf_robust *robust, uint64_t busy_ns,
                           uint64_t now, rf_detail *detail)
{
    struct rf_actor *actor = malloc(sizeof(*actor));
    if (actor == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    rf_status status = enter_repair(map, robust, busy_ns, now, actor, detail);
    if (status == RF_OK) {
        if (map->header->sealing != 0) {
            status = rf_logger_make(map, actor->id, &actor->logger, detail);
        }
        if (status == RF_OK) {
            rf_sweep_all(actor, now);
        }
        if (actor->logger != NULL) {
            rf_logger_drop(actor->logger);
        }
        rf_member_leave(map, robust, REPAIR_SLOT);
    }
    free(actor);
    return status;
}

void rf_member_poke(struct rf_member *member)
{
    atomic_fetch_add_explicit(&member->poke, 1, memory_order_release);
    rf_futex_wake(&member->poke, 1);
}

void rf_member_announce(struct rf_map *map, uint32_t slot)
{
    uint32_t used = atomic_load_explicit(&map->header->members_used, memory_order_acquire);
    uint32_t told = 0;
    for (uint32_t n = 1; n < used && told < WATCHERS_TOLD; n++) {
        struct rf_member *m = rf_member_at(map, (slot + used - n) % used);
        if (rf_member_alive(m) && atomic_load_explicit(&m->is_guardian, memory_order_relaxed)) {
            rf_member_poke(m);
            told++;
        }
    }
}
