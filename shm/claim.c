#include "claim.h"

#include "futex.h"
#include "handle.h"
#include "operation.h"
#include "point.h"
#include "range.h"
#include "renew.h"
#include "shard_ops.h"
#include "sweep.h"

#define SLEEP_NS_MAX    (10 * RF_SECOND) /* every sleep ends by itself */
#define SLEEP_NS_LEAST  (2 * RF_SECOND)  /* ... but not for leases that nobody has yet */
#define STAGGER_NS      (2 * RF_MILLISECOND)
#define NAP_NS_FIRST    (50 * RF_MICROSECOND) /* for what was skipped: a hold lasts a microsecond, */
#define NAP_NS_MAX      (10 * RF_MILLISECOND) /* ... or until somebody stopped goes on */
#define COOLDOWN_WINDOW 8u
#define LOAD64(word)    atomic_load_explicit(&(word), memory_order_relaxed)

/* --- waiters --- */

void rf_waiter_list(struct rf_runrec *run, uint32_t slot)
{
    atomic_fetch_or_explicit(&run->waiters[slot / 64], 1ull << (slot % 64), memory_order_seq_cst);
    RF_POINT("claim.listed");
    atomic_fetch_or_explicit(&run->waiter_summary, 1ull << (slot / 64), memory_order_seq_cst);
    RF_POINT("claim.summed");
}

/* Whoever clears a summary bit looks at the word again, and sets it again if it must. */
void rf_waiter_unlist(struct rf_runrec *run, uint32_t slot)
{
    rf_word64 *word = &run->waiters[slot / 64];
    atomic_fetch_and_explicit(word, ~(1ull << (slot % 64)), memory_order_seq_cst);
    RF_POINT("claim.unlisted");
    if (atomic_load_explicit(word, memory_order_seq_cst) == 0) {
        atomic_fetch_and_explicit(&run->waiter_summary, ~(1ull << (slot / 64)),
                                  memory_order_seq_cst);
        RF_POINT("claim.unsummed");
        if (atomic_load_explicit(word, memory_order_seq_cst) != 0) {
            atomic_fetch_or_explicit(&run->waiter_summary, 1ull << (slot / 64),
                                     memory_order_seq_cst);
        }
    }
}

/* How many wait before this one. */
static uint64_t waiter_rank(const struct rf_runrec *run, uint32_t slot)
{
    uint64_t rank = 0;
    for (uint32_t w = 0; w < slot / 64; w++) {
        rank += (uint64_t)__builtin_popcountll(LOAD64(run->waiters[w]));
    }
    uint64_t below = LOAD64(run->waiters[slot / 64]) & ((1ull << (slot % 64)) - 1);
    return rank + (uint64_t)__builtin_popcountll(below);
}

/* --- one attempt --- */

struct attempt {
    struct rf_handle *handle;
    const rf_tenant *tenant;
    uint64_t now;
    uint64_t worker;
    uint32_t flags;
    uint32_t run_slot;
    uint64_t uid;
    struct rf_runrec *run;
    struct rf_skipped skipped; /* shards of which it knows nothing */
    rf_grant *grant;
    rf_result *result;
};

static bool too_many_attempts(const struct rf_op *op)
{
    return op->run->has_max_retries != 0 && op->view.state->attempts > op->run->max_retries;
}

