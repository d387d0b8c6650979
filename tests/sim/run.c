#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * RF_SECOND + (uint64_t)t.tv_nsec;
}

static bool finished(const struct world *w)
{
    for (uint32_t i = 0; i < w->model.run_count; i++) {
        for (uint32_t k = 0; k < w->model.runs[i].count; k++) {
            if (w->model.runs[i].shards[k].status == RF_SHARD_ACTIVE) {
                return false;
            }
        }
    }
    return true;
}

static void play(struct world *w, const struct plan *plan)
{
    driver_start(w);
    for (uint32_t i = 0; i < plan->count; i++) {
        if (plan->steps[i].calm && plan->steps[i].kind != STEP_CALM) {
            if (finished(w)) {
                break;
            }
            w->report->liveness_used++;
        }
        w->report->step = i + 1;
        driver_step(w, &plan->steps[i]);
    }
    driver_finish(w);
}

void sim_run(const struct sim_config *config, const struct plan *plan, struct sim_report *report)
{
    static struct world w;
    uint64_t begun = cpu_ns();
    memset(&w, 0, sizeof(w));
    memset(report, 0, sizeof(*report));
    report->seed = config->seed;
    report->plan_steps = plan->count;
    w.report = report;
    w.config = config;
    if (setjmp(w.failed) == 0) {
        world_open(&w, config, report);
        play(&w, plan);
    } else if (config->trace != NULL && w.overseer != NULL && strcmp(report->kind, "error") != 0) {
        fprintf(config->trace, "FAILED: %s: %s\n", report->kind, report->what);
        observe_print(&w, config->trace);
    }
    report->end_time = w.now;
    world_end_stream(&w);
    world_close(&w);
    report->nanoseconds = cpu_ns() - begun;
}

/* --- apart --- */

void sim_run_apart(const struct sim_config *config, const struct plan *plan,
                   struct sim_report *report)
{
    struct sim_report *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        abort();
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        abort();
    }
    if (child == 0) {
        struct rlimit files;
        if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
            files.rlim_cur = files.rlim_max; /* the dead leave theirs open */
            setrlimit(RLIMIT_NOFILE, &files);
        }
        sim_run(config, plan, shared);
        fflush(NULL);
        _exit(0);
    }
    int how = 0;
    waitpid(child, &how, 0);
    *report = *shared;
    munmap(shared, sizeof(*shared));
    if (WIFSIGNALED(how) || WEXITSTATUS(how) != 0) {
        report->seed = config->seed;
        report->crashed = report->failed = true;
        report->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
        snprintf(report->kind, sizeof(report->kind), "crash");
        snprintf(report->what, sizeof(report->what), "the process ended with %s %d",
                 WIFSIGNALED(how) ? "signal" : "status",
                 WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how));
        if (report->directory[0] != 0) {
            world_clear_away(report->directory);
        }
    }
}

/* --- shrinking --- */

static bool fails_alike(const struct sim_config *config, const struct plan *plan,
                        const struct sim_report *first)
{
    struct sim_report r;
    sim_run_apart(config, plan, &r);
    return r.failed && strcmp(r.kind, first->kind) == 0;
}

static void cut(struct plan *to, const struct plan *from, uint32_t begin, uint32_t end)
{
    to->count = 0;
    for (uint32_t i = 0; i < from->count; i++) {
        if (i < begin || i >= end) {
            to->steps[to->count++] = from->steps[i];
        }
    }
}

/* First everything behind the failing step goes, then ever smaller pieces. */
void sim_shrink(const struct sim_config *config, struct plan *plan, const struct sim_report *first,
                uint32_t tries)
{
    struct sim_config quiet = *config;
    quiet.trace = NULL;
    quiet.events = NULL;
    if (first->step != 0 && first->step < plan->count && strcmp(first->kind, "liveness") != 0) {
        plan->count = first->step;
    }
    struct plan less = {.steps = malloc((plan->count + 1) * sizeof(*less.steps))};
    if (less.steps == NULL) {
        abort();
    }
    for (uint32_t size = (plan->count + 1) / 2; size > 0 && tries > 0; size = size / 2) {
        for (uint32_t at = 0; at < plan->count && tries > 0; tries--) {
            uint32_t end = at + size < plan->count ? at + size : plan->count;
            cut(&less, plan, at, end);
            if (fails_alike(&quiet, &less, first)) {
                memcpy(plan->steps, less.steps, less.count * sizeof(*less.steps));
                plan->count = less.count;
            } else {
                at = end;
            }
        }
    }
    free(less.steps);
}

void sim_explain(const struct sim_config *config, const struct plan *plan, FILE *out)
{
    struct sim_config loud = *config;
    struct sim_report r;
    loud.trace = out;
    fprintf(out, "%u steps:", plan->count);
    for (uint32_t i = 0; i < plan->count; i++) {
        fprintf(out, " %u:%s/%u", plan->steps[i].number,
                step_name((enum step_kind)plan->steps[i].kind), plan->steps[i].worker);
    }
    fputc('\n', out);
    sim_run_apart(&loud, plan, &r);
}
