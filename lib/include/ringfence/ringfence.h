/*
 * ringfence - share out work between the processes of one Linux host, safely.
 *
 * Shards of work, leases on them and 16-entry op-log rings live in one region of shared memory that
 * every process maps. There is no daemon: a process opens the store, works, and may be killed at
 * any instruction. This header is the manual. Read the caveats first.
 *
 * CAVEATS
 *
 *  fork     A handle belongs to the process that opened it. In a child of fork() every call on it
 *           returns RF_FORKED and touches nothing; the child opens a handle of its own. exec and
 *           posix_spawn are fine.
 *  threads  A handle serves one thread at a time. Open one handle per thread; handles of one
 *           process share one mapping and one guardian thread.
 *  kill -9  Any process may be killed at any instruction. The operation it was in happened wholly
 *           or not at all, its locks are cleared by survivors, and the shards it held are
 *           claimable at once, without waiting for a deadline.
 *  cores    The kernel reports a death when the process is gone. One that dumps a large core is
 *           gone only after the dump, possibly seconds later. An abort by ringfence itself marks
 *           its members dead first.
 *  SIGSTOP  A stopped process costs its own shards until their deadlines, and BUSY (with its pid)
 *           to whoever needs a lock that it was stopped with. After it goes on, its writes to the
 *           store are refused by the fence. Its writes to anything else are refused only if you
 *           fence them: store the fence epoch with what you write and let the larger one win.
 *  suspend  Time is CLOCK_BOOTTIME: it runs on while the machine sleeps, so leases may be over on
 *           wake-up. Setting the wall clock changes nothing.
 *  /dev/shm The region needs room there. It is taken before it is touched: a full /dev/shm gives
 *           RF_RESOURCE_EXHAUSTED from the operation that needed room, never SIGBUS.
 *  trust    Whoever may write the region is trusted (its mode is 0600, or 0660 with a group). A
 *           process that scribbles over shared memory can break the store for all; records are
 *           checked before anything is published, and a damaged one is refused as RF_CORRUPT.
 *           Tenants are kept apart in what the API shows, not against a hostile process.
 *
 * WORDS
 *
 *  A tenant owns runs; a run is one piece of work and groups shards; a shard is a key range
 *  [start, end) with a cursor; a worker holds a lease on a shard; the lease carries a fence epoch,
 *  which rises with every grant and never repeats; every changing call carries an op id, so that
 *  repeating the call is harmless while the shard's ring of 16 operations remembers it.
 *
 * Every time is in nanoseconds and every size in bytes, unless its name says otherwise.
 */
#ifndef RINGFENCE_RINGFENCE_H
#define RINGFENCE_RINGFENCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RF_VERSION_MAJOR 0
#define RF_VERSION_MINOR 1
#define RF_VERSION_PATCH 0

#define RF_API __attribute__((visibility("default")))

/* The version of the library that is linked, "0.1.0". */
RF_API const char *rf_version_string(void);

/* ---------------------------------------------------------------------------------- limits --- */

#define RF_KEY_MAX            4096u        /* bytes in a key */
#define RF_TOKEN_MAX          16384u       /* bytes in a cursor token */
#define RF_METADATA_MAX       16384u       /* bytes of a shard's metadata */
#define RF_SPLIT_CHILDREN_MIN 2u           /* children of one split_replace */
#define RF_SPLIT_CHILDREN_MAX 256u         /* */
#define RF_SPAWNED_MAX        1024u        /* shards split off one shard in its life */
#define RF_SHARD_RING         16u          /* operations that a shard remembers */
#define RF_RUN_RING           8u           /* operations that a run remembers */
#define RF_SHARDS_DEFAULT     1000000u     /* shards of a tenant, and in all */
#define RF_DERIVED_BIT        (1ull << 63) /* set in the id of a shard that a split made */

/* -------------------------------------------------------------------------------- statuses --- */

