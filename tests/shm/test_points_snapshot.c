/*
 * Kills and stops around snapshots and cold opens. A snapshotter may be killed at every point: nothing that
 * matters is left, and the next one takes its. A cold open may be killed at every point: the next one comes to
 * the same. Whoever is stopped in the middle of an operation, or of a chain of records, while a snapshot is
 * taken: it holds what it must, and no more.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fsck.h"
#include "handle.h"
#include "history.h"
#include "point.h"
#include "reap.h"
#include "snapshot.h"

static struct rf_shop shop;
static struct rf_history history;
static rf_detail detail;

/* --- points --- */

/* In memory that outlives whoever is killed. */
static struct board {
    _Atomic uint32_t hits;
    _Atomic uint32_t fired;
    _Atomic uint32_t done;
    _Atomic int status;
    rlim_t descriptors;
    const char *where;
} * board;

static const char *const *wanted; /* beginnings of names; NULL ends them */
static uint32_t fire_at;
static int fire_signal;

static void on_point(const char *name)
{
    bool counts = false;
    for (unsigned i = 0; wanted[i] != NULL; i++) {
        counts = counts || strncmp(name, wanted[i], strlen(wanted[i])) == 0;
    }
    if (counts && atomic_fetch_add(&board->hits, 1) + 1 == fire_at) {
        board->where = name;
        atomic_store(&board->fired, 1);
        kill(getpid(), fire_signal);
        while (fire_signal == SIGKILL) {
            pause();
        }
    }
}

static void arm(const char *const *names, uint32_t at, int signal)
{
    wanted = names;
    fire_at = at;
    fire_signal = signal;
    rf_point_on_hit = on_point;
}

static pid_t begin_child(void)
{
    memset(board, 0, sizeof(*board));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    }
    return pid;
}

static void end_child(void)
{
    atomic_store(&board->done, 1);
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

/* --- the store --- */

static rf_options durable(void)
{
    return (rf_options){.max_shards = 2000,
                        .max_bytes = 32u << 20,
                        .max_runs = 16,
                        .max_members = 16,
                        .durability = RF_NOWAIT,
                        .segment_bytes = 65536,
                        .snapshot_bytes = 1ull << 40};
}

void setUp(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    /* In memory: nothing here depends on the drive, and there are hundreds of cold opens. */
    snprintf(shop.directory, sizeof(shop.directory), "/dev/shm/ringfence-test-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(shop.directory));
    shop.now = 1000;
}

void tearDown(void)
{
    rf_point_on_hit = NULL;
    rf_shop_raze(&shop);
    munmap(board, sizeof(*board));
}

static void region_path(const char *directory, char path[128])
{
    struct stat st;
    TEST_ASSERT_EQUAL(0, stat(directory, &st));
    snprintf(path, 128, "/dev/shm/ringfence.%jx.%jx", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
}

static void lose_region(const char *directory)
{
    char path[128];
    region_path(directory, path);
    unlink(path);
}

static void enter_all(void)
{
    rf_options o = durable();
    for (unsigned i = 0; i < RF_HISTORY_HANDLES; i++) {
        history.stores[i] = rf_shop_enter(&shop, &o);
    }
}

static void leave_all(void)
{
    for (unsigned i = 0; i < RF_HISTORY_HANDLES; i++) {
        rf_close(history.stores[i]);
        history.stores[i] = NULL;
    }
    rf_history_forget_leases(&history);
}

static const char *where(const char *what)
{
    static char words[256];
    snprintf(words, sizeof(words), "at %u, %s: %s", fire_at,
             board->where == NULL ? "-" : board->where, what);
    return words;
}

#define CLAIM(condition, what)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            TEST_FAIL_MESSAGE(where(what));                                                        \
        }                                                                                          \
    } while (0)

static void must(rf_status status)
{
    CLAIM(status == RF_OK, rf_shop_sentence(status, &detail));
}

static void tell(void *context, const char *what)
{
    (void)context;
    printf("  differs: %s\n", what);
}

static void expect_verified(rf_store *store)
{
    rf_verification v;
    must(rf_verify(store, tell, NULL, &v, &detail));
    CLAIM(v.differences == 0, "the log and the region differ");
}

static void expect_sound(rf_store *store)
{
    const char *why = rf_fsck(store);
    CLAIM(why == NULL, why);
}

/* The member slot of a process. */
static uint32_t slot_of(const struct rf_map *map, pid_t pid)
{
    for (uint32_t slot = 0; slot < atomic_load(&map->header->members_used); slot++) {
        struct rf_member *m = rf_member_at(map, slot);
        if (atomic_load(&m->liveness) != 0 && atomic_load(&m->pid) == (uint32_t)pid) {
            return slot;
        }
    }
    return UINT32_MAX;
}

/* --- images --- */

/* The directory as it is now, elsewhere: what a cold open would find. */
static void copy_store(const char *to)
{
    DIR *listing = opendir(shop.directory);
    TEST_ASSERT_EQUAL(0, mkdir(to, 0700));
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        char from_path[384], to_path[384];
        static uint8_t bytes[65536];
        if (e->d_name[0] == '.') {
            continue;
        }
        snprintf(from_path, sizeof(from_path), "%s/%s", shop.directory, e->d_name);
        snprintf(to_path, sizeof(to_path), "%s/%s", to, e->d_name);
        int from = open(from_path, O_RDONLY), into = open(to_path, O_WRONLY | O_CREAT, 0600);
        for (ssize_t n; (n = read(from, bytes, sizeof(bytes))) > 0;) {
            TEST_ASSERT_EQUAL(n, write(into, bytes, (size_t)n));
        }
        close(from);
        close(into);
    }
    closedir(listing);
}

