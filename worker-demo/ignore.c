#include "ignore.h"

#include <stdlib.h>
#include <string.h>

#include "memory.h"

struct pattern {
    char *text;
    bool negated;
    bool only_directories;
    bool anchored; /* to the directory of its file; otherwise to any name below it */
};

struct ignore {
    struct ignore *above;
    struct pattern *patterns;
    size_t count;
    size_t base;
};

/* A class behind its [; returns what is behind its ], or NULL if it has none. */
static const char *in_class(const char *p, char c, bool *in)
{
    bool negated = *p == '!' || *p == '^';
    p += negated;
    *in = false;
    for (bool first = true; *p != '\0' && (*p != ']' || first); first = false) {
        char low = *p++;
        if (low == '\\' && *p != '\0') {
            low = *p++;
        }
        char high = low;
        if (p[0] == '-' && p[1] != ']' && p[1] != '\0') {
            high = p[1];
            p += 2;
        }
        *in = *in ||
              ((unsigned char)c >= (unsigned char)low && (unsigned char)c <= (unsigned char)high);
    }
    *in = *in != negated;
    return *p == ']' ? p + 1 : NULL;
}

/* Patterns come from the user, so the worst they can do is to be slow for themselves; `effort` ends
 * even that. */
static bool glob(const char *p, const char *t, unsigned *effort)
{
    for (; *p != '\0'; p++, t++) {
        if (*effort == 0) {
            return false;
        }
        --*effort;
        if (*p == '*') {
            bool deep = p[1] == '*';
            while (*p == '*') {
                p++;
            }
            if (deep && *p == '/' && glob(p + 1, t, effort)) {
                return true; /* a ** and its slash may be nothing */
            }
            for (;; t++) {
                if (glob(p, t, effort)) {
                    return true;
                }
                if (*t == '\0' || (!deep && *t == '/')) {
                    return false;
                }
            }
        }
        if (*t == '\0') {
            return false;
        }
        if (*p == '[') {
            bool in;
            const char *behind = in_class(p + 1, *t, &in);
            if (behind != NULL) {
                if (!in || *t == '/') {
                    return false;
                }
                p = behind - 1;
                continue;
            }
        }
        if (*p == '?' && *t != '/') {
            continue;
        }
        if (*p == '\\' && p[1] != '\0') {
            p++;
        }
        if (*p != *t) {
            return false;
        }
    }
    return *t == '\0';
}

bool ignore_glob(const char *pattern, const char *text)
{
    unsigned effort = 1000000;
    return glob(pattern, text, &effort);
}

static void add(struct ignore *ignore, const char *line, size_t len)
{
    struct pattern pattern = {0};
    while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' ')) {
        len--;
    }
    if (len == 0 || line[0] == '#') {
        return;
    }
    if (line[0] == '!') {
        pattern.negated = true;
        line++;
        len--;
    }
    if (len > 0 && line[len - 1] == '/') {
        pattern.only_directories = true;
        len--;
    }
    pattern.anchored = memchr(line, '/', len) != NULL;
    if (len > 0 && line[0] == '/') {
        line++;
        len--;
    }
    if (len == 0) {
        return;
    }
    pattern.text = must_alloc(len + 1);
    memcpy(pattern.text, line, len);
    ignore->patterns = must_grow(ignore->patterns, ignore->count + 1, sizeof(pattern));
    ignore->patterns[ignore->count++] = pattern;
}

struct ignore *ignore_push(struct ignore *above, const char *text, size_t len, size_t base)
{
    struct ignore *ignore = must_alloc(sizeof(*ignore));
    ignore->above = above;
    ignore->base = base;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end == NULL ? len - at : (size_t)(end - text) - at;
        add(ignore, text + at, line);
        at += line + 1;
    }
    return ignore;
}

struct ignore *ignore_pop(struct ignore *ignore)
{
    struct ignore *above = ignore->above;
    for (size_t i = 0; i < ignore->count; i++) {
        free(ignore->patterns[i].text);
    }
    free(ignore->patterns);
    free(ignore);
    return above;
}

bool ignore_match(const struct ignore *ignore, const char *path, bool is_directory)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    for (; ignore != NULL; ignore = ignore->above) {
        for (size_t i = ignore->count; i-- > 0;) {
            const struct pattern *p = &ignore->patterns[i];
            if ((is_directory || !p->only_directories) &&
                ignore_glob(p->text, p->anchored ? path + ignore->base : name)) {
                return !p->negated;
            }
        }
    }
    return false;
}
