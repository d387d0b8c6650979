/*
 * etcd: a single member, by gRPC over loopback. Of a shard there are the keys t (to do: its range), o (its
 * owner, bound to the worker's lease, so that etcd itself removes it when that runs out) and c (the cursor). The
 * fence is the revision in which the owner's key was made; every step is a transaction that compares it.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "etcd_grpc.h"
#include "peers.h"

#define PAGE    64u  /* shards that a worker looks at at once */
#define TXN_MAX 128u /* requests in a transaction: etcd's own limit */
#define RANGE   "/etcdserverpb.KV/Range"
#define TXN     "/etcdserverpb.KV/Txn"
enum { EQUAL = 0, GREATER = 1, CREATE = 1 };             /* of Compare */
enum { REQUEST_RANGE = 1, REQUEST_PUT, REQUEST_DELETE }; /* of RequestOp */

static struct {
    uint16_t port;
    uint32_t lease_s;
} * shared;

struct key {
    char text[16];
};

static struct key key_of(char kind, uint32_t index)
{
    struct key k;
    snprintf(k.text, sizeof(k.text), "%c/%010u", kind, index);
    return k;
}

/* --- transactions --- */

struct txn {
    struct message all, part, inner;
    uint32_t requests;
};

static void txn_begin(struct txn *t)
{
    message_clear(&t->all);
    t->requests = 0;
}

static void txn_free(struct txn *t)
{
    message_free(&t->all);
    message_free(&t->part);
    message_free(&t->inner);
}

/* The revision in which a key was made; 0: it is not there. */
static void compare_created(struct txn *t, uint64_t how, struct key key, uint64_t revision)
{
    message_clear(&t->part);
    message_number(&t->part, 1, how);
    message_number(&t->part, 2, CREATE);
    message_bytes(&t->part, 3, key.text, strlen(key.text));
    message_number(&t->part, 5, revision);
    message_inner(&t->all, 1, &t->part);
}

static void request(struct txn *t, uint32_t kind)
{
    message_clear(&t->part);
    message_inner(&t->part, kind, &t->inner);
    message_inner(&t->all, 2, &t->part);
    t->requests++;
}

static void put(struct txn *t, struct key key, const void *value, size_t len, uint64_t lease)
{
    message_clear(&t->inner);
    message_bytes(&t->inner, 1, key.text, strlen(key.text));
    message_bytes(&t->inner, 2, value, len);
    message_number(&t->inner, 3, lease);
    request(t, REQUEST_PUT);
}

static void get(struct txn *t, struct key key)
{
    message_clear(&t->inner);
    message_bytes(&t->inner, 1, key.text, strlen(key.text));
    request(t, REQUEST_RANGE);
}

static void erase(struct txn *t, struct key key)
{
    message_clear(&t->inner);
    message_bytes(&t->inner, 1, key.text, strlen(key.text));
    request(t, REQUEST_DELETE);
}

/* What is looked for in answers. */
struct findings {
    bool succeeded;
    uint64_t revision;
    uint64_t count;
    bool has_value;
    uint8_t value[2 * FARM_KEY_LEN];
};

static void find_in_header(const uint8_t *at, size_t len, struct findings *f)
{
    struct field field;
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        f->revision = field.number == 3 ? field.value : f->revision;
    }
}

static void find_in_pair(const uint8_t *at, size_t len, struct findings *f)
{
    struct field field;
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 5 && field.len <= sizeof(f->value)) {
            memcpy(f->value, field.bytes, field.len);
            f->has_value = true;
        }
    }
}

static void find_in_range(const uint8_t *at, size_t len, struct findings *f)
{
    struct field field;
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 2) {
            find_in_pair(field.bytes, field.len, f);
        } else if (field.number == 4) {
            f->count = field.value;
        }
    }
}

static const uint8_t *call(struct grpc *g, const char *path, const struct message *m, size_t *len)
{
    const uint8_t *answer;
    int status = grpc_call(g, path, m, &answer, len);
    if (status != 0) {
        fail("etcd: %s: gRPC status %d", path, status);
    }
    return answer;
}

static struct findings txn_end(struct txn *t, struct grpc *g)
{
    struct findings f = {0};
    struct field field, inner;
    size_t len;
    const uint8_t *at = call(g, TXN, &t->all, &len);
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 1) {
            find_in_header(field.bytes, field.len, &f);
        } else if (field.number == 2) {
            f.succeeded = field.value != 0;
        } else if (field.number == 3) {
            const uint8_t *part = field.bytes;
            while (field_next(&part, field.bytes + field.len, &inner)) {
                if (inner.number == REQUEST_RANGE) {
                    find_in_range(inner.bytes, inner.len, &f);
                }
            }
        }
    }
    return f;
}

/* --- the server --- */

static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, len) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &len) != 0) {
        fail("etcd: no free port");
    }
    close(fd);
    return ntohs(address.sin_port);
}

static struct grpc *reach(void)
{
    struct grpc *g = grpc_open(shared->port);
    if (g == NULL) {
        fail("etcd: no connection");
    }
    return g;
}

