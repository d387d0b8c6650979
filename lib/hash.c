#include "hash.h"

#include <assert.h>

#include "bytes.h"
#include "manifest.h"

/* There if BLAKE3 is built from its sources, as it usually is. */
#if __has_include(<blake3_impl.h>)
#include <blake3_impl.h>
#define HAVE_COMPRESS 1
#endif

#define DOMAIN_SPLIT_ID   "gossip/coord/v1/split-id"
#define DOMAIN_OP_PAYLOAD "gossip/coord/v1/op-payload"
#define DOMAIN_TENANT     "ringfence/tenant/v1"

/* The canonical bytes on their way into a hasher. They are gathered first: one update is much
 * cheaper than ten, and what fits one chunk of BLAKE3 needs no update at all. */
struct feed {
    blake3_hasher *hasher;
    bool begun; /* some are in the hasher already */
    size_t held;
    uint8_t hold[BLAKE3_CHUNK_LEN];
};

static void feed_begin(struct feed *f, blake3_hasher *hasher)
{
    f->hasher = hasher;
    f->begun = false;
    f->held = 0;
}

static void feed_update(struct feed *f, const void *data, size_t len)
{
    if (!f->begun) {
        blake3_hasher_reset(f->hasher);
        f->begun = true;
    }
    blake3_hasher_update(f->hasher, data, len);
}

static void feed_raw(struct feed *f, const void *data, size_t len)
{
    if (len > sizeof(f->hold) - f->held) {
        feed_update(f, f->hold, f->held);
        f->held = 0;
        if (len > sizeof(f->hold)) {
            feed_update(f, data, len);
            return;
        }
    }
    if (len != 0) {
        memcpy(f->hold + f->held, data, len);
        f->held += len;
    }
}

static void feed_u8(struct feed *f, uint8_t v)
{
    feed_raw(f, &v, 1);
}

static void feed_u32(struct feed *f, uint32_t v)
{
    uint8_t le[4];
    rf_store_le32(le, v);
    feed_raw(f, le, sizeof(le));
}

static void feed_u64(struct feed *f, uint64_t v)
{
    uint8_t le[8];
    rf_store_le64(le, v);
    feed_raw(f, le, sizeof(le));
}

/* Lengths beyond 32 bits can't be encoded; the size checks refuse them, but only after the
 * idempotency check, so a hash is needed: the low half of the length is as good as any. */
static void feed_bytes(struct feed *f, rf_bytes b)
{
    feed_u32(f, (uint32_t)b.len);
    feed_raw(f, b.data, b.len);
}

static void feed_optional(struct feed *f, bool present, rf_bytes b)
{
    feed_u8(f, present ? 1 : 0);
    if (present) {
        feed_bytes(f, b);
    }
}

static void feed_cursor(struct feed *f, const rf_cursor *c)
{
    feed_optional(f, c->key.data != NULL, c->key);
    feed_optional(f, c->token.len != 0, c->token);
}

static void feed_spec(struct feed *f, const rf_spec *s)
{
    feed_bytes(f, s->start);
    feed_bytes(f, s->end);
    feed_bytes(f, s->metadata);
}

#ifdef HAVE_COMPRESS
/* A chunk that is the whole input, by compressions alone. The public functions copy their state
 * around as they go, which for a checkpoint can cost half as much as its hash. */
static uint64_t hash_one_chunk(const blake3_hasher *keyed, uint8_t *bytes, size_t len)
{
    uint32_t cv[8];
    uint8_t flags = keyed->chunk.flags | CHUNK_START;
    memcpy(cv, keyed->key, sizeof(cv));
    while (len > BLAKE3_BLOCK_LEN) {
        blake3_compress_in_place(cv, bytes, BLAKE3_BLOCK_LEN, 0, flags);
        flags = keyed->chunk.flags;
        bytes += BLAKE3_BLOCK_LEN;
        len -= BLAKE3_BLOCK_LEN;
    }
    memset(bytes + len, 0, BLAKE3_BLOCK_LEN - len);
    blake3_compress_in_place(cv, bytes, (uint8_t)len, 0, (uint8_t)(flags | CHUNK_END | ROOT));
    return cv[0] | (uint64_t)cv[1] << 32;
}
#endif

static uint64_t feed_end(struct feed *f)
{
#ifdef HAVE_COMPRESS
    if (!f->begun) {
        return hash_one_chunk(f->hasher, f->hold, f->held);
    }
#endif
    uint8_t out[8];
    feed_update(f, f->hold, f->held);
    blake3_hasher_finalize(f->hasher, out, sizeof(out));
    return rf_load_le64(out);
}

