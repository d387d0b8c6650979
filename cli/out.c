#include "out.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"

/* A list is aligned by its first lines; those that follow are printed as they come. */
#define LINES_HELD  1000
#define COLUMNS_MAX 32
#define TEXT_LEAST  6 /* narrower words say nothing */
#define HEAD_LEAST  4

struct cell {
    char *text;
    enum out_colour colour;
    bool right; /* aligned: numbers */
};

struct table {
    char *names[COLUMNS_MAX]; /* all empty: a card */
    int columns;
    int widths[COLUMNS_MAX];
    bool narrowed[COLUMNS_MAX]; /* to fit the terminal: what is longer is cut */
    bool folded;                /* no width fits it: a line a cell instead */
    bool some;                  /* lines were printed */
    bool laid_out;
    struct cell *cells; /* LINES_HELD lines at most */
    int lines;
    struct cell line[COLUMNS_MAX]; /* under way */
    int filled;
    bool open; /* a line is under way */
};

enum shape { NOTHING, CARD, LIST, INNER };

static struct {
    bool json;
    bool reveal;
    bool json_only;
    enum shape shape;
    bool comma;     /* JSON: something stands before */
    bool first_row; /* JSON: of an inner list */
    bool row_open;
    struct table table; /* of a list, or of an inner one */
    struct table card;  /* two columns: name and value */
    const char *inner_name;
} out;

void out_setup(bool json, bool reveal)
{
    out.json = json;
    out.reveal = reveal;
}

bool out_is_json(void)
{
    return out.json;
}

/* --- terminals --- */

bool stream_colours(FILE *stream)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return (no == NULL || no[0] == 0) && isatty(fileno(stream)) &&
           (term == NULL || strcmp(term, "dumb") != 0);
}

int stream_width(FILE *stream)
{
    struct winsize size;
    if (!isatty(fileno(stream)) || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 ||
        size.ws_col == 0) {
        return 0;
    }
    return size.ws_col;
}

const char *colour_on(FILE *stream, enum out_colour colour)
{
    static const char *const codes[] = {"",         "\033[32m", "\033[33m", "\033[31m",
                                        "\033[34m", "\033[2m",  "\033[1m"};
    return stream_colours(stream) ? codes[colour] : "";
}

const char *colour_off(FILE *stream)
{
    return stream_colours(stream) ? "\033[0m" : "";
}

/* --- tables --- */

static int cells_wide(const char *text)
{
    int n = 0;
    for (; *text != 0; text++) {
        n += ((uint8_t)*text & 0xC0) != 0x80; /* of UTF-8, the first bytes */
    }
    return n;
}

/* The bytes of so many cells. */
static int bytes_in(const char *text, int cells)
{
    int n = 0;
    for (; text[n] != 0; n++) {
        bool first = ((uint8_t)text[n] & 0xC0) != 0x80;
        if (first && cells-- == 0) {
            break;
        }
    }
    return n;
}

static void print_cell(const struct cell *c, int width, bool narrowed, bool last)
{
    int len = cells_wide(c->text), pad = width > len ? width - len : 0;
    bool cut = narrowed && len > width;
    const char *on = c->colour != OUT_PLAIN ? colour_on(stdout, c->colour) : "";
    const char *off = on[0] != 0 ? colour_off(stdout) : "";
    if (c->right) {
        printf("%*s", pad, "");
    }
    if (cut) {
        printf("%s%.*s>%s", on, bytes_in(c->text, width > 1 ? width - 1 : 0), c->text, off);
    } else {
        printf("%s%s%s", on, c->text, off);
    }
    if (!c->right && !last) {
        printf("%*s", pad, "");
    }
    fputs(last ? "\n" : "  ", stdout);
}

