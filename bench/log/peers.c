/*
 * The same promise kept by others: one small change, durable when the call returns. Redis with its append-only
 * file synced at every write, a client process each on a unix socket, the bare SET; SQLite in WAL mode
 * with synchronous=FULL, a connection a process, one prepared UPDATE, which is a transaction by itself.
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "log.h"

/* --- Redis --- */

static pid_t redis_pid;
static char redis_socket[108];

static int redis_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    memcpy(address.sun_path, redis_socket, sizeof(redis_socket));
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

struct client {
    int fd;
    uint32_t number;
    uint64_t value;
};

static void *redis_begin(void *argument, uint32_t number)
{
    struct client *c = calloc(1, sizeof(*c));
    (void)argument;
    assert(c != NULL);
    c->number = number;
    for (unsigned i = 0; i < 1000 && (c->fd = redis_connect()) < 0; i++) {
        usleep(5000);
    }
    assert(c->fd >= 0);
    return c;
}

static void redis_step(void *context, uint64_t i)
{
    (void)i;
    struct client *c = context;
    char text[160], answer[64];
    char value[80];
    int v = snprintf(value, sizeof(value), "%064llu", (unsigned long long)++c->value);
    char key[32];
    int k = snprintf(key, sizeof(key), "shard:%08u", c->number);
    int n = snprintf(text, sizeof(text), "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", k, key, v,
                     value);
    ssize_t sent = send(c->fd, text, (size_t)n, 0);
    ssize_t got = recv(c->fd, answer, sizeof(answer), 0);
    if (sent != n || got != 5 || memcmp(answer, "+OK\r\n", 5) != 0) {
        fprintf(stderr, "redis: no +OK\n");
        abort();
    }
}

static const struct durable_work redis_work = {.begin = redis_begin, .step = redis_step};

const struct durable_work *redis_start(const char **why)
{
    char directory[200];
    /* Debian's redis-tools has the server too, under the name of a checking tool. */
    const char *program = access("/usr/bin/redis-server", X_OK) == 0 ? "/usr/bin/redis-server"
                                                                     : "/usr/bin/redis-check-rdb";
    if (access(program, X_OK) != 0) {
        *why = "no redis-server here (apt-get install redis-tools)";
        return NULL;
    }
    snprintf(directory, sizeof(directory), "%s/redis", place);
    snprintf(redis_socket, sizeof(redis_socket), "/tmp/rf-bench-redis-%d", (int)getpid());
    char command[600];
    snprintf(command, sizeof(command), "rm -rf '%s'; mkdir '%s'", directory, directory);
    if (system(command) != 0) {
        *why = "its directory can't be made";
        return NULL;
    }
    redis_pid = fork();
    if (redis_pid == 0) {
        char *const arguments[] = {"redis-server",
                                   "--port",
                                   "0",
                                   "--unixsocket",
                                   redis_socket,
                                   "--dir",
                                   directory,
                                   "--appendonly",
                                   "yes",
                                   "--appendfsync",
                                   "always",
                                   "--save",
                                   "",
                                   "--logfile",
                                   "redis.log",
                                   NULL};
        execv(program, arguments);
        _exit(127);
    }
    for (unsigned i = 0; i < 1000; i++) {
        int fd = redis_connect();
        if (fd >= 0) {
            close(fd);
            return &redis_work;
        }
        usleep(5000);
    }
    *why = "it does not answer";
    return NULL;
}

void redis_stop(void)
{
    if (redis_pid > 0) {
        kill(redis_pid, SIGTERM);
        waitpid(redis_pid, NULL, 0);
        unlink(redis_socket);
        redis_pid = 0;
    }
}

/* --- SQLite, if its library is here; no header of it is needed to build --- */

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
static struct {
    int (*open)(const char *, sqlite3 **);
    int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
    int (*busy_timeout)(sqlite3 *, int);
    int (*prepare)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
    int (*bind)(sqlite3_stmt *, int, long long);
    int (*step)(sqlite3_stmt *);
    int (*reset)(sqlite3_stmt *);
    int (*changes)(sqlite3 *);
    int (*close)(sqlite3 *);
} sql;
#define SQLITE_DONE 101

