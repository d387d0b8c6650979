/* Key ranges and cursors: what is inside what. Every check returns the status of PROTOCOL section 3
 * and fills in the sizes, never the bytes. */
#ifndef RF_RANGE_H
#define RF_RANGE_H

#include "bytes.h"

void rf_detail_clear(rf_detail *detail);
rf_status rf_refuse_size(rf_detail *detail, rf_status status, uint64_t size, uint64_t limit);

/* key in [start, end), empty = unbounded */
static inline bool rf_range_holds(const rf_spec *range, rf_bytes key)
{
    if (range->start.len != 0 && rf_bytes_compare(key, range->start) < 0) {
        return false;
    }
    return range->end.len == 0 || rf_bytes_compare(key, range->end) < 0;
}
/* start < end where both are bounded */
bool rf_range_upright(const rf_spec *range);
bool rf_spec_sound(const rf_spec *spec);
bool rf_cursor_sound(const rf_cursor *cursor);

rf_status rf_spec_check_sizes(const rf_spec *spec, rf_detail *detail);

/* The cursor checks of checkpoint, complete and release, in their order. */
static inline rf_status rf_cursor_check(const rf_cursor *cursor, const rf_cursor *stored,
                                        const rf_spec *range, rf_detail *detail)
{
    if (cursor->key.data == NULL) {
        return RF_MISSING_KEY;
    }
    if (cursor->key.len > RF_KEY_MAX) {
        return rf_refuse_size(detail, RF_KEY_TOO_LARGE, cursor->key.len, RF_KEY_MAX);
    }
    if (cursor->token.len > RF_TOKEN_MAX) {
        return rf_refuse_size(detail, RF_TOKEN_TOO_LARGE, cursor->token.len, RF_TOKEN_MAX);
    }
    bool inside;
    if (stored->key.data != NULL) {
        if (rf_bytes_compare(cursor->key, stored->key) < 0) {
            return rf_refuse_size(detail, RF_CURSOR_REGRESSION, cursor->key.len, RF_KEY_MAX);
        }
        /* Not below a key that is inside: only the end is left to look at. */
        inside = range->end.len == 0 || rf_bytes_compare(cursor->key, range->end) < 0;
    } else {
        inside = rf_range_holds(range, cursor->key);
    }
    if (!inside) {
        return rf_refuse_size(detail, RF_CURSOR_OUT_OF_BOUNDS, cursor->key.len, RF_KEY_MAX);
    }
    return RF_OK;
}

/* Sorts ranges by start. */
void rf_ranges_sort(rf_spec *ranges, uint32_t count);

#endif
