/* One worker of `ringfence work`: claim, run the command, report, again. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lease_token.h"
#include "work.h"

extern char **environ;

#define CLAIM_SLICE_NS (100 * RF_MILLISECOND) /* how soon an idle worker notices a drain */
#define LOOK_NS_MAX    (100 * RF_MILLISECOND) /* how soon a busy one notices a lost lease */
#define REPORTS_NS     (10 * RF_MILLISECOND)  /* how long it listens before it looks again */
#define REPORT_MAX     (3 * (RF_KEY_MAX + RF_TOKEN_MAX) + 2)
#define BACKOFF_NS_MAX (60 * RF_SECOND)
#define BUSY_NS        (10 * RF_MILLISECOND) /* between tries, where somebody else has a lock */
#define MOVES_MAX      3u /* how often a cursor may move while a shard is completed */

/* Exit codes of sysexits.h that say that trying again is of no use. */
enum { DATA_ERROR = 65, NO_INPUT = 66, NO_PERMISSION = 77 };

struct worker {
    struct work *work;
    uint32_t number;
    struct seat *seat;
    struct board *board;
    rf_store *store;
    rf_session *session;
    const rf_grant *grant;
    rf_spec spec; /* as they are now: a command moves the cursor and may split its shard */
    rf_cursor cursor;
    int signal_fd;
    int joblog_fd;
    uint64_t look_ns;
    uint64_t claimed; /* a time of the store, soon after the grant */
};

/* What the command itself has made of its shard, with the lease from its environment. */
enum said { SAID_NOTHING, SAID_DONE, SAID_PARKED, SAID_RELEASED };

/* Why a command was ended before its time. */
enum why { WHY_NONE, WHY_LOST, WHY_TIMEOUT, WHY_STOP };

/* One run of the command. */
struct job {
    pid_t pid;
    int pidfd;
    int report_fd; /* where it writes its keys; we read */
    int output[2]; /* files for stdout and stderr, -1 if they are passed through */
    uint64_t began_ns;
    double began_wall;
    char report[REPORT_MAX];
    size_t report_used;
    size_t reported; /* bytes that were read */
    bool report_overlong;
    bool lines_left; /* in `report`, that were not looked at yet */
    enum why ended_by;
    uint64_t term_ns; /* when it was asked to end; 0: was not */
    bool killed;
    enum said said;
    int wait_status;
};

void output_lock(struct board *board)
{
    if (pthread_mutex_lock(&board->output) == EOWNERDEAD) {
        pthread_mutex_consistent(&board->output); /* it guards a terminal, which is as it is */
    }
}

bool output_lock_within(struct board *board, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t at = (uint64_t)until.tv_nsec + ns;
    until.tv_sec += (time_t)(at / RF_SECOND);
    until.tv_nsec = (long)(at % RF_SECOND);
    int error = pthread_mutex_timedlock(&board->output, &until);
    if (error == EOWNERDEAD) {
        pthread_mutex_consistent(&board->output);
    }
    return error == 0 || error == EOWNERDEAD;
}

void output_unlock(struct board *board)
{
    pthread_mutex_unlock(&board->output);
}

static void ring_bell(const struct work *w)
{
    uint64_t one = 1;
    if (write(w->bell_fd, &one, sizeof(one)) < 0) {
        /* The counter is full: it rings anyway. */
    }
}

static void say(struct worker *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct worker *w, const char *format, ...)
{
    va_list args;
    output_lock(w->board);
    if (atomic_load(&w->board->bar)) {
        fputs("\r\033[K", stderr);
    }
    fprintf(stderr, "ringfence: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    output_unlock(w->board);
}

/* --- starting the command --- */

static int output_file(void)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir != NULL && dir[0] != 0 ? dir : "/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    return fd >= 0 ? fd : memfd_create("ringfence-output", MFD_CLOEXEC);
}

static void set_env(char **environment, size_t *n, const char *name, const char *value)
{
    size_t size = strlen("RINGFENCE_=") + strlen(name) + strlen(value) + 1;
    environment[*n] = malloc(size);
    if (environment[*n] == NULL) {
        abort();
    }
    snprintf(environment[(*n)++], size, "RINGFENCE_%s=%s", name, value);
}

static char *encoded(rf_bytes bytes)
{
    char *text = malloc(3 * bytes.len + 1);
    if (text == NULL) {
        abort();
    }
    encode_bytes(bytes, text);
    return text;
}

static void set_bytes(char **environment, size_t *n, const char *name, rf_bytes bytes)
{
    char *text = encoded(bytes);
    set_env(environment, n, name, text);
    free(text);
}

#define OWN_VARIABLES 12

