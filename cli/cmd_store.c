/* init, status, destroy. */
#include <errno.h>
#include <grp.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "commands.h"
#include "log_files.h"

/* Whether the files themselves are lost by a reboot. */
static bool is_in_memory(const char *directory)
{
    struct statfs fs;
    return statfs(directory, &fs) == 0 && (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

static void show_kind(const char *name, rf_durability durability)
{
    if (durability == RF_VOLATILE) {
        out_text("kind", "volatile");
        return;
    }
    bool in_memory = is_in_memory(store_directory(name));
    out_phrase("kind", "durable",
               in_memory               ? "durable, but in memory: nothing survives a reboot"
               : durability == RF_WAIT ? "durable, operations wait for the disk"
                                       : "durable, the disk follows",
               in_memory ? OUT_YELLOW : OUT_PLAIN);
    out_json_only(true);
    out_text("durability", durability == RF_WAIT ? "wait" : "nowait");
    out_text("medium", in_memory ? "memory" : "disk");
    out_json_only(false);
}

/* --- init --- */

#define SEGMENT_STEP 4096u /* a block of the log */

static const struct option_spec init_options[] = {
    {"volatile", 0, OPTION_FLAG, NULL, "keep it in shared memory only: a reboot empties it"},
    {"durability", 0, OPTION_TEXT, "WORD",
     "when an operation returns: wait for the disk, or nowait [wait]"},
    {"segment-bytes", 0, OPTION_SIZE, "SIZE", "of one file of the log, 64K to 4G [16M]"},
    {"snapshot-bytes", 0, OPTION_SIZE, "SIZE",
     "of log before a snapshot is taken, 64K to 1T [64M]"},
    {"flush-interval", 0, OPTION_DURATION, "TIME",
     "until what nobody waits for is written, 100us to 1h [5ms]"},
    {"again", 0, OPTION_FLAG, NULL, "for a store whose shared memory is gone: begin anew"},
    {"max-shards", 0, OPTION_NUMBER, "N", "shards in all, 1 to 16000000 [1000000]"},
    {"max-tenant-shards", 0, OPTION_NUMBER, "N", "shards of one tenant, 1 to 16000000 [all]"},
    {"max-bytes", 0, OPTION_SIZE, "SIZE", "for keys and such that are not short, 64K to 256G [1G]"},
    {"max-runs", 0, OPTION_NUMBER, "N", "runs at once, 1 to 1000000 [4096]"},
    {"max-members", 0, OPTION_NUMBER, "N", "handles at once, 1 to 2047 [1000]"},
    {"claim-cooldown", 0, OPTION_DURATION, "TIME", "between two claims of one worker [0]"},
    {"group", 'g', OPTION_TEXT, "GROUP", "let this group use the store as well"},
    {0},
};

/* What a store can be made with; 0 stands for the default. */
static const struct {
    const char *name;
    uint64_t least, most;
    const char *text;
} ranges[] = {
    {"max-shards", 1, 16000000, "1 to 16000000"},
    {"max-tenant-shards", 1, 16000000, "1 to 16000000"},
    {"max-bytes", 65536, 1ull << 38, "64K to 256G"},
    {"max-runs", 1, 1000000, "1 to 1000000"},
    {"max-members", 1, 2047, "1 to 2047"},
    {"segment-bytes", 65536, 1ull << 32, "64K to 4G"},
    {"snapshot-bytes", 65536, 1ull << 40, "64K to 1T"},
    {"flush-interval", 100000, 3600 * RF_SECOND, "100us to 1h"},
};

static int check_ranges(const struct args *args)
{
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        uint64_t value = arg_number(args, ranges[i].name, 0);
        if (value != 0 && (value < ranges[i].least || value > ranges[i].most)) {
            return cli_fail(EXIT_USAGE, "--%s is %s, or 0 for the default", ranges[i].name,
                            ranges[i].text);
        }
    }
    return arg_number(args, "segment-bytes", 0) % SEGMENT_STEP == 0
               ? EXIT_DONE
               : cli_fail(EXIT_USAGE, "--segment-bytes is a multiple of %u", SEGMENT_STEP);
}

static int find_group_id(const char *name, rf_options *options)
{
    uint64_t number;
    const struct group *entry = getgrnam(name);
    if (entry != NULL) {
        number = entry->gr_gid;
    } else if (!parse_number(name, &number) || number >= UINT32_MAX) {
        return cli_fail(EXIT_USAGE, "there is no group called %s; see `getent group`", name);
    }
    options->has_group = true;
    options->group = (uint32_t)number;
    return EXIT_DONE;
}

static int read_durability(const struct args *args, rf_options *options)
{
    const char *word = arg_text(args, "durability", "wait");
    if (strcmp(word, "wait") != 0 && strcmp(word, "nowait") != 0) {
        return cli_fail(EXIT_USAGE, "--durability is wait or nowait");
    }
    options->durability = arg_given(args, "volatile") ? RF_VOLATILE
                          : strcmp(word, "wait") == 0 ? RF_WAIT
                                                      : RF_NOWAIT;
    options->segment_bytes = arg_number(args, "segment-bytes", 0);
    options->snapshot_bytes = arg_number(args, "snapshot-bytes", 0);
    options->flush_interval = arg_number(args, "flush-interval", 0);
    if (options->durability == RF_VOLATILE &&
        (arg_given(args, "durability") || options->segment_bytes != 0 ||
         options->snapshot_bytes != 0 || options->flush_interval != 0)) {
        return cli_fail(EXIT_USAGE, "a volatile store has no log: leave --durability, "
                                    "--segment-bytes, --snapshot-bytes and --flush-interval out");
    }
    return EXIT_DONE;
}

static int read_capacities(const struct args *args, rf_options *options)
{
    options->max_shards = arg_number(args, "max-shards", 0);
    options->max_tenant_shards = arg_number(args, "max-tenant-shards", 0);
    options->max_bytes = arg_number(args, "max-bytes", 0);
    options->claim_cooldown = arg_number(args, "claim-cooldown", 0);
    options->max_runs = (uint32_t)arg_number(args, "max-runs", 0);
    options->max_members = (uint32_t)arg_number(args, "max-members", 0);
    const char *group = arg_text(args, "group", NULL);
    return group == NULL ? EXIT_DONE : find_group_id(group, options);
}

/* Whether a store can be made there: nothing of another one may be overwritten. */
static int check_vacant(struct cli *cli, const char *name)
{
    rf_store *store;
    const char *directory = store_directory(name);
    bool again = arg_given(&cli->args, "again");
    if (again && !arg_given(&cli->args, "volatile")) {
        return cli_fail(EXIT_USAGE,
                        "--again is for volatile stores; a durable one is brought back by "
                        "`ringfence recover`");
    }
    if (access(keep_format("%s/store", directory), F_OK) != 0) {
        return again ? cli_fail(EXIT_NOT_FOUND, "%s is not a store; leave --again out", name)
                     : EXIT_DONE;
    }
    rf_status status = rf_open(name, &(rf_options){.read_only = true}, &store, &cli->detail);
    if (status == RF_OK) {
        rf_close(store);
    }
    if (status != RF_NOT_FOUND) {
        return cli_fail(EXIT_REFUSED,
                        "%s is a store already; `ringfence status %s` shows it, "
                        "`ringfence destroy %s` removes it",
                        name, name, name);
    }
    if (!again && !arg_given(&cli->args, "volatile")) {
        return cli_fail(EXIT_REFUSED,
                        "%s is a store already; `ringfence recover %s` brings it back", name, name);
    }
    if (!again) {
        return cli_fail(EXIT_REFUSED,
                        "%s is a store already, but its shared memory is gone, as after a reboot; "
                        "--again makes an empty one with the next incarnation",
                        name);
    }
    return EXIT_DONE;
}

static int run_init(struct cli *cli)
{
    const char *name = cli->args.words[0];
    rf_options options = {.create = true};
    rf_store *store;
    int code = check_ranges(&cli->args);
    code = code != EXIT_DONE ? code : read_durability(&cli->args, &options);
    code = code != EXIT_DONE ? code : read_capacities(&cli->args, &options);
    code = code != EXIT_DONE ? code : check_vacant(cli, name);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_open(name, &options, &store, &cli->detail);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "%s", name);
    }
    rf_inspection seen;
    rf_inspect(store, &seen, NULL);
    rf_close(store);
    out_card_begin();
    out_text("store", store_directory(name));
    show_kind(name, seen.durability);
    out_number("incarnation", seen.incarnation);
    out_size("taken_bytes", seen.taken_bytes);
    out_card_end();
    return EXIT_DONE;
}

