/* The commands themselves, one object each. */
#ifndef RF_CLI_COMMANDS_H
#define RF_CLI_COMMANDS_H

#include "cli.h"

#define COMMAND(name) extern const struct command command_##name;
#include "commands.inc"
#undef COMMAND

#endif
