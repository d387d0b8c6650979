#include "judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fsck.h"

#define PATIENCE_NS (10 * RF_SECOND)

#define CLAIM(condition, what)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            blame(j, what);                                                                        \
        }                                                                                          \
    } while (0)

__attribute__((noreturn)) static void blame(struct rf_judge *j, const char *what)
{
    if (what != j->words) {
        snprintf(j->words, sizeof(j->words), "%s", what);
    }
    longjmp(j->wrong, 1);
}

static void claim_status(struct rf_judge *j, rf_status status, const char *what)
{
    if (status != RF_OK) {
        snprintf(j->words, sizeof(j->words), "%s: %s", what, rf_status_name(status));
        blame(j, j->words);
    }
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

static struct play new_play(struct rf_judge *j)
{
    return (struct play){.store = j->store,
                         .name = j->directory,
                         .tenant = j->tenant,
                         .flags = RF_DETACHED,
                         .lease = j->lease,
                         .grant = {.scratch = j->scratch, .scratch_size = sizeof(j->scratch)}};
}

static rf_inspection inspect(struct rf_judge *j)
{
    rf_inspection seen;
    claim_status(j, rf_inspect(j->store, &seen, NULL), "inspecting");
    return seen;
}

static void enter(struct rf_judge *j)
{
    rf_detail detail = {0};
    rf_status status = rf_open(j->directory, &j->options, &j->store, &detail);
    if (status != RF_OK) {
        snprintf(j->words, sizeof(j->words), "the survivor can't attach: %s, %s",
                 rf_status_name(status), detail.where);
        blame(j, j->words);
    }
}

static void settle(struct rf_judge *j)
{
    uint64_t until = now_ns() + PATIENCE_NS;
    while (rf_tend(j->store, SCENE_LOOK) != RF_OK || inspect(j).dead_members != 0) {
        CLAIM(now_ns() < until, "the dead are not settled");
    }
}

static void take_picture_with(struct rf_judge *j, struct picture *p, bool versions)
{
    uint64_t now = (j->scene->traits & SCENE_LATE_LOOK) != 0 ? SCENE_LATE : SCENE_LOOK;
    rf_status status = picture_take(p, j->store, &j->tenant, SCENE_RUN, now, j->floor, versions);
    claim_status(j, status, "looking at the run");
    CLAIM(p->broken[0] == 0, p->broken);
}

static void take_picture(struct rf_judge *j, struct picture *p)
{
    take_picture_with(j, p, (j->scene->traits & SCENE_UNCOUNTED) == 0);
}

static void claim_sound(struct rf_judge *j)
{
    const char *why = rf_fsck(j->store);
    CLAIM(why == NULL, why);
}

/* Which of the two it is; -1 if they are the same. */
static int compare(struct rf_judge *j, struct picture *before, struct picture *after, bool apart)
{
    struct picture now;
    take_picture(j, &now);
    bool undone = strcmp(now.text, before->text) == 0;
    bool done = strcmp(now.text, after->text) == 0;
    if (!undone && !done) {
        int n = snprintf(j->words, sizeof(j->words), "neither before nor after. Before:%s\nAfter:",
                         picture_difference(&now, before));
        snprintf(j->words + n, sizeof(j->words) - (size_t)n, "%s", picture_difference(&now, after));
        blame(j, j->words);
    }
    picture_free(&now);
    return apart ? done : -1;
}

static bool lease_lost(const struct rf_judge *j)
{
    return j->bound && (j->scene->traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
}

/* The same call by the survivor. done: -1, either. */
static void call_again(struct rf_judge *j, int done)
{
    struct play play = new_play(j);
    rf_result result = {0};
    const struct scene *scene = j->scene;
    bool lost = lease_lost(j), forgotten = lost && (scene->traits & SCENE_FORGETS) != 0;
    if ((scene->traits & (SCENE_OPENS | SCENE_PROCESS)) != 0) {
        return;
    }
    rf_status status = scene->act(&play, &result);
    const struct answer *if_done = forgotten ? &scene->if_lost : &scene->if_done;
    const struct answer *if_undone = lost ? &scene->if_lost : &scene->if_undone;
    bool as_done = status == if_done->status && (status != RF_OK || if_done->outcome < 0 ||
                                                 (int)result.outcome == if_done->outcome);
    bool as_undone = status == if_undone->status && (status != RF_OK || if_undone->outcome < 0 ||
                                                     (int)result.outcome == if_undone->outcome);
    /* It had not come to its cooldown yet. */
    bool early = done != 1 && status == RF_OK && (scene->traits & SCENE_COOLDOWN) != 0;
    if (!early && !((done != 0 && as_done) || (done != 1 && as_undone))) {
        snprintf(j->words, sizeof(j->words), "called again though it was %s: %s, %s",
                 done < 0    ? "done or not"
                 : done != 0 ? "done"
                             : "not done",
                 rf_status_name(status), result.outcome == RF_REPLAYED ? "replayed" : "executed");
        blame(j, j->words);
    }
}

static void claim_state_after(struct rf_judge *j)
{
    struct picture now;
    take_picture(j, &now);
    CLAIM(strcmp(now.text, j->after.text) == 0, picture_difference(&now, &j->after));
    picture_free(&now);
}

/* --- going on --- */

struct few {
    struct {
        uint64_t id, fence;
    } shard[8];
    uint32_t count;
    uint32_t seen;
};

static bool add_few(void *context, const rf_shard_info *s)
{
    struct few *few = context;
    uint32_t i = few->seen++;
    i = i < 8 ? i : 4 + i % 4;
    few->shard[i].id = s->shard;
    few->shard[i].fence = s->fence;
    few->count = few->seen < 8 ? few->seen : 8;
    return true;
}

/* Grants of some of its shards to somebody new, who gives them back. S11: no fence twice. */
static void work_on_some(struct rf_judge *j)
{
    struct few few = {0};
    uint64_t now = 2 * SCENE_LATE;
    claim_status(
        j, rf_list_shards(j->store, now, &j->tenant, SCENE_RUN, RF_LIST_ALL, add_few, &few, NULL),
        "listing the shards");
    for (uint32_t i = 0; i < few.count; i++) {
        struct play play = new_play(j);
        uint64_t id = few.shard[i].id;
        rf_status status =
            rf_acquire(j->store, now, &j->tenant, SCENE_RUN, id, 77, RF_BOUND, &play.grant, NULL);
        if (status == RF_SHARD_TERMINAL) {
            continue;
        }
        claim_status(j, status, "acquiring a shard");
        uint64_t fence = play.grant.lease.fence;
        CLAIM(fence > few.shard[i].fence && (id != j->lease.shard || fence > j->lease.fence),
              "S11: a fence was granted twice, or went down");
        status = rf_release(j->store, now, &j->tenant, &play.grant.lease, NULL, 0x500u + i, NULL);
        claim_status(j, status, "releasing a shard");
    }
}

/* Ends and purges the run; then everything is as it was before the scene. */
static void strike(struct rf_judge *j)
{
    rf_run_info run;
    rf_status status = rf_get_run(j->store, &j->tenant, SCENE_RUN, &run, NULL);
    if (status == RF_RUN_NOT_FOUND) {
        const rf_run_config config = {.lease_duration = 5};
        status = rf_create_run(j->store, SCENE_LATE, &j->tenant, SCENE_RUN, &config, NULL);
        claim_status(j, status, "using the run's name again");
        run.status = RF_RUN_INITIALIZING;
    }
    if (run.status == RF_RUN_INITIALIZING || run.status == RF_RUN_ACTIVE) {
        if (run.status == RF_RUN_ACTIVE) {
            work_on_some(j);
        }
        status = rf_cancel_run(j->store, SCENE_LATE, &j->tenant, SCENE_RUN, 0xe4d, NULL);
        claim_status(j, status, "ending the run");
    }
    claim_status(j, rf_purge_run(j->store, SCENE_LATE, &j->tenant, SCENE_RUN, NULL),
                 "purging the run");
    claim_sound(j);
    rf_inspection seen = inspect(j);
    CLAIM(seen.runs == j->rest.runs && seen.shards == j->rest.shards, "a run leaked");
    CLAIM(seen.extents == j->rest.extents && seen.leaves == j->rest.leaves,
          "an extent or a leaf leaked");
    CLAIM(seen.blocks == j->rest.blocks, "a block leaked");
    CLAIM(seen.members == j->members + 1 && seen.dead_members == 0, "a member slot leaked");
}

static void leave(struct rf_judge *j)
{
    rf_store *store = j->store;
    j->store = NULL;
    claim_status(j, rf_close(store), "closing");
}

const char *rf_judge(struct rf_judge *j, enum rf_settling how, int *done)
{
    if (setjmp(j->wrong) != 0) {
        return j->words;
    }
    *done = -1;
    enter(j);
    if (how == RF_BY_MEETING) {
        call_again(j, -1);
        settle(j);
    } else {
        settle(j);
        claim_sound(j); /* before anything else is done, which might make good what is wrong */
        *done = compare(j, &j->before, &j->after, j->told_apart);
        claim_sound(j);
        if (how == RF_BY_READING) {
            leave(j);
            return NULL;
        }
        call_again(j, *done);
    }
    if (j->scene->same && !lease_lost(j)) {
        claim_state_after(j);
    }
    strike(j);
    leave(j);
    return NULL;
}

static void compare_with_reference(struct rf_judge *j, const struct picture *reference,
                                   const struct picture *or_this)
{
    struct picture now;
    take_picture_with(j, &now, false);
    if (strcmp(now.text, reference->text) != 0 &&
        (or_this == NULL || strcmp(now.text, or_this->text) != 0)) {
        snprintf(j->words, sizeof(j->words), "not what the model says; the store and the model:%s",
                 picture_difference(&now, reference));
        blame(j, j->words);
    }
    picture_free(&now);
}

const char *rf_judge_look(struct rf_judge *j, struct picture *picture,
                          const struct picture *reference, const struct picture *or_this)
{
    if (setjmp(j->wrong) != 0) {
        return j->words;
    }
    enter(j);
    settle(j);
    take_picture(j, picture);
    if (reference != NULL) {
        compare_with_reference(j, reference, or_this);
    }
    claim_sound(j);
    leave(j);
    return NULL;
}

const char *rf_judge_cold(struct rf_judge *j, int *done)
{
    if (setjmp(j->wrong) != 0) {
        return j->words;
    }
    enter(j);
    *done = compare(j, &j->cold[0], &j->cold[1], j->cold_apart);
    claim_sound(j);
    leave(j);
    return NULL;
}

const char *rf_judge_settled_look(struct rf_judge *j)
{
    if (setjmp(j->wrong) != 0) {
        return j->words;
    }
    enter(j);
    take_picture_with(j, &j->settled[j->settled_count++], false);
    claim_sound(j);
    leave(j);
    return NULL;
}

static void compare_settled(struct rf_judge *j, int done)
{
    struct picture now;
    bool known = false;
    take_picture_with(j, &now, false);
    for (unsigned i = 0; i < j->settled_count && !known; i++) {
        bool allowed = done < 0 || i == (done != 0 ? 3u : 1u);
        known = allowed && strcmp(now.text, j->settled[i].text) == 0;
    }
    if (!known) {
        snprintf(j->words, sizeof(j->words), "cold, %s: %s",
                 done < 0    ? "neither before nor after"
                 : done != 0 ? "not as it was after it was done"
                             : "not as it was before",
                 picture_difference(&now, &j->settled[done == 0 ? 1 : 3]));
        blame(j, j->words);
    }
    picture_free(&now);
}

const char *rf_judge_settled(struct rf_judge *j, int done)
{
    if (setjmp(j->wrong) != 0) {
        return j->words;
    }
    enter(j);
    compare_settled(j, done);
    claim_sound(j);
    leave(j);
    return NULL;
}

void rf_judge_drop(struct rf_judge *j)
{
    for (unsigned i = 0; i < j->settled_count; i++) {
        picture_free(&j->settled[i]);
    }
    picture_free(&j->before);
    picture_free(&j->after);
    picture_free(&j->cold[0]);
    picture_free(&j->cold[1]);
}
