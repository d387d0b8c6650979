#include "check.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

double check_entropy(const uint8_t *bytes, size_t len)
{
    unsigned counts[256] = {0};
    double bits = 0;
    for (size_t i = 0; i < len; i++) {
        counts[bytes[i]]++;
    }
    for (unsigned b = 0; b < 256; b++) {
        if (counts[b] != 0) {
            double share = (double)counts[b] / (double)len;
            bits -= share * log2(share);
        }
    }
    return bits;
}

uint32_t check_crc32(const uint8_t *bytes, size_t len)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
        }
    }
    return ~crc;
}

static int base64_value(uint8_t c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

int check_base64(const uint8_t *text, size_t len, uint8_t *out, size_t out_size)
{
    uint32_t bits = 0;
    unsigned have = 0;
    size_t made = 0;
    for (unsigned pad = 0; pad < 2 && len > 0 && text[len - 1] == '='; pad++) {
        len--;
    }
    if (len % 4 == 1) {
        return -1;
    }
    for (size_t i = 0; i < len; i++) {
        int value = base64_value(text[i]);
        if (value < 0) {
            return -1;
        }
        bits = bits << 6 | (uint32_t)value;
        have += 6;
        if (have >= 8) {
            have -= 8;
            if (made == out_size) {
                return -1;
            }
            out[made++] = (uint8_t)(bits >> have);
        }
    }
    return (int)made;
}

static bool crc62_right(const uint8_t *s, size_t len)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    if (len < 36) {
        return false;
    }
    uint32_t crc = check_crc32(s + len - 36, 30);
    for (size_t i = 1; i <= 6; i++, crc /= 62) {
        if (s[len - i] != (uint8_t)digits[crc % 62]) {
            return false;
        }
    }
    return crc == 0;
}

static bool crc36_right(const uint8_t *s, size_t len)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    if (len < 8) {
        return false;
    }
    uint32_t crc = check_crc32(s, len - 7);
    for (size_t i = 1; i <= 7; i++, crc /= 36) {
        if (s[len - i] != (uint8_t)digits[crc % 36]) {
            return false;
        }
    }
    return true;
}

static bool crc32hex_right(const uint8_t *s, size_t len)
{
    static const char digits[] = "0123456789abcdef";
    if (len < 10 || s[len - 9] != '_') {
        return false;
    }
    uint32_t crc = check_crc32(s, len - 9);
    const uint8_t *hex = s + len - 8;
    for (unsigned byte = 0; byte < 4; byte++) {
        unsigned value = crc >> (8 * byte) & 0xff;
        if (hex[2 * byte] != (uint8_t)digits[value >> 4] ||
            hex[2 * byte + 1] != (uint8_t)digits[value & 15]) {
            return false;
        }
    }
    return true;
}

static uint32_t bech32_step(uint32_t state, uint32_t value)
{
    static const uint32_t generator[5] = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd,
                                          0x2a1462b3};
    uint32_t top = state >> 25;
    state = (state & 0x1ffffff) << 5 ^ value;
    for (unsigned i = 0; i < 5; i++) {
        state ^= (top >> i & 1) != 0 ? generator[i] : 0;
    }
    return state;
}

static bool bech32_right(const uint8_t *s, size_t len)
{
    static const char alphabet[] = "qpzry9x8gf2tvdw0s3jn54khce6mua7l";
    const uint8_t *one = memrchr(s, '1', len);
    if (one == NULL) {
        return false;
    }
    size_t prefix = (size_t)(one - s);
    uint32_t state = 1;
    for (size_t i = 0; i < prefix; i++) {
        state = bech32_step(state, (uint32_t)tolower(s[i]) >> 5);
    }
    state = bech32_step(state, 0);
    for (size_t i = 0; i < prefix; i++) {
        state = bech32_step(state, (uint32_t)tolower(s[i]) & 31);
    }
    for (size_t i = prefix + 1; i < len; i++) {
        const char *at = memchr(alphabet, tolower(s[i]), sizeof(alphabet) - 1);
        if (at == NULL) {
            return false;
        }
        state = bech32_step(state, (uint32_t)(at - alphabet));
    }
    return state == 1;
}

