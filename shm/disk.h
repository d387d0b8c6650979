/*
 * The disk under a durable store: the files of its directory, and nothing of what they mean.
 *
 * Everything that changes the directory goes through here, so that a test can keep the trace of it
 * (rf_disk_trace below) and make every image that a power cut could have left.
 *
 * Writes to segments are O_DIRECT with RWF_DSYNC through io_uring; where the kernel or the file
 * system refuses one of them, pwritev2 with RWF_DSYNC does the same, and rf_disk_backend says so.
 * A write is done when all of its bytes are on the disk; a short one is completed.
 *
 * Statuses: RF_RESOURCE_EXHAUSTED for ENOSPC and EDQUOT, RF_IO_ERROR for other errors, with errno in the
 * detail and what to do about it; RF_FORKED from writes in a child of fork.
 *
 * Not thread-safe: a struct rf_disk belongs to one handle, guardian or snapshotter.
 */
#ifndef RF_DISK_H
#define RF_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "log_format.h"
#include "ringfence/ringfence.h"

#define RF_DISK_DEPTH 8u /* writes in flight */

/* How segments are written. */
enum rf_disk_path {
    RF_DISK_URING_DIRECT = 0,
    RF_DISK_URING_BUFFERED = 1, /* the file system refuses O_DIRECT */
    RF_DISK_PLAIN_DIRECT = 2,   /* the kernel refuses io_uring */
    RF_DISK_PLAIN_BUFFERED = 3,
};

struct rf_disk;

/* dir_fd is the store's directory and stays the caller's. mode and gid (if not -1) are for new files. */
rf_status rf_disk_open(int dir_fd, mode_t mode, gid_t gid, uint64_t segment_bytes,
                       struct rf_disk **out, rf_detail *detail);
/* Waits for writes in flight. In a child of fork call rf_disk_forget instead: it closes descriptors
 * and frees memory, and what is in flight stays the parent's. */
void rf_disk_close(struct rf_disk *disk);
void rf_disk_forget(struct rf_disk *disk);

/* Finds out how segments will be written, if nothing was written yet. */
void rf_disk_probe(struct rf_disk *disk);
/* Known after the first write, or rf_disk_probe. why is one sentence about what was refused and how to get
 * it, "" if nothing was; it lives as long as the disk. */
enum rf_disk_path rf_disk_backend(const struct rf_disk *disk, const char **why);

/* Whether `error`, with which a call has just failed, is this process's own: it may have no more descriptors or memory,
 * may not open or make that file, or not one of that size. Nothing was written, and nothing is wrong with the disk. */
bool rf_disk_own_limit(const struct rf_disk *disk, int error);
/* Whether this process may write so far into a file. */
bool rf_disk_fits_limit(uint64_t bytes);

/* --- segments --- */

/* Makes segment `header->number`: zeros of the full size under a temporary name, the header (its hash is
 * filled in here), synced, linked in without replacing, directory synced. RF_OK as well if somebody
 * else was faster, whatever its header says; its name is durable then, too. A failure leaves nothing behind. `unique` goes into the temporary name. */
rf_status rf_segment_make(struct rf_disk *disk, const struct rf_segment_header *header,
                          uint64_t unique, rf_detail *detail);
/* Whether it is there under its name. */
bool rf_segment_exists(struct rf_disk *disk, uint64_t number);
/* The header of a segment. RF_NOT_FOUND, RF_CORRUPT, RF_VERSION_MISMATCH with the file's name in detail. */
rf_status rf_segment_header_read(struct rf_disk *disk, uint64_t number,
                                 struct rf_segment_header *header, rf_detail *detail);
/* RF_OK as well if it is not there. Until the directory is synced for something else, a power cut may
 * bring it back. */
rf_status rf_segment_remove(struct rf_disk *disk, uint64_t number, rf_detail *detail);
/* fsync of a segment that was only read: it may sit in the drive's cache. */
rf_status rf_segment_sync(struct rf_disk *disk, uint64_t number, rf_detail *detail);

/* Reads [position, position + len) of the log, across segments, by plain reads. Bytes of segments that
 * are not there read as zeros; *missing says if there were any. RF_CORRUPT if a segment is not of the
 * full size. */
rf_status rf_log_pread(struct rf_disk *disk, uint64_t position, void *to, size_t len, bool *missing,
                       rf_detail *detail);

/* That these bytes will be read soon: the disk may begin to bring them. */
void rf_log_expect(struct rf_disk *disk, uint64_t position, size_t len);

/* --- writing the log --- */

