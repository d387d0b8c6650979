#define _GNU_SOURCE
#include "guardian.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "admit.h"
#include "futex.h"
#include "hold.h"
#include "log.h"
#include "member.h"
#include "pages.h"
#include "reap.h"
#include "renew.h"
#include "snapshot.h"
#include "sweep.h"

#define WATCH_MAX       120u
#define WATCH_GUARDIANS 60u /* of them */
#define SLEEP_NS        2000000000ull
#define RETRY_NS        10000000ull
#define RETRY_NS_MIN    50000ull
#define FLUSHER_LATE_NS 500000000ull
#define ASIDE_NS        1000000000ull
#define GROWN_NS        1000000000ull
/* After a snapshot that failed: doubled each time. */
#define SNAPSHOT_PAUSE_MIN 1000000000ull
#define SNAPSHOT_PAUSE_MAX 64000000000ull

enum request_kind { REQUEST_JOIN, REQUEST_LEAVE, REQUEST_ABANDON, REQUEST_STOP };

struct request {
    enum request_kind kind;
    uint32_t slot;
    rf_status status;
    rf_detail *detail;
    bool done;
    struct request *next;
};

/* Something that takes long, in a thread of its own: the guardian goes on watching. */
struct chore {
    pthread_t thread;
    struct rf_guardian *guardian;
    struct rf_logger *logger;
    void (*work)(struct chore *chore);
    bool writes; /* to the log: it needs a logger */
    bool started;
    _Atomic bool over;
};

struct rf_guardian {
    struct rf_map *map;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t answered;
    struct request *requests;  /* under lock */
    struct rf_keepalive *kept; /* under lock */
    bool ready;
    rf_status status;
    rf_detail *detail;
    uint64_t busy_ns;
    struct rf_robust *robust;
    struct rf_actor actor;
    struct chore pages;
    uint64_t grown_at; /* since when large pages can be had for something; 0: never. monotonic */
    /* with a log */
    struct chore room;
    struct chore snapshot;
    _Atomic uint64_t snapshot_at; /* not before; the last one failed. monotonic */
    uint64_t snapshot_pause;      /* ns; the chore's */
    uint64_t aside_until;         /* others flush: this process can't. monotonic */
    uint64_t tick_at;             /* monotonic */
    uint64_t seen;                /* the last epoch with records, at the last tick */
    uint64_t activity;
};

/* --- the thread --- */

static rf_status join_or_repair(struct rf_guardian *g, bool is_guardian, uint32_t *slot,
                                rf_detail *detail)
{
    uint64_t now = rf_region_now(g->map);
    rf_status status = rf_member_join(g->map, g->robust, is_guardian, now, slot, detail);
    if (status == RF_RESOURCE_EXHAUSTED) {
        /* Perhaps the slots are only full of the dead. */
        if (is_guardian) {
            rf_status repaired = rf_member_repair(g->map, g->robust, g->busy_ns, now, detail);
            if (repaired != RF_OK) {
                return repaired;
            }
        } else {
            rf_sweep_all(&g->actor, now);
        }
        status = rf_member_join(g->map, g->robust, is_guardian, now, slot, detail);
    }
    if (status == RF_OK) {
        rf_member_announce(g->map, *slot);
    }
    return status;
}

/* Returns whether the guardian is to stop. */
static bool answer_requests(struct rf_guardian *g)
{
    bool stop = false;
    pthread_mutex_lock(&g->lock);
    while (g->requests != NULL) {
        struct request *r = g->requests;
        g->requests = r->next;
        pthread_mutex_unlock(&g->lock);
        switch (r->kind) {
        case REQUEST_JOIN:
            r->status = join_or_repair(g, false, &r->slot, r->detail);
            break;
        case REQUEST_LEAVE:
            rf_member_leave(g->map, g->robust, r->slot);
            r->status = RF_OK;
            break;
        case REQUEST_ABANDON:
            rf_member_abandon(g->map, g->robust, r->slot);
            r->status = RF_OK;
            break;
        case REQUEST_STOP:
            r->status = RF_OK;
            stop = true;
            break;
        }
        pthread_mutex_lock(&g->lock);
        r->done = true;
        pthread_cond_broadcast(&g->answered);
    }
    pthread_mutex_unlock(&g->lock);
    return stop;
}

