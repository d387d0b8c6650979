/*
 * The disk under the log: segments, writes in flight, whole files, and what happens where the kernel or
 * the file system refuses something: io_uring by a real seccomp filter, O_DIRECT by a real ramfs,
 * room by a real tmpfs that is full.
 *
 * What needs a mount of its own is left out when the test is not run by root.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <blake3.h>
#include <unity.h>
#if __has_include(<liburing.h>)
#include <liburing.h>
#define SEES_THE_RING 1
#endif

#include "disk_internal.h"
#include "hands.h"
#include "shop.h"

#define BLOCK      4096u
#define SEGMENT    (1u << 20)
#define DATA       (SEGMENT - BLOCK)
#define TINY       (3 * BLOCK) /* of the log, two blocks */
#define CANT_TEST  77
#define ANY_GROUP  ((gid_t)-1)
#define BLOCKS_MAX 64u

static char directory[64];
static int dir_fd;
static struct rf_disk *disk;
static rf_detail detail;
static _Alignas(BLOCK) uint8_t memory[BLOCKS_MAX * BLOCK];
static uint8_t seen[BLOCKS_MAX * BLOCK];

static void open_disk(uint64_t segment_bytes)
{
    RF_EXPECT(RF_OK, rf_disk_open(dir_fd, 0600, ANY_GROUP, segment_bytes, &disk, &detail));
}

void setUp(void)
{
    strcpy(directory, "/tmp/rf-test-disk-XXXXXX"); /* not /dev/shm: a disk */
    TEST_ASSERT_NOT_NULL(mkdtemp(directory));
    dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(dir_fd >= 0);
    disk = NULL;
    memset(&detail, 0, sizeof(detail));
}

void tearDown(void)
{
    char command[96];
    if (disk != NULL) {
        rf_disk_close(disk);
    }
    close(dir_fd);
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    TEST_ASSERT_EQUAL(0, system(command));
}

static struct rf_segment_header header_of(uint64_t number, uint64_t segment_bytes)
{
    return (struct rf_segment_header){.magic = RF_SEGMENT_MAGIC,
                                      .format = RF_LOG_FORMAT,
                                      .header_bytes = sizeof(struct rf_segment_header),
                                      .store_id = {1, 2, 3},
                                      .number = number,
                                      .segment_bytes = segment_bytes,
                                      .incarnation = 5,
                                      .first_number = number,
                                      .after = {.epoch = 6, .position = 7, .hash = {8}}};
}

static void make(uint64_t number)
{
    struct rf_segment_header header = header_of(number, disk->segment_bytes);
    RF_EXPECT(RF_OK, rf_segment_make(disk, &header, 77, &detail));
}

static void make_upto(uint64_t count)
{
    for (uint64_t n = 0; n < count; n++) {
        make(n);
    }
}

static const char *path_of(const char *name)
{
    static char path[192];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static const char *segment_path(uint64_t number)
{
    char name[RF_DISK_NAME_MAX];
    rf_segment_name(number, name);
    return path_of(name);
}

/* Bytes that tell where they belong. */
static void fill(uint8_t *at, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++) {
        at[i] = (uint8_t)((seed * 2654435761u + i * 131u + i / BLOCK * 17u) >> 3 | 1u);
    }
}

static unsigned names_in_directory(void)
{
    unsigned count = 0;
    DIR *listing = opendir(directory);
    TEST_ASSERT_NOT_NULL(listing);
    for (struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        count += e->d_name[0] != '.';
    }
    closedir(listing);
    return count;
}

static void patch_file(const char *path, off_t offset, const void *bytes, size_t len)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    TEST_ASSERT_EQUAL((ssize_t)len, pwrite(fd, bytes, len, offset));
    close(fd);
}

static size_t read_file(const char *path, void *to, size_t len, off_t offset)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    TEST_ASSERT_TRUE(fd >= 0);
    ssize_t got = pread(fd, to, len, offset);
    TEST_ASSERT_TRUE(got >= 0);
    close(fd);
    return (size_t)got;
}

static void write_and_read_back(uint64_t position, size_t blocks, uint64_t seed)
{
    bool missing;
    size_t len = blocks * BLOCK;
    TEST_ASSERT_TRUE(blocks <= BLOCKS_MAX);
    fill(memory, len, seed);
    RF_EXPECT(RF_OK, rf_log_write(disk, position, memory, len, &detail));
    memset(seen, 0, len);
    RF_EXPECT(RF_OK, rf_log_pread(disk, position, seen, len, &missing, &detail));
    TEST_ASSERT_FALSE(missing);
    TEST_ASSERT_EQUAL_MEMORY(memory, seen, len);
}

/* --- segments --- */

static void a_new_segment_has_its_header_and_zeros_that_were_really_written(void)
{
    open_disk(SEGMENT);
    TEST_ASSERT_FALSE(rf_segment_exists(disk, 3));
    make(3);
    TEST_ASSERT_TRUE(rf_segment_exists(disk, 3));
    TEST_ASSERT_FALSE(rf_segment_exists(disk, 2));
    TEST_ASSERT_EQUAL(1, names_in_directory());

    struct rf_segment_header read;
    struct rf_segment_header made = header_of(3, SEGMENT);
    RF_EXPECT(RF_OK, rf_segment_header_read(disk, 3, &read, &detail));
    TEST_ASSERT_EQUAL_MEMORY(&made, &read, offsetof(struct rf_segment_header, hash));

    static uint8_t whole[SEGMENT];
    TEST_ASSERT_EQUAL(SEGMENT, read_file(segment_path(3), whole, SEGMENT, 0));
    for (size_t i = sizeof(read); i < SEGMENT; i++) {
        TEST_ASSERT_EQUAL_HEX8(0, whole[i]);
    }
    struct stat st;
    TEST_ASSERT_EQUAL(0, stat(segment_path(3), &st));
    TEST_ASSERT_EQUAL(SEGMENT, st.st_size);
    TEST_ASSERT_EQUAL_HEX(0600, st.st_mode & 07777);
    TEST_ASSERT_TRUE((uint64_t)st.st_blocks * 512 >= SEGMENT);
}

/* An extent that was only promised would have to be changed, and its change made durable, by the first
 * write to it. */
static void a_new_segment_has_no_unwritten_extents(void)
{
    open_disk(SEGMENT);
    make(0);
    int fd = open(segment_path(0), O_RDONLY | O_CLOEXEC);
    static union {
        struct fiemap map;
        uint8_t room[sizeof(struct fiemap) + 64 * sizeof(struct fiemap_extent)];
    } ask;
    ask.map = (struct fiemap){.fm_length = FIEMAP_MAX_OFFSET, .fm_extent_count = 64};
    int rc = ioctl(fd, FS_IOC_FIEMAP, &ask);
    close(fd);
    if (rc != 0) {
        TEST_IGNORE_MESSAGE("this file system does not tell its extents");
    }
    uint64_t bytes = 0;
    for (unsigned i = 0; i < ask.map.fm_mapped_extents; i++) {
        struct fiemap_extent extent;
        memcpy(&extent, ask.room + sizeof(struct fiemap) + i * sizeof(extent), sizeof(extent));
        TEST_ASSERT_EQUAL_HEX(0,
                              extent.fe_flags & (FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_DELALLOC |
                                                 FIEMAP_EXTENT_UNKNOWN));
        bytes += extent.fe_length;
    }
    TEST_ASSERT_EQUAL(SEGMENT, bytes);
}

