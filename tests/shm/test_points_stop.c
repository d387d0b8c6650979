/*
 * SIGSTOP, where it hurts: a process is stopped in the middle of an operation, holding its locks, and
 * others go on. Who needs one of these locks gets RF_BUSY with the pid of who is in the way, in a
 * bounded time; who does not need them notices nothing; readers see the old state, the new one or
 * RF_BUSY, and never something in between. After SIGCONT the operation ends as if nothing had been;
 * killed instead, it is settled without touching what others did meanwhile.
 */
#include "handle.h"
#include "index.h"
#include "killing.h"
#include "reap.h"
#include "region.h"

#define BUSY_NS    (20 * RF_MILLISECOND)
#define PATIENT_NS (100 * BUSY_NS) /* on a machine with other things to do */
#define OTHER_RUN  8u

void setUp(void)
{
}

static void end_actors(void);

void tearDown(void)
{
    end_actors();
    close_theatre();
}

/* --- processes that stop --- */

/* What a child is told, and what it tells; shared. */
struct actor {
    char point[32]; /* stop at this point, at its nth hit; empty: at the nth hit of any */
    uint32_t nth;   /* 0: don't */
    _Atomic uint32_t hits;
    _Atomic uint32_t stopped;
    _Atomic uint32_t stage; /* how far it got */
    rf_status status;
    rf_lease lease;
    pid_t pid;
};

#define ACTORS 3u
static struct actor *actors;
static struct actor *me;

static void stop_at_point(const char *name)
{
    if (me == NULL || me->nth == 0 || !(armed.everywhere || armed_here) ||
        (me->point[0] != 0 && strcmp(me->point, name) != 0)) {
        return;
    }
    if (atomic_fetch_add(&me->hits, 1) + 1 == me->nth) {
        atomic_store(&me->stopped, 1);
        raise(SIGSTOP); /* to this thread: it is the one to stop here */
    }
}

static rf_store *open_impatient(bool manual)
{
    rf_options options = scene_options(stage.scene);
    rf_store *store;
    options.manual = manual;
    options.busy_timeout = BUSY_NS;
    if (rf_open(stage.name, &options, &store, NULL) != RF_OK) {
        abort();
    }
    return store;
}

static void prepare_actor(struct actor *a, const char *point, uint32_t nth)
{
    *a = (struct actor){.nth = nth};
    snprintf(a->point, sizeof(a->point), "%s", point);
}

/* A child that works as `body` says, with points that stop it. */
static void start_actor(struct actor *a, void (*body)(void))
{
    pid_t pid = fork_player();
    if (pid == 0) {
        me = a;
        rf_point_on_hit = stop_at_point;
        body();
        die_here();
    }
    a->pid = pid;
}

/* Whether it stopped; otherwise it has ended. */
static bool stopped(struct actor *a)
{
    int how;
    TEST_ASSERT_EQUAL_INT(a->pid, waitpid(a->pid, &how, WUNTRACED));
    if (!WIFSTOPPED(how)) {
        a->pid = 0;
    }
    return WIFSTOPPED(how);
}

static void wait_stopped(struct actor *a)
{
    CLAIM(stopped(a), "an actor ended before it stopped");
}

/* Until it has reached a stage of its part. */
static void wait_stage(const struct actor *a, uint32_t reached)
{
    uint64_t until = now_ns() + PATIENCE_NS;
    while (atomic_load(&a->stage) < reached) {
        CLAIM(now_ns() < until, "an actor does not get on");
        usleep(100);
    }
}

static void end_actor(struct actor *a)
{
    if (a->pid > 0) {
        kill(a->pid, SIGKILL);
        waitpid(a->pid, NULL, 0);
        a->pid = 0;
    }
}

static void end_actors(void)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        end_actor(&actors[i]);
    }
}

static void go_on(const struct actor *a)
{
    kill(a->pid, SIGCONT);
}

static void wait_end(struct actor *a)
{
    int how;
    TEST_ASSERT_EQUAL_INT(a->pid, waitpid(a->pid, &how, 0));
    a->pid = 0;
    CLAIM(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "an actor did not end as it should");
}

/* The scene, stopped where the actor is told to. */
static void play_part(void)
{
    struct play play = new_play();
    unsigned traits = stage.scene->traits;
    play.store = open_store(false);
    if (stage.scene->enter != NULL) {
        stage.scene->enter(&play);
    }
    stage.victim->lease = play.lease;
    armed.everywhere = (traits & SCENE_PROCESS) != 0;
    armed_here = true;
    me->status = stage.scene->act(&play, NULL);
    atomic_store(&me->stage, 1);
}

/* --- every point: readers --- */

static const struct scene *playing;

/* The states before and after, without times to look at and without settling. */
static void peek_into(struct picture *p)
{
    rf_status status =
        picture_peek(p, stage.store, &stage.tenant, SCENE_RUN, SCENE_LOOK, stage.floor);
    CLAIM(status == RF_OK, rf_status_name(status));
    CLAIM(p->broken[0] == 0, p->broken);
}

static void rehearse_reading(struct picture *before, struct picture *after)
{
    struct actor *a = &actors[0];
    set_stage();
    if (stage.scene->enter != NULL) {
        prepare_actor(a, "", 1); /* stops at the first point, before anything has changed */
        start_actor(a, play_part);
        wait_stopped(a);
        peek_into(before);
        end_actor(a);
        settle_by_tending();
    } else {
        peek_into(before);
    }
    strike_stage();
    set_stage();
    prepare_actor(a, "", UINT32_MAX);
    start_actor(a, play_part);
    wait_end(a);
    peek_into(after);
    settle_by_tending();
    strike_stage();
}

/* A reader while somebody is stopped at a point: old, new or busy. Returns whether it was busy. */
static bool read_while_stopped(const struct picture *before, const struct picture *after)
{
    struct picture now;
    uint64_t begun = now_ns();
    rf_status status =
        picture_peek(&now, stage.store, &stage.tenant, SCENE_RUN, SCENE_LOOK, stage.floor);
    CLAIM(status == RF_OK || status == RF_BUSY, rf_status_name(status));
    CLAIM(now_ns() - begun < PATIENT_NS, "a reader waited too long");
    if (status == RF_OK) {
        CLAIM(now.broken[0] == 0, now.broken);
        CLAIM(picture_is_of(&now, before, after), "a reader saw what never was");
    }
    picture_free(&now);
    return status == RF_BUSY;
}

