/* pipeline.h -- schedules of pipeline stages: as programs, in simulated time, run. A part of hocket_train.h, whose conventions hold. */
#ifndef HOCKET_TRAIN_PIPELINE_H
#define HOCKET_TRAIN_PIPELINE_H

#include <hocket.h>
#include <hocket_train/ledger.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pipeline of p stages runs m micro-batches through p * v parts of the model, its virtual stages. Virtual stage k is chunk
 * k / p of stage k % p: with v = 2 and p = 4 stage 0 holds the parts 0 and 4. */
typedef enum {
    HKT_PIPELINE_GPIPE = 0,   /* all forwards, then all backwards */
    HKT_PIPELINE_1F1B,        /* p - 1 - stage forwards, then one forward, one backward */
    HKT_PIPELINE_INTERLEAVED, /* the same over v chunks in groups of micro-batches, as Megatron-LM does */
    HKT_PIPELINE_ZERO_BUBBLE, /* ZB-H1: 1F1B with the weight gradients apart and late, in the memory of 1F1B's stage 0 */
    HKT_PIPELINE_FORWARD,     /* forwards only: evaluation */
    HKT_PIPELINES
} hkt_pipeline_kind_t;

typedef struct {
    hkt_pipeline_kind_t kind;
    int                 stages, chunks, micros; /* p, v, m */
    int                 group; /* interleaved: micro-batches of a group; 0: p */
} hkt_pipeline_shape_t;

HKT_API const char *hkt_pipeline_name(hkt_pipeline_kind_t kind); /* "1f1b"; "?" when it is none */
HKT_API int         hkt_pipeline_kind(hkt_pipeline_kind_t *kind, const char *name);

/* HKT_ERR_ARGUMENT names every rule that the shape breaks, with the values that would be valid. */
HKT_API int hkt_pipeline_validate(const hkt_pipeline_shape_t *shape);

/* How many layers each virtual stage has: layers_of[p * v] in the order of the model, with sum == layers always. `text`
 * lists them ("2,2,1,1", "5,6*10,5"); NULL or "": even, the first get the rest. What `counted` names takes the place of one
 * layer (BLOOM: 70 layers on 12 stages are 5,6*10,5). An uneven model is never cut: HKT_ERR_ARGUMENT names every rule broken
 * and what is valid. */
enum { HKT_LAYOUT_EMBEDDING = 1, HKT_LAYOUT_HEAD = 2 };
HKT_API int hkt_layout_make(int *layers_of, int layers, int stages, int chunks, const char *text, unsigned counted);
HKT_API int hkt_layout_first(const int *layers_of, int virtual_stage); /* its first layer */
HKT_API int hkt_layout_print(FILE *out, const int *layers_of, int stages, int chunks); /* a line per stage */

/* v = layers / stages / layers_per_chunk (Megatron's --num-layers-per-virtual-pipeline-stage); refused where it does not
 * divide. */
HKT_API int hkt_layout_chunks(int *chunks, int layers, int stages, int layers_per_chunk);

/* ---- pipeline: time, without running anything */

/* Seconds for one micro-batch: of the virtual stages [p * v], and of a message between stage r and r + 1 [p] (the last: back
 * to stage 0), the same for gradients. Messages run beside the computation, one after the other on a link and direction. */
typedef struct {
    const double *forward;
    const double *backward; /* input and weight gradient */
    const double *weight;   /* the weight gradient's part of it, zero bubble; NULL: half */
    const double *send;     /* NULL: nothing */
} hkt_pipeline_times_t;

/* ideal: the busiest stage's work; bubble = (total - ideal) / ideal, so that 1F1B has (p - 1) / m; / total it is (p - 1) /
 * (m + p - 1). */
typedef struct { double total, ideal, bubble; } hkt_pipeline_timing_t;

/* Per stage: its work in seconds; forwards before the alternation of forward and backward begins; the most activations
 * (micro-batch and chunk) that wait for their backward at a time. */
typedef struct { double busy; int warm_up, peak; } hkt_pipeline_stage_t;

/* Pure, any thread, O(p v m). `times` NULL: forward 1 and backward 2 per stage, sends 0. `stages`: [p] or NULL. */
HKT_API int hkt_pipeline_simulate(hkt_pipeline_timing_t *timing, hkt_pipeline_stage_t *stages, const hkt_pipeline_shape_t *shape,
                                  const hkt_pipeline_times_t *times);

/* ---- pipeline: programs, a list of instructions per stage */

/* Sends and receives of a program stand in one order of all messages (that in which they are made when every stage takes the
 * same time), so that even sends that wait for their receive never block for ever, for any shape. */
typedef enum {
    HKT_DO_FORWARD = 0,
    HKT_DO_BACKWARD,        /* both gradients */
    HKT_DO_BACKWARD_INPUT,  /* zero bubble: the gradient of the input, which the stage before waits for, */
    HKT_DO_BACKWARD_WEIGHT, /* and that of the weights, which nobody waits for */
    HKT_DO_SEND_FORWARD,    /* output of (chunk, micro) */
    HKT_DO_RECV_FORWARD,    /* input of (chunk, micro) */
    HKT_DO_SEND_BACKWARD,   /* gradient of the input of (chunk, micro) */
    HKT_DO_RECV_BACKWARD,   /* gradient of the output of (chunk, micro) */
    HKT_ACTIONS
} hkt_action_t;
typedef struct {
    hkt_action_t action;
    int          chunk, micro; /* of this stage */
    int          peer;         /* stage at the other end of a message; -1 */
} hkt_instruction_t;

