/*
 * PostgreSQL: a server of our own, run as a user without rights, on a unix socket. A claim is the statement that
 * everybody recommends, FOR UPDATE SKIP LOCKED over a partial index of the free shards; checkpoint and
 * complete are one UPDATE each, of a row that stays in its page (fillfactor). All are prepared, with binary
 * parameters.
 */
#include <endian.h>
#include <libpq-fe.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "peers.h"

#define BINARIES "/usr/lib/postgresql/[0-9]*/bin"

/* `position` is in no other index, so that a free shard is not looked for among the done ones. */
static const char schema[] =
    "CREATE TABLE run(lease_ms int8);"
    "CREATE TABLE shard(id int8 PRIMARY KEY, position int8 NOT NULL, status int2 NOT NULL,"
    "  fence int8 NOT NULL, owner int8, deadline timestamptz, start bytea NOT NULL,"
    "  stop bytea NOT NULL, cursor bytea) WITH (fillfactor = 50);"
    "CREATE INDEX free ON shard(position) WHERE status = 0;"
    "CREATE INDEX held ON shard(deadline) WHERE status = 1;";

#define KEY(number)                                                                                \
    "decode(repeat('6b', 52) || lpad(to_hex(" number "), 8, '0') || repeat('00', 8), 'hex')"

#define CLAIM(which)                                                                               \
    "WITH next AS (SELECT id FROM shard WHERE " which " LIMIT 1 FOR UPDATE SKIP LOCKED)"           \
    " UPDATE shard s SET status = 1, fence = fence + 1, owner = $1,"                               \
    " deadline = clock_timestamp() + $2 * interval '1 millisecond' FROM next"                      \
    " WHERE s.id = next.id RETURNING s.id, s.fence, s.start, s.stop, s.cursor"

/* The owner, not the status: for `status = 1` the planner would take the index of the held shards, which was empty
 * when the table was analyzed, and go through those of all workers. */
#define BY_KEY " WHERE id = $1 AND fence = $2 AND owner IS NOT NULL"

static const char *const statements[][2] = {
    {"claim", CLAIM("status = 0 ORDER BY position")},
    {"claim_expired", CLAIM("status = 1 AND deadline <= clock_timestamp() ORDER BY deadline")},
    {"checkpoint", "UPDATE shard SET cursor = $3" BY_KEY},
    {"complete", "UPDATE shard SET cursor = $3, status = 2, owner = NULL, deadline = NULL" BY_KEY},
};

static PGconn *reach(bool *there)
{
    char text[400];
    snprintf(text, sizeof(text), "host=%s dbname=postgres user=peer", place_of("postgres"));
    PGconn *c = PQconnectdb(text);
    *there = PQstatus(c) == CONNECTION_OK;
    return c;
}

static PGconn *open_connection(void)
{
    bool there;
    PGconn *c = reach(&there);
    if (!there) {
        fail("PostgreSQL: %s", PQerrorMessage(c));
    }
    return c;
}

static bool try_to_reach(void)
{
    bool there;
    PQfinish(reach(&there));
    return there;
}

static void order(PGconn *c, const char *text)
{
    PGresult *r = PQexec(c, text);
    if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK) {
        fail("PostgreSQL: %s", PQerrorMessage(c));
    }
    PQclear(r);
}

