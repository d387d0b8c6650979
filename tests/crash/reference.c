/*
 * Here the scenes are compiled once more, and the calls that they make are the model's: with these names the
 * public header declares them, and the compiler sees to it that they are called as the library is.
 */
#define rf_open                   reference_open
#define rf_close                  reference_close
#define rf_inspect                reference_inspect
#define rf_sweep                  reference_sweep
#define rf_acquire                reference_acquire
#define rf_claim                  reference_claim
#define rf_renew                  reference_renew
#define rf_checkpoint             reference_checkpoint
#define rf_complete               reference_complete
#define rf_park                   reference_park
#define rf_release                reference_release
#define rf_split_replace          reference_split_replace
#define rf_split_residual         reference_split_residual
#define rf_unpark                 reference_unpark
#define rf_create_run             reference_create_run
#define rf_register_shards        reference_register_shards
#define rf_create_run_with_shards reference_create_run_with_shards
#define rf_add_shards             reference_add_shards
#define rf_complete_run           reference_complete_run
#define rf_fail_run               reference_fail_run
#define rf_cancel_run             reference_cancel_run
#define rf_purge_run              reference_purge_run
#define scenes                    reference_scenes
#define scene_count               reference_scene_count
#define scene_by_name             reference_scene_by_name
#define scene_options             reference_scene_options
#include "../support/scenes.c"

#include "model.h"
#include "reference.h"

#define NOBODY    0u
#define ACTOR     1u
#define BYSTANDER 2u

static struct model model;
static uint64_t member;
static struct model_answer answer;

static rf_status tell(rf_status status, rf_result *result)
{
    if (result != NULL) {
        result->outcome = answer.outcome;
    }
    return status;
}

static rf_status grant(rf_status status, uint64_t run, uint64_t worker, rf_grant *granted,
                       rf_result *result)
{
    if (status == RF_OK) {
        granted->lease = (rf_lease){.run = run,
                                    .shard = answer.granted->shard,
                                    .worker = worker,
                                    .fence = answer.granted->fence,
                                    .deadline = answer.granted->deadline};
    }
    return tell(status, result);
}

/* --- what has no meaning to the protocol --- */

rf_status rf_open(const char *store, const rf_options *options, rf_store **out, rf_detail *detail)
{
    (void)store, (void)options, (void)out, (void)detail;
    return RF_OK;
}

rf_status rf_close(rf_store *store)
{
    (void)store;
    return RF_OK;
}

rf_status rf_inspect(rf_store *store, rf_inspection *inspection, rf_detail *detail)
{
    (void)store, (void)detail;
    *inspection = (rf_inspection){0};
    return RF_OK;
}

rf_status rf_sweep(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                   rf_detail *detail)
{
    (void)store, (void)now, (void)tenant, (void)run, (void)detail;
    return RF_OK;
}

/* --- the calls --- */

rf_status rf_acquire(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                     uint64_t shard, uint64_t worker, uint32_t flags, rf_grant *granted,
                     rf_result *result)
{
    (void)store;
    uint64_t holder = flags == RF_DETACHED ? NOBODY : member;
    return grant(model_acquire(&model, now, tenant, run, shard, worker, holder, &answer), run,
                 worker, granted, result);
}

rf_status rf_claim(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                   uint64_t worker, uint32_t flags, uint64_t timeout, rf_grant *granted,
                   rf_result *result)
{
    (void)store, (void)timeout;
    uint64_t holder = flags == RF_DETACHED ? NOBODY : member;
    return grant(model_claim(&model, now, tenant, run, worker, holder, &answer), run, worker,
                 granted, result);
}

rf_status rf_renew(rf_store *store, uint64_t now, const rf_tenant *tenant, rf_lease *lease,
                   rf_result *result)
{
    (void)store;
    return tell(model_renew(&model, now, tenant, lease, &answer), result);
}

rf_status rf_checkpoint(rf_store *store, uint64_t now, const rf_tenant *tenant,
                        const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                        rf_result *result)
{
    (void)store;
    return tell(model_checkpoint(&model, now, tenant, lease, cursor, op, &answer), result);
}

rf_status rf_complete(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      const rf_cursor *cursor, uint64_t op, rf_result *result)
{
    (void)store;
    return tell(model_complete(&model, now, tenant, lease, cursor, op, &answer), result);
}

rf_status rf_park(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                  rf_park_reason reason, uint64_t op, rf_result *result)
{
    (void)store;
    return tell(model_park(&model, now, tenant, lease, reason, op, &answer), result);
}

rf_status rf_release(rf_store *store, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                     const rf_cursor *cursor, uint64_t op, rf_result *result)
{
    (void)store;
    return tell(model_release(&model, now, tenant, lease, cursor, op, &answer), result);
}

