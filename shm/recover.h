/*
 * What opening a store means: one table for every case, and the cold open.
 *
 *   store      region                        lock     who             ->
 *   any        good                          shared   any             attach: warm, nothing is replayed
 *   any        good                          alone    any             attach
 *   any        of another layout             any      any             refuse, with both values
 *   any        good, none, half, stale,      held     any             wait; then refuse: condemned and
 *                condemned                                              in use, or in use elsewhere
 *   lost       none, half, stale, condemned  not held any             refuse: the store file is damaged
 *                                                                       or gone, its files are not
 *   none,      likewise                      not held look            refuse: there is no region now
 *     volatile, durable
 *   none,      likewise                      not held open            refuse: there is no region now
 *     volatile
 *   none,      likewise                      shared   create          ask for the lock alone, look again
 *     volatile, durable
 *   durable    likewise                      shared   open            the same
 *   none,      likewise                      alone    create          build an empty one
 *     volatile
 *   durable    likewise                      alone    create, open    recover: cold
 *
 * store      none: no store file and no log; volatile, durable: what it says; lost: neither copy is
 *            good, or there is none but log or snapshots are there. A file of a newer format is refused
 *            before anything else.
 * region     good: complete, of this boot, named by the store file, not condemned. stale: complete,
 *            but not named, or of an earlier boot. condemned: good, but a write of its log failed: what it
 *            holds is not what the disk has. half: its builder died.
 * lock       shared: granted, others may be attached; alone: granted exclusively; held: by others. A builder is
 *            waited for much longer than processes that have another region.
 * who        create, or open only (create = false), or look only (read_only)
 *
 * A COLD OPEN holds the lock alone, and in this order
 *
 *   1 builds a region that nobody can see, by the options of the store file
 *   2 forgets what is cached of the log; loads the newest snapshot that is good, if there is one, and replays the log
 *     behind it
 *   3 voids all leases; fences, cursors and attempts stay
 *   4 syncs the segments that were read: what was found must not be lost any more
 *   5 raises the incarnation in both copies of the store file; the fence floor is never below
 *     incarnation << 40, so that no fence is granted twice though the log may have lost grants
 *   6 makes a new segment, whose header says where the log ended
 *   7 publishes the region
 *
 * Killed anywhere, it leaves a directory that the next cold open recovers to the same state: 1 to 4 change
 * nothing, 5 skips an incarnation, 6 leaves a segment in which nothing counts.
 */
#ifndef RF_RECOVER_H
#define RF_RECOVER_H

#include "replay.h"
#include "store_file.h"

/* --- the table --- */

enum rf_case_store {
    RF_CASE_STORE_NONE = 1,
    RF_CASE_STORE_VOLATILE = 2,
    RF_CASE_STORE_DURABLE = 4,
    RF_CASE_STORE_LOST = 8,
};
enum rf_case_region {
    RF_CASE_REGION_NONE = 1,
    RF_CASE_REGION_HALF = 2,
    RF_CASE_REGION_STALE = 4,
    RF_CASE_REGION_CONDEMNED = 8,
    RF_CASE_REGION_GOOD = 16,
    RF_CASE_REGION_FOREIGN = 32,
};
enum rf_case_lock { RF_CASE_SHARED = 1, RF_CASE_ALONE = 2, RF_CASE_HELD = 4 };
enum rf_case_who { RF_CASE_CREATE = 1, RF_CASE_OPEN = 2, RF_CASE_LOOK = 4 };

enum rf_case_action {
    RF_DO_ATTACH,
    RF_DO_WAIT,
    RF_DO_GO_ALONE,
    RF_DO_BUILD,
    RF_DO_RECOVER,
    RF_DO_REFUSE_LAYOUT,
    RF_DO_REFUSE_LOST,
    RF_DO_REFUSE_NO_REGION,
};

/* In a row of the table each field is the set of what it stands for; in a case it is one of them. */
struct rf_open_case {
    uint8_t store;
    uint8_t region;
    uint8_t lock;
    uint8_t who;
};
struct rf_open_row {
    struct rf_open_case fits;
    enum rf_case_action action;
};
extern const struct rf_open_row rf_open_table[];
extern const size_t rf_open_rows;

enum rf_case_action rf_open_decide(struct rf_open_case c);

/* --- the cold open --- */

struct rf_recovered {
    struct rf_log_shape log;
    uint64_t snapshot_epoch;    /* 0: none was loaded */
    uint64_t snapshot_size;     /* bytes */
    uint64_t replayed_position; /* where the replay began */
    struct rf_replay_tally tally;
};

/* What to do with leases that were in force at the end. */
enum rf_leases { RF_LEASES_VOID, RF_LEASES_KEEP };

/* Steps 2 and 3: what the directory holds up to the epoch `until` (UINT64_MAX: all) goes into a
 * fresh region. The header's store id and segment size say which log it is. has_log: there must be one.
 * *replay is for the caller to free. RF_CORRUPT, RF_VERSION_MISMATCH, RF_IO_ERROR; RF_RESOURCE_EXHAUSTED
 * without an errno: the region has too little room, though the same store had enough before (a
 * snapshot is not one moment). */
rf_status rf_recover_state(struct rf_map *map, struct rf_disk *disk, int dir_fd, bool has_log,
                           uint64_t until, enum rf_leases leases, struct rf_recovered *out,
                           struct rf_replay **replay, rf_detail *detail);

/* RF_CORRUPT if the batch is the one that the snapshot names (its epoch `complete`), and another: the snapshot is of
 * another history of the same store. */
rf_status rf_recover_is_followed(const struct rf_snapshot_header *snapshot,
                                 const struct rf_batch_header *batch, rf_detail *detail);

/* Steps 4 to 6, for a new store too. Fills in the header's incarnation, floor, time and log; `store`
 * is what will be in the store file, with the incarnation that the last one had, or none (fresh). */
rf_status rf_recover_start(struct rf_header *header, struct rf_disk *disk,
                           const struct rf_recovered *recovered, struct rf_store_file *store,
                           bool fresh, rf_detail *detail);

#endif
