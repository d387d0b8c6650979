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
 *           gone only after the dump, possibly seconds later. An abort by ringfence itself (a
 *           broken invariant) first marks the handle dead that it was called with.
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
 * THE WORKER LOOP
 *
 *     rf_store *store;
 *     rf_session *session;
 *     const rf_grant *grant;
 *     rf_detail detail;
 *     const rf_options options = {.create = true, .durability = RF_WAIT};   // 0: gone after a reboot
 *     const rf_run_config config = {.lease_duration = 30 * RF_SECOND};
 *     if (rf_open("/var/lib/farm", &options, &store, &detail) != RF_OK) ...
 *     rf_create_run_with_shards(store, rf_now(store), &tenant, run, &config, shards, count,
 *                               op, NULL);   // by all workers or one: with the same op, only once
 *     rf_session_create(store, &(rf_session_options){.tenant = tenant, .worker = my_number,
 *                                                    .keep_alive = true}, &session);
 *     while (rf_session_claim(session, run, 60 * RF_SECOND, &grant, NULL) == RF_OK) {
 *         rf_status lost = RF_OK;
 *         for (each item of [grant->spec.start, grant->spec.end) behind grant->cursor) {
 *             work on the item, marking what you write with grant->lease.fence;
 *             lost = rf_session_checkpoint(session, (rf_cursor){.key = the item's key}, NULL);
 *             if (lost != RF_OK)
 *                 break;   // somebody else has the shard now: stop touching it
 *         }
 *         if (lost == RF_OK)   // with the key of the last item, or the range's start if it has none
 *             rf_session_complete(session, (rf_cursor){.key = ...}, NULL);
 *     }
 *     rf_session_destroy(session);
 *     rf_close(store);
 *
 *  A claim waits for work that may still come: shards that somebody adds, splits off, gives back or
 *  dies with. When all shards are done it goes on waiting, until its timeout or until somebody ends
 *  the run: whoever sees RF_ALL_DONE in rf_get_progress calls rf_complete_run, and all who wait get
 *  RF_RUN_TERMINAL at once.
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
    RF_BUSY = 90,             /* a living process (detail.pid, if not 0) is in the way */
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
 *
 * Of a store only, and of no pure function:
 * claim: THROTTLED RUN_NOT_FOUND RUN_TERMINAL BUFFER_TOO_SMALL NONE_AVAILABLE FENCE_EXHAUSTED
 * purge_run: RUN_NOT_FOUND WRONG_STATUS
 * acquire, get_shard: BUFFER_TOO_SMALL
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
    uint64_t size;        /* what was given, bytes, a count or an epoch */
    uint64_t limit;       /* what is allowed */
    uint64_t index;       /* the caller's position of the child or shard at fault */
    uint64_t shard;       /* the shard id at fault, where it is the caller's own */
    uint64_t deadline;    /* when the lease ends or ended */
    uint64_t retry_after; /* how long to wait, ns */
    uint32_t pid;         /* RF_BUSY: who holds the lock, where it is one; else 0 */
    int32_t os_error;     /* errno of the system call that failed */
    bool has_index;
    char where[192]; /* RF_CORRUPT, RF_IO_ERROR, RF_RESOURCE_EXHAUSTED...: which part or call */
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

/* ----------------------------------------------------------------------------------- store --- */

#define RF_MICROSECOND 1000ull
#define RF_MILLISECOND 1000000ull
#define RF_SECOND      1000000000ull

typedef struct rf_store rf_store;

/*
 * What is on the disk when a call returns.
 *
 *  RF_VOLATILE  A store without a log: everything lives in shared memory and is gone after a reboot.
 *               Only its fences are kept apart from those of the next life.
 *  RF_NOWAIT    The call returns when the operation has happened in memory, for every process of the
 *               host, with the epoch of the log in which it will be durable. It survives the death of all
 *               processes; a power cut or a crash of the kernel may lose it until rf_sync has
 *               returned, or the guardian has written it (flush_interval).
 *  RF_WAIT      The call returns when the operation is durable. A replayed answer waits just the same.
 *
 * Acquire and claim never wait: after a crash all leases are void and fences go on above everything
 * that was ever granted. Renew is not logged at all.
 */
typedef enum rf_durability { RF_VOLATILE = 0, RF_NOWAIT = 1, RF_WAIT = 2 } rf_durability;

/* All zero is a good choice; then `create` says whether a store may be made. */
typedef struct rf_options {
    bool create;    /* make the directory and the region if they are not there */
    bool read_only; /* look, touch nothing: no member slot, no writable mapping */

    /* Only when the region is made. 0 means the default, which is in brackets; behind it are the least
     * and the most. Anything else is RF_INVALID_ARGUMENT, and the sentence says which one and why. */
    uint64_t max_shards;        /* [1,000,000] 1 to 16,000,000 */
    uint64_t max_tenant_shards; /* [max_shards] 1 to 16,000,000 */
    uint64_t max_bytes;         /* for keys, tokens and metadata that are not short
                                   [1 GiB] 64 KiB to 256 GiB */
    uint32_t max_runs;          /* [4,096] 1 to 1,000,000 */
    uint32_t max_members;       /* handles at once [1,000] 1 to 2,047 */
    uint64_t claim_cooldown;    /* ns between two claims of one worker, and from a cold open to the
                                   first claim of any [0: none] any */
    bool has_group;             /* the region is 0660 and belongs to `group` */
    uint32_t group;
    rf_durability durability; /* [RF_VOLATILE]; else what calls do that do not say (rf_result) */
    uint64_t segment_bytes;   /* of one file of the log, a multiple of 4,096
                               * [16 MiB] 64 KiB to 4 GiB. Besides two of them, 8 KiB of log are
                               * made ready for every lease, so that a full disk can't keep it from
                               * being ended (with a cursor of 3 KiB or less): 8 GB for a million */
    uint64_t snapshot_bytes; /* of log after which a snapshot is taken, or more: at least twice what
                               * the last one took, so that many shards cost no more
                               * [64 MiB] 64 KiB to 1 TiB */
    uint64_t flush_interval; /* ns after which what nobody waits for is written
                               * [5 ms] 100 us to 1 h */

    /* Of this handle. */
    uint64_t busy_timeout; /* ns to wait for a lock of a living process [1 s] any */

    /* For simulators and instruction counters: a handle without guardian, whose death has to be
     * declared and whose tending is done by rf_tend; a clock of one's own; a region elsewhere. */
    bool manual;
    uint64_t (*clock)(void *context);
    void *clock_context;
    const char *region_path;
} rf_options;

/*
 * Opens a store: a directory, or a plain name, which stands for a directory in /dev/shm. What is
 * there already decides: capacities are those of whoever made it. The handle takes a member slot;
 * the first one of a process also starts its guardian thread.
 */
RF_API rf_status rf_open(const char *store, const rf_options *options, rf_store **out,
                         rf_detail *detail);
/* Gives up every lease bound to the handle, and the handle: destroy its sessions and monitors before.
 * In a child of fork it only forgets. */
RF_API rf_status rf_close(rf_store *store);
/* Removes a store for good. RF_BUSY while somebody has it open. */
RF_API rf_status rf_destroy(const char *store, rf_detail *detail);

/* The store's time: ns, never 0, never going back. */
RF_API uint64_t rf_now(const rf_store *store);
/* An op id that no other call of this handle has, and no other handle is likely to. */
RF_API uint64_t rf_new_op(rf_store *store);

/* What a call can tell besides its status. Every call takes NULL as well. Begin with = {0}: two of its
 * fields are read. */
typedef struct rf_result {
    bool want_event; /* in: fill in `event` */
    rf_durability
        durability; /* in: RF_NOWAIT, RF_WAIT, or 0 for the store's own; acquire, claim and
                                 renew never wait, and a volatile store never does. Anything
                                 else: RF_INVALID_ARGUMENT */
    uint64_t epoch; /* the operation is durable when rf_durable has reached this; 0: not logged */
    rf_outcome outcome;
    rf_run_status run_status; /* renew */
    rf_capacity capacity;     /* acquire, claim, renew */
    bool has_event;
    rf_event event;
    rf_detail detail; /* only after a refusal */
} rf_result;

/* --- shards --- */

/* What a grant hands over. The bytes are in the caller's scratch; RF_GRANT_SCRATCH is always
 * enough, and too little gives RF_BUFFER_TOO_SMALL before anything is granted. */
#define RF_GRANT_SCRATCH 57344u
typedef struct rf_grant {
    void *scratch; /* in */
    size_t scratch_size;
    rf_lease lease;
    rf_spec spec;
    rf_cursor cursor;
    rf_semantics semantics;
    rf_shard_status status;
    bool has_parent;
    uint64_t parent;
    const uint64_t *spawned;
    uint32_t spawned_count;
    uint32_t attempts; /* with this one, since the last progress */
} rf_grant;

/* A lease is bound to the handle's process: it ends when the process does. A detached one ends at
 * its deadline only, and any process may present it. */
enum { RF_BOUND = 0, RF_DETACHED = 1 };

RF_API rf_status rf_acquire(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                            uint64_t shard, uint64_t worker, uint32_t flags, rf_grant *grant,
                            rf_result *result);
/* Moves the deadline to now + the run's lease duration, never back. Updates lease->deadline. */
RF_API rf_status rf_renew(rf_store *store, uint64_t now, const rf_tenant *tenant, rf_lease *lease,
                          rf_result *result);
RF_API rf_status rf_checkpoint(rf_store *store, uint64_t now, const rf_tenant *tenant,
                               const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                               rf_result *result);
RF_API rf_status rf_complete(rf_store *store, uint64_t now, const rf_tenant *tenant,
                             const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                             rf_result *result);
RF_API rf_status rf_park(rf_store *store, uint64_t now, const rf_tenant *tenant,
                         const rf_lease *lease, rf_park_reason reason, uint64_t op,
                         rf_result *result);
/* cursor may be NULL: hand over as it is. */
RF_API rf_status rf_release(rf_store *store, uint64_t now, const rf_tenant *tenant,
                            const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                            rf_result *result);
/* ids has room for count; in the order of the children's starts. */
RF_API rf_status rf_split_replace(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                  const rf_lease *lease, const rf_child *children, uint32_t count,
                                  uint64_t op, uint64_t *ids, rf_result *result);
RF_API rf_status rf_split_residual(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                   const rf_lease *lease, const rf_spec *parent_new,
                                   const rf_spec *residual, uint64_t op, uint64_t *id,
                                   rf_result *result);
RF_API rf_status rf_unpark(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           uint64_t shard, uint64_t op, rf_result *result);

/* --- claiming --- */

/* The first shard that can be had, from position `worker mod number of shards` on. timeout 0 does
 * not wait; otherwise it sleeps until something is claimable, the run ends (RF_RUN_TERMINAL) or
 * timeout ns have passed (RF_NONE_AVAILABLE). RF_FOREVER waits for ever. A handle with a clock of
 * its own never sleeps. A shard whose lock somebody else has is passed over; RF_BUSY only if there is
 * nothing else, and not before the busy timeout. */
#define RF_FOREVER UINT64_MAX
RF_API rf_status rf_claim(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          uint64_t worker, uint32_t flags, uint64_t timeout, rf_grant *grant,
                          rf_result *result);

/* --- runs --- */

RF_API rf_status rf_create_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                               const rf_run_config *config, rf_result *result);
RF_API rf_status rf_register_shards(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                    uint64_t run, const rf_shard_input *shards, uint32_t count,
                                    uint64_t op, rf_result *result);
RF_API rf_status rf_create_run_with_shards(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                           uint64_t run, const rf_run_config *config,
                                           const rf_shard_input *shards, uint32_t count,
                                           uint64_t op, rf_result *result);
RF_API rf_status rf_add_shards(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                               const rf_shard_input *shards, uint32_t count, uint64_t op,
                               rf_result *result);
RF_API rf_status rf_complete_run(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                 uint64_t run, uint64_t op, rf_result *result);
RF_API rf_status rf_fail_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                             uint64_t op, rf_result *result);
RF_API rf_status rf_cancel_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                               uint64_t op, rf_result *result);
RF_API rf_status rf_purge_run(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                              rf_result *result);

