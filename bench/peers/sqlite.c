/*
 * SQLite: one file in WAL mode, a connection a worker, prepared statements. A claim looks and then changes, so
 * it is a BEGIN IMMEDIATE transaction; checkpoint and complete are one UPDATE each, which is a transaction by
 * itself and takes the write lock at once.
 */
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "peers.h"

#define SCHEMA                                                                                     \
    "CREATE TABLE run(lease_ms INTEGER);"                                                          \
    "CREATE TABLE shard(id INTEGER PRIMARY KEY, status INTEGER NOT NULL, fence INTEGER NOT NULL,"  \
    "  owner INTEGER, deadline INTEGER, start BLOB NOT NULL, stop BLOB NOT NULL, cursor BLOB);"    \
    "CREATE INDEX free ON shard(id) WHERE status = 0;"                                             \
    "CREATE INDEX held ON shard(deadline) WHERE status = 1;"

#define NAPS        "short naps"
#define PATIENCE_MS 60000

static const struct setting *setting;

enum statement { BEGIN, FIND, FIND_EXPIRED, GRANT, COMMIT, CHECKPOINT, COMPLETE, STATEMENTS };
static const char *const texts[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [FIND] = "SELECT id, fence + 1, start, stop, cursor FROM shard INDEXED BY free"
             " WHERE status = 0 ORDER BY id LIMIT 1",
    [FIND_EXPIRED] = "SELECT id, fence + 1, start, stop, cursor FROM shard INDEXED BY held"
                     " WHERE status = 1 AND deadline <= ?1 ORDER BY deadline LIMIT 1",
    [GRANT] = "UPDATE shard SET status = 1, fence = ?2, owner = ?3, deadline = ?4 WHERE id = ?1",
    [COMMIT] = "COMMIT",
    [CHECKPOINT] = "UPDATE shard SET cursor = ?3 WHERE id = ?1 AND fence = ?2 AND status = 1",
    [COMPLETE] = "UPDATE shard SET cursor = ?3, status = 2, owner = NULL, deadline = NULL"
                 " WHERE id = ?1 AND fence = ?2 AND status = 1",
};

struct worker {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    uint32_t number;
    int64_t lease_ms;
    int64_t id;
    int64_t fence;
    uint8_t start[FARM_KEY_LEN], end[FARM_KEY_LEN], cursor[FARM_KEY_LEN];
};

static void must(sqlite3 *db, bool good, const char *what)
{
    if (__builtin_expect(!good, 0)) {
        fail("SQLite: %s: %s", what, sqlite3_errmsg(db));
    }
}

/* SQLite's own handler sleeps for milliseconds from the first time on, so that whoever has the lock goes on with warm
 * pages. The lock is held for microseconds, or for as long as a write to the disk takes: with short naps it goes
 * around. Neither is the better one always, so both are measured. */
static int be_busy(void *context, int tries)
{
    (void)context;
    usleep(tries < 50 ? 50 : 500);
    return tries < 100000;
}

