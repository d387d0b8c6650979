/*
 * h, the unit of the benchmarks: the two BLAKE3 compressions that the payload of a checkpoint with a
 * 64-byte key (80 bytes, derive-key mode) can't do without, called bare, with the domain hashed
 * beforehand. What an operation takes beyond h is ours.
 */
#ifndef RF_BENCH_BARE_H
#define RF_BENCH_BARE_H

#include <stdbool.h>
#include <stdint.h>

#include "hash.h"

#define BARE_KEY_LEN 64u

struct bare {
    blake3_hasher keyed; /* has hashed the domain, which is done once */
    uint8_t payload[128];
};

/* Prepares h for a checkpoint at this key of 64 bytes, and asserts that it gives the very hash that
 * rf_hash_checkpoint gives. */
void bare_init(struct bare *b, const uint8_t *key);

/* n times h; context is a struct bare. */
void bare_run(void *context, uint64_t n);

/* False if BLAKE3 is an installed one, whose compression function can't be reached: h is then its
 * public API on ready bytes, and goals are not judged. */
bool bare_is_bare(void);

/* What h is, for the first row of a table. */
const char *bare_name(void);

#endif
