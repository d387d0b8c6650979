/*
 * cleanup: regions in /dev/shm that nobody will ever open again.
 *
 * A region is named for the device and inode number of its store's directory. It is left over if it
 * is of an earlier boot, or if no such directory is there any more; the latter is found by looking
 * through the file system of that device. What can't be looked through (not mounted here, only partly
 * mounted, hidden below another mount, not allowed to be read) is left alone, and so is whatever some
 * process has open. A directory that we may not search is no proof, whosever it is: a store of ours may
 * lie behind it and be back in reach tomorrow, and its region may be all there is of it.
 *
 * Looking takes long, so nothing is locked meanwhile. Before a region is removed it is locked (a lease,
 * which is given only on a file that nobody has open), and has to be what was looked at; who opens a store
 * waits until the lease is given back, and finds no region then.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "commands.h"
#include "layout.h"

#define SHM "/dev/shm"

static const struct option_spec cleanup_options[] = {
    {"dry-run", 'n', OPTION_FLAG, NULL, "say what would be removed, and remove nothing"},
    {0},
};

/* --- looking for a directory by its inode --- */

enum search { SEARCH_GONE, SEARCH_FOUND, SEARCH_DENIED, SEARCH_HIDDEN, SEARCH_UNSURE };

/* A file system that is looked through. */
struct place {
    dev_t device;
    bool whole; /* other mounts hide nothing of it */
};

static void unescape(char *path)
{
    char *to = path;
    for (const char *from = path; *from != 0;) {
        if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] != 0 && from[3] != 0) {
            *to++ = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = 0;
}

/* Is there a directory with this inode, and is it a store? Others may have got the number since. */
static enum search look_below(int fd, const struct place *place, ino_t inode, int depth)
{
    DIR *dir = fdopendir(fd);
    enum search result = SEARCH_GONE;
    struct dirent *entry;
    if (dir == NULL || depth > 256) {
        if (dir != NULL) {
            closedir(dir);
        } else {
            close(fd);
        }
        return SEARCH_UNSURE;
    }
    while (result != SEARCH_FOUND && (errno = 0, entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN)) {
            continue;
        }
        struct stat st;
        int child = openat(dirfd(dir), entry->d_name,
                           O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        if (child < 0) {
            bool harmless = errno == ENOENT || errno == ENOTDIR || errno == ELOOP;
            result = harmless                            ? result
                     : errno == EACCES || errno == EPERM ? SEARCH_DENIED
                                                         : SEARCH_UNSURE;
            continue;
        }
        if (fstat(child, &st) != 0 || st.st_dev != place->device) {
            /* Another file system is mounted here; what lies below can't be seen. */
            close(child);
            result = place->whole ? result : SEARCH_HIDDEN;
            continue;
        }
        if (st.st_ino == inode) {
            result = faccessat(child, "lock", F_OK, 0) == 0 ? SEARCH_FOUND : SEARCH_GONE;
            close(child);
            break;
        }
        enum search below = look_below(child, place, inode, depth + 1);
        result = below != SEARCH_GONE ? below : result;
    }
    if (entry == NULL && errno != 0) {
        result = SEARCH_UNSURE;
    }
    closedir(dir);
    return result;
}

