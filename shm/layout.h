/*
 * The region as it lies in memory. One file, sections one after another, offsets and never pointers.
 *
 *   header | roster | slots | stripes | run index | runs | leaves | extent tags | shard index
 *          | slab tags | slab page classes | extents | lanes | slab
 *
 * What a process may touch without asking: the first `fixed_bytes`, which are there from the start.
 * Everything behind is taken granule by granule with fallocate before it is touched (growth.h).
 *
 * Words that different processes write sit on different cache lines. Every field that a process
 * reads while another may write it is _Atomic, or is read and written word by word with relaxed
 * atomics under a sequence lock (seq.h).
 */
#ifndef RF_LAYOUT_H
#define RF_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>

#include "log_format.h"
#include "run.h"
#include "shard.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a region is little-endian; a big-endian port needs a layout of its own");

#define RF_LINE            64u
#define RF_REGION_MAGIC    0x65636e6566676e72ull /* "rngfence" */
#define RF_REGION_VERSION  2u
#define RF_BYTE_ORDER_MARK 0x01020304u

#define RF_EXTENT_SHARDS  64u
#define RF_LEAF_EXTENTS   1024u
#define RF_RUN_LEAVES     256u
#define RF_SLOTS_MAX      4096u /* member slots: 12 bits of a lock word */
#define RF_STRIPES        64u
#define RF_BUCKET_CELLS   8u
#define RF_SLAB_PAGE      65536u
#define RF_SLAB_BLOCK_MIN 256u
#define RF_SLAB_CLASSES   8u /* 256 B to 32 KiB */
#define RF_GRANULE        65536u
#define RF_INDEX_GRANULE  4096u
#define RF_NO_DEADLINE    UINT64_MAX
#define RF_COOLDOWN_CELLS 16384u
#define RF_CLAIMS_UNSET   UINT64_MAX /* in claims_from: for the next who opens to say */
#define RF_LOG_ENTRIES    32u /* epochs between durable and open; waiters sleep by epoch mod 32 */

#define RF_ALIGNED(n) __attribute__((aligned(n)))

typedef _Atomic uint32_t rf_word32;
typedef _Atomic uint64_t rf_word64;

/* --- a member --- */

/*
 * The part of a member that everybody looks at, packed so that scanning all of them is cheap.
 *
 * liveness is a robust futex. 0: the slot is free. Otherwise it holds the TID of the guardian
 * thread of its process; the kernel sets FUTEX_OWNER_DIED in it when that thread is gone, however
 * it went. A slot is freed by storing 0, after its sweep.
 */
struct rf_member {
    rf_word32 liveness RF_ALIGNED(RF_LINE);
    rf_word32 generation; /* of the owner, or of the next one; locks of an older one are free */
    rf_word64 reaper;     /* member id of who reaps it, 0 if nobody does */
    rf_word32 phase;      /* enum rf_phase */
    rf_word32 pid;        /* for people; nothing is decided by it */
    rf_word64 joined_at;
    rf_word32 poke; /* its guardian sleeps on it: look at the roster again */
    rf_word32 is_guardian;
    uint64_t robust_next; /* the kernel's robust list: an address in the owner's process */
};
_Static_assert(sizeof(struct rf_member) == RF_LINE, "one line each");

/* What a dead member still needs. Only its reaper or sweeper moves it on. */
enum rf_phase {
    RF_PHASE_LIVE = 0,   /* living, or dead and not yet reaped */
    RF_PHASE_REAPED = 1, /* its operation is settled and its locks are free; its leases are not */
};

/* The state of an operation; together with the lane offset one 64-bit word. */
enum rf_desc_state {
    RF_DESC_IDLE = 0,
    RF_DESC_TAKING = 1,   /* blocks, extents, leaves and slots are named here, then taken */
    RF_DESC_PREPARED = 2, /* the redo image is complete; committed iff the lane has moved on */
};

#define RF_DESC_WORD(state, offset) (((uint64_t)(state) << 32) | (uint64_t)(offset))
#define RF_DESC_STATE(word)         ((uint32_t)((word) >> 32))
#define RF_DESC_OFFSET(word)        ((uint32_t)(word))

struct rf_block_ref {
    uint64_t tag;
    uint32_t block; /* 1 + its number; 0: none */
    uint32_t bytes;
};