/* Ours first, then those of the worker that are not ours. */
static char **make_environment(const struct worker *w)
{
    const rf_grant *g = w->grant;
    size_t count = 0, n = 0;
    char number[32], lease[RF_LEASE_TEXT];
    while (environ[count] != NULL) {
        count++;
    }
    char **environment = calloc(count + OWN_VARIABLES + 1, sizeof(*environment));
    char *path = realpath(store_directory(w->work->store_name), NULL);
    if (environment == NULL) {
        abort();
    }
    char *store_text =
        encoded((rf_bytes){path == NULL ? "" : path, path == NULL ? 0 : strlen(path)});
    rf_lease_format(&w->work->cli->tenant, &g->lease, lease, sizeof(lease));
    char *token = NULL;
    if (asprintf(&token, "%s@%s", lease, store_text) < 0) {
        abort();
    }
    set_env(environment, &n, "LEASE", token);
    set_env(environment, &n, "STORE", path == NULL ? "" : path); /* as commands take it */
    set_env(environment, &n, "RUN", id_text(g->lease.run));
    set_env(environment, &n, "SHARD", id_text(g->lease.shard));
    snprintf(number, sizeof(number), "%" PRIu64, g->lease.fence);
    set_env(environment, &n, "FENCE", number);
    snprintf(number, sizeof(number), "%" PRIu32, g->attempts);
    set_env(environment, &n, "ATTEMPT", number);
    snprintf(number, sizeof(number), "%" PRIu32, w->number + 1);
    set_env(environment, &n, "WORKER", number);
    set_bytes(environment, &n, "START", w->spec.start);
    set_bytes(environment, &n, "END", w->spec.end);
    set_bytes(environment, &n, "METADATA", w->spec.metadata);
    set_bytes(environment, &n, "CURSOR_KEY", w->cursor.key);
    set_bytes(environment, &n, "CURSOR_TOKEN", w->cursor.token);
    free(token);
    free(store_text);
    free(path);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], "RINGFENCE_", 10) != 0 ||
            strncmp(environ[i], "RINGFENCE_TENANT=", 17) == 0) {
            environment[n++] = environ[i];
        }
    }
    return environment;
}

static void free_environment(char **environment)
{
    for (size_t i = 0; i < OWN_VARIABLES; i++) {
        free(environment[i]);
    }
    free(environment);
}

/* What the command reads: its lines, or nothing. */
static int open_stdin(const struct worker *w, const struct items *items)
{
    if (items == NULL || !w->work->pipe) {
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
    int fd = memfd_create("ringfence-lines", MFD_CLOEXEC);
    FILE *to = fd < 0 ? NULL : fdopen(dup(fd), "w");
    for (uint32_t i = 0; to != NULL && i < items->count; i++) {
        fprintf(to, "%s\n", items->item[i]);
    }
    if (to != NULL) {
        fclose(to);
        lseek(fd, 0, SEEK_SET);
    }
    return fd;
}

/* Between vfork and exec: our memory, our thread asleep. Only system calls. */
static void become_command(struct seat *seat, pid_t worker, char **words, char **environment,
                           const int fds[4], volatile int *error)
{
    sigset_t none;
    sigemptyset(&none);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != worker) {
        _exit(127); /* it died before that, and nobody would tell us */
    }
    atomic_store(&seat->command, getpid());
    /* The sources may sit at 0 to 3 themselves, if the worker was started without these. */
    int high[4];
    for (int i = 0; i < 4; i++) {
        high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 10);
        if (high[i] < 0) {
            *error = errno;
            _exit(127);
        }
    }
    for (int i = 0; i < 4; i++) {
        if (dup2(high[i], i) < 0) {
            *error = errno;
            _exit(127);
        }
    }
    signal(SIGPIPE, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execvpe(words[0], words, environment);
    *error = errno;
    _exit(127);
}

/* The thread sleeps until the child has called exec. On its own, so that nothing of a caller is kept
 * in registers meanwhile. */
static __attribute__((noinline)) pid_t spawn(struct seat *seat, char **words, char **environment,
                                             const int fds[4], volatile int *error)
{
    pid_t worker = getpid();
    pid_t pid = vfork();
    if (pid == 0) {
        become_command(seat, worker, words, environment, fds, error);
    }
    if (pid < 0) {
        *error = errno;
    }
    return pid;
}

