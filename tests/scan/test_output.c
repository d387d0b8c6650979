/* What comes out: formats, masking, baseline, allow-list, exit statuses. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rules.h"
#include "trial.h"

static struct trial trial;
static char line[512];
static char secret[64]; /* only the token */

/* The first of the built-in rules, and the placeholders before it: what is tried here does not depend
 * on how many there are, and compiling them all is most of the time of a small scan. */
static void write_rules(const char *file)
{
    const char *end = strstr(rules_builtin, "[aws-secret-access-key]");
    TEST_ASSERT_NOT_NULL(end);
    FILE *out = fopen(file, "w");
    TEST_ASSERT_NOT_NULL(out);
    fwrite(rules_builtin, 1, (size_t)(end - rules_builtin), out);
    fclose(out);
}

void setUp(void)
{
    static char rules[128];
    uint64_t seed = 17;
    size_t start;
    const char *rule;
    trial_begin(&trial);
    snprintf(rules, sizeof(rules), "%s/aws.conf", trial.dir);
    write_rules(rules);
    trial.rules = rules;
    corpus_secret(0, &seed, line, sizeof(line), &start, &rule);
    TEST_ASSERT_EQUAL_STRING("aws-access-key-id", rule);
    snprintf(secret, sizeof(secret), "%s", line + start);
}

void tearDown(void)
{
    trial_end(&trial);
}

static void write_secret(const char *path, const char *before, const char *behind)
{
    char text[4096];
    snprintf(text, sizeof(text), "%s%s%s\n", before, line, behind);
    trial_write_text(&trial, path, text);
}

static void exit_statuses(void)
{
    trial_write_text(&trial, "clean", "nothing\n");
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, "-j1"));
    write_secret("dirty", "", "");
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1"));
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "-j0"));
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "--no-such-option"));
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "--rules /no/such/file"));
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "--json /no/such/dir/file"));
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, "--help"));
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, "--check-rules"));
}

/* What rf-scan draws on a terminal of so many columns; it starts over, or goes on. */
static char *drawn(unsigned short columns, bool fresh)
{
    static char text[1 << 20];
    size_t len = 0;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    TEST_ASSERT_TRUE(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int side = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    TEST_ASSERT_TRUE(side >= 0);
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    TEST_ASSERT_EQUAL_INT(0, ioctl(side, TIOCSWINSZ, &size));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int nothing = open("/dev/null", O_WRONLY);
        dup2(nothing, STDOUT_FILENO);
        dup2(side, STDERR_FILENO);
        execl(trial.program, "rf-scan", "-j1", "--rate", "1M", "--rules", trial.rules, "--state",
              trial.state, trial.tree, fresh ? "--fresh" : (char *)NULL, (char *)NULL);
        _exit(127);
    }
    close(side);
    for (ssize_t n;
         len < sizeof(text) - 1 && (n = read(terminal, text + len, sizeof(text) - 1 - len)) > 0;) {
        len += (size_t)n;
    }
    close(terminal);
    TEST_ASSERT_EQUAL_INT(1, trial_wait(pid));
    text[len] = '\0';
    return text;
}

static void write_many(unsigned count)
{
    char padding[3000];
    memset(padding, 'y', sizeof(padding) - 1);
    padding[sizeof(padding) - 1] = '\0';
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof(name), "f%u", i);
        write_secret(name, padding, "");
    }
}

/* The lines of what was drawn, without what moves the cursor. NULL: no more of them. */
static char *next_line(char *text, char **rest)
{
    static const char *const moves[] = {"\033[A", "\033[J"};
    char *l = strtok_r(text, "\r\n", rest);
    for (unsigned i = 0; l != NULL && i < 2; i++) {
        while (strncmp(l, moves[i], 3) == 0) {
            l += 3;
        }
    }
    return l;
}

