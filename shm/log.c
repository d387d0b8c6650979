#include "log.h"

void rf_log_start(struct rf_header *h, uint64_t first, const struct rf_log_end *after)
{
    uint64_t position = first * (h->segment_bytes - RF_LOG_BLOCK) / RF_LOG_BLOCK;
    h->log_first = first;
    h->log_after = *after;
    atomic_store(&h->epoch, after->epoch + 1);
    atomic_store(&h->durable, after->epoch);
    atomic_store(&h->log_made, first);
    for (uint64_t i = 0; i < RF_LOG_ENTRIES; i++) {
        /* The last epoch before the first one that uses this entry, done. Counted from one round on, so
         * that an epoch 0 has predecessors too. */
        struct rf_log_entry *e = &h->log[i];
        uint64_t last = after->epoch + RF_LOG_ENTRIES;
        uint64_t epoch = last - (last - i) % RF_LOG_ENTRIES;
        uint64_t tag = (epoch / RF_LOG_ENTRIES) << 32;
        atomic_store(&e->writer, tag);
        atomic_store(&e->durable, tag);
        atomic_store(&e->done, tag);
        atomic_store(&e->end[0], tag | (uint32_t)position);
        atomic_store(&e->end[1], tag | position >> 32);
        for (unsigned k = 0; k < RF_LOG_HASH / 4; k++) {
            uint32_t part;
            memcpy(&part, after->hash + 4 * k, 4);
            atomic_store(&e->hash[k], tag | part);
        }
    }
}

struct rf_segment_header rf_log_segment_header(const struct rf_header *h, uint64_t number)
{
    struct rf_segment_header s = {.magic = RF_SEGMENT_MAGIC,
                                  .format = RF_LOG_FORMAT,
                                  .header_bytes = sizeof(s),
                                  .number = number,
                                  .segment_bytes = h->segment_bytes,
                                  .incarnation = h->incarnation,
                                  .first_number = h->log_first,
                                  .after = h->log_after};
    memcpy(s.store_id, h->store_id, sizeof(s.store_id));
    return s;
}