static void whoever_is_slower_finds_the_segment_as_it_is(void)
{
    open_disk(TINY);
    make(0);
    struct rf_segment_header other = header_of(0, TINY);
    struct rf_segment_header read;
    other.incarnation = 99;
    RF_EXPECT(RF_OK, rf_segment_make(disk, &other, 78, &detail));
    RF_EXPECT(RF_OK, rf_segment_header_read(disk, 0, &read, &detail));
    TEST_ASSERT_EQUAL(5, read.incarnation);
    TEST_ASSERT_EQUAL(1, names_in_directory());
}

/* Whoever has the same unique number, dead or alive, keeps its file. */
static void temporary_files_of_others_are_no_obstacle_and_let_alone(void)
{
    struct rf_disk_file *one, *two, *three;
    char text[16] = {0};
    open_disk(TINY);
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 7, &one, &detail));
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 7, &two, &detail));
    RF_EXPECT(RF_OK, rf_file_begin(disk, "log.0000000000000000", 77, &three, &detail));
    RF_EXPECT(RF_OK, rf_file_append(one, "one", 3, &detail));
    RF_EXPECT(RF_OK, rf_file_append(two, "two", 3, &detail));
    RF_EXPECT(RF_OK, rf_file_publish(one, &detail));
    TEST_ASSERT_EQUAL(3, read_file(path_of("store"), text, sizeof(text), 0));
    TEST_ASSERT_EQUAL_STRING("one", text);
    RF_EXPECT(RF_OK, rf_file_publish(two, &detail));
    TEST_ASSERT_EQUAL(3, read_file(path_of("store"), text, sizeof(text), 0));
    TEST_ASSERT_EQUAL_STRING("two", text);
    make(0); /* with number 77 */
    TEST_ASSERT_EQUAL(3, names_in_directory());
    rf_file_discard(three);
    TEST_ASSERT_EQUAL(2, names_in_directory());
}

static void every_damaged_byte_of_a_header_block_is_noticed(void)
{
    open_disk(TINY);
    make(0);
    struct rf_segment_header read;
    for (off_t i = 0; i < (off_t)BLOCK; i++) {
        uint8_t byte;
        TEST_ASSERT_EQUAL(1, read_file(segment_path(0), &byte, 1, i));
        uint8_t damaged = (uint8_t)(byte ^ (1u << (i % 8)));
        patch_file(segment_path(0), i, &damaged, 1);
        RF_EXPECT(RF_CORRUPT, rf_segment_header_read(disk, 0, &read, &detail));
        TEST_ASSERT_NOT_NULL(strstr(detail.where, "log.0000000000000000"));
        patch_file(segment_path(0), i, &byte, 1);
    }
    RF_EXPECT(RF_OK, rf_segment_header_read(disk, 0, &read, &detail));
}

static void plant_header(struct rf_segment_header *header)
{
    blake3_hasher hasher;
    blake3_hasher_init_derive_key(&hasher, RF_SEGMENT_CONTEXT);
    blake3_hasher_update(&hasher, header, offsetof(struct rf_segment_header, hash));
    blake3_hasher_finalize(&hasher, header->hash, RF_LOG_HASH);
    patch_file(segment_path(0), 0, header, sizeof(*header));
}

static void headers_of_others_are_refused_by_what_they_say(void)
{
    struct rf_segment_header read;
    open_disk(TINY);
    RF_EXPECT(RF_NOT_FOUND, rf_segment_header_read(disk, 0, &read, &detail));
    make(0);
    struct rf_segment_header header = header_of(0, TINY);
    header.format = RF_LOG_FORMAT + 1;
    plant_header(&header);
    RF_EXPECT(RF_VERSION_MISMATCH, rf_segment_header_read(disk, 0, &read, &detail));
    rf_shop_expect_words(RF_VERSION_MISMATCH, &detail,
                         "log.0000000000000000|log format 2, ringfence 0.1.0 reads 1|later one");
    header.format = RF_LOG_FORMAT - 1;
    plant_header(&header);
    RF_EXPECT(RF_VERSION_MISMATCH, rf_segment_header_read(disk, 0, &read, &detail));
    rf_shop_expect_words(RF_VERSION_MISMATCH, &detail, "log.0000000000000000|never released");

    header = header_of(4, TINY);
    plant_header(&header);
    RF_EXPECT(RF_CORRUPT, rf_segment_header_read(disk, 0, &read, &detail));
    rf_shop_expect_words(RF_CORRUPT, &detail, "log.0000000000000000|segment 4");

    header = header_of(0, SEGMENT);
    plant_header(&header);
    RF_EXPECT(RF_CORRUPT, rf_segment_header_read(disk, 0, &read, &detail));
    rf_shop_expect_words(RF_CORRUPT, &detail, "log.0000000000000000|1048576|12288");
}

static void a_file_of_another_size_is_neither_read_nor_written(void)
{
    struct rf_segment_header read;
    bool missing;
    open_disk(TINY);
    for (int longer = 0; longer < 2; longer++) {
        make(0);
        TEST_ASSERT_EQUAL(0, truncate(segment_path(0), longer ? TINY + 1 : TINY - 1));
        RF_EXPECT(RF_CORRUPT, rf_segment_header_read(disk, 0, &read, &detail));
        rf_shop_expect_words(RF_CORRUPT, &detail, "log.0000000000000000|size|backup");
        RF_EXPECT(RF_CORRUPT, rf_log_pread(disk, 0, seen, BLOCK, &missing, &detail));
        RF_EXPECT(RF_CORRUPT, rf_log_write(disk, 0, memory, BLOCK, &detail));
        RF_EXPECT(RF_CORRUPT, rf_segment_sync(disk, 0, &detail));
        RF_EXPECT(RF_OK, rf_segment_remove(disk, 0, &detail));
    }
}

static void a_file_that_shrinks_under_a_reader_is_noticed(void)
{
    bool missing;
    open_disk(TINY);
    make(0);
    RF_EXPECT(RF_OK, rf_log_pread(disk, 0, seen, 2 * BLOCK, &missing, &detail));
    TEST_ASSERT_EQUAL(0, truncate(segment_path(0), 2 * BLOCK));
    RF_EXPECT(RF_CORRUPT, rf_log_pread(disk, 0, seen, 2 * BLOCK, &missing, &detail));
}

static void a_symbolic_link_is_never_followed(void)
{
    struct rf_segment_header read;
    bool missing;
    open_disk(TINY);
    make(1);
    TEST_ASSERT_EQUAL(0, symlinkat("log.0000000000000001", dir_fd, "log.0000000000000000"));
    RF_EXPECT(RF_IO_ERROR, rf_segment_header_read(disk, 0, &read, &detail));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "log.0000000000000000|symbolic link|remove");
    RF_EXPECT(RF_IO_ERROR, rf_log_pread(disk, 0, seen, BLOCK, &missing, &detail));
    fill(memory, BLOCK, 1);
    RF_EXPECT(RF_IO_ERROR, rf_log_write(disk, 0, memory, BLOCK, &detail));
    RF_EXPECT(RF_OK, rf_log_pread(disk, 2 * BLOCK, seen, BLOCK, &missing, &detail));
    TEST_ASSERT_EQUAL(0, seen[0]);

    TEST_ASSERT_EQUAL(0, symlinkat("victim", dir_fd, "tmp.store.0000000000000001.0"));
    struct rf_disk_file *file;
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 1, &file, &detail)); /* beside the link */
    rf_file_discard(file);
    TEST_ASSERT_NOT_EQUAL(0, faccessat(dir_fd, "victim", F_OK, 0));
}

