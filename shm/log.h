/*
 * The log: epochs are sealed over the lanes of all members, and the batch of an epoch is a pure
 * function of the lanes. Whoever waits for an epoch seals it, computes its batch and writes it; nobody
 * has to be waited for, and a batch that is written twice, or late, is the same bytes in the same
 * place.
 *
 *   open --seal--> sealed --lanes raised, copied, hashed--> published --written--> done --> durable
 *
 * header.epoch is the open one. header.durable goes over contiguous done ones and is what waiters
 * sleep on (a futex, by the bit of their epoch mod 32).
 *
 * What a survivor may find, and what makes it good:
 *   sealed, lanes not all raised     whoever computes the batch raises all of them first
 *   in hand of one who is dead, or   taken over: computed and written again
 *     has had it too long
 *   published, not written           the same
 *   done, durable not moved          whoever looks moves it
 *   durable moved, nobody woken      every sleep has an end, and the reaper wakes all
 *   a late write of an old batch     the same bytes in a segment that is never used again
 *   segment under a temporary name   nobody's; removed by the next cold open
 */
#ifndef RF_LOG_H
#define RF_LOG_H

#include "actor.h"
#include "batch.h"
#include "disk.h"

/* Somebody who writes the log: a handle, a guardian, a snapshotter. One thread at a time. */
struct rf_logger;

rf_status rf_logger_make(struct rf_map *map, uint32_t id, struct rf_logger **out,
                         rf_detail *detail);
void rf_logger_drop(struct rf_logger *logger);
/* In a child of fork: gives memory back, touches nothing else. */
void rf_logger_forget(struct rf_logger *logger);
struct rf_disk *rf_logger_disk(struct rf_logger *logger);

/* What everybody hears after the first write error. */
rf_status rf_log_failure(const struct rf_map *map, rf_detail *detail);

/* --- durability --- */

/* Returns when everything up to `epoch` is on the disk; seals and writes as far as needed. RF_IO_ERROR
 * once a write has failed; RF_RESOURCE_EXHAUSTED if there is no room for it on the disk. */
rf_status rf_log_wait(struct rf_logger *logger, uint64_t epoch, rf_detail *detail);

/* An empty batch, if the last one with records is not yet vouched for by a later one. */
rf_status rf_log_close(struct rf_logger *logger, rf_detail *detail);

/* The guardian makes segments long before they are needed. Where it does not keep up, whoever uses them makes
 * the least that there has to be: room for all that was committed, and to end every lease. Where there is no
 * room on the disk for that, growth is refused from then on (header.log_short), before it commits. An error of the
 * disk ends the log, as if a batch had met it: another attempt might seem to mend what was lost. */
void rf_log_secure(struct rf_logger *logger);
bool rf_log_needs_room(const struct rf_map *map);
rf_status rf_log_make_room(struct rf_logger *logger, rf_detail *detail);

/* The position behind the last batch that is durable, at least as of the call. */
uint64_t rf_log_position(const struct rf_map *map);

/* Readies the log's part of a new region's header: the first batch will be `used + 1` at the start of segment
 * `first`, and follow `after`. */
void rf_log_start(struct rf_header *header, uint64_t first, const struct rf_log_end *after,
                  uint64_t used);
/* Epochs up to here may have been told to somebody by a region whose log was durable up to `durable`. */
static inline uint64_t rf_log_used(uint64_t durable)
{
    return durable + RF_LOG_ENTRIES; /* the open one is less: see seal */
}
/* Whether what was done in this epoch, before the store was last recovered, is not in the log, or too long ago to tell. */
bool rf_log_lost(const struct rf_map *map, uint64_t epoch);
/* The header of a segment of this incarnation. */
struct rf_segment_header rf_log_segment_header(const struct rf_header *header, uint64_t number);

/* Whether an error of this logger's last call is its process's own (rf_disk_own_limit). Others can write the batch, or
 * this process later. */
bool rf_log_own_limit(const struct rf_logger *logger, int error);

#endif
