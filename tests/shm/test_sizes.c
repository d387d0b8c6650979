/* Bytes of all sizes in a region: kept in the record or in a block, growing and shrinking between
 * the two; lists of spawned shards up to their end; and no refusal that gives one of them away. */
#include <stdio.h>

#include "desk.h"
#include "handle.h"
#include "range.h"
#include "record.h"
#include "secret.h"
#include "shop.h"

#define RUN 7u

static const size_t sizes[] = {0,   1,    2,    7,    8,    9,     63,   64,  95,
                               96,  97,   126,  127,  128,  129,   255,  256, 257,
                               511, 4094, 4095, 4096, 8193, 16383, 16384};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static struct rf_shop shop;
static rf_store *a, *b;
static rf_tenant tenant;
static rf_result result;
static const rf_run_config config = {.lease_duration = 1000};
static uint8_t pattern[RF_TOKEN_MAX + 64];

void setUp(void)
{
    tenant = rf_tenant_of(1);
    memset(&result, 0, sizeof(result));
    for (size_t i = 0; i < sizeof(pattern); i++) {
        pattern[i] = (uint8_t)(i * 37 + (i >> 8) * 11 + 5);
    }
    rf_shop_found(&shop);
    a = rf_shop_enter(&shop, NULL);
    b = rf_shop_enter(&shop, NULL);
}

void tearDown(void)
{
    rf_close(a);
    rf_close(b);
    rf_shop_raze(&shop);
}

/* Bytes of this size that differ with `which`. */
static rf_bytes some(size_t size, size_t which)
{
    return rf_bytes_of(pattern + which % 61, size);
}

/* One shard over all keys that begin with a..y. */
static rf_lease one_wide_shard(void)
{
    const rf_shard_input wide = rf_input_of(1, "a", "z");
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, &wide, 1, 1, NULL));
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &tenant, RUN, 1, 5, RF_BOUND, &g, NULL));
    return g.lease;
}

static void expect_bytes(const char *what, rf_bytes expected, rf_bytes got)
{
    char message[96];
    snprintf(message, sizeof(message), "%s of %zu bytes, got %zu", what, expected.len, got.len);
    TEST_ASSERT_TRUE_MESSAGE(rf_bytes_equal(expected, got), message);
}

static void expect_cursor(const rf_cursor *cursor)
{
    rf_shard_info info = rf_shop_shard(b, &tenant, RUN, 1);
    expect_bytes("a key", cursor->key, info.cursor.key);
    expect_bytes("a token", cursor->token, info.cursor.token);
    TEST_ASSERT_EQUAL(cursor->token.len != 0, info.cursor.token.data != NULL);
    bool out = cursor->key.len + cursor->token.len > RF_CURSOR_INLINE;
    TEST_ASSERT_EQUAL_UINT64(out, rf_shop_inspect(b).blocks);
}

/* A key of this length that is above all of the rounds before. */
static rf_bytes rising_key(uint8_t *room, uint32_t round, size_t len)
{
    memset(room, 'm', RF_KEY_MAX);
    room[0] = (uint8_t)('b' + round / 128);
    room[1] = (uint8_t)(round % 128);
    return rf_bytes_of(room, len < 2 ? 2 : len);
}

static void cursors_of_all_sizes_follow_one_another(void)
{
    static uint8_t room[RF_KEY_MAX];
    rf_lease lease = one_wide_shard();
    uint64_t op = 100;
    uint32_t round = 0;
    for (size_t i = 0; i < SIZES; i++) {
        for (size_t j = 0; j < SIZES; j += 3, round++) {
            size_t key_len = sizes[j] > RF_KEY_MAX ? RF_KEY_MAX : sizes[j];
            const rf_cursor cursor = {.key = rising_key(room, round, key_len),
                                      .token = some(sizes[(i + round) % SIZES], round)};
            RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, &cursor, op, &result));
            expect_cursor(&cursor);
            RF_EXPECT(RF_OK, rf_checkpoint(b, shop.now, &tenant, &lease, &cursor, op, &result));
            TEST_ASSERT_EQUAL(RF_REPLAYED, result.outcome);
            op++;
        }
    }
    const rf_cursor last = {.key = rising_key(room, round, RF_KEY_MAX),
                            .token = some(RF_TOKEN_MAX, 1)};
    RF_EXPECT(RF_OK, rf_release(a, shop.now, &tenant, &lease, &last, op, NULL));
    expect_cursor(&last);
    rf_grant g = rf_shop_blank(1);
    RF_EXPECT(RF_OK, rf_claim(b, shop.now, &tenant, RUN, 0, RF_BOUND, 0, &g, NULL));
    expect_bytes("a granted key", last.key, g.cursor.key);
    expect_bytes("a granted token", last.token, g.cursor.token);
}

