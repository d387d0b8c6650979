#include "matcher.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <hs/hs.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "memory.h"

#define STRETCH_GAP  64u        /* ends nearer than this are one stretch */
#define STRETCH_MAX  (1u << 14) /* more in one span: they become one long one */
#define MATCH_EFFORT 50000000u

/* Ends of matches of one rule lie in [first, last]. */
struct stretch {
    uint32_t rule;
    size_t first, last;
};

struct matcher {
    const struct rules *rules;
    hs_scratch_t *scratch;
    pcre2_match_data *data;
    pcre2_match_context *limits;
    uint64_t *taken;
    uint32_t *latest; /* stretch of each rule, 1 + index */
    struct stretch *stretches;
    uint32_t count;
    bool crowded;
    bool gave_up;
};

struct matcher *matcher_create(const struct rules *rules)
{
    struct matcher *m = must_alloc(sizeof(*m));
    m->rules = rules;
    m->taken = must_alloc(rules->count * sizeof(*m->taken));
    m->latest = must_alloc(rules->count * sizeof(*m->latest));
    m->stretches = must_alloc((STRETCH_MAX + rules->count) * sizeof(*m->stretches));
    m->data = pcre2_match_data_create(16, NULL);
    m->limits = pcre2_match_context_create(NULL);
    hs_error_t error = hs_alloc_scratch(rules->database, &m->scratch);
    if (error != HS_SUCCESS || m->data == NULL || m->limits == NULL) {
        abort();
    }
    pcre2_set_match_limit(m->limits, MATCH_EFFORT);
    return m;
}

void matcher_destroy(struct matcher *m)
{
    if (m == NULL) {
        return;
    }
    hs_free_scratch(m->scratch);
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
    free(m->taken);
    free(m->latest);
    free(m->stretches);
    free(m);
}

void matcher_reset(struct matcher *m)
{
    memset(m->taken, 0, m->rules->count * sizeof(*m->taken));
}

bool matcher_gave_up(const struct matcher *m)
{
    return m->gave_up;
}

uint64_t matcher_taken(const struct matcher *m, uint32_t rule)
{
    return m->taken[rule];
}

void matcher_set_taken(struct matcher *m, uint32_t rule, uint64_t end)
{
    m->taken[rule] = end;
}

/* Too many to remember one by one: a rule's stretches become one. */
static void crowd(struct matcher *m)
{
    uint32_t kept = 0;
    memset(m->latest, 0, m->rules->count * sizeof(*m->latest));
    for (uint32_t i = 0; i < m->count; i++) {
        const struct stretch s = m->stretches[i];
        if (m->latest[s.rule] == 0) {
            m->stretches[kept++] = s;
            m->latest[s.rule] = kept;
        } else {
            struct stretch *one = &m->stretches[m->latest[s.rule] - 1];
            one->first = s.first < one->first ? s.first : one->first;
            one->last = s.last > one->last ? s.last : one->last;
        }
    }
    m->count = kept;
    m->crowded = true;
}

static int on_end(unsigned rule, unsigned long long from, unsigned long long to, unsigned flags,
                  void *context)
{
    struct matcher *m = context;
    (void)from;
    (void)flags;
    size_t end = (size_t)to;
    if (m->latest[rule] != 0) {
        struct stretch *s = &m->stretches[m->latest[rule] - 1];
        bool near = end + STRETCH_GAP >= s->first && end <= s->last + STRETCH_GAP;
        if (near || m->crowded) {
            s->first = end < s->first ? end : s->first;
            s->last = end > s->last ? end : s->last;
            return 0;
        }
    }
    if (m->count == STRETCH_MAX && !m->crowded) {
        crowd(m);
        return on_end(rule, from, to, flags, context);
    }
    m->stretches[m->count] = (struct stretch){.rule = rule, .first = end, .last = end};
    m->latest[rule] = ++m->count;
    return 0;
}

static int by_rule_and_place(const void *a, const void *b)
{
    const struct stretch *x = a, *y = b;
    if (x->rule != y->rule) {
        return x->rule < y->rule ? -1 : 1;
    }
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The matches of a rule that end in a stretch, and on behind it as long as they follow. */
static void search(struct matcher *m, const struct span *span, const struct stretch *s,
                   matcher_emit *emit, void *context)
{
    const struct rule *rule = &m->rules->list[s->rule];
    size_t at = s->first > rule->width ? s->first - rule->width : 0;
    at = at > span->from ? at : span->from;
    if (m->taken[s->rule] > span->base + at) {
        at = (size_t)(m->taken[s->rule] - span->base);
    }
    /* Whatever begins before s->last is all in here, with the byte behind it. */
    size_t until = s->last + rule->width + 1;
    until = until < span->len ? until : span->len;
    while (at < s->last && at < span->until) {
        int found = pcre2_match(rule->code, span->bytes, until, at, 0, m->data, m->limits);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
            found =
                pcre2_match(rule->code, span->bytes, until, at, PCRE2_NO_JIT, m->data, m->limits);
        }
        if (found <= 0) {
            m->gave_up = m->gave_up || found != PCRE2_ERROR_NOMATCH;
            return;
        }
        const PCRE2_SIZE *places = pcre2_get_ovector_pointer(m->data);
        size_t start = places[0], end = places[1];
        if (start >= s->last || start >= span->until) {
            return; /* of another stretch or span */
        }
        assert(end > start);
        m->taken[s->rule] = span->base + end;
        at = end;
        size_t secret = start, secret_end = end;
        if (found > 1 && places[2] != PCRE2_UNSET) {
            secret = places[2];
            secret_end = places[3];
        }
        const struct candidate candidate = {
            .rule = rule,
            .secret = span->bytes + secret,
            .len = secret_end - secret,
            .next = secret_end < span->len ? span->bytes[secret_end] : -1,
        };
        if (emit != NULL && check_passes(m->rules, &candidate)) {
            emit(context, &(struct match){.rule = s->rule,
                                          .start = span->base + start,
                                          .end = span->base + end,
                                          .secret = span->bytes + secret,
                                          .secret_len = secret_end - secret,
                                          .secret_start = span->base + secret});
        }
    }
}

void matcher_scan(struct matcher *m, const struct span *span, matcher_emit *emit, void *context)
{
    assert(span->from <= span->until && span->until <= span->len && span->len <= UINT32_MAX);
    m->count = 0;
    m->crowded = m->gave_up = false;
    memset(m->latest, 0, m->rules->count * sizeof(*m->latest));
    hs_error_t error = hs_scan(m->rules->database, (const char *)span->bytes, (unsigned)span->len,
                               0, m->scratch, on_end, m);
    if (error != HS_SUCCESS) {
        abort(); /* only for arguments that can't be */
    }
    if (m->count > 1) {
        qsort(m->stretches, m->count, sizeof(*m->stretches), by_rule_and_place);
    }
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->stretches[i].last > span->from) {
            search(m, span, &m->stretches[i], emit, context);
        }
    }
}
