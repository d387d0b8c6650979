#include "values.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli.h"

#define RING      32
#define RING_TEXT 64

static char *next_text(void)
{
    static char ring[RING][RING_TEXT];
    static unsigned at;
    return ring[at++ % RING];
}

bool parse_number(const char *text, uint64_t *number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    *number = strtoull(text, &end, base);
    return errno == 0 && *end == 0;
}

struct unit {
    const char *name;
    uint64_t factor;
};

#define DECIMALS 18u /* behind the point; more are none too many to write, but not looked at */

/* Digits, perhaps a point and more digits, and a unit of the table. Exact, rounded to the nearest whole. */
static bool parse_with_unit(const char *text, const struct unit *units, uint64_t *value)
{
    uint64_t whole = 0, part = 0, scale = 1;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    for (; *text >= '0' && *text <= '9'; text++) {
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*text - '0'), &whole)) {
            return false;
        }
    }
    if (text[0] == '.' && text[1] >= '0' && text[1] <= '9') {
        text++;
        for (unsigned n = 0; *text >= '0' && *text <= '9'; text++, n++) {
            if (n < DECIMALS) {
                part = part * 10 + (uint64_t)(*text - '0');
                scale *= 10;
            }
        }
    }
    for (; units->name != NULL; units++) {
        if (strcmp(text, units->name) == 0) {
            unsigned __int128 rest = (unsigned __int128)part * units->factor + scale / 2;
            return !__builtin_mul_overflow(whole, units->factor, value) &&
                   !__builtin_add_overflow(*value, (uint64_t)(rest / scale), value);
        }
    }
    return false;
}

bool parse_duration(const char *text, uint64_t *ns)
{
    static const struct unit units[] = {{"ns", 1},
                                        {"us", 1000},
                                        {"ms", 1000000},
                                        {"s", RF_SECOND},
                                        {"m", 60 * RF_SECOND},
                                        {"min", 60 * RF_SECOND},
                                        {"h", 3600 * RF_SECOND},
                                        {"d", 86400 * RF_SECOND},
                                        {NULL, 0}};
    if (strcmp(text, "0") == 0) {
        *ns = 0;
        return true;
    }
    return parse_with_unit(text, units, ns);
}

bool parse_size(const char *text, uint64_t *bytes)
{
    static const struct unit units[] = {{"", 1},
                                        {"B", 1},
                                        {"K", 1024},
                                        {"KiB", 1024},
                                        {"M", 1048576},
                                        {"MiB", 1048576},
                                        {"G", 1073741824},
                                        {"GiB", 1073741824},
                                        {"T", 1099511627776},
                                        {NULL, 0}};
    return parse_with_unit(text, units, bytes);
}

bool is_too_large(const char *text, bool (*parse)(const char *text, uint64_t *value))
{
    uint64_t ignored;
    size_t digits = strspn(text, "0123456789");
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return text[2] != 0 && text[2 + strspn(text + 2, "0123456789abcdefABCDEF")] == 0;
    }
    return digits != 0 && parse(keep_format("1%s", text + digits), &ignored);
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool parse_bytes_at(const char *text, size_t len, uint8_t *out, size_t room, size_t *used)
{
    size_t n = 0;
    bool hex = len >= 4 && memcmp(text, "hex:", 4) == 0;
    if (hex && len % 2 != 0) {
        return false;
    }
    for (size_t i = hex ? 4 : 0; i < len; n++) {
        if (n == room) {
            return false;
        }
        if (hex || text[i] == '%') {
            size_t at = hex ? i : i + 1;
            int high = at + 1 < len ? hex_digit(text[at]) : -1;
            int low = at + 1 < len ? hex_digit(text[at + 1]) : -1;
            if (high < 0 || low < 0) {
                return false;
            }
            out[n] = (uint8_t)(high * 16 + low);
            i = at + 2;
        } else {
            out[n] = (uint8_t)text[i++];
        }
    }
    *used = n;
    return true;
}

