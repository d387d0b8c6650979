/*
 * Clocks. Nothing but the first reading of a new region's clock looks at the wall clock; setting it forward or back
 * changes nothing for those who work, and time in a store never goes back, across cold opens too.
 *
 * The wall clock is set in two ways. One pretends: every call of clock_gettime that the library makes comes through
 * this file (--wrap), which shifts CLOCK_REALTIME; what the kernel measures is held to by a seccomp filter that
 * refuses any wait until a point of the wall clock. The other really sets it, for a moment, and puts it back; that
 * is everybody's clock, so it is only done with RF_SET_CLOCK=1, by root.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include <unity.h>

#include "handle.h"
#include "shop.h"
#include "vault.h"

#define RUN    1u
#define YEARS  (10ll * 365 * 86400 * 1000000000ll)
#define LITTLE (30ll * 1000000000ll) /* others live by this clock, too */
#define CAN_T  77

static struct vault vault;

void setUp(void)
{
    vault.directory[0] = 0;
}

void tearDown(void)
{
    vault_raze(&vault);
}

/* --- the wall clock, pretended --- */

static _Atomic int64_t shift_ns;
static _Atomic uint64_t looks; /* at the wall clock */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_gettimeofday(struct timeval *t, void *zone);
time_t __wrap_time(time_t *t);

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int rc = __real_clock_gettime(clock, t);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI) {
        int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + atomic_load(&shift_ns);
        *t = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
        atomic_fetch_add(&looks, 1);
    }
    return rc;
}

int __wrap_gettimeofday(struct timeval *t, void *zone)
{
    (void)zone;
    struct timespec s;
    int rc = __wrap_clock_gettime(CLOCK_REALTIME, &s);
    *t = (struct timeval){.tv_sec = s.tv_sec, .tv_usec = s.tv_nsec / 1000};
    return rc;
}

time_t __wrap_time(time_t *t)
{
    struct timespec s;
    __wrap_clock_gettime(CLOCK_REALTIME, &s);
    if (t != NULL) {
        *t = s.tv_sec;
    }
    return s.tv_sec;
}

static void pretend(int64_t ns)
{
    atomic_store(&shift_ns, ns);
}

/* --- the wall clock, set --- */

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    __real_clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint64_t true_base; /* of the wall clock over BOOTTIME, as it was */

static bool set_wall(int64_t shift)
{
    uint64_t ns = clock_ns(CLOCK_BOOTTIME) + true_base + (uint64_t)shift;
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    return clock_settime(CLOCK_REALTIME, &t) == 0;
}

static void really_set(int64_t ns)
{
    CREW_CHECK(set_wall(ns), "clock_settime: %s", strerror(errno));
}

/* Puts the clock back when the other end of the pipe is closed, by whatever end of the test. */
static void guard_clock(int fd)
{
    char byte;
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    while (read(fd, &byte, 1) < 0 && errno == EINTR) {
    }
    set_wall(0);
    _exit(0);
}

/* --- waits until a point of the wall clock --- */

#define LOAD_ARG(n)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, args[n]))
#define LOAD_HIGH(n)                                                                               \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, args[n]) + 4)
#define END(what) BPF_STMT(BPF_RET | BPF_K, what)

/* From here on such a wait ends the process. */
static bool forbid_wall_waits(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 7),
        LOAD_ARG(3), /* a timeout? */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2),
        LOAD_HIGH(3),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 11, 0),
        LOAD_ARG(1), /* by the wall clock? */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FUTEX_CLOCK_REALTIME, 0, 9),
        END(SECCOMP_RET_KILL_PROCESS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex_waitv, 0, 3),
        LOAD_ARG(4), /* the clock */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLOCK_REALTIME, 0, 5),
        END(SECCOMP_RET_KILL_PROCESS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_nanosleep, 0, 3),
        LOAD_ARG(1), /* until a point of time; a length of time is the same by any clock */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        END(SECCOMP_RET_KILL_PROCESS),
        END(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* --- the story --- */

static rf_store *store;
static uint64_t base; /* of the store's time over BOOTTIME */

/* Exactly that of BOOTTIME, and its base. */
static void claim_time_goes_on(const char *when)
{
    uint64_t before = clock_ns(CLOCK_BOOTTIME), now = rf_now(store),
             after = clock_ns(CLOCK_BOOTTIME);
    CREW_CHECK(now - base >= before && now - base <= after, "%s: the store's time jumped", when);
}

static int die_with_a_lease(void *context)
{
    rf_store *own = vault_open(&vault);
    vault_lease(own, &vault, RUN, 3);
    *(_Atomic uint32_t *)context = 1;
    pause();
    return 0;
}

static bool is_set(void *context)
{
    return atomic_load((_Atomic uint32_t *)context) != 0;
}

static bool can_be_had(void *context)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant *grant = context;
    *grant = (rf_grant){.scratch = scratch, .scratch_size = sizeof(scratch)};
    return rf_acquire(store, rf_now(store), &vault.tenant, RUN, 3, 5, RF_BOUND, grant, NULL) ==
           RF_OK;
}

