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
 * All of a file system is looked through once, for all regions that may be left over; it ends early when all
 * are found. Looking takes long, so nothing is locked meanwhile. What a region is, is read before, and the
 * file kept open: before a region is removed it is locked (a lease,
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
#include <sys/resource.h>
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

/* --- looking for directories by their inodes --- */

enum search { SEARCH_GONE, SEARCH_FOUND, SEARCH_DENIED, SEARCH_HIDDEN, SEARCH_UNSURE };

/* A region and what is to be known of the directory that it is named for. */
struct region {
    char *name;
    int fd;
    dev_t device;
    ino_t inode;
    bool wanted; /* the directory is looked for */
    enum search result, why;
    struct verdict {
        const char *why;
        bool remove;
    } verdict;
    struct rf_header *header; /* as it was before the directory was looked for */
};

struct regions {
    struct region *all;
    size_t count;
    size_t room;
};

/* A file system that is looked through. */
struct place {
    dev_t device;
    struct regions *regions;
    bool whole; /* other mounts hide nothing of it */
};

/* False if nothing on this file system is looked for any more. */
static bool any_left(const struct place *place)
{
    for (size_t i = 0; i < place->regions->count; i++) {
        const struct region *r = &place->regions->all[i];
        if (r->wanted && r->device == place->device && r->result != SEARCH_FOUND) {
            return true;
        }
    }
    return false;
}

/* A directory of the file system; others may have got the number of a store's since. */
static void look_at(int fd, const struct stat *st, const struct place *place)
{
    for (size_t i = 0; i < place->regions->count; i++) {
        struct region *r = &place->regions->all[i];
        if (r->inode == st->st_ino && r->wanted && r->device == place->device &&
            faccessat(fd, "lock", F_OK, 0) == 0) {
            r->result = SEARCH_FOUND;
        }
    }
}

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

/* What kept us from seeing all directories below; SEARCH_GONE if nothing did, SEARCH_FOUND if there is no need
 * to go on. */
static enum search look_below(int fd, const struct place *place, int depth)
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
        look_at(child, &st, place);
        enum search below = look_below(child, place, depth + 1);
        result = below != SEARCH_GONE ? below : result;
        result = any_left(place) ? result : SEARCH_FOUND;
    }
    if (result != SEARCH_FOUND && errno != 0) {
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

/* Through every mount of a file system, for all of its directories that are wanted. */
static void search_file_system(dev_t device, struct regions *regions)
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    struct place place = {.device = device, .regions = regions};
    char *line = NULL;
    size_t size = 0;
    while (f != NULL && any_left(&place) && getline(&line, &size, f) > 0) {
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
        look_at(fd, &st, &place);
        int bare = without_mounts(fd);
        place.whole = bare >= 0;
        if (bare >= 0) {
            close(fd);
            fd = bare;
        }
        enum search here = look_below(fd, &place, 0);
        for (size_t i = 0; i < regions->count; i++) {
            struct region *r = &regions->all[i];
            if (!r->wanted || r->device != device || r->result == SEARCH_FOUND) {
                continue;
            }
            r->why = here == SEARCH_DENIED || here == SEARCH_HIDDEN ? here : r->why;
            /* A mount that shows only a part of the file system can't prove that something is gone. */
            r->result = here == SEARCH_GONE && strcmp(root, "/") == 0 ? SEARCH_GONE : r->result;
        }
    }
    free(line);
    if (f != NULL) {
        fclose(f);
    }
}

