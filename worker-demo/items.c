#include "items.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ignore.h"
#include "memory.h"
#include "ringfence/ringfence.h"

#define MAGIC       0x31736d6574694652ull
#define DEPTH_MAX   2000u /* directories below each other; each costs a descriptor while inside */
#define IGNORE_MAX  (1u << 20)
#define SHARD_COST  (1u << 20) /* smaller ones are not worth it */
#define SHOW_FILES  1000u
#define SHARDS_EACH 4u /* for every worker, to begin with; splitting does the rest */

struct walk {
    const struct options *options;
    struct item *items;
    size_t count, room;
    char *names;
    size_t name_bytes, name_room;
    char *path; /* of where we are, with its root */
    size_t path_len, path_room;
    size_t name; /* where the name below the root begins */
    uint32_t root;
    unsigned depth;
    uint64_t skip_dev, skip_ino;
    uint64_t files, bytes;
    bool show; /* how many they are so far, every SHOW_FILES */
};

static void *room_for(void *old, size_t *room, size_t need, size_t size)
{
    if (need <= *room) {
        return old;
    }
    *room = need + need / 2 + 64;
    void *memory = realloc(old, *room * size);
    if (memory == NULL) {
        fputs("rf-scan: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

static void add_item(struct walk *w, uint64_t path, uint64_t offset, uint64_t length, int error)
{
    w->items = room_for(w->items, &w->room, w->count + 1, sizeof(*w->items));
    w->items[w->count++] = (struct item){.path = path,
                                         .offset = offset,
                                         .length = length,
                                         .root = w->root,
                                         .name = (uint32_t)w->name,
                                         .error = error};
}

static uint64_t add_name(struct walk *w)
{
    uint64_t at = w->name_bytes;
    w->names = room_for(w->names, &w->name_room, w->name_bytes + w->path_len + 1, 1);
    memcpy(w->names + at, w->path, w->path_len + 1);
    w->name_bytes += w->path_len + 1;
    return at;
}

static void add_error(struct walk *w, int error)
{
    add_item(w, add_name(w), 0, 0, error);
}

/* Beyond 65,535 segments the last one is as long as it has to be. */
static void add_file(struct walk *w, uint64_t size)
{
    uint64_t at = add_name(w), segment = w->options->segment, offset = 0;
    size_t first = w->count;
    unsigned number = 0;
    w->files++;
    w->bytes += size;
    if (w->show && w->files % SHOW_FILES == 0) {
        fprintf(stderr, "\r\033[Klisting: %llu files", (unsigned long long)w->files);
    }
    do {
        uint64_t length = size - offset;
        if (length > segment && number < UINT16_MAX) {
            length = segment;
        }
        add_item(w, at, offset, length, 0);
        offset += length;
        number++;
    } while (offset < size);
    for (size_t i = first; i < w->count; i++) {
        w->items[i].first = i == first;
        w->items[i].last = i + 1 == w->count;
    }
}

static void enter(struct walk *w, int fd, struct ignore *ignore);

static struct ignore *read_ignores(struct walk *w, int dir, struct ignore *ignore)
{
    static const char *const files[] = {".gitignore", ".rf-scan-ignore"};
    for (unsigned i = w->options->gitignore ? 0 : 1; i < 2 && !w->options->no_ignore; i++) {
        int fd = openat(dir, files[i], O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) {
            continue;
        }
        char *text = must_alloc(IGNORE_MAX);
        ssize_t len = pread(fd, text, IGNORE_MAX, 0);
        if (len > 0) {
            ignore = ignore_push(ignore, text, (size_t)len, w->path_len + 1 - w->name);
        }
        free(text);
        close(fd);
    }
    return ignore;
}

static void visit(struct walk *w, int dir, const char *name, struct ignore *ignore)
{
    size_t len = strlen(name), old = w->path_len;
    struct stat st;
    w->path = room_for(w->path, &w->path_room, old + len + 2, 1);
    if (old > 0 && w->path[old - 1] != '/') {
        w->path[w->path_len++] = '/';
    }
    memcpy(w->path + w->path_len, name, len + 1);
    w->path_len += len;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno != ENOENT) {
            add_error(w, errno);
        }
    } else if ((S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) &&
               ignore_match(ignore, w->path + w->name, S_ISDIR(st.st_mode))) {
        /* left out */
    } else if (S_ISREG(st.st_mode)) {
        add_file(w, (uint64_t)st.st_size);
    } else if (S_ISDIR(st.st_mode) && !(st.st_dev == w->skip_dev && st.st_ino == w->skip_ino)) {
        int fd = w->depth >= DEPTH_MAX
                     ? (errno = ELOOP, -1)
                     : openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            enter(w, fd, ignore);
        } else if (errno != ENOENT) {
            add_error(w, errno);
        }
    }
    w->path_len = old;
    w->path[old] = '\0';
}

