/*
 * What a plan is made of, counted against the protocol's section 9: weights, rates and stages; and what the
 * faults of its table then do, by the stream of events: how long pauses are and how far the clock jumps.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "sim.h"

void setUp(void)
{
}

void tearDown(void)
{
}

static struct sim_config config_of(enum sim_level level, uint32_t ops, uint32_t liveness)
{
    return (struct sim_config){.seed = 77,
                               .level = level,
                               .workers = 4,
                               .shards = 15,
                               .ops = ops,
                               .liveness = liveness,
                               .overload = BURST_CLAIM,
                               .judges = JUDGE_REFERENCE | JUDGE_CHECKER};
}

/* Five standard deviations: plans are drawn from a seed, so that this holds always or never. */
static void is_about(const char *what, uint64_t n, uint64_t of, uint64_t ppm)
{
    int64_t expected = (int64_t)(of * ppm / 1000000), off = (int64_t)n - expected;
    char text[160];
    snprintf(text, sizeof(text), "%s: %" PRIu64 " of %" PRIu64 ", not %" PRIi64, what, n, of,
             expected);
    TEST_ASSERT_TRUE_MESSAGE(off * off <= 25 * expected && (ppm != 0 || n == 0), text);
}

static void count_steps(const struct plan *p, bool calm, uint64_t counts[STEP_KINDS])
{
    memset(counts, 0, STEP_KINDS * sizeof(*counts));
    for (uint32_t i = 0; i < p->count; i++) {
        counts[p->steps[i].kind] += p->steps[i].calm == calm;
    }
}

static void operations_come_by_their_weights(void)
{
    static const struct {
        enum step_kind kind;
        uint32_t safety, liveness; /* percent */
    } weights[STEP_TABLE] = {
        {STEP_ACQUIRE, 13, 30},     {STEP_RENEW, 10, 10},        {STEP_CHECKPOINT, 13, 15},
        {STEP_COMPLETE, 8, 30},     {STEP_PARK, 3, 0},           {STEP_UNPARK, 2, 0},
        {STEP_SPLIT_REPLACE, 4, 0}, {STEP_SPLIT_RESIDUAL, 4, 0}, {STEP_REPLAY, 2, 0},
        {STEP_CONFLICT, 2, 0},      {STEP_ZOMBIE, 3, 0},         {STEP_CLAIM, 3, 0},
        {STEP_SESSION, 8, 0},       {STEP_ADVANCE, 9, 10},       {STEP_PAUSE, 8, 0},
        {STEP_RESUME, 6, 5},        {STEP_END_RUN, 2, 0},
    };
    const uint32_t ops = 300000, liveness = 300000;
    const struct sim_config c = config_of(SIM_RADIOACTIVE, ops, liveness);
    struct plan plan;
    uint64_t safe[STEP_KINDS], calm[STEP_KINDS], all = 0;
    plan_make(&plan, &c);
    count_steps(&plan, false, safe);
    count_steps(&plan, true, calm);
    for (int i = 0; i < STEP_TABLE; i++) {
        is_about(step_name(weights[i].kind), safe[weights[i].kind], ops,
                 weights[i].safety * 10000u);
        is_about(step_name(weights[i].kind), calm[weights[i].kind], liveness,
                 weights[i].liveness * 10000u);
        all += safe[weights[i].kind];
    }
    TEST_ASSERT_EQUAL_UINT64(ops, all);
    plan_free(&plan);
}

