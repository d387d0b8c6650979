#include "supervisor.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "memory.h"
#include "worker.h"

#define TICK_MS        100
#define LEAVE_NS       (2 * RF_SECOND) /* for the others, when one has seen that all is done */
#define BACKOFF_MIN_NS (10 * RF_MILLISECOND)
#define BACKOFF_MAX_NS RF_SECOND

struct slot {
    pid_t pid; /* 0: nobody */
    bool ended;
    unsigned row;         /* restarts in a row without a commit */
    uint64_t commits;     /* when it was started */
    uint64_t start_at_ns; /* the next one */
};

struct crew {
    struct farm *farm;
    struct slot slots[WORKERS_MAX];
    unsigned count;
    unsigned interrupts;
    uint64_t restarts;
    uint64_t began_ns, done_bytes, done_findings;
    uint64_t leave_by_ns; /* 0: there is work */
    bool show;
    unsigned rows; /* of what is shown now */
};

static uint64_t monotonic_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

static void start(struct crew *crew, unsigned index)
{
    struct slot *slot = &crew->slots[index];
    struct farm *farm = crew->farm;
    slot->commits = atomic_load(&farm->counters->commits[index]);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        close(farm->lock);
        if (farm->options->uncoordinated) {
            worker_main_uncoordinated(farm, index);
        }
        worker_main(farm, index);
    }
    if (pid < 0) { /* no room for processes just now: like one that died at once */
        slot->row++;
        slot->start_at_ns = monotonic_ns() + BACKOFF_MAX_NS;
        slot->ended = slot->row > farm->options->restarts;
        return;
    }
    slot->pid = pid;
}

/* The first restart comes at once; those that follow without a commit in between come later and
 * later, and then no more. */
static void on_death(struct crew *crew, unsigned index, int how)
{
    struct slot *slot = &crew->slots[index];
    const struct options *o = crew->farm->options;
    slot->pid = 0;
    bool done = WIFEXITED(how) && WEXITSTATUS(how) == WORKER_DONE;
    if (done && !o->uncoordinated && crew->leave_by_ns == 0) {
        crew->leave_by_ns = monotonic_ns() + LEAVE_NS;
    }
    if (done || (WIFEXITED(how) && WEXITSTATUS(how) == WORKER_DRAINED) || o->uncoordinated ||
        crew->interrupts > 0 || crew->leave_by_ns != 0) {
        slot->ended = true;
        return;
    }
    if (atomic_load(&crew->farm->counters->commits[index]) != slot->commits) {
        slot->row = 0;
    }
    if (slot->row == o->restarts) {
        slot->ended = true;
        return;
    }
    uint64_t wait = 0;
    if (slot->row > 0) {
        unsigned doubled = slot->row - 1 < 7 ? slot->row - 1 : 7;
        wait = BACKOFF_MIN_NS << doubled;
        wait = wait < BACKOFF_MAX_NS ? wait : BACKOFF_MAX_NS;
    }
    slot->row++;
    crew->restarts++;
    slot->start_at_ns = monotonic_ns() + wait;
}

static void reap(struct crew *crew)
{
    int how;
    for (pid_t pid; (pid = waitpid(-1, &how, WNOHANG)) > 0;) {
        for (unsigned i = 0; i < crew->count; i++) {
            if (crew->slots[i].pid == pid) {
                on_death(crew, i, how);
            }
        }
    }
}

static void tell_all(const struct crew *crew, int signal)
{
    for (unsigned i = 0; i < crew->count; i++) {
        if (crew->slots[i].pid != 0) {
            kill(crew->slots[i].pid, signal);
        }
    }
}

static void interrupt(struct crew *crew)
{
    crew->interrupts++;
    if (crew->show && crew->rows > 0) {
        fputc('\n', stderr);
        crew->rows = 0;
    }
    if (crew->interrupts == 1) {
        fputs("rf-scan: finishing what is begun; Ctrl-C again to stop at once\n", stderr);
    }
    tell_all(crew, crew->interrupts == 1 ? SIGTERM : SIGKILL);
}

/* --- what people see --- */

