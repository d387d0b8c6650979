#include <inttypes.h>
#include <string.h>

#include "handle.h"
#include "point.h"
#include "sim.h"

static uint32_t pick(struct world *w, uint32_t bound)
{
    return chacha_below(&w->rng, bound);
}

static bool chance(struct world *w, uint32_t percent)
{
    return chacha_percent(&w->rng, percent);
}

static bool mistaken(struct world *w)
{
    return !w->calm && chance(w, 10);
}

/* --- workers --- */

static bool paused(const struct world *w, uint32_t worker)
{
    return w->now < w->workers[worker].paused_until;
}

/* The one that was meant, or the next that is not paused. */
static bool find_worker(const struct world *w, uint32_t *worker)
{
    uint32_t n = w->config->workers;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = (*worker % n + i) % n;
        if (!paused(w, k)) {
            *worker = k;
            return true;
        }
    }
    return false;
}

static void remember_old(struct worker *k, const struct held *h)
{
    k->old[k->old_next++ % SIM_OLD] = *h;
    k->old_count += k->old_count < SIM_OLD;
}

static void drop(struct worker *k, uint32_t i)
{
    remember_old(k, &k->held[i]);
    k->held[i] = k->held[--k->held_count];
}

static void remember_past(struct worker *k, const struct request *q)
{
    k->past[k->past_next++ % SIM_PAST] = *q;
    k->past_count += k->past_count < SIM_PAST;
}

static bool takes_lease(enum call call)
{
    return call >= CALL_RENEW && call <= CALL_SPLIT_RESIDUAL;
}

/* What the worker learns from an answer about what it holds. */
static void learn(struct world *w, uint32_t worker, const struct request *q, const struct reply *r)
{
    struct worker *k = &w->workers[worker];
    if (r->died || r->nothing) {
        return;
    }
    if ((q->call == CALL_ACQUIRE || q->call == CALL_CLAIM) && r->status == RF_OK) {
        if (k->held_count < SIM_HELD) {
            k->held[k->held_count++] = (struct held){.tenant = q->tenant,
                                                     .lease = r->lease,
                                                     .start = r->start,
                                                     .end = r->end,
                                                     .key = r->key};
        }
        return;
    }
    if (!takes_lease(q->call)) {
        return;
    }
    for (uint32_t i = 0; i < k->held_count; i++) {
        struct held *h = &k->held[i];
        if (h->tenant != q->tenant || h->lease.run != q->lease.run ||
            h->lease.shard != q->lease.shard || h->lease.fence != q->lease.fence) {
            continue;
        }
        if (r->status == RF_OK && !r->replayed) {
            switch (q->call) {
            case CALL_RENEW:
                h->lease.deadline = r->lease.deadline;
                break;
            case CALL_CHECKPOINT:
                h->key = q->key;
                break;
            case CALL_SPLIT_RESIDUAL:
                h->end = q->points[1];
                break;
            default:
                drop(k, i);
                break;
            }
        } else if (r->status == RF_STALE_FENCE || r->status == RF_LEASE_EXPIRED ||
                   r->status == RF_SHARD_TERMINAL || r->status == RF_NOT_FOUND) {
            drop(k, i);
        }
        return;
    }
}

/* --- making requests up --- */

/* Callers race: a clock may be behind another's. */
static uint64_t some_time(struct world *w)
{
    if (w->calm || !chance(w, 6)) {
        return w->now;
    }
    return chance(w, 4) ? 0 : w->now - pick(w, 20);
}

/* The order in which the parts of an initializer are evaluated is the compiler's choice: random
 * choices are made one by one, here and everywhere. */
static struct request blank(struct world *w, enum call call, uint32_t tenant)
{
    struct request q = {.call = call, .tenant = tenant, .op = ++w->next_op};
    q.now = some_time(w);
    q.flags = chance(w, 15) ? RF_DETACHED : RF_BOUND;
    return q;
}

static struct request with_lease(struct world *w, enum call call, const struct held *h)
{
    struct request q = blank(w, call, h->tenant);
    q.lease = h->lease;
    q.run = h->lease.run;
    q.shard = h->lease.shard;
    q.worker = h->lease.worker;
    if (!w->calm) {
        switch (pick(w, 150)) {
        case 0:
            q.lease.fence++;
            break;
        case 1:
            q.lease.worker++;
            break;
        case 2:
            q.tenant ^= 1u;
            break;
        case 3:
            q.lease.slot_hint = pick(w, 400);
            break;
        default:
            break;
        }
    }
    return q;
}

