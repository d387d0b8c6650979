/* Trees as they come: strange names, links, pipes, binary and empty files, files that change, vanish
 * or can't be read while the scan is on. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "items.h"
#include "trial.h"

static struct trial trial;
static char secret[512];
static size_t secret_start;
static const char *secret_rule;

void setUp(void)
{
    uint64_t seed = 5;
    trial_begin(&trial);
    size_t len = corpus_secret(0, &seed, secret, sizeof(secret) - 2, &secret_start, &secret_rule);
    strcpy(secret + len, "\n");
}

void tearDown(void)
{
    trial_end(&trial);
}

static void expect_paths(const char *const *paths, size_t count)
{
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(count, found.count);
    for (size_t i = 0; i < count; i++) {
        bool there = false;
        for (size_t k = 0; k < found.count; k++) {
            there = there || strcmp(found.list[k].path, paths[i]) == 0;
        }
        TEST_ASSERT_TRUE_MESSAGE(there, paths[i]);
    }
    found_free(&found);
}

static void names_may_be_anything(void)
{
    static const char *const names[] = {
        "a\nb",         "tab\there", "\xff\xfe\x80",         "quote\"back\\slash",
        "\xe2\x80\xae", "-dash",     "\xc3\xa4\xe2\x82\xac", "d\n\xff/\x01\x7f\xc0",
    };
    char long_name[256];
    memset(long_name, 'x', 255);
    long_name[255] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        trial_write_text(&trial, names[i], secret);
    }
    trial_write_text(&trial, long_name, secret);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j3"));
    expect_paths((const char *[]){names[0], names[1], names[2], names[3], names[4], names[5],
                                  names[6], names[7], long_name},
                 9);
    char *out = trial_read(trial.out, NULL);
    TEST_ASSERT_NULL_MESSAGE(strchr(out, '\x01'), "a control character was printed");
    TEST_ASSERT_NULL_MESSAGE(strstr(out, names[4]), "text was turned round");
    TEST_ASSERT_NOT_NULL(strstr(out, "a\\x0ab"));
    free(out);
}

static void what_is_not_a_plain_file_is_left_out(void)
{
    char path[256], target[256];
    trial_write_text(&trial, "real/file", secret);
    snprintf(path, sizeof(path), "%s/outside", trial.dir);
    FILE *out = fopen(path, "w");
    fputs(secret, out);
    fclose(out);
    snprintf(target, sizeof(target), "%s/link", trial.tree);
    TEST_ASSERT_EQUAL_INT(0, symlink(path, target));
    snprintf(target, sizeof(target), "%s/loop", trial.tree);
    TEST_ASSERT_EQUAL_INT(0, symlink("..", target));
    snprintf(target, sizeof(target), "%s/pipe", trial.tree);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(target, 0600));
    trial_write_text(&trial, "empty", "");
    trial_write_text(&trial, ".git/config", secret);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2"));
    expect_paths((const char *[]){"real/file"}, 1);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2 --no-ignore"));
    expect_paths((const char *[]){"real/file", ".git/config"}, 2);
}

static void ignore_files_are_heeded(void)
{
    trial_write_text(&trial, ".rf-scan-ignore",
                     "*.skip\n!keep.skip\n/top\ndeep/**/x\nbuild/\n# no\n");
    trial_write_text(&trial, "a.skip", secret);
    trial_write_text(&trial, "keep.skip", secret);
    trial_write_text(&trial, "top", secret);
    trial_write_text(&trial, "sub/top", secret);
    trial_write_text(&trial, "deep/1/2/x", secret);
    trial_write_text(&trial, "deep/x", secret);
    trial_write_text(&trial, "build/out", secret);
    trial_write_text(&trial, "sub/.rf-scan-ignore", "inner\n");
    trial_write_text(&trial, "sub/inner", secret);
    trial_write_text(&trial, "inner", secret);
    trial_write_text(&trial, "sub/.gitignore", "gitted\n");
    trial_write_text(&trial, "sub/gitted", secret);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2"));
    expect_paths((const char *[]){"keep.skip", "sub/top", "inner", "sub/gitted"}, 4);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2 --gitignore --ignore inner"));
    expect_paths((const char *[]){"keep.skip", "sub/top"}, 2);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2 --no-ignore"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(10, found.count);
    found_free(&found);
}

static void binary_files_are_counted_and_scanned_if_asked(void)
{
    char bytes[600] = "ELF\0\0\0\n";
    memcpy(bytes + 100, secret, strlen(secret));
    trial_write(&trial, "program", bytes, sizeof(bytes));
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, "-j1"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(1, found.binary);
    TEST_ASSERT_EQUAL_UINT64(1, found.files);
    found_free(&found);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1 --binary"));
    found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(1, found.count);
    TEST_ASSERT_EQUAL_UINT64(100 + secret_start, found.list[0].start);
    found_free(&found);
}

