#define _GNU_SOURCE
#include "storm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "crew.h"
#include "fsck.h"
#include "prng.h"
#include "ringfence/ringfence.h"

#define WORKERS_MAX    RF_STORM_WORKERS_MAX
#define DIRECTOR       RF_STORM_DIRECTOR
#define ROOTS          RF_STORM_ROOTS
#define ITEMS          RF_STORM_ITEMS
#define ALL_ITEMS      RF_STORM_ALL_ITEMS
#define NO_ITEM        RF_STORM_NO_ITEM
#define GRANT          RF_STORM_GRANT
#define INTENT         RF_STORM_INTENT
#define ACK            RF_STORM_ACK
#define REFUSED        RF_STORM_REFUSED
#define HURRIED        RF_STORM_HURRIED
#define LEDGER_RECORDS (1u << 20)
#define LEASE_NS       (60 * RF_MILLISECOND)
#define HANG_S         60u /* so long without a sign of life is a hang */
#define HANG_NS        (HANG_S * RF_SECOND)
#define KEY_LEN        8u
#define HURRY          400u
#define TOKEN_MAX      2048u

/* In a file that every process maps: what the dead wrote is there. */
struct ledger {
    _Atomic uint64_t count; /* lines beyond it were not finished */
    struct rf_storm_line lines[LEDGER_RECORDS];
};

struct board {
    _Atomic uint64_t run;
    /* For the watchdog: */
    _Atomic uint64_t commits;
    _Atomic uint64_t beats[WORKERS_MAX]; /* calls that came back */
    char trouble[512];
    _Atomic uint32_t troubled;
};

static struct {
    const struct rf_storm *storm;
    struct rf_storm_report *report;
    char store_path[256];
    char region_path[256];
    rf_store *store; /* the director's */
    rf_tenant tenant;
    struct board *board;
    struct ledger *ledgers[WORKERS_MAX + 1]; /* the last one is the director's */
    uint64_t read[WORKERS_MAX];              /* lines of older runs */
    pid_t pids[WORKERS_MAX];
    bool stopped[WORKERS_MAX];
    struct rf_prng prng;
    uint64_t era_lines[WORKERS_MAX]; /* lines when the last cold open was */
    char words[2048];
} s;

static const char *wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(s.words, sizeof(s.words), format, args);
    va_end(args);
    return s.words;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

/* --- items and keys --- */

static rf_bytes key_of(char room[KEY_LEN + 1], uint32_t item)
{
    snprintf(room, KEY_LEN + 1, "%04x%04x", (item / ITEMS) & 0xffffu, item % ITEMS);
    return (rf_bytes){.data = (const uint8_t *)room, .len = KEY_LEN};
}

uint32_t rf_storm_item(rf_bytes key)
{
    unsigned root, n;
    char text[KEY_LEN + 1] = {0};
    if (key.data == NULL || key.len != KEY_LEN) {
        return NO_ITEM;
    }
    memcpy(text, key.data, KEY_LEN);
    return sscanf(text, "%4x%4x", &root, &n) == 2 ? root * ITEMS + n : NO_ITEM;
}

struct rf_storm_stamp rf_storm_stamp(rf_cursor cursor)
{
    struct rf_storm_stamp stamp = {0};
    if (cursor.token.data != NULL && cursor.token.len >= sizeof(stamp)) {
        memcpy(&stamp, cursor.token.data, sizeof(stamp));
    }
    return stamp;
}

void rf_storm_tenant(rf_tenant *tenant)
{
    rf_tenant_from_name("storm", tenant);
}

rf_options rf_storm_options(const char *region_path)
{
    return (rf_options){.create = true,
                        .max_shards = 4096,
                        .max_bytes = 4u << 20,
                        .max_runs = 16,
                        .max_members = 2 * WORKERS_MAX,
                        .durability = RF_WAIT,
                        .segment_bytes = 256u << 10,
                        .snapshot_bytes = 1u << 20,
                        .region_path = region_path,
                        .busy_timeout = RF_SECOND / 4};
}

/* --- a worker --- */

static unsigned me;

static void trouble(const char *what, rf_status status, const rf_detail *detail)
{
    uint32_t nobody = 0;
    if (atomic_compare_exchange_strong(&s.board->troubled, &nobody, 1)) {
        snprintf(s.board->trouble, sizeof(s.board->trouble), "a worker, %s: %s %.200s", what,
                 rf_status_name(status), detail == NULL ? "" : detail->where);
        atomic_store(&s.board->troubled, 2);
    }
    _exit(1);
}

