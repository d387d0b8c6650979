/* Ringfence itself, by its public functions alone. */
#include <stdlib.h>
#include <string.h>

#include "peers.h"

#define RUN 1u

static const struct setting *setting;
static char store_name[256], region[256];

static void must(rf_status status, const rf_detail *detail, const char *what)
{
    if (__builtin_expect(status != RF_OK, 0)) {
        char why[512];
        rf_explain(status, detail, why, sizeof(why));
        fail("ringfence: %s: %s", what, why);
    }
}

static rf_durability durability(void)
{
    switch (setting->promise) {
    case PROMISE_NOW:
        return RF_WAIT;
    case PROMISE_SOON:
        return RF_NOWAIT;
    default:
        return RF_VOLATILE;
    }
}

static rf_store *open_store(void)
{
    const rf_options options = {
        .create = true,
        .durability = durability(),
        /* Where 32 workers share few cores with others, the holder of a lock may be without one for long. */
        .busy_timeout = 60 * RF_SECOND,
        .region_path = setting->promise == PROMISE_VOLATILE ? NULL : region,
    };
    rf_detail detail = {0};
    rf_store *store = NULL;
    must(rf_open(store_name, &options, &store, &detail), &detail, "opening");
    return store;
}

static bool start(const struct setting *wanted, char *about, size_t size)
{
    setting = wanted;
    const char *own = strrchr(place, '/') + 1;
    snprintf(region, sizeof(region), "/dev/shm/%s.region", own);
    if (setting->promise == PROMISE_VOLATILE) {
        snprintf(store_name, sizeof(store_name), "%s.volatile", own);
    } else {
        snprintf(store_name, sizeof(store_name), "%s", place_of("ringfence"));
    }
    rf_store *store = open_store();
    rf_inspection inspection = {0};
    rf_detail detail = {0};
    must(rf_inspect(store, &inspection, &detail), &detail, "looking");
    must(rf_close(store), NULL, "closing");
    snprintf(about, size, "ringfence %s%s%s, all defaults but patience for locks",
             rf_version_string(), inspection.io_path[0] != 0 ? ", " : "", inspection.io_path);
    return true;
}

static void stop(void)
{
    rf_detail detail = {0};
    must(rf_destroy(store_name, &detail), &detail, "removing the store");
}

/* --- a worker --- */

struct worker {
    rf_store *store;
    rf_tenant tenant;
    uint64_t number;
    rf_grant grant;
    _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
};

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        fail("no memory");
    }
    /* A claim looks from the shard of the worker's number on, so numbers are spread over the run. */
    w->number = (uint64_t)number * shards / workers;
    w->store = open_store();
    rf_tenant_from_name("bench", &w->tenant);
    w->grant.scratch = w->scratch;
    w->grant.scratch_size = sizeof(w->scratch);
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    must(rf_close(w->store), NULL, "closing");
    free(w);
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    rf_result result = {0};
    rf_status status = rf_claim(w->store, rf_now(w->store), &w->tenant, RUN, w->number, RF_BOUND, 0,
                                &w->grant, &result);
    if (__builtin_expect(status == RF_NONE_AVAILABLE, 0)) {
        return REFUSED;
    }
    must(status, &result.detail, "claim");
    if (setting->claims_wait) {
        must(rf_sync(w->store, result.epoch, &result.detail), &result.detail, "sync of a claim");
    }
    *out = (struct claim){
        .index = (uint32_t)w->grant.lease.shard - 1,
        .fence = w->grant.lease.fence,
        .start = w->grant.spec.start.data,
        .end = w->grant.spec.end.data,
        .cursor = w->grant.cursor.key.data,
    };
    return ACCEPTED;
}

