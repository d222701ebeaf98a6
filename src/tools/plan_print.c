/* plan_print.c -- the job, the table of the best plans, and why the other families of layouts have none. */
#include "plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Three digits and the unit that leaves 1 to 999 before the point. */
static char *scaled(char text[PLAN_TEXT], double value, double step, const char *const *unit)
{
    int i = 0;

    if (value <= 0) {
        snprintf(text, PLAN_TEXT, "0");
        return text;
    }
    for (; value >= step * 0.9995 && unit[i + 1]; i++)
        value /= step;
    snprintf(text, PLAN_TEXT, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit[i]);
    return text;
}

char *plan_bytes(char text[PLAN_TEXT], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", NULL};

    return scaled(text, bytes, 1024, units);
}

char *plan_count(char text[PLAN_TEXT], double count)
{
    static const char *const units[] = {"", "k", "M", "B", "T", NULL};

    return scaled(text, count, 1000, units);
}

char *plan_seconds(char text[PLAN_TEXT], double seconds)
{
    static const char *const units[] = {"us", "ms", "s", NULL};

    return scaled(text, seconds * 1e6, 1000, units);
}

char *plan_family_name(char text[PLAN_TEXT], const hkt_plan_layout_t *l)
{
    if (l->cp == 1)
        snprintf(text, PLAN_TEXT, "TP %d PP %d DP %d", l->tp, l->pp, l->dp);
    else
        snprintf(text, PLAN_TEXT, "TP %d CP %d PP %d DP %d", l->tp, l->cp, l->pp, l->dp);
    return text;
}

/* ---- the job ----------------------------------------------------------------------------------------------------- */

