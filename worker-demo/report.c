#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "text.h"
#include "whole.h"
#include "worker.h"

const char *park_reason_text(rf_park_reason reason)
{
    static const char *const texts[] = {"permission denied", "not found", "its cursor is damaged",
                                        "too many workers died of it", "other"};
    return (unsigned)reason < 5 ? texts[reason] : "unknown";
}

static const char *unreadable_text(const struct record *r)
{
    return r->number == UNREADABLE_RULE ? "a rule needs too long for what is in it"
                                        : strerror((int)r->number);
}

/* --- secrets --- */

/* A secret is nowhere but in its file. To show it, it is read from there again. Returns its length,
 * or 0 if the file has changed. */
static size_t reveal(const struct farm *farm, const struct record *r, uint8_t *out, size_t out_size)
{
    const struct items *items = &farm->items;
    const struct item *item = &items->list[r->item];
    int root = open(farm->options->paths[item->root], O_PATH | O_DIRECTORY | O_CLOEXEC);
    int fd = item_open(items, r->item, root);
    ssize_t len = -1;
    if (fd >= 0 && r->secret_len <= out_size) {
        len = pread(fd, out, r->secret_len, (off_t)r->secret_start);
    }
    if (fd >= 0) {
        close(fd);
    }
    if (root >= 0) {
        close(root);
    }
    return len == (ssize_t)r->secret_len &&
                   finding_fingerprint(farm->rules.list[r->number].id, item_path(items, r->item),
                                       out, (size_t)len) == r->fingerprint
               ? (size_t)len
               : 0;
}

struct shown {
    uint8_t text[RULE_WIDTH_MAX];
    size_t len;
};

static void show_secret(const struct farm *farm, const struct record *r, struct shown *shown)
{
    shown->len = farm->options->reveal ? reveal(farm, r, shown->text, sizeof(shown->text)) : 0;
    if (shown->len == 0) {
        shown->len = strnlen(r->masked, sizeof(r->masked));
        memcpy(shown->text, r->masked, shown->len);
    }
}

/* --- baseline --- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Every "fingerprint": "0123456789abcdef" in the text; both of our formats write them so. */
static size_t read_fingerprints(const char *text, uint64_t **out)
{
    static const char word[] = "\"fingerprint\"";
    size_t count = 0;
    *out = NULL;
    for (const char *at = text; (at = strstr(at, word)) != NULL;) {
        at += sizeof(word) - 1;
        at += strspn(at, " \t\r\n:\"");
        char *end;
        uint64_t value = strtoull(at, &end, 16);
        if (end == at + 16) {
            *out = must_grow(*out, count + 1, sizeof(**out));
            (*out)[count++] = value;
        }
    }
    return count;
}

static const char *past_blanks(const char *text)
{
    return text + strspn(text, " \t\r\n");
}

/* Behind the object that begins at text; NULL if it is not closed, or none. */
static const char *past_object(const char *text)
{
    size_t depth = 0;
    bool quoted = false;
    if (*text != '{') {
        return NULL;
    }
    for (const char *at = text; *at != '\0'; at++) {
        if (quoted) {
            quoted = *at != '"';
            at += *at == '\\' && at[1] != '\0';
        } else if (*at == '"') {
            quoted = true;
        } else if (*at == '{' || *at == '[') {
            depth++;
        } else if ((*at == '}' || *at == ']') && --depth == 0) {
            return at + 1;
        }
    }
    return NULL;
}

/* Whether the text begins with these words, whatever blanks lie between them. */
static bool begins_with(const char *text, const char *const *words)
{
    for (; *words != NULL; words++) {
        text = past_blanks(text);
        if (strncmp(text, *words, strlen(*words)) != 0) {
            return false;
        }
        text += strlen(*words);
    }
    return true;
}

/* A report that was cut would pass for one that knows less. So it has to end as reports do: JSON lines
 * with the summary, SARIF with the bracket that closes it. */
static bool is_whole(const char *text)
{
    static const char *const summary[] = {"{", "\"type\"", ":", "\"summary\"", NULL};
    const char *last = past_blanks(text);
    const char *end = past_object(last);
    bool alone = true;
    for (; end != NULL && *past_blanks(end) != '\0'; end = past_object(last)) {
        last = past_blanks(end);
        alone = false;
    }
    return end != NULL &&
           (begins_with(last, summary) || (alone && strstr(last, "\"runs\"") != NULL));
}

bool baseline_read(struct baseline *baseline, const char *file)
{
    size_t len;
    char *text = whole_read(file, &len);
    if (text == NULL) {
        return false;
    }
    bool good = strlen(text) == len && is_whole(text);
    if (good) {
        baseline->count = read_fingerprints(text, &baseline->known);
    } else {
        fprintf(stderr,
                "rf-scan: %s: not a whole report of rf-scan (--json or --sarif), so no baseline\n",
                file);
    }
    free(text);
    if (baseline->count > 1) {
        qsort(baseline->known, baseline->count, sizeof(*baseline->known), by_number);
    }
    return good;
}

