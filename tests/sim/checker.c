#include "checker.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct row {
    uint64_t fence;
    bool final;
};

struct seen {
    bool here; /* in the store, as last looked at */
    rf_shard_status status;
    uint64_t fence;
    uint64_t digest;
    struct model_bytes key, start, end;
    bool has_parent;
    uint64_t parent;
    uint64_t *spawned;
    uint32_t spawned_count, spawned_room;

    uint64_t *grants; /* fences, all history */
    uint32_t grant_count, grant_room;
    uint64_t greatest;

    bool held;
    uint64_t held_until;
    uint64_t held_fence;
    uint64_t member;

    bool ended; /* the ledger has its final row */
    struct row *rows;
    uint32_t row_count, row_room;
};

struct range {
    struct model_bytes start, end;
    uint64_t born, gone; /* epochs; roots only */
};

struct seen_run {
    uint32_t tenant;
    uint64_t run;
    bool here;
    rf_run_status status;
    uint64_t digest;
    bool changed; /* ranges or children */
    uint32_t *members;
    uint32_t member_count, member_room;
    struct range *roots;
    uint32_t root_count, root_room;
};

#define RUNS_MAX 64u

const char *rule_name(enum rule rule)
{
    static const char *const names[RULES] = {"S1",
                                             "S2",
                                             "S3",
                                             "S4",
                                             "S5",
                                             "S6",
                                             "S7",
                                             "S8",
                                             "S9",
                                             "S10",
                                             "S11",
                                             "ledger-stale",
                                             "ledger-missing",
                                             "ledger-twice",
                                             "ledger-late"};
    return names[rule];
}

