/* What the user does not want to hear about. */
#ifndef RF_SCAN_ALLOW_H
#define RF_SCAN_ALLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct allow;

/* NULL and a sentence on standard error if the text is not understood. */
struct allow *allow_read(const char *text, size_t len);
void allow_free(struct allow *allow);
bool allow_file(const struct allow *allow, const char *path);
bool allow_finding(const struct allow *allow, const char *rule, const uint8_t *secret,
                   size_t secret_len, uint64_t fingerprint);

#endif