#define feed_tag(f, tag) feed_raw((f), (tag), sizeof(tag) - 1)

#ifdef HAVE_COMPRESS
/* memcpy without the call, for lengths of a block or so. */
static inline void lay_bytes(uint8_t *to, const uint8_t *from, size_t len)
{
    if (len < 16) {
        for (size_t i = 0; i < len; i++) {
            to[i] = from[i];
        }
        return;
    }
    for (size_t i = 0; i + 16 <= len; i += 16) {
        memcpy(to + i, from + i, 16);
    }
    memcpy(to + len - 16, from + len - 16, 16);
}

static inline uint8_t *lay_optional(uint8_t *at, bool present, rf_bytes b)
{
    *at++ = present;
    if (present) {
        rf_store_le32(at, (uint32_t)b.len);
        lay_bytes(at + 4, b.data, b.len);
        at += 4 + b.len;
    }
    return at;
}

/* 16 bytes in one store: a compression that loads them at once need not wait for several. */
typedef uint64_t two_words __attribute__((vector_size(16), may_alias));
static inline void lay_16(uint8_t *to, uint64_t low, uint64_t high)
{
    *(two_words *)(void *)to = (two_words){low, high};
}

static inline unsigned __int128 load_16(const uint8_t *from)
{
    return (unsigned __int128)rf_load_le64(from + 8) << 64 | rf_load_le64(from);
}

/* Tag, key and no token into zeroed blocks that are aligned to 16, in stores that are aligned as well: the
 * loads of the compression find each of theirs in one store. For keys of 16 bytes and more. */
static inline size_t lay_tagged_key(uint8_t *blocks, const char *tag, size_t tag_len, rf_bytes key)
{
    const uint8_t *from = key.data;
    uint8_t head[16] = {0};
    size_t head_len = tag_len + 5;
    memcpy(head, tag, tag_len);
    head[tag_len] = 1;
    rf_store_le32(head + tag_len + 1, (uint32_t)key.len);
    unsigned __int128 first = load_16(head) | load_16(from) << (8 * head_len);
    lay_16(blocks, (uint64_t)first, (uint64_t)(first >> 64));
    size_t at = 16 - head_len, to = 16;
    for (; at + 16 <= key.len; at += 16, to += 16) {
        two_words words;
        memcpy(&words, from + at, sizeof(words));
        *(two_words *)(void *)(blocks + to) = words;
    }
    if (at < key.len) {
        unsigned __int128 last = load_16(from + key.len - 16) >> (8 * (16 - (key.len - at)));
        lay_16(blocks + to, (uint64_t)last, (uint64_t)(last >> 64));
    }
    return head_len + key.len + 1; /* no token: a zero */
}

static inline uint64_t hash_two_blocks(const blake3_hasher *keyed, const char *tag, size_t tag_len,
                                       const rf_cursor *c)
{
    uint8_t blocks[2 * BLAKE3_BLOCK_LEN] = {0};
    uint32_t cv[8];
    uint8_t flags = keyed->chunk.flags | CHUNK_START;
    memcpy(blocks, tag, tag_len);
    uint8_t *at = lay_optional(blocks + tag_len, c->key.data != NULL, c->key);
    at = lay_optional(at, c->token.len != 0, c->token);
    size_t len = (size_t)(at - blocks);
    memcpy(cv, keyed->key, sizeof(cv));
    if (len > BLAKE3_BLOCK_LEN) {
        blake3_compress_in_place(cv, blocks, BLAKE3_BLOCK_LEN, 0, flags);
        flags = keyed->chunk.flags;
        blake3_compress_in_place(cv, blocks + BLAKE3_BLOCK_LEN, (uint8_t)(len - BLAKE3_BLOCK_LEN),
                                 0, (uint8_t)(flags | CHUNK_END | ROOT));
    } else {
        blake3_compress_in_place(cv, blocks, (uint8_t)len, 0, (uint8_t)(flags | CHUNK_END | ROOT));
    }
    return cv[0] | (uint64_t)cv[1] << 32;
}
#endif

/* The payloads of checkpoint, complete and release: a tag and a cursor. */
static inline uint64_t hash_tagged_cursor(struct rf_hasher *hasher, const char *tag, size_t tag_len,
                                          const rf_cursor *c)
{
    struct feed f;
    feed_begin(&f, &hasher->payload);
#ifdef HAVE_COMPRESS
    /* Most cursors fit two blocks: lay them out without asking for room at every field. */
    if (c->key.len + c->token.len <= 2 * BLAKE3_BLOCK_LEN - tag_len - 10) {
        return hash_two_blocks(&hasher->payload, tag, tag_len, c);
    }
#endif
    feed_raw(&f, tag, tag_len);
    feed_cursor(&f, c);
    return feed_end(&f);
}

