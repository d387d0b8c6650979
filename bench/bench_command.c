/*
 * What the command `ringfence` costs, as whoever types it sees it: from the start of the process to its
 * end. README.md says what each row is.
 *
 * Stores are made in $RF_BENCH_DIR, or /var/tmp: it should be on the disk that is meant.
 */
#include <assert.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/farm.h"
#include "support/table.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
#define MANY_SHARDS  100000u
#define WORK_SHARDS  256u
#define LOG_SHARDS   1000u
#define KEEP_ALL     (1ull << 40) /* no snapshot by itself: it would remove what is to be dumped */
#define ROUNDS_MAX   100001u

extern char **environ;

static struct bench_options options;
static char command[4096]; /* the program ringfence of the same build */
static char place[160];
static bool missed;

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "bench-command: %s failed\n", what);
        exit(2);
    }
}

static const char *directory(const char *which)
{
    static char path[256];
    snprintf(path, sizeof(path), "%s/%s", place, which);
    return path;
}

static void report(struct bench_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        missed = missed || !bench_met(&cases[i]);
    }
    bench_print_rows(stdout, &options, "command", "", cases, count);
}

/* --- processes --- */

/* Its output goes to `out`, or nowhere. */
static pid_t start(const char *const *words, int out)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    posix_spawn_file_actions_init(&actions);
    if (out >= 0) {
        posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    } else {
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    }
    int error =
        posix_spawn(&pid, words[0], &actions, NULL, (char *const *)(uintptr_t)words, environ);
    must(error == 0, words[0]);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static void await(pid_t pid, const char *what)
{
    int how;
    must(waitpid(pid, &how, 0) == pid && WIFEXITED(how) && WEXITSTATUS(how) == 0, what);
}

/* Runs it to its end, which must be a good one; ns. */
static double run(const char *const *words)
{
    uint64_t from = bench_now();
    await(start(words, -1), words[1] != NULL ? words[1] : words[0]);
    return (double)(bench_now() - from);
}

/* --- stores --- */

static void make_store(const char *which, rf_durability durability, uint32_t shards,
                       struct farm *farm)
{
    const rf_options o = {.create = true, .durability = durability, .snapshot_bytes = KEEP_ALL};
    *farm = (struct farm){.op = 0};
    must(rf_open(directory(which), &o, &farm->store, NULL) == RF_OK, "making a store");
    farm->now = rf_now(farm->store);
    if (shards != 0) {
        struct farm_manifest manifest = farm_manifest(shards);
        farm_register(farm, 1, &manifest);
        farm_manifest_free(&manifest);
    }
}

static void drop_store(const char *which)
{
    run((const char *const[]){command, "destroy", "--yes", directory(which), NULL});
}

/* --- status --- */

static void measure_status(void)
{
    static double bare[ROUNDS_MAX], status[ROUNDS_MAX], json[ROUNDS_MAX];
    struct farm farm;
    if (!bench_wanted(&options, "status")) {
        return;
    }
    make_store("many", RF_WAIT, MANY_SHARDS, &farm);
    must(rf_close(farm.store) == RF_OK, "closing a store");
    for (uint32_t i = 0; i < options.rounds; i++) {
        bare[i] = run((const char *const[]){"/bin/true", NULL}) / 1e6;
        status[i] = run((const char *const[]){command, "status", directory("many"), NULL}) / 1e6;
        json[i] =
            run((const char *const[]){command, "status", "--json", directory("many"), NULL}) / 1e6;
    }
    drop_store("many");
    struct bench_case rows[] = {
        {.name = "/bin/true", .unit = "ms"},
        {.name = "status, 100,000 shards", .unit = "ms", .kind = BENCH_VALUE_BELOW, .goal = 10},
        {.name = "status --json, 100,000 shards",
         .unit = "ms",
         .kind = BENCH_VALUE_BELOW,
         .goal = 10},
    };
    bench_summarize(&rows[0], bare, options.rounds);
    bench_summarize(&rows[1], status, options.rounds);
    bench_summarize(&rows[2], json, options.rounds);
    report(rows, COUNT(rows));
}

/* --- work --- */

static void measure_work_in(rf_durability durability, const char *name)
{
    static char loop[128];
    double added[64], ratio[64], hand_ms[64];
    uint32_t rounds = options.quick ? 3 : 9;
    struct farm farm;
    snprintf(loop, sizeof(loop), "i=0; while [ $i -lt %u ]; do /bin/true; i=$((i+1)); done",
             WORK_SHARDS);
    make_store("work", durability, 0, &farm);
    must(rf_close(farm.store) == RF_OK, "closing a store");
    for (uint32_t i = 0; i < rounds; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%u", i + 1);
        run((const char *const[]){command, "run", "create", directory("work"), number,
                                  "--hex-prefixes", "2", NULL});
        double hand = run((const char *const[]){"/bin/sh", "-c", loop, NULL});
        /* It ends well only if every shard is done. */
        double farmed =
            run((const char *const[]){command, "work", directory("work"), number, "--workers", "1",
                                      "--quiet", "--", "/bin/true", NULL});
        hand_ms[i] = hand / WORK_SHARDS / 1e6;
        added[i] = (farmed - hand) / WORK_SHARDS / 1e6;
        ratio[i] = farmed / hand;
    }
    drop_store("work");
    struct bench_case rows[] = {
        {.name = "/bin/true by hand, in a loop of the shell", .unit = "ms"},
        {.name = name,
         .unit = "ms a shard",
         .ratio_to = "by hand",
         .kind = BENCH_VALUE_BELOW,
         .goal = 2},
    };
    bench_summarize(&rows[0], hand_ms, rounds);
    bench_summarize(&rows[1], added, rounds);
    rows[1].ratio = bench_quantile(ratio, rounds, 0.5);
    report(rows, COUNT(rows));
}

