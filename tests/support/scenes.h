/*
 * Scenes: one for every kind of operation, and for every way that an operation can go. A scene knows
 * what has to be there before, the operation itself, and what the same call answers afterwards if
 * the operation happened, and if it did not.
 *
 * All times are given, so two plays of a scene end in the same state to the last byte.
 */
#ifndef RF_TEST_SCENES_H
#define RF_TEST_SCENES_H

#include "ringfence/ringfence.h"

#define SCENE_RUN      7u
#define SCENE_DURATION 1000000u
#define SCENE_BEGIN    1000u    /* when it is prepared */
#define SCENE_NOW      2000u    /* when the operation is made */
#define SCENE_LOOK     3000u    /* when it is looked at: leases are still good */
#define SCENE_LATE     5000000u /* every lease has run out */
#define SCENE_OP       0x0b5e55edu

/* What the player of a scene has in hand. */
struct play {
    rf_store *store;
    const char *name; /* of the store */
    rf_tenant tenant;
    uint32_t flags; /* RF_BOUND or RF_DETACHED */
    rf_lease lease; /* what `enter` took */
    rf_grant grant; /* room */
};

struct answer {
    rf_status status;
    int outcome; /* -1: not asked */
};

enum {
    SCENE_LEASED = 1,      /* `enter` takes a lease: played with a bound and with a detached one */
    SCENE_GRANTS = 2,      /* the operation itself does */
    SCENE_PROCESS = 4,     /* other threads of the process work on it: their points count too */
    SCENE_UNORDERED = 8,   /* not one commit: more than the point decides whether it happened */
    SCENE_LARGE = 16,      /* hundreds of points: sampled where they would be squared */
    SCENE_LATE_LOOK = 32,  /* looked at when leases have run out */
    SCENE_COOLDOWN = 64,   /* in a store where claims need a pause */
    SCENE_OPENS = 128,     /* the operation opens the store: there is no handle before it */
    SCENE_FORGETS = 256,   /* no op id: with the lease goes all knowledge of it */
    SCENE_UNCOUNTED = 512, /* how many steps it took to get there is not compared */
};

struct scene {
    const char *name;
    unsigned traits;
    void (*prepare)(struct play *play);                     /* by a bystander, who stays */
    void (*enter)(struct play *play);                       /* by the actor, before */
    rf_status (*act)(struct play *play, rf_result *result); /* the operation */
    /* The same call again, by somebody else: */
    struct answer if_done;
    struct answer if_undone;
    struct answer if_lost; /* not done, and the lease it needs was bound to the dead */
    bool same;             /* after that call the state is the one of an undisturbed play */
};

extern const struct scene scenes[];
extern const unsigned scene_count;
/* By its name; ends the program if there is none. */
const struct scene *scene_by_name(const char *name);

/* How stores for scenes are made. */
rf_options scene_options(const struct scene *scene);

#endif
