#include "queue.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "farm.h"

#define WIDTH 10u /* keys in a shard's range */

void (*queue_in_child)(struct queue *q);

rf_tenant queue_tenant(void)
{
    return farm_tenant(1);
}

static rf_bytes bytes_of(const struct farm_key *key)
{
    return (rf_bytes){.data = key->bytes, .len = 8};
}

static void fill_inputs(rf_shard_input *inputs, struct farm_key *keys, uint64_t first,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        keys[2 * i] = farm_key((first + i) * WIDTH);
        keys[2 * i + 1] = farm_key((first + i + 1) * WIDTH);
        inputs[i] = (rf_shard_input){
            .shard = first + i,
            .spec = {.start = bytes_of(&keys[2 * i]), .end = bytes_of(&keys[2 * i + 1])}};
    }
}

struct queue *queue_make(const char *label, uint32_t shards, uint64_t lease)
{
    struct queue *q = crew_shared(sizeof(*q));
    rf_shard_input inputs[QUEUE_MAX];
    struct farm_key keys[2 * QUEUE_MAX];
    rf_tenant tenant = queue_tenant();
    rf_run_config config = {.lease_duration = lease};
    snprintf(q->store, sizeof(q->store), "%s", crew_store(label));
    q->timeout = RF_FOREVER;
    q->boss = crew_open(q->store, &(rf_options){.create = true,
                                                .max_shards = 4096,
                                                .max_bytes = 16u << 20,
                                                .max_runs = 16,
                                                .max_members = 400});
    CREW_CHECK(shards <= QUEUE_MAX, "too many shards");
    fill_inputs(inputs, keys, 1, shards);
    CREW_CHECK(rf_create_run_with_shards(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, &config,
                                         inputs, shards, 1, NULL) == RF_OK,
               "making the run");
    return q;
}

void queue_drop(struct queue *q)
{
    for (uint32_t i = 0; i < q->count; i++) {
        if (q->pids[i] != 0) {
            crew_kill(q->pids[i]);
        }
    }
    rf_close(q->boss);
    crew_unshare(q, sizeof(*q));
    crew_store_drop();
}

struct place {
    struct queue *q;
    uint32_t number;
};

static int wait_in_line(void *argument)
{
    const struct place *place = argument;
    struct queue_waiter *w = &place->q->waiters[place->number];
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = queue_tenant();
    if (queue_in_child != NULL) {
        queue_in_child(place->q);
    }
    rf_store *store = crew_open(place->q->store, &(rf_options){0});
    w->began_at = crew_ns();
    atomic_store(&w->stage, 1);
    w->status = rf_claim(store, rf_now(store), &tenant, QUEUE_RUN, place->number, RF_BOUND,
                         place->q->timeout, &grant, NULL);
    w->ended_at = crew_ns();
    w->shard = w->status == RF_OK ? grant.lease.shard : 0;
    w->fence = w->status == RF_OK ? grant.lease.fence : 0;
    atomic_store(&w->stage, 2);
    while (!atomic_load(&w->quit)) {
        crew_sleep_ms(1);
    }
    rf_close(store);
    return 0;
}

static bool all_in_line(void *context)
{
    struct queue *q = context;
    for (uint32_t i = 0; i < q->count; i++) {
        uint32_t stage = atomic_load(&q->waiters[i].stage);
        if (q->pids[i] != 0 && (stage == 0 || (stage == 1 && !crew_asleep(q->pids[i])))) {
            return false;
        }
    }
    return true;
}

uint32_t queue_start_waiter(struct queue *q)
{
    struct place place = {q, q->count};
    CREW_CHECK(q->count < QUEUE_MAX, "too many waiters");
    q->pids[q->count] = crew_start(wait_in_line, &place);
    return q->count++;
}

void queue_wait_in_line(struct queue *q, uint32_t more)
{
    uint64_t before = queue_waiting(q);
    for (uint32_t i = 0; i < more; i++) {
        queue_start_waiter(q);
    }
    CREW_CHECK(queue_waiting_becomes(q, before + more, 20000), "they do not wait");
    CREW_CHECK(crew_until(all_in_line, q, 20000), "they do not sleep");
    crew_sleep_ms(20); /* asleep may have been a short sleep before the long one */
    CREW_CHECK(crew_until(all_in_line, q, 20000), "they do not sleep");
}

