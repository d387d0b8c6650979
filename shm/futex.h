/* The futex calls that ringfence uses. All words are in shared mappings, so none is private. */
#ifndef RF_FUTEX_H
#define RF_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"

#define RF_FUTEX_WAITV_MAX 128u

static inline uint64_t rf_monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* Between two looks at a word that somebody is about to change. */
static inline void rf_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline long rf_futex_wake(rf_word32 *word, int count)
{
    return syscall(SYS_futex, word, FUTEX_WAKE, count, NULL, NULL, 0);
}

/* Sleeps while *word == value, until the monotonic time `until_ns`. Returns 0 or an errno. */
static inline int rf_futex_wait(rf_word32 *word, uint32_t value, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000ull),
                             .tv_nsec = (long)(until_ns % 1000000000ull)};
    long rc =
        syscall(SYS_futex, word, FUTEX_WAIT_BITSET, value, &until, NULL, FUTEX_BITSET_MATCH_ANY);
    return rc < 0 ? errno : 0;
}

/* Sleeping by the bits of a mask, on the low half of a 64-bit word that only rises. */
static inline int rf_futex_wait_low(rf_word64 *word, uint64_t value, uint32_t mask,
                                    uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000ull),
                             .tv_nsec = (long)(until_ns % 1000000000ull)};
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, (uint32_t)value, &until, NULL, mask);
    return rc < 0 ? errno : 0;
}
static inline long rf_futex_wake_low(rf_word64 *word, int count, uint32_t mask)
{
    return syscall(SYS_futex, word, FUTEX_WAKE_BITSET, count, NULL, NULL, mask);
}

/* Sleeps until one of the words differs or is woken. Returns 0 or an errno. */
static inline int rf_futex_waitv(struct futex_waitv *words, unsigned count, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000ull),
                             .tv_nsec = (long)(until_ns % 1000000000ull)};
    long rc = syscall(SYS_futex_waitv, words, count, 0, &until, CLOCK_MONOTONIC);
    return rc < 0 ? errno : 0;
}

static inline struct futex_waitv rf_futex_watch(rf_word32 *word, uint32_t value)
{
    return (struct futex_waitv){
        .val = value, .uaddr = (uintptr_t)word, .flags = FUTEX_32, .__reserved = 0};
}

#endif
