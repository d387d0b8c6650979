#define _GNU_SOURCE
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "futex.h"
#include "log_entry.h"
#include "pages.h"
#include "point.h"
#include "recover.h"
#include "snapshot.h"

struct rf_process rf_process = {.guardian_lock = PTHREAD_MUTEX_INITIALIZER,
                                .lock = PTHREAD_MUTEX_INITIALIZER};

rf_status rf_refuse(rf_detail *detail, rf_status status, int os_error, const char *format, ...)
{
    if (detail != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(detail->where, sizeof(detail->where), format, args);
        va_end(args);
        detail->os_error = os_error;
    }
    return status;
}

/* --- the process, and its children --- */

/* The directory lock of a store that is just being opened or destroyed by some thread. */
struct site_lock {
    int fd; /* opened and closed under rf_process.lock */
    struct site_lock *next;
};
static struct site_lock *site_locks; /* under rf_process.lock */

/* A child of fork shares the open file descriptions of the directory locks; while it kept them, the
 * store would look in use. Its copies of the maps are forgotten: the regions are not even mapped
 * there (MADV_DONTFORK). */
static void in_child(void)
{
    for (struct site_lock *lock = site_locks; lock != NULL; lock = lock->next) {
        close(lock->fd);
    }
    site_locks = NULL;
    for (struct rf_map *map = rf_process.maps; map != NULL; map = map->next) {
        close(map->lock_fd);
        close(map->fd);
        if (map->dir_fd >= 0) {
            close(map->dir_fd);
        }
    }
    rf_process.maps = NULL;
    pthread_mutex_init(&rf_process.lock, NULL);
    pthread_mutex_init(&rf_process.guardian_lock, NULL);
}

/* Another thread may be inside rf_open or rf_close: the child would find their locks taken by a
 * thread that it does not have. */
static void before_fork(void)
{
    pthread_mutex_lock(&rf_process.guardian_lock);
    pthread_mutex_lock(&rf_process.lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&rf_process.lock);
    pthread_mutex_unlock(&rf_process.guardian_lock);
}

static rf_status make_cookie_page(rf_detail *detail)
{
    long page = sysconf(_SC_PAGESIZE);
    void *at = mmap(NULL, (size_t)page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, errno, "mapping a page of memory");
    }
    if (madvise(at, (size_t)page, MADV_WIPEONFORK) != 0) {
        int error = errno;
        munmap(at, (size_t)page);
        return rf_refuse(detail, RF_UNSUPPORTED, error, "madvise(MADV_WIPEONFORK)");
    }
    pthread_atfork(before_fork, in_parent, in_child);
    rf_process.cookie = at;
    return RF_OK;
}

rf_status rf_process_enter(uint64_t *cookie, rf_detail *detail)
{
    static uint64_t entered;
    rf_status status = RF_OK;
    pthread_mutex_lock(&rf_process.lock);
    if (rf_process.cookie == NULL) {
        status = make_cookie_page(detail);
    }
    if (status == RF_OK) {
        if (*rf_process.cookie == 0) {
            /* The counter is copied by fork, so a child's value differs from its parent's. */
            *rf_process.cookie = ++entered;
        }
        *cookie = *rf_process.cookie;
    }
    pthread_mutex_unlock(&rf_process.lock);
    return status;
}

/* --- names --- */

static rf_status read_boot_id(uint8_t out[16], rf_detail *detail)
{
    char text[64] = {0};
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    unsigned digits = 0;
    for (ssize_t i = 0; i < n && digits < 32; i++) {
        char c = text[i];
        unsigned v = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                     : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a' + 10)
                                            : 16u;
        if (v < 16) {
            out[digits / 2] = (uint8_t)(digits % 2 == 0 ? v << 4 : out[digits / 2] | v);
            digits++;
        }
    }
    if (digits != 32) {
        return rf_refuse(detail, RF_UNSUPPORTED, n < 0 ? error : 0,
                         "/proc/sys/kernel/random/boot_id can't be read; mount /proc");
    }
    return RF_OK;
}

/* How far CLOCK_BOOTTIME is shifted by a time namespace. Times of two namespaces can't be compared,
 * so a store belongs to one. */
static rf_status time_namespace_offset(uint64_t *offset, rf_detail *detail)
{
    char line[128], own[64] = "", for_children[64] = "";
    long long seconds, ns;
    bool found = false;
    *offset = 0;
    FILE *f = fopen("/proc/self/timens_offsets", "re");
    if (f == NULL && errno == ENOENT) {
        return RF_OK; /* a kernel without time namespaces; that /proc is there is known */
    }
    int error = errno;
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (sscanf(line, "boottime %lld %lld", &seconds, &ns) == 2) {
            *offset = (uint64_t)(seconds * 1000000000ll + ns);
            found = true;
        }
    }
    if (f != NULL) {
        error = 0;
        fclose(f);
    }
    if (!found) {
        bool descriptors = error == EMFILE || error == ENFILE;
        return rf_refuse(detail, descriptors ? RF_RESOURCE_EXHAUSTED : RF_UNSUPPORTED, error,
                         "/proc/self/timens_offsets can't be read: it is not known which time "
                         "namespace this is");
    }
    /* What the file says is true of the children. They are elsewhere after unshare(CLONE_NEWTIME). */
    if (readlink("/proc/self/ns/time", own, sizeof(own) - 1) > 0 &&
        readlink("/proc/self/ns/time_for_children", for_children, sizeof(for_children) - 1) > 0 &&
        strcmp(own, for_children) != 0) {
        return rf_refuse(detail, RF_UNSUPPORTED, 0,
                         "this process has made a time namespace for its children and is not in it "
                         "itself; open the store in a child, or before");
    }
    return RF_OK;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* What an open works on; filled step by step and released by close_site. */
struct site {
    int dir_fd;
    struct site_lock lock;
    int region_fd;
    char *directory;
    char *region_path;
    struct rf_store_file store;
    enum rf_case_store store_case;
    enum rf_case_region region_case;
    int condemned; /* errno of the write that failed */
    uint8_t boot_id[16];
};

static void hold_lock(struct site *site, int flags, mode_t mode)
{
    pthread_mutex_lock(&rf_process.lock);
    site->lock.fd = openat(site->dir_fd, "lock", flags, mode);
    int error = errno;
    if (site->lock.fd >= 0) {
        site->lock.next = site_locks;
        site_locks = &site->lock;
    }
    pthread_mutex_unlock(&rf_process.lock);
    errno = error;
}

/* Under rf_process.lock. Returns the descriptor, -1 if there is none any more. */
static int unhold_lock(struct site *site)
{
    int fd = site->lock.fd;
    for (struct site_lock **at = &site_locks; fd >= 0 && *at != NULL; at = &(*at)->next) {
        if (*at == &site->lock) {
            *at = site->lock.next;
            break;
        }
    }
    site->lock.fd = -1;
    return fd;
}

static void close_site(struct site *site)
{
    if (site->region_fd >= 0) {
        close(site->region_fd);
    }
    pthread_mutex_lock(&rf_process.lock);
    int lock_fd = unhold_lock(site);
    if (lock_fd >= 0) {
        close(lock_fd);
    }
    pthread_mutex_unlock(&rf_process.lock);
    if (site->dir_fd >= 0) {
        close(site->dir_fd);
    }
    free(site->directory);
    free(site->region_path);
}

static bool is_plain_name(const char *store)
{
    return strchr(store, '/') == NULL && strcmp(store, ".") != 0 && strcmp(store, "..") != 0;
}

