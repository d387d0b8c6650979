#include "logbook.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <blake3.h>

#include "codec.h"
#include "log_format.h"

#define LANES_MAX 4096u

/* What a shard or run is known by, and its last version. */
struct subject {
    uint64_t uid;
    uint64_t shard; /* UINT64_MAX: the run itself */
    uint64_t version;
    uint64_t count; /* of a run: its shards */
};

struct chain {
    uint64_t id;
    uint32_t lane;
    uint32_t next;
    uint64_t *shards;
    size_t count, room;
    struct chain *older;
};

struct found {
    const struct rf_log_record *record;
    const uint8_t *body;
    uint32_t order;
};

struct reader {
    struct logbook *book;
    const char *directory;
    uint64_t data; /* bytes of log in a segment */
    struct rf_segment_header first;
    uint64_t first_number;
    uint64_t open_number;
    int fd;
    uint8_t *bytes;
    size_t room;
    uint64_t stamps[LANES_MAX];
    struct subject *subjects;
    size_t subject_count, subject_room;
    struct chain *chains;
    struct found *founds;
    size_t found_room, op_room;
    uint8_t previous[RF_LOG_HASH];
    struct rf_step_record *step;
    struct rf_run *run;
};

static bool wrong(struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool wrong(struct reader *r, const char *format, ...)
{
    va_list args;
    int n = snprintf(r->book->broken, sizeof(r->book->broken), "batch %" PRIu64 " at %" PRIu64 ": ",
                     r->book->last + 1, r->book->end);
    va_start(args, format);
    vsnprintf(r->book->broken + n, sizeof(r->book->broken) - (size_t)n, format, args);
    va_end(args);
    return false;
}

#define MUST(r, truth, ...)                                                                        \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            return wrong(r, __VA_ARGS__);                                                          \
        }                                                                                          \
    } while (0)

static void *grown(void *at, size_t *room, size_t need, size_t size)
{
    if (need > *room) {
        *room = need > 2 * *room ? need : 2 * *room;
        at = realloc(at, *room * size);
        if (at == NULL) {
            abort();
        }
    }
    return at;
}

static bool is_zero(const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    return true;
}

/* --- segments --- */

static void segment_path(const struct reader *r, uint64_t number, char *path, size_t size)
{
    snprintf(path, size, "%s/log.%016" PRIx64, r->directory, number);
}

/* False: there is none. */
static bool open_segment(struct reader *r, uint64_t number, struct rf_segment_header *header)
{
    char path[300];
    struct stat st;
    uint8_t block[RF_LOG_BLOCK], hash[RF_LOG_HASH];
    segment_path(r, number, path, sizeof(path));
    if (r->fd >= 0) {
        close(r->fd);
    }
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (r->fd < 0) {
        return false;
    }
    r->open_number = number;
    if (pread(r->fd, block, sizeof(block), 0) != (ssize_t)sizeof(block) || fstat(r->fd, &st) != 0) {
        return wrong(r, "segment %" PRIu64 " has no header", number);
    }
    memcpy(header, block, sizeof(*header));
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SEGMENT_CONTEXT);
    blake3_hasher_update(&hasher, block, offsetof(struct rf_segment_header, hash));
    blake3_hasher_finalize(&hasher, hash, sizeof(hash));
    MUST(r,
         header->magic == RF_SEGMENT_MAGIC && header->format == RF_LOG_FORMAT &&
             header->number == number && memcmp(hash, header->hash, sizeof(hash)) == 0,
         "segment %" PRIu64 " has a damaged header", number);
    MUST(r, (uint64_t)st.st_size == header->segment_bytes, "segment %" PRIu64 " has %lld bytes",
         number, (long long)st.st_size);
    MUST(r, is_zero(block + sizeof(*header), sizeof(block) - sizeof(*header)),
         "segment %" PRIu64 ": something behind the header", number);
    return true;
}

