/* ringfence: find the command in the table, parse its arguments, run it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "commands.h"

const struct command *const commands[] = {
#define COMMAND(name) &command_##name,
#include "commands.inc"
#undef COMMAND
    NULL,
};

const struct command_group groups[] = {
    {"run", "make runs, look at them, end them",
     "A run is one piece of work, cut into shards. It is active until it is completed, failed or "
     "cancelled, and takes room until it is purged."},
    {"shard", "look at shards, split, park and unpark them",
     "A shard is a key range [START, END) with a cursor: how far it has been worked through. It is "
     "active until it is done, replaced by the shards it was split into, or parked. Parked shards "
     "are not claimed until they are unparked."},
    {"log", "look at the log of a durable store",
     "The log is a chain of batches, each the operations of one epoch, in files log.* of the store's "
     "directory. These commands read the files alone; the store may be in use."},
    {"hash", "compute ids and payload hashes",
     "Split ids and payload hashes as the protocol defines them, so that another implementation can "
     "be checked against this one. No store is needed."},
    {NULL, NULL, NULL},
};

static const struct command_group *find_group(const char *name)
{
    for (const struct command_group *g = groups; g->name != NULL; g++) {
        if (strcmp(g->name, name) == 0) {
            return g;
        }
    }
    return NULL;
}

static const struct command *find_command(const char *group, const char *name)
{
    for (const struct command *const *c = commands; *c != NULL; c++) {
        bool same = group == NULL ? (*c)->group == NULL
                                  : (*c)->group != NULL && strcmp((*c)->group, group) == 0;
        if (same && strcmp((*c)->name, name) == 0) {
            return *c;
        }
    }
    return NULL;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
}

/* ringfence help [GROUP] [COMMAND], and the documents that the build makes from the same table. */
static int help(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[0], "--man") == 0) {
        return print_man(argv[1]);
    }
    if (argc >= 2 && strcmp(argv[0], "--completion") == 0) {
        return print_completion(argv[1]);
    }
    if (argc == 0) {
        return print_help(NULL, NULL, stdout);
    }
    const struct command_group *g = find_group(argv[0]);
    const struct command *c = g == NULL   ? find_command(NULL, argv[0])
                              : argc >= 2 ? find_command(g->name, argv[1])
                                          : NULL;
    if (c == NULL && (g == NULL || argc >= 2)) {
        return cli_fail(EXIT_USAGE, "there is no command called %s; see `ringfence help`",
                        argv[g != NULL ? 1 : 0]);
    }
    return print_help(g == NULL ? NULL : g->name, c, stdout);
}

static int check_words(const struct command *c, const struct args *args)
{
    bool names_store = strncmp(c->synopsis, "DIR", 3) == 0;
    const char *group = c->group == NULL ? "" : keep_format("%s ", c->group);
    int most = c->max_words < 0 ? c->min_words : c->max_words;
    if (args->word_count < c->min_words || args->word_count > most ||
        (args->rest != NULL && c->max_words >= 0)) {
        return cli_fail(EXIT_USAGE, "usage: ringfence %s%s %s", group, c->name, c->synopsis);
    }
    if (names_store && args->words[0][0] == 0) {
        return cli_fail(EXIT_USAGE, "DIR is empty; it is the directory of a store");
    }
    return EXIT_DONE;
}

static int read_tenant(struct cli *cli)
{
    const char *said = arg_text(&cli->args, "tenant", NULL), *set = getenv("RINGFENCE_TENANT");
    if (said != NULL && said[0] == 0) {
        return cli_fail(EXIT_USAGE,
                        "--tenant is empty; leave it out for the tenant called default");
    }
    const char *name = said != NULL ? said : set != NULL && set[0] != 0 ? set : "default";
    rf_tenant_from_name(name, &cli->tenant);
    return EXIT_DONE;
}

/* Output that could not be written must not look like success. */
static int finish(int code)
{
    if (fflush(stdout) != 0 || ferror(stdout)) {
        code = code != EXIT_DONE ? code : cli_fail(EXIT_IO, "writing the output failed");
    }
    return code;
}

/* A standard descriptor that is closed would be given to the next file that is opened, and output
 * would go into that. Input and output stay as unusable as they were: using them is an error.
 * Messages that nobody wants to see are none. */
static void hold_standard_descriptors(void)
{
    static const int modes[] = {O_WRONLY, O_RDONLY, O_WRONLY};
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", modes[fd]) != fd) {
            _exit(EXIT_IO); /* there is no /dev/null, and no way to say so */
        }
    }
}

int main(int argc, char **argv)
{
    static struct cli cli;
    hold_standard_descriptors();
    cli.argc = argc;
    cli.argv = argv;
    if (argc < 2) {
        print_help(NULL, NULL, stderr);
        return EXIT_USAGE;
    }
    if (is_help(argv[1])) {
        return finish(help(argc - 2, argv + 2));
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
        bool json = argc > 2 && strcmp(argv[2], "--json") == 0;
        printf(json ? "{\"version\":\"%s\"}\n" : "ringfence %s\n", rf_version_string());
        return finish(EXIT_DONE);
    }
    const struct command_group *g = find_group(argv[1]);
    int used = g == NULL ? 2 : 3;
    if (g != NULL && (argc < 3 || is_help(argv[2]))) {
        print_help(g->name, NULL, argc < 3 ? stderr : stdout);
        return argc < 3 ? EXIT_USAGE : finish(EXIT_DONE);
    }
    const struct command *c = find_command(g == NULL ? NULL : g->name, argv[used - 1]);
    if (c == NULL) {
        return cli_fail(EXIT_USAGE, "there is no command called %s%s%s; see `ringfence help%s%s`",
                        g == NULL ? "" : g->name, g == NULL ? "" : " ", argv[used - 1],
                        g == NULL ? "" : " ", g == NULL ? "" : g->name);
    }
    cli.command = c;
    if (!args_parse(&cli.args, c, argc - used, argv + used)) {
        return EXIT_USAGE;
    }
    if (arg_given(&cli.args, "help")) {
        return finish(print_help(c->group, c, stdout));
    }
    int code = check_words(c, &cli.args);
    if (code != EXIT_DONE) {
        return code;
    }
    code = read_tenant(&cli);
    if (code != EXIT_DONE) {
        return code;
    }
    cli.reveal = arg_given(&cli.args, "reveal");
    out_setup(arg_given(&cli.args, "json"), cli.reveal);
    return finish(c->run(&cli));
}
