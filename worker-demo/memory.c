#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *or_end(void *memory)
{
    if (memory == NULL) {
        fputs("rf-scan: out of memory\n", stderr);
        exit(2);
    }
    return memory;
}

void *must_alloc(size_t size)
{
    return or_end(calloc(1, size + (size == 0)));
}

char *must_copy(const char *text)
{
    return or_end(strdup(text));
}

/* A power of two of things: it needs to grow when the count passes one. */
void *must_grow(void *old, size_t count, size_t size)
{
    if (count > 1 && ((count - 1) & (count - 2)) != 0) {
        return old;
    }
    size_t room = count <= 1 ? 1 : 2 * (count - 1);
    void *memory = NULL;
    if (room > (size_t)-1 / size) {
        return or_end(NULL);
    }
    memory = or_end(realloc(old, room * size));
    return memory;
}
