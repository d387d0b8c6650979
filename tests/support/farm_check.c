/* The farm's watcher and auditor. */
#include <inttypes.h>
#include <string.h>

#include "farm.h"

#define TABLE  32768u /* shards of a run that the watcher remembers */
#define FENCES (1u << 20)

/* What is known of a shard at some moment. */
struct seen {
    uint64_t shard;
    uint64_t made;
    uint64_t fence;
    uint64_t version;
    uint64_t key; /* 0: none */
    uint64_t start, end;
    uint64_t parent;
    uint64_t deadline;
    uint32_t spawned_at; /* where its children's ids begin in the picture's pool */
    uint32_t spawned_count;
    uint8_t status;
    bool has_parent;
    bool leased;
};

/* All shards of a run at one moment, sorted by start. */
struct picture {
    struct seen *shards;
    size_t count, room;
    uint64_t *pool;
    size_t pool_count, pool_room;
    uint32_t *by_id;
    size_t by_id_room;
};

static void *more(void *old, size_t *room, size_t need, size_t each)
{
    if (need <= *room) {
        return old;
    }
    *room = need * 2 + 64;
    void *grown = realloc(old, *room * each);
    CREW_CHECK(grown != NULL, "memory");
    return grown;
}

/* S4: what must hold in every record. */
static void check_record(const rf_shard_info *i)
{
    CREW_CHECK(i->has_reason == (i->status == RF_SHARD_PARKED), "S4: a reason, or none");
    CREW_CHECK(i->status == RF_SHARD_ACTIVE || !i->leased, "S4: terminal and leased");
    CREW_CHECK(i->fence >= 1, "S4: fence 0");
    CREW_CHECK(i->status != RF_SHARD_SPLIT || i->spawned_count != 0, "S4: split into nothing");
    CREW_CHECK(i->has_parent == ((i->shard & RF_DERIVED_BIT) != 0), "S4: parent iff derived");
    CREW_CHECK(i->ring_count <= RF_SHARD_RING, "S4: ring");
    for (uint32_t a = 0; a < i->ring_count; a++) {
        for (uint32_t b = a + 1; b < i->ring_count; b++) {
            CREW_CHECK(i->ring[a].op != i->ring[b].op, "S4: an op id twice");
        }
        CREW_CHECK(a == 0 || i->ring[a].executed_at >= i->ring[a - 1].executed_at, "S4: times");
    }
    for (uint32_t k = 0; k < i->spawned_count; k++) {
        CREW_CHECK((i->spawned[k] & RF_DERIVED_BIT) != 0, "S4: a spawned root");
    }
}

static bool take_picture(void *context, const rf_shard_info *i)
{
    struct picture *p = context;
    check_record(i);
    farm_check_cursor(i->cursor, "a list");
    p->shards = more(p->shards, &p->room, p->count + 1, sizeof(*p->shards));
    p->pool = more(p->pool, &p->pool_room, p->pool_count + i->spawned_count, sizeof(*p->pool));
    struct seen *s = &p->shards[p->count++];
    *s = (struct seen){.shard = i->shard,
                       .made = farm_made(i->spec.metadata),
                       .fence = i->fence,
                       .version = i->version,
                       .key = i->cursor.key.data == NULL ? 0 : farm_number(i->cursor.key),
                       .start = farm_number(i->spec.start),
                       .end = farm_number(i->spec.end),
                       .parent = i->parent,
                       .deadline = i->deadline,
                       .spawned_at = (uint32_t)p->pool_count,
                       .spawned_count = i->spawned_count,
                       .status = (uint8_t)i->status,
                       .has_parent = i->has_parent,
                       .leased = i->leased};
    if (i->spawned_count != 0) {
        memcpy(p->pool + p->pool_count, i->spawned, i->spawned_count * sizeof(uint64_t));
    }
    p->pool_count += i->spawned_count;
    CREW_CHECK(s->key == 0 || (s->key >= s->start && s->key < s->end),
               "S6: the cursor of shard %" PRIx64 " is outside", s->shard);
    return true;
}

