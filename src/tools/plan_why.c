/* plan_why.c -- about the best plan: where its time and its memory go, over which links, what binds it, and what its
 * neighbours would cost.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

enum { BAR = 40 };

static void print_bar(FILE *out, const char *name, double share, const char *value, const char *note)
{
    int filled = (int)(share * BAR + 0.5);

    fprintf(out, "  %-16s %9s %5.1f%%  ", name, value, 100 * share);
    for (; filled > 0; filled--)
        fputc('#', out);
    fprintf(out, "%s%s\n", *note ? " " : "", note);
}

static const char *link_name(const hkt_plan_machine_t *machine, int link)
{
    return link < 0 ? "nothing" : machine->link[link].name;
}

static void print_time(FILE *out, const hkt_plan_family_t *f, const hkt_plan_job_t *job)
{
    char value[PLAN_TEXT], note[128], sent[PLAN_TEXT];

    fprintf(out, "\nwhere the %s of a step go (stage %d is the slowest):\n", plan_seconds(value, f->time.step),
            f->time.slowest);
    for (int part = 0; part < HKT_PLAN_PARTS; part++) {
        const bool group = part == HKT_PLAN_TP || part == HKT_PLAN_CP || part == HKT_PLAN_PP || part == HKT_PLAN_DP;

        note[0] = 0;
        if (group && f->time.link[part] < 0)
            continue;
        if (group)
            snprintf(note, sizeof(note), "%s a device over %s", plan_bytes(sent, f->time.sent[part]),
                     link_name(&job->machine, f->time.link[part]));
        print_bar(out, hkt_plan_part_name(part), f->time.part[part] / f->time.step,
                  plan_seconds(value, f->time.part[part]), note);
    }
    if (f->time.hidden > 0)
        fprintf(out, "  %s more of communication are hidden behind computation\n", plan_seconds(value, f->time.hidden));
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void print_stage(FILE *out, const hkt_plan_stage_t *stage, int first, int last)
{
    char range[PLAN_TEXT], text[PLAN_TEXT];

    snprintf(range, sizeof(range), first == last ? "%d" : "%d-%d", first, last);
    fprintf(out, "  %-8s %6d %9s", range, stage->layers, plan_count(text, stage->parameters));
    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
        fprintf(out, " %13s", plan_bytes(text, stage->bytes[kind]));
    fprintf(out, " %10s\n", plan_bytes(text, stage->total));
}

static void print_memory(FILE *out, const hkt_plan_stage_t *stage, int stages, const hkt_plan_job_t *job)
{
    char text[PLAN_TEXT];

    fprintf(out, "\nmemory of a device, of %s:\n  %-8s %6s %9s", plan_bytes(text, job->machine.memory), "stage",
            "layers", "elements");
    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
        fprintf(out, " %13s", hkt_bytes_name((hkt_bytes_t)kind));
    fprintf(out, " %10s\n", "all");
    for (int first = 0, last; first < stages; first = last + 1) {
        for (last = first; last + 1 < stages && memcmp(&stage[last + 1], &stage[first], sizeof(*stage)) == 0;)
            last++;
        if (stages <= 16 || first < 4 || last >= stages - 2)
            print_stage(out, &stage[first], first, last);
        else if (first == 4)
            fprintf(out, "  ...\n");
    }
    if (stage[0].outside > 0)
        fprintf(out, "  and %s of optimizer state outside the device\n", plan_bytes(text, stage[0].outside));
}

/* Layers of chunk k of all stages x chunks. */
static int chunk_layers(const hkt_plan_layout_t *l, const hkt_plan_model_t *m, int k)
{
    hkt_plan_layout_t flat = *l;

    flat.pp     = l->pp * l->chunks;
    flat.chunks = 1;
    return hkt_plan_stage_layers(m, &flat, k);
}

/* "5,6*10,5": layers by virtual stage where they differ, as the runtime takes them. */
static void print_layers(FILE *out, const hkt_plan_layout_t *l, const hkt_plan_model_t *m)
{
    const int n = l->pp * l->chunks;

    if (l->pp == 1 || (l->head_layers == 0 && m->layers % n == 0))
        return;
    fprintf(out, "  layers by stage%s: ", l->chunks > 1 ? " and chunk" : "");
    for (int i = 0, run; i < n; i += run) {
        const int layers = chunk_layers(l, m, i);

        for (run = 1; i + run < n && chunk_layers(l, m, i + run) == layers;)
            run++;
        fprintf(out, run > 1 ? "%s%d*%d" : "%s%d", i ? "," : "", layers, run);
    }
    fprintf(out, "\n");
}

/* What each stage of ZeRO would keep and send here: three memories, three volumes. */
static void print_zero(FILE *out, const hkt_plan_stage_t *stage, const hkt_plan_family_t *f, const hkt_plan_job_t *job)
{
    const int n = f->layout.dp * f->layout.cp;
    char      a[PLAN_TEXT], b[PLAN_TEXT];

    if (n == 1)
        return;
    fprintf(out, "\nZeRO among %d, stage 0 of the pipeline: state of a device, elements it sends a step\n", n);
    for (int zero = 0; zero <= 3; zero++)
        fprintf(out, "  %c %d  %10s  %9s\n", zero == f->layout.zero ? '*' : ' ', zero,
                plan_bytes(a, hkt_plan_states(&job->bytes, stage->parameters, n, zero)),
                plan_count(b, hkt_plan_volume(stage->parameters, n, zero, f->time.micro_batches)));
}

/* ---- what binds -------------------------------------------------------------------------------------------------- */