/* The bytes at a position of the log; what is not there reads as zeros. */
static bool fetch(struct reader *r, uint64_t position, uint8_t *to, size_t len)
{
    while (len != 0) {
        uint64_t number = position / r->data, offset = position % r->data;
        size_t part = len < r->data - offset ? len : (size_t)(r->data - offset);
        if (r->fd < 0 || r->open_number != number) {
            struct rf_segment_header header;
            if (!open_segment(r, number, &header)) {
                memset(to, 0, len);
                return r->book->broken[0] == 0;
            }
            MUST(r,
                 memcmp(header.store_id, r->first.store_id, 16) == 0 &&
                     header.incarnation == r->first.incarnation &&
                     header.first_number == r->first.first_number,
                 "segment %" PRIu64 " is of another log", number);
        }
        ssize_t got = pread(r->fd, to, part, (off_t)(RF_LOG_BLOCK + offset));
        MUST(r, got == (ssize_t)part, "segment %" PRIu64 " can't be read", number);
        to += part;
        len -= part;
        position += part;
    }
    return true;
}

/* --- records --- */

static struct subject *find_subject(struct reader *r, uint64_t uid, uint64_t shard, bool *fresh)
{
    for (;;) {
        if (r->subject_room != 0) {
            size_t mask = r->subject_room - 1;
            size_t i =
                (size_t)((uid * 0x9E3779B97F4A7C15u ^ shard) * 0xD6E8FEB86659FD93u >> 20) & mask;
            while (r->subjects[i].uid != 0 &&
                   (r->subjects[i].uid != uid || r->subjects[i].shard != shard)) {
                i = (i + 1) & mask;
            }
            *fresh = r->subjects[i].uid == 0;
            if (!*fresh || r->subject_count * 2 < r->subject_room) {
                r->subject_count += *fresh;
                r->subjects[i].uid = uid;
                r->subjects[i].shard = shard;
                return &r->subjects[i];
            }
        }
        struct subject *old = r->subjects;
        size_t room = r->subject_room;
        r->subject_room = room == 0 ? 4096 : 2 * room;
        r->subject_count = 0;
        r->subjects = calloc(r->subject_room, sizeof(*r->subjects));
        for (size_t i = 0; i < room; i++) {
            bool unused;
            if (old[i].uid != 0) {
                *find_subject(r, old[i].uid, old[i].shard, &unused) = old[i];
            }
        }
        free(old);
    }
}

static void note_op(struct reader *r, const struct rf_log_record *record, uint64_t op,
                    uint64_t shard, uint64_t version)
{
    struct logbook *b = r->book;
    b->ops = grown(b->ops, &r->op_room, b->op_count + 1, sizeof(*b->ops));
    b->ops[b->op_count++] = (struct logbook_op){.op = op,
                                                .epoch = b->last + 1,
                                                .uid = record->uid,
                                                .shard = shard,
                                                .version = version,
                                                .lane = record->lane};
}

/* A shard becomes known with its first version. */
static bool make_shard(struct reader *r, uint64_t uid, uint64_t shard)
{
    bool fresh;
    struct subject *s = find_subject(r, uid, shard, &fresh);
    MUST(r, fresh, "shard %" PRIu64 " was made twice", shard);
    s->version = 1;
    r->book->made++;
    return true;
}

/* Shards that a record makes: at once, or when their chain is closed. */
static bool read_made(struct reader *r, uint64_t uid, const uint8_t *at, size_t len, uint32_t count,
                      struct chain *chain, size_t *used)
{
    *used = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct rf_made_record made;
        size_t n;
        MUST(r, rf_codec_get_made(rf_bytes_of(at + *used, len - *used), &made, &n) == RF_OK,
             "a new shard can't be read");
        *used += n;
        if (chain != NULL) {
            chain->shards =
                grown(chain->shards, &chain->room, chain->count + 1, sizeof(*chain->shards));
            chain->shards[chain->count++] = made.shard;
        } else if (!make_shard(r, uid, made.shard)) {
            return false;
        }
    }
    return true;
}