/* --- looking; none of these locks --- */

typedef struct rf_ring_entry {
    uint64_t op;
    uint64_t executed_at;
    uint8_t kind; /* rf_op_kind or rf_run_op_kind */
    uint8_t result;
} rf_ring_entry;

typedef struct rf_run_info {
    rf_tenant tenant;
    uint64_t run;
    rf_run_config config;
    rf_run_status status;
    uint64_t created_at;
    uint64_t completed_at; /* 0 unless it has ended */
    uint64_t root_count;
    uint64_t shard_count;
    uint64_t done;
    uint64_t split;
    uint64_t parked;
    uint32_t ring_count; /* oldest first */
    rf_ring_entry ring[RF_RUN_RING];
} rf_run_info;

typedef struct rf_shard_info {
    uint64_t shard;
    rf_shard_status status;
    bool has_reason;
    rf_park_reason reason;
    rf_semantics semantics;
    rf_spec spec;
    rf_cursor cursor;
    bool leased; /* a lease is recorded, active or not */
    uint64_t owner;
    uint64_t deadline;
    uint64_t fence;
    bool has_parent;
    uint64_t parent;
    const uint64_t *spawned;
    uint32_t spawned_count;
    uint32_t attempts;
    uint64_t version;    /* rises with every logged operation */
    uint32_t ring_count; /* oldest first */
    rf_ring_entry ring[RF_SHARD_RING];
} rf_shard_info;

