/* Which locks are held, by whom and since when: as far as somebody has looked. */
#include <string.h>
#include <unistd.h>

#include <unity.h>

#include "handle.h"
#include "hold.h"
#include "lock.h"
#include "shop.h"
#include "vault.h"

static struct vault vault;
static rf_store *store;

void setUp(void)
{
    vault_found(&vault, RF_VOLATILE);
    store = vault_open_manual(&vault);
    vault_run(store, &vault, 7, 1, 3, RF_VOLATILE);
}

void tearDown(void)
{
    rf_close(store);
    vault_raze(&vault);
}

struct list {
    unsigned count;
    rf_lock_info last;
};

static bool add(void *context, const rf_lock_info *lock)
{
    struct list *list = context;
    list->count++;
    list->last = *lock;
    return true;
}

static struct list locks(void)
{
    struct list list = {0};
    rf_detail detail = {0};
    RF_EXPECT(RF_OK, rf_list_locks(store, add, &list, &detail));
    return list;
}

/* As one who has named a lock and taken it, and goes no further. */
static void hold(rf_word32 *lock, enum rf_lock_kind kind)
{
    const struct rf_actor *a = &rf_handle_of(store)->actor;
    atomic_store(&a->desc->locks[kind], (uint64_t)((uint8_t *)lock - a->map->base));
    atomic_store(lock, a->id);
}

static void let_go(rf_word32 *lock, enum rf_lock_kind kind)
{
    atomic_store(lock, 0);
    atomic_store(&rf_handle_of(store)->actor.desc->locks[kind], 0);
}

static void a_lock_that_is_held_is_listed_with_what_it_guards(void)
{
    struct rf_map *map = rf_handle_of(store)->map;
    TEST_ASSERT_EQUAL_UINT(0, locks().count);
    hold(&rf_rec_at(map, 0)->lock, RF_LOCK_SHARD);
    struct list list = locks();
    TEST_ASSERT_EQUAL_UINT(1, list.count);
    TEST_ASSERT_EQUAL(RF_LOCK_OF_SHARD, list.last.what);
    TEST_ASSERT_EQUAL_UINT64(7, list.last.run);
    TEST_ASSERT_EQUAL_UINT64(rf_rec_at(map, 0)->shard, list.last.shard);
    TEST_ASSERT_EQUAL_UINT32((uint32_t)getpid(), list.last.pid);
    TEST_ASSERT_EQUAL_MEMORY(&vault.tenant, &list.last.tenant, sizeof(vault.tenant));
    hold(&rf_run_at(map, 0)->lock, RF_LOCK_RUN);
    TEST_ASSERT_EQUAL_UINT(2, locks().count);
    let_go(&rf_rec_at(map, 0)->lock, RF_LOCK_SHARD);
    list = locks();
    TEST_ASSERT_EQUAL_UINT(1, list.count);
    TEST_ASSERT_EQUAL(RF_LOCK_OF_RUN, list.last.what);
    let_go(&rf_run_at(map, 0)->lock, RF_LOCK_RUN);
    TEST_ASSERT_EQUAL_UINT(0, locks().count);
}

static void it_is_held_since_somebody_first_saw_it_and_not_for_longer(void)
{
    struct rf_handle *h = rf_handle_of(store);
    rf_word32 *lock = &rf_rec_at(h->map, 0)->lock;
    rf_word64 *note = &h->actor.me->noted[RF_LOCK_SHARD];
    hold(lock, RF_LOCK_SHARD);
    TEST_ASSERT_EQUAL_UINT64(0, locks().last.held);
    rf_hold_note_all(h->map);
    uint64_t noted = atomic_load(note);
    atomic_store(note, noted - 5000); /* five seconds ago */
    TEST_ASSERT_TRUE(locks().last.held >= 5 * RF_SECOND);
    rf_hold_note_all(h->map);
    TEST_ASSERT_EQUAL_UINT64(noted - 5000, atomic_load(note));
    /* Somebody noted it after we had looked at the clock: not held for 49 days. */
    atomic_store(note, noted + 60000);
    TEST_ASSERT_EQUAL_UINT64(0, locks().last.held);
    /* Another hold of the same lock: it was let go in between. */
    atomic_store(note, noted - 5000);
    uint64_t first = locks().last.hold;
    let_go(lock, RF_LOCK_SHARD);
    vault_lease(store, &vault, 7, 2);
    hold(lock, RF_LOCK_SHARD);
    TEST_ASSERT_EQUAL_UINT64(0, locks().last.held);
    TEST_ASSERT_NOT_EQUAL(first, locks().last.hold);
    let_go(lock, RF_LOCK_SHARD);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_lock_that_is_held_is_listed_with_what_it_guards);
    RUN_TEST(it_is_held_since_somebody_first_saw_it_and_not_for_longer);
    return UNITY_END();
}
