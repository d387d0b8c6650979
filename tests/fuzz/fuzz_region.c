/*
 * A region whose header was damaged in any way, and attached. Never a crash, never a hang, and
 *
 *   if a byte of what never changes in the header (all up to `epoch`) is another, or the file is shorter than the
 *   header says, it is not attached;
 *   with a sum that was made again (see `sign`), it may be attached only if the sections are inside the file,
 *   apart from each other, and of the sizes that this library has;
 *   if nothing is damaged, it is attached and shows what it showed before;
 *   a refusal leaves the file as it was.
 *
 * Words that change while processes work (behind `epoch`) are damaged too, and then the region is only looked at:
 * who may write it is trusted, and what an operation makes of them is not promised.
 *
 * The input: a byte of flags (1: sign, 2: attach to work, not to look, 4: the store with a log), then edits: offset
 * in the header (2 bytes; 0xffff: the file's length), kind (1: the lower half is the length, at most 8; the upper
 * half 0: overwrite, 1: add, 2: xor), and that many bytes. RF_WRITE_CORPUS=<directory> writes a few small inputs
 * there and ends.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "box.h"
#include "layout.h"
#include "picture.h"

#define RUN    7u
#define LOOK   5000u
#define PIECES 64u

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

struct lab {
    char directory[64];
    char region[64];
    int fd;
    size_t len;
    uint8_t *good;                  /* the region as it was left */
    uint8_t *file;                  /* the file itself, mapped */
    off_t from[PIECES], to[PIECES]; /* what is not a hole */
    unsigned pieces;
    char *picture; /* what it shows */
};
static struct lab both[2]; /* without and with a log */
static rf_tenant tenant;

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        abort();
    }
}

static uint64_t still(void *context)
{
    (void)context;
    return LOOK;
}

static rf_options options(const struct lab *lab, bool create, bool look)
{
    return (rf_options){.create = create,
                        .read_only = look,
                        .max_shards = 64,
                        .max_bytes = 1u << 17,
                        .max_runs = 2,
                        .max_members = 1,
                        .durability = lab == &both[1] ? RF_NOWAIT : RF_VOLATILE,
                        .segment_bytes = 65536,
                        .manual = true,
                        .clock = still,
                        .region_path = lab->region};
}

/* --- the regions that are damaged --- */

/* Everything that a handle shows that only looks. */
static char *picture_of(rf_store *store)
{
    struct picture p;
    rf_status status = picture_peek(&p, store, &tenant, RUN, LOOK, 0);
    if (status != RF_OK) {
        picture_free(&p);
        return NULL;
    }
    return p.text;
}

static void make_lab(struct lab *lab, const char *kind)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_shard_input shards[3] = {rf_input_of(1, "a", "h"), rf_input_of(2, "h", "p"),
                                rf_input_of(3, "p", "z")};
    const rf_run_config config = {.lease_duration = 1000000};
    rf_cursor at = rf_cursor_at("c");
    struct stat st;
    rf_store *store;
    rf_detail detail = {0};
    snprintf(lab->directory, sizeof(lab->directory), "/dev/shm/rf-fuzz-%s-%d", kind, (int)getpid());
    snprintf(lab->region, sizeof(lab->region), "/dev/shm/rf-fuzz-%s-%d.region", kind,
             (int)getpid());
    rf_options o = options(lab, true, false);
    must(mkdir(lab->directory, 0700) == 0, lab->directory);
    must(rf_open(lab->directory, &o, &store, &detail) == RF_OK, detail.where);
    must(rf_create_run_with_shards(store, 1000, &tenant, RUN, &config, shards, 3, 1, NULL) == RF_OK,
         "a run");
    must(rf_acquire(store, 1001, &tenant, RUN, 1, 9, RF_DETACHED, &grant, NULL) == RF_OK, "lease");
    must(rf_checkpoint(store, 1002, &tenant, &grant.lease, &at, 2, NULL) == RF_OK, "checkpoint");
    rf_close(store);

    lab->fd = open(lab->region, O_RDWR);
    must(lab->fd >= 0 && fstat(lab->fd, &st) == 0, lab->region);
    lab->len = (size_t)st.st_size;
    lab->good = mmap(NULL, lab->len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    must(lab->good != MAP_FAILED, "memory");
    for (off_t from = 0, to = 0; (from = lseek(lab->fd, to, SEEK_DATA)) >= 0;) {
        to = lseek(lab->fd, from, SEEK_HOLE);
        must(lab->pieces < PIECES, "too many pieces");
        lab->from[lab->pieces] = from;
        lab->to[lab->pieces++] = to;
        must(pread(lab->fd, lab->good + from, (size_t)(to - from), from) == to - from, "reading");
    }
    lab->file = mmap(NULL, lab->len, PROT_READ | PROT_WRITE, MAP_SHARED, lab->fd, 0);
    must(lab->file != MAP_FAILED, "mapping");
    o = options(lab, false, true);
    must(rf_open(lab->directory, &o, &store, &detail) == RF_OK, detail.where);
    lab->picture = picture_of(store);
    must(lab->picture != NULL, "a picture");
    rf_close(store);
}

