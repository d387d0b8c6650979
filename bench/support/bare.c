#include "bare.h"

#include <assert.h>
#include <string.h>

#include "bytes.h"
#include "timing.h"

#if defined(__has_include)
#if __has_include(<blake3_impl.h>)
#include <blake3_impl.h>
#define HAVE_COMPRESS 1
#endif
#endif

#define PAYLOAD_DOMAIN "gossip/coord/v1/op-payload"
#define PAYLOAD_TAG    "checkpoint"
#define PAYLOAD_LEN    (sizeof(PAYLOAD_TAG) - 1 + 1 + 4 + BARE_KEY_LEN + 1) /* 80: two blocks */

/* The canonical bytes of a checkpoint, at the cursor's key and without a token. */
static void write_payload(const uint8_t *key, uint8_t out[128])
{
    uint8_t *at = out;
    memset(out, 0, 128);
    memcpy(at, PAYLOAD_TAG, sizeof(PAYLOAD_TAG) - 1);
    at += sizeof(PAYLOAD_TAG) - 1;
    *at++ = 1;
    rf_store_le32(at, BARE_KEY_LEN);
    at += 4;
    memcpy(at, key, BARE_KEY_LEN);
    at += BARE_KEY_LEN;
    *at++ = 0;
    assert(at == out + PAYLOAD_LEN);
}

#ifdef HAVE_COMPRESS
static inline uint64_t bare_hash(const struct bare *b)
{
    uint32_t cv[8];
    memcpy(cv, b->keyed.key, sizeof(cv));
    blake3_compress_in_place(cv, b->payload, BLAKE3_BLOCK_LEN, 0,
                             CHUNK_START | DERIVE_KEY_MATERIAL);
    blake3_compress_in_place(cv, b->payload + BLAKE3_BLOCK_LEN, PAYLOAD_LEN - BLAKE3_BLOCK_LEN, 0,
                             CHUNK_END | ROOT | DERIVE_KEY_MATERIAL);
    return cv[0] | (uint64_t)cv[1] << 32;
}

bool bare_is_bare(void)
{
    return true;
}

const char *bare_name(void)
{
    return "h: two bare compressions, 80 bytes";
}
#else
static inline uint64_t bare_hash(struct bare *b)
{
    uint8_t out[8];
    blake3_hasher_reset(&b->keyed);
    blake3_hasher_update(&b->keyed, b->payload, PAYLOAD_LEN);
    blake3_hasher_finalize(&b->keyed, out, sizeof(out));
    return rf_load_le64(out);
}

bool bare_is_bare(void)
{
    return false;
}

const char *bare_name(void)
{
    return "h: blake3_hasher on 80 ready bytes";
}
#endif

void bare_init(struct bare *b, const uint8_t *key)
{
    const rf_cursor cursor = {.key = {.data = key, .len = BARE_KEY_LEN}};
    blake3_hasher_init_derive_key(&b->keyed, PAYLOAD_DOMAIN);
    write_payload(key, b->payload);
    assert(bare_hash(b) == rf_hash_checkpoint(cursor));
}

void bare_run(void *context, uint64_t n)
{
    struct bare *b = context;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t hash = bare_hash(b);
        bench_use(hash);
    }
}
