/*
 * What a client of etcd needs of gRPC and of protocol buffers, and no more: one call at a time over one
 * connection (HTTP/2 on loopback, by nghttp2), and messages put together and taken apart by hand.
 */
#ifndef RF_BENCH_ETCD_GRPC_H
#define RF_BENCH_ETCD_GRPC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- messages --- */

struct message {
    uint8_t *bytes;
    size_t len;
    size_t room;
};
void message_clear(struct message *m);
void message_free(struct message *m);
void message_number(struct message *m, uint32_t field, uint64_t value);
void message_bytes(struct message *m, uint32_t field, const void *bytes, size_t len);
void message_inner(struct message *m, uint32_t field, const struct message *inner);

/* One field of a message: bytes for those that have a length, else a number. */
struct field {
    uint32_t number;
    uint64_t value;
    const uint8_t *bytes;
    size_t len;
};
/* Takes the next field off the front; false at the end. */
bool field_next(const uint8_t **at, const uint8_t *end, struct field *field);

/* --- calls --- */

struct grpc;
/* NULL if nobody listens at this port of loopback. */
struct grpc *grpc_open(uint16_t port);
void grpc_close(struct grpc *g);
/* The answer is valid until the next call. Ends the program if the call is not answered; the status is gRPC's
 * own, 0 for success. */
int grpc_call(struct grpc *g, const char *path, const struct message *request,
              const uint8_t **answer, size_t *len);

#endif
