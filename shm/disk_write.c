/*
 * Writes to the log that are in flight.
 *
 * A flight is what the caller began; it is cut into parts, each within one segment, and over when all of
 * its parts are. A part is written by attempts: the ring's or the thread's own. What an attempt
 * brought is judged in one place (goes_on), however it was made.
 *
 * The ring has no flags: a handle may move from one thread to another, and with cooperative task
 * work a write begun by one thread could not be seen to end by another.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#if RF_HAVE_URING
#include <liburing.h>
#endif

#include "disk_internal.h"
#include "point.h"

#define ATTEMPT_MAX (1u << 30) /* bytes */
#define STALLS_MAX  1000u
#define SUBMITS_MAX 1000u /* 100 us apart, while the kernel has no memory for one */

/* --- the ring --- */

#if RF_HAVE_URING

static bool io_uring_disabled(void)
{
    char value = '0';
    int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &value, 1) != 1) {
            value = '0';
        }
        close(fd);
    }
    return value != '0';
}

static const char *ring_remedy(int error)
{
    switch (error) {
    case ENOSYS:
        return "allow the io_uring calls, or use a kernel that has them";
    case EPERM:
    case EACCES:
        return io_uring_disabled() ? "set sysctl kernel.io_uring_disabled to 0"
                                   : "let the seccomp or security profile allow the io_uring calls";
    case ENOMEM:
        return "raise the limit of locked memory (ulimit -l)";
    case EMFILE:
    case ENFILE:
        return "raise the limit of open files (ulimit -n)";
    default:
        return "see what refuses io_uring";
    }
}

static void refuse_ring(struct rf_disk *disk, int error)
{
    disk->ring_decided = disk->ring_refused = true;
    snprintf(disk->ring_why, sizeof(disk->ring_why),
             "io_uring is refused (%s), so writes do not overlap: %s", strerror(error),
             ring_remedy(error));
    rf_disk_explain_path(disk);
}

void rf_disk_ring_decide(struct rf_disk *disk)
{
    if (disk->ring_decided) {
        return;
    }
    struct io_uring *ring = calloc(1, sizeof(*ring));
    int rc = ring == NULL ? -ENOMEM : -EINTR;
    while (rc == -EINTR) {
        rc = io_uring_queue_init(RF_DISK_PARTS, ring, 0);
    }
    if (rc != 0) {
        free(ring);
        refuse_ring(disk, -rc);
        return;
    }
    disk->ring_decided = true;
    disk->ring = ring;
}

/* Unmaps and closes; the kernel is asked for nothing else, so that a child of fork may do it. */
void rf_disk_ring_drop(struct rf_disk *disk)
{
    if (disk->ring != NULL) {
        io_uring_queue_exit(disk->ring);
        free(disk->ring);
        disk->ring = NULL;
    }
}

/* Hands the one prepared entry to the kernel. Returns 0 or an errno; then the kernel has not seen it. */
static int submit(struct rf_disk *disk)
{
    for (unsigned tries = 0; io_uring_sq_ready(disk->ring) != 0;) {
        int rc = io_uring_submit(disk->ring);
        if (rc >= 0 || rc == -EINTR) {
            continue;
        }
        if ((rc != -EAGAIN && rc != -EBUSY) || ++tries == SUBMITS_MAX) {
            return -rc;
        }
        usleep(100);
    }
    return 0;
}

/* Starts an attempt in the ring. False: there is no ring (any more), make it yourself. */
static bool attempt_in_ring(struct rf_disk *disk, struct rf_disk_part *part, int fd, size_t len)
{
    if (disk->ring_refused) {
        return false;
    }
    struct io_uring_sqe *sqe = io_uring_get_sqe(disk->ring);
    assert(sqe != NULL); /* as many entries as parts, and each is submitted at once */
    io_uring_prep_write(sqe, fd, part->from + part->done, (unsigned)len, part->offset + part->done);
    sqe->rw_flags = RWF_DSYNC;
    io_uring_sqe_set_data64(sqe, (uint64_t)(part - disk->parts));
    int error = submit(disk);
    if (error != 0) {
        refuse_ring(disk, error); /* nothing is submitted after this; the entry stays unseen */
        return false;
    }
    part->in_ring = true;
    return true;
}

