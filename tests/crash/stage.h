/*
 * A store and a copy of it, for looking at moments of the first in the second.
 *
 * The original is a store directory and a region file of its own. What it held at some moment is an
 * image (of the region) and a list of files (of the directory); both can be laid into the copy, which
 * is another directory and another region file, and which anybody can then open as a store.
 */
#ifndef RF_CRASH_STAGE_H
#define RF_CRASH_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "region.h"

struct rf_site_paths {
    char directory[96];
    char region[96];
};

/* A region at some moment, in private memory; what was never taken is not there. */
struct rf_image {
    uint8_t *bytes;
    uint64_t size;
};

struct rf_image_file {
    char name[256];
    uint8_t *bytes;
    size_t len;
};

/* A directory at some moment. */
struct rf_files {
    struct rf_image_file *file;
    unsigned count;
};

/* New directories and region names in /dev/shm, nothing in them. */
void rf_paths_make(struct rf_site_paths *paths, const char *what);
/* Removes what is there under these names. */
void rf_paths_remove(const struct rf_site_paths *paths);

void rf_image_take(struct rf_image *image, const uint8_t *base, uint64_t size);
/* Makes the mapped region what the image is: what was taken since is not there any more. */
void rf_image_lay(const struct rf_image *image, uint8_t *base);
/* Makes a new region file with the first `len` bytes of the image; len -1: there is none. */
void rf_image_lay_file(const struct rf_image *image, int64_t len, const char *path);
/* Where they differ, as an offset; UINT64_MAX: they do not. */
uint64_t rf_image_difference(const struct rf_image *image, const uint8_t *base);
void rf_image_drop(struct rf_image *image);

/* Maps the region file, making it with this size if it is not there. */
uint8_t *rf_paths_map(const struct rf_site_paths *paths, uint64_t size);

void rf_files_take(struct rf_files *files, const char *directory);
bool rf_files_same(const struct rf_files *a, const struct rf_files *b);
/* The directory is these files from now on; what is right already stays as it is. */
void rf_files_lay(const struct rf_files *files, const char *directory);
void rf_files_drop(struct rf_files *files);

#endif
