/*
 * Killed at every instruction: every moment of every operation, laid into a copy of the store, with its
 * process declared dead there, and judged by a survivor that attaches to the copy. And killed twice: the
 * survivor that settles the first death is dead at each of its own stores, and a third one finishes.
 */
#ifndef RF_CRASH_STEPPING_H
#define RF_CRASH_STEPPING_H

#include <stdio.h>

#include "judge.h"
#include "recording.h"

#define RF_STEPPING_MANY 1000u

struct rf_stepping {
    uint32_t sample;       /* moments to judge of an operation, about; 0: all */
    uint32_t sample_large; /* the same for scenes of hundreds of shards */
    uint32_t sample_many; /* two deaths: the same for what has more than RF_STEPPING_MANY moments */
    uint32_t compare_each; /* see struct rf_recorder */
    bool twice;            /* two deaths */
    uint32_t sample_twice; /* pairs, about; 0: all */
    uint64_t seed;
};

struct rf_stepped {
    uint64_t instructions;
    uint64_t moments;  /* instructions that changed the region or the files, and the beginning */
    uint64_t distinct; /* states among them */
    uint64_t judged;   /* survivors sent in */
    uint64_t done, undone;
    uint64_t firsts; /* two deaths: first ones that were followed by second ones */
    uint64_t pairs;  /* moments of their settling: stores, and changes of files */
    uint64_t pairs_judged;
    uint64_t pairs_cold; /* directories among them that were opened cold */
};

struct rf_part {
    char name[64];
    const struct scene *scene;
    uint32_t flags;
    rf_durability durability;
};

/* Every scene, with every kind of lease that it can be played with, without and with a log. Returns how
 * many there are; parts may be NULL. */
unsigned rf_stepping_parts(struct rf_part *parts);

/* One of them. Returns NULL, or what went wrong, in words. */
const char *rf_stepping_play(const struct rf_part *part, const struct rf_stepping *how,
                             struct rf_stepped *stepped);

#endif