static void progress_fits_the_terminal(void)
{
    static const unsigned short widths[] = {30, 80, 110, 200};
    static const char *const parts[] = {"% [",      " left",    " found",  "/s ",
                                        " files/s", " workers", " splits", " restarts"};
    write_many(100);
    for (unsigned i = 0; i < 4; i++) {
        unsigned lines = 0, seen[8] = {0};
        char *rest = NULL;
        for (char *l = next_line(drawn(widths[i], true), &rest); l != NULL;
             l = next_line(NULL, &rest)) {
            TEST_ASSERT_NULL_MESSAGE(strchr(l, '\033'), l);
            TEST_ASSERT_TRUE_MESSAGE(strlen(l) < widths[i], l);
            lines += l[0] != '\0';
            for (unsigned k = 0; k < 8; k++) {
                seen[k] += strstr(l, parts[k]) != NULL;
            }
        }
        /* All of it from 80 columns on, in two lines or one. */
        TEST_ASSERT_TRUE(seen[0] > 0);
        for (unsigned k = 0; k < 8 && widths[i] >= 80; k++) {
            TEST_ASSERT_EQUAL_UINT_MESSAGE(seen[0], seen[k], parts[k]);
        }
        TEST_ASSERT_TRUE(lines >= seen[0] && lines <= (widths[i] == 200 ? 1 : 2) * seen[0]);
    }
}

/* The most that a worker has written, in all the directories of findings. */
static off_t most_found(void)
{
    off_t most = 0;
    DIR *state = opendir(trial.state);
    struct dirent *entry, *file;
    while (state != NULL && (entry = readdir(state)) != NULL) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof(path), "%s/%s", trial.state, entry->d_name);
        DIR *found = strncmp(entry->d_name, "found-", 6) == 0 ? opendir(path) : NULL;
        while (found != NULL && (file = readdir(found)) != NULL) {
            if (file->d_name[0] != '.' &&
                fstatat(dirfd(found), file->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                most = st.st_size > most ? st.st_size : most;
            }
        }
        if (found != NULL) {
            closedir(found);
        }
    }
    if (state != NULL) {
        closedir(state);
    }
    return most;
}

/* A slow scan of one worker that is killed when several findings were committed. */
static void leave_half_a_scan(void)
{
    pid_t scan = trial_start(&trial, "-j1 --rate 100K --commit 1");
    for (unsigned ms = 0; most_found() < 600 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    trial_kill_all(scan);
    TEST_ASSERT_GREATER_OR_EQUAL_INT64(600, most_found());
}

static void progress_goes_on_where_it_was(void)
{
    unsigned lines = 0;
    char *rest = NULL, last[256] = "";
    write_many(100);
    leave_half_a_scan();
    for (char *l = next_line(drawn(200, false), &rest); l != NULL; l = next_line(NULL, &rest)) {
        if (strstr(l, "% [") != NULL) {
            TEST_ASSERT_NULL_MESSAGE(strstr(l, "  0 found"), l);
            snprintf(last, sizeof(last), "%s", l);
            lines++;
        }
    }
    TEST_ASSERT_GREATER_THAN_UINT(0, lines);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(last, "100%"), last);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(last, "  100 found"), last);
}

/* What is left out is no work that is still to do. */
static void progress_ends_with_binary_files_too(void)
{
    static char bytes[200000];
    char *rest = NULL, last[256] = "";
    write_many(1);
    trial_write(&trial, "program", bytes, sizeof(bytes));
    for (char *l = next_line(drawn(200, true), &rest); l != NULL; l = next_line(NULL, &rest)) {
        if (strstr(l, "% [") != NULL) {
            snprintf(last, sizeof(last), "%s", l);
        }
    }
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(last, "100% ["), last);
}

/* A large tree is not listed at once, nor in silence. */
static void listing_files_shows_how_many(void)
{
    write_many(1);
    for (unsigned i = 0; i < 1000; i++) {
        char name[32];
        snprintf(name, sizeof(name), "n%u", i);
        trial_write_text(&trial, name, "");
    }
    char *text = drawn(80, true);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(text, "\033[Klisting: 1000 files\r\033[K"), text);
}