const struct command command_init = {
    .name = "init",
    .synopsis = "DIR [options]",
    .summary = "make a store",
    .text =
        "Makes the directory and the store's shared memory. A plain name NAME stands for "
        "/dev/shm/ringfence-NAME, which is memory and does not survive a reboot, durable or not; a "
        "directory here is ./NAME. Refuses to touch a store that is "
        "there already. Capacities are fixed when a store is made, 0 stands for the default; memory "
        "is taken only as it is needed.",
    .examples = "ringfence init /var/lib/farm\n"
                "ringfence init --volatile ./farm --max-shards 10000 --group staff",
    .options = init_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_init,
};

/* --- destroy --- */

static const struct option_spec destroy_options[] = {
    {"yes", 'y', OPTION_FLAG, NULL, "do not ask"},
    {0},
};

static bool confirmed(const char *name)
{
    char line[16] = "";
    fprintf(stderr, "Destroy the store %s and everything in it? [y/N] ", name);
    fflush(stderr);
    return fgets(line, sizeof(line), stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

static int run_destroy(struct cli *cli)
{
    const char *name = cli->args.words[0];
    if (access(store_directory(name), F_OK) != 0) {
        return cli_fail(EXIT_NOT_FOUND, "there is no store %s%s", name, plain_name_hint(name));
    }
    if (!arg_given(&cli->args, "yes")) {
        if (!isatty(STDIN_FILENO)) {
            return cli_fail(EXIT_USAGE, "nobody is here to be asked; say --yes");
        }
        if (!confirmed(name)) {
            return cli_fail(EXIT_REFUSED, "%s was left as it is", name);
        }
    }
    rf_status status = rf_destroy(name, &cli->detail);
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, &cli->detail, 0, "%s", name);
}

const struct command command_destroy = {
    .name = "destroy",
    .synopsis = "DIR [--yes]",
    .summary = "remove a store for good",
    .text =
        "Asks first, and refuses while a process has the store open (exit code 8). Files of others "
        "in the directory are left alone.",
    .examples = "ringfence destroy --yes ./farm",
    .options = destroy_options,
    .min_words = 1,
    .max_words = 1,
    .run = run_destroy,
};

/* --- status --- */

struct tally {
    uint64_t processes;
    uint64_t handles;
    uint64_t oldest; /* when the oldest member joined */
    uint64_t active, done, parked, split, shards;
};

static bool count_member(void *context, const rf_member_info *m)
{
    struct tally *t = context;
    t->processes += m->guardian;
    t->handles += !m->guardian;
    t->oldest = t->oldest == 0 || m->joined_at < t->oldest ? m->joined_at : t->oldest;
    return true;
}

static bool count_run(void *context, const rf_run_info *r)
{
    struct tally *t = context;
    t->shards += r->shard_count;
    t->done += r->done;
    t->parked += r->parked;
    t->split += r->split;
    t->active += r->shard_count - r->done - r->parked - r->split;
    return true;
}

struct list_context {
    uint64_t now;
};

static bool show_member(void *context, const rf_member_info *m)
{
    const struct list_context *c = context;
    uint64_t executed = 0, refused = 0;
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        executed += m->executed[k];
        for (unsigned s = 0; s < 100; s++) {
            refused += m->refused[k][s];
        }
    }
    out_row();
    out_number("slot", m->slot);
    out_id("pid", m->pid);
    out_text("role", m->guardian ? "guardian" : "handle");
    const char *state = member_state_word(m);
    out_word("state", state, status_colour(state));
    out_ns("age", c->now > m->joined_at ? c->now - m->joined_at : 0);
    out_number("operations", executed);
    out_number("refusals", refused);
    return true;
}

