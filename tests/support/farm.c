/* The farm's workers. */
#include "farm.h"

#include <inttypes.h>
#include <string.h>

#define HELD       4u
#define RECENT     64u
#define TOKEN_MAX  3000u
#define META_LONG  158u
#define SHARDS_MAX 1500u /* a run with more is ended */

struct held {
    bool used;
    rf_lease lease;
    uint64_t made;
    uint64_t start, end;
    uint64_t key; /* 0: none yet */
    uint64_t renewed_at;
    uint8_t meta[META_LONG];
    size_t meta_len;
};

struct worker {
    struct farm *farm;
    struct farm_log *log;
    rf_store *store;
    struct rf_prng prng;
    uint64_t id;
    struct held held[HELD];
    struct {
        uint32_t run;
        uint64_t shard;
    } recent[RECENT];
    uint32_t recent_count;
    uint8_t token[TOKEN_MAX];
    _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
};

/* --- what things are made of --- */

struct farm_key farm_key(uint64_t number)
{
    struct farm_key k;
    for (unsigned i = 0; i < 8; i++) {
        k.bytes[i] = (uint8_t)(number >> (56 - 8 * i));
    }
    return k;
}

static rf_bytes key_bytes(const struct farm_key *k)
{
    return (rf_bytes){.data = k->bytes, .len = 8};
}

uint64_t farm_number(rf_bytes key)
{
    const uint8_t *b = key.data;
    uint64_t number = 0;
    CREW_CHECK(key.len == 8, "a key of %zu bytes", key.len);
    for (unsigned i = 0; i < 8; i++) {
        number = number << 8 | b[i];
    }
    return number;
}

static void fill_token(uint64_t key, uint8_t *out, size_t len)
{
    struct rf_prng prng = {key ^ (uint64_t)len << 48};
    rf_prng_bytes(&prng, out, len);
}

void farm_check_cursor(rf_cursor cursor, const char *where)
{
    uint8_t expected[TOKEN_MAX];
    if (cursor.key.data == NULL) {
        CREW_CHECK(cursor.token.data == NULL, "%s: a token without a key", where);
        return;
    }
    uint64_t key = farm_number(cursor.key);
    if (cursor.token.data != NULL) {
        CREW_CHECK(cursor.token.len <= TOKEN_MAX, "%s: a token of %zu bytes", where,
                   cursor.token.len);
        fill_token(key, expected, cursor.token.len);
        CREW_CHECK(memcmp(expected, cursor.token.data, cursor.token.len) == 0,
                   "%s: the token of %zu bytes does not belong to the key %" PRIx64, where,
                   cursor.token.len, key);
    }
}

static size_t fill_meta(uint64_t made, uint8_t *out)
{
    size_t len = made % 2 == 0 ? 8 : META_LONG;
    memcpy(out, &made, 8);
    for (size_t i = 8; i < len; i++) {
        out[i] = (uint8_t)(made * 31 + i);
    }
    return len;
}

uint64_t farm_made(rf_bytes metadata)
{
    uint8_t expected[META_LONG];
    uint64_t made = 0;
    CREW_CHECK(metadata.len >= 8, "metadata of %zu bytes", metadata.len);
    memcpy(&made, metadata.data, 8);
    CREW_CHECK(metadata.len == fill_meta(made, expected) &&
                   memcmp(metadata.data, expected, metadata.len) == 0,
               "the metadata of %zu bytes is a mixture", metadata.len);
    return made;
}

rf_tenant farm_tenant(uint32_t run)
{
    rf_tenant tenant;
    memset(tenant.bytes, run % 2 == 0 ? 0xB7 : 0x5A, sizeof(tenant.bytes));
    return tenant;
}

static rf_run_config config_of(uint32_t run)
{
    return (rf_run_config){
        .lease_duration = run == 1   ? RF_MILLISECOND
                          : run == 2 ? 20 * RF_MILLISECOND
                                     : 60 * RF_SECOND,
        .semantics = run == 6 ? RF_DISPATCHED : RF_COMPLETED,
        .has_max_retries = run == 3,
        .max_retries = 3,
    };
}

