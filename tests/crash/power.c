#define _GNU_SOURCE
#include "power.h"

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
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <unity.h>

#include "fsck.h"
#include "hands.h"
#include "picture.h"
#include "prng.h"
#include "simdisk.h"
#include "simdisk_trace.h"

#define RUNS_MAX   256u
#define COLD_MAX   1024u
#define WATCHDOG_S 60u
#define FULL       70u /* percent of the trace: the storm ends */
#define HURRY      40u

/* A checkpoint that came back. */
struct step {
    uint64_t at, shard, fence, step;
};
struct granted {
    uint64_t shard, fence; /* the highest */
};

/* What is known of a run: all that came back in it, and what was noted before the cut. */
struct known {
    struct step *steps; /* by time */
    size_t step_count;
    bool made, ending, purged;
    uint8_t acks[RF_STORM_ALL_ITEMS], intents[RF_STORM_ALL_ITEMS];
    struct granted *granted;
    size_t granted_count;
};

/* Shared by the judges. */
struct board {
    _Atomic uint64_t images, unsettled, recovering, acks, steps, fences;
    _Atomic uint32_t troubled;
    char words[1600];
};

static struct {
    const struct rf_power *power;
    struct rf_power_report *report;
    struct board *board;
    rf_tenant tenant;
    char store[256];
    char image[64], region[80];
    uint32_t *cuts;
    size_t cuts_count;
    struct known *runs[RUNS_MAX];
    uint64_t cold[COLD_MAX]; /* when regions were removed */
    size_t cold_count;
    uint32_t born[RF_STORM_WORKERS_MAX]; /* events when a worker began */
    uint32_t noted;                      /* events whose notes are known */
    bool recovering;
    uint64_t image_seed;
    uint32_t cut;
} p;

static const char *wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *wrong(const char *format, ...)
{
    static char words[1500];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof(words), format, args);
    va_end(args);
    return words;
}

static void *grown(void *at, size_t count, size_t each)
{
    if (count == 0 || (count & (count - 1)) == 0) {
        at = realloc(at, (count == 0 ? 1 : 2 * count) * each);
        TEST_ASSERT_NOT_NULL(at);
    }
    return at;
}

static struct known *run_of(uint64_t run)
{
    TEST_ASSERT_TRUE_MESSAGE(run < RUNS_MAX, "too many runs");
    if (p.runs[run] == NULL) {
        p.runs[run] = calloc(1, sizeof(*p.runs[run]));
        TEST_ASSERT_NOT_NULL(p.runs[run]);
    }
    return p.runs[run];
}

/* --- the storm, watched --- */

static void begin_trace(const char *store)
{
    snprintf(p.store, sizeof(p.store), "%s", store);
    rf_simdisk_watch(store);
}

/* Checkpoints by the thousand need no place in the order: a stamp says when they were called. */
static void note_line(unsigned ledger, uint64_t line)
{
    uint64_t count;
    const struct rf_storm_line *lines = rf_storm_lines(ledger, &count);
    if (lines[line].note != RF_STORM_HURRIED) {
        rf_simdisk_note((uint64_t)ledger << 32 | line);
    }
}

static void note_birth(unsigned worker)
{
    p.born[worker] = rf_simdisk_cuts();
}

static void note_death(unsigned worker, pid_t pid)
{
    rf_simdisk_bury(pid, p.born[worker]);
}

static bool is_full(void)
{
    return rf_simdisk_fill() >= FULL;
}

/* --- what is known --- */

