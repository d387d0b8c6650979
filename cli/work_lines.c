/*
 * Runs made of lines: every line is an item, some lines are a shard. The lines are the shard's
 * metadata, their numbers are its keys, so that a shard that is taken up again goes on behind its
 * cursor.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "work.h"

#define READ_AT_ONCE   (64 * 1024)
#define SHARDS_AT_ONCE 1024
#define CLASHES_MAX    100u /* with others who add lines to the same run, one after the other */

void line_key(uint64_t number, char out[LINE_KEY + 1])
{
    snprintf(out, LINE_KEY + 1, "%0*" PRIu64, LINE_KEY, number);
}

static uint64_t key_line(rf_bytes key)
{
    char text[LINE_KEY + 1] = "";
    memcpy(text, key.data, key.len < LINE_KEY ? key.len : LINE_KEY);
    return strtoull(text, NULL, 10);
}

struct items items_of(rf_spec spec, rf_cursor cursor)
{
    struct items items = {0};
    const char *at = spec.metadata.len != 0 ? spec.metadata.data : "";
    const char *end = at + spec.metadata.len;
    uint64_t line = key_line(spec.start);
    uint64_t from = cursor.key.data == NULL ? line : key_line(cursor.key) + 1;
    uint32_t count = 1;
    for (const char *c = at; c < end; c++) {
        count += *c == '\n';
    }
    items.item = calloc(count, sizeof(*items.item));
    if (items.item == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < count; i++, line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop == NULL ? end : stop;
        if (line >= from) {
            items.item[items.count++] = strndup(at, (size_t)(stop - at));
        }
        at = stop + 1;
    }
    return items;
}

void free_items(struct items *items)
{
    for (uint32_t i = 0; i < items->count; i++) {
        free((void *)(uintptr_t)items->item[i]);
    }
    free(items->item);
}

void hide_items(struct items *items)
{
    for (uint32_t i = 0; i < items->count; i++) {
        free((void *)(uintptr_t)items->item[i]);
        items->item[i] = strdup("(item)");
    }
}

/* --- words of the command --- */

static bool is_items(const char *word)
{
    return strcmp(word, "{}") == 0;
}

/* {} inside a word, {#} and {%}; one item only can stand inside. */
static char *expand_word(const char *word, const struct items *items, uint64_t shard, uint32_t seat)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) {
        abort();
    }
    for (const char *c = word; *c != 0;) {
        if (items != NULL && strncmp(c, "{}", 2) == 0) {
            for (uint32_t i = 0; i < items->count; i++) {
                fprintf(to, "%s%s", i == 0 ? "" : " ", items->item[i]);
            }
            c += 2;
        } else if (strncmp(c, "{#}", 3) == 0) {
            fputs(id_text(shard), to);
            c += 3;
        } else if (strncmp(c, "{%}", 3) == 0) {
            fprintf(to, "%" PRIu32, seat + 1);
            c += 3;
        } else {
            fputc(*c++, to);
        }
    }
    fclose(to);
    return text;
}

char **expand_command(const struct work *w, const struct items *items, uint64_t shard,
                      uint32_t seat)
{
    uint32_t extra = items == NULL ? 0 : items->count;
    bool named = w->pipe; /* the items have their place */
    char **words = calloc((size_t)w->command_count * (extra + 1) + extra + 1, sizeof(*words));
    size_t n = 0;
    if (words == NULL) {
        abort();
    }
    for (int i = 0; i < w->command_count; i++) {
        named |= strstr(w->command[i], "{}") != NULL;
        if (items != NULL && is_items(w->command[i])) {
            for (uint32_t k = 0; k < items->count; k++) {
                words[n++] = strdup(items->item[k]);
            }
        } else {
            words[n++] = expand_word(w->command[i], items, shard, seat);
        }
    }
    for (uint32_t k = 0; items != NULL && !named && k < items->count; k++) {
        words[n++] = strdup(items->item[k]);
    }
    return words;
}

void free_words(char **words)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        free(words[i]);
    }
    free(words);
}

/* --- reading --- */

struct last_line {
    uint64_t line;
    uint64_t shard;
    uint64_t other; /* a shard that is not made of lines */
    bool mixed;
};

static bool is_line_key(rf_bytes key)
{
    const char *text = key.data;
    for (size_t i = 0; i < key.len; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
    }
    return key.len == LINE_KEY;
}

/* From one number to another, and so many lines. */
static bool is_made_of_lines(rf_spec spec)
{
    const char *at = spec.metadata.data;
    uint64_t lines = 1;
    if (!is_line_key(spec.start) || !is_line_key(spec.end)) {
        return false;
    }
    for (size_t i = 0; i < spec.metadata.len; i++) {
        lines += at[i] == '\n';
    }
    return key_line(spec.end) - key_line(spec.start) == lines;
}

