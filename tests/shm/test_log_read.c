/*
 * Logs made by hand, right and wrong: what is read is what was written, or less by a torn tail, or nothing;
 * never anything else.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "prng.h"
#include "scribe.h"
#include "shop.h"

#define SEGMENT (4u * RF_LOG_BLOCK) /* three blocks of data */

static struct rf_scribe book;
static rf_detail detail;

void setUp(void)
{
}

void tearDown(void)
{
    rf_scribe_close(&book);
}

/* --- reading all of it --- */

struct reading {
    rf_status status;
    uint64_t first, last; /* epochs that were delivered */
    struct rf_log_shape shape;
};

/* Reads from an epoch on, and holds every batch to what was written. */
static struct reading read_from(uint64_t epoch)
{
    struct reading r = {0};
    struct rf_log_reader *reader;
    detail = (rf_detail){0};
    r.status = rf_log_reader_open(book.disk, book.segment_bytes, book.store_id, &reader, &detail);
    if (r.status != RF_OK) {
        return r;
    }
    r.status = rf_log_seek(reader, epoch, &detail);
    for (bool end = false; r.status == RF_OK && !end;) {
        struct rf_log_batch batch;
        r.status = rf_log_next(reader, &batch, &end, &detail);
        if (r.status != RF_OK || end) {
            break;
        }
        uint64_t e = batch.header.epoch;
        TEST_ASSERT_EQUAL_UINT64(r.last == 0                           ? epoch
                                 : book.batches[r.last + 1].bytes == 0 ? r.last + 1 + book.skip
                                                                       : r.last + 1,
                                 e);
        TEST_ASSERT_EQUAL_UINT64(book.batches[e].position, batch.header.position);
        TEST_ASSERT_EQUAL_UINT64(book.batches[e].record_bytes, batch.header.record_bytes);
        TEST_ASSERT_EQUAL_UINT64(book.batches[e].incarnation, batch.header.incarnation);
        TEST_ASSERT_TRUE(
            batch.new_incarnation ==
            (r.last == 0 || book.batches[e].incarnation != book.batches[e - 1].incarnation));
        for (uint64_t i = 0; i < batch.header.record_bytes; i += 8) {
            uint64_t word;
            memcpy(&word, batch.records + i, 8);
            if (i >= sizeof(struct rf_log_record)) {
                TEST_ASSERT_EQUAL_UINT64_MESSAGE(e, word, "bytes of another batch");
            }
        }
        r.first = r.first == 0 ? e : r.first;
        r.last = e;
    }
    r.shape = rf_log_reader_shape(reader);
    rf_log_reader_close(reader);
    return r;
}

/* A record whose body is its epoch over and over. */
static void write_batches(uint32_t count, uint32_t words)
{
    static uint64_t filler[8192];
    for (uint32_t i = 0; i < count; i++) {
        uint64_t epoch = book.end.epoch + 1;
        for (uint32_t k = 0; k < words; k++) {
            filler[k] = epoch;
        }
        rf_scribe_record(&book, RF_LOG_CHUNK, 1, epoch, 1, filler, words * 8u);
        rf_scribe_batch(&book, epoch > 2 ? epoch - 2 : 0);
    }
}

static void expect_all(uint64_t from, uint64_t last)
{
    struct reading r = read_from(from);
    if (r.status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(r.status, &detail));
    }
    TEST_ASSERT_EQUAL_UINT64(last, r.shape.end.epoch);
    TEST_ASSERT_EQUAL_UINT64(last < from ? 0 : last, r.last);
}

static void expect_refused(uint64_t from, rf_status status, const char *words)
{
    struct reading r = read_from(from);
    RF_EXPECT(status, r.status);
    rf_shop_expect_words(r.status, &detail, words);
}

/* --- right ones --- */

