/* procs: who has the store open. */
#include "commands.h"

static const struct option_spec procs_options[] = {
    {"reap", 0, OPTION_FLAG, NULL, "settle members that are dead, before looking"},
    {0},
};

struct context {
    uint64_t now;
    uint64_t dead;
};

/* What the kernel calls it; empty if it is gone or somebody else's secret. */
static const char *command_of(uint32_t pid)
{
    static char name[64];
    FILE *f = fopen(keep_format("/proc/%u/comm", pid), "re");
    name[0] = 0;
    if (f != NULL) {
        if (fgets(name, sizeof(name), f) != NULL) {
            for (char *c = name; *c != 0; c++) {
                *c = *c == '\n' ? 0 : *c < 32 ? '?' : *c;
            }
        }
        fclose(f);
    }
    return name;
}

static bool show_proc(void *context, const rf_member_info *m)
{
    struct context *c = context;
    uint64_t executed = 0, refused = 0;
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        executed += m->executed[k];
        for (unsigned s = 0; s < 100; s++) {
            refused += m->refused[k][s];
        }
    }
    c->dead += m->dead;
    out_row();
    out_id("pid", m->pid);
    out_number("slot", m->slot);
    out_text("role", m->guardian ? "guardian" : "handle");
    const char *state = member_state_word(m);
    out_word("state", state, status_colour(state));
    out_ns("age", c->now > m->joined_at ? c->now - m->joined_at : 0);
    out_number("operations", executed);
    out_number("refusals", refused);
    out_number("lock_waits", m->lock_waits);
    out_number("busy", m->busy);
    out_text("command", command_of(m->pid));
    return true;
}

static int run_procs(struct cli *cli)
{
    rf_store *store;
    struct context context = {0};
    bool reap = arg_given(&cli->args, "reap");
    if (reap) {
        int code = open_to_work(cli, cli->args.words[0], &store);
        if (code != EXIT_DONE) {
            return code;
        }
        rf_status status = rf_tend(store, rf_now(store));
        rf_close(store);
        if (status != RF_OK) {
            return cli_refuse(status, NULL, 0, "not everything could be settled");
        }
    }
    int code = open_to_look(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    context.now = rf_now(store);
    out_list_begin();
    rf_status status = rf_list_members(store, show_proc, &context, &cli->detail);
    out_list_end();
    rf_close(store);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "listing members");
    }
    return reap && context.dead != 0 ? EXIT_INCOMPLETE : EXIT_DONE;
}

const struct command command_procs = {
    .name = "procs",
    .synopsis = "DIR [--reap]",
    .summary = "list the processes that have a store open",
    .text =
        "Every handle is a member, and so is the guardian thread of each process. Dead members are "
        "settled by the living within a moment; where nobody is left alive, --reap does it. One that is "
        "stopped keeps its shards until their leases are over: continue it or end it (`kill -CONT`, "
        "`kill -9`).",
    .examples = "ringfence procs ./farm\nringfence procs --reap ./farm",
    .options = procs_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_procs,
};