/* What a cold open of the directory shows now. */
static char *recovered_picture(void)
{
    char copy[96];
    snprintf(copy, sizeof(copy), "%s-image", shop.directory);
    copy_store(copy);
    const rf_options o = {.manual = true};
    rf_store *store;
    must(rf_open(copy, &o, &store, &detail));
    expect_sound(store);
    expect_verified(store);
    char *picture = rf_history_picture(store);
    rf_close(store);
    must(rf_destroy(copy, &detail));
    return picture;
}

static void expect_same(const char *a, const char *b)
{
    if (strcmp(a, b) == 0) {
        return;
    }
    while (*a != 0 && *b != 0) {
        size_t n = strcspn(a, "\n"), m = strcspn(b, "\n");
        if (n != m || memcmp(a, b, n) != 0) {
            printf("  was: %.*s\n  is:  %.*s\n", (int)n, a, (int)m, b);
            break;
        }
        a += n + (a[n] != 0);
        b += m + (b[m] != 0);
    }
    CLAIM(false, "not what it was");
}

/* --- kills --- */

static const char *const snapshot_points[] = {"snapshot.", "disk.", NULL};
static const char *const cold_points[] = {"recover.", "region.", "disk.", NULL};

static void a_snapshotter_may_be_killed_at_every_point(void)
{
    uint32_t plays = 0;
    rf_history_begin(&history, &shop, 12);
    enter_all();
    rf_history_play(&history, 400);
    for (uint32_t at = 1;; at++) {
        rf_history_play(&history, 30);
        must(rf_barrier(history.stores[0], &detail));
        pid_t child = begin_child();
        if (child == 0) {
            rf_options o = durable();
            rf_store *store = rf_shop_enter(&shop, &o);
            arm(snapshot_points, at, SIGKILL);
            atomic_store(&board->status, (int)rf_snapshot(store, NULL));
            end_child();
        }
        fire_at = at;
        waitpid(child, NULL, 0);
        bool fired = atomic_load(&board->fired) != 0;
        /* It was a handle without a guardian: the kernel says nothing. */
        struct rf_map *map = rf_handle_of(history.stores[0])->map;
        rf_declare_dead(map, slot_of(map, child));
        must(rf_tend(history.stores[0], shop.now));
        expect_verified(history.stores[0]);
        char *now = rf_history_picture(history.stores[0]), *cold = recovered_picture();
        expect_same(now, cold);
        free(now);
        free(cold);
        if (at % 3 == 0) { /* the next one takes its place, and tidies up */
            must(rf_snapshot(history.stores[1], &detail));
            expect_verified(history.stores[0]);
        }
        if (!fired) {
            CLAIM(atomic_load(&board->done) != 0 && atomic_load(&board->status) == RF_OK,
                  "the undisturbed one failed");
            break;
        }
        plays++;
    }
    printf("  killed at %u points\n", plays);
    TEST_ASSERT_TRUE(plays > 10);
    leave_all();
}

