/*
 * A purge while somebody is stopped inside one of the run's shards: the run is gone at once, its room
 * only when he is out, and what he still writes reaches nobody else.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "crew.h"
#include "farm.h"
#include "point.h"

struct scene {
    char store[128];
    const char *point;
    _Atomic uint32_t stage; /* 1: has its lease, 2: may go on, 3: at the point, 4: has its answer */
    rf_status answer;
};

static struct scene *scene;
static rf_store *store;

void setUp(void)
{
    scene = crew_shared(sizeof(*scene));
    snprintf(scene->store, sizeof(scene->store), "%s", crew_store("purge"));
    store = crew_open(scene->store, &(rf_options){.create = true,
                                                  .max_shards = 64,
                                                  .max_bytes = 1u << 20,
                                                  .max_runs = 4,
                                                  .max_members = 8,
                                                  .busy_timeout = 50 * RF_MILLISECOND});
}

void tearDown(void)
{
    rf_close(store);
    crew_unshare(scene, sizeof(*scene));
    crew_store_drop();
}

static void make_run(uint64_t run)
{
    rf_tenant tenant = farm_tenant(1);
    struct farm_key start = farm_key(1), end = farm_key(999);
    rf_shard_input input = {.shard = 1, .spec = {.start = {start.bytes, 8}, .end = {end.bytes, 8}}};
    rf_run_config config = {.lease_duration = 3600 * RF_SECOND};
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(store, rf_now(store), &tenant, run, &config,
                                                       &input, 1, 1, NULL));
}

static void stop_at_point(const char *point)
{
    if (strcmp(point, scene->point) == 0 && atomic_load(&scene->stage) == 2) {
        atomic_store(&scene->stage, 3);
        raise(SIGSTOP);
    }
}

/* A checkpoint with a token that needs a block. */
static int checkpoint_slowly(void *argument)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = farm_tenant(1);
    struct farm_key key = farm_key(77);
    uint8_t token[600] = {7};
    rf_cursor cursor = {.key = {key.bytes, 8}, .token = {token, sizeof(token)}};
    (void)argument;
    rf_store *mine = crew_open(scene->store, &(rf_options){0});
    CREW_CHECK(rf_acquire(mine, rf_now(mine), &tenant, 1, 1, 5, RF_BOUND, &grant, NULL) == RF_OK,
               "acquire");
    atomic_store(&scene->stage, 2);
    rf_point_on_hit = stop_at_point;
    scene->answer =
        rf_checkpoint(mine, rf_now(mine), &tenant, &grant.lease, &cursor, rf_new_op(mine), NULL);
    rf_point_on_hit = NULL;
    atomic_store(&scene->stage, 4);
    rf_close(mine);
    return 0;
}

static bool stage_is(void *context)
{
    return atomic_load(&scene->stage) == *(uint32_t *)context;
}

static bool only_the_new_run_is_left(void *context)
{
    rf_inspection i;
    (void)context;
    return rf_inspect(store, &i, NULL) == RF_OK && i.runs == 1 && i.shards == 1 && i.extents == 1 &&
           i.leaves == 1 && i.blocks == 0;
}

static void play(const char *point)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    rf_inspection i;
    rf_shard_info info;
    scene->point = point;
    make_run(1);
    pid_t pid = crew_start(checkpoint_slowly, NULL);
    TEST_ASSERT_TRUE_MESSAGE(crew_until(stage_is, &(uint32_t){3}, 10000), point);
    TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(store, rf_now(store), &tenant, 1, 2, NULL));
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, rf_purge_run(store, rf_now(store), &tenant, 1, NULL), point);
    rf_run_info gone;
    TEST_ASSERT_EQUAL(RF_RUN_NOT_FOUND, rf_get_run(store, &tenant, 1, &gone, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_inspect(store, &i, NULL));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(1, i.extents, point);
    make_run(2);
    TEST_ASSERT_EQUAL(RF_OK, rf_inspect(store, &i, NULL));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(2, i.extents, point);

    kill(pid, SIGCONT);
    TEST_ASSERT_EQUAL_MESSAGE(0, crew_join(pid, 10000), point);
    TEST_ASSERT_TRUE(scene->answer == RF_OK || scene->answer == RF_NOT_FOUND);
    TEST_ASSERT_TRUE_MESSAGE(crew_until(only_the_new_run_is_left, NULL, 10000), point);
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_get_shard(store, &tenant, 2, 1, &info, scratch, sizeof(scratch), NULL));
    TEST_ASSERT_NULL_MESSAGE(info.cursor.key.data, point);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(1, info.version, point);
}

