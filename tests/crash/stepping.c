#define _GNU_SOURCE
#include "stepping.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "box.h"
#include "handle.h"
#include "prng.h"
#include "reap.h"
#include "reference.h"
#include "store_trace.h"

#define WATCHDOG_S 60u

static uint64_t still_clock(void *context)
{
    (void)context;
    return SCENE_LOOK;
}

/* --- scenes that the killing at points has no need of --- */

static rf_options opening; /* how the player opens the store */

static rf_status act_open(struct play *play, rf_result *result)
{
    (void)result;
    return rf_open(play->name, &opening, &play->store, NULL);
}

static rf_status act_tend(struct play *play, rf_result *result)
{
    (void)result;
    return rf_tend(play->store, SCENE_LOOK);
}

/* Somebody who died with two leases in hand. */
static void make_dead_holder(struct play *play)
{
    rf_store *store;
    scene_by_name("checkpoint")->prepare(play);
    if (rf_open(play->name, &opening, &store, NULL) != RF_OK) {
        abort();
    }
    for (uint64_t shard = 1; shard <= 2; shard++) {
        if (rf_acquire(store, SCENE_BEGIN, &play->tenant, SCENE_RUN, shard, 9, RF_BOUND,
                       &play->grant, NULL) != RF_OK) {
            abort();
        }
    }
    struct rf_handle *h = rf_handle_of(store);
    rf_barrier(store, NULL);
    rf_declare_dead(h->map, h->actor.slot);
    /* The handle is left as it is: its process would be gone. The mapping is shared with ours. */
}

static rf_status act_flush(struct play *play, rf_result *result)
{
    rf_result mine = {0};
    result = result == NULL ? &mine : result;
    rf_cursor cursor = rf_cursor_with("k", "token");
    result->durability = RF_NOWAIT;
    rf_status status = rf_checkpoint(play->store, SCENE_NOW, &play->tenant, &play->lease, &cursor,
                                     SCENE_OP, result);
    rf_status flushed = rf_barrier(play->store, NULL);
    return status != RF_OK ? status : flushed;
}

static rf_status act_snapshot(struct play *play, rf_result *result)
{
    (void)result;
    return rf_snapshot(play->store, NULL);
}

/* Something to load, something to replay behind it, and a lease that is void afterwards. */
static void make_past(struct play *play)
{
    rf_cursor cursor = rf_cursor_with("k", "token");
    scene_by_name("checkpoint")->prepare(play);
    if (rf_snapshot(play->store, NULL) != RF_OK ||
        rf_acquire(play->store, SCENE_BEGIN, &play->tenant, SCENE_RUN, 2, 9, RF_DETACHED,
                   &play->grant, NULL) != RF_OK ||
        rf_checkpoint(play->store, SCENE_BEGIN, &play->tenant, &play->grant.lease, &cursor, 11,
                      NULL) != RF_OK) {
        abort();
    }
}

static struct scene more[6];
#define MORE_COUNT 6u

/* There is no region before: the operation makes one. */
static bool is_fresh(const struct scene *scene)
{
    return strcmp(scene->name, "open_cold") == 0 || strcmp(scene->name, "open_new") == 0;
}

static void make_more(void)
{
    more[0] = *scene_by_name("open");
    more[0].act = act_open;
    more[1] = (struct scene){.name = "reap_of_another",
                             .traits = SCENE_UNORDERED,
                             .prepare = make_dead_holder,
                             .act = act_tend,
                             .if_done = {RF_OK, -1},
                             .if_undone = {RF_OK, -1},
                             .same = true};
    more[2] = *scene_by_name("checkpoint");
    more[2].name = "checkpoint_and_flush";
    more[2].act = act_flush;
    more[3] = (struct scene){.name = "snapshot",
                             .traits = SCENE_UNORDERED,
                             .prepare = scene_by_name("checkpoint")->prepare,
                             .act = act_snapshot,
                             .if_done = {RF_OK, -1},
                             .if_undone = {RF_OK, -1},
                             .same = true};
    more[4] = *scene_by_name("open");
    more[4].name = "open_cold";
    more[4].prepare = make_past;
    more[4].act = act_open;
    more[5] = more[4];
    more[5].name = "open_new";
    more[5].prepare = NULL;
}

