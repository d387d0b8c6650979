/*
 * repair: give up the end of a damaged log, explicitly.
 *
 * A log that is damaged in the middle can't be replayed past the damage, and what lies before it is still
 * a whole state. Repairing means to say so in the log itself, as a recovery does after a crash: a new
 * segment of a later incarnation, whose header names the last batch that counts. Everything is copied
 * first; whatever can't be read, or would contradict the new end, is then removed.
 *
 * The plan is made in a directory of links to those files that can be read, so that making it changes
 * nothing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "log_files.h"
#include "snapshot.h"

#define SNAPSHOTS_MAX 64u
#define LINKS         "tmp.repair" /* the directory of links, inside the store's */

static const struct option_spec repair_options[] = {
    {"truncate", 0, OPTION_FLAG, NULL, "do it: give up what lies behind the damage"},
    {"copy", 0, OPTION_TEXT, "TARGET", "where everything is copied first [DIR.damaged-TIME]"},
    {0},
};

struct plan {
    struct log_files *files;
    uint64_t *segments; /* numbers, ascending */
    size_t segment_count;
    uint64_t epochs[SNAPSHOTS_MAX]; /* of snapshots, newest first */
    unsigned snapshot_count;
    uint64_t last_incarnation;
    /* what it comes to */
    uint64_t snapshot; /* 0: none */
    struct rf_log_end end;
    /* what is lost, as far as it can be seen */
    uint64_t lost_batches, lost_records, lost_last, lost_durable;
    char where[192];
};

static const char *segment_name(uint64_t number)
{
    return keep_format("log.%016" PRIx64, number);
}

static const char *snapshot_file(uint64_t epoch)
{
    return keep_format("%s%016" PRIx64, RF_SNAPSHOT_PREFIX, epoch);
}

static void add_segment(void *context, uint64_t number)
{
    struct plan *p = context;
    uint64_t *more = keep_bytes((p->segment_count + 1) * sizeof(*more));
    if (p->segment_count != 0) {
        memcpy(more, p->segments, p->segment_count * sizeof(*more));
    }
    more[p->segment_count++] = number;
    p->segments = more;
}

/* --- planning --- */

