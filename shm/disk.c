#define _GNU_SOURCE
#include "disk.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <blake3.h>

#include "disk_internal.h"
#include "formats.h"
#include "point.h"

#define OPEN_FLAGS   (O_CLOEXEC | O_NOFOLLOW | O_NOCTTY)
#define CHUNK_BYTES  (1u << 20) /* of a new segment, and of a file that is written */
#define TEMPORARY    "tmp."
#define SEGMENT_NAME "log."
#define DIGITS       16u
#define NAMES_TRIED  10000u

/* --- the trace --- */

#if RF_POINTS
rf_disk_trace_fn *rf_disk_trace;
void *rf_disk_trace_context;

int rf_disk_tell(const struct rf_disk_event *event)
{
    return rf_disk_trace == NULL ? 0 : rf_disk_trace(rf_disk_trace_context, event);
}

uint64_t rf_disk_write_id(void)
{
    static _Atomic uint32_t count; /* a process may write from several threads */
    return (uint64_t)getpid() << 32 | count++;
}
#endif

/* --- errors --- */

static const char *remedy(int error)
{
    switch (error) {
    case ENOSPC:
        return "make room in its file system";
    case EDQUOT:
        return "raise the disk quota, or make room";
    case EFBIG:
        return "raise the limit of file sizes (ulimit -f)";
    case EACCES:
    case EPERM:
        return "check the owner and mode of the store's directory and files";
    case EROFS:
        return "mount the file system for writing";
    case ELOOP:
        return "a symbolic link is in its place; remove it";
    case EMFILE:
    case ENFILE:
        return "raise the limit of open files (ulimit -n)";
    case ENOMEM:
        return "free some memory";
    default:
        return "check the drive and the kernel's log";
    }
}

rf_status rf_disk_error(rf_detail *detail, int error, const char *doing, const char *name)
{
    if (error == ENOENT) {
        return rf_refuse(detail, RF_NOT_FOUND, error, "%s %s in the store's directory", doing,
                         name);
    }
    if (error == EUCLEAN) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "%s: not a file of the size that it was made with; put it back from a "
                         "backup",
                         name);
    }
    rf_status status = error == ENOSPC || error == EDQUOT ? RF_RESOURCE_EXHAUSTED : RF_IO_ERROR;
    return rf_refuse(detail, status, error, "%s %s in the store's directory; %s", doing, name,
                     remedy(error));
}

/* --- what changes the directory, each told to the trace; all return 0 or an errno --- */

/* Whether the trace lets it be done. */
static bool may(struct rf_disk_event *event)
{
    event->error = rf_disk_tell(event);
    return event->error == 0;
}

static int after(struct rf_disk_event *event)
{
    event->done = true;
    rf_disk_tell(event);
    return event->error;
}

static int error_of(int rc)
{
    return rc == 0 ? 0 : errno;
}

static int sync_descriptor(int fd)
{
    int error;
    do {
        error = error_of(fsync(fd));
    } while (error == EINTR);
    return error;
}

static int remove_name(struct rf_disk *disk, const char *name)
{
    struct rf_disk_event event = {.kind = RF_DISK_REMOVE, .name = name};
    if (may(&event)) {
        event.error = error_of(unlinkat(disk->dir_fd, name, 0));
    }
    return after(&event);
}

static int create_file(struct rf_disk *disk, const char *name, int *fd)
{
    struct rf_disk_event event = {.kind = RF_DISK_CREATE, .name = name};
    if (may(&event)) {
        *fd = openat(disk->dir_fd, name, OPEN_FLAGS | O_RDWR | O_CREAT | O_EXCL, disk->mode);
        event.error = *fd < 0 ? errno : 0;
        disk->own_error = event.error;
    }
    return after(&event);
}

/* A new file for what will be `name`, with the mode whatever the umask says. A file that is in its place was
 * left by one that died, or is just being written by somebody who took the same number: it is let
 * alone, and another name is taken. */
