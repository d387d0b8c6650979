/* One worker process: claims shards, scans their items, commits. */
#ifndef RF_SCAN_WORKER_H
#define RF_SCAN_WORKER_H

#include "scan.h"

/* How a worker ends, when it is not killed. */
enum { WORKER_DONE = 0, WORKER_FAILED = 3, WORKER_DRAINED = 4 };

void __attribute__((noreturn)) worker_main(struct farm *farm, unsigned slot);
/* The same scan without any coordination, for measuring what that costs: items are handed out by a
 * counter, findings are written at the end, and a worker that dies loses everything. */
void __attribute__((noreturn)) worker_main_uncoordinated(struct farm *farm, unsigned slot);

/* Rule, path and secret as one number; to know a finding again. */
uint64_t finding_fingerprint(const char *rule, const char *path, const uint8_t *secret, size_t len);

void key_of(uint64_t index, uint8_t key[8]);
uint64_t index_of(rf_bytes key);

#endif