static void what_was_written_is_read_from_every_epoch(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    expect_all(1, 0);
    write_batches(5, 3);
    write_batches(3, 900);  /* two blocks each, some of them in two segments */
    write_batches(2, 8000); /* sixteen blocks: over six segments */
    write_batches(4, 1);
    for (uint64_t from = 1; from <= book.end.epoch; from++) {
        expect_all(from, book.end.epoch);
    }
    struct reading r = read_from(1);
    TEST_ASSERT_EQUAL_MEMORY(&book.end, &r.shape.end, sizeof(book.end));
}

static void expect_nothing_from(uint64_t epoch)
{
    struct rf_log_reader *reader;
    bool end = false;
    RF_EXPECT(RF_OK,
              rf_log_reader_open(book.disk, book.segment_bytes, book.store_id, &reader, &detail));
    RF_EXPECT(RF_OK, rf_log_seek_or_end(reader, epoch, &end, &detail));
    TEST_ASSERT_TRUE(end);
    rf_log_reader_close(reader);
}

static void an_epoch_beyond_the_end_is_none_or_a_loss_as_the_caller_knows(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    expect_nothing_from(2); /* a log without a batch */
    write_batches(5, 3);
    expect_all(6, 5); /* the next one that will be */
    expect_nothing_from(7);
    expect_nothing_from(UINT64_MAX);
    expect_refused(7, RF_CORRUPT, "epoch 6|the log ends here");
}

static void an_incarnation_counts_up_to_where_the_next_one_says(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(4, 3);
    struct rf_log_end cut = book.end;
    /* What a dying process wrote behind it. */
    write_batches(3, 3);
    rf_scribe_incarnation(&book, 1, &cut); /* came to nothing */
    rf_scribe_incarnation(&book, 2, &cut);
    write_batches(5, 3);
    rf_scribe_incarnation(&book, 5, NULL);
    expect_all(1, 9);
    write_batches(2, 3);
    for (uint64_t from = 1; from <= 11; from++) {
        expect_all(from, 11);
    }
    struct reading r = read_from(7);
    TEST_ASSERT_EQUAL_UINT64(5, r.shape.last_incarnation);
    TEST_ASSERT_EQUAL_UINT64(9, r.shape.last_after);
}

static void flip_batch(uint64_t epoch)
{
    char name[64];
    off_t offset;
    rf_scribe_locate(&book, book.batches[epoch].position, name, &offset);
    rf_scribe_flip(name, offset + 200, 1);
}

static void epochs_may_be_skipped_between_incarnations(void)
{
    rf_scribe_open(&book, SEGMENT);
    book.skip = 32;
    rf_scribe_incarnation(&book, 0, &(struct rf_log_end){0});
    write_batches(5, 3); /* 33 to 37 */
    rf_scribe_incarnation(&book, 1, NULL);
    write_batches(30, 3); /* 70 to 99, in several segments */
    struct rf_log_end end = book.end;
    rf_scribe_incarnation(&book, 2, NULL); /* came to nothing */
    struct reading r = read_from(70);
    TEST_ASSERT_EQUAL_UINT64(99, r.last);
    TEST_ASSERT_EQUAL_UINT64(99, r.shape.end.epoch);
    TEST_ASSERT_EQUAL_UINT64(131, r.shape.reached);
    book.skip = 64; /* behind what the last one had reached */
    rf_scribe_incarnation(&book, 3, &end);
    write_batches(1, 3);
    flip_batch(164); /* a torn tail: nobody says that it was durable */
    r = read_from(70);
    RF_EXPECT(RF_OK, r.status);
    TEST_ASSERT_EQUAL_UINT64(99, r.shape.end.epoch);
    TEST_ASSERT_EQUAL_UINT64(163, r.shape.reached);
    flip_batch(164);
    write_batches(2, 3); /* 164 to 166 */
    static const uint64_t from[] = {33, 35, 37, 70, 71, 99, 164, 165, 166};
    for (unsigned i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        book.skip = from[i] < 70 ? 32 : 64;
        if (from[i] >= 70) {
            expect_all(from[i], 166);
        }
    }
    /* Where each batch is, from the beginning of the log. */
    static const uint64_t last[] = {37, 99, 166}, first[] = {33, 70, 164};
    struct rf_log_reader *reader;
    RF_EXPECT(RF_OK, rf_log_reader_open(book.disk, SEGMENT, book.store_id, &reader, &detail));
    RF_EXPECT(RF_OK, rf_log_seek(reader, 1, &detail)); /* the whole log */
    for (unsigned i = 0; i < 3; i++) {
        for (uint64_t e = first[i]; e <= last[i]; e++) {
            struct rf_log_batch batch;
            bool over;
            RF_EXPECT(RF_OK, rf_log_next(reader, &batch, &over, &detail));
            TEST_ASSERT_FALSE(over);
            TEST_ASSERT_EQUAL_UINT64(e, batch.header.epoch);
            TEST_ASSERT_TRUE(batch.new_incarnation == (e == first[i]));
        }
    }
    struct rf_log_shape shape = rf_log_reader_shape(reader);
    rf_log_reader_close(reader);
    static const struct rf_log_gap gaps[] = {{99, 163}, {99, 131}, {37, 69}, {0, 32}, {0, 0}};
    TEST_ASSERT_EQUAL_MEMORY(gaps, shape.gaps, sizeof(gaps));
    TEST_ASSERT_EQUAL_UINT64(0, shape.told_from);
    flip_batch(164); /* now the last one does */
    expect_refused(70, RF_CORRUPT, "epoch 164|a later one");
}

