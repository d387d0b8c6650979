/* work: the supervisor. See work.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands.h"
#include "progress_bar.h"
#include "work.h"

extern char **environ;

#define DRAW_NS       (200 * RF_MILLISECOND)
#define PLAIN_LINE_NS (10 * RF_SECOND)

static const struct option_spec work_options[] = {
    {"workers", 'j', OPTION_NUMBER, "N", "how many at once [number of processors]"},
    {"lines", 0, OPTION_FLAG, NULL, "each line of standard input is an item of the run"},
    {"lines-per-shard", 'N', OPTION_NUMBER, "N", "with --lines: so many lines a shard [1]"},
    {"pipe", 0, OPTION_FLAG, NULL, "with --lines: items on the command's input, not as arguments"},
    {"ahead", 0, OPTION_NUMBER, "N", "with --lines: shards that may wait [10000]"},
    {"lease", 0, OPTION_DURATION, "TIME", "with --lines: the lease of a run that it makes [30s]"},
    {"joblog", 0, OPTION_TEXT, "FILE",
     "append a line a command, as GNU parallel does; Seq is the shard"},
    {"timeout", 0, OPTION_DURATION, "TIME", "end a command that takes longer; it has failed"},
    {"grace", 0, OPTION_DURATION, "TIME", "from SIGTERM to SIGKILL [5s]"},
    {"retries", 0, OPTION_NUMBER, "N", "try a command that failed again so often [2]"},
    {"backoff", 0, OPTION_DURATION, "TIME", "before the first retry; twice as long each time [1s]"},
    {"restarts", 0, OPTION_NUMBER, "N", "workers that may die and be replaced [10 a worker]"},
    {"halt", 0, OPTION_TEXT, "WHEN", "never, or soon or now with ,fail=N ,success=N or ,done=N"},
    {"ungroup", 'u', OPTION_FLAG, NULL, "pass output through as it comes, mixed"},
    {"no-complete", 0, OPTION_FLAG, NULL, "leave the run active when all its shards are done"},
    {"dry-run", 0, OPTION_FLAG, NULL, "print what would be run (items: --reveal), and run nothing"},
    {"quiet", 'q', OPTION_FLAG, NULL, "no progress and no summary"},
    {0},
};

/* --- options --- */

