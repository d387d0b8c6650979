#include "scenes.h"

#include <stdio.h>
#include <stdlib.h>

#include "box.h"

#define TARGET 2u
#define WORKER 9u

/* A scene that can't be set is a mistake in the test or a broken store: nothing to go on with. */
static void must(rf_status status, const char *what)
{
    if (status != RF_OK) {
        fprintf(stderr, "scene: %s: %s\n", what, rf_status_name(status));
        abort();
    }
}
#define MUST(call) must(call, #call)

rf_options scene_options(const struct scene *scene)
{
    bool cool = scene != NULL && (scene->traits & SCENE_COOLDOWN) != 0;
    return (rf_options){.create = true,
                        .max_shards = 2048,
                        .max_bytes = 4u << 20,
                        .max_runs = 8,
                        .max_members = 8,
                        .claim_cooldown = cool ? 100 : 0,
                        .busy_timeout = 2 * RF_SECOND};
}

/* --- bytes --- */

/* A letter and then so many bytes that are no pattern of any length up to a block's. */
static rf_bytes long_bytes(char letter, size_t len)
{
    static uint8_t room[4][RF_TOKEN_MAX];
    static unsigned next;
    uint8_t *at = room[next++ % 4];
    for (size_t i = 0; i < len; i++) {
        at[i] = i == 0 ? (uint8_t)letter : (uint8_t)('a' + (unsigned)((i * i + i / 7) % 26));
    }
    return rf_bytes_of(at, len);
}

static rf_cursor at_key(rf_bytes key)
{
    return (rf_cursor){.key = key};
}

static rf_bytes text_of(unsigned i)
{
    static char room[512][8];
    char *at = room[i % 512];
    snprintf(at, sizeof(room[0]), "h%03u", i);
    return rf_text(at);
}

/* --- what there is before --- */

static const rf_run_config config = {.lease_duration = SCENE_DURATION};

/* Three ranges one after another; the second one is long. */
static void manifest(rf_shard_input shards[3])
{
    shards[0] = rf_input_of(1, "a", "h");
    shards[1] = rf_input_of(2, "h", "p");
    shards[2] = rf_input_of(3, "p", "z");
    shards[0].spec.metadata = long_bytes('m', 700);
    shards[0].cursor = (rf_cursor){.key = rf_text("b"), .token = long_bytes('t', 1500)};
}

/* `count` ranges from the first of text_of on; every 16th keeps its bytes in blocks. */
static void wide(rf_shard_input *shards, uint64_t first_id, unsigned from, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        shards[i] =
            (rf_shard_input){.shard = first_id + i,
                             .spec = {.start = text_of(from + i), .end = text_of(from + i + 1)}};
        if (i % 16 == 0) {
            shards[i].spec.metadata = long_bytes('w', 400);
            shards[i].cursor =
                (rf_cursor){.key = shards[i].spec.start, .token = long_bytes('x', 200)};
        }
    }
}

static void make_run(struct play *play)
{
    MUST(rf_create_run(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, &config, NULL));
}

static void make_shards(struct play *play)
{
    rf_shard_input shards[3];
    manifest(shards);
    MUST(rf_create_run_with_shards(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, &config,
                                   shards, 3, 1, NULL));
}

static void make_wide(struct play *play)
{
    rf_shard_input shards[70];
    wide(shards, 100, 0, 70);
    MUST(rf_create_run_with_shards(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, &config,
                                   shards, 70, 1, NULL));
}

/* Up to the edge of an extent, so that the next ones need another. */
static void make_edge(struct play *play)
{
    rf_shard_input shards[62];
    wide(shards, 100, 0, 62);
    MUST(rf_create_run_with_shards(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, &config,
                                   shards, 62, 1, NULL));
}

static void end_it(struct play *play)
{
    MUST(rf_complete_run(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, 2, NULL));
}

static void make_ended_wide(struct play *play)
{
    make_wide(play);
    end_it(play);
}

