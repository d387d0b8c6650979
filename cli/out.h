/*
 * Data on stdout, in one of two shapes: a card (one thing and its properties) or a list (one line a
 * thing). With --json a card is one object and a list is one object a line; otherwise they are aligned
 * for people, cut to the terminal's width if there is one, and coloured only there.
 *
 * Names are the JSON names; people see them with spaces. out_ns and out_time add _ns to the JSON name,
 * out_bytes shows the length as name_len and the bytes only with --reveal. Ids are strings in JSON,
 * because they have 64 bits and many readers keep only 53.
 */
#ifndef RF_CLI_OUT_H
#define RF_CLI_OUT_H

#include <ringfence/ringfence.h>
#include <stdio.h>

enum out_colour { OUT_PLAIN, OUT_GREEN, OUT_YELLOW, OUT_RED, OUT_BLUE, OUT_DIM, OUT_BOLD };

void out_setup(bool json, bool reveal);
bool out_is_json(void);

void out_card_begin(void);
void out_card_end(void);
void out_list_begin(void);
void out_row(void); /* begins a line; ends the one before */
void out_list_end(void);
/* A list inside a card: rows with out_row. In JSON it is an array of objects. */
void out_inner_begin(const char *name);
void out_inner_end(void);

/* What follows is shown to programs only, until it is called with false. */
void out_json_only(bool on);

void out_text(const char *name, const char *text);
void out_word(const char *name, const char *text, enum out_colour colour);
/* A word for programs, a phrase for people. */
void out_phrase(const char *name, const char *word, const char *phrase, enum out_colour colour);
void out_id(const char *name, uint64_t id);
void out_number(const char *name, uint64_t number);
void out_real(const char *name, double number, int digits);
void out_flag(const char *name, bool flag);
void out_ns(const char *name, uint64_t ns);     /* a duration */
void out_time(const char *name, uint64_t time); /* a store's time; 0 is none */
void out_size(const char *name, uint64_t bytes);
void out_bytes(const char *name, rf_bytes bytes);     /* keys and such */
void out_none(const char *name);                      /* null, "-" */
void out_words(const char *name, char *const *words); /* up to a NULL */
void out_ids(const char *name, const uint64_t *ids, size_t count);

/* A JSON string with its quotes. UTF-8 stays as it is; a byte that is none becomes \u00XX. For the few who print JSON themselves. */
void out_json_string(FILE *to, const char *text);

/* Whether to colour this stream; its width, 0 if it is no terminal. */
bool stream_colours(FILE *stream);
int stream_width(FILE *stream);
const char *colour_on(FILE *stream, enum out_colour colour);
const char *colour_off(FILE *stream);

#endif