void rf_hasher_init(struct rf_hasher *hasher)
{
    blake3_hasher_init_derive_key(&hasher->payload, DOMAIN_OP_PAYLOAD);
    blake3_hasher_init_derive_key(&hasher->split, DOMAIN_SPLIT_ID);
}

uint64_t rf_hasher_split_id(struct rf_hasher *hasher, uint64_t run, uint64_t parent, uint64_t op,
                            rf_derived_kind kind, uint32_t index)
{
    struct feed f;
    feed_begin(&f, &hasher->split);
    feed_u64(&f, run);
    feed_u64(&f, parent);
    feed_u64(&f, op);
    feed_u8(&f, (uint8_t)kind);
    feed_u32(&f, index);
    return feed_end(&f) | RF_DERIVED_BIT;
}

uint64_t rf_payload_finish(struct rf_payload *p)
{
#ifdef HAVE_COMPRESS
    blake3_compress_in_place(p->cv, p->blocks + BLAKE3_BLOCK_LEN, (uint8_t)p->rest, 0, p->flags);
    p->hash = p->cv[0] | (uint64_t)p->cv[1] << 32;
#endif
    p->rest = 0;
    return p->hash;
}

void rf_payload_checkpoint(struct rf_hasher *hasher, const rf_cursor *cursor, struct rf_payload *p)
{
    p->rest = 0;
#ifdef HAVE_COMPRESS
    const char tag[] = "checkpoint";
    size_t len = sizeof(tag) - 1 + 6 + cursor->key.len;
    if (cursor->token.len == 0 && cursor->key.data != NULL && len > BLAKE3_BLOCK_LEN &&
        len <= 2 * BLAKE3_BLOCK_LEN) {
        const blake3_hasher *keyed = &hasher->payload;
        const two_words none = {0, 0};
        for (unsigned i = BLAKE3_BLOCK_LEN; i < 2 * BLAKE3_BLOCK_LEN; i += 16) {
            *(two_words *)(void *)(p->blocks + i) = none;
        }
        lay_tagged_key(p->blocks, tag, sizeof(tag) - 1, cursor->key);
        memcpy(p->cv, keyed->key, sizeof(p->cv));
        blake3_compress_in_place(p->cv, p->blocks, BLAKE3_BLOCK_LEN, 0,
                                 (uint8_t)(keyed->chunk.flags | CHUNK_START));
        p->rest = (uint32_t)(len - BLAKE3_BLOCK_LEN);
        p->flags = (uint8_t)(keyed->chunk.flags | CHUNK_END | ROOT);
        return;
    }
#endif
    p->hash = rf_hasher_checkpoint(hasher, cursor);
}

uint64_t rf_hasher_checkpoint(struct rf_hasher *hasher, const rf_cursor *cursor)
{
    return hash_tagged_cursor(hasher, "checkpoint", sizeof("checkpoint") - 1, cursor);
}

uint64_t rf_hasher_complete(struct rf_hasher *hasher, const rf_cursor *cursor)
{
    return hash_tagged_cursor(hasher, "complete", sizeof("complete") - 1, cursor);
}

uint64_t rf_hasher_release(struct rf_hasher *hasher, const rf_cursor *cursor)
{
    return hash_tagged_cursor(hasher, "release", sizeof("release") - 1, cursor);
}

uint64_t rf_hasher_park(struct rf_hasher *hasher, rf_park_reason reason)
{
    struct feed f;
    feed_begin(&f, &hasher->payload);
    feed_tag(&f, "park");
    feed_u8(&f, (uint8_t)reason);
    return feed_end(&f);
}

uint64_t rf_hasher_unpark(struct rf_hasher *hasher, uint64_t run, uint64_t shard)
{
    struct feed f;
    feed_begin(&f, &hasher->payload);
    feed_tag(&f, "unpark_shard");
    feed_u64(&f, run);
    feed_u64(&f, shard);
    return feed_end(&f);
}

uint64_t rf_hasher_split_replace(struct rf_hasher *hasher, const rf_child *children, uint32_t count)
{
    struct feed f;
    feed_begin(&f, &hasher->payload);
    feed_tag(&f, "split_replace");
    feed_u32(&f, count);
    for (uint32_t i = 0; i < count; i++) {
        feed_spec(&f, &children[i].spec);
        feed_cursor(&f, &children[i].cursor);
    }
    return feed_end(&f);
}

