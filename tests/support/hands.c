#define _GNU_SOURCE
#include "hands.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <unity.h>

#define GATE_MS_MAX 20000

pid_t rf_hands_send(rf_hands_work *work, void *context)
{
    fflush(NULL);
    pid_t parent = getpid();
    pid_t pid = fork();
    TEST_ASSERT_TRUE_MESSAGE(pid >= 0, "fork");
    if (pid != 0) {
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    volatile int code = RF_HANDS_FAILED;
    if (getppid() == parent && TEST_PROTECT()) {
        code = work(context);
    } else {
        putchar('\n'); /* behind the failure that was just printed */
    }
    fflush(NULL);
    _exit(code);
}

int rf_hands_wait(pid_t pid)
{
    int status = 0;
    char message[64];
    TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
    snprintf(message, sizeof(message), "a child ended by signal %d",
             WIFSIGNALED(status) ? WTERMSIG(status) : 0);
    TEST_ASSERT_TRUE_MESSAGE(WIFEXITED(status), message);
    return WEXITSTATUS(status);
}

void rf_hands_kill(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE_MESSAGE(WIFSIGNALED(status), "it had ended before");
}

void *rf_hands_board(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    TEST_ASSERT_TRUE(at != MAP_FAILED);
    return at;
}

void rf_hands_until(_Atomic uint32_t *word, uint32_t at_least)
{
    for (int i = 0; atomic_load(word) < at_least; i++) {
        TEST_ASSERT_TRUE_MESSAGE(i < GATE_MS_MAX * 5, "waited for a gate in vain");
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}
