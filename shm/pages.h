/*
 * Large pages under the shards.
 *
 * A hundred thousand records lie on more pages than a processor remembers where to find, and a call on
 * a shard that is not in the cache then waits for the page's address before it waits for its bytes. On
 * pages of 2 MiB it does not. /dev/shm gives none by itself, as a rule; but the kernel exchanges 512
 * small ones for a large one when it is asked to (MADV_COLLAPSE, since Linux 6.1), while everybody goes on.
 *
 * A guardian asks, for what has been there for a while, in a thread of its own: it takes milliseconds.
 * Only pieces of which every byte was made sure of before are asked for, so that nothing is taken that was
 * not taken already. Which ones somebody has asked for is one word in the header. If he dies, or the
 * kernel refuses, pages stay small: nothing but speed hangs on it.
 */
#ifndef RF_PAGES_H
#define RF_PAGES_H

#include "region.h"

/* Maps a region's file so that large pages fit: each process sees one as such from its next touch on.
 * NULL: errno says why. */
uint8_t *rf_pages_map(int fd, uint64_t bytes, int protection);

/* Whether there is something to ask for. */
bool rf_pages_due(const struct rf_map *map);
/* Asks, until nothing is left or map->closing. */
void rf_pages_enlarge(struct rf_map *map);

#endif
