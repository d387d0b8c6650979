/*
 * Two sweepers at once: while one settles a dead member, another one comes in at any place and does
 * the same. Afterwards the slot's next owner lives and dies like any other.
 *
 * Members are handles without a guardian, so that one process can play all parts: the second sweeper
 * is called from the first one's points. Only the last case has guardians and real deaths.
 */
#include <string.h>
#include <unity.h>

#include "crew.h"
#include "farm.h"
#include "handle.h"
#include "point.h"
#include "reap.h"

#define SHARDS 8u
#define RUN    1u

static const char *name;
static rf_store *first, *second;

/* --- the second sweeper --- */

static uint32_t hits, come_at, dead_slot;
static bool inside;
static bool only_reaps; /* as those do who wait for a lock, or read */

static void come_in(const char *point)
{
    (void)point;
    if (inside || ++hits != come_at) {
        return;
    }
    inside = true;
    if (only_reaps) {
        rf_reap_if_dead(&rf_handle_of(second)->actor, dead_slot);
    } else {
        rf_tend(second, rf_now(second));
    }
    inside = false;
}

static rf_store *open_by_hand(void)
{
    return crew_open(name, &(rf_options){.create = true,
                                         .manual = true,
                                         .max_shards = 1000,
                                         .max_bytes = 1u << 20,
                                         .max_runs = 4,
                                         .max_members = 16});
}

void setUp(void)
{
    struct farm_key keys[SHARDS + 1];
    rf_shard_input inputs[SHARDS];
    rf_tenant tenant = farm_tenant(RUN);
    rf_run_config config = {.lease_duration = 3600 * RF_SECOND};
    name = crew_store("sweepers");
    first = open_by_hand();
    second = open_by_hand();
    for (uint32_t i = 0; i <= SHARDS; i++) {
        keys[i] = farm_key(i + 1);
    }
    for (uint32_t i = 0; i < SHARDS; i++) {
        inputs[i] = (rf_shard_input){
            .shard = i + 1, .spec = {.start = {keys[i].bytes, 8}, .end = {keys[i + 1].bytes, 8}}};
    }
    TEST_ASSERT_EQUAL(RF_OK, rf_create_run_with_shards(first, rf_now(first), &tenant, RUN, &config,
                                                       inputs, SHARDS, 1, NULL));
}

void tearDown(void)
{
    rf_point_on_hit = NULL;
    rf_close(first);
    rf_close(second);
    crew_store_drop();
}

static rf_lease claim(rf_store *store)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = farm_tenant(RUN);
    TEST_ASSERT_EQUAL(RF_OK,
                      rf_claim(store, rf_now(store), &tenant, RUN, 0, RF_BOUND, 0, &grant, NULL));
    return grant.lease;
}

static uint64_t available(void)
{
    rf_capacity capacity = {0};
    rf_tenant tenant = farm_tenant(RUN);
    TEST_ASSERT_EQUAL(RF_OK, rf_get_capacity(first, &tenant, RUN, &capacity, NULL));
    return capacity.available;
}

/* Dies as the kernel would tell it, and is forgotten. Returns its slot. */
static uint32_t die(rf_store *store)
{
    struct rf_handle *h = rf_handle_of(store);
    uint32_t slot = h->actor.slot;
    rf_declare_dead(h->map, slot);
    rf_region_close(h->map);
    free(h->copy);
    free(h);
    return slot;
}

