#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"

#define MAGIC   0x3172656764656c52ull
#define VERSION 2u
#define NAME    40

static void file_name(char *name, uint64_t shard, uint64_t fence)
{
    snprintf(name, NAME, "%016llx-%016llx", (unsigned long long)shard, (unsigned long long)fence);
}

size_t progress_size(const struct progress *p)
{
    return offsetof(struct progress, taken) + (size_t)p->taken_count * sizeof(p->taken[0]);
}

bool progress_decode(rf_bytes token, struct progress *p)
{
    memset(p, 0, sizeof(*p));
    p->version = VERSION;
    p->offset = PROGRESS_DONE;
    if (token.data == NULL) {
        return true;
    }
    if (token.len < offsetof(struct progress, taken) || token.len > sizeof(*p)) {
        return false;
    }
    memcpy(p, token.data, token.len);
    return p->version == VERSION && p->taken_count <= RULES_TAKEN_MAX &&
           progress_size(p) == token.len;
}

void ledger_begin(struct ledger *l, int dir, bool durable, const rf_lease *lease,
                  const struct progress *p)
{
    l->dir = dir;
    l->durable = durable;
    l->fd = -1;
    l->shard = lease->shard;
    l->fence = lease->fence;
    l->before_fence = p->ledger_fence;
    l->before_length = p->ledger_length;
    l->length = 0;
    l->count = 0;
}

void ledger_add(struct ledger *l, const struct record *record)
{
    if (l->count == l->room) {
        size_t room = l->room * 2 + 64;
        struct record *records = realloc(l->records, room * sizeof(*records));
        if (records == NULL) {
            fputs("rf-scan: out of memory\n", stderr);
            exit(2);
        }
        l->records = records;
        l->room = room;
    }
    l->records[l->count++] = *record;
}

static bool write_all(int fd, const void *bytes, size_t len, uint64_t at)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, (const char *)bytes + done, len - done, (off_t)(at + done));
        if (n < 0 && errno != EINTR) {
            return false;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool make_file(struct ledger *l)
{
    char name[NAME];
    const struct ledger_header header = {.magic = MAGIC,
                                         .shard = l->shard,
                                         .fence = l->fence,
                                         .before_fence = l->before_fence,
                                         .before_length = l->before_length};
    file_name(name, l->shard, l->fence);
    /* O_EXCL: no fence is ever granted twice, so this file can't be there. */
    l->fd = openat(l->dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (l->fd < 0 || !write_all(l->fd, &header, sizeof(header), 0)) {
        return false;
    }
    l->length = sizeof(header);
    return !l->durable || fsync(l->dir) == 0;
}

bool ledger_write(struct ledger *l, struct progress *p)
{
    if (l->count == 0) {
        return true;
    }
    if (l->fd < 0 && !make_file(l)) {
        return false;
    }
    size_t size = l->count * sizeof(*l->records);
    if (!write_all(l->fd, l->records, size, l->length) || (l->durable && fdatasync(l->fd) != 0)) {
        return false;
    }
    l->length += size;
    l->count = 0;
    p->ledger_fence = l->fence;
    p->ledger_length = l->length;
    return true;
}

void ledger_end(struct ledger *l)
{
    if (l->fd >= 0) {
        close(l->fd);
        l->fd = -1;
    }
    free(l->records);
    l->records = NULL;
    l->count = l->room = 0;
}

static bool damaged(const char *name, const char *what)
{
    fprintf(stderr, "rf-scan: the findings in %s: %s\n", name, what);
    return false;
}

bool ledger_read(int dir, uint64_t shard, uint64_t fence_max, const struct progress *p,
                 ledger_visit *visit, void *context, uint64_t *bytes_read)
{
    uint64_t fence = p->ledger_fence, length = p->ledger_length;
    while (fence != 0) {
        char name[NAME];
        struct ledger_header header;
        struct record record;
        file_name(name, shard, fence);
        int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        FILE *in = fd < 0 ? NULL : fdopen(fd, "rb");
        if (in == NULL) {
            return damaged(name, strerror(errno));
        }
        bool good = fread(&header, sizeof(header), 1, in) == 1 && header.magic == MAGIC &&
                    header.shard == shard && header.fence == fence && fence <= fence_max &&
                    header.before_fence < fence && length > sizeof(header) &&
                    (length - sizeof(header)) % sizeof(record) == 0;
        for (uint64_t at = sizeof(header); good && at < length; at += sizeof(record)) {
            good = fread(&record, sizeof(record), 1, in) == 1;
            if (good) {
                visit(context, &record);
            }
        }
        fclose(in);
        if (!good) {
            return damaged(name, "damaged, or shorter than what was committed");
        }
        *bytes_read += length;
        fence = header.before_fence;
        length = header.before_length;
    }
    return true;
}