static void faults_come_at_their_rates(void)
{
    static const struct {
        enum step_kind kind;
        uint32_t ppm[SIM_LEVELS];
    } rates[] = {
        /* the protocol's table */
        {STEP_EXPIRE, {0, 100000, 200000}},
        {STEP_STALL, {0, 50000, 100000}},
        {STEP_JUMP, {0, 100000, 200000}},
        /* ours, as in the README */
        {STEP_DIE, {0, 3000, 8000}},
        {STEP_DIE_AT, {0, 12000, 30000}},
        {STEP_STOP_AT, {0, 6000, 12000}},
        {STEP_DIE_KEEPING, {0, 2000, 4000}},
        {STEP_REOPEN, {0, 2000, 4000}},
        {STEP_LOSE_EVERYBODY, {0, 300, 600}},
        {STEP_LOSE_REGION, {0, 300, 600}},
    };
    const uint32_t ops = 300000;
    for (int level = SIM_SUNNY; level < SIM_LEVELS; level++) {
        const struct sim_config c = config_of((enum sim_level)level, ops, 100);
        struct plan plan;
        uint64_t counts[STEP_KINDS], faults = 0;
        plan_make(&plan, &c);
        count_steps(&plan, false, counts);
        for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
            is_about(step_name(rates[i].kind), counts[rates[i].kind], ops - 5, rates[i].ppm[level]);
            faults += counts[rates[i].kind];
        }
        uint64_t there_are = 0;
        for (int kind = STEP_EXPIRE; kind < STEP_PREAMBLE; kind++) {
            there_are += counts[kind];
        }
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(there_are, faults, "a fault that is not in this table");
        plan_free(&plan);
    }
}

static bool is_fault(uint8_t kind)
{
    return kind >= STEP_EXPIRE && kind < STEP_PREAMBLE;
}

static void stages_come_in_order(void)
{
    const struct sim_config c = config_of(SIM_RADIOACTIVE, 2000, 500);
    struct plan plan;
    uint32_t ops = 0, liveness = 0;
    bool calm = false;
    plan_make(&plan, &c);
    TEST_ASSERT_EQUAL(STEP_PREAMBLE, plan.steps[0].kind);
    for (uint32_t i = 0; i < plan.count; i++) {
        const struct step *s = &plan.steps[i];
        TEST_ASSERT_EQUAL_UINT32(i + 1, s->number);
        TEST_ASSERT_TRUE_MESSAGE(!calm || s->calm, "faults after liveness began");
        calm = s->calm;
        if (is_fault(s->kind)) {
            TEST_ASSERT_TRUE_MESSAGE(ops >= 5 && !calm, "a fault too early or too late");
        }
        if (s->kind == STEP_OVERLOAD) {
            TEST_ASSERT_EQUAL_UINT32(c.ops / 2 + 1, ops);
        }
        ops += s->kind < STEP_TABLE && !calm;
        liveness += s->kind < STEP_TABLE && calm;
    }
    TEST_ASSERT_EQUAL_UINT32(c.ops, ops);
    TEST_ASSERT_EQUAL_UINT32(c.liveness, liveness);
    plan_free(&plan);
}

/* --- what they do --- */

struct event {
    uint32_t step, kind, who;
    uint64_t now, last;
};

static uint64_t word_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) {
        v = v << 8 | p[i];
    }
    return v;
}

static bool next_event(FILE *f, struct event *e)
{
    uint8_t record[40];
    if (fread(record, sizeof(record), 1, f) != 1) {
        return false;
    }
    uint64_t head = word_at(record);
    *e = (struct event){.step = (uint32_t)(head >> 32),
                        .kind = (uint32_t)(head >> 16 & 0xffff),
                        .who = (uint32_t)(head >> 8 & 0xff),
                        .now = word_at(record + 8),
                        .last = word_at(record + 32)};
    return true;
}

struct span {
    uint64_t least, most, count;
};

static void widen(struct span *s, uint64_t v)
{
    s->least = s->count == 0 || v < s->least ? v : s->least;
    s->most = v > s->most ? v : s->most;
    s->count++;
}

static void is_span(const char *what, const struct span *s, uint64_t least, uint64_t most)
{
    char text[120];
    snprintf(text, sizeof(text), "%s: %" PRIu64 " .. %" PRIu64 ", %" PRIu64 " times", what,
             s->least, s->most, s->count);
    TEST_ASSERT_TRUE_MESSAGE(s->least == least && s->most == most, text);
}

