#include "corpus.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- chance --- */

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint64_t below(uint64_t *state, uint64_t limit)
{
    return next(state) % limit;
}

/* --- templates --- */

/*
 * ^ is where the match begins; the line may have something before it. Then, with a count behind:
 *   %A letters and digits   %H hex        %U base64url   %B base64     %D digits   %d digits, no 0
 *   %C capitals and digits  %K base32     %L lower case and digits     %P for passwords
 * and without one:
 *   %c the checksum of the 30 characters before (GitHub)   %g %i of all since ^ (Grafana, GitLab)
 *   %b 52 characters and checksum of an age key   %j a JSON web token   %p the body of a private key
 *   %s base64 of 64 bytes   %n a new line   %% itself
 */
struct pattern {
    const char *rule;
    const char *text;
};

static const struct pattern secrets[] = {
    {"aws-access-key-id", "region us-east-1 id ^AKIA%K16"},
    {"aws-secret-access-key", "^aws_secret_access_key = %B40"},
    {"aws-bedrock-key", "bedrock ^ABSK%A128"},
    {"gcp-api-key", "maps.load('^AIza%U35')"},
    {"gcp-service-account", "  ^\"private_key_id\": \"%H40\","},
    {"google-oauth-secret", "oauth ^GOCSPX-%U28"},
    {"google-oauth-token", "Bearer ^ya29.%U110 ok"},
    {"azure-storage-key", "DefaultEndpointsProtocol=https;^AccountKey=%s;"},
    {"azure-client-secret", "client ^%A3%D1Q~%A34"},
    {"azure-sas", "https://store.blob.core.windows.net/c/x?sv=2022-11-02^&sig=%A43%%3D"},
    {"azure-devops-pat", "az devops login ^%A76AZDO%A4"},
    {"digitalocean-token", "doctl auth ^dop_v1_%H64"},
    {"heroku-api-key", "heroku ^HRKU-AA%U58"},
    {"databricks-token", "spark ^dapi%H32"},
    {"cloudflare-origin-ca", "origin ^v1.0-%H24-%H146"},
    {"github-pat", "remote ^ghp_%A30%c"},
    {"github-oauth", "remote ^gho_%A30%c"},
    {"github-app", "remote ^ghs_%A30%c"},
    {"github-refresh", "remote ^ghr_%A30%c"},
    {"github-fine-grained", "remote ^github_pat_%A22_%A59"},
    {"gitlab-pat", "curl --header PRIVATE-TOKEN: ^glpat-%U20"},
    {"gitlab-routable", "curl --header PRIVATE-TOKEN: ^glpat-%U27.01.0r%i"},
    {"gitlab-runner", "runner ^glrt-%U20"},
    {"gitlab-deploy", "deploy ^gldt-%U20"},
    {"gitlab-trigger", "trigger ^glptt-%H40"},
    {"bitbucket-app-password", "bitbucket ^ATBB%A32"},
    {"atlassian-token", "jira ^ATATT3%A186"},
    {"npm-token", "//npm.internal/:_auth ^npm_%A30%c"},
    {"pypi-token", "twine ^pypi-AgEIcHlwaS5vcmc%U130"},
    {"rubygems-key", "gem push ^rubygems_%H48"},
    {"crates-io-token", "cargo login ^cio%A32"},
    {"nuget-key", "nuget push ^oy2%L43"},
    {"jfrog-key", "artifactory ^AKCp%A69"},
    {"docker-pat", "docker login ^dckr_pat_%U27"},
    {"sonar-token", "sonar ^squ_%H40"},
    {"slack-bot", "slack ^xoxb-%d12-%d12-%A24"},
    {"slack-user", "slack ^xoxp-%d12-%d12-%d12-%H32"},
    {"slack-app", "slack ^xapp-1-A%C10-%d13-%H64"},
    {"slack-rotating", "slack ^xoxe-1-%A147"},
    {"slack-webhook", "post https://^hooks.slack.com/services/T%C9/B%C9/%A24"},
    {"teams-webhook",
     "post https://corp^.webhook.office.com/webhookb2/%H8-%H4-%H4-%H4-%H12@%H8-%H4-%H4-%H4-%H12/IncomingWebhook/%H32/%H8-%H4-%H4-%H4-%H12"},
    {"discord-bot", "^discord: M%A23.%A6.%U27"},
    {"discord-webhook", "post https://^discord.com/api/webhooks/%d18/%U68"},
    {"telegram-bot", "bot ^%d9:AA%U33"},
    {"twilio-api-key", "twilio ^SK%H32"},
    {"sendgrid-key", "mail ^SG.%U22.%U43"},
    {"mailgun-key", "mail ^key-%H32"},
    {"mailchimp-key", "mail ^%H32-us%d1"},
    {"brevo-key", "mail ^xkeysib-%H64-%A16"},
    {"stripe-key", "charge ^sk_live_%A24"},
    {"stripe-webhook", "hook ^whsec_%A32"},
    {"square-token", "pos ^sq0atp-%U22"},
    {"braintree-token", "pay ^access_token$production$%L16$%H32"},
    {"shopify-token", "shop ^shpat_%H32"},
    {"openai-key", "model ^sk-proj-%A20T3BlbkFJ%A20"},
    {"anthropic-key", "model ^sk-ant-api03-%A95"},
    {"huggingface-token", "model ^hf_%A34"},
    {"groq-key", "model ^gsk_%A52"},
    {"xai-key", "model ^xai-%A80"},
    {"perplexity-key", "model ^pplx-%A48"},
    {"openrouter-key", "model ^sk-or-v1-%H64"},
    {"replicate-token", "model ^r8_%A37"},
    {"langsmith-key", "traces ^lsv2_pt_%H32_%H10"},
    {"newrelic-key", "apm ^NRAK-%C27"},
    {"dynatrace-token", "apm ^dt0c01.%K24.%K64"},
    {"grafana-token", "dash ^glsa_%A32_%g"},
    {"grafana-cloud-token", "dash ^glc_eyJ%A120"},
    {"sentry-token", "errors ^sntrys_eyJ%A140"},
    {"sentry-user-token", "errors ^sntryu_%H64"},
    {"linear-key", "linear ^lin_api_%A40"},
    {"notion-token", "notion ^ntn_%D11%A35"},
    {"airtable-token", "table ^pat%A14.%H64"},
    {"postman-key", "postman ^PMAK-%H24-%H34"},
    {"doppler-token", "doppler ^dp.pt.%A43"},
    {"figma-token", "figma ^figd_%U40"},
    {"mapbox-secret", "map ^sk.eyJ%A70.%A22"},
    {"netlify-token", "netlify ^nfp_%A36"},
    {"supabase-token", "supabase ^sbp_%H40"},
    {"supabase-secret", "supabase ^sb_secret_%A22_%A8"},
    {"planetscale-token", "db ^pscale_tkn_%A43"},
    {"vault-token", "vault login ^hvs.%A90"},
    {"onepassword-token", "op ^ops_eyJ%A300"},
    {"terraform-token", "terraform ^%A14.atlasv1.%A67"},
    {"pulumi-token", "pulumi ^pul-%H40"},
    {"tailscale-key", "tailscale up ^tskey-auth-k%A11CNTRL-%A32"},
    {"private-key", "^-----BEGIN RSA PRIVATE KEY-----%n%p"},
    {"putty-key", "^PuTTY-User-Key-File-3: ssh-rsa%nEncryption: none"},
    {"age-key", "age ^AGE-SECRET-KEY-1%b"},
    {"jwt", "session ^%j"},
    {"database-url", "connect ^postgres://app:%P14@db.internal:5432/app"},
    {"url-password", "git clone ^https://deploy:%P16@git.internal/x.git"},
    {"quoted-assignment", "db_^password = \"%P18\""},
    {"env-assignment", "export ^SESSION_SIGNING_SECRET=%A17%d1%A18"},
};

