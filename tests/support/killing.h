/*
 * Playing a scene in a process of its own that is killed at its N-th point, and looking at what the
 * survivors have left: for the tests that link the library with its points compiled in.
 *
 * The test's own process is the last survivor. Its handle has no guardian, so nothing is settled
 * unless the test says by whom: by itself, by the next operation that meets the dead one's locks, by
 * the guardian of a bystander, or by a reaper that is killed in the middle of it.
 */
#ifndef RF_TEST_KILLING_H
#define RF_TEST_KILLING_H

#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unity.h>

#include "bytes.h"
#include "fsck.h"
#include "picture.h"
#include "point.h"
#include "prng.h"
#include "scenes.h"

#define TRACE_MAX     16384u
#define PATIENCE_NS   (10 * RF_SECOND)
#define QUICK_NS      (RF_SECOND / 2) /* far below the busy timeout of a scene's store */
#define LAST_POINT    UINT32_MAX
#define BEFORE_POINTS 0u

/* --- points --- */

/* One process to be killed, in memory that outlives it. */
struct victim {
    _Atomic uint32_t ready;
    _Atomic uint32_t hits;
    _Atomic uint32_t fired;
    _Atomic uint32_t finished;
    _Atomic uint32_t gone;
    const char *where; /* literals: at the same place in every child */
    rf_lease lease;
    rf_status status;
    const char *trace[TRACE_MAX];
};

static struct {
    struct victim *victim;
    uint32_t at;     /* die at this hit */
    bool everywhere; /* in whatever thread */
} armed;
static _Thread_local bool armed_here;

static inline void die_here(void)
{
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

static inline void die_at_point(const char *name)
{
    struct victim *v = armed.victim;
    if (v == NULL || !(armed.everywhere || armed_here)) {
        return;
    }
    uint32_t n = atomic_fetch_add(&v->hits, 1) + 1;
    if (n <= TRACE_MAX) {
        v->trace[n - 1] = name;
    }
    if (n == armed.at) {
        v->where = name;
        atomic_store(&v->fired, 1);
        die_here();
    }
}

static inline void arm(struct victim *v, uint32_t at, bool everywhere)
{
    armed.at = at;
    armed.everywhere = everywhere;
    armed_here = true;
    rf_point_on_hit = die_at_point;
    armed.victim = v;
}

/* --- the theatre --- */

enum settling {
    BY_TENDING,  /* rf_tend of the survivor */
    BY_MEETING,  /* the operation is called again at once, and meets what the dead one left */
    BY_GUARDIAN, /* another process's guardian */
    BY_REAPER,   /* a reaper that may have been killed too; then rf_tend */
};

static struct {
    const struct scene *scene;
    uint32_t flags;
    bool bound;
    char name[64];
    rf_store *store; /* the survivor's */
    rf_tenant tenant;
    rf_inspection rest; /* when nothing is going on */
    uint64_t floor;     /* when the run was made */
    struct picture before, after;
    bool told_apart; /* before and after differ */
    uint32_t points; /* of an undisturbed play */
    pid_t bystander;
    struct victim *victim;
    struct victim *reaper;
    struct {
        uint64_t shard, fence;
    } fences[4096]; /* the highest ever granted */
    uint8_t scratch[RF_GRANT_SCRATCH];
} stage;

static inline uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

/* What is played, where it was cut, and what is wrong. */
static inline const char *told(const char *what)
{
    static char words[8192];
    snprintf(words, sizeof(words), "%s (%s), killed at %u %s, reaper at %u %s: %s",
             stage.scene->name, stage.bound ? "bound" : "detached", armed.at,
             stage.victim->where == NULL ? "-" : stage.victim->where,
             atomic_load(&stage.reaper->hits),
             stage.reaper->where == NULL ? "-" : stage.reaper->where, what);
    return words;
}

#define CLAIM(condition, what)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            TEST_FAIL_MESSAGE(told(what));                                                         \
        }                                                                                          \
    } while (0)

static inline struct play new_play(void)
{
    return (struct play){
        .store = stage.store,
        .name = stage.name,
        .tenant = stage.tenant,
        .flags = stage.flags,
        .lease = stage.victim->lease,
        .grant = {.scratch = stage.scratch, .scratch_size = sizeof(stage.scratch)}};
}

static inline rf_store *open_store(bool manual)
{
    rf_options options = scene_options(stage.scene);
    rf_store *store;
    rf_detail detail;
    options.manual = manual;
    rf_status status = rf_open(stage.name, &options, &store, &detail);
    if (status != RF_OK) {
        fprintf(stderr, "can't open the store: %s %s\n", rf_status_name(status), detail.where);
        abort();
    }
    return store;
}

