/*
 * top: runs, members and shards on a screen that is drawn again and again. Looks only.
 *
 * Views form a path: runs -> shards of a run -> one shard, and members beside it. What a view shows is
 * gathered anew for every refresh into rows of text with a few numbers to sort by; drawing knows only
 * rows.
 */
#include <curses.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

/* As in <term.h>, which would also define words such as `lines` and `columns`. */
extern int setupterm(const char *term, int fd, int *error);

#define ROWS_MAX  50000 /* of shards; more are counted only */
#define CELLS_MAX 10
#define CELL_TEXT 64
#define BAR_CELLS 20

#define LONGEST_WAIT (3600 * RF_SECOND) /* for a key; then once more */

static const struct option_spec top_options[] = {
    {"interval", 'i', OPTION_DURATION, "TIME", "how often to look [1s]"},
    {"all-tenants", 'a', OPTION_FLAG, NULL, "runs of every tenant, not only of one"},
    {0},
};

enum view { VIEW_RUNS, VIEW_SHARDS, VIEW_SHARD, VIEW_MEMBERS };

struct row {
    char cell[CELLS_MAX][CELL_TEXT];
    double key[CELLS_MAX]; /* to sort by */
    enum out_colour colour;
    double part; /* of a bar, in its cell; below 0: none */
    double bad;
    uint64_t id;
    rf_tenant tenant;
};

struct column {
    const char *name;
    int width;
    bool right;
};

static const struct column run_columns[] = {
    {"RUN", 20, true},     {"TENANT", 8, false},
    {"STATUS", 12, false}, {"PROGRESS", BAR_CELLS + 2, false},
    {"DONE", 11, true},    {"SHARDS", 9, true},
    {"PARKED", 7, true},   {"FREE", 9, true},
    {"DONE/S", 9, true},   {"LEFT", 8, true},
    {NULL, 0, false}};
static const struct column shard_columns[] = {
    {"SHARD", 20, true},   {"STATUS", 7, false}, {"REASON", 17, false}, {"START", 14, false},
    {"CURSOR", 14, false}, {"WORKER", 10, true}, {"FENCE", 8, true},    {"LEASE", 8, true},
    {"ATTEMPTS", 8, true}, {NULL, 0, false}};
static const struct column member_columns[] = {
    {"PID", 10, true}, {"SLOT", 6, true},        {"ROLE", 8, false},     {"STATE", 6, false},
    {"AGE", 8, true},  {"OPERATIONS", 12, true}, {"REFUSALS", 10, true}, {"LOCK WAITS", 10, true},
    {"BUSY", 6, true}, {NULL, 0, false}};

struct screen {
    struct cli *cli;
    rf_store *store;
    const char *name;
    enum view view;
    uint64_t run;
    rf_tenant tenant; /* of the run that is looked into */
    uint64_t shard;
    struct row *rows;
    size_t count;
    size_t room;
    size_t hidden; /* shards beyond ROWS_MAX */
    size_t selected;
    size_t top;
    int sort; /* column, -1: as they came */
    bool reverse;
    char filter[32];
    bool typing; /* the filter */
    bool paused;
    uint64_t interval_ns;
    uint64_t gathered_ns;
    rf_inspection seen, before;
    uint64_t members, dead;
    char locked[96]; /* the lock that is held longest, if that is long */
    double seconds;  /* between the last two looks */
    struct row *old; /* runs as they were at old_ns, for rates */
    size_t old_count;
    uint64_t old_ns;
    uint64_t now;
    rf_status trouble;
};

static volatile sig_atomic_t ended;

static void on_signal(int signal)
{
    (void)signal;
    ended = 1;
}

/* --- gathering --- */

static struct row *add_row(struct screen *s)
{
    if (s->count == s->room) {
        s->room = s->room == 0 ? 256 : 2 * s->room;
        s->rows = realloc(s->rows, s->room * sizeof(*s->rows));
        if (s->rows == NULL) {
            abort();
        }
    }
    struct row *row = &s->rows[s->count++];
    *row = (struct row){.part = -1};
    return row;
}