static const char *const near_misses[] = {
    "id ^AKIAIOSFODNN7EXAMPLE",
    "remote ^ghp_%A36",
    "npm ^npm_%A36",
    "dash ^glsa_%A32_%H8",
    "age ^AGE-SECRET-KEY-1%C20",
    "maps.load('^AIza%U20')",
    "charge ^sk_test_%A24",
    "slack ^xoxb-%d4-%d4-%A10",
    "^password = \"your_password_here_123\"",
    "^api_key = \"${API_KEY_FROM_VAULT_9}\"",
    "^DATABASE_PASSWORD=xxxxxxxxxxxxxxxxxxxxxxxx",
    "connect ^postgres://user:password@localhost/test",
    "^-----BEGIN RSA PRIVATE KEY-----%nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "commit ^%H40",
    "id ^%H8-%H4-%H4-%H4-%H12",
    "jwt ^eyJhbGciOiJub25lIn0.eyJhIjoxfQ.",
};

static const char alnum[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct line {
    char *out;
    size_t len, size;
    size_t start;
};

static void put(struct line *l, char c)
{
    assert(l->len + 1 < l->size);
    l->out[l->len++] = c;
    l->out[l->len] = '\0';
}

static void put_some(struct line *l, uint64_t *seed, const char *from, unsigned from_len,
                     unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char c;
        do { /* never thrice the same: a run of zeros is a placeholder */
            c = from[below(seed, from_len)];
        } while (i >= 2 && c == l->out[l->len - 1] && c == l->out[l->len - 2]);
        put(l, c);
    }
}