static sqlite3 *open_db(void)
{
    sqlite3 *db = NULL;
    char pragmas[200];
    const bool naps = strstr(setting->name, NAPS) != NULL;
    int rc =
        sqlite3_open_v2(place_of("peer.sqlite"), &db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    must(db, rc == SQLITE_OK, "opening");
    rc = naps ? sqlite3_busy_handler(db, be_busy, NULL) : sqlite3_busy_timeout(db, PATIENCE_MS);
    must(db, rc == SQLITE_OK, "busy handler");
    snprintf(pragmas, sizeof(pragmas), "PRAGMA journal_mode = WAL; PRAGMA synchronous = %s;",
             setting->value);
    must(db, sqlite3_exec(db, pragmas, NULL, NULL, NULL) == SQLITE_OK, pragmas);
    return db;
}

static bool start(const struct setting *wanted, char *about, size_t size)
{
    setting = wanted;
    snprintf(about, size,
             "SQLite %s, WAL, synchronous=%s, checkpoint at 1000 pages (default), busy handler %s",
             sqlite3_libversion(), setting->value,
             strstr(setting->name, NAPS) != NULL ? "of ours: 50 to 500 us" : "its own");
    return true;
}

static void stop(void)
{
    place_remove("peer.sqlite");
    place_remove("peer.sqlite-wal");
    place_remove("peer.sqlite-shm");
}

/* --- the run --- */

static void fill(uint32_t shards, uint32_t lease_ms)
{
    char text[100];
    sqlite3_stmt *insert = NULL;
    stop();
    sqlite3 *db = open_db();
    snprintf(text, sizeof(text), "INSERT INTO run VALUES (%u)", lease_ms);
    must(db, sqlite3_exec(db, "BEGIN;" SCHEMA, NULL, NULL, NULL) == SQLITE_OK, "schema");
    must(db, sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK, "run");
    must(db,
         sqlite3_prepare_v2(
             db, "INSERT INTO shard(id, status, fence, start, stop) VALUES (?1, 0, 1, ?2, ?3)", -1,
             &insert, NULL) == SQLITE_OK,
         "insert");
    for (uint32_t i = 0; i < shards; i++) {
        uint8_t from[FARM_KEY_LEN], to[FARM_KEY_LEN];
        farm_key(from, i, 0);
        farm_key(to, i + 1, 0);
        sqlite3_bind_int64(insert, 1, i);
        sqlite3_bind_blob(insert, 2, from, sizeof(from), SQLITE_STATIC);
        sqlite3_bind_blob(insert, 3, to, sizeof(to), SQLITE_STATIC);
        must(db, sqlite3_step(insert) == SQLITE_DONE && sqlite3_reset(insert) == SQLITE_OK,
             "filling");
    }
    sqlite3_finalize(insert);
    must(db,
         sqlite3_exec(db, "COMMIT; PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) == SQLITE_OK,
         "commit");
    sqlite3_close(db);
}

static int64_t number_of(sqlite3 *db, const char *query)
{
    sqlite3_stmt *statement = NULL;
    must(db, sqlite3_prepare_v2(db, query, -1, &statement, NULL) == SQLITE_OK, query);
    must(db, sqlite3_step(statement) == SQLITE_ROW, query);
    int64_t number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return number;
}

static struct tally tally(uint32_t shards)
{
    sqlite3 *db = open_db();
    char query[300];
    (void)shards;
    snprintf(
        query, sizeof(query),
        "SELECT count(*) FROM shard WHERE status = 2 AND substr(cursor, 1, 60) = substr(start, 1, 60)"
        " AND substr(cursor, 64) = x'%02x'",
        CHECKPOINTS + 1);
    struct tally tally = {
        .done = (uint64_t)number_of(db, query),
        .held = (uint64_t)number_of(db, "SELECT count(*) FROM shard WHERE status = 1"),
    };
    sqlite3_close(db);
    return tally;
}

/* --- a worker --- */

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    struct worker *w = calloc(1, sizeof(*w));
    (void)workers;
    (void)shards;
    if (w == NULL) {
        fail("no memory");
    }
    w->number = number;
    w->db = open_db();
    w->lease_ms = number_of(w->db, "SELECT lease_ms FROM run");
    for (uint32_t i = 0; i < STATEMENTS; i++) {
        must(w->db,
             sqlite3_prepare_v3(w->db, texts[i], -1, SQLITE_PREPARE_PERSISTENT, &w->statements[i],
                                NULL) == SQLITE_OK,
             texts[i]);
    }
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    for (uint32_t i = 0; i < STATEMENTS; i++) {
        sqlite3_finalize(w->statements[i]);
    }
    sqlite3_close(w->db);
    free(w);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void run(struct worker *w, enum statement which)
{
    sqlite3_stmt *s = w->statements[which];
    must(w->db, sqlite3_step(s) == SQLITE_DONE, texts[which]);
    must(w->db, sqlite3_reset(s) == SQLITE_OK, texts[which]);
}

static void take_key(sqlite3_stmt *s, int column, uint8_t *key)
{
    if (sqlite3_column_bytes(s, column) != (int)FARM_KEY_LEN) {
        fail("SQLite: a key of another length");
    }
    memcpy(key, sqlite3_column_blob(s, column), FARM_KEY_LEN);
}

/* True if there was one; it is in *w and *out then. */
static bool find(struct worker *w, enum statement which, struct claim *out)
{
    sqlite3_stmt *s = w->statements[which];
    if (which == FIND_EXPIRED) {
        sqlite3_bind_int64(s, 1, now_ms());
    }
    int rc = sqlite3_step(s);
    must(w->db, rc == SQLITE_ROW || rc == SQLITE_DONE, texts[which]);
    if (rc == SQLITE_ROW) {
        w->id = sqlite3_column_int64(s, 0);
        w->fence = sqlite3_column_int64(s, 1);
        take_key(s, 2, w->start);
        take_key(s, 3, w->end);
        *out = (struct claim){.index = (uint32_t)w->id,
                              .fence = (uint64_t)w->fence,
                              .start = w->start,
                              .end = w->end};
        if (sqlite3_column_type(s, 4) != SQLITE_NULL) {
            take_key(s, 4, w->cursor);
            out->cursor = w->cursor;
        }
    }
    sqlite3_reset(s);
    return rc == SQLITE_ROW;
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    sqlite3_stmt *grant = w->statements[GRANT];
    run(w, BEGIN);
    bool found = find(w, FIND, out) || find(w, FIND_EXPIRED, out);
    if (found) {
        sqlite3_bind_int64(grant, 1, w->id);
        sqlite3_bind_int64(grant, 2, w->fence);
        sqlite3_bind_int64(grant, 3, w->number);
        sqlite3_bind_int64(grant, 4, now_ms() + w->lease_ms);
        run(w, GRANT);
    }
    run(w, COMMIT);
    return found ? ACCEPTED : REFUSED;
}

static enum answer change(struct worker *w, enum statement which, const uint8_t *key)
{
    sqlite3_stmt *s = w->statements[which];
    sqlite3_bind_int64(s, 1, w->id);
    sqlite3_bind_int64(s, 2, w->fence);
    sqlite3_bind_blob(s, 3, key, FARM_KEY_LEN, SQLITE_STATIC);
    run(w, which);
    return sqlite3_changes(w->db) == 1 ? ACCEPTED : REFUSED;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    return change(worker, CHECKPOINT, key);
}

static enum answer complete(void *worker, const uint8_t *key)
{
    return change(worker, COMPLETE, key);
}

static const struct setting settings[] = {
    {.name = "WAL, NORMAL", .promise = PROMISE_SOON, .shards = 40000, .value = "NORMAL"},
    {.name = "WAL, NORMAL, " NAPS, .promise = PROMISE_SOON, .shards = 40000, .value = "NORMAL"},
    {.name = "WAL, FULL", .promise = PROMISE_NOW, .shards = 20000, .value = "FULL"},
    {.name = "WAL, FULL, " NAPS, .promise = PROMISE_NOW, .shards = 20000, .value = "FULL"},
};

const struct peer peer_sqlite = {
    .name = "SQLite",
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
