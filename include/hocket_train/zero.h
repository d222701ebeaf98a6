/* zero.h -- AdamW, whole or sharded over ranks (ZeRO 0 to 3). A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_ZERO_H
#define HOCKET_TRAIN_ZERO_H

#include <hocket.h>
#include <hocket_train/bucket.h>
#include <hocket_train/ledger.h>
#include <hocket_train/parameter.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* AdamW on plain arrays (Loshchilov and Hutter 2019). The bits do not depend on the processor, nor on how a tensor is cut. */
typedef struct {
    size_t size; /* sizeof(hkt_adamw_t), set by HKT_ADAMW_INIT */
    double rate, beta1, beta2, epsilon;
    double decay; /* decoupled; not for parameters flagged HKT_PARAMETER_NO_DECAY */
    double clip;  /* largest global norm, 0: no limit; used by hkt_zero_step() only */
    double scale; /* the gradients are multiplied by it first: 1 / loss scale, 1 / tokens; used by hkt_zero_step() only */
} hkt_adamw_t;
#define HKT_ADAMW_INIT { sizeof(hkt_adamw_t), 1e-3, 0.9, 0.999, 1e-8, 0.01, 1.0, 1.0 }

typedef struct { float *weight, *moment1, *moment2; const float *gradient; } hkt_adamw_state_t;

/* Step number `step` (from 1) on `count` elements; the gradient is multiplied by `scale`. Any thread. */
HKT_API int hkt_adamw(const hkt_adamw_t *options, uint64_t step, double scale, const hkt_adamw_state_t *state, size_t count);

/* The model of one data-parallel group: weights, gradients and AdamW, sharded as much as `stage` says over the n ranks of `comm`
 * (Rajbhandari et al. 2020). Bytes per element of gradient type g and weight type w (fp32 weights are their own master: their 4
 * bytes are counted once, as weights; P = hkt_zero_info().padded):
 *   stage   weights     gradients   moments and master      payload of a step of m micro-batches, elements
 *   0       w P         g P         8 P (+ 4 P)             all_reduce P
 *   1       w P         g P         8 P / n (+ 4 P / n)     reduce_scatter P, all_gather P
 *   2       w P         g P / n     likewise                reduce_scatter m P, all_gather P
 *   3       w P / n     g P / n     likewise                reduce_scatter m P, all_gather 2 m P, or less where a group was still there
 * plus, in 2 and 3, a few buckets for gradients, and in 3 a few groups for weights. Shards ignore the borders of parameters.
 *
 * The result is the same, bit for bit, in all stages, with any bucket sizes, offload, and prefetch, as long as `reduce` is the
 * same: a sum over micro-batches first is rounded differently from a sum over ranks first. */
typedef struct hkt_zero hkt_zero_t;

typedef enum {
    HKT_REDUCE_DEFAULT = 0, /* once in stages 0 and 1, each in 2 and 3 */
    HKT_REDUCE_ONCE,        /* after the last micro-batch; 2 and 3 then keep all gradients until there (pipelines) */
    HKT_REDUCE_EACH         /* every micro-batch; 0 and 1 then have the bits of 2 and 3, and move m times as much */
} hkt_reduce_when_t;

typedef enum {
    HKT_TIER_DEVICE = 0, /* optimizer state lies with the rest, in `ledger` */
    HKT_TIER_HOST,       /* in memory counted in another ledger, which may have a cap */
    HKT_TIER_FILE        /* in a file of two copies, of which one is always whole, also when the process is killed */
} hkt_tier_t;

