#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "scanner.h"

#define CLAIM_NS       (250 * RF_MILLISECOND) /* between two looks at whether to leave */
#define BUSY_NS        (2 * RF_MILLISECOND)
#define COMMIT_FILES   64u
#define SPLIT_COST_MIN (256u << 10)
#define FORGET_ITEMS   1024u

static volatile sig_atomic_t draining;

static void on_drain(int signal)
{
    (void)signal;
    draining = 1;
}

struct worker {
    struct farm *farm;
    unsigned slot;
    rf_store *store;
    rf_session *session;
    const rf_grant *grant;
    struct scanner *scanner;
    struct ledger ledger;
    struct progress progress; /* as it is */
    uint64_t committed_bytes, committed_skipped, committed_files, committed_findings;
    uint64_t committed_at;
    uint64_t read_bytes; /* of the shard, up to the last look at the rate */
    uint64_t may_read_at;
    rf_status lost; /* RF_OK while the lease is held */
};

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

static void sleep_ns(uint64_t ns)
{
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)(ns / RF_SECOND), .tv_nsec = (long)(ns % RF_SECOND)},
        NULL);
}

void key_of(uint64_t index, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++) {
        key[i] = (uint8_t)(index >> (56 - 8 * i));
    }
}

uint64_t index_of(rf_bytes key)
{
    const uint8_t *bytes = key.data;
    uint64_t index = 0;
    for (size_t i = 0; i < 8 && i < key.len; i++) {
        index = index << 8 | bytes[i];
    }
    return index;
}

static void __attribute__((noreturn))
give_up(const char *what, rf_status status, const rf_detail *detail)
{
    char why[512];
    rf_explain(status, detail, why, sizeof(why));
    fprintf(stderr, "rf-scan: worker %d: %s: %s\n", (int)getpid(), what, why);
    _exit(WORKER_FAILED);
}

/* Somebody else has the shard, or will have it. */
static bool is_lost(rf_status status)
{
    return status == RF_STALE_FENCE || status == RF_LEASE_EXPIRED || status == RF_SHARD_TERMINAL ||
           status == RF_NOT_FOUND;
}

/* --- committing --- */

/* First the findings, then the checkpoint that makes them count. */
static bool commit(struct worker *w, uint64_t item, bool complete)
{
    uint8_t key[8];
    struct progress *p = &w->progress;
    struct counters *c = w->farm->counters;
    key_of(item, key);
    uint64_t written = w->ledger.length;
    if (!ledger_write(&w->ledger, p)) {
        fprintf(stderr, "rf-scan: worker %d: writing findings: %s\n", (int)getpid(),
                strerror(errno));
        _exit(WORKER_FAILED);
    }
    const rf_cursor cursor = {.key = {key, sizeof(key)}, .token = {p, progress_size(p)}};
    rf_result result = {0};
    rf_status status;
    do {
        status = complete ? rf_session_complete(w->session, cursor, &result)
                          : rf_session_checkpoint(w->session, cursor, &result);
    } while (status == RF_BUSY && (sleep_ns(BUSY_NS), true));
    if (is_lost(status)) {
        /* What was written stays where it is; nobody will read it. */
        w->lost = status;
        atomic_fetch_add(&c->refused, 1);
        atomic_fetch_add(&c->refused_bytes, w->ledger.length - written);
        return false;
    }
    if (status != RF_OK) {
        give_up("checkpoint", status, &result.detail);
    }
    atomic_fetch_add(&c->bytes, p->bytes - w->committed_bytes);
    atomic_fetch_add(&c->skipped, p->skipped - w->committed_skipped);
    atomic_fetch_add(&c->files, p->files - w->committed_files);
    atomic_fetch_add(&c->findings, p->findings - w->committed_findings);
    atomic_fetch_add(&c->commits[w->slot], 1);
    w->committed_bytes = p->bytes;
    w->committed_skipped = p->skipped;
    w->committed_files = p->files;
    w->committed_findings = p->findings;
    w->committed_at = monotonic_ns();
    return true;
}

