/* One call of each operation, as a worker makes it. */
#include "micro.h"

#include <string.h>

#define LONG_KEY RF_KEY_MAX

struct worker {
    struct farm farm;
    const struct setting *setting;
    uint32_t number;
    uint32_t base;   /* index of the first shard of its parcel */
    rf_lease own;    /* of the shard that it works on */
    rf_lease one;    /* of the one that all work on */
    rf_lease *lives; /* of the others */
    rf_lease *splits;
    uint32_t splits_done;
    uint8_t *points;
    uint64_t key_number; /* keys only grow */
    uint64_t keys_used;
    uint8_t keys[AHEAD][FARM_KEY_LEN];
    uint8_t long_key[LONG_KEY];
    rf_grant grant;
    rf_result result;
    rf_shard_info info;
    _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
};

/* --- parcels --- */

static uint32_t count_lives(const struct parcel *p)
{
    return p->lives;
}

static uint32_t count_residuals(const struct parcel *p)
{
    return p->residuals;
}

static uint32_t count_splits_2(const struct parcel *p)
{
    return p->splits_2;
}

static uint32_t count_splits_16(const struct parcel *p)
{
    return p->splits_16;
}

static uint32_t count_splits_256(const struct parcel *p)
{
    return p->splits_256;
}

/* Those to be split lie behind those that live. */
static uint32_t count_to_split(const struct parcel *p)
{
    return p->residuals + p->splits_2 + p->splits_16 + p->splits_256;
}

/* --- calls --- */

static uint64_t next_now(struct worker *w)
{
    return ++w->farm.now;
}

static uint64_t next_op(struct worker *w)
{
    return ++w->farm.op;
}

static void ask(struct worker *w)
{
    w->result.durability = w->setting->mode;
}

/* After a call that waits if it is told to. */
static void must_last(struct worker *w, rf_status status, const char *what)
{
    must_have(status, &w->result, what);
    if (w->setting->mode == RF_WAIT && rf_durable(w->farm.store) < w->result.epoch) {
        fprintf(stderr, "%s: it returned and is not durable\n", what);
        abort();
    }
}

static void acquire(struct worker *w, uint32_t index, rf_lease *lease)
{
    rf_status status =
        rf_acquire(w->farm.store, next_now(w), &w->farm.tenant, RUN_OWN, w->base + index + 1ul,
                   w->number, RF_BOUND, &w->grant, &w->result);
    must_have(status, &w->result, "acquire");
    *lease = w->grant.lease;
}

static void write_key(struct worker *w)
{
    farm_key(w->keys[w->keys_used++ % AHEAD], w->base, w->key_number++);
}

void *begin_worker(void *argument, uint32_t number)
{
    static struct worker worker;
    struct worker *w = &worker;
    const struct setting *setting = argument;
    const struct parcel *parcel = &setting->parcel;
    const uint32_t shards = parcel_size(parcel);
    open_mode(&w->farm, setting->mode);
    w->setting = setting;
    w->number = number;
    w->base = number * shards;
    w->lives = calloc(parcel->lives, sizeof(*w->lives));
    w->splits = calloc(count_to_split(parcel), sizeof(*w->splits));
    w->points = calloc(SPLIT_MAX, FARM_KEY_LEN);
    assert(w->lives != NULL && w->splits != NULL && w->points != NULL);
    w->grant = (rf_grant){.scratch = w->scratch, .scratch_size = sizeof(w->scratch)};
    w->key_number = w->farm.now;
    memset(w->long_key, 'k', sizeof(w->long_key));
    return w;
}

void start_over(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    uint64_t now = rf_now(w->farm.store);
    w->farm.now = now > w->farm.now ? now : w->farm.now;
    w->splits_done = 0;
    w->key_number = w->key_number > now ? w->key_number : now;
    for (uint32_t k = 0; k < AHEAD; k++) {
        write_key(w);
    }
    acquire(w, 0, &w->own);
    w->one = w->setting->one;
}

/* --- on shards of its own --- */

static void step_acquire(void *context, uint64_t i)
{
    struct worker *w = context;
    acquire(w, 1 + (uint32_t)i, &w->lives[i]);
}

static void step_hold(void *context, uint64_t i)
{
    struct worker *w = context;
    acquire(w, 1 + w->setting->parcel.lives + (uint32_t)i, &w->splits[i]);
}

static void step_renew(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    must_have(rf_renew(w->farm.store, next_now(w), &w->farm.tenant, &w->own, &w->result),
              &w->result, "renew");
}

static void checkpoint(struct worker *w, const rf_lease *lease, const uint8_t *key, size_t len)
{
    const rf_cursor cursor = {.key = {.data = key, .len = len}};
    ask(w);
    must_last(w,
              rf_checkpoint(w->farm.store, next_now(w), &w->farm.tenant, lease, &cursor, next_op(w),
                            &w->result),
              "checkpoint");
}

