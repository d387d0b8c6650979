/*
 * A sample of what `make step` does in full: operations killed at an instruction, and a survivor sent
 * in; and the survivor killed too. RF_SEED chooses the moments.
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unity.h>

#include "prng.h"
#include "shop.h"
#include "stepping.h"

static struct rf_part parts[512];
static const struct rf_part *playing;
static struct rf_stepping how;
static struct rf_stepped total;

void setUp(void)
{
}

void tearDown(void)
{
}

/* By the ten thousand instructions: for the full run. */
static bool is_long(const struct rf_part *part)
{
    static const char *const names[] = {
        "register",
        "register_in_a_chain",
        "create_run_with_shards",
        "create_run_with_140_shards",
        "add_shards",
        "add_shards_into_a_new_extent",
        "checkpoint_into_a_block",
        "checkpoint_into_a_larger_block",
        "checkpoint_with_the_longest_token",
        "complete_into_a_block",
        "release_with_a_cursor",
        "split_replace_in_256",
        "open_cold",
        "split_residual_with_long_ranges",
        "split_residual_that_moves_the_list",
        "purge_of_70_shards",
    };
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(part->scene->name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void play(void)
{
    struct rf_stepped s;
    const char *why = rf_stepping_play(playing, &how, &s);
    if (why != NULL) {
        TEST_FAIL_MESSAGE(why);
    }
    TEST_ASSERT_NOT_EQUAL(0, s.instructions);
    TEST_ASSERT_NOT_EQUAL(0, s.judged);
    total.instructions += s.instructions;
    total.moments += s.moments;
    total.judged += s.judged;
    total.pairs_judged += s.pairs_judged;
}

static void killed_at_any_instruction(void)
{
    TEST_IGNORE_MESSAGE("instructions of a sanitized build are not those of the library");
}

int main(void)
{
    unsigned count = rf_stepping_parts(parts);
    UNITY_BEGIN();
    if (RF_SHOP_SANITIZED) {
        RUN_TEST(killed_at_any_instruction);
        return UNITY_END();
    }
    struct rf_prng prng = {.state = rf_env_number("RF_SEED", 1)};
    how = (struct rf_stepping){.sample = 8,
                               .sample_large = 4,
                               .sample_many = 4,
                               .twice = true,
                               .sample_twice = 16,
                               .seed = rf_prng_next(&prng)};
    for (unsigned i = 0; i < count; i++) {
        static char names[512][128];
        /* Every short scene without a log, and some of those with one. */
        bool wanted = !is_long(&parts[i]) &&
                      (parts[i].durability == RF_VOLATILE || rf_prng_below(&prng, 12) == 0);
        if (wanted) {
            playing = &parts[i];
            snprintf(names[i], sizeof(names[0]), "killed at some instructions: %.90s",
                     parts[i].name);
            UnityDefaultTestRun(play, names[i], __LINE__);
        }
    }
    printf("instructions %llu, states %llu, survivors %llu, after a second death %llu\n",
           (unsigned long long)total.instructions, (unsigned long long)total.moments,
           (unsigned long long)total.judged, (unsigned long long)total.pairs_judged);
    return UNITY_END();
}
