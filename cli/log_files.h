/*
 * A store's files without the store: what its log, its snapshots and a recovery of them would be. Nothing
 * here changes a file, but repair_log. The one part of the command, beside cleanup, that looks inside
 * the library: it has to work when nothing can be opened.
 */
#ifndef RF_CLI_LOG_FILES_H
#define RF_CLI_LOG_FILES_H

#include "cli.h"
#include "log_read.h"
#include "recover.h"
#include "store_file.h"

struct log_files {
    const char *name;
    const char *directory;
    int dir_fd;
    int lock_fd;
    struct rf_store_file store;
    struct rf_disk *disk;
};

/* Says what is wrong, and returns an exit code. alone: nobody else may have the store open. */
int files_open(struct cli *cli, const char *name, bool alone, struct log_files *files);
void files_close(struct log_files *files);

/* What a cold open would find, worked out in memory of our own. */
rf_status files_rehearse(struct log_files *files, struct rf_recovered *recovered,
                         rf_detail *detail);

/* The epoch from which on the log is there. */
rf_status files_first_epoch(struct log_files *files, struct rf_log_reader *reader, uint64_t *epoch,
                            rf_detail *detail);

/* How a process of ours would write this log, and why not better ("" if it is the best there is). Both
 * last. false: there is no telling. */
bool files_io(const char *name, const char **path, const char **why);

#endif