/* One shard, granted twice without progress: the third grant is one too many. */
static void make_exhausted(struct play *play)
{
    rf_shard_input shard = rf_input_of(TARGET, "h", "p");
    rf_run_config strict = {.lease_duration = 10, .has_max_retries = true, .max_retries = 1};
    MUST(rf_create_run_with_shards(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, &strict,
                                   &shard, 1, 1, NULL));
    for (uint64_t now = SCENE_BEGIN; now < SCENE_BEGIN + 200; now += 100) {
        MUST(rf_acquire(play->store, now, &play->tenant, SCENE_RUN, TARGET, WORKER, RF_DETACHED,
                        &play->grant, NULL));
    }
}

/* Two of three are leased and the leases will have run out at SCENE_LATE. */
static void make_expiring(struct play *play)
{
    make_shards(play);
    for (uint64_t shard = 1; shard <= 3; shard++) {
        MUST(rf_acquire(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, shard, WORKER,
                        RF_DETACHED, &play->grant, NULL));
    }
}

/* Shards of it have been granted: whoever purges it has to remember with which fence. */
static void make_ended(struct play *play)
{
    make_expiring(play);
    end_it(play);
}

/* --- what the actor does before --- */

static void take(struct play *play)
{
    MUST(rf_acquire(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, TARGET, WORKER, play->flags,
                    &play->grant, NULL));
    play->lease = play->grant.lease;
}

static void take_two(struct play *play)
{
    MUST(rf_acquire(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, 1, WORKER, play->flags,
                    &play->grant, NULL));
    take(play);
}

static void take_at(struct play *play, rf_cursor cursor)
{
    take(play);
    MUST(rf_checkpoint(play->store, SCENE_BEGIN, &play->tenant, &play->lease, &cursor, 11, NULL));
}

static void take_with_block(struct play *play)
{
    take_at(play, at_key(long_bytes('i', 200)));
}

static void take_with_large_block(struct play *play)
{
    take_at(play, at_key(long_bytes('i', 3000)));
}

static void take_and_park(struct play *play)
{
    take(play);
    MUST(
        rf_park(play->store, SCENE_BEGIN, &play->tenant, &play->lease, RF_PARK_POISONED, 11, NULL));
}

/* Somebody whose clock is ahead found the lease run out. */
static void take_and_expire(struct play *play)
{
    take(play);
    MUST(rf_sweep(play->store, SCENE_LATE, &play->tenant, SCENE_RUN, NULL));
}

/* The ring is full: the next operation pushes the oldest one out. */
static void take_and_fill_ring(struct play *play)
{
    take(play);
    for (uint64_t op = 100; op < 100 + RF_SHARD_RING; op++) {
        rf_cursor cursor = rf_cursor_at("i");
        MUST(rf_checkpoint(play->store, SCENE_BEGIN, &play->tenant, &play->lease, &cursor, op,
                           NULL));
    }
}

static rf_status cut(struct play *play, unsigned from, unsigned to, size_t metadata, uint64_t op,
                     rf_result *result)
{
    rf_bytes more = metadata == 0 ? rf_bytes_none() : long_bytes('r', metadata);
    rf_spec whole = {.start = rf_text("h"), .end = from == 0 ? rf_text("p") : text_of(from)};
    rf_spec parent = {.start = whole.start, .end = text_of(to), .metadata = more};
    rf_spec residual = {.start = text_of(to), .end = whole.end, .metadata = more};
    uint64_t id;
    return rf_split_residual(play->store, SCENE_NOW, &play->tenant, &play->lease, &parent,
                             &residual, op, &id, result);
}

/* 32 residuals: their ids fill a block. */
static void take_and_cut_32(struct play *play)
{
    take(play);
    for (unsigned i = 0; i < 32; i++) {
        MUST(cut(play, i == 0 ? 0 : 400 - i, 400 - (i + 1), 0, 200 + i, NULL));
    }
}

