#include "secret.h"

#include <inttypes.h>
#include <stdio.h>

#define PATTERN 8u /* bytes; none of them occurs twice in a row, nor in any sentence */
#define WINDOW  3u /* so many of them in a row are a leak */

static const char key_pattern[] = "k9Qx7ZwL", token_pattern[] = "T4vRm2Hc",
                  metadata_pattern[] = "M2jWp8Ye", tenant_pattern[] = "X5nBt3Gd",
                  other_tenant_pattern[] = "F6sVc1Uz";

static void fill(uint8_t *out, size_t len, const char *pattern)
{
    for (size_t i = 0; i < len; i++) {
        out[i] = (uint8_t)pattern[i % PATTERN];
    }
}

rf_bytes rf_secret_key(char letter)
{
    static uint8_t keys[64][1 + 2 * PATTERN];
    static size_t next;
    uint8_t *key = keys[next++ % 64];
    key[0] = (uint8_t)letter;
    fill(key + 1, 2 * PATTERN, key_pattern);
    return rf_bytes_of(key, sizeof(keys[0]));
}

rf_bytes rf_secret_long_key(char letter, size_t len)
{
    static uint8_t keys[8][RF_KEY_MAX + 1];
    static size_t next;
    uint8_t *key = keys[next++ % 8];
    key[0] = (uint8_t)letter;
    fill(key + 1, sizeof(keys[0]) - 1, key_pattern);
    return rf_bytes_of(key, len);
}

rf_bytes rf_secret_token(size_t len)
{
    static uint8_t token[RF_TOKEN_MAX + 1];
    if (token[0] == 0) {
        fill(token, sizeof(token), token_pattern);
    }
    return rf_bytes_of(token, len);
}

rf_bytes rf_secret_metadata(size_t len)
{
    static uint8_t metadata[RF_METADATA_MAX + 1];
    if (metadata[0] == 0) {
        fill(metadata, sizeof(metadata), metadata_pattern);
    }
    return rf_bytes_of(metadata, len);
}

rf_tenant rf_secret_tenant(void)
{
    rf_tenant tenant;
    fill(tenant.bytes, sizeof(tenant.bytes), tenant_pattern);
    return tenant;
}

rf_tenant rf_secret_other_tenant(void)
{
    rf_tenant tenant;
    fill(tenant.bytes, sizeof(tenant.bytes), other_tenant_pattern);
    return tenant;
}

static bool has(const void *where, size_t size, const void *what, size_t len)
{
    return memmem(where, size, what, len) != NULL;
}

static bool has_pattern(const void *where, size_t size, const char *pattern)
{
    for (size_t i = 0; i < PATTERN; i++) {
        char window[WINDOW];
        for (size_t k = 0; k < WINDOW; k++) {
            window[k] = pattern[(i + k) % PATTERN];
        }
        if (has(where, size, window, WINDOW)) {
            return true;
        }
    }
    return false;
}

/* As a word, in either order of its bytes, or half of it. */
static bool has_number(const rf_detail *detail, const char *sentence, uint64_t number)
{
    uint32_t halves[2] = {(uint32_t)number, (uint32_t)(number >> 32)};
    uint64_t swapped = __builtin_bswap64(number);
    char decimal[24], hex[24];
    snprintf(decimal, sizeof(decimal), "%" PRIu64, number);
    snprintf(hex, sizeof(hex), "%" PRIx64, number);
    return has(detail, sizeof(*detail), &halves[0], 4) ||
           has(detail, sizeof(*detail), &halves[1], 4) ||
           has(detail, sizeof(*detail), &swapped, 8) || strstr(sentence, decimal) != NULL ||
           strcasestr(sentence, hex) != NULL;
}

const char *rf_secret_leak(rf_status status, const rf_detail *detail, const uint64_t *numbers,
                           size_t count)
{
    static const struct {
        const char *pattern, *leak;
    } secrets[] = {
        {key_pattern, "bytes of a key"},          {token_pattern, "bytes of a token"},
        {metadata_pattern, "bytes of metadata"},  {tenant_pattern, "a tenant"},
        {other_tenant_pattern, "another tenant"},
    };
    char sentence[1024];
    size_t len = rf_explain(status, detail, sentence, sizeof(sentence));
    if (len >= sizeof(sentence) || strlen(sentence) != len) {
        return "more than a sentence";
    }
    for (size_t i = 0; i < sizeof(secrets) / sizeof(secrets[0]); i++) {
        if (has_pattern(detail, sizeof(*detail), secrets[i].pattern) ||
            has_pattern(sentence, len, secrets[i].pattern)) {
            return secrets[i].leak;
        }
    }
    if (has_number(detail, sentence, RF_SECRET_OWNER)) {
        return "an owner";
    }
    if (has_number(detail, sentence, RF_SECRET_HASH)) {
        return "a payload hash";
    }
    for (size_t i = 0; i < count; i++) {
        if (has_number(detail, sentence, numbers[i])) {
            return "a secret number";
        }
    }
    return NULL;
}
