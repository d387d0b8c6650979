/* log dump, log verify, recover, verify, snapshot, backup. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codec.h"
#include "commands.h"
#include "log_files.h"

/* --- fast text: a million records a second leave no time for printf --- */

struct text {
    char *at;
    char *end;
    char buffer[1 << 16];
};

static void text_flush(struct text *t)
{
    fwrite(t->buffer, 1, (size_t)(t->at - t->buffer), stdout);
    t->at = t->buffer;
}

static void text_room(struct text *t, size_t len)
{
    if ((size_t)(t->end - t->at) < len) {
        text_flush(t);
    }
}

static void put_chars(struct text *t, const char *chars, size_t len)
{
    text_room(t, len);
    memcpy(t->at, chars, len);
    t->at += len;
}

static void put_word(struct text *t, const char *word)
{
    put_chars(t, word, strlen(word));
}

static void put_number(struct text *t, uint64_t n)
{
    char digits[20];
    unsigned len = 0;
    do {
        digits[sizeof(digits) - ++len] = (char)('0' + n % 10);
        n /= 10;
    } while (n != 0);
    put_chars(t, digits + sizeof(digits) - len, len);
}

static void put_hex(struct text *t, uint64_t n)
{
    static const char hex[] = "0123456789abcdef";
    char digits[18] = "0x";
    for (unsigned i = 0; i < 16; i++) {
        digits[2 + i] = hex[n >> (60 - 4 * i) & 15];
    }
    put_chars(t, digits, sizeof(digits));
}

static void put_id(struct text *t, uint64_t id)
{
    if ((id & RF_DERIVED_BIT) == 0) {
        put_number(t, id);
    } else {
        put_hex(t, id);
    }
}

/* --- dump --- */

static const struct option_spec dump_options[] = {
    {"start", 0, OPTION_NUMBER, "EPOCH", "begin with this epoch [the first that is there]"},
    {"end", 0, OPTION_NUMBER, "EPOCH", "end with this one"},
    {"limit", 'n', OPTION_NUMBER, "N", "end after so many records"},
    {"type", 0, OPTION_LIST, "EVENT",
     "only these, as in acquired or run_completed; may be repeated"},
    {"shard", 0, OPTION_NUMBER, "ID", "only records of this shard"},
    {"follow", 'f', OPTION_FLAG, NULL, "go on as the log grows"},
    {"stats", 0, OPTION_FLAG, NULL,
     "how many records there are of each kind, of those that are asked for"},
    {0},
};

/* Runs are named by uids in the log; who they are is said where they are made. */
#define KNOWN_RUNS 4096u
struct known_run {
    uint64_t uid;
    uint64_t run;
};

struct dump {
    const struct args *args;
    struct text text;
    bool json;
    bool reveal;
    bool stats;
    bool by_type;
    bool wanted[32];
    bool by_shard;
    uint64_t shard;
    uint64_t left;
    struct known_run known[KNOWN_RUNS];
    /* totals */
    uint64_t batches, records, bytes, printed;
    uint64_t by_event[33];
    uint64_t first_epoch, last_epoch;
    struct rf_step_record step;
};

static volatile sig_atomic_t stopped;

static void on_signal(int signal)
{
    (void)signal;
    stopped = 1;
}

static const char *event_word(const struct rf_log_record *r)
{
    return r->kind == RF_LOG_CHUNK           ? "chunk"
           : r->event == UINT16_MAX          ? "housekeeping"
           : r->event <= RF_EVENT_RUN_PURGED ? rf_event_name((rf_event_kind)r->event)
                                             : "unknown";
}

static unsigned event_index(const struct rf_log_record *r)
{
    return r->kind == RF_LOG_CHUNK ? 31 : r->event < 30 ? r->event : 30;
}

static void name_begin(struct dump *d, const char *name)
{
    put_word(&d->text, d->json ? ",\"" : " ");
    put_word(&d->text, name);
    put_word(&d->text, d->json ? "\":" : "=");
}