static void put_text(struct row *row, int column, const char *text)
{
    size_t len = strlen(text); /* what is longer is cut */
    len = len < CELL_TEXT ? len : CELL_TEXT - 1;
    memcpy(row->cell[column], text, len);
    row->cell[column][len] = 0;
}

static void put_number(struct row *row, int column, uint64_t number)
{
    put_text(row, column, count_text(number));
    row->key[column] = (double)number;
}

static double rate_of(const struct screen *s, const rf_run_info *r)
{
    double seconds =
        (double)(s->gathered_ns - s->old_ns) / 1e9; /* there may be other views between */
    for (size_t i = 0; i < s->old_count && seconds > 0; i++) {
        const struct row *old = &s->old[i];
        if (old->id == r->run && memcmp(&old->tenant, &r->tenant, sizeof(r->tenant)) == 0) {
            return ((double)r->done - old->key[4]) / seconds;
        }
    }
    return 0;
}

static bool gather_run(void *context, const rf_run_info *r)
{
    struct screen *s = context;
    struct row *row = add_row(s);
    rf_capacity capacity = {0};
    uint64_t whole = r->shard_count - r->split;
    double rate = rate_of(s, r);
    const char *word = run_status_word(r->status);
    rf_get_capacity(s->store, &r->tenant, r->run, &capacity, NULL);
    row->id = r->run;
    row->tenant = r->tenant;
    row->colour = status_colour(word);
    put_text(row, 0, id_text(r->run));
    row->key[0] = (double)r->run;
    put_text(row, 1, tenant_text(&r->tenant));
    put_text(row, 2, word);
    row->key[2] = (double)r->status;
    row->part = whole == 0 ? 0 : (double)r->done / (double)whole;
    row->bad = whole == 0 ? 0 : (double)r->parked / (double)whole;
    row->key[3] = row->part;
    put_number(row, 4, r->done);
    put_number(row, 5, whole);
    put_number(row, 6, r->parked);
    put_number(row, 7, capacity.available);
    snprintf(row->cell[8], CELL_TEXT, "%.1f", rate);
    row->key[8] = rate;
    double left = rate > 0 ? (double)(whole - r->done - r->parked) / rate : -1;
    put_text(row, 9, left < 0 ? "-" : duration_text((uint64_t)(left * 1e9)));
    row->key[9] = left;
    return true;
}

static void put_bytes(const struct screen *s, struct row *row, int column, rf_bytes bytes)
{
    if (bytes.data == NULL) {
        put_text(row, column, "-");
    } else if (s->cli->reveal) {
        char text[3 * CELL_TEXT];
        rf_bytes part = {bytes.data, bytes.len < CELL_TEXT - 1 ? bytes.len : CELL_TEXT - 1};
        encode_bytes(part, text);
        put_text(row, column, text);
    } else {
        snprintf(row->cell[column], CELL_TEXT, "(%zu B)", bytes.len);
    }
    row->key[column] = (double)s->count; /* they come sorted by start */
}

static bool gather_shard(void *context, const rf_shard_info *i)
{
    struct screen *s = context;
    if (s->count == ROWS_MAX) {
        s->hidden++;
        return true;
    }
    struct row *row = add_row(s);
    const char *word = shard_status_word(i->status);
    row->id = i->shard;
    row->colour = status_colour(word);
    put_text(row, 0, id_text(i->shard));
    row->key[0] = (double)i->shard;
    put_text(row, 1, word);
    row->key[1] = (double)i->status;
    put_text(row, 2, i->has_reason ? park_reason_word(i->reason) : "");
    row->key[2] = i->has_reason ? (double)i->reason : -1;
    put_bytes(s, row, 3, i->spec.start);
    put_bytes(s, row, 4, i->cursor.key);
    put_text(row, 5, i->leased ? id_text(i->owner) : "-");
    row->key[5] = i->leased ? (double)i->owner : -1;
    put_number(row, 6, i->fence);
    put_text(row, 7,
             !i->leased              ? "-"
             : i->deadline <= s->now ? "expired"
                                     : duration_text(i->deadline - s->now));
    row->key[7] = i->leased && i->deadline > s->now ? (double)(i->deadline - s->now) : -1;
    put_number(row, 8, i->attempts);
    return true;
}

