#include "range.h"

#include <stdlib.h>

void rf_detail_clear(rf_detail *detail)
{
    if (detail != NULL) {
        memset(detail, 0, sizeof(*detail));
    }
}

rf_status rf_refuse_size(rf_detail *detail, rf_status status, uint64_t size, uint64_t limit)
{
    if (detail != NULL) {
        detail->size = size;
        detail->limit = limit;
    }
    return status;
}

bool rf_range_upright(const rf_spec *range)
{
    return range->start.len == 0 || range->end.len == 0 ||
           rf_bytes_compare(range->start, range->end) < 0;
}

bool rf_spec_sound(const rf_spec *spec)
{
    return rf_bytes_sound(spec->start) && rf_bytes_sound(spec->end) &&
           rf_bytes_sound(spec->metadata);
}

bool rf_cursor_sound(const rf_cursor *cursor)
{
    return rf_bytes_sound(cursor->key) && rf_bytes_sound(cursor->token);
}

rf_status rf_spec_check_sizes(const rf_spec *spec, rf_detail *detail)
{
    if (spec->start.len > RF_KEY_MAX) {
        return rf_refuse_size(detail, RF_KEY_TOO_LARGE, spec->start.len, RF_KEY_MAX);
    }
    if (spec->end.len > RF_KEY_MAX) {
        return rf_refuse_size(detail, RF_KEY_TOO_LARGE, spec->end.len, RF_KEY_MAX);
    }
    if (spec->metadata.len > RF_METADATA_MAX) {
        return rf_refuse_size(detail, RF_METADATA_TOO_LARGE, spec->metadata.len, RF_METADATA_MAX);
    }
    return RF_OK;
}

static int by_start(const void *a, const void *b)
{
    return rf_bytes_compare(((const rf_spec *)a)->start, ((const rf_spec *)b)->start);
}

void rf_ranges_sort(rf_spec *ranges, uint32_t count)
{
    qsort(ranges, count, sizeof(*ranges), by_start);
}