static int by_time(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static void read_ledgers(void)
{
    for (unsigned w = 0; w <= RF_STORM_DIRECTOR;
         w = w + 1 == p.power->workers ? RF_STORM_DIRECTOR : w + 1) {
        uint64_t count;
        const struct rf_storm_line *lines = rf_storm_lines(w, &count);
        for (uint64_t i = 0; i < count; i++) {
            const struct rf_storm_line *l = &lines[i];
            if (l->note == RF_STORM_COLD) {
                TEST_ASSERT_TRUE(p.cold_count < COLD_MAX);
                p.cold[p.cold_count++] = l->at;
            } else if (l->note == RF_STORM_ACK || l->note == RF_STORM_HURRIED) {
                struct known *k = run_of(l->run);
                k->steps = grown(k->steps, k->step_count, sizeof(*k->steps));
                k->steps[k->step_count++] = (struct step){
                    .at = l->at, .shard = l->shard, .fence = l->fence, .step = l->step};
            }
        }
    }
    for (unsigned r = 0; r < RUNS_MAX; r++) {
        if (p.runs[r] != NULL && p.runs[r]->step_count != 0) {
            qsort(p.runs[r]->steps, p.runs[r]->step_count, sizeof(struct step), by_time);
        }
    }
}

static struct granted *granted_of(struct known *k, uint64_t shard)
{
    for (size_t i = 0; i < k->granted_count; i++) {
        if (k->granted[i].shard == shard) {
            return &k->granted[i];
        }
    }
    k->granted = grown(k->granted, k->granted_count, sizeof(*k->granted));
    k->granted[k->granted_count] = (struct granted){.shard = shard};
    return &k->granted[k->granted_count++];
}

static void learn(const struct rf_storm_line *l)
{
    if (l->note == RF_STORM_COLD) {
        p.recovering = true;
        return;
    }
    struct known *k = run_of(l->run);
    p.recovering = false;
    switch (l->note) {
    case RF_STORM_GRANT: {
        struct granted *g = granted_of(k, l->shard);
        g->fence = l->fence > g->fence ? l->fence : g->fence;
        break;
    }
    case RF_STORM_INTENT:
        k->intents[l->item] = 1;
        break;
    case RF_STORM_ACK:
        k->acks[l->item] = 1;
        break;
    case RF_STORM_MADE:
        k->made = true;
        break;
    case RF_STORM_ENDING:
        k->ending = true;
        break;
    case RF_STORM_PURGED:
        k->purged = true;
        break;
    default:
        break;
    }
}

/* Everything that was noted before the cut; cuts come in order. */
static void learn_until(uint32_t cut)
{
    for (; p.noted < cut; p.noted++) {
        uint64_t value, count;
        if (rf_simdisk_is_note(p.noted, &value)) {
            learn(&rf_storm_lines((unsigned)(value >> 32), &count)[value & UINT32_MAX]);
        }
    }
}

static void forget_all(void)
{
    for (unsigned r = 0; r < RUNS_MAX; r++) {
        if (p.runs[r] != NULL) {
            free(p.runs[r]->steps);
            free(p.runs[r]->granted);
            free(p.runs[r]);
            p.runs[r] = NULL;
        }
    }
    p.cold_count = 0;
    p.noted = 0;
    p.recovering = false;
}

/* --- the judge --- */

struct place {
    uint64_t shard, fence;
    struct rf_storm_stamp stamp;
};
struct look {
    uint64_t run;
    uint8_t committed[RF_STORM_ALL_ITEMS];
    struct place places[4096];
    size_t count;
    uint64_t active[4096];
    size_t active_count;
    uint64_t latest; /* when the last checkpoint of it was called */
};

static bool look_at(void *context, const rf_shard_info *s)
{
    struct look *look = context;
    struct rf_storm_stamp stamp = rf_storm_stamp(s->cursor);
    uint32_t start = rf_storm_item(s->spec.start), at = rf_storm_item(s->cursor.key);
    for (uint32_t i = start; at != RF_STORM_NO_ITEM && i <= at && i < RF_STORM_ALL_ITEMS; i++) {
        look->committed[i] = 1;
    }
    look->places[look->count++] =
        (struct place){.shard = s->shard, .fence = s->fence, .stamp = stamp};
    look->latest = stamp.called > look->latest ? stamp.called : look->latest;
    if (s->status == RF_SHARD_ACTIVE) {
        look->active[look->active_count++] = s->shard;
    }
    return look->count < 4096;
}

static int by_shard(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return (x->shard > y->shard) - (x->shard < y->shard);
}

static const char *judge_items(const struct known *k, const struct look *look)
{
    for (uint32_t i = 0; i < RF_STORM_ALL_ITEMS; i++) {
        if (k->acks[i] && !look->committed[i]) {
            return wrong("run %" PRIu64 ", item %u was acknowledged and is not there", look->run,
                         i);
        }
        if (look->committed[i] && !k->intents[i]) {
            return wrong("run %" PRIu64 ", item %u is there and nobody had begun it", look->run, i);
        }
        p.board->acks += k->acks[i];
    }
    return NULL;
}

/* What had come back, since the last cold open, before the latest call whose work is there. */
static const char *judge_prefix(const struct known *k, struct look *look, uint64_t latest)
{
    uint64_t since = 0;
    for (size_t i = 0; i < p.cold_count; i++) {
        since = p.cold[i] < latest && p.cold[i] > since ? p.cold[i] : since;
    }
    for (size_t i = 0; i < k->step_count && k->steps[i].at < latest; i++) {
        const struct step *s = &k->steps[i];
        const struct place key = {.shard = s->shard};
        if (s->at < since) {
            continue;
        }
        const struct place *at = bsearch(&key, look->places, look->count, sizeof(key), by_shard);
        p.board->steps++;
        if (at == NULL || at->fence < s->fence ||
            (at->fence == s->fence && (at->stamp.fence != s->fence || at->stamp.step < s->step))) {
            return wrong("not a prefix: run %" PRIu64 ", shard %" PRIx64 ", step %" PRIu64
                         " under fence %" PRIx64 " had come back %" PRIu64
                         " ns before something was called that is there",
                         look->run, s->shard, s->step, s->fence, latest - s->at);
        }
    }
    return NULL;
}

static const char *judge_run(rf_store *store, struct look *look)
{
    const struct known *k = run_of(look->run);
    struct picture picture;
    rf_run_info info;
    rf_status status = rf_get_run(store, &p.tenant, look->run, &info, NULL);
    look->count = look->active_count = 0;
    memset(look->committed, 0, sizeof(look->committed));
    if (status == RF_RUN_NOT_FOUND) {
        return k->made && !k->ending ? wrong("run %" PRIu64 " is gone", look->run) : NULL;
    }
    if (status == RF_OK) {
        status = rf_list_shards(store, rf_now(store), &p.tenant, look->run, RF_LIST_ALL, look_at,
                                look, NULL);
    }
    if (status != RF_OK) {
        return wrong("run %" PRIu64 ": %s", look->run, rf_status_name(status));
    }
    if (k->purged) {
        return wrong("run %" PRIu64 " was purged and is there again", look->run);
    }
    status = picture_take(&picture, store, &p.tenant, look->run, rf_now(store), 0, false);
    const char *why = status != RF_OK          ? wrong("looking: %s", rf_status_name(status))
                      : picture.broken[0] != 0 ? wrong("%s", picture.broken)
                                               : NULL;
    picture_free(&picture);
    return why == NULL ? judge_items(k, look) : why;
}

/* What the first of them was granted, to be asked for after the next cold open. */
struct work {
    rf_lease lease;
    uint64_t step;
    bool done;
    uint64_t least; /* no fence is below */
};

static const char *grant_all(rf_store *store, const struct look *look, struct work *work)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    struct known *k = run_of(look->run);
    for (size_t i = 0; i < look->active_count; i++) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_result result = {.durability = RF_WAIT};
        uint64_t before = granted_of(k, look->active[i])->fence;
        rf_status status = rf_acquire(store, rf_now(store), &p.tenant, look->run, look->active[i],
                                      5, RF_BOUND, &grant, &result);
        if (status != RF_OK) {
            return wrong("shard %" PRIx64 " can't be had: %s %s", look->active[i],
                         rf_status_name(status), result.detail.where);
        }
        p.board->fences++;
        if (grant.lease.fence <= before || grant.lease.fence <= work->least) {
            return wrong("shard %" PRIx64 " has fence %" PRIx64 " after %" PRIx64, look->active[i],
                         grant.lease.fence, before > work->least ? before : work->least);
        }
        if (!work->done) {
            struct rf_storm_stamp stamp = {.fence = grant.lease.fence, .step = 1};
            rf_cursor cursor = {.key = grant.cursor.key.data != NULL ? grant.cursor.key
                                                                     : grant.spec.start,
                                .token = {.data = (const uint8_t *)&stamp, .len = sizeof(stamp)}};
            status = rf_checkpoint(store, rf_now(store), &p.tenant, &grant.lease, &cursor,
                                   rf_new_op(store), &result);
            if (status != RF_OK) {
                return wrong("no work can be done: %s %s", rf_status_name(status),
                             result.detail.where);
            }
            work->lease = grant.lease;
            work->done = true;
        }
    }
    return NULL;
}