struct numbers {
    uint64_t seen[64];
    unsigned count;
};

static void collect(void *context, uint64_t number)
{
    struct numbers *n = context;
    n->seen[n->count++] = number;
}

static void segments_in_which_nothing_counts_are_told(void)
{
    struct rf_log_reader *reader;
    struct numbers idle = {0};
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(2, 3);
    struct rf_log_end cut = book.end;
    write_batches(5, 3);                   /* into segments 1 and 2 */
    rf_scribe_incarnation(&book, 1, &cut); /* segment 3 */
    rf_scribe_incarnation(&book, 2, &cut); /* segment 4 */
    write_batches(1, 3);
    RF_EXPECT(RF_OK, rf_log_reader_open(book.disk, SEGMENT, book.store_id, &reader, &detail));
    rf_log_idle_segments(reader, collect, &idle);
    rf_log_reader_close(reader);
    TEST_ASSERT_EQUAL(3, idle.count);
    TEST_ASSERT_EQUAL_UINT64(1, idle.seen[0]);
    TEST_ASSERT_EQUAL_UINT64(2, idle.seen[1]);
    TEST_ASSERT_EQUAL_UINT64(3, idle.seen[2]);
    for (unsigned i = 0; i < idle.count; i++) {
        RF_EXPECT(RF_OK, rf_segment_remove(book.disk, idle.seen[i], &detail));
    }
    expect_all(1, 3);
}

static void old_segments_are_not_needed(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(40, 3);
    rf_scribe_incarnation(&book, 1, NULL);
    write_batches(20, 900);
    uint64_t removed = 0;
    for (uint64_t epoch = 1; epoch <= 60; epoch++) {
        struct rf_log_reader *reader;
        uint64_t needed;
        RF_EXPECT(RF_OK, rf_log_reader_open(book.disk, SEGMENT, book.store_id, &reader, &detail));
        RF_EXPECT(RF_OK, rf_log_first_needed(reader, epoch, &needed, &detail));
        rf_log_reader_close(reader);
        TEST_ASSERT_TRUE(needed <= book.batches[epoch].position / (SEGMENT - RF_LOG_BLOCK));
        for (; removed < needed; removed++) {
            RF_EXPECT(RF_OK, rf_segment_remove(book.disk, removed, &detail));
        }
        expect_all(epoch, 60);
    }
    TEST_ASSERT_TRUE(removed > 20);
    expect_refused(3, RF_NOT_FOUND, "reach back");
}

/* --- damage --- */

