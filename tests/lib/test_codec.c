/* Records as bytes: what goes in comes out, in one form only, and nothing else gets in. */
#include <stdlib.h>

#include "guarded.h"
#include "records.h"
#include "unity.h"

#define ROUNDS 400u

static const enum rf_codec_type types[] = {RF_CODEC_SHARD, RF_CODEC_RUN, RF_CODEC_STEP,
                                           RF_CODEC_MADE};
static const size_t type_max[] = {RF_CODEC_SHARD_MAX, RF_CODEC_RUN_MAX, RF_CODEC_STEP_MAX,
                                  RF_CODEC_MADE_MAX};
#define TYPES (sizeof(types) / sizeof(types[0]))

/* Large, and used by one test at a time. */
static struct records_shard shard;
static struct records_step step;
static struct records_made made;
static struct rf_run run;
static struct rf_shard_decoded shard_back;
static struct rf_step_record step_back;
static struct rf_made_record made_back;
static struct rf_run run_back;
static uint8_t record[RF_CODEC_SHARD_MAX], again[RF_CODEC_SHARD_MAX];
static struct guarded guarded;

void setUp(void)
{
    guarded = guarded_make(RF_CODEC_SHARD_MAX);
}

void tearDown(void)
{
    guarded_free(&guarded);
}

/* --- making and comparing --- */

static size_t encode_shard(void)
{
    size_t len = 0;
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_put_shard(&shard.view, record, sizeof(record), &len));
    return len;
}

static size_t encode_run(void)
{
    size_t len = 0;
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_put_run(&run, record, sizeof(record), &len));
    return len;
}

static size_t encode_step(void)
{
    size_t len = 0;
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_put_step(step.shard, step.version, step.time, &step.step,
                                               record, sizeof(record), &len));
    return len;
}

static size_t encode_made(void)
{
    size_t len = 0;
    TEST_ASSERT_EQUAL(RF_OK, rf_codec_put_made(&made.made, record, sizeof(record), &len));
    return len;
}

/* A random record of this type, its bytes in `record`. */
static size_t encode_random(struct rf_prng *prng, enum records_size size, enum rf_codec_type type)
{
    switch (type) {
    case RF_CODEC_SHARD:
        records_make_shard(prng, size, &shard);
        return encode_shard();
    case RF_CODEC_RUN:
        records_make_run(prng, &run);
        return encode_run();
    case RF_CODEC_STEP:
        records_make_step(prng, size, &step);
        return encode_step();
    case RF_CODEC_MADE:
        records_make_made(prng, size, &made);
        return encode_made();
    }
    return 0;
}

static size_t encode_largest(enum rf_codec_type type)
{
    switch (type) {
    case RF_CODEC_SHARD:
        records_make_largest_shard(&shard);
        return encode_shard();
    case RF_CODEC_RUN:
        records_make_largest_run(&run);
        return encode_run();
    case RF_CODEC_STEP:
        records_make_largest_step(&step);
        return encode_step();
    case RF_CODEC_MADE:
        records_make_largest_made(&made);
        return encode_made();
    }
    return 0;
}

/* What was made, encoded into this buffer. */
static rf_status encode_into(enum rf_codec_type type, uint8_t *out, size_t cap, size_t *len)
{
    switch (type) {
    case RF_CODEC_SHARD:
        return rf_codec_put_shard(&shard.view, out, cap, len);
    case RF_CODEC_RUN:
        return rf_codec_put_run(&run, out, cap, len);
    case RF_CODEC_STEP:
        return rf_codec_put_step(step.shard, step.version, step.time, &step.step, out, cap, len);
    case RF_CODEC_MADE:
        return rf_codec_put_made(&made.made, out, cap, len);
    }
    return RF_INVALID_ARGUMENT;
}

/* Decoded from memory that ends where the record ends. */
static rf_status decode_guarded(enum rf_codec_type type, size_t len)
{
    rf_bytes in = rf_bytes_of(guarded_copy(&guarded, record, len), len);
    size_t used = 0;
    switch (type) {
    case RF_CODEC_SHARD:
        return rf_codec_get_shard(in, &shard_back, &used);
    case RF_CODEC_RUN:
        return rf_codec_get_run(in, &run_back, &used);
    case RF_CODEC_STEP:
        return rf_codec_get_step(in, &step_back, &used);
    case RF_CODEC_MADE:
        return rf_codec_get_made(in, &made_back, &used);
    }
    return RF_INVALID_ARGUMENT;
}

static void set_body_len(size_t len)
{
    rf_store_le32(record + 4, (uint32_t)(len - RF_CODEC_HEADER));
}

/* A record that is not refused is canonical: it comes out of the encoder as it went in. Returns
 * whether it was accepted. */
static bool refused_or_canonical(enum rf_codec_type type, const uint8_t *bytes, size_t len)
{
    rf_bytes in = rf_bytes_of(guarded_copy(&guarded, bytes, len), len);
    size_t used = 0, again_len = 0;
    rf_status status = records_recode(type, in, again, sizeof(again), &again_len, &used);
    if (status == RF_OK) {
        TEST_ASSERT_EQUAL_size_t(used, again_len);
        TEST_ASSERT_TRUE(used <= len);
        TEST_ASSERT_EQUAL_MEMORY(bytes, again, used);
        return true;
    }
    TEST_ASSERT_TRUE(status == RF_CORRUPT || status == RF_VERSION_MISMATCH);
    return false;
}

static void assert_accepted(enum rf_codec_type type, size_t len)
{
    TEST_ASSERT_TRUE(refused_or_canonical(type, record, len));
}

static bool same_optional(rf_bytes a, rf_bytes b)
{
    return (a.data == NULL) == (b.data == NULL) && rf_bytes_equal(a, b);
}

static void assert_same_cursor(const rf_cursor *a, const rf_cursor *b)
{
    TEST_ASSERT_TRUE(same_optional(a->key, b->key));
    TEST_ASSERT_TRUE(same_optional(a->token, b->token));
}

static void assert_same_spec(const rf_spec *a, const rf_spec *b)
{
    TEST_ASSERT_TRUE(rf_bytes_equal(a->start, b->start));
    TEST_ASSERT_TRUE(rf_bytes_equal(a->end, b->end));
    TEST_ASSERT_TRUE(rf_bytes_equal(a->metadata, b->metadata));
}