static enum answer judge(rf_status status, const rf_result *result, const char *what)
{
    if (__builtin_expect(status == RF_STALE_FENCE, 0)) {
        return REFUSED;
    }
    must(status, &result->detail, what);
    if (result->outcome != RF_EXECUTED) {
        fail("ringfence: %s was a replay", what);
    }
    return ACCEPTED;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    const rf_cursor cursor = {.key = {key, FARM_KEY_LEN}};
    rf_result result = {0};
    if (setting->renewals) {
        return judge(rf_renew(w->store, rf_now(w->store), &w->tenant, &w->grant.lease, &result),
                     &result, "renew");
    }
    return judge(rf_checkpoint(w->store, rf_now(w->store), &w->tenant, &w->grant.lease, &cursor,
                               rf_new_op(w->store), &result),
                 &result, "checkpoint");
}

static enum answer complete(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    const rf_cursor cursor = {.key = {key, FARM_KEY_LEN}};
    rf_result result = {0};
    enum answer answer = judge(rf_complete(w->store, rf_now(w->store), &w->tenant, &w->grant.lease,
                                           &cursor, rf_new_op(w->store), &result),
                               &result, "complete");
    if (setting->promise == PROMISE_NOW && answer == ACCEPTED &&
        rf_durable(w->store) < result.epoch) {
        fail("ringfence: complete returned before it was durable");
    }
    return answer;
}

/* --- the run --- */

static void fill(uint32_t shards, uint32_t lease_ms)
{
    rf_store *store = open_store();
    struct farm_manifest manifest = farm_manifest(shards);
    const rf_run_config config = {.lease_duration = lease_ms * RF_MILLISECOND};
    rf_tenant tenant;
    rf_result result = {0};
    rf_tenant_from_name("bench", &tenant);
    rf_status status = rf_cancel_run(store, rf_now(store), &tenant, RUN, rf_new_op(store), &result);
    if (status != RF_RUN_NOT_FOUND) {
        must(status, &result.detail, "ending the last run");
        must(rf_purge_run(store, rf_now(store), &tenant, RUN, &result), &result.detail,
             "removing the last run");
    }
    must(rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &config, manifest.shards,
                                   shards, rf_new_op(store), &result),
         &result.detail, "making the run");
    farm_manifest_free(&manifest);
    must(rf_close(store), NULL, "closing");
}

static bool add(void *context, const rf_shard_info *shard)
{
    struct tally *tally = context;
    uint8_t key[FARM_KEY_LEN];
    farm_key(key, (uint32_t)shard->shard - 1, CHECKPOINTS + 1);
    tally->done += shard->status == RF_SHARD_DONE && shard->cursor.key.len == FARM_KEY_LEN &&
                   memcmp(shard->cursor.key.data, key, FARM_KEY_LEN) == 0;
    tally->held += shard->leased;
    return true;
}

static struct tally tally(uint32_t shards)
{
    rf_store *store = open_store();
    struct tally tally = {0};
    rf_tenant tenant;
    rf_detail detail = {0};
    (void)shards;
    rf_tenant_from_name("bench", &tenant);
    must(rf_list_shards(store, rf_now(store), &tenant, RUN, RF_LIST_ALL, add, &tally, &detail),
         &detail, "listing");
    must(rf_close(store), NULL, "closing");
    return tally;
}

static const struct setting settings[] = {
    {.name = "volatile", .promise = PROMISE_VOLATILE, .shards = 500000},
    {.name = "NOWAIT", .promise = PROMISE_SOON, .shards = 500000},
    {.name = "WAIT", .promise = PROMISE_NOW, .shards = 60000},
    {.name = "WAIT, claims too", .promise = PROMISE_NOW, .shards = 60000, .claims_wait = true},
    {.name = "volatile, renewals", .promise = PROMISE_VOLATILE, .shards = 500000, .renewals = true},
    {.name = "NOWAIT, renewals", .promise = PROMISE_SOON, .shards = 500000, .renewals = true},
    {.name = "WAIT, renewals", .promise = PROMISE_NOW, .shards = 60000, .renewals = true},
};

const struct peer peer_ringfence = {
    .name = "ringfence",
    .settings = settings,
    .settings_count = COUNT(settings),
    .lease_ms = 50,
    .start = start,
    .stop = stop,
    .fill = fill,
    .tally = tally,
    .join = join,
    .claim = claim,
    .checkpoint = checkpoint,
    .complete = complete,
    .leave = leave,
};
