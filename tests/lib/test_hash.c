/* Ids and payload hashes: the published vectors, and every hash against the canonical bytes written
 * out a second time, by hand. */
#include <unity.h>

#include "box.h"
#include "hash.h"
#include "manifest.h"
#include "prng.h"

#define PAYLOAD_DOMAIN "gossip/coord/v1/op-payload"
#define SPLIT_DOMAIN   "gossip/coord/v1/split-id"

/* The canonical bytes, as PROTOCOL section 1 lays them out. */
static uint8_t canon[1u << 20];
static size_t canon_len;

void setUp(void)
{
    canon_len = 0;
}

void tearDown(void)
{
}

static void put_raw(const void *data, size_t len)
{
    TEST_ASSERT_TRUE(len <= sizeof(canon) - canon_len);
    if (len != 0) {
        memcpy(canon + canon_len, data, len);
    }
    canon_len += len;
}

static void put_tag(const char *tag)
{
    canon_len = 0;
    put_raw(tag, strlen(tag));
}

static void put_number(uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        uint8_t byte = (uint8_t)(value >> (8 * i));
        put_raw(&byte, 1);
    }
}

static void put_bytes(rf_bytes bytes)
{
    put_number(bytes.len, 4);
    put_raw(bytes.data, bytes.len);
}

static void put_cursor(rf_cursor cursor)
{
    put_number(cursor.key.data != NULL, 1);
    if (cursor.key.data != NULL) {
        put_bytes(cursor.key);
    }
    put_number(cursor.token.len != 0, 1);
    if (cursor.token.len != 0) {
        put_bytes(cursor.token);
    }
}

static void put_spec(rf_spec spec)
{
    put_bytes(spec.start);
    put_bytes(spec.end);
    put_bytes(spec.metadata);
}

static uint64_t canon_hash(void)
{
    return rf_hash64(PAYLOAD_DOMAIN, rf_bytes_of(canon, canon_len));
}

static void the_64_bit_form_matches_the_published_vector(void)
{
    TEST_ASSERT_EQUAL_HEX64(0x86659f9498143183u, rf_hash64("gossip/golden-64/v1",
                                                           rf_text("deterministic golden vector")));
}

static void split_ids_match_the_published_vectors(void)
{
    TEST_ASSERT_EQUAL_HEX64(0xada8c6fca3894936u, rf_split_id(1, 100, 999, RF_CHILD, 0));
    TEST_ASSERT_EQUAL_HEX64(0xac88444c76bdfa28u, rf_split_id(1, 100, 999, RF_CHILD, 1));
    TEST_ASSERT_EQUAL_HEX64(0xfea10675fdf78c46u, rf_split_id(1, 100, 999, RF_RESIDUAL, 0));
}

static void payload_hashes_match_the_published_vectors(void)
{
    rf_cursor cursor = rf_cursor_at("golden-cursor-key");
    TEST_ASSERT_EQUAL_HEX64(0x0806b9d383fd8430u, rf_hash_checkpoint(cursor));
    TEST_ASSERT_EQUAL_HEX64(0x9a83e072185abf89u, rf_hash_complete(cursor));
    TEST_ASSERT_EQUAL_HEX64(0xf0e5baaa11b56d8du, rf_hash_park(RF_PARK_POISONED));
    rf_child children[2] = {rf_child_of("a", "m"), rf_child_of("m", "z")};
    TEST_ASSERT_EQUAL_HEX64(0xa592eea6db2fcb49u, rf_hash_split_replace(children, 2));
    TEST_ASSERT_EQUAL_HEX64(0x4be2bdea63447e13u,
                            rf_hash_split_residual(rf_spec_of("a", "m"), rf_spec_of("m", "z")));
}

static void split_ids_are_the_hash_of_their_29_byte_input_with_bit_63(void)
{
    struct rf_prng prng = {.state = 3};
    for (int i = 0; i < 200; i++) {
        uint64_t run = rf_prng_next(&prng), parent = rf_prng_next(&prng), op = rf_prng_next(&prng);
        uint32_t index = (uint32_t)rf_prng_next(&prng);
        rf_derived_kind kind = i % 2 == 0 ? RF_CHILD : RF_RESIDUAL;
        canon_len = 0;
        put_number(run, 8);
        put_number(parent, 8);
        put_number(op, 8);
        put_number(kind, 1);
        put_number(index, 4);
        TEST_ASSERT_EQUAL_size_t(29, canon_len);
        TEST_ASSERT_EQUAL_HEX64(rf_hash64(SPLIT_DOMAIN, rf_bytes_of(canon, canon_len)) |
                                    RF_DERIVED_BIT,
                                rf_split_id(run, parent, op, kind, index));
    }
}

