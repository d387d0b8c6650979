/*
 * What rf-scan finds is what ripgrep finds with the same expressions, less what the second stage
 * drops; on a made tree also exactly what was planted. ripgrep's engine shares no code with ours.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "trial.h"

static struct trial trial;
static struct corpus corpus;
static struct rules rules;
static struct corpus oracle; /* the same list: path, rule, start */

void setUp(void)
{
    char why[512];
    trial_begin(&trial);
    TEST_ASSERT_TRUE_MESSAGE(rules_load(&rules, rules_builtin,
                                        (size_t)(rules_builtin_end - rules_builtin), why,
                                        sizeof(why)),
                             why);
    corpus = oracle = (struct corpus){0};
}

void tearDown(void)
{
    corpus_free(&corpus);
    corpus_free(&oracle);
    rules_free(&rules);
    trial_end(&trial);
}

/* --- ripgrep --- */

/* rg with the arguments of all uses: bytes, no ignoring, no guessing of encodings; `rules` rules from
 * `first` on; then the names. Its output goes to `out`. */
static void run_rg(const char *out, const char *mode, uint32_t first, uint32_t count, char **names)
{
    size_t name_count = 0;
    while (names[name_count] != NULL) {
        name_count++;
    }
    char **words = calloc(40 + 2 * count + name_count, sizeof(*words));
    static const char *const fixed[] = {
        "rg",         "--no-config", "-uuu",         "--text",          "--no-unicode",
        "--encoding", "none",        "--no-heading", "--with-filename", "-N",
        "-U",         "--null",      "--color",      "never",           "--no-messages"};
    size_t n = 0;
    for (; n < sizeof(fixed) / sizeof(fixed[0]); n++) {
        words[n] = (char *)(uintptr_t)fixed[n];
    }
    words[n++] = (char *)(uintptr_t)mode;
    for (uint32_t r = first; r < first + count; r++) {
        words[n++] = (char *)(uintptr_t) "-e";
        words[n++] = rules.list[r].match;
    }
    words[n++] = (char *)(uintptr_t) "--";
    for (size_t i = 0; i < name_count; i++) {
        words[n++] = names[i];
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        if (freopen(out, "w", stdout) == NULL) {
            _exit(126);
        }
        execvp("rg", words);
        _exit(127);
    }
    int how;
    waitpid(pid, &how, 0);
    free(words);
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(how) && WEXITSTATUS(how) < 2, "ripgrep");
}

/* Names that end in a zero byte (rg -l --null). */
static char **split_names(char *text, size_t len)
{
    char **names = calloc(len + 2, sizeof(*names));
    size_t count = 0;
    for (size_t at = 0; at < len; at += strlen(text + at) + 1) {
        names[count++] = text + at;
    }
    return names;
}

/* Takes one place that ripgrep found: reads it, and lets the second stage decide. The expression is
 * matched once more from there, only to know which part of it is the secret. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

static void take(uint32_t r, const char *path, uint64_t start, uint64_t end)
{
    static char *cached;
    static size_t cached_len;
    static char cached_path[4600];
    if (cached == NULL || strcmp(cached_path, path) != 0) {
        free(cached);
        cached = trial_read(path, &cached_len);
        snprintf(cached_path, sizeof(cached_path), "%s", path);
    }
    pcre2_match_data *data = pcre2_match_data_create(8, NULL);
    int found = pcre2_match(rules.list[r].code, (PCRE2_SPTR)cached, cached_len, start,
                            PCRE2_ANCHORED, data, NULL);
    TEST_ASSERT_TRUE_MESSAGE(found > 0, "ripgrep found what PCRE2 does not");
    const PCRE2_SIZE *places = pcre2_get_ovector_pointer(data);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(end, places[1], "ripgrep's match has another end");
    size_t from = found > 1 ? places[2] : places[0], to = found > 1 ? places[3] : places[1];
    const struct candidate c = {.rule = &rules.list[r],
                                .secret = (const uint8_t *)cached + from,
                                .len = to - from,
                                .next = to < cached_len ? (uint8_t)cached[to] : -1};
    if (check_passes(&rules, &c)) {
        const char *below = path;
        size_t cut = strlen(trial.tree);
        if (strncmp(path, trial.tree, cut) == 0 && path[cut] == '/') {
            below = path + cut + 1;
        }
        oracle.planted = realloc(oracle.planted, (oracle.count + 1) * sizeof(*oracle.planted));
        oracle.planted[oracle.count++] =
            (struct planted){.path = strdup(below), .rule = rules.list[r].id, .start = start};
    }
    pcre2_match_data_free(data);
}

/* A line of rg --json. Quotes inside of strings are escaped, so these words can't be in one. */
static void take_line(uint32_t r, char *line)
{
    static const char head[] = "{\"type\":\"match\",\"data\":{\"path\":{\"text\":\"";
    if (strncmp(line, head, sizeof(head) - 1) != 0) {
        TEST_ASSERT_NULL_MESSAGE(strstr(line, "{\"type\":\"match\""), "a path that is no UTF-8");
        return;
    }
    char *path = line + sizeof(head) - 1, *at = strchr(path, '"');
    *at++ = '\0';
    TEST_ASSERT_NULL_MESSAGE(strchr(path, '\\'), "a path with an escape");
    at = strstr(at, "\"absolute_offset\":");
    TEST_ASSERT_NOT_NULL(at);
    uint64_t base = strtoull(at + 18, NULL, 10);
    while ((at = strstr(at, ",\"start\":")) != NULL) {
        at += 9;
        uint64_t start = base + strtoull(at, &at, 10);
        TEST_ASSERT_EQUAL_MEMORY(",\"end\":", at, 7);
        take(r, path, start, base + strtoull(at + 7, NULL, 10));
    }
}