static void a_token_is_cleared_by_none_and_by_an_empty_one(void)
{
    rf_lease lease = one_wide_shard();
    const rf_bytes key = rf_text("b");
    const rf_cursor with = {.key = key, .token = some(300, 0)};
    const rf_cursor without = {.key = key};
    const rf_cursor empty = {.key = key, .token = rf_bytes_of("", 0)};
    for (uint64_t op = 10; op < 14; op += 2) {
        RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, &with, op, NULL));
        expect_cursor(&with);
        RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &lease, op == 10 ? &without : &empty,
                                       op + 1, NULL));
        expect_cursor(&without);
    }
}

static void sizes_beyond_the_limits_are_refused(void)
{
    rf_lease lease = one_wide_shard();
    static uint8_t room[RF_KEY_MAX + 8];
    memset(room, 'm', sizeof(room));
    const rf_cursor key = {.key = rf_bytes_of(room, RF_KEY_MAX + 1)};
    const rf_cursor token = {.key = rf_text("b"), .token = some(RF_TOKEN_MAX + 1, 0)};
    RF_EXPECT(RF_KEY_TOO_LARGE, rf_checkpoint(a, shop.now, &tenant, &lease, &key, 1, &result));
    RF_EXPECT(RF_TOKEN_TOO_LARGE, rf_checkpoint(a, shop.now, &tenant, &lease, &token, 1, &result));
    rf_shard_input input = rf_input_of(9, "a", "b");
    input.spec.metadata = some(RF_METADATA_MAX + 1, 0);
    RF_EXPECT(RF_METADATA_TOO_LARGE, rf_create_run_with_shards(a, shop.now, &tenant, RUN + 1,
                                                               &config, &input, 1, 1, &result));
    input = rf_input_of(9, "a", "b");
    input.cursor = (rf_cursor){.key = rf_text("a"), .token = some(RF_TOKEN_MAX + 1, 0)};
    RF_EXPECT(RF_TOKEN_TOO_LARGE, rf_create_run_with_shards(a, shop.now, &tenant, RUN + 1, &config,
                                                            &input, 1, 1, &result));
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(a).blocks);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(a).runs);
}

static void registered_shards_keep_ranges_and_metadata_of_all_sizes(void)
{
    static uint8_t starts[SIZES][RF_KEY_MAX], ends[SIZES][RF_KEY_MAX];
    rf_shard_input inputs[SIZES];
    uint64_t blocks = 0;
    for (size_t i = 0; i < SIZES; i++) {
        size_t key = sizes[i] > RF_KEY_MAX ? RF_KEY_MAX : sizes[i] < 2 ? 2 : sizes[i];
        memset(starts[i], 'q', RF_KEY_MAX);
        memset(ends[i], 'q', RF_KEY_MAX);
        starts[i][0] = ends[i][0] = (uint8_t)('a' + i % 26);
        starts[i][1] = (uint8_t)(2 * (i / 26) + 1);
        ends[i][1] = (uint8_t)(2 * (i / 26) + 2);
        inputs[i] = (rf_shard_input){
            .shard = i,
            .spec = {.start = rf_bytes_of(starts[i], key),
                     .end = rf_bytes_of(ends[i], i % 2 == 0 ? 2 : key),
                     .metadata = some(sizes[SIZES - 1 - i], i)},
            .cursor = {.key = rf_bytes_of(starts[i], key), .token = some(sizes[i], i)}};
        blocks += rf_spec_fits(&inputs[i].spec) ? 0u : 1u;
        blocks += rf_cursor_fits(&inputs[i].cursor) ? 0u : 1u;
    }
    RF_EXPECT(RF_OK, rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, inputs, SIZES, 1,
                                               NULL));
    for (size_t i = 0; i < SIZES; i++) {
        rf_shard_info info = rf_shop_shard(b, &tenant, RUN, i);
        expect_bytes("a start", inputs[i].spec.start, info.spec.start);
        expect_bytes("an end", inputs[i].spec.end, info.spec.end);
        expect_bytes("metadata", inputs[i].spec.metadata, info.spec.metadata);
        expect_bytes("a key", inputs[i].cursor.key, info.cursor.key);
        expect_bytes("a token", inputs[i].cursor.token, info.cursor.token);
    }
    TEST_ASSERT_EQUAL_UINT64(blocks, rf_shop_inspect(b).blocks);
    RF_EXPECT(RF_OK, rf_cancel_run(a, shop.now, &tenant, RUN, 2, NULL));
    RF_EXPECT(RF_OK, rf_purge_run(a, shop.now, &tenant, RUN, NULL));
    TEST_ASSERT_EQUAL_UINT64(0, rf_shop_inspect(b).blocks);
}

