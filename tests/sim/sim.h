/*
 * The simulator: one seed, one clock, one thread. A plan (a list of steps) is drawn from the seed;
 * each step carries a number that names its own stream of random choices, so that a plan from which
 * steps were taken out still means something: that is what makes shrinking possible.
 *
 *   plan.c      seed -> steps: operations by weight, faults by rate
 *   world.c     the store under test: handles, deaths, lost regions; its twin, the model
 *   journal.c   what was done since when, and in which epoch: what a lost tail takes away
 *   request.c   one call, made to the store and to the model, and the answers compared
 *   observe.c   all that the store shows, compared with the model and shown to the checker
 *   points.c    at which points of the store somebody died or stopped
 *   driver.c    what a step does; workers and what they hold; overload
 *   run.c       a whole plan; shrinking a plan that fails
 */
#ifndef RF_SIM_H
#define RF_SIM_H

#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>

#include "chacha.h"
#include "checker.h"
#include "layout.h"
#include "model.h"

#define SIM_WORKERS_MAX 32u
#define SIM_SHARDS_MAX  512u
#define SIM_TENANTS     2u
#define SIM_RUN_IDS     3u
#define SIM_HELD        8u
#define SIM_OLD         8u
#define SIM_PAST        6u
#define SIM_PARTS       12u
#define SIM_LEASE       100u /* ticks */

enum sim_level { SIM_SUNNY, SIM_STORMY, SIM_RADIOACTIVE, SIM_LEVELS };
enum sim_overload { OVERLOAD_NONE, BURST_CLAIM, CAPACITY_DROP, BURST_SHARDS, OVERLOADS };
enum { JUDGE_REFERENCE = 1, JUDGE_CHECKER = 2 };

struct sim_config {
    uint64_t seed;
    enum sim_level level;
    uint32_t workers;
    uint32_t shards;
    uint32_t ops;
    uint32_t liveness;
    uint64_t cooldown;
    uint32_t judges;
    bool keep_going; /* count violations instead of ending at the first */
    bool durable;    /* a store with a log */
    bool no_points;  /* nobody dies or stops inside a call */
    bool false_rule; /* the checker believes in a cooldown that there is not: to see a failure */
    enum sim_overload overload;
    FILE *events; /* the stream goes here too, if not NULL */
    FILE *trace;  /* what is done, in words */
};

/* --- plans --- */

enum step_kind {
    /* of the protocol's table */
    STEP_ACQUIRE,
    STEP_RENEW,
    STEP_CHECKPOINT,
    STEP_COMPLETE,
    STEP_PARK,
    STEP_UNPARK,
    STEP_SPLIT_REPLACE,
    STEP_SPLIT_RESIDUAL,
    STEP_REPLAY,
    STEP_CONFLICT,
    STEP_ZOMBIE,
    STEP_CLAIM,
    STEP_SESSION,
    STEP_ADVANCE,
    STEP_PAUSE,
    STEP_RESUME,
    STEP_END_RUN,
    STEP_TABLE, /* how many those are */

    /* what ringfence has besides */
    STEP_RELEASE = STEP_TABLE,
    STEP_ADD_SHARDS,
    STEP_REGISTER,
    STEP_LOOK,
    STEP_SWEEP,
    STEP_TEND,
    STEP_SYNC,
    STEP_SNAPSHOT,

    /* faults */
    STEP_EXPIRE,
    STEP_STALL, /* the pause of the table's faults */
    STEP_JUMP,
    STEP_DIE,
    STEP_DIE_AT,  /* in the next call, at one of its points */
    STEP_STOP_AT, /* the same, but stopped; the others go on, then it does */
    STEP_DIE_KEEPING, /* at a point of what keeps the store: tending, syncing, a snapshot, closing, runs */
    STEP_REOPEN,
    STEP_LOSE_EVERYBODY,
    STEP_LOSE_REGION,

    /* stages and scenes */
    STEP_PREAMBLE,
    STEP_OVERLOAD,
    STEP_MEASURE,
    STEP_CALM, /* liveness begins */
    STEP_KINDS,
};

const char *step_name(enum step_kind kind);

struct step {
    uint32_t number; /* its stream */
    uint8_t kind;
    uint8_t worker;
    bool calm; /* no faults, no mistakes: liveness */
};

struct plan {
    struct step *steps;
    uint32_t count;
};

void plan_make(struct plan *plan, const struct sim_config *config);
void plan_free(struct plan *plan);
/* Leaves only steps of these numbers, "1,7,20-31" in order; false if that is not what it is. */
bool plan_keep(struct plan *plan, const char *numbers);

/* --- requests --- */

enum call {
    CALL_ACQUIRE,
    CALL_CLAIM,
    CALL_RENEW,
    CALL_CHECKPOINT,
    CALL_COMPLETE,
    CALL_PARK,
    CALL_RELEASE,
    CALL_SPLIT_REPLACE,
    CALL_SPLIT_RESIDUAL,
    CALL_UNPARK,
    CALL_CREATE,
    CALL_REGISTER,
    CALL_CREATE_WITH,
    CALL_ADD,
    CALL_END,
    CALL_PURGE,
    CALLS,
};

