/*
 * Findings, fenced at the resource. README.md has the picture.
 *
 * What a worker finds under one lease goes to one file, named by shard and fence, which nobody else
 * ever writes. How much of it counts is said by the shard's cursor in the store: its token (struct
 * progress) names one fence and a length. A checkpoint moves both at once, or is refused. The file
 * of the next lease begins with the fence and length that were committed when it was granted, so
 * from the token one can walk back through all that counts, and only through that:
 *
 *      token: fence 9, length 288           file S-9: [continues 5, 192][ record ][ record ]
 *                                           file S-5: [continues 0,   0][ record ]( uncommitted... )
 *
 * A worker that lost its lease and does not know it yet may go on writing to its own file. It can't
 * move the token, so nobody will ever read that.
 */
#ifndef RF_SCAN_LEDGER_H
#define RF_SCAN_LEDGER_H

#include "items.h"
#include "ringfence/ringfence.h"

enum record_kind {
    RECORD_FINDING = 1,
    RECORD_UNREADABLE = 2, /* `number` is errno, or UNREADABLE_RULE */
    RECORD_LINES = 3,      /* of a segment: `line` is how many ended in it, `start` where the last
                              of them did; for the numbers of the lines in the segments behind it */
};

#define UNREADABLE_RULE 0 /* it was read, but a rule needed too long for it */

/* One thing to report. All of them have one size, so a committed length is a whole number of them. */
struct record {
    uint32_t kind;
    uint32_t number; /* of the rule */
    uint64_t item;
    uint64_t start, end; /* of the match in the file */
    uint64_t secret_start;
    uint64_t line; /* new lines before it in the segment */
    uint64_t fingerprint;
    uint32_t secret_len;
    uint32_t column; /* characters, from 1; 0: the line began in another segment */
    char masked[16];
};

struct ledger_header {
    uint64_t magic;
    uint64_t shard, fence;
    uint64_t before_fence, before_length; /* what was committed at the grant */
};

/* What a cursor's token holds. */
#define PROGRESS_DONE   UINT64_MAX
#define RULES_TAKEN_MAX 1000u
struct progress {
    uint64_t version;
    uint64_t offset; /* in the file, how far the item was scanned; PROGRESS_DONE: to its end */
    struct place {
        uint64_t lines;      /* new lines in the item before that */
        uint64_t line_start; /* in the file; UINT64_MAX: in another segment */
    } place;
    uint64_t files, bytes, findings, binary, unreadable, vanished, allowed; /* of the shard */
    uint64_t skipped; /* bytes of items that were not scanned: of binary files, of what is gone */
    uint64_t ledger_fence, ledger_length; /* 0: no file */
    uint64_t taken_count;
    struct taken {
        uint32_t rule;
        uint32_t behind; /* so far behind `offset` reaches the last match of the rule */
    } taken[RULES_TAKEN_MAX];
};
size_t progress_size(const struct progress *progress);
/* False if the token is not one of ours. */
bool progress_decode(rf_bytes token, struct progress *progress);

/* The file of one lease. */
struct ledger {
    int dir;      /* a descriptor of the directory of all of them */
    int fd;       /* -1: not made yet */
    bool durable; /* on disk before the checkpoint that speaks of it */
    uint64_t shard, fence;
    uint64_t before_fence, before_length;
    uint64_t length; /* written */
    struct record *records;
    size_t count, room; /* not yet written */
};
void ledger_begin(struct ledger *ledger, int dir, bool durable, const rf_lease *lease,
                  const struct progress *progress);
void ledger_add(struct ledger *ledger, const struct record *record);
/* Writes what was added and says so in the progress; the checkpoint that carries the progress makes
 * it count. False and errno. */
bool ledger_write(struct ledger *ledger, struct progress *progress);
void ledger_end(struct ledger *ledger);

/* Everything that counts in a shard with this progress. False and a sentence on standard error if a
 * file is missing or damaged. */
typedef void ledger_visit(void *context, const struct record *record);
bool ledger_read(int dir, uint64_t shard, uint64_t fence_max, const struct progress *progress,
                 ledger_visit *visit, void *context, uint64_t *bytes_read);

#endif
