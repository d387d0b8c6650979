/*
 * rf-demo: lets rf-scan be killed, and counts what it found.
 *
 * Makes a tree with planted secrets, scans it with some workers, and meanwhile sends kill -9 to one
 * of them several times a second, once to all of them with their supervisor, and stops one now and
 * then for longer than its lease, so that it wakes up as a zombie. At the end every planted secret
 * must have been found, once, and nothing else.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "found.h"
#include "ringfence/ringfence.h"

#define LEASE_MS     700
#define ZOMBIE_MS    1300 /* longer than the lease */
#define KILL_MS_MIN  80
#define KILL_MS_SPAN 220
#define GIVE_UP_MS   300000
#define CHILDREN_MAX 64

struct demo {
    uint64_t seed, bytes;
    unsigned workers, secrets;
    uint64_t rate;
    const char *corpus_only;
    char dir[64]; /* temporary; everything is in it */
    char tree[96], state[96], json[96];
    char scanner[4096];
    struct corpus corpus;
    uint64_t chance;
    unsigned kills, kills_of_all, zombies;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal)
{
    interrupted = signal;
}

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t chance(struct demo *d, uint64_t limit)
{
    d->chance = d->chance * 6364136223846793005u + 1442695040888963407u;
    return (d->chance >> 33) % limit;
}

/* --- the scan --- */

static pid_t start_scan(struct demo *d)
{
    char workers[16], rate[32], lease[16];
    snprintf(workers, sizeof(workers), "%u", d->workers);
    snprintf(rate, sizeof(rate), "%" PRIu64, d->rate);
    snprintf(lease, sizeof(lease), "%u", LEASE_MS);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        FILE *quiet = isatty(STDERR_FILENO) ? freopen("/dev/null", "w", stdout) : stdout;
        (void)quiet;
        execl(d->scanner, "rf-scan", "--workers", workers, "--rate", rate, "--lease", lease,
              "--state", d->state, "--json", d->json, "--restarts", "1000", "--retries", "1000",
              isatty(STDERR_FILENO) ? d->tree : "--quiet", isatty(STDERR_FILENO) ? NULL : d->tree,
              NULL);
        perror(d->scanner);
        _exit(127);
    }
    return pid;
}

