/* Reads the JSON lines of rf-scan, and holds them against what was planted. */
#ifndef RF_SCAN_FOUND_H
#define RF_SCAN_FOUND_H

#include "corpus.h"

struct found {
    struct planted *list; /* sorted as the planted ones; rules are copies */
    size_t count;
    bool has_summary;
    uint64_t files, bytes, restarts, splits, refused, left_out, unreadable, vanished, set_aside,
        binary, known, allowed;
    bool resumed;
};

/* Paths are cut by `prefix` and a slash. False if it is no such file. */
bool found_read(struct found *found, const char *file, const char *prefix);
void found_free(struct found *found);

struct reckoning {
    size_t right, lost, twice, wrong; /* wrong: found and never planted */
    const struct planted *first_lost, *first_wrong;
};
struct reckoning found_reckon(const struct found *found, const struct corpus *corpus);

/* Removes a directory and all below it. */
void remove_tree(const char *dir);

#endif