static struct picture *sorting;
static int by_id(const void *a, const void *b)
{
    uint64_t x = sorting->shards[*(const uint32_t *)a].shard;
    uint64_t y = sorting->shards[*(const uint32_t *)b].shard;
    return (x > y) - (x < y);
}

static void index_picture(struct picture *p)
{
    p->by_id = more(p->by_id, &p->by_id_room, p->count, sizeof(*p->by_id));
    for (uint32_t i = 0; i < p->count; i++) {
        p->by_id[i] = i;
    }
    sorting = p;
    if (p->count != 0) {
        qsort(p->by_id, p->count, sizeof(*p->by_id), by_id);
    }
    for (size_t i = 1; i < p->count; i++) {
        CREW_CHECK(p->shards[p->by_id[i]].shard != p->shards[p->by_id[i - 1]].shard,
                   "shard %" PRIx64 " twice in one list", p->shards[p->by_id[i]].shard);
    }
}

static const struct seen *find_in(const struct picture *p, uint64_t shard)
{
    size_t low = 0, high = p->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        const struct seen *s = &p->shards[p->by_id[middle]];
        if (s->shard == shard) {
            return s;
        }
        if (s->shard < shard) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

/* S7: children exist and name their parent. */
static void check_families(const struct picture *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct seen *s = &p->shards[i];
        for (uint32_t k = 0; k < s->spawned_count; k++) {
            const struct seen *child = find_in(p, p->pool[s->spawned_at + k]);
            CREW_CHECK(child != NULL && child->has_parent && child->parent == s->shard,
                       "S7: child %u of %u of shard %" PRIx64 " (status %u) %s", k,
                       s->spawned_count, s->shard, s->status,
                       child == NULL ? "is not there" : "names another parent");
            CREW_CHECK(child->made == s->made, "S7: a child of another making");
        }
        CREW_CHECK(!s->has_parent || find_in(p, s->parent) != NULL, "S7: no parent");
    }
}

/* S10: root i covers [i << 32, (i + 1) << 32); what is not split covers the same, once. */
static void check_cover(const struct picture *p)
{
    uint64_t at = 0;
    bool root_there[FARM_IDS] = {false};
    for (size_t i = 0; i < p->count; i++) {
        const struct seen *s = &p->shards[i];
        if (!s->has_parent) {
            CREW_CHECK(s->shard < FARM_IDS, "a root %" PRIx64, s->shard);
            root_there[s->shard] = true;
        }
        if (s->status == RF_SHARD_SPLIT) {
            continue;
        }
        CREW_CHECK(s->start == at ||
                       ((s->start & 0xFFFFFFFFu) == 0 && s->start > at && (at & 0xFFFFFFFFu) == 0),
                   "S10: a gap or an overlap between %" PRIx64 " and %" PRIx64 " of shard %" PRIx64,
                   at, s->start, s->shard);
        for (uint64_t root = at >> 32; root < s->start >> 32; root++) {
            CREW_CHECK(root >= FARM_IDS || at == 0 || root < at >> 32 ||
                           (root == at >> 32 ? !root_there[root] : true),
                       "S10: root %" PRIu64 " is not covered", root);
        }
        at = s->end;
    }
    /* Every root, whenever it was met, lies in what is covered. */
    for (uint64_t root = 0; root < FARM_IDS; root++) {
        bool covered = false;
        for (size_t i = 0; root_there[root] && i < p->count && !covered; i++) {
            const struct seen *s = &p->shards[i];
            covered = s->status != RF_SHARD_SPLIT && s->start == root << 32;
        }
        CREW_CHECK(!root_there[root] || covered, "S10: root %" PRIu64 " is not covered", root);
    }
}

/* --- the watcher --- */

