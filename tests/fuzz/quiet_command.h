/*
 * What the fuzz targets of the command are linked with in place of its own (--wrap): nothing is printed, and memory
 * lasts for one input. For one file of a program.
 */
#ifndef RF_FUZZ_QUIET_COMMAND_H
#define RF_FUZZ_QUIET_COMMAND_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int __wrap_cli_fail(enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_cli_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void *__wrap_keep_bytes(size_t size);
char *__wrap_keep_text(const char *text);
char *__wrap_keep_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void accuse(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

#define CLAIM(truth, what)                                                                         \
    do {                                                                                           \
        if (!(truth)) {                                                                            \
            accuse(what);                                                                          \
        }                                                                                          \
    } while (0)

/* --- in place of the command's own --- */

static char said[8192];

int __wrap_cli_fail(enum exit_code code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof(said), format, args);
    va_end(args);
    return (int)code;
}

void __wrap_cli_warn(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof(said), format, args);
    va_end(args);
}

static void **kept;
static size_t kept_count, kept_room;

void *__wrap_keep_bytes(size_t size)
{
    if (kept_count == kept_room) {
        kept_room = kept_room == 0 ? 64 : 2 * kept_room;
        kept = realloc(kept, kept_room * sizeof(*kept));
    }
    CLAIM(size <= 1u << 28, "asked for more memory than any input is worth");
    void *at = calloc(1, size);
    CLAIM(kept != NULL && at != NULL, "memory");
    return kept[kept_count++] = at;
}

char *__wrap_keep_text(const char *text)
{
    return strcpy(__wrap_keep_bytes(strlen(text) + 1), text);
}

char *__wrap_keep_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *text;
    CLAIM(vasprintf(&text, format, args) >= 0, "memory");
    va_end(args);
    char *copy = __wrap_keep_text(text);
    free(text);
    return copy;
}

static void forget_kept(void)
{
    while (kept_count > 0) {
        free(kept[--kept_count]);
    }
}

#endif
