#include "shop.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "handle.h"
#include "log.h"
#include "reap.h"
#include "record.h"

void rf_shop_found(struct rf_shop *shop)
{
    snprintf(shop->directory, sizeof(shop->directory), "/tmp/ringfence-test-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(shop->directory));
    shop->now = 1000;
}

void rf_shop_raze(struct rf_shop *shop)
{
    rf_detail detail;
    if (access(shop->directory, F_OK) != 0) {
        return;
    }
    rf_status status = rf_destroy(shop->directory, &detail);
    if (status == RF_NOT_FOUND) {
        rmdir(shop->directory); /* nobody ever opened it */
        return;
    }
    RF_EXPECT(RF_OK, status);
    TEST_ASSERT_EQUAL_MESSAGE(-1, access(shop->directory, F_OK), "the store left something behind");
}

static uint64_t shop_clock(void *context)
{
    return ((const struct rf_shop *)context)->now;
}

rf_options rf_shop_small(void)
{
    return (rf_options){
        .max_shards = 20000,
        .max_bytes = 64u << 20,
        .max_runs = 64,
        .max_members = 64,
    };
}

static rf_store *enter(const struct rf_shop *shop, const rf_options *options)
{
    rf_store *store = NULL;
    rf_detail detail;
    rf_status status = rf_open(shop->directory, options, &store, &detail);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &detail));
    }
    return store;
}

rf_store *rf_shop_enter(struct rf_shop *shop, const rf_options *asked)
{
    rf_options options = asked == NULL ? rf_shop_small() : *asked;
    options.create = true;
    options.manual = true;
    options.clock = shop_clock;
    options.clock_context = shop;
    return enter(shop, &options);
}

rf_store *rf_shop_enter_living(const struct rf_shop *shop, const rf_options *asked)
{
    rf_options options = asked == NULL ? rf_shop_small() : *asked;
    options.create = !options.read_only;
    return enter(shop, &options);
}

void rf_shop_die(rf_store *store)
{
    struct rf_handle *h = rf_handle_of(store);
    TEST_ASSERT_TRUE(h->manual);
    rf_declare_dead(h->map, h->actor.slot);
    if (h->actor.logger != NULL) {
        rf_logger_forget(h->actor.logger);
    }
    rf_region_close(h->map);
    free(h->copy);
    free(h);
}

rf_bytes rf_shop_key(uint32_t n)
{
    static char keys[16][16];
    static uint32_t next;
    char *key = keys[next++ % 16];
    return rf_bytes_of(key, (size_t)snprintf(key, sizeof(keys[0]), "k%05u", n));
}

void rf_shop_stock(rf_store *store, uint64_t now, const rf_tenant *tenant, uint64_t run,
                   const rf_run_config *config, uint32_t count)
{
    rf_shard_input *shards = calloc(count, sizeof(*shards));
    char(*keys)[8] = calloc(count + 1, sizeof(*keys));
    rf_result result = {0};
    for (uint32_t i = 0; i <= count; i++) {
        memcpy(keys[i], rf_shop_key(i).data, 6);
    }
    for (uint32_t i = 0; i < count; i++) {
        shards[i] = (rf_shard_input){
            .shard = i + 1,
            .spec = {.start = rf_bytes_of(keys[i], 6), .end = rf_bytes_of(keys[i + 1], 6)}};
    }
    rf_status status = rf_create_run_with_shards(store, now, tenant, run, config, shards, count,
                                                 rf_new_op(store), &result);
    free(shards);
    free(keys);
    if (status != RF_OK) {
        TEST_FAIL_MESSAGE(rf_shop_sentence(status, &result.detail));
    }
}

rf_grant rf_shop_blank(uint32_t slot)
{
    static _Alignas(8) uint8_t scratch[4][RF_GRANT_SCRATCH];
    return (rf_grant){.scratch = scratch[slot % 4], .scratch_size = sizeof(scratch[0])};
}

rf_shard_info rf_shop_shard(rf_store *store, const rf_tenant *tenant, uint64_t run, uint64_t shard)
{
    static _Alignas(8) uint8_t scratch[RF_GRANT_SCRATCH];
    rf_shard_info info;
    RF_EXPECT(RF_OK,
              rf_get_shard(store, tenant, run, shard, &info, scratch, sizeof(scratch), NULL));
    return info;
}

rf_run_info rf_shop_run(rf_store *store, const rf_tenant *tenant, uint64_t run)
{
    rf_run_info info;
    RF_EXPECT(RF_OK, rf_get_run(store, tenant, run, &info, NULL));
    return info;
}