/* Tries the shard at a position. *taken: the answer is final; otherwise look further. */
static rf_status try_position(struct attempt *a, uint64_t position, bool *taken)
{
    struct rf_op op;
    bool gone = false;
    rf_detail *detail = rf_detail_of(a->result);
    uint32_t slot = rf_dir_slot(a->handle->map, a->run, position);
    *taken = false;
    if (slot == RF_NO_SLOT) {
        return RF_OK;
    }
    rf_op_begin(&op, &a->handle->actor);
    op.impatient = true;
    rf_status status = rf_op_open_slot(&op, a->run_slot, a->uid, slot, &gone, detail);
    if (rf_op_skips(&op, status, &a->skipped)) {
        status = RF_OK;
    } else if (status == RF_OK && !gone && rf_shard_available_at(op.view.state, a->now)) {
        status = rf_op_lock_run(&op, RF_RUN_NOT_FOUND, detail);
        if (status == RF_OK && rf_run_is_terminal((rf_run_status)LOAD64(op.run->status))) {
            status = RF_RUN_TERMINAL;
        }
        if (status == RF_OK && too_many_attempts(&op)) {
            rf_shard_park_exhausted(&op.view, &op.step);
            status = rf_op_execute(&op, a->now, 0, detail);
        } else if (status == RF_OK) {
            const struct rf_call call = {.tenant = a->tenant, .now = a->now};
            status = rf_op_grant(&op, &call, a->worker, a->flags, a->grant, a->result);
            *taken = true;
            if (a->result != NULL) {
                a->result->epoch = op.map->header->sealing != 0 ? op.epoch : 0;
            }
            if (status == RF_OK && a->result != NULL) {
                a->result->outcome = RF_EXECUTED;
                a->result->has_event = a->result->want_event;
                if (a->result->want_event) {
                    rf_shard_event(&op.view, &op.step, a->now, &a->result->event);
                }
            }
        }
    }
    *taken = *taken || status != RF_OK;
    rf_op_end(&op);
    return status;
}

/* Positions [from, to), in order. */
static rf_status try_range(struct attempt *a, uint64_t from, uint64_t to, bool *taken)
{
    *taken = false;
    while (from < to) {
        uint64_t position = rf_dir_next_claimable(a->handle->map, a->run, from, to);
        if (position == UINT64_MAX) {
            break;
        }
        rf_status status = try_position(a, position, taken);
        if (*taken) {
            return status;
        }
        from = position + 1;
    }
    return RF_OK;
}

static rf_status search(struct attempt *a)
{
    bool taken = false;
    uint64_t count = atomic_load_explicit(&a->run->count, memory_order_acquire);
    if (count != 0) {
        uint64_t start = a->worker % count;
        rf_status status = try_range(a, start, count, &taken);
        if (!taken) {
            status = try_range(a, 0, start, &taken);
        }
        if (taken) {
            return status;
        }
    }
    return RF_NONE_AVAILABLE;
}

/* Expired leases first, then what is there; the leases of the dead only if nothing is. When it says
 * RF_NONE_AVAILABLE, a->skipped tells whether that is all that there is to know. */
static rf_status attempt(struct attempt *a, uint64_t run)
{
    struct rf_handle *h = a->handle;
    rf_detail *detail = rf_detail_of(a->result);
    rf_status status = rf_find_run(h->map, a->tenant, run, &a->run_slot, &a->uid);
    a->skipped = (struct rf_skipped){0};
    if (status != RF_OK) {
        return status;
    }
    a->run = rf_run_at(h->map, a->run_slot);
    if (rf_run_is_terminal((rf_run_status)LOAD64(a->run->status))) {
        return RF_RUN_TERMINAL;
    }
    status = rf_sweep_expired(&h->actor, a->run_slot, a->uid, a->now, false, &a->skipped, detail);
    if (status != RF_OK) {
        return status;
    }
    status = search(a);
    if (status == RF_NONE_AVAILABLE && !h->manual) {
        rf_sweep_all(&h->actor, a->now);
        status = search(a);
    }
    if (status == RF_NONE_AVAILABLE) {
        RF_POINT("claim.none"); /* from here on something may come that was not seen */
    }
    if (status == RF_NONE_AVAILABLE && detail != NULL) {
        uint64_t earliest = LOAD64(a->run->earliest);
        detail->deadline = earliest == RF_NO_DEADLINE ? 0 : earliest;
    }
    return status;
}

/* --- cooldown --- */

