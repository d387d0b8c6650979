#include "progress.h"

void rf_progress_begin(rf_progress *progress)
{
    memset(progress, 0, sizeof(*progress));
}

static void lower_watermark(rf_progress *progress, rf_bytes key, uint8_t *watermark)
{
    rf_bytes low = rf_bytes_of(watermark, progress->watermark_len);
    if (progress->has_watermark && rf_bytes_compare(key, low) >= 0) {
        return;
    }
    if (key.len != 0) {
        memcpy(watermark, key.data, key.len);
    }
    progress->watermark_len = key.len;
    progress->has_watermark = true;
}

void rf_progress_add(rf_progress *progress, const struct rf_shard_state *state,
                     const rf_cursor *cursor, uint64_t now, uint8_t *watermark)
{
    progress->total++;
    switch ((rf_shard_status)state->status) {
    case RF_SHARD_ACTIVE:
        progress->active++;
        progress->leased += rf_shard_leased_at(state, now);
        if (cursor->key.data != NULL) {
            lower_watermark(progress, cursor->key, watermark);
        }
        break;
    case RF_SHARD_DONE:
        progress->done++;
        break;
    case RF_SHARD_SPLIT:
        progress->split++;
        break;
    case RF_SHARD_PARKED:
        progress->parked++;
        break;
    }
}

void rf_progress_end(rf_progress *progress)
{
    if (progress->active != 0 || progress->total == 0) {
        progress->evaluation = RF_STILL_ACTIVE;
    } else if (progress->parked != 0) {
        progress->evaluation = RF_HAS_FAILURES;
    } else {
        progress->evaluation = RF_ALL_DONE;
    }
}
