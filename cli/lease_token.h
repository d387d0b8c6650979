/*
 * A lease as one printable word that carries everything: the library's text of the lease with its
 * tenant, an @, and the store's directory, encoded as keys are.
 */
#ifndef RF_CLI_LEASE_TOKEN_H
#define RF_CLI_LEASE_TOKEN_H

#include "cli.h"

struct lease_token {
    const char *store;
    rf_tenant tenant;
    rf_lease lease;
};

/* NULL if the directory has no path any more. Lasts. */
const char *format_lease(const char *store, const rf_tenant *tenant, const rf_lease *lease);
/* From a command's option or argument; says what is wrong. Returns an exit code. */
int parse_lease(const char *text, struct lease_token *token);

/* A cursor that a shard can be completed or released with if no key is given: the stored one, or
 * else the range's start. *cursor lasts. */
rf_status last_cursor(rf_store *store, const struct lease_token *token, rf_cursor *cursor,
                      rf_detail *detail);

#endif
