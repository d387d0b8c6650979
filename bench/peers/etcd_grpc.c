#include "etcd_grpc.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "peers.h"

#define PREFIX 5u /* of a message on the wire: not compressed, length */

/* --- messages --- */

static uint8_t *message_extend(struct message *m, size_t len)
{
    if (m->len + len > m->room) {
        m->room = 2 * (m->len + len);
        m->bytes = realloc(m->bytes, m->room);
        if (m->bytes == NULL) {
            fail("no memory");
        }
    }
    m->len += len;
    return m->bytes + m->len - len;
}

void message_clear(struct message *m)
{
    m->len = 0;
}

void message_free(struct message *m)
{
    free(m->bytes);
    *m = (struct message){0};
}

static void put_varint(struct message *m, uint64_t value)
{
    while (value >= 0x80) {
        *message_extend(m, 1) = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    *message_extend(m, 1) = (uint8_t)value;
}

void message_number(struct message *m, uint32_t field, uint64_t value)
{
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, value);
}

void message_bytes(struct message *m, uint32_t field, const void *bytes, size_t len)
{
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, len);
    if (len != 0) {
        memcpy(message_extend(m, len), bytes, len);
    }
}

void message_inner(struct message *m, uint32_t field, const struct message *inner)
{
    message_bytes(m, field, inner->bytes, inner->len);
}

static uint64_t take_varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
        uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
    fail("etcd: a damaged message");
}

bool field_next(const uint8_t **at, const uint8_t *end, struct field *field)
{
    if (*at >= end) {
        return false;
    }
    uint64_t key = take_varint(at, end);
    *field = (struct field){.number = (uint32_t)(key >> 3)};
    if ((key & 7) == 0) {
        field->value = take_varint(at, end);
    } else if ((key & 7) == 2) {
        field->len = take_varint(at, end);
        field->bytes = *at;
        if (field->len > (size_t)(end - *at)) {
            fail("etcd: a damaged message");
        }
        *at += field->len;
    } else {
        fail("etcd: a field of another kind");
    }
    return true;
}

/* --- calls --- */

struct grpc {
    int fd;
    nghttp2_session *session;
    struct message out; /* on the wire: prefix and request */
    size_t sent;
    struct message in;
    struct message frames; /* what is to be sent at once */
    int status;
    bool over;
    char authority[32];
};

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *context)
{
    struct grpc *g = context;
    (void)session;
    (void)frame;
    (void)flags;
    (void)value_len;
    if (name_len == 11 && memcmp(name, "grpc-status", 11) == 0) {
        g->status = atoi((const char *)value); /* nghttp2 ends it with a zero */
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
                   size_t len, void *context)
{
    struct grpc *g = context;
    (void)session;
    (void)flags;
    (void)stream;
    memcpy(message_extend(&g->in, len), data, len);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *context)
{
    struct grpc *g = context;
    (void)session;
    (void)stream;
    if (error != 0) {
        fail("etcd: a call was broken off: %s", nghttp2_http2_strerror(error));
    }
    g->over = true;
    return 0;
}

static ssize_t give_data(nghttp2_session *session, int32_t stream, uint8_t *to, size_t room,
                         uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct grpc *g = context;
    size_t n = g->out.len - g->sent < room ? g->out.len - g->sent : room;
    (void)session;
    (void)stream;
    (void)source;
    memcpy(to, g->out.bytes + g->sent, n);
    g->sent += n;
    if (g->sent == g->out.len) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    }
    return (ssize_t)n;
}

/* Everything that is to be sent, in one go. */
static void send_all(struct grpc *g)
{
    const uint8_t *data;
    ssize_t n;
    message_clear(&g->frames);
    while ((n = nghttp2_session_mem_send(g->session, &data)) > 0) {
        memcpy(message_extend(&g->frames, (size_t)n), data, (size_t)n);
    }
    for (size_t at = 0; at < g->frames.len;) {
        ssize_t sent = send(g->fd, g->frames.bytes + at, g->frames.len - at, MSG_NOSIGNAL);
        if (sent <= 0) {
            fail("etcd: it does not listen");
        }
        at += (size_t)sent;
    }
}

struct grpc *grpc_open(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return NULL;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    struct grpc *g = calloc(1, sizeof(*g));
    nghttp2_session_callbacks *callbacks = NULL;
    if (g == NULL || nghttp2_session_callbacks_new(&callbacks) != 0) {
        fail("no memory");
    }
    g->fd = fd;
    snprintf(g->authority, sizeof(g->authority), "127.0.0.1:%u", port);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_session_client_new(&g->session, callbacks, g);
    nghttp2_session_callbacks_del(callbacks);
    /* Windows so wide that no answer waits for us to open one. */
    const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 24}};
    nghttp2_submit_settings(g->session, NGHTTP2_FLAG_NONE, settings, 1);
    nghttp2_session_set_local_window_size(g->session, NGHTTP2_FLAG_NONE, 0, 1 << 30);
    return g;
}

void grpc_close(struct grpc *g)
{
    nghttp2_session_del(g->session);
    close(g->fd);
    message_free(&g->in);
    message_free(&g->out);
    message_free(&g->frames);
    free(g);
}

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value),
                        .flags = NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE};
}

static void frame_request(struct grpc *g, const struct message *request)
{
    const uint8_t prefix[PREFIX] = {0, (uint8_t)(request->len >> 24), (uint8_t)(request->len >> 16),
                                    (uint8_t)(request->len >> 8), (uint8_t)request->len};
    message_clear(&g->out);
    memcpy(message_extend(&g->out, PREFIX), prefix, PREFIX);
    if (request->len != 0) {
        memcpy(message_extend(&g->out, request->len), request->bytes, request->len);
    }
    g->sent = 0;
}

int grpc_call(struct grpc *g, const char *path, const struct message *request,
              const uint8_t **answer, size_t *len)
{
    uint8_t buffer[16384];
    const nghttp2_nv headers[] = {header(":method", "POST"),
                                  header(":scheme", "http"),
                                  header(":path", path),
                                  header(":authority", g->authority),
                                  header("content-type", "application/grpc"),
                                  header("te", "trailers")};
    const nghttp2_data_provider provider = {.read_callback = give_data};
    frame_request(g, request);
    message_clear(&g->in);
    g->over = false;
    g->status = -1;
    if (nghttp2_submit_request(g->session, NULL, headers, COUNT(headers), &provider, NULL) < 0) {
        fail("etcd: no more calls on this connection");
    }
    send_all(g);
    while (!g->over) {
        ssize_t n = recv(g->fd, buffer, sizeof(buffer), 0);
        if (n <= 0 || nghttp2_session_mem_recv(g->session, buffer, (size_t)n) != n) {
            fail("etcd: %s", n <= 0 ? "it has hung up" : "not HTTP/2");
        }
        send_all(g); /* acknowledgements */
    }
    *answer = g->in.bytes + PREFIX;
    *len = g->in.len > PREFIX ? g->in.len - PREFIX : 0;
    return g->status;
}