/* Renews what is due. Returns when the next one is, monotonic. */
static uint64_t renew_kept(struct rf_guardian *g)
{
    uint64_t next = UINT64_MAX;
    pthread_mutex_lock(&g->lock);
    for (struct rf_keepalive *k = g->kept; k != NULL; k = k->next) {
        uint64_t now = rf_monotonic_ns();
        if (!k->active) {
            continue;
        }
        if (k->due <= now) {
            struct rf_renewal renewal = {0};
            rf_status status = rf_renew_lease(&g->actor, &k->tenant, &k->lease,
                                              rf_region_now(g->map), &renewal, NULL);
            if (status == RF_OK) {
                k->lease.deadline = renewal.deadline;
                k->run_status = renewal.run_status;
                /* A run that has ended needs nobody's work: let the session know and stop. */
                k->active = !rf_run_is_terminal(renewal.run_status);
                k->status = k->active ? RF_OK : RF_RUN_TERMINAL;
                k->due = now + k->duration / 3;
            } else if (status == RF_BUSY) {
                k->due = now + RETRY_NS;
            } else {
                k->active = false;
                k->status = status;
            }
        }
        if (k->active && k->due < next) {
            next = k->due;
        }
    }
    pthread_mutex_unlock(&g->lock);
    return next;
}

/* Living members behind this one, guardians or others, until there are `most` words. Returns false if somebody
 * has died since the roster was looked at. */
static bool watch_next(struct rf_guardian *g, bool guardians, uint32_t most,
                       struct futex_waitv *watch, uint32_t *n)
{
    uint32_t used = atomic_load_explicit(&g->map->header->members_used, memory_order_acquire);
    for (uint32_t i = 1; i < used && *n < most; i++) {
        struct rf_member *m = rf_member_at(g->map, (g->actor.slot + i) % used);
        uint32_t life = atomic_load_explicit(&m->liveness, memory_order_acquire);
        bool guards = atomic_load_explicit(&m->is_guardian, memory_order_relaxed) != 0;
        if ((life & FUTEX_OWNER_DIED) != 0) {
            return false;
        }
        if (life != 0 && guards == guardians) {
            watch[(*n)++] = rf_futex_watch(&m->liveness, life);
        }
    }
    return true;
}

/* The words to sleep on: the poke word as it was before the roster was looked at, and lives. Guardians first:
 * with a process dies its guardian, and the many handles of one (this one's, too) must not hide the others.
 * Handles by themselves are declared dead by those that abort. Returns 0 if somebody has died since: nobody
 * would wake us for that any more. */
static uint32_t build_watch(struct rf_guardian *g, uint32_t poke, struct futex_waitv *watch)
{
    uint32_t n = 0;
    watch[n++] = rf_futex_watch(&g->actor.member->poke, poke);
    bool all_live = watch_next(g, true, 1 + WATCH_GUARDIANS, watch, &n) &&
                    watch_next(g, false, 1 + WATCH_MAX, watch, &n);
    return all_live ? n : 0;
}

/* --- chores --- */

static void *chore_main(void *argument)
{
    struct chore *c = argument;
    if (!c->writes || c->logger != NULL ||
        rf_logger_make(c->guardian->map, c->guardian->actor.id, &c->logger, NULL) == RF_OK) {
        c->work(c);
    }
    atomic_store_explicit(&c->over, true, memory_order_release);
    return NULL;
}

static void end_chore(struct chore *c)
{
    if (c->started) {
        pthread_join(c->thread, NULL);
        c->started = false;
    }
}

static void start_chore(struct rf_guardian *g, struct chore *c, bool writes,
                        void (*work)(struct chore *))
{
    if (c->started && !atomic_load_explicit(&c->over, memory_order_acquire)) {
        return;
    }
    end_chore(c);
    c->guardian = g;
    c->writes = writes;
    c->work = work;
    atomic_store(&c->over, false);
    c->started = pthread_create(&c->thread, NULL, chore_main, c) == 0;
}

static void enlarge_pages(struct chore *c)
{
    rf_pages_enlarge(c->guardian->map);
}