static bool jwt_right(const uint8_t *s, size_t len)
{
    uint8_t header[512];
    const uint8_t *dot = memchr(s, '.', len);
    if (dot == NULL) {
        return false;
    }
    int made = check_base64(s, (size_t)(dot - s), header, sizeof(header));
    if (made < 2 || header[0] != '{' || header[made - 1] != '}') {
        return false;
    }
    const uint8_t *alg = memmem(header, (size_t)made, "\"alg\"", 5);
    return alg != NULL && memmem(alg, (size_t)(header + made - alg), "\"none\"", 6) == NULL;
}

/* The first line of a key: DER begins with a SEQUENCE whose length has more than one byte, or is
 * short (EC keys, PKCS#8 of Ed25519); OpenSSH begins with its name. */
static bool pem_right(const uint8_t *s, size_t len)
{
    uint8_t key[64];
    int made = check_base64(s, len / 4 * 4, key, sizeof(key));
    if (made < 24) {
        return false;
    }
    if (memcmp(key, "openssh-key-v1", 15) == 0) {
        return true;
    }
    bool length = key[1] == 0x82 || key[1] == 0x81 || (key[1] >= 0x20 && key[1] < 0x80);
    size_t inside = key[1] == 0x82 ? 4 : key[1] == 0x81 ? 3 : 2;
    return key[0] == 0x30 && length && (key[inside] == 0x02 || key[inside] == 0x30);
}

static bool is_mixed(const uint8_t *s, size_t len)
{
    bool letter = false, digit = false;
    for (size_t i = 0; i < len; i++) {
        letter = letter || isalpha(s[i]);
        digit = digit || isdigit(s[i]);
    }
    return letter && digit;
}

/* One character, or up to four, over and over. */
static bool repeats(const uint8_t *s, size_t len)
{
    for (size_t period = 1; period <= 4 && 3 * period <= len; period++) {
        if (memcmp(s, s + period, len - period) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_placeholder(const struct rules *rules, const uint8_t *s, size_t len)
{
    uint8_t lower[RULE_WIDTH_MAX];
    if (repeats(s, len)) {
        return true;
    }
    len = len < sizeof(lower) ? len : sizeof(lower);
    for (size_t i = 0; i < len; i++) {
        lower[i] = (uint8_t)tolower(s[i]);
    }
    for (uint32_t w = 0; w < rules->word_count; w++) {
        if (memmem(lower, len, rules->words[w], strlen(rules->words[w])) != NULL) {
            return true;
        }
    }
    return false;
}

bool check_passes(const struct rules *rules, const struct candidate *c)
{
    const struct rule *rule = c->rule;
    uint32_t checks = rule->checks;
    uint8_t decoded[RULE_WIDTH_MAX];
    if ((checks & CHECK_ENDS_BASE64) != 0 && c->next >= 0 && c->next != '-' && c->next != '_' &&
        (base64_value((uint8_t)c->next) >= 0 || c->next == '=')) {
        return false;
    }
    if ((checks & CHECK_ENDS_BASE64URL) != 0 && c->next >= 0 && c->next != '+' && c->next != '/' &&
        base64_value((uint8_t)c->next) >= 0) {
        return false;
    }
    if (((checks & CHECK_CRC62) != 0 && !crc62_right(c->secret, c->len)) ||
        ((checks & CHECK_CRC36) != 0 && !crc36_right(c->secret, c->len)) ||
        ((checks & CHECK_CRC32HEX) != 0 && !crc32hex_right(c->secret, c->len)) ||
        ((checks & CHECK_BECH32) != 0 && !bech32_right(c->secret, c->len)) ||
        ((checks & CHECK_JWT) != 0 && !jwt_right(c->secret, c->len)) ||
        ((checks & CHECK_PEM) != 0 && !pem_right(c->secret, c->len)) ||
        ((checks & CHECK_MIXED) != 0 && !is_mixed(c->secret, c->len))) {
        return false;
    }
    if (rule->base64_bytes != 0 &&
        check_base64(c->secret, c->len, decoded, sizeof(decoded)) != (int)rule->base64_bytes) {
        return false;
    }
    if (rule->entropy_min > 0 && check_entropy(c->secret, c->len) < rule->entropy_min) {
        return false;
    }
    return (checks & CHECK_PLACEHOLDER_OK) != 0 || !has_placeholder(rules, c->secret, c->len);
}