typedef enum rf_filter {
    RF_LIST_ALL = 0,
    RF_LIST_ACTIVE = 1,
    RF_LIST_AVAILABLE = 2,
    RF_LIST_PARKED = 3,
    RF_LIST_ROOTS = 4,
} rf_filter;

RF_API rf_status rf_get_run(rf_store *store, const rf_tenant *tenant, uint64_t run,
                            rf_run_info *info, rf_detail *detail);
/* watermark has room for RF_KEY_MAX bytes, or is NULL. Reads every shard of the run. */
RF_API rf_status rf_get_progress(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                 uint64_t run, rf_progress *progress, uint8_t *watermark,
                                 rf_detail *detail);
RF_API rf_status rf_get_capacity(rf_store *store, const rf_tenant *tenant, uint64_t run,
                                 rf_capacity *capacity, rf_detail *detail);
/* scratch as for a grant. */
RF_API rf_status rf_get_shard(rf_store *store, const rf_tenant *tenant, uint64_t run,
                              uint64_t shard, rf_shard_info *info, void *scratch,
                              size_t scratch_size, rf_detail *detail);
/* Calls visit for the shards that pass the filter, sorted by start and id; it returns false to
 * stop. What is shown is one moment for every split: parent and children never both or neither. */
typedef bool rf_visit(void *context, const rf_shard_info *shard);
RF_API rf_status rf_list_shards(rf_store *store, uint64_t now, const rf_tenant *tenant,
                                uint64_t run, rf_filter filter, rf_visit *visit, void *context,
                                rf_detail *detail);
