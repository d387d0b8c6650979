/* One line on a terminal that is drawn again and again. */
#ifndef RF_CLI_PROGRESS_BAR_H
#define RF_CLI_PROGRESS_BAR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct bar_state {
    uint64_t run;
    uint64_t whole; /* shards that will be done or parked in the end */
    uint64_t done;
    uint64_t parked;
    uint64_t running; /* commands, for `work` */
    bool more;        /* of the whole, not all is known yet */
};

struct progress_bar {
    uint64_t began_ns; /* 0: not yet */
    uint64_t done_then;
    bool drawn;
};

void bar_draw(struct progress_bar *bar, FILE *to, const struct bar_state *state);
void bar_clear(struct progress_bar *bar, FILE *to);

#endif
