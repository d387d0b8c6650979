#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <blake3.h>

#include "formats.h"
#include "snapshot.h"

#define WINDOW_BYTES (1u << 20) /* holds any entry */

_Static_assert(WINDOW_BYTES > 2 * (sizeof(struct rf_snapshot_shard) + RF_CODEC_SHARD_MAX),
               "an entry fits");

/* A file that is read from front to back. */
struct stream {
    int fd;
    const char *name;
    uint64_t left; /* bytes of the file that were not read yet */
    uint8_t *window;
    size_t at, len;
};

void rf_snapshot_name(uint64_t epoch, char name[RF_SNAPSHOT_NAME])
{
    snprintf(name, RF_SNAPSHOT_NAME, RF_SNAPSHOT_PREFIX "%016" PRIx64, epoch);
}

static rf_status refuse(const struct stream *s, rf_detail *detail, const char *what)
{
    return rf_refuse(detail, RF_CORRUPT, 0, "%s %s", s->name, what);
}

/* Makes up to WINDOW_BYTES readable from s->at on. */
static rf_status fill(struct stream *s, rf_detail *detail)
{
    memmove(s->window, s->window + s->at, s->len - s->at);
    s->len -= s->at;
    s->at = 0;
    while (s->len < WINDOW_BYTES && s->left != 0) {
        size_t n = WINDOW_BYTES - s->len < s->left ? WINDOW_BYTES - s->len : (size_t)s->left;
        ssize_t got = read(s->fd, s->window + s->len, n);
        if (got == 0) {
            return refuse(s, detail, "is shorter than it says");
        }
        if (got < 0 && errno != EINTR) {
            return rf_refuse(detail, RF_IO_ERROR, errno, "reading %s", s->name);
        }
        s->len += got > 0 ? (size_t)got : 0;
        s->left -= got > 0 ? (uint64_t)got : 0;
    }
    return RF_OK;
}

static rf_status open_stream(int dir_fd, const char *name, struct stream *s, rf_detail *detail)
{
    *s = (struct stream){.name = name, .window = malloc(WINDOW_BYTES)};
    s->fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (s->fd >= 0 && s->window != NULL) {
        posix_fadvise(s->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
        return RF_OK;
    }
    int error = s->fd < 0 ? errno : ENOMEM;
    if (s->fd >= 0) {
        close(s->fd);
    }
    free(s->window);
    return rf_refuse(detail,
                     error == ENOENT   ? RF_NOT_FOUND
                     : error == ENOMEM ? RF_RESOURCE_EXHAUSTED
                                       : RF_IO_ERROR,
                     error, "opening %s", name);
}

static void close_stream(struct stream *s)
{
    close(s->fd);
    free(s->window);
}

/* The header block; then s->left is what the header says is left of the file. */
static rf_status read_header(struct stream *s, uint64_t epoch, const uint8_t store_id[16],
                             struct rf_snapshot_header *h, rf_detail *detail)
{
    s->left = RF_LOG_BLOCK;
    rf_status status = fill(s, detail);
    if (status != RF_OK) {
        return status;
    }
    memcpy(h, s->window, sizeof(*h));
    if (h->magic != RF_SNAPSHOT_MAGIC) {
        return refuse(s, detail, "is not a snapshot");
    }
    if (h->format != RF_SNAPSHOT_FORMAT || h->header_bytes != sizeof(*h) ||
        h->bytes < RF_LOG_BLOCK || h->zero != 0) {
        return refuse(s, detail, "has a damaged header");
    }
    for (size_t i = sizeof(*h); i < RF_LOG_BLOCK; i++) {
        if (s->window[i] != 0) {
            return refuse(s, detail, "has a damaged header");
        }
    }
    if (memcmp(h->store_id, store_id, sizeof(h->store_id)) != 0) {
        return refuse(s, detail, "belongs to another store");
    }
    if (h->epoch != epoch || h->epoch == 0 || h->complete < h->epoch || h->next_uid == 0) {
        return refuse(s, detail, "is not what its name says");
    }
    s->at = RF_LOG_BLOCK;
    s->left = h->bytes - RF_LOG_BLOCK;
    return RF_OK;
}

/* Whether the file is a snapshot of any format, by its hash: in all of them that is the end of the header, as long as
 * the header says, and is over what is behind the header's block and then the header. */
static bool is_whole(struct stream *s, const uint8_t header[RF_LOG_BLOCK], uint32_t header_bytes)
{
    static const uint8_t zeros[RF_LOG_HASH];
    uint8_t hash[RF_LOG_HASH];
    rf_detail ignored = {0};
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SNAPSHOT_CONTEXT);
    for (s->left = UINT64_MAX; fill(s, &ignored) == RF_OK || s->len != 0; s->at = s->len) {
        blake3_hasher_update(&hasher, s->window, s->len);
    }
    blake3_hasher_update(&hasher, header, header_bytes - RF_LOG_HASH);
    blake3_hasher_update(&hasher, zeros, sizeof(zeros));
    blake3_hasher_finalize(&hasher, hash, sizeof(hash));
    return memcmp(hash, header + header_bytes - RF_LOG_HASH, sizeof(hash)) == 0;
}