static bool parse_halt(const char *text, struct work *w)
{
    static const char *const whats[] = {"fail=", "success=", "done="};
    if (strcmp(text, "never") == 0) {
        return true;
    }
    size_t len = strcspn(text, ",");
    if (text[len] == 0 ||
        ((len != 4 || memcmp(text, "soon", 4) != 0) && (len != 3 || memcmp(text, "now", 3) != 0))) {
        return false;
    }
    w->halt_when = len == 4 ? HALT_SOON : HALT_NOW;
    text += len + 1;
    for (unsigned i = 0; i < 3; i++) {
        if (strncmp(text, whats[i], strlen(whats[i])) == 0) {
            w->halt_what = (enum halt_what)i;
            return parse_number(text + strlen(whats[i]), &w->halt_count) && w->halt_count > 0;
        }
    }
    return false;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

static int read_work(struct cli *cli, struct work *w)
{
    const struct args *a = &cli->args;
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t workers = arg_number(a, "workers", processors > 0 ? (uint64_t)processors : 1);
    *w = (struct work){
        .cli = cli,
        .store_name = a->words[0],
        .command = a->rest,
        .command_count = a->rest_count,
        .workers = (uint32_t)workers,
        .timeout_ns = at_most(arg_number(a, "timeout", 0), NEVER_NS),
        .grace_ns = at_most(arg_number(a, "grace", 5 * RF_SECOND), NEVER_NS),
        .retries = arg_number(a, "retries", 2),
        .backoff_ns = arg_number(a, "backoff", RF_SECOND),
        .restarts = arg_number(a, "restarts", 10 * workers),
        .lines = arg_given(a, "lines"),
        .pipe = arg_given(a, "pipe"),
        .lines_per_shard = arg_number(a, "lines-per-shard", 1),
        .ahead = arg_number(a, "ahead", 10000),
        .ungroup = arg_given(a, "ungroup"),
        .keep_open = arg_given(a, "no-complete"),
        .quiet = arg_given(a, "quiet"),
        .joblog = arg_text(a, "joblog", NULL),
        .config = {.lease_duration = arg_number(a, "lease", 30 * RF_SECOND)},
        .board_fd = -1,
        .bell_fd = -1,
    };
    int code = read_id("RUN", a->words[1], &w->run);
    if (code != EXIT_DONE) {
        return code;
    }
    if (a->rest == NULL || a->rest_count == 0) {
        return cli_fail(EXIT_USAGE,
                        "which command? ringfence work DIR RUN [options] -- COMMAND...");
    }
    if (workers == 0 || workers > WORKERS_MAX) {
        return cli_fail(EXIT_USAGE, "--workers is 1 to %u", WORKERS_MAX);
    }
    if (w->lines_per_shard == 0 || w->ahead == 0) {
        return cli_fail(EXIT_USAGE, "--lines-per-shard and --ahead are at least 1");
    }
    if (w->lines_per_shard > LINES_MAX) {
        return cli_fail(EXIT_USAGE, "--lines-per-shard is at most %u: more lines fit no shard",
                        LINES_MAX);
    }
    if (w->config.lease_duration == 0) {
        return cli_fail(EXIT_USAGE, "--lease is more than 0");
    }
    if (!w->lines && (w->pipe || arg_given(a, "lines-per-shard") || arg_given(a, "lease"))) {
        return cli_fail(EXIT_USAGE, "--pipe, --lines-per-shard and --lease belong to --lines");
    }
    if (arg_given(a, "json") && !arg_given(a, "dry-run")) {
        return cli_fail(EXIT_USAGE,
                        "--json belongs to --dry-run: else commands print what they like");
    }
    if (!parse_halt(arg_text(a, "halt", "never"), w)) {
        return cli_fail(EXIT_USAGE, "--halt is never, or as in soon,fail=1 and now,done=10");
    }
    return EXIT_DONE;
}

/* A run that has not ended. */
static rf_status find_run(const struct work *w, rf_store *store, rf_run_info *run)
{
    rf_status status = rf_get_run(store, &w->cli->tenant, w->run, run, &w->cli->detail);
    return status == RF_OK && run->status > RF_RUN_ACTIVE ? RF_RUN_TERMINAL : status;
}

/* --- dry run --- */

struct rehearsal {
    const struct work *work;
    uint64_t shards;
};

/* The words in front of which others may have been printed. */
static void show_words(char **words, const char *before)
{
    for (size_t i = 0; words[i] != NULL; i++) {
        printf("%s%s", i == 0 ? before : " ", shell_word(words[i]));
    }
    putchar('\n');
}

static bool show_shard(void *context, const rf_shard_info *s)
{
    struct rehearsal *r = context;
    const struct work *w = r->work;
    char **words = expand_command(w, NULL, s->shard, 0);
    r->shards++;
    if (out_is_json()) {
        out_row();
        out_id("shard", s->shard);
        out_bytes("start", s->spec.start);
        out_bytes("end", s->spec.end);
        out_bytes("cursor_key", s->cursor.key);
        out_words("words", words);
    } else {
        printf("RINGFENCE_SHARD=%s", id_text(s->shard));
        if (w->cli->reveal) {
            printf(" RINGFENCE_START=%s RINGFENCE_END=%s RINGFENCE_CURSOR_KEY=%s",
                   bytes_text(s->spec.start), bytes_text(s->spec.end), bytes_text(s->cursor.key));
        }
        show_words(words, " ");
    }
    free_words(words);
    return true;
}

static void show_lines(void *context, uint64_t shard, rf_spec spec, rf_cursor cursor)
{
    struct rehearsal *r = context;
    struct items items = items_of(spec, cursor);
    if (!r->work->cli->reveal) {
        hide_items(&items);
    }
    char **words = expand_command(r->work, &items, shard, 0);
    r->shards++;
    if (out_is_json()) {
        out_row();
        out_id("shard", shard);
        out_words("words", words);
    } else {
        show_words(words, "");
    }
    free_words(words);
    free_items(&items);
}

static bool show_lines_left(void *context, const rf_shard_info *s)
{
    show_lines(context, s->shard, s->spec, s->cursor);
    return true;
}

/* As the supervisor reads them, but without a run. */
static int rehearse_lines(struct work *w, rf_store *store, struct rehearsal *r)
{
    struct line_feed feed = {.show = show_lines, .context = r};
    int code = feed_rehearse(w, store, &feed);
    if (code == EXIT_DONE && feed.registered) {
        rf_status status = rf_list_shards(store, rf_now(store), &w->cli->tenant, w->run,
                                          RF_LIST_ACTIVE, show_lines_left, r, &w->cli->detail);
        code = status == RF_OK ? EXIT_DONE
                               : cli_refuse(status, &w->cli->detail, 0, "run %s", id_text(w->run));
    }
    while (code == EXIT_DONE && !feed.finished) {
        poll(&(struct pollfd){.fd = STDIN_FILENO, .events = POLLIN}, 1, -1);
        code = feed_read(w, store, &feed);
    }
    free(feed.buffer);
    return code;
}

static int rehearse_shards(struct work *w, rf_store *store, struct rehearsal *r)
{
    rf_run_info run;
    rf_status status = find_run(w, store, &run);
    if (status == RF_OK) {
        status = rf_list_shards(store, rf_now(store), &w->cli->tenant, w->run, RF_LIST_ACTIVE,
                                show_shard, r, &w->cli->detail);
    }
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &w->cli->detail, 0, "run %s", id_text(w->run));
}

