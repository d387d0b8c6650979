/* Options and arguments of a command, looked up by name. */
#ifndef RF_CLI_ARGS_H
#define RF_CLI_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct command;

enum option_kind {
    OPTION_FLAG,
    OPTION_TEXT,
    OPTION_LIST, /* may be given several times */
    OPTION_NUMBER,
    OPTION_DURATION,
    OPTION_SIZE,
    OPTION_KEY, /* text, percent-encoded, or hex: */
};

struct option_spec {
    const char *name; /* NULL ends a list */
    char letter;      /* 0: none */
    enum option_kind kind;
    const char *value; /* what its value is called in the help */
    const char *help;
};

struct given {
    const struct option_spec *spec;
    const char *text;
    uint64_t number; /* of numbers, durations (ns) and sizes (bytes) */
};

struct args {
    const struct option_spec *own; /* of the command */
    struct given given[256];
    int given_count;
    const char *words[16];
    int word_count;
    char **rest; /* behind --, ends with NULL; NULL without -- */
    int rest_count;
};

/* Options that all commands have, or all of a kind. */
extern const struct option_spec option_help, option_json, option_tenant, option_reveal;

/* Returns false after saying what is wrong. */
bool args_parse(struct args *args, const struct command *command, int argc, char **argv);

bool arg_given(const struct args *args, const char *name);
const char *arg_text(const struct args *args, const char *name, const char *otherwise);
uint64_t arg_number(const struct args *args, const char *name, uint64_t otherwise);
/* The index-th value of an option that may be repeated, or NULL. */
const char *arg_each(const struct args *args, const char *name, int index);

#endif
