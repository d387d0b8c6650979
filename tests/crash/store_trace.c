#define _GNU_SOURCE
#include "store_trace.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define PAGE      4096u
#define TRAP_FLAG 0x100
#define OPEN_MAX  4u

static struct {
    uint8_t *region;
    uint64_t size;
    struct rf_image *image;
    struct rf_changes *changes;
    void (*before)(void *context);
    void *context;
    uint64_t open[OPEN_MAX]; /* pages that the current instruction may write */
    unsigned open_count;
    struct sigaction old_fault, old_trap;
} trace;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    uint64_t offset = (uint64_t)((uint8_t *)info->si_addr - trace.region);
    if (offset >= trace.size || trace.open_count == OPEN_MAX) {
        signal(signal_number, SIG_DFL); /* not ours: it happens again, and ends us */
        return;
    }
    if (trace.before != NULL && trace.open_count == 0) {
        trace.before(trace.context);
    }
    uint64_t page = offset / PAGE * PAGE;
    trace.open[trace.open_count++] = page;
    mprotect(trace.region + page, PAGE, PROT_READ | PROT_WRITE);
    at->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void note_page(uint64_t page)
{
    const uint8_t *now = trace.region + page;
    uint8_t *was = trace.image->bytes + page;
    uint32_t from = 0, to = PAGE;
    while (from < to && now[from] == was[from]) {
        from++;
    }
    while (from < to && now[to - 1] == was[to - 1]) {
        to--;
    }
    if (from == to) {
        return;
    }
    if (to - from > RF_STORE_MAX) {
        abort(); /* more than one instruction */
    }
    struct rf_change *c = rf_changes_add(trace.changes);
    *c = (struct rf_change){.offset = page + from, .len = to - from, .files = -1};
    memcpy(c->was, was + from, c->len);
    memcpy(c->now, now + from, c->len);
    memcpy(was + from, now + from, c->len);
}

static void on_trap(int signal_number, siginfo_t *info, void *context)
{
    ucontext_t *at = context;
    (void)signal_number, (void)info;
    for (unsigned i = 0; i < trace.open_count; i++) {
        note_page(trace.open[i]);
        mprotect(trace.region + trace.open[i], PAGE, PROT_READ);
    }
    trace.open_count = 0;
    at->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

void rf_trace_begin(uint8_t *region, uint64_t size, struct rf_image *image,
                    struct rf_changes *changes, void (*before)(void *context), void *context)
{
    struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    struct sigaction trap = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    trace.region = region;
    trace.size = size;
    trace.image = image;
    trace.changes = changes;
    trace.before = before;
    trace.context = context;
    trace.open_count = 0;
    sigaction(SIGSEGV, &fault, &trace.old_fault);
    sigaction(SIGTRAP, &trap, &trace.old_trap);
    if (mprotect(region, size, PROT_READ) != 0) {
        abort();
    }
}

void rf_trace_end(void)
{
    if (mprotect(trace.region, trace.size, PROT_READ | PROT_WRITE) != 0) {
        abort();
    }
    sigaction(SIGSEGV, &trace.old_fault, NULL);
    sigaction(SIGTRAP, &trace.old_trap, NULL);
}
