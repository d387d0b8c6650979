/* claim, renew, checkpoint, complete, park, release: shards for scripts. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "lease_token.h"

/* --- claim --- */

static const struct option_spec claim_options[] = {
    {"wait", 'w', OPTION_TEXT, "TIME", "wait for a shard: a duration, or forever [do not wait]"},
    {"worker", 0, OPTION_NUMBER, "N",
     "who claims; it also says where to look first [parent's pid]"},
    {"shard", 0, OPTION_NUMBER, "ID", "this shard and no other"},
    {"env", 0, OPTION_FLAG, NULL, "print exports for a shell, with the range and the cursor"},
    {0},
};

static int parse_wait(const struct args *args, uint64_t *wait)
{
    const char *text = arg_text(args, "wait", "0");
    if (strcmp(text, "forever") == 0) {
        *wait = RF_FOREVER;
    } else if (!parse_duration(text, wait)) {
        return cli_fail(EXIT_USAGE, "--wait wants a duration such as 30s, or forever");
    }
    return EXIT_DONE;
}

static void assign(const char *name, const char *value)
{
    printf("export RINGFENCE_%s=%s\n", name, value[0] == 0 ? "" : shell_word(value));
}

static void print_assignments(const char *token, const rf_grant *g)
{
    rf_bytes path = {0};
    assign("LEASE", token);
    parse_bytes(strchr(token, '@') + 1, &path); /* absolute, for whoever goes elsewhere */
    assign("STORE", path.data);
    assign("RUN", id_text(g->lease.run));
    assign("SHARD", id_text(g->lease.shard));
    assign("FENCE", keep_format("%" PRIu64, g->lease.fence));
    assign("START", bytes_text(g->spec.start));
    assign("END", bytes_text(g->spec.end));
    assign("METADATA", bytes_text(g->spec.metadata));
    assign("CURSOR_KEY", bytes_text(g->cursor.key));
    assign("CURSOR_TOKEN", bytes_text(g->cursor.token));
}

static void show_grant(const char *token, const rf_grant *g, const rf_result *r, uint64_t now)
{
    out_card_begin();
    out_text("lease", token);
    out_id("run", g->lease.run);
    out_id("shard", g->lease.shard);
    out_id("worker", g->lease.worker);
    out_number("fence", g->lease.fence);
    out_time("deadline", g->lease.deadline);
    out_ns("left", g->lease.deadline > now ? g->lease.deadline - now : 0);
    out_number("attempts", g->attempts);
    out_bytes("start", g->spec.start);
    out_bytes("end", g->spec.end);
    out_bytes("metadata", g->spec.metadata);
    out_bytes("cursor_key", g->cursor.key);
    out_bytes("cursor_token", g->cursor.token);
    out_number("available", r->capacity.available);
    out_card_end();
}

static int print_grant(const struct args *a, const char *token, const rf_grant *g,
                       const rf_result *r, uint64_t now)
{
    signal(SIGPIPE, SIG_IGN); /* nobody reads it: an error like any other */
    if (arg_given(a, "env")) {
        print_assignments(token, g);
    } else if (out_is_json()) {
        show_grant(token, g, r, now);
    } else {
        printf("%s\n", token);
    }
    return fflush(stdout) == 0 && !ferror(stdout)
               ? EXIT_DONE
               : cli_fail(EXIT_IO, "the lease could not be printed: the shard is given back");
}

/* The cooldown of a worker is waited for as a shard is, if it ends in time. */
static rf_status claim_in_time(struct cli *cli, rf_store *store, uint64_t run, uint64_t worker,
                               uint64_t wait, rf_grant *grant, rf_result *result)
{
    uint64_t until = monotonic_after(wait);
    for (;;) {
        uint64_t now = monotonic_ns(), left = until > now ? until - now : 0;
        rf_status status = rf_claim(store, rf_now(store), &cli->tenant, run, worker, RF_DETACHED,
                                    left, grant, result);
        if (status != RF_THROTTLED || result->detail.retry_after >= left) {
            return status;
        }
        sleep_ns(result->detail.retry_after);
    }
}

