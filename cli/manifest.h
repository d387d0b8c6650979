/* Shards for a run, from keys, ranges or hexadecimal prefixes. */
#ifndef RF_CLI_MANIFEST_H
#define RF_CLI_MANIFEST_H

#include "cli.h"

struct manifest {
    rf_shard_input *shards;
    uint32_t count;
};

/* The options that say where the shards come from; part of a command's options. */
#define MANIFEST_OPTIONS                                                                           \
    {"keys", 0, OPTION_TEXT, "FILE",                                                               \
     "lines of this file are keys; cut them into --shards ranges"},                                \
        {"null", '0', OPTION_FLAG, NULL, "with --keys: keys end with a NUL byte"},                 \
        {"shards", 'n', OPTION_NUMBER, "N", "with --keys: how many shards [64]"},                  \
        {"ranges", 0, OPTION_TEXT, "FILE",                                                         \
         "lines START<TAB>END[<TAB>METADATA], encoded; # comments"},                               \
        {"hex-prefixes", 0, OPTION_NUMBER, "N",                                                    \
         "a shard for every prefix of N hexadecimal digits"},                                      \
    {                                                                                              \
        "first-id", 0, OPTION_NUMBER, "ID", "number the shards from here on [1]"                   \
    }

/* A file of - is standard input. Returns an exit code. */
int read_manifest(const struct args *args, struct manifest *manifest);

/* "START,END[,METADATA[,KEY[,TOKEN]]]", each encoded. */
bool parse_range(const char *text, rf_spec *spec, rf_cursor *cursor);

#endif