/* Shards for a run that somebody else has just made. */
static void fill_meanwhile(void)
{
    rf_run_info run;
    rf_shard_input shard = {.shard = 5,
                            .spec = {.start = rf_bytes_of("a", 1), .end = rf_bytes_of("z", 1)}};
    if (rf_get_run(stage.store, &stage.tenant, SCENE_RUN, &run, NULL) == RF_OK &&
        run.status == RF_RUN_INITIALIZING && strcmp(stage.scene->name, "create_run") == 0) {
        rf_status status = rf_register_shards(stage.store, SCENE_LOOK, &stage.tenant, SCENE_RUN,
                                              &shard, 1, 0x3e3, NULL);
        CLAIM(status == RF_OK || status == RF_BUSY, rf_status_name(status));
    }
}

/* Whoever comes by while it is stopped may work, as far as locks allow. Returns the fence of a lease
 * on the run's last shard, or 0. */
static uint64_t work_meanwhile(rf_lease *lease)
{
    struct play play = new_play();
    struct few few = {0};
    rf_cursor cursor;
    fill_meanwhile();
    if (rf_list_shards(stage.store, SCENE_LOOK, &stage.tenant, SCENE_RUN, RF_LIST_AVAILABLE,
                       add_few, &few, NULL) != RF_OK ||
        few.count == 0) {
        return 0;
    }
    uint64_t shard = few.ids[few.count - 1];
    rf_status status = rf_acquire(stage.store, SCENE_LOOK, &stage.tenant, SCENE_RUN, shard, 55,
                                  RF_DETACHED, &play.grant, NULL);
    CLAIM(status == RF_OK || status == RF_BUSY || status == RF_NOT_FOUND, rf_status_name(status));
    if (status != RF_OK) {
        return 0;
    }
    *lease = play.grant.lease;
    cursor = (rf_cursor){.key = play.grant.spec.start};
    if (play.grant.cursor.key.data == NULL) {
        status = rf_checkpoint(stage.store, SCENE_LOOK, &stage.tenant, lease, &cursor, 0x3e4, NULL);
        CLAIM(status == RF_OK, "a shard that was granted meanwhile can't be worked on");
    }
    return lease->fence;
}

/* What was done meanwhile is still there. */
static void claim_kept(const rf_lease *lease)
{
    rf_shard_info info;
    rf_lease renewed = *lease;
    rf_status status = rf_get_shard(stage.store, &stage.tenant, SCENE_RUN, lease->shard, &info,
                                    stage.scratch, sizeof(stage.scratch), NULL);
    CLAIM(status == RF_OK, "a shard that was granted meanwhile is gone");
    CLAIM(info.leased && info.fence == lease->fence, "a lease granted meanwhile is gone");
    status = rf_renew(stage.store, SCENE_LOOK, &stage.tenant, &renewed, NULL);
    CLAIM(status == RF_OK, "a lease granted meanwhile can't be renewed");
}

static struct {
    uint32_t points, busy, worked;
} tally;

/* Stopped at a point, then continued. Returns whether it has such a point. */
static bool stop_and_continue(uint32_t at, const struct picture *before,
                              const struct picture *after)
{
    struct actor *a = &actors[0];
    set_stage();
    prepare_actor(a, "", at);
    start_actor(a, play_part);
    bool there = stopped(a);
    if (there) {
        tally.busy += read_while_stopped(before, after);
        go_on(a);
        wait_end(a);
    }
    CLAIM(a->status == RF_OK, rf_status_name(a->status));
    CLAIM(!read_while_stopped(after, after), "still busy after it went on");
    settle_by_tending();
    claim_no_dangling();
    strike_stage();
    return there;
}

/* Stopped at a point and killed there, after others have come by. */
static void stop_and_kill(uint32_t at)
{
    struct actor *a = &actors[0];
    rf_lease lease;
    set_stage();
    prepare_actor(a, "", at);
    start_actor(a, play_part);
    bool there = stopped(a);
    bool worked = there && work_meanwhile(&lease) != 0;
    end_actor(a);
    settle_by_tending();
    if (worked) {
        claim_kept(&lease);
    }
    claim_no_dangling();
    strike_stage();
    tally.worked += worked;
}

static void stop_at_every_point(void)
{
    struct picture before, after;
    rehearse_reading(&before, &after);
    memset(&tally, 0, sizeof(tally));
    for (armed.at = 1; stop_and_continue(armed.at, &before, &after);
         armed.at += SLOW_BUILD ? 3 : 1) {
        stop_and_kill(armed.at);
        tally.points++;
    }
    CLAIM(tally.points != 0, "not one point");
    printf("  %-36s stopped at %3u points: %3u times busy for a reader, %3u times worked on\n",
           stage.scene->name, tally.points, tally.busy, tally.worked);
    picture_free(&before);
    picture_free(&after);
}

/* The theatre with an impatient survivor. */
static void open_impatient_theatre(const struct scene *scene, uint32_t flags)
{
    open_theatre(scene, flags);
    rf_close(stage.store);
    stage.store = open_impatient(true);
    stage.rest = inspect();
}

static void play_stopped(void)
{
    open_impatient_theatre(playing, RF_DETACHED);
    stop_at_every_point();
    close_theatre();
}

/* --- who is in the way --- */

/* A run of its own for bystanders, and leases of the survivor on the run's other shards. */
struct others {
    rf_lease first; /* on shard 1 */
    rf_lease other; /* in another run */
};

static void make_others(struct others *o)
{
    struct play play = new_play();
    const rf_run_config config = {.lease_duration = SCENE_DURATION};
    rf_shard_input shard = {.shard = 1,
                            .spec = {.start = rf_bytes_of("a", 1), .end = rf_bytes_of("z", 1)}};
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_create_run_with_shards(stage.store, SCENE_BEGIN, &stage.tenant,
                                                           OTHER_RUN, &config, &shard, 1, 1, NULL));
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_acquire(stage.store, SCENE_BEGIN, &stage.tenant, SCENE_RUN, 1,
                                            44, RF_DETACHED, &play.grant, NULL));
    o->first = play.grant.lease;
}

