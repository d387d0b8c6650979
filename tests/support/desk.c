#include "desk.h"

#include <unity.h>

#include "status_table.h"

rf_tenant rf_tenant_of(uint8_t byte)
{
    rf_tenant tenant;
    memset(tenant.bytes, byte, sizeof(tenant.bytes));
    return tenant;
}

void rf_desk_open(struct rf_desk *desk, struct rf_box *box)
{
    desk->box = box;
    desk->tenant = box->tenant;
    desk->now = 100;
    desk->op = 1;
    desk->lease = (rf_lease){.run = box->run, .shard = box->shard};
    desk->env = (struct rf_env){
        .lease_duration = 1000,
        .run_status = RF_RUN_ACTIVE,
        .tenant_limit = UINT64_MAX,
        .total_limit = UINT64_MAX,
    };
    rf_hasher_init(&desk->hasher);
}

/* One call: the record as the function sees it, and the call itself. */
struct visit {
    struct rf_shard view;
    struct rf_call call;
};

/* The step and the detail of an earlier call must not pass for this one's. */
static struct visit enter(struct rf_desk *desk, const rf_lease *lease, uint64_t hash)
{
    struct visit visit = {
        .call = {.tenant = &desk->tenant,
                 .now = desk->now,
                 .lease = lease,
                 .op = desk->op,
                 .hash = hash},
    };
    desk->hash = hash;
    memset(&desk->step, 0xA5, sizeof(desk->step));
    memset(&desk->detail, 0, sizeof(desk->detail));
    if (desk->box != NULL) {
        rf_box_copy(&desk->before, desk->box);
        visit.view = rf_box_view(desk->box);
    }
    return visit;
}

static void judge_ring(const struct rf_desk *desk)
{
    const struct rf_box *was = &desk->before, *is = desk->box;
    uint32_t old = rf_ring_newest(was->state.ring_next, RF_SHARD_RING);
    uint32_t newest = rf_ring_newest(is->state.ring_next, RF_SHARD_RING);
    if ((desk->step.changes & RF_CHANGED_RING) == 0) {
        TEST_ASSERT_EQUAL_MEMORY(&was->ring, &is->ring, sizeof(is->ring));
        TEST_ASSERT_EQUAL_UINT8(was->state.ring_next, is->state.ring_next);
        TEST_ASSERT_EQUAL_UINT8(was->state.ring_count, is->state.ring_count);
        return;
    }
    TEST_ASSERT_EQUAL_UINT32(was->state.ring_next, newest);
    TEST_ASSERT_EQUAL_HEX64(desk->op, is->ring.op[newest]);
    TEST_ASSERT_EQUAL_UINT8(RF_RESULT_COMPLETED, is->ring.result[newest]);
    TEST_ASSERT_TRUE_MESSAGE(is->ring.executed_at[newest] >= desk->now, "executed before now");
    if (was->state.ring_count != 0) {
        TEST_ASSERT_TRUE_MESSAGE(is->ring.executed_at[newest] >= was->ring.executed_at[old],
                                 "executed_at went down");
    }
    uint32_t expected = was->state.ring_count + 1u;
    TEST_ASSERT_EQUAL_UINT32(expected > RF_SHARD_RING ? RF_SHARD_RING : expected,
                             is->state.ring_count);
}

static void judge_fence_and_status(const struct rf_desk *desk)
{
    const struct rf_shard_state *was = &desk->before.state, *is = &desk->box->state;
    rf_event_kind event = desk->step.event;
    if (event == RF_EVENT_ACQUIRED || event == RF_EVENT_UNPARKED) {
        TEST_ASSERT_TRUE_MESSAGE(is->fence > was->fence, "a grant without a new fence");
        TEST_ASSERT_TRUE_MESSAGE(is->fence > desk->env.fence_floor, "a fence below the floor");
    } else {
        TEST_ASSERT_EQUAL_UINT64(was->fence, is->fence);
    }
    if (was->status != RF_SHARD_ACTIVE) {
        TEST_ASSERT_EQUAL_MESSAGE(RF_EVENT_UNPARKED, event, "a terminal shard changed");
        TEST_ASSERT_EQUAL_UINT8(RF_SHARD_PARKED, was->status);
    }
    bool keeps_lease = event == RF_EVENT_ACQUIRED || event == RF_EVENT_LEASE_RENEWED ||
                       event == RF_EVENT_CHECKPOINTED || event == RF_EVENT_RESIDUAL_CREATED;
    TEST_ASSERT_EQUAL((keeps_lease ? RF_SHARD_LEASED : 0), is->flags & RF_SHARD_LEASED);
    if (keeps_lease && event != RF_EVENT_ACQUIRED) {
        TEST_ASSERT_EQUAL_UINT64(was->owner, is->owner);
        TEST_ASSERT_TRUE_MESSAGE(is->deadline >= was->deadline, "a deadline was shortened");
        TEST_ASSERT_TRUE(event == RF_EVENT_LEASE_RENEWED || is->deadline == was->deadline);
    }
}

