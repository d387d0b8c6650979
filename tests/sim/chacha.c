#include "chacha.h"

#include <string.h>

#define ROUNDS 8

static uint32_t load(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void store(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (8 * i));
    }
}

static inline uint32_t turn(uint32_t v, unsigned by)
{
    return v << by | v >> (32 - by);
}

static inline void quarter(uint32_t *x, int a, int b, int c, int d)
{
    x[a] += x[b];
    x[d] = turn(x[d] ^ x[a], 16);
    x[c] += x[d];
    x[b] = turn(x[b] ^ x[c], 12);
    x[a] += x[b];
    x[d] = turn(x[d] ^ x[a], 8);
    x[c] += x[d];
    x[b] = turn(x[b] ^ x[c], 7);
}

void chacha_init(struct chacha *c, const uint8_t key[32], const uint8_t nonce[8])
{
    static const uint8_t sigma[16] = "expand 32-byte k";
    for (int i = 0; i < 4; i++) {
        c->input[i] = load(sigma + 4 * i);
    }
    for (int i = 0; i < 8; i++) {
        c->input[4 + i] = load(key + 4 * i);
    }
    c->input[12] = c->input[13] = 0;
    c->input[14] = load(nonce);
    c->input[15] = load(nonce + 4);
    c->used = sizeof(c->block);
}

void chacha_seed(struct chacha *c, uint64_t seed, uint64_t stream)
{
    uint8_t key[32] = {0}, nonce[8];
    for (int i = 0; i < 8; i++) {
        key[i] = (uint8_t)(seed >> (8 * i));
        nonce[i] = (uint8_t)(stream >> (8 * i));
    }
    chacha_init(c, key, nonce);
}

static void next_block(struct chacha *c)
{
    uint32_t x[16];
    memcpy(x, c->input, sizeof(x));
    for (int i = 0; i < ROUNDS; i += 2) {
        quarter(x, 0, 4, 8, 12);
        quarter(x, 1, 5, 9, 13);
        quarter(x, 2, 6, 10, 14);
        quarter(x, 3, 7, 11, 15);
        quarter(x, 0, 5, 10, 15);
        quarter(x, 1, 6, 11, 12);
        quarter(x, 2, 7, 8, 13);
        quarter(x, 3, 4, 9, 14);
    }
    for (int i = 0; i < 16; i++) {
        store(c->block + 4 * i, x[i] + c->input[i]);
    }
    c->used = 0;
    if (++c->input[12] == 0) {
        c->input[13]++;
    }
}

void chacha_bytes(struct chacha *c, uint8_t *out, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++) {
        if (c->used == sizeof(c->block)) {
            next_block(c);
        }
        out[i] = c->block[c->used++];
    }
}

uint64_t chacha_next(struct chacha *c)
{
    if (c->used + 8 > sizeof(c->block)) {
        next_block(c);
    }
    uint64_t v = load(c->block + c->used) | (uint64_t)load(c->block + c->used + 4) << 32;
    c->used += 8;
    return v;
}

uint32_t chacha_below(struct chacha *c, uint32_t bound)
{
    if (c->used + 4 > sizeof(c->block)) {
        next_block(c);
    }
    uint64_t v = load(c->block + c->used);
    c->used += 4;
    return (uint32_t)(v * bound >> 32);
}

uint32_t chacha_between(struct chacha *c, uint32_t low, uint32_t high)
{
    return low + chacha_below(c, high - low + 1);
}

bool chacha_percent(struct chacha *c, uint32_t percent)
{
    return chacha_below(c, 100) < percent;
}

bool chacha_ppm(struct chacha *c, uint32_t ppm)
{
    return chacha_below(c, 1000000) < ppm;
}