#else

void rf_disk_ring_decide(struct rf_disk *disk)
{
    if (!disk->ring_decided) {
        disk->ring_decided = disk->ring_refused = true;
        snprintf(disk->ring_why, sizeof(disk->ring_why),
                 "this library was built without liburing, so writes do not overlap: build it with "
                 "RINGFENCE_URING=ON");
        rf_disk_explain_path(disk);
    }
}

void rf_disk_ring_drop(struct rf_disk *disk)
{
    (void)disk;
}

static bool attempt_in_ring(struct rf_disk *disk, struct rf_disk_part *part, int fd, size_t len)
{
    (void)disk;
    (void)part;
    (void)fd;
    (void)len;
    return false;
}

#endif

/* --- parts --- */

/* An attempt by the thread itself. Returns bytes, or a negative errno. */
static ssize_t attempt_plainly(struct rf_disk *disk, struct rf_disk_part *part, int fd, size_t len)
{
    struct iovec bytes = {.iov_base = (void *)(uintptr_t)(part->from + part->done), .iov_len = len};
    off_t at = (off_t)(part->offset + part->done);
    ssize_t rc;
    if (!disk->dsync_refused) {
        rc = pwritev2(fd, &bytes, 1, at, RWF_DSYNC);
        if (rc >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS)) {
            return rc < 0 ? -errno : rc;
        }
        disk->dsync_refused = true;
    }
    rc = pwritev(fd, &bytes, 1, at);
    if (rc > 0 && fdatasync(fd) != 0) {
        rc = -1;
    }
    return rc < 0 ? -errno : rc;
}

/* Judges what an attempt brought. False: the part is over, well or with part->error. */
static bool goes_on(struct rf_disk *disk, struct rf_disk_part *part, ssize_t result)
{
    part->limit = 0;
    if (result == -EINTR) {
        return true;
    }
    if (result == -EINVAL && part->direct && !disk->direct_proven) {
        rf_disk_refuse_direct(disk, EINVAL); /* nothing was written */
        return true;
    }
    if (result == -EAGAIN && ++part->stalls < STALLS_MAX) {
        return true;
    }
    if (result <= 0) {
        part->error = result == 0 ? EIO : (int)-result;
        return false;
    }

    size_t done = part->done + (size_t)result;
    if (done == part->len) {
        part->done = done;
        disk->direct_proven = disk->direct_proven || part->direct;
        return false;
    }
    /* The rest is a direct write as well, and a block that is written twice is the same. */
    done -= done % RF_LOG_BLOCK;
    part->stalls = done == part->done ? part->stalls + 1 : 0;
    part->done = done;
    if (part->stalls == STALLS_MAX) {
        part->error = EIO;
        return false;
    }
    return true;
}

static void end_part(struct rf_disk_part *part)
{
    struct rf_disk_flight *flight = part->flight;
    char name[RF_DISK_NAME_MAX];
    RF_POINT("disk.attempted");
    rf_segment_name(part->number, name);
    rf_disk_tell(&(struct rf_disk_event){.kind = RF_DISK_WRITE_END,
                                         .name = name,
                                         .offset = part->offset,
                                         .len = part->len,
                                         .sync = true,
                                         .error = part->error,
                                         .id = part->id});
    if (part->error != 0 && flight->error == 0) {
        flight->error = part->error;
    }
    flight->pending--;
    part->flight = NULL;
}