static void show_number(struct dump *d, const char *name, uint64_t n)
{
    name_begin(d, name);
    put_number(&d->text, n);
}

static void show_id(struct dump *d, const char *name, uint64_t id)
{
    name_begin(d, name);
    put_word(&d->text, d->json ? "\"" : "");
    put_id(&d->text, id);
    put_word(&d->text, d->json ? "\"" : "");
}

static void show_word(struct dump *d, const char *name, const char *word)
{
    name_begin(d, name);
    put_word(&d->text, d->json ? "\"" : "");
    put_word(&d->text, word);
    put_word(&d->text, d->json ? "\"" : "");
}

static void show_bytes(struct dump *d, const char *name, const char *name_len, rf_bytes bytes)
{
    if (!d->reveal) {
        show_number(d, name_len, bytes.len);
        return;
    }
    char *text = malloc(3 * bytes.len + 1);
    if (text == NULL) {
        abort();
    }
    encode_bytes(bytes, text);
    show_word(d, name, text);
    free(text);
}

/* The codec's record behind what says where it belongs. */
static rf_bytes codec_of(const struct rf_log_record *r, uint32_t *made)
{
    const uint8_t *body = (const uint8_t *)(r + 1);
    size_t fixed = 0;
    *made = 0;
    if (r->kind == RF_LOG_STEP) {
        fixed = sizeof(struct rf_log_step);
        *made = ((const struct rf_log_step *)(const void *)body)->made;
    } else if (r->kind == RF_LOG_RUN) {
        fixed = sizeof(struct rf_log_run);
        *made = ((const struct rf_log_run *)(const void *)body)->made;
    }
    fixed += *made != 0 ? sizeof(struct rf_log_made) : 0;
    return fixed == 0 || r->body_bytes < fixed ? (rf_bytes){0}
                                               : (rf_bytes){body + fixed, r->body_bytes - fixed};
}

static void show_step(struct dump *d)
{
    const struct rf_shard_state *next = &d->step.step.next;
    show_id(d, "shard", d->step.shard);
    show_number(d, "version", d->step.version);
    show_number(d, "time_ns", d->step.time);
    show_word(d, "status", shard_status_word((rf_shard_status)next->status));
    show_number(d, "fence", next->fence);
    if ((next->flags & RF_SHARD_LEASED) != 0) {
        show_id(d, "worker", next->owner);
    }
    if ((d->step.step.changes & RF_CHANGED_CURSOR) != 0) {
        show_bytes(d, "cursor_key", "cursor_key_len", d->step.step.cursor.key);
        if (d->step.step.cursor.token.data != NULL) {
            show_bytes(d, "cursor_token", "cursor_token_len", d->step.step.cursor.token);
        }
    }
    if ((d->step.step.changes & RF_CHANGED_SPEC) != 0) {
        show_bytes(d, "start", "start_len", d->step.step.spec.start);
        show_bytes(d, "end", "end_len", d->step.step.spec.end);
        show_bytes(d, "metadata", "metadata_len", d->step.step.spec.metadata);
    }
    if ((d->step.step.changes & RF_CHANGED_RING) != 0) {
        name_begin(d, "op");
        put_word(&d->text, d->json ? "\"" : "");
        put_hex(&d->text, d->step.step.entry.op);
        put_word(&d->text, d->json ? "\"" : "");
    }
}

static uint64_t known_run(struct dump *d, uint64_t uid)
{
    const struct known_run *k = &d->known[uid % KNOWN_RUNS];
    return k->uid == uid ? k->run : UINT64_MAX;
}

static void show_run_record(struct dump *d, rf_bytes codec)
{
    struct rf_run run;
    size_t used;
    if (rf_codec_get_run(codec, &run, &used) == RF_OK) {
        show_word(d, "status", run_status_word(run.status));
        show_number(d, "roots", run.root_count);
    }
}

