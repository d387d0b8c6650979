/*
 * The STATUS TABLE of ringfence.h, read from the header's own text, and what was seen of it: every
 * desk notes what every call returned, and a status that is not in the operation's row fails the
 * test on the spot.
 */
#ifndef RF_TEST_STATUS_TABLE_H
#define RF_TEST_STATUS_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "ringfence/ringfence.h"

#define RF_TABLE_ROWS   24u
#define RF_TABLE_STATUS 128u /* every status is below it */

struct rf_table_row {
    char op[32];
    rf_status statuses[32]; /* in the order of the line */
    uint32_t count;
    bool allowed[RF_TABLE_STATUS];
    bool seen[RF_TABLE_STATUS];
};

/* The row of an operation. Fails the test if the header or the row can't be read. */
struct rf_table_row *rf_table_row(const char *op);
/* All of them, *count long. */
struct rf_table_row *rf_table_rows(uint32_t *count);

/* The operation returned this status. */
void rf_table_note(const char *op, rf_status status);

/* The whole text of a file of the source tree, with a NUL; to be freed by the caller. */
char *rf_source_text(const char *path);

#endif
