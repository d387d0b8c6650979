/* What to leave out of a tree, in the language of .gitignore. */
#ifndef RF_SCAN_IGNORE_H
#define RF_SCAN_IGNORE_H

#include <stdbool.h>
#include <stddef.h>

/* The patterns of one file or one directory, and of those above it. They own their text. */
struct ignore;

/* base: how many bytes of a path (below its root) the directory of these patterns takes, with the
 * slash; they are matched against what comes behind. */
struct ignore *ignore_push(struct ignore *above, const char *text, size_t len, size_t base);
struct ignore *ignore_pop(struct ignore *ignore);
/* path is below its root, without a slash at either end. The last pattern that fits decides. */
bool ignore_match(const struct ignore *ignore, const char *path, bool is_directory);

/* * and ? stop at slashes, ** between slashes does not, [a-z], [!a-z] and [[:alpha:]] are classes, \
 * takes the next as it is. A pattern with half a class, or a \ at its end, fits nothing. */
bool ignore_glob(const char *pattern, const char *text);

#endif