static void *sqlite_symbol(void *library, const char *name, bool *all)
{
    void *at = dlsym(library, name);
    *all = *all && at != NULL;
    return at;
}

static bool sqlite_load(void)
{
    static void *library;
    bool all = true;
    if (library == NULL && (library = dlopen("libsqlite3.so.0", RTLD_NOW)) == NULL) {
        return false;
    }
    *(void **)&sql.open = sqlite_symbol(library, "sqlite3_open", &all);
    *(void **)&sql.exec = sqlite_symbol(library, "sqlite3_exec", &all);
    *(void **)&sql.busy_timeout = sqlite_symbol(library, "sqlite3_busy_timeout", &all);
    *(void **)&sql.prepare = sqlite_symbol(library, "sqlite3_prepare_v2", &all);
    *(void **)&sql.bind = sqlite_symbol(library, "sqlite3_bind_int64", &all);
    *(void **)&sql.step = sqlite_symbol(library, "sqlite3_step", &all);
    *(void **)&sql.reset = sqlite_symbol(library, "sqlite3_reset", &all);
    *(void **)&sql.changes = sqlite_symbol(library, "sqlite3_changes", &all);
    *(void **)&sql.close = sqlite_symbol(library, "sqlite3_close", &all);
    return all;
}

struct session {
    sqlite3 *db;
    sqlite3_stmt *update;
    long long value;
    uint32_t number;
};

static sqlite3 *sqlite_connect(void)
{
    char path[200];
    sqlite3 *db = NULL;
    snprintf(path, sizeof(path), "%s/peer.sqlite", place);
    int rc = sql.open(path, &db);
    sql.busy_timeout(db, 60000);
    rc |= sql.exec(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;", NULL, NULL, NULL);
    assert(rc == 0);
    return db;
}

static void *sqlite_begin(void *argument, uint32_t number)
{
    struct session *s = calloc(1, sizeof(*s));
    (void)argument;
    assert(s != NULL);
    s->number = number;
    s->db = sqlite_connect();
    int rc = sql.prepare(s->db, "UPDATE shard SET cursor = ?1 WHERE id = ?2", -1, &s->update, NULL);
    assert(rc == 0);
    return s;
}

static void sqlite_step(void *context, uint64_t i)
{
    (void)i;
    struct session *s = context;
    sql.bind(s->update, 1, ++s->value);
    sql.bind(s->update, 2, s->number);
    int stepped = sql.step(s->update);
    sql.reset(s->update);
    if (stepped != SQLITE_DONE || sql.changes(s->db) != 1) {
        fprintf(stderr, "sqlite: an update failed\n");
        abort();
    }
}

static const struct durable_work sqlite_work = {.begin = sqlite_begin, .step = sqlite_step};

const struct durable_work *sqlite_start(const char **why)
{
    if (!sqlite_load()) {
        *why = "no SQLite here (apt-get install libsqlite3-0)";
        return NULL;
    }
    sqlite3 *db = sqlite_connect();
    char text[4096];
    size_t n = (size_t)snprintf(
        text, sizeof(text), "CREATE TABLE IF NOT EXISTS shard(id INTEGER PRIMARY KEY, cursor);");
    for (unsigned i = 0; i < GANG_MAX; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              "INSERT OR REPLACE INTO shard VALUES(%u,0);", i);
    }
    int rc = sql.exec(db, text, NULL, NULL, NULL);
    assert(rc == 0);
    sql.close(db);
    return &sqlite_work;
}

void sqlite_stop(void)
{
    char command[600];
    snprintf(command, sizeof(command),
             "rm -f '%s/peer.sqlite' '%s/peer.sqlite-wal' '%s/peer.sqlite-shm'", place, place,
             place);
    if (system(command) != 0) {
        abort();
    }
}
