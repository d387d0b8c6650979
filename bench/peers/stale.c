/*
 * Two workers and one shard with a short lease. The first claims it, stores a cursor, and stays away for
 * too long; the second is granted the shard with a larger fence. From then on the first must be refused. Then the
 * second stays away as well and is granted the shard once more: what the first one tried has left no trace. It is
 * served to the end.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "peers.h"

struct scene {
    const struct peer *peer;
    const struct setting *setting;
    struct tally tally;
};

static _Noreturn void wrong(const struct scene *scene, const char *what)
{
    fail("%s, %s: %s", scene->peer->name, scene->setting->name, what);
}

static void expect(const struct scene *scene, enum answer got, enum answer wanted, const char *what)
{
    if (got != wanted) {
        wrong(scene, what);
    }
}

static void fill_one(void *argument)
{
    struct scene *scene = argument;
    scene->peer->fill(1, scene->peer->lease_ms);
}

/* Longer than the lease: servers look at the clock now and then only. */
static void let_it_expire(const struct scene *scene)
{
    usleep(1000 * scene->peer->lease_ms + 50000);
}

static void claim_again(const struct scene *scene, void *worker, struct claim *claim)
{
    for (unsigned i = 0; i < 500; i++) {
        if (scene->peer->claim(worker, claim) == ACCEPTED) {
            return;
        }
        usleep(10000);
    }
    wrong(scene, "a shard whose lease has expired is not granted again");
}

static void tell(int fd, uint64_t value)
{
    if (write(fd, &value, sizeof(value)) != (ssize_t)sizeof(value)) {
        fail("the other worker has gone");
    }
}

static uint64_t hear(int fd)
{
    uint64_t value = 0;
    if (read(fd, &value, sizeof(value)) != (ssize_t)sizeof(value)) {
        fail("the other worker has gone");
    }
    return value;
}

/* The next grant: a larger fence, and the cursor that the first one stored while it was the owner. */
static uint64_t take_over(const struct scene *scene, void *worker, struct claim *claim,
                          uint64_t fence)
{
    const struct peer *peer = scene->peer;
    uint8_t key[FARM_KEY_LEN];
    claim_again(scene, worker, claim);
    if (claim->index != 0 || (!peer->keeps_no_cursor && claim->fence <= fence)) {
        wrong(scene, "a later grant does not have the larger fence");
    }
    farm_key(key, 0, 1);
    if (!peer->keeps_no_cursor && !scene->setting->renewals &&
        (claim->cursor == NULL || memcmp(claim->cursor, key, FARM_KEY_LEN) != 0)) {
        wrong(scene, "a later owner is not given the cursor of the first");
    }
    return claim->fence;
}

/* In a process of its own, as workers are. */
static void be_second(const struct scene *scene, int from, int to)
{
    const struct peer *peer = scene->peer;
    uint8_t key[FARM_KEY_LEN];
    struct claim claim = {0};
    uint64_t fence = hear(from);
    void *worker = peer->join(1, 2, 1); /* not earlier: its lease is as short as the first one's */
    fence = take_over(scene, worker, &claim, fence);
    tell(to, fence);
    hear(from); /* the first has tried what it must not */
    let_it_expire(scene);
    peer->leave(worker);
    worker = peer->join(1, 2, 1);
    take_over(scene, worker, &claim, fence);
    farm_key(key, 0, 3);
    expect(scene, peer->checkpoint(worker, key), ACCEPTED, "the new owner is refused");
    farm_key(key, 0, CHECKPOINTS + 1);
    expect(scene, peer->complete(worker, key), ACCEPTED, "the new owner is refused the end");
    peer->leave(worker);
    exit(0);
}

static void be_first(const struct scene *scene, int from, int to)
{
    const struct peer *peer = scene->peer;
    uint8_t key[FARM_KEY_LEN];
    struct claim claim = {0};
    void *worker = peer->join(0, 2, 1);
    expect(scene, peer->claim(worker, &claim), ACCEPTED, "the only shard is not granted");
    farm_key(key, 0, 1);
    expect(scene, peer->checkpoint(worker, key), ACCEPTED, "a checkpoint of the owner is refused");
    let_it_expire(scene);
    if (peer->wake != NULL) {
        peer->wake(worker);
    }
    tell(to, claim.fence);
    hear(from); /* it is granted to the second */
    farm_key(key, 0, 2);
    expect(scene, peer->checkpoint(worker, key), REFUSED, "a stale owner's checkpoint is accepted");
    expect(scene, peer->complete(worker, key), REFUSED, "a stale owner may complete the shard");
    tell(to, 0);
    peer->leave(worker);
}

static void play(void *argument)
{
    const struct scene *scene = argument;
    int to_second[2], to_first[2];
    if (pipe(to_second) != 0 || pipe(to_first) != 0) {
        fail("no pipes");
    }
    pid_t second = fork();
    if (second == 0) {
        close(to_second[1]);
        close(to_first[0]);
        be_second(scene, to_second[0], to_first[1]);
    }
    close(to_second[0]);
    close(to_first[1]);
    be_first(scene, to_first[0], to_second[1]);
    int status = 0;
    if (waitpid(second, &status, 0) != second || status != 0) {
        exit(2);
    }
}

static void count(void *argument)
{
    struct scene *scene = argument;
    scene->tally = scene->peer->tally(1);
}

void stale_check(const struct peer *peer, const struct setting *setting)
{
    struct scene *scene = shared_memory(sizeof(*scene));
    *scene = (struct scene){.peer = peer, .setting = setting};
    apart(fill_one, scene);
    apart(play, scene);
    apart(count, scene);
    if (scene->tally.done != 1 || scene->tally.held != 0) {
        wrong(scene, "the shard is not done after its end");
    }
}