static rf_store *open_image(const char **why)
{
    rf_options options = rf_storm_options(p.region);
    rf_detail detail = {0};
    rf_store *store = NULL;
    options.manual = true;
    unlink(p.region);
    rf_status status = rf_open(p.image, &options, &store, &detail);
    *why = status == RF_OK ? NULL : wrong("refused: %s, %s", rf_status_name(status), detail.where);
    return status == RF_OK ? store : NULL;
}

static uint64_t runs_known(void)
{
    uint64_t most = 0;
    for (unsigned r = 0; r < RUNS_MAX; r++) {
        most = p.runs[r] != NULL && (p.runs[r]->made || p.runs[r]->ending) ? r : most;
    }
    return most;
}

static const char *judge_all_runs(rf_store *store, struct work *work)
{
    static struct look looks[3]; /* the last one, the one before, and one that is just being made */
    uint64_t last = runs_known(), first = last > 1 ? last - 1 : 1, latest = 0;
    const char *why = rf_fsck(store);
    for (uint64_t r = first; why == NULL && r <= last + 1; r++) {
        looks[r - first].run = r;
        looks[r - first].latest = 0;
        why = judge_run(store, &looks[r - first]);
        latest = looks[r - first].latest > latest ? looks[r - first].latest : latest;
    }
    for (uint64_t r = first; why == NULL && r <= last + 1; r++) {
        struct look *look = &looks[r - first];
        if (look->count != 0) {
            qsort(look->places, look->count, sizeof(look->places[0]), by_shard);
            why = judge_prefix(run_of(r), look, latest);
        }
    }
    for (uint64_t r = first; why == NULL && r <= last + 1; r++) {
        why = grant_all(store, &looks[r - first], work);
    }
    return why;
}

