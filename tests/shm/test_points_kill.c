/*
 * Kill -9 at every point of every operation: it happened wholly or not at all, nothing is locked,
 * nothing leaked, and the same call again knows which of the two it was.
 */
#include "handle.h"
#include "lock.h"
#include "operation.h"

#include "killing.h"

static struct {
    uint32_t points, plays, done, undone;
} total;

void setUp(void)
{
}

void tearDown(void)
{
    close_theatre();
}

static void start_bystander(void)
{
    atomic_store(&stage.reaper->ready, 0);
    stage.bystander = fork_player();
    if (stage.bystander == 0) {
        open_store(false);
        atomic_store(&stage.reaper->ready, 1);
        for (;;) {
            pause();
        }
    }
    while (atomic_load(&stage.reaper->ready) == 0) {
        usleep(100);
    }
    stage.rest = inspect();
}

static const char *const settled[] = {"fresh", "met", "guarded"};

/* Every step-th point until none fires any more, settled in one way. */
static void kill_at_points(enum settling how, bool fresh, uint32_t step)
{
    uint32_t plays = 0, done = 0, undone = 0;
    for (uint32_t at = 1;; at += step) {
        if (fresh) {
            renew_theatre();
        }
        set_stage();
        play_and_kill(at);
        bool fired = atomic_load(&stage.victim->fired) != 0;
        int happened_here = judge(how);
        if (!fired) {
            break;
        }
        plays++;
        done += happened_here == 1;
        undone += happened_here == 0;
    }
    CLAIM(plays != 0, "not one point");
    total.plays += plays;
    total.done += done;
    total.undone += undone;
    printf("  %-36s %-8s %-8s killed at %4u points: done %4u, undone %4u\n", stage.scene->name,
           stage.bound ? "bound" : "detached", settled[how], plays, done, undone);
}

/* Fresh: in a new store each time, so that room is taken that was never taken before. Met and
 * guarded: in the same store, one death after another, so that everything is used again. */