static void write_line(struct rf_storm_line line)
{
    struct ledger *l = s.ledgers[me];
    uint64_t n = atomic_load_explicit(&l->count, memory_order_relaxed);
    if (n == LEDGER_RECORDS) {
        trouble("the ledger is full", RF_OK, NULL);
    }
    line.at = now_ns();
    l->lines[n] = line;
    atomic_store_explicit(&l->count, n + 1, memory_order_release);
    if (s.storm->watch != NULL) {
        s.storm->watch->noted(me, n);
    }
}

/* A call came back. */
static void beat(void)
{
    atomic_fetch_add_explicit(&s.board->beats[me], 1, memory_order_relaxed);
}

/* A lease that is worked under. */
struct hold {
    rf_lease lease;
    uint64_t steps; /* checkpoints so far */
};

static void note(enum rf_storm_note what, const struct hold *hold, uint32_t item)
{
    write_line((struct rf_storm_line){.note = what,
                                      .item = item,
                                      .run = hold->lease.run,
                                      .shard = hold->lease.shard,
                                      .fence = hold->lease.fence,
                                      .step = hold->steps});
}

/* The next step's token. Its room is the caller's, of TOKEN_MAX bytes. */
static rf_bytes next_token(struct hold *hold, uint8_t *room, uint32_t len)
{
    struct rf_storm_stamp stamp = {
        .fence = hold->lease.fence, .step = ++hold->steps, .called = now_ns()};
    memcpy(room, &stamp, sizeof(stamp));
    return (rf_bytes){.data = room, .len = len < sizeof(stamp) ? sizeof(stamp) : len};
}

static bool is_refusal(rf_status status)
{
    return status == RF_STALE_FENCE || status == RF_LEASE_EXPIRED || status == RF_SHARD_TERMINAL ||
           status == RF_NOT_FOUND || status == RF_RUN_NOT_FOUND || status == RF_RUN_TERMINAL;
}

/* Commits an item: by a checkpoint, or as the last one by completing. False: the shard is lost. */
static bool commit(rf_store *store, struct hold *hold, uint32_t item, bool last)
{
    static uint8_t token[TOKEN_MAX];
    const rf_lease *lease = &hold->lease;
    char room[KEY_LEN + 1];
    uint64_t op = rf_new_op(store);
    note(INTENT, hold, item);
    rf_cursor cursor = {.key = key_of(room, item), .token = next_token(hold, token, 0)};
    for (;;) {
        rf_result result = {0};
        rf_status status =
            last ? rf_complete(store, rf_now(store), &s.tenant, lease, &cursor, op, &result)
                 : rf_checkpoint(store, rf_now(store), &s.tenant, lease, &cursor, op, &result);
        beat();
        if (status == RF_OK) {
            note(ACK, hold, item);
            atomic_fetch_add(&s.board->commits, 1);
            return true;
        }
        if (is_refusal(status)) {
            note(REFUSED, hold, item);
            return false;
        }
        if (status != RF_BUSY) {
            trouble(last ? "completing" : "checkpointing", status, &result.detail);
        }
    }
}

/* Nobody waits for these: most of a worker's time is spent inside of operations, where kills find it. */
static bool hurry(rf_store *store, struct rf_prng *prng, struct hold *hold, uint32_t at)
{
    static uint8_t token[TOKEN_MAX];
    char room[KEY_LEN + 1];
    uint32_t count = rf_prng_below(prng, s.storm->hurry == 0 ? HURRY : s.storm->hurry);
    for (uint32_t i = 0; i < count; i++) {
        rf_result result = {.durability = RF_NOWAIT};
        rf_cursor cursor = {.key = key_of(room, at),
                            .token = next_token(hold, token, rf_prng_below(prng, sizeof(token)))};
        rf_status status = rf_checkpoint(store, rf_now(store), &s.tenant, &hold->lease, &cursor,
                                         rf_new_op(store), &result);
        beat();
        if (is_refusal(status)) {
            return false;
        }
        if (status == RF_OK) {
            note(HURRIED, hold, at);
        } else if (status != RF_BUSY) {
            trouble("checkpointing in a hurry", status, &result.detail);
        }
    }
    return true;
}

/* Cuts the rest off, or in two. Returns whether the shard is still ours; *end is where it ends now. */
static bool split(rf_store *store, struct rf_prng *prng, const rf_lease *lease,
                  const rf_grant *grant, uint32_t at, uint32_t *end)
{
    char a[KEY_LEN + 1], m[KEY_LEN + 1], c[KEY_LEN + 1];
    uint32_t middle = at + 1 + rf_prng_below(prng, *end - at - 1);
    rf_spec low = {.start = grant->spec.start, .end = key_of(m, middle)};
    rf_spec high = {.start = key_of(m, middle), .end = key_of(a, *end)};
    rf_result result = {0};
    rf_status status;
    bool replace = rf_prng_chance(prng, 40);
    if (replace) {
        uint64_t ids[2];
        rf_child children[2] = {{.spec = low, .cursor = {.key = key_of(c, at)}}, {.spec = high}};
        status = rf_split_replace(store, rf_now(store), &s.tenant, lease, children, 2,
                                  rf_new_op(store), ids, &result);
    } else {
        uint64_t id;
        status = rf_split_residual(store, rf_now(store), &s.tenant, lease, &low, &high,
                                   rf_new_op(store), &id, &result);
    }
    if (status != RF_OK && !is_refusal(status) && status != RF_BUSY && status != RF_SHARD_LIMIT) {
        trouble("splitting", status, &result.detail);
    }
    if (status == RF_OK && !replace) {
        *end = middle;
    }
    return status == RF_OK ? !replace : status == RF_SHARD_LIMIT;
}

