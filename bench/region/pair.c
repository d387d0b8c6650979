/* Two processes on different shards of one run, over one process: how close they come to what two
 * processes that only hash reach on this machine. */
#include "region.h"

#include "crew.h"

#define PAIR_HOT   16u
#define ROUNDS_MAX 61u

#define PAIR_FAR 400u /* how far apart the processes work, in shards */

enum { HASH, CHECKPOINT, NEIGHBOURS, RENEW, CLAIM, KINDS };

/* A worker claims a shard and gives it back; both change the run, which has one lock. */
struct counter {
    struct farm farm;
    uint64_t worker;
    _Alignas(8) uint8_t scratch[4096];
    rf_grant grant;
    rf_result result;
};

static void run_claim_release(void *context, uint64_t n)
{
    struct counter *c = context;
    struct farm *f = &c->farm;
    for (uint64_t i = 0; i < n; i++) {
        must_execute(rf_claim(f->store, ++f->now, &f->tenant, RUN_SCRATCH, c->worker, RF_BOUND, 0,
                              &c->grant, &c->result),
                     &c->result);
        must_execute(
            rf_release(f->store, ++f->now, &f->tenant, &c->grant.lease, NULL, ++f->op, &c->result),
            &c->result);
    }
}

/* Neighbours alternate in memory: each record lies between two that the other process writes. */
static void arrive(void *argument, uint32_t number, void **contexts)
{
    static struct counter counter;
    static rf_lease far[PAIR_HOT], near[PAIR_HOT];
    (void)argument;
    farm_open(&counter.farm, "main", 0, false);
    farm_acquire(&counter.farm, RUN_SCRATCH, (number + 1) * PAIR_FAR, PAIR_HOT, far);
    for (uint32_t i = 0; i < PAIR_HOT; i++) {
        farm_acquire(&counter.farm, RUN_SCRATCH, i * CREW + number, 1, &near[i]);
    }
    counter.worker = (number + 1) * PAIR_FAR + 2 * PAIR_HOT;
    counter.grant = (rf_grant){.scratch = counter.scratch, .scratch_size = sizeof(counter.scratch)};
    contexts[HASH] = &bare;
    contexts[CHECKPOINT] = make_lot(&counter.farm, far, PAIR_HOT);
    contexts[NEIGHBOURS] = make_lot(&counter.farm, near, PAIR_HOT);
    contexts[RENEW] = make_lot(&counter.farm, far, PAIR_HOT);
    contexts[CLAIM] = &counter;
}

/* What both do together, over what one does alone. */
static double gain(struct crew *crew, uint32_t kind)
{
    double alone = (crew_rate(crew, kind, 1) + crew_rate(crew, kind, 2)) / 2;
    return crew_rate(crew, kind, 3) / alone;
}

void measure_pair(struct farm *farm)
{
    static crew_work *const work[KINDS] = {bare_run, run_checkpoint, run_checkpoint, run_renew,
                                           run_claim_release};
    struct bench_case rows[KINDS] = {
        {.name = "two processes over one, hash only", .unit = "times"},
        {.name = "two processes over one, checkpoint",
         .unit = "times",
         .ratio_to = "hash only",
         .kind = BENCH_AT_LEAST,
         .goal = 0.9},
        {.name = "... of neighbouring shards", .unit = "times", .ratio_to = "hash only"},
        {.name = "two processes over one, renew", .unit = "times", .ratio_to = "hash only"},
        {.name = "two processes over one, claim + release",
         .unit = "times",
         .ratio_to = "hash only"},
    };
    if (!bench_wanted(&options, "pair")) {
        return;
    }
    struct farm_manifest manifest = farm_manifest(1000);
    farm_purge(farm, RUN_SCRATCH);
    farm_register(farm, RUN_SCRATCH, &manifest);
    farm_manifest_free(&manifest);
    struct crew *crew = crew_start(arrive, NULL, work, KINDS);
    if (crew == NULL) {
        bench_print_skipped(stdout, &options, "region", rows[CHECKPOINT].name,
                            "there is one core only");
        return;
    }
    const uint32_t rounds = options.rounds < ROUNDS_MAX ? options.rounds : ROUNDS_MAX;
    double *gains[KINDS], *ratios[KINDS];
    for (uint32_t k = 0; k < KINDS; k++) {
        gains[k] = calloc(rounds, sizeof(double));
        ratios[k] = calloc(rounds, sizeof(double));
        assert(gains[k] != NULL && ratios[k] != NULL);
    }
    for (uint32_t i = 0; i < rounds; i++) {
        for (uint32_t k = 0; k < KINDS; k++) {
            gains[k][i] = gain(crew, k);
            ratios[k][i] = gains[k][i] / gains[HASH][i];
        }
    }
    crew_stop(crew);
    for (uint32_t k = 0; k < KINDS; k++) {
        bench_summarize(&rows[k], gains[k], rounds);
        rows[k].ratio = k == HASH ? 0 : bench_quantile(ratios[k], rounds, 0.5);
        free(gains[k]);
        free(ratios[k]);
    }
    report(rows, KINDS);
}