static void print_job(FILE *out, const struct plan_view *view)
{
    const hkt_plan_job_t     *j          = &view->job;
    const hkt_plan_model_t   *m          = &j->model;
    const hkt_plan_machine_t *k          = &j->machine;
    const double              parameters = hkt_plan_parameters(m), tokens = (double)j->global_batch * m->sequence;
    char                      a[PLAN_TEXT], b[PLAN_TEXT], c[PLAN_TEXT];

    fprintf(out, "%s: %s parameters, %d layers x %d, %d heads, %d tokens a sequence%s\n", m->name,
            plan_count(a, parameters), m->layers, m->hidden, m->heads, m->sequence,
            m->blocked ? ", blocked attention" : "");
    fprintf(out, "%s x %d: %s to use, %.3g TFLOP/s of %.3g reached", k->name, j->world, plan_bytes(a, k->memory),
            k->achieved / 1e12, k->peak / 1e12);
    for (int i = 0; i < k->links; i++) {
        fprintf(out, ", %s %.3g GB/s", k->link[i].name, k->link[i].bandwidth / 1e9);
        if (k->link[i].span)
            fprintf(out, " among %d", k->link[i].span);
    }
    fprintf(out, "\na step: %d sequences, %s tokens, %.4g FLOPs; a checkpoint: %s, its weights %s\n\n", j->global_batch,
            plan_count(a, tokens), hkt_plan_flops(m, j->global_batch, HKT_RECOMPUTE_NONE),
            plan_bytes(b, parameters * (j->bytes.parameter + j->bytes.optimizer)),
            plan_bytes(c, parameters * j->bytes.parameter));
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static void print_plan(FILE *out, size_t number, const hkt_plan_family_t *f, const hkt_plan_job_t *job)
{
    const hkt_plan_layout_t *l = &f->layout;
    const double             communication =
        f->time.part[HKT_PLAN_TP] + f->time.part[HKT_PLAN_CP] + f->time.part[HKT_PLAN_PP] + f->time.part[HKT_PLAN_DP];
    char memory[PLAN_TEXT], seconds[PLAN_TEXT], tokens[PLAN_TEXT], schedule[PLAN_TEXT], batch[PLAN_TEXT],
        mfu[PLAN_TEXT] = "-";

    snprintf(schedule, sizeof(schedule),
             l->pp == 1      ? "-"
             : l->chunks > 1 ? "%s %d"
                             : "%s",
             hkt_pipeline_name((hkt_pipeline_kind_t)l->schedule), l->chunks);
    snprintf(batch, sizeof(batch), "%d x %d", l->micro_batch, f->time.micro_batches);
    if (job->machine.peak > 0)
        snprintf(mfu, sizeof(mfu), "%.1f%%", 100 * f->time.flops / job->machine.peak);
    fprintf(out, "%4zu %4d %4d %4d %5d  %-14s %4d %-10s %3s %3s %9s %9s %9s %8s %6s %5.1f%% %5.1f%%\n", number, l->tp,
            l->cp, l->pp, l->dp, schedule, l->zero, hkt_recompute_name(l->recompute),
            l->sequence_parallel ? "yes" : "no", l->offload ? "yes" : "no", batch, plan_bytes(memory, f->memory),
            plan_seconds(seconds, f->time.step), plan_count(tokens, f->time.tokens), mfu,
            100 * communication / f->time.step, 100 * f->time.part[HKT_PLAN_BUBBLE] / f->time.step);
}

static void print_plans(FILE *out, const struct plan_view *view)
{
    fprintf(out, "%4s %4s %4s %4s %5s  %-14s %4s %-10s %3s %3s %9s %9s %9s %8s %6s %6s %6s\n", "", "TP", "CP", "PP",
            "DP", "schedule", "ZeRO", "recompute", "SP", "off", "batch", "memory", "step", "tokens/s", "MFU", "comm",
            "bubble");
    for (size_t i = 0; i < view->plans && i < view->shown; i++)
        print_plan(out, i + 1, &view->family[i], &view->job);
    if (view->plans > view->shown)
        fprintf(out, "     and %zu more, each the best of its TP, CP, PP and DP; --all shows them\n",
                view->plans - view->shown);
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

static void print_counts(FILE *out, const struct plan_view *view)
{
    size_t over = 0, refused = 0, timed = 0, skipped = 0, no_room = 0;

    for (size_t i = 0; i < view->families; i++) {
        over += view->family[i].over;
        refused += view->family[i].refused;
        timed += view->family[i].timed;
        skipped += view->family[i].skipped;
        no_room += !view->family[i].found && view->family[i].memory > 0;
    }
    fprintf(out,
            "%zu families of TP, CP, PP and DP: %zu have a plan, %zu do not fit into memory, %zu break a rule.\n"
            "Variants: %zu simulated, %zu cannot be faster than those, %zu need too much memory, %zu break a rule.\n",
            view->families, view->plans, no_room, view->families - view->plans - no_room, timed, skipped, over,
            refused);
}

/* Families with the same reason are one line: the first of them is named, the others counted. */
static void print_reasons(FILE *out, const struct plan_view *view)
{
    const hkt_plan_family_t *f     = view->family;
    size_t                   lines = 0, left = 0;
    char                     name[PLAN_TEXT];

    if (view->plans == view->families)
        return;
    fprintf(out, "\nwithout a plan, those that came nearest first:\n");
    for (size_t i = view->plans; i < view->families; i++) {
        size_t same = 0;
        bool   told = false;

        for (size_t k = view->plans; k < i && !told; k++)
            told = strcmp(f[k].reason, f[i].reason) == 0;
        if (told)
            continue;
        if (lines++ >= view->shown) {
            left++;
            continue;
        }
        for (size_t k = i + 1; k < view->families; k++)
            same += strcmp(f[k].reason, f[i].reason) == 0;
        fprintf(out, "  %s", plan_family_name(name, &f[i].layout));
        if (same)
            fprintf(out, " and %zu more", same);
        fprintf(out, ": %s\n", f[i].reason);
    }
    if (left)
        fprintf(out, "  and %zu more reasons; --all shows them\n", left);
}

void plan_print(FILE *out, const struct plan_view *view)
{
    print_job(out, view);
    if (view->plans)
        print_plans(out, view);
    else
        fprintf(out, "There is no plan.\n");
    fprintf(out, "\n");
    print_counts(out, view);
    print_reasons(out, view);
}

/* ---- --sweep-world ----------------------------------------------------------------------------------------------- */

void plan_sweep(FILE *out, const struct plan_view *view, const char *worlds, const struct flags *flags)
{
    char  *words = strdup(worlds), *rest = words, *word;
    double one = 0;

    fprintf(out, "%7s  %-28s %9s %9s %10s %6s %8s\n", "devices", "layout", "memory", "step", "tokens/s", "MFU",
            "scaling");
    while ((word = strsep(&rest, ",")) != NULL) {
        hkt_plan_job_t     job = view->job;
        hkt_plan_family_t *f;
        size_t             n;
        char              *end, name[PLAN_TEXT], memory[PLAN_TEXT], seconds[PLAN_TEXT], tokens[PLAN_TEXT];
        const long         world = strtol(word, &end, 10);

        if (end == word || *end || world < 1 || world > 1 << 20)
            flags_fail(flags, "--sweep-world %s: numbers of devices with commas are expected", worlds);
        job.world = (int)world;
        if (hkt_plan_search(&f, &n, &job, &view->limits))
            flags_fail(flags, "%ld devices: %s", world, hkt_last_error());
        if (f->found) {
            one = one > 0 ? one : f->time.tokens / (double)world;
            fprintf(out, "%7ld  %-28s %9s %9s %10s %5.1f%% %7.1f%%\n", world, plan_family_name(name, &f->layout),
                    plan_bytes(memory, f->memory), plan_seconds(seconds, f->time.step),
                    plan_count(tokens, f->time.tokens),
                    job.machine.peak > 0 ? 100 * f->time.flops / job.machine.peak : 0,
                    100 * f->time.tokens / (double)world / one);
        } else {
            fprintf(out, "%7ld  no plan; %s: %s\n", world, plan_family_name(name, &f->layout), f->reason);
        }
        hkt_plan_search_free(f);
    }
    free(words);
}