/* The worker loop of one shard. */
static void work(rf_store *store, struct rf_prng *prng, const rf_grant *grant)
{
    struct hold hold = {.lease = grant->lease};
    const rf_lease *lease = &hold.lease;
    uint32_t start = rf_storm_item(grant->spec.start), end = rf_storm_item(grant->spec.end);
    uint32_t at = rf_storm_item(grant->cursor.key);
    note(GRANT, &hold, at);
    for (uint32_t item = at == NO_ITEM ? start : at + 1; item < end; item++) {
        if (!commit(store, &hold, item, item + 1 == end)) {
            return;
        }
        uint32_t what = rf_prng_below(prng, 100);
        if (item + 1 == end) {
            return;
        }
        if (what >= 40 && !hurry(store, prng, &hold, item)) {
            return;
        }
        if (what < 4 && item + 2 < end && !split(store, prng, lease, grant, item, &end)) {
            return;
        }
        if (what >= 4 && what < 8) {
            rf_release(store, rf_now(store), &s.tenant, lease, NULL, rf_new_op(store), NULL);
            return;
        }
        if (what >= 8 && what < 10) {
            rf_park(store, rf_now(store), &s.tenant, lease, RF_PARK_OTHER, rf_new_op(store), NULL);
            return;
        }
        if (what >= 10 && what < 30) {
            rf_renew(store, rf_now(store), &s.tenant, &hold.lease, NULL);
        }
    }
    /* All of it was committed before it could be completed, by one who is dead: the end of it. */
    if (at != NO_ITEM && at + 1 == end) {
        char room[KEY_LEN + 1];
        rf_cursor cursor = {.key = key_of(room, at), .token = grant->cursor.token};
        rf_complete(store, rf_now(store), &s.tenant, lease, &cursor, rf_new_op(store), NULL);
    }
}

struct parked {
    uint64_t id;
    bool found;
};

static bool first_parked(void *context, const rf_shard_info *shard)
{
    *(struct parked *)context = (struct parked){.id = shard->shard, .found = true};
    return false;
}

static void unpark_one(rf_store *store, uint64_t run)
{
    struct parked p = {0};
    if (rf_list_shards(store, rf_now(store), &s.tenant, run, RF_LIST_PARKED, first_parked, &p,
                       NULL) == RF_OK &&
        p.found) {
        rf_unpark(store, rf_now(store), &s.tenant, run, p.id, rf_new_op(store), NULL);
    }
}

static void live(uint64_t seed)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    struct rf_prng prng = {.state = seed};
    rf_options o = rf_storm_options(s.region_path);
    rf_store *store;
    rf_detail detail = {0};
    o.create = false;
    rf_status status = rf_open(s.store_path, &o, &store, &detail);
    if (status != RF_OK) {
        trouble("opening", status, &detail);
    }
    for (;;) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_result result = {0};
        uint64_t run = atomic_load(&s.board->run);
        status = rf_claim(store, rf_now(store), &s.tenant, run, rf_prng_below(&prng, 1000),
                          RF_BOUND, 20 * RF_MILLISECOND, &grant, &result);
        beat();
        if (status == RF_OK) {
            work(store, &prng, &grant);
        } else if (status == RF_NONE_AVAILABLE) {
            unpark_one(store, run);
        } else if (status == RF_RUN_TERMINAL || status == RF_RUN_NOT_FOUND) {
            usleep(1000);
        } else if (status != RF_BUSY) {
            trouble("claiming", status, &result.detail);
        }
    }
}

/* --- the watchdog --- */

static void show_hang(void)
{
    alarm(0); /* looking takes long */
    for (unsigned i = 0; i < s.storm->workers; i++) {
        if (s.pids[i] != 0) {
            fprintf(stderr, "worker %u%s:\n", i, s.stopped[i] ? ", which is stopped" : "");
            crew_tell(s.pids[i]);
        }
    }
    fprintf(stderr, "the director:\n");
    crew_tell(getpid());
}

/* Nobody can tell the director any more: what it was doing is seen from its stack. */
static void on_alarm(int signal_number)
{
    (void)signal_number;
    fprintf(stderr, "storm: the director hangs\n");
    show_hang();
    _exit(RF_STORM_HANGS);
}