void baseline_free(struct baseline *baseline)
{
    free(baseline->known);
}

void report_leave_out(struct report *report, const struct baseline *baseline)
{
    size_t kept = 0;
    for (size_t i = 0; i < report->count; i++) {
        struct record *r = &report->findings[i];
        if (baseline->count > 0 && bsearch(&r->fingerprint, baseline->known, baseline->count,
                                           sizeof(*baseline->known), by_number) != NULL) {
            report->known++;
        } else {
            report->findings[kept++] = *r;
        }
    }
    report->count = kept;
}

/* --- JSON lines --- */

static void json_path(FILE *out, const char *path)
{
    fputs("\"path\":", out);
    text_json(out, (const uint8_t *)path, strlen(path));
    if (!text_is_utf8(path)) {
        fputs(",\"path_hex\":\"", out);
        for (const char *c = path; *c != '\0'; c++) {
            fprintf(out, "%02x", (unsigned char)*c);
        }
        fputc('"', out);
    }
}

static void write_json(const struct report *report, const struct farm *farm, FILE *out)
{
    static struct shown shown;
    for (size_t i = 0; i < report->count; i++) {
        const struct record *r = &report->findings[i];
        const struct rule *rule = &farm->rules.list[r->number];
        show_secret(farm, r, &shown);
        fprintf(out, "{\"type\":\"finding\",\"rule\":\"%s\",\"level\":\"%s\",", rule->id,
                rule->warning ? "warning" : "error");
        json_path(out, item_path(&farm->items, r->item));
        fprintf(out, ",\"line\":%" PRIu64, r->line);
        if (r->column != 0) {
            fprintf(out, ",\"column\":%u", r->column);
        }
        fprintf(out,
                ",\"start\":%" PRIu64 ",\"end\":%" PRIu64 ",\"secret_start\":%" PRIu64
                ",\"secret_end\":%" PRIu64 ",\"secret\":",
                r->start, r->end, r->secret_start, r->secret_start + r->secret_len);
        text_json(out, shown.text, shown.len);
        fprintf(out, ",\"fingerprint\":\"%016" PRIx64 "\"}\n", r->fingerprint);
    }
    for (size_t i = 0; i < report->unreadable_count; i++) {
        const struct record *r = &report->unreadable[i];
        fputs("{\"type\":\"unreadable\",", out);
        json_path(out, item_path(&farm->items, r->item));
        fprintf(out, ",\"error\":\"%s\"}\n", unreadable_text(r));
    }
    for (size_t i = 0; i < report->parked_count; i++) {
        const struct parked *p = &report->parked[i];
        fputs("{\"type\":\"set_aside\",", out);
        json_path(out, item_path(&farm->items, p->at));
        fprintf(out, ",\"items\":%" PRIu64 ",\"reason\":\"%s\"}\n", p->end - p->at,
                park_reason_text(p->reason));
    }
    fprintf(out,
            "{\"type\":\"summary\",\"findings\":%zu,\"known\":%" PRIu64 ",\"allowed\":%" PRIu64
            ",\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"binary\":%" PRIu64
            ",\"vanished\":%" PRIu64 ",\"unreadable\":%zu,\"set_aside\":%zu,\"restarts\":%" PRIu64
            ",\"splits\":%" PRIu64 ",\"refused\":%" PRIu64 ",\"left_out_bytes\":%" PRIu64
            ",\"resumed\":%s,\"seconds\":%.3f}\n",
            report->count, report->known, report->allowed, report->files, report->bytes,
            report->binary, report->vanished, report->unreadable_count, report->parked_count,
            report->restarts, report->splits, report->refused, report->left_out,
            report->resumed ? "true" : "false", report->seconds);
}

/* --- SARIF 2.1.0 --- */

static void sarif_string(FILE *out, const char *text)
{
    text_json(out, (const uint8_t *)text, strlen(text));
}

static void sarif_rules(const struct farm *farm, FILE *out)
{
    for (uint32_t i = 0; i < farm->rules.count; i++) {
        const struct rule *rule = &farm->rules.list[i];
        fprintf(out, "%s\n          {\"id\": \"%s\", \"shortDescription\": {\"text\": ",
                i == 0 ? "" : ",", rule->id);
        sarif_string(out, rule->name);
        fprintf(out, "}, \"defaultConfiguration\": {\"level\": \"%s\"}}",
                rule->warning ? "warning" : "error");
    }
}

static void sarif_location(FILE *out, const char *path)
{
    fputs("{\"physicalLocation\": {\"artifactLocation\": {\"uri\": \"", out);
    text_uri(out, path);
    fputs("\"}", out);
}