/* What every function returns. The numbers are part of the interface and never change. */
typedef enum rf_status {
    RF_OK = 0,

    /* the call itself */
    RF_INVALID_ARGUMENT = 1, /* NULL where something is needed, a length without bytes, an unknown
                                reason or option */
    RF_INVALID_TIME = 2,     /* now is 0 */
    RF_BUFFER_TOO_SMALL = 3, /* detail.size is what is needed, detail.limit what was given */

    /* lookup */
    RF_NOT_FOUND = 10, /* no such shard, or it is another tenant's */
    RF_RUN_NOT_FOUND = 11,
    RF_RUN_EXISTS = 12,

    /* idempotency */
    RF_OP_ID_CONFLICT = 20, /* this op id was used here with another payload */

    /* lease */
    RF_SHARD_TERMINAL = 30, /* done, split or parked */
    RF_STALE_FENCE = 31,    /* the lease was taken over, given up or lost: stop working on it */
    RF_LEASE_EXPIRED = 32,  /* detail.deadline has passed */
    RF_ALREADY_LEASED = 33, /* until detail.deadline, or until its owner dies */
    RF_FENCE_EXHAUSTED = 34,

    /* arguments */
    RF_MISSING_KEY = 40, /* a cursor without a key where one is needed, or a token without a key */
    RF_KEY_TOO_LARGE = 41,
    RF_TOKEN_TOO_LARGE = 42,
    RF_METADATA_TOO_LARGE = 43,
    RF_CURSOR_REGRESSION = 44,    /* the key is below the one stored */
    RF_CURSOR_OUT_OF_BOUNDS = 45, /* the key is outside its range */
    RF_RANGE_INVERTED = 46,       /* start is not below end */
    RF_SPLIT_COUNT = 47,          /* not 2 to 256 children */
    RF_SPLIT_COVERAGE = 48, /* the parts are not exactly the whole; detail.index is the part */
    RF_MANIFEST_EMPTY = 49,
    RF_DUPLICATE_SHARD = 50,
    RF_UNBOUNDED_RANGE = 51, /* a root shard needs a start and an end */
    RF_OVERLAPPING_RANGES = 52,
    RF_DERIVED_ROOT_ID = 53, /* bit 63 of a root shard's id is set */
    RF_INVALID_CONFIG = 54,  /* lease duration 0, unknown semantics */
    RF_CONFIG_MISMATCH = 55, /* the run exists with another configuration */

    /* state */
    RF_NOT_PARKED = 60,
    RF_RUN_TERMINAL = 61,
    RF_WRONG_STATUS = 62, /* the run's status does not allow this */

    /* limits and room */
    RF_SPAWNED_LIMIT = 70,
    RF_SHARD_LIMIT = 71,
    RF_DERIVED_ID_COLLISION = 72,
    RF_RESOURCE_EXHAUSTED = 73, /* shared memory, member slots or run slots are used up */

    /* claiming */
    RF_THROTTLED = 80,      /* detail.retry_after */
    RF_NONE_AVAILABLE = 81, /* detail.deadline: the earliest time at which a lease may expire; 0 if
                               nothing is leased */

    /* the machine */
    RF_BUSY = 90,             /* a living process (detail.pid) holds a lock for too long */
    RF_FORKED = 91,           /* the handle belongs to the parent process */
    RF_CORRUPT = 92,          /* bytes that no ringfence wrote, or damaged ones */
    RF_VERSION_MISMATCH = 93, /* another format or layout than this library's */
    RF_PERMISSION_DENIED = 94,
    RF_UNSUPPORTED = 95, /* this kernel or file system lacks something that is needed */
    RF_IO_ERROR = 96,    /* detail.os_error */
} rf_status;