static uint64_t patience_ns(void)
{
    return s.storm->patience == 0 ? HANG_NS : s.storm->patience;
}

/* The director is alive. Longer than what it waits for itself. */
static void alive(void)
{
    alarm(s.storm->director_s == 0 ? 2 * HANG_S : s.storm->director_s);
}

/* Every worker that is not dead comes back from what it calls. */
static const char *expect_beats(void)
{
    uint64_t until = now_ns() + patience_ns(), before[WORKERS_MAX];
    for (unsigned i = 0; i < s.storm->workers; i++) {
        before[i] = atomic_load(&s.board->beats[i]);
        if (s.stopped[i]) {
            kill(s.pids[i], SIGCONT);
            s.stopped[i] = false;
        }
    }
    for (unsigned i = 0; i < s.storm->workers; i++) {
        /* The first may have been made before. */
        while (s.pids[i] != 0 && atomic_load(&s.board->beats[i]) < before[i] + 2 &&
               atomic_load(&s.board->troubled) == 0) {
            if (now_ns() > until) {
                show_hang();
                return wrong("worker %u does not come back from what it called", i);
            }
            usleep(200);
        }
    }
    return NULL;
}

/* --- the director --- */

static const char *start_worker(unsigned i)
{
    uint64_t seed = rf_prng_next(&s.prng);
    if (s.storm->watch != NULL) {
        s.storm->watch->born(i);
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGALRM, SIG_DFL);
        me = i;
        live(seed);
    }
    s.pids[i] = pid;
    s.stopped[i] = false;
    return pid < 0 ? wrong("fork: %s", strerror(errno)) : NULL;
}

static const char *kill_worker(unsigned i)
{
    int how;
    if (s.pids[i] == 0) {
        return NULL;
    }
    kill(s.pids[i], SIGKILL);
    if (waitpid(s.pids[i], &how, 0) != s.pids[i]) {
        return wrong("waitpid: %s", strerror(errno));
    }
    if (s.storm->watch != NULL) {
        s.storm->watch->died(i, s.pids[i]);
    }
    s.pids[i] = 0;
    if (!WIFSIGNALED(how) || WTERMSIG(how) != SIGKILL) {
        while (atomic_load(&s.board->troubled) == 1) {
            usleep(100);
        }
        return wrong("%s (it ended by itself: status %x)", s.board->trouble, (unsigned)how);
    }
    return NULL;
}

static const char *kill_all(void)
{
    const char *why = NULL;
    for (unsigned i = 0; i < s.storm->workers; i++) {
        const char *one = kill_worker(i);
        why = why == NULL ? one : why;
    }
    return why;
}

static const char *open_store(void)
{
    rf_options o = rf_storm_options(s.region_path);
    rf_detail detail = {0};
    rf_status status = rf_open(s.store_path, &o, &s.store, &detail);
    return status == RF_OK
               ? NULL
               : wrong("opening the store: %s %s", rf_status_name(status), detail.where);
}

static const char *begin_run(void)
{
    static char keys[ROOTS + 1][KEY_LEN + 1];
    rf_shard_input shards[ROOTS] = {0};
    const rf_run_config config = {.lease_duration = LEASE_NS};
    uint64_t run = atomic_load(&s.board->run) + 1;
    rf_result result = {0};
    for (unsigned i = 0; i < ROOTS; i++) {
        shards[i] = (rf_shard_input){.shard = i + 1,
                                     .spec = {.start = key_of(keys[i], i * ITEMS),
                                              .end = key_of(keys[i + 1], (i + 1) * ITEMS)}};
    }
    rf_status status = rf_create_run_with_shards(s.store, rf_now(s.store), &s.tenant, run, &config,
                                                 shards, ROOTS, rf_new_op(s.store), &result);
    if (status != RF_OK) {
        return wrong("making a run: %s %s", rf_status_name(status), result.detail.where);
    }
    atomic_store(&s.board->run, run);
    write_line((struct rf_storm_line){.note = RF_STORM_MADE, .run = run});
    return NULL;
}

/* --- holding the ledgers against each other, and against the store --- */

struct grant_line {
    uint64_t shard, fence;
    uint32_t item;
    bool this_era;
};

/* How far a shard has come. */
struct place {
    uint64_t shard, fence;
    struct rf_storm_stamp stamp;
};

static struct {
    uint8_t acks[ALL_ITEMS];
    uint8_t intents[ALL_ITEMS];
    uint8_t committed[ALL_ITEMS]; /* by the store */
    struct grant_line *grants;
    size_t grant_count;
    struct place *places; /* of all shards, by the store */
    size_t place_count;
    uint64_t refused, hurried;
    const char *why;
} books;