/* Returns 0, or the errno for which the command can't be started. */
static int start(struct worker *w, struct job *job)
{
    struct items lines = {0}, *items = NULL;
    int reports[2];
    volatile int error = 0;
    if (w->work->lines) {
        lines = items_of(w->spec, w->cursor);
        items = &lines;
    }
    char **words = expand_command(w->work, items, w->grant->lease.shard, w->number);
    char **environment = make_environment(w);
    *job = (struct job){.pid = -1, .pidfd = -1, .report_fd = -1, .output = {-1, -1}};
    int input = open_stdin(w, items);
    bool grouped = !w->work->ungroup;
    if (grouped) {
        job->output[0] = output_file();
        job->output[1] = output_file();
    }
    if (input < 0 || (grouped && (job->output[0] < 0 || job->output[1] < 0)) ||
        pipe2(reports, O_CLOEXEC) != 0) {
        error = errno;
    } else {
        const int fds[4] = {input, grouped ? job->output[0] : STDOUT_FILENO,
                            grouped ? job->output[1] : STDERR_FILENO, reports[1]};
        struct timespec wall;
        clock_gettime(CLOCK_REALTIME, &wall);
        job->began_wall = (double)wall.tv_sec + (double)wall.tv_nsec / 1e9;
        job->began_ns = monotonic_ns();
        job->pid = spawn(w->seat, words, environment, fds, &error);
        job->pidfd = job->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, job->pid, 0);
        close(reports[1]);
        job->report_fd = reports[0];
        fcntl(job->report_fd, F_SETFL, O_NONBLOCK);
    }
    if (input >= 0) {
        close(input);
    }
    free_items(&lines);
    free_words(words);
    free_environment(environment);
    if (error != 0 && job->pid > 0) {
        waitpid(job->pid, NULL, 0);
        atomic_store(&w->seat->command, 0);
        job->pid = -1;
    }
    return error;
}

/* --- while it runs --- */

/* "KEY" or "KEY<TAB>TOKEN". */
static void report_line(struct worker *w, const char *line, size_t len)
{
    static uint8_t key[RF_KEY_MAX], token[RF_TOKEN_MAX];
    rf_cursor cursor = {0};
    rf_result result = {0};
    size_t key_len, token_len;
    const char *tab = memchr(line, '\t', len);
    size_t first = tab == NULL ? len : (size_t)(tab - line);
    if (len == 0) {
        return;
    }
    if (!parse_bytes_at(line, first, key, sizeof(key), &key_len) ||
        (tab != NULL &&
         !parse_bytes_at(tab + 1, len - first - 1, token, sizeof(token), &token_len))) {
        say(w, "shard %s: a line on descriptor 3 is not KEY or KEY<TAB>TOKEN, encoded",
            id_text(w->grant->lease.shard));
        return;
    }
    cursor.key = (rf_bytes){key, key_len};
    if (tab != NULL) {
        cursor.token = (rf_bytes){token, token_len};
    }
    rf_status status = rf_session_checkpoint(w->session, cursor, &result);
    if (status == RF_OK) {
        return;
    }
    if (rf_session_check(w->session) == RF_OK) { /* else look_after() finds out why */
        char why[256];
        explain(status, &result.detail, rf_now(w->store), why, sizeof(why));
        say(w, "shard %s: a checkpoint on descriptor 3 was refused: %s",
            id_text(w->grant->lease.shard), why);
    }
}

/* The whole lines that were read, until the time is up: each may wait for a disk, and who writes them
 * may write for ever. At least one. */
static void take_lines(struct worker *w, struct job *job, uint64_t until)
{
    char *from = job->report, *end;
    job->lines_left = false;
    while ((end = memchr(from, '\n', job->report_used - (size_t)(from - job->report)))) {
        if (from != job->report && monotonic_ns() >= until) {
            job->lines_left = true;
            break;
        }
        if (!job->report_overlong) {
            report_line(w, from, (size_t)(end - from));
        }
        job->report_overlong = false;
        from = end + 1;
    }
    job->report_used -= (size_t)(from - job->report);
    memmove(job->report, from, job->report_used);
    if (job->report_used == sizeof(job->report) && !job->lines_left) {
        if (!job->report_overlong) {
            say(w, "shard %s: a line on descriptor 3 is too long", id_text(w->grant->lease.shard));
        }
        job->report_overlong = true;
        job->report_used = 0;
    }
}

enum reports { REPORTS_ENDED, REPORTS_NONE, REPORTS_SOME };

/* What is there, but no more than one read and REPORTS_NS. */
static enum reports read_reports(struct worker *w, struct job *job, size_t most)
{
    uint64_t until = monotonic_ns() + REPORTS_NS;
    size_t room = sizeof(job->report) - job->report_used;
    if (job->lines_left) {
        take_lines(w, job, until);
        return REPORTS_SOME;
    }
    ssize_t n = read(job->report_fd, job->report + job->report_used, room < most ? room : most);
    if (n <= 0) {
        return n == 0 ? REPORTS_ENDED : errno == EINTR ? REPORTS_SOME : REPORTS_NONE;
    }
    job->report_used += (size_t)n;
    job->reported += (size_t)n;
    take_lines(w, job, until);
    return REPORTS_SOME;
}

/* What was written before the command's end is at most what a pipe holds; somebody whom it left behind
 * may go on writing, and is not listened to for longer. */