static void print_greatest_loss(FILE *out, const hkt_plan_family_t *f, const hkt_plan_job_t *job)
{
    int    worst = HKT_PLAN_TRAFFIC;
    double share;

    for (int part = HKT_PLAN_TRAFFIC; part < HKT_PLAN_PARTS; part++)
        if (f->time.part[part] > f->time.part[worst])
            worst = part;
    share = f->time.part[HKT_PLAN_PRODUCTS] / f->time.step;
    if (share >= 0.5)
        fprintf(out, "  computation: products take %.0f %% of the step; the greatest loss is", 100 * share);
    else
        fprintf(out, "  not computation: products take only %.0f %% of the step; most of the rest is", 100 * share);
    fprintf(out, " %s", hkt_plan_part_name(worst));
    if (worst >= HKT_PLAN_TP && worst <= HKT_PLAN_DP)
        fprintf(out, " over %s", link_name(&job->machine, f->time.link[worst]));
    fprintf(out, ", %.1f %%\n", 100 * f->time.part[worst] / f->time.step);
}

/* The same family with all the memory there could be. */
static void print_memory_bound(FILE *out, const struct plan_view *view)
{
    const hkt_plan_family_t *best   = view->family;
    hkt_plan_job_t           job    = view->job;
    hkt_plan_layout_t        limits = view->limits;
    hkt_plan_family_t       *f;
    size_t                   n;
    char                     a[PLAN_TEXT], b[PLAN_TEXT], c[PLAN_TEXT];

    limits.tp          = best->layout.tp;
    limits.cp          = best->layout.cp;
    limits.pp          = best->layout.pp;
    limits.dp          = best->layout.dp;
    job.machine.memory = 1e30;
    if (hkt_plan_search(&f, &n, &job, &limits))
        return;
    if (f->found && f->time.step < 0.995 * best->time.step)
        fprintf(out,
                "  memory: with %s instead of %s it would take %s, %.1f %% less (ZeRO %d, %s recomputation, "
                "micro-batches of %d, %s)\n",
                plan_bytes(a, f->memory), plan_bytes(b, view->job.machine.memory), plan_seconds(c, f->time.step),
                100 * (1 - f->time.step / best->time.step), f->layout.zero,
                f->layout.recompute ? hkt_recompute_name(f->layout.recompute) : "no", f->layout.micro_batch,
                hkt_pipeline_name((hkt_pipeline_kind_t)f->layout.schedule));
    else
        fprintf(out, "  not memory: more of it would not make this layout faster\n");
    hkt_plan_search_free(f);
}

/* ---- neighbours -------------------------------------------------------------------------------------------------- */

/* Two sizes change against each other by the same least factor, the others stay. */
static bool is_neighbour(const hkt_plan_layout_t *a, const hkt_plan_layout_t *b)
{
    const int x[] = {a->tp, a->cp, a->pp, a->dp}, y[] = {b->tp, b->cp, b->pp, b->dp};
    int       more = 0, less = 0, factor = 1;

    for (int i = 0; i < 4; i++) {
        const int large = x[i] > y[i] ? x[i] : y[i], small = x[i] > y[i] ? y[i] : x[i];

        if (large == small)
            continue;
        if (large % small || (factor > 1 && large / small != factor))
            return false;
        factor = large / small;
        more += y[i] > x[i];
        less += y[i] < x[i];
    }
    return more == 1 && less == 1 && factor <= 3;
}

/* The part that costs most of the difference. */
static int costs_most(const hkt_plan_time_t *best, const hkt_plan_time_t *other)
{
    int part = 0;

    for (int i = 1; i < HKT_PLAN_PARTS; i++)
        if (other->part[i] - best->part[i] > other->part[part] - best->part[part])
            part = i;
    return part;
}

static void print_neighbours(FILE *out, const struct plan_view *view)
{
    const hkt_plan_family_t *best = view->family;
    char                     name[PLAN_TEXT], text[PLAN_TEXT], mine[PLAN_TEXT], other[PLAN_TEXT];

    fprintf(out, "\nits neighbours:\n");
    for (size_t i = 1; i < view->families; i++) {
        const hkt_plan_family_t *f = &view->family[i];

        if (!is_neighbour(&best->layout, &f->layout) || (!f->found && f->layout.cp != best->layout.cp))
            continue;
        fprintf(out, "  %-26s ", plan_family_name(name, &f->layout));
        if (f->found) {
            const int part = costs_most(&best->time, &f->time);

            fprintf(out, "%s, %.1f %% slower; most of it is %s: %s instead of %s\n", plan_seconds(text, f->time.step),
                    100 * (f->time.step / best->time.step - 1), hkt_plan_part_name(part),
                    plan_seconds(other, f->time.part[part]), plan_seconds(mine, best->time.part[part]));
        } else {
            fprintf(out, "%s\n", f->reason);
        }
    }
}

void plan_why(FILE *out, const struct plan_view *view)
{
    const hkt_plan_family_t *best  = view->family;
    hkt_plan_stage_t        *stage = calloc((size_t)best->layout.pp, sizeof(*stage));
    char                     name[PLAN_TEXT];

    if (!stage || hkt_plan_memory(stage, &view->job, &best->layout)) {
        fprintf(stderr, "hkt-plan: %s\n", stage ? hkt_last_error() : "out of memory");
        free(stage);
        return;
    }
    fprintf(out, "\n---- the best: %s\n", plan_family_name(name, &best->layout));
    print_time(out, best, &view->job);
    print_memory(out, stage, best->layout.pp, &view->job);
    print_layers(out, &best->layout, &view->job.model);
    print_zero(out, stage, best, &view->job);
    fprintf(out, "\nwhat binds it:\n");
    print_greatest_loss(out, best, &view->job);
    print_memory_bound(out, view);
    print_neighbours(out, view);
    free(stage);
}
