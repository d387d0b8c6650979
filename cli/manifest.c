#include "manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SHARDS 64u
#define HEX_DIGITS_MAX 5u /* a million shards */

/* --- keys --- */

struct keys {
    rf_bytes *key;
    size_t count;
    size_t room;
};

static FILE *open_input(const char *file)
{
    return strcmp(file, "-") == 0 ? stdin : fopen(file, "re");
}

static int read_keys(const char *file, char separator, struct keys *keys)
{
    FILE *f = open_input(file);
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    if (f == NULL) {
        return cli_fail(EXIT_IO, "%s can't be read: %s", file, strerror(errno));
    }
    int code = EXIT_DONE;
    while (code == EXIT_DONE && (len = getdelim(&line, &size, separator, f)) >= 0) {
        len -= len > 0 && line[len - 1] == separator;
        if (len == 0) {
            continue;
        }
        if (len > (ssize_t)RF_KEY_MAX) {
            code = cli_fail(EXIT_REFUSED, "%s: key %zu has %zd bytes, the limit is %u", file,
                            keys->count + 1, len, RF_KEY_MAX);
            break;
        }
        if (keys->count == keys->room) {
            size_t room = keys->room == 0 ? 1024 : 2 * keys->room;
            rf_bytes *more = keep_bytes(room * sizeof(*more));
            if (keys->count != 0) {
                memcpy(more, keys->key, keys->count * sizeof(*more));
            }
            keys->key = more;
            keys->room = room;
        }
        keys->key[keys->count++] =
            (rf_bytes){memcpy(keep_bytes((size_t)len), line, (size_t)len), (size_t)len};
    }
    if (code == EXIT_DONE && ferror(f)) {
        code = cli_fail(EXIT_IO, "%s can't be read: %s", file, strerror(errno));
    }
    free(line);
    if (f != stdin) {
        fclose(f);
    }
    return code;
}

static int compare_keys(const void *a, const void *b)
{
    return rf_key_compare(*(const rf_bytes *)a, *(const rf_bytes *)b);
}

static void sort_keys(struct keys *keys)
{
    size_t kept = 0;
    if (keys->count == 0) {
        return;
    }
    qsort(keys->key, keys->count, sizeof(keys->key[0]), compare_keys);
    for (size_t i = 0; i < keys->count; i++) {
        if (kept == 0 || rf_key_compare(keys->key[kept - 1], keys->key[i]) != 0) {
            keys->key[kept++] = keys->key[i];
        }
    }
    keys->count = kept;
}

/* The least bound behind the last key. */
static rf_bytes behind(rf_bytes key)
{
    uint8_t *out = keep_bytes(RF_KEY_MAX);
    size_t len = 0;
    if (rf_key_successor(key, out, &len) != RF_OK) {
        rf_prefix_successor(key, out, &len);
    }
    return (rf_bytes){out, len};
}

static int cut_keys(struct keys *keys, uint64_t shards, struct manifest *m)
{
    sort_keys(keys);
    if (keys->count == 0) {
        return cli_fail(EXIT_REFUSED, "there are no keys");
    }
    shards = shards < keys->count ? shards : keys->count;
    if (shards == 0 || shards > UINT32_MAX) {
        return cli_fail(EXIT_USAGE, "--shards is at least 1");
    }
    m->shards = keep_bytes(shards * sizeof(*m->shards));
    m->count = (uint32_t)shards;
    for (uint64_t i = 0; i < shards; i++) {
        m->shards[i].spec.start = keys->key[i * keys->count / shards];
        if (i > 0) {
            m->shards[i - 1].spec.end = m->shards[i].spec.start;
        }
    }
    m->shards[shards - 1].spec.end = behind(keys->key[keys->count - 1]);
    return EXIT_DONE;
}

/* --- ranges --- */

static bool parse_field(const char *text, size_t len, rf_bytes *out)
{
    size_t used;
    uint8_t *bytes = keep_bytes(len + 1);
    if (!parse_bytes_at(text, len, bytes, len, &used)) {
        return false;
    }
    *out = (rf_bytes){bytes, used};
    return true;
}

/* Up to `most` fields; those that are not there stay as they are. */
static bool parse_fields(const char *text, char separator, rf_bytes **fields, int most, int *found)
{
    for (*found = 0;; (*found)++) {
        const char *end = strchr(text, separator);
        size_t len = end == NULL ? strlen(text) : (size_t)(end - text);
        if (*found == most || !parse_field(text, len, fields[*found])) {
            return false;
        }
        if (end == NULL) {
            (*found)++;
            return true;
        }
        text = end + 1;
    }
}