static void each_part_of_a_split_id_changes_it(void)
{
    uint64_t id = rf_split_id(1, 2, 3, RF_CHILD, 4);
    TEST_ASSERT_TRUE(id != rf_split_id(2, 2, 3, RF_CHILD, 4));
    TEST_ASSERT_TRUE(id != rf_split_id(1, 3, 3, RF_CHILD, 4));
    TEST_ASSERT_TRUE(id != rf_split_id(1, 2, 4, RF_CHILD, 4));
    TEST_ASSERT_TRUE(id != rf_split_id(1, 2, 3, RF_RESIDUAL, 4));
    TEST_ASSERT_TRUE(id != rf_split_id(1, 2, 3, RF_CHILD, 5));
}

/* Keys and tokens of every length near the size of the gathering buffer, and the limits. */
static void cursor_hashes_are_those_of_the_canonical_bytes_at_every_length(void)
{
    static uint8_t key[RF_KEY_MAX + 1], token[RF_TOKEN_MAX + 1];
    struct rf_prng prng = {.state = 4};
    rf_prng_bytes(&prng, key, sizeof(key));
    rf_prng_bytes(&prng, token, sizeof(token));
    static const size_t key_lens[] = {0,   1,   63,  64,  200,  235,  236,
                                      237, 255, 256, 257, 4095, 4096, 4097};
    static const size_t token_lens[] = {0,   1,   17,  230,  244,   245,  246,
                                        255, 256, 257, 1024, 16384, 16385};
    for (size_t i = 0; i < sizeof(key_lens) / sizeof(key_lens[0]); i++) {
        for (size_t j = 0; j < sizeof(token_lens) / sizeof(token_lens[0]); j++) {
            rf_cursor c = {.key = rf_bytes_of(key, key_lens[i]),
                           .token = rf_bytes_of(token, token_lens[j])};
            put_tag("checkpoint");
            put_cursor(c);
            TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_checkpoint(c));
            put_tag("complete");
            put_cursor(c);
            TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_complete(c));
            put_tag("release");
            put_cursor(c);
            TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_release(c));
        }
    }
}

/* Across the size of one chunk of BLAKE3, which is where the way of hashing changes. */
static void cursors_of_every_length_up_to_a_chunk_hash_as_their_canonical_bytes(void)
{
    static uint8_t key[BLAKE3_CHUNK_LEN + 64];
    memset(key, 0xFF, sizeof(key));
    for (size_t len = 0; len <= sizeof(key); len++) {
        rf_cursor c = {.key = rf_bytes_of(key, len), .token = rf_bytes_of(key, len % 7)};
        put_tag("checkpoint");
        put_cursor(c);
        TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_checkpoint(c));
    }
}

static void the_initial_cursor_is_two_zero_bytes(void)
{
    rf_cursor initial = {0};
    put_tag("release");
    put_number(0, 2);
    TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_release(initial));
}

static void an_empty_token_hashes_as_an_absent_one(void)
{
    rf_cursor absent = rf_cursor_at("k"), empty = rf_cursor_with("k", "");
    TEST_ASSERT_EQUAL_HEX64(rf_hash_checkpoint(absent), rf_hash_checkpoint(empty));
}

static void an_empty_key_does_not_hash_as_an_absent_one(void)
{
    rf_cursor absent = {0}, empty = rf_cursor_at("");
    TEST_ASSERT_TRUE(rf_hash_release(absent) != rf_hash_release(empty));
}

static void key_and_token_can_not_trade_bytes(void)
{
    TEST_ASSERT_TRUE(rf_hash_checkpoint(rf_cursor_with("ab", "c")) !=
                     rf_hash_checkpoint(rf_cursor_with("a", "bc")));
}

static void park_and_unpark_hash_their_canonical_bytes(void)
{
    for (unsigned reason = 0; reason <= RF_PARK_OTHER; reason++) {
        put_tag("park");
        put_number(reason, 1);
        TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_park((rf_park_reason)reason));
    }
    put_tag("unpark_shard");
    put_number(0x0102030405060708u, 8);
    put_number(RF_DERIVED_BIT | 5, 8);
    TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_unpark(0x0102030405060708u, RF_DERIVED_BIT | 5));
}