struct farm *farm_make(const char *store, uint32_t workers, uint64_t ops_each, bool may_stop)
{
    struct farm *farm = crew_shared(sizeof(*farm));
    snprintf(farm->store, sizeof(farm->store), "%s", store);
    farm->seed = rf_env_number("RF_SEED", 1);
    farm->workers = workers;
    farm->ops_each = ops_each;
    farm->may_stop = may_stop;
    farm->read_only = true;
    farm->log_bytes = sizeof(struct farm_log) + (ops_each + 64) * 2 * sizeof(struct farm_entry);
    for (uint32_t i = 0; i < workers; i++) {
        farm->logs[i] = crew_shared(farm->log_bytes);
        atomic_store(&farm->logs[i]->doing, "starting");
    }
    return farm;
}

void farm_drop(struct farm *farm)
{
    for (uint32_t i = 0; i < farm->workers; i++) {
        crew_unshare(farm->logs[i], farm->log_bytes);
    }
    crew_unshare(farm, sizeof(*farm));
}

/* --- the log --- */

static uint64_t draw(struct worker *w)
{
    return atomic_fetch_add(&w->farm->ticket, 1);
}

static void note(struct worker *w, enum farm_kind kind, uint32_t run, uint64_t shard, uint64_t made,
                 uint64_t fence, uint64_t key, uint64_t before, uint64_t child)
{
    uint64_t n = atomic_load(&w->log->count);
    if (n >= w->farm->ops_each * 2) {
        return;
    }
    w->log->entries[n] = (struct farm_entry){.kind = kind,
                                             .run = run,
                                             .shard = shard,
                                             .made = made,
                                             .fence = fence,
                                             .key = key,
                                             .before = before,
                                             .after = draw(w),
                                             .child = child};
    atomic_store(&w->log->count, n + 1);
}

static void doing(struct worker *w, const char *what)
{
    atomic_store(&w->log->doing, what);
}

/* --- answers --- */

static void wrong(struct worker *w, const char *what, rf_status status, const rf_detail *detail)
{
    char text[400] = "";
    rf_explain(status, detail, text, sizeof(text));
    CREW_CHECK(false, "worker %" PRIu64 " after %" PRIu64 " calls: %s answered %d: %s", w->id,
               (uint64_t)atomic_load(&w->log->ops), what, (int)status, text);
}

/* Any status that the caller expects, or BUSY where somebody may be stopped with a lock. */
static bool expected(struct worker *w, const char *what, rf_status status, const rf_detail *detail,
                     const rf_status *allowed, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (status == allowed[i]) {
            return true;
        }
    }
    if (status == RF_BUSY && w->farm->may_stop) {
        return false;
    }
    if (status != RF_OK) {
        wrong(w, what, status, detail);
    }
    return true;
}

#define EXPECT(w, what, status, detail, ...)                                                       \
    expected(w, what, status, detail, (const rf_status[]){__VA_ARGS__},                            \
             sizeof((const rf_status[]){__VA_ARGS__}) / sizeof(rf_status))

/* A lease that is refused though its time is not over must have belonged to a run that is gone. */
static void check_loss(struct worker *w, const struct held *h, rf_status status)
{
    rf_shard_info info;
    uint32_t run = (uint32_t)h->lease.run;
    rf_tenant tenant = farm_tenant(run);
    if (status == RF_NOT_FOUND || rf_now(w->store) >= h->lease.deadline) {
        return;
    }
    rf_status seen = rf_get_shard(w->store, &tenant, run, h->lease.shard, &info, w->scratch,
                                  sizeof(w->scratch), NULL);
    CREW_CHECK(seen != RF_OK || farm_made(info.spec.metadata) != h->made,
               "worker %" PRIu64 " lost shard %" PRIx64 " of run %u, fence %" PRIu64
               ", before its deadline (status %d); now it has fence %" PRIu64 " status %d",
               w->id, h->lease.shard, run, h->lease.fence, (int)status, info.fence,
               (int)info.status);
}

/* What every call on a lease may answer. Returns whether it is still held. */
static bool still_held(struct worker *w, struct held *h, const char *what, rf_status status,
                       const rf_result *result)
{
    if (status == RF_OK || status == RF_CURSOR_REGRESSION) {
        return true;
    }
    if (status == RF_BUSY && w->farm->may_stop) {
        return true;
    }
    if (status != RF_STALE_FENCE && status != RF_LEASE_EXPIRED && status != RF_SHARD_TERMINAL &&
        status != RF_NOT_FOUND) {
        wrong(w, what, status, &result->detail);
    }
    check_loss(w, h, status);
    h->used = false;
    return false;
}

