/*
 * From the trace to what may be found after a cut.
 *
 * The model is the directory as it is durable (files with their bytes, names), and on top of it what is
 * not: writes of each file, and changes of names. It is played forward event by event. An event that
 * makes something durable takes it from the list of what is not into what is.
 *
 * Names are looked up in the living directory, which has every change that was seen to be done. A
 * process may be killed between a change and the word that it was done; the change is then possible
 * and not known, until somebody is seen to use the name.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unity.h>

#include "prng.h"
#include "simdisk_trace.h"

#define SECTOR         RF_SIMDISK_SECTOR
#define PIECE          4096u
#define NEVER          UINT32_MAX
#define CHANGES_MAX    10u /* changes of names that are combined; more are only sampled */
#define CANDIDATES_MAX 32u
#define TOO_MANY       UINT64_MAX

/* --- the model --- */

struct write {
    uint64_t id;
    uint32_t begun;
    uint32_t ended; /* NEVER: not known to have */
    int error;
    uint64_t offset;
    uint64_t len;
    const uint8_t *bytes; /* NULL: zeros */
    uint8_t *gone;        /* by sector: overwritten durably since; NULL: nowhere */
};

struct file {
    uint8_t *bytes; /* durable */
    uint64_t size;
    uint64_t room;
    struct write *writes; /* that are not durable, as they were begun */
    size_t count;
};

struct name {
    char text[RF_SIMDISK_NAME_MAX];
    size_t file;
};
struct names {
    struct name *at;
    size_t count;
};

struct change {
    uint32_t kind;
    uint32_t thread;
    uint32_t done; /* NEVER: not known to be */
    bool replace;
    char name[RF_SIMDISK_NAME_MAX];
    char name2[RF_SIMDISK_NAME_MAX];
    size_t file;
};

#define NO_FILE SIZE_MAX

static struct model {
    uint64_t generation;
    uint32_t at; /* events played */
    struct file *files;
    size_t files_count;
    struct names durable;
    struct names living;
    struct change *changes; /* of names, that are not durable */
    size_t changes_count;
} model;

static void *grown(void *at, size_t count, size_t each)
{
    /* By powers of two: only then it may have to move. */
    if (count == 0 || (count & (count - 1)) == 0) {
        at = realloc(at, (count == 0 ? 1 : 2 * count) * each);
        TEST_ASSERT_NOT_NULL(at);
    }
    return at;
}

static size_t find_name(const struct names *names, const char *text)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->at[i].text, text) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static void drop_name(struct names *names, const char *text)
{
    size_t i = find_name(names, text);
    if (i != SIZE_MAX) {
        names->at[i] = names->at[--names->count];
    }
}

static void set_name(struct names *names, const char *text, size_t file)
{
    drop_name(names, text);
    if (file == NO_FILE) {
        return;
    }
    names->at = grown(names->at, names->count, sizeof(*names->at));
    struct name *name = &names->at[names->count++];
    memset(name, 0, sizeof(*name));
    snprintf(name->text, sizeof(name->text), "%s", text);
    name->file = file;
}

static size_t new_file(void)
{
    model.files = grown(model.files, model.files_count, sizeof(*model.files));
    model.files[model.files_count] = (struct file){0};
    return model.files_count++;
}

static void make_durable(struct file *file, uint64_t offset, const uint8_t *bytes, uint64_t len)
{
    uint64_t end = offset + len;
    if (len == 0) {
        return;
    }
    if (end > file->room) {
        file->room = end + end / 2;
        file->bytes = realloc(file->bytes, file->room);
        TEST_ASSERT_NOT_NULL(file->bytes);
    }
    if (end > file->size) {
        memset(file->bytes + file->size, 0, end - file->size);
        file->size = end;
    }
    if (bytes == NULL) {
        memset(file->bytes + offset, 0, len);
    } else {
        memcpy(file->bytes + offset, bytes, len);
    }
}

