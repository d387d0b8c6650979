/* monitor: events as they happen. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "commands.h"

#define BATCH    256
#define PAUSE_NS (20 * RF_MILLISECOND)

static const struct option_spec monitor_options[] = {
    {"run", 'r', OPTION_NUMBER, "RUN", "only events of this run"},
    {"count", 'n', OPTION_NUMBER, "N", "end after so many events"},
    {"for", 0, OPTION_DURATION, "TIME", "end after this long"},
    {"all-tenants", 'a', OPTION_FLAG, NULL, "events of every tenant, not only of one"},
    {0},
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal)
{
    (void)signal;
    stopped = 1;
}

static void print_json(const rf_event *e)
{
    printf("{\"event\":\"%s\",\"time_ns\":%" PRIu64 ",\"tenant\":\"%s\",\"run\":\"%s\"",
           rf_event_name(e->kind), e->time, tenant_text(&e->tenant), id_text(e->run));
    if (e->kind < RF_EVENT_RUN_CREATED) {
        printf(",\"shard\":\"%s\"", id_text(e->shard));
    }
    switch (e->kind) {
    case RF_EVENT_ACQUIRED:
        printf(",\"worker\":\"%s\",\"fence\":%" PRIu64 ",\"deadline_ns\":%" PRIu64,
               id_text(e->worker), e->fence, e->deadline);
        break;
    case RF_EVENT_UNPARKED:
        printf(",\"fence\":%" PRIu64, e->fence);
        break;
    case RF_EVENT_CHECKPOINTED:
    case RF_EVENT_COMPLETED:
        printf(",\"key_len\":%" PRIu32, e->key_len);
        break;
    case RF_EVENT_PARKED:
        printf(",\"reason\":\"%s\"", park_reason_word(e->reason));
        break;
    case RF_EVENT_RESIDUAL_CREATED:
        printf(",\"child\":\"%s\"", id_text(e->child));
        break;
    case RF_EVENT_SPLIT:
    case RF_EVENT_RUN_ACTIVATED:
    case RF_EVENT_SHARDS_ADDED:
        printf(",\"count\":%" PRIu32, e->count);
        break;
    default:
        break;
    }
    fputs("}\n", stdout);
}

static void print_line(const rf_event *e)
{
    enum out_colour colour = e->kind == RF_EVENT_PARKED || e->kind == RF_EVENT_OWNER_LOST ||
                                     e->kind == RF_EVENT_RUN_FAILED
                                 ? OUT_RED
                             : e->kind == RF_EVENT_COMPLETED || e->kind == RF_EVENT_RUN_COMPLETED
                                 ? OUT_GREEN
                                 : OUT_PLAIN;
    printf("%s.%03u  %s%-16s%s run %s", time_text(e->time) + 11,
           (unsigned)(e->time / RF_MILLISECOND % 1000), colour_on(stdout, colour),
           rf_event_name(e->kind), colour_off(stdout), id_text(e->run));
    if (e->kind < RF_EVENT_RUN_CREATED) {
        printf(" shard %s", id_text(e->shard));
    }
    switch (e->kind) {
    case RF_EVENT_ACQUIRED:
        printf(" worker %s fence %" PRIu64, id_text(e->worker), e->fence);
        break;
    case RF_EVENT_UNPARKED:
        printf(" fence %" PRIu64, e->fence);
        break;
    case RF_EVENT_PARKED:
        printf(" %s", park_reason_word(e->reason));
        break;
    case RF_EVENT_RESIDUAL_CREATED:
        printf(" child %s", id_text(e->child));
        break;
    case RF_EVENT_SPLIT:
    case RF_EVENT_RUN_ACTIVATED:
    case RF_EVENT_SHARDS_ADDED:
        printf(" shards %" PRIu32, e->count);
        break;
    default:
        break;
    }
    putchar('\n');
}

struct wanted {
    bool any_run;
    uint64_t run;
    const rf_tenant *tenant; /* NULL: of all */
    uint64_t left;
};

static void print_events(const rf_event *events, size_t count, struct wanted *w)
{
    for (size_t i = 0; i < count && w->left != 0; i++) {
        const rf_event *e = &events[i];
        if ((!w->any_run && e->run != w->run) ||
            (w->tenant != NULL && memcmp(&e->tenant, w->tenant, sizeof(e->tenant)) != 0)) {
            continue;
        }
        w->left--;
        if (out_is_json()) {
            print_json(e);
        } else {
            print_line(e);
        }
    }
}

static void print_lost(uint64_t lost)
{
    if (out_is_json()) {
        printf("{\"event\":\"lost\",\"count\":%" PRIu64 "}\n", lost);
    } else {
        printf("%s... %" PRIu64 " events were not read in time%s\n", colour_on(stdout, OUT_YELLOW),
               lost, colour_off(stdout));
    }
}

static rf_status follow(rf_monitor *monitor, struct wanted *w, uint64_t until)
{
    static rf_event events[BATCH];
    while (!stopped && w->left != 0 && !ferror(stdout)) {
        size_t count = 0;
        uint64_t lost = 0;
        rf_status status = rf_monitor_read(monitor, events, BATCH, &count, &lost);
        if (status != RF_OK) {
            return status;
        }
        if (lost != 0) {
            print_lost(lost);
        }
        print_events(events, count, w);
        if (count < BATCH) {
            fflush(stdout);
            if (monotonic_ns() >= until) {
                break;
            }
            sleep_ns(PAUSE_NS);
        }
    }
    return RF_OK;
}

static int run_monitor(struct cli *cli)
{
    const struct args *a = &cli->args;
    rf_store *store;
    rf_monitor *monitor;
    struct wanted wanted = {.any_run = !arg_given(a, "run"),
                            .run = arg_number(a, "run", 0),
                            .tenant = arg_given(a, "all-tenants") ? NULL : &cli->tenant,
                            .left = arg_number(a, "count", UINT64_MAX)};
    int code = open_to_look(cli, a->words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_monitor_create(store, &monitor);
    if (status == RF_OK) {
        uint64_t until = monotonic_after(arg_number(a, "for", UINT64_MAX));
        sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
        sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
        status = follow(monitor, &wanted, until);
        rf_monitor_destroy(monitor);
    }
    rf_close(store);
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, NULL, 0, "%s", a->words[0]);
}

const struct command command_monitor = {
    .name = "monitor",
    .synopsis = "DIR [--run RUN]",
    .summary = "print events as they happen",
    .text =
        "Reads along without slowing anybody down: what is not read in time is lost, and said so. "
        "Renewals are not shown, and no key ever is.",
    .examples = "ringfence monitor ./farm --run 1\nringfence monitor --json --for 10s ./farm",
    .options = monitor_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .tenant = true,
    .run = run_monitor,
};