/* --- the operations --- */

static rf_status act_create_run(struct play *play, rf_result *result)
{
    return rf_create_run(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, &config, result);
}

static rf_status act_register(struct play *play, rf_result *result)
{
    rf_shard_input shards[3];
    manifest(shards);
    return rf_register_shards(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, shards, 3, SCENE_OP,
                              result);
}

/* More than one record of the log holds: a chain of chunks, and the record that closes it. */
static rf_status act_register_long(struct play *play, rf_result *result)
{
    rf_shard_input shards[5];
    for (unsigned i = 0; i < 5; i++) {
        shards[i] = (rf_shard_input){.shard = i + 1,
                                     .spec = {.start = text_of(i),
                                              .end = text_of(i + 1),
                                              .metadata = long_bytes('m', RF_METADATA_MAX - 1000)}};
    }
    return rf_register_shards(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, shards, 5, SCENE_OP,
                              result);
}

static rf_status act_create_with_shards(struct play *play, rf_result *result)
{
    rf_shard_input shards[3];
    manifest(shards);
    return rf_create_run_with_shards(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, &config,
                                     shards, 3, SCENE_OP, result);
}

static rf_status act_create_wide(struct play *play, rf_result *result)
{
    rf_shard_input shards[140];
    wide(shards, 100, 0, 140);
    return rf_create_run_with_shards(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, &config,
                                     shards, 140, SCENE_OP, result);
}

static rf_status act_add(struct play *play, rf_result *result)
{
    rf_shard_input shards[2] = {rf_input_of(4, "z", "zm"), rf_input_of(5, "zm", "zz")};
    shards[1].spec.metadata = long_bytes('m', 300);
    return rf_add_shards(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, shards, 2, SCENE_OP,
                         result);
}

static rf_status act_add_over_edge(struct play *play, rf_result *result)
{
    rf_shard_input shards[4];
    wide(shards, 200, 62, 4);
    return rf_add_shards(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, shards, 4, SCENE_OP,
                         result);
}

static rf_status act_acquire(struct play *play, rf_result *result)
{
    return rf_acquire(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, TARGET, WORKER, play->flags,
                      &play->grant, result);
}

static rf_status act_claim(struct play *play, rf_result *result)
{
    return rf_claim(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, WORKER, play->flags, 0,
                    &play->grant, result);
}

static rf_status act_claim_late(struct play *play, rf_result *result)
{
    return rf_claim(play->store, SCENE_LATE, &play->tenant, SCENE_RUN, WORKER, play->flags, 0,
                    &play->grant, result);
}

static rf_status act_renew(struct play *play, rf_result *result)
{
    rf_lease lease = play->lease;
    return rf_renew(play->store, SCENE_NOW, &play->tenant, &lease, result);
}

static rf_status checkpoint(struct play *play, rf_cursor cursor, rf_result *result)
{
    return rf_checkpoint(play->store, SCENE_NOW, &play->tenant, &play->lease, &cursor, SCENE_OP,
                         result);
}

static rf_status act_checkpoint_short(struct play *play, rf_result *result)
{
    return checkpoint(play, rf_cursor_with("k", "token"), result);
}

static rf_status act_checkpoint_long(struct play *play, rf_result *result)
{
    return checkpoint(play, at_key(long_bytes('k', 3000)), result);
}

static rf_status act_checkpoint_token(struct play *play, rf_result *result)
{
    return checkpoint(
        play, (rf_cursor){.key = rf_text("k"), .token = long_bytes('t', RF_TOKEN_MAX)}, result);
}

static rf_status act_complete(struct play *play, rf_result *result)
{
    rf_cursor cursor = rf_cursor_at("k");
    return rf_complete(play->store, SCENE_NOW, &play->tenant, &play->lease, &cursor, SCENE_OP,
                       result);
}

