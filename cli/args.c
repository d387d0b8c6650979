#include "args.h"

#include <assert.h>
#include <string.h>

#include "cli.h"

const struct option_spec option_help = {"help", 'h', OPTION_FLAG, NULL, "show this help"};
const struct option_spec option_json = {"json", 0, OPTION_FLAG, NULL,
                                        "print JSON: an object, or one a line"};
const struct option_spec option_tenant = {
    "tenant", 't', OPTION_TEXT, "NAME",
    "whose runs [$RINGFENCE_TENANT, else the tenant called default]"};
const struct option_spec option_reveal = {"reveal", 0, OPTION_FLAG, NULL,
                                          "show keys, tokens and metadata, not only their lengths"};

static const struct option_spec *shared_option(const struct command *c, int i)
{
    const struct option_spec *all[4] = {NULL};
    int n = 0;
    if (c->prints) {
        all[n++] = &option_json;
    }
    if (c->tenant) {
        all[n++] = &option_tenant;
    }
    if (c->reveals) {
        all[n++] = &option_reveal;
    }
    all[n++] = &option_help;
    return i < n ? all[i] : NULL;
}

static const struct option_spec *find_option(const struct command *c, const char *name, size_t len,
                                             char letter)
{
    for (const struct option_spec *o = c->options; o != NULL && o->name != NULL; o++) {
        if (letter != 0 ? o->letter == letter
                        : strlen(o->name) == len && memcmp(o->name, name, len) == 0) {
            return o;
        }
    }
    for (int i = 0; shared_option(c, i) != NULL; i++) {
        const struct option_spec *o = shared_option(c, i);
        if (letter != 0 ? o->letter == letter
                        : strlen(o->name) == len && memcmp(o->name, name, len) == 0) {
            return o;
        }
    }
    return NULL;
}

static bool add(struct args *args, const struct option_spec *spec, const char *text)
{
    struct given g = {.spec = spec, .text = text};
    rf_bytes ignored;
    bool good = true;
    const char *form = "", *most = NULL;
    switch (spec->kind) {
    case OPTION_NUMBER:
        good = parse_number(text, &g.number);
        form = "a number";
        most = good || !is_too_large(text, parse_number) ? NULL : "18446744073709551615";
        break;
    case OPTION_DURATION:
        good = parse_duration(text, &g.number);
        form = "a duration such as 500ms, 30s or 5m";
        most = good || !is_too_large(text, parse_duration) ? NULL : "213503d";
        break;
    case OPTION_SIZE:
        good = parse_size(text, &g.number);
        form = "a size such as 4096, 64K or 1G";
        most = good || !is_too_large(text, parse_size) ? NULL : "16777215T";
        break;
    case OPTION_KEY:
        good = parse_bytes(text, &ignored);
        form = "text with % written %25, or hex: and digits";
        break;
    default:
        break;
    }
    if (most != NULL) {
        cli_fail(EXIT_USAGE, "--%s is too large: at most %s", spec->name, most);
        return false;
    }
    if (!good) {
        cli_fail(EXIT_USAGE, "--%s wants %s", spec->name, form);
        return false;
    }
    if (args->given_count == (int)(sizeof(args->given) / sizeof(args->given[0]))) {
        cli_fail(EXIT_USAGE, "there are too many options");
        return false;
    }
    for (int i = 0; i < args->given_count && spec->kind != OPTION_LIST; i++) {
        if (args->given[i].spec == spec) {
            args->given[i] = g; /* the last one counts */
            return true;
        }
    }
    args->given[args->given_count++] = g;
    return true;
}

/* One word that begins with -, and perhaps the next one: *used says how many. */
static bool parse_option(struct args *args, const struct command *c, int left, char **argv,
                         int *used)
{
    const char *word = argv[0], *value = NULL;
    const struct option_spec *spec;
    *used = 1;
    if (word[1] == '-') {
        size_t len = strcspn(word + 2, "=");
        spec = find_option(c, word + 2, len, 0);
        value = word[2 + len] == '=' ? word + 3 + len : NULL;
    } else {
        spec = find_option(c, NULL, 0, word[1]);
        value = word[2] != 0 ? word + 2 : NULL;
    }
    if (spec == NULL) {
        cli_fail(EXIT_USAGE, "there is no option %.*s here; see --help",
                 (int)(word[1] == '-' ? 2 + strcspn(word + 2, "=") : 2), word);
        return false;
    }
    if (spec->kind == OPTION_FLAG) {
        if (value != NULL) {
            cli_fail(EXIT_USAGE, "--%s takes no value", spec->name);
            return false;
        }
        return add(args, spec, "");
    }
    if (value == NULL) {
        if (left < 2) {
            cli_fail(EXIT_USAGE, "--%s wants a value (%s)", spec->name, spec->value);
            return false;
        }
        value = argv[1];
        *used = 2;
    }
    return add(args, spec, value);
}

bool args_parse(struct args *args, const struct command *c, int argc, char **argv)
{
    *args = (struct args){.own = c->options};
    for (int i = 0; i < argc;) {
        if (strcmp(argv[i], "--") == 0) {
            args->rest = argv + i + 1;
            args->rest_count = argc - i - 1;
            break;
        }
        if (argv[i][0] == '-' && argv[i][1] != 0) {
            int used;
            if (!parse_option(args, c, argc - i, argv + i, &used)) {
                return false;
            }
            i += used;
            continue;
        }
        if (args->word_count == (int)(sizeof(args->words) / sizeof(args->words[0]))) {
            cli_fail(EXIT_USAGE, "there are too many arguments; see --help");
            return false;
        }
        args->words[args->word_count++] = argv[i++];
    }
    return true;
}

static const struct given *find_given(const struct args *args, const char *name, int index)
{
    for (int i = 0; i < args->given_count; i++) {
        if (strcmp(args->given[i].spec->name, name) == 0 && index-- == 0) {
            return &args->given[i];
        }
    }
    return NULL;
}

bool arg_given(const struct args *args, const char *name)
{
    return find_given(args, name, 0) != NULL;
}

const char *arg_text(const struct args *args, const char *name, const char *otherwise)
{
    const struct given *g = find_given(args, name, 0);
    return g != NULL ? g->text : otherwise;
}

uint64_t arg_number(const struct args *args, const char *name, uint64_t otherwise)
{
    const struct given *g = find_given(args, name, 0);
    assert(g == NULL || g->spec->kind == OPTION_NUMBER || g->spec->kind == OPTION_DURATION ||
           g->spec->kind == OPTION_SIZE);
    return g != NULL ? g->number : otherwise;
}

const char *arg_each(const struct args *args, const char *name, int index)
{
    const struct given *g = find_given(args, name, index);
    return g != NULL ? g->text : NULL;
}
