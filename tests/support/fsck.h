/*
 * Looks through a whole region for what an operation at rest must not leave: descriptors that are
 * not idle, locks, odd sequence words, index cells and blocks that nobody refers to. For moments
 * when nobody else is doing anything.
 */
#ifndef RF_TEST_FSCK_H
#define RF_TEST_FSCK_H

#include "ringfence/ringfence.h"

/* What is wrong, in static memory, or NULL. */
const char *rf_fsck(rf_store *store);

#endif