static void assert_same_entry(const struct rf_op_entry *a, const struct rf_op_entry *b)
{
    TEST_ASSERT_EQUAL_UINT64(a->op, b->op);
    TEST_ASSERT_EQUAL_UINT64(a->hash, b->hash);
    TEST_ASSERT_EQUAL_UINT64(a->executed_at, b->executed_at);
    TEST_ASSERT_EQUAL_UINT8(a->kind, b->kind);
    TEST_ASSERT_EQUAL_UINT8(a->result, b->result);
}

static void assert_shard_came_back(void)
{
    const struct rf_shard *a = &shard.view, *b = &shard_back.view;
    TEST_ASSERT_EQUAL_MEMORY(a->tenant, b->tenant, sizeof(*a->tenant));
    TEST_ASSERT_EQUAL_UINT64(a->run, b->run);
    TEST_ASSERT_EQUAL_UINT64(a->shard, b->shard);
    TEST_ASSERT_EQUAL_MEMORY(a->state, b->state, sizeof(*a->state));
    TEST_ASSERT_EQUAL_MEMORY(a->ring, b->ring, sizeof(*a->ring));
    for (uint32_t i = 0; i < a->state->spawned_count; i++) {
        TEST_ASSERT_EQUAL_UINT64(a->spawned[i], b->spawned[i]);
    }
    assert_same_spec(&a->spec, &b->spec);
    assert_same_cursor(&a->cursor, &b->cursor);
}

static void assert_run_came_back(void)
{
    TEST_ASSERT_EQUAL_MEMORY(&run.tenant, &run_back.tenant, sizeof(run.tenant));
    TEST_ASSERT_EQUAL_UINT64(run.run, run_back.run);
    TEST_ASSERT_TRUE(rf_run_config_equal(&run.config, &run_back.config));
    TEST_ASSERT_EQUAL(run.status, run_back.status);
    TEST_ASSERT_EQUAL_UINT64(run.created_at, run_back.created_at);
    TEST_ASSERT_EQUAL_UINT64(run.completed_at, run_back.completed_at);
    TEST_ASSERT_EQUAL_UINT64(run.root_count, run_back.root_count);
    TEST_ASSERT_EQUAL_UINT32(run.ring_count, run_back.ring_count);
    TEST_ASSERT_EQUAL_UINT32(run.ring_count % RF_RUN_RING, run_back.ring_next);
    for (uint32_t i = 0; i < run.ring_count; i++) {
        uint32_t at = (run.ring_next + RF_RUN_RING - run.ring_count + i) % RF_RUN_RING;
        TEST_ASSERT_EQUAL_UINT64(run.ring.op[at], run_back.ring.op[i]);
        TEST_ASSERT_EQUAL_UINT64(run.ring.hash[at], run_back.ring.hash[i]);
        TEST_ASSERT_EQUAL_UINT64(run.ring.executed_at[at], run_back.ring.executed_at[i]);
        TEST_ASSERT_EQUAL_UINT8(run.ring.kind[at], run_back.ring.kind[i]);
        TEST_ASSERT_EQUAL_UINT8(run.ring.result[at], run_back.ring.result[i]);
    }
}

static void assert_step_came_back(void)
{
    const struct rf_shard_step *a = &step.step, *b = &step_back.step;
    TEST_ASSERT_EQUAL_UINT64(step.shard, step_back.shard);
    TEST_ASSERT_EQUAL_UINT64(step.version, step_back.version);
    TEST_ASSERT_EQUAL_UINT64(step.time, step_back.time);
    TEST_ASSERT_EQUAL(RF_EXECUTED, b->outcome);
    TEST_ASSERT_EQUAL(a->event, b->event);
    TEST_ASSERT_EQUAL_UINT32(a->changes, b->changes);
    TEST_ASSERT_EQUAL_MEMORY(&a->next, &b->next, sizeof(a->next));
    assert_same_cursor(&a->cursor, &b->cursor);
    assert_same_spec(&a->spec, &b->spec);
    assert_same_entry(&a->entry, &b->entry);
    TEST_ASSERT_EQUAL_UINT32(a->ring_slot, b->ring_slot);
    TEST_ASSERT_EQUAL_UINT32(a->spawned_new, b->spawned_new);
    for (uint32_t i = 0; i < a->spawned_new; i++) {
        TEST_ASSERT_EQUAL_UINT64(a->spawned_ids[i], b->spawned_ids[i]);
    }
}

static void assert_made_came_back(void)
{
    TEST_ASSERT_EQUAL_UINT64(made.made.shard, made_back.shard);
    assert_same_spec(&made.made.spec, &made_back.spec);
    assert_same_cursor(&made.made.cursor, &made_back.cursor);
}

static void assert_comes_back(enum rf_codec_type type, size_t len)
{
    TEST_ASSERT_EQUAL(RF_OK, decode_guarded(type, len));
    switch (type) {
    case RF_CODEC_SHARD:
        assert_shard_came_back();
        break;
    case RF_CODEC_RUN:
        assert_run_came_back();
        break;
    case RF_CODEC_STEP:
        assert_step_came_back();
        break;
    case RF_CODEC_MADE:
        assert_made_came_back();
        break;
    }
    assert_accepted(type, len);
}

/* --- what is valid --- */

static void any_valid_record_comes_back_as_it_was(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        for (uint64_t seed = 0; seed < ROUNDS; seed++) {
            struct rf_prng prng = {seed};
            enum records_size size = seed % 4 == 0 ? RECORDS_ANY : RECORDS_SMALL;
            size_t len = encode_random(&prng, size, types[t]);
            assert_comes_back(types[t], len);
        }
    }
}

static void the_largest_records_fit_into_their_maximum(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_largest(types[t]);
        TEST_ASSERT_TRUE(len <= type_max[t]);
        assert_comes_back(types[t], len);
        TEST_ASSERT_EQUAL(
            RF_OK, encode_into(types[t], guarded_tail(&guarded, type_max[t]), type_max[t], &len));
    }
}