static inline pid_t fork_player(void)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

/* The scene in this process, which does not return from it. */
static inline void play_to_the_end(uint32_t at)
{
    struct victim *v = stage.victim;
    struct play play = new_play();
    unsigned traits = stage.scene->traits;
    if ((traits & SCENE_OPENS) == 0) {
        play.store = open_store(false);
    }
    if (stage.scene->enter != NULL) {
        stage.scene->enter(&play);
    }
    v->lease = play.lease;
    if (at != BEFORE_POINTS) {
        arm(v, at, (traits & SCENE_PROCESS) != 0);
        v->status = stage.scene->act(&play, NULL);
        armed.victim = NULL;
        atomic_store(&v->finished, 1);
    }
    die_here();
}

/* Plays it in a child, to its end or to the point. */
static inline void play_and_kill(uint32_t at)
{
    int how;
    *stage.victim = (struct victim){0};
    armed.at = at;
    pid_t pid = fork_player();
    if (pid == 0) {
        play_to_the_end(at);
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &how, 0));
    CLAIM(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "did not die of the kill");
}

/* --- settling --- */

static inline rf_inspection inspect(void)
{
    rf_inspection seen;
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_inspect(stage.store, &seen, NULL));
    return seen;
}

static inline void settle_by_tending(void)
{
    uint64_t until = now_ns() + PATIENCE_NS;
    while (rf_tend(stage.store, SCENE_LOOK) != RF_OK || inspect().dead_members != 0) {
        CLAIM(now_ns() < until, "the dead are not settled by tending");
    }
}

/* With the dead it is not done: it may still be taking a purged run apart, under its lock. */
static inline void wait_for_guardian(void)
{
    uint64_t until = now_ns() + PATIENCE_NS;
    for (;;) {
        rf_inspection seen = inspect();
        if (seen.dead_members == 0 && seen.members == stage.rest.members &&
            rf_fsck(stage.store) == NULL) {
            return;
        }
        CLAIM(now_ns() < until, "the dead are not settled by a guardian");
        usleep(50);
    }
}

/* --- judging --- */

static inline uint64_t look_time(void)
{
    return (stage.scene->traits & SCENE_LATE_LOOK) != 0 ? SCENE_LATE : SCENE_LOOK;
}

static inline void take_picture(struct picture *p)
{
    rf_status status = picture_take(p, stage.store, &stage.tenant, SCENE_RUN, look_time(),
                                    stage.floor, (stage.scene->traits & SCENE_UNCOUNTED) == 0);
    CLAIM(status == RF_OK, rf_status_name(status));
    CLAIM(p->broken[0] == 0, p->broken);
}

static inline void claim_no_dangling(void)
{
    const char *why = rf_fsck(stage.store);
    CLAIM(why == NULL, why);
}

/* Whether the operation happened, by the state; -1 if the states do not tell. */
static inline int happened(void)
{
    struct picture now;
    take_picture(&now);
    bool undone = strcmp(now.text, stage.before.text) == 0;
    bool done = strcmp(now.text, stage.after.text) == 0;
    if (!undone && !done) {
        static char words[8192];
        int n = snprintf(words, sizeof(words), "neither before nor after. Before:%s\nAfter:",
                         picture_difference(&now, &stage.before));
        snprintf(words + n, sizeof(words) - (size_t)n, "%s",
                 picture_difference(&now, &stage.after));
        CLAIM(false, words);
    }
    picture_free(&now);
    return stage.told_apart ? done : -1;
}

/* By the point; -1 if it is not for the point to tell. */
static inline int must_have_happened(void)
{
    const struct victim *v = stage.victim;
    uint32_t hits = atomic_load(&v->hits);
    if ((stage.scene->traits & SCENE_UNORDERED) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < hits && i < TRACE_MAX; i++) {
        if (strcmp(v->trace[i], "lane.committed") == 0) {
            return 1;
        }
    }
    return 0;
}

