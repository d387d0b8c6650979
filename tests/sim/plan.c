#include <stdlib.h>

#include "sim.h"

struct rates {
    uint32_t expire, stall, jump; /* the protocol's table */
    uint32_t die, die_at, stop_at, die_keeping, reopen, lose_everybody, lose_region; /* ours */
};

/* Parts per million of the operations. */
static const struct rates rates[SIM_LEVELS] = {
    [SIM_SUNNY] = {0},
    [SIM_STORMY] = {.expire = 100000,
                    .stall = 50000,
                    .jump = 100000,
                    .die = 3000,
                    .die_at = 12000,
                    .stop_at = 6000,
                    .die_keeping = 2000,
                    .reopen = 2000,
                    .lose_everybody = 300,
                    .lose_region = 300},
    [SIM_RADIOACTIVE] = {.expire = 200000,
                         .stall = 100000,
                         .jump = 200000,
                         .die = 8000,
                         .die_at = 30000,
                         .stop_at = 12000,
                         .die_keeping = 4000,
                         .reopen = 4000,
                         .lose_everybody = 600,
                         .lose_region = 600},
};

static const uint8_t safety_weights[STEP_TABLE] = {
    [STEP_ACQUIRE] = 13, [STEP_RENEW] = 10,   [STEP_CHECKPOINT] = 13,   [STEP_COMPLETE] = 8,
    [STEP_PARK] = 3,     [STEP_UNPARK] = 2,   [STEP_SPLIT_REPLACE] = 4, [STEP_SPLIT_RESIDUAL] = 4,
    [STEP_REPLAY] = 2,   [STEP_CONFLICT] = 2, [STEP_ZOMBIE] = 3,        [STEP_CLAIM] = 3,
    [STEP_SESSION] = 8,  [STEP_ADVANCE] = 9,  [STEP_PAUSE] = 8,         [STEP_RESUME] = 6,
    [STEP_END_RUN] = 2,
};

static const uint8_t liveness_weights[STEP_TABLE] = {
    [STEP_ACQUIRE] = 30,  [STEP_RENEW] = 10,   [STEP_CHECKPOINT] = 15,
    [STEP_COMPLETE] = 30, [STEP_ADVANCE] = 10, [STEP_RESUME] = 5,
};

/* What the table has no weight for, besides the operations and at every level. */
static const struct {
    enum step_kind kind;
    uint32_t ppm;
} besides[] = {
    {STEP_RELEASE, 30000}, {STEP_ADD_SHARDS, 6000}, {STEP_REGISTER, 4000}, {STEP_LOOK, 15000},
    {STEP_SWEEP, 15000},   {STEP_TEND, 2000},       {STEP_SYNC, 8000},     {STEP_SNAPSHOT, 500},
};

const char *step_name(enum step_kind kind)
{
    static const char *const names[STEP_KINDS] = {
        [STEP_ACQUIRE] = "acquire",
        [STEP_RENEW] = "renew",
        [STEP_CHECKPOINT] = "checkpoint",
        [STEP_COMPLETE] = "complete",
        [STEP_PARK] = "park",
        [STEP_UNPARK] = "unpark",
        [STEP_SPLIT_REPLACE] = "split",
        [STEP_SPLIT_RESIDUAL] = "residual",
        [STEP_REPLAY] = "replay",
        [STEP_CONFLICT] = "conflict",
        [STEP_ZOMBIE] = "zombie",
        [STEP_CLAIM] = "claim",
        [STEP_SESSION] = "session",
        [STEP_ADVANCE] = "advance",
        [STEP_PAUSE] = "pause",
        [STEP_RESUME] = "resume",
        [STEP_END_RUN] = "end_run",
        [STEP_RELEASE] = "release",
        [STEP_ADD_SHARDS] = "add_shards",
        [STEP_REGISTER] = "register",
        [STEP_LOOK] = "look",
        [STEP_SWEEP] = "sweep",
        [STEP_TEND] = "tend",
        [STEP_SYNC] = "sync",
        [STEP_SNAPSHOT] = "snapshot",
        [STEP_EXPIRE] = "expire",
        [STEP_STALL] = "stall",
        [STEP_JUMP] = "jump",
        [STEP_DIE] = "die",
        [STEP_DIE_AT] = "die_at_a_point",
        [STEP_STOP_AT] = "stop_at_a_point",
        [STEP_DIE_KEEPING] = "die_keeping",
        [STEP_REOPEN] = "reopen",
        [STEP_LOSE_EVERYBODY] = "lose_everybody",
        [STEP_LOSE_REGION] = "lose_region",
        [STEP_PREAMBLE] = "zombie_preamble",
        [STEP_OVERLOAD] = "overload",
        [STEP_MEASURE] = "measure",
        [STEP_CALM] = "calm",
    };
    return names[kind];
}

