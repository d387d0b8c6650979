/*
 * The rules S1 to S11 of the protocol, judged from outside: from what calls answered and what the
 * store shows. It knows nothing of how either came about. The ledger stands beside it: a second
 * system that keeps what each shard produced, by shard and fence.
 */
#ifndef RF_SIM_CHECKER_H
#define RF_SIM_CHECKER_H

#include "model.h"
#include "names.h"

enum rule {
    S1_ONE_LEASE,
    S2_FENCE_UP,
    S3_TERMINAL_STAYS,
    S4_INVARIANTS,
    S5_KEY_UP,
    S6_KEY_INSIDE,
    S7_CHILDREN,
    S8_RUN_STAYS,
    S9_COOLDOWN,
    S10_COVERAGE,
    S11_NO_FENCE_TWICE,
    LEDGER_STALE,   /* recorded under an old fence after a newer one was granted */
    LEDGER_MISSING, /* completed and not recorded */
    LEDGER_TWICE,   /* recorded or completed once more under the fence that ended it */
    LEDGER_LATE,    /* recorded after the end */
    RULES,
};

/* "S1" .. "S11", "ledger-stale", ... */
const char *rule_name(enum rule rule);

typedef void violated_fn(void *context, enum rule rule, const char *what);

struct seen;
struct seen_run;

struct checker {
    violated_fn *violated;
    void *context;
    uint64_t cooldown;
    struct names names;
    struct seen *shards; /* by the number of the name */
    uint32_t room;
    struct seen_run *runs;
    uint32_t run_count;
    uint64_t claimed_at[64]; /* by worker */
    uint64_t grants, looks;
};

void checker_init(struct checker *c, uint64_t cooldown, violated_fn *violated, void *context);
void checker_free(struct checker *c);

/* --- what calls answered --- */

/* member: who a bound lease dies with; 0: detached */
void checker_granted(struct checker *c, uint32_t tenant, const rf_lease *lease, uint64_t member,
                     uint64_t now);
void checker_claimed(struct checker *c, uint64_t worker, uint64_t now);
void checker_renewed(struct checker *c, uint32_t tenant, const rf_lease *lease);
/* The lease was given up: completed, parked, released, split. */
void checker_ended(struct checker *c, uint32_t tenant, const rf_lease *lease);
void checker_unparked(struct checker *c, uint32_t tenant, uint64_t run, uint64_t shard,
                      uint64_t fence);
/* The member closed or died: from now on its leases may be over. */
void checker_member_gone(struct checker *c, uint64_t member);
/* A root range that a registration brought in; the epoch of the log that this went into. */
void checker_root(struct checker *c, uint32_t tenant, uint64_t run, rf_bytes start, rf_bytes end,
                  uint64_t epoch);
/* What happened up to the epoch `durable` is not undone any more. */
void checker_purged(struct checker *c, uint32_t tenant, uint64_t run, uint64_t epoch,
                    uint64_t durable);
/* Back at the end of this epoch (0: all is gone). What is there is judged from here on; root ranges are those of
 * the registrations and purges that were not undone; fences and claims are judged against all that ever was. */
void checker_recovered(struct checker *c, uint64_t durable);

/* --- what the store shows --- */

void checker_shard(struct checker *c, uint32_t tenant, uint64_t run, const rf_shard_info *info);
void checker_run(struct checker *c, uint32_t tenant, const rf_run_info *info);
/* All that a step changed was shown: what needs several shards is judged now. */
void checker_step(struct checker *c);

/* --- the ledger --- */

/* What the shard produced is put down, under a lease that was just found to be good. */
void ledger_record(struct checker *c, uint32_t tenant, const rf_lease *lease);

#endif
