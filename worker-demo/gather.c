/* From the ledgers to one sorted list. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "report.h"
#include "worker.h"

struct gathering {
    struct report *report;
    struct farm *farm;
    struct record *lines; /* RECORD_LINES, one for each segment */
    size_t line_count;
    uint64_t bytes; /* of ledgers */
    bool good;
};

static void on_record(void *context, const struct record *record)
{
    struct gathering *g = context;
    struct report *r = g->report;
    if (record->item >= g->farm->items.header->count ||
        (record->kind == RECORD_FINDING && record->number >= g->farm->rules.count)) {
        fputs("rf-scan: a finding of another scan\n", stderr);
        g->good = false;
    } else if (record->kind == RECORD_FINDING) {
        r->findings = must_grow(r->findings, r->count + 1, sizeof(*record));
        r->findings[r->count++] = *record;
    } else if (record->kind == RECORD_UNREADABLE) {
        r->unreadable = must_grow(r->unreadable, r->unreadable_count + 1, sizeof(*record));
        r->unreadable[r->unreadable_count++] = *record;
    } else {
        g->lines = must_grow(g->lines, g->line_count + 1, sizeof(*record));
        g->lines[g->line_count++] = *record;
    }
}

static void add_progress(struct report *r, const struct progress *p)
{
    r->files += p->files;
    r->bytes += p->bytes;
    r->binary += p->binary;
    r->vanished += p->vanished;
    r->allowed += p->allowed;
}

static bool on_shard(void *context, const rf_shard_info *shard)
{
    struct gathering *g = context;
    struct report *r = g->report;
    struct progress p;
    if (!progress_decode(shard->cursor.token, &p)) {
        fputs("rf-scan: a cursor that is not rf-scan's\n", stderr);
        g->good = false;
        return false;
    }
    add_progress(r, &p);
    if (shard->status == RF_SHARD_PARKED) {
        r->parked = must_grow(r->parked, r->parked_count + 1, sizeof(*r->parked));
        r->parked[r->parked_count++] =
            (struct parked){.shard = shard->shard,
                            .reason = shard->reason,
                            .first = index_of(shard->spec.start),
                            .end = index_of(shard->spec.end),
                            .at = shard->cursor.key.data == NULL
                                      ? index_of(shard->spec.start)
                                      : index_of(shard->cursor.key) + (p.offset == PROGRESS_DONE)};
    }
    g->good =
        ledger_read(g->farm->found, shard->shard, shard->fence, &p, on_record, g, &g->bytes) &&
        g->good;
    return g->good;
}

static int by_place(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    if (x->item != y->item) {
        return x->item < y->item ? -1 : 1;
    }
    if (x->start != y->start) {
        return x->start < y->start ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

static void sort(struct record *records, size_t count)
{
    if (count > 1) {
        qsort(records, count, sizeof(*records), by_place);
    }
}

/* What was found in a segment has lines counted from there. */
static void number_lines(struct gathering *g)
{
    const struct items *items = &g->farm->items;
    struct report *r = g->report;
    size_t next = 0;
    uint64_t before = 0, item = 0;
    for (size_t i = 0; i < r->count; i++) {
        struct record *found = &r->findings[i];
        if (found->item != item || i == 0) {
            item = found->item;
            uint64_t first = item;
            while (!items->list[first].first && first > 0) {
                first--;
            }
            while (next > 0 && g->lines[next - 1].item >= first) {
                next--;
            }
            while (next < g->line_count && g->lines[next].item < first) {
                next++;
            }
            before = 0;
            while (next < g->line_count && g->lines[next].item < item) {
                before += g->lines[next++].line;
            }
        }
        found->line += before + 1;
    }
}

/* Every file in the directory, less what was read: written under leases that were lost. */
static uint64_t ledger_bytes(int dir)
{
    uint64_t sum = 0;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    struct stat st;
    while (list != NULL && (entry = readdir(list)) != NULL) {
        if (entry->d_name[0] != '.' && fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            sum += (uint64_t)st.st_size;
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    return sum;
}

static bool finish(struct gathering *g)
{
    struct report *r = g->report;
    sort(r->findings, r->count);
    sort(r->unreadable, r->unreadable_count);
    sort(g->lines, g->line_count);
    for (size_t i = 1; i < r->count; i++) {
        if (by_place(&r->findings[i - 1], &r->findings[i]) == 0) {
            fprintf(stderr, "rf-scan: a finding is there twice, in item %llu\n",
                    (unsigned long long)r->findings[i].item);
            g->good = false;
        }
    }
    size_t kept = 0; /* once for each file or part is enough */
    for (size_t i = 0; i < r->unreadable_count; i++) {
        if (i == 0 || by_place(&r->unreadable[kept - 1], &r->unreadable[i]) != 0) {
            r->unreadable[kept++] = r->unreadable[i];
        }
    }
    r->unreadable_count = kept;
    number_lines(g);
    uint64_t all = ledger_bytes(g->farm->found);
    r->left_out = all > g->bytes ? all - g->bytes : 0;
    r->splits = atomic_load(&g->farm->counters->splits);
    r->refused = atomic_load(&g->farm->counters->refused);
    free(g->lines);
    return g->good;
}

bool report_gather(struct report *report, struct farm *farm, rf_store *store)
{
    struct gathering g = {.report = report, .farm = farm, .good = true};
    rf_detail detail = {0};
    rf_status status = rf_list_shards(store, rf_now(store), &farm->tenant, farm->items.header->run,
                                      RF_LIST_ALL, on_shard, &g, &detail);
    if (status != RF_OK) {
        char why[512];
        rf_explain(status, &detail, why, sizeof(why));
        fprintf(stderr, "rf-scan: reading the shards: %s\n", why);
        g.good = false;
    }
    return finish(&g);
}

bool report_gather_uncoordinated(struct report *report, struct farm *farm)
{
    struct gathering g = {.report = report, .farm = farm, .good = true};
    for (unsigned slot = 1; slot <= farm->options->workers; slot++) {
        struct progress p;
        char name[32];
        uint8_t token[sizeof(p)];
        snprintf(name, sizeof(name), "progress-%u", slot);
        int fd = openat(farm->found, name, O_RDONLY | O_CLOEXEC);
        ssize_t len = fd < 0 ? -1 : read(fd, token, sizeof(token));
        if (fd >= 0) {
            close(fd);
        }
        if (len <= 0 || !progress_decode((rf_bytes){token, (size_t)len}, &p)) {
            fprintf(stderr, "rf-scan: worker %u left no result\n", slot);
            g.good = false;
            continue;
        }
        add_progress(report, &p);
        g.good = ledger_read(farm->found, slot, 1, &p, on_record, &g, &g.bytes) && g.good;
    }
    return finish(&g);
}

void report_free(struct report *report)
{
    free(report->findings);
    free(report->unreadable);
    free(report->parked);
    *report = (struct report){0};
}
