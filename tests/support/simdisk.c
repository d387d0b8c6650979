#define _GNU_SOURCE
#include "simdisk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <unity.h>

#include "simdisk_trace.h"

#define ENTRIES_MAX (1u << 18)
#define BYTES_MAX   (1ull << 30) /* of address space; memory only as it is used */

/* Shared by all processes of the test. */
struct trace {
    _Atomic uint32_t entries;
    _Atomic uint64_t bytes;
    _Atomic uint32_t overflowed;

    _Atomic uint32_t fail_kinds;
    _Atomic uint64_t fail_at;
    _Atomic uint64_t counted;
    _Atomic int fail_error;
    _Atomic bool fail_lasting;

    struct rf_simdisk_entry entry[ENTRIES_MAX];
    uint8_t memory[BYTES_MAX];
};

static struct trace *trace;
static struct rf_simdisk_file *first_files;
static char watched[128]; /* the directory */
static unsigned disbelieved;
static uint64_t generation;

/* --- beginning and ending --- */

static void keep_file(int directory, const char *name)
{
    struct stat st;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (fd >= 0) {
            close(fd);
        }
        return;
    }
    struct rf_simdisk_file *file = calloc(1, sizeof(*file));
    TEST_ASSERT_NOT_NULL(file);
    TEST_ASSERT_TRUE(strlen(name) < sizeof(file->name));
    strcpy(file->name, name);
    file->size = (uint64_t)st.st_size;
    file->bytes = malloc(file->size + 1);
    TEST_ASSERT_NOT_NULL(file->bytes);
    for (uint64_t at = 0; at < file->size;) {
        ssize_t got = pread(fd, file->bytes + at, file->size - at, (off_t)at);
        TEST_ASSERT_TRUE(got > 0);
        at += (uint64_t)got;
    }
    close(fd);
    file->next = first_files;
    first_files = file;
}

void rf_simdisk_begin(const char *directory)
{
    rf_simdisk_end();
    trace = mmap(NULL, sizeof(*trace), PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TEST_ASSERT_TRUE(trace != MAP_FAILED);
    generation++;
    TEST_ASSERT_TRUE(strlen(directory) < sizeof(watched));
    strcpy(watched, directory);
    DIR *listing = opendir(directory);
    TEST_ASSERT_NOT_NULL(listing);
    for (struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        keep_file(dirfd(listing), e->d_name);
    }
    closedir(listing);
}

void rf_simdisk_end(void)
{
    if (trace != NULL) {
        munmap(trace, sizeof(*trace));
        trace = NULL;
    }
    while (first_files != NULL) {
        struct rf_simdisk_file *file = first_files;
        first_files = file->next;
        free(file->bytes);
        free(file);
    }
    disbelieved = 0;
}

uint64_t rf_simdisk_generation(void)
{
    return generation;
}

const struct rf_simdisk_file *rf_simdisk_first_files(void)
{
    return first_files;
}

/* --- the trace --- */

static uint64_t keep_bytes(const void *bytes, size_t len)
{
    if (bytes == NULL) {
        return UINT64_MAX;
    }
    uint64_t at = atomic_fetch_add(&trace->bytes, len);
    if (at + len > BYTES_MAX) {
        atomic_store(&trace->overflowed, 1);
        return UINT64_MAX;
    }
    memcpy(trace->memory + at, bytes, len);
    return at;
}

/* Its place in the order is taken first: what happens after this call comes after it. */
static void keep_of(uint32_t thread, uint32_t kind, const struct rf_disk_event *event)
{
    uint32_t i = atomic_fetch_add(&trace->entries, 1);
    if (i >= ENTRIES_MAX) {
        atomic_store(&trace->overflowed, 1);
        return;
    }
    struct rf_simdisk_entry *entry = &trace->entry[i];
    entry->kind = kind;
    entry->thread = thread;
    entry->process = (uint32_t)getpid();
    entry->done = event->done;
    entry->sync = event->sync;
    entry->replace = event->replace;
    entry->error = event->error;
    entry->offset = event->offset;
    entry->len = event->len;
    entry->id = event->id;
    entry->bytes = UINT64_MAX;
    if (kind == RF_DISK_WRITE_BEGIN) {
        entry->bytes = keep_bytes(event->bytes, event->len);
    }
    snprintf(entry->name, sizeof(entry->name), "%s", event->name == NULL ? "" : event->name);
    snprintf(entry->name2, sizeof(entry->name2), "%s", event->name2 == NULL ? "" : event->name2);
    atomic_store(&entry->complete, 1);
}

static void keep(uint32_t kind, const struct rf_disk_event *event)
{
    keep_of((uint32_t)gettid(), kind, event);
}

/* What an operation that is about to be done is to be answered. */
static int fault(const struct rf_disk_event *event)
{
    if (event->done || event->kind == RF_DISK_WRITE_END ||
        (atomic_load(&trace->fail_kinds) & RF_SIMDISK_BIT(event->kind)) == 0) {
        return 0;
    }
    uint64_t n = atomic_fetch_add(&trace->counted, 1) + 1;
    uint64_t at = atomic_load(&trace->fail_at);
    if (at == 0 || n < at || (n > at && !atomic_load(&trace->fail_lasting))) {
        return 0;
    }
    int error = atomic_load(&trace->fail_error);
    return error < 0 && event->kind != RF_DISK_WRITE_BEGIN ? 0 : error;
}

int rf_simdisk_trace(void *context, const struct rf_disk_event *event)
{
    (void)context;
    keep(event->kind, event);
    return fault(event);
}

void rf_simdisk_note(uint64_t value)
{
    keep(RF_SIMDISK_NOTE, &(struct rf_disk_event){.id = value});
}

void rf_simdisk_fail(unsigned kinds, uint64_t n, int error, bool lasting)
{
    atomic_store(&trace->fail_kinds, 0);
    atomic_store(&trace->counted, 0);
    atomic_store(&trace->fail_at, n);
    atomic_store(&trace->fail_error, error);
    atomic_store(&trace->fail_lasting, lasting);
    atomic_store(&trace->fail_kinds, kinds);
}

uint64_t rf_simdisk_counted(void)
{
    return atomic_load(&trace->counted);
}

void rf_simdisk_disbelieve(unsigned kinds)
{
    disbelieved = kinds;
    generation++;
}

/* --- writes of the dead --- */

static bool has_ended(uint32_t begun)
{
    for (uint32_t i = begun + 1; i < atomic_load(&trace->entries); i++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e != NULL && e->kind == RF_DISK_WRITE_END && e->id == trace->entry[begun].id) {
            return true;
        }
    }
    return false;
}