static bool read_chunk(struct reader *r, const struct found *f)
{
    struct rf_log_chunk chunk;
    MUST(r, f->record->body_bytes >= sizeof(chunk) && f->record->uid == 0,
         "a chunk without a head, or of a run");
    memcpy(&chunk, f->body, sizeof(chunk));
    struct chain *c = r->chains;
    while (c != NULL && c->id != chunk.chain) {
        c = c->older;
    }
    if (c == NULL) {
        c = calloc(1, sizeof(*c));
        *c = (struct chain){.id = chunk.chain, .lane = f->record->lane, .older = r->chains};
        r->chains = c;
    }
    MUST(r, c->lane == f->record->lane, "a chain in two lanes");
    MUST(r, c->next == chunk.index, "chunk %u where %u belongs", chunk.index, c->next);
    c->next++;
    r->book->chunks++;
    size_t used;
    return read_made(r, f->record->uid, f->body + sizeof(chunk),
                     f->record->body_bytes - sizeof(chunk), chunk.count, c, &used) &&
           (used + sizeof(chunk) == f->record->body_bytes || wrong(r, "a chunk's rest"));
}

/* The shards of a record, where they go, and its chain. */
static bool read_place(struct reader *r, const struct found *f, uint32_t count,
                       const struct rf_log_made *place)
{
    bool fresh;
    struct subject *run = find_subject(r, f->record->uid, UINT64_MAX, &fresh);
    MUST(r, !fresh, "shards of a run that nobody made");
    MUST(r, place->made_from == run->count, "new shards at %u, the run has %" PRIu64,
         place->made_from, run->count);
    run->count += count;
    if (place->chain != 0) {
        struct chain *c = r->chains;
        while (c != NULL && c->id != place->chain) {
            c = c->older;
        }
        MUST(r, c != NULL && c->lane == f->record->lane, "a chain without chunks");
        MUST(r, c->count == count, "a chain of %zu shards closed with %u", c->count, count);
        for (size_t i = 0; i < c->count; i++) {
            if (!make_shard(r, f->record->uid, c->shards[i])) {
                return false;
            }
        }
        c->id = 0; /* closed */
        r->book->chains++;
    }
    return true;
}

static bool read_tail(struct reader *r, const struct found *f, size_t at, uint32_t count,
                      const struct rf_log_made *place)
{
    size_t used = 0;
    if (count != 0 && place->chain == 0 &&
        !read_made(r, f->record->uid, f->body + at, f->record->body_bytes - at, count, NULL,
                   &used)) {
        return false;
    }
    MUST(r, at + used == f->record->body_bytes, "a record with a rest of %zu bytes",
         f->record->body_bytes - at - used);
    return true;
}

static bool read_step(struct reader *r, const struct found *f)
{
    struct rf_log_step where;
    struct rf_log_made place = {0};
    size_t at = sizeof(where), used;
    bool fresh;
    MUST(r, f->record->body_bytes >= sizeof(where) + sizeof(place), "a short step");
    memcpy(&where, f->body, sizeof(where));
    if (where.made != 0) {
        memcpy(&place, f->body + at, sizeof(place));
        at += sizeof(place);
    }
    MUST(r,
         rf_codec_get_step(rf_bytes_of(f->body + at, f->record->body_bytes - at), r->step, &used) ==
             RF_OK,
         "a step can't be read");
    at += used;
    struct subject *s = find_subject(r, f->record->uid, r->step->shard, &fresh);
    MUST(r, !fresh, "a step of a shard that nobody made");
    MUST(r, r->step->version == s->version + 1,
         "version %" PRIu64 " of shard %" PRIu64 " follows version %" PRIu64 " (stamp %" PRIu64
         ", lane %u)",
         r->step->version, r->step->shard, s->version, f->record->stamp, f->record->lane);
    s->version++;
    if ((r->step->step.changes & RF_CHANGED_RING) != 0) {
        note_op(r, f->record, r->step->step.entry.op, r->step->shard, r->step->version);
    }
    return (where.made == 0 || read_place(r, f, where.made, &place)) &&
           read_tail(r, f, at, where.made, &place);
}

