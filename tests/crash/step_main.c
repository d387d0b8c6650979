/*
 * rf-step: every operation of the library, killed at every instruction. See stepping.h.
 */
#define _GNU_SOURCE
#include <getopt.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "stepping.h"

#define JOBS_MAX 64u

struct job {
    pid_t pid;
    int answer;
    unsigned part;
};

static struct rf_part parts[512];
static struct rf_stepped total;
static unsigned failures, played, sampled;
static bool twice;

static void usage(FILE *out)
{
    fprintf(
        out,
        "usage: rf-step [options] [PART...]\n"
        "Kills every operation at every instruction, in a copy of its store, and sends a survivor in.\n"
        "  -l, --list            the parts: scenes, kinds of lease, with and without a log\n"
        "  -t, --twice           the survivor that settles the death is killed at each of its stores, too;\n"
        "                        of operations with more than 1000 moments about 100 are taken\n"
        "  -v, --volatile        only without a log\n"
        "  -d, --durable         only with a log\n"
        "  -s, --sample N        about N moments of each part, N/4 of large ones [all]\n"
        "  -p, --pairs N         with --twice: about N pairs of each part [all]\n"
        "  -e, --exact           compare the whole region after every instruction: nothing is missed\n"
        "  -j, --jobs N          at once [cores]\n"
        "  -S, --seed N          of the samples [1]\n");
}

/* A player and its recorder take turns: on one core they do not wait for each other's. */
static void stay_on_core(unsigned job)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(all), &all) != 0) {
        return;
    }
    unsigned n = job % (unsigned)CPU_COUNT(&all);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && n-- == 0) {
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof(one), &one);
            return;
        }
    }
}

static void start(struct job *job, unsigned number, unsigned part, const struct rf_stepping *how)
{
    int ends[2];
    if (pipe(ends) != 0) {
        abort();
    }
    fflush(NULL);
    job->part = part;
    job->answer = ends[0];
    job->pid = fork();
    if (job->pid == 0) {
        struct rf_stepped stepped;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        stay_on_core(number);
        const char *why = rf_stepping_play(&parts[part], how, &stepped);
        if (why != NULL) {
            fprintf(stderr, "%s\n", why);
        }
        bool told = write(ends[1], &stepped, sizeof(stepped)) == (ssize_t)sizeof(stepped);
        exit(why == NULL && told ? 0 : 1);
    }
    close(ends[1]);
}

static void finish(struct job *job)
{
    struct rf_stepped s = {0};
    int how;
    bool told = read(job->answer, &s, sizeof(s)) == (ssize_t)sizeof(s);
    waitpid(job->pid, &how, 0);
    bool good = told && WIFEXITED(how) && WEXITSTATUS(how) == 0;
    close(job->answer);
    job->pid = 0;
    printf("%-52s %8" PRIu64 " %7" PRIu64 " %7" PRIu64 " %7" PRIu64 " %6" PRIu64 " %6" PRIu64
           " %6d",
           parts[job->part].name, s.instructions, s.moments, s.distinct, s.judged, s.undone, s.done,
           good ? 0 : 1);
    if (twice) {
        printf(" %6" PRIu64 " %9" PRIu64 " %9" PRIu64 " %6" PRIu64, s.firsts, s.pairs,
               s.pairs_judged, s.pairs_cold);
    }
    printf("%s\n", good ? "" : " FAILED");
    fflush(stdout);
    total.instructions += s.instructions;
    total.moments += s.moments;
    total.distinct += s.distinct;
    total.judged += s.judged;
    total.firsts += s.firsts;
    total.pairs += s.pairs;
    total.pairs_judged += s.pairs_judged;
    total.pairs_cold += s.pairs_cold;
    sampled += s.firsts != 0 && s.firsts < s.distinct;
    failures += !good;
    played++;
}

static struct job *job_of(struct job *jobs, unsigned count, pid_t pid)
{
    for (unsigned i = 0; i < count; i++) {
        if (jobs[i].pid == pid) {
            return &jobs[i];
        }
    }
    return NULL;
}

