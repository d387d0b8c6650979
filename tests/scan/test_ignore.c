/* Ignore patterns mean what they mean to git: each line below is an answer of `git check-ignore`. What
 * git would keep and we left out would be a secret that nobody looks for. */
#include <string.h>

#include "ignore.h"
#include "unity.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static const struct {
    const char *patterns;
    const char *path; /* a slash at its end: a directory */
    bool ignored;
} answers[] = {
    {"*.log", "a.log", true},
    {"*.log", "d/a.log", true},
    {"/*.log", "d/a.log", false},
    {"d/*.log", "d/a.log", true},
    {"d/*.log", "d/e/a.log", false},
    {"d/**/a", "d/a", true},
    {"d/**/a", "d/e/f/a", true},
    {"d/**", "d/", false},
    {"d/**", "d/e/f", true},
    {"**/a", "a", true},
    {"**/a", "d/e/a", true},
    /* Two stars that are not a whole component are one. */
    {"/**b", "ab", true},
    {"/**b", "a/b", false},
    {"/*x**b", "axcb", true},
    {"/*x**b", "ax/b", false},
    {"/d/a**", "d/ab", true},
    {"/d/a**c", "d/ab/c", false},
    {"/d/***", "d/e/f", true},
    {"/?**/b", "a/c/b", false},
    {"!a**", "ab", false},
    /* Classes. */
    {"[[:alpha:]]", "a", true},
    {"[[:alpha:]]", "1", false},
    {"[[:digit:]x]y", "xy", true},
    {"[![:digit:]]", "1", false},
    {"[[:nonsense:]]", "a", false},
    {"[a-c]x", "bx", true},
    {"[!a-c]x", "bx", false},
    {"[]a]", "]", true},
    {"[\\]]", "]", true},
    {"[a-\\c]", "b", true},
    {"[a-]", "-", true},
    {"a[/]b", "a/b", false},
    {"[a", "[a", false},
    {"x[a", "x[a", false},
    /* What a \ takes, and blanks at the end. */
    {"\\!a", "!a", true},
    {"\\#a", "#a", true},
    {"#a", "#a", false},
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"a\\", "a\\", false},
    {"a\\", "a", false},
    {"a  ", "a", true},
    {"a\\ ", "a ", true},
    {"a\\ ", "a", false},
    {"a\\  ", "a ", true},
    {"a\r\n", "a", true},
    {"\xef\xbb\xbf"
     "a",
     "a", true},
    /* Directories, order, and what is taken back. */
    {"a/", "a/", true},
    {"a/", "a", false},
    {"*\n!a", "a", false},
    {"!a\n*", "a", true},
    {"*\n!/d/a", "a", true},
    {"/", "a", false},
};

static void patterns_mean_what_they_mean_to_git(void)
{
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        char path[64];
        snprintf(path, sizeof(path), "%s", answers[i].path);
        size_t len = strlen(path);
        bool directory = path[len - 1] == '/';
        path[len - directory] = '\0';
        struct ignore *ignore =
            ignore_push(NULL, answers[i].patterns, strlen(answers[i].patterns), 0);
        bool ignored = ignore_match(ignore, path, directory);
        ignore_pop(ignore);
        char message[160];
        snprintf(message, sizeof(message), "%s for %s", answers[i].patterns, answers[i].path);
        TEST_ASSERT_EQUAL_INT_MESSAGE(answers[i].ignored, ignored, message);
    }
}

/* Patterns of the file in a directory are for what is below that, and go before those above. */
static void files_further_down_go_first(void)
{
    struct ignore *above = ignore_push(NULL, "*.x\n/top", 8, 0);
    struct ignore *below = ignore_push(above, "!b.x\n/top\nc/d", 13, 4);
    TEST_ASSERT_TRUE(ignore_match(below, "sub/a.x", false));
    TEST_ASSERT_FALSE(ignore_match(below, "sub/b.x", false));
    TEST_ASSERT_TRUE(ignore_match(below, "sub/top", false));
    TEST_ASSERT_FALSE(ignore_match(above, "sub/top", false));
    TEST_ASSERT_TRUE(ignore_match(below, "sub/c/d", false));
    ignore_pop(ignore_pop(below));
}

/* A pattern made to be slow ends, and then fits nothing. */
static void a_pattern_can_not_take_for_ever(void)
{
    char text[256];
    memset(text, 'a', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    TEST_ASSERT_FALSE(ignore_glob("*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", text));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(patterns_mean_what_they_mean_to_git);
    RUN_TEST(files_further_down_go_first);
    RUN_TEST(a_pattern_can_not_take_for_ever);
    return UNITY_END();
}