static int rehearse(struct work *w)
{
    rf_store *store;
    struct rehearsal r = {.work = w};
    int code = open_to_look(w->cli, w->store_name, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    out_list_begin();
    code = w->lines ? rehearse_lines(w, store, &r) : rehearse_shards(w, store, &r);
    out_list_end();
    rf_close(store);
    if (code == EXIT_DONE) {
        fflush(stdout);
        fprintf(stderr, "ringfence: %" PRIu64 " shards, %" PRIu32 " workers; nothing was run\n",
                r.shards, w->workers);
    }
    return code;
}

/* --- the board --- */

static int make_board(struct work *w)
{
    pthread_mutexattr_t attributes;
    w->board_fd = memfd_create("ringfence-board", 0); /* for the workers to inherit */
    w->bell_fd = eventfd(0, EFD_NONBLOCK);
    if (w->board_fd < 0 || w->bell_fd < 0 || ftruncate(w->board_fd, sizeof(*w->board)) != 0) {
        return cli_fail(EXIT_NO_ROOM, "no memory to share with workers: %s", strerror(errno));
    }
    w->board = mmap(NULL, sizeof(*w->board), PROT_READ | PROT_WRITE, MAP_SHARED, w->board_fd, 0);
    if (w->board == MAP_FAILED) {
        return cli_fail(EXIT_NO_ROOM, "no memory to share with workers: %s", strerror(errno));
    }
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&w->board->output, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return EXIT_DONE;
}

/* A worker is this program, called with the same words and a place at the board. */
static int join_board(struct work *w, const char *place)
{
    struct stat st;
    unsigned seat;
    if (sscanf(place, "%d,%d,%u", &w->board_fd, &w->bell_fd, &seat) != 3 || seat >= w->workers ||
        fstat(w->board_fd, &st) != 0 || st.st_size != (off_t)sizeof(*w->board)) {
        return cli_fail(EXIT_USAGE, "RINGFENCE_BOARD is for workers only; unset it");
    }
    w->board = mmap(NULL, sizeof(*w->board), PROT_READ | PROT_WRITE, MAP_SHARED, w->board_fd, 0);
    if (w->board == MAP_FAILED) {
        return cli_fail(EXIT_NO_ROOM, "no memory to share with workers: %s", strerror(errno));
    }
    fcntl(w->board_fd, F_SETFD, FD_CLOEXEC);
    fcntl(w->bell_fd, F_SETFD, FD_CLOEXEC);
    return work_as_worker(w, seat);
}

/* --- supervising --- */

struct supervisor {
    struct work *work;
    struct board *board;
    rf_store *store;
    struct line_feed feed;
    struct progress_bar bar;
    int signal_fd;
    uint64_t began_ns;
    uint64_t drawn_ns;
    uint64_t restarts_left;
    uint64_t restarts;
    rf_run_info run;
    bool draws;
    bool rung; /* since the bar was drawn: output may have wiped it out */
    bool over; /* nothing is left to do, or nothing may be done */
    bool interrupted;
    bool halted;
    bool output_lost;        /* and that was said */
    int trouble;             /* exit code */
    rf_status not_completed; /* why the run could not be, though all is done */
    uint64_t stopped_ns;     /* when commands were told to end; 0: they were not */
};

#define SAY_NS (200 * RF_MILLISECOND)

/* Whether stderr takes a line now. Nobody may read it, and then what is said is lost: a supervisor that
 * waits for a reader would not hear Ctrl-C. */
static bool takes_a_line(uint64_t ns)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&fd, 1, (int)(ns / RF_MILLISECOND)) != 0;
}

