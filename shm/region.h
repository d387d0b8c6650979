/*
 * The region: making it, finding it, mapping it, and taking room in it.
 *
 * A store is a directory. It holds `lock`, on which every attached process has a shared flock and
 * whoever builds a region an exclusive one; `store` and its copy, which name the current region (uuid) and
 * count the regions that there were (incarnation); and the log and the snapshots of a durable store. The
 * region is a file in /dev/shm whose name comes from the directory's device and inode. What an opener
 * may find, and what it does, is one table: recover.h.
 */
#ifndef RF_REGION_H
#define RF_REGION_H

#include <pthread.h>
#include <sys/types.h>

#include "layout.h"

struct rf_guardian;

/* One mapping per region and process; handles share it. */
struct rf_map {
    uint8_t *base;
    struct rf_header *header;
    uint64_t bytes;
    uint64_t time_base; /* the header's: a child of fork may ask for the time too */
    int fd;
    int lock_fd;
    int dir_fd; /* of the store's directory; -1 in a volatile store */
    bool read_only;
    uint32_t users; /* under rf_process.lock */
    dev_t device;
    ino_t inode;
    struct rf_guardian *guardian; /* NULL until a handle wants one */
    uint32_t guarded;             /* handles that hang on it */
    _Atomic bool flush_now;       /* a lane of this process is filling up */
    _Atomic bool closing;         /* somebody waits for what the guardian has begun */
    _Atomic bool ending;          /* the process is about to abort: rf_settling_end_all */
    _Atomic uint32_t settling; /* threads that settle what others left, as deep as they are in it */
    struct rf_map *next;

    /* What the header says about the sections that every call touches, at hand. */
    struct rf_extent *extents;
    rf_word64 *extent_tags;
    struct rf_runrec *runs;
    uint64_t extent_count;
    uint64_t run_count;
    uint64_t lane_mask; /* units - 1 */

    char *region_path;
    char *directory;
};

/* What the process keeps about itself; a child of fork finds the page wiped. */
struct rf_process {
    pthread_mutex_t guardian_lock; /* while a guardian is started, asked or stopped; taken first */
    pthread_mutex_t lock;
    struct rf_map *maps;
    volatile uint64_t *cookie; /* in a MADV_WIPEONFORK page */
};
extern struct rf_process rf_process;

/* Readies rf_process in this process, which may be a fresh child. Returns the cookie. */
rf_status rf_process_enter(uint64_t *cookie, rf_detail *detail);

struct rf_region_options {
    uint64_t max_shards;
    uint64_t max_tenant_shards;
    uint64_t max_bytes;
    uint64_t claim_cooldown;
    uint32_t max_runs;
    uint32_t max_members;
    uint32_t lane_bytes;
    uint32_t durability; /* enum rf_durability */
    uint64_t segment_bytes;
    uint64_t snapshot_bytes;
    uint64_t flush_ns;
    bool create;
    bool read_only;
    const char *region_path; /* NULL: in /dev/shm */
    uint32_t group;          /* with has_group: 0660 and this group */
    bool has_group;
};

/* Finds or builds the region of a store and maps it; rf_region_close undoes one call. */
rf_status rf_region_open(const char *store, const struct rf_region_options *options,
                         struct rf_map **map, rf_detail *detail);
void rf_region_close(struct rf_map *map);

/* Removes the region and the directory's own files; refuses while a process is attached. */
rf_status rf_region_destroy(const char *store, const char *region_path, rf_detail *detail);

/* A region like another one, empty, with `scale` times its room, which nobody else can see and which is
 * gone when it is dropped: to replay a log into it. */
rf_status rf_region_shadow(const struct rf_map *like, uint64_t scale, struct rf_map *out,
                           rf_detail *detail);
void rf_region_shadow_drop(struct rf_map *map);

/* --- room --- */

/* Makes bytes [offset, offset + len) safe to touch. Cheap if they are already. */
rf_status rf_region_ensure(struct rf_map *map, uint64_t offset, uint64_t len, rf_detail *detail);
rf_status rf_region_ensure_index(struct rf_map *map, uint64_t bucket, rf_detail *detail);
bool rf_region_index_present(const struct rf_map *map, uint64_t bucket);
/* Bytes of shared memory taken so far. */
uint64_t rf_region_taken(const struct rf_map *map);

/*
 * Where to look first for something free. What was given back is taken again before memory that was
 * never used, so that a purge makes room and a store grows only as far as it was ever filled: giving
 * back lowers the hint, and taking raises it only if nobody has lowered it since it was read. A hint
 * that a death left too high is made good when the search wraps; any value is safe.
 */
static inline void rf_hint_lower(rf_word32 *hint, uint32_t to)
{
    uint32_t seen = atomic_load_explicit(hint, memory_order_relaxed);
    while (to < seen && !atomic_compare_exchange_weak_explicit(
                            hint, &seen, to, memory_order_relaxed, memory_order_relaxed)) {
    }
}
static inline void rf_hint_raise(rf_word32 *hint, uint32_t seen, uint32_t to)
{
    if (to != seen) {
        atomic_compare_exchange_strong_explicit(hint, &seen, to, memory_order_relaxed,
                                                memory_order_relaxed);
    }
}

/* --- addresses; a number that is out of bounds gives NULL --- */

static inline void *rf_section_at(const struct rf_map *map, const struct rf_section *section,
                                  uint64_t i)
{
    return i < section->count ? map->base + section->offset + i * section->stride : NULL;
}
static inline struct rf_member *rf_member_at(const struct rf_map *map, uint32_t slot)
{
    return rf_section_at(map, &map->header->roster, slot);
}
static inline struct rf_slot *rf_slot_at(const struct rf_map *map, uint32_t slot)
{
    return rf_section_at(map, &map->header->slots, slot);
}
static inline uint8_t *rf_lane_at(const struct rf_map *map, uint32_t slot)
{
    return rf_section_at(map, &map->header->lanes, slot);
}
static inline struct rf_runrec *rf_run_at(const struct rf_map *map, uint32_t slot)
{
    return slot < map->run_count ? &map->runs[slot] : NULL;
}
static inline struct rf_leaf *rf_leaf_at(const struct rf_map *map, uint32_t leaf)
{
    return rf_section_at(map, &map->header->leaves, leaf);
}
static inline struct rf_extent *rf_extent_at(const struct rf_map *map, uint32_t extent)
{
    return extent < map->extent_count ? &map->extents[extent] : NULL;
}
static inline struct rf_rec *rf_rec_at(const struct rf_map *map, uint32_t slot)
{
    struct rf_extent *extent = rf_extent_at(map, slot / RF_EXTENT_SHARDS);
    return extent == NULL ? NULL : &extent->recs[slot % RF_EXTENT_SHARDS];
}
/* A slot that was never joined may have no memory behind it. */
static inline bool rf_slot_was_used(const struct rf_map *map, uint32_t slot)
{
    return atomic_load_explicit(&rf_member_at(map, slot)->joined_at, memory_order_acquire) != 0;
}
static inline uint64_t rf_offset_of(const struct rf_map *map, const void *at)
{
    return (uint64_t)((const uint8_t *)at - map->base);
}

/* The store's time: CLOCK_BOOTTIME and a base. */
uint64_t rf_region_now(const struct rf_map *map);

/* Puts words about what failed, and errno, where rf_explain finds them. */
rf_status rf_refuse(rf_detail *detail, rf_status status, int os_error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
