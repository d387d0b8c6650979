/*
 * What people type, and the files they feed in. Never a crash, never a hang; and what is accepted is what was
 * written, by a second reading of it here that shares nothing with the command's:
 *
 *   0 numbers     decimal or 0x, exact, or refused
 *   1 durations   digits, a point, digits, a unit; exact to the nanosecond
 *   2 sizes       likewise
 *   3 bytes       %XX and hex:; accepted ones are written and read again and are the same, and any bytes come through
 *   4 ranges      START,END[,METADATA[,KEY[,TOKEN]]]
 *   5 leases      only as the library writes them, with a path that has no NUL
 *   6 words       of every command: each is an option, an option's value, an argument or behind --, in its order
 *   7 --ranges    a file: as many shards as lines, with their bytes
 *   8 --keys      a file: every key is in exactly one shard, in order, side by side
 *   9 hash        `ringfence hash ...` as a whole: an exit code that the manual has
 *
 * The first byte says which. Words of a command line end with a NUL. Lines that `work --lines` reads have a target of
 * their own, fuzz_lines, because they need a store.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "lease_token.h"
#include "manifest.h"
#include "quiet_command.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int ringfence_main(int argc, char **argv); /* cli/main.c */

void setUp(void);
void tearDown(void);

/* Unity is in the test support and wants them. */
void setUp(void)
{
}

void tearDown(void)
{
}

/* --- numbers --- */

static int value_of(char c)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = c == 0 ? NULL : strchr(digits, c);
    return at == NULL ? -1 : at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

/* By hand, with 128 bits. */
static bool read_number(const char *text, uint64_t *number)
{
    unsigned __int128 n = 0;
    int base = 10;
    if (text[0] == '0' && (text[1] | 0x20) == 'x') {
        base = 16;
        text += 2;
    }
    if (*text == 0) {
        return false;
    }
    for (; *text != 0; text++) {
        int d = *text >= '0' && *text <= '9' ? *text - '0' : base == 16 ? value_of(*text) : -1;
        if (d < 0 || n >> 64 != 0) {
            return false;
        }
        n = n * (unsigned)base + (unsigned)d;
    }
    *number = (uint64_t)n;
    return n >> 64 == 0;
}

static void try_number(const char *text)
{
    uint64_t got = 0, meant = 0;
    bool accepted = parse_number(text, &got), good = read_number(text, &meant);
    CLAIM(accepted == good, accepted ? "a number, though it is none" : "a number that is refused");
    CLAIM(!accepted || got == meant, "another number");
}

struct unit {
    const char *name;
    uint64_t factor;
};

/* Digit by digit: the whole part times the unit, and half of the last place at most away. */
static bool read_with_unit(const char *text, const struct unit *units, unsigned __int128 *low,
                           unsigned __int128 *high)
{
    unsigned __int128 whole = 0;
    const char *at = text, *point = NULL;
    for (; *at >= '0' && *at <= '9'; at++) {
        whole = whole * 10 + (unsigned)(*at - '0');
        if (whole >> 64 != 0) {
            return false;
        }
    }
    if (at == text) {
        return false;
    }
    if (at[0] == '.' && at[1] >= '0' && at[1] <= '9') {
        point = ++at;
        at += strspn(at, "0123456789");
    }
    for (; units->name != NULL; units++) {
        if (strcmp(at, units->name) == 0) {
            unsigned __int128 base = whole * units->factor;
            /* The part behind the point, as a fraction of the unit, from its first 15 digits. */
            uint64_t part = 0, scale = 1;
            for (unsigned i = 0; point != NULL && i < 15 && point + i < at; i++) {
                part = part * 10 + (uint64_t)(point[i] - '0');
                scale *= 10;
            }
            unsigned __int128 least = (unsigned __int128)part * units->factor / scale;
            unsigned __int128 most = (unsigned __int128)(part + 1) * units->factor / scale + 1;
            *low = base + (point == NULL ? 0 : least);
            *high = base + (point == NULL ? 0 : most);
            return true;
        }
    }
    return false;
}

static uint64_t try_unit(const char *text, bool size)
{
    static const struct unit times[] = {
        {"ns", 1},          {"us", 1000},         {"ms", 1000000},      {"s", 1000000000},
        {"m", 60000000000}, {"min", 60000000000}, {"h", 3600000000000}, {"d", 86400000000000},
        {NULL, 0}};
    static const struct unit sizes[] = {{"", 1},           {"B", 1},
                                        {"K", 1ull << 10}, {"KiB", 1ull << 10},
                                        {"M", 1ull << 20}, {"MiB", 1ull << 20},
                                        {"G", 1ull << 30}, {"GiB", 1ull << 30},
                                        {"T", 1ull << 40}, {NULL, 0}};
    unsigned __int128 low = 0, high = 0;
    uint64_t got = 0;
    bool accepted = size ? parse_size(text, &got) : parse_duration(text, &got);
    bool good = read_with_unit(text, size ? sizes : times, &low, &high) ||
                (!size && strcmp(text, "0") == 0);
    if (accepted) {
        CLAIM(good, "accepted, though it is neither a duration nor a size");
        CLAIM(got >= low && got <= high, "another duration or size than was written");
    } else {
        CLAIM(!good || high >> 64 != 0, "a duration or size that is refused");
    }
    return got;
}

