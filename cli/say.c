/* Errors, exit codes and the words for stored numbers. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

const char *const exit_texts[] = {
    [EXIT_DONE] = "done",
    [EXIT_INCOMPLETE] = "it ran, and not everything is well: shards are parked, damage was found",
    [EXIT_USAGE] = "the command line is wrong",
    [EXIT_NOT_FOUND] = "there is no such store, run or shard",
    [EXIT_NONE_AVAILABLE] = "nothing can be claimed now",
    [EXIT_FENCED] = "fenced: the lease is no longer held; stop working on the shard",
    [EXIT_EXPIRED] = "the lease has expired",
    [EXIT_RUN_ENDED] = "the run, or the shard, has ended",
    [EXIT_BUSY] = "busy: in use, leased by somebody else, or locked by a stopped process",
    [EXIT_IO] = "an input or output error",
    [EXIT_NO_ROOM] = "no room: shared memory, disk or a capacity is used up",
    [EXIT_PERMISSION] = "permission denied",
    [EXIT_CORRUPT] = "damaged, or of another version",
    [EXIT_REFUSED] = "refused for another reason; the message says which",
};

void print_exit_codes(FILE *to)
{
    for (int i = 0; i <= EXIT_REFUSED; i++) {
        fprintf(to, "  %3d  %s\n", i, exit_texts[i]);
    }
    fprintf(to, "  %3d  interrupted\n", EXIT_INTERRUPTED);
}

enum exit_code exit_of(rf_status status)
{
    switch (status) {
    case RF_OK:
        return EXIT_DONE;
    case RF_NOT_FOUND:
    case RF_RUN_NOT_FOUND:
        return EXIT_NOT_FOUND;
    case RF_NONE_AVAILABLE:
    case RF_THROTTLED:
        return EXIT_NONE_AVAILABLE;
    case RF_STALE_FENCE:
        return EXIT_FENCED;
    case RF_LEASE_EXPIRED:
        return EXIT_EXPIRED;
    case RF_RUN_TERMINAL:
    case RF_SHARD_TERMINAL:
        return EXIT_RUN_ENDED;
    case RF_BUSY:
    case RF_ALREADY_LEASED:
        return EXIT_BUSY;
    case RF_IO_ERROR:
        return EXIT_IO;
    case RF_RESOURCE_EXHAUSTED:
    case RF_SHARD_LIMIT:
    case RF_SPAWNED_LIMIT:
        return EXIT_NO_ROOM;
    case RF_PERMISSION_DENIED:
        return EXIT_PERMISSION;
    case RF_CORRUPT:
    case RF_VERSION_MISMATCH:
        return EXIT_CORRUPT;
    default:
        return EXIT_REFUSED;
    }
}

static const char *who = "ringfence";

static void say(const char *format, va_list args)
{
    fflush(stdout);
    fprintf(stderr, "%s%s%s: ", colour_on(stderr, OUT_BOLD), who, colour_off(stderr));
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

int cli_fail(enum exit_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return (int)code;
}

int read_id(const char *what, const char *text, uint64_t *id)
{
    if (parse_number(text, id)) {
        return EXIT_DONE;
    }
    return is_too_large(text, parse_number)
               ? cli_fail(EXIT_USAGE, "%s is too large: at most %" PRIu64, what, UINT64_MAX)
               : cli_fail(EXIT_USAGE, "%s is a number, and %s is none", what, text);
}

void cli_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

/* What to do about it, where the store can't know how it is being used. */
static const char *advice(rf_status status, const rf_detail *detail)
{
    switch (status) {
    case RF_RUN_NOT_FOUND:
        return "; see `ringfence run list`, and --tenant";
    case RF_NOT_FOUND:
        return detail == NULL || detail->where[0] == 0 ? "; see `ringfence shard list`"
               : detail->size != 0                     ? "" /* an epoch */
                                                       : "; `ringfence init` makes one";
    case RF_RUN_EXISTS:
        return "; take another number, or purge it";
    case RF_CONFIG_MISMATCH:
        return "; take another number, or give the same options";
    case RF_WRONG_STATUS:
        return "; see `ringfence run show`";
    case RF_NOT_PARKED:
        return "; see `ringfence shard show`";
    case RF_OP_ID_CONFLICT:
        return "; give another --op";
    case RF_CURSOR_REGRESSION:
        return "; keys only go up";
    default:
        return "";
    }
}

void explain(rf_status status, const rf_detail *detail, uint64_t now, char *out, size_t size)
{
    bool deadline =
        status == RF_LEASE_EXPIRED || status == RF_ALREADY_LEASED || status == RF_NONE_AVAILABLE;
    if (status == RF_THROTTLED && detail != NULL) {
        snprintf(out, size, "%s; try again in %s", rf_strerror(status),
                 duration_text(detail->retry_after));
    } else if (!deadline) {
        rf_explain(status, detail, out, size);
    } else if (detail == NULL || detail->deadline == 0 || now == 0) {
        snprintf(out, size, "%s", rf_strerror(status));
    } else if (detail->deadline > now) {
        snprintf(out, size, "%s; %s lease ends in %s", rf_strerror(status),
                 status == RF_NONE_AVAILABLE ? "the next" : "its",
                 duration_text(detail->deadline - now));
    } else {
        snprintf(out, size, "%s; it ended %s ago", rf_strerror(status),
                 duration_text(now - detail->deadline));
    }
}

