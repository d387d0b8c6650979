/* Short payloads are hashed by another path than long ones. Both must be BLAKE3 over the canonical
 * bytes, at every length, and in any order on one hasher. */
#include <stdlib.h>

#include "bytes.h"
#include "hash.h"
#include "unity.h"

#define DOMAIN "gossip/coord/v1/op-payload"

static uint8_t key[RF_KEY_MAX], token[RF_TOKEN_MAX];
static uint8_t canonical[64 + RF_KEY_MAX + RF_TOKEN_MAX];
static struct rf_hasher hasher;

void setUp(void)
{
    for (size_t i = 0; i < sizeof(key); i++) {
        key[i] = (uint8_t)(i * 7 + 1);
    }
    for (size_t i = 0; i < sizeof(token); i++) {
        token[i] = (uint8_t)(i * 13 + 5);
    }
    rf_hasher_init(&hasher);
}

void tearDown(void)
{
}

/* The canonical bytes of a checkpoint, written by hand, and hashed with BLAKE3's public API. */
static uint64_t expected(size_t key_len, size_t token_len)
{
    size_t at = 10;
    memcpy(canonical, "checkpoint", at);
    canonical[at++] = 1;
    rf_store_le32(canonical + at, (uint32_t)key_len);
    at += 4;
    memcpy(canonical + at, key, key_len);
    at += key_len;
    canonical[at++] = token_len != 0;
    if (token_len != 0) {
        rf_store_le32(canonical + at, (uint32_t)token_len);
        at += 4;
        memcpy(canonical + at, token, token_len);
        at += token_len;
    }
    return rf_hash64(DOMAIN, rf_bytes_of(canonical, at));
}

static uint64_t kept(size_t key_len, size_t token_len)
{
    rf_cursor cursor = {.key = rf_bytes_of(key, key_len), .token = rf_bytes_of(token, token_len)};
    return rf_hasher_checkpoint(&hasher, &cursor);
}

static void every_key_length_has_the_hash_of_its_canonical_bytes(void)
{
    for (size_t len = 0; len <= RF_KEY_MAX; len++) {
        TEST_ASSERT_EQUAL_HEX64(expected(len, 0), kept(len, 0));
    }
}

static void every_token_length_around_blocks_and_chunks_has_it_too(void)
{
    for (size_t base = 0; base <= RF_TOKEN_MAX; base += 64) {
        for (size_t len = base < 32 ? 0 : base - 32; len <= base + 2 && len <= RF_TOKEN_MAX;
             len++) {
            TEST_ASSERT_EQUAL_HEX64(expected(3, len), kept(3, len));
            TEST_ASSERT_EQUAL_HEX64(expected(900, len), kept(900, len));
        }
    }
}

static void a_hasher_forgets_what_it_hashed_before(void)
{
    static const size_t lens[] = {0, 48, 49, 64, 1007, 1008, 1009, 1010, 2000, RF_KEY_MAX};
    const size_t count = sizeof(lens) / sizeof(lens[0]);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            kept(lens[i], lens[j]);
            TEST_ASSERT_EQUAL_HEX64(expected(lens[j], lens[i]), kept(lens[j], lens[i]));
            rf_hasher_split_id(&hasher, 1, 2, 3, RF_CHILD, 4);
            TEST_ASSERT_EQUAL_HEX64(expected(lens[i], 0), kept(lens[i], 0));
        }
    }
}

/* Begun, finished when asked, and asked twice; keys at every place in memory, between guards that must not
 * be read for the hash to depend on. */
static void a_payload_in_two_parts_has_the_same_hash(void)
{
    uint8_t room[16 + 300 + 16];
    for (size_t i = 0; i < sizeof(room); i++) {
        room[i] = (uint8_t)(i * 37 + 11);
    }
    for (size_t len = 0; len <= 280; len++) {
        for (size_t extra = 0; extra <= 40; extra += 20) {
            const rf_cursor cursor = {.key = rf_bytes_of(room + 16 - len % 16, len),
                                      .token = rf_bytes_of(room, extra)};
            struct rf_payload payload;
            memset(&payload, 0xA5, sizeof(payload));
            rf_payload_checkpoint(&hasher, &cursor, &payload);
            TEST_ASSERT_EQUAL_HEX64(rf_hash_checkpoint(cursor), rf_payload_hash(&payload));
            TEST_ASSERT_EQUAL_HEX64(rf_hash_checkpoint(cursor), rf_payload_hash(&payload));
        }
    }
    const rf_cursor none = {0};
    struct rf_payload payload;
    rf_payload_checkpoint(&hasher, &none, &payload);
    TEST_ASSERT_EQUAL_HEX64(rf_hash_checkpoint(none), rf_payload_hash(&payload));
}

static void an_empty_payload_has_the_hash_of_its_tag(void)
{
    TEST_ASSERT_EQUAL_HEX64(rf_hash64(DOMAIN, rf_bytes_of("complete_run", 12)),
                            rf_hasher_run_op(&hasher, RF_RUN_OP_COMPLETE));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(every_key_length_has_the_hash_of_its_canonical_bytes);
    RUN_TEST(every_token_length_around_blocks_and_chunks_has_it_too);
    RUN_TEST(a_hasher_forgets_what_it_hashed_before);
    RUN_TEST(a_payload_in_two_parts_has_the_same_hash);
    RUN_TEST(an_empty_payload_has_the_hash_of_its_tag);
    return UNITY_END();
}
