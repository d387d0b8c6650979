#include "judge.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "box.h"
#include "fsck.h"

#define PATIENCE_NS (10 * RF_SECOND)
#define OTHER_RUN   (SCENE_RUN + 1)

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
    /* Whoever waits for the disk is answered when it is there, also if somebody else had done it. */
    if (status == RF_OK && j->options.durability == RF_WAIT &&
        (scene->traits & (SCENE_FORGETS | SCENE_UNORDERED)) == 0) {
        CLAIM(result.epoch != 0 && result.epoch <= rf_durable(j->store),
              "called again, and answered before it was durable");
    }
}

static void claim_state_after(struct rf_judge *j)
{
    struct picture now;
    take_picture(j, &now);
    CLAIM(strcmp(now.text, j->after.text) == 0, picture_difference(&now, &j->after));
    picture_free(&now);
}

/* --- somebody who has nothing to do with it --- */

/* Before the dead are settled he takes some of everything: blocks of every size, a run slot, a leaf, an extent, places
 * in the index. What the dead had named and not yet taken may be his from now on. */
static void pass_by(struct rf_judge *j)
{
    static uint8_t bytes[RF_METADATA_MAX];
    static const size_t sizes[] = {200, 400, 900, 1800, 3600, 7200, RF_METADATA_MAX};
    static char names[8][2] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    const rf_run_config config = {.lease_duration = SCENE_DURATION};
    rf_result result = {.durability = j->durable ? RF_NOWAIT : 0};
    rf_shard_input shards[7];
    for (unsigned i = 0; i < 7; i++) {
        shards[i] = rf_input_of(i + 1, names[i], names[i + 1]);
        shards[i].spec.metadata = rf_bytes_of(bytes, sizes[i]);
    }
    claim_status(j,
                 rf_create_run_with_shards(j->store, SCENE_LOOK, &j->tenant, OTHER_RUN, &config,
                                           shards, 7, 0x4e4, &result),
                 "making another run beside the dead");
}

static void pass_on(struct rf_judge *j)
{
    rf_status status = rf_cancel_run(j->store, SCENE_LATE, &j->tenant, OTHER_RUN, 0xe4e, NULL);
    claim_status(j, status, "ending the other run");
    claim_status(j, rf_purge_run(j->store, SCENE_LATE, &j->tenant, OTHER_RUN, NULL),
                 "purging the other run");
}

/* --- going on --- */

#define FEW 8u

struct few {
    struct {
        uint64_t id, fence;
    } shard[FEW];
    uint32_t count;
    uint32_t seen;
};

static bool add_few(void *context, const rf_shard_info *s)
{
    struct few *few = context;
    uint32_t i = few->seen++;
    i = i < FEW ? i : FEW / 2 + i % (FEW / 2);
    few->shard[i].id = s->shard;
    few->shard[i].fence = s->fence;
    few->count = few->seen < FEW ? few->seen : FEW;
    return true;
}

static void give_back(struct rf_judge *j, uint64_t now, const rf_lease *lease, uint64_t op)
{
    rf_result result = {.durability = j->durable ? RF_NOWAIT : 0};
    claim_status(j, rf_release(j->store, now, &j->tenant, lease, NULL, op, &result),
                 "releasing a shard");
}

/* Grants of some of its shards to somebody new, who gives them back. S11: no fence twice, and none that is not
 * above `least`. */
static void work_on_some(struct rf_judge *j, uint64_t least)
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
        CLAIM(fence > least && fence > few.shard[i].fence &&
                  (id != j->lease.shard || fence > j->lease.fence),
              "S11: a fence was granted twice, or went down");
        give_back(j, now, &play.grant.lease, 0x500u + i);
    }
}

/* Claims find what is available, and then say that there is nothing. */
static void claim_what_is_there(struct rf_judge *j, const rf_run_info *run)
{
    rf_lease leases[FEW];
    rf_capacity capacity;
    struct play play = new_play(j);
    uint64_t now = 2 * SCENE_LATE, count = 0;
    rf_status status = rf_sweep(j->store, now, &j->tenant, SCENE_RUN, NULL);
    if (status == RF_OK) {
        status = rf_get_capacity(j->store, &j->tenant, SCENE_RUN, &capacity, NULL);
    }
    claim_status(j, status, "looking for what is available");
    if (run->config.has_max_retries) {
        return; /* a claim may park it */
    }
    for (; count < FEW && status == RF_OK; count += status == RF_OK) {
        status = rf_claim(j->store, now, &j->tenant, SCENE_RUN, 1000 + count, RF_BOUND, 0,
                          &play.grant, NULL);
        leases[count] = play.grant.lease;
    }
    uint64_t expected = capacity.available < FEW ? capacity.available : FEW;
    if (count != expected || (count < FEW && status != RF_NONE_AVAILABLE)) {
        snprintf(j->words, sizeof(j->words),
                 "%" PRIu64 " shards are available, claims got %" PRIu64 " and %s",
                 capacity.available, count, rf_status_name(status));
        blame(j, j->words);
    }
    for (uint64_t i = 0; i < count; i++) {
        give_back(j, now, &leases[i], 0x600u + i);
    }
}

/* Ends and purges the run; then everything is as it was before the scene. */
static void strike(struct rf_judge *j)
{
    rf_run_info run;
    rf_status status = rf_get_run(j->store, &j->tenant, SCENE_RUN, &run, NULL);
    uint64_t least = 0;
    if (status == RF_RUN_NOT_FOUND) {
        const rf_run_config config = {.lease_duration = SCENE_DURATION};
        const rf_shard_input shards[2] = {rf_input_of(1, "a", "h"), rf_input_of(2, "h", "p")};
        status = rf_create_run_with_shards(j->store, SCENE_LATE, &j->tenant, SCENE_RUN, &config,
                                           shards, 2, 0x4e3, NULL);
        claim_status(j, status, "using the run's name again");
        run.status = RF_RUN_ACTIVE;
        run.config = config;
        least = j->before.highest_fence; /* of the run that is gone */
    }
    if (run.status == RF_RUN_INITIALIZING || run.status == RF_RUN_ACTIVE) {
        if (run.status == RF_RUN_ACTIVE) {
            work_on_some(j, least);
            claim_what_is_there(j, &run);
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
        if (how == RF_BY_PASSING) {
            pass_by(j);
        }
        settle(j);
        claim_sound(j); /* before anything else is done, which might make good what is wrong */
        *done = compare(j, &j->before, &j->after, j->told_apart);
        claim_sound(j);
        if (how == RF_BY_READING) {
            leave(j);
            return NULL;
        }
        if (how == RF_BY_PASSING) {
            pass_on(j);
            claim_sound(j);
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

/* Also those fences count of which the log may know nothing. */
static void work_on_active(struct rf_judge *j)
{
    rf_run_info run;
    uint64_t before = j->before.highest_fence, after = j->after.highest_fence;
    rf_status status = rf_get_run(j->store, &j->tenant, SCENE_RUN, &run, NULL);
    if (status == RF_OK && run.status == RF_RUN_ACTIVE) {
        work_on_some(j, before > after ? before : after);
        claim_what_is_there(j, &run);
    } else if (status != RF_RUN_NOT_FOUND) {
        claim_status(j, status, "looking at the run");
    }
}

const char *rf_judge_cold(struct rf_judge *j, int *done)
{
    if (setjmp(j->wrong) != 0) {
        return j->words;
    }
    enter(j);
    *done = compare(j, &j->cold[0], &j->cold[1], j->cold_apart);
    claim_sound(j);
    work_on_active(j);
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
