/* The end of a scan: what was found, as a table, as JSON lines, as SARIF. */
#ifndef RF_SCAN_REPORT_H
#define RF_SCAN_REPORT_H

#include "scan.h"

struct parked {
    uint64_t shard;
    rf_park_reason reason;
    uint64_t first, end; /* items */
    uint64_t at;         /* the item it stood at */
};

struct report {
    struct record *findings; /* sorted by file, place, rule; with line numbers */
    size_t count;
    struct record *unreadable;
    size_t unreadable_count;
    struct parked *parked;
    size_t parked_count;
    uint64_t files, bytes, binary, vanished, allowed;
    uint64_t known; /* findings that the baseline has; they are not among the others */
    uint64_t restarts, splits;
    uint64_t refused;  /* commits of leases that were lost */
    uint64_t left_out; /* bytes of findings that were written and not committed */
    double seconds;
    bool resumed;
};

/* The fingerprints of an earlier report. */
struct baseline {
    uint64_t *known; /* ascending */
    size_t count;
};

/* False if the file can't be read or is not a whole report, which is said on standard error. */
bool baseline_read(struct baseline *baseline, const char *file);
void baseline_free(struct baseline *baseline);

/* Puts together what the shards' cursors say counts. False if something is missing, damaged or
 * there twice, which is said on standard error. */
bool report_gather(struct report *report, struct farm *farm, rf_store *store);
bool report_gather_uncoordinated(struct report *report, struct farm *farm);
/* Leaves out what the baseline has. */
void report_leave_out(struct report *report, const struct baseline *baseline);
/* Whether the files that the options name can be written: asked before the scan, which may be long.
 * False is said on standard error. */
bool report_can_write(const struct options *options);
/* Writes what the options ask for. */
bool report_write(const struct report *report, const struct farm *farm);
void report_free(struct report *report);

const char *park_reason_text(rf_park_reason reason);

#endif