static void report(const struct checker *c, enum rule rule, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void report(const struct checker *c, enum rule rule, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    c->violated(c->context, rule, text);
}

static void *grown(void *old, uint32_t *room, uint32_t need, size_t size)
{
    if (need > *room) {
        *room = 2 * need + 6;
        old = realloc(old, *room * size);
        if (old == NULL) {
            abort();
        }
    }
    return old;
}

void checker_init(struct checker *c, uint64_t cooldown, violated_fn *violated, void *context)
{
    *c = (struct checker){.violated = violated, .context = context, .cooldown = cooldown};
    c->runs = calloc(RUNS_MAX, sizeof(*c->runs));
    if (c->runs == NULL) {
        abort();
    }
}

void checker_free(struct checker *c)
{
    for (uint32_t i = 0; i < c->names.count && i < c->room; i++) {
        struct seen *s = &c->shards[i];
        free(s->key.data);
        free(s->start.data);
        free(s->end.data);
        free(s->spawned);
        free(s->grants);
        free(s->rows);
    }
    for (uint32_t i = 0; i < c->run_count; i++) {
        struct seen_run *r = &c->runs[i];
        for (uint32_t k = 0; k < r->root_count; k++) {
            free(r->roots[k].start.data);
            free(r->roots[k].end.data);
        }
        free(r->roots);
        free(r->members);
    }
    free(c->shards);
    free(c->runs);
    names_free(&c->names);
}

static struct seen *shard_of(struct checker *c, uint32_t tenant, uint64_t run, uint64_t shard)
{
    uint32_t number = names_number(&c->names, tenant, run, shard);
    if (number >= c->room) {
        uint32_t was = c->room;
        c->shards = grown(c->shards, &c->room, number + 1, sizeof(*c->shards));
        memset(c->shards + was, 0, (c->room - was) * sizeof(*c->shards));
    }
    return &c->shards[number];
}

static struct seen_run *run_of(struct checker *c, uint32_t tenant, uint64_t run)
{
    for (uint32_t i = 0; i < c->run_count; i++) {
        if (c->runs[i].tenant == tenant && c->runs[i].run == run) {
            return &c->runs[i];
        }
    }
    if (c->run_count == RUNS_MAX) {
        abort();
    }
    c->runs[c->run_count] = (struct seen_run){.tenant = tenant, .run = run};
    return &c->runs[c->run_count++];
}

/* --- what calls answered --- */

/* Every fence that a call brings: above all that came before, and never one of them. */
static void new_fence(struct checker *c, struct seen *s, uint32_t tenant, uint64_t run,
                      uint64_t shard, uint64_t fence, bool grant)
{
    for (uint32_t i = s->grant_count; i > 0 && fence <= s->greatest; i--) {
        if (grant && s->grants[i - 1] == fence) {
            report(c, S11_NO_FENCE_TWICE,
                   "tenant %u run %" PRIu64 " shard %" PRIx64 ": fence %" PRIu64 " granted twice",
                   tenant, run, shard, fence);
            break;
        }
    }
    if (fence <= s->greatest) {
        report(c, S2_FENCE_UP,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": fence %" PRIu64 " after %" PRIu64,
               tenant, run, shard, fence, s->greatest);
    } else {
        s->greatest = fence;
    }
    if (grant) {
        s->grants = grown(s->grants, &s->grant_room, s->grant_count + 1, sizeof(*s->grants));
        s->grants[s->grant_count++] = fence;
    }
}

void checker_granted(struct checker *c, uint32_t tenant, const rf_lease *lease, uint64_t member,
                     uint64_t now)
{
    struct seen *s = shard_of(c, tenant, lease->run, lease->shard);
    c->grants++;
    if (s->held && now < s->held_until) {
        report(c, S1_ONE_LEASE,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": granted at %" PRIu64
               " while fence %" PRIu64 " holds it until %" PRIu64,
               tenant, lease->run, lease->shard, now, s->held_fence, s->held_until);
    }
    new_fence(c, s, tenant, lease->run, lease->shard, lease->fence, true);
    s->held = true;
    s->held_until = lease->deadline;
    s->held_fence = lease->fence;
    s->member = member;
}

void checker_claimed(struct checker *c, uint64_t worker, uint64_t now)
{
    uint64_t *last = &c->claimed_at[worker % 64];
    if (c->cooldown != 0 && *last != 0 && now < *last + c->cooldown) {
        report(c, S9_COOLDOWN, "worker %" PRIu64 " claimed at %" PRIu64 " and at %" PRIu64, worker,
               *last, now);
    }
    *last = now;
}

void checker_renewed(struct checker *c, uint32_t tenant, const rf_lease *lease)
{
    struct seen *s = shard_of(c, tenant, lease->run, lease->shard);
    if (s->held && s->held_fence == lease->fence && lease->deadline > s->held_until) {
        s->held_until = lease->deadline;
    }
}

void checker_ended(struct checker *c, uint32_t tenant, const rf_lease *lease)
{
    struct seen *s = shard_of(c, tenant, lease->run, lease->shard);
    if (s->held_fence == lease->fence) {
        s->held = false;
    }
}

void checker_unparked(struct checker *c, uint32_t tenant, uint64_t run, uint64_t shard,
                      uint64_t fence)
{
    new_fence(c, shard_of(c, tenant, run, shard), tenant, run, shard, fence, false);
}

void checker_member_gone(struct checker *c, uint64_t member)
{
    for (uint32_t i = 0; i < c->names.count && i < c->room; i++) {
        if (c->shards[i].member == member && member != 0) {
            c->shards[i].held = false;
        }
    }
}

void checker_root(struct checker *c, uint32_t tenant, uint64_t run, rf_bytes start, rf_bytes end,
                  uint64_t epoch)
{
    struct seen_run *r = run_of(c, tenant, run);
    r->roots = grown(r->roots, &r->root_room, r->root_count + 1, sizeof(*r->roots));
    struct range *root = &r->roots[r->root_count++];
    *root = (struct range){.born = epoch};
    model_set(&root->start, start);
    model_set(&root->end, end);
    r->changed = true;
}

/* Forgets roots that were not yet there after `newest`, and those that no way leads back to any more. */
static void forget_roots(struct seen_run *r, uint64_t newest, uint64_t durable)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->root_count; i++) {
        struct range *root = &r->roots[i];
        if (root->born > newest || (root->gone != 0 && root->gone <= durable)) {
            free(root->start.data);
            free(root->end.data);
        } else {
            r->roots[kept++] = *root;
        }
    }
    r->root_count = kept;
}

