/*
 * The work, as a sorted table in a file: every file of the trees, large ones in segments. An item's
 * key is its position, so that ranges of keys are ranges of the table, whatever the names look like.
 * The table is made once for a scan and only read after that, by every process.
 */
#ifndef RF_SCAN_ITEMS_H
#define RF_SCAN_ITEMS_H

#include "options.h"

#define ITEM_COST 8192u /* what opening a file costs, in bytes scanned */

struct item {
    uint64_t path;   /* where its name is in the names */
    uint64_t offset; /* of the segment in the file */
    uint64_t length; /* of the segment, as of the walk */
    uint64_t before; /* the cost of all items before this one */
    uint32_t root;   /* which PATH of the command it is below */
    uint32_t name;   /* where in the path the name below the root begins */
    int32_t error;   /* errno: the walk could not read it */
    uint16_t first;  /* segment of its file */
    uint16_t last;
};

struct items_header {
    uint64_t magic;
    uint64_t run; /* of this scan, in the store */
    uint64_t count;
    uint64_t name_bytes;
    uint64_t bytes;
    uint64_t files;
    uint64_t cost;
    uint64_t shards; /* how many the run begins with */
    uint64_t lease_ns;
    uint64_t hash; /* of all else in the header */
};

struct items {
    const struct items_header *header;
    const struct item *list;
    const char *names;
    void *map;
    size_t map_size;
};

/* Walks the trees and writes the table, whole or not at all. skip_dev and skip_ino name a directory
 * that is not entered: the scan's own. */
bool items_make(const struct options *options, const char *file, uint64_t run, uint64_t skip_dev,
                uint64_t skip_ino);
/* False if there is no (whole) table. */
bool items_open(struct items *items, const char *file);
void items_close(struct items *items);
/* Lets go of the pages that were read. */
void items_forget(const struct items *items);

static inline const char *item_path(const struct items *items, uint64_t index)
{
    return items->names + items->list[index].path;
}

/* The cost of the items [from, to). */
static inline uint64_t items_cost(const struct items *items, uint64_t from, uint64_t to)
{
    uint64_t count = items->header->count;
    return (to < count ? items->list[to].before : items->header->cost) -
           (from < count ? items->list[from].before : items->header->cost);
}

/* The first item at which [from, it) costs at least this much; from < it <= to. */
uint64_t items_cut(const struct items *items, uint64_t from, uint64_t to, uint64_t cost);

/* Opens the file of an item for reading, following no link below its root, which `root_fd` is; -1
 * and errno. */
int item_open(const struct items *items, uint64_t index, int root_fd);

#endif