static void show_identity(const char *name, const rf_inspection *seen, uint64_t now)
{
    char boot[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (f != NULL) {
        if (fgets(boot, sizeof(boot), f) != NULL) {
            boot[strcspn(boot, "\n")] = 0;
        }
        fclose(f);
    }
    out_text("store", store_directory(name));
    show_kind(name, seen->durability);
    out_text("version", rf_version_string());
    out_text("layout", keep_format("%016llx", (unsigned long long)seen->layout_hash));
    out_text("boot", boot);
    out_number("incarnation", seen->incarnation);
    out_number("fence_floor", seen->fence_floor);
    out_time("time", now);
    out_size("taken_bytes", seen->taken_bytes);
    out_size("region_bytes", seen->region_bytes);
}

/* Of a durable store. */
static void show_log(const char *name, const rf_inspection *i)
{
    if (i->durability == RF_VOLATILE) {
        return;
    }
    out_phrase("log",
               i->log_failed  ? "failed"
               : i->log_short ? "short"
                              : "good",
               i->log_failed  ? "failed: close all handles and open the store again"
               : i->log_short ? "short of room: only endings are taken"
                              : "good",
               i->log_failed || i->log_short ? OUT_RED : OUT_GREEN);
    out_number("open_epoch", i->open_epoch);
    out_number("durable_epoch", i->durable_epoch);
    out_number("lag_epochs", lag_epochs(i));
    out_size("log_bytes", i->log_position);
    out_number("snapshot_epoch", i->snapshot_epoch);
    out_size("log_since_snapshot", i->log_position - i->snapshot_position);
    if (i->snapshot_held_by != 0) {
        out_id("snapshot_held_by", i->snapshot_held_by);
    }
    const char *path, *why;
    if (files_io(name, &path, &why)) {
        out_text("io", path);
        if (why[0] != 0) {
            out_text("io_why", why);
        }
    }
}

static void show_lock(const rf_lock_info *lock, bool held)
{
    if (!held) {
        out_text("longest_held_lock", "none");
        return;
    }
    char text[128];
    lock_text(lock, text, sizeof(text));
    out_phrase("longest_held_lock", lock_word(lock->what), text,
               lock->held >= RF_SECOND ? OUT_RED : OUT_PLAIN);
    out_json_only(true);
    if (lock->what != RF_LOCK_OF_NAME) {
        out_text("lock_tenant", tenant_text(&lock->tenant));
        out_id("lock_run", lock->run);
    }
    if (lock->what == RF_LOCK_OF_SHARD) {
        out_id("lock_shard", lock->shard);
    }
    out_id("lock_pid", lock->pid);
    out_ns("lock_held", lock->held);
    out_json_only(false);
}

static void show_counters(const rf_inspection *seen)
{
    out_number("operations", seen->operations);
    out_number("replays", seen->replays);
    out_number("refusals", seen->refusals);
    out_number("lock_waits", seen->lock_waits);
    out_number("busy", seen->busy);
    out_number("leases_expired", seen->leases_expired);
    out_number("leases_lost", seen->leases_lost);
    out_number("repairs", seen->reaped + seen->reapers_replaced + seen->purges_finished);
    out_json_only(true);
    out_number("members_reaped", seen->reaped);
    out_number("operations_redone", seen->redone);
    out_number("operations_undone", seen->undone);
    out_number("locks_freed", seen->locks_freed);
    out_number("purges_finished", seen->purges_finished);
    out_number("reapers_replaced", seen->reapers_replaced);
    out_number("extents", seen->extents);
    out_number("leaves", seen->leaves);
    out_number("blocks", seen->blocks);
    out_json_only(false);
}

static int run_status(struct cli *cli)
{
    const char *name = cli->args.words[0];
    rf_store *store;
    rf_inspection seen;
    struct tally tally = {0};
    int code = open_to_look(cli, name, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_inspect(store, &seen, &cli->detail);
    status = status != RF_OK ? status : rf_list_members(store, count_member, &tally, &cli->detail);
    status = status != RF_OK ? status : rf_list_runs(store, NULL, count_run, &tally, &cli->detail);
    if (status == RF_OK) {
        struct list_context context = {.now = rf_now(store)};
        rf_lock_info lock;
        bool held = longest_held_lock_now(store, &lock);
        out_card_begin();
        show_identity(name, &seen, context.now);
        out_number("runs", seen.runs);
        out_number("shards", tally.shards);
        out_number("shards_active", tally.active);
        out_number("shards_done", tally.done);
        out_number("shards_parked", tally.parked);
        out_number("shards_split", tally.split);
        out_number("processes", tally.processes);
        out_number("handles", tally.handles);
        out_number("dead_members", seen.dead_members);
        show_log(name, &seen);
        show_lock(&lock, held);
        show_counters(&seen);
        out_inner_begin("members");
        status = rf_list_members(store, show_member, &context, &cli->detail);
        out_inner_end();
        out_card_end();
    }
    rf_close(store);
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, &cli->detail, 0, "%s", name);
}

const struct command command_status = {
    .name = "status",
    .synopsis = "DIR",
    .summary = "show what a store is and how it is doing",
    .text =
        "Looks only: the shared memory is mapped read-only and nothing is waited for.\n"
        "`repairs` counts dead members that others settled, and what was taken over or finished "
        "in their place. `busy` counts operations that gave up on a lock of a living process.\n"
        "`longest held lock` says what is locked at the moment, by whom, and for how long at least: "
        "the store's processes look every second or two, and the time counts from the first look "
        "that saw it. Operations hold locks for microseconds; a process that holds one for longer is "
        "stopped, or does not get a processor: continue it or end it (`kill -CONT`, `kill -9`).",
    .examples = "ringfence status ./farm\n"
                "ringfence status --json ./farm | jq .shards_parked",
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_status,
};
