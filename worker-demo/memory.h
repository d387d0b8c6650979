/* Memory that is there: a scanner that can't have a few bytes has nothing better to do than to end,
 * and being ended is what it is built for. */
#ifndef RF_SCAN_MEMORY_H
#define RF_SCAN_MEMORY_H

#include <stddef.h>

void *must_alloc(size_t size); /* zeroed */
char *must_copy(const char *text);
/* Room for `count` things, growing by halves. */
void *must_grow(void *old, size_t count, size_t size);

#endif