static void a_removed_segment_is_gone_and_removing_again_is_fine(void)
{
    bool missing;
    open_disk(TINY);
    make(0);
    write_and_read_back(0, 2, 9);
    RF_EXPECT(RF_OK, rf_segment_sync(disk, 0, &detail));
    RF_EXPECT(RF_OK, rf_segment_remove(disk, 0, &detail));
    RF_EXPECT(RF_OK, rf_segment_remove(disk, 0, &detail));
    TEST_ASSERT_FALSE(rf_segment_exists(disk, 0));
    RF_EXPECT(RF_OK, rf_log_pread(disk, 0, seen, BLOCK, &missing, &detail));
    TEST_ASSERT_TRUE(missing);
    RF_EXPECT(RF_NOT_FOUND, rf_log_write(disk, 0, memory, BLOCK, &detail));
    RF_EXPECT(RF_NOT_FOUND, rf_segment_sync(disk, 0, &detail));
}

static void what_is_asked_for_must_make_sense(void)
{
    struct rf_disk *none;
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_disk_open(dir_fd, 0600, ANY_GROUP, BLOCK, &none, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT,
              rf_disk_open(dir_fd, 0600, ANY_GROUP, SEGMENT + 1, &none, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_disk_open(-1, 0600, ANY_GROUP, SEGMENT, &none, &detail));
    open_disk(TINY);
    make(0);
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_log_write(disk, 0, memory, 0, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_log_write(disk, 0, memory, 512, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_log_write(disk, 512, memory, BLOCK, &detail));
    RF_EXPECT(RF_INVALID_ARGUMENT, rf_log_write(disk, 0, memory + 512, BLOCK, &detail));
}

static void new_files_have_the_group_and_mode_whatever_the_umask(void)
{
    struct stat st;
    struct rf_disk_file *file;
    gid_t group = getgid();
    mode_t before = umask(0077);
    if (geteuid() == 0) {
        group = 4242;
    }
    RF_EXPECT(RF_OK, rf_disk_open(dir_fd, 0660, group, TINY, &disk, &detail));
    make(0);
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 1, &file, &detail));
    RF_EXPECT(RF_OK, rf_file_publish(file, &detail));
    umask(before);
    TEST_ASSERT_EQUAL(0, stat(segment_path(0), &st));
    TEST_ASSERT_EQUAL_HEX(0660, st.st_mode & 07777);
    TEST_ASSERT_EQUAL(group, st.st_gid);
    TEST_ASSERT_EQUAL(0, stat(path_of("store"), &st));
    TEST_ASSERT_EQUAL_HEX(0660, st.st_mode & 07777);
    TEST_ASSERT_EQUAL(group, st.st_gid);
}

/* --- writing and reading the log --- */

static void what_was_written_is_read_at_its_place(void)
{
    open_disk(SEGMENT);
    make_upto(3);
    write_and_read_back(0, 1, 1);
    write_and_read_back(BLOCK, 63, 2);
    write_and_read_back(DATA - BLOCK, 1, 3);
    write_and_read_back(DATA - BLOCK, 2, 4);          /* across a boundary */
    write_and_read_back(2 * DATA - 8 * BLOCK, 64, 5); /* and deeper */
    /* Where log_format.h says. */
    fill(memory, 64 * BLOCK, 5);
    TEST_ASSERT_EQUAL(8 * BLOCK, read_file(segment_path(1), seen, SEGMENT, SEGMENT - 8 * BLOCK));
    TEST_ASSERT_EQUAL_MEMORY(memory, seen, 8 * BLOCK);
    TEST_ASSERT_EQUAL(56 * BLOCK, read_file(segment_path(2), seen, 56 * BLOCK, BLOCK));
    TEST_ASSERT_EQUAL_MEMORY(memory + 8 * BLOCK, seen, 56 * BLOCK);
    struct rf_segment_header read;
    for (uint64_t n = 0; n < 3; n++) {
        RF_EXPECT(RF_OK, rf_segment_header_read(disk, n, &read, &detail));
    }
}

static void a_write_may_cross_more_segments_than_there_are_descriptors(void)
{
    open_disk(TINY);
    make_upto(33);
    write_and_read_back(BLOCK, 64, 6);
    TEST_ASSERT_EQUAL(2 * BLOCK, read_file(segment_path(17), seen, TINY, BLOCK));
    TEST_ASSERT_EQUAL_MEMORY(memory + 33 * BLOCK, seen, 2 * BLOCK);
}

static void reads_need_no_alignment_and_see_zeros_where_nothing_is(void)
{
    bool missing;
    open_disk(TINY);
    make(0);
    make(2);
    fill(memory, 2 * BLOCK, 7);
    RF_EXPECT(RF_OK, rf_log_write(disk, 0, memory, 2 * BLOCK, &detail));
    RF_EXPECT(RF_OK, rf_log_write(disk, 4 * BLOCK, memory, 2 * BLOCK, &detail));

    RF_EXPECT(RF_OK, rf_log_pread(disk, 4093, seen, 7, &missing, &detail));
    TEST_ASSERT_FALSE(missing);
    TEST_ASSERT_EQUAL_MEMORY(memory + 4093, seen, 7);

    memset(seen, 0xee, sizeof(seen));
    RF_EXPECT(RF_OK, rf_log_pread(disk, BLOCK + 1, seen, 6 * BLOCK, &missing, &detail));
    TEST_ASSERT_TRUE(missing);
    TEST_ASSERT_EQUAL_MEMORY(memory + BLOCK + 1, seen, BLOCK - 1);
    for (size_t i = BLOCK - 1; i < 3 * BLOCK - 1; i++) {
        TEST_ASSERT_EQUAL_HEX8(0, seen[i]);
    }
    TEST_ASSERT_EQUAL_MEMORY(memory, seen + 3 * BLOCK - 1, 2 * BLOCK);
    for (size_t i = 5 * BLOCK - 1; i < 6 * BLOCK; i++) {
        TEST_ASSERT_EQUAL_HEX8(0, seen[i]);
    }
    RF_EXPECT(RF_OK, rf_log_pread(disk, 100 * BLOCK, seen, 0, &missing, &detail));
    TEST_ASSERT_FALSE(missing);
}

static void a_write_into_a_segment_that_is_not_there_begins_nothing(void)
{
    bool missing;
    uint64_t tag;
    int error;
    open_disk(TINY);
    make(0);
    fill(memory, 4 * BLOCK, 8);
    RF_EXPECT(RF_NOT_FOUND, rf_log_write_begin(disk, BLOCK, memory, 2 * BLOCK, 1, &detail));
    rf_shop_expect_words(RF_NOT_FOUND, &detail, "log.0000000000000001");
    TEST_ASSERT_FALSE(rf_log_write_next(disk, true, &tag, &error));
    RF_EXPECT(RF_OK, rf_log_pread(disk, BLOCK, seen, BLOCK, &missing, &detail));
    TEST_ASSERT_EQUAL_HEX8(0, seen[0]);
}

