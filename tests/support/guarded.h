/* Memory with an unreadable page right behind it: one byte too far is a SIGSEGV, with or without a
 * sanitizer. */
#ifndef RF_TEST_GUARDED_H
#define RF_TEST_GUARDED_H

#include <stddef.h>
#include <stdint.h>

struct guarded {
    uint8_t *start;
    size_t size; /* readable bytes, whole pages */
    size_t mapped;
};

struct guarded guarded_make(size_t size);
void guarded_free(struct guarded *g);

/* The last n bytes before the edge. */
uint8_t *guarded_tail(const struct guarded *g, size_t n);
/* The same, with a copy of these in them. */
const uint8_t *guarded_copy(const struct guarded *g, const void *bytes, size_t n);

#endif