static void show_difference(void *context, const char *what)
{
    (void)context;
    fprintf(stderr, "power: verify: %s\n", what);
}

static const char *verify(rf_store *store)
{
    rf_verification v = {0};
    rf_detail detail = {0};
    rf_barrier(store, NULL);
    rf_status status = rf_verify(store, show_difference, NULL, &v, &detail);
    return status == RF_OK && v.differences == 0
               ? NULL
               : wrong("verify: %s, %" PRIu64 " differences %s", rf_status_name(status),
                       v.differences, detail.where);
}

/* One more cold open: what was acknowledged here is there, and fences go on above. */
static const char *judge_next_life(const struct work *before)
{
    static struct look look;
    static uint8_t scratch[RF_GRANT_SCRATCH];
    struct work work = {.done = true, .least = before->lease.fence >> 40 << 40 | 0xffffffffffu};
    const char *why;
    rf_shard_info info;
    rf_store *store = open_image(&why);
    if (store == NULL) {
        return why;
    }
    rf_status status = rf_get_shard(store, &p.tenant, before->lease.run, before->lease.shard, &info,
                                    scratch, sizeof(scratch), NULL);
    struct rf_storm_stamp stamp = rf_storm_stamp(info.cursor);
    if (status != RF_OK || stamp.fence != before->lease.fence || stamp.step != 1) {
        why = wrong("work on the image was acknowledged and is gone after another cold open");
    }
    look.run = before->lease.run;
    look.count = look.active_count = 0;
    if (why == NULL && rf_list_shards(store, rf_now(store), &p.tenant, look.run, RF_LIST_ALL,
                                      look_at, &look, NULL) != RF_OK) {
        why = "listing after another cold open";
    }
    why = why == NULL ? grant_all(store, &look, &work) : why;
    why = why == NULL ? verify(store) : why;
    rf_close(store);
    return why;
}

