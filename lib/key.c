/* Keys and their neighbours in bytewise order. */
#include "bytes.h"

int rf_key_compare(rf_bytes a, rf_bytes b)
{
    return rf_bytes_compare(a, b);
}

rf_status rf_key_successor(rf_bytes key, uint8_t *out, size_t *out_len)
{
    if (out == NULL || out_len == NULL || !rf_bytes_sound(key)) {
        return RF_INVALID_ARGUMENT;
    }
    if (key.len >= RF_KEY_MAX) {
        return RF_KEY_TOO_LARGE;
    }
    if (key.len != 0) {
        memmove(out, key.data, key.len);
    }
    out[key.len] = 0;
    *out_len = key.len + 1;
    return RF_OK;
}

rf_status rf_prefix_successor(rf_bytes prefix, uint8_t *out, size_t *out_len)
{
    if (out == NULL || out_len == NULL || !rf_bytes_sound(prefix)) {
        return RF_INVALID_ARGUMENT;
    }
    if (prefix.len > RF_KEY_MAX) {
        return RF_KEY_TOO_LARGE;
    }
    const uint8_t *bytes = prefix.data;
    size_t len = prefix.len;
    while (len != 0 && bytes[len - 1] == 0xFF) {
        len--;
    }
    *out_len = len;
    if (len != 0) {
        memmove(out, bytes, len);
        out[len - 1]++;
    }
    return RF_OK;
}

/* Digits are bytes; low is followed by zeros, high (if unbounded) by a digit 256. The first place
 * where they differ by two or more has a digit between; where they differ by one, low's tail has to
 * be exceeded, so the search goes on below low with no upper bound. */
rf_status rf_key_midpoint(rf_bytes low, rf_bytes high, uint8_t *out, size_t *out_len)
{
    if (out == NULL || out_len == NULL || !rf_bytes_sound(low) || !rf_bytes_sound(high)) {
        return RF_INVALID_ARGUMENT;
    }
    if (low.len > RF_KEY_MAX || high.len > RF_KEY_MAX) {
        return RF_KEY_TOO_LARGE;
    }
    if (high.len != 0 && rf_bytes_compare(low, high) >= 0) {
        return RF_RANGE_INVERTED;
    }
    const uint8_t *l = low.data, *h = high.data;
    bool bounded = high.len != 0;
    for (size_t i = 0; i < RF_KEY_MAX; i++) {
        unsigned low_digit = i < low.len ? l[i] : 0;
        unsigned high_digit = !bounded ? 256u : i < high.len ? h[i] : 0;
        unsigned middle = (low_digit + high_digit) / 2;
        if (middle > low_digit) {
            out[i] = (uint8_t)middle;
            *out_len = i + 1;
            return RF_OK;
        }
        if (bounded && i >= high.len) {
            break; /* high is low and zeros: only low and fewer zeros lie between */
        }
        out[i] = (uint8_t)low_digit;
        bounded = bounded && high_digit == low_digit;
    }
    if (rf_key_successor(low, out, out_len) == RF_OK &&
        (high.len == 0 || rf_bytes_compare(rf_bytes_of(out, *out_len), high) < 0)) {
        return RF_OK;
    }
    return RF_RANGE_INVERTED;
}