static void kill_cold_opens(bool fresh)
{
    uint32_t plays = 0;
    char *before = NULL;
    if (!fresh) {
        rf_history_begin(&history, &shop, 99);
        enter_all();
        rf_history_play(&history, 500);
        must(rf_snapshot(history.stores[0], &detail));
        rf_history_play(&history, 300);
        leave_all();
        before = recovered_picture();
    }
    for (uint32_t at = 1;; at++) {
        lose_region(shop.directory);
        if (fresh) { /* as if it had never been */
            rf_destroy(shop.directory, NULL);
            mkdir(shop.directory, 0700);
        }
        pid_t child = begin_child();
        if (child == 0) {
            rf_options o = durable();
            arm(cold_points, at, SIGKILL);
            rf_shop_enter(&shop, &o);
            end_child();
        }
        fire_at = at;
        waitpid(child, NULL, 0);
        bool fired = atomic_load(&board->fired) != 0;
        if (!fresh) {
            char *cold = recovered_picture();
            expect_same(before, cold);
            free(cold);
        } else {
            rf_options o = durable();
            rf_store *store = rf_shop_enter(&shop, &o);
            expect_verified(store);
            rf_close(store);
        }
        if (!fired) {
            CLAIM(atomic_load(&board->done) != 0, "the undisturbed one failed");
            break;
        }
        plays++;
    }
    free(before);
    printf("  killed at %u points\n", plays);
    TEST_ASSERT_TRUE(plays > 10);
}

static void a_cold_open_may_be_killed_at_every_point(void)
{
    kill_cold_opens(false);
}

static void the_first_open_of_a_store_may_be_killed_at_every_point(void)
{
    kill_cold_opens(true);
}

/* --- what is cached --- */

static unsigned cached_pages, cached_at_point;

/* Of all segments. */
static unsigned count_cached(void)
{
    unsigned pages = 0;
    DIR *listing = opendir(shop.directory);
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        char path[384];
        unsigned char resident[64];
        snprintf(path, sizeof(path), "%s/%s", shop.directory, e->d_name);
        int fd = strncmp(e->d_name, "log.", 4) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0) {
            continue;
        }
        void *at = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
        TEST_ASSERT_TRUE(at != MAP_FAILED);
        TEST_ASSERT_EQUAL(0, mincore(at, 65536, resident));
        for (unsigned i = 0; i < 65536u / (unsigned)sysconf(_SC_PAGESIZE); i++) {
            pages += resident[i] & 1;
        }
        munmap(at, 65536);
        close(fd);
    }
    closedir(listing);
    return pages;
}

static void on_forgotten(const char *name)
{
    if (strcmp(name, "recover.forgotten") == 0) {
        cached_at_point = count_cached();
    }
}