static void learn_run(struct dump *d, const struct rf_log_record *r, rf_bytes codec)
{
    struct rf_run run;
    size_t used;
    if (known_run(d, r->uid) == UINT64_MAX && rf_codec_get_run(codec, &run, &used) == RF_OK) {
        d->known[r->uid % KNOWN_RUNS] = (struct known_run){.uid = r->uid, .run = run.run};
    }
}

static void show_record(struct dump *d, const struct rf_log_batch *b, const struct rf_log_record *r,
                        bool step, rf_bytes codec, uint32_t made)
{
    put_word(&d->text, d->json ? "{\"epoch\":" : "");
    put_number(&d->text, b->header.epoch);
    if (d->json) {
        show_number(d, "stamp", r->stamp);
        show_number(d, "slot", r->lane);
        show_word(d, "event", event_word(r));
        show_number(d, "uid", r->uid);
    } else {
        put_word(&d->text, " ");
        put_number(&d->text, r->stamp);
        put_word(&d->text, " ");
        put_number(&d->text, r->lane);
        put_word(&d->text, " ");
        put_word(&d->text, event_word(r));
    }
    uint64_t run = known_run(d, r->uid);
    if (run != UINT64_MAX) {
        show_id(d, "run", run);
    } else if (!d->json && r->uid != 0) {
        show_number(d, "uid", r->uid);
    }
    if (step) {
        show_step(d);
    } else if (r->kind == RF_LOG_RUN) {
        show_run_record(d, codec);
    }
    if (made != 0) {
        show_number(d, "made", made);
    }
    put_word(&d->text, d->json ? "}\n" : "\n");
    d->printed++;
}

static void take_record(struct dump *d, const struct rf_log_batch *b, const struct rf_log_record *r)
{
    uint32_t made;
    size_t used;
    bool step = false;
    rf_bytes codec = codec_of(r, &made);
    if (r->kind == RF_LOG_RUN && !d->stats) {
        learn_run(d, r, codec);
    }
    if (d->by_type && !d->wanted[event_index(r)]) {
        return;
    }
    if (r->kind == RF_LOG_STEP && (d->by_shard || !d->stats)) {
        step = rf_codec_get_step(codec, &d->step, &used) == RF_OK;
    }
    if ((d->by_shard && (!step || d->step.shard != d->shard)) || d->left == 0) {
        return;
    }
    d->left--;
    d->records++;
    d->by_event[event_index(r)]++;
    if (!d->stats) {
        show_record(d, b, r, step, codec, made);
    }
}

static rf_status take_batch(struct dump *d, const struct rf_log_batch *b,
                            struct rf_log_order *order, rf_detail *detail)
{
    rf_status status = rf_log_order_begin(order, b, detail);
    const struct rf_log_record *r;
    d->batches++;
    d->bytes += b->header.bytes;
    d->first_epoch = d->first_epoch == 0 ? b->header.epoch : d->first_epoch;
    d->last_epoch = b->header.epoch;
    while (status == RF_OK && (r = rf_log_order_next(order)) != NULL) {
        take_record(d, b, r);
    }
    return status;
}

static int read_dump(struct cli *cli, struct dump *d)
{
    const struct args *a = &cli->args;
    *d = (struct dump){.args = a,
                       .json = out_is_json(),
                       .reveal = cli->reveal,
                       .stats = arg_given(a, "stats"),
                       .by_type = arg_given(a, "type"),
                       .by_shard = arg_given(a, "shard"),
                       .shard = arg_number(a, "shard", 0),
                       .left = arg_number(a, "limit", UINT64_MAX)};
    d->text.at = d->text.buffer;
    d->text.end = d->text.buffer + sizeof(d->text.buffer);
    const char *type;
    for (int i = 0; (type = arg_each(a, "type", i)) != NULL; i++) {
        bool known = false;
        for (unsigned e = 0; e <= RF_EVENT_RUN_PURGED; e++) {
            bool same = strcmp(rf_event_name((rf_event_kind)e), type) == 0;
            d->wanted[e] |= same;
            known |= same;
        }
        if (!known) {
            return cli_fail(EXIT_USAGE,
                            "there is no event called %s; see `ringfence log dump "
                            "--stats`",
                            type);
        }
    }
    return EXIT_DONE;
}

