#include "names.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mixed(uint32_t tenant, uint64_t run, uint64_t shard)
{
    uint64_t x = shard + 0x9e3779b97f4a7c15u * (run * 16 + tenant + 1);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint32_t *cell_of(const struct names *n, uint32_t tenant, uint64_t run, uint64_t shard)
{
    uint32_t at = (uint32_t)mixed(tenant, run, shard) & (n->cell_count - 1);
    for (;; at = (at + 1) & (n->cell_count - 1)) {
        uint32_t number = n->cells[at];
        if (number == 0) {
            return &n->cells[at];
        }
        const struct name *is = &n->list[number - 1];
        if (is->shard == shard && is->run == run && is->tenant == tenant) {
            return &n->cells[at];
        }
    }
}

static void grow(struct names *n)
{
    free(n->cells);
    n->cell_count = n->cell_count == 0 ? 1024 : 2 * n->cell_count;
    n->cells = calloc(n->cell_count, sizeof(*n->cells));
    n->room = n->cell_count / 2;
    n->list = realloc(n->list, n->room * sizeof(*n->list));
    if (n->cells == NULL || n->list == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < n->count; i++) {
        *cell_of(n, n->list[i].tenant, n->list[i].run, n->list[i].shard) = i + 1;
    }
}

uint32_t names_number(struct names *n, uint32_t tenant, uint64_t run, uint64_t shard)
{
    if (n->count == n->room) {
        grow(n);
    }
    uint32_t *cell = cell_of(n, tenant, run, shard);
    if (*cell == 0) {
        n->list[n->count] = (struct name){.run = run, .shard = shard, .tenant = tenant};
        *cell = ++n->count;
    }
    return *cell - 1;
}

void names_free(struct names *n)
{
    free(n->list);
    free(n->cells);
    memset(n, 0, sizeof(*n));
}