/* Everything on another run goes on. */
static void claim_other_run_goes_on(void)
{
    struct play play = new_play();
    uint64_t begun = now_ns();
    rf_cursor cursor = {.key = rf_bytes_of("m", 1)};
    CLAIM(rf_claim(stage.store, SCENE_NOW, &stage.tenant, OTHER_RUN, 5, RF_BOUND, 0, &play.grant,
                   NULL) == RF_OK,
          "another run can't be claimed from");
    CLAIM(rf_checkpoint(stage.store, SCENE_NOW, &stage.tenant, &play.grant.lease, &cursor, 61,
                        NULL) == RF_OK,
          "another run can't be worked on");
    CLAIM(rf_release(stage.store, SCENE_NOW, &stage.tenant, &play.grant.lease, NULL, 62, NULL) ==
              RF_OK,
          "another run's shard can't be released");
    CLAIM(now_ns() - begun < BUSY_NS + PATIENT_NS, "another run had to wait");
}

/* Work on the shard that the survivor holds in the same run: no lock of the run is needed. */
static void claim_other_shard_goes_on(struct others *o)
{
    rf_cursor cursor = {.key = rf_bytes_of("c", 1)};
    rf_status status = rf_checkpoint(stage.store, SCENE_NOW, &stage.tenant, &o->first, &cursor,
                                     rf_new_op(stage.store), NULL);
    CLAIM(status == RF_OK, "another shard of the run can't be worked on");
    CLAIM(rf_renew(stage.store, SCENE_NOW, &stage.tenant, &o->first, NULL) == RF_OK,
          "another shard's lease can't be renewed");
}

static void claim_busy(rf_status status, const rf_detail *detail, uint64_t begun, pid_t pid)
{
    static char words[96];
    snprintf(words, sizeof(words), "%s, pid %u, not %d", rf_status_name(status), detail->pid,
             (int)pid);
    CLAIM(status == RF_BUSY && detail->pid == (uint32_t)pid, words);
    CLAIM(now_ns() - begun < PATIENT_NS, "RF_BUSY came too late");
}

/* Somebody else's operation on the shard in question. */
static void claim_shard_busy(pid_t pid)
{
    rf_result result = {0};
    struct play play = new_play();
    uint64_t begun = now_ns();
    rf_status status = rf_acquire(stage.store, SCENE_LATE, &stage.tenant, SCENE_RUN, 2, 66,
                                  RF_DETACHED, &play.grant, &result);
    claim_busy(status, &result.detail, begun, pid);
}

static void stop_in(const char *scene, const char *point, struct others *o)
{
    struct actor *a = &actors[0];
    open_impatient_theatre(scene_by_name(scene), RF_DETACHED);
    set_stage();
    make_others(o);
    prepare_actor(a, point, 1);
    start_actor(a, play_part);
    wait_stopped(a);
}

static void continue_to_the_end(void)
{
    struct actor *a = &actors[0];
    go_on(a);
    wait_end(a);
    CLAIM(a->status == RF_OK, rf_status_name(a->status));
    settle_by_tending();
    claim_no_dangling();
    close_theatre();
}

static void stopped_with_a_shard_lock_only_that_shard_is_busy(void)
{
    struct others o;
    rf_shard_info info;
    stop_in("checkpoint_into_a_block", "op.prepared", &o);
    claim_shard_busy(actors[0].pid);
    claim_other_shard_goes_on(&o);
    claim_other_run_goes_on();
    CLAIM(rf_get_shard(stage.store, &stage.tenant, SCENE_RUN, 2, &info, stage.scratch,
                       sizeof(stage.scratch), NULL) == RF_OK &&
              info.cursor.key.data == NULL,
          "a reader does not see the old state");
    continue_to_the_end();
}

static uint64_t lock_waits(void)
{
    return atomic_load(&rf_handle_of(stage.store)->actor.me->counters.lock_waits);
}

/* A claim at a time when the lease of whoever is stopped has run out. */
static rf_status claim_late(rf_lease *lease, rf_result *result)
{
    struct play play = new_play();
    rf_status status = rf_claim(stage.store, SCENE_LATE, &stage.tenant, SCENE_RUN, 1, RF_DETACHED,
                                0, &play.grant, result);
    *lease = play.grant.lease;
    return status;
}

static void stopped_with_the_lock_of_an_expired_shard_all_others_are_claimed(void)
{
    struct others o;
    rf_lease lease;
    rf_result result = {0};
    stop_in("checkpoint_into_a_block", "op.prepared", &o);
    uint64_t waits = lock_waits();
    for (unsigned i = 0; i < 2; i++) {
        CLAIM(claim_late(&lease, NULL) == RF_OK, "others than the stopped one's can't be claimed");
        CLAIM(lease.shard != 2, "the stopped one's was claimed");
    }
    CLAIM(lock_waits() == waits, "it waited for the stopped one's lock");
    /* That it is expired is known, and nothing else about it. */
    uint64_t begun = now_ns();
    rf_status status = claim_late(&lease, &result);
    claim_busy(status, &result.detail, begun, actors[0].pid);
    CLAIM(now_ns() - begun >= BUSY_NS, "it did not wait for who may hold it for a microsecond");
    rf_detail detail = {0};
    begun = now_ns();
    status = rf_sweep(stage.store, SCENE_LATE, &stage.tenant, SCENE_RUN, &detail);
    claim_busy(status, &detail, begun, actors[0].pid);
    claim_other_run_goes_on();
    go_on(&actors[0]);
    wait_end(&actors[0]);
    CLAIM(claim_late(&lease, NULL) == RF_OK && lease.shard == 2, "it is not to be had afterwards");
    CLAIM(claim_late(&lease, NULL) == RF_NONE_AVAILABLE, "there is one too many");
    settle_by_tending();
    claim_no_dangling();
    close_theatre();
}

/* Works on shard 2 after somebody with a later clock has listed it as claimable. */
static void hold_a_listed_shard(void)
{
    struct play play = new_play();
    play.store = open_store(false);
    me->status = rf_acquire(play.store, SCENE_NOW, &stage.tenant, SCENE_RUN, 2, 9, RF_DETACHED,
                            &play.grant, NULL);
    rf_sweep(play.store, SCENE_LATE, &stage.tenant, SCENE_RUN, NULL);
    rf_cursor cursor = {.key = play.grant.spec.start};
    armed_here = true;
    rf_checkpoint(play.store, SCENE_NOW, &stage.tenant, &play.grant.lease, &cursor, 1, NULL);
    armed_here = false;
}