static void add_part(struct rf_part *parts, unsigned *n, const struct scene *scene,
                     rf_durability durability)
{
    static const char *const logs[] = {"", " nowait", " wait"};
    bool both = (scene->traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    for (uint32_t flags = RF_BOUND; flags <= (both ? RF_DETACHED : RF_BOUND); flags++) {
        if (parts != NULL) {
            parts[*n] = (struct rf_part){.scene = scene, .flags = flags, .durability = durability};
            snprintf(parts[*n].name, sizeof(parts[*n].name), "%s%s%s", scene->name,
                     !both               ? ""
                     : flags == RF_BOUND ? " bound"
                                         : " detached",
                     logs[durability]);
        }
        ++*n;
    }
}

unsigned rf_stepping_parts(struct rf_part *parts)
{
    unsigned n = 0;
    if (more[0].name == NULL) {
        make_more();
    }
    for (rf_durability log = RF_VOLATILE; log <= RF_WAIT; log++) {
        for (unsigned i = 0; i < scene_count; i++) {
            /* Hundreds of shards: without a log, and waiting for it, which is what differs most. */
            if (strcmp(scenes[i].name, "open") == 0 ||
                (log != RF_VOLATILE && (scenes[i].traits & SCENE_COOLDOWN) != 0) ||
                (log == RF_NOWAIT && (scenes[i].traits & SCENE_LARGE) != 0)) {
                continue;
            }
            add_part(parts, &n, &scenes[i], log);
        }
        for (unsigned i = 0; i < MORE_COUNT; i++) {
            if (i < 2   ? log != RF_WAIT
                : i < 4 ? log != RF_VOLATILE
                : i < 5 ? log == RF_WAIT
                        : log != RF_NOWAIT) {
                add_part(parts, &n, &more[i], log);
            }
        }
    }
    return n;
}

/* --- states that were seen --- */

struct seen {
    uint64_t *hash;
    uint64_t room; /* a power of two */
    uint64_t count;
};

static bool is_new(struct seen *s, uint64_t hash)
{
    hash += hash == 0;
    if (s->count * 2 >= s->room) {
        struct seen more_room = {.room = s->room == 0 ? 1024 : 2 * s->room};
        more_room.hash = calloc(more_room.room, sizeof(*more_room.hash));
        for (uint64_t i = 0; i < s->room; i++) {
            if (s->hash[i] != 0) {
                is_new(&more_room, s->hash[i]);
            }
        }
        free(s->hash);
        *s = more_room;
    }
    uint64_t i = hash & (s->room - 1);
    while (s->hash[i] != 0 && s->hash[i] != hash) {
        i = (i + 1) & (s->room - 1);
    }
    bool found = s->hash[i] == hash;
    s->hash[i] = hash;
    s->count += !found;
    return !found;
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The hash of a state changes by what is there no more and what is there now. */
static uint64_t hash_of(const struct rf_change *c)
{
    uint64_t h = c->files < 0 ? 0 : mix(UINT64_MAX - (uint64_t)c->files);
    for (uint32_t i = 0; i < c->len; i++) {
        uint64_t place = (c->offset + i) << 8;
        h ^= mix(place + c->was[i] + 1) ^ mix(place + c->now[i] + 1);
    }
    return h;
}

static uint64_t hash_of_files(const struct rf_files *files)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (unsigned f = 0; f < files->count; f++) {
        for (size_t i = 0; i + 8 <= files->file[f].len; i += 8) {
            uint64_t word;
            memcpy(&word, files->file[f].bytes + i, 8);
            h = word == 0 ? h : mix(h ^ mix(word + i));
        }
        h = mix(h + files->file[f].len + (uint64_t)files->file[f].name[0]);
    }
    return h;
}

/* --- one part --- */

struct director {
    const struct rf_part *part;
    const struct rf_stepping *how;
    struct rf_stepped *stepped;
    struct rf_site_paths original, copy, cold;
    rf_store *store; /* of a bystander, in the original */
    struct rf_recording recording;
    struct rf_judge judge;
    struct rf_reference reference;
    uint8_t *region; /* of the copy, mapped */
    struct rf_image second;
    struct rf_changes settling; /* the stores of a survivor that settles the first death */
    struct rf_files *settled;   /* and the files while it did */
    uint32_t settled_count;
    struct seen seen, seen_pairs, seen_cold;
    struct rf_prng prng;
    uint32_t moment, pair;
    char words[9000];
};

static struct director *on_stage;

static const char *wrong(struct director *d, const char *what)
{
    const struct rf_change *c = d->moment == 0 ? NULL : &d->recording.changes.list[d->moment - 1];
    snprintf(d->words, sizeof(d->words),
             "%s: dead at moment %u of %u (instruction %" PRIu64 ", at %" PRIx64
             " in the program, offset %" PRIx64 "), settler's store %u: %s",
             d->part->name, d->moment, d->recording.changes.count, c == NULL ? 0 : c->step,
             c == NULL ? 0 : c->rip - (uint64_t)(uintptr_t)&rf_stepping_play,
             c == NULL ? 0 : c->offset, d->pair, what);
    return d->words;
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    const char *words = on_stage == NULL ? "?" : wrong(on_stage, "a survivor hangs");
    if (write(2, words, strlen(words)) < 0 || write(2, "\n", 1) < 0) {
        _exit(3);
    }
    _exit(2);
}

static void on_abort(int signal_number)
{
    (void)signal_number;
    const char *words = on_stage == NULL ? "?" : wrong(on_stage, "a survivor aborts");
    if (write(2, words, strlen(words)) < 0 || write(2, "\n", 1) < 0) {
        _exit(3);
    }
    signal(SIGABRT, SIG_DFL);
}

static rf_options options_of(const struct rf_part *part, const struct rf_site_paths *paths)
{
    rf_options o = scene_options(part->scene);
    o.manual = true;
    o.clock = still_clock;
    o.region_path = paths->region;
    o.durability = part->durability;
    o.segment_bytes = 65536;
    o.snapshot_bytes = 1u << 20;
    return o;
}

/* Whoever comes along makes the log's next segment if it is not there: 75,000 instructions, the same ones whatever the
 * operation is. They are stepped in these scenes; in the others it was made ahead. */
static bool makes_segment(const struct scene *scene)
{
    static const char *const names[] = {"create_run", "claim", "checkpoint", "reap_of_another"};
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(scene->name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Nobody is there, and no region; for a new store nothing at all. */
static void clear_stage(struct director *d)
{
    rf_close(d->store);
    d->store = NULL;
    unlink(d->original.region);
    d->judge.members = 0;
    if (d->part->scene->prepare == NULL) {
        rf_files_lay(&(struct rf_files){0}, d->original.directory);
        opening.create = d->judge.options.create = true;
    }
}

static const char *open_stage(struct director *d)
{
    rf_detail detail;
    const struct rf_part *part = d->part;
    rf_paths_make(&d->original, "original");
    rf_paths_make(&d->copy, "copy");
    rf_paths_make(&d->cold, "cold");
    rf_options options = options_of(part, &d->original);
    if (rf_open(d->original.directory, &options, &d->store, &detail) != RF_OK) {
        return wrong(d, detail.where);
    }
    opening = options;
    opening.create = false;
    struct rf_judge *j = &d->judge;
    j->scene = part->scene;
    j->bound = part->flags == RF_BOUND;
    j->durable = part->durability != RF_VOLATILE;
    j->options = opening;
    j->options.region_path = d->copy.region;
    j->directory = d->copy.directory;
    rf_tenant_from_name("theatre", &j->tenant);
    rf_inspect(d->store, &j->rest, NULL);
    j->floor = j->rest.fence_floor;
    j->members = j->rest.members;
    struct play play = {.store = d->store,
                        .name = d->original.directory,
                        .tenant = j->tenant,
                        .flags = part->flags,
                        .grant = {.scratch = j->scratch, .scratch_size = sizeof(j->scratch)}};
    if (part->scene->prepare != NULL) {
        part->scene->prepare(&play);
    }
    rf_barrier(d->store, NULL);
    if (is_fresh(part->scene)) {
        clear_stage(d);
    } else if (j->durable && !makes_segment(part->scene)) {
        rf_tend(d->store, SCENE_BEGIN);
    }
    return NULL;
}

static void bury(uint8_t *region, uint32_t life)
{
    struct rf_header *h = (struct rf_header *)region;
    struct rf_member *members = (struct rf_member *)(region + h->roster.offset);
    for (uint32_t i = 0; i < h->slot_count; i++) {
        uint32_t word = atomic_load(&members[i].liveness);
        if ((word & FUTEX_TID_MASK) == life) {
            atomic_store(&members[i].liveness, word | FUTEX_OWNER_DIED);
        }
    }
}

/* The moment in the copy: whoever played is dead in it. */
static void lay(struct director *d, const struct rf_image *image, const struct rf_files *files,
                uint32_t life)
{
    rf_image_lay(image, d->region);
    if (d->judge.durable) {
        rf_files_lay(files, d->copy.directory);
    }
    bury(d->region, life);
}

static bool is_published(const struct rf_image *image)
{
    const struct rf_header *h = (const struct rf_header *)image->bytes;
    return h != NULL && atomic_load(&h->version) == RF_REGION_VERSION;
}

/* Survivors make regions of their own: the file is another one each time. */
static void lay_fresh(struct director *d)
{
    const struct rf_recording *r = &d->recording;
    int64_t len = rf_recording_region_len(r);
    rf_image_lay_file(&r->image, len, d->copy.region);
    rf_files_lay(rf_recording_files(r), d->copy.directory);
    if (len == (int64_t)r->image.size && is_published(&r->image)) {
        uint8_t *region = rf_paths_map(&d->copy, r->image.size);
        bury(region, (uint32_t)r->pid);
        munmap(region, r->image.size);
    }
}

static void lay_moment(struct director *d, uint32_t moment)
{
    d->moment = moment;
    d->pair = 0;
    rf_recording_go(&d->recording, moment);
    if (d->recording.fresh) {
        lay_fresh(d);
        return;
    }
    lay(d, &d->recording.image, rf_recording_files(&d->recording), (uint32_t)d->recording.pid);
}

static void go_cold(struct director *d, const struct rf_files *files)
{
    unlink(d->cold.region);
    rf_files_lay(files, d->cold.directory);
    d->judge.options.region_path = d->cold.region;
    d->judge.directory = d->cold.directory;
}

static void come_back(struct director *d)
{
    d->judge.options.region_path = d->copy.region;
    d->judge.directory = d->copy.directory;
}

static const char *look_cold(struct director *d, int *done)
{
    go_cold(d, rf_recording_files(&d->recording));
    const char *why = rf_judge_cold(&d->judge, done);
    come_back(d);
    return why;
}

/* How it may end in a cold open. What nobody waits for may be there or not. */
static const char *rehearse_cold(struct director *d, unsigned end)
{
    const struct rf_reference *r = &d->reference;
    bool waited = d->part->durability == RF_WAIT &&
                  (d->part->scene->traits & (SCENE_FORGETS | SCENE_UNORDERED)) == 0;
    go_cold(d, rf_recording_files(&d->recording));
    const char *why =
        rf_judge_look(&d->judge, &d->judge.cold[end], end == 0 ? &r->cold_before : &r->cold_after,
                      end == 0 || waited ? NULL : &r->cold_before);
    come_back(d);
    return why;
}

/* How the directory may be found: as it is at this moment, and as it is once somebody has settled it. */
static const char *look_settled(struct director *d)
{
    struct picture ignored = {0};
    struct rf_files files;
    go_cold(d, rf_recording_files(&d->recording));
    const char *why = rf_judge_settled_look(&d->judge);
    come_back(d);
    if (why != NULL) {
        return why;
    }
    lay_moment(d, d->moment);
    why = rf_judge_look(&d->judge, &ignored, NULL, NULL);
    picture_free(&ignored);
    if (why != NULL) {
        return why;
    }
    rf_files_take(&files, d->copy.directory);
    go_cold(d, &files);
    why = rf_judge_settled_look(&d->judge);
    come_back(d);
    rf_files_drop(&files);
    return why;
}

/* How it may end: dead at the first moment, and at the last. Both are what the model says. */
static const char *rehearse(struct director *d)
{
    struct rf_judge *j = &d->judge;
    uint32_t last = d->recording.changes.count;
    rf_reference_play(d->part->scene, d->part->flags, &j->tenant, &d->reference);
    if (d->recording.status != d->reference.status) {
        return wrong(d, "the operation and the model answer differently");
    }
    bool fresh = d->recording.fresh, settling = j->durable && d->how->twice && !fresh;
    const struct rf_reference *r = &d->reference;
    if (!fresh) {
        d->region = rf_paths_map(&d->copy, d->recording.image.size);
    }
    rf_files_lay(&d->recording.files[0], d->copy.directory);
    lay_moment(d, 0);
    const char *why = rf_judge_look(j, &j->before, fresh ? &r->cold_before : &r->before, NULL);
    if (why == NULL && j->durable) {
        why = rehearse_cold(d, 0);
    }
    if (why == NULL && settling) {
        why = look_settled(d);
    }
    if (why == NULL) {
        lay_moment(d, last);
        why = rf_judge_look(j, &j->after, fresh ? &r->cold_after : &r->after, NULL);
    }
    if (why == NULL && j->durable) {
        why = rehearse_cold(d, 1);
    }
    if (why == NULL && settling) {
        why = look_settled(d);
    }
    if (why != NULL) {
        return wrong(d, why);
    }
    j->told_apart = strcmp(j->before.text, j->after.text) != 0;
    j->cold_apart = j->durable && strcmp(j->cold[0].text, j->cold[1].text) != 0;
    return NULL;
}

static bool chosen(struct director *d, uint64_t wanted, uint64_t all)
{
    return wanted == 0 || wanted >= all || rf_prng_next(&d->prng) % all < wanted;
}

static bool can_meet(const struct director *d)
{
    unsigned traits = d->part->scene->traits;
    bool lost = d->judge.bound && (traits & (SCENE_LEASED | SCENE_GRANTS)) != 0;
    return !lost && (traits & (SCENE_PROCESS | SCENE_OPENS | SCENE_COOLDOWN)) == 0;
}

/* --- two deaths --- */

static void forget_settled(struct director *d)
{
    while (d->settled_count != 0) {
        rf_files_drop(&d->settled[--d->settled_count]);
    }
}

/* A survivor's calls change the files, between two of its stores. */
static void note_files(void *context)
{
    struct director *d = context;
    struct rf_files files;
    rf_files_take(&files, d->copy.directory);
    if (d->settled_count != 0 && rf_files_same(&files, &d->settled[d->settled_count - 1])) {
        rf_files_drop(&files);
        return;
    }
    if (d->settled_count != 0) {
        *rf_changes_add(&d->settling) = (struct rf_change){.files = (int32_t)d->settled_count};
    }
    d->settled = realloc(d->settled, (d->settled_count + 1) * sizeof(*d->settled));
    d->settled[d->settled_count++] = files;
}

/* What a survivor stores when it settles this moment. */
static const char *settle_traced(struct director *d, uint32_t *slot)
{
    rf_store *store;
    rf_detail detail;
    lay_moment(d, d->moment);
    if (rf_open(d->copy.directory, &d->judge.options, &store, &detail) != RF_OK) {
        return wrong(d, detail.where);
    }
    struct rf_map *map = rf_handle_of(store)->map;
    struct rf_image now = {.bytes = map->base, .size = map->bytes};
    if (d->second.bytes == NULL) {
        rf_image_take(&d->second, map->base, map->bytes);
    } else {
        rf_image_lay(&now, d->second.bytes);
    }
    *slot = rf_handle_of(store)->actor.slot;
    d->settling.count = 0;
    forget_settled(d);
    if (d->judge.durable) {
        note_files(d);
    }
    rf_trace_begin(map->base, map->bytes, &d->second, &d->settling,
                   d->judge.durable ? note_files : NULL, d);
    rf_status status = rf_tend(store, SCENE_LOOK);
    rf_trace_end();
    if (d->judge.durable) {
        note_files(d);
    }
    rf_close(store);
    return status == RF_OK ? NULL : wrong(d, "the first survivor can't settle the dead");
}

static const char *judge_directory(struct director *d, const struct rf_files *files, int done)
{
    go_cold(d, files);
    const char *why = rf_judge_settled(&d->judge, done);
    come_back(d);
    d->stepped->pairs_cold++;
    return why;
}

/* What the third one does first. He who only looks costs least. */
static enum rf_settling way_of_third(const struct director *d)
{
    switch (d->stepped->pairs_judged % 8) {
    case 0:
    case 4:
        return RF_BY_TENDING;
    case 2:
        return can_meet(d) ? RF_BY_MEETING : RF_BY_READING;
    case 6:
        return RF_BY_PASSING;
    default:
        return RF_BY_READING;
    }
}

static const char *kill_settlers(struct director *d, int first_done, uint64_t hash, uint64_t wanted)
{
    struct rf_image *image = &d->second;
    const struct rf_files *files = NULL;
    struct rf_change *list;
    uint32_t slot = 0, count;
    if (d->recording.fresh) {
        return NULL; /* nothing is settled: a region is made again */
    }
    const char *why = settle_traced(d, &slot);
    if (why != NULL) {
        return why;
    }
    list = d->settling.list;
    count = d->settling.count;
    files = d->settled;
    d->stepped->firsts++;
    d->stepped->pairs += count;
    for (uint32_t i = count; i-- > 0;) {
        memcpy(image->bytes + list[i].offset, list[i].was, list[i].len);
    }
    for (uint32_t i = 0; i < count; i++) {
        int done;
        memcpy(image->bytes + list[i].offset, list[i].now, list[i].len);
        if (list[i].files >= 0) {
            files = &d->settled[list[i].files];
            hash ^= hash_of_files(files);
        } else {
            hash ^= hash_of(&list[i]);
        }
        if (!is_new(&d->seen_pairs, hash) || !chosen(d, wanted, count)) {
            continue;
        }
        d->pair = i + 1;
        lay(d, image, files, (uint32_t)d->recording.pid);
        struct rf_member *m =
            (struct rf_member *)(d->region + ((struct rf_header *)d->region)->roster.offset);
        atomic_fetch_or(&m[slot].liveness, FUTEX_OWNER_DIED);
        alarm(WATCHDOG_S);
        enum rf_settling how = way_of_third(d);
        why = rf_judge(&d->judge, how, &done);
        if (why == NULL && how != RF_BY_MEETING && done != first_done) {
            why = "the second death changed whether it happened";
        }
        if (why == NULL && list[i].files >= 0 && is_new(&d->seen_cold, hash_of_files(files))) {
            why = judge_directory(d, files, -1);
        }
        /* And what the third one has left, who came to its end: it is durable. */
        if (why == NULL && d->judge.durable && how == RF_BY_READING &&
            d->stepped->pairs_judged % 8 == 1) {
            struct rf_files left;
            rf_files_take(&left, d->copy.directory);
            why = judge_directory(d, &left, done);
            rf_files_drop(&left);
        }
        if (why != NULL) {
            return wrong(d, why);
        }
        d->stepped->pairs_judged++;
    }
    d->pair = 0;
    return NULL;
}

/* --- all moments --- */

static const char *judge_moment(struct director *d, uint32_t moment, bool all, int *done)
{
    const char *why;
    alarm(WATCHDOG_S);
    lay_moment(d, moment);
    why = rf_judge(&d->judge, all ? RF_BY_TENDING : RF_BY_READING, done);
    d->stepped->judged++;
    bool large = (d->part->scene->traits & SCENE_LARGE) != 0;
    bool many = d->recording.changes.count > RF_STEPPING_MANY && !large; /* those are few already */
    if (why == NULL && all && (!many || moment % 8 == 0)) {
        int passed;
        lay_moment(d, moment);
        why = rf_judge(&d->judge, RF_BY_PASSING, &passed);
        d->stepped->judged++;
        if (why == NULL && passed != *done) {
            why = "what somebody else did changed whether it happened";
        }
    }
    if (why == NULL && all && can_meet(d)) {
        int ignored;
        lay_moment(d, moment);
        why = rf_judge(&d->judge, RF_BY_MEETING, &ignored);
        d->stepped->judged++;
    }
    if (why == NULL && d->judge.durable &&
        (moment == 0 || d->recording.changes.list[moment - 1].files >= 0)) {
        int ignored;
        why = look_cold(d, &ignored);
        d->stepped->judged++;
    }
    return why == NULL ? NULL : wrong(d, why);
}

static const char *judge_all(struct director *d)
{
    const struct rf_stepping *how = d->how;
    struct rf_stepped *s = d->stepped;
    /* Long bytes or hundreds of shards: most of its moments are inside of one copying loop. */
    bool large = (d->part->scene->traits & SCENE_LARGE) != 0;
    bool many = d->recording.changes.count > RF_STEPPING_MANY;
    bool ordered = (d->part->scene->traits & SCENE_UNORDERED) == 0;
    uint32_t last = d->recording.changes.count;
    uint64_t hash = 0, wanted = large ? how->sample_large : how->sample;
    if (how->twice && many) {
        wanted = how->sample_many;
    }
    int done = 0, was_done = 0;
    uint64_t pairs_wanted = how->sample_twice == 0 ? 0 : how->sample_twice / (wanted + 1) + 1;
    for (uint32_t moment = 0; moment <= last; moment++) {
        if (moment != 0) {
            hash ^= hash_of(&d->recording.changes.list[moment - 1]);
        }
        /* Stores of one instruction that were noted in parts are one moment. */
        if (moment != last && moment != 0 &&
            d->recording.changes.list[moment].step == d->recording.changes.list[moment - 1].step) {
            continue;
        }
        s->moments++;
        bool new_state = is_new(&d->seen, hash);
        s->distinct += new_state;
        if (moment != 0 && moment != last && !(new_state && chosen(d, wanted, last))) {
            continue;
        }
        const char *why = judge_moment(d, moment, !large || s->judged % 16 == 0, &done);
        if (why == NULL && d->judge.told_apart && ordered) {
            why = moment == 0 && done == 1      ? wrong(d, "done before it began")
                  : moment == last && done == 0 ? wrong(d, "not done at its end")
                  : was_done == 1 && done == 0  ? wrong(d, "undone after it was done")
                                                : NULL;
        }
        if (why == NULL && how->twice) {
            why = kill_settlers(d, done, hash, pairs_wanted);
        }
        if (why != NULL) {
            return why;
        }
        s->done += done == 1;
        s->undone += done == 0;
        was_done = done;
    }
    return NULL;
}

static void close_stage(struct director *d)
{
    alarm(0);
    on_stage = NULL;
    if (d->region != NULL) {
        munmap(d->region, d->recording.image.size);
    }
    rf_recording_drop(&d->recording);
    rf_image_drop(&d->second);
    free(d->settling.list);
    forget_settled(d);
    free(d->settled);
    free(d->seen.hash);
    free(d->seen_pairs.hash);
    free(d->seen_cold.hash);
    rf_judge_drop(&d->judge);
    rf_reference_drop(&d->reference);
    if (d->store != NULL) {
        rf_close(d->store);
    }
    rf_paths_remove(&d->original);
    rf_paths_remove(&d->copy);
    rf_paths_remove(&d->cold);
}

const char *rf_stepping_play(const struct rf_part *part, const struct rf_stepping *how,
                             struct rf_stepped *stepped)
{
    static struct director director; /* the words outlive the call */
    struct director *d = &director;
    *d = (struct director){
        .part = part, .how = how, .stepped = stepped, .prng = {.state = how->seed}};
    *stepped = (struct rf_stepped){0};
    on_stage = d;
    signal(SIGALRM, on_alarm);
    signal(SIGABRT, on_abort);
    const char *why = open_stage(d);
    if (why == NULL) {
        bool fresh = is_fresh(part->scene);
        struct rf_recorder recorder = {.scene = part->scene,
                                       .flags = part->flags,
                                       .paths = &d->original,
                                       .options = opening,
                                       .tenant = d->judge.tenant,
                                       .region = fresh ? NULL : rf_handle_of(d->store)->map->base,
                                       .with_files = part->durability != RF_VOLATILE || fresh,
                                       .compare_each = how->compare_each};
        rf_record(&recorder, &d->recording);
        d->judge.lease = d->recording.lease;
        stepped->instructions = d->recording.instructions;
        why = d->recording.wrong[0] == 0 ? NULL : wrong(d, d->recording.wrong);
    }
    if (why == NULL) {
        why = rehearse(d);
    }
    if (why == NULL) {
        why = judge_all(d);
    }
    close_stage(d);
    return why;
}
