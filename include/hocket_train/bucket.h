/* bucket.h -- gradients reduced beside the backward pass. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_BUCKET_H
#define HOCKET_TRAIN_BUCKET_H

#include <hocket.h>
#include <hocket_train/ledger.h>
#include <hocket_train/parameter.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Gradients as a few runs of memory, each reduced over the ranks of a communicator as soon as the backward pass has finished
 * it, beside the pass, on a stream of its own. Buckets are filled in one order (from the last parameter to the first, or the
 * order given) and launched in that order on every rank, however the ranks' gradients arrive. The bits of the result depend on
 * neither the sizes of the buckets nor the overlap. */
typedef struct hkt_buckets hkt_buckets_t;

typedef struct {
    size_t      size;        /* sizeof(hkt_buckets_config_t), set by HKT_BUCKETS_CONFIG_INIT */
    size_t      bytes;       /* a bucket is closed when it has so many; 0: 25 MiB */
    size_t      first_bytes; /* the same for the first one, so that communication begins early; 0: 1 MiB */
    size_t      alignment;   /* elements: parameters start at multiples of it, and buckets are padded to a multiple of
                              * lcm(ranks, alignment); 0: 32 */
    hkt_type_t  type;        /* of the gradients: HKT_FLOAT32, or, with the rounding of every sum, HKT_BFLOAT16 or HKT_FLOAT16 */
    hkt_op_t    op;          /* HKT_AVG or HKT_SUM over the ranks */
    bool        sharded;     /* reduce-scatter: rank r gets the r-th of n equal pieces of every bucket, else all-reduce */
    bool        each;        /* communicate each micro-batch and add up what comes out: gradients take little memory with
                              * `sharded`. Else once, after the last micro-batch. The two sum in different orders */
    bool        overlap;     /* launch when ready; else all in hkt_buckets_finish() */
    bool        rebuild;     /* after the first step fill the buckets anew in the order in which rank 0's gradients arrived;
                              * not with `sharded`: it would change which elements a rank owns (use `order`) */
    const int  *order;       /* all indices of parameters, in the order in which they are expected; NULL: last to first */
    const int  *groups;      /* per parameter, or NULL: buckets hold parameters of one group (a layer) only */
    const char *codec;       /* reduce through a codec, see hkt_codec_parse(); fp32 gradients; NULL: as they are. With a codec
                              * the bits do depend on the buckets, and a NaN makes a whole bucket NaN */
    uint64_t    seed;        /* of the codec */
} hkt_buckets_config_t;
#define HKT_BUCKETS_CONFIG_INIT                                                                                         \
    { sizeof(hkt_buckets_config_t), 0, 0, 0, HKT_FLOAT32, HKT_AVG, false, false, true, false, NULL, NULL, NULL, 0 }

/* Collective over `comm`, which is the handle's alone between begin and finish; NULL: one rank. The names of the parameters must
 * outlive the handle, nothing else need. Parameters flagged HKT_PARAMETER_SHARED get a bucket each. The ranks compare their
 * lists: HKT_ERR_MISMATCH. Gradient memory is taken from the ledger (may be NULL). `config` NULL: all defaults. */
HKT_API int hkt_buckets_create(hkt_buckets_t **buckets, const hkt_parameter_t *parameters, int count, hkt_comm_t *comm,
                               const hkt_buckets_config_t *config, hkt_ledger_t *ledger);
HKT_API int hkt_buckets_destroy(hkt_buckets_t *buckets); /* waits for what is in flight; NULL is allowed */

/* A step: begin, then for each micro-batch the backward pass (gradient, ready) and next, then finish. All ranks do the same
 * number of micro-batches. begin clears all gradients. After begin of the second step, with `rebuild`, pointers are new. */
HKT_API int hkt_buckets_begin(hkt_buckets_t *buckets, int micro_batches);

/* Where the backward pass adds the gradient of a parameter (of config.type). Any thread. Valid until ready() for this
 * micro-batch with `each` (zero at first), else until the second begin. With `each` it may wait for a bucket in flight. */
HKT_API int hkt_buckets_gradient(void **gradient, int parameter, hkt_buckets_t *buckets);

/* Adds `values` (HKT_FLOAT32, HKT_BFLOAT16 or HKT_FLOAT16) to elements first .. first + count of the gradient, rounding the sum
 * to its type. Any thread, different parameters at the same time. */
HKT_API int hkt_buckets_add(hkt_buckets_t *buckets, int parameter, size_t first, const void *values, size_t count,
                            hkt_type_t type);

/* The gradient of the parameter is complete for one micro-batch. Any thread, several at once; takes no lock. */
HKT_API int hkt_buckets_ready(hkt_buckets_t *buckets, int parameter);

/* The backward pass of a micro-batch is over (no thread is in another call): what was not announced counts as unused, zeros. */
HKT_API int hkt_buckets_next(hkt_buckets_t *buckets);

/* The last micro-batch is over: launches what is left and waits. Collective. Then reduced() gives results until the next begin. */
HKT_API int hkt_buckets_finish(hkt_buckets_t *buckets);

/* Makes the mean over tokens out of sums (op HKT_SUM): divides the results by the sum of `tokens` over the ranks, which it
 * returns in `total` (may be NULL); none at all leaves them. After finish. Collective. */
HKT_API int hkt_buckets_by_tokens(uint64_t *total, hkt_buckets_t *buckets, uint64_t tokens);

/* This rank's part of the reduced gradient of a parameter: elements first .. first + count, at `values`. The whole of it, or
 * with `sharded` what falls into the rank's piece of the bucket, which may be nothing. */
typedef struct { void *values; size_t first, count; } hkt_reduced_t;
HKT_API int hkt_buckets_reduced(hkt_reduced_t *reduced, int parameter, hkt_buckets_t *buckets);

/* One bucket, and when it was last on its way (seconds of one clock; 0: never). Index 0 is launched first. */
typedef struct {
    size_t first, count; /* elements in the space of all buckets, padding included */
    int    parameters;
    double launched, started, finished;
} hkt_bucket_info_t;
HKT_API int hkt_buckets_count(const hkt_buckets_t *buckets);
HKT_API int hkt_buckets_info(hkt_bucket_info_t *info, int bucket, hkt_buckets_t *buckets);
HKT_API int hkt_buckets_parameter(int *parameter, int position, hkt_buckets_t *buckets); /* the order in use, 0 comes first */

/* Of the last step, seconds: some bucket was in work; finish() had nothing to do but wait for it. What overlap has hidden is
 * in_flight - waited. */
typedef struct { double in_flight, waited; } hkt_overlap_t;
HKT_API int hkt_buckets_overlap(hkt_overlap_t *overlap, const hkt_buckets_t *buckets);

/* What codecs keep of this rank's gradients for the next step (hkt_compressor_save() of every bucket), for a checkpoint: so a run
 * goes on with the same bits. `state` has state_size bytes, 0 without a codec and with one rank. It belongs to a rank of a layout:
 * load refuses (HKT_ERR_ARGUMENT) that of other parameters, buckets, ranks or another codec, and changes nothing then; with another
 * layout begin without errors, as after reset, and on all ranks, if one has to. Not between begin and finish. */
HKT_API int hkt_buckets_state_size(size_t *bytes, hkt_buckets_t *buckets);
HKT_API int hkt_buckets_save(void *state, hkt_buckets_t *buckets);
HKT_API int hkt_buckets_load(hkt_buckets_t *buckets, const void *state, size_t bytes);
HKT_API int hkt_buckets_reset(hkt_buckets_t *buckets);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_BUCKET_H */
