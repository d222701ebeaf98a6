/* hocket_train.h -- the training layer: what parallel training needs above collectives. Link with -lhocket-train.
 *
 * A device mesh with named communicators, gradient buckets, codecs, a sharded optimizer, pipeline schedules, tensor-parallel
 * regions, loss scaling, ledgers, checkpoints and a planner. Every part stands alone and takes plain communicators and plain
 * memory, so a program may use one and leave the others; each is a header of its own below hocket_train/.
 *
 * The conventions are those of hocket.h: functions return HKT_OK or a negative HKT_ERR_* and leave a sentence in
 * hkt_last_error(); outputs come first and are written only on success; counts are elements, sizes are bytes. A handle is
 * used by one thread at a time unless its functions say otherwise. What is collective says so: all ranks of the communicator
 * call it in the same order.
 */
#ifndef HOCKET_TRAIN_H
#define HOCKET_TRAIN_H

#include <hocket_train/bucket.h>
#include <hocket_train/checkpoint.h>
#include <hocket_train/codec.h>
#include <hocket_train/context.h>
#include <hocket_train/ledger.h>
#include <hocket_train/mesh.h>
#include <hocket_train/parameter.h>
#include <hocket_train/pipeline.h>
#include <hocket_train/planner.h>
#include <hocket_train/random.h>
#include <hocket_train/scaler.h>
#include <hocket_train/tensor.h>
#include <hocket_train/zero.h>

#endif /* HOCKET_TRAIN_H */
