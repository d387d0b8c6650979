/*
 * `ringfence work`: one supervisor, and workers that are processes of their own.
 *
 *   supervisor --- starts workers again within a budget, reads lines, decides when it is over
 *      |  board: shared memory, one seat a worker          ^ bell: an eventfd
 *      v                                                   |
 *   worker 1..N  --- each claims a shard, starts the command, keeps the lease, reads descriptor 3
 *      |  a process group of its own                       ^ keys that are done
 *      v                                                   |
 *   the command, with RINGFENCE_* in its environment
 *
 * Any of them may be killed. A dead worker's lease ends at once, and its command dies with it: the
 * kernel kills it (PR_SET_PDEATHSIG), the supervisor its process group. A dead supervisor takes its
 * workers along, which stop their commands and release their shards.
 */
#ifndef RF_CLI_WORK_H
#define RF_CLI_WORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "cli.h"

#define WORKERS_MAX 1024u

/* How long a worker may take, beyond its command's grace, to come to its end when it is stopped: whoever
 * is blocked by a reader that does not read is killed then. */
#define BLOCKED_NS RF_SECOND
#define NEVER_NS   (365 * 24 * 3600 * RF_SECOND) /* no --timeout and no --grace is longer */

enum seat_state { SEAT_EMPTY, SEAT_IDLE, SEAT_RUNNING, SEAT_GIVEN_UP };

struct seat {
    _Atomic pid_t worker;
    _Atomic pid_t command; /* its process group; 0 while none runs */
    _Atomic uint32_t state;
};

/* What a worker that can't go on tells the supervisor, beside its exit code. */
enum { WORKER_DONE = 0, WORKER_FATAL = 3 };

struct board {
    _Atomic uint32_t drain;  /* claim no more */
    _Atomic uint32_t stop;   /* and end the commands that run */
    _Atomic uint32_t bar;    /* there is a progress bar on stderr */
    _Atomic uint64_t done;   /* by the workers of this supervisor */
    _Atomic uint64_t failed; /* runs of the command that did not end well */
    _Atomic uint64_t parked;
    _Atomic uint64_t lost; /* leases */
    _Atomic uint64_t released;
    _Atomic int trouble; /* exit code of a worker that can't go on; 0: of none, or it has none */
    _Atomic uint32_t joblog_lost; /* lines could not be written into it */
    _Atomic int lost_output[2]; /* errno with which stdout, stderr could not be written; 0: none */
    pthread_mutex_t output;     /* robust: held by whoever prints */
    struct seat seats[WORKERS_MAX];
};

enum halt_when { HALT_NEVER, HALT_SOON, HALT_NOW };
enum halt_what { HALT_FAIL, HALT_SUCCESS, HALT_DONE };

struct work {
    struct cli *cli;
    const char *store_name;
    uint64_t run;
    char **command;
    int command_count;
    uint32_t workers;
    uint64_t timeout_ns; /* 0: none */
    uint64_t grace_ns;
    uint64_t retries;
    uint64_t backoff_ns;
    uint64_t restarts;
    bool lines;
    bool pipe;
    uint64_t lines_per_shard;
    uint64_t ahead; /* shards that may wait before no more lines are read */
    bool ungroup;
    bool keep_open; /* leave the run active in the end */
    bool quiet;
    const char *joblog;
    enum halt_when halt_when;
    enum halt_what halt_what;
    uint64_t halt_count;
    rf_run_config config; /* of a run that --lines makes */

    struct board *board;
    int board_fd;
    int bell_fd;
};

/* Whether as many shards have come to their end here as --halt says. */
bool is_halted(const struct work *work);

/* One worker's life; returns its exit code. */
int work_as_worker(struct work *work, uint32_t seat);

/* Whoever prints, be it output of a command or the bar, holds the board's lock. */
void output_lock(struct board *board);
/* Not for longer than this: whoever has it may be waiting for a reader. */
bool output_lock_within(struct board *board, uint64_t ns);
void output_unlock(struct board *board);

/* The command's words with {} replaced. Without any {} the items come last. `items` is what the
 * lines of a shard are; NULL if the run was not made of lines. */
struct items {
    const char **item;
    uint32_t count;
};
char **expand_command(const struct work *work, const struct items *items, uint64_t shard,
                      uint32_t seat);
void free_words(char **words);
/* The lines in a shard's metadata that are behind its cursor. */
struct items items_of(rf_spec spec, rf_cursor cursor);
void hide_items(struct items *items); /* puts (item) in their place */
void free_items(struct items *items);
/* More lines than that are too long for the metadata of a shard, even if they are empty. */
#define LINES_MAX (RF_METADATA_MAX + 1u)
/* Keys of lines: their numbers, with leading zeros. */
#define LINE_KEY 20
void line_key(uint64_t number, char out[LINE_KEY + 1]);

/* Reading lines, by the supervisor. */
struct line_feed {
    char *buffer;
    size_t used;
    size_t room;
    bool ended;    /* end of input */
    bool finished; /* and all of it is registered */
    bool made_run;
    bool registered; /* the run has its first shards */
    uint64_t taken;  /* lines of this input */
    uint64_t next_line;
    uint64_t next_shard;
    uint64_t shards;
    /* If it is there shards are shown, and not made. */
    void (*show)(void *context, uint64_t shard, rf_spec spec, rf_cursor cursor);
    void *context;
};
int feed_begin(struct work *work, rf_store *store, struct line_feed *feed);
/* The same for a dry run: looks only. */
int feed_rehearse(struct work *work, rf_store *store, struct line_feed *feed);
/* Reads what is there and registers what is whole. Returns an exit code. */
int feed_read(struct work *work, rf_store *store, struct line_feed *feed);

#endif
