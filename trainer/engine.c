/* engine.c -- see engine.h: makes what a rank needs. Passes are in engine_step.c, weights and gradients on their way to
 * and from the model in engine_hooks.c.
 */
#include "engine.h"

#include "crew.h"
#include "stop.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MICRO_BATCH = 4 /* sequences that are enough for matrix products to run at speed */, SLICES = 8 };

/* ---- rules */

struct broken {
    char text[4000];
    int  rules;
};

static bool holds(struct broken *b, int rc)
{
    const size_t used = strlen(b->text);

    if (rc >= 0)
        return true;
    snprintf(b->text + used, sizeof(b->text) - used, "\n  %s", hkt_last_error());
    b->rules++;
    return false;
}

static hkt_pipeline_shape_t schedule_of(const struct engine *e, int micros)
{
    static const hkt_pipeline_kind_t kind[] = {HKT_PIPELINE_1F1B, HKT_PIPELINE_GPIPE, HKT_PIPELINE_ZERO_BUBBLE};
    const hkt_pipeline_kind_t        chosen = kind[e->settings->schedule];

    return (hkt_pipeline_shape_t){e->chunks > 1 && chosen == HKT_PIPELINE_1F1B ? HKT_PIPELINE_INTERLEAVED : chosen,
                                  (int)e->settings->pp, e->chunks, micros, 0};
}

/* A power of two that divides what tensor parallelism divides: how many slices sums are made of. */
static int slices_of(const struct gpt_shape *s)
{
    int slices = SLICES;

    while (s->groups % slices || s->mlp % slices || s->padded % slices)
        slices /= 2;
    return slices;
}

static struct gpt_options options_of(const struct engine *e)
{
    const struct settings *s = e->settings;

    return (struct gpt_options){.shape     = e->shape,
                                .last      = e->shape.layers,
                                .batch     = s->micro_batch ? (int)s->micro_batch : 1,
                                .slots     = 1,
                                .recompute = (enum gpt_recompute)s->recompute,
                                .apart     = s->schedule == 2 && s->pp > 1,
                                .seed      = (uint64_t)s->seed,
                                .sequence  = s->sequence && s->tp > 1,
                                .overlap   = true,
                                .slices    = s->bitwise && !s->gated ? slices_of(&e->shape) : 0};
}

static void check_batch(struct broken *b, struct engine *e)
{
    struct settings  *s     = (struct settings *)e->settings;
    const int         dp    = e->grid.size[HKT_AXIS_DP];
    const long        share = s->global_batch / dp, wanted = s->micro_batch ? s->micro_batch : 1;
    const struct ramp ramp = {s->rampup ? (uint64_t)s->ramp_start : (uint64_t)s->global_batch, (uint64_t)s->ramp_step,
                              (uint64_t)s->global_batch, (uint64_t)s->ramp_samples};

    if (!holds(b, ramp_check(&ramp, (uint64_t)wanted, (uint64_t)dp)))
        return;
    for (long size = MICRO_BATCH; !s->micro_batch; size--)
        if (share % size == 0 && ramp_check(&ramp, (uint64_t)size, (uint64_t)dp) == HKT_OK)
            s->micro_batch = size;
    e->micros = (int)(share / s->micro_batch);
}

static void check_layers(struct broken *b, struct engine *e)
{
    const struct settings *s    = e->settings;
    const size_t           most = (size_t)(s->pp * s->layers);

    e->chunks = 1;
    if (s->per_chunk)
        holds(b, hkt_layout_chunks(&e->chunks, (int)s->layers, (int)s->pp, (int)s->per_chunk));
    e->layers_of = calloc(most, sizeof(*e->layers_of));
    if (!e->layers_of)
        stop("out of memory for %zu stages", most);
    holds(b, hkt_layout_make(e->layers_of, (int)s->layers, (int)s->pp, e->chunks, s->stage_layers, 0));
    if (e->micros && s->pp > 1) {
        const hkt_pipeline_shape_t shape = schedule_of(e, e->micros);

        holds(b, hkt_pipeline_validate(&shape));
    }
}