static bool try_to_reach(void)
{
    struct grpc *g = grpc_open(shared->port);
    if (g != NULL) {
        grpc_close(g);
    }
    return g != NULL;
}

/* It listens only when it has a leader. */
static void ask_version(char *version, size_t size)
{
    struct grpc *g = reach();
    struct message nothing = {0};
    struct field field;
    size_t len;
    const uint8_t *at = call(g, "/etcdserverpb.Maintenance/Status", &nothing, &len);
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 2) {
            snprintf(version, size, "%.*s", (int)field.len, (const char *)field.bytes);
        }
    }
    grpc_close(g);
}

static bool start(const struct setting *setting, char *about, size_t size)
{
    char directory[256], clients[64], peers[64], cluster[80], version[32] = "";
    const char *program = server_find("/usr/bin", "etcd");
    (void)setting;
    if (program == NULL) {
        snprintf(about, size, "there is no etcd");
        return false;
    }
    if (shared == NULL) {
        shared = shared_memory(sizeof(*shared));
    }
    shared->port = free_port();
    uint16_t second = free_port();
    snprintf(directory, sizeof(directory), "%s", place_of("etcd"));
    snprintf(clients, sizeof(clients), "http://127.0.0.1:%u", shared->port);
    snprintf(peers, sizeof(peers), "http://127.0.0.1:%u", second);
    snprintf(cluster, sizeof(cluster), "peer=%s", peers);
    const char *arguments[] = {"etcd",    "--name",
                               "peer",    "--data-dir",
                               directory, "--listen-client-urls",
                               clients,   "--advertise-client-urls",
                               clients,   "--listen-peer-urls",
                               peers,     "--initial-advertise-peer-urls",
                               peers,     "--initial-cluster",
                               cluster,   "--log-level",
                               "error",   NULL};
    server_start("etcd", program, (char *const *)arguments, SIGTERM, NULL);
    if (!server_answers(try_to_reach)) {
        snprintf(about, size, "it does not answer");
        return false;
    }
    ask_version(version, sizeof(version));
    snprintf(about, size, "etcd %s, one member, all defaults, gRPC over loopback by nghttp2",
             version);
    return true;
}

static void stop(void)
{
    server_stop();
    place_remove("etcd");
}

/* --- the run --- */

static void erase_all(struct grpc *g)
{
    struct message m = {0};
    size_t len;
    message_bytes(&m, 1, "\0", 1);
    message_bytes(&m, 2, "\0", 1);
    call(g, "/etcdserverpb.KV/DeleteRange", &m, &len);
    message_free(&m);
}

static void fill(uint32_t shards, uint32_t lease_ms)
{
    struct grpc *g = reach();
    struct txn t = {0};
    shared->lease_s = lease_ms / 1000;
    erase_all(g);
    txn_begin(&t);
    for (uint32_t i = 0; i < shards; i++) {
        uint8_t range[2 * FARM_KEY_LEN];
        farm_key(range, i, 0);
        farm_key(range + FARM_KEY_LEN, i + 1, 0);
        put(&t, key_of('t', i), range, sizeof(range), 0);
        if (t.requests == TXN_MAX || i + 1 == shards) {
            if (!txn_end(&t, g).succeeded) {
                fail("etcd: it could not be filled");
            }
            txn_begin(&t);
        }
    }
    txn_free(&t);
    grpc_close(g);
}

/* How many keys of a kind there are. */
static uint64_t count_of(struct grpc *g, char kind)
{
    struct message m = {0};
    struct findings f = {0};
    size_t len;
    const char from[] = {kind, '/'}, to[] = {kind, '/' + 1};
    message_bytes(&m, 1, from, 2);
    message_bytes(&m, 2, to, 2);
    message_number(&m, 9, 1);
    const uint8_t *answer = call(g, RANGE, &m, &len);
    find_in_range(answer, len, &f);
    message_free(&m);
    return f.count;
}

/* Whether a pair is the last cursor of its shard. */
static bool is_last_cursor(const uint8_t *at, size_t len)
{
    struct field field;
    char name[16] = "";
    uint8_t last[FARM_KEY_LEN];
    struct findings f = {0};
    find_in_pair(at, len, &f);
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 1) {
            snprintf(name, sizeof(name), "%.*s", (int)field.len, (const char *)field.bytes);
        }
    }
    farm_key(last, (uint32_t)strtoul(name + 2, NULL, 10), CHECKPOINTS + 1);
    return f.has_value && memcmp(f.value, last, FARM_KEY_LEN) == 0;
}

static struct tally tally(uint32_t shards)
{
    struct grpc *g = reach();
    struct message m = {0};
    struct field field;
    size_t len;
    struct tally tally = {.held = count_of(g, 'o')};
    uint64_t left = count_of(g, 't');
    message_bytes(&m, 1, "c/", 2);
    message_bytes(&m, 2, "c0", 2);
    const uint8_t *at = call(g, RANGE, &m, &len);
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        tally.done += field.number == 2 && is_last_cursor(field.bytes, field.len);
    }
    if (tally.done + left != shards) {
        fail("etcd: %llu shards are done and %llu are left of %u", (unsigned long long)tally.done,
             (unsigned long long)left, shards);
    }
    message_free(&m);
    grpc_close(g);
    return tally;
}

