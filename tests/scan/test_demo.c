/* What `make demo` runs, on a small tree: it keeps what it promises, says it in the words that the
 * README has, and leaves nothing behind. And the program is made as anybody could make it. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trial.h"

static struct trial trial;

void setUp(void)
{
    trial_begin(&trial);
}

void tearDown(void)
{
    trial_end(&trial);
}

/* The number behind these words at the beginning of a line. */
static uint64_t number_behind(const char *text, const char *words)
{
    char line[128];
    snprintf(line, sizeof(line), "\n  %s ", words);
    const char *at = strstr(text, line);
    TEST_ASSERT_NOT_NULL_MESSAGE(at, words);
    return strtoull(at + strlen(line), NULL, 10);
}

static void the_demo_loses_and_repeats_nothing(void)
{
    char command[1024], demo[512], out[128];
    snprintf(demo, sizeof(demo), "%s", RF_SCAN_PROGRAM);
    strcpy(strrchr(demo, '/') + 1, "rf-demo");
    snprintf(out, sizeof(out), "%s/demo", trial.dir);
    snprintf(command, sizeof(command),
             "TMPDIR=%s %s --seed 3 --bytes 9000000 --secrets 250 --rate 1500000 --workers 3 >%s "
             "2>&1",
             trial.tree, demo, out);
    int how = system(command);
    char *said = trial_read(out, NULL);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(250, number_behind(said, "planted"), said);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(250, number_behind(said, "found"), said);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, number_behind(said, "duplicates"), said);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, number_behind(said, "lost"), said);
    TEST_ASSERT_EQUAL_UINT64_MESSAGE(0, number_behind(said, "false alarms"), said);
    TEST_ASSERT_GREATER_THAN_UINT64(0, number_behind(said, "kills survived"));
    /* Whether a zombie had a lease, and lived long enough to be refused, is chance on a slow machine;
     * what the demo makes of that is not. */
    bool refused = number_behind(said, "zombie writes") > 0;
    TEST_ASSERT_EQUAL_INT_MESSAGE(refused ? 0 : 1, WEXITSTATUS(how), said);
    TEST_ASSERT_TRUE_MESSAGE(!refused || strstr(said, "Nothing was lost, nothing was repeated"),
                             said);
    const char *next = strstr(said, "\nTry next");
    TEST_ASSERT_NOT_NULL_MESSAGE(next, said);
    unsigned commands = 0;
    for (const char *at = next; (at = strstr(at, "rf-scan ")) != NULL; at++) {
        commands++;
    }
    TEST_ASSERT_EQUAL_UINT(3, commands);
    free(said);
    TEST_ASSERT_EQUAL_INT_MESSAGE(0, rmdir(trial.tree), "something is left behind");
    mkdir(trial.tree, 0755);
}

static void expect_only_the_public_header(const char *dir)
{
    DIR *list = opendir(dir);
    TEST_ASSERT_NOT_NULL_MESSAGE(list, dir);
    unsigned sources = 0;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (dot == NULL || (strcmp(dot, ".c") != 0 && strcmp(dot, ".h") != 0)) {
            continue;
        }
        char path[512], *rest = NULL;
        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        char *text = trial_read(path, NULL);
        for (char *line = strtok_r(text, "\n", &rest); line != NULL;
             line = strtok_r(NULL, "\n", &rest)) {
            static const char word[] = "#include \"";
            if (strncmp(line, word, sizeof(word) - 1) != 0) {
                continue;
            }
            char own[512], *name = line + sizeof(word) - 1;
            *strchrnul(name, '"') = '\0';
            snprintf(own, sizeof(own), "%s/%s", dir, name);
            bool public = strcmp(name, "ringfence/ringfence.h") == 0;
            TEST_ASSERT_TRUE_MESSAGE(
                public || (strchr(name, '/') == NULL && access(own, R_OK) == 0), line);
        }
        free(text);
        sources++;
    }
    closedir(list);
    TEST_ASSERT_GREATER_THAN_UINT(0, sources);
}

static void it_knows_only_the_public_header(void)
{
    expect_only_the_public_header(RF_SCAN_SOURCES);
    expect_only_the_public_header(RF_SCAN_SOURCES "/demo");
    expect_only_the_public_header(RF_SCAN_SOURCES "/examples");
}

/* The same for everybody who names the seed, whatever compiled it. */
static void a_seed_makes_one_corpus(void)
{
    const struct corpus_options options = {
        .seed = 5, .bytes = 2000000, .secrets = 100, .near_misses = 50};
    struct corpus corpus;
    uint64_t sum = 0xcbf29ce484222325u;
    TEST_ASSERT_TRUE(corpus_make(trial.tree, &options, &corpus));
    for (size_t i = 0; i < corpus.count; i++) {
        const struct planted *p = &corpus.planted[i];
        char line[512];
        snprintf(line, sizeof(line), "%s %s %" PRIu64 "\n", p->path, p->rule, p->start);
        for (const char *at = line; *at != '\0'; at++) {
            sum = (sum ^ (uint8_t)*at) * 0x100000001b3u;
        }
    }
    sum = (sum ^ corpus.bytes) * 0x100000001b3u ^ corpus.files;
    corpus_free(&corpus);
    TEST_ASSERT_EQUAL_HEX64(0x63cb9c84d7313674, sum);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(the_demo_loses_and_repeats_nothing);
    RUN_TEST(a_seed_makes_one_corpus);
    RUN_TEST(it_knows_only_the_public_header);
    return UNITY_END();
}