static void tell(struct supervisor *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void tell(struct supervisor *s, const char *format, ...)
{
    va_list args;
    /* Who has the lock may be stuck with standard output; this is another file, more often than not. */
    bool locked = output_lock_within(s->board, SAY_NS);
    if (takes_a_line(SAY_NS)) {
        bar_clear(&s->bar, stderr);
        fprintf(stderr, "ringfence: ");
        va_start(args, format);
        vfprintf(stderr, format, args);
        va_end(args);
        fputc('\n', stderr);
    }
    if (locked) {
        output_unlock(s->board);
    }
}

static bool start_worker(struct supervisor *s, uint32_t number)
{
    struct seat *seat = &s->board->seats[number];
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t none;
    size_t n = 0;
    pid_t pid;
    while (environ[n] != NULL) {
        n++;
    }
    char board[64], supervisor[48], **environment = calloc(n + 3, sizeof(*environment));
    if (environment == NULL) {
        return false;
    }
    snprintf(board, sizeof(board), "RINGFENCE_BOARD=%d,%d,%" PRIu32, s->work->board_fd,
             s->work->bell_fd, number);
    snprintf(supervisor, sizeof(supervisor), "RINGFENCE_SUPERVISOR=%d", (int)getpid());
    environment[0] = board;
    environment[1] = supervisor;
    memcpy(environment + 2, environ, n * sizeof(*environment));
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    int error =
        posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, s->work->cli->argv, environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    free(environment);
    if (error != 0) {
        tell(s, "a worker can't be started: %s", strerror(error));
        return false;
    }
    atomic_store(&seat->state, SEAT_IDLE);
    atomic_store(&seat->worker, pid);
    return true;
}

static uint32_t count_workers(const struct supervisor *s, bool running)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->work->workers; i++) {
        const struct seat *seat = &s->board->seats[i];
        count += atomic_load(&seat->worker) != 0 &&
                 (!running || atomic_load(&seat->state) == SEAT_RUNNING);
    }
    return count;
}

static void drain(struct supervisor *s)
{
    atomic_store(&s->board->drain, 1);
}

static void stop_commands(struct supervisor *s)
{
    drain(s);
    atomic_store(&s->board->stop, 1);
    s->stopped_ns = s->stopped_ns != 0 ? s->stopped_ns : monotonic_ns();
    for (uint32_t i = 0; i < s->work->workers; i++) {
        pid_t pid = atomic_load(&s->board->seats[i].worker);
        if (pid > 0) {
            kill(pid, SIGTERM); /* so that it looks at the board */
        }
    }
}

/* They end with their commands, unless they are blocked: in a write that nobody reads, mostly. Killed,
 * they lose nothing but that: a lease ends with its worker. */
static void kill_blocked(struct supervisor *s)
{
    if (s->stopped_ns == 0 || monotonic_ns() - s->stopped_ns < s->work->grace_ns + BLOCKED_NS) {
        return;
    }
    for (uint32_t i = 0; i < s->work->workers; i++) {
        pid_t pid = atomic_load(&s->board->seats[i].worker);
        if (pid > 0) {
            kill(pid, SIGKILL);
        }
    }
}