static void the_smallest_records_come_back(void)
{
    memset(&shard, 0, sizeof(shard));
    shard.state = rf_shard_new_root(RF_COMPLETED);
    shard.view = (struct rf_shard){.tenant = &shard.tenant,
                                   .state = &shard.state,
                                   .ring = &shard.ring,
                                   .spawned = shard.spawned};
    assert_comes_back(RF_CODEC_SHARD, encode_shard());

    memset(&run, 0, sizeof(run));
    run.config.lease_duration = 1;
    assert_comes_back(RF_CODEC_RUN, encode_run());

    memset(&step, 0, sizeof(step));
    step.step.next = shard.state;
    assert_comes_back(RF_CODEC_STEP, encode_step());

    memset(&made, 0, sizeof(made));
    assert_comes_back(RF_CODEC_MADE, encode_made());
}

static void a_present_but_empty_key_is_not_an_absent_one(void)
{
    memset(&made, 0, sizeof(made));
    made.made.cursor.key = rf_bytes_of("", 0);
    size_t present = encode_made();
    assert_comes_back(RF_CODEC_MADE, present);
    TEST_ASSERT_NOT_NULL(made_back.cursor.key.data);
    made.made.cursor.key = rf_bytes_none();
    TEST_ASSERT_EQUAL_size_t(present - 4, encode_made());
}

static void equal_values_have_equal_bytes(void)
{
    /* An empty token is an absent one. */
    memset(&made, 0, sizeof(made));
    made.made.cursor.key = rf_bytes_of("k", 1);
    size_t len = encode_made();
    memcpy(again, record, len);
    made.made.cursor.token = rf_bytes_of("", 0);
    TEST_ASSERT_EQUAL_size_t(len, encode_made());
    TEST_ASSERT_EQUAL_MEMORY(again, record, len);

    /* Unset retries are not looked at, nor are the owner and deadline of no lease. */
    memset(&run, 0, sizeof(run));
    run.config.lease_duration = 1;
    len = encode_run();
    memcpy(again, record, len);
    run.config.max_retries = 7;
    TEST_ASSERT_EQUAL_size_t(len, encode_run());
    TEST_ASSERT_EQUAL_MEMORY(again, record, len);
    assert_accepted(RF_CODEC_RUN, len);

    struct rf_prng prng = {1};
    do {
        records_make_shard(&prng, RECORDS_SMALL, &shard);
    } while (shard.state.flags != 0);
    len = encode_shard();
    memcpy(again, record, len);
    shard.state.owner = shard.state.deadline = shard.state.parent = 9;
    TEST_ASSERT_EQUAL_size_t(len, encode_shard());
    TEST_ASSERT_EQUAL_MEMORY(again, record, len);
}

static void every_status_lease_and_parent_comes_back(void)
{
    struct rf_prng prng = {3};
    for (uint8_t status = RF_SHARD_ACTIVE; status <= RF_SHARD_PARKED; status++) {
        for (uint8_t reason = 0; reason <= RF_PARK_OTHER; reason++) {
            for (uint8_t flags = 0; flags < 4; flags++) {
                if (status != RF_SHARD_ACTIVE && (flags & RF_SHARD_LEASED) != 0) {
                    continue;
                }
                records_make_shard(&prng, RECORDS_SMALL, &shard);
                shard.state.status = status;
                shard.state.park_reason = status == RF_SHARD_PARKED ? reason : RF_NO_REASON;
                shard.state.flags = flags;
                shard.state.owner = (flags & RF_SHARD_LEASED) != 0 ? UINT64_MAX : 0;
                shard.state.deadline = (flags & RF_SHARD_LEASED) != 0 ? 1 : 0;
                shard.state.parent = (flags & RF_SHARD_HAS_PARENT) != 0 ? 77 : 0;
                shard.view.shard = (flags & RF_SHARD_HAS_PARENT) != 0 ? RF_DERIVED_BIT | 5 : 5;
                shard.state.spawned_count = status == RF_SHARD_SPLIT ? 2 : 0;
                shard.spawned[0] = shard.spawned[1] = UINT64_MAX;
                assert_comes_back(RF_CODEC_SHARD, encode_shard());
            }
        }
    }
}

static void a_ring_comes_back_at_every_length_and_rotation(void)
{
    struct rf_prng prng = {4};
    records_make_largest_shard(&shard);
    shard.view.spec = (rf_spec){0};
    shard.view.cursor = (rf_cursor){0};
    shard.state.spawned_count = 0;
    for (uint8_t count = 0; count < RF_SHARD_RING; count++) {
        shard.state.ring_count = shard.state.ring_next = count;
        struct rf_shard_ring full = shard.ring;
        memset(&shard.ring.op[count], 0, (RF_SHARD_RING - count) * sizeof(uint64_t));
        memset(&shard.ring.hash[count], 0, (RF_SHARD_RING - count) * sizeof(uint64_t));
        memset(&shard.ring.executed_at[count], 0, (RF_SHARD_RING - count) * sizeof(uint64_t));
        memset(&shard.ring.kind[count], 0, RF_SHARD_RING - count);
        memset(&shard.ring.result[count], 0, RF_SHARD_RING - count);
        assert_comes_back(RF_CODEC_SHARD, encode_shard());
        shard.ring = full;
    }
    shard.state.ring_count = RF_SHARD_RING;
    for (uint8_t next = 0; next < RF_SHARD_RING; next++) {
        shard.state.ring_next = next;
        assert_comes_back(RF_CODEC_SHARD, encode_shard());
    }
    for (uint32_t next = 0; next < RF_RUN_RING; next++) {
        do {
            records_make_run(&prng, &run);
        } while (run.ring_count != RF_RUN_RING);
        run.ring_next = next;
        assert_comes_back(RF_CODEC_RUN, encode_run());
    }
}

/* A snapshot taken at any rotation of the ring, and then a step from the log behind it: the step's
 * slot is the oldest entry's, or the ring would forget the wrong operation. */
static void a_step_of_the_log_fits_a_record_of_a_snapshot(void)
{
    records_make_largest_shard(&shard);
    shard.state.deadline = 100;
    for (uint8_t next = 0; next < RF_SHARD_RING; next++) {
        shard.state.ring_next = next;
        uint64_t oldest = shard.ring.op[next];
        assert_comes_back(RF_CODEC_SHARD, encode_shard());

        rf_lease lease = {.run = shard.view.run,
                          .shard = shard.view.shard,
                          .worker = shard.state.owner,
                          .fence = shard.state.fence};
        struct rf_call call = {
            .tenant = &shard.tenant, .now = 1, .lease = &lease, .op = 5, .hash = 6};
        memset(&step, 0, sizeof(step));
        step.shard = shard.view.shard;
        TEST_ASSERT_EQUAL(
            RF_OK, rf_shard_checkpoint(&shard.view, &call, &shard.view.cursor, &step.step, NULL));
        TEST_ASSERT_EQUAL(RF_EXECUTED, step.step.outcome);
        assert_comes_back(RF_CODEC_STEP, encode_step());
        TEST_ASSERT_EQUAL_UINT64(oldest, shard_back.ring.op[step_back.step.ring_slot]);
    }
}

