#include "options.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "ringfence/ringfence.h"

static const char help[] =
    "usage: rf-scan [options] PATH...\n"
    "\n"
    "Finds leaked secrets in files and trees, with many worker processes. It may be killed at any\n"
    "time, in whole or in part: the same command goes on where it was, and no finding is lost or\n"
    "reported twice.\n"
    "\n"
    "  -j, --workers N      worker processes, 512 at most (the number of cores)\n"
    "      --json FILE      write findings as JSON lines; - is standard output\n"
    "      --sarif FILE     write findings as SARIF 2.1.0; - is standard output\n"
    "      --baseline FILE  report only what is not in FILE, a --json or --sarif of an earlier scan\n"
    "                       of the same PATHs, written alike\n"
    "      --reveal         show secrets; without it they are masked everywhere\n"
    "      --rules FILE     other rules than the built-in ones\n"
    "      --list-rules     print the rules in use and end\n"
    "      --check-rules    try the examples of the rules and end\n"
    "      --allow FILE     what to keep quiet about: lines such as path:GLOB, rule:ID,\n"
    "                       secret:TEXT, fingerprint:HEX\n"
    "      --ignore PATTERN leave out what matches, as in .gitignore (repeatable)\n"
    "      --gitignore      heed .gitignore files too; .rf-scan-ignore files are heeded always\n"
    "      --no-ignore      heed no ignore file, and enter .git, .hg and .svn\n"
    "      --binary         scan files with zero bytes at their beginning too\n"
    "      --fresh          start over, even if there is a scan to go on with\n"
    "      --state DIR      where a scan is kept until its report is out\n"
    "                       ($XDG_STATE_HOME/rf-scan/ID or ~/.local/state/rf-scan/ID); a new or\n"
    "                       empty directory, which is removed then\n"
    "      --durable        keep the scan on disk, so that it goes on after a power cut too; without\n"
    "                       this it goes on after whatever was killed, and starts over after a reboot\n"
    "      --rate BYTES     read no more than this a second in all, such as 50M\n"
    "      --lease MS       how long a worker that stopped keeps its shard (10000)\n"
    "      --restarts N     restarts of a worker in a row without progress (10)\n"
    "      --retries N      workers that may die of a shard in a row before it is set aside (20)\n"
    "  -q, --quiet          no progress, no table\n"
    "  -h, --help           this\n"
    "      --version        the version\n"
    "\n"
    "Ctrl-C lets the workers finish what they are at and ends; a second one ends at once. A line\n"
    "with the words rf-scan:allow in it is not reported.\n"
    "\n"
    "Exit status: 0 nothing was found, 1 something was, 2 something went wrong or could not be\n"
    "read, or the scan was interrupted.\n";

enum {
    OPT_JSON = 256,
    OPT_SARIF,
    OPT_BASELINE,
    OPT_REVEAL,
    OPT_RULES,
    OPT_LIST_RULES,
    OPT_CHECK_RULES,
    OPT_ALLOW,
    OPT_IGNORE,
    OPT_GITIGNORE,
    OPT_NO_IGNORE,
    OPT_BINARY,
    OPT_FRESH,
    OPT_STATE,
    OPT_DURABLE,
    OPT_RATE,
    OPT_LEASE,
    OPT_RESTARTS,
    OPT_RETRIES,
    OPT_VERSION,
    OPT_UNCOORDINATED,
    OPT_SEGMENT,
    OPT_CHUNK,
    OPT_COMMIT,
};

static const struct option known[] = {
    {"workers", required_argument, NULL, 'j'},
    {"json", required_argument, NULL, OPT_JSON},
    {"sarif", required_argument, NULL, OPT_SARIF},
    {"baseline", required_argument, NULL, OPT_BASELINE},
    {"reveal", no_argument, NULL, OPT_REVEAL},
    {"rules", required_argument, NULL, OPT_RULES},
    {"list-rules", no_argument, NULL, OPT_LIST_RULES},
    {"check-rules", no_argument, NULL, OPT_CHECK_RULES},
    {"allow", required_argument, NULL, OPT_ALLOW},
    {"ignore", required_argument, NULL, OPT_IGNORE},
    {"gitignore", no_argument, NULL, OPT_GITIGNORE},
    {"no-ignore", no_argument, NULL, OPT_NO_IGNORE},
    {"binary", no_argument, NULL, OPT_BINARY},
    {"fresh", no_argument, NULL, OPT_FRESH},
    {"state", required_argument, NULL, OPT_STATE},
    {"durable", no_argument, NULL, OPT_DURABLE},
    {"rate", required_argument, NULL, OPT_RATE},
    {"lease", required_argument, NULL, OPT_LEASE},
    {"restarts", required_argument, NULL, OPT_RESTARTS},
    {"retries", required_argument, NULL, OPT_RETRIES},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPT_VERSION},
    /* For tests and benchmarks: where files are cut, and the same scan without a coordinator. */
    {"uncoordinated", no_argument, NULL, OPT_UNCOORDINATED},
    {"segment", required_argument, NULL, OPT_SEGMENT},
    {"chunk", required_argument, NULL, OPT_CHUNK},
    {"commit", required_argument, NULL, OPT_COMMIT},
    {NULL, 0, NULL, 0},
};