/* While the scan is on and after it: the secret is only where it was. */
static void secrets_are_masked_everywhere(void)
{
    char arguments[256];
    for (unsigned i = 0; i < 200; i++) {
        char name[32], padding[3000];
        memset(padding, 'y', sizeof(padding));
        padding[sizeof(padding) - 2] = '\n';
        padding[sizeof(padding) - 1] = '\0';
        snprintf(name, sizeof(name), "f%u", i);
        write_secret(name, padding, "");
    }
    snprintf(arguments, sizeof(arguments), "-j2 --rate 1M --commit 1 --sarif %s/sarif", trial.dir);
    pid_t scan = trial_start(&trial, arguments);
    trial_sleep_ms(500);
    trial_kill_all(scan);
    TEST_ASSERT_FALSE_MESSAGE(trial_tree_holds(trial.state, secret), "in the state");
    snprintf(arguments, sizeof(arguments), "-j2 --sarif %s/sarif", trial.dir);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    char moved[128];
    snprintf(moved, sizeof(moved), "%s-moved", trial.dir);
    TEST_ASSERT_EQUAL_INT(0, rename(trial.tree, moved));
    bool leaked = trial_tree_holds(trial.dir, secret);
    TEST_ASSERT_EQUAL_INT(0, rename(moved, trial.tree));
    TEST_ASSERT_FALSE_MESSAGE(leaked, "in a report");
    /* and it is shown if asked */
    snprintf(arguments, sizeof(arguments), "-j2 --reveal --sarif %s/sarif", trial.dir);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    static const char *const reports[] = {"found.jsonl", "sarif", "out"};
    for (unsigned i = 0; i < 3; i++) {
        char file[128];
        snprintf(file, sizeof(file), "%s/%s", trial.dir, reports[i]);
        char *text = trial_read(file, NULL);
        bool shown = strstr(text, secret) != NULL;
        free(text);
        TEST_ASSERT_TRUE_MESSAGE(shown, reports[i]);
    }
}

static void lines_and_columns(void)
{
    write_secret("a", "one\ntwo\n\xc3\xa4\xc3\xb6 ", " behind");
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1"));
    char *findings = trial_findings(&trial), want[64];
    snprintf(want, sizeof(want), "\"line\":3,\"column\":%zu,",
             3 + (size_t)(strstr(line, secret) - line) + 1);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(findings, want), findings);
    free(findings);
}

static void a_baseline_leaves_only_what_is_new(void)
{
    char old[128], sarif[128], arguments[300];
    snprintf(old, sizeof(old), "%s/old.jsonl", trial.dir);
    snprintf(sarif, sizeof(sarif), "%s/old.sarif", trial.dir);
    write_secret("known", "", "");
    snprintf(arguments, sizeof(arguments), "-j1 --sarif %s", sarif);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    TEST_ASSERT_EQUAL_INT(0, rename(trial.json, old));
    const char *baselines[] = {old, sarif};
    for (unsigned i = 0; i < 2; i++) {
        snprintf(arguments, sizeof(arguments), "-j1 --baseline %s", baselines[i]);
        TEST_ASSERT_EQUAL_INT_MESSAGE(0, trial_scan(&trial, arguments), baselines[i]);
        struct found found = trial_found(&trial);
        TEST_ASSERT_EQUAL_UINT64(1, found.known);
        found_free(&found);
    }
    write_secret("known", "it moved\n", ""); /* the same secret elsewhere in its file */
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, arguments));
    write_secret("fresh", "", "");
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(1, found.count);
    TEST_ASSERT_EQUAL_STRING("fresh", found.list[0].path);
    found_free(&found);
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "-j1 --baseline /no/such/file"));
}

static void expect_said(const char *words)
{
    char *out = trial_read(trial.out, NULL);
    TEST_ASSERT_NOT_NULL_MESSAGE(strstr(out, words), out);
    free(out);
}

/* Refused, in these words, before a scan was begun. */
static void expect_refused_at_the_start(const char *arguments, const char *words)
{
    TEST_ASSERT_EQUAL_INT_MESSAGE(2, trial_scan(&trial, arguments), arguments);
    expect_said(words);
    TEST_ASSERT_EQUAL_INT_MESSAGE(-1, access(trial.state, F_OK), arguments);
}

