#define _GNU_SOURCE
#include "stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE 4096u

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "crash: %s: %s\n", what, strerror(errno));
        abort();
    }
}

void rf_paths_make(struct rf_site_paths *paths, const char *what)
{
    snprintf(paths->directory, sizeof(paths->directory), "/dev/shm/rf-crash-%d-%s", (int)getpid(),
             what);
    snprintf(paths->region, sizeof(paths->region), "/dev/shm/rf-crash-%d-%s.region", (int)getpid(),
             what);
    rf_paths_remove(paths);
    must(mkdir(paths->directory, 0700) == 0, paths->directory);
}

void rf_paths_remove(const struct rf_site_paths *paths)
{
    DIR *dir = opendir(paths->directory);
    if (dir != NULL) {
        struct dirent *e;
        while ((e = readdir(dir)) != NULL) {
            unlinkat(dirfd(dir), e->d_name, 0);
        }
        closedir(dir);
        rmdir(paths->directory);
    }
    unlink(paths->region);
}

uint8_t *rf_paths_map(const struct rf_site_paths *paths, uint64_t size)
{
    int fd = open(paths->region, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && ftruncate(fd, (off_t)size) == 0, paths->region);
    uint8_t *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    must(base != MAP_FAILED, "mmap");
    close(fd);
    return base;
}

/* --- the region --- */

struct granules {
    const uint8_t *base;
    const struct rf_section *bits;
    uint64_t offset; /* of granule 0 */
    uint64_t size;
};

/* What the region has taken is told by two bitmaps in it; the first covers the second. */
static struct granules granules_of(const uint8_t *base, bool index)
{
    const struct rf_header *h = (const struct rf_header *)base;
    return (struct granules){.base = base,
                             .bits = index ? &h->index_growth : &h->growth,
                             .offset = index ? h->shard_index.offset : 0,
                             .size = index ? RF_INDEX_GRANULE : RF_GRANULE};
}

static uint64_t word_of(const struct granules *g, uint64_t i)
{
    uint64_t word;
    memcpy(&word, g->base + g->bits->offset + 8 * i, 8);
    return word;
}

static void copy_pages(uint8_t *to, const uint8_t *from, uint64_t len)
{
    for (uint64_t at = 0; at < len; at += PAGE) {
        if (memcmp(to + at, from + at, PAGE) != 0) {
            memcpy(to + at, from + at, PAGE);
        }
    }
}

/* The first granule holds the header and so the bitmaps' places. */
static void copy_taken(uint8_t *to, const uint8_t *from)
{
    for (int index = 0; index < 2; index++) {
        struct granules g = granules_of(from, index != 0);
        for (uint64_t i = 0; i < g.bits->count; i++) {
            for (uint64_t bits = word_of(&g, i); bits != 0; bits &= bits - 1) {
                uint64_t at = g.offset + (i * 64 + (uint64_t)__builtin_ctzll(bits)) * g.size;
                copy_pages(to + at, from + at, g.size);
            }
        }
    }
}

void rf_image_take(struct rf_image *image, const uint8_t *base, uint64_t size)
{
    image->size = size;
    image->bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(image->bytes != MAP_FAILED, "mmap");
    copy_taken(image->bytes, base);
}

void rf_image_lay(const struct rf_image *image, uint8_t *base)
{
    const struct rf_header *h = (const struct rf_header *)base;
    if (h->magic == RF_REGION_MAGIC) {
        for (int index = 0; index < 2; index++) {
            struct granules now = granules_of(base, index != 0);
            struct granules then = granules_of(image->bytes, index != 0);
            for (uint64_t i = 0; i < now.bits->count; i++) {
                uint64_t more = word_of(&now, i) & ~word_of(&then, i);
                for (; more != 0; more &= more - 1) {
                    uint64_t at =
                        now.offset + (i * 64 + (uint64_t)__builtin_ctzll(more)) * now.size;
                    memset(base + at, 0, now.size);
                }
            }
        }
    }
    copy_taken(base, image->bytes);
}

