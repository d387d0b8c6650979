#include "raw.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#if RF_HAVE_URING
#include <liburing.h>
#endif

#include "timing.h"

#define FILE_BYTES (32u << 20)
#define FILL_BYTES (1u << 20)

struct raw {
    int fd;
    uint8_t *block;
    off_t at;
};

struct raw *raw_open(const char *path)
{
    struct raw *r = calloc(1, sizeof(*r));
    assert(r != NULL);
    r->block = aligned_alloc(RAW_BLOCK, FILL_BYTES);
    assert(r->block != NULL);
    memset(r->block, 1, FILL_BYTES);
    r->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_DIRECT, 0600);
    if (r->fd < 0) {
        r->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    }
    if (r->fd < 0) {
        perror(path);
        abort();
    }
    for (off_t at = 0; at < FILE_BYTES; at += FILL_BYTES) {
        ssize_t n = pwrite(r->fd, r->block, FILL_BYTES, at);
        assert(n == FILL_BYTES);
    }
    int rc = fsync(r->fd);
    assert(rc == 0);
    return r;
}

void raw_close(struct raw *r)
{
    close(r->fd);
    free(r->block);
    free(r);
}

static off_t next_place(struct raw *r)
{
    off_t at = r->at;
    r->at = (r->at + RAW_BLOCK) % FILE_BYTES;
    return at;
}

void raw_write(struct raw *r)
{
    struct iovec v = {.iov_base = r->block, .iov_len = RAW_BLOCK};
    ssize_t n = pwritev2(r->fd, &v, 1, next_place(r), RWF_DSYNC);
    if (n != (ssize_t)RAW_BLOCK) {
        perror("raw write");
        abort();
    }
}

#if RF_HAVE_URING
static void submit(struct raw *r, struct io_uring *ring, uint64_t number, uint64_t *begun)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    assert(sqe != NULL);
    io_uring_prep_write(sqe, r->fd, r->block, RAW_BLOCK, (uint64_t)next_place(r));
    sqe->rw_flags = RWF_DSYNC;
    sqe->user_data = number;
    begun[number] = bench_now();
    int sent = io_uring_submit(ring);
    assert(sent == 1);
}

double raw_flood(struct raw *r, uint32_t depth, double seconds, struct histogram *times)
{
    struct io_uring ring;
    uint64_t begun[RAW_DEPTH_MAX], done = 0;
    assert(depth != 0 && depth <= RAW_DEPTH_MAX);
    if (io_uring_queue_init(RAW_DEPTH_MAX, &ring, 0) != 0) {
        return 0;
    }
    uint64_t start = bench_now(), now = start, end = start + (uint64_t)(seconds * 1e9);
    uint32_t flying = depth;
    for (uint32_t i = 0; i < depth; i++) {
        submit(r, &ring, i, begun);
    }
    while (flying > 0) {
        struct io_uring_cqe *cqe;
        int rc = io_uring_wait_cqe(&ring, &cqe);
        if (rc != 0 || cqe->res != (int)RAW_BLOCK) {
            fprintf(stderr, "raw write: %s\n", strerror(rc != 0 ? -rc : -cqe->res));
            abort();
        }
        uint64_t number = cqe->user_data;
        io_uring_cqe_seen(&ring, cqe);
        now = bench_now();
        histogram_add(times, now - begun[number]);
        done++;
        if (now < end) {
            submit(r, &ring, number, begun);
        } else {
            flying--;
        }
    }
    io_uring_queue_exit(&ring);
    return (double)done / ((double)(now - start) / 1e9);
}
#else
double raw_flood(struct raw *r, uint32_t depth, double seconds, struct histogram *times)
{
    (void)r;
    (void)depth;
    (void)seconds;
    (void)times;
    return 0;
}
#endif
