#define _GNU_SOURCE
#include "store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <blake3.h>

#include "formats.h"
#include "point.h"
#include "region.h"

const char *const rf_store_file_names[] = {"store", "store.2", NULL};

/* The last bytes of the file, in every format; it vouches for all before it. */
static void hash_bytes(const void *bytes, size_t len, uint8_t out[32])
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, "ringfence/store-file/v1");
    blake3_hasher_update(&hasher, bytes, len);
    blake3_hasher_finalize(&hasher, out, 32);
}

_Static_assert(offsetof(struct rf_store_file, hash) + 32 == sizeof(struct rf_store_file),
               "the hash comes last");

#define FILE_MAX 4096u /* in any format */

/* What the bytes are: nothing is believed before the hash is right, the format neither. */
static rf_status judge(const uint8_t *bytes, size_t len, const char *directory, const char *name,
                       struct rf_store_file *out, enum rf_store_found *found, rf_detail *detail)
{
    uint8_t hash[32];
    *found = RF_STORE_DAMAGED;
    if (len < 16 + sizeof(hash) || len > FILE_MAX) {
        return RF_OK;
    }
    hash_bytes(bytes, len - sizeof(hash), hash);
    memset(out, 0, sizeof(*out));
    memcpy(out, bytes, len < sizeof(*out) ? len : sizeof(*out));
    if (memcmp(hash, bytes + len - sizeof(hash), sizeof(hash)) != 0 ||
        out->magic != RF_STORE_MAGIC) {
        return RF_OK;
    }
    if (out->format != RF_STORE_FORMAT) {
        *found = RF_STORE_OTHER;
        char file[112];
        snprintf(file, sizeof(file), "%.90s/%s", directory, name);
        return rf_refuse_format(RF_FORMAT_STORE, out->format, file, detail);
    }
    *found = len == sizeof(*out) ? RF_STORE_GOOD : RF_STORE_DAMAGED;
    return RF_OK;
}

static rf_status read_copy(int dir_fd, const char *directory, const char *name,
                           struct rf_store_file *out, enum rf_store_found *found, rf_detail *detail)
{
    _Alignas(8) uint8_t bytes[FILE_MAX + 1];
    *found = RF_STORE_NONE;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        if (errno == ENOENT) {
            return RF_OK;
        }
        return rf_refuse(detail, errno == EACCES ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                         "opening %.120s/%s", directory, name);
    }
    ssize_t n = read(fd, bytes, sizeof(bytes));
    int error = errno;
    close(fd);
    if (n < 0) {
        *found = RF_STORE_DAMAGED;
        return rf_refuse(detail, RF_IO_ERROR, error, "reading %.120s/%s", directory, name);
    }
    return judge(bytes, (size_t)n, directory, name, out, found, detail);
}

/* A copy of another format, or one that can't be opened, may be the newer one: nothing is done then. One whose bytes
 * the disk does not give is damaged. */
rf_status rf_store_file_read(int dir_fd, const char *directory, struct rf_store_file *out,
                             enum rf_store_found *found, rf_detail *detail)
{
    rf_status unread = RF_OK;
    *found = RF_STORE_NONE;
    for (unsigned i = 0; rf_store_file_names[i] != NULL; i++) {
        struct rf_store_file copy;
        enum rf_store_found this;
        rf_status status =
            read_copy(dir_fd, directory, rf_store_file_names[i], &copy, &this, detail);
        if (status != RF_OK && this != RF_STORE_DAMAGED) {
            *found = this;
            return status;
        }
        unread = status != RF_OK ? status : unread;
        bool better = this == RF_STORE_GOOD &&
                      (*found != RF_STORE_GOOD || copy.incarnation > out->incarnation);
        if (better) {
            *out = copy;
        }
        *found = this > *found ? this : *found;
    }
    return *found == RF_STORE_GOOD ? RF_OK : unread;
}

rf_status rf_store_file_write(struct rf_disk *disk, struct rf_store_file *f, rf_detail *detail)
{
    f->magic = RF_STORE_MAGIC;
    f->format = RF_STORE_FORMAT;
    hash_bytes(f, offsetof(struct rf_store_file, hash), f->hash);
    for (unsigned i = 0; rf_store_file_names[i] != NULL; i++) {
        struct rf_disk_file *file;
        rf_status status =
            rf_file_begin(disk, rf_store_file_names[i], (uint64_t)getpid(), &file, detail);
        if (status != RF_OK) {
            return status;
        }
        status = rf_file_append(file, f, sizeof(*f), detail);
        if (status == RF_OK) {
            status = rf_file_publish(file, detail);
        } else {
            rf_file_discard(file);
        }
        if (status != RF_OK) {
            return status;
        }
        RF_POINT("recover.store_copy");
    }
    return RF_OK;
}