/* From `from` on to the end; the next one is in *next. */
static rf_status walk(struct log_files *f, struct dump *d, uint64_t from, uint64_t until,
                      uint64_t *next, rf_detail *detail)
{
    struct rf_log_reader *reader;
    struct rf_log_order order = {0};
    bool end = false;
    rf_status status =
        rf_log_reader_open(f->disk, f->store.segment_bytes, f->store.store_id, &reader, detail);
    if (status != RF_OK) {
        return status;
    }
    if (rf_log_reader_empty(reader)) {
        rf_log_reader_close(reader);
        return RF_OK;
    }
    status = from != 0 ? rf_log_seek_or_end(reader, from, &end, detail)
                       : files_first_epoch(f, reader, &from, detail);
    while (status == RF_OK && !end && !stopped && d->left != 0) {
        struct rf_log_batch batch;
        status = rf_log_next(reader, &batch, &end, detail);
        if (status != RF_OK || end || batch.header.epoch > until) {
            break;
        }
        status = take_batch(d, &batch, &order, detail);
        *next = batch.header.epoch + 1;
        if (ferror(stdout)) {
            break;
        }
    }
    rf_log_order_free(&order);
    rf_log_reader_close(reader);
    return status;
}

static void show_stats(const struct dump *d)
{
    out_card_begin();
    out_number("batches", d->batches);
    out_number("records", d->records);
    out_size("bytes", d->bytes);
    out_number("first_epoch", d->first_epoch);
    out_number("last_epoch", d->last_epoch);
    out_real("records_per_batch", d->batches == 0 ? 0 : (double)d->records / (double)d->batches, 1);
    out_inner_begin("events");
    for (unsigned e = 0; e < 32; e++) {
        if (d->by_event[e] != 0) {
            out_row();
            out_text("event", e == 31   ? "chunk"
                              : e == 30 ? "housekeeping"
                                        : rf_event_name((rf_event_kind)e));
            out_number("records", d->by_event[e]);
        }
    }
    out_inner_end();
    out_card_end();
}

#define LOOKS_MAX 20u

static int run_dump(struct cli *cli)
{
    static struct dump d;
    struct log_files f;
    const struct args *a = &cli->args;
    uint64_t next = arg_number(a, "start", 0), until = arg_number(a, "end", UINT64_MAX);
    int code = read_dump(cli, &d);
    code = code != EXIT_DONE ? code : files_open(cli, a->words[0], false, &f);
    if (code != EXIT_DONE) {
        return code;
    }
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_signal}, NULL);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = on_signal}, NULL);
    rf_status status = walk(&f, &d, next, until, &next, &cli->detail);
    uint64_t stuck_at = 0;
    unsigned stuck = 0;
    while (status == RF_OK && arg_given(a, "follow") && !stopped && d.left != 0 && next <= until &&
           !ferror(stdout)) {
        text_flush(&d.text);
        fflush(stdout);
        sleep_ns(50 * RF_MILLISECOND);
        status = walk(&f, &d, next, until, &next, &cli->detail);
        /* Damage is what later batches vouch for. While those are being written one look may see them
         * and not the one before; but not look after look. */
        if (status == RF_CORRUPT || status == RF_NOT_FOUND) {
            stuck = stuck_at == next ? stuck + 1 : 1;
            stuck_at = next;
            status = stuck < LOOKS_MAX ? RF_OK : status;
        }
    }
    text_flush(&d.text);
    files_close(&f);
    if (status == RF_OK && arg_given(a, "stats")) {
        show_stats(&d);
    }
    if (status == RF_NOT_FOUND) {
        return cli_fail(EXIT_NOT_FOUND, "%s: %s; say --start with a later one, or leave it out",
                        a->words[0], cli->detail.where);
    }
    return status == RF_OK ? EXIT_DONE : cli_refuse(status, &cli->detail, 0, "%s", a->words[0]);
}