static int run_claim(struct cli *cli)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    const struct args *a = &cli->args;
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    rf_store *store;
    uint64_t run, wait, worker = arg_number(a, "worker", (uint64_t)getppid());
    int code = read_id("RUN", a->words[1], &run);
    code = code != EXIT_DONE ? code : parse_wait(a, &wait);
    code = code != EXIT_DONE ? code : open_to_work(cli, a->words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status =
        arg_given(a, "shard")
            ? rf_acquire(store, rf_now(store), &cli->tenant, run, arg_number(a, "shard", 0), worker,
                         RF_DETACHED, &grant, &result)
            : claim_in_time(cli, store, run, worker, wait, &grant, &result);
    uint64_t now = rf_now(store);
    if (status != RF_OK) {
        rf_close(store);
        return cli_refuse(status, &result.detail, now, "run %s", id_text(run));
    }
    const char *token = format_lease(a->words[0], &cli->tenant, &grant.lease);
    code = token != NULL ? print_grant(a, token, &grant, &result, now)
                         : cli_fail(EXIT_IO, "the store's directory has gone");
    if (code != EXIT_DONE) { /* a lease that nobody knows would only be in the way */
        rf_release(store, rf_now(store), &cli->tenant, &grant.lease, NULL, rf_new_op(store), NULL);
    }
    rf_close(store);
    return code;
}

const struct command command_claim = {
    .name = "claim",
    .synopsis = "DIR RUN [options]",
    .summary = "take a lease on a shard and print it",
    .text =
        "Prints the lease as one word, which the commands renew, checkpoint, complete, park and "
        "release take as their argument or from $RINGFENCE_LEASE. It is good until its deadline, "
        "whichever process presents it: renew it in time. --wait also waits for the end of a cooldown "
        "(`ringfence init --claim-cooldown`). Exit codes: 4 if there is nothing to claim, 7 if the run "
        "has ended.\n"
        "--env prints lines for eval: RINGFENCE_LEASE, _STORE, _RUN, _SHARD, _FENCE, _START, "
        "_END, _METADATA, _CURSOR_KEY, _CURSOR_TOKEN, encoded as all keys are; the store is a path. Mark what you "
        "write with the fence, and let the larger one win.",
    .examples = "lease=$(ringfence claim ./farm 1 --wait 10s) || exit\n"
                "ringfence checkpoint \"$lease\" --key path/to/file\n"
                "ringfence complete \"$lease\"\n"
                "eval \"$(ringfence claim --env ./farm 1)\" && ringfence release",
    .options = claim_options,
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .tenant = true,
    .reveals = true,
    .run = run_claim,
};

/* --- with a lease --- */

static int open_lease(struct cli *cli, struct lease_token *token, rf_store **store)
{
    const char *text = cli->args.word_count > 0 ? cli->args.words[0] : getenv("RINGFENCE_LEASE");
    int code = parse_lease(text, token);
    return code != EXIT_DONE ? code : open_to_work(cli, token->store, store);
}

static int refuse_lease(rf_status status, const rf_result *result, uint64_t now,
                        const struct lease_token *token)
{
    return cli_refuse(status, &result->detail, now, "shard %s of run %s",
                      id_text(token->lease.shard), id_text(token->lease.run));
}