const char *call_name(enum call call);

/* A number of 8 bytes, big-endian, and one byte over and over behind it. */
struct sim_key {
    uint64_t n;
    uint32_t extra;
    uint8_t fill;
    bool present;
};

struct sim_blob {
    uint32_t len;
    uint8_t fill;
    bool present;
};

enum mistake {
    RIGHT,
    WRONG_COUNT,
    WRONG_GAP,
    WRONG_ORDER,
    WRONG_SIZE,
    WRONG_CURSOR,
    WRONG_TOKEN,
    WRONG_TWICE,
    WRONG_UNBOUNDED,
    WRONG_ID,
    MISTAKES,
};

/* One call with all that it takes to make it again. */
struct request {
    enum call call;
    uint32_t tenant;
    uint64_t run;
    uint64_t shard;
    uint64_t worker;
    uint32_t flags;
    uint64_t op;
    uint64_t now;
    rf_lease lease;
    struct sim_key key;
    struct sim_blob token;
    rf_park_reason reason;
    rf_run_op_kind ending;
    rf_run_config config;
    enum mistake mistake;
    uint32_t count;    /* children or shards */
    uint32_t rotation; /* the caller's order */
    uint32_t at;       /* where the mistake is */
    struct sim_key points[SIM_PARTS + 1];
    struct sim_blob metadata;
    uint64_t first; /* manifest: number of its first shard */
};

/* What came of a call, by the store. */
struct reply {
    rf_status status;
    bool died;     /* the caller did not live to see it */
    bool happened; /* ... but it happened */
    bool nothing;  /* it was refused for somebody who is stopped */
    bool replayed;
    rf_lease lease; /* granted or renewed */
    rf_shard_status shard_status;
    struct sim_key start, end, key;
};

/* --- the world --- */

struct held {
    uint32_t tenant;
    rf_lease lease;
    struct sim_key start, end, key; /* as far as its holder knows */
};

struct worker {
    rf_store *handle;
    uint64_t member; /* serial of the handle */
    uint64_t paused_until;
    struct held held[SIM_HELD];
    uint32_t held_count;
    struct held old[SIM_OLD];
    uint32_t old_count, old_next;
    struct request past[SIM_PAST];
    uint32_t past_count, past_next;
};

/* Copies of what the region looked like when it was last compared. */
struct watch {
    bool here;
    uint64_t uid;
    uint32_t slot;
    uint8_t run_front[offsetof(struct rf_runrec, claim)];
    struct rf_run_body run_body;
    uint32_t count, room;
    uint8_t *copies;
};

struct sim_goodput {
    uint64_t steps;
    uint64_t completed;
    uint64_t checkpointed;
};

struct sim_report {
    uint64_t seed;
    bool failed;
    bool crashed;
    int signal;
    char directory[64]; /* of the store, while there is one */
    char kind[16];      /* "difference", "S1", "ledger", "liveness", "recovery", ... */
    char what[400];
    uint32_t step; /* how many steps were made */
    uint32_t plan_steps;
    uint64_t ops;
    uint64_t calls;
    uint64_t end_time;
    uint64_t stream_bytes;
    uint64_t stream_hash;
    uint64_t by_step[STEP_KINDS];
    uint64_t idle;
    uint64_t executed[CALLS];
    uint64_t replayed[CALLS];
    uint64_t refused[100]; /* by status */
    uint64_t events[RF_EVENT_RUN_PURGED + 1];
    uint64_t violations[RULES];
    uint64_t expired; /* leases that a fault ended, of those of STEP_EXPIRE */
    uint64_t deaths, deaths_at_points, stops, busy, rebuilds, restarts, recoveries, lost_ops;
    uint64_t opens_killed; /* cold ones */
    uint64_t looks, full_scans;
    uint64_t liveness_used;
    uint64_t available, scanned;
    struct sim_goodput goodput[3]; /* before, during, after */
    uint64_t nanoseconds;
};

/* A call that changed something, with the epoch of the log that it went into. */
struct journal_entry {
    struct request request;
    bool lost; /* no call: the member's leases were given up */
    uint64_t member;
    uint64_t epoch;
};

struct journal {
    struct model base; /* as it was before the first entry; all of it is durable */
    struct journal_entry *entries;
    uint32_t count, room;
};

struct death {
    bool armed, stopping;
    bool here;   /* inside the call that it is meant for */
    bool inside; /* it died in it */
    bool rare;   /* common points are not counted */
    uint32_t countdown;
    uint32_t commits;
    bool prepared, cooled, renewed;
    char point[32];
    jmp_buf jump;
};

