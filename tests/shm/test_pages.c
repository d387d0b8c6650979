/* Large pages under the shards: asked for where all is there, while everybody goes on. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unity.h>

#include "handle.h"
#include "pages.h"
#include "shop.h"
#include "vault.h"

#define SHARDS      6000u /* on a little over 5 MB */
#define LARGE       ((uintptr_t)2 << 20)
#define WORKERS     2u
#define PATIENCE_MS 60000u

static struct vault vault;
static rf_store *store;

static void open_store(void)
{
    vault_found(&vault, RF_VOLATILE);
    store = vault_open_manual(&vault);
}

void setUp(void)
{
}

void tearDown(void)
{
    if (store != NULL) {
        rf_close(store);
        store = NULL;
    }
    vault_raze(&vault);
}

static struct rf_map *map_of(rf_store *s)
{
    return rf_handle_of(s)->map;
}

static uint64_t asked_for(void)
{
    return atomic_load(&map_of(store)->header->enlarged);
}

static uint64_t memory_taken(void)
{
    struct stat st;
    TEST_ASSERT_EQUAL(0, fstat(map_of(store)->fd, &st));
    return (uint64_t)st.st_blocks * 512;
}

/* Of this process's mapping of the region, bytes that it sees on large pages; touches all records first. */
static uint64_t on_large_pages(void)
{
    const struct rf_map *map = map_of(store);
    char line[512];
    bool ours = false;
    uint64_t kib = 0;
    for (uint64_t e = 0; e * RF_EXTENT_SHARDS < SHARDS; e++) {
        (void)atomic_load(&map->extents[e].claimable);
    }
    FILE *f = fopen("/proc/self/smaps", "r");
    TEST_ASSERT_NOT_NULL(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) {
            ours = from <= (uintptr_t)map->base && (uintptr_t)map->base < to;
        } else if (ours && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1) {
            break;
        }
    }
    fclose(f);
    return kib * 1024;
}

/* Whether this kernel gives large pages for shared memory at all. */
static bool kernel_gives_them(void)
{
    int fd = memfd_create("ringfence-test", 0);
    TEST_ASSERT_TRUE(fd >= 0 && ftruncate(fd, (off_t)LARGE) == 0 &&
                     fallocate(fd, 0, 0, (off_t)LARGE) == 0);
    uint8_t *at = rf_pages_map(fd, LARGE, PROT_READ | PROT_WRITE);
    TEST_ASSERT_NOT_NULL(at);
    memset(at, 1, LARGE);
    bool given = madvise(at, LARGE, 25 /* MADV_COLLAPSE */) == 0;
    munmap(at, LARGE);
    close(fd);
    return given;
}

/* --- */

static void a_region_is_mapped_where_large_pages_fit(void)
{
    open_store();
    TEST_ASSERT_EQUAL_UINT64(0, (uintptr_t)map_of(store)->base % LARGE);
    rf_options look = vault.options;
    look.create = false;
    look.read_only = true;
    rf_store *other = crew_open(vault.directory, &look);
    TEST_ASSERT_EQUAL_UINT64(0, (uintptr_t)map_of(other)->base % LARGE);
    rf_close(other);
}

