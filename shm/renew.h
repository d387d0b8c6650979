/* Renewing a lease: the one change that is not journalled. Under the shard's lock a single word, the
 * deadline, is stored; readers see the old one or the new one, and both are true. After a cold
 * start all leases are void, so there is nothing to lose. */
#ifndef RF_RENEW_H
#define RF_RENEW_H

#include "actor.h"

struct rf_renewal {
    uint64_t deadline;
    rf_run_status run_status;
    rf_capacity capacity;
};

rf_status rf_renew_lease(struct rf_actor *actor, const rf_tenant *tenant, const rf_lease *lease,
                         uint64_t now, struct rf_renewal *renewal, rf_detail *detail);

/* What a run has to offer, at a cost that does not depend on its size. */
void rf_run_capacity(const struct rf_runrec *run, rf_capacity *capacity);

#endif