/* Takes fd over. */
static void enter(struct walk *w, int fd, struct ignore *ignore)
{
    static const char *const histories[] = {".git", ".hg", ".svn"};
    struct ignore *inside = read_ignores(w, fd, ignore);
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        add_error(w, errno);
        close(fd);
    } else {
        struct dirent *entry;
        w->depth++;
        while ((errno = 0, entry = readdir(dir)) != NULL) {
            const char *name = entry->d_name;
            bool skip =
                strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
                (entry->d_type != DT_REG && entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN);
            for (unsigned i = 0; i < 3 && !w->options->no_ignore; i++) {
                skip = skip || strcmp(name, histories[i]) == 0;
            }
            if (!skip) {
                visit(w, dirfd(dir), name, inside);
            }
        }
        if (errno != 0) {
            add_error(w, errno);
        }
        w->depth--;
        closedir(dir);
    }
    while (inside != ignore) {
        inside = ignore_pop(inside);
    }
}

/* One PATH of the command. A link is followed here, since the user named it. */
static bool begin(struct walk *w, const char *path, struct ignore *ignore)
{
    struct stat st;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    w->path = room_for(w->path, &w->path_room, len + 1, 1);
    memcpy(w->path, path, len);
    w->path[len] = '\0';
    w->path_len = len;
    w->name = w->path[len - 1] == '/' ? len : len + 1;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "rf-scan: %s: %s\n", path, strerror(errno));
        return false;
    }
    if (S_ISDIR(st.st_mode)) {
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0) {
            add_error(w, errno);
        } else {
            enter(w, fd, ignore);
        }
    } else {
        w->name = 0; /* the whole path is its name */
        add_file(w, (uint64_t)(S_ISREG(st.st_mode) ? st.st_size : 0));
    }
    return true;
}

static const char *sort_names;

