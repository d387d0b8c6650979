/*
 * Values as people write them.
 *
 * Bytes (keys, tokens, metadata) are written in one way everywhere: letters, digits and ._~/:@+=-
 * stand for themselves, every other byte is %XX. Such a word needs no quotes in a shell, and a shell
 * reads it with printf '%b' "${word//%/\\x}". Input may also be hex:6b6579, and may hold any other
 * byte as it is, except that a % is always written %25.
 */
#ifndef RF_CLI_VALUES_H
#define RF_CLI_VALUES_H

#include <ringfence/ringfence.h>

/* Each returns false if the text is not one. */
bool parse_number(const char *text, uint64_t *number); /* decimal or 0x */
bool parse_duration(const char *text, uint64_t *ns);   /* 500ms, 30s, 1.5m, 2h, 1d; 0 */
bool parse_size(const char *text, uint64_t *bytes);    /* 4096, 64K, 64M, 1G */
/* Whether a text that one of the three refused has their form, and stands only for too much. */
bool is_too_large(const char *text, bool (*parse)(const char *text, uint64_t *value));
bool parse_bytes(const char *text, rf_bytes *bytes); /* kept until the end of the program */
bool parse_bytes_at(const char *text, size_t len, uint8_t *out, size_t room, size_t *used);

/* Each writes into a ring of buffers: valid until some more were made. */
const char *id_text(uint64_t id);         /* derived ids as 0x..., others as decimals */
const char *duration_text(uint64_t ns);   /* 3.2ms, 12s, 3m12s, 2d4h */
const char *size_text(uint64_t bytes);    /* 64.0M */
const char *time_text(uint64_t store_ns); /* 2026-01-31 12:00:00 */
const char *count_text(uint64_t n);       /* 1,234,567 */
/* The same word for a shell, in quotes if it needs them; in memory that lasts. */
const char *shell_word(const char *text);
/* Encoded, in memory that lasts; of `len` bytes at most 3 * len + 1. */
const char *bytes_text(rf_bytes bytes);
size_t encode_bytes(rf_bytes bytes, char *out); /* room for 3 * len + 1 */

#endif