static void a_baseline_that_is_not_a_whole_report_is_refused_at_the_start(void)
{
    char file[128], sarif[128], arguments[300];
    snprintf(file, sizeof(file), "%s/part", trial.dir);
    snprintf(sarif, sizeof(sarif), "%s/sarif", trial.dir);
    write_secret("known", "", "");
    write_secret("other", "", "");
    snprintf(arguments, sizeof(arguments), "-j1 --sarif %s", sarif);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    size_t lens[2];
    char *reports[] = {trial_read(trial.json, &lens[0]), trial_read(sarif, &lens[1])};
    const char *summary = strstr(reports[0], "{\"type\":\"summary\"");
    snprintf(arguments, sizeof(arguments), "-j1 --baseline %s", file);
    for (unsigned i = 0; i < 2; i++) {
        /* The last byte of all is a line's end, which may be missing. */
        const size_t cuts[] = {0, 1, lens[i] / 2, lens[i] - 2, (size_t)(summary - reports[0])};
        for (unsigned k = 0; k < (i == 0 ? 5 : 4); k++) {
            FILE *out = fopen(file, "w");
            fwrite(reports[i], 1, cuts[k], out);
            fclose(out);
            expect_refused_at_the_start(arguments, "part: not a whole report");
        }
        FILE *out = fopen(file, "w");
        fwrite(reports[i], 1, lens[i] - 1, out);
        fclose(out);
        TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, arguments));
        free(reports[i]);
    }
    static const char *const others[] = {"0123456789abcdef\n", "{}\n", "[]", "{\"runs\": [\"]}\n"};
    for (unsigned i = 0; i < 4; i++) {
        FILE *out = fopen(file, "w");
        fputs(others[i], out);
        fclose(out);
        expect_refused_at_the_start(arguments, "part: not a whole report");
    }
    expect_refused_at_the_start("-j1 --baseline /no/such/file", "/no/such/file: No such file");
}

static void a_report_that_can_not_be_written_is_refused_at_the_start(void)
{
    char arguments[300];
    write_secret("x", "", "");
    expect_refused_at_the_start("-j1 --json /no/such/dir/file", "/no/such/dir/file: No such file");
    expect_refused_at_the_start("-j1 --sarif /no/such/dir/file", "/no/such/dir/file: No such file");
    snprintf(arguments, sizeof(arguments), "-j1 --sarif %s", trial.tree);
    expect_refused_at_the_start(arguments, "Is a directory");
}

static void a_report_does_not_take_the_place_of_a_pipe_or_a_link(void)
{
    char link[128], pipe[128], arguments[400], byte;
    struct stat st;
    snprintf(pipe, sizeof(pipe), "%s/pipe", trial.dir);
    snprintf(link, sizeof(link), "%s/link", trial.dir);
    write_secret("x", "", "");
    TEST_ASSERT_EQUAL_INT(0, mkfifo(pipe, 0600));
    TEST_ASSERT_EQUAL_INT(0, symlink("/dev/null", link));
    int reader = open(pipe, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    snprintf(arguments, sizeof(arguments), "-j1 --json %s --sarif %s", pipe, link);
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    TEST_ASSERT_EQUAL_INT(1, read(reader, &byte, 1));
    close(reader);
    TEST_ASSERT_TRUE(lstat(pipe, &st) == 0 && S_ISFIFO(st.st_mode));
    TEST_ASSERT_TRUE(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    snprintf(arguments, sizeof(arguments), "-j1 --json %s", link);
    TEST_ASSERT_EQUAL_INT(0, unlink(link));
    TEST_ASSERT_EQUAL_INT(0, symlink("/no/such/file", link));
    expect_refused_at_the_start(arguments, "No such file");
}

static void write_file(const char *file, const char *text)
{
    FILE *out = fopen(file, "w");
    TEST_ASSERT_NOT_NULL(out);
    fputs(text, out);
    fclose(out);
}

static void reports_that_would_be_lost_are_refused_at_the_start(void)
{
    char arguments[300];
    write_secret("x", "", "");
    snprintf(arguments, sizeof(arguments), "-j1 --sarif %s", trial.json);
    expect_refused_at_the_start(arguments, "can't both go to");
    expect_refused_at_the_start("-j1 --json=", "--json needs a value");
    expect_refused_at_the_start("-j1 --baseline=", "--baseline needs a value");
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "-j1 --state="));
    expect_said("--state needs a value");
    /* The rest of such a report is not left behind. */
    write_many(100);
    pid_t scan = trial_start(&trial, "-j1 --rate 300K");
    for (unsigned ms = 0; most_found() == 0 && ms < 60000; ms++) {
        trial_sleep_ms(1);
    }
    TEST_ASSERT_EQUAL_INT(0, mkdir(trial.json, 0700));
    TEST_ASSERT_EQUAL_INT(2, trial_wait(scan));
    expect_said("found.jsonl: Is a directory");
    DIR *dir = opendir(trial.dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        TEST_ASSERT_NULL_MESSAGE(strstr(entry->d_name, ".new-"), entry->d_name);
    }
    closedir(dir);
    /* Nothing was lost: the same command only writes. */
    TEST_ASSERT_EQUAL_INT(0, rmdir(trial.json));
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1"));
    struct found found = trial_found(&trial);
    TEST_ASSERT_TRUE(found.resumed);
    TEST_ASSERT_EQUAL_UINT64(101, found.count);
    found_free(&found);
}