bool parse_range(const char *text, rf_spec *spec, rf_cursor *cursor)
{
    rf_bytes *fields[] = {&spec->start, &spec->end, &spec->metadata, &cursor->key, &cursor->token};
    int found;
    *spec = (rf_spec){0};
    *cursor = (rf_cursor){0};
    return parse_fields(text, ',', fields, 5, &found) && found >= 2;
}

static int read_ranges(const char *file, struct manifest *m)
{
    FILE *f = open_input(file);
    char *line = NULL;
    size_t size = 0, number = 0, room = 0;
    ssize_t len;
    int code = EXIT_DONE;
    if (f == NULL) {
        return cli_fail(EXIT_IO, "%s can't be read: %s", file, strerror(errno));
    }
    while (code == EXIT_DONE && (len = getline(&line, &size, f)) >= 0) {
        number++;
        bool ends = len > 0 && line[len - 1] == '\n';
        len -= ends;
        len -= ends && len > 0 && line[len - 1] == '\r';
        line[len] = 0;
        if (len == 0 || line[0] == '#') {
            continue;
        }
        if (strlen(line) != (size_t)len) {
            code =
                cli_fail(EXIT_REFUSED, "%s: line %zu has a NUL byte; write it %%00", file, number);
            break;
        }
        if (m->count == room) {
            room = room == 0 ? 256 : 2 * room;
            rf_shard_input *more = keep_bytes(room * sizeof(*more));
            if (m->count != 0) {
                memcpy(more, m->shards, m->count * sizeof(*more));
            }
            m->shards = more;
        }
        rf_spec *spec = &m->shards[m->count++].spec;
        rf_bytes *fields[] = {&spec->start, &spec->end, &spec->metadata};
        int found;
        if (!parse_fields(line, '\t', fields, 3, &found) || found < 2) {
            code =
                cli_fail(EXIT_REFUSED, "%s: line %zu is not START<TAB>END[<TAB>METADATA], encoded",
                         file, number);
        }
    }
    if (code == EXIT_DONE && ferror(f)) {
        code = cli_fail(EXIT_IO, "%s can't be read: %s", file, strerror(errno));
    }
    free(line);
    if (f != stdin) {
        fclose(f);
    }
    return code;
}

/* --- prefixes --- */

static int make_prefixes(uint64_t digits, struct manifest *m)
{
    if (digits == 0 || digits > HEX_DIGITS_MAX) {
        return cli_fail(EXIT_USAGE, "--hex-prefixes is 1 to %u", HEX_DIGITS_MAX);
    }
    m->count = 1u << (4 * digits);
    m->shards = keep_bytes(m->count * sizeof(*m->shards));
    for (uint32_t i = 0; i < m->count; i++) {
        char *prefix = keep_format("%0*x", (int)digits, i);
        m->shards[i].spec.start = (rf_bytes){prefix, digits};
        if (i > 0) {
            m->shards[i - 1].spec.end = m->shards[i].spec.start;
        }
    }
    m->shards[m->count - 1].spec.end = (rf_bytes){"g", 1}; /* behind f... */
    return EXIT_DONE;
}

int read_manifest(const struct args *args, struct manifest *m)
{
    const char *keys = arg_text(args, "keys", NULL), *ranges = arg_text(args, "ranges", NULL);
    bool hex = arg_given(args, "hex-prefixes");
    int code;
    *m = (struct manifest){0};
    if ((keys != NULL) + (ranges != NULL) + hex != 1) {
        return cli_fail(EXIT_USAGE, "say where the shards come from: one of --keys FILE, --ranges "
                                    "FILE and --hex-prefixes N");
    }
    if (keys == NULL && (arg_given(args, "shards") || arg_given(args, "null"))) {
        return cli_fail(EXIT_USAGE, "--shards and --null belong to --keys");
    }
    if (keys != NULL) {
        struct keys list = {0};
        code = read_keys(keys, arg_given(args, "null") ? 0 : '\n', &list);
        code = code != EXIT_DONE ? code
                                 : cut_keys(&list, arg_number(args, "shards", DEFAULT_SHARDS), m);
    } else if (ranges != NULL) {
        code = read_ranges(ranges, m);
    } else {
        code = make_prefixes(arg_number(args, "hex-prefixes", 0), m);
    }
    uint64_t first = arg_number(args, "first-id", 1);
    for (uint32_t i = 0; i < m->count; i++) {
        m->shards[i].shard = first + i;
    }
    return code;
}