static void play_all(const unsigned *list, unsigned count, const struct rf_stepping *how,
                     unsigned at_once)
{
    struct job jobs[JOBS_MAX] = {0};
    unsigned next = 0, running = 0;
    while (next < count || running != 0) {
        struct job *idle = running < at_once && next < count ? job_of(jobs, at_once, 0) : NULL;
        if (idle != NULL) {
            start(idle, (unsigned)(idle - jobs), list[next++], how);
            running++;
            continue;
        }
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOWAIT) != 0) {
            abort();
        }
        struct job *over = job_of(jobs, at_once, info.si_pid);
        if (over == NULL) {
            abort();
        }
        finish(over);
        running--;
    }
}

int main(int argc, char **argv)
{
    static const struct option names[] = {{"list", 0, NULL, 'l'},
                                          {"twice", 0, NULL, 't'},
                                          {"sample", 1, NULL, 's'},
                                          {"pairs", 1, NULL, 'p'},
                                          {"volatile", 0, NULL, 'v'},
                                          {"exact", 0, NULL, 'e'},
                                          {"durable", 0, NULL, 'd'},
                                          {"jobs", 1, NULL, 'j'},
                                          {"seed", 1, NULL, 'S'},
                                          {"help", 0, NULL, 'h'},
                                          {0}};
    struct rf_stepping how = {.seed = 1, .sample_many = 100};
    unsigned chosen[512], chosen_count = 0, count = rf_stepping_parts(parts);
    long at_once = sysconf(_SC_NPROCESSORS_ONLN);
    struct timespec from, to;
    bool with_log = true, without_log = true;
    int c;
    while ((c = getopt_long(argc, argv, "ltvds:p:ej:S:h", names, NULL)) != -1) {
        switch (c) {
        case 'l':
            for (unsigned i = 0; i < count; i++) {
                printf("%s\n", parts[i].name);
            }
            return 0;
        case 't':
            how.twice = twice = true;
            break;
        case 'v':
            with_log = false;
            break;
        case 'd':
            without_log = false;
            break;
        case 's':
            how.sample = (uint32_t)strtoul(optarg, NULL, 0);
            how.sample_large = how.sample_many = how.sample / 4 + 1;
            break;
        case 'p':
            how.sample_twice = (uint32_t)strtoul(optarg, NULL, 0);
            break;
        case 'e':
            how.compare_each = 1;
            break;
        case 'j':
            at_once = strtol(optarg, NULL, 0);
            break;
        case 'S':
            how.seed = strtoull(optarg, NULL, 0);
            break;
        case 'h':
            usage(stdout);
            return 0;
        default:
            usage(stderr);
            return 2;
        }
    }
    at_once = at_once < 1 ? 1 : at_once > (long)JOBS_MAX ? (long)JOBS_MAX : at_once;
    for (unsigned i = 0; i < count; i++) {
        bool wanted = optind == argc;
        for (int a = optind; a < argc; a++) {
            wanted = wanted || strncmp(parts[i].name, argv[a], strlen(argv[a])) == 0;
        }
        if (wanted && (parts[i].durability == RF_VOLATILE ? without_log : with_log)) {
            chosen[chosen_count++] = i;
        }
    }
    clock_gettime(CLOCK_MONOTONIC, &from);
    printf("%-52s %8s %7s %7s %7s %6s %6s %6s%s\n", "operation", "steps", "states", "differ",
           "judged", "undone", "done", "failed", twice ? "  first    second    judged   cold" : "");
    play_all(chosen, chosen_count, &how, (unsigned)at_once);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%u operations, %" PRIu64 " instructions, %" PRIu64 " states, %" PRIu64
           " distinct, %" PRIu64 " survivors",
           played, total.instructions, total.moments, total.distinct, total.judged);
    if (how.twice) {
        printf("; %" PRIu64 " first deaths (a sample in %u operations), %" PRIu64
               " second ones, %" PRIu64 " different and judged, %" PRIu64 " cold",
               total.firsts, sampled, total.pairs, total.pairs_judged, total.pairs_cold);
    }
    printf("; %u failed, in %ld s (seed %" PRIu64 ")\n", failures, (long)(to.tv_sec - from.tv_sec),
           how.seed);
    return failures == 0 && played != 0 ? 0 : 1;
}