static int create_temporary(struct rf_disk *disk, const char *name, uint64_t unique,
                            char temporary[RF_DISK_NAME_MAX], int *fd)
{
    int error = EEXIST;
    for (unsigned n = 0; error == EEXIST && n < NAMES_TRIED; n++) {
        snprintf(temporary, RF_DISK_NAME_MAX, TEMPORARY "%.48s.%016" PRIx64 ".%u", name, unique, n);
        error = create_file(disk, temporary, fd);
    }
    if (error != 0) {
        return error == EEXIST ? EBUSY : error; /* to callers, EEXIST is about `name` */
    }
    if (fchmod(*fd, disk->mode) != 0 ||
        (disk->gid != (gid_t)-1 && fchown(*fd, (uid_t)-1, disk->gid) != 0)) {
        error = disk->own_error = errno; /* another process may be of that group */
        close(*fd);
        remove_name(disk, temporary);
        return error;
    }
    return 0;
}

static int sync_file(int fd, const char *name)
{
    struct rf_disk_event event = {.kind = RF_DISK_SYNC, .name = name};
    if (may(&event)) {
        event.error = sync_descriptor(fd);
    }
    return after(&event);
}

static int sync_directory(struct rf_disk *disk)
{
    struct rf_disk_event event = {.kind = RF_DISK_SYNC_DIR};
    if (may(&event)) {
        event.error = sync_descriptor(disk->dir_fd);
    }
    return after(&event);
}

