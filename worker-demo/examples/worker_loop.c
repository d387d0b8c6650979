/*
 * The worker loop of the header, for real: processes share out a run, one of them is killed in the
 * middle of a shard, and in the end every item was worked on exactly once by a valid fence.
 *
 * A shard stands for a directory of items: its range is every key that begins with its name. To work
 * on an item is to sleep a little and to write a line into the ledger, marked with the fence of the
 * grant. README.md tells the story.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ringfence/ringfence.h"

#define RUN         1u
#define FIRST_LOT   24u /* shards at the start */
#define SHARDS      40u /* with those that come later */
#define ITEMS       25u /* in a shard */
#define STUCK_SHARD 11u /* here the first worker gets stuck, */
#define STUCK_ITEM  13u /* after working on this item and before committing it */
#define ITEM_NS     100000
#define WORKERS     3u /* two, and the one that replaces the dead one */
#define PATIENCE_NS (60 * RF_SECOND)

static char store_name[32];
static rf_tenant tenant;
static FILE *ledger; /* a file without a name: nothing to clean up */
static pid_t pids[WORKERS];

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

static void must(rf_status status, const char *what, const rf_detail *detail)
{
    if (status != RF_OK) {
        char why[512];
        rf_explain(status, detail, why, sizeof(why));
        fprintf(stderr, "%s: %s\n", what, why);
        exit(1);
    }
}

static void wait_a_little(uint64_t give_up_ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ITEM_NS}, NULL);
    if (monotonic_ns() > give_up_ns) {
        fprintf(stderr, "no progress\n");
        exit(1);
    }
}

/* --- a worker --- */

/* A line of the ledger. G: the grant of a shard, to go on behind this item. W: the item is done. */
static void note(char kind, unsigned worker, const rf_lease *lease, unsigned item)
{
    fprintf(ledger, "%c %u %" PRIu64 " %" PRIu64 " %u %" PRIu64 "\n", kind, worker, lease->shard,
            lease->fence, item, monotonic_ns());
    fflush(ledger);
}

/* The item of a key, "011/0007" and a NUL; 0 before the first. */
static unsigned item_at(rf_cursor cursor)
{
    const char *key = cursor.key.data;
    return key == NULL ? 0 : (unsigned)strtoul(strchr(key, '/') + 1, NULL, 10);
}

static void work_on(unsigned number, rf_session *session, const rf_grant *grant)
{
    char key[32];
    rf_cursor cursor = grant->cursor;
    unsigned from = item_at(cursor); /* somebody may have been here: go on behind what he did */
    note('G', number, &grant->lease, from);
    for (unsigned item = from + 1; item <= ITEMS; item++) {
        wait_a_little(UINT64_MAX);
        note('W', number, &grant->lease, item);
        while (from == 0 && grant->lease.shard == STUCK_SHARD && item == STUCK_ITEM) {
            pause();
        }
        snprintf(key, sizeof(key), "%03" PRIu64 "/%04u", grant->lease.shard, item);
        cursor = (rf_cursor){.key = {.data = key, .len = strlen(key) + 1}};
        if (rf_session_checkpoint(session, cursor, NULL) != RF_OK) {
            return; /* somebody else has the shard now */
        }
    }
    rf_session_complete(session, cursor, NULL);
}

static void worker(unsigned number)
{
    rf_store *store;
    rf_session *session;
    const rf_grant *grant;
    rf_detail detail = {0};
    rf_status status;
    const rf_session_options options = {
        .tenant = tenant, .worker = number * FIRST_LOT / 2, .keep_alive = true};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(rf_open(store_name, &(rf_options){.create = false}, &store, &detail), "rf_open", &detail);
    must(rf_session_create(store, &options, &session), "rf_session_create", NULL);
    while ((status = rf_session_claim(session, RUN, PATIENCE_NS, &grant, NULL)) == RF_OK) {
        work_on(number, session, grant);
    }
    rf_session_destroy(session);
    rf_close(store);
    if (status != RF_RUN_TERMINAL) {
        fprintf(stderr, "worker %u gives up: %s\n", number, rf_strerror(status));
        exit(1);
    }
    exit(0);
}