/* Fills the air with writes, some of which cross segments; all must land, each once. */
static void fly(uint32_t rounds)
{
    uint32_t begun = 0;
    uint32_t ended = 0;
    uint32_t max_in_flight = 0;
    static uint8_t landed[4096];
    uint64_t tag;
    int error;
    memset(landed, 0, sizeof(landed));
    TEST_ASSERT_TRUE(rounds <= sizeof(landed) && RF_DISK_DEPTH * 3 <= BLOCKS_MAX);
    while (ended < rounds) {
        while (begun < rounds) {
            uint8_t *from = memory + begun % RF_DISK_DEPTH * 3 * BLOCK;
            if (begun >= RF_DISK_DEPTH && !landed[begun - RF_DISK_DEPTH]) {
                break; /* its memory is still in use */
            }
            fill(from, 3 * BLOCK, begun);
            rf_status status =
                rf_log_write_begin(disk, begun * 3 * BLOCK, from, 3 * BLOCK, 1000 + begun, &detail);
            if (status == RF_BUSY) {
                break;
            }
            RF_EXPECT(RF_OK, status);
            begun++;
        }
        max_in_flight = begun - ended > max_in_flight ? begun - ended : max_in_flight;
        bool wait = ended % 3 != 0;
        bool any = rf_log_write_next(disk, wait, &tag, &error);
        TEST_ASSERT_TRUE(any || !wait);
        if (any) {
            TEST_ASSERT_EQUAL(0, error);
            TEST_ASSERT_TRUE(tag >= 1000 && tag < 1000 + begun && !landed[tag - 1000]);
            landed[tag - 1000] = 1;
            ended++;
        }
    }
    TEST_ASSERT_FALSE(rf_log_write_next(disk, true, &tag, &error));
    TEST_ASSERT_FALSE(rf_log_write_next(disk, false, &tag, &error));
    TEST_ASSERT_TRUE(max_in_flight == RF_DISK_DEPTH);
    for (uint32_t i = 0; i < rounds; i++) {
        bool missing;
        fill(memory, 3 * BLOCK, i);
        RF_EXPECT(RF_OK, rf_log_pread(disk, i * 3 * BLOCK, seen, 3 * BLOCK, &missing, &detail));
        TEST_ASSERT_EQUAL_MEMORY(memory, seen, 3 * BLOCK);
    }
}

static void eight_writes_are_in_flight_and_not_nine(void)
{
    uint64_t tags = 0;
    uint64_t tag;
    int error;
    open_disk(SEGMENT);
    make(0);
    fill(memory, sizeof(memory), 3);
    for (uint64_t i = 0; i < RF_DISK_DEPTH; i++) {
        RF_EXPECT(RF_OK,
                  rf_log_write_begin(disk, i * BLOCK, memory + i * BLOCK, BLOCK, i, &detail));
    }
    RF_EXPECT(RF_BUSY, rf_log_write_begin(disk, 9 * BLOCK, memory, BLOCK, 9, &detail));
    RF_EXPECT(RF_BUSY, rf_log_write(disk, 9 * BLOCK, memory, BLOCK, &detail));
    for (uint64_t i = 0; i < RF_DISK_DEPTH; i++) {
        TEST_ASSERT_TRUE(rf_log_write_next(disk, true, &tag, &error));
        TEST_ASSERT_EQUAL(0, error);
        tags |= 1u << tag;
    }
    TEST_ASSERT_EQUAL_HEX(0xff, tags);
    TEST_ASSERT_FALSE(rf_log_write_next(disk, true, &tag, &error));
}

static void many_writes_in_flight_all_land_once(void)
{
    open_disk(8 * BLOCK);
    make_upto(26);
    fly(60);
}

static void closing_waits_for_what_is_in_flight(void)
{
    bool missing;
    open_disk(SEGMENT);
    make(0);
    fill(memory, sizeof(memory), 4);
    for (uint64_t i = 0; i < RF_DISK_DEPTH; i++) {
        RF_EXPECT(RF_OK,
                  rf_log_write_begin(disk, i * BLOCK, memory + i * BLOCK, BLOCK, i, &detail));
    }
    rf_disk_close(disk);
    open_disk(SEGMENT);
    RF_EXPECT(RF_OK, rf_log_pread(disk, 0, seen, 8 * BLOCK, &missing, &detail));
    TEST_ASSERT_EQUAL_MEMORY(memory, seen, 8 * BLOCK);
}

/* That a write is durable can't be seen from outside without cutting the power; that it was asked for can. */
static void every_write_asks_for_direct_and_durable(void)
{
    const char *why;
    open_disk(8 * BLOCK);
    make_upto(4);
    rf_disk_probe(disk);
    if (rf_disk_backend(disk, &why) != RF_DISK_URING_DIRECT) {
        TEST_IGNORE_MESSAGE(why);
    }
    TEST_ASSERT_EQUAL_STRING("", why);
    fly(9);
    TEST_ASSERT_EQUAL(RF_DISK_URING_DIRECT, rf_disk_backend(disk, &why));
    TEST_ASSERT_EQUAL_STRING("", why);
#if SEES_THE_RING
    unsigned submitted = 0;
    for (unsigned i = 0; i < RF_DISK_PARTS; i++) {
        const struct io_uring_sqe *sqe = &disk->ring->sq.sqes[i];
        if (sqe->opcode == IORING_OP_WRITE) {
            TEST_ASSERT_EQUAL_HEX(RWF_DSYNC, sqe->rw_flags);
            submitted++;
        }
    }
    TEST_ASSERT_TRUE(submitted >= 6);
#endif
    unsigned writing = 0;
    /* What was read back may have taken the place of what was written to. */
    RF_EXPECT(RF_OK, rf_log_write(disk, 0, memory, BLOCK, &detail));
    for (unsigned i = 0; i < RF_DISK_SEGMENTS; i++) {
        if (disk->segments[i].fd >= 0 && disk->segments[i].writing) {
            TEST_ASSERT_NOT_EQUAL(0, fcntl(disk->segments[i].fd, F_GETFL) & O_DIRECT);
            writing++;
        }
    }
    TEST_ASSERT_TRUE(writing != 0);
}

#if SEES_THE_RING
/* The write that is in flight has ended: the kernel's answer to it is another. */
static void answer(int32_t result)
{
    struct io_uring_cqe *completion;
    TEST_ASSERT_EQUAL(0, io_uring_wait_cqe(disk->ring, &completion));
    completion->res = result;
}

/* Two blocks, of which what the answer does not say is not there. */
static void expect_completed(int32_t result, size_t there)
{
    static const uint8_t nothing[2 * BLOCK];
    uint64_t tag = 0;
    int error = -1;
    bool missing;
    fill(memory, 2 * BLOCK, (uint64_t)result);
    RF_EXPECT(RF_OK, rf_log_write_begin(disk, BLOCK, memory, 2 * BLOCK, 5, &detail));
    answer(result);
    patch_file(segment_path(0), (off_t)(2 * BLOCK + there), nothing, 2 * BLOCK - there);
    TEST_ASSERT_TRUE(rf_log_write_next(disk, true, &tag, &error));
    TEST_ASSERT_EQUAL_UINT64(5, tag);
    TEST_ASSERT_EQUAL(0, error);
    RF_EXPECT(RF_OK, rf_log_pread(disk, BLOCK, seen, 2 * BLOCK, &missing, &detail));
    TEST_ASSERT_EQUAL_MEMORY(memory, seen, 2 * BLOCK);
}

static void expect_failed(int32_t result, int expected)
{
    uint64_t tag;
    int error = -1;
    RF_EXPECT(RF_OK, rf_log_write_begin(disk, 0, memory, BLOCK, 6, &detail));
    answer(result);
    TEST_ASSERT_TRUE(rf_log_write_next(disk, true, &tag, &error));
    TEST_ASSERT_EQUAL(expected, error);
}