static void forget_run(struct checker *c, struct seen_run *r)
{
    for (uint32_t i = 0; i < r->member_count; i++) {
        struct seen *s = &c->shards[r->members[i]];
        s->here = false;
        s->held = false;
        s->ended = false; /* under this name the work begins again */
        for (uint32_t k = 0; k < s->row_count; k++) {
            s->rows[k].final = false; /* or its end comes to light once more */
        }
        s->spawned_count = 0;
    }
    r->member_count = 0;
    r->here = false;
    r->changed = false;
}

void checker_purged(struct checker *c, uint32_t tenant, uint64_t run, uint64_t epoch,
                    uint64_t durable)
{
    struct seen_run *r = run_of(c, tenant, run);
    forget_run(c, r);
    for (uint32_t i = 0; i < r->root_count; i++) {
        r->roots[i].gone = r->roots[i].gone == 0 ? epoch : r->roots[i].gone;
    }
    forget_roots(r, UINT64_MAX, durable);
}

void checker_recovered(struct checker *c, uint64_t durable)
{
    for (uint32_t i = 0; i < c->run_count; i++) {
        struct seen_run *r = &c->runs[i];
        forget_run(c, r);
        forget_roots(r, durable, durable);
        for (uint32_t k = 0; k < r->root_count; k++) {
            r->roots[k].gone = 0; /* the purge was undone */
        }
        r->changed = true;
    }
}

/* --- what the store shows --- */

static void fold_number(uint64_t *h, uint64_t v)
{
    uint64_t x = (*h ^ v) * 0x9e3779b97f4a7c15u;
    *h = x ^ (x >> 32);
}

static void fold_bytes(uint64_t *h, rf_bytes b)
{
    const uint8_t *p = b.data;
    uint64_t word = 0;
    size_t i = 0;
    fold_number(h, p == NULL ? UINT64_MAX : b.len);
    for (; i + sizeof(word) <= b.len; i += sizeof(word)) {
        memcpy(&word, p + i, sizeof(word));
        fold_number(h, word);
    }
    for (word = 0; i < b.len; i++) {
        word = word << 8 | p[i];
    }
    fold_number(h, word);
}

static uint64_t digest_of(const rf_shard_info *i)
{
    uint64_t h = 0xcbf29ce484222325u;
    const uint64_t numbers[] = {i->status,    i->has_reason,   i->has_reason ? i->reason : 0,
                                i->leased,    i->fence,        i->has_parent,
                                i->parent,    i->attempts,     i->ring_count,
                                i->semantics, i->spawned_count};
    for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
        fold_number(&h, numbers[k]);
    }
    fold_bytes(&h, i->spec.start);
    fold_bytes(&h, i->spec.end);
    fold_bytes(&h, i->spec.metadata);
    fold_bytes(&h, i->cursor.key);
    fold_bytes(&h, i->cursor.token);
    for (uint32_t k = 0; k < i->ring_count; k++) {
        fold_number(&h, i->ring[k].op);
    }
    return h;
}

static const char *broken_shard(const rf_shard_info *i)
{
    if ((unsigned)i->status > RF_SHARD_PARKED) {
        return "unknown status";
    }
    if (i->has_reason != (i->status == RF_SHARD_PARKED)) {
        return "a park reason exactly if parked";
    }
    if (i->status != RF_SHARD_ACTIVE && i->leased) {
        return "a terminal shard has no lease";
    }
    if (i->fence == 0) {
        return "the fence is at least 1";
    }
    if (i->ring_count > RF_SHARD_RING) {
        return "at most 16 operations";
    }
    for (uint32_t k = 0; k < i->ring_count; k++) {
        for (uint32_t j = 0; j < k; j++) {
            if (i->ring[j].op == i->ring[k].op) {
                return "an op id twice in the ring";
            }
        }
        if (k != 0 && i->ring[k].executed_at < i->ring[k - 1].executed_at) {
            return "times in the ring go down";
        }
    }
    if (i->status == RF_SHARD_SPLIT && i->spawned_count == 0) {
        return "split without children";
    }
    if (i->has_parent != (i->shard >> 63 != 0)) {
        return "a parent exactly if derived";
    }
    if (i->spawned_count > RF_SPAWNED_MAX) {
        return "at most 1024 spawned";
    }
    for (uint32_t k = 0; k < i->spawned_count; k++) {
        if (i->spawned[k] >> 63 == 0) {
            return "a spawned id that is not derived";
        }
    }
    if (i->cursor.key.data == NULL && i->cursor.token.len != 0) {
        return "a token without a key";
    }
    return NULL;
}