static void forget_model(void)
{
    for (size_t f = 0; f < model.files_count; f++) {
        for (size_t w = 0; w < model.files[f].count; w++) {
            free(model.files[f].writes[w].gone);
        }
        free(model.files[f].writes);
        free(model.files[f].bytes);
    }
    free(model.files);
    free(model.durable.at);
    free(model.living.at);
    free(model.changes);
    model = (struct model){0};
}

static void begin_model(void)
{
    forget_model();
    model.generation = rf_simdisk_generation();
    for (const struct rf_simdisk_file *f = rf_simdisk_first_files(); f != NULL; f = f->next) {
        size_t file = new_file();
        make_durable(&model.files[file], 0, f->bytes, f->size);
        set_name(&model.durable, f->name, file);
        set_name(&model.living, f->name, file);
    }
}

/* --- names --- */

static void apply_change(struct names *names, const struct change *change)
{
    switch (change->kind) {
    case RF_DISK_CREATE:
        set_name(names, change->name, change->file);
        break;
    case RF_DISK_RENAME:
        /* One that is only possible, and does not replace, did not happen if its name was taken. */
        if (change->done == NEVER && !change->replace &&
            find_name(names, change->name2) != SIZE_MAX) {
            break;
        }
        drop_name(names, change->name);
        set_name(names, change->name2, change->file);
        break;
    default:
        drop_name(names, change->name);
        break;
    }
}

static void drop_change(size_t i)
{
    model.changes_count--;
    memmove(&model.changes[i], &model.changes[i + 1],
            (model.changes_count - i) * sizeof(*model.changes));
}

static void settle_change(size_t i, uint32_t at)
{
    struct change change = model.changes[i];
    change.done = at;
    apply_change(&model.living, &change);
    /* Those that are done are in the order in which they were; what is only possible comes after. */
    drop_change(i);
    size_t place = 0;
    while (place < model.changes_count && model.changes[place].done != NEVER) {
        place++;
    }
    memmove(&model.changes[place + 1], &model.changes[place],
            (model.changes_count - place) * sizeof(*model.changes));
    model.changes[place] = change;
    model.changes_count++;
}

/* What its thread will say of a change, some time after this event; EAGAIN: nothing. */
static int will_be_told(const struct change *change, uint32_t at)
{
    for (uint32_t i = at; i < rf_simdisk_cuts(); i++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e != NULL && e->kind == change->kind && e->thread == change->thread && e->done) {
            return e->error;
        }
    }
    return EAGAIN;
}

/* The file of a name that somebody is seen to use at this event. */
static size_t used_name(const char *text, uint32_t at)
{
    size_t i = find_name(&model.living, text);
    if (i != SIZE_MAX) {
        return model.living.at[i].file;
    }
    /* Somebody made it and has not said so yet: whoever will, if several are about to. */
    size_t maker = SIZE_MAX, makers = 0;
    for (size_t c = 0; c < model.changes_count; c++) {
        const struct change *change = &model.changes[c];
        const char *makes = change->kind == RF_DISK_CREATE   ? change->name
                            : change->kind == RF_DISK_RENAME ? change->name2
                                                             : "";
        if (change->done == NEVER && strcmp(makes, text) == 0 &&
            (makers++ == 0 || will_be_told(change, at) == 0)) {
            maker = c;
        }
    }
    if (maker == SIZE_MAX) {
        return NO_FILE;
    }
    size_t file = model.changes[maker].file;
    settle_change(maker, at);
    return file;
}

static void begin_change(const struct rf_simdisk_entry *e, uint32_t at)
{
    struct change change = {.kind = e->kind,
                            .thread = e->thread,
                            .done = NEVER,
                            .replace = e->replace,
                            .file = NO_FILE};
    memcpy(change.name, e->name, sizeof(change.name));
    memcpy(change.name2, e->name2, sizeof(change.name2));
    if (e->kind == RF_DISK_CREATE) {
        change.file = new_file();
    } else {
        change.file = used_name(e->name, at);
        TEST_ASSERT_TRUE_MESSAGE(e->kind == RF_DISK_REMOVE || change.file != NO_FILE,
                                 rf_simdisk_words(at));
    }
    model.changes = grown(model.changes, model.changes_count, sizeof(*model.changes));
    model.changes[model.changes_count++] = change;
}