/* Said of a header that is not one of ours, if it is somebody's. */
static rf_status refuse_format(struct stream *s, rf_detail *detail)
{
    struct rf_snapshot_header h;
    uint8_t block[RF_LOG_BLOCK];
    if (s->len < sizeof(block)) {
        return RF_OK;
    }
    memcpy(block, s->window, sizeof(block));
    memcpy(&h, block, sizeof(h));
    if (h.magic != RF_SNAPSHOT_MAGIC || h.format == RF_SNAPSHOT_FORMAT ||
        h.header_bytes < 16 + RF_LOG_HASH || h.header_bytes > RF_LOG_BLOCK) {
        return RF_OK;
    }
    s->at = RF_LOG_BLOCK;
    if (!is_whole(s, block, h.header_bytes)) {
        return RF_OK;
    }
    return rf_refuse_format(RF_FORMAT_SNAPSHOT, h.format, s->name, detail);
}

rf_status rf_snapshot_check_slowly(int dir_fd, uint64_t epoch, const uint8_t store_id[16],
                                   struct rf_snapshot_header *h, void (*rest)(void *context),
                                   void *context, rf_detail *detail)
{
    struct stream s;
    char name[RF_SNAPSHOT_NAME], more;
    uint8_t hash[RF_LOG_HASH];
    rf_snapshot_name(epoch, name);
    rf_status status = open_stream(dir_fd, name, &s, detail);
    if (status != RF_OK) {
        return status;
    }
    status = read_header(&s, epoch, store_id, h, detail);
    if (status == RF_CORRUPT && refuse_format(&s, detail) != RF_OK) {
        status = RF_VERSION_MISMATCH;
    }
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SNAPSHOT_CONTEXT);
    while (status == RF_OK && (s.left != 0 || s.at != s.len)) {
        s.at = s.len; /* the header block, or what was hashed already */
        status = fill(&s, detail);
        if (status == RF_OK) {
            blake3_hasher_update(&hasher, s.window, s.len);
            s.at = s.len;
            rest(context);
        }
    }
    if (status == RF_OK) {
        struct rf_snapshot_header plain = *h;
        memset(plain.hash, 0, sizeof(plain.hash));
        blake3_hasher_update(&hasher, &plain, sizeof(plain));
        blake3_hasher_finalize(&hasher, hash, sizeof(hash));
        if (memcmp(hash, h->hash, sizeof(hash)) != 0 || read(s.fd, &more, 1) != 0) {
            status = refuse(&s, detail, "is damaged");
        }
    }
    close_stream(&s);
    return status;
}

static void no_rest(void *context)
{
    (void)context;
}

rf_status rf_snapshot_check(int dir_fd, uint64_t epoch, const uint8_t store_id[16],
                            struct rf_snapshot_header *h, rf_detail *detail)
{
    return rf_snapshot_check_slowly(dir_fd, epoch, store_id, h, no_rest, NULL, detail);
}

