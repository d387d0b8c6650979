/* A grant, shared by acquire and claim. */
#ifndef RF_SHARD_OPS_H
#define RF_SHARD_OPS_H

#include "operation.h"

/* Grants the shard that the operation has open. Locks the run if that has not been done. */
rf_status rf_op_grant(struct rf_op *op, const struct rf_call *call, uint64_t worker, uint32_t flags,
                      rf_grant *grant, rf_result *result);

#endif