/* --- bytes --- */

/* -1: not well formed. */
static ssize_t read_bytes(const char *text, size_t len, uint8_t *out)
{
    size_t n = 0;
    bool hex = len >= 4 && memcmp(text, "hex:", 4) == 0;
    if (hex && len % 2 != 0) {
        return -1;
    }
    for (size_t i = hex ? 4 : 0; i < len;) {
        if (!hex && text[i] != '%') {
            out[n++] = (uint8_t)text[i++];
            continue;
        }
        size_t at = hex ? i : i + 1;
        int high = at < len ? value_of(text[at]) : -1;
        int low = at + 1 < len ? value_of(text[at + 1]) : -1;
        if (high < 0 || low < 0) {
            return -1;
        }
        out[n++] = (uint8_t)(high << 4 | low);
        i = at + 2;
    }
    return (ssize_t)n;
}

static bool same_bytes(rf_bytes a, const uint8_t *b, ssize_t len)
{
    return len >= 0 && a.len == (size_t)len && (len == 0 || memcmp(a.data, b, (size_t)len) == 0);
}

static void try_bytes(const char *text, const uint8_t *raw, size_t raw_len)
{
    static uint8_t meant[1 << 16];
    rf_bytes got, again;
    bool accepted = parse_bytes(text, &got);
    ssize_t len = read_bytes(text, strlen(text), meant);
    CLAIM(accepted == (len >= 0), "bytes are read, or refused, wrongly");
    if (accepted) {
        CLAIM(same_bytes(got, meant, len), "other bytes than were written");
        CLAIM(parse_bytes(bytes_text(got), &again) && same_bytes(again, meant, len),
              "bytes that were written can't be read again");
    }
    const char *written = bytes_text((rf_bytes){raw, raw_len});
    CLAIM(strspn(written,
                 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789%._~/:@+=-") ==
              strlen(written),
          "a byte that a shell may take for something else");
    CLAIM(parse_bytes(written, &again) && same_bytes(again, raw, (ssize_t)raw_len),
          "bytes do not come through");
}

/* Fields between separators; -1 if one of them is not well formed, or there are too many. */
#define FIELDS 5
struct fields {
    uint8_t bytes[FIELDS][1 << 14];
    ssize_t len[FIELDS];
    int count;
};

static bool read_fields(const char *text, size_t len, char separator, int most, struct fields *f)
{
    f->count = 0;
    for (size_t at = 0;;) {
        const char *end = memchr(text + at, separator, len - at);
        size_t n = end == NULL ? len - at : (size_t)(end - text) - at;
        if (f->count == most) {
            return false;
        }
        f->len[f->count] = read_bytes(text + at, n, f->bytes[f->count]);
        if (f->len[f->count++] < 0) {
            return false;
        }
        if (end == NULL) {
            return true;
        }
        at += n + 1;
    }
}

static struct fields fields;

static void try_range(const char *text)
{
    rf_spec spec;
    rf_cursor cursor;
    bool accepted = parse_range(text, &spec, &cursor);
    bool good = read_fields(text, strlen(text), ',', FIELDS, &fields) && fields.count >= 2;
    CLAIM(accepted == good, "a range is read, or refused, wrongly");
    const rf_bytes got[FIELDS] = {spec.start, spec.end, spec.metadata, cursor.key, cursor.token};
    for (int i = 0; accepted && i < FIELDS; i++) {
        CLAIM(i < fields.count ? same_bytes(got[i], fields.bytes[i], fields.len[i])
                               : got[i].data == NULL && got[i].len == 0,
              "another range than was written");
    }
}

/* --- leases --- */

static void try_lease(const uint8_t *data, size_t size)
{
    /* One that is right, with the input's bytes in it; then the input's edits. */
    rf_tenant tenant = {{0}};
    rf_lease lease = {0}, found;
    char text[RF_LEASE_TEXT + 64], word[RF_LEASE_TEXT + 64];
    memcpy(&lease, data, size < sizeof(lease) ? size : sizeof(lease));
    memcpy(tenant.bytes, data, size < 32 ? size : 32);
    CLAIM(rf_lease_format(&tenant, &lease, text, RF_LEASE_TEXT) == RF_OK, "a lease in words");
    CLAIM(rf_lease_parse(text, &tenant, &found) == RF_OK &&
              memcmp(&found, &lease, sizeof(lease)) == 0,
          "a lease does not come through");
    size_t at = sizeof(lease) + 8, len = strlen(text);
    strcpy(text + len, "@/var/lib/farm%20a");
    len = strlen(text);
    strcpy(word, text);
    for (; at + 2 <= size && at < sizeof(lease) + 8 + 32; at += 2) {
        word[data[at] % len] = (char)data[at + 1];
    }
    struct lease_token token;
    if (parse_lease(word, &token) == EXIT_DONE) {
        char again[RF_LEASE_TEXT];
        static uint8_t path[4096];
        const char *sign = strchr(word, '@');
        CLAIM(rf_lease_format(&token.tenant, &token.lease, again, sizeof(again)) == RF_OK &&
                  sign != NULL && strlen(again) == (size_t)(sign - word) &&
                  memcmp(again, word, strlen(again)) == 0,
              "a lease that nobody has written");
        ssize_t n = read_bytes(sign + 1, strlen(sign + 1), path);
        CLAIM(n > 0 && strlen(token.store) == (size_t)n &&
                  memcmp(token.store, path, (size_t)n) == 0,
              "a lease of another store");
    } else {
        CLAIM(strcmp(word, text) != 0, "a good lease is refused");
    }
}

/* --- words --- */

#define WORDS 64

static int cut_words(char *text, size_t len, char **words)
{
    int n = 0;
    for (size_t at = 0; at < len && n < WORDS - 1; n++) {
        words[n] = text + at;
        at += strlen(text + at) + 1;
    }
    words[n] = NULL;
    return n;
}

/* A value is what its kind says; the bytes of keys are looked at in 3. */
static void claim_value(const struct given *g)
{
    uint64_t n = 0;
    switch (g->spec->kind) {
    case OPTION_NUMBER:
        CLAIM(read_number(g->text, &n) && n == g->number, "an option with another number");
        break;
    case OPTION_DURATION:
    case OPTION_SIZE:
        CLAIM(try_unit(g->text, g->spec->kind == OPTION_SIZE) == g->number,
              "an option with another duration or size");
        break;
    default:
        break;
    }
}

static void try_words(const uint8_t *data, size_t size, char *text, size_t len)
{
    static struct args args;
    char *words[WORDS];
    unsigned count = 0;
    while (commands[count] != NULL) {
        count++;
    }
    const struct command *c = commands[size == 0 ? 0 : data[0] % count];
    int n = len < 2 ? 0 : cut_words(text + 1, len - 1, words);
    words[n] = NULL;
    if (!args_parse(&args, c, n, words)) {
        return;
    }
    /* Read again from the left. */
    int word = 0, i = 0;
    for (; i < n && strcmp(words[i], "--") != 0; i++) {
        if (words[i][0] != '-' || words[i][1] == 0) {
            CLAIM(word < args.word_count && args.words[word] == words[i], "a word is lost");
            word++;
            continue;
        }
        const struct given *g = NULL;
        for (int k = 0; k < args.given_count; k++) {
            const struct option_spec *s = args.given[k].spec;
            size_t name = strlen(s->name);
            bool is = words[i][1] == '-'
                          ? strncmp(words[i] + 2, s->name, name) == 0 &&
                                (words[i][2 + name] == 0 || words[i][2 + name] == '=')
                          : s->letter != 0 && words[i][1] == s->letter;
            g = is ? &args.given[k] : g;
        }
        CLAIM(g != NULL, "an option is lost");
        bool inside = words[i][1] == '-' ? strchr(words[i], '=') != NULL : words[i][2] != 0;
        if (g->spec->kind == OPTION_FLAG) {
            CLAIM(!inside, "a flag with a value");
        } else if (!inside) {
            CLAIM(++i < n, "an option without its value");
        }
    }
    CLAIM(word == args.word_count, "a word that nobody wrote");
    CLAIM(i == n ? args.rest == NULL && args.rest_count == 0
                 : args.rest == words + i + 1 && args.rest_count == n - i - 1,
          "what is behind --");
    for (int k = 0; k < args.given_count; k++) {
        claim_value(&args.given[k]);
    }
}

/* --- files --- */

static FILE *real_stdin;

/* As standard input. */
static int read_as(const char *option, const char *more, const char *text, size_t len,
                   struct manifest *m)
{
    static struct args args;
    extern const struct command command_run_create;
    char first[32], second[32];
    char *words[] = {first, (char *)"-", second, NULL};
    snprintf(first, sizeof(first), "%s", option);
    snprintf(second, sizeof(second), "%s", more);
    CLAIM(args_parse(&args, &command_run_create, more[0] != 0 ? 3 : 2, words), "options");
    static char empty[1];
    stdin = fmemopen(len == 0 ? empty : (char *)(uintptr_t)text, len == 0 ? 1 : len, "r");
    CLAIM(stdin != NULL, "fmemopen");
    if (len == 0) {
        fgetc(stdin);
    }
    int code = read_manifest(&args, m);
    fclose(stdin);
    stdin = real_stdin;
    return code;
}

static void try_ranges_file(const char *text, size_t len)
{
    struct manifest m;
    int code = read_as("--ranges", "", text, len, &m);
    uint32_t count = 0;
    bool good = true;
    for (size_t at = 0; at < len && good;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t n = end == NULL ? len - at : (size_t)(end - text) - at;
        const char *line = text + at;
        at += n + 1;
        n -= end != NULL && n > 0 && line[n - 1] == '\r';
        if (n == 0 || line[0] == '#') {
            continue;
        }
        good = memchr(line, 0, n) == NULL && read_fields(line, n, '\t', 3, &fields) &&
               fields.count >= 2;
        if (good && code == EXIT_DONE) {
            CLAIM(count < m.count, "a line is lost");
            const rf_spec *s = &m.shards[count].spec;
            const rf_bytes got[3] = {s->start, s->end, s->metadata};
            for (int i = 0; i < 3; i++) {
                CLAIM(i < fields.count ? same_bytes(got[i], fields.bytes[i], fields.len[i])
                                       : got[i].len == 0,
                      "a line means something else");
            }
            CLAIM(m.shards[count].shard == count + 1, "its number");
            count++;
        }
    }
    CLAIM((code == EXIT_DONE) == good, "a file of ranges is read, or refused, wrongly");
    CLAIM(code != EXIT_DONE || count == m.count, "a line that nobody wrote");
}

static void try_keys_file(const char *text, size_t len, bool null)
{
    struct manifest m;
    const char separator = null ? 0 : '\n';
    size_t keys = 0, longest = 0;
    int code = read_as("--keys", null ? "--null" : "", text, len, &m);
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, separator, len - at);
        size_t n = end == NULL ? len - at : (size_t)(end - text) - at;
        keys += n != 0;
        longest = n > longest ? n : longest;
        rf_bytes key = {text + at, n};
        at += n + 1;
        if (n == 0 || code != EXIT_DONE) {
            continue;
        }
        unsigned inside = 0;
        for (uint32_t i = 0; i < m.count; i++) {
            const rf_spec *s = &m.shards[i].spec;
            inside += rf_key_compare(s->start, key) <= 0 &&
                      (s->end.len == 0 || rf_key_compare(key, s->end) < 0);
        }
        CLAIM(inside == 1, "a key is in no shard, or in two");
    }
    CLAIM((code == EXIT_DONE) == (keys != 0 && longest <= RF_KEY_MAX),
          "a file of keys is read, or refused, wrongly");
    for (uint32_t i = 0; code == EXIT_DONE && i < m.count; i++) {
        const rf_spec *s = &m.shards[i].spec;
        CLAIM(m.count <= keys && m.count <= 64, "more shards than keys");
        CLAIM(i == 0 || rf_key_compare(m.shards[i - 1].spec.end, s->start) == 0,
              "shards that are not side by side");
        CLAIM(s->end.len == 0 || rf_key_compare(s->start, s->end) < 0, "an empty shard");
    }
}

