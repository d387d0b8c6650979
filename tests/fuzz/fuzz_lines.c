/*
 * Lines as `ringfence work --lines` reads them from its standard input, into a store. Never a crash, never a hang; the
 * items of the shards, in the order of their keys, are the lines of the input, each once, so many in a shard as
 * was asked for; only a line that is longer than a shard's metadata may be, or has a NUL byte, is refused.
 *
 * The first byte says how many lines make a shard (1 to 5), the rest is the input.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "quiet_command.h"
#include "work.h"

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

static rf_store *store;
static char store_name[64];
static rf_tenant tenant;
static int line_fd;

struct reading {
    const char *text;
    size_t len, at;
    uint64_t shards;
    uint64_t per_shard;
};

/* In the order of their keys: the lines go on where those of the shard before ended. */
static bool read_shard(void *context, const rf_shard_info *s)
{
    struct reading *r = context;
    struct items items = items_of(s->spec, s->cursor);
    CLAIM(items.count >= 1 && items.count <= r->per_shard, "another number of lines in a shard");
    for (uint32_t i = 0; i < items.count; i++) {
        const char *end = r->at >= r->len ? NULL : memchr(r->text + r->at, '\n', r->len - r->at);
        CLAIM(r->at < r->len, "a line that nobody wrote");
        size_t n = end == NULL ? r->len - r->at : (size_t)(end - r->text) - r->at;
        CLAIM(strlen(items.item[i]) == n && memcmp(items.item[i], r->text + r->at, n) == 0,
              "another line than was written");
        r->at += n + 1;
        free((char *)(uintptr_t)items.item[i]);
    }
    free(items.item);
    r->shards++;
    return true;
}

static void try_lines(uint64_t per_shard, const char *text, size_t len)
{
    static struct cli cli;
    static uint64_t run;
    cli.tenant = tenant;
    struct work w = {.cli = &cli,
                     .run = ++run,
                     .lines = true,
                     .lines_per_shard = per_shard,
                     .config = {.lease_duration = RF_SECOND}};
    struct line_feed feed = {0};
    bool bad_line = false;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end == NULL ? len - at : (size_t)(end - text) - at;
        /* Items are words of a command, which end at a NUL. */
        bad_line |= n > RF_METADATA_MAX || memchr(text + at, 0, n) != NULL;
        at += n + 1;
    }
    CLAIM(ftruncate(line_fd, 0) == 0 && pwrite(line_fd, text, len, 0) == (ssize_t)len &&
              lseek(line_fd, 0, SEEK_SET) == 0,
          "the input");
    int code = feed_begin(&w, store, &feed);
    CLAIM(code == EXIT_DONE, said);
    for (unsigned i = 0; code == EXIT_DONE && !feed.finished; i++) {
        CLAIM(i < 100, "it does not come to its end");
        code = feed_read(&w, store, &feed);
    }
    CLAIM((code == EXIT_DONE) == !bad_line, "lines are read, or refused, wrongly");
    struct reading r = {.text = text, .len = len, .per_shard = per_shard};
    rf_detail detail;
    CLAIM(rf_list_shards(store, rf_now(store), &tenant, run, RF_LIST_ALL, read_shard, &r,
                         &detail) == RF_OK,
          "the shards");
    CLAIM(r.shards == feed.shards && (code != EXIT_DONE || r.at >= len), "a line is lost");
    free(feed.buffer);
    CLAIM(rf_cancel_run(store, rf_now(store), &tenant, run, rf_new_op(store), NULL) == RF_OK &&
              rf_purge_run(store, rf_now(store), &tenant, run, NULL) == RF_OK,
          "purging");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    /* On the heap, and as long as it is: a step beyond is seen. */
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = 0;
    try_lines(1 + data[0] % 5, text, size - 1);
    free(text);
    forget_kept();
    return 0;
}

static void clean_up(void)
{
    rf_close(store);
    rf_destroy(store_name, NULL);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    rf_detail detail = {0};
    rf_tenant_from_name("fuzz", &tenant);
    snprintf(store_name, sizeof(store_name), "fuzz-%d", (int)getpid());
    rf_status status = rf_open(store_name,
                               &(rf_options){.create = true,
                                             .manual = true,
                                             .max_shards = 40000,
                                             .max_bytes = 1u << 24,
                                             .max_runs = 2,
                                             .max_members = 1},
                               &store, &detail);
    CLAIM(status == RF_OK, detail.where);
    atexit(clean_up);
    line_fd = memfd_create("lines", MFD_CLOEXEC);
    CLAIM(line_fd >= 0 && dup2(line_fd, STDIN_FILENO) == 0, "standard input");
    return 0;
}