/* The worker's cell, or a free one; under the worker's stripe. */
static struct rf_cooldown *cooldown_cell(const struct rf_map *map, uint64_t worker, uint64_t now)
{
    const struct rf_section *cells = &map->header->cooldowns;
    uint64_t hash = (worker + 1) * 0x9E3779B97F4A7C15ull;
    uint64_t base = (hash >> 32) & (RF_COOLDOWN_CELLS - 1) & ~(uint64_t)(COOLDOWN_WINDOW - 1);
    struct rf_cooldown *unused = NULL;
    for (uint64_t i = 0; i < COOLDOWN_WINDOW; i++) {
        struct rf_cooldown *c = rf_section_at(map, cells, base + i);
        uint64_t at = LOAD64(c->claimed_at);
        if (at != 0 && LOAD64(c->worker) == worker) {
            return c;
        }
        if (at == 0 || rf_add_saturating(at, map->header->claim_cooldown) <= now) {
            unused = c;
        }
    }
    return unused;
}

/* One stripe for all workers that share a window. */
static rf_word32 *cooldown_stripe(const struct rf_map *map, uint64_t worker)
{
    uint64_t hash = (worker + 1) * 0x9E3779B97F4A7C15ull;
    uint64_t window = ((hash >> 32) & (RF_COOLDOWN_CELLS - 1)) / COOLDOWN_WINDOW;
    return rf_section_at(map, &map->header->stripes, window % RF_STRIPES);
}

/* The claim counts from before it is made, and is taken back if it was none: a death in between
 * costs the worker a cooldown, and never lets it claim too soon. */
static rf_status attempt_cooled(struct attempt *a, uint64_t run)
{
    struct rf_map *map = a->handle->map;
    struct rf_actor *actor = &a->handle->actor;
    rf_detail *detail = rf_detail_of(a->result);
    uint64_t cooldown = map->header->claim_cooldown;
    if (cooldown == 0) {
        return attempt(a, run);
    }
    rf_word32 *stripe = cooldown_stripe(map, a->worker);
    rf_status status = rf_lock(actor, stripe, RF_LOCK_STRIPE, detail);
    if (status != RF_OK) {
        return status;
    }
    struct rf_cooldown *cell = cooldown_cell(map, a->worker, a->now);
    if (cell == NULL) {
        status = rf_refuse(detail, RF_RESOURCE_EXHAUSTED, 0, "too many workers claim at once");
    } else {
        uint64_t was_worker = LOAD64(cell->worker), was_at = LOAD64(cell->claimed_at);
        bool his = was_at != 0 && was_worker == a->worker;
        uint64_t free_at = his ? rf_add_saturating(was_at, cooldown) : 0;
        uint64_t all_from = LOAD64(map->header->claims_from);
        free_at = free_at < all_from ? all_from : free_at;
        if (a->now < free_at) {
            status = RF_THROTTLED;
            if (detail != NULL) {
                detail->retry_after = free_at - a->now;
            }
        } else {
            atomic_store_explicit(&cell->worker, a->worker, memory_order_relaxed);
            atomic_store_explicit(&cell->claimed_at, a->now, memory_order_relaxed);
            RF_POINT("claim.cooled");
            status = attempt(a, run);
            if (status != RF_OK) {
                atomic_store_explicit(&cell->claimed_at, his ? was_at : 0, memory_order_relaxed);
            }
        }
    }
    rf_unlock(actor, stripe, RF_LOCK_STRIPE);
    return status;
}

/* --- waiting --- */

/* The deadlines that are known now are waited for as they are. A lease that is granted meanwhile can't
 * run out before one lease duration has passed: then it is time to look again, though with short
 * leases not every few milliseconds for something that may never come. */
static uint64_t sleep_until(const struct attempt *a, uint64_t give_up)
{
    uint64_t now = rf_monotonic_ns();
    uint64_t sleep = __atomic_load_n(&a->run->lease_duration, __ATOMIC_RELAXED);
    sleep = sleep < SLEEP_NS_LEAST ? SLEEP_NS_LEAST : sleep;
    uint64_t earliest = LOAD64(a->run->earliest);
    if (earliest != RF_NO_DEADLINE) {
        uint64_t left = earliest > a->now ? earliest - a->now : 0;
        sleep = left < sleep ? left : sleep;
    }
    sleep = rf_add_saturating(sleep, (1 + waiter_rank(a->run, a->handle->actor.slot)) * STAGGER_NS);
    uint64_t until = now + (sleep < SLEEP_NS_MAX ? sleep : SLEEP_NS_MAX);
    return give_up < until ? give_up : until;
}