/* As it was: the header, or, after work was done in it, all of it. */
static void restore(struct lab *lab, bool all)
{
    must(ftruncate(lab->fd, (off_t)lab->len) == 0, "ftruncate");
    if (!all) {
        memcpy(lab->file, lab->good, sizeof(struct rf_header));
        return;
    }
    for (off_t from = 0, to = 0; (from = lseek(lab->fd, to, SEEK_DATA)) >= 0;) {
        to = lseek(lab->fd, from, SEEK_HOLE);
        memcpy(lab->file + from, lab->good + from, (size_t)(to - from));
    }
    for (unsigned i = 0; i < lab->pieces; i++) {
        memcpy(lab->file + lab->from[i], lab->good + lab->from[i],
               (size_t)(lab->to[i] - lab->from[i]));
    }
}

/* --- edits --- */

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

static void edit(struct lab *lab, struct input *in, off_t *length)
{
    while (in->left != 0) {
        unsigned low = take(in), at = low | take(in) << 8, kind = take(in);
        unsigned len = kind % 16 > 8 ? 8 : kind % 16;
        uint64_t value = 0, old = 0;
        for (unsigned i = 0; i < len; i++) {
            value |= (uint64_t)take(in) << (8 * i);
        }
        if (at == 0xffff) {
            *length = (off_t)(value % (2 * lab->len));
            continue;
        }
        at %= (unsigned)sizeof(struct rf_header) - 8;
        memcpy(&old, lab->file + at, len);
        value = kind / 16 % 3 == 0 ? value : kind / 16 % 3 == 1 ? old + value : old ^ value;
        memcpy(lab->file + at, &value, len);
    }
}

/* --- what may be accepted --- */

