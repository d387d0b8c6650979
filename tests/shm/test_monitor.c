/* Looking from outside: a monitor sees what all processes do and counts what it missed, and a
 * read-only handle can't change a byte. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "desk.h"
#include "handle.h"
#include "hands.h"
#include "shop.h"

#define RUN  7u
#define ROOM 512u

static struct rf_shop shop;
static rf_store *store, *watcher;
static rf_monitor *monitor;
static rf_tenant tenant;
static rf_event events[ROOM];
static uint64_t lost;
static const rf_run_config lasting = {.lease_duration = 3600 * RF_SECOND};

void setUp(void)
{
    tenant = rf_tenant_of(1);
    rf_shop_found(&shop);
    rf_options look = rf_shop_small();
    look.read_only = true;
    store = rf_shop_enter_living(&shop, NULL);
    watcher = rf_shop_enter_living(&shop, &look);
    monitor = NULL;
    lost = 0;
}

void tearDown(void)
{
    rf_monitor_destroy(monitor);
    if (watcher != NULL) {
        rf_close(watcher);
    }
    rf_close(store);
    rf_shop_raze(&shop);
}

static size_t read_events(void)
{
    size_t count;
    uint64_t missed;
    RF_EXPECT(RF_OK, rf_monitor_read(monitor, events, ROOM, &count, &missed));
    lost += missed;
    return count;
}

static void a_monitor_tells_the_events_that_the_callers_saw(void)
{
    RF_EXPECT(RF_OK, rf_monitor_create(watcher, &monitor));
    TEST_ASSERT_EQUAL_size_t(0, read_events());
    rf_result result = {.want_event = true};
    rf_event told[8];
    rf_grant g = rf_shop_blank(0);
    uint64_t id, now = rf_now(store);
    const rf_cursor cursor = rf_cursor_with("k00000a", "secret");
    const rf_spec left = rf_spec_of("k00000", "k00000t"), right = rf_spec_of("k00000t", "k00001");
    rf_shop_stock(store, now, &tenant, RUN, &lasting, 2);
    TEST_ASSERT_EQUAL_size_t(1, read_events());
    TEST_ASSERT_EQUAL_STRING("run_activated", rf_event_name(events[0].kind));
    TEST_ASSERT_EQUAL_UINT32(2, events[0].count);
    TEST_ASSERT_EQUAL_MEMORY(&tenant, &events[0].tenant, sizeof(tenant));
    RF_EXPECT(RF_OK, rf_acquire(store, now + 1, &tenant, RUN, 1, 5, 0, &g, &result));
    told[0] = result.event;
    RF_EXPECT(RF_OK, rf_renew(store, now + 2, &tenant, &g.lease, &result)); /* not shown */
    RF_EXPECT(RF_OK, rf_checkpoint(store, now + 3, &tenant, &g.lease, &cursor, 1, &result));
    told[1] = result.event;
    RF_EXPECT(RF_OK, rf_checkpoint(store, now + 3, &tenant, &g.lease, &cursor, 1, &result));
    RF_EXPECT(RF_OK,
              rf_split_residual(store, now + 4, &tenant, &g.lease, &left, &right, 2, &id, &result));
    told[2] = result.event;
    RF_EXPECT(RF_OK, rf_park(store, now + 5, &tenant, &g.lease, RF_PARK_NOT_FOUND, 3, &result));
    told[3] = result.event;
    RF_EXPECT(RF_OK, rf_unpark(store, now + 6, &tenant, RUN, 1, 4, &result));
    told[4] = result.event;
    RF_EXPECT(RF_OK, rf_fail_run(store, now + 7, &tenant, RUN, 5, &result));
    told[5] = result.event;
    TEST_ASSERT_EQUAL_size_t(6, read_events());
    for (unsigned i = 0; i < 6; i++) {
        TEST_ASSERT_EQUAL_STRING(rf_event_name(told[i].kind), rf_event_name(events[i].kind));
        TEST_ASSERT_EQUAL_UINT64(told[i].time, events[i].time);
        TEST_ASSERT_EQUAL_UINT64(told[i].run, events[i].run);
        TEST_ASSERT_EQUAL_UINT64(told[i].shard, events[i].shard);
        TEST_ASSERT_EQUAL_UINT64(told[i].worker, events[i].worker);
        TEST_ASSERT_EQUAL_UINT64(told[i].fence, events[i].fence);
        TEST_ASSERT_EQUAL_UINT64(told[i].deadline, events[i].deadline);
        TEST_ASSERT_EQUAL_UINT64(told[i].child, events[i].child);
        TEST_ASSERT_EQUAL_UINT32(told[i].key_len, events[i].key_len);
        TEST_ASSERT_EQUAL(told[i].reason, events[i].reason);
    }
    RF_EXPECT(RF_OK, rf_purge_run(store, now + 8, &tenant, RUN, NULL));
    TEST_ASSERT_EQUAL_size_t(1, read_events());
    TEST_ASSERT_EQUAL(RF_EVENT_RUN_PURGED, events[0].kind);
    TEST_ASSERT_EQUAL_UINT64(0, lost);
}

