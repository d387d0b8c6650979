/* Work on leases that are held: checkpoints and renewals, and looking at what they did. */
#include <time.h>

#include "region.h"

#define HOT 16u

/* --- leases --- */

static void write_ahead(struct lot *lot, uint32_t at)
{
    const rf_lease *lease = &lot->leases[at % lot->count];
    farm_key(lot->keys[at % LOT_AHEAD], (uint32_t)lease->shard - 1, lot->number++);
}

static struct lot *lots;

struct lot *make_lot(struct farm *farm, rf_lease *leases, uint32_t count)
{
    struct lot *lot = calloc(1, sizeof(*lot));
    assert(lot != NULL && (count == 1 || count % LOT_AHEAD == 0));
    *lot = (struct lot){
        .next = lots, .farm = farm, .leases = leases, .count = count, .number = farm->now};
    lots = lot;
    for (uint32_t i = 0; i < LOT_AHEAD; i++) {
        write_ahead(lot, i);
    }
    return lot;
}

void free_lots(void)
{
    while (lots != NULL) {
        struct lot *next = lots->next;
        free(lots);
        lots = next;
    }
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

void shuffle(rf_lease *leases, uint32_t count)
{
    uint64_t state = 1;
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t j = (uint32_t)(next_random(&state) % (i + 1));
        rf_lease lease = leases[i];
        leases[i] = leases[j];
        leases[j] = lease;
    }
}

static inline rf_lease *visit(struct lot *lot)
{
    rf_lease *lease = &lot->leases[lot->at];
    lot->at = lot->at + 1 == lot->count ? 0 : lot->at + 1;
    return lease;
}

void run_checkpoint(void *context, uint64_t n)
{
    struct lot *lot = context;
    struct farm *farm = lot->farm;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t at = lot->at;
        const rf_lease *lease = visit(lot);
        const rf_cursor cursor = {.key = {.data = lot->keys[at % LOT_AHEAD], .len = FARM_KEY_LEN}};
        must_execute(rf_checkpoint(farm->store, ++farm->now, &farm->tenant, lease, &cursor,
                                   ++farm->op, &lot->result),
                     &lot->result);
        write_ahead(lot, at + LOT_AHEAD);
    }
}

void run_renew(void *context, uint64_t n)
{
    struct lot *lot = context;
    struct farm *farm = lot->farm;
    for (uint64_t i = 0; i < n; i++) {
        lot->result.outcome = RF_REPLAYED;
        must_execute(rf_renew(farm->store, ++farm->now, &farm->tenant, visit(lot), &lot->result),
                     &lot->result);
    }
}

/* The shard goes, and comes back under a new fence. */
void run_release_acquire(void *context, uint64_t n)
{
    struct lot *lot = context;
    struct farm *farm = lot->farm;
    static _Alignas(8) uint8_t scratch[4096];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    for (uint64_t i = 0; i < n; i++) {
        rf_lease *lease = visit(lot);
        must_execute(rf_release(farm->store, ++farm->now, &farm->tenant, lease, NULL, ++farm->op,
                                &lot->result),
                     &lot->result);
        must_execute(rf_acquire(farm->store, ++farm->now, &farm->tenant, lease->run, lease->shard,
                                1, RF_BOUND, &grant, &lot->result),
                     &lot->result);
        *lease = grant.lease;
    }
}

/* The shard leaves those that can be claimed, is one of them again, and comes back. */
void run_park_unpark_acquire(void *context, uint64_t n)
{
    struct lot *lot = context;
    struct farm *farm = lot->farm;
    static _Alignas(8) uint8_t scratch[4096];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    for (uint64_t i = 0; i < n; i++) {
        rf_lease *lease = visit(lot);
        must_execute(rf_park(farm->store, ++farm->now, &farm->tenant, lease, RF_PARK_OTHER,
                             ++farm->op, &lot->result),
                     &lot->result);
        must_execute(rf_unpark(farm->store, ++farm->now, &farm->tenant, lease->run, lease->shard,
                               ++farm->op, &lot->result),
                     &lot->result);
        must_execute(rf_acquire(farm->store, ++farm->now, &farm->tenant, lease->run, lease->shard,
                                1, RF_BOUND, &grant, &lot->result),
                     &lot->result);
        *lease = grant.lease;
    }
}

static void run_now(void *context, uint64_t n)
{
    struct lot *lot = context;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t now = rf_now(lot->farm->store);
        bench_use(now);
    }
}

void run_get_shard(void *context, uint64_t n)
{
    struct lot *lot = context;
    static rf_shard_info info;
    static _Alignas(8) uint8_t scratch[4096];
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_get_shard(lot->farm->store, &lot->farm->tenant, lot->leases[0].run,
                                        visit(lot)->shard, &info, scratch, sizeof(scratch), NULL);
        assert(status == RF_OK);
        bench_use(&info);
    }
}

static void run_get_run(void *context, uint64_t n)
{
    struct lot *lot = context;
    static rf_run_info info;
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_get_run(lot->farm->store, &lot->farm->tenant, RUN_HELD, &info, NULL);
        assert(status == RF_OK);
        bench_use(&info);
    }
}

void run_progress(void *context, uint64_t n)
{
    struct lot *lot = context;
    static rf_progress progress;
    static uint8_t watermark[RF_KEY_MAX];
    for (uint64_t i = 0; i < n; i++) {
        rf_status status = rf_get_progress(lot->farm->store, lot->farm->now, &lot->farm->tenant,
                                           lot->leases[0].run, &progress, watermark, NULL);
        assert(status == RF_OK && progress.total == lot->shards);
    }
}

