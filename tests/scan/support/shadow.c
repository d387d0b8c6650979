#include "shadow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "found.h"

#define PATH 512

/* A number of a file is given again when it is free, so the time of birth belongs to it. */
struct file {
    uint64_t inode, birth;
    bool directory;
    char name[256];
};

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "shadow: %s: %s\n", what, strerror(errno));
        abort();
    }
}

static bool look(int dir, const char *name, struct file *file)
{
    struct statx st;
    if (statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME,
              &st) != 0) {
        return false;
    }
    *file =
        (struct file){.inode = st.stx_ino,
                      .birth = (uint64_t)st.stx_btime.tv_sec * 1000000000u + st.stx_btime.tv_nsec,
                      .directory = S_ISDIR(st.stx_mode)};
    snprintf(file->name, sizeof(file->name), "%s", name);
    return true;
}

static void shadow_path(char *path, const char *shadow, const struct file *file)
{
    snprintf(path, PATH, "%s/%llx.%llx", shadow, (unsigned long long)file->inode,
             (unsigned long long)file->birth);
}

static void copy_names(int fd, FILE *out)
{
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    must(dir != NULL, "a directory");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct file file;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            look(fd, entry->d_name, &file)) {
            fwrite(&file, sizeof(file), 1, out);
        }
    }
    closedir(dir);
}

static void copy_bytes(const char *path, FILE *out)
{
    char bytes[65536];
    FILE *in = fopen(path, "re");
    for (size_t n; in != NULL && (n = fread(bytes, 1, sizeof(bytes), in)) > 0;) {
        fwrite(bytes, 1, n, out);
    }
    if (in != NULL) {
        fclose(in);
    }
}

static void copy(const char *shadow, int fd)
{
    struct file file;
    char path[PATH], temporary[PATH + 32], own[64];
    must(look(fd, "", &file), "a descriptor");
    shadow_path(path, shadow, &file);
    snprintf(temporary, sizeof(temporary), "%s.%d", path, (int)getpid());
    FILE *out = fopen(temporary, "we");
    must(out != NULL, temporary);
    if (file.directory) {
        copy_names(fd, out);
    } else {
        snprintf(own, sizeof(own), "/proc/self/fd/%d", fd); /* it may be open for writing only */
        copy_bytes(own, out);
    }
    must(fclose(out) == 0 && rename(temporary, path) == 0, path);
}

static void copy_path(const char *shadow, const char *path)
{
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    must(fd >= 0, path);
    copy(shadow, fd);
    close(fd);
}

int shadow_sync(const char *shadow, int fd, int (*sync)(int fd))
{
    /* One after the other, or an older list of names might come last. */
    int lock = open(shadow, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    must(lock >= 0 && flock(lock, LOCK_EX) == 0, shadow);
    int result = sync(fd);
    if (result == 0) {
        copy(shadow, fd);
    }
    close(lock);
    return result;
}

static void restore_names(const char *shadow, const char *path, const struct file *directory);

static void restore_one(const char *shadow, const char *parent, const struct file *file)
{
    char path[PATH], bytes[PATH];
    must(snprintf(path, sizeof(path), "%s/%s", parent, file->name) < PATH, parent);
    if (file->directory) {
        must(mkdir(path, 0700) == 0 || errno == EEXIST, path);
        restore_names(shadow, path, file);
        copy_path(shadow, path); /* what is left is on disk, for the next cut */
        return;
    }
    shadow_path(bytes, shadow, file);
    unlink(path);
    FILE *out = fopen(path, "we");
    must(out != NULL, path);
    copy_bytes(bytes, out);
    fclose(out);
    copy_path(shadow, path);
}

/* Takes away what was not synced, then puts back what was. */
static void restore_names(const char *shadow, const char *path, const struct file *directory)
{
    char list[PATH];
    struct file file;
    shadow_path(list, shadow, directory);
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char inside[PATH + 256];
        snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "store") != 0 && unlink(inside) != 0) {
            remove_tree(inside);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    FILE *in = fopen(list, "re");
    while (in != NULL && fread(&file, sizeof(file), 1, in) == 1) {
        if (strcmp(file.name, "store") != 0) {
            restore_one(shadow, path, &file);
        }
    }
    if (in != NULL) {
        fclose(in);
    }
}

void shadow_restore(const char *shadow, const char *parent, const char *name)
{
    struct file above, file, kept;
    char list[PATH], shorter[PATH + 8], path[PATH];
    bool is_kept = false;
    must(look(AT_FDCWD, parent, &above), parent);
    shadow_path(list, shadow, &above);
    snprintf(shorter, sizeof(shorter), "%s.new", list);
    must(snprintf(path, sizeof(path), "%s/%s", parent, name) < PATH, parent);
    FILE *in = fopen(list, "re"), *out = fopen(shorter, "we");
    must(out != NULL, shorter);
    while (in != NULL && fread(&file, sizeof(file), 1, in) == 1) {
        if (strcmp(file.name, name) != 0) {
            fwrite(&file, sizeof(file), 1, out);
        } else {
            kept = file;
            is_kept = true;
        }
    }
    if (in != NULL) {
        fclose(in);
    }
    if (is_kept) {
        restore_one(shadow, parent, &kept);
        must(look(AT_FDCWD, path, &file), path);
        snprintf(file.name, sizeof(file.name), "%s", name);
        fwrite(&file, sizeof(file), 1, out);
    } else if (unlink(path) != 0) {
        remove_tree(path);
    }
    must(fclose(out) == 0 && rename(shorter, list) == 0, list);
}