static uint32_t crc32_of(const char *bytes, size_t len)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < len; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc & 1) != 0 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
        }
    }
    return ~crc;
}

static void put_crc62(struct line *l)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint32_t crc = crc32_of(l->out + l->len - 30, 30);
    char text[6];
    for (unsigned i = 6; i-- > 0; crc /= 62) {
        text[i] = digits[crc % 62];
    }
    for (unsigned i = 0; i < 6; i++) {
        put(l, text[i]);
    }
}

static void put_crc_hex(struct line *l)
{
    static const char hex[] = "0123456789abcdef";
    uint32_t crc = crc32_of(l->out + l->start, l->len - 1 - l->start);
    for (unsigned byte = 0; byte < 4; byte++, crc >>= 8) {
        put(l, hex[crc >> 4 & 15]);
        put(l, hex[crc & 15]);
    }
}

static void put_crc36(struct line *l)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    uint32_t crc = crc32_of(l->out + l->start, l->len - l->start);
    char text[7];
    for (unsigned i = 7; i-- > 0; crc /= 36) {
        text[i] = digits[crc % 36];
    }
    for (unsigned i = 0; i < 7; i++) {
        put(l, text[i]);
    }
}

static uint32_t bech32_step(uint32_t state, uint32_t value)
{
    static const uint32_t generator[5] = {0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd,
                                          0x2a1462b3};
    uint32_t top = state >> 25;
    state = ((state & 0x1ffffff) << 5) ^ value;
    for (unsigned i = 0; i < 5; i++) {
        if ((top >> i & 1) != 0) {
            state ^= generator[i];
        }
    }
    return state;
}

static void put_bech32(struct line *l, uint64_t *seed)
{
    static const char alphabet[] = "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L";
    static const char prefix[] = "age-secret-key-";
    uint32_t state = 1;
    for (const char *c = prefix; *c != '\0'; c++) {
        state = bech32_step(state, (uint32_t)*c >> 5);
    }
    state = bech32_step(state, 0);
    for (const char *c = prefix; *c != '\0'; c++) {
        state = bech32_step(state, (uint32_t)*c & 31);
    }
    for (unsigned i = 0; i < 52; i++) {
        uint32_t value = (uint32_t)below(seed, 32);
        state = bech32_step(state, value);
        put(l, alphabet[value]);
    }
    for (unsigned i = 0; i < 6; i++) {
        state = bech32_step(state, 0);
    }
    state ^= 1;
    for (unsigned i = 0; i < 6; i++) {
        put(l, alphabet[state >> (5 * (5 - i)) & 31]);
    }
}

