#include "verify.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "admit.h"
#include "directory.h"
#include "index.h"
#include "lock.h"
#include "log.h"
#include "point.h"
#include "record.h"
#include "recover.h"
#include "slab.h"
#include "snapshot.h"
#include "sweep.h"

#define ATTEMPTS  8u
#define SCALE_MAX 8u
#define KEPT      1000u /* differences that are told one by one; all are counted */

#define LOAD(word) atomic_load_explicit(&(word), memory_order_acquire)

struct comparison {
    const struct rf_map *live;
    const struct rf_map *shadow;
    const struct rf_replay *replay;
    rf_verification *tally;
    char (*words)[192];
    uint64_t kept;

    /* what the live region's records refer to */
    uint64_t blocks, extents, leaves, shards, runs;
    bool purging; /* a run is being taken apart */
};

static void differ(struct comparison *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void differ(struct comparison *c, const char *format, ...)
{
    if (c->kept < KEPT) {
        va_list args;
        va_start(args, format);
        vsnprintf(c->words[c->kept++], sizeof(c->words[0]), format, args);
        va_end(args);
    }
    c->tally->differences++;
}

/* --- one shard --- */

static const char *compare_states(const struct rf_shard_state *a, const struct rf_shard_state *b)
{
    return a->fence != b->fence                                        ? "fence"
           : a->status != b->status                                    ? "status"
           : a->park_reason != b->park_reason                          ? "park reason"
           : a->semantics != b->semantics                              ? "semantics"
           : a->flags != b->flags                                      ? "lease or parent"
           : a->parent != b->parent                                    ? "parent"
           : a->attempts != b->attempts                                ? "attempts"
           : a->spawned_count != b->spawned_count                      ? "spawned count"
           : a->ring_count != b->ring_count                            ? "ring count"
           : a->ring_next != b->ring_next                              ? "ring position"
           : (a->flags & RF_SHARD_LEASED) != 0 && a->owner != b->owner ? "owner"
           : (a->flags & RF_SHARD_LEASED) != 0 && a->deadline < b->deadline
               ? "deadline, which is earlier than in the log"
               : NULL;
}

static bool rings_equal(const struct rf_rec *a, const struct rf_rec *b)
{
    for (uint32_t i = 0; i < a->body.state.ring_count; i++) {
        uint32_t at = (a->body.state.ring_next + RF_SHARD_RING - 1u - i) % RF_SHARD_RING;
        if (a->ring.op[at] != b->ring.op[at] || a->ring.hash[at] != b->ring.hash[at] ||
            a->ring.executed_at[at] != b->ring.executed_at[at] ||
            a->ring.kind[at] != b->ring.kind[at] || a->ring.result[at] != b->ring.result[at]) {
            return false;
        }
    }
    return true;
}

static bool optional_equal(rf_bytes a, rf_bytes b)
{
    return (a.data == NULL) == (b.data == NULL) && rf_bytes_equal(a, b);
}

static const char *compare_bytes(const struct comparison *c, const struct rf_rec *a,
                                 const struct rf_rec *b, const struct rf_runrec *run)
{
    struct rf_shard x, y;
    if (rf_rec_view(c->live, a, run, &run->tenant, &x, NULL) != RF_OK) {
        return "bytes, which can't be read";
    }
    if (rf_rec_view(c->shadow, b, run, &run->tenant, &y, NULL) != RF_OK) {
        return "bytes of the replay, which can't be read";
    }
    if (!rf_bytes_equal(x.spec.start, y.spec.start) || !rf_bytes_equal(x.spec.end, y.spec.end) ||
        !rf_bytes_equal(x.spec.metadata, y.spec.metadata)) {
        return "spec";
    }
    if (!optional_equal(x.cursor.key, y.cursor.key) ||
        !optional_equal(x.cursor.token, y.cursor.token)) {
        return "cursor";
    }
    size_t spawned = x.state->spawned_count * sizeof(uint64_t);
    return spawned != 0 && memcmp(x.spawned, y.spawned, spawned) != 0 ? "spawned list" : NULL;
}

static uint64_t parent_position(const struct rf_map *map, const struct rf_rec *rec)
{
    const struct rf_rec *parent =
        rec->parent_slot == 0 ? NULL : rf_rec_at(map, rec->parent_slot - 1);
    return rec->parent_slot == 0 ? 0 : parent == NULL ? UINT64_MAX : 1ull + parent->position;
}

static const char *compare_records(const struct comparison *c, const struct rf_rec *a,
                                   const struct rf_rec *b, const struct rf_runrec *run)
{
    if (a->shard != b->shard) {
        return "id";
    }
    if (a->born != b->born || parent_position(c->live, a) != parent_position(c->shadow, b)) {
        return "birth";
    }
    if (a->body.version != b->body.version) {
        return "version";
    }
    if (a->body.epoch != b->body.epoch || a->body.stamp != b->body.stamp) {
        return "epoch or stamp";
    }
    const char *what = compare_states(&a->body.state, &b->body.state);
    if (what == NULL && !rings_equal(a, b)) {
        what = "ring";
    }
    return what != NULL ? what : compare_bytes(c, a, b, run);
}

/* The live record against what the region says about it elsewhere. */
static const char *check_standing(const struct rf_map *map, const struct rf_rec *rec, uint32_t slot)
{
    const struct rf_extent *extent = rf_extent_at(map, slot / RF_EXTENT_SHARDS);
    const struct rf_shard_state *s = &rec->body.state;
    uint32_t i = slot % RF_EXTENT_SHARDS;
    bool leased = (s->flags & RF_SHARD_LEASED) != 0;
    bool bit = (LOAD(extent->claimable) >> i & 1) != 0;
    if (bit != (rec->body.listed != 0)) {
        return "claimable bit";
    }
    if (!leased && (rec->body.listed != 0) != (s->status == RF_SHARD_ACTIVE)) {
        return "listing";
    }
    if (LOAD(extent->bound[i]) != rec->body.bound || (!leased && rec->body.bound != 0)) {
        return "binding";
    }
    if (leased && !bit && LOAD(extent->deadline[i]) > s->deadline) {
        return "deadline hint, which is late";
    }
    if (!rf_lock_is_free(map, &rec->lock) || (LOAD(rec->seq) & 1u) != 0) {
        return "lock";
    }
    uint64_t hash = rf_index_hash_shard(map, rec->run_uid, rec->shard);
    uint32_t at = 0, found, times = 0;
    while (rf_index_next_shard(map, hash, &at, &found)) {
        times += found == slot;
    }
    /* Twice, if both of its buckets are one; that there is no other cell is seen by counting them. */
    return times == 0 ? "index entry" : NULL;
}

/* --- one run --- */

static const char *compare_rings(const struct rf_run_body *a, const struct rf_run_body *b)
{
    if (a->ring_count != b->ring_count) {
        return "ring count";
    }
    for (uint32_t i = 0; i < a->ring_count; i++) {
        uint32_t x = (a->ring_next + RF_RUN_RING - 1u - i) % RF_RUN_RING;
        uint32_t y = (b->ring_next + RF_RUN_RING - 1u - i) % RF_RUN_RING;
        if (a->ring.op[x] != b->ring.op[y] || a->ring.hash[x] != b->ring.hash[y] ||
            a->ring.executed_at[x] != b->ring.executed_at[y] ||
            a->ring.kind[x] != b->ring.kind[y] || a->ring.result[x] != b->ring.result[y]) {
            return "ring";
        }
    }
    return NULL;
}

static const char *compare_run_records(const struct rf_runrec *a, const struct rf_runrec *b)
{
    const struct rf_run_body *x = &a->body, *y = &b->body;
    if (a->run != b->run || !rf_tenant_equal(&a->tenant, &b->tenant)) {
        return "name";
    }
    if (a->lease_duration != b->lease_duration || a->has_max_retries != b->has_max_retries ||
        a->max_retries != b->max_retries || a->semantics != b->semantics) {
        return "configuration";
    }
    if (x->version != y->version) {
        return "version";
    }
    if (x->status != y->status || LOAD(a->status) != x->status) {
        return "status";
    }
    if (x->created_at != y->created_at || x->completed_at != y->completed_at) {
        return "times";
    }
    if (x->root_count != y->root_count) {
        return "root count";
    }
    if (LOAD(a->count) != LOAD(b->count) || LOAD(a->done) != LOAD(b->done) ||
        LOAD(a->split) != LOAD(b->split) || LOAD(a->parked) != LOAD(b->parked) ||
        LOAD(a->pending) != 0) {
        return "counts";
    }
    return compare_rings(x, y);
}

/* Bits and earliest deadlines of the extents, the leaves and the run. */
static void check_summaries(struct comparison *c, const struct rf_runrec *run, uint64_t uid)
{
    uint64_t count = LOAD(run->count), bits = 0;
    uint64_t extents = (count + RF_EXTENT_SHARDS - 1) / RF_EXTENT_SHARDS;
    uint64_t earliest = RF_NO_DEADLINE;
    bool top = false;
    for (uint64_t j = 0; j < extents; j++) {
        const struct rf_leaf *leaf = rf_dir_leaf(c->live, run, j);
        uint32_t slot = rf_dir_slot(c->live, run, j * RF_EXTENT_SHARDS);
        const struct rf_extent *extent = rf_extent_at(c->live, slot / RF_EXTENT_SHARDS);
        uint64_t k = j % RF_LEAF_EXTENTS, l = j / RF_LEAF_EXTENTS;
        uint64_t rest = count - j * RF_EXTENT_SHARDS, word = LOAD(extent->claimable);
        if (rest < RF_EXTENT_SHARDS && word >> rest != 0) {
            differ(c, "run uid %" PRIu64 ": claimable bits behind its last shard", uid);
        }
        if ((LOAD(leaf->summary[k / 64]) >> k % 64 & 1) != (word != 0)) {
            differ(c, "run uid %" PRIu64 ": summary of extent %" PRIu64, uid, j);
        }
        uint64_t here = RF_NO_DEADLINE;
        for (uint32_t i = 0; i < RF_EXTENT_SHARDS; i++) {
            uint64_t d = LOAD(extent->deadline[i]);
            here = d < here ? d : here;
        }
        if (LOAD(leaf->earliest[k]) > here) {
            differ(c, "run uid %" PRIu64 ": earliest deadline of extent %" PRIu64 " is late", uid,
                   j);
        }
        earliest = here < earliest ? here : earliest;
        bits += (uint64_t)__builtin_popcountll(word);
        top = (k == 0 ? false : top) || word != 0;
        if ((k == RF_LEAF_EXTENTS - 1 || j + 1 == extents) &&
            (LOAD(run->top[l / 64]) >> l % 64 & 1) != (uint64_t)top) {
            differ(c, "run uid %" PRIu64 ": summary of leaf %" PRIu64, uid, l);
        }
    }
    if (bits != LOAD(run->available)) {
        differ(c, "run uid %" PRIu64 ": %" PRIu64 " claimable bits, %" PRIu64 " available", uid,
               bits, LOAD(run->available));
    }
    if (LOAD(run->earliest) > earliest) {
        differ(c, "run uid %" PRIu64 ": its earliest deadline is late", uid);
    }
    c->extents += extents;
    c->leaves += (extents + RF_LEAF_EXTENTS - 1) / RF_LEAF_EXTENTS;
}

static void compare_run(struct comparison *c, uint32_t slot, uint64_t uid)
{
    const struct rf_runrec *run = rf_run_at(c->live, slot);
    uint32_t other = rf_replay_find(c->replay, uid);
    if (other == RF_NO_SLOT) {
        differ(c, "run uid %" PRIu64 " is not in the log", uid);
        return;
    }
    const struct rf_runrec *replayed = rf_run_at(c->shadow, other);
    const char *what = compare_run_records(run, replayed);
    if (what != NULL) {
        differ(c, "run uid %" PRIu64 ": %s", uid, what);
    }
    uint64_t hash = rf_index_hash_run(c->live, &run->tenant, run->run);
    uint32_t at = 0, found, times = 0;
    while (rf_index_next_run(c->live, hash, &at, &found)) {
        times += found == slot;
    }
    if (times == 0) {
        differ(c, "run uid %" PRIu64 ": index entry", uid);
    }
    uint64_t count = LOAD(run->count), both = LOAD(replayed->count);
    for (uint64_t p = 0; p < count; p++) {
        uint32_t a = rf_dir_slot(c->live, run, p);
        const struct rf_rec *rec = rf_rec_at(c->live, a);
        if (rec == NULL || rec->run_uid != uid || rec->position != p) {
            differ(c, "run uid %" PRIu64 ", position %" PRIu64 ": leads to no shard", uid, p);
            continue;
        }
        what = check_standing(c->live, rec, a);
        if (what == NULL && p < both) {
            what = compare_records(c, rec,
                                   rf_rec_at(c->shadow, rf_dir_slot(c->shadow, replayed, p)), run);
        }
        if (what != NULL) {
            differ(c, "run uid %" PRIu64 ", position %" PRIu64 ": %s", uid, p, what);
        }
        c->blocks += (uint64_t)(rec->body.cursor_ref.block != 0) + (rec->body.spec_ref.block != 0) +
                     (rec->body.spawned_ref.block != 0);
    }
    c->shards += count;
    check_summaries(c, run, uid);
}

/* --- the whole --- */

static uint64_t index_cells(const struct rf_map *map, const struct rf_section *table, bool grows)
{
    uint64_t used = 0;
    for (uint64_t b = 0; b < table->count; b++) {
        if (grows && !rf_region_index_present(map, b)) {
            continue;
        }
        const struct rf_bucket *bucket = rf_section_at(map, table, b);
        for (uint32_t i = 0; i < RF_BUCKET_CELLS; i++) {
            used += LOAD(bucket->cell[i]) != 0;
        }
    }
    return used;
}

static void compare_header(struct comparison *c)
{
    const struct rf_header *a = c->live->header, *b = c->shadow->header;
    uint64_t floor = LOAD(b->fence_floor), least = a->incarnation << 40;
    floor = floor > least ? floor : least;
    if (LOAD(a->fence_floor) != floor) {
        differ(c, "fence floor %" PRIu64 ", by the log %" PRIu64, LOAD(a->fence_floor), floor);
    }
    if (LOAD(a->next_uid) < LOAD(b->next_uid)) {
        differ(c, "the next uid was given away already");
    }
    if (c->purging) {
        return; /* the room of a run that goes away is nobody's */
    }
    uint64_t shard_cells = index_cells(c->live, &a->shard_index, true);
    uint64_t run_cells = index_cells(c->live, &a->run_index, false);
    if (shard_cells != c->shards || run_cells != c->runs) {
        differ(c,
               "index entries: %" PRIu64 " for %" PRIu64 " shards, %" PRIu64 " for %" PRIu64
               " runs",
               shard_cells, c->shards, run_cells, c->runs);
    }
    uint64_t blocks = rf_slab_used(c->live), extents = rf_extents_used(c->live),
             leaves = rf_leaves_used(c->live);
    if (blocks != c->blocks || extents != c->extents || leaves != c->leaves) {
        differ(c,
               "taken and referred to: blocks %" PRIu64 " %" PRIu64 ", extents %" PRIu64 " %" PRIu64
               ", leaves %" PRIu64 " %" PRIu64,
               blocks, c->blocks, extents, c->extents, leaves, c->leaves);
    }
}

static void compare(struct comparison *c)
{
    uint32_t used = LOAD(c->live->header->runs_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        const struct rf_runrec *run = rf_run_at(c->live, slot);
        uint64_t uid = LOAD(run->live);
        if (uid != 0) {
            c->runs++;
            compare_run(c, slot, uid);
        } else if (LOAD(run->tag) != 0) {
            c->purging = true;
        }
    }
    uint64_t replayed = rf_replay_tally(c->replay).runs;
    if (replayed > c->runs) {
        differ(c, "%" PRIu64 " runs of the log are not there", replayed - c->runs);
    }
    compare_header(c);
    c->tally->runs = c->runs;
    c->tally->shards = c->shards;
}

/* --- a quiet moment --- */

/* Nobody is in the middle of an operation. */
static bool at_rest(const struct rf_map *map)
{
    uint32_t used = LOAD(map->header->members_used);
    for (uint32_t slot = 0; slot < used; slot++) {
        if (rf_slot_was_used(map, slot) &&
            RF_DESC_STATE(LOAD(rf_slot_at(map, slot)->desc.state)) != RF_DESC_IDLE) {
            return false;
        }
    }
    return true;
}

static rf_status replay_beside(struct rf_handle *h, uint64_t until, struct rf_map *shadow,
                               struct rf_replay **replay, struct rf_recovered *recovered,
                               rf_detail *detail)
{
    struct rf_disk *disk = rf_logger_disk(h->actor.logger);
    rf_status status = RF_OK;
    for (uint64_t scale = 1; scale <= SCALE_MAX; scale *= 2) {
        detail->os_error = 0;
        status = rf_region_shadow(h->map, scale, shadow, detail);
        if (status != RF_OK) {
            return status;
        }
        status = rf_recover_state(shadow, disk, h->map->dir_fd, true, until, RF_LEASES_KEEP,
                                  recovered, replay, detail);
        if (status == RF_OK) {
            return RF_OK;
        }
        if (*replay != NULL) {
            rf_replay_free(*replay);
        }
        rf_region_shadow_drop(shadow);
        if (status != RF_RESOURCE_EXHAUSTED || detail->os_error != 0) {
            break;
        }
    }
    return status;
}

/* --- what is kept --- */

#define SNAPSHOTS 16u

/* Every batch from an epoch on. */
static rf_status walk(struct rf_handle *h, uint64_t from, uint64_t until,
                      const struct rf_snapshot_header *snapshots, unsigned count, rf_detail *detail)
{
    const struct rf_header *head = h->map->header;
    struct rf_log_reader *reader;
    struct rf_log_batch batch = {0};
    bool end = false;
    rf_status status = rf_log_reader_open(rf_logger_disk(h->actor.logger), head->segment_bytes,
                                          head->store_id, &reader, detail);
    if (status != RF_OK) {
        return status;
    }
    status = rf_log_seek(reader, from, detail);
    while (status == RF_OK && !end && batch.header.epoch < until) {
        status = rf_log_next(reader, &batch, &end, detail);
        for (unsigned i = 0; status == RF_OK && !end && i < count; i++) {
            status = rf_recover_is_followed(&snapshots[i], &batch.header, detail);
        }
    }
    if (status == RF_OK && end) {
        status = rf_refuse(detail, RF_CORRUPT, 0,
                           "the log ends before epoch %" PRIu64 ", which was written", until);
    }
    rf_log_reader_close(reader);
    return status;
}

/* The epoch of the second newest good snapshot, whose log is kept: an older one may be there without, since a power cut
 * does not keep the order in which files were removed. 0: there are not two. */
static uint64_t second_of(const struct rf_snapshot_header *snapshots, unsigned count,
                          uint64_t until)
{
    unsigned seen = 0;
    for (unsigned i = 0; i < count; i++) {
        seen += snapshots[i].epoch <= until;
        if (seen == 2) {
            return snapshots[i].epoch;
        }
    }
    return 0;
}

/* What a cold open would not read today, but may have to when something else is damaged: all snapshots, and the log
 * from the second good one's epoch on (all of it, if there were not two yet). Every failure is a difference. */
static rf_status check_kept(struct rf_handle *h, uint64_t until, struct comparison *c,
                            rf_detail *detail)
{
    const struct rf_map *map = h->map;
    uint64_t epochs[SNAPSHOTS + 1];
    unsigned count, good = 0;
    struct rf_snapshot_header headers[SNAPSHOTS];
    rf_detail found = {0}, last = {0};
    rf_status status =
        rf_snapshot_list(rf_logger_disk(h->actor.logger), epochs, SNAPSHOTS, &count, &found);
    for (unsigned i = 0; status == RF_OK && i < count; i++) {
        found = (rf_detail){0};
        status = rf_snapshot_check(map->dir_fd, epochs[i], map->header->store_id, &headers[good],
                                   &found);
        good += status == RF_OK;
        if (status != RF_OK && status != RF_RESOURCE_EXHAUSTED) {
            differ(c, "%s", found.where);
            status = RF_OK;
        }
    }
    unsigned two = count;
    if (count < 2) {
        epochs[count++] = 1;
    }
    bool whole = false;
    uint64_t second = second_of(headers, good, until);
    for (unsigned i = count; status == RF_OK && !whole && i-- > 0;) {
        if (epochs[i] > until || epochs[i] < second) {
            continue; /* of somebody else's: told above; or not kept any more */
        }
        found = (rf_detail){0};
        status = walk(h, epochs[i], until, headers, good, &found);
        whole = status == RF_OK;
        if (status == RF_RESOURCE_EXHAUSTED) {
            break;
        }
        /* A store that began as a copy has no log before its only snapshot. */
        bool copy = status == RF_NOT_FOUND && two == 1 && i == 1;
        if (!whole && !copy && strcmp(found.where, last.where) != 0) {
            differ(c, "%s", found.where);
            last = found;
        }
        status = RF_OK;
    }
    RF_POINT("verify.kept");
    return status == RF_OK ? RF_OK : rf_refuse(detail, status, found.os_error, "%s", found.where);
}

/* *quiet: nothing happened meanwhile, so that what was found counts. */
static rf_status attempt(struct rf_handle *h, struct comparison *c, bool *quiet, rf_detail *detail)
{
    struct rf_map *map = h->map;
    struct rf_map shadow;
    struct rf_replay *replay = NULL;
    struct rf_recovered recovered;
    *quiet = false;
    rf_sweep_all(&h->actor, rf_handle_now(h));
    uint64_t before = rf_log_activity(map);
    if (!at_rest(map)) {
        return RF_OK;
    }
    uint64_t until = LOAD(map->header->epoch);
    rf_status status = rf_log_wait(h->actor.logger, until, detail);
    if (status == RF_OK) {
        status = replay_beside(h, until, &shadow, &replay, &recovered, detail);
    }
    if (status == RF_CORRUPT) {
        check_kept(h, until, c, NULL); /* the rest of it */
        return status;
    }
    if (status != RF_OK) {
        return status;
    }
    c->shadow = &shadow;
    c->replay = replay;
    c->tally->batches = recovered.tally.batches;
    c->tally->records = recovered.tally.records;
    RF_POINT("verify.replayed");
    compare(c);
    *quiet = at_rest(map) && rf_log_activity(map) == before;
    rf_replay_free(replay);
    rf_region_shadow_drop(&shadow);
    return *quiet ? check_kept(h, until, c, detail) : RF_OK;
}

rf_status rf_shm_verify(rf_store *store, rf_visit_difference *visit, void *context,
                        rf_verification *verification, rf_detail *detail)
{
    struct rf_handle *h = rf_handle_of(store);
    rf_detail local = {0};
    detail = detail != NULL ? detail : &local;
    *verification = (rf_verification){0};
    if (h->map->header->sealing == 0 || h->store.read_only) {
        return rf_refuse(detail, RF_UNSUPPORTED, 0, "verifying a %s",
                         h->store.read_only ? "read-only handle" : "volatile store");
    }
    char(*words)[192] = malloc(KEPT * sizeof(*words));
    if (words == NULL) {
        return rf_refuse(detail, RF_RESOURCE_EXHAUSTED, ENOMEM, "memory");
    }
    /* Nobody removes segments or snapshots meanwhile. */
    rf_status status = RF_BUSY;
    bool quiet = false;
    for (unsigned i = 0; i < ATTEMPTS && !quiet; i++) {
        struct comparison c = {.live = h->map, .tally = verification, .words = words};
        *verification = (rf_verification){0};
        status = rf_snapshotter_enter(&h->actor, detail);
        if (status == RF_OK) {
            rf_snapshotter_keep(&h->actor);
            status = attempt(h, &c, &quiet, detail);
            rf_snapshotter_leave(&h->actor);
        }
        if ((status == RF_OK && quiet) || status == RF_CORRUPT) {
            for (uint64_t k = 0; k < c.kept; k++) {
                visit(context, words[k]);
            }
        }
        if (status != RF_OK && status != RF_BUSY) {
            break;
        }
        if (!quiet) {
            usleep(20000u << i);
        }
    }
    free(words);
    if (status == RF_OK && !quiet) {
        status = rf_refuse(detail, RF_BUSY, 0, "others kept changing the store");
    }
    return status;
}