/* Time goes on in a step only by what the step is: all calls are made before it does. */
static void clocks_jump_and_workers_pause_as_far_as_they_should(void)
{
    static const struct {
        uint64_t stall, jump_from, jump_to;
    } table[SIM_LEVELS] = {
        [SIM_STORMY] = {5, 50, 200},
        [SIM_RADIOACTIVE] = {10, 100, 500},
    };
    static struct sim_report report;
    for (int level = SIM_STORMY; level < SIM_LEVELS; level++) {
        struct sim_config c = config_of((enum sim_level)level, 12000, 10);
        struct plan plan;
        struct span jumps = {0}, stalls = {0}, expiries = {0};
        uint64_t now = 0, moved = 0;
        struct event e;
        c.events = tmpfile();
        c.liveness = 0; /* nobody waits for the end */
        TEST_ASSERT_NOT_NULL(c.events);
        plan_make(&plan, &c);
        sim_run_apart(&c, &plan, &report); /* the dead leave memory behind */
        TEST_ASSERT_FALSE_MESSAGE(report.failed, report.what);
        rewind(c.events);
        while (next_event(c.events, &e)) {
            TEST_ASSERT_TRUE_MESSAGE(e.now >= now, "time went back");
            switch (e.kind) {
            case 32 + STEP_JUMP:
                widen(&jumps, e.now - now);
                break;
            case 32 + STEP_STALL:
                widen(&stalls, e.last - e.now);
                break;
            case 32 + STEP_EXPIRE:
                widen(&expiries, e.now - now);
                moved += e.now != now;
                break;
            default:
                break;
            }
            now = e.now;
        }
        fclose(c.events);
        plan_free(&plan);
        is_span("jumps", &jumps, table[level].jump_from, table[level].jump_to);
        is_span("pauses", &stalls, 1, table[level].stall);
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(report.by_step[STEP_JUMP], jumps.count, "jumps");
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(report.by_step[STEP_STALL], stalls.count, "pauses");
        /* Where somebody holds something, it ends; a lease is never longer than its duration. */
        TEST_ASSERT_EQUAL_UINT64_MESSAGE(report.expired, moved, "leases that ended");
        TEST_ASSERT_TRUE_MESSAGE(report.expired * 4 > expiries.count, "hardly any lease ended");
        TEST_ASSERT_TRUE_MESSAGE(expiries.most <= SIM_LEASE, "further than any lease");
        printf("  level %d: %" PRIu64 " of %" PRIu64 " expiries met a lease that was good\n", level,
               report.expired, expiries.count);
    }
}

/* --- parts of a plan --- */

static void parts_of_a_plan_keep_their_numbers(void)
{
    static const struct {
        const char *list;
        bool good;
        uint32_t count, first, last;
    } lists[] = {
        {"1", true, 1, 1, 1},        {"2,5-8,40", true, 6, 2, 40}, {"7-7", true, 1, 7, 7},
        {"0", true, 0, 0, 0},        {"", false, 0, 0, 0},         {"3,2", false, 0, 0, 0},
        {"8-5", false, 0, 0, 0},     {"1,", false, 0, 0, 0},       {"1-", false, 0, 0, 0},
        {"-1", false, 0, 0, 0},      {"1 2", false, 0, 0, 0},      {"3,3", false, 0, 0, 0},
        {"4000000", false, 0, 0, 0},
    };
    const struct sim_config c = config_of(SIM_STORMY, 100, 10);
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        struct plan plan;
        plan_make(&plan, &c);
        TEST_ASSERT_EQUAL_MESSAGE(lists[i].good, plan_keep(&plan, lists[i].list), lists[i].list);
        if (lists[i].good) {
            TEST_ASSERT_EQUAL_UINT32_MESSAGE(lists[i].count, plan.count, lists[i].list);
        }
        if (lists[i].count != 0) {
            TEST_ASSERT_EQUAL_UINT32(lists[i].first, plan.steps[0].number);
            TEST_ASSERT_EQUAL_UINT32(lists[i].last, plan.steps[plan.count - 1].number);
        }
        plan_free(&plan);
    }
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(operations_come_by_their_weights);
    RUN_TEST(faults_come_at_their_rates);
    RUN_TEST(stages_come_in_order);
    RUN_TEST(clocks_jump_and_workers_pause_as_far_as_they_should);
    RUN_TEST(parts_of_a_plan_keep_their_numbers);
    return UNITY_END();
}