/* --- choosing --- */

static uint32_t random_run(struct worker *w)
{
    return 1 + rf_prng_below(&w->prng, FARM_RUNS);
}

static struct held *random_held(struct worker *w)
{
    uint32_t from = rf_prng_below(&w->prng, HELD);
    for (uint32_t i = 0; i < HELD; i++) {
        struct held *h = &w->held[(from + i) % HELD];
        if (h->used) {
            return h;
        }
    }
    return NULL;
}

static struct held *free_held(struct worker *w)
{
    for (uint32_t i = 0; i < HELD; i++) {
        if (!w->held[i].used) {
            return &w->held[i];
        }
    }
    return NULL;
}

static void remember(struct worker *w, uint32_t run, uint64_t shard)
{
    uint32_t i = w->recent_count++ % RECENT;
    w->recent[i].run = run;
    w->recent[i].shard = shard;
}

static void random_shard(struct worker *w, uint32_t *run, uint64_t *shard)
{
    uint32_t known = w->recent_count < RECENT ? w->recent_count : RECENT;
    *run = random_run(w);
    *shard = 1 + rf_prng_below(&w->prng, FARM_ROOTS);
    if (known != 0 && rf_prng_chance(&w->prng, 60)) {
        uint32_t i = rf_prng_below(&w->prng, known);
        *run = w->recent[i].run;
        *shard = w->recent[i].shard;
    }
}

/* A cursor that moves on by a random step; its bytes live in *key and the worker. */
static rf_cursor next_cursor(struct worker *w, const struct held *h, struct farm_key *key)
{
    uint64_t from = h->key > h->start ? h->key : h->start;
    uint64_t left = h->end - from - 1;
    uint64_t step = left == 0 ? 0 : rf_prng_next(&w->prng) % (left / 64 + 1);
    uint64_t number = from + step;
    rf_cursor cursor;
    *key = farm_key(number);
    cursor.key = key_bytes(key);
    cursor.token = (rf_bytes){0};
    uint32_t dice = rf_prng_below(&w->prng, 100);
    if (dice < 20) {
        size_t len = 1 + rf_prng_below(&w->prng, dice < 5 ? TOKEN_MAX : 64);
        fill_token(number, w->token, len);
        cursor.token = (rf_bytes){.data = w->token, .len = len};
    }
    return cursor;
}

/* --- grants --- */

static void take_grant(struct worker *w, struct held *h, uint32_t run, const rf_grant *g,
                       uint64_t before)
{
    farm_check_cursor(g->cursor, "a grant");
    *h = (struct held){.used = true,
                       .lease = g->lease,
                       .made = farm_made(g->spec.metadata),
                       .start = farm_number(g->spec.start),
                       .end = farm_number(g->spec.end),
                       .renewed_at = rf_now(w->store)};
    h->key = g->cursor.key.data == NULL ? 0 : farm_number(g->cursor.key);
    h->meta_len = fill_meta(h->made, h->meta);
    CREW_CHECK(h->start < h->end, "a grant of an empty range");
    CREW_CHECK(h->key == 0 || (h->key >= h->start && h->key < h->end), "a cursor outside (S6)");
    CREW_CHECK(g->status == RF_SHARD_ACTIVE && g->lease.run == run, "a grant of something else");
    note(w, FARM_GRANT, run, g->lease.shard, h->made, g->lease.fence, h->key, before, 0);
    remember(w, run, g->lease.shard);
}

static void do_claim(struct worker *w)
{
    struct held *h = free_held(w);
    uint32_t run = random_run(w);
    rf_tenant tenant = farm_tenant(run);
    rf_grant grant = {.scratch = w->scratch, .scratch_size = sizeof(w->scratch)};
    rf_result result = {0};
    uint32_t flags = rf_prng_chance(&w->prng, 5) ? RF_DETACHED : RF_BOUND;
    uint64_t timeout =
        rf_prng_below(&w->prng, 200) == 0 ? rf_prng_below(&w->prng, 2000) * RF_MICROSECOND : 0;
    if (h == NULL) {
        return;
    }
    doing(w, "claim");
    uint64_t before = draw(w);
    rf_status status = rf_claim(w->store, rf_now(w->store), &tenant, run, rf_prng_next(&w->prng),
                                flags, timeout, &grant, &result);
    EXPECT(w, "claim", status, &result.detail, RF_NONE_AVAILABLE, RF_RUN_NOT_FOUND,
           RF_RUN_TERMINAL);
    if (status == RF_OK) {
        take_grant(w, h, run, &grant, before);
    }
}

