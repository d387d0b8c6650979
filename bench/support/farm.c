#include "farm.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEASE_NS (24 * 3600 * RF_SECOND) /* nothing expires while it is measured */
#define SCRATCH  4096u
/* For a lock: where many processes share few cores, its holder may be without one for long. */
#define PATIENCE_NS (60 * RF_SECOND)

static const char *const farm_names[] = {"main",    "thousand", "ten",   "hundred",
                                         "million", "kill",     "count", "micro"};
/* ... and durable ones */
static const char *const field_names[] = {"micro", "count"};
#define FARM_NAMES  (sizeof(farm_names) / sizeof(farm_names[0]))
#define FIELD_NAMES (sizeof(field_names) / sizeof(field_names[0]))
#define NAME_SIZE   sizeof(((struct farm *)0)->name)

static pid_t owner; /* the process whose pid is in the names */

static void write_name(char *out, const char *which)
{
    snprintf(out, NAME_SIZE, "rf-bench-%d-%s", (int)owner, which);
}

static void write_directory(char *out, const char *which)
{
    const char *where = getenv("RF_BENCH_DIR");
    snprintf(out, NAME_SIZE, "%.120s/rf-bench-%d-%s", where != NULL ? where : "/var/tmp",
             (int)owner, which);
}

/* --- coming and going --- */

static void sleep_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* Children of the program may still be dying: they are killed with it, and not waited for. */
static void remove_store(const char *name)
{
    rf_detail detail = {0};
    rf_status status = rf_destroy(name, &detail);
    for (int tries = 0; status == RF_BUSY && tries < 200; tries++) {
        sleep_ms(10);
        status = rf_destroy(name, &detail);
    }
    if (status == RF_BUSY) {
        fprintf(stderr, "the store %s is still in use, and stays\n", name);
    }
}

static void remove_stores(void)
{
    char name[NAME_SIZE];
    for (size_t i = 0; i < FARM_NAMES; i++) {
        write_name(name, farm_names[i]);
        remove_store(name);
    }
    for (size_t i = 0; i < FIELD_NAMES; i++) {
        write_directory(name, field_names[i]);
        remove_store(name);
    }
}

void farm_destroy(const struct farm *farm)
{
    remove_store(farm->name);
}

int farm_supervise(int (*program)(int argc, char **argv), int argc, char **argv)
{
    owner = getpid();
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return 1;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        exit(program(argc, argv));
    }
    /* The terminal's signals go to the child as well, and end it. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
    }
    remove_stores();
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

static void must(rf_status status, const char *what, const rf_detail *detail)
{
    if (status != RF_OK) {
        char why[512];
        rf_explain(status, detail, why, sizeof(why));
        fprintf(stderr, "%s: %s\n", what, why);
        abort();
    }
}

static void open_named(struct farm *farm, const rf_options *options)
{
    rf_detail detail = {0};
    must(rf_open(farm->name, options, &farm->store, &detail), farm->name, &detail);
    rf_tenant_from_name("bench", &farm->tenant);
    farm->now = rf_now(farm->store);
    farm->op = rf_new_op(farm->store) >> 1; /* far from the ends */
}

static void begin(struct farm *farm)
{
    if (owner == 0) {
        owner = getpid();
    }
    memset(farm, 0, sizeof(*farm));
}

void farm_open(struct farm *farm, const char *which, uint64_t max_shards, bool manual)
{
    begin(farm);
    write_name(farm->name, which);
    open_named(farm, &(rf_options){.create = true,
                                   .max_shards = max_shards,
                                   .busy_timeout = PATIENCE_NS,
                                   .manual = manual});
}

void farm_open_durable(struct farm *farm, const char *which, uint64_t max_shards, bool manual)
{
    begin(farm);
    write_directory(farm->name, which);
    open_named(farm, &(rf_options){.create = true,
                                   .max_shards = max_shards,
                                   .busy_timeout = PATIENCE_NS,
                                   .durability = RF_NOWAIT,
                                   .manual = manual});
}

void farm_close(struct farm *farm)
{
    must(rf_close(farm->store), "rf_close", NULL);
    farm->store = NULL;
}

/* --- shards --- */

void farm_key(uint8_t *key, uint32_t index, uint64_t number)
{
    uint32_t index_be = __builtin_bswap32(index);
    uint64_t number_be = __builtin_bswap64(number);
    memset(key, 'k', FARM_KEY_LEN - 12);
    memcpy(key + FARM_KEY_LEN - 12, &index_be, 4);
    memcpy(key + FARM_KEY_LEN - 8, &number_be, 8);
}

struct farm_manifest farm_manifest(uint32_t count)
{
    struct farm_manifest m = {.count = count};
    m.shards = calloc(count, sizeof(*m.shards));
    m.keys = malloc((count + 1ul) * FARM_KEY_LEN);
    assert(m.shards != NULL && m.keys != NULL);
    for (uint32_t i = 0; i <= count; i++) {
        farm_key(m.keys + (size_t)i * FARM_KEY_LEN, i, 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *start = m.keys + (size_t)i * FARM_KEY_LEN;
        m.shards[i].shard = i + 1ul;
        m.shards[i].spec.start = (rf_bytes){.data = start, .len = FARM_KEY_LEN};
        m.shards[i].spec.end = (rf_bytes){.data = start + FARM_KEY_LEN, .len = FARM_KEY_LEN};
    }
    return m;
}

void farm_manifest_free(struct farm_manifest *m)
{
    free(m->shards);
    free(m->keys);
    *m = (struct farm_manifest){0};
}

void farm_register(struct farm *farm, uint64_t run, const struct farm_manifest *m)
{
    const rf_run_config config = {.lease_duration = LEASE_NS};
    rf_result result = {0};
    rf_status status = rf_create_run_with_shards(farm->store, ++farm->now, &farm->tenant, run,
                                                 &config, m->shards, m->count, ++farm->op, &result);
    must(status, "rf_create_run_with_shards", &result.detail);
    assert(result.outcome == RF_EXECUTED);
}

void farm_purge(struct farm *farm, uint64_t run)
{
    rf_result result = {0};
    rf_status status =
        rf_cancel_run(farm->store, ++farm->now, &farm->tenant, run, ++farm->op, &result);
    if (status == RF_RUN_NOT_FOUND) {
        return;
    }
    must(status, "rf_cancel_run", &result.detail);
    must(rf_purge_run(farm->store, ++farm->now, &farm->tenant, run, &result), "rf_purge_run",
         &result.detail);
}

void farm_acquire(struct farm *farm, uint64_t run, uint32_t index, uint32_t count, rf_lease *leases)
{
    _Alignas(8) uint8_t scratch[SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    for (uint32_t i = 0; i < count; i++) {
        rf_status status = rf_acquire(farm->store, ++farm->now, &farm->tenant, run, index + i + 1ul,
                                      1, RF_BOUND, &grant, &result);
        must(status, "rf_acquire", &result.detail);
        leases[i] = grant.lease;
    }
}
