/*
 * Blocks for bytes that do not fit a record: 256 B to 32 KiB, powers of two, in pages of 64 KiB that
 * are each cut for one size.
 *
 * A block's tag word is its allocation state: 0 free, else the unique tag of the operation that took
 * it. The taker first writes the block and the tag where survivors will look for them (a reference
 * in its descriptor, or in a record that is not visible yet), and swaps the tag in after. Giving
 * back is a compare-and-swap of the expected tag, so giving back twice, or giving back what was
 * named and never taken, does nothing. No locks.
 *
 * A page keeps its size for good.
 */
#ifndef RF_SLAB_H
#define RF_SLAB_H

#include "actor.h"

#define RF_SLAB_BLOCK_MAX (RF_SLAB_BLOCK_MIN << (RF_SLAB_CLASSES - 1))

/* Takes a block of at least `bytes` for the operation `tag`, naming it in *ref first. */
rf_status rf_slab_take(struct rf_actor *actor, uint64_t tag, size_t bytes, struct rf_block_ref *ref,
                       rf_detail *detail);
void rf_slab_give(struct rf_map *map, const struct rf_block_ref *ref);

/* The bytes of a block, or NULL if the reference can't be right. */
uint8_t *rf_slab_bytes(const struct rf_map *map, const struct rf_block_ref *ref);
/* How many bytes the block has; 0 if the reference can't be right. */
size_t rf_slab_capacity(const struct rf_map *map, const struct rf_block_ref *ref);

/* Blocks in use; walks all pages. */
uint64_t rf_slab_used(const struct rf_map *map);

#endif