/* The bytes of version 1, by their hash: they are on disks, and never change. */
static void the_bytes_of_version_1_are_what_they_were(void)
{
    static const struct {
        enum rf_codec_type type;
        size_t len;
        uint64_t hash;
    } golden[] = {
        {RF_CODEC_SHARD, 53788, 0xec8fe40c786f1e82},
        {RF_CODEC_RUN, 296, 0xafc59ac2177eab2e},
        {RF_CODEC_STEP, 47236, 0x700dcdeba85e05e7},
        {RF_CODEC_MADE, 45094, 0xc16210012678f07b},
    };
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_largest(golden[t].type);
        uint64_t hash = rf_hash64("ringfence/golden-codec/v1", rf_bytes_of(record, len));
        TEST_ASSERT_EQUAL_size_t(golden[t].len, len);
        TEST_ASSERT_EQUAL_HEX64(golden[t].hash, hash);
    }
}

static void a_small_record_has_the_bytes_that_the_header_describes(void)
{
    memset(&step, 0, sizeof(step));
    step.shard = 0x0102030405060708;
    step.version = 9;
    step.time = 10;
    step.step.event = RF_EVENT_CHECKPOINTED;
    step.step.changes = RF_CHANGED_CURSOR | RF_CHANGED_RING;
    step.step.next = rf_shard_new_root(RF_DISPATCHED);
    step.step.next.fence = 2;
    step.step.next.flags = RF_SHARD_LEASED;
    step.step.next.owner = 3;
    step.step.next.deadline = 4;
    step.step.next.ring_count = 1;
    step.step.next.ring_next = 1;
    step.step.cursor.key = rf_bytes_of("key", 3);
    step.step.entry = (struct rf_op_entry){
        .op = 5, .hash = 6, .executed_at = 10, .kind = RF_OP_CHECKPOINT, .result = 0};
    /* clang-format off */
    static const uint8_t want[] = {
        3, 1, 0, 0, 99, 0, 0, 0,           /* step, version 1, body of 99 */
        8, 7, 6, 5, 4, 3, 2, 1,            /* shard */
        9, 0, 0, 0, 0, 0, 0, 0,            /* version */
        10, 0, 0, 0, 0, 0, 0, 0,           /* time */
        2, 5,                              /* checkpointed; cursor and ring */
        0, 0xFF, 1, 1,                     /* active, no reason, dispatched, leased */
        2, 0, 0, 0, 0, 0, 0, 0,            /* fence */
        0, 0, 0, 0,                        /* attempts */
        3, 0, 0, 0, 0, 0, 0, 0,            /* owner */
        4, 0, 0, 0, 0, 0, 0, 0,            /* deadline */
        1, 1, 0, 0, 0, 0,                  /* ring count and next, spawned */
        1, 3, 0, 0, 0, 'k', 'e', 'y', 0,   /* cursor: key, no token */
        5, 0, 0, 0, 0, 0, 0, 0, 0, 0,      /* op, kind, result */
        6, 0, 0, 0, 0, 0, 0, 0,            /* hash */
        10, 0, 0, 0, 0, 0, 0, 0,           /* executed at */
    };
    /* clang-format on */
    size_t len = encode_step();
    TEST_ASSERT_EQUAL_size_t(sizeof(want), len);
    TEST_ASSERT_EQUAL_MEMORY(want, record, len);
    assert_comes_back(RF_CODEC_STEP, len);
}

static void peek_tells_type_and_size(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        struct rf_prng prng = {t};
        size_t len = encode_random(&prng, RECORDS_SMALL, types[t]), size = 0;
        enum rf_codec_type type;
        TEST_ASSERT_EQUAL(RF_OK, rf_codec_peek(rf_bytes_of(record, len), &type, &size));
        TEST_ASSERT_EQUAL(types[t], type);
        TEST_ASSERT_EQUAL_size_t(len, size);
    }
}

static void what_follows_a_record_is_left_alone(void)
{
    struct rf_prng prng = {11};
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_random(&prng, RECORDS_SMALL, types[t]), used = 0, again_len = 0;
        memset(record + len, 0xAB, 16);
        TEST_ASSERT_EQUAL(RF_OK, records_recode(types[t], rf_bytes_of(record, len + 16), again,
                                                sizeof(again), &again_len, &used));
        TEST_ASSERT_EQUAL_size_t(len, used);
        TEST_ASSERT_EQUAL_size_t(len, again_len);
    }
}

/* --- what is not --- */

static void every_truncation_is_refused(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct rf_prng prng = {seed};
            size_t len = encode_random(&prng, RECORDS_SMALL, types[t]), size;
            enum rf_codec_type type;
            for (size_t cut = 0; cut < len; cut++) {
                TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], cut));
                rf_bytes in = rf_bytes_of(guarded_copy(&guarded, record, cut), cut);
                TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_peek(in, &type, &size));
            }
            /* The same with a header that agrees. */
            for (size_t cut = RF_CODEC_HEADER; cut < len; cut++) {
                set_body_len(cut);
                TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], cut));
            }
        }
    }
}

static void truncations_of_the_largest_records_are_refused(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_largest(types[t]);
        for (size_t cut = RF_CODEC_HEADER; cut < len; cut += cut < len - 512 ? 101 : 1) {
            set_body_len(cut);
            TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], cut));
        }
    }
}

static void no_input_is_refused(void)
{
    enum rf_codec_type type;
    size_t used = 0;
    TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_peek(rf_bytes_none(), &type, &used));
    TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_get_shard(rf_bytes_none(), &shard_back, &used));
    TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_get_run(rf_bytes_none(), &run_back, &used));
    TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_get_step(rf_bytes_none(), &step_back, &used));
    TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_get_made(rf_bytes_none(), &made_back, &used));
    TEST_ASSERT_EQUAL(RF_CORRUPT, rf_codec_peek(rf_bytes_of("", 0), &type, &used));
}