/* Whoever removes a name has seen that nobody moved it away. */
static void refute_renames_of(const char *name)
{
    for (size_t c = 0; c < model.changes_count;) {
        const struct change *change = &model.changes[c];
        if (change->kind == RF_DISK_RENAME && change->done == NEVER &&
            strcmp(change->name, name) == 0) {
            drop_change(c);
        } else {
            c++;
        }
    }
}

static void end_change(const struct rf_simdisk_entry *e, uint32_t at)
{
    size_t c = 0;
    while (c < model.changes_count &&
           (model.changes[c].kind != e->kind || model.changes[c].thread != e->thread ||
            model.changes[c].done != NEVER)) {
        c++;
    }
    if (c == model.changes_count) {
        return; /* somebody was seen to use the name before */
    }
    if (e->error == 0) {
        settle_change(c, at);
        if (e->kind == RF_DISK_REMOVE) {
            refute_renames_of(e->name);
        }
        return;
    }
    drop_change(c);
    if (e->error == EEXIST) {
        used_name(e->name2, at);
    }
}

/* When the same thread began what it says now to be done. */
static uint32_t began(const struct rf_simdisk_entry *e, uint32_t at)
{
    while (at-- > 0) {
        const struct rf_simdisk_entry *before = rf_simdisk_entry(at);
        if (before != NULL && before->thread == e->thread && before->kind == e->kind &&
            !before->done) {
            return at;
        }
    }
    TEST_FAIL_MESSAGE("an operation that ended and never began");
    return 0;
}

static bool has_file(const struct names *names, size_t file)
{
    for (size_t i = 0; i < names->count; i++) {
        if (names->at[i].file == file) {
            return true;
        }
    }
    return false;
}

/* Nobody will find it again: its bytes are of no interest, and there may be thousands. */
static void forget_unnamed(void)
{
    for (size_t f = 0; f < model.files_count; f++) {
        struct file *file = &model.files[f];
        bool named = has_file(&model.durable, f) || has_file(&model.living, f);
        for (size_t c = 0; c < model.changes_count && !named; c++) {
            named = model.changes[c].file == f;
        }
        if (file->bytes != NULL && !named) {
            free(file->bytes);
            file->bytes = NULL;
            file->size = file->room = 0;
        }
    }
}

static void sync_names(uint32_t since)
{
    for (size_t c = 0; c < model.changes_count;) {
        if (model.changes[c].done < since) {
            apply_change(&model.durable, &model.changes[c]);
            drop_change(c);
        } else {
            c++;
        }
    }
    forget_unnamed();
}

/* --- bytes --- */

static void drop_write(struct file *file, size_t i)
{
    free(file->writes[i].gone);
    file->count--;
    memmove(&file->writes[i], &file->writes[i + 1], (file->count - i) * sizeof(*file->writes));
}

/* What had ended before a write began that is durable now can't come back where that one was. */
static void outdate(struct file *file, uint64_t offset, uint64_t len, uint32_t begun)
{
    for (size_t i = 0; i < file->count; i++) {
        struct write *w = &file->writes[i];
        if (w->ended >= begun || len == 0) {
            continue;
        }
        uint64_t sectors = (w->offset + w->len + SECTOR - 1) / SECTOR - w->offset / SECTOR;
        if (w->gone == NULL) {
            w->gone = calloc(sectors + 1, 1);
            TEST_ASSERT_NOT_NULL(w->gone);
        }
        for (uint64_t s = 0; s < sectors; s++) {
            uint64_t at = (w->offset / SECTOR + s) * SECTOR;
            if (at >= offset && at + SECTOR <= offset + len) {
                w->gone[s] = 1;
            }
        }
    }
}

static void take_write(struct file *file, size_t i)
{
    struct write w = file->writes[i];
    make_durable(file, w.offset, w.bytes, w.len);
    file->writes[i].gone = NULL;
    drop_write(file, i);
    outdate(file, w.offset, w.len, w.begun);
    free(w.gone);
}

