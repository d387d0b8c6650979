/* Opening a store by the name that was given. */
#include <glob.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

const char *store_directory(const char *store)
{
    bool plain = strchr(store, '/') == NULL && strcmp(store, ".") != 0 && strcmp(store, "..") != 0;
    return plain ? keep_format("/dev/shm/ringfence-%s", store) : store;
}

const char *plain_name_hint(const char *name)
{
    bool here = store_directory(name) != name && access(keep_format("./%s/lock", name), F_OK) == 0;
    return here ? keep_format("; a plain name is one in /dev/shm, the store here is ./%s", name)
                : "";
}

/* A durable store has at least one file of log. */
static bool has_log(const char *name)
{
    glob_t found;
    bool any = glob(keep_format("%s/log.*", store_directory(name)), GLOB_NOSORT, NULL, &found) == 0;
    if (any) {
        globfree(&found);
    }
    return any;
}

static int open_store(struct cli *cli, const char *name, bool look, rf_store **store)
{
    const rf_options options = {.read_only = look};
    rf_status status = rf_open(name, &options, store, &cli->detail);
    if (status == RF_OK) {
        return EXIT_DONE;
    }
    if (status == RF_NOT_FOUND &&
        access(keep_format("%s/store", store_directory(name)), F_OK) == 0) {
        /* Who may write would have brought a durable one back. */
        return look && has_log(name)
                   ? cli_fail(
                         EXIT_NOT_FOUND,
                         "%s is not in memory, as after a reboot; `ringfence recover %s` brings "
                         "it back",
                         name, name)
                   : cli_fail(EXIT_NOT_FOUND,
                              "%s is a volatile store whose shared memory is gone, as after a "
                              "reboot; `ringfence init --volatile --again %s` makes an empty one",
                              name, name);
    }
    const char *hint = status == RF_NOT_FOUND ? plain_name_hint(name) : "";
    return hint[0] != 0 ? cli_fail(EXIT_NOT_FOUND, "there is no store %s%s", name, hint)
                        : cli_refuse(status, &cli->detail, 0, "%s", name);
}

int open_to_look(struct cli *cli, const char *name, rf_store **store)
{
    return open_store(cli, name, true, store);
}

int open_to_work(struct cli *cli, const char *name, rf_store **store)
{
    return open_store(cli, name, false, store);
}
