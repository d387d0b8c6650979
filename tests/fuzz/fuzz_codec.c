/*
 * Any bytes as a record of any type: refused, or accepted and then exactly what the encoder writes,
 * with its invariants whole and not a byte read outside.
 *
 * RF_WRITE_CORPUS=<directory> writes a fresh set of small valid records there and ends: this is how
 * tests/fuzz/corpus/codec was made, and is made again when the format changes.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "records.h"

#define CORPUS_FILES 32u

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

void setUp(void);
void tearDown(void);

/* Unity is in the test support and wants them. */
void setUp(void)
{
}

void tearDown(void)
{
}

static uint8_t record[RF_CODEC_SHARD_MAX];

static void write_corpus(const char *directory)
{
    struct rf_prng prng = {1};
    for (uint32_t i = 0; i < CORPUS_FILES; i++) {
        char name[4096];
        size_t len = records_encode_any(&prng, RECORDS_SMALL, record);
        snprintf(name, sizeof(name), "%s/%02u-type%u", directory, i, record[0]);
        FILE *file = fopen(name, "wb");
        if (file == NULL || fwrite(record, 1, len, file) != len || fclose(file) != 0) {
            perror(name);
            exit(1);
        }
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    const char *directory = getenv("RF_WRITE_CORPUS");
    if (directory != NULL) {
        write_corpus(directory);
        exit(0);
    }
    return 0;
}

/* Most mutations change a record's length; without a header that agrees they would all end there. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed)
{
    size = LLVMFuzzerMutate(data, size, max);
    if (size >= RF_CODEC_HEADER && seed % 8 != 0) {
        data[1] = RF_CODEC_VERSION;
        data[2] = data[3] = 0;
        rf_store_le32(data + 4, (uint32_t)(size - RF_CODEC_HEADER));
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rf_bytes in = rf_bytes_of(data, size);
    enum rf_codec_type type = 0;
    size_t whole = 0;
    rf_status peeked = rf_codec_peek(in, &type, &whole);
    assert(peeked == RF_OK || peeked == RF_CORRUPT || peeked == RF_VERSION_MISMATCH);
    for (uint32_t as = RF_CODEC_SHARD; as <= RF_CODEC_MADE; as++) {
        size_t len = 0, used = 0;
        rf_status status =
            records_recode((enum rf_codec_type)as, in, record, sizeof(record), &len, &used);
        if (status == RF_OK) {
            assert(peeked == RF_OK && type == as && used == whole);
            assert(len == used && memcmp(record, data, len) == 0);
        } else {
            assert(status == (peeked == RF_OK ? RF_CORRUPT : peeked));
        }
    }
    return 0;
}
