/*
 * That the disk which remembers makes exactly the images that are legal: on traces made by hand, against
 * lists made by hand; on random traces, against a disk that is played at random; and that the
 * real disk under the log (shm/disk.c) keeps its promises on all of them, and would be found out if it did not.
 *
 * Files of the made-up traces have sectors of one letter each, and an image is written as
 *   name=letters name=letters ...   with '.' for a sector of zeros
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unity.h>

#include "hands.h"
#include "point.h"
#include "prng.h"
#include "shop.h"
#include "simdisk.h"

#define SECTOR     RF_SIMDISK_SECTOR
#define BLOCK      4096u
#define SEGMENT    (4 * BLOCK)
#define IMAGES_MAX 4096u
#define TEXT_MAX   160u

static char directory[64]; /* of the store */
static char image[96];
static rf_detail detail;
static int dir_fd;
static struct rf_disk *disk;
static _Alignas(BLOCK) uint8_t memory[16 * BLOCK];

void setUp(void)
{
    /* Its trace is what counts, so that the fastest will do. */
    strcpy(directory, "/dev/shm/rf-test-simdisk-XXXXXX");
    TEST_ASSERT_NOT_NULL(mkdtemp(directory));
    snprintf(image, sizeof(image), "%s.image", directory);
    dir_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TEST_ASSERT_TRUE(dir_fd >= 0);
    disk = NULL;
}

void tearDown(void)
{
    char command[256];
    rf_point_on_hit = NULL;
    rf_simdisk_unwatch();
    if (disk != NULL) {
        rf_disk_close(disk);
    }
    close(dir_fd);
    snprintf(command, sizeof(command), "rm -rf %s %s", directory, image);
    TEST_ASSERT_EQUAL(0, system(command));
}

/* --- images as text --- */

static int text_order(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct images {
    char text[IMAGES_MAX][TEXT_MAX];
    unsigned count;
};

/* A file that is not of whole sectors shows each run of equal bytes and its length. */
static void describe_bytes(const uint8_t *bytes, size_t len, char *out, size_t room)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        size_t run = 1;
        while (i + run < len && bytes[i + run] == bytes[i]) {
            run++;
        }
        char letter = bytes[i] == 0 ? '.' : (char)bytes[i];
        if (run % SECTOR == 0 && i % SECTOR == 0) {
            for (size_t k = 0; k < run / SECTOR; k++) {
                n += (size_t)snprintf(out + n, room - n, "%c", letter);
            }
        } else {
            n += (size_t)snprintf(out + n, room - n, "%c%zu", letter, run);
        }
        TEST_ASSERT_TRUE(n < room);
        i += run;
    }
    out[n] = 0;
}

/* The directory, by the names of its files. */
static void describe(const char *path, char text[TEXT_MAX])
{
    char parts[16][64];
    unsigned count = 0;
    DIR *listing = opendir(path);
    TEST_ASSERT_NOT_NULL(listing);
    for (struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        uint8_t bytes[16 * SECTOR];
        char letters[48];
        if (e->d_name[0] == '.') {
            continue;
        }
        int fd = openat(dirfd(listing), e->d_name, O_RDONLY | O_CLOEXEC);
        ssize_t len = read(fd, bytes, sizeof(bytes));
        TEST_ASSERT_TRUE(len >= 0 && (size_t)len < sizeof(bytes) && count < 16);
        close(fd);
        describe_bytes(bytes, (size_t)len, letters, sizeof(letters));
        snprintf(parts[count++], sizeof(parts[0]), "%.14s=%s ", e->d_name, letters);
    }
    closedir(listing);
    qsort(parts, count, sizeof(parts[0]), text_order);
    text[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        TEST_ASSERT_TRUE(strlen(text) + strlen(parts[i]) < TEXT_MAX);
        strcat(text, parts[i]);
    }
}

static void all_images(uint32_t cut, struct images *out)
{
    uint64_t count = rf_simdisk_images(cut);
    TEST_ASSERT_TRUE(count <= IMAGES_MAX);
    out->count = (unsigned)count;
    for (uint64_t i = 0; i < count; i++) {
        rf_simdisk_image(cut, i, image);
        describe(image, out->text[i]);
    }
    qsort(out->text, out->count, TEXT_MAX, text_order);
    for (unsigned i = 1; i < out->count; i++) {
        TEST_ASSERT_TRUE_MESSAGE(strcmp(out->text[i - 1], out->text[i]) != 0, out->text[i]);
    }
}

