/* rf-power: see power.h. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <unity.h>

#include "power.h"

static struct rf_power power = {
    .workers = 12, .images = 1000, .images_storm = 500, .storm_seconds = 6, .seed = 1};
static char directory[64];

void setUp(void)
{
}

void tearDown(void)
{
}

static void usage(FILE *out)
{
    fprintf(out,
            "usage: rf-power [options]\n"
            "Cuts the power under a storm of workers that are killed and stopped, and recovers.\n"
            "  -i, --images N     in all [1000]\n"
            "  -e, --each N       images of one storm; then there is another [500]\n"
            "  -s, --seconds N    end after so long, between two storms [0: with the images]\n"
            "  -t, --storm N      seconds of one storm, at most [6]\n"
            "  -w, --workers N    processes, 1 to 64 [12]\n"
            "  -j, --jobs N       judges at once [cores]\n"
            "  -d, --directory D  a new directory to work in [/tmp/rf-power-PID]\n"
            "  -S, --seed N       [1]\n");
}

static void play(void)
{
    struct rf_power_report r;
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    const char *why = rf_power_play(&power, &r);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("seed %" PRIu64 ": %" PRIu64 " storms of %u workers: %" PRIu64 " kills, %" PRIu64
           " stops, %" PRIu64 " cold opens, %" PRIu64 " snapshots asked for\n",
           power.seed, r.storms, power.workers, r.kills, r.stops, r.cold, r.snapshots);
    printf("traced: %" PRIu64 " events, of them %" PRIu64 " writes of %" PRIu64 " MB, %" PRIu64
           " syncs, %" PRIu64 " changes of names, %" PRIu64 " lines of ledgers\n",
           r.events, r.writes, r.bytes >> 20, r.syncs, r.names, r.notes);
    printf("%" PRIu64 " images, %" PRIu64 " of moments with something not durable, %" PRIu64
           " during a recovery: %" PRIu64 " acknowledged items, %" PRIu64
           " checkpoints before a later one, %" PRIu64 " fences looked at, in %ld s\n",
           r.images, r.unsettled, r.recovering, r.acks, r.steps, r.fences,
           (long)(to.tv_sec - from.tv_sec));
    if (why != NULL) {
        TEST_FAIL_MESSAGE(why);
    }
    TEST_ASSERT_NOT_EQUAL_MESSAGE(0, r.images, "no image was looked at");
    printf("nothing acknowledged was lost, everything was a prefix, no fence came twice\n");
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"images", 1, NULL, 'i'},    {"each", 1, NULL, 'e'},
                                          {"seconds", 1, NULL, 's'},   {"storm", 1, NULL, 't'},
                                          {"workers", 1, NULL, 'w'},   {"jobs", 1, NULL, 'j'},
                                          {"directory", 1, NULL, 'd'}, {"seed", 1, NULL, 'S'},
                                          {"help", 0, NULL, 'h'},      {0}};
    int c;
    snprintf(directory, sizeof(directory), "/tmp/rf-power-%d", (int)getpid());
    power.directory = directory;
    power.jobs = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    while ((c = getopt_long(argc, argv, "i:e:s:t:w:j:d:S:h", names, NULL)) != -1) {
        uint64_t n = optarg == NULL ? 0 : strtoull(optarg, NULL, 0);
        switch (c) {
        case 'i':
            power.images = n;
            break;
        case 'e':
            power.images_storm = n;
            break;
        case 's':
            power.seconds = n;
            break;
        case 't':
            power.storm_seconds = n;
            break;
        case 'w':
            power.workers = (unsigned)n;
            break;
        case 'j':
            power.jobs = (unsigned)n;
            break;
        case 'd':
            power.directory = optarg;
            break;
        case 'S':
            power.seed = n;
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (power.workers < 1 || power.workers > RF_STORM_WORKERS_MAX || power.jobs < 1 ||
        power.jobs > RF_STORM_WORKERS_MAX || power.images_storm == 0) {
        usage(stderr);
        return 2;
    }
    UNITY_BEGIN();
    RUN_TEST(play);
    return UNITY_END();
}