static bool same_bytes(const struct model_bytes *a, rf_bytes b)
{
    return a->present == (b.data != NULL) && a->len == b.len &&
           (b.len == 0 || memcmp(a->data, b.data, b.len) == 0);
}

static void keep(struct model_bytes *a, rf_bytes b)
{
    if (!same_bytes(a, b)) {
        model_set(a, b);
    }
}

/* The shard reached its end: then its row is there, under the fence that ended it. */
static void ledger_done(struct checker *c, struct seen *s, uint32_t tenant, uint64_t run,
                        uint64_t shard, uint64_t fence)
{
    for (uint32_t i = s->row_count; i > 0; i--) {
        struct row *row = &s->rows[i - 1];
        if (row->fence == fence) {
            if (row->final) {
                report(c, LEDGER_TWICE,
                       "tenant %u run %" PRIu64 " shard %" PRIx64 ": done twice under %" PRIu64,
                       tenant, run, shard, fence);
            }
            row->final = true;
            s->ended = true;
            return;
        }
    }
    report(c, LEDGER_MISSING,
           "tenant %u run %" PRIu64 " shard %" PRIx64 ": completed under %" PRIu64
           " and not recorded",
           tenant, run, shard, fence);
}

static void judge_change(struct checker *c, struct seen *s, uint32_t tenant, uint64_t run,
                         const rf_shard_info *i, uint64_t digest)
{
    if (i->fence < s->fence) {
        report(c, S2_FENCE_UP,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": %" PRIu64 " after %" PRIu64
               " in the record",
               tenant, run, i->shard, i->fence, s->fence);
    }
    bool unparked = s->status == RF_SHARD_PARKED && i->status == RF_SHARD_ACTIVE;
    if (s->status != RF_SHARD_ACTIVE && digest != s->digest && !(unparked && i->fence > s->fence)) {
        report(c, S3_TERMINAL_STAYS,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": status %d became %d, fence %" PRIu64
               " became %" PRIu64,
               tenant, run, i->shard, s->status, i->status, s->fence, i->fence);
    }
    if (s->key.present &&
        (i->cursor.key.data == NULL || model_compare(i->cursor.key, model_view(&s->key)) < 0)) {
        report(c, S5_KEY_UP, "tenant %u run %" PRIu64 " shard %" PRIx64 ": the key went back",
               tenant, run, i->shard);
    }
}