static unsigned position_in(const struct images *set, const char *text)
{
    for (unsigned i = 0; i < set->count; i++) {
        if (strcmp(set->text[i], text) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* Samples are images too, and all of a few come up. */
static void expect_samples_within(uint32_t cut, const struct images *set)
{
    static bool seen[IMAGES_MAX];
    char text[TEXT_MAX];
    unsigned different = 0;
    memset(seen, 0, sizeof(seen));
    for (uint64_t seed = 0; seed < 40 + 20 * set->count && different < set->count; seed++) {
        rf_simdisk_sample(cut, seed, image);
        describe(image, text);
        unsigned at = position_in(set, text);
        TEST_ASSERT_TRUE_MESSAGE(at != UINT32_MAX, text);
        different += !seen[at];
        seen[at] = true;
    }
    if (set->count <= 9) {
        TEST_ASSERT_EQUAL_MESSAGE(set->count, different, "not all of them are drawn");
    }
}

/* Exactly these, separated by '|', after this cut. */
static void expect_images(uint32_t cut, const char *expected)
{
    static struct images found;
    static struct images wanted;
    char copy[2048];
    char message[256];
    char *rest = copy;
    all_images(cut, &found);
    TEST_ASSERT_TRUE(strlen(expected) < sizeof(copy));
    strcpy(copy, expected);
    wanted.count = 0;
    for (char *one = strsep(&rest, "|"); one != NULL; one = strsep(&rest, "|")) {
        /* Always with the blank that describe() ends with. */
        snprintf(wanted.text[wanted.count++], TEXT_MAX, "%s%s", one, one[0] != 0 ? " " : "");
    }
    for (unsigned i = 0; i < wanted.count; i++) {
        snprintf(message, sizeof(message), "missing: %.150s", wanted.text[i]);
        TEST_ASSERT_TRUE_MESSAGE(position_in(&found, wanted.text[i]) != UINT32_MAX, message);
    }
    for (unsigned i = 0; i < found.count; i++) {
        snprintf(message, sizeof(message), "illegal: %.150s", found.text[i]);
        TEST_ASSERT_TRUE_MESSAGE(position_in(&wanted, found.text[i]) != UINT32_MAX, message);
    }
    TEST_ASSERT_EQUAL(wanted.count, found.count);
    expect_samples_within(cut, &found);
}

static void expect_now(const char *expected)
{
    expect_images(rf_simdisk_cuts(), expected);
}

/* --- traces made by hand --- */

static void put_file(const char *name, const char *letters)
{
    int fd = openat(dir_fd, name, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    uint8_t sector[SECTOR];
    TEST_ASSERT_TRUE(fd >= 0);
    for (const char *l = letters; *l != 0; l++) {
        memset(sector, *l, sizeof(sector));
        TEST_ASSERT_EQUAL(SECTOR, write(fd, sector, sizeof(sector)));
    }
    close(fd);
}

static void tell(struct rf_disk_event event)
{
    TEST_ASSERT_EQUAL(0, rf_simdisk_trace(NULL, &event));
}

static void begin_bytes(uint64_t id, const char *name, uint64_t offset, const void *bytes,
                        size_t len)
{
    tell((struct rf_disk_event){.kind = RF_DISK_WRITE_BEGIN,
                                .name = name,
                                .offset = offset,
                                .bytes = bytes,
                                .len = len,
                                .id = id});
}

/* Sectors from `first` on, one for each letter. */
static void begin_write(uint64_t id, const char *name, uint64_t first, const char *letters)
{
    uint8_t bytes[16 * SECTOR];
    size_t count = strlen(letters);
    for (size_t i = 0; i < count; i++) {
        memset(bytes + i * SECTOR, letters[i] == '.' ? 0 : letters[i], SECTOR);
    }
    begin_bytes(id, name, first * SECTOR, bytes, count * SECTOR);
}

static void end_write(uint64_t id, bool sync, int error)
{
    tell((struct rf_disk_event){.kind = RF_DISK_WRITE_END, .id = id, .sync = sync, .error = error});
}

/* A segment's name is never taken over, others are. */
static void before(enum rf_disk_event_kind kind, const char *name, const char *name2)
{
    bool replace = kind == RF_DISK_RENAME && strcmp(name2, "log") != 0;
    tell((struct rf_disk_event){.kind = kind, .name = name, .name2 = name2, .replace = replace});
}

static void after(enum rf_disk_event_kind kind, const char *name, const char *name2, int error)
{
    tell((struct rf_disk_event){
        .kind = kind, .name = name, .name2 = name2, .done = true, .error = error});
}

static void whole(enum rf_disk_event_kind kind, const char *name, const char *name2)
{
    before(kind, name, name2);
    after(kind, name, name2, 0);
}

static void what_was_there_is_there(void)
{
    put_file("x", "ab");
    put_file("y", "");
    rf_simdisk_begin(directory);
    expect_now("x=ab y=");
    rf_simdisk_note(5);
    expect_now("x=ab y=");
}

static void a_write_in_flight_is_kept_dropped_or_torn_until_it_is_durable(void)
{
    put_file("x", "ab");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "AB");
    expect_now("x=ab|x=Ab|x=aB|x=AB");
    end_write(1, true, 0);
    expect_now("x=AB");
    expect_images(1, "x=ab|x=Ab|x=aB|x=AB"); /* and back */
    expect_images(0, "x=ab");
}

static void a_failed_write_may_be_there_or_not(void)
{
    put_file("x", "ab");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 1, "B");
    end_write(1, true, EIO);
    whole(RF_DISK_SYNC, "x", NULL);
    expect_now("x=ab|x=aB");
}

static void writes_to_the_cache_wait_for_a_sync_that_began_after_them(void)
{
    put_file("x", "abc");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "A");
    begin_write(2, "x", 1, "B");
    end_write(1, false, 0);
    before(RF_DISK_SYNC, "x", NULL);
    end_write(2, false, 0);
    begin_write(3, "x", 2, "C");
    end_write(3, false, 0);
    expect_now("x=abc|x=Abc|x=aBc|x=ABc|x=abC|x=AbC|x=aBC|x=ABC");
    after(RF_DISK_SYNC, "x", NULL, 0);
    expect_now("x=Abc|x=ABc|x=AbC|x=ABC");
    before(RF_DISK_SYNC, "x", NULL);
    after(RF_DISK_SYNC, "x", NULL, EIO);
    expect_now("x=Abc|x=ABc|x=AbC|x=ABC");
    whole(RF_DISK_SYNC, "x", NULL);
    expect_now("x=ABC");
}

static void what_was_overwritten_in_the_cache_may_have_been_written_back_before(void)
{
    put_file("x", "a");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "A");
    end_write(1, false, 0);
    begin_write(2, "x", 0, "Z");
    end_write(2, false, 0);
    expect_now("x=a|x=A|x=Z");
    whole(RF_DISK_SYNC, "x", NULL);
    expect_now("x=Z");
}

static void a_write_that_never_ended_may_come_after_a_durable_one(void)
{
    put_file("x", "a");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "A"); /* its writer is stopped */
    begin_write(2, "x", 0, "B");
    expect_now("x=a|x=A|x=B");
    end_write(2, true, 0);
    expect_now("x=B|x=A");
    whole(RF_DISK_SYNC, "x", NULL);
    expect_now("x=B|x=A");
    end_write(1, true, 0);
    expect_now("x=A");
}

static void a_write_that_ended_does_not_come_back_over_a_later_durable_one(void)
{
    put_file("x", "ab");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "AB");
    end_write(1, true, EIO);
    begin_write(2, "x", 0, "Z");
    end_write(2, true, 0);
    expect_now("x=Zb|x=ZB");
}

static void the_same_bytes_written_twice_are_one_image(void)
{
    put_file("x", "ab");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "aB");
    begin_write(2, "x", 0, "aB");
    expect_now("x=ab|x=aB");
    end_write(2, true, 0);
    expect_now("x=aB");
}

static void a_file_that_grows_has_its_old_size_or_a_new_one(void)
{
    put_file("x", "a");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 1, "B");
    expect_now("x=a|x=a.|x=aB");
    begin_write(2, "x", 2, "C");
    expect_now("x=a|x=a.|x=aB|x=a..|x=aB.|x=a.C|x=aBC");
    end_write(1, true, 0);
    expect_now("x=aB|x=aB.|x=aBC");
}