/* If others have nothing to do, they get half of what is left behind this item. */
static void share(struct worker *w, uint64_t item)
{
    rf_capacity capacity;
    uint64_t id, end = index_of(w->grant->spec.end);
    const struct items *items = &w->farm->items;
    if (rf_get_capacity(w->store, &w->farm->tenant, items->header->run, &capacity, NULL) != RF_OK ||
        capacity.waiting == 0 || capacity.available >= capacity.waiting || item + 2 > end) {
        return;
    }
    uint64_t left = items_cost(items, item + 1, end);
    if (left < SPLIT_COST_MIN) {
        return;
    }
    uint8_t point[8];
    uint64_t cut = item + 2 >= end ? item + 1 : items_cut(items, item + 1, end - 1, left / 2);
    key_of(cut, point);
    rf_result result = {0};
    rf_status status = rf_session_split_residual(w->session, (rf_bytes){point, 8}, &id, &result);
    if (status == RF_OK) {
        atomic_fetch_add(&w->farm->counters->splits, 1);
    } else if (is_lost(status)) {
        w->lost = status;
        atomic_fetch_add(&w->farm->counters->refused, 1);
    } else if (status != RF_BUSY && status != RF_SPAWNED_LIMIT && status != RF_SHARD_LIMIT &&
               status != RF_RESOURCE_EXHAUSTED) {
        give_up("split", status, &result.detail);
    }
}

static void heed_rate(struct worker *w)
{
    uint64_t rate = w->farm->options->rate / w->farm->options->workers;
    if (rate == 0) {
        return;
    }
    uint64_t now = monotonic_ns(), read = w->progress.bytes - w->read_bytes;
    w->read_bytes = w->progress.bytes;
    w->may_read_at = w->may_read_at < now ? now : w->may_read_at;
    w->may_read_at += (uint64_t)((double)read / (double)rate * (double)RF_SECOND);
    while (!draining && now < w->may_read_at) {
        sleep_ns(w->may_read_at - now);
        now = monotonic_ns();
    }
}

/* After each chunk and each file. */
static bool on_pause(void *context, uint64_t item)
{
    struct worker *w = context;
    const struct options *o = w->farm->options;
    const struct progress *p = &w->progress;
    heed_rate(w);
    bool last = p->offset == PROGRESS_DONE && item + 1 >= index_of(w->grant->spec.end);
    if (last) {
        return true; /* to complete the shard is the commit */
    }
    bool due = draining != 0 || rf_session_check(w->session) != RF_OK ||
               p->bytes - w->committed_bytes >= o->commit_bytes ||
               p->files - w->committed_files >= COMMIT_FILES ||
               monotonic_ns() - w->committed_at >= o->commit_ns;
    if (due && !commit(w, item, false)) {
        return false;
    }
    if (due && draining == 0) {
        share(w, item);
    }
    return draining == 0 && w->lost == RF_OK;
}

/* --- a shard --- */

static void work_on(struct worker *w)
{
    const rf_cursor *cursor = &w->grant->cursor;
    struct progress *p = &w->progress;
    if (!progress_decode(cursor->token, p)) {
        rf_session_park(w->session, RF_PARK_POISONED, NULL);
        return;
    }
    uint64_t item = cursor->key.data == NULL ? index_of(w->grant->spec.start)
                                             : index_of(cursor->key) + (p->offset == PROGRESS_DONE);
    w->lost = RF_OK;
    w->committed_bytes = w->read_bytes = p->bytes;
    w->committed_skipped = p->skipped;
    w->committed_files = p->files;
    w->committed_findings = p->findings;
    w->committed_at = monotonic_ns();
    ledger_begin(&w->ledger, w->farm->found, w->farm->options->durable, &w->grant->lease, p);
    bool gone_on = true;
    while (gone_on && item < index_of(w->grant->spec.end)) {
        gone_on = scanner_item(w->scanner, item, p, &w->ledger, on_pause, w);
        item++;
        if (item % FORGET_ITEMS == 0) {
            items_forget(&w->farm->items);
        }
    }
    if (gone_on) {
        commit(w, item - 1, true);
    } else if (w->lost == RF_OK) {
        rf_session_release(w->session, NULL); /* draining, and all is committed */
    }
    ledger_end(&w->ledger);
}

/* The last one out ends the run, which sends the others home. Parked shards keep it open: they can
 * be tried again. */