static void judge_bytes(const struct rf_desk *desk)
{
    const struct rf_box *was = &desk->before, *is = desk->box;
    if (was->has_key != 0) {
        TEST_ASSERT_TRUE_MESSAGE(is->has_key != 0, "the cursor's key was lost");
        TEST_ASSERT_TRUE_MESSAGE(rf_key_compare(rf_box_cursor(is).key, rf_box_cursor(was).key) >= 0,
                                 "the cursor's key went down");
    }
    TEST_ASSERT_TRUE(is->state.spawned_count >= was->state.spawned_count);
    TEST_ASSERT_EQUAL_INT_MESSAGE(
        0, memcmp(was->spawned, is->spawned, was->state.spawned_count * sizeof(*is->spawned)),
        "spawned ids are only appended");
    if (desk->step.event != RF_EVENT_RESIDUAL_CREATED) {
        TEST_ASSERT_EQUAL_size_t(was->end_len, is->end_len);
        TEST_ASSERT_EQUAL_INT(0, memcmp(was->end, is->end, is->end_len));
    }
    TEST_ASSERT_EQUAL_size_t(was->start_len, is->start_len);
    TEST_ASSERT_EQUAL_INT(0, memcmp(was->start, is->start, is->start_len));
    TEST_ASSERT_EQUAL_UINT8(was->state.semantics, is->state.semantics);
    TEST_ASSERT_EQUAL_HEX64(was->state.parent, is->state.parent);
}

static void judge_attempts(const struct rf_desk *desk)
{
    uint32_t was = desk->before.state.attempts, is = desk->box->state.attempts;
    switch (desk->step.event) {
    case RF_EVENT_ACQUIRED:
        TEST_ASSERT_EQUAL_UINT32(was == UINT32_MAX ? UINT32_MAX : was + 1, is);
        break;
    case RF_EVENT_CHECKPOINTED:
    case RF_EVENT_COMPLETED:
    case RF_EVENT_RELEASED:
    case RF_EVENT_UNPARKED:
        TEST_ASSERT_EQUAL_UINT32(0, is);
        break;
    default:
        TEST_ASSERT_EQUAL_UINT32(was, is);
        break;
    }
}

static void judge_event(const struct rf_desk *desk)
{
    const rf_event *e = &desk->event;
    const struct rf_shard_step *step = &desk->step;
    TEST_ASSERT_EQUAL_INT(0, memcmp(&e->tenant, &desk->box->tenant, sizeof(e->tenant)));
    TEST_ASSERT_EQUAL(step->event, e->kind);
    TEST_ASSERT_EQUAL_UINT64(desk->box->run, e->run);
    TEST_ASSERT_EQUAL_UINT64(desk->box->shard, e->shard);
    TEST_ASSERT_EQUAL_UINT64(desk->now, e->time);
    bool granted = e->kind == RF_EVENT_ACQUIRED;
    TEST_ASSERT_EQUAL_UINT64(granted ? step->next.owner : 0, e->worker);
    TEST_ASSERT_EQUAL_UINT64(granted || e->kind == RF_EVENT_UNPARKED ? step->next.fence : 0,
                             e->fence);
    TEST_ASSERT_EQUAL_UINT64(granted || e->kind == RF_EVENT_LEASE_RENEWED ? step->next.deadline : 0,
                             e->deadline);
    TEST_ASSERT_EQUAL_UINT32(step->spawned_new, e->count);
    TEST_ASSERT_EQUAL_HEX64(e->kind == RF_EVENT_RESIDUAL_CREATED ? step->spawned_ids[0] : 0,
                            e->child);
    bool moved = e->kind == RF_EVENT_CHECKPOINTED || e->kind == RF_EVENT_COMPLETED;
    TEST_ASSERT_EQUAL_UINT32(moved ? step->cursor.key.len : 0, e->key_len);
    TEST_ASSERT_EQUAL(e->kind == RF_EVENT_PARKED ? step->next.park_reason : 0, e->reason);
}

static void apply(struct rf_desk *desk, const struct rf_shard *view)
{
    const char *broken = rf_shard_step_violation(view, &desk->step);
    TEST_ASSERT_NULL_MESSAGE(broken, broken);
    rf_shard_event(view, &desk->step, desk->now, &desk->event);
    rf_box_apply(desk->box, &desk->step);
    struct rf_shard after = rf_box_view(desk->box);
    broken = rf_shard_violation(&after);
    TEST_ASSERT_NULL_MESSAGE(broken, broken);
    judge_fence_and_status(desk);
    judge_bytes(desk);
    judge_attempts(desk);
    judge_ring(desk);
    judge_event(desk);
}

static rf_status leave(struct rf_desk *desk, const char *op, const struct visit *visit,
                       rf_status status)
{
    rf_table_note(op, status);
    if (desk->box == NULL) {
        TEST_ASSERT_NOT_EQUAL(RF_OK, status);
        return status;
    }
    TEST_ASSERT_TRUE_MESSAGE(rf_box_equal(&desk->before, desk->box), "written through const");
    if (status != RF_OK) {
        return status;
    }
    if (desk->step.outcome == RF_REPLAYED) {
        TEST_ASSERT_EQUAL_UINT32_MESSAGE(0, desk->step.changes, "a replay changes nothing");
        TEST_ASSERT_EQUAL_INT_MESSAGE(
            0, memcmp(&desk->step.next, &desk->box->state, sizeof(desk->step.next)),
            "a replay changes nothing");
        return status;
    }
    TEST_ASSERT_EQUAL(RF_EXECUTED, desk->step.outcome);
    apply(desk, &visit->view);
    return status;
}

