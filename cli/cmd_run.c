/* run create, add, list, show, watch, complete, fail, cancel, purge. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "manifest.h"
#include "progress_bar.h"

static int parse_run(const struct cli *cli, uint64_t *run)
{
    return read_id("RUN", cli->args.words[1], run);
}

/* --- create, add --- */

static const struct option_spec create_options[] = {
    MANIFEST_OPTIONS,
    {"lease", 'l', OPTION_DURATION, "TIME", "how long a lease lasts if it is not renewed [30s]"},
    {"retries", 0, OPTION_NUMBER, "N", "park a shard after N more grants without progress [never]"},
    {"semantics", 0, OPTION_TEXT, "WORD",
     "what a cursor says: completed or dispatched [completed]"},
    {0},
};

static int read_config(const struct args *args, rf_run_config *config)
{
    const char *semantics = arg_text(args, "semantics", "completed");
    uint64_t retries = arg_number(args, "retries", 0);
    *config = (rf_run_config){.lease_duration = arg_number(args, "lease", 30 * RF_SECOND),
                              .has_max_retries = arg_given(args, "retries"),
                              .max_retries = (uint32_t)retries};
    if (retries > UINT32_MAX) {
        return cli_fail(EXIT_USAGE, "--retries is below 2^32");
    }
    if (config->lease_duration == 0) {
        return cli_fail(EXIT_USAGE, "--lease is more than 0");
    }
    if (strcmp(semantics, "dispatched") == 0) {
        config->semantics = RF_DISPATCHED;
    } else if (strcmp(semantics, "completed") != 0) {
        return cli_fail(EXIT_USAGE, "--semantics is completed or dispatched");
    }
    return EXIT_DONE;
}

/* The position of a refused shard, as the caller counts. */
static int refuse_manifest(rf_status status, const rf_result *result, uint64_t run)
{
    return cli_refuse(status, &result->detail, 0, "run %s", id_text(run));
}

static void show_made(uint64_t run, uint32_t count, rf_outcome outcome)
{
    out_card_begin();
    out_id("run", run);
    out_number("shards", count);
    bool again = outcome == RF_REPLAYED;
    out_phrase("outcome", again ? "replayed" : "executed",
               again ? "was there already, the same" : "made", OUT_PLAIN);
    out_card_end();
}