static bool gather_member(void *context, const rf_member_info *m)
{
    struct screen *s = context;
    uint64_t executed = 0, refused = 0;
    s->members++;
    s->dead += m->dead;
    if (s->view != VIEW_MEMBERS) {
        return true;
    }
    for (unsigned k = 0; k < RF_CLASSES; k++) {
        executed += m->executed[k];
        for (unsigned i = 0; i < 100; i++) {
            refused += m->refused[k][i];
        }
    }
    struct row *row = add_row(s);
    const char *state = member_state_word(m);
    row->colour = status_colour(state);
    put_text(row, 0, id_text(m->pid));
    row->key[0] = m->pid;
    put_number(row, 1, m->slot);
    put_text(row, 2, m->guardian ? "guardian" : "handle");
    put_text(row, 3, state);
    put_text(row, 4, duration_text(s->now > m->joined_at ? s->now - m->joined_at : 0));
    row->key[4] = -(double)m->joined_at;
    put_number(row, 5, executed);
    put_number(row, 6, refused);
    put_number(row, 7, m->lock_waits);
    put_number(row, 8, m->busy);
    return true;
}

static void add_line(struct screen *s, const char *name, const char *value)
{
    struct row *row = add_row(s);
    put_text(row, 0, name);
    put_text(row, 1, value);
}

static rf_status gather_one(struct screen *s)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info i;
    struct row keys = {0};
    rf_status status = rf_get_shard(s->store, &s->tenant, s->run, s->shard, &i, scratch,
                                    sizeof(scratch), &s->cli->detail);
    if (status != RF_OK) {
        return status;
    }
    put_bytes(s, &keys, 0, i.spec.start);
    put_bytes(s, &keys, 1, i.spec.end);
    put_bytes(s, &keys, 2, i.cursor.key);
    add_line(s, "status", shard_status_word(i.status));
    add_line(s, "reason", i.has_reason ? park_reason_word(i.reason) : "-");
    add_line(s, "start", keys.cell[0]);
    add_line(s, "end", keys.cell[1]);
    add_line(s, "cursor", keys.cell[2]);
    add_line(s, "fence", count_text(i.fence));
    add_line(s, "worker", i.leased ? id_text(i.owner) : "-");
    add_line(s, "lease left",
             i.leased && i.deadline > s->now ? duration_text(i.deadline - s->now) : "-");
    add_line(s, "attempts", count_text(i.attempts));
    add_line(s, "parent", i.has_parent ? id_text(i.parent) : "-");
    add_line(s, "split off", count_text(i.spawned_count));
    for (uint32_t k = i.ring_count; k-- > 0;) {
        char what[CELL_TEXT];
        snprintf(what, sizeof(what), "%s, op 0x%016" PRIx64, op_kind_word(i.ring[k].kind),
                 i.ring[k].op);
        add_line(s, time_text(i.ring[k].executed_at) + 11, what);
    }
    return RF_OK;
}

static const struct screen *sorting;

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int c = sorting->sort;
    int order = x->key[c] < y->key[c] ? -1 : x->key[c] > y->key[c];
    order = order != 0 ? order : strcmp(x->cell[c], y->cell[c]);
    order = order != 0 ? order : x->id < y->id ? -1 : x->id > y->id;
    return sorting->reverse ? -order : order;
}

/* A row stays if one of its cells has what was typed. */
static void filter_rows(struct screen *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count && s->filter[0] != 0; i++) {
        bool good = false;
        for (int c = 0; c < CELLS_MAX && !good; c++) {
            good = strstr(s->rows[i].cell[c], s->filter) != NULL;
        }
        if (good) {
            s->rows[kept++] = s->rows[i];
        }
    }
    s->count = s->filter[0] != 0 ? kept : s->count;
}

static void remember_runs(struct screen *s)
{
    free(s->old);
    s->old = malloc((s->count + 1) * sizeof(*s->old));
    if (s->old == NULL) {
        abort();
    }
    if (s->count != 0) {
        memcpy(s->old, s->rows, s->count * sizeof(*s->old));
    }
    s->old_count = s->count;
    s->old_ns = s->gathered_ns;
}