/* The table and reports go to where they can't be read by mistake: the next file that is opened would
 * have their descriptor. */
static void a_closed_standard_output_is_an_error(void)
{
    write_secret("x", "", "");
    for (unsigned json = 0; json <= 1; json++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0) {
            int out = open(trial.out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
            dup2(out, STDERR_FILENO);
            close(out);
            close(STDOUT_FILENO); /* the lock would be next */
            execl(trial.program, "rf-scan", "-j1", "--rules", trial.rules, "--state", trial.state,
                  trial.tree, json != 0 ? "--json=-" : (char *)NULL, (char *)NULL);
            _exit(127);
        }
        TEST_ASSERT_EQUAL_INT(2, trial_wait(pid));
        expect_said("standard output: Bad file descriptor");
    }
}

/* What is in a directory that is no scan's stays there. */
static void a_state_that_is_something_else_is_refused(void)
{
    static const char *const names[] = {"items", "lock", "identity", "found-photos/sea"};
    char dir[128], file[256], arguments[300];
    write_secret("x", "", "");
    snprintf(dir, sizeof(dir), "%s/mine", trial.dir);
    snprintf(arguments, sizeof(arguments), "-j1 --state %s", dir);
    for (unsigned i = 0; i < 4; i++) {
        TEST_ASSERT_EQUAL_INT(0, mkdir(dir, 0700));
        snprintf(file, sizeof(file), "%s/found-photos", dir);
        TEST_ASSERT_TRUE(i < 3 || mkdir(file, 0700) == 0);
        snprintf(file, sizeof(file), "%s/%s", dir, names[i]);
        write_file(file, "precious\n");
        expect_refused_at_the_start(arguments, "holds other things than a scan");
        char *text = trial_read(file, NULL);
        TEST_ASSERT_EQUAL_STRING("precious\n", text);
        free(text);
        remove_tree(dir);
    }
    /* An empty one will do, and one that a scan had only begun. */
    TEST_ASSERT_EQUAL_INT(0, mkdir(dir, 0700));
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
    TEST_ASSERT_EQUAL_INT(0, mkdir(dir, 0700));
    snprintf(file, sizeof(file), "%s/lock", dir);
    write_file(file, "");
    snprintf(file, sizeof(file), "%s/identity.new", dir);
    write_file(file, "0123");
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, arguments));
}

/* A writer in a process of its own, as `--allow <(...)` makes one. */
static pid_t write_to_pipe(const char *pipe, const char *text)
{
    TEST_ASSERT_EQUAL_INT(0, mkfifo(pipe, 0600));
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = open(pipe, O_WRONLY);
        _exit(write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : 1);
    }
    return pid;
}