static rf_status act_complete_long(struct play *play, rf_result *result)
{
    rf_cursor cursor = at_key(long_bytes('k', 1000));
    return rf_complete(play->store, SCENE_NOW, &play->tenant, &play->lease, &cursor, SCENE_OP,
                       result);
}

static rf_status act_park(struct play *play, rf_result *result)
{
    return rf_park(play->store, SCENE_NOW, &play->tenant, &play->lease, RF_PARK_NOT_FOUND, SCENE_OP,
                   result);
}

static rf_status act_release(struct play *play, rf_result *result)
{
    return rf_release(play->store, SCENE_NOW, &play->tenant, &play->lease, NULL, SCENE_OP, result);
}

static rf_status act_release_at(struct play *play, rf_result *result)
{
    rf_cursor cursor = at_key(long_bytes('k', 1000));
    return rf_release(play->store, SCENE_NOW, &play->tenant, &play->lease, &cursor, SCENE_OP,
                      result);
}

static rf_status act_split_two(struct play *play, rf_result *result)
{
    rf_child children[2] = {rf_child_of("k", "p"), rf_child_of("h", "k")};
    uint64_t ids[2];
    children[0].spec.metadata = long_bytes('c', 900);
    children[1].cursor = (rf_cursor){.key = rf_text("i"), .token = long_bytes('d', 500)};
    return rf_split_replace(play->store, SCENE_NOW, &play->tenant, &play->lease, children, 2,
                            SCENE_OP, ids, result);
}

static rf_status act_split_most(struct play *play, rf_result *result)
{
    static rf_child children[RF_SPLIT_CHILDREN_MAX];
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
    for (unsigned i = 0; i < RF_SPLIT_CHILDREN_MAX; i++) {
        children[i] = (rf_child){
            .spec = {.start = i == 0 ? rf_text("h") : text_of(i),
                     .end = i + 1 == RF_SPLIT_CHILDREN_MAX ? rf_text("p") : text_of(i + 1)}};
        if (i % 32 == 0) {
            children[i].spec.metadata = long_bytes('c', 900);
        }
    }
    return rf_split_replace(play->store, SCENE_NOW, &play->tenant, &play->lease, children,
                            RF_SPLIT_CHILDREN_MAX, SCENE_OP, ids, result);
}

static rf_status act_residual(struct play *play, rf_result *result)
{
    return cut(play, 0, 300, 0, SCENE_OP, result);
}

static rf_status act_residual_long(struct play *play, rf_result *result)
{
    return cut(play, 0, 300, 600, SCENE_OP, result);
}

static rf_status act_residual_33rd(struct play *play, rf_result *result)
{
    return cut(play, 400 - 32, 300, 0, SCENE_OP, result);
}

static rf_status act_unpark(struct play *play, rf_result *result)
{
    return rf_unpark(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, TARGET, SCENE_OP, result);
}

static rf_status act_complete_run(struct play *play, rf_result *result)
{
    return rf_complete_run(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, SCENE_OP, result);
}

static rf_status act_fail_run(struct play *play, rf_result *result)
{
    return rf_fail_run(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, SCENE_OP, result);
}

static rf_status act_cancel_run(struct play *play, rf_result *result)
{
    return rf_cancel_run(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, SCENE_OP, result);
}

static rf_status act_purge(struct play *play, rf_result *result)
{
    return rf_purge_run(play->store, SCENE_NOW, &play->tenant, SCENE_RUN, result);
}

static rf_status act_sweep(struct play *play, rf_result *result)
{
    (void)result;
    return rf_sweep(play->store, SCENE_LATE, &play->tenant, SCENE_RUN, NULL);
}

static rf_status act_open(struct play *play, rf_result *result)
{
    rf_options options = scene_options(NULL);
    rf_inspection seen = {.dead_members = 1};
    (void)result;
    rf_status status = rf_open(play->name, &options, &play->store, NULL);
    /* Its guardian settles whoever is dead. */
    while (status == RF_OK && seen.dead_members != 0) {
        status = rf_inspect(play->store, &seen, NULL);
    }
    return status;
}