static void run_operations_hash_their_name_alone(void)
{
    put_tag("complete_run");
    TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_run_op(RF_RUN_OP_COMPLETE));
    put_tag("fail_run");
    TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_run_op(RF_RUN_OP_FAIL));
    put_tag("cancel_run");
    TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_run_op(RF_RUN_OP_CANCEL));
}

static void split_plans_hash_their_parts_in_the_callers_order(void)
{
    rf_child children[3] = {rf_child_of("m", "z"), rf_child_of("a", "m"), rf_child_of("z", "")};
    children[1].spec.metadata = rf_text("meta");
    children[0].cursor = rf_cursor_with("n", "token");
    for (uint32_t count = 0; count <= 3; count++) {
        put_tag("split_replace");
        put_number(count, 4);
        for (uint32_t i = 0; i < count; i++) {
            put_spec(children[i].spec);
            put_cursor(children[i].cursor);
        }
        TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_split_replace(children, count));
    }
    rf_child swapped[3] = {children[1], children[0], children[2]};
    TEST_ASSERT_TRUE(rf_hash_split_replace(children, 3) != rf_hash_split_replace(swapped, 3));

    put_tag("split_residual");
    put_spec(children[1].spec);
    put_spec(children[0].spec);
    TEST_ASSERT_EQUAL_HEX64(canon_hash(),
                            rf_hash_split_residual(children[1].spec, children[0].spec));
}

static void a_registration_hashes_its_shards_sorted_by_id(void)
{
    rf_shard_input shards[3] = {rf_input_of(30, "m", "z"), rf_input_of(10, "a", "c"),
                                rf_input_of(20, "c", "m")};
    shards[1].cursor = rf_cursor_at("b");
    static const int sorted[3] = {1, 2, 0};
    for (int add = 0; add < 2; add++) {
        put_tag(add ? "add_shards" : "register_shards");
        put_number(3, 4);
        for (int i = 0; i < 3; i++) {
            put_number(shards[sorted[i]].shard, 8);
            put_spec(shards[sorted[i]].spec);
            put_cursor(shards[sorted[i]].cursor);
        }
        uint32_t order[6];
        TEST_ASSERT_EQUAL_HEX64(canon_hash(), add ? rf_hash_add(shards, 3, order)
                                                  : rf_hash_register(shards, 3, order));
    }
}

static void a_registration_hashes_the_same_in_any_order(void)
{
    enum { N = 100 };
    static rf_shard_input shards[N];
    static char bounds[N + 1][4];
    for (int i = 0; i <= N; i++) {
        snprintf(bounds[i], sizeof(bounds[i]), "%03d", i);
    }
    for (int i = 0; i < N; i++) {
        shards[i] = rf_input_of((uint64_t)i * 7919 % 1009, bounds[i], bounds[i + 1]);
    }
    uint32_t order[2 * N];
    uint64_t hash = rf_hash_register(shards, N, order);
    struct rf_prng prng = {.state = 5};
    for (int round = 0; round < 50; round++) {
        for (uint32_t i = N; i > 1; i--) {
            uint32_t j = rf_prng_below(&prng, i);
            rf_shard_input swap = shards[j];
            shards[j] = shards[i - 1];
            shards[i - 1] = swap;
        }
        TEST_ASSERT_EQUAL_HEX64(hash, rf_hash_register(shards, N, order));
    }
    shards[50].spec.metadata = rf_text("x");
    TEST_ASSERT_TRUE(hash != rf_hash_register(shards, N, order));
}

static void an_empty_registration_has_a_hash_and_needs_no_scratch(void)
{
    put_tag("register_shards");
    put_number(0, 4);
    TEST_ASSERT_EQUAL_HEX64(canon_hash(), rf_hash_register(NULL, 0, NULL));
}

/* The same body under every tag that takes one of its kind. */
static void no_two_operations_share_a_hash(void)
{
    rf_cursor cursor = rf_cursor_at("k"), initial = {0};
    rf_shard_input shard = rf_input_of(1, "a", "b");
    rf_child child = rf_child_of("a", "b");
    uint32_t order[2];
    uint64_t hashes[] = {
        rf_hash_checkpoint(cursor),
        rf_hash_complete(cursor),
        rf_hash_release(cursor),
        rf_hash_checkpoint(initial),
        rf_hash_complete(initial),
        rf_hash_release(initial),
        rf_hash_park(RF_PARK_PERMISSION_DENIED),
        rf_hash_park(RF_PARK_NOT_FOUND),
        rf_hash_unpark(1, 1),
        rf_hash_split_replace(&child, 1),
        rf_hash_split_residual(child.spec, child.spec),
        rf_hash_run_op(RF_RUN_OP_COMPLETE),
        rf_hash_run_op(RF_RUN_OP_FAIL),
        rf_hash_run_op(RF_RUN_OP_CANCEL),
        rf_hash_register(&shard, 1, order),
        rf_hash_add(&shard, 1, order),
    };
    for (size_t i = 0; i < sizeof(hashes) / sizeof(hashes[0]); i++) {
        for (size_t j = 0; j < i; j++) {
            TEST_ASSERT_TRUE(hashes[i] != hashes[j]);
        }
    }
}

