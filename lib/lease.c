/* Leases as text: "rf1-", the tenant and the lease in hexadecimal, and a check. */
#include "bytes.h"
#include "hash.h"

#define PREFIX       "rf1-"
#define PREFIX_LEN   (sizeof(PREFIX) - 1)
#define FIELDS       6u
#define BODY         (sizeof(rf_tenant) + 8 * FIELDS)
#define CHECK        8u
#define DOMAIN_LEASE "ringfence/lease/v1"

_Static_assert(PREFIX_LEN + 2 * (BODY + CHECK) + 1 <= RF_LEASE_TEXT, "fits");

static void encode(const rf_tenant *tenant, const rf_lease *lease, uint8_t out[BODY + CHECK])
{
    const uint64_t fields[FIELDS] = {lease->run,   lease->shard,    lease->worker,
                                     lease->fence, lease->deadline, lease->slot_hint};
    memcpy(out, tenant->bytes, sizeof(tenant->bytes));
    for (unsigned i = 0; i < FIELDS; i++) {
        rf_store_le64(out + sizeof(rf_tenant) + 8 * i, fields[i]);
    }
    rf_store_le64(out + BODY, rf_hash64(DOMAIN_LEASE, rf_bytes_of(out, BODY)));
}

rf_status rf_lease_format(const rf_tenant *tenant, const rf_lease *lease, char *out,
                          size_t out_size)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[BODY + CHECK];
    if (tenant == NULL || lease == NULL || out == NULL) {
        return RF_INVALID_ARGUMENT;
    }
    if (out_size < PREFIX_LEN + 2 * sizeof(bytes) + 1) {
        return RF_BUFFER_TOO_SMALL;
    }
    encode(tenant, lease, bytes);
    memcpy(out, PREFIX, PREFIX_LEN);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        out[PREFIX_LEN + 2 * i] = digits[bytes[i] >> 4];
        out[PREFIX_LEN + 2 * i + 1] = digits[bytes[i] & 15];
    }
    out[PREFIX_LEN + 2 * sizeof(bytes)] = 0;
    return RF_OK;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

rf_status rf_lease_parse(const char *text, rf_tenant *tenant, rf_lease *lease)
{
    uint8_t bytes[BODY + CHECK];
    if (text == NULL || tenant == NULL || lease == NULL ||
        strnlen(text, RF_LEASE_TEXT) != PREFIX_LEN + 2 * sizeof(bytes) ||
        memcmp(text, PREFIX, PREFIX_LEN) != 0) {
        return RF_INVALID_ARGUMENT;
    }
    for (size_t i = 0; i < sizeof(bytes); i++) {
        int high = digit(text[PREFIX_LEN + 2 * i]), low = digit(text[PREFIX_LEN + 2 * i + 1]);
        if (high < 0 || low < 0) {
            return RF_INVALID_ARGUMENT;
        }
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    if (rf_load_le64(bytes + BODY) != rf_hash64(DOMAIN_LEASE, rf_bytes_of(bytes, BODY))) {
        return RF_INVALID_ARGUMENT;
    }
    uint64_t fields[FIELDS];
    for (unsigned i = 0; i < FIELDS; i++) {
        fields[i] = rf_load_le64(bytes + sizeof(rf_tenant) + 8 * i);
    }
    memcpy(tenant->bytes, bytes, sizeof(tenant->bytes));
    *lease = (rf_lease){.run = fields[0],
                        .shard = fields[1],
                        .worker = fields[2],
                        .fence = fields[3],
                        .deadline = fields[4],
                        .slot_hint = fields[5]};
    return RF_OK;
}