/* The file that somebody has open under this name. Who was stopped for long may have one whose name was
 * removed meanwhile: what is written there nobody will see. */
static size_t open_file(const char *name, uint32_t at)
{
    size_t f = used_name(name, at);
    for (uint32_t i = at; i-- > 0 && f == NO_FILE;) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e != NULL && e->kind == RF_DISK_REMOVE && strcmp(e->name, name) == 0) {
            f = new_file();
        }
    }
    TEST_ASSERT_TRUE_MESSAGE(f != NO_FILE, rf_simdisk_words(at));
    return f;
}

static void begin_write(const struct rf_simdisk_entry *e, uint32_t at)
{
    size_t f = open_file(e->name, at);
    struct file *file = &model.files[f];
    file->writes = grown(file->writes, file->count, sizeof(*file->writes));
    file->writes[file->count++] = (struct write){.id = e->id,
                                                 .begun = at,
                                                 .ended = NEVER,
                                                 .offset = e->offset,
                                                 .len = e->len,
                                                 .bytes = rf_simdisk_bytes(e)};
}

/* By its id: the file may have another name by now. */
static void end_write(const struct rf_simdisk_entry *e, uint32_t at)
{
    for (size_t f = 0; f < model.files_count; f++) {
        struct file *file = &model.files[f];
        for (size_t i = 0; i < file->count; i++) {
            struct write *w = &file->writes[i];
            if (w->id == e->id && w->ended == NEVER) {
                w->ended = at;
                w->error = e->error;
                if (rf_simdisk_settles(e)) {
                    take_write(file, i);
                }
                return;
            }
        }
    }
    TEST_FAIL_MESSAGE("a write that ended and never began");
}

static void sync_bytes(struct file *file, uint32_t since)
{
    for (;;) {
        size_t first = SIZE_MAX; /* to end: the page cache has the later one */
        for (size_t i = 0; i < file->count; i++) {
            const struct write *w = &file->writes[i];
            if (w->ended < since && w->error == 0 &&
                (first == SIZE_MAX || w->ended < file->writes[first].ended)) {
                first = i;
            }
        }
        if (first == SIZE_MAX) {
            return;
        }
        take_write(file, first);
    }
}

/* --- playing --- */

static void play_event(const struct rf_simdisk_entry *e, uint32_t at)
{
    switch (e->kind) {
    case RF_DISK_WRITE_BEGIN:
        begin_write(e, at);
        break;
    case RF_DISK_WRITE_END:
        end_write(e, at);
        break;
    case RF_DISK_SYNC:
        if (rf_simdisk_settles(e)) {
            sync_bytes(&model.files[open_file(e->name, at)], began(e, at));
        }
        break;
    case RF_DISK_SYNC_DIR:
        if (rf_simdisk_settles(e)) {
            sync_names(began(e, at));
        }
        break;
    case RF_DISK_CREATE:
    case RF_DISK_RENAME:
    case RF_DISK_REMOVE:
        if (e->done) {
            end_change(e, at);
        } else {
            begin_change(e, at);
        }
        break;
    default:
        break;
    }
}

static void forget_plan(void);

static void play_until(uint32_t cut)
{
    if (model.generation != rf_simdisk_generation() || model.at > cut) {
        begin_model();
        forget_plan();
    }
    if (model.at != cut) {
        forget_plan();
    }
    TEST_ASSERT_TRUE(cut <= rf_simdisk_cuts());
    for (; model.at < cut; model.at++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(model.at);
        if (e != NULL) {
            play_event(e, model.at);
        }
    }
}

/* --- what a sector may hold --- */

static bool touches(const struct write *w, uint64_t sector)
{
    uint64_t first = w->offset / SECTOR;
    return w->len != 0 && sector >= first && sector <= (w->offset + w->len - 1) / SECTOR &&
           (w->gone == NULL || !w->gone[sector - first]);
}