static void every_flipped_bit_is_refused_or_makes_another_valid_record(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        uint32_t accepted = 0, tried = 0;
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct rf_prng prng = {seed + 100};
            size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
            for (size_t bit = 0; bit < len * 8; bit++) {
                record[bit / 8] ^= (uint8_t)(1u << bit % 8);
                for (size_t as = 0; as < TYPES; as++) {
                    accepted += refused_or_canonical(types[as], record, len);
                }
                record[bit / 8] ^= (uint8_t)(1u << bit % 8);
                tried++;
            }
        }
        /* Most bits are free (ids, times, hashes), but not all of them. */
        TEST_ASSERT_TRUE(accepted != 0 && accepted < tried);
    }
}

static void overwritten_words_are_refused_or_make_another_valid_record(void)
{
    static const uint32_t lies[] = {
        0,          1,          RF_KEY_MAX, RF_KEY_MAX + 1, RF_TOKEN_MAX, RF_TOKEN_MAX + 1,
        0x7FFFFFFF, 0x80000000, 0xFFFFFFF8, 0xFFFFFFFF};
    for (size_t t = 0; t < TYPES; t++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct rf_prng prng = {seed + 200};
            size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
            for (size_t at = 0; at + 4 <= len; at++) {
                uint8_t was[4];
                memcpy(was, record + at, 4);
                for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
                    rf_store_le32(record + at, lies[i]);
                    refused_or_canonical(types[t], record, len);
                }
                memcpy(record + at, was, 4);
            }
        }
    }
}

static void noise_is_refused_or_makes_a_valid_record(void)
{
    struct rf_prng prng = {5};
    for (size_t t = 0; t < TYPES; t++) {
        for (uint32_t i = 0; i < 20000; i++) {
            size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
            uint32_t hits = 1 + rf_prng_below(&prng, 4);
            for (uint32_t hit = 0; hit < hits; hit++) {
                size_t at = rf_prng_below(&prng, (uint32_t)len);
                record[at] = (uint8_t)rf_prng_next(&prng);
            }
            refused_or_canonical(types[t], record, len);
        }
    }
}

static void every_smaller_buffer_is_refused_and_not_overrun(void)
{
    for (size_t t = 0; t < TYPES; t++) {
        for (uint64_t seed = 0; seed < 12; seed++) {
            struct rf_prng prng = {seed + 300};
            size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
            for (size_t cap = 0; cap < len; cap++) {
                size_t untouched = 12345;
                TEST_ASSERT_EQUAL(
                    RF_BUFFER_TOO_SMALL,
                    encode_into(types[t], guarded_tail(&guarded, cap), cap, &untouched));
                TEST_ASSERT_EQUAL_size_t(12345, untouched);
            }
            size_t exact = 0;
            uint8_t *at = guarded_tail(&guarded, len);
            TEST_ASSERT_EQUAL(RF_OK, encode_into(types[t], at, len, &exact));
            TEST_ASSERT_EQUAL_size_t(len, exact);
            TEST_ASSERT_EQUAL_MEMORY(record, at, len);
        }
        size_t len = encode_largest(types[t]), untouched = 12345;
        for (size_t cap = 0; cap < len; cap += cap < len - 512 ? 101 : 1) {
            TEST_ASSERT_EQUAL(RF_BUFFER_TOO_SMALL,
                              encode_into(types[t], guarded_tail(&guarded, cap), cap, &untouched));
        }
        TEST_ASSERT_EQUAL(RF_BUFFER_TOO_SMALL, encode_into(types[t], NULL, 0, &untouched));
        TEST_ASSERT_EQUAL_size_t(12345, untouched);
    }
}

static void a_later_version_is_told_from_damage(void)
{
    struct rf_prng prng = {6};
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
        for (uint32_t version = RF_CODEC_VERSION + 1; version <= 0xFF; version++) {
            record[1] = (uint8_t)version;
            TEST_ASSERT_EQUAL(RF_VERSION_MISMATCH, decode_guarded(types[t], len));
        }
        /* Whatever else it has that we can't know. */
        record[0] = 200;
        record[2] = 1;
        TEST_ASSERT_EQUAL(RF_VERSION_MISMATCH, decode_guarded(types[t], len));
        record[1] = 0;
        TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len));
    }
}

static void unknown_and_other_types_are_refused(void)
{
    struct rf_prng prng = {7};
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_random(&prng, RECORDS_SMALL, types[t]), size;
        for (uint32_t type = 0; type <= 0xFF; type++) {
            bool known = type >= RF_CODEC_SHARD && type <= RF_CODEC_MADE;
            enum rf_codec_type peeked;
            record[0] = (uint8_t)type;
            TEST_ASSERT_EQUAL(known ? RF_OK : RF_CORRUPT,
                              rf_codec_peek(rf_bytes_of(record, len), &peeked, &size));
            if (type != types[t]) {
                TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len));
            }
        }
    }
}

static void a_header_that_is_not_zero_where_it_must_be_is_refused(void)
{
    struct rf_prng prng = {8};
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
        for (size_t at = 2; at < 4; at++) {
            record[at] = 0x80;
            TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len));
            record[at] = 0;
        }
    }
}

static void bytes_behind_the_body_inside_the_record_are_refused(void)
{
    struct rf_prng prng = {9};
    for (size_t t = 0; t < TYPES; t++) {
        for (uint32_t round = 0; round < 20; round++) {
            size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
            for (size_t more = 1; more < 40; more++) {
                memset(record + len, 0, more);
                set_body_len(len + more);
                TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len + more));
            }
        }
    }
}

static void a_body_length_that_lies_is_refused(void)
{
    static const uint32_t lies[] = {0x7FFFFFFF, 0x80000000, 0xFFFFFFF7, 0xFFFFFFF8, 0xFFFFFFFF};
    struct rf_prng prng = {10};
    for (size_t t = 0; t < TYPES; t++) {
        size_t len = encode_random(&prng, RECORDS_SMALL, types[t]);
        for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
            rf_store_le32(record + 4, lies[i]);
            TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len));
        }
        rf_store_le32(record + 4, (uint32_t)(len - RF_CODEC_HEADER + 1));
        TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len));
        rf_store_le32(record + 4, 0);
        TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(types[t], len));
    }
}

