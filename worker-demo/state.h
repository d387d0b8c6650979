/*
 * A scan's place on disk, so that the same command finds it again:
 *
 *      <state>/lock          held while a supervisor is at it
 *      <state>/identity      which scan: paths, rules, options
 *      <state>/items         the work (items.h); names the run
 *      <state>/store/        the ringfence store
 *      <state>/found-<run>/  the ledgers (ledger.h) of this run and of no other
 */
#ifndef RF_SCAN_STATE_H
#define RF_SCAN_STATE_H

#include "scan.h"

/* Finds or makes the state of this scan, with the lock held, the items open, and the run there.
 * *resumed says whether it had been begun before. Ends the program if it can't. */
void state_open(struct farm *farm, bool *resumed);
/* When the report is out. */
void state_remove(struct farm *farm);

#endif