/*
 * WHICH OPERATION RETURNS WHAT
 *
 * Besides RF_OK. Every operation that takes `now` returns INVALID_TIME for 0, before anything else,
 * and every operation returns INVALID_ARGUMENT for pointers and enum values that can't be. On a
 * store all of them may return BUSY, FORKED, CORRUPT and RESOURCE_EXHAUSTED as well.
 * The order within a line is the order in which the checks are made.
 *
 * STATUS TABLE BEGIN
 * acquire: NOT_FOUND SHARD_TERMINAL ALREADY_LEASED FENCE_EXHAUSTED
 * renew: NOT_FOUND SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED
 * checkpoint: NOT_FOUND OP_ID_CONFLICT SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED MISSING_KEY
 *     KEY_TOO_LARGE TOKEN_TOO_LARGE CURSOR_REGRESSION CURSOR_OUT_OF_BOUNDS
 * complete: NOT_FOUND OP_ID_CONFLICT SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED MISSING_KEY
 *     KEY_TOO_LARGE TOKEN_TOO_LARGE CURSOR_REGRESSION CURSOR_OUT_OF_BOUNDS
 * park: NOT_FOUND OP_ID_CONFLICT SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED
 * release: NOT_FOUND OP_ID_CONFLICT SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED MISSING_KEY
 *     KEY_TOO_LARGE TOKEN_TOO_LARGE CURSOR_REGRESSION CURSOR_OUT_OF_BOUNDS
 * split_replace: NOT_FOUND OP_ID_CONFLICT SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED SPLIT_COUNT
 *     SPLIT_COVERAGE RANGE_INVERTED KEY_TOO_LARGE METADATA_TOO_LARGE MISSING_KEY TOKEN_TOO_LARGE
 *     CURSOR_OUT_OF_BOUNDS SPAWNED_LIMIT SHARD_LIMIT DERIVED_ID_COLLISION
 * split_residual: NOT_FOUND OP_ID_CONFLICT SHARD_TERMINAL STALE_FENCE LEASE_EXPIRED SPLIT_COVERAGE
 *     RANGE_INVERTED KEY_TOO_LARGE METADATA_TOO_LARGE CURSOR_OUT_OF_BOUNDS SPAWNED_LIMIT
 *     SHARD_LIMIT DERIVED_ID_COLLISION
 * unpark: NOT_FOUND RUN_TERMINAL OP_ID_CONFLICT NOT_PARKED FENCE_EXHAUSTED
 * create_run: RUN_EXISTS INVALID_CONFIG
 * register_shards: RUN_NOT_FOUND OP_ID_CONFLICT WRONG_STATUS MANIFEST_EMPTY DUPLICATE_SHARD
 *     UNBOUNDED_RANGE KEY_TOO_LARGE METADATA_TOO_LARGE RANGE_INVERTED OVERLAPPING_RANGES
 *     MISSING_KEY CURSOR_OUT_OF_BOUNDS TOKEN_TOO_LARGE DERIVED_ROOT_ID SHARD_LIMIT
 * create_run_with_shards: CONFIG_MISMATCH INVALID_CONFIG OP_ID_CONFLICT WRONG_STATUS MANIFEST_EMPTY
 *     DUPLICATE_SHARD UNBOUNDED_RANGE KEY_TOO_LARGE METADATA_TOO_LARGE RANGE_INVERTED
 *     OVERLAPPING_RANGES MISSING_KEY CURSOR_OUT_OF_BOUNDS TOKEN_TOO_LARGE DERIVED_ROOT_ID
 *     SHARD_LIMIT
 * add_shards: RUN_NOT_FOUND OP_ID_CONFLICT WRONG_STATUS MANIFEST_EMPTY DUPLICATE_SHARD
 *     UNBOUNDED_RANGE KEY_TOO_LARGE METADATA_TOO_LARGE RANGE_INVERTED OVERLAPPING_RANGES
 *     MISSING_KEY CURSOR_OUT_OF_BOUNDS TOKEN_TOO_LARGE DERIVED_ROOT_ID SHARD_LIMIT
 * complete_run: RUN_NOT_FOUND OP_ID_CONFLICT RUN_TERMINAL WRONG_STATUS
 * fail_run: RUN_NOT_FOUND OP_ID_CONFLICT RUN_TERMINAL WRONG_STATUS
 * cancel_run: RUN_NOT_FOUND OP_ID_CONFLICT RUN_TERMINAL
 * STATUS TABLE END
 */

