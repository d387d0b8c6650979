/* Help, man pages and completions, all from the table of commands. */
#include <string.h>
#include <time.h>

#include "cli.h"

static const char *const about =
    "ringfence shares out work between the processes of one Linux host, safely. A store is a "
    "directory; a plain name NAME stands for /dev/shm/ringfence-NAME, and ./NAME for a directory here. "
    "Runs are cut into shards, workers claim shards, and a worker that dies loses them at once to the "
    "others.";

static const char *const conventions =
    "Numbers of runs and shards are decimal or 0x. Durations are written 500ms, 30s, 5m, 2h; sizes "
    "4096, 64K, 1G. Keys, tokens and metadata are written with %XX for every byte but letters, digits "
    "and ._~/:@+=-; on input other bytes may stand for themselves, a % is always %25, and hex:6b6579 "
    "is understood as well. In bash, printf '%b' \"${word//%/\\\\x}\" reads such a word.\n"
    "Keys, tokens and metadata are shown by their lengths unless --reveal is given. With --json, "
    "a card is one object and a list is one object a line; ids are strings, names that end in _ns are "
    "nanoseconds. Colours appear on a terminal only, and never if NO_COLOR is set.\n";

static const char *full_name(const struct command *c)
{
    return c->group == NULL ? c->name : keep_format("%s %s", c->group, c->name);
}

static const char *full_group(const struct command *c)
{
    return c->group == NULL ? "" : c->group;
}

/* Words of a paragraph, up to the width; a newline in the text begins a new one. */
static void print_wrapped(FILE *to, const char *text, int indent, int width)
{
    int at = 0;
    while (*text != 0) {
        if (*text == '\n') {
            fputc('\n', to);
            at = 0;
            text++;
            continue;
        }
        size_t len = strcspn(text, " \n");
        if (at > 0 && at + 1 + (int)len > width) {
            fputc('\n', to);
            at = 0;
        }
        if (at == 0) {
            at = fprintf(to, "%*s", indent, "");
        } else {
            at += fprintf(to, " ");
        }
        at += fprintf(to, "%.*s", (int)len, text);
        text += len;
        while (*text == ' ') {
            text++;
        }
    }
    fputc('\n', to);
}

static void print_option(FILE *to, const struct option_spec *o)
{
    const char *letter = o->letter != 0 ? keep_format("-%c, ", o->letter) : "    ";
    const char *name = keep_format("%s--%s%s%s", letter, o->name, o->value != NULL ? " " : "",
                                   o->value != NULL ? o->value : "");
    fprintf(to, "  %-27s ", name);
    if (strlen(name) > 27) {
        fprintf(to, "\n%30s", "");
    }
    /* The help of an option is one line as a rule. */
    fprintf(to, "%s\n", o->help);
}

typedef void with_option(FILE *to, const struct option_spec *o);

static void each_option(const struct command *c, with_option *with, FILE *to)
{
    for (const struct option_spec *o = c->options; o != NULL && o->name != NULL; o++) {
        with(to, o);
    }
    if (c->prints) {
        with(to, &option_json);
    }
    if (c->tenant) {
        with(to, &option_tenant);
    }
    if (c->reveals) {
        with(to, &option_reveal);
    }
    with(to, &option_help);
}

static void print_command_help(const struct command *c, FILE *to)
{
    fprintf(to, "usage: ringfence %s %s\n\n", full_name(c), c->synopsis);
    print_wrapped(to, c->summary, 0, 90);
    if (c->text != NULL) {
        fputc('\n', to);
        print_wrapped(to, c->text, 0, 90);
    }
    fprintf(to, "\noptions:\n");
    each_option(c, print_option, to);
    if (c->examples != NULL) {
        fprintf(to, "\nexamples:\n");
        for (const char *line = c->examples; *line != 0;) {
            size_t len = strcspn(line, "\n");
            fprintf(to, "  %.*s\n", (int)len, line);
            line += len + (line[len] == '\n');
        }
    }
}

static void print_group_help(const struct command_group *g, FILE *to)
{
    fprintf(to, "usage: ringfence %s COMMAND ...\n\n", g->name);
    print_wrapped(to, g->text, 0, 90);
    fprintf(to, "\ncommands:\n");
    const char *example = NULL;
    for (const struct command *const *c = commands; *c != NULL; c++) {
        if ((*c)->group != NULL && strcmp((*c)->group, g->name) == 0) {
            fprintf(to, "  %-12s %s\n", (*c)->name, (*c)->summary);
            example = example == NULL ? (*c)->examples : example;
        }
    }
    if (example != NULL) {
        fprintf(to, "\nexample:\n  %.*s\n", (int)strcspn(example, "\n"), example);
    }
    fprintf(to, "\n`ringfence %s COMMAND --help` says more.\n", g->name);
}