static struct sim_blob some_blob(struct world *w, uint32_t max)
{
    struct sim_blob b = {.present = true, .fill = (uint8_t)('A' + pick(w, 26))};
    uint32_t n = pick(w, 100);
    b.len = n < 60 ? pick(w, 24) : n < 97 ? pick(w, 200) : pick(w, max + 1);
    return b;
}

static uint32_t some_extra(struct world *w)
{
    uint32_t n = pick(w, 100);
    return n < 88 ? 0 : n < 98 ? pick(w, 140) : pick(w, RF_KEY_MAX - 8);
}

static struct sim_key key_at(struct world *w, uint64_t n)
{
    struct sim_key key = {.present = true, .n = n, .extra = some_extra(w)};
    key.fill = (uint8_t)('a' + pick(w, 26));
    return key;
}

static uint64_t number_between(struct world *w, uint64_t low, uint64_t high)
{
    return low + chacha_next(&w->rng) % (high - low + 1);
}

/* The first number whose every key is above what was done. */
static uint64_t next_number(const struct held *h)
{
    return h->key.present && h->key.n >= h->start.n ? h->key.n + 1 : h->start.n + 1;
}

static void spoil_cursor(struct world *w, const struct held *h, struct request *q)
{
    switch (pick(w, 6)) {
    case 0:
        q->key.present = false;
        break;
    case 1:
        q->key.extra = RF_KEY_MAX;
        break;
    case 2:
        q->token = (struct sim_blob){.present = true, .len = RF_TOKEN_MAX + 1};
        break;
    case 3:
        q->key.n = h->key.present ? h->key.n - 1 : h->start.n - 1;
        break;
    case 4:
        q->key.n = h->end.n + pick(w, 3);
        break;
    default:
        q->key.n = h->start.n - 7;
        break;
    }
}

/* Work goes on from what the grant handed over. */
static void plan_cursor(struct world *w, const struct held *h, struct request *q)
{
    uint64_t low = next_number(h);
    if (low >= h->end.n) {
        q->key = h->key.present ? h->key : h->start;
    } else {
        uint64_t high = h->end.n - 1;
        if (q->call != CALL_COMPLETE && high - low > 1u << 26) {
            high = low + (1u << 26);
        }
        q->key = key_at(w, number_between(w, low, high));
        if (h->key.present && chance(w, 8)) {
            q->key = h->key; /* the same place again, perhaps with another token */
        }
    }
    if (chance(w, 30)) {
        q->token = some_blob(w, RF_TOKEN_MAX);
    }
    if (mistaken(w)) {
        spoil_cursor(w, h, q);
    }
}

static bool plan_replace(struct world *w, const struct held *h, struct request *q)
{
    uint32_t parts = chance(w, 90) ? 2 + pick(w, 3) : 2 + pick(w, SIM_PARTS - 1);
    uint64_t width = h->end.n - h->start.n;
    if (width / parts < 4) {
        return false;
    }
    q->count = parts;
    q->points[0] = h->start;
    q->points[parts] = h->end;
    for (uint32_t i = 1; i < parts; i++) {
        uint64_t from = h->start.n + width / parts * i;
        q->points[i] = key_at(w, number_between(w, from, from + width / parts / 2));
    }
    q->rotation = pick(w, parts);
    q->at = pick(w, parts);
    q->key.present = chance(w, 20);
    if (chance(w, 20)) {
        q->token = some_blob(w, 64);
    }
    if (chance(w, 50)) {
        q->metadata = some_blob(w, RF_METADATA_MAX);
    }
    if (mistaken(w)) {
        q->mistake = (enum mistake)(1 + pick(w, WRONG_TOKEN));
    }
    return true;
}

static bool plan_residual(struct world *w, const struct held *h, struct request *q)
{
    uint64_t low = next_number(h) + 1;
    if (low + 2 >= h->end.n) {
        return false;
    }
    q->points[0] = h->start;
    q->points[1] = key_at(w, number_between(w, low, h->end.n - 1));
    q->points[2] = h->end;
    if (chance(w, 50)) {
        q->metadata = some_blob(w, RF_METADATA_MAX);
    }
    if (mistaken(w)) {
        q->mistake = (enum mistake)(1 + pick(w, WRONG_SIZE));
        if (chance(w, 30) && h->key.present) {
            q->mistake = RIGHT;
            q->points[1] = h->key; /* what is done would be handed over */
        }
    }
    return true;
}