/* The status in words, a constant string: "the lease has expired". */
RF_API const char *rf_strerror(rf_status status);
/* The status as it is spelled here without RF_: "LEASE_EXPIRED". */
RF_API const char *rf_status_name(rf_status status);

/*
 * What a refusal is about. Only numbers: it never carries a byte of a key, token or metadata, a
 * payload hash, the current owner or another tenant. Fields that do not apply are 0.
 */
typedef struct rf_detail {
    uint64_t size;        /* what was given, bytes or a count */
    uint64_t limit;       /* what is allowed */
    uint64_t index;       /* the caller's position of the child or shard at fault */
    uint64_t shard;       /* the shard id at fault, where it is the caller's own */
    uint64_t deadline;    /* when the lease ends or ended */
    uint64_t retry_after; /* how long to wait, ns */
    uint32_t pid;         /* RF_BUSY: who holds the lock */
    int32_t os_error;     /* errno of the system call that failed */
    bool has_index;
    char where[96]; /* RF_CORRUPT, RF_IO_ERROR, RF_RESOURCE_EXHAUSTED...: which part or call */
} rf_detail;

/* One sentence about a refusal: what, where, what to do. Always ends in a NUL; returns the length
 * it would have had, as snprintf does. detail may be NULL. */
RF_API size_t rf_explain(rf_status status, const rf_detail *detail, char *out, size_t out_size);

/* ----------------------------------------------------------------------------------- types --- */

/* Borrowed bytes. data == NULL is "absent", which is not the same as present and empty. */
typedef struct rf_bytes {
    const void *data;
    size_t len;
} rf_bytes;

typedef struct rf_tenant {
    uint8_t bytes[32];
} rf_tenant;

/* How far a shard has been worked through. key.data == NULL: not begun. An empty token counts as
 * absent; a token needs a key. */
typedef struct rf_cursor {
    rf_bytes key;
    rf_bytes token;
} rf_cursor;

/* A key range [start, end), compared bytewise; empty start or end means unbounded. */
typedef struct rf_spec {
    rf_bytes start;
    rf_bytes end;
    rf_bytes metadata;
} rf_spec;

/* The numbers of these enums are stored and hashed; they never change. */
typedef enum rf_semantics { RF_COMPLETED = 0, RF_DISPATCHED = 1 } rf_semantics;
typedef enum rf_derived_kind { RF_CHILD = 0, RF_RESIDUAL = 1 } rf_derived_kind;
typedef enum rf_park_reason {
    RF_PARK_PERMISSION_DENIED = 0,
    RF_PARK_NOT_FOUND = 1,
    RF_PARK_POISONED = 2,
    RF_PARK_TOO_MANY_ERRORS = 3,
    RF_PARK_OTHER = 4,
} rf_park_reason;
typedef enum rf_shard_status {
    RF_SHARD_ACTIVE = 0,
    RF_SHARD_DONE = 1,
    RF_SHARD_SPLIT = 2,
    RF_SHARD_PARKED = 3,
} rf_shard_status;
typedef enum rf_run_status {
    RF_RUN_INITIALIZING = 0,
    RF_RUN_ACTIVE = 1,
    RF_RUN_DONE = 2,
    RF_RUN_FAILED = 3,
    RF_RUN_CANCELLED = 4,
} rf_run_status;
typedef enum rf_op_kind {
    RF_OP_CHECKPOINT = 0,
    RF_OP_COMPLETE = 1,
    RF_OP_PARK = 2,
    RF_OP_SPLIT_REPLACE = 3,
    RF_OP_SPLIT_RESIDUAL = 4,
    RF_OP_UNPARK = 5,
    RF_OP_RELEASE = 6,
} rf_op_kind;
typedef enum rf_run_op_kind {
    RF_RUN_OP_REGISTER_SHARDS = 0,
    RF_RUN_OP_COMPLETE = 1,
    RF_RUN_OP_FAIL = 2,
    RF_RUN_OP_CANCEL = 3,
    RF_RUN_OP_ADD_SHARDS = 4,
} rf_run_op_kind;
typedef enum rf_op_result {
    RF_RESULT_COMPLETED = 0,
    RF_RESULT_ERROR = 1,
    RF_RESULT_SUPERSEDED = 2,
} rf_op_result;