static int by_shard_and_fence(const void *a, const void *b)
{
    const struct grant_line *x = a, *y = b;
    return x->shard != y->shard   ? (x->shard < y->shard ? -1 : 1)
           : x->fence != y->fence ? (x->fence < y->fence ? -1 : 1)
                                  : 0;
}

static const struct grant_line *grant_of(uint64_t shard, uint64_t fence)
{
    struct grant_line key = {.shard = shard, .fence = fence};
    return bsearch(&key, books.grants, books.grant_count, sizeof(key), by_shard_and_fence);
}

static const char *read_grants(uint64_t run)
{
    books.grant_count = 0;
    for (unsigned w = 0; w < s.storm->workers; w++) {
        uint64_t count = atomic_load(&s.ledgers[w]->count);
        for (uint64_t i = s.read[w]; i < count; i++) {
            const struct rf_storm_line *l = &s.ledgers[w]->lines[i];
            if (l->note == GRANT && l->run == run) {
                books.grants =
                    realloc(books.grants, (books.grant_count + 1) * sizeof(*books.grants));
                books.grants[books.grant_count++] =
                    (struct grant_line){.shard = l->shard,
                                        .fence = l->fence,
                                        .item = l->item,
                                        .this_era = i >= s.era_lines[w]};
            }
        }
    }
    if (books.grant_count == 0) {
        return NULL;
    }
    qsort(books.grants, books.grant_count, sizeof(*books.grants), by_shard_and_fence);
    for (size_t i = 1; i < books.grant_count; i++) {
        const struct grant_line *a = &books.grants[i - 1], *b = &books.grants[i];
        if (a->shard == b->shard && a->fence == b->fence) {
            return wrong("S11: shard %" PRIx64 ", fence %" PRIu64 " was granted twice", a->shard,
                         a->fence);
        }
        if (a->shard == b->shard && a->this_era && a->item != NO_ITEM &&
            (b->item == NO_ITEM || b->item < a->item)) {
            return wrong("S5: shard %" PRIx64 " went back from item %u to %u", a->shard, a->item,
                         b->item);
        }
    }
    return NULL;
}

static const char *read_commits(uint64_t run)
{
    memset(books.acks, 0, sizeof(books.acks));
    memset(books.intents, 0, sizeof(books.intents));
    books.refused = books.hurried = 0;
    for (unsigned w = 0; w < s.storm->workers; w++) {
        uint64_t count = atomic_load(&s.ledgers[w]->count);
        for (uint64_t i = s.read[w]; i < count; i++) {
            const struct rf_storm_line *l = &s.ledgers[w]->lines[i];
            if (l->run != run || l->note == GRANT) {
                continue;
            }
            books.hurried += l->note == HURRIED;
            const struct grant_line *g = grant_of(l->shard, l->fence);
            if (g == NULL || l->item >= ALL_ITEMS) {
                return wrong("a line without a grant");
            }
            books.refused += l->note == REFUSED;
            if (l->note == INTENT) {
                books.intents[l->item] = 1;
            }
            if (l->note != ACK) {
                continue;
            }
            if (++books.acks[l->item] == 2) {
                return wrong("item %u was committed twice", l->item);
            }
            const struct grant_line *next = g + 1;
            bool followed = next < books.grants + books.grant_count && next->shard == g->shard;
            if (g->item != NO_ITEM && l->item <= g->item) {
                return wrong("item %u was committed behind the cursor that was granted", l->item);
            }
            if (followed && (next->item == NO_ITEM || l->item > next->item)) {
                return wrong("item %u was acknowledged under fence %" PRIu64
                             " and not there under fence %" PRIu64,
                             l->item, g->fence, next->fence);
            }
        }
    }
    return NULL;
}

static bool add_shard(void *context, const rf_shard_info *shard)
{
    uint32_t start = rf_storm_item(shard->spec.start), at = rf_storm_item(shard->cursor.key);
    uint32_t end = rf_storm_item(shard->spec.end);
    uint64_t *open = context;
    if (at != NO_ITEM) {
        for (uint32_t i = start; i <= at && i < ALL_ITEMS; i++) {
            books.committed[i] = 1;
        }
    }
    books.places = realloc(books.places, (books.place_count + 1) * sizeof(*books.places));
    books.places[books.place_count++] = (struct place){
        .shard = shard->shard, .fence = shard->fence, .stamp = rf_storm_stamp(shard->cursor)};
    *open += shard->status == RF_SHARD_ACTIVE || shard->status == RF_SHARD_PARKED;
    if (shard->status == RF_SHARD_DONE && at + 1 != end) {
        books.why = wrong("shard %" PRIx64 " is done and ends at item %u, its cursor at %u",
                          shard->shard, end, at);
    }
    for (size_t i = 0; i < books.grant_count; i++) {
        const struct grant_line *g = &books.grants[i];
        if (g->shard == shard->shard && g->fence > shard->fence && g->this_era) {
            books.why =
                wrong("S2: shard %" PRIx64 " has fence %" PRIu64 ", %" PRIu64 " was granted",
                      shard->shard, shard->fence, g->fence);
        }
    }
    return true;
}

