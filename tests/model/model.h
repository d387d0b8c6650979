/*
 * The coordination protocol once more, for clarity alone: plain arrays in creation order, linear
 * search, one thread, every operation written out from the protocol's text. It shares types and
 * numbers with the public header, and no code with lib/. Where it and the store disagree, the
 * protocol's text decides; the model is what is believed until then.
 */
#ifndef RF_MODEL_H
#define RF_MODEL_H

#include <ringfence/ringfence.h>

struct model_bytes {
    bool present;
    uint32_t len;
    uint8_t *data; /* owned */
};

struct model_entry {
    uint64_t op;
    uint64_t hash;
    uint64_t executed_at;
    uint8_t kind;
};

struct model_shard {
    uint64_t shard;
    bool touched; /* since somebody last cleared it; of no meaning to the protocol */
    rf_shard_status status;
    bool has_reason;
    rf_park_reason reason;
    struct model_bytes start, end, metadata;
    struct model_bytes key, token;
    rf_semantics semantics;
    bool leased;
    uint64_t owner;
    uint64_t deadline;
    uint64_t bound; /* the member that the lease dies with; 0: none */
    uint64_t fence;
    bool has_parent;
    uint64_t parent;
    uint32_t spawned_count;
    uint64_t *spawned; /* owned */
    uint32_t attempts;
    uint32_t ring_count; /* oldest first */
    struct model_entry ring[RF_SHARD_RING];
};

struct model_run {
    rf_tenant tenant;
    uint64_t run;
    rf_run_config config;
    rf_run_status status;
    uint64_t created_at;
    uint64_t completed_at;
    uint64_t root_count;
    uint32_t ring_count;
    struct model_entry ring[RF_RUN_RING];
    uint32_t count, room;
    struct model_shard *shards; /* in creation order */
    bool touched;               /* as of shards: of no meaning to the protocol */
};

struct model_worker {
    uint64_t worker;
    uint64_t claimed_at;
};

struct model {
    uint64_t max_shards;
    uint64_t max_tenant_shards;
    uint64_t cooldown;
    uint64_t claims_from; /* after everything was lost: nobody claims before */
    uint64_t floor;
    uint32_t run_count, run_room;
    struct model_run *runs;
    uint32_t worker_count, worker_room;
    struct model_worker *workers;
};

/* What a call says besides its status. Only the fields that it is about mean something. */
struct model_answer {
    rf_outcome outcome;
    rf_detail detail;
    bool has_event;
    rf_event event;
    rf_run_status run_status; /* renew */
    struct model_run *where;  /* acquire, claim: valid until the model changes */
    struct model_shard *granted;
    uint32_t parked;   /* claim: shards that were parked on the way */
    uint32_t id_count; /* splits */
    uint64_t ids[RF_SPLIT_CHILDREN_MAX];
};

void model_init(struct model *m, uint64_t max_shards, uint64_t max_tenant_shards,
                uint64_t cooldown);
void model_free(struct model *m);
/* A deep copy; `to` is overwritten, not freed. */
void model_copy(struct model *to, const struct model *from);
/* Everything is lost but the fences: a new region of this incarnation, made at this time. */
void model_rebuild(struct model *m, uint64_t incarnation, uint64_t now);
/* Who claimed when is lost: so that no two claims of a worker come too close, all wait for a cooldown. */
void model_forget_claims(struct model *m, uint64_t now);

/* --- looking --- */

struct model_run *model_find_run(const struct model *m, const rf_tenant *tenant, uint64_t run);
struct model_shard *model_find_shard(const struct model_run *r, uint64_t shard);
bool model_leased_at(const struct model_shard *s, uint64_t now);
bool model_available_at(const struct model_shard *s, uint64_t now);
bool model_terminal_run(const struct model_run *r);
rf_bytes model_view(const struct model_bytes *b);
/* What a full scan finds; the deadline is 0 if nothing is leased. */
void model_capacity(const struct model_run *r, uint64_t now, uint64_t *available,
                    uint64_t *earliest);
/* Whether the filter lets it through. */
bool model_listed(const struct model_shard *s, rf_filter filter, uint64_t now);
/* watermark: borrowed, valid until the model changes. */
void model_progress(const struct model_run *r, uint64_t now, rf_progress *progress,
                    rf_bytes *watermark);

/* --- the operations; member is who a bound lease dies with --- */

