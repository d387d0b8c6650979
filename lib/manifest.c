#include "manifest.h"

#include "range.h"
#include "split.h"

typedef bool before_fn(const rf_shard_input *a, const rf_shard_input *b);

static bool id_before(const rf_shard_input *a, const rf_shard_input *b)
{
    return a->shard < b->shard;
}

static bool start_before(const rf_shard_input *a, const rf_shard_input *b)
{
    return rf_bytes_compare(a->spec.start, b->spec.start) < 0;
}

/* Stable merge sort from the bottom up. Manifests usually come sorted: then one pass is all. */
static void order_by(const rf_shard_input *shards, uint32_t count, uint32_t *order,
                     before_fn *before)
{
    bool sorted = true;
    for (uint32_t i = 0; i < count; i++) {
        order[i] = i;
        sorted = sorted && (i == 0 || !before(&shards[i], &shards[i - 1]));
    }
    if (sorted) {
        return;
    }
    uint32_t *from = order, *to = order + count;
    for (uint64_t width = 1; width < count; width *= 2) {
        for (uint64_t low = 0; low < count; low += 2 * width) {
            uint64_t mid = low + width < count ? low + width : count;
            uint64_t high = low + 2 * width < count ? low + 2 * width : count;
            uint64_t a = low, b = mid;
            for (uint64_t out = low; out < high; out++) {
                bool take_b = a == mid || (b < high && before(&shards[from[b]], &shards[from[a]]));
                to[out] = take_b ? from[b++] : from[a++];
            }
        }
        uint32_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != order) {
        memcpy(order, from, count * sizeof(*order));
    }
}

void rf_manifest_order_by_id(const rf_shard_input *shards, uint32_t count, uint32_t *order)
{
    order_by(shards, count, order, id_before);
}

void rf_manifest_order_by_start(const rf_shard_input *shards, uint32_t count, uint32_t *order)
{
    order_by(shards, count, order, start_before);
}

bool rf_manifest_sound(const rf_shard_input *shards, uint32_t count)
{
    if (shards == NULL) {
        return count == 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!rf_spec_sound(&shards[i].spec) || !rf_cursor_sound(&shards[i].cursor)) {
            return false;
        }
    }
    return true;
}

static rf_status refuse_shard(const struct rf_manifest *m, rf_detail *detail, rf_status status,
                              uint32_t index)
{
    if (detail != NULL) {
        detail->index = index;
        detail->has_index = true;
        detail->shard = m->shards[index].shard;
    }
    return status;
}

static rf_status check_ids(const struct rf_manifest *m, const struct rf_env *env, rf_detail *detail)
{
    for (uint32_t i = 0; i < m->count; i++) {
        uint32_t at = m->by_id[i];
        uint64_t id = m->shards[at].shard;
        bool twice = i != 0 && m->shards[m->by_id[i - 1]].shard == id;
        if (twice || (env->exists != NULL && env->exists(env->context, id))) {
            return refuse_shard(m, detail, RF_DUPLICATE_SHARD, at);
        }
    }
    return RF_OK;
}

static rf_status check_ranges(const struct rf_manifest *m, rf_detail *detail)
{
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->shards[i].spec.start.len == 0 || m->shards[i].spec.end.len == 0) {
            return refuse_shard(m, detail, RF_UNBOUNDED_RANGE, i);
        }
    }
    for (uint32_t i = 0; i < m->count; i++) {
        rf_status status = rf_spec_check_sizes(&m->shards[i].spec, detail);
        if (status == RF_OK && !rf_range_upright(&m->shards[i].spec)) {
            status = RF_RANGE_INVERTED;
        }
        if (status != RF_OK) {
            return refuse_shard(m, detail, status, i);
        }
    }
    return RF_OK;
}

/* Sorted by start and each upright: it is enough to look at neighbours. The existing ranges do not
 * overlap each other, so the one that could overlap a new range is the last that starts at or
 * before it, or the first after. */
static rf_status check_overlaps(const struct rf_manifest *m, rf_detail *detail)
{
    uint32_t e = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const rf_spec *s = &m->shards[m->by_start[i]].spec;
        if (i != 0 && rf_bytes_compare(m->shards[m->by_start[i - 1]].spec.end, s->start) > 0) {
            return refuse_shard(m, detail, RF_OVERLAPPING_RANGES, m->by_start[i]);
        }
        while (e < m->existing_count && m->existing[e].end.len != 0 &&
               rf_bytes_compare(m->existing[e].end, s->start) <= 0) {
            e++;
        }
        if (e < m->existing_count && rf_bytes_compare(m->existing[e].start, s->end) < 0) {
            return refuse_shard(m, detail, RF_OVERLAPPING_RANGES, m->by_start[i]);
        }
    }
    return RF_OK;
}

static rf_status check_cursors(const struct rf_manifest *m, rf_detail *detail)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const rf_cursor *c = &m->shards[i].cursor;
        rf_status status = RF_OK;
        if (c->key.data == NULL) {
            status = c->token.len != 0 ? RF_MISSING_KEY : RF_OK;
        } else if (c->key.len > RF_KEY_MAX) {
            status = rf_refuse_size(detail, RF_KEY_TOO_LARGE, c->key.len, RF_KEY_MAX);
        } else if (!rf_range_holds(&m->shards[i].spec, c->key)) {
            status = RF_CURSOR_OUT_OF_BOUNDS;
        }
        if (status != RF_OK) {
            return refuse_shard(m, detail, status, i);
        }
    }
    for (uint32_t i = 0; i < m->count; i++) {
        size_t len = m->shards[i].cursor.token.len;
        if (len > RF_TOKEN_MAX) {
            rf_refuse_size(detail, RF_TOKEN_TOO_LARGE, len, RF_TOKEN_MAX);
            return refuse_shard(m, detail, RF_TOKEN_TOO_LARGE, i);
        }
    }
    return RF_OK;
}

rf_status rf_manifest_check(const struct rf_manifest *m, const struct rf_env *env,
                            rf_detail *detail)
{
    if (m->count == 0) {
        return RF_MANIFEST_EMPTY;
    }
    rf_status status = check_ids(m, env, detail);
    if (status == RF_OK) {
        status = check_ranges(m, detail);
    }
    if (status == RF_OK) {
        rf_manifest_order_by_start(m->shards, m->count, m->by_start);
        status = check_overlaps(m, detail);
    }
    if (status == RF_OK) {
        status = check_cursors(m, detail);
    }
    if (status != RF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < m->count; i++) {
        if ((m->shards[i].shard & RF_DERIVED_BIT) != 0) {
            return refuse_shard(m, detail, RF_DERIVED_ROOT_ID, i);
        }
    }
    return rf_limit_check(m->count, env, detail);
}