static void start_worker(unsigned number)
{
    fflush(NULL);
    pids[number] = fork();
    if (pids[number] == 0) {
        worker(number);
    }
    printf("worker %u starts, pid %d\n", number, (int)pids[number]);
}

/* --- the one who hands out the work --- */

/* Shards from .. to - 1. The first make the run. */
static void add_work(rf_store *store, unsigned from, unsigned to)
{
    static char starts[SHARDS][16];
    static uint8_t ends[SHARDS][RF_KEY_MAX];
    rf_shard_input shards[SHARDS] = {0};
    const rf_run_config config = {.lease_duration = 10 * RF_SECOND};
    rf_result result = {0};
    for (unsigned s = from; s < to; s++) {
        rf_spec *spec = &shards[s].spec;
        shards[s].shard = s;
        spec->start.data = starts[s];
        spec->start.len = (size_t)snprintf(starts[s], sizeof(starts[s]), "%03u/", s);
        spec->end.data = ends[s];
        rf_prefix_successor(spec->start, ends[s], &spec->end.len);
    }
    rf_status status = from == 0
                           ? rf_create_run_with_shards(store, rf_now(store), &tenant, RUN, &config,
                                                       shards, to, rf_new_op(store), &result)
                           : rf_add_shards(store, rf_now(store), &tenant, RUN, &shards[from],
                                           to - from, rf_new_op(store), &result);
    must(status, "adding shards", &result.detail);
    printf("%u shards %s\n", to - from, from == 0 ? "make the run" : "are added");
}

/* Until so many shards are done and so many workers wait for more. */
static void wait_until(rf_store *store, uint64_t done, uint64_t waiting)
{
    rf_run_info run = {0};
    rf_capacity capacity = {0};
    for (uint64_t start = monotonic_ns(); run.done < done || capacity.waiting < waiting;) {
        wait_a_little(start + PATIENCE_NS);
        must(rf_get_run(store, &tenant, RUN, &run, NULL), "rf_get_run", NULL);
        must(rf_get_capacity(store, &tenant, RUN, &capacity, NULL), "rf_get_capacity", NULL);
    }
}

static rf_shard_info look_at(rf_store *store, uint64_t shard)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    must(rf_get_shard(store, &tenant, RUN, shard, &info, scratch, sizeof(scratch), NULL),
         "rf_get_shard", NULL);
    return info;
}

/* Kills who is stuck with the shard, and waits until somebody else has it. Returns which worker it
 * was. */
static unsigned kill_stuck(rf_store *store, uint64_t shard, uint64_t *killed_ns)
{
    rf_shard_info held = look_at(store, shard);
    for (uint64_t start = monotonic_ns(); item_at(held.cursor) + 1 != STUCK_ITEM;) {
        wait_a_little(start + PATIENCE_NS);
        held = look_at(store, shard);
    }
    unsigned number = (unsigned)(held.owner / (FIRST_LOT / 2));
    *killed_ns = monotonic_ns();
    kill(pids[number], SIGKILL);
    waitpid(pids[number], NULL, 0);
    printf("worker %u is killed with -9; it held shard %" PRIu64 " with fence %" PRIu64 "\n",
           number, shard, held.fence);
    while (look_at(store, shard).fence == held.fence) {
        wait_a_little(*killed_ns + PATIENCE_NS);
    }
    return number;
}

/* --- the reckoning --- */

static struct line {
    char kind;
    unsigned worker, item;
    uint64_t shard, fence, at_ns;
} lines[4 * SHARDS * ITEMS], *end = lines;

/* What was done under a fence counts as far as it was committed: up to the item behind which the
 * next grant of the shard went on. */