static rf_status act_close(struct play *play, rf_result *result)
{
    (void)result;
    return rf_close(play->store);
}

#define EXECUTED                                                                                   \
    {                                                                                              \
        RF_OK, RF_EXECUTED                                                                         \
    }
#define REPLAYED                                                                                   \
    {                                                                                              \
        RF_OK, RF_REPLAYED                                                                         \
    }
#define ANSWER(status_name)                                                                        \
    {                                                                                              \
        RF_##status_name, -1                                                                       \
    }

/* Of an owner, with an op id. */
#define OWNED(words, before, action, more)                                                         \
    {                                                                                              \
        .name = words, .traits = SCENE_LEASED | (more), .prepare = make_shards, .enter = before,   \
        .act = action, .if_done = REPLAYED, .if_undone = EXECUTED, .if_lost = ANSWER(STALE_FENCE), \
        .same = true                                                                               \
    }
/* On a run, with an op id. */
#define RUN_OP(words, before, action, more)                                                        \
    {                                                                                              \
        .name = words, .traits = (more), .prepare = before, .act = action, .if_done = REPLAYED,    \
        .if_undone = EXECUTED, .same = true                                                        \
    }

const struct scene scenes[] = {
    {.name = "create_run",
     .act = act_create_run,
     .if_done = ANSWER(RUN_EXISTS),
     .if_undone = EXECUTED,
     .same = true},
    RUN_OP("register", make_run, act_register, 0),
    RUN_OP("register_in_a_chain", make_run, act_register_long, SCENE_LARGE),
    RUN_OP("create_run_with_shards", NULL, act_create_with_shards, 0),
    RUN_OP("create_run_with_140_shards", NULL, act_create_wide, SCENE_LARGE),
    RUN_OP("add_shards", make_shards, act_add, 0),
    RUN_OP("add_shards_into_a_new_extent", make_edge, act_add_over_edge, 0),
    {.name = "acquire",
     .traits = SCENE_FORGETS | SCENE_GRANTS,
     .prepare = make_shards,
     .act = act_acquire,
     .if_done = ANSWER(ALREADY_LEASED),
     .if_undone = EXECUTED,
     .if_lost = EXECUTED,
     .same = true},
    {.name = "claim",
     .traits = SCENE_FORGETS | SCENE_GRANTS,
     .prepare = make_shards,
     .act = act_claim,
     .if_done = EXECUTED,
     .if_undone = EXECUTED,
     .if_lost = EXECUTED},
    {.name = "claim_of_an_expired_lease",
     .traits = SCENE_FORGETS | SCENE_GRANTS | SCENE_UNORDERED | SCENE_LATE_LOOK,
     .prepare = make_expiring,
     .act = act_claim_late,
     .if_done = EXECUTED,
     .if_undone = EXECUTED,
     .if_lost = EXECUTED},
    {.name = "claim_that_parks",
     .traits = SCENE_UNORDERED,
     .prepare = make_exhausted,
     .act = act_claim,
     .if_done = ANSWER(NONE_AVAILABLE),
     .if_undone = ANSWER(NONE_AVAILABLE),
     .same = true},
    {.name = "claim_with_a_cooldown",
     .traits = SCENE_FORGETS | SCENE_GRANTS | SCENE_COOLDOWN,
     .prepare = make_shards,
     .act = act_claim,
     .if_done = ANSWER(THROTTLED),
     .if_undone = ANSWER(THROTTLED),
     .if_lost = ANSWER(THROTTLED)},
    {.name = "renew",
     .traits = SCENE_FORGETS | SCENE_LEASED | SCENE_UNORDERED,
     .prepare = make_shards,
     .enter = take,
     .act = act_renew,
     .if_done = EXECUTED,
     .if_undone = EXECUTED,
     .if_lost = ANSWER(STALE_FENCE),
     .same = true},
    {.name = "renew_of_a_listed_shard",
     .traits = SCENE_FORGETS | SCENE_UNCOUNTED | SCENE_LEASED | SCENE_UNORDERED | SCENE_LATE_LOOK,
     .prepare = make_shards,
     .enter = take_and_expire,
     .act = act_renew,
     .if_done = EXECUTED,
     .if_undone = EXECUTED,
     .if_lost = ANSWER(STALE_FENCE)},
    OWNED("checkpoint", take, act_checkpoint_short, 0),
    OWNED("checkpoint_with_a_full_ring", take_and_fill_ring, act_checkpoint_short, 0),
    OWNED("checkpoint_into_a_block", take, act_checkpoint_long, 0),
    OWNED("checkpoint_into_a_larger_block", take_with_block, act_checkpoint_long, 0),
    OWNED("checkpoint_out_of_a_block", take_with_large_block, act_checkpoint_short, 0),
    OWNED("checkpoint_with_the_longest_token", take_with_block, act_checkpoint_token, 0),
    OWNED("complete", take, act_complete, 0),
    OWNED("complete_into_a_block", take_with_block, act_complete_long, 0),
    OWNED("park", take_with_block, act_park, 0),
    OWNED("release", take, act_release, 0),
    OWNED("release_with_a_cursor", take_with_block, act_release_at, 0),
    OWNED("split_replace_in_2", take, act_split_two, 0),
    OWNED("split_replace_in_256", take, act_split_most, SCENE_LARGE),
    OWNED("split_residual", take, act_residual, 0),
    OWNED("split_residual_with_long_ranges", take, act_residual_long, 0),
    OWNED("split_residual_that_moves_the_list", take_and_cut_32, act_residual_33rd, 0),
    {.name = "unpark",
     .prepare = make_shards,
     .enter = take_and_park,
     .act = act_unpark,
     .if_done = REPLAYED,
     .if_undone = EXECUTED,
     .same = true},
    RUN_OP("complete_run", make_shards, act_complete_run, 0),
    RUN_OP("fail_run", make_shards, act_fail_run, 0),
    RUN_OP("cancel_run", make_run, act_cancel_run, 0),
    {.name = "purge",
     .traits = SCENE_UNORDERED,
     .prepare = make_ended,
     .act = act_purge,
     .if_done = ANSWER(RUN_NOT_FOUND),
     .if_undone = EXECUTED,
     .same = true},
    {.name = "purge_of_70_shards",
     .traits = SCENE_UNORDERED | SCENE_LARGE,
     .prepare = make_ended_wide,
     .act = act_purge,
     .if_done = ANSWER(RUN_NOT_FOUND),
     .if_undone = EXECUTED,
     .same = true},
    {.name = "sweep_of_expired_leases",
     .traits = SCENE_UNORDERED | SCENE_LATE_LOOK,
     .prepare = make_expiring,
     .act = act_sweep,
     .if_done = {RF_OK, -1},
     .if_undone = {RF_OK, -1},
     .same = true},
    {.name = "open",
     .traits = SCENE_PROCESS | SCENE_UNORDERED | SCENE_OPENS,
     .prepare = make_shards,
     .act = act_open},
    {.name = "close",
     .traits = SCENE_LEASED | SCENE_PROCESS | SCENE_UNORDERED,
     .prepare = make_shards,
     .enter = take_two,
     .act = act_close},
};
const unsigned scene_count = sizeof(scenes) / sizeof(scenes[0]);

const struct scene *scene_by_name(const char *name)
{
    for (unsigned i = 0; i < scene_count; i++) {
        if (strcmp(scenes[i].name, name) == 0) {
            return &scenes[i];
        }
    }
    fprintf(stderr, "there is no scene called %s\n", name);
    abort();
}
