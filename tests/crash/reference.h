/*
 * How an operation may end by the protocol's text: the scenes played once more, by the model of tests/model
 * instead of the library.
 */
#ifndef RF_CRASH_REFERENCE_H
#define RF_CRASH_REFERENCE_H

#include "picture.h"
#include "scenes.h"

struct rf_reference {
    rf_status status; /* what the operation answers */
    /* What a survivor finds if the actor died before its operation, and after it; without versions. */
    struct picture before, after;
    /* The same in a store whose region is gone: nothing is leased. */
    struct picture cold_before, cold_after;
};

void rf_reference_play(const struct scene *scene, uint32_t flags, const rf_tenant *tenant,
                       struct rf_reference *reference);
void rf_reference_drop(struct rf_reference *reference);

#endif