/* Starts writing len bytes (whole blocks, from memory aligned to 4 KiB that stays as it is until the write
 * is done) at a position of the log, in one or more segments that exist. At most RF_DISK_DEPTH are in flight:
 * RF_BUSY if there are as many already. tag comes back with the completion.
 * RF_NOT_FOUND: a segment is not there (any more); RF_CORRUPT: one is not of the full size. Nothing was
 * begun then. Whoever opens a segment for its first write syncs the directory, unless it made the
 * segment itself: the maker may have died before it did, and what is acknowledged must be found. */
rf_status rf_log_write_begin(struct rf_disk *disk, uint64_t position, const void *from, size_t len,
                             uint64_t tag, rf_detail *detail);
/* The next completion: true, with its tag and 0 or an errno. wait: sleeps until there is one; false if
 * nothing is in flight. !wait: false if none is there yet. */
bool rf_log_write_next(struct rf_disk *disk, bool wait, uint64_t *tag, int *error);
/* Both at once, for whoever has nothing else in flight (RF_BUSY otherwise). */
rf_status rf_log_write(struct rf_disk *disk, uint64_t position, const void *from, size_t len,
                       rf_detail *detail);

/* --- whole files: the store file and snapshots --- */

/* Written under a temporary name, then published: synced, renamed over `name`, directory synced. */
struct rf_disk_file;
rf_status rf_file_begin(struct rf_disk *disk, const char *name, uint64_t unique,
                        struct rf_disk_file **file, rf_detail *detail);
rf_status rf_file_append(struct rf_disk_file *file, const void *from, size_t len,
                         rf_detail *detail);
/* Overwrites bytes that were appended. */
rf_status rf_file_patch(struct rf_disk_file *file, uint64_t offset, const void *from, size_t len,
                        rf_detail *detail);
rf_status rf_file_publish(struct rf_disk_file *file, rf_detail *detail); /* and closes it */
void rf_file_discard(struct rf_disk_file *file);
/* As rf_segment_remove. */
rf_status rf_file_remove(struct rf_disk *disk, const char *name, rf_detail *detail);

/* Calls visit for every file name that begins with `prefix` followed by 16 hexadecimal digits, with their
 * value, ascending. */
typedef void rf_disk_visit(void *context, uint64_t number);
rf_status rf_disk_list(struct rf_disk *disk, const char *prefix, rf_disk_visit *visit,
                       void *context, rf_detail *detail);
/* Removes temporary files whose final name begins with `prefix` and whose maker, by the number that he gave, is over. */
typedef bool rf_disk_is_over(const void *context, uint64_t unique);
void rf_disk_sweep_left(struct rf_disk *disk, const char *prefix, rf_disk_is_over *is_over,
                        const void *context);
/* Removes all temporary files; only while nobody else is attached. */
void rf_disk_sweep_temporary(struct rf_disk *disk);
/* What was removed so far stays removed. (Whatever gets a name here is durable when the call returns.) */
rf_status rf_disk_sync_removals(struct rf_disk *disk, rf_detail *detail);

/* --- tracing, in the library with injection points only --- */

/* A write has two events of their own; everything else is told twice, before it is done and after it was
 * done (`done`, with its error). */
enum rf_disk_event_kind {
    RF_DISK_WRITE_BEGIN, /* name, offset, bytes: from here on any part may be on the disk */
    RF_DISK_WRITE_END,   /* with sync: the bytes are durable (if error is 0) */
    RF_DISK_SYNC,        /* the file's bytes and size are durable */
    RF_DISK_CREATE,      /* a name appeared, a new file without bytes */
    RF_DISK_RENAME,      /* name to name2 */
    RF_DISK_REMOVE,
    RF_DISK_SYNC_DIR, /* names are durable */
};
struct rf_disk_event {
    enum rf_disk_event_kind kind;
    bool done;
    bool sync;    /* of a write: RWF_DSYNC */
    bool replace; /* of a rename: over whatever name2 is */
    int error;    /* of WRITE_END, and if done */
    const char *name;
    const char *name2;
    uint64_t offset;
    const void *bytes; /* of WRITE_BEGIN; NULL: zeros */
    size_t len;
    uint64_t id; /* pairs WRITE_BEGIN and WRITE_END; no two writes of a host have the same */
};
#if RF_POINTS
/* What it returns for WRITE_BEGIN and before anything else is done (0: go on) is taken as the errno of the
 * operation, which then is not done: EIO and ENOSPC by order. For a write, -n is a short write: its first n bytes are
 * written alone, the rest after them. */
typedef int rf_disk_trace_fn(void *context, const struct rf_disk_event *event);
extern rf_disk_trace_fn *rf_disk_trace;
extern void *rf_disk_trace_context;
#endif

#endif