struct world {
    const struct sim_config *config;
    struct chacha rng; /* of this step */
    uint64_t now;
    bool calm;
    char directory[64];
    char region[96];
    rf_tenant tenants[SIM_TENANTS];
    struct model model;
    struct checker checker;
    struct worker workers[SIM_WORKERS_MAX];
    rf_store *overseer;
    uint64_t next_member, next_op, next_shard;
    uint64_t incarnation;
    uint64_t dead[SIM_WORKERS_MAX + 4]; /* declared dead, not yet settled */
    uint32_t dead_count;
    uint32_t unsettled; /* steps for which nobody looks */
    uint64_t stock[SIM_TENANTS];
    struct watch watches[SIM_TENANTS][SIM_RUN_IDS + 1];
    struct death death;
    struct journal journal;
    struct request *outer; /* the call that is stopped, while the others go on */
    uint32_t outer_worker;
    uint32_t phase; /* of the overload: 0 before, 1 during, 2 after */
    struct step step;
    uint8_t *stream;
    uint32_t stream_used;
    struct sim_report *report;
    jmp_buf failed;
};

/* Ends the run with a failure. */
void sim_fail(struct world *w, const char *kind, const char *format, ...)
    __attribute__((__noreturn__, format(printf, 3, 4)));
/* A line for --trace. */
void sim_trace(const struct world *w, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* world.c */
void world_open(struct world *w, const struct sim_config *config, struct sim_report *report);
void world_close(struct world *w);
/* A store's directory and all that is in it. */
void world_clear_away(const char *directory);
void world_die(struct world *w, uint32_t worker);    /* declared dead */
void world_reopen(struct world *w, uint32_t worker); /* closed, and opened again */
void world_tend(struct world *w, rf_store *by);
/* By somebody who may die over it. */
void world_tend_mortally(struct world *w, uint32_t worker);
/* The memory is gone, as after a reboot. A store with a log is recovered cold, from what had reached
 * the disk; one without begins anew. */
void world_lose_region(struct world *w);
/* All processes are gone at once; the memory is still there. */
void world_lose_everybody(struct world *w);
void world_snapshot(struct world *w, uint32_t worker);
void world_sync(struct world *w, uint32_t worker);
void world_emit(struct world *w, uint32_t kind, uint32_t who, uint32_t a, uint64_t b, uint64_t c,
                uint64_t d);
void world_end_stream(struct world *w);

/* journal.c */
void journal_begin(struct world *w);
void journal_add(struct world *w, const struct request *q, uint64_t member, uint64_t epoch);
/* The epoch that is open now; what is done next goes into it, or into a later one. */
uint64_t journal_epoch(const struct world *w);
void journal_lost(struct world *w, uint64_t member, uint64_t epoch);
/* The model as it was when everything up to this epoch had been done, and nothing after; no leases. */
void journal_go_back(struct world *w, uint64_t durable, uint64_t incarnation);
void journal_free(struct world *w);

/* request.c */
/* Calls what may die or be stopped on its way; true if it died. It is buried then. */
bool request_killable(struct world *w, uint32_t worker, void (*what)(struct world *, uint32_t));
/* Tells the model alone. */
void request_again(struct world *w, const struct request *q, uint64_t member);
struct reply request_make(struct world *w, uint32_t worker, struct request *q);
struct sim_key key_parse(rf_bytes bytes);

/* points.c: where somebody died or was stopped, in all processes that come from this one */
void points_share(void);
void points_count(const char *name, bool stop);
/* Those that replay, snapshots and long calls pass by the thousand before they come to the last of the others. */
bool points_is_common(const char *name);
/* How many there are, each once; the names last for as long as the process. */
uint32_t points_list(const char **names, uint64_t *deaths, uint64_t *stops, uint32_t room);

/* observe.c */
void observe(struct world *w);
/* All of it by the public calls, and the region's inside at rest. */
void observe_fully(struct world *w);
void observe_forget(struct world *w);
void observe_list(struct world *w, rf_store *by, uint32_t tenant, uint64_t run);
void observe_sweep(struct world *w, rf_store *by, uint32_t tenant, uint64_t run);
/* Whether store and model show the same: NULL, or what differs. */
const char *observe_difference(struct world *w);
void observe_print(struct world *w, FILE *out);

/* driver.c */
void driver_start(struct world *w);
void driver_step(struct world *w, const struct step *step);
void driver_finish(struct world *w);
/* What the others do while one is stopped at a point. */
void driver_meanwhile(struct world *w);

/* run.c */
void sim_run(const struct sim_config *config, const struct plan *plan, struct sim_report *report);
/* Takes steps out of a failing plan for as long as it fails in the same way; `tries` bounds it. */
void sim_shrink(const struct sim_config *config, struct plan *plan, const struct sim_report *first,
                uint32_t tries);
/* Plays the plan in a process of its own, so that a crash is a result like others. */
void sim_run_apart(const struct sim_config *config, const struct plan *plan,
                   struct sim_report *report);
void sim_explain(const struct sim_config *config, const struct plan *plan, FILE *out);

#endif