static bool read_run(struct reader *r, const struct found *f)
{
    struct rf_log_run where;
    struct rf_log_made place = {0};
    size_t at = sizeof(where), used;
    bool fresh;
    MUST(r, f->record->body_bytes >= sizeof(where), "a short run");
    memcpy(&where, f->body, sizeof(where));
    if (where.made != 0) {
        memcpy(&place, f->body + at, sizeof(place));
        at += sizeof(place);
    }
    MUST(r,
         rf_codec_get_run(rf_bytes_of(f->body + at, f->record->body_bytes - at), r->run, &used) ==
             RF_OK,
         "a run can't be read");
    at += used;
    struct subject *s = find_subject(r, f->record->uid, UINT64_MAX, &fresh);
    MUST(r, fresh == ((where.flags & RF_LOG_RUN_CREATED) != 0), "a run made twice, or never");
    MUST(r, fresh || where.version == s->version + 1,
         "version %" PRIu64 " of a run follows version %" PRIu64, where.version, s->version);
    s->version = where.version;
    if (r->run->ring_count != 0) {
        uint32_t newest = (r->run->ring_next + RF_RUN_RING - 1u) % RF_RUN_RING;
        note_op(r, f->record, r->run->ring.op[newest], 0, where.version);
    }
    return (where.made == 0 || read_place(r, f, where.made, &place)) &&
           read_tail(r, f, at, where.made, &place);
}

static int by_stamp(const void *a, const void *b)
{
    const struct found *x = a, *y = b;
    if (x->record->stamp != y->record->stamp) {
        return x->record->stamp < y->record->stamp ? -1 : 1;
    }
    return x->order < y->order ? -1 : 1;
}

static bool read_records(struct reader *r, const struct rf_batch_header *b)
{
    size_t at = sizeof(*b), end = sizeof(*b) + b->record_bytes;
    uint32_t lanes = 0, last_lane = 0;
    r->founds = grown(r->founds, &r->found_room, b->records, sizeof(*r->founds));
    for (uint32_t i = 0; i < b->records; i++) {
        const struct rf_log_record *record = (const void *)(r->bytes + at);
        MUST(r,
             at + sizeof(*record) <= end && record->bytes >= sizeof(*record) &&
                 record->bytes % 8 == 0 && at + record->bytes <= end,
             "record %u has %u bytes", i, record->bytes);
        const uint8_t *body = (const uint8_t *)(record + 1);
        MUST(r,
             record->body_bytes + sizeof(*record) <= record->bytes &&
                 record->bytes - record->body_bytes - sizeof(*record) < 8 &&
                 is_zero(body + record->body_bytes,
                         record->bytes - record->body_bytes - sizeof(*record)),
             "record %u has a body of %u bytes", i, record->body_bytes);
        MUST(r, record->lane < LANES_MAX && (i == 0 || record->lane >= last_lane),
             "lane %u after lane %u", record->lane, last_lane);
        MUST(r, record->stamp > r->stamps[record->lane],
             "stamp %" PRIu64 " after stamp %" PRIu64 " in lane %u", record->stamp,
             r->stamps[record->lane], record->lane);
        lanes += i == 0 || record->lane != last_lane;
        last_lane = record->lane;
        r->stamps[record->lane] = record->stamp;
        r->founds[i] = (struct found){.record = record, .body = body, .order = i};
        at += record->bytes;
    }
    MUST(r, at == end && lanes == b->lanes, "%u records of %u lanes do not fill %" PRIu64 " bytes",
         b->records, b->lanes, b->record_bytes);
    /* The order of replay. */
    qsort(r->founds, b->records, sizeof(*r->founds), by_stamp);
    for (uint32_t i = 0; i < b->records; i++) {
        const struct found *f = &r->founds[i];
        bool fine = f->record->kind == RF_LOG_STEP    ? read_step(r, f)
                    : f->record->kind == RF_LOG_RUN   ? read_run(r, f)
                    : f->record->kind == RF_LOG_CHUNK ? read_chunk(r, f)
                    : f->record->kind == RF_LOG_PURGE
                        ? true
                        : wrong(r, "a record of kind %u", f->record->kind);
        if (!fine) {
            return false;
        }
    }
    return true;
}