/* A store that was made for a group lets it at all its files: the directory, `lock`, `store` and the
 * region. */
static mode_t file_mode(const struct rf_region_options *options)
{
    return options->has_group ? 0660 : 0600;
}

static bool give_access(int fd, mode_t mode, const struct rf_region_options *options)
{
    return (!options->has_group || fchown(fd, (uid_t)-1, (gid_t)options->group) == 0) &&
           fchmod(fd, mode) == 0;
}

/* Whether something that was found is of a store that is still being made by this user: whoever began may have
 * been killed before he had given it the access that its group is to have. */
static bool is_half_made(const struct site *site, int fd, const struct rf_region_options *options)
{
    struct stat st;
    return options->create && options->has_group && fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
           (st.st_mode & 0070) != (S_ISDIR(st.st_mode) ? 0070 : 0060) &&
           faccessat(site->dir_fd, rf_store_file_names[0], F_OK, AT_SYMLINK_NOFOLLOW) != 0 &&
           errno == ENOENT;
}

/* What is durable in a directory is found only if the directory is. */
static bool sync_parent(const char *directory)
{
    char *copy = strdup(directory);
    int fd = copy == NULL ? -1 : open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    free(copy);
    errno = error;
    return synced;
}

/* /dev/shm is everybody's: whoever likes may make a directory, or a link to one, under the name that somebody
 * else's store will have. */
static rf_status check_directory(const struct site *site, rf_detail *detail)
{
    struct stat st;
    if (fstat(site->dir_fd, &st) != 0) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "looking at %.120s", site->directory);
    }
    if (st.st_uid != geteuid() && geteuid() != 0 && (st.st_mode & 0070) != 0070) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0,
                         "%.120s belongs to user %" PRIu32 "; choose another name", site->directory,
                         (uint32_t)st.st_uid);
    }
    if ((st.st_mode & 0002) != 0) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0,
                         "%.120s is open to everybody (mode %o); it must be 0700 or 0770",
                         site->directory, (unsigned)(st.st_mode & 07777));
    }
    return RF_OK;
}

static rf_status open_directory(const char *store, const struct rf_region_options *options,
                                struct site *site, rf_detail *detail)
{
    bool plain = is_plain_name(store);
    int n = plain ? asprintf(&site->directory, "/dev/shm/ringfence-%s", store)
                  : asprintf(&site->directory, "%s", store);
    if (n < 0) {
        site->directory = NULL;
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    bool made = options->create && mkdir(site->directory, 0700) == 0;
    if (options->create && !made && errno != EEXIST) {
        bool denied = errno == EACCES || errno == EROFS;
        return rf_refuse(detail, denied ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                         "making the directory %.120s", site->directory);
    }
    site->dir_fd =
        open(site->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC | (plain ? O_NOFOLLOW : 0));
    if (site->dir_fd < 0 && plain && (errno == ENOTDIR || errno == ELOOP)) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0,
                         "%.120s is a symbolic link, or no directory; remove it", site->directory);
    }
    if (site->dir_fd < 0) {
        rf_status status = errno == ENOENT   ? RF_NOT_FOUND
                           : errno == EACCES ? RF_PERMISSION_DENIED
                                             : RF_IO_ERROR;
        return rf_refuse(detail, status, errno, "opening the directory %.120s", site->directory);
    }
    if (made && options->durability != RF_VOLATILE && !sync_parent(site->directory)) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "syncing the directory of %.120s",
                         site->directory);
    }
    made = made || is_half_made(site, site->dir_fd, options);
    if (made && options->has_group && !give_access(site->dir_fd, 0770, options)) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, errno, "setting the access of %.120s",
                         site->directory);
    }
    return plain ? check_directory(site, detail) : RF_OK;
}