struct watcher {
    struct farm *farm;
    rf_store *store;
    rf_monitor *monitor;
    struct picture picture;
    struct seen *known[FARM_RUNS + 1]; /* tables of TABLE */
    uint32_t known_count[FARM_RUNS + 1];
    rf_run_info run_before[FARM_RUNS + 1];
    uint64_t *fences; /* hashes of (run, shard, fence) of grants seen as events */
    uint32_t fence_count;
};

/* S2, S3, S5: how a shard may change between two looks. */
static void check_change(uint32_t run, const struct seen *was, const struct seen *is)
{
    CREW_CHECK(is->version >= was->version, "a version went down");
    CREW_CHECK(is->fence >= was->fence,
               "S2: the fence of shard %" PRIx64 " of run %u went from %" PRIu64 " to %" PRIu64,
               is->shard, run, was->fence, is->fence);
    CREW_CHECK(is->key >= was->key, "S5: the key of shard %" PRIx64 " went down", is->shard);
    CREW_CHECK(is->spawned_count >= was->spawned_count, "spawned ids went away");
    if (was->status != is->status && was->status != RF_SHARD_ACTIVE) {
        CREW_CHECK(was->status == RF_SHARD_PARKED && is->fence > was->fence,
                   "S3: shard %" PRIx64 " of run %u went from status %u, fence %" PRIu64
                   " to %u, %" PRIu64,
                   is->shard, run, was->status, was->fence, is->status, is->fence);
    }
    if (was->version == is->version) {
        CREW_CHECK(was->status == is->status && was->fence == is->fence && was->key == is->key &&
                       was->start == is->start && was->end == is->end,
                   "shard %" PRIx64 " changed within a version", is->shard);
    }
    if (was->leased && is->leased && was->fence == is->fence) {
        CREW_CHECK(is->deadline >= was->deadline, "a deadline went back");
    }
}

static void compare(struct watcher *w, uint32_t run, const struct seen *is)
{
    struct seen *table = w->known[run];
    if (w->known_count[run] > TABLE / 2) {
        memset(table, 0, TABLE * sizeof(*table));
        w->known_count[run] = 0;
    }
    uint32_t at = (uint32_t)((is->shard * 0x9e3779b97f4a7c15u) >> 40) % TABLE;
    while (table[at].shard != 0 && table[at].shard != is->shard) {
        at = (at + 1) % TABLE;
    }
    if (table[at].shard == 0) {
        w->known_count[run]++;
    } else if (table[at].made == is->made) {
        check_change(run, &table[at], is);
    }
    table[at] = *is;
}

/* S8: a run that has ended stays as it is until it is purged. */
static void compare_run(struct watcher *w, uint32_t run, const rf_run_info *is)
{
    const rf_run_info *was = &w->run_before[run];
    bool same = was->run == run && was->created_at == is->created_at;
    if (same && was->status >= RF_RUN_DONE) {
        CREW_CHECK(is->status == was->status && is->completed_at == was->completed_at &&
                       is->ring_count == was->ring_count && is->root_count == was->root_count,
                   "S8: run %u changed after its end", run);
    }
    if (same) {
        CREW_CHECK(is->status >= was->status, "S8: run %u went from status %d to %d", run,
                   (int)was->status, (int)is->status);
        CREW_CHECK(is->shard_count >= was->shard_count, "run %u has lost shards", run);
    }
    CREW_CHECK(is->done + is->split + is->parked <= is->shard_count, "run %u counts too much", run);
    CREW_CHECK((is->completed_at != 0) == (is->status >= RF_RUN_DONE), "S4: run %u", run);
    w->run_before[run] = *is;
}