/* A parent's range moves into a block and back as the cuts of residual splits are long or short. */
static void ranges_grow_and_shrink_with_residual_splits(void)
{
    static uint8_t cuts[2][RF_KEY_MAX];
    rf_lease lease = one_wide_shard();
    rf_spec range = rf_spec_of("a", "z");
    for (uint32_t i = 0; i < SIZES; i++) {
        uint8_t *cut = cuts[i % 2];
        size_t len = sizes[(i * 7) % SIZES];
        len = len > RF_KEY_MAX ? RF_KEY_MAX : len == 0 ? 1 : len;
        memset(cut, 'f', RF_KEY_MAX);
        cut[0] = (uint8_t)('z' - 1 - i % 24);
        if (i >= 24) {
            break;
        }
        rf_spec left = {
            .start = range.start, .end = rf_bytes_of(cut, len), .metadata = some(sizes[i], i)};
        rf_spec right = {.start = left.end, .end = range.end, .metadata = some(sizes[i], i + 1)};
        uint64_t id;
        RF_EXPECT(RF_OK, rf_split_residual(a, shop.now, &tenant, &lease, &left, &right, 100 + i,
                                           &id, &result));
        rf_shard_info info = rf_shop_shard(b, &tenant, RUN, 1);
        expect_bytes("the parent's end", left.end, info.spec.end);
        expect_bytes("the parent's metadata", left.metadata, info.spec.metadata);
        info = rf_shop_shard(b, &tenant, RUN, id);
        expect_bytes("the residual's start", right.start, info.spec.start);
        expect_bytes("the residual's end", right.end, info.spec.end);
        expect_bytes("the residual's metadata", right.metadata, info.spec.metadata);
        range = left;
    }
}

/* --- lists of spawned shards --- */

static void a_shard_spawns_1024_and_no_more(void)
{
    rf_lease lease = one_wide_shard();
    uint64_t ids[RF_SPAWNED_MAX + 1];
    char cut[16], end[16] = "z";
    const uint64_t looks[] = {1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1023, 1024};
    for (uint32_t i = 0, look = 0; i < RF_SPAWNED_MAX; i++) {
        snprintf(cut, sizeof(cut), "m%06u", 999999 - i);
        const rf_spec left = rf_spec_of("a", cut), right = rf_spec_of(cut, end);
        RF_EXPECT(RF_OK, rf_split_residual(a, shop.now, &tenant, &lease, &left, &right, 1000 + i,
                                           &ids[i], NULL));
        TEST_ASSERT_EQUAL_HEX64(rf_split_id(RUN, 1, 1000 + i, RF_RESIDUAL, i), ids[i]);
        memcpy(end, cut, sizeof(cut));
        if (i + 1 == looks[look]) {
            rf_shard_info info = rf_shop_shard(b, &tenant, RUN, 1);
            TEST_ASSERT_EQUAL_UINT32(i + 1, info.spawned_count);
            TEST_ASSERT_EQUAL_MEMORY(ids, info.spawned, (i + 1) * 8u);
            TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(b).blocks);
            look++;
        }
    }
    const rf_spec left = rf_spec_of("a", "b"), right = rf_spec_of("b", end);
    RF_EXPECT(RF_SPAWNED_LIMIT,
              rf_split_residual(a, shop.now, &tenant, &lease, &left, &right, 5, &ids[0], &result));
    const rf_child parts[2] = {{.spec = left}, {.spec = right}};
    RF_EXPECT(RF_SPAWNED_LIMIT,
              rf_split_replace(a, shop.now, &tenant, &lease, parts, 2, 6, ids, &result));
    TEST_ASSERT_EQUAL_UINT64(1025, rf_shop_run(b, &tenant, RUN).shard_count);
    rf_grant g = rf_shop_blank(1);
    RF_EXPECT(RF_OK, rf_release(a, shop.now, &tenant, &lease, NULL, 7, NULL));
    RF_EXPECT(RF_OK, rf_acquire(b, shop.now, &tenant, RUN, 1, 6, RF_BOUND, &g, NULL));
    TEST_ASSERT_EQUAL_UINT32(RF_SPAWNED_MAX, g.spawned_count);
}