static rf_status open_lock(struct site *site, const struct rf_region_options *options,
                           rf_detail *detail)
{
    int flags = (options->read_only ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NOFOLLOW;
    hold_lock(site, flags, 0);
    bool made = site->lock.fd < 0 && errno == ENOENT && options->create;
    if (made) {
        hold_lock(site, flags | O_CREAT, file_mode(options));
    }
    if (site->lock.fd >= 0 && (made || is_half_made(site, site->lock.fd, options))) {
        if (!give_access(site->lock.fd, file_mode(options), options)) {
            return rf_refuse(detail, RF_PERMISSION_DENIED, errno,
                             "setting the access of %.120s/lock", site->directory);
        }
    }
    if (site->lock.fd < 0) {
        int error = errno;
        bool denied = error == EACCES || error == ELOOP || error == EROFS;
        /* Not there although it was to be made: nobody makes files here, as in /proc. Unless the directory
         * was removed meanwhile: then there is no store, and whoever makes one looks again. */
        struct stat st;
        bool unmade =
            error == ENOENT && options->create && fstat(site->dir_fd, &st) == 0 && st.st_nlink != 0;
        rf_status status = unmade            ? RF_IO_ERROR
                           : error == ENOENT ? RF_NOT_FOUND
                           : denied          ? RF_PERMISSION_DENIED
                                             : RF_IO_ERROR;
        return rf_refuse(detail, status, error, "%s %.120s/lock", unmade ? "making" : "opening",
                         site->directory);
    }
    return RF_OK;
}

static rf_status name_region(struct site *site, const char *region_path, rf_detail *detail)
{
    struct stat st;
    if (fstat(site->dir_fd, &st) != 0) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "looking at %.120s", site->directory);
    }
    int n = region_path != NULL ? asprintf(&site->region_path, "%s", region_path)
                                : asprintf(&site->region_path, "/dev/shm/ringfence.%jx.%jx",
                                           (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    if (n < 0) {
        site->region_path = NULL;
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    return RF_OK;
}

static void note_file(void *context, uint64_t number)
{
    (void)number;
    *(bool *)context = true;
}

/* Whether the directory has files of a log; a store file that is missing is then lost. */
static rf_status has_log_files(const struct site *site, bool *has, rf_detail *detail)
{
    struct rf_disk *disk;
    *has = false;
    rf_status status = rf_disk_open(site->dir_fd, 0600, (gid_t)-1, 2 * RF_LOG_BLOCK, &disk, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_disk_list(disk, "log.", note_file, has, detail);
    if (status == RF_OK) {
        status = rf_disk_list(disk, RF_SNAPSHOT_PREFIX, note_file, has, detail);
    }
    rf_disk_close(disk);
    return status;
}

static rf_status read_store_file(struct site *site, rf_detail *detail)
{
    enum rf_store_found found;
    bool has_log = false;
    rf_status status =
        rf_store_file_read(site->dir_fd, site->directory, &site->store, &found, detail);
    if (status == RF_OK && found == RF_STORE_NONE) {
        status = has_log_files(site, &has_log, detail);
    }
    if (found == RF_STORE_GOOD) {
        site->store_case =
            site->store.durability == RF_VOLATILE ? RF_CASE_STORE_VOLATILE : RF_CASE_STORE_DURABLE;
    } else {
        site->store_case =
            found == RF_STORE_NONE && !has_log ? RF_CASE_STORE_NONE : RF_CASE_STORE_LOST;
    }
    return status;
}

/* --- building --- */

static uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static uint64_t power_of_two_at_least(uint64_t n)
{
    uint64_t p = 1;
    while (p < n) {
        p *= 2;
    }
    return p;
}

static void place(struct rf_section *section, uint64_t *at, uint64_t stride, uint64_t count,
                  uint64_t align)
{
    *at = align_up(*at, align);
    *section = (struct rf_section){.offset = *at, .stride = stride, .count = count};
    *at += stride * count;
}

static void lay_out(struct rf_header *h, const struct rf_region_options *o)
{
    uint64_t extents = (o->max_shards + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS + o->max_runs;
    uint64_t leaves = extents / RF_LEAF_EXTENTS + o->max_runs + 1;
    uint64_t slots = 2ull * o->max_members + 1; /* a handle may bring a guardian; one to repair */
    uint64_t pages = (o->max_bytes + RF_SLAB_PAGE - 1) / RF_SLAB_PAGE;
    uint64_t buckets = power_of_two_at_least(2 * o->max_shards / RF_BUCKET_CELLS + 1);
    uint64_t run_buckets = power_of_two_at_least(4 * (uint64_t)o->max_runs / RF_BUCKET_CELLS + 1);
    uint64_t slot_bytes =
        align_up(offsetof(struct rf_slot, held) + (extents + 63) / 64 * 8, RF_LINE);
    uint64_t at = sizeof(struct rf_header);

    h->slot_count = (uint32_t)slots;
    h->max_members = o->max_members;
    h->max_shards = o->max_shards;
    h->max_tenant_shards = o->max_tenant_shards;
    h->claim_cooldown = o->claim_cooldown;
    h->lane_units = o->lane_bytes / RF_LINE;

    place(&h->roster, &at, sizeof(struct rf_member), slots, RF_LINE);
    place(&h->stripes, &at, RF_LINE, RF_STRIPES, RF_LINE);
    place(&h->run_index, &at, sizeof(struct rf_bucket), run_buckets, RF_LINE);
    place(&h->leaf_tags, &at, 8, leaves, RF_LINE);
    place(&h->extent_tags, &at, 8, extents, RF_LINE);
    place(&h->slab_classes, &at, 4, pages, RF_LINE);
    place(&h->cooldowns, &at, sizeof(struct rf_cooldown),
          o->claim_cooldown != 0 ? RF_COOLDOWN_CELLS : 0, RF_LINE);
    place(&h->index_growth, &at, 8, (buckets * RF_LINE / RF_INDEX_GRANULE + 64) / 64, RF_LINE);
    /* The growth bits cover the whole file, whose size depends on them: reserve for the sum of the
     * rest and a little more. */
    uint64_t rest = at + slots * slot_bytes + o->max_runs * sizeof(struct rf_runrec) +
                    leaves * sizeof(struct rf_leaf) + buckets * RF_LINE +
                    pages * (RF_SLAB_PAGE / RF_SLAB_BLOCK_MIN) * 8 +
                    extents * sizeof(struct rf_extent) + slots * (uint64_t)o->lane_bytes +
                    pages * RF_SLAB_PAGE + 64 * RF_GRANULE;
    place(&h->growth, &at, 8, (rest / RF_GRANULE + rest / RF_GRANULE / 64 + 128) / 64, RF_LINE);
    h->fixed_bytes = align_up(at, RF_GRANULE);

    place(&h->slots, &at, slot_bytes, slots, RF_GRANULE);
    place(&h->runs, &at, sizeof(struct rf_runrec), o->max_runs, RF_GRANULE);
    place(&h->leaves, &at, sizeof(struct rf_leaf), leaves, RF_GRANULE);
    place(&h->slab_tags, &at, 8, pages * (RF_SLAB_PAGE / RF_SLAB_BLOCK_MIN), RF_GRANULE);
    place(&h->extents, &at, sizeof(struct rf_extent), extents, RF_GRANULE);
    place(&h->lanes, &at, o->lane_bytes, slots, RF_GRANULE);
    place(&h->slab, &at, RF_SLAB_PAGE, pages, RF_GRANULE);
    place(&h->shard_index, &at, sizeof(struct rf_bucket), buckets, RF_GRANULE);
    h->region_bytes = align_up(at, RF_GRANULE);
}

#define RUNS_MAX       1000000u
#define SLAB_PAGES_MAX ((1ull << 38) / RF_SLAB_PAGE)
#define LANE_LEAST     131072u
/* With a log a record of the largest size and its filler must fit beside what is being written: lane.h, admit.c. */
#define LANE_LEAST_LOG 262144u

static rf_status check_options(const struct rf_region_options *o, rf_detail *detail)
{
    bool log = o->durability != RF_VOLATILE;
    const struct {
        const char *name;
        uint64_t value, low, high;
    } bounds[] = {
        {"max_shards", o->max_shards, 1, 16000000},
        {"max_tenant_shards", o->max_tenant_shards, 1, 16000000},
        {"max_runs", o->max_runs, 1, RUNS_MAX},
        {"max_members", o->max_members, 1, (RF_SLOTS_MAX - 1) / 2},
        {"max_bytes", o->max_bytes, RF_SLAB_PAGE, SLAB_PAGES_MAX * RF_SLAB_PAGE},
        {"lane_bytes", o->lane_bytes, log ? LANE_LEAST_LOG : LANE_LEAST, 1u << 26},
        {"durability", o->durability, RF_VOLATILE, RF_WAIT},
        {"segment_bytes", o->segment_bytes, 65536, 1ull << 32},
        {"snapshot_bytes", o->snapshot_bytes, 65536, 1ull << 40},
        {"flush_interval", o->flush_ns, 100000, 3600000000000ull},
    };
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        if (bounds[i].value < bounds[i].low || bounds[i].value > bounds[i].high) {
            rf_refuse(detail, RF_INVALID_ARGUMENT, 0,
                      "%s is %" PRIu64 ", it must be %" PRIu64 " to %" PRIu64, bounds[i].name,
                      bounds[i].value, bounds[i].low, bounds[i].high);
            return RF_INVALID_ARGUMENT;
        }
    }
    if ((o->lane_bytes & (o->lane_bytes - 1)) != 0) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0, "lane_bytes must be a power of two");
    }
    if (o->segment_bytes % RF_LOG_BLOCK != 0) {
        return rf_refuse(detail, RF_INVALID_ARGUMENT, 0, "segment_bytes must be a multiple of %u",
                         RF_LOG_BLOCK);
    }
    return RF_OK;
}

static rf_status refuse_allocation(rf_detail *detail, int error, const char *what)
{
    bool full = error == ENOSPC || error == EDQUOT || error == ENOMEM;
    return rf_refuse(detail, full ? RF_RESOURCE_EXHAUSTED : RF_IO_ERROR, error,
                     "%s; make room in /dev/shm or purge runs", what);
}

/* A region whose layout has `scale` times the room that the options ask for. */
static rf_status fill_header(const struct site *site, struct rf_header *h,
                             const struct rf_region_options *o, uint64_t scale, rf_detail *detail)
{
    struct rf_region_options scaled = *o;
    uint64_t random[5];
    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "getrandom");
    }
    scaled.max_shards *= scale;
    scaled.max_bytes *= scale;
    scaled.max_runs *= (uint32_t)scale;
    lay_out(h, &scaled);
    h->max_shards = o->max_shards;
    h->magic = RF_REGION_MAGIC;
    h->byte_order = RF_BYTE_ORDER_MARK;
    h->layout_hash = rf_layout_hash();
    memcpy(h->uuid, random, sizeof(h->uuid));
    memcpy(h->boot_id, site->boot_id, sizeof(h->boot_id));
    h->hash_seed = random[2];
    h->owner_uid = geteuid();
    h->mode = file_mode(o);
    h->gid = o->has_group ? o->group : UINT32_MAX;
    h->time_base = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_BOOTTIME);
    atomic_store(&h->epoch, 1);
    atomic_store(&h->next_uid, 1);
    h->durability = o->durability;
    h->sealing = o->durability != RF_VOLATILE;
    if (h->sealing != 0) {
        h->segment_bytes = o->segment_bytes;
        h->snapshot_bytes = o->snapshot_bytes;
        h->flush_ns = o->flush_ns;
        bool known = site->store_case == RF_CASE_STORE_DURABLE;
        memcpy(h->store_id, known ? site->store.store_id : (const void *)&random[3], 16);
    }
    return time_namespace_offset(&h->time_namespace, detail);
}