/* A worker can't go on, and has said why unless it is what the commands print. */
static void stop_for_good(struct supervisor *s)
{
    static const char *const streams[] = {"output", "error"};
    for (int i = 0; i < 2; i++) {
        int error = atomic_exchange(&s->board->lost_output[i], 0);
        if (error != 0 && !s->output_lost) {
            s->output_lost = true;
            s->trouble = EXIT_IO;
            tell(s, "standard %s can't be written: %s", streams[i], strerror(error));
        }
    }
    int code = atomic_load(&s->board->trouble);
    s->trouble = s->trouble != EXIT_DONE ? s->trouble : code != EXIT_DONE ? code : EXIT_INCOMPLETE;
    stop_commands(s);
}

static void worker_ended(struct supervisor *s, uint32_t number, int status)
{
    struct seat *seat = &s->board->seats[number];
    pid_t command = atomic_exchange(&seat->command, 0);
    atomic_store(&seat->worker, 0);
    atomic_store(&seat->state, SEAT_EMPTY);
    if (command > 0) {
        kill(-command, SIGKILL); /* it outlived its worker, and so did its lease not */
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == WORKER_DONE) {
        return;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == WORKER_FATAL) {
        stop_for_good(s);
        return;
    }
    if (atomic_load(&s->board->drain)) {
        return;
    }
    const char *how =
        WIFSIGNALED(status)
            ? keep_format("was ended by signal %d", WTERMSIG(status))
            : keep_format("ended with %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    if (s->restarts_left == 0) {
        atomic_store(&seat->state, SEAT_GIVEN_UP);
        tell(s, "worker %" PRIu32 " %s, and the budget of restarts is used up", number + 1, how);
        if (count_workers(s, false) == 0) {
            s->trouble = EXIT_INCOMPLETE;
        }
        return;
    }
    s->restarts_left--;
    s->restarts++;
    tell(s, "worker %" PRIu32 " %s; another takes its place", number + 1, how);
    start_worker(s, number);
}

static void reap(struct supervisor *s)
{
    int status;
    pid_t pid;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (uint32_t i = 0; i < s->work->workers; i++) {
            if (atomic_load(&s->board->seats[i].worker) == pid) {
                worker_ended(s, i, status);
                break;
            }
        }
    }
}

static void take_signals(struct supervisor *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            continue; /* reap() looks anyway */
        }
        bool again = s->interrupted;
        s->interrupted = true;
        if (info.ssi_signo == SIGINT && !again) {
            drain(s);
            tell(s,
                 "no more shards are taken; %" PRIu32 " commands run to their end (once more "
                 "ends them and releases their shards)",
                 count_workers(s, true));
        } else {
            stop_commands(s);
        }
    }
}

/* False if somebody is in the way. Somebody else may have been faster, which is as good. */
static bool complete_run(struct supervisor *s)
{
    const struct work *w = s->work;
    rf_result result = {0};
    rf_status status = rf_complete_run(s->store, rf_now(s->store), &w->cli->tenant, w->run,
                                       rf_new_op(s->store), &result);
    s->not_completed = status == RF_RUN_TERMINAL ? RF_OK : status;
    w->cli->detail = result.detail;
    if (status == RF_OK || status == RF_RUN_TERMINAL) {
        rf_get_run(s->store, &w->cli->tenant, w->run, &s->run, NULL);
    }
    return status != RF_BUSY;
}

bool is_halted(const struct work *w)
{
    uint64_t done = atomic_load(&w->board->done), parked = atomic_load(&w->board->parked);
    uint64_t reached = w->halt_what == HALT_FAIL      ? parked
                       : w->halt_what == HALT_SUCCESS ? done
                                                      : done + parked;
    return w->halt_when != HALT_NEVER && reached >= w->halt_count;
}