static void gather(struct screen *s)
{
    uint64_t at = monotonic_ns();
    s->seconds = s->gathered_ns == 0 ? 0 : (double)(at - s->gathered_ns) / 1e9;
    s->gathered_ns = at;
    s->now = rf_now(s->store);
    s->before = s->seen;
    s->count = s->hidden = 0;
    s->members = s->dead = 0;
    rf_status status = rf_inspect(s->store, &s->seen, &s->cli->detail);
    if (status == RF_OK) {
        status = rf_list_members(s->store, gather_member, s, &s->cli->detail);
    }
    rf_lock_info lock;
    s->locked[0] = 0;
    if (status == RF_OK && longest_held_lock(s->store, &lock)) {
        lock_text(&lock, s->locked, sizeof(s->locked));
    }
    if (status == RF_OK && s->view == VIEW_RUNS) {
        bool all = arg_given(&s->cli->args, "all-tenants");
        status =
            rf_list_runs(s->store, all ? NULL : &s->cli->tenant, gather_run, s, &s->cli->detail);
        remember_runs(s);
    } else if (status == RF_OK && s->view == VIEW_SHARDS) {
        status = rf_list_shards(s->store, s->now, &s->tenant, s->run, RF_LIST_ALL, gather_shard, s,
                                &s->cli->detail);
    } else if (status == RF_OK && s->view == VIEW_SHARD) {
        status = gather_one(s);
    }
    s->trouble = status;
    filter_rows(s);
    if (s->sort >= 0 && s->view != VIEW_SHARD && s->count != 0) {
        sorting = s;
        qsort(s->rows, s->count, sizeof(*s->rows), compare_rows);
    }
    s->selected = s->count == 0 ? 0 : s->selected < s->count ? s->selected : s->count - 1;
}

/* --- drawing --- */

