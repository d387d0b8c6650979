/*
 * rf-scan that dies when it is told to, and tells what it has synced:
 *
 *   RF_SCAN_DIE_AT=N     its first process is killed as it is about to change files for the Nth time
 *   RF_SCAN_SHADOW=DIR   see shadow.h
 *
 * The linker puts these in the place of the system's (--wrap).
 */
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shadow.h"

static pid_t first;
static unsigned die_at;
static atomic_uint changes;

static void __attribute__((constructor)) begin(void)
{
    const char *at = getenv("RF_SCAN_DIE_AT");
    first = getpid();
    die_at = at == NULL ? 0 : (unsigned)strtoul(at, NULL, 10);
}

static void change(void)
{
    if (die_at != 0 && getpid() == first && atomic_fetch_add(&changes, 1) + 1 == die_at) {
        kill(first, SIGKILL);
    }
}

static int do_sync(int fd, int (*sync)(int fd))
{
    const char *shadow = getenv("RF_SCAN_SHADOW");
    change();
    return shadow == NULL ? sync(fd) : shadow_sync(shadow, fd, sync);
}

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __real_mkdir(const char *path, mode_t mode);
int __real_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __real_unlinkat(int dir, const char *path, int flags);
int __real_rmdir(const char *path);
ssize_t __real_write(int fd, const void *bytes, size_t len);
int __real_open(const char *path, int flags, ...);
int __real_openat(int dir, const char *path, int flags, ...);

int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    return do_sync(fd, __real_fsync);
}

int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
    return do_sync(fd, __real_fdatasync);
}

int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    change();
    return __real_mkdir(path, mode);
}

int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    change();
    return __real_rename(from, to);
}

int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    change();
    return __real_unlink(path);
}

int __wrap_unlinkat(int dir, const char *path, int flags);
int __wrap_unlinkat(int dir, const char *path, int flags)
{
    change();
    return __real_unlinkat(dir, path, flags);
}

int __wrap_rmdir(const char *path);
int __wrap_rmdir(const char *path)
{
    change();
    return __real_rmdir(path);
}

ssize_t __wrap_write(int fd, const void *bytes, size_t len);
ssize_t __wrap_write(int fd, const void *bytes, size_t len)
{
    change();
    return __real_write(fd, bytes, len);
}

static mode_t mode_behind(int flags, va_list args)
{
    if ((flags & O_CREAT) == 0) {
        return 0;
    }
    change();
    return va_arg(args, mode_t);
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_behind(flags, args);
    va_end(args);
    return __real_open(path, flags, mode);
}

int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_behind(flags, args);
    va_end(args);
    return __real_openat(dir, path, flags, mode);
}
