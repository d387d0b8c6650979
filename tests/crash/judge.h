/*
 * What survivors must find after a death, whatever moment it came at: the operation happened wholly or
 * not at all, the same call again knows which, nothing is locked, nothing leaked, and the store works.
 */
#ifndef RF_CRASH_JUDGE_H
#define RF_CRASH_JUDGE_H

#include <setjmp.h>

#include "picture.h"
#include "scenes.h"
#include "stage.h"

enum rf_settling {
    RF_BY_TENDING, /* the survivor settles the dead, then looks */
    RF_BY_PASSING, /* the same, but first it does something that has nothing to do with them */
    RF_BY_MEETING, /* it makes the same call at once, and meets what the dead have left */
    RF_BY_READING, /* the dead are settled; only the state is looked at: for moments by the ten thousand */
};

struct rf_judge {
    const struct scene *scene;
    bool bound;
    bool durable;
    rf_options options; /* to open the copy with */
    const char *directory;
    rf_tenant tenant;
    rf_lease lease;               /* the player's */
    uint64_t floor;               /* the store's when the run was made */
    rf_inspection rest;           /* when nothing is going on */
    uint64_t members;             /* handles that are there besides the newcomer's */
    struct picture before, after; /* how it may end */
    struct picture cold[2];       /* the same after a cold open */
    bool told_apart, cold_apart;  /* they differ */
    /* Cold, without versions: at the first moment, and after that was settled; at the last, likewise. */
    struct picture settled[4];
    unsigned settled_count;
    char words[8192]; /* what is wrong */

    rf_store *store;
    jmp_buf wrong;
    uint8_t scratch[RF_GRANT_SCRATCH];
};

/* Attaches to the store, in which everybody else is dead or idle, and returns NULL if all is as it must
 * be, else words. *done: 1 it happened, 0 it did not, -1 nobody can tell. */
const char *rf_judge(struct rf_judge *judge, enum rf_settling how, int *done);
/* Only looks, after the dead were settled: how the operation may end. Without versions it must be one of the two
 * references; NULL: not asked. */
const char *rf_judge_look(struct rf_judge *judge, struct picture *picture,
                          const struct picture *reference, const struct picture *or_this);
/* The same for a store whose region is gone. *done as above. */
const char *rf_judge_cold(struct rf_judge *judge, int *done);
/* A store whose region is gone, after a settler has died in it: takes one of the ways it may be, or
 * compares with those that were taken. A lease that is given up is a version and nothing else by then. */
const char *rf_judge_settled_look(struct rf_judge *judge);
/* done: 1 and 0: it must be there, must not be there; -1: either. */
const char *rf_judge_settled(struct rf_judge *judge, int done);
void rf_judge_drop(struct rf_judge *judge);

#endif