/* --- one field at a time, in records whose layout is known --- */

/* An unleased root shard: tenant and ids 48, scalars 16, then start, end and metadata of 2, 3 and 4
 * bytes, a cursor of 5 and 6, 2 spawned, 2 in the ring. */
enum {
    SHARD_STATUS = RF_CODEC_HEADER + 48,
    SHARD_REASON,
    SHARD_SEMANTICS,
    SHARD_FLAGS,
    SHARD_START = SHARD_STATUS + 16,
    SHARD_END = SHARD_START + 4 + 2,
    SHARD_METADATA = SHARD_END + 4 + 3,
    SHARD_HAS_KEY = SHARD_METADATA + 4 + 4,
    SHARD_KEY,
    SHARD_HAS_TOKEN = SHARD_KEY + 4 + 5,
    SHARD_TOKEN,
    SHARD_SPAWNED = SHARD_TOKEN + 4 + 6,
    SHARD_RING_COUNT = SHARD_SPAWNED + 4 + 2 * 8,
    SHARD_RING_NEXT,
    SHARD_ENTRY,
    SHARD_KIND = SHARD_ENTRY + 8,
    SHARD_RESULT,
    SHARD_SECOND_ENTRY = SHARD_ENTRY + 26,
    SHARD_SIZE = SHARD_ENTRY + 2 * 26,
};

static size_t known_shard(void)
{
    memset(&shard, 0, sizeof(shard));
    shard.state = rf_shard_new_root(RF_COMPLETED);
    shard.state.spawned_count = 2;
    shard.state.ring_count = shard.state.ring_next = 2;
    shard.spawned[0] = RF_DERIVED_BIT;
    shard.spawned[1] = RF_DERIVED_BIT | 1;
    shard.ring.op[1] = 1;
    shard.view = (struct rf_shard){
        .tenant = &shard.tenant,
        .state = &shard.state,
        .ring = &shard.ring,
        .spawned = shard.spawned,
        .spec = {.start = rf_bytes_of("bb", 2),
                 .end = rf_bytes_of("ddd", 3),
                 .metadata = rf_bytes_of("meta", 4)},
        .cursor = {.key = rf_bytes_of("ccccc", 5), .token = rf_bytes_of("tttttt", 6)},
    };
    size_t len = encode_shard();
    TEST_ASSERT_EQUAL_size_t(SHARD_SIZE, len);
    assert_accepted(RF_CODEC_SHARD, len);
    return len;
}

/* A run with 2 in its ring. */
enum {
    RUN_STATUS = RF_CODEC_HEADER + 40,
    RUN_SEMANTICS,
    RUN_HAS_RETRIES,
    RUN_RETRIES,
    RUN_LEASE = RUN_RETRIES + 4,
    RUN_CREATED = RUN_LEASE + 8,
    RUN_COMPLETED = RUN_CREATED + 8,
    RUN_ROOTS = RUN_COMPLETED + 8,
    RUN_RING_COUNT = RUN_ROOTS + 8,
    RUN_ENTRY,
    RUN_KIND = RUN_ENTRY + 8,
    RUN_RESULT,
    RUN_SIZE = RUN_ENTRY + 2 * 26,
};

static size_t known_run(void)
{
    memset(&run, 0, sizeof(run));
    run.config.lease_duration = 1;
    run.status = RF_RUN_ACTIVE;
    run.created_at = 50;
    run.root_count = 1;
    run.ring_count = run.ring_next = 2;
    run.ring.op[1] = 1;
    size_t len = encode_run();
    TEST_ASSERT_EQUAL_size_t(RUN_SIZE, len);
    assert_accepted(RF_CODEC_RUN, len);
    return len;
}

/* A step of an unleased root shard that changes everything. */
enum {
    STEP_EVENT = RF_CODEC_HEADER + 24,
    STEP_CHANGES,
    STEP_STATUS,
    STEP_REASON,
    STEP_SEMANTICS,
    STEP_FLAGS,
    STEP_RING_COUNT = STEP_STATUS + 16,
    STEP_RING_NEXT,
    STEP_SPAWNED_COUNT,
    STEP_HAS_KEY = STEP_SPAWNED_COUNT + 4,
    STEP_KEY,
    STEP_HAS_TOKEN = STEP_KEY + 4 + 1,
    STEP_START,
    STEP_END = STEP_START + 4 + 1,
    STEP_METADATA = STEP_END + 4 + 1,
    STEP_ENTRY = STEP_METADATA + 4,
    STEP_KIND = STEP_ENTRY + 8,
    STEP_RESULT,
    STEP_SPAWNED = STEP_ENTRY + 26,
    STEP_SPAWNED_ID = STEP_SPAWNED + 4,
    STEP_SIZE = STEP_SPAWNED_ID + 2 * 8,
};

static size_t known_step(void)
{
    memset(&step, 0, sizeof(step));
    step.step.changes = RF_CHANGED_CURSOR | RF_CHANGED_SPEC | RF_CHANGED_RING | RF_CHANGED_SPAWNED;
    step.step.next = rf_shard_new_root(RF_COMPLETED);
    step.step.next.ring_count = step.step.next.ring_next = 1;
    step.step.next.spawned_count = 2;
    step.step.cursor.key = rf_bytes_of("c", 1);
    step.step.spec = (rf_spec){.start = rf_bytes_of("b", 1), .end = rf_bytes_of("d", 1)};
    step.step.spawned_new = 2;
    step.step.spawned_ids = step.spawned;
    step.spawned[0] = step.spawned[1] = RF_DERIVED_BIT;
    size_t len = encode_step();
    TEST_ASSERT_EQUAL_size_t(STEP_SIZE, len);
    assert_accepted(RF_CODEC_STEP, len);
    return len;
}

static void assert_values_refused(enum rf_codec_type type, size_t len, size_t at, uint32_t first)
{
    uint8_t was = record[at];
    for (uint32_t v = first; v <= 0xFF; v++) {
        record[at] = (uint8_t)v;
        TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(type, len));
    }
    record[at] = was;
    TEST_ASSERT_EQUAL(RF_OK, decode_guarded(type, len));
}

