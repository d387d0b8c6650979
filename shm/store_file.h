/*
 * The file `store` of a store's directory: which region is current, how many there were
 * (incarnation), and how the store was made. Small, replaced as a whole, vouched for by a hash, and kept
 * twice (`store`, `store.2`), so that damage to one of them costs nothing.
 *
 * A region is published only after both copies name it. So a copy that is one incarnation behind
 * was left by a builder that died before anybody could be granted anything.
 *
 *   store     store.2    ->
 *   good      good       the one with the higher incarnation
 *   good      damaged or missing, or the other way round: the good one
 *   damaged   not good   damaged: refused, the incarnation is not known
 *   missing   missing    there is no store
 *   another format in either of them, its hash right: refused (formats.h). Nothing else is done to it: a
 *     newer library may have been at it
 *
 * Whatever the format, a file begins with magic and format and ends with the hash of all before it. So damage is
 * told apart from a format that is not known.
 */
#ifndef RF_STORE_FILE_H
#define RF_STORE_FILE_H

#include "disk.h"

#define RF_STORE_MAGIC  0x3165726f74736672ull /* "rfstore1" */
#define RF_STORE_FORMAT 1u

struct rf_store_file {
    uint64_t magic;
    uint32_t format;
    uint32_t durability; /* enum rf_durability; RF_VOLATILE: there is no log */
    uint8_t uuid[16];    /* of the region */
    uint8_t boot_id[16];
    uint64_t incarnation;
    /* How it was made; a durable store is the same after every cold open. */
    uint8_t store_id[16];
    uint64_t max_shards;
    uint64_t max_tenant_shards;
    uint64_t max_bytes;
    uint64_t claim_cooldown;
    uint64_t segment_bytes;
    uint64_t snapshot_bytes;
    uint64_t flush_ns;
    uint32_t max_runs;
    uint32_t max_members;
    uint32_t lane_bytes;
    uint32_t mode;    /* of its files */
    uint32_t gid;     /* UINT32_MAX: the maker's */
    uint32_t has_log; /* its first segment was made: if there is none, it was lost */
    uint8_t hash[32];
};

enum rf_store_found { RF_STORE_NONE, RF_STORE_DAMAGED, RF_STORE_OTHER, RF_STORE_GOOD };

/* RF_VERSION_MISMATCH (RF_STORE_OTHER), RF_PERMISSION_DENIED or RF_IO_ERROR; everything else is told by *found. */
rf_status rf_store_file_read(int dir_fd, const char *directory, struct rf_store_file *out,
                             enum rf_store_found *found, rf_detail *detail);
/* Replaces both copies durably. */
rf_status rf_store_file_write(struct rf_disk *disk, struct rf_store_file *file, rf_detail *detail);
/* Their names; NULL ends the list. */
extern const char *const rf_store_file_names[];

#endif