static void pieces_of_a_sector_come_together(void)
{
    uint8_t x[100];
    uint8_t y[50];
    uint8_t z[50];
    memset(x, 'x', sizeof(x));
    memset(y, 'y', sizeof(y));
    memset(z, 'z', sizeof(z));
    put_file("f", "");
    rf_simdisk_begin(directory);
    begin_bytes(1, "f", 0, x, sizeof(x));
    end_write(1, false, 0);
    expect_now("f=|f=.100|f=x100");
    whole(RF_DISK_SYNC, "f", NULL);
    begin_bytes(2, "f", 100, y, sizeof(y));
    end_write(2, false, 0);
    begin_bytes(3, "f", 150, z, sizeof(z));
    end_write(3, false, 0);
    /* The last piece without the one before can't be: the sector is written as a whole. */
    expect_now("f=x100|f=x100.50|f=x100y50|f=x100.100|f=x100y50.50|f=x100y50z50");
    whole(RF_DISK_SYNC, "f", NULL);
    /* One that did not end comes over whatever is there. */
    begin_bytes(4, "f", 0, z, sizeof(z));
    end_write(4, false, 0);
    begin_bytes(5, "f", 150, y, sizeof(y));
    expect_now("f=x100y50z50|f=z50x50y50z50|f=x100y100|f=z50x50y100");
}

static void zeros_need_no_bytes(void)
{
    put_file("x", "ab");
    rf_simdisk_begin(directory);
    begin_bytes(1, "x", 0, NULL, 3 * SECTOR);
    expect_now("x=ab|x=.b|x=a.|x=..|x=ab.|x=.b.|x=a..|x=...");
    end_write(1, false, 0);
    whole(RF_DISK_SYNC, "x", NULL);
    expect_now("x=...");
}

static void a_file_is_replaced_when_the_directory_is_synced(void)
{
    put_file("s", "o");
    rf_simdisk_begin(directory);
    whole(RF_DISK_CREATE, "t", NULL);
    begin_write(1, "t", 0, "n");
    end_write(1, false, 0);
    expect_now("s=o|s=o t=|s=o t=.|s=o t=n");
    whole(RF_DISK_SYNC, "t", NULL);
    expect_now("s=o|s=o t=n");
    before(RF_DISK_RENAME, "t", "s");
    expect_now("s=o|s=o t=n|s=n");
    after(RF_DISK_RENAME, "t", "s", 0);
    before(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("s=o|s=o t=n|s=n");
    after(RF_DISK_SYNC_DIR, NULL, NULL, 0);
    expect_now("s=n");
}

/* The mistake that such a disk is made to find. */
static void a_file_that_was_not_synced_before_its_rename_may_be_empty(void)
{
    put_file("s", "o");
    rf_simdisk_begin(directory);
    whole(RF_DISK_CREATE, "t", NULL);
    begin_write(1, "t", 0, "n");
    end_write(1, false, 0);
    whole(RF_DISK_RENAME, "t", "s");
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("s=|s=.|s=n");
}

static void changes_of_names_come_in_any_order_and_failed_ones_not_at_all(void)
{
    put_file("a", "1");
    put_file("b", "2");
    rf_simdisk_begin(directory);
    whole(RF_DISK_REMOVE, "a", NULL);
    whole(RF_DISK_RENAME, "b", "c");
    before(RF_DISK_RENAME, "c", "d");
    after(RF_DISK_RENAME, "c", "d", EIO);
    before(RF_DISK_REMOVE, "nothing", NULL);
    after(RF_DISK_REMOVE, "nothing", NULL, ENOENT);
    expect_now("a=1 b=2|b=2|a=1 c=2|c=2");
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("c=2");
}

static void a_change_that_was_not_done_when_the_sync_began_is_not_synced(void)
{
    put_file("a", "1");
    rf_simdisk_begin(directory);
    before(RF_DISK_REMOVE, "a", NULL);
    before(RF_DISK_SYNC_DIR, NULL, NULL);
    after(RF_DISK_REMOVE, "a", NULL, 0);
    after(RF_DISK_SYNC_DIR, NULL, NULL, 0);
    expect_now("a=1|");
}

/* One that dies between a rename and the word that it was done. */
static int rename_and_die(void *context)
{
    (void)context;
    before(RF_DISK_RENAME, "t", "log");
    return 0;
}

static void a_change_by_one_that_died_is_possible_until_somebody_uses_the_name(void)
{
    put_file("t", "a");
    rf_simdisk_begin(directory);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(rename_and_die, NULL)));
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("t=a|log=a");
    begin_write(1, "log", 0, "A");
    end_write(1, true, 0);
    expect_now("t=A|log=A"); /* known now, and not synced */
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("log=A");
}

static void a_name_in_the_way_proves_the_change_of_one_that_died(void)
{
    put_file("t", "a");
    put_file("u", "b");
    rf_simdisk_begin(directory);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(rename_and_die, NULL)));
    before(RF_DISK_RENAME, "u", "log");
    after(RF_DISK_RENAME, "u", "log", EEXIST);
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("log=a u=b");
}

static void a_removed_name_refutes_the_rename_of_one_that_died(void)
{
    put_file("t", "a");
    rf_simdisk_begin(directory);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(rename_and_die, NULL)));
    whole(RF_DISK_REMOVE, "t", NULL);
    expect_now("t=a|");
}

static void who_died_about_to_take_a_name_did_not_take_it_from_another(void)
{
    put_file("t", "a");
    put_file("u", "b");
    rf_simdisk_begin(directory);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(rename_and_die, NULL)));
    whole(RF_DISK_RENAME, "u", "log");
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("log=b t=a");
}

/* Two are about to, a third is seen to use the name, and only then one of the two says that it was he. */
static void of_several_makers_of_a_name_it_was_the_one_who_says_so(void)
{
    put_file("t", "a");
    put_file("u", "b");
    rf_simdisk_begin(directory);
    TEST_ASSERT_EQUAL(0, rf_hands_wait(rf_hands_send(rename_and_die, NULL)));
    before(RF_DISK_RENAME, "u", "log");
    begin_write(1, "log", 0, "B");
    end_write(1, true, 0);
    after(RF_DISK_RENAME, "u", "log", 0);
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    expect_now("log=B t=a");
}

static void what_the_dead_did_to_names_is_seen_in_the_directory(void)
{
    char from[256], to[256];
    for (int happened = 0; happened < 2; happened++) {
        put_file("t", "a");
        rf_simdisk_begin(directory);
        pid_t pid = rf_hands_send(rename_and_die, NULL);
        TEST_ASSERT_EQUAL(0, rf_hands_wait(pid));
        snprintf(from, sizeof(from), "%s/t", directory);
        snprintf(to, sizeof(to), "%s/log", directory);
        TEST_ASSERT_EQUAL(0, happened ? rename(from, to) : 0);
        expect_now("t=a|log=a");
        rf_simdisk_bury(pid, 0);
        expect_now(happened ? "t=a|log=a" : "t=a");
        whole(RF_DISK_SYNC_DIR, NULL, NULL);
        expect_now(happened ? "log=a" : "t=a");
    }
}

