/*
 * Nothing in the protocol allocates: no transition, hash, plan, check, sentence or record as bytes,
 * whether it succeeds or refuses. jemalloc counts what a thread took and gave back; both counts must
 * stand still around each call.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unity.h>

#include "codec.h"
#include "desk.h"
#include "manifest.h"
#include "prng.h"
#include "progress.h"
#include "records.h"
#include "run_desk.h"
#include "split.h"
#include "status_table.h"

/* Not there in sanitizer builds, which bring an allocator of their own. */
extern int mallctl(const char *name, void *old, size_t *old_len, void *new, size_t new_len)
    __attribute__((weak));

/* Volatile: the compiler may believe that malloc changes nothing that it can see. */
static const volatile uint64_t *allocated, *deallocated;
static uint64_t allocated_before, deallocated_before;

static struct rf_box box;
static struct rf_desk desk;
static struct rf_run_desk run_desk;

static const uint64_t *counter(const char *name)
{
    const uint64_t *at = NULL;
    size_t len = sizeof(at);
    TEST_ASSERT_EQUAL_INT(0, mallctl(name, &at, &len, NULL, 0));
    TEST_ASSERT_NOT_NULL(at);
    return at;
}

void setUp(void)
{
    if (mallctl == NULL) {
        TEST_IGNORE_MESSAGE("not linked with jemalloc, whose counters are needed");
    }
    allocated = counter("thread.allocatedp");
    deallocated = counter("thread.deallocatedp");
    uint32_t rows;
    rf_table_rows(&rows); /* the desks read the header once */
    rf_tenant tenant = rf_tenant_of(1);
    rf_box_make_root(&box, &tenant, 7, 100, rf_spec_of("d", "w"), rf_cursor_at(NULL));
    rf_desk_open(&desk, &box);
    rf_run_desk_open(&run_desk, &tenant, 7);
}

void tearDown(void)
{
}

static void listen(void)
{
    allocated_before = *allocated;
    deallocated_before = *deallocated;
}

static bool heard_something(void)
{
    return *allocated != allocated_before || *deallocated != deallocated_before;
}

