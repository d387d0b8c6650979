/*
 * A drill: what an operation answers when several things are wrong at once.
 *
 * The faults of a family of operations are bits, lowest first in the order in which PROTOCOL wants
 * them checked. Whatever set of them is put into a call, the answer must be that of the lowest. The
 * sets tried are none, each alone, every pair, every three, and some hundred larger ones at random;
 * the order of the bits must also spell the operation's row of the STATUS TABLE, and every status
 * of the row must have come up.
 */
#ifndef RF_TEST_DRILL_H
#define RF_TEST_DRILL_H

#include "ringfence/ringfence.h"

struct rf_fault {
    const char *name;
    rf_status status;
    uint64_t limit; /* where two faults have one status, detail.limit tells them apart; 0: any */
};

struct rf_drill {
    const char *op;
    const struct rf_fault *faults; /* by bit */
    uint64_t mask;                 /* those that this operation can have */
    rf_status (*attempt)(uint64_t faults, rf_detail *detail);
    bool (*possible)(uint64_t faults); /* can all of these be true at once? NULL: always */
};

void rf_drill_run(const struct rf_drill *drill);

#endif
