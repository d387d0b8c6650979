/*
 * A shop is a store in a directory of its own, for one test: opened as often as the test likes, by
 * handles that read the shop's clock (and have no guardian), or by ordinary ones.
 */
#ifndef RF_TEST_SHOP_H
#define RF_TEST_SHOP_H

#include <unity.h>

#include "box.h"

struct rf_shop {
    char directory[64];
    uint64_t now; /* what the clock of its manual handles says */
};

/* Makes the directory, nothing in it; the time is 1000. */
void rf_shop_found(struct rf_shop *shop);
/* Removes store and directory. Fails the test if somebody still has it open. */
void rf_shop_raze(struct rf_shop *shop);

/* Opens it, making it if it is not there: by hand and with the shop's clock, or as a program would.
 * What is asked for goes on top; NULL is small capacities. */
rf_store *rf_shop_enter(struct rf_shop *shop, const rf_options *asked);
rf_store *rf_shop_enter_living(const struct rf_shop *shop, const rf_options *asked);
/* Capacities that are enough for most tests and cost little memory. */
rf_options rf_shop_small(void);

/* Declares the process of a manual handle dead, as the kernel would, and forgets the handle without
 * a word to the store. Somebody has to tend. */
void rf_shop_die(rf_store *store);

/* A run with `count` shards, ids 1 to count, side by side: [k00000, k00001), [k00001, k00002), ... */
void rf_shop_stock(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                   const rf_run_config *config, uint32_t count);
/* The key k00042; valid until 16 more were made. */
rf_bytes rf_shop_key(uint32_t n);

/* A grant with room for everything, one a slot of 4; a run or shard as it is shown. */
rf_grant rf_shop_blank(uint32_t slot);
rf_shard_info rf_shop_shard(rf_store *store, const rf_tenant *tenant, uint64_t run, uint64_t shard);
rf_run_info rf_shop_run(rf_store *store, const rf_tenant *tenant, uint64_t run);
rf_capacity rf_shop_capacity(rf_store *store, const rf_tenant *tenant, uint64_t run);
rf_inspection rf_shop_inspect(rf_store *store);

/* How a shard differs from what a test expects, in words; NULL if it does not. Everything that
 * rf_shard_info shows is compared, but its version. */
const char *rf_shop_difference(const rf_shard_info *info, const struct rf_box *box);

/* The sentence about a refusal; valid until the next call. */
const char *rf_shop_sentence(rf_status status, const rf_detail *detail);
/* Prints the sentence, and fails the test unless it has all these words, separated by '|'. */
void rf_shop_expect_words(rf_status status, const rf_detail *detail, const char *words);

/* Sanitizers make everything slower, and their allocator does not survive a fork in a process with
 * several threads. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RF_SHOP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RF_SHOP_SANITIZED 1
#endif
#endif
#ifndef RF_SHOP_SANITIZED
#define RF_SHOP_SANITIZED 0
#endif

/* Statuses are compared by their names: a failure can be read. */
#define RF_EXPECT(status, call)                                                                    \
    TEST_ASSERT_EQUAL_STRING(rf_status_name(status), rf_status_name(call))

#endif