const struct command command_log_dump = {
    .group = "log",
    .name = "dump",
    .synopsis = "DIR [options]",
    .summary = "print the records of a log",
    .text =
        "A line a record: epoch, stamp, slot of the member, event, and what belongs to it. Reads the "
        "files alone, of a store in use as well. Records of one epoch became durable together. "
        "--follow ends with an error where it can't go on: at damage, and if it was so slow that the "
        "next epoch was removed, as snapshots make it unneeded.",
    .examples = "ringfence log dump /var/lib/farm --limit 10\n"
                "ringfence log dump /var/lib/farm --type parked --json\n"
                "ringfence log dump /var/lib/farm --stats",
    .options = dump_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .reveals = true,
    .run = run_dump,
};

/* --- verify a log --- */

static int run_log_verify(struct cli *cli)
{
    static struct dump d;
    struct log_files f;
    uint64_t next = 0;
    int code = files_open(cli, cli->args.words[0], false, &f);
    if (code != EXIT_DONE) {
        return code;
    }
    d = (struct dump){.args = &cli->args, .left = UINT64_MAX, .stats = true};
    d.text.at = d.text.buffer;
    d.text.end = d.text.buffer + sizeof(d.text.buffer);
    rf_status status = walk(&f, &d, 0, UINT64_MAX, &next, &cli->detail);
    files_close(&f);
    out_card_begin();
    out_word("log", status == RF_OK ? "good" : "damaged", status == RF_OK ? OUT_GREEN : OUT_RED);
    out_number("batches", d.batches);
    out_number("records", d.records);
    out_size("bytes", d.bytes);
    out_number("first_epoch", d.first_epoch);
    out_number("last_epoch", d.last_epoch);
    out_card_end();
    return status == RF_OK
               ? EXIT_DONE
               : cli_refuse(status, &cli->detail, 0,
                            "%s (`ringfence recover --dry-run` says whether it matters, "
                            "`ringfence repair --truncate` gives up what lies behind)",
                            cli->args.words[0]);
}

const struct command command_log_verify = {
    .group = "log",
    .name = "verify",
    .synopsis = "DIR",
    .summary = "walk the log's chain of hashes to its end",
    .text =
        "Every batch is hashed, and names the hash of the one before. What comes behind the last good "
        "batch is a torn end, which is normal after a crash, unless a later batch vouches for it: that "
        "is damage, exit code 12, and the place is named.",
    .examples = "ringfence log verify /var/lib/farm",
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_log_verify,
};

/* --- recover --- */

static const struct option_spec recover_options[] = {
    {"dry-run", 'n', OPTION_FLAG, NULL, "work it out beside the store, and change nothing"},
    {0},
};

static void show_recovered(const struct rf_recovered *r, bool dry)
{
    out_card_begin();
    out_phrase("recovery", dry ? "possible" : "done", dry ? "would succeed" : "done", OUT_PLAIN);
    if (r->snapshot_epoch != 0) {
        out_number("snapshot_epoch", r->snapshot_epoch);
    } else {
        out_none("snapshot_epoch");
    }
    out_number("last_epoch", r->log.end.epoch);
    out_number("last_incarnation", r->log.last_incarnation);
    out_number("batches", r->tally.batches);
    out_number("records", r->tally.records);
    out_number("applied", r->tally.applied);
    out_number("runs", r->tally.runs);
    out_number("shards", r->tally.shards);
    out_time("last_time", r->tally.time);
    out_card_end();
}

/* Whoever only looks does not recover a store: it sees whether that is needed. */
static bool is_there(const char *name)
{
    rf_store *store;
    if (rf_open(name, &(rf_options){.read_only = true}, &store, NULL) != RF_OK) {
        return false;
    }
    rf_close(store);
    return true;
}

