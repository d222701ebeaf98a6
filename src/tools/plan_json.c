/* plan_json.c -- hkt-plan --json: the job, every family with its plan or its reason, and the stages of the best. */
#include "plan.h"

#include <stdlib.h>

static void text(FILE *out, const char *words)
{
    fputc('"', out);
    for (; *words; words++) {
        if ((unsigned char)*words < ' ')
            fprintf(out, "\\u%04x", (unsigned char)*words);
        else
            fprintf(out, "%s%c", *words == '"' || *words == '\\' ? "\\" : "", *words);
    }
    fputc('"', out);
}

static const char *boolean(bool value)
{
    return value ? "true" : "false";
}

static void print_job(FILE *out, const struct plan_view *view)
{
    const hkt_plan_job_t     *j = &view->job;
    const hkt_plan_model_t   *m = &j->model;
    const hkt_plan_machine_t *k = &j->machine;

    fprintf(out, " \"model\": {\"name\": ");
    text(out, m->name);
    fprintf(out,
            ", \"layers\": %d, \"hidden\": %d, \"heads\": %d, \"kv_heads\": %d, \"ffn\": %d, \"vocabulary\": %d, "
            "\"pad\": %d, "
            "\"sequence\": %d, \"positions\": %d, \"tied\": %s, \"gated\": %s, \"biased\": %s, \"embedding_norm\": %s, "
            "\"dropout\": %s, \"blocked\": %s, \"parameters\": %.0f},\n",
            m->layers, m->hidden, m->heads, m->kv_heads, m->ffn, m->vocabulary, m->pad, m->sequence, m->positions,
            boolean(m->tied), boolean(m->gated), boolean(m->biased), boolean(m->embedding_norm), boolean(m->dropout),
            boolean(m->blocked), hkt_plan_parameters(m));
    fprintf(out, " \"machine\": {\"name\": ");
    text(out, k->name);
    fprintf(
        out,
        ", \"memory\": %.0f, \"peak\": %.9g, \"achieved\": %.9g, \"half\": %.9g, \"traffic\": %.9g, \"launch\": %.9g, "
        "\"host\": %.9g, \"links\": [",
        k->memory, k->peak, k->achieved, k->half, k->traffic, k->launch, k->host);
    for (int i = 0; i < k->links; i++) {
        fprintf(out, "%s{\"name\": ", i ? ", " : "");
        text(out, k->link[i].name);
        fprintf(out, ", \"span\": %d, \"bandwidth\": %.9g, \"latency\": %.9g}", k->link[i].span, k->link[i].bandwidth,
                k->link[i].latency);
    }
    fprintf(out,
            "]},\n \"world\": %d, \"global_batch\": %d,\n \"bytes\": {\"parameter\": %g, \"gradient\": %g, "
            "\"optimizer\": %g, "
            "\"activation\": %g, \"mask\": %g},\n",
            j->world, j->global_batch, j->bytes.parameter, j->bytes.gradient, j->bytes.optimizer, j->bytes.activation,
            j->bytes.mask);
}

static void print_plan(FILE *out, const hkt_plan_family_t *f)
{
    const hkt_plan_layout_t *l = &f->layout;

    fprintf(out,
            ", \"schedule\": \"%s\", \"chunks\": %d, \"head_layers\": %d, \"zero\": %d, \"micro_batch\": %d, "
            "\"micro_batches\": %d, "
            "\"recompute\": \"%s\", "
            "\"sequence_parallel\": %s, \"offload\": %s, \"memory\": %.0f, \"step\": %.9g, \"tokens\": %.9g, "
            "\"flops\": %.9g, "
            "\"hardware_flops\": %.9g, \"hidden\": %.9g, \"slowest\": %d, \"parts\": {",
            hkt_pipeline_name((hkt_pipeline_kind_t)l->schedule), l->chunks, l->head_layers, l->zero, l->micro_batch,
            f->time.micro_batches, hkt_recompute_name(l->recompute), boolean(l->sequence_parallel), boolean(l->offload),
            f->memory, f->time.step, f->time.tokens, f->time.flops, f->time.hardware_flops, f->time.hidden,
            f->time.slowest);
    for (int part = 0; part < HKT_PLAN_PARTS; part++)
        fprintf(out, "%s\"%s\": %.9g", part ? ", " : "", hkt_plan_part_name(part), f->time.part[part]);
    fprintf(out, "}, \"sent\": {");
    for (int part = HKT_PLAN_TP; part <= HKT_PLAN_DP; part++)
        fprintf(out, "%s\"%s\": %.9g", part > HKT_PLAN_TP ? ", " : "", hkt_plan_part_name(part), f->time.sent[part]);
    fprintf(out, "}");
}

static void print_family(FILE *out, const hkt_plan_family_t *f)
{
    fprintf(out, "  {\"tp\": %d, \"cp\": %d, \"pp\": %d, \"dp\": %d, \"found\": %s", f->layout.tp, f->layout.cp,
            f->layout.pp, f->layout.dp, boolean(f->found));
    if (f->found) {
        print_plan(out, f);
    } else {
        fprintf(out, ", \"reason\": ");
        text(out, f->reason);
    }
    fprintf(out, ", \"timed\": %zu, \"skipped\": %zu, \"over\": %zu, \"refused\": %zu}", f->timed, f->skipped, f->over,
            f->refused);
}

static void print_stages(FILE *out, const struct plan_view *view)
{
    const hkt_plan_layout_t *l     = &view->family[0].layout;
    hkt_plan_stage_t        *stage = calloc((size_t)l->pp, sizeof(*stage));

    if (stage && hkt_plan_memory(stage, &view->job, l) == 0)
        for (int i = 0; i < l->pp; i++) {
            fprintf(
                out,
                "%s\n  {\"layers\": %d, \"parameters\": %.0f, \"in_flight\": %.0f, \"total\": %.0f, \"outside\": %.0f",
                i ? "," : "", stage[i].layers, stage[i].parameters, stage[i].in_flight, stage[i].total,
                stage[i].outside);
            for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
                fprintf(out, ", \"%s\": %.0f", hkt_bytes_name((hkt_bytes_t)kind), stage[i].bytes[kind]);
            fprintf(out, "}");
        }
    free(stage);
}

void plan_json(FILE *out, const struct plan_view *view)
{
    fprintf(out, "{\"command\": ");
    text(out, view->command);
    fprintf(out, ",\n");
    print_job(out, view);
    fprintf(
        out,
        " \"units\": {\"time\": \"s\", \"memory\": \"bytes\", \"flops\": \"FLOP/s of a device\"},\n \"families\": [\n");
    for (size_t i = 0; i < view->families; i++) {
        print_family(out, &view->family[i]);
        fprintf(out, i + 1 < view->families ? ",\n" : "],\n");
    }
    fprintf(out, " \"stages\": [");
    if (view->plans)
        print_stages(out, view);
    fprintf(out, "]}\n");
}
