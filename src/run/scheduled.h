/* scheduled.h -- what the engine asks of scheduled.c. */
#ifndef HKT_SCHEDULED_H
#define HKT_SCHEDULED_H

#include "run/operation.h"
#include "run/plan.h"

enum { HKT_STAGE_LEAST = 16384 }; /* bytes a staging slot has at the least */

/* Bytes that values are cut to between hosts, where all cut alike whatever their buffers need: messages of a size that keeps two under way, less
 * where many ranks send. */
size_t hkt_scheduled_slice(int size);

/* all_to_all_v: the row of blocks of `rank`, one per other rank. */
const struct hkt_table_row *hkt_scheduled_table(const struct hkt_operation *op, int rank);

#endif
