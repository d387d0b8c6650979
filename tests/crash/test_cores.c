/*
 * An owner that aborts, with much memory and a core to be written. The kernel tells of a death when the process is
 * gone, and it is gone only after the dump. So the library's own abort marks itself dead first: its shards can be had
 * while the core is still being written. Of anybody else's abort that is not so, and this shows it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <unity.h>

#include "handle.h"
#include "shop.h"
#include "vault.h"

#define RUN  1u
#define MUCH (2ull << 30)
#define SOME (256ull << 20)

static struct vault vault;
static char dump_directory[96];

void setUp(void)
{
    vault.directory[0] = 0;
    dump_directory[0] = 0;
}

static void remove_cores(void)
{
    struct dirent *entry;
    DIR *dir = dump_directory[0] == 0 ? NULL : opendir(dump_directory);
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
        rmdir(dump_directory);
    }
}

void tearDown(void)
{
    remove_cores();
    vault_raze(&vault);
}

struct play {
    _Atomic uint32_t ready;
    uint64_t bytes;
    bool our_own; /* abort */
};

static bool is_ready(void *context)
{
    return atomic_load(&((struct play *)context)->ready) != 0;
}

/* What fits, of memory and of the disk. */
static uint64_t how_much(uint64_t bytes)
{
    struct statvfs room;
    uint64_t free_memory = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    while (bytes > free_memory / 3) {
        bytes /= 2;
    }
    if (statvfs(vault.directory, &room) == 0) {
        while (bytes > room.f_bavail * room.f_frsize / 3) {
            bytes /= 2;
        }
    }
    return bytes;
}

/* Has shards 1 and 2, and much memory, and aborts. */
static int own_and_abort(void *context)
{
    struct play *play = context;
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    setrlimit(RLIMIT_CORE, &core);
    CREW_CHECK(chdir(dump_directory) == 0, "%s", dump_directory);
    rf_store *store = vault_open(&vault);
    /* Detached: nobody else will have to do with the shard whose record is damaged. */
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    CREW_CHECK(rf_acquire(store, rf_now(store), &vault.tenant, RUN, 1, 5, RF_DETACHED, &grant,
                          NULL) == RF_OK,
               "shard 1");
    vault_lease(store, &vault, RUN, 2);
    uint8_t *memory =
        mmap(NULL, play->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CREW_CHECK(memory != MAP_FAILED, "memory");
    for (uint64_t i = 0; i < play->bytes; i += 4096) {
        memory[i] = 1; /* a page of zeros is not written */
    }
    /* A wild writer: what follows from this record must not be published. */
    struct rf_rec *recs = rf_handle_of(store)->map->extents[0].recs;
    CREW_CHECK(recs[0].shard == 1, "the first shard is elsewhere");
    recs[0].body.state.park_reason = RF_PARK_OTHER;
    freopen("/dev/null", "w", stderr);
    atomic_store(&play->ready, 1);
    if (!play->our_own) {
        abort();
    }
    vault_step(store, &vault, &grant.lease, 1, 1, 0, NULL);
    return 0; /* it did not stop */
}

static bool is_dumping(pid_t pid)
{
    char path[64], line[128];
    bool dumping = false;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        dumping |= strcmp(line, "CoreDumping:\t1\n") == 0;
    }
    if (f != NULL) {
        fclose(f);
    }
    return dumping;
}

static rf_status try_shard(rf_store *store)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    return rf_acquire(store, rf_now(store), &vault.tenant, RUN, 2, 9, RF_BOUND, &grant, NULL);
}

/* Starts it, and returns when it is about to abort. */
static pid_t start(struct play *play)
{
    const char *where = getenv("TMPDIR");
    snprintf(dump_directory, sizeof(dump_directory), "%.60s/ringfence-core-XXXXXX",
             where != NULL && where[0] != 0 ? where : "/tmp");
    TEST_ASSERT_NOT_NULL(mkdtemp(dump_directory));
    play->bytes = how_much(play->our_own ? MUCH : SOME);
    pid_t pid = crew_start(own_and_abort, play);
    TEST_ASSERT_TRUE_MESSAGE(crew_until(is_ready, play, 100000), "it never came");
    return pid;
}

static void found(void)
{
    vault_found(&vault, RF_WAIT);
    vault.options.max_shards = 1024;
    vault.options.max_bytes = 1u << 20;
    vault.options.max_members = 8;
    vault.options.segment_bytes = 65536;
}