/* Calls visit for every run of the tenant (NULL: of all), in no particular order. */
typedef bool rf_visit_run(void *context, const rf_run_info *run);
RF_API rf_status rf_list_runs(rf_store *store, const rf_tenant *tenant, rf_visit_run *visit,
                              void *context, rf_detail *detail);

/* --- leases as text --- */

/* A lease with its tenant as one printable word, to be handed between processes. */
#define RF_LEASE_TEXT 256u
RF_API rf_status rf_lease_format(const rf_tenant *tenant, const rf_lease *lease, char *out,
                                 size_t out_size);
/* RF_INVALID_ARGUMENT if the text is not a lease, or damaged. */
RF_API rf_status rf_lease_parse(const char *text, rf_tenant *tenant, rf_lease *lease);

/* --- durability --- */

/* Returns when everything up to `epoch` (of an rf_result) is durable. RF_IO_ERROR after a write has failed: then
 * nothing is acknowledged any more, and the store has to be closed by all and opened again. Only of an epoch
 * that had become durable before that it is still RF_OK: that is true, now as before. RF_NOT_FOUND of an epoch of
 * before the store was last recovered from its disk that is not in the log: what was done in it without waiting may
 * be lost (or it is so long ago that the log does not tell any more). No epoch comes twice. */
RF_API rf_status rf_sync(rf_store *store, uint64_t epoch, rf_detail *detail);
/* The same for everything that any process has done so far. Together with a read before it: "only what is
 * durable". RF_IO_ERROR after a write has failed, always. */
RF_API rf_status rf_barrier(rf_store *store, rf_detail *detail);
/* Everything up to this epoch is on the disk, except what was lost before the store was last recovered: rf_sync
 * tells. 0 in a volatile store. */
RF_API uint64_t rf_durable(const rf_store *store);
/* Takes a snapshot now, without stopping anybody; older segments of the log are then removed. RF_BUSY if
 * somebody is taking one. */