static void a_split_makes_2_to_256_children(void)
{
    static char cuts[RF_SPLIT_CHILDREN_MAX + 2][8];
    static rf_child parts[RF_SPLIT_CHILDREN_MAX + 1];
    static uint64_t ids[RF_SPLIT_CHILDREN_MAX + 1];
    const uint32_t counts[] = {0, 1, 257, 256};
    rf_lease lease = one_wide_shard();
    for (unsigned c = 0; c < 4; c++) {
        uint32_t n = counts[c];
        for (uint32_t i = 0; i <= n; i++) {
            snprintf(cuts[i], sizeof(cuts[0]), i == 0 ? "a" : i == n ? "z" : "m%05u", i);
        }
        for (uint32_t i = 0; i < n; i++) {
            parts[n - 1 - i] = rf_child_of(cuts[i], cuts[i + 1]);
        }
        RF_EXPECT(n == 256 ? RF_OK : RF_SPLIT_COUNT,
                  rf_split_replace(a, shop.now, &tenant, &lease, parts, n, 10 + n, ids, &result));
    }
    rf_shard_info parent = rf_shop_shard(b, &tenant, RUN, 1);
    TEST_ASSERT_EQUAL_UINT32(256, parent.spawned_count);
    TEST_ASSERT_EQUAL_MEMORY(ids, parent.spawned, 256 * 8u);
    for (uint32_t i = 0; i < 256; i++) {
        rf_shard_info child = rf_shop_shard(b, &tenant, RUN, ids[i]);
        expect_bytes("a child's start", rf_text(cuts[i]), child.spec.start);
        TEST_ASSERT_EQUAL_UINT64(1, child.parent);
    }
    TEST_ASSERT_EQUAL_UINT64(256, rf_shop_capacity(b, &tenant, RUN).available);
    TEST_ASSERT_EQUAL_UINT64(5, rf_shop_inspect(b).extents); /* 257 shards */
}

static void reopen_with(const rf_options *options)
{
    rf_close(a);
    rf_close(b);
    rf_shop_raze(&shop);
    rf_shop_found(&shop);
    a = rf_shop_enter(&shop, options);
    b = rf_shop_enter(&shop, options);
}

/* Room for two large shards. A third one takes the others with it, as often as one
 * tries: blocks, extents and places in the index come back. */
static void a_registration_that_runs_out_of_room_leaves_nothing(void)
{
    const rf_options tight = {
        .max_shards = 64, .max_bytes = 2 * 65536, .max_runs = 4, .max_members = 4};
    reopen_with(&tight);
    rf_shard_input six[6];
    char keys[7][4] = {"a", "b", "c", "d", "e", "f", "g"};
    for (uint32_t i = 0; i < 6; i++) {
        six[i] = rf_input_of(i, keys[i], keys[i + 1]);
        six[i].spec.metadata = some(RF_METADATA_MAX, i);
        six[i].cursor = (rf_cursor){.key = six[i].spec.start, .token = some(97, i)};
    }
    RF_EXPECT(RF_OK, rf_create_run(a, shop.now, &tenant, RUN + 1, &config, NULL));
    for (unsigned i = 0; i < 200; i++) {
        RF_EXPECT(RF_RESOURCE_EXHAUSTED, rf_create_run_with_shards(a, shop.now, &tenant, RUN,
                                                                   &config, six, 6, 1, &result));
        RF_EXPECT(RF_RESOURCE_EXHAUSTED,
                  rf_register_shards(b, shop.now, &tenant, RUN + 1, six, 6, 1, &result));
        rf_inspection seen = rf_shop_inspect(b);
        TEST_ASSERT_EQUAL_UINT64(0, seen.blocks);
        TEST_ASSERT_EQUAL_UINT64(0, seen.extents);
        TEST_ASSERT_EQUAL_UINT64(0, seen.shards);
        TEST_ASSERT_EQUAL_UINT64(1, seen.runs);
    }
    RF_EXPECT(RF_OK, rf_register_shards(b, shop.now, &tenant, RUN + 1, six, 2, 1, &result));
    rf_lease lease;
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_claim(a, shop.now, &tenant, RUN + 1, 0, RF_BOUND, 0, &g, NULL));
    lease = g.lease;
    rf_child parts[3] = {rf_child_of("a", "a1"), rf_child_of("a1", "a2"), rf_child_of("a2", "b")};
    uint64_t ids[3];
    for (unsigned i = 0; i < 200; i++) {
        for (unsigned k = 0; k < 3; k++) {
            parts[k].spec.metadata = some(RF_METADATA_MAX, k);
        }
        RF_EXPECT(RF_RESOURCE_EXHAUSTED,
                  rf_split_replace(a, shop.now, &tenant, &lease, parts, 3, 2, ids, &result));
        TEST_ASSERT_EQUAL_UINT64(4, rf_shop_inspect(b).blocks);
        TEST_ASSERT_EQUAL_UINT64(2, rf_shop_inspect(b).shards);
    }
    parts[0].spec.metadata = parts[1].spec.metadata = parts[2].spec.metadata = rf_bytes_none();
    RF_EXPECT(RF_OK, rf_split_replace(a, shop.now, &tenant, &lease, parts, 3, 2, ids, &result));
}

