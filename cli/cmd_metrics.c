/* metrics: counters for Prometheus. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

static const struct option_spec metrics_options[] = {
    {"textfile", 'o', OPTION_TEXT, "FILE", "write it there instead, all at once, for a collector"},
    {0},
};

static void metric(FILE *to, const char *name, const char *type, const char *help, uint64_t value)
{
    fprintf(to, "# HELP ringfence_%s %s\n# TYPE ringfence_%s %s\nringfence_%s %" PRIu64 "\n", name,
            help, name, type, name, value);
}

static void write_store(FILE *to, const rf_inspection *s, uint64_t held_ns)
{
    fprintf(to,
            "# HELP ringfence_info The library.\n# TYPE ringfence_info gauge\n"
            "ringfence_info{version=\"%s\",layout=\"%016" PRIx64 "\"} 1\n",
            rf_version_string(), s->layout_hash);
    metric(to, "incarnation", "gauge", "How often the region was made anew.", s->incarnation);
    metric(to, "fence_floor", "gauge", "No fence at or below it is granted.", s->fence_floor);
    metric(to, "taken_bytes", "gauge", "Shared memory in use.", s->taken_bytes);
    metric(to, "region_bytes", "gauge", "Address space of the region.", s->region_bytes);
    metric(to, "members", "gauge", "Member slots in use, guardians included.", s->members);
    metric(to, "dead_members", "gauge", "Members that are dead and not settled.", s->dead_members);
    metric(to, "runs", "gauge", "Runs.", s->runs);
    metric(to, "shards", "gauge", "Shards.", s->shards);
    metric(to, "operations_total", "counter", "Operations executed.", s->operations);
    metric(to, "replays_total", "counter", "Operations answered from memory.", s->replays);
    metric(to, "refusals_total", "counter", "Operations refused.", s->refusals);
    metric(to, "lock_waits_total", "counter", "Times that a lock was waited for.", s->lock_waits);
    metric(to, "busy_total", "counter", "Times that a lock was given up on.", s->busy);
    fprintf(
        to,
        "# HELP ringfence_lock_held_seconds For how long, at least, the lock that is held longest "
        "has been held; 0: none is.\n# TYPE ringfence_lock_held_seconds gauge\n"
        "ringfence_lock_held_seconds %.3f\n",
        (double)held_ns / 1e9);
    metric(to, "members_reaped_total", "counter", "Dead members settled.", s->reaped);
    metric(to, "operations_redone_total", "counter", "Operations of the dead finished.", s->redone);
    metric(to, "operations_undone_total", "counter", "Operations of the dead undone.", s->undone);
    metric(to, "locks_freed_total", "counter", "Locks of the dead freed.", s->locks_freed);
    metric(to, "leases_lost_total", "counter", "Leases of the dead ended.", s->leases_lost);
    metric(to, "leases_expired_total", "counter", "Leases found expired.", s->leases_expired);
    metric(to, "purges_finished_total", "counter", "Purges finished for others.",
           s->purges_finished);
    metric(to, "reapers_replaced_total", "counter", "Reapers that died while reaping.",
           s->reapers_replaced);
}

/* --- by operation, over the members that are there --- */

struct sums {
    uint64_t executed[RF_CLASSES];
    uint64_t replayed[RF_CLASSES];
    uint64_t refused[RF_CLASSES][100];
};

static bool add_member(void *context, const rf_member_info *m)
{
    struct sums *s = context;
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        s->executed[k] += m->executed[k];
        s->replayed[k] += m->replayed[k];
        for (unsigned i = 0; i < 100; i++) {
            s->refused[k][i] += m->refused[k][i];
        }
    }
    return true;
}

static void write_classes(FILE *to, const struct sums *s)
{
    fputs("# HELP ringfence_member_operations Operations of the members that are there now.\n"
          "# TYPE ringfence_member_operations gauge\n",
          to);
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        fprintf(to, "ringfence_member_operations{op=\"%s\",outcome=\"executed\"} %" PRIu64 "\n",
                op_class_word(k), s->executed[k]);
        fprintf(to, "ringfence_member_operations{op=\"%s\",outcome=\"replayed\"} %" PRIu64 "\n",
                op_class_word(k), s->replayed[k]);
    }
    fputs("# HELP ringfence_member_refusals Refusals to the members that are there now.\n"
          "# TYPE ringfence_member_refusals gauge\n",
          to);
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        for (unsigned i = 0; i < 100; i++) {
            if (s->refused[k][i] != 0) {
                fprintf(to, "ringfence_member_refusals{op=\"%s\",status=\"%s\"} %" PRIu64 "\n",
                        op_class_word(k), rf_status_name((rf_status)i), s->refused[k][i]);
            }
        }
    }
}

/* --- by run --- */

struct runs {
    rf_run_info *run;
    size_t count;
    size_t room;
};

static bool add_run(void *context, const rf_run_info *run)
{
    struct runs *r = context;
    if (r->count == r->room) {
        r->room = r->room == 0 ? 64 : 2 * r->room;
        rf_run_info *more = keep_bytes(r->room * sizeof(*more));
        if (r->count != 0) {
            memcpy(more, r->run, r->count * sizeof(*more));
        }
        r->run = more;
    }
    r->run[r->count++] = *run;
    return true;
}

static void write_run_shards(FILE *to, const rf_run_info *r, const char *state, uint64_t value)
{
    fprintf(to, "ringfence_run_shards{tenant=\"%s\",run=\"%s\",state=\"%s\"} %" PRIu64 "\n",
            tenant_text(&r->tenant), id_text(r->run), state, value);
}