static bool is_there(const struct rf_simdisk_entry *write)
{
    char path[256];
    const uint8_t *bytes = rf_simdisk_bytes(write);
    uint8_t *found = calloc(1, write->len + 1);
    TEST_ASSERT_NOT_NULL(found);
    snprintf(path, sizeof(path), "%s/%s", watched, write->name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool there =
        fd >= 0 && pread(fd, found, write->len, (off_t)write->offset) == (ssize_t)write->len;
    for (uint64_t i = 0; there && i < write->len; i++) {
        there = found[i] == (bytes == NULL ? 0 : bytes[i]);
    }
    if (fd >= 0) {
        close(fd);
    }
    free(found);
    return there;
}

void rf_simdisk_settle(void)
{
    uint32_t count = rf_simdisk_cuts();
    for (uint32_t i = 0; i < count; i++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e != NULL && e->kind == RF_DISK_WRITE_BEGIN && !has_ended(i)) {
            keep(RF_DISK_WRITE_END,
                 &(struct rf_disk_event){.id = e->id, .error = is_there(e) ? 0 : EIO});
        }
    }
}

static bool has_file(const char *name)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%s", watched, name);
    return access(path, F_OK) == 0;
}

/* The word that it was done, by the same thread. */
static bool was_told(uint32_t begun)
{
    const struct rf_simdisk_entry *b = &trace->entry[begun];
    for (uint32_t i = begun + 1; i < atomic_load(&trace->entries); i++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e != NULL && e->kind == b->kind && e->thread == b->thread && e->done) {
            return true;
        }
    }
    return false;
}

void rf_simdisk_bury(pid_t pid, uint32_t since)
{
    uint32_t count = rf_simdisk_cuts();
    for (uint32_t i = since; i < count; i++) {
        const struct rf_simdisk_entry *e = rf_simdisk_entry(i);
        if (e == NULL || e->process != (uint32_t)pid || e->done ||
            (e->kind != RF_DISK_CREATE && e->kind != RF_DISK_RENAME && e->kind != RF_DISK_REMOVE) ||
            was_told(i)) {
            continue;
        }
        /* A temporary name belongs to one process; and a name that is gone is gone, by whomever. */
        bool happened = has_file(e->name) == (e->kind == RF_DISK_CREATE);
        struct rf_disk_event told = {.done = true,
                                     .replace = e->replace,
                                     .error = happened ? 0 : ECANCELED,
                                     .name = e->name,
                                     .name2 = e->name2};
        keep_of(e->thread, e->kind, &told);
    }
}