static void sarif_result(const struct farm *farm, const struct record *r, FILE *out)
{
    static struct shown shown;
    const struct rule *rule = &farm->rules.list[r->number];
    show_secret(farm, r, &shown);
    fprintf(out,
            "        {\"ruleId\": \"%s\", \"ruleIndex\": %u, \"level\": \"%s\",\n"
            "         \"message\": {\"text\": ",
            rule->id, r->number, rule->warning ? "warning" : "error");
    char message[2 * RULE_WIDTH_MAX];
    int len = snprintf(message, sizeof(message), "%s: %.*s", rule->name, (int)shown.len,
                       (const char *)shown.text);
    size_t most = sizeof(message) - 1; /* rules of one's own may have any name */
    text_json(out, (const uint8_t *)message, (size_t)len < most ? (size_t)len : most);
    fputs("},\n         \"locations\": [", out);
    sarif_location(out, item_path(&farm->items, r->item));
    fprintf(out, ", \"region\": {\"startLine\": %" PRIu64, r->line);
    if (r->column != 0) {
        fprintf(out, ", \"startColumn\": %u", r->column);
    }
    fprintf(out,
            ", \"byteOffset\": %" PRIu64 ", \"byteLength\": %u}}}],\n"
            "         \"partialFingerprints\": {\"fingerprint\": \"%016" PRIx64 "\"}}",
            r->secret_start, r->secret_len, r->fingerprint);
}

static void write_sarif(const struct report *report, const struct farm *farm, FILE *out)
{
    bool good = report->unreadable_count == 0 && report->parked_count == 0;
    fprintf(
        out,
        "{\n"
        "  \"version\": \"2.1.0\",\n"
        "  \"$schema\": \"https://json.schemastore.org/sarif-2.1.0.json\",\n"
        "  \"runs\": [\n"
        "    {\n"
        "      \"tool\": {\"driver\": {\"name\": \"rf-scan\", \"version\": \"%s\", \"rules\": [",
        rf_version_string());
    sarif_rules(farm, out);
    fprintf(out,
            "]}},\n"
            "      \"columnKind\": \"unicodeCodePoints\",\n"
            "      \"invocations\": [{\"executionSuccessful\": %s, "
            "\"toolExecutionNotifications\": [",
            good ? "true" : "false");
    const char *comma = "";
    for (size_t i = 0; i < report->unreadable_count; i++, comma = ",") {
        const struct record *r = &report->unreadable[i];
        fprintf(out, "%s\n        {\"level\": \"error\", \"message\": {\"text\": ", comma);
        sarif_string(out, unreadable_text(r));
        fputs("}, \"locations\": [", out);
        sarif_location(out, item_path(&farm->items, r->item));
        fputs("}}]}", out);
    }
    for (size_t i = 0; i < report->parked_count; i++, comma = ",") {
        const struct parked *p = &report->parked[i];
        fprintf(
            out,
            "%s\n        {\"level\": \"error\", \"message\": {\"text\": \"set aside with %" PRIu64
            " files or parts: %s\"}, \"locations\": [",
            comma, p->end - p->at, park_reason_text(p->reason));
        sarif_location(out, item_path(&farm->items, p->at));
        fputs("}}]}", out);
    }
    fputs("]}],\n      \"results\": [\n", out);
    for (size_t i = 0; i < report->count; i++) {
        sarif_result(farm, &report->findings[i], out);
        fputs(i + 1 < report->count ? ",\n" : "\n", out);
    }
    fputs("      ]\n    }\n  ]\n}\n", out);
}

/* --- the table --- */

static void write_table(const struct report *report, const struct farm *farm, FILE *out)
{
    static struct shown shown;
    for (size_t i = 0; i < report->count; i++) {
        const struct record *r = &report->findings[i];
        const char *path = item_path(&farm->items, r->item);
        text_plain(out, (const uint8_t *)path, strlen(path));
        if (r->column != 0) {
            fprintf(out, ":%" PRIu64 ":%u", r->line, r->column);
        } else {
            fprintf(out, ":%" PRIu64, r->line);
        }
        show_secret(farm, r, &shown);
        fprintf(out, "  %-22s ", farm->rules.list[r->number].id);
        text_plain(out, shown.text, shown.len);
        fputc('\n', out);
    }
    for (size_t i = 0; i < report->unreadable_count; i++) {
        const struct record *r = &report->unreadable[i];
        const char *path = item_path(&farm->items, r->item);
        text_plain(out, (const uint8_t *)path, strlen(path));
        fprintf(out, ": could not be read: %s\n", unreadable_text(r));
    }
    for (size_t i = 0; i < report->parked_count; i++) {
        const struct parked *p = &report->parked[i];
        const char *path = item_path(&farm->items, p->at);
        text_plain(out, (const uint8_t *)path, strlen(path));
        fprintf(out,
                ": set aside with %" PRIu64 " files or parts: %s; the same command tries again\n",
                p->end - p->at, park_reason_text(p->reason));
    }
    fprintf(out, "%s%zu %s in %" PRIu64 " %s, %.1f MB, %.1f s",
            report->count + report->unreadable_count + report->parked_count > 0 ? "\n" : "",
            report->count, report->count == 1 ? "finding" : "findings", report->files,
            report->files == 1 ? "file" : "files", (double)report->bytes / 1e6, report->seconds);
    const struct {
        uint64_t count;
        const char *what;
    } more[] = {
        {report->known, "known from the baseline"}, {report->allowed, "allowed"},
        {report->binary, "binary files left out"},  {report->vanished, "files vanished"},
        {report->unreadable_count, "unreadable"},   {report->restarts, "restarts of workers"},
    };
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (more[i].count > 0) {
            fprintf(out, "; %" PRIu64 " %s", more[i].count, more[i].what);
        }
    }
    fputc('\n', out);
}