/* Attempts until the part is over, or is in the ring. */
static void drive(struct rf_disk *disk, struct rf_disk_part *part)
{
    bool more = true;
    while (more) {
        int fd;
        part->error = rf_segment_fd(disk, part->number, true, &fd);
        if (part->error != 0) {
            break;
        }
        part->direct = !disk->direct_refused;
        size_t len = part->len - part->done;
        len = len > ATTEMPT_MAX ? ATTEMPT_MAX : len;
        len = part->limit != 0 && part->limit < len ? part->limit : len;
        if (attempt_in_ring(disk, part, fd, len)) {
            return;
        }
        more = goes_on(disk, part, attempt_plainly(disk, part, fd, len));
    }
    end_part(part);
}

static struct rf_disk_part *free_part(struct rf_disk *disk)
{
    for (unsigned i = 0; i < RF_DISK_PARTS; i++) {
        if (disk->parts[i].flight == NULL) {
            return &disk->parts[i];
        }
    }
    return NULL;
}

static void begin_part(struct rf_disk *disk, struct rf_disk_flight *flight,
                       struct rf_disk_part *part)
{
    uint64_t position = flight->position + flight->begun;
    uint64_t left = disk->data_bytes - position % disk->data_bytes;
    size_t len = flight->len - flight->begun;
    *part = (struct rf_disk_part){
        .flight = flight,
        .number = position / disk->data_bytes,
        .offset = RF_LOG_BLOCK + position % disk->data_bytes,
        .from = flight->from + flight->begun,
        .len = len > left ? (size_t)left : len,
        .id = rf_disk_write_id(),
    };
    flight->begun += part->len;
    flight->pending++;

    char name[RF_DISK_NAME_MAX];
    rf_segment_name(part->number, name);
    int told = rf_disk_tell(&(struct rf_disk_event){.kind = RF_DISK_WRITE_BEGIN,
                                                    .name = name,
                                                    .offset = part->offset,
                                                    .bytes = part->from,
                                                    .len = part->len,
                                                    .sync = true,
                                                    .id = part->id});
    if (told > 0) {
        part->error = told;
        end_part(part);
        return;
    }
    part->limit = (size_t)-told;
    drive(disk, part);
}

/* Begins as many parts as there is room for, older flights first. */
static void pump(struct rf_disk *disk)
{
    for (;;) {
        struct rf_disk_part *part = free_part(disk);
        struct rf_disk_flight *oldest = NULL;
        for (unsigned i = 0; i < RF_DISK_DEPTH; i++) {
            struct rf_disk_flight *f = &disk->flights[i];
            if (f->used && f->error == 0 && f->begun < f->len &&
                (oldest == NULL || f->order < oldest->order)) {
                oldest = f;
            }
        }
        if (part == NULL || oldest == NULL) {
            return;
        }
        begin_part(disk, oldest, part);
    }
}

#if RF_HAVE_URING
/* Takes what the ring has brought; sleeps until there is something if asked. */
static void collect(struct rf_disk *disk, bool wait)
{
    struct io_uring_cqe *cqe;
    if (disk->ring == NULL) {
        return;
    }
    if (wait) {
        int rc = io_uring_wait_cqe(disk->ring, &cqe);
        if (rc != 0 && rc != -EINTR) {
            usleep(50); /* the call is denied by now; what was begun ends all the same */
        }
    }
    while (io_uring_peek_cqe(disk->ring, &cqe) == 0) {
        struct rf_disk_part *part = &disk->parts[io_uring_cqe_get_data64(cqe)];
        ssize_t result = cqe->res;
        io_uring_cqe_seen(disk->ring, cqe);
        part->in_ring = false;
        if (goes_on(disk, part, result)) {
            drive(disk, part);
        } else {
            end_part(part);
        }
    }
}
#else
static void collect(struct rf_disk *disk, bool wait)
{
    (void)disk;
    (void)wait;
}
#endif

/* --- flights --- */