/* Which parts of the redo image mean something. */
enum {
    RF_REDO_SHARD = 1,       /* the record in the lane is a step of `shard_slot` */
    RF_REDO_CURSOR_OUT = 2,  /* the new cursor lives in blocks[0] */
    RF_REDO_SPEC_OUT = 4,    /* the new spec lives in blocks[1] */
    RF_REDO_SPAWNED_OUT = 8, /* the spawned list moved to blocks[2] */
    RF_REDO_COUNTS = 16,     /* run counts below */
    RF_REDO_CLAIM_BIT = 32,  /* claimable bit of shard_slot becomes claim_bit */
    RF_REDO_MADE = 64,       /* positions made_from .. made_to become visible and claimable */
    RF_REDO_RUN = 128,       /* the record in the lane is a run record */
    RF_REDO_LIVE = 256,      /* the run becomes visible */
    RF_REDO_PURGE = 512,     /* the run goes away: floor, then invisible */
    RF_REDO_BOUND = 1024,    /* the lease is bound to `bound` (0: to nobody) */
};

/*
 * What survivors need to settle a dead member's operation. Written by its owner only, before the
 * state word says so. Locks and words slept on are named here before they are taken or slept on.
 */
struct rf_desc {
    rf_word64 state RF_ALIGNED(RF_LINE); /* RF_DESC_WORD */
    rf_word64 locks[3];                  /* offsets of lock words: stripe, shard, run; 0: none */
    rf_word64 waiting_run;               /* 1 + slot of the run whose claim word it sleeps on */
    rf_word64 tag_counter;               /* never goes back, whatever the generation */
    rf_word64 tag;                       /* of the operation in progress */
    rf_word64 wake_run; /* 1 + slot of the run whose claimers it is about to wake */
    /* An epoch at or below that of the first chunk of the chain it is writing; 0: none. Stored before
     * the chunk is committed: a snapshot must be replayed from there on. */
    rf_word64 chain;

    /* the redo image */
    uint32_t redo RF_ALIGNED(RF_LINE);
    uint32_t shard_slot;
    uint32_t run_slot;
    uint32_t bound;
    uint64_t run_uid;
    uint64_t next_version;
    uint64_t claim_bit;
    uint64_t floor;
    uint64_t deadline_hint;
    uint64_t time;

    uint32_t made_from RF_ALIGNED(RF_LINE); /* positions; valid from TAKING on */
    uint32_t made_to;
    uint32_t extent_from; /* directory places named by this operation */
    uint32_t extent_to;
    uint32_t leaf_from;
    uint32_t leaf_to;
    uint32_t run_taken; /* this operation made the run slot */
    uint32_t spare2;

    struct rf_block_ref blocks[3]; /* new: cursor, spec, spawned */
    struct rf_block_ref frees[3];  /* old ones, given back after the commit */

    uint64_t count RF_ALIGNED(RF_LINE); /* absolute values for the run */
    uint64_t available;
    uint64_t done;
    uint64_t split;
    uint64_t parked;
    uint64_t earliest;
};

enum rf_repair_kind {
    RF_REPAIR_REAPED,  /* dead members settled */
    RF_REPAIR_REDONE,  /* ... whose operation was committed and was applied again */
    RF_REPAIR_UNDONE,  /* ... whose operation was not, and gave back what it had taken */
    RF_REPAIR_LOCKS,   /* locks taken from the dead */
    RF_REPAIR_LEASES,  /* leases of the dead given up */
    RF_REPAIR_EXPIRED, /* leases found expired */
    RF_REPAIR_PURGES,  /* purges finished in the purger's place */
    RF_REPAIR_REAPERS, /* reapers that died and were replaced */
    RF_REPAIR_KINDS,
};

#define RF_STATUS_SLOTS 100u

struct rf_counters {
    rf_word64 executed[RF_CLASSES];
    rf_word64 replayed[RF_CLASSES];
    rf_word64 refused[RF_CLASSES][RF_STATUS_SLOTS];
    rf_word64 repairs[RF_REPAIR_KINDS];
    rf_word64 lock_waits;
    rf_word64 busy;
    rf_word64 sleeps;
    rf_word64 wakes;
};

/* The lane word and the head of a member's journal lane, and all that only its owner writes. */
struct rf_lane_head {
    rf_word64 word RF_ALIGNED(RF_LINE); /* epoch (44 bits) and offset (20 bits, 64-byte units) */
    rf_word64
        walked; /* everything below this endless position is durable, says who wrote it; may lag */
    rf_word64 head RF_ALIGNED(RF_LINE); /* what lies below this endless position may be gone */
    rf_word64 base;     /* the start of a record; whatever is not durable lies behind it */
    rf_word64 end;      /* endless position behind the last record */
    rf_word64 sequence; /* of the next record */
    rf_word64 last;     /* epoch of the last record */
    uint64_t stamp;     /* of the last record */
};

