/*
 * A shard record that owns its bytes, as a backend in plain memory would keep it, and the one way to
 * change it: applying a step. Nothing here asserts; desk.h does.
 */
#ifndef RF_TEST_BOX_H
#define RF_TEST_BOX_H

#include "shard.h"

struct rf_box {
    rf_tenant tenant;
    uint64_t run;
    uint64_t shard;
    struct rf_shard_state state;
    struct rf_shard_ring ring;
    size_t start_len;
    size_t end_len;
    size_t metadata_len;
    size_t key_len;
    size_t token_len;
    uint64_t has_key; /* a word, so that there is no padding to compare */
    uint64_t spawned[RF_SPAWNED_MAX];
    uint8_t start[RF_KEY_MAX];
    uint8_t end[RF_KEY_MAX];
    uint8_t metadata[RF_METADATA_MAX];
    uint8_t key[RF_KEY_MAX];
    uint8_t token[RF_TOKEN_MAX];
};

/* C strings as arguments. NULL is absent. */
rf_bytes rf_text(const char *text);
rf_cursor rf_cursor_at(const char *key);
rf_cursor rf_cursor_with(const char *key, const char *token);
rf_spec rf_spec_of(const char *start, const char *end);
rf_child rf_child_of(const char *start, const char *end);
rf_shard_input rf_input_of(uint64_t shard, const char *start, const char *end);

void rf_box_make_root(struct rf_box *box, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                      rf_spec spec, rf_cursor cursor);
void rf_box_make_derived(struct rf_box *box, const struct rf_box *parent, uint64_t shard,
                         rf_spec spec, rf_cursor cursor);

struct rf_shard rf_box_view(const struct rf_box *box);
rf_spec rf_box_spec(const struct rf_box *box);
rf_cursor rf_box_cursor(const struct rf_box *box);

void rf_box_set_spec(struct rf_box *box, rf_spec spec);
void rf_box_set_cursor(struct rf_box *box, rf_cursor cursor);
/* Remember an operation, as if it had been executed. */
void rf_box_push(struct rf_box *box, uint64_t op, uint64_t hash, rf_op_kind kind, uint64_t at);

/* Only what a step says it changes is changed. */
void rf_box_apply(struct rf_box *box, const struct rf_shard_step *step);

/* Copies and compares the used bytes, not the room for more. */
void rf_box_copy(struct rf_box *to, const struct rf_box *from);
bool rf_box_equal(const struct rf_box *a, const struct rf_box *b);

#endif
