/* Key ranges and cursors: what is inside what. Every check returns the status of PROTOCOL section 3
 * and fills in the sizes, never the bytes. */
#ifndef RF_RANGE_H
#define RF_RANGE_H

#include "bytes.h"

void rf_detail_clear(rf_detail *detail);
rf_status rf_refuse_size(rf_detail *detail, rf_status status, uint64_t size, uint64_t limit);

/* key in [start, end), empty = unbounded */
bool rf_range_holds(const rf_spec *range, rf_bytes key);
/* start < end where both are bounded */
bool rf_range_upright(const rf_spec *range);
bool rf_spec_sound(const rf_spec *spec);
bool rf_cursor_sound(const rf_cursor *cursor);

rf_status rf_spec_check_sizes(const rf_spec *spec, rf_detail *detail);

/* The cursor checks of checkpoint, complete and release, in their order. */
rf_status rf_cursor_check(const rf_cursor *cursor, const rf_cursor *stored, const rf_spec *range,
                          rf_detail *detail);

/* Sorts ranges by start. */
void rf_ranges_sort(rf_spec *ranges, uint32_t count);

#endif
