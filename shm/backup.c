#define _GNU_SOURCE
#include "backup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "log_read.h"
#include "point.h"
#include "snapshot.h"
#include "store_file.h"

#define CHUNK_BYTES      (1u << 20)
#define INCARNATIONS_MAX (1ull << 24) /* the floor of fences is incarnation << 40 */

struct backup {
    struct rf_map *map;
    struct rf_disk *from;
    struct rf_disk *to;
    int to_fd;
    bool made;      /* the directory, by us */
    uint8_t *chunk; /* aligned to a block */
};

static rf_status refuse_directory(rf_detail *detail, const char *what, const char *directory)
{
    return rf_refuse(detail, errno == EACCES ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                     "%s %.120s", what, directory);
}

#define DEPTH_MAX 4096 /* of directories: a longer path can't be named */

/* Whether a directory is the store's own or lies below it. Closes fd. */
static bool is_within(int fd, int store_fd)
{
    struct stat store, here, above = {0};
    bool within = false, top = fstat(store_fd, &store) != 0 || fstat(fd, &here) != 0;
    for (unsigned i = 0; !top && !within && i < DEPTH_MAX; i++) {
        within = here.st_dev == store.st_dev && here.st_ino == store.st_ino;
        int up = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        top = up < 0 || fstat(up, &above) != 0 ||
              (above.st_dev == here.st_dev && above.st_ino == here.st_ino);
        if (up >= 0) {
            close(fd);
            fd = up;
        }
        here = above;
    }
    close(fd);
    return within;
}

/* A copy inside of the store would be lost with it, and the store could not be destroyed whole. Asked
 * before a directory is made. */
static rf_status refuse_inside(const char *directory, int store_fd, rf_detail *detail)
{
    char *copy = strdup(directory);
    if (copy == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a backup");
    }
    int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    fd = fd >= 0 ? fd : open(dirname(copy), O_PATH | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    if (fd >= 0 && is_within(fd, store_fd)) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0,
                         "%.120s is the store itself or inside of it; back it up to another place",
                         directory);
    }
    return RF_OK; /* what can't be opened is told by whoever makes it */
}

static rf_status open_target(const char *directory, bool *made, int *fd, rf_detail *detail)
{
    *made = mkdir(directory, 0700) == 0;
    if (!*made && errno != EEXIST) {
        return refuse_directory(detail, "making the directory", directory);
    }
    *fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0) {
        return refuse_directory(detail, "opening the directory", directory);
    }
    int again = openat(*fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = again < 0 ? NULL : fdopendir(again);
    if (listing == NULL) {
        rf_status status = refuse_directory(detail, "reading the directory", directory);
        if (again >= 0) {
            close(again);
        }
        close(*fd);
        return status;
    }
    bool empty = true;
    for (struct dirent *e; (e = readdir(listing)) != NULL;) {
        empty = empty && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0);
    }
    closedir(listing);
    if (!empty) {
        close(*fd);
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0, "%.120s is not empty", directory);
    }
    return RF_OK;
}

static rf_status copy_snapshot(struct backup *b, uint64_t epoch, rf_detail *detail)
{
    char name[RF_SNAPSHOT_NAME];
    struct rf_disk_file *file;
    rf_snapshot_name(epoch, name);
    int fd = openat(b->map->dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "opening %s", name);
    }
    rf_status status = rf_file_begin(b->to, name, (uint64_t)getpid(), &file, detail);
    if (status != RF_OK) {
        close(fd);
        return status;
    }
    ssize_t n = 1;
    while (status == RF_OK && n != 0) {
        n = read(fd, b->chunk, CHUNK_BYTES);
        if (n < 0 && errno != EINTR) {
            status = rf_refuse(detail, RF_IO_ERROR, errno, "reading %s", name);
        } else if (n > 0) {
            status = rf_file_append(file, b->chunk, (size_t)n, detail);
        }
    }
    close(fd);
    if (status != RF_OK) {
        rf_file_discard(file);
        return status;
    }
    return rf_file_publish(file, detail);
}

/* One segment up to the position `end`. What lies behind is not durable yet; the copy has zeros. */
static rf_status copy_segment(struct backup *b, uint64_t number, uint64_t end, rf_detail *detail)
{
    uint64_t data = b->map->header->segment_bytes - RF_LOG_BLOCK;
    struct rf_segment_header header;
    rf_status status = rf_segment_header_read(b->from, number, &header, detail);
    if (status == RF_OK) {
        status = rf_segment_make(b->to, &header, (uint64_t)getpid(), detail);
    }
    uint64_t stop = (number + 1) * data < end ? (number + 1) * data : end;
    for (uint64_t at = number * data; status == RF_OK && at < stop;) {
        size_t n = stop - at < CHUNK_BYTES ? (size_t)(stop - at) : CHUNK_BYTES;
        bool missing;
        status = rf_log_pread(b->from, at, b->chunk, n, &missing, detail);
        if (status == RF_OK && missing) {
            status = rf_refuse(detail, RF_CORRUPT, 0, "log.%016" PRIx64 " is gone", number);
        }
        if (status == RF_OK) {
            status = rf_log_write(b->to, at, b->chunk, n, detail);
        }
        at += n;
    }
    RF_POINT("backup.segment");
    return status;
}