bool parse_bytes(const char *text, rf_bytes *bytes)
{
    size_t len = strlen(text), used;
    uint8_t *out = keep_bytes(len + 1);
    if (!parse_bytes_at(text, len, out, len, &used)) {
        return false;
    }
    *bytes = (rf_bytes){.data = out, .len = used};
    return true;
}

static bool stands_for_itself(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("._~/:@+=-", c) != NULL);
}

size_t encode_bytes(rf_bytes bytes, char *out)
{
    static const char digits[] = "0123456789ABCDEF";
    const uint8_t *from = bytes.data;
    size_t n = 0;
    bool looks_hex = bytes.len >= 4 && memcmp(from, "hex:", 4) == 0;
    for (size_t i = 0; i < bytes.len; i++) {
        if (stands_for_itself(from[i]) && !(looks_hex && i == 0)) {
            out[n++] = (char)from[i];
        } else {
            out[n++] = '%';
            out[n++] = digits[from[i] >> 4];
            out[n++] = digits[from[i] & 15];
        }
    }
    out[n] = 0;
    return n;
}

const char *shell_word(const char *text)
{
    const char *c = text;
    while (stands_for_itself((uint8_t)*c) && *c != '~') {
        c++;
    }
    if (*c == 0 && c != text) {
        return text;
    }
    char *word = keep_bytes(4 * strlen(text) + 3), *to = word;
    *to++ = '\'';
    for (c = text; *c != 0; c++) {
        to = *c == '\'' ? stpcpy(to, "'\\''") : (*to = *c, to + 1);
    }
    *to = '\'';
    return word;
}

const char *bytes_text(rf_bytes bytes)
{
    char *out = keep_bytes(3 * bytes.len + 1);
    encode_bytes(bytes, out);
    return out;
}

const char *id_text(uint64_t id)
{
    char *out = next_text();
    snprintf(out, RING_TEXT, id & RF_DERIVED_BIT ? "0x%016" PRIx64 : "%" PRIu64, id);
    return out;
}

const char *duration_text(uint64_t ns)
{
    char *out = next_text();
    uint64_t s = ns / RF_SECOND;
    if (ns < 1000) {
        snprintf(out, RING_TEXT, "%" PRIu64 "ns", ns);
    } else if (ns < 1000000) {
        snprintf(out, RING_TEXT, "%.3gus", (double)ns / 1e3);
    } else if (ns < 999500000) {
        snprintf(out, RING_TEXT, "%.3gms", (double)ns / 1e6);
    } else if (s < 60) {
        snprintf(out, RING_TEXT, "%.3gs", (double)ns / 1e9);
    } else if (s < 3600) {
        snprintf(out, RING_TEXT, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(out, RING_TEXT, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    } else {
        snprintf(out, RING_TEXT, "%" PRIu64 "d%" PRIu64 "h", s / 86400, s / 3600 % 24);
    }
    return out;
}

const char *size_text(uint64_t bytes)
{
    static const char units[] = "BKMGTPE";
    char *out = next_text();
    double value = (double)bytes;
    unsigned unit = 0;
    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    if (unit == 0) {
        snprintf(out, RING_TEXT, "%" PRIu64 " B", bytes);
    } else {
        snprintf(out, RING_TEXT, "%.1f %ciB", value, units[unit]);
    }
    return out;
}

const char *time_text(uint64_t store_ns)
{
    char *out = next_text();
    time_t seconds = (time_t)(store_ns / RF_SECOND);
    struct tm tm;
    if (localtime_r(&seconds, &tm) == NULL ||
        strftime(out, RING_TEXT, "%Y-%m-%d %H:%M:%S", &tm) == 0) {
        snprintf(out, RING_TEXT, "%" PRIu64 "ns", store_ns);
    }
    return out;
}

const char *count_text(uint64_t n)
{
    char digits[32], *out = next_text(), *to = out;
    int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
    for (int i = 0; i < len; i++) {
        *to++ = digits[i];
        if ((len - i) % 3 == 1 && i + 1 < len) {
            *to++ = ',';
        }
    }
    *to = 0;
    return out;
}