/* That every segment of it is there, before anything is begun. */
static rf_status look_for_segments(struct rf_disk *disk, uint64_t position, size_t len,
                                   rf_detail *detail)
{
    for (uint64_t n = position / disk->data_bytes; n <= (position + len - 1) / disk->data_bytes;
         n++) {
        char name[RF_DISK_NAME_MAX];
        int fd;
        int error = rf_segment_fd(disk, n, true, &fd);
        if (error == 0 && !rf_disk_fits_limit(disk->segment_bytes)) {
            error =
                EFBIG; /* or a signal would end the process, or the kernel cut the write short */
        }
        if (error != 0) {
            rf_segment_name(n, name);
            return rf_disk_error(detail, error, "opening", name);
        }
    }
    return RF_OK;
}

rf_status rf_log_write_begin(struct rf_disk *disk, uint64_t position, const void *from, size_t len,
                             uint64_t tag, rf_detail *detail)
{
    if (len == 0 || len % RF_LOG_BLOCK != 0 || position % RF_LOG_BLOCK != 0 ||
        (uintptr_t)from % RF_LOG_BLOCK != 0) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0, "a write to the log is whole blocks");
    }
    if (disk->owner != getpid()) {
        return rf_refuse(detail, RF_FORKED, 0, "the disk belongs to the parent process");
    }
    struct rf_disk_flight *flight = disk->flights;
    while (flight < disk->flights + RF_DISK_DEPTH && flight->used) {
        flight++;
    }
    if (flight == disk->flights + RF_DISK_DEPTH) {
        return rf_refuse(detail, RF_BUSY, 0, "%u writes are in flight", RF_DISK_DEPTH);
    }
    disk->own_error = 0;
    rf_disk_ring_decide(disk);
    rf_status status = look_for_segments(disk, position, len, detail);
    if (status != RF_OK) {
        return status;
    }
    *flight = (struct rf_disk_flight){.used = true,
                                      .order = disk->begun++,
                                      .tag = tag,
                                      .position = position,
                                      .from = from,
                                      .len = len};
    pump(disk);
    RF_POINT("disk.write_begun");
    return RF_OK;
}

/* The oldest flight that is over; *any says if there is one at all. */
static struct rf_disk_flight *landed(struct rf_disk *disk, bool *any)
{
    struct rf_disk_flight *oldest = NULL;
    *any = false;
    for (unsigned i = 0; i < RF_DISK_DEPTH; i++) {
        struct rf_disk_flight *f = &disk->flights[i];
        if (!f->used) {
            continue;
        }
        *any = true;
        if (f->pending == 0 && (f->error != 0 || f->begun == f->len) &&
            (oldest == NULL || f->order < oldest->order)) {
            oldest = f;
        }
    }
    return oldest;
}

bool rf_log_write_next(struct rf_disk *disk, bool wait, uint64_t *tag, int *error)
{
    if (disk->owner != getpid()) {
        return false;
    }
    bool any;
    struct rf_disk_flight *flight = landed(disk, &any);
    for (bool sleep = false; flight == NULL && any; sleep = true) {
        if (sleep && !wait) {
            return false;
        }
        collect(disk, sleep);
        pump(disk);
        flight = landed(disk, &any);
    }
    if (flight == NULL) {
        return false;
    }
    *tag = flight->tag;
    *error = flight->error;
    flight->used = false;
    return true;
}

rf_status rf_log_write(struct rf_disk *disk, uint64_t position, const void *from, size_t len,
                       rf_detail *detail)
{
    bool any;
    uint64_t tag;
    int error;
    landed(disk, &any);
    if (any && disk->owner == getpid()) {
        return rf_refuse(detail, RF_BUSY, 0, "other writes are in flight");
    }
    rf_status status = rf_log_write_begin(disk, position, from, len, 0, detail);
    if (status == RF_OK) {
        rf_log_write_next(disk, true, &tag, &error);
    }
    if (status != RF_OK) {
        return status;
    }
    if (error != 0) {
        char name[RF_DISK_NAME_MAX];
        rf_segment_name(position / disk->data_bytes, name);
        return rf_disk_error(detail, error, "writing", name);
    }
    return RF_OK;
}