static void plan_manifest(struct world *w, struct request *q, uint64_t first, uint32_t count,
                          uint32_t mistakes)
{
    q->first = first;
    q->count = count;
    q->rotation = pick(w, count);
    q->at = pick(w, count);
    q->points[0] =
        (struct sim_key){.present = true, .extra = chance(w, 90) ? 0 : pick(w, 200), .fill = 'q'};
    q->key.present = chance(w, 25);
    if (chance(w, 25)) {
        q->token = some_blob(w, 64);
    }
    if (chance(w, 50)) {
        q->metadata = some_blob(w, RF_METADATA_MAX);
    }
    if (!w->calm && chance(w, mistakes)) {
        q->mistake = (enum mistake)(1 + pick(w, MISTAKES - 1));
    }
}

static rf_run_config config_of(uint32_t tenant)
{
    return (rf_run_config){.lease_duration = SIM_LEASE - 40 * tenant,
                           .semantics = (rf_semantics)tenant,
                           .has_max_retries = tenant == 1,
                           .max_retries = 3};
}

/* --- choosing shards --- */

static uint32_t some_tenant(struct world *w)
{
    return chance(w, 85) ? 0 : 1;
}

static uint64_t current_run(const struct world *w, uint32_t tenant)
{
    return 1 + w->stock[tenant] % SIM_RUN_IDS;
}

enum wish { WISH_AVAILABLE, WISH_PARKED, WISH_ANY };

static bool fits(const struct world *w, const struct model_shard *s, enum wish wish)
{
    return wish == WISH_AVAILABLE ? model_available_at(s, w->now)
           : wish == WISH_PARKED  ? s->status == RF_SHARD_PARKED
                                  : true;
}

/* One of the tenant's shards, of any of its runs. */
static bool choose_shard(struct world *w, uint32_t tenant, enum wish wish, struct request *q)
{
    uint32_t count = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t n = pass == 0 ? 0 : pick(w, count);
        for (uint64_t id = 1; id <= SIM_RUN_IDS; id++) {
            const struct model_run *r = model_find_run(&w->model, &w->tenants[tenant], id);
            for (uint32_t i = 0; r != NULL && i < r->count; i++) {
                if (!fits(w, &r->shards[i], wish)) {
                    continue;
                }
                if (pass == 0) {
                    count++;
                } else if (n-- == 0) {
                    q->tenant = tenant;
                    q->run = id;
                    q->shard = r->shards[i].shard;
                    return true;
                }
            }
        }
        if (count == 0) {
            break;
        }
    }
    return false;
}

/* --- calls --- */

static struct reply make(struct world *w, uint32_t worker, struct request *q)
{
    struct reply r = request_make(w, worker, q);
    if (q->call >= CALL_CHECKPOINT && q->call != CALL_CREATE && q->call != CALL_PURGE &&
        w->outer == NULL) {
        remember_past(&w->workers[worker], q);
    }
    learn(w, worker, q, &r);
    return r;
}

/* What a shard produced is recorded under a lease that is good, then the shard is completed: that
 * order loses nothing, whoever dies in between. */
static struct reply complete(struct world *w, uint32_t worker, struct request *q)
{
    struct request check = *q;
    bool armed = w->death.armed;
    w->death.armed = false;
    check.call = CALL_RENEW;
    struct reply r = request_make(w, worker, &check);
    if (r.status == RF_OK) {
        ledger_record(&w->checker, q->tenant, &q->lease);
    }
    w->death.armed = armed;
    return make(w, worker, q);
}

static bool acquire(struct world *w, uint32_t worker)
{
    struct request q = blank(w, CALL_ACQUIRE, some_tenant(w));
    struct worker *k = &w->workers[worker];
    enum wish wish = w->calm || chance(w, 85) ? WISH_AVAILABLE : WISH_ANY;
    if (k->held_count == SIM_HELD) {
        return false;
    }
    if (!choose_shard(w, q.tenant, wish, &q) && !choose_shard(w, q.tenant ^ 1u, wish, &q)) {
        return false;
    }
    if (!w->calm && chance(w, 1)) {
        q.shard++;
    }
    q.worker = worker;
    make(w, worker, &q);
    return true;
}

static bool claim(struct world *w, uint32_t worker)
{
    uint32_t tenant = some_tenant(w);
    struct request q = blank(w, CALL_CLAIM, tenant);
    if (w->workers[worker].held_count == SIM_HELD) {
        return false;
    }
    q.run = chance(w, 90) ? current_run(w, tenant) : 1 + pick(w, SIM_RUN_IDS + 1);
    q.worker = worker;
    make(w, worker, &q);
    return true;
}