rf_capacity rf_shop_capacity(rf_store *store, const rf_tenant *tenant, uint64_t run)
{
    rf_capacity capacity;
    RF_EXPECT(RF_OK, rf_get_capacity(store, tenant, run, &capacity, NULL));
    return capacity;
}

rf_inspection rf_shop_inspect(rf_store *store)
{
    rf_inspection inspection;
    RF_EXPECT(RF_OK, rf_inspect(store, &inspection, NULL));
    return inspection;
}

static const char *ring_difference(const rf_shard_info *info, const struct rf_box *box)
{
    const struct rf_shard_state *s = &box->state;
    if (info->ring_count != s->ring_count) {
        return "the number of operations remembered";
    }
    for (uint32_t i = 0; i < info->ring_count; i++) {
        uint32_t at = (s->ring_next + RF_SHARD_RING - s->ring_count + i) % RF_SHARD_RING;
        const rf_ring_entry *e = &info->ring[i];
        if (e->op != box->ring.op[at] || e->executed_at != box->ring.executed_at[at] ||
            e->kind != box->ring.kind[at] || e->result != box->ring.result[at]) {
            return "an operation remembered";
        }
    }
    return NULL;
}

static const char *bytes_difference(const rf_shard_info *info, const struct rf_box *box)
{
    rf_spec spec = rf_box_spec(box);
    rf_cursor cursor = rf_box_cursor(box);
    if (!rf_bytes_equal(info->spec.start, spec.start) ||
        !rf_bytes_equal(info->spec.end, spec.end)) {
        return "the range";
    }
    if (!rf_bytes_equal(info->spec.metadata, spec.metadata)) {
        return "the metadata";
    }
    if ((info->cursor.key.data == NULL) != (cursor.key.data == NULL) ||
        !rf_bytes_equal(info->cursor.key, cursor.key)) {
        return "the cursor's key";
    }
    if ((info->cursor.token.data == NULL) != (cursor.token.data == NULL) ||
        !rf_bytes_equal(info->cursor.token, cursor.token)) {
        return "the cursor's token";
    }
    if (info->spawned_count != box->state.spawned_count ||
        (info->spawned_count != 0 &&
         memcmp(info->spawned, box->spawned, info->spawned_count * 8u) != 0)) {
        return "the spawned list";
    }
    return NULL;
}

const char *rf_shop_difference(const rf_shard_info *info, const struct rf_box *box)
{
    const struct rf_shard_state *s = &box->state;
    const struct {
        bool same;
        const char *what;
    } facts[] = {
        {info->shard == box->shard, "the id"},
        {info->status == s->status, "the status"},
        {info->has_reason == (s->park_reason != RF_NO_REASON), "whether it has a park reason"},
        {!info->has_reason || info->reason == s->park_reason, "the park reason"},
        {info->semantics == s->semantics, "the semantics"},
        {info->leased == ((s->flags & RF_SHARD_LEASED) != 0), "whether it is leased"},
        {!info->leased || info->owner == s->owner, "the owner"},
        {!info->leased || info->deadline == s->deadline, "the deadline"},
        {info->fence == s->fence, "the fence"},
        {info->has_parent == ((s->flags & RF_SHARD_HAS_PARENT) != 0), "whether it has a parent"},
        {!info->has_parent || info->parent == s->parent, "the parent"},
        {info->attempts == s->attempts, "the attempts"},
    };
    for (size_t i = 0; i < sizeof(facts) / sizeof(facts[0]); i++) {
        if (!facts[i].same) {
            return facts[i].what;
        }
    }
    const char *what = bytes_difference(info, box);
    return what != NULL ? what : ring_difference(info, box);
}

const char *rf_shop_sentence(rf_status status, const rf_detail *detail)
{
    static char text[512];
    rf_explain(status, detail, text, sizeof(text));
    return text;
}

void rf_shop_expect_words(rf_status status, const rf_detail *detail, const char *words)
{
    const char *sentence = rf_shop_sentence(status, detail);
    char word[64], message[640];
    printf("  %s: %s\n", rf_status_name(status), sentence);
    while (*words != 0) {
        size_t len = strcspn(words, "|");
        snprintf(word, sizeof(word), "%.*s", (int)len, words);
        snprintf(message, sizeof(message), "no \"%s\" in: %s", word, sentence);
        TEST_ASSERT_NOT_NULL_MESSAGE(strstr(sentence, word), message);
        words += len + (words[len] == '|');
    }
}