static void kill_everywhere(void)
{
    unsigned traits = stage.scene->traits;
    bool large = (traits & SCENE_LARGE) != 0;
    uint32_t rough = SLOW_BUILD ? (large ? 61 : 5) : 1;
    total.points += stage.points;
    kill_at_points(BY_TENDING, true, rough);
    bool lost = stage.bound && (traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    bool again = (traits & SCENE_COOLDOWN) == 0; /* or the worker would have to wait */
    if (!lost && again && (traits & SCENE_PROCESS) == 0) {
        kill_at_points(BY_MEETING, false, rough * (large ? 13 : 1));
    }
    if (again) {
        start_bystander();
        kill_at_points(BY_GUARDIAN, false, rough * (large ? 17 : 1));
    }
}

/* --- waiting for locks --- */

/* The lock word of the shard that scenes work on. */
static rf_word32 *target_lock(void)
{
    struct rf_map *map = rf_handle_of(stage.store)->map;
    uint32_t run_slot;
    uint64_t uid;
    TEST_ASSERT_EQUAL_INT(RF_OK, rf_find_run(map, &stage.tenant, SCENE_RUN, &run_slot, &uid));
    return &rf_rec_at(map, rf_find_shard(map, run_slot, uid, 2))->lock;
}

static bool someone_sleeps_on(const rf_word32 *lock)
{
    return (atomic_load(lock) & RF_ID_WAITERS) != 0;
}

/* Waits for the child, and gives the lock up as soon as it has been asleep on it for a while. */
static void unlock_in_front_of(pid_t pid, rf_word32 *lock)
{
    struct rf_actor *actor = &rf_handle_of(stage.store)->actor;
    int how;
    bool held = true;
    uint64_t asleep = 0;
    while (waitpid(pid, &how, WNOHANG) == 0) {
        asleep = asleep == 0 && someone_sleeps_on(lock) ? now_ns() : asleep;
        if (held && asleep != 0 && now_ns() - asleep > 2 * RF_MILLISECOND) {
            rf_unlock(actor, lock, RF_LOCK_SHARD);
            held = false;
        }
        usleep(100);
    }
    CLAIM(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "did not die of the kill");
    if (held) {
        /* Settled meanwhile or not: it is ours. */
        settle_by_tending();
        CLAIM((atomic_load(lock) & ~RF_ID_WAITERS) == actor->id,
              "the dead waiter's reaper freed it");
        rf_unlock(actor, lock, RF_LOCK_SHARD);
    }
}

static void killed_anywhere_while_it_waits_for_a_lock(void)
{
    uint32_t at = 0;
    bool fired = true;
    open_theatre(scene_by_name("checkpoint_into_a_block"), RF_DETACHED);
    rehearse();
    while (fired) {
        set_stage();
        *stage.victim = (struct victim){0};
        armed.at = ++at;
        rf_word32 *lock = target_lock();
        pid_t pid = fork_player();
        if (pid == 0) {
            struct play play = new_play();
            play.store = open_store(false);
            stage.scene->enter(&play);
            stage.victim->lease = play.lease;
            atomic_store(&stage.victim->ready, 1);
            while (atomic_load(&stage.victim->ready) == 1) {
                usleep(50);
            }
            arm(stage.victim, at, false);
            stage.scene->act(&play, NULL);
            armed.victim = NULL;
            die_here();
        }
        while (atomic_load(&stage.victim->ready) == 0) {
            usleep(50);
        }
        TEST_ASSERT_EQUAL_INT(
            RF_OK, rf_lock(&rf_handle_of(stage.store)->actor, lock, RF_LOCK_SHARD, NULL));
        atomic_store(&stage.victim->ready, 2);
        unlock_in_front_of(pid, lock);
        fired = atomic_load(&stage.victim->fired) != 0;
        judge(BY_TENDING);
    }
    printf("  waiting for a lock: killed at %u points\n", at - 1);
    close_theatre();
}

/* Stops at the first point, holding its locks, and dies at a later one. */
static void stop_and_die_at_point(const char *name)
{
    if (armed.victim != NULL && armed_here && atomic_load(&armed.victim->hits) == 0) {
        raise(SIGSTOP);
    }
    die_at_point(name);
}

/* Sleeps on the lock that the victim holds, and takes the shard when it can. */
static pid_t start_sleeper(void)
{
    *stage.reaper = (struct victim){0};
    pid_t pid = fork_player();
    if (pid == 0) {
        struct play play = new_play();
        play.store = open_store(false);
        stage.reaper->status = rf_acquire(play.store, SCENE_LATE, &stage.tenant, SCENE_RUN, 2, 31,
                                          RF_DETACHED, &play.grant, NULL);
        stage.reaper->lease = play.grant.lease;
        atomic_store(&stage.reaper->finished, 1);
        die_here();
    }
    return pid;
}

static bool die_in_front_of_a_sleeper(uint32_t at)
{
    int how;
    set_stage();
    *stage.victim = (struct victim){0};
    rf_word32 *lock = target_lock();
    pid_t pid = fork_player();
    if (pid == 0) {
        struct play play = new_play();
        play.store = open_store(false);
        stage.scene->enter(&play);
        arm(stage.victim, at, false);
        rf_point_on_hit = stop_and_die_at_point;
        stage.scene->act(&play, NULL);
        armed.victim = NULL;
        die_here();
    }
    waitpid(pid, &how, WUNTRACED);
    CLAIM(WIFSTOPPED(how), "not one point");
    pid_t sleeper = start_sleeper();
    while (!someone_sleeps_on(lock)) {
        usleep(50);
    }
    kill(pid, SIGCONT);
    waitpid(pid, &how, 0);
    uint64_t begun = now_ns();
    waitpid(sleeper, &how, 0);
    CLAIM(atomic_load(&stage.reaper->finished) == 1 && stage.reaper->status == RF_OK,
          rf_status_name(stage.reaper->status));
    CLAIM(now_ns() - begun < QUICK_NS, "a sleeper was not woken");
    settle_by_tending();
    claim_no_dangling();
    strike_stage();
    return atomic_load(&stage.victim->fired) != 0;
}

static void killed_anywhere_in_front_of_a_sleeper_on_its_lock(void)
{
    uint32_t at = 2;
    open_theatre(scene_by_name("release_with_a_cursor"), RF_DETACHED);
    for (armed.at = at; die_in_front_of_a_sleeper(at); armed.at = ++at) {
    }
    printf("  in front of a sleeper: killed at %u points\n", at - 2);
    close_theatre();
}

/* --- opening --- */

/* A child that opens the store and dies at a point of that, in whatever thread. Returns whether it
 * had such a point. */
static bool open_and_die(uint32_t at)
{
    int how;
    *stage.victim = (struct victim){0};
    armed.at = at;
    pid_t pid = fork_player();
    if (pid == 0) {
        arm(stage.victim, at, true);
        open_store(false);
        armed.victim = NULL;
        die_here();
    }
    TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &how, 0));
    CLAIM(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "did not die of the kill");
    return atomic_load(&stage.victim->fired) != 0;
}

