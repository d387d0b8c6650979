#include "history.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "bytes.h"

#define RETRIES 3u

static rf_result result;

void rf_history_begin(struct rf_history *h, struct rf_shop *shop, uint64_t seed)
{
    memset(h, 0, sizeof(*h));
    h->shop = shop;
    h->prng.state = seed;
    h->next_shard = 1;
    h->large = 5;
    h->waits = 10;
    rf_tenant_from_name("one", &h->tenants[0]);
    rf_tenant_from_name("two", &h->tenants[1]);
}

void rf_history_forget_leases(struct rf_history *h)
{
    for (unsigned i = 0; i < RF_HISTORY_LEASES; i++) {
        h->leases[i].held = false;
    }
}

static rf_store *any_store(struct rf_history *h)
{
    rf_store *store;
    do {
        store = h->stores[rf_prng_below(&h->prng, RF_HISTORY_HANDLES)];
    } while (store == NULL);
    return store;
}

static rf_result *fresh(struct rf_history *h)
{
    /* Now and then somebody waits: epochs are many. */
    bool waits = rf_prng_below(&h->prng, 1000) < h->waits;
    result = (rf_result){.want_event = true, .durability = waits ? RF_WAIT : h->durability};
    return &result;
}

/* Every call ends here. */
static bool judged(struct rf_history *h, rf_status status)
{
    if (status >= RF_BUSY) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &result.detail));
    }
    if (status != RF_OK) {
        h->refused++;
        return false;
    }
    if (result.has_event) {
        h->done[result.event.kind]++;
    }
    h->epoch = result.epoch > h->epoch ? result.epoch : h->epoch;
    return true;
}

/* --- bytes --- */

static uint8_t filler[RF_METADATA_MAX];

/* Mostly short, sometimes as long as can be. */
static size_t any_length(struct rf_history *h, size_t most)
{
    if (rf_prng_below(&h->prng, 100) < h->large) {
        return rf_prng_below(&h->prng, (uint32_t)most + 1);
    }
    return rf_prng_below(&h->prng, 24);
}

static rf_bytes any_bytes(struct rf_history *h, size_t most)
{
    size_t len = any_length(h, most);
    if (filler[0] == 0) {
        for (size_t i = 0; i < sizeof(filler); i++) {
            filler[i] = (uint8_t)(1 + i * 7 % 251);
        }
    }
    return rf_bytes_of(filler + rf_prng_below(&h->prng, (uint32_t)(sizeof(filler) - len) + 1), len);
}

/* A key of [low, high), above low if there is room, with a tail of any length. */
static bool key_between(struct rf_history *h, rf_bytes low, rf_bytes high, uint8_t *out,
                        size_t *len)
{
    if (rf_key_midpoint(low, high, out, len) != RF_OK) {
        return false;
    }
    size_t tail = rf_prng_chance(&h->prng, 30) ? any_length(h, RF_KEY_MAX - *len) : 0;
    if (*len + tail > RF_KEY_MAX) {
        return true;
    }
    memset(out + *len, 'x', tail);
    if (high.len == 0 || rf_key_compare(rf_bytes_of(out, *len + tail), high) < 0) {
        *len += tail;
    }
    return true;
}

/* --- runs --- */

static uint64_t any_run(struct rf_history *h)
{
    return 1 + rf_prng_below(&h->prng, RF_HISTORY_RUNS);
}

static const rf_tenant *any_tenant(struct rf_history *h)
{
    return &h->tenants[rf_prng_below(&h->prng, 2)];
}

#define MANIFEST_MAX 2000u
static rf_shard_input inputs[MANIFEST_MAX];
static uint8_t bounds[MANIFEST_MAX + 1][12];

