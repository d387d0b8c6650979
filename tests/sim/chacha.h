/*
 * ChaCha with 8 rounds, a 256-bit key and a 64-bit nonce, as a source of random numbers. One key a
 * seed; the nonce picks one of its streams.
 */
#ifndef RF_SIM_CHACHA_H
#define RF_SIM_CHACHA_H

#include <stdbool.h>
#include <stdint.h>

struct chacha {
    uint32_t input[16];
    uint8_t block[64];
    uint32_t used; /* bytes of the block */
};

void chacha_init(struct chacha *c, const uint8_t key[32], const uint8_t nonce[8]);
/* The key is the seed in its first 8 bytes, little-endian, the nonce the stream's number. */
void chacha_seed(struct chacha *c, uint64_t seed, uint64_t stream);
void chacha_bytes(struct chacha *c, uint8_t *out, uint32_t len);
uint64_t chacha_next(struct chacha *c);
/* 0 .. bound - 1, each as likely as the others to within 2^-32; bound is not 0. */
uint32_t chacha_below(struct chacha *c, uint32_t bound);
/* low .. high */
uint32_t chacha_between(struct chacha *c, uint32_t low, uint32_t high);
bool chacha_percent(struct chacha *c, uint32_t percent);
bool chacha_ppm(struct chacha *c, uint32_t ppm);

#endif
