/*
 * A store with a log that loses its memory comes back as it was at the end of some epoch: the last
 * one that is durable. The journal keeps the calls since a state all of which was, so that the model
 * can be taken back to exactly that.
 */
#include <stdlib.h>

#include "handle.h"
#include "sim.h"

#define REBASE_AT 400u

static uint64_t open_epoch(const struct world *w)
{
    return atomic_load(&rf_handle_of(w->overseer)->map->header->epoch);
}

void journal_begin(struct world *w)
{
    if (w->config->durable) {
        model_copy(&w->journal.base, &w->model);
    }
}

void journal_free(struct world *w)
{
    model_free(&w->journal.base);
    free(w->journal.entries);
    w->journal.entries = NULL;
    w->journal.count = w->journal.room = 0;
}

static void rebase(struct world *w)
{
    model_free(&w->journal.base);
    model_copy(&w->journal.base, &w->model);
    w->journal.count = 0;
}

static void add(struct world *w, const struct journal_entry *entry)
{
    struct journal *j = &w->journal;
    if (j->count == j->room) {
        j->room = 2 * j->room + 64;
        j->entries = realloc(j->entries, j->room * sizeof(*j->entries));
        if (j->entries == NULL) {
            abort();
        }
    }
    if (j->count != 0 && j->entries[j->count - 1].epoch > entry->epoch) {
        sim_fail(w, "difference",
                 "something went into an epoch before that of what came before it");
    }
    j->entries[j->count++] = *entry;
    if (j->count >= REBASE_AT && rf_durable(w->overseer) >= entry->epoch) {
        rebase(w); /* the model has been told of this one, too */
    }
}

void journal_add(struct world *w, const struct request *q, uint64_t member, uint64_t epoch)
{
    if (w->config->durable) {
        add(w, &(struct journal_entry){
                   .request = *q, .member = member, .epoch = epoch != 0 ? epoch : open_epoch(w)});
    }
}

uint64_t journal_epoch(const struct world *w)
{
    return w->config->durable ? open_epoch(w) : 0;
}

void journal_lost(struct world *w, uint64_t member, uint64_t epoch)
{
    if (w->config->durable) {
        add(w, &(struct journal_entry){.lost = true, .member = member, .epoch = epoch});
    }
}

void journal_go_back(struct world *w, uint64_t durable, uint64_t incarnation)
{
    struct journal *j = &w->journal;
    model_free(&w->model);
    w->model = j->base;
    j->base = (struct model){0};
    for (uint32_t i = 0; i < j->count; i++) {
        if (j->entries[i].epoch <= durable && j->entries[i].lost) {
            model_owner_lost(&w->model, j->entries[i].member);
        } else if (j->entries[i].epoch <= durable) {
            request_again(w, &j->entries[i].request, j->entries[i].member);
        } else {
            w->report->lost_ops++;
        }
    }
    for (uint32_t i = 0; i < w->model.run_count; i++) {
        for (uint32_t k = 0; k < w->model.runs[i].count; k++) {
            struct model_shard *s = &w->model.runs[i].shards[k];
            s->leased = false;
            s->owner = s->deadline = s->bound = 0;
            s->touched = true;
        }
    }
    uint64_t floor = incarnation << 40;
    w->model.floor = floor > w->model.floor ? floor : w->model.floor;
    model_forget_claims(&w->model, w->now);
    rebase(w);
}
