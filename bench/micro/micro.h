/* The parts of rf-bench-micro, and what they share. README.md says what each row is. */
#ifndef RF_BENCH_MICRO_H
#define RF_BENCH_MICRO_H

#include <assert.h>
#include <stdlib.h>

#include "farm.h"
#include "gang.h"
#include "table.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

enum {
    RUN_OWN = 1, /* every process has shards of its own */
    RUN_ONE,     /* one shard, whose lease all present */
    RUN_TURN,    /* one shard, which all want to hold */
    RUN_LOOK,    /* to be looked at */
    RUN_BULK,    /* to be registered at once */
};

#define LOOK_SHARDS 1000u

#define AHEAD     16u /* keys are written some steps before they are used */
#define SPLIT_MAX RF_SPLIT_CHILDREN_MAX

extern struct bench_options options;

/* What a process owns of RUN_OWN, as numbers of shards: one to work on over and over, some that live
 * through everything that can be done with a lease, and some to be split in each way. */
struct parcel {
    uint32_t lives;
    uint32_t residuals;
    uint32_t splits_2;
    uint32_t splits_16;
    uint32_t splits_256;
};

/* In memory that all processes share. */
struct setting {
    rf_durability mode;
    uint32_t processes;
    struct parcel parcel;
    rf_lease one; /* of the shard of RUN_ONE, detached */
};

static inline uint32_t parcel_size(const struct parcel *p)
{
    return 1 + p->lives + p->residuals + p->splits_2 + p->splits_16 + p->splits_256;
}

/* Opens the store of a mode. */
void open_mode(struct farm *farm, rf_durability mode);
const char *mode_name(rf_durability mode);

/* Whatever is timed must have happened, and be durable if that was asked for. */
static inline void must_have(rf_status status, const rf_result *result, const char *what)
{
    if (__builtin_expect(status != RF_OK || result->outcome != RF_EXECUTED, 0)) {
        char text[320];
        rf_explain(status, &result->detail, text, sizeof(text));
        fprintf(stderr, "%s: %s\n", what, status == RF_OK ? "replayed, and not executed" : text);
        abort();
    }
}

/* --- the steps (steps.c) --- */

struct step {
    const char *name;
    gang_step *step;
    /* How many of them a process has to do, if they can't be done over and over; else 0. */
    uint32_t (*count)(const struct parcel *parcel);
    bool unseen; /* brings about what the next one needs, and is no row */
};

/* In this order, each beginning with what the one before left. */
extern const struct step own_steps[];
extern const uint32_t own_step_count;
/* On one shard for all processes, in any order. */
extern const struct step one_steps[];
extern const uint32_t one_step_count;

/* A process of the gang; argument is a struct setting. */
void *begin_worker(void *argument, uint32_t number);
/* The runs were made anew: forgets all that it held, and takes the shard to work on. */
void start_over(void *context, uint64_t i);

/* --- registrations (register.c) --- */

void measure_register(struct farm *farm, rf_durability mode);

#endif