rf_status rf_split_replace(rf_store *store, uint64_t now, const rf_tenant *tenant,
                           const rf_lease *lease, const rf_child *children, uint32_t count,
                           uint64_t op, uint64_t *ids, rf_result *result)
{
    (void)store, (void)ids;
    return tell(model_split_replace(&model, now, tenant, lease, children, count, op, &answer),
                result);
}

rf_status rf_split_residual(rf_store *store, uint64_t now, const rf_tenant *tenant,
                            const rf_lease *lease, const rf_spec *parent_new,
                            const rf_spec *residual, uint64_t op, uint64_t *id, rf_result *result)
{
    (void)store, (void)id;
    return tell(model_split_residual(&model, now, tenant, lease, parent_new, residual, op, &answer),
                result);
}

rf_status rf_unpark(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                    uint64_t shard, uint64_t op, rf_result *result)
{
    (void)store;
    return tell(model_unpark(&model, now, tenant, run, shard, op, &answer), result);
}

rf_status rf_create_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        const rf_run_config *run_config, rf_result *result)
{
    (void)store;
    return tell(model_create_run(&model, now, tenant, run, run_config, &answer), result);
}

rf_status rf_register_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             const rf_shard_input *shards, uint32_t count, uint64_t op,
                             rf_result *result)
{
    (void)store;
    return tell(model_register_shards(&model, now, tenant, run, shards, count, op, &answer),
                result);
}

rf_status rf_create_run_with_shards(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                    uint64_t run, const rf_run_config *run_config,
                                    const rf_shard_input *shards, uint32_t count, uint64_t op,
                                    rf_result *result)
{
    (void)store;
    return tell(model_create_run_with_shards(&model, now, tenant, run, run_config, shards, count,
                                             op, &answer),
                result);
}

rf_status rf_add_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        const rf_shard_input *shards, uint32_t count, uint64_t op,
                        rf_result *result)
{
    (void)store;
    return tell(model_add_shards(&model, now, tenant, run, shards, count, op, &answer), result);
}

static rf_status end_run(uint64_t now, const rf_tenant *tenant, uint64_t run, rf_run_op_kind kind,
                         uint64_t op, rf_result *result)
{
    return tell(model_end_run(&model, now, tenant, run, kind, op, &answer), result);
}

rf_status rf_complete_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          uint64_t op, rf_result *result)
{
    (void)store;
    return end_run(now, tenant, run, RF_RUN_OP_COMPLETE, op, result);
}

rf_status rf_fail_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                      uint64_t op, rf_result *result)
{
    (void)store;
    return end_run(now, tenant, run, RF_RUN_OP_FAIL, op, result);
}

rf_status rf_cancel_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t op, rf_result *result)
{
    (void)store;
    return end_run(now, tenant, run, RF_RUN_OP_CANCEL, op, result);
}

rf_status rf_purge_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       rf_result *result)
{
    (void)store;
    return tell(model_purge_run(&model, now, tenant, run, &answer), result);
}

/* --- what the model shows --- */

static uint32_t ring_of(rf_ring_entry *to, const struct model_entry *ring, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        to[i] = (rf_ring_entry){.op = ring[i].op,
                                .executed_at = ring[i].executed_at,
                                .kind = ring[i].kind,
                                .result = RF_RESULT_COMPLETED};
    }
    return count;
}

/* A range's bytes are there, if only as none. */
static rf_bytes bytes_of(const struct model_bytes *b)
{
    return b->present ? model_view(b) : rf_bytes_of("", 0);
}

static void show_shard(rf_shard_info *to, const struct model_shard *s)
{
    *to = (rf_shard_info){.shard = s->shard,
                          .status = s->status,
                          .has_reason = s->has_reason,
                          .reason = s->reason,
                          .semantics = s->semantics,
                          .spec = {.start = bytes_of(&s->start),
                                   .end = bytes_of(&s->end),
                                   .metadata = bytes_of(&s->metadata)},
                          .cursor = {.key = model_view(&s->key), .token = model_view(&s->token)},
                          .leased = s->leased,
                          .owner = s->owner,
                          .deadline = s->deadline,
                          .fence = s->fence,
                          .has_parent = s->has_parent,
                          .parent = s->parent,
                          .spawned = s->spawned,
                          .spawned_count = s->spawned_count,
                          .attempts = s->attempts};
    to->ring_count = ring_of(to->ring, s->ring, s->ring_count);
}

static int by_start_and_id(const void *a, const void *b)
{
    const rf_shard_info *x = a, *y = b;
    int order = model_compare(x->spec.start, y->spec.start);
    return order != 0 ? order : (x->shard > y->shard) - (x->shard < y->shard);
}