static void overlay(uint8_t *content, uint64_t sector, const struct write *w)
{
    for (uint64_t i = 0; i < SECTOR; i++) {
        uint64_t at = sector * SECTOR + i;
        if (at >= w->offset && at < w->offset + w->len) {
            content[i] = w->bytes == NULL ? 0 : w->bytes[at - w->offset];
        }
    }
}

static void durable_sector(const struct file *file, uint64_t sector, uint8_t *content)
{
    uint64_t at = sector * SECTOR;
    memset(content, 0, SECTOR);
    if (at < file->size) {
        memcpy(content, file->bytes + at, file->size - at < SECTOR ? file->size - at : SECTOR);
    }
}

struct candidates {
    uint8_t content[CANDIDATES_MAX][SECTOR];
    unsigned count;
};

static void add_candidate(struct candidates *set, const uint8_t *content, uint64_t len)
{
    for (unsigned i = 0; i < set->count; i++) {
        if (memcmp(set->content[i], content, len) == 0) {
            return;
        }
    }
    TEST_ASSERT_TRUE_MESSAGE(set->count < CANDIDATES_MAX, "too many writes to one sector");
    memcpy(set->content[set->count++], content, SECTOR);
}

/* The different contents of the first `len` bytes of a sector; the first one is the durable one. */
static void find_candidates(const struct file *file, uint64_t sector, uint64_t len,
                            struct candidates *set)
{
    uint8_t content[SECTOR];
    set->count = 0;
    durable_sector(file, sector, content);
    add_candidate(set, content, len);
    /* Those that ended, one over the other, as far as they got. */
    for (size_t i = 0; i < file->count; i++) {
        if (file->writes[i].ended != NEVER && touches(&file->writes[i], sector)) {
            overlay(content, sector, &file->writes[i]);
            add_candidate(set, content, len);
        }
    }
    /* Those that did not come at any time, also last. */
    unsigned before = set->count;
    for (size_t i = 0; i < file->count; i++) {
        if (file->writes[i].ended == NEVER && touches(&file->writes[i], sector)) {
            for (unsigned c = 0; c < before; c++) {
                memcpy(content, set->content[c], SECTOR);
                overlay(content, sector, &file->writes[i]);
                add_candidate(set, content, len);
            }
        }
    }
}

/* --- the plan: all images of the cut --- */

struct choice {
    uint64_t sector;
    unsigned count;
};
/* A file with one of its sizes. */
struct size_plan {
    uint64_t size;
    struct choice *choices;
    size_t count;
    uint64_t ways;
};
struct file_plan {
    bool made;
    struct size_plan *sizes;
    size_t count;
    uint64_t ways;
};

static struct plan {
    bool made;
    struct names *names; /* the different directories */
    uint64_t *ways;
    size_t count;
    struct file_plan *files;
    size_t files_count;
    uint64_t ways_all;
} plan;

static void forget_plan(void)
{
    for (size_t i = 0; i < plan.count; i++) {
        free(plan.names[i].at);
    }
    for (size_t f = 0; f < plan.files_count; f++) {
        for (size_t s = 0; s < plan.files[f].count; s++) {
            free(plan.files[f].sizes[s].choices);
        }
        free(plan.files[f].sizes);
    }
    free(plan.names);
    free(plan.ways);
    free(plan.files);
    plan = (struct plan){0};
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? TOO_MANY : product;
}

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? TOO_MANY : sum;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

static void copy_names(struct names *to, const struct names *from)
{
    *to = (struct names){0};
    for (size_t i = 0; i < from->count; i++) {
        set_name(to, from->at[i].text, from->at[i].file);
    }
}

static bool same_names(const struct names *a, const struct names *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->at[i].text, b->at[i].text) != 0 || a->at[i].file != b->at[i].file) {
            return false;
        }
    }
    return true;
}

/* The directory with some of the changes, sorted. */
static void names_with(const bool *kept, struct names *out)
{
    copy_names(out, &model.durable);
    for (size_t c = 0; c < model.changes_count; c++) {
        if (kept[c]) {
            apply_change(out, &model.changes[c]);
        }
    }
    if (out->count != 0) {
        qsort(out->at, out->count, sizeof(*out->at), by_name);
    }
}