/* What was interrupted, or could not be done now, or only in part, is done; what failed is said, and not done again. */
static void completions_mean_what_they_say(void)
{
    const char *why;
    open_disk(8 * BLOCK);
    make_upto(4);
    rf_disk_probe(disk);
    if (rf_disk_backend(disk, &why) != RF_DISK_URING_DIRECT) {
        TEST_IGNORE_MESSAGE(why);
    }
    expect_completed(-EINTR, 0);
    expect_completed(-EAGAIN, 0);
    expect_completed(512, 0);
    expect_completed(BLOCK, BLOCK);
    expect_completed(BLOCK + 512, BLOCK);
    expect_failed(-EIO, EIO);
    expect_failed(-ENOSPC, ENOSPC);
    expect_failed(0, EIO);
    expect_failed(-EINVAL, EINVAL); /* direct writes have succeeded: it is not for them */
    TEST_ASSERT_EQUAL(RF_DISK_URING_DIRECT, rf_disk_backend(disk, &why));
    expect_completed(2 * BLOCK, 2 * BLOCK);
}

/* The first direct write tells whether the file system takes them. */
static void a_first_write_that_is_invalid_is_made_through_the_cache(void)
{
    const char *why;
    open_disk(8 * BLOCK);
    make_upto(4);
    rf_disk_probe(disk);
    if (rf_disk_backend(disk, &why) != RF_DISK_URING_DIRECT) {
        TEST_IGNORE_MESSAGE(why);
    }
    expect_completed(-EINVAL, 0);
    TEST_ASSERT_EQUAL(RF_DISK_URING_BUFFERED, rf_disk_backend(disk, &why));
    TEST_ASSERT_NOT_NULL(strstr(why, "O_DIRECT is refused"));
}
#endif

/* The disk's: files of the directory, and rings. */
static unsigned descriptors(bool *all_closed_by_exec)
{
    unsigned count = 0;
    DIR *listing = opendir("/proc/self/fd");
    *all_closed_by_exec = true;
    for (struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        char target[128] = {0};
        if (readlinkat(dirfd(listing), e->d_name, target, sizeof(target) - 1) > 0 &&
            (strstr(target, directory) != NULL || strstr(target, "io_uring") != NULL)) {
            count++;
            *all_closed_by_exec &= (fcntl(atoi(e->d_name), F_GETFD) & FD_CLOEXEC) != 0;
        }
    }
    closedir(listing);
    return count;
}

static void descriptors_are_few_and_not_inherited_by_programs(void)
{
    bool closed;
    unsigned before = descriptors(&closed);
    open_disk(TINY);
    make_upto(33);
    for (unsigned i = 0; i < 60; i++) {
        write_and_read_back(i * BLOCK, 2, i);
    }
    unsigned during = descriptors(&closed);
    TEST_ASSERT_TRUE(during > before + 1 && during <= before + RF_DISK_SEGMENTS + 1);
    TEST_ASSERT_TRUE(closed);
    rf_disk_close(disk);
    disk = NULL;
    TEST_ASSERT_EQUAL(before, descriptors(&closed));
}

static volatile sig_atomic_t alarms;
static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

static void signals_do_not_break_writes(void)
{
    struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */
    struct sigaction before;
    struct itimerval often = {.it_interval = {.tv_usec = 200}, .it_value = {.tv_usec = 200}};
    open_disk(8 * BLOCK);
    sigaction(SIGALRM, &action, &before);
    setitimer(ITIMER_REAL, &often, NULL);
    make_upto(52);
    fly(120);
    struct rf_disk_file *file;
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 1, &file, &detail));
    RF_EXPECT(RF_OK, rf_file_append(file, memory, sizeof(memory), &detail));
    RF_EXPECT(RF_OK, rf_file_publish(file, &detail));
    often = (struct itimerval){0};
    setitimer(ITIMER_REAL, &often, NULL);
    sigaction(SIGALRM, &before, NULL);
    TEST_ASSERT_TRUE(alarms > 0);
}

/* --- what may be refused --- */

/* Makes this process's system calls fail with an errno. */
static int deny(const long *calls, unsigned count, int error)
{
    struct sock_filter filter[32];
    unsigned n = 0;
    filter[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < count; i++) {
        filter[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i], 0, 1);
        filter[n++] = (struct sock_filter)BPF_STMT(
            BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ((uint32_t)error & SECCOMP_RET_DATA));
    }
    filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)n, .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
               ? 0
               : -1;
}

struct refusal {
    long calls[4];
    unsigned count;
    int error;
    enum rf_disk_path path;
    const char *words;
};

static void expect_path(enum rf_disk_path path, const char *words)
{
    const char *why;
    TEST_ASSERT_EQUAL(path, rf_disk_backend(disk, &why));
    snprintf(detail.where, sizeof(detail.where), "%.190s", why);
    detail.os_error = 0;
    rf_shop_expect_words(RF_OK, &detail, words);
}

static void use_it_all(void)
{
    make_upto(26);
    fly(60);
    struct rf_disk_file *file;
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 1, &file, &detail));
    RF_EXPECT(RF_OK, rf_file_publish(file, &detail));
}

static int work_with_refusal(void *context)
{
    const struct refusal *refusal = context;
    if (deny(refusal->calls, refusal->count, refusal->error) != 0) {
        return CANT_TEST;
    }
    open_disk(8 * BLOCK);
    use_it_all();
    expect_path(refusal->path, refusal->words);
    rf_disk_close(disk);
    /* Known without a write, and the same. */
    open_disk(8 * BLOCK);
    rf_disk_probe(disk);
    if (refusal->calls[0] == SYS_io_uring_setup) {
        expect_path(refusal->path, refusal->words);
    }
    rf_disk_close(disk);
    return 0;
}

static void expect_with_refusal(struct refusal refusal)
{
    int code = rf_hands_wait(rf_hands_send(work_with_refusal, &refusal));
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE("a seccomp filter can't be set here");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static void io_uring_denied_by_a_profile(void)
{
    expect_with_refusal((struct refusal){
        {SYS_io_uring_setup}, 1, EPERM, RF_DISK_PLAIN_DIRECT, "io_uring|not permitted|profile"});
}

/* The switch is the whole machine's, so it is shown to one process only; the error is the kernel's own. */
static int work_with_the_switch(void *context)
{
    char file[] = "/tmp/ringfence-switch-XXXXXX";
    int fd = mkstemp(file);
    bool shown = fd >= 0 && write(fd, "2\n", 2) == 2 && unshare(CLONE_NEWNS) == 0 &&
                 mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                 mount(file, "/proc/sys/kernel/io_uring_disabled", NULL, MS_BIND, NULL) == 0;
    if (fd >= 0) {
        close(fd);
        unlink(file);
    }
    return shown ? work_with_refusal(context) : CANT_TEST;
}

static void io_uring_switched_off(void)
{
    struct refusal refusal = {{SYS_io_uring_setup},
                              1,
                              EPERM,
                              RF_DISK_PLAIN_DIRECT,
                              "io_uring|not permitted|kernel.io_uring_disabled to 0"};
    int code = rf_hands_wait(rf_hands_send(work_with_the_switch, &refusal));
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE("needs root, for a mount of its own, and a kernel with the switch");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static void io_uring_denied_with_eacces(void)
{
    expect_with_refusal((struct refusal){
        {SYS_io_uring_setup}, 1, EACCES, RF_DISK_PLAIN_DIRECT, "io_uring|denied|allow"});
}

static void io_uring_not_in_the_kernel(void)
{
    expect_with_refusal((struct refusal){
        {SYS_io_uring_setup}, 1, ENOSYS, RF_DISK_PLAIN_DIRECT, "io_uring|not implemented|kernel"});
}

static void io_uring_without_memory(void)
{
    expect_with_refusal((struct refusal){
        {SYS_io_uring_setup}, 1, ENOMEM, RF_DISK_PLAIN_DIRECT, "io_uring|memory|ulimit -l"});
}

static void io_uring_without_descriptors(void)
{
    expect_with_refusal((struct refusal){
        {SYS_io_uring_setup}, 1, EMFILE, RF_DISK_PLAIN_DIRECT, "io_uring|files|ulimit -n"});
}

static void io_uring_that_can_be_made_and_not_entered(void)
{
    expect_with_refusal((struct refusal){
        {SYS_io_uring_enter}, 1, EPERM, RF_DISK_PLAIN_DIRECT, "io_uring|not permitted|profile"});
}

/* Writes that are not to be durable when they return fail. */
static int write_plainly_and_durably(void *context)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev2, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RWF_DSYNC, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    const long others[] = {SYS_pwrite64, SYS_pwritev, SYS_io_uring_setup};
    (void)context;
    open_disk(8 * BLOCK);
    make_upto(4);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0 || deny(others, 3, EIO) != 0) {
        return CANT_TEST;
    }
    struct iovec bytes = {memory, BLOCK};
    TEST_ASSERT_EQUAL(-1, pwritev2(dir_fd, &bytes, 1, 0, 0)); /* the filter is there */
    TEST_ASSERT_EQUAL(EIO, errno);
    write_and_read_back(0, 3, 1);
    fly(9);
    return 0;
}