/* The next entry, whole in the window: both kinds begin with their length and their body's. */
static rf_status next_entry(struct stream *s, size_t fixed, const uint8_t **entry, rf_bytes *body,
                            rf_detail *detail)
{
    uint32_t bytes[2] = {0};
    if (s->len - s->at < WINDOW_BYTES / 2 && s->left != 0) {
        rf_status status = fill(s, detail);
        if (status != RF_OK) {
            return status;
        }
    }
    size_t there = s->len - s->at;
    if (there >= fixed) {
        memcpy(bytes, s->window + s->at, sizeof(bytes));
    }
    if (there < fixed || bytes[0] > there || bytes[0] % 8 != 0 || bytes[0] < fixed ||
        bytes[1] > bytes[0] - fixed) {
        return refuse(s, detail, "holds what is not an entry");
    }
    *entry = s->window + s->at;
    *body = rf_bytes_of(*entry + fixed, bytes[1]);
    s->at += bytes[0];
    return RF_OK;
}

static rf_status load_run(struct stream *s, struct rf_replay *replay, uint64_t *shards,
                          rf_detail *detail)
{
    struct rf_snapshot_run run;
    struct rf_snapshot_shard shard;
    const uint8_t *entry;
    rf_bytes body;
    rf_status status = next_entry(s, sizeof(run), &entry, &body, detail);
    if (status != RF_OK) {
        return status;
    }
    memcpy(&run, entry, sizeof(run));
    status = rf_replay_run(replay, &run, body, detail);
    for (uint64_t i = 0; status == RF_OK && i < run.shards; i++) {
        status = next_entry(s, sizeof(shard), &entry, &body, detail);
        if (status != RF_OK) {
            return status;
        }
        memcpy(&shard, entry, sizeof(shard));
        if (shard.position == UINT32_MAX && shard.body_bytes == 0) {
            return rf_replay_forget(replay, detail);
        }
        status = rf_replay_shard(replay, &shard, body, detail);
        (*shards)++;
    }
    return status;
}

rf_status rf_snapshot_load(int dir_fd, const struct rf_snapshot_header *header,
                           struct rf_replay *replay, rf_detail *detail)
{
    struct stream s;
    struct rf_snapshot_header h;
    char name[RF_SNAPSHOT_NAME];
    uint64_t shards = 0;
    rf_snapshot_name(header->epoch, name);
    rf_status status = open_stream(dir_fd, name, &s, detail);
    if (status != RF_OK) {
        return status;
    }
    status = read_header(&s, header->epoch, header->store_id, &h, detail);
    if (status == RF_OK) {
        rf_replay_base(replay, h.next_uid, h.floor, h.time);
        for (uint64_t i = 0; status == RF_OK && i < h.runs; i++) {
            status = load_run(&s, replay, &shards, detail);
        }
    }
    if (status == RF_OK && (shards != h.shards || s.at != s.len || s.left != 0)) {
        status = refuse(&s, detail, "holds more or less than it says");
    }
    close_stream(&s);
    return status;
}

/* --- which are there --- */

struct listing {
    uint64_t *epochs;
    unsigned room, count;
};

/* They come in ascending order; the newest go to the front. */
static void note(void *context, uint64_t epoch)
{
    struct listing *l = context;
    unsigned keep = l->count < l->room ? l->count : l->room - 1;
    memmove(l->epochs + 1, l->epochs, keep * sizeof(l->epochs[0]));
    l->epochs[0] = epoch;
    l->count = keep + 1;
}

rf_status rf_snapshot_list(struct rf_disk *disk, uint64_t *epochs, unsigned room, unsigned *count,
                           rf_detail *detail)
{
    struct listing l = {.epochs = epochs, .room = room};
    rf_status status = rf_disk_list(disk, RF_SNAPSHOT_PREFIX, note, &l, detail);
    *count = l.count;
    return status;
}
