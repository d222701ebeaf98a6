/* planner_model.c -- sizes of a transformer: parameters, FLOPs, layers of a stage. Everything is counted from the
 * matrices, so grouped queries, gated MLPs and untied heads need no formula of their own; for GPT's shape it comes to
 * the published ones, 12 L h^2 (1 + 13/(12h)) + (V + s) h parameters and 72 B s L h^2 (1 + s/(6h) + V/(12hL)) FLOPs
 * (Narayanan et al. 2021, Korthikanti et al. 2022).
 */
#include <parallel/planner.h>

#include <math.h>

static int refuse(const char *name, const char *field, int value, const char *wanted)
{
    return hkt_error_set(HKT_ERR_ARGUMENT, "model %s: %s is %d, %s is expected", name ? name : "(no name)", field,
                         value, wanted);
}

int hkt_planner_check_model(const hkt_plan_model_t *model)
{
    const char *name = model->name;
    const struct {
        const char *field;
        int         value;
    } sizes[] = {{"layers", model->layers},     {"hidden", model->hidden},
                 {"heads", model->heads},       {"kv_heads", model->kv_heads},
                 {"ffn", model->ffn},           {"pad", model->pad},
                 {"sequence", model->sequence}, {"vocabulary", model->vocabulary}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].value < 1 || sizes[i].value > 1 << 24)
            return refuse(name, sizes[i].field, sizes[i].value, "1 to 2^24");
    if (model->layers > 1 << 16)
        return refuse(name, "layers", model->layers, "1 to 65536");
    if (model->hidden % model->heads)
        return refuse(name, "hidden", model->hidden, "a multiple of the heads");
    if (model->heads % model->kv_heads)
        return refuse(name, "kv_heads", model->kv_heads, "a divisor of the heads");
    if (model->positions < 0 || model->positions > 1 << 24)
        return refuse(name, "positions", model->positions, "0 to 2^24");
    return 0;
}

static int check_machine(const hkt_plan_machine_t *m)
{
    const char *name = m->name ? m->name : "(no name)";

    if (!(m->memory > 0 && m->achieved > 0 && m->traffic > 0))
        return hkt_error_set(HKT_ERR_ARGUMENT, "machine %s: memory %g, achieved %g and traffic %g must be above 0",
                             name, m->memory, m->achieved, m->traffic);
    if (!(m->half >= 0 && m->launch >= 0 && m->host >= 0 && m->peak >= 0))
        return hkt_error_set(HKT_ERR_ARGUMENT, "machine %s: half %g, launch %g, host %g and peak %g must be 0 or more",
                             name, m->half, m->launch, m->host, m->peak);
    if (m->host > m->traffic)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "machine %s: memory outside a device takes %g bytes/s, more than its own %g", name,
                             m->host, m->traffic);
    if (m->points < 0 || m->points > HKT_PLAN_POINTS || !(m->update >= 0))
        return hkt_error_set(HKT_ERR_ARGUMENT, "machine %s has %d points and update %g: 0 to %d, and 0 or more", name,
                             m->points, m->update, HKT_PLAN_POINTS);
    for (int i = 0; i < m->points; i++)
        if (!(m->point[i].slower > 0 && m->point[i].tokens > (i ? m->point[i - 1].tokens : 0)))
            return hkt_error_set(
                HKT_ERR_ARGUMENT,
                "machine %s: point %d is %g tokens, %g times as slow: tokens have to rise, and both to be "
                "above 0",
                name, i, m->point[i].tokens, m->point[i].slower);
    if (m->links < 1 || m->links > HKT_PLAN_LINKS)
        return hkt_error_set(HKT_ERR_ARGUMENT, "machine %s has %d classes of links, 1 to %d are possible", name,
                             m->links, HKT_PLAN_LINKS);
    for (int i = 0; i < m->links; i++) {
        const hkt_plan_link_t *l    = &m->link[i];
        const bool             last = i == m->links - 1;
        const bool nests = last ? l->span == 0 : l->span >= 1 && (i == 0 || l->span % m->link[i - 1].span == 0);

        if (!l->name || !nests || !(l->bandwidth > 0) || !(l->latency >= 0))
            return hkt_error_set(HKT_ERR_ARGUMENT,
                                 "machine %s, link %s: span %d (a multiple of the span before; 0 for the last class), "
                                 "bandwidth %g (above 0), latency %g (0 or more)",
                                 name, l->name ? l->name : "(no name)", l->span, l->bandwidth, l->latency);
    }
    return 0;
}

int hkt_planner_check_job(const hkt_plan_job_t *job)
{
    const hkt_plan_bytes_t *b = &job->bytes;

    TRY(hkt_planner_check_model(&job->model));
    TRY(check_machine(&job->machine));
    if (!(b->parameter > 0 && b->gradient > 0 && b->optimizer >= 0 && b->activation > 0 && b->mask >= 0))
        return hkt_error_set(
            HKT_ERR_ARGUMENT,
            "bytes of an element: parameter %g, gradient %g and activation %g must be above 0, optimizer "
            "%g and mask %g 0 or more",
            b->parameter, b->gradient, b->activation, b->optimizer, b->mask);
    if (job->world < 1 || job->world > 1 << 20 || job->global_batch < 1 || job->global_batch > 1 << 24)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "a world of %d devices and a global batch of %d: 1 to 2^20 and 1 to 2^24 are "
                             "expected",
                             job->world, job->global_batch);
    return 0;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static double kv_width(const hkt_plan_model_t *m)
{
    return (double)m->hidden / m->heads * m->kv_heads;
}

