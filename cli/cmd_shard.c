/* shard list, show, split, park, unpark. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"
#include "lease_token.h"

static int parse_ids(const struct cli *cli, uint64_t *run, uint64_t *shard)
{
    const struct args *a = &cli->args;
    int code = read_id("RUN", a->words[1], run);
    return code != EXIT_DONE || shard == NULL ? code : read_id("SHARD", a->words[2], shard);
}

/* --- list --- */

static const struct option_spec list_options[] = {
    {"only", 'o', OPTION_TEXT, "WORD", "all, active, available, parked or roots [all]"},
    {"limit", 'n', OPTION_NUMBER, "N", "stop after so many"},
    {0},
};

static bool parse_filter(const char *word, rf_filter *filter)
{
    static const char *const words[] = {"all", "active", "available", "parked", "roots"};
    for (unsigned i = 0; i < 5; i++) {
        if (strcmp(word, words[i]) == 0) {
            *filter = (rf_filter)i;
            return true;
        }
    }
    return false;
}

struct listing {
    uint64_t now;
    uint64_t left;
};

static bool show_shard_row(void *context, const rf_shard_info *s)
{
    struct listing *list = context;
    const char *word = shard_status_word(s->status);
    if (list->left == 0) {
        return false;
    }
    list->left--;
    out_row();
    out_id("shard", s->shard);
    out_word("status", word, status_colour(word));
    out_text("reason", s->has_reason ? park_reason_word(s->reason) : "");
    out_bytes("start", s->spec.start);
    out_bytes("end", s->spec.end);
    out_bytes("cursor_key", s->cursor.key);
    if (s->leased) {
        out_id("worker", s->owner);
    } else {
        out_none("worker");
    }
    out_number("fence", s->fence);
    if (s->leased && s->deadline > list->now) {
        out_ns("lease_left", s->deadline - list->now);
    } else if (out_is_json()) {
        out_none("lease_left_ns");
    } else {
        out_text("lease_left", s->leased ? "expired" : "-");
    }
    out_number("attempts", s->attempts);
    return true;
}

static int run_list(struct cli *cli)
{
    rf_store *store;
    rf_filter filter;
    uint64_t run;
    if (!parse_filter(arg_text(&cli->args, "only", "all"), &filter)) {
        return cli_fail(EXIT_USAGE, "--only is all, active, available, parked or roots");
    }
    int code = parse_ids(cli, &run, NULL);
    code = code != EXIT_DONE ? code : open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    struct listing list = {.now = rf_now(store),
                           .left = arg_number(&cli->args, "limit", UINT64_MAX)};
    out_list_begin();
    rf_status status = rf_list_shards(store, list.now, &cli->tenant, run, filter, show_shard_row,
                                      &list, &cli->detail);
    out_list_end();
    rf_close(store);
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &cli->detail, 0, "run %s", id_text(run));
}

const struct command command_shard_list = {
    .group = "shard",
    .name = "list",
    .synopsis = "DIR RUN [--only WORD]",
    .summary = "list the shards of a run, by their ranges",
    .text =
        "A split is one moment: a shard and those it was split into are never both shown as "
        "active. `fence` rises with every grant; `attempts` counts grants since the last progress.",
    .examples = "ringfence shard list ./farm 1 --only parked\n"
                "ringfence shard list ./farm 1 --json --reveal | jq -r .start",
    .options = list_options,
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .tenant = true,
    .reveals = true,
    .run = run_list,
};

/* --- show --- */