static const struct command_group *group_called(const char *name)
{
    for (const struct command_group *g = groups; g->name != NULL; g++) {
        if (strcmp(g->name, name) == 0) {
            return g;
        }
    }
    return NULL;
}

int print_help(const char *group, const struct command *command, FILE *to)
{
    if (command != NULL) {
        print_command_help(command, to);
        return EXIT_DONE;
    }
    if (group != NULL) {
        print_group_help(group_called(group), to);
        return EXIT_DONE;
    }
    fprintf(to, "usage: ringfence COMMAND ...\n\n");
    print_wrapped(to, about, 0, 90);
    fprintf(to, "\ncommands:\n");
    const char *shown = "";
    for (const struct command *const *c = commands; *c != NULL; c++) {
        if ((*c)->group == NULL) {
            fprintf(to, "  %-12s %s\n", (*c)->name, (*c)->summary);
        } else if (strcmp((*c)->group, shown) != 0) {
            shown = (*c)->group;
            fprintf(to, "  %-12s %s\n", keep_format("%s ...", shown), group_called(shown)->summary);
        }
    }
    fprintf(to, "\nexample:\n"
                "  ringfence init ./farm\n"
                "  ringfence run create ./farm 1 --hex-prefixes 2\n"
                "  ringfence work ./farm 1 --workers 4 -- sh -c 'echo \"$RINGFENCE_START\"'\n"
                "  ringfence status ./farm\n\n");
    print_wrapped(to, conventions, 0, 90);
    fprintf(to, "exit codes:\n");
    print_exit_codes(to);
    fprintf(to, "\n`ringfence COMMAND --help` says more.\n");
    return EXIT_DONE;
}

/* --- man pages --- */

/* roff: a backslash and a leading dot or quote are special, a minus is a hyphen. */
static void roff(FILE *to, const char *text, size_t len)
{
    bool start = true;
    for (size_t i = 0; i < len; i++) {
        if (start && (text[i] == '.' || text[i] == '\'')) {
            fputs("\\&", to);
        }
        start = text[i] == '\n';
        if (text[i] == '\\') {
            fputs("\\e", to);
        } else if (text[i] == '-') {
            fputs("\\-", to);
        } else {
            fputc(text[i], to);
        }
    }
}

static void roff_text(const char *text)
{
    for (const char *line = text; *line != 0;) {
        size_t len = strcspn(line, "\n");
        printf(".PP\n");
        roff(stdout, line, len);
        putchar('\n');
        line += len + (line[len] == '\n');
    }
}

static void roff_option(FILE *to, const struct option_spec *o)
{
    fprintf(to, ".TP\n");
    if (o->letter != 0) {
        fprintf(to, "\\fB\\-%c\\fR, ", o->letter);
    }
    fprintf(to, "\\fB\\-\\-");
    roff(to, o->name, strlen(o->name));
    fprintf(to, "\\fR");
    if (o->value != NULL) {
        fprintf(to, " \\fI%s\\fR", o->value);
    }
    fputc('\n', to);
    roff(to, o->help, strlen(o->help));
    fputc('\n', to);
}

static void roff_command(const struct command *c)
{
    printf(".SS \"ringfence %s ", full_name(c));
    roff(stdout, c->synopsis, strlen(c->synopsis));
    printf("\"\n");
    roff(stdout, c->summary, strlen(c->summary));
    printf(".\n");
    if (c->text != NULL) {
        roff_text(c->text);
    }
    each_option(c, roff_option, stdout);
    if (c->examples != NULL) {
        printf(".PP\n.nf\n.RS 4\n");
        roff(stdout, c->examples, strlen(c->examples));
        printf("\n.RE\n.fi\n");
    }
}

/* Pages that are not groups: commands that belong together. */
static const struct {
    const char *page;
    const char *summary;
    const char *commands; /* with spaces around each */
} pages[] = {
    {"store", "make, look at and remove stores",
     " init status destroy cleanup backup snapshot verify recover repair fsync-test "},
    {"work", "work on a run with many processes", " work "},
    {"lease", "claim shards and report on them, from scripts",
     " claim renew checkpoint complete park release "},
    {"watch", "watch a store", " top procs monitor metrics "},
};

static bool on_page(const struct command *c, const char *page)
{
    if (c->group != NULL) {
        return strcmp(c->group, page) == 0;
    }
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(pages[i].page, page) == 0) {
            return strstr(pages[i].commands, keep_format(" %s ", c->name)) != NULL;
        }
    }
    return false;
}

/* Names of variables and options are typed as they stand there: none is broken at the end of a line. */
static void roff_head(const char *name, const char *summary)
{
    printf(".TH \"%s\" 1 \"\" \"ringfence %s\" \"ringfence\"\n.nh\n.ad l\n.SH NAME\n%s \\- %s\n",
           name, rf_version_string(), name, summary);
}