static void a_purge_waits_for_who_is_inside_at_taking(void)
{
    play("op.taking");
}

static void a_purge_waits_for_who_is_inside_at_prepared(void)
{
    play("op.prepared");
}

static void a_purge_waits_for_who_is_inside_at_committed(void)
{
    play("lane.committed");
}

/* --- a reading that is overtaken --- */

static void write_token(uint64_t run, uint8_t mark)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = farm_tenant(1);
    struct farm_key key = farm_key(mark);
    uint8_t token[600];
    rf_cursor cursor = {.key = {key.bytes, 8}, .token = {token, sizeof(token)}};
    memset(token, mark, sizeof(token));
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_acquire(store, rf_now(store), &tenant, run, 1, 5, RF_BOUND, &grant, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_complete(store, rf_now(store), &tenant, &grant.lease, &cursor,
                                         rf_new_op(store), NULL));
}

static uint32_t readings;

/* Between a reader's look at the record and at its bytes, the run goes away and another one writes
 * into the block. */
static void overtake(const char *point)
{
    rf_tenant tenant = farm_tenant(1);
    if (strcmp(point, "record.reading") != 0 || readings++ != 0) {
        return;
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(store, rf_now(store), &tenant, 1, 2, NULL));
    TEST_ASSERT_EQUAL(RF_OK, rf_purge_run(store, rf_now(store), &tenant, 1, NULL));
    write_token(2, 200);
}

static bool see_token(void *context, const rf_shard_info *info)
{
    (void)info;
    *(bool *)context = true;
    return true;
}

static void a_reading_that_a_purge_overtakes_finds_nothing(void)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(1);
    rf_shard_info info;
    rf_progress progress;
    bool seen = false;
    for (unsigned kind = 0; kind < 3; kind++) {
        rf_store *reader = crew_open(scene->store, &(rf_options){.read_only = true});
        make_run(1);
        make_run(2); /* in records of its own: only the block is taken over */
        write_token(1, 100);
        readings = 0;
        rf_point_on_hit = overtake;
        rf_status status =
            kind == 0 ? rf_get_shard(reader, &tenant, 1, 1, &info, scratch, sizeof(scratch), NULL)
            : kind == 1
                ? rf_list_shards(reader, rf_now(reader), &tenant, 1, RF_LIST_ALL, see_token, &seen,
                                 NULL)
                : rf_get_progress(reader, rf_now(reader), &tenant, 1, &progress, NULL, NULL);
        rf_point_on_hit = NULL;
        TEST_ASSERT_NOT_EQUAL(0, readings);
        TEST_ASSERT_EQUAL(kind == 0 ? RF_NOT_FOUND : RF_RUN_NOT_FOUND, status);
        TEST_ASSERT_FALSE(seen);
        TEST_ASSERT_EQUAL(RF_OK, rf_cancel_run(store, rf_now(store), &tenant, 2, 2, NULL));
        TEST_ASSERT_EQUAL(RF_OK, rf_purge_run(store, rf_now(store), &tenant, 2, NULL));
        rf_close(reader);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_purge_waits_for_who_is_inside_at_taking);
    RUN_TEST(a_purge_waits_for_who_is_inside_at_prepared);
    RUN_TEST(a_purge_waits_for_who_is_inside_at_committed);
    RUN_TEST(a_reading_that_a_purge_overtakes_finds_nothing);
    return UNITY_END();
}
