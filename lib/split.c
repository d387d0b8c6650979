#include "split.h"

#include "range.h"

static rf_status refuse_at(rf_detail *detail, rf_status status, uint64_t index)
{
    if (detail != NULL) {
        detail->index = index;
        detail->has_index = true;
    }
    return status;
}

/* Stable merge sort of at most 256 positions by start. An unbounded start is the smallest. */
static void order_by_start(const rf_child *children, uint32_t count, uint16_t *order,
                           uint16_t *merge)
{
    for (uint32_t i = 0; i < count; i++) {
        order[i] = (uint16_t)i;
    }
    for (uint32_t width = 1; width < count; width *= 2) {
        for (uint32_t low = 0; low < count; low += 2 * width) {
            uint32_t mid = low + width < count ? low + width : count;
            uint32_t high = low + 2 * width < count ? low + 2 * width : count;
            uint32_t a = low, b = mid;
            for (uint32_t out = low; out < high; out++) {
                bool take_b =
                    a == mid || (b < high && rf_bytes_compare(children[order[b]].spec.start,
                                                              children[order[a]].spec.start) < 0);
                merge[out] = take_b ? order[b++] : order[a++];
            }
        }
        memcpy(order, merge, count * sizeof(*order));
    }
}

static rf_status check_coverage(const rf_spec *parent, const rf_child *children, uint32_t count,
                                const uint16_t *order, rf_detail *detail)
{
    if (!rf_bytes_equal(children[order[0]].spec.start, parent->start)) {
        return refuse_at(detail, RF_SPLIT_COVERAGE, order[0]);
    }
    if (!rf_bytes_equal(children[order[count - 1]].spec.end, parent->end)) {
        return refuse_at(detail, RF_SPLIT_COVERAGE, order[count - 1]);
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        rf_bytes end = children[order[i]].spec.end;
        if (end.len == 0 || !rf_bytes_equal(end, children[order[i + 1]].spec.start)) {
            return refuse_at(detail, RF_SPLIT_COVERAGE, order[i]);
        }
    }
    return RF_OK;
}

static rf_status check_child_cursor(const rf_child *child, rf_detail *detail)
{
    const rf_cursor initial = {0};
    if (child->cursor.key.data == NULL && child->cursor.token.len == 0) {
        return RF_OK;
    }
    return rf_cursor_check(&child->cursor, &initial, &child->spec, detail);
}