/* Shards side by side, in a part of the key space that no other manifest of the history uses. */
static uint32_t any_manifest(struct rf_history *h)
{
    uint32_t count =
        1 + rf_prng_below(&h->prng, rf_prng_chance(&h->prng, h->large) ? MANIFEST_MAX : 20);
    uint64_t place = h->next_shard;
    for (uint32_t i = 0; i <= count; i++) {
        uint64_t n = (place + i) << 8;
        for (unsigned k = 0; k < 8; k++) {
            bounds[i][k] = (uint8_t)(n >> (56 - 8 * k));
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        inputs[i] = (rf_shard_input){
            .shard = h->next_shard++,
            .spec = {.start = rf_bytes_of(bounds[i], 8), .end = rf_bytes_of(bounds[i + 1], 8)}};
        if (rf_prng_chance(&h->prng, 30)) {
            inputs[i].spec.metadata = any_bytes(h, RF_METADATA_MAX);
        }
        if (rf_prng_chance(&h->prng, 10)) {
            inputs[i].cursor.key = rf_bytes_of(bounds[i], 8);
            inputs[i].cursor.token = any_bytes(h, RF_TOKEN_MAX);
        }
    }
    h->next_shard++;
    return count;
}

static void change_runs(struct rf_history *h)
{
    rf_store *store = any_store(h);
    const rf_tenant *tenant = any_tenant(h);
    uint64_t run = any_run(h), op = rf_prng_next(&h->prng), now = h->shop->now;
    const rf_run_config config = {.lease_duration = 50 + rf_prng_below(&h->prng, 3) * 1000,
                                  .semantics = (rf_semantics)rf_prng_below(&h->prng, 2),
                                  .has_max_retries = rf_prng_chance(&h->prng, 30),
                                  .max_retries = 3};
    rf_run_info info;
    bool there = rf_get_run(store, tenant, run, &info, NULL) == RF_OK;
    rf_result *r = fresh(h);
    rf_status status;
    if (!there) {
        status = rf_prng_chance(&h->prng, 30)
                     ? rf_create_run(store, now, tenant, run, &config, r)
                     : rf_create_run_with_shards(store, now, tenant, run, &config, inputs,
                                                 any_manifest(h), op, r);
    } else if (info.status == RF_RUN_INITIALIZING) {
        status = rf_prng_chance(&h->prng, 80)
                     ? rf_register_shards(store, now, tenant, run, inputs, any_manifest(h), op, r)
                     : rf_cancel_run(store, now, tenant, run, op, r);
    } else if (info.status == RF_RUN_ACTIVE) {
        uint32_t what = rf_prng_below(&h->prng, 100);
        if (what < 80 && info.shard_count < 4000) {
            status = rf_add_shards(store, now, tenant, run, inputs, any_manifest(h), op, r);
        } else if (what < 90) {
            status = rf_complete_run(store, now, tenant, run, op, r);
        } else {
            status = what < 95 ? rf_fail_run(store, now, tenant, run, op, r)
                               : rf_cancel_run(store, now, tenant, run, op, r);
        }
    } else {
        status = rf_purge_run(store, now, tenant, run, r);
    }
    judged(h, status);
}

/* --- shards --- */

static void keep_lease(struct rf_history *h, const rf_tenant *tenant, const rf_grant *g)
{
    unsigned i = rf_prng_below(&h->prng, RF_HISTORY_LEASES);
    h->leases[i].held = true;
    h->leases[i].tenant = *tenant;
    h->leases[i].lease = g->lease;
    h->leases[i].start_len = g->spec.start.len;
    h->leases[i].end_len = g->spec.end.len;
    h->leases[i].key_len = g->cursor.key.len;
    h->leases[i].has_key = g->cursor.key.data != NULL;
    memcpy(h->leases[i].start, g->spec.start.data, g->spec.start.len);
    memcpy(h->leases[i].end, g->spec.end.data, g->spec.end.len);
    if (g->cursor.key.len != 0) {
        memcpy(h->leases[i].key, g->cursor.key.data, g->cursor.key.len);
    }
}

static void claim(struct rf_history *h)
{
    const rf_tenant *tenant = any_tenant(h);
    rf_grant grant = rf_shop_blank(0);
    uint32_t flags = rf_prng_chance(&h->prng, 50) ? RF_DETACHED : RF_BOUND;
    rf_status status = rf_claim(any_store(h), h->shop->now, tenant, any_run(h),
                                rf_prng_next(&h->prng) % 1000, flags, 0, &grant, fresh(h));
    if (judged(h, status)) {
        keep_lease(h, tenant, &grant);
    }
}

struct find {
    struct rf_history *history;
    uint64_t shard;
    uint32_t seen;
};

static bool pick(void *context, const rf_shard_info *shard)
{
    struct find *f = context;
    if (rf_prng_below(&f->history->prng, ++f->seen) == 0) {
        f->shard = shard->shard;
    }
    return f->seen < 50;
}

static void unpark(struct rf_history *h)
{
    rf_store *store = any_store(h);
    const rf_tenant *tenant = any_tenant(h);
    uint64_t run = any_run(h);
    struct find f = {.history = h};
    rf_status status =
        rf_list_shards(store, h->shop->now, tenant, run, RF_LIST_PARKED, pick, &f, NULL);
    if (status == RF_OK && f.seen != 0) {
        judged(h, rf_unpark(store, h->shop->now, tenant, run, f.shard, rf_prng_next(&h->prng),
                            fresh(h)));
    }
}

static rf_spec spec_of(struct rf_history *h, unsigned i)
{
    return (rf_spec){.start = rf_bytes_of(h->leases[i].start, h->leases[i].start_len),
                     .end = rf_bytes_of(h->leases[i].end, h->leases[i].end_len)};
}

static void split(struct rf_history *h, unsigned i)
{
    static uint8_t keys[RF_SPLIT_CHILDREN_MAX][RF_KEY_MAX];
    static rf_child children[RF_SPLIT_CHILDREN_MAX];
    rf_bytes points[RF_SPLIT_CHILDREN_MAX];
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
    rf_spec spec = spec_of(h, i), kept, residual;
    uint64_t now = h->shop->now, op = rf_prng_next(&h->prng);
    rf_store *store = any_store(h);
    uint32_t count =
        1 +
        rf_prng_below(&h->prng, rf_prng_chance(&h->prng, h->large) ? RF_SPLIT_CHILDREN_MAX - 1 : 3);
    bool residual_only = rf_prng_chance(&h->prng, 60);
    rf_bytes low = residual_only && h->leases[i].has_key
                       ? rf_bytes_of(h->leases[i].key, h->leases[i].key_len)
                       : spec.start;
    uint32_t made = 0;
    for (; made < (residual_only ? 1 : count); made++) {
        size_t len;
        if (rf_key_midpoint(low, spec.end, keys[made], &len) != RF_OK) {
            break;
        }
        points[made] = low = rf_bytes_of(keys[made], len);
    }
    if (made == 0) {
        return;
    }
    spec.metadata = any_bytes(h, RF_METADATA_MAX);
    rf_lease *lease = &h->leases[i].lease;
    const rf_tenant *tenant = &h->leases[i].tenant;
    if (residual_only) {
        if (rf_plan_residual_at(spec, points[0], &kept, &residual, NULL) == RF_OK &&
            judged(h, rf_split_residual(store, now, tenant, lease, &kept, &residual, op, ids,
                                        fresh(h)))) {
            memcpy(h->leases[i].end, points[0].data, points[0].len);
            h->leases[i].end_len = points[0].len;
        }
        return;
    }
    if (rf_plan_replace(spec, points, made, children, NULL) == RF_OK) {
        judged(h,
               rf_split_replace(store, now, tenant, lease, children, made + 1, op, ids, fresh(h)));
        h->leases[i].held = false;
    }
}

static void use_lease(struct rf_history *h)
{
    unsigned i = rf_prng_below(&h->prng, RF_HISTORY_LEASES);
    if (!h->leases[i].held) {
        claim(h);
        return;
    }
    rf_store *store = any_store(h);
    rf_lease *lease = &h->leases[i].lease;
    const rf_tenant *tenant = &h->leases[i].tenant;
    uint64_t now = h->shop->now, op = rf_prng_next(&h->prng);
    uint32_t what = rf_prng_below(&h->prng, 100);
    rf_spec spec = spec_of(h, i);
    rf_cursor cursor = {.key = rf_bytes_of(h->leases[i].key, h->leases[i].key_len)};
    if (what < 8) {
        split(h, i);
        return;
    }
    if (what < 14) {
        judged(h, rf_renew(store, now, tenant, lease, fresh(h)));
        return;
    }
    if (what < 18) {
        h->leases[i].held = false;
        judged(h, rf_park(store, now, tenant, lease, (rf_park_reason)rf_prng_below(&h->prng, 5), op,
                          fresh(h)));
        return;
    }
    rf_bytes low = h->leases[i].has_key ? cursor.key : spec.start;
    uint8_t key[RF_KEY_MAX];
    size_t len = low.len;
    if (rf_prng_chance(&h->prng, 20) || !key_between(h, low, spec.end, key, &len)) {
        memcpy(key, low.data, low.len);
        len = low.len;
    }
    cursor.key = rf_bytes_of(key, len);
    if (rf_prng_chance(&h->prng, 30)) {
        cursor.token = any_bytes(h, RF_TOKEN_MAX);
    }
    if (what < 24) {
        h->leases[i].held = false;
        judged(h, rf_release(store, now, tenant, lease, &cursor, op, fresh(h)));
        return;
    }
    if (what < 32) {
        h->leases[i].held = false;
        judged(h, rf_complete(store, now, tenant, lease, &cursor, op, fresh(h)));
        return;
    }
    if (judged(h, rf_checkpoint(store, now, tenant, lease, &cursor, op, fresh(h)))) {
        memcpy(h->leases[i].key, key, len);
        h->leases[i].key_len = len;
        h->leases[i].has_key = true;
        if (rf_prng_chance(&h->prng, 5)) {
            judged(h, rf_checkpoint(store, now, tenant, lease, &cursor, op, fresh(h)));
        }
    } else {
        h->leases[i].held = false;
    }
}

void rf_history_play(struct rf_history *h, uint32_t operations)
{
    for (uint32_t n = 0; n < operations; n++) {
        uint32_t what = rf_prng_below(&h->prng, 1000);
        h->shop->now += rf_prng_below(&h->prng, 10);
        if (what < 8) {
            change_runs(h);
        } else if (what < 100) {
            claim(h);
        } else if (what < 110) {
            unpark(h);
        } else if (what < 112) {
            rf_sweep(any_store(h), h->shop->now, any_tenant(h), any_run(h), NULL);
        } else {
            use_lease(h);
        }
    }
}

/* --- what is seen --- */

struct text {
    char *at;
    size_t len, room;
};

static void say(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct text *t, const char *format, ...)
{
    if (t->room - t->len < 512) {
        t->room = t->room * 2 + 65536;
        t->at = realloc(t->at, t->room);
        TEST_ASSERT_NOT_NULL(t->at);
    }
    va_list args;
    va_start(args, format);
    t->len += (size_t)vsnprintf(t->at + t->len, t->room - t->len, format, args);
    va_end(args);
}

static uint64_t digest(rf_bytes b)
{
    return b.data == NULL ? 0 : rf_hash64("ringfence/test/picture", b) | 1;
}

static bool show_shard(void *context, const rf_shard_info *s)
{
    struct text *t = context;
    say(t, "%" PRIx64 " %d %d %d %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64 " %" PRIx64,
        s->shard, s->status, s->has_reason ? (int)s->reason : -1, s->semantics,
        digest(s->spec.start), digest(s->spec.end), digest(s->spec.metadata), digest(s->cursor.key),
        digest(s->cursor.token));
    say(t, " fence %" PRIu64 " parent %d %" PRIx64 " attempts %u version %" PRIu64 " spawned %u",
        s->fence, s->has_parent, s->parent, s->attempts, s->version, s->spawned_count);
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        say(t, " %" PRIx64, s->spawned[i]);
    }
    for (uint32_t i = 0; i < s->ring_count; i++) {
        say(t, " (%" PRIx64 " %u %u %" PRIu64 ")", s->ring[i].op, s->ring[i].kind,
            s->ring[i].result, s->ring[i].executed_at);
    }
    say(t, "\n");
    return true;
}

