/* What the supervisor and its workers share: the scan, and some counters to look at. */
#ifndef RF_SCAN_SCAN_H
#define RF_SCAN_SCAN_H

#include <stdatomic.h>
#include <sys/types.h>

#include "items.h"
#include "ledger.h"
#include "rules.h"

#define WORKERS_MAX 512u
#define TENANT      "rf-scan"

/* In memory shared by all processes of a scan. For people: nothing depends on these. */
struct counters {
    _Atomic uint64_t bytes, files, findings; /* committed */
    _Atomic uint64_t skipped;                /* bytes that need no scan, committed as well */
    _Atomic uint64_t splits, refused;        /* refused: commits of a lease that was lost */
    _Atomic uint64_t refused_bytes;          /* findings written and not committed by these */
    _Atomic uint64_t commits[WORKERS_MAX];   /* of each worker slot, all its lives */
    _Atomic uint64_t next;                   /* without a coordinator: the next item */
};

struct allow; /* allow.h */

struct farm {
    const struct options *options;
    struct rules rules;
    struct items items;
    struct allow *allow;
    uint64_t allow_hash; /* of the text it was read from; 0: there is none */
    char *state;         /* directory */
    char *store;         /* directory */
    int found;           /* descriptor of the directory of this run's ledgers */
    rf_tenant tenant;
    struct counters *counters;
    pid_t supervisor;
    int lock; /* held by the supervisor alone */
};

/* Prints why and ends with status 2. */
void __attribute__((noreturn))
farm_fail(const char *what, rf_status status, const rf_detail *detail);

#endif
