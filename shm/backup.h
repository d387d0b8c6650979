/* A copy of a live store in another directory: a snapshot, and the log behind it up to what is durable
 * when the copy is made. */
#ifndef RF_BACKUP_H
#define RF_BACKUP_H

#include "handle.h"

rf_status rf_shm_backup(rf_store *store, const char *directory, rf_detail *detail);

#endif
