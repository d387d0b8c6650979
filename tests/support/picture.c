#include "picture.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "bytes.h"

static void say(struct picture *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct picture *p, const char *format, ...)
{
    if (p->room - p->len < 512) {
        p->room = p->room * 2 + 4096;
        p->text = realloc(p->text, p->room);
        if (p->text == NULL) {
            abort();
        }
    }
    va_list args;
    va_start(args, format);
    p->len += (size_t)vsnprintf(p->text + p->len, p->room - p->len, format, args);
    va_end(args);
}

static void blame(struct picture *p, uint64_t shard, const char *rule)
{
    if (p->broken[0] == 0) {
        snprintf(p->broken, sizeof(p->broken), "shard %016" PRIx64 ": %s", shard, rule);
    }
}

static void say_bytes(struct picture *p, const char *name, rf_bytes b)
{
    if (b.data == NULL) {
        say(p, " %s=none", name);
        return;
    }
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < b.len; i++) {
        hash = (hash ^ ((const uint8_t *)b.data)[i]) * 0x100000001b3u;
    }
    say(p, " %s=%zu:%08x", name, b.len, (unsigned)(hash ^ hash >> 32));
}

static void say_ring(struct picture *p, const rf_ring_entry *ring, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        say(p, " (%" PRIx64 " %u %u @%" PRIu64 ")", ring[i].op, ring[i].kind, ring[i].result,
            ring[i].executed_at);
    }
}

/* --- one shard --- */

struct gather {
    struct picture *picture;
    uint64_t floor;
    bool versions;
    bool peeking; /* what is read twice may differ, and may be busy */
    rf_store *store;
    const rf_tenant *tenant;
    uint64_t run;
    uint64_t now;
    uint64_t counted[4]; /* by status */
    uint64_t available;
    uint64_t total;
    uint64_t spawned; /* ids named by split shards and residual parents */
    uint64_t with_parent;
    bool ranged; /* a range was seen; its end: */
    uint8_t end[RF_KEY_MAX];
    size_t end_len;
    uint64_t gaps;
};

static uint64_t relative(uint64_t fence, uint64_t floor)
{
    return fence <= 1 || fence <= floor ? fence : fence - (floor > 1 ? floor : 1) + 1;
}

static void say_shard(struct picture *p, const rf_shard_info *s, uint64_t floor, bool versions)
{
    say(p, "shard %016" PRIx64 " status=%d reason=%d/%d semantics=%d", s->shard, s->status,
        s->has_reason, s->has_reason ? (int)s->reason : -1, s->semantics);
    say_bytes(p, "start", s->spec.start);
    say_bytes(p, "end", s->spec.end);
    say_bytes(p, "metadata", s->spec.metadata);
    say_bytes(p, "key", s->cursor.key);
    say_bytes(p, "token", s->cursor.token);
    say(p, " leased=%d owner=%" PRIu64 " deadline=%" PRIu64 " fence=%" PRIu64, s->leased,
        s->leased ? s->owner : 0, s->leased ? s->deadline : 0, relative(s->fence, floor));
    say(p, " parent=%d/%" PRIx64 " attempts=%u version=%" PRIu64, s->has_parent, s->parent,
        s->attempts, versions ? s->version : 0);
    say(p, " spawned=%u:", s->spawned_count);
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        say(p, " %" PRIx64, s->spawned[i]);
    }
    say(p, " ring:");
    say_ring(p, s->ring, s->ring_count);
    say(p, "\n");
}

static void judge_shard(struct picture *p, const rf_shard_info *s)
{
    rf_bytes key = s->cursor.key;
    bool derived = (s->shard & RF_DERIVED_BIT) != 0;
    if (key.data != NULL && (rf_bytes_compare(key, s->spec.start) < 0 ||
                             (s->spec.end.len != 0 && rf_bytes_compare(key, s->spec.end) >= 0))) {
        blame(p, s->shard, "S6: the cursor is outside the range");
    }
    if (s->has_reason != (s->status == RF_SHARD_PARKED)) {
        blame(p, s->shard, "S4: a park reason without parking, or the reverse");
    }
    if (s->leased && s->status != RF_SHARD_ACTIVE) {
        blame(p, s->shard, "S4: terminal and leased");
    }
    if (s->fence == 0 || s->has_parent != derived ||
        (s->status == RF_SHARD_SPLIT && s->spawned_count == 0)) {
        blame(p, s->shard, "S4: fence, parent or children");
    }
    for (uint32_t i = 0; i < s->ring_count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (s->ring[i].op == s->ring[j].op) {
                blame(p, s->shard, "S4: an op id twice in the ring");
            }
        }
    }
}

