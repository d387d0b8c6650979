/* The servers of the peers: found, started, and stopped however the program ends. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers.h"

#define PATIENCE_MS 10000u

char place[160];

/* Seen by the supervisor as well: it stops what the program could not. */
static struct running {
    volatile pid_t pid; /* 0: none */
    volatile int signal_number;
} * running;

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("rf-bench-peers: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    fflush(NULL);
    _exit(2);
}

/* --- coming and going --- */

/* True if it ended within the time. */
static bool await_end(pid_t pid, unsigned ms)
{
    for (unsigned i = 0; i < ms; i++) {
        pid_t got = waitpid(pid, NULL, WNOHANG);
        if (got == pid || (got < 0 && errno == ECHILD)) {
            return true;
        }
        usleep(1000);
    }
    return false;
}

void server_stop(void)
{
    pid_t pid = running->pid;
    if (pid == 0) {
        return;
    }
    kill(pid, running->signal_number);
    if (!await_end(pid, PATIENCE_MS)) {
        fprintf(stderr, "rf-bench-peers: server %d does not end; it is killed\n", (int)pid);
        kill(pid, SIGKILL);
        await_end(pid, PATIENCE_MS);
    }
    running->pid = 0;
}

static void remove_all(const char *what)
{
    char command[500];
    snprintf(command, sizeof(command), "rm -rf '%s'%s /dev/shm/'%s'*", place, what,
             strrchr(place, '/') + 1);
    if (system(command) != 0) {
        fprintf(stderr, "rf-bench-peers: could not remove %s\n", place);
    }
}

void servers_clear(void)
{
    server_stop();
    while (waitpid(-1, NULL, WNOHANG) > 0) {
        /* workers that were killed with the process */
    }
    remove_all("/*");
}

int servers_supervise(int (*program)(void))
{
    const char *where = getenv("RF_BENCH_DIR");
    snprintf(place, sizeof(place), "%.120s/rf-bench-peers-%d", where != NULL ? where : "/var/tmp",
             (int)getpid());
    /* Others than we, such as PostgreSQL's user, have to get through. */
    if (mkdir(place, 0755) != 0 || chmod(place, 0755) != 0) {
        fail("%s can't be made: %s; RF_BENCH_DIR says where", place, strerror(errno));
    }
    running = shared_memory(sizeof(*running));
    /* A server whose parent died becomes a child of this process, which can then wait for it. */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        fail("fork: %s", strerror(errno));
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        exit(program());
    }
    /* The terminal's signals go to the child as well, and end it; others are passed on. */
    signal(SIGINT, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int status = 0, got = 0;
    while (waitpid(child, &status, WNOHANG) != child) {
        if (sigwait(&set, &got) == 0 && got == SIGTERM) {
            kill(child, SIGKILL);
        }
    }
    server_stop();
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {
        /* workers that were killed with the program */
    }
    remove_all("");
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "ended by signal %d\n", WTERMSIG(status));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

/* --- places and users --- */

const char *place_of(const char *name)
{
    static char text[4][256];
    static unsigned turn;
    char *at = text[turn++ % 4];
    snprintf(at, sizeof(text[0]), "%s/%s", place, name);
    return at;
}

void place_make(const char *name, const char *user)
{
    const char *path = place_of(name);
    const struct passwd *who = user != NULL ? getpwnam(user) : NULL;
    if ((mkdir(path, 0755) != 0 && errno != EEXIST) ||
        (who != NULL && chown(path, who->pw_uid, who->pw_gid) != 0)) {
        fail("%s can't be made: %s", path, strerror(errno));
    }
}

void place_remove(const char *name)
{
    char command[400];
    snprintf(command, sizeof(command), "rm -rf '%s'", place_of(name));
    if (system(command) != 0) {
        fail("%s can't be removed", place_of(name));
    }
}

const char *plain_user(void)
{
    static const char *const users[] = {"postgres", "nobody"};
    for (uint32_t i = 0; geteuid() == 0 && i < COUNT(users); i++) {
        if (getpwnam(users[i]) != NULL) {
            return users[i];
        }
    }
    return NULL;
}

/* --- starting --- */

static const char *first_program(const char *prefix, const char *directories, const char *program)
{
    static char found[4][512];
    static unsigned turn;
    char pattern[700];
    glob_t matches;
    const char *path = NULL;
    snprintf(pattern, sizeof(pattern), "%s%s/%s", prefix, directories, program);
    if (glob(pattern, 0, NULL, &matches) == 0) {
        /* the last one: of several versions the newest */
        char *at = found[turn++ % 4];
        snprintf(at, sizeof(found[0]), "%s", matches.gl_pathv[matches.gl_pathc - 1]);
        path = access(at, X_OK) == 0 ? at : NULL;
    }
    globfree(&matches);
    return path;
}

const char *server_find(const char *directories, const char *program)
{
    const char *path = first_program("", directories, program);
    return path != NULL ? path : first_program(RF_BENCH_SERVERS, directories, program);
}

static pid_t spawn(const char *name, const char *program, char *const *arguments, const char *user)
{
    char log[300];
    const struct passwd *who = user != NULL ? getpwnam(user) : NULL;
    const pid_t parent = getpid();
    snprintf(log, sizeof(log), "%s/%s.log", place, name);
    fflush(NULL);
    pid_t pid = fork();
    if (pid < 0) {
        fail("fork: %s", strerror(errno));
    }
    if (pid > 0) {
        return pid;
    }
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644), in = open("/dev/null", O_RDONLY);
    dup2(in, 0);
    dup2(out, 1);
    dup2(out, 2);
    setpgid(0, 0); /* the terminal's signals are for the program, which stops it in its turn */
    if ((who != NULL &&
         (setgroups(0, NULL) != 0 || setgid(who->pw_gid) != 0 || setuid(who->pw_uid) != 0)) ||
        chdir("/") != 0) {
        _exit(126);
    }
    /* Changing the user has undone this, so it comes last. SIGINT ends PostgreSQL at once and cleanly,
     * and all others too. */
    prctl(PR_SET_PDEATHSIG, SIGINT);
    if (getppid() != parent) {
        _exit(126);
    }
    execv(program, arguments);
    _exit(127);
}

void server_start(const char *name, const char *program, char *const *arguments, int signal_number,
                  const char *user)
{
    assert(running->pid == 0);
    running->signal_number = signal_number;
    running->pid = spawn(name, program, arguments, user);
}

bool server_run(const char *name, const char *program, char *const *arguments, const char *user)
{
    int status = 0;
    pid_t pid = spawn(name, program, arguments, user);
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool server_alive(void)
{
    if (running->pid != 0 && waitpid(running->pid, NULL, WNOHANG) == 0) {
        return true;
    }
    running->pid = 0;
    return false;
}

bool server_answers(bool (*attempt)(void))
{
    for (unsigned i = 0; i < PATIENCE_MS / 5 && server_alive(); i++) {
        if (attempt()) {
            return true;
        }
        usleep(5000);
    }
    server_stop();
    return false;
}