static void stopped_with_the_lock_of_a_claimable_shard_the_next_one_is_claimed(void)
{
    struct actor *a = &actors[0];
    rf_lease lease;
    rf_result result = {0};
    open_impatient_theatre(scene_by_name("checkpoint"), RF_DETACHED);
    set_stage();
    prepare_actor(a, "op.prepared", 1);
    start_actor(a, hold_a_listed_shard);
    wait_stopped(a);
    uint64_t waits = lock_waits();
    for (unsigned i = 0; i < 2; i++) {
        CLAIM(claim_late(&lease, NULL) == RF_OK, "others than the stopped one's can't be claimed");
        CLAIM(lease.shard != 2, "the stopped one's was claimed");
    }
    CLAIM(lock_waits() == waits, "it waited for the stopped one's lock");
    uint64_t begun = now_ns();
    rf_status status = claim_late(&lease, &result);
    claim_busy(status, &result.detail, begun, a->pid);
    end_actor(a);
    CLAIM(claim_late(&lease, NULL) == RF_OK && lease.shard == 2, "it is not to be had afterwards");
    settle_by_tending();
    claim_no_dangling();
    close_theatre();
}

/* Works on shard 2 of a run of short leases, and stops with its lock. */
static void hold_an_expired_shard(void)
{
    struct play play = new_play();
    play.store = open_store(false);
    me->status = rf_acquire(play.store, rf_now(play.store), &stage.tenant, SCENE_RUN, 2, 9,
                            RF_DETACHED, &play.grant, NULL);
    rf_cursor cursor = {.key = play.grant.spec.start};
    armed_here = true;
    rf_checkpoint(play.store, rf_now(play.store), &stage.tenant, &play.grant.lease, &cursor, 1,
                  NULL);
    atomic_store(&me->stage, 1);
}

/* Waits for a shard, while the only one that may be had is in the hands of somebody stopped. */
static void wait_for_a_shard(void)
{
    struct play play = new_play();
    rf_store *store = open_impatient(false);
    const rf_word64 *sleeps = &rf_handle_of(store)->actor.me->counters.sleeps;
    uint64_t before = atomic_load(sleeps);
    me->status = rf_claim(store, rf_now(store), &stage.tenant, SCENE_RUN, 1, RF_BOUND,
                          10 * RF_SECOND, &play.grant, NULL);
    me->lease = play.grant.lease;
    atomic_store(&me->hits, (uint32_t)(atomic_load(sleeps) - before));
    atomic_store(&me->stage, 1);
}

static void who_waits_for_a_shard_gets_the_expired_one_when_its_holder_goes_on(void)
{
    struct actor *holder = &actors[0], *waiter = &actors[1];
    const rf_run_config config = {.lease_duration = 5 * RF_MILLISECOND};
    rf_shard_input shard = {.shard = 2,
                            .spec = {.start = rf_bytes_of("a", 1), .end = rf_bytes_of("z", 1)}};
    open_impatient_theatre(scene_by_name("checkpoint"), RF_BOUND);
    TEST_ASSERT_EQUAL_INT(RF_OK,
                          rf_create_run_with_shards(stage.store, rf_now(stage.store), &stage.tenant,
                                                    SCENE_RUN, &config, &shard, 1, 1, NULL));
    prepare_actor(holder, "op.prepared", 1);
    start_actor(holder, hold_an_expired_shard);
    wait_stopped(holder);
    prepare_actor(waiter, "", 0);
    start_actor(waiter, wait_for_a_shard);
    usleep(20 * BUSY_NS / 1000);
    CLAIM(atomic_load(&waiter->stage) == 0, "it did not wait as long as it was told to");
    go_on(holder);
    wait_end(holder);
    wait_end(waiter);
    CLAIM(waiter->status == RF_OK && waiter->lease.shard == 2, rf_status_name(waiter->status));
    /* At most every ten milliseconds once it is clear that it takes long. */
    CLAIM(atomic_load(&waiter->hits) < 100, "it did not sleep while it waited");
    close_theatre();
}

/* Leaves leases on all shards of the run behind. */
static void die_with_all(void)
{
    struct play play = new_play();
    play.store = open_store(false);
    for (uint64_t shard = 1; shard <= 3; shard++) {
        me->status = rf_acquire(play.store, SCENE_NOW, &stage.tenant, SCENE_RUN, shard, 9, RF_BOUND,
                                &play.grant, NULL);
        if (shard == 2) {
            me->lease = play.grant.lease;
        }
    }
}

/* Works for the dead one, under its lease. */
static void checkpoint_for_the_dead(void)
{
    rf_cursor cursor = {.key = rf_bytes_of("i", 1)};
    rf_store *store = open_store(true);
    armed_here = true;
    me->status = rf_checkpoint(store, SCENE_NOW, &stage.tenant, &actors[0].lease, &cursor, 5, NULL);
    armed_here = false;
    rf_close(store);
}

static uint32_t available(void)
{
    struct few few = {0};
    CLAIM(rf_list_shards(stage.store, SCENE_LOOK, &stage.tenant, SCENE_RUN, RF_LIST_AVAILABLE,
                         add_few, &few, NULL) == RF_OK,
          "shards can't be listed");
    return few.count;
}

static void leases_of_the_dead_are_given_up_without_waiting_for_a_stopped_process(void)
{
    struct actor *dead = &actors[0], *sleeper = &actors[1];
    open_impatient_theatre(scene_by_name("checkpoint"), RF_BOUND);
    set_stage();
    prepare_actor(dead, "", 0);
    prepare_actor(sleeper, "op.prepared", 1);
    start_actor(dead, die_with_all);
    wait_end(dead);
    CLAIM(dead->status == RF_OK, rf_status_name(dead->status));
    start_actor(sleeper, checkpoint_for_the_dead);
    wait_stopped(sleeper);
    uint64_t waits = lock_waits();
    uint64_t until = now_ns() + PATIENCE_NS;
    while (available() < 2) {
        CLAIM(rf_tend(stage.store, SCENE_LOOK) == RF_BUSY, "it says that nothing is left to do");
        CLAIM(now_ns() < until, "the other leases are not given up");
    }
    CLAIM(lock_waits() == waits, "it waited for a lock");
    go_on(sleeper);
    wait_end(sleeper);
    CLAIM(sleeper->status == RF_OK, rf_status_name(sleeper->status));
    settle_by_tending();
    claim_no_dangling();
    close_theatre();
}

