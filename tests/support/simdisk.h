/*
 * A disk that remembers, for tests whose library has its trace compiled in (test_points_*).
 *
 * It keeps everything that was done to a store's directory by any process of the test, in one order,
 * and makes for any moment what the directory could look like after a power cut at that moment:
 *
 *   - what was durable then is there;
 *   - a write that was begun and is not durable is there, or not, or partly: each sector of 512 bytes has
 *     what it had, or what a write put there. One that was begun and not ended may still come after
 *     everything that was begun later, as a write of a stopped or dying process does;
 *   - a file is as long as it was, or as long as a write made it; what nobody wrote reads as zeros;
 *   - a name that was made, moved or removed since the directory was last synced is there, or not,
 *     each by itself: POSIX promises no order. A rename is there as a whole or not at all.
 *
 * These images are counted and numbered, each once, or drawn by a seed where there are too many.
 *
 * A cut c is the moment after the first c events. Only some matter: whatever may be found after a cut may be
 * found after a later one as well, and more was acknowledged by then, until something becomes
 * durable. So rf_simdisk_matters() is true just before that, and at the end.
 *
 * It also fails operations by order: the n-th write, sync, ..., with an errno.
 */
#ifndef RF_TEST_SIMDISK_H
#define RF_TEST_SIMDISK_H

#include <sys/types.h>

#include "disk.h"

#define RF_SIMDISK_SECTOR    512u
#define RF_SIMDISK_BIT(kind) (1u << (kind))
#define RF_SIMDISK_CHANGES                                                                         \
    (RF_SIMDISK_BIT(RF_DISK_WRITE_BEGIN) | RF_SIMDISK_BIT(RF_DISK_SYNC) |                          \
     RF_SIMDISK_BIT(RF_DISK_CREATE) | RF_SIMDISK_BIT(RF_DISK_RENAME) |                             \
     RF_SIMDISK_BIT(RF_DISK_REMOVE) | RF_SIMDISK_BIT(RF_DISK_SYNC_DIR))

/* Starts over: the files that are in the directory now are durable, nothing has happened yet, nothing fails.
 * Before the processes are forked that are to be watched. */
void rf_simdisk_begin(const char *directory);
void rf_simdisk_end(void);

/* What the library's trace calls; a test may call it as well, with events that it made up. */
int rf_simdisk_trace(void *context, const struct rf_disk_event *event);
#if RF_POINTS
static inline void rf_simdisk_watch(const char *directory)
{
    rf_simdisk_begin(directory);
    rf_disk_trace = rf_simdisk_trace;
}
static inline void rf_simdisk_unwatch(void)
{
    rf_disk_trace = NULL;
    rf_simdisk_end();
}
#endif

/* --- moments --- */

/* Events so far; a cut is 0 .. this. */
uint32_t rf_simdisk_cuts(void);
bool rf_simdisk_matters(uint32_t cut);
/* Event `i` in words, for a message; valid until the next call. */
const char *rf_simdisk_words(uint32_t i);

/* Remembers, in the order of the events, something that the test knows from here on: what was acknowledged. */
void rf_simdisk_note(uint64_t value);
/* What was noted before the cut, in order: copies at most `room`, returns how many there are. */
size_t rf_simdisk_notes(uint32_t cut, uint64_t *values, size_t room);
/* Whether event `i` is such a note, and what it says. */
bool rf_simdisk_is_note(uint32_t i, uint64_t *value);
/* How much of the room for events, or for bytes, is used, in percent. */
unsigned rf_simdisk_fill(void);

/* Writes of processes that were killed never end. Once those are gone for good, what they wrote is in the
 * directory's files or will never be: this looks, and lets the ones that are there end, not durably. */
void rf_simdisk_settle(void);
/* Names that a dead process was about to make, move or remove: whether it did can be seen in the directory
 * once it has been waited for. Events before `since` are not its own. */
void rf_simdisk_bury(pid_t pid, uint32_t since);

/* --- images --- */

/* How many different ones; UINT64_MAX: too many to count. */
uint64_t rf_simdisk_images(uint32_t cut);
/* Makes number `which` of them into a directory, which is made or emptied first. */
void rf_simdisk_image(uint32_t cut, uint64_t which, const char *into);
/* One of them by a seed: 0 keeps nothing that need not be there, 1 everything, others mix. */
void rf_simdisk_sample(uint32_t cut, uint64_t seed, const char *into);
/* The i-th of all images if there are at most `most`, the i-th of that many samples otherwise. False
 * behind the last. */
bool rf_simdisk_next(uint32_t cut, uint64_t i, uint64_t most, uint64_t seed, const char *into);

/* How many writes and changes of names may be there or not at this cut. */
size_t rf_simdisk_unsettled(uint32_t cut);
void rf_simdisk_remove_image(const char *path);

/* --- faults --- */

/* The n-th operation (from 1) of these kinds from now on fails with this errno, or, if it is -bytes and a write,
 * is short at first. lasting: those after it too. n 0: none. */
void rf_simdisk_fail(unsigned kinds, uint64_t n, int error, bool lasting);
/* Operations of those kinds since then, in all processes. */
uint64_t rf_simdisk_counted(void);

/* --- lies, to see that a test notices --- */

/* Takes no notice of the success of these kinds (syncs, and durable writes by RF_DISK_WRITE_END), as
 * if the library had left them out. */
void rf_simdisk_disbelieve(unsigned kinds);

#endif