/* How far the run is, and whether this is the end. */
static void judge(struct supervisor *s)
{
    const struct work *w = s->work;
    rf_status status = rf_get_run(s->store, &w->cli->tenant, w->run, &s->run, &w->cli->detail);
    if (status != RF_OK) {
        if (!s->over) { /* else it has ended, and was purged */
            s->trouble = cli_refuse(status, &w->cli->detail, 0, "run %s", id_text(w->run));
            stop_commands(s);
            s->over = true;
        }
        return;
    }
    const rf_run_info *r = &s->run;
    uint64_t active = r->shard_count - r->done - r->parked - r->split;
    bool all_known = !w->lines || s->feed.finished;
    if (r->status > RF_RUN_ACTIVE) {
        s->over = true;
        drain(s);
    } else if (!s->over && all_known && active == 0 &&
               (r->status == RF_RUN_ACTIVE || (w->lines && !s->feed.registered))) {
        bool complete = r->parked == 0 && !w->keep_open && r->status == RF_RUN_ACTIVE;
        if (complete && !complete_run(s)) {
            return; /* once more, soon */
        }
        s->over = true;
        drain(s);
    }
    if (!s->halted && !s->over && is_halted(w)) {
        s->halted = true;
        tell(s, "halting: %" PRIu64 " of the run's shards are done, %" PRIu64 " parked", r->done,
             r->parked);
        if (w->halt_when == HALT_NOW) {
            stop_commands(s);
        } else {
            drain(s);
        }
    }
}

static void show_progress(struct supervisor *s, bool last)
{
    uint64_t now = monotonic_ns();
    uint64_t every = !s->draws ? PLAIN_LINE_NS : s->rung ? DRAW_NS / 5 : DRAW_NS;
    if (s->work->quiet || last || now - s->drawn_ns < every) {
        return;
    }
    s->drawn_ns = now;
    s->rung = false;
    const rf_run_info *r = &s->run;
    if (!s->draws) {
        tell(s, "run %s: %" PRIu64 " of %" PRIu64 " done, %" PRIu64 " parked, %" PRIu32 " running",
             id_text(s->work->run), r->done, r->shard_count - r->split, r->parked,
             count_workers(s, true));
        return;
    }
    if (!output_lock_within(s->board, 0)) {
        return; /* somebody prints; soon again */
    }
    if (!takes_a_line(0)) {
        output_unlock(s->board);
        return;
    }
    bar_draw(&s->bar, stderr,
             &(struct bar_state){.run = s->work->run,
                                 .whole = r->shard_count - r->split,
                                 .done = r->done,
                                 .parked = r->parked,
                                 .running = count_workers(s, true),
                                 .more = s->work->lines && !s->feed.finished});
    output_unlock(s->board);
}

static bool wants_lines(const struct supervisor *s)
{
    const rf_run_info *r = &s->run;
    return s->work->lines && !s->feed.finished && !atomic_load(&s->board->drain) &&
           r->shard_count - r->done - r->parked - r->split < s->work->ahead;
}

static void supervise(struct supervisor *s)
{
    s->drawn_ns = monotonic_ns();
    for (;;) {
        kill_blocked(s);
        reap(s);
        judge(s);
        show_progress(s, false);
        if (count_workers(s, false) == 0) {
            break;
        }
        struct pollfd fds[3] = {{.fd = s->signal_fd, .events = POLLIN},
                                {.fd = s->work->bell_fd, .events = POLLIN},
                                {.fd = wants_lines(s) ? STDIN_FILENO : -1, .events = POLLIN}};
        poll(fds, 3, 100);
        if (fds[0].revents != 0) {
            take_signals(s);
        }
        if (fds[1].revents != 0) {
            uint64_t rings;
            s->rung = true;
            if (read(s->work->bell_fd, &rings, sizeof(rings)) < 0) {
                /* Somebody was faster; there is nobody else, so it can't be. */
            }
        }
        if (fds[2].revents != 0) {
            int code = feed_read(s->work, s->store, &s->feed);
            if (code != EXIT_DONE) {
                s->trouble = code;
                s->feed.finished = true; /* what is there is still worked on */
            }
        }
    }
}

