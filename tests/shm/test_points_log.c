/*
 * Whoever writes the log may be killed or stopped at any point of it; the disk may fail, or be full.
 *
 * Walkers are living processes that wait for every operation. Among them a victim works until it comes to a
 * point, and is killed or stopped there. The walkers go on, and when all is over the log is read by somebody who
 * knows only its format (logbook.h): whatever any of them was told, the victim too, is in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unity.h>

#include "disk.h"
#include "futex.h"
#include "handle.h"
#include "lane.h"
#include "log.h"
#include "log_entry.h"
#include "logbook.h"
#include "point.h"
#include "prng.h"
#include "reap.h"
#include "shop.h"
#include "snapshot.h"
#include "vault.h"

#define PATIENCE_MS 60000u /* ends a hang */
#define WALKERS     2u
#define ACKS_MAX    20000u
#define VICTIM_OPS  300u /* in which a point has to come */
#define CANT_TEST   77

/* --- points --- */

/* All that the log has, in the order in which a batch comes by, and the ways into a lane. */
static const char *const points[] = {
    "op.chain",         "op.chunk",         "lane.head",     "lane.before_commit",
    "lane.committed",   "log.before_seal",  "log.sealed",    "log.in_hand",
    "log.agreed",       "log.raised",       "log.walking",   "log.copied",
    "log.composed",     "log.publishing",   "log.published", "log.segment",
    "log.before_write", "log.written",      "log.done",      "log.before_durable",
    "log.durable",      "log.before_sleep", "log.woken",
};
#define POINTS (sizeof(points) / sizeof(points[0]))

enum whose { ANY_THREAD, THE_CALLER, THE_OTHERS };

/* What one process did, for the judge to see. */
struct account {
    _Atomic uint64_t count; /* acknowledged */
    uint64_t ops[ACKS_MAX];
    uint64_t epochs[ACKS_MAX];
};

struct play {
    _Atomic uint32_t ready;
    _Atomic uint32_t stop;
    _Atomic uint32_t hits;
    _Atomic uint32_t fired;
    _Atomic uint32_t together; /* batches in somebody's hands when the victim came to its point */
    _Atomic uint64_t segment;  /* that the victim was making */
    _Atomic uint32_t unknown;  /* a point of the log that is not in the list */
    _Atomic uint32_t failing;  /* this many writes from now on, one fails; 0: none */
    _Atomic uint32_t failed;
    char unknown_name[64];
    struct account accounts[WALKERS + 8]; /* walkers, then victims */
};

static struct play *play;
static struct vault vault;
static rf_store *judge; /* without a guardian: it does nothing unless it is called */

static struct {
    const char *name;
    uint32_t at; /* which time */
    int signal;
    enum whose whose;
} trap;
static bool is_victim; /* this process */
static const struct rf_map *victims_map;
static _Thread_local bool is_caller;

static bool in_list(const char *name)
{
    for (unsigned i = 0; i < POINTS; i++) {
        if (strcmp(points[i], name) == 0) {
            return true;
        }
    }
    return false;
}

/* Batches that are being computed or written, each by somebody. */
static uint32_t batches_in_flight(const struct rf_map *map)
{
    uint32_t count = 0, id;
    uint64_t open = atomic_load(&map->header->epoch);
    for (uint64_t e = atomic_load(&map->header->durable) + 1; e < open; e++) {
        count += rf_entry_says(&rf_entry_of(map, e)->writer, e, &id) && !rf_entry_done(map, e);
    }
    return count;
}

static void on_point(const char *name)
{
    if (strncmp(name, "log.", 4) == 0 && !in_list(name) &&
        atomic_exchange(&play->unknown, 1) == 0) {
        snprintf(play->unknown_name, sizeof(play->unknown_name), "%s", name);
    }
    if (!is_victim || trap.name == NULL || strcmp(trap.name, name) != 0 ||
        (trap.whose == THE_CALLER && !is_caller) || (trap.whose == THE_OTHERS && is_caller)) {
        return;
    }
    if (atomic_fetch_add(&play->hits, 1) + 1 == trap.at) {
        if (victims_map != NULL) {
            atomic_store(&play->together, batches_in_flight(victims_map));
        }
        atomic_store(&play->fired, 1);
        /* To this very thread: it goes no further. */
        syscall(SYS_tgkill, getpid(), gettid(), trap.signal);
    }
}

/* --- the company --- */

struct part {
    unsigned account;
    uint64_t shard;
    rf_durability how;
    bool victim;
    bool chains;    /* also many shards at once */
    uint64_t first; /* op ids and keys from here on */
};

static void acknowledged(struct account *a, uint64_t op, uint64_t epoch)
{
    uint64_t n = atomic_load(&a->count);
    uint64_t at = n < ACKS_MAX ? n : ACKS_MAX - 1; /* of very many, the last */
    a->ops[at] = op;
    a->epochs[at] = epoch;
    atomic_store(&a->count, at + 1);
}

/* 120 shards with 2 KiB each: a chain of several chunks. */
static rf_status add_many(rf_store *own, uint64_t n, uint64_t op, rf_result *result)
{
    enum { COUNT = 120 };
    static const uint8_t metadata[2048] = {7};
    static rf_shard_input inputs[COUNT];
    static char keys[COUNT + 1][40];
    for (unsigned i = 0; i <= COUNT; i++) {
        snprintf(keys[i], sizeof(keys[i]), "v%016" PRIx64 "-%04u", n, i);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        inputs[i] = rf_input_of(1000000 + n * COUNT + i, keys[i], keys[i + 1]);
        inputs[i].spec.metadata = rf_bytes_of(metadata, sizeof(metadata));
    }
    return rf_add_shards(own, rf_now(own), &vault.tenant, 2, inputs, COUNT, op, result);
}

/* Works until told to stop; a victim does not come back from its point. */
static int perform(void *argument)
{
    const struct part *part = argument;
    struct account *a = &play->accounts[part->account];
    rf_store *own = vault_open(&vault);
    rf_lease lease = vault_lease(own, &vault, 1, part->shard);
    struct rf_prng prng = {part->first + 1};
    atomic_fetch_add(&play->ready, 1);
    victims_map = rf_handle_of(own)->map;
    is_caller = true;
    is_victim = part->victim;
    for (uint64_t i = 1; atomic_load(&play->stop) == 0; i++) {
        uint64_t n = part->first + i, op = (uint64_t)(part->account + 1) << 40 | n;
        rf_result result = {.durability = part->how};
        rf_status status;
        if (part->chains && i % 16 == 3) {
            status = add_many(own, n, op, &result);
        } else {
            if (part->victim && i % 4 == 0) {
                result.durability = RF_NOWAIT;
            }
            status = vault_step(own, &vault, &lease, n, op, rf_prng_below(&prng, 600), &result);
        }
        if (status == RF_IO_ERROR && atomic_load(&play->failed) != 0) {
            break; /* see below */
        }
        CREW_CHECK(status == RF_OK, "%s %s", rf_status_name(status), result.detail.where);
        CREW_CHECK(result.durability != RF_WAIT || rf_durable(own) >= result.epoch,
                   "acknowledged and not durable");
        acknowledged(a, op, result.epoch);
        if (part->how == RF_NOWAIT) {
            usleep(200);
        }
        if (part->victim && i == VICTIM_OPS) {
            break; /* the point did not come */
        }
    }
    rf_close(own);
    return 0;
}

static struct rf_header *header(void)
{
    return rf_handle_of(judge)->map->header;
}

static uint64_t count_of(unsigned account)
{
    return atomic_load(&play->accounts[account].count);
}

struct pace {
    uint64_t wanted[WALKERS];
};

static bool have_gone_on(void *context)
{
    const struct pace *pace = context;
    for (unsigned i = 0; i < WALKERS; i++) {
        if (count_of(i) < pace->wanted[i]) {
            return false;
        }
    }
    return true;
}

static const char *told(const char *what)
{
    static char words[400];
    snprintf(words, sizeof(words), "%s at %s, time %u: %s",
             trap.signal == SIGSTOP ? "stopped" : "killed", trap.name == NULL ? "-" : trap.name,
             trap.at, what);
    return words;
}

#define CLAIM(truth, what)                                                                         \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            TEST_FAIL_MESSAGE(told(what));                                                         \
        }                                                                                          \
    } while (0)

static bool is_past(void *context)
{
    return rf_durable(judge) > *(const uint64_t *)context;
}

/* From now on every walker gets `steps` more acknowledged, and what is durable moves. */
static void claim_walkers_go_on(uint64_t steps)
{
    struct pace pace;
    uint64_t durable = rf_durable(judge);
    for (unsigned i = 0; i < WALKERS; i++) {
        pace.wanted[i] = count_of(i) + steps;
        if (pace.wanted[i] > ACKS_MAX) {
            pace.wanted[i] = ACKS_MAX;
        }
    }
    CLAIM(crew_until(have_gone_on, &pace, PATIENCE_MS), "the others do not go on");
    CLAIM(crew_until(is_past, &durable, PATIENCE_MS), "nothing became durable");
}

static bool are_settled(void *context)
{
    rf_inspection seen;
    return rf_inspect(judge, &seen, context) == RF_OK && seen.dead_members == 0;
}

/* --- a theatre --- */

static pid_t walker_pids[WALKERS], victim_pid;
static struct part walker_parts[WALKERS], victim_part;
static uint64_t victims;
static bool with_chains; /* who is stopped inside a chain holds snapshots back */

static void start_walkers(rf_durability how)
{
    for (unsigned i = 0; i < WALKERS; i++) {
        walker_parts[i] = (struct part){.account = i, .shard = i + 1, .how = how};
        walker_pids[i] = crew_start(perform, &walker_parts[i]);
    }
    while (atomic_load(&play->ready) < WALKERS) {
        crew_sleep_ms(1);
    }
}

static uint64_t flush_interval; /* of the next theatre; 0: as usual */

static void open_theatre(rf_durability durability, rf_durability walkers)
{
    memset((void *)&trap, 0, sizeof(trap));
    memset(play, 0, sizeof(*play));
    victims = 0;
    with_chains = true;
    vault_found(&vault, durability);
    vault.options.flush_interval = flush_interval;
    vault.options.segment_bytes = 65536;
    vault_small_lanes(&vault, 262144);
    judge = vault_open_manual(&vault);
    vault_run(judge, &vault, 1, 1, WALKERS + 8, RF_WAIT);
    vault_run(judge, &vault, 2, 900000, 1, RF_WAIT);
    start_walkers(walkers);
}

/* A victim that meets its point, or does not: then it ends by itself. */
static void start_victim(const char *name, uint32_t at, int signal, enum whose whose,
                         rf_durability how)
{
    atomic_store(&play->hits, 0);
    atomic_store(&play->fired, 0);
    victim_part = (struct part){.account = WALKERS + (unsigned)(victims % 8),
                                .shard = WALKERS + 1 + victims % 8,
                                .how = how,
                                .victim = true,
                                .chains = with_chains,
                                .first = (victims + 1) * 10000};
    victims++;
    trap.name = name;
    trap.at = at;
    trap.signal = signal;
    trap.whose = whose;
    victim_pid = crew_start(perform, &victim_part);
}

struct versions {
    const struct logbook *book;
    uint64_t compared;
};