static int refuse(bool broken, const char *why)
{
    return broken ? hkt_error_set(HKT_ERR_ARGUMENT, "%s", why) : HKT_OK;
}

static void check(struct engine *e)
{
    const struct settings   *s              = e->settings;
    const int                size[HKT_AXES] = {(int)s->tp, (int)s->cp, 0, (int)s->pp};
    struct broken            b              = {{0}, 0};
    const struct gpt_options options        = options_of(e);

    if (holds(&b, hkt_grid_init(&e->grid, e->ranks, size, s->order)))
        check_batch(&b, e);
    holds(&b, gpt_check(&options, (int)s->tp, (int)s->cp));
    check_layers(&b, e);
    holds(&b,
          refuse(s->reduce == 1 && s->pp > 1,
                 "--grad-reduce each needs --pipeline-model-parallel-size 1: stages have several micro-batches under "
                 "way; once does"));
    holds(&b, refuse(s->reduce == 1 && s->bitwise, "--grad-reduce each and --bitwise-layouts exclude each other"));
    holds(&b,
          refuse(s->cp > 1 && s->bitwise,
                 "--context-parallel-size and --bitwise-layouts exclude each other: sums over tokens are then made in "
                 "another order"));
    holds(&b,
          refuse(s->gated && s->bitwise,
                 "--swiglu and --bitwise-layouts exclude each other: gates are divided in halves, which no slice is"));
    holds(&b, refuse(s->codec && (s->bitwise || s->fp16), "--codec goes with neither --bitwise-layouts nor --fp16"));
    holds(&b, refuse(s->optimizer == 1 && (s->zero > 0 || s->tier > 0),
                     "--optimizer onebit-adam needs --zero-stage 0 and --optimizer-tier device: every rank encodes with the "
                     "second moment of the whole model"));
    holds(&b, refuse(options.slices > 0 && options.slices % s->tp != 0,
                     "--bitwise-layouts sums in at most 8 slices, a power of two that divides heads, MLP size and "
                     "vocabulary, and the tensor-parallel size must divide their number"));
    if (b.rules == 0)
        return;
    if (e->rank == 0)
        stop("this layout cannot be; %d rule%s broken:%s", b.rules, b.rules > 1 ? "s are" : " is", b.text);
    exit(1);
}

/* ---- groups of ranks */

static hkt_comm_t *group_of(const struct engine *e, const char *name)
{
    hkt_comm_t *comm;
    int         size;

    need(hkt_mesh_comm(&comm, e->mesh, name), "looking for a group of the mesh");
    if (!comm)
        return NULL;
    need(hkt_comm_size(comm, &size), "looking at a group of the mesh");
    return size > 1 ? comm : NULL;
}

static void make_groups(struct engine *e)
{
    const struct settings *s              = e->settings;
    const int              size[HKT_AXES] = {(int)s->tp, (int)s->cp, 0, (int)s->pp};

    need(hkt_mesh_create(&e->mesh, e->world, size, s->order, NULL), "laying out the ranks");
    need(hkt_mesh_coordinates(e->at, e->mesh), "laying out the ranks");
    e->tp        = group_of(e, "tp");
    e->cp        = group_of(e, "cp");
    e->dp_cp     = group_of(e, "dp-cp");
    e->pp        = group_of(e, "pp");
    e->model     = group_of(e, "tp-pp");
    e->embedding = s->untied ? NULL : group_of(e, "embedding");
}

/* ---- parts of the model */

/* Micro-batches of a chunk that are between forward and (the last) backward at a time. */
static int in_flight(const struct engine *e, int chunk)
{
    const bool               late = e->schedule.kind == HKT_PIPELINE_ZERO_BUBBLE;
    const hkt_action_t       end  = late ? HKT_DO_BACKWARD_WEIGHT : HKT_DO_BACKWARD;
    const hkt_instruction_t *list;
    hkt_program_t           *program;
    size_t                   n;
    int                      now = 0, peak = 1;

    need(hkt_program_create(&program, &e->schedule), "planning the pipeline");
    need(hkt_program_stage(&list, &n, program, e->at[HKT_AXIS_PP]), "planning the pipeline");
    for (size_t i = 0; i < n; i++) {
        now += list[i].chunk == chunk ? (list[i].action == HKT_DO_FORWARD) - (list[i].action == end) : 0;
        peak = now > peak ? now : peak;
    }
    need(hkt_program_destroy(program), "planning the pipeline");
    return peak;
}