/* Elements of a layer's matrices: queries and output, keys and values, MLP. */
static double matrix_elements(const hkt_plan_model_t *m)
{
    return 2.0 * m->hidden * m->hidden + 2 * m->hidden * kv_width(m) + (m->gated ? 3.0 : 2.0) * m->hidden * m->ffn;
}

static double norm_elements(const hkt_plan_model_t *m)
{
    return (m->biased ? 2.0 : 1.0) * m->hidden;
}

double hkt_planner_layer_elements(const hkt_plan_model_t *m, int tp)
{
    const double by_column = m->hidden + 2 * kv_width(m) + (m->gated ? 2.0 : 1.0) * m->ffn, by_row = 2.0 * m->hidden;

    return matrix_elements(m) / tp + (m->biased ? by_column / tp + by_row : 0) + 2 * norm_elements(m);
}

double hkt_planner_table_elements(const hkt_plan_model_t *m, int tp)
{
    const double multiple = (double)m->pad * tp;

    return ceil(m->vocabulary / multiple) * multiple * m->hidden / tp;
}

double hkt_planner_stage_elements(const hkt_plan_model_t *m, const hkt_plan_layout_t *layout, int stage)
{
    const bool first = stage == 0, last = stage == layout->pp - 1;
    double     elements = hkt_plan_stage_layers(m, layout, stage) * hkt_planner_layer_elements(m, layout->tp);

    if (first)
        elements += hkt_planner_table_elements(m, layout->tp) + (double)m->positions * m->hidden +
                    (m->embedding_norm ? norm_elements(m) : 0);
    if (last)
        elements += norm_elements(m) + (m->tied && first ? 0 : hkt_planner_table_elements(m, layout->tp));
    return elements;
}

double hkt_plan_parameters(const hkt_plan_model_t *m)
{
    if (hkt_planner_check_model(m))
        return NAN;
    return m->layers * hkt_planner_layer_elements(m, 1) + (m->tied ? 1.0 : 2.0) * m->vocabulary * m->hidden +
           (double)m->positions * m->hidden + (m->embedding_norm ? 2 : 1) * norm_elements(m);
}

/* ---- FLOPs ------------------------------------------------------------------------------------------------------- */

double hkt_planner_linear_flops(const hkt_plan_model_t *m)
{
    return 2 * matrix_elements(m);
}

/* Every token meets the whole sequence twice: scores, and the weighted sum. */
double hkt_planner_core_flops(const hkt_plan_model_t *m)
{
    return 4.0 * m->sequence * m->hidden;
}

double hkt_plan_flops(const hkt_plan_model_t *m, double sequences, int recompute)
{
    double linear, core, again;

    if (hkt_planner_check_model(m))
        return NAN;
    linear = hkt_planner_linear_flops(m);
    core   = hkt_planner_core_flops(m);
    again  = recompute == HKT_RECOMPUTE_FULL ? linear + core : recompute == HKT_RECOMPUTE_SELECTIVE ? core : 0;
    return sequences * m->sequence * (m->layers * (3 * (linear + core) + again) + 6.0 * m->hidden * m->vocabulary);
}

/* ---- stages ------------------------------------------------------------------------------------------------------ */

/* Chunks of different times within a round are possible only at its ends; no stage is empty. */
static bool can_divide(const hkt_plan_model_t *m, const hkt_plan_layout_t *l)
{
    long long slots, parts;

    if (l->pp < 1 || l->chunks < 1 || l->head_layers < 0 || l->head_layers > m->layers || m->layers < 1)
        return false;
    slots = (long long)m->layers + l->head_layers;
    parts = (long long)l->pp * l->chunks;
    if (l->chunks > 1 && parts == m->layers + 2LL)
        return l->head_layers == 0; /* Llama 3: one layer each, embedding and head alone */
    if (parts > m->layers || slots / parts <= l->head_layers)
        return false;
    return l->chunks == 1 || slots % parts == 0 || slots % parts == parts - 2;
}

int hkt_planner_chunk_layers(const hkt_plan_model_t *m, const hkt_plan_layout_t *l, int chunk)
{
    const int  parts = l->pp * l->chunks, slots = m->layers + l->head_layers;
    const int  each = slots / parts, rest = slots % parts;
    const bool more = rest == parts - 1 ? chunk < rest : chunk >= 1 && chunk <= rest;

    return each + (rest && more) - (chunk == parts - 1 ? l->head_layers : 0);
}

int hkt_plan_stage_layers(const hkt_plan_model_t *m, const hkt_plan_layout_t *l, int stage)
{
    const int v = l->chunks;
    int       middle;

    if (!can_divide(m, l) || stage < 0 || stage >= l->pp)
        return 0;
    if (v == 1)
        return hkt_planner_chunk_layers(m, l, stage);
    middle = hkt_planner_chunk_layers(m, l, 1);
    return v * middle - (stage == 0 ? middle - hkt_planner_chunk_layers(m, l, 0) : 0) -
           (stage == l->pp - 1 ? middle - hkt_planner_chunk_layers(m, l, v * l->pp - 1) : 0);
}