/* As rf_shop_expect_words, for thousands. */
static void expect_quietly(rf_status status, char *words)
{
    const char *sentence = rf_shop_sentence(status, &detail);
    for (char *word = strtok(words, "|"); word != NULL; word = strtok(NULL, "|")) {
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(sentence, word), sentence);
    }
}

enum outcome { HARMLESS, CUT, REFUSED, OUTCOMES };

/* What must come of a byte of the batch of this epoch. */
static enum outcome expected(uint64_t epoch, uint64_t last, uint64_t last_of_older)
{
    if (epoch <= last_of_older) {
        return REFUSED;
    }
    for (uint64_t e = epoch + 1; e <= last; e++) {
        if (book.batches[e].durable >= epoch) {
            return REFUSED;
        }
    }
    return CUT;
}

static void every_damaged_byte_is_harmless_a_cut_tail_or_a_refusal(void)
{
    unsigned seen[OUTCOMES] = {0};
    char name[64];
    off_t offset;
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(4, 5);
    struct rf_log_end cut = book.end;
    write_batches(1, 5); /* does not count */
    rf_scribe_incarnation(&book, 1, &cut);
    write_batches(6, 5);
    uint64_t last = book.end.epoch;
    TEST_ASSERT_EQUAL_UINT64(10, last);
    expect_all(1, last);
    for (uint64_t epoch = 1; epoch <= last; epoch++) {
        uint64_t hashed = sizeof(struct rf_batch_header) + book.batches[epoch].record_bytes;
        for (uint64_t at = 0; at < RF_LOG_BLOCK; at += at < hashed + 64 ? 1 : 61) {
            rf_scribe_locate(&book, book.batches[epoch].position + at, name, &offset);
            rf_scribe_flip(name, offset, (uint8_t)(1u << at % 8));
            struct reading r = read_from(1);
            enum outcome outcome = r.status != RF_OK ? REFUSED : r.last == last ? HARMLESS : CUT;
            enum outcome right = at >= hashed ? HARMLESS : expected(epoch, last, 4);
            TEST_ASSERT_EQUAL_MESSAGE(right, outcome, rf_shop_sentence(r.status, &detail));
            if (outcome == CUT) {
                TEST_ASSERT_EQUAL_UINT64(epoch - 1, r.last);
            }
            if (r.status == RF_CORRUPT) {
                char words[96];
                snprintf(words, sizeof(words), "%s|offset %" PRIu64 "|epoch %" PRIu64,
                         strrchr(name, '/') + 1, (uint64_t)offset - at, epoch);
                expect_quietly(r.status, words);
            }
            seen[outcome]++;
            rf_scribe_flip(name, offset, (uint8_t)(1u << at % 8));
        }
    }
    printf("  %u harmless, %u cut, %u refused\n", seen[HARMLESS], seen[CUT], seen[REFUSED]);
    TEST_ASSERT_TRUE(seen[HARMLESS] > 100 && seen[CUT] > 100 && seen[REFUSED] > 100);
    expect_all(1, last);
}

static void every_damaged_byte_of_a_segments_header_is_refused(void)
{
    char name[64];
    off_t offset;
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(4, 5);
    for (uint64_t segment = 0; segment < 2; segment++) {
        rf_scribe_locate(&book, segment * (SEGMENT - RF_LOG_BLOCK), name, &offset);
        for (off_t at = 0; at < (off_t)RF_LOG_BLOCK; at += at < 200 ? 1 : 97) {
            rf_scribe_flip(name, at, 0x20);
            RF_EXPECT(RF_CORRUPT, read_from(1).status);
            rf_scribe_flip(name, at, 0x20);
        }
    }
    expect_all(1, 4);
}