/* Whatever the wall clock says: leases hold, waits end, deaths are noticed, what waits for the disk is written. */
static void work(const char *when, const rf_lease *lease, uint64_t *steps, _Atomic uint32_t *leased)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {.durability = RF_WAIT};
    claim_time_goes_on(when);
    ++*steps;
    CREW_CHECK(vault_step(store, &vault, lease, *steps, *steps, 0, &result) == RF_OK, "%s: %s",
               when, result.detail.where);
    rf_status status =
        rf_acquire(store, rf_now(store), &vault.tenant, RUN, 1, 5, RF_BOUND, &grant, &result);
    CREW_CHECK(status == RF_ALREADY_LEASED, "%s: a lease is %s", when, rf_status_name(status));
    status = rf_claim(store, rf_now(store), &vault.tenant, RUN, 0, RF_BOUND, 20 * RF_MILLISECOND,
                      &grant, &result);
    CREW_CHECK(status == RF_OK, "%s: the one shard that is free: %s", when, rf_status_name(status));
    atomic_store(leased, 0);
    status = rf_release(store, rf_now(store), &vault.tenant, &grant.lease, NULL, rf_new_op(store),
                        &result);
    CREW_CHECK(status == RF_OK, "%s: a release: %s", when, rf_status_name(status));
    pid_t pid = crew_start(die_with_a_lease, leased);
    CREW_CHECK(crew_until(is_set, leased, 20000), "%s: nobody came", when);
    /* Nothing is free now: the wait ends after its time. */
    status = rf_claim(store, rf_now(store), &vault.tenant, RUN, 0, RF_BOUND, 20 * RF_MILLISECOND,
                      &grant, &result);
    CREW_CHECK(status == RF_NONE_AVAILABLE, "%s: a wait: %s", when, rf_status_name(status));
    crew_kill(pid);
    CREW_CHECK(crew_until(can_be_had, &grant, 20000), "%s: a death is not noticed", when);
    status = rf_release(store, rf_now(store), &vault.tenant, &grant.lease, NULL, rf_new_op(store),
                        &result);
    CREW_CHECK(status == RF_OK, "%s: a release: %s", when, rf_status_name(status));
    claim_time_goes_on(when);
}

/* Everybody is gone and the region too; returns the store's time afterwards. */
static uint64_t open_cold(void)
{
    char region[128];
    snprintf(region, sizeof(region), "%.120s", rf_handle_of(store)->map->region_path);
    rf_close(store);
    CREW_CHECK(unlink(region) == 0, "%s", region);
    store = vault_open(&vault);
    base = rf_handle_of(store)->map->time_base;
    return rf_now(store);
}

/* set: what sets the wall clock so far from what it was. */
static void live_through(void (*set)(int64_t ns), int64_t far, _Atomic uint32_t *leased)
{
    uint64_t steps = 0, fence = 0;
    alarm(100);
    store = vault_open(&vault);
    base = rf_handle_of(store)->map->time_base;
    vault_run(store, &vault, RUN, 1, 3, RF_WAIT);
    rf_lease lease = vault_lease(store, &vault, RUN, 1), other = vault_lease(store, &vault, RUN, 2);
    (void)other;
    work("before", &lease, &steps, leased);
    uint64_t seen = atomic_load(&looks);
    set(far);
    work("set forward", &lease, &steps, leased);
    set(-far);
    work("set back", &lease, &steps, leased);
    set(0);
    work("put right", &lease, &steps, leased);
    CREW_CHECK(atomic_load(&looks) == seen, "somebody looked at the wall clock while working");

    /* A new region begins with the wall clock, and never before what was. */
    const int64_t walls[] = {-far, far, 0, -far};
    uint64_t last = rf_now(store);
    for (unsigned i = 0; i < 4; i++) {
        set(walls[i]);
        uint64_t now = open_cold();
        set(0);
        CREW_CHECK(now > last, "time went back by %" PRIu64 " ns in cold open %u", last - now, i);
        last = now;
        rf_lease again = vault_lease(store, &vault, RUN, 1);
        CREW_CHECK(again.fence > fence && again.fence > lease.fence,
                   "a fence is not above the last");
        fence = again.fence;
        steps++;
        rf_result result = {.durability = RF_WAIT};
        CREW_CHECK(vault_step(store, &vault, &again, steps, steps, 0, &result) == RF_OK,
                   "a step: %s", result.detail.where);
        last = rf_now(store);
    }
    CREW_CHECK(set != pretend || atomic_load(&looks) > seen,
               "a new region does not look at the clock: this shows nothing");
    rf_close(store);
}

static void found(void)
{
    vault_found(&vault, RF_WAIT);
    vault.options.max_shards = 1024;
    vault.options.max_bytes = 1u << 20;
    vault.options.segment_bytes = 65536;
    vault.options.max_members = 8;
}

static int pretended_story(void *context)
{
    if (!forbid_wall_waits()) {
        return CAN_T;
    }
    live_through(pretend, YEARS, context);
    return 0;
}

/* The story's processes have guardians, and start others. */
static void not_with_a_sanitizer(void)
{
    if (RF_SHOP_SANITIZED) {
        TEST_IGNORE_MESSAGE("a sanitizer's allocator does not survive a fork beside threads");
    }
}