typedef struct {
    size_t               size;    /* sizeof(hkt_zero_config_t), set by HKT_ZERO_CONFIG_INIT */
    int                  stage;   /* 0 to 3 */
    hkt_type_t           weight;  /* HKT_FLOAT32; HKT_BFLOAT16 and HKT_FLOAT16 have an fp32 master */
    hkt_reduce_when_t    reduce;
    hkt_buckets_config_t buckets; /* type, op, bytes, first_bytes, alignment, overlap, order, codec; the rest is set from here */
    const int           *groups;  /* stage 3: per parameter, from 0: what is fetched together, a layer; NULL elsewhere: one group */
    int                  live;    /* stage 3: groups whose weights are held at a time, at least 2; 0: 3 (one ahead) */
    bool                 late;    /* stages 1 and 2: step() returns before the weights are gathered; fetch() waits for a group */
    hkt_comm_t          *model;     /* ranks with the other parts of the model (tensor and pipeline parallel), for the norm */
    hkt_comm_t          *embedding; /* first and last stage: gradients flagged HKT_PARAMETER_SHARED are summed over it */
    hkt_comm_t          *tensor;    /* gradients flagged HKT_PARAMETER_REPLICATED are summed over it: with sequence parallel;
                                     * NULL where they are complete */
    bool                 first_tensor; /* this rank counts what is flagged HKT_PARAMETER_REPLICATED in the norm */
    hkt_tier_t           tier;    /* HKT_TIER_FILE: from stage 1 on, or one rank */
    const char          *path;    /* HKT_TIER_FILE: of this rank's file */
    bool                 resume;  /* HKT_TIER_FILE: continue with the state that the file has; refused where the machine was
                                   * started anew since and the state was not persisted */
    size_t               tile;    /* elements that are moved and updated at a time; 0: 1 Mi */
    int                  threads; /* that measure and update, the caller included; 0: 1, at most 64 */
    hkt_ledger_t        *host;    /* HKT_TIER_HOST */
    size_t               host_cap; /* HKT_TIER_HOST: bytes; 0: no limit */
    uint64_t             freeze;  /* 1-bit Adam: after so many steps the second moment stays, and only from there on buckets.codec is
                                   * used, which then rounds in units of its root; 0: AdamW. Stage 0 with fp32 state in memory */
} hkt_zero_config_t;
#define HKT_ZERO_CONFIG_INIT                                                                                            \
    { sizeof(hkt_zero_config_t), 0, HKT_FLOAT32, HKT_REDUCE_DEFAULT, HKT_BUCKETS_CONFIG_INIT, NULL, 0, false, NULL, NULL,     \
      NULL, true, HKT_TIER_DEVICE, NULL, false, 0, 0, NULL, 0, 0 }

/* Collective over comm, model, embedding and tensor, all of which may be NULL (one rank) and are used by nobody else between begin
 * and step. All weights are 0 until hkt_zero_put(). A parameter flagged SHARED and COPY with the name of another one here is
 * that one: it has a gradient of its own, which is added after the reduction as it would be between two stages. */
HKT_API int hkt_zero_create(hkt_zero_t **zero, const hkt_parameter_t *parameters, int count, hkt_comm_t *comm,
                            const hkt_zero_config_t *config, hkt_ledger_t *ledger);
HKT_API int hkt_zero_destroy(hkt_zero_t *zero); /* waits for what is in flight; NULL is allowed */

/* Weights of a group, for use until release. Stage 3: gathered when they are not there, and the group that followed last time is
 * gathered beside the computation (collective: all ranks fetch in the same order). Elsewhere: waits until they are current.
 * Fetches are counted. One thread at a time. */
HKT_API int hkt_zero_fetch(hkt_zero_t *zero, int group);
HKT_API int hkt_zero_release(hkt_zero_t *zero, int group);

/* The weights of a parameter (config.weight), of a group that is fetched. Stage 3: valid until release; else always. */
HKT_API int hkt_zero_weight(void **weight, int parameter, hkt_zero_t *zero);

/* Gradients of a step, as in hkt_buckets_*: begin, per micro-batch (gradient, ready, next), then step. The buckets, e.g. for
 * hkt_buckets_info(), belong to the handle. */
HKT_API int            hkt_zero_begin(hkt_zero_t *zero, int micro_batches);
HKT_API int            hkt_zero_gradient(void **gradient, int parameter, hkt_zero_t *zero); /* any thread */
HKT_API int            hkt_zero_ready(hkt_zero_t *zero, int parameter);                     /* any thread */
HKT_API int            hkt_zero_next(hkt_zero_t *zero);
HKT_API hkt_buckets_t *hkt_zero_buckets(hkt_zero_t *zero);

