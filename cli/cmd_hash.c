/* hash split-id, hash payload. */
#include <inttypes.h>
#include <string.h>

#include "commands.h"
#include "manifest.h"

static void show_hash(uint64_t value)
{
    if (!out_is_json()) {
        printf("0x%016" PRIx64 "\n", value);
        return;
    }
    out_card_begin();
    out_text("hash", keep_format("0x%016" PRIx64, value));
    out_card_end();
}

/* --- split-id --- */

static const struct option_spec id_options[] = {
    {"run", 0, OPTION_NUMBER, "R", "the run"},
    {"parent", 0, OPTION_NUMBER, "P", "the shard that is split"},
    {"op", 0, OPTION_NUMBER, "O", "the op id of the split"},
    {"kind", 0, OPTION_TEXT, "WORD", "child or residual"},
    {"index", 0, OPTION_NUMBER, "I", "its place among all that were ever split off the parent"},
    {0},
};

static int run_split_id(struct cli *cli)
{
    const struct args *a = &cli->args;
    const char *kind = arg_text(a, "kind", "");
    bool residual = strcmp(kind, "residual") == 0;
    for (const struct option_spec *o = id_options; o->name != NULL; o++) {
        if (!arg_given(a, o->name)) {
            return cli_fail(EXIT_USAGE, "--%s is needed", o->name);
        }
    }
    if (!residual && strcmp(kind, "child") != 0) {
        return cli_fail(EXIT_USAGE, "--kind is child or residual");
    }
    if (arg_number(a, "index", 0) > UINT32_MAX) {
        return cli_fail(EXIT_USAGE, "--index is below 2^32");
    }
    show_hash(rf_split_id(arg_number(a, "run", 0), arg_number(a, "parent", 0),
                          arg_number(a, "op", 0), residual ? RF_RESIDUAL : RF_CHILD,
                          (uint32_t)arg_number(a, "index", 0)));
    return EXIT_DONE;
}

const struct command command_hash_split_id = {
    .group = "hash",
    .name = "split-id",
    .synopsis = "--run R --parent P --op O --kind child|residual --index I",
    .summary = "the id of a shard that a split makes",
    .examples = "ringfence hash split-id --run 1 --parent 100 --op 999 --kind child --index 0",
    .options = id_options,
    .prints = true,
    .run = run_split_id,
};

/* --- payload --- */

static const struct option_spec payload_options[] = {
    {"key", 'k', OPTION_KEY, "KEY", "of checkpoint, complete and release"},
    {"token", 0, OPTION_KEY, "TOKEN", "of the same"},
    {"reason", 0, OPTION_TEXT, "WORD", "of park"},
    {"run", 0, OPTION_NUMBER, "R", "of unpark"},
    {"shard-id", 0, OPTION_NUMBER, "S", "of unpark"},
    {"child", 0, OPTION_LIST, "RANGE", "of split-replace, once a child, in the caller's order"},
    {"parent", 0, OPTION_TEXT, "RANGE", "of split-residual: what the shard keeps"},
    {"residual", 0, OPTION_TEXT, "RANGE", "of split-residual: what is split off"},
    {"shard", 0, OPTION_LIST, "ID,RANGE", "of register and add, once a shard"},
    {0},
};

static int hash_cursor(const struct args *a, uint64_t (*hash)(rf_cursor), uint64_t *value)
{
    rf_cursor cursor = {0};
    const char *key = arg_text(a, "key", NULL), *token = arg_text(a, "token", NULL);
    if (key != NULL) {
        parse_bytes(key, &cursor.key);
    }
    if (token != NULL) {
        parse_bytes(token, &cursor.token);
    }
    *value = hash(cursor);
    return EXIT_DONE;
}

static int bad_range(const char *option)
{
    return cli_fail(EXIT_USAGE,
                    "--%s wants START,END[,METADATA[,KEY[,TOKEN]]], a comma inside "
                    "written %%2C",
                    option);
}

static int hash_children(const struct args *a, uint64_t *value)
{
    static rf_child children[RF_SPLIT_CHILDREN_MAX];
    uint32_t n = 0;
    for (const char *text; (text = arg_each(a, "child", (int)n)) != NULL; n++) {
        if (n == RF_SPLIT_CHILDREN_MAX ||
            !parse_range(text, &children[n].spec, &children[n].cursor)) {
            return bad_range("child");
        }
    }
    *value = rf_hash_split_replace(children, n);
    return EXIT_DONE;
}

static int hash_residual(const struct args *a, uint64_t *value)
{
    rf_spec parent, residual;
    rf_cursor unused;
    if (!parse_range(arg_text(a, "parent", ""), &parent, &unused)) {
        return bad_range("parent");
    }
    if (!parse_range(arg_text(a, "residual", ""), &residual, &unused)) {
        return bad_range("residual");
    }
    *value = rf_hash_split_residual(parent, residual);
    return EXIT_DONE;
}