static bool compare_version(void *context, const rf_shard_info *shard)
{
    struct versions *v = context;
    uint64_t version = logbook_version(v->book, shard->shard);
    if (version != shard->version) {
        static char words[200];
        snprintf(words, sizeof(words),
                 "shard %" PRIu64 " has version %" PRIu64 ", on disk %" PRIu64, shard->shard,
                 shard->version, version);
        CLAIM(false, words);
    }
    v->compared++;
    return true;
}

/* Everybody has gone. What they were told is on the disk, and the disk says what memory says. */
static void judge_the_log(void)
{
    struct logbook book;
    rf_detail detail = {0};
    uint64_t told_them = 0;
    CLAIM(crew_until(are_settled, &detail, PATIENCE_MS) ||
              (rf_tend(judge, rf_now(judge)) == RF_OK && are_settled(&detail)),
          "the dead are not settled");
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    CLAIM(logbook_read(&book, vault.directory, rf_durable(judge)), book.broken);
    for (unsigned i = 0; i < WALKERS + 8; i++) {
        const struct account *a = &play->accounts[i];
        uint64_t n = atomic_load(&a->count);
        for (uint64_t k = 0; k < n; k++) {
            const struct logbook_op *found = logbook_find(&book, a->ops[k]);
            CLAIM(found != NULL, "something acknowledged is not in the log");
            CLAIM(found->epoch == a->epochs[k], "something acknowledged is in another epoch");
        }
        told_them += n;
    }
    struct versions v = {.book = &book};
    for (uint64_t run = 1; run <= 2; run++) {
        rf_status status = rf_list_shards(judge, rf_now(judge), &vault.tenant, run, RF_LIST_ALL,
                                          compare_version, &v, &detail);
        CLAIM(status == RF_OK, rf_status_name(status));
    }
    CLAIM(v.compared >= WALKERS + 8, "nothing was compared");
    CLAIM(told_them > 0 && atomic_load(&header()->condemned) == 0, "the log has failed");
    logbook_free(&book);
    if (atomic_load(&play->unknown) != 0) {
        TEST_FAIL_MESSAGE(play->unknown_name);
    }
}

static void stop_walkers(void)
{
    atomic_store(&play->stop, 1);
    for (unsigned i = 0; i < WALKERS; i++) {
        if (walker_pids[i] > 0) {
            CLAIM(crew_join(walker_pids[i], PATIENCE_MS) == 0, "a walker failed");
            walker_pids[i] = 0;
        }
    }
}

static void close_theatre(void)
{
    for (unsigned i = 0; i < WALKERS; i++) {
        if (walker_pids[i] > 0) {
            crew_kill(walker_pids[i]);
            walker_pids[i] = 0;
        }
    }
    if (victim_pid > 0) {
        crew_kill(victim_pid);
        victim_pid = 0;
    }
    if (judge != NULL) {
        rf_close(judge);
        judge = NULL;
    }
    vault_raze(&vault);
}

void setUp(void)
{
    flush_interval = 0;
    rf_disk_trace = NULL;
    rf_point_on_hit = on_point;
}

void tearDown(void)
{
    close_theatre();
}

/* --- killed --- */

/* Waits for the victim's end; whether it was its point. */
static bool fell(void)
{
    int code = crew_join(victim_pid, PATIENCE_MS);
    victim_pid = 0;
    bool fired = atomic_load(&play->fired) != 0;
    CLAIM(code == (fired ? -SIGKILL : 0), "the victim ended in another way");
    return fired;
}

/* Guardians make segments before anybody needs them; when they rest, it is for the writers. */
static uint64_t guardians_rest_at(const char *point)
{
    return strcmp(point, "log.segment") == 0 ? VAULT_NEVER : 0;
}

static void killed_anywhere_in_the_log_the_others_go_on(void)
{
    static const uint32_t times[] = {1, 7};
    uint32_t kills = 0, overlapping = 0, most = 0;
    for (unsigned p = 0; p < POINTS; p++) {
        uint32_t here = 0;
        flush_interval = guardians_rest_at(points[p]);
        open_theatre(RF_WAIT, RF_WAIT);
        for (unsigned t = 0; t < (crew_slowness() > 1 ? 1u : 2u); t++) {
            atomic_store(&play->together, 0);
            start_victim(points[p], times[t], SIGKILL, ANY_THREAD, RF_WAIT);
            here += fell();
            uint32_t together = atomic_load(&play->together);
            overlapping += together > 1;
            most = together > most ? together : most;
            claim_walkers_go_on(5);
        }
        stop_walkers();
        judge_the_log();
        close_theatre();
        printf("  %-20s killed %u times\n", points[p], here);
        CLAIM(here != 0, "it never came");
        kills += here;
    }
    printf("  killed %u times, %u of them with several batches in flight, at most %u\n", kills,
           overlapping, most);
    CLAIM(overlapping >= (crew_slowness() > 1 ? 1u : 3u), "writers do not overlap");
}

/* Nobody waits: one guardian writes for all, sometimes the victim's, until it is killed. */
static void a_killed_flusher_is_replaced(void)
{
    static const char *const at[] = {"log.sealed",       "log.in_hand", "log.composed",
                                     "log.before_write", "log.done",    "log.before_durable",
                                     "log.durable"};
    for (unsigned p = 0; p < sizeof(at) / sizeof(at[0]); p++) {
        uint32_t here = 0;
        open_theatre(RF_NOWAIT, RF_NOWAIT);
        for (uint32_t t = 0; t < 2; t++) {
            start_victim(at[p], 1 + 2 * t, SIGKILL, THE_OTHERS, RF_NOWAIT);
            here += fell();
            claim_walkers_go_on(5);
            CLAIM(crew_until(are_settled, NULL, PATIENCE_MS), "the dead are not settled");
            uint64_t flusher = atomic_load(&header()->flusher);
            CLAIM(flusher == 0 || !rf_id_gone(rf_handle_of(judge)->map, (uint32_t)flusher),
                  "a dead one is still to flush");
        }
        stop_walkers();
        judge_the_log();
        close_theatre();
        printf("  %-20s killed %u times\n", at[p], here);
    }
}

/* One that dies when all is written, before it says that it goes: whoever comes next must find nobody at it, or it
 * would tell nobody of what it does. */
static int work_alone(void *argument)
{
    rf_store *own = vault_open(&vault);
    rf_lease lease = vault_lease(own, &vault, 1, 3);
    rf_result result = {.durability = RF_NOWAIT};
    (void)argument;
    is_caller = true;
    is_victim = true;
    CREW_CHECK(vault_step(own, &vault, &lease, 1, 1, 0, &result) == RF_OK, "a step");
    for (;;) {
        pause();
    }
}

static void a_flusher_that_died_with_nothing_to_do_is_not_waited_for(void)
{
    memset((void *)&trap, 0, sizeof(trap));
    memset(play, 0, sizeof(*play));
    vault_found(&vault, RF_NOWAIT);
    judge = vault_open_manual(&vault);
    vault_run(judge, &vault, 1, 1, 8, RF_WAIT);
    trap.name = "log.durable";
    trap.at = 1;
    trap.signal = SIGKILL;
    trap.whose = THE_OTHERS;
    CLAIM(crew_join(crew_start(work_alone, NULL), PATIENCE_MS) == -SIGKILL, "it did not fall");
    CLAIM(atomic_load(&header()->flusher) != 0, "it was not at it");
    CLAIM(rf_tend(judge, rf_now(judge)) == RF_OK && are_settled(NULL), "the dead are not settled");
    CLAIM(atomic_load(&header()->flusher) == 0, "a dead one is still to flush");
}

/* --- stopped --- */

static bool has_stopped(void *context)
{
    int how = 0;
    (void)context;
    return waitpid(victim_pid, &how, WNOHANG | WUNTRACED) == victim_pid && WIFSTOPPED(how);
}

