#include "guarded.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct guarded guarded_make(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct guarded g = {.size = (size + page - 1) / page * page};
    g.mapped = g.size + page;
    g.start = mmap(NULL, g.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert(g.start != MAP_FAILED);
    int rc = mprotect(g.start + g.size, page, PROT_NONE);
    assert(rc == 0);
    return g;
}

void guarded_free(struct guarded *g)
{
    munmap(g->start, g->mapped);
}

uint8_t *guarded_tail(const struct guarded *g, size_t n)
{
    assert(n <= g->size);
    return g->start + g->size - n;
}

const uint8_t *guarded_copy(const struct guarded *g, const void *bytes, size_t n)
{
    uint8_t *at = guarded_tail(g, n);
    if (n != 0) {
        memcpy(at, bytes, n);
    }
    return at;
}