rf_lease queue_hold(struct queue *q, uint64_t shard)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_grant grant = {.scratch = scratch, .scratch_size = sizeof(scratch)};
    rf_tenant tenant = queue_tenant();
    rf_status status = rf_acquire(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, shard, 1000,
                                  RF_BOUND, &grant, NULL);
    CREW_CHECK(status == RF_OK, "acquire answered %d", (int)status);
    return grant.lease;
}

struct number {
    struct queue *q;
    uint64_t wanted;
    uint64_t seen;
};

static bool enough_answers(void *context)
{
    struct number *n = context;
    n->seen = 0;
    for (uint32_t i = 0; i < n->q->count; i++) {
        n->seen += atomic_load(&n->q->waiters[i].stage) == 2;
    }
    return n->seen >= n->wanted;
}

uint32_t queue_answers(struct queue *q, uint32_t at_least, unsigned timeout_ms)
{
    struct number n = {q, at_least, 0};
    crew_until(enough_answers, &n, timeout_ms);
    return (uint32_t)n.seen;
}

uint64_t queue_waiting(struct queue *q)
{
    rf_capacity capacity = {0};
    rf_tenant tenant = queue_tenant();
    rf_get_capacity(q->boss, &tenant, QUEUE_RUN, &capacity, NULL);
    return capacity.waiting;
}

static bool waiting_is(void *context)
{
    struct number *n = context;
    return queue_waiting(n->q) == n->wanted;
}

bool queue_waiting_becomes(struct queue *q, uint64_t number, unsigned timeout_ms)
{
    struct number n = {q, number, 0};
    return crew_until(waiting_is, &n, timeout_ms);
}

/* --- what may wake them --- */

rf_status queue_release(struct queue *q, const rf_lease *lease)
{
    rf_tenant tenant = queue_tenant();
    return rf_release(q->boss, rf_now(q->boss), &tenant, lease, NULL, rf_new_op(q->boss), NULL);
}

rf_status queue_split(struct queue *q, const rf_lease *lease, uint32_t count)
{
    rf_tenant tenant = queue_tenant();
    rf_child children[WIDTH] = {0};
    struct farm_key keys[WIDTH + 1];
    uint64_t ids[WIDTH];
    for (uint32_t i = 0; i <= count; i++) {
        keys[i] = farm_key(i == count ? (lease->shard + 1) * WIDTH : lease->shard * WIDTH + i);
    }
    for (uint32_t i = 0; i < count; i++) {
        children[i].spec = (rf_spec){.start = bytes_of(&keys[i]), .end = bytes_of(&keys[i + 1])};
    }
    return rf_split_replace(q->boss, rf_now(q->boss), &tenant, lease, children, count,
                            rf_new_op(q->boss), ids, NULL);
}

rf_status queue_residual(struct queue *q, const rf_lease *lease)
{
    rf_tenant tenant = queue_tenant();
    uint64_t first = lease->shard * WIDTH, id;
    struct farm_key keys[3] = {farm_key(first), farm_key(first + 5), farm_key(first + WIDTH)};
    rf_spec mine = {.start = bytes_of(&keys[0]), .end = bytes_of(&keys[1])};
    rf_spec rest = {.start = bytes_of(&keys[1]), .end = bytes_of(&keys[2])};
    return rf_split_residual(q->boss, rf_now(q->boss), &tenant, lease, &mine, &rest,
                             rf_new_op(q->boss), &id, NULL);
}

rf_status queue_park(struct queue *q, const rf_lease *lease)
{
    rf_tenant tenant = queue_tenant();
    return rf_park(q->boss, rf_now(q->boss), &tenant, lease, RF_PARK_OTHER, rf_new_op(q->boss),
                   NULL);
}

rf_status queue_unpark(struct queue *q, uint64_t shard)
{
    rf_tenant tenant = queue_tenant();
    return rf_unpark(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, shard, rf_new_op(q->boss), NULL);
}

rf_status queue_add(struct queue *q, uint64_t first, uint32_t count)
{
    rf_shard_input inputs[QUEUE_MAX];
    struct farm_key keys[2 * QUEUE_MAX];
    rf_tenant tenant = queue_tenant();
    fill_inputs(inputs, keys, first, count);
    return rf_add_shards(q->boss, rf_now(q->boss), &tenant, QUEUE_RUN, inputs, count,
                         rf_new_op(q->boss), NULL);
}