static void plan_names(void)
{
    for (unsigned mask = 0; mask < 1u << model.changes_count; mask++) {
        bool kept[CHANGES_MAX];
        struct names names;
        for (size_t c = 0; c < model.changes_count; c++) {
            kept[c] = (mask >> c & 1) != 0;
        }
        names_with(kept, &names);
        bool known = false;
        for (size_t i = 0; i < plan.count && !known; i++) {
            known = same_names(&plan.names[i], &names);
        }
        if (known) {
            free(names.at);
            continue;
        }
        plan.names = grown(plan.names, plan.count, sizeof(*plan.names));
        plan.names[plan.count++] = names;
    }
}

static int by_sector(const void *a, const void *b)
{
    const struct choice *x = a;
    const struct choice *y = b;
    return (x->sector > y->sector) - (x->sector < y->sector);
}

static void plan_size(const struct file *file, uint64_t size, struct size_plan *out)
{
    struct candidates set;
    *out = (struct size_plan){.size = size, .ways = 1};
    for (size_t i = 0; i < file->count; i++) {
        const struct write *w = &file->writes[i];
        for (uint64_t s = w->offset / SECTOR; s * SECTOR < w->offset + w->len && s * SECTOR < size;
             s++) {
            bool seen = false;
            for (size_t j = 0; j < i && !seen; j++) { /* by an earlier write */
                seen = touches(&file->writes[j], s);
            }
            uint64_t len = size - s * SECTOR < SECTOR ? size - s * SECTOR : SECTOR;
            if (seen || !touches(w, s)) {
                continue;
            }
            find_candidates(file, s, len, &set);
            if (set.count > 1) {
                out->choices = grown(out->choices, out->count, sizeof(*out->choices));
                out->choices[out->count++] = (struct choice){.sector = s, .count = set.count};
                out->ways = times(out->ways, set.count);
            }
        }
    }
    if (out->count != 0) {
        qsort(out->choices, out->count, sizeof(*out->choices), by_sector);
    }
}

static void plan_file(const struct file *file, struct file_plan *out)
{
    *out = (struct file_plan){.made = true};
    for (size_t i = 0; i <= file->count; i++) {
        uint64_t size = i == 0 ? file->size : file->writes[i - 1].offset + file->writes[i - 1].len;
        bool known = i != 0 && size <= file->size;
        for (size_t s = 0; s < out->count && !known; s++) {
            known = out->sizes[s].size == size;
        }
        if (!known) {
            out->sizes = grown(out->sizes, out->count, sizeof(*out->sizes));
            plan_size(file, size, &out->sizes[out->count]);
            out->ways = plus(out->ways, out->sizes[out->count].ways);
            out->count++;
        }
    }
}

static struct file_plan *planned(size_t file)
{
    if (plan.files == NULL) {
        plan.files = calloc(model.files_count, sizeof(*plan.files));
        TEST_ASSERT_NOT_NULL(plan.files);
        plan.files_count = model.files_count;
    }
    if (!plan.files[file].made) {
        plan_file(&model.files[file], &plan.files[file]);
    }
    return &plan.files[file];
}

uint64_t rf_simdisk_images(uint32_t cut)
{
    play_until(cut);
    if (plan.made) {
        return plan.ways_all;
    }
    if (model.changes_count > CHANGES_MAX) {
        return TOO_MANY;
    }
    plan_names();
    plan.ways = calloc(plan.count, sizeof(*plan.ways));
    TEST_ASSERT_NOT_NULL(plan.ways);
    for (size_t n = 0; n < plan.count; n++) {
        plan.ways[n] = 1;
        for (size_t i = 0; i < plan.names[n].count; i++) {
            plan.ways[n] = times(plan.ways[n], planned(plan.names[n].at[i].file)->ways);
        }
        plan.ways_all = plus(plan.ways_all, plan.ways[n]);
    }
    plan.made = true;
    return plan.ways_all;
}

/* --- writing one --- */