static rf_status copy_log(struct backup *b, uint64_t from_epoch, uint64_t end, rf_detail *detail)
{
    const struct rf_header *h = b->map->header;
    struct rf_log_reader *reader;
    uint64_t number;
    rf_status status = rf_log_reader_open(b->from, h->segment_bytes, h->store_id, &reader, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_log_first_needed(reader, from_epoch, &number, detail);
    rf_log_reader_close(reader);
    uint64_t data = h->segment_bytes - RF_LOG_BLOCK;
    for (; status == RF_OK && number * data < end; number++) {
        status = copy_segment(b, number, end, detail);
    }
    return status;
}

/* Whoever may use the store may use the copy. A directory that was there is its owner's business. */
static bool give_access(int fd, mode_t mode, const struct rf_store_file *file)
{
    return (file->gid == UINT32_MAX || fchown(fd, (uid_t)-1, (gid_t)file->gid) == 0) &&
           fchmod(fd, mode) == 0;
}

/* Last of all: what has no store file is not a store. */
static rf_status copy_store_file(struct backup *b, rf_detail *detail)
{
    struct rf_store_file file;
    enum rf_store_found found;
    rf_status status = rf_store_file_read(b->map->dir_fd, b->map->directory, &file, &found, detail);
    if (status == RF_OK && found != RF_STORE_GOOD) {
        status = rf_refuse(detail, RF_CORRUPT, 0, "%.120s/store is damaged", b->map->directory);
    }
    if (status != RF_OK) {
        return status;
    }
    int lock = openat(b->to_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, file.mode);
    if (lock < 0 || !give_access(lock, (mode_t)file.mode, &file)) {
        status = rf_refuse(detail, RF_IO_ERROR, errno, "making the file lock");
    } else if (b->made && file.gid != UINT32_MAX && !give_access(b->to_fd, 0770, &file)) {
        status = rf_refuse(detail, RF_IO_ERROR, errno, "giving the group access to the copy");
    }
    if (lock >= 0) {
        close(lock);
    }
    /* So that the copy, put in the store's place, grants no fence that the store has granted since. */
    if (file.incarnation < INCARNATIONS_MAX - 2 * RF_BACKUP_INCARNATIONS) {
        file.incarnation += RF_BACKUP_INCARNATIONS;
    }
    memset(file.uuid, 0, sizeof(file.uuid)); /* no region is the copy's */
    if (status == RF_OK) {
        status = rf_store_file_write(b->to, &file, detail);
    }
    /* The directory itself may be new. */
    int above = status == RF_OK ? openat(b->to_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (status == RF_OK && (above < 0 || fsync(above) != 0)) {
        status = rf_refuse(detail, RF_IO_ERROR, errno, "syncing the directory above the copy");
    }
    if (above >= 0) {
        close(above);
    }
    return status;
}

static rf_status make_copy(struct backup *b, struct rf_handle *h, rf_detail *detail)
{
    struct rf_header *head = b->map->header;
    rf_status status = rf_snapshot_take_entered(&h->actor, h->actor.logger, detail);
    if (status != RF_OK) {
        return status;
    }
    RF_POINT("backup.snapshot");
    uint64_t epoch = atomic_load(&head->snapshot_epoch);
    /* Everything below is on the disk, and stays as it is while it is copied. */
    uint64_t end = rf_log_position(b->map);
    status = copy_snapshot(b, epoch, detail);
    if (status == RF_OK) {
        status = copy_log(b, epoch, end, detail);
    }
    return status == RF_OK ? copy_store_file(b, detail) : status;
}

/* --- what a backup that failed leaves --- */

static void remove_segment(void *context, uint64_t number)
{
    rf_segment_remove(context, number, NULL);
}

static void remove_snapshot(void *context, uint64_t epoch)
{
    char name[RF_SNAPSHOT_NAME];
    rf_snapshot_name(epoch, name);
    rf_file_remove(context, name, NULL);
}

/* Nothing, if possible: the directory was empty before. */
static void undo(struct backup *b, const char *directory)
{
    for (unsigned i = 0; rf_store_file_names[i] != NULL; i++) {
        rf_file_remove(b->to, rf_store_file_names[i], NULL);
    }
    rf_disk_list(b->to, "log.", remove_segment, b->to, NULL);
    rf_disk_list(b->to, RF_SNAPSHOT_PREFIX, remove_snapshot, b->to, NULL);
    rf_disk_sweep_temporary(b->to);
    unlinkat(b->to_fd, "lock", 0);
    if (b->made) {
        rmdir(directory);
    }
}

rf_status rf_shm_backup(rf_store *store, const char *directory, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    const struct rf_header *head = h->map->header;
    struct backup b = {.map = h->map};
    if (head->sealing == 0 || h->store.read_only) {
        return rf_refuse(detail, RF_UNSUPPORTED, 0, "a backup of a %s",
                         h->store.read_only ? "read-only handle" : "volatile store");
    }
    rf_status status = refuse_inside(directory, h->map->dir_fd, detail);
    if (status == RF_OK) {
        status = open_target(directory, &b.made, &b.to_fd, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    b.from = rf_logger_disk(h->actor.logger);
    b.chunk = aligned_alloc(RF_LOG_BLOCK, CHUNK_BYTES);
    status = b.chunk == NULL
                 ? rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory for a backup")
                 : rf_disk_open(b.to_fd, (mode_t)head->mode, (gid_t)head->gid, head->segment_bytes,
                                &b.to, detail);
    if (status == RF_OK) {
        /* While we are the snapshotter, nobody removes what is copied. */
        status = rf_snapshotter_enter(&h->actor, detail);
        if (status == RF_OK) {
            rf_snapshotter_keep(&h->actor);
            status = make_copy(&b, h, detail);
            rf_snapshotter_leave(&h->actor);
        }
        if (status != RF_OK) {
            undo(&b, directory);
        }
        rf_disk_close(b.to);
    }
    free(b.chunk);
    close(b.to_fd);
    return status;
}