/* The same file system without anything that is mounted on it; -1 if we are not allowed to have that. */
static int without_mounts(int fd)
{
    int bare =
        (int)syscall(SYS_open_tree, fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    int opened = bare < 0 ? -1 : openat(bare, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (bare >= 0) {
        close(bare);
    }
    return opened;
}

static enum search search_directory(dev_t device, ino_t inode)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    enum search result = SEARCH_UNSURE, why = SEARCH_UNSURE;
    char *line = NULL;
    size_t size = 0;
    while (f != NULL && result != SEARCH_FOUND && getline(&line, &size, f) > 0) {
        unsigned major_number, minor_number;
        char root[PATH_MAX], mount_point[PATH_MAX];
        struct stat st;
        if (sscanf(line, "%*d %*d %u:%u %4095s %4095s", &major_number, &minor_number, root,
                   mount_point) != 4) {
            continue;
        }
        unescape(mount_point);
        int fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* Not the numbers of mountinfo: btrfs shows others than stat does. */
        if (fd < 0 || fstat(fd, &st) != 0 || st.st_dev != device) {
            if (fd >= 0) {
                close(fd);
            }
            continue;
        }
        if (st.st_ino == inode) {
            result = SEARCH_FOUND;
            close(fd);
            break;
        }
        int bare = without_mounts(fd);
        const struct place place = {.device = device, .whole = bare >= 0};
        if (bare >= 0) {
            close(fd);
            fd = bare;
        }
        enum search here = look_below(fd, &place, inode, 0);
        why = here == SEARCH_DENIED || here == SEARCH_HIDDEN ? here : why;
        /* A mount that shows only a part of the file system can't prove that something is gone. */
        result = here == SEARCH_FOUND                            ? SEARCH_FOUND
                 : here == SEARCH_GONE && strcmp(root, "/") == 0 ? SEARCH_GONE
                                                                 : result;
    }
    free(line);
    if (f != NULL) {
        fclose(f);
    }
    return result == SEARCH_UNSURE ? why : result;
}

/* --- regions --- */

static bool read_boot_id(uint8_t out[16])
{
    char text[64] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    unsigned digits = 0;
    if (f == NULL || fgets(text, sizeof(text), f) == NULL) {
        text[0] = 0;
    }
    if (f != NULL) {
        fclose(f);
    }
    for (const char *c = text; *c != 0 && digits < 32; c++) {
        unsigned v = *c >= '0' && *c <= '9'   ? (unsigned)(*c - '0')
                     : *c >= 'a' && *c <= 'f' ? (unsigned)(*c - 'a' + 10)
                                              : 16u;
        if (v < 16) {
            out[digits / 2] = (uint8_t)(digits % 2 == 0 ? v << 4 : out[digits / 2] | v);
            digits++;
        }
    }
    return digits == 32;
}

/* A write lease is given only on a file that nobody else has open; who opens it then has to wait. */
static bool lock_file(int fd)
{
    return fcntl(fd, F_SETLEASE, F_WRLCK) == 0;
}

static void unlock_file(int fd)
{
    fcntl(fd, F_SETLEASE, F_UNLCK);
}

struct verdict {
    const char *why;
    bool remove;
};

static struct verdict judge(int fd, const char *name, struct rf_header *header_out)
{
    static struct rf_header header;
    uint8_t boot[16];
    uintmax_t device, inode;
    char end;
    if (sscanf(name, "ringfence.%jx.%jx%c", &device, &inode, &end) != 2) {
        return (struct verdict){"not named like a region", false};
    }
    memset(&header, 0, sizeof(header));
    ssize_t n = pread(fd, &header, sizeof(header), 0);
    memcpy(header_out, &header, sizeof(header));
    if (n >= 8 && header.magic != RF_REGION_MAGIC && header.magic != 0) {
        return (struct verdict){"not a region", false};
    }
    if (!lock_file(fd)) {
        return (struct verdict){"in use, or not ours", false};
    }
    unlock_file(fd);
    bool whole = n == (ssize_t)sizeof(header) && header.magic == RF_REGION_MAGIC;
    if (whole && read_boot_id(boot) && memcmp(boot, header.boot_id, sizeof(boot)) != 0) {
        return (struct verdict){"of an earlier boot", true};
    }
    switch (search_directory((dev_t)device, (ino_t)inode)) {
    case SEARCH_GONE:
        return (struct verdict){"its store is gone", true};
    case SEARCH_FOUND:
        return (struct verdict){"its store is there", false};
    case SEARCH_DENIED:
        return (struct verdict){"there are directories that we may not search: root can tell",
                                false};
    case SEARCH_HIDDEN:
        return (struct verdict){"other mounts hide a part of its file system: root can tell",
                                false};
    default:
        return (struct verdict){"its file system can't be searched from here", false};
    }
}

/* False if it is not any more what was judged. */
static bool remove_region(int shm, const char *name, int fd, const struct rf_header *judged,
                          int *error)
{
    static struct rf_header header;
    struct stat by_name, ours;
    *error = 0;
    if (!lock_file(fd)) {
        return false;
    }
    memset(&header, 0, sizeof(header));
    bool same = fstat(fd, &ours) == 0 && fstatat(shm, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
                ours.st_dev == by_name.st_dev && ours.st_ino == by_name.st_ino &&
                pread(fd, &header, sizeof(header), 0) >= 0 &&
                memcmp(&header, judged, sizeof(header)) == 0;
    if (same && unlinkat(shm, name, 0) != 0) {
        *error = errno;
    }
    unlock_file(fd);
    return same;
}

static int clean(int shm, const char *name, bool dry)
{
    static struct rf_header header;
    struct stat st;
    int error;
    int fd = openat(shm, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    struct verdict v = {"not a regular file", false};
    if (fd < 0) {
        v.why = keep_format("can't be opened: %s", strerror(errno));
    } else if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        v = judge(fd, name, &header);
    }
    if (fstatat(shm, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        st.st_blocks = 0;
    }
    int code = EXIT_DONE;
    if (v.remove && !dry) {
        if (!remove_region(shm, name, fd, &header, &error)) {
            v = (struct verdict){"somebody uses it, or has removed it", false};
        } else if (error != 0) {
            v = (struct verdict){keep_format("it can't be removed: %s", strerror(error)), false};
            code =
                cli_fail(EXIT_PERMISSION, "%s/%s can't be removed: %s", SHM, name, strerror(error));
        }
    }
    out_row();
    out_text("region", keep_format("%s/%s", SHM, name));
    out_size("bytes", (uint64_t)st.st_blocks * 512);
    out_text("action", v.remove ? dry ? "would be removed" : "removed" : "kept");
    out_text("why", v.why);
    if (fd >= 0) {
        close(fd);
    }
    return code;
}

static int run_cleanup(struct cli *cli)
{
    bool dry = arg_given(&cli->args, "dry-run");
    DIR *dir = opendir(SHM);
    struct dirent *entry;
    int code = EXIT_DONE;
    signal(SIGIO, SIG_IGN); /* somebody waits for our lease: it is over soon */
    if (dir == NULL) {
        return cli_fail(EXIT_IO, "%s can't be read: %s", SHM, strerror(errno));
    }
    out_list_begin();
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "ringfence.", 10) == 0) {
            int one = clean(dirfd(dir), entry->d_name, dry);
            code = one != EXIT_DONE ? one : code;
        }
    }
    out_list_end();
    closedir(dir);
    return code;
}

const struct command command_cleanup = {
    .name = "cleanup",
    .synopsis = "[--dry-run]",
    .summary = "remove shared memory whose store is gone or of an earlier boot",
    .text =
        "Looks at the regions in /dev/shm. One is removed only if nobody has it open and either an "
        "earlier boot made it, or its store's directory is nowhere on its file system, which is "
        "searched for it. Whatever is not certain is kept, and the reason is shown.\n"
        "Root sees all of a file system, also what other mounts hide. For anybody else one directory "
        "that may not be searched, or one mount on it, leaves open whether a store is gone: its "
        "directory may be there. What an earlier boot made is certain for everybody who owns it.",
    .examples = "ringfence cleanup --dry-run",
    .options = cleanup_options,
    .prints = true,
    .run = run_cleanup,
};
