#include "scribe.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unity.h>

#include "shop.h"

static rf_detail detail;

static void must(rf_status status)
{
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
}

void rf_scribe_open(struct rf_scribe *b, uint64_t segment_bytes)
{
    memset(b, 0, sizeof(*b));
    snprintf(b->directory, sizeof(b->directory), "/tmp/ringfence-scribe-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(b->directory));
    b->dir_fd = open(b->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(b->dir_fd >= 0);
    b->segment_bytes = segment_bytes;
    memcpy(b->store_id, "a store by hand!", sizeof(b->store_id));
    must(rf_disk_open(b->dir_fd, 0600, (gid_t)-1, segment_bytes, &b->disk, &detail));
    b->room = 1u << 20;
    b->records = malloc(b->room);
    TEST_ASSERT_NOT_NULL(b->records);
}

void rf_scribe_close(struct rf_scribe *b)
{
    if (b->disk == NULL) {
        return;
    }
    rf_disk_close(b->disk);
    DIR *listing = fdopendir(b->dir_fd);
    for (struct dirent *e; listing != NULL && (e = readdir(listing)) != NULL;) {
        unlinkat(b->dir_fd, e->d_name, 0);
    }
    closedir(listing);
    rmdir(b->directory);
    free(b->records);
    memset(b, 0, sizeof(*b));
}

static uint64_t data_bytes(const struct rf_scribe *b)
{
    return b->segment_bytes - RF_LOG_BLOCK;
}

static void make_segment(struct rf_scribe *b, uint64_t number)
{
    struct rf_segment_header h = {.magic = RF_SEGMENT_MAGIC,
                                  .format = RF_LOG_FORMAT,
                                  .header_bytes = sizeof(h),
                                  .number = number,
                                  .segment_bytes = b->segment_bytes,
                                  .incarnation = b->incarnation,
                                  .first_number = b->first,
                                  .after = b->after,
                                  .durable = b->vouched};
    memcpy(h.store_id, b->store_id, sizeof(h.store_id));
    must(rf_segment_make(b->disk, &h, number, &detail));
}

static void note(void *context, uint64_t number)
{
    *(uint64_t *)context = number + 1;
}

void rf_scribe_incarnation(struct rf_scribe *b, uint64_t incarnation,
                           const struct rf_log_end *after)
{
    uint64_t next = 0;
    must(rf_disk_list(b->disk, "log.", note, &next, &detail));
    b->incarnation = incarnation;
    b->first = next;
    b->after = after != NULL ? *after : b->end;
    b->end = b->after;
    b->end.position = next * data_bytes(b);
    b->end.epoch += b->skip;
    b->vouched = b->end.epoch; /* its epochs go on behind this */
    make_segment(b, next);
}

/* --- records --- */

void rf_scribe_record(struct rf_scribe *b, enum rf_log_kind kind, uint32_t lane, uint64_t stamp,
                      uint64_t uid, const void *body, size_t bytes)
{
    size_t padded = (bytes + 7) & ~(size_t)7;
    struct rf_log_record r = {.bytes = (uint32_t)(sizeof(r) + padded),
                              .kind = (uint16_t)kind,
                              .stamp = stamp,
                              .uid = uid,
                              .body_bytes = (uint32_t)bytes,
                              .lane = lane};
    while (b->record_bytes + sizeof(r) + padded > b->room) {
        b->room *= 2;
        b->records = realloc(b->records, b->room);
        TEST_ASSERT_NOT_NULL(b->records);
    }
    memcpy(b->records + b->record_bytes, &r, sizeof(r));
    memset(b->records + b->record_bytes + sizeof(r), 0, padded);
    if (bytes != 0) {
        memcpy(b->records + b->record_bytes + sizeof(r), body, bytes);
    }
    b->record_bytes += sizeof(r) + padded;
    b->count++;
}

static uint8_t body[1u << 20];

static size_t put_made(size_t at, const struct rf_made_record *shards, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t len;
        must(rf_codec_put_made(&shards[i], body + at, sizeof(body) - at, &len));
        at += len;
    }
    return at;
}

static size_t put_place(size_t at, const struct rf_scribe_made *made)
{
    if (made == NULL) {
        return at;
    }
    const struct rf_log_made place = {.chain = made->chain, .made_from = made->made_from};
    memcpy(body + at, &place, sizeof(place));
    return at + sizeof(place);
}

static size_t put_rest(size_t at, const struct rf_scribe_made *made)
{
    return made == NULL || made->chain != 0 ? at : put_made(at, made->shards, made->count);
}

void rf_scribe_run(struct rf_scribe *b, uint32_t lane, uint64_t stamp, uint64_t uid,
                   uint64_t version, bool created, const struct rf_run *run,
                   const struct rf_scribe_made *made)
{
    const struct rf_log_run head = {.version = version,
                                    .made = made == NULL ? 0 : made->count,
                                    .flags = created ? RF_LOG_RUN_CREATED : 0};
    size_t len, at = sizeof(head);
    memcpy(body, &head, sizeof(head));
    at = put_place(at, made);
    must(rf_codec_put_run(run, body + at, sizeof(body) - at, &len));
    at = put_rest(at + len, made);
    rf_scribe_record(b, RF_LOG_RUN, lane, stamp, uid, body, at);
}

void rf_scribe_step(struct rf_scribe *b, uint32_t lane, uint64_t stamp, uint64_t uid,
                    uint32_t position, uint64_t shard, uint64_t version, uint64_t time,
                    const struct rf_shard_step *step, const struct rf_scribe_made *made)
{
    const struct rf_log_step head = {.position = position, .made = made == NULL ? 0 : made->count};
    size_t len, at = sizeof(head);
    memcpy(body, &head, sizeof(head));
    at = put_place(at, made);
    must(rf_codec_put_step(shard, version, time, step, body + at, sizeof(body) - at, &len));
    at = put_rest(at + len, made);
    rf_scribe_record(b, RF_LOG_STEP, lane, stamp, uid, body, at);
}

void rf_scribe_chunk(struct rf_scribe *b, uint32_t lane, uint64_t stamp, uint64_t uid,
                     uint64_t chain, uint32_t index, const struct rf_made_record *shards,
                     uint32_t count)
{
    const struct rf_log_chunk head = {.chain = chain, .index = index, .count = count};
    memcpy(body, &head, sizeof(head));
    rf_scribe_record(b, RF_LOG_CHUNK, lane, stamp, uid, body,
                     put_made(sizeof(head), shards, count));
}

void rf_scribe_purge(struct rf_scribe *b, uint32_t lane, uint64_t stamp, uint64_t uid,
                     uint64_t floor, uint64_t time)
{
    const struct rf_log_purge purge = {.floor = floor, .time = time};
    rf_scribe_record(b, RF_LOG_PURGE, lane, stamp, uid, &purge, sizeof(purge));
}

/* --- batches --- */

struct rf_batch_header rf_scribe_header(const struct rf_scribe *b, uint64_t durable)
{
    size_t whole = sizeof(struct rf_batch_header) + b->record_bytes;
    struct rf_batch_header h = {.magic = RF_BATCH_MAGIC,
                                .format = RF_LOG_FORMAT,
                                .header_bytes = sizeof(h),
                                .incarnation = b->incarnation,
                                .epoch = b->end.epoch + 1,
                                .position = b->end.position,
                                .bytes = (whole + RF_LOG_BLOCK - 1) / RF_LOG_BLOCK * RF_LOG_BLOCK,
                                .record_bytes = b->record_bytes,
                                .records = b->count,
                                .durable = durable};
    memcpy(h.store_id, b->store_id, sizeof(h.store_id));
    memcpy(h.previous, b->end.hash, sizeof(h.previous));
    return h;
}

static void write_batch(struct rf_scribe *b, struct rf_batch_header *h, bool sealed)
{
    uint8_t *block = aligned_alloc(RF_LOG_BLOCK, h->bytes);
    TEST_ASSERT_NOT_NULL(block);
    memset(block, 0, h->bytes);
    if (sealed) {
        rf_batch_hash(h, b->records, h->hash);
    }
    memcpy(block, h, sizeof(*h));
    memcpy(block + sizeof(*h), b->records, b->record_bytes);
    for (uint64_t n = h->position / data_bytes(b);
         n <= (h->position + h->bytes - 1) / data_bytes(b); n++) {
        if (!rf_segment_exists(b->disk, n)) {
            make_segment(b, n);
        }
    }
    must(rf_log_write(b->disk, h->position, block, h->bytes, &detail));
    free(block);
    b->record_bytes = 0;
    b->count = 0;
}

void rf_scribe_forge(struct rf_scribe *b, struct rf_batch_header header, bool sealed)
{
    write_batch(b, &header, sealed);
}

void rf_scribe_batch(struct rf_scribe *b, uint64_t durable)
{
    struct rf_batch_header h = rf_scribe_header(b, durable);
    TEST_ASSERT_TRUE(h.epoch < RF_SCRIBE_BATCHES);
    b->batches[h.epoch].position = h.position;
    b->batches[h.epoch].bytes = h.bytes;
    b->batches[h.epoch].record_bytes = h.record_bytes;
    b->batches[h.epoch].durable = durable;
    b->batches[h.epoch].incarnation = b->incarnation;
    write_batch(b, &h, true);
    b->end.epoch = h.epoch;
    b->end.position = h.position + h.bytes;
    memcpy(b->end.hash, h.hash, sizeof(h.hash));
}

/* --- damage --- */

void rf_scribe_locate(const struct rf_scribe *b, uint64_t position, char name[64], off_t *offset)
{
    snprintf(name, 64, "%.40s/log.%016" PRIx64, b->directory, position / data_bytes(b));
    *offset = (off_t)(RF_LOG_BLOCK + position % data_bytes(b));
}

void rf_scribe_flip(const char *name, off_t offset, uint8_t mask)
{
    uint8_t byte;
    int fd = open(name, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL(1, pread(fd, &byte, 1, offset));
    byte ^= mask;
    TEST_ASSERT_EQUAL(1, pwrite(fd, &byte, 1, offset));
    close(fd);
}