/* What the store file will say of a region; the incarnation is that of the last one. */
static struct rf_store_file describe(const struct site *site, const struct rf_header *h,
                                     const struct rf_region_options *o)
{
    struct rf_store_file f = {.durability = o->durability,
                              .incarnation = site->store.incarnation,
                              .max_shards = o->max_shards,
                              .max_tenant_shards = o->max_tenant_shards,
                              .max_bytes = o->max_bytes,
                              .claim_cooldown = o->claim_cooldown,
                              .segment_bytes = h->segment_bytes,
                              .snapshot_bytes = h->snapshot_bytes,
                              .flush_ns = h->flush_ns,
                              .max_runs = o->max_runs,
                              .max_members = o->max_members,
                              .lane_bytes = o->lane_bytes,
                              .mode = h->mode,
                              .gid = h->gid};
    memcpy(f.store_id, h->store_id, sizeof(f.store_id));
    memcpy(f.uuid, h->uuid, sizeof(f.uuid));
    memcpy(f.boot_id, h->boot_id, sizeof(f.boot_id));
    return f;
}

/* How a durable store was made, and the opener's own region path. */
static struct rf_region_options stored_options(const struct rf_store_file *f,
                                               const struct rf_region_options *opener)
{
    struct rf_region_options o = *opener;
    o.max_shards = f->max_shards;
    o.max_tenant_shards = f->max_tenant_shards;
    o.max_bytes = f->max_bytes;
    o.claim_cooldown = f->claim_cooldown;
    o.max_runs = f->max_runs;
    o.max_members = f->max_members;
    o.lane_bytes = f->lane_bytes;
    o.durability = f->durability;
    o.segment_bytes = f->segment_bytes;
    o.snapshot_bytes = f->snapshot_bytes;
    o.flush_ns = f->flush_ns;
    o.has_group = f->gid != UINT32_MAX;
    o.group = f->gid;
    return o;
}

/* Marks the fixed part as taken, and gives members and runs the values that are not 0. */
static void fill_fixed(uint8_t *base)
{
    struct rf_header *h = (struct rf_header *)base;
    rf_word64 *growth = (rf_word64 *)(base + h->growth.offset);
    for (uint64_t g = 0; g < h->fixed_bytes / RF_GRANULE; g++) {
        atomic_fetch_or(&growth[g / 64], 1ull << (g % 64));
    }
    struct rf_member *members = (struct rf_member *)(base + h->roster.offset);
    for (uint32_t i = 0; i < h->slot_count; i++) {
        atomic_store(&members[i].generation, 1);
    }
}

/* The strides are the sizes that the layout hash vouches for. */
static void cache_sections(struct rf_map *map)
{
    const struct rf_header *h = map->header;
    map->extents = (struct rf_extent *)(void *)(map->base + h->extents.offset);
    map->extent_count = h->extents.count;
    map->extent_tags = (rf_word64 *)(void *)(map->base + h->extent_tags.offset);
    map->runs = (struct rf_runrec *)(void *)(map->base + h->runs.offset);
    map->run_count = h->runs.count;
    map->lane_mask = h->lane_units - 1;
}

/* A signal that comes meanwhile is no answer: the manual lets fallocate end with EINTR. */
static bool take_memory(int fd, uint64_t offset, uint64_t bytes)
{
    int rc;
    do {
        rc = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    } while (rc != 0 && errno == EINTR);
    return rc == 0;
}

/* Gives an empty file the shape of a region that is not published, and maps it. */
static rf_status shape_region(int fd, const struct rf_header *probe, struct rf_map *map,
                              rf_detail *detail)
{
    if (!rf_disk_fits_limit(probe->region_bytes)) { /* ftruncate would answer with SIGXFSZ */
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, EFBIG,
                         "a new region may grow to %" PRIu64
                         " bytes, this process's limit of file sizes (ulimit -f) is below that; "
                         "raise it, or make a smaller store",
                         probe->region_bytes);
    }
    if (ftruncate(fd, (off_t)probe->region_bytes) != 0 || !take_memory(fd, 0, probe->fixed_bytes)) {
        return refuse_allocation(detail, errno, "no room for a new region");
    }
    uint8_t *base =
        mmap(NULL, probe->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, errno, "mapping the new region");
    }
    madvise(base, probe->region_bytes, MADV_DONTFORK);
    memcpy(base, probe, sizeof(*probe));
    fill_fixed(base);
    *map = (struct rf_map){.base = base,
                           .header = (struct rf_header *)base,
                           .bytes = probe->region_bytes,
                           .fd = fd,
                           .lock_fd = -1,
                           .dir_fd = -1};
    cache_sections(map);
    return RF_OK;
}

static rf_status make_region_file(struct site *site, const struct rf_region_options *options,
                                  rf_detail *detail)
{
    mode_t mode = file_mode(options);
    if (unlink(site->region_path) != 0 && errno != ENOENT) {
        return rf_refuse(detail,
                         errno == EPERM || errno == EACCES ? RF_PERMISSION_DENIED : RF_IO_ERROR,
                         errno, "removing the left-over region %.110s", site->region_path);
    }
    int fd = open(site->region_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0) {
        return rf_refuse(detail, errno == EACCES ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                         "making the region %.110s", site->region_path);
    }
    if (site->region_fd >= 0) {
        close(site->region_fd);
    }
    site->region_fd = fd;
    if (!give_access(fd, mode, options)) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, errno, "setting the access of %.110s",
                         site->region_path);
    }
    return RF_OK;
}

/* What a region is filled with, and the files that name it: steps 2 to 7 of recover.h. */
static rf_status fill_region(struct site *site, const struct rf_region_options *o, bool recover,
                             struct rf_disk *disk, struct rf_map *map, rf_detail *detail)
{
    struct rf_recovered recovered = {0};
    struct rf_replay *replay = NULL;
    rf_status status = RF_OK;
    RF_POINT("region.filled");
    if (recover) {
        status = rf_recover_state(map, disk, site->dir_fd, site->store.has_log != 0, UINT64_MAX,
                                  RF_LEASES_VOID, &recovered, &replay, detail);
    }
    if (replay != NULL) {
        rf_replay_free(replay);
    }
    if (status == RF_OK) {
        struct rf_store_file store = describe(site, map->header, o);
        status = rf_recover_start(map->header, disk, &recovered, &store,
                                  site->store_case == RF_CASE_STORE_NONE, detail);
    }
    if (status == RF_OK) {
        map->header->sum = rf_header_sum(map->header);
        atomic_store_explicit(&map->header->version, RF_REGION_VERSION, memory_order_release);
        RF_POINT("region.published");
    }
    return status;
}