static void what_is_written_to_a_file_that_was_removed_is_nowhere(void)
{
    put_file("x", "a");
    put_file("y", "b");
    rf_simdisk_begin(directory);
    whole(RF_DISK_REMOVE, "x", NULL);
    whole(RF_DISK_SYNC_DIR, NULL, NULL);
    begin_write(1, "x", 0, "A");
    end_write(1, true, 0);
    whole(RF_DISK_SYNC, "x", NULL);
    expect_now("y=b");
}

static void cuts_matter_just_before_something_is_durable(void)
{
    put_file("x", "a");
    rf_simdisk_begin(directory);
    begin_write(1, "x", 0, "A");         /* 0 */
    end_write(1, true, 0);               /* 1 */
    rf_simdisk_note(7);                  /* 2 */
    whole(RF_DISK_CREATE, "y", NULL);    /* 3 4 */
    begin_write(2, "y", 0, "B");         /* 5 */
    end_write(2, false, 0);              /* 6 */
    whole(RF_DISK_SYNC, "y", NULL);      /* 7 8 */
    begin_write(3, "x", 0, "Z");         /* 9 */
    end_write(3, true, EIO);             /* 10 */
    rf_simdisk_note(8);                  /* 11 */
    whole(RF_DISK_SYNC_DIR, NULL, NULL); /* 12 13 */
    TEST_ASSERT_EQUAL(14, rf_simdisk_cuts());
    for (uint32_t cut = 0; cut <= 14; cut++) {
        TEST_ASSERT_EQUAL_MESSAGE(cut == 1 || cut == 8 || cut == 13 || cut == 14,
                                  rf_simdisk_matters(cut), rf_simdisk_words(cut));
    }
    uint64_t notes[2];
    TEST_ASSERT_EQUAL(0, rf_simdisk_notes(2, notes, 2));
    TEST_ASSERT_EQUAL(1, rf_simdisk_notes(3, notes, 2));
    TEST_ASSERT_EQUAL(7, notes[0]);
    TEST_ASSERT_EQUAL(2, rf_simdisk_notes(14, notes, 2));
    TEST_ASSERT_EQUAL(8, notes[1]);
}

/* --- against a disk that is played at random --- */

/* One file of four sectors, in direct writes or in writes to the cache; two more names that come and go. */
#define FILE_SECTORS 4u
#define EVENTS_MAX   12u

struct act {
    enum { WRITE, ENDS, ENDS_BADLY, SYNCS, SYNC_ENDS, REMOVES, RENAMES, SYNCS_DIR } what;
    uint64_t id;
    unsigned first;
    char letters[FILE_SECTORS + 1];
    const char *name;
    const char *name2;
};

struct story {
    struct act acts[EVENTS_MAX];
    unsigned count;
    bool direct;
};

static void tell_act(const struct story *story, const struct act *act)
{
    switch (act->what) {
    case WRITE:
        begin_write(act->id, "f", act->first, act->letters);
        break;
    case ENDS:
        end_write(act->id, story->direct, 0);
        break;
    case ENDS_BADLY:
        end_write(act->id, story->direct, EIO);
        break;
    case SYNCS:
        before(RF_DISK_SYNC, "f", NULL);
        break;
    case SYNC_ENDS:
        after(RF_DISK_SYNC, "f", NULL, 0);
        break;
    case REMOVES:
        whole(RF_DISK_REMOVE, act->name, NULL);
        break;
    case RENAMES:
        whole(RF_DISK_RENAME, act->name, act->name2);
        break;
    case SYNCS_DIR:
        whole(RF_DISK_SYNC_DIR, NULL, NULL);
        break;
    }
}

/* Writes that overlap and are both in flight would have no order even if both end; the log never has such
 * with different bytes, and the stories have none where both end. */
static void invent(struct rf_prng *prng, struct story *story)
{
    bool open[EVENTS_MAX] = {false};
    bool doomed[EVENTS_MAX] = {false}; /* never ends */
    unsigned from[EVENTS_MAX];
    unsigned upto[EVENTS_MAX];
    unsigned writes = 0;
    unsigned names_left = 3;
    bool syncing = false;
    *story = (struct story){.direct = rf_prng_chance(prng, 50)};
    unsigned length = 3 + rf_prng_below(prng, EVENTS_MAX - 3);
    while (story->count < length) {
        struct act *act = &story->acts[story->count];
        *act = (struct act){0};
        unsigned dice = rf_prng_below(prng, 10);
        if (dice < 4 && writes < 4) {
            unsigned w = writes;
            from[w] = rf_prng_below(prng, FILE_SECTORS);
            upto[w] = from[w] + 1 + rf_prng_below(prng, FILE_SECTORS - from[w]);
            for (unsigned v = 0; v < w; v++) {
                if (open[v] && from[v] < upto[w] && from[w] < upto[v]) {
                    doomed[v] = true;
                }
            }
            for (unsigned s = from[w]; s < upto[w]; s++) {
                act->letters[s - from[w]] = (char)('A' + w);
            }
            act->what = WRITE;
            act->id = w;
            act->first = from[w];
            open[w] = true;
            writes++;
        } else if (dice < 7 && writes != 0) {
            unsigned w = rf_prng_below(prng, writes);
            if (!open[w] || doomed[w]) {
                continue;
            }
            act->what = rf_prng_chance(prng, 15) ? ENDS_BADLY : ENDS;
            act->id = w;
            open[w] = false;
        } else if (dice < 8) {
            act->what = syncing ? SYNC_ENDS : SYNCS;
            syncing = !syncing;
        } else if (dice < 9 && names_left != 0) {
            static const struct act changes[] = {{.what = REMOVES, .name = "p"},
                                                 {.what = RENAMES, .name = "q", .name2 = "r"},
                                                 {.what = RENAMES, .name = "r", .name2 = "p"}};
            *act = changes[3 - names_left--];
        } else if (dice == 9) {
            act->what = SYNCS_DIR;
        } else {
            continue;
        }
        story->count++;
    }
}