/* Pages of a write that failed look as if they had been written. */
static void a_cold_open_believes_no_cached_page_of_the_log(void)
{
    struct statfs fs;
    static uint8_t bytes[65536];
    TEST_ASSERT_EQUAL(0, rmdir(shop.directory));
    snprintf(shop.directory, sizeof(shop.directory), "/tmp/ringfence-test-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(shop.directory));
    TEST_ASSERT_EQUAL(0, statfs(shop.directory, &fs));
    if (fs.f_type == TMPFS_MAGIC) {
        TEST_IGNORE_MESSAGE("/tmp has no disk");
    }
    rf_history_begin(&history, &shop, 7);
    enter_all();
    rf_history_play(&history, 300);
    leave_all();
    DIR *listing = opendir(shop.directory);
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        char path[384];
        snprintf(path, sizeof(path), "%s/%s", shop.directory, e->d_name);
        int fd = strncmp(e->d_name, "log.", 4) == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        TEST_ASSERT_TRUE(fd < 0 || read(fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes));
        close(fd);
    }
    closedir(listing);
    cached_pages = count_cached();
    TEST_ASSERT_TRUE(cached_pages > 8);
    lose_region(shop.directory);
    cached_at_point = UINT32_MAX;
    rf_point_on_hit = on_forgotten;
    rf_options o = durable();
    rf_store *store = rf_shop_enter(&shop, &o);
    rf_point_on_hit = NULL;
    printf("  %u pages were cached, %u were left\n", cached_pages, cached_at_point);
    TEST_ASSERT_EQUAL_UINT32(0, cached_at_point);
    rf_close(store);
}

/* --- stops --- */

static rf_tenant tenant;
#define RUN 1u

static const char *const operation_points[] = {"op.",    "lane.",      "apply.", "record.", "run.",
                                               "purge.", "directory.", "chunk.", "log.",    NULL};

enum act { CHECKPOINT, COMPLETE, SPLIT, REGISTER, PURGE, ACTS };
static const char *const act_names[] = {"checkpoint", "complete", "split", "register", "purge"};

/* What the stopped one does, in a store of 8 shards, one of them (3) granted. */
static rf_status act(enum act what, rf_store *store, const rf_lease *lease)
{
    static uint8_t metadata[16000];
    const rf_cursor cursor = {.key = rf_shop_key(2)};
    const rf_run_config config = {.lease_duration = 1000000};
    static rf_child children[4];
    rf_bytes points[3];
    uint64_t ids[4];
    switch (what) {
    case CHECKPOINT:
        return rf_checkpoint(store, shop.now, &tenant, lease, &cursor, 1, NULL);
    case COMPLETE:
        return rf_complete(store, shop.now, &tenant, lease, &cursor, 2, NULL);
    case SPLIT: {
        static uint8_t keys[3][7];
        for (unsigned i = 0; i < 3; i++) {
            memcpy(keys[i], rf_shop_key(2).data, 6);
            keys[i][6] = (uint8_t)(i + 1);
            points[i] = (rf_bytes){keys[i], 7};
        }
        rf_spec spec = {.start = rf_shop_key(2), .end = rf_shop_key(3)};
        TEST_ASSERT_EQUAL(RF_OK, rf_plan_replace(spec, points, 3, children, NULL));
        return rf_split_replace(store, shop.now, &tenant, lease, children, 4, 3, ids, NULL);
    }
    case REGISTER: { /* far more than fits one record: a chain */
        static rf_shard_input inputs[12];
        static char keys[13][8];
        for (unsigned i = 0; i < 13; i++) {
            memcpy(keys[i], rf_shop_key(50 + i).data, 6);
        }
        for (unsigned i = 0; i < 12; i++) {
            inputs[i] = (rf_shard_input){
                .shard = 50 + i,
                .spec = {{keys[i], 6}, {keys[i + 1], 6}, {metadata, sizeof(metadata)}}};
        }
        return rf_create_run_with_shards(store, shop.now, &tenant, RUN + 1, &config, inputs, 12, 4,
                                         NULL);
    }
    default:
        return rf_purge_run(store, shop.now, &tenant, RUN + 2, NULL);
    }
}

