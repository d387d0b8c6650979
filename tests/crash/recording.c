#define _GNU_SOURCE
#include "recording.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the player tells, in memory that outlives it. */
struct told {
    rf_lease lease;
    rf_status status;
};

/* Where counting begins and ends; at the same address in parent and child. */
__attribute__((noinline)) void rf_step_begin(void);
__attribute__((noinline)) void rf_step_end(void);
void rf_step_begin(void)
{
    __asm__ volatile("" ::: "memory");
}
void rf_step_end(void)
{
    __asm__ volatile("nop" ::: "memory");
}

struct rf_change *rf_changes_add(struct rf_changes *changes)
{
    if (changes->count == changes->room) {
        changes->room = changes->room * 2 + 1024;
        changes->list = realloc(changes->list, changes->room * sizeof(*changes->list));
        if (changes->list == NULL) {
            abort();
        }
    }
    return &changes->list[changes->count++];
}

/* --- the player --- */

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;) {
        pause();
    }
}

static void play(const struct rf_recorder *r, struct told *told)
{
    static uint8_t scratch[RF_GRANT_SCRATCH];
    struct play p = {.name = r->paths->directory,
                     .tenant = r->tenant,
                     .flags = r->flags,
                     .grant = {.scratch = scratch, .scratch_size = sizeof(scratch)}};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((r->scene->traits & SCENE_OPENS) == 0 &&
        rf_open(p.name, &r->options, &p.store, NULL) != RF_OK) {
        abort();
    }
    if (r->scene->enter != NULL) {
        r->scene->enter(&p);
    }
    if (p.store != NULL && rf_barrier(p.store, NULL) != RF_OK) {
        abort();
    }
    told->lease = p.lease;
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    rf_step_begin();
    rf_status status = r->scene->act(&p, NULL);
    rf_step_end();
    told->status = status;
    die();
}

/* --- the recorder --- */

struct eye {
    const struct rf_recorder *recorder;
    struct rf_recording *recording;
    const uint8_t *region; /* mapped here; NULL: there is none yet */
    int64_t region_len;
    pid_t pid;
    uint64_t base; /* of the region in the player; 0: not mapped */
    uint64_t end;
    struct user_regs_struct regs;
};

static bool fail(struct rf_recording *rec, const char *what)
{
    if (rec->wrong[0] == 0) {
        snprintf(rec->wrong, sizeof(rec->wrong), "%s after %" PRIu64 " instructions", what,
                 rec->instructions);
    }
    return false;
}

