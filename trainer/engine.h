/* engine.h -- a rank's share of the model and all that trains it: the mesh, the parts of the model that this stage has,
 * the optimizer and the pipeline between the stages. One call is one step.
 *
 * A part is a run of layers; a rank has one for each chunk of a pipeline. Without a pipeline there are two where head
 * and embedding share a table: so the table's two gradients are added last, as they are between two stages, and the
 * number of stages changes no bit.
 */
#ifndef TRAINER_ENGINE_H
#define TRAINER_ENGINE_H

#include "batches.h"
#include "gpt.h"
#include "settings.h"

struct engine;

struct part {
    struct engine     *engine;
    struct gpt        *gpt;
    struct gpt_tensor *tensor;
    int                count, first; /* tensors; number of the first among the rank's parameters */
    int                slots;
    float             *weight;   /* fp32 copy of fp16 weights; NULL: the optimizer's own are used */
    float             *gradient; /* of one micro-batch or step, before it goes to the optimizer; NULL: there itself */
    float             *sum;      /* --bitwise-layouts: partial sums, `levels` times gpt_floats() */
};

enum engine_mode { ENGINE_LOSS, ENGINE_FORWARD, ENGINE_BACKWARD };

/* Seconds, summed over steps. */
struct engine_times {
    double forward, backward, optimizer, steps;
    double in_flight, waited;    /* gradients: being reduced, and nothing else to do but wait for that */
    double busy, pipelined;      /* stages: in computation, and in all */
    double products, operations; /* matrix products: seconds and floating-point operations */
    long   faults;               /* page faults after the second step */
};

struct engine {
    const struct settings *settings;
    struct gpt_shape       shape;
    hkt_comm_t            *world, *tp, *cp, *pp, *model, *embedding; /* NULL: one rank */
    hkt_comm_t            *dp_cp; /* who adds gradients and losses: data- and context-parallel ranks; NULL: one rank */
    hkt_mesh_t            *mesh;
    hkt_grid_t             grid;
    int                    at[HKT_AXES], rank, ranks;
    int                    chunks, micros, levels; /* micros: of the largest batch on one rank */
    int                   *layers_of;
    hkt_ledger_t          *ledger, *host;
    int                    parts, parameters, groups;
    struct part           *part;
    hkt_parameter_t       *parameter;
    int                   *group; /* per parameter: which is fetched for its weights */
    bool                  *fresh; /* per parameter: the fp32 copy of its weights is current */
    hkt_zero_t            *zero;
    hkt_pipeline_t        *pipeline;
    hkt_pipeline_shape_t   schedule;
    hkt_scaler_t          *scaler; /* NULL: losses are not scaled */
    bool                   each;   /* gradients are reduced for every micro-batch */
    enum engine_mode       mode;
    struct batches        *batches;     /* of the step under way */
    int                    micro;       /* of the pass under way */
    double                *loss;        /* of its micro-batches */
    double                 scale;       /* of its gradients */
    uint64_t               step;        /* its number, from 1: the caller's to set, dropout depends on it */
    float                 *boundary[2]; /* between parts without a pipeline: activations, gradients */
    int32_t               *padded;      /* tokens, positions and starts for engine_logits(), of all rows and own ones */
    struct engine_times    times;
};

/* Collective. Stops, naming every rule that the layout breaks. */
void engine_begin(struct engine *engine, struct settings *settings, int vocabulary, hkt_comm_t *world);
void engine_end(struct engine *engine);

/* Micro-batches of this rank in a global batch, and the number of its first sequence within it. */
int      engine_micros(const struct engine *engine, long global_batch);
uint64_t engine_place(const struct engine *engine, int micros);

bool engine_speaks(const struct engine *engine); /* rank 0 */

/* A step has two halves. The passes over `batches` (all micro-batches of this rank): the mean loss over the tokens of
 * the global batch, the same on every rank, and gradients reduced. Then the update of the weights, with a learning
 * rate. */
double engine_passes(struct engine *engine, struct batches *batches);
void   engine_update(hkt_zero_report_t *report, struct engine *engine, double rate);

/* Sum of the losses of all ranks' batches, and of the predictions that count. */
void engine_evaluate(double sum[2], struct engine *engine, struct batches *batches);

/* Logits (vocabulary) behind the last of `count` tokens, the same on all ranks; count is at most the sequence length.
 */
const float *engine_logits(struct engine *engine, const int32_t *token, size_t count);

/* ---- inside */

int engine_hook_ready(void *part, int first, int count);
int engine_hook_fetch(void *part, int first, int count);
int engine_hook_release(void *part, int first, int count);

#endif