static void look_at_run(struct watcher *w, uint32_t run)
{
    rf_tenant tenant = farm_tenant(run);
    rf_run_info info;
    rf_detail detail = {0};
    struct picture *p = &w->picture;
    rf_status status = rf_get_run(w->store, &tenant, run, &info, &detail);
    if (status == RF_OK) {
        compare_run(w, run, &info);
        p->count = p->pool_count = 0;
        status = rf_list_shards(w->store, rf_now(w->store), &tenant, run, RF_LIST_ALL, take_picture,
                                p, &detail);
    }
    if (status == RF_RUN_NOT_FOUND || (status == RF_BUSY && w->farm->may_stop)) {
        return;
    }
    CREW_CHECK(status == RF_OK, "looking at run %u: status %d: %s", run, (int)status, detail.where);
    index_picture(p);
    check_families(p);
    check_cover(p);
    for (size_t i = 0; i < p->count; i++) {
        compare(w, run, &p->shards[i]);
    }
    atomic_fetch_add(&w->farm->scans, 1);
}

/* S11, as far as events are seen: every grant of a shard has a fence of its own. */
static void check_event(struct watcher *w, const rf_event *e)
{
    CREW_CHECK((unsigned)e->kind <= RF_EVENT_RUN_PURGED, "an event of kind %d", (int)e->kind);
    CREW_CHECK(e->run >= 1 && e->run <= FARM_RUNS, "an event of run %" PRIu64, e->run);
    if (e->kind != RF_EVENT_ACQUIRED && e->kind != RF_EVENT_UNPARKED) {
        return;
    }
    CREW_CHECK(e->fence > 1, "a grant with fence %" PRIu64, e->fence);
    if (w->fence_count > FENCES / 2) {
        memset(w->fences, 0, FENCES * sizeof(*w->fences));
        w->fence_count = 0;
    }
    struct rf_prng mix = {e->shard * 31 + e->run};
    mix.state = rf_prng_next(&mix) ^ e->fence;
    uint64_t hash = rf_prng_next(&mix) | 1;
    uint32_t at = (uint32_t)(hash >> 32) % FENCES;
    while (w->fences[at] != 0) {
        CREW_CHECK(w->fences[at] != hash,
                   "S11: shard %" PRIx64 " of run %" PRIu64
                   " was granted twice with fence %" PRIu64,
                   e->shard, e->run, e->fence);
        at = (at + 1) % FENCES;
    }
    w->fences[at] = hash;
    w->fence_count++;
}

static void read_events(struct watcher *w)
{
    rf_event events[256];
    size_t count = 0;
    uint64_t lost = 0;
    for (unsigned rounds = 0; rounds < 64; rounds++) {
        CREW_CHECK(rf_monitor_read(w->monitor, events, 256, &count, &lost) == RF_OK, "monitor");
        for (size_t i = 0; i < count; i++) {
            check_event(w, &events[i]);
        }
        atomic_fetch_add(&w->farm->events, count);
        atomic_fetch_add(&w->farm->events_lost, lost);
        if (count < 256) {
            break;
        }
    }
}

int farm_watch(struct farm *farm)
{
    struct watcher *w = calloc(1, sizeof(*w));
    CREW_CHECK(w != NULL, "memory");
    w->farm = farm;
    w->store = crew_open(farm->store, &(rf_options){.read_only = farm->read_only});
    CREW_CHECK(rf_monitor_create(w->store, &w->monitor) == RF_OK, "monitor");
    w->fences = calloc(FENCES, sizeof(*w->fences));
    for (uint32_t run = 1; run <= FARM_RUNS; run++) {
        w->known[run] = calloc(TABLE, sizeof(struct seen));
        CREW_CHECK(w->known[run] != NULL && w->fences != NULL, "memory");
    }
    while (!atomic_load(&farm->stop)) {
        for (uint32_t run = 1; run <= FARM_RUNS; run++) {
            look_at_run(w, run);
            read_events(w);
        }
    }
    for (uint32_t run = 1; run <= FARM_RUNS; run++) {
        free(w->known[run]);
    }
    free(w->picture.shards);
    free(w->picture.pool);
    free(w->picture.by_id);
    free(w->fences);
    rf_monitor_destroy(w->monitor);
    rf_close(w->store);
    free(w);
    return 0;
}

/* --- the auditor --- */

