/* Opening a store by the name that was given. */
#include <string.h>
#include <unistd.h>

#include "cli.h"

const char *store_directory(const char *store)
{
    bool plain = strchr(store, '/') == NULL && strcmp(store, ".") != 0 && strcmp(store, "..") != 0;
    return plain ? keep_format("/dev/shm/ringfence-%s", store) : store;
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
        return cli_fail(EXIT_NOT_FOUND,
                        "%s is a store whose shared memory is gone, as after a reboot; "
                        "`ringfence init --volatile --again %s` makes an empty one",
                        name, name);
    }
    return cli_refuse(status, &cli->detail, 0, "%s", name);
}

int open_to_look(struct cli *cli, const char *name, rf_store **store)
{
    return open_store(cli, name, true, store);
}

int open_to_work(struct cli *cli, const char *name, rf_store **store)
{
    return open_store(cli, name, false, store);
}
