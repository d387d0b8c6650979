/* Numbers for the shards that were ever heard of: tenant, run and shard id, across all lives. */
#ifndef RF_SIM_NAMES_H
#define RF_SIM_NAMES_H

#include <stdint.h>

struct name {
    uint64_t run, shard;
    uint32_t tenant;
};

struct names {
    struct name *list;
    uint32_t count, room;
    uint32_t *cells; /* 1 + number; 0: free */
    uint32_t cell_count;
};

/* The number of a name, in the order in which they were first asked for. */
uint32_t names_number(struct names *n, uint32_t tenant, uint64_t run, uint64_t shard);
void names_free(struct names *n);

#endif
