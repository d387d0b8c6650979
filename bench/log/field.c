/* Durable stores, and what a restart does to them. */
#include <string.h>
#include <unistd.h>

#include "log.h"

static const char *path_of(const char *format, const char *which)
{
    static char text[4][256];
    static unsigned turn;
    char *at = text[turn++ % 4];
    snprintf(at, sizeof(text[0]), format, strrchr(place, '/') + 1, which);
    return at;
}

const char *field_directory(const char *which)
{
    static char text[4][256];
    static unsigned turn;
    char *at = text[turn++ % 4];
    snprintf(at, sizeof(text[0]), "%s/%s", place, which);
    return at;
}

static const char *region_of(const char *which)
{
    return path_of("/dev/shm/%s.%s", which);
}

rf_options field_options(const char *which)
{
    return (rf_options){.create = true,
                        .durability = RF_WAIT,
                        .max_shards = 1100000,
                        .region_path = region_of(which)};
}

void field_make(const char *which, uint32_t shards, const rf_options *more)
{
    rf_options o = field_options(which);
    rf_store *store;
    rf_detail detail = {0};
    if (more != NULL) {
        o.snapshot_bytes = more->snapshot_bytes;
    }
    must(rf_open(field_directory(which), &o, &store, &detail), &detail, "opening");
    struct farm farm = {.store = store, .now = rf_now(store)};
    memset(farm.tenant.bytes, 7, sizeof(farm.tenant.bytes));
    struct farm_manifest manifest = farm_manifest(shards);
    farm_register(&farm, 1, &manifest);
    farm_manifest_free(&manifest);
    must(rf_close(store), NULL, "closing");
}

void field_lose_region(const char *which)
{
    if (unlink(region_of(which)) != 0) {
        perror(region_of(which));
        abort();
    }
}

void field_destroy(const char *which)
{
    char command[400];
    snprintf(command, sizeof(command), "rm -rf '%s' '%s'", field_directory(which),
             region_of(which));
    if (system(command) != 0) {
        abort();
    }
}
