/*
 * Power cuts under a storm: the storm's processes run with the library that tells what it does to the disk
 * (tests/support/simdisk.h), so that all writes, syncs and changes of names of all of them, the dead
 * included, are in one trace, with the lines of their ledgers between them. The trace is cut at random
 * moments, an image of what the disk may have then is made and opened cold, and held to what the
 * ledgers said before the cut:
 *
 *   - it opens, nothing is left over in its region, and the rules hold;
 *   - every item that was acknowledged is there, and none that nobody had begun;
 *   - it is a prefix: if a checkpoint is there, so is every one that had come back before that one was called,
 *     on any shard, by any process, waited for or not;
 *   - runs that were made are there until they are ended, and gone after they were purged;
 *   - every shard is granted with a fence above all that were granted before the cut, and again after one more
 *     cold open;
 *   - it can be worked on, and what is then acknowledged survives another cold open.
 */
#ifndef RF_CRASH_POWER_H
#define RF_CRASH_POWER_H

#include "storm.h"

struct rf_power {
    const char *directory; /* of the storms; it is made, and removed */
    unsigned workers;
    uint64_t images;       /* in all */
    uint64_t images_storm; /* of one storm; then there is another */
    uint64_t storm_seconds;
    uint64_t seconds; /* to end after, between two storms; 0: never */
    unsigned jobs;    /* judges at once */
    uint64_t seed;
    unsigned disbelieve; /* see rf_simdisk_disbelieve */
};

struct rf_power_report {
    uint64_t storms, kills, stops, cold, snapshots;
    uint64_t events, writes, syncs, names, notes, bytes; /* traced */
    uint64_t images;
    uint64_t unsettled;  /* images of a moment at which something was not durable */
    uint64_t recovering; /* moments between a region's removal and the next run or grant */
    uint64_t acks;       /* acknowledged items looked for and found */
    uint64_t steps;      /* checkpoints that had to be there, since a later one was */
    uint64_t fences;     /* grants whose fence was compared */
};

/* Returns NULL, or what is wrong, in words. To be called within a Unity test. */
const char *rf_power_play(const struct rf_power *power, struct rf_power_report *report);

#endif