static int by_path(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = strcmp(sort_names + x->path, sort_names + y->path);
    return order != 0 ? order : x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Names in the order of the items: whoever works on a range of these then reads a range of the names,
 * and has no more than that in its memory. Segments of one file share its name. */
static void sort_names_too(struct walk *w)
{
    char *names = must_alloc(w->name_bytes);
    uint64_t at = 0, before = UINT64_MAX;
    for (size_t i = 0; i < w->count; i++) {
        struct item *item = &w->items[i];
        uint64_t old = item->path;
        if (old != before) {
            size_t len = strlen(w->names + old) + 1;
            memcpy(names + at, w->names + old, len);
            at += len;
            item->path = at - len;
        } else {
            item->path = item[-1].path;
        }
        before = old;
    }
    free(w->names);
    w->names = names;
}

static uint64_t header_hash(const struct items_header *header)
{
    return rf_hash64("rf-scan/items/v1", (rf_bytes){header, offsetof(struct items_header, hash)});
}

/* The table has to be there before anything that speaks of it. */
static bool sync_with_directory(FILE *out, const char *file)
{
    char dir[4096];
    snprintf(dir, sizeof(dir), "%s", file);
    *strrchr(dir, '/') = '\0';
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fileno(out)) == 0 && fsync(fd) == 0;
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

static bool save(const struct walk *w, const struct items_header *header, const char *file)
{
    char temporary[4096];
    snprintf(temporary, sizeof(temporary), "%s.new", file);
    FILE *out = fopen(temporary, "wbe");
    bool good = out != NULL;
    good = good && fwrite(header, sizeof(*header), 1, out) == 1;
    good = good && fwrite(w->items, sizeof(*w->items), w->count, out) == w->count;
    good = good && fwrite(w->names, 1, w->name_bytes, out) == w->name_bytes;
    good = good && fflush(out) == 0;
    good = good && rename(temporary, file) == 0;
    good = good && (!w->options->durable || sync_with_directory(out, file));
    if (out != NULL) {
        good = fclose(out) == 0 && good;
    }
    if (!good) {
        fprintf(stderr, "rf-scan: %s: %s\n", file, strerror(errno));
        unlink(temporary);
    }
    return good;
}

static uint64_t shard_count(const struct options *options, uint64_t count, uint64_t cost)
{
    uint64_t shards = (uint64_t)options->workers * SHARDS_EACH;
    shards = shards < cost / SHARD_COST + 1 ? shards : cost / SHARD_COST + 1;
    return shards < count ? shards : count;
}

bool items_make(const struct options *options, const char *file, uint64_t run, uint64_t skip_dev,
                uint64_t skip_ino)
{
    struct walk w = {.options = options,
                     .skip_dev = skip_dev,
                     .skip_ino = skip_ino,
                     .show = !options->quiet && isatty(STDERR_FILENO) == 1};
    struct ignore *ignore = NULL;
    bool good = true;
    for (size_t i = 0; i < options->ignore_count; i++) {
        ignore = ignore_push(ignore, options->ignores[i], strlen(options->ignores[i]), 0);
    }
    for (size_t i = 0; good && i < options->path_count; i++) {
        w.root = (uint32_t)i;
        good = begin(&w, options->paths[i], ignore);
    }
    while (ignore != NULL) {
        ignore = ignore_pop(ignore);
    }
    if (w.show && w.files >= SHOW_FILES) {
        fputs("\r\033[K", stderr);
    }
    if (good) {
        sort_names = w.names;
        if (w.count > 1) {
            qsort(w.items, w.count, sizeof(*w.items), by_path);
        }
        sort_names_too(&w);
        uint64_t cost = 0;
        for (size_t i = 0; i < w.count; i++) {
            w.items[i].before = cost;
            cost += w.items[i].length + ITEM_COST;
        }
        struct items_header header = {
            .magic = MAGIC,
            .run = run,
            .count = w.count,
            .name_bytes = w.name_bytes,
            .bytes = w.bytes,
            .files = w.files,
            .cost = cost,
            .shards = shard_count(options, w.count, cost),
            .lease_ns = options->lease_ns,
        };
        header.hash = header_hash(&header);
        good = save(&w, &header, file);
    }
    free(w.items);
    free(w.names);
    free(w.path);
    return good;
}

bool items_open(struct items *items, const char *file)
{
    struct stat st;
    *items = (struct items){0};
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    bool good = fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(struct items_header);
    if (good) {
        items->map_size = (size_t)st.st_size;
        items->map = mmap(NULL, items->map_size, PROT_READ, MAP_SHARED, fd, 0);
        good = items->map != MAP_FAILED;
    }
    close(fd);
    if (!good) {
        items->map = NULL;
        return false;
    }
    const struct items_header *h = items->header = items->map;
    items->list = (const struct item *)(h + 1);
    items->names = (const char *)(items->list + h->count);
    if (h->magic != MAGIC || h->hash != header_hash(h) ||
        items->map_size != sizeof(*h) + h->count * sizeof(struct item) + h->name_bytes) {
        items_close(items);
        return false;
    }
    return true;
}

void items_close(struct items *items)
{
    if (items->map != NULL) {
        munmap(items->map, items->map_size);
    }
    *items = (struct items){0};
}

void items_forget(const struct items *items)
{
    madvise(items->map, items->map_size, MADV_DONTNEED);
}

uint64_t items_cut(const struct items *items, uint64_t from, uint64_t to, uint64_t cost)
{
    assert(from < to);
    uint64_t low = from + 1, high = to;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (items_cost(items, from, middle) >= cost) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

int item_open(const struct items *items, uint64_t index, int root_fd)
{
    const struct item *item = &items->list[index];
    const char *path = item_path(items, index);
    int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    if (item->name == 0) {
        return open(path, flags);
    }
    struct open_how how = {.flags = (unsigned)(flags | O_NOFOLLOW),
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    long fd = syscall(SYS_openat2, root_fd, path + item->name, &how, sizeof(how));
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        fd = openat(root_fd, path + item->name, flags | O_NOFOLLOW);
    }
    return (int)fd;
}
