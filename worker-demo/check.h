/* The second stage: is what matched a secret, or does it only look like one? Pure functions. */
#ifndef RF_SCAN_CHECK_H
#define RF_SCAN_CHECK_H

#include "rules.h"

struct candidate {
    const struct rule *rule;
    const uint8_t *secret;
    size_t len;
    int next; /* the byte behind it; -1 at the end of the file */
};

bool check_passes(const struct rules *rules, const struct candidate *candidate);

/* Bits of Shannon entropy a byte, 0 to 8. */
double check_entropy(const uint8_t *bytes, size_t len);
uint32_t check_crc32(const uint8_t *bytes, size_t len);
/* Decodes base64 or base64url, padded or not. Returns how many bytes, or -1 if it is neither. */
int check_base64(const uint8_t *text, size_t len, uint8_t *out, size_t out_size);

#endif
