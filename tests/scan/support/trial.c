#include "trial.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ringfence/ringfence.h"

#define PATIENCE_MS 100000u

void trial_begin(struct trial *t)
{
    const char *tmp = getenv("TMPDIR");
    /* Every fork copies what the quarantine keeps. */
    setenv("ASAN_OPTIONS", "quarantine_size_mb=4", 0);
    snprintf(t->dir, sizeof(t->dir), "%.40s/rf-scan-XXXXXX", tmp != NULL ? tmp : "/tmp");
    TEST_ASSERT_NOT_NULL_MESSAGE(mkdtemp(t->dir), "mkdtemp");
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* for trial_kill_all */
    snprintf(t->tree, sizeof(t->tree), "%s/tree", t->dir);
    snprintf(t->state, sizeof(t->state), "%s/state", t->dir);
    snprintf(t->json, sizeof(t->json), "%s/found.jsonl", t->dir);
    snprintf(t->out, sizeof(t->out), "%s/out", t->dir);
    mkdir(t->tree, 0755);
    t->program = RF_SCAN_PROGRAM;
    t->rules = NULL;
}

void trial_end(struct trial *t)
{
    char store[128];
    snprintf(store, sizeof(store), "%s/store", t->state);
    rf_destroy(store, NULL); /* there if a scan did not finish */
    remove_tree(t->dir);
}

void trial_write(const struct trial *t, const char *path, const void *bytes, size_t len)
{
    char full[4600];
    snprintf(full, sizeof(full), "%s/%s", t->tree, path);
    for (char *slash = strchr(full + strlen(t->tree) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0, path);
    TEST_ASSERT_TRUE_MESSAGE(write(fd, bytes, len) == (ssize_t)len, path);
    close(fd);
}

void trial_write_text(const struct trial *t, const char *path, const char *text)
{
    trial_write(t, path, text, strlen(text));
}

pid_t trial_start(const struct trial *t, const char *arguments)
{
    char *copy = strdup(arguments), *rest = NULL;
    const char *words[64] = {"rf-scan", "--state", t->state, "--json", t->json};
    size_t count = 5;
    if (t->rules != NULL) {
        words[count++] = "--rules";
        words[count++] = t->rules;
    }
    for (char *w = strtok_r(copy, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        words[count++] = w;
    }
    words[count++] = t->tree;
    words[count] = NULL;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int out = open(t->out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        dup2(out, STDOUT_FILENO);
        dup2(out, STDERR_FILENO);
        execv(t->program, (char **)(uintptr_t)words);
        _exit(127);
    }
    free(copy);
    TEST_ASSERT_TRUE(pid > 0);
    setpgid(pid, pid);
    return pid;
}

int trial_wait(pid_t pid)
{
    int how;
    for (unsigned ms = 0; waitpid(pid, &how, WNOHANG) == 0; ms += 2) {
        if (ms > PATIENCE_MS) {
            trial_kill_all(pid);
            TEST_FAIL_MESSAGE("rf-scan does not end");
        }
        trial_sleep_ms(2);
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

int trial_scan(const struct trial *t, const char *arguments)
{
    return trial_wait(trial_start(t, arguments));
}

void trial_kill_all(pid_t pid)
{
    kill(-pid, SIGKILL);
    while (waitpid(-pid, NULL, 0) >
           0) { /* workers too, which have the store open until they are gone */
    }
}

size_t trial_workers(pid_t pid, pid_t *out, size_t room)
{
    char name[64];
    size_t count = 0;
    int child;
    snprintf(name, sizeof(name), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *in = fopen(name, "re");
    while (in != NULL && count < room && fscanf(in, "%d", &child) == 1) {
        out[count++] = child;
    }
    if (in != NULL) {
        fclose(in);
    }
    return count;
}

char *trial_read(const char *file, size_t *len)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    struct stat st;
    TEST_ASSERT_TRUE_MESSAGE(fd >= 0 && fstat(fd, &st) == 0, file);
    char *text = malloc((size_t)st.st_size + 1);
    TEST_ASSERT_NOT_NULL(text);
    TEST_ASSERT_TRUE(read(fd, text, (size_t)st.st_size) == st.st_size);
    text[st.st_size] = '\0';
    close(fd);
    if (len != NULL) {
        *len = (size_t)st.st_size;
    }
    return text;
}

struct found trial_found(const struct trial *t)
{
    struct found found;
    if (!found_read(&found, t->json, t->tree)) {
        char *out = trial_read(t->out, NULL);
        printf("rf-scan said: %s\n", out);
        free(out);
        TEST_FAIL_MESSAGE("there is no report");
    }
    return found;
}

char *trial_findings(const struct trial *t)
{
    char *text = trial_read(t->json, NULL);
    char *summary = strstr(text, "{\"type\":\"summary\"");
    TEST_ASSERT_NOT_NULL(summary);
    *summary = '\0';
    return text;
}

bool trial_tree_holds(const char *dir, const char *bytes)
{
    bool holds = false;
    DIR *list = opendir(dir);
    struct dirent *entry;
    while (!holds && list != NULL && (entry = readdir(list)) != NULL) {
        char path[4600];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            lstat(path, &st) != 0) {
            continue;
        }
        if (S_ISDIR(st.st_mode)) {
            holds = trial_tree_holds(path, bytes);
        } else if (S_ISREG(st.st_mode)) {
            size_t len;
            char *text = trial_read(path, &len);
            holds = memmem(text, len, bytes, strlen(bytes)) != NULL;
            free(text);
        }
    }
    if (list != NULL) {
        closedir(list);
    }
    return holds;
}

void trial_check_planted(const struct trial *t, const struct corpus *corpus)
{
    struct found found = trial_found(t);
    struct reckoning r = found_reckon(&found, corpus);
    char message[512];
    snprintf(message, sizeof(message),
             "of %zu planted, lost %zu (%s in %s), twice %zu, wrong %zu (%s in %s)", corpus->count,
             r.lost, r.first_lost != NULL ? r.first_lost->rule : "",
             r.first_lost != NULL ? r.first_lost->path : "", r.twice, r.wrong,
             r.first_wrong != NULL ? r.first_wrong->rule : "",
             r.first_wrong != NULL ? r.first_wrong->path : "");
    TEST_ASSERT_TRUE_MESSAGE(r.lost == 0 && r.twice == 0 && r.wrong == 0, message);
    TEST_ASSERT_EQUAL_UINT64(corpus->count, r.right);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(corpus->files, found.files, "files");
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(corpus->bytes, found.bytes, "bytes");
    found_free(&found);
}

void trial_sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

uint64_t trial_number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL || text[0] == '\0' ? otherwise : strtoull(text, NULL, 10);
}