/* --- batches --- */

/* *there: a whole batch that belongs here. */
static bool read_batch(struct reader *r, bool *there)
{
    struct logbook *book = r->book;
    struct rf_batch_header b;
    uint8_t hash[RF_LOG_HASH];
    *there = false;
    if (!fetch(r, book->end, r->bytes, RF_LOG_BLOCK)) {
        return false;
    }
    memcpy(&b, r->bytes, sizeof(b));
    if (b.magic != RF_BATCH_MAGIC || b.epoch != book->last + 1 || b.bytes % RF_LOG_BLOCK != 0 ||
        b.bytes == 0 || b.bytes > 1ull << 32 || sizeof(b) + b.record_bytes > b.bytes) {
        return true;
    }
    r->bytes = grown(r->bytes, &r->room, b.bytes, 1);
    if (!fetch(r, book->end, r->bytes, b.bytes)) {
        return false;
    }
    memset(r->bytes + offsetof(struct rf_batch_header, hash), 0, RF_LOG_HASH);
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_BATCH_CONTEXT);
    blake3_hasher_update(&hasher, r->bytes, sizeof(b) + b.record_bytes);
    blake3_hasher_finalize(&hasher, hash, sizeof(hash));
    if (memcmp(hash, b.hash, sizeof(hash)) != 0) {
        return true; /* not yet, or not wholly, there */
    }
    *there = true;
    MUST(r, b.format == RF_LOG_FORMAT && b.header_bytes == sizeof(b) && b.zero == 0, "its form");
    MUST(r, memcmp(b.store_id, r->first.store_id, 16) == 0 && b.incarnation == r->first.incarnation,
         "another store's");
    MUST(r, b.position == book->end, "it says position %" PRIu64, b.position);
    MUST(r, memcmp(b.previous, r->previous, RF_LOG_HASH) == 0, "it follows another batch");
    MUST(r, b.durable < b.epoch && b.durable >= book->vouched, "durable %" PRIu64 " after %" PRIu64,
         b.durable, book->vouched);
    MUST(r,
         b.bytes - sizeof(b) - b.record_bytes < RF_LOG_BLOCK &&
             is_zero(r->bytes + sizeof(b) + b.record_bytes, b.bytes - sizeof(b) - b.record_bytes),
         "something behind the records");
    if (!read_records(r, &b)) {
        return false;
    }
    memcpy(r->previous, b.hash, sizeof(r->previous));
    book->batches++;
    book->empty += b.records == 0;
    book->records += b.records;
    book->crossing += book->end / r->data != (book->end + b.bytes - 1) / r->data;
    book->largest = b.bytes > book->largest ? b.bytes : book->largest;
    book->wide += b.lanes > 1;
    book->content = b.records != 0 ? b.epoch : book->content;
    book->vouched = b.durable;
    book->last = b.epoch;
    book->end += b.bytes;
    return true;
}

static int by_op(const void *a, const void *b)
{
    const struct logbook_op *x = a, *y = b;
    return x->op < y->op ? -1 : x->op > y->op;
}