/* Closes it. What the damaged record led to is not in the log, and a cold open has the record as it was. */
static void expect_unpublished(rf_store *store)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    char region[128];
    rf_shard_info info;
    snprintf(region, sizeof(region), "%.120s", rf_handle_of(store)->map->region_path);
    rf_close(store);
    TEST_ASSERT_EQUAL_INT(0, unlink(region));
    store = vault_open(&vault);
    RF_EXPECT(RF_OK,
              rf_get_shard(store, &vault.tenant, RUN, 1, &info, scratch, sizeof(scratch), NULL));
    TEST_ASSERT_TRUE(info.status == RF_SHARD_ACTIVE && !info.has_reason);
    TEST_ASSERT_NULL_MESSAGE(info.cursor.key.data, "it was published");
    rf_close(store);
}

static void shards_of_our_own_abort_can_be_had_while_the_core_is_written(void)
{
    int how;
    found();
    struct play *play = crew_shared(sizeof(*play));
    rf_store *store = vault_open(&vault);
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    play->our_own = true;
    pid_t pid = start(play);
    uint64_t until = crew_ns() + 60 * RF_SECOND;
    rf_status status;
    do {
        status = try_shard(store);
    } while (status == RF_ALREADY_LEASED && crew_ns() < until);
    /* The core may not have been begun yet; what counts is that it was not written. */
    bool dumping = false, ended = false;
    while (!dumping && !ended) {
        dumping = is_dumping(pid);
        ended = !dumping && waitpid(pid, &how, WNOHANG) == pid;
    }
    if (!ended) {
        TEST_ASSERT_EQUAL_INT(pid, waitpid(pid, &how, 0));
    }
    printf("  %" PRIu64 " MiB; had it %s; %s\n", play->bytes >> 20,
           dumping ? "before the core was written" : "when no core was being written",
           WIFSIGNALED(how) && WCOREDUMP(how) ? "a core was written" : "no core was written");
    crew_unshare(play, sizeof(*play));
    expect_unpublished(store);
    RF_EXPECT(RF_OK, status);
    TEST_ASSERT_TRUE_MESSAGE(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT,
                             "it did not stop before publishing");
    if (!WCOREDUMP(how)) {
        TEST_IGNORE_MESSAGE("no core is written here (ulimit -c, core_pattern)");
    }
    TEST_ASSERT_TRUE_MESSAGE(dumping, "not before the core was written");
}

/* The stated caveat: this is what the difference is. */
static void shards_of_any_other_abort_can_be_had_when_the_core_is_written(void)
{
    int how;
    bool seen = false, early = false;
    found();
    struct play *play = crew_shared(sizeof(*play));
    rf_store *store = vault_open(&vault);
    vault_run(store, &vault, RUN, 1, 2, RF_WAIT);
    pid_t pid = start(play);
    while (waitpid(pid, &how, WNOHANG) == 0) {
        bool before = is_dumping(pid);
        rf_status status = before ? try_shard(store) : RF_BUSY;
        if (before && is_dumping(pid)) {
            seen = true;
            early |= status == RF_OK;
        }
    }
    uint64_t until = crew_ns() + 60 * RF_SECOND;
    rf_status status;
    do {
        status = try_shard(store);
    } while (status == RF_ALREADY_LEASED && crew_ns() < until);
    crew_unshare(play, sizeof(*play));
    rf_close(store);
    if (!seen) {
        TEST_IGNORE_MESSAGE("no core is written here, or too fast to be seen");
    }
    TEST_ASSERT_FALSE_MESSAGE(early, "the kernel tells of it earlier than it is said to");
    RF_EXPECT(RF_OK, status);
}

static void with_a_sanitizer(void)
{
    TEST_IGNORE_MESSAGE("a sanitizer has terabytes of address space, and takes aborts for its own");
}

int main(void)
{
    UNITY_BEGIN();
    if (RF_SHOP_SANITIZED) {
        RUN_TEST(with_a_sanitizer);
        return UNITY_END();
    }
    RUN_TEST(shards_of_our_own_abort_can_be_had_while_the_core_is_written);
    RUN_TEST(shards_of_any_other_abort_can_be_had_when_the_core_is_written);
    return UNITY_END();
}
