/* The run record, its invariants, and one pure function per operation on a run. A run record is
 * small and has no variable bytes, so a step is simply the next record. */
#ifndef RF_RUN_H
#define RF_RUN_H

#include "manifest.h"

struct rf_run {
    rf_tenant tenant;
    uint64_t run;
    rf_run_config config;
    rf_run_status status;
    uint64_t created_at;
    uint64_t completed_at; /* 0 unless terminal */
    uint64_t root_count;   /* the root shards themselves say that they are roots */
    uint32_t ring_count;
    uint32_t ring_next;
    struct rf_run_ring ring;
};

struct rf_run_step {
    rf_outcome outcome;
    struct rf_run next; /* on a replay, the record as it is */
    rf_event_kind event;
    uint32_t count; /* shards made */
};

static inline bool rf_run_is_terminal(rf_run_status status)
{
    return status >= RF_RUN_DONE;
}

bool rf_run_config_equal(const rf_run_config *a, const rf_run_config *b);

/* existing == NULL: there is no such run. The lease of the call is not looked at. */
rf_status rf_run_create(const struct rf_run *existing, const struct rf_call *call, uint64_t run,
                        const rf_run_config *config, struct rf_run_step *step, rf_detail *detail);
rf_status rf_run_register(const struct rf_run *run, const struct rf_call *call,
                          const struct rf_manifest *manifest, const struct rf_env *env,
                          struct rf_run_step *step, rf_detail *detail);
rf_status rf_run_add(const struct rf_run *run, const struct rf_call *call,
                     const struct rf_manifest *manifest, const struct rf_env *env,
                     struct rf_run_step *step, rf_detail *detail);
/* Both at once, and safe to repeat. Executed if it registered, whoever created the run. */
rf_status rf_run_create_with_shards(const struct rf_run *existing, const struct rf_call *call,
                                    uint64_t run, const rf_run_config *config,
                                    const struct rf_manifest *manifest, const struct rf_env *env,
                                    struct rf_run_step *step, rf_detail *detail);
/* complete, fail and cancel */
rf_status rf_run_end(const struct rf_run *run, const struct rf_call *call, rf_run_op_kind kind,
                     struct rf_run_step *step, rf_detail *detail);

void rf_run_event(const struct rf_run_step *step, uint64_t now, rf_event *event);

const char *rf_run_violation(const struct rf_run *run);

#endif
