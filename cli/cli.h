/*
 * What the commands of `ringfence` share: the table of commands, the state of one invocation, exit
 * codes and the way things are said. One file of cmd_*.c holds one group of commands.
 *
 *   main.c     finds the command, parses its arguments, calls it
 *   args.h     options and arguments by name
 *   values.h   numbers, durations, sizes and keys as people write them
 *   out.h      cards, tables and JSON
 */
#ifndef RF_CLI_H
#define RF_CLI_H

#include <ringfence/ringfence.h>

#include "args.h"
#include "out.h"
#include "values.h"

/* Documented in say.c and in the manual; the numbers never change. */
enum exit_code {
    EXIT_DONE = 0,
    EXIT_INCOMPLETE = 1, /* the command ran, and not everything is well */
    EXIT_USAGE = 2,
    EXIT_NOT_FOUND = 3,
    EXIT_NONE_AVAILABLE = 4,
    EXIT_FENCED = 5,
    EXIT_EXPIRED = 6,
    EXIT_RUN_ENDED = 7,
    EXIT_BUSY = 8,
    EXIT_IO = 9,
    EXIT_NO_ROOM = 10,
    EXIT_PERMISSION = 11,
    EXIT_CORRUPT = 12,
    EXIT_REFUSED = 13,
    EXIT_INTERRUPTED = 130,
};

struct cli;

struct command {
    const char *group;    /* "run", or NULL for a command of its own */
    const char *name;     /* "create" */
    const char *synopsis; /* "DIR RUN" */
    const char *summary;  /* a line */
    const char *text;     /* paragraphs */
    const char *examples; /* lines */
    const struct option_spec *options;
    int min_words;
    int max_words; /* -1: as min_words, and a command behind -- */
    bool prints;   /* data: it has --json */
    bool tenant;   /* it speaks of runs: it has --tenant */
    bool reveals;  /* it can show keys: it has --reveal */
    int (*run)(struct cli *cli);
};

struct command_group {
    const char *name;
    const char *summary;
    const char *text;
};

extern const struct command *const commands[];
extern const struct command_group groups[];

struct cli {
    const struct command *command;
    struct args args;
    rf_tenant tenant;
    bool reveal;
    rf_detail detail; /* of the last refusal */
    int argc;         /* as the program was called */
    char **argv;
};

/* --- saying what went wrong: one sentence on stderr --- */

int cli_fail(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A refusal by the store, with what to do; returns the exit code that belongs to it. `now` (or 0)
 * turns deadlines into what is left. */
int cli_refuse(rf_status status, const rf_detail *detail, uint64_t now, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The sentence of the library, but with times as people read them. */
void explain(rf_status status, const rf_detail *detail, uint64_t now, char *out, size_t size);
enum exit_code exit_of(rf_status status);
void print_exit_codes(FILE *to);
extern const char *const exit_texts[]; /* by code, up to EXIT_REFUSED; NULL where there is none */

/* A RUN or SHARD of the command line; `what` is its name. Returns an exit code. */
int read_id(const char *what, const char *text, uint64_t *id);

/* --- opening --- */

/* Where the store's directory is: a plain name stands for one in /dev/shm. */
const char *store_directory(const char *store);
/* What to say further if there is no such store, but would be one with ./ in front; or nothing. */
const char *plain_name_hint(const char *name);
/* Both return an exit code, 0 if *store is open. */
int open_to_look(struct cli *cli, const char *name, rf_store **store);
int open_to_work(struct cli *cli, const char *name, rf_store **store);

/* What a power cut would cost now: epochs that are not on the disk. */
uint64_t lag_epochs(const rf_inspection *inspection);

/* --- the lock that is held longest (held_lock.c); false: none is --- */

/* As far as guardians have seen one held: at no cost. */
bool longest_held_lock(rf_store *store, rf_lock_info *longest);
/* Also if no guardian is there to see it: then it takes a second look, two milliseconds later. */
bool longest_held_lock_now(rf_store *store, rf_lock_info *longest);
const char *lock_word(rf_lock_what what);
/* "shard 7 of run 1, by pid 12, for 3s" */
void lock_text(const rf_lock_info *lock, char *out, size_t size);

/* --- words for numbers that are stored --- */

const char *run_status_word(rf_run_status status);
const char *shard_status_word(rf_shard_status status);
const char *park_reason_word(rf_park_reason reason);
/* alive, stopped (as far as /proc tells) or dead */
const char *member_state_word(const rf_member_info *member);
const char *op_kind_word(uint8_t kind);
const char *run_op_kind_word(uint8_t kind);
const char *op_class_word(unsigned op_class);
enum out_colour status_colour(const char *word);
bool parse_park_reason(const char *word, rf_park_reason *reason);
const char *tenant_text(const rf_tenant *tenant); /* the first 8 digits of its hash */

/* --- memory that lasts until the end of the program --- */

void *keep_bytes(size_t size); /* zeroed */
char *keep_text(const char *text);
char *keep_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

uint64_t monotonic_ns(void);
void sleep_ns(uint64_t ns);
/* So much after now; UINT64_MAX, which is never, if there is no such time. */
uint64_t monotonic_after(uint64_t ns);

/* --- documents made from the table --- */

int print_help(const char *group, const struct command *command, FILE *to);
int print_man(const char *page);
int print_completion(const char *shell);

#endif
