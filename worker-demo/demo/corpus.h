/*
 * A tree of sources, configuration and logs, made from a seed: the same seed gives the same bytes
 * anywhere. Secrets are planted in it, and things that only look like secrets. Where each secret is,
 * is known, from templates of its own (not from the scanner's rules), so that what a scan finds can
 * be held against it.
 */
#ifndef RF_SCAN_CORPUS_H
#define RF_SCAN_CORPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct corpus_options {
    uint64_t seed;
    uint64_t bytes;       /* at least, in all */
    unsigned secrets;     /* planted, all rules in turn */
    unsigned near_misses; /* look like secrets and are none */
    uint64_t largest;     /* bytes of a log file, at most; 0: a 64th of all, at least 64 KiB */
};

struct planted {
    char *path; /* below the tree's root */
    const char *rule;
    uint64_t start; /* of the match in the file */
};

struct corpus {
    struct planted *planted; /* sorted by path, place, rule */
    size_t count;
    uint64_t files, bytes;
    unsigned near_misses;
};

/* False and errno. dir is made if it is not there. */
bool corpus_make(const char *dir, const struct corpus_options *options, struct corpus *corpus);
void corpus_free(struct corpus *corpus);
int corpus_order(const void *a, const void *b); /* of struct planted */

/* How many rules have a template. */
unsigned corpus_rules(void);
/* A line with a secret of the template into out, without a new line. Returns its length;
 * *start is where the match begins. */
size_t corpus_secret(unsigned which, uint64_t *seed, char *out, size_t out_size, size_t *start,
                     const char **rule);

#endif
