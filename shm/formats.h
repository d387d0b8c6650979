/*
 * Which ringfence reads which format. Every file of a store says its format, and a region its version; a number is never
 * given to two formats.
 *
 *   what            format   first ringfence
 *   store file      1        0.1.0
 *   log             1        0.1.0            segments and batches
 *   snapshot        1        none             without the hash of a batch; never released
 *                   2        0.1.0
 *   region          1        none             never released
 *                   2        0.1.0
 *
 * A format is read by its first ringfence and those after it, up to the one that has the next line. This one reads the
 * newest of each, and converts nothing: a file of another format is refused and left alone, and the refusal says which
 * ringfence is asked for. What is damaged is told apart from that by its hash, which is found in the same place in every
 * format (store_file.h, log_format.h).
 */
#ifndef RF_FORMATS_H
#define RF_FORMATS_H

#include "ringfence/ringfence.h"

enum rf_format_of { RF_FORMAT_STORE, RF_FORMAT_LOG, RF_FORMAT_SNAPSHOT, RF_FORMAT_REGION };

/* The first ringfence with it; NULL: none that was released, or a later one than this. */
const char *rf_format_since(enum rf_format_of what, uint32_t format);
/* The one that this library reads. */
uint32_t rf_format_ours(enum rf_format_of what);

/* RF_VERSION_MISMATCH, and which ringfence to use. */
rf_status rf_refuse_format(enum rf_format_of what, uint32_t format, const char *file,
                           rf_detail *detail);

#endif