static bool count_shard(void *context, const rf_shard_info *shard)
{
    bench_use(shard);
    ++*(uint32_t *)context;
    return true;
}

void run_list(void *context, uint64_t n)
{
    struct lot *lot = context;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t seen = 0;
        rf_status status =
            rf_list_shards(lot->farm->store, lot->farm->now, &lot->farm->tenant, lot->leases[0].run,
                           RF_LIST_ALL, count_shard, &seen, NULL);
        assert(status == RF_OK && seen == lot->shards);
    }
}

/* --- a session, as a worker uses it --- */

struct seat {
    rf_session *session;
    uint64_t number;
    uint32_t at;
    uint32_t index;
    uint8_t keys[LOT_AHEAD][FARM_KEY_LEN];
    rf_result result;
};

static void run_session_checkpoint(void *context, uint64_t n)
{
    struct seat *seat = context;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *key = seat->keys[seat->at++ % LOT_AHEAD];
        const rf_cursor cursor = {.key = {.data = key, .len = FARM_KEY_LEN}};
        must_execute(rf_session_checkpoint(seat->session, cursor, &seat->result), &seat->result);
        farm_key(key, seat->index, seat->number++);
    }
}

static void sit_down(struct seat *seat, struct farm *farm, uint32_t index)
{
    const rf_session_options o = {.tenant = farm->tenant, .worker = 7};
    rf_status status = rf_session_create(farm->store, &o, &seat->session);
    assert(status == RF_OK);
    status = rf_session_acquire(seat->session, RUN_HELD, index + 1ul, NULL, NULL);
    assert(status == RF_OK);
    seat->index = index;
    for (uint32_t i = 0; i < LOT_AHEAD; i++) {
        farm_key(seat->keys[i], index, seat->number++);
    }
}

/* --- the rows --- */

/* Rows on random shards walk through the same order, equally fast and far behind each other: none
 * finds in the cache what another has just worked on. */
static struct lot *make_walk(struct farm *farm, rf_lease *leases, uint32_t count, uint32_t part)
{
    struct lot *lot = make_lot(farm, leases, count);
    lot->at = count / 3 / LOT_AHEAD * LOT_AHEAD * part;
    for (uint32_t i = 0; i < LOT_AHEAD; i++) {
        write_ahead(lot, lot->at + i);
    }
    return lot;
}

/* Guardians ask for large pages (shm/pages.h) for what has been there for a second, and look every two. */
static void wait_for_large_pages(void)
{
    const struct timespec while_they_come = {.tv_sec = 4};
    nanosleep(&while_they_come, NULL);
}

/* Leases on all of SHARDS shards: HOT ones, one for a session, and all others in a random order. */
void measure_held(struct farm *farm)
{
    static struct seat seat;
    struct farm_manifest manifest = farm_manifest(SHARDS);
    farm_register(farm, RUN_HELD, &manifest);
    farm_manifest_free(&manifest);
    const uint32_t rest = SHARDS - 2 * HOT;
    rf_lease *hot = calloc(HOT, sizeof(*hot)), *all = calloc(rest, sizeof(*all));
    assert(hot != NULL && all != NULL);
    farm_acquire(farm, RUN_HELD, 0, HOT, hot);
    farm_acquire(farm, RUN_HELD, 2 * HOT, rest, all);
    shuffle(all, rest);
    sit_down(&seat, farm, HOT);

    struct bench_case fresh[] = {
        h_case(),
        {.name = "checkpoint, random of 100,000, made just now",
         .run = run_checkpoint,
         .context = make_walk(farm, all, rest, 0),
         .n = LOT_COLD},
    };
    measure("held", fresh, COUNT(fresh), options.rounds);
    wait_for_large_pages();

    struct bench_case timed[] = {
        h_case(),
        {.name = "checkpoint, hot in cache",
         .run = run_checkpoint,
         .context = make_lot(farm, hot, HOT),
         .kind = BENCH_AT_MOST,
         .goal = 1.6},
        {.name = "checkpoint, random of 100,000",
         .run = run_checkpoint,
         .context = make_walk(farm, all, rest, 0),
         .n = LOT_COLD,
         .kind = BENCH_AT_MOST,
         .goal = 2.5},
        {.name = "renew, hot in cache",
         .run = run_renew,
         .context = make_lot(farm, hot, HOT),
         .kind = BENCH_AT_MOST,
         .goal = 0.3},
        {.name = "renew, random of 100,000",
         .run = run_renew,
         .context = make_walk(farm, all, rest, 1),
         .n = LOT_COLD},
        {.name = "session checkpoint, hot in cache",
         .run = run_session_checkpoint,
         .context = &seat},
        {.name = "rf_now", .run = run_now, .context = make_lot(farm, hot, HOT)},
    };
    measure("held", timed, COUNT(timed), options.rounds);

    struct bench_case looks[] = {
        h_case(),
        {.name = "get_shard, hot in cache",
         .run = run_get_shard,
         .context = make_lot(farm, hot, HOT)},
        {.name = "get_shard, random of 100,000",
         .run = run_get_shard,
         .context = make_walk(farm, all, rest, 2),
         .n = LOT_COLD},
        {.name = "get_run", .run = run_get_run, .context = make_lot(farm, hot, HOT)},
    };
    measure("look", looks, COUNT(looks), options.rounds);

    rf_session_destroy(seat.session);
    farm_purge(farm, RUN_HELD);
    free_lots();
    free(hot);
    free(all);
}