static uint64_t number_of(PGconn *c, const char *query)
{
    PGresult *r = PQexec(c, query);
    if (PQresultStatus(r) != PGRES_TUPLES_OK || PQntuples(r) != 1) {
        fail("PostgreSQL: %s", PQerrorMessage(c));
    }
    uint64_t number = strtoull(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    return number;
}

/* --- the server --- */

static bool make_cluster(const char *user)
{
    const char *program = server_find(BINARIES, "initdb");
    const char *arguments[] = {"initdb",     "-D",        place_of("postgres/data"),
                               "-U",         "peer",      "-A",
                               "trust",      "-E",        "UTF8",
                               "--locale=C", "--no-sync", NULL};
    if (program == NULL) {
        return false;
    }
    place_make("postgres", user);
    return server_run("postgres", program, (char *const *)arguments, user);
}

static bool start(const struct setting *setting, char *about, size_t size)
{
    const char *user = plain_user();
    const char *program = server_find(BINARIES, "postgres");
    char sockets[300], commit[64];
    if (program == NULL) {
        snprintf(about, size, "there is no postgres");
        return false;
    }
    if (access(place_of("postgres/data/PG_VERSION"), F_OK) != 0 && !make_cluster(user)) {
        snprintf(about, size, "initdb failed as %s", user != NULL ? user : "this user");
        return false;
    }
    snprintf(sockets, sizeof(sockets), "unix_socket_directories=%s", place_of("postgres"));
    snprintf(commit, sizeof(commit), "synchronous_commit=%s", setting->value);
    const char *arguments[] = {"postgres",
                               "-D",
                               place_of("postgres/data"),
                               "-c",
                               "listen_addresses=",
                               "-c",
                               sockets,
                               "-c",
                               commit,
                               "-c",
                               "shared_buffers=512MB",
                               "-c",
                               "max_wal_size=8GB",
                               "-c",
                               "checkpoint_timeout=30min",
                               "-c",
                               "jit=off",
                               NULL};
    server_start("postgres", program, (char *const *)arguments, SIGINT, user);
    if (!server_answers(try_to_reach)) {
        snprintf(about, size, "it does not answer");
        return false;
    }
    PGconn *c = open_connection();
    snprintf(about, size,
             "PostgreSQL %s as %s, synchronous_commit=%s, shared_buffers=512MB, max_wal_size=8GB, "
             "checkpoint_timeout=30min, jit=off, unix socket, libpq",
             PQparameterStatus(c, "server_version"), user != NULL ? user : "this user",
             setting->value);
    PQfinish(c);
    return true;
}

static void stop(void)
{
    server_stop();
}

/* --- the run --- */

static void fill(uint32_t shards, uint32_t lease_ms)
{
    PGconn *c = open_connection();
    char text[700];
    order(c, "SET client_min_messages = warning; DROP TABLE IF EXISTS run, shard");
    order(c, schema);
    snprintf(text, sizeof(text), "INSERT INTO run VALUES (%u)", lease_ms);
    order(c, text);
    snprintf(text, sizeof(text),
             "INSERT INTO shard(id, position, status, fence, start, stop)"
             " SELECT i, i, 0, 1, " KEY("i") ", " KEY("i + 1") " FROM generate_series(0, %u - 1) i",
             shards);
    order(c, text);
    /* No checkpoint: after one the first change of each page writes the whole page to the log, which a server that runs
     * on does once in half an hour. */
    order(c, "VACUUM ANALYZE shard");
    PQfinish(c);
}

static struct tally tally(uint32_t shards)
{
    PGconn *c = open_connection();
    char query[300];
    (void)shards;
    snprintf(query, sizeof(query),
             "SELECT count(*) FROM shard WHERE status = 2 AND get_byte(cursor, 63) = %u"
             " AND substr(cursor, 1, 60) = substr(start, 1, 60)",
             CHECKPOINTS + 1);
    struct tally tally = {
        .done = number_of(c, query),
        .held = number_of(c, "SELECT count(*) FROM shard WHERE status = 1"),
    };
    PQfinish(c);
    return tally;
}

/* --- a worker --- */

struct worker {
    PGconn *connection;
    uint64_t number;   /* big-endian, as the next three */
    uint64_t lease_ms; /* */
    uint64_t id;
    uint64_t fence;
    PGresult *granted;
};

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    struct worker *w = calloc(1, sizeof(*w));
    (void)workers;
    (void)shards;
    if (w == NULL) {
        fail("no memory");
    }
    w->connection = open_connection();
    w->number = htobe64(number);
    w->lease_ms = htobe64(number_of(w->connection, "SELECT lease_ms FROM run"));
    for (uint32_t i = 0; i < COUNT(statements); i++) {
        const Oid int8 = 20, bytea = 17;
        const Oid types[] = {int8, int8, bytea};
        PGresult *r =
            PQprepare(w->connection, statements[i][0], statements[i][1], i < 2 ? 2 : 3, types);
        if (PQresultStatus(r) != PGRES_COMMAND_OK) {
            fail("PostgreSQL: %s", PQerrorMessage(w->connection));
        }
        PQclear(r);
    }
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    PQclear(w->granted);
    PQfinish(w->connection);
    free(w);
}

static bool try_claim(struct worker *w, const char *statement)
{
    const char *const values[] = {(const char *)&w->number, (const char *)&w->lease_ms};
    const int lengths[] = {8, 8}, formats[] = {1, 1};
    PQclear(w->granted);
    w->granted = PQexecPrepared(w->connection, statement, 2, values, lengths, formats, 1);
    if (PQresultStatus(w->granted) != PGRES_TUPLES_OK) {
        fail("PostgreSQL: %s: %s", statement, PQerrorMessage(w->connection));
    }
    return PQntuples(w->granted) == 1;
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    if (!try_claim(w, "claim") && !try_claim(w, "claim_expired")) {
        return REFUSED;
    }
    memcpy(&w->id, PQgetvalue(w->granted, 0, 0), sizeof(w->id));
    memcpy(&w->fence, PQgetvalue(w->granted, 0, 1), sizeof(w->fence));
    *out = (struct claim){
        .index = (uint32_t)be64toh(w->id),
        .fence = be64toh(w->fence),
        .start = (const uint8_t *)PQgetvalue(w->granted, 0, 2),
        .end = (const uint8_t *)PQgetvalue(w->granted, 0, 3),
        .cursor = PQgetisnull(w->granted, 0, 4) != 0
                      ? NULL
                      : (const uint8_t *)PQgetvalue(w->granted, 0, 4),
    };
    return ACCEPTED;
}

static enum answer change(struct worker *w, const char *statement, const uint8_t *key)
{
    const char *const values[] = {(const char *)&w->id, (const char *)&w->fence, (const char *)key};
    const int lengths[] = {8, 8, FARM_KEY_LEN}, formats[] = {1, 1, 1};
    PGresult *r = PQexecPrepared(w->connection, statement, 3, values, lengths, formats, 1);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
        fail("PostgreSQL: %s: %s", statement, PQerrorMessage(w->connection));
    }
    enum answer answer = strcmp(PQcmdTuples(r), "1") == 0 ? ACCEPTED : REFUSED;
    PQclear(r);
    return answer;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    return change(worker, "checkpoint", key);
}

static enum answer complete(void *worker, const uint8_t *key)
{
    return change(worker, "complete", key);
}

static const struct setting settings[] = {
    {.name = "synchronous_commit off", .promise = PROMISE_SOON, .shards = 20000, .value = "off"},
    {.name = "synchronous_commit on", .promise = PROMISE_NOW, .shards = 20000, .value = "on"},
};

const struct peer peer_postgres = {
    .name = "PostgreSQL",
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