static int by_shard(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->shard > y->shard) - (x->shard < y->shard);
}

/* Every checkpoint that came back since the last cold open is there, waited for or not. */
static const char *check_steps(uint64_t run)
{
    if (books.place_count != 0) {
        qsort(books.places, books.place_count, sizeof(*books.places), by_shard);
    }
    for (unsigned w = 0; w < s.storm->workers; w++) {
        uint64_t count = atomic_load(&s.ledgers[w]->count);
        uint64_t from = s.read[w] > s.era_lines[w] ? s.read[w] : s.era_lines[w];
        for (uint64_t i = from; i < count; i++) {
            const struct rf_storm_line *l = &s.ledgers[w]->lines[i];
            const struct place key = {.shard = l->shard};
            if (l->run != run || (l->note != ACK && l->note != HURRIED)) {
                continue;
            }
            const struct place *p =
                bsearch(&key, books.places, books.place_count, sizeof(key), by_shard);
            if (p == NULL || p->fence < l->fence ||
                (p->fence == l->fence && (p->stamp.fence != l->fence || p->stamp.step < l->step))) {
                return wrong("shard %" PRIx64 ": step %" PRIu64 " under fence %" PRIu64
                             " came back and is not there: fence %" PRIu64 ", step %" PRIu64
                             " of fence %" PRIu64,
                             l->shard, l->step, l->fence, p == NULL ? 0 : p->fence,
                             p == NULL ? 0 : p->stamp.step, p == NULL ? 0 : p->stamp.fence);
            }
        }
    }
    return NULL;
}

/* Everything acknowledged is there. *open: shards that are not finished. */
static const char *check_books(uint64_t *open)
{
    uint64_t run = atomic_load(&s.board->run);
    const char *why = read_grants(run);
    *open = 0;
    books.place_count = 0;
    memset(books.committed, 0, sizeof(books.committed));
    books.why = NULL;
    if (why == NULL) {
        why = read_commits(run);
    }
    if (why == NULL) {
        rf_status status = rf_list_shards(s.store, rf_now(s.store), &s.tenant, run, RF_LIST_ALL,
                                          add_shard, open, NULL);
        why = status == RF_OK ? books.why : wrong("listing: %s", rf_status_name(status));
    }
    if (why == NULL) {
        why = check_steps(run);
    }
    for (uint32_t i = 0; why == NULL && i < ALL_ITEMS; i++) {
        if (books.acks[i] != 0 && !books.committed[i]) {
            why = wrong("item %u was acknowledged and is not there", i);
        } else if (books.committed[i] && books.intents[i] == 0) {
            why = wrong("item %u is committed, and nobody worked on it", i);
        } else if (*open == 0 && !books.committed[i]) {
            why = wrong("item %u is lost", i);
        }
    }
    return why;
}

static void show_difference(void *context, const char *what)
{
    (void)context;
    fprintf(stderr, "storm: verify: %s\n", what);
}

/* Nobody but the director is there. */
static const char *settle_and_verify(void)
{
    rf_inspection seen = {0};
    rf_verification v = {0};
    rf_detail detail = {0};
    uint64_t until = now_ns() + HANG_NS;
    do {
        if (now_ns() > until) {
            return wrong("the dead are not settled: %" PRIu64 " left", seen.dead_members);
        }
        rf_tend(s.store, rf_now(s.store));
        rf_inspect(s.store, &seen, NULL);
    } while (seen.dead_members != 0);
    if (seen.log_failed) {
        return wrong("the log has failed");
    }
    const char *why = rf_fsck(s.store);
    if (why != NULL) {
        return wrong("%s", why);
    }
    rf_barrier(s.store, NULL);
    rf_status status = rf_verify(s.store, show_difference, NULL, &v, &detail);
    if (status != RF_OK || v.differences != 0) {
        return wrong("verify: %s, %" PRIu64 " differences %s", rf_status_name(status),
                     v.differences, detail.where);
    }
    return NULL;
}

static void count_repairs(void)
{
    rf_inspection seen;
    if (rf_inspect(s.store, &seen, NULL) == RF_OK) {
        s.report->redone += seen.redone;
        s.report->undone += seen.undone;
        s.report->leases_lost += seen.leases_lost;
    }
}