static void add(struct plan *p, enum step_kind kind, uint32_t worker, bool calm)
{
    if (p->count % 4096 == 0) {
        p->steps = realloc(p->steps, (p->count + 4096) * sizeof(*p->steps));
        if (p->steps == NULL) {
            abort();
        }
    }
    p->steps[p->count] = (struct step){
        .number = p->count + 1, .kind = (uint8_t)kind, .worker = (uint8_t)worker, .calm = calm};
    p->count++;
}

static enum step_kind draw(struct chacha *c, const uint8_t *weights)
{
    uint32_t n = chacha_below(c, 100);
    unsigned kind = 0;
    while (n >= weights[kind]) {
        n -= weights[kind++];
    }
    return (enum step_kind)kind;
}

static void add_faults(struct plan *p, struct chacha *c, const struct sim_config *config)
{
    const struct rates *r = &rates[config->level];
    const struct {
        enum step_kind kind;
        uint32_t ppm;
    } faults[] = {
        {STEP_EXPIRE, r->expire},
        {STEP_STALL, r->stall},
        {STEP_JUMP, r->jump},
        {STEP_DIE, r->die},
        {STEP_DIE_KEEPING, r->die_keeping},
        {STEP_REOPEN, r->reopen},
        {STEP_LOSE_EVERYBODY, r->lose_everybody},
        {STEP_LOSE_REGION, r->lose_region},
        {STEP_DIE_AT, r->die_at},
        {STEP_STOP_AT, r->stop_at},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        uint32_t worker = chacha_below(c, config->workers);
        bool inside = faults[i].kind == STEP_DIE_AT || faults[i].kind == STEP_STOP_AT ||
                      faults[i].kind == STEP_DIE_KEEPING;
        if (chacha_ppm(c, faults[i].ppm) && !(inside && config->no_points)) {
            add(p, faults[i].kind, worker, false);
        }
    }
}

void plan_make(struct plan *p, const struct sim_config *config)
{
    struct chacha c;
    chacha_seed(&c, config->seed, 0);
    *p = (struct plan){0};
    add(p, STEP_PREAMBLE, 0, false);
    for (uint32_t i = 0; i < config->ops; i++) {
        if (i >= 5) {
            add_faults(p, &c, config);
        }
        for (size_t k = 0; k < sizeof(besides) / sizeof(besides[0]); k++) {
            uint32_t worker = chacha_below(&c, config->workers);
            if (chacha_ppm(&c, besides[k].ppm)) {
                add(p, besides[k].kind, worker, false);
            }
        }
        uint32_t worker = chacha_below(&c, config->workers);
        add(p, draw(&c, safety_weights), worker, false);
        if (config->overload != OVERLOAD_NONE && i == config->ops / 2) {
            add(p, STEP_OVERLOAD, 0, false);
        }
        if (config->overload != OVERLOAD_NONE && i == config->ops / 2 + 100) {
            add(p, STEP_MEASURE, 0, false);
        }
    }
    add(p, STEP_CALM, 0, true);
    for (uint32_t i = 0; i < config->liveness; i++) {
        uint32_t worker = chacha_below(&c, config->workers);
        add(p, draw(&c, liveness_weights), worker, true);
    }
}

void plan_free(struct plan *p)
{
    free(p->steps);
    *p = (struct plan){0};
}

bool plan_keep(struct plan *p, const char *numbers)
{
    const char *at = numbers;
    uint32_t kept = 0, i = 0;
    uint64_t least = 0;
    do {
        char *end;
        uint64_t first = strtoull(at, &end, 10), last = first;
        if (end == at || *at < '0' || *at > '9') {
            return false;
        }
        if (*end == '-') {
            at = end + 1;
            last = strtoull(at, &end, 10);
            if (end == at || *at < '0' || *at > '9') {
                return false;
            }
        }
        if (first < least || last < first || last > p->count || (*end != 0 && *end != ',')) {
            return false;
        }
        for (; i < p->count && p->steps[i].number <= last; i++) {
            if (p->steps[i].number >= first) {
                p->steps[kept++] = p->steps[i];
            }
        }
        least = last + 1;
        at = end + 1;
    } while (at[-1] == ',');
    p->count = kept;
    return true;
}