static void roff_conventions(void)
{
    printf(".SH CONVENTIONS\n");
    roff_text(conventions);
    printf(".SH EXIT STATUS\n");
    for (int i = 0; i <= EXIT_REFUSED; i++) {
        printf(".TP\n%d\n", i);
        roff(stdout, exit_texts[i], strlen(exit_texts[i]));
        putchar('\n');
    }
    printf(".TP\n%d\ninterrupted\n", EXIT_INTERRUPTED);
}

static void roff_see_also(const char *but)
{
    printf(".SH SEE ALSO\n\\fBringfence\\fR(1)");
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        if (strcmp(pages[i].page, but) != 0) {
            printf(", \\fBringfence\\-%s\\fR(1)", pages[i].page);
        }
    }
    for (const struct command_group *g = groups; g->name != NULL; g++) {
        if (strcmp(g->name, but) != 0) {
            printf(", \\fBringfence\\-%s\\fR(1)", g->name);
        }
    }
    putchar('\n');
}

static int print_main_page(void)
{
    roff_head("ringfence", "share out work between processes");
    printf(".SH SYNOPSIS\n\\fBringfence\\fR \\fICOMMAND\\fR ...\n.SH DESCRIPTION\n");
    roff(stdout, about, strlen(about));
    printf("\n.SH COMMANDS\n");
    for (const struct command *const *c = commands; *c != NULL; c++) {
        printf(".TP\n\\fBringfence %s\\fR\n", full_name(*c));
        roff(stdout, (*c)->summary, strlen((*c)->summary));
        putchar('\n');
    }
    roff_conventions();
    roff_see_also("");
    return EXIT_DONE;
}

int print_man(const char *page)
{
    if (strcmp(page, "ringfence") == 0) {
        return print_main_page();
    }
    const struct command_group *g = group_called(page);
    const char *summary = g == NULL ? NULL : g->summary;
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        summary = strcmp(pages[i].page, page) == 0 ? pages[i].summary : summary;
    }
    if (summary == NULL) {
        return cli_fail(EXIT_USAGE, "there is no page called %s", page);
    }
    roff_head(keep_format("ringfence-%s", page), summary);
    printf(".SH DESCRIPTION\n");
    roff_text(g != NULL ? g->text : about);
    printf(".SH COMMANDS\n");
    for (const struct command *const *c = commands; *c != NULL; c++) {
        if (on_page(*c, page)) {
            roff_command(*c);
        }
    }
    roff_conventions();
    roff_see_also(page);
    return EXIT_DONE;
}

/* --- completion --- */

/* The words that an option can have, or NULL if they are no fixed ones. An option of one name means the
 * same everywhere. */
static const char *option_words(const struct option_spec *o)
{
    const char *words = "";
    if (strcmp(o->name, "reason") == 0) {
        for (int i = RF_PARK_PERMISSION_DENIED; i <= RF_PARK_OTHER; i++) {
            words = keep_format("%s%s ", words, park_reason_word((rf_park_reason)i));
        }
        return words;
    }
    if (strcmp(o->name, "type") == 0) {
        for (int i = RF_EVENT_ACQUIRED; i <= RF_EVENT_RUN_PURGED; i++) {
            words = keep_format("%s%s ", words, rf_event_name((rf_event_kind)i));
        }
        return words;
    }
    return strcmp(o->name, "durability") == 0  ? "wait nowait"
           : strcmp(o->name, "semantics") == 0 ? "completed dispatched"
           : strcmp(o->name, "kind") == 0      ? "child residual"
           : strcmp(o->name, "only") == 0      ? "all active available parked roots"
                                               : NULL;
}

static void bash_words(const struct command *c)
{
    for (const struct option_spec *o = c->options; o != NULL && o->name != NULL; o++) {
        const char *words = option_words(o);
        if (words != NULL) {
            printf("    %s%s:--%s", full_group(c), c->name, o->name);
            if (o->letter != 0) {
                printf(" | %s%s:-%c", full_group(c), c->name, o->letter);
            }
            printf(") choices='%s' ;;\n", words);
        }
    }
}

static void bash_option(FILE *to, const struct option_spec *o)
{
    fprintf(to, " --%s", o->name);
}