static void do_acquire(struct worker *w)
{
    struct held *h = free_held(w);
    uint32_t run;
    uint64_t shard;
    rf_grant grant = {.scratch = w->scratch, .scratch_size = sizeof(w->scratch)};
    rf_result result = {0};
    random_shard(w, &run, &shard);
    rf_tenant tenant = farm_tenant(run);
    if (h == NULL) {
        return;
    }
    doing(w, "acquire");
    uint64_t before = draw(w);
    rf_status status = rf_acquire(w->store, rf_now(w->store), &tenant, run, shard, w->id, RF_BOUND,
                                  &grant, &result);
    EXPECT(w, "acquire", status, &result.detail, RF_NOT_FOUND, RF_SHARD_TERMINAL,
           RF_ALREADY_LEASED);
    if (status == RF_OK) {
        take_grant(w, h, run, &grant, before);
    }
}

static void do_unpark(struct worker *w)
{
    uint32_t run;
    uint64_t shard;
    rf_result result = {.want_event = true};
    random_shard(w, &run, &shard);
    rf_tenant tenant = farm_tenant(run);
    doing(w, "unpark");
    uint64_t before = draw(w);
    rf_status status =
        rf_unpark(w->store, rf_now(w->store), &tenant, run, shard, rf_new_op(w->store), &result);
    EXPECT(w, "unpark", status, &result.detail, RF_NOT_FOUND, RF_RUN_TERMINAL, RF_NOT_PARKED);
    if (status == RF_OK) {
        CREW_CHECK(result.has_event, "an unpark without an event");
        note(w, FARM_UNPARK, run, shard, 0, result.event.fence, 0, before, 0);
    }
}

/* --- what an owner does --- */

static void do_renew(struct worker *w, struct held *h)
{
    rf_tenant tenant = farm_tenant((uint32_t)h->lease.run);
    rf_result result = {0};
    uint64_t old = h->lease.deadline;
    doing(w, "renew");
    rf_status status = rf_renew(w->store, rf_now(w->store), &tenant, &h->lease, &result);
    if (still_held(w, h, "renew", status, &result) && status == RF_OK) {
        CREW_CHECK(h->lease.deadline >= old, "a renewal moved the deadline back");
    }
}

/* checkpoint, complete and release with a cursor. */
static void do_cursor(struct worker *w, struct held *h, enum farm_kind kind)
{
    struct farm_key key;
    rf_cursor cursor = next_cursor(w, h, &key);
    uint32_t run = (uint32_t)h->lease.run;
    rf_tenant tenant = farm_tenant(run);
    rf_result result = {0};
    uint64_t op = rf_new_op(w->store), before = draw(w), now = rf_now(w->store);
    bool twice = rf_prng_chance(&w->prng, 3);
    rf_status status = RF_OK;
    doing(w, "checkpoint, complete or release");
    for (unsigned i = 0; i < 1u + twice && status == RF_OK; i++) {
        status = kind == FARM_CHECKPOINT
                     ? rf_checkpoint(w->store, now, &tenant, &h->lease, &cursor, op, &result)
                 : kind == FARM_COMPLETE
                     ? rf_complete(w->store, now, &tenant, &h->lease, &cursor, op, &result)
                     : rf_release(w->store, now, &tenant, &h->lease, &cursor, op, &result);
        if (i == 0 && status == RF_OK) {
            CREW_CHECK(result.outcome == RF_EXECUTED, "a new op id was replayed");
            h->key = farm_number(cursor.key);
            note(w, kind, run, h->lease.shard, h->made, h->lease.fence, h->key, before, 0);
        } else if (status == RF_OK) {
            CREW_CHECK(result.outcome == RF_REPLAYED, "the same op id was executed twice");
        } else if (i != 0 && kind == FARM_RELEASE) {
            h->used = false; /* others had it since, and the ring has forgotten */
            return;
        }
    }
    if (still_held(w, h, "an operation with a cursor", status, &result) && status == RF_OK) {
        h->used = kind == FARM_CHECKPOINT;
    }
}