static int by_shard_and_fence(const void *a, const void *b)
{
    const struct farm_entry *x = a, *y = b;
    if (x->run != y->run) {
        return x->run < y->run ? -1 : 1;
    }
    if (x->shard != y->shard) {
        return x->shard < y->shard ? -1 : 1;
    }
    if (x->fence != y->fence) {
        return x->fence < y->fence ? -1 : 1;
    }
    return (x->before > y->before) - (x->before < y->before);
}

static struct farm_entry *gather_logs(struct farm *farm, size_t *count)
{
    size_t n = 0;
    for (uint32_t i = 0; i < farm->workers; i++) {
        n += atomic_load(&farm->logs[i]->count);
    }
    struct farm_entry *all = malloc((n + 1) * sizeof(*all));
    CREW_CHECK(all != NULL, "memory");
    n = 0;
    for (uint32_t i = 0; i < farm->workers; i++) {
        size_t here = atomic_load(&farm->logs[i]->count);
        memcpy(all + n, farm->logs[i]->entries, here * sizeof(*all));
        n += here;
    }
    qsort(all, n, sizeof(*all), by_shard_and_fence);
    *count = n;
    return all;
}

static bool same_shard(const struct farm_entry *a, const struct farm_entry *b)
{
    return a->run == b->run && a->shard == b->shard;
}

/* S11 and time: of two grants of a shard the one that came wholly after has the higher fence. What
 * an owner did under a fence lies behind the grant and before what came wholly after the next. */
static uint64_t check_fences(const struct farm_entry *all, size_t count)
{
    uint64_t grants = 0, latest_before = 0;
    const struct farm_entry *grant = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct farm_entry *e = &all[i];
        if (i == 0 || !same_shard(e, &all[i - 1])) {
            grant = NULL;
            latest_before = 0;
        }
        CREW_CHECK(e->after > latest_before,
                   "shard %" PRIx64 " of run %u: something with fence %" PRIu64
                   " ended before something with a lower one began",
                   e->shard, e->run, e->fence);
        latest_before = e->before > latest_before ? e->before : latest_before;
        if (e->kind == FARM_GRANT || e->kind == FARM_UNPARK) {
            CREW_CHECK(grant == NULL || grant->fence != e->fence,
                       "S11: shard %" PRIx64 " of run %u was granted twice with fence %" PRIu64,
                       e->shard, e->run, e->fence);
            grant = e;
            grants++;
        }
    }
    return grants;
}

static bool has_child(const struct picture *p, const struct seen *s, uint64_t child)
{
    for (uint32_t k = 0; k < s->spawned_count; k++) {
        if (p->pool[s->spawned_at + k] == child) {
            return true;
        }
    }
    return false;
}

/* What was acknowledged can be seen. */
static void check_entry(const struct picture *p, const struct farm_entry *e)
{
    const struct seen *s = find_in(p, e->shard);
    if (e->kind == FARM_UNPARK || s == NULL || s->made != e->made) {
        return; /* of an earlier making of the run */
    }
    CREW_CHECK(s->fence >= e->fence, "a fence was forgotten");
    CREW_CHECK(s->key >= e->key, "shard %" PRIx64 ": key %" PRIx64 " was forgotten", e->shard,
               e->key);
    switch (e->kind) {
    case FARM_COMPLETE:
        CREW_CHECK(s->status == RF_SHARD_DONE && s->key == e->key && s->fence == e->fence,
                   "shard %" PRIx64 " was completed, and has status %u", e->shard, s->status);
        break;
    case FARM_SPLIT:
        CREW_CHECK(s->status == RF_SHARD_SPLIT && has_child(p, s, e->child) && s->fence == e->fence,
                   "shard %" PRIx64 " was split, and has status %u", e->shard, s->status);
        break;
    case FARM_RESIDUAL:
        CREW_CHECK(has_child(p, s, e->child), "a residual was forgotten");
        break;
    case FARM_PARK:
        CREW_CHECK(s->fence > e->fence || s->status == RF_SHARD_PARKED, "a park was forgotten");
        break;
    case FARM_RELEASE:
        CREW_CHECK(s->fence > e->fence || !s->leased, "a release was forgotten");
        break;
    default:
        break;
    }
}