/* The ranges of the tests' runs follow one another without gaps, before and after every split. */
static void judge_range(struct gather *g, const rf_shard_info *s)
{
    if (s->status == RF_SHARD_SPLIT) {
        return;
    }
    if (g->ranged && !rf_bytes_equal(rf_bytes_of(g->end, g->end_len), s->spec.start)) {
        g->gaps++;
    }
    g->ranged = true;
    g->end_len = s->spec.end.len;
    if (g->end_len != 0) {
        memcpy(g->end, s->spec.end.data, g->end_len);
    }
}

static void judge_children(struct gather *g, const rf_shard_info *s)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    for (uint32_t i = 0; i < s->spawned_count; i++) {
        rf_shard_info child;
        if (rf_get_shard(g->store, g->tenant, g->run, s->spawned[i], &child, scratch,
                         sizeof(scratch), NULL) != RF_OK) {
            blame(g->picture, s->shard, "S7: a child does not exist");
        } else if (!child.has_parent || child.parent != s->shard) {
            blame(g->picture, s->shard, "S7: a child does not name its parent");
        }
    }
}

/* The shard read by its id must be the one in the list. */
static void judge_alone(struct gather *g, const rf_shard_info *s, size_t from)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    struct picture alone = {0};
    rf_shard_info again;
    if (rf_get_shard(g->store, g->tenant, g->run, s->shard, &again, scratch, sizeof(scratch),
                     NULL) != RF_OK) {
        blame(g->picture, s->shard, "listed, and can't be read");
        return;
    }
    say_shard(&alone, &again, g->floor, g->versions);
    if (strcmp(alone.text, g->picture->text + from) != 0) {
        blame(g->picture, s->shard, "not the same in the list and alone");
    }
    picture_free(&alone);
}

static bool add_shard(void *context, const rf_shard_info *s)
{
    struct gather *g = context;
    struct picture *p = g->picture;
    size_t from = p->len;
    say_shard(p, s, g->floor, g->versions);
    judge_shard(p, s);
    judge_range(g, s);
    if (!g->peeking) {
        judge_children(g, s);
        judge_alone(g, s, from);
    }
    g->counted[s->status & 3]++;
    g->total++;
    g->available += s->status == RF_SHARD_ACTIVE && !(s->leased && g->now < s->deadline);
    g->spawned += s->spawned_count;
    g->with_parent += s->has_parent;
    p->highest_fence = s->fence > p->highest_fence ? s->fence : p->highest_fence;
    return true;
}

/* --- the run --- */

static void say_run(struct picture *p, const rf_run_info *r)
{
    say(p,
        "run status=%d created=%" PRIu64 " completed=%" PRIu64 " roots=%" PRIu64 " shards=%" PRIu64
        " done=%" PRIu64 " split=%" PRIu64 " parked=%" PRIu64,
        r->status, r->created_at, r->completed_at, r->root_count, r->shard_count, r->done, r->split,
        r->parked);
    say(p, " config=%" PRIu64 "/%d/%d/%u ring:", r->config.lease_duration, r->config.semantics,
        r->config.has_max_retries, r->config.max_retries);
    say_ring(p, r->ring, r->ring_count);
    say(p, "\n");
}

static void judge_run(struct gather *g, const rf_run_info *r, const rf_capacity *c)
{
    struct picture *p = g->picture;
    if (r->shard_count != g->total || r->done != g->counted[RF_SHARD_DONE] ||
        r->split != g->counted[RF_SHARD_SPLIT] || r->parked != g->counted[RF_SHARD_PARKED]) {
        blame(p, r->run, "the run's counts are not those of its shards");
    }
    if (c->available != g->available) {
        blame(p, r->run, "the capacity after a sweep is not a full scan's");
    }
    if (g->spawned != g->with_parent) {
        blame(p, r->run, "S7: children that no parent names");
    }
    if (g->gaps != 0) {
        blame(p, r->run, "S10: the ranges do not follow one another");
    }
}

static void say_progress(struct picture *p, const rf_progress *r, rf_bytes watermark)
{
    say(p,
        "progress total=%" PRIu64 " active=%" PRIu64 " done=%" PRIu64 " split=%" PRIu64
        " parked=%" PRIu64 " leased=%" PRIu64 " evaluation=%d",
        r->total, r->active, r->done, r->split, r->parked, r->leased, r->evaluation);
    say_bytes(p, "watermark", r->has_watermark ? watermark : rf_bytes_none());
    say(p, "\n");
}

static void say_capacity(struct picture *p, const rf_capacity *c)
{
    say(p, "capacity available=%" PRIu64 " earliest=%" PRIu64 " waiting=%" PRIu64 "\n",
        c->available, c->earliest_deadline, c->waiting);
}

