/* The processes that measure together: a window is as long as was asked for, whoever sleeps through its end. */
#include "gang.h"

#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unity.h"

#define WINDOW_S  0.05
#define SLEEPS_US 400000u

struct seen {
    _Atomic uint64_t quick;
    _Atomic uint64_t slow;
};
static struct seen *seen;

void setUp(void)
{
    seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(seen != MAP_FAILED);
}

void tearDown(void)
{
    munmap(seen, sizeof(*seen));
}

struct worker {
    uint32_t number;
};

static void *begin(void *argument, uint32_t number)
{
    static struct worker worker;
    (void)argument;
    worker.number = number;
    return &worker;
}

static void quick_and_slow(void *context, uint64_t i)
{
    const struct worker *worker = context;
    (void)i;
    if (worker->number == 0) {
        usleep(100);
        atomic_fetch_add(&seen->quick, 1);
    } else {
        usleep(SLEEPS_US);
        atomic_fetch_add(&seen->slow, 1);
    }
}

/* A window that was stretched to the end of the slow one would not hold a whole number of steps. */
static void who_sleeps_through_the_end_of_the_window_does_not_stretch_it(void)
{
    struct gang *gang = gang_start(begin, NULL, 2);
    for (unsigned i = 0; i < 5; i++) {
        atomic_store(&seen->quick, 0);
        atomic_store(&seen->slow, 0);
        struct gang_outcome outcome =
            gang_run(gang, &(struct gang_order){.step = quick_and_slow, .seconds = WINDOW_S});
        double steps = outcome.rate * WINDOW_S;
        TEST_ASSERT_TRUE(fabs(steps - round(steps)) < 1e-6);
        TEST_ASSERT_TRUE(round(steps) <= (double)atomic_load(&seen->quick));
    }
    gang_stop(gang);
}

static void every_step_of_a_count_counts(void)
{
    struct gang *gang = gang_start(begin, NULL, 1);
    struct gang_outcome outcome =
        gang_run(gang, &(struct gang_order){.step = quick_and_slow, .count = 20, .rate = 5000});
    TEST_ASSERT_EQUAL_UINT64(20, outcome.times->count);
    TEST_ASSERT_EQUAL_UINT64(20, atomic_load(&seen->quick));
    gang_stop(gang);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(who_sleeps_through_the_end_of_the_window_does_not_stretch_it);
    RUN_TEST(every_step_of_a_count_counts);
    return UNITY_END();
}