/* --- secrecy --- */

static void expect_secret(rf_status expected, rf_status got)
{
    RF_EXPECT(expected, got);
    const char *leak = rf_secret_leak(got, &result.detail, NULL, 0);
    TEST_ASSERT_NULL_MESSAGE(leak, leak);
    char text[512];
    size_t len = rf_explain(got, &result.detail, text, sizeof(text));
    TEST_ASSERT_TRUE_MESSAGE(len > 10 && len < sizeof(text), text);
}

static void no_refusal_gives_a_key_a_token_metadata_or_an_owner_away(void)
{
    tenant = rf_secret_tenant();
    const rf_tenant other = rf_secret_other_tenant();
    rf_shard_input input = {.shard = 1,
                            .spec = {.start = rf_secret_key('b'),
                                     .end = rf_secret_key('y'),
                                     .metadata = rf_secret_metadata(700)}};
    uint64_t ids[2];
    uint8_t little[8];
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, &input, 1, 1, NULL));
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &tenant, RUN, 1, RF_SECRET_OWNER, 0, &g, NULL));
    rf_lease stale = g.lease;
    stale.worker = 1;
    rf_cursor cursor = {.key = rf_secret_key('f'), .token = rf_secret_token(900)};
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &g.lease, &cursor, 2, NULL));
    rf_grant small = {.scratch = little, .scratch_size = sizeof(little)};
    const rf_cursor back = {.key = rf_secret_key('c')}, out = {.key = rf_secret_key('z')};
    const rf_cursor big = {.key = rf_secret_long_key('g', RF_KEY_MAX + 1)};
    const rf_cursor heavy = {.key = rf_secret_key('g'), .token = rf_secret_token(RF_TOKEN_MAX + 1)};
    const rf_spec left = {.start = input.spec.start, .end = rf_secret_key('m')};
    const rf_spec right = {.start = rf_secret_key('n'), .end = input.spec.end};
    const rf_child gap[2] = {{.spec = left}, {.spec = right}};
    rf_shard_input twice[2] = {input, input};
    const uint64_t now = shop.now;
    expect_secret(RF_CURSOR_REGRESSION,
                  rf_checkpoint(a, now, &tenant, &g.lease, &back, 3, &result));
    expect_secret(RF_CURSOR_OUT_OF_BOUNDS,
                  rf_checkpoint(a, now, &tenant, &g.lease, &out, 3, &result));
    expect_secret(RF_KEY_TOO_LARGE, rf_complete(a, now, &tenant, &g.lease, &big, 3, &result));
    expect_secret(RF_TOKEN_TOO_LARGE, rf_release(a, now, &tenant, &g.lease, &heavy, 3, &result));
    expect_secret(RF_OP_ID_CONFLICT, rf_checkpoint(a, now, &tenant, &g.lease, &back, 2, &result));
    expect_secret(RF_STALE_FENCE, rf_checkpoint(a, now, &tenant, &stale, &cursor, 4, &result));
    expect_secret(RF_STALE_FENCE, rf_renew(a, now, &tenant, &stale, &result));
    expect_secret(RF_LEASE_EXPIRED, rf_renew(a, now + 5000, &tenant, &g.lease, &result));
    expect_secret(RF_NOT_FOUND, rf_renew(a, now, &other, &g.lease, &result));
    expect_secret(RF_ALREADY_LEASED, rf_acquire(b, now, &tenant, RUN, 1, 2, 0, &small, &result));
    expect_secret(RF_NONE_AVAILABLE, rf_claim(b, now, &tenant, RUN, 2, 0, 0, &small, &result));
    expect_secret(RF_BUFFER_TOO_SMALL,
                  rf_claim(b, now + 5000, &tenant, RUN, 2, 0, 0, &small, &result));
    expect_secret(RF_SPLIT_COVERAGE,
                  rf_split_replace(a, now, &tenant, &g.lease, gap, 2, 5, ids, &result));
    expect_secret(RF_SPLIT_COVERAGE,
                  rf_split_residual(a, now, &tenant, &g.lease, &left, &right, 5, ids, &result));
    expect_secret(RF_DUPLICATE_SHARD, rf_add_shards(a, now, &tenant, RUN, twice, 2, 6, &result));
    twice[0].shard = 8;
    expect_secret(RF_OVERLAPPING_RANGES, rf_add_shards(a, now, &tenant, RUN, twice, 1, 6, &result));
    twice[0].spec.metadata = rf_secret_metadata(RF_METADATA_MAX + 1);
    expect_secret(RF_METADATA_TOO_LARGE, rf_add_shards(a, now, &tenant, RUN, twice, 1, 6, &result));
    expect_secret(RF_NOT_PARKED, rf_unpark(a, now, &tenant, RUN, 1, 7, &result));
    expect_secret(RF_RUN_NOT_FOUND, rf_cancel_run(a, now, &other, RUN, 7, &result));
}

