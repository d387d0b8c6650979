/* Stores to measure on: made under a name with the program's pid, filled with shards side by side,
 * and gone at the end however the program ended. */
#ifndef RF_BENCH_FARM_H
#define RF_BENCH_FARM_H

#include <stdint.h>

#include "ringfence/ringfence.h"

#define FARM_KEY_LEN 64u

struct farm {
    char name[200];
    rf_store *store;
    rf_tenant tenant;
    uint64_t now; /* a time at or below the store's, for calls in a row */
    uint64_t op;  /* the last op id that was used */
};

/* Runs the program in a child process, and removes its stores when it has ended. Returns the exit
 * status for main. */
int farm_supervise(int (*program)(int argc, char **argv), int argc, char **argv);

/* Opens, and makes if need be, the store `which` of this program: one of farm_names. */
void farm_open(struct farm *farm, const char *which, uint64_t max_shards, bool manual);
/* The same for a durable one, in $RF_BENCH_DIR or /var/tmp: it should be on the disk that is meant. */
void farm_open_durable(struct farm *farm, const char *which, uint64_t max_shards, bool manual);
void farm_close(struct farm *farm);
/* Removes it for good, when all have closed it or are gone. */
void farm_destroy(const struct farm *farm);

/* A key of 64 bytes that differs from its neighbours only at the end, as paths do: shard `index`
 * (from 0; its id is index + 1) covers all keys with its index. */
void farm_key(uint8_t *key, uint32_t index, uint64_t number);

/* The input of a registration; its bytes belong to it. */
struct farm_manifest {
    rf_shard_input *shards;
    uint8_t *keys;
    uint32_t count;
};
struct farm_manifest farm_manifest(uint32_t count);
void farm_manifest_free(struct farm_manifest *manifest);

/* Makes a run with these shards. */
void farm_register(struct farm *farm, uint64_t run, const struct farm_manifest *manifest);
/* Ends and purges a run, if it is there. */
void farm_purge(struct farm *farm, uint64_t run);
/* Acquires shards index .. index + count - 1. */
void farm_acquire(struct farm *farm, uint64_t run, uint32_t index, uint32_t count,
                  rf_lease *leases);

#endif
