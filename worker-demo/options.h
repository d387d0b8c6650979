/* What the command line says. */
#ifndef RF_SCAN_OPTIONS_H
#define RF_SCAN_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct options {
    char **paths;
    size_t path_count;
    unsigned workers;
    const char *state;    /* NULL: made up from what is scanned */
    const char *rules;    /* NULL: the built-in ones */
    const char *allow;    /* NULL: nothing is allowed */
    const char *json;     /* "-": standard output; NULL: not wanted */
    const char *sarif;    /* the same */
    const char *baseline; /* NULL: all findings are new */
    const char **ignores; /* patterns */
    size_t ignore_count;
    bool gitignore;
    bool no_ignore;
    bool binary;
    bool reveal;
    bool fresh;
    bool durable;
    bool quiet;
    bool check_rules;
    bool list_rules;
    bool uncoordinated;
    uint64_t rate; /* bytes a second of all workers; 0: as fast as they can */
    uint64_t lease_ns;
    uint64_t segment;      /* bytes of a file that are one item */
    uint64_t chunk;        /* bytes that are read at once */
    uint64_t commit_bytes; /* between two checkpoints, and */
    uint64_t commit_ns;    /* not longer than this */
    unsigned restarts;     /* of one worker in a row without progress */
    unsigned retries;      /* of a shard in a row without progress, then it is parked */
};

/* Ends the program on --help, --version and mistakes. */
void options_parse(struct options *options, int argc, char **argv);

#endif
