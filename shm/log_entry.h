/*
 * What all who write the log agree upon about a batch that is sealed and not durable: its place, its hash, and
 * whether it is written. The words are explained with struct rf_log_entry.
 */
#ifndef RF_LOG_ENTRY_H
#define RF_LOG_ENTRY_H

#include <assert.h>
#include <string.h>

#include "point.h"
#include "region.h"

static inline uint64_t rf_entry_tag(uint64_t epoch)
{
    return (epoch + RF_LOG_ENTRIES) / RF_LOG_ENTRIES;
}

static inline struct rf_log_entry *rf_entry_of(const struct rf_map *map, uint64_t epoch)
{
    return &map->header->log[epoch % RF_LOG_ENTRIES];
}

/* Whether the word speaks of this epoch; then *value is what it says. */
static inline bool rf_entry_says(const rf_word64 *word, uint64_t epoch, uint32_t *value)
{
    uint64_t w = atomic_load_explicit(word, memory_order_acquire);
    *value = (uint32_t)w;
    return w >> 32 == (uint32_t)rf_entry_tag(epoch);
}

/* Makes the word say `*value` of this epoch, if it says nothing yet. False: the entry is not this
 * epoch's any more, whoever asks is late. Pairs with says. */
static inline bool rf_entry_agree(rf_word64 *word, uint64_t epoch, uint32_t *value)
{
    uint32_t tag = (uint32_t)rf_entry_tag(epoch);
    uint64_t w = atomic_load_explicit(word, memory_order_acquire);
    for (;;) {
        if (w >> 32 == tag) {
            *value = (uint32_t)w;
            return true;
        }
        if (w >> 32 != tag - 1u) {
            return false;
        }
        if (atomic_compare_exchange_strong_explicit(word, &w, (uint64_t)tag << 32 | *value,
                                                    memory_order_acq_rel, memory_order_acquire)) {
            return true;
        }
    }
}

static inline bool rf_entry_done(const struct rf_map *map, uint64_t epoch)
{
    uint32_t value;
    return rf_entry_says(&rf_entry_of(map, epoch)->done, epoch, &value);
}

/* Where batch `epoch` ended and its hash; false if that is not published (any more). */
static inline bool rf_entry_end(const struct rf_map *map, uint64_t epoch, struct rf_log_end *end)
{
    const struct rf_log_entry *e = rf_entry_of(map, epoch);
    uint32_t low, high;
    bool there = rf_entry_says(&e->end[0], epoch, &low) && rf_entry_says(&e->end[1], epoch, &high);
    for (unsigned k = 0; there && k < RF_LOG_HASH / 4; k++) {
        uint32_t part;
        there = rf_entry_says(&e->hash[k], epoch, &part);
        memcpy(end->hash + 4 * k, &part, 4);
    }
    if (there) {
        end->epoch = epoch;
        end->position = ((uint64_t)high << 32 | low) * RF_LOG_BLOCK;
    }
    return there;
}

static inline bool rf_entry_publish(const struct rf_map *map, const struct rf_log_end *end)
{
    struct rf_log_entry *e = rf_entry_of(map, end->epoch);
    uint64_t blocks = end->position / RF_LOG_BLOCK;
    uint32_t low = (uint32_t)blocks, high = (uint32_t)(blocks >> 32);
    bool mine = rf_entry_agree(&e->end[0], end->epoch, &low) &&
                rf_entry_agree(&e->end[1], end->epoch, &high);
    assert(!mine || (low == (uint32_t)blocks && high == blocks >> 32));
    for (unsigned k = 0; mine && k < RF_LOG_HASH / 4; k++) {
        uint32_t part, agreed;
        memcpy(&part, end->hash + 4 * k, 4);
        agreed = part;
        mine = rf_entry_agree(&e->hash[k], end->epoch, &agreed);
        assert(!mine || agreed == part); /* a batch has one value */
        RF_POINT("log.publishing");
    }
    return mine;
}

#endif
