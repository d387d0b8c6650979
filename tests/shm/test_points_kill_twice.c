/*
 * Two deaths: a process is killed at a point of an operation, and the guardian that settles it is
 * killed at a point of the settling. A third one finishes, and must find what it would have found
 * without the second death.
 *
 * Every point of the first against every point of the second, with exceptions, of which a seeded
 * sample is played (RF_SEED), as the output says: scenes with hundreds of points; and of the second
 * points those of scenes that repeat one step for several shards, and of scenes played with a
 * detached lease, which differ from those with a bound one by what is not there to settle. RF_SOAK=1
 * plays all but the first kind in full.
 */
#include "killing.h"

#define SAMPLE_FIRST  (SLOW_BUILD ? 3u : 24u)
#define SAMPLE_SECOND (SLOW_BUILD ? 2u : 8u)

static struct {
    uint32_t states, plays, done, undone;
} total;
static struct rf_prng prng;

void setUp(void)
{
}

void tearDown(void)
{
    close_theatre();
}

/* A process whose guardian settles the victim, if it is not killed while it does. */
static void reap_to_the_end(uint32_t at)
{
    struct victim *r = stage.reaper;
    rf_inspection seen;
    rf_store *store = open_store(false);
    arm(r, at, true);
    atomic_store(&r->ready, 1);
    for (;;) {
        bool gone = atomic_load(&stage.victim->gone) != 0;
        uint32_t hits = atomic_load(&r->hits);
        if (rf_inspect(store, &seen, NULL) != RF_OK) {
            abort();
        }
        usleep(100);
        /* Settled, and the guardian has gone back to sleep. */
        if (gone && seen.dead_members == 0 && hits == atomic_load(&r->hits)) {
            break;
        }
    }
    armed.victim = NULL;
    atomic_store(&r->finished, 1);
    die_here();
}

/* Both deaths. Returns whether the second one came at its point. */
static bool kill_both(uint32_t first, uint32_t second)
{
    int how;
    *stage.victim = *stage.reaper = (struct victim){0};
    pid_t reaper = fork_player();
    if (reaper == 0) {
        reap_to_the_end(second);
    }
    while (atomic_load(&stage.reaper->ready) == 0) {
        CLAIM(waitpid(reaper, &how, WNOHANG) == 0, "the reaper ended before it began");
        usleep(20);
    }
    play_and_kill(first);
    atomic_store(&stage.victim->gone, 1);
    TEST_ASSERT_EQUAL_INT(reaper, waitpid(reaper, &how, 0));
    CLAIM(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL, "the reaper did not die of the kill");
    return atomic_load(&stage.reaper->fired) != 0;
}

struct tally {
    uint32_t states, plays, done, undone, second_points;
};

/* How far to go to the next point: 1, or in a sample of `wanted` out of `all`, more. */
static uint32_t step(bool sampled, uint32_t all, uint32_t wanted)
{
    uint32_t mean = all / wanted;
    return sampled && mean > 1 ? 1 + rf_prng_below(&prng, 2 * mean - 1) : 1;
}

/* One point of the first death. Returns false if it has no such point. */
static bool kill_at(uint32_t first, bool sampled, struct tally *t)
{
    bool again = true;
    for (uint32_t second = 1; again; second += step(sampled, t->second_points, SAMPLE_SECOND)) {
        set_stage();
        again = kill_both(first, second);
        int happened_here = judge(BY_REAPER);
        if (atomic_load(&stage.victim->fired) == 0) {
            return false;
        }
        t->done += happened_here == 1;
        t->undone += happened_here == 0;
        t->plays++;
        t->second_points = again && second > t->second_points ? second : t->second_points;
    }
    t->states++;
    return true;
}

static void kill_twice_everywhere(void)
{
    unsigned traits = stage.scene->traits;
    bool large = (traits & SCENE_LARGE) != 0 || SLOW_BUILD;
    bool leased = (traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    bool repeats = (traits & SCENE_UNORDERED) != 0 || (leased && !stage.bound);
    bool sampled = large || (repeats && rf_env_number("RF_SOAK", 0) == 0);
    struct tally t = {0};
    for (uint32_t first = 1; kill_at(first, sampled, &t);) {
        first += step(large, stage.points, SAMPLE_FIRST);
    }
    CLAIM(t.states != 0, "not one point");
    printf(
        "  %-36s %-8s %-6s %3u points, up to %3u of the reaper: %5u plays, done %4u, undone %4u\n",
        stage.scene->name, stage.bound ? "bound" : "detached", sampled ? "sample" : "all", t.states,
        t.second_points, t.plays, t.done, t.undone);
    total.states += t.states;
    total.plays += t.plays;
    total.done += t.done;
    total.undone += t.undone;
}

static const struct scene *playing;

static void play_scene(void)
{
    with_leases(playing, kill_twice_everywhere);
}

int main(int argc, char **argv)
{
    UNITY_BEGIN();
    make_victims();
    prng.state = rf_env_number("RF_SEED", 1);
    for (unsigned i = 0; i < scene_count; i++) {
        static char names[64][112];
        if (argc > 1 && strcmp(argv[1], scenes[i].name) != 0) {
            continue;
        }
        /* A claim takes its cooldown back only if it is not killed: once for each store. */
        if ((scenes[i].traits & SCENE_COOLDOWN) != 0) {
            continue;
        }
        playing = &scenes[i];
        snprintf(names[i % 64], sizeof(names[0]),
                 "killed_in_%s_and_its_reaper_too_it_happened_or_it_did_not", playing->name);
        UnityDefaultTestRun(play_scene, names[i % 64], __LINE__);
    }
    printf("states %u, plays %u: done %u, undone %u (seed %" PRIu64 ")\n", total.states,
           total.plays, total.done, total.undone, rf_env_number("RF_SEED", 1));
    return UNITY_END();
}