static void step_checkpoint(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    checkpoint(w, &w->own, w->keys[w->keys_used % AHEAD], FARM_KEY_LEN);
    write_key(w);
}

/* The last one again; the op id is new. */
static void step_checkpoint_same(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    checkpoint(w, &w->own, w->keys[w->keys_used % AHEAD], FARM_KEY_LEN);
}

static void step_checkpoint_long(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    farm_key(w->long_key, w->base, ++w->key_number);
    checkpoint(w, &w->own, w->long_key, LONG_KEY);
}

static void get(struct worker *w, uint64_t run, uint64_t shard)
{
    rf_status status = rf_get_shard(w->farm.store, &w->farm.tenant, run, shard, &w->info,
                                    w->scratch, sizeof(w->scratch), NULL);
    w->result.outcome = RF_EXECUTED;
    must_have(status, &w->result, "get_shard");
    assert(w->info.shard == shard);
}

static void step_get(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    get(w, RUN_OWN, w->own.shard);
}

static void step_progress(void *context, uint64_t i)
{
    static uint8_t watermark[RF_KEY_MAX];
    struct worker *w = context;
    rf_progress progress;
    (void)i;
    rf_status status = rf_get_progress(w->farm.store, next_now(w), &w->farm.tenant, RUN_LOOK,
                                       &progress, watermark, NULL);
    w->result.outcome = RF_EXECUTED;
    must_have(status, &w->result, "get_progress");
    assert(progress.total == LOOK_SHARDS);
}

static bool count_shard(void *context, const rf_shard_info *shard)
{
    bench_use(shard);
    ++*(uint32_t *)context;
    return true;
}

static void step_list(void *context, uint64_t i)
{
    struct worker *w = context;
    uint32_t seen = 0;
    (void)i;
    rf_status status = rf_list_shards(w->farm.store, next_now(w), &w->farm.tenant, RUN_LOOK,
                                      RF_LIST_ALL, count_shard, &seen, NULL);
    w->result.outcome = RF_EXECUTED;
    must_have(status, &w->result, "list_shards");
    assert(seen == LOOK_SHARDS);
}

static void step_release(void *context, uint64_t i)
{
    struct worker *w = context;
    ask(w);
    must_last(w,
              rf_release(w->farm.store, next_now(w), &w->farm.tenant, &w->lives[i], NULL,
                         next_op(w), &w->result),
              "release");
}

/* From its own parcel on: the workers are spread over the run, as theirs are. */
static void step_claim(void *context, uint64_t i)
{
    struct worker *w = context;
    must_have(rf_claim(w->farm.store, next_now(w), &w->farm.tenant, RUN_OWN, w->base, RF_BOUND, 0,
                       &w->grant, &w->result),
              &w->result, "claim");
    w->lives[i] = w->grant.lease;
}

static void step_park(void *context, uint64_t i)
{
    struct worker *w = context;
    ask(w);
    must_last(w,
              rf_park(w->farm.store, next_now(w), &w->farm.tenant, &w->lives[i], RF_PARK_OTHER,
                      next_op(w), &w->result),
              "park");
}

static void step_unpark(void *context, uint64_t i)
{
    struct worker *w = context;
    ask(w);
    must_last(w,
              rf_unpark(w->farm.store, next_now(w), &w->farm.tenant, RUN_OWN, w->lives[i].shard,
                        next_op(w), &w->result),
              "unpark");
}

static void step_complete(void *context, uint64_t i)
{
    struct worker *w = context;
    uint8_t key[FARM_KEY_LEN];
    const rf_cursor cursor = {.key = {.data = key, .len = sizeof(key)}};
    farm_key(key, (uint32_t)w->lives[i].shard - 1, UINT64_MAX);
    ask(w);
    must_last(w,
              rf_complete(w->farm.store, next_now(w), &w->farm.tenant, &w->lives[i], &cursor,
                          next_op(w), &w->result),
              "complete");
}

/* The plan is a worker's own work, and in the time of the step. */
static const rf_child *plan(struct worker *w, uint32_t index, uint32_t children)
{
    static rf_child plans[SPLIT_MAX];
    static uint8_t ends[2][FARM_KEY_LEN];
    static rf_bytes points[SPLIT_MAX];
    const rf_spec spec = {.start = {ends[0], FARM_KEY_LEN}, .end = {ends[1], FARM_KEY_LEN}};
    farm_key(ends[0], index, 0);
    farm_key(ends[1], index + 1, 0);
    for (uint32_t c = 0; c + 1 < children; c++) {
        uint8_t *point = w->points + (size_t)c * FARM_KEY_LEN;
        farm_key(point, index, c + 1ul);
        points[c] = (rf_bytes){.data = point, .len = FARM_KEY_LEN};
    }
    rf_status status = rf_plan_replace(spec, points, children - 1, plans, NULL);
    assert(status == RF_OK);
    return plans;
}