static void put_base64(struct line *l, const uint8_t *bytes, size_t len, bool url)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    for (size_t at = 0; at < len; at += 3) {
        uint32_t bits = (uint32_t)bytes[at] << 16;
        bits |= at + 1 < len ? (uint32_t)bytes[at + 1] << 8 : 0;
        bits |= at + 2 < len ? bytes[at + 2] : 0;
        for (unsigned i = 0; i < 4; i++) {
            uint32_t v = bits >> (18 - 6 * i) & 63;
            if (at + i > len) {
                if (!url) {
                    put(l, '=');
                }
            } else {
                put(l, v < 62 ? digits[v] : v == 62 ? (url ? '-' : '+') : (url ? '_' : '/'));
            }
        }
    }
}

static void put_random_base64(struct line *l, uint64_t *seed, const char *first, size_t first_len,
                              size_t len, bool url)
{
    uint8_t bytes[128];
    assert(len <= sizeof(bytes) && first_len <= len);
    memcpy(bytes, first, first_len);
    for (size_t i = first_len; i < len; i++) {
        bytes[i] = (uint8_t)next(seed);
    }
    put_base64(l, bytes, len, url);
}

static void put_jwt(struct line *l, uint64_t *seed)
{
    char payload[64];
    static const char header[] = "{\"alg\":\"HS256\",\"typ\":\"JWT\"}";
    int len = snprintf(payload, sizeof(payload), "{\"sub\":\"%llu\",\"iat\":1516239022}",
                       (unsigned long long)next(seed));
    put_base64(l, (const uint8_t *)header, sizeof(header) - 1, true);
    put(l, '.');
    put_base64(l, (const uint8_t *)payload, (size_t)len, true);
    put(l, '.');
    put_random_base64(l, seed, "", 0, 32, true);
}

/* A password has letters and digits for sure. */
static void put_password(struct line *l, uint64_t *seed, unsigned count)
{
    static const char more[] = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ2345679";
    char text[64];
    for (unsigned i = 0; i < count; i++) { /* no character twice as long as that can be */
        do {
            text[i] = more[below(seed, sizeof(more) - 1)];
        } while (i < 40 && memchr(text, text[i], i) != NULL);
    }
    text[0] = 'k';
    text[1] = '8';
    for (unsigned i = 0; i < count; i++) {
        put(l, text[i]);
    }
}

