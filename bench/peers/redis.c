/*
 * Redis: a library of server-side functions (FUNCTION LOAD, FCALL), so that a step is one round trip over a
 * unix socket and atomic. A shard is a small hash; free shards are a list, held ones a sorted set by
 * deadline.
 */
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "peers.h"

/* f: fence, or `done`, which no fence equals; c: cursor; a, z: start and end; o: owner */
static const char library[] =
    "#!lua name=shards\n"
    "local function claim(keys, args)\n"
    "  local t = redis.call('TIME')\n"
    "  local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
    "  local id = redis.call('LPOP', keys[1])\n"
    "  if not id then\n"
    "    id = redis.call('ZRANGEBYSCORE', keys[2], '-inf', now, 'LIMIT', 0, 1)[1]\n"
    "    if not id then return false end\n"
    "  end\n"
    "  local shard = 's:' .. id\n"
    "  local fence = redis.call('HINCRBY', shard, 'f', 1)\n"
    "  redis.call('HSET', shard, 'o', args[1])\n"
    "  redis.call('ZADD', keys[2], now + tonumber(args[2]), id)\n"
    "  local v = redis.call('HMGET', shard, 'a', 'z', 'c')\n"
    "  return {tonumber(id), fence, v[1], v[2], v[3]}\n"
    "end\n"
    "local function checkpoint(keys, args)\n"
    "  if redis.call('HGET', keys[1], 'f') ~= args[1] then return 0 end\n"
    "  redis.call('HSET', keys[1], 'c', args[2])\n"
    "  return 1\n"
    "end\n"
    "local function complete(keys, args)\n"
    "  if redis.call('HGET', keys[1], 'f') ~= args[1] then return 0 end\n"
    "  redis.call('HSET', keys[1], 'c', args[2], 'f', 'done')\n"
    "  redis.call('ZREM', keys[2], args[3])\n"
    "  return 1\n"
    "end\n"
    "local function tally(keys, args)\n"
    "  local done = 0\n"
    "  for id = 0, tonumber(args[1]) - 1 do\n"
    "    local v = redis.call('HMGET', 's:' .. id, 'f', 'c', 'a')\n"
    "    if v[1] == 'done' and string.sub(v[2], 1, 60) == string.sub(v[3], 1, 60) and\n"
    "        string.byte(v[2], 64) == tonumber(args[2]) then done = done + 1 end\n"
    "  end\n"
    "  return {done, redis.call('ZCARD', keys[1])}\n"
    "end\n"
    "redis.register_function('claim', claim)\n"
    "redis.register_function('checkpoint', checkpoint)\n"
    "redis.register_function('complete', complete)\n"
    "redis.register_function('tally', tally)\n";

#define FREE "free"
#define HELD "held"

static redisReply *expect(redisContext *c, void *reply, const char *what)
{
    redisReply *r = reply;
    if (r == NULL) {
        fail("Redis: %s: %s", what, c->errstr);
    }
    if (r->type == REDIS_REPLY_ERROR) {
        fail("Redis: %s: %s", what, r->str);
    }
    return r;
}

static redisContext *reach(void)
{
    redisContext *c = redisConnectUnix(place_of("redis.sock"));
    if (c == NULL || c->err != 0) {
        fail("Redis: no connection%s%s", c != NULL ? ": " : "", c != NULL ? c->errstr : "");
    }
    return c;
}

static bool try_to_reach(void)
{
    redisContext *c = redisConnectUnix(place_of("redis.sock"));
    redisReply *reply = c != NULL && c->err == 0 ? redisCommand(c, "PING") : NULL;
    bool ready = reply != NULL && reply->type == REDIS_REPLY_STATUS;
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    if (c != NULL) {
        redisFree(c);
    }
    return ready;
}

/* --- the server --- */

static void load_functions(char *version, size_t size)
{
    redisContext *c = reach();
    freeReplyObject(expect(c, redisCommand(c, "FUNCTION LOAD REPLACE %s", library), "functions"));
    redisReply *info = expect(c, redisCommand(c, "INFO server"), "INFO");
    const char *at = strstr(info->str, "redis_version:");
    snprintf(version, size, "%.*s", at != NULL ? (int)strcspn(at + 14, "\r\n") : 0,
             at != NULL ? at + 14 : "");
    freeReplyObject(info);
    redisFree(c);
}

static bool start(const struct setting *setting, char *about, size_t size)
{
    char version[32], directory[256], socket[256];
    const char *append = setting->value != NULL ? "yes" : "no";
    const char *when = setting->value != NULL ? setting->value : "no";
    /* Debian's redis-tools has the server too, under the name of a checking tool: they are one program. */
    const char *program = server_find("/usr/bin", "redis-server");
    program = program != NULL ? program : server_find("/usr/bin", "redis-check-rdb");
    if (program == NULL) {
        snprintf(about, size, "there is no redis-server");
        return false;
    }
    place_make("redis", NULL);
    snprintf(directory, sizeof(directory), "%s", place_of("redis"));
    snprintf(socket, sizeof(socket), "%s", place_of("redis.sock"));
    const char *arguments[] = {"redis-server",
                               "--port",
                               "0",
                               "--unixsocket",
                               socket,
                               "--dir",
                               directory,
                               "--save",
                               "",
                               "--appendonly",
                               append,
                               "--appendfsync",
                               when,
                               "--auto-aof-rewrite-percentage",
                               "0",
                               NULL};
    server_start("redis", program, (char *const *)arguments, SIGTERM, NULL);
    if (!server_answers(try_to_reach)) {
        snprintf(about, size, "it does not answer");
        return false;
    }
    load_functions(version, sizeof(version));
    snprintf(
        about, size,
        "Redis %s, appendonly %s, appendfsync %s, no RDB, no AOF rewrite, unix socket, hiredis",
        version, append, when);
    return true;
}