static float *take(struct engine *e, size_t floats, hkt_bytes_t kind)
{
    void *memory;

    need(hkt_ledger_take(&memory, floats * sizeof(float), kind, false, e->ledger), "memory for the model");
    memset(memory, 0, floats * sizeof(float)); /* touched now, not in a step */
    return memory;
}

static void make_part(struct engine *e, int index, int first, int last)
{
    struct part       *p = &e->part[index];
    struct gpt_options o = options_of(e);

    *p        = (struct part){.engine = e, .first = e->parameters, .slots = e->pp ? in_flight(e, index) : 1};
    o.first   = first;
    o.last    = last;
    o.slots   = p->slots;
    o.comm    = e->tp;
    o.context = e->cp;
    o.ledger  = e->ledger;
    o.hooks   = (struct gpt_hooks){engine_hook_ready, engine_hook_fetch, engine_hook_release, p};
    need(gpt_create(&p->gpt, &o), "making the model");
    p->tensor = gpt_tensors(p->gpt, &p->count);
    e->parameters += p->count;
    if (e->settings->fp16)
        p->weight = take(e, gpt_floats(p->gpt), HKT_BYTES_PARAMETER);
    if (e->settings->fp16 || e->settings->bitwise)
        p->gradient = take(e, gpt_floats(p->gpt), HKT_BYTES_GRADIENT);
    if (e->settings->bitwise)
        p->sum = take(e, gpt_floats(p->gpt) * (size_t)e->levels, HKT_BYTES_GRADIENT);
}

static void make_parts(struct engine *e)
{
    const int pp = (int)e->settings->pp, stage = e->at[HKT_AXIS_PP], layers = e->shape.layers;

    e->parts = pp > 1 ? e->chunks : !e->shape.untied && layers > 1 ? 2 : 1;
    e->part  = calloc((size_t)e->parts, sizeof(*e->part));
    if (!e->part)
        stop("out of memory for %d parts", e->parts);
    for (int i = 0; i < e->parts; i++) {
        const int virtual = i * pp + stage, first = pp > 1 ? hkt_layout_first(e->layers_of, virtual) : i * (layers - 1);

        make_part(e, i, first, pp > 1 ? first + e->layers_of[virtual] : i == e->parts - 1 ? layers : layers - 1);
    }
}

/* ---- the optimizer */

/* The group of tensor t: embedding, a layer, or what stands behind the layers; they are numbered as they come. */
static bool begins_group(const struct gpt_tensor *t, const struct gpt_tensor *before)
{
    const char *a = t->name, *b = before->name, *dot = strchr(a, '.');

    if (strncmp(a, "h.", 2) != 0)
        return strncmp(b, "h.", 2) == 0;
    dot = strchr(dot + 1, '.'); /* behind the layer's number */
    return !dot || strncmp(a, b, (size_t)(dot - a) + 1) != 0;
}

static void list_parameters(struct engine *e)
{
    e->parameter = calloc((size_t)e->parameters, sizeof(*e->parameter));
    e->group     = calloc((size_t)e->parameters, sizeof(*e->group));
    e->fresh     = calloc((size_t)e->parameters, sizeof(*e->fresh));
    if (!e->parameter || !e->group || !e->fresh)
        stop("out of memory for %d parameters", e->parameters);
    for (int i = 0; i < e->parts; i++)
        for (int k = 0; k < e->part[i].count; k++) {
            const struct gpt_tensor *t  = &e->part[i].tensor[k];
            const int                at = e->part[i].first + k;

            e->parameter[at] = (hkt_parameter_t){t->name, (size_t)t->own_rows * (size_t)t->own_cols, t->flags};
            e->groups += at > 0 && (k == 0 || begins_group(t, t - 1));
            e->group[at] = e->groups;
        }
    e->groups++;
}