static int make_shards(struct cli *cli, bool create)
{
    struct manifest m;
    rf_run_config config = {0};
    rf_result result = {0};
    rf_store *store;
    uint64_t run;
    int code = parse_run(cli, &run);
    code = code != EXIT_DONE || !create ? code : read_config(&cli->args, &config);
    code = code != EXIT_DONE ? code : read_manifest(&cli->args, &m);
    code = code != EXIT_DONE ? code : open_to_work(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    /* The op id is made from the shards themselves: repeating the command is harmless. */
    uint32_t *order = keep_bytes(2 * sizeof(*order) * ((size_t)m.count + 1));
    uint64_t op =
        create ? rf_hash_register(m.shards, m.count, order) : rf_hash_add(m.shards, m.count, order);
    rf_status status = create ? rf_create_run_with_shards(store, rf_now(store), &cli->tenant, run,
                                                          &config, m.shards, m.count, op, &result)
                              : rf_add_shards(store, rf_now(store), &cli->tenant, run, m.shards,
                                              m.count, op, &result);
    rf_close(store);
    if (status != RF_OK) {
        return refuse_manifest(status == RF_WRONG_STATUS && create ? RF_RUN_EXISTS : status,
                               &result, run);
    }
    show_made(run, m.count, result.outcome);
    return EXIT_DONE;
}

static int run_create(struct cli *cli)
{
    return make_shards(cli, true);
}

static int run_add(struct cli *cli)
{
    return make_shards(cli, false);
}

const struct command command_run_create = {
    .group = "run",
    .name = "create",
    .synopsis = "DIR RUN --keys FILE | --ranges FILE | --hex-prefixes N [options]",
    .summary = "make a run and its shards",
    .text =
        "All shards come into being at once, or none does. --keys sorts the keys and cuts them "
        "into ranges with the same number of keys each; keys are taken as they are, not decoded. A "
        "FILE of - is standard input. Repeating the same command does no harm.",
    .examples = "ringfence run create ./farm 1 --hex-prefixes 2 --lease 30s\n"
                "find /data -type f | ringfence run create ./farm 2 --keys - --shards 100",
    .options = create_options,
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .tenant = true,
    .run = run_create,
};

static const struct option_spec add_options[] = {MANIFEST_OPTIONS, {0}};

const struct command command_run_add = {
    .group = "run",
    .name = "add",
    .synopsis = "DIR RUN --keys FILE | --ranges FILE | --hex-prefixes N [--first-id ID]",
    .summary = "add shards to an active run",
    .text = "The new ranges and ids must not be there already.",
    .examples = "ringfence run add ./farm 2 --ranges more.tsv --first-id 101",
    .options = add_options,
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .tenant = true,
    .run = run_add,
};

/* --- list --- */

static const struct option_spec list_options[] = {
    {"all-tenants", 'a', OPTION_FLAG, NULL, "runs of every tenant, not only of one"},
    {0},
};

struct run_list {
    rf_run_info *runs;
    size_t count;
    size_t room;
};

static bool gather_run(void *context, const rf_run_info *run)
{
    struct run_list *list = context;
    if (list->count == list->room) {
        list->room = list->room == 0 ? 64 : 2 * list->room;
        rf_run_info *more = keep_bytes(list->room * sizeof(*more));
        if (list->count != 0) {
            memcpy(more, list->runs, list->count * sizeof(*more));
        }
        list->runs = more;
    }
    list->runs[list->count++] = *run;
    return true;
}

static int by_run(const void *a, const void *b)
{
    const rf_run_info *x = a, *y = b;
    int tenants = memcmp(x->tenant.bytes, y->tenant.bytes, sizeof(x->tenant.bytes));
    return tenants != 0 ? tenants : x->run < y->run ? -1 : x->run > y->run;
}

static uint64_t active_shards(const rf_run_info *r)
{
    return r->shard_count - r->done - r->parked - r->split;
}

static double part_done(const rf_run_info *r)
{
    uint64_t whole = r->shard_count - r->split;
    return whole == 0 ? 0 : (double)r->done / (double)whole;
}

static void show_run(const rf_run_info *r, uint64_t now, bool tenants)
{
    out_row();
    out_id("run", r->run);
    if (tenants) {
        out_text("tenant", tenant_text(&r->tenant));
    }
    const char *word = run_status_word(r->status);
    out_word("status", word, status_colour(word));
    out_number("shards", r->shard_count);
    out_number("active", active_shards(r));
    out_number("done", r->done);
    out_number("parked", r->parked);
    out_number("split", r->split);
    out_real("percent", 100 * part_done(r), 1);
    out_ns("age", now > r->created_at ? now - r->created_at : 0);
}

static int run_list(struct cli *cli)
{
    rf_store *store;
    struct run_list list = {0};
    bool all = arg_given(&cli->args, "all-tenants");
    int code = open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status =
        rf_list_runs(store, all ? NULL : &cli->tenant, gather_run, &list, &cli->detail);
    if (status == RF_OK) {
        if (list.count != 0) {
            qsort(list.runs, list.count, sizeof(list.runs[0]), by_run);
        }
        out_list_begin();
        for (size_t i = 0; i < list.count; i++) {
            show_run(&list.runs[i], rf_now(store), all);
        }
        out_list_end();
        rf_inspection seen;
        if (list.count == 0 && !all && rf_inspect(store, &seen, NULL) == RF_OK && seen.runs != 0) {
            cli_warn("no runs of this tenant; --all-tenants shows those of others");
        }
    }
    rf_close(store);
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, &cli->detail, 0, "listing runs");
}

const struct command command_run_list = {
    .group = "run",
    .name = "list",
    .synopsis = "DIR",
    .summary = "list runs",
    .examples = "ringfence run list ./farm\nringfence run list --json --all-tenants ./farm",
    .options = list_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .tenant = true,
    .run = run_list,
};

/* --- show --- */

static const char *evaluation_word(rf_evaluation e)
{
    return e == RF_ALL_DONE ? "all-done" : e == RF_HAS_FAILURES ? "has-failures" : "still-active";
}

static void show_run_card(const rf_run_info *r, const rf_progress *p, const rf_capacity *c,
                          rf_bytes watermark, uint64_t now)
{
    const char *word = run_status_word(r->status);
    out_card_begin();
    out_id("run", r->run);
    out_word("status", word, status_colour(word));
    out_text("evaluation", evaluation_word(p->evaluation));
    out_number("shards", p->total);
    out_number("roots", r->root_count);
    out_number("active", p->active);
    out_number("leased", p->leased);
    out_number("available", c->available);
    out_number("waiting", c->waiting);
    out_number("done", p->done);
    out_number("parked", p->parked);
    out_number("split", p->split);
    out_real("percent", 100 * part_done(r), 1);
    out_bytes("watermark", watermark);
    out_ns("lease", r->config.lease_duration);
    if (r->config.has_max_retries) {
        out_number("max_retries", r->config.max_retries);
    } else {
        out_none("max_retries");
    }
    out_text("semantics", r->config.semantics == RF_DISPATCHED ? "dispatched" : "completed");
    out_time("created_at", r->created_at);
    out_time("completed_at", r->completed_at);
    uint64_t until = r->completed_at != 0 ? r->completed_at : now;
    out_ns("age", until > r->created_at ? until - r->created_at : 0);
    out_inner_begin("operations");
    for (uint32_t i = 0; i < r->ring_count; i++) {
        out_row();
        out_text("op", keep_format("0x%016" PRIx64, r->ring[i].op));
        out_text("kind", run_op_kind_word(r->ring[i].kind));
        out_time("executed_at", r->ring[i].executed_at);
    }
    out_inner_end();
    out_card_end();
}

