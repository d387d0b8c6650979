/* The write that durability can't do without: a block of 4 KiB, O_DIRECT and RWF_DSYNC, into a file that
 * is written already, since only then does a write not change what the file system knows. */
#ifndef RF_BENCH_RAW_H
#define RF_BENCH_RAW_H

#include <stdint.h>

#include "histogram.h"

#define RAW_BLOCK     4096u
#define RAW_DEPTH_MAX 64u

struct raw;

/* Makes the file. Where O_DIRECT is refused, it is refused to ringfence as well, and left out. */
struct raw *raw_open(const char *path);
void raw_close(struct raw *raw);

/* One write, by pwritev2. */
void raw_write(struct raw *raw);

/* Keeps so many writes in flight with io_uring for a while. Returns writes a second, and adds the time of
 * each, in ns; 0 if io_uring is refused here or was not built in. */
double raw_flood(struct raw *raw, uint32_t depth, double seconds, struct histogram *times);

#endif