static void a_wall_clock_that_jumps_changes_nothing(void)
{
    not_with_a_sanitizer();
    found();
    _Atomic uint32_t *leased = crew_shared(sizeof(*leased));
    int code = crew_join(crew_start(pretended_story, leased), 90000);
    crew_unshare((void *)leased, sizeof(*leased));
    if (code == CAN_T) {
        TEST_IGNORE_MESSAGE("no seccomp filters here");
    }
    TEST_ASSERT_EQUAL_INT(0, code);
}

/* The filter is one that such a wait does not survive. */
static int wait_by_the_wall(void *context)
{
    uint32_t word = 0;
    struct timespec until;
    (void)context;
    if (!forbid_wall_waits()) {
        return CAN_T;
    }
    __real_clock_gettime(CLOCK_MONOTONIC, &until);
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    __real_clock_gettime(CLOCK_REALTIME, &until);
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &until, NULL,
            FUTEX_BITSET_MATCH_ANY);
    return 0;
}

static void the_filter_sees_waits_by_the_wall_clock(void)
{
    int code = crew_join(crew_start(wait_by_the_wall, NULL), 20000);
    if (code == CAN_T) {
        TEST_IGNORE_MESSAGE("no seccomp filters here");
    }
    TEST_ASSERT_EQUAL_INT(-SIGSYS, code);
}

static int real_story(void *context)
{
    live_through(really_set, LITTLE, context);
    return 0;
}

static void the_wall_clock_may_really_be_set(void)
{
    int ends[2];
    if (getenv("RF_SET_CLOCK") == NULL || geteuid() != 0) {
        TEST_IGNORE_MESSAGE("sets this machine's clock for a moment: RF_SET_CLOCK=1, and root");
    }
    not_with_a_sanitizer();
    found();
    uint64_t boot = clock_ns(CLOCK_BOOTTIME);
    true_base = clock_ns(CLOCK_REALTIME) - boot;
    TEST_ASSERT_EQUAL_INT(0, pipe(ends));
    pid_t guard = fork();
    if (guard == 0) {
        close(ends[1]);
        guard_clock(ends[0]);
    }
    close(ends[0]);
    _Atomic uint32_t *leased = crew_shared(sizeof(*leased));
    int code = crew_join(crew_start(real_story, leased), 90000);
    close(ends[1]);
    waitpid(guard, NULL, 0);
    crew_unshare((void *)leased, sizeof(*leased));
    TEST_ASSERT_EQUAL_INT(0, code);
}

/* --- suspend --- */

static uint64_t machine; /* BOOTTIME: it runs on while the machine sleeps */

static uint64_t read_machine(void *context)
{
    (void)context;
    return machine;
}

/* On wake-up leases may be over. Whoever held one hears of it before he can change anything. */
static void leases_are_over_after_a_long_sleep(void)
{
    static uint8_t scratch[2][RF_GRANT_SCRATCH];
    rf_grant first = {.scratch = scratch[0], .scratch_size = sizeof(scratch[0])};
    rf_grant second = {.scratch = scratch[1], .scratch_size = sizeof(scratch[1])};
    rf_result result = {0};
    found();
    vault.options.manual = true;
    vault.options.clock = read_machine;
    machine = 1000 * RF_SECOND;
    rf_store *sleeper = vault_open(&vault), *other = vault_open(&vault);
    vault_run(sleeper, &vault, RUN, 1, 1, RF_WAIT); /* leases of an hour */
    RF_EXPECT(RF_OK, rf_acquire(sleeper, rf_now(sleeper), &vault.tenant, RUN, 1, 5, RF_BOUND,
                                &first, NULL));
    machine += 1800 * RF_SECOND; /* a nap */
    RF_EXPECT(RF_OK, vault_step(sleeper, &vault, &first.lease, 1, 1, 0, &result));
    machine += 8 * 3600 * RF_SECOND; /* a night */
    RF_EXPECT(RF_LEASE_EXPIRED, vault_step(sleeper, &vault, &first.lease, 2, 2, 0, &result));
    RF_EXPECT(RF_LEASE_EXPIRED,
              rf_renew(sleeper, rf_now(sleeper), &vault.tenant, &first.lease, NULL));
    RF_EXPECT(RF_OK,
              rf_claim(other, rf_now(other), &vault.tenant, RUN, 0, RF_BOUND, 0, &second, NULL));
    TEST_ASSERT_TRUE(second.lease.fence > first.lease.fence);
    RF_EXPECT(RF_STALE_FENCE, vault_step(sleeper, &vault, &first.lease, 2, 2, 0, &result));
    RF_EXPECT(RF_OK, vault_step(other, &vault, &second.lease, 2, 3, 0, &result));
    rf_close(other);
    rf_close(sleeper);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(leases_are_over_after_a_long_sleep);
    RUN_TEST(the_filter_sees_waits_by_the_wall_clock);
    RUN_TEST(a_wall_clock_that_jumps_changes_nothing);
    RUN_TEST(the_wall_clock_may_really_be_set);
    return UNITY_END();
}