static void read_last_reports(struct worker *w, struct job *job)
{
    int held = fcntl(job->report_fd, F_GETPIPE_SZ);
    size_t most = job->reported + (held > 0 ? (size_t)held : 65536);
    uint64_t until = 0;
    while (job->lines_left || job->reported < most) {
        enum reports reports = read_reports(w, job, most - job->reported);
        if (reports != REPORTS_SOME) {
            break;
        }
        if (atomic_load(&w->board->stop)) {
            until = until != 0 ? until : monotonic_ns() + w->work->grace_ns;
            if (monotonic_ns() >= until) {
                break;
            }
        }
    }
}

static void ask_to_end(struct job *job, enum why why)
{
    job->ended_by = job->ended_by == WHY_NONE ? why : job->ended_by;
    if (job->term_ns == 0) {
        job->term_ns = monotonic_ns();
        kill(-job->pid, SIGTERM);
        kill(-job->pid, SIGCONT);
    }
}

static void drain_signals(struct worker *w)
{
    struct signalfd_siginfo info;
    while (read(w->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
    }
}

static bool ends_a_lease(uint8_t kind)
{
    return kind == RF_OP_COMPLETE || kind == RF_OP_PARK || kind == RF_OP_SPLIT_REPLACE ||
           kind == RF_OP_RELEASE || kind == RF_OP_UNPARK; /* that is a fence without a lease */
}

/*
 * What the store says of a shard that we may not hold any more. Others may have had it since; but every
 * one of them got a fence of its own, and ended it with one operation at most. If there are as many such
 * operations as fences, the first one is ours. Where the ring does not reach back so far it is taken for a
 * loss, which ends the command: that is safe.
 */
static enum said said_by_command(struct worker *w)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    uint64_t ends = 0, fence = w->grant->lease.fence;
    uint8_t first = 0;
    if (rf_get_shard(w->store, &w->work->cli->tenant, w->work->run, w->grant->lease.shard, &info,
                     scratch, sizeof(scratch), NULL) != RF_OK) {
        return SAID_NOTHING;
    }
    for (uint32_t i = info.ring_count; i-- > 0 && info.ring[i].executed_at >= w->claimed;) {
        if (ends_a_lease(info.ring[i].kind)) {
            ends++;
            first = info.ring[i].kind;
        }
    }
    if (ends == 0 || ends != info.fence - fence + (info.leased ? 0 : 1)) {
        return SAID_NOTHING;
    }
    return first == RF_OP_RELEASE ? SAID_RELEASED : first == RF_OP_PARK ? SAID_PARKED : SAID_DONE;
}

/* Everything that may end the command before its time. Returns how long to sleep at most. */
static uint64_t look_after(struct worker *w, struct job *job)
{
    uint64_t now = monotonic_ns(), sleep = w->look_ns;
    if (job->ended_by == WHY_NONE && job->said == SAID_NOTHING &&
        rf_session_check(w->session) != RF_OK) {
        /* The command itself may have completed, parked or released the shard: let it finish. */
        job->said = said_by_command(w);
        if (job->said == SAID_NOTHING) {
            ask_to_end(job, WHY_LOST);
        }
    }
    if (atomic_load(&w->board->stop)) {
        ask_to_end(job, WHY_STOP);
    }
    if (w->work->timeout_ns != 0) {
        uint64_t until = job->began_ns + w->work->timeout_ns;
        if (now >= until) {
            ask_to_end(job, WHY_TIMEOUT);
        } else if (until - now < sleep) {
            sleep = until - now;
        }
    }
    if (job->term_ns != 0) {
        uint64_t until = job->term_ns + w->work->grace_ns;
        if (now >= until && !job->killed) {
            job->killed = true;
            kill(-job->pid, SIGKILL);
        } else if (now < until && until - now < sleep) {
            sleep = until - now;
        }
    }
    return sleep;
}

static void wait_for(struct worker *w, struct job *job)
{
    bool reports = true;
    while (waitpid(job->pid, &job->wait_status, WNOHANG) != job->pid) {
        uint64_t sleep = look_after(w, job);
        struct pollfd fds[3] = {{.fd = job->pidfd, .events = POLLIN},
                                {.fd = w->signal_fd, .events = POLLIN},
                                {.fd = reports ? job->report_fd : -1, .events = POLLIN}};
        struct timespec t = {.tv_sec = (time_t)(sleep / RF_SECOND),
                             .tv_nsec = (long)(sleep % RF_SECOND)};
        if (job->lines_left) {
            t = (struct timespec){0};
        }
        ppoll(fds, 3, &t, NULL);
        if (fds[1].revents != 0) {
            drain_signals(w);
        }
        if (reports && (fds[2].revents != 0 || job->lines_left)) {
            reports = read_reports(w, job, sizeof(job->report)) != REPORTS_ENDED;
        }
    }
    if (reports) {
        read_last_reports(w, job);
    }
    if (job->ended_by != WHY_NONE) {
        kill(-job->pid, SIGKILL); /* whatever it has started */
    }
    atomic_store(&w->seat->command, 0);
    close(job->report_fd);
    if (job->pidfd >= 0) {
        close(job->pidfd);
    }
}