void checker_shard(struct checker *c, uint32_t tenant, uint64_t run, const rf_shard_info *i)
{
    struct seen_run *r = run_of(c, tenant, run);
    struct seen *s = shard_of(c, tenant, run, i->shard);
    uint64_t digest = digest_of(i);
    c->looks++;
    const char *broken = broken_shard(i);
    if (broken != NULL) {
        report(c, S4_INVARIANTS, "tenant %u run %" PRIu64 " shard %" PRIx64 ": %s", tenant, run,
               i->shard, broken);
    }
    if (i->cursor.key.data != NULL && !model_inside(&i->spec, i->cursor.key)) {
        report(c, S6_KEY_INSIDE,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": the key is outside the range", tenant,
               run, i->shard);
    }
    bool was_done = s->here && s->status == RF_SHARD_DONE;
    if (s->here) {
        judge_change(c, s, tenant, run, i, digest);
    } else {
        r->members = grown(r->members, &r->member_room, r->member_count + 1, sizeof(*r->members));
        r->members[r->member_count++] = (uint32_t)(s - c->shards);
        r->changed = true;
    }
    if (!same_bytes(&s->start, i->spec.start) || !same_bytes(&s->end, i->spec.end) ||
        s->spawned_count != i->spawned_count || s->status != i->status) {
        r->changed = true;
    }
    s->here = true;
    s->status = i->status;
    s->fence = i->fence;
    s->digest = digest;
    keep(&s->key, i->cursor.key);
    keep(&s->start, i->spec.start);
    keep(&s->end, i->spec.end);
    s->has_parent = i->has_parent;
    s->parent = i->parent;
    s->spawned = grown(s->spawned, &s->spawned_room, i->spawned_count, sizeof(*s->spawned));
    s->spawned_count = i->spawned_count;
    if (i->spawned_count != 0) {
        memcpy(s->spawned, i->spawned, i->spawned_count * sizeof(*s->spawned));
    }
    if (i->status == RF_SHARD_DONE && !was_done) {
        ledger_done(c, s, tenant, run, i->shard, i->fence);
    }
}

static const char *broken_run(const rf_run_info *i)
{
    bool terminal = i->status >= RF_RUN_DONE;
    if ((unsigned)i->status > RF_RUN_CANCELLED) {
        return "unknown status";
    }
    if (i->status == RF_RUN_ACTIVE && i->root_count == 0) {
        return "active without roots";
    }
    if (i->status == RF_RUN_INITIALIZING && i->shard_count != 0) {
        return "initializing with shards";
    }
    if (terminal != (i->completed_at != 0) || (terminal && i->completed_at < i->created_at)) {
        return "completed_at exactly if terminal, and not before created_at";
    }
    if (i->ring_count > RF_RUN_RING) {
        return "at most 8 operations";
    }
    for (uint32_t k = 0; k < i->ring_count; k++) {
        for (uint32_t j = 0; j < k; j++) {
            if (i->ring[j].op == i->ring[k].op) {
                return "an op id twice in the ring";
            }
        }
    }
    return i->config.lease_duration == 0 ? "no lease duration" : NULL;
}

void checker_run(struct checker *c, uint32_t tenant, const rf_run_info *i)
{
    struct seen_run *r = run_of(c, tenant, i->run);
    uint64_t h = 0xcbf29ce484222325u;
    const char *broken = broken_run(i);
    if (broken != NULL) {
        report(c, S4_INVARIANTS, "tenant %u run %" PRIu64 ": %s", tenant, i->run, broken);
    }
    fold_number(&h, i->status);
    fold_number(&h, i->created_at);
    fold_number(&h, i->completed_at);
    fold_number(&h, i->root_count);
    fold_number(&h, i->config.lease_duration);
    for (uint32_t k = 0; k < i->ring_count; k++) {
        fold_number(&h, i->ring[k].op);
        fold_number(&h, i->ring[k].executed_at);
    }
    if (r->here && r->status >= RF_RUN_DONE && r->digest != h) {
        report(c, S8_RUN_STAYS, "tenant %u run %" PRIu64 ": status %d became %d, or something else",
               tenant, i->run, r->status, i->status);
    }
    r->here = true;
    r->status = i->status;
    r->digest = h;
}

/* --- several shards --- */

static int by_start(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return model_compare(model_view(&x->start), model_view(&y->start));
}

/* Touching ranges become one. Returns how many are left; SIZE_MAX if two overlap. */
static uint32_t merge(struct range *list, uint32_t count, bool *overlap)
{
    uint32_t n = 0;
    *overlap = false;
    qsort(list, count, sizeof(*list), by_start);
    for (uint32_t i = 0; i < count; i++) {
        if (n == 0) {
            list[n++] = list[i];
            continue;
        }
        int order = model_compare(model_view(&list[n - 1].end), model_view(&list[i].start));
        *overlap = *overlap || order > 0;
        if (order >= 0) {
            list[n - 1].end = list[i].end;
        } else {
            list[n++] = list[i];
        }
    }
    return n;
}

