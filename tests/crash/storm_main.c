/* rf-storm: see storm.h. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "storm.h"

static void usage(FILE *out)
{
    fprintf(out,
            "usage: rf-storm [options]\n"
            "Kills, stops and replaces workers of one durable store, and checks what they did.\n"
            "  -w, --workers N    processes, 1 to 64 [16]\n"
            "  -k, --kills N      end after so many kills [0: only the time counts]\n"
            "  -s, --seconds N    end after so long [60]\n"
            "  -p, --pause N      kills between two pauses [200]\n"
            "  -d, --directory D  a new directory to work in [/tmp/rf-storm-PID]\n"
            "  -S, --seed N       [1]\n");
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"workers", 1, NULL, 'w'},   {"kills", 1, NULL, 'k'},
                                          {"seconds", 1, NULL, 's'},   {"pause", 1, NULL, 'p'},
                                          {"seed", 1, NULL, 'S'},      {"help", 0, NULL, 'h'},
                                          {"directory", 1, NULL, 'd'}, {0}};
    char directory[64];
    snprintf(directory, sizeof(directory), "/tmp/rf-storm-%d", (int)getpid());
    struct rf_storm storm = {
        .directory = directory, .workers = 16, .seconds = 60, .kills_pause = 200, .seed = 1};
    struct rf_storm_report r;
    int c;
    while ((c = getopt_long(argc, argv, "w:k:s:p:d:S:h", names, NULL)) != -1) {
        uint64_t n = optarg == NULL ? 0 : strtoull(optarg, NULL, 0);
        switch (c) {
        case 'w':
            storm.workers = (unsigned)n;
            break;
        case 'k':
            storm.kills = n;
            break;
        case 's':
            storm.seconds = n;
            break;
        case 'p':
            storm.kills_pause = n;
            break;
        case 'd':
            storm.directory = optarg;
            break;
        case 'S':
            storm.seed = n;
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    if (storm.workers < 1 || storm.workers > 64) {
        usage(stderr);
        return 2;
    }
    const char *why = rf_storm_play(&storm, &r);
    printf("%u workers, seed %" PRIu64 ": %" PRIu64 " kills, %" PRIu64 " stops, %" PRIu64
           " pauses, %" PRIu64 " of them with a cold open, %" PRIu64 " snapshots asked for\n",
           storm.workers, storm.seed, r.kills, r.stops, r.pauses, r.cold, r.snapshots);
    printf("%" PRIu64 " runs worked off: %" PRIu64 " items acknowledged, %" PRIu64
           " committed by the dead, %" PRIu64 " writes of zombies refused, %" PRIu64
           " grants;\n%" PRIu64 " checkpoints that nobody waited for\n",
           r.runs, r.items, r.orphans, r.refused, r.grants, r.hurried);
    printf("settled: %" PRIu64 " operations finished, %" PRIu64 " undone, %" PRIu64
           " leases given up\n",
           r.redone, r.undone, r.leases_lost);
    if (why != NULL) {
        printf("FAILED: %s\nkept: %s\n", why, storm.directory);
        return 1;
    }
    printf("verify was clean, nothing lost, nothing twice, nothing hung\n");
    return 0;
}