static void unknown_discriminants_are_refused(void)
{
    size_t len = known_shard();
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_STATUS, RF_SHARD_PARKED + 1);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_SEMANTICS, RF_DISPATCHED + 1);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_FLAGS, 4);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_HAS_KEY, 2);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_HAS_TOKEN, 2);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_RING_COUNT, RF_SHARD_RING + 1);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_RING_NEXT, 3);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_KIND, RF_OP_RELEASE + 1);
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_RESULT, RF_RESULT_SUPERSEDED + 1);

    shard.state.status = RF_SHARD_PARKED;
    shard.state.park_reason = RF_PARK_OTHER;
    len = encode_shard();
    assert_values_refused(RF_CODEC_SHARD, len, SHARD_REASON, RF_PARK_OTHER + 1);

    len = known_run();
    assert_values_refused(RF_CODEC_RUN, len, RUN_STATUS, RF_RUN_CANCELLED + 1);
    assert_values_refused(RF_CODEC_RUN, len, RUN_SEMANTICS, RF_DISPATCHED + 1);
    assert_values_refused(RF_CODEC_RUN, len, RUN_HAS_RETRIES, 2);
    assert_values_refused(RF_CODEC_RUN, len, RUN_RING_COUNT, RF_RUN_RING + 1);
    assert_values_refused(RF_CODEC_RUN, len, RUN_KIND, RF_RUN_OP_ADD_SHARDS + 1);
    assert_values_refused(RF_CODEC_RUN, len, RUN_RESULT, RF_RESULT_SUPERSEDED + 1);

    len = known_step();
    assert_values_refused(RF_CODEC_STEP, len, STEP_EVENT, RF_EVENT_OWNER_LOST + 1);
    assert_values_refused(RF_CODEC_STEP, len, STEP_CHANGES, 16);
    assert_values_refused(RF_CODEC_STEP, len, STEP_STATUS, RF_SHARD_PARKED + 1);
    assert_values_refused(RF_CODEC_STEP, len, STEP_SEMANTICS, RF_DISPATCHED + 1);
    assert_values_refused(RF_CODEC_STEP, len, STEP_FLAGS, 4);
    assert_values_refused(RF_CODEC_STEP, len, STEP_RING_COUNT, RF_SHARD_RING + 1);
    assert_values_refused(RF_CODEC_STEP, len, STEP_RING_NEXT, 2);
    assert_values_refused(RF_CODEC_STEP, len, STEP_KIND, RF_OP_RELEASE + 1);
    assert_values_refused(RF_CODEC_STEP, len, STEP_RESULT, RF_RESULT_SUPERSEDED + 1);
}

static void assert_lengths_refused(enum rf_codec_type type, size_t len, size_t at, uint32_t max)
{
    uint8_t was[4];
    memcpy(was, record + at, 4);
    const uint32_t lies[] = {
        rf_load_le32(was) + 1, max, max + 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        rf_store_le32(record + at, lies[i]);
        TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(type, len));
    }
    memcpy(record + at, was, 4);
    TEST_ASSERT_EQUAL(RF_OK, decode_guarded(type, len));
}

static void lengths_that_lie_are_refused(void)
{
    size_t len = known_shard();
    assert_lengths_refused(RF_CODEC_SHARD, len, SHARD_START, RF_KEY_MAX);
    assert_lengths_refused(RF_CODEC_SHARD, len, SHARD_END, RF_KEY_MAX);
    assert_lengths_refused(RF_CODEC_SHARD, len, SHARD_METADATA, RF_METADATA_MAX);
    assert_lengths_refused(RF_CODEC_SHARD, len, SHARD_KEY, RF_KEY_MAX);
    assert_lengths_refused(RF_CODEC_SHARD, len, SHARD_TOKEN, RF_TOKEN_MAX);
    assert_lengths_refused(RF_CODEC_SHARD, len, SHARD_SPAWNED, RF_SPAWNED_MAX);
    len = known_step();
    assert_lengths_refused(RF_CODEC_STEP, len, STEP_KEY, RF_KEY_MAX);
    assert_lengths_refused(RF_CODEC_STEP, len, STEP_START, RF_KEY_MAX);
    assert_lengths_refused(RF_CODEC_STEP, len, STEP_END, RF_KEY_MAX);
    assert_lengths_refused(RF_CODEC_STEP, len, STEP_METADATA, RF_METADATA_MAX);
    assert_lengths_refused(RF_CODEC_STEP, len, STEP_SPAWNED, RF_SPLIT_CHILDREN_MAX);
}

/* One byte more than allowed, in a record that is otherwise whole: only the limit speaks. */
static void strings_over_their_limit_are_refused(void)
{
    static const struct {
        size_t at; /* of the length, in a record of type made with nothing else in it */
        uint32_t max;
    } fields[] = {{16, RF_KEY_MAX}, {20, RF_KEY_MAX}, {24, RF_METADATA_MAX}};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        for (uint32_t over = 0; over < 2; over++) {
            memset(&made, 0, sizeof(made));
            size_t len = encode_made();
            TEST_ASSERT_EQUAL_size_t(30, len);
            uint32_t n = fields[i].max + over;
            memmove(record + fields[i].at + 4 + n, record + fields[i].at + 4,
                    len - fields[i].at - 4);
            memset(record + fields[i].at + 4, 'x', n);
            rf_store_le32(record + fields[i].at, n);
            set_body_len(len + n);
            TEST_ASSERT_EQUAL(over == 0 ? RF_OK : RF_CORRUPT,
                              decode_guarded(RF_CODEC_MADE, len + n));
        }
    }
}

static void an_empty_token_and_a_token_without_a_key_are_refused(void)
{
    /* clang-format off */
    static const uint8_t empty_token[] = {
        RF_CODEC_MADE, 1, 0, 0, 30, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0,              /* shard */
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  /* unbounded, no metadata */
        1, 0, 0, 0, 0,                       /* the key "" */
        1, 0, 0, 0, 0,                       /* the token "" */
    };
    static const uint8_t no_key[] = {
        RF_CODEC_MADE, 1, 0, 0, 27, 0, 0, 0,
        1, 0, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0,                                   /* no key */
        1, 1, 0, 0, 0, 't',                  /* the token "t" */
    };
    /* clang-format on */
    memcpy(record, empty_token, sizeof(empty_token));
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_MADE, sizeof(empty_token)));
    memcpy(record, no_key, sizeof(no_key));
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_MADE, sizeof(no_key)));
}