/* Where a gradient was infinite or NaN first. */
enum { HKT_TENSOR_NAME = 128 };
typedef struct {
    bool   overflow; /* on some rank */
    int    rank;     /* of the communicator over which ranks agreed */
    size_t element;  /* of the tensor on that rank */
    char   tensor[HKT_TENSOR_NAME]; /* its name, cut; "" without overflow */
} hkt_overflow_t;

typedef struct {
    double         norm;     /* L2 of all unique gradients of the model after scale, before clipping; the same bits in any layout */
    double         clipped;  /* what the gradients were multiplied by, at most 1: clip / (norm + 1e-6) */
    bool           skipped;  /* a gradient was infinite or NaN: nothing was changed */
    hkt_overflow_t overflow; /* where first */
} hkt_zero_report_t;

/* Finishes the reduction, and updates the weights; the same report on every rank of comm and model. Collective. */
HKT_API int hkt_zero_step(hkt_zero_report_t *report, hkt_zero_t *zero, const hkt_adamw_t *options);
/* The first half alone, for those who look at gradients or need the sum of tokens before the step. Collective. */
HKT_API int hkt_zero_finish(hkt_zero_t *zero);
/* HKT_TIER_FILE: forces the state to the disk, so that `resume` finds it after a power failure, too; for killed processes
 * nothing is needed. It costs writing all of it. Elsewhere it does nothing. Not between begin and step. */
HKT_API int hkt_zero_persist(hkt_zero_t *zero);
/* Waits for all weights that are still being gathered; before evaluation, saving, and the like. */
HKT_API int hkt_zero_synchronize(hkt_zero_t *zero);

/* The last update with state in another tier, seconds: from begin to end; in reading, updating and writing tiles. Where moving
 * is hidden, the three are more than the whole. */
typedef struct {
    double whole, reading, updating, writing;
    bool   ring; /* HKT_TIER_FILE: through io_uring; false where the system does not permit it */
} hkt_offload_times_t;

typedef struct {
    size_t   parameters, padded; /* elements in all; with padding (a multiple of n); copies are not counted */
    uint64_t steps;              /* updates that were made */
    uint64_t gathered, reused;   /* stage 3: elements gathered for fetches, and those that a fetch found still there */
    hkt_offload_times_t offload;
} hkt_zero_info_t;
HKT_API int hkt_zero_info(hkt_zero_info_t *info, const hkt_zero_t *zero);
HKT_API int hkt_zero_set_steps(hkt_zero_t *zero, uint64_t steps); /* when a checkpoint is loaded */
/* As hkt_comm_traffic() of comm, with that of the communicators that the handle made from it. */
HKT_API int hkt_zero_traffic(hkt_traffic_t *traffic, const char *collective, hkt_zero_t *zero);

/* Optimizer state in the coordinates of parameters, for checkpoints. Piece `index`, from 0, until HKT_ERR_ARGUMENT: elements
 * first .. first + count of `parameter` that this rank is to save; all ranks' pieces together have each element once. data[kind]
 * is the state itself; NULL where it lies in another tier: use get. Not while a step is under way. */
typedef enum { HKT_ZERO_MASTER = 0 /* fp32 weights */, HKT_ZERO_MOMENT1, HKT_ZERO_MOMENT2, HKT_ZERO_KINDS } hkt_zero_kind_t;
typedef struct { int parameter; size_t first, count; float *data[HKT_ZERO_KINDS]; } hkt_zero_piece_t;
HKT_API int hkt_zero_piece(hkt_zero_piece_t *piece, int index, hkt_zero_t *zero);

/* Copies state out of and into what this rank holds of [first, first + count); put ignores the rest, so that every rank may be
 * handed everything; get refuses it. After the last put call hkt_zero_loaded(): weights are made from masters and gathered. */
HKT_API int hkt_zero_get(float *values, int parameter, hkt_zero_kind_t kind, size_t first, size_t count, hkt_zero_t *zero);
HKT_API int hkt_zero_put(hkt_zero_t *zero, int parameter, hkt_zero_kind_t kind, size_t first, size_t count, const float *values);
HKT_API int hkt_zero_loaded(hkt_zero_t *zero); /* collective */

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_ZERO_H */