/* All are gone, and so is the region: as after a reboot, but for what the disk had in its hands. */
static const char *reopen_cold(void)
{
    count_repairs();
    rf_close(s.store);
    s.store = NULL;
    write_line((struct rf_storm_line){.note = RF_STORM_COLD});
    unlink(s.region_path);
    s.report->cold++;
    for (unsigned w = 0; w < s.storm->workers; w++) {
        s.era_lines[w] = atomic_load(&s.ledgers[w]->count);
    }
    return open_store();
}

static const char *end_run(void)
{
    uint64_t run = atomic_load(&s.board->run);
    rf_result result = {0};
    write_line((struct rf_storm_line){.note = RF_STORM_ENDING, .run = run});
    for (uint32_t i = 0; i < ALL_ITEMS; i++) {
        s.report->items += books.acks[i];
        s.report->orphans += books.acks[i] == 0;
    }
    s.report->refused += books.refused;
    s.report->hurried += books.hurried;
    s.report->grants += books.grant_count;
    s.report->runs++;
    rf_status status =
        rf_complete_run(s.store, rf_now(s.store), &s.tenant, run, rf_new_op(s.store), &result);
    if (status == RF_OK) {
        status = rf_purge_run(s.store, rf_now(s.store), &s.tenant, run, &result);
    }
    if (status != RF_OK) {
        return wrong("ending a run: %s %s", rf_status_name(status), result.detail.where);
    }
    write_line((struct rf_storm_line){.note = RF_STORM_PURGED, .run = run});
    for (unsigned w = 0; w < s.storm->workers; w++) {
        if (s.storm->watch != NULL) {
            s.read[w] = atomic_load(&s.ledgers[w]->count);
        } else {
            atomic_store(&s.ledgers[w]->count, 0);
            s.era_lines[w] = s.read[w] = 0;
        }
    }
    return begin_run();
}

/* Kills everybody, and looks. */
static const char *pause_storm(void)
{
    uint64_t open;
    bool before_settling = rf_prng_chance(&s.prng, 20);
    const char *why = rf_prng_chance(&s.prng, 50) ? expect_beats() : NULL;
    const char *died = kill_all();
    why = why == NULL ? died : why;
    s.report->pauses++;
    alive();
    if (why == NULL && !before_settling) {
        why = settle_and_verify();
    }
    if (why == NULL && !before_settling) {
        why = check_books(&open);
    }
    if (why == NULL && (before_settling || rf_prng_chance(&s.prng, 30))) {
        why = reopen_cold();
        if (why == NULL) {
            why = settle_and_verify();
        }
        if (why == NULL) {
            why = check_books(&open);
        }
    }
    if (why == NULL && open == 0) {
        why = end_run();
    }
    for (unsigned i = 0; why == NULL && i < s.storm->workers; i++) {
        why = start_worker(i);
    }
    return why;
}

/* One random cruelty. */
static const char *strike_one(void)
{
    unsigned i = rf_prng_below(&s.prng, s.storm->workers);
    uint32_t what = rf_prng_below(&s.prng, 100);
    if (s.stopped[i] && what < 50) {
        kill(s.pids[i], SIGCONT);
        s.stopped[i] = false;
    } else if (what < 85) {
        const char *why = kill_worker(i);
        s.report->kills++;
        return why == NULL ? start_worker(i) : why;
    } else if (what < 98) {
        kill(s.pids[i], SIGSTOP);
        s.stopped[i] = true;
        s.report->stops++;
    } else {
        rf_status status = rf_snapshot(s.store, NULL);
        s.report->snapshots += status == RF_OK;
        if (status != RF_OK && status != RF_BUSY) {
            return wrong("taking a snapshot: %s", rf_status_name(status));
        }
    }
    return NULL;
}

static bool run_is_over(void)
{
    rf_run_info run;
    return rf_get_run(s.store, &s.tenant, atomic_load(&s.board->run), &run, NULL) == RF_OK &&
           run.done + run.split == run.shard_count;
}

static bool seen_enough(void)
{
    return s.storm->watch != NULL && s.storm->watch->enough();
}

static const char *storm_on(void)
{
    const struct rf_storm *storm = s.storm;
    uint64_t until = now_ns() + storm->seconds * RF_SECOND, pause_at = storm->kills_pause;
    uint64_t commits = 0, heard = now_ns();
    const char *why = NULL;
    for (unsigned i = 0; why == NULL && i < storm->workers; i++) {
        why = start_worker(i);
    }
    while (why == NULL && now_ns() < until && !seen_enough() &&
           (storm->kills == 0 || s.report->kills < storm->kills)) {
        usleep(rf_prng_below(&s.prng, 4000));
        why = strike_one();
        uint64_t seen = atomic_load(&s.board->commits);
        if (seen != commits) {
            commits = seen;
            heard = now_ns();
        }
        if (why == NULL && (s.report->kills >= pause_at || run_is_over())) {
            pause_at = s.report->kills + storm->kills_pause;
            why = pause_storm();
            heard = now_ns();
        }
        alive();
        if (why == NULL && now_ns() - heard > patience_ns()) {
            show_hang();
            why = wrong("nothing was committed for too long");
        }
    }
    return why;
}

