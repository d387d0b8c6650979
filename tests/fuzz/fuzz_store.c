/*
 * A durable store's files, damaged in any way, and opened: it is refused, or what is found is a state that
 * the store has had. And, where the damage is signed again with good hashes, so that it comes past them to
 * the parsers behind: refused, or a region in which everything fits together. Never a crash, never a hang.
 *
 * The input is a list of edits:  kind, file, and
 *
 *   0  overwrite   offset (2 bytes), length (1), that many bytes
 *   1  flip        offset (2), bit (1)
 *   2  cut off     offset (2)
 *   3  remove
 *   4  copy        offset (2), length (1), from file (1), from offset (2)
 *   5  sign        the hashes of the file, and of what follows in the chain
 *
 * Offsets count from the file's end if their highest bit is set. RF_WRITE_CORPUS=<directory> writes a few
 * small inputs there and ends.
 */
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <blake3.h>

#include "box.h"
#include "fsck.h"
#include "log_read.h"
#include "picture.h"
#include "snapshot.h"
#include "store_file.h"

#define FILES_MAX  16u
#define STATES_MAX 64u
#define RUN        7u
#define LOOK       5000u

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void setUp(void);
void tearDown(void);

/* Unity is in the test support and wants them. */
void setUp(void)
{
}

void tearDown(void)
{
}

struct file {
    char name[64];
    uint8_t *bytes;
    size_t len;
    bool there;
};

static struct {
    char directory[64];
    char region[64];
    rf_tenant tenant;
    struct file files[FILES_MAX]; /* as they are */
    unsigned count;
    struct file edited[FILES_MAX];
    char *states[STATES_MAX]; /* that it has had, as a cold open shows them */
    unsigned state_count;
} lab;

static uint64_t still(void *context)
{
    (void)context;
    return LOOK;
}

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        abort();
    }
}

static rf_options options(bool create)
{
    return (rf_options){.create = create,
                        .max_shards = 64,
                        .max_bytes = 1u << 18,
                        .max_runs = 4,
                        .max_members = 2,
                        .durability = RF_NOWAIT,
                        .segment_bytes = 65536,
                        .manual = true,
                        .clock = still,
                        .region_path = lab.region};
}

/* --- files --- */

static void empty_directory(void)
{
    DIR *dir = opendir(lab.directory);
    struct dirent *e;
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), e->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->name, ((const struct file *)b)->name);
}

static void read_files(void)
{
    DIR *dir = opendir(lab.directory);
    struct dirent *e;
    must(dir != NULL, lab.directory);
    for (unsigned i = 0; i < lab.count; i++) {
        free(lab.files[i].bytes);
    }
    lab.count = 0;
    while ((e = readdir(dir)) != NULL) {
        struct stat st;
        if (e->d_name[0] == '.' || strcmp(e->d_name, "lock") == 0) {
            continue;
        }
        int fd = openat(dirfd(dir), e->d_name, O_RDONLY);
        must(fd >= 0 && fstat(fd, &st) == 0 && lab.count < FILES_MAX, e->d_name);
        struct file *f = &lab.files[lab.count++];
        *f = (struct file){.len = (size_t)st.st_size, .there = true};
        snprintf(f->name, sizeof(f->name), "%.60s", e->d_name);
        f->bytes = malloc(f->len + 1);
        must(read(fd, f->bytes, f->len) == (ssize_t)f->len, e->d_name);
        close(fd);
    }
    closedir(dir);
    qsort(lab.files, lab.count, sizeof(lab.files[0]), by_name);
}