struct chorus {
    _Atomic uint32_t go, step;
};

#define SINGERS 4u
#define SONGS   200u

static int sing(void *context)
{
    struct chorus *c = context;
    rf_store *mine = rf_shop_enter_living(&shop, NULL);
    uint64_t shard = 1 + atomic_fetch_add(&c->step, 1);
    rf_hands_until(&c->go, 1);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(mine, rf_now(mine), &tenant, RUN, shard, shard, 0, &g, NULL));
    for (uint64_t op = 1; op <= SONGS; op++) {
        const rf_cursor cursor = {.key = g.spec.start};
        RF_EXPECT(RF_OK, rf_checkpoint(mine, rf_now(mine), &tenant, &g.lease, &cursor, op, NULL));
    }
    _exit(0); /* without a word: its lease is lost */
}

static void events_of_several_processes_arrive_and_deaths_too(void)
{
    struct chorus *c = rf_hands_board(sizeof(*c));
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, SINGERS);
    RF_EXPECT(RF_OK, rf_monitor_create(watcher, &monitor));
    pid_t children[SINGERS];
    for (unsigned i = 0; i < SINGERS; i++) {
        children[i] = rf_hands_send(sing, c);
    }
    rf_hands_until(&c->step, SINGERS);
    atomic_store(&c->go, 1);
    uint32_t by_kind[32] = {0}, of_shard[SINGERS + 1] = {0};
    size_t count = 1; /* lanes are read in turn: a death may be seen before what came before it */
    for (unsigned n = 0; n < 20000 && (by_kind[RF_EVENT_OWNER_LOST] < SINGERS || count != 0); n++) {
        count = read_events();
        for (size_t i = 0; i < count; i++) {
            by_kind[events[i].kind]++;
            TEST_ASSERT_TRUE(events[i].shard >= 1 && events[i].shard <= SINGERS);
            of_shard[events[i].shard] += events[i].kind == RF_EVENT_CHECKPOINTED;
            TEST_ASSERT_EQUAL_MEMORY(&tenant, &events[i].tenant, sizeof(tenant));
        }
        usleep(500);
    }
    for (unsigned i = 0; i < SINGERS; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(children[i]));
    }
    TEST_ASSERT_EQUAL_UINT32(SINGERS, by_kind[RF_EVENT_OWNER_LOST]);
    uint64_t seen = by_kind[RF_EVENT_ACQUIRED];
    for (unsigned i = 1; i <= SINGERS; i++) {
        seen += of_shard[i];
    }
    TEST_ASSERT_EQUAL_UINT64(SINGERS * (SONGS + 1), seen + lost);
}