/* As mvprintw, but what does not fit the line is cut off, not continued on the next. */
static void put(int y, int x, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put(int y, int x, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (y < LINES && x < COLS) {
        mvaddnstr(y, x, text, COLS - x);
    }
}

static attr_t colour_attr(enum out_colour colour)
{
    attr_t pair = has_colors() && colour != OUT_PLAIN ? (attr_t)COLOR_PAIR((int)colour) : 0;
    return colour == OUT_DIM ? A_DIM : colour == OUT_BOLD ? A_BOLD : pair;
}

static void draw_bar(int y, int x, const struct row *row)
{
    int done = (int)(row->part * BAR_CELLS), bad = (int)((row->part + row->bad) * BAR_CELLS) - done;
    mvaddch(y, x, '[');
    for (int i = 0; i < BAR_CELLS; i++) {
        attr_t a = colour_attr(i < done ? OUT_GREEN : i < done + bad ? OUT_RED : OUT_PLAIN);
        addch((chtype)(i < done ? '#' : i < done + bad ? '!' : '.') | a);
    }
    addch(']');
}

static const struct column *columns_of(enum view view)
{
    return view == VIEW_RUNS ? run_columns : view == VIEW_SHARDS ? shard_columns : member_columns;
}

static void draw_heads(const struct screen *s, int y, int first_width)
{
    int x = 0;
    attron(A_REVERSE);
    mvhline(y, 0, ' ', COLS);
    for (int c = 0; columns_of(s->view)[c].name != NULL && x < COLS; c++) {
        const struct column *column = &columns_of(s->view)[c];
        int width = c == 0 ? first_width : column->width;
        char head[CELL_TEXT];
        snprintf(head, sizeof(head), "%s%s", column->name,
                 c != s->sort ? ""
                 : s->reverse ? "v"
                              : "^");
        put(y, x, column->right ? "%*.*s" : "%-*.*s", width, width, head);
        x += width + 1;
    }
    attroff(A_REVERSE);
}

static void draw_row(const struct screen *s, int y, const struct row *row, bool selected,
                     int first_width)
{
    int x = 0;
    attr_t attr = colour_attr(row->colour) | (selected ? A_REVERSE : 0);
    if (selected) {
        attron(A_REVERSE);
        mvhline(y, 0, ' ', COLS);
        attroff(A_REVERSE);
    }
    for (int c = 0; columns_of(s->view)[c].name != NULL && x < COLS; c++) {
        const struct column *column = &columns_of(s->view)[c];
        int width = c == 0 ? first_width : column->width;
        if (s->view == VIEW_RUNS && c == 3) {
            if (x + width <= COLS) {
                draw_bar(y, x, row);
            }
        } else {
            char text[CELL_TEXT + 1];
            int room = COLS - x < width ? COLS - x : width;
            snprintf(text, sizeof(text), column->right ? "%*.*s" : "%-*.*s", width, width,
                     row->cell[c]);
            attron(attr);
            mvaddnstr(y, x, text, room);
            attroff(attr);
        }
        x += width + 1;
    }
}

/* The selected row is on the screen, and no line stays empty that a row could have: the window may have
 * grown. */
static void keep_in_view(struct screen *s, size_t room)
{
    size_t last = s->count > room ? s->count - room : 0;
    s->top = s->top < last ? s->top : last;
    s->top = s->selected < s->top ? s->selected : s->top;
    s->top = room != 0 && s->selected >= s->top + room ? s->selected - room + 1 : s->top;
}

static void draw_table(struct screen *s, int from, int to)
{
    size_t room = to > from + 1 ? (size_t)(to - from - 1) : 0;
    int first_width = 5;
    for (size_t i = 0; i < s->count; i++) {
        int len = (int)strlen(s->rows[i].cell[0]);
        first_width = len > first_width ? len : first_width;
    }
    draw_heads(s, from, first_width);
    keep_in_view(s, room);
    for (size_t i = 0; i < room && s->top + i < s->count; i++) {
        draw_row(s, from + 1 + (int)i, &s->rows[s->top + i], s->top + i == s->selected,
                 first_width);
    }
    if (s->count == 0) {
        bool others =
            s->view == VIEW_RUNS && s->seen.runs != 0 && !arg_given(&s->cli->args, "all-tenants");
        put(from + 2, 2,
            s->filter[0] != 0 ? "nothing here has \"%s\""
            : others          ? "nothing here%s; the runs are other tenants', which -a shows"
                              : "nothing here%s",
            s->filter);
    }
}

static void draw_lines(struct screen *s, int from, int to)
{
    size_t room = to > from ? (size_t)(to - from) : 0;
    keep_in_view(s, room);
    for (size_t i = 0; i < room && s->top + i < s->count; i++) {
        const struct row *row = &s->rows[s->top + i];
        put(from + (int)i, 0, "%-12.12s %s", row->cell[0], row->cell[1]);
    }
}

static double per_second(const struct screen *s, uint64_t now, uint64_t before)
{
    return s->seconds > 0 && now >= before ? (double)(now - before) / s->seconds : 0;
}

static void draw_head(const struct screen *s)
{
    char where[128] = "";
    const rf_inspection *i = &s->seen, *b = &s->before;
    if (s->view == VIEW_SHARDS || s->view == VIEW_SHARD) {
        int len = snprintf(where, sizeof(where), "  run %s", id_text(s->run));
        if (s->view == VIEW_SHARD) {
            snprintf(where + len, sizeof(where) - (size_t)len, "  shard %s", id_text(s->shard));
        }
    } else if (s->view == VIEW_MEMBERS) {
        snprintf(where, sizeof(where), "  members");
    }
    attron(A_BOLD);
    put(0, 0, "ringfence %s%s", s->name, where);
    attroff(A_BOLD);
    if (COLS > 40) {
        put(0, COLS - 18, " %8s %s", s->paused ? "paused" : "", time_text(s->now) + 11);
    }
    put(1, 0, "%" PRIu64 " members, %" PRIu64 " dead   %" PRIu64 " runs   %s shards   %s shared",
        s->members, s->dead, i->runs, count_text(i->shards), size_text(i->taken_bytes));
    char lag[64] = "";
    if (i->durability != RF_VOLATILE) {
        snprintf(lag, sizeof(lag), "   %" PRIu64 " epochs lag%s", lag_epochs(i),
                 i->log_failed  ? ", the log has failed"
                 : i->log_short ? ", the disk is full"
                                : "");
    }
    put(2, 0, "%.0f operations/s   %.0f refusals/s   %.0f lock waits/s   %" PRIu64 " repairs%s",
        per_second(s, i->operations, b->operations), per_second(s, i->refusals, b->refusals),
        per_second(s, i->lock_waits, b->lock_waits),
        i->reaped + i->reapers_replaced + i->purges_finished, lag);
}

/* What there is to say about the table, or what nobody should overlook. */
static void draw_remarks(const struct screen *s, int y)
{
    int x = 0;
    if (s->locked[0] != 0) {
        attron(colour_attr(OUT_RED));
        put(y, 0, "locked: %s", s->locked);
        attroff(colour_attr(OUT_RED));
        x += 11 + (int)strlen(s->locked);
    }
    if (s->filter[0] != 0 && !s->typing) {
        put(y, x, "filter: %s", s->filter);
        x += 11 + (int)strlen(s->filter);
    }
    if (s->hidden != 0) {
        put(y, x, "%zu more are not shown", s->hidden);
    }
}

static void draw(struct screen *s)
{
    erase();
    draw_head(s);
    draw_remarks(s, 3);
    if (s->trouble != RF_OK) {
        char why[256];
        rf_explain(s->trouble, &s->cli->detail, why, sizeof(why));
        put(4, 0, "%s", why);
    } else if (s->view == VIEW_SHARD) {
        draw_lines(s, 4, LINES - 1);
    } else {
        draw_table(s, 4, LINES - 1);
    }
    if (s->typing) {
        put(LINES - 1, 0, "filter: %s_", s->filter);
    } else {
        put(LINES - 1, 0,
            "q quit  Enter into  Esc back  s sort  r reverse  / filter  m members  p pause");
    }
    refresh();
}

/* --- keys --- */

static void enter(struct screen *s, enum view view)
{
    s->view = view;
    s->selected = s->top = 0;
    s->sort = -1;
    s->reverse = false;
    s->filter[0] = 0;
}

static void go_in(struct screen *s)
{
    if (s->count == 0 || (s->view != VIEW_RUNS && s->view != VIEW_SHARDS)) {
        return;
    }
    const struct row *row = &s->rows[s->selected];
    if (s->view == VIEW_RUNS) {
        s->run = row->id;
        s->tenant = row->tenant;
        enter(s, VIEW_SHARDS);
    } else {
        s->shard = row->id;
        enter(s, VIEW_SHARD);
    }
}

static void go_back(struct screen *s)
{
    if (s->filter[0] != 0) {
        s->filter[0] = 0;
    } else if (s->view != VIEW_RUNS) {
        enter(s, s->view == VIEW_SHARD ? VIEW_SHARDS : VIEW_RUNS);
    }
}

static void next_column(struct screen *s)
{
    s->sort++;
    if (s->view == VIEW_SHARD || columns_of(s->view)[s->sort].name == NULL) {
        s->sort = -1;
    }
}

static void type_filter(struct screen *s, int key)
{
    size_t len = strlen(s->filter);
    if (key == '\r' || key == KEY_ENTER || key == 27) {
        s->typing = false;
        s->filter[key == 27 ? 0 : len] = 0;
    } else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && len > 0) {
        s->filter[len - 1] = 0;
    } else if (key >= 32 && key < 127 && len + 1 < sizeof(s->filter)) {
        s->filter[len] = (char)key;
        s->filter[len + 1] = 0;
    }
}