struct rf_slot {
    struct rf_desc desc;
    struct rf_lane_head lane;
    struct rf_counters counters RF_ALIGNED(RF_LINE);
    rf_word64 noted[3] RF_ALIGNED(RF_LINE); /* since when it is seen to hold its locks (hold.h) */
    rf_word64 held[] RF_ALIGNED(RF_LINE);   /* a bit for every extent where it may hold a lease */
};

/* --- a shard --- */

#define RF_CURSOR_INLINE 96u
#define RF_SPEC_INLINE   128u

/* Under the sequence lock; 8-byte words throughout. In the order in which a record's lines are
 * needed: lengths with the lock and the identity, then the scalars, then what is rarely looked at. */
struct rf_rec_body {
    uint16_t key_len;
    uint16_t token_len;
    uint16_t start_len;
    uint16_t end_len;
    uint16_t meta_len;
    uint8_t has_key;
    uint8_t listed;     /* the claimable bit is set */
    uint8_t cursor_out; /* cursor_ref names a block */
    uint8_t spare[3];
    uint64_t epoch;
    uint64_t stamp;

    struct rf_shard_state state;
    uint64_t version;
    uint64_t bound; /* member id of the process the lease dies with; 0: detached or none */

    struct rf_block_ref cursor_ref;
    struct rf_block_ref spec_ref;
    struct rf_block_ref spawned_ref;
};

/* On 128 bytes: processors fetch lines in pairs, and a neighbour's would be taken away with ours. */
struct rf_rec {
    rf_word32 lock RF_ALIGNED(2 * RF_LINE);
    rf_word32 seq; /* odd while the body is being written; never reset */
    uint64_t shard;
    uint64_t run_uid; /* the identity is fixed while the extent belongs to the run */
    uint32_t run_slot;
    uint32_t position;
    struct rf_rec_body body;
    uint32_t parent_slot; /* 1 + slot; 0: a root */
    uint32_t spare;
    uint64_t born; /* the parent's version that made it visible */
    struct rf_shard_ring ring RF_ALIGNED(RF_LINE);
    uint8_t cursor_bytes[RF_CURSOR_INLINE] RF_ALIGNED(8);
    uint8_t spec_bytes[RF_SPEC_INLINE] RF_ALIGNED(8);
};
_Static_assert(offsetof(struct rf_rec, body) + offsetof(struct rf_rec_body, state) == RF_LINE,
               "a renewal touches two lines");
_Static_assert(sizeof(struct rf_rec_body) % 8 == 0, "copied by words");
_Static_assert(sizeof(struct rf_rec) == 896, "a shard with short keys stays below 1 KiB");

struct rf_extent {
    rf_word64 claimable RF_ALIGNED(RF_LINE); /* changes under the shard's and the run's lock */
    rf_word64 deadline[RF_EXTENT_SHARDS] RF_ALIGNED(RF_LINE); /* at grant: early, never late */
    rf_word32 bound[RF_EXTENT_SHARDS] RF_ALIGNED(RF_LINE);    /* member id, 0: none */
    struct rf_rec recs[RF_EXTENT_SHARDS];
};

/* --- a run --- */

struct rf_leaf {
    rf_word64 summary[RF_LEAF_EXTENTS / 64] RF_ALIGNED(RF_LINE); /* extents with claimable bits */
    rf_word64 earliest[RF_LEAF_EXTENTS] RF_ALIGNED(RF_LINE);     /* early, never late */
    rf_word32 extent[RF_LEAF_EXTENTS] RF_ALIGNED(RF_LINE);       /* numbers */
};

struct rf_run_body {
    uint64_t version;
    uint64_t epoch;
    uint64_t stamp;
    uint64_t created_at;
    uint64_t completed_at;
    uint64_t root_count;
    uint32_t status;
    uint32_t ring_count;
    uint32_t ring_next;
    uint32_t spare;
    struct rf_run_ring ring;
};