static int bash_completion(void)
{
    printf(
        "# bash completion for ringfence; made from its table of commands\n"
        "_ringfence() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} i path=\n"
        "    for ((i = 1; i < COMP_CWORD && i < 3; i++)); do\n"
        "        case ${COMP_WORDS[i]} in -*) break ;; esac\n"
        "        case $i$path in 2run | 2shard | 2log | 2hash | 1) path+=${COMP_WORDS[i]} ;; esac\n"
        "        [ $i = 1 ] || break\n"
        "    done\n"
        "    local choices=\n"
        "    case $path in\n"
        "    '') choices='");
    const char *shown = "";
    for (const struct command *const *c = commands; *c != NULL; c++) {
        if ((*c)->group == NULL) {
            printf("%s ", (*c)->name);
        } else if (strcmp((*c)->group, shown) != 0) {
            shown = (*c)->group;
            printf("%s ", shown);
        }
    }
    printf("help version' ;;\n");
    for (const struct command_group *g = groups; g->name != NULL; g++) {
        printf("    %s) choices='", g->name);
        for (const struct command *const *c = commands; *c != NULL; c++) {
            if ((*c)->group != NULL && strcmp((*c)->group, g->name) == 0) {
                printf("%s ", (*c)->name);
            }
        }
        printf("--help' ;;\n");
    }
    for (const struct command *const *c = commands; *c != NULL; c++) {
        printf("    %s%s) [[ $word != -* ]] || choices='", full_group(*c), (*c)->name);
        each_option(*c, bash_option, stdout);
        printf("' ;;\n");
    }
    printf("    esac\n    case $path:${COMP_WORDS[COMP_CWORD - 1]} in\n");
    for (const struct command *const *c = commands; *c != NULL; c++) {
        bash_words(*c);
    }
    printf("    esac\n"
           "    if [ -n \"$choices\" ]; then\n"
           "        mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$word\")\n"
           "    else\n"
           "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
           "        compopt -o filenames 2>/dev/null\n"
           "    fi\n"
           "}\n"
           "complete -F _ringfence ringfence\n");
    return EXIT_DONE;
}

/* Single quotes, colons and brackets are special to _arguments and _describe. */
static void zsh_text(const char *text)
{
    for (; *text != 0; text++) {
        if (*text == '\'') {
            fputs("'\\''", stdout);
        } else if (*text == ':' || *text == '[' || *text == ']' || *text == '\\') {
            printf("\\%c", *text);
        } else {
            putchar(*text);
        }
    }
}

static void zsh_option(FILE *to, const struct option_spec *o)
{
    fprintf(to, " \\\n            '%s--%s[", o->kind == OPTION_LIST ? "*" : "", o->name);
    zsh_text(o->help);
    fprintf(to, "]");
    if (o->value != NULL) {
        const char *words = option_words(o);
        fprintf(to, ":%s:%s", o->value,
                words != NULL                   ? keep_format("(%s)", words)
                : strcmp(o->value, "FILE") == 0 ? "_files"
                                                : "");
    }
    fprintf(to, "'");
}

static void zsh_words(const char *group)
{
    const char *shown = "";
    for (const struct command *const *c = commands; *c != NULL; c++) {
        bool here = group == NULL || ((*c)->group != NULL && strcmp((*c)->group, group) == 0);
        if (!here) {
            continue;
        }
        const char *name = (*c)->name, *summary = (*c)->summary;
        if (group == NULL && (*c)->group != NULL) {
            if (strcmp((*c)->group, shown) == 0) {
                continue;
            }
            name = shown = (*c)->group;
            summary = group_called(shown)->summary;
        }
        printf(" \\\n            '%s:", name);
        zsh_text(summary);
        printf("'");
    }
}

static int zsh_completion(void)
{
    printf(
        "#compdef ringfence\n# made from its table of commands\n\n"
        "_ringfence() {\n    local -a choices\n    if (( CURRENT == 2 )); then\n        choices=(");
    zsh_words(NULL);
    printf(")\n        _describe command choices\n        return\n    fi\n    case $words[2] in\n");
    for (const struct command_group *g = groups; g->name != NULL; g++) {
        printf("    %s)\n        if (( CURRENT == 3 )); then\n            choices=(", g->name);
        zsh_words(g->name);
        printf(")\n            _describe command choices\n            return\n        fi ;;\n");
    }
    printf("    esac\n    case \"$words[2] $words[3]\" in\n");
    for (const struct command *const *c = commands; *c != NULL; c++) {
        printf((*c)->group != NULL ? "    '%s%s%s')" : "    %s%s'%s '*)", full_group(*c),
               (*c)->group != NULL ? " " : "", (*c)->name);
        printf("\n        _arguments");
        each_option(*c, zsh_option, stdout);
        printf(" \\\n            '*:argument:_files' ;;\n");
    }
    printf("    esac\n}\n\n_ringfence \"$@\"\n");
    return EXIT_DONE;
}

int print_completion(const char *shell)
{
    if (strcmp(shell, "bash") == 0) {
        return bash_completion();
    }
    if (strcmp(shell, "zsh") == 0) {
        return zsh_completion();
    }
    return cli_fail(EXIT_USAGE, "completions are there for bash and zsh");
}