/* What a disk and a kernel do at times of their own choosing. */
struct played {
    char disk[FILE_SECTORS + 1];
    char cache[FILE_SECTORS + 1]; /* of writes that are not direct */
    struct {
        bool begun, ended, failed;
        unsigned first;
        char letters[FILE_SECTORS + 1];
        bool landed[FILE_SECTORS];
    } writes[4];
    char sync_snapshot[FILE_SECTORS + 1]; /* what the sync under way has to write */
    bool sync_must[FILE_SECTORS];
    /* Changes of names: happened, and on the disk. */
    bool happened[3], durable[3];
};

static void land(const struct story *story, struct played *p, unsigned w, unsigned s)
{
    char letter = p->writes[w].letters[s];
    unsigned at = p->writes[w].first + s;
    p->writes[w].landed[s] = true;
    if (story->direct) {
        p->disk[at] = letter;
    } else {
        p->cache[at] = letter;
    }
}

static void happen_by_itself(const struct story *story, struct played *p, struct rf_prng *prng)
{
    unsigned w = rf_prng_below(prng, 4);
    unsigned s = rf_prng_below(prng, FILE_SECTORS);
    switch (rf_prng_below(prng, 3)) {
    case 0: /* a sector of a write in flight, or of one that failed */
        if (p->writes[w].begun && p->writes[w].letters[s] != 0 && !p->writes[w].landed[s] &&
            (!p->writes[w].ended)) {
            land(story, p, w, s);
        }
        break;
    case 1: /* the cache is written back */
        if (!story->direct) {
            p->disk[s] = p->cache[s];
        }
        break;
    default:
        w = rf_prng_below(prng, 3);
        p->durable[w] = p->durable[w] || p->happened[w];
        break;
    }
}

static void play_act(const struct story *story, struct played *p, const struct act *act,
                     struct rf_prng *prng)
{
    uint64_t w = act->id;
    switch (act->what) {
    case WRITE:
        p->writes[w].begun = true;
        p->writes[w].first = act->first;
        strcpy(p->writes[w].letters, act->letters);
        break;
    case ENDS:
        for (unsigned s = 0; s < FILE_SECTORS && p->writes[w].letters[s] != 0; s++) {
            if (!p->writes[w].landed[s]) {
                land(story, p, (unsigned)w, s);
            }
        }
        p->writes[w].ended = true;
        break;
    case ENDS_BADLY:
        p->writes[w].ended = true; /* what has landed has */
        break;
    case SYNCS:
        break;
    case SYNC_ENDS:
        /* Whatever was in the cache when it began is on the disk, or something newer. */
        if (!story->direct) {
            for (unsigned s = 0; s < FILE_SECTORS; s++) {
                if (p->sync_must[s]) {
                    p->disk[s] = p->cache[s];
                }
            }
        }
        break;
    case REMOVES:
        p->happened[0] = true;
        break;
    case RENAMES:
        p->happened[act->name[0] == 'q' ? 1 : 2] = true;
        break;
    case SYNCS_DIR:
        for (unsigned i = 0; i < 3; i++) {
            p->durable[i] = p->happened[i];
        }
        break;
    }
    (void)prng;
}

static void describe_played(const struct played *p, char text[TEXT_MAX])
{
    bool removed = p->durable[0];
    bool has_p = !removed;
    bool q_moved = p->durable[1];
    bool r_moved = p->durable[2];
    /* p=1 q=2 at first; remove p; q to r; r to p. Each by itself, applied in this order. */
    char what_p = has_p ? '1' : 0;
    char what_q = '2';
    char what_r = 0;
    if (q_moved) {
        what_q = 0;
        what_r = '2';
    }
    if (r_moved) {
        what_r = 0;
        what_p = '2';
    }
    size_t n = (size_t)snprintf(text, TEXT_MAX, "f=%s ", p->disk);
    if (what_p != 0) {
        n += (size_t)snprintf(text + n, TEXT_MAX - n, "p=%c ", what_p);
    }
    if (what_q != 0) {
        n += (size_t)snprintf(text + n, TEXT_MAX - n, "q=%c ", what_q);
    }
    if (what_r != 0) {
        snprintf(text + n, TEXT_MAX - n, "r=%c ", what_r);
    }
}

static void play(const struct story *story, unsigned acts, struct rf_prng *prng,
                 char text[TEXT_MAX])
{
    struct played p = {.disk = "....", .cache = "...."};
    unsigned lively = rf_prng_below(prng, 20);
    for (unsigned a = 0; a <= acts; a++) {
        for (unsigned i = 0; i < lively; i++) {
            happen_by_itself(story, &p, prng);
        }
        if (a == acts) {
            break;
        }
        if (story->acts[a].what == SYNCS) {
            memset(p.sync_must, 1, sizeof(p.sync_must));
        }
        play_act(story, &p, &story->acts[a], prng);
    }
    describe_played(&p, text);
}

/* Everything that the played disk can come to is among the images; and of the images that it does not come to in
 * many games there are few. */
static void images_are_what_a_disk_can_come_to(void)
{
    struct rf_prng prng = {.state = rf_env_number("RF_SEED", 20)};
    static struct images set;
    static bool seen[IMAGES_MAX];
    uint64_t all = 0;
    uint64_t reached = 0;
    for (unsigned round = 0; round < 60; round++) {
        struct story story;
        uint32_t cut_of[EVENTS_MAX + 1];
        invent(&prng, &story);
        put_file("f", "");
        {
            int fd = openat(dir_fd, "f", O_WRONLY | O_CLOEXEC);
            TEST_ASSERT_EQUAL(0, ftruncate(fd, FILE_SECTORS * SECTOR));
            close(fd);
        }
        put_file("p", "1");
        put_file("q", "2");
        rf_simdisk_begin(directory);
        for (unsigned a = 0; a < story.count; a++) {
            cut_of[a] = rf_simdisk_cuts();
            tell_act(&story, &story.acts[a]);
        }
        cut_of[story.count] = rf_simdisk_cuts();
        unsigned acts = rf_prng_below(&prng, story.count + 1);
        all_images(cut_of[acts], &set);
        memset(seen, 0, sizeof(seen));
        for (unsigned game = 0; game < 3000; game++) {
            char text[TEXT_MAX];
            char message[256];
            play(&story, acts, &prng, text);
            unsigned at = position_in(&set, text);
            snprintf(message, sizeof(message), "round %u, not an image: %s", round, text);
            TEST_ASSERT_TRUE_MESSAGE(at != UINT32_MAX, message);
            reached += !seen[at];
            seen[at] = true;
        }
        all += set.count;
    }
    printf("  %llu images, %llu of them reached by playing\n", (unsigned long long)all,
           (unsigned long long)reached);
    TEST_ASSERT_TRUE(reached * 10 > all * 6);
}