static void a_purge_that_has_to_wait_for_a_stopped_process_keeps_nobody_else_waiting(void)
{
    struct others o;
    stop_in("checkpoint_into_a_block", "op.prepared", &o);
    CLAIM(rf_cancel_run(stage.store, SCENE_NOW, &stage.tenant, SCENE_RUN, 81, NULL) == RF_OK,
          "the run can't be cancelled");
    CLAIM(rf_purge_run(stage.store, SCENE_NOW, &stage.tenant, SCENE_RUN, NULL) == RF_OK,
          "the run can't be purged");
    uint64_t finished = inspect().purges_finished;
    uint64_t begun = now_ns();
    for (unsigned i = 0; i < 100; i++) {
        CLAIM(rf_tend(stage.store, SCENE_NOW) == RF_BUSY, "it says that nothing is left to do");
    }
    CLAIM(now_ns() - begun < 50 * BUSY_NS, "tending waited for who is stopped");
    claim_other_run_goes_on();
    CLAIM(inspect().purges_finished == finished, "it was counted before it was done");
    go_on(&actors[0]);
    wait_end(&actors[0]);
    CLAIM(actors[0].status == RF_OK, rf_status_name(actors[0].status));
    settle_by_tending();
    CLAIM(inspect().purges_finished == finished + 1, "the end of the purge was not counted");
    claim_no_dangling();
    close_theatre();
}

static void stopped_with_a_run_lock_only_that_run_is_busy(void)
{
    struct others o;
    rf_result result = {0};
    stop_in("release", "op.prepared", &o);
    claim_shard_busy(actors[0].pid);
    uint64_t begun = now_ns();
    rf_status status =
        rf_complete_run(stage.store, SCENE_NOW, &stage.tenant, SCENE_RUN, 71, &result);
    claim_busy(status, &result.detail, begun, actors[0].pid);
    claim_other_shard_goes_on(&o);
    claim_other_run_goes_on();
    continue_to_the_end();
}

static void stopped_in_the_middle_of_a_record_its_readers_are_told_who_it_is(void)
{
    struct others o;
    rf_shard_info info;
    rf_detail detail;
    stop_in("checkpoint_into_a_block", "record.state", &o);
    uint64_t begun = now_ns();
    rf_status status = rf_get_shard(stage.store, &stage.tenant, SCENE_RUN, 2, &info, stage.scratch,
                                    sizeof(stage.scratch), &detail);
    claim_busy(status, &detail, begun, actors[0].pid);
    CLAIM(rf_get_shard(stage.store, &stage.tenant, SCENE_RUN, 3, &info, stage.scratch,
                       sizeof(stage.scratch), NULL) == RF_OK,
          "another shard can't be read");
    claim_shard_busy(actors[0].pid);
    claim_other_shard_goes_on(&o);
    claim_other_run_goes_on();
    continue_to_the_end();
}

static void stopped_in_the_middle_of_a_run_its_readers_are_told_who_it_is(void)
{
    struct others o;
    rf_run_info run;
    rf_detail detail;
    stop_in("release", "apply.counts", &o);
    uint64_t begun = now_ns();
    rf_status status = rf_get_run(stage.store, &stage.tenant, SCENE_RUN, &run, &detail);
    claim_busy(status, &detail, begun, actors[0].pid);
    CLAIM(rf_get_run(stage.store, &stage.tenant, OTHER_RUN, &run, NULL) == RF_OK,
          "another run can't be read");
    claim_other_shard_goes_on(&o);
    claim_other_run_goes_on();
    continue_to_the_end();
}

/* Names share their locks, each with a 64th of all. */
static uint64_t name_with_another_lock(void)
{
    const struct rf_map *map = rf_handle_of(stage.store)->map;
    uint64_t busy = rf_index_hash_run(map, &stage.tenant, SCENE_RUN) % RF_STRIPES;
    uint64_t run = OTHER_RUN;
    while (rf_index_hash_run(map, &stage.tenant, run) % RF_STRIPES == busy) {
        run++;
    }
    return run;
}

static void stopped_while_it_makes_a_run_only_that_name_is_busy(void)
{
    struct actor *a = &actors[0];
    const rf_run_config config = {.lease_duration = 5};
    rf_result result = {0};
    open_impatient_theatre(scene_by_name("create_run_with_shards"), RF_DETACHED);
    set_stage();
    prepare_actor(a, "run.prepared", 1);
    start_actor(a, play_part);
    wait_stopped(a);
    uint64_t begun = now_ns();
    rf_status status =
        rf_create_run(stage.store, SCENE_NOW, &stage.tenant, SCENE_RUN, &config, &result);
    claim_busy(status, &result.detail, begun, a->pid);
    CLAIM(rf_create_run(stage.store, SCENE_NOW, &stage.tenant, name_with_another_lock(), &config,
                        NULL) == RF_OK,
          "another run can't be made");
    continue_to_the_end();
}

/* --- for how long --- */

struct seen_locks {
    uint32_t count;
    rf_lock_info lock[8];
};

static bool see_lock(void *context, const rf_lock_info *lock)
{
    struct seen_locks *seen = context;
    CLAIM(seen->count < 8, "more locks than one operation can hold");
    seen->lock[seen->count++] = *lock;
    return true;
}

static struct seen_locks look_at_locks(void)
{
    struct seen_locks seen = {0};
    CLAIM(rf_list_locks(stage.store, see_lock, &seen, NULL) == RF_OK, "locks can't be listed");
    return seen;
}

/* Looked at, before and after guardians have: whose it is, since when, and that it is the same one. */
static void claim_listed(uint64_t begun, uint32_t count, const rf_lock_what *what)
{
    pid_t pid = actors[0].pid;
    struct seen_locks first = look_at_locks();
    CLAIM(first.count == count, "not the locks that are held");
    CLAIM(rf_tend(stage.store, SCENE_NOW) == RF_OK, "tending was refused"); /* notes what it sees */
    uint64_t noted = now_ns();
    usleep(20000);
    CLAIM(rf_tend(stage.store, SCENE_NOW) == RF_OK, "tending was refused"); /* and leaves it */
    uint64_t asked = now_ns();
    struct seen_locks later = look_at_locks();
    CLAIM(later.count == count, "not the locks that were held before");
    for (uint32_t i = 0; i < count; i++) {
        const rf_lock_info *a = &first.lock[i], *b = &later.lock[i];
        CLAIM(b->hold == a->hold, "it takes the same hold for another one");
        CLAIM(b->what == what[i] && b->pid == (uint32_t)pid && !b->dead, "not who it is, or what");
        CLAIM(b->what == RF_LOCK_OF_NAME || b->run == SCENE_RUN, "not the run");
        CLAIM(b->what != RF_LOCK_OF_SHARD || b->shard == 2, "not the shard");
        /* Milliseconds are cut off on both ends. */
        CLAIM(b->held + RF_MILLISECOND > asked - noted, "it has been held for longer");
        CLAIM(b->held < now_ns() - begun + RF_MILLISECOND, "it has not been held for so long");
    }
}

