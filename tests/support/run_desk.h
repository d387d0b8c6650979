/* A desk for one run: makes the calls, takes over the step, and holds every call to the rules of
 * runs: a refusal or a replay changes nothing, the record is valid, what is terminal stays as it is,
 * times never go down. */
#ifndef RF_TEST_RUN_DESK_H
#define RF_TEST_RUN_DESK_H

#include "box.h"
#include "run.h"

#define RF_RUN_DESK_SHARDS 2048u

struct rf_run_desk {
    struct rf_run run;
    bool exists;
    rf_tenant tenant;
    uint64_t id;
    uint64_t now;
    uint64_t op;
    rf_run_config config;
    struct rf_env env;
    const rf_spec *existing; /* the run's ranges, for add */
    uint32_t existing_count;

    struct rf_run_step step;
    rf_detail detail;
    rf_event event;
    uint64_t hash; /* the payload hash of the call */

    struct rf_hasher hasher;
    uint32_t by_id[2 * RF_RUN_DESK_SHARDS];
    uint32_t by_start[2 * RF_RUN_DESK_SHARDS];
};

/* No run yet; time 100, leases of 1000, no limits. */
void rf_run_desk_open(struct rf_run_desk *desk, const rf_tenant *tenant, uint64_t run);

rf_status rf_run_desk_create(struct rf_run_desk *desk);
rf_status rf_run_desk_register(struct rf_run_desk *desk, const rf_shard_input *shards,
                               uint32_t count);
rf_status rf_run_desk_add(struct rf_run_desk *desk, const rf_shard_input *shards, uint32_t count);
rf_status rf_run_desk_create_with_shards(struct rf_run_desk *desk, const rf_shard_input *shards,
                                         uint32_t count);
rf_status rf_run_desk_end(struct rf_run_desk *desk, rf_run_op_kind kind);

#endif