rf_status rf_split_check_replace(const rf_spec *parent, const rf_child *children, uint32_t count,
                                 struct rf_split_scratch *scratch, rf_detail *detail)
{
    if (count < RF_SPLIT_CHILDREN_MIN || count > RF_SPLIT_CHILDREN_MAX) {
        return rf_refuse_size(detail, RF_SPLIT_COUNT, count, RF_SPLIT_CHILDREN_MAX);
    }
    order_by_start(children, count, scratch->order, scratch->merge);
    rf_status status = check_coverage(parent, children, count, scratch->order, detail);
    if (status != RF_OK) {
        return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (!rf_range_upright(&children[i].spec)) {
            return refuse_at(detail, RF_RANGE_INVERTED, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        status = rf_spec_check_sizes(&children[i].spec, detail);
        if (status != RF_OK) {
            return refuse_at(detail, status, i);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        status = check_child_cursor(&children[i], detail);
        if (status != RF_OK) {
            return refuse_at(detail, status, i);
        }
    }
    return RF_OK;
}

rf_status rf_split_check_residual(const rf_spec *parent, const rf_cursor *stored,
                                  const rf_spec *parent_new, const rf_spec *residual,
                                  rf_detail *detail)
{
    if (!rf_bytes_equal(parent_new->start, parent->start)) {
        return refuse_at(detail, RF_SPLIT_COVERAGE, 0);
    }
    if (!rf_bytes_equal(residual->end, parent->end)) {
        return refuse_at(detail, RF_SPLIT_COVERAGE, 1);
    }
    if (parent_new->end.len == 0 || !rf_bytes_equal(parent_new->end, residual->start)) {
        return refuse_at(detail, RF_SPLIT_COVERAGE, 0);
    }
    const rf_spec *parts[2] = {parent_new, residual};
    for (uint32_t i = 0; i < 2; i++) {
        if (!rf_range_upright(parts[i])) {
            return refuse_at(detail, RF_RANGE_INVERTED, i);
        }
    }
    for (uint32_t i = 0; i < 2; i++) {
        rf_status status = rf_spec_check_sizes(parts[i], detail);
        if (status != RF_OK) {
            return refuse_at(detail, status, i);
        }
    }
    if (stored->key.data != NULL && !rf_range_holds(parent_new, stored->key)) {
        return refuse_at(detail, RF_CURSOR_OUT_OF_BOUNDS, 0);
    }
    return RF_OK;
}

rf_status rf_limit_check(uint64_t count, const struct rf_env *env, rf_detail *detail)
{
    uint64_t tenant = rf_add_saturating(env->tenant_shards, count);
    if (tenant > env->tenant_limit) {
        return rf_refuse_size(detail, RF_SHARD_LIMIT, tenant, env->tenant_limit);
    }
    uint64_t total = rf_add_saturating(env->total_shards, count);
    if (total > env->total_limit) {
        /* Not the sum: how much others have is not this tenant's business. */
        return rf_refuse_size(detail, RF_SHARD_LIMIT, count, env->total_limit);
    }
    return RF_OK;
}

rf_status rf_split_check_room(uint32_t spawned, uint32_t count, const struct rf_env *env,
                              rf_detail *detail)
{
    if (spawned + count > RF_SPAWNED_MAX) {
        return rf_refuse_size(detail, RF_SPAWNED_LIMIT, spawned + count, RF_SPAWNED_MAX);
    }
    return rf_limit_check(count, env, detail);
}

rf_status rf_split_check_ids(const uint64_t *ids, const uint16_t *order, uint32_t count,
                             const struct rf_env *env, rf_detail *detail)
{
    for (uint32_t i = 0; i < count; i++) {
        bool taken = env->exists != NULL && env->exists(env->context, ids[i]);
        for (uint32_t j = 0; j < i && !taken; j++) {
            taken = ids[j] == ids[i];
        }
        if (taken) {
            return refuse_at(detail, RF_DERIVED_ID_COLLISION, order[i]);
        }
    }
    return RF_OK;
}

/* --- planning --- */

rf_status rf_plan_replace(rf_spec parent, const rf_bytes *points, uint32_t count,
                          rf_child *children, rf_detail *detail)
{
    rf_detail_clear(detail);
    if (points == NULL || children == NULL || !rf_spec_sound(&parent)) {
        return RF_INVALID_ARGUMENT;
    }
    if (count < RF_SPLIT_CHILDREN_MIN - 1 || count > RF_SPLIT_CHILDREN_MAX - 1) {
        return rf_refuse_size(detail, RF_SPLIT_COUNT, (uint64_t)count + 1, RF_SPLIT_CHILDREN_MAX);
    }
    rf_bytes start = parent.start;
    for (uint32_t i = 0; i <= count; i++) {
        rf_bytes end = i < count ? points[i] : parent.end;
        if (i < count) {
            if (!rf_bytes_sound(end)) {
                return refuse_at(detail, RF_INVALID_ARGUMENT, i);
            }
            if (end.len > RF_KEY_MAX) {
                rf_refuse_size(detail, RF_KEY_TOO_LARGE, end.len, RF_KEY_MAX);
                return refuse_at(detail, RF_KEY_TOO_LARGE, i);
            }
            if (end.len == 0 || rf_bytes_compare(start, end) >= 0 ||
                (parent.end.len != 0 && rf_bytes_compare(end, parent.end) >= 0)) {
                return refuse_at(detail, RF_RANGE_INVERTED, i);
            }
        }
        children[i] = (rf_child){
            .spec = {.start = start, .end = end, .metadata = parent.metadata},
        };
        start = end;
    }
    return RF_OK;
}

rf_status rf_plan_residual_at(rf_spec parent, rf_bytes point, rf_spec *parent_new,
                              rf_spec *residual, rf_detail *detail)
{
    rf_detail_clear(detail);
    if (parent_new == NULL || residual == NULL || !rf_spec_sound(&parent) ||
        !rf_bytes_sound(point)) {
        return RF_INVALID_ARGUMENT;
    }
    if (point.len > RF_KEY_MAX) {
        return rf_refuse_size(detail, RF_KEY_TOO_LARGE, point.len, RF_KEY_MAX);
    }
    if (point.len == 0 || rf_bytes_compare(parent.start, point) >= 0 ||
        (parent.end.len != 0 && rf_bytes_compare(point, parent.end) >= 0)) {
        return RF_RANGE_INVERTED;
    }
    *parent_new = (rf_spec){.start = parent.start, .end = point, .metadata = parent.metadata};
    *residual = (rf_spec){.start = point, .end = parent.end, .metadata = parent.metadata};
    return RF_OK;
}

rf_status rf_plan_residual_from_cursor(rf_spec parent, rf_cursor cursor, uint8_t *scratch,
                                       rf_spec *parent_new, rf_spec *residual, rf_detail *detail)
{
    rf_detail_clear(detail);
    if (scratch == NULL || !rf_cursor_sound(&cursor)) {
        return RF_INVALID_ARGUMENT;
    }
    if (cursor.key.data == NULL) {
        return RF_MISSING_KEY;
    }
    size_t len;
    rf_status status = rf_key_successor(cursor.key, scratch, &len);
    if (status != RF_OK) {
        return rf_refuse_size(detail, status, cursor.key.len + 1, RF_KEY_MAX);
    }
    return rf_plan_residual_at(parent, rf_bytes_of(scratch, len), parent_new, residual, detail);
}