static void one_hasher_serves_many_hashes(void)
{
    struct rf_hasher hasher;
    rf_hasher_init(&hasher);
    rf_cursor cursor = rf_cursor_with("key", "token");
    for (int i = 0; i < 3; i++) {
        TEST_ASSERT_EQUAL_HEX64(rf_hash_checkpoint(cursor), rf_hasher_checkpoint(&hasher, &cursor));
        TEST_ASSERT_EQUAL_HEX64(rf_split_id(1, 2, 3, RF_CHILD, 4),
                                rf_hasher_split_id(&hasher, 1, 2, 3, RF_CHILD, 4));
        TEST_ASSERT_EQUAL_HEX64(rf_hash_park(RF_PARK_OTHER),
                                rf_hasher_park(&hasher, RF_PARK_OTHER));
    }
}

static void a_tenant_is_made_from_its_name_and_from_nothing_else(void)
{
    rf_tenant a, again, b;
    rf_tenant_from_name("alpha", &a);
    rf_tenant_from_name("alpha", &again);
    rf_tenant_from_name("alphb", &b);
    TEST_ASSERT_EQUAL_MEMORY(&a, &again, sizeof(a));
    TEST_ASSERT_TRUE(memcmp(&a, &b, sizeof(a)) != 0);
    uint64_t first = rf_hash64("ringfence/tenant/v1", rf_text("alpha"));
    TEST_ASSERT_EQUAL_HEX64(first, rf_load_le64(a.bytes));
}

static void words_are_little_endian(void)
{
    uint8_t bytes[8];
    rf_store_le64(bytes, 0x0102030405060708u);
    TEST_ASSERT_EQUAL_MEMORY("\x08\x07\x06\x05\x04\x03\x02\x01", bytes, 8);
    TEST_ASSERT_EQUAL_HEX64(0x0102030405060708u, rf_load_le64(bytes));
    rf_store_le32(bytes, 0x01020304u);
    TEST_ASSERT_EQUAL_MEMORY("\x04\x03\x02\x01", bytes, 4);
    TEST_ASSERT_EQUAL_HEX32(0x01020304u, rf_load_le32(bytes));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_64_bit_form_matches_the_published_vector);
    RUN_TEST(split_ids_match_the_published_vectors);
    RUN_TEST(payload_hashes_match_the_published_vectors);
    RUN_TEST(split_ids_are_the_hash_of_their_29_byte_input_with_bit_63);
    RUN_TEST(each_part_of_a_split_id_changes_it);
    RUN_TEST(cursor_hashes_are_those_of_the_canonical_bytes_at_every_length);
    RUN_TEST(cursors_of_every_length_up_to_a_chunk_hash_as_their_canonical_bytes);
    RUN_TEST(the_initial_cursor_is_two_zero_bytes);
    RUN_TEST(an_empty_token_hashes_as_an_absent_one);
    RUN_TEST(an_empty_key_does_not_hash_as_an_absent_one);
    RUN_TEST(key_and_token_can_not_trade_bytes);
    RUN_TEST(park_and_unpark_hash_their_canonical_bytes);
    RUN_TEST(run_operations_hash_their_name_alone);
    RUN_TEST(split_plans_hash_their_parts_in_the_callers_order);
    RUN_TEST(a_registration_hashes_its_shards_sorted_by_id);
    RUN_TEST(a_registration_hashes_the_same_in_any_order);
    RUN_TEST(an_empty_registration_has_a_hash_and_needs_no_scratch);
    RUN_TEST(no_two_operations_share_a_hash);
    RUN_TEST(one_hasher_serves_many_hashes);
    RUN_TEST(a_tenant_is_made_from_its_name_and_from_nothing_else);
    RUN_TEST(words_are_little_endian);
    return UNITY_END();
}
