/* The lock that has been held longest, for status, metrics and top. */
#include "cli.h"

#define PAUSE_NS (2 * RF_MILLISECOND)

struct holds {
    rf_lock_info *lock;
    size_t count;
    size_t room;
};

static bool add_lock(void *context, const rf_lock_info *lock)
{
    struct holds *h = context;
    if (h->count == h->room) {
        size_t room = h->room == 0 ? 64 : 2 * h->room;
        rf_lock_info *more = keep_bytes(room * sizeof(*more));
        for (size_t i = 0; i < h->count; i++) {
            more[i] = h->lock[i];
        }
        h->lock = more;
        h->room = room;
    }
    h->lock[h->count++] = *lock;
    return true;
}

static bool keep_longer(void *context, const rf_lock_info *lock)
{
    rf_lock_info *longest = context;
    if (lock->held > longest->held) {
        *longest = *lock;
    }
    return true;
}

bool longest_held_lock(rf_store *store, rf_lock_info *longest)
{
    *longest = (rf_lock_info){0};
    return rf_list_locks(store, keep_longer, longest, NULL) == RF_OK && longest->held != 0;
}

/* Whoever works holds locks for a moment, so one look says nothing. Unless guardians know more, a
 * lock counts as held if it still is, without a break, a little later. */
bool longest_held_lock_now(rf_store *store, rf_lock_info *longest)
{
    struct holds first = {0}, second = {0};
    if (longest_held_lock(store, longest)) {
        return true;
    }
    if (rf_list_locks(store, add_lock, &first, NULL) != RF_OK || first.count == 0) {
        return false;
    }
    uint64_t since = monotonic_ns();
    sleep_ns(PAUSE_NS);
    if (rf_list_locks(store, add_lock, &second, NULL) != RF_OK) {
        return false;
    }
    for (size_t i = 0; i < first.count; i++) {
        for (size_t k = 0; k < second.count; k++) {
            const rf_lock_info *a = &first.lock[i], *b = &second.lock[k];
            if (a->slot == b->slot && a->what == b->what && a->hold == b->hold) {
                *longest = *b;
                longest->held = monotonic_ns() - since;
                return true;
            }
        }
    }
    return false;
}

const char *lock_word(rf_lock_what what)
{
    static const char *const words[] = {"name", "shard", "run"};
    return (unsigned)what < 3 ? words[what] : "unknown";
}

void lock_text(const rf_lock_info *lock, char *out, size_t size)
{
    char what[64] = "the making of a run";
    if (lock->what == RF_LOCK_OF_SHARD) {
        snprintf(what, sizeof(what), "shard %s of run %s", id_text(lock->shard),
                 id_text(lock->run));
    } else if (lock->what == RF_LOCK_OF_RUN) {
        snprintf(what, sizeof(what), "run %s", id_text(lock->run));
    }
    snprintf(out, size, "%s, by pid %u%s, for %s", what, lock->pid, lock->dead ? " (dead)" : "",
             duration_text(lock->held));
}