/* A name of JSON, as people read it. */
static char *spaced(const char *name)
{
    char *text = keep_text(name);
    for (char *c = text; *c != 0; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
    return text;
}

/* As a card: names and values. */
static void print_folded(struct table *t, const struct cell *line)
{
    if (t->some) {
        putchar('\n');
    }
    for (int i = 0; i < t->columns; i++) {
        struct cell value = line[i];
        value.right = false;
        print_cell(&(struct cell){t->names[i], OUT_DIM, false}, t->widths[0], false, false);
        print_cell(&value, t->widths[1], true, true);
    }
}

static void print_line(struct table *t, const struct cell *line)
{
    if (t->folded) {
        print_folded(t, line);
    }
    for (int i = 0; i < t->columns && !t->folded; i++) {
        print_cell(&line[i], t->widths[i], t->narrowed[i], i + 1 == t->columns);
    }
    t->some = true;
}

static void fold(struct table *t, int room)
{
    int names = 0;
    for (int i = 0; i < t->columns; i++) {
        int len = (int)strlen(t->names[i]);
        names = len > names ? len : names;
    }
    t->folded = true;
    t->widths[0] = names;
    t->widths[1] = room > names + 3 ? room - names - 2 : 1;
}

/* Widths of what is held. If the terminal is too narrow the widest columns give way, as far as words
 * can still be told apart and numbers are whole; where that is not enough the table is folded. */
static void lay_out(struct table *t)
{
    int room = stream_width(stdout), total = 2 * (t->columns - 1), least[COLUMNS_MAX];
    for (int i = 0; i < t->columns; i++) {
        int name = (int)strlen(t->names[i]), widest = 0;
        for (int l = 0; l < t->lines; l++) {
            int len = cells_wide(t->cells[l * t->columns + i].text);
            widest = len > widest ? len : widest;
        }
        t->widths[i] = widest > name ? widest : name;
        least[i] = t->lines > 0 && t->cells[i].right ? widest
                   : widest < TEXT_LEAST             ? widest
                                                     : TEXT_LEAST;
        int head = name < HEAD_LEAST ? name : HEAD_LEAST;
        least[i] = least[i] > head ? least[i] : head;
        total += t->widths[i];
    }
    while (room > 0 && total > room) {
        int widest = -1;
        for (int i = 0; i < t->columns; i++) {
            bool gives = t->widths[i] > least[i];
            widest = gives && (widest < 0 || t->widths[i] > t->widths[widest]) ? i : widest;
        }
        if (widest < 0) {
            if (t->names[0][0] != 0) {
                fold(t, room);
            }
            break;
        }
        t->widths[widest]--;
        t->narrowed[widest] = true;
        total--;
    }
    t->laid_out = true;
}

static void print_heads(struct table *t)
{
    struct cell heads[COLUMNS_MAX];
    for (int i = 0; i < t->columns; i++) {
        char *head = keep_text(t->names[i]);
        for (char *c = head; *c != 0; c++) {
            *c = *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
        }
        heads[i] = (struct cell){head, OUT_DIM, t->lines > 0 && t->cells[i].right};
    }
    print_line(t, heads);
}

static void free_lines(struct table *t)
{
    for (int i = 0; i < t->lines * t->columns; i++) {
        free(t->cells[i].text);
    }
    free(t->cells);
    t->cells = NULL;
    t->lines = 0;
}

static void print_held(struct table *t, bool heads)
{
    if (!t->laid_out) {
        lay_out(t);
        if (heads && t->columns > 0 && !t->folded) {
            print_heads(t);
        }
    }
    for (int l = 0; l < t->lines; l++) {
        print_line(t, &t->cells[l * t->columns]);
    }
    free_lines(t);
}

static void end_line(struct table *t)
{
    if (!t->open) {
        return;
    }
    t->open = false;
    if (t->columns == 0) {
        t->columns = t->filled;
    }
    assert(t->filled == t->columns);
    t->filled = 0;
    if (t->laid_out) {
        print_line(t, t->line);
        for (int i = 0; i < t->columns; i++) {
            free(t->line[i].text);
        }
        return;
    }
    if (t->cells == NULL) {
        t->cells = calloc((size_t)LINES_HELD * (size_t)t->columns, sizeof(*t->cells));
        if (t->cells == NULL) {
            abort();
        }
    }
    memcpy(&t->cells[t->lines * t->columns], t->line, (size_t)t->columns * sizeof(struct cell));
    if (++t->lines == LINES_HELD) {
        print_held(t, true);
    }
}

static void add_cell(struct table *t, const char *name, const char *text, enum out_colour colour,
                     bool right)
{
    assert(t->filled < COLUMNS_MAX);
    if (t->columns == 0) {
        t->names[t->filled] = spaced(name);
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        abort();
    }
    t->line[t->filled++] = (struct cell){copy, colour, right};
}

/* --- shapes --- */

void out_card_begin(void)
{
    out.shape = CARD;
    out.comma = false;
    if (out.json) {
        putchar('{');
    } else {
        out.card = (struct table){.names = {"", ""}, .columns = 2};
    }
}

static void print_card(void)
{
    if (!out.json && out.card.lines > 0) {
        print_held(&out.card, false);
        out.card = (struct table){.names = {"", ""}, .columns = 2};
    }
}

void out_card_end(void)
{
    if (out.json) {
        fputs("}\n", stdout);
    } else {
        print_card();
    }
    out.shape = NOTHING;
}

void out_list_begin(void)
{
    out.shape = LIST;
    out.row_open = false;
    out.table = (struct table){0};
}

void out_row(void)
{
    if (!out.json) {
        end_line(&out.table);
        out.table.open = true;
        return;
    }
    if (out.row_open) {
        fputs(out.shape == INNER ? "}" : "}\n", stdout);
    }
    fputs(out.shape == INNER && out.row_open ? ",{" : "{", stdout);
    out.row_open = true;
    out.comma = false;
}

static void end_rows(void)
{
    if (!out.json) {
        end_line(&out.table);
        print_held(&out.table, true);
    } else if (out.row_open) {
        fputs(out.shape == INNER ? "}" : "}\n", stdout);
    }
    out.row_open = false;
}

void out_list_end(void)
{
    if (!out.json && out.table.columns == 0 && !out.table.open) {
        out.shape = NOTHING;
        return;
    }
    end_rows();
    out.shape = NOTHING;
}

static void json_name(const char *name, const char *suffix)
{
    printf("%s\"%s%s\":", out.comma ? "," : "", name, suffix);
    out.comma = true;
}

void out_inner_begin(const char *name)
{
    assert(out.shape == CARD);
    out.inner_name = name;
    out.row_open = false;
    if (out.json) {
        json_name(name, "");
        putchar('[');
    } else {
        print_card();
        out.table = (struct table){0};
    }
    out.shape = INNER;
}

void out_inner_end(void)
{
    if (out.json) {
        end_rows();
        putchar(']');
        out.comma = true;
    } else if (out.table.columns != 0 || out.table.open) {
        printf("\n%s%s%s\n", colour_on(stdout, OUT_BOLD), out.inner_name, colour_off(stdout));
        end_rows();
    }
    out.shape = CARD;
}

void out_json_only(bool on)
{
    out.json_only = on;
}

/* --- values --- */

/* The length of the character of UTF-8 that begins here; 0 if none does. */
static unsigned utf8_length(const unsigned char *c)
{
    unsigned len = c[0] < 0x80                    ? 1
                   : c[0] >= 0xC2 && c[0] <= 0xDF ? 2
                   : (c[0] & 0xF0) == 0xE0        ? 3
                   : c[0] >= 0xF0 && c[0] <= 0xF4 ? 4
                                                  : 0;
    for (unsigned i = 1; i < len; i++) {
        if ((c[i] & 0xC0) != 0x80) {
            return 0; /* the end of the text as well */
        }
    }
    /* Too long for what it says, half of a pair, or beyond the last one. */
    bool bad = (c[0] == 0xE0 && c[1] < 0xA0) || (c[0] == 0xED && c[1] > 0x9F) ||
               (c[0] == 0xF0 && c[1] < 0x90) || (c[0] == 0xF4 && c[1] > 0x8F);
    return bad ? 0 : len;
}

void out_json_string(FILE *to, const char *text)
{
    fputc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c != 0; c++) {
        unsigned len = utf8_length(c);
        if (len > 1) {
            fwrite(c, 1, len, to);
            c += len - 1;
        } else if (*c == '"' || *c == '\\') {
            fprintf(to, "\\%c", *c);
        } else if (*c < 32 || *c > 126) {
            fprintf(to, "\\u%04x", *c);
        } else {
            fputc(*c, to);
        }
    }
    fputc('"', to);
}