static void locks_of_a_stopped_process_are_told_with_their_age(void)
{
    struct others o;
    uint64_t begun = now_ns();
    stop_in("checkpoint_into_a_block", "op.prepared", &o);
    claim_listed(begun, 1, (const rf_lock_what[]){RF_LOCK_OF_SHARD});
    claim_other_shard_goes_on(&o);
    continue_to_the_end();
    begun = now_ns();
    stop_in("release", "op.prepared", &o);
    claim_listed(begun, 2, (const rf_lock_what[]){RF_LOCK_OF_SHARD, RF_LOCK_OF_RUN});
    continue_to_the_end();
    open_impatient_theatre(scene_by_name("create_run_with_shards"), RF_DETACHED);
    set_stage();
    prepare_actor(&actors[0], "run.prepared", 1);
    start_actor(&actors[0], play_part);
    wait_stopped(&actors[0]);
    struct seen_locks seen = look_at_locks();
    CLAIM(seen.count >= 1 && seen.lock[0].what == RF_LOCK_OF_NAME, "not the lock of a name");
    continue_to_the_end();
}

/* Checkpoints one shard for ever, so that it holds the shard's lock most of the time. */
static void checkpoint_for_ever(void)
{
    struct play play = new_play();
    play.store = open_store(false);
    CLAIM(rf_acquire(play.store, SCENE_BEGIN, &stage.tenant, SCENE_RUN, 3, 9, RF_BOUND, &play.grant,
                     NULL) == RF_OK,
          "the shard can't be had");
    rf_cursor cursor = {.key = play.grant.spec.start};
    for (uint32_t op = 1;; op++) {
        atomic_store(&me->stage, op);
        CLAIM(rf_checkpoint(play.store, SCENE_NOW, &stage.tenant, &play.grant.lease, &cursor, op,
                            NULL) == RF_OK,
              "a checkpoint is refused");
    }
}

/* Until it is stopped with the lock in its hands. */
static uint64_t stop_while_it_holds(struct actor *a)
{
    for (;;) {
        struct seen_locks seen;
        int how;
        kill(a->pid, SIGSTOP);
        TEST_ASSERT_EQUAL_INT(a->pid, waitpid(a->pid, &how, WUNTRACED));
        CLAIM(WIFSTOPPED(how), "it ended");
        seen = look_at_locks();
        if (seen.count == 1) {
            CLAIM(seen.lock[0].what == RF_LOCK_OF_SHARD && seen.lock[0].shard == 3, "not that one");
            return seen.lock[0].hold;
        }
        go_on(a);
        usleep(200);
    }
}

static void a_lock_that_is_taken_again_is_not_the_same_hold(void)
{
    struct actor *a = &actors[0];
    open_impatient_theatre(scene_by_name("checkpoint_into_a_block"), RF_DETACHED);
    set_stage();
    prepare_actor(a, "", 0);
    start_actor(a, checkpoint_for_ever);
    wait_stage(a, 1);
    uint64_t before = 0;
    for (unsigned i = 0; i < 20; i++) {
        uint64_t hold = stop_while_it_holds(a);
        CLAIM(hold != before, "another hold looks the same");
        CLAIM(rf_tend(stage.store, SCENE_NOW) == RF_OK, "tending was refused");
        CLAIM(look_at_locks().lock[0].hold == hold, "the same hold looks like another");
        before = hold;
        uint32_t at = atomic_load(&a->stage);
        go_on(a);
        wait_stage(a, at + 2);
    }
    end_actor(a);
    settle_by_tending();
    close_theatre();
}

/* --- in the middle of a reap --- */

static void die_with_locks(void)
{
    struct play play = new_play();
    play.store = open_store(false);
    stage.scene->enter(&play);
    stage.victim->lease = play.lease;
    arm(stage.victim, 8, false);
    stage.scene->act(&play, NULL);
}

/* A process whose guardian settles whoever dies. */
static void settle_others(void)
{
    armed.everywhere = true;
    open_store(false);
    atomic_store(&me->stage, 1);
    for (;;) {
        pause();
    }
}

static void wait_until_settled(void)
{
    uint64_t until = now_ns() + PATIENCE_NS;
    while (inspect().dead_members != 0) {
        CLAIM(now_ns() < until, "a guardian that went on does not finish");
        usleep(100);
    }
}

static void stopped_in_the_middle_of_a_reap_only_what_the_dead_held_is_busy(void)
{
    struct others o;
    struct actor *reaper = &actors[1], *dead = &actors[0];
    open_impatient_theatre(scene_by_name("checkpoint_into_a_block"), RF_BOUND);
    set_stage();
    make_others(&o);
    prepare_actor(reaper, "record.state", 1);
    start_actor(reaper, settle_others);
    wait_stage(reaper, 1);
    *stage.victim = (struct victim){0};
    prepare_actor(dead, "", 0);
    start_actor(dead, die_with_locks);
    wait_end(dead);
    wait_stopped(reaper);
    claim_shard_busy(reaper->pid);
    claim_other_shard_goes_on(&o);
    claim_other_run_goes_on();
    go_on(reaper);
    wait_until_settled();
    claim_no_dangling();
    end_actor(reaper);
    settle_by_tending();
    close_theatre();
}

/* --- two who settle the same death --- */

static void die_with_a_lease(void)
{
    struct play play = new_play();
    play.flags = RF_BOUND;
    play.store = open_store(false);
    stage.scene->enter(&play);
}