static void step_residual(void *context, uint64_t i)
{
    struct worker *w = context;
    const rf_lease *lease = &w->splits[w->splits_done++];
    const rf_child *parts = plan(w, (uint32_t)lease->shard - 1, 2);
    uint64_t id;
    (void)i;
    ask(w);
    must_last(w,
              rf_split_residual(w->farm.store, next_now(w), &w->farm.tenant, lease, &parts[0].spec,
                                &parts[1].spec, next_op(w), &id, &w->result),
              "split_residual");
}

static void split(struct worker *w, uint32_t children)
{
    const rf_lease *lease = &w->splits[w->splits_done++];
    const rf_child *parts = plan(w, (uint32_t)lease->shard - 1, children);
    uint64_t ids[SPLIT_MAX];
    ask(w);
    must_last(w,
              rf_split_replace(w->farm.store, next_now(w), &w->farm.tenant, lease, parts, children,
                               next_op(w), ids, &w->result),
              "split_replace");
}

static void step_split_2(void *context, uint64_t i)
{
    (void)i;
    split(context, 2);
}

static void step_split_16(void *context, uint64_t i)
{
    (void)i;
    split(context, 16);
}

static void step_split_256(void *context, uint64_t i)
{
    (void)i;
    split(context, 256);
}

const struct step own_steps[] = {
    {.name = "acquire", .step = step_acquire, .count = count_lives},
    {.step = step_hold, .count = count_to_split, .unseen = true},
    {.name = "renew", .step = step_renew},
    {.name = "checkpoint", .step = step_checkpoint},
    {.name = "checkpoint, same key", .step = step_checkpoint_same},
    {.name = "checkpoint, key of 4096 bytes", .step = step_checkpoint_long},
    {.name = "get_shard", .step = step_get},
    {.name = "get_progress of 1,000", .step = step_progress},
    {.name = "list_shards of 1,000", .step = step_list},
    {.name = "release", .step = step_release, .count = count_lives},
    {.name = "claim", .step = step_claim, .count = count_lives},
    {.name = "park", .step = step_park, .count = count_lives},
    {.name = "unpark", .step = step_unpark, .count = count_lives},
    {.step = step_claim, .count = count_lives, .unseen = true},
    {.name = "complete", .step = step_complete, .count = count_lives},
    {.name = "split_residual", .step = step_residual, .count = count_residuals},
    {.name = "split_replace 2", .step = step_split_2, .count = count_splits_2},
    {.name = "split_replace 16", .step = step_split_16, .count = count_splits_16},
    {.name = "split_replace 256", .step = step_split_256, .count = count_splits_256},
};
const uint32_t own_step_count = COUNT(own_steps);

/* --- on one shard, all of them --- */

/* The lease is detached, so every process may present it, and every call is executed. */
static void step_renew_one(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    must_have(rf_renew(w->farm.store, next_now(w), &w->farm.tenant, &w->one, &w->result),
              &w->result, "renew");
}

/* At one key: with keys that grow, whoever comes later with the smaller one would be refused. */
static void step_checkpoint_one(void *context, uint64_t i)
{
    struct worker *w = context;
    uint8_t key[FARM_KEY_LEN];
    (void)i;
    farm_key(key, 0, 1);
    checkpoint(w, &w->one, key, sizeof(key));
}

static void step_get_one(void *context, uint64_t i)
{
    (void)i;
    get(context, RUN_ONE, 1);
}

/* Each sleeps until it is its turn to hold the shard. */
static void step_turn(void *context, uint64_t i)
{
    struct worker *w = context;
    (void)i;
    must_have(rf_claim(w->farm.store, rf_now(w->farm.store), &w->farm.tenant, RUN_TURN, w->number,
                       RF_BOUND, RF_FOREVER, &w->grant, &w->result),
              &w->result, "claim");
    ask(w);
    must_last(w,
              rf_release(w->farm.store, rf_now(w->farm.store), &w->farm.tenant, &w->grant.lease,
                         NULL, next_op(w), &w->result),
              "release");
}

const struct step one_steps[] = {
    {.name = "renew", .step = step_renew_one},
    {.name = "checkpoint, same key", .step = step_checkpoint_one},
    {.name = "get_shard", .step = step_get_one},
    {.name = "claim, waiting, + release", .step = step_turn},
};
const uint32_t one_step_count = COUNT(one_steps);