/* Whoever comes next finds or makes a store that works, and leaves nothing behind. */
static void claim_store_works(void)
{
    uint64_t begun = now_ns();
    stage.store = open_store(true);
    settle_by_tending();
    stage.rest = inspect();
    CLAIM(stage.rest.members == 1 && stage.rest.dead_members == 0, "a member slot leaked");
    set_stage();
    strike_stage();
    rf_close(stage.store);
    stage.store = NULL;
    CLAIM(now_ns() - begun < QUICK_NS, "the next one had to wait");
}

static const struct scene plain = {.name = "making a store"};

static void killed_anywhere_while_making_a_store_the_next_one_makes_it(void)
{
    uint32_t plays = 0, first = 1;
    open_theatre(&plain, RF_BOUND);
    rf_close(stage.store);
    stage.store = NULL;
    for (bool one = true; one; first++) {
        bool two = true;
        for (uint32_t second = 1; two; second += SLOW_BUILD ? 5 : 1) {
            rf_destroy(stage.name, NULL);
            one = open_and_die(first);
            two = open_and_die(second);
            claim_store_works();
            plays++;
        }
    }
    printf("  making a store: killed at %u points, %u plays with a second death\n", first - 2,
           plays);
    close_theatre();
}

/* A store whose slots are all taken, by processes that died together. */
static void fill_with_dead(void)
{
    rf_destroy(stage.name, NULL);
    pid_t pids[2];
    for (unsigned i = 0; i < 2; i++) {
        stage.victim->ready = 0;
        pids[i] = fork_player();
        if (pids[i] == 0) {
            rf_options options = scene_options(NULL);
            options.max_members = 2;
            rf_store *store;
            if (rf_open(stage.name, &options, &store, NULL) != RF_OK) {
                abort();
            }
            atomic_store(&stage.victim->ready, 1);
            for (;;) {
                pause();
            }
        }
        while (atomic_load(&stage.victim->ready) == 0) {
            usleep(50);
        }
    }
    kill(pids[0], SIGSTOP); /* or it would settle the other */
    waitpid(pids[0], NULL, WUNTRACED);
    for (unsigned i = 2; i-- > 0;) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
}

static const struct scene dead = {.name = "entering a store of the dead"};

static void killed_anywhere_while_entering_a_store_of_the_dead_the_next_one_enters(void)
{
    uint32_t plays = 0, first = 1;
    open_theatre(&dead, RF_BOUND);
    rf_close(stage.store);
    stage.store = NULL;
    for (bool one = true; one; first += SLOW_BUILD ? 5 : 1) {
        bool two = true;
        for (uint32_t second = 1; two; second += SLOW_BUILD ? 7 : first % 4 == 1 ? 1 : 3) {
            fill_with_dead();
            one = open_and_die(first);
            two = open_and_die(second);
            claim_store_works();
            plays++;
        }
    }
    printf("  entering a store of the dead: killed at %u points, %u plays with a second death\n",
           first - 2, plays);
    close_theatre();
}

static const struct scene *playing;

static void play_scene(void)
{
    with_leases(playing, kill_everywhere);
}

int main(int argc, char **argv)
{
    UNITY_BEGIN();
    make_victims();
    for (unsigned i = 0; i < scene_count; i++) {
        static char names[64][96];
        if (argc > 1 && strcmp(argv[1], scenes[i].name) != 0) {
            continue;
        }
        playing = &scenes[i];
        snprintf(names[i % 64], sizeof(names[0]), "killed_anywhere_in_%s_it_happened_or_it_did_not",
                 playing->name);
        UnityDefaultTestRun(play_scene, names[i % 64], __LINE__);
    }
    if (argc < 2 || strcmp(argv[1], "more") == 0) {
        RUN_TEST(killed_anywhere_while_it_waits_for_a_lock);
        RUN_TEST(killed_anywhere_in_front_of_a_sleeper_on_its_lock);
        RUN_TEST(killed_anywhere_while_making_a_store_the_next_one_makes_it);
        RUN_TEST(killed_anywhere_while_entering_a_store_of_the_dead_the_next_one_enters);
    }
    printf("points %u, killed %u times: done %u, undone %u\n", total.points, total.plays,
           total.done, total.undone);
    return UNITY_END();
}
