/*
 * What this machine can do at best: the pieces that no coordinator can do without, by themselves.
 * Nothing here is ours but the sizes. README.md says what each row is.
 */
#include "floor/floor.h"

struct bench_options options;

void report(struct bench_case *cases, uint32_t count)
{
    bench_print_rows(stdout, &options, "floor", "h", cases, count);
}

int main(int argc, char **argv)
{
    options = bench_parse(argc, argv);
    bench_print_head(stdout, &options, "floor", "h");
    fflush(stdout);
    bench_pin();
    measure_core();
    bench_unpin();
    measure_cross();
    measure_memory();
    measure_disk();
    bench_print_quiet(stdout, &options, "floor");
    return 0;
}
