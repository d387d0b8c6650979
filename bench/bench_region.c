/*
 * What the operations cost on a region in shared memory.
 *
 * The unit is h (bare.h). Every call that is timed is asserted to have returned RF_OK and to have
 * been executed: a refusal would be fast, and worth nothing. README.md says what each row is and
 * where its goal comes from.
 */
#include "region/region.h"

#include <string.h>

struct bench_options options;
struct bare bare;
static bool missed; /* a goal */

void report(struct bench_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (!bare_is_bare() && cases[i].ratio_to == NULL && cases[i].unit == NULL) {
            cases[i].kind = BENCH_NO_GOAL; /* it is about the bare compressions */
        }
        missed = missed || !bench_met(&cases[i]);
    }
    bench_print_rows(stdout, &options, "region", "h", cases, count);
}

void measure(const char *group, struct bench_case *cases, uint32_t count, uint32_t rounds)
{
    static bool shown;
    if (!bench_wanted(&options, group)) {
        count = bench_select(&options, cases, count);
    }
    if (count == 1) {
        return;
    }
    bench_measure(cases, count, rounds);
    report(shown ? cases + 1 : cases, shown ? count - 1 : count);
    shown = true;
}

struct bench_case h_case(void)
{
    return (struct bench_case){.name = bare_name(), .run = bare_run, .context = &bare};
}

static int program(int argc, char **argv)
{
    static struct farm farm;
    uint8_t key[FARM_KEY_LEN];
    (void)argc;
    (void)argv;
    int core = bench_pin();
    if (!options.json) {
        printf("median of %u rounds, core %d, %s\n", options.rounds, core, __VERSION__);
    }
    bench_print_head(stdout, &options, "region", "h");
    fflush(stdout);
    farm_key(key, 1, 1);
    bare_init(&bare, key);

    farm_open(&farm, "main", 4 * SHARDS, false);
    measure_held(&farm);
    measure_pair(&farm);
    measure_calls(&farm);
    farm_close(&farm);
    measure_kill();
    measure_growth();
    bench_print_quiet(stdout, &options, "region");
    return options.check && missed ? 1 : 0;
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    return farm_supervise(program, argc, argv);
}
