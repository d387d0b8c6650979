#include "run_desk.h"

#include <unity.h>

#include "status_table.h"

void rf_run_desk_open(struct rf_run_desk *desk, const rf_tenant *tenant, uint64_t run)
{
    memset(desk, 0, sizeof(*desk));
    desk->tenant = *tenant;
    desk->id = run;
    desk->now = 100;
    desk->op = 1;
    desk->config = (rf_run_config){.lease_duration = 1000};
    desk->env = (struct rf_env){.tenant_limit = UINT64_MAX, .total_limit = UINT64_MAX};
    rf_hasher_init(&desk->hasher);
}

struct visit {
    struct rf_run before;
    const struct rf_run *run;
    struct rf_call call;
    struct rf_manifest manifest;
};

static void enter(struct rf_run_desk *desk, struct visit *v, uint64_t hash)
{
    *v = (struct visit){
        .run = desk->exists ? &desk->run : NULL,
        .call = {.tenant = &desk->tenant, .now = desk->now, .op = desk->op, .hash = hash},
    };
    v->before = desk->run;
    desk->hash = hash;
    memset(&desk->step, 0xA5, sizeof(desk->step));
    memset(&desk->detail, 0, sizeof(desk->detail));
}

static void enter_with_shards(struct rf_run_desk *desk, struct visit *v, rf_run_op_kind kind,
                              const rf_shard_input *shards, uint32_t count)
{
    TEST_ASSERT_TRUE(count <= RF_RUN_DESK_SHARDS);
    rf_manifest_order_by_id(shards, count, desk->by_id);
    enter(desk, v, rf_hasher_manifest(&desk->hasher, kind, shards, count, desk->by_id));
    v->manifest = (struct rf_manifest){
        .shards = shards,
        .count = count,
        .by_id = desk->by_id,
        .by_start = desk->by_start,
        .existing = desk->existing,
        .existing_count = desk->existing_count,
    };
}

/* Field by field: the record has padding. */
static bool same(const struct rf_run *a, const struct rf_run *b)
{
    return rf_tenant_equal(&a->tenant, &b->tenant) && a->run == b->run &&
           rf_run_config_equal(&a->config, &b->config) && a->status == b->status &&
           a->created_at == b->created_at && a->completed_at == b->completed_at &&
           a->root_count == b->root_count && a->ring_count == b->ring_count &&
           a->ring_next == b->ring_next && memcmp(&a->ring, &b->ring, sizeof(a->ring)) == 0;
}

static void judge(const struct rf_run_desk *desk, const struct rf_run *was)
{
    const struct rf_run *is = &desk->run;
    const char *broken = rf_run_violation(is);
    TEST_ASSERT_NULL_MESSAGE(broken, broken);
    TEST_ASSERT_TRUE_MESSAGE(!rf_run_is_terminal(was->status), "a terminal run changed");
    TEST_ASSERT_EQUAL_UINT64(was->created_at, is->created_at);
    TEST_ASSERT_EQUAL_UINT64(was->root_count + desk->step.count, is->root_count);
    TEST_ASSERT_TRUE(rf_run_config_equal(&was->config, &is->config));
    uint32_t newest = rf_ring_newest(is->ring_next, RF_RUN_RING);
    TEST_ASSERT_EQUAL_UINT32(was->ring_next, newest);
    TEST_ASSERT_EQUAL_HEX64(desk->op, is->ring.op[newest]);
    TEST_ASSERT_TRUE(is->ring.executed_at[newest] >= desk->now);
    if (was->ring_count != 0) {
        uint32_t old = rf_ring_newest(was->ring_next, RF_RUN_RING);
        TEST_ASSERT_TRUE_MESSAGE(is->ring.executed_at[newest] >= was->ring.executed_at[old],
                                 "executed_at went down");
    }
    TEST_ASSERT_EQUAL_UINT32(was->ring_count < RF_RUN_RING ? was->ring_count + 1 : RF_RUN_RING,
                             is->ring_count);
}

static rf_status leave(struct rf_run_desk *desk, const char *op, const struct visit *v,
                       rf_status status)
{
    rf_table_note(op, status);
    TEST_ASSERT_TRUE_MESSAGE(same(&v->before, &desk->run), "written through const");
    if (status != RF_OK) {
        return status;
    }
    if (desk->step.outcome == RF_REPLAYED) {
        TEST_ASSERT_TRUE_MESSAGE(same(&desk->step.next, &desk->run), "a replay changes nothing");
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, desk->step.count, "a replay makes no shards");
        return status;
    }
    TEST_ASSERT_EQUAL(RF_EXECUTED, desk->step.outcome);
    desk->run = desk->step.next;
    rf_run_event(&desk->step, desk->now, &desk->event);
    TEST_ASSERT_EQUAL_UINT64(desk->id, desk->event.run);
    TEST_ASSERT_EQUAL_UINT64(desk->now, desk->event.time);
    TEST_ASSERT_EQUAL_UINT32(desk->step.count, desk->event.count);
    if (desk->exists) {
        judge(desk, &v->before);
    } else {
        const char *broken = rf_run_violation(&desk->run);
        TEST_ASSERT_NULL_MESSAGE(broken, broken);
        TEST_ASSERT_EQUAL_UINT64(desk->now, desk->run.created_at);
        desk->exists = true;
    }
    return status;
}

rf_status rf_run_desk_create(struct rf_run_desk *desk)
{
    struct visit v;
    enter(desk, &v, 0);
    return leave(
        desk, "create_run", &v,
        rf_run_create(v.run, &v.call, desk->id, &desk->config, &desk->step, &desk->detail));
}

rf_status rf_run_desk_register(struct rf_run_desk *desk, const rf_shard_input *shards,
                               uint32_t count)
{
    struct visit v;
    enter_with_shards(desk, &v, RF_RUN_OP_REGISTER_SHARDS, shards, count);
    return leave(
        desk, "register_shards", &v,
        rf_run_register(v.run, &v.call, &v.manifest, &desk->env, &desk->step, &desk->detail));
}

rf_status rf_run_desk_add(struct rf_run_desk *desk, const rf_shard_input *shards, uint32_t count)
{
    struct visit v;
    enter_with_shards(desk, &v, RF_RUN_OP_ADD_SHARDS, shards, count);
    return leave(desk, "add_shards", &v,
                 rf_run_add(v.run, &v.call, &v.manifest, &desk->env, &desk->step, &desk->detail));
}

rf_status rf_run_desk_create_with_shards(struct rf_run_desk *desk, const rf_shard_input *shards,
                                         uint32_t count)
{
    struct visit v;
    enter_with_shards(desk, &v, RF_RUN_OP_REGISTER_SHARDS, shards, count);
    return leave(desk, "create_run_with_shards", &v,
                 rf_run_create_with_shards(v.run, &v.call, desk->id, &desk->config, &v.manifest,
                                           &desk->env, &desk->step, &desk->detail));
}

rf_status rf_run_desk_end(struct rf_run_desk *desk, rf_run_op_kind kind)
{
    const char *op = kind == RF_RUN_OP_COMPLETE ? "complete_run"
                     : kind == RF_RUN_OP_FAIL   ? "fail_run"
                                                : "cancel_run";
    struct visit v;
    enter(desk, &v, rf_hasher_run_op(&desk->hasher, kind));
    return leave(desk, op, &v, rf_run_end(v.run, &v.call, kind, &desk->step, &desk->detail));
}