static void do_park(struct worker *w, struct held *h)
{
    uint32_t run = (uint32_t)h->lease.run;
    rf_tenant tenant = farm_tenant(run);
    rf_result result = {0};
    uint64_t before = draw(w);
    doing(w, "park");
    rf_status status =
        rf_park(w->store, rf_now(w->store), &tenant, &h->lease,
                (rf_park_reason)rf_prng_below(&w->prng, 5), rf_new_op(w->store), &result);
    if (still_held(w, h, "park", status, &result) && status == RF_OK) {
        note(w, FARM_PARK, run, h->lease.shard, h->made, h->lease.fence, h->key, before, 0);
        h->used = false;
    }
}

static void do_split(struct worker *w, struct held *h)
{
    uint32_t run = (uint32_t)h->lease.run, count = 2 + rf_prng_below(&w->prng, 5);
    rf_tenant tenant = farm_tenant(run);
    rf_result result = {0};
    rf_child children[8] = {0};
    struct farm_key keys[9];
    uint64_t ids[8], width = (h->end - h->start) / count;
    if (width == 0) {
        return;
    }
    rf_bytes meta = {.data = h->meta, .len = h->meta_len};
    for (uint32_t i = 0; i <= count; i++) {
        keys[i] = farm_key(i == count ? h->end : h->start + i * width);
    }
    for (uint32_t i = 0; i < count; i++) {
        children[count - 1 - i].spec = (rf_spec){
            .start = key_bytes(&keys[i]), .end = key_bytes(&keys[i + 1]), .metadata = meta};
    }
    uint64_t before = draw(w);
    doing(w, "split_replace");
    rf_status status = rf_split_replace(w->store, rf_now(w->store), &tenant, &h->lease, children,
                                        count, rf_new_op(w->store), ids, &result);
    if (status == RF_SHARD_LIMIT) {
        return;
    }
    if (still_held(w, h, "split_replace", status, &result) && status == RF_OK) {
        for (uint32_t i = 0; i < count; i++) {
            note(w, FARM_SPLIT, run, h->lease.shard, h->made, h->lease.fence, h->key, before,
                 ids[i]);
            remember(w, run, ids[i]);
        }
        h->used = false;
    }
}

static void do_residual(struct worker *w, struct held *h)
{
    uint32_t run = (uint32_t)h->lease.run;
    rf_tenant tenant = farm_tenant(run);
    rf_result result = {0};
    uint64_t low = h->key > h->start ? h->key : h->start, id = 0;
    if (h->end - low < 4) {
        return;
    }
    uint64_t cut = low + 1 + (h->end - low - 2) / 2;
    struct farm_key start = farm_key(h->start), middle = farm_key(cut), end = farm_key(h->end);
    rf_bytes meta = {.data = h->meta, .len = h->meta_len};
    rf_spec mine = {.start = key_bytes(&start), .end = key_bytes(&middle), .metadata = meta};
    rf_spec rest = {.start = key_bytes(&middle), .end = key_bytes(&end), .metadata = meta};
    uint64_t before = draw(w);
    doing(w, "split_residual");
    rf_status status = rf_split_residual(w->store, rf_now(w->store), &tenant, &h->lease, &mine,
                                         &rest, rf_new_op(w->store), &id, &result);
    if (status == RF_SPAWNED_LIMIT || status == RF_SHARD_LIMIT) {
        return;
    }
    if (still_held(w, h, "split_residual", status, &result) && status == RF_OK) {
        note(w, FARM_RESIDUAL, run, h->lease.shard, h->made, h->lease.fence, h->key, before, id);
        remember(w, run, id);
        h->end = cut;
    }
}

/* --- runs --- */

static void fill_roots(rf_shard_input *inputs, struct farm_key *keys, uint32_t first,
                       uint32_t count, rf_bytes meta)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t id = first + i;
        keys[2 * i] = farm_key(id << 32);
        keys[2 * i + 1] = farm_key((id + 1) << 32);
        inputs[i] = (rf_shard_input){.shard = id,
                                     .spec = {.start = key_bytes(&keys[2 * i]),
                                              .end = key_bytes(&keys[2 * i + 1]),
                                              .metadata = meta}};
    }
}