static void __attribute__((noreturn))
refuse(const char *option, const char *text, uint64_t min, uint64_t max)
{
    fprintf(stderr, "rf-scan: --%s takes %" PRIu64, option, min);
    if (max == UINT64_MAX) {
        fputs(" or more", stderr);
    } else {
        fprintf(stderr, " to %" PRIu64, max);
    }
    fprintf(stderr, ", not %s; see rf-scan --help\n", text);
    exit(2);
}

/* A number with K, M or G behind it. */
static uint64_t number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    char *end = NULL;
    unsigned long long value = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    end += shift != 0;
    if (end == text || *end != '\0' || text[0] == '-' || value > UINT64_MAX >> shift ||
        value << shift < min || value << shift > max) {
        refuse(option, text, min, max);
    }
    return value << shift;
}

static void take(struct options *o, int option, const char *name)
{
    switch (option) {
    case 'j':
        o->workers = (unsigned)number(name, optarg, 1, 512);
        break;
    case 'q':
        o->quiet = true;
        break;
    case OPT_JSON:
        o->json = optarg;
        break;
    case OPT_SARIF:
        o->sarif = optarg;
        break;
    case OPT_BASELINE:
        o->baseline = optarg;
        break;
    case OPT_REVEAL:
        o->reveal = true;
        break;
    case OPT_RULES:
        o->rules = optarg;
        break;
    case OPT_LIST_RULES:
        o->list_rules = true;
        break;
    case OPT_CHECK_RULES:
        o->check_rules = true;
        break;
    case OPT_ALLOW:
        o->allow = optarg;
        break;
    case OPT_IGNORE:
        o->ignores = must_grow(o->ignores, o->ignore_count + 1, sizeof(*o->ignores));
        o->ignores[o->ignore_count++] = optarg;
        break;
    case OPT_GITIGNORE:
        o->gitignore = true;
        break;
    case OPT_NO_IGNORE:
        o->no_ignore = true;
        break;
    case OPT_BINARY:
        o->binary = true;
        break;
    case OPT_FRESH:
        o->fresh = true;
        break;
    case OPT_STATE:
        o->state = optarg;
        break;
    case OPT_DURABLE:
        o->durable = true;
        break;
    case OPT_RATE:
        o->rate = number(name, optarg, 1024, UINT64_MAX);
        break;
    case OPT_LEASE:
        o->lease_ns = number(name, optarg, 50, 86400000) * RF_MILLISECOND;
        break;
    case OPT_RESTARTS:
        o->restarts = (unsigned)number(name, optarg, 0, 1000000);
        break;
    case OPT_RETRIES:
        o->retries = (unsigned)number(name, optarg, 1, 1000000);
        break;
    case OPT_UNCOORDINATED:
        o->uncoordinated = true;
        break;
    case OPT_SEGMENT:
        o->segment = number(name, optarg, 65536, 1ull << 40);
        break;
    case OPT_CHUNK:
        o->chunk = number(name, optarg, 16384, 64u << 20);
        break;
    case OPT_COMMIT:
        o->commit_bytes = number(name, optarg, 1, 1ull << 40);
        break;
    case 'h':
        fputs(help, stdout);
        exit(0);
    case OPT_VERSION:
        printf("rf-scan %s\n", rf_version_string());
        exit(0);
    default:
        fputs("rf-scan --help lists the options\n", stderr);
        exit(2);
    }
}

void options_parse(struct options *o, int argc, char **argv)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *o = (struct options){
        .workers = cores < 1     ? 1
                   : cores > 512 ? 512
                                 : (unsigned)cores,
        .lease_ns = 10 * RF_SECOND,
        .segment = 64u << 20,
        .chunk = 1u << 20,
        .commit_bytes = 4u << 20,
        .commit_ns = 50 * RF_MILLISECOND,
        .restarts = 10,
        .retries = 20,
    };
    int option, index = 0;
    while ((option = getopt_long(argc, argv, "j:qh", known, &index)) != -1) {
        const char *name = option == 'j' ? "workers" : known[index].name;
        if (option != '?' && optarg != NULL && optarg[0] == '\0') {
            fprintf(stderr, "rf-scan: --%s needs a value, and has an empty one\n", name);
            exit(2);
        }
        take(o, option, name);
    }
    o->paths = argv + optind;
    o->path_count = (size_t)(argc - optind);
    if (o->json != NULL && o->sarif != NULL && strcmp(o->json, "-") == 0 &&
        strcmp(o->sarif, "-") == 0) {
        fputs("rf-scan: --json and --sarif can't both go to standard output\n", stderr);
        exit(2);
    }
    if (o->path_count == 0 && !o->check_rules && !o->list_rules) {
        fputs("usage: rf-scan [options] PATH...; rf-scan --help says more\n", stderr);
        exit(2);
    }
}