/* Without RENAME_NOREPLACE a link does it; both names are there for a moment, of the same file. */
static int link_in(struct rf_disk *disk, const char *from, const char *to)
{
    if (renameat2(disk->dir_fd, from, disk->dir_fd, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return -1;
    }
    if (linkat(disk->dir_fd, from, disk->dir_fd, to, 0) != 0) {
        return -1;
    }
    return unlinkat(disk->dir_fd, from, 0);
}

static int rename_file(struct rf_disk *disk, const char *from, const char *to, bool replace)
{
    struct rf_disk_event event = {
        .kind = RF_DISK_RENAME, .name = from, .name2 = to, .replace = replace};
    if (may(&event)) {
        event.error = error_of(replace ? renameat(disk->dir_fd, from, disk->dir_fd, to)
                                       : link_in(disk, from, to));
    }
    return after(&event);
}

/* SIGXFSZ would kill the process; the limit is its own, and the answer too. */
bool rf_disk_fits_limit(uint64_t bytes)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

/* All of it, through the page cache or not as the descriptor says; at most `first` bytes at first. */
static int write_all(int fd, const uint8_t *from, size_t len, uint64_t offset, size_t first)
{
    for (size_t done = 0; done < len;) {
        size_t n = first != 0 && first < len - done ? first : len - done;
        ssize_t rc = pwrite(fd, from + done, n, (off_t)(offset + done));
        first = 0;
        if (rc > 0) {
            done += (size_t)rc;
        } else if (rc == 0) {
            return EIO;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static int write_zeros(struct rf_disk *disk, int fd, uint64_t len)
{
    /* Pages that were never written to read as zeros. */
    uint8_t *zeros =
        mmap(NULL, CHUNK_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (zeros == MAP_FAILED) {
        disk->own_error = errno;
        return disk->own_error;
    }
    int error = 0;
    for (uint64_t at = 0; error == 0 && at < len; at += CHUNK_BYTES) {
        error =
            write_all(fd, zeros, len - at < CHUNK_BYTES ? (size_t)(len - at) : CHUNK_BYTES, at, 0);
    }
    munmap(zeros, CHUNK_BYTES);
    return error;
}

/* from == NULL: zeros from the start of the file. Not durable before the file is synced. */
static int write_file(struct rf_disk *disk, int fd, const char *name, const void *from, size_t len,
                      uint64_t offset)
{
    struct rf_disk_event event = {.kind = RF_DISK_WRITE_BEGIN,
                                  .name = name,
                                  .offset = offset,
                                  .bytes = from,
                                  .len = len,
                                  .id = rf_disk_write_id()};
    assert(from != NULL || offset == 0);
    int told = rf_disk_tell(&event);
    if (told > 0) {
        event.error = told;
    } else if (!rf_disk_fits_limit(offset + len)) {
        event.error = EFBIG;
    } else if (from == NULL) {
        event.error = write_zeros(disk, fd, len);
    } else {
        event.error = write_all(fd, from, len, offset, (size_t)-told);
    }
    event.kind = RF_DISK_WRITE_END;
    rf_disk_tell(&event);
    return event.error;
}

/* --- the disk --- */

rf_status rf_disk_open(int dir_fd, mode_t mode, gid_t gid, uint64_t segment_bytes,
                       struct rf_disk **out, rf_detail *detail)
{
    struct stat st;
    if (segment_bytes % RF_LOG_BLOCK != 0 || segment_bytes < 2 * RF_LOG_BLOCK ||
        segment_bytes > INT64_MAX) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0,
                         "a segment is two blocks of 4096 bytes or more");
    }
    if (fstat(dir_fd, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0, "the store's directory is not one");
    }
    struct rf_disk *disk = calloc(1, sizeof(*disk));
    if (disk == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for the disk");
    }
    disk->dir_fd = dir_fd;
    disk->mode = mode;
    disk->gid = gid;
    disk->owner = getpid();
    disk->segment_bytes = segment_bytes;
    disk->data_bytes = segment_bytes - RF_LOG_BLOCK;
    for (unsigned i = 0; i < RF_DISK_SEGMENTS; i++) {
        disk->segments[i].fd = -1;
    }
    *out = disk;
    return RF_OK;
}

void rf_disk_close(struct rf_disk *disk)
{
    uint64_t tag;
    int error;
    while (rf_log_write_next(disk, true, &tag, &error)) {
    }
    rf_disk_forget(disk);
}

void rf_disk_forget(struct rf_disk *disk)
{
    rf_disk_ring_drop(disk);
    for (unsigned i = 0; i < RF_DISK_SEGMENTS; i++) {
        if (disk->segments[i].fd >= 0) {
            close(disk->segments[i].fd);
        }
    }
    free(disk);
}

void rf_disk_explain_path(struct rf_disk *disk)
{
    bool both = disk->ring_why[0] != 0 && disk->direct_why[0] != 0;
    snprintf(disk->why, sizeof(disk->why), "%s%s%s", disk->ring_why, both ? "; " : "",
             disk->direct_why);
}

void rf_disk_refuse_direct(struct rf_disk *disk, int error)
{
    if (disk->direct_refused) {
        return;
    }
    disk->direct_decided = disk->direct_refused = true;
    snprintf(
        disk->direct_why, sizeof(disk->direct_why),
        "O_DIRECT is refused (%s), so writes go through the page cache: put the store on a file "
        "system that has it (ext4, xfs)",
        strerror(error));
    rf_disk_explain_path(disk);
    for (unsigned i = 0; i < RF_DISK_SEGMENTS; i++) {
        if (disk->segments[i].fd >= 0 && disk->segments[i].writing) {
            close(disk->segments[i].fd);
            disk->segments[i].fd = -1;
        }
    }
}

/* Asks for a descriptor of a new file to bypass the page cache. */
static void make_direct(struct rf_disk *disk, int fd)
{
    if (disk->direct_refused) {
        return;
    }
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_DIRECT) != 0) {
        rf_disk_refuse_direct(disk, errno);
    }
    disk->direct_decided = true;
}

void rf_disk_probe(struct rf_disk *disk)
{
    rf_disk_ring_decide(disk);
    if (!disk->direct_decided) {
        /* A file without a name changes nothing that a power cut could show. */
        int fd = openat(disk->dir_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (fd >= 0) {
            make_direct(disk, fd);
            close(fd);
        }
    }
}

enum rf_disk_path rf_disk_backend(const struct rf_disk *disk, const char **why)
{
    *why = disk->why;
    if (disk->ring_refused) {
        return disk->direct_refused ? RF_DISK_PLAIN_BUFFERED : RF_DISK_PLAIN_DIRECT;
    }
    return disk->direct_refused ? RF_DISK_URING_BUFFERED : RF_DISK_URING_DIRECT;
}

bool rf_disk_own_limit(const struct rf_disk *disk, int error)
{
    bool kept_out = error == EACCES || error == EPERM || error == ENOMEM;
    return error == EMFILE || error == ENFILE || error == EFBIG ||
           (kept_out && error == disk->own_error);
}

/* --- segments --- */

void rf_segment_name(uint64_t number, char name[RF_DISK_NAME_MAX])
{
    snprintf(name, RF_DISK_NAME_MAX, SEGMENT_NAME "%016" PRIx64, number);
}

static bool is_known(const struct rf_disk *disk, uint64_t number)
{
    for (unsigned i = 0; i < RF_DISK_KNOWN; i++) {
        if (disk->known[i] == number + 1) {
            return true;
        }
    }
    return false;
}

static void make_known(struct rf_disk *disk, uint64_t number)
{
    if (!is_known(disk, number)) {
        disk->known[disk->known_next++ % RF_DISK_KNOWN] = number + 1;
    }
}

/* Opens; 0 or an errno. */
static int open_by_name(struct rf_disk *disk, const char *name, int flags, int *fd)
{
    *fd = openat(disk->dir_fd, name, flags);
    disk->own_error = *fd < 0 ? errno : 0;
    return disk->own_error;
}

/* And sees that it is what it should be. */
static int open_segment(struct rf_disk *disk, uint64_t number, bool writing, int *out)
{
    char name[RF_DISK_NAME_MAX];
    rf_segment_name(number, name);
    int flags = OPEN_FLAGS | (writing ? O_WRONLY : O_RDONLY);
    int fd = -1, error = EINVAL;
    if (writing && !disk->direct_refused) {
        error = open_by_name(disk, name, flags | O_DIRECT, &fd);
        if (error == EINVAL) {
            rf_disk_refuse_direct(disk, EINVAL);
        }
        disk->direct_decided = disk->direct_decided || error == 0;
    }
    if (error == EINVAL) {
        error = open_by_name(disk, name, flags, &fd);
    }
    if (error != 0) {
        return error;
    }
    struct stat st;
    error = fstat(fd, &st) != 0 ? errno : 0;
    if (error == 0 && (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != disk->segment_bytes)) {
        error = EUCLEAN;
    }
    if (error == 0 && writing && !is_known(disk, number)) {
        error = sync_directory(disk);
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    if (writing) {
        make_known(disk, number);
    } else {
        posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    *out = fd;
    return 0;
}

int rf_segment_fd(struct rf_disk *disk, uint64_t number, bool writing, int *fd)
{
    struct rf_disk_segment *place = NULL;
    for (unsigned i = 0; i < RF_DISK_SEGMENTS; i++) {
        struct rf_disk_segment *s = &disk->segments[i];
        if (s->fd >= 0 && s->number == number && s->writing == writing) {
            s->used = ++disk->clock;
            *fd = s->fd;
            return 0;
        }
        if (place == NULL || (place->fd >= 0 && (s->fd < 0 || s->used < place->used))) {
            place = s;
        }
    }
    int error = open_segment(disk, number, writing, fd);
    if (error != 0) {
        return error;
    }
    /* Whatever the kernel was asked to write holds on to its file; a part that goes on opens it again. */
    if (place->fd >= 0) {
        close(place->fd);
    }
    *place = (struct rf_disk_segment){
        .fd = *fd, .writing = writing, .number = number, .used = ++disk->clock};
    return 0;
}

static void forget_segment(struct rf_disk *disk, uint64_t number)
{
    for (unsigned i = 0; i < RF_DISK_SEGMENTS; i++) {
        if (disk->segments[i].fd >= 0 && disk->segments[i].number == number) {
            close(disk->segments[i].fd);
            disk->segments[i].fd = -1;
        }
    }
    for (unsigned i = 0; i < RF_DISK_KNOWN; i++) {
        disk->known[i] = disk->known[i] == number + 1 ? 0 : disk->known[i];
    }
}

/* Of a header in a block, of this format or a later one: the last bytes of the header are the hash of
 * those before. */
static void hash_header(const uint8_t *block, uint32_t header_bytes, uint8_t out[RF_LOG_HASH])
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SEGMENT_CONTEXT);
    blake3_hasher_update(&hasher, block, header_bytes - RF_LOG_HASH);
    blake3_hasher_finalize(&hasher, out, RF_LOG_HASH);
}

/* Fills a new file: room, zeros, header. Afterwards a write changes nothing but bytes. */
static int fill_segment(struct rf_disk *disk, int fd, const char *name,
                        const struct rf_segment_header *header)
{
    /* First, so that a full disk is noticed before anything is written. */
    if (rf_disk_fits_limit(disk->segment_bytes) &&
        fallocate(fd, 0, 0, (off_t)disk->segment_bytes) != 0 &&
        (errno == ENOSPC || errno == EDQUOT)) {
        return errno;
    }
    _Alignas(RF_LOG_BLOCK) uint8_t block[RF_LOG_BLOCK] = {0};
    memcpy(block, header, sizeof(*header));
    hash_header(block, sizeof(*header), block + offsetof(struct rf_segment_header, hash));

    make_direct(disk, fd);
    int error = write_file(disk, fd, name, NULL, (size_t)disk->segment_bytes, 0);
    if (error == EINVAL && !disk->direct_refused && !disk->direct_proven) {
        rf_disk_refuse_direct(disk, error);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT);
        error = write_file(disk, fd, name, NULL, (size_t)disk->segment_bytes, 0);
    }
    if (error == 0) {
        error = write_file(disk, fd, name, block, sizeof(block), 0);
    }
    return error;
}

/* Makes, fills, syncs and links in. EEXIST: somebody else was faster. Nothing is left of a failure. */
static int make_segment(struct rf_disk *disk, const struct rf_segment_header *header,
                        const char *name, uint64_t unique)
{
    char temporary[RF_DISK_NAME_MAX];
    int fd;
    int error = create_temporary(disk, name, unique, temporary, &fd);
    if (error != 0) {
        return error;
    }
    RF_POINT("disk.segment_created");
    error = fill_segment(disk, fd, temporary, header);
    RF_POINT("disk.segment_filled");
    if (error == 0) {
        error = sync_file(fd, temporary);
    }
    RF_POINT("disk.segment_synced");
    if (error == 0) {
        error = rename_file(disk, temporary, name, false);
    }
    close(fd);
    if (error != 0) {
        remove_name(disk, temporary);
    }
    return error;
}

rf_status rf_segment_make(struct rf_disk *disk, const struct rf_segment_header *header,
                          uint64_t unique, rf_detail *detail)
{
    char name[RF_DISK_NAME_MAX];
    assert(header->header_bytes == sizeof(*header) && header->segment_bytes == disk->segment_bytes);
    rf_segment_name(header->number, name);
    int error = 0;
    disk->own_error = 0;
    if (!rf_segment_exists(disk, header->number)) {
        error = make_segment(disk, header, name, unique);
    }
    if (error != 0 && error != EEXIST) {
        return rf_disk_error(detail, error, "making", name);
    }
    RF_POINT("disk.segment_linked");
    error = sync_directory(disk); /* if somebody else was faster, it may not have got this far */
    if (error != 0) {
        return rf_disk_error(detail, error, "syncing the directory for", name);
    }
    make_known(disk, header->number);
    RF_POINT("disk.segment_named");
    return RF_OK;
}

bool rf_segment_exists(struct rf_disk *disk, uint64_t number)
{
    char name[RF_DISK_NAME_MAX];
    struct stat st;
    rf_segment_name(number, name);
    return fstatat(disk->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Up to len bytes; *got is less only at the end of the file. */
static int read_all(int fd, uint8_t *to, size_t len, uint64_t offset, size_t *got)
{
    for (*got = 0; *got < len;) {
        ssize_t rc = pread(fd, to + *got, len - *got, (off_t)(offset + *got));
        if (rc > 0) {
            *got += (size_t)rc;
        } else if (rc == 0) {
            return 0;
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static rf_status judge_header(const struct rf_disk *disk, const uint8_t *block, uint64_t number,
                              const char *name, rf_detail *detail)
{
    struct rf_segment_header h;
    uint8_t hash[RF_LOG_HASH];
    memcpy(&h, block, sizeof(h));
    if (h.magic != RF_SEGMENT_MAGIC || h.header_bytes < sizeof(h) ||
        h.header_bytes > RF_LOG_BLOCK) {
        return rf_refuse(detail, RF_CORRUPT, 0, "%s does not begin with a segment's header", name);
    }
    hash_header(block, h.header_bytes, hash);
    if (memcmp(hash, block + h.header_bytes - RF_LOG_HASH, RF_LOG_HASH) != 0) {
        return rf_refuse(detail, RF_CORRUPT, 0, "the header of %s is damaged", name);
    }
    if (h.format != RF_LOG_FORMAT) {
        return rf_refuse_format(RF_FORMAT_LOG, h.format, name, detail);
    }
    if (h.number != number) {
        return rf_refuse(detail, RF_CORRUPT, 0, "%s holds the segment %" PRIu64, name, h.number);
    }
    if (h.segment_bytes != disk->segment_bytes) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "%s says %" PRIu64 " bytes for a segment, the store says %" PRIu64, name,
                         h.segment_bytes, disk->segment_bytes);
    }
    for (size_t i = h.header_bytes; i < RF_LOG_BLOCK; i++) {
        if (block[i] != 0) {
            return rf_refuse(detail, RF_CORRUPT, 0, "the header block of %s is damaged", name);
        }
    }
    return RF_OK;
}

rf_status rf_segment_header_read(struct rf_disk *disk, uint64_t number,
                                 struct rf_segment_header *header, rf_detail *detail)
{
    char name[RF_DISK_NAME_MAX];
    uint8_t block[RF_LOG_BLOCK] = {0};
    size_t got = 0;
    rf_segment_name(number, name);
    /* Not through the cache: that wants the full size, of which the header may know better. */
    int fd = openat(disk->dir_fd, name, OPEN_FLAGS | O_RDONLY);
    if (fd < 0) {
        return rf_disk_error(detail, errno, "reading", name);
    }
    struct stat st;
    int error = fstat(fd, &st) != 0 ? errno : read_all(fd, block, sizeof(block), 0, &got);
    close(fd);
    if (error != 0) {
        return rf_disk_error(detail, error, "reading", name);
    }
    rf_status status = judge_header(disk, block, number, name, detail);
    if (status == RF_OK && (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != disk->segment_bytes)) {
        return rf_disk_error(detail, EUCLEAN, "reading", name);
    }
    if (status == RF_OK) {
        memcpy(header, block, sizeof(*header));
    }
    return status;
}

rf_status rf_segment_remove(struct rf_disk *disk, uint64_t number, rf_detail *detail)
{
    char name[RF_DISK_NAME_MAX];
    rf_segment_name(number, name);
    forget_segment(disk, number);
    return rf_file_remove(disk, name, detail);
}

rf_status rf_segment_sync(struct rf_disk *disk, uint64_t number, rf_detail *detail)
{
    char name[RF_DISK_NAME_MAX];
    int fd;
    rf_segment_name(number, name);
    int error = rf_segment_fd(disk, number, false, &fd);
    if (error == 0) {
        error = sync_file(fd, name);
    }
    return error == 0 ? RF_OK : rf_disk_error(detail, error, "syncing", name);
}

rf_status rf_log_pread(struct rf_disk *disk, uint64_t position, void *to, size_t len, bool *missing,
                       rf_detail *detail)
{
    *missing = false;
    for (size_t done = 0; done < len;) {
        uint64_t number = (position + done) / disk->data_bytes;
        uint64_t at = (position + done) % disk->data_bytes;
        size_t n = len - done;
        n = n > disk->data_bytes - at ? (size_t)(disk->data_bytes - at) : n;
        uint8_t *into = (uint8_t *)to + done;
        size_t got;
        int fd;
        int error = rf_segment_fd(disk, number, false, &fd);
        if (error == ENOENT) {
            *missing = true;
            memset(into, 0, n);
        } else {
            if (error == 0) {
                error = read_all(fd, into, n, RF_LOG_BLOCK + at, &got);
            }
            if (error == 0 && got < n) {
                error = EUCLEAN;
            }
            if (error != 0) {
                char name[RF_DISK_NAME_MAX];
                rf_segment_name(number, name);
                return rf_disk_error(detail, error, "reading", name);
            }
        }
        done += n;
    }
    return RF_OK;
}

void rf_log_expect(struct rf_disk *disk, uint64_t position, size_t len)
{
    for (size_t done = 0; done < len;) {
        uint64_t at = (position + done) % disk->data_bytes;
        size_t n = len - done;
        n = n > disk->data_bytes - at ? (size_t)(disk->data_bytes - at) : n;
        int fd;
        if (rf_segment_fd(disk, (position + done) / disk->data_bytes, false, &fd) == 0) {
            posix_fadvise(fd, (off_t)(RF_LOG_BLOCK + at), (off_t)n, POSIX_FADV_WILLNEED);
        }
        done += n;
    }
}

/* --- whole files --- */

struct rf_disk_file {
    struct rf_disk *disk;
    int fd;
    uint64_t written; /* bytes; what is behind them is buffered */
    size_t buffered;
    uint8_t *buffer;
    char name[RF_DISK_NAME_MAX];
    char temporary[RF_DISK_NAME_MAX];
};

rf_status rf_file_begin(struct rf_disk *disk, const char *name, uint64_t unique,
                        struct rf_disk_file **out, rf_detail *detail)
{
    assert(strlen(name) <= 48 && strchr(name, '/') == NULL);
    struct rf_disk_file *file = calloc(1, sizeof(*file));
    uint8_t *buffer = malloc(CHUNK_BYTES);
    if (file == NULL || buffer == NULL) {
        free(file);
        free(buffer);
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for writing %s", name);
    }
    file->disk = disk;
    file->buffer = buffer;
    snprintf(file->name, sizeof(file->name), "%s", name);
    int error = create_temporary(disk, name, unique, file->temporary, &file->fd);
    if (error != 0) {
        free(buffer);
        free(file);
        return rf_disk_error(detail, error, "making", name);
    }
    *out = file;
    return RF_OK;
}

static int flush_buffer(struct rf_disk_file *file)
{
    if (file->buffered == 0) {
        return 0;
    }
    int error = write_file(file->disk, file->fd, file->temporary, file->buffer, file->buffered,
                           file->written);
    if (error == 0) {
        /* Let the drive begin now: the sync at the end is short then, and others' writes less late. */
        sync_file_range(file->fd, (off_t)file->written, (off_t)file->buffered,
                        SYNC_FILE_RANGE_WRITE);
        file->written += file->buffered;
        file->buffered = 0;
    }
    return error;
}

rf_status rf_file_append(struct rf_disk_file *file, const void *from, size_t len, rf_detail *detail)
{
    for (const uint8_t *at = from; len != 0;) {
        size_t n = CHUNK_BYTES - file->buffered;
        n = n < len ? n : len;
        memcpy(file->buffer + file->buffered, at, n);
        file->buffered += n;
        at += n;
        len -= n;
        if (file->buffered == CHUNK_BYTES) {
            int error = flush_buffer(file);
            if (error != 0) {
                return rf_disk_error(detail, error, "writing", file->name);
            }
        }
    }
    return RF_OK;
}

rf_status rf_file_patch(struct rf_disk_file *file, uint64_t offset, const void *from, size_t len,
                        rf_detail *detail)
{
    assert(offset + len <= file->written + file->buffered);
    if (offset >= file->written) {
        memcpy(file->buffer + (offset - file->written), from, len);
        return RF_OK;
    }
    int error = flush_buffer(file);
    if (error == 0) {
        error = write_file(file->disk, file->fd, file->temporary, from, len, offset);
    }
    return error == 0 ? RF_OK : rf_disk_error(detail, error, "writing", file->name);
}

static void close_file(struct rf_disk_file *file)
{
    close(file->fd);
    free(file->buffer);
    free(file);
}

rf_status rf_file_publish(struct rf_disk_file *file, rf_detail *detail)
{
    int error = flush_buffer(file);
    RF_POINT("disk.file_written");
    if (error == 0) {
        error = sync_file(file->fd, file->temporary);
    }
    RF_POINT("disk.file_synced");
    if (error == 0) {
        error = rename_file(file->disk, file->temporary, file->name, true);
    }
    RF_POINT("disk.file_renamed");
    if (error != 0) {
        rf_status status = rf_disk_error(detail, error, "writing", file->name);
        rf_file_discard(file);
        return status;
    }
    error = sync_directory(file->disk);
    rf_status status =
        error == 0 ? RF_OK : rf_disk_error(detail, error, "syncing the directory for", file->name);
    close_file(file);
    RF_POINT("disk.file_published");
    return status;
}

void rf_file_discard(struct rf_disk_file *file)
{
    remove_name(file->disk, file->temporary);
    close_file(file);
}

rf_status rf_file_remove(struct rf_disk *disk, const char *name, rf_detail *detail)
{
    int error = remove_name(disk, name);
    return error == 0 || error == ENOENT ? RF_OK : rf_disk_error(detail, error, "removing", name);
}

/* --- the directory --- */

/* Its own descriptor: readdir moves it. */
static DIR *open_listing(struct rf_disk *disk)
{
    int fd = openat(disk->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = fd < 0 ? NULL : fdopendir(fd);
    if (listing == NULL && fd >= 0) {
        close(fd);
    }
    return listing;
}

/* The number behind the prefix; false if it is not such a name. */
static bool numbered(const char *name, const char *prefix, uint64_t *number)
{
    size_t skip = strlen(prefix);
    if (strncmp(name, prefix, skip) != 0 || strlen(name + skip) != DIGITS ||
        strspn(name + skip, "0123456789abcdef") != DIGITS) {
        return false;
    }
    *number = strtoull(name + skip, NULL, 16);
    return true;
}

static int ascending(const void *a, const void *b)
{
    const uint64_t *x = a;
    const uint64_t *y = b;
    return (*x > *y) - (*x < *y);
}

/* Collects into *numbers, which grows. */
static int list_numbers(DIR *listing, const char *prefix, uint64_t **numbers, size_t *count)
{
    size_t room = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(listing);
        uint64_t number;
        if (entry == NULL) {
            return errno;
        }
        if (!numbered(entry->d_name, prefix, &number)) {
            continue;
        }
        if (*count == room) {
            room = room == 0 ? 64 : 2 * room;
            uint64_t *more = realloc(*numbers, room * sizeof(*more));
            if (more == NULL) {
                return ENOMEM;
            }
            *numbers = more;
        }
        (*numbers)[(*count)++] = number;
    }
}

rf_status rf_disk_list(struct rf_disk *disk, const char *prefix, rf_disk_visit *visit,
                       void *context, rf_detail *detail)
{
    DIR *listing = open_listing(disk);
    if (listing == NULL) {
        return rf_disk_error(detail, errno, "listing", prefix);
    }
    uint64_t *numbers = NULL;
    size_t count = 0;
    int error = list_numbers(listing, prefix, &numbers, &count);
    closedir(listing);
    if (error == 0 && count != 0) {
        qsort(numbers, count, sizeof(*numbers), ascending);
        for (size_t i = 0; i < count; i++) {
            visit(context, numbers[i]);
        }
    }
    free(numbers);
    return error == 0 ? RF_OK : rf_disk_error(detail, error, "listing", prefix);
}

/* What is behind the last dot but one: who makes it. */
static bool maker_of(const char *name, uint64_t *unique)
{
    const char *end = strrchr(name, '.');
    char digits[17] = {0}, *rest;
    if (end == NULL || end - name < 18 || end[-17] != '.') {
        return false;
    }
    memcpy(digits, end - 16, 16);
    *unique = strtoull(digits, &rest, 16);
    return *rest == 0;
}

void rf_disk_sweep_left(struct rf_disk *disk, const char *prefix, rf_disk_is_over *is_over,
                        const void *context)
{
    DIR *listing = open_listing(disk);
    if (listing == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        uint64_t unique;
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0 &&
            strncmp(entry->d_name + strlen(TEMPORARY), prefix, strlen(prefix)) == 0 &&
            maker_of(entry->d_name, &unique) && is_over(context, unique)) {
            remove_name(disk, entry->d_name);
        }
    }
    closedir(listing);
}

void rf_disk_sweep_temporary(struct rf_disk *disk)
{
    DIR *listing = open_listing(disk);
    if (listing == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        if (strncmp(entry->d_name, TEMPORARY, strlen(TEMPORARY)) == 0) {
            remove_name(disk, entry->d_name);
        }
    }
    closedir(listing);
}

rf_status rf_disk_sync_removals(struct rf_disk *disk, rf_detail *detail)
{
    int error = sync_directory(disk);
    return error == 0 ? RF_OK : rf_disk_error(detail, error, "removing", "files");
}