static bool see_last(void *context, const rf_shard_info *s)
{
    struct last_line *last = context;
    if (s->status == RF_SHARD_ACTIVE && !is_made_of_lines(s->spec)) {
        last->mixed = true;
        last->other = s->shard;
    }
    if (s->spec.end.len == LINE_KEY) {
        uint64_t behind = key_line(s->spec.end);
        last->line = behind > last->line ? behind : last->line;
    }
    if ((s->shard & RF_DERIVED_BIT) == 0 && s->shard >= last->shard) {
        last->shard = s->shard + 1;
    }
    return true;
}

/* What an active run holds already: where its lines end, and whether it is made of lines at all. */
static rf_status look_at_run(const struct work *w, rf_store *store, struct line_feed *feed,
                             struct last_line *last, rf_detail *detail)
{
    rf_run_info info;
    rf_status status = rf_get_run(store, &w->cli->tenant, w->run, &info, detail);
    feed->registered = status == RF_OK && info.status != RF_RUN_INITIALIZING;
    if (status == RF_OK && info.status > RF_RUN_ACTIVE) {
        status = RF_RUN_TERMINAL;
    }
    if (status == RF_OK) {
        status = rf_list_shards(store, rf_now(store), &w->cli->tenant, w->run, RF_LIST_ALL,
                                see_last, last, detail);
    }
    return status;
}

static int begin_behind(const struct work *w, struct line_feed *feed, const struct last_line *last,
                        rf_status status, const rf_detail *detail)
{
    if (status == RF_OK && last->mixed) {
        return cli_fail(
            EXIT_REFUSED,
            "run %s is not made of lines (shard %s is not): work on it without --lines, "
            "or give the lines a run of their own",
            id_text(w->run), id_text(last->other));
    }
    feed->next_line = last->line;
    feed->next_shard = last->shard;
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, detail, 0, "run %s", id_text(w->run));
}

int feed_begin(struct work *w, rf_store *store, struct line_feed *feed)
{
    struct last_line last = {.line = 1, .shard = 1};
    rf_result result = {0};
    rf_status status =
        rf_create_run(store, rf_now(store), &w->cli->tenant, w->run, &w->config, &result);
    feed->made_run = status == RF_OK;
    if (status == RF_RUN_EXISTS) {
        status = look_at_run(w, store, feed, &last, &result.detail);
    }
    return begin_behind(w, feed, &last, status, &result.detail);
}

int feed_rehearse(struct work *w, rf_store *store, struct line_feed *feed)
{
    struct last_line last = {.line = 1, .shard = 1};
    rf_detail detail = {0};
    rf_status status = look_at_run(w, store, feed, &last, &detail);
    return begin_behind(w, feed, &last, status == RF_RUN_NOT_FOUND ? RF_OK : status, &detail);
}

struct batch {
    rf_shard_input shards[SHARDS_AT_ONCE];
    char keys[SHARDS_AT_ONCE + 1][LINE_KEY + 1];
    uint32_t count;
};

/* Somebody else has added lines to the run meanwhile: ours come behind them. */
static int move_behind(struct work *w, rf_store *store, struct line_feed *feed, struct batch *b)
{
    struct last_line last = {.line = 1, .shard = 1};
    rf_detail detail = {0};
    uint64_t first = key_line(b->shards[0].spec.start), behind = feed->next_line;
    rf_status status = look_at_run(w, store, feed, &last, &detail);
    int code = begin_behind(w, feed, &last, status, &detail);
    if (code != EXIT_DONE) {
        return code;
    }
    for (uint32_t i = 0; i <= b->count; i++) {
        uint64_t line = i < b->count ? key_line(b->shards[i].spec.start) : behind;
        line_key(line - first + last.line, b->keys[i]);
        if (i < b->count) {
            b->shards[i].shard = feed->next_shard++;
        }
    }
    feed->next_line = behind - first + last.line;
    return EXIT_DONE;
}

static bool is_clash(rf_status status)
{
    return status == RF_DUPLICATE_SHARD || status == RF_OVERLAPPING_RANGES ||
           status == RF_WRONG_STATUS;
}

static int register_batch(struct work *w, rf_store *store, struct line_feed *feed, struct batch *b)
{
    rf_result result;
    rf_status status;
    int code = EXIT_DONE;
    if (b->count == 0) {
        return EXIT_DONE;
    }
    if (feed->show != NULL) {
        for (uint32_t i = 0; i < b->count; i++) {
            feed->show(feed->context, b->shards[i].shard, b->shards[i].spec, (rf_cursor){0});
        }
        b->count = 0;
        return EXIT_DONE;
    }
    for (unsigned tries = 0;; tries++) {
        uint64_t op = rf_new_op(store), now = rf_now(store);
        result = (rf_result){0};
        status = feed->registered ? rf_add_shards(store, now, &w->cli->tenant, w->run, b->shards,
                                                  b->count, op, &result)
                                  : rf_register_shards(store, now, &w->cli->tenant, w->run,
                                                       b->shards, b->count, op, &result);
        if (!is_clash(status) || tries == CLASHES_MAX) {
            break;
        }
        code = move_behind(w, store, feed, b);
        if (code != EXIT_DONE) {
            return code;
        }
    }
    if (status != RF_OK) {
        return cli_refuse(status, &result.detail, 0, "adding lines to run %s", id_text(w->run));
    }
    feed->registered = true;
    feed->shards += b->count;
    b->count = 0;
    return EXIT_DONE;
}