static void create_run(struct worker *w, uint32_t run)
{
    rf_tenant tenant = farm_tenant(run);
    rf_run_config config = config_of(run);
    rf_shard_input inputs[FARM_ROOTS];
    struct farm_key keys[2 * FARM_ROOTS];
    uint8_t meta[META_LONG];
    uint64_t made = rf_prng_next(&w->prng) | 2;
    rf_result result = {0};
    fill_roots(inputs, keys, 1, FARM_ROOTS, (rf_bytes){.data = meta, .len = fill_meta(made, meta)});
    doing(w, "create_run");
    rf_status status;
    if (rf_prng_chance(&w->prng, 50)) {
        status = rf_create_run_with_shards(w->store, rf_now(w->store), &tenant, run, &config,
                                           inputs, FARM_ROOTS, rf_new_op(w->store), &result);
    } else {
        status = rf_create_run(w->store, rf_now(w->store), &tenant, run, &config, &result);
        EXPECT(w, "create_run", status, &result.detail, RF_RUN_EXISTS);
        /* Whoever made it: it needs shards. */
        status = rf_register_shards(w->store, rf_now(w->store), &tenant, run, inputs, FARM_ROOTS,
                                    rf_new_op(w->store), &result);
    }
    EXPECT(w, "create_run", status, &result.detail, RF_RUN_EXISTS, RF_WRONG_STATUS,
           RF_RUN_NOT_FOUND, RF_SHARD_LIMIT);
}

static void end_run(struct worker *w, uint32_t run)
{
    rf_tenant tenant = farm_tenant(run);
    rf_result result = {0};
    uint64_t now = rf_now(w->store), op = rf_new_op(w->store);
    doing(w, "ending a run");
    uint32_t dice = rf_prng_below(&w->prng, 3);
    rf_status status = dice == 0   ? rf_complete_run(w->store, now, &tenant, run, op, &result)
                       : dice == 1 ? rf_fail_run(w->store, now, &tenant, run, op, &result)
                                   : rf_cancel_run(w->store, now, &tenant, run, op, &result);
    EXPECT(w, "ending a run", status, &result.detail, RF_RUN_NOT_FOUND, RF_RUN_TERMINAL,
           RF_WRONG_STATUS);
}

/* Creates what is missing, registers what is empty, ends what is large, purges what has ended. */
static void do_manage(struct worker *w)
{
    uint32_t run = random_run(w);
    rf_tenant tenant = farm_tenant(run);
    rf_run_info info;
    rf_detail detail = {0};
    rf_result result = {0};
    doing(w, "get_run");
    rf_status status = rf_get_run(w->store, &tenant, run, &info, &detail);
    if (!EXPECT(w, "get_run", status, &detail, RF_RUN_NOT_FOUND)) {
        return;
    }
    if (status == RF_RUN_NOT_FOUND || info.status == RF_RUN_INITIALIZING) {
        create_run(w, run);
    } else if (info.status == RF_RUN_ACTIVE) {
        if (info.shard_count > SHARDS_MAX || rf_prng_chance(&w->prng, 2)) {
            end_run(w, run);
        }
    } else if (rf_prng_chance(&w->prng, 20)) {
        doing(w, "purge");
        status = rf_purge_run(w->store, rf_now(w->store), &tenant, run, &result);
        EXPECT(w, "purge", status, &result.detail, RF_RUN_NOT_FOUND, RF_WRONG_STATUS);
    }
}

