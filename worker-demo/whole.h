/* A file that is read whole, whatever it is: pipes as well. */
#ifndef RF_SCAN_WHOLE_H
#define RF_SCAN_WHOLE_H

#include <stddef.h>

/* With a zero byte behind it; to be freed. NULL if it can't be read, which is said on standard
 * error. */
char *whole_read(const char *file, size_t *len);

#endif