/* The pictures of this part: all runs of the tenant. */
static char *picture_of(rf_store *store)
{
    size_t room = 1u << 20, len = 0;
    char *text = malloc(room);
    text[0] = 0;
    for (uint64_t run = RUN; run < RUN + 3; run++) {
        rf_run_info info;
        if (rf_get_run(store, &tenant, run, &info, NULL) != RF_OK) {
            len += (size_t)snprintf(text + len, room - len, "%" PRIu64 " none\n", run);
            continue;
        }
        len += (size_t)snprintf(text + len, room - len, "%" PRIu64 " %d shards %" PRIu64 "\n", run,
                                info.status, info.shard_count);
        for (uint64_t shard = 1; shard < 70; shard++) {
            static uint8_t scratch[RF_GRANT_SCRATCH];
            rf_shard_info s;
            if (rf_get_shard(store, &tenant, run, shard, &s, scratch, sizeof(scratch), NULL) ==
                RF_OK) {
                len += (size_t)snprintf(text + len, room - len,
                                        " %" PRIu64 " status %d version %" PRIu64 " spawned %u "
                                        "key %zu ring %u\n",
                                        shard, s.status, s.version, s.spawned_count,
                                        s.cursor.key.len, s.ring_count);
            }
        }
    }
    return text;
}

static char *recovered_picture_of(void)
{
    char copy[96];
    snprintf(copy, sizeof(copy), "%s-image", shop.directory);
    copy_store(copy);
    const rf_options o = {.manual = true};
    rf_store *store;
    must(rf_open(copy, &o, &store, &detail));
    expect_sound(store);
    char *picture = picture_of(store);
    rf_close(store);
    must(rf_destroy(copy, &detail));
    return picture;
}

static rf_lease furnish(rf_store *store)
{
    const rf_run_config config = {.lease_duration = 1000000};
    rf_grant grant = rf_shop_blank(0);
    rf_shop_stock(store, shop.now, &tenant, RUN, &config, 8);
    rf_shop_stock(store, shop.now, &tenant, RUN + 2, &config, 8);
    must(rf_complete_run(store, shop.now, &tenant, RUN + 2, 77, NULL));
    must(rf_acquire(store, shop.now, &tenant, RUN, 3, 7, RF_DETACHED, &grant, NULL));
    return grant.lease;
}

/* Changes another shard: life goes on. */
static void go_on(rf_store *store, uint64_t shard)
{
    rf_grant grant = rf_shop_blank(1);
    must(rf_acquire(store, shop.now, &tenant, RUN, shard, 9, RF_DETACHED, &grant, NULL));
    must(rf_release(store, shop.now, &tenant, &grant.lease, NULL, 1000 + shard, NULL));
    must(rf_barrier(store, &detail));
}

static struct {
    uint32_t plays, taken, held, busy;
} stops;

/* Whether the operation of a process has happened, is not over, and can't be taken back. */
static bool is_committed(const struct rf_map *map, uint32_t slot)
{
    const struct rf_slot *s = rf_slot_at(map, slot);
    uint64_t state = atomic_load(&s->desc.state);
    return RF_DESC_STATE(state) == RF_DESC_PREPARED &&
           rf_lane_offset(atomic_load(&s->lane.word)) != RF_DESC_OFFSET(state);
}