static int run_show(struct cli *cli)
{
    rf_store *store;
    rf_run_info info;
    rf_progress progress;
    rf_capacity capacity;
    uint64_t run;
    uint8_t *watermark = keep_bytes(RF_KEY_MAX);
    int code = parse_run(cli, &run);
    code = code != EXIT_DONE ? code : open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    uint64_t now = rf_now(store);
    rf_status status = rf_get_run(store, &cli->tenant, run, &info, &cli->detail);
    if (status == RF_OK) {
        status = rf_get_progress(store, now, &cli->tenant, run, &progress, watermark, &cli->detail);
    }
    if (status == RF_OK) {
        status = rf_get_capacity(store, &cli->tenant, run, &capacity, &cli->detail);
    }
    if (status == RF_OK) {
        rf_bytes mark = {progress.has_watermark ? watermark : NULL, progress.watermark_len};
        show_run_card(&info, &progress, &capacity, mark, now);
    }
    rf_close(store);
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &cli->detail, 0, "run %s", id_text(run));
}

const struct command command_run_show = {
    .group = "run",
    .name = "show",
    .synopsis = "DIR RUN",
    .summary = "show a run, its progress and its last 8 operations",
    .text =
        "`watermark` is the smallest cursor key among the active shards that have one. It says nothing "
        "of parked shards and of those that nobody has begun: these may be below it. Reads every "
        "shard of the run.",
    .examples = "ringfence run show ./farm 1",
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .tenant = true,
    .reveals = true,
    .run = run_show,
};

/* --- watch --- */