static void move_selection(struct screen *s, long by)
{
    long to = (long)s->selected + by, last = (long)s->count - 1;
    s->selected = (size_t)(to < 0 ? 0 : to > last ? (last < 0 ? 0 : last) : to);
}

/* Returns false to end. */
static bool press(struct screen *s, int key)
{
    if (s->typing) {
        type_filter(s, key);
        return true;
    }
    switch (key) {
    case 'q':
        return false;
    case KEY_DOWN:
    case 'j':
        move_selection(s, 1);
        break;
    case KEY_UP:
    case 'k':
        move_selection(s, -1);
        break;
    case KEY_NPAGE:
        move_selection(s, LINES > 8 ? LINES - 8 : 1);
        break;
    case KEY_PPAGE:
        move_selection(s, -(LINES > 8 ? LINES - 8 : 1));
        break;
    case KEY_HOME:
        s->selected = 0;
        break;
    case KEY_END:
        move_selection(s, (long)s->count);
        break;
    case '\r':
    case KEY_ENTER:
    case KEY_RIGHT:
        go_in(s);
        break;
    case 27:
    case KEY_LEFT:
    case KEY_BACKSPACE:
        go_back(s);
        break;
    case 's':
        next_column(s);
        break;
    case 'r':
        s->reverse = !s->reverse;
        break;
    case '/':
        s->typing = true;
        s->filter[0] = 0;
        break;
    case 'm':
        enter(s, s->view == VIEW_MEMBERS ? VIEW_RUNS : VIEW_MEMBERS);
        break;
    case 'p':
        s->paused = !s->paused;
        break;
    default:
        break;
    }
    return true;
}

