#include "lease_token.h"

#include <stdlib.h>
#include <string.h>

const char *format_lease(const char *store, const rf_tenant *tenant, const rf_lease *lease)
{
    char text[RF_LEASE_TEXT];
    char *path = realpath(store_directory(store), NULL);
    if (path == NULL || rf_lease_format(tenant, lease, text, sizeof(text)) != RF_OK) {
        free(path);
        return NULL;
    }
    const char *token = keep_format("%s@%s", text, bytes_text((rf_bytes){path, strlen(path)}));
    free(path);
    return token;
}

int parse_lease(const char *text, struct lease_token *token)
{
    rf_bytes path;
    if (text == NULL || text[0] == 0) {
        return cli_fail(EXIT_USAGE,
                        "which lease? Give what `ringfence claim` printed, or set RINGFENCE_LEASE");
    }
    const char *at = strchr(text, '@');
    char *lease = keep_text(text);
    if (at != NULL) {
        lease[at - text] = 0;
    }
    if (at == NULL || !parse_bytes(at + 1, &path) || path.len == 0 ||
        memchr(path.data, 0, path.len) != NULL ||
        rf_lease_parse(lease, &token->tenant, &token->lease) != RF_OK) {
        return cli_fail(EXIT_USAGE, "this is not a lease, or a damaged one");
    }
    token->store = path.data; /* parse_bytes leaves room for, and zeroes, the byte behind */
    return EXIT_DONE;
}

static rf_bytes keep_copy(rf_bytes bytes)
{
    return bytes.data == NULL
               ? bytes
               : (rf_bytes){memcpy(keep_bytes(bytes.len + 1), bytes.data, bytes.len), bytes.len};
}

rf_status last_cursor(rf_store *store, const struct lease_token *token, rf_cursor *cursor,
                      rf_detail *detail)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    rf_status status = rf_get_shard(store, &token->tenant, token->lease.run, token->lease.shard,
                                    &info, scratch, sizeof(scratch), detail);
    if (status == RF_OK) {
        bool begun = info.cursor.key.data != NULL;
        cursor->key = keep_copy(begun ? info.cursor.key : info.spec.start);
        cursor->token = begun ? keep_copy(info.cursor.token) : (rf_bytes){0};
    }
    return status;
}
