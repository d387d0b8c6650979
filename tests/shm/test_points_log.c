/*
 * Whoever writes the log may be killed or stopped at any point of it; the disk may fail, or be full.
 *
 * Walkers are living processes that wait for every operation. Among them a victim works until it comes to a
 * point, and is killed or stopped there. The walkers go on, and when all is over the log is read by somebody who
 * knows only its format (logbook.h): whatever any of them was told, the victim too, is in it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unity.h>

#include "disk.h"
#include "handle.h"
#include "log.h"
#include "logbook.h"
#include "point.h"
#include "prng.h"
#include "reap.h"
#include "shop.h"
#include "vault.h"

#define PATIENCE_MS 60000u /* ends a hang */
#define WALKERS     2u
#define ACKS_MAX    20000u
#define VICTIM_OPS  300u /* in which a point has to come */
#define CANT_TEST   77

/* --- points --- */

/* All that the log has, in the order in which a batch comes by, and the ways into a lane. */
static const char *const points[] = {
    "op.chain",         "op.chunk",     "lane.head",      "lane.before_commit", "lane.committed",
    "log.before_seal",  "log.sealed",   "log.in_hand",    "log.agreed",         "log.raised",
    "log.copied",       "log.composed", "log.publishing", "log.published",      "log.segment",
    "log.before_write", "log.written",  "log.done",       "log.before_durable", "log.durable",
    "log.before_sleep", "log.woken",
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
    _Atomic uint32_t unknown; /* a point of the log that is not in the list */
    _Atomic uint32_t failing; /* an errno for the next writes, see below */
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

static void on_point(const char *name)
{
    if (strncmp(name, "log.", 4) == 0 && !in_list(name) &&
        atomic_exchange(&play->unknown, 1) == 0) {
        snprintf(play->unknown_name, sizeof(play->unknown_name), "%s", name);
    }
    if (!is_victim || strcmp(trap.name, name) != 0 || (trap.whose == THE_CALLER && !is_caller) ||
        (trap.whose == THE_OTHERS && is_caller)) {
        return;
    }
    if (atomic_fetch_add(&play->hits, 1) + 1 == trap.at) {
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
    bool chains;    /* a victim's: also many shards at once */
    uint64_t first; /* op ids and keys from here on */
};

static void acknowledged(struct account *a, uint64_t op, uint64_t epoch)
{
    uint64_t n = atomic_load(&a->count);
    if (n < ACKS_MAX) {
        a->ops[n] = op;
        a->epochs[n] = epoch;
        atomic_store(&a->count, n + 1);
    }
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
    is_caller = true;
    is_victim = part->chains;
    for (uint64_t i = 1; atomic_load(&play->stop) == 0; i++) {
        uint64_t n = part->first + i, op = (uint64_t)(part->account + 1) << 40 | n;
        rf_result result = {.durability = part->how};
        rf_status status;
        if (part->chains && i % 16 == 3) {
            status = add_many(own, n, op, &result);
        } else {
            if (part->chains && i % 4 == 0) {
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
        if (part->chains && i == VICTIM_OPS) {
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
    CLAIM(rf_durable(judge) > durable, "nothing became durable");
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

static void open_theatre(rf_durability durability, rf_durability walkers)
{
    memset((void *)&trap, 0, sizeof(trap));
    memset(play, 0, sizeof(*play));
    victims = 0;
    vault_found(&vault, durability);
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
                                .chains = true,
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

static void killed_anywhere_in_the_log_the_others_go_on(void)
{
    static const uint32_t times[] = {1, 2, 7, 30};
    uint32_t kills = 0;
    for (unsigned p = 0; p < POINTS; p++) {
        uint32_t here = 0;
        open_theatre(RF_WAIT, RF_WAIT);
        for (unsigned t = 0; t < (crew_slowness() > 1 ? 2 : 4); t++) {
            start_victim(points[p], times[t], SIGKILL, ANY_THREAD, RF_WAIT);
            here += fell();
            claim_walkers_go_on(5);
        }
        stop_walkers();
        judge_the_log();
        close_theatre();
        printf("  %-20s killed %u times\n", points[p], here);
        CLAIM(here != 0, "it never came");
        kills += here;
    }
    printf("  killed %u times\n", kills);
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

int main(void)
{
    play = crew_shared(sizeof(*play));
    UNITY_BEGIN();
    RUN_TEST(killed_anywhere_in_the_log_the_others_go_on);
    RUN_TEST(a_killed_flusher_is_replaced);
    return UNITY_END();
}