/* Whoever has the lock of a shard that was skipped need not wake anybody when he goes on: it is looked
 * at again by and by. */
static uint64_t nap_until(const struct attempt *a, unsigned naps)
{
    uint64_t nap = naps < 8 ? NAP_NS_FIRST << naps : NAP_NS_MAX;
    nap = nap < NAP_NS_MAX ? nap
                           : NAP_NS_MAX + waiter_rank(a->run, a->handle->actor.slot) * STAGGER_NS;
    return rf_monotonic_ns() + nap;
}

/* With a clock of its own, or told not to wait, it does not wait for shards, but as long as others do for
 * the locks of those that it skipped. */
static rf_status wait_and_claim(struct attempt *a, uint64_t run, uint64_t timeout)
{
    struct rf_handle *h = a->handle;
    struct rf_desc *d = h->actor.desc;
    struct rf_runrec *listed = a->run;
    uint64_t uid = a->uid;
    uint64_t begun = rf_monotonic_ns();
    uint64_t give_up = rf_add_saturating(begun, timeout);
    uint64_t patient = rf_add_saturating(begun, h->actor.busy_ns);
    unsigned naps = 0;
    rf_status status;
    /* Named before it is slept on: the reaper clears the bit and wakes another. */
    atomic_store_explicit(&d->waiting_run, a->run_slot + 1u, memory_order_release);
    rf_waiter_list(listed, h->actor.slot);
    for (;;) {
        uint32_t seen = atomic_load_explicit(&listed->claim, memory_order_seq_cst);
        a->now = timeout == 0 ? a->now : rf_handle_now(h);
        status = attempt_cooled(a, run);
        bool same_run = a->run == listed && a->uid == uid;
        bool skipped = a->skipped.any;
        uint64_t until = skipped && patient > give_up ? patient : give_up;
        if (status != RF_NONE_AVAILABLE || rf_monotonic_ns() >= until || !same_run) {
            break;
        }
        rf_count(&h->actor.me->counters.sleeps, 1);
        uint64_t wake = skipped ? nap_until(a, naps) : sleep_until(a, give_up);
        naps = skipped ? naps + 1 : 0;
        if (rf_futex_wait(&listed->claim, seen, wake < until ? wake : until) == 0) {
            rf_count(&h->actor.me->counters.wakes, 1);
        }
        RF_POINT("claim.woken");
    }
    rf_waiter_unlist(listed, h->actor.slot);
    if (status != RF_OK && (status != RF_NONE_AVAILABLE || a->skipped.any)) {
        rf_wake_claimers(h->map, listed, 1); /* the wake that it may have used up was another's */
    }
    atomic_store_explicit(&d->waiting_run, 0, memory_order_release);
    return status;
}

rf_status rf_shm_claim(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       uint64_t worker, uint32_t flags, uint64_t timeout, rf_grant *grant,
                       rf_result *result)
{
    struct rf_handle *h = rf_handle_of(store);
    struct attempt a = {.handle = h,
                        .tenant = tenant,
                        .now = now,
                        .worker = worker,
                        .flags = flags,
                        .grant = grant,
                        .result = result};
    rf_detail_fresh(result);
    rf_status status = now == 0 ? RF_INVALID_TIME : attempt_cooled(&a, run);
    timeout = h->clock == NULL ? timeout : 0;
    if (status == RF_NONE_AVAILABLE && (timeout != 0 || a.skipped.any)) {
        status = wait_and_claim(&a, run, timeout);
    }
    if (status == RF_NONE_AVAILABLE && a.skipped.any) {
        rf_count(&h->actor.me->counters.busy, 1);
        status = rf_refuse_skipped(&a.skipped, rf_detail_of(result));
    }
    return rf_counted(&h->actor, RF_CLASS_CLAIM, status, RF_EXECUTED);
}
