#include "crew.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "prng.h"

void crew_say(const char *file, int line, const char *truth, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    fprintf(stderr, "%s:%d: in process %d: not so: %s: %s\n", file, line, (int)getpid(), truth,
            text);
    fflush(stderr);
}

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

unsigned crew_slowness(void)
{
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
    return 20;
#elif defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
    return 8;
#else
    return 1;
#endif
}

uint64_t crew_amount(uint64_t little, uint64_t much)
{
    if (rf_env_number("RF_SOAK", 0) != 0) {
        return much;
    }
    uint64_t amount = little / crew_slowness();
    return amount == 0 ? 1 : amount;
}

uint64_t crew_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void crew_sleep_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

bool crew_until(bool (*truth)(void *context), void *context, unsigned timeout_ms)
{
    uint64_t until = crew_ns() + timeout_ms * 1000000ull;
    while (!truth(context)) {
        if (crew_ns() > until) {
            return false;
        }
        crew_sleep_ms(1);
    }
    return true;
}

void *crew_shared(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
                    -1, 0);
    if (at == MAP_FAILED) {
        perror("mmap");
        exit(CREW_FAILED);
    }
    return at;
}

void crew_unshare(void *at, size_t bytes)
{
    munmap(at, bytes);
}

/* --- stores --- */

static char store_name[128];
static pid_t store_owner;

static void drop_at_exit(void)
{
    if (store_owner == getpid()) {
        crew_store_drop();
    }
}

const char *crew_store(const char *label)
{
    static unsigned number;
    crew_store_drop();
    if (store_owner == 0) {
        atexit(drop_at_exit);
    }
    store_owner = getpid();
    snprintf(store_name, sizeof(store_name), "test-%s-%d-%u", label, (int)getpid(), ++number);
    return store_name;
}

/* Children may still be on their way out. */
void crew_store_drop(void)
{
    for (unsigned i = 0; store_name[0] != 0 && i < 2000; i++) {
        if (rf_destroy(store_name, NULL) != RF_BUSY) {
            break;
        }
        crew_sleep_ms(1);
    }
    store_name[0] = 0;
}

rf_store *crew_open(const char *store, const rf_options *options)
{
    rf_store *opened = NULL;
    rf_detail detail = {0};
    char text[400];
    rf_status status =
        rf_open(store, options != NULL ? options : &(rf_options){.create = true}, &opened, &detail);
    rf_explain(status, &detail, text, sizeof(text));
    CREW_CHECK(status == RF_OK, "opening %s: %s", store, text);
    return opened;
}

/* --- processes --- */

pid_t crew_start(int (*body)(void *argument), void *argument)
{
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0) {
        if (pid < 0) {
            perror("fork");
            exit(CREW_FAILED);
        }
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(CREW_FAILED);
    }
    int rc = body(argument);
    fflush(NULL);
    _exit(rc);
}

int crew_join(pid_t pid, unsigned timeout_ms)
{
    uint64_t until = crew_ns() + timeout_ms * 1000000ull;
    int status = 0;
    for (unsigned n = 0;; n++) {
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got == pid) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
        }
        if (got < 0) {
            perror("waitpid");
            return -1000;
        }
        if (crew_ns() > until) {
            fprintf(stderr, "process %d does not end:\n", (int)pid);
            crew_tell(pid);
            crew_kill(pid);
            return -1000;
        }
        usleep(n < 100 ? 100 : 1000);
    }
}

void crew_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* --- looking at them --- */

static void print_file(const char *what, const char *path)
{
    char line[256];
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return;
    }
    fprintf(stderr, "  %s:", what);
    while (fgets(line, sizeof(line), f) != NULL) {
        fprintf(stderr, " %s", line);
    }
    fprintf(stderr, "\n");
    fclose(f);
}

static void tell_thread(pid_t pid, const char *thread)
{
    static const char *const files[] = {"comm", "wchan", "syscall"};
    char path[128];
    for (unsigned i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/%s", (int)pid, thread, files[i]);
        print_file(files[i], path);
    }
}

void crew_tell(pid_t pid)
{
    char path[128], command[256];
    struct dirent *task;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(path);
    fprintf(stderr, "process %d\n", (int)pid);
    while (tasks != NULL && (task = readdir(tasks)) != NULL) {
        if (task->d_name[0] != '.') {
            tell_thread(pid, task->d_name);
        }
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    snprintf(
        command, sizeof(command),
        "command -v gdb >/dev/null && timeout 20 gdb -batch -p %d -ex 'thread apply all bt 12' "
        "2>/dev/null | grep -E '^(#|Thread)' >&2",
        (int)pid);
    if (system(command) != 0) {
        fprintf(stderr, "  (no stacks: gdb is not there, or may not look)\n");
    }
}

uint64_t crew_sleeps(pid_t pid)
{
    static const char field[] = "voluntary_ctxt_switches:";
    char path[64], line[256];
    uint64_t value = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    while (fgets(line, sizeof(line), f) != NULL) {
        if (strncmp(line, field, sizeof(field) - 1) == 0) {
            value = strtoull(line + sizeof(field) - 1, NULL, 10);
        }
    }
    fclose(f);
    return value;
}

/* The state letter in a stat file, 0 if it is gone. */
static char state_in(const char *path)
{
    char text[512] = {0};
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return 0;
    }
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    const char *after = n == 0 ? NULL : strrchr(text, ')');
    return after != NULL && after[1] == ' ' ? after[2] : 0;
}

bool crew_asleep(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    return state_in(path) == 'S';
}

static bool has_stopped(void *context)
{
    char path[300];
    bool stopped = true;
    struct dirent *task;
    snprintf(path, sizeof(path), "/proc/%d/task", (int)*(pid_t *)context);
    DIR *tasks = opendir(path);
    while (tasks != NULL && stopped && (task = readdir(tasks)) != NULL) {
        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat", (int)*(pid_t *)context,
                 task->d_name);
        stopped = task->d_name[0] == '.' || state_in(path) == 'T';
    }
    if (tasks != NULL) {
        closedir(tasks);
    }
    return stopped;
}

void crew_stop(pid_t pid)
{
    kill(pid, SIGSTOP);
    CREW_CHECK(crew_until(has_stopped, &pid, 10000), "process %d does not stop", (int)pid);
}
