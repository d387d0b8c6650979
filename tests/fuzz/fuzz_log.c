/*
 * Segments of a log, damaged in any way, and read: refused, cut, or read; never a crash, never a hang, and
 * every batch that is read without a new signature is one that was written. Behind the hashes (see `sign`
 * below) the order of the records and the codec must hold. The fast one beside fuzz_store, which opens a whole
 * store.
 *
 * The input: a byte of flags (1: sign batches again, 2: sign headers again), then edits of 4 bytes and more:
 * offset (3 bytes, over all segments), length (1, at most 64), that many bytes.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <blake3.h>

#include "codec.h"
#include "log_read.h"
#include "records.h"

#define SEGMENT  (8u * RF_LOG_BLOCK)
#define DATA     (SEGMENT - RF_LOG_BLOCK)
#define SEGMENTS 3u
#define BATCHES  12u

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

static struct {
    char directory[64];
    int dir_fd;
    struct rf_disk *disk;
    uint8_t *mapped[SEGMENTS]; /* the files themselves */
    uint8_t good[SEGMENTS][SEGMENT];
    uint8_t hashes[BATCHES + 1][RF_LOG_HASH]; /* of what was written, by epoch */
    uint64_t last;
} lab;
static const uint8_t store_id[16] = "the fuzzed store";

static void must(bool good, const char *what)
{
    if (!good) {
        perror(what);
        abort();
    }
}

static void sign_header(uint8_t *segment)
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SEGMENT_CONTEXT);
    blake3_hasher_update(&hasher, segment, offsetof(struct rf_segment_header, hash));
    blake3_hasher_finalize(&hasher, segment + offsetof(struct rf_segment_header, hash),
                           RF_LOG_HASH);
}

static uint8_t *at_position(uint64_t position)
{
    return lab.mapped[position / DATA] + RF_LOG_BLOCK + position % DATA;
}

/* A batch does not run over the end of its segment here: the test of the reader has those. */
static uint64_t write_batch(struct rf_prng *prng, uint64_t epoch, uint64_t position,
                            const uint8_t *previous)
{
    static uint8_t body[RF_CODEC_SHARD_MAX];
    uint8_t *to = at_position(position);
    size_t used = sizeof(struct rf_batch_header);
    struct rf_batch_header h = {.magic = RF_BATCH_MAGIC,
                                .format = RF_LOG_FORMAT,
                                .header_bytes = sizeof(h),
                                .epoch = epoch,
                                .position = position,
                                .durable = epoch - 1};
    memcpy(h.store_id, store_id, sizeof(store_id));
    memcpy(h.previous, previous, RF_LOG_HASH);
    for (uint32_t lane = 0; lane < 3; lane++) {
        size_t len = records_encode_any(prng, RECORDS_SMALL, body);
        if (used + sizeof(struct rf_log_record) + 8 + len > RF_LOG_BLOCK - 8) {
            break;
        }
        struct rf_log_record r = {.kind = RF_LOG_STEP,
                                  .stamp = epoch * 10 + lane,
                                  .uid = 1,
                                  .body_bytes = (uint32_t)len + 8,
                                  .lane = lane + 1};
        r.bytes = (uint32_t)((sizeof(r) + r.body_bytes + 7) / 8 * 8);
        memcpy(to + used, &r, sizeof(r));
        memcpy(to + used + sizeof(r) + 8, body, len);
        used += r.bytes;
        h.records++;
        h.lanes++;
    }
    h.bytes = RF_LOG_BLOCK;
    h.record_bytes = used - sizeof(h);
    rf_batch_hash(&h, to + sizeof(h), h.hash);
    memcpy(to, &h, sizeof(h));
    memcpy(lab.hashes[epoch], h.hash, RF_LOG_HASH);
    return position + h.bytes;
}

static void make_log(void)
{
    struct rf_prng prng = {1};
    uint64_t position = 0;
    rf_detail detail = {0};
    for (uint64_t n = 0; n < SEGMENTS; n++) {
        struct rf_segment_header header = {.magic = RF_SEGMENT_MAGIC,
                                           .format = RF_LOG_FORMAT,
                                           .header_bytes = sizeof(header),
                                           .number = n,
                                           .segment_bytes = SEGMENT};
        char path[128];
        memcpy(header.store_id, store_id, sizeof(store_id));
        if (rf_segment_make(lab.disk, &header, n + 1, &detail) != RF_OK) {
            fprintf(stderr, "%s\n", detail.where);
            abort();
        }
        snprintf(path, sizeof(path), "%s/log.%016llx", lab.directory, (unsigned long long)n);
        int fd = open(path, O_RDWR);
        must(fd >= 0, path);
        lab.mapped[n] = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        must(lab.mapped[n] != MAP_FAILED, path);
        close(fd);
    }
    for (uint64_t epoch = 1; epoch <= BATCHES; epoch++) {
        position = write_batch(&prng, epoch, position, lab.hashes[epoch - 1]);
    }
    for (unsigned n = 0; n < SEGMENTS; n++) {
        memcpy(lab.good[n], lab.mapped[n], SEGMENT);
    }
}