static void what_is_not_read_in_time_is_counted(void)
{
    const uint64_t many = 5000;
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 1);
    rf_grant g = rf_shop_blank(0);
    RF_EXPECT(RF_OK, rf_acquire(store, rf_now(store), &tenant, RUN, 1, 5, 0, &g, NULL));
    RF_EXPECT(RF_OK, rf_monitor_create(watcher, &monitor));
    for (uint64_t op = 1; op <= many; op++) {
        const rf_cursor cursor = {.key = g.spec.start};
        RF_EXPECT(RF_OK, rf_checkpoint(store, rf_now(store), &tenant, &g.lease, &cursor, op, NULL));
    }
    uint64_t seen = 0;
    for (unsigned n = 0; n < 100; n++) {
        seen += read_events();
    }
    printf("  %" PRIu64 " seen, %" PRIu64 " lost\n", seen, lost);
    TEST_ASSERT_EQUAL_UINT64(many, seen + lost);
    TEST_ASSERT_TRUE(lost > 0);
    RF_EXPECT(RF_OK, rf_release(store, rf_now(store), &tenant, &g.lease, NULL, 9999, NULL));
    uint64_t before = lost;
    TEST_ASSERT_EQUAL_size_t(1, read_events()); /* it goes on from there */
    TEST_ASSERT_EQUAL(RF_EVENT_RELEASED, events[0].kind);
    TEST_ASSERT_EQUAL_UINT64(before, lost);
}

static void a_small_buffer_gets_them_piece_by_piece(void)
{
    RF_EXPECT(RF_OK, rf_monitor_create(store, &monitor)); /* any handle may watch */
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 10);
    rf_grant g = rf_shop_blank(0);
    for (unsigned i = 0; i < 10; i++) {
        RF_EXPECT(RF_OK, rf_claim(store, rf_now(store), &tenant, RUN, 0, 0, 0, &g, NULL));
    }
    size_t count, total = 0;
    uint64_t missed;
    do {
        RF_EXPECT(RF_OK, rf_monitor_read(monitor, events, 3, &count, &missed));
        TEST_ASSERT_TRUE(count <= 3);
        total += count;
    } while (count != 0);
    TEST_ASSERT_EQUAL_size_t(11, total);
}

/* --- read only --- */

static bool accept_shard(void *context, const rf_shard_info *shard)
{
    *(uint64_t *)context += shard->shard;
    return true;
}

static bool accept_member(void *context, const rf_member_info *member)
{
    *(uint64_t *)context += member->pid == (uint32_t)getpid();
    return true;
}

static void a_read_only_handle_sees_everything(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 3);
    uint64_t sum = 0, members = 0;
    rf_progress p;
    RF_EXPECT(RF_OK, rf_list_shards(watcher, rf_now(watcher), &tenant, RUN, RF_LIST_ALL,
                                    accept_shard, &sum, NULL));
    TEST_ASSERT_EQUAL_UINT64(6, sum);
    RF_EXPECT(RF_OK, rf_get_progress(watcher, rf_now(watcher), &tenant, RUN, &p, NULL, NULL));
    TEST_ASSERT_EQUAL_UINT64(3, p.active);
    TEST_ASSERT_EQUAL_UINT64(3, rf_shop_capacity(watcher, &tenant, RUN).available);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_shard(watcher, &tenant, RUN, 2).fence);
    RF_EXPECT(RF_OK, rf_list_members(watcher, accept_member, &members, NULL));
    TEST_ASSERT_EQUAL_UINT64(2, members); /* the other handle and its guardian; not this one */
    TEST_ASSERT_EQUAL_UINT64(2, rf_shop_inspect(watcher).members);
}