struct tally {
    uint64_t available, leased, earliest, done, split, parked, active;
};

static struct tally count_up(const struct picture *p, uint64_t now)
{
    struct tally t = {0};
    for (size_t i = 0; i < p->count; i++) {
        const struct seen *s = &p->shards[i];
        bool leased = s->leased && s->deadline > now;
        t.done += s->status == RF_SHARD_DONE;
        t.split += s->status == RF_SHARD_SPLIT;
        t.parked += s->status == RF_SHARD_PARKED;
        t.active += s->status == RF_SHARD_ACTIVE;
        t.leased += leased;
        t.available += s->status == RF_SHARD_ACTIVE && !leased;
        if (leased && (t.earliest == 0 || s->deadline < t.earliest)) {
            t.earliest = s->deadline;
        }
    }
    return t;
}

/* Counters against a full scan. */
static struct tally check_counters(rf_store *store, const struct picture *p, uint32_t run,
                                   uint64_t now)
{
    rf_tenant tenant = farm_tenant(run);
    rf_capacity c;
    rf_progress g;
    rf_run_info info;
    struct tally t = count_up(p, now);
    CREW_CHECK(rf_get_capacity(store, &tenant, run, &c, NULL) == RF_OK, "capacity");
    CREW_CHECK(rf_get_progress(store, now, &tenant, run, &g, NULL, NULL) == RF_OK, "progress");
    CREW_CHECK(rf_get_run(store, &tenant, run, &info, NULL) == RF_OK, "run");
    CREW_CHECK(c.available == t.available,
               "run %u: %" PRIu64 " available by the count, %" PRIu64 " by a scan", run,
               c.available, t.available);
    CREW_CHECK(c.waiting == 0, "run %u: %" PRIu64 " waiting, and nobody is", run, c.waiting);
    CREW_CHECK(c.earliest_deadline == t.earliest,
               "run %u: earliest deadline %" PRIu64 " against %" PRIu64, run, c.earliest_deadline,
               t.earliest);
    CREW_CHECK(g.total == p->count && g.active == t.active && g.done == t.done &&
                   g.split == t.split && g.parked == t.parked && g.leased == t.leased,
               "run %u: the progress is another than a scan's", run);
    CREW_CHECK(info.shard_count == p->count && info.done == t.done && info.split == t.split &&
                   info.parked == t.parked,
               "run %u: the counts are not a scan's: %" PRIu64 " done %" PRIu64 " split %" PRIu64
               " parked, against %" PRIu64 " %" PRIu64 " %" PRIu64,
               run, info.done, info.split, info.parked, t.done, t.split, t.parked);
    return t;
}

/* Everything that is available can be had by a claim: the bits are right. */
static void claim_all(rf_store *store, uint32_t run, uint64_t now, const struct tally *t)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_tenant tenant = farm_tenant(run);
    rf_run_info before, after;
    uint64_t granted = 0;
    CREW_CHECK(rf_get_run(store, &tenant, run, &before, NULL) == RF_OK, "run");
    for (;;) {
        rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
        rf_status status =
            rf_claim(store, now, &tenant, run, granted * 7, RF_BOUND, 0, &grant, NULL);
        if (status == RF_NONE_AVAILABLE) {
            break;
        }
        CREW_CHECK(status == RF_OK, "a claim of run %u answered %d", run, (int)status);
        granted++;
    }
    CREW_CHECK(rf_get_run(store, &tenant, run, &after, NULL) == RF_OK, "run");
    /* What was tried too often was parked instead. */
    uint64_t parked = after.parked - before.parked;
    CREW_CHECK(granted + parked == t->available,
               "run %u: %" PRIu64 " shards are available, %" PRIu64 " could be claimed", run,
               t->available, granted + parked);
}

