#include "drill.h"

#include <stdio.h>
#include <unity.h>

#include "prng.h"
#include "status_table.h"

#define RANDOM_SETS 2000u

static void describe(const struct rf_drill *drill, uint64_t faults, rf_status got, char *out,
                     size_t size)
{
    size_t len = (size_t)snprintf(out, size, "%s with {", drill->op);
    for (uint32_t bit = 0; bit < 64 && len < size; bit++) {
        if ((faults >> bit & 1u) != 0) {
            len += (size_t)snprintf(out + len, size - len, " %s", drill->faults[bit].name);
        }
    }
    if (len < size) {
        snprintf(out + len, size - len, " } returned %s", rf_status_name(got));
    }
}

static void try_set(const struct rf_drill *drill, uint64_t faults)
{
    if (drill->possible != NULL && !drill->possible(faults)) {
        return;
    }
    rf_detail detail = {0};
    rf_status expected = RF_OK, got = drill->attempt(faults, &detail);
    uint64_t limit = 0;
    if (faults != 0) {
        expected = drill->faults[__builtin_ctzll(faults)].status;
        limit = drill->faults[__builtin_ctzll(faults)].limit;
    }
    if (got != expected || (limit != 0 && detail.limit != limit)) {
        char said[512];
        describe(drill, faults, got, said, sizeof(said));
        TEST_FAIL_MESSAGE(said);
    }
}

static void check_row(const struct rf_drill *drill)
{
    const struct rf_table_row *row = rf_table_row(drill->op);
    bool had[RF_TABLE_STATUS] = {[RF_INVALID_TIME] = true, [RF_INVALID_ARGUMENT] = true};
    uint32_t at = 0;
    for (uint32_t bit = 0; bit < 64; bit++) {
        if ((drill->mask >> bit & 1u) == 0 || had[drill->faults[bit].status]) {
            continue;
        }
        rf_status status = drill->faults[bit].status;
        had[status] = true;
        TEST_ASSERT_TRUE_MESSAGE(at < row->count, rf_status_name(status));
        TEST_ASSERT_EQUAL_STRING_MESSAGE(rf_status_name(row->statuses[at]), rf_status_name(status),
                                         drill->op);
        at++;
    }
    TEST_ASSERT_EQUAL_UINT32_MESSAGE(row->count, at, drill->op);
    for (uint32_t i = 0; i < row->count; i++) {
        TEST_ASSERT_TRUE_MESSAGE(row->seen[row->statuses[i]], rf_status_name(row->statuses[i]));
    }
}

void rf_drill_run(const struct rf_drill *drill)
{
    try_set(drill, 0);
    for (uint32_t a = 0; a < 64; a++) {
        if ((drill->mask >> a & 1u) == 0) {
            continue;
        }
        try_set(drill, 1ull << a);
        for (uint32_t b = a + 1; b < 64; b++) {
            if ((drill->mask >> b & 1u) == 0) {
                continue;
            }
            try_set(drill, 1ull << a | 1ull << b);
            for (uint32_t c = b + 1; c < 64; c++) {
                if ((drill->mask >> c & 1u) != 0) {
                    try_set(drill, 1ull << a | 1ull << b | 1ull << c);
                }
            }
        }
    }
    struct rf_prng prng = {.state = 1};
    uint32_t highest = 64u - (uint32_t)__builtin_clzll(drill->mask);
    for (uint32_t i = 0; i < RANDOM_SETS; i++) {
        try_set(drill, rf_prng_next(&prng) & drill->mask);
        /* and with the early ones left out, which would win most of the time */
        uint32_t above = rf_prng_below(&prng, highest);
        try_set(drill, rf_prng_next(&prng) & drill->mask & (UINT64_MAX << above));
    }
    check_row(drill);
}
