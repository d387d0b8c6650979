/*
 * What durability costs: against the bare write that it can't do without, and against others who promise
 * the same. Every operation that is counted is asserted to have returned RF_OK. README.md says what each
 * row is and where its goal comes from.
 *
 * The files are made in $RF_BENCH_DIR, or /var/tmp: it should be on the disk that is meant.
 */
#include "log/log.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct bench_options options;
char place[160];
static bool missed;

void report(struct bench_case *cases, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        missed = missed || !bench_met(&cases[i]);
    }
    bench_print_rows(stdout, &options, "log", "", cases, count);
    fflush(stdout);
}

void must(rf_status status, const rf_detail *detail, const char *what)
{
    if (__builtin_expect(status != RF_OK, 0)) {
        char text[320];
        rf_explain(status, detail, text, sizeof(text));
        fprintf(stderr, "%s: %s\n", what, text);
        abort();
    }
}

static void measure_all(void)
{
    bench_print_head(stdout, &options, "log", "");
    fflush(stdout);
    measure_waiting();
    measure_steps();
    measure_flood();
    measure_recovery();
    measure_snapshot();
}

/* The work is done by a child, so that the directory is removed however it ends. */
int main(int argc, char **argv)
{
    const char *where = getenv("RF_BENCH_DIR");
    options = bench_parse(argc, argv);
    snprintf(place, sizeof(place), "%.120s/rf-bench-log-%d", where != NULL ? where : "/var/tmp",
             (int)getpid());
    char remove[256];
    snprintf(remove, sizeof(remove), "rm -rf '%s' /dev/shm/rf-bench-log-%d.*", place,
             (int)getpid());
    char make[256];
    snprintf(make, sizeof(make), "mkdir '%s'", place);
    if (system(make) != 0) {
        return 2;
    }
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        measure_all();
        exit(missed && options.check ? 1 : 0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    int cleaned = system(remove);
    return WIFEXITED(status) && cleaned == 0 ? WEXITSTATUS(status) : 2;
}