/* --- reading it --- */

uint32_t rf_simdisk_cuts(void)
{
    TEST_ASSERT_EQUAL_MESSAGE(0, atomic_load(&trace->overflowed), "the trace is full");
    return atomic_load(&trace->entries);
}

const struct rf_simdisk_entry *rf_simdisk_entry(uint32_t i)
{
    return atomic_load(&trace->entry[i].complete) != 0 ? &trace->entry[i] : NULL;
}

const uint8_t *rf_simdisk_bytes(const struct rf_simdisk_entry *entry)
{
    return entry->bytes == UINT64_MAX ? NULL : trace->memory + entry->bytes;
}

bool rf_simdisk_is_note(uint32_t i, uint64_t *value)
{
    const struct rf_simdisk_entry *entry = rf_simdisk_entry(i);
    if (entry == NULL || entry->kind != RF_SIMDISK_NOTE) {
        return false;
    }
    *value = entry->id;
    return true;
}

unsigned rf_simdisk_fill(void)
{
    uint64_t entries = (uint64_t)atomic_load(&trace->entries) * 100 / ENTRIES_MAX;
    uint64_t bytes = atomic_load(&trace->bytes) * 100 / BYTES_MAX;
    return (unsigned)(entries > bytes ? entries : bytes);
}

bool rf_simdisk_settles(const struct rf_simdisk_entry *entry)
{
    if (entry->error != 0 || (disbelieved & RF_SIMDISK_BIT(entry->kind)) != 0) {
        return false;
    }
    return (entry->kind == RF_DISK_WRITE_END && entry->sync) ||
           (entry->done && (entry->kind == RF_DISK_SYNC || entry->kind == RF_DISK_SYNC_DIR));
}

bool rf_simdisk_matters(uint32_t cut)
{
    if (cut >= rf_simdisk_cuts()) {
        return true;
    }
    const struct rf_simdisk_entry *next = rf_simdisk_entry(cut);
    return next != NULL && rf_simdisk_settles(next);
}

size_t rf_simdisk_notes(uint32_t cut, uint64_t *values, size_t room)
{
    size_t count = 0;
    for (uint32_t i = 0; i < cut; i++) {
        const struct rf_simdisk_entry *entry = rf_simdisk_entry(i);
        if (entry != NULL && entry->kind == RF_SIMDISK_NOTE) {
            if (count < room) {
                values[count] = entry->id;
            }
            count++;
        }
    }
    return count;
}

const char *rf_simdisk_words(uint32_t i)
{
    static const char *const kinds[] = {
        [RF_DISK_WRITE_BEGIN] = "write begins",
        [RF_DISK_WRITE_END] = "write ends",
        [RF_DISK_SYNC] = "sync",
        [RF_DISK_CREATE] = "create",
        [RF_DISK_RENAME] = "rename",
        [RF_DISK_REMOVE] = "remove",
        [RF_DISK_SYNC_DIR] = "sync directory",
    };
    static char words[256];
    const struct rf_simdisk_entry *e = i < rf_simdisk_cuts() ? rf_simdisk_entry(i) : NULL;
    if (e == NULL) {
        snprintf(words, sizeof(words), "%" PRIu32 ": nothing", i);
    } else if (e->kind == RF_SIMDISK_NOTE) {
        snprintf(words, sizeof(words), "%" PRIu32 ": note %" PRIu64, i, e->id);
    } else {
        snprintf(words, sizeof(words),
                 "%" PRIu32 ": %s%s %s %s [%" PRIu64 ", +%" PRIu64 "]%s error %d by %" PRIu32, i,
                 kinds[e->kind], e->done ? " done" : "", e->name, e->name2, e->offset, e->len,
                 e->sync ? " durably" : "", e->error, e->thread);
    }
    return words;
}

bool rf_simdisk_next(uint32_t cut, uint64_t i, uint64_t most, uint64_t seed, const char *into)
{
    uint64_t images = rf_simdisk_images(cut);
    if (images <= most) {
        if (i >= images) {
            return false;
        }
        rf_simdisk_image(cut, i, into);
        return true;
    }
    if (i >= most) {
        return false;
    }
    rf_simdisk_sample(cut, i < 2 ? i : seed + i, into);
    return true;
}
