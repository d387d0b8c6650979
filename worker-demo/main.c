/*
 * rf-scan: finds leaked secrets in large trees, with many worker processes that may be killed at any
 * time. README.md tells how; here is the order of things:
 *
 *      options, rules  ->  state (walk, register)  ->  supervisor and workers  ->  report
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "allow.h"
#include "memory.h"
#include "report.h"
#include "state.h"
#include "supervisor.h"
#include "whole.h"

static void load_rules(struct farm *farm)
{
    char why[512];
    const char *text = rules_builtin;
    size_t len = (size_t)(rules_builtin_end - rules_builtin);
    char *own = NULL;
    if (farm->options->rules != NULL) {
        text = own = whole_read(farm->options->rules, &len);
        if (own == NULL) {
            exit(2);
        }
    }
    if (farm->options->list_rules) {
        fwrite(text, 1, len, stdout);
        exit(fflush(stdout) == 0 ? 0 : 2);
    }
    if (!rules_load(&farm->rules, text, len, why, sizeof(why))) {
        fprintf(stderr, "rf-scan: %s\n", why);
        exit(2);
    }
    free(own);
}

/* What is neither has no end that is known, and can't be gone on with in the middle. */
static void refuse_special_paths(const struct options *o)
{
    struct stat st;
    for (size_t i = 0; i < o->path_count; i++) {
        if (stat(o->paths[i], &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
            fprintf(stderr, "rf-scan: %s: neither a file nor a directory\n", o->paths[i]);
            exit(2);
        }
    }
}

/* A path inside another one would be scanned twice. */
static void drop_nested_paths(struct options *o)
{
    char **real = must_alloc(o->path_count * sizeof(*real));
    size_t kept = 0;
    for (size_t i = 0; i < o->path_count; i++) {
        real[i] = realpath(o->paths[i], NULL);
        if (real[i] == NULL) {
            fprintf(stderr, "rf-scan: %s: %s\n", o->paths[i], strerror(errno));
            exit(2);
        }
    }
    for (size_t i = 0; i < o->path_count; i++) {
        bool inside = false;
        for (size_t k = 0; k < o->path_count && !inside; k++) {
            size_t len = strlen(real[k]);
            bool same = strcmp(real[i], real[k]) == 0;
            bool below = strncmp(real[i], real[k], len) == 0 &&
                         (real[i][len] == '/' || (len == 1 && real[i][1] != '\0'));
            inside = k != i && ((same && k < i) || (!same && below));
        }
        if (!inside) {
            o->paths[kept++] = o->paths[i];
        }
    }
    for (size_t i = 0; i < o->path_count; i++) {
        free(real[i]);
    }
    free(real);
    o->path_count = kept;
}

struct sums {
    uint64_t bytes, findings, active; /* bytes: scanned, or not to be scanned */
};

static bool add_sums(void *context, const rf_shard_info *shard)
{
    struct sums *sums = context;
    struct progress p;
    if (progress_decode(shard->cursor.token, &p)) {
        sums->bytes += p.bytes + p.skipped;
        sums->findings += p.findings;
    }
    sums->active += shard->status == RF_SHARD_ACTIVE;
    return true;
}

/* A handle that only looks has no guardian thread, so that forking beside it is safe. */
static rf_store *look(struct farm *farm, struct sums *sums)
{
    rf_store *store;
    rf_detail detail = {0};
    rf_status status = rf_open(farm->store, &(rf_options){.read_only = true}, &store, &detail);
    if (status != RF_OK) {
        farm_fail("looking into the store", status, &detail);
    }
    *sums = (struct sums){0};
    status = rf_list_shards(store, rf_now(store), &farm->tenant, farm->items.header->run,
                            RF_LIST_ALL, add_sums, sums, &detail);
    if (status != RF_OK) {
        farm_fail("reading the shards", status, &detail);
    }
    return store;
}

static double seconds_since(const struct timespec *start)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

/* Returns the exit status, or -1 to go on with the report. */
static int scan(struct farm *farm, struct report *report)
{
    struct sums sums = {0};
    if (farm->items.header->count == 0) {
        return -1;
    }
    if (farm->options->uncoordinated) {
        supervise(farm, 0, 0);
        return report_gather_uncoordinated(report, farm) ? -1 : 2;
    }
    rf_store *store = look(farm, &sums);
    rf_close(store);
    if (sums.active > 0) {
        struct supervised supervised = supervise(farm, sums.bytes, sums.findings);
        report->restarts = supervised.restarts;
        rf_close(look(farm, &sums));
        if (sums.active > 0) {
            fprintf(stderr, "rf-scan: %s at %.0f%%; the same command goes on from here\n",
                    supervised.interrupted ? "interrupted" : "the workers died, all of them,",
                    100.0 * (double)sums.bytes / ((double)farm->items.header->bytes + 1e-9));
            return 2;
        }
    }
    store = look(farm, &sums);
    bool good = report_gather(report, farm, store);
    rf_close(store);
    return good ? -1 : 2;
}

/* A standard descriptor that is closed would be given to the next file that is opened, and what is
 * printed would go into that. It stays as unusable as it was: reports that can't be written are an
 * error, messages that nobody wants to see are none. */
static void hold_standard_descriptors(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd) {
            _exit(2); /* there is no /dev/null, and no way to say so */
        }
    }
}

int main(int argc, char **argv)
{
    static struct farm farm;
    struct options options;
    struct report report = {0};
    struct baseline baseline = {0};
    struct timespec start;
    clock_gettime(CLOCK_MONOTONIC, &start);
    hold_standard_descriptors();
    options_parse(&options, argc, argv);
    farm.options = &options;
    farm.supervisor = getpid();
    rf_tenant_from_name(TENANT, &farm.tenant);
    load_rules(&farm);
    if (options.check_rules) {
        unsigned wrong = rules_try_examples(&farm.rules);
        printf("%u rules, %u examples wrong\n", farm.rules.count, wrong);
        return wrong == 0 ? 0 : 2;
    }
    refuse_special_paths(&options);
    drop_nested_paths(&options);
    if (options.allow != NULL) {
        size_t len;
        char *text = whole_read(options.allow, &len);
        if (text == NULL) {
            return 2;
        }
        farm.allow = allow_read(text, len);
        farm.allow_hash = rf_hash64("rf-scan/file/v1", (rf_bytes){text, len});
        free(text);
        if (farm.allow == NULL) {
            return 2;
        }
    }
    if ((options.baseline != NULL && !baseline_read(&baseline, options.baseline)) ||
        !report_can_write(&options)) {
        return 2;
    }
    farm.counters = mmap(NULL, sizeof(*farm.counters), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (farm.counters == MAP_FAILED) {
        perror("rf-scan");
        return 2;
    }
    state_open(&farm, &report.resumed);
    int status = scan(&farm, &report);
    if (status < 0) {
        report.seconds = seconds_since(&start);
        report_leave_out(&report, &baseline);
        bool good = report_write(&report, &farm);
        status = !good || report.parked_count > 0 ? 2
                 : report.count > 0               ? 1
                 : report.unreadable_count > 0    ? 2
                                                  : 0;
        if (good && report.parked_count == 0) {
            items_close(&farm.items);
            state_remove(&farm);
        }
    }
    report_free(&report);
    baseline_free(&baseline);
    rules_free(&farm.rules);
    allow_free(farm.allow);
    free(farm.state);
    free(farm.store);
    return status;
}