static void draw(struct picture *p, const rf_tenant *tenant, uint64_t now)
{
    static rf_shard_info shown[2048];
    const struct model_run *r = model_find_run(&model, tenant, SCENE_RUN);
    struct picture_facts facts = {.shards = shown};
    if (r == NULL) {
        picture_draw(p, NULL, 0);
        return;
    }
    facts.count = r->count;
    for (uint32_t i = 0; i < r->count; i++) {
        show_shard(&shown[i], &r->shards[i]);
    }
    if (r->count != 0) {
        qsort(shown, r->count, sizeof(*shown), by_start_and_id);
    }
    model_progress(r, now, &facts.progress, &facts.watermark);
    model_capacity(r, now, &facts.capacity.available, &facts.capacity.earliest_deadline);
    facts.run = (rf_run_info){.tenant = r->tenant,
                              .run = r->run,
                              .config = r->config,
                              .status = r->status,
                              .created_at = r->created_at,
                              .completed_at = r->completed_at,
                              .root_count = r->root_count,
                              .shard_count = r->count,
                              .done = facts.progress.done,
                              .split = facts.progress.split,
                              .parked = facts.progress.parked};
    facts.run.ring_count = ring_of(facts.run.ring, r->ring, r->ring_count);
    picture_draw(p, &facts, 0);
}

/* The actor is dead: settled, and then in a cold open, which ends every lease. The model stays as it was. */
static void draw_both(struct picture *settled, struct picture *cold, const rf_tenant *tenant,
                      uint64_t now)
{
    struct model alive;
    model_copy(&alive, &model);
    model_owner_lost(&model, ACTOR);
    draw(settled, tenant, now);
    struct model_run *r = model_find_run(&model, tenant, SCENE_RUN);
    for (uint32_t i = 0; r != NULL && i < r->count; i++) {
        r->shards[i].leased = false;
    }
    draw(cold, tenant, now);
    model_free(&model);
    model = alive;
}

/* --- the play --- */

/* Scenes that only the stepping has, by one that is here. */
static const struct {
    const char *name, *like;
    bool acts;
} others[] = {{"reap_of_another", "checkpoint", false},
              {"checkpoint_and_flush", "checkpoint", true},
              {"snapshot", "checkpoint", false},
              {"open_cold", "checkpoint", false},
              {"open_new", "create_run", false}};

void rf_reference_play(const struct scene *scene, uint32_t flags, const rf_tenant *tenant,
                       struct rf_reference *reference)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    struct play play = {.tenant = *tenant,
                        .flags = flags,
                        .grant = {.scratch = scratch, .scratch_size = sizeof(scratch)}};
    uint64_t now = (scene->traits & SCENE_LATE_LOOK) != 0 ? SCENE_LATE : SCENE_LOOK;
    rf_options options = scene_options(scene);
    const struct scene *here = NULL;
    bool acts = true;
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(others[i].name, scene->name) == 0) {
            here = scene_by_name(others[i].like);
            acts = others[i].acts;
        }
    }
    here = here == NULL ? scene_by_name(scene->name) : here;
    model_init(&model, options.max_shards, options.max_shards, options.claim_cooldown);
    member = BYSTANDER;
    if (here->prepare != NULL) {
        here->prepare(&play);
    }
    if (strcmp(scene->name, "reap_of_another") == 0) {
        for (uint64_t shard = 1; shard <= 2; shard++) {
            must(rf_acquire(NULL, SCENE_BEGIN, tenant, SCENE_RUN, shard, WORKER, RF_BOUND,
                            &play.grant, NULL),
                 "somebody else's lease");
        }
        model_owner_lost(&model, BYSTANDER);
    }
    if (strcmp(scene->name, "open_cold") == 0) {
        rf_cursor cursor = rf_cursor_with("k", "token");
        must(rf_acquire(NULL, SCENE_BEGIN, tenant, SCENE_RUN, TARGET, WORKER, RF_DETACHED,
                        &play.grant, NULL),
             "a lease");
        must(rf_checkpoint(NULL, SCENE_BEGIN, tenant, &play.grant.lease, &cursor, 11, NULL),
             "a checkpoint");
    }
    member = ACTOR;
    if (here->enter != NULL && (acts || scene->enter != NULL)) {
        here->enter(&play);
    }
    draw_both(&reference->before, &reference->cold_before, tenant, now);
    reference->status = acts ? here->act(&play, NULL) : RF_OK;
    draw_both(&reference->after, &reference->cold_after, tenant, now);
    model_free(&model);
}

void rf_reference_drop(struct rf_reference *reference)
{
    picture_free(&reference->before);
    picture_free(&reference->after);
    picture_free(&reference->cold_before);
    picture_free(&reference->cold_after);
}