static size_t children_of(pid_t pid, pid_t *out)
{
    char name[64];
    size_t count = 0;
    int child;
    snprintf(name, sizeof(name), "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *in = fopen(name, "re");
    while (in != NULL && count < CHILDREN_MAX && fscanf(in, "%d", &child) == 1) {
        out[count++] = child;
    }
    if (in != NULL) {
        fclose(in);
    }
    return count;
}

static pid_t pick_worker(struct demo *d, pid_t scan, pid_t but_not)
{
    pid_t workers[CHILDREN_MAX];
    size_t count = children_of(scan, workers);
    if (count == 0) {
        return 0;
    }
    pid_t one = workers[chance(d, count)];
    return one == but_not ? 0 : one;
}

/* All of them at once: supervisor and workers. */
static void kill_all(struct demo *d, pid_t scan)
{
    pid_t workers[CHILDREN_MAX];
    kill(scan, SIGSTOP); /* so that it starts no more of them */
    size_t count = children_of(scan, workers);
    for (size_t i = 0; i < count; i++) {
        kill(workers[i], SIGKILL);
    }
    kill(scan, SIGKILL);
    waitpid(scan, NULL, 0);
    d->kills_of_all++;
    if (isatty(STDERR_FILENO)) { /* below what the dead one was showing */
        fputs("\nkilled everything at once; the same command again:\n", stderr);
    }
}

/* Returns rf-scan's exit status, or -1. */
static int torment(struct demo *d)
{
    uint64_t start = now_ms(), kill_at = start + 300, zombie_at = start + 1000, wake_at = 0;
    uint64_t kill_all_at = start + 3000 + chance(d, 1500);
    pid_t scan = start_scan(d), zombie = 0;
    for (;;) {
        int how;
        pid_t ended = waitpid(scan, &how, WNOHANG);
        uint64_t now = now_ms();
        if (ended == scan) {
            return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
        }
        if (interrupted || now - start > GIVE_UP_MS) {
            kill_all(d, scan);
            return -1;
        }
        if (zombie != 0 && now >= wake_at) {
            kill(zombie, SIGCONT);
            zombie = 0;
            zombie_at = now + 1500;
        }
        if (zombie == 0 && now >= zombie_at && (zombie = pick_worker(d, scan, 0)) != 0) {
            kill(zombie, SIGSTOP);
            d->zombies++;
            wake_at = now + ZOMBIE_MS;
        }
        if (now >= kill_at) {
            pid_t one = pick_worker(d, scan, zombie);
            /* One that was a zombie a moment ago may live long enough to be refused. */
            if (one != 0 && !(zombie == 0 && zombie_at > now && zombie_at - now > 1000) &&
                kill(one, SIGKILL) == 0) {
                d->kills++;
            }
            kill_at = now + KILL_MS_MIN + chance(d, KILL_MS_SPAN);
        }
        if (now >= kill_all_at && zombie == 0) {
            kill_all(d, scan);
            kill_all_at = UINT64_MAX;
            scan = start_scan(d);
        }
        usleep(5000);
    }
}

/* --- the reckoning --- */

static bool reckon(const struct demo *d, int status, double seconds)
{
    struct found found;
    if (status != 1 || !found_read(&found, d->json, d->tree)) {
        printf("rf-scan ended with status %d and no report\n", status);
        return false;
    }
    struct reckoning r = found_reckon(&found, &d->corpus);
    bool good = r.lost == 0 && r.twice == 0 && r.wrong == 0 && found.bytes == d->corpus.bytes &&
                found.files == d->corpus.files && found.refused > 0;
    printf("\n"
           "  planted              %zu secrets of %u kinds, beside %u near-misses\n"
           "  found                %zu\n"
           "  duplicates           %zu\n"
           "  lost                 %zu\n"
           "  false alarms         %zu\n"
           "  scanned              %" PRIu64 " of %" PRIu64 " files, %" PRIu64 " of %" PRIu64
           " bytes\n"
           "  kills survived       %u of workers, and %u of everything at once\n"
           "  zombies              %u workers woke up after their lease was over\n"
           "  zombie writes        %" PRIu64 " commits refused; %" PRIu64 " bytes written in vain\n"
           "  time                 %.1f s, %" PRIu64 " shards split while they were worked on\n\n",
           d->corpus.count, corpus_rules(), d->corpus.near_misses, r.right, r.twice, r.lost,
           r.wrong, found.files, d->corpus.files, found.bytes, d->corpus.bytes, d->kills,
           d->kills_of_all, d->zombies, found.refused, found.left_out, seconds, found.splits);
    if (r.first_lost != NULL) {
        printf("lost: %s in %s at %" PRIu64 "\n", r.first_lost->rule, r.first_lost->path,
               r.first_lost->start);
    }
    if (r.first_wrong != NULL) {
        printf("false alarm: %s in %s at %" PRIu64 "\n", r.first_wrong->rule, r.first_wrong->path,
               r.first_wrong->start);
    }
    found_free(&found);
    return good;
}

/* --- --- */

static void parse(struct demo *d, int argc, char **argv)
{
    static const struct option known[] = {
        {"seed", required_argument, NULL, 's'},    {"bytes", required_argument, NULL, 'b'},
        {"secrets", required_argument, NULL, 'n'}, {"workers", required_argument, NULL, 'j'},
        {"rate", required_argument, NULL, 'r'},    {"corpus", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0},
    };
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        uint64_t number = optarg == NULL ? 0 : strtoull(optarg, NULL, 10);
        switch (option) {
        case 's':
            d->seed = number;
            break;
        case 'b':
            d->bytes = number;
            break;
        case 'n':
            d->secrets = (unsigned)number;
            break;
        case 'j':
            d->workers = (unsigned)number;
            break;
        case 'r':
            d->rate = number;
            break;
        case 'c':
            d->corpus_only = optarg;
            break;
        default:
            fputs("usage: rf-demo [--seed N] [--bytes N] [--secrets N] [--workers N] "
                  "[--rate BYTES]\n"
                  "       rf-demo --corpus DIR [--seed N] [--bytes N] [--secrets N]\n"
                  "\n"
                  "Makes a tree with planted secrets, lets rf-scan scan it while its workers are\n"
                  "killed and stopped, and compares. With --corpus it only makes the tree, and\n"
                  "prints what was planted: rule, place and file.\n",
                  option == 'h' ? stdout : stderr);
            exit(option == 'h' ? 0 : 2);
        }
    }
}

