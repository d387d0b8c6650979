/* A durable store in a directory of its own, for tests of the log: several processes and threads open it. */
#ifndef RF_TEST_VAULT_H
#define RF_TEST_VAULT_H

#include "crew.h"

struct vault {
    char directory[96];
    rf_options options;
    rf_tenant tenant;
};

#define VAULT_NEVER (3600 * RF_SECOND) /* a flush interval that no test lives to see */

/* Makes the directory and fills in options: no snapshots, small capacities. The store is made by who opens it
 * first. */
void vault_found(struct vault *vault, rf_durability durability);
/* Makes the store with lanes of this size, which is smaller than any user can have it. */
void vault_small_lanes(struct vault *vault, uint32_t lane_bytes);
/* Only tries to. */
rf_status vault_try_lanes(const struct vault *vault, uint32_t lane_bytes, rf_detail *detail);
/* Removes all of it. Whoever has it open has to be gone. */
void vault_raze(struct vault *vault);

/* Opens it; ends the process if it can't. */
rf_store *vault_open(const struct vault *vault);
/* Without a guardian. */
rf_store *vault_open_manual(const struct vault *vault);

/* A run with `count` shards, ids first to first + count - 1, ranges [s<id>, s<id + 1>), leases of an hour. */
void vault_run(rf_store *store, const struct vault *vault, uint64_t run, uint64_t first,
               uint32_t count, rf_durability how);
/* Leases one of them; the grant's bytes are gone after it. */
rf_lease vault_lease(rf_store *store, const struct vault *vault, uint64_t run, uint64_t shard);
/* A checkpoint of a leased shard with a key that is the start of its range and `n`. */
rf_status vault_step(rf_store *store, const struct vault *vault, const rf_lease *lease, uint64_t n,
                     uint64_t op, size_t token, rf_result *result);

#endif