/* The same call by the survivor. done: -1, either. */
static inline void call_again(int done)
{
    struct play play = new_play();
    rf_result result = {0};
    bool lost = stage.bound && (stage.scene->traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    bool forgotten = lost && (stage.scene->traits & SCENE_FORGETS) != 0;
    if ((stage.scene->traits & (SCENE_OPENS | SCENE_PROCESS)) != 0) {
        return;
    }
    play.flags = RF_DETACHED;
    rf_status status = stage.scene->act(&play, &result);
    const struct answer *if_done = forgotten ? &stage.scene->if_lost : &stage.scene->if_done;
    const struct answer *if_undone = lost ? &stage.scene->if_lost : &stage.scene->if_undone;
    bool as_done = status == if_done->status && (status != RF_OK || if_done->outcome < 0 ||
                                                 (int)result.outcome == if_done->outcome);
    bool as_undone = status == if_undone->status && (status != RF_OK || if_undone->outcome < 0 ||
                                                     (int)result.outcome == if_undone->outcome);
    static char words[128];
    snprintf(words, sizeof(words), "called again though it was %s: %s, %s",
             done < 0 ? "done or not"
             : done   ? "done"
                      : "not done",
             rf_status_name(status), result.outcome == RF_REPLAYED ? "replayed" : "executed");
    CLAIM((done != 0 && as_done) || (done != 1 && as_undone), words);
}

static inline void claim_state_after(void)
{
    struct picture now;
    take_picture(&now);
    if (strcmp(now.text, stage.after.text) != 0) {
        CLAIM(false, picture_difference(&now, &stage.after));
    }
    picture_free(&now);
}

/* --- going on --- */

static inline void note_fence(uint64_t shard, uint64_t fence)
{
    uint32_t i = (uint32_t)(shard * 0x9e3779b97f4a7c15u >> 52);
    while (stage.fences[i].shard != 0 && stage.fences[i].shard != shard) {
        i = (i + 1) % 4096;
    }
    CLAIM(fence > stage.fences[i].fence, "S11: a fence was granted twice, or went down");
    stage.fences[i].shard = shard;
    stage.fences[i].fence = fence;
}

struct few {
    uint64_t ids[8];
    uint32_t count;
    uint32_t seen;
};

static inline bool add_few(void *context, const rf_shard_info *s)
{
    struct few *few = context;
    uint32_t i = few->seen++;
    few->ids[i < 8 ? i : 4 + i % 4] = s->shard;
    few->count = few->seen < 8 ? few->seen : 8;
    return true;
}

/* Grants of some of its shards to somebody new, who gives them back. */
static inline void work_on_some(void)
{
    struct few few = {0};
    uint64_t now = 2 * SCENE_LATE;
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_list_shards(stage.store, now, &stage.tenant, SCENE_RUN,
                                                RF_LIST_ALL, add_few, &few, NULL));
    for (uint32_t i = 0; i < few.count; i++) {
        struct play play = new_play();
        rf_status status = rf_acquire(stage.store, now, &stage.tenant, SCENE_RUN, few.ids[i], 77,
                                      RF_BOUND, &play.grant, NULL);
        CLAIM(status == RF_OK || status == RF_SHARD_TERMINAL, rf_status_name(status));
        if (status == RF_OK) {
            note_fence(few.ids[i], play.grant.lease.fence);
            status = rf_release(stage.store, now, &stage.tenant, &play.grant.lease, NULL,
                                0x500u + i, NULL);
            CLAIM(status == RF_OK, "a shard can't be released");
        }
    }
}

/* Ends and purges the run; then everything is as it was before the scene. */
static inline void strike_stage(void)
{
    rf_run_info run;
    rf_status status = rf_get_run(stage.store, &stage.tenant, SCENE_RUN, &run, NULL);
    if (status == RF_RUN_NOT_FOUND) {
        const rf_run_config config = {.lease_duration = 5};
        status = rf_create_run(stage.store, SCENE_LATE, &stage.tenant, SCENE_RUN, &config, NULL);
        CLAIM(status == RF_OK, "the run's name can't be used");
        run.status = RF_RUN_INITIALIZING;
    }
    if (run.status == RF_RUN_INITIALIZING || run.status == RF_RUN_ACTIVE) {
        if (run.status == RF_RUN_ACTIVE) {
            work_on_some();
        }
        status = rf_cancel_run(stage.store, SCENE_LATE, &stage.tenant, SCENE_RUN, 0xe4d, NULL);
        CLAIM(status == RF_OK, "the run can't be ended");
    }
    status = rf_purge_run(stage.store, SCENE_LATE, &stage.tenant, SCENE_RUN, NULL);
    CLAIM(status == RF_OK, "the run can't be purged");
    claim_no_dangling();
    rf_inspection seen = inspect();
    CLAIM(seen.runs == stage.rest.runs && seen.shards == stage.rest.shards, "a run leaked");
    CLAIM(seen.extents == stage.rest.extents && seen.leaves == stage.rest.leaves,
          "an extent or a leaf leaked");
    CLAIM(seen.blocks == stage.rest.blocks, "a block leaked");
    CLAIM(seen.members == stage.rest.members && seen.dead_members == 0, "a member slot leaked");
}

