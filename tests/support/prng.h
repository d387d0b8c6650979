/* A small seeded stream of numbers (splitmix64): same seed, same test, on any machine. */
#ifndef RF_TEST_PRNG_H
#define RF_TEST_PRNG_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct rf_prng {
    uint64_t state;
};

static inline uint64_t rf_prng_next(struct rf_prng *prng)
{
    uint64_t z = prng->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 .. bound - 1. The bias of the remainder does not matter for bounds of a test's size. */
static inline uint32_t rf_prng_below(struct rf_prng *prng, uint32_t bound)
{
    return (uint32_t)((rf_prng_next(prng) >> 32) % bound);
}

static inline bool rf_prng_chance(struct rf_prng *prng, uint32_t percent)
{
    return rf_prng_below(prng, 100) < percent;
}

static inline void rf_prng_bytes(struct rf_prng *prng, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)(rf_prng_next(prng) >> 56);
    }
}

/* A number from the environment, or the one that a test has of its own: RF_SEED to repeat a run,
 * RF_SECONDS for how long a long one goes on. What is set but no number is a mistake to hear of. */
static inline uint64_t rf_env_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    if (text == NULL || text[0] == 0) {
        return otherwise;
    }
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno != 0 || *end != 0) {
        fprintf(stderr, "%s=%s is not a number\n", name, text);
        exit(2);
    }
    return value;
}

#endif