/* An operation of the holder on something that it holds. */
static bool work_on(struct world *w, uint32_t worker, enum call call, const struct held *of)
{
    const struct held h = *of;
    struct request q = with_lease(w, call, &h);
    switch (call) {
    case CALL_CHECKPOINT:
        plan_cursor(w, &h, &q);
        break;
    case CALL_COMPLETE:
        plan_cursor(w, &h, &q);
        complete(w, worker, &q);
        return true;
    case CALL_RELEASE:
        if (chance(w, 50)) {
            plan_cursor(w, &h, &q);
        }
        break;
    case CALL_PARK:
        q.reason = (rf_park_reason)pick(w, 5);
        if (mistaken(w)) {
            q.reason = (rf_park_reason)(5 + pick(w, 3));
        }
        break;
    case CALL_SPLIT_REPLACE:
        if (!plan_replace(w, &h, &q)) {
            return false;
        }
        break;
    case CALL_SPLIT_RESIDUAL:
        if (!plan_residual(w, &h, &q)) {
            return false;
        }
        break;
    default:
        break;
    }
    make(w, worker, &q);
    return true;
}

static bool work(struct world *w, uint32_t worker, enum call call)
{
    struct worker *k = &w->workers[worker];
    if (k->held_count == 0) {
        return false;
    }
    return work_on(w, worker, call, &k->held[pick(w, k->held_count)]);
}

static bool unpark(struct world *w, uint32_t worker)
{
    struct request q = blank(w, CALL_UNPARK, some_tenant(w));
    enum wish wish = chance(w, 80) ? WISH_PARKED : WISH_ANY;
    if (!choose_shard(w, q.tenant, wish, &q)) {
        return false;
    }
    q.lease = (rf_lease){.run = q.run, .shard = q.shard};
    make(w, worker, &q);
    return true;
}

/* The same call again; or, with the same op id, another one. */
static bool repeat(struct world *w, uint32_t worker, bool conflict)
{
    struct worker *k = &w->workers[worker];
    if (k->past_count == 0) {
        return false;
    }
    struct request q = k->past[pick(w, k->past_count)];
    q.now = some_time(w);
    if (conflict) {
        q.key.n += 1;
        q.key.present = true;
        q.reason = (rf_park_reason)(((unsigned)q.reason + 1) % 5);
        q.metadata = (struct sim_blob){.present = true, .len = 3, .fill = 'Z'};
        q.ending = q.ending == RF_RUN_OP_CANCEL ? RF_RUN_OP_FAIL : RF_RUN_OP_CANCEL;
    }
    if (q.call == CALL_COMPLETE) {
        complete(w, worker, &q);
    } else {
        struct reply r = request_make(w, worker, &q);
        learn(w, worker, &q, &r);
    }
    return true;
}

static bool zombie(struct world *w, uint32_t worker)
{
    static const enum call calls[] = {CALL_RENEW,         CALL_CHECKPOINT, CALL_COMPLETE,
                                      CALL_PARK,          CALL_RELEASE,    CALL_SPLIT_REPLACE,
                                      CALL_SPLIT_RESIDUAL};
    struct worker *k = &w->workers[worker];
    if (k->old_count == 0) {
        return false;
    }
    enum call call = calls[pick(w, 7)];
    return work_on(w, worker, call, &k->old[pick(w, k->old_count)]);
}

/* --- whole sessions --- */

static bool session(struct world *w, uint32_t worker)
{
    struct worker *k = &w->workers[worker];
    uint64_t member = k->member;
    uint32_t before = k->held_count;
    if (chance(w, 50) ? !claim(w, worker) : !acquire(w, worker)) {
        return false;
    }
    if (k->member != member || k->held_count != before + 1) {
        return true; /* refused, or dead */
    }
    const rf_lease lease = k->held[before].lease;
    uint32_t rounds = chance(w, 95) ? 1 + pick(w, 3) : 14 + pick(w, 8); /* more than a ring holds */
    for (uint32_t i = 0; i <= rounds; i++) {
        if (k->member != member || k->held_count != before + 1 ||
            k->held[before].lease.fence != lease.fence) {
            return true;
        }
        work_on(w, worker, i < rounds ? CALL_CHECKPOINT : CALL_COMPLETE, &k->held[before]);
    }
    return true;
}

/* --- runs --- */

static struct reply run_call(struct world *w, uint32_t worker, struct request *q)
{
    return make(w, worker, q);
}

static void end_run(struct world *w, uint32_t worker, uint32_t tenant, uint64_t run)
{
    struct request q = blank(w, CALL_END, tenant);
    q.run = run;
    q.ending = RF_RUN_OP_COMPLETE + pick(w, 3);
    run_call(w, worker, &q);
}

static bool has_work(const struct model_run *r)
{
    if (r == NULL || r->status != RF_RUN_ACTIVE) {
        return false;
    }
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->shards[i].status == RF_SHARD_ACTIVE) {
            return true;
        }
    }
    return false;
}

