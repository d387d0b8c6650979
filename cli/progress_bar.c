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

/* Adds what there is room for. */
static void add_part(char *tail, size_t size, int room, const char *part)
{
    size_t len = strlen(tail), more = strlen(part);
    if (len + more < size && (int)(len + more) <= room) {
        memcpy(tail + len, part, more + 1);
    }
}

/* One line, however narrow the terminal is: what runs over its edge could not be drawn over again. */
void bar_draw(struct progress_bar *bar, FILE *to, const struct bar_state *s)
{
    char tail[160] = "", part[80], head[48];
    int columns = stream_width(to);
    uint64_t now = monotonic_ns();
    if (bar->began_ns == 0) {
        bar->began_ns = now;
        bar->done_then = s->done;
    }
    double seconds = (double)(now - bar->began_ns) / 1e9;
    double rate = seconds > 0.1 ? (double)(s->done - bar->done_then) / seconds : 0;
    int head_len = snprintf(head, sizeof(head), "run %s ", id_text(s->run));
    int room = columns - 1 - head_len;
    snprintf(part, sizeof(part), " %s/%s%s", count_text(s->done), count_text(s->whole),
             s->more ? "+" : "");
    add_part(tail, sizeof(tail), room, part);
    if (s->running != 0) {
        snprintf(part, sizeof(part), ", %" PRIu64 " running", s->running);
        add_part(tail, sizeof(tail), room, part);
    }
    if (s->parked != 0) {
        snprintf(part, sizeof(part), ", %" PRIu64 " parked", s->parked);
        add_part(tail, sizeof(tail), room, part);
    }
    if (rate > 0 && s->done + s->parked < s->whole) {
        uint64_t left = s->whole - s->done - s->parked;
        snprintf(part, sizeof(part), ", %.1f/s, %s left", rate,
                 duration_text((uint64_t)((double)left / rate * 1e9)));
        add_part(tail, sizeof(tail), room, part);
    }
    room = room - (int)strlen(tail) - 2; /* and its brackets */
    int width = room > BAR_MAX ? BAR_MAX : room;
    fprintf(to, "\r%.*s", columns > 1 ? columns - 1 : 0, head);
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