static void audit_run(rf_store *store, uint32_t run, const struct farm_entry *all, size_t count,
                      struct picture *p)
{
    rf_tenant tenant = farm_tenant(run);
    rf_run_info info;
    if (rf_get_run(store, &tenant, run, &info, NULL) != RF_OK) {
        return;
    }
    uint64_t now = rf_now(store);
    p->count = p->pool_count = 0;
    CREW_CHECK(rf_sweep(store, now, &tenant, run, NULL) == RF_OK, "sweep");
    CREW_CHECK(rf_list_shards(store, now, &tenant, run, RF_LIST_ALL, take_picture, p, NULL) ==
                   RF_OK,
               "list");
    index_picture(p);
    check_families(p);
    check_cover(p);
    for (size_t i = 0; i < count; i++) {
        if (all[i].run == run) {
            check_entry(p, &all[i]);
        }
    }
    struct tally t = check_counters(store, p, run, now);
    if (info.status == RF_RUN_ACTIVE) {
        claim_all(store, run, now, &t);
    }
    if (info.status < RF_RUN_DONE) {
        CREW_CHECK(rf_cancel_run(store, now, &tenant, run, rf_new_op(store), NULL) == RF_OK,
                   "cancel");
    }
    CREW_CHECK(rf_purge_run(store, now, &tenant, run, NULL) == RF_OK, "purge");
}

static bool others_are_gone(void *context)
{
    rf_inspection i;
    rf_store *store = context;
    rf_tend(store, rf_now(store));
    return rf_inspect(store, &i, NULL) == RF_OK && i.members == 2 && i.dead_members == 0;
}

int farm_audit(struct farm *farm)
{
    size_t count = 0;
    struct farm_entry *all = gather_logs(farm, &count);
    struct picture picture = {0};
    rf_inspection i;
    uint64_t grants = check_fences(all, count);
    rf_store *store = crew_open(farm->store, NULL);
    CREW_CHECK(crew_until(others_are_gone, store, 10000),
               "the members of the dead are still there");
    CREW_CHECK(rf_inspect(store, &i, NULL) == RF_OK, "inspect");
    printf("%" PRIu64 " operations, %" PRIu64 " refusals, %zu entries, %" PRIu64 " grants, %" PRIu64
           " scans, %" PRIu64 " events (%" PRIu64 " lost)\n",
           i.operations, i.refusals, count, grants, (uint64_t)atomic_load(&farm->scans),
           (uint64_t)atomic_load(&farm->events), (uint64_t)atomic_load(&farm->events_lost));
    printf("%" PRIu64 " lock waits, %" PRIu64 " busy, %" PRIu64 " reaped, %" PRIu64
           " redone, %" PRIu64 " undone, %" PRIu64 " locks freed, %" PRIu64 " leases lost, %" PRIu64
           " expired, %" PRIu64 " reapers replaced\n",
           i.lock_waits, i.busy, i.reaped, i.redone, i.undone, i.locks_freed, i.leases_lost,
           i.leases_expired, i.reapers_replaced);
    for (uint32_t run = 1; run <= FARM_RUNS; run++) {
        audit_run(store, run, all, count, &picture);
    }
    CREW_CHECK(rf_inspect(store, &i, NULL) == RF_OK, "inspect");
    CREW_CHECK(i.runs == 0 && i.shards == 0 && i.extents == 0 && i.leaves == 0 && i.blocks == 0,
               "left over after purging: %" PRIu64 " runs %" PRIu64 " shards %" PRIu64
               " extents %" PRIu64 " leaves %" PRIu64 " blocks",
               i.runs, i.shards, i.extents, i.leaves, i.blocks);
    CREW_CHECK(count != 0 && grants != 0, "nothing happened");
    rf_close(store);
    free(picture.shards);
    free(picture.pool);
    free(picture.by_id);
    free(all);
    return 0;
}
