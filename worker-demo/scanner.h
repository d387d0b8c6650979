/* Scans one item, chunk by chunk, and can be told to go on in the middle of it. */
#ifndef RF_SCAN_SCANNER_H
#define RF_SCAN_SCANNER_H

#include "matcher.h"
#include "scan.h"

struct scanner;
struct scanner *scanner_create(const struct farm *farm);
void scanner_destroy(struct scanner *scanner);

/* Scans the item from progress->offset on and adds what it finds to the ledger. Calls `pause` after
 * each chunk, with progress and ledger in a state that may be committed; if that returns false it
 * stops, and so returns false. */
typedef bool scanner_pause(void *context, uint64_t item);
bool scanner_item(struct scanner *scanner, uint64_t item, struct progress *progress,
                  struct ledger *ledger, scanner_pause *pause, void *context);

#endif