/* --- all of it --- */

typedef void writer(const struct report *report, const struct farm *farm, FILE *out);

/* A link, a pipe or a device stays what it is: it is written to, not replaced. */
static bool is_written_in_place(const char *file)
{
    struct stat st;
    return lstat(file, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* Beside the file, so that it can take its name. */
static int open_temporary(const char *file, char *name, size_t name_size)
{
    snprintf(name, name_size, "%s.new-%d", file, (int)getpid());
    return open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

/* Whether it will be possible to write to a file, as far as it can be known before. */
static bool can_write_to(const char *file)
{
    char temporary[4096];
    struct stat st;
    if (file == NULL || strcmp(file, "-") == 0) {
        return true;
    }
    if (is_written_in_place(file)) {
        if (access(file, W_OK) == 0) {
            return true;
        }
        fprintf(stderr, "rf-scan: %s: %s\n", file, strerror(errno));
        return false;
    }
    bool directory = stat(file, &st) == 0 && S_ISDIR(st.st_mode);
    int fd = directory ? -1 : open_temporary(file, temporary, sizeof(temporary));
    if (fd < 0) {
        fprintf(stderr, "rf-scan: %s: %s\n", file, strerror(directory ? EISDIR : errno));
        return false;
    }
    close(fd);
    unlink(temporary);
    return true;
}

bool report_can_write(const struct options *options)
{
    if (options->json != NULL && options->sarif != NULL && strcmp(options->json, "-") != 0 &&
        strcmp(options->json, options->sarif) == 0 && !is_written_in_place(options->json)) {
        fprintf(stderr, "rf-scan: --json and --sarif can't both go to %s\n", options->json);
        return false;
    }
    return can_write_to(options->json) && can_write_to(options->sarif);
}

static bool sync_name(const char *file)
{
    char *copy = must_copy(file);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0) {
        close(fd);
    }
    free(copy);
    return good;
}

/* A plain file is there whole or not at all. */
static bool write_to(const char *file, writer *write, const struct report *report,
                     const struct farm *farm)
{
    char temporary[4096];
    bool standard = strcmp(file, "-") == 0;
    bool in_place = !standard && is_written_in_place(file);
    int fd = standard   ? -1
             : in_place ? open(file, O_WRONLY | O_TRUNC | O_CLOEXEC)
                        : open_temporary(file, temporary, sizeof(temporary));
    FILE *out = standard ? stdout : fd < 0 ? NULL : fdopen(fd, "w");
    if (out == NULL) {
        fprintf(stderr, "rf-scan: %s: %s\n", file, strerror(errno));
        return false;
    }
    write(report, farm, out);
    bool good = fflush(out) == 0 && ferror(out) == 0;
    bool durable = farm->options->durable && !standard && !in_place;
    good = good && (!durable || fsync(fd) == 0);
    if (!standard) {
        good = fclose(out) == 0 && good;
        good = good && (in_place || rename(temporary, file) == 0);
        good = good && (!durable || sync_name(file)); /* before the state is removed */
    }
    if (!good) {
        fprintf(stderr, "rf-scan: %s: %s\n", standard ? "standard output" : file, strerror(errno));
        if (!standard && !in_place) {
            unlink(temporary);
        }
    }
    return good;
}

bool report_write(const struct report *report, const struct farm *farm)
{
    const struct options *o = farm->options;
    bool table = !o->quiet && (o->json == NULL || strcmp(o->json, "-") != 0) &&
                 (o->sarif == NULL || strcmp(o->sarif, "-") != 0);
    bool good = o->json == NULL || write_to(o->json, write_json, report, farm);
    good = (o->sarif == NULL || write_to(o->sarif, write_sarif, report, farm)) && good;
    good = (!table || write_to("-", write_table, report, farm)) && good;
    return good;
}
