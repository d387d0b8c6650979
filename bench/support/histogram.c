#include "histogram.h"

#include <math.h>

/* The largest value that is counted here. */
static uint64_t bucket_end(uint32_t bucket)
{
    if (bucket < 2u << HISTOGRAM_BITS) {
        return bucket;
    }
    uint32_t shift = (bucket >> HISTOGRAM_BITS) - 1;
    uint64_t top = bucket - (shift << HISTOGRAM_BITS);
    return (top << shift) + ((1ull << shift) - 1);
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    if (from->count == 0) {
        return;
    }
    into->least = into->count == 0 || from->least < into->least ? from->least : into->least;
    into->most = from->most > into->most ? from->most : into->most;
    into->count += from->count;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        into->buckets[i] += from->buckets[i];
    }
}

uint64_t histogram_quantile(const struct histogram *h, double part)
{
    uint64_t rank = (uint64_t)ceil(part * (double)h->count), seen = 0;
    rank = rank == 0 ? 1 : rank;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        seen += h->buckets[i];
        if (seen >= rank) {
            uint64_t end = bucket_end(i);
            return end < h->most ? end : h->most;
        }
    }
    return h->most;
}
