/*
 * One loop of work, done by ringfence and by the systems that people use instead: claim a shard, eight
 * checkpoints, complete. A peer is a table of functions; README.md says what each does per step.
 *
 * A shard covers the keys [start, end) and has a cursor, all of 64 bytes (farm_key). A claim hands over all
 * three with a fence; a checkpoint stores a new cursor, and is refused if the shard was granted to another
 * since; complete does the same and ends the shard. A step that anything else came of ends the program.
 */
#ifndef RF_BENCH_PEERS_H
#define RF_BENCH_PEERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "farm.h"
#include "table.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
#define CHECKPOINTS  8u
#define STEPS        (CHECKPOINTS + 2)
#define WORKERS_MAX  32u

/* A directory of this run's own, on the disk that is meant, removed at its end. */
extern char place[160];

/* What is left of a step that was answered after the power went. Comparisons are within one of these. */
enum promise {
    PROMISE_VOLATILE, /* nothing */
    PROMISE_SOON,     /* it, unless it was of the last moments */
    PROMISE_NOW,      /* it */
    PROMISES,
};

struct claim {
    uint32_t index;
    uint64_t fence;
    const uint8_t *start; /* valid until the next step; NULL if the peer can't keep it */
    const uint8_t *end;
    const uint8_t *cursor; /* NULL: none was stored yet */
};

enum answer { ACCEPTED, REFUSED };

struct tally {
    uint64_t done; /* and with the last cursor, if the peer keeps cursors */
    uint64_t held;
};

struct setting {
    const char *name;
    enum promise promise;
    uint32_t shards;   /* enough for a window on a fast machine; it ends early when few are left */
    const char *value; /* what the peer needs to know of it */
    bool renewals;     /* the steps between claim and complete only keep the lease */
    bool
        claims_wait; /* as the others' do, though a lost one would do no harm; compared with nobody */
};

struct peer {
    const char *name;
    const char *cannot; /* NULL: nothing that the loop needs */
    const struct setting *settings;
    uint32_t settings_count;
    uint32_t lease_ms;    /* a short lease: what the peer allows */
    bool keeps_no_cursor; /* and gives no fence */

    /* Makes it ready in `place` and says in `about` what it is: version and configuration. Or false, and
     * why it can't be had. */
    bool (*start)(const struct setting *setting, char *about, size_t size);
    void (*stop)(void);

    /* These run in processes of their own. A fresh run of so many shards: */
    void (*fill)(uint32_t shards, uint32_t lease_ms);
    struct tally (*tally)(uint32_t shards);
    /* A worker: one of `workers`. */
    void *(*join)(uint32_t number, uint32_t workers, uint32_t shards);
    enum answer (*claim)(void *worker, struct claim *out); /* REFUSED: there is none */
    enum answer (*checkpoint)(void *worker, const uint8_t *key);
    enum answer (*complete)(void *worker, const uint8_t *key);
    void (*leave)(void *worker);
    void (*wake)(
        void *
            worker); /* makes the peer see that the worker's lease is over, if it has to be told; or NULL */
};

/* Weak: a peer whose client library is not here is not linked. */
extern const struct peer peer_ringfence;
extern const struct peer peer_redis __attribute__((weak));
extern const struct peer peer_sqlite __attribute__((weak));
extern const struct peer peer_lmdb __attribute__((weak));
extern const struct peer peer_postgres __attribute__((weak));
extern const struct peer peer_etcd __attribute__((weak));
extern const struct peer peer_beanstalkd;

/* Says what is wrong and ends the process; the program ends with it. */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* --- servers (server.c) --- */

/* Runs the program in a child process. However it ends: servers that it left running are stopped and
 * `place`, and what lies in /dev/shm under its name, is removed. */
int servers_supervise(int (*program)(void));
/* The same for what a process of the program left that failed, so that the program can go on. */
void servers_clear(void);

/* The path of a program: an installed one, or one that cmake/deps.sh unpacked; NULL if there is none.
 * directories: a pattern as of glob(3). */
const char *server_find(const char *directories, const char *program);

/* Starts it with its output in `place`/name.log; signal_number ends it well. As root, `user` is whose
 * rights it gets, if not NULL. */
void server_start(const char *name, const char *program, char *const *arguments, int signal_number,
                  const char *user);
void server_stop(void);
/* Runs a program to its end; true if that was a good one. */
bool server_run(const char *name, const char *program, char *const *arguments, const char *user);
/* Whether the one that was started is still there. */
bool server_alive(void);
/* Tries until it succeeds, for ten seconds; false if it never does, or the server ended. */
bool server_answers(bool (*attempt)(void));

/* `place`/name, made if need be and then belonging to `user`; of the last four calls. */
const char *place_of(const char *name);
void place_make(const char *name, const char *user);
void place_remove(const char *name);
/* Some user who is not root, or NULL if we are not root ourselves. */
const char *plain_user(void);

/* --- workers (fleet.c) --- */

/* Calls `work` in a child process. False if that fails, or takes longer than so many seconds (0: no matter how long). */
bool attempt_apart(void (*work)(void *argument), void *argument, unsigned seconds);
/* The same, and ends the process if that fails. */
void apart(void (*work)(void *argument), void *argument);
/* Memory that both see, zeroed, for what comes of it. */
void *shared_memory(size_t size);

struct window {
    double warm_s;
    double timed_s;     /* or shorter, if the shards go to an end */
    double shards_part; /* of those of the setting, if the window is a short one */
};
struct outcome {
    double steps_per_s;
    double seconds;
};
/* Fills the peer and lets the workers loop. Every step succeeded, and afterwards the peer had as many
 * done shards as the workers had completed and none held. */
struct outcome fleet_measure(const struct peer *peer, const struct setting *setting,
                             uint32_t workers, struct window window);

/* --- stale owners (stale.c) --- */

/* Asserts that an owner whose lease ran out, and whose shard was granted to another, is refused, and
 * that the peer hands over what was stored. */
void stale_check(const struct peer *peer, const struct setting *setting);

#endif
