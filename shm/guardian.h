/*
 * The guardian: one thread per process and region. It owns the robust list on which the lives of the
 * process's members hang, watches the lives of others, reaps and sweeps the dead, and renews the
 * leases of sessions that asked for it. It is a member itself and acts under a slot of its own.
 *
 * It sleeps in futex_waitv on its own poke word and on the liveness words of the next 60 living
 * guardians and the next living handles, 120 in all; a death wakes one of their watchers. A newcomer
 * pokes the three guardians before it.
 * Every wake looks at the whole roster, and every sleep ends after a second or two at the latest.
 */
#ifndef RF_GUARDIAN_H
#define RF_GUARDIAN_H

#include "actor.h"

/* Wakes the guardian of this process, if there is one: something has to be written. */
void rf_guardian_hurry(struct rf_map *map);

/* A lease that is renewed at a third of its duration until it is lost. Lives in a session. */
struct rf_keepalive {
    rf_tenant tenant;
    rf_lease lease;
    uint64_t duration;
    uint64_t due;     /* monotonic */
    rf_status status; /* RF_OK, or why it was lost; under the guardian's mutex */
    rf_run_status run_status;
    bool active;
    struct rf_keepalive *next;
};

rf_status rf_guardian_start(struct rf_map *map, uint64_t busy_ns, rf_detail *detail);
void rf_guardian_stop(struct rf_map *map);

/* Done by the guardian, in its thread, for a handle of this process. */
rf_status rf_guardian_join(struct rf_map *map, uint32_t *slot, rf_detail *detail);
void rf_guardian_leave(struct rf_map *map, uint32_t slot);
void rf_guardian_abandon(struct rf_map *map, uint32_t slot);

void rf_guardian_keep(struct rf_map *map, struct rf_keepalive *keepalive);
/* After this the guardian does not touch it any more. Returns its last word. */
rf_status rf_guardian_unkeep(struct rf_map *map, struct rf_keepalive *keepalive);
rf_status rf_guardian_kept(struct rf_map *map, const struct rf_keepalive *keepalive,
                           uint64_t *deadline, rf_run_status *run_status);

#endif