/* So that looking at the cuts that matter is enough. */
static void images_only_grow_until_a_cut_that_matters(void)
{
    struct rf_prng prng = {.state = rf_env_number("RF_SEED", 21)};
    static struct images earlier;
    static struct images later;
    for (unsigned round = 0; round < 15; round++) {
        struct story story;
        invent(&prng, &story);
        put_file("f", "abcd");
        put_file("p", "1");
        put_file("q", "2");
        rf_simdisk_begin(directory);
        for (unsigned a = 0; a < story.count; a++) {
            tell_act(&story, &story.acts[a]);
        }
        for (uint32_t cut = 0; cut < rf_simdisk_cuts(); cut++) {
            if (rf_simdisk_matters(cut)) {
                continue;
            }
            all_images(cut, &earlier);
            all_images(cut + 1, &later);
            for (unsigned i = 0; i < earlier.count; i++) {
                TEST_ASSERT_TRUE_MESSAGE(position_in(&later, earlier.text[i]) != UINT32_MAX,
                                         rf_simdisk_words(cut));
            }
        }
    }
}

/* --- the real disk --- */

static struct rf_segment_header header_of(uint64_t number)
{
    return (struct rf_segment_header){.magic = RF_SEGMENT_MAGIC,
                                      .format = RF_LOG_FORMAT,
                                      .header_bytes = sizeof(struct rf_segment_header),
                                      .number = number,
                                      .segment_bytes = SEGMENT,
                                      .incarnation = 1};
}

static void open_disk(void)
{
    RF_EXPECT(RF_OK, rf_disk_open(dir_fd, 0600, (gid_t)-1, SEGMENT, &disk, &detail));
}

static rf_status make(uint64_t number)
{
    struct rf_segment_header header = header_of(number);
    return rf_segment_make(disk, &header, 1, &detail);
}

/* What was promised by the time of a note. */
enum {
    MADE_0 = 1,
    MADE_1 = 2,
    WRITTEN = 3,   /* five blocks of 'w' from the second on, across two segments */
    PUBLISHED = 4, /* `store` says new */
    PUBLISHED_AGAIN = 5,
};

#define SNAPSHOT_BYTES (3 * BLOCK + 100)

static rf_status publish(const char *name, int letter)
{
    struct rf_disk_file *file;
    rf_status status = rf_file_begin(disk, name, 1, &file, &detail);
    if (status != RF_OK) {
        return status;
    }
    memset(memory + 8 * BLOCK, letter, SNAPSHOT_BYTES);
    status = rf_file_append(file, memory + 8 * BLOCK, SNAPSHOT_BYTES, &detail);
    if (status != RF_OK) {
        rf_file_discard(file);
        return status;
    }
    return rf_file_publish(file, &detail);
}

/* A little history; each step only if the one before succeeded. */
static rf_status live(void)
{
    rf_status status = make(0);
    if (status != RF_OK) {
        return status;
    }
    rf_simdisk_note(MADE_0);
    status = make(1);
    if (status != RF_OK) {
        return status;
    }
    rf_simdisk_note(MADE_1);
    memset(memory, 'w', 5 * BLOCK);
    status = rf_log_write(disk, BLOCK, memory, 5 * BLOCK, &detail);
    if (status != RF_OK) {
        return status;
    }
    rf_simdisk_note(WRITTEN);
    status = publish("store", 'n');
    if (status != RF_OK) {
        return status;
    }
    rf_simdisk_note(PUBLISHED);
    status = publish("store", 'm');
    if (status != RF_OK) {
        return status;
    }
    rf_simdisk_note(PUBLISHED_AGAIN);
    return RF_OK;
}

struct promise {
    uint64_t most; /* of all that was noted */
    uint64_t last;
};
static struct promise promised_at(uint32_t cut)
{
    uint64_t notes[64];
    struct promise promise = {0};
    size_t count = rf_simdisk_notes(cut, notes, 64);
    TEST_ASSERT_TRUE(count <= 64);
    for (size_t i = 0; i < count; i++) {
        promise.most = notes[i] > promise.most ? notes[i] : promise.most;
        promise.last = notes[i];
    }
    return promise;
}