static void sign_batches(void)
{
    uint8_t previous[RF_LOG_HASH] = {0};
    for (uint64_t epoch = 1; epoch <= BATCHES; epoch++) {
        uint8_t *to = at_position((epoch - 1) * RF_LOG_BLOCK);
        struct rf_batch_header h;
        memcpy(&h, to, sizeof(h));
        if (h.record_bytes > RF_LOG_BLOCK - sizeof(h)) {
            return;
        }
        memcpy(h.previous, previous, RF_LOG_HASH);
        memset(h.hash, 0, RF_LOG_HASH);
        rf_batch_hash(&h, to + sizeof(h), h.hash);
        memcpy(previous, h.hash, RF_LOG_HASH);
        memcpy(to, &h, sizeof(h));
    }
}

static void decode(const struct rf_log_record *r)
{
    rf_bytes body = {.data = (const uint8_t *)(r + 1), .len = r->body_bytes};
    static struct rf_step_record step;
    size_t used;
    if (r->kind == RF_LOG_STEP && body.len >= 8) {
        body.data = (const uint8_t *)body.data + 8;
        body.len -= 8;
        if (rf_codec_get_step(body, &step, &used) == RF_OK) {
            assert(used <= body.len);
        }
    }
}

static void read_all(struct rf_log_reader *reader, bool is_signed)
{
    static struct rf_log_order order;
    struct rf_log_batch batch;
    bool end = false;
    uint64_t expected = 1;
    if (rf_log_seek(reader, 1, NULL) != RF_OK) {
        return;
    }
    while (rf_log_next(reader, &batch, &end, NULL) == RF_OK && !end) {
        assert(batch.header.epoch == expected++);
        if (!is_signed &&
            (batch.header.epoch > BATCHES ||
             memcmp(batch.header.hash, lab.hashes[batch.header.epoch], RF_LOG_HASH) != 0)) {
            fprintf(stderr, "a batch was read that nobody wrote\n");
            abort();
        }
        if (rf_log_order_begin(&order, &batch, NULL) == RF_OK) {
            const struct rf_log_record *r;
            uint32_t records = 0;
            uint64_t stamp = 0;
            while ((r = rf_log_order_next(&order)) != NULL) {
                assert(r->stamp >= stamp && ++records <= batch.header.records);
                stamp = r->stamp;
                decode(r);
            }
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct rf_log_reader *reader;
    unsigned flags = size == 0 ? 0 : data[0];
    for (unsigned n = 0; n < SEGMENTS; n++) {
        memcpy(lab.mapped[n], lab.good[n], SEGMENT);
    }
    for (size_t at = 1; at + 4 <= size;) {
        uint64_t offset = (data[at] | (unsigned)data[at + 1] << 8 | (unsigned)data[at + 2] << 16) %
                          (SEGMENTS * SEGMENT);
        size_t len = data[at + 3] % 65u;
        at += 4;
        for (size_t i = 0; i < len && at < size; i++, at++) {
            uint64_t o = (offset + i) % (SEGMENTS * SEGMENT);
            lab.mapped[o / SEGMENT][o % SEGMENT] = data[at];
        }
    }
    if ((flags & 1) != 0) {
        sign_batches();
    }
    for (unsigned n = 0; (flags & 2) != 0 && n < SEGMENTS; n++) {
        sign_header(lab.mapped[n]);
    }
    if (rf_log_reader_open(lab.disk, SEGMENT, store_id, &reader, NULL) == RF_OK) {
        read_all(reader, (flags & 3) != 0);
        rf_log_reader_close(reader);
    }
    return 0;
}

static void clean_up(void)
{
    for (unsigned n = 0; n < SEGMENTS; n++) {
        char name[32];
        snprintf(name, sizeof(name), "log.%016x", n);
        unlinkat(lab.dir_fd, name, 0);
    }
    rmdir(lab.directory);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    rf_detail detail;
    snprintf(lab.directory, sizeof(lab.directory), "/dev/shm/rf-fuzz-log-%d", (int)getpid());
    must(mkdir(lab.directory, 0700) == 0, lab.directory);
    lab.dir_fd = open(lab.directory, O_RDONLY | O_DIRECTORY);
    must(lab.dir_fd >= 0, lab.directory);
    if (rf_disk_open(lab.dir_fd, 0600, (gid_t)-1, SEGMENT, &lab.disk, &detail) != RF_OK) {
        fprintf(stderr, "%s\n", detail.where);
        abort();
    }
    make_log();
    atexit(clean_up);
    /* What nobody touched is read to its end. */
    struct rf_log_reader *reader;
    struct rf_log_batch batch;
    bool end = false;
    uint64_t read = 0;
    must(rf_log_reader_open(lab.disk, SEGMENT, store_id, &reader, NULL) == RF_OK &&
             rf_log_seek(reader, 1, NULL) == RF_OK,
         "the log");
    while (rf_log_next(reader, &batch, &end, NULL) == RF_OK && !end) {
        read++;
    }
    rf_log_reader_close(reader);
    must(read == BATCHES, "not all batches are read");
    return 0;
}
