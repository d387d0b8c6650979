#include "state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "worker.h"

#define LOCK_PATIENCE_MS 2000u

void farm_fail(const char *what, rf_status status, const rf_detail *detail)
{
    char why[512];
    rf_explain(status, detail, why, sizeof(why));
    fprintf(stderr, "rf-scan: %s: %s\n", what, why);
    exit(2);
}

static void __attribute__((noreturn)) fail(const char *what)
{
    fprintf(stderr, "rf-scan: %s: %s\n", what, strerror(errno));
    exit(2);
}

static char *join(const char *a, const char *b)
{
    char *out = must_alloc(strlen(a) + strlen(b) + 2);
    stpcpy(stpcpy(stpcpy(out, a), "/"), b);
    return out;
}

/* What was made, renamed and removed in a directory is so after a power cut too. */
static void sync_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) != 0) {
        fail(path);
    }
    close(fd);
}

static bool make_dir(const char *path, bool durable)
{
    if (mkdir(path, 0700) != 0) {
        return errno == EEXIST;
    }
    if (durable) {
        char *parent = must_copy(path), *slash = strrchr(parent, '/');
        if (slash == NULL) {
            strcpy(parent, ".");
        } else {
            slash[slash == parent] = '\0';
        }
        sync_dir(parent);
        free(parent);
    }
    return true;
}