/* Whether a call did its work now, or had done it before under the same op id. */
typedef enum rf_outcome { RF_EXECUTED = 0, RF_REPLAYED = 1 } rf_outcome;

/* What a grant gives, and what every later call presents. Plain data: copy it, store it, send it.
 * slot_hint only makes the lookup faster; any value is safe. */
typedef struct rf_lease {
    uint64_t run;
    uint64_t shard;
    uint64_t worker;
    uint64_t fence;
    uint64_t deadline; /* as of the grant or the last renewal; only the store's own counts */
    uint64_t slot_hint;
} rf_lease;

typedef struct rf_run_config {
    uint64_t lease_duration; /* ns, not 0 */
    rf_semantics semantics;
    bool has_max_retries;
    uint32_t max_retries; /* grants without progress after which a shard is parked */
} rf_run_config;

/* One shard of a registration. */
typedef struct rf_shard_input {
    uint64_t shard; /* bit 63 clear */
    rf_spec spec;
    rf_cursor cursor;
} rf_shard_input;

/* One child of split_replace, in any order. */
typedef struct rf_child {
    rf_spec spec;
    rf_cursor cursor;
} rf_child;

/* How much a run has to offer. Cheap at any size; the count may lag behind leases that ran out and
 * were not noticed yet, the deadline may be early but is never late. */
typedef struct rf_capacity {
    uint64_t available;         /* shards that can be claimed now */
    uint64_t earliest_deadline; /* of the leases; 0 if nothing is leased */
    uint64_t waiting;           /* claimers asleep in claim_wait: a busy worker may split */
} rf_capacity;

typedef enum rf_evaluation {
    RF_STILL_ACTIVE = 0,
    RF_HAS_FAILURES = 1, /* nothing active, something parked */
    RF_ALL_DONE = 2,
} rf_evaluation;

typedef struct rf_progress {
    uint64_t total;
    uint64_t active;
    uint64_t done;
    uint64_t split;
    uint64_t parked;
    uint64_t leased;
    rf_evaluation evaluation;
    bool has_watermark;   /* the smallest last key of the active shards that have one */
    size_t watermark_len; /* its bytes are in the caller's buffer */
} rf_progress;

/* ---------------------------------------------------------------------------------- events --- */

typedef enum rf_event_kind {
    RF_EVENT_ACQUIRED = 0,
    RF_EVENT_LEASE_RENEWED = 1,
    RF_EVENT_CHECKPOINTED = 2,
    RF_EVENT_COMPLETED = 3,
    RF_EVENT_PARKED = 4,
    RF_EVENT_SPLIT = 5,
    RF_EVENT_RESIDUAL_CREATED = 6,
    RF_EVENT_UNPARKED = 7,
    RF_EVENT_RELEASED = 8,
    RF_EVENT_OWNER_LOST = 9,
    RF_EVENT_RUN_CREATED = 10,
    RF_EVENT_RUN_ACTIVATED = 11,
    RF_EVENT_RUN_COMPLETED = 12,
    RF_EVENT_RUN_FAILED = 13,
    RF_EVENT_RUN_CANCELLED = 14,
    RF_EVENT_SHARDS_ADDED = 15,
    RF_EVENT_RUN_PURGED = 16,
} rf_event_kind;

/* Something that happened; inert data without a byte of a key. A replay emits none. */
typedef struct rf_event {
    rf_event_kind kind;
    rf_tenant tenant;
    uint64_t run;
    uint64_t shard;        /* 0 for events of runs */
    uint64_t time;         /* the operation's now */
    uint64_t worker;       /* ACQUIRED */
    uint64_t fence;        /* ACQUIRED, UNPARKED */
    uint64_t deadline;     /* ACQUIRED, LEASE_RENEWED */
    uint64_t child;        /* RESIDUAL_CREATED */
    uint32_t count;        /* SPLIT, RUN_ACTIVATED, SHARDS_ADDED: shards made */
    uint32_t key_len;      /* CHECKPOINTED, COMPLETED */
    rf_park_reason reason; /* PARKED */
} rf_event;

