/* Statuses, events and the version in words. Sentences are about sizes, limits and positions; there
 * is nothing in an rf_detail that could give a key, a token or an owner away. */
#include <inttypes.h>
#include <stdio.h>

#include "bytes.h"

#define TEXT_OF(x) #x
#define TEXT(x)    TEXT_OF(x)

const char *rf_version_string(void)
{
    return TEXT(RF_VERSION_MAJOR) "." TEXT(RF_VERSION_MINOR) "." TEXT(RF_VERSION_PATCH);
}

struct status_text {
    rf_status status;
    const char *name;
    const char *text;
};

static const struct status_text statuses[] = {
    {RF_OK, "OK", "success"},
    {RF_INVALID_ARGUMENT, "INVALID_ARGUMENT", "an argument is missing or impossible"},
    {RF_INVALID_TIME, "INVALID_TIME", "the time 0 is not a time"},
    {RF_BUFFER_TOO_SMALL, "BUFFER_TOO_SMALL", "the buffer is too small"},
    {RF_NOT_FOUND, "NOT_FOUND", "there is no such shard"},
    {RF_RUN_NOT_FOUND, "RUN_NOT_FOUND", "there is no such run"},
    {RF_RUN_EXISTS, "RUN_EXISTS", "the run exists already"},
    {RF_OP_ID_CONFLICT, "OP_ID_CONFLICT", "this op id was used with another payload"},
    {RF_SHARD_TERMINAL, "SHARD_TERMINAL", "the shard is done, split or parked"},
    {RF_STALE_FENCE, "STALE_FENCE", "the lease is no longer held; stop working on the shard"},
    {RF_LEASE_EXPIRED, "LEASE_EXPIRED", "the lease has expired"},
    {RF_ALREADY_LEASED, "ALREADY_LEASED", "the shard is leased"},
    {RF_FENCE_EXHAUSTED, "FENCE_EXHAUSTED", "the shard has no fence epoch left"},
    {RF_MISSING_KEY, "MISSING_KEY", "the cursor has no key"},
    {RF_KEY_TOO_LARGE, "KEY_TOO_LARGE", "a key is too large"},
    {RF_TOKEN_TOO_LARGE, "TOKEN_TOO_LARGE", "a cursor token is too large"},
    {RF_METADATA_TOO_LARGE, "METADATA_TOO_LARGE", "the metadata is too large"},
    {RF_CURSOR_REGRESSION, "CURSOR_REGRESSION", "the cursor would go back"},
    {RF_CURSOR_OUT_OF_BOUNDS, "CURSOR_OUT_OF_BOUNDS", "the cursor is outside its range"},
    {RF_RANGE_INVERTED, "RANGE_INVERTED", "a range does not start below its end"},
    {RF_SPLIT_COUNT, "SPLIT_COUNT", "a split makes 2 to 256 children"},
    {RF_SPLIT_COVERAGE, "SPLIT_COVERAGE", "the parts are not exactly the whole"},
    {RF_MANIFEST_EMPTY, "MANIFEST_EMPTY", "there are no shards to register"},
    {RF_DUPLICATE_SHARD, "DUPLICATE_SHARD", "a shard id is there twice"},
    {RF_UNBOUNDED_RANGE, "UNBOUNDED_RANGE", "a root shard needs a start and an end"},
    {RF_OVERLAPPING_RANGES, "OVERLAPPING_RANGES", "two ranges overlap"},
    {RF_DERIVED_ROOT_ID, "DERIVED_ROOT_ID", "a root shard's id has bit 63 set"},
    {RF_INVALID_CONFIG, "INVALID_CONFIG", "the configuration is impossible"},
    {RF_CONFIG_MISMATCH, "CONFIG_MISMATCH", "it exists with another configuration"},
    {RF_NOT_PARKED, "NOT_PARKED", "the shard is not parked"},
    {RF_RUN_TERMINAL, "RUN_TERMINAL", "the run has ended"},
    {RF_WRONG_STATUS, "WRONG_STATUS", "the run's status does not allow this"},
    {RF_SPAWNED_LIMIT, "SPAWNED_LIMIT", "the shard has been split too often"},
    {RF_SHARD_LIMIT, "SHARD_LIMIT", "there would be too many shards"},
    {RF_DERIVED_ID_COLLISION, "DERIVED_ID_COLLISION", "a split would make an id that exists"},
    {RF_RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED", "there is no room left"},
    {RF_THROTTLED, "THROTTLED", "claimed again too soon"},
    {RF_NONE_AVAILABLE, "NONE_AVAILABLE", "nothing can be claimed now"},
    {RF_BUSY, "BUSY", "another process is in the way"},
    {RF_FORKED, "FORKED", "the handle belongs to the parent process; open one of your own"},
    {RF_CORRUPT, "CORRUPT", "the data is damaged"},
    {RF_VERSION_MISMATCH, "VERSION_MISMATCH", "another version's format"},
    {RF_PERMISSION_DENIED, "PERMISSION_DENIED", "permission denied"},
    {RF_UNSUPPORTED, "UNSUPPORTED", "not supported here"},
    {RF_IO_ERROR, "IO_ERROR", "an operation of the system failed"},
};

static const struct status_text *find_status(rf_status status)
{
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        if (statuses[i].status == status) {
            return &statuses[i];
        }
    }
    return NULL;
}

