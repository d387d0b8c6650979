#include "log_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "region.h"
#include "snapshot.h"

#define SCALE_MAX 8u

static int open_lock(const char *name, bool alone, struct log_files *f)
{
    f->lock_fd = openat(f->dir_fd, "lock", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (f->lock_fd < 0) {
        return errno == ENOENT ? cli_fail(EXIT_NOT_FOUND, "%s is not a store", name)
                               : cli_fail(errno == EACCES ? EXIT_PERMISSION : EXIT_IO,
                                          "%s/lock can't be opened: %s", name, strerror(errno));
    }
    if (alone && flock(f->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        return cli_fail(EXIT_BUSY, "%s is in use; end its processes first (`ringfence procs %s`)",
                        name, name);
    }
    return EXIT_DONE;
}

int files_open(struct cli *cli, const char *name, bool alone, struct log_files *f)
{
    enum rf_store_found found = RF_STORE_NONE;
    *f = (struct log_files){
        .name = name, .directory = store_directory(name), .dir_fd = -1, .lock_fd = -1};
    f->dir_fd = open(f->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir_fd < 0) {
        return errno == EACCES
                   ? cli_fail(EXIT_PERMISSION, "%s can't be opened: %s", name, strerror(errno))
                   : cli_fail(EXIT_NOT_FOUND, "there is no store %s: %s%s", name, strerror(errno),
                              plain_name_hint(name));
    }
    int code = open_lock(name, alone, f);
    if (code == EXIT_DONE) {
        rf_status status =
            rf_store_file_read(f->dir_fd, f->directory, &f->store, &found, &cli->detail);
        if (status != RF_OK) {
            code = cli_refuse(status, &cli->detail, 0, "%s", name);
        } else if (found != RF_STORE_GOOD) {
            code = found == RF_STORE_NONE
                       ? cli_fail(EXIT_NOT_FOUND, "%s is not a store", name)
                       : cli_fail(EXIT_CORRUPT,
                                  "both copies of the store file in %s are damaged; put one back "
                                  "from a backup",
                                  name);
        } else if (f->store.durability == RF_VOLATILE) {
            code = cli_fail(EXIT_REFUSED, "%s is volatile: it has no log", name);
        }
    }
    if (code == EXIT_DONE) {
        rf_status status = rf_disk_open(f->dir_fd, (mode_t)f->store.mode, (gid_t)f->store.gid,
                                        f->store.segment_bytes, &f->disk, &cli->detail);
        code = status == RF_OK ? EXIT_DONE : cli_refuse(status, &cli->detail, 0, "%s", name);
    }
    if (code != EXIT_DONE) {
        files_close(f);
    }
    return code;
}

void files_close(struct log_files *f)
{
    if (f->disk != NULL) {
        rf_disk_close(f->disk);
    }
    if (f->lock_fd >= 0) {
        close(f->lock_fd);
    }
    if (f->dir_fd >= 0) {
        close(f->dir_fd);
    }
    f->disk = NULL;
    f->lock_fd = f->dir_fd = -1;
}

/* A region's header as the store file describes it: what a shadow is made after. */
static void describe(const struct rf_store_file *s, struct rf_header *h)
{
    h->max_shards = s->max_shards;
    h->max_tenant_shards = s->max_tenant_shards;
    h->slab_classes.count = (s->max_bytes + RF_SLAB_PAGE - 1) / RF_SLAB_PAGE;
    h->claim_cooldown = s->claim_cooldown;
    h->runs.count = s->max_runs;
    h->max_members = s->max_members;
    h->lane_units = s->lane_bytes / RF_LINE;
    h->durability = s->durability;
    h->segment_bytes = s->segment_bytes;
    h->snapshot_bytes = s->snapshot_bytes;
    h->flush_ns = s->flush_ns;
    memcpy(h->store_id, s->store_id, sizeof(h->store_id));
}

rf_status files_rehearse(struct log_files *f, struct rf_recovered *recovered, rf_detail *detail)
{
    struct rf_map like = {0}, shadow;
    rf_status status = RF_OK;
    like.header = aligned_alloc(64, (sizeof(*like.header) + 63) / 64 * 64);
    if (like.header == NULL) {
        return RF_RESOURCE_EXHAUSTED;
    }
    memset(like.header, 0, sizeof(*like.header));
    describe(&f->store, like.header);
    for (uint64_t scale = 1; scale <= SCALE_MAX; scale *= 2) {
        struct rf_replay *replay = NULL;
        *detail = (rf_detail){0};
        status = rf_region_shadow(&like, scale, &shadow, detail);
        if (status != RF_OK) {
            break;
        }
        status = rf_recover_state(&shadow, f->disk, f->dir_fd, f->store.has_log != 0, UINT64_MAX,
                                  RF_LEASES_VOID, recovered, &replay, detail);
        if (replay != NULL) {
            rf_replay_free(replay);
        }
        rf_region_shadow_drop(&shadow);
        if (status != RF_RESOURCE_EXHAUSTED || detail->os_error != 0) {
            break; /* else a snapshot may need more room than the store: once more, with more */
        }
    }
    free(like.header);
    return status;
}

rf_status files_first_epoch(struct log_files *f, struct rf_log_reader *reader, uint64_t *epoch,
                            rf_detail *detail)
{
    /* The log is kept from where the older snapshot's replay begins. */
    uint64_t epochs[64];
    unsigned count = 0;
    *epoch = 1;
    rf_status status = rf_log_seek(reader, 1, detail);
    if (status == RF_NOT_FOUND) {
        status = rf_snapshot_list(f->disk, epochs, 64, &count, detail);
        for (unsigned i = count; status == RF_OK && i-- > 0;) {
            *epoch = epochs[i];
            status = rf_log_seek(reader, epochs[i], detail);
            if (status == RF_OK) {
                return RF_OK;
            }
            status = status == RF_NOT_FOUND && i > 0 ? RF_OK : status;
        }
    }
    return status;
}

bool files_io(const char *name, const char **path, const char **why)
{
    static const char *const paths[] = {
        [RF_DISK_URING_DIRECT] = "io_uring, direct",
        [RF_DISK_URING_BUFFERED] = "io_uring, buffered",
        [RF_DISK_PLAIN_DIRECT] = "pwritev2, direct",
        [RF_DISK_PLAIN_BUFFERED] = "pwritev2, buffered",
    };
    struct rf_disk *disk;
    const char *said = "";
    int fd = open(store_directory(name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || rf_disk_open(fd, 0600, (gid_t)-1, 2 * RF_LOG_BLOCK, &disk, NULL) != RF_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return false;
    }
    rf_disk_probe(disk);
    *path = paths[rf_disk_backend(disk, &said)];
    *why = keep_text(said);
    rf_disk_close(disk);
    close(fd);
    return true;
}