RF_API rf_status rf_snapshot(rf_store *store, rf_detail *detail);
/* Copies a live store into a directory that is empty or does not exist: a snapshot and the log after it. Opening
 * the copy is a cold open. RF_INVALID_ARGUMENT for a directory inside of the store's.
 *
 * A copy that is put in the store's place knows nothing of what happened after the backup: leases that were granted since
 * are forgotten, and work is done again. Its fences go on above those of the next 4096 cold opens of the store, so a
 * resource that remembers fences refuses those who still hold old leases. That does not hold between two stores that
 * are opened from the same backup, nor if the store goes on beside its copy: run only one of them, and take a new backup of
 * what you have restored. Nor does it know of epochs that the store told after the backup: rf_sync may say of one that
 * it is durable. */
RF_API rf_status rf_backup(rf_store *store, const char *directory, rf_detail *detail);

/* One difference that rf_verify found, in words without a byte of a key. */
typedef void rf_visit_difference(void *context, const char *what);
typedef struct rf_verification {
    uint64_t batches; /* whose hash chain was walked */
    uint64_t records; /* replayed */
    uint64_t runs;    /* compared */
    uint64_t shards;
    uint64_t differences;
} rf_verification;
/* Replays the log beside the live region and compares every record, ring, counter, index entry and
 * bitmap; and checks every snapshot that is kept, and the log behind the oldest one. Needs a quiet moment: RF_BUSY if others kept changing the store. RF_OK with differences == 0
 * is a clean store; RF_CORRUPT if the log behind the newest good snapshot is damaged. */
RF_API rf_status rf_verify(rf_store *store, rf_visit_difference *visit, void *context,
                           rf_verification *verification, rf_detail *detail);

/* --- tending --- */

/* What the guardian does anyway: settles dead members, finishes purges. */
RF_API rf_status rf_tend(rf_store *store, uint64_t now);
/* Finds all expired leases of a run; after it count and deadline of the capacity are exact. */
RF_API rf_status rf_sweep(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          rf_detail *detail);

typedef struct rf_inspection {
    uint64_t layout_hash;
    uint64_t incarnation;
    uint64_t fence_floor;
    uint64_t region_bytes; /* address space */
    uint64_t taken_bytes;  /* shared memory */
    uint64_t members;      /* slots in use, with guardians */
    uint64_t dead_members; /* not yet settled */
    uint64_t runs;
    uint64_t shards;
    uint64_t extents; /* of 64 shards */
    uint64_t leaves;
    uint64_t blocks;
    uint64_t operations;
    uint64_t replays;
    uint64_t refusals;
    uint64_t lock_waits;
    uint64_t busy;
    uint64_t reaped; /* dead members settled, and what was found */
    uint64_t redone;
    uint64_t undone;
    uint64_t locks_freed;
    uint64_t leases_lost;
    uint64_t leases_expired;
    uint64_t purges_finished;
    uint64_t reapers_replaced;
    /* the log; all 0 in a volatile store */
    rf_durability durability;
    bool log_failed; /* a write failed: close all handles and open the store again */
    bool log_short;  /* no room for the next segment: only endings are taken */
    uint64_t open_epoch;
    uint64_t durable_epoch;
    uint64_t log_position;      /* bytes of log that were ever written */
    uint64_t snapshot_epoch;    /* replay would begin there */
    uint64_t snapshot_position; /* the log's end when it was begun */
    uint32_t snapshot_held_by;  /* pid of a member that holds the next one back; 0: nobody */
    char io_path[32];           /* how this handle writes: "io_uring, direct" ... */
    char io_why[160];           /* why not better; "" if it is the best there is */
} rf_inspection;
RF_API rf_status rf_inspect(rf_store *store, rf_inspection *inspection, rf_detail *detail);

typedef enum rf_op_class {
    RF_CLASS_ACQUIRE = 0,
    RF_CLASS_RENEW,
    RF_CLASS_CHECKPOINT,
    RF_CLASS_COMPLETE,
    RF_CLASS_PARK,
    RF_CLASS_RELEASE,
    RF_CLASS_SPLIT_REPLACE,
    RF_CLASS_SPLIT_RESIDUAL,
    RF_CLASS_UNPARK,
    RF_CLASS_CLAIM,
    RF_CLASS_CREATE_RUN,
    RF_CLASS_REGISTER,
    RF_CLASS_ADD,
    RF_CLASS_END_RUN,
    RF_CLASS_PURGE,
    RF_CLASSES,
} rf_op_class;