/* S10: borrowed ranges in lists of their own, so that sorting moves nothing else. */
static void judge_coverage(struct checker *c, const struct seen_run *r)
{
    struct range *roots = malloc((r->root_count + 1) * sizeof(*roots));
    struct range *parts = malloc((r->member_count + 1) * sizeof(*parts));
    uint32_t part_count = 0, root_count = 0;
    bool overlap_roots, overlap;
    if (roots == NULL || parts == NULL) {
        abort();
    }
    for (uint32_t i = 0; i < r->root_count; i++) {
        if (r->roots[i].gone == 0) {
            roots[root_count++] = r->roots[i];
        }
    }
    for (uint32_t i = 0; i < r->member_count; i++) {
        const struct seen *s = &c->shards[r->members[i]];
        if (s->status != RF_SHARD_SPLIT) {
            parts[part_count++] = (struct range){.start = s->start, .end = s->end};
        }
    }
    uint32_t want = merge(roots, root_count, &overlap_roots);
    uint32_t have = merge(parts, part_count, &overlap);
    bool same = want == have;
    for (uint32_t i = 0; same && i < want; i++) {
        same = same_bytes(&roots[i].start, model_view(&parts[i].start)) &&
               same_bytes(&roots[i].end, model_view(&parts[i].end));
    }
    free(roots);
    free(parts);
    if (overlap || !same) {
        report(c, S10_COVERAGE, "tenant %u run %" PRIu64 ": the shards %s", r->tenant, r->run,
               overlap ? "overlap" : "are not exactly the root ranges");
    }
}

static void judge_children(struct checker *c, const struct seen_run *r)
{
    for (uint32_t i = 0; i < r->member_count; i++) {
        uint64_t id = c->names.list[r->members[i]].shard;
        for (uint32_t k = 0; k < c->shards[r->members[i]].spawned_count; k++) {
            uint64_t spawned = c->shards[r->members[i]].spawned[k];
            const struct seen *child = shard_of(c, r->tenant, r->run, spawned);
            if (!child->here || !child->has_parent || child->parent != id) {
                report(c, S7_CHILDREN,
                       "tenant %u run %" PRIu64 " shard %" PRIx64 ": child %" PRIx64 " %s",
                       r->tenant, r->run, id, spawned,
                       child->here ? "names another parent" : "is not there");
            }
        }
    }
}

void checker_step(struct checker *c)
{
    for (uint32_t i = 0; i < c->run_count; i++) {
        struct seen_run *r = &c->runs[i];
        if (r->changed && r->here) {
            r->changed = false;
            judge_children(c, r);
            judge_coverage(c, r);
        }
    }
}

/* --- the ledger --- */

void ledger_record(struct checker *c, uint32_t tenant, const rf_lease *lease)
{
    struct seen *s = shard_of(c, tenant, lease->run, lease->shard);
    if (lease->fence < s->greatest) {
        report(c, LEDGER_STALE,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": recorded under %" PRIu64
               " after %" PRIu64 " was granted",
               tenant, lease->run, lease->shard, lease->fence, s->greatest);
    }
    for (uint32_t i = s->row_count; i > 0; i--) {
        if (s->rows[i - 1].fence == lease->fence) {
            if (s->rows[i - 1].final) {
                report(c, LEDGER_TWICE,
                       "tenant %u run %" PRIu64 " shard %" PRIx64 ": recorded twice under %" PRIu64,
                       tenant, lease->run, lease->shard, lease->fence);
            }
            return; /* an intention is written again: the same row */
        }
    }
    if (s->ended) {
        report(c, LEDGER_LATE,
               "tenant %u run %" PRIu64 " shard %" PRIx64 ": recorded after its end", tenant,
               lease->run, lease->shard);
    }
    s->rows = grown(s->rows, &s->row_room, s->row_count + 1, sizeof(*s->rows));
    s->rows[s->row_count++] = (struct row){.fence = lease->fence};
}
