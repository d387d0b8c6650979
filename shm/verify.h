/*
 * Verifying: the log is replayed into a region of its own, beside the live one, and the two are compared.
 *
 * What may differ: deadlines are later in the live region (renewals are not logged), and whether an
 * expired lease was noticed is known there only. Everything else must be the same: records, rings,
 * bytes, counters. And the live region must agree with itself: bits with records, summaries with bits,
 * index with slots, room taken with room referred to.
 *
 * A cold open would read the newest snapshot and the log behind it, and so does the replay. The other snapshots that are
 * kept, and the log behind the oldest one, are there for the day on which the newest is damaged: they are checked as
 * well, and what is wrong with them is a difference.
 *
 * It needs a moment at which nothing happens. Whether there was one is told by the lanes, which
 * only grow, and the descriptors, which are then at rest.
 */
#ifndef RF_VERIFY_H
#define RF_VERIFY_H

#include "handle.h"

rf_status rf_shm_verify(rf_store *store, rf_visit_difference *visit, void *context,
                        rf_verification *verification, rf_detail *detail);

#endif