uint64_t rf_hasher_split_residual(struct rf_hasher *hasher, const rf_spec *parent_new,
                                  const rf_spec *residual)
{
    struct feed f;
    feed_begin(&f, &hasher->payload);
    feed_tag(&f, "split_residual");
    feed_spec(&f, parent_new);
    feed_spec(&f, residual);
    return feed_end(&f);
}

uint64_t rf_hasher_run_op(struct rf_hasher *hasher, rf_run_op_kind kind)
{
    struct feed f;
    assert(kind == RF_RUN_OP_COMPLETE || kind == RF_RUN_OP_FAIL || kind == RF_RUN_OP_CANCEL);
    feed_begin(&f, &hasher->payload);
    switch (kind) {
    case RF_RUN_OP_COMPLETE:
        feed_tag(&f, "complete_run");
        break;
    case RF_RUN_OP_FAIL:
        feed_tag(&f, "fail_run");
        break;
    case RF_RUN_OP_CANCEL:
        feed_tag(&f, "cancel_run");
        break;
    case RF_RUN_OP_REGISTER_SHARDS:
    case RF_RUN_OP_ADD_SHARDS:
        break; /* these have a manifest */
    }
    return feed_end(&f);
}

uint64_t rf_hasher_manifest(struct rf_hasher *hasher, rf_run_op_kind kind,
                            const rf_shard_input *shards, uint32_t count, const uint32_t *order)
{
    struct feed f;
    assert(kind == RF_RUN_OP_REGISTER_SHARDS || kind == RF_RUN_OP_ADD_SHARDS);
    feed_begin(&f, &hasher->payload);
    if (kind == RF_RUN_OP_REGISTER_SHARDS) {
        feed_tag(&f, "register_shards");
    } else {
        feed_tag(&f, "add_shards");
    }
    feed_u32(&f, count);
    for (uint32_t i = 0; i < count; i++) {
        const rf_shard_input *s = &shards[order[i]];
        feed_u64(&f, s->shard);
        feed_spec(&f, &s->spec);
        feed_cursor(&f, &s->cursor);
    }
    return feed_end(&f);
}

/* --- the public forms: a hasher made for one use --- */

uint64_t rf_hash64(const char *context, rf_bytes input)
{
    blake3_hasher hasher;
    uint8_t out[8];
    blake3_hasher_init_derive_key(&hasher, context);
    blake3_hasher_update(&hasher, input.data, input.len);
    blake3_hasher_finalize(&hasher, out, sizeof(out));
    return rf_load_le64(out);
}

void rf_tenant_from_name(const char *name, rf_tenant *tenant)
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, DOMAIN_TENANT);
    blake3_hasher_update(&hasher, name, strlen(name));
    blake3_hasher_finalize(&hasher, tenant->bytes, sizeof(tenant->bytes));
}

uint64_t rf_split_id(uint64_t run, uint64_t parent, uint64_t op, rf_derived_kind kind,
                     uint32_t index)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_split_id(&hasher, run, parent, op, kind, index);
}

uint64_t rf_hash_checkpoint(rf_cursor cursor)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_checkpoint(&hasher, &cursor);
}

uint64_t rf_hash_complete(rf_cursor cursor)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_complete(&hasher, &cursor);
}

uint64_t rf_hash_release(rf_cursor cursor)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_release(&hasher, &cursor);
}

uint64_t rf_hash_park(rf_park_reason reason)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_park(&hasher, reason);
}

uint64_t rf_hash_unpark(uint64_t run, uint64_t shard)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_unpark(&hasher, run, shard);
}

uint64_t rf_hash_split_replace(const rf_child *children, uint32_t count)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_split_replace(&hasher, children, count);
}

uint64_t rf_hash_split_residual(rf_spec parent_new, rf_spec residual)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_split_residual(&hasher, &parent_new, &residual);
}

uint64_t rf_hash_run_op(rf_run_op_kind kind)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    return rf_hasher_run_op(&hasher, kind);
}

static uint64_t hash_manifest(rf_run_op_kind kind, const rf_shard_input *shards, uint32_t count,
                              uint32_t *order)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    rf_manifest_order_by_id(shards, count, order);
    return rf_hasher_manifest(&hasher, kind, shards, count, order);
}

uint64_t rf_hash_register(const rf_shard_input *shards, uint32_t count, uint32_t *order)
{
    return hash_manifest(RF_RUN_OP_REGISTER_SHARDS, shards, count, order);
}

uint64_t rf_hash_add(const rf_shard_input *shards, uint32_t count, uint32_t *order)
{
    return hash_manifest(RF_RUN_OP_ADD_SHARDS, shards, count, order);
}