static rf_status build_scaled(struct site *site, const struct rf_region_options *o, uint64_t scale,
                              bool recover, struct rf_disk *disk, rf_detail *detail)
{
    struct rf_header probe = {0};
    struct rf_map map;
    rf_status status = make_region_file(site, o, detail);
    if (status == RF_OK) {
        RF_POINT("region.made");
        status = fill_header(site, &probe, o, scale, detail);
    }
    if (status == RF_OK) {
        status = shape_region(site->region_fd, &probe, &map, detail);
        if (status == RF_OK) {
            status = fill_region(site, o, recover, disk, &map, detail);
            munmap(map.base, map.bytes);
        }
        if (status != RF_OK) {
            unlink(site->region_path);
        }
    }
    return status;
}

/* A snapshot is not one moment: what it and the log hold together may be more than the store ever held at
 * once. Then there is twice the room. */
#define SCALE_MAX 8u

/* Called with the exclusive lock: nobody is attached, so whatever lies there is left over. */
static rf_status build(struct site *site, const struct rf_region_options *opener, bool recover,
                       rf_detail *detail)
{
    const struct rf_region_options o = recover ? stored_options(&site->store, opener) : *opener;
    struct rf_disk *disk;
    rf_detail local = {0};
    detail = detail != NULL ? detail : &local;
    rf_status status = check_options(&o, detail);
    if (status != RF_OK) {
        char why[64];
        snprintf(why, sizeof(why), "%.60s", detail->where);
        return rf_refuse(detail, RF_CORRUPT, 0, "%.100s/store: %s", site->directory, why);
    }
    status = rf_disk_open(site->dir_fd, file_mode(&o), o.has_group ? (gid_t)o.group : (gid_t)-1,
                          o.segment_bytes, &disk, detail);
    if (status != RF_OK) {
        return status;
    }
    rf_disk_sweep_temporary(disk);
    for (uint64_t scale = 1; scale <= SCALE_MAX; scale *= 2) {
        detail->os_error = 0;
        status = build_scaled(site, &o, scale, recover, disk, detail);
        if (!recover || status != RF_RESOURCE_EXHAUSTED || detail->os_error != 0) {
            break;
        }
    }
    rf_disk_close(disk);
    return status;
}

/* --- shadows --- */

/* The options by which a region was made. */
static struct rf_region_options options_of(const struct rf_header *h)
{
    return (struct rf_region_options){
        .max_shards = h->max_shards,
        .max_tenant_shards = h->max_tenant_shards,
        .max_bytes = h->slab_classes.count * RF_SLAB_PAGE,
        .claim_cooldown = h->claim_cooldown,
        .max_runs = (uint32_t)h->runs.count,
        .max_members = h->max_members,
        .lane_bytes = (uint32_t)(h->lane_units * RF_LINE),
        .durability = h->durability,
        .segment_bytes = h->segment_bytes,
        .snapshot_bytes = h->snapshot_bytes,
        .flush_ns = h->flush_ns,
    };
}

rf_status rf_region_shadow(const struct rf_map *like, uint64_t scale, struct rf_map *out,
                           rf_detail *detail)
{
    struct rf_header *probe = calloc(1, sizeof(*probe));
    const struct rf_region_options options = options_of(like->header);
    const struct site nowhere = {.store_case = RF_CASE_STORE_NONE};
    if (probe == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    rf_status status = fill_header(&nowhere, probe, &options, scale, detail);
    memcpy(probe->store_id, like->header->store_id, sizeof(probe->store_id));
    int fd = status != RF_OK ? -1 : memfd_create("ringfence-shadow", MFD_CLOEXEC);
    if (status == RF_OK && fd < 0) {
        status = rf_refuse(detail, RF_RESOURCE_EXHAUSTED, errno, "memfd_create");
    }
    if (status == RF_OK) {
        status = shape_region(fd, probe, out, detail);
        if (status != RF_OK) {
            close(fd);
        }
    }
    free(probe);
    return status;
}

void rf_region_shadow_drop(struct rf_map *map)
{
    munmap(map->base, map->bytes);
    close(map->fd);
}

/* --- attaching --- */

static rf_status check_file(struct site *site, const struct stat *st,
                            const struct rf_region_options *options, rf_detail *detail)
{
    if (!S_ISREG(st->st_mode) || st->st_nlink != 1) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0,
                         "%.110s is not a plain file with one name; remove it", site->region_path);
    }
    if (st->st_uid != geteuid() && geteuid() != 0 && (st->st_mode & 0060) != 0060) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0, "%.110s belongs to user %" PRIu32,
                         site->region_path, (uint32_t)st->st_uid);
    }
    if ((st->st_mode & 0007) != 0) {
        return rf_refuse(detail, RF_PERMISSION_DENIED, 0,
                         "%.110s is open to everybody (mode %o); it must be 0600 or 0660",
                         site->region_path, (unsigned)(st->st_mode & 07777));
    }
    (void)options;
    return RF_OK;
}

/* Whether the sections lie where a region with this room has them. */
static bool layout_fits(const struct rf_header *h)
{
    struct rf_header *probe = calloc(1, sizeof(*probe));
    bool fits = false;
    for (uint64_t scale = 1; probe != NULL && scale <= SCALE_MAX && !fits; scale *= 2) {
        struct rf_region_options o = options_of(h);
        struct rf_region_options asked = o;
        if (h->slab_classes.count > SLAB_PAGES_MAX * scale || h->runs.count > RUNS_MAX * scale ||
            h->lane_units > UINT32_MAX / RF_LINE) {
            continue; /* what the fields of the options can't hold */
        }
        asked.max_runs = (uint32_t)((h->runs.count + scale - 1) / scale);
        asked.max_bytes = o.max_bytes / scale < RF_SLAB_PAGE ? RF_SLAB_PAGE : o.max_bytes / scale;
        if (h->sealing == 0) {
            asked.segment_bytes = asked.snapshot_bytes = RF_LOG_BLOCK * 16ull;
            asked.flush_ns = 1000000;
        }
        if (check_options(&asked, NULL) != RF_OK) {
            continue;
        }
        o.max_shards *= scale;
        lay_out(probe, &o);
        size_t from = offsetof(struct rf_header, roster), to = offsetof(struct rf_header, epoch);
        fits = memcmp((const uint8_t *)probe + from, (const uint8_t *)h + from, to - from) == 0 &&
               probe->region_bytes == h->region_bytes && probe->fixed_bytes == h->fixed_bytes &&
               probe->slot_count == h->slot_count && probe->lane_units == h->lane_units &&
               h->sealing == (h->durability != RF_VOLATILE);
    }
    free(probe);
    return fits;
}

static rf_status refuse_header(const struct site *site, rf_detail *detail)
{
    return rf_refuse(detail, RF_CORRUPT, 0,
                     "the header of %.80s is damaged; end its processes, then remove the file (a "
                     "durable store comes back from its log)",
                     site->region_path);
}