static int recover_now(struct cli *cli)
{
    rf_store *store;
    rf_inspection seen;
    bool there = is_there(cli->args.words[0]);
    int code = open_to_work(cli, cli->args.words[0], &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_inspect(store, &seen, NULL);
    rf_close(store);
    out_card_begin();
    out_phrase("recovery", there ? "none" : "done",
               there ? "none: it is in memory, there is nothing to do" : "done", OUT_PLAIN);
    out_number("incarnation", seen.incarnation);
    out_number("durable_epoch", seen.durable_epoch);
    out_number("runs", seen.runs);
    out_number("shards", seen.shards);
    out_card_end();
    return EXIT_DONE;
}

static int run_recover(struct cli *cli)
{
    struct log_files f;
    struct rf_recovered recovered;
    if (!arg_given(&cli->args, "dry-run")) {
        return recover_now(cli);
    }
    int code = files_open(cli, cli->args.words[0], false, &f);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = files_rehearse(&f, &recovered, &cli->detail);
    files_close(&f);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "%s can't be recovered as it is",
                          cli->args.words[0]);
    }
    show_recovered(&recovered, true);
    return EXIT_DONE;
}

const struct command command_recover = {
    .name = "recover",
    .synopsis = "DIR [--dry-run]",
    .summary = "bring a durable store back into shared memory",
    .text =
        "Any process that opens a store to work on it does this by itself. Commands that only look do "
        "not: after a reboot, say `ringfence recover` first. Leases are void afterwards, cursors and "
        "fences go on. --dry-run loads the newest snapshot and replays the log in memory of its "
        "own, and shows what would be found.",
    .examples = "ringfence recover --dry-run /var/lib/farm",
    .options = recover_options,
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_recover,
};

/* --- verify a store --- */

/* As open_to_work, but a store without a log is told in the words of whoever reads its files. */
static int open_with_log(struct cli *cli, const char *name, rf_store **store)
{
    rf_inspection seen = {0};
    int code = open_to_work(cli, name, store);
    if (code == EXIT_DONE && rf_inspect(*store, &seen, NULL) == RF_OK &&
        seen.durability == RF_VOLATILE) {
        rf_close(*store);
        code = cli_fail(EXIT_REFUSED, "%s is volatile: it has no log", name);
    }
    return code;
}

#define DIFFERENCES_MAX 100u

/* The first ones; how many there are is counted anyway. */
struct differences {
    uint64_t count;
    char *what[DIFFERENCES_MAX];
};

static void note_difference(void *context, const char *what)
{
    struct differences *d = context;
    if (d->count < DIFFERENCES_MAX) {
        d->what[d->count++] = keep_text(what);
    }
}

static void show_differences(const struct differences *d, uint64_t count)
{
    out_number("differences", count);
    if (!out_is_json()) {
        return; /* they stand above */
    }
    out_inner_begin("found");
    for (uint64_t i = 0; i < d->count; i++) {
        out_row();
        out_text("difference", d->what[i]);
    }
    out_inner_end();
}

static int verify_files(struct cli *cli, const char *name)
{
    struct log_files f;
    struct rf_recovered r;
    int code = files_open(cli, name, false, &f);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = files_rehearse(&f, &r, &cli->detail);
    files_close(&f);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "%s", name);
    }
    out_card_begin();
    out_phrase("verified", "files", "files only: it is not in memory", OUT_PLAIN);
    out_number("batches", r.tally.batches);
    out_number("records", r.tally.records);
    out_number("runs", r.tally.runs);
    out_number("shards", r.tally.shards);
    show_differences(&(struct differences){0}, 0);
    out_card_end();
    return EXIT_DONE;
}

