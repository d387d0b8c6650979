/*
 * Sequence locks: one writer (who holds the record's lock), any number of readers who never lock.
 *
 * The writer makes the word odd, writes, and makes it even again. A reader copies between two equal
 * even readings. The bytes in between are read and written as 8-byte relaxed atomics, so a reader
 * may see a mixture, which the second reading tells it to throw away. The word is never reset, not
 * even when the slot is reused, so an old reading never matches by accident.
 *
 * A writer that dies leaves the word odd. Its reaper writes the same bytes again (rf_seq_open keeps
 * an odd word odd) and closes it.
 */
#ifndef RF_SEQ_H
#define RF_SEQ_H

#include "layout.h"

/* Pairs with the fence in rf_seq_valid. */
static inline uint32_t rf_seq_open(rf_word32 *seq)
{
    uint32_t odd = atomic_load_explicit(seq, memory_order_relaxed) | 1u;
    atomic_store_explicit(seq, odd, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    return odd;
}

/* Pairs with the load in rf_seq_begin. */
static inline void rf_seq_close(rf_word32 *seq, uint32_t odd)
{
    atomic_store_explicit(seq, odd + 1u, memory_order_release);
}

/* Pairs with rf_seq_close. An odd value means that somebody writes. */
static inline uint32_t rf_seq_begin(const rf_word32 *seq)
{
    return atomic_load_explicit(seq, memory_order_acquire);
}

/* Whether what was copied since rf_seq_begin belongs together. Pairs with rf_seq_open. */
static inline bool rf_seq_valid(const rf_word32 *seq, uint32_t begun)
{
    atomic_thread_fence(memory_order_acquire);
    return atomic_load_explicit(seq, memory_order_relaxed) == begun;
}

/* Records are structures of many types; here they are words. */
typedef uint64_t __attribute__((may_alias)) rf_any64;

static inline void rf_words_store(void *to, const void *from, size_t bytes)
{
    rf_any64 *t = to;
    const rf_any64 *f = from;
#pragma GCC unroll 8
    for (size_t i = 0; i < bytes / 8; i++) {
        __atomic_store_n(&t[i], f[i], __ATOMIC_RELAXED);
    }
}

static inline void rf_words_load(void *to, const void *from, size_t bytes)
{
    rf_any64 *t = to;
    const rf_any64 *f = from;
    for (size_t i = 0; i < bytes / 8; i++) {
        t[i] = __atomic_load_n(&f[i], __ATOMIC_RELAXED);
    }
}

/* Bytes of any length into a shared area of whole words; the last word is filled up with zeros. */
static inline void rf_bytes_store(uint8_t *to, const uint8_t *from, size_t len)
{
    size_t whole = len & ~(size_t)7;
    uint64_t word;
#pragma GCC unroll 8
    for (size_t i = 0; i < whole; i += 8) {
        memcpy(&word, from + i, 8);
        __atomic_store_n((rf_any64 *)(void *)(to + i), word, __ATOMIC_RELAXED);
    }
    if (whole != len) {
        word = 0;
        memcpy(&word, from + whole, len - whole);
        __atomic_store_n((rf_any64 *)(void *)(to + whole), word, __ATOMIC_RELAXED);
    }
}

static inline void rf_bytes_load(uint8_t *to, const uint8_t *from, size_t len)
{
    size_t whole = len & ~(size_t)7;
    uint64_t word;
    for (size_t i = 0; i < whole; i += 8) {
        word = __atomic_load_n((const rf_any64 *)(const void *)(from + i), __ATOMIC_RELAXED);
        memcpy(to + i, &word, 8);
    }
    if (whole != len) {
        word = __atomic_load_n((const rf_any64 *)(const void *)(from + whole), __ATOMIC_RELAXED);
        memcpy(to + whole, &word, len - whole);
    }
}

#endif