void rf_image_lay_file(const struct rf_image *image, int64_t len, const char *path)
{
    static const uint8_t nothing[PAGE];
    unlink(path);
    if (len < 0) {
        return;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    must(fd >= 0 && ftruncate(fd, len) == 0, path);
    uint64_t end = (uint64_t)len < image->size ? (uint64_t)len : image->size;
    for (uint64_t at = 0; at < end; at += PAGE) {
        if (memcmp(image->bytes + at, nothing, PAGE) != 0) {
            must(pwrite(fd, image->bytes + at, PAGE, (off_t)at) == (ssize_t)PAGE, path);
        }
    }
    close(fd);
}

uint64_t rf_image_difference(const struct rf_image *image, const uint8_t *base)
{
    for (int index = 0; index < 2; index++) {
        struct granules g = granules_of(base, index != 0);
        for (uint64_t i = 0; i < g.bits->count; i++) {
            for (uint64_t bits = word_of(&g, i); bits != 0; bits &= bits - 1) {
                uint64_t at = g.offset + (i * 64 + (uint64_t)__builtin_ctzll(bits)) * g.size;
                if (memcmp(base + at, image->bytes + at, g.size) != 0) {
                    while (base[at] == image->bytes[at]) {
                        at++;
                    }
                    return at;
                }
            }
        }
    }
    return UINT64_MAX;
}

void rf_image_drop(struct rf_image *image)
{
    if (image->bytes != NULL) {
        munmap(image->bytes, image->size);
    }
    *image = (struct rf_image){0};
}

/* --- the directory --- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct rf_image_file *)a)->name, ((const struct rf_image_file *)b)->name);
}

void rf_files_take(struct rf_files *files, const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *e;
    *files = (struct rf_files){0};
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        struct stat st;
        int fd = e->d_name[0] == '.' && (e->d_name[1] == 0 || e->d_name[1] == '.')
                     ? -1
                     : openat(dirfd(dir), e->d_name, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0) {
            continue;
        }
        files->file = realloc(files->file, (files->count + 1) * sizeof(*files->file));
        struct rf_image_file *f = &files->file[files->count++];
        *f = (struct rf_image_file){.len = (size_t)st.st_size};
        snprintf(f->name, sizeof(f->name), "%s", e->d_name);
        f->bytes = malloc(f->len + 1);
        must(f->bytes != NULL && pread(fd, f->bytes, f->len, 0) == (ssize_t)f->len, "reading");
        close(fd);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    if (files->count != 0) {
        qsort(files->file, files->count, sizeof(*files->file), by_name);
    }
}

bool rf_files_same(const struct rf_files *a, const struct rf_files *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (unsigned i = 0; i < a->count; i++) {
        const struct rf_image_file *x = &a->file[i], *y = &b->file[i];
        if (strcmp(x->name, y->name) != 0 || x->len != y->len ||
            memcmp(x->bytes, y->bytes, x->len) != 0) {
            return false;
        }
    }
    return true;
}

static const struct rf_image_file *file_named(const struct rf_files *files, const char *name)
{
    for (unsigned i = 0; i < files->count; i++) {
        if (strcmp(files->file[i].name, name) == 0) {
            return &files->file[i];
        }
    }
    return NULL;
}

/* Writes the pages in which it differs from what is there, which may be nothing. */
static void lay_file(int dir, const struct rf_image_file *f, const struct rf_image_file *now)
{
    static const uint8_t zeros[PAGE];
    if (now != NULL && now->len == f->len && memcmp(now->bytes, f->bytes, f->len) == 0) {
        return;
    }
    int fd = openat(dir, f->name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    must(fd >= 0 && ftruncate(fd, (off_t)f->len) == 0, f->name);
    for (size_t at = 0; at < f->len; at += PAGE) {
        size_t len = f->len - at < PAGE ? f->len - at : PAGE;
        const uint8_t *was = now != NULL && at + len <= now->len ? now->bytes + at : zeros;
        bool known = was != zeros || now == NULL || at >= now->len;
        if (!known || memcmp(f->bytes + at, was, len) != 0) {
            must(pwrite(fd, f->bytes + at, len, (off_t)at) == (ssize_t)len, f->name);
        }
    }
    close(fd);
}

void rf_files_lay(const struct rf_files *files, const char *directory)
{
    struct rf_files now;
    rf_files_take(&now, directory);
    int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(dir >= 0, directory);
    for (unsigned i = 0; i < now.count; i++) {
        if (file_named(files, now.file[i].name) == NULL) {
            unlinkat(dir, now.file[i].name, 0);
        }
    }
    for (unsigned i = 0; i < files->count; i++) {
        lay_file(dir, &files->file[i], file_named(&now, files->file[i].name));
    }
    close(dir);
    rf_files_drop(&now);
}

void rf_files_drop(struct rf_files *files)
{
    for (unsigned i = 0; i < files->count; i++) {
        free(files->file[i].bytes);
    }
    free(files->file);
    *files = (struct rf_files){0};
}