rf_status model_acquire(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        uint64_t shard, uint64_t worker, uint64_t member, struct model_answer *a);
rf_status model_claim(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                      uint64_t worker, uint64_t member, struct model_answer *a);
rf_status model_renew(struct model *m, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                      struct model_answer *a);
rf_status model_checkpoint(struct model *m, uint64_t now, const rf_tenant *tenant,
                           const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                           struct model_answer *a);
rf_status model_complete(struct model *m, uint64_t now, const rf_tenant *tenant,
                         const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                         struct model_answer *a);
rf_status model_park(struct model *m, uint64_t now, const rf_tenant *tenant, const rf_lease *lease,
                     rf_park_reason reason, uint64_t op, struct model_answer *a);
/* cursor may be NULL */
rf_status model_release(struct model *m, uint64_t now, const rf_tenant *tenant,
                        const rf_lease *lease, const rf_cursor *cursor, uint64_t op,
                        struct model_answer *a);
rf_status model_split_replace(struct model *m, uint64_t now, const rf_tenant *tenant,
                              const rf_lease *lease, const rf_child *children, uint32_t count,
                              uint64_t op, struct model_answer *a);
rf_status model_split_residual(struct model *m, uint64_t now, const rf_tenant *tenant,
                               const rf_lease *lease, const rf_spec *parent_new,
                               const rf_spec *residual, uint64_t op, struct model_answer *a);
rf_status model_unpark(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                       uint64_t shard, uint64_t op, struct model_answer *a);
/* Ends every lease bound to the member; how many there were. */
uint32_t model_owner_lost(struct model *m, uint64_t member);

rf_status model_create_run(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           const rf_run_config *config, struct model_answer *a);
rf_status model_register_shards(struct model *m, uint64_t now, const rf_tenant *tenant,
                                uint64_t run, const rf_shard_input *shards, uint32_t count,
                                uint64_t op, struct model_answer *a);
rf_status model_create_run_with_shards(struct model *m, uint64_t now, const rf_tenant *tenant,
                                       uint64_t run, const rf_run_config *config,
                                       const rf_shard_input *shards, uint32_t count, uint64_t op,
                                       struct model_answer *a);
rf_status model_add_shards(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                           const rf_shard_input *shards, uint32_t count, uint64_t op,
                           struct model_answer *a);
/* kind: complete, fail or cancel */
rf_status model_end_run(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                        rf_run_op_kind kind, uint64_t op, struct model_answer *a);
rf_status model_purge_run(struct model *m, uint64_t now, const rf_tenant *tenant, uint64_t run,
                          struct model_answer *a);

/* --- canonical bytes and their hashes (section 1 of the protocol) --- */

uint64_t model_split_id(uint64_t run, uint64_t parent, uint64_t op, rf_derived_kind kind,
                        uint32_t index);
uint64_t model_hash_cursor(const char *tag, const rf_cursor *cursor);
uint64_t model_hash_park(rf_park_reason reason);
uint64_t model_hash_replace(const rf_child *children, uint32_t count);
uint64_t model_hash_residual(const rf_spec *parent_new, const rf_spec *residual);
uint64_t model_hash_unpark(uint64_t run, uint64_t shard);
uint64_t model_hash_manifest(const char *tag, const rf_shard_input *shards, uint32_t count);
uint64_t model_hash_empty(const char *tag);

/* --- for the model's own files --- */

int model_compare(rf_bytes a, rf_bytes b);
void model_set(struct model_bytes *to, rf_bytes from);
/* A new shard at the end of the run. */
struct model_shard *model_add_shard(struct model_run *r, uint64_t shard, const rf_spec *spec,
                                    const rf_cursor *cursor);
rf_status model_check_limits(const struct model *m, const rf_tenant *tenant, uint64_t count,
                             struct model_answer *a);
rf_status model_refuse_size(struct model_answer *a, rf_status status, uint64_t size,
                            uint64_t limit);
rf_status model_refuse_index(struct model_answer *a, rf_status status, uint64_t index);
bool model_inside(const rf_spec *range, rf_bytes key);
bool model_inverted(const rf_spec *range);
rf_status model_check_sizes(const rf_spec *spec, struct model_answer *a);
/* What is remembered under an op id; NULL: nothing. */
const struct model_entry *model_ring_find(const struct model_entry *ring, uint32_t count,
                                          uint64_t op);
void model_ring_push(struct model_entry *ring, uint32_t *count, uint32_t room,
                     struct model_entry entry);

#endif