static void what_is_read_may_come_from_a_pipe(void)
{
    char pipe[128], arguments[300];
    write_secret("x", "", "");
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1"));
    char *report = trial_read(trial.json, NULL);
    const struct {
        const char *option, *text;
        int status;
    } inputs[] = {
        {"allow", "rule:aws-access-key-id\n", 0},
        {"baseline", report, 0},
        {"rules", "[a]\nname = a\nmatch = region\nyes = region\nno = x\n", 1},
    };
    for (unsigned i = 0; i < 3; i++) {
        snprintf(pipe, sizeof(pipe), "%s/pipe", trial.dir);
        snprintf(arguments, sizeof(arguments), "-j1 --%s %s", inputs[i].option, pipe);
        pid_t writer = write_to_pipe(pipe, inputs[i].text);
        int status = trial_scan(&trial, arguments);
        kill(writer, SIGKILL);
        trial_wait(writer);
        TEST_ASSERT_EQUAL_INT_MESSAGE(inputs[i].status, status, arguments);
        unlink(pipe);
        snprintf(arguments, sizeof(arguments), "-j1 --%s %s", inputs[i].option, trial.tree);
        expect_refused_at_the_start(arguments, "Is a directory");
    }
    free(report);
}

/* A rule that is given up at some text is told like a file that can't be read. */
static void what_a_rule_needs_too_long_for_is_reported(void)
{
    char rules[128], arguments[300], text[256] = "L";
    snprintf(rules, sizeof(rules), "%s/rules", trial.dir);
    snprintf(arguments, sizeof(arguments), "-j1 --rules %s", rules);
    write_file(rules, "[a]\nname = a\nmatch = L(?:a|aa){1,60}b\nyes = Lab\nno = x\n");
    memset(text + 1, 'a', 100);
    strcpy(text + 101, "c Lab\n");
    trial_write_text(&trial, "slow", text);
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, arguments));
    expect_said("slow: could not be read: a rule needs too long");
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(1, found.unreadable);
    found_free(&found);
}

static void a_number_out_of_range_is_refused_with_the_range(void)
{
    expect_refused_at_the_start("-j 100000", "--workers takes 1 to 512, not 100000");
    expect_refused_at_the_start("--rate 1", "--rate takes 1024 or more, not 1");
}

static void what_is_allowed_is_not_reported(void)
{
    char allow[128], arguments[300], text[300];
    snprintf(allow, sizeof(allow), "%s/allow", trial.dir);
    snprintf(arguments, sizeof(arguments), "-j1 --allow %s", allow);
    write_secret("here", "", "");
    write_secret("there", "", "  # rf-scan:allow, it is revoked");
    const struct {
        const char *text;
        int status;
    } lists[] = {
        {"# nothing\n", 1},
        {"path:*/here\n", 1},
        {"path:**here\n", 1},
        {"path:**/here\n", 0},
        {"path:here\n", 1},
        {"rule:jwt\n", 1},
        {"rule:aws-access-key-id\n", 0},
        {"fingerprint:123\nsecret:x\n", 1},
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        FILE *out = fopen(allow, "w");
        fputs(lists[i].text, out);
        fclose(out);
        int status = trial_scan(&trial, arguments);
        TEST_ASSERT_EQUAL_INT_MESSAGE(lists[i].status, status, lists[i].text);
    }
    FILE *out = fopen(allow, "w");
    snprintf(text, sizeof(text), "secret:%s\n", secret);
    fputs(text, out);
    fclose(out);
    TEST_ASSERT_EQUAL_INT(0, trial_scan(&trial, arguments));
    struct found found = trial_found(&trial);
    TEST_ASSERT_EQUAL_UINT64(2, found.allowed);
    found_free(&found);
    out = fopen(allow, "w");
    fputs("what is this\n", out);
    fclose(out);
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, arguments));
}