static void measure_work(void)
{
    if (bench_wanted(&options, "work")) {
        measure_work_in(RF_VOLATILE, "added by work, volatile store");
        measure_work_in(RF_WAIT, "added by work, durable store");
    }
}

/* --- log dump --- */

/* Checkpoints of some shards in turn, logged and not waited for. */
static void write_records(const struct farm *farm, uint64_t records)
{
    rf_lease leases[LOG_SHARDS];
    struct farm acquiring = *farm;
    farm_acquire(&acquiring, 1, 0, LOG_SHARDS, leases);
    uint64_t time = rf_now(farm->store);
    rf_result result = {.durability = RF_NOWAIT};
    for (uint64_t i = 0; i < records; i++) {
        uint8_t key[FARM_KEY_LEN];
        uint32_t index = (uint32_t)(i % LOG_SHARDS);
        farm_key(key, index, time + i);
        const rf_cursor cursor = {.key = {key, sizeof(key)}};
        must(rf_checkpoint(farm->store, time, &farm->tenant, &leases[index], &cursor,
                           rf_new_op(farm->store), &result) == RF_OK,
             "a checkpoint");
    }
    must(rf_sync(farm->store, result.epoch, NULL) == RF_OK, "sync");
}

/* Lines that come through a pipe in a second. */
static double dump_rate(bool json, uint64_t records)
{
    static char buffer[1 << 16];
    int ends[2];
    must(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    const char *const words[] = {command, "log", "dump", directory("log"), json ? "--json" : NULL,
                                 NULL};
    uint64_t from = bench_now(), lines = 0;
    pid_t pid = start(words, ends[1]);
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
        for (const char *at = buffer; (at = memchr(at, '\n', (size_t)(buffer + n - at))) != NULL;
             at++) {
            lines++;
        }
    }
    await(pid, "log dump");
    double seconds = (double)(bench_now() - from) / 1e9;
    close(ends[0]);
    must(lines >= records, "every record in the dump");
    return (double)lines / seconds;
}

static void measure_dump(void)
{
    double text[64], json[64];
    uint32_t rounds = options.quick ? 3 : 9;
    uint64_t records = options.quick ? 1000000 : 3000000;
    struct farm farm;
    if (!bench_wanted(&options, "log dump")) {
        return;
    }
    make_store("log", RF_WAIT, LOG_SHARDS, &farm);
    write_records(&farm, records);
    must(rf_close(farm.store) == RF_OK, "closing a store");
    for (uint32_t i = 0; i < rounds; i++) {
        text[i] = dump_rate(false, records);
        json[i] = dump_rate(true, records);
    }
    drop_store("log");
    struct bench_case rows[] = {
        {.name = "log dump, to a pipe",
         .unit = "records/s",
         .ratio_to = "1,000,000",
         .kind = BENCH_AT_LEAST,
         .goal = 1},
        {.name = "log dump --json, to a pipe",
         .unit = "records/s",
         .ratio_to = "1,000,000",
         .kind = BENCH_AT_LEAST,
         .goal = 1},
    };
    bench_summarize(&rows[0], text, rounds);
    bench_summarize(&rows[1], json, rounds);
    for (unsigned i = 0; i < COUNT(rows); i++) {
        rows[i].ratio = rows[i].value / 1e6;
    }
    report(rows, COUNT(rows));
}

static void find_command(void)
{
    ssize_t len = readlink("/proc/self/exe", command, sizeof(command) - 32);
    must(len > 0, "reading /proc/self/exe");
    command[len] = 0;
    char *slash = strrchr(command, '/');
    strcpy(slash, "/../cli/ringfence");
    if (access(command, X_OK) != 0) {
        fprintf(stderr, "bench-command: %s is not there; build it (`cmake/build.sh gcc`)\n",
                command);
        exit(2);
    }
}

/* The work is done by a child, so that the stores are removed however it ends. */
int main(int argc, char **argv)
{
    const char *where = getenv("RF_BENCH_DIR");
    options = bench_parse(argc, argv);
    find_command();
    snprintf(place, sizeof(place), "%.120s/rf-bench-command-%d", where != NULL ? where : "/var/tmp",
             (int)getpid());
    must(mkdir(place, 0700) == 0, place);
    bench_print_head(stdout, &options, "command", "");
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        measure_status();
        measure_work();
        measure_dump();
        exit(missed && options.check ? 1 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    for (unsigned i = 0; i < 3; i++) {
        const char *which = (const char *const[]){"many", "work", "log"}[i];
        if (access(directory(which), F_OK) == 0) {
            drop_store(which);
        }
    }
    return rmdir(place) == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 2;
}
