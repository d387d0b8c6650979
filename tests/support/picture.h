/*
 * A picture of one run: everything that the public interface shows of it, as text, so that two of
 * them are compared by strcmp and a difference is seen at once. Bytes are shown by length and hash.
 *
 * Taking one also holds what is seen to the rules that have no exception (S4, S6, S7, S10; the
 * counts of the run against its shards; a shard on its own against the same shard in the list).
 */
#ifndef RF_TEST_PICTURE_H
#define RF_TEST_PICTURE_H

#include "ringfence/ringfence.h"

struct picture {
    char *text;
    size_t len;
    size_t room;
    uint64_t highest_fence; /* as it is, not relative to the floor */
    char broken[256];       /* a rule that does not hold; empty: all do */
};

/* fence_floor: the store's when the run was made; fences are shown relative to it, so that pictures
 * of runs made one after another under the same id can be compared. A run that does not exist is a
 * picture too. Sweeps the run for `now` first, so that the capacity is exact. versions: show them
 * too. */
rf_status picture_take(struct picture *p, rf_store *store, const rf_tenant *tenant, uint64_t run,
                       uint64_t now, uint64_t fence_floor, bool versions);
/* The same without a sweep and without numbers that are read on their own: takes no lock, so it can
 * be had while others are stopped in the middle of something. RF_BUSY if some of it can't be read. */
rf_status picture_peek(struct picture *p, rf_store *store, const rf_tenant *tenant, uint64_t run,
                       uint64_t now, uint64_t fence_floor);

/* What a run shows, had from elsewhere. */
struct picture_facts {
    rf_run_info run;
    const rf_shard_info *shards; /* as they are listed: by start, then by id */
    uint32_t count;
    rf_progress progress;
    rf_bytes watermark;
    rf_capacity capacity;
};

/* The picture of these facts, without versions. NULL: of no run. */
void picture_draw(struct picture *p, const struct picture_facts *facts, uint64_t fence_floor);
/* Whether every line of it is one of a or of b. */
bool picture_is_of(const struct picture *p, const struct picture *a, const struct picture *b);
void picture_free(struct picture *p);

/* The first line where they differ, both sides, in static memory. */
const char *picture_difference(const struct picture *a, const struct picture *b);

#endif