static void plain_writes_ask_for_durable(void)
{
    int code = rf_hands_wait(rf_hands_send(write_plainly_and_durably, NULL));
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE("a seccomp filter can't be set here");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static void neither_io_uring_nor_durable_writes_in_one_call(void)
{
    expect_with_refusal((struct refusal){{SYS_io_uring_setup, SYS_pwritev2},
                                         2,
                                         ENOSYS,
                                         RF_DISK_PLAIN_DIRECT,
                                         "io_uring|not implemented|kernel"});
}

static void renames_that_can_not_spare_what_is_there(void)
{
    expect_with_refusal((struct refusal){
        {SYS_renameat2, SYS_io_uring_setup}, 2, ENOSYS, RF_DISK_PLAIN_DIRECT, "io_uring"});
}

static int forbid_while_in_flight(void *context)
{
    const long call = SYS_io_uring_enter;
    uint64_t tag;
    int error;
    (void)context;
    open_disk(SEGMENT);
    make(0);
    fill(memory, sizeof(memory), 5);
    for (uint64_t i = 0; i < 4; i++) {
        RF_EXPECT(RF_OK,
                  rf_log_write_begin(disk, i * BLOCK, memory + i * BLOCK, BLOCK, i, &detail));
    }
    if (deny(&call, 1, EPERM) != 0) {
        return CANT_TEST;
    }
    for (uint64_t i = 4; i < 8; i++) {
        RF_EXPECT(RF_OK,
                  rf_log_write_begin(disk, i * BLOCK, memory + i * BLOCK, BLOCK, i, &detail));
    }
    for (unsigned i = 0; i < 8; i++) {
        TEST_ASSERT_TRUE(rf_log_write_next(disk, true, &tag, &error));
        TEST_ASSERT_EQUAL(0, error);
    }
    bool missing;
    RF_EXPECT(RF_OK, rf_log_pread(disk, 0, seen, 8 * BLOCK, &missing, &detail));
    TEST_ASSERT_EQUAL_MEMORY(memory, seen, 8 * BLOCK);
    rf_disk_close(disk);
    return 0;
}

static void io_uring_taken_away_while_writes_are_in_flight(void)
{
    int code = rf_hands_wait(rf_hands_send(forbid_while_in_flight, NULL));
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE("a seccomp filter can't be set here");
    }
    TEST_ASSERT_EQUAL(0, code);
}

/* A file system of its own over the test's directory, for this process and as long as it lives. */
static int mount_over(const char *type, const char *options)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(type, directory, type, 0, options) != 0) {
        return -1;
    }
    close(dir_fd);
    dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(dir_fd >= 0);
    return 0;
}

static int work_on_ramfs(void *context)
{
    const struct refusal *refusal = context;
    if (mount_over("ramfs", NULL) != 0) {
        return CANT_TEST;
    }
    return work_with_refusal((void *)(uintptr_t)refusal);
}

static void expect_on_a_mount(rf_hands_work *work, void *context)
{
    int code = rf_hands_wait(rf_hands_send(work, context));
    if (code == CANT_TEST) {
        TEST_IGNORE_MESSAGE("needs root, for a mount of its own");
    }
    TEST_ASSERT_EQUAL(0, code);
}

static void o_direct_refused_by_a_real_file_system(void)
{
    struct refusal refusal = {
        {0}, 0, 0, RF_DISK_URING_BUFFERED, "O_DIRECT|Invalid argument|page cache|ext4"};
    expect_on_a_mount(work_on_ramfs, &refusal);
}

static void both_refused_at_once(void)
{
    struct refusal refusal = {
        {SYS_io_uring_setup}, 1, EPERM, RF_DISK_PLAIN_BUFFERED, "io_uring|profile|O_DIRECT"};
    expect_on_a_mount(work_on_ramfs, &refusal);
}

static int fill_a_small_disk(void *context)
{
    struct rf_disk_file *file = NULL;
    uint64_t number = 0;
    rf_status status;
    (void)context;
    if (mount_over("tmpfs", "size=3m") != 0) {
        return CANT_TEST;
    }
    open_disk(SEGMENT);
    do {
        struct rf_segment_header header = header_of(number++, SEGMENT);
        status = rf_segment_make(disk, &header, 77, &detail);
    } while (status == RF_OK);
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(status, &detail, "log.|No space|make room");
    TEST_ASSERT_EQUAL(ENOSPC, detail.os_error);
    TEST_ASSERT_TRUE(number > 1);
    TEST_ASSERT_EQUAL(number - 1, names_in_directory());

    /* What there is can be written to all the same. */
    write_and_read_back(0, 16, 3);
    write_and_read_back((number - 1) * DATA - 16 * BLOCK, 16, 4);

    RF_EXPECT(RF_OK, rf_file_begin(disk, "snapshot", 1, &file, &detail));
    do {
        status = rf_file_append(file, memory, sizeof(memory), &detail);
    } while (status == RF_OK);
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, status);
    rf_shop_expect_words(status, &detail, "snapshot|No space|make room");
    rf_file_discard(file);
    TEST_ASSERT_EQUAL(number - 1, names_in_directory());

    /* The last bytes find no room at the end. */
    RF_EXPECT(RF_OK, rf_segment_remove(disk, number - 2, &detail));
    RF_EXPECT(RF_OK, rf_file_begin(disk, "snapshot", 2, &file, &detail));
    for (unsigned i = 0; i < 9; i++) {
        RF_EXPECT(RF_OK, rf_file_append(file, memory, sizeof(memory) / 2, &detail));
    }
    int hog = open(path_of("hog"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    while (write(hog, memory, BLOCK) == BLOCK) {
    }
    close(hog);
    RF_EXPECT(RF_RESOURCE_EXHAUSTED, rf_file_publish(file, &detail));
    TEST_ASSERT_EQUAL(number - 2 + 1, names_in_directory());
    rf_disk_close(disk);
    return 0;
}

static void a_full_disk_is_said_and_leaves_nothing(void)
{
    expect_on_a_mount(fill_a_small_disk, NULL);
}

static int use_a_read_only_mount(void *context)
{
    (void)context;
    if (mount_over("tmpfs", "ro,size=1m") != 0) {
        return CANT_TEST;
    }
    open_disk(TINY);
    struct rf_segment_header header = header_of(0, TINY);
    RF_EXPECT(RF_IO_ERROR, rf_segment_make(disk, &header, 77, &detail));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "log.|mount|for writing");
    rf_disk_close(disk);
    return 0;
}

