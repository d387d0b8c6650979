/*
 * What must never be seen in a refusal: bytes of keys, tokens and metadata, tenants, payload hashes
 * and owners. Tests fill their records with patterns that occur nowhere else, and ask of every
 * refusal whether it gives three bytes of one away, in the rf_detail itself or in its sentence.
 */
#ifndef RF_TEST_SECRET_H
#define RF_TEST_SECRET_H

#include "bytes.h"

#define RF_SECRET_OWNER 0x6b31d7a259c84e17u
#define RF_SECRET_HASH  0x5f2c9e81b7436ad3u

/* A key that begins with this letter and goes on with secret bytes; valid until 64 more were made. */
rf_bytes rf_secret_key(char letter);
/* The same of this length, at most RF_KEY_MAX + 1; valid until 8 more were made. */
rf_bytes rf_secret_long_key(char letter, size_t len);
/* At most RF_TOKEN_MAX + 1 bytes of one pattern; constant. */
rf_bytes rf_secret_token(size_t len);
rf_bytes rf_secret_metadata(size_t len);

/* Two tenants, each a secret to the other. */
rf_tenant rf_secret_tenant(void);
rf_tenant rf_secret_other_tenant(void);

/* What of all this a refusal gives away, in words, or NULL. numbers are more secrets, such as the
 * payload hash of the call. */
const char *rf_secret_leak(rf_status status, const rf_detail *detail, const uint64_t *numbers,
                           size_t count);

#endif