/* Settles whoever is dead, by hand: one slot and no guardian. */
static void tend_once(void)
{
    rf_store *store = open_impatient(true);
    atomic_store(&me->stage, 1);
    while (atomic_load(&actors[0].stage) == 0) {
        usleep(50);
    }
    armed_here = true;
    rf_tend(store, SCENE_LOOK);
    armed_here = false;
    rf_close(store);
    atomic_store(&me->stage, 2);
}

#define NEWCOMERS 8u

/* Handles in all slots that are free: whoever settles the dead must not settle them. */
static uint32_t let_newcomers_in(rf_store *newcomers[NEWCOMERS], rf_lease leases[NEWCOMERS])
{
    uint32_t count = 0;
    uint64_t slots = rf_handle_of(stage.store)->map->header->slot_count - 1u;
    while (count < NEWCOMERS && inspect().members < slots) {
        struct play play = new_play();
        newcomers[count] = open_impatient(true);
        rf_status status = rf_claim(newcomers[count], SCENE_NOW, &stage.tenant, OTHER_RUN, count,
                                    RF_BOUND, 0, &play.grant, NULL);
        CLAIM(status == RF_OK, "a newcomer finds no work");
        leases[count++] = play.grant.lease;
    }
    return count;
}

static void claim_newcomers_work(rf_store *newcomers[NEWCOMERS], rf_lease leases[NEWCOMERS],
                                 uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        rf_status status =
            rf_release(newcomers[i], SCENE_NOW, &stage.tenant, &leases[i], NULL, 0x777, NULL);
        CLAIM(status == RF_OK, "a newcomer lost its lease");
        rf_close(newcomers[i]);
    }
}

static void make_many(void)
{
    const rf_run_config config = {.lease_duration = SCENE_DURATION};
    static const char edges[NEWCOMERS + 2] = "abcdefghi";
    rf_shard_input shards[NEWCOMERS];
    for (uint32_t i = 0; i < NEWCOMERS; i++) {
        shards[i] = (rf_shard_input){
            .shard = i + 1,
            .spec = {.start = rf_bytes_of(edges + i, 1), .end = rf_bytes_of(edges + i + 1, 1)}};
    }
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_create_run_with_shards(stage.store, SCENE_BEGIN, &stage.tenant,
                                                           OTHER_RUN, &config, shards, NEWCOMERS, 1,
                                                           NULL));
}

/* A death; one who settles it is stopped at a point of it, another one at a point of his. The first
 * goes on, newcomers fill the slots, the second goes on. Returns whether the first had such a
 * point, and in *two whether the second had. */
static bool settle_twice(uint32_t first, uint32_t second, bool *two)
{
    rf_store *newcomers[NEWCOMERS];
    rf_lease leases[NEWCOMERS];
    struct actor *dead = &actors[0], *one = &actors[1], *other = &actors[2];
    prepare_actor(dead, "", 0);
    prepare_actor(one, "", first);
    prepare_actor(other, "", second);
    start_actor(one, tend_once);
    wait_stage(one, 1);
    start_actor(dead, die_with_a_lease);
    wait_end(dead);
    atomic_store(&dead->stage, 1);
    bool there = stopped(one);
    start_actor(other, tend_once);
    *two = stopped(other);
    if (there) {
        go_on(one);
        wait_end(one);
    }
    uint32_t count = let_newcomers_in(newcomers, leases);
    if (*two) {
        go_on(other);
        wait_end(other);
    }
    claim_newcomers_work(newcomers, leases, count);
    settle_by_tending();
    claim_no_dangling();
    return there;
}

static void a_slow_reaper_does_not_touch_who_comes_after_the_dead(void)
{
    uint32_t plays = 0;
    open_impatient_theatre(scene_by_name("checkpoint_into_a_block"), RF_BOUND);
    set_stage();
    make_many();
    for (armed.at = 1;; armed.at++) {
        bool there = true, two = true;
        for (uint32_t second = 1; two; second += SLOW_BUILD ? 5 : 1) {
            there = settle_twice(armed.at, second, &two);
            plays++;
        }
        if (!there) {
            break;
        }
    }
    printf("  %u points of one reaper, %u plays with another\n", armed.at - 1, plays);
    close_theatre();
}

/* --- the slot for repairs --- */

static rf_store *open_narrow(bool manual)
{
    rf_options options = scene_options(NULL);
    rf_store *opened;
    options.max_members = 2; /* four slots, and the one for repairs */
    options.manual = manual;
    options.busy_timeout = BUSY_NS;
    return rf_open(stage.name, &options, &opened, NULL) == RF_OK ? opened : NULL;
}

static void die_in_a_narrow_store(void)
{
    open_narrow(false);
}

static void die_when_reaping(const char *point)
{
    if (strcmp(point, "reap.entered") == 0) {
        die_here();
    }
}

/* Dies as soon as it begins to settle the dead from the slot for repairs. */
static void die_repairing(void)
{
    rf_point_on_hit = die_when_reaping;
    open_narrow(false);
}

static void tend_narrow(void)
{
    rf_store *store = open_narrow(true);
    atomic_store(&me->stage, 1);
    while (atomic_load(&actors[0].stage) == 0) {
        usleep(50);
    }
    armed_here = true;
    rf_tend(store, SCENE_LOOK);
    armed_here = false;
    atomic_store(&me->stage, 2);
    while (atomic_load(&actors[0].stage) == 1) {
        usleep(50);
    }
    rf_close(store);
}

/* Enters a full store, if that is possible while somebody else is at the last repairer. */
static void enter_narrow(void)
{
    rf_store *store = open_narrow(false);
    me->status = store == NULL ? RF_BUSY : RF_OK;
    if (store != NULL) {
        rf_close(store);
    }
    atomic_store(&me->stage, 1);
}

/* Slot 0 was left by a repairer that died. One settles it and is stopped at a point of that, while
 * another one wants to use the slot. Returns whether there is such a point. */
