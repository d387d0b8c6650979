/* Processes of a test: each runs one function in a child and ends with what it returns. A failed
 * assertion in a child ends it with RF_HANDS_FAILED; none outlives the test program. */
#ifndef RF_TEST_HANDS_H
#define RF_TEST_HANDS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RF_HANDS_FAILED 99

typedef int rf_hands_work(void *context);

pid_t rf_hands_send(rf_hands_work *work, void *context);
/* Waits for its end; fails the test if a signal ended it. */
int rf_hands_wait(pid_t pid);
/* Kills it (SIGKILL) and waits until it is gone. */
void rf_hands_kill(pid_t pid);

/* Memory that parent and children share, zeroed. Given back at the end of the program. */
void *rf_hands_board(size_t bytes);
/* A board's word as a gate: waits, at most 20 s, until it is at least this. */
void rf_hands_until(_Atomic uint32_t *word, uint32_t at_least);

#endif