/* A copy whose original is here has its weights from there. */
static void find_originals(struct engine *e)
{
    for (int i = 0; i < e->parameters; i++)
        for (int k = 0; k < i && e->parameter[i].flags & HKT_PARAMETER_COPY; k++)
            if (strcmp(e->parameter[k].name, e->parameter[i].name) == 0)
                e->group[i] = e->group[k];
}

static void make_optimizer(struct engine *e)
{
    const struct settings *s    = e->settings;
    hkt_zero_config_t      c    = HKT_ZERO_CONFIG_INIT;
    const hkt_type_t       type = s->fp16 ? HKT_FLOAT16 : HKT_FLOAT32;
    char                   path[512];

    list_parameters(e);
    e->each  = s->reduce == 1 || (s->zero >= 2 && e->micros == 1 && !e->pp && !s->bitwise && !s->fp16 && !s->rampup);
    c.stage  = (int)s->zero;
    c.weight = type;
    c.reduce = e->each ? HKT_REDUCE_EACH : HKT_REDUCE_ONCE;
    c.buckets.bytes       = s->bucket_bytes;
    c.buckets.first_bytes = s->bucket_bytes;
    c.buckets.type        = type;
    c.buckets.op          = HKT_SUM; /* losses are scaled for the whole batch */
    c.buckets.overlap     = s->overlap;
    c.buckets.codec       = s->codec;
    c.buckets.seed        = (uint64_t)s->seed;
    c.groups              = e->group;
    c.late                = s->zero == 1 || s->zero == 2;
    c.model               = e->model;
    c.embedding           = e->embedding;
    c.first_tensor        = e->at[HKT_AXIS_TP] == 0;
    c.tier                = (hkt_tier_t)s->tier;
    c.host                = e->host;
    c.threads             = crew_size();
    snprintf(path, sizeof(path), "%s.%d", s->tier_path ? s->tier_path : "", e->rank);
    c.path   = path;
    c.freeze = e->dp_cp ? (uint64_t)s->freeze : 0;
    need(hkt_zero_create(&e->zero, e->parameter, e->parameters, e->dp_cp, &c, e->ledger), "making the optimizer");
    find_originals(e);
}

/* Weights are drawn tensor by tensor and handed to whoever keeps them. */
static void draw(struct engine *e)
{
    for (int i = 0; i < e->parts; i++) {
        struct part *p      = &e->part[i];
        float       *memory = take(e, gpt_floats(p->gpt), HKT_BYTES_OTHER);

        gpt_bind(p->gpt, memory, memory);
        gpt_draw(p->gpt);
        for (int k = 0; k < p->count; k++)
            need(hkt_zero_put(e->zero, p->first + k, HKT_ZERO_MASTER, 0, e->parameter[p->first + k].count,
                              p->tensor[k].weight),
                 "setting the initial weights");
        need(hkt_ledger_give(memory, e->ledger), "freeing the drawn weights");
    }
    need(hkt_zero_loaded(e->zero), "sharing the initial weights");
}

/* ---- all of it */

static void make_scaler(struct engine *e)
{
    const struct settings *s = e->settings;
    hkt_scaler_config_t    c = HKT_SCALER_CONFIG_INIT;

    if (!s->fp16)
        return;
    c.dynamic    = s->loss_scale <= 0;
    c.initial    = c.dynamic ? s->first_scale : s->loss_scale;
    c.least      = s->least_scale;
    c.interval   = (int)s->scale_window;
    c.hysteresis = (int)s->hysteresis;
    need(hkt_scaler_create(&e->scaler, &c), "making the loss scaler");
}

static void make_threads(const struct engine *e)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN), asked = e->settings->threads;

    crew_begin(asked ? (int)asked : processors > e->ranks ? (int)(processors / e->ranks) : 1);
}

static int power_above(int count)
{
    int levels = 1;

    while (1 << (levels - 1) < count)
        levels++;
    return levels;
}