/* Whether shards are left that somebody could work on, though all workers are gone. */
static bool has_work_left(const rf_run_info *r)
{
    return r->status == RF_RUN_ACTIVE && r->shard_count > r->done + r->parked + r->split;
}

static int conclude(struct supervisor *s)
{
    const struct work *w = s->work;
    uint64_t took = monotonic_ns() - s->began_ns;
    bool told = !takes_a_line(RF_SECOND) || w->quiet; /* nobody reads it, or wants to */
    if (s->draws && !told) {
        bar_clear(&s->bar, stderr);
    }
    if (w->lines && !s->feed.registered && s->feed.made_run) {
        /* Not a single line: nothing is left of the run that was made for them. */
        rf_cancel_run(s->store, rf_now(s->store), &w->cli->tenant, w->run, rf_new_op(s->store),
                      NULL);
        rf_purge_run(s->store, rf_now(s->store), &w->cli->tenant, w->run, NULL);
    }
    if (!told) {
        const rf_run_info *r = &s->run;
        fprintf(stderr,
                "ringfence: run %s: %" PRIu64 " of %" PRIu64 " shards done, %" PRIu64
                " parked; %" PRIu64 " done here in %s",
                id_text(w->run), r->done, r->shard_count - r->split, r->parked,
                atomic_load(&s->board->done), duration_text(took));
        uint64_t lost = atomic_load(&s->board->lost), back = atomic_load(&s->board->released);
        if (back != 0) {
            fprintf(stderr, ", %" PRIu64 " released", back);
        }
        if (lost != 0) {
            fprintf(stderr, ", %" PRIu64 " lost", lost);
        }
        if (s->restarts != 0) {
            fprintf(stderr, ", %" PRIu64 " workers restarted", s->restarts);
        }
        fputc('\n', stderr);
    }
    if (s->not_completed != RF_OK && s->trouble == EXIT_DONE) {
        s->trouble =
            cli_refuse(s->not_completed, &w->cli->detail, 0, "completing run %s", id_text(w->run));
    }
    return s->interrupted            ? EXIT_INTERRUPTED
           : s->trouble != EXIT_DONE ? s->trouble
           : s->halted || s->run.parked != 0 || has_work_left(&s->run) ||
                   atomic_load(&s->board->joblog_lost)
               ? EXIT_INCOMPLETE
           : s->run.status == RF_RUN_FAILED || s->run.status == RF_RUN_CANCELLED ? EXIT_RUN_ENDED
                                                                                 : EXIT_DONE;
}

static int open_joblog(const char *file)
{
    static const char head[] = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\t"
                               "Command\n";
    struct stat st;
    int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    bool good = fd >= 0 && fstat(fd, &st) == 0 &&
                (st.st_size != 0 || write(fd, head, sizeof(head) - 1) == (ssize_t)sizeof(head) - 1);
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return good ? EXIT_DONE : cli_fail(EXIT_IO, "%s can't be written: %s", file, strerror(error));
}

static void take_charge(struct supervisor *s)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* commands whose worker died come to us */
}

/* Whether there is work at all, before anybody is started. */
static int prepare(struct supervisor *s)
{
    struct work *w = s->work;
    if (w->lines) {
        return feed_begin(w, s->store, &s->feed);
    }
    rf_status status = find_run(w, s->store, &s->run);
    return status == RF_OK ? EXIT_DONE
                           : cli_refuse(status, &w->cli->detail, 0, "run %s", id_text(w->run));
}