/* Opens handles until one has this slot; the others are closed again. */
static rf_store *move_into(uint32_t slot)
{
    rf_store *tried[16], *found = NULL;
    uint32_t n = 0;
    while (found == NULL && n < 16) {
        rf_store *store = open_by_hand();
        if (rf_handle_of(store)->actor.slot == slot) {
            found = store;
        } else {
            tried[n++] = store;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        rf_close(tried[i]);
    }
    return found;
}

/* A second sweeper at the come_at-th point. Returns whether there was one. */
static bool play(uint32_t at)
{
    char label[32];
    snprintf(label, sizeof(label), "at point %u%s", at, only_reaps ? ", reaping" : "");
    rf_store *victim = open_by_hand();
    claim(victim);
    claim(victim);
    uint32_t slot = dead_slot = die(victim);
    hits = 0;
    come_at = at;
    rf_point_on_hit = come_in;
    rf_tend(first, rf_now(first));
    rf_point_on_hit = NULL;
    bool came = hits >= at;
    rf_tend(second, rf_now(second));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(SHARDS, available(), label);

    rf_store *next = move_into(slot);
    TEST_ASSERT_NOT_NULL_MESSAGE(next, label);
    const struct rf_member *member = rf_member_at(rf_handle_of(first)->map, slot);
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(RF_PHASE_LIVE, atomic_load(&member->phase), label);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, atomic_load(&member->reaper), label);
    rf_lease lease = claim(next);
    rf_tenant tenant = farm_tenant(RUN);
    TEST_ASSERT_EQUAL_MESSAGE(RF_OK, rf_renew(next, rf_now(next), &tenant, &lease, NULL), label);
    die(next);
    rf_tend(second, rf_now(second));
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(SHARDS, available(), label);
    return came;
}

static void play_everywhere(void)
{
    uint32_t at = 1;
    while (play(at)) {
        at++;
    }
    printf("  %u places\n", at - 1);
    TEST_ASSERT_GREATER_THAN_UINT32(15, at);
}

static void a_second_sweeper_may_come_in_at_any_place(void)
{
    only_reaps = false;
    play_everywhere();
}

static void a_second_reaper_may_come_in_at_any_place(void)
{
    only_reaps = true;
    play_everywhere();
}

/* --- a death during the sweep of another --- */

struct camp {
    _Atomic uint32_t settled;
    pid_t early, late;
};

static struct camp *camp;
static _Atomic uint32_t freed;

static int hold_one(void *argument)
{
    (void)argument;
    claim(crew_open(name, &(rf_options){0}));
    atomic_fetch_add(&camp->settled, 1);
    while (pause() != 0) {
    }
    return 0;
}

/* In the guardian, which has passed the slots of the early one in this round. */
static void kill_the_early_one(const char *point)
{
    if (strcmp(point, "sweep.freed") == 0 && atomic_fetch_add(&freed, 1) == 1) {
        crew_kill(camp->early);
    }
}

static bool has_settled(void *context)
{
    return atomic_load(&camp->settled) == *(uint32_t *)context;
}

static bool all_available(void *context)
{
    (void)context;
    return available() == SHARDS;
}

static void who_dies_while_another_is_swept_is_noticed_at_once(void)
{
    camp = crew_shared(sizeof(*camp));
    camp->early = crew_start(hold_one, NULL);
    TEST_ASSERT_TRUE(crew_until(has_settled, &(uint32_t){1}, 10000));
    camp->late = crew_start(hold_one, NULL);
    TEST_ASSERT_TRUE(crew_until(has_settled, &(uint32_t){2}, 10000));
    rf_store *guarded = crew_open(name, &(rf_options){0});
    TEST_ASSERT_EQUAL_UINT64(SHARDS - 2, available());
    crew_stop(camp->early); /* or it would do the sweeping */
    rf_point_on_hit = kill_the_early_one;
    uint64_t at = crew_ns();
    crew_kill(camp->late);
    TEST_ASSERT_TRUE(crew_until(all_available, NULL, 10000));
    TEST_ASSERT_LESS_THAN_UINT64(RF_SECOND, crew_ns() - at);
    TEST_ASSERT_GREATER_THAN_UINT32(2, atomic_load(&freed));
    rf_close(guarded);
    rf_point_on_hit = NULL;
    crew_unshare(camp, sizeof(*camp));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_second_sweeper_may_come_in_at_any_place);
    RUN_TEST(a_second_reaper_may_come_in_at_any_place);
    RUN_TEST(who_dies_while_another_is_swept_is_noticed_at_once);
    return UNITY_END();
}