static void loop(struct screen *s)
{
    uint64_t next = 0;
    bool look = true;
    while (!ended) {
        uint64_t now = monotonic_ns();
        if (look || (!s->paused && now >= next)) {
            gather(s);
            uint64_t took = monotonic_ns() - now;
            /* Never more than a fifth of the time, however large the run. */
            next = monotonic_after(s->interval_ns > 5 * took ? s->interval_ns : 5 * took);
        }
        draw(s);
        now = monotonic_ns();
        uint64_t wait = s->paused ? RF_SECOND : next > now ? next - now : 0;
        wait = wait < LONGEST_WAIT ? wait : LONGEST_WAIT;
        timeout((int)(wait / RF_MILLISECOND) + 1);
        int key = getch();
        look = key != ERR && key != KEY_RESIZE && key != 'p';
        if (key != ERR && !press(s, key)) {
            return;
        }
    }
}

static bool open_screen(void)
{
    const char *no = getenv("NO_COLOR");
    int known = 0;
    if (setupterm(NULL, STDOUT_FILENO, &known) != OK) {
        return false;
    }
    SCREEN *screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        return false;
    }
    set_term(screen);
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    set_escdelay(50);
    curs_set(0);
    if ((no == NULL || no[0] == 0) && has_colors()) {
        start_color();
        use_default_colors();
        init_pair(OUT_GREEN, COLOR_GREEN, -1);
        init_pair(OUT_YELLOW, COLOR_YELLOW, -1);
        init_pair(OUT_RED, COLOR_RED, -1);
        init_pair(OUT_BLUE, COLOR_BLUE, -1);
    }
    return true;
}

static int run_top(struct cli *cli)
{
    static struct screen s;
    s = (struct screen){.cli = cli,
                        .name = cli->args.words[0],
                        .sort = -1,
                        .interval_ns = arg_number(&cli->args, "interval", RF_SECOND)};
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        return cli_fail(EXIT_USAGE, "top draws on a terminal; `ringfence status` and `ringfence "
                                    "metrics` print the same numbers");
    }
    int code = open_to_look(cli, s.name, &s.store);
    if (code != EXIT_DONE) {
        return code;
    }
    if (!open_screen()) {
        rf_close(s.store);
        return cli_fail(EXIT_USAGE, "this terminal (TERM=%s) is not known",
                        getenv("TERM") == NULL ? "" : getenv("TERM"));
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    loop(&s);
    endwin();
    rf_close(s.store);
    free(s.rows);
    free(s.old);
    return EXIT_DONE;
}

const struct command command_top = {
    .name = "top",
    .synopsis = "DIR",
    .summary = "watch runs, members and shards on the screen",
    .text =
        "Keys: arrows or j and k move, Enter goes into a run or a shard, Esc goes back, s sorts by the "
        "next column and r the other way round, / shows only lines with what is typed, m shows "
        "members, p stops the picture, q quits. Lag is what is not on the disk yet; a lock that a process "
        "holds on to is shown in red. Looks only; a run of a million shards is looked at "
        "less often, so that watching never takes more than a fifth of a processor.",
    .examples = "ringfence top ./farm",
    .options = top_options,
    .min_words = 1,
    .max_words = 1,
    .tenant = true,
    .reveals = true,
    .run = run_top,
};
