#include "whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_ROOM 65536u

char *whole_read(const char *file, size_t *len)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    size_t room = FIRST_ROOM, have = 0;
    char *text = fd < 0 ? NULL : malloc(room);
    while (text != NULL) {
        ssize_t n = read(fd, text + have, room - have - 1);
        if (n == 0) {
            break;
        }
        if (n < 0 && errno != EINTR) {
            free(text);
            text = NULL;
            break;
        }
        have += n > 0 ? (size_t)n : 0;
        if (room - have == 1) {
            char *more = realloc(text, room *= 2);
            if (more == NULL) {
                free(text);
            }
            text = more;
        }
    }
    if (text == NULL) {
        fprintf(stderr, "rf-scan: %s: %s\n", file, strerror(errno));
    } else {
        text[have] = '\0';
        *len = have;
    }
    if (fd >= 0) {
        close(fd);
    }
    return text;
}