static int by_shard(const void *a, const void *b)
{
    const struct logbook_shard *x = a, *y = b;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

static void keep_shards(struct reader *r)
{
    struct logbook *b = r->book;
    b->shards = calloc(r->subject_count + 1, sizeof(*b->shards));
    for (size_t i = 0; i < r->subject_room; i++) {
        const struct subject *s = &r->subjects[i];
        if (s->uid != 0 && s->shard != UINT64_MAX) {
            b->shards[b->shard_count++] = (struct logbook_shard){s->shard, s->version};
        }
    }
    qsort(b->shards, b->shard_count, sizeof(*b->shards), by_shard);
}

bool logbook_read(struct logbook *book, const char *directory, uint64_t at_least)
{
    struct reader *r = calloc(1, sizeof(*r));
    *book = (struct logbook){0};
    *r = (struct reader){.book = book,
                         .directory = directory,
                         .fd = -1,
                         .step = calloc(1, sizeof(struct rf_step_record)),
                         .run = calloc(1, sizeof(struct rf_run))};
    r->bytes = grown(NULL, &r->room, RF_LOG_BLOCK, 1);
    bool there = true, fine = open_segment(r, 0, &r->first) || wrong(r, "there is no log");
    if (fine) {
        r->data = r->first.segment_bytes - RF_LOG_BLOCK;
        memcpy(r->previous, r->first.after.hash, sizeof(r->previous));
        book->last = r->first.durable;
        book->vouched = r->first.durable;
    }
    while (fine && there) {
        fine = read_batch(r, &there);
    }
    if (fine && book->last < at_least) {
        fine = wrong(r, "the log ends here, before epoch %" PRIu64, at_least);
    }
    if (book->op_count != 0) {
        qsort(book->ops, book->op_count, sizeof(*book->ops), by_op);
    }
    keep_shards(r);
    while (r->chains != NULL) {
        struct chain *older = r->chains->older;
        free(r->chains->shards);
        free(r->chains);
        r->chains = older;
    }
    if (r->fd >= 0) {
        close(r->fd);
    }
    free(r->subjects);
    free(r->founds);
    free(r->bytes);
    free(r->step);
    free(r->run);
    free(r);
    return fine;
}

void logbook_free(struct logbook *book)
{
    free(book->ops);
    free(book->shards);
    *book = (struct logbook){0};
}

const struct logbook_op *logbook_find(const struct logbook *book, uint64_t op)
{
    const struct logbook_op key = {.op = op};
    return book->op_count == 0
               ? NULL
               : bsearch(&key, book->ops, book->op_count, sizeof(*book->ops), by_op);
}

uint64_t logbook_version(const struct logbook *book, uint64_t shard)
{
    const struct logbook_shard key = {.shard = shard};
    const struct logbook_shard *found =
        bsearch(&key, book->shards, book->shard_count, sizeof(key), by_shard);
    return found == NULL ? 0 : found->version;
}

uint64_t logbook_fingerprint(const struct logbook *book, const char *directory)
{
    struct reader r = {.directory = directory, .fd = -1, .book = &(struct logbook){0}};
    static uint8_t bytes[64 * RF_LOG_BLOCK];
    uint64_t print = 0;
    blake3_hasher hasher;
    blake3_hasher_init(&hasher);
    if (!open_segment(&r, 0, &r.first)) {
        return 0;
    }
    r.data = r.first.segment_bytes - RF_LOG_BLOCK;
    for (uint64_t at = 0; at < book->end; at += sizeof(bytes)) {
        size_t len = book->end - at < sizeof(bytes) ? (size_t)(book->end - at) : sizeof(bytes);
        if (!fetch(&r, at, bytes, len)) {
            print = 1;
        }
        blake3_hasher_update(&hasher, bytes, len);
    }
    if (r.fd >= 0) {
        close(r.fd);
    }
    if (print == 0) {
        blake3_hasher_finalize(&hasher, (uint8_t *)&print, sizeof(print));
    }
    return print;
}