static bool meet_in_the_repair_slot(uint32_t at, uint32_t *entered)
{
    struct actor *dead = &actors[0], *tender = &actors[1], *newcomer = &actors[2];
    rf_destroy(stage.name, NULL);
    stage.store = open_narrow(true);
    prepare_actor(dead, "", 0);
    prepare_actor(tender, "", at);
    prepare_actor(newcomer, "", 0);
    start_actor(tender, tend_narrow);
    wait_stage(tender, 1);
    start_actor(dead, die_in_a_narrow_store);
    wait_end(dead);
    start_actor(newcomer, die_repairing);
    wait_end(newcomer);
    CLAIM(rf_is_dead(rf_member_at(rf_handle_of(stage.store)->map, 0)),
          "the repairer did not die in its slot");
    atomic_store(&dead->stage, 1);
    while (atomic_load(&tender->stopped) == 0 && atomic_load(&tender->stage) != 2) {
        usleep(50);
    }
    bool there = atomic_load(&tender->stopped) != 0;
    start_actor(newcomer, enter_narrow);
    wait_end(newcomer);
    *entered += newcomer->status == RF_OK;
    go_on(tender);
    atomic_store(&dead->stage, 2);
    wait_end(tender);
    settle_by_tending();
    claim_no_dangling();
    start_actor(newcomer, enter_narrow);
    wait_end(newcomer);
    CLAIM(newcomer->status == RF_OK, "the store can't be entered any more");
    settle_by_tending();
    claim_no_dangling();
    rf_close(stage.store);
    stage.store = NULL;
    return there;
}

static void a_repairer_and_who_settles_the_last_one_are_not_in_each_others_way(void)
{
    uint32_t entered = 0;
    open_theatre(scene_by_name("checkpoint"), RF_BOUND);
    rf_close(stage.store);
    stage.store = NULL;
    for (armed.at = 1; meet_in_the_repair_slot(armed.at, &entered); armed.at++) {
    }
    printf("  stopped at %u points of settling the last repairer; entered meanwhile %u times\n",
           armed.at - 1, entered);
    close_theatre();
}

/* --- outside of everything --- */

/* A worker that is stopped between two calls for longer than its lease. */
static void work_after_a_nap(void)
{
    struct play play = new_play();
    rf_cursor cursor = {.key = rf_bytes_of("c", 1)};
    rf_store *store = open_store(false);
    rf_lease lease;
    me->status =
        rf_claim(store, rf_now(store), &stage.tenant, SCENE_RUN, 1, RF_BOUND, 0, &play.grant, NULL);
    lease = play.grant.lease;
    me->lease = lease;
    raise(SIGSTOP);
    me->status = rf_checkpoint(store, rf_now(store), &stage.tenant, &lease, &cursor, 1, NULL);
    atomic_store(&me->stage, 1);
    rf_close(store);
}

static void a_worker_stopped_for_longer_than_its_lease_is_fenced_out(void)
{
    struct actor *sleeper = &actors[0];
    struct play play;
    const rf_run_config config = {.lease_duration = 20 * RF_MILLISECOND};
    rf_shard_input shard = {.shard = 1,
                            .spec = {.start = rf_bytes_of("a", 1), .end = rf_bytes_of("z", 1)}};
    open_theatre(scene_by_name("checkpoint"), RF_BOUND);
    play = new_play();
    TEST_ASSERT_EQUAL_INT(RF_OK,
                          rf_create_run_with_shards(stage.store, rf_now(stage.store), &stage.tenant,
                                                    SCENE_RUN, &config, &shard, 1, 1, NULL));
    prepare_actor(sleeper, "", 0);
    start_actor(sleeper, work_after_a_nap);
    wait_stopped(sleeper);
    CLAIM(sleeper->status == RF_OK, rf_status_name(sleeper->status));
    rf_status status = rf_claim(stage.store, rf_now(stage.store), &stage.tenant, SCENE_RUN, 2,
                                RF_BOUND, 10 * RF_SECOND, &play.grant, NULL);
    CLAIM(status == RF_OK, "a stopped worker's shard can't be had after its lease");
    CLAIM(play.grant.lease.fence > sleeper->lease.fence, "its fence did not rise");
    go_on(sleeper);
    wait_end(sleeper);
    CLAIM(sleeper->status == RF_STALE_FENCE, rf_status_name(sleeper->status));
    close_theatre();
}

int main(int argc, char **argv)
{
    static const char *const read_scenes[] = {
        "create_run",
        "register",
        "create_run_with_shards",
        "add_shards",
        "acquire",
        "checkpoint_into_a_larger_block",
        "complete",
        "release_with_a_cursor",
        "split_replace_in_2",
        "split_residual_with_long_ranges",
        "unpark",
        "cancel_run",
        "purge",
    };
    static char names[16][96];
    UNITY_BEGIN();
    make_victims();
    actors = mmap(NULL, ACTORS * sizeof(*actors), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned i = 0; i < sizeof(read_scenes) / sizeof(read_scenes[0]); i++) {
        playing = scene_by_name(read_scenes[i]);
        snprintf(names[i], sizeof(names[0]), "stopped_anywhere_in_%s_nothing_is_torn_or_lost",
                 playing->name);
        if (argc < 2 || strcmp(argv[1], playing->name) == 0) {
            UnityDefaultTestRun(play_stopped, names[i], __LINE__);
        }
    }
    RUN_TEST(stopped_with_a_shard_lock_only_that_shard_is_busy);
    RUN_TEST(stopped_with_the_lock_of_an_expired_shard_all_others_are_claimed);
    RUN_TEST(stopped_with_the_lock_of_a_claimable_shard_the_next_one_is_claimed);
    RUN_TEST(who_waits_for_a_shard_gets_the_expired_one_when_its_holder_goes_on);
    RUN_TEST(leases_of_the_dead_are_given_up_without_waiting_for_a_stopped_process);
    RUN_TEST(a_purge_that_has_to_wait_for_a_stopped_process_keeps_nobody_else_waiting);
    RUN_TEST(stopped_with_a_run_lock_only_that_run_is_busy);
    RUN_TEST(stopped_in_the_middle_of_a_record_its_readers_are_told_who_it_is);
    RUN_TEST(stopped_in_the_middle_of_a_run_its_readers_are_told_who_it_is);
    RUN_TEST(stopped_while_it_makes_a_run_only_that_name_is_busy);
    RUN_TEST(locks_of_a_stopped_process_are_told_with_their_age);
    RUN_TEST(a_lock_that_is_taken_again_is_not_the_same_hold);
    RUN_TEST(stopped_in_the_middle_of_a_reap_only_what_the_dead_held_is_busy);
    RUN_TEST(a_slow_reaper_does_not_touch_who_comes_after_the_dead);
    RUN_TEST(a_repairer_and_who_settles_the_last_one_are_not_in_each_others_way);
    RUN_TEST(a_worker_stopped_for_longer_than_its_lease_is_fenced_out);
    return UNITY_END();
}