/* For people: a cell of the row, or a line of the card. */
static void show(const char *name, const char *text, enum out_colour colour, bool right)
{
    if (out.json_only) {
        return;
    }
    if (out.shape != CARD) {
        add_cell(&out.table, name, text, colour, right);
        return;
    }
    out.card.open = true;
    add_cell(&out.card, "", spaced(name), OUT_DIM, false);
    add_cell(&out.card, "", text, colour, false);
    end_line(&out.card);
}

void out_word(const char *name, const char *text, enum out_colour colour)
{
    if (out.json) {
        json_name(name, "");
        out_json_string(stdout, text);
    } else {
        show(name, text, colour, false);
    }
}

void out_phrase(const char *name, const char *word, const char *phrase, enum out_colour colour)
{
    out_word(name, out.json ? word : phrase, colour);
}

void out_text(const char *name, const char *text)
{
    out_word(name, text, OUT_PLAIN);
}

void out_id(const char *name, uint64_t id)
{
    if (out.json) {
        out_text(name, id_text(id));
    } else {
        show(name, id_text(id), OUT_PLAIN, true);
    }
}

void out_number(const char *name, uint64_t number)
{
    if (out.json) {
        json_name(name, "");
        printf("%" PRIu64, number);
    } else {
        show(name, count_text(number), OUT_PLAIN, true);
    }
}