static int run_renew(struct cli *cli)
{
    struct lease_token token;
    rf_result result = {0};
    rf_store *store;
    int code = open_lease(cli, &token, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    uint64_t now = rf_now(store);
    rf_status status = rf_renew(store, now, &token.tenant, &token.lease, &result);
    rf_close(store);
    if (status != RF_OK) {
        return refuse_lease(status, &result, now, &token);
    }
    const char *text = format_lease(token.store, &token.tenant, &token.lease);
    text = text == NULL ? "" : text;
    if (!out_is_json()) {
        printf("%s\n", text);
    } else {
        out_card_begin();
        out_text("lease", text);
        out_time("deadline", token.lease.deadline);
        out_ns("left", token.lease.deadline > now ? token.lease.deadline - now : 0);
        out_text("run_status", run_status_word(result.run_status));
        out_number("available", result.capacity.available);
        out_number("waiting", result.capacity.waiting);
        out_card_end();
    }
    return result.run_status > RF_RUN_ACTIVE ? EXIT_RUN_ENDED : EXIT_DONE;
}

const struct command command_renew = {
    .name = "renew",
    .synopsis = "[LEASE]",
    .summary = "move a lease's deadline to one lease duration from now",
    .text =
        "Prints the lease with its new deadline; the old word stays good as well. Exit codes: 5 if "
        "the lease was lost, 6 if it has expired, 7 if it was renewed but its run has ended.",
    .examples = "ringfence renew \"$lease\"",
    .min_words = 0,
    .max_words = 1,
    .prints = true,
    .run = run_renew,
};

static const struct option_spec cursor_options[] = {
    {"key", 'k', OPTION_KEY, "KEY", "the last key that is done"},
    {"token", 0, OPTION_KEY, "TOKEN", "bytes of your own, given back with the cursor"},
    {"op", 0, OPTION_NUMBER, "ID", "the op id: repeating a command with the same one is harmless"},
    {0},
};

static rf_cursor read_cursor(const struct args *args)
{
    rf_cursor cursor = {0};
    const char *key = arg_text(args, "key", NULL), *token = arg_text(args, "token", NULL);
    if (key != NULL) {
        parse_bytes(key, &cursor.key); /* was looked at when the arguments were read */
    }
    if (token != NULL) {
        parse_bytes(token, &cursor.token);
    }
    return cursor;
}

enum verb { CHECKPOINT, COMPLETE, RELEASE };

static int report_cursor(struct cli *cli, enum verb verb)
{
    struct lease_token token;
    rf_result result = {0};
    rf_store *store;
    rf_status status = RF_OK;
    rf_cursor cursor = read_cursor(&cli->args);
    int code = open_lease(cli, &token, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    if (verb == COMPLETE && cursor.key.data == NULL) {
        status = last_cursor(store, &token, &cursor, &result.detail);
    }
    uint64_t now = rf_now(store), op = arg_number(&cli->args, "op", rf_new_op(store));
    if (status == RF_OK) {
        status = verb == CHECKPOINT
                     ? rf_checkpoint(store, now, &token.tenant, &token.lease, &cursor, op, &result)
                 : verb == COMPLETE
                     ? rf_complete(store, now, &token.tenant, &token.lease, &cursor, op, &result)
                     : rf_release(store, now, &token.tenant, &token.lease, &cursor, op, &result);
    }
    rf_close(store);
    return status == RF_OK ? EXIT_DONE : refuse_lease(status, &result, now, &token);
}

static int run_checkpoint(struct cli *cli)
{
    return arg_given(&cli->args, "key") ? report_cursor(cli, CHECKPOINT)
                                        : cli_fail(EXIT_USAGE, "--key KEY is needed");
}

static int run_complete(struct cli *cli)
{
    return report_cursor(cli, COMPLETE);
}

static int run_release(struct cli *cli)
{
    return report_cursor(cli, RELEASE);
}

#define REPORT(verb, what, more)                                                                   \
    const struct command command_##verb = {                                                        \
        .name = #verb,                                                                             \
        .synopsis = "[LEASE] [--key KEY] [--token TOKEN]",                                         \
        .summary = what,                                                                           \
        .text = more,                                                                              \
        .examples = "ringfence " #verb " \"$lease\" --key path/to/file",                           \
        .options = cursor_options,                                                                 \
        .min_words = 0,                                                                            \
        .max_words = 1,                                                                            \
        .run = run_##verb,                                                                         \
    }

REPORT(
    checkpoint, "report how far a shard has been worked through",
    "The key is inside the shard's range and never below the one before. Without LEASE it is taken "
    "from $RINGFENCE_LEASE, which `ringfence work` sets. Exit codes: 5 if the lease was lost, 6 "
    "if it has expired.");
REPORT(complete, "report that a shard is done, and end the lease",
       "Without --key the cursor stays where the last checkpoint left it.");
REPORT(release, "give a shard back, for others to claim at once",
       "Without --key the cursor stays where the last checkpoint left it.");

static const struct option_spec park_options[] = {
    {"reason", 'r', OPTION_TEXT, "WORD",
     "permission-denied, not-found, poisoned, too-many-errors or other [other]"},
    {"op", 0, OPTION_NUMBER, "ID", "the op id: repeating a command with the same one is harmless"},
    {0},
};

static int run_park(struct cli *cli)
{
    struct lease_token token;
    rf_result result = {0};
    rf_store *store;
    rf_park_reason reason;
    const char *word = arg_text(&cli->args, "reason", "other");
    if (!parse_park_reason(word, &reason)) {
        return cli_fail(EXIT_USAGE, "there is no reason called %s; see --help", word);
    }
    int code = open_lease(cli, &token, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    uint64_t now = rf_now(store), op = arg_number(&cli->args, "op", rf_new_op(store));
    rf_status status = rf_park(store, now, &token.tenant, &token.lease, reason, op, &result);
    rf_close(store);
    return status == RF_OK ? EXIT_DONE : refuse_lease(status, &result, now, &token);
}

const struct command command_park = {
    .name = "park",
    .synopsis = "[LEASE] [--reason WORD]",
    .summary = "set a shard aside that can't be worked on, and end the lease",
    .text =
        "Nobody gets it before `ringfence shard unpark`. To park a shard without holding a lease, "
        "see `ringfence shard park`.",
    .examples = "ringfence park \"$lease\" --reason not-found",
    .options = park_options,
    .min_words = 0,
    .max_words = 1,
    .run = run_park,
};
