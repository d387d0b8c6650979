/* What simdisk.c (the trace) keeps for simdisk_image.c (what may be found after a cut). */
#ifndef RF_TEST_SIMDISK_TRACE_H
#define RF_TEST_SIMDISK_TRACE_H

#include <stdatomic.h>

#include "simdisk.h"

#define RF_SIMDISK_NAME_MAX 64u
#define RF_SIMDISK_NOTE     31u /* besides enum rf_disk_event_kind */

/* One event, kept for good. A process may be killed while it writes one: then it stays !complete, and what
 * it was about to tell was not begun, or is not known to have ended. */
struct rf_simdisk_entry {
    _Atomic uint32_t complete;
    uint32_t kind;
    uint32_t thread;
    uint32_t process;
    bool done;
    bool sync;
    bool replace;
    int error;
    uint64_t offset;
    uint64_t len;
    uint64_t id;    /* of a write; what was noted */
    uint64_t bytes; /* where in the trace's memory; UINT64_MAX: zeros */
    char name[RF_SIMDISK_NAME_MAX];
    char name2[RF_SIMDISK_NAME_MAX];
};

/* NULL: not complete. */
const struct rf_simdisk_entry *rf_simdisk_entry(uint32_t i);
const uint8_t *rf_simdisk_bytes(const struct rf_simdisk_entry *entry); /* NULL: zeros */
/* Whether it makes something durable, and is believed. */
bool rf_simdisk_settles(const struct rf_simdisk_entry *entry);

/* Files that were there at the beginning. */
struct rf_simdisk_file {
    char name[RF_SIMDISK_NAME_MAX];
    uint8_t *bytes;
    uint64_t size;
    struct rf_simdisk_file *next;
};
const struct rf_simdisk_file *rf_simdisk_first_files(void);

/* Counts what begins; a model of an older one is worthless. */
uint64_t rf_simdisk_generation(void);

#endif
