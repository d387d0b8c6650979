#include "found.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The value behind "name": in a line of rf-scan's, as bytes; NULL if it is not there. Our own
 * output: no blanks, and strings in it are escaped, so that a quote ends them. */
static const char *value_of(const char *line, const char *name)
{
    char word[64];
    snprintf(word, sizeof(word), "\"%s\":", name);
    const char *at = strstr(line, word);
    return at == NULL ? NULL : at + strlen(word);
}

static uint64_t number_of(const char *line, const char *name)
{
    const char *at = value_of(line, name);
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

static unsigned hex_digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
}

/* A JSON string of ours: \" \\ and \u00XX. */
static char *string_of(const char *line, const char *name)
{
    const char *at = value_of(line, name);
    if (at == NULL || *at++ != '"') {
        return NULL;
    }
    char *out = malloc(strlen(at) + 1), *to = out;
    for (; out != NULL && *at != '"' && *at != '\0'; at++) {
        if (*at == '\\' && at[1] == 'u') {
            *to++ = (char)(hex_digit(at[4]) << 4 | hex_digit(at[5]));
            at += 5;
        } else {
            at += *at == '\\';
            *to++ = *at;
        }
    }
    if (out != NULL) {
        *to = '\0';
    }
    return out;
}

/* A path that is no UTF-8 comes in hex too. */
static char *path_of(const char *line)
{
    char *hex = string_of(line, "path_hex");
    if (hex == NULL) {
        return string_of(line, "path");
    }
    size_t len = strlen(hex) / 2;
    for (size_t i = 0; i < len; i++) {
        hex[i] = (char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    }
    hex[len] = '\0';
    return hex;
}

static bool add(struct found *f, const char *line, const char *prefix)
{
    char *path = path_of(line), *rule = string_of(line, "rule");
    struct planted *list = realloc(f->list, (f->count + 1) * sizeof(*list));
    size_t cut = strlen(prefix);
    if (path == NULL || rule == NULL || list == NULL) {
        free(path);
        free(rule);
        return false;
    }
    if (strncmp(path, prefix, cut) == 0 && path[cut] == '/') {
        memmove(path, path + cut + 1, strlen(path + cut + 1) + 1);
    }
    f->list = list;
    list[f->count++] =
        (struct planted){.path = path, .rule = rule, .start = number_of(line, "start")};
    return true;
}

bool found_read(struct found *f, const char *file, const char *prefix)
{
    *f = (struct found){0};
    FILE *in = fopen(file, "re");
    char *line = NULL;
    size_t room = 0;
    bool good = in != NULL;
    while (good && getline(&line, &room, in) > 0) {
        if (strncmp(line, "{\"type\":\"finding\"", 17) == 0) {
            good = add(f, line, prefix);
        } else if (strncmp(line, "{\"type\":\"summary\"", 17) == 0) {
            f->has_summary = true;
            f->files = number_of(line, "files");
            f->bytes = number_of(line, "bytes");
            f->restarts = number_of(line, "restarts");
            f->splits = number_of(line, "splits");
            f->refused = number_of(line, "refused");
            f->left_out = number_of(line, "left_out_bytes");
            f->unreadable = number_of(line, "unreadable");
            f->vanished = number_of(line, "vanished");
            f->set_aside = number_of(line, "set_aside");
            f->binary = number_of(line, "binary");
            f->known = number_of(line, "known");
            f->allowed = number_of(line, "allowed");
            const char *resumed = value_of(line, "resumed");
            f->resumed = resumed != NULL && *resumed == 't';
        }
    }
    free(line);
    if (in != NULL) {
        fclose(in);
    }
    if (f->count > 1) {
        qsort(f->list, f->count, sizeof(*f->list), corpus_order);
    }
    return good && f->has_summary;
}

void found_free(struct found *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->list[i].path);
        free((void *)(uintptr_t)f->list[i].rule);
    }
    free(f->list);
    *f = (struct found){0};
}

struct reckoning found_reckon(const struct found *found, const struct corpus *corpus)
{
    struct reckoning r = {0};
    size_t f = 0, p = 0;
    while (f < found->count || p < corpus->count) {
        int order = f == found->count    ? 1
                    : p == corpus->count ? -1
                                         : corpus_order(&found->list[f], &corpus->planted[p]);
        if (order == 0) {
            r.right++;
            p++;
            for (f++; f < found->count && corpus_order(&found->list[f - 1], &found->list[f]) == 0;
                 f++) {
                r.twice++;
            }
        } else if (order > 0) {
            r.first_lost = r.lost++ == 0 ? &corpus->planted[p] : r.first_lost;
            p++;
        } else {
            r.first_wrong = r.wrong++ == 0 ? &found->list[f] : r.first_wrong;
            f++;
        }
    }
    return r;
}

static void remove_below(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        if (unlinkat(dirfd(dir), entry->d_name, 0) != 0) {
            remove_below(dirfd(dir), entry->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    unlinkat(parent, name, AT_REMOVEDIR);
}

void remove_tree(const char *dir)
{
    remove_below(AT_FDCWD, dir);
}