/* First one run with all rules for the files that matter at all, then each rule in these. */
static void ask_ripgrep(const char *const *roots)
{
    char out[128];
    size_t len;
    snprintf(out, sizeof(out), "%s/rg", trial.dir);
    run_rg(out, "-l", 0, rules.count, (char **)(uintptr_t)roots);
    char *text = trial_read(out, &len);
    char **names = split_names(text, len);
    for (uint32_t r = 0; names[0] != NULL && r < rules.count; r++) {
        run_rg(out, "--json", r, 1, names);
        size_t found_len;
        char *found = trial_read(out, &found_len), *rest = NULL;
        for (char *line = strtok_r(found, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            take_line(r, line);
        }
        free(found);
    }
    free(names);
    free(text);
    if (oracle.count > 1) {
        qsort(oracle.planted, oracle.count, sizeof(*oracle.planted), corpus_order);
    }
}

static void compare_with_oracle(void)
{
    struct found found = trial_found(&trial);
    struct reckoning r = found_reckon(&found, &oracle);
    char message[512];
    snprintf(message, sizeof(message),
             "ripgrep has %zu, %zu of them missing (%s in %s), %zu more (%s in %s)", oracle.count,
             r.lost, r.first_lost != NULL ? r.first_lost->rule : "",
             r.first_lost != NULL ? r.first_lost->path : "", r.wrong,
             r.first_wrong != NULL ? r.first_wrong->rule : "",
             r.first_wrong != NULL ? r.first_wrong->path : "");
    TEST_ASSERT_TRUE_MESSAGE(r.lost == 0 && r.wrong == 0 && r.twice == 0, message);
    found_free(&found);
}

static void a_made_tree(void)
{
    const struct corpus_options options = {.seed = trial_number("RF_SEED", 7),
                                           .bytes = RF_SCAN_SLOW ? 2000000 : 8000000,
                                           .secrets = 700,
                                           .near_misses = 500};
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
    TEST_ASSERT_EQUAL_INT(1, trial_scan(&trial, "-j2 --binary --no-ignore"));
    trial_check_planted(&trial, &corpus);
    ask_ripgrep((const char *[]){trial.tree, NULL});
    TEST_ASSERT_EQUAL_UINT64(corpus.count, oracle.count);
    compare_with_oracle();
}

/* Bytes of all kinds, so that secrets are cut, doubled, next to each other and in the middle of
 * nonsense. */
static void a_tree_of_broken_secrets(void)
{
    uint64_t seed = trial_number("RF_SEED", 11);
    for (unsigned file = 0; file < 40; file++) {
        char text[60000], name[32];
        size_t len = 0;
        for (unsigned k = 0; k < 150; k++) {
            char line[2048];
            size_t start;
            const char *rule;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t n =
                corpus_secret((unsigned)(seed >> 40), &seed, line, sizeof(line), &start, &rule);
            unsigned dice = (unsigned)(seed >> 33) % 6;
            size_t from = dice == 0 ? start : 0;
            n -= dice == 1 ? n / 3 : 0;
            if (dice == 2) {
                line[n / 2] = (char)(seed >> 20);
            }
            if (len + n >= sizeof(text) - 1) {
                break;
            }
            memcpy(text + len, line + from, n - from);
            len += n - from;
            text[len++] = dice < 3 ? '\n' : dice == 3 ? '"' : dice == 4 ? '\0' : 'a';
        }
        snprintf(name, sizeof(name), "mess/%u", file);
        trial_write(&trial, name, text, len);
    }
    int status = trial_scan(&trial, "-j2 --binary --no-ignore --chunk 16384");
    TEST_ASSERT_EQUAL_INT(1, status);
    ask_ripgrep((const char *[]){trial.tree, NULL});
    TEST_ASSERT_GREATER_THAN_UINT64(1000, oracle.count);
    compare_with_oracle();
}

/* What this machine has; RF_SCAN_REAL names more, such as "/usr/share /usr/include". */
static void real_trees(void)
{
    char roots_text[1024], *rest = NULL, arguments[1200];
    const char *roots[32];
    size_t count = 0;
    const char *more = getenv("RF_SCAN_REAL");
    snprintf(roots_text, sizeof(roots_text), "%s",
             more != NULL ? more : "/usr/include/linux /usr/include/hs /usr/share/perl5 /etc/ssl");
    for (char *w = strtok_r(roots_text, " ", &rest); w != NULL && count < 31;
         w = strtok_r(NULL, " ", &rest)) {
        struct stat st;
        if (stat(w, &st) == 0) {
            roots[count++] = w;
        }
    }
    roots[count] = NULL;
    TEST_ASSERT_TRUE_MESSAGE(count > 0, "nothing to scan");
    snprintf(arguments, sizeof(arguments), "-j2 --binary --no-ignore");
    for (size_t i = 0; i < count; i++) {
        strncat(arguments, " ", sizeof(arguments) - strlen(arguments) - 1);
        strncat(arguments, roots[i], sizeof(arguments) - strlen(arguments) - 1);
    }
    int status = trial_scan(&trial, arguments);
    TEST_ASSERT_TRUE(status == 0 || status == 1);
    ask_ripgrep(roots);
    compare_with_oracle();
}

int main(void)
{
    if (system("command -v rg >/dev/null") != 0) {
        printf("ripgrep is not here\n");
        return 77;
    }
    UNITY_BEGIN();
    RUN_TEST(a_made_tree);
    RUN_TEST(a_tree_of_broken_secrets);
    RUN_TEST(real_trees);
    return UNITY_END();
}
