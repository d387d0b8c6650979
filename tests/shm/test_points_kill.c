/*
 * Kill -9 at every point of every operation: it happened wholly or not at all, nothing is locked,
 * nothing leaked, and the same call again knows which of the two it was.
 */
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
    printf("points %u, killed %u times: done %u, undone %u\n", total.points, total.plays,
           total.done, total.undone);
    return UNITY_END();
}