static rf_status check_header(struct site *site, const struct rf_header *h, uint64_t file_bytes,
                              enum rf_case_region *found, rf_detail *detail)
{
    if (h->magic != RF_REGION_MAGIC && h->magic != 0) {
        return rf_refuse(detail, RF_CORRUPT, 0, "%.110s is not a ringfence region",
                         site->region_path);
    }
    if (h->magic == 0 || atomic_load_explicit(&h->version, memory_order_acquire) == 0) {
        *found = RF_CASE_REGION_HALF;
        return RF_OK;
    }
    if (h->byte_order != RF_BYTE_ORDER_MARK) {
        *found = RF_CASE_REGION_FOREIGN;
        return rf_refuse(detail, RF_VERSION_MISMATCH, 0, "%.110s was made with another byte order",
                         site->region_path);
    }
    if (h->layout_hash != rf_layout_hash() || atomic_load(&h->version) != RF_REGION_VERSION) {
        *found = RF_CASE_REGION_FOREIGN;
        return rf_refuse(detail, RF_VERSION_MISMATCH, 0,
                         "%.48s has layout %016" PRIx64 " version %" PRIu32
                         ", this library %016" PRIx64
                         " version %u: end its processes with the ringfence that made it, then "
                         "remove it",
                         site->region_path, h->layout_hash, atomic_load(&h->version),
                         rf_layout_hash(), RF_REGION_VERSION);
    }
    if (h->region_bytes > file_bytes || h->fixed_bytes > file_bytes) {
        return rf_refuse(detail, RF_CORRUPT, 0, "%.110s is shorter than it says",
                         site->region_path);
    }
    if (h->sum != rf_header_sum(h) || !layout_fits(h)) {
        return refuse_header(site, detail);
    }
    bool known = (site->store_case & (RF_CASE_STORE_VOLATILE | RF_CASE_STORE_DURABLE)) != 0;
    bool named = known && memcmp(site->store.uuid, h->uuid, sizeof(h->uuid)) == 0;
    bool this_boot = memcmp(site->boot_id, h->boot_id, sizeof(h->boot_id)) == 0;
    uint32_t condemned = atomic_load(&h->condemned);
    site->condemned = (int)(condemned - 1);
    *found = !named || !this_boot ? RF_CASE_REGION_STALE
             : condemned != 0     ? RF_CASE_REGION_CONDEMNED
                                  : RF_CASE_REGION_GOOD;
    uint64_t time_namespace = h->time_namespace;
    rf_status status =
        *found == RF_CASE_REGION_GOOD ? time_namespace_offset(&time_namespace, detail) : RF_OK;
    if (status == RF_OK && h->time_namespace != time_namespace) {
        status = rf_refuse(detail, RF_UNSUPPORTED, 0, "%.110s was made in another time namespace",
                           site->region_path);
    }
    return status;
}

#define LEASED_TRIES 1000u
#define LEASED_NS    1000000

/* `ringfence cleanup` holds a lease on the file while it removes it, or finds that it must not. */
static int open_region(const char *path, int flags)
{
    int fd = open(path, flags);
    for (unsigned i = 0; fd < 0 && errno == EWOULDBLOCK && i < LEASED_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = LEASED_NS}, NULL);
        fd = open(path, flags);
    }
    return fd;
}

static rf_status look_for_region(struct site *site, const struct rf_region_options *options,
                                 enum rf_case_region *found, rf_detail *detail)
{
    struct stat st;
    *found = RF_CASE_REGION_NONE;
    rf_status status = read_store_file(site, detail);
    if (status != RF_OK) {
        return status;
    }
    if (site->region_fd >= 0) {
        close(site->region_fd);
    }
    int flags = options->read_only ? O_RDONLY : O_RDWR;
    site->region_fd = open_region(site->region_path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (site->region_fd < 0) {
        if (errno == ENOENT) {
            return RF_OK;
        }
        if (errno == ELOOP) {
            return rf_refuse(detail, RF_PERMISSION_DENIED, 0,
                             "%.110s is a symbolic link; remove it", site->region_path);
        }
        return rf_refuse(detail, errno == EACCES ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                         "opening the region %.110s", site->region_path);
    }
    if (fstat(site->region_fd, &st) != 0) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "looking at %.110s", site->region_path);
    }
    status = check_file(site, &st, options, detail);
    if (status != RF_OK) {
        return status;
    }
    struct rf_header *h = NULL;
    if ((uint64_t)st.st_size < sizeof(struct rf_header)) {
        *found = RF_CASE_REGION_HALF;
        return RF_OK;
    }
    h = malloc(sizeof(*h));
    if (h == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    /* pread, not a mapping: a hole or a file that shrinks can't hurt. */
    ssize_t n = pread(site->region_fd, h, sizeof(*h), 0);
    if (n != (ssize_t)sizeof(*h)) {
        *found = RF_CASE_REGION_HALF;
    } else {
        status = check_header(site, h, (uint64_t)st.st_size, found, detail);
    }
    free(h);
    return status;
}

#define LOOKS 10000u

/* Words that change while others work, as far as an attached process walks by them. */
static bool words_fit(const struct rf_map *map)
{
    const struct rf_header *h = map->header;
    if (atomic_load(&h->runs_used) > h->runs.count ||
        atomic_load(&h->members_used) > h->slot_count) {
        return false;
    }
    /* Between two loads others may get far; not time after time. */
    for (unsigned i = 0; h->sealing != 0 && i < LOOKS; i++) {
        struct rf_log_end end;
        uint64_t durable = atomic_load(&h->durable), open = atomic_load(&h->epoch);
        if (durable < open && open - durable <= RF_LOG_ENTRIES && open >> 44 == 0 &&
            rf_entry_end(map, durable, &end)) {
            return true;
        }
    }
    return h->sealing == 0;
}

static rf_status map_region(struct site *site, bool read_only, struct rf_map **out,
                            rf_detail *detail)
{
    struct stat st;
    if (fstat(site->region_fd, &st) != 0) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "looking at %.110s", site->region_path);
    }
    struct rf_map *map = calloc(1, sizeof(*map));
    if (map == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    int protection = read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    map->base = rf_pages_map(site->region_fd, (uint64_t)st.st_size, protection);
    if (map->base == NULL) {
        int error = errno;
        free(map);
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, error, "mapping %.110s", site->region_path);
    }
    /* A child must not reach into the region through its parent's mapping. */
    madvise(map->base, (size_t)st.st_size, MADV_DONTFORK);
    map->header = (struct rf_header *)map->base;
    cache_sections(map);
    map->bytes = (uint64_t)st.st_size;
    if (!words_fit(map)) {
        munmap(map->base, map->bytes);
        free(map);
        return refuse_header(site, detail);
    }
    map->device = st.st_dev;
    map->inode = st.st_ino;
    map->read_only = read_only;
    map->time_base = map->header->time_base;
    map->users = 1;
    map->fd = site->region_fd;
    map->lock_fd = unhold_lock(site); /* the map's from here on */
    map->dir_fd = -1;
    if (map->header->sealing != 0) {
        map->dir_fd = site->dir_fd;
        site->dir_fd = -1;
    }
    map->region_path = site->region_path;
    map->directory = site->directory;
    site->region_fd = -1;
    site->region_path = site->directory = NULL;
    *out = map;
    return RF_OK;
}

/* How long an opener waits for a region that others must have, and for one that somebody is building: a cold
 * open of millions of shards takes its time. */
#define BUILD_WAIT_NS   5000000000ull
#define BUILDER_WAIT_NS 120000000000ull

/* A lock on a file that was removed with its store keeps nobody out. */
static bool was_destroyed(const struct site *site)
{
    struct stat st;
    return fstat(site->lock.fd, &st) != 0 || st.st_nlink == 0;
}

static rf_status refuse_case(const struct site *site, enum rf_case_action action, rf_detail *detail)
{
    if (action == RF_DO_REFUSE_LOST) {
        return rf_refuse(detail, RF_CORRUPT, 0,
                         "%.100s/store is damaged or missing, and so is its copy; restore it, or "
                         "destroy the store",
                         site->directory);
    }
    if (action == RF_DO_REFUSE_NO_REGION) {
        return rf_refuse(detail, RF_NOT_FOUND, 0, "%.120s has no region now", site->directory);
    }
    if (site->region_case == RF_CASE_REGION_CONDEMNED) {
        return rf_refuse(detail, RF_IO_ERROR, site->condemned,
                         "%.80s: a write of its log failed, and processes still have it open; end "
                         "them, then open it again",
                         site->directory);
    }
    return rf_refuse(detail, RF_BUSY, 0,
                     "%.100s is in use by processes whose region is not visible here "
                     "(another /dev/shm?)",
                     site->directory);
}