static void a_read_only_handle_is_refused_every_change(void)
{
    rf_shop_stock(store, rf_now(store), &tenant, RUN, &lasting, 1);
    rf_grant g = rf_shop_blank(0);
    uint64_t now = rf_now(store), ids[2];
    RF_EXPECT(RF_OK, rf_acquire(store, now, &tenant, RUN, 1, 5, 0, &g, NULL));
    uint64_t version = rf_shop_shard(watcher, &tenant, RUN, 1).version;
    const rf_cursor cursor = rf_cursor_at("k00000a");
    const rf_child parts[2] = {rf_child_of("k00000", "k00000m"), rf_child_of("k00000m", "k00001")};
    const rf_shard_input one = rf_input_of(9, "x", "y");
    rf_lease lease = g.lease;
    rf_grant h = rf_shop_blank(1);
    const rf_status statuses[] = {
        rf_acquire(watcher, now, &tenant, RUN, 1, 5, 0, &h, NULL),
        rf_claim(watcher, now, &tenant, RUN, 5, 0, 0, &h, NULL),
        rf_renew(watcher, now, &tenant, &lease, NULL),
        rf_checkpoint(watcher, now, &tenant, &lease, &cursor, 1, NULL),
        rf_complete(watcher, now, &tenant, &lease, &cursor, 1, NULL),
        rf_park(watcher, now, &tenant, &lease, RF_PARK_OTHER, 1, NULL),
        rf_release(watcher, now, &tenant, &lease, NULL, 1, NULL),
        rf_split_replace(watcher, now, &tenant, &lease, parts, 2, 1, ids, NULL),
        rf_split_residual(watcher, now, &tenant, &lease, &parts[0].spec, &parts[1].spec, 1, ids,
                          NULL),
        rf_unpark(watcher, now, &tenant, RUN, 1, 1, NULL),
        rf_create_run(watcher, now, &tenant, 8, &lasting, NULL),
        rf_register_shards(watcher, now, &tenant, 8, &one, 1, 1, NULL),
        rf_add_shards(watcher, now, &tenant, RUN, &one, 1, 1, NULL),
        rf_create_run_with_shards(watcher, now, &tenant, 8, &lasting, &one, 1, 1, NULL),
        rf_complete_run(watcher, now, &tenant, RUN, 1, NULL),
        rf_fail_run(watcher, now, &tenant, RUN, 1, NULL),
        rf_cancel_run(watcher, now, &tenant, RUN, 1, NULL),
        rf_purge_run(watcher, now, &tenant, RUN, NULL),
        rf_tend(watcher, now),
        rf_sweep(watcher, now, &tenant, RUN, NULL),
    };
    for (unsigned i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        RF_EXPECT(RF_PERMISSION_DENIED, statuses[i]);
    }
    TEST_ASSERT_EQUAL_UINT64(version, rf_shop_shard(watcher, &tenant, RUN, 1).version);
    TEST_ASSERT_EQUAL_UINT64(1, rf_shop_inspect(watcher).runs);
}

/* What the kernel says about the mapping at this address: "r--s". */
static void protection_of(const void *address, char out[8])
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], mode[8];
    unsigned long from, to;
    TEST_ASSERT_NOT_NULL(maps);
    snprintf(out, 8, "none");
    while (fgets(line, sizeof(line), maps) != NULL) {
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) == 3 && (unsigned long)address >= from &&
            (unsigned long)address < to) {
            snprintf(out, 8, "%s", mode);
        }
    }
    fclose(maps);
}

static void a_read_only_handle_is_mapped_without_the_right_to_write(void)
{
    char mode[8];
    protection_of(rf_handle_of(watcher)->map->base, mode);
    TEST_ASSERT_EQUAL_STRING("r--s", mode);
    protection_of(rf_handle_of(store)->map->base, mode);
    TEST_ASSERT_EQUAL_STRING("rw-s", mode);
}

static int try_to_make_one_read_only(void *context)
{
    (void)context;
    rf_store *none;
    rf_detail detail;
    const rf_options look = {.read_only = true, .create = true};
    RF_EXPECT(RF_NOT_FOUND, rf_open("/tmp/ringfence-test-is-not-here", &look, &none, &detail));
    rf_shop_expect_words(RF_NOT_FOUND, &detail, "directory|ringfence-test-is-not-here");
    TEST_ASSERT_NULL(none);
    return access("/tmp/ringfence-test-is-not-here", F_OK) == 0 ? 1 : 0;
}

static void looking_makes_nothing(void)
{
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(try_to_make_one_read_only, NULL)));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_monitor_tells_the_events_that_the_callers_saw);
    RUN_TEST(events_of_several_processes_arrive_and_deaths_too);
    RUN_TEST(what_is_not_read_in_time_is_counted);
    RUN_TEST(a_small_buffer_gets_them_piece_by_piece);
    RUN_TEST(a_read_only_handle_sees_everything);
    RUN_TEST(a_read_only_handle_is_refused_every_change);
    RUN_TEST(a_read_only_handle_is_mapped_without_the_right_to_write);
    RUN_TEST(looking_makes_nothing);
    return UNITY_END();
}