RF_API const char *rf_event_name(rf_event_kind kind);

/* ------------------------------------------------------------------------- ids and hashes --- */

/* The id of the index-th shard that op split off parent. Bit 63 is always set. */
RF_API uint64_t rf_split_id(uint64_t run, uint64_t parent, uint64_t op, rf_derived_kind kind,
                            uint32_t index);

/* The 64-bit payload hashes by which a repeated op id is told from a reused one. */
RF_API uint64_t rf_hash_checkpoint(rf_cursor cursor);
RF_API uint64_t rf_hash_complete(rf_cursor cursor);
RF_API uint64_t rf_hash_release(rf_cursor cursor);
RF_API uint64_t rf_hash_park(rf_park_reason reason);
RF_API uint64_t rf_hash_unpark(uint64_t run, uint64_t shard);
RF_API uint64_t rf_hash_split_replace(const rf_child *children, uint32_t count);
RF_API uint64_t rf_hash_split_residual(rf_spec parent_new, rf_spec residual);
RF_API uint64_t rf_hash_run_op(rf_run_op_kind kind); /* complete, fail, cancel */
/* The same for any order of the input. order is scratch of 2 * count entries; count < 2^32. */
RF_API uint64_t rf_hash_register(const rf_shard_input *shards, uint32_t count, uint32_t *order);
RF_API uint64_t rf_hash_add(const rf_shard_input *shards, uint32_t count, uint32_t *order);

/* BLAKE3 in derive-key mode, the first 8 bytes of the output read as little-endian. */
RF_API uint64_t rf_hash64(const char *context, rf_bytes input);

/* A tenant from a name: BLAKE3 derive-key with the context "ringfence/tenant/v1". */
RF_API void rf_tenant_from_name(const char *name, rf_tenant *tenant);

/* ------------------------------------------------------------------------- keys and splits --- */

/* Bytewise order; a proper prefix is smaller. Negative, 0 or positive. */
RF_API int rf_key_compare(rf_bytes a, rf_bytes b);

/* The smallest key above `key` (key and a zero byte). RF_KEY_TOO_LARGE if it would not fit. out has
 * room for RF_KEY_MAX bytes. */
RF_API rf_status rf_key_successor(rf_bytes key, uint8_t *out, size_t *out_len);

/* The smallest key above every key that begins with `prefix`. *out_len is 0 (unbounded) if there is
 * none: an empty prefix, or nothing but 0xFF bytes. */
RF_API rf_status rf_prefix_successor(rf_bytes prefix, uint8_t *out, size_t *out_len);

/* A key about half-way between two, strictly above low and below high, as short as that allows;
 * empty high is unbounded. RF_RANGE_INVERTED if nothing fits between. */
RF_API rf_status rf_key_midpoint(rf_bytes low, rf_bytes high, uint8_t *out, size_t *out_len);

/* Cut a range at points (strictly rising, inside the range) into count + 1 children with the
 * range's metadata and initial cursors; children has room for count + 1. */
RF_API rf_status rf_plan_replace(rf_spec parent, const rf_bytes *points, uint32_t count,
                                 rf_child *children, rf_detail *detail);

/* Cut a range in two at a point, both parts with its metadata. */
RF_API rf_status rf_plan_residual_at(rf_spec parent, rf_bytes point, rf_spec *parent_new,
                                     rf_spec *residual, rf_detail *detail);

/* Hand over everything behind the cursor: the cut is at the successor of its key (scratch of
 * RF_KEY_MAX bytes holds it). RF_RANGE_INVERTED if nothing is left behind it. */
RF_API rf_status rf_plan_residual_from_cursor(rf_spec parent, rf_cursor cursor, uint8_t *scratch,
                                              rf_spec *parent_new, rf_spec *residual,
                                              rf_detail *detail);

#ifdef __cplusplus
}
#endif

#endif