/* --- as a whole --- */

static void try_hash(const uint8_t *data, size_t size, char *text, size_t len)
{
    char *words[WORDS + 3] = {(char *)"ringfence", (char *)"hash",
                              size != 0 && data[0] % 2 == 1 ? (char *)"payload"
                                                            : (char *)"split-id"};
    int n = len < 2 ? 0 : cut_words(text + 1, len - 1, words + 3);
    int code = ringfence_main(3 + n, words);
    CLAIM(code >= 0 && code <= EXIT_REFUSED && exit_texts[code] != NULL,
          "an exit code that the manual does not have");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char text[1 << 14];
    if (size == 0 || size >= sizeof(text)) {
        return 0;
    }
    unsigned kind = *data++ % 10;
    size--;
    /* On the heap, and as long as it is: a step beyond is seen. */
    char *word = malloc(size + 1);
    memcpy(word, data, size);
    word[size] = 0;
    switch (kind) {
    case 0:
        try_number(word);
        break;
    case 1:
    case 2:
        try_unit(word, kind == 2);
        break;
    case 3:
        try_bytes(word, data, size);
        break;
    case 4:
        try_range(word);
        break;
    case 5:
        try_lease(data, size);
        break;
    case 6:
        try_words(data, size, word, size);
        break;
    case 7:
        try_ranges_file(word, size);
        break;
    case 8:
        try_keys_file(word, size, size % 2 == 0);
        break;
    default:
        try_hash(data, size, word, size);
    }
    free(word);
    forget_kept();
    return 0;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    real_stdin = stdin;
    CLAIM(freopen("/dev/null", "w", stdout) != NULL, "standard output");
    return 0;
}
