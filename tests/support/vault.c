#define _GNU_SOURCE
#include "vault.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "region.h"

void vault_found(struct vault *vault, rf_durability durability)
{
    *vault = (struct vault){.options = {.create = true,
                                        .max_shards = 30000,
                                        .max_bytes = 64u << 20,
                                        .max_runs = 64,
                                        .max_members = 64,
                                        .durability = durability,
                                        .snapshot_bytes = 1ull << 40}};
    const char *where = getenv("TMPDIR");
    snprintf(vault->directory, sizeof(vault->directory), "%.60s/ringfence-vault-XXXXXX",
             where != NULL && where[0] != 0 ? where : "/tmp");
    CREW_CHECK(mkdtemp(vault->directory) != NULL, "a directory %s", vault->directory);
    rf_tenant_from_name("vault", &vault->tenant);
}

rf_status vault_try_lanes(const struct vault *vault, uint32_t lane_bytes, rf_detail *detail)
{
    const rf_options *o = &vault->options;
    const struct rf_region_options region = {
        .max_shards = o->max_shards,
        .max_tenant_shards = o->max_shards,
        .max_bytes = o->max_bytes,
        .max_runs = o->max_runs,
        .max_members = o->max_members,
        .lane_bytes = lane_bytes,
        .durability = (uint32_t)o->durability,
        .segment_bytes = o->segment_bytes != 0 ? o->segment_bytes : 16u << 20,
        .snapshot_bytes = o->snapshot_bytes,
        .flush_ns = o->flush_interval != 0 ? o->flush_interval : 5 * RF_MILLISECOND,
        .create = true,
    };
    struct rf_map *map;
    uint64_t cookie;
    CREW_CHECK(rf_process_enter(&cookie, detail) == RF_OK, "%s", detail->where);
    rf_status status = rf_region_open(vault->directory, &region, &map, detail);
    if (status == RF_OK) {
        rf_region_close(map);
    }
    return status;
}

void vault_small_lanes(struct vault *vault, uint32_t lane_bytes)
{
    rf_detail detail = {0};
    CREW_CHECK(vault_try_lanes(vault, lane_bytes, &detail) == RF_OK, "%s", detail.where);
}

void vault_raze(struct vault *vault)
{
    struct dirent *entry;
    char path[400];
    if (vault->directory[0] == 0) {
        return;
    }
    for (unsigned i = 0; i < 2000 && rf_destroy(vault->directory, NULL) == RF_BUSY; i++) {
        crew_sleep_ms(1);
    }
    DIR *rest = opendir(vault->directory);
    while (rest != NULL && (entry = readdir(rest)) != NULL) {
        snprintf(path, sizeof(path), "%s/%s", vault->directory, entry->d_name);
        if (entry->d_name[0] != '.') {
            unlink(path);
        }
    }
    if (rest != NULL) {
        closedir(rest);
    }
    rmdir(vault->directory);
    vault->directory[0] = 0;
}

rf_store *vault_open(const struct vault *vault)
{
    return crew_open(vault->directory, &vault->options);
}

rf_store *vault_open_manual(const struct vault *vault)
{
    rf_options options = vault->options;
    options.manual = true;
    return crew_open(vault->directory, &options);
}

static rf_bytes key_of(char *room, size_t size, uint64_t shard, uint64_t n)
{
    int len = n == 0 ? snprintf(room, size, "s%08" PRIu64, shard)
                     : snprintf(room, size, "s%08" PRIu64 "-%010" PRIu64, shard, n);
    return (rf_bytes){.data = room, .len = (size_t)len};
}

void vault_run(rf_store *store, const struct vault *vault, uint64_t run, uint64_t first,
               uint32_t count, rf_durability how)
{
    const rf_run_config config = {.lease_duration = 3600 * RF_SECOND};
    rf_result result = {.durability = how};
    rf_shard_input *inputs = calloc(count, sizeof(*inputs));
    char(*keys)[2][32] = calloc(count, sizeof(*keys));
    for (uint32_t i = 0; i < count; i++) {
        inputs[i].shard = first + i;
        inputs[i].spec.start = key_of(keys[i][0], 32, first + i, 0);
        inputs[i].spec.end = key_of(keys[i][1], 32, first + i + 1, 0);
    }
    rf_status status = rf_create_run_with_shards(store, rf_now(store), &vault->tenant, run, &config,
                                                 inputs, count, 0x7000000 + run, &result);
    CREW_CHECK(status == RF_OK, "a run of %u shards: %s %s", count, rf_status_name(status),
               result.detail.where);
    free(inputs);
    free(keys);
}

rf_lease vault_lease(rf_store *store, const struct vault *vault, uint64_t run, uint64_t shard)
{
    static _Thread_local uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_result result = {0};
    rf_status status = rf_acquire(store, rf_now(store), &vault->tenant, run, shard,
                                  (uint64_t)getpid(), RF_BOUND, &grant, &result);
    CREW_CHECK(status == RF_OK, "leasing shard %" PRIu64 ": %s %s", shard, rf_status_name(status),
               result.detail.where);
    return grant.lease;
}

rf_status vault_step(rf_store *store, const struct vault *vault, const rf_lease *lease, uint64_t n,
                     uint64_t op, size_t token, rf_result *result)
{
    static const uint8_t bytes[RF_TOKEN_MAX] = {1, 2, 3};
    char key[32];
    rf_cursor cursor = {.key = key_of(key, sizeof(key), lease->shard, n),
                        .token = {.data = token != 0 ? bytes : NULL, .len = token}};
    return rf_checkpoint(store, rf_now(store), &vault->tenant, lease, &cursor, op, result);
}
