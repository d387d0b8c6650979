/*
 * The processes of a test: started, killed, stopped, waited for and looked at.
 *
 * A child says what is wrong with CREW_CHECK and ends with CREW_FAILED; the test hears of it from
 * crew_join. Whoever is started dies with the test.
 */
#ifndef RF_TEST_CREW_H
#define RF_TEST_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "ringfence/ringfence.h"

#define CREW_FAILED 3

#define CREW_CHECK(truth, ...)                                                                     \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            crew_say(__FILE__, __LINE__, #truth, __VA_ARGS__);                                     \
            _exit(CREW_FAILED);                                                                    \
        }                                                                                          \
    } while (0)

void crew_say(const char *file, int line, const char *truth, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* How much longer work takes with a sanitizer, about: 1 without. */
unsigned crew_slowness(void);
/* RF_SOAK=1: `much`, otherwise `little` divided by the slowness. */
uint64_t crew_amount(uint64_t little, uint64_t much);

uint64_t crew_ns(void);
void crew_sleep_ms(unsigned ms);
/* Polls until the truth of it, or the timeout. */
bool crew_until(bool (*truth)(void *context), void *context, unsigned timeout_ms);

/* Zeroed memory that is shared with children. */
void *crew_shared(size_t bytes);
void crew_unshare(void *at, size_t bytes);

/* A store of this test alone, removed by crew_store_drop. The name is for rf_open. */
const char *crew_store(const char *label);
void crew_store_drop(void);
/* Opens it in the calling process; ends the process if it can't. NULL: make it, with defaults. */
rf_store *crew_open(const char *store, const rf_options *options);

/* Runs body(argument) in a process of its own. */
pid_t crew_start(int (*body)(void *argument), void *argument);
/* Its exit status, or minus the signal that ended it; -1000 if it was still there at the end of the
 * time, after telling what it did. */
int crew_join(pid_t pid, unsigned timeout_ms);
void crew_kill(pid_t pid);
/* What a process and its threads do now, on stderr. */
void crew_tell(pid_t pid);

/* Stops it, and returns when all its threads have stopped: until then they still take wakes. */
void crew_stop(pid_t pid);

/* Voluntary context switches of the process's main thread so far: how often it went to sleep. */
uint64_t crew_sleeps(pid_t pid);
/* Whether its main thread is asleep. */
bool crew_asleep(pid_t pid);

#endif