static bool fired_or_over(void *context)
{
    return atomic_load(&play->fired) != 0 ||
           waitid(P_PID, (id_t)victim_pid, context, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           ((siginfo_t *)context)->si_pid != 0;
}

/* Whether the victim came to its point; then all of it is stopped. */
static bool was_caught(void)
{
    siginfo_t end = {0};
    CLAIM(crew_until(fired_or_over, &end, PATIENCE_MS), "the victim does not end");
    if (atomic_load(&play->fired) == 0) {
        CLAIM(crew_join(victim_pid, PATIENCE_MS) == 0, "the victim ended in another way");
        victim_pid = 0;
        return false;
    }
    CLAIM(crew_until(has_stopped, NULL, PATIENCE_MS), "the victim was not stopped");
    return true;
}

static bool victim_went_on(void *context)
{
    return count_of(victim_part.account) >= *(const uint64_t *)context ||
           count_of(victim_part.account) == ACKS_MAX;
}

static void let_go(void)
{
    uint64_t wanted = count_of(victim_part.account) + 3;
    kill(victim_pid, SIGCONT);
    CLAIM(crew_until(victim_went_on, &wanted, PATIENCE_MS), "the victim does not go on");
}

/* It is let go when others have long written what it had in hand. All its late steps are taken by the time
 * it has got more acknowledged, and not one byte is another. */
static void claim_late_steps_change_nothing(void)
{
    struct logbook book;
    CLAIM(logbook_read(&book, vault.directory, rf_durable(judge)), book.broken);
    uint64_t before = logbook_fingerprint(&book, vault.directory);
    CLAIM(before != 0, "the log can't be read");
    let_go();
    CLAIM(logbook_fingerprint(&book, vault.directory) == before, "a late write changed the log");
    logbook_free(&book);
}

static void stopped_anywhere_in_the_log_it_costs_nobody_and_harms_nothing(void)
{
    static const uint32_t times[] = {1, 5};
    uint32_t stops = 0;
    for (unsigned p = 0; p < POINTS; p++) {
        uint32_t here = 0;
        flush_interval = guardians_rest_at(points[p]);
        open_theatre(RF_WAIT, RF_WAIT);
        for (unsigned t = 0; t < (crew_slowness() > 1 ? 1u : 2u); t++) {
            start_victim(points[p], times[t], SIGSTOP, ANY_THREAD, RF_WAIT);
            if (was_caught()) {
                here++;
                claim_walkers_go_on(20);
                claim_late_steps_change_nothing();
                crew_kill(victim_pid);
                victim_pid = 0;
            }
            claim_walkers_go_on(2);
        }
        stop_walkers();
        judge_the_log();
        close_theatre();
        printf("  %-20s stopped %u times\n", points[p], here);
        CLAIM(here != 0, "it never came");
        stops += here;
    }
    printf("  stopped %u times\n", stops);
}

static bool is_beyond(void *context)
{
    return rf_log_position(rf_handle_of(judge)->map) >= *(const uint64_t *)context;
}

static void a_writer_stopped_for_long_writes_into_a_segment_that_is_over(void)
{
    static const char *const at[] = {"log.composed", "log.published", "log.before_write"};
    for (unsigned p = 0; p < 3; p++) {
        open_theatre(RF_WAIT, RF_WAIT);
        start_victim(at[p], 3, SIGSTOP, THE_CALLER, RF_WAIT);
        CLAIM(was_caught(), "it never came");
        uint64_t there = rf_log_position(rf_handle_of(judge)->map) + 4 * 65536;
        CLAIM(crew_until(is_beyond, &there, PATIENCE_MS), "the log does not go on");
        claim_late_steps_change_nothing();
        claim_walkers_go_on(5);
        crew_kill(victim_pid);
        victim_pid = 0;
        stop_walkers();
        judge_the_log();
        close_theatre();
    }
}

static void take_snapshot(void)
{
    rf_detail detail = {0};
    rf_status status;
    uint64_t until = crew_ns() + PATIENCE_MS * 1000000ull;
    do {
        status = rf_snapshot(judge, &detail);
    } while (status == RF_BUSY && crew_ns() < until);
    CLAIM(status == RF_OK, detail.where);
}

static bool segment_is_there(uint64_t number)
{
    char path[160];
    snprintf(path, sizeof(path), "%s/log.%016" PRIx64, vault.directory, number);
    return access(path, F_OK) == 0;
}

/* The log goes on by some segments, and two snapshots need none that were there before. */
static void leave_all_segments_behind(void)
{
    for (unsigned i = 0; i < 2; i++) {
        uint64_t there = rf_log_position(rf_handle_of(judge)->map) + 3 * 65536;
        CLAIM(crew_until(is_beyond, &there, PATIENCE_MS), "the log does not go on");
        take_snapshot();
    }
}

static void say_difference(void *context, const char *what)
{
    (void)context;
    printf("  %s\n", what);
}

/* When all is quiet: the disk says what memory says. Then the memory is lost, and the disk alone says it. */
static void claim_disk_is_whole(void)
{
    rf_detail detail = {0};
    rf_verification v = {0};
    static uint8_t scratch[RF_GRANT_SCRATCH];
    char region[200];
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    CLAIM(rf_verify(judge, say_difference, NULL, &v, &detail) == RF_OK, detail.where);
    CLAIM(v.differences == 0, "memory and disk differ");
    snprintf(region, sizeof(region), "%s", rf_handle_of(judge)->map->region_path);
    rf_close(judge);
    judge = NULL;
    CLAIM(unlink(region) == 0, "the region is not where it was");
    judge = vault_open_manual(&vault);
    for (unsigned i = 0; i < WALKERS; i++) {
        rf_shard_info info;
        RF_EXPECT(RF_OK, rf_get_shard(judge, &vault.tenant, 1, i + 1, &info, scratch,
                                      sizeof(scratch), &detail));
        uint64_t newest = info.ring[info.ring_count - 1].op;
        static char words[120];
        snprintf(words, sizeof(words),
                 "an acknowledged step is gone: %" PRIx64 " of %" PRIx64 ", %" PRIu64 " steps",
                 newest, play->accounts[i].ops[count_of(i) - 1], count_of(i));
        CLAIM(newest == play->accounts[i].ops[count_of(i) - 1], words);
    }
}

/* The third time he has it open, and writes into a file that has no name any more. The first time he does not find it. */
static void a_writer_stopped_for_long_finds_its_segment_gone(void)
{
    static const struct {
        const char *point;
        uint32_t time;
    } at[] = {{"log.composed", 3},
              {"log.published", 3},
              {"log.before_write", 3},
              {"log.before_write", 1}};
    for (unsigned p = 0; p < 4; p++) {
        open_theatre(RF_WAIT, RF_WAIT);
        with_chains = false;
        start_victim(at[p].point, at[p].time, SIGSTOP, THE_CALLER, RF_WAIT);
        CLAIM(was_caught(), "it never came");
        uint64_t position = rf_log_position(rf_handle_of(judge)->map);
        leave_all_segments_behind();
        CLAIM(!segment_is_there(position / (65536 - 4096)), "its segment was not removed");
        let_go();
        claim_walkers_go_on(5);
        crew_kill(victim_pid);
        victim_pid = 0;
        stop_walkers();
        CLAIM(crew_until(are_settled, NULL, 100) || rf_tend(judge, rf_now(judge)) == RF_OK,
              "the dead are not settled");
        claim_disk_is_whole();
        close_theatre();
    }
}

/* Stops before a new segment gets its name. */
static int stop_before_naming(void *context, const struct rf_disk_event *event)
{
    (void)context;
    if (is_victim && event->kind == RF_DISK_RENAME && !event->done &&
        strncmp(event->name2, "log.", 4) == 0 && atomic_exchange(&play->hits, 1) == 0) {
        atomic_store(&play->segment, strtoull(event->name2 + 4, NULL, 16));
        atomic_store(&play->fired, 1);
        syscall(SYS_tgkill, getpid(), gettid(), SIGSTOP);
    }
    return 0;
}

static bool has_come_back(void *context)
{
    (void)context;
    return segment_is_there(atomic_load(&play->segment));
}

static int make_a_run(void *argument)
{
    (void)argument;
    is_victim = true;
    rf_store *own = vault_open(&vault);
    vault_run(own, &vault, 2, 900000, 1, RF_WAIT); /* the first who needs segments */
    rf_close(own);
    return 0;
}

/* Steps of the judge, for as long as the log needs to go on by some segments. */
static void walk_past_segments(const rf_lease *leases, uint64_t *n)
{
    uint64_t there = rf_log_position(rf_handle_of(judge)->map) + 3 * 65536;
    while (!is_beyond(&there)) {
        ++*n;
        for (unsigned i = 0; i < WALKERS; i++) {
            rf_result result = {.durability = RF_WAIT};
            uint64_t op = (uint64_t)(i + 1) << 40 | *n;
            rf_status status = vault_step(judge, &vault, &leases[i], *n, op, 0, &result);
            CLAIM(status == RF_OK, rf_status_name(status));
            acknowledged(&play->accounts[i], op, result.epoch);
        }
    }
}

/* Others make that segment, fill it, and remove it. Then it comes back, empty. */
static void a_segment_that_comes_back_from_the_dead_is_no_obstacle(void)
{
    rf_lease leases[WALKERS];
    uint64_t n = 0;
    memset((void *)&trap, 0, sizeof(trap));
    memset(play, 0, sizeof(*play));
    rf_disk_trace = stop_before_naming;
    vault_found(&vault, RF_WAIT);
    vault.options.flush_interval = VAULT_NEVER;
    vault.options.segment_bytes = 65536;
    judge = vault_open_manual(&vault);
    victim_pid = crew_start(make_a_run, NULL);
    CLAIM(was_caught(), "it never came");
    vault_run(judge, &vault, 1, 1, WALKERS, RF_WAIT);
    for (unsigned i = 0; i < WALKERS; i++) {
        leases[i] = vault_lease(judge, &vault, 1, i + 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        walk_past_segments(leases, &n);
        take_snapshot();
    }
    CLAIM(!segment_is_there(atomic_load(&play->segment)), "its segment was not removed");
    kill(victim_pid, SIGCONT);
    CLAIM(crew_until(has_come_back, NULL, PATIENCE_MS), "its segment did not come back");
    CLAIM(crew_join(victim_pid, PATIENCE_MS) == 0, "the late one failed");
    victim_pid = 0;
    walk_past_segments(leases, &n);
    CLAIM(has_come_back(NULL), "it went away by itself");
    claim_disk_is_whole();
    rf_disk_trace = NULL;
}

/* --- stopped at the worst moment --- */

/* Nobody but judge and puppet: what happens when is for the test to say. */
static void open_quiet_theatre(void)
{
    memset((void *)&trap, 0, sizeof(trap));
    memset(play, 0, sizeof(*play));
    vault_found(&vault, RF_NOWAIT);
    vault.options.flush_interval = VAULT_NEVER;
    vault.options.segment_bytes = 65536;
    vault_small_lanes(&vault, 262144);
    judge = vault_open_manual(&vault);
    vault_run(judge, &vault, 1, 1, 8, RF_WAIT);
}

/* Waits for its cue, then for all that was done to be durable. */
static int write_for_others(void *argument)
{
    rf_detail detail = {0};
    rf_store *own = vault_open(&vault);
    (void)argument;
    atomic_store(&play->ready, 1);
    while (atomic_load(&play->failing) == 0) {
        usleep(100);
    }
    is_victim = true;
    is_caller = true;
    rf_status status = rf_barrier(own, &detail);
    CREW_CHECK(status == RF_OK, "%s %s", rf_status_name(status), detail.where);
    is_victim = false;
    rf_close(own);
    return 0;
}

static void start_puppet_of(int (*body)(void *argument), const char *name, uint32_t at)
{
    trap.name = name;
    trap.at = at;
    trap.signal = SIGSTOP;
    trap.whose = THE_CALLER;
    victim_pid = crew_start(body, NULL);
    while (atomic_load(&play->ready) == 0) {
        crew_sleep_ms(1);
    }
}

static void start_puppet(const char *name, uint32_t at)
{
    start_puppet_of(write_for_others, name, at);
}

static void cue_puppet(void)
{
    atomic_store(&play->failing, 1); /* nothing fails here: it is its cue */
    CLAIM(was_caught(), "it never came");
}

static void expect_puppet_ends_well(void)
{
    kill(victim_pid, SIGCONT);
    int code = crew_join(victim_pid, PATIENCE_MS);
    victim_pid = 0;
    CLAIM(code == 0, "the late one failed");
}

static uint64_t step_of_judge(const rf_lease *lease, uint64_t n, size_t token, rf_durability how)
{
    rf_result result = {.durability = how};
    rf_status status = vault_step(judge, &vault, lease, n, n, token, &result);
    CLAIM(status == RF_OK, rf_status_name(status));
    return result.epoch;
}

static void expect_steps_in_log(uint64_t steps)
{
    struct logbook book;
    rf_detail detail = {0};
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    CLAIM(logbook_read(&book, vault.directory, rf_durable(judge)), book.broken);
    for (uint64_t i = 1; i <= steps; i++) {
        CLAIM(logbook_find(&book, i) != NULL, "a step is not in the log");
    }
    logbook_free(&book);
}

/* He is about to copy the lanes. Others write the batch, and the lane's owner moves its base over what was in
 * it: the copy would lack it. */
static void a_copy_of_lanes_that_moved_on_is_thrown_away(void)
{
    static const char *const at[] = {"log.agreed", "log.raised", "log.walking"};
    for (unsigned p = 0; p < 3; p++) {
        open_quiet_theatre();
        rf_lease lease = vault_lease(judge, &vault, 1, 1);
        const struct rf_lane_head *lane = &rf_handle_of(judge)->actor.me->lane;
        start_puppet(at[p], 1);
        uint64_t n = 1, epoch = step_of_judge(&lease, 1, 0, RF_NOWAIT);
        cue_puppet();
        uint64_t base = atomic_load(&lane->base);
        rf_detail detail = {0};
        CLAIM(rf_sync(judge, epoch, &detail) == RF_OK, detail.where);
        uint64_t end = atomic_load(&lane->end);
        /* As short as the first one: the base moves by as much as the next one needs, and nothing is written. */
        while (atomic_load(&lane->base) < end && n < 2000) {
            step_of_judge(&lease, ++n, 0, RF_NOWAIT);
        }
        CLAIM(atomic_load(&lane->base) >= end && end > base, "its base did not move");
        CLAIM(rf_durable(judge) == epoch, "its entry may have been used again");
        expect_puppet_ends_well();
        expect_steps_in_log(n);
        close_theatre();
    }
}

/* He is about to publish what he has computed. The entry is another epoch's by now, and that one is the last that is
 * durable: its end is what the next one begins with. */
static int step_after(void *argument)
{
    rf_store *own = vault_open(&vault);
    rf_lease lease = vault_lease(own, &vault, 1, 2);
    rf_result result = {.durability = RF_WAIT};
    (void)argument;
    CREW_CHECK(vault_step(own, &vault, &lease, 1, 900, 0, &result) == RF_OK, "%s",
               result.detail.where);
    rf_close(own);
    return 0;
}

static void a_late_word_about_an_entry_that_is_anothers_is_not_taken(void)
{
    static const char *const at[] = {"log.in_hand", "log.composed", "log.published",
                                     "log.before_write", "log.written"};
    for (unsigned p = 0; p < 5; p++) {
        for (uint64_t rounds = 1; rounds <= 2; rounds++) {
            open_quiet_theatre();
            rf_lease lease = vault_lease(judge, &vault, 1, 1);
            start_puppet(at[p], 1);
            uint64_t n = 1, epoch = step_of_judge(&lease, 1, 0, RF_NOWAIT);
            cue_puppet();
            while (rf_durable(judge) < epoch + rounds * RF_LOG_ENTRIES) {
                step_of_judge(&lease, ++n, 0, RF_WAIT);
            }
            CLAIM(rf_durable(judge) == epoch + rounds * RF_LOG_ENTRIES, "an epoch too far");
            expect_puppet_ends_well();
            CLAIM(crew_join(crew_start(step_after, NULL), PATIENCE_MS) == 0,
                  "the log does not go on");
            expect_steps_in_log(n);
            close_theatre();
        }
    }
}

/* He walks over what is durable and has not come to what is not. The owner overwrites what is durable, with bytes
 * that look like records of the epoch that he is after. */
static void a_walk_over_what_is_overwritten_meanwhile_starts_over(void)
{
    static uint8_t token[RF_TOKEN_MAX];
    struct rf_lane_record bait = {.kind = RF_LANE_CHUNK, .event = UINT16_MAX};
    open_quiet_theatre();
    rf_lease lease = vault_lease(judge, &vault, 1, 1);
    const struct rf_handle *h = rf_handle_of(judge);
    const struct rf_lane_head *lane = &h->actor.me->lane;
    uint64_t ring = h->map->lane_mask + 1, n = 0;
    start_puppet("log.walking", 1);
    /* Much that is durable lies between the base and what comes next, as far as the owner may go without looking. */
    const uint64_t lag = ring - 2 * RF_LANE_UNITS_MAX - 24;
    while (atomic_load(&lane->end) < ring ||
           atomic_load(&lane->end) - atomic_load(&lane->base) < lag ||
           atomic_load(&lane->end) > h->actor.lane_limit) {
        step_of_judge(&lease, ++n, atomic_load(&lane->end) < ring ? RF_TOKEN_MAX : 900, RF_WAIT);
        CLAIM(n < 2000, "its base does not lag");
    }
    uint64_t base = atomic_load(&lane->base), start = atomic_load(&lane->end);
    uint64_t epoch = step_of_judge(&lease, ++n, 0, RF_NOWAIT);
    CLAIM(atomic_load(&lane->base) == base, "its base moved too soon");
    /* As if those who wrote had been stopped before they said how far they had walked. */
    atomic_store(&rf_handle_of(judge)->actor.me->lane.walked, 0);
    cue_puppet();
    /* From the base right to the record that he is after. */
    bait.units = (uint32_t)(start - base);
    bait.epoch = epoch;
    bait.stamp = lane->stamp + 1000000;
    const uint64_t limit =
        start + ring - 2 * RF_LANE_UNITS_MAX; /* behind it the owner has to wait */
    const uint64_t large = 270, small = 8;
    unsigned shift = 0; /* where a token lies in its unit; known after the first */
    while (atomic_load(&lane->end) <= limit) {
        char key[40];
        uint64_t end = atomic_load(&lane->end);
        bool last = end + small > limit, crossing = (end & (ring - 1)) + large > ring;
        bool big = last || (end + large <= limit && !crossing);
        for (unsigned k = 0; k < sizeof(token); k++) {
            token[k] = ((const uint8_t *)&bait)[(k + shift) % sizeof(bait)];
        }
        rf_result result = {.durability = RF_NOWAIT};
        n++;
        rf_cursor cursor = {
            .key = {key, (size_t)snprintf(key, sizeof(key), "s%08u-%010u", 1u, (unsigned)n)},
            .token = {big ? token : NULL, big ? sizeof(token) : 0}};
        CLAIM(rf_checkpoint(judge, rf_now(judge), &vault.tenant, &lease, &cursor, n, &result) ==
                  RF_OK,
              result.detail.where);
        const uint8_t *body = rf_lane_unit(h->map, h->actor.lane, end + 1);
        const uint8_t *found = big ? memmem(body, 512, token, sizeof(bait)) : NULL;
        shift = found == NULL ? shift : (unsigned)((uintptr_t)found % sizeof(bait));
    }
    struct rf_lane_record there;
    memcpy(&there, rf_lane_unit(h->map, h->actor.lane, base), sizeof(there));
    CLAIM(memcmp(&there, &bait, sizeof(bait)) == 0, "the bait is not where it belongs");
    CLAIM(rf_durable(judge) < epoch, "somebody else wrote it");
    expect_puppet_ends_well();
    expect_steps_in_log(n);
}

/* A chain is begun, snapshots are taken, and the chain is closed: they must not have begun behind its first chunk. */
static void snapshots_wait_with_their_beginning_for_a_chain_that_is_open(void)
{
    static const char *const at[] = {"op.chain", "op.chunk"};
    for (unsigned p = 0; p < 2; p++) {
        open_theatre(RF_WAIT, RF_WAIT);
        start_victim(at[p], 1 + p, SIGSTOP, THE_CALLER, RF_WAIT);
        CLAIM(was_caught(), "it never came");
        uint64_t before = count_of(victim_part.account);
        leave_all_segments_behind();
        rf_inspection seen;
        RF_EXPECT(RF_OK, rf_inspect(judge, &seen, NULL));
        CLAIM(seen.snapshot_held_by == (uint32_t)victim_pid, "nobody is said to hold it back");
        let_go();
        crew_kill(victim_pid);
        victim_pid = 0;
        claim_walkers_go_on(2);
        stop_walkers();
        CLAIM(crew_until(are_settled, NULL, 100) || rf_tend(judge, rf_now(judge)) == RF_OK,
              "the dead are not settled");
        claim_disk_is_whole();
        rf_run_info run;
        RF_EXPECT(RF_OK, rf_get_run(judge, &vault.tenant, 2, &run, NULL));
        CLAIM(run.shard_count >= 121 && before < count_of(victim_part.account),
              "the chain was not closed");
        close_theatre();
    }
}

/* Waits for its cue, and takes a step. Its death ends no lease. */
static int take_a_step(void *argument)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_store *own = vault_open(&vault);
    rf_result result = {.durability = RF_NOWAIT};
    (void)argument;
    CREW_CHECK(rf_acquire(own, rf_now(own), &vault.tenant, 1, 2, 7, RF_DETACHED, &grant, &result) ==
                   RF_OK,
               "%s", result.detail.where);
    atomic_store(&play->ready, 1);
    while (atomic_load(&play->failing) == 0) {
        usleep(100);
    }
    is_victim = true;
    is_caller = true;
    CREW_CHECK(vault_step(own, &vault, &grant.lease, 1, 900, 0, &result) == RF_OK, "%s",
               result.detail.where);
    is_victim = false;
    acknowledged(&play->accounts[0], 900, result.epoch);
    while (atomic_load(&play->stop) == 0) {
        usleep(100);
    }
    rf_close(own);
    return 0;
}

static bool has_stepped(void *context)
{
    (void)context;
    return count_of(0) == 1;
}

static void let_it_step(const char *name)
{
    if (strcmp(name, "snapshot.copied") == 0) {
        kill(victim_pid, SIGCONT);
        CLAIM(crew_until(has_stepped, NULL, PATIENCE_MS), "the late one does not go on");
    }
}

/* He has read which epoch is open, and it is sealed. A snapshot begins with the next one and has copied his shard when he
 * commits: not in the epoch that he has read, or nobody would replay it. */
static void who_commits_after_the_copy_is_in_an_epoch_that_is_replayed(void)
{
    rf_detail detail = {0};
    rf_verification v = {0};
    open_quiet_theatre();
    start_puppet_of(take_a_step, "lane.before_commit", 1);
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    cue_puppet();
    uint64_t open = atomic_load(&header()->epoch);
    atomic_store(&header()->epoch, open + 1); /* sealed, and nobody has raised the lanes */
    rf_point_on_hit = let_it_step;
    rf_status status = rf_snapshot(judge, &detail);
    rf_point_on_hit = on_point;
    CLAIM(status == RF_OK, detail.where);
    CLAIM(play->accounts[0].epochs[0] > open, "it is in the epoch before");
    status = rf_verify(judge, say_difference, NULL, &v, &detail);
    CLAIM(status == RF_OK, detail.where);
    CLAIM(v.differences == 0, "memory and disk differ");
    atomic_store(&play->stop, 1);
    expect_puppet_ends_well();
}

/* He did not come to note in which epoch: whoever settles him does. */
static void what_a_killed_one_had_just_committed_is_part_of_a_barrier(void)
{
    rf_detail detail = {0};
    struct logbook book;
    rf_shard_info info;
    static uint8_t scratch[RF_GRANT_SCRATCH];
    open_quiet_theatre();
    start_puppet_of(take_a_step, "lane.committed", 1);
    CLAIM(rf_tend(judge, rf_now(judge)) == RF_OK, "something else is left to be written");
    cue_puppet();
    crew_kill(victim_pid);
    victim_pid = 0;
    CLAIM(rf_tend(judge, rf_now(judge)) == RF_OK && are_settled(NULL), "the dead are not settled");
    RF_EXPECT(RF_OK,
              rf_get_shard(judge, &vault.tenant, 1, 2, &info, scratch, sizeof(scratch), &detail));
    TEST_ASSERT_EQUAL_UINT64(900, info.ring[info.ring_count - 1].op);
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    CLAIM(logbook_read(&book, vault.directory, rf_durable(judge)), book.broken);
    CLAIM(logbook_find(&book, 900) != NULL, "it is seen, and not in the log");
    logbook_free(&book);
}

static struct {
    unsigned kept, replaceable;
    bool copying;
    rf_store *other;
    rf_lease lease; /* the other's */
} watch;

static void watch_a_backup(const char *name)
{
    rf_result result = {.durability = RF_WAIT};
    bool kept = atomic_load(&header()->snapshotter) >> 32 == RF_SNAPSHOTTER_KEPT;
    if (strcmp(name, "backup.snapshot") == 0) {
        watch.copying = true;
    } else if (strcmp(name, "disk.file_published") == 0 && watch.copying) {
        watch.copying = false; /* what the log has from here on comes too late */
        rf_status status = vault_step(watch.other, &vault, &watch.lease, 1, 700, 0, &result);
        CLAIM(status == RF_OK, result.detail.where);
    } else if (strcmp(name, "backup.segment") == 0 || strcmp(name, "verify.kept") == 0) {
        watch.kept += kept;
        watch.replaceable += !kept;
    }
}

/* A copy ends where the log was durable when it was begun. Nobody takes over from whoever makes it, or verifies: he would
 * remove what they read. */
static void a_backup_is_of_one_moment_and_keeps_others_from_taking_snapshots(void)
{
    rf_detail detail = {0};
    rf_verification v = {0};
    struct logbook book;
    char copy[120];
    open_quiet_theatre();
    watch.kept = watch.replaceable = 0;
    watch.other = vault_open_manual(&vault);
    watch.lease = vault_lease(watch.other, &vault, 1, 1);
    snprintf(copy, sizeof(copy), "%.80s-copy", vault.directory);
    rf_point_on_hit = watch_a_backup;
    rf_status status = rf_backup(judge, copy, &detail);
    CLAIM(status == RF_OK, detail.where);
    CLAIM(watch.kept != 0 && watch.replaceable == 0, "a backup may be replaced");
    watch.kept = 0;
    status = rf_verify(judge, say_difference, NULL, &v, &detail);
    rf_point_on_hit = on_point;
    CLAIM(status == RF_OK && v.differences == 0, detail.where);
    CLAIM(watch.kept != 0 && watch.replaceable == 0, "a verification may be replaced");
    CLAIM(atomic_load(&header()->snapshotter) == 0, "it is kept for longer");
    CLAIM(logbook_read(&book, vault.directory, rf_durable(judge)), book.broken);
    CLAIM(logbook_find(&book, 700) != NULL, "the other's step is not in the log");
    logbook_free(&book);
    CLAIM(logbook_read(&book, copy, 1), book.broken);
    CLAIM(logbook_find(&book, 700) == NULL, "a later step is in the copy");
    logbook_free(&book);
    rf_close(watch.other);
    RF_EXPECT(RF_OK, rf_destroy(copy, &detail));
}

static bool find_guardian(pid_t pid, uint32_t *id)
{
    const struct rf_map *map = rf_handle_of(judge)->map;
    uint32_t used = atomic_load(&map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        struct rf_member *m = rf_member_at(map, slot);
        if (atomic_load(&m->pid) == (uint32_t)pid && atomic_load(&m->is_guardian) != 0 &&
            atomic_load(&m->liveness) != 0) {
            *id = rf_id(slot, atomic_load(&m->generation));
            return true;
        }
    }
    return false;
}

static bool another_flushes(void *context)
{
    uint64_t who = atomic_load(&header()->flusher);
    return who != 0 && who != *(const uint32_t *)context;
}

/* A process that is stopped while it is the one that writes for all. */
static void a_stopped_flusher_is_replaced(void)
{
    open_theatre(RF_NOWAIT, RF_NOWAIT);
    start_victim("log.before_write", 2, SIGSTOP, THE_OTHERS, RF_NOWAIT);
    CLAIM(was_caught(), "it never came");
    uint32_t id = 0;
    CLAIM(find_guardian(victim_pid, &id), "it has no guardian");
    atomic_store(&header()->flusher_at, rf_monotonic_ns());
    atomic_store(&header()->flusher,
                 id); /* it may have been at it only because its lane was full */
    CLAIM(crew_until(another_flushes, &id, PATIENCE_MS), "it is waited for");
    claim_walkers_go_on(20); /* also: something becomes durable */
    claim_late_steps_change_nothing();
    claim_walkers_go_on(20);
    crew_kill(victim_pid);
    victim_pid = 0;
    stop_walkers();
    judge_the_log();
}

/* --- a disk that fails --- */

/* The n-th write of a batch from now on, in whatever process, fails. */
static int fail_a_write(void *context, const struct rf_disk_event *event)
{
    (void)context;
    uint32_t wanted = atomic_load(&play->failing);
    if (wanted == 0 || event->kind != RF_DISK_WRITE_BEGIN || !event->sync ||
        strncmp(event->name, "log.", 4) != 0) {
        return 0;
    }
    if (atomic_fetch_sub(&play->failing, 1) != 1) {
        return 0;
    }
    atomic_store(&play->failed, 1);
    return EIO;
}

static bool has_failed(void *context)
{
    (void)context;
    return atomic_load(&play->failed) != 0 && atomic_load(&header()->condemned) != 0;
}

static void expect_failed(rf_status status, const rf_detail *detail)
{
    char text[400];
    rf_explain(status, detail, text, sizeof(text));
    CLAIM(status == RF_IO_ERROR && detail->os_error == EIO, text);
    CLAIM(strstr(text, vault.directory) != NULL && strstr(text, "open the store again") != NULL,
          text);
}

static void after_a_write_error_nothing_is_acknowledged_and_reads_go_on(void)
{
    for (uint32_t nth = 1; nth <= 3; nth++) {
        rf_disk_trace = fail_a_write;
        open_theatre(RF_WAIT, RF_WAIT);
        rf_lease lease = vault_lease(judge, &vault, 1, WALKERS + 1);
        rf_store *reader;
        rf_detail detail = {0};
        rf_result result = {0};
        CLAIM(rf_open(vault.directory, &(rf_options){.read_only = true}, &reader, &detail) == RF_OK,
              detail.where);
        claim_walkers_go_on(10);
        atomic_store(&play->failing, nth);
        CLAIM(crew_until(has_failed, NULL, PATIENCE_MS), "no write failed");
        /* The walkers have all heard of it, and have ended. */
        for (unsigned i = 0; i < WALKERS; i++) {
            CLAIM(crew_join(walker_pids[i], PATIENCE_MS) == 0, "a walker did not hear of it");
            walker_pids[i] = 0;
        }
        uint64_t durable = rf_durable(judge); /* what came before it may have been under way */
        /* Every call that would have to be logged, of somebody who had no part in it. */
        expect_failed(vault_step(judge, &vault, &lease, 1, 1, 0, &result), &result.detail);
        result = (rf_result){.durability = RF_NOWAIT};
        expect_failed(vault_step(judge, &vault, &lease, 1, 1, 0, &result), &result.detail);
        expect_failed(rf_complete_run(judge, rf_now(judge), &vault.tenant, 2, 5, &result),
                      &result.detail);
        expect_failed(rf_barrier(judge, &detail), &detail);
        expect_failed(rf_sync(judge, header()->epoch, &detail), &detail);
        RF_EXPECT(RF_OK, rf_sync(judge, durable, &detail)); /* that is true, now as before */
        rf_inspection seen;
        RF_EXPECT(RF_OK, rf_inspect(judge, &seen, &detail));
        CLAIM(seen.log_failed, "an inspection does not say it");
        TEST_ASSERT_EQUAL(durable, rf_durable(judge));
        /* Reads go on. */
        static uint8_t scratch[RF_GRANT_SCRATCH];
        rf_shard_info info;
        RF_EXPECT(RF_OK, rf_get_shard(judge, &vault.tenant, 1, 1, &info, scratch, sizeof(scratch),
                                      &detail));
        RF_EXPECT(RF_OK, rf_get_shard(reader, &vault.tenant, 1, 1, &info, scratch, sizeof(scratch),
                                      &detail));
        /* On the disk is what was acknowledged, and not the batch that failed or one behind it. */
        struct logbook book;
        CLAIM(logbook_read(&book, vault.directory, durable), book.broken);
        CLAIM(book.last <= durable + 8, "batches behind the one that failed");
        for (unsigned i = 0; i < WALKERS; i++) {
            const struct account *a = &play->accounts[i];
            for (uint64_t k = 0; k < atomic_load(&a->count); k++) {
                CLAIM(a->epochs[k] <= durable, "acknowledged after the error");
                CLAIM(logbook_find(&book, a->ops[k]) != NULL, "acknowledged and not there");
            }
        }
        logbook_free(&book);
        rf_close(reader);
        /* All close it and open it again: cold, from the disk, with everything that was acknowledged. */
        rf_close(judge);
        rf_disk_trace = NULL;
        judge = vault_open_manual(&vault);
        for (unsigned i = 0; i < WALKERS; i++) {
            RF_EXPECT(RF_OK, rf_get_shard(judge, &vault.tenant, 1, i + 1, &info, scratch,
                                          sizeof(scratch), &detail));
            uint64_t n = count_of(i);
            uint64_t newest = info.ring_count == 0 ? 0 : info.ring[info.ring_count - 1].op;
            CLAIM(newest >= play->accounts[i].ops[n - 1], "an acknowledged step is gone");
        }
        lease = vault_lease(judge, &vault, 1, WALKERS + 1);
        result = (rf_result){0};
        RF_EXPECT(RF_OK, vault_step(judge, &vault, &lease, 1, 1, 0, &result));
        CLAIM(rf_durable(judge) >= result.epoch, "it does not write again");
        close_theatre();
    }
}

/* The directory is not synced after the next segment has got its name; once. */
static int fail_to_name_a_segment(void *context, const struct rf_disk_event *event)
{
    (void)context;
    if (event->kind == RF_DISK_RENAME && event->done && strncmp(event->name2, "log.", 4) == 0) {
        atomic_fetch_add(&play->hits, 1);
    }
    bool now = event->kind == RF_DISK_SYNC_DIR && !event->done && atomic_load(&play->hits) != 0 &&
               atomic_exchange(&play->failed, 1) == 0;
    return now ? EIO : 0;
}

/* Whoever tried again would find the segment there, sync the directory, hear that all is well, and be told a lie. */
static void a_segment_whose_name_was_not_made_durable_ends_the_log(void)
{
    for (unsigned by_tending = 0; by_tending < 2; by_tending++) {
        rf_detail detail = {0};
        rf_result result = {.durability = RF_NOWAIT};
        open_quiet_theatre();
        rf_lease lease = vault_lease(judge, &vault, 1, 1);
        CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
        rf_disk_trace = fail_to_name_a_segment;
        rf_status status = RF_OK;
        for (uint64_t n = 1; status == RF_OK && n <= 400; n++) {
            status = vault_step(judge, &vault, &lease, n, n, RF_TOKEN_MAX, &result);
            if (status == RF_OK && by_tending) {
                status = rf_tend(judge, rf_now(judge));
            }
        }
        CLAIM(atomic_load(&play->failed) != 0, "no segment was made");
        CLAIM(atomic_load(&header()->condemned) == EIO + 1, "it was tried again");
        CLAIM(status == RF_IO_ERROR, rf_status_name(status));
        expect_failed(rf_barrier(judge, &detail), &detail);
        rf_disk_trace = NULL;
        close_theatre();
    }
}

/* The judge's next write fails; then the store is opened again, from its disk. */
static void lose_what_is_not_written(void)
{
    rf_detail detail = {0};
    rf_disk_trace = fail_a_write;
    atomic_store(&play->failing, 1);
    CLAIM(rf_barrier(judge, &detail) == RF_IO_ERROR, detail.where);
    rf_close(judge);
    rf_disk_trace = NULL;
    judge = vault_open_manual(&vault);
}

/* An epoch is a promise to be told whether it was kept, by the store as it is then: not by the next one that happens to
 * have its number. As many are told as there can be before the first of them is written. */
static void an_epoch_that_was_lost_is_never_said_to_be_durable(void)
{
    enum { LIVES = 12 };
    uint64_t lost[LIVES][2], kept[LIVES], last = 0, n = 0;
    rf_detail detail = {0};
    open_quiet_theatre();
    for (uint64_t i = 0; i < LIVES; i++) {
        rf_lease lease = vault_lease(judge, &vault, 1, 1);
        CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
        kept[i] = i % 3 == 2 ? 0 : step_of_judge(&lease, ++n, 0, RF_WAIT);
        CLAIM(i % 3 == 2 || kept[i] > last, "an epoch came twice");
        lost[i][0] = lost[i][1] = step_of_judge(&lease, ++n, 0, RF_NOWAIT);
        CLAIM(lost[i][0] > last && lost[i][0] > kept[i], "an epoch came twice");
        while (lost[i][1] - rf_durable(judge) < RF_LOG_ENTRIES - 1) {
            atomic_store(&header()->epoch, lost[i][1] + 1); /* sealed, and in nobody's hands */
            lost[i][1] = step_of_judge(&lease, ++n, 0, RF_NOWAIT);
        }
        last = lost[i][1];
        lose_what_is_not_written();
        CLAIM(rf_sync(judge, lost[i][0], &detail) == RF_NOT_FOUND, "lost, and said to be durable");
        CLAIM(strstr(detail.where, "not in its log") != NULL, detail.where);
        char why[256];
        rf_explain(RF_NOT_FOUND, &detail, why, sizeof(why));
        CLAIM(strncmp(why, "there is no such epoch", 22) == 0, why); /* ... store, it would say */
        CLAIM(rf_sync(judge, last, &detail) == RF_NOT_FOUND, "lost, and said to be durable");
        CLAIM(i % 3 == 2 || rf_sync(judge, kept[i], &detail) == RF_OK, detail.where);
    }
    /* Still so, many epochs later. */
    rf_lease lease = vault_lease(judge, &vault, 1, 2);
    for (uint64_t i = 0; i < 100; i++) {
        step_of_judge(&lease, ++n, 0, RF_WAIT);
    }
    CLAIM(rf_durable(judge) > last + RF_LOG_ENTRIES, "not so many epochs");
    for (uint64_t i = 0; i < LIVES; i++) {
        CLAIM(rf_sync(judge, lost[i][0], NULL) == RF_NOT_FOUND, "lost, and durable later");
        CLAIM(rf_sync(judge, lost[i][1], NULL) == RF_NOT_FOUND, "lost, and durable later");
        /* What lies too far back is not said to be durable, nor is it lost. */
        rf_status status = i % 3 == 2 ? RF_OK : rf_sync(judge, kept[i], NULL);
        CLAIM(status == RF_OK || (i + 8 <= LIVES && status == RF_NOT_FOUND), "kept, and lost");
    }
    CLAIM(rf_sync(judge, 0, &detail) == RF_OK, detail.where);
}

/* --- how many in flight --- */

static struct rf_log_entry *held;
static uint64_t open_at_sleep;

static void let_it_go(const char *name)
{
    if (strcmp(name, "log.before_sleep") == 0 && open_at_sleep == 0) {
        open_at_sleep = atomic_load(&header()->epoch);
        atomic_store(&held->since, 0);
    }
}

static uint64_t walked_at_sleep;

static void look_how_far_was_walked(const char *name)
{
    if (strcmp(name, "log.before_sleep") == 0 && walked_at_sleep == 0) {
        walked_at_sleep = atomic_load(&rf_handle_of(judge)->actor.me->lane.walked);
        atomic_store(&held->since, 0);
    }
}

/* Of three batches the first is done, and its writer was stopped before he could say so; the second is in somebody's hands;
 * the third is written by one who has computed the second, too. He may say how far he walked for the first only: whoever
 * computes the second begins there. */
static void a_walk_is_told_of_when_its_batch_is_durable(void)
{
    rf_detail detail = {0};
    open_quiet_theatre();
    rf_store *other = vault_open_manual(&vault);
    rf_lease lease = vault_lease(judge, &vault, 1, 1);
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    start_puppet("log.done", 1);
    uint64_t first = step_of_judge(&lease, 1, 0, RF_NOWAIT);
    uint64_t end = atomic_load(&rf_handle_of(judge)->actor.me->lane.end);
    cue_puppet();
    TEST_ASSERT_EQUAL_UINT64(first - 1, rf_durable(judge));
    TEST_ASSERT_EQUAL_UINT64(first + 1, step_of_judge(&lease, 2, 0, RF_NOWAIT));
    held = rf_entry_of(rf_handle_of(judge)->map, first + 1);
    atomic_store(&header()->epoch, first + 2);
    atomic_store(&held->since, rf_monotonic_ns() + 3600 * RF_SECOND);
    atomic_store(&held->writer, rf_entry_tag(first + 1) << 32 | rf_handle_of(judge)->actor.id);
    TEST_ASSERT_EQUAL_UINT64(first + 2, step_of_judge(&lease, 3, 0, RF_NOWAIT));
    walked_at_sleep = 0;
    rf_point_on_hit = look_how_far_was_walked;
    rf_status status = rf_sync(other, first + 2, &detail);
    rf_point_on_hit = on_point;
    CLAIM(status == RF_OK, detail.where);
    CLAIM(walked_at_sleep != 0, "the second was not waited for");
    CLAIM(walked_at_sleep <= end, "others would begin behind what is not durable");
    expect_puppet_ends_well();
    expect_steps_in_log(3);
    rf_close(other);
}

/* A batch is in somebody's hands. Whoever waits for the next one seals it if the last batches were of few lanes, and
 * leaves it to gather records if they were of many. */
static void few_lanes_have_more_batches_in_flight_than_many(void)
{
    static const uint64_t lanes[] = {1, 3, 7, 16, 64}; /* up to 4, 4, 2, 1, 1 in flight */
    rf_detail detail = {0};
    open_quiet_theatre();
    rf_store *other = vault_open_manual(&vault);
    rf_lease lease = vault_lease(judge, &vault, 1, 1);
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    for (unsigned i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        uint64_t epoch = step_of_judge(&lease, 2 * i + 1, 0, RF_NOWAIT);
        held = rf_entry_of(rf_handle_of(judge)->map, epoch);
        TEST_ASSERT_EQUAL_UINT64(epoch, atomic_load(&header()->epoch));
        atomic_store(&header()->epoch, epoch + 1);
        atomic_store(&held->since, rf_monotonic_ns() + 3600 * RF_SECOND);
        atomic_store(&held->writer, rf_entry_tag(epoch) << 32 | rf_handle_of(other)->actor.id);
        uint64_t next = step_of_judge(&lease, 2 * i + 2, 0, RF_NOWAIT);
        TEST_ASSERT_EQUAL_UINT64(epoch + 1, next);
        atomic_store(&header()->log_lanes, lanes[i]);
        open_at_sleep = 0;
        rf_point_on_hit = let_it_go;
        rf_status status = rf_sync(judge, next, &detail);
        rf_point_on_hit = NULL;
        CLAIM(status == RF_OK, detail.where);
        TEST_ASSERT_EQUAL_UINT64(next + (lanes[i] < 16), open_at_sleep);
        CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    }
    rf_close(other);
}

/* --- whom it wakes --- */

enum { SLEEPERS = 2, APART = 8 };

static int sleep_for_an_epoch(void *argument)
{
    const uint64_t *ahead = argument;
    rf_store *own = vault_open_manual(&vault);
    const struct rf_map *map = rf_handle_of(own)->map;
    uint64_t durable = atomic_load(&map->header->durable), epoch = durable + 1 + *ahead;
    struct account *mine = &play->accounts[*ahead != 0];
    atomic_store(&mine->count, 1);
    int error = rf_futex_wait_low(&map->header->durable, durable, 1u << (epoch % 32),
                                  rf_monotonic_ns() + PATIENCE_MS * 1000000ull);
    atomic_store(&mine->count, 2);
    CREW_CHECK(error == 0, "not woken: %d", error);
    _exit(0);
}

static void who_waits_for_a_later_epoch_is_not_woken(void)
{
    rf_detail detail = {0};
    uint64_t ahead[SLEEPERS] = {0, APART};
    pid_t pids[SLEEPERS];
    open_quiet_theatre();
    rf_lease lease = vault_lease(judge, &vault, 1, 1);
    CLAIM(rf_barrier(judge, &detail) == RF_OK, detail.where);
    for (unsigned i = 0; i < SLEEPERS; i++) {
        pids[i] = crew_start(sleep_for_an_epoch, &ahead[i]);
        uint64_t until = rf_monotonic_ns() + PATIENCE_MS * 1000000ull;
        while ((atomic_load(&play->accounts[i].count) == 0 || !crew_asleep(pids[i])) &&
               rf_monotonic_ns() < until) {
            usleep(1000);
        }
    }
    uint64_t epoch = step_of_judge(&lease, 1, 0, RF_NOWAIT), durable = rf_durable(judge);
    TEST_ASSERT_EQUAL_UINT64(durable + 1, epoch);
    CLAIM(rf_sync(judge, epoch, &detail) == RF_OK, detail.where);
    CLAIM(rf_durable(judge) < epoch + APART, "further than it was to go");
    TEST_ASSERT_EQUAL(0, crew_join(pids[0], PATIENCE_MS));
    usleep(20000); /* for one who was woken as well to say so */
    CLAIM(atomic_load(&play->accounts[1].count) == 1, "woken for another's epoch");
    rf_futex_wake_low(&header()->durable, INT32_MAX, 1u << ((epoch + APART) % 32));
    TEST_ASSERT_EQUAL(0, crew_join(pids[1], PATIENCE_MS));
}

/* --- a full disk --- */

static int fill_a_disk(void *argument)
{
    enum { LEASED = 500 };
    static rf_lease leases[LEASED + 1];
    rf_detail detail = {0};
    rf_result result = {0};
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    rf_status status;
    char hog[160];
    (void)argument;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", vault.directory, "tmpfs", 0, "size=32m") != 0) {
        return CANT_TEST;
    }
    rf_store *own = vault_open(&vault);
    vault_run(own, &vault, 1, 1, LEASED + 40, RF_WAIT);
    for (uint64_t i = 1; i <= LEASED; i++) {
        leases[i] = vault_lease(own, &vault, 1, i);
    }
    /* Much of the disk is somebody else's. */
    snprintf(hog, sizeof(hog), "%s/hog", vault.directory);
    FILE *f = fopen(hog, "we");
    CREW_CHECK(f != NULL, "a file");
    for (unsigned i = 0; i < 14; i++) {
        static char bytes[1 << 20];
        CREW_CHECK(fwrite(bytes, sizeof(bytes), 1, f) == 1, "14 MiB of 32");
    }
    fclose(f);
    /* Steps until one is refused; that one has not happened. */
    uint64_t n = 0, last = 0;
    do {
        last = result.epoch;
        n++;
        result = (rf_result){.durability = RF_WAIT};
        status = vault_step(own, &vault, &leases[1], n, n, 3000, &result);
    } while (status == RF_OK && n < 100000);
    rf_explain(status, &result.detail, (char *)scratch, sizeof(scratch));
    CREW_CHECK(status == RF_RESOURCE_EXHAUSTED && result.detail.os_error == ENOSPC, "step %llu: %s",
               (unsigned long long)n, (char *)scratch);
    printf("  step %llu: %s\n", (unsigned long long)n, (char *)scratch);
    CREW_CHECK(rf_get_shard(own, &vault.tenant, 1, 1, &info, scratch, sizeof(scratch), &detail) ==
                   RF_OK,
               "a read");
    CREW_CHECK(info.ring[info.ring_count - 1].op == n - 1, "what was refused has happened: %llu",
               (unsigned long long)info.ring[info.ring_count - 1].op);
    CREW_CHECK(rf_durable(own) >= last, "what was acknowledged is not durable");
    rf_inspection seen;
    CREW_CHECK(rf_inspect(own, &seen, &detail) == RF_OK && seen.log_short && !seen.log_failed,
               "it does not say so");
    /* Growth is refused, whatever kind it is of, and asks for what is wrong. */
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    status =
        rf_acquire(own, rf_now(own), &vault.tenant, 1, LEASED + 30, 1, RF_BOUND, &grant, &result);
    CREW_CHECK(status == RF_RESOURCE_EXHAUSTED, "acquire: %s", rf_status_name(status));
    const rf_run_config config = {.lease_duration = RF_SECOND};
    status = rf_create_run(own, rf_now(own), &vault.tenant, 50, &config, &result);
    CREW_CHECK(status == RF_RESOURCE_EXHAUSTED, "create_run: %s", rf_status_name(status));
    /* What is leased can be kept, and ended, durably. */
    for (uint64_t i = 1; i <= LEASED; i++) {
        status = rf_renew(own, rf_now(own), &vault.tenant, &leases[i], &result);
        CREW_CHECK(status == RF_OK, "renewing: %s", rf_status_name(status));
    }
    for (uint64_t i = 1; i <= LEASED; i++) {
        rf_cursor at = {.key = {.data = "s00000", .len = 6}};
        char key[32];
        at.key = (rf_bytes){key, (size_t)snprintf(key, sizeof(key), "s%08llu-%010llu",
                                                  (unsigned long long)i, 999999999ull)};
        result = (rf_result){.durability = RF_WAIT};
        uint64_t now = rf_now(own), op = 1000000 + i;
        status = i % 3 == 0 ? rf_complete(own, now, &vault.tenant, &leases[i], &at, op, &result)
                 : i % 3 == 1
                     ? rf_park(own, now, &vault.tenant, &leases[i], RF_PARK_OTHER, op, &result)
                     : rf_release(own, now, &vault.tenant, &leases[i], NULL, op, &result);
        CREW_CHECK(status == RF_OK, "ending %llu: %s %s", (unsigned long long)i,
                   rf_status_name(status), result.detail.where);
        CREW_CHECK(rf_durable(own) >= result.epoch, "ended, and not durable");
    }
    /* Somebody makes room, and it all goes on, without anybody being told. */
    unlink(hog);
    uint64_t until = crew_ns() + PATIENCE_MS * 1000000ull;
    do {
        result = (rf_result){.durability = RF_WAIT};
        status = rf_acquire(own, rf_now(own), &vault.tenant, 1, LEASED + 30, 1, RF_BOUND, &grant,
                            &result);
        usleep(1000);
    } while (status == RF_RESOURCE_EXHAUSTED && crew_ns() < until);
    CREW_CHECK(status == RF_OK, "there is room again: %s %s", rf_status_name(status),
               result.detail.where);
    rf_lease lease = grant.lease;
    for (uint64_t i = 1; i <= 200; i++) {
        result = (rf_result){.durability = RF_WAIT};
        status = vault_step(own, &vault, &lease, i, 2000000 + i, 3000, &result);
        CREW_CHECK(status == RF_OK, "%s %s", rf_status_name(status), result.detail.where);
    }
    struct logbook book;
    CREW_CHECK(logbook_read(&book, vault.directory, rf_durable(own)), "%s", book.broken);
    for (uint64_t i = 1; i < n; i++) {
        CREW_CHECK(logbook_find(&book, i) != NULL, "step %llu", (unsigned long long)i);
    }
    for (uint64_t i = 1; i <= LEASED; i++) {
        CREW_CHECK(logbook_find(&book, 1000000 + i) != NULL, "ending %llu", (unsigned long long)i);
    }
    CREW_CHECK(logbook_find(&book, n) == NULL, "what was refused is in the log");
    CREW_CHECK(logbook_find(&book, 2000200) != NULL, "the last");
    logbook_free(&book);
    rf_close(own);
    rf_destroy(vault.directory, NULL);
    return 0;
}