char *rf_history_picture(rf_store *store)
{
    struct text t = {0};
    static const char *const names[] = {"one", "two"};
    for (unsigned n = 0; n < 2; n++) {
        rf_tenant tenant;
        rf_tenant_from_name(names[n], &tenant);
        for (uint64_t run = 1; run <= RF_HISTORY_RUNS; run++) {
            rf_run_info info;
            if (rf_get_run(store, &tenant, run, &info, NULL) != RF_OK) {
                continue;
            }
            say(&t,
                "run %s %" PRIu64 ": %d %" PRIu64 " %" PRIu64 " roots %" PRIu64 " %" PRIu64
                " done %" PRIu64 " split %" PRIu64 " parked %" PRIu64 " config %" PRIu64 " %d %u",
                names[n], run, info.status, info.created_at, info.completed_at, info.root_count,
                info.shard_count, info.done, info.split, info.parked, info.config.lease_duration,
                info.config.semantics, info.config.has_max_retries ? info.config.max_retries : 0);
            for (uint32_t i = 0; i < info.ring_count; i++) {
                say(&t, " (%" PRIx64 " %u %" PRIu64 ")", info.ring[i].op, info.ring[i].kind,
                    info.ring[i].executed_at);
            }
            say(&t, "\n");
            rf_detail detail;
            rf_status status =
                rf_list_shards(store, 1, &tenant, run, RF_LIST_ALL, show_shard, &t, &detail);
            if (status != RF_OK) {
                TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
            }
        }
    }
    say(&t, "end\n");
    return t.at;
}