struct rf_runrec {
    /* fixed while the slot belongs to the run */
    rf_word64 live RF_ALIGNED(RF_LINE); /* its uid while it is visible */
    uint64_t run;
    rf_tenant tenant;
    uint64_t lease_duration;
    uint32_t max_retries;
    uint8_t has_max_retries;
    uint8_t semantics;
    uint8_t spare[2];

    rf_word32 lock RF_ALIGNED(RF_LINE);
    rf_word32 seq;
    rf_word64 tag;     /* 0: the slot is free; else the uid of its run */
    rf_word64 purging; /* its uid from the purge until it is taken apart */
    rf_word32 status;
    rf_word64 pending; /* shards that an operation in progress may add: counted in limits */

    rf_word64 count RF_ALIGNED(RF_LINE); /* shards; positions below it are visible */
    rf_word64 available;
    rf_word64 done;
    rf_word64 split;
    rf_word64 parked;
    rf_word64 earliest; /* deadline of a lease; early, never late; RF_NO_DEADLINE: none */

    rf_word32 claim RF_ALIGNED(RF_LINE); /* futex: changes whenever something may be claimable */
    rf_word64 waiter_summary;            /* words of waiters[] that are not 0 */
    rf_word64 waiters[RF_SLOTS_MAX / 64] RF_ALIGNED(RF_LINE); /* members asleep in claim_wait */

    struct rf_run_body body RF_ALIGNED(RF_LINE);
    rf_word64 top[RF_RUN_LEAVES / 64] RF_ALIGNED(RF_LINE); /* leaves with claimable shards */
    rf_word32 leaf[RF_RUN_LEAVES] RF_ALIGNED(RF_LINE);     /* 1 + number of the leaf */
};
_Static_assert(sizeof(struct rf_run_body) % 8 == 0, "copied by words");

struct rf_bucket {
    rf_word64 cell[RF_BUCKET_CELLS] RF_ALIGNED(RF_LINE); /* fingerprint << 32 | 1 + slot; 0: free */
};

struct rf_cooldown {
    rf_word64 worker;
    rf_word64 claimed_at;
};

/* --- the header --- */

/*
 * What is known about batch E while it is between sealed and durable, in entry E mod RF_LOG_ENTRIES.
 * Every word is a 32-bit tag (E / RF_LOG_ENTRIES) above a 32-bit value and goes from the last user
 * of the entry to this one by compare-and-swap: whoever is late finds a tag that is not its
 * predecessor's and stores nothing. All who compute a batch compute the same values.
 */
struct rf_log_entry {
    rf_word64 writer RF_ALIGNED(2 * RF_LINE); /* member id: has it in hand */
    rf_word64 since;   /* when he took it, monotonic ns; no tag: only to judge whether he is slow */
    rf_word64 durable; /* E minus the durable epoch that its header names */
    rf_word64 end[2];  /* position behind the batch, in blocks: low and high part */
    rf_word64 hash[RF_LOG_HASH / 4];
    rf_word64 done; /* it is on the disk */
};

/* Epochs of which nothing is in the log: behind `after`, up to `until`. They were lost, or never were. */
struct rf_log_gap {
    uint64_t after;
    uint64_t until;
};
#define RF_LOG_GAPS 8u /* that are remembered */

struct rf_section {
    uint64_t offset;
    uint64_t stride;
    uint64_t count;
};

struct rf_header {
    uint64_t magic RF_ALIGNED(RF_LINE);
    uint32_t byte_order;
    rf_word32 version; /* written last: before that the region is half made */
    uint64_t layout_hash;
    uint8_t uuid[16];
    uint8_t boot_id[16];
    uint64_t sum; /* rf_header_sum: of what never changes, everything up to `epoch` */

    uint64_t incarnation RF_ALIGNED(RF_LINE);
    uint64_t time_base; /* added to CLOCK_BOOTTIME */
    uint64_t hash_seed;
    uint64_t region_bytes;
    uint64_t fixed_bytes;
    uint64_t max_shards;
    uint64_t max_tenant_shards;
    uint64_t lane_units;
    uint64_t claim_cooldown;
    uint64_t time_namespace; /* offset of CLOCK_BOOTTIME in the creator's time namespace, ns */
    uint32_t owner_uid;
    uint32_t gid; /* of new files; UINT32_MAX: the maker's */
    uint32_t mode;
    uint32_t max_members;
    uint32_t slot_count;
    uint32_t sealing;    /* others may raise the epoch in a lane word: there is a log */
    uint32_t durability; /* enum rf_durability: what a call does that does not say */