static void stop(void)
{
    server_stop();
    place_remove("redis");
}

static void fill(uint32_t shards, uint32_t lease_ms)
{
    redisContext *c = reach();
    char lease[16];
    snprintf(lease, sizeof(lease), "%u", lease_ms);
    freeReplyObject(expect(c, redisCommand(c, "FLUSHALL"), "FLUSHALL"));
    freeReplyObject(expect(c, redisCommand(c, "SET lease %s", lease), "SET"));
    for (uint32_t from = 0; from < shards; from += 1000) {
        uint32_t to = from + 1000 < shards ? from + 1000 : shards;
        for (uint32_t i = from; i < to; i++) {
            uint8_t start[FARM_KEY_LEN], end[FARM_KEY_LEN];
            farm_key(start, i, 0);
            farm_key(end, i + 1, 0);
            redisAppendCommand(c, "HSET s:%u f 1 a %b z %b", i, start, sizeof(start), end,
                               sizeof(end));
            redisAppendCommand(c, "RPUSH " FREE " %u", i);
        }
        for (uint32_t i = 2 * from; i < 2 * to; i++) {
            void *reply = NULL;
            redisGetReply(c, &reply);
            freeReplyObject(expect(c, reply, "filling"));
        }
    }
    redisFree(c);
}

static struct tally tally(uint32_t shards)
{
    redisContext *c = reach();
    redisReply *r = expect(
        c, redisCommand(c, "FCALL tally 1 " HELD " %u %u", shards, CHECKPOINTS + 1), "tally");
    struct tally tally = {.done = (uint64_t)r->element[0]->integer,
                          .held = (uint64_t)r->element[1]->integer};
    freeReplyObject(r);
    redisFree(c);
    return tally;
}

/* --- a worker --- */

struct worker {
    redisContext *connection;
    char number[16];
    char lease[16];
    redisReply *granted; /* what the last claim gave */
    char id[16];
    char shard[24];
    char fence[24];
};

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    struct worker *w = calloc(1, sizeof(*w));
    (void)workers;
    (void)shards;
    if (w == NULL) {
        fail("no memory");
    }
    w->connection = reach();
    redisReply *lease = expect(w->connection, redisCommand(w->connection, "GET lease"), "GET");
    snprintf(w->lease, sizeof(w->lease), "%s", lease->str);
    snprintf(w->number, sizeof(w->number), "%u", number);
    freeReplyObject(lease);
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    if (w->granted != NULL) {
        freeReplyObject(w->granted);
    }
    redisFree(w->connection);
    free(w);
}

static redisReply *call(struct worker *w, int count, const char **arguments, const size_t *lengths)
{
    return expect(w->connection, redisCommandArgv(w->connection, count, arguments, lengths),
                  arguments[1]);
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    const char *arguments[] = {"FCALL", "claim", "2", FREE, HELD, w->number, w->lease};
    if (w->granted != NULL) {
        freeReplyObject(w->granted);
    }
    redisReply *r = w->granted = call(w, COUNT(arguments), arguments, NULL);
    if (r->type == REDIS_REPLY_NIL) {
        return REFUSED;
    }
    if (r->type != REDIS_REPLY_ARRAY || r->elements != 5) {
        fail("Redis: a claim of type %d", r->type);
    }
    snprintf(w->id, sizeof(w->id), "%lld", r->element[0]->integer);
    snprintf(w->shard, sizeof(w->shard), "s:%lld", r->element[0]->integer);
    snprintf(w->fence, sizeof(w->fence), "%lld", r->element[1]->integer);
    *out = (struct claim){
        .index = (uint32_t)r->element[0]->integer,
        .fence = (uint64_t)r->element[1]->integer,
        .start = (const uint8_t *)r->element[2]->str,
        .end = (const uint8_t *)r->element[3]->str,
        .cursor = (const uint8_t *)r->element[4]->str,
    };
    return ACCEPTED;
}

static enum answer judge(redisReply *r)
{
    if (r->type != REDIS_REPLY_INTEGER) {
        fail("Redis: an answer of type %d", r->type);
    }
    enum answer answer = r->integer == 1 ? ACCEPTED : REFUSED;
    freeReplyObject(r);
    return answer;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    const char *arguments[] = {"FCALL", "checkpoint", "1", w->shard, w->fence, (const char *)key};
    const size_t lengths[] = {5, 10, 1, strlen(w->shard), strlen(w->fence), FARM_KEY_LEN};
    return judge(call(w, COUNT(arguments), arguments, lengths));
}

static enum answer complete(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    const char *arguments[] = {"FCALL",  "complete",        "2",  w->shard, HELD,
                               w->fence, (const char *)key, w->id};
    const size_t lengths[] = {
        5, 8, 1, strlen(w->shard), 4, strlen(w->fence), FARM_KEY_LEN, strlen(w->id)};
    return judge(call(w, COUNT(arguments), arguments, lengths));
}

static const struct setting settings[] = {
    {.name = "no AOF", .promise = PROMISE_VOLATILE, .shards = 60000},
    {.name = "AOF everysec", .promise = PROMISE_SOON, .shards = 60000, .value = "everysec"},
    {.name = "AOF always", .promise = PROMISE_NOW, .shards = 40000, .value = "always"},
};

const struct peer peer_redis = {
    .name = "Redis",
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
