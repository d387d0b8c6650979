#include "text.h"

#include <string.h>

size_t text_character(const uint8_t *t, size_t len)
{
    if (len == 0) {
        return 0;
    }
    if (t[0] < 0x80) {
        return 1;
    }
    size_t need = t[0] >= 0xc2 && t[0] <= 0xdf   ? 2
                  : t[0] >= 0xe0 && t[0] <= 0xef ? 3
                  : t[0] >= 0xf0 && t[0] <= 0xf4 ? 4
                                                 : 0;
    if (need == 0 || len < need) {
        return 0;
    }
    for (size_t i = 1; i < need; i++) {
        if ((t[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool bad = (t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xed && t[1] > 0x9f) ||
               (t[0] == 0xf0 && t[1] < 0x90) || (t[0] == 0xf4 && t[1] > 0x8f);
    return bad ? 0 : need;
}

bool text_is_utf8(const char *text)
{
    size_t len = strlen(text);
    for (size_t at = 0, step; at < len; at += step) {
        step = text_character((const uint8_t *)text + at, len - at);
        if (step == 0) {
            return false;
        }
    }
    return true;
}

void text_json(FILE *out, const uint8_t *text, size_t len)
{
    fputc('"', out);
    for (size_t at = 0; at < len;) {
        size_t step = text_character(text + at, len - at);
        uint8_t c = text[at];
        if (step == 0) {
            fputs("\\ufffd", out);
            step = 1;
        } else if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(out, "\\u%04x", c);
        } else {
            fwrite(text + at, 1, step, out);
        }
        at += step;
    }
    fputc('"', out);
}

void text_uri(FILE *out, const char *path)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    if (path[0] == '/') {
        fputs("file://", out);
    }
    for (const char *c = path; *c != '\0'; c++) {
        if (strchr(plain, *c) != NULL) {
            fputc(*c, out);
        } else {
            fprintf(out, "%%%02X", (unsigned char)*c);
        }
    }
}

/* Characters that make a terminal show what follows from right to left, or end that: with them a
 * name looks like another one. U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069. */
static bool turns_text(const uint8_t *t, size_t len)
{
    return (len == 2 && t[0] == 0xd8 && t[1] == 0x9c) ||
           (len == 3 && t[0] == 0xe2 && t[1] == 0x80 &&
            (t[2] == 0x8e || t[2] == 0x8f || (t[2] >= 0xaa && t[2] <= 0xae))) ||
           (len == 3 && t[0] == 0xe2 && t[1] == 0x81 && t[2] >= 0xa6 && t[2] <= 0xa9);
}

void text_plain(FILE *out, const uint8_t *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t step = text_character(text + at, len - at);
        bool control = step == 1 && (text[at] < 0x20 || text[at] == 0x7f);
        control = control || (step == 2 && text[at] == 0xc2 && text[at + 1] < 0xa0);
        control = control || turns_text(text + at, step);
        if (step == 0 || control) {
            fprintf(out, "\\x%02x", text[at]);
            at++;
        } else {
            fwrite(text + at, 1, step, out);
            at += step;
        }
    }
}