static void drop_links(const struct plan *p)
{
    int fd = openat(p->files->dir_fd, LINKS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.') {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    unlinkat(p->files->dir_fd, LINKS, AT_REMOVEDIR);
}

/* Links to the segments below the first that can't be read, and to all snapshots. We are alone here: what
 * is there already was left by a repair that was ended. */
static int make_links(struct plan *p, int *links_fd)
{
    int dir = p->files->dir_fd;
    drop_links(p);
    if (mkdirat(dir, LINKS, 0700) != 0 ||
        (*links_fd = openat(dir, LINKS, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        return cli_fail(EXIT_IO, "%s/%s can't be made: %s", p->files->directory, LINKS,
                        strerror(errno));
    }
    for (size_t i = 0; i < p->segment_count; i++) {
        struct rf_segment_header h;
        rf_detail ignored = {0};
        if (rf_segment_header_read(p->files->disk, p->segments[i], &h, &ignored) != RF_OK ||
            memcmp(h.store_id, p->files->store.store_id, sizeof(h.store_id)) != 0) {
            break;
        }
        p->last_incarnation =
            h.incarnation > p->last_incarnation ? h.incarnation : p->last_incarnation;
        if (linkat(dir, segment_name(p->segments[i]), *links_fd, segment_name(p->segments[i]), 0) !=
            0) {
            return cli_fail(EXIT_IO, "linking %s failed: %s", segment_name(p->segments[i]),
                            strerror(errno));
        }
    }
    return EXIT_DONE;
}

/* How far the linked log can be read from an epoch on. false: not even there, or the log is another than the one that
 * the snapshot (if not NULL) was taken of. */
static bool walk_from(struct plan *p, struct rf_disk *disk, uint64_t from,
                      const struct rf_snapshot_header *snapshot, struct rf_log_end *end)
{
    struct rf_log_reader *reader;
    rf_detail detail = {0};
    rf_status status = rf_log_reader_open(disk, p->files->store.segment_bytes,
                                          p->files->store.store_id, &reader, &detail);
    if (status != RF_OK) {
        return false;
    }
    *end = (struct rf_log_end){0};
    bool last = false, any = !rf_log_reader_empty(reader);
    status = any ? rf_log_seek(reader, from, &detail) : RF_NOT_FOUND;
    any = status == RF_OK;
    while (status == RF_OK && !last) {
        struct rf_log_batch batch;
        status = rf_log_next(reader, &batch, &last, &detail);
        if (status == RF_OK && !last) {
            end->epoch = batch.header.epoch;
            end->position = batch.header.position + batch.header.bytes;
            memcpy(end->hash, batch.header.hash, sizeof(end->hash));
            any = any && (snapshot == NULL ||
                          rf_recover_is_followed(snapshot, &batch.header, &detail) == RF_OK);
        }
    }
    rf_log_reader_close(reader);
    return any;
}

/* The newest snapshot from which the log can be read at least as far as the snapshot itself reaches;
 * else the whole log from its start. */
static bool choose(struct plan *p, struct rf_disk *disk)
{
    for (unsigned i = 0; i < p->snapshot_count; i++) {
        struct rf_snapshot_header h;
        rf_detail ignored = {0};
        if (rf_snapshot_check(p->files->dir_fd, p->epochs[i], p->files->store.store_id, &h,
                              &ignored) == RF_OK &&
            walk_from(p, disk, h.epoch, &h, &p->end) && p->end.epoch >= h.complete) {
            p->snapshot = h.epoch;
            return true;
        }
    }
    return walk_from(p, disk, 1, NULL, &p->end) && p->end.epoch >= 1;
}

/* Batches behind the new end that can still be seen: what is given up. */
static void count_lost(struct plan *p)
{
    static uint8_t block[RF_LOG_BLOCK];
    for (size_t i = 0; i < p->segment_count; i++) {
        int fd = openat(p->files->dir_fd, segment_name(p->segments[i]), O_RDONLY | O_CLOEXEC);
        for (off_t at = RF_LOG_BLOCK;
             fd >= 0 && pread(fd, block, sizeof(block), at) == (ssize_t)sizeof(block);
             at += RF_LOG_BLOCK) {
            struct rf_batch_header h;
            memcpy(&h, block, sizeof(h));
            if (h.magic == RF_BATCH_MAGIC && h.epoch > p->end.epoch &&
                memcmp(h.store_id, p->files->store.store_id, sizeof(h.store_id)) == 0) {
                p->lost_batches++;
                p->lost_records += h.records;
                p->lost_last = h.epoch > p->lost_last ? h.epoch : p->lost_last;
                p->lost_durable = h.durable > p->lost_durable ? h.durable : p->lost_durable;
            }
        }
        if (fd >= 0) {
            close(fd);
        }
    }
}

static int make_plan(struct cli *cli, struct plan *p)
{
    int links_fd = -1;
    struct rf_disk *disk = NULL;
    rf_status status = rf_disk_list(p->files->disk, "log.", add_segment, p, &cli->detail);
    if (status == RF_OK) {
        status = rf_snapshot_list(p->files->disk, p->epochs, SNAPSHOTS_MAX, &p->snapshot_count,
                                  &cli->detail);
    }
    int code = status == RF_OK ? make_links(p, &links_fd)
                               : cli_refuse(status, &cli->detail, 0, "%s", p->files->name);
    bool found = false;
    if (code == EXIT_DONE && rf_disk_open(links_fd, 0600, (gid_t)-1, p->files->store.segment_bytes,
                                          &disk, NULL) == RF_OK) {
        found = choose(p, disk);
        rf_disk_close(disk);
    }
    if (links_fd >= 0) {
        close(links_fd);
    }
    drop_links(p);
    if (code == EXIT_DONE && !found) {
        code = cli_fail(EXIT_CORRUPT,
                        "no state can be had from what is left of %s; put it back from a backup",
                        p->files->name);
    }
    if (code == EXIT_DONE) {
        count_lost(p);
    }
    return code;
}

static void show_plan(const struct plan *p, const char *copy, bool done)
{
    out_card_begin();
    out_text("damage", p->where);
    out_number("kept_up_to_epoch", p->end.epoch);
    if (p->snapshot != 0) {
        out_number("from_snapshot", p->snapshot);
    } else {
        out_none("from_snapshot");
    }
    out_number("lost_batches_seen", p->lost_batches);
    out_number("lost_records_seen", p->lost_records);
    out_number("last_epoch_seen", p->lost_last);
    out_number("acknowledged_up_to_epoch", p->lost_durable);
    if (done) {
        out_text("copy", copy);
    }
    out_phrase("repair", done ? "done" : "planned", done ? "done" : "not done: say --truncate",
               OUT_PLAIN);
    out_card_end();
}

/* --- doing it --- */

static bool copy_file(int from_dir, int to_dir, const char *name)
{
    static char buffer[1 << 16];
    struct stat st;
    int from = openat(from_dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (from < 0 || fstat(from, &st) != 0 || !S_ISREG(st.st_mode)) {
        if (from >= 0) {
            close(from);
        }
        return from >= 0; /* a directory of somebody's is not ours to copy */
    }
    int to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool good = to >= 0;
    ssize_t n = 0;
    while (good && (n = read(from, buffer, sizeof(buffer))) > 0) {
        good = write(to, buffer, (size_t)n) == n;
    }
    good = good && n == 0 && fsync(to) == 0;
    int error = errno;
    close(from);
    if (to >= 0) {
        close(to);
    }
    errno = error;
    return good;
}

/* A directory that was made is there after a power cut if the one above it is on the disk. */
static bool sync_parent(const char *directory)
{
    char *path = keep_format("%s/..", directory);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = fd >= 0 && fsync(fd) == 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    errno = error;
    return good;
}

static int copy_all(const struct plan *p, const char *target)
{
    if (mkdir(target, 0700) != 0) {
        return cli_fail(EXIT_IO, "%s can't be made: %s; nothing was changed", target,
                        strerror(errno));
    }
    int to = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fdopendir(dup(p->files->dir_fd));
    struct dirent *entry;
    bool good = to >= 0 && dir != NULL;
    if (dir != NULL) {
        rewinddir(dir);
    }
    while (good && (errno = 0, entry = readdir(dir)) != NULL) {
        good = entry->d_name[0] == '.' || copy_file(p->files->dir_fd, to, entry->d_name);
    }
    good = good && errno == 0 && fsync(to) == 0 && sync_parent(target);
    int error = errno;
    if (dir != NULL) {
        closedir(dir);
    }
    if (to >= 0) {
        close(to);
    }
    return good ? EXIT_DONE
                : cli_fail(error == ENOSPC ? EXIT_NO_ROOM : EXIT_IO,
                           "copying to %s failed: %s; the store was not changed", target,
                           strerror(error));
}

static bool contradicts(const struct plan *p, uint64_t epoch)
{
    struct rf_snapshot_header h;
    rf_detail ignored = {0};
    return rf_snapshot_check(p->files->dir_fd, epoch, p->files->store.store_id, &h, &ignored) !=
               RF_OK ||
           h.complete > p->end.epoch;
}

static int apply_plan(struct cli *cli, struct plan *p)
{
    const struct rf_store_file *s = &p->files->store;
    uint64_t data = s->segment_bytes - RF_LOG_BLOCK, highest = 0;
    uint64_t last = (p->end.position - 1) / data;
    for (size_t i = 0; i < p->segment_count; i++) {
        highest = p->segments[i];
        if (p->segments[i] > last) {
            unlinkat(p->files->dir_fd, segment_name(p->segments[i]), 0);
        }
    }
    for (unsigned i = 0; i < p->snapshot_count; i++) {
        /* Newer than the chosen one: it was passed over. */
        if (p->epochs[i] > p->snapshot || contradicts(p, p->epochs[i])) {
            unlinkat(p->files->dir_fd, snapshot_file(p->epochs[i]), 0);
        }
    }
    uint64_t incarnation =
        s->incarnation > p->last_incarnation ? s->incarnation : p->last_incarnation;
    struct rf_segment_header header = {
        .magic = RF_SEGMENT_MAGIC,
        .format = RF_LOG_FORMAT,
        .header_bytes = sizeof(header),
        .number = highest + 1,
        .segment_bytes = s->segment_bytes,
        .incarnation = incarnation + 1,
        .first_number = highest + 1,
        .after = p->end,
    };
    memcpy(header.store_id, s->store_id, sizeof(header.store_id));
    rf_status status = rf_segment_make(p->files->disk, &header, (uint64_t)getpid(), &cli->detail);
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, &cli->detail, 0, "%s", p->files->name);
}

/* Not inside of it, as behind "farm/" or ".". */
static const char *beside(const char *directory)
{
    char *path = realpath(directory, NULL);
    const char *copy =
        keep_format("%s.damaged-%lld", path != NULL ? path : directory, (long long)time(NULL));
    free(path);
    return copy;
}

static int repair(struct cli *cli, struct log_files *f)
{
    struct plan p = {.files = f};
    struct rf_recovered recovered;
    const char *name = cli->args.words[0];
    rf_status status = files_rehearse(f, &recovered, &cli->detail);
    if (status == RF_OK) {
        out_card_begin();
        out_phrase("repair", "none", "nothing has to be repaired", OUT_PLAIN);
        out_number("last_epoch", recovered.log.end.epoch);
        out_card_end();
        return EXIT_DONE;
    }
    if (status != RF_CORRUPT) {
        return cli_refuse(status, &cli->detail, 0, "%s", name);
    }
    snprintf(p.where, sizeof(p.where), "%s", cli->detail.where);
    int code = make_plan(cli, &p);
    if (code != EXIT_DONE) {
        return code;
    }
    const char *copy = arg_text(&cli->args, "copy", NULL);
    copy = copy != NULL ? copy : beside(f->directory);
    if (!arg_given(&cli->args, "truncate")) {
        show_plan(&p, copy, false);
        return EXIT_INCOMPLETE;
    }
    code = copy_all(&p, copy);
    code = code != EXIT_DONE ? code : apply_plan(cli, &p);
    if (code != EXIT_DONE) {
        return code;
    }
    status = files_rehearse(f, &recovered, &cli->detail);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "%s is still damaged (everything is in %s)",
                          name, copy);
    }
    show_plan(&p, copy, true);
    return EXIT_DONE;
}

/* What is in memory is whole. */
static int refuse_repair(rf_store *store, const char *name)
{
    rf_inspection seen = {0};
    rf_status status = rf_inspect(store, &seen, NULL);
    rf_close(store);
    if (status == RF_OK && seen.durability == RF_VOLATILE) {
        return cli_fail(EXIT_REFUSED, "%s is volatile: it has no log that could be repaired", name);
    }
    return cli_fail(EXIT_REFUSED,
                    "%s is in memory, whole: `ringfence snapshot %s` writes it anew, and nothing "
                    "has to be given up",
                    name, name);
}

static int run_repair(struct cli *cli)
{
    const char *name = cli->args.words[0];
    struct log_files f;
    rf_store *store;
    if (rf_open(name, &(rf_options){.read_only = true}, &store, NULL) == RF_OK) {
        return refuse_repair(store, name);
    }
    int code = files_open(cli, name, true, &f);
    if (code != EXIT_DONE) {
        return code;
    }
    code = repair(cli, &f);
    files_close(&f);
    return code;
}

const struct command command_repair = {
    .name = "repair",
    .synopsis = "DIR [--truncate]",
    .summary = "give up the end of a damaged log",
    .text =
        "For a store that can't be recovered because its log is damaged. Without --truncate it only says "
        "what would be kept and what would be lost: operations that were acknowledged. With it, "
        "everything is copied first, then the log ends before the damage. Fences go on above all that "
        "were ever granted. A backup may be the better way.",
    .examples = "ringfence repair /var/lib/farm\n"
                "ringfence repair --truncate /var/lib/farm",
    .options = repair_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_repair,
};