static rf_status look_at_progress(struct picture *p, rf_store *store, const rf_tenant *tenant,
                                  uint64_t run, uint64_t now)
{
    static uint8_t watermark[RF_KEY_MAX];
    rf_progress r;
    rf_status status = rf_get_progress(store, now, tenant, run, &r, watermark, NULL);
    if (status == RF_OK) {
        say_progress(p, &r, rf_bytes_of(watermark, r.watermark_len));
    }
    return status;
}

rf_status picture_take(struct picture *p, rf_store *store, const rf_tenant *tenant, uint64_t run,
                       uint64_t now, uint64_t fence_floor, bool versions)
{
    struct gather g = {.picture = p,
                       .floor = fence_floor,
                       .versions = versions,
                       .store = store,
                       .tenant = tenant,
                       .run = run,
                       .now = now};
    rf_run_info info;
    rf_capacity capacity;
    *p = (struct picture){0};
    say(p, "picture\n");
    rf_status status = rf_get_run(store, tenant, run, &info, NULL);
    if (status == RF_RUN_NOT_FOUND) {
        say(p, "no run\n");
        return RF_OK;
    }
    if (status == RF_OK) {
        status = rf_sweep(store, now, tenant, run, NULL);
    }
    if (status == RF_OK) {
        say_run(p, &info);
        status = rf_list_shards(store, now, tenant, run, RF_LIST_ALL, add_shard, &g, NULL);
    }
    if (status == RF_OK) {
        status = look_at_progress(p, store, tenant, run, now);
    }
    if (status == RF_OK) {
        status = rf_get_capacity(store, tenant, run, &capacity, NULL);
    }
    if (status == RF_OK) {
        say_capacity(p, &capacity);
        judge_run(&g, &info, &capacity);
    }
    return status;
}

rf_status picture_peek(struct picture *p, rf_store *store, const rf_tenant *tenant, uint64_t run,
                       uint64_t now, uint64_t fence_floor)
{
    struct gather g = {.picture = p,
                       .floor = fence_floor,
                       .versions = true,
                       .peeking = true,
                       .store = store,
                       .tenant = tenant,
                       .run = run,
                       .now = now};
    rf_run_info info;
    *p = (struct picture){0};
    say(p, "picture\n");
    rf_status status = rf_get_run(store, tenant, run, &info, NULL);
    if (status == RF_OK) {
        say_run(p, &info);
        status = rf_list_shards(store, now, tenant, run, RF_LIST_ALL, add_shard, &g, NULL);
    }
    if (status == RF_RUN_NOT_FOUND) {
        say(p, "no run\n");
        return RF_OK;
    }
    if (status == RF_OK && g.gaps != 0) {
        blame(p, run, "S10: the ranges do not follow one another");
    }
    if (status == RF_OK && g.spawned != g.with_parent) {
        blame(p, run, "S7: a split was seen by halves");
    }
    return status;
}

void picture_draw(struct picture *p, const struct picture_facts *facts, uint64_t fence_floor)
{
    *p = (struct picture){0};
    say(p, "picture\n");
    if (facts == NULL) {
        say(p, "no run\n");
        return;
    }
    say_run(p, &facts->run);
    for (uint32_t i = 0; i < facts->count; i++) {
        say_shard(p, &facts->shards[i], fence_floor, false);
    }
    say_progress(p, &facts->progress, facts->watermark);
    say_capacity(p, &facts->capacity);
}

bool picture_is_of(const struct picture *p, const struct picture *a, const struct picture *b)
{
    for (const char *line = p->text; *line != 0; line += strcspn(line, "\n") + 1) {
        char *one = strndup(line, strcspn(line, "\n") + 1);
        if (one == NULL) {
            abort();
        }
        bool known = strstr(a->text, one) != NULL || strstr(b->text, one) != NULL;
        free(one);
        if (!known) {
            return false;
        }
    }
    return true;
}

void picture_free(struct picture *p)
{
    free(p->text);
    *p = (struct picture){0};
}

static size_t line_length(const char *s)
{
    return strcspn(s, "\n");
}

const char *picture_difference(const struct picture *a, const struct picture *b)
{
    static char words[4096];
    const char *x = a->text, *y = b->text;
    while (*x != 0 && *y != 0) {
        size_t n = line_length(x), m = line_length(y);
        if (n != m || memcmp(x, y, n) != 0) {
            break;
        }
        x += n + (x[n] != 0);
        y += m + (y[m] != 0);
    }
    snprintf(words, sizeof(words), "\n  %.*s\n  %.*s", (int)line_length(x), x, (int)line_length(y),
             y);
    return words;
}
