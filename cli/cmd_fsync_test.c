/* fsync-test: what a disk can do, and what that means for durable operations. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include "commands.h"

#define BLOCK       4096u
#define FILE_BLOCKS 4096u
#define DEPTH_MAX   8u
#define SAMPLES_MAX 200000u

static const struct option_spec fsync_options[] = {
    {"for", 0, OPTION_DURATION, "TIME", "how long each row is measured [1s]"},
    {0},
};

struct writer {
    pthread_t thread;
    int fd;
    unsigned index;
    unsigned writers;
    uint64_t until;
    uint8_t *block;
    uint64_t count;
    uint64_t *samples;
    uint64_t sample_count;
    int error;
};

/* Writes in front of everybody else's next place, in the file that was filled before: a write
 * changes no metadata, as in a log of pre-filled segments. */
static void *write_blocks(void *argument)
{
    struct writer *w = argument;
    for (uint64_t i = w->index; w->error == 0; i += w->writers) {
        uint64_t from = monotonic_ns();
        if (from >= w->until && w->count != 0) {
            break;
        }
        struct iovec v = {.iov_base = w->block, .iov_len = BLOCK};
        memcpy(w->block, &i, sizeof(i));
        ssize_t n = pwritev2(w->fd, &v, 1, (off_t)(i % FILE_BLOCKS * BLOCK), RWF_DSYNC);
        if (n != (ssize_t)BLOCK) {
            w->error = n < 0 ? errno : EIO;
            break;
        }
        if (w->sample_count < SAMPLES_MAX) {
            w->samples[w->sample_count++] = monotonic_ns() - from;
        }
        w->count++;
    }
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

struct outcome {
    double per_second;
    uint64_t median_ns;
    uint64_t worst_percent_ns; /* of a hundred, the slowest is about this */
};

static int measure(int fd, unsigned depth, uint64_t length, struct outcome *out)
{
    static struct writer writers[DEPTH_MAX];
    static uint64_t all[DEPTH_MAX * SAMPLES_MAX];
    uint64_t began = monotonic_ns(), count = 0, samples = 0;
    int error = 0;
    for (unsigned i = 0; i < depth; i++) {
        struct writer *w = &writers[i];
        *w = (struct writer){
            .fd = fd, .index = i, .writers = depth, .until = began + length, .samples = w->samples};
        if (w->samples == NULL) {
            w->samples = keep_bytes(SAMPLES_MAX * sizeof(uint64_t));
        }
        w->block = aligned_alloc(BLOCK, BLOCK);
        if (w->block == NULL) {
            return ENOMEM;
        }
        memset(w->block, 0xA5, BLOCK);
        error = pthread_create(&w->thread, NULL, write_blocks, w);
        if (error != 0) {
            return error; /* the process ends here */
        }
    }
    for (unsigned i = 0; i < depth; i++) {
        pthread_join(writers[i].thread, NULL);
        error = writers[i].error != 0 ? writers[i].error : error;
        count += writers[i].count;
        memcpy(all + samples, writers[i].samples, writers[i].sample_count * sizeof(all[0]));
        samples += writers[i].sample_count;
        free(writers[i].block);
    }
    if (error != 0 || samples == 0) {
        return error != 0 ? error : ETIME;
    }
    qsort(all, samples, sizeof(all[0]), by_value);
    out->per_second = (double)count / ((double)(monotonic_ns() - began) / 1e9);
    out->median_ns = all[samples / 2];
    out->worst_percent_ns = all[samples - 1 - samples / 100];
    return 0;
}

/* A file without a name, written full, so that nothing is left whatever happens. */
static int make_file(const char *directory, bool direct, int *error)
{
    int fd = open(directory, O_RDWR | O_TMPFILE | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
    if (fd < 0) {
        *error = errno;
        return -1;
    }
    uint8_t *zeros = aligned_alloc(BLOCK, 256 * BLOCK);
    *error = zeros == NULL ? ENOMEM : 0;
    if (zeros != NULL) {
        memset(zeros, 0, 256 * BLOCK);
        for (unsigned i = 0; i < FILE_BLOCKS / 256 && *error == 0; i++) {
            ssize_t n = pwrite(fd, zeros, 256 * BLOCK, (off_t)i * 256 * BLOCK);
            *error = n == (ssize_t)(256 * BLOCK) ? 0 : n < 0 ? errno : ENOSPC;
        }
        if (*error == 0 && fsync(fd) != 0) {
            *error = errno;
        }
        free(zeros);
    }
    if (*error != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static const char *file_system(const char *directory)
{
    struct statfs fs;
    if (statfs(directory, &fs) != 0) {
        return "unknown";
    }
    switch ((unsigned long)fs.f_type) {
    case 0xEF53:
        return "ext4";
    case 0x58465342:
        return "xfs";
    case 0x9123683E:
        return "btrfs";
    case 0x01021994:
        return "tmpfs";
    case 0x794C7630:
        return "overlay";
    case 0x6969:
        return "nfs";
    case 0x2FC12FC1:
        return "zfs";
    default:
        return keep_format("0x%lx", (unsigned long)fs.f_type);
    }
}

static int measure_rows(const char *directory, bool direct, uint64_t length, double *best,
                        double *single)
{
    int error, fd = make_file(directory, direct, &error);
    if (fd < 0) {
        if (direct && (error == EINVAL || error == EOPNOTSUPP)) {
            return 0; /* no O_DIRECT here: said by the rows that are missing */
        }
        return error;
    }
    for (unsigned depth = 1; depth <= DEPTH_MAX && error == 0; depth *= 2) {
        struct outcome o;
        error = measure(fd, depth, length, &o);
        if (error != 0) {
            break;
        }
        out_row();
        out_text("way", direct ? "direct" : "buffered");
        out_number("in_flight", depth);
        out_real("writes_per_second", o.per_second, 0);
        out_ns("median", o.median_ns);
        out_ns("p99", o.worst_percent_ns);
        *best = o.per_second > *best ? o.per_second : *best;
        *single = depth == 1 && o.per_second > *single ? o.per_second : *single;
    }
    close(fd);
    return error;
}

static int run_fsync_test(struct cli *cli)
{
    const char *directory = cli->args.words[0];
    uint64_t length = arg_number(&cli->args, "for", RF_SECOND);
    double best = 0, single = 0;
    struct stat st;
    if (stat(directory, &st) != 0 || !S_ISDIR(st.st_mode)) {
        return cli_fail(EXIT_NOT_FOUND, "there is no directory %s", directory);
    }
    out_card_begin();
    out_text("directory", directory);
    out_text("file_system", file_system(directory));
    out_inner_begin("writes");
    int error = measure_rows(directory, true, length, &best, &single);
    error = error != 0 ? error : measure_rows(directory, false, length, &best, &single);
    out_inner_end();
    if (error == 0) {
        out_real("single_worker_durable_per_second", single, 0);
        out_real("batches_per_second", best, 0);
    }
    out_card_end();
    if (error != 0) {
        return cli_fail(error == ENOSPC   ? EXIT_NO_ROOM
                        : error == EACCES ? EXIT_PERMISSION
                                          : EXIT_IO,
                        "writing to %s failed: %s", directory, strerror(error));
    }
    if (!out_is_json()) {
        printf("\nOne worker that waits for the disk after every operation does about %.0f a second"
               " here.\nMany workers share batches: about %.0f batches a second, each with the"
               " operations of all who wait.\n",
               single, best);
        if (strcmp(file_system(directory), "tmpfs") == 0) {
            printf("This is memory, not a disk: nothing written here survives a power loss.\n");
        }
    }
    return EXIT_DONE;
}

const struct command command_fsync_test = {
    .name = "fsync-test",
    .synopsis = "DIR [--for TIME]",
    .summary = "measure what a disk can do for durable operations",
    .text =
        "Writes blocks of 4 KiB that are on disk before the next one begins (RWF_DSYNC), into a file "
        "of 16 MiB without a name, with 1 to 8 in flight, past the page cache (direct) and "
        "through it (buffered).",
    .examples = "ringfence fsync-test /var/lib/farm",
    .options = fsync_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_fsync_test,
};