static int fresh_directory(const char *path)
{
    if (mkdir(path, 0700) != 0) {
        TEST_ASSERT_EQUAL(EEXIST, errno);
    }
    DIR *listing = opendir(path);
    TEST_ASSERT_NOT_NULL(listing);
    for (struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            TEST_ASSERT_EQUAL(0, unlinkat(dirfd(listing), e->d_name, 0));
        }
    }
    closedir(listing);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    return fd;
}

static void write_out(int directory, const char *name, const uint8_t *bytes, uint64_t size)
{
    int fd = openat(directory, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, name);
    TEST_ASSERT_EQUAL(0, ftruncate(fd, (off_t)size));
    for (uint64_t at = 0; at < size; at += PIECE) { /* most of a log is zeros: holes */
        static const uint8_t zeros[PIECE];
        uint64_t len = size - at < PIECE ? size - at : PIECE;
        if (memcmp(bytes + at, zeros, len) != 0) {
            TEST_ASSERT_TRUE_MESSAGE(pwrite(fd, bytes + at, len, (off_t)at) == (ssize_t)len,
                                     "no room for an image");
        }
    }
    close(fd);
}

/* The file's bytes with this size and nothing that is not durable; at least one byte of room. */
static uint8_t *durable_bytes(const struct file *file, uint64_t size)
{
    uint8_t *bytes = calloc(1, size + SECTOR);
    TEST_ASSERT_NOT_NULL(bytes);
    if (file->size != 0) {
        memcpy(bytes, file->bytes, file->size < size ? file->size : size);
    }
    return bytes;
}

static void image_file(int directory, const struct name *name, uint64_t which)
{
    const struct file *file = &model.files[name->file];
    const struct file_plan *files = planned(name->file);
    struct candidates set;
    size_t s = 0;
    while (which >= files->sizes[s].ways) {
        which -= files->sizes[s++].ways;
    }
    const struct size_plan *size = &files->sizes[s];
    uint8_t *bytes = durable_bytes(file, size->size);
    for (size_t i = 0; i < size->count; i++) {
        uint64_t at = size->choices[i].sector * SECTOR;
        uint64_t len = size->size - at < SECTOR ? size->size - at : SECTOR;
        find_candidates(file, size->choices[i].sector, len, &set);
        memcpy(bytes + at, set.content[which % size->choices[i].count], len);
        which /= size->choices[i].count;
    }
    write_out(directory, name->text, bytes, size->size);
    free(bytes);
}

void rf_simdisk_image(uint32_t cut, uint64_t which, const char *into)
{
    TEST_ASSERT_TRUE(which < rf_simdisk_images(cut));
    int directory = fresh_directory(into);
    size_t n = 0;
    while (which >= plan.ways[n]) {
        which -= plan.ways[n++];
    }
    for (size_t i = 0; i < plan.names[n].count; i++) {
        uint64_t ways = planned(plan.names[n].at[i].file)->ways;
        image_file(directory, &plan.names[n].at[i], which % ways);
        which /= ways;
    }
    close(directory);
}

/* --- drawing one --- */

enum { KEEP_NOTHING = 0, KEEP_ALL = 1 };

/* What of a write has come to the disk. */
struct fate {
    enum { DROPPED, KEPT, BEGINNING, TORN, FATES } how;
    uint64_t upto; /* BEGINNING: sectors below */
};

static struct fate draw_fate(const struct write *w, uint64_t seed, struct rf_prng *prng)
{
    uint64_t sectors = w->len / SECTOR + 2;
    if (seed <= KEEP_ALL) {
        return (struct fate){.how = seed == KEEP_ALL ? KEPT : DROPPED};
    }
    struct fate fate = {.how = DROPPED};
    for (uint32_t n = rf_prng_below(prng, FATES); n > 0; n--) {
        fate.how++;
    }
    fate.upto = w->offset / SECTOR + rf_prng_next(prng) % sectors;
    return fate;
}

static bool has_come(const struct fate *fate, uint64_t sector, struct rf_prng *prng)
{
    return fate->how == KEPT || (fate->how == BEGINNING && sector < fate->upto) ||
           (fate->how == TORN && rf_prng_chance(prng, 50));
}