static void a_full_disk_refuses_growth_and_lets_leases_be_ended(void)
{
    for (int variant = 0; variant < 3; variant++) {
        vault_found(&vault, RF_WAIT);
        vault.options.segment_bytes = variant == 1 ? 1u << 20 : 65536;
        if (variant == 2) {
            vault.options.flush_interval = VAULT_NEVER; /* no guardian makes room in time */
        }
        int code = crew_join(crew_start(fill_a_disk, NULL), PATIENCE_MS);
        if (code == CANT_TEST) {
            TEST_IGNORE_MESSAGE("needs root, for a mount of its own");
        }
        TEST_ASSERT_EQUAL(0, code);
        vault_raze(&vault);
    }
}

/* A disk of this size under the vault's directory, in this process's eyes. */
static bool mount_small(const char *size)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", vault.directory, "tmpfs", 0, size) == 0;
}

/* All of the disk but this much is somebody else's from now on. */
static void hog_all_but(uint64_t bytes, char hog[160])
{
    struct statvfs fs;
    snprintf(hog, 160, "%s/hog", vault.directory);
    int fd = open(hog, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CREW_CHECK(fd >= 0 && fstatvfs(fd, &fs) == 0, "a file");
    uint64_t left = (uint64_t)fs.f_bavail * fs.f_frsize;
    CREW_CHECK(left > bytes && fallocate(fd, 0, 0, (off_t)(left - bytes)) == 0, "of %llu",
               (unsigned long long)left);
    close(fd);
}

static void complete_durably(rf_store *own, const rf_lease *lease, uint64_t op)
{
    char key[32];
    const rf_cursor at = {
        .key = {key, (size_t)snprintf(key, sizeof(key), "s%08llu-%010llu",
                                      (unsigned long long)lease->shard, 999999999ull)}};
    rf_result result = {.durability = RF_WAIT};
    rf_status status = rf_complete(own, rf_now(own), &vault.tenant, lease, &at, op, &result);
    CREW_CHECK(status == RF_OK, "ending %llu: %s %s", (unsigned long long)lease->shard,
               rf_status_name(status), result.detail.where);
    CREW_CHECK(rf_durable(own) >= result.epoch, "ended, and not durable");
}

/* Shards with this much metadata each, from this id on. */
static rf_status add_heavy(rf_store *own, uint64_t first, uint32_t count, rf_durability how,
                           rf_result *result)
{
    static const uint8_t metadata[RF_METADATA_MAX] = {7};
    rf_shard_input *inputs = calloc(count, sizeof(*inputs));
    char(*keys)[32] = calloc(count + 1, sizeof(*keys));
    for (uint32_t i = 0; i <= count; i++) {
        snprintf(keys[i], sizeof(*keys), "t%016" PRIx64, first + i);
    }
    for (uint32_t i = 0; i < count; i++) {
        inputs[i] = rf_input_of(first + i, keys[i], keys[i + 1]);
        inputs[i].spec.metadata = rf_bytes_of(metadata, sizeof(metadata));
    }
    *result = (rf_result){.durability = how};
    rf_status status =
        rf_add_shards(own, rf_now(own), &vault.tenant, 1, inputs, count, first, result);
    free(inputs);
    free(keys);
    return status;
}

/* An addition whose chain is longer than what is left of the disk. */
static int add_too_much(void *argument)
{
    enum { LEASED = 300, ADDED = 500 }; /* 8 MiB of chunks, twice the lane */
    static rf_lease leases[LEASED + 1];
    rf_result result = {0};
    rf_detail detail = {0};
    rf_run_info before, after;
    char hog[160];
    (void)argument;
    if (!mount_small("size=48m")) {
        return CANT_TEST;
    }
    rf_store *own = vault_open(&vault);
    vault_run(own, &vault, 1, 1, LEASED, RF_WAIT);
    for (uint64_t i = 1; i <= LEASED; i++) {
        leases[i] = vault_lease(own, &vault, 1, i);
    }
    complete_durably(own, &leases[LEASED], 900); /* what is wanted for them has been made */
    hog_all_but(4u << 20, hog);
    CREW_CHECK(rf_get_run(own, &vault.tenant, 1, &before, &detail) == RF_OK, "%s", detail.where);
    rf_status status = add_heavy(own, 5000, ADDED, RF_WAIT, &result);
    CREW_CHECK(status == RF_RESOURCE_EXHAUSTED && result.detail.os_error == ENOSPC, "%s %s",
               rf_status_name(status), result.detail.where);
    CREW_CHECK(rf_get_run(own, &vault.tenant, 1, &after, &detail) == RF_OK, "%s", detail.where);
    CREW_CHECK(after.shard_count == before.shard_count, "a part of it has happened");
    const struct rf_desc *d = rf_handle_of(own)->actor.desc;
    CREW_CHECK(atomic_load(&d->chain) == 0 && RF_DESC_STATE(atomic_load(&d->state)) == RF_DESC_IDLE,
               "it is still under way");
    /* What is leased can be ended, durably: its room was kept. */
    for (uint64_t i = 1; i < LEASED; i++) {
        complete_durably(own, &leases[i], 1000 + i);
    }
    /* With room it goes through, and nothing of the first attempt is in the way. */
    unlink(hog);
    uint64_t until = crew_ns() + PATIENCE_MS * 1000000ull;
    do {
        status = add_heavy(own, 5000, ADDED, RF_WAIT, &result);
        usleep(1000);
    } while (status == RF_RESOURCE_EXHAUSTED && crew_ns() < until);
    CREW_CHECK(status == RF_OK, "there is room again: %s %s", rf_status_name(status),
               result.detail.where);
    CREW_CHECK(rf_get_run(own, &vault.tenant, 1, &after, &detail) == RF_OK &&
                   after.shard_count == before.shard_count + ADDED,
               "not all of it");
    rf_verification v = {0};
    status = rf_verify(own, say_difference, NULL, &v, &detail);
    CREW_CHECK(status == RF_OK && v.differences == 0, "%s %s", rf_status_name(status),
               detail.where);
    rf_close(own);
    rf_destroy(vault.directory, NULL);
    return 0;
}

/* In a disk of its own, in segments of 64 KiB. */
static void play_on_small_disk(int (*body)(void *argument))
{
    int code = crew_join(crew_start(body, NULL), PATIENCE_MS);
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE("needs root, for a mount of its own");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static void a_chain_that_does_not_fit_leaves_the_room_to_end_leases(void)
{
    vault_found(&vault, RF_WAIT);
    vault.options.segment_bytes = 65536;
    play_on_small_disk(add_too_much);
}

/* The first round of a lane is special: its memory is made sure of. Returns how many steps it took. */
static uint64_t fill_first_round(rf_store *own, const rf_lease *lease, uint64_t lane_bytes)
{
    const struct rf_lane_head *lane = &rf_handle_of(own)->actor.me->lane;
    uint64_t n = 0;
    while (atomic_load(&lane->end) * RF_LINE < 5 * lane_bytes / 4) {
        rf_result result = {.durability = RF_NOWAIT};
        n++;
        CREW_CHECK(vault_step(own, &vault, lease, n, lease->shard * 100000 + n, 2000, &result) ==
                       RF_OK,
                   "%s", result.detail.where);
    }
    return n;
}

/* Nobody waits, and nobody writes: all that is committed lies in the lanes until the end. */
static int burst(void *argument)
{
    enum { HANDLES = 8, LANE = 1 << 20, TOKEN = 2000 };
    static rf_store *stores[HANDLES];
    static rf_lease leases[HANDLES];
    static uint64_t n[HANDLES];
    rf_detail detail = {0};
    char hog[160];
    (void)argument;
    if (!mount_small("size=64m")) {
        return CANT_TEST;
    }
    vault_small_lanes(&vault, LANE);
    for (unsigned i = 0; i < HANDLES; i++) {
        stores[i] = vault_open_manual(&vault);
        if (i == 0) {
            vault_run(stores[0], &vault, 1, 1, HANDLES, RF_WAIT);
        }
        leases[i] = vault_lease(stores[i], &vault, 1, i + 1);
    }
    for (unsigned i = 0; i < HANDLES; i++) {
        n[i] = fill_first_round(stores[i], &leases[i], LANE);
    }
    CREW_CHECK(rf_barrier(stores[0], &detail) == RF_OK, "%s", detail.where);
    hog_all_but(16384, hog);
    uint64_t bytes = 0, last = 0, from[HANDLES];
    for (unsigned i = 0; i < HANDLES; i++) {
        from[i] = atomic_load(&rf_handle_of(stores[i])->actor.me->lane.end);
    }
    /* By turns: each has what it may commit before it asks again. */
    for (unsigned i = 0, ended = 0; ended < HANDLES; i = (i + 1) % HANDLES) {
        rf_result result = {.durability = RF_NOWAIT};
        n[i]++;
        rf_status status = vault_step(stores[i], &vault, &leases[i], n[i], (i + 1) * 100000 + n[i],
                                      TOKEN, &result);
        CREW_CHECK(status == RF_OK || result.detail.os_error == ENOSPC, "%s", result.detail.where);
        last = status == RF_OK && result.epoch > last ? result.epoch : last;
        bytes = 0;
        for (unsigned k = 0; k < HANDLES; k++) {
            bytes +=
                (atomic_load(&rf_handle_of(stores[k])->actor.me->lane.end) - from[k]) * RF_LINE;
        }
        ended = status != RF_OK ? ended + 1 : bytes < HANDLES * 3 * LANE / 4 ? 0 : HANDLES;
    }
    printf("  %llu bytes were committed on a full disk\n", (unsigned long long)bytes);
    rf_status status = rf_sync(stores[0], last, &detail);
    CREW_CHECK(status == RF_OK, "what was committed has no room: %s %s", rf_status_name(status),
               detail.where);
    for (unsigned i = 0; i < HANDLES; i++) {
        complete_durably(stores[i], &leases[i], 900000 + i);
        rf_close(stores[i]);
    }
    rf_destroy(vault.directory, NULL);
    return 0;
}

static void what_many_commit_without_waiting_has_its_room_on_a_full_disk(void)
{
    vault_found(&vault, RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    play_on_small_disk(burst);
}

/* Each has done nothing before, so nobody has made room for what it does. */
static int begin_with_much(void *argument)
{
    enum { HANDLES = 24, LANE = 1 << 20 };
    rf_store *stores[HANDLES];
    rf_detail detail = {0};
    uint64_t last = 0;
    unsigned refused = 0;
    char hog[160];
    (void)argument;
    if (!mount_small("size=48m")) {
        return CANT_TEST;
    }
    vault_small_lanes(&vault, LANE);
    rf_store *own = vault_open_manual(&vault);
    vault_run(own, &vault, 1, 1, 1, RF_WAIT);
    rf_lease lease = vault_lease(own, &vault, 1, 1);
    CREW_CHECK(rf_barrier(own, &detail) == RF_OK, "%s", detail.where);
    hog_all_but(16384, hog);
    for (unsigned i = 0; i < HANDLES; i++) {
        rf_result result;
        stores[i] = vault_open_manual(&vault);
        rf_status status = add_heavy(stores[i], 5000 + 10 * i, 3, RF_NOWAIT, &result);
        CREW_CHECK(status == RF_OK || result.detail.os_error == ENOSPC, "%s", result.detail.where);
        refused += status != RF_OK;
        last = status == RF_OK && result.epoch > last ? result.epoch : last;
    }
    printf("  %u of %u were refused on a full disk\n", refused, HANDLES);
    rf_status status = rf_sync(own, last, &detail);
    CREW_CHECK(status == RF_OK, "what was committed has no room: %s %s", rf_status_name(status),
               detail.where);
    complete_durably(own, &lease, 1);
    for (unsigned i = 0; i < HANDLES; i++) {
        rf_close(stores[i]);
    }
    rf_close(own);
    rf_destroy(vault.directory, NULL);
    return 0;
}

static void who_begins_on_a_full_disk_is_refused_as_well(void)
{
    vault_found(&vault, RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    play_on_small_disk(begin_with_much);
}

/* Shards are leased, one after another, until no more are: each of them can be ended, alone. */
static int lease_all_there_are(void *argument)
{
    enum { HANDLES = 2, SHARDS = 6000, LANE = 1 << 20 };
    static rf_store *stores[HANDLES];
    static rf_lease leases[SHARDS];
    static uint8_t scratch[RF_GRANT_SCRATCH];
    char hog[160];
    (void)argument;
    if (!mount_small("size=64m")) {
        return CANT_TEST;
    }
    vault_small_lanes(&vault, LANE);
    for (unsigned i = 0; i < HANDLES; i++) {
        stores[i] = vault_open_manual(&vault);
        if (i == 0) {
            vault_run(stores[0], &vault, 1, 1, SHARDS, RF_WAIT);
        }
        leases[i] = vault_lease(stores[i], &vault, 1, i + 1);
        fill_first_round(stores[i], &leases[i], LANE);
        complete_durably(stores[i], &leases[i], 1 + i);
    }
    hog_all_but(1u << 20, hog);
    unsigned leased = 0, shard = HANDLES;
    for (unsigned i = 0; i < HANDLES; i++) {
        rf_status status = RF_OK;
        while (status == RF_OK && shard < SHARDS) {
            rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
            rf_result result = {0};
            status = rf_acquire(stores[i], rf_now(stores[i]), &vault.tenant, 1, ++shard, 1,
                                RF_DETACHED, &grant, &result);
            CREW_CHECK(status == RF_OK || result.detail.os_error == ENOSPC, "%s",
                       result.detail.where);
            leases[leased] = grant.lease;
            leased += status == RF_OK;
        }
    }
    printf("  %u shards were leased on a full disk\n", leased);
    CREW_CHECK(leased != 0 && shard < SHARDS, "the disk is not full");
    for (unsigned i = 0; i < leased; i++) {
        complete_durably(stores[0], &leases[i], 10 + i);
    }
    for (unsigned i = 0; i < HANDLES; i++) {
        rf_close(stores[i]);
    }
    rf_destroy(vault.directory, NULL);
    return 0;
}

static void what_is_leased_in_a_burst_can_be_ended_on_a_full_disk(void)
{
    vault_found(&vault, RF_NOWAIT);
    vault.options.segment_bytes = 65536;
    play_on_small_disk(lease_all_there_are);
}

/* What they would take is the room of other leases. */
static int end_with_long_cursors(void *argument)
{
    enum { LEASED = 200 };
    static rf_lease leases[LEASED + 2];
    static const uint8_t token[RF_TOKEN_MAX] = {5};
    char hog[160], key[32];
    rf_status status = RF_OK;
    (void)argument;
    if (!mount_small("size=48m")) {
        return CANT_TEST;
    }
    rf_store *own = vault_open_manual(&vault);
    vault_run(own, &vault, 1, 1, LEASED + 1, RF_WAIT);
    for (uint64_t i = 1; i <= LEASED + 1; i++) {
        leases[i] = vault_lease(own, &vault, 1, i);
    }
    complete_durably(own, &leases[LEASED + 1], 900);
    hog_all_but(65536, hog);
    for (uint64_t n = 1; status == RF_OK; n++) {
        rf_result result = {.durability = RF_WAIT};
        status = vault_step(own, &vault, &leases[1], n, n, 3000, &result);
    }
    CREW_CHECK(status == RF_RESOURCE_EXHAUSTED, "%s", rf_status_name(status));
    for (uint64_t i = 1; i <= LEASED; i++) {
        const rf_cursor at = {.key = {key, (size_t)snprintf(key, sizeof(key), "s%08u-%010llu",
                                                            (unsigned)i, 999999998ull)},
                              .token = {token, sizeof(token)}};
        rf_result result = {.durability = RF_WAIT};
        uint64_t now = rf_now(own);
        status = i % 2 == 0
                     ? rf_complete(own, now, &vault.tenant, &leases[i], &at, 2000 + i, &result)
                     : rf_release(own, now, &vault.tenant, &leases[i], &at, 2000 + i, &result);
        CREW_CHECK(status == RF_RESOURCE_EXHAUSTED && result.detail.os_error == ENOSPC, "%s %s",
                   rf_status_name(status), result.detail.where);
        CREW_CHECK(strstr(result.detail.where, "3072 bytes or less") != NULL, "%s",
                   result.detail.where);
    }
    for (uint64_t i = 1; i <= LEASED; i++) {
        complete_durably(own, &leases[i], 1000 + i);
    }
    rf_close(own);
    rf_destroy(vault.directory, NULL);
    return 0;
}

static void long_cursors_do_not_take_the_room_of_leases_on_a_full_disk(void)
{
    vault_found(&vault, RF_WAIT);
    vault.options.segment_bytes = 65536;
    play_on_small_disk(end_with_long_cursors);
}

/* By hand: only those whose name has these letters in it. */
#define PLAY(test)                                                                                 \
    do {                                                                                           \
        if (argc < 2 || strstr(#test, argv[1]) != NULL) {                                          \
            RUN_TEST(test);                                                                        \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv)
{
    play = crew_shared(sizeof(*play));
    UNITY_BEGIN();
    PLAY(killed_anywhere_in_the_log_the_others_go_on);
    PLAY(a_killed_flusher_is_replaced);
    PLAY(a_flusher_that_died_with_nothing_to_do_is_not_waited_for);
    PLAY(stopped_anywhere_in_the_log_it_costs_nobody_and_harms_nothing);
    PLAY(a_writer_stopped_for_long_writes_into_a_segment_that_is_over);
    PLAY(a_copy_of_lanes_that_moved_on_is_thrown_away);
    PLAY(a_late_word_about_an_entry_that_is_anothers_is_not_taken);
    PLAY(a_walk_over_what_is_overwritten_meanwhile_starts_over);
    PLAY(snapshots_wait_with_their_beginning_for_a_chain_that_is_open);
    PLAY(who_commits_after_the_copy_is_in_an_epoch_that_is_replayed);
    PLAY(what_a_killed_one_had_just_committed_is_part_of_a_barrier);
    PLAY(a_backup_is_of_one_moment_and_keeps_others_from_taking_snapshots);
    PLAY(a_writer_stopped_for_long_finds_its_segment_gone);
    PLAY(a_segment_that_comes_back_from_the_dead_is_no_obstacle);
    PLAY(a_stopped_flusher_is_replaced);
    PLAY(after_a_write_error_nothing_is_acknowledged_and_reads_go_on);
    PLAY(a_segment_whose_name_was_not_made_durable_ends_the_log);
    PLAY(an_epoch_that_was_lost_is_never_said_to_be_durable);
    PLAY(a_walk_is_told_of_when_its_batch_is_durable);
    PLAY(few_lanes_have_more_batches_in_flight_than_many);
    PLAY(who_waits_for_a_later_epoch_is_not_woken);
    PLAY(a_full_disk_refuses_growth_and_lets_leases_be_ended);
    PLAY(a_chain_that_does_not_fit_leaves_the_room_to_end_leases);
    PLAY(what_many_commit_without_waiting_has_its_room_on_a_full_disk);
    PLAY(who_begins_on_a_full_disk_is_refused_as_well);
    PLAY(what_is_leased_in_a_burst_can_be_ended_on_a_full_disk);
    PLAY(long_cursors_do_not_take_the_room_of_leases_on_a_full_disk);
    return UNITY_END();
}