static void find_region(struct eye *eye)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/maps", (int)eye->pid);
    FILE *f = fopen(path, "re");
    eye->base = eye->end = 0;
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        uint64_t from, to;
        if (strstr(line, eye->recorder->paths->region) != NULL &&
            sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) == 2) {
            eye->base = eye->base == 0 ? from : eye->base;
            eye->end = to;
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

static void note_store(struct eye *eye, uint64_t rip, uint64_t from, uint64_t to)
{
    struct rf_recording *rec = eye->recording;
    const uint8_t *now = eye->region;
    uint8_t *was = rec->image.bytes;
    to = to < rec->image.size ? to : rec->image.size;
    while (from < to && now[from] == was[from]) {
        from++;
    }
    while (from < to && now[to - 1] == was[to - 1]) {
        to--;
    }
    while (from < to) { /* once, unless a window is wider than a store */
        uint64_t len = to - from < RF_STORE_MAX ? to - from : RF_STORE_MAX;
        struct rf_change *c = rf_changes_add(&rec->changes);
        *c = (struct rf_change){.step = rec->instructions,
                                .rip = rip,
                                .offset = from,
                                .len = (uint32_t)len,
                                .files = -1};
        memcpy(c->was, was + from, len);
        memcpy(c->now, now + from, len);
        memcpy(was + from, now + from, len);
        from += len;
    }
}

static int64_t file_len(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

static void note_files(struct eye *eye, uint64_t rip)
{
    struct rf_recording *rec = eye->recording;
    struct rf_files files;
    int64_t was = eye->region_len;
    eye->region_len = file_len(eye->recorder->paths->region);
    rf_files_take(&files, eye->recorder->paths->directory);
    if (eye->region_len == was && rf_files_same(&files, &rec->files[rec->files_count - 1])) {
        rf_files_drop(&files);
        return;
    }
    rec->files = realloc(rec->files, (rec->files_count + 1) * sizeof(*rec->files));
    rec->files[rec->files_count] = files;
    *rf_changes_add(&rec->changes) = (struct rf_change){.step = rec->instructions,
                                                        .rip = rip,
                                                        .files = (int32_t)rec->files_count++,
                                                        .region_len = eye->region_len};
}

/* The player has made a region and mapped it. Nothing was stored there yet. */
static void meet_region(struct eye *eye)
{
    struct rf_recording *rec = eye->recording;
    int64_t len = file_len(eye->recorder->paths->region);
    if (eye->region == NULL && eye->base != 0 && len > 0) {
        eye->region = rf_paths_map(eye->recorder->paths, (uint64_t)len);
        rf_image_take(&rec->image, eye->region, (uint64_t)len);
    }
}

static bool compare_all(struct eye *eye)
{
    static char words[96];
    uint64_t at =
        eye->region == NULL ? UINT64_MAX : rf_image_difference(&eye->recording->image, eye->region);
    if (at == UINT64_MAX) {
        return true;
    }
    snprintf(words, sizeof(words), "a store to offset %" PRIx64 " was missed", at);
    return fail(eye->recording, words);
}

/* One instruction. */
static bool step(struct eye *eye)
{
    struct rf_recording *rec = eye->recording;
    const uint8_t *code = (const uint8_t *)(uintptr_t)eye->regs.rip;
    uint64_t rip = eye->regs.rip, call = eye->regs.rax;
    bool syscall_here = rf_is_syscall(code);
    struct rf_span span = rf_may_store(code, &eye->regs);
    int how;
    if (ptrace(PTRACE_SINGLESTEP, eye->pid, NULL, NULL) != 0 ||
        waitpid(eye->pid, &how, 0) != eye->pid) {
        return fail(rec, "ptrace");
    }
    if (!WIFSTOPPED(how) || WSTOPSIG(how) != SIGTRAP) {
        return fail(rec, WIFSTOPPED(how) ? strsignal(WSTOPSIG(how)) : "it ended");
    }
    rec->instructions++;
    if (syscall_here) {
        if (call == SYS_mmap || call == SYS_munmap) {
            find_region(eye);
            meet_region(eye);
        }
        if (eye->recorder->with_files) {
            note_files(eye, rip);
        }
    } else if (eye->region != NULL && span.to > eye->base && span.from < eye->end) {
        uint64_t from = span.from < eye->base ? 0 : span.from - eye->base;
        note_store(eye, rip, from, span.to - eye->base);
    }
    uint32_t each = eye->recorder->compare_each;
    return each == 0 || rec->instructions % each != 0 || compare_all(eye);
}

static bool look(struct eye *eye)
{
    return ptrace(PTRACE_GETREGS, eye->pid, NULL, &eye->regs) == 0 ||
           fail(eye->recording, "ptrace");
}

static void watch(struct eye *eye)
{
    struct rf_recording *rec = eye->recording;
    bool good = look(eye);
    while (good && eye->regs.rip != (uintptr_t)rf_step_begin) {
        int how;
        good = ptrace(PTRACE_SINGLESTEP, eye->pid, NULL, NULL) == 0 &&
               waitpid(eye->pid, &how, 0) == eye->pid && WIFSTOPPED(how) && look(eye);
    }
    rec->instructions = 0;
    while (good && eye->regs.rip != (uintptr_t)rf_step_end) {
        good = step(eye) && look(eye);
    }
    if (good) {
        compare_all(eye);
    }
}

void rf_record(const struct rf_recorder *recorder, struct rf_recording *recording)
{
    struct told *told =
        mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int how;
    cpu_set_t here, anywhere;
    *recording = (struct rf_recording){0};
    /* They take turns: on one core that is much faster. */
    CPU_ZERO(&here);
    CPU_SET((unsigned)sched_getcpu(), &here);
    sched_getaffinity(0, sizeof(anywhere), &anywhere);
    sched_setaffinity(0, sizeof(here), &here);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        play(recorder, told);
    }
    struct eye eye = {.recorder = recorder,
                      .recording = recording,
                      .pid = pid,
                      .region = recorder->region,
                      .region_len = file_len(recorder->paths->region)};
    recording->fresh = recorder->region == NULL;
    recording->pid = pid;
    if (waitpid(pid, &how, 0) != pid || !WIFSTOPPED(how)) {
        fail(recording, "it could not begin");
        sched_setaffinity(0, sizeof(anywhere), &anywhere);
        munmap(told, sizeof(*told));
        return;
    }
    find_region(&eye);
    if (!recording->fresh) {
        const struct rf_header *h = (const struct rf_header *)recorder->region;
        rf_image_take(&recording->image, recorder->region, h->region_bytes);
    }
    recording->files = calloc(1, sizeof(*recording->files));
    recording->files_count = 1;
    rf_files_take(&recording->files[0], recorder->paths->directory);
    watch(&eye);
    if (recording->wrong[0] == 0) {
        ptrace(PTRACE_CONT, pid, NULL, NULL);
    } else {
        kill(pid, SIGKILL);
    }
    waitpid(pid, &how, 0);
    sched_setaffinity(0, sizeof(anywhere), &anywhere);
    if (!recorder->with_files && recording->wrong[0] == 0) {
        struct rf_files now;
        rf_files_take(&now, recorder->paths->directory);
        if (!rf_files_same(&now, &recording->files[0])) {
            fail(recording, "files changed that nobody watched");
        }
        rf_files_drop(&now);
    }
    if (recording->fresh && eye.region != NULL) {
        munmap((void *)(uintptr_t)eye.region, recording->image.size);
    }
    recording->at = recording->changes.count;
    recording->lease = told->lease;
    recording->status = told->status;
    munmap(told, sizeof(*told));
}

void rf_recording_go(struct rf_recording *recording, uint32_t count)
{
    for (; recording->at > count; recording->at--) {
        const struct rf_change *c = &recording->changes.list[recording->at - 1];
        memcpy(recording->image.bytes + c->offset, c->was, c->len);
    }
    for (; recording->at < count; recording->at++) {
        const struct rf_change *c = &recording->changes.list[recording->at];
        memcpy(recording->image.bytes + c->offset, c->now, c->len);
    }
}

const struct rf_files *rf_recording_files(const struct rf_recording *recording)
{
    for (uint32_t i = recording->at; i-- > 0;) {
        if (recording->changes.list[i].files >= 0) {
            return &recording->files[recording->changes.list[i].files];
        }
    }
    return &recording->files[0];
}

int64_t rf_recording_region_len(const struct rf_recording *recording)
{
    for (uint32_t i = recording->at; i-- > 0;) {
        if (recording->changes.list[i].files >= 0) {
            return recording->changes.list[i].region_len;
        }
    }
    return recording->fresh ? -1 : (int64_t)recording->image.size;
}

void rf_recording_drop(struct rf_recording *recording)
{
    for (uint32_t i = 0; i < recording->files_count; i++) {
        rf_files_drop(&recording->files[i]);
    }
    free(recording->files);
    free(recording->changes.list);
    rf_image_drop(&recording->image);
    *recording = (struct rf_recording){0};
}
