/* What the comparison with others asserts before and while it measures: played by a peer that is made up, and lies. */
#include "peers.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "unity.h"

#define SHARDS   20000u
#define LEASE_MS 20u
#define LIAR     0u  /* the shard about which is lied: one that is claimed in every window */
#define STEP_US  50u /* so that the shards last for any window */

enum lie {
    NONE,
    STALE_CHECKPOINT_TAKEN,
    STALE_COMPLETE_TAKEN,
    REFUSED_AND_WRITTEN,
    FENCE_REPEATED,
    CURSOR_LOST,
    CHECKPOINT_REFUSED, /* of the owner */
    COMPLETE_FORGOTTEN,
    RANGE_WRONG,
    WORKER_DIES,
    WORKER_HANGS,
};

static struct board {
    enum lie lie;
    _Atomic uint32_t next;
    uint32_t lease_ms;
    struct shard {
        uint64_t fence;
        uint64_t deadline_ns;
        bool held, done, has_cursor;
        uint8_t cursor[FARM_KEY_LEN];
    } shards[SHARDS];
} * board;

static void fill(uint32_t shards, uint32_t lease_ms)
{
    TEST_ASSERT_TRUE(shards <= SHARDS);
    memset(board->shards, 0, sizeof(board->shards));
    board->next = 0;
    board->lease_ms = lease_ms;
}

static struct tally tally(uint32_t shards)
{
    struct tally t = {0};
    for (uint32_t i = 0; i < shards; i++) {
        t.done += board->shards[i].done;
        t.held += board->shards[i].held;
    }
    return t;
}

struct worker {
    uint32_t index;
    uint64_t fence;
    uint32_t shards;
    uint8_t start[FARM_KEY_LEN];
};

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    static struct worker w;
    (void)number;
    (void)workers;
    w.shards = shards;
    return &w;
}

static void leave(void *worker)
{
    (void)worker;
}

static enum answer claim(void *worker, struct claim *out)
{
    struct worker *w = worker;
    uint32_t i = atomic_fetch_add(&board->next, 1);
    struct shard *s = &board->shards[i < w->shards ? i : 0];
    if (i >= w->shards && (s->done || bench_now() < s->deadline_ns)) {
        return REFUSED;
    }
    w->index = i < w->shards ? i : 0;
    s->fence += s->fence == 0 || board->lie != FENCE_REPEATED;
    s->held = true;
    s->deadline_ns = bench_now() + board->lease_ms * 1000000ull;
    s->has_cursor = s->has_cursor && board->lie != CURSOR_LOST;
    w->fence = s->fence;
    farm_key(w->start, w->index + (board->lie == RANGE_WRONG && w->index == LIAR), 0);
    *out = (struct claim){.index = w->index,
                          .fence = s->fence,
                          .start = w->start,
                          .cursor = s->has_cursor ? s->cursor : NULL};
    return ACCEPTED;
}

static void write_cursor(struct shard *s, const uint8_t *key)
{
    memcpy(s->cursor, key, FARM_KEY_LEN);
    s->has_cursor = true;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    struct shard *s = &board->shards[w->index];
    if (s->fence != w->fence && board->lie != STALE_CHECKPOINT_TAKEN) {
        if (board->lie == REFUSED_AND_WRITTEN) {
            write_cursor(s, key);
        }
        return REFUSED;
    }
    if (board->lie == CHECKPOINT_REFUSED && w->index == LIAR) {
        return REFUSED;
    }
    if (board->lie == WORKER_DIES && w->index == LIAR) {
        _exit(0);
    }
    if (board->lie == WORKER_HANGS && w->index == LIAR) {
        pause();
    }
    usleep(STEP_US);
    write_cursor(s, key);
    return ACCEPTED;
}

static enum answer complete(void *worker, const uint8_t *key)
{
    struct worker *w = worker;
    struct shard *s = &board->shards[w->index];
    if (s->fence != w->fence && board->lie != STALE_COMPLETE_TAKEN) {
        return REFUSED;
    }
    write_cursor(s, key);
    s->held = false;
    s->done = board->lie != COMPLETE_FORGOTTEN || w->index != LIAR;
    return ACCEPTED;
}

static const struct setting setting = {.name = "as told", .shards = SHARDS};
static const struct peer peer = {
    .name = "a peer",
    .settings = &setting,
    .settings_count = 1,
    .lease_ms = LEASE_MS,
    .fill = fill,
    .tally = tally,
    .join = join,
    .claim = claim,
    .checkpoint = checkpoint,
    .complete = complete,
    .leave = leave,
};

static void check_stale(void *argument)
{
    (void)argument;
    stale_check(&peer, &setting);
}

static void measure(void *argument)
{
    const struct window window = {.warm_s = 0.1, .timed_s = 0.2, .shards_part = 1};
    struct outcome outcome = fleet_measure(&peer, &setting, 2, window);
    if (outcome.steps_per_s <= 0 || outcome.seconds <= 0) {
        fail("nothing was measured");
    }
    (void)argument;
}

static bool good(void (*what)(void *argument), enum lie lie, unsigned seconds)
{
    board->lie = lie;
    return attempt_apart(what, NULL, seconds);
}

static void a_peer_that_refuses_its_stale_owners_is_measured(void)
{
    TEST_ASSERT_TRUE(good(check_stale, NONE, 0));
    TEST_ASSERT_TRUE(good(measure, NONE, 0));
}

static void a_peer_that_takes_what_a_stale_owner_writes_is_not(void)
{
    TEST_ASSERT_FALSE(good(check_stale, STALE_CHECKPOINT_TAKEN, 0));
    TEST_ASSERT_FALSE(good(check_stale, STALE_COMPLETE_TAKEN, 0));
    TEST_ASSERT_FALSE(good(check_stale, REFUSED_AND_WRITTEN, 0));
}

static void nor_one_that_repeats_a_fence_or_loses_the_cursor(void)
{
    TEST_ASSERT_FALSE(good(check_stale, FENCE_REPEATED, 0));
    TEST_ASSERT_FALSE(good(check_stale, CURSOR_LOST, 0));
}

static void a_refused_step_is_never_counted(void)
{
    TEST_ASSERT_FALSE(good(measure, CHECKPOINT_REFUSED, 0));
}

static void what_the_workers_did_must_be_there_afterwards(void)
{
    TEST_ASSERT_FALSE(good(measure, COMPLETE_FORGOTTEN, 0));
    TEST_ASSERT_FALSE(good(measure, RANGE_WRONG, 0));
}

static void a_worker_that_ends_or_hangs_ends_the_turn_and_not_the_program(void)
{
    TEST_ASSERT_FALSE(good(measure, WORKER_DIES, 0));
    TEST_ASSERT_FALSE(good(measure, WORKER_HANGS, 2));
}

void setUp(void)
{
}

void tearDown(void)
{
}

int main(void)
{
    board = shared_memory(sizeof(*board));
    UNITY_BEGIN();
    RUN_TEST(a_peer_that_refuses_its_stale_owners_is_measured);
    RUN_TEST(a_peer_that_takes_what_a_stale_owner_writes_is_not);
    RUN_TEST(nor_one_that_repeats_a_fence_or_loses_the_cursor);
    RUN_TEST(a_refused_step_is_never_counted);
    RUN_TEST(what_the_workers_did_must_be_there_afterwards);
    RUN_TEST(a_worker_that_ends_or_hangs_ends_the_turn_and_not_the_program);
    return UNITY_END();
}