static void write_runs(FILE *to, rf_store *store, const struct runs *runs)
{
    fputs("# HELP ringfence_run_shards Shards of a run by state.\n"
          "# TYPE ringfence_run_shards gauge\n",
          to);
    for (size_t i = 0; i < runs->count; i++) {
        const rf_run_info *r = &runs->run[i];
        write_run_shards(to, r, "active", r->shard_count - r->done - r->parked - r->split);
        write_run_shards(to, r, "done", r->done);
        write_run_shards(to, r, "parked", r->parked);
        write_run_shards(to, r, "split", r->split);
    }
    fputs("# HELP ringfence_run_status The status of a run: 1 for the one it has.\n"
          "# TYPE ringfence_run_status gauge\n",
          to);
    for (size_t i = 0; i < runs->count; i++) {
        fprintf(to, "ringfence_run_status{tenant=\"%s\",run=\"%s\",status=\"%s\"} 1\n",
                tenant_text(&runs->run[i].tenant), id_text(runs->run[i].run),
                run_status_word(runs->run[i].status));
    }
    fputs("# HELP ringfence_run_available Shards of a run that can be claimed.\n"
          "# TYPE ringfence_run_available gauge\n",
          to);
    for (size_t i = 0; i < runs->count; i++) {
        rf_capacity capacity;
        if (rf_get_capacity(store, &runs->run[i].tenant, runs->run[i].run, &capacity, NULL) ==
            RF_OK) {
            fprintf(to, "ringfence_run_available{tenant=\"%s\",run=\"%s\"} %" PRIu64 "\n",
                    tenant_text(&runs->run[i].tenant), id_text(runs->run[i].run),
                    capacity.available);
        }
    }
}

static rf_status write_metrics(struct cli *cli, rf_store *store, FILE *to)
{
    rf_inspection seen;
    struct sums *sums = keep_bytes(sizeof(*sums));
    struct runs runs = {0};
    rf_status status = rf_inspect(store, &seen, &cli->detail);
    status = status != RF_OK ? status : rf_list_members(store, add_member, sums, &cli->detail);
    status = status != RF_OK ? status : rf_list_runs(store, NULL, add_run, &runs, &cli->detail);
    if (status == RF_OK) {
        rf_lock_info lock;
        write_store(to, &seen, longest_held_lock_now(store, &lock) ? lock.held : 0);
        write_classes(to, sums);
        write_runs(to, store, &runs);
    }
    return status;
}

/* A reader sees the old file or the new one, never a part. */
static int write_textfile(struct cli *cli, rf_store *store, const char *file)
{
    char *temporary = keep_format("%s.XXXXXX", file);
    int fd = mkstemp(temporary);
    FILE *to = fd < 0 ? NULL : fdopen(fd, "w");
    if (to == NULL) {
        return cli_fail(errno == EACCES || errno == EPERM ? EXIT_PERMISSION : EXIT_IO,
                        "%s can't be written: %s", file, strerror(errno));
    }
    fchmod(fd, 0644);
    rf_status status = write_metrics(cli, store, to);
    bool good = status == RF_OK && fflush(to) == 0 && !ferror(to) && fsync(fd) == 0;
    int error = errno;
    good = fclose(to) == 0 && good;
    if (good && rename(temporary, file) == 0) {
        return EXIT_DONE;
    }
    error = good ? errno : error;
    unlink(temporary);
    return status != RF_OK ? cli_refuse(status, &cli->detail, 0, "reading the store")
                           : cli_fail(EXIT_IO, "%s can't be written: %s", file, strerror(error));
}

/* A line of the text, name{label="value",...} value, as an object. */
static void print_object(char *line)
{
    char *value = strrchr(line, ' '), *labels = strchr(line, '{'), *end = strrchr(line, '}');
    *value++ = 0;
    if (labels != NULL) {
        *labels++ = *end = 0;
    }
    printf("{\"name\":\"%s\",\"labels\":{", line);
    for (char *at = labels; at != NULL && *at != 0;) {
        char *text = strchr(at, '='), *stop = strchr(text + 2, '"');
        *text = *stop = 0;
        printf("%s\"%s\":", at == labels ? "" : ",", at);
        out_json_string(stdout, text + 2); /* behind the quote */
        at = stop + 1 + (stop[1] == ',');
    }
    printf("},\"value\":%s}\n", value);
}

static rf_status print_objects(struct cli *cli, rf_store *store)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) {
        abort();
    }
    rf_status status = write_metrics(cli, store, to);
    fclose(to);
    for (char *line = text, *end; status == RF_OK && (end = strchr(line, '\n')); line = end + 1) {
        *end = 0;
        if (line[0] != '#') {
            print_object(line);
        }
    }
    free(text);
    return status;
}

static int run_metrics(struct cli *cli)
{
    rf_store *store;
    const char *file = arg_text(&cli->args, "textfile", NULL);
    if (file != NULL && out_is_json()) {
        return cli_fail(EXIT_USAGE, "--textfile is for Prometheus, and has no --json");
    }
    int code = open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    if (file != NULL) {
        code = write_textfile(cli, store, file);
    } else {
        rf_status status =
            out_is_json() ? print_objects(cli, store) : write_metrics(cli, store, stdout);
        code = status == RF_OK ? EXIT_DONE
                               : cli_refuse(status, &cli->detail, 0, "%s", cli->args.words[0]);
    }
    rf_close(store);
    return code;
}

const struct command command_metrics = {
    .name = "metrics",
    .synopsis = "DIR [--textfile FILE]",
    .summary = "print counters in Prometheus' text format",
    .text = "With --textfile the file is replaced as a whole, so that node_exporter's textfile "
            "collector never reads half of it. Tenants appear as the first digits of their hash.",
    .examples = "ringfence metrics ./farm\n"
                "ringfence metrics ./farm --textfile /var/lib/prometheus/farm.prom",
    .options = metrics_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_metrics,
};