static bool counts(const struct line *done)
{
    for (const struct line *l = lines; l < end; l++) {
        if (l->kind == 'G' && l->shard == done->shard && l->fence > done->fence &&
            l->item < done->item) {
            return false;
        }
    }
    return true;
}

static bool reckon(uint64_t killed_ns)
{
    static unsigned times[SHARDS][ITEMS + 1];
    unsigned grants[WORKERS] = {0}, items[WORKERS] = {0}, all = 0, wrong = 0, again = 0;
    rewind(ledger);
    while (end < lines + sizeof(lines) / sizeof(lines[0]) &&
           fscanf(ledger, " %c %u %" SCNu64 " %" SCNu64 " %u %" SCNu64, &end->kind, &end->worker,
                  &end->shard, &end->fence, &end->item, &end->at_ns) == 6) {
        end++;
    }
    for (const struct line *l = lines; l < end; l++) {
        if (l->kind == 'G') {
            grants[l->worker]++;
            if (l->shard == STUCK_SHARD && l->at_ns > killed_ns) {
                printf(
                    "worker %u had it %.0f us after the kill, behind item %u, with fence %" PRIu64
                    "\n",
                    l->worker, (double)(l->at_ns - killed_ns) / 1000, l->item, l->fence);
            }
        } else if (counts(l)) {
            items[l->worker]++;
            times[l->shard][l->item]++;
        } else {
            again++;
        }
    }
    for (unsigned s = 0; s < SHARDS; s++) {
        for (unsigned i = 1; i <= ITEMS; i++, all++) {
            wrong += times[s][i] != 1;
        }
    }
    for (unsigned w = 0; w < WORKERS; w++) {
        printf("worker %u had %2u shards and did %4u items\n", w, grants[w], items[w]);
    }
    printf("%u items in %u shards: %u lost or done twice; %u done again under a higher fence\n",
           all, SHARDS, wrong, again);
    return wrong == 0 && items[0] + items[1] + items[2] == all;
}

int main(void)
{
    rf_store *store;
    rf_detail detail = {0};
    uint64_t killed_ns;
    snprintf(store_name, sizeof(store_name), "rf-demo-%u", (unsigned)getuid());
    rf_tenant_from_name("demo", &tenant);
    if (rf_destroy(store_name, NULL) == RF_BUSY) { /* otherwise: left by one that was killed */
        fprintf(stderr, "another demo is running\n");
        return 1;
    }
    must(rf_open(store_name, &(rf_options){.create = true, .max_shards = 1000}, &store, &detail),
         "rf_open", &detail);
    ledger = tmpfile();
    if (ledger == NULL) {
        perror("tmpfile");
        return 1;
    }
    add_work(store, 0, FIRST_LOT);
    start_worker(0);
    start_worker(1);
    wait_until(store, FIRST_LOT - 1, 1);
    printf("all is done but shard %u, whose worker is stuck; the other one waits for more\n",
           STUCK_SHARD);
    unsigned dead = kill_stuck(store, STUCK_SHARD, &killed_ns);
    start_worker(2);
    add_work(store, FIRST_LOT, SHARDS);
    wait_until(store, SHARDS, 2);
    must(rf_complete_run(store, rf_now(store), &tenant, RUN, rf_new_op(store), NULL),
         "rf_complete_run", NULL);

    bool good = true;
    for (unsigned w = 0; w < WORKERS; w++) {
        int how = 0;
        good = (w == dead || (waitpid(pids[w], &how, 0) == pids[w] && how == 0)) && good;
    }
    good = reckon(killed_ns) && good;
    must(rf_close(store), "rf_close", NULL);
    must(rf_destroy(store_name, &detail), "rf_destroy", &detail);
    printf("%s\n\nnext: make test, make bench, make soak; the manual is "
           "lib/include/ringfence/ringfence.h\n",
           good ? "all is well" : "SOMETHING WENT WRONG");
    return good ? 0 : 1;
}