/* One of the candidates, that one which the fates of the writes would leave if there is such a one. */
static void draw_sector(const struct file *file, const struct fate *fates, uint64_t sector,
                        uint64_t len, struct rf_prng *prng, uint8_t *out)
{
    struct candidates set;
    uint8_t content[SECTOR];
    find_candidates(file, sector, len, &set);
    durable_sector(file, sector, content);
    for (int late = 0; late < 2; late++) { /* those that did not end come last */
        for (size_t i = 0; i < file->count; i++) {
            if ((file->writes[i].ended == NEVER) == (late != 0) &&
                touches(&file->writes[i], sector) && has_come(&fates[i], sector, prng)) {
                overlay(content, sector, &file->writes[i]);
            }
        }
    }
    for (unsigned c = 0; c < set.count; c++) {
        if (memcmp(set.content[c], content, len) == 0) {
            memcpy(out, content, len);
            return;
        }
    }
    memcpy(out, set.content[rf_prng_below(prng, set.count)], len);
}

static void sample_file(int directory, const struct name *name, uint64_t seed, struct rf_prng *prng)
{
    const struct file *file = &model.files[name->file];
    uint64_t size = file->size;
    struct fate *fates = calloc(file->count + 1, sizeof(*fates));
    TEST_ASSERT_NOT_NULL(fates);
    for (size_t i = 0; i < file->count; i++) {
        uint64_t end = file->writes[i].offset + file->writes[i].len;
        fates[i] = draw_fate(&file->writes[i], seed, prng);
        if (end > size && (seed == KEEP_ALL || (seed > KEEP_ALL && rf_prng_chance(prng, 50)))) {
            size = end;
        }
    }
    uint8_t *bytes = durable_bytes(file, size);
    for (size_t i = 0; i < file->count; i++) {
        const struct write *w = &file->writes[i];
        for (uint64_t s = w->offset / SECTOR; s * SECTOR < w->offset + w->len && s * SECTOR < size;
             s++) {
            if (touches(w, s)) { /* drawn again where two overlap, which is as good */
                uint64_t len = size - s * SECTOR < SECTOR ? size - s * SECTOR : SECTOR;
                draw_sector(file, fates, s, len, prng, bytes + s * SECTOR);
            }
        }
    }
    write_out(directory, name->text, bytes, size);
    free(bytes);
    free(fates);
}

static void draw_names(uint64_t seed, struct rf_prng *prng, struct names *names)
{
    bool *kept = calloc(model.changes_count + 1, 1);
    TEST_ASSERT_NOT_NULL(kept);
    bool in_order = rf_prng_chance(prng, 50);
    size_t upto =
        model.changes_count == 0 ? 0 : rf_prng_below(prng, (uint32_t)model.changes_count + 1);
    for (size_t c = 0; c < model.changes_count; c++) {
        kept[c] = seed == KEEP_ALL ||
                  (seed > KEEP_ALL && (in_order ? c < upto : rf_prng_chance(prng, 50)));
    }
    names_with(kept, names);
    free(kept);
}

void rf_simdisk_sample(uint32_t cut, uint64_t seed, const char *into)
{
    struct rf_prng prng = {.state = seed * 0x100000001b3u + cut};
    struct names names;
    play_until(cut);
    int directory = fresh_directory(into);
    draw_names(seed, &prng, &names);
    for (size_t i = 0; i < names.count; i++) {
        sample_file(directory, &names.at[i], seed, &prng);
    }
    free(names.at);
    close(directory);
}

size_t rf_simdisk_unsettled(uint32_t cut)
{
    play_until(cut);
    size_t count = model.changes_count;
    for (size_t i = 0; i < model.living.count; i++) {
        count += model.files[model.living.at[i].file].count;
    }
    return count;
}

void rf_simdisk_remove_image(const char *path)
{
    close(fresh_directory(path));
    TEST_ASSERT_EQUAL(0, rmdir(path));
}