static void nothing_is_asked_for_that_is_not_there(void)
{
    open_store();
    TEST_ASSERT_FALSE(rf_pages_due(map_of(store)));
    vault_run(store, &vault, 1, 1, 1000, RF_VOLATILE);
    TEST_ASSERT_FALSE(rf_pages_due(map_of(store)));
    rf_pages_enlarge(map_of(store));
    TEST_ASSERT_EQUAL_UINT64(0, asked_for());

    vault_run(store, &vault, 2, 2000, SHARDS - 1000, RF_VOLATILE);
    TEST_ASSERT_TRUE(rf_pages_due(map_of(store)));
    uint64_t before = memory_taken();
    rf_pages_enlarge(map_of(store));
    TEST_ASSERT_FALSE(rf_pages_due(map_of(store)));
    TEST_ASSERT_EQUAL_UINT64(before, memory_taken());
    /* All whole pieces between the first extent and the last one that was taken. */
    const struct rf_header *h = map_of(store)->header;
    uint64_t taken = (SHARDS + 2 * RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS;
    uint64_t from = (h->extents.offset + LARGE - 1) / LARGE;
    uint64_t to = (h->extents.offset + taken * h->extents.stride) / LARGE;
    TEST_ASSERT_TRUE(to > from && asked_for() >= to - from - 1 && asked_for() <= to - from + 1);
}

static void everybody_sees_them(void)
{
    if (!kernel_gives_them()) {
        TEST_IGNORE_MESSAGE("this kernel gives no large pages for shared memory");
    }
    open_store();
    vault_run(store, &vault, 1, 1, SHARDS, RF_VOLATILE);
    TEST_ASSERT_EQUAL_UINT64(0, on_large_pages());
    /* Somebody else asks. */
    pid_t child = fork();
    TEST_ASSERT_TRUE(child >= 0);
    if (child == 0) {
        rf_store *own = vault_open_manual(&vault);
        rf_pages_enlarge(map_of(own));
        _exit(0);
    }
    TEST_ASSERT_EQUAL(0, crew_join(child, PATIENCE_MS));
    TEST_ASSERT_TRUE(asked_for() != 0);
    TEST_ASSERT_TRUE_MESSAGE(on_large_pages() != 0, "none of them came");
}

/* --- while others work --- */

struct play {
    _Atomic uint32_t ready;
    _Atomic bool over;
    uint64_t steps[WORKERS];
};
static struct play *play;

struct part {
    uint32_t number;
};

#define HELD 3000u

/* Steps on leases all over the extents, each with the next key. */
static int work(void *argument)
{
    const struct part *part = argument;
    static rf_lease leases[HELD];
    rf_store *own = vault_open_manual(&vault);
    for (uint32_t i = 0; i < HELD; i++) {
        leases[i] = vault_lease(own, &vault, 1, 1 + part->number + i * WORKERS);
    }
    atomic_fetch_add(&play->ready, 1);
    uint64_t n = 0;
    do {
        n++;
        for (uint32_t i = 0; i < HELD; i++) {
            rf_result result = {0};
            rf_status status = vault_step(own, &vault, &leases[i], n, n, 0, &result);
            CREW_CHECK(status == RF_OK && result.outcome == RF_EXECUTED, "%s %s",
                       rf_status_name(status), result.detail.where);
        }
    } while (!atomic_load(&play->over) || n < 3);
    play->steps[part->number] = n;
    _exit(0); /* as one who was killed: the leases are somebody else's to end */
}

struct seen {
    uint32_t count, wrong;
};

static bool look_at(void *context, const rf_shard_info *shard)
{
    struct seen *seen = context;
    char key[32];
    int len = snprintf(key, sizeof(key), "s%08" PRIu64 "-%010" PRIu64, shard->shard,
                       play->steps[(shard->shard - 1) % WORKERS]);
    seen->count++;
    seen->wrong += shard->cursor.key.len != (size_t)len ||
                   memcmp(shard->cursor.key.data, key, (size_t)len) != 0;
    return true;
}

static void who_works_meanwhile_loses_nothing(void)
{
    play = crew_shared(sizeof(*play));
    for (unsigned round = 0; round < crew_amount(4, 100); round++) {
        struct part parts[WORKERS] = {{0}, {1}};
        pid_t crew[WORKERS];
        memset(play, 0, sizeof(*play));
        open_store();
        vault_run(store, &vault, 1, 1, SHARDS, RF_VOLATILE);
        for (uint32_t w = 0; w < WORKERS; w++) {
            crew[w] = crew_start(work, &parts[w]);
        }
        while (atomic_load(&play->ready) < WORKERS) {
            crew_sleep_ms(1);
        }
        rf_pages_enlarge(map_of(store));
        atomic_store(&play->over, true);
        for (uint32_t w = 0; w < WORKERS; w++) {
            TEST_ASSERT_EQUAL(0, crew_join(crew[w], PATIENCE_MS));
        }
        struct seen seen = {0};
        rf_detail detail = {0};
        RF_EXPECT(RF_OK, rf_list_shards(store, rf_now(store), &vault.tenant, 1, RF_LIST_ALL,
                                        look_at, &seen, &detail));
        TEST_ASSERT_EQUAL_UINT32(SHARDS, seen.count);
        TEST_ASSERT_EQUAL_UINT32(0, seen.wrong);
        TEST_ASSERT_TRUE(asked_for() != 0);
        tearDown();
    }
    crew_unshare(play, sizeof(*play));
}

static bool was_asked_for(void *context)
{
    (void)context;
    return asked_for() != 0 && !rf_pages_due(map_of(store));
}

static void a_guardian_asks_when_it_has_been_there_for_a_while(void)
{
    vault_found(&vault, RF_VOLATILE);
    store = vault_open(&vault);
    vault_run(store, &vault, 1, 1, SHARDS, RF_VOLATILE);
    TEST_ASSERT_TRUE(crew_until(was_asked_for, NULL, PATIENCE_MS));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_region_is_mapped_where_large_pages_fit);
    RUN_TEST(nothing_is_asked_for_that_is_not_there);
    RUN_TEST(everybody_sees_them);
    RUN_TEST(who_works_meanwhile_loses_nothing);
    RUN_TEST(a_guardian_asks_when_it_has_been_there_for_a_while);
    return UNITY_END();
}
