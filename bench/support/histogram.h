/*
 * How often a value was seen, in buckets whose width grows with the value (log-linear): exact below
 * 256, and never more than 1/128 of the value wide above. Of a fixed size, so that each process can
 * have its own in shared memory, and they are added up at the end.
 */
#ifndef RF_BENCH_HISTOGRAM_H
#define RF_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS    7u /* buckets for each power of two: 2 to this */
#define HISTOGRAM_BUCKETS ((65u - HISTOGRAM_BITS) << HISTOGRAM_BITS)

/* All zero is an empty one. */
struct histogram {
    uint64_t count;
    uint64_t least; /* exact */
    uint64_t most;  /* exact */
    uint64_t buckets[HISTOGRAM_BUCKETS];
};

static inline uint32_t histogram_bucket(uint64_t value)
{
    if (value < 1u << HISTOGRAM_BITS) {
        return (uint32_t)value;
    }
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_BITS;
    return (shift << HISTOGRAM_BITS) + (uint32_t)(value >> shift);
}

static inline void histogram_add(struct histogram *h, uint64_t value)
{
    h->least = h->count == 0 || value < h->least ? value : h->least;
    h->most = value > h->most ? value : h->most;
    h->count++;
    h->buckets[histogram_bucket(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from);

/* The smallest value such that this part of all is not above it: at least the true one, and at most
 * 1/128 above it. part is from 0 to 1; the whole (1) is the exact maximum. 0 if it is empty. */
uint64_t histogram_quantile(const struct histogram *h, double part);

#endif
