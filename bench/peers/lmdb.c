/*
 * LMDB: an environment that every worker maps, three tables by shard number: free, held, done. What changes
 * with every checkpoint is the small table of held shards, so few pages are copied. A fence is the number of
 * the transaction that granted it: these only grow.
 */
#include <lmdb.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "peers.h"

#define MAP_BYTES (4ul << 30)

static const struct setting *setting;

struct record {
    uint64_t fence;
    uint64_t owner;
    uint64_t deadline; /* ms */
    uint64_t has_cursor;
    uint8_t start[FARM_KEY_LEN];
    uint8_t end[FARM_KEY_LEN];
    uint8_t cursor[FARM_KEY_LEN];
};

struct worker {
    MDB_env *env;
    MDB_dbi free, held, done;
    uint64_t number;
    uint64_t lease_ms;
    uint64_t id;
    struct record record; /* what the last claim gave */
};

static void must(int rc, const char *what)
{
    if (__builtin_expect(rc != 0, 0)) {
        fail("LMDB: %s: %s", what, mdb_strerror(rc));
    }
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static unsigned flags(void)
{
    return strcmp(setting->value, "sync") == 0     ? 0
           : strcmp(setting->value, "nosync") == 0 ? MDB_NOSYNC
                                                   : MDB_NOSYNC | MDB_WRITEMAP;
}

static struct worker *open_env(void)
{
    struct worker *w = calloc(1, sizeof(*w));
    MDB_txn *txn;
    if (w == NULL) {
        fail("no memory");
    }
    must(mdb_env_create(&w->env), "environment");
    must(mdb_env_set_mapsize(w->env, MAP_BYTES), "map size");
    must(mdb_env_set_maxdbs(w->env, 4), "tables");
    must(mdb_env_open(w->env, place_of("lmdb"), flags(), 0644), place_of("lmdb"));
    must(mdb_txn_begin(w->env, NULL, 0, &txn), "begin");
    must(mdb_dbi_open(txn, "free", MDB_CREATE | MDB_INTEGERKEY, &w->free), "free");
    must(mdb_dbi_open(txn, "held", MDB_CREATE | MDB_INTEGERKEY, &w->held), "held");
    must(mdb_dbi_open(txn, "done", MDB_CREATE | MDB_INTEGERKEY, &w->done), "done");
    must(mdb_txn_commit(txn), "commit");
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    mdb_env_close(w->env);
    free(w);
}

static bool start(const struct setting *wanted, char *about, size_t size)
{
    setting = wanted;
    snprintf(about, size, "%s, %s, 4 GiB map", mdb_version(NULL, NULL, NULL),
             flags() == 0            ? "no flags"
             : flags() == MDB_NOSYNC ? "MDB_NOSYNC"
                                     : "MDB_NOSYNC | MDB_WRITEMAP");
    return true;
}

static void stop(void)
{
    place_remove("lmdb");
}

/* --- the run --- */

#define RUN UINT64_MAX /* the key in `done` of what concerns all: how long a lease is */

static void fill(uint32_t shards, uint32_t lease_ms)
{
    place_remove("lmdb");
    place_make("lmdb", NULL);
    struct worker *w = open_env();
    MDB_txn *txn;
    must(mdb_txn_begin(w->env, NULL, 0, &txn), "begin");
    for (uint64_t i = 0; i < shards; i++) {
        struct record record = {.fence = 0};
        farm_key(record.start, (uint32_t)i, 0);
        farm_key(record.end, (uint32_t)i + 1, 0);
        MDB_val key = {sizeof(i), &i}, value = {sizeof(record), &record};
        must(mdb_put(txn, w->free, &key, &value, MDB_APPEND), "filling");
    }
    uint64_t id = RUN, lease = lease_ms;
    MDB_val key = {sizeof(id), &id}, value = {sizeof(lease), &lease};
    must(mdb_put(txn, w->done, &key, &value, 0), "filling");
    must(mdb_txn_commit(txn), "commit");
    must(mdb_env_sync(w->env, 1), "sync");
    leave(w);
}

static struct tally tally(uint32_t shards)
{
    struct worker *w = open_env();
    struct tally tally = {0};
    MDB_txn *txn;
    MDB_stat stat;
    (void)shards;
    must(mdb_txn_begin(w->env, NULL, MDB_RDONLY, &txn), "begin");
    must(mdb_stat(txn, w->held, &stat), "stat");
    tally.held = stat.ms_entries;
    MDB_cursor *cursor;
    MDB_val key, value;
    must(mdb_cursor_open(txn, w->done, &cursor), "cursor");
    while (mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
        uint8_t last[FARM_KEY_LEN];
        uint64_t id;
        struct record record;
        memcpy(&id, key.mv_data, sizeof(id));
        if (id != RUN) {
            memcpy(&record, value.mv_data, sizeof(record));
            farm_key(last, (uint32_t)id, CHECKPOINTS + 1);
            tally.done += memcmp(record.cursor, last, FARM_KEY_LEN) == 0;
        }
    }
    mdb_cursor_close(cursor);
    mdb_txn_abort(txn);
    leave(w);
    return tally;
}

/* --- a worker --- */

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    struct worker *w = open_env();
    uint64_t id = RUN;
    MDB_val key = {sizeof(id), &id}, value;
    MDB_txn *txn;
    (void)workers;
    (void)shards;
    must(mdb_txn_begin(w->env, NULL, MDB_RDONLY, &txn), "begin");
    must(mdb_get(txn, w->done, &key, &value), "lease");
    memcpy(&w->lease_ms, value.mv_data, sizeof(w->lease_ms));
    mdb_txn_abort(txn);
    w->number = number;
    return w;
}