static int hash_shards(const struct args *a, bool add, uint64_t *value)
{
    static rf_shard_input shards[256];
    static uint32_t order[2 * 256];
    uint32_t n = 0;
    for (const char *text; (text = arg_each(a, "shard", (int)n)) != NULL; n++) {
        const char *comma = strchr(text, ',');
        char *id = keep_text(text);
        id[comma == NULL ? 0 : comma - text] = 0;
        if (n == 256 || comma == NULL || !parse_number(id, &shards[n].shard) ||
            !parse_range(comma + 1, &shards[n].spec, &shards[n].cursor)) {
            return cli_fail(EXIT_USAGE, "--shard wants ID,START,END[,METADATA[,KEY[,TOKEN]]]");
        }
    }
    *value = add ? rf_hash_add(shards, n, order) : rf_hash_register(shards, n, order);
    return EXIT_DONE;
}

static int hash_park(const struct args *a, uint64_t *value)
{
    rf_park_reason reason;
    if (!parse_park_reason(arg_text(a, "reason", ""), &reason)) {
        return cli_fail(EXIT_USAGE, "--reason is permission-denied, not-found, poisoned, "
                                    "too-many-errors or other");
    }
    *value = rf_hash_park(reason);
    return EXIT_DONE;
}

/* Which options an operation has; a hash of something else than was meant would help nobody. */
static const struct {
    const char *op;
    const char *needs[3];
    const char *takes[3];
} operations[] = {
    {"checkpoint", {0}, {"key", "token"}},
    {"complete", {0}, {"key", "token"}},
    {"release", {0}, {"key", "token"}},
    {"park", {"reason"}, {0}},
    {"complete-run", {0}, {0}},
    {"fail-run", {0}, {0}},
    {"cancel-run", {0}, {0}},
    {"unpark", {"run", "shard-id"}, {0}},
    {"split-replace", {"child"}, {0}},
    {"split-residual", {"parent", "residual"}, {0}},
    {"register", {"shard"}, {0}},
    {"add", {"shard"}, {0}},
};

static bool among(const char *const *names, const char *name)
{
    for (; *names != NULL; names++) {
        if (strcmp(*names, name) == 0) {
            return true;
        }
    }
    return false;
}

static int check_payload_options(const struct args *a, const char *op)
{
    for (unsigned i = 0; i < sizeof(operations) / sizeof(operations[0]); i++) {
        if (strcmp(operations[i].op, op) != 0) {
            continue;
        }
        for (const struct option_spec *o = payload_options; o->name != NULL; o++) {
            bool needed = among(operations[i].needs, o->name), given = arg_given(a, o->name);
            if (needed && !given) {
                return cli_fail(EXIT_USAGE, "%s needs --%s", op, o->name);
            }
            if (given && !needed && !among(operations[i].takes, o->name)) {
                return cli_fail(EXIT_USAGE, "%s has no --%s; see --help", op, o->name);
            }
        }
        return EXIT_DONE;
    }
    return cli_fail(EXIT_USAGE, "there is no operation called %s; see --help", op);
}

static int run_payload(struct cli *cli)
{
    const struct args *a = &cli->args;
    const char *op = a->words[0];
    uint64_t value = 0;
    int code = check_payload_options(a, op);
    if (code != EXIT_DONE) {
        return code;
    }
    if (strcmp(op, "checkpoint") == 0) {
        code = hash_cursor(a, rf_hash_checkpoint, &value);
    } else if (strcmp(op, "complete") == 0) {
        code = hash_cursor(a, rf_hash_complete, &value);
    } else if (strcmp(op, "release") == 0) {
        code = hash_cursor(a, rf_hash_release, &value);
    } else if (strcmp(op, "park") == 0) {
        code = hash_park(a, &value);
    } else if (strcmp(op, "complete-run") == 0) {
        value = rf_hash_run_op(RF_RUN_OP_COMPLETE);
    } else if (strcmp(op, "fail-run") == 0) {
        value = rf_hash_run_op(RF_RUN_OP_FAIL);
    } else if (strcmp(op, "cancel-run") == 0) {
        value = rf_hash_run_op(RF_RUN_OP_CANCEL);
    } else if (strcmp(op, "unpark") == 0) {
        value = rf_hash_unpark(arg_number(a, "run", 0), arg_number(a, "shard-id", 0));
    } else if (strcmp(op, "split-replace") == 0) {
        code = hash_children(a, &value);
    } else if (strcmp(op, "split-residual") == 0) {
        code = hash_residual(a, &value);
    } else {
        code = hash_shards(a, strcmp(op, "add") == 0, &value);
    }
    if (code == EXIT_DONE) {
        show_hash(value);
    }
    return code;
}

const struct command command_hash_payload = {
    .group = "hash",
    .name = "payload",
    .synopsis = "OPERATION [options]",
    .summary = "the hash by which a repeated operation is told from another with the same op id",
    .text = "OPERATION is checkpoint, complete, release, park, complete-run, fail-run, cancel-run, "
            "unpark, split-replace, split-residual, register or add. A RANGE is "
            "START,END[,METADATA[,KEY[,TOKEN]]], each encoded, with a comma written %2C.",
    .examples = "ringfence hash payload checkpoint --key golden-cursor-key\n"
                "ringfence hash payload split-replace --child a,m --child m,z\n"
                "ringfence hash payload split-residual --parent a,m --residual m,z",
    .options = payload_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_payload,
};