static const char *judge_image(void)
{
    const char *why;
    struct work work = {0};
    rf_store *store = open_image(&why);
    if (store == NULL) {
        return why;
    }
    why = judge_all_runs(store, &work);
    rf_close(store);
    return why == NULL && work.done ? judge_next_life(&work) : why;
}

/* --- judges --- */

static void on_alarm(int signal_number)
{
    static const char words[] = "power: a recovery hangs\n";
    (void)signal_number;
    _exit(write(2, words, sizeof(words) - 1) < 0 ? 4 : 3);
}

static int judge_some(void *context)
{
    unsigned mine = *(const unsigned *)context;
    snprintf(p.image, sizeof(p.image), "/dev/shm/rf-power-%d", (int)getpid());
    snprintf(p.region, sizeof(p.region), "%s.region", p.image);
    signal(SIGALRM, on_alarm);
    for (size_t i = mine; i < p.cuts_count; i += p.power->jobs) {
        struct rf_prng prng = {.state = p.image_seed + i};
        uint64_t seed = i % 16 < 2 ? i % 16 : rf_prng_next(&prng) | 2;
        p.cut = p.cuts[i];
        learn_until(p.cut);
        alarm(WATCHDOG_S);
        rf_simdisk_sample(p.cut, seed, p.image);
        p.board->unsettled += rf_simdisk_unsettled(p.cut) != 0;
        p.board->recovering += p.recovering;
        const char *why = judge_image();
        p.board->images++;
        uint32_t nobody = 0;
        if (why != NULL && atomic_compare_exchange_strong(&p.board->troubled, &nobody, 1)) {
            bool kept = p.power->disbelieve == 0;
            snprintf(p.board->words, sizeof(p.board->words),
                     "cut %u of %u, image seed %" PRIu64 ": %s%s%s", p.cut, rf_simdisk_cuts(), seed,
                     why, kept ? "; kept: " : "", kept ? p.image : "");
            if (kept) {
                unlink(p.region);
                return 0;
            }
        }
        if (atomic_load(&p.board->troubled) != 0) {
            break;
        }
    }
    alarm(0);
    unlink(p.region);
    rf_simdisk_remove_image(p.image);
    return 0;
}

/* --- the trace against the disk --- */

/* With everything kept, the image of the last moment is what the directory is: nothing was missed. */
static void expect_same_file(const char *name, const char *image)
{
    char path[600];
    static uint8_t a[65536], b[65536];
    snprintf(path, sizeof(path), "%s/%s", p.store, name);
    int real = open(path, O_RDONLY | O_CLOEXEC);
    snprintf(path, sizeof(path), "%s/%s", image, name);
    int made = open(path, O_RDONLY | O_CLOEXEC);
    TEST_ASSERT_TRUE_MESSAGE(real >= 0 && made >= 0, path);
    /* A temporary file is nobody's; if who wrote it was killed, what it had got of the last write is in it. Under
     * another name it would be compared. */
    bool temporary = strncmp(name, "tmp.", 4) == 0;
    for (off_t at = 0; !temporary;) {
        ssize_t x = pread(real, a, sizeof(a), at), y = pread(made, b, sizeof(b), at);
        TEST_ASSERT_TRUE_MESSAGE(x == y && x >= 0 && memcmp(a, b, (size_t)x) == 0, path);
        if (x == 0) {
            break;
        }
        at += x;
    }
    close(real);
    close(made);
}

static void expect_trace_is_whole(void)
{
    char image[64];
    snprintf(image, sizeof(image), "/dev/shm/rf-power-%d", (int)getpid());
    rf_simdisk_settle();
    rf_simdisk_sample(rf_simdisk_cuts(), 1, image);
    DIR *dir = opendir(p.store);
    TEST_ASSERT_NOT_NULL(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.' && strcmp(e->d_name, "lock") != 0) {
            expect_same_file(e->d_name, image);
        }
    }
    closedir(dir);
    rf_simdisk_remove_image(image);
}