static void a_read_only_disk_is_said(void)
{
    expect_on_a_mount(use_a_read_only_mount, NULL);
}

static int work_with_small_files(void *context)
{
    struct rlimit limit = {.rlim_cur = SEGMENT - 1, .rlim_max = RLIM_INFINITY};
    struct rf_segment_header header = header_of(0, SEGMENT);
    struct rf_disk_file *file;
    rf_status status;
    (void)context;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return CANT_TEST;
    }
    limit.rlim_cur = SEGMENT - 1;
    TEST_ASSERT_EQUAL(0, setrlimit(RLIMIT_FSIZE, &limit)); /* and SIGXFSZ kills, as by default */
    open_disk(SEGMENT);
    RF_EXPECT(RF_IO_ERROR, rf_segment_make(disk, &header, 77, &detail));
    rf_shop_expect_words(RF_IO_ERROR, &detail, "log.|too large|ulimit -f");
    RF_EXPECT(RF_OK, rf_file_begin(disk, "snapshot", 1, &file, &detail));
    do {
        status = rf_file_append(file, memory, sizeof(memory), &detail);
    } while (status == RF_OK);
    RF_EXPECT(RF_IO_ERROR, status);
    rf_file_discard(file);
    TEST_ASSERT_EQUAL(0, names_in_directory());
    rf_disk_close(disk);
    return 0;
}

static void a_limit_of_file_sizes_is_said_and_kills_nobody(void)
{
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(work_with_small_files, NULL)));
}

/* --- several processes --- */

#define RACERS 6u
#define RACES  8u
static uint32_t racer; /* copied by fork */

static int make_and_write(void *context)
{
    _Atomic uint32_t *ready = context;
    uint32_t me = racer;
    open_disk(8 * BLOCK);
    fill(memory, BLOCK, me);
    for (uint32_t r = 0; r < RACES; r++) {
        struct rf_segment_header header = header_of(r, 8 * BLOCK);
        header.incarnation = me;
        atomic_fetch_add(ready, 1);
        rf_hands_until(ready, (r + 1) * RACERS);
        RF_EXPECT(RF_OK, rf_segment_make(disk, &header, 1, &detail)); /* the same number */
        RF_EXPECT(RF_OK, rf_log_write(disk, r * 7 * BLOCK + me * BLOCK, memory, BLOCK, &detail));
    }
    rf_disk_close(disk);
    return 0;
}

static void processes_that_race_to_make_a_segment_write_into_the_same_file(void)
{
    _Atomic uint32_t *ready = rf_hands_board(sizeof(*ready));
    pid_t pids[RACERS];
    bool missing;
    for (uint32_t i = 0; i < RACERS; i++) {
        racer = i;
        pids[i] = rf_hands_send(make_and_write, ready);
    }
    for (uint32_t i = 0; i < RACERS; i++) {
        TEST_ASSERT_EQUAL(0, rf_hands_wait(pids[i]));
    }
    TEST_ASSERT_EQUAL(RACES, names_in_directory());
    open_disk(8 * BLOCK);
    for (uint32_t r = 0; r < RACES; r++) {
        struct rf_segment_header read;
        RF_EXPECT(RF_OK, rf_segment_header_read(disk, r, &read, &detail));
        TEST_ASSERT_TRUE(read.incarnation < RACERS);
        for (uint32_t i = 0; i < RACERS; i++) {
            fill(memory, BLOCK, i);
            RF_EXPECT(RF_OK, rf_log_pread(disk, r * 7 * BLOCK + i * BLOCK, seen, BLOCK, &missing,
                                          &detail));
            TEST_ASSERT_EQUAL_MEMORY(memory, seen, BLOCK);
        }
    }
}

static int be_a_child(void *context)
{
    uint64_t tag;
    int error;
    (void)context;
    RF_EXPECT(RF_FORKED, rf_log_write_begin(disk, 0, memory, BLOCK, 1, &detail));
    RF_EXPECT(RF_FORKED, rf_log_write(disk, 20 * BLOCK, memory, BLOCK, &detail));
    TEST_ASSERT_FALSE(rf_log_write_next(disk, true, &tag, &error));
    bool closed;
    unsigned before = descriptors(&closed);
    rf_disk_forget(disk);
    TEST_ASSERT_TRUE(descriptors(&closed) < before);

    open_disk(SEGMENT); /* one of its own */
    write_and_read_back(20 * BLOCK, 1, 6);
    rf_disk_close(disk);
    return 0;
}

static void a_child_of_fork_leaves_its_parents_writes_alone(void)
{
    bool missing;
    uint64_t tag;
    int error;
    open_disk(SEGMENT);
    make(0);
    fill(memory, sizeof(memory), 5);
    for (unsigned round = 0; round < 5; round++) {
        for (uint64_t i = 0; i < RF_DISK_DEPTH; i++) {
            RF_EXPECT(RF_OK,
                      rf_log_write_begin(disk, i * BLOCK, memory + i * BLOCK, BLOCK, i, &detail));
        }
        pid_t child = rf_hands_send(be_a_child, NULL);
        for (unsigned i = 0; i < RF_DISK_DEPTH; i++) {
            TEST_ASSERT_TRUE(rf_log_write_next(disk, true, &tag, &error));
            TEST_ASSERT_EQUAL(0, error);
        }
        TEST_ASSERT_EQUAL(0, rf_hands_wait(child));
        RF_EXPECT(RF_OK, rf_log_pread(disk, 0, seen, 8 * BLOCK, &missing, &detail));
        TEST_ASSERT_EQUAL_MEMORY(memory, seen, 8 * BLOCK);
    }
}

/* --- whole files --- */

static void a_file_appears_whole_when_it_is_published(void)
{
    struct rf_disk_file *file;
    static uint8_t big[3 * (1u << 20) + 12345];
    static uint8_t back[sizeof(big) + 1];
    open_disk(TINY);
    for (size_t i = 0; i < sizeof(big); i++) {
        big[i] = (uint8_t)(i * 7 + i / 1000);
    }
    RF_EXPECT(RF_OK, rf_file_begin(disk, "snapshot.0000000000000001", 9, &file, &detail));
    size_t at = 0;
    for (size_t n = 1; at < sizeof(big); n = n * 3 + 1) {
        size_t len = n % 700001 < sizeof(big) - at ? n % 700001 : sizeof(big) - at;
        RF_EXPECT(RF_OK, rf_file_append(file, big + at, len, &detail));
        at += len;
    }
    TEST_ASSERT_EQUAL(1, names_in_directory()); /* the temporary one */
    memset(big + 100, 0xab, 300);
    RF_EXPECT(RF_OK, rf_file_patch(file, 100, big + 100, 300, &detail));
    memset(big + sizeof(big) - 50, 0xcd, 50); /* not written out yet */
    RF_EXPECT(RF_OK, rf_file_patch(file, sizeof(big) - 50, big + sizeof(big) - 50, 50, &detail));
    size_t seam = 3u << 20;
    memset(big + seam - 10, 0xef, 20); /* half and half */
    RF_EXPECT(RF_OK, rf_file_patch(file, seam - 10, big + seam - 10, 20, &detail));
    RF_EXPECT(RF_OK, rf_file_publish(file, &detail));
    TEST_ASSERT_EQUAL(1, names_in_directory());
    TEST_ASSERT_EQUAL(sizeof(big),
                      read_file(path_of("snapshot.0000000000000001"), back, sizeof(back), 0));
    TEST_ASSERT_EQUAL_MEMORY(big, back, sizeof(big));
}

