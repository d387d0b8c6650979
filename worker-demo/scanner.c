#include "scanner.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "allow.h"
#include "memory.h"
#include "worker.h"

#define BINARY_LOOK 8192u /* a zero byte in so many at the beginning makes a file binary */
#define BEFORE      1024u /* bytes kept in front of a chunk: for word boundaries, and to see a line */
#define LINE_LOOK   1024u /* a line is looked at for rf-scan:allow so far before and behind */

struct scanner {
    const struct farm *farm;
    struct matcher *matcher;
    int root_fd; /* of the PATH that the last item was below; one is enough, as items are sorted */
    uint32_t root;
    uint8_t *buffer;
    size_t buffer_size;
    /* what was found in a chunk */
    struct record *found;
    size_t count, room;
    /* where we are */
    const struct span *span;
    const char *path;
    uint64_t item;
    struct progress *progress;
};

struct scanner *scanner_create(const struct farm *farm)
{
    struct scanner *s = must_alloc(sizeof(*s));
    s->farm = farm;
    s->matcher = matcher_create(&farm->rules);
    s->root_fd = -1;
    s->buffer_size = BEFORE + farm->options->chunk + farm->rules.width + 2;
    s->buffer = must_alloc(s->buffer_size);
    return s;
}

void scanner_destroy(struct scanner *s)
{
    if (s->root_fd >= 0) {
        close(s->root_fd);
    }
    matcher_destroy(s->matcher);
    free(s->buffer);
    free(s->found);
    free(s);
}

uint64_t finding_fingerprint(const char *rule, const char *path, const uint8_t *secret, size_t len)
{
    uint8_t text[RULE_WIDTH_MAX + 8192];
    size_t rule_len = strlen(rule) + 1, path_len = strlen(path) + 1;
    rule_len = rule_len < 1024 ? rule_len : 1024;
    path_len = path_len < 4096 ? path_len : 4096;
    len = len < RULE_WIDTH_MAX ? len : RULE_WIDTH_MAX;
    memcpy(text, rule, rule_len);
    memcpy(text + rule_len, path, path_len);
    memcpy(text + rule_len + path_len, secret, len);
    return rf_hash64("rf-scan/fingerprint/v1", (rf_bytes){text, rule_len + path_len + len});
}

/* As much of a secret as may be shown: enough to recognise it, not enough to use it. */
static void mask(const uint8_t *secret, size_t len, char out[16])
{
    size_t show = len >= 20 ? 4 : len >= 12 ? 2 : 0, at = 0;
    while (at < show && secret[at] > ' ' && secret[at] < 0x7f) {
        out[at] = (char)secret[at];
        at++;
    }
    memcpy(out + at, "***", 4);
}

static bool line_allows(const struct span *span, size_t start)
{
    static const char words[] = "rf-scan:allow";
    size_t from = start > LINE_LOOK ? start - LINE_LOOK : 0;
    size_t until = span->len - start < LINE_LOOK ? span->len : start + LINE_LOOK;
    const uint8_t *before = memrchr(span->bytes + from, '\n', start - from);
    const uint8_t *behind = memchr(span->bytes + start, '\n', until - start);
    const uint8_t *begin = before == NULL ? span->bytes + from : before + 1;
    const uint8_t *end = behind == NULL ? span->bytes + until : behind;
    return memmem(begin, (size_t)(end - begin), words, sizeof(words) - 1) != NULL;
}

static void on_match(void *context, const struct match *match)
{
    struct scanner *s = context;
    const struct rule *rule = &s->farm->rules.list[match->rule];
    struct record record = {
        .kind = RECORD_FINDING,
        .number = match->rule,
        .item = s->item,
        .start = match->start,
        .end = match->end,
        .secret_start = match->secret_start,
        .secret_len = (uint32_t)match->secret_len,
        .fingerprint = finding_fingerprint(rule->id, s->path, match->secret, match->secret_len),
    };
    if (allow_finding(s->farm->allow, rule->id, match->secret, match->secret_len,
                      record.fingerprint) ||
        line_allows(s->span, (size_t)(match->start - s->span->base))) {
        s->progress->allowed++;
        return;
    }
    mask(match->secret, match->secret_len, record.masked);
    if (s->count == s->room) {
        s->room = s->room * 2 + 64;
        struct record *found = realloc(s->found, s->room * sizeof(*found));
        if (found == NULL) {
            abort();
        }
        s->found = found;
    }
    s->found[s->count++] = record;
}