static bool all_done(struct worker *w)
{
    rf_run_info run;
    uint64_t id = w->farm->items.header->run;
    if (rf_get_run(w->store, &w->farm->tenant, id, &run, NULL) != RF_OK ||
        run.status != RF_RUN_ACTIVE || run.done + run.split + run.parked < run.shard_count) {
        return false;
    }
    if (run.parked == 0) {
        /* The same op id for whoever comes last; the id itself was that of the registration. */
        rf_result result = {0};
        rf_status status =
            rf_complete_run(w->store, rf_now(w->store), &w->farm->tenant, id, id + 1, &result);
        if (status != RF_OK && status != RF_RUN_TERMINAL && status != RF_BUSY) {
            give_up("ending the run", status, &result.detail);
        }
    }
    return true;
}

/* --- the process --- */

static void prepare(const struct farm *farm)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != farm->supervisor) {
        _exit(WORKER_FAILED);
    }
    /* Ctrl-C reaches the whole process group; what to do about it is the supervisor's decision. */
    signal(SIGINT, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_drain}, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

void worker_main(struct farm *farm, unsigned slot)
{
    struct worker w = {.farm = farm, .slot = slot};
    rf_detail detail = {0};
    rf_result result = {0};
    prepare(farm);
    rf_status status = rf_open(farm->store, &(rf_options){0}, &w.store, &detail);
    if (status != RF_OK) {
        give_up("opening the store", status, &detail);
    }
    const rf_session_options options = {.tenant = farm->tenant,
                                        .worker = (uint64_t)slot * farm->items.header->shards /
                                                  farm->options->workers,
                                        .keep_alive = true};
    status = rf_session_create(w.store, &options, &w.session);
    if (status != RF_OK) {
        give_up("making a session", status, NULL);
    }
    w.scanner = scanner_create(farm);
    do {
        status = rf_session_claim(w.session, farm->items.header->run, CLAIM_NS, &w.grant, &result);
        if (status == RF_OK) {
            work_on(&w);
            items_forget(&farm->items);
        } else if (status == RF_BUSY) {
            sleep_ns(BUSY_NS);
        } else if (status != RF_NONE_AVAILABLE && status != RF_RUN_TERMINAL) {
            give_up("claiming", status, &result.detail);
        }
    } while (status != RF_RUN_TERMINAL && draining == 0 && !all_done(&w));
    scanner_destroy(w.scanner);
    rf_session_destroy(w.session);
    rf_close(w.store);
    _exit(draining != 0 && status != RF_RUN_TERMINAL ? WORKER_DRAINED : WORKER_DONE);
}

/* --- without a coordinator --- */

static bool never_pause(void *context, uint64_t item)
{
    (void)context;
    (void)item;
    return true;
}

void worker_main_uncoordinated(struct farm *farm, unsigned slot)
{
    struct progress p;
    struct ledger ledger = {0};
    struct counters *c = farm->counters;
    const struct items *items = &farm->items;
    prepare(farm);
    progress_decode((rf_bytes){0}, &p);
    ledger_begin(&ledger, farm->found, false, &(rf_lease){.shard = slot + 1, .fence = 1}, &p);
    struct scanner *scanner = scanner_create(farm);
    for (;;) {
        uint64_t first = atomic_fetch_add(&c->next, COMMIT_FILES), end = first + COMMIT_FILES;
        if (first >= items->header->count) {
            break;
        }
        for (uint64_t item = first; item < end && item < items->header->count; item++) {
            scanner_item(scanner, item, &p, &ledger, never_pause, NULL);
        }
    }
    if (!ledger_write(&ledger, &p)) {
        _exit(WORKER_FAILED);
    }
    ledger_end(&ledger);
    atomic_fetch_add(&c->bytes, p.bytes);
    atomic_fetch_add(&c->skipped, p.skipped);
    atomic_fetch_add(&c->files, p.files);
    atomic_fetch_add(&c->findings, p.findings);
    scanner_destroy(scanner);
    /* What would be the last cursor's token. */
    char name[32];
    snprintf(name, sizeof(name), "progress-%u", slot + 1);
    int fd = openat(farm->found, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write(fd, &p, progress_size(&p)) == (ssize_t)progress_size(&p);
    _exit(good ? WORKER_DONE : WORKER_FAILED);
}