/* With metadata of their own: the run may be another one by the time they come. */
static void do_add(struct worker *w)
{
    uint32_t run = random_run(w);
    rf_tenant tenant = farm_tenant(run);
    rf_shard_input inputs[4];
    struct farm_key keys[8];
    uint8_t meta[META_LONG];
    rf_result result = {0};
    uint64_t made = rf_prng_next(&w->prng) | 2;
    uint32_t count = 1 + rf_prng_below(&w->prng, 4);
    uint32_t first = FARM_ROOTS + 1 + rf_prng_below(&w->prng, FARM_IDS - FARM_ROOTS - 5);
    fill_roots(inputs, keys, first, count, (rf_bytes){.data = meta, .len = fill_meta(made, meta)});
    doing(w, "add_shards");
    rf_status status = rf_add_shards(w->store, rf_now(w->store), &tenant, run, inputs, count,
                                     rf_new_op(w->store), &result);
    EXPECT(w, "add_shards", status, &result.detail, RF_RUN_NOT_FOUND, RF_WRONG_STATUS,
           RF_DUPLICATE_SHARD, RF_OVERLAPPING_RANGES, RF_SHARD_LIMIT);
}

/* --- reads --- */

static bool count_shard(void *context, const rf_shard_info *info)
{
    farm_check_cursor(info->cursor, "a list");
    farm_made(info->spec.metadata);
    *(uint64_t *)context += 1;
    return true;
}

static void do_read(struct worker *w)
{
    uint32_t run, dice = rf_prng_below(&w->prng, 1000);
    uint64_t shard, count = 0;
    rf_shard_info info;
    rf_capacity capacity;
    rf_progress progress;
    rf_detail detail = {0};
    rf_status status;
    random_shard(w, &run, &shard);
    rf_tenant tenant = farm_tenant(run);
    doing(w, "reading");
    if (dice < 3) {
        status =
            rf_list_shards(w->store, rf_now(w->store), &tenant, run,
                           (rf_filter)rf_prng_below(&w->prng, 5), count_shard, &count, &detail);
    } else if (dice < 6) {
        status =
            rf_get_progress(w->store, rf_now(w->store), &tenant, run, &progress, NULL, &detail);
    } else if (dice < 300) {
        status = rf_get_capacity(w->store, &tenant, run, &capacity, &detail);
    } else {
        status = rf_get_shard(w->store, &tenant, run, shard, &info, w->scratch, sizeof(w->scratch),
                              &detail);
        if (status == RF_OK) {
            CREW_CHECK(info.shard == shard, "asked for one shard, got another");
            farm_check_cursor(info.cursor, "get_shard");
            farm_made(info.spec.metadata);
        }
    }
    EXPECT(w, "a read", status, &detail, RF_NOT_FOUND, RF_RUN_NOT_FOUND);
}

/* --- the loop --- */

static void step(struct worker *w)
{
    uint32_t dice = rf_prng_below(&w->prng, 1000);
    struct held *h = random_held(w);
    if (dice < 100) {
        do_read(w);
    } else if (dice < 140) {
        do_unpark(w);
    } else if (dice < 144) {
        do_manage(w);
    } else if (dice < 146) {
        do_add(w);
    } else if (dice < 200) {
        do_acquire(w);
    } else if (h == NULL || dice < 330) {
        do_claim(w);
    } else if (dice < 460) {
        do_renew(w, h);
    } else if (dice < 810) {
        do_cursor(w, h, FARM_CHECKPOINT);
    } else if (dice < 870) {
        do_cursor(w, h, FARM_RELEASE);
    } else if (dice < 920) {
        do_cursor(w, h, FARM_COMPLETE);
    } else if (dice < 960) {
        do_park(w, h);
    } else if (dice < 980) {
        do_split(w, h);
    } else {
        do_residual(w, h);
    }
}

int farm_work(struct farm *farm, uint32_t index)
{
    struct worker *w = calloc(1, sizeof(*w));
    CREW_CHECK(w != NULL, "memory");
    uint64_t life = atomic_fetch_add(&farm->life, 1);
    w->farm = farm;
    w->log = farm->logs[index];
    w->id = index;
    w->prng.state = farm->seed * 1000003 + index * 101 + (farm->may_stop ? life * 7919 : 0);
    doing(w, "opening");
    w->store =
        crew_open(farm->store,
                  &(rf_options){.busy_timeout = farm->may_stop ? RF_SECOND / 5 : 30 * RF_SECOND});
    while (atomic_load(&w->log->ops) < farm->ops_each) {
        step(w);
        atomic_fetch_add(&w->log->ops, 1);
    }
    doing(w, "closing");
    CREW_CHECK(rf_close(w->store) == RF_OK, "closing");
    doing(w, "done");
    atomic_store(&w->log->finished, 1);
    free(w);
    return 0;
}
