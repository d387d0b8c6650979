/* Bytes as text for people and for machines. File names may hold anything but a zero byte. */
#ifndef RF_SCAN_TEXT_H
#define RF_SCAN_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The length of the UTF-8 character at text, or 0 if there is none. */
size_t text_character(const uint8_t *text, size_t len);
bool text_is_utf8(const char *text);
/* A JSON string in quotes; what is not UTF-8 becomes U+FFFD. */
void text_json(FILE *out, const uint8_t *text, size_t len);
/* A relative or absolute path as the path of a URI, with % for whatever needs it. */
void text_uri(FILE *out, const char *path);
/* For a terminal: control characters and what is not UTF-8 as \x... */
void text_plain(FILE *out, const uint8_t *text, size_t len);

#endif
