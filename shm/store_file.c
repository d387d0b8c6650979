#define _GNU_SOURCE
#include "store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include <blake3.h>

#include "point.h"
#include "region.h"

const char *const rf_store_file_names[] = {"store", "store.2", NULL};

static void hash_file(const struct rf_store_file *f, uint8_t out[32])
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, "ringfence/store-file/v1");
    blake3_hasher_update(&hasher, f, offsetof(struct rf_store_file, hash));
    blake3_hasher_finalize(&hasher, out, 32);
}

static rf_status read_copy(int dir_fd, const char *directory, const char *name,
                           struct rf_store_file *out, enum rf_store_found *found, rf_detail *detail)
{
    uint8_t hash[32];
    *found = RF_STORE_NONE;
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        if (errno == ENOENT) {
            return RF_OK;
        }
        return rf_refuse(detail, errno == EACCES ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                         "opening %.120s/%s", directory, name);
    }
    memset(out, 0, sizeof(*out));
    ssize_t n = read(fd, out, sizeof(*out));
    char more;
    bool longer = n == (ssize_t)sizeof(*out) && read(fd, &more, 1) == 1;
    int error = errno;
    close(fd);
    if (n < 0) {
        return rf_refuse(detail, RF_IO_ERROR, error, "reading %.120s/%s", directory, name);
    }
    if (n >= 12 && out->magic == RF_STORE_MAGIC && out->format > RF_STORE_FORMAT) {
        return rf_refuse(detail, RF_VERSION_MISMATCH, 0,
                         "%.100s/%s has format %" PRIu32 ", this library reads %u", directory, name,
                         out->format, RF_STORE_FORMAT);
    }
    hash_file(out, hash);
    bool good = n == (ssize_t)sizeof(*out) && !longer && out->magic == RF_STORE_MAGIC &&
                out->format == RF_STORE_FORMAT && memcmp(hash, out->hash, sizeof(hash)) == 0;
    *found = good ? RF_STORE_GOOD : RF_STORE_DAMAGED;
    return RF_OK;
}

rf_status rf_store_file_read(int dir_fd, const char *directory, struct rf_store_file *out,
                             enum rf_store_found *found, rf_detail *detail)
{
    *found = RF_STORE_NONE;
    for (unsigned i = 0; rf_store_file_names[i] != NULL; i++) {
        struct rf_store_file copy;
        enum rf_store_found this;
        rf_status status =
            read_copy(dir_fd, directory, rf_store_file_names[i], &copy, &this, detail);
        if (status != RF_OK) {
            return status;
        }
        bool better = this == RF_STORE_GOOD &&
                      (*found != RF_STORE_GOOD || copy.incarnation > out->incarnation);
        if (better) {
            *out = copy;
        }
        *found = this > *found ? this : *found;
    }
    return RF_OK;
}

rf_status rf_store_file_write(struct rf_disk *disk, struct rf_store_file *f, rf_detail *detail)
{
    f->magic = RF_STORE_MAGIC;
    f->format = RF_STORE_FORMAT;
    hash_file(f, f->hash);
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