static void make_dirs(const char *path, bool durable)
{
    char *copy = must_copy(path);
    for (char *slash = strchr(copy + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        make_dir(copy, durable); /* one that can't be made and is not there is told below */
        *slash = '/';
    }
    if (!make_dir(copy, durable)) {
        fail(path);
    }
    free(copy);
}

/* --- which scan it is --- */

#define IDENTITY_LEN 17 /* 16 digits and a new line */

static bool is_identity(int dir)
{
    char text[IDENTITY_LEN + 1];
    int fd = openat(dir, "identity", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    bool good = fd >= 0 && read(fd, text, sizeof(text)) == IDENTITY_LEN && text[16] == '\n';
    for (unsigned i = 0; good && i < 16; i++) {
        good = strchr("0123456789abcdef", text[i]) != NULL && text[i] != '\0';
    }
    if (fd >= 0) {
        close(fd);
    }
    return good;
}

struct identity {
    uint8_t *bytes;
    size_t len;
};

static void put(struct identity *id, const void *bytes, size_t len)
{
    id->bytes = realloc(id->bytes, id->len + len + 8);
    if (id->bytes == NULL) {
        fail("rf-scan");
    }
    memcpy(id->bytes + id->len, &(uint64_t){len}, 8);
    memcpy(id->bytes + id->len + 8, bytes, len);
    id->len += len + 8;
}

/* All that decides what will be found, and nothing that only decides how; and the form of what is kept. */
static uint64_t identify(const struct farm *farm)
{
    const struct options *o = farm->options;
    struct identity id = {0};
    const uint8_t flags[] = {o->gitignore, o->no_ignore, o->binary, o->uncoordinated, o->durable};
    put(&id, &farm->rules.hash, sizeof(farm->rules.hash));
    put(&id, &farm->allow_hash, sizeof(farm->allow_hash));
    put(&id, flags, sizeof(flags));
    put(&id, &o->segment, sizeof(o->segment));
    for (size_t i = 0; i < o->ignore_count; i++) {
        put(&id, o->ignores[i], strlen(o->ignores[i]));
    }
    put(&id, "paths", 5);
    for (size_t i = 0; i < o->path_count; i++) {
        char *real = realpath(o->paths[i], NULL);
        if (real == NULL) {
            fail(o->paths[i]);
        }
        put(&id, o->paths[i], strlen(o->paths[i])); /* as it will be shown */
        put(&id, real, strlen(real));
        free(real);
    }
    uint64_t hash = rf_hash64("rf-scan/identity/v2", (rf_bytes){id.bytes, id.len});
    free(id.bytes);
    return hash;
}

static char *state_path(const struct options *o, uint64_t identity)
{
    char name[64], *base, *path;
    if (o->state != NULL) {
        return must_copy(o->state);
    }
    const char *home = getenv("HOME"), *xdg = getenv("XDG_STATE_HOME");
    if (xdg != NULL && xdg[0] == '/') {
        base = must_copy(xdg);
    } else if (home != NULL && home[0] == '/') {
        base = join(home, ".local/state");
    } else {
        fputs("rf-scan: there is no HOME to keep the scan in; say --state DIR\n", stderr);
        exit(2);
    }
    snprintf(name, sizeof(name), "rf-scan/%016llx", (unsigned long long)identity);
    path = join(base, name);
    free(base);
    return path;
}

/* Finished scans remove what is in their directory, so it has to be one of theirs: empty, or with an
 * identity in it, which is there before all else. One that was killed before that leaves an empty
 * lock, and a part of an identity under another name. */
static bool is_of_scans(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    bool strange = fd >= 0 && dir == NULL, named = false;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct stat st;
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
            (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)) {
            continue;
        }
        named = named || (strcmp(name, "identity") == 0 && is_identity(fd));
        bool lock = strcmp(name, "lock") == 0 && st.st_size == 0;
        bool begun = strcmp(name, "identity.new") == 0 && st.st_size <= IDENTITY_LEN;
        strange = strange || !(S_ISREG(st.st_mode) && (lock || begun));
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return named || !strange;
}

/* --- one supervisor at a time --- */

/* Whoever finishes a scan removes its directory, lock and all, while others may wait for the lock: a
 * lock that no longer has its name is nobody's. */
static bool take_lock_once(struct farm *farm, const char *path, unsigned *waited_ms)
{
    struct stat held, named;
    make_dirs(farm->state, farm->options->durable);
    if (!is_of_scans(farm->state)) {
        fprintf(stderr,
                "rf-scan: %s: holds other things than a scan; say another --state, or an empty "
                "directory\n",
                farm->state);
        exit(2);
    }
    farm->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (farm->lock < 0) {
        if (errno == ENOENT) {
            return false;
        }
        fail(path);
    }
    /* Children of one that was killed may hold it for the moment that it takes them to die. */
    for (; flock(farm->lock, LOCK_EX | LOCK_NB) != 0; *waited_ms += 10) {
        if (errno != EWOULDBLOCK || *waited_ms >= LOCK_PATIENCE_MS) {
            fprintf(stderr, "rf-scan: this scan is under way already, in %s\n", farm->state);
            exit(2);
        }
        usleep(10000);
    }
    if (fstat(farm->lock, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino) {
        return true;
    }
    close(farm->lock);
    return false;
}

static void take_lock(struct farm *farm)
{
    char *path = join(farm->state, "lock");
    unsigned waited_ms = 0;
    while (!take_lock_once(farm, path, &waited_ms)) {
        waited_ms += 1;
    }
    free(path);
}

/* --- removing --- */

static void remove_files(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
}

/* What earlier runs left, and with `all` what this one did. */
static void remove_found(const struct farm *farm, const char *keep)
{
    DIR *dir = opendir(farm->state);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, "found-", 6) == 0 &&
            (keep == NULL || strcmp(entry->d_name, keep) != 0)) {
            remove_files(dirfd(dir), entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Without them there is no scan to go on with, whatever else is there: so they go first. */
static void remove_items(const struct farm *farm)
{
    char *file = join(farm->state, "items");
    bool there = unlink(file) == 0;
    if (!there && errno != ENOENT) {
        fail(file);
    }
    if (there) {
        sync_dir(farm->state); /* or they may be back after a power cut, with half of a store */
    }
    free(file);
}

/* False if somebody looks into it, with the ringfence command perhaps. */
static bool destroy_store(const struct farm *farm)
{
    rf_status status;
    /* Workers that were killed a moment ago may still be on their way out. */
    for (unsigned ms = 0;
         (status = rf_destroy(farm->store, NULL)) == RF_BUSY && ms < LOCK_PATIENCE_MS; ms += 10) {
        usleep(10000);
    }
    return status != RF_BUSY;
}

void state_remove(struct farm *farm)
{
    static const char *const files[] = {"items.new", "identity.new", "identity", "lock"};
    remove_items(farm);
    remove_found(farm, NULL);
    if (!destroy_store(farm)) {
        return; /* the same command does, as long as the identity says whose it is */
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        char *path = join(farm->state, files[i]);
        unlink(path);
        free(path);
    }
    rmdir(farm->state);
}

/* --- the run --- */

static void register_run(struct farm *farm, rf_store *store)
{
    const struct items *items = &farm->items;
    const struct items_header *h = items->header;
    struct rf_shard_input *shards = must_alloc((size_t)h->shards * sizeof(*shards));
    uint8_t(*keys)[8] = must_alloc((size_t)(h->shards + 1) * sizeof(*keys));
    uint32_t count = 0;
    uint64_t from = 0;
    while (from < h->count) {
        uint64_t left = h->shards - count;
        uint64_t to =
            left <= 1 ? h->count
                      : items_cut(items, from, h->count, items_cost(items, from, h->count) / left);
        key_of(from, keys[count]);
        key_of(to, keys[count + 1]);
        shards[count] = (rf_shard_input){
            .shard = count + 1, .spec = {.start = {keys[count], 8}, .end = {keys[count + 1], 8}}};
        count++;
        from = to;
    }
    const rf_run_config config = {.lease_duration = h->lease_ns,
                                  .has_max_retries = true,
                                  .max_retries = farm->options->retries};
    rf_result result = {0};
    rf_status status = rf_create_run_with_shards(store, rf_now(store), &farm->tenant, h->run,
                                                 &config, shards, count, h->run, &result);
    if (status != RF_OK) {
        farm_fail("registering the scan", status, &result.detail);
    }
    free(shards);
    free(keys);
}

struct unparking {
    struct farm *farm;
    rf_store *store;
    uint64_t *shards;
    size_t count;
};

static bool note_parked(void *context, const rf_shard_info *shard)
{
    struct unparking *u = context;
    u->shards = must_grow(u->shards, u->count + 1, sizeof(*u->shards));
    u->shards[u->count++] = shard->shard;
    return true;
}

/* What was set aside is tried again when the user asks again. */
static void unpark_all(struct farm *farm, rf_store *store)
{
    struct unparking u = {.farm = farm, .store = store};
    uint64_t run = farm->items.header->run;
    rf_list_shards(store, rf_now(store), &farm->tenant, run, RF_LIST_PARKED, note_parked, &u, NULL);
    for (size_t i = 0; i < u.count; i++) {
        rf_unpark(store, rf_now(store), &farm->tenant, run, u.shards[i], rf_new_op(store), NULL);
    }
    free(u.shards);
}

static void open_found(struct farm *farm)
{
    char name[32];
    snprintf(name, sizeof(name), "found-%016llx", (unsigned long long)farm->items.header->run);
    char *path = join(farm->state, name);
    make_dirs(path, farm->options->durable);
    farm->found = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (farm->found < 0) {
        fail(path);
    }
    remove_found(farm, name);
    free(path);
}

static rf_store *open_store(struct farm *farm)
{
    rf_store *store;
    rf_detail detail = {0};
    const rf_options options = {.create = true,
                                .durability = farm->options->durable ? RF_NOWAIT : RF_VOLATILE,
                                .max_shards = 200000,
                                .max_bytes = 256u << 20,
                                .max_runs = 16,
                                .max_members = 2 * WORKERS_MAX,
                                .segment_bytes = 4u << 20};
    rf_status status = rf_open(farm->store, &options, &store, &detail);
    if (status != RF_OK) {
        char why[512];
        rf_explain(status, &detail, why, sizeof(why));
        fprintf(stderr, "rf-scan: %s: %s; --fresh starts over\n", farm->store, why);
        exit(2);
    }
    return store;
}

static void make_items(struct farm *farm, const char *file)
{
    struct stat st;
    uint64_t run = 0;
    if (stat(farm->state, &st) != 0 || getrandom(&run, sizeof(run), 0) != (ssize_t)sizeof(run)) {
        fail(farm->state);
    }
    run = (run >> 1) | 1;
    if (!items_make(farm->options, file, run, st.st_dev, st.st_ino) ||
        !items_open(&farm->items, file)) {
        exit(2);
    }
}

/* Or they would take a report for one of today's tree. */
static void say_resumed(const struct farm *farm, const char *items)
{
    struct stat st;
    char when[32];
    if (farm->options->quiet || stat(items, &st) != 0) {
        return;
    }
    strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", localtime(&st.st_mtime));
    fprintf(stderr,
            "rf-scan: going on with the scan that was begun at %s, with the files of then; "
            "--fresh starts over\n",
            when);
}

/* --- beginning and going on --- */

static void identity_text(char text[IDENTITY_LEN + 1], uint64_t identity)
{
    snprintf(text, IDENTITY_LEN + 1, "%016llx\n", (unsigned long long)identity);
}

/* A --state of another scan must not be taken for this one. */
static bool same_identity(const struct farm *farm, uint64_t identity)
{
    char *path = join(farm->state, "identity");
    char text[IDENTITY_LEN + 1] = "", want[IDENTITY_LEN + 1];
    identity_text(want, identity);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool same = fd >= 0 && read(fd, text, sizeof(text)) == IDENTITY_LEN &&
                memcmp(text, want, IDENTITY_LEN) == 0;
    if (fd >= 0) {
        close(fd);
    }
    free(path);
    return same;
}

/* Whole or not at all, whatever happens: what is beside it would be taken for somebody else's. */
static void write_identity(const struct farm *farm, uint64_t identity)
{
    char *path = join(farm->state, "identity"), *temporary = join(farm->state, "identity.new");
    char text[IDENTITY_LEN + 1];
    identity_text(text, identity);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || write(fd, text, IDENTITY_LEN) != IDENTITY_LEN || fsync(fd) != 0 ||
        close(fd) != 0 || rename(temporary, path) != 0) {
        fail(path);
    }
    sync_dir(farm->state);
    free(path);
    free(temporary);
}

/* Whoever is killed in here leaves no items, and then the next one begins in here too; or items of a
 * run that is not in the store, which is the same. */
static void begin(struct farm *farm, const char *items, uint64_t identity)
{
    remove_items(farm);
    write_identity(farm, identity);
    destroy_store(farm);
    make_items(farm, items);
    open_found(farm);
    if (farm->items.header->count > 0 && !farm->options->uncoordinated) {
        rf_store *store = open_store(farm);
        register_run(farm, store);
        rf_close(store);
    }
}

/* False if there is no scan that was begun: no items, or a store that does not know their run, such
 * as after a reboot. The items are of no use then: the files may be others by now. */
static bool go_on(struct farm *farm, const char *items)
{
    rf_run_info run;
    if (!items_open(&farm->items, items)) {
        return false;
    }
    rf_store *store = open_store(farm);
    rf_status status = rf_get_run(store, &farm->tenant, farm->items.header->run, &run, NULL);
    bool begun = status == RF_OK && run.status != RF_RUN_INITIALIZING;
    if (status != RF_OK && status != RF_RUN_NOT_FOUND) {
        farm_fail("looking for the scan", status, NULL);
    }
    if (begun && run.status == RF_RUN_ACTIVE) {
        unpark_all(farm, store);
    }
    rf_close(store);
    if (begun) {
        open_found(farm);
        say_resumed(farm, items);
    } else {
        items_close(&farm->items);
    }
    return begun;
}

void state_open(struct farm *farm, bool *resumed)
{
    uint64_t identity = identify(farm);
    farm->state = state_path(farm->options, identity);
    take_lock(farm);
    farm->store = join(farm->state, "store");
    char *items = join(farm->state, "items");
    *resumed = !farm->options->fresh && !farm->options->uncoordinated &&
               same_identity(farm, identity) && go_on(farm, items);
    if (!*resumed) {
        begin(farm, items, identity);
    }
    free(items);
}