static int run_verify(struct cli *cli)
{
    const char *name = cli->args.words[0];
    rf_store *store;
    rf_verification v = {0};
    static struct differences d;
    /* Only to see whether it is in memory: opening it to work would bring it back. */
    if (rf_open(name, &(rf_options){.read_only = true}, &store, NULL) != RF_OK) {
        return verify_files(cli, name);
    }
    rf_close(store);
    int code = open_with_log(cli, name, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_verify(store, note_difference, &d, &v, &cli->detail);
    rf_close(store);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "%s", name);
    }
    for (uint64_t i = 0; i < d.count && !out_is_json(); i++) {
        printf("difference: %s\n", d.what[i]);
    }
    out_card_begin();
    out_phrase("verified", "live", "memory against log", OUT_PLAIN);
    out_number("batches", v.batches);
    out_number("records", v.records);
    out_number("runs", v.runs);
    out_number("shards", v.shards);
    show_differences(&d, v.differences);
    out_card_end();
    return v.differences == 0 ? EXIT_DONE : EXIT_INCOMPLETE;
}

const struct command command_verify = {
    .name = "verify",
    .synopsis = "DIR",
    .summary = "compare a durable store with its log",
    .text =
        "Replays snapshot and log beside the store, and compares every record, counter, index entry and "
        "bitmap; this needs a moment in which nobody changes anything (exit code 8 if there is none). A "
        "store that is not in memory is replayed alone. Exit codes: 1 if there are differences, 12 if "
        "the log is damaged.",
    .examples = "ringfence verify /var/lib/farm",
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_verify,
};

/* --- snapshot, backup --- */

static int run_snapshot(struct cli *cli)
{
    const char *name = cli->args.words[0];
    rf_store *store;
    rf_inspection seen;
    int code = open_with_log(cli, name, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_snapshot(store, &cli->detail);
    rf_inspect(store, &seen, NULL);
    rf_close(store);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "%s", name);
    }
    out_card_begin();
    out_number("snapshot_epoch", seen.snapshot_epoch);
    out_number("durable_epoch", seen.durable_epoch);
    out_number("shards", seen.shards);
    out_card_end();
    return EXIT_DONE;
}

const struct command command_snapshot = {
    .name = "snapshot",
    .synopsis = "DIR",
    .summary = "take a snapshot now",
    .text =
        "Stops nobody. A recovery begins with the newest snapshot, so it is faster afterwards; log that "
        "is older than the two newest snapshots is removed. Snapshots are also taken without being "
        "asked for, whenever enough log was written.",
    .examples = "ringfence snapshot /var/lib/farm",
    .min_words = 1,
    .max_words = 1,
    .prints = true,
    .run = run_snapshot,
};

static int run_backup(struct cli *cli)
{
    const char *name = cli->args.words[0], *target = cli->args.words[1];
    rf_store *store;
    int code = open_with_log(cli, name, &store);
    if (code != EXIT_DONE) {
        return code;
    }
    rf_status status = rf_backup(store, target, &cli->detail);
    rf_close(store);
    if (status != RF_OK) {
        return cli_refuse(status, &cli->detail, 0, "backup of %s to %s", name, target);
    }
    out_card_begin();
    out_text("store", name);
    out_text("backup", target);
    out_card_end();
    return EXIT_DONE;
}

const struct command command_backup = {
    .name = "backup",
    .synopsis = "DIR TARGET",
    .summary = "copy a durable store while it is in use",
    .text =
        "A snapshot and the log behind it, up to what is durable when the copy is made. TARGET is a "
        "directory that is empty or does not exist; nothing is overwritten. The copy is a store: open "
        "it, or put it in the place of one that was lost. Run only one of the two. Fences of the copy go on "
        "above those of the next 4096 cold opens of the store, so that what it granted after the backup is "
        "refused; two stores that are opened from one backup repeat each other's fences. Back up anew what "
        "was restored.",
    .examples = "ringfence backup /var/lib/farm /backup/farm-monday",
    .min_words = 2,
    .max_words = 2,
    .prints = true,
    .run = run_backup,
};