static int by_place(const void *a, const void *b)
{
    const struct record *x = a, *y = b;
    if (x->secret_start != y->secret_start) {
        return x->secret_start < y->secret_start ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number;
}

/* The compiler makes vector code of this. */
static uint64_t count_lines(const uint8_t *bytes, size_t len)
{
    uint64_t count = 0;
    while (len > 0) {
        size_t part = len < 255 * 32 ? len : 255 * 32;
        uint32_t sum = 0;
        for (size_t i = 0; i < part; i++) {
            sum += bytes[i] == '\n';
        }
        count += sum;
        bytes += part;
        len -= part;
    }
    return count;
}

/* Goes on to `until`, counting lines. */
static void move_to(struct place *p, const struct span *span, uint64_t from, uint64_t until)
{
    const uint8_t *begin = span->bytes + (from - span->base);
    size_t len = (size_t)(until - from);
    uint64_t lines = count_lines(begin, len);
    if (lines > 0) {
        const uint8_t *last = memrchr(begin, '\n', len);
        p->lines += lines;
        p->line_start = from + (uint64_t)(last - begin) + 1;
    }
}

/* Characters before a place in its line: bytes that do not continue one of UTF-8. */
static uint32_t column_of(const struct place *p, const struct span *span, uint64_t place)
{
    if (p->line_start == UINT64_MAX) {
        return 0;
    }
    if (p->line_start < span->base) { /* a very long line: then bytes must do */
        uint64_t bytes = place - p->line_start;
        return bytes < UINT32_MAX - 1 ? (uint32_t)bytes + 1 : 0;
    }
    uint32_t column = 1;
    for (uint64_t at = p->line_start; at < place; at++) {
        column += (span->bytes[at - span->base] & 0xc0) != 0x80;
    }
    return column;
}

/* The findings of a chunk, with their lines, into the ledger; then on to its end. */
static void keep_found(struct scanner *s, const struct span *span, struct progress *p,
                       struct ledger *ledger, bool lines_matter)
{
    uint64_t at = span->base + span->from, end = span->base + span->until;
    if (s->count > 1) {
        qsort(s->found, s->count, sizeof(*s->found), by_place);
    }
    struct place ahead = p->place; /* a secret may begin behind the end of the chunk */
    for (size_t i = 0; i < s->count; i++) {
        struct record *r = &s->found[i];
        move_to(&ahead, span, at, r->secret_start);
        at = r->secret_start;
        r->line = ahead.lines;
        r->column = column_of(&ahead, span, at);
        ledger_add(ledger, r);
        p->findings++;
    }
    s->count = 0;
    if (lines_matter) {
        move_to(&p->place, span, span->base + span->from, end);
    }
}

static void save_taken(const struct scanner *s, struct progress *p)
{
    p->taken_count = 0;
    for (uint32_t r = 0; r < s->farm->rules.count; r++) {
        uint64_t taken = matcher_taken(s->matcher, r);
        if (taken > p->offset) {
            p->taken[p->taken_count++] =
                (struct taken){.rule = r, .behind = (uint32_t)(taken - p->offset)};
        }
    }
}

static void load_taken(const struct scanner *s, const struct progress *p)
{
    for (uint64_t i = 0; i < p->taken_count; i++) {
        if (p->taken[i].rule < s->farm->rules.count) {
            matcher_set_taken(s->matcher, p->taken[i].rule, p->offset + p->taken[i].behind);
        }
    }
}

/* Fills the buffer from `at`; fewer bytes only at the end of the file. -1 and errno. */
static ssize_t read_at(struct scanner *s, int fd, uint64_t at, size_t want)
{
    size_t have = 0;
    while (have < want) {
        ssize_t n = pread(fd, s->buffer + have, want - have, (off_t)(at + have));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        have += (size_t)n;
    }
    return (ssize_t)have;
}

/* Reads what is needed for matches that begin in [from, until). False at an error; the span ends
 * early where the file does. */
static bool read_span(struct scanner *s, int fd, uint64_t from, uint64_t until, struct span *span)
{
    uint64_t before = from < BEFORE ? from : BEFORE;
    size_t want = (size_t)(before + (until - from) + s->farm->rules.width + 1);
    assert(want <= s->buffer_size);
    ssize_t have = read_at(s, fd, from - before, want);
    if (have < 0) {
        return false;
    }
    size_t start = (size_t)before < (size_t)have ? (size_t)before : (size_t)have;
    size_t end = (size_t)(before + (until - from));
    *span = (struct span){.bytes = s->buffer,
                          .len = (size_t)have,
                          .from = start,
                          .until = end < (size_t)have ? end : (size_t)have,
                          .base = from - before};
    return true;
}

/* In front of a segment that is not the first: what reaches over from there. */
static bool look_back(struct scanner *s, int fd, uint64_t at)
{
    uint64_t back = 2ull * s->farm->rules.width;
    back = back < s->farm->options->chunk ? back : s->farm->options->chunk;
    back = back < at ? back : at;
    struct span span;
    if (!read_span(s, fd, at - back, at, &span)) {
        return false;
    }
    matcher_scan(s->matcher, &span, NULL, NULL);
    return true;
}

static void add_unreadable(struct ledger *ledger, uint64_t item, int error)
{
    ledger_add(ledger, &(struct record){
                           .kind = RECORD_UNREADABLE, .number = (uint32_t)error, .item = item});
}

static void begin_item(const struct item *item, struct progress *p)
{
    p->offset = item->offset;
    p->place = (struct place){.line_start = item->first ? 0 : UINT64_MAX};
    p->taken_count = 0;
}

static void end_item(const struct item *item, struct progress *p)
{
    uint64_t scanned = p->offset - item->offset;
    p->skipped += scanned < item->length ? item->length - scanned : 0;
    p->offset = PROGRESS_DONE;
    p->taken_count = 0;
    p->files += item->last != 0;
}

static bool is_binary(const struct span *span)
{
    size_t look = span->until < BINARY_LOOK ? span->until : BINARY_LOOK;
    return memchr(span->bytes, '\0', look) != NULL;
}

/* Is the file binary? For segments that are not the first. */
static bool begins_binary(struct scanner *s, int fd)
{
    ssize_t have = read_at(s, fd, 0, BINARY_LOOK);
    return have > 0 && memchr(s->buffer, '\0', (size_t)have) != NULL;
}

static bool scan_open(struct scanner *s, int fd, uint64_t index, uint64_t end, struct progress *p,
                      struct ledger *ledger, scanner_pause *pause, void *context)
{
    const struct item *item = &s->farm->items.list[index];
    bool segmented = !item->first || !item->last;
    bool look = !s->farm->options->binary;
    matcher_reset(s->matcher);
    if (p->offset != item->offset) {
        load_taken(s, p);
    } else if (item->offset > 0) {
        if (look && begins_binary(s, fd)) {
            p->binary += item->last != 0;
            return true;
        }
        if (!look_back(s, fd, item->offset)) {
            add_unreadable(ledger, index, errno);
            p->unreadable++;
            return true;
        }
    }
    while (p->offset < end) {
        uint64_t until =
            end - p->offset < s->farm->options->chunk ? end : p->offset + s->farm->options->chunk;
        struct span span;
        if (!read_span(s, fd, p->offset, until, &span)) {
            add_unreadable(ledger, index, errno);
            p->unreadable++;
            return true;
        }
        if (look && p->offset == 0 && is_binary(&span)) {
            p->binary += item->last != 0;
            return true;
        }
        uint64_t reached = span.base + span.until;
        if (reached <= p->offset) {
            break; /* it has become shorter since it was opened */
        }
        bool more = reached == until && until < end;
        s->span = &span;
        matcher_scan(s->matcher, &span, on_match, s);
        keep_found(s, &span, p, ledger, more || segmented);
        if (matcher_gave_up(s->matcher)) {
            add_unreadable(ledger, index, UNREADABLE_RULE);
            p->unreadable++;
        }
        p->bytes += reached - p->offset;
        p->offset = reached;
        if (!more) {
            break;
        }
        save_taken(s, p);
        if (!pause(context, index)) {
            return false;
        }
    }
    if (segmented) {
        ledger_add(ledger, &(struct record){.kind = RECORD_LINES,
                                            .item = index,
                                            .line = p->place.lines,
                                            .start = p->place.line_start});
    }
    return true;
}

/* -1 and errno if it is gone. */
static int root_of(struct scanner *s, const struct item *item)
{
    if (s->root_fd < 0 || s->root != item->root) {
        if (s->root_fd >= 0) {
            close(s->root_fd);
        }
        s->root_fd = open(s->farm->options->paths[item->root], O_PATH | O_DIRECTORY | O_CLOEXEC);
        s->root = item->root;
    }
    return s->root_fd;
}

bool scanner_item(struct scanner *s, uint64_t index, struct progress *p, struct ledger *ledger,
                  scanner_pause *pause, void *context)
{
    const struct item *item = &s->farm->items.list[index];
    struct stat st;
    if (p->offset == PROGRESS_DONE) {
        begin_item(item, p);
    }
    s->item = index;
    s->path = item_path(&s->farm->items, index);
    s->progress = p;
    s->count = 0;
    bool gone_on = true;
    int fd = -1;
    if (item->error != 0) {
        errno = item->error;
    } else if (!allow_file(s->farm->allow, s->path)) {
        int root = item->name == 0 ? -1 : root_of(s, item);
        fd = root < 0 && item->name != 0 ? -1 : item_open(&s->farm->items, index, root);
        if (fd >= 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))) {
            close(fd);
            fd = -1;
            errno = EINVAL;
        }
    } else {
        errno = 0;
    }
    if (fd >= 0) {
        /* What was appended since the walk belongs to the last segment. */
        uint64_t size = (uint64_t)st.st_size, end = item->offset + item->length;
        end = item->last || end > size ? size : end;
        gone_on = scan_open(s, fd, index, end, p, ledger, pause, context);
        close(fd);
    } else if (errno == ENOENT || errno == ENOTDIR) {
        p->vanished += item->last != 0;
    } else if (errno != 0) {
        if (item->last || item->error != 0) {
            add_unreadable(ledger, index, errno);
            p->unreadable++;
        }
    }
    if (gone_on) {
        end_item(item, p);
        gone_on = pause(context, index);
    }
    return gone_on;
}