/* What is wrong with an image; NULL: nothing. */
static const char *judge(struct promise promise)
{
    static uint8_t bytes[6 * BLOCK];
    uint64_t promised = promise.most;
    struct rf_segment_header header;
    struct rf_disk *other;
    const char *wrong = NULL;
    bool missing;
    int fd = open(image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    RF_EXPECT(RF_OK, rf_disk_open(fd, 0600, (gid_t)-1, SEGMENT, &other, &detail));
    for (uint64_t n = 0; n < 2 && wrong == NULL; n++) {
        bool there = rf_segment_exists(other, n);
        if (!there && promised >= MADE_0 + n) {
            wrong = "a segment that was made is not there";
        } else if (there && rf_segment_header_read(other, n, &header, &detail) != RF_OK) {
            wrong = "a segment that is there is not whole";
        }
    }
    if (wrong == NULL && rf_log_pread(other, 0, bytes, sizeof(bytes), &missing, &detail) != RF_OK) {
        wrong = "the log can't be read";
    }
    for (size_t i = BLOCK; i < sizeof(bytes) && wrong == NULL; i++) {
        if (bytes[i] != 'w' && (promised >= WRITTEN || bytes[i] != 0)) {
            wrong = promised >= WRITTEN ? "a durable write is not there" : "bytes nobody wrote";
        }
    }
    int store = openat(fd, "store", O_RDONLY | O_CLOEXEC);
    if (wrong == NULL && store < 0 && promised >= PUBLISHED) {
        wrong = "a published file is not there";
    }
    if (wrong == NULL && store >= 0) {
        ssize_t got = read(store, bytes, sizeof(bytes));
        if (got != (ssize_t)SNAPSHOT_BYTES || (bytes[0] != 'n' && bytes[0] != 'm') ||
            memcmp(bytes, bytes + 1, SNAPSHOT_BYTES - 1) != 0) {
            wrong = "a published file is not whole";
        } else if (promise.last == PUBLISHED_AGAIN && bytes[0] != 'm') {
            wrong = "a published file is the old one";
        }
    }
    if (store >= 0) {
        close(store);
    }
    rf_disk_close(other);
    close(fd);
    return wrong;
}

/* The first thing that is wrong with any image of any cut; NULL: none. */
static const char *judge_all(uint64_t most)
{
    uint64_t judged = 0;
    for (uint32_t cut = 0; cut <= rf_simdisk_cuts(); cut++) {
        if (!rf_simdisk_matters(cut)) {
            continue;
        }
        for (uint64_t i = 0; rf_simdisk_next(cut, i, most, 1, image); i++) {
            const char *wrong = judge(promised_at(cut));
            judged++;
            if (wrong != NULL) {
                return wrong;
            }
        }
    }
    TEST_ASSERT_TRUE(judged != 0);
    return NULL;
}

static void after_a_power_cut_at_any_moment_every_promise_of_the_disk_holds(void)
{
    rf_simdisk_watch(directory);
    open_disk();
    RF_EXPECT(RF_OK, live());
    TEST_ASSERT_NULL(judge_all(200));
}

/* That the same judge finds a library that leaves out a sync, each of them. */
static void a_library_without_its_syncs_would_be_found_out(void)
{
    rf_simdisk_watch(directory);
    open_disk();
    RF_EXPECT(RF_OK, live());
    rf_simdisk_disbelieve(RF_SIMDISK_BIT(RF_DISK_SYNC));
    const char *wrong = judge_all(200);
    TEST_ASSERT_NOT_NULL(wrong);
    TEST_ASSERT_NOT_NULL(strstr(wrong, "not whole"));
    rf_simdisk_disbelieve(RF_SIMDISK_BIT(RF_DISK_SYNC_DIR));
    wrong = judge_all(200);
    TEST_ASSERT_NOT_NULL(wrong);
    TEST_ASSERT_NOT_NULL(strstr(wrong, "not there"));
    rf_simdisk_disbelieve(RF_SIMDISK_BIT(RF_DISK_WRITE_END));
    TEST_ASSERT_EQUAL_STRING("a durable write is not there", judge_all(200));
    rf_simdisk_disbelieve(0);
    TEST_ASSERT_NULL(judge_all(200));
}

static unsigned names_in_directory(void)
{
    unsigned count = 0;
    DIR *listing = opendir(directory);
    for (struct dirent *e = readdir(listing); e != NULL; e = readdir(listing)) {
        count += e->d_name[0] != '.';
    }
    closedir(listing);
    return count;
}

static void every_operation_may_fail(unsigned kinds, int error)
{
    char command[128];
    for (uint64_t n = 1;; n++) {
        rf_simdisk_watch(directory);
        rf_simdisk_fail(kinds, n, error, false);
        open_disk();
        rf_status status = live();
        if (status == RF_OK && rf_simdisk_counted() < n) {
            TEST_ASSERT_TRUE(n > 3);
            break; /* all of them have failed once */
        }
        if (status ==
            RF_OK) { /* what failed was in a removal, or a promise that was already kept */
            TEST_FAIL_MESSAGE("a failure that nobody noticed");
        }
        TEST_ASSERT_EQUAL(error, detail.os_error);
        RF_EXPECT(error == ENOSPC || error == EDQUOT ? RF_RESOURCE_EXHAUSTED : RF_IO_ERROR, status);
        for (unsigned i = 0; i < 2; i++) { /* nothing half made, then or later */
            TEST_ASSERT_NULL(judge_all(12));
            unsigned promised = (unsigned)promised_at(rf_simdisk_cuts()).most;
            unsigned whole_names = names_in_directory();
            TEST_ASSERT_TRUE(whole_names <= 3);
            TEST_ASSERT_TRUE(whole_names >= (promised < 2 ? promised : 2u));
            rf_disk_close(disk);
            open_disk();
            rf_simdisk_fail(0, 0, 0, false);
            RF_EXPECT(RF_OK, live()); /* and on it goes */
        }
        rf_disk_close(disk);
        snprintf(command, sizeof(command), "rm -f %s/*", directory);
        TEST_ASSERT_EQUAL(0, system(command));
        disk = NULL;
    }
}

#define NOT_REMOVALS (RF_SIMDISK_CHANGES & ~RF_SIMDISK_BIT(RF_DISK_REMOVE))

static void any_operation_fails_with_eio_and_no_promise_is_broken(void)
{
    every_operation_may_fail(NOT_REMOVALS, EIO);
}

static void any_operation_fails_with_enospc_and_no_promise_is_broken(void)
{
    every_operation_may_fail(NOT_REMOVALS, ENOSPC);
}

static void short_writes_are_completed(void)
{
    static const int shorts[] = {-1, -512, -4096, -5000, -8192};
    for (unsigned i = 0; i < sizeof(shorts) / sizeof(shorts[0]); i++) {
        char command[128];
        rf_simdisk_watch(directory);
        rf_simdisk_fail(RF_SIMDISK_BIT(RF_DISK_WRITE_BEGIN), 1, shorts[i], true);
        open_disk();
        RF_EXPECT(RF_OK, live());
        /* And with a ring. */
        uint64_t tag;
        int error;
        RF_EXPECT(RF_OK, rf_log_write_begin(disk, BLOCK, memory, 5 * BLOCK, 1, &detail));
        TEST_ASSERT_TRUE(rf_log_write_next(disk, true, &tag, &error));
        TEST_ASSERT_EQUAL(0, error);
        TEST_ASSERT_TRUE(rf_simdisk_counted() > 5);
        bool missing;
        static uint8_t bytes[5 * BLOCK];
        RF_EXPECT(RF_OK, rf_log_pread(disk, BLOCK, bytes, sizeof(bytes), &missing, &detail));
        TEST_ASSERT_EQUAL_MEMORY(memory, bytes, sizeof(bytes));
        TEST_ASSERT_NULL(judge_all(12));
        rf_disk_close(disk);
        disk = NULL;
        snprintf(command, sizeof(command), "rm -f %s/*", directory);
        TEST_ASSERT_EQUAL(0, system(command));
    }
}

/* --- kills --- */

static unsigned die_at;
static unsigned hits;
static void die_at_point(const char *name)
{
    (void)name;
    if (++hits == die_at) {
        kill(getpid(), SIGKILL);
        for (;;) {
            pause();
        }
    }
}

static int live_until_killed(void *context)
{
    _Atomic uint32_t *through = context;
    hits = 0;
    rf_point_on_hit = die_at_point;
    open_disk();
    if (live() == RF_OK) {
        atomic_store(through, 1);
    }
    return 0;
}

/* Whoever comes after one that was killed anywhere goes on with what it left, and all promises hold, those of
 * the dead one too. */
static void killed_at_any_point_the_next_one_goes_on(void)
{
    _Atomic uint32_t *through = rf_hands_board(sizeof(*through));
    for (die_at = 1; atomic_load(through) == 0; die_at++) {
        char command[128];
        int status;
        rf_simdisk_watch(directory);
        pid_t pid = rf_hands_send(live_until_killed, through);
        TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
        TEST_ASSERT_TRUE(WIFSIGNALED(status) || atomic_load(through) != 0);
        TEST_ASSERT_NULL(judge_all(12));
        open_disk();
        RF_EXPECT(RF_OK, live());
        TEST_ASSERT_NULL(judge_all(12));
        rf_disk_sweep_temporary(disk);
        TEST_ASSERT_EQUAL(3, names_in_directory());
        TEST_ASSERT_NULL(judge_all(12));
        rf_disk_close(disk);
        disk = NULL;
        snprintf(command, sizeof(command), "rm -f %s/*", directory);
        TEST_ASSERT_EQUAL(0, system(command));
    }
    TEST_ASSERT_TRUE(die_at > 12);
}

static void die_when_written(const char *name)
{
    if (strcmp(name, "disk.attempted") == 0) {
        kill(getpid(), SIGKILL);
    }
}

static int write_and_die(void *context)
{
    (void)context;
    rf_point_on_hit = die_when_written;
    open_disk();
    memset(memory, 'w', BLOCK);
    rf_log_write(disk, 0, memory, BLOCK, &detail);
    return 0;
}

/* The write of one that was killed may come or not, until it is known that it came; a sync then keeps it. */
static void what_the_dead_wrote_is_settled_by_looking(void)
{
    int status;
    rf_simdisk_watch(directory);
    open_disk();
    RF_EXPECT(RF_OK, make(0));
    pid_t pid = rf_hands_send(write_and_die, NULL);
    TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE(WIFSIGNALED(status));
    uint64_t torn = 1u << (BLOCK / SECTOR);
    TEST_ASSERT_EQUAL(torn, rf_simdisk_images(rf_simdisk_cuts()));
    RF_EXPECT(RF_OK, rf_segment_sync(disk, 0, &detail));
    TEST_ASSERT_EQUAL(torn, rf_simdisk_images(rf_simdisk_cuts()));
    rf_simdisk_settle();
    TEST_ASSERT_EQUAL(torn, rf_simdisk_images(rf_simdisk_cuts()));
    RF_EXPECT(RF_OK, rf_segment_sync(disk, 0, &detail));
    TEST_ASSERT_EQUAL(1, rf_simdisk_images(rf_simdisk_cuts()));
}

static void die_when_linked(const char *name)
{
    if (strcmp(name, "disk.segment_linked") == 0) {
        kill(getpid(), SIGKILL);
    }
}

static int make_and_die_before_the_name_is_durable(void *context)
{
    (void)context;
    rf_point_on_hit = die_when_linked;
    open_disk();
    make(0);
    return 0;
}

/* The name of a segment whose maker died is made durable by its first writer. */
static void what_is_written_into_a_dead_ones_segment_is_found(void)
{
    int status;
    rf_simdisk_watch(directory);
    pid_t pid = rf_hands_send(make_and_die_before_the_name_is_durable, NULL);
    TEST_ASSERT_EQUAL(pid, waitpid(pid, &status, 0));
    TEST_ASSERT_TRUE(WIFSIGNALED(status));
    TEST_ASSERT_TRUE(rf_simdisk_images(rf_simdisk_cuts()) > 1); /* the name is not durable */
    open_disk();
    memset(memory, 'w', BLOCK);
    RF_EXPECT(RF_OK, rf_log_write(disk, 0, memory, BLOCK, &detail));
    TEST_ASSERT_EQUAL(1, rf_simdisk_images(rf_simdisk_cuts()));
    rf_simdisk_image(rf_simdisk_cuts(), 0, image);
    int fd = open(image, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    uint8_t byte = 0;
    int segment = openat(fd, "log.0000000000000000", O_RDONLY | O_CLOEXEC);
    TEST_ASSERT_EQUAL(1, pread(segment, &byte, 1, BLOCK));
    TEST_ASSERT_EQUAL('w', byte);
    close(segment);
    close(fd);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(what_was_there_is_there);
    RUN_TEST(a_write_in_flight_is_kept_dropped_or_torn_until_it_is_durable);
    RUN_TEST(a_failed_write_may_be_there_or_not);
    RUN_TEST(writes_to_the_cache_wait_for_a_sync_that_began_after_them);
    RUN_TEST(what_was_overwritten_in_the_cache_may_have_been_written_back_before);
    RUN_TEST(a_write_that_never_ended_may_come_after_a_durable_one);
    RUN_TEST(a_write_that_ended_does_not_come_back_over_a_later_durable_one);
    RUN_TEST(the_same_bytes_written_twice_are_one_image);
    RUN_TEST(a_file_that_grows_has_its_old_size_or_a_new_one);
    RUN_TEST(pieces_of_a_sector_come_together);
    RUN_TEST(zeros_need_no_bytes);
    RUN_TEST(a_file_is_replaced_when_the_directory_is_synced);
    RUN_TEST(a_file_that_was_not_synced_before_its_rename_may_be_empty);
    RUN_TEST(changes_of_names_come_in_any_order_and_failed_ones_not_at_all);
    RUN_TEST(a_change_that_was_not_done_when_the_sync_began_is_not_synced);
    RUN_TEST(a_change_by_one_that_died_is_possible_until_somebody_uses_the_name);
    RUN_TEST(a_name_in_the_way_proves_the_change_of_one_that_died);
    RUN_TEST(a_removed_name_refutes_the_rename_of_one_that_died);
    RUN_TEST(who_died_about_to_take_a_name_did_not_take_it_from_another);
    RUN_TEST(of_several_makers_of_a_name_it_was_the_one_who_says_so);
    RUN_TEST(what_the_dead_did_to_names_is_seen_in_the_directory);
    RUN_TEST(what_is_written_to_a_file_that_was_removed_is_nowhere);
    RUN_TEST(cuts_matter_just_before_something_is_durable);
    RUN_TEST(images_are_what_a_disk_can_come_to);
    RUN_TEST(images_only_grow_until_a_cut_that_matters);
    RUN_TEST(after_a_power_cut_at_any_moment_every_promise_of_the_disk_holds);
    RUN_TEST(a_library_without_its_syncs_would_be_found_out);
    RUN_TEST(any_operation_fails_with_eio_and_no_promise_is_broken);
    RUN_TEST(any_operation_fails_with_enospc_and_no_promise_is_broken);
    RUN_TEST(short_writes_are_completed);
    RUN_TEST(killed_at_any_point_the_next_one_goes_on);
    RUN_TEST(what_is_written_into_a_dead_ones_segment_is_found);
    RUN_TEST(what_the_dead_wrote_is_settled_by_looking);
    return UNITY_END();
}