static void search(struct regions *regions)
{
    for (size_t i = 0; i < regions->count; i++) {
        bool first = regions->all[i].wanted;
        for (size_t k = 0; first && k < i; k++) {
            first = !regions->all[k].wanted || regions->all[k].device != regions->all[i].device;
        }
        if (first) {
            search_file_system(regions->all[i].device, regions);
        }
    }
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

/* Zeros; what is kept is not aligned for its lines. */
static struct rf_header *keep_header(void)
{
    const size_t align = _Alignof(struct rf_header);
    uint8_t *at = keep_bytes(sizeof(struct rf_header) + align);
    at += align - (uintptr_t)at % align;
    return memset(at, 0, sizeof(struct rf_header));
}

/* As far as it can be told without looking for the directory; then that is wanted. */
static struct verdict judge(struct region *r)
{
    uint8_t boot[16];
    uintmax_t device, inode;
    char end;
    if (sscanf(r->name, "ringfence.%jx.%jx%c", &device, &inode, &end) != 2) {
        return (struct verdict){"not named like a region", false};
    }
    r->header = keep_header();
    ssize_t n = pread(r->fd, r->header, sizeof(*r->header), 0);
    if (n >= 8 && r->header->magic != RF_REGION_MAGIC && r->header->magic != 0) {
        return (struct verdict){"not a region", false};
    }
    if (!lock_file(r->fd)) {
        return (struct verdict){"in use, or not ours", false};
    }
    unlock_file(r->fd);
    bool whole = n == (ssize_t)sizeof(*r->header) && r->header->magic == RF_REGION_MAGIC;
    if (whole && read_boot_id(boot) && memcmp(boot, r->header->boot_id, sizeof(boot)) != 0) {
        return (struct verdict){"of an earlier boot", true};
    }
    r->device = (dev_t)device;
    r->inode = (ino_t)inode;
    r->wanted = true;
    r->result = r->why = SEARCH_UNSURE;
    return (struct verdict){0};
}

static struct verdict judge_by_directory(const struct region *r)
{
    switch (r->result == SEARCH_UNSURE ? r->why : r->result) {
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

static void look(int shm, const char *name, struct regions *regions)
{
    struct stat st;
    if (regions->count == regions->room) {
        regions->room = regions->room == 0 ? 64 : 2 * regions->room;
        struct region *more = keep_bytes(regions->room * sizeof(*more));
        if (regions->count != 0) {
            memcpy(more, regions->all, regions->count * sizeof(*more));
        }
        regions->all = more;
    }
    struct region *r = &regions->all[regions->count++];
    *r = (struct region){.name = keep_format("%s", name), .verdict = {"not a regular file", false}};
    r->fd = openat(shm, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (r->fd < 0) {
        r->verdict.why = keep_format("can't be opened: %s", strerror(errno));
    } else if (fstat(r->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        r->verdict = judge(r);
    }
}

static int clean(int shm, const struct region *r, bool dry)
{
    struct stat st;
    int error;
    struct verdict v = r->wanted ? judge_by_directory(r) : r->verdict;
    if (fstatat(shm, r->name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        st.st_blocks = 0;
    }
    int code = EXIT_DONE;
    if (v.remove && !dry) {
        if (!remove_region(shm, r->name, r->fd, r->header, &error)) {
            v = (struct verdict){"somebody uses it, or has removed it", false};
        } else if (error != 0) {
            v = (struct verdict){keep_format("it can't be removed: %s", strerror(error)), false};
            code = cli_fail(EXIT_PERMISSION, "%s/%s can't be removed: %s", SHM, r->name,
                            strerror(error));
        }
    }
    out_row();
    out_text("region", keep_format("%s/%s", SHM, r->name));
    out_size("bytes", (uint64_t)st.st_blocks * 512);
    out_text("action", v.remove ? dry ? "would be removed" : "removed" : "kept");
    out_text("why", v.why);
    if (r->fd >= 0) {
        close(r->fd);
    }
    return code;
}

static int run_cleanup(struct cli *cli)
{
    bool dry = arg_given(&cli->args, "dry-run");
    DIR *dir = opendir(SHM);
    struct dirent *entry;
    struct regions regions = {0};
    struct rlimit files;
    int code = EXIT_DONE;
    signal(SIGIO, SIG_IGN); /* somebody waits for our lease: it is over soon */
    if (dir == NULL) {
        return cli_fail(EXIT_IO, "%s can't be read: %s", SHM, strerror(errno));
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* all regions are open at once */
        setrlimit(RLIMIT_NOFILE, &files);
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "ringfence.", 10) == 0) {
            look(dirfd(dir), entry->d_name, &regions);
        }
    }
    search(&regions);
    out_list_begin();
    for (size_t i = 0; i < regions.count; i++) {
        int one = clean(dirfd(dir), &regions.all[i], dry);
        code = one != EXIT_DONE ? one : code;
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