/* Not at once: who only comes to make a run, and leaves, would wait for it. Returns when to come back. */
static uint64_t tend_pages(struct rf_guardian *g)
{
    uint64_t now = rf_monotonic_ns();
    if (!rf_pages_due(g->map)) {
        g->grown_at = 0;
        return UINT64_MAX;
    }
    if (g->grown_at == 0) {
        g->grown_at = now;
    }
    if (now < g->grown_at + GROWN_NS) {
        return g->grown_at + GROWN_NS;
    }
    start_chore(g, &g->pages, false, enlarge_pages);
    return UINT64_MAX;
}

/* --- the log --- */

static void make_room(struct chore *c)
{
    rf_log_make_room(c->logger, NULL);
}

static void take_snapshot(struct chore *c)
{
    struct rf_guardian *g = c->guardian;
    uint64_t pause = 2 * g->snapshot_pause;
    pause = pause < SNAPSHOT_PAUSE_MIN ? SNAPSHOT_PAUSE_MIN : pause;
    pause = pause > SNAPSHOT_PAUSE_MAX ? SNAPSHOT_PAUSE_MAX : pause;
    bool taken = rf_snapshot_take(&g->actor, c->logger, NULL) == RF_OK;
    g->snapshot_pause = taken ? 0 : pause;
    atomic_store(&g->snapshot_at, taken ? 0 : rf_monotonic_ns() + pause);
}

/* One guardian of the store at a time is the flusher; one that was not heard of for long is replaced. */
static bool is_flusher(struct rf_guardian *g, uint64_t now)
{
    struct rf_header *h = g->map->header;
    uint64_t who = atomic_load(&h->flusher);
    if (who == g->actor.id) {
        return true;
    }
    bool needed = who == 0 || rf_id_gone(g->map, (uint32_t)who) ||
                  now > atomic_load(&h->flusher_at) + FLUSHER_LATE_NS + 10 * h->flush_ns;
    bool work = rf_log_last(g->map) > atomic_load(&h->durable) ||
                atomic_load(&h->log_vouched) < atomic_load(&h->log_content);
    if (!needed || !work || !atomic_compare_exchange_strong(&h->flusher, &who, g->actor.id)) {
        return false;
    }
    atomic_store(&h->flusher_at, now);
    g->seen = 0;
    g->activity = UINT64_MAX;
    g->tick_at = now;
    return true;
}

/* Nothing came for a whole tick. */
static void stop_flushing(struct rf_guardian *g)
{
    struct rf_header *h = g->map->header;
    uint64_t me = g->actor.id;
    rf_log_close(g->actor.logger, NULL);
    if (!atomic_compare_exchange_strong(&h->flusher, &me, 0)) {
        return;
    }
    /* seq_cst, pairs with rf_log_note: who commits after this finds nobody at it; who did before is seen below. */
    atomic_thread_fence(memory_order_seq_cst);
    if (rf_log_activity(g->map) != g->activity) {
        uint64_t nobody = 0;
        atomic_compare_exchange_strong(&h->flusher, &nobody, g->actor.id);
    }
}

/* What nobody waits for is written after half an interval at the earliest and a whole one at the latest;
 * what others wait for they write themselves. Returns when to come back. */
static uint64_t tend_log(struct rf_guardian *g)
{
    struct rf_map *map = g->map;
    struct rf_header *h = map->header;
    uint64_t now = rf_monotonic_ns();
    if (atomic_exchange(&map->flush_now, false)) {
        rf_log_wait(g->actor.logger, rf_log_last(map), NULL);
    }
    if (atomic_load(&h->log_short) != 0) {
        /* Nothing comes any more that would have to be flushed. */
        start_chore(g, &g->room, true, make_room);
    }
    if (now < g->aside_until) {
        return g->aside_until;
    }
    if (!is_flusher(g, now)) {
        return UINT64_MAX;
    }
    if (now < g->tick_at) {
        return g->tick_at;
    }
    atomic_store(&h->flusher_at, now);
    uint64_t activity = rf_log_activity(map), last = rf_log_last(map);
    rf_detail why = {0};
    if (g->seen > atomic_load(&h->durable)) {
        if (rf_log_wait(g->actor.logger, g->seen, &why) != RF_OK &&
            rf_log_own_limit(g->actor.logger, why.os_error)) {
            uint64_t me = g->actor.id;
            atomic_compare_exchange_strong(&h->flusher, &me,
                                           0); /* whoever notes something next wakes another */
            g->aside_until = now + ASIDE_NS;
            return g->aside_until;
        }
    } else if (activity == g->activity) {
        stop_flushing(g);
    }
    g->seen = last;
    g->activity = activity;
    g->tick_at = rf_monotonic_ns() + h->flush_ns / 2;
    if (rf_log_needs_room(map)) {
        start_chore(g, &g->room, true, make_room);
    }
    if (rf_snapshot_due(map) && now >= atomic_load(&g->snapshot_at)) {
        start_chore(g, &g->snapshot, true, take_snapshot);
    }
    return atomic_load(&h->flusher) == g->actor.id ? g->tick_at : UINT64_MAX;
}