/* --- a worker --- */

struct worker {
    struct grpc *g;
    struct txn txn;
    struct message range;
    uint64_t lease;
    uint64_t number;
    uint32_t shards;
    uint32_t from; /* where to look next */
    struct {
        uint32_t index;
        uint8_t range[2 * FARM_KEY_LEN];
    } page[PAGE];
    uint32_t page_count, page_at;
    uint32_t index;
    uint64_t fence;
    uint8_t cursor[FARM_KEY_LEN];
};

static uint64_t grant_lease(struct grpc *g, uint32_t seconds)
{
    struct message m = {0};
    struct field field;
    uint64_t id = 0;
    size_t len;
    message_number(&m, 1, seconds);
    const uint8_t *at = call(g, "/etcdserverpb.Lease/LeaseGrant", &m, &len);
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        id = field.number == 2 ? field.value : id;
    }
    message_free(&m);
    return id;
}

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    struct worker *w = calloc(1, sizeof(*w));
    if (w == NULL) {
        fail("no memory");
    }
    w->g = reach();
    w->lease = grant_lease(w->g, shared->lease_s);
    w->number = number;
    w->shards = shards;
    w->from = (uint32_t)((uint64_t)number * shards / workers);
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    grpc_close(w->g);
    txn_free(&w->txn);
    message_free(&w->range);
    free(w);
}

static void take_candidate(struct worker *w, const uint8_t *at, size_t len)
{
    struct field field;
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 1) {
            char text[16];
            snprintf(text, sizeof(text), "%.*s", (int)field.len, (const char *)field.bytes);
            w->page[w->page_count].index = (uint32_t)strtoul(text + 2, NULL, 10);
        } else if (field.number == 5) {
            memcpy(w->page[w->page_count].range, field.bytes, sizeof(w->page[0].range));
        }
    }
    w->page_count++;
}

/* The next shards that are to be done, held or not. */
static void look_further(struct worker *w)
{
    struct field field;
    size_t len;
    struct key from = key_of('t', w->from);
    message_clear(&w->range);
    message_bytes(&w->range, 1, from.text, strlen(from.text));
    message_bytes(&w->range, 2, "t0", 2);
    message_number(&w->range, 3, PAGE);
    const uint8_t *at = call(w->g, RANGE, &w->range, &len);
    w->page_count = w->page_at = 0;
    for (const uint8_t *end = at + len; field_next(&at, end, &field);) {
        if (field.number == 2) {
            take_candidate(w, field.bytes, field.len);
        }
    }
    w->from = w->page_count == PAGE ? w->page[PAGE - 1].index + 1 : 0;
}

static bool try_candidate(struct worker *w, uint32_t index, struct claim *out)
{
    txn_begin(&w->txn);
    compare_created(&w->txn, EQUAL, key_of('o', index), 0);
    compare_created(&w->txn, GREATER, key_of('t', index), 0);
    put(&w->txn, key_of('o', index), &w->number, sizeof(w->number), w->lease);
    get(&w->txn, key_of('c', index));
    struct findings f = txn_end(&w->txn, w->g);
    if (f.succeeded) {
        w->index = index;
        w->fence = f.revision;
        memcpy(w->cursor, f.value, sizeof(w->cursor));
        *out = (struct claim){
            .index = index, .fence = f.revision, .cursor = f.has_value ? w->cursor : NULL};
    }
    return f.succeeded;
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    /* Once around: from where we are to the end, and from the beginning. */
    for (uint32_t ends = 0; ends < 3;) {
        while (w->page_at < w->page_count) {
            uint32_t i = w->page_at++;
            if (try_candidate(w, w->page[i].index, out)) {
                out->start = w->page[i].range;
                out->end = w->page[i].range + FARM_KEY_LEN;
                return ACCEPTED;
            }
        }
        look_further(w);
        ends += w->from == 0;
    }
    return REFUSED;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    txn_begin(&w->txn);
    compare_created(&w->txn, EQUAL, key_of('o', w->index), w->fence);
    put(&w->txn, key_of('c', w->index), key, FARM_KEY_LEN, 0);
    return txn_end(&w->txn, w->g).succeeded ? ACCEPTED : REFUSED;
}

static enum answer complete(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    txn_begin(&w->txn);
    compare_created(&w->txn, EQUAL, key_of('o', w->index), w->fence);
    put(&w->txn, key_of('c', w->index), key, FARM_KEY_LEN, 0);
    erase(&w->txn, key_of('t', w->index));
    erase(&w->txn, key_of('o', w->index));
    return txn_end(&w->txn, w->g).succeeded ? ACCEPTED : REFUSED;
}

static const struct setting settings[] = {
    {.name = "one member", .promise = PROMISE_NOW, .shards = 6000},
};

const struct peer peer_etcd = {
    .name = "etcd",
    .settings = settings,
    .settings_count = COUNT(settings),
    .lease_ms = 2000,
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