static void size_text(char *out, size_t out_size, double bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    unsigned unit = 0;
    for (; bytes >= 1000 && unit < 4; unit++) {
        bytes /= 1000;
    }
    snprintf(out, out_size, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

#define LINE_MAX_COLUMNS 160u
#define LINES_MAX        2u
#define BAR_WIDE         20u
#define BAR_NARROW       10u

/* Lines of parts, the most important first, of which they take what fits. */
struct lines {
    char text[LINES_MAX][LINE_MAX_COLUMNS + 1];
    size_t columns; /* they may have */
    unsigned used;
    bool full;
};

static void add_part(struct lines *lines, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void add_part(struct lines *lines, const char *format, ...)
{
    char part[128];
    va_list args;
    va_start(args, format);
    vsnprintf(part, sizeof(part), format, args);
    va_end(args);
    if (!lines->full && strlen(lines->text[lines->used]) + strlen(part) > lines->columns) {
        lines->full = lines->used + 1 == LINES_MAX || lines->text[lines->used][0] == '\0';
        lines->used += !lines->full;
    }
    lines->full = lines->full || strlen(part) > lines->columns;
    if (!lines->full) {
        strcat(lines->text[lines->used], part);
    }
}

/* One less than the terminal has: in its last column some go on to the next line. */
static size_t line_columns(void)
{
    struct winsize size;
    size_t columns =
        ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    return columns - 1 < LINE_MAX_COLUMNS ? columns - 1 : LINE_MAX_COLUMNS;
}

/* In place of what is shown now, at once: what is written bit by bit flickers. */
static void draw(struct crew *crew, const struct lines *lines)
{
    char frame[LINES_MAX * (LINE_MAX_COLUMNS + 8) + 8] = "\r";
    for (; crew->rows > 1; crew->rows--) {
        strcat(frame, "\033[A");
    }
    strcat(frame, "\033[J");
    crew->rows = 0;
    for (unsigned i = 0; lines != NULL && i <= lines->used; i++, crew->rows++) {
        strcat(strcat(frame, i == 0 ? "" : "\n"), lines->text[i]);
    }
    fputs(frame, stderr);
    fflush(stderr);
}

static void show(struct crew *crew, unsigned alive)
{
    const struct counters *c = crew->farm->counters;
    const struct items_header *h = crew->farm->items.header;
    double seconds = (double)(monotonic_ns() - crew->began_ns) / 1e9;
    uint64_t now_bytes = atomic_load(&c->bytes), now_files = atomic_load(&c->files);
    uint64_t passed = now_bytes + atomic_load(&c->skipped);
    double bytes = (double)(crew->done_bytes + passed), all = (double)h->bytes;
    double share = all > 0 ? bytes / all : 1;
    share = share > 1 ? 1 : share;
    struct lines lines = {.columns = line_columns()};
    unsigned cells = lines.columns < 120 ? BAR_NARROW : BAR_WIDE;
    char bar[BAR_WIDE + 1] = "", done[32], total[32], rate[32], left[32] = "--:--";
    for (unsigned i = 0; i < cells; i++) {
        bar[i] = i < (unsigned)(share * cells) ? '#' : '.';
    }
    size_text(done, sizeof(done), bytes);
    size_text(total, sizeof(total), all);
    size_text(rate, sizeof(rate), seconds > 0 ? (double)now_bytes / seconds : 0);
    if (passed > 0) {
        double seconds_left = (all - bytes) * seconds / (double)passed;
        seconds_left = seconds_left < 0 ? 0 : seconds_left > 359999 ? 359999 : seconds_left;
        snprintf(left, sizeof(left), "%02u:%02u", (unsigned)seconds_left / 60,
                 (unsigned)seconds_left % 60);
    }
    add_part(&lines, "%3.0f%% [%s]", share * 100, bar);
    add_part(&lines, " %s/%s", done, total);
    add_part(&lines, "  %s left", left);
    add_part(&lines, "  %llu found",
             (unsigned long long)(crew->done_findings + atomic_load(&c->findings)));
    add_part(&lines, "  %s/s", rate);
    add_part(&lines, "  %.0f files/s", seconds > 0 ? (double)now_files / seconds : 0);
    add_part(&lines, "  %u workers", alive);
    add_part(&lines, "  %llu splits", (unsigned long long)atomic_load(&c->splits));
    add_part(&lines, "  %llu restarts", (unsigned long long)crew->restarts);
    draw(crew, &lines);
}

/* --- the loop --- */

/* Starts whose time has come. Returns how long to sleep, and how many are at work or will be. */
static int tend(struct crew *crew, unsigned *alive, unsigned *open)
{
    uint64_t now = monotonic_ns(), next = now + TICK_MS * RF_MILLISECOND;
    *alive = *open = 0;
    if (crew->leave_by_ns != 0 && crew->leave_by_ns <= now) {
        tell_all(crew, SIGKILL); /* stopped ones, for whom all of this would wait */
        crew->leave_by_ns = UINT64_MAX;
    }
    for (unsigned i = 0; i < crew->count; i++) {
        struct slot *slot = &crew->slots[i];
        if (slot->pid == 0 && (crew->interrupts > 0 || crew->leave_by_ns != 0)) {
            slot->ended = true;
        }
        if (slot->pid == 0 && !slot->ended && slot->start_at_ns <= now) {
            start(crew, i);
        }
        if (!slot->ended && slot->pid == 0 && slot->start_at_ns < next) {
            next = slot->start_at_ns;
        }
        *alive += slot->pid != 0;
        *open += !slot->ended;
    }
    return next <= now ? 0 : (int)((next - now) / RF_MILLISECOND) + 1;
}

struct supervised supervise(struct farm *farm, uint64_t done_bytes, uint64_t done_findings)
{
    static struct crew crew;
    crew = (struct crew){.farm = farm,
                         .count = farm->options->workers,
                         .began_ns = monotonic_ns(),
                         .done_bytes = done_bytes,
                         .done_findings = done_findings,
                         .show = !farm->options->quiet && isatty(STDERR_FILENO) == 1};
    sigset_t heard, before;
    sigemptyset(&heard);
    sigaddset(&heard, SIGINT);
    sigaddset(&heard, SIGTERM);
    sigaddset(&heard, SIGHUP);
    sigaddset(&heard, SIGCHLD);
    sigprocmask(SIG_BLOCK, &heard, &before);
    int signals = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
    unsigned alive, open;
    int sleep_ms;
    while (sleep_ms = tend(&crew, &alive, &open), open > 0) {
        if (crew.show) {
            show(&crew, alive);
        }
        poll(&(struct pollfd){.fd = signals, .events = POLLIN}, 1, sleep_ms);
        struct signalfd_siginfo info;
        while (read(signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            if (info.ssi_signo != SIGCHLD) {
                interrupt(&crew);
            }
        }
        reap(&crew);
    }
    if (crew.show) {
        show(&crew, 0);
        draw(&crew, NULL);
    }
    close(signals);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return (struct supervised){.interrupted = crew.interrupts > 0, .restarts = crew.restarts};
}