/* Not only of the protocol: a record that is damaged, a store whose room is used up. */
static void no_error_of_the_machine_gives_a_key_away(void)
{
    const rf_options tight = {
        .max_shards = 64, .max_bytes = 65536, .max_runs = 4, .max_members = 4};
    reopen_with(&tight);
    tenant = rf_secret_tenant();
    const rf_shard_input input = {.shard = 1,
                                  .spec = {.start = rf_secret_key('b'), .end = rf_secret_key('y')}};
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK,
              rf_create_run_with_shards(a, shop.now, &tenant, RUN, &config, &input, 1, 1, NULL));
    RF_EXPECT(RF_OK, rf_acquire(a, shop.now, &tenant, RUN, 1, RF_SECRET_OWNER, 0, &g, NULL));
    const rf_cursor small = {.key = rf_secret_key('f'), .token = rf_secret_token(200)};
    const rf_cursor large = {.key = rf_secret_key('f'), .token = rf_secret_token(900)};
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &g.lease, &small, 2, &result));
    expect_secret(RF_RESOURCE_EXHAUSTED,
                  rf_checkpoint(a, shop.now, &tenant, &g.lease, &large, 3, &result));
    rf_shop_expect_words(RF_RESOURCE_EXHAUSTED, &result.detail, "block of|bytes|purge");
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &g.lease, &small, 4, &result));
    struct rf_handle *h = rf_handle_of(a);
    struct rf_rec *rec = rf_rec_at(h->map, (uint32_t)g.lease.slot_hint - 1);
    uint16_t good = rec->body.key_len;
    rec->body.key_len = 60000;
    expect_secret(RF_CORRUPT, rf_checkpoint(a, shop.now, &tenant, &g.lease, &small, 5, &result));
    rf_shop_expect_words(RF_CORRUPT, &result.detail, "damaged|record|run slot");
    rf_shard_info info;
    uint8_t room[64];
    expect_secret(RF_CORRUPT,
                  rf_get_shard(b, &tenant, RUN, 1, &info, room, sizeof(room), &result.detail));
    rec->body.key_len = good;
    RF_EXPECT(RF_OK, rf_checkpoint(a, shop.now, &tenant, &g.lease, &small, 5, &result));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(cursors_of_all_sizes_follow_one_another);
    RUN_TEST(a_token_is_cleared_by_none_and_by_an_empty_one);
    RUN_TEST(sizes_beyond_the_limits_are_refused);
    RUN_TEST(registered_shards_keep_ranges_and_metadata_of_all_sizes);
    RUN_TEST(ranges_grow_and_shrink_with_residual_splits);
    RUN_TEST(a_shard_spawns_1024_and_no_more);
    RUN_TEST(a_split_makes_2_to_256_children);
    RUN_TEST(a_registration_that_runs_out_of_room_leaves_nothing);
    RUN_TEST(no_refusal_gives_a_key_a_token_metadata_or_an_owner_away);
    RUN_TEST(no_error_of_the_machine_gives_a_key_away);
    return UNITY_END();
}