int cli_refuse(rf_status status, const rf_detail *detail, uint64_t now, const char *format, ...)
{
    char what[512], why[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    explain(status, detail, now, why, sizeof(why));
    return cli_fail(exit_of(status), "%s%s%s%s", what, what[0] != 0 ? ": " : "", why,
                    advice(status, detail));
}

/* --- words --- */

const char *run_status_word(rf_run_status status)
{
    static const char *const words[] = {"initializing", "active", "done", "failed", "cancelled"};
    return (unsigned)status < 5 ? words[status] : "unknown";
}

const char *shard_status_word(rf_shard_status status)
{
    static const char *const words[] = {"active", "done", "split", "parked"};
    return (unsigned)status < 4 ? words[status] : "unknown";
}

static const char *const reasons[] = {"permission-denied", "not-found", "poisoned",
                                      "too-many-errors", "other"};

const char *park_reason_word(rf_park_reason reason)
{
    return (unsigned)reason < 5 ? reasons[reason] : "unknown";
}

bool parse_park_reason(const char *word, rf_park_reason *reason)
{
    for (unsigned i = 0; i < 5; i++) {
        if (strcmp(word, reasons[i]) == 0) {
            *reason = (rf_park_reason)i;
            return true;
        }
    }
    return false;
}

const char *op_kind_word(uint8_t kind)
{
    static const char *const words[] = {"checkpoint",     "complete", "park",   "split-replace",
                                        "split-residual", "unpark",   "release"};
    return kind < 7 ? words[kind] : "unknown";
}

const char *run_op_kind_word(uint8_t kind)
{
    static const char *const words[] = {"register-shards", "complete-run", "fail-run", "cancel-run",
                                        "add-shards"};
    return kind < 5 ? words[kind] : "unknown";
}

const char *op_class_word(unsigned op_class)
{
    static const char *const words[] = {"acquire",    "renew",   "checkpoint",    "complete",
                                        "park",       "release", "split_replace", "split_residual",
                                        "unpark",     "claim",   "create_run",    "register_shards",
                                        "add_shards", "end_run", "purge_run"};
    _Static_assert(sizeof(words) / sizeof(words[0]) == RF_CLASSES, "one word a class");
    return op_class < RF_CLASSES ? words[op_class] : "unknown";
}

uint64_t lag_epochs(const rf_inspection *i)
{
    return i->open_epoch > i->durable_epoch ? i->open_epoch - i->durable_epoch - 1 : 0;
}

/* By a signal or a debugger. */
static bool is_stopped(uint32_t pid)
{
    char path[32], stat[512];
    snprintf(path, sizeof(path), "/proc/%" PRIu32 "/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f == NULL ? 0 : fread(stat, 1, sizeof(stat) - 1, f);
    if (f != NULL) {
        fclose(f);
    }
    stat[n] = 0;
    const char *behind_name = strrchr(stat, ')');
    return behind_name != NULL &&
           (strncmp(behind_name, ") T", 3) == 0 || strncmp(behind_name, ") t", 3) == 0);
}

const char *member_state_word(const rf_member_info *m)
{
    return m->dead ? "dead" : is_stopped(m->pid) ? "stopped" : "alive";
}

enum out_colour status_colour(const char *word)
{
    static const struct {
        const char *word;
        enum out_colour colour;
    } colours[] = {{"active", OUT_GREEN},        {"done", OUT_BLUE},
                   {"parked", OUT_RED},          {"failed", OUT_RED},
                   {"split", OUT_DIM},           {"cancelled", OUT_YELLOW},
                   {"initializing", OUT_YELLOW}, {"alive", OUT_GREEN},
                   {"stopped", OUT_RED},         {"dead", OUT_RED}};
    for (unsigned i = 0; i < sizeof(colours) / sizeof(colours[0]); i++) {
        if (strcmp(word, colours[i].word) == 0) {
            return colours[i].colour;
        }
    }
    return OUT_PLAIN;
}

const char *tenant_text(const rf_tenant *tenant)
{
    static char ring[4][16];
    static unsigned at;
    char *text = ring[at++ % 4];
    snprintf(text, sizeof(ring[0]), "%02x%02x%02x%02x", tenant->bytes[0], tenant->bytes[1],
             tenant->bytes[2], tenant->bytes[3]);
    return text;
}

/* --- memory --- */

struct kept {
    struct kept *next;
    _Alignas(16) char bytes[];
};
static struct kept *all_kept;

void *keep_bytes(size_t size)
{
    struct kept *k = calloc(1, sizeof(*k) + size);
    if (k == NULL) {
        exit(cli_fail(EXIT_NO_ROOM, "there is no memory left"));
    }
    k->next = all_kept;
    all_kept = k;
    return k->bytes;
}

char *keep_text(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(keep_bytes(size), text, size);
}

char *keep_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = keep_bytes((size_t)len + 1);
    va_start(args, format);
    vsnprintf(text, (size_t)len + 1, format, args);
    va_end(args);
    return text;
}

/* --- time --- */

uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

uint64_t monotonic_after(uint64_t ns)
{
    uint64_t at;
    return __builtin_add_overflow(monotonic_ns(), ns, &at) ? UINT64_MAX : at;
}

void sleep_ns(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / RF_SECOND), .tv_nsec = (long)(ns % RF_SECOND)};
    nanosleep(&t, NULL);
}
