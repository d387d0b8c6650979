/* What disk.c (the directory and its files) and disk_write.c (writes in flight) know of each other. */
#ifndef RF_DISK_INTERNAL_H
#define RF_DISK_INTERNAL_H

#include "disk.h"
#include "region.h"

struct io_uring;

#define RF_DISK_NAME_MAX 96u
#define RF_DISK_SEGMENTS 2u  /* descriptors kept */
#define RF_DISK_KNOWN    16u /* names remembered to be durable */
#define RF_DISK_PARTS    16u /* pieces of writes in flight, each within one segment */

/* A segment that was opened by its name. */
struct rf_disk_segment {
    int fd; /* -1: an empty place */
    bool writing;
    uint64_t number;
    uint64_t used; /* by disk->clock; the least is closed first */
};

/* One rf_log_write_begin. */
struct rf_disk_flight {
    bool used;
    uint64_t order; /* the sooner begun, the sooner reported */
    uint64_t tag;
    uint64_t position;
    const uint8_t *from;
    size_t len;
    size_t begun;     /* bytes that are, or were, in parts */
    unsigned pending; /* parts */
    int error;        /* the first one */
};

struct rf_disk_part {
    struct rf_disk_flight *flight; /* NULL: free */
    uint64_t number;
    uint64_t offset; /* in the file */
    const uint8_t *from;
    size_t len;
    size_t done;
    size_t limit;    /* of the next attempt; 0: none */
    unsigned stalls; /* attempts that brought nothing */
    uint64_t id;     /* in the trace */
    bool direct;     /* how the attempt was made */
    bool in_ring;
    int error;
};

struct rf_disk {
    int dir_fd;
    mode_t mode;
    gid_t gid;
    pid_t owner; /* who may write */
    uint64_t segment_bytes;
    uint64_t data_bytes; /* of the log in a segment */

    struct rf_disk_segment segments[RF_DISK_SEGMENTS];
    uint64_t clock;
    int own_error; /* errno of the last attempt to open or make a file, if this process was refused; else 0 */
    uint64_t known[RF_DISK_KNOWN]; /* 1 + number of a segment whose name is durable */
    unsigned known_next;

    /* How to write. Each is decided once. */
    bool ring_decided;
    bool ring_refused;
    bool direct_decided;
    bool direct_refused;
    bool direct_proven; /* a direct write has succeeded: EINVAL is an error now */
    bool dsync_refused; /* pwrite and fdatasync instead of pwritev2 */
    char ring_why[160];
    char direct_why[160];
    char why[352];

    struct rf_disk_flight flights[RF_DISK_DEPTH];
    struct rf_disk_part parts[RF_DISK_PARTS];
    uint64_t begun;
    struct io_uring *ring; /* NULL: none */
};

/* The name of a segment. */
void rf_segment_name(uint64_t number, char name[RF_DISK_NAME_MAX]);
/* The descriptor of a segment that exists, by its name; it stays the cache's. 0, or an errno: ENOENT
 * if it is not there, EUCLEAN if it is not a file of the full size. */
int rf_segment_fd(struct rf_disk *disk, uint64_t number, bool writing, int *fd);

/* Whatever was said so far about O_DIRECT, from now on it is not used. */
void rf_disk_refuse_direct(struct rf_disk *disk, int error);
void rf_disk_explain_path(struct rf_disk *disk);
rf_status rf_disk_error(rf_detail *detail, int error, const char *doing, const char *name);

/* disk_write.c */
void rf_disk_ring_decide(struct rf_disk *disk);
void rf_disk_ring_drop(struct rf_disk *disk);

/* The trace; see disk.h. */
#if RF_POINTS
int rf_disk_tell(const struct rf_disk_event *event);
uint64_t rf_disk_write_id(void);
#else
static inline int rf_disk_tell(const struct rf_disk_event *event)
{
    (void)event;
    return 0;
}
static inline uint64_t rf_disk_write_id(void)
{
    return 0;
}
#endif

#endif