/* Stops it at the point; takes snapshots; looks at what a cold open would find, before it goes on and after. */
static bool stop_at(enum act what, uint32_t at)
{
    rf_options o = durable();
    o.busy_timeout = 30 * RF_MILLISECOND;
    rf_store *store = rf_shop_enter(&shop, &o);
    rf_lease lease = furnish(store);
    go_on(store, 1);
    char *undone = picture_of(store);
    pid_t child = begin_child();
    if (child == 0) {
        rf_store *mine = rf_shop_enter(&shop, &o);
        arm(operation_points, at, SIGSTOP);
        atomic_store(&board->status, (int)act(what, mine, &lease));
        rf_point_on_hit = NULL;
        end_child();
    }
    fire_at = at;
    int how;
    waitpid(child, &how, WUNTRACED);
    bool fired = WIFSTOPPED(how);
    bool held = false, busy = false;
    struct rf_map *map = rf_handle_of(store)->map;
    uint32_t slot = slot_of(map, child);
    bool committed = fired && is_committed(map, slot);
    char *seen[3] = {NULL, NULL, NULL};
    for (unsigned round = 0; fired && !busy && round < 3; round++) {
        must(rf_barrier(store, &detail)); /* durability never waits for it */
        held = held || rf_shop_inspect(store).snapshot_held_by == (uint32_t)child;
        rf_status status = rf_snapshot(store, &detail);
        CLAIM(status == RF_OK || status == RF_BUSY, rf_shop_sentence(status, &detail));
        CLAIM(status == RF_OK || detail.pid == (uint32_t)child, "busy with another");
        busy = status == RF_BUSY;
        seen[round] = recovered_picture_of();
    }
    CLAIM(!committed || held, "committed, and does not hold the snapshot back");
    stops.plays += fired;
    stops.held += held;
    stops.busy += busy;
    stops.taken += fired && !busy;
    kill(child, SIGCONT);
    waitpid(child, NULL, 0);
    CLAIM(atomic_load(&board->done) != 0, "did not come to its end");
    CLAIM(atomic_load(&board->status) == RF_OK, "failed");
    rf_declare_dead(map, slot);
    must(rf_tend(store, shop.now));
    expect_verified(store);
    must(rf_snapshot(store, &detail));
    char *done = picture_of(store), *cold = recovered_picture_of();
    expect_same(done, cold);
    for (unsigned round = 0; round < 3 && seen[round] != NULL; round++) {
        bool whole = strcmp(seen[round], done) == 0, not_at_all = strcmp(seen[round], undone) == 0;
        CLAIM(whole || (not_at_all && !committed), "a cold open would not have found it whole");
        free(seen[round]);
    }
    free(undone);
    free(done);
    free(cold);
    rf_close(store);
    must(rf_destroy(shop.directory, &detail));
    TEST_ASSERT_EQUAL(0, mkdir(shop.directory, 0700));
    return fired;
}

static void whoever_is_stopped_inside_an_operation_holds_back_what_it_must(void)
{
    rf_tenant_from_name("t", &tenant);
    for (enum act what = CHECKPOINT; what < ACTS; what++) {
        memset(&stops, 0, sizeof(stops));
        /* a chain has thousands of points that are all alike */
        uint32_t step = what == REGISTER ? 17 : what == SPLIT ? 5 : 1;
        for (uint32_t at = 1; stop_at(what, at); at += step) {
        }
        printf("  %-10s stopped at %3u points: %3u with snapshots, %3u held back, %3u busy\n",
               act_names[what], stops.plays, stops.taken, stops.held, stops.busy);
        TEST_ASSERT_TRUE(stops.plays > 3 && stops.taken != 0 && stops.held != 0);
    }
}

/* --- a process without descriptors --- */

static void take_descriptors(const char *name)
{
    if (strcmp(name, "verify.replayed") == 0) {
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 0, .rlim_max = board->descriptors});
    }
}

static void a_verify_that_gets_no_descriptor_says_so(void)
{
    struct rlimit all;
    rf_verification v;
    rf_options o = durable();
    rf_store *store = rf_shop_enter(&shop, &o);
    TEST_ASSERT_EQUAL(0, getrlimit(RLIMIT_NOFILE, &all));
    board->descriptors = all.rlim_max;
    rf_point_on_hit = take_descriptors;
    rf_status status = rf_verify(store, tell, NULL, &v, &detail);
    rf_point_on_hit = NULL;
    TEST_ASSERT_EQUAL(0, setrlimit(RLIMIT_NOFILE, &all));
    RF_EXPECT(RF_IO_ERROR, status);
    rf_shop_expect_words(RF_IO_ERROR, &detail, "listing snapshot.|ulimit -n");
    TEST_ASSERT_EQUAL(EMFILE, detail.os_error);
    expect_verified(store);
    rf_close(store);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_snapshotter_may_be_killed_at_every_point);
    RUN_TEST(a_cold_open_may_be_killed_at_every_point);
    RUN_TEST(the_first_open_of_a_store_may_be_killed_at_every_point);
    RUN_TEST(a_cold_open_believes_no_cached_page_of_the_log);
    RUN_TEST(whoever_is_stopped_inside_an_operation_holds_back_what_it_must);
    RUN_TEST(a_verify_that_gets_no_descriptor_says_so);
    return UNITY_END();
}
