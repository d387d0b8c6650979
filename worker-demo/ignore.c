#include "ignore.h"

#include <ctype.h>
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

/* [:alpha:] and its like; -1 if there is no such class. */
static int in_named(const char *name, size_t len, int c)
{
    static const struct {
        const char *name;
        int (*in)(int);
    } known[] = {
        {"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
        {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
        {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strlen(known[i].name) == len && memcmp(known[i].name, name, len) == 0) {
            return known[i].in(c) != 0;
        }
    }
    return -1;
}

/* A class behind its [; returns what is behind its ], or NULL if it is none. */
static const char *in_class(const char *p, char c, bool *in)
{
    bool negated = *p == '!' || *p == '^';
    p += negated;
    *in = false;
    for (bool first = true; *p != '\0' && (*p != ']' || first); first = false) {
        const char *end = p[0] == '[' && p[1] == ':' ? strchr(p + 2, ']') : NULL;
        if (end != NULL && end > p + 2 && end[-1] == ':') {
            int named = in_named(p + 2, (size_t)(end - p) - 3, (unsigned char)c);
            if (named < 0) {
                return NULL;
            }
            *in = *in || named == 1;
            p = end + 1;
            continue;
        }
        char low = *p++;
        if (low == '\\' && (low = *p++) == '\0') {
            return NULL;
        }
        char high = low;
        if (p[0] == '-' && p[1] != ']' && p[1] != '\0') {
            high = *++p;
            if (high == '\\' && (high = *++p) == '\0') {
                return NULL;
            }
            p++;
        }
        *in = *in ||
              ((unsigned char)c >= (unsigned char)low && (unsigned char)c <= (unsigned char)high);
    }
    *in = *in != negated;
    return *p == ']' ? p + 1 : NULL;
}

/* Patterns come from the user, so the worst they can do is to be slow for themselves; `effort` ends
 * even that. */
struct globbing {
    const char *start;
    unsigned effort;
};

static bool glob(struct globbing *g, const char *p, const char *t);

/* p is at a *. Stars between slashes, or between a slash and an end, go over slashes; others do not,
 * however many there are. */
static bool glob_star(struct globbing *g, const char *p, const char *t)
{
    const char *behind = p + strspn(p, "*");
    bool deep =
        behind - p > 1 && (p == g->start || p[-1] == '/') && (*behind == '\0' || *behind == '/');
    if (deep && *behind == '/' && glob(g, behind + 1, t)) {
        return true; /* a ** and its slash may be nothing */
    }
    for (;; t++) {
        if (glob(g, behind, t)) {
            return true;
        }
        if (*t == '\0' || (!deep && *t == '/')) {
            return false;
        }
    }
}

static bool glob(struct globbing *g, const char *p, const char *t)
{
    for (; *p != '\0'; p++, t++) {
        if (g->effort == 0) {
            return false;
        }
        g->effort--;
        if (*p == '*') {
            return glob_star(g, p, t);
        }
        if (*t == '\0') {
            return false;
        }
        if (*p == '[') {
            bool in;
            const char *behind = in_class(p + 1, *t, &in);
            if (behind == NULL || !in || *t == '/') {
                return false;
            }
            p = behind - 1;
            continue;
        }
        if (*p == '?' && *t != '/') {
            continue;
        }
        if (*p == '\\' && *++p == '\0') {
            return false;
        }
        if (*p != *t) {
            return false;
        }
    }
    return *t == '\0';
}

bool ignore_glob(const char *pattern, const char *text)
{
    return glob(&(struct globbing){.start = pattern, .effort = 1000000}, pattern, text);
}

static void add(struct ignore *ignore, const char *line, size_t len)
{
    struct pattern pattern = {0};
    len -= len > 0 && line[len - 1] == '\r';
    size_t kept = 0; /* blanks at the end are not part of it, unless a \ is before them */
    for (size_t i = 0; i < len; i++) {
        bool escaped = line[i] == '\\' && i + 1 < len;
        i += escaped;
        kept = escaped || line[i] != ' ' ? i + 1 : kept;
    }
    len = kept;
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
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* some editors begin files with it */
        text += 3;
        len -= 3;
    }
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