/* --- afterwards --- */

/* Returns 0 or an errno. */
static int write_whole(int to, const char *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(to, bytes + done, size - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN) {
            poll(&(struct pollfd){.fd = to, .events = POLLOUT}, 1, -1); /* whoever reads is slow */
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* false if output was lost; the board says why. */
static bool copy_output(struct worker *w, int from, int to, uint64_t *total)
{
    static char buffer[65536];
    ssize_t n;
    off_t at = 0;
    while ((n = pread(from, buffer, sizeof(buffer), at)) > 0) {
        int error = write_whole(to, buffer, (size_t)n);
        if (error != 0) {
            atomic_store(&w->board->lost_output[to == STDERR_FILENO], error);
            return false;
        }
        at += n;
        *total += (uint64_t)n;
    }
    if (n < 0) {
        atomic_store(&w->board->lost_output[to == STDERR_FILENO], errno);
        return false;
    }
    return true;
}

/* false if output was lost. */
static bool print_output(struct worker *w, struct job *job, uint64_t *bytes)
{
    bool good = true;
    *bytes = 0;
    if (job->output[0] < 0) {
        return true;
    }
    bool some = lseek(job->output[0], 0, SEEK_END) > 0 || lseek(job->output[1], 0, SEEK_END) > 0;
    if (some) {
        output_lock(w->board);
        if (atomic_load(&w->board->bar)) {
            fputs("\r\033[K", stderr);
        }
        good = copy_output(w, job->output[0], STDOUT_FILENO, bytes);
        good = copy_output(w, job->output[1], STDERR_FILENO, bytes) && good;
        output_unlock(w->board);
    }
    close(job->output[0]);
    close(job->output[1]);
    return good;
}

/* A word for a line of a file: what would end the line, or a field of it, is escaped. */
static void log_word(FILE *to, const char *word)
{
    for (const unsigned char *c = (const unsigned char *)word; *c != 0; c++) {
        if (*c == '\n' || *c == '\t' || *c == '\r') {
            fprintf(to, "\\%c", *c == '\n' ? 'n' : *c == '\t' ? 't' : 'r');
        } else if (*c < 32 || *c == 127) {
            fprintf(to, "\\x%02x", *c);
        } else {
            fputc(*c, to);
        }
    }
}

/* The words that were run; items are named only if they may be seen. */
static void log_command(struct worker *w, FILE *to)
{
    struct items items = {0};
    bool lines = w->work->lines;
    if (lines) {
        items = items_of(w->spec, w->cursor); /* as they were when it was started */
    }
    if (!w->work->cli->reveal) {
        hide_items(&items);
    }
    char **words = expand_command(w->work, lines ? &items : NULL, w->grant->lease.shard, w->number);
    for (size_t i = 0; words[i] != NULL; i++) {
        fputs(i == 0 ? "" : " ", to);
        log_word(to, words[i]);
    }
    free_words(words);
    free_items(&items);
}

/* The work goes on, and is no success in the end. */
static void lose_joblog(struct worker *w, int error)
{
    if (atomic_exchange(&w->board->joblog_lost, 1) == 0) {
        say(w, "%s can't be written: %s; the work goes on, and is not all in it", w->work->joblog,
            strerror(error));
    }
}

/* A line as GNU parallel writes it; the whole line at once, so that lines never mix. */
static void log_job(struct worker *w, const struct job *job, uint64_t bytes)
{
    if (w->joblog_fd < 0) {
        return;
    }
    char host[256] = "", *line = NULL;
    size_t size = 0;
    gethostname(host, sizeof(host) - 1);
    FILE *to = open_memstream(&line, &size);
    if (to == NULL) {
        return;
    }
    fprintf(to, "%s\t%s\t%.3f\t%10.3f\t0\t%" PRIu64 "\t%d\t%d\t", id_text(w->grant->lease.shard),
            host, job->began_wall, (double)(monotonic_ns() - job->began_ns) / 1e9, bytes,
            WIFEXITED(job->wait_status) ? WEXITSTATUS(job->wait_status) : 0,
            WIFSIGNALED(job->wait_status) ? WTERMSIG(job->wait_status) : 0);
    log_command(w, to);
    fputc('\n', to);
    fclose(to);
    ssize_t n = write(w->joblog_fd, line, size);
    if (n != (ssize_t)size) {
        lose_joblog(w, n < 0 ? errno : ENOSPC);
    }
    free(line);
}

/* False if nothing is to be tried again, because nothing is to be begun any more or the lease is lost. */
static bool wait_a_little(struct worker *w, uint64_t ns)
{
    uint64_t until = monotonic_ns() + ns, now;
    while ((now = monotonic_ns()) < until) {
        if (atomic_load(&w->board->drain) || rf_session_check(w->session) != RF_OK) {
            return false;
        }
        uint64_t sleep = until - now < w->look_ns ? until - now : w->look_ns;
        struct pollfd fd = {.fd = w->signal_fd, .events = POLLIN};
        struct timespec t = {.tv_sec = (time_t)(sleep / RF_SECOND),
                             .tv_nsec = (long)(sleep % RF_SECOND)};
        if (ppoll(&fd, 1, &t, NULL) > 0) {
            drain_signals(w);
        }
    }
    return !atomic_load(&w->board->drain);
}

/* Twice as long every time, and a random part of it, so that those who failed together do not try
 * again together. */
static uint64_t backoff(const struct work *w, uint64_t tries)
{
    uint64_t most = w->backoff_ns, random = 0;
    for (uint64_t i = 1; i < tries && most < BACKOFF_NS_MAX; i++) {
        most *= 2;
    }
    most = most < BACKOFF_NS_MAX ? most : BACKOFF_NS_MAX;
    if (getrandom(&random, sizeof(random), 0) < 0) {
        random = monotonic_ns();
    }
    return most / 2 + random % (most / 2 + 1);
}

/* Where the shard is now; false if the store can't say. */
static bool look_again(struct worker *w)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    if (rf_get_shard(w->store, &w->work->cli->tenant, w->work->run, w->grant->lease.shard, &info,
                     scratch, sizeof(scratch), NULL) != RF_OK) {
        return false;
    }
    w->spec = info.spec;
    w->cursor = info.cursor;
    return true;
}

static bool is_lost(rf_status status)
{
    return status == RF_STALE_FENCE || status == RF_LEASE_EXPIRED || status == RF_NOT_FOUND;
}

/* A lock that somebody has for a moment, or is stopped with, is waited for while the lease is ours. */
static bool try_again(struct worker *w, rf_status status)
{
    if (status != RF_BUSY || atomic_load(&w->board->stop) ||
        rf_session_check(w->session) != RF_OK) {
        return false;
    }
    sleep_ns(BUSY_NS);
    return true;
}

static rf_status open_session(struct worker *w)
{
    const rf_session_options options = {
        .tenant = w->work->cli->tenant, .worker = (uint64_t)getpid(), .keep_alive = true};
    return rf_session_create(w->store, &options, &w->session);
}

/* Gives the shard back. Afterwards nothing is held, whatever the store says: a lease that it does not
 * take back is not kept alive any more, and ends by itself. */
static bool release(struct worker *w)
{
    rf_status status;
    do {
        status = rf_session_release(w->session, NULL);
    } while (try_again(w, status));
    if (status != RF_OK && status != RF_SHARD_TERMINAL && !is_lost(status)) {
        rf_session_destroy(w->session);
        w->session = NULL;
        open_session(w);
    }
    return status == RF_OK;
}

/* What is over is over: says so, or gives the shard back. */
static void give_up(struct worker *w, enum why why)
{
    if (why == WHY_LOST || rf_session_check(w->session) != RF_OK) {
        atomic_fetch_add(&w->board->lost, 1);
        say(w, "shard %s was lost: somebody else may have it now", id_text(w->grant->lease.shard));
        release(w);
    } else if (release(w)) {
        atomic_fetch_add(&w->board->released, 1);
    } else {
        atomic_fetch_add(&w->board->lost, 1);
    }
}

/* What trying with another shard would not better. */
static bool is_fatal(rf_status status)
{
    return status == RF_IO_ERROR || status == RF_CORRUPT || status == RF_RESOURCE_EXHAUSTED;
}

/* Says why the store did not take the end of a shard, which then goes back. False if no other shard would
 * fare better. */
static bool give_up_end(struct worker *w, const char *what, rf_status status,
                        const rf_detail *detail)
{
    char why[256];
    explain(status, detail, rf_now(w->store), why, sizeof(why));
    say(w, "shard %s was worked on but could not be %s: %s", id_text(w->grant->lease.shard), what,
        why);
    if (rf_session_check(w->session) == RF_OK) {
        give_up(w, WHY_STOP);
    } else {
        atomic_fetch_add(&w->board->lost, 1);
        release(w);
    }
    return !is_fatal(status);
}

/* What --halt ends is not begun, however long the supervisor takes to hear of it. */
static void count(struct worker *w, _Atomic uint64_t *ends)
{
    atomic_fetch_add(ends, 1);
    if (is_halted(w->work)) {
        atomic_store(&w->board->drain, 1);
    }
}

/* The shard has ended, by whatever was said of it. */
static void count_end(struct worker *w, enum said said)
{
    count(w, said == SAID_DONE     ? &w->board->done
             : said == SAID_PARKED ? &w->board->parked
                                   : &w->board->released);
    release(w);
}

/* Both return false if this worker can't go on. */
static bool complete(struct worker *w)
{
    rf_result result;
    rf_status status;
    unsigned moves = 0;
    do {
        /* The command may have moved the cursor by `ringfence checkpoint`. */
        bool begun = look_again(w) && w->cursor.key.data != NULL;
        rf_cursor cursor = begun ? w->cursor : (rf_cursor){.key = w->spec.start};
        result = (rf_result){0};
        status = rf_session_complete(w->session, cursor, &result);
    } while (try_again(w, status) || (status == RF_CURSOR_REGRESSION && ++moves < MOVES_MAX));
    enum said said = status == RF_OK ? SAID_DONE : said_by_command(w);
    if (said != SAID_NOTHING) {
        count_end(w, said);
        return true;
    }
    return give_up_end(w, "completed", status, &result.detail);
}

static bool park(struct worker *w, rf_park_reason reason, const struct job *job)
{
    uint64_t shard = w->grant->lease.shard;
    rf_result result;
    rf_status status;
    do {
        result = (rf_result){0};
        status = rf_session_park(w->session, reason, &result);
    } while (try_again(w, status));
    if (status != RF_OK) {
        return give_up_end(w, "parked", status, &result.detail);
    }
    count(w, &w->board->parked);
    if (WIFSIGNALED(job->wait_status)) {
        say(w, "shard %s is parked: the command was ended by signal %d%s", id_text(shard),
            WTERMSIG(job->wait_status), job->ended_by == WHY_TIMEOUT ? ", it took too long" : "");
    } else {
        say(w, "shard %s is parked: the command ended with %d%s", id_text(shard),
            WEXITSTATUS(job->wait_status),
            job->ended_by == WHY_TIMEOUT ? ", it took too long" : "");
    }
    return true;
}

static bool is_hopeless(int wait_status, rf_park_reason *reason)
{
    switch (WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0) {
    case DATA_ERROR:
        *reason = RF_PARK_POISONED;
        return true;
    case NO_INPUT:
        *reason = RF_PARK_NOT_FOUND;
        return true;
    case NO_PERMISSION:
        *reason = RF_PARK_PERMISSION_DENIED;
        return true;
    default:
        return false;
    }
}

/* Without its output a shard is not done, unless the command itself has said so. */
static void give_up_output(struct worker *w, const struct job *job, enum said said)
{
    if (said != SAID_NOTHING) {
        release(w);
    } else {
        give_up(w, job->ended_by == WHY_LOST ? WHY_LOST : WHY_STOP);
    }
}

/* Whether a command that failed had moved the cursor behind the last of its lines. */
static bool has_no_lines_left(const struct worker *w)
{
    if (!w->work->lines) {
        return false;
    }
    struct items items = items_of(w->spec, w->cursor);
    uint32_t count = items.count;
    free_items(&items);
    return count == 0;
}

/* Returns false if no command can be started at all, or what they print can't be written. */
static bool work_on_shard(struct worker *w)
{
    static struct job job;
    uint64_t bytes;
    rf_park_reason reason = RF_PARK_TOO_MANY_ERRORS;
    w->spec = w->grant->spec;
    w->cursor = w->grant->cursor;
    for (uint64_t tries = 1;; tries++) {
        if (has_no_lines_left(w)) {
            return complete(w); /* there is nothing that a command could be started for */
        }
        atomic_store(&w->seat->state, SEAT_RUNNING);
        int error = start(w, &job);
        if (error != 0) {
            say(w, "%s can't be started: %s", w->work->command[0], strerror(error));
            release(w);
            return false;
        }
        wait_for(w, &job);
        bool printed = print_output(w, &job, &bytes);
        log_job(w, &job, bytes);
        enum said said = job.said != SAID_NOTHING ? job.said : said_by_command(w);
        if (!printed) {
            give_up_output(w, &job, said);
            return false;
        }
        /* One that was told to end may well end with 0: it is not done for that. */
        bool good = job.ended_by == WHY_NONE && WIFEXITED(job.wait_status) &&
                    WEXITSTATUS(job.wait_status) == 0;
        if (said != SAID_NOTHING) {
            atomic_fetch_add(&w->board->failed, good ? 0 : 1);
            count_end(w, said);
            return true;
        }
        if (good) {
            return complete(w);
        }
        if (job.ended_by == WHY_LOST || job.ended_by == WHY_STOP) {
            give_up(w, job.ended_by);
            return true;
        }
        atomic_fetch_add(&w->board->failed, 1);
        ring_bell(w->work);
        if (is_hopeless(job.wait_status, &reason) || tries > w->work->retries) {
            return park(w, reason, &job);
        }
        atomic_store(&w->seat->state, SEAT_IDLE);
        if (!wait_a_little(w, backoff(w->work, tries))) {
            give_up(w, WHY_STOP);
            return true;
        }
        look_again(w);
    }
}

static int claim_loop(struct worker *w)
{
    rf_result result;
    while (!atomic_load(&w->board->drain)) {
        result = (rf_result){0};
        rf_status status =
            rf_session_claim(w->session, w->work->run, CLAIM_SLICE_NS, &w->grant, &result);
        switch (status) {
        case RF_OK:
            w->claimed = rf_now(w->store);
            if (!work_on_shard(w)) {
                return WORKER_FATAL;
            }
            atomic_store(&w->seat->state, SEAT_IDLE);
            ring_bell(w->work);
            break;
        case RF_NONE_AVAILABLE:
            break;
        case RF_THROTTLED:
            sleep_ns(result.detail.retry_after < CLAIM_SLICE_NS ? result.detail.retry_after
                                                                : CLAIM_SLICE_NS);
            break;
        case RF_BUSY:
            sleep_ns(CLAIM_SLICE_NS);
            break;
        case RF_RUN_TERMINAL:
        case RF_RUN_NOT_FOUND:
            return WORKER_DONE;
        default: {
            char why[256];
            explain(status, &result.detail, rf_now(w->store), why, sizeof(why));
            say(w, "worker %" PRIu32 ": %s", w->number + 1, why);
            atomic_store(&w->board->trouble, (int)exit_of(status));
            return WORKER_FATAL;
        }
        }
    }
    return WORKER_DONE;
}

static int open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void *stop_with_parent(void *argument)
{
    /* SIGUSR1 is what the kernel sends when the supervisor has died. */
    struct worker *w = argument;
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    while (sigwait(&set, &signal) == 0) {
        atomic_store(&w->board->drain, 1);
        atomic_store(&w->board->stop, 1);
        kill(getpid(), SIGTERM); /* wakes whoever polls */
        sleep_ns(w->work->grace_ns + BLOCKED_NS);
        pid_t command = atomic_load(&w->seat->command);
        if (command > 0) {
            kill(-command, SIGKILL);
        }
        kill(getpid(), SIGKILL); /* nobody reads what it prints: it would hang for ever */
    }
    return NULL;
}

static void follow_parent(struct worker *w, pid_t supervisor)
{
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    prctl(PR_SET_PDEATHSIG, SIGUSR1);
    if (getppid() != supervisor) {
        _exit(WORKER_DONE);
    }
    if (pthread_create(&thread, NULL, stop_with_parent, w) == 0) {
        pthread_detach(thread);
    }
}

int work_as_worker(struct work *work, uint32_t number)
{
    static struct worker w;
    const char *parent = getenv("RINGFENCE_SUPERVISOR");
    w = (struct worker){.work = work,
                        .number = number,
                        .seat = &work->board->seats[number],
                        .board = work->board,
                        .joblog_fd = -1};
    prctl(PR_SET_NAME, "ringfence"); /* not "exe", as it was started */
    signal(SIGPIPE, SIG_IGN);        /* nobody reads what is printed: an error like any other */
    w.signal_fd = open_signals();
    follow_parent(&w, parent == NULL ? getppid() : (pid_t)strtol(parent, NULL, 10));
    rf_run_info info;
    int code = open_to_work(work->cli, work->store_name, &w.store);
    if (code != EXIT_DONE) {
        atomic_store(&work->board->trouble, code);
        return WORKER_FATAL;
    }
    if (work->joblog != NULL) {
        w.joblog_fd = open(work->joblog, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (w.joblog_fd < 0) {
            lose_joblog(&w, errno);
        }
    }
    w.look_ns = LOOK_NS_MAX;
    if (rf_get_run(w.store, &work->cli->tenant, work->run, &info, NULL) == RF_OK &&
        info.config.lease_duration / 10 < w.look_ns) {
        w.look_ns = info.config.lease_duration / 10 + RF_MILLISECOND;
    }
    int result = WORKER_FATAL;
    rf_status status = open_session(&w);
    if (status == RF_OK) {
        atomic_store(&w.seat->state, SEAT_IDLE);
        result = claim_loop(&w);
        rf_session_destroy(w.session);
    } else {
        atomic_store(&work->board->trouble,
                     cli_refuse(status, NULL, 0, "worker %" PRIu32, number + 1));
    }
    rf_close(w.store);
    ring_bell(work);
    return result;
}