typedef struct hkt_program hkt_program_t;
HKT_API int hkt_program_create(hkt_program_t **program, const hkt_pipeline_shape_t *shape);
HKT_API int hkt_program_destroy(hkt_program_t *program); /* NULL is allowed */

/* One stage's list, which belongs to the program; and as text, "recv F0.1 from 3" with micro-batch.chunk; stage -1: all. */
HKT_API int hkt_program_stage(const hkt_instruction_t **list, size_t *n, const hkt_program_t *program, int stage);
HKT_API int hkt_program_print(FILE *out, const hkt_program_t *program, int stage);

/* Runs the lists of all stages (from a program or written by hand) with sends that wait for their receive and stages that do
 * one thing at a time. HKT_ERR_USAGE says what is wrong: who waits for what in a deadlock, what is used before it is there,
 * done twice or not at all. `total` (may be NULL): the time it takes, forward 1 and backward 2 per stage. */
HKT_API int hkt_program_check(double *total, const hkt_instruction_t *const *lists, const size_t *counts,
                              const hkt_pipeline_shape_t *shape);

/* ---- pipeline: running one stage */

typedef struct hkt_pipeline hkt_pipeline_t;

/* What one call computes. Input and output gradient stay as they are until the (last) backward of the same chunk and
 * micro-batch has returned, so a callback may keep the pointers (in evaluation for the call only); output and input gradient
 * are only lent for the call. Shapes: of the input and its gradient, of the output and its gradient. With variable shapes
 * the forward of the first virtual stage has to set its output's (-1 before); others may change theirs (the input's before).
 * Else both are the message's. */
typedef struct {
    int         chunk, micro;
    int64_t     input_shape[3], output_shape[3];
    const void *input;           /* NULL: first virtual stage */
    void       *output;          /* forward; NULL: last virtual stage, and in the other calls */
    const void *output_gradient; /* backwards; NULL: last virtual stage, and in forward */
    void       *input_gradient;  /* backward, input backward; NULL: first virtual stage, and in the other calls */
} hkt_pipeline_work_t;

/* Callbacks return 0 or a negative code, which ends the run on all stages. `backward` for all kinds but the zero bubble,
 * which has the other two; micro-batches of a chunk always come in order, so gradients are added up in the same order as by
 * one process. */
typedef struct {
    int (*forward)(hkt_pipeline_work_t *work, void *arg);
    int (*backward)(hkt_pipeline_work_t *work, void *arg);
    int (*backward_input)(hkt_pipeline_work_t *work, void *arg);
    int (*backward_weight)(hkt_pipeline_work_t *work, void *arg);
    void *arg;
} hkt_pipeline_calls_t;

/* What travels: `shape` elements of `type` (their product). `variable`: at most so many; each message of the forward
 * direction is preceded by one of 3 int64 with its shape. Ranks that are tensor-parallel with sequence parallelism each send
 * their slice. */
typedef struct {
    hkt_type_t type;
    int64_t    shape[3];
    bool       variable;
} hkt_pipeline_message_t;

/* Collective over `comm`: stage = rank, size = shape->stages; all arguments the same on all ranks, else every rank gets the
 * error. Takes all memory (activations: inputs; communication: gradients and outputs) and makes a communicator of two for
 * every link and direction; running takes none. `comm` stays the caller's and has to outlive the pipeline. */
HKT_API int hkt_pipeline_create(hkt_pipeline_t **pipeline, hkt_comm_t *comm, const hkt_pipeline_shape_t *shape,
                                const hkt_pipeline_message_t *message, hkt_ledger_t *ledger);

/* Not collective; after an error once the neighbours' runs have ended, too: they may be reading. NULL is allowed. */
HKT_API int hkt_pipeline_destroy(hkt_pipeline_t *pipeline);

/* One step: this stage's program, with messages beside the computation (a stream for each direction). Collective. After an
 * error (also of a callback, on any stage) the messages of all stages are aborted and the pipeline can only be destroyed. */
HKT_API int hkt_pipeline_run(hkt_pipeline_t *pipeline, const hkt_pipeline_calls_t *calls);
HKT_API int hkt_pipeline_evaluate(hkt_pipeline_t *pipeline, const hkt_pipeline_calls_t *calls); /* forwards only */

/* values[count] of the last stage, which has the loss, on every stage. Collective. */
HKT_API int hkt_pipeline_share(double *values, size_t count, hkt_pipeline_t *pipeline);

/* Messages that this stage has sent so far, activations and gradients. */
HKT_API int hkt_pipeline_traffic(hkt_traffic_t *forward, hkt_traffic_t *backward, const hkt_pipeline_t *pipeline);

/* When the instructions of the last run began and ended, seconds from its begin; messages by the stream that carried them.
 * `busy` is the time in callbacks, `total` that of the run. The marks are the pipeline's and valid until the next run. */
typedef struct {
    hkt_instruction_t instruction;
    double            begin, end;
} hkt_pipeline_mark_t;
typedef struct {
    const hkt_pipeline_mark_t *marks;
    size_t                     n;
    double                     busy, total;
} hkt_pipeline_trace_t;
HKT_API int hkt_pipeline_trace(hkt_pipeline_trace_t *trace, const hkt_pipeline_t *pipeline);

#ifdef __cplusplus
}
#endif
#endif /* HOCKET_TRAIN_PIPELINE_H */
