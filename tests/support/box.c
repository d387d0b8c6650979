#include "box.h"

#include <stdlib.h>

rf_bytes rf_text(const char *text)
{
    return text == NULL ? rf_bytes_none() : rf_bytes_of(text, strlen(text));
}

rf_cursor rf_cursor_at(const char *key)
{
    return rf_cursor_with(key, NULL);
}

rf_cursor rf_cursor_with(const char *key, const char *token)
{
    return (rf_cursor){.key = rf_text(key), .token = rf_text(token)};
}

rf_spec rf_spec_of(const char *start, const char *end)
{
    return (rf_spec){.start = rf_text(start), .end = rf_text(end)};
}

rf_child rf_child_of(const char *start, const char *end)
{
    return (rf_child){.spec = rf_spec_of(start, end)};
}

rf_shard_input rf_input_of(uint64_t shard, const char *start, const char *end)
{
    return (rf_shard_input){.shard = shard, .spec = rf_spec_of(start, end)};
}

static size_t keep(uint8_t *room, size_t size, rf_bytes bytes)
{
    if (bytes.len > size) {
        abort(); /* no operation lets it come this far */
    }
    if (bytes.len != 0) {
        memmove(room, bytes.data, bytes.len);
    }
    return bytes.len;
}

void rf_box_set_spec(struct rf_box *box, rf_spec spec)
{
    box->start_len = keep(box->start, sizeof(box->start), spec.start);
    box->end_len = keep(box->end, sizeof(box->end), spec.end);
    box->metadata_len = keep(box->metadata, sizeof(box->metadata), spec.metadata);
}

void rf_box_set_cursor(struct rf_box *box, rf_cursor cursor)
{
    box->has_key = cursor.key.data != NULL;
    box->key_len = keep(box->key, sizeof(box->key), cursor.key);
    box->token_len = keep(box->token, sizeof(box->token), cursor.token);
}

void rf_box_make_root(struct rf_box *box, const rf_tenant *tenant, uint64_t run, uint64_t shard,
                      rf_spec spec, rf_cursor cursor)
{
    box->tenant = *tenant;
    box->run = run;
    box->shard = shard;
    box->state = rf_shard_new_root(RF_COMPLETED);
    memset(&box->ring, 0, sizeof(box->ring));
    rf_box_set_spec(box, spec);
    rf_box_set_cursor(box, cursor);
}

void rf_box_make_derived(struct rf_box *box, const struct rf_box *parent, uint64_t shard,
                         rf_spec spec, rf_cursor cursor)
{
    rf_box_make_root(box, &parent->tenant, parent->run, shard, spec, cursor);
    box->state = rf_shard_new_derived(parent->shard, (rf_semantics)parent->state.semantics);
}

rf_spec rf_box_spec(const struct rf_box *box)
{
    return (rf_spec){
        .start = rf_bytes_of(box->start, box->start_len),
        .end = rf_bytes_of(box->end, box->end_len),
        .metadata = rf_bytes_of(box->metadata, box->metadata_len),
    };
}

rf_cursor rf_box_cursor(const struct rf_box *box)
{
    return (rf_cursor){
        .key = rf_bytes_of(box->has_key != 0 ? box->key : NULL, box->key_len),
        .token = rf_bytes_of(box->token_len != 0 ? box->token : NULL, box->token_len),
    };
}

struct rf_shard rf_box_view(const struct rf_box *box)
{
    return (struct rf_shard){
        .tenant = &box->tenant,
        .run = box->run,
        .shard = box->shard,
        .state = &box->state,
        .ring = &box->ring,
        .spawned = box->spawned,
        .spec = rf_box_spec(box),
        .cursor = rf_box_cursor(box),
    };
}

static void set_entry(struct rf_box *box, uint32_t slot, const struct rf_op_entry *entry)
{
    box->ring.op[slot] = entry->op;
    box->ring.hash[slot] = entry->hash;
    box->ring.executed_at[slot] = entry->executed_at;
    box->ring.kind[slot] = entry->kind;
    box->ring.result[slot] = entry->result;
}

void rf_box_push(struct rf_box *box, uint64_t op, uint64_t hash, rf_op_kind kind, uint64_t at)
{
    struct rf_op_entry entry = {.op = op, .hash = hash, .executed_at = at, .kind = (uint8_t)kind};
    set_entry(box, box->state.ring_next, &entry);
    box->state.ring_next = (uint8_t)((box->state.ring_next + 1u) % RF_SHARD_RING);
    if (box->state.ring_count < RF_SHARD_RING) {
        box->state.ring_count++;
    }
}

void rf_box_apply(struct rf_box *box, const struct rf_shard_step *step)
{
    uint32_t spawned = box->state.spawned_count;
    box->state = step->next;
    if ((step->changes & RF_CHANGED_CURSOR) != 0) {
        rf_box_set_cursor(box, step->cursor);
    }
    if ((step->changes & RF_CHANGED_SPEC) != 0) {
        rf_box_set_spec(box, step->spec);
    }
    if ((step->changes & RF_CHANGED_RING) != 0) {
        set_entry(box, step->ring_slot, &step->entry);
    }
    if ((step->changes & RF_CHANGED_SPAWNED) != 0) {
        if (spawned + step->spawned_new > RF_SPAWNED_MAX) {
            abort();
        }
        memcpy(box->spawned + spawned, step->spawned_ids,
               step->spawned_new * sizeof(*step->spawned_ids));
    }
}

/* What stands before the arrays of bytes, all of it words without padding. */
#define FIXED_SIZE offsetof(struct rf_box, spawned)

void rf_box_copy(struct rf_box *to, const struct rf_box *from)
{
    memcpy(to, from, FIXED_SIZE);
    memcpy(to->spawned, from->spawned, from->state.spawned_count * sizeof(*from->spawned));
    rf_box_set_spec(to, rf_box_spec(from));
    memcpy(to->key, from->key, from->key_len);
    memcpy(to->token, from->token, from->token_len);
}

bool rf_box_equal(const struct rf_box *a, const struct rf_box *b)
{
    return memcmp(a, b, FIXED_SIZE) == 0 &&
           memcmp(a->spawned, b->spawned, a->state.spawned_count * sizeof(*a->spawned)) == 0 &&
           memcmp(a->start, b->start, a->start_len) == 0 &&
           memcmp(a->end, b->end, a->end_len) == 0 &&
           memcmp(a->metadata, b->metadata, a->metadata_len) == 0 &&
           memcmp(a->key, b->key, a->key_len) == 0 && memcmp(a->token, b->token, a->token_len) == 0;
}
