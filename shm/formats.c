#include "formats.h"

#include <inttypes.h>

#include "log_format.h"
#include "region.h"
#include "store_file.h"

struct format {
    enum rf_format_of what;
    uint32_t number;
    const char *since; /* NULL: never released */
};

static const struct format formats[] = {
    {RF_FORMAT_STORE, RF_STORE_FORMAT, "0.1.0"},
    {RF_FORMAT_LOG, RF_LOG_FORMAT, "0.1.0"},
    {RF_FORMAT_SNAPSHOT, 1, NULL},
    {RF_FORMAT_SNAPSHOT, RF_SNAPSHOT_FORMAT, "0.1.0"},
    {RF_FORMAT_REGION, 1, NULL},
    {RF_FORMAT_REGION, RF_REGION_VERSION, "0.1.0"},
};
/* Whoever changes one adds a line and keeps the old one, with its number. */
_Static_assert(RF_STORE_FORMAT == 1 && RF_LOG_FORMAT == 1 && RF_SNAPSHOT_FORMAT == 2 &&
                   RF_REGION_VERSION == 2,
               "as in the table, and in formats.h");

const char *rf_format_since(enum rf_format_of what, uint32_t format)
{
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        if (formats[i].what == what && formats[i].number == format) {
            return formats[i].since;
        }
    }
    return NULL;
}

uint32_t rf_format_ours(enum rf_format_of what)
{
    uint32_t ours = 0;
    for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
        ours = formats[i].what == what && formats[i].number > ours ? formats[i].number : ours;
    }
    return ours;
}

rf_status rf_refuse_format(enum rf_format_of what, uint32_t format, const char *file,
                           rf_detail *detail)
{
    static const char *const names[] = {
        [RF_FORMAT_STORE] = "store",
        [RF_FORMAT_LOG] = "log",
        [RF_FORMAT_SNAPSHOT] = "snapshot",
        [RF_FORMAT_REGION] = "region",
    };
    uint32_t ours = rf_format_ours(what);
    const char *since = rf_format_since(what, format);
    if (format > ours) {
        return rf_refuse(detail, RF_VERSION_MISMATCH, 0,
                         "%s has %s format %" PRIu32 ", ringfence %s reads %" PRIu32
                         ": use the later one that wrote it",
                         file, names[what], format, rf_version_string(), ours);
    }
    return rf_refuse(detail, RF_VERSION_MISMATCH, 0,
                     "%s has %s format %" PRIu32 ", ringfence %s reads %" PRIu32 ": use %s%s", file,
                     names[what], format, rf_version_string(), ours,
                     since == NULL ? "the one that wrote it, which was never released"
                                   : "ringfence ",
                     since == NULL ? "" : since);
}
