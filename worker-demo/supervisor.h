/* Keeps the workers alive, shows how far they are, and ends when they are done. */
#ifndef RF_SCAN_SUPERVISOR_H
#define RF_SCAN_SUPERVISOR_H

#include "scan.h"

struct supervised {
    bool interrupted;
    uint64_t restarts; /* of workers that did not end by themselves */
};

/* Returns when all workers have ended, for whatever reason: how far the run is, the store knows.
 * `done_bytes` were passed before, and `done_findings` found. Forks, so there should be no other
 * threads. */
struct supervised supervise(struct farm *farm, uint64_t done_bytes, uint64_t done_findings);

#endif
