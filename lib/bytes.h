/* Borrowed byte strings and little-endian words: the alphabet that everything else is spelled in. */
#ifndef RF_BYTES_H
#define RF_BYTES_H

#include <string.h>

#include "ringfence/ringfence.h"

static inline rf_bytes rf_bytes_of(const void *data, size_t len)
{
    return (rf_bytes){.data = data, .len = len};
}

static inline rf_bytes rf_bytes_none(void)
{
    return (rf_bytes){.data = NULL, .len = 0};
}

static inline bool rf_bytes_equal(rf_bytes a, rf_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Absent bytes have no length; anything else is a caller's mistake. */
static inline bool rf_bytes_sound(rf_bytes b)
{
    return b.data != NULL || b.len == 0;
}

static inline int rf_bytes_compare(rf_bytes a, rf_bytes b)
{
    size_t shorter = a.len < b.len ? a.len : b.len;
    int order = shorter == 0 ? 0 : memcmp(a.data, b.data, shorter);
    if (order != 0) {
        return order;
    }
    return (a.len > b.len) - (a.len < b.len);
}

static inline bool rf_tenant_equal(const rf_tenant *a, const rf_tenant *b)
{
    uint64_t x[4], y[4];
    if (a == b) {
        return true;
    }
    memcpy(x, a->bytes, sizeof(x));
    memcpy(y, b->bytes, sizeof(y));
    return ((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3])) == 0;
}

static inline uint64_t rf_add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum < a ? UINT64_MAX : sum;
}

static inline void rf_store_le32(uint8_t *out, uint32_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    memcpy(out, &v, sizeof(v));
}

static inline void rf_store_le64(uint8_t *out, uint64_t v)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(out, &v, sizeof(v));
}

static inline uint32_t rf_load_le32(const uint8_t *in)
{
    uint32_t v;
    memcpy(&v, in, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint64_t rf_load_le64(const uint8_t *in)
{
    uint64_t v;
    memcpy(&v, in, sizeof(v));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

#endif