/* --- one play --- */

static inline void set_stage(void)
{
    struct play play = new_play();
    stage.floor = inspect().fence_floor;
    play.lease = (rf_lease){0};
    if (stage.scene->prepare != NULL) {
        stage.scene->prepare(&play);
    }
}

/* What came of a death, and whether it happened; how: who settles it. */
static inline int judge(enum settling how)
{
    uint64_t begun = now_ns();
    int expected = must_have_happened(), done;
    if (how == BY_MEETING) {
        call_again(expected);
        CLAIM(now_ns() - begun < QUICK_NS, "had to wait for the dead");
        settle_by_tending();
        done = expected;
    } else {
        if (how == BY_GUARDIAN) {
            wait_for_guardian();
        } else {
            settle_by_tending();
        }
        done = happened();
        CLAIM(expected < 0 || done < 0 || done == expected,
              "committed and undone, or not committed and done");
        claim_no_dangling();
        call_again(done);
    }
    bool lost = stage.bound && (stage.scene->traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    if (stage.scene->same && !lost) {
        claim_state_after();
    }
    strike_stage();
    CLAIM(now_ns() - begun < PATIENCE_NS / 4, "survivors had to wait");
    return done;
}

/* The same store made anew: what is taken only once is taken again. */
static inline void renew_theatre(void)
{
    rf_close(stage.store);
    rf_status status = rf_destroy(stage.name, NULL);
    CLAIM(status == RF_OK, "the store can't be destroyed");
    memset(stage.fences, 0, sizeof(stage.fences));
    stage.store = open_store(true);
    stage.rest = inspect();
}

/* The states that it may end in, and the points on the way. */
static inline void rehearse(void)
{
    set_stage();
    play_and_kill(BEFORE_POINTS);
    settle_by_tending();
    take_picture(&stage.before);
    claim_no_dangling();
    strike_stage();

    renew_theatre();
    set_stage();
    play_and_kill(LAST_POINT);
    CLAIM(atomic_load(&stage.victim->finished) == 1, "an undisturbed play did not end");
    settle_by_tending();
    take_picture(&stage.after);
    claim_no_dangling();
    strike_stage();

    struct victim *v = stage.victim;
    stage.points = atomic_load(&v->hits);
    stage.told_apart = strcmp(stage.before.text, stage.after.text) != 0;
    uint32_t commits = 0;
    for (uint32_t i = 0; i < stage.points && i < TRACE_MAX; i++) {
        commits += strcmp(v->trace[i], "lane.committed") == 0;
    }
    CLAIM((stage.scene->traits & SCENE_UNORDERED) != 0 || commits == 1, "not one commit");
}

static inline void open_theatre(const struct scene *scene, uint32_t flags)
{
    stage.scene = scene;
    stage.flags = flags;
    stage.bound = flags == RF_BOUND;
    snprintf(stage.name, sizeof(stage.name), "points-%d", (int)getpid());
    rf_tenant_from_name("theatre", &stage.tenant);
    rf_destroy(stage.name, NULL);
    memset(stage.fences, 0, sizeof(stage.fences));
    stage.store = open_store(true);
    stage.rest = inspect();
}

static inline void close_theatre(void)
{
    if (stage.bystander > 0) {
        kill(stage.bystander, SIGKILL);
        waitpid(stage.bystander, NULL, 0);
        stage.bystander = 0;
    }
    if (stage.store != NULL) {
        rf_close(stage.store);
        stage.store = NULL;
    }
    picture_free(&stage.before);
    picture_free(&stage.after);
    rf_destroy(stage.name, NULL);
}

static inline void make_victims(void)
{
    stage.victim = mmap(NULL, 2 * sizeof(*stage.victim), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stage.victim == MAP_FAILED) {
        abort();
    }
    stage.reaper = stage.victim + 1;
}

/* With every kind of lease that the scene can be played with. */
static inline void with_leases(const struct scene *scene, void (*with)(void))
{
    bool both = (scene->traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    for (uint32_t flags = RF_BOUND; flags <= (both ? RF_DETACHED : RF_BOUND); flags++) {
        open_theatre(scene, flags);
        rehearse();
        with();
        close_theatre();
    }
}

/* One build plays everything, the plain one of gcc; the others look for what they alone can see, and
 * a sample of pairs does for that. RF_SOAK=1 plays everything in all of them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#define SLOW_BUILD (rf_env_number("RF_SOAK", 0) == 0)
#else
#define SLOW_BUILD 0
#endif

#endif