/* Ends and purges a run, if it is there; whoever dies over it, another goes on. */
static void remove_run(struct world *w, uint32_t worker, uint32_t tenant, uint64_t run)
{
    for (uint32_t tries = 0; tries < 20; tries++) {
        const struct model_run *r = model_find_run(&w->model, &w->tenants[tenant], run);
        if (r == NULL) {
            return;
        }
        struct request q = blank(w, model_terminal_run(r) ? CALL_PURGE : CALL_END, tenant);
        q.run = run;
        q.ending = RF_RUN_OP_CANCEL;
        q.now = w->now;
        run_call(w, worker, &q);
    }
}

/* Brings new work under the next of the tenant's run ids. */
static void restock(struct world *w, uint32_t worker, uint32_t tenant)
{
    uint32_t count = tenant == 0 ? w->config->shards : w->config->shards / 4 + 2;
    w->stock[tenant]++;
    uint64_t run = current_run(w, tenant);
    remove_run(w, worker, tenant, run);
    for (uint32_t tries = 0; tries < 20; tries++) {
        const struct model_run *r = model_find_run(&w->model, &w->tenants[tenant], run);
        if (r != NULL && r->status == RF_RUN_ACTIVE) {
            return;
        }
        bool both = r == NULL && chance(w, 60);
        struct request q = blank(w,
                                 both        ? CALL_CREATE_WITH
                                 : r == NULL ? CALL_CREATE
                                             : CALL_REGISTER,
                                 tenant);
        q.run = run;
        q.config = config_of(tenant);
        q.now = w->now;
        if (q.call != CALL_CREATE) {
            plan_manifest(w, &q, 1, count, 10);
        }
        struct reply reply = run_call(w, worker, &q);
        if (reply.status == RF_SHARD_LIMIT) {
            remove_run(w, worker, tenant, 1 + run % SIM_RUN_IDS);
            remove_run(w, worker, tenant, 1 + (run + 1) % SIM_RUN_IDS);
        }
    }
}

static void keep_stocked(struct world *w, uint32_t worker)
{
    for (uint32_t t = 0; t < SIM_TENANTS; t++) {
        if (!has_work(model_find_run(&w->model, &w->tenants[t], current_run(w, t)))) {
            restock(w, worker, t);
        }
    }
}

static void end_some_run(struct world *w, uint32_t worker)
{
    uint32_t tenant = some_tenant(w);
    uint64_t run = current_run(w, tenant);
    if (!chance(w, 20)) {
        run = 1 + (run + pick(w, SIM_RUN_IDS - 1)) % SIM_RUN_IDS; /* one of the others */
    }
    end_run(w, worker, tenant, run);
}

/* So much that it takes a chain of records. */
static void make_long(struct world *w, struct request *q)
{
    q->metadata = (struct sim_blob){
        .present = true, .fill = 'M', .len = RF_METADATA_MAX - pick(w, RF_METADATA_MAX / 4)};
}

static void add_shards(struct world *w, uint32_t worker, bool much)
{
    uint32_t tenant = some_tenant(w);
    struct request q = blank(w, CALL_ADD, tenant);
    uint32_t count = much ? 6 + pick(w, 4) : 1 + pick(w, 4);
    q.run = chance(w, 90) ? current_run(w, tenant) : 1 + pick(w, SIM_RUN_IDS);
    plan_manifest(w, &q, chance(w, 90) ? 1000 + w->next_shard : 1, count, 30);
    if (much) {
        make_long(w, &q);
    }
    w->next_shard += count;
    run_call(w, worker, &q);
}

/* Of runs that may be there or not, by calls that may be wrong. */
static void register_something(struct world *w, uint32_t worker, bool much)
{
    static const enum call calls[] = {CALL_CREATE, CALL_REGISTER, CALL_CREATE_WITH, CALL_PURGE};
    uint32_t tenant = pick(w, SIM_TENANTS);
    struct request q = blank(w, calls[pick(w, 4)], tenant);
    q.run = 1 + pick(w, SIM_RUN_IDS);
    q.config = config_of(chance(w, 90) ? tenant : tenant ^ 1u);
    if (chance(w, 10)) {
        q.config.lease_duration = 0;
    }
    if (q.call == CALL_REGISTER || q.call == CALL_CREATE_WITH) {
        plan_manifest(w, &q, 1, much ? 6 + pick(w, 8) : 1 + pick(w, 5), much ? 10 : 60);
        if (much) {
            make_long(w, &q);
        }
    }
    run_call(w, worker, &q);
}

/* --- what only this system has --- */

static void tend(struct world *w, uint32_t worker)
{
    w->death.armed = false;
    world_tend(w, w->workers[worker].handle);
}