/* No more cruelty: what is left is worked off. */
static const char *calm_down(void)
{
    uint64_t until = now_ns() + HANG_NS, open = 1;
    alive();
    for (unsigned i = 0; i < s.storm->workers; i++) {
        kill(s.pids[i], SIGCONT);
        s.stopped[i] = false;
    }
    while (!run_is_over()) {
        if (now_ns() > until) {
            show_hang();
            return wrong("the rest of the work does not end");
        }
        usleep(2000);
    }
    const char *why = expect_beats();
    const char *died = kill_all();
    why = why == NULL ? died : why;
    alive();
    if (why == NULL) {
        why = settle_and_verify();
    }
    if (why == NULL) {
        why = check_books(&open);
    }
    if (why == NULL && open != 0) {
        why = wrong("%" PRIu64 " shards are not finished", open);
    }
    return why == NULL ? end_run() : why;
}

/* Nothing more happens; whatever is unfinished stays so. */
static const char *break_off(void)
{
    uint64_t open;
    const char *why = kill_all();
    if (why == NULL) {
        why = settle_and_verify();
    }
    return why == NULL ? check_books(&open) : why;
}

static void *map_file(const char *name, size_t size)
{
    char path[320];
    snprintf(path, sizeof(path), "%s/%s", s.storm->directory, name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *at = fd < 0 || ftruncate(fd, (off_t)size) != 0
                   ? MAP_FAILED
                   : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) {
        close(fd);
    }
    return at;
}

static const char *set_up(void)
{
    if (mkdir(s.storm->directory, 0700) != 0 && errno != EEXIST) {
        return wrong("%s: %s", s.storm->directory, strerror(errno));
    }
    snprintf(s.store_path, sizeof(s.store_path), "%.200s/store", s.storm->directory);
    snprintf(s.region_path, sizeof(s.region_path), "/dev/shm/rf-storm-%d", (int)getpid());
    rf_storm_tenant(&s.tenant);
    s.board = map_file("board", sizeof(*s.board));
    for (unsigned i = 0; i <= DIRECTOR; i = i + 1 == s.storm->workers ? DIRECTOR : i + 1) {
        char name[32];
        snprintf(name, sizeof(name), "ledger.%u", i);
        s.ledgers[i] = map_file(name, sizeof(struct ledger));
        if (s.ledgers[i] == MAP_FAILED || s.board == MAP_FAILED) {
            return wrong("a ledger: %s", strerror(errno));
        }
    }
    if (s.storm->watch != NULL) {
        if (mkdir(s.store_path, 0700) != 0) {
            return wrong("%s: %s", s.store_path, strerror(errno));
        }
        s.storm->watch->begin(s.store_path);
    }
    me = DIRECTOR;
    const char *why = open_store();
    return why == NULL ? begin_run() : why;
}

static void remove_all(const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(directory);
}

const struct rf_storm_line *rf_storm_lines(unsigned ledger, uint64_t *count)
{
    *count = atomic_load(&s.ledgers[ledger]->count);
    return s.ledgers[ledger]->lines;
}

const char *rf_storm_play(const struct rf_storm *storm, struct rf_storm_report *report)
{
    memset(&s, 0, sizeof(s));
    *report = (struct rf_storm_report){0};
    s.storm = storm;
    s.report = report;
    s.prng.state = storm->seed;
    signal(SIGALRM, on_alarm);
    alive();
    const char *why = set_up();
    if (why == NULL) {
        why = storm_on();
    }
    if (why == NULL) {
        why = storm->watch != NULL ? break_off() : calm_down();
    }
    for (unsigned i = 0; i < storm->workers; i++) {
        if (s.pids[i] != 0) {
            kill(s.pids[i], SIGKILL);
            waitpid(s.pids[i], NULL, 0);
        }
    }
    if (s.store != NULL) {
        count_repairs();
        rf_close(s.store);
    }
    alarm(0);
    signal(SIGALRM, SIG_DFL);
    if (why == NULL && storm->watch != NULL) {
        storm->watch->end();
    }
    for (unsigned i = 0; i <= DIRECTOR; i++) {
        if (s.ledgers[i] != NULL && s.ledgers[i] != MAP_FAILED) {
            munmap(s.ledgers[i], sizeof(struct ledger));
        }
    }
    if (s.board != NULL && s.board != MAP_FAILED) {
        munmap(s.board, sizeof(*s.board));
    }
    free(books.grants);
    free(books.places);
    memset(&books, 0, sizeof(books));
    if (why == NULL) {
        unlink(s.region_path);
        remove_all(s.store_path);
        remove_all(storm->directory);
    }
    return why;
}
