#include "tracer.h"

#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nothing else asks for it. */
#define MARK SYS_getppid

void tracer_mark(void)
{
    syscall(MARK);
}

static void be_traced(void (*traced)(void *argument), void *argument)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        perror("ptrace");
        _exit(1);
    }
    raise(SIGSTOP);
    traced(argument);
    _exit(0);
}

/* Lets the child go on until it enters a call, whose number is returned; -1 when it has ended. */
static int64_t next_call(pid_t child)
{
    int status;
    int pass_on = 0;
    for (;;) {
        struct __ptrace_syscall_info info;
        if (ptrace(PTRACE_SYSCALL, child, NULL, pass_on) != 0 || waitpid(child, &status, 0) < 0 ||
            !WIFSTOPPED(status)) {
            return -1;
        }
        pass_on = 0;
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
            pass_on = WSTOPSIG(status);
        } else if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) > 0 &&
                   info.op == PTRACE_SYSCALL_INFO_ENTRY) {
            return (int64_t)info.entry.nr;
        }
    }
}

bool tracer_run(void (*traced)(void *argument), void *argument, uint64_t *counts, uint32_t spans)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        be_traced(traced, argument);
    }
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) {
        return false;
    }
    uint32_t marks = 0;
    int64_t call;
    for (uint32_t i = 0; i < spans; i++) {
        counts[i] = 0;
    }
    while ((call = next_call(child)) >= 0) {
        if (call == MARK) {
            marks++;
        } else if (marks >= 1 && marks <= spans) {
            counts[marks - 1]++;
        }
    }
    if (marks != spans + 1) {
        fprintf(stderr, "what was traced did not come to its end\n");
        abort();
    }
    return true;
}