static void write_files(const struct file *files)
{
    int dir = open(lab.directory, O_RDONLY | O_DIRECTORY);
    empty_directory();
    unlink(lab.region);
    close(openat(dir, "lock", O_WRONLY | O_CREAT, 0600));
    for (unsigned i = 0; i < lab.count; i++) {
        if (files[i].there) {
            int fd = openat(dir, files[i].name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
            must(fd >= 0 && write(fd, files[i].bytes, files[i].len) == (ssize_t)files[i].len,
                 "writing");
            close(fd);
        }
    }
    close(dir);
}

/* --- the store that is damaged --- */

static rf_store *enter(bool create)
{
    rf_options o = options(create);
    rf_store *store;
    rf_detail detail;
    rf_status status = rf_open(lab.directory, &o, &store, &detail);
    if (status != RF_OK) {
        fprintf(stderr, "%s %s\n", rf_status_name(status), detail.where);
        abort();
    }
    return store;
}

static char *state_of(rf_store *store)
{
    struct picture p;
    rf_status status = picture_take(&p, store, &lab.tenant, RUN, LOOK, 0, true);
    if (status != RF_OK) {
        fprintf(stderr, "accepted, and can't be looked at: %s\n", rf_status_name(status));
        abort();
    }
    return p.text;
}

/* Everything up to here is on the disk: a state that may be found. */
static void state(rf_store *store)
{
    must(rf_barrier(store, NULL) == RF_OK, "barrier");
    read_files();
    /* A cold open of a copy, where nobody is attached. */
    char directory[64], region[64];
    memcpy(directory, lab.directory, sizeof(directory));
    memcpy(region, lab.region, sizeof(region));
    snprintf(lab.directory, sizeof(lab.directory), "%.50s-copy", directory);
    snprintf(lab.region, sizeof(lab.region), "%.50s-copy", region);
    mkdir(lab.directory, 0700);
    write_files(lab.files);
    rf_store *cold = enter(false);
    must(lab.state_count < STATES_MAX, "too many states");
    lab.states[lab.state_count++] = state_of(cold);
    rf_close(cold);
    empty_directory();
    rmdir(lab.directory);
    unlink(lab.region);
    memcpy(lab.directory, directory, sizeof(directory));
    memcpy(lab.region, region, sizeof(region));
}

#define MUST(call) must((call) == RF_OK, #call)

static void make_history(void)
{
    static uint8_t scratch[RF_GRANT_SCRATCH], token[700];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_shard_input shards[3] = {rf_input_of(1, "a", "h"), rf_input_of(2, "h", "p"),
                                rf_input_of(3, "p", "z")};
    const rf_run_config config = {.lease_duration = 1000000};
    rf_child children[2] = {rf_child_of("h", "k"), rf_child_of("k", "p")};
    uint64_t ids[2];
    rf_cursor at = rf_cursor_at("c"), long_at = {.key = rf_text("d"), .token = {token, 700}};
    rf_store *store = enter(true);
    state(store);
    MUST(rf_create_run_with_shards(store, 1000, &lab.tenant, RUN, &config, shards, 3, 1, NULL));
    state(store);
    MUST(rf_acquire(store, 1001, &lab.tenant, RUN, 1, 9, RF_DETACHED, &grant, NULL));
    state(store);
    MUST(rf_checkpoint(store, 1002, &lab.tenant, &grant.lease, &at, 2, NULL));
    state(store);
    MUST(rf_snapshot(store, NULL));
    state(store);
    MUST(rf_checkpoint(store, 1003, &lab.tenant, &grant.lease, &long_at, 3, NULL));
    state(store);
    MUST(rf_park(store, 1004, &lab.tenant, &grant.lease, RF_PARK_OTHER, 4, NULL));
    state(store);
    MUST(rf_acquire(store, 1005, &lab.tenant, RUN, 2, 9, RF_DETACHED, &grant, NULL));
    state(store);
    MUST(rf_split_replace(store, 1006, &lab.tenant, &grant.lease, children, 2, 5, ids, NULL));
    state(store);
    MUST(rf_snapshot(store, NULL));
    state(store);
    MUST(rf_unpark(store, 1007, &lab.tenant, RUN, 1, 6, NULL));
    state(store);
    MUST(rf_close(store));
    read_files();
}

/* --- edits --- */

static void hash_words(const char *context, const void *a, size_t a_len, const void *b,
                       size_t b_len, uint8_t out[32])
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, context);
    blake3_hasher_update(&hasher, a, a_len);
    blake3_hasher_update(&hasher, b, b_len);
    blake3_hasher_finalize(&hasher, out, 32);
}

/* Every batch of a segment, each following the one before. */
static void sign_segment(struct file *f)
{
    uint8_t previous[RF_LOG_HASH];
    bool follows = false;
    hash_words(RF_SEGMENT_CONTEXT, f->bytes, offsetof(struct rf_segment_header, hash), NULL, 0,
               f->bytes + offsetof(struct rf_segment_header, hash));
    for (size_t at = RF_LOG_BLOCK; at + RF_LOG_BLOCK <= f->len;) {
        struct rf_batch_header h;
        memcpy(&h, f->bytes + at, sizeof(h));
        if (h.magic != RF_BATCH_MAGIC || h.bytes < RF_LOG_BLOCK || h.bytes > f->len - at ||
            h.bytes % RF_LOG_BLOCK != 0 || h.record_bytes > h.bytes - sizeof(h)) {
            at += RF_LOG_BLOCK;
            continue;
        }
        if (follows) {
            memcpy(h.previous, previous, sizeof(previous));
        }
        memset(h.hash, 0, sizeof(h.hash));
        rf_batch_hash(&h, f->bytes + at + sizeof(h), h.hash);
        memcpy(previous, h.hash, sizeof(previous));
        follows = true;
        memcpy(f->bytes + at, &h, sizeof(h));
        at += h.bytes;
    }
}