const char *rf_strerror(rf_status status)
{
    const struct status_text *t = find_status(status);
    return t == NULL ? "unknown status" : t->text;
}

const char *rf_status_name(rf_status status)
{
    const struct status_text *t = find_status(status);
    return t == NULL ? "UNKNOWN" : t->name;
}

/* A sentence under construction that keeps count past the end, as snprintf does. */
struct sentence {
    char *out;
    size_t size;
    size_t len;
};

static void __attribute__((format(printf, 2, 3))) say(struct sentence *s, const char *format, ...)
{
    __builtin_va_list args;
    __builtin_va_start(args, format);
    size_t room = s->len < s->size ? s->size - s->len : 0;
    int n = vsnprintf(room != 0 ? s->out + s->len : NULL, room, format, args);
    __builtin_va_end(args);
    s->len += n > 0 ? (size_t)n : 0;
}

size_t rf_explain(rf_status status, const rf_detail *d, char *out, size_t out_size)
{
    struct sentence s = {.out = out, .size = out_size, .len = 0};
    /* A place is named only where a store was looked for, or an epoch, which is told by its number;
     * shards have none that may be told. */
    bool named = status == RF_NOT_FOUND && d != NULL && d->where[0] != 0;
    const char *missing =
        named && d->size != 0 ? "there is no such epoch" : "there is no such store";
    say(&s, "%s", named ? missing : rf_strerror(status));
    if (d == NULL) {
        return s.len;
    }
    if (d->where[0] != 0) {
        say(&s, ": %.*s", (int)sizeof(d->where), d->where);
    }
    if (d->has_index) {
        say(&s, " (at position %" PRIu64 ")", d->index);
    }
    switch (status) {
    case RF_KEY_TOO_LARGE:
    case RF_TOKEN_TOO_LARGE:
    case RF_METADATA_TOO_LARGE:
    case RF_SPAWNED_LIMIT:
    case RF_SHARD_LIMIT:
        say(&s, ": %" PRIu64 ", the limit is %" PRIu64, d->size, d->limit);
        break;
    case RF_BUFFER_TOO_SMALL:
        if (d->size != 0) {
            say(&s, ": %" PRIu64 " bytes are needed, %" PRIu64 " were given", d->size, d->limit);
        }
        break;
    case RF_SPLIT_COUNT:
        say(&s, ": not %" PRIu64, d->size);
        break;
    case RF_LEASE_EXPIRED:
    case RF_ALREADY_LEASED:
    case RF_NONE_AVAILABLE:
        if (d->deadline != 0) {
            say(&s, ": the deadline is %" PRIu64 " ns", d->deadline);
        }
        break;
    case RF_THROTTLED:
        say(&s, ": try again in %" PRIu64 " ns", d->retry_after);
        break;
    case RF_BUSY:
        if (d->pid != 0) {
            say(&s, ": process %" PRIu32 " holds it; see whether it is stopped", d->pid);
        }
        break;
    default:
        break;
    }
    if (d->os_error != 0) {
        say(&s, ": %s", strerror(d->os_error));
    }
    return s.len;
}

const char *rf_event_name(rf_event_kind kind)
{
    static const char *const names[] = {
        [RF_EVENT_ACQUIRED] = "acquired",
        [RF_EVENT_LEASE_RENEWED] = "lease_renewed",
        [RF_EVENT_CHECKPOINTED] = "checkpointed",
        [RF_EVENT_COMPLETED] = "completed",
        [RF_EVENT_PARKED] = "parked",
        [RF_EVENT_SPLIT] = "split",
        [RF_EVENT_RESIDUAL_CREATED] = "residual_created",
        [RF_EVENT_UNPARKED] = "unparked",
        [RF_EVENT_RELEASED] = "released",
        [RF_EVENT_OWNER_LOST] = "owner_lost",
        [RF_EVENT_RUN_CREATED] = "run_created",
        [RF_EVENT_RUN_ACTIVATED] = "run_activated",
        [RF_EVENT_RUN_COMPLETED] = "run_completed",
        [RF_EVENT_RUN_FAILED] = "run_failed",
        [RF_EVENT_RUN_CANCELLED] = "run_cancelled",
        [RF_EVENT_SHARDS_ADDED] = "shards_added",
        [RF_EVENT_RUN_PURGED] = "run_purged",
    };
    size_t i = (size_t)kind;
    return i < sizeof(names) / sizeof(names[0]) ? names[i] : "unknown";
}