    /* The log; in a volatile store all of it is 0. */
    uint8_t store_id[16];
    uint64_t segment_bytes;
    uint64_t snapshot_bytes; /* of log between two snapshots */
    uint64_t flush_ns;
    uint64_t log_first;          /* number of the incarnation's first segment */
    struct rf_log_end log_after; /* what its first batch follows */
    uint64_t log_told_from;      /* epochs up to here are too old for the log to tell of them */
    struct rf_log_gap log_gaps[RF_LOG_GAPS]; /* the newest ones behind that */

    struct rf_section roster RF_ALIGNED(RF_LINE);
    struct rf_section slots;
    struct rf_section stripes;
    struct rf_section run_index;
    struct rf_section runs;
    struct rf_section cooldowns;
    struct rf_section leaf_tags;
    struct rf_section extent_tags;
    struct rf_section slab_classes;
    struct rf_section growth;       /* a bit for each granule of the file */
    struct rf_section index_growth; /* a bit for each granule of the shard index */
    struct rf_section leaves;
    struct rf_section shard_index;
    struct rf_section slab_tags;
    struct rf_section extents;
    struct rf_section lanes;
    struct rf_section slab;

    rf_word64 epoch RF_ALIGNED(RF_LINE);   /* the open one */
    rf_word64 durable RF_ALIGNED(RF_LINE); /* everything up to it is on disk */
    rf_word64 fence_floor RF_ALIGNED(RF_LINE);
    rf_word64 claims_from; /* after a cold open: nobody claims before; or RF_CLAIMS_UNSET */
    rf_word64 next_uid RF_ALIGNED(RF_LINE); /* of runs; skipping some is harmless */
    rf_word32 runs_used;                    /* slots below this have been used at some time */
    rf_word32 members_used;                 /* likewise */
    rf_word32 member_hint;
    rf_word32 extent_hint; /* where to look for free ones; any value is safe */
    rf_word32 leaf_hint;
    rf_word32 slab_hint[RF_SLAB_CLASSES];
    rf_word32 index_overflow;  /* set before the first cell goes to a third or fourth bucket */
    rf_word64 holds_looked_at; /* when somebody last looked who holds what, monotonic ns */
    rf_word64 enlarged;        /* pieces for which somebody has asked for large pages (pages.h) */

    /* What every logged operation looks at. */
    rf_word32 condemned RF_ALIGNED(RF_LINE); /* errno + 1: a write failed, memory and disk differ */
    rf_word32 log_short; /* the next segment could not be made: no room on the disk */
    rf_word64 flusher;   /* member id of the guardian that writes what nobody waits for; 0: idle */

    rf_word64 log_made RF_ALIGNED(RF_LINE); /* segments below this number exist */
    rf_word64 filler;                       /* member id of who makes the next one, 0: nobody */
    rf_word64 snapshotter;                  /* who takes a snapshot (snapshot.c), 0: nobody */
    rf_word64 snapshot_epoch;               /* replay would begin there; 0: there is none */
    rf_word64 snapshot_position;            /* of the log's end when the newest one was begun */
    rf_word64 snapshot_size;                /* of its file, bytes */
    rf_word64 flusher_at;                   /* when the flusher looked last, monotonic ns */
    rf_word64 log_lanes;   /* lanes in a recent batch: how much waiting together pays */
    rf_word64 log_content; /* the last epoch that had records */
    rf_word64 log_vouched; /* a batch on the disk says that everything up to here was durable */
    struct rf_log_entry log[RF_LOG_ENTRIES];
};

/* A member id names one generation of a slot: never 0, and what a lock word holds. */
#define RF_ID_WAITERS     0x80000000u
#define RF_ID_GENERATIONS 0x7FFFFu
static inline uint32_t rf_id(uint32_t slot, uint32_t generation)
{
    return ((generation & RF_ID_GENERATIONS) << 12) | slot;
}
static inline uint32_t rf_id_slot(uint32_t id)
{
    return id & 0xFFFu;
}
static inline uint32_t rf_id_generation(uint32_t id)
{
    return (id >> 12) & RF_ID_GENERATIONS;
}

/* Sizes, offsets and alignments of everything above, in one number: programs that differ in any of
 * them must not share a region. */
uint64_t rf_layout_hash(void);

/* What `sum` must be: a hash of the header up to `epoch`, without `version` and `sum`. */
uint64_t rf_header_sum(const struct rf_header *header);

#endif
