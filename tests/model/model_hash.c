/* The canonical encodings, laid out in one buffer and hashed as a whole. */
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define PAYLOAD "gossip/coord/v1/op-payload"

struct page {
    uint8_t *data;
    size_t len, room;
};

static void put(struct page *p, const void *data, size_t len)
{
    if (p->len + len > p->room) {
        p->room = 2 * (p->len + len) + 256;
        p->data = realloc(p->data, p->room);
        if (p->data == NULL) {
            abort();
        }
    }
    if (len != 0) {
        memcpy(p->data + p->len, data, len);
        p->len += len;
    }
}

static void put_u8(struct page *p, uint8_t v)
{
    put(p, &v, 1);
}

static void put_number(struct page *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        put_u8(p, (uint8_t)(v >> (8 * i)));
    }
}

static void put_bytes(struct page *p, rf_bytes b)
{
    put_number(p, b.len, 4);
    put(p, b.data, b.len);
}

static void put_optional(struct page *p, bool present, rf_bytes b)
{
    put_u8(p, present);
    if (present) {
        put_bytes(p, b);
    }
}

static void put_cursor(struct page *p, const rf_cursor *c)
{
    put_optional(p, c->key.data != NULL, c->key);
    put_optional(p, c->token.len != 0, c->token);
}

static void put_spec(struct page *p, const rf_spec *s)
{
    put_bytes(p, s->start);
    put_bytes(p, s->end);
    put_bytes(p, s->metadata);
}

/* One page is written at a time. */
static struct page page;

static struct page *fresh(const char *tag)
{
    page.len = 0;
    put(&page, tag, strlen(tag));
    return &page;
}

static uint64_t hashed(const struct page *p, const char *domain)
{
    return rf_hash64(domain, (rf_bytes){.data = p->data, .len = p->len});
}

uint64_t model_split_id(uint64_t run, uint64_t parent, uint64_t op, rf_derived_kind kind,
                        uint32_t index)
{
    struct page *p = fresh("");
    put_number(p, run, 8);
    put_number(p, parent, 8);
    put_number(p, op, 8);
    put_u8(p, (uint8_t)kind);
    put_number(p, index, 4);
    return hashed(p, "gossip/coord/v1/split-id") | 1ull << 63;
}

uint64_t model_hash_cursor(const char *tag, const rf_cursor *cursor)
{
    struct page *p = fresh(tag);
    put_cursor(p, cursor);
    return hashed(p, PAYLOAD);
}

uint64_t model_hash_park(rf_park_reason reason)
{
    struct page *p = fresh("park");
    put_u8(p, (uint8_t)reason);
    return hashed(p, PAYLOAD);
}

uint64_t model_hash_replace(const rf_child *children, uint32_t count)
{
    struct page *p = fresh("split_replace");
    put_number(p, count, 4);
    for (uint32_t i = 0; i < count; i++) {
        put_spec(p, &children[i].spec);
        put_cursor(p, &children[i].cursor);
    }
    return hashed(p, PAYLOAD);
}

uint64_t model_hash_residual(const rf_spec *parent_new, const rf_spec *residual)
{
    struct page *p = fresh("split_residual");
    put_spec(p, parent_new);
    put_spec(p, residual);
    return hashed(p, PAYLOAD);
}

uint64_t model_hash_unpark(uint64_t run, uint64_t shard)
{
    struct page *p = fresh("unpark_shard");
    put_number(p, run, 8);
    put_number(p, shard, 8);
    return hashed(p, PAYLOAD);
}

/* Stable-sorted by id: among equal ids the caller's order. */
uint64_t model_hash_manifest(const char *tag, const rf_shard_input *shards, uint32_t count)
{
    struct page *p = fresh(tag);
    bool *done = calloc(count + 1, sizeof(*done));
    put_number(p, count, 4);
    for (uint32_t n = 0; n < count; n++) {
        uint32_t next = count;
        for (uint32_t i = 0; i < count; i++) {
            if (!done[i] && (next == count || shards[i].shard < shards[next].shard)) {
                next = i;
            }
        }
        done[next] = true;
        put_number(p, shards[next].shard, 8);
        put_spec(p, &shards[next].spec);
        put_cursor(p, &shards[next].cursor);
    }
    free(done);
    return hashed(p, PAYLOAD);
}

uint64_t model_hash_empty(const char *tag)
{
    return hashed(fresh(tag), PAYLOAD);
}