static void show_card(const rf_shard_info *s, uint64_t run, uint64_t now)
{
    const char *word = shard_status_word(s->status);
    out_card_begin();
    out_id("run", run);
    out_id("shard", s->shard);
    out_word("status", word, status_colour(word));
    if (s->has_reason) {
        out_text("reason", park_reason_word(s->reason));
    }
    out_bytes("start", s->spec.start);
    out_bytes("end", s->spec.end);
    out_bytes("metadata", s->spec.metadata);
    out_bytes("cursor_key", s->cursor.key);
    out_bytes("cursor_token", s->cursor.token);
    out_text("semantics", s->semantics == RF_DISPATCHED ? "dispatched" : "completed");
    out_number("fence", s->fence);
    out_flag("leased", s->leased && s->deadline > now);
    if (s->leased) {
        out_id("worker", s->owner);
        out_time("deadline", s->deadline);
    }
    out_number("attempts", s->attempts);
    out_number("version", s->version);
    if (s->has_parent) {
        out_id("parent", s->parent);
    }
    out_ids("spawned", s->spawned, s->spawned_count);
    out_inner_begin("operations");
    for (uint32_t i = 0; i < s->ring_count; i++) {
        const rf_ring_entry *e = &s->ring[i];
        out_row();
        out_text("op", keep_format("0x%016" PRIx64, e->op));
        out_text("kind", op_kind_word(e->kind));
        out_time("executed_at", e->executed_at);
        out_ns("ago", now > e->executed_at ? now - e->executed_at : 0);
    }
    out_inner_end();
    out_card_end();
}

static int run_show(struct cli *cli)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_store *store;
    rf_shard_info info;
    uint64_t run, shard;
    int code = parse_ids(cli, &run, &shard);
    code = code != EXIT_DONE ? code : open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_get_shard(store, &cli->tenant, run, shard, &info, scratch,
                                    sizeof(scratch), &cli->detail);
    if (status == RF_OK) {
        show_card(&info, run, rf_now(store));
    }
    rf_close(store);
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &cli->detail, 0, "shard %s of run %s",
                                        id_text(shard), id_text(run));
}

const struct command command_shard_show = {
    .group = "shard",
    .name = "show",
    .synopsis = "DIR RUN SHARD",
    .summary = "show a shard and its last 16 operations",
    .examples = "ringfence shard show ./farm 1 17 --reveal",
    .min_words = 3,
    .max_words = 3,
    .prints = true,
    .tenant = true,
    .reveals = true,
    .run = run_show,
};

/* --- a lease for a moment --- */

/* What an operator does to a shard needs its lease: the one that was given, or one that is taken
 * now and ends with the command. */
struct holding {
    rf_store *store;
    rf_tenant tenant;
    rf_grant grant;
    bool taken;
};

static bool is_same_place(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int hold(struct cli *cli, struct holding *h)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    uint64_t run, shard;
    rf_result result = {0};
    const char *text = arg_text(&cli->args, "lease", NULL);
    int code = parse_ids(cli, &run, &shard);
    code = code != EXIT_DONE ? code : open_to_work(cli, cli->args.words[0], &h->store);
    if (code != EXIT_DONE) {
        return code;
    }
    uint64_t now = rf_now(h->store);
    h->tenant = cli->tenant;
    h->grant = (rf_grant){.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_status status;
    if (text != NULL) {
        struct lease_token token;
        rf_shard_info info;
        code = parse_lease(text, &token);
        if (code == EXIT_DONE && !is_same_place(token.store, store_directory(cli->args.words[0]))) {
            code = cli_fail(EXIT_USAGE, "the lease is of another store, %s", token.store);
        }
        if (code == EXIT_DONE && (token.lease.run != run || token.lease.shard != shard)) {
            code = cli_fail(EXIT_USAGE, "the lease is on another shard, %s of run %s",
                            id_text(token.lease.shard), id_text(token.lease.run));
        }
        if (code != EXIT_DONE) {
            rf_close(h->store);
            return code;
        }
        h->tenant = token.tenant;
        status = rf_get_shard(h->store, &h->tenant, run, shard, &info, scratch, sizeof(scratch),
                              &result.detail);
        if (status == RF_OK) {
            h->grant.lease = token.lease;
            h->grant.spec = info.spec;
            h->grant.cursor = info.cursor;
        }
    } else {
        status = rf_acquire(h->store, now, &h->tenant, run, shard, (uint64_t)getpid(), RF_BOUND,
                            &h->grant, &result);
        h->taken = status == RF_OK;
    }
    if (status != RF_OK) {
        rf_close(h->store);
        return cli_refuse(status, &result.detail, now, "shard %s of run %s", id_text(shard),
                          id_text(run));
    }
    return EXIT_DONE;
}

static int let_go(struct holding *h, rf_status status, const rf_result *result)
{
    uint64_t now = rf_now(h->store);
    rf_close(h->store); /* gives up a lease that is still held */
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &result->detail, now, "shard %s of run %s",
                                        id_text(h->grant.lease.shard), id_text(h->grant.lease.run));
}