static bool take_expired(struct worker *w, MDB_txn *txn)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    const uint64_t now = now_ms();
    bool found = false;
    must(mdb_cursor_open(txn, w->held, &cursor), "cursor");
    while (!found && mdb_cursor_get(cursor, &key, &value, MDB_NEXT) == 0) {
        memcpy(&w->record, value.mv_data, sizeof(w->record));
        memcpy(&w->id, key.mv_data, sizeof(w->id));
        found = w->record.deadline <= now;
    }
    mdb_cursor_close(cursor);
    return found;
}

static bool take_free(struct worker *w, MDB_txn *txn)
{
    MDB_cursor *cursor;
    MDB_val key, value;
    must(mdb_cursor_open(txn, w->free, &cursor), "cursor");
    int rc = mdb_cursor_get(cursor, &key, &value, MDB_FIRST);
    if (rc == 0) {
        memcpy(&w->id, key.mv_data, sizeof(w->id));
        memcpy(&w->record, value.mv_data, sizeof(w->record));
        must(mdb_cursor_del(cursor, 0), "delete");
    } else if (rc != MDB_NOTFOUND) {
        must(rc, "first");
    }
    mdb_cursor_close(cursor);
    return rc == 0;
}

static void put(MDB_txn *txn, MDB_dbi table, const struct worker *w)
{
    MDB_val key = {sizeof(w->id), (void *)&w->id};
    MDB_val value = {sizeof(w->record), (void *)&w->record};
    must(mdb_put(txn, table, &key, &value, 0), "put");
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    MDB_txn *txn;
    must(mdb_txn_begin(w->env, NULL, 0, &txn), "begin");
    if (!take_free(w, txn) && !take_expired(w, txn)) {
        mdb_txn_abort(txn);
        return REFUSED;
    }
    w->record.fence = mdb_txn_id(txn);
    w->record.owner = w->number;
    w->record.deadline = now_ms() + w->lease_ms;
    put(txn, w->held, w);
    must(mdb_txn_commit(txn), "commit");
    *out = (struct claim){
        .index = (uint32_t)w->id,
        .fence = w->record.fence,
        .start = w->record.start,
        .end = w->record.end,
        .cursor = w->record.has_cursor != 0 ? w->record.cursor : NULL,
    };
    return ACCEPTED;
}

/* The entry of the shard is looked for once, and then changed or removed where it is. */
static enum answer change(struct worker *w, const uint8_t *key, bool last)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    MDB_val id = {sizeof(w->id), &w->id}, value;
    uint64_t fence = 0;
    must(mdb_txn_begin(w->env, NULL, 0, &txn), "begin");
    must(mdb_cursor_open(txn, w->held, &cursor), "cursor");
    int rc = mdb_cursor_get(cursor, &id, &value, MDB_SET);
    if (rc == 0) {
        memcpy(&fence, value.mv_data, sizeof(fence));
    } else if (rc != MDB_NOTFOUND) {
        must(rc, "get");
    }
    if (rc != 0 || fence != w->record.fence) {
        mdb_cursor_close(cursor);
        mdb_txn_abort(txn);
        return REFUSED;
    }
    memcpy(w->record.cursor, key, FARM_KEY_LEN);
    w->record.has_cursor = 1;
    if (last) {
        must(mdb_cursor_del(cursor, 0), "delete");
        put(txn, w->done, w);
    } else {
        value = (MDB_val){sizeof(w->record), &w->record};
        must(mdb_cursor_put(cursor, &id, &value, MDB_CURRENT), "put");
    }
    mdb_cursor_close(cursor);
    must(mdb_txn_commit(txn), "commit");
    return ACCEPTED;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    return change(worker, key, false);
}

static enum answer complete(void *worker, const uint8_t *key)
{
    return change(worker, key, true);
}

static const struct setting settings[] = {
    {.name = "nosync", .promise = PROMISE_SOON, .shards = 100000, .value = "nosync"},
    {.name = "nosync+writemap", .promise = PROMISE_SOON, .shards = 300000, .value = "writemap"},
    {.name = "sync", .promise = PROMISE_NOW, .shards = 20000, .value = "sync"},
};

const struct peer peer_lmdb = {
    .name = "LMDB",
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