static void arm(struct world *w, bool stopping)
{
    w->death.armed = true;
    w->death.stopping = stopping;
    w->death.rare = false;
    w->death.countdown = 1 + pick(w, chance(w, 75) ? 24 : 70);
}

/* Dies at a point of what is no call on a shard; if it has fewer points, it lives. */
static void die_keeping(struct world *w, uint32_t worker)
{
    uint32_t what = pick(w, 6), others = w->config->workers - 1;
    if (what == 0 && others != 0) {
        /* Whoever tends to a dead one dies, and is tended to himself. */
        world_die(w, (worker + 1 + pick(w, others)) % w->config->workers);
    }
    arm(w, false);
    w->death.countdown = 1 + pick(w, 2u << pick(w, 9));
    w->death.rare = chance(w, 50);
    switch (what) {
    case 0:
        world_tend_mortally(w, worker);
        break;
    case 1:
        world_sync(w, worker);
        break;
    case 2:
        world_snapshot(w, worker);
        break;
    case 3:
        world_reopen(w, worker);
        break;
    case 4:
        register_something(w, worker, chance(w, 50));
        break;
    default:
        add_shards(w, worker, chance(w, 50));
        break;
    }
    w->death.armed = false;
}

/* --- the others, while one is stopped --- */

static bool clashes(const struct world *w, uint32_t tenant, uint64_t run, uint64_t shard)
{
    const struct request *o = w->outer;
    bool leased = takes_lease(o->call);
    if (tenant != o->tenant || run != (leased ? o->lease.run : o->run)) {
        return false;
    }
    bool narrow = o->call != CALL_CLAIM && o->call != CALL_SPLIT_REPLACE &&
                  o->call != CALL_SPLIT_RESIDUAL && o->call < CALL_CREATE;
    return !narrow || shard == (leased ? o->lease.shard : o->shard);
}

static void nested_call(struct world *w, uint32_t worker)
{
    static const enum call calls[] = {CALL_RENEW, CALL_CHECKPOINT, CALL_RELEASE, CALL_ACQUIRE};
    struct worker *k = &w->workers[worker];
    enum call call = calls[pick(w, 4)];
    if (call == CALL_ACQUIRE && w->outer->call == CALL_PURGE) {
        return; /* whether the floor has risen yet is not for others to know */
    }
    if (call == CALL_ACQUIRE) {
        struct request q = blank(w, call, some_tenant(w));
        if (k->held_count < SIM_HELD && choose_shard(w, q.tenant, WISH_AVAILABLE, &q) &&
            !clashes(w, q.tenant, q.run, q.shard)) {
            q.worker = worker;
            make(w, worker, &q);
        }
        return;
    }
    if (k->held_count == 0) {
        return;
    }
    const struct held h = k->held[pick(w, k->held_count)];
    if (!clashes(w, h.tenant, h.lease.run, h.lease.shard)) {
        work_on(w, worker, call, &h);
    }
}

void driver_meanwhile(struct world *w)
{
    uint32_t n = w->config->workers, rounds = 1 + pick(w, 4);
    for (uint32_t i = 0; i < rounds && n > 1; i++) {
        uint32_t worker = (w->outer_worker + 1 + pick(w, n - 1)) % n;
        if (!paused(w, worker)) {
            nested_call(w, worker);
        }
    }
}

/* --- overload --- */

static void overload(struct world *w)
{
    w->phase = 1;
    for (uint32_t k = 0; k < w->config->workers; k++) {
        struct worker *worker = &w->workers[k];
        switch (w->config->overload) {
        case BURST_CLAIM:
            worker->paused_until = 0;
            for (uint32_t i = 0; i < SIM_HELD; i++) {
                claim(w, k);
            }
            break;
        case CAPACITY_DROP:
            if (k % 2 == 0) {
                worker->paused_until = w->now + 300;
            }
            break;
        case BURST_SHARDS:
            for (uint32_t i = worker->held_count; i > 0; i--) {
                if (i <= worker->held_count) {
                    work_on(w, k, CALL_SPLIT_REPLACE, &worker->held[i - 1]);
                }
            }
            break;
        default:
            break;
        }
    }
    if (w->config->overload == CAPACITY_DROP) {
        w->now += 200;
    }
}

static void sweep_all(struct world *w, rf_store *by)
{
    for (uint32_t t = 0; t < SIM_TENANTS; t++) {
        for (uint64_t run = 1; run <= SIM_RUN_IDS; run++) {
            observe_sweep(w, by, t, run);
        }
    }
}

/* --- steps --- */