static void expand(struct line *l, uint64_t *seed, const char *text)
{
    l->len = l->start = 0;
    for (; *text != '\0'; text++) {
        if (*text == '^') {
            l->start = l->len;
            continue;
        }
        if (*text != '%') {
            put(l, *text);
            continue;
        }
        char kind = *++text;
        unsigned count = 0;
        while (text[1] >= '0' && text[1] <= '9' && strchr("AHUBDdCKLP", kind) != NULL) {
            count = count * 10 + (unsigned)(*++text - '0');
        }
        switch (kind) {
        case 'A':
            put_some(l, seed, alnum, 62, count);
            break;
        case 'U':
            put_some(l, seed, alnum, 64, count);
            break;
        case 'H':
            put_some(l, seed, "0123456789abcdef", 16, count);
            break;
        case 'B': /* the last one a letter, whatever comes behind */
            put_some(l, seed, "+/ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                     64, count - 1);
            put_some(l, seed, alnum, 52, 1);
            break;
        case 'D':
            put_some(l, seed, "0123456789", 10, count);
            break;
        case 'd':
            put_some(l, seed, "123456789", 9, count);
            break;
        case 'C':
            put_some(l, seed, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", 36, count);
            break;
        case 'K':
            put_some(l, seed, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 32, count);
            break;
        case 'L':
            put_some(l, seed, "abcdefghijklmnopqrstuvwxyz0123456789", 36, count);
            break;
        case 'P':
            put_password(l, seed, count);
            break;
        case 'c':
            put_crc62(l);
            break;
        case 'i':
            put_crc36(l);
            break;
        case 'g':
            put_crc_hex(l);
            break;
        case 'b':
            put_bech32(l, seed);
            break;
        case 'j':
            put_jwt(l, seed);
            break;
        case 'p':
            put_random_base64(l, seed, "\x30\x82\x04\xa4\x02\x01\x00", 7, 48, false);
            break;
        case 's':
            put_random_base64(l, seed, "", 0, 64, false);
            break;
        case 'n':
            put(l, '\n');
            break;
        default:
            put(l, kind);
        }
    }
}

unsigned corpus_rules(void)
{
    return sizeof(secrets) / sizeof(secrets[0]);
}

/* Chance may write a word of which the second stage says that this is no secret. */
static bool is_unlucky(const char *text)
{
    static const char *const unlucky[] = {"dummy", "insert", "sample", "example", "redacted"};
    for (size_t i = 0; i < sizeof(unlucky) / sizeof(unlucky[0]); i++) {
        if (strcasestr(text, unlucky[i]) != NULL) {
            return true;
        }
    }
    return false;
}

size_t corpus_secret(unsigned which, uint64_t *seed, char *out, size_t out_size, size_t *start,
                     const char **rule)
{
    struct line l = {.out = out, .size = out_size};
    const struct pattern *t = &secrets[which % corpus_rules()];
    do {
        expand(&l, seed, t->text);
    } while (is_unlucky(out));
    *start = l.start;
    *rule = t->rule;
    return l.len;
}

/* --- text --- */

enum { SOURCE, CONFIG, LOG, KINDS };
#define PAGE_BYTES (1u << 20)
#define LINE_BYTES 1024u

static const char *const words[] = {
    "buffer", "cursor", "handle",  "worker",  "queue",  "lease",   "shard",  "stream", "packet",
    "socket", "parser", "encoder", "decoder", "matrix", "vector",  "filter", "search", "update",
    "remove", "insert", "commit",  "replay",  "rotate", "balance", "render", "layout", "cluster",
    "metric", "sample", "window",  "offset",  "length", "status",  "result", "option", "config",
    "driver", "kernel", "thread",  "signal",  "memory", "region",  "record", "report", "request",
};
#define WORDS (sizeof(words) / sizeof(words[0]))

static const char *word(uint64_t *seed)
{
    return words[below(seed, WORDS)];
}

static int text_line(unsigned kind, uint64_t *seed, char *out, size_t size)
{
    unsigned n = (unsigned)below(seed, 100000);
    unsigned form = (unsigned)below(seed, 6);
    /* Drawn one after the other: compilers choose for themselves in which order arguments are. */
    const char *w[4];
    for (unsigned i = 0; i < 4; i++) {
        w[i] = word(seed);
    }
    if (kind == LOG) {
        uint64_t id = next(seed);
        return snprintf(out, size,
                        "2024-%02u-%02uT%02u:%02u:%02u.%03uZ %s %s[%u]: %s %s %s=%u id=%08x%08x\n",
                        1 + n % 12, 1 + n % 28, n % 24, n % 60, n * 7 % 60, n % 1000,
                        form == 0 ? "WARN" : "INFO", w[0], n, w[1], w[2], w[3], n * 3, (unsigned)id,
                        (unsigned)(id >> 32));
    }
    if (kind == CONFIG) {
        switch (form) {
        case 0:
            return snprintf(out, size, "\n[%s.%s]\n", w[0], w[1]);
        case 1:
            return snprintf(out, size, "# the %s of the %s, see %s\n", w[0], w[1], w[2]);
        case 2:
            return snprintf(out, size, "%s_url = https://%s.internal/%s/%u\n", w[0], w[1], w[2], n);
        default:
            return snprintf(out, size, "%s_%s = %u\n", w[0], w[1], n);
        }
    }
    switch (form) {
    case 0:
        return snprintf(out, size, "/* %s the %s before the %s is gone */\n", w[0], w[1], w[2]);
    case 1:
        return snprintf(out, size, "static int %s_%s(struct %s *%s, size_t count)\n{\n", w[0], w[1],
                        w[2], w[3]);
    case 2:
        return snprintf(out, size, "    if (%s->%s >= %u) {\n        return -1;\n    }\n", w[0],
                        w[1], n);
    case 3:
        return snprintf(out, size, "    token = %s_token(%s, password, %u);\n}\n\n", w[0], w[1], n);
    case 4:
        return snprintf(out, size, "    fprintf(log, \"%s %s: %%s\\n\", %s(%u));\n", w[0], w[1],
                        w[2], n);
    default:
        return snprintf(out, size, "    %s[%u] = %s_%s(%s + %u);\n", w[0], n % 64, w[1], w[2], w[3],
                        n);
    }
}

struct page {
    char *text;
    size_t len;
};

static struct page make_page(unsigned kind, uint64_t *seed)
{
    struct page page = {.text = malloc(PAGE_BYTES + LINE_BYTES)};
    while (page.text != NULL && page.len < PAGE_BYTES) {
        page.len += (size_t)text_line(kind, seed, page.text + page.len, LINE_BYTES);
    }
    return page;
}

/* --- files --- */

struct file {
    char path[96];
    unsigned kind;
    uint64_t size;
    unsigned secrets, near;
};

struct maker {
    const struct corpus_options *options;
    struct corpus *corpus;
    uint64_t seed;
    struct page pages[KINDS];
    int dir;
    struct file *files;
    size_t count;
    unsigned planted; /* so far */
};

static bool plan_files(struct maker *m)
{
    static const char *const endings[KINDS][3] = {
        {"c", "py", "js"}, {"conf", "yaml", "env"}, {"log", "log", "jsonl"}};
    const struct corpus_options *o = m->options;
    uint64_t largest = o->largest != 0 ? o->largest : o->bytes / 64;
    largest = largest < 65536 ? 65536 : largest;
    for (uint64_t sum = 0; sum < o->bytes;) {
        struct file *files = realloc(m->files, (m->count + 1) * sizeof(*files));
        if (files == NULL) {
            return false;
        }
        m->files = files;
        struct file *f = &files[m->count];
        uint64_t dice = below(&m->seed, 100);
        *f = (struct file){.kind = dice < 70 ? SOURCE : dice < 96 ? CONFIG : LOG};
        f->size = f->kind == SOURCE   ? 1000 + below(&m->seed, 60000)
                  : f->kind == CONFIG ? 200 + below(&m->seed, 8000)
                                      : 20000 + below(&m->seed, largest - 20000);
        const char *top = word(&m->seed), *folder = word(&m->seed), *name = word(&m->seed);
        unsigned part = (unsigned)below(&m->seed, 12), ending = (unsigned)below(&m->seed, 3);
        snprintf(f->path, sizeof(f->path), "%s-%02u/%s/%s_%zu.%s", top, part, folder, name,
                 m->count, endings[f->kind][ending]);
        sum += f->size;
        m->count++;
    }
    for (unsigned i = 0; i < o->secrets; i++) {
        m->files[below(&m->seed, m->count)].secrets++;
    }
    for (unsigned i = 0; i < o->near_misses; i++) {
        m->files[below(&m->seed, m->count)].near++;
    }
    return true;
}

static void make_parents(int dir, const char *path)
{
    char copy[96];
    snprintf(copy, sizeof(copy), "%s", path);
    for (char *slash = strchr(copy, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdirat(dir, copy, 0755);
        *slash = '/';
    }
}

static bool note(struct maker *m, const struct file *f, const char *rule, uint64_t start)
{
    struct corpus *c = m->corpus;
    struct planted *list = realloc(c->planted, (c->count + 1) * sizeof(*list));
    if (list == NULL) {
        return false;
    }
    c->planted = list;
    list[c->count] = (struct planted){.path = strdup(f->path), .rule = rule, .start = start};
    return list[c->count++].path != NULL;
}

/* Whole lines of the page, about so many bytes, from anywhere in it. */
static uint64_t put_text(struct maker *m, const struct page *page, FILE *out, uint64_t want)
{
    uint64_t done = 0;
    while (done < want) {
        size_t from = (size_t)below(&m->seed, page->len / 2);
        const char *line = memchr(page->text + from, '\n', page->len - from);
        from = (size_t)(line - page->text) + 1;
        size_t len = want - done < page->len - from ? (size_t)(want - done) : page->len - from;
        const char *last = memchr(page->text + from + len - 1, '\n', page->len - from - len + 1);
        len = (size_t)(last - page->text) + 1 - from;
        fwrite(page->text + from, 1, len, out);
        done += len;
    }
    return done;
}

static bool make_file(struct maker *m, const struct file *f)
{
    char text[2048];
    make_parents(m->dir, f->path);
    int fd = openat(m->dir, f->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (out == NULL) {
        return false;
    }
    uint64_t at = 0;
    unsigned parts = f->secrets + f->near, secrets_left = f->secrets, near_left = f->near;
    for (unsigned i = 0; i <= parts; i++) {
        at += put_text(m, &m->pages[f->kind], out, f->size / (parts + 1) + 1);
        if (i == parts) {
            break;
        }
        struct line l = {.out = text, .size = sizeof(text)};
        if (secrets_left > 0 && (near_left == 0 || i % 2 == 0)) {
            const char *rule;
            secrets_left--;
            l.len = corpus_secret(m->planted++, &m->seed, text, sizeof(text), &l.start, &rule);
            if (!note(m, f, rule, at + l.start)) {
                return false;
            }
        } else {
            near_left--;
            expand(&l, &m->seed,
                   near_misses[below(&m->seed, sizeof(near_misses) / sizeof(near_misses[0]))]);
            m->corpus->near_misses++;
        }
        fprintf(out, "%s\n", text);
        at += l.len + 1;
    }
    m->corpus->files++;
    m->corpus->bytes += at;
    return fclose(out) == 0;
}

int corpus_order(const void *a, const void *b)
{
    const struct planted *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    if (order != 0) {
        return order;
    }
    return x->start != y->start ? (x->start < y->start ? -1 : 1) : strcmp(x->rule, y->rule);
}

bool corpus_make(const char *dir, const struct corpus_options *options, struct corpus *corpus)
{
    struct maker m = {.options = options, .corpus = corpus, .seed = options->seed};
    *corpus = (struct corpus){0};
    mkdir(dir, 0755);
    m.dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = m.dir >= 0;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        m.pages[kind] = make_page(kind, &m.seed);
        good = good && m.pages[kind].text != NULL;
    }
    good = good && plan_files(&m);
    for (size_t i = 0; good && i < m.count; i++) {
        good = make_file(&m, &m.files[i]);
    }
    if (good && corpus->count > 1) {
        qsort(corpus->planted, corpus->count, sizeof(*corpus->planted), corpus_order);
    }
    int error = errno;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        free(m.pages[kind].text);
    }
    free(m.files);
    if (m.dir >= 0) {
        close(m.dir);
    }
    errno = error;
    return good;
}

void corpus_free(struct corpus *corpus)
{
    for (size_t i = 0; i < corpus->count; i++) {
        free(corpus->planted[i].path);
    }
    free(corpus->planted);
    *corpus = (struct corpus){0};
}