static int run_work(struct cli *cli)
{
    static struct work work;
    static struct supervisor s;
    const char *place = getenv("RINGFENCE_BOARD");
    const char *tenant = arg_text(&cli->args, "tenant", NULL);
    if (tenant != NULL) {
        setenv("RINGFENCE_TENANT", tenant, 1); /* commands speak for it as well */
    }
    int code = read_work(cli, &work);
    if (code != EXIT_DONE || place != NULL) {
        return code != EXIT_DONE ? code : join_board(&work, place);
    }
    if (arg_given(&cli->args, "dry-run")) {
        return rehearse(&work);
    }
    code = work.joblog == NULL ? EXIT_DONE : open_joblog(work.joblog);
    code = code != EXIT_DONE ? code : make_board(&work);
    s = (struct supervisor){.work = &work,
                            .board = work.board,
                            .restarts_left = work.restarts,
                            .began_ns = monotonic_ns()};
    code = code != EXIT_DONE ? code : open_to_work(cli, work.store_name, &s.store);
    if (code != EXIT_DONE) {
        return code;
    }
    code = prepare(&s);
    if (code == EXIT_DONE) {
        take_charge(&s);
        s.draws = !work.quiet && stream_width(stderr) > 0;
        atomic_store(&s.board->bar, s.draws);
        for (uint32_t i = 0; i < work.workers && s.trouble == EXIT_DONE; i++) {
            s.trouble = start_worker(&s, i) ? EXIT_DONE : EXIT_NO_ROOM;
        }
        if (s.trouble != EXIT_DONE) {
            stop_commands(&s);
        }
        supervise(&s);
        code = conclude(&s);
    }
    free(s.feed.buffer);
    rf_close(s.store);
    return code;
}

const struct command command_work = {
    .name = "work",
    .synopsis = "DIR RUN [options] -- COMMAND...",
    .summary = "work on a run: start a command for every shard, with many workers",
    .text =
        "Each worker claims a shard and starts COMMAND with these in its environment: "
        "RINGFENCE_SHARD, RINGFENCE_START and RINGFENCE_END (the range), RINGFENCE_CURSOR_KEY and "
        "RINGFENCE_CURSOR_TOKEN (where somebody before got to; empty at first), RINGFENCE_METADATA, "
        "RINGFENCE_FENCE, RINGFENCE_LEASE, RINGFENCE_STORE, RINGFENCE_RUN, RINGFENCE_WORKER, "
        "RINGFENCE_ATTEMPT, and with --tenant RINGFENCE_TENANT. Keys are encoded as everywhere, the store is a "
        "path. The lease is kept alive while COMMAND runs.\n"
        "COMMAND reports progress with `ringfence checkpoint --key KEY`, or by writing lines KEY or "
        "KEY<TAB>TOKEN to file descriptor 3. If it ends with 0 the shard is done. If it fails it is "
        "tried again, later and later, and then the shard is parked; 65, 66 and 77 (bad data, no input, "
        "no permission, as in sysexits.h) park it at once. COMMAND may also complete, park or release its "
        "shard itself, and is then left alone until it ends.\n"
        "If a lease is lost, its COMMAND gets SIGTERM, and SIGKILL after --grace. Workers that are "
        "killed are replaced; their commands are ended and their shards go to others at once. Ctrl-C "
        "lets running commands finish and tries none again; a second one, or SIGTERM, ends them and "
        "releases their shards, which keep their cursors. Workers that can't end then, because nobody "
        "reads what they print, are killed a second after --grace.\n"
        "With --lines the run is made of the lines of standard input, while it goes on. The items of a "
        "shard replace {} or else are added to COMMAND's words, {#} is the shard and {%} the worker; "
        "--pipe gives them on standard input. Lines that are left from before are worked on as well, "
        "so `</dev/null` resumes such a run; a run that was not made of lines is refused, and so are lines "
        "with a NUL byte.\n"
        "Items are printed only with --reveal: by --dry-run, and in the command of --joblog, which "
        "otherwise have (item) in their place.\n"
        "When every shard is done the run is completed. The exit code is 0 then, 1 if shards are "
        "parked, --halt ended it or --joblog could not be written to its end, 7 if somebody else ended the run, 9 if what commands print can't "
        "be written (their shards are released), 130 after Ctrl-C.",
    .examples =
        "ringfence work ./farm 1 --workers 8 -- ./scan-one-shard\n"
        "ls *.wav | ringfence work ./farm 2 --lines -- lame {}\n"
        "ringfence work ./farm 1 --halt now,fail=1 --timeout 5m -- sh -c 'scan \"$RINGFENCE_START\"'",
    .options = work_options,
    .min_words = 2,
    .max_words = -1,
    .prints = true,
    .tenant = true,
    .reveals = true,
    .run = run_work,
};
