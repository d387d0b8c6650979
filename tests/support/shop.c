#include "shop.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "handle.h"
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
    rf_region_close(h->map);
    free(h->copy);
    free(h);
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