void out_real(const char *name, double number, int digits)
{
    char text[64];
    snprintf(text, sizeof(text), "%.*f", digits, number);
    if (out.json) {
        json_name(name, "");
        fputs(text, stdout);
    } else {
        show(name, text, OUT_PLAIN, true);
    }
}

void out_flag(const char *name, bool flag)
{
    if (out.json) {
        json_name(name, "");
        fputs(flag ? "true" : "false", stdout);
    } else {
        show(name, flag ? "yes" : "no", OUT_PLAIN, false);
    }
}

void out_ns(const char *name, uint64_t ns)
{
    if (out.json) {
        json_name(name, "_ns");
        printf("%" PRIu64, ns);
    } else {
        show(name, duration_text(ns), OUT_PLAIN, true);
    }
}

void out_time(const char *name, uint64_t time)
{
    if (out.json) {
        json_name(name, "_ns");
        printf(time == 0 ? "null" : "%" PRIu64, time);
    } else {
        show(name, time == 0 ? "-" : time_text(time), OUT_PLAIN, false);
    }
}

void out_size(const char *name, uint64_t bytes)
{
    if (out.json) {
        json_name(name, "");
        printf("%" PRIu64, bytes);
    } else {
        show(name, size_text(bytes), OUT_PLAIN, true);
    }
}

void out_bytes(const char *name, rf_bytes bytes)
{
    char *text = NULL, brief[48];
    if (bytes.data != NULL && out.reveal) {
        text = malloc(3 * bytes.len + 1);
        if (text == NULL) {
            abort();
        }
        encode_bytes(bytes, text);
    }
    if (out.json) {
        json_name(name, "_len");
        if (bytes.data == NULL) {
            fputs("null", stdout);
        } else {
            printf("%zu", bytes.len);
        }
        if (text != NULL) {
            out_word(name, text, OUT_PLAIN);
        }
    } else if (bytes.data == NULL) {
        show(name, "-", OUT_DIM, false);
    } else if (text != NULL) {
        show(name, text, OUT_PLAIN, false);
    } else {
        snprintf(brief, sizeof(brief), "(%zu B)", bytes.len);
        show(name, brief, OUT_DIM, false);
    }
    free(text);
}

void out_none(const char *name)
{
    if (out.json) {
        json_name(name, "");
        fputs("null", stdout);
    } else {
        show(name, "-", OUT_DIM, false);
    }
}

void out_words(const char *name, char *const *words)
{
    if (out.json) {
        json_name(name, "");
        putchar('[');
        for (size_t i = 0; words[i] != NULL; i++) {
            fputs(i == 0 ? "" : ",", stdout);
            out_json_string(stdout, words[i]);
        }
        putchar(']');
        return;
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        show(name, words[i], OUT_PLAIN, false);
    }
}

void out_ids(const char *name, const uint64_t *ids, size_t count)
{
    if (out.json) {
        json_name(name, "");
        putchar('[');
        for (size_t i = 0; i < count; i++) {
            fputs(i == 0 ? "" : ",", stdout);
            out_json_string(stdout, id_text(ids[i]));
        }
        putchar(']');
        return;
    }
    char *text = malloc(count * 24 + 2), *to = text;
    if (text == NULL) {
        abort();
    }
    strcpy(text, "-");
    for (size_t i = 0; i < count; i++) {
        to += sprintf(to, "%s%s", i == 0 ? "" : " ", id_text(ids[i]));
    }
    show(name, text, OUT_PLAIN, false);
    free(text);
}
