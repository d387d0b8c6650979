/*
 * A disk that forgets, for the files of a scan. What is synced is copied to a directory of its own, the
 * shadow: a file as it is then, a directory as the names in it. A power cut leaves that and, in the worst
 * case, nothing else: files that were never synced are empty, names that were made since their directory
 * was synced are not there, and names that were removed since are there again.
 *
 * The store has a simulated disk of its own (tests/support/simdisk.h); here it is kept as it is.
 */
#ifndef RF_SCAN_SHADOW_H
#define RF_SCAN_SHADOW_H

/* Syncs, and copies what was synced. Returns what `sync` does. */
int shadow_sync(const char *shadow, int fd, int (*sync)(int fd));
/* Makes of parent/name what is left of it. */
void shadow_restore(const char *shadow, const char *parent, const char *name);

#endif