/* A acquires, time passes, B acquires, A must be refused. */
static void zombie_preamble(struct world *w)
{
    w->calm = true;
    acquire(w, 0);
    if (w->workers[0].held_count != 1) {
        sim_fail(w, "error", "the preamble's first grant was refused");
    }
    const struct held a = w->workers[0].held[0];
    w->now = a.lease.deadline;
    struct request q = blank(w, CALL_ACQUIRE, a.tenant);
    uint32_t b = w->config->workers > 1 ? 1 : 0;
    q.run = a.lease.run;
    q.shard = a.lease.shard;
    q.worker = b;
    struct reply r = make(w, b, &q);
    struct request late = with_lease(w, CALL_CHECKPOINT, &a);
    late.key = key_at(w, a.start.n + 9);
    struct reply refused = make(w, 0, &late);
    if (r.status != RF_OK || refused.status != RF_STALE_FENCE) {
        sim_fail(w, "difference", "the zombie's preamble: %s, then %s", rf_status_name(r.status),
                 rf_status_name(refused.status));
    }
    w->calm = false;
}

/* The clock goes on to the end of a lease that is good: any of those that somebody holds. */
static void expire_some_lease(struct world *w)
{
    uint64_t deadlines[SIM_WORKERS_MAX * SIM_HELD];
    uint32_t count = 0;
    for (uint32_t i = 0; i < w->config->workers; i++) {
        const struct worker *k = &w->workers[i];
        for (uint32_t h = 0; h < k->held_count; h++) {
            if (k->held[h].lease.deadline > w->now) {
                deadlines[count++] = k->held[h].lease.deadline;
            }
        }
    }
    if (count != 0) {
        w->now = deadlines[pick(w, count)];
        w->report->expired++;
    }
}

static void resume_someone(struct world *w)
{
    uint32_t longest = 0;
    for (uint32_t i = 1; i < w->config->workers; i++) {
        if (w->workers[i].paused_until > w->workers[longest].paused_until) {
            longest = i;
        }
    }
    w->workers[longest].paused_until = 0;
}

static void calm_down(struct world *w)
{
    w->death.armed = false;
    world_tend(w, w->overseer);
    sweep_all(w, w->overseer);
    /* Half the operations come after an overload. If nothing is ever completed in that many, the store is
     * there and yet does not come back. */
    const struct sim_goodput *after = &w->report->goodput[2];
    if (w->report->by_step[STEP_MEASURE] != 0 && after->steps >= 1000 && after->completed == 0) {
        sim_fail(w, "recovery", "nothing was completed in %" PRIu64 " steps after the overload",
                 after->steps);
    }
}

/* Returns false if there was nothing to do it with. */
static bool operate(struct world *w, enum step_kind kind, uint32_t worker)
{
    switch (kind) {
    case STEP_ACQUIRE:
        return acquire(w, worker);
    case STEP_RENEW:
        return work(w, worker, CALL_RENEW);
    case STEP_CHECKPOINT:
        return work(w, worker, CALL_CHECKPOINT);
    case STEP_COMPLETE:
        return work(w, worker, CALL_COMPLETE);
    case STEP_PARK:
        return work(w, worker, CALL_PARK);
    case STEP_UNPARK:
        return unpark(w, worker);
    case STEP_SPLIT_REPLACE:
        return work(w, worker, CALL_SPLIT_REPLACE);
    case STEP_SPLIT_RESIDUAL:
        return work(w, worker, CALL_SPLIT_RESIDUAL);
    case STEP_REPLAY:
        return repeat(w, worker, false);
    case STEP_CONFLICT:
        return repeat(w, worker, true);
    case STEP_ZOMBIE:
        return zombie(w, worker);
    case STEP_CLAIM:
        return claim(w, worker);
    case STEP_SESSION:
        return session(w, worker);
    case STEP_RELEASE:
        return work(w, worker, CALL_RELEASE);
    case STEP_END_RUN:
        end_some_run(w, worker);
        return true;
    case STEP_ADD_SHARDS:
        add_shards(w, worker, false);
        return true;
    case STEP_REGISTER:
        register_something(w, worker, false);
        return true;
    case STEP_LOOK:
    case STEP_SWEEP: {
        uint32_t tenant = pick(w, SIM_TENANTS);
        uint64_t run = 1 + pick(w, SIM_RUN_IDS);
        (kind == STEP_LOOK ? observe_list : observe_sweep)(w, w->workers[worker].handle, tenant,
                                                           run);
        return true;
    }
    case STEP_SYNC:
        world_sync(w, worker);
        return true;
    case STEP_SNAPSHOT:
        world_snapshot(w, worker);
        return true;
    default:
        tend(w, worker);
        return true;
    }
}