/* The call, and nothing heard meanwhile. */
#define QUIETLY(call)                                                                              \
    do {                                                                                           \
        listen();                                                                                  \
        call;                                                                                      \
        TEST_ASSERT_FALSE_MESSAGE(heard_something(), "it allocates: " #call);                      \
    } while (0)

#define QUIETLY_EXPECT(status, call)                                                               \
    do {                                                                                           \
        listen();                                                                                  \
        rf_status got = call;                                                                      \
        TEST_ASSERT_FALSE_MESSAGE(heard_something(), "it allocates: " #call);                      \
        TEST_ASSERT_EQUAL_STRING(rf_status_name(status), rf_status_name(got));                     \
    } while (0)

/* The compiler must not do away with it. */
static void *volatile planted;

static void a_planted_malloc_is_heard(void)
{
    listen();
    TEST_ASSERT_FALSE(heard_something());
    planted = malloc(1);
    TEST_ASSERT_TRUE(heard_something());
    listen();
    free(planted);
    TEST_ASSERT_TRUE(heard_something());
    listen();
    planted = malloc(100);
    free(planted); /* taken and given back at once is heard as well */
    TEST_ASSERT_TRUE(heard_something());
    listen();
    planted = calloc(1, 1u << 20);
    planted = realloc(planted, 1u << 21);
    TEST_ASSERT_TRUE(heard_something());
    free(planted);
}

static void operations_on_shards_do_not_allocate(void)
{
    static uint8_t key[RF_KEY_MAX], token[RF_TOKEN_MAX];
    memset(key, 'm', sizeof(key));
    rf_cursor small = rf_cursor_at("e"), large = {.key = rf_bytes_of(key, sizeof(key)),
                                                  .token = rf_bytes_of(token, sizeof(token))};
    QUIETLY_EXPECT(RF_OK, rf_desk_acquire(&desk, 1));
    QUIETLY_EXPECT(RF_ALREADY_LEASED, rf_desk_acquire(&desk, 1));
    QUIETLY_EXPECT(RF_OK, rf_desk_renew(&desk));
    desk.op = 1;
    QUIETLY_EXPECT(RF_OK, rf_desk_checkpoint(&desk, small));
    QUIETLY_EXPECT(RF_OK, rf_desk_checkpoint(&desk, small)); /* replayed */
    QUIETLY_EXPECT(RF_OP_ID_CONFLICT, rf_desk_checkpoint(&desk, large));
    desk.op = 2;
    QUIETLY_EXPECT(RF_OK, rf_desk_checkpoint(&desk, large));
    desk.op = 3;
    QUIETLY_EXPECT(RF_CURSOR_REGRESSION, rf_desk_checkpoint(&desk, small));
    QUIETLY_EXPECT(RF_OK, rf_desk_release(&desk, rf_cursor_at(NULL)));
    QUIETLY_EXPECT(RF_STALE_FENCE, rf_desk_renew(&desk));
    QUIETLY_EXPECT(RF_OK, rf_desk_acquire(&desk, 1));
    QUIETLY(rf_desk_owner_lost(&desk));
    QUIETLY_EXPECT(RF_OK, rf_desk_acquire(&desk, 1));
    desk.op = 4;
    QUIETLY_EXPECT(RF_OK, rf_desk_park(&desk, RF_PARK_OTHER));
    desk.op = 5;
    QUIETLY_EXPECT(RF_OK, rf_desk_unpark(&desk));
    QUIETLY(rf_desk_park_exhausted(&desk));
    desk.op = 6;
    QUIETLY_EXPECT(RF_OK, rf_desk_unpark(&desk));
    QUIETLY_EXPECT(RF_OK, rf_desk_acquire(&desk, 1));
    desk.op = 7;
    QUIETLY_EXPECT(RF_OK, rf_desk_complete(&desk, large));
    QUIETLY_EXPECT(RF_SHARD_TERMINAL, rf_desk_renew(&desk));
}

static void splits_and_plans_do_not_allocate(void)
{
    static rf_bytes points[RF_SPLIT_CHILDREN_MAX - 1];
    static rf_child children[RF_SPLIT_CHILDREN_MAX];
    static char cut[RF_SPLIT_CHILDREN_MAX][8];
    static uint8_t scratch[RF_KEY_MAX];
    rf_spec parent_new, residual;
    for (uint32_t i = 0; i < RF_SPLIT_CHILDREN_MAX - 1; i++) {
        snprintf(cut[i], sizeof(cut[i]), "g%03u", i);
        points[i] = rf_text(cut[i]);
    }
    QUIETLY_EXPECT(RF_OK, rf_desk_acquire(&desk, 1));
    QUIETLY_EXPECT(RF_OK, rf_plan_residual_from_cursor(rf_spec_of("d", "w"), rf_cursor_at("m"),
                                                       scratch, &parent_new, &residual, NULL));
    desk.op = 1;
    QUIETLY_EXPECT(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
    QUIETLY_EXPECT(RF_OK, rf_desk_split_residual(&desk, parent_new, residual)); /* replayed */
    QUIETLY_EXPECT(RF_OK,
                   rf_plan_residual_at(parent_new, rf_text("k"), &parent_new, &residual, NULL));
    desk.op = 2;
    QUIETLY_EXPECT(RF_OK, rf_desk_split_residual(&desk, parent_new, residual));
    QUIETLY_EXPECT(RF_OK, rf_plan_replace(rf_spec_of("d", "k"), points, RF_SPLIT_CHILDREN_MAX - 1,
                                          children, NULL));
    desk.op = 3;
    QUIETLY_EXPECT(RF_SPLIT_COVERAGE,
                   rf_desk_split_replace(&desk, children, RF_SPLIT_CHILDREN_MAX - 1));
    QUIETLY_EXPECT(RF_OK, rf_desk_split_replace(&desk, children, RF_SPLIT_CHILDREN_MAX));
    QUIETLY_EXPECT(RF_OK, rf_desk_split_replace(&desk, children, RF_SPLIT_CHILDREN_MAX));
    uint8_t key[RF_KEY_MAX];
    size_t len;
    QUIETLY_EXPECT(RF_OK, rf_key_successor(rf_text("a"), key, &len));
    QUIETLY_EXPECT(RF_OK, rf_prefix_successor(rf_text("a"), key, &len));
    QUIETLY_EXPECT(RF_OK, rf_key_midpoint(rf_text("a"), rf_text("b"), key, &len));
}

static void operations_on_runs_and_manifests_do_not_allocate(void)
{
    enum { N = 1000 };
    static rf_shard_input shards[N];
    static char bound[N + 1][8];
    for (uint32_t i = 0; i <= N; i++) {
        snprintf(bound[i], sizeof(bound[i]), "%05u", i);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint32_t at = i * 7u % N;
        shards[i] = rf_input_of(at, bound[at], bound[at + 1]);
    }
    rf_shard_input more = rf_input_of(5000, "x", "y");
    QUIETLY_EXPECT(RF_OK, rf_run_desk_create(&run_desk));
    run_desk.op = 1;
    QUIETLY_EXPECT(RF_MANIFEST_EMPTY, rf_run_desk_register(&run_desk, NULL, 0));
    QUIETLY_EXPECT(RF_OK, rf_run_desk_register(&run_desk, shards, N));
    QUIETLY_EXPECT(RF_OK, rf_run_desk_create_with_shards(&run_desk, shards, N));
    run_desk.op = 2;
    QUIETLY_EXPECT(RF_OK, rf_run_desk_add(&run_desk, &more, 1));
    run_desk.op = 3;
    QUIETLY_EXPECT(RF_OK, rf_run_desk_end(&run_desk, RF_RUN_OP_COMPLETE));
    QUIETLY_EXPECT(RF_OK, rf_run_desk_end(&run_desk, RF_RUN_OP_COMPLETE));
    static uint32_t order[2 * N];
    QUIETLY(rf_hash_register(shards, N, order));
    QUIETLY(rf_hash_add(shards, N, order));
    QUIETLY(rf_manifest_sound(shards, N));
}

static void hashes_do_not_allocate(void)
{
    static uint8_t key[RF_KEY_MAX], token[RF_TOKEN_MAX];
    rf_cursor cursor = {.key = rf_bytes_of(key, sizeof(key)),
                        .token = rf_bytes_of(token, sizeof(token))};
    rf_child children[2] = {rf_child_of("a", "m"), rf_child_of("m", "z")};
    rf_tenant tenant;
    QUIETLY(rf_hash_checkpoint(cursor));
    QUIETLY(rf_hash_checkpoint(rf_cursor_at("short")));
    QUIETLY(rf_hash_complete(cursor));
    QUIETLY(rf_hash_release(cursor));
    QUIETLY(rf_hash_park(RF_PARK_OTHER));
    QUIETLY(rf_hash_unpark(1, 2));
    QUIETLY(rf_hash_split_replace(children, 2));
    QUIETLY(rf_hash_split_residual(children[0].spec, children[1].spec));
    QUIETLY(rf_hash_run_op(RF_RUN_OP_CANCEL));
    QUIETLY(rf_split_id(1, 2, 3, RF_CHILD, 4));
    QUIETLY(rf_hash64("context", rf_text("input")));
    QUIETLY(rf_tenant_from_name("name", &tenant));
}

static void invariants_progress_and_sentences_do_not_allocate(void)
{
    static uint8_t watermark[RF_KEY_MAX];
    struct rf_shard view = rf_box_view(&box);
    rf_progress progress;
    rf_detail detail = {.size = 9, .limit = 8, .has_index = true, .where = "somewhere"};
    char out[256];
    QUIETLY_EXPECT(RF_OK, rf_run_desk_create(&run_desk));
    QUIETLY(rf_shard_violation(&view));
    QUIETLY(rf_run_violation(&run_desk.run));
    QUIETLY(rf_progress_begin(&progress));
    QUIETLY(rf_progress_add(&progress, &box.state, &view.cursor, 100, watermark));
    QUIETLY(rf_progress_end(&progress));
    for (unsigned status = 0; status < RF_TABLE_STATUS; status++) {
        QUIETLY(rf_explain((rf_status)status, &detail, out, sizeof(out)));
    }
}

static void records_as_bytes_do_not_allocate(void)
{
    static uint8_t out[RF_CODEC_SHARD_MAX + RF_CODEC_STEP_MAX];
    static struct records_shard shard;
    static struct records_step step;
    static struct records_made made;
    static struct rf_run run, run_out;
    static struct rf_shard_decoded shard_out;
    static struct rf_step_record step_out;
    static struct rf_made_record made_out;
    struct rf_prng rng = {.state = 5};
    enum rf_codec_type type;
    for (int round = 0; round < 20; round++) {
        size_t len = 0, used = 0;
        records_make_shard(&rng, RECORDS_ANY, &shard);
        QUIETLY_EXPECT(RF_OK, rf_codec_put_shard(&shard.view, out, sizeof(out), &len));
        QUIETLY_EXPECT(RF_OK, rf_codec_peek(rf_bytes_of(out, len), &type, &used));
        QUIETLY_EXPECT(RF_OK, rf_codec_get_shard(rf_bytes_of(out, len), &shard_out, &used));
        QUIETLY_EXPECT(RF_CORRUPT,
                       rf_codec_get_shard(rf_bytes_of(out, len - 1), &shard_out, &used));
        QUIETLY_EXPECT(RF_BUFFER_TOO_SMALL, rf_codec_put_shard(&shard.view, out, len - 1, &len));
        records_make_run(&rng, &run);
        QUIETLY_EXPECT(RF_OK, rf_codec_put_run(&run, out, sizeof(out), &len));
        QUIETLY_EXPECT(RF_OK, rf_codec_get_run(rf_bytes_of(out, len), &run_out, &used));
        records_make_step(&rng, RECORDS_ANY, &step);
        QUIETLY_EXPECT(RF_OK, rf_codec_put_step(step.shard, step.version, step.time, &step.step,
                                                out, sizeof(out), &len));
        QUIETLY_EXPECT(RF_OK, rf_codec_get_step(rf_bytes_of(out, len), &step_out, &used));
        records_make_made(&rng, RECORDS_ANY, &made);
        QUIETLY_EXPECT(RF_OK, rf_codec_put_made(&made.made, out, sizeof(out), &len));
        QUIETLY_EXPECT(RF_OK, rf_codec_get_made(rf_bytes_of(out, len), &made_out, &used));
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_planted_malloc_is_heard);
    RUN_TEST(operations_on_shards_do_not_allocate);
    RUN_TEST(splits_and_plans_do_not_allocate);
    RUN_TEST(operations_on_runs_and_manifests_do_not_allocate);
    RUN_TEST(hashes_do_not_allocate);
    RUN_TEST(invariants_progress_and_sentences_do_not_allocate);
    RUN_TEST(records_as_bytes_do_not_allocate);
    return UNITY_END();
}