/* One member, for people and metrics. */
typedef struct rf_member_info {
    uint32_t slot;
    uint32_t pid;
    bool guardian;
    bool dead;
    uint64_t joined_at;
    uint64_t executed[RF_CLASSES];
    uint64_t replayed[RF_CLASSES];
    uint64_t refused[RF_CLASSES][100]; /* by class and status */
    uint64_t lock_waits;
    uint64_t busy;
} rf_member_info;
typedef bool rf_visit_member(void *context, const rf_member_info *member);
RF_API rf_status rf_list_members(rf_store *store, rf_visit_member *visit, void *context,
                                 rf_detail *detail);

/* A lock that somebody holds at the moment. Operations hold theirs for microseconds; one that is held
 * for longer belongs to a process that is stopped, or does not get a processor. */
typedef enum rf_lock_what {
    RF_LOCK_OF_NAME = 0,  /* of names of runs that are being made or purged, a 64th of all */
    RF_LOCK_OF_SHARD = 1, /* tenant, run and shard say which */
    RF_LOCK_OF_RUN = 2,   /* tenant and run say which */
} rf_lock_what;
typedef struct rf_lock_info {
    uint32_t slot; /* of the member that holds it */
    uint32_t pid;
    bool dead; /* and not yet settled */
    rf_lock_what what;
    rf_tenant tenant;
    uint64_t run;
    uint64_t shard;
    /* ns. The store's guardians look every second or two, and this is the time since they first saw it
     * held: at least so long. 0: none of them has seen it yet. */
    uint64_t held;
    uint64_t hold; /* two lists with the same number here: it has not been let go in between */
} rf_lock_info;
typedef bool rf_visit_lock(void *context, const rf_lock_info *lock);
RF_API rf_status rf_list_locks(rf_store *store, rf_visit_lock *visit, void *context,
                               rf_detail *detail);

/* --- following --- */

/* Events of all members as they happen, without slowing them down: what is not read in time is
 * lost, and counted. Works on a read-only handle. Renewals are not shown. */
typedef struct rf_monitor rf_monitor;
RF_API rf_status rf_monitor_create(rf_store *store, rf_monitor **monitor);
RF_API rf_status rf_monitor_read(rf_monitor *monitor, rf_event *events, size_t capacity,
                                 size_t *count, uint64_t *lost);
RF_API void rf_monitor_destroy(rf_monitor *monitor);

/* -------------------------------------------------------------------------------- sessions --- */

/*
 * A session works on one shard at a time and threads the lease through: claim or acquire, any number
 * of checkpoints, renewals and residual splits, then one of complete, park, release or
 * split_replace, which end the lease. After RF_STALE_FENCE, RF_LEASE_EXPIRED or RF_SHARD_TERMINAL
 * the session has no lease any more. Op ids are made up by the session.
 */
typedef struct rf_session rf_session;

typedef struct rf_session_options {
    rf_tenant tenant;
    uint64_t worker;
    bool keep_alive; /* the guardian renews the lease at a third of its duration */
    bool detached;   /* take detached leases */
} rf_session_options;

RF_API rf_status rf_session_create(rf_store *store, const rf_session_options *options,
                                   rf_session **session);
/* Releases the shard if one is held. */
RF_API void rf_session_destroy(rf_session *session);

/* RF_INVALID_ARGUMENT while a shard is held. *grant is valid until the lease ends. */
RF_API rf_status rf_session_claim(rf_session *session, uint64_t run, uint64_t timeout,
                                  const rf_grant **grant, rf_result *result);
RF_API rf_status rf_session_acquire(rf_session *session, uint64_t run, uint64_t shard,
                                    const rf_grant **grant, rf_result *result);
/* RF_OK while the lease is held as far as is known; else why it was lost. Does not look into the
 * region: cheap enough for every item. */
RF_API rf_status rf_session_check(const rf_session *session);
RF_API rf_status rf_session_renew(rf_session *session, rf_result *result);
RF_API rf_status rf_session_checkpoint(rf_session *session, rf_cursor cursor, rf_result *result);
RF_API rf_status rf_session_split_residual(rf_session *session, rf_bytes point, uint64_t *id,
                                           rf_result *result);
RF_API rf_status rf_session_split_replace(rf_session *session, const rf_bytes *points,
                                          uint32_t count, uint64_t *ids, rf_result *result);
RF_API rf_status rf_session_complete(rf_session *session, rf_cursor cursor, rf_result *result);
RF_API rf_status rf_session_park(rf_session *session, rf_park_reason reason, rf_result *result);
RF_API rf_status rf_session_release(rf_session *session, rf_result *result);

#ifdef __cplusplus
}
#endif

#endif