static rf_status begin_log(struct rf_guardian *g, rf_detail *detail)
{
    if (g->map->header->sealing == 0) {
        return RF_OK;
    }
    return rf_logger_make(g->map, g->actor.id, &g->actor.logger, detail);
}

static void end_chores(struct rf_guardian *g)
{
    atomic_store(&g->map->closing, true);
    end_chore(&g->pages);
    end_chore(&g->room);
    end_chore(&g->snapshot);
    atomic_store(&g->map->closing, false);
}

static void end_log(struct rf_guardian *g)
{
    if (g->actor.logger == NULL) {
        return;
    }
    if (rf_log_wait(g->actor.logger, rf_log_last(g->map), NULL) == RF_OK) {
        rf_log_close(g->actor.logger, NULL);
    }
    uint64_t me = g->actor.id;
    atomic_compare_exchange_strong(&g->map->header->flusher, &me, 0);
    struct rf_logger *loggers[] = {g->room.logger, g->snapshot.logger, g->actor.logger};
    for (unsigned i = 0; i < 3; i++) {
        if (loggers[i] != NULL) {
            rf_logger_drop(loggers[i]);
        }
    }
}

static void guard(struct rf_guardian *g)
{
    uint64_t retry = RETRY_NS_MIN;
    struct futex_waitv watch[1 + WATCH_MAX];
    for (;;) {
        uint32_t poke = atomic_load_explicit(&g->actor.member->poke, memory_order_acquire);
        if (answer_requests(g)) {
            return;
        }
        bool clean = true;
        uint64_t due = UINT64_MAX;
        bool may_settle = rf_settling_begin(&g->actor);
        if (may_settle) {
            clean = rf_sweep_all(&g->actor, rf_region_now(g->map));
            rf_hold_note_sometimes(g->map);
            due = renew_kept(g);
            rf_settling_end(&g->actor);
        }
        if (g->actor.logger != NULL) {
            uint64_t tick = tend_log(g);
            due = tick < due ? tick : due;
        }
        uint64_t grown = tend_pages(g);
        due = grown < due ? grown : due;
        uint32_t words = build_watch(g, poke, watch);
        if (words == 0 && clean && may_settle) {
            continue;
        }
        /* What could not be settled now is tried again soon, whoever wakes us: as a rule somebody had the lock
         * for a microsecond, and a claimer sleeps until the lease of the dead is given up. Somebody who was
         * stopped with it is asked less and less often. */
        words = words == 0 ? 1 : words;
        uint64_t until = rf_monotonic_ns() + (clean ? SLEEP_NS : retry);
        retry = clean ? RETRY_NS_MIN : retry < RETRY_NS / 2 ? 2 * retry : RETRY_NS;
        rf_futex_waitv(watch, words, until < due ? until : due);
    }
}

static void *guardian_main(void *argument)
{
    struct rf_guardian *g = argument;
    uint32_t slot = 0;
    pthread_setname_np(pthread_self(), "rf-guardian");
    rf_status status = rf_robust_adopt(g->robust, g->detail);
    if (status == RF_OK) {
        status = join_or_repair(g, true, &slot, g->detail);
    }
    if (status == RF_OK) {
        rf_actor_init(&g->actor, g->map, slot, g->busy_ns);
        status = begin_log(g, g->detail);
        if (status != RF_OK) {
            rf_member_leave(g->map, g->robust, slot);
        }
    }
    pthread_mutex_lock(&g->lock);
    g->status = status;
    g->ready = true;
    pthread_cond_broadcast(&g->answered);
    pthread_mutex_unlock(&g->lock);
    if (status == RF_OK) {
        guard(g);
        end_chores(g);
        end_log(g);
        rf_member_leave(g->map, g->robust, slot);
    }
    return NULL;
}

/* --- called by handles --- */