/* Zeros from any block on: what a power cut leaves of a file that was being written. */
static void a_tail_that_is_gone_is_cut_unless_it_was_vouched_for(void)
{
    char name[64];
    off_t offset;
    rf_scribe_open(&book, 64 * RF_LOG_BLOCK);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(8, 900);
    for (uint64_t from = 8; from >= 1; from--) {
        static const uint8_t zeros[2 * RF_LOG_BLOCK];
        rf_scribe_locate(&book, book.batches[from].position, name, &offset);
        int fd = open(name, O_RDWR | O_CLOEXEC);
        TEST_ASSERT_EQUAL(sizeof(zeros), pwrite(fd, zeros, sizeof(zeros), offset));
        close(fd);
        expect_all(1, from - 1);
    }
}

static void a_hole_that_was_vouched_for_is_refused(void)
{
    char name[64];
    off_t offset;
    static const uint8_t zeros[RF_LOG_BLOCK];
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(8, 5); /* each says that the one before the last was durable */
    rf_scribe_locate(&book, book.batches[6].position, name, &offset);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL(sizeof(zeros), pwrite(fd, zeros, sizeof(zeros), offset));
    close(fd);
    expect_refused(1, RF_CORRUPT, "epoch 6");
    rf_scribe_locate(&book, book.batches[8].position, name, &offset);
    fd = open(name, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL(sizeof(zeros), pwrite(fd, zeros, sizeof(zeros), offset));
    close(fd);
    expect_all(1, 5); /* 7 says 5 only */
}

/* However much is gone behind it: segments are made ahead, and know what was durable then. */
static void a_tail_that_a_segment_vouches_for_is_refused(void)
{
    char name[64];
    off_t offset;
    static const uint8_t zeros[RF_LOG_BLOCK];
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(4, 5);
    book.vouched = 4;
    write_batches(8, 5); /* segments that say 4 */
    for (uint64_t epoch = 12; epoch >= 4; epoch--) {
        rf_scribe_locate(&book, book.batches[epoch].position, name, &offset);
        int fd = open(name, O_RDWR | O_CLOEXEC);
        TEST_ASSERT_EQUAL(sizeof(zeros), pwrite(fd, zeros, sizeof(zeros), offset));
        close(fd);
        if (epoch > 4) {
            expect_all(1, epoch - 1);
        } else {
            expect_refused(1, RF_CORRUPT, "epoch 4|a later segment");
        }
    }
}

static void missing_segments_are_refused_but_for_the_last(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(7, 5); /* segments 0, 1, 2 */
    rf_scribe_incarnation(&book, 1, NULL);
    write_batches(7, 5); /* 3, 4, 5 */
    expect_all(1, 14);
    static const struct {
        uint64_t segment;
        rf_status status;
        uint64_t last;
    } cases[] = {{5, RF_OK, 13},     {4, RF_CORRUPT, 0}, {3, RF_CORRUPT, 0},
                 {2, RF_CORRUPT, 0}, {1, RF_CORRUPT, 0}, {0, RF_NOT_FOUND, 0}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char name[64], aside[80];
        off_t offset;
        rf_scribe_locate(&book, cases[i].segment * (SEGMENT - RF_LOG_BLOCK), name, &offset);
        snprintf(aside, sizeof(aside), "%s.aside", name);
        TEST_ASSERT_EQUAL(0, rename(name, aside));
        /* the disk keeps descriptors open: a fresh one sees what is there */
        struct rf_disk *old = book.disk;
        RF_EXPECT(RF_OK, rf_disk_open(book.dir_fd, 0600, (gid_t)-1, SEGMENT, &book.disk, &detail));
        struct reading r = read_from(1);
        RF_EXPECT(cases[i].status, r.status);
        if (r.status == RF_OK) {
            TEST_ASSERT_EQUAL_UINT64(cases[i].last, r.last);
        }
        rf_disk_close(book.disk);
        book.disk = old;
        TEST_ASSERT_EQUAL(0, rename(aside, name));
    }
    expect_all(1, 14);
}

/* Whoever reads from an epoch on needs that batch and what comes behind it, and nothing before. */
static void damage_before_the_epoch_that_is_wanted_is_passed_over(void)
{
    char name[64];
    off_t offset;
    rf_scribe_open(&book, 64 * RF_LOG_BLOCK);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(12, 5); /* all in one segment */
    for (uint64_t damaged = 1; damaged <= 10; damaged++) {
        rf_scribe_locate(&book, book.batches[damaged].position, name, &offset);
        rf_scribe_flip(name, offset + 200, 1);
        for (uint64_t from = 1; from <= 12; from++) {
            struct reading r = read_from(from);
            if (from <= damaged) {
                TEST_ASSERT_TRUE(r.status == RF_CORRUPT ||
                                 (from == damaged && from == 1 && r.status == RF_NOT_FOUND));
            } else {
                RF_EXPECT(RF_OK, r.status);
                TEST_ASSERT_EQUAL_UINT64(12, r.last);
            }
        }
        rf_scribe_flip(name, offset + 200, 1);
    }
    /* two in a row, and the second half of a segment that is the first of an incarnation */
    rf_scribe_incarnation(&book, 1, NULL);
    write_batches(6, 5);
    for (uint64_t damaged = 13; damaged <= 14; damaged++) {
        rf_scribe_locate(&book, book.batches[damaged].position, name, &offset);
        rf_scribe_flip(name, offset + 200, 1);
    }
    RF_EXPECT(RF_CORRUPT, read_from(14).status);
    expect_all(15, 18);
    expect_all(16, 18);
}

static void a_damaged_header_of_a_segment_that_is_not_needed_is_passed_over(void)
{
    char name[64];
    off_t offset;
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(9, 5); /* three in each of the segments 0, 1, 2 */
    struct rf_log_end cut = book.end;
    write_batches(3, 5); /* 3: does not count */
    rf_scribe_incarnation(&book, 1, &cut);
    write_batches(3, 5); /* 4 */
    for (uint64_t segment = 0; segment <= 4; segment++) {
        rf_scribe_locate(&book, segment * (SEGMENT - RF_LOG_BLOCK), name, &offset);
        rf_scribe_flip(name, 40, 1);
        for (uint64_t from = 1; from <= 12; from++) {
            uint64_t begins = book.batches[from].position / (SEGMENT - RF_LOG_BLOCK);
            struct reading r = read_from(from);
            bool needed = segment != 3 && segment >= begins;
            TEST_ASSERT_EQUAL_MESSAGE(needed ? RF_CORRUPT : RF_OK, r.status,
                                      rf_shop_sentence(r.status, &detail));
            if (needed) {
                rf_shop_expect_words(r.status, &detail, strrchr(name, '/') + 1);
            }
            TEST_ASSERT_EQUAL_UINT64(needed ? 0 : 12, r.last);
        }
        rf_scribe_flip(name, 40, 1);
    }
    expect_all(1, 12);
}

/* --- what does not belong there --- */

static void stale_and_foreign_batches_are_not_read(void)
{
    rf_scribe_open(&book, 64 * RF_LOG_BLOCK);
    rf_scribe_incarnation(&book, 3, NULL);
    write_batches(6, 5);
    struct rf_batch_header next = rf_scribe_header(&book, 5), h;

    /* Unsealed, of another place, another store, an older incarnation, cut short: a torn tail. */
    rf_scribe_forge(&book, next, false);
    expect_all(1, 6);
    h = next;
    memcpy(h.store_id, "some other store", 16);
    rf_scribe_forge(&book, h, true);
    expect_all(1, 6);
    h = next;
    h.incarnation = 2;
    rf_scribe_forge(&book, h, true);
    expect_all(1, 6);
    h = next;
    h.record_bytes = RF_LOG_BLOCK;
    rf_scribe_forge(&book, h, false);
    expect_all(1, 6);

    /* Of the right place and whole, but not what follows: no power cut does that. */
    h = next;
    h.epoch = 9;
    rf_scribe_forge(&book, h, true);
    expect_refused(1, RF_CORRUPT, "does not follow");
    h = next;
    h.previous[0] ^= 1;
    rf_scribe_forge(&book, h, true);
    expect_refused(1, RF_CORRUPT, "does not follow");
    h = next;
    h.format = RF_LOG_FORMAT + 1;
    rf_scribe_forge(&book, h, true);
    expect_refused(1, RF_VERSION_MISMATCH, "format 2|reads 1");
}

/* An old copy of a block of the log, put where another belongs. */
static void a_batch_moved_elsewhere_is_not_read(void)
{
    char name[64];
    off_t from, to;
    uint8_t block[RF_LOG_BLOCK];
    rf_scribe_open(&book, 64 * RF_LOG_BLOCK);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(6, 5);
    rf_scribe_locate(&book, book.batches[3].position, name, &from);
    rf_scribe_locate(&book, book.batches[6].position, name, &to);
    int fd = open(name, O_RDWR | O_CLOEXEC);
    TEST_ASSERT_EQUAL(sizeof(block), pread(fd, block, sizeof(block), from));
    TEST_ASSERT_EQUAL(sizeof(block), pwrite(fd, block, sizeof(block), to));
    expect_all(1, 5);
    rf_scribe_locate(&book, book.batches[4].position, name, &to);
    TEST_ASSERT_EQUAL(sizeof(block), pwrite(fd, block, sizeof(block), to));
    close(fd);
    expect_all(1, 3); /* 5 says that 3 was durable, and 6 is gone */
}

static void segments_of_another_store_or_history_are_refused(void)
{
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(4, 5);
    struct rf_log_end end = book.end;
    memcpy(book.store_id, "some other store", 16);
    rf_scribe_incarnation(&book, 1, NULL);
    memcpy(book.store_id, "a store by hand!", 16);
    expect_refused(1, RF_CORRUPT, "belongs to another store");
    rf_scribe_close(&book);

    /* an incarnation that says it follows another batch than the one that is there */
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(4, 5);
    end = book.end;
    end.hash[3] ^= 1;
    rf_scribe_incarnation(&book, 1, &end);
    write_batches(1, 5);
    expect_refused(1, RF_CORRUPT, "another batch");
    rf_scribe_close(&book);

    /* one that goes back behind another */
    rf_scribe_open(&book, SEGMENT);
    rf_scribe_incarnation(&book, 0, NULL);
    write_batches(2, 5);
    struct rf_log_end early = book.end;
    write_batches(2, 5);
    rf_scribe_incarnation(&book, 1, NULL);
    rf_scribe_incarnation(&book, 2, &early);
    expect_refused(1, RF_CORRUPT, "contradicts");
}

/* --- records --- */

static void records_come_in_the_order_of_their_stamps(void)
{
    struct rf_prng prng = {.state = rf_env_number("RF_SEED", 99)};
    struct rf_log_order order = {0};
    for (unsigned round = 0; round < 200; round++) {
        static uint8_t bytes[1u << 20];
        uint32_t lanes = 1 + rf_prng_below(&prng, 70), count = 0;
        size_t at = 0;
        for (uint32_t lane = 0; lane < lanes; lane++) {
            uint64_t stamp = rf_prng_below(&prng, 50);
            for (uint32_t n = rf_prng_below(&prng, 20); n > 0; n--, count++) {
                uint32_t len = rf_prng_below(&prng, 40);
                struct rf_log_record r = {.bytes = (uint32_t)(sizeof(r) + ((len + 7) & ~7u)),
                                          .kind = RF_LOG_STEP,
                                          .stamp = stamp,
                                          .uid = count,
                                          .body_bytes = len,
                                          .lane = lane};
                memcpy(bytes + at, &r, sizeof(r));
                memset(bytes + at + sizeof(r), 0, r.bytes - sizeof(r));
                at += r.bytes;
                stamp += 1 + rf_prng_below(&prng, 5);
                if (rf_prng_chance(&prng, 3)) {
                    stamp = rf_prng_below(&prng, 50); /* a lane that went on under a new owner */
                }
            }
        }
        struct rf_log_batch batch = {.header = {.record_bytes = at, .records = count},
                                     .records = bytes};
        RF_EXPECT(RF_OK, rf_log_order_begin(&order, &batch, &detail));
        static bool seen[4096];
        memset(seen, 0, sizeof(seen));
        uint64_t last = 0;
        for (uint32_t n = 0; n < count; n++) {
            const struct rf_log_record *r = rf_log_order_next(&order);
            TEST_ASSERT_NOT_NULL(r);
            TEST_ASSERT_TRUE(r->stamp >= last);
            TEST_ASSERT_FALSE(seen[r->uid]);
            seen[r->uid] = true;
            last = r->stamp;
        }
        TEST_ASSERT_NULL(rf_log_order_next(&order));
    }
    rf_log_order_free(&order);
}

static void records_that_do_not_lie_right_are_refused(void)
{
    struct rf_log_order order = {0};
    _Alignas(8) uint8_t bytes[3][64] = {0};
    for (unsigned i = 0; i < 3; i++) {
        const struct rf_log_record r = {
            .bytes = 64, .kind = RF_LOG_STEP, .stamp = i + 1, .body_bytes = 30};
        memcpy(bytes[i], &r, sizeof(r));
    }
    struct rf_log_batch batch = {.header = {.record_bytes = sizeof(bytes), .records = 3},
                                 .records = bytes[0]};
    RF_EXPECT(RF_OK, rf_log_order_begin(&order, &batch, &detail));
    struct rf_log_record *r = (void *)bytes[1];
    static const struct {
        uint32_t bytes, body_bytes;
        uint16_t kind;
    } wrong[] = {{56, 30, RF_LOG_STEP},  {64, 33, RF_LOG_STEP}, {64, 24, RF_LOG_STEP},
                 {0, 0, RF_LOG_STEP},    {24, 0, RF_LOG_STEP},  {63, 30, RF_LOG_STEP},
                 {192, 30, RF_LOG_STEP}, {64, 30, 1},           {64, 30, 6}};
    for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        r->bytes = wrong[i].bytes;
        r->body_bytes = wrong[i].body_bytes;
        r->kind = wrong[i].kind;
        RF_EXPECT(RF_CORRUPT, rf_log_order_begin(&order, &batch, &detail));
    }
    *r = (struct rf_log_record){.bytes = 64, .kind = RF_LOG_STEP, .stamp = 2, .body_bytes = 30};
    batch.header.records = 4;
    RF_EXPECT(RF_CORRUPT, rf_log_order_begin(&order, &batch, &detail));
    rf_log_order_free(&order);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_was_written_is_read_from_every_epoch);
    RUN_TEST(an_epoch_beyond_the_end_is_none_or_a_loss_as_the_caller_knows);
    RUN_TEST(an_incarnation_counts_up_to_where_the_next_one_says);
    RUN_TEST(epochs_may_be_skipped_between_incarnations);
    RUN_TEST(segments_in_which_nothing_counts_are_told);
    RUN_TEST(old_segments_are_not_needed);
    RUN_TEST(every_damaged_byte_is_harmless_a_cut_tail_or_a_refusal);
    RUN_TEST(every_damaged_byte_of_a_segments_header_is_refused);
    RUN_TEST(a_tail_that_is_gone_is_cut_unless_it_was_vouched_for);
    RUN_TEST(a_hole_that_was_vouched_for_is_refused);
    RUN_TEST(a_tail_that_a_segment_vouches_for_is_refused);
    RUN_TEST(missing_segments_are_refused_but_for_the_last);
    RUN_TEST(damage_before_the_epoch_that_is_wanted_is_passed_over);
    RUN_TEST(a_damaged_header_of_a_segment_that_is_not_needed_is_passed_over);
    RUN_TEST(stale_and_foreign_batches_are_not_read);
    RUN_TEST(a_batch_moved_elsewhere_is_not_read);
    RUN_TEST(segments_of_another_store_or_history_are_refused);
    RUN_TEST(records_come_in_the_order_of_their_stamps);
    RUN_TEST(records_that_do_not_lie_right_are_refused);
    return UNITY_END();
}