static const struct option_spec watch_options[] = {
    {"interval", 'i', OPTION_DURATION, "TIME", "how often to look, not below 1ms [200ms]"},
    {"timeout", 0, OPTION_DURATION, "TIME", "give up after this long, exit code 4 [never]"},
    {0},
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

static bool has_ended(const rf_run_info *r)
{
    return r->status > RF_RUN_ACTIVE;
}

/* A line for a program or a log, whenever something has changed. */
static void report_run(const rf_run_info *r)
{
    if (out_is_json()) {
        printf("{\"run\":\"%s\",\"status\":\"%s\",\"shards\":%" PRIu64 ",\"active\":%" PRIu64
               ",\"done\":%" PRIu64 ",\"parked\":%" PRIu64 ",\"split\":%" PRIu64
               ",\"percent\":%.1f}\n",
               id_text(r->run), run_status_word(r->status), r->shard_count, active_shards(r),
               r->done, r->parked, r->split, 100 * part_done(r));
    } else {
        printf("run %s: %s, %" PRIu64 " of %" PRIu64 " done, %" PRIu64 " parked\n", id_text(r->run),
               run_status_word(r->status), r->done, r->shard_count - r->split, r->parked);
    }
    fflush(stdout);
}

static int end_of_watch(const rf_run_info *r)
{
    return r->status == RF_RUN_DONE && r->parked == 0 ? EXIT_DONE : EXIT_INCOMPLETE;
}

static int watch(struct cli *cli, rf_store *store, uint64_t run)
{
    rf_run_info now = {0}, before = {0};
    struct progress_bar bar = {0};
    bool draws = !out_is_json() && stream_width(stdout) > 0, first = true;
    uint64_t interval = arg_number(&cli->args, "interval", 200 * RF_MILLISECOND);
    interval = interval > RF_MILLISECOND ? interval : RF_MILLISECOND;
    uint64_t until = monotonic_after(arg_number(&cli->args, "timeout", UINT64_MAX));
    for (;;) {
        rf_status status = rf_get_run(store, &cli->tenant, run, &now, &cli->detail);
        if (status != RF_OK) {
            bar_clear(&bar, stdout);
            return cli_refuse(status, &cli->detail, 0, "run %s", id_text(run));
        }
        if (draws) {
            bar_draw(&bar, stdout,
                     &(struct bar_state){.run = run,
                                         .whole = now.shard_count - now.split,
                                         .done = now.done,
                                         .parked = now.parked});
        } else if (first || memcmp(&now, &before, sizeof(now)) != 0) {
            report_run(&now);
        }
        before = now;
        first = false;
        uint64_t at = monotonic_ns();
        if (has_ended(&now) || interrupted || at >= until) {
            break;
        }
        sleep_ns(until - at < interval ? until - at : interval);
    }
    if (draws) {
        bar_clear(&bar, stdout);
        report_run(&now);
    }
    return has_ended(&now) ? end_of_watch(&now)
           : interrupted   ? EXIT_INTERRUPTED
                           : EXIT_NONE_AVAILABLE;
}

static int run_watch(struct cli *cli)
{
    rf_store *store;
    uint64_t run;
    int code = parse_run(cli, &run);
    code = code != EXIT_DONE ? code : open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    code = watch(cli, store, run);
    rf_close(store);
    return code;
}

const struct command command_run_watch = {
    .group = "run",
    .name = "watch",
    .synopsis = "DIR RUN",
    .summary = "follow a run until it ends",
    .text =
        "Draws a bar on a terminal; otherwise prints a line whenever something has changed. The "
        "exit code is 0 if the run is done and nothing is parked, 1 if it ended in another way.",
    .examples = "ringfence run watch ./farm 1",
    .options = watch_options,
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .tenant = true,
    .run = run_watch,
};

/* --- ending --- */

static const struct option_spec end_options[] = {
    {"op", 0, OPTION_NUMBER, "ID", "the op id: repeating a command with the same one is harmless"},
    {0},
};

typedef rf_status end_call(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           uint64_t op, rf_result *result);

static rf_status purge_call(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                            uint64_t op, rf_result *result)
{
    (void)op;
    rf_status status = rf_purge_run(store, now, tenant, run, result);
    if (status == RF_OK) {
        rf_tend(store, now); /* takes the run apart, so that its room is there when we are gone */
    }
    return status;
}

static int end_run(struct cli *cli, end_call *call)
{
    rf_store *store;
    rf_result result = {0};
    uint64_t run;
    int code = parse_run(cli, &run);
    code = code != EXIT_DONE ? code : open_to_work(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    uint64_t op = arg_number(&cli->args, "op", rf_new_op(store));
    rf_status status = call(store, rf_now(store), &cli->tenant, run, op, &result);
    rf_close(store);
    if (status == RF_WRONG_STATUS && call == purge_call) {
        return cli_fail(EXIT_REFUSED,
                        "run %s has not ended; end it first: `ringfence run complete`, fail or "
                        "cancel",
                        id_text(run));
    }
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &result.detail, 0, "run %s", id_text(run));
}

static int run_complete(struct cli *cli)
{
    return end_run(cli, rf_complete_run);
}

static int run_fail(struct cli *cli)
{
    return end_run(cli, rf_fail_run);
}

static int run_cancel(struct cli *cli)
{
    return end_run(cli, rf_cancel_run);
}

static int run_purge(struct cli *cli)
{
    return end_run(cli, purge_call);
}

#define ENDING(verb, what, more)                                                                   \
    const struct command command_run_##verb = {                                                    \
        .group = "run",                                                                            \
        .name = #verb,                                                                             \
        .synopsis = "DIR RUN",                                                                     \
        .summary = what,                                                                           \
        .text = more,                                                                              \
        .examples = "ringfence run " #verb " ./farm 1",                                            \
        .options = end_options,                                                                    \
        .min_words = 2,                                                                            \
        .max_words = 2,                                                                            \
        .tenant = true,                                                                            \
        .run = run_##verb,                                                                         \
    }

ENDING(complete, "end a run as done",
       "Nothing of the run can be claimed afterwards, and its waiting workers go home. Shards that "
       "are not done stay as they are.");
ENDING(fail, "end a run as failed", "As complete, with another verdict.");
ENDING(
    cancel, "end a run that is not wanted any more",
    "As complete, with another verdict; a run that has no shards yet can only be ended this way.");

static const struct option_spec purge_options[] = {{0}};

const struct command command_run_purge = {
    .group = "run",
    .name = "purge",
    .synopsis = "DIR RUN",
    .summary = "remove a run that has ended, and give its room back",
    .text = "Fences of its shards are never used again, not even by a run with the same number.",
    .examples = "ringfence run purge ./farm 1",
    .options = purge_options,
    .min_words = 2,
    .max_words = 2,
    .tenant = true,
    .run = run_purge,
};