/* --- split --- */

static const struct option_spec split_options[] = {
    {"at", 0, OPTION_LIST, "KEY", "cut here; may be given several times"},
    {"parts", 'p', OPTION_NUMBER, "N", "or cut what is left into N parts of about the same width"},
    {"residual", 0, OPTION_FLAG, NULL, "keep the shard, and split off what lies behind one --at"},
    {"lease", 0, OPTION_TEXT, "LEASE", "the lease that is held on it; otherwise one is taken"},
    {0},
};

/* Cuts (low, high) in `parts`, adding parts - 1 points in order; fewer if nothing fits between. */
static void cut_evenly(rf_bytes low, rf_bytes high, uint64_t parts, rf_bytes *points, uint32_t *n)
{
    size_t len;
    uint8_t *middle = keep_bytes(RF_KEY_MAX);
    if (parts < 2 || rf_key_midpoint(low, high, middle, &len) != RF_OK) {
        return;
    }
    rf_bytes point = {middle, len};
    cut_evenly(low, point, parts / 2, points, n);
    points[(*n)++] = point;
    cut_evenly(point, high, parts - parts / 2, points, n);
}

static int compare_points(const void *a, const void *b)
{
    return rf_key_compare(*(const rf_bytes *)a, *(const rf_bytes *)b);
}

/* Points in order. A cut at an end of the range would leave nothing on one side of it. */
static int check_points(const rf_spec *spec, const rf_bytes *points, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool above = rf_key_compare(spec->start, points[i]) < 0;
        bool below = spec->end.len == 0 || rf_key_compare(points[i], spec->end) < 0;
        if (!above || !below) {
            return cli_fail(EXIT_REFUSED,
                            "--at is not inside the shard's range: it is %s; `ringfence shard show "
                            "--reveal` shows the range",
                            above ? "not below its end" : "not above its start");
        }
        if (i != 0 && rf_key_compare(points[i - 1], points[i]) == 0) {
            return cli_fail(EXIT_USAGE, "the same --at was given twice");
        }
    }
    return EXIT_DONE;
}

static int read_points(const struct args *args, const rf_grant *g, rf_bytes *points, uint32_t *n)
{
    uint64_t parts = arg_number(args, "parts", 0);
    *n = 0;
    if (parts != 0) {
        if (parts < RF_SPLIT_CHILDREN_MIN || parts > RF_SPLIT_CHILDREN_MAX) {
            return cli_fail(EXIT_USAGE, "--parts is %u to %u", RF_SPLIT_CHILDREN_MIN,
                            RF_SPLIT_CHILDREN_MAX);
        }
        bool begun = g->cursor.key.data != NULL;
        cut_evenly(begun ? g->cursor.key : g->spec.start, g->spec.end, parts, points, n);
        return *n != 0 ? EXIT_DONE : cli_fail(EXIT_REFUSED, "nothing is left to cut");
    }
    for (const char *at; (at = arg_each(args, "at", (int)*n)) != NULL; (*n)++) {
        if (*n == RF_SPLIT_CHILDREN_MAX - 1) {
            return cli_fail(EXIT_USAGE, "at most %u --at", RF_SPLIT_CHILDREN_MAX - 1);
        }
        if (!parse_bytes(at, &points[*n])) {
            return cli_fail(EXIT_USAGE, "--at wants text with %% written %%25, or hex: and digits");
        }
    }
    if (*n == 0) {
        return cli_fail(EXIT_USAGE, "say where: --at KEY or --parts N");
    }
    qsort(points, *n, sizeof(points[0]), compare_points);
    return check_points(&g->spec, points, *n);
}

static void show_split(uint64_t shard, const uint64_t *ids, uint32_t count)
{
    out_card_begin();
    out_id("shard", shard);
    out_ids("shards", ids, count);
    out_card_end();
}

/* The part that holds the cursor takes it over; nothing may be cut off below it, or it would be
 * done again. */