static void sarif_is_what_its_schema_says(void)
{
    if (access(RF_SCAN_SCHEMA, R_OK) != 0) {
        TEST_IGNORE_MESSAGE("SARIF's schema is not here; cmake/deps.sh test gets it");
    }
    if (system("/usr/bin/python3 -c 'import jsonschema' 2>/dev/null") != 0) {
        TEST_IGNORE_MESSAGE("python3-jsonschema is not here");
    }
    char sarif[128], arguments[300], script[128], command[512];
    snprintf(sarif, sizeof(sarif), "%s/report.sarif", trial.dir);
    snprintf(script, sizeof(script), "%s/check.py", trial.dir);
    snprintf(arguments, sizeof(arguments), "-j1 --sarif %s", sarif);
    FILE *out = fopen(script, "w");
    fputs("import json, sys\n"
          "import jsonschema\n"
          "schema = json.load(open(sys.argv[1]))\n"
          "report = json.load(open(sys.argv[2], encoding='utf-8'))\n"
          "jsonschema.Draft4Validator.check_schema(schema)\n"
          "errors = list(jsonschema.Draft4Validator(schema).iter_errors(report))\n"
          "for e in errors[:5]:\n"
          "    print(list(e.path), e.message[:200])\n"
          "results = report['runs'][0]['results']\n"
          "rules = report['runs'][0]['tool']['driver']['rules']\n"
          "assert all(rules[r['ruleIndex']]['id'] == r['ruleId'] for r in results)\n"
          "sys.exit(0 if not errors and len(results) == int(sys.argv[3]) else 1)\n",
          out);
    fclose(out);
    const struct {
        const char *path;
        int count;
    } steps[] = {{"plain", 1}, {"with blank and \xc3\xa4", 2}, {"bad\xff\nname", 3}};
    trial_write_text(&trial, "nothing", "at all\n");
    int count = 0;
    const char *few = trial.rules;
    for (size_t i = 0; i <= 3; i++) {
        trial.rules = i == 3 ? NULL : few; /* once all of them */
        TEST_ASSERT_EQUAL_INT(count > 0, trial_scan(&trial, arguments));
        snprintf(command, sizeof(command), "/usr/bin/python3 %s %s %s %d", script, RF_SCAN_SCHEMA,
                 sarif, count);
        TEST_ASSERT_EQUAL_INT(0, system(command));
        if (i < 3) {
            write_secret(steps[i].path, "", "");
            count = steps[i].count;
        }
    }
    /* The check can fail: a report that is none does. */
    out = fopen(sarif, "w");
    fputs("{\"version\": \"2.1.0\", \"runs\": [{\"tool\": {}, \"results\": []}]}", out);
    fclose(out);
    snprintf(command, sizeof(command), "/usr/bin/python3 %s %s %s 0 >/dev/null 2>&1", script,
             RF_SCAN_SCHEMA, sarif);
    TEST_ASSERT_NOT_EQUAL(0, system(command));
}

static void standard_output_takes_one_report(void)
{
    write_secret("x", "", "");
    TEST_ASSERT_EQUAL_INT(2, trial_scan(&trial, "--json - --sarif -"));
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j1 --sarif -"));
    char *out = trial_read(trial.out, NULL);
    TEST_ASSERT_EQUAL_MEMORY("{\n  \"version\": \"2.1.0\"", out, 22);
    free(out);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(exit_statuses);
    RUN_TEST(progress_fits_the_terminal);
    RUN_TEST(progress_goes_on_where_it_was);
    RUN_TEST(progress_ends_with_binary_files_too);
    RUN_TEST(listing_files_shows_how_many);
    RUN_TEST(secrets_are_masked_everywhere);
    RUN_TEST(lines_and_columns);
    RUN_TEST(a_baseline_leaves_only_what_is_new);
    RUN_TEST(a_baseline_that_is_not_a_whole_report_is_refused_at_the_start);
    RUN_TEST(a_report_that_can_not_be_written_is_refused_at_the_start);
    RUN_TEST(a_report_does_not_take_the_place_of_a_pipe_or_a_link);
    RUN_TEST(reports_that_would_be_lost_are_refused_at_the_start);
    RUN_TEST(a_closed_standard_output_is_an_error);
    RUN_TEST(a_state_that_is_something_else_is_refused);
    RUN_TEST(what_is_read_may_come_from_a_pipe);
    RUN_TEST(what_a_rule_needs_too_long_for_is_reported);
    RUN_TEST(a_number_out_of_range_is_refused_with_the_range);
    RUN_TEST(what_is_allowed_is_not_reported);
    RUN_TEST(sarif_is_what_its_schema_says);
    RUN_TEST(standard_output_takes_one_report);
    return UNITY_END();
}