/* One look under a lock that was granted, and what is to be done. */
static rf_status judge_site(struct site *site, const struct rf_region_options *options,
                            enum rf_case_lock lock, enum rf_case_action *action, rf_detail *detail)
{
    rf_status status = look_for_region(site, options, &site->region_case, detail);
    if (status != RF_OK) {
        return status; /* of another layout, newer, not ours, can't be read */
    }
    const struct rf_open_case c = {.store = (uint8_t)site->store_case,
                                   .region = (uint8_t)site->region_case,
                                   .lock = (uint8_t)lock,
                                   .who = options->read_only ? RF_CASE_LOOK
                                          : options->create  ? RF_CASE_CREATE
                                                             : RF_CASE_OPEN};
    *action = rf_open_decide(c);
    return RF_OK;
}

/* Finds the region or builds it: the table of recover.h. *gone: the store was destroyed after it was
 * found; look for it again. */
static rf_status settle_region(struct site *site, const struct rf_region_options *options,
                               bool *gone, rf_detail *detail)
{
    uint64_t start = rf_monotonic_ns(), until = start + BUILD_WAIT_NS;
    site->region_case = RF_CASE_REGION_NONE;
    for (;;) {
        enum rf_case_action action = RF_DO_WAIT;
        rf_status status = RF_OK;
        bool building =
            flock(site->lock.fd, LOCK_SH | LOCK_NB) != 0; /* somebody is alone with it */
        if (building && errno != EWOULDBLOCK && errno != EINTR) {
            return rf_refuse(detail, RF_UNSUPPORTED, errno,
                             "%.100s/lock can't be locked (flock); keep the store on another file "
                             "system",
                             site->directory);
        }
        if (!building) {
            *gone = was_destroyed(site);
            if (*gone) {
                return rf_refuse(detail, RF_NOT_FOUND, 0, "%.120s was destroyed just now",
                                 site->directory);
            }
            status = judge_site(site, options, RF_CASE_SHARED, &action, detail);
            if (status != RF_OK || action == RF_DO_ATTACH) {
                return status; /* attached: the shared lock is kept */
            }
        }
        /* Not an upgrade but a new request: flock drops the shared lock first. Whoever comes in
         * between finds the same state and decides the same. */
        if (action == RF_DO_GO_ALONE) {
            action = RF_DO_WAIT;
            if (flock(site->lock.fd, LOCK_EX | LOCK_NB) == 0) {
                RF_POINT("region.alone");
                if (was_destroyed(site)) {
                    continue;
                }
                status = judge_site(site, options, RF_CASE_ALONE, &action, detail);
            }
        }
        if (status == RF_OK && (action == RF_DO_BUILD || action == RF_DO_RECOVER)) {
            status = build(site, options, action == RF_DO_RECOVER, detail);
            action = RF_DO_ATTACH;
        }
        if (status != RF_OK) {
            return status;
        }
        if (action == RF_DO_ATTACH) {
            continue; /* take the shared lock and look again, like everybody else */
        }
        uint64_t now = rf_monotonic_ns();
        if (building && now > start + BUILDER_WAIT_NS) {
            return rf_refuse(detail, RF_BUSY, 0,
                             "%.100s: another process has been building its region for long",
                             site->directory);
        }
        until = building ? now + BUILD_WAIT_NS : until;
        if (action != RF_DO_WAIT || now > until) {
            return refuse_case(site, action, detail);
        }
        flock(site->lock.fd, LOCK_UN);
        usleep(2000);
    }
}

static struct rf_map *find_map(const struct stat *st, bool read_only)
{
    for (struct rf_map *map = rf_process.maps; map != NULL; map = map->next) {
        if (map->device == st->st_dev && map->inode == st->st_ino && map->read_only == read_only) {
            return map;
        }
    }
    return NULL;
}

/* One mapping per process: a second open of the same file uses the first one's. */
static rf_status share_or_map(struct site *site, const struct rf_region_options *options,
                              struct rf_map **map, rf_detail *detail)
{
    struct stat st;
    if (fstat(site->region_fd, &st) != 0) {
        return rf_refuse(detail, RF_IO_ERROR, errno, "looking at %.110s", site->region_path);
    }
    pthread_mutex_lock(&rf_process.lock);
    rf_status status = RF_OK;
    *map = find_map(&st, options->read_only);
    if (*map != NULL) {
        (*map)->users++;
    } else {
        status = map_region(site, options->read_only, map, detail);
        if (status == RF_OK) {
            (*map)->next = rf_process.maps;
            rf_process.maps = *map;
        }
    }
    pthread_mutex_unlock(&rf_process.lock);
    return status;
}

/* Everything up to the lock. *gone as for settle_region. */
static rf_status open_site(const char *store, const struct rf_region_options *options,
                           struct site *site, bool *gone, rf_detail *detail)
{
    *site = (struct site){.dir_fd = -1, .lock = {.fd = -1}, .region_fd = -1};
    rf_status status = open_directory(store, options, site, detail);
    if (status == RF_OK) {
        status = open_lock(site, options, detail);
    }
    *gone = status == RF_NOT_FOUND; /* who creates finds what it has made, or it was destroyed */
    if (status == RF_OK) {
        status = name_region(site, options->region_path, detail);
    }
    return status;
}

rf_status rf_region_open(const char *store, const struct rf_region_options *options,
                         struct rf_map **map, rf_detail *detail)
{
    struct site site;
    uint64_t until = rf_monotonic_ns() + BUILD_WAIT_NS;
    bool gone;
    rf_status status = check_options(options, detail);
    if (status != RF_OK) {
        return status;
    }
    for (;;) {
        status = open_site(store, options, &site, &gone, detail);
        if (status == RF_OK) {
            status = read_boot_id(site.boot_id, detail);
        }
        if (status == RF_OK) {
            status = settle_region(&site, options, &gone, detail);
        }
        if (status == RF_OK) {
            status = share_or_map(&site, options, map, detail);
        }
        close_site(&site);
        if (!gone || !options->create || rf_monotonic_ns() > until) {
            return status;
        }
    }
}

void rf_region_close(struct rf_map *map)
{
    pthread_mutex_lock(&rf_process.lock);
    bool last = --map->users == 0;
    if (last) {
        struct rf_map **link = &rf_process.maps;
        while (*link != map) {
            link = &(*link)->next;
        }
        *link = map->next;
        close(map->fd);
        close(map->lock_fd);
        if (map->dir_fd >= 0) {
            close(map->dir_fd);
        }
    }
    pthread_mutex_unlock(&rf_process.lock);
    if (last) {
        munmap(map->base, map->bytes);
        free(map->region_path);
        free(map->directory);
        free(map);
    }
}

/* --- destroying --- */

struct removal {
    struct rf_disk *disk;
    rf_status status;
    rf_detail *detail;
};

static void remove_segment(void *context, uint64_t number)
{
    struct removal *r = context;
    if (r->status == RF_OK) {
        r->status = rf_segment_remove(r->disk, number, r->detail);
    }
}

static void remove_snapshot(void *context, uint64_t epoch)
{
    struct removal *r = context;
    char name[RF_SNAPSHOT_NAME];
    rf_snapshot_name(epoch, name);
    if (r->status == RF_OK) {
        r->status = rf_file_remove(r->disk, name, r->detail);
    }
}