static void count_trace(void)
{
    struct rf_power_report *r = p.report;
    for (uint32_t i = 0; i < rf_simdisk_cuts(); i++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e == NULL) {
            continue;
        }
        r->events++;
        r->writes += e->kind == RF_DISK_WRITE_BEGIN;
        r->bytes += e->kind == RF_DISK_WRITE_BEGIN ? e->len : 0;
        r->syncs += (e->kind == RF_DISK_SYNC || e->kind == RF_DISK_SYNC_DIR) && e->done;
        r->names +=
            (e->kind == RF_DISK_CREATE || e->kind == RF_DISK_RENAME || e->kind == RF_DISK_REMOVE) &&
            e->done;
        r->notes += e->kind == RF_SIMDISK_NOTE;
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Random moments; every second one is put off until something is about to become durable. */
static void draw_cuts(struct rf_prng *prng, size_t count)
{
    uint32_t all = rf_simdisk_cuts();
    p.cuts = calloc(count + 1, sizeof(*p.cuts));
    TEST_ASSERT_NOT_NULL(p.cuts);
    for (p.cuts_count = 0; p.cuts_count < count; p.cuts_count++) {
        uint32_t cut = rf_prng_below(prng, all + 1);
        while (p.cuts_count % 2 != 0 && !rf_simdisk_matters(cut)) {
            cut++;
        }
        p.cuts[p.cuts_count] = cut;
    }
    qsort(p.cuts, count, sizeof(*p.cuts), by_number);
}

static struct rf_prng draws;

/* The store is closed, and everybody is gone. */
static void judge_storm(void)
{
    pid_t judges[RF_STORM_WORKERS_MAX];
    unsigned number[RF_STORM_WORKERS_MAX];
    uint64_t left = p.power->images - p.board->images;
    rf_disk_trace = NULL;
    count_trace();
    expect_trace_is_whole();
    read_ledgers();
    p.image_seed = rf_prng_next(&draws);
    draw_cuts(&draws, left < p.power->images_storm ? left : p.power->images_storm);
    rf_simdisk_disbelieve(p.power->disbelieve);
    for (unsigned j = 0; j < p.power->jobs; j++) {
        number[j] = j;
        judges[j] = rf_hands_send(judge_some, &number[j]);
    }
    for (unsigned j = 0; j < p.power->jobs; j++) {
        TEST_ASSERT_EQUAL_MESSAGE(0, rf_hands_wait(judges[j]), "a judge did not come to an end");
    }
    free(p.cuts);
    forget_all();
}

static const struct rf_storm_watch watch = {.begin = begin_trace,
                                            .noted = note_line,
                                            .born = note_birth,
                                            .died = note_death,
                                            .enough = is_full,
                                            .end = judge_storm};

const char *rf_power_play(const struct rf_power *power, struct rf_power_report *report)
{
    time_t from = time(NULL);
    const char *why = NULL;
    memset(&p, 0, sizeof(p));
    *report = (struct rf_power_report){0};
    p.power = power;
    p.report = report;
    p.board = rf_hands_board(sizeof(*p.board));
    rf_storm_tenant(&p.tenant);
    draws = (struct rf_prng){.state = power->seed};
    while (why == NULL && p.board->images < power->images &&
           (power->seconds == 0 || (uint64_t)(time(NULL) - from) < power->seconds)) {
        struct rf_storm_report r;
        struct rf_storm storm = {.directory = power->directory,
                                 .workers = power->workers,
                                 .seconds = power->storm_seconds,
                                 .kills_pause = 60,
                                 .seed = rf_prng_next(&draws),
                                 .hurry = HURRY,
                                 .watch = &watch};
        why = rf_storm_play(&storm, &r);
        rf_disk_trace = NULL;
        rf_simdisk_end();
        report->storms++;
        report->kills += r.kills;
        report->stops += r.stops;
        report->cold += r.cold;
        report->snapshots += r.snapshots;
        if (why == NULL && atomic_load(&p.board->troubled) != 0) {
            why = wrong("%s", p.board->words);
        }
    }
    report->images = p.board->images;
    report->unsettled = p.board->unsettled;
    report->recovering = p.board->recovering;
    report->acks = p.board->acks;
    report->steps = p.board->steps;
    report->fences = p.board->fences;
    munmap(p.board, sizeof(*p.board));
    return why;
}