void engine_begin(struct engine *e, struct settings *s, int vocabulary, hkt_comm_t *world)
{
    size_t floats;

    *e       = (struct engine){.settings = s, .world = world};
    e->shape = (struct gpt_shape){.layers            = (int)s->layers,
                                  .width             = (int)s->width,
                                  .heads             = (int)s->heads,
                                  .mlp               = (int)s->mlp,
                                  .length            = (int)s->length,
                                  .vocabulary        = vocabulary,
                                  .padded            = (int)((vocabulary + s->padding - 1) / s->padding * s->padding),
                                  .positions         = (enum gpt_positions)s->positions,
                                  .embedding_norm    = s->embedding_norm,
                                  .untied            = s->untied,
                                  .groups            = s->grouped ? (int)s->groups : (int)s->heads,
                                  .gated             = s->gated,
                                  .rms               = s->normalization == 1,
                                  .unbiased          = s->unbiased,
                                  .dropout           = s->dropout,
                                  .attention_dropout = s->attention_dropout,
                                  .smoothing         = s->smoothing,
                                  .deviation         = s->deviation};
    need(hkt_comm_rank(world, &e->rank), "reading the rank");
    need(hkt_comm_size(world, &e->ranks), "reading the number of ranks");
    check(e);
    make_groups(e);
    make_threads(e);
    need(hkt_ledger_create(&e->ledger), "making the ledger");
    need(hkt_ledger_create(&e->host), "making the ledger of offloaded state");
    e->levels   = power_above(e->micros);
    e->schedule = schedule_of(e, e->micros);
    e->loss     = calloc((size_t)e->micros, sizeof(*e->loss));
    if (!e->loss)
        stop("out of memory for %d losses", e->micros);
    floats = (size_t)(s->micro_batch * (s->length / s->cp) * s->width);
    floats = floats < (size_t)vocabulary ? (size_t)vocabulary : floats; /* logits travel there, too */
    for (int i = 0; i < 2; i++)
        e->boundary[i] = take(e, floats, HKT_BYTES_ACTIVATION);
    e->padded = (int32_t *)(void *)take(e, 3 * (size_t)(s->length + s->length / s->cp), HKT_BYTES_OTHER);
    make_parts(e);
    make_optimizer(e);
    make_scaler(e);
    draw(e);
    hkt_comm_t *const group[] = {e->world, e->tp, e->cp, e->dp_cp, e->pp, e->model, e->embedding};
    for (size_t i = 0; i < sizeof(group) / sizeof(group[0]); i++)
        need(hkt_comm_touch(group[i]), "trying a group");
}

void engine_end(struct engine *e)
{
    need(hkt_pipeline_destroy(e->pipeline), "ending the pipeline");
    need(hkt_scaler_destroy(e->scaler), "ending the loss scaler");
    need(hkt_zero_destroy(e->zero), "ending the optimizer");
    for (int i = 0; i < e->parts; i++) {
        struct part *p = &e->part[i];

        gpt_destroy(p->gpt);
        need(hkt_ledger_give(p->weight, e->ledger), "freeing weights");
        need(hkt_ledger_give(p->gradient, e->ledger), "freeing gradients");
        need(hkt_ledger_give(p->sum, e->ledger), "freeing sums");
    }
    need(hkt_ledger_give(e->padded, e->ledger), "freeing the sample's tokens");
    need(hkt_ledger_give(e->boundary[1], e->ledger), "freeing activations");
    need(hkt_ledger_give(e->boundary[0], e->ledger), "freeing activations");
    crew_end();
    need(hkt_mesh_destroy(e->mesh), "ending the mesh");
    need(hkt_ledger_destroy(e->host), "closing the ledger of offloaded state");
    need(hkt_ledger_destroy(e->ledger), "closing the ledger");
    free(e->part);
    free(e->parameter);
    free(e->group);
    free(e->fresh);
    free(e->layers_of);
    free(e->loss);
}

int engine_micros(const struct engine *e, long global_batch)
{
    return (int)(global_batch / e->grid.size[HKT_AXIS_DP] / e->settings->micro_batch);
}

uint64_t engine_place(const struct engine *e, int micros)
{
    return (uint64_t)e->at[HKT_AXIS_DP] * (uint64_t)micros * (uint64_t)e->settings->micro_batch;
}

bool engine_speaks(const struct engine *e)
{
    return e->rank == 0;
}
