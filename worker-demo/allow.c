#include "allow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ignore.h"
#include "memory.h"

struct entry {
    enum { ALLOW_PATH, ALLOW_RULE, ALLOW_SECRET, ALLOW_FINGERPRINT } kind;
    char *text;
    uint64_t fingerprint;
};

struct allow {
    struct entry *entries;
    size_t count;
};

static bool read_entry(struct entry *entry, const char *line, size_t len)
{
    static const char *const words[] = {"path:", "rule:", "secret:", "fingerprint:"};
    for (unsigned kind = 0; kind < 4; kind++) {
        size_t word = strlen(words[kind]);
        if (len > word && memcmp(line, words[kind], word) == 0) {
            char *end = NULL;
            entry->kind = kind;
            entry->text = must_alloc(len - word + 1);
            memcpy(entry->text, line + word, len - word);
            entry->fingerprint = strtoull(entry->text, &end, 16);
            return kind != ALLOW_FINGERPRINT || *end == '\0';
        }
    }
    return false;
}

struct allow *allow_read(const char *text, size_t len)
{
    struct allow *allow = must_alloc(sizeof(*allow));
    unsigned number = 0;
    for (size_t at = 0; at < len;) {
        const char *end = memchr(text + at, '\n', len - at);
        size_t line = end == NULL ? len - at : (size_t)(end - text) - at;
        const char *begin = text + at;
        at += line + 1;
        number++;
        while (line > 0 && (begin[line - 1] == '\r' || begin[line - 1] == ' ')) {
            line--;
        }
        if (line == 0 || begin[0] == '#') {
            continue;
        }
        struct entry entry = {0};
        bool good = read_entry(&entry, begin, line);
        allow->entries = must_grow(allow->entries, allow->count + 1, sizeof(entry));
        allow->entries[allow->count++] = entry;
        if (!good) {
            fprintf(stderr, "rf-scan: the allow-list, line %u: not understood\n", number);
            allow_free(allow);
            return NULL;
        }
    }
    return allow;
}

void allow_free(struct allow *allow)
{
    for (size_t i = 0; allow != NULL && i < allow->count; i++) {
        free(allow->entries[i].text);
    }
    if (allow != NULL) {
        free(allow->entries);
    }
    free(allow);
}

bool allow_file(const struct allow *allow, const char *path)
{
    for (size_t i = 0; allow != NULL && i < allow->count; i++) {
        const struct entry *e = &allow->entries[i];
        if (e->kind == ALLOW_PATH && ignore_glob(e->text, path)) {
            return true;
        }
    }
    return false;
}

bool allow_finding(const struct allow *allow, const char *rule, const uint8_t *secret,
                   size_t secret_len, uint64_t fingerprint)
{
    for (size_t i = 0; allow != NULL && i < allow->count; i++) {
        const struct entry *e = &allow->entries[i];
        if ((e->kind == ALLOW_RULE && strcmp(e->text, rule) == 0) ||
            (e->kind == ALLOW_FINGERPRINT && e->fingerprint == fingerprint) ||
            (e->kind == ALLOW_SECRET && strlen(e->text) == secret_len &&
             memcmp(e->text, secret, secret_len) == 0)) {
            return true;
        }
    }
    return false;
}
