/* A place to try rf-scan in: a directory of its own, the program run as a user would, and what it
 * said. Everything goes when the trial ends. */
#ifndef RF_SCAN_TRIAL_H
#define RF_SCAN_TRIAL_H

#include <stdio.h>
#include <sys/types.h>

#include "found.h"
#include "unity.h"

#ifndef RF_SCAN_SLOW
#define RF_SCAN_SLOW 0 /* 1 under sanitizers: a smaller tree will do */
#endif

struct trial {
    char dir[64];
    char tree[96];  /* what is scanned */
    char state[96]; /* --state */
    char json[96];  /* --json */
    char out[96];   /* what it printed, both ways */
    const char *program;
    const char
        *rules; /* --rules; NULL: the built-in ones, which take a third of a second to compile */
};

void trial_begin(struct trial *trial);
void trial_end(struct trial *trial);

/* A file below the tree, with its directories. */
void trial_write(const struct trial *trial, const char *path, const void *bytes, size_t len);
void trial_write_text(const struct trial *trial, const char *path, const char *text);

/* rf-scan --state ... --json ... ARGUMENTS TREE, in a process group of its own. `arguments` are words
 * with blanks between. Returns its pid. */
pid_t trial_start(const struct trial *trial, const char *arguments);
/* Its exit status; the signal it died of, negative. Ends a hang after minutes. */
int trial_wait(pid_t pid);
int trial_scan(const struct trial *trial, const char *arguments);
/* Everything at once, as a power button would. */
void trial_kill_all(pid_t pid);
/* Its workers. */
size_t trial_workers(pid_t pid, pid_t *out, size_t room);

/* The JSON lines; fails the test if there are none. */
struct found trial_found(const struct trial *trial);
/* All findings of the report, without the summary, as one text; to be freed. */
char *trial_findings(const struct trial *trial);
/* A whole file; to be freed. len may be NULL. */
char *trial_read(const char *file, size_t *len);
/* Does any file in or below dir hold these bytes? */
bool trial_tree_holds(const char *dir, const char *bytes);

/* Holds what was found against what was planted. */
void trial_check_planted(const struct trial *trial, const struct corpus *corpus);

void trial_sleep_ms(unsigned ms);
/* The environment's number, or this. */
uint64_t trial_number(const char *name, uint64_t otherwise);

#endif