enum bad_line { LINE_GOOD, LINE_TOO_LONG, LINE_WITH_NUL };

/* The longest beginning of the text that makes one shard: up to lines_per_shard whole lines that fit
 * the metadata. *bytes is without the last newline, *whole with it; false if there is none yet. */
static bool cut_shard(const struct work *w, const struct line_feed *feed, size_t from,
                      uint64_t *lines, size_t *bytes, size_t *whole, enum bad_line *bad)
{
    size_t at = from;
    *lines = 0;
    *bad = LINE_GOOD;
    while (*lines < w->lines_per_shard && at < feed->used) {
        const char *end = memchr(feed->buffer + at, '\n', feed->used - at);
        size_t stop = end == NULL ? feed->used : (size_t)(end - feed->buffer);
        bool has_nul = memchr(feed->buffer + at, 0, stop - at) != NULL;
        if (stop - from > RF_METADATA_MAX || has_nul) {
            *bad = *lines != 0 ? LINE_GOOD : has_nul ? LINE_WITH_NUL : LINE_TOO_LONG;
            return *lines != 0;
        }
        if (end == NULL && !feed->ended) {
            return false; /* the rest of the line is still to come, and perhaps more lines */
        }
        (*lines)++;
        *bytes = stop - from;
        at = end == NULL ? stop : stop + 1;
        *whole = at - from;
    }
    return *lines != 0 && (*lines == w->lines_per_shard || feed->ended);
}

static int cut_batch(struct work *w, rf_store *store, struct line_feed *feed, size_t *consumed)
{
    static struct batch b;
    uint64_t lines;
    size_t bytes = 0, whole = 0;
    enum bad_line bad = LINE_GOOD;
    int code = EXIT_DONE;
    b.count = 0;
    *consumed = 0;
    while (code == EXIT_DONE && cut_shard(w, feed, *consumed, &lines, &bytes, &whole, &bad)) {
        line_key(feed->next_line, b.keys[b.count]);
        line_key(feed->next_line + lines, b.keys[b.count + 1]);
        b.shards[b.count] = (rf_shard_input){
            .shard = feed->next_shard++,
            .spec = {.start = {b.keys[b.count], LINE_KEY},
                     .end = {b.keys[b.count + 1], LINE_KEY},
                     .metadata = {feed->buffer + *consumed, bytes}},
        };
        feed->next_line += lines;
        feed->taken += lines;
        *consumed += whole;
        if (++b.count == SHARDS_AT_ONCE) {
            code = register_batch(w, store, feed, &b);
        }
    }
    code = code != EXIT_DONE ? code : register_batch(w, store, feed, &b);
    if (code == EXIT_DONE && bad == LINE_WITH_NUL) {
        code = cli_fail(EXIT_REFUSED,
                        "line %" PRIu64 " has a NUL byte, which no argument of a command can have",
                        feed->taken + 1);
    }
    if (code == EXIT_DONE && bad == LINE_TOO_LONG) {
        code = cli_fail(EXIT_REFUSED, "line %" PRIu64 " has more than %u bytes", feed->taken + 1,
                        RF_METADATA_MAX);
    }
    return code;
}

int feed_read(struct work *w, rf_store *store, struct line_feed *feed)
{
    size_t consumed;
    if (feed->room - feed->used < READ_AT_ONCE) {
        feed->room += 2 * READ_AT_ONCE;
        feed->buffer = realloc(feed->buffer, feed->room);
        if (feed->buffer == NULL) {
            abort();
        }
    }
    ssize_t n = read(STDIN_FILENO, feed->buffer + feed->used, READ_AT_ONCE);
    if (n < 0) {
        return errno == EINTR || errno == EAGAIN
                   ? EXIT_DONE
                   : cli_fail(EXIT_IO, "standard input can't be read: %s", strerror(errno));
    }
    feed->ended = n == 0;
    feed->used += (size_t)n;
    int code = cut_batch(w, store, feed, &consumed);
    memmove(feed->buffer, feed->buffer + consumed, feed->used - consumed);
    feed->used -= consumed;
    feed->finished = feed->ended && feed->used == 0;
    return code;
}