/* As somebody who is not root: root may read everything. */
static void what_cannot_be_read_is_reported(void)
{
    char path[256], locked[256], copy[256];
    size_t size;
    char *program = trial_read(RF_SCAN_PROGRAM, &size); /* where anybody can reach it */
    trial_write(&trial, "../rf-scan", program, size);
    free(program);
    snprintf(copy, sizeof(copy), "%s/rf-scan", trial.dir);
    chmod(copy, 0755);
    trial.program = copy;
    trial_write_text(&trial, "open/file", "nothing here\n");
    trial_write_text(&trial, "locked", secret);
    trial_write_text(&trial, "closed/file", secret);
    snprintf(locked, sizeof(locked), "%s/locked", trial.tree);
    chmod(locked, 0);
    snprintf(path, sizeof(path), "%s/closed", trial.tree);
    chmod(path, 0);
    chmod(trial.dir, 0777);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) {
            _exit(99);
        }
        /* rf-scan of this user, on this tree */
        int status = trial_scan(&trial, "-j1");
        _exit(status);
    }
    int how;
    waitpid(pid, &how, 0);
    TEST_ASSERT_TRUE(WIFEXITED(how));
    TEST_ASSERT_EQUAL_INT(2, WEXITSTATUS(how));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(2, found.unreadable);
    TEST_ASSERT_EQUAL_UINT64(0, found.count);
    found_free(&found);
    char *out = trial_read(trial.out, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(out, "Permission denied"), out);
    free(out);
    chmod(path, 0700);
}

static void a_path_that_is_not_there_is_an_error(void)
{
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "-j1 /there/is/no/such/path"));
}

static void a_path_that_is_a_pipe_or_a_device_is_an_error(void)
{
    char pipe[128];
    snprintf(pipe, sizeof(pipe), "%s/pipe", trial.dir);
    TEST_ASSERT_EQUAL_INT(0, mkfifo(pipe, 0600));
    const char *const paths[] = {pipe, "/dev/null"};
    for (unsigned i = 0; i < 2; i++) {
        TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, paths[i]));
        char *out = trial_read(trial.out, NULL);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(out, "neither a file nor a directory"), out);
        free(out);
    }
}

/* More of them than there may be open files. */
static void many_paths(void)
{
    char arguments[4096] = "-j2";
    char file[128];
    struct rlimit limit, low;
    for (unsigned i = 0; i < 50; i++) {
        snprintf(file, sizeof(file), "../d%02u/file", i);
        trial_write_text(&trial, file, secret);
        snprintf(file, sizeof(file), " %s/d%02u", trial.dir, i);
        strcat(arguments, file);
    }
    TEST_ASSERT_EQUAL_INT(0, getrlimit(RLIMIT_NOFILE, &limit));
    low = (struct rlimit){.rlim_cur = 40, .rlim_max = limit.rlim_max};
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &low));
    int status = trial_scan(&trial, arguments);
    TEST_ASSERT_EQUAL_INT(0, setrlimit(RLIMIT_NOFILE, &limit));
    TEST_ASSERT_EQUAL_INT(1, status);
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(50, found.count);
    TEST_ASSERT_EQUAL_UINT64(0, found.unreadable);
    found_free(&found);
}

static void paths_inside_each_other_are_scanned_once(void)
{
    char arguments[400];
    trial_write_text(&trial, "sub/file", secret);
    snprintf(arguments, sizeof(arguments), "-j2 %s/sub %s/sub/file %s", trial.tree, trial.tree,
             trial.tree);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    expect_paths((const char *[]){"sub/file"}, 1);
}

/* Under a scan that goes slowly, files grow, shrink, vanish, turn into links and come back. */
static void files_may_change_meanwhile(void)
{
    static char text[300000];
    char path[256], other[256], name[64];
    for (size_t at = 0; at < sizeof(text) - 64; at += 64) {
        memset(text + at, 'x', 63);
        text[at + 63] = '\n';
    }
    for (unsigned i = 0; i < 30; i++) {
        snprintf(name, sizeof(name), "moving/%u", i);
        trial_write(&trial, name, text, sizeof(text));
        snprintf(name, sizeof(name), "steady/%u", i);
        trial_write_text(&trial, name, secret);
    }
    pid_t scan = trial_start(&trial, "-j2 --rate 8M --chunk 16384 --segment 65536");
    for (unsigned i = 0, round = 0;; i = (i + 1) % 30, round++) {
        siginfo_t info = {0};
        waitid(P_PID, (id_t)scan, &info, WEXITED | WNOHANG | WNOWAIT);
        if (info.si_pid != 0) {
            break;
        }
        snprintf(path, sizeof(path), "%s/moving/%u", trial.tree, i);
        switch ((round + i) % 5) {
        case 0:
            unlink(path);
            break;
        case 1:
            if (truncate(path, 1000 * (i % 7)) != 0) {
                snprintf(name, sizeof(name), "moving/%u", i);
                trial_write_text(&trial, name, "short\n");
            }
            break;
        case 2:
            snprintf(name, sizeof(name), "moving/%u", i);
            trial_write(&trial, name, text, sizeof(text));
            break;
        case 3:
            unlink(path);
            snprintf(other, sizeof(other), "%s/steady/0", trial.tree);
            if (symlink(other, path) != 0) {
                unlink(path);
            }
            break;
        default:
            unlink(path);
            mkdir(path, 0700);
            rmdir(path);
        }
        trial_sleep_ms(1);
    }
    int status = trial_wait(scan);
    TEST_ASSERT_TRUE(status == 1);
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(30, found.count); /* the steady ones, once; links are not followed */
    for (size_t i = 0; i < found.count; i++) {
        TEST_ASSERT_EQUAL_MEMORY("steady/", found.list[i].path, 7);
    }
    found_free(&found);
}

