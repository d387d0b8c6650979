/*
 * One operation of the release library, done by a process under ptrace one instruction at a time, and
 * every change that it made to the region and to the store's files, in order.
 *
 * A moment of the operation is its beginning and the first n changes. Being killed between two
 * instructions leaves one of these moments and nothing else, since the region and the files are all that
 * survives a process.
 */
#ifndef RF_CRASH_RECORDING_H
#define RF_CRASH_RECORDING_H

#include <sys/types.h>

#include "instruction.h"
#include "scenes.h"
#include "stage.h"

struct rf_change {
    uint64_t step; /* instructions from the operation's entry */
    uint64_t rip;
    uint64_t offset;
    uint32_t len;
    int32_t files;      /* -1: a store into the region; else the files are this list from here on */
    int64_t region_len; /* with files: of the region's file; -1: there is none */
    uint8_t was[RF_STORE_MAX];
    uint8_t now[RF_STORE_MAX];
};

struct rf_changes {
    struct rf_change *list;
    uint32_t count;
    uint32_t room;
};

struct rf_recording {
    bool fresh;            /* the region came into being meanwhile */
    struct rf_image image; /* at the beginning; moved by rf_recording_go */
    struct rf_changes changes;
    struct rf_files *files; /* [0]: at the beginning */
    uint32_t files_count;
    uint64_t instructions;
    uint32_t at; /* how many changes the image has */
    pid_t pid;   /* of who did it; his life in the region is this number */
    rf_lease lease;
    rf_status status;
    char wrong[256]; /* why it is worth nothing; "": it is good */
};

struct rf_recorder {
    const struct scene *scene;
    uint32_t flags; /* RF_BOUND, RF_DETACHED */
    const struct rf_site_paths *paths;
    rf_options options; /* to open the store with */
    rf_tenant tenant;
    uint8_t *region;       /* mapped here; NULL: there is none, the operation makes it */
    bool with_files;       /* the operation may change files */
    uint32_t compare_each; /* compare all of the region after so many instructions; 0: at the end */
};

/* Plays it. The process is gone afterwards. */
void rf_record(const struct rf_recorder *recorder, struct rf_recording *recording);
/* Moves the image to the moment after `count` changes. */
void rf_recording_go(struct rf_recording *recording, uint32_t count);
const struct rf_files *rf_recording_files(const struct rf_recording *recording);
/* Of the region's file, -1: there is none. */
int64_t rf_recording_region_len(const struct rf_recording *recording);
void rf_recording_drop(struct rf_recording *recording);

struct rf_change *rf_changes_add(struct rf_changes *changes);

#endif
