/* A copy of a live store in another directory: a snapshot, and the log behind it up to what is durable
 * when the copy is made.
 *
 * Fences are kept apart by incarnations: each cold open is one, and no fence of it is below incarnation << 40. The copy
 * begins RF_BACKUP_INCARNATIONS later than the store would go on. So a copy that takes the store's place repeats no fence
 * of as many cold opens of the store after the backup. Two that are opened from one backup repeat each other's. */
#ifndef RF_BACKUP_H
#define RF_BACKUP_H

#include "handle.h"

#define RF_BACKUP_INCARNATIONS 4096u

rf_status rf_shm_backup(rf_store *store, const char *directory, rf_detail *detail);

#endif