static rf_status start_thread(struct rf_guardian *g)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's handlers run elsewhere */
    int error = pthread_create(&g->thread, NULL, guardian_main, g);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return rf_refuse(g->detail, RF_RESOURCE_EXHAUSTED, error, "starting the guardian thread");
    }
    pthread_mutex_lock(&g->lock);
    while (!g->ready) {
        pthread_cond_wait(&g->answered, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
    if (g->status != RF_OK) {
        pthread_join(g->thread, NULL);
    }
    g->detail = NULL;
    return g->status;
}

rf_status rf_guardian_start(struct rf_map *map, uint64_t busy_ns, rf_detail *detail)
{
    struct rf_guardian *g = calloc(1, sizeof(*g));
    if (g == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    g->map = map;
    g->busy_ns = busy_ns;
    g->detail = detail;
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->answered, NULL);
    rf_status status = rf_robust_make(&g->robust, detail);
    if (status == RF_OK) {
        status = start_thread(g);
        if (status != RF_OK) {
            rf_robust_drop(g->robust);
        }
    }
    if (status != RF_OK) {
        free(g);
        return status;
    }
    map->guardian = g;
    return RF_OK;
}

void rf_guardian_hurry(struct rf_map *map)
{
    if (map->guardian != NULL) {
        rf_member_poke(map->guardian->actor.member);
    }
}

static void ask(struct rf_guardian *g, struct request *r)
{
    pthread_mutex_lock(&g->lock);
    r->next = g->requests;
    g->requests = r;
    pthread_mutex_unlock(&g->lock);
    rf_member_poke(g->actor.member);
    pthread_mutex_lock(&g->lock);
    while (!r->done) {
        pthread_cond_wait(&g->answered, &g->lock);
    }
    pthread_mutex_unlock(&g->lock);
}

void rf_guardian_stop(struct rf_map *map)
{
    struct rf_guardian *g = map->guardian;
    struct request r = {.kind = REQUEST_STOP};
    ask(g, &r);
    pthread_join(g->thread, NULL);
    rf_robust_drop(g->robust);
    pthread_cond_destroy(&g->answered);
    pthread_mutex_destroy(&g->lock);
    free(g);
    map->guardian = NULL;
}

rf_status rf_guardian_join(struct rf_map *map, uint32_t *slot, rf_detail *detail)
{
    struct request r = {.kind = REQUEST_JOIN, .detail = detail};
    ask(map->guardian, &r);
    *slot = r.slot;
    return r.status;
}

void rf_guardian_leave(struct rf_map *map, uint32_t slot)
{
    struct request r = {.kind = REQUEST_LEAVE, .slot = slot};
    ask(map->guardian, &r);
}

void rf_guardian_abandon(struct rf_map *map, uint32_t slot)
{
    struct request r = {.kind = REQUEST_ABANDON, .slot = slot};
    ask(map->guardian, &r);
}

void rf_guardian_keep(struct rf_map *map, struct rf_keepalive *k)
{
    struct rf_guardian *g = map->guardian;
    pthread_mutex_lock(&g->lock);
    k->due = rf_monotonic_ns() + k->duration / 3;
    k->active = true;
    k->status = RF_OK;
    k->next = g->kept;
    g->kept = k;
    pthread_mutex_unlock(&g->lock);
    if (k->duration / 3 < SLEEP_NS) {
        rf_member_poke(g->actor.member); /* else it looks in time by itself */
    }
}

rf_status rf_guardian_unkeep(struct rf_map *map, struct rf_keepalive *k)
{
    struct rf_guardian *g = map->guardian;
    pthread_mutex_lock(&g->lock);
    for (struct rf_keepalive **at = &g->kept; *at != NULL; at = &(*at)->next) {
        if (*at == k) {
            *at = k->next;
            break;
        }
    }
    rf_status status = k->status;
    k->active = false;
    pthread_mutex_unlock(&g->lock);
    return status;
}

rf_status rf_guardian_kept(struct rf_map *map, const struct rf_keepalive *k, uint64_t *deadline,
                           rf_run_status *run_status)
{
    struct rf_guardian *g = map->guardian;
    pthread_mutex_lock(&g->lock);
    rf_status status = k->status;
    *deadline = k->lease.deadline;
    *run_status = k->run_status;
    pthread_mutex_unlock(&g->lock);
    return status;
}