static void act(struct world *w, const struct step *s)
{
    enum sim_level level = w->config->level;
    uint32_t worker = s->worker;
    switch (s->kind) {
    case STEP_ADVANCE:
        w->now += chacha_between(&w->rng, 1, 10);
        break;
    case STEP_PAUSE:
        w->workers[worker].paused_until = w->now + chacha_between(&w->rng, 1, 10);
        break;
    case STEP_RESUME:
        resume_someone(w);
        break;
    case STEP_EXPIRE:
        expire_some_lease(w);
        break;
    case STEP_STALL:
        w->workers[worker].paused_until =
            w->now + chacha_between(&w->rng, 1, level == SIM_RADIOACTIVE ? 10 : 5);
        break;
    case STEP_JUMP:
        w->now += level == SIM_RADIOACTIVE ? chacha_between(&w->rng, 100, 500)
                                           : chacha_between(&w->rng, 50, 200);
        break;
    case STEP_DIE:
        world_die(w, worker);
        break;
    case STEP_DIE_AT:
    case STEP_STOP_AT:
        arm(w, s->kind == STEP_STOP_AT);
        break;
    case STEP_DIE_KEEPING:
        die_keeping(w, worker);
        break;
    case STEP_REOPEN:
        world_reopen(w, worker);
        break;
    case STEP_LOSE_EVERYBODY:
        world_lose_everybody(w);
        break;
    case STEP_LOSE_REGION:
        world_lose_region(w);
        break;
    case STEP_PREAMBLE:
        zombie_preamble(w);
        break;
    case STEP_OVERLOAD:
        overload(w);
        break;
    case STEP_MEASURE:
        w->phase = 2;
        sweep_all(w, w->overseer);
        break;
    case STEP_CALM:
        calm_down(w);
        break;
    default:
        if (!find_worker(w, &worker) || !operate(w, (enum step_kind)s->kind, worker)) {
            w->report->idle++;
        }
        break;
    }
}

/* Steps that may run into what a dead one left, with nobody having tidied up. */
static bool may_meet_the_dead(uint8_t kind)
{
    switch (kind) {
    case STEP_ACQUIRE:
    case STEP_RENEW:
    case STEP_CHECKPOINT:
    case STEP_COMPLETE:
    case STEP_PARK:
    case STEP_RELEASE:
    case STEP_ADVANCE:
    case STEP_PAUSE:
    case STEP_RESUME:
    case STEP_EXPIRE:
    case STEP_STALL:
    case STEP_JUMP:
        return true;
    default:
        return false;
    }
}

void driver_step(struct world *w, const struct step *s)
{
    w->step = *s;
    w->calm = s->calm;
    chacha_seed(&w->rng, w->config->seed, s->number);
    w->report->by_step[s->kind]++;
    w->report->ops += s->kind < STEP_TABLE;
    w->report->goodput[w->phase].steps++;
    if (w->unsettled != 0 && !may_meet_the_dead(s->kind)) {
        world_tend(w, w->overseer);
    }
    if (!s->calm && s->kind < STEP_EXPIRE && w->unsettled == 0) {
        uint32_t worker = s->worker;
        if (find_worker(w, &worker)) {
            keep_stocked(w, worker);
        }
    }
    if (w->unsettled != 0 && --w->unsettled == 0) {
        world_tend(w, w->overseer);
    }
    act(w, s);
    world_emit(w, 32u + s->kind, s->worker, 0, w->dead_count, w->unsettled,
               w->workers[s->worker].paused_until);
    if (w->unsettled == 0) {
        observe(w);
    }
    if (w->unsettled == 0 && s->number % 1024 == 0) {
        observe_fully(w);
    }
}

void driver_start(struct world *w)
{
    chacha_seed(&w->rng, w->config->seed, UINT64_MAX);
    keep_stocked(w, 0);
    observe_fully(w);
}

static bool all_terminal(const struct world *w)
{
    for (uint32_t i = 0; i < w->model.run_count; i++) {
        for (uint32_t k = 0; k < w->model.runs[i].count; k++) {
            if (w->model.runs[i].shards[k].status == RF_SHARD_ACTIVE) {
                return false;
            }
        }
    }
    return true;
}

void driver_finish(struct world *w)
{
    w->calm = true;
    world_tend(w, w->overseer);
    observe_fully(w);
    if (w->config->liveness != 0 && w->report->by_step[STEP_CALM] != 0 && !all_terminal(w)) {
        uint32_t active = 0;
        for (uint32_t i = 0; i < w->model.run_count; i++) {
            for (uint32_t k = 0; k < w->model.runs[i].count; k++) {
                active += w->model.runs[i].shards[k].status == RF_SHARD_ACTIVE;
            }
        }
        sim_fail(w, "liveness", "%u shards are still active", active);
    }
}