static void sign(struct file *f)
{
    if (strncmp(f->name, "store", 5) == 0 && f->len == sizeof(struct rf_store_file)) {
        hash_words("ringfence/store-file/v1", f->bytes, offsetof(struct rf_store_file, hash), NULL,
                   0, f->bytes + offsetof(struct rf_store_file, hash));
    } else if (strncmp(f->name, "log.", 4) == 0 && f->len > RF_LOG_BLOCK) {
        sign_segment(f);
    } else if (strncmp(f->name, "snapshot.", 9) == 0 && f->len >= RF_LOG_BLOCK) {
        struct rf_snapshot_header h;
        memcpy(&h, f->bytes, sizeof(h));
        memset(h.hash, 0, sizeof(h.hash));
        hash_words(RF_SNAPSHOT_CONTEXT, f->bytes + RF_LOG_BLOCK, f->len - RF_LOG_BLOCK, &h,
                   sizeof(h), f->bytes + offsetof(struct rf_snapshot_header, hash));
    }
}

struct input {
    const uint8_t *at;
    size_t left;
};

static unsigned take(struct input *in)
{
    if (in->left == 0) {
        return 0;
    }
    in->left--;
    return *in->at++;
}

static size_t take_offset(struct input *in, const struct file *f)
{
    unsigned low = take(in), n = low | take(in) << 8;
    size_t offset = (n & 0x8000u) != 0 ? f->len - (n & 0x7fffu) : n;
    return f->len == 0 ? 0 : offset % f->len;
}

/* Returns whether anything was signed. */
static bool edit(struct input *in)
{
    bool is_signed = false;
    while (in->left != 0) {
        unsigned kind = take(in) % 6;
        struct file *f = &lab.edited[take(in) % lab.count];
        size_t at, len;
        switch (kind) {
        case 0:
            at = take_offset(in, f);
            len = take(in) % 65;
            for (size_t i = 0; i < len && at + i < f->len; i++) {
                f->bytes[at + i] = (uint8_t)take(in);
            }
            break;
        case 1:
            at = take_offset(in, f);
            if (f->len != 0) {
                f->bytes[at] ^= (uint8_t)(1u << take(in) % 8);
            }
            break;
        case 2:
            f->len = take_offset(in, f);
            break;
        case 3:
            f->there = false;
            break;
        case 4: {
            at = take_offset(in, f);
            len = take(in) * 16u;
            const struct file *from = &lab.edited[take(in) % lab.count];
            size_t from_at = take_offset(in, from);
            for (size_t i = 0; i < len && at + i < f->len && from_at + i < from->len; i++) {
                f->bytes[at + i] = from->bytes[from_at + i];
            }
            break;
        }
        default:
            sign(f);
            is_signed = true;
        }
    }
    return is_signed;
}

static void claim_known(rf_store *store)
{
    char *found = state_of(store);
    bool known = false;
    for (unsigned i = 0; i < lab.state_count; i++) {
        known = known || strcmp(found, lab.states[i]) == 0;
    }
    if (!known) {
        fprintf(stderr, "accepted, and never written:\n%s\n", found);
        abort();
    }
    free(found);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    rf_options o = options(false);
    rf_store *store;
    for (unsigned i = 0; i < lab.count; i++) {
        lab.edited[i] = lab.files[i];
        lab.edited[i].bytes = malloc(lab.files[i].len + 1);
        memcpy(lab.edited[i].bytes, lab.files[i].bytes, lab.files[i].len);
    }
    bool is_signed = edit(&in);
    write_files(lab.edited);
    if (rf_open(lab.directory, &o, &store, NULL) == RF_OK) {
        if (!is_signed) {
            claim_known(store);
        }
        const char *why = rf_fsck(store);
        if (why != NULL) {
            fprintf(stderr, "accepted, and does not fit together: %s\n", why);
            abort();
        }
        rf_close(store);
    }
    for (unsigned i = 0; i < lab.count; i++) {
        free(lab.edited[i].bytes);
    }
    return 0;
}

static void clean_up(void)
{
    empty_directory();
    rmdir(lab.directory);
    unlink(lab.region);
}

static void write_corpus(const char *directory)
{
    static const uint8_t inputs[][8] = {
        {1, 0, 0x40, 0, 1}, {1, 0, 0x40, 0, 1, 5, 0}, {1, 0, 0x10, 0x10, 3, 5, 0}, {3, 1},
        {2, 2, 0, 0x20},    {0, 3, 8, 0, 2, 7, 7},    {1, 2, 0x40, 0x10, 0, 5, 2}, {3, 3, 3, 4},
    };
    for (unsigned i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        char name[4096];
        snprintf(name, sizeof(name), "%s/%02u", directory, i);
        FILE *file = fopen(name, "wb");
        must(file != NULL && fwrite(inputs[i], 1, 8, file) == 8 && fclose(file) == 0, name);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const char *corpus = getenv("RF_WRITE_CORPUS");
    if (corpus != NULL) {
        write_corpus(corpus);
        exit(0);
    }
    snprintf(lab.directory, sizeof(lab.directory), "/dev/shm/rf-fuzz-%d", (int)getpid());
    snprintf(lab.region, sizeof(lab.region), "/dev/shm/rf-fuzz-%d.region", (int)getpid());
    mkdir(lab.directory, 0700);
    rf_tenant_from_name("fuzz", &lab.tenant);
    make_history();
    atexit(clean_up);
    return 0;
}