/* The encoder writes what it is given; the decoder knows the invariants. */
static void assert_shard_refused(void)
{
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_SHARD, encode_shard()));
    known_shard();
}

static void a_shard_that_breaks_an_invariant_is_refused(void)
{
    known_shard();
    shard.state.fence = 0;
    assert_shard_refused();
    shard.state.park_reason = RF_PARK_OTHER;
    assert_shard_refused();
    shard.state.status = RF_SHARD_PARKED;
    assert_shard_refused();
    shard.state.status = RF_SHARD_DONE;
    shard.state.flags = RF_SHARD_LEASED;
    assert_shard_refused();
    shard.state.status = RF_SHARD_SPLIT;
    shard.state.spawned_count = 0;
    assert_shard_refused();
    shard.state.flags = RF_SHARD_HAS_PARENT;
    assert_shard_refused();
    shard.view.shard = RF_DERIVED_BIT;
    assert_shard_refused();
    shard.spawned[1] = 1;
    assert_shard_refused();
    shard.ring.op[1] = shard.ring.op[0];
    assert_shard_refused();
    shard.view.spec.end = rf_bytes_of("ba", 2);
    assert_shard_refused();
    shard.view.spec.end = shard.view.spec.start;
    shard.view.cursor = (rf_cursor){0};
    assert_shard_refused();
    shard.view.cursor.key = rf_bytes_of("ddd", 3);
    assert_shard_refused();
    shard.view.cursor.key = rf_bytes_of("b", 1);
    assert_shard_refused();
}

static void assert_run_refused(void)
{
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_RUN, encode_run()));
    known_run();
}

static void a_run_that_breaks_an_invariant_is_refused(void)
{
    size_t len = known_run();
    run.config.lease_duration = 0;
    assert_run_refused();
    run.root_count = 0;
    assert_run_refused();
    run.status = RF_RUN_INITIALIZING;
    assert_run_refused();
    run.completed_at = 60;
    assert_run_refused();
    run.status = RF_RUN_DONE;
    assert_run_refused();
    run.status = RF_RUN_FAILED;
    run.completed_at = 49;
    assert_run_refused();
    run.ring.op[1] = run.ring.op[0];
    assert_run_refused();
    /* Retries that are not there have no number. */
    record[RUN_RETRIES] = 1;
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_RUN, len));
}

static void assert_step_refused(void)
{
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_STEP, encode_step()));
    known_step();
}

static void a_step_that_would_break_its_shard_is_refused(void)
{
    known_step();
    step.step.next.fence = 0;
    assert_step_refused();
    step.shard = RF_DERIVED_BIT;
    assert_step_refused();
    step.step.cursor.key = rf_bytes_none();
    assert_step_refused();
    step.step.spec.end = step.step.spec.start;
    assert_step_refused();
    step.step.next.ring_count = step.step.next.ring_next = 0;
    step.step.ring_slot = RF_SHARD_RING - 1;
    assert_step_refused();
    step.step.next.spawned_count = 1;
    assert_step_refused();
    step.step.next.spawned_count = RF_SPAWNED_MAX + 1;
    assert_step_refused();
    step.step.spawned_new = 0;
    assert_step_refused();
    step.spawned[1] = 1;
    assert_step_refused();
}

static void a_made_shard_outside_itself_is_refused(void)
{
    memset(&made, 0, sizeof(made));
    made.made.spec = (rf_spec){.start = rf_bytes_of("b", 1), .end = rf_bytes_of("b", 1)};
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_MADE, encode_made()));
    made.made.spec.end = rf_bytes_of("c", 1);
    made.made.cursor.key = rf_bytes_of("c", 1);
    TEST_ASSERT_EQUAL(RF_CORRUPT, decode_guarded(RF_CODEC_MADE, encode_made()));
    made.made.cursor.key = rf_bytes_of("b", 1);
    TEST_ASSERT_EQUAL(RF_OK, decode_guarded(RF_CODEC_MADE, encode_made()));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(any_valid_record_comes_back_as_it_was);
    RUN_TEST(the_largest_records_fit_into_their_maximum);
    RUN_TEST(the_smallest_records_come_back);
    RUN_TEST(a_present_but_empty_key_is_not_an_absent_one);
    RUN_TEST(equal_values_have_equal_bytes);
    RUN_TEST(every_status_lease_and_parent_comes_back);
    RUN_TEST(a_ring_comes_back_at_every_length_and_rotation);
    RUN_TEST(a_step_of_the_log_fits_a_record_of_a_snapshot);
    RUN_TEST(the_bytes_of_version_1_are_what_they_were);
    RUN_TEST(a_small_record_has_the_bytes_that_the_header_describes);
    RUN_TEST(peek_tells_type_and_size);
    RUN_TEST(what_follows_a_record_is_left_alone);
    RUN_TEST(every_truncation_is_refused);
    RUN_TEST(truncations_of_the_largest_records_are_refused);
    RUN_TEST(no_input_is_refused);
    RUN_TEST(every_flipped_bit_is_refused_or_makes_another_valid_record);
    RUN_TEST(overwritten_words_are_refused_or_make_another_valid_record);
    RUN_TEST(noise_is_refused_or_makes_a_valid_record);
    RUN_TEST(every_smaller_buffer_is_refused_and_not_overrun);
    RUN_TEST(a_later_version_is_told_from_damage);
    RUN_TEST(unknown_and_other_types_are_refused);
    RUN_TEST(a_header_that_is_not_zero_where_it_must_be_is_refused);
    RUN_TEST(bytes_behind_the_body_inside_the_record_are_refused);
    RUN_TEST(a_body_length_that_lies_is_refused);
    RUN_TEST(unknown_discriminants_are_refused);
    RUN_TEST(lengths_that_lie_are_refused);
    RUN_TEST(strings_over_their_limit_are_refused);
    RUN_TEST(an_empty_token_and_a_token_without_a_key_are_refused);
    RUN_TEST(a_shard_that_breaks_an_invariant_is_refused);
    RUN_TEST(a_run_that_breaks_an_invariant_is_refused);
    RUN_TEST(a_step_that_would_break_its_shard_is_refused);
    RUN_TEST(a_made_shard_outside_itself_is_refused);
    return UNITY_END();
}
