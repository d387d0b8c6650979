/*
 * Named places right after a shared store, where a test can kill, stop or delay a process.
 * Compiled out unless RF_POINTS is defined: in the released library they are nothing at all.
 */
#ifndef RF_POINT_H
#define RF_POINT_H

#ifdef RF_POINTS
/* Called at every point by whoever gets there; set by the test before it opens a store. */
typedef void rf_point_hook(const char *name);
extern rf_point_hook *rf_point_on_hit;
#define RF_POINT(name)                                                                             \
    do {                                                                                           \
        if (rf_point_on_hit != 0) {                                                                \
            rf_point_on_hit(name);                                                                 \
        }                                                                                          \
    } while (0)
#else
#define RF_POINT(name) ((void)0)
#endif

#endif