/* 5,000 here; make scan-soak takes 200,000. */
static void many_small_files(void)
{
    uint64_t count = trial_number("RF_SCAN_FILES", RF_SCAN_SLOW ? 1000 : 5000);
    char name[64];
    for (uint64_t i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "d%02u/f%llu", (unsigned)(i % 50), (unsigned long long)i);
        trial_write_text(&trial, name, i % 100 == 7 ? secret : "nothing to see\n");
    }
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(count, found.files);
    TEST_ASSERT_EQUAL_UINT64(count / 100, found.count);
    found_free(&found);
}

/* Whoever works on a part of the items reads a part of their names, however large the table is. */
static void names_lie_in_the_order_of_the_items(void)
{
    char name[64], file[128];
    struct items items;
    pid_t workers[8];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "%x/%x", i * 7919 % 16, i * 104729 % 65536);
        trial_write_text(&trial, name,
                         "something or other, a little longer than a kilobyte or not\n");
    }
    static char large[200000];
    memset(large, 'x', sizeof(large));
    trial_write(&trial, "5/large", large, sizeof(large));
    pid_t scan = trial_start(&trial, "-j1 --rate 1K --segment 65536");
    for (unsigned ms = 0; trial_workers(scan, workers, 8) == 0 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    trial_kill_all(scan);
    snprintf(file, sizeof(file), "%s/items", trial.state);
    TEST_ASSERT_TRUE(items_open(&items, file));
    TEST_ASSERT_EQUAL_UINT64(304, items.header->count);
    for (uint64_t i = 1; i < 304; i++) {
        const char *before = item_path(&items, i - 1), *path = item_path(&items, i);
        TEST_ASSERT_TRUE(items.list[i].first ? path == before + strlen(before) + 1
                                             : path == before);
    }
    items_close(&items);
}

/* One file of segments, with a secret across every cut. RF_SCAN_LARGE is its size. */
static void one_large_file(void)
{
    uint64_t size = trial_number("RF_SCAN_LARGE", 3u << 20);
    const char *segment = size > 64u << 20 ? "" : "--segment 262144";
    uint64_t cut = size > 64u << 20 ? 64u << 20 : 262144;
    char arguments[128];
    static char line[4096];
    memset(line, '.', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    trial_write_text(&trial, "large", "");
    snprintf(arguments, sizeof(arguments), "%s/large", trial.tree);
    int fd = open(arguments, O_WRONLY);
    for (uint64_t at = 0; at < size; at += sizeof(line)) {
        TEST_ASSERT_EQUAL_INT(sizeof(line), write(fd, line, sizeof(line)));
    }
    uint64_t planted = 0;
    size_t len = strlen(secret);
    for (uint64_t at = cut; at < size; at += cut, planted++) {
        off_t place = (off_t)(at - len + 1 + planted % len);
        TEST_ASSERT_EQUAL_INT(len, pwrite(fd, secret, len, place));
        TEST_ASSERT_EQUAL_INT(1, pwrite(fd, "\n", 1, place - 1));
    }
    close(fd);
    snprintf(arguments, sizeof(arguments), "-j4 --chunk 65536 %s", segment);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(planted, found.count);
    TEST_ASSERT_EQUAL_UINT64(1, found.files);
    TEST_ASSERT_EQUAL_UINT64(size, found.bytes);
    planted = 0;
    for (uint64_t at = cut; at < size; at += cut, planted++) {
        TEST_ASSERT_EQUAL_UINT64(at - len + 1 + planted % len + secret_start,
                                 found.list[planted].start);
    }
    found_free(&found);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(names_may_be_anything);
    RUN_TEST(what_is_not_a_plain_file_is_left_out);
    RUN_TEST(ignore_files_are_heeded);
    RUN_TEST(binary_files_are_counted_and_scanned_if_asked);
    RUN_TEST(what_cannot_be_read_is_reported);
    RUN_TEST(a_path_that_is_not_there_is_an_error);
    RUN_TEST(a_path_that_is_a_pipe_or_a_device_is_an_error);
    RUN_TEST(many_paths);
    RUN_TEST(paths_inside_each_other_are_scanned_once);
    RUN_TEST(files_may_change_meanwhile);
    RUN_TEST(many_small_files);
    RUN_TEST(names_lie_in_the_order_of_the_items);
    RUN_TEST(one_large_file);
    return UNITY_END();
}