static rf_status split_whole(struct holding *h, const rf_bytes *points, uint32_t n, uint64_t *ids,
                             rf_result *result)
{
    static rf_child children[RF_SPLIT_CHILDREN_MAX];
    rf_status status = rf_plan_replace(h->grant.spec, points, n, children, &result->detail);
    if (status == RF_OK && h->grant.cursor.key.data != NULL) {
        if (rf_key_compare(points[0], h->grant.cursor.key) <= 0) {
            return RF_CURSOR_REGRESSION;
        }
        children[0].cursor = h->grant.cursor;
    }
    return status != RF_OK
               ? status
               : rf_split_replace(h->store, rf_now(h->store), &h->tenant, &h->grant.lease, children,
                                  n + 1, rf_new_op(h->store), ids, result);
}

static rf_status split_off(struct holding *h, rf_bytes point, uint64_t *id, rf_result *result)
{
    rf_spec kept, residual;
    rf_status status = rf_plan_residual_at(h->grant.spec, point, &kept, &residual, &result->detail);
    return status != RF_OK
               ? status
               : rf_split_residual(h->store, rf_now(h->store), &h->tenant, &h->grant.lease, &kept,
                                   &residual, rf_new_op(h->store), id, result);
}

static int run_split(struct cli *cli)
{
    struct holding h = {0};
    rf_bytes points[RF_SPLIT_CHILDREN_MAX];
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
    rf_result result = {0};
    uint32_t n;
    bool residual = arg_given(&cli->args, "residual");
    if (arg_given(&cli->args, "at") && arg_given(&cli->args, "parts")) {
        return cli_fail(EXIT_USAGE, "say where to cut with --at or with --parts, not with both");
    }
    int code = hold(cli, &h);
    if (code != EXIT_DONE) {
        return code;
    }
    code = read_points(&cli->args, &h.grant, points, &n);
    if (code == EXIT_DONE && residual && n != 1) {
        code = cli_fail(EXIT_USAGE, "--residual cuts in two: one --at, or --parts 2");
    }
    if (code != EXIT_DONE) {
        rf_close(h.store);
        return code;
    }
    rf_status status = residual ? split_off(&h, points[0], ids, &result)
                                : split_whole(&h, points, n, ids, &result);
    if (status == RF_OK) {
        show_split(h.grant.lease.shard, ids, residual ? 1 : n + 1);
    }
    return let_go(&h, status, &result);
}

const struct command command_shard_split = {
    .group = "shard",
    .name = "split",
    .synopsis = "DIR RUN SHARD --at KEY | --parts N [--residual]",
    .summary = "split a shard",
    .text =
        "Replaces a shard by shards that cover exactly its range; what was done stays done. With "
        "--residual the shard goes on with the first part, and the rest becomes a new shard. A "
        "shard that somebody else holds is not touched (exit code 8); its holder can split it "
        "with --lease.",
    .examples = "ringfence shard split ./farm 1 17 --parts 4\n"
                "ringfence shard split ./farm 1 17 --at m --residual --lease \"$RINGFENCE_LEASE\"",
    .options = split_options,
    .min_words = 3,
    .max_words = 3,
    .prints = true,
    .tenant = true,
    .run = run_split,
};

/* --- park --- */

static const struct option_spec park_options[] = {
    {"reason", 'r', OPTION_TEXT, "WORD",
     "permission-denied, not-found, poisoned, too-many-errors or other [other]"},
    {"lease", 0, OPTION_TEXT, "LEASE", "the lease that is held on it; otherwise one is taken"},
    {0},
};

static int run_park(struct cli *cli)
{
    struct holding h = {0};
    rf_park_reason reason;
    rf_result result = {0};
    const char *word = arg_text(&cli->args, "reason", "other");
    if (!parse_park_reason(word, &reason)) {
        return cli_fail(EXIT_USAGE, "there is no reason called %s; see --help", word);
    }
    int code = hold(cli, &h);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_park(h.store, rf_now(h.store), &h.tenant, &h.grant.lease, reason,
                               rf_new_op(h.store), &result);
    return let_go(&h, status, &result);
}