/* The store file goes first, durably: whatever is left after a kill or a power cut is refused, never opened as a
 * part. */
static rf_status remove_files(struct site *site, rf_detail *detail)
{
    struct rf_disk *disk;
    rf_status status = rf_disk_open(site->dir_fd, 0600, (gid_t)-1, 2 * RF_LOG_BLOCK, &disk, detail);
    if (status != RF_OK) {
        return status;
    }
    struct removal r = {.disk = disk, .detail = detail};
    for (unsigned i = 0; status == RF_OK && rf_store_file_names[i] != NULL; i++) {
        status = rf_file_remove(disk, rf_store_file_names[i], detail);
    }
    if (status == RF_OK) {
        status = rf_disk_sync_removals(disk, detail);
    }
    if (status == RF_OK) {
        status = rf_disk_list(disk, "log.", remove_segment, &r, detail);
    }
    if (status == RF_OK) {
        status = rf_disk_list(disk, RF_SNAPSHOT_PREFIX, remove_snapshot, &r, detail);
    }
    status = status == RF_OK ? r.status : status;
    rf_disk_sweep_temporary(disk);
    if (status == RF_OK) {
        status = rf_disk_sync_removals(disk, detail);
    }
    rf_disk_close(disk);
    return status;
}

/* Asked before anything is removed: a store whose region is gone and whose files stay has lost what only
 * the region had. */
static rf_status may_remove_files(const struct site *site, rf_detail *detail)
{
    if (faccessat(site->dir_fd, ".", W_OK | X_OK, AT_EACCESS) == 0) {
        return RF_OK;
    }
    bool denied = errno == EACCES || errno == EPERM;
    return rf_refuse(detail, denied ? RF_PERMISSION_DENIED : RF_IO_ERROR, errno,
                     "removing files of %.110s", site->directory);
}

/* A process that has the store open, as the kernel lists it; 0 if it can't be told, as in a pid
 * namespace that does not see it, or on a file system whose numbers here are not the kernel's. */
static int somebody_who_has_it(const struct site *site)
{
    struct stat st;
    char line[256];
    int found = 0;
    FILE *locks = fstat(site->lock.fd, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
    while (locks != NULL && found == 0 && fgets(line, sizeof(line), locks) != NULL) {
        int pid;
        unsigned major_id, minor_id;
        uint64_t inode;
        if (sscanf(line, "%*u: FLOCK %*s %*s %d %x:%x:%" SCNu64, &pid, &major_id, &minor_id,
                   &inode) == 4 &&
            pid > 0 && inode == st.st_ino && makedev(major_id, minor_id) == st.st_dev) {
            found = pid;
        }
    }
    if (locks != NULL) {
        fclose(locks);
    }
    return found;
}

static rf_status refuse_in_use(const struct site *site, rf_detail *detail)
{
    int pid = somebody_who_has_it(site);
    char who[48] = "";
    if (pid != 0) {
        snprintf(who, sizeof(who), ", by process %d at least", pid);
    }
    return rf_refuse(detail, RF_BUSY, 0, "%.100s is in use%s; end its processes first",
                     site->directory, who);
}

rf_status rf_region_destroy(const char *store, const char *region_path, rf_detail *detail)
{
    struct site site;
    const struct rf_region_options options = {.create = false, .region_path = region_path};
    bool gone;
    uint64_t cookie;
    rf_status status = rf_process_enter(&cookie, detail); /* for its handlers of fork */
    if (status != RF_OK) {
        return status;
    }
    status = open_site(store, &options, &site, &gone, detail);
    if (status == RF_OK && flock(site.lock.fd, LOCK_EX | LOCK_NB) != 0) {
        status = refuse_in_use(&site, detail);
    }
    if (status == RF_OK && was_destroyed(&site)) {
        status =
            rf_refuse(detail, RF_NOT_FOUND, 0, "%.120s was destroyed just now", site.directory);
    }
    if (status == RF_OK) {
        status = may_remove_files(&site, detail);
    }
    if (status == RF_OK && unlink(site.region_path) != 0 && errno != ENOENT) {
        status = rf_refuse(detail, RF_PERMISSION_DENIED, errno, "removing the region %.110s",
                           site.region_path);
    }
    if (status == RF_OK) {
        status = remove_files(&site, detail);
    }
    if (status == RF_OK) {
        unlinkat(site.dir_fd, "lock", 0);
        rmdir(site.directory); /* stays if somebody keeps other files in it */
    }
    close_site(&site);
    return status;
}

uint64_t rf_region_now(const struct rf_map *map)
{
    return clock_ns(CLOCK_BOOTTIME) + map->time_base;
}

/* --- room --- */

/* Pages that were never asked for would be made at the first touch, and a full /dev/shm would
 * answer with SIGBUS. So they are asked for, and the bit is set after. Doing it twice, or dying in
 * between, is harmless. */
static rf_status ensure(struct rf_map *map, const struct rf_section *bits, uint64_t granule,
                        uint64_t file_offset, uint64_t bytes, rf_detail *detail)
{
    rf_word64 *word = (rf_word64 *)(map->base + bits->offset) + granule / 64;
    if ((atomic_load_explicit(word, memory_order_acquire) >> (granule % 64) & 1) != 0) {
        return RF_OK;
    }
    if (!take_memory(map->fd, file_offset, bytes)) {
        return refuse_allocation(detail, errno, "shared memory is used up");
    }
    atomic_fetch_or_explicit(word, 1ull << (granule % 64), memory_order_release);
    RF_POINT("growth.bit");
    return RF_OK;
}

rf_status rf_region_ensure(struct rf_map *map, uint64_t offset, uint64_t len, rf_detail *detail)
{
    assert(offset + len <= map->bytes && len != 0);
    for (uint64_t g = offset / RF_GRANULE; g <= (offset + len - 1) / RF_GRANULE; g++) {
        rf_status status = ensure(map, &map->header->growth, g, g * RF_GRANULE, RF_GRANULE, detail);
        if (status != RF_OK) {
            return status;
        }
    }
    return RF_OK;
}

rf_status rf_region_ensure_index(struct rf_map *map, uint64_t bucket, rf_detail *detail)
{
    const struct rf_header *h = map->header;
    uint64_t g = bucket * sizeof(struct rf_bucket) / RF_INDEX_GRANULE;
    return ensure(map, &h->index_growth, g, h->shard_index.offset + g * RF_INDEX_GRANULE,
                  RF_INDEX_GRANULE, detail);
}

bool rf_region_index_present(const struct rf_map *map, uint64_t bucket)
{
    uint64_t g = bucket * sizeof(struct rf_bucket) / RF_INDEX_GRANULE;
    const rf_word64 *bits = (const rf_word64 *)(map->base + map->header->index_growth.offset);
    return (atomic_load_explicit(&bits[g / 64], memory_order_acquire) >> (g % 64) & 1) != 0;
}

static uint64_t count_bits(const struct rf_map *map, const struct rf_section *section)
{
    const rf_word64 *bits = (const rf_word64 *)(map->base + section->offset);
    uint64_t n = 0;
    for (uint64_t i = 0; i < section->count; i++) {
        n += (uint64_t)__builtin_popcountll(atomic_load_explicit(&bits[i], memory_order_relaxed));
    }
    return n;
}

uint64_t rf_region_taken(const struct rf_map *map)
{
    return count_bits(map, &map->header->growth) * RF_GRANULE +
           count_bits(map, &map->header->index_growth) * RF_INDEX_GRANULE;
}
