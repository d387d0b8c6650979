#include "progress_bar.h"

#include <inttypes.h>
#include <string.h>

#include "cli.h"

#define BAR_MAX 40

/* Done, parked and open parts, each with at least its share rounded down. */
static void draw_parts(FILE *to, const struct bar_state *s, int width)
{
    uint64_t whole = s->whole == 0 ? 1 : s->whole;
    int done = (int)(s->done * (uint64_t)width / whole);
    int parked = (int)((s->done + s->parked) * (uint64_t)width / whole) - done;
    fprintf(to, "[%s", colour_on(to, OUT_GREEN));
    for (int i = 0; i < width; i++) {
        if (i == done) {
            fputs(colour_on(to, OUT_RED), to);
        }
        if (i == done + parked) {
            fputs(colour_off(to), to);
        }
        fputc(i < done ? '#' : i < done + parked ? '!' : '.', to);
    }
    fprintf(to, "%s]", colour_off(to));
}

void bar_draw(struct progress_bar *bar, FILE *to, const struct bar_state *s)
{
    char tail[160];
    uint64_t now = monotonic_ns();
    if (bar->began_ns == 0) {
        bar->began_ns = now;
        bar->done_then = s->done;
    }
    double seconds = (double)(now - bar->began_ns) / 1e9;
    double rate = seconds > 0.1 ? (double)(s->done - bar->done_then) / seconds : 0;
    int len = snprintf(tail, sizeof(tail), " %s/%s%s", count_text(s->done), count_text(s->whole),
                       s->more ? "+" : "");
    if (s->running != 0) {
        len +=
            snprintf(tail + len, sizeof(tail) - (size_t)len, ", %" PRIu64 " running", s->running);
    }
    if (s->parked != 0) {
        len += snprintf(tail + len, sizeof(tail) - (size_t)len, ", %" PRIu64 " parked", s->parked);
    }
    if (rate > 0 && s->done + s->parked < s->whole) {
        uint64_t left = s->whole - s->done - s->parked;
        snprintf(tail + len, sizeof(tail) - (size_t)len, ", %.1f/s, %s left", rate,
                 duration_text((uint64_t)((double)left / rate * 1e9)));
    }
    char head[48];
    snprintf(head, sizeof(head), "run %s ", id_text(s->run));
    int room = stream_width(to) - (int)strlen(head) - (int)strlen(tail) - 3;
    int width = room > BAR_MAX ? BAR_MAX : room;
    fprintf(to, "\r%s", head);
    if (width > 4) {
        draw_parts(to, s, width);
    }
    fprintf(to, "%s\033[K", tail);
    fflush(to);
    bar->drawn = true;
}

void bar_clear(struct progress_bar *bar, FILE *to)
{
    if (bar->drawn) {
        fputs("\r\033[K", to);
        fflush(to);
        bar->drawn = false;
    }
}