static void accuse(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Worked out from the layout alone, without what the library knows of how a region is made. */
static void claim_sections_fit(const struct lab *lab)
{
    const struct rf_header *h = (const void *)lab->file;
    const struct {
        const struct rf_section *section;
        size_t size; /* of an entry; 0: more than nothing */
    } all[] = {
        {&h->roster, sizeof(struct rf_member)},
        {&h->slots, 0},
        {&h->stripes, RF_LINE},
        {&h->run_index, sizeof(struct rf_bucket)},
        {&h->runs, sizeof(struct rf_runrec)},
        {&h->cooldowns, sizeof(struct rf_cooldown)},
        {&h->leaf_tags, 8},
        {&h->extent_tags, 8},
        {&h->slab_classes, 4},
        {&h->growth, 8},
        {&h->index_growth, 8},
        {&h->leaves, sizeof(struct rf_leaf)},
        {&h->shard_index, sizeof(struct rf_bucket)},
        {&h->slab_tags, 8},
        {&h->extents, sizeof(struct rf_extent)},
        {&h->lanes, 0},
        {&h->slab, RF_SLAB_PAGE},
    };
    const size_t n = sizeof(all) / sizeof(all[0]);
    for (size_t i = 0; i < n; i++) {
        const struct rf_section *s = all[i].section;
        if (all[i].size != 0 ? s->stride != all[i].size : s->stride < RF_LINE) {
            accuse("attached, with entries of another size");
        }
        if (s->offset < sizeof(*h) || s->offset > lab->len ||
            s->count > (lab->len - s->offset) / s->stride) {
            accuse("attached, with a section outside of the file");
        }
        for (size_t k = 0; k < i; k++) {
            const struct rf_section *o = all[k].section;
            if (s->count != 0 && o->count != 0 && s->offset < o->offset + o->count * o->stride &&
                o->offset < s->offset + s->count * s->stride) {
                accuse("attached, with a section inside another");
            }
        }
    }
    if (h->slots.stride < sizeof(struct rf_slot) + (h->extents.count + 63) / 64 * 8 ||
        h->roster.count != h->slot_count || h->slots.count != h->slot_count ||
        h->lanes.count != h->slot_count || h->lanes.stride != h->lane_units * RF_LINE ||
        h->slab.count != h->slab_classes.count) {
        accuse("attached, with tables that do not belong together");
    }
}

/* Whatever comes of it, it comes to an end. */
static void work(rf_store *store)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_cursor at = rf_cursor_at("j");
    rf_status status = rf_acquire(store, LOOK, &tenant, RUN, 2, 9, RF_DETACHED, &grant, NULL);
    if (status == RF_OK) {
        status = rf_checkpoint(store, LOOK, &tenant, &grant.lease, &at, 77, NULL);
    }
    if (status == RF_OK) {
        rf_release(store, LOOK, &tenant, &grant.lease, &at, 78, NULL);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    unsigned flags = take(&in);
    struct lab *lab = &both[flags / 4 % 2];
    struct rf_header *h = (struct rf_header *)(void *)lab->file;
    const size_t lasting = offsetof(struct rf_header, epoch);
    off_t length = (off_t)lab->len;
    edit(lab, &in, &length);
    if ((flags & 1u) != 0) {
        h->sum = rf_header_sum(h);
    }
    bool same = memcmp(lab->file, lab->good, lasting) == 0;
    bool words = memcmp(lab->file + lasting, lab->good + lasting, sizeof(*h) - lasting) == 0;
    bool whole = length >= (off_t)lab->len && h->region_bytes <= (uint64_t)length;
    bool look = (flags & 2u) == 0 || lab == &both[1] || !words;
    static uint8_t before[sizeof(struct rf_header)];
    memcpy(before, lab->file, sizeof(before));
    if (length != (off_t)lab->len) {
        must(ftruncate(lab->fd, length) == 0, "ftruncate");
    }

    rf_store *store = NULL;
    const rf_options o = options(lab, false, look);
    rf_status status = rf_open(lab->directory, &o, &store, NULL);
    if (status == RF_OK) {
        if (!whole || (!same && (flags & 1u) == 0)) {
            accuse("attached, and it is damaged");
        }
        claim_sections_fit(lab);
        char *picture = picture_of(store);
        if (same && words && (picture == NULL || strcmp(picture, lab->picture) != 0)) {
            fprintf(stderr, "%s\ninstead of\n%s\n", picture == NULL ? "nothing" : picture,
                    lab->picture);
            accuse("attached, and it shows something else");
        }
        free(picture);
        rf_inspection seen;
        rf_inspect(store, &seen, NULL);
        if (!look) {
            work(store);
        }
        rf_close(store);
    } else {
        if (same && words && whole) {
            accuse("refused, though nothing is wrong with it");
        }
        if (length >= (off_t)sizeof(before) && memcmp(before, lab->file, sizeof(before)) != 0) {
            accuse("refused, and changed");
        }
    }
    restore(lab, !look || length < (off_t)lab->len);
    return 0;
}

static void clean_up(void)
{
    for (unsigned i = 0; i < 2; i++) {
        char command[160];
        unlink(both[i].region);
        snprintf(command, sizeof(command), "rm -rf %s", both[i].directory);
        if (both[i].directory[0] != 0 && system(command) != 0) {
            perror(both[i].directory);
        }
    }
}

#define AT(field)                                                                                  \
    (uint8_t)(offsetof(struct rf_header, field) & 0xff),                                           \
        (uint8_t)(offsetof(struct rf_header, field) >> 8)

static void write_corpus(const char *directory)
{
    static const uint8_t inputs[][16] = {
        {0},
        {2},
        {4},
        {0, AT(magic), 0x21, 1},
        {0, AT(version), 0x04, 0, 0, 0, 0},
        {1, AT(time_base), 0x18, 1},
        {3, AT(hash_seed), 0x28, 1},
        {3, AT(max_shards), 0x11, 1},
        {3, AT(claim_cooldown), 0x18, 1},
        {1, AT(extents.offset), 0x13, 0, 0, 1},
        {1, AT(runs.count), 0x11, 1},
        {5, AT(lane_units), 0x12, 0, 1},
        {4, AT(durable), 0x18, 1},
        {4, AT(epoch), 0x18, 0xff, 0xff},
        {4, AT(log), 0x28, 1},
        {0, AT(runs_used), 0x14, 1},
        {0, AT(members_used), 0x14, 9},
        {4, AT(condemned), 0x14, 6},
        {0, 0xff, 0xff, 3, 0, 0x10, 0},
    };
    for (unsigned i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
        char name[4096];
        snprintf(name, sizeof(name), "%s/%02u", directory, i);
        FILE *file = fopen(name, "wb");
        must(file != NULL && fwrite(inputs[i], 1, 12, file) == 12 && fclose(file) == 0, name);
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
    rf_tenant_from_name("fuzz", &tenant);
    atexit(clean_up);
    make_lab(&both[0], "plain");
    make_lab(&both[1], "logged");
    return 0;
}
