/*
 * beanstalkd: reserve, touch, delete over a unix socket. A job is a shard: its body is the range. There is no
 * fence and no cursor, and only put and delete are written to its log; so ours is compared with claim,
 * renew, complete.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "peers.h"

static const struct setting *setting;
static uint32_t *runs; /* shared: the run that is on is in the tube of this number */

struct worker {
    int fd;
    char tube[24];
    char id[24];
    uint8_t range[2 * FARM_KEY_LEN];
    char answer[1024];
    size_t got;
};

/* --- the protocol --- */

static int reach(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", place_of("beanstalkd.sock"));
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool try_to_reach(void)
{
    int fd = reach();
    if (fd >= 0) {
        close(fd);
    }
    return fd >= 0;
}

static void say(struct worker *w, const void *text, size_t len)
{
    if (send(w->fd, text, len, MSG_NOSIGNAL) != (ssize_t)len) {
        fail("beanstalkd: it does not listen");
    }
}

/* Until so many bytes are in. */
static void hear(struct worker *w, size_t wanted)
{
    while (w->got < wanted) {
        ssize_t n = recv(w->fd, w->answer + w->got, sizeof(w->answer) - 1 - w->got, 0);
        if (n <= 0) {
            fail("beanstalkd: it has hung up");
        }
        w->got += (size_t)n;
        w->answer[w->got] = 0;
    }
}

/* A line of an answer, without its end; what follows it is kept. Returns where that begins. */
static const char *hear_line(struct worker *w)
{
    char *end;
    while ((end = memmem(w->answer, w->got, "\r\n", 2)) == NULL) {
        hear(w, w->got + 1);
    }
    *end = 0;
    return end + 2;
}

/* Sends a command and takes its one line of an answer. */
static bool ask(struct worker *w, const char *command, const char *wanted)
{
    w->got = 0;
    say(w, command, strlen(command));
    hear_line(w);
    return strncmp(w->answer, wanted, strlen(wanted)) == 0;
}

static void must(struct worker *w, const char *command, const char *wanted)
{
    if (!ask(w, command, wanted)) {
        fail("beanstalkd: %.20s was answered by %.40s", command, w->answer);
    }
}

static struct worker *open_tube(void)
{
    struct worker *w = calloc(1, sizeof(*w));
    char command[64];
    if (w == NULL || (w->fd = reach()) < 0) {
        fail("beanstalkd: no connection");
    }
    snprintf(w->tube, sizeof(w->tube), "run-%u", *runs);
    snprintf(command, sizeof(command), "use %s\r\n", w->tube);
    must(w, command, "USING");
    snprintf(command, sizeof(command), "watch %s\r\n", w->tube);
    must(w, command, "WATCHING 2");
    must(w, "ignore default\r\n", "WATCHING 1");
    return w;
}

static void leave(void *worker)
{
    struct worker *w = worker;
    close(w->fd);
    free(w);
}

/* A number of a statistic in YAML. */
static uint64_t statistic(struct worker *w, const char *command, const char *name)
{
    size_t bytes = 0;
    w->got = 0;
    say(w, command, strlen(command));
    const char *body = hear_line(w);
    if (sscanf(w->answer, "OK %zu", &bytes) != 1) {
        fail("beanstalkd: %.20s was answered by %.40s", command, w->answer);
    }
    hear(w, (size_t)(body - w->answer) + bytes);
    const char *at = strstr(body, name);
    return at != NULL ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* --- the server --- */

static bool start(const struct setting *wanted, char *about, size_t size)
{
    char address[200], directory[200];
    const char *program = server_find("/usr/bin", "beanstalkd");
    setting = wanted;
    if (program == NULL) {
        snprintf(about, size, "there is no beanstalkd");
        return false;
    }
    if (runs == NULL) {
        runs = shared_memory(sizeof(*runs));
    }
    place_make("beanstalkd", NULL);
    snprintf(directory, sizeof(directory), "%s", place_of("beanstalkd"));
    snprintf(address, sizeof(address), "unix:%s", place_of("beanstalkd.sock"));
    const char *arguments[8] = {"beanstalkd", "-l", address};
    if (setting->value != NULL) {
        arguments[3] = "-b";
        arguments[4] = directory;
        arguments[5] = setting->value;
    }
    server_start("beanstalkd", program, (char *const *)arguments, SIGTERM, NULL);
    if (!server_answers(try_to_reach)) {
        snprintf(about, size, "it does not answer");
        return false;
    }
    char version[32] = "";
    struct worker *w = open_tube();
    statistic(w, "stats\r\n", "pid: ");
    const char *at = strstr(w->answer + strlen(w->answer) + 2, "version: ");
    sscanf(at != NULL ? at : "", "version: \"%31[^\"\n]", version);
    leave(w);
    snprintf(about, size, "beanstalkd %s, %s%s, unix socket", version,
             setting->value != NULL ? "-b and " : "no -b",
             setting->value != NULL ? setting->value : "");
    return true;
}

static void stop(void)
{
    server_stop();
    place_remove("beanstalkd");
    place_remove("beanstalkd.sock");
}

/* --- the run --- */

/* So many commands are sent before their answers are waited for; those have to fit into a worker's buffer. */
#define BATCH 32u

static void hear_inserted(struct worker *w, uint32_t count)
{
    w->got = 0;
    for (uint32_t lines = 0; lines < count;) {
        hear(w, w->got + 1);
        lines = 0;
        for (const char *at = w->answer; (at = strchr(at, '\n')) != NULL; at++) {
            lines++;
        }
    }
    const char *at = w->answer;
    for (uint32_t i = 0; i < count; i++, at = strchr(at, '\n') + 1) {
        if (strncmp(at, "INSERTED", 8) != 0) {
            fail("beanstalkd: put was answered by %.40s", at);
        }
    }
}

static void fill(uint32_t shards, uint32_t lease_ms)
{
    ++*runs;
    struct worker *w = open_tube();
    /* A tube lives, and keeps its counts, as long as it has a job: this one is not due for a day. */
    must(w, "put 1 86400 60 0\r\n\r\n", "INSERTED");
    for (uint32_t from = 0; from < shards; from += BATCH) {
        static uint8_t jobs[BATCH * (64 + 2 * FARM_KEY_LEN + 2)];
        const uint32_t count = shards - from < BATCH ? shards - from : BATCH;
        size_t len = 0;
        for (uint32_t i = from; i < from + count; i++) {
            len += (size_t)snprintf((char *)jobs + len, 64, "put 1 0 %u %u\r\n", lease_ms / 1000,
                                    2 * FARM_KEY_LEN);
            farm_key(jobs + len, i, 0);
            farm_key(jobs + len + FARM_KEY_LEN, i + 1, 0);
            memcpy(jobs + len + 2 * FARM_KEY_LEN, "\r\n", 2);
            len += 2 * FARM_KEY_LEN + 2;
        }
        say(w, jobs, len);
        hear_inserted(w, count);
    }
    leave(w);
}

static struct tally tally(uint32_t shards)
{
    struct worker *w = open_tube();
    char command[64];
    (void)shards;
    snprintf(command, sizeof(command), "stats-tube %s\r\n", w->tube);
    struct tally tally = {.done = statistic(w, command, "cmd-delete: "),
                          .held = statistic(w, command, "current-jobs-reserved: ")};
    leave(w);
    return tally;
}

/* --- a worker --- */

static void *join(uint32_t number, uint32_t workers, uint32_t shards)
{
    (void)number;
    (void)workers;
    (void)shards;
    return open_tube();
}

static enum answer claim(void *worker, struct claim *out)
{
    static const char command[] = "reserve-with-timeout 0\r\n";
    struct worker *w = worker;
    uint32_t index;
    w->got = 0;
    say(w, command, sizeof(command) - 1);
    const char *body = hear_line(w);
    if (strcmp(w->answer, "TIMED_OUT") == 0) {
        return REFUSED;
    }
    if (sscanf(w->answer, "RESERVED %23s", w->id) != 1) {
        fail("beanstalkd: reserve was answered by %.40s", w->answer);
    }
    hear(w, (size_t)(body - w->answer) + sizeof(w->range) + 2);
    memcpy(w->range, body, sizeof(w->range));
    memcpy(&index, w->range + FARM_KEY_LEN - 12, 4);
    *out = (struct claim){
        .index = __builtin_bswap32(index), .start = w->range, .end = w->range + FARM_KEY_LEN};
    return ACCEPTED;
}

static enum answer order(struct worker *w, const char *verb, const char *wanted)
{
    char command[64];
    snprintf(command, sizeof(command), "%s %s\r\n", verb, w->id);
    if (ask(w, command, wanted)) {
        return ACCEPTED;
    }
    if (strcmp(w->answer, "NOT_FOUND") != 0) {
        fail("beanstalkd: %s was answered by %.40s", verb, w->answer);
    }
    return REFUSED;
}

static enum answer checkpoint(void *worker, const uint8_t *key)
{
    (void)key;
    return order(worker, "touch", "TOUCHED");
}

static enum answer complete(void *worker, const uint8_t *key)
{
    (void)key;
    return order(worker, "delete", "DELETED");
}

/* Version 1.12 looks at a connection's deadline once, when it is due, and not again if that is the very microsecond: the
 * reservation of a silent connection then never ends, as it did in half of all trials. Any command makes it look. */
static void wake(void *worker)
{
    struct worker *w = worker;
    char command[64];
    snprintf(command, sizeof(command), "use %s\r\n", w->tube);
    must(w, command, "USING");
}

static const struct setting settings[] = {
    {.name = "no log", .promise = PROMISE_VOLATILE, .shards = 30000},
    {.name = "-f50", .promise = PROMISE_SOON, .shards = 30000, .value = "-f50"},
    {.name = "-f0", .promise = PROMISE_NOW, .shards = 8000, .value = "-f0"},
};

const struct peer peer_beanstalkd = {
    .name = "beanstalkd",
    .cannot =
        "keep a cursor or give a fence, so touch stands for a checkpoint and is not written to the disk; "
        "refuse a stale delete while nobody else has reserved the job",
    .settings = settings,
    .settings_count = COUNT(settings),
    .lease_ms = 1000,
    .keeps_no_cursor = true,
    .start = start,
    .stop = stop,
    .fill = fill,
    .tally = tally,
    .join = join,
    .claim = claim,
    .checkpoint = checkpoint,
    .complete = complete,
    .leave = leave,
    .wake = wake,
};
