#define _GNU_SOURCE
#include "pages.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* not yet in the C library of Debian 12 */
#endif

#define PIECE          (2ull << 20)
#define GRANULES       (PIECE / RF_GRANULE)
#define PIECES_AT_ONCE 4u
_Static_assert(GRANULES == 32, "the growth bits of a piece are one half of a word");

static uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

uint8_t *rf_pages_map(int fd, uint64_t bytes, int protection)
{
    /* Room for any beginning; then the file over a part of it, and the rest is given back. */
    uint64_t room = align_up(bytes, PIECE) + PIECE;
    uint8_t *all = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        return NULL;
    }
    uint8_t *base = all + (align_up((uintptr_t)all, PIECE) - (uintptr_t)all);
    uint8_t *end = base + align_up(bytes, 4096);
    if (mmap(base, bytes, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        int error = errno;
        munmap(all, room);
        errno = error;
        return NULL;
    }
    if (base != all) {
        munmap(all, (size_t)(base - all));
    }
    munmap(end, (size_t)(all + room - end));
    return base;
}

/* --- pieces: those that lie within the extents, from 0 on --- */

static uint64_t first_offset(const struct rf_header *h)
{
    return align_up(h->extents.offset, PIECE);
}

static uint64_t piece_count(const struct rf_header *h)
{
    uint64_t end = h->extents.offset + h->extents.count * h->extents.stride;
    return end > first_offset(h) ? (end - first_offset(h)) / PIECE : 0;
}

/* Every byte of it was made sure of. A stale answer is "no", and somebody looks again. */
static bool is_there(const struct rf_map *map, uint64_t piece)
{
    const struct rf_header *h = map->header;
    if (piece >= piece_count(h)) {
        return false;
    }
    uint64_t granule = first_offset(h) / RF_GRANULE + piece * GRANULES;
    const rf_word64 *word = (const rf_word64 *)(map->base + h->growth.offset) + granule / 64;
    /* acquire: pairs with the store in ensure (region.c), after the memory was there. */
    return (uint32_t)(atomic_load_explicit(word, memory_order_acquire) >> (granule % 64)) ==
           UINT32_MAX;
}

bool rf_pages_due(const struct rf_map *map)
{
    return is_there(map, atomic_load_explicit(&map->header->enlarged, memory_order_relaxed));
}

void rf_pages_enlarge(struct rf_map *map)
{
    struct rf_header *h = map->header;
    while (!atomic_load(&map->closing)) {
        uint64_t from = atomic_load_explicit(&h->enlarged, memory_order_relaxed), to = from;
        while (to - from < PIECES_AT_ONCE && is_there(map, to)) {
            to++;
        }
        if (to == from) {
            return;
        }
        /* relaxed: the word says who asks for what; nothing is published by it. */
        if (atomic_compare_exchange_strong_explicit(&h->enlarged, &from, to, memory_order_relaxed,
                                                    memory_order_relaxed)) {
            madvise(map->base + first_offset(h) + from * PIECE, (to - from) * PIECE, MADV_COLLAPSE);
        }
    }
}