static const struct rf_shard *seen(const struct rf_desk *desk, const struct visit *visit)
{
    return desk->box == NULL ? NULL : &visit->view;
}

rf_status rf_desk_acquire(struct rf_desk *desk, uint64_t worker)
{
    struct visit v = enter(desk, NULL, 0);
    rf_status status =
        rf_shard_acquire(seen(desk, &v), &v.call, worker, &desk->env, &desk->step, &desk->detail);
    leave(desk, "acquire", &v, status);
    if (status == RF_OK) {
        desk->lease = (rf_lease){
            .run = desk->box->run,
            .shard = desk->box->shard,
            .worker = worker,
            .fence = desk->box->state.fence,
            .deadline = desk->box->state.deadline,
        };
    }
    return status;
}

rf_status rf_desk_renew(struct rf_desk *desk)
{
    struct visit v = enter(desk, &desk->lease, 0);
    rf_status status =
        rf_shard_renew(seen(desk, &v), &v.call, &desk->env, &desk->step, &desk->detail);
    leave(desk, "renew", &v, status);
    if (status == RF_OK) {
        desk->lease.deadline = desk->box->state.deadline;
    }
    return status;
}

rf_status rf_desk_checkpoint(struct rf_desk *desk, rf_cursor cursor)
{
    struct visit v = enter(desk, &desk->lease, rf_hasher_checkpoint(&desk->hasher, &cursor));
    return leave(desk, "checkpoint", &v,
                 rf_shard_checkpoint(seen(desk, &v), &v.call, &cursor, &desk->step, &desk->detail));
}

rf_status rf_desk_complete(struct rf_desk *desk, rf_cursor cursor)
{
    struct visit v = enter(desk, &desk->lease, rf_hasher_complete(&desk->hasher, &cursor));
    return leave(desk, "complete", &v,
                 rf_shard_complete(seen(desk, &v), &v.call, &cursor, &desk->step, &desk->detail));
}

rf_status rf_desk_park(struct rf_desk *desk, rf_park_reason reason)
{
    struct visit v = enter(desk, &desk->lease, rf_hasher_park(&desk->hasher, reason));
    return leave(desk, "park", &v,
                 rf_shard_park(seen(desk, &v), &v.call, reason, &desk->step, &desk->detail));
}

rf_status rf_desk_release(struct rf_desk *desk, rf_cursor cursor)
{
    struct visit v = enter(desk, &desk->lease, rf_hasher_release(&desk->hasher, &cursor));
    return leave(desk, "release", &v,
                 rf_shard_release(seen(desk, &v), &v.call, &cursor, &desk->step, &desk->detail));
}

rf_status rf_desk_split_replace(struct rf_desk *desk, const rf_child *children, uint32_t count)
{
    struct visit v =
        enter(desk, &desk->lease, rf_hasher_split_replace(&desk->hasher, children, count));
    return leave(desk, "split_replace", &v,
                 rf_shard_split_replace(seen(desk, &v), &v.call, children, count, &desk->env,
                                        &desk->hasher, &desk->scratch, &desk->step, &desk->detail));
}

rf_status rf_desk_split_residual(struct rf_desk *desk, rf_spec parent_new, rf_spec residual)
{
    struct visit v =
        enter(desk, &desk->lease, rf_hasher_split_residual(&desk->hasher, &parent_new, &residual));
    return leave(desk, "split_residual", &v,
                 rf_shard_split_residual(seen(desk, &v), &v.call, &parent_new, &residual,
                                         &desk->env, &desk->hasher, &desk->scratch, &desk->step,
                                         &desk->detail));
}

rf_status rf_desk_unpark(struct rf_desk *desk)
{
    uint64_t hash = rf_hasher_unpark(&desk->hasher, desk->lease.run, desk->lease.shard);
    struct visit v = enter(desk, NULL, hash);
    return leave(desk, "unpark", &v,
                 rf_shard_unpark(seen(desk, &v), &v.call, &desk->env, &desk->step, &desk->detail));
}

bool rf_desk_owner_lost(struct rf_desk *desk)
{
    struct visit v = enter(desk, NULL, 0);
    bool lost = rf_shard_owner_lost(&v.view, &desk->step);
    TEST_ASSERT_TRUE(rf_box_equal(&desk->before, desk->box));
    if (lost) {
        apply(desk, &v.view);
    }
    return lost;
}

void rf_desk_park_exhausted(struct rf_desk *desk)
{
    struct visit v = enter(desk, NULL, 0);
    rf_shard_park_exhausted(&v.view, &desk->step);
    apply(desk, &v.view);
}
