/*
 * Every store of this very process into a mapped region, in order: the region is read-only, a store
 * faults, its page is opened for one instruction, and what has changed is noted. Exact by the
 * processor's own doing, and much faster than stepping. One trace at a time, one thread.
 */
#ifndef RF_CRASH_STORE_TRACE_H
#define RF_CRASH_STORE_TRACE_H

#include "recording.h"

/* image: what the region is now; it follows the stores. They are added to changes. before (or NULL) is
 * called before each of them. */
void rf_trace_begin(uint8_t *region, uint64_t size, struct rf_image *image,
                    struct rf_changes *changes, void (*before)(void *context), void *context);
void rf_trace_end(void);

#endif
