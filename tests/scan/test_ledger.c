/* The fence at the resource: what counts of the ledgers, and that nothing else does. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ledger.h"
#include "trial.h"

static struct trial trial;
static int dir;
static uint64_t seen[64];
static size_t seen_count;

void setUp(void)
{
    trial_begin(&trial);
    dir = open(trial.tree, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    seen_count = 0;
}

void tearDown(void)
{
    close(dir);
    trial_end(&trial);
}

static struct ledger begin(uint64_t fence, const struct progress *p)
{
    struct ledger l = {0};
    ledger_begin(&l, dir, false, &(rf_lease){.shard = 7, .fence = fence}, p);
    return l;
}

static void add(struct ledger *l, uint64_t start)
{
    ledger_add(l, &(struct record){.kind = RECORD_FINDING, .start = start});
}

static void note(void *context, const struct record *record)
{
    (void)context;
    seen[seen_count++] = record->start;
}

static bool read_all(const struct progress *p, uint64_t fence_max)
{
    uint64_t bytes = 0;
    seen_count = 0;
    return ledger_read(dir, 7, fence_max, p, note, NULL, &bytes);
}

static struct progress none(void)
{
    struct progress p;
    TEST_ASSERT_TRUE(progress_decode((rf_bytes){0}, &p));
    return p;
}

static void only_what_was_committed_is_read(void)
{
    struct progress p = none(), committed;
    struct ledger l = begin(2, &p);
    add(&l, 10);
    TEST_ASSERT_TRUE(ledger_write(&l, &p));
    committed = p; /* the checkpoint */
    add(&l, 20);
    TEST_ASSERT_TRUE(ledger_write(&l, &p)); /* and one that was refused */
    ledger_end(&l);
    TEST_ASSERT_TRUE(read_all(&committed, 2));
    TEST_ASSERT_EQUAL_UINT64(1, seen_count);
    TEST_ASSERT_EQUAL_UINT64(10, seen[0]);
}

/* The zombie writes before, while and after its successors do. */
static void a_zombie_adds_nothing(void)
{
    struct progress p = none(), theirs;
    struct ledger zombie = begin(2, &p);
    add(&zombie, 1);
    TEST_ASSERT_TRUE(ledger_write(&zombie, &p));
    struct progress committed = p;
    add(&zombie, 2);
    TEST_ASSERT_TRUE(ledger_write(&zombie, &p));

    theirs = committed;
    struct ledger heir = begin(5, &theirs);
    add(&zombie, 3);
    TEST_ASSERT_TRUE(ledger_write(&zombie, &p));
    add(&heir, 2);
    TEST_ASSERT_TRUE(ledger_write(&heir, &theirs));
    add(&zombie, 4);
    TEST_ASSERT_TRUE(ledger_write(&zombie, &p));
    ledger_end(&heir);

    struct ledger third = begin(9, &theirs);
    add(&third, 5);
    TEST_ASSERT_TRUE(ledger_write(&third, &theirs));
    ledger_end(&third);
    add(&zombie, 6);
    TEST_ASSERT_TRUE(ledger_write(&zombie, &p));
    ledger_end(&zombie);

    TEST_ASSERT_TRUE(read_all(&theirs, 9));
    TEST_ASSERT_EQUAL_UINT64(3, seen_count);
    TEST_ASSERT_EQUAL_UINT64(5, seen[0]); /* from the newest lease back */
    TEST_ASSERT_EQUAL_UINT64(2, seen[1]);
    TEST_ASSERT_EQUAL_UINT64(1, seen[2]);
}

/* One that found nothing leaves no file and no link in the chain. */
static void a_lease_without_findings_leaves_no_trace(void)
{
    struct progress p = none();
    struct ledger l = begin(2, &p);
    TEST_ASSERT_TRUE(ledger_write(&l, &p));
    ledger_end(&l);
    TEST_ASSERT_EQUAL_UINT64(0, p.ledger_fence);
    TEST_ASSERT_TRUE(read_all(&p, 2));
    TEST_ASSERT_EQUAL_UINT64(0, seen_count);
}

static void a_fence_is_used_once(void)
{
    struct progress p = none(), q = none();
    struct ledger l = begin(2, &p), again = begin(2, &q);
    add(&l, 1);
    add(&again, 2);
    TEST_ASSERT_TRUE(ledger_write(&l, &p));
    TEST_ASSERT_FALSE(ledger_write(&again, &q));
    ledger_end(&l);
    ledger_end(&again);
}

static void damage_is_noticed(void)
{
    struct progress p = none();
    struct ledger l = begin(3, &p);
    add(&l, 1);
    add(&l, 2);
    TEST_ASSERT_TRUE(ledger_write(&l, &p));
    ledger_end(&l);
    TEST_ASSERT_FALSE_MESSAGE(read_all(&p, 2), "a fence that was never granted");
    TEST_ASSERT_TRUE(read_all(&p, 3));
    TEST_ASSERT_EQUAL_INT(0, ftruncate(openat(dir, "0000000000000007-0000000000000003", O_RDWR),
                                       (off_t)p.ledger_length - 1));
    TEST_ASSERT_FALSE_MESSAGE(read_all(&p, 3), "shorter than committed");
    TEST_ASSERT_EQUAL_INT(0, unlinkat(dir, "0000000000000007-0000000000000003", 0));
    TEST_ASSERT_FALSE_MESSAGE(read_all(&p, 3), "gone");
    uint8_t token[8] = {0};
    TEST_ASSERT_FALSE(progress_decode((rf_bytes){token, sizeof(token)}, &p));
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(only_what_was_committed_is_read);
    RUN_TEST(a_zombie_adds_nothing);
    RUN_TEST(a_lease_without_findings_leaves_no_trace);
    RUN_TEST(a_fence_is_used_once);
    RUN_TEST(damage_is_noticed);
    return UNITY_END();
}