const struct command command_shard_park = {
    .group = "shard",
    .name = "park",
    .synopsis = "DIR RUN SHARD [--reason WORD]",
    .summary = "set a shard aside, so that nobody claims it",
    .text = "A shard that somebody else holds is not touched (exit code 8).",
    .examples = "ringfence shard park ./farm 1 17 --reason poisoned",
    .options = park_options,
    .min_words = 3,
    .max_words = 3,
    .tenant = true,
    .run = run_park,
};

/* --- unpark --- */

static const struct option_spec unpark_options[] = {
    {"all", 'a', OPTION_FLAG, NULL, "every parked shard of the run"},
    {"reason", 'r', OPTION_TEXT, "WORD", "with --all: only those parked for this reason"},
    {0},
};

struct parked {
    uint64_t *ids;
    size_t count;
    size_t room;
    bool any_reason;
    rf_park_reason reason;
};

static bool gather_parked(void *context, const rf_shard_info *s)
{
    struct parked *p = context;
    if (!p->any_reason && s->reason != p->reason) {
        return true;
    }
    if (p->count == p->room) {
        p->room = p->room == 0 ? 256 : 2 * p->room;
        uint64_t *more = keep_bytes(p->room * sizeof(*more));
        if (p->count != 0) {
            memcpy(more, p->ids, p->count * sizeof(*more));
        }
        p->ids = more;
    }
    p->ids[p->count++] = s->shard;
    return true;
}

static int read_parked(struct cli *cli, rf_store *store, uint64_t run, struct parked *p)
{
    const char *word = arg_text(&cli->args, "reason", NULL);
    p->any_reason = word == NULL;
    if (cli->args.word_count == 3) {
        p->ids = keep_bytes(sizeof(uint64_t));
        p->count = 1;
        return parse_ids(cli, &run, p->ids);
    }
    if (word != NULL && !parse_park_reason(word, &p->reason)) {
        return cli_fail(EXIT_USAGE, "there is no reason called %s", word);
    }
    rf_status status = rf_list_shards(store, rf_now(store), &cli->tenant, run, RF_LIST_PARKED,
                                      gather_parked, p, &cli->detail);
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &cli->detail, 0, "run %s", id_text(run));
}

static int run_unpark(struct cli *cli)
{
    rf_store *store;
    struct parked p = {0};
    uint64_t run, unparked = 0;
    rf_result result = {0};
    if ((cli->args.word_count == 3) == arg_given(&cli->args, "all")) {
        return cli_fail(EXIT_USAGE, "name a SHARD, or say --all");
    }
    if (cli->args.word_count == 3 && arg_given(&cli->args, "reason")) {
        return cli_fail(EXIT_USAGE, "--reason belongs to --all");
    }
    int code = parse_ids(cli, &run, NULL);
    code = code != EXIT_DONE ? code : open_to_work(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    code = read_parked(cli, store, run, &p);
    for (size_t i = 0; i < p.count && code == EXIT_DONE; i++) {
        rf_status status =
            rf_unpark(store, rf_now(store), &cli->tenant, run, p.ids[i], rf_new_op(store), &result);
        if (status == RF_NOT_PARKED && cli->args.word_count == 2) {
            continue; /* somebody else was faster */
        }
        if (status != RF_OK) {
            code = cli_refuse(status, &result.detail, 0, "shard %s of run %s", id_text(p.ids[i]),
                              id_text(run));
            break;
        }
        unparked++;
    }
    rf_close(store);
    if (code == EXIT_DONE) {
        out_card_begin();
        out_number("unparked", unparked);
        out_card_end();
    }
    return code;
}

const struct command command_shard_unpark = {
    .group = "shard",
    .name = "unpark",
    .synopsis = "DIR RUN SHARD | --all [--reason WORD]",
    .summary = "make parked shards claimable again",
    .text = "A shard goes on behind its cursor, with a new fence.",
    .examples = "ringfence shard unpark ./farm 1 17\n"
                "ringfence shard unpark ./farm 1 --all --reason too-many-errors",
    .options = unpark_options,
    .min_words = 2,
    .max_words = 3,
    .prints = true,
    .tenant = true,
    .run = run_unpark,
};