static bool make_corpus(struct demo *d, const char *dir)
{
    const struct corpus_options options = {
        .seed = d->seed, .bytes = d->bytes, .secrets = d->secrets, .near_misses = d->secrets / 2};
    if (!corpus_make(dir, &options, &d->corpus)) {
        perror("rf-demo: making the tree");
        return false;
    }
    return true;
}

static void find_scanner(struct demo *d)
{
    ssize_t len = readlink("/proc/self/exe", d->scanner, sizeof(d->scanner) - 16);
    d->scanner[len > 0 ? len : 0] = '\0';
    char *slash = strrchr(d->scanner, '/');
    strcpy(slash == NULL ? d->scanner : slash + 1, "rf-scan");
    /* As short as it can be typed from here. */
    char here[4096];
    if (getcwd(here, sizeof(here)) != NULL && strncmp(d->scanner, here, strlen(here)) == 0 &&
        d->scanner[strlen(here)] == '/') {
        memmove(d->scanner, d->scanner + strlen(here) + 1,
                strlen(d->scanner + strlen(here) + 1) + 1);
    }
}

int main(int argc, char **argv)
{
    static struct demo d = {
        .seed = 1, .bytes = 220000000, .workers = 4, .secrets = 2000, .rate = 16000000};
    parse(&d, argc, argv);
    d.chance = d.seed ^ (uint64_t)time(NULL) << 20;
    if (d.corpus_only != NULL) {
        if (!make_corpus(&d, d.corpus_only)) {
            return 2;
        }
        for (size_t i = 0; i < d.corpus.count; i++) {
            const struct planted *p = &d.corpus.planted[i];
            printf("%s %" PRIu64 " %s\n", p->rule, p->start, p->path);
        }
        return 0;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    const char *tmp = getenv("TMPDIR");
    snprintf(d.dir, sizeof(d.dir), "%.40s/rf-demo-XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(d.dir) == NULL) {
        perror(d.dir);
        return 2;
    }
    snprintf(d.tree, sizeof(d.tree), "%s/tree", d.dir);
    snprintf(d.state, sizeof(d.state), "%s/state", d.dir);
    snprintf(d.json, sizeof(d.json), "%s/found.jsonl", d.dir);
    find_scanner(&d);

    printf("making a tree of at least %" PRIu64 " MB from seed %" PRIu64 " in %s\n",
           d.bytes / 1000000, d.seed, d.dir);
    bool good = make_corpus(&d, d.tree);
    if (good) {
        printf("%" PRIu64 " files, %zu secrets planted; scanning with %u workers,\n"
               "at no more than %" PRIu64 " MB/s, so that there is time to kill them\n",
               d.corpus.files, d.corpus.count, d.workers, d.rate / 1000000);
        uint64_t start = now_ms();
        int status = torment(&d);
        good = !interrupted && reckon(&d, status, (double)(now_ms() - start) / 1000);
    }
    char store[128]; /* there only if rf-scan was not allowed to finish */
    snprintf(store, sizeof(store), "%s/store", d.state);
    rf_destroy(store, NULL);
    remove_tree(d.dir);
    if (interrupted) {
        return 130;
    }
    printf("%s\n\nTry next, at full speed:\n"
           "  %s .\n"
           "  %s --sarif findings.sarif --json findings.jsonl ~\n"
           "  %s --help\n",
           good ? "Nothing was lost, nothing was repeated." : "SOMETHING WENT WRONG", d.scanner,
           d.scanner, d.scanner);
    corpus_free(&d.corpus);
    return good ? 0 : 1;
}