static void publish_small(const char *name, const char *text)
{
    struct rf_disk_file *file;
    RF_EXPECT(RF_OK, rf_file_begin(disk, name, 9, &file, &detail));
    RF_EXPECT(RF_OK, rf_file_append(file, text, strlen(text), &detail));
    RF_EXPECT(RF_OK, rf_file_publish(file, &detail));
}

static void a_file_is_replaced_whole_and_a_discarded_one_changes_nothing(void)
{
    struct rf_disk_file *file;
    char text[16] = {0};
    open_disk(TINY);
    publish_small("store", "first one");
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 9, &file, &detail));
    RF_EXPECT(RF_OK, rf_file_append(file, "half", 4, &detail));
    rf_file_discard(file);
    TEST_ASSERT_EQUAL(9, read_file(path_of("store"), text, sizeof(text), 0));
    TEST_ASSERT_EQUAL_STRING("first one", text);
    publish_small("store", "2nd");
    TEST_ASSERT_EQUAL(3, read_file(path_of("store"), text, sizeof(text), 0));
    TEST_ASSERT_EQUAL_MEMORY("2nd", text, 3);
    TEST_ASSERT_EQUAL(1, names_in_directory());
    RF_EXPECT(RF_OK, rf_file_remove(disk, "store", &detail));
    RF_EXPECT(RF_OK, rf_file_remove(disk, "store", &detail));
    TEST_ASSERT_EQUAL(0, names_in_directory());
}

struct listing {
    uint64_t numbers[16];
    unsigned count;
};
static void note_number(void *context, uint64_t number)
{
    struct listing *listing = context;
    listing->numbers[listing->count++] = number;
}

static void numbered_names_are_listed_in_order_and_lookalikes_are_not(void)
{
    struct listing listing = {0};
    open_disk(TINY);
    const uint64_t numbers[] = {0xfedcba9876543210ull, 3, 0, 0x10, UINT64_MAX};
    for (unsigned i = 0; i < 5; i++) {
        char name[64];
        snprintf(name, sizeof(name), "snapshot.%016llx", (unsigned long long)numbers[i]);
        publish_small(name, "x");
    }
    const char *others[] = {"snapshot.",
                            "snapshot.000000000000000",
                            "snapshot.00000000000000000",
                            "snapshot.000000000000000G",
                            "snapshot.000000000000000A",
                            "snapshot 0000000000000001",
                            "log.0000000000000005",
                            "store"};
    for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        publish_small(others[i], "x");
    }
    RF_EXPECT(RF_OK, rf_disk_list(disk, "snapshot.", note_number, &listing, &detail));
    TEST_ASSERT_EQUAL(5, listing.count);
    const uint64_t expected[] = {0, 3, 0x10, 0xfedcba9876543210ull, UINT64_MAX};
    TEST_ASSERT_EQUAL_HEX64_ARRAY(expected, listing.numbers, 5);
    listing.count = 0;
    RF_EXPECT(RF_OK, rf_disk_list(disk, "none.", note_number, &listing, &detail));
    TEST_ASSERT_EQUAL(0, listing.count);
}

static void sweeping_removes_temporary_files_and_nothing_else(void)
{
    struct rf_disk_file *left[2]; /* by one that died, so to say */
    open_disk(TINY);
    make(0);
    publish_small("store", "x");
    publish_small("lock", "x");
    publish_small("tmpfile", "x");
    RF_EXPECT(RF_OK, rf_file_begin(disk, "store", 1, &left[0], &detail));
    RF_EXPECT(RF_OK, rf_file_begin(disk, "snapshot.0000000000000001", 1, &left[1], &detail));
    TEST_ASSERT_EQUAL(6, names_in_directory());
    rf_disk_sweep_temporary(disk);
    TEST_ASSERT_EQUAL(4, names_in_directory());
    TEST_ASSERT_TRUE(rf_segment_exists(disk, 0));
    rf_file_discard(left[0]);
    rf_file_discard(left[1]);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(a_new_segment_has_its_header_and_zeros_that_were_really_written);
    RUN_TEST(a_new_segment_has_no_unwritten_extents);
    RUN_TEST(whoever_is_slower_finds_the_segment_as_it_is);
    RUN_TEST(temporary_files_of_others_are_no_obstacle_and_let_alone);
    RUN_TEST(every_damaged_byte_of_a_header_block_is_noticed);
    RUN_TEST(headers_of_others_are_refused_by_what_they_say);
    RUN_TEST(a_file_of_another_size_is_neither_read_nor_written);
    RUN_TEST(a_file_that_shrinks_under_a_reader_is_noticed);
    RUN_TEST(a_symbolic_link_is_never_followed);
    RUN_TEST(a_removed_segment_is_gone_and_removing_again_is_fine);
    RUN_TEST(what_is_asked_for_must_make_sense);
    RUN_TEST(new_files_have_the_group_and_mode_whatever_the_umask);
    RUN_TEST(what_was_written_is_read_at_its_place);
    RUN_TEST(a_write_may_cross_more_segments_than_there_are_descriptors);
    RUN_TEST(reads_need_no_alignment_and_see_zeros_where_nothing_is);
    RUN_TEST(a_write_into_a_segment_that_is_not_there_begins_nothing);
    RUN_TEST(eight_writes_are_in_flight_and_not_nine);
    RUN_TEST(many_writes_in_flight_all_land_once);
    RUN_TEST(closing_waits_for_what_is_in_flight);
    RUN_TEST(every_write_asks_for_direct_and_durable);
#if SEES_THE_RING
    RUN_TEST(completions_mean_what_they_say);
    RUN_TEST(a_first_write_that_is_invalid_is_made_through_the_cache);
#endif
    RUN_TEST(descriptors_are_few_and_not_inherited_by_programs);
    RUN_TEST(signals_do_not_break_writes);
    RUN_TEST(io_uring_denied_by_a_profile);
    RUN_TEST(io_uring_switched_off);
    RUN_TEST(io_uring_denied_with_eacces);
    RUN_TEST(io_uring_not_in_the_kernel);
    RUN_TEST(io_uring_without_memory);
    RUN_TEST(io_uring_without_descriptors);
    RUN_TEST(io_uring_that_can_be_made_and_not_entered);
    RUN_TEST(plain_writes_ask_for_durable);
    RUN_TEST(neither_io_uring_nor_durable_writes_in_one_call);
    RUN_TEST(renames_that_can_not_spare_what_is_there);
    RUN_TEST(io_uring_taken_away_while_writes_are_in_flight);
    RUN_TEST(o_direct_refused_by_a_real_file_system);
    RUN_TEST(both_refused_at_once);
    RUN_TEST(a_full_disk_is_said_and_leaves_nothing);
    RUN_TEST(a_read_only_disk_is_said);
    RUN_TEST(a_limit_of_file_sizes_is_said_and_kills_nobody);
    RUN_TEST(processes_that_race_to_make_a_segment_write_into_the_same_file);
    RUN_TEST(a_child_of_fork_leaves_its_parents_writes_alone);
    RUN_TEST(a_file_appears_whole_when_it_is_published);
    RUN_TEST(a_file_is_replaced_whole_and_a_discarded_one_changes_nothing);
    RUN_TEST(numbered_names_are_listed_in_order_and_lookalikes_are_not);
    RUN_TEST(sweeping_removes_temporary_files_and_nothing_else);
    return UNITY_END();
}
