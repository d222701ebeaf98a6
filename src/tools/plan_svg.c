/* plan_svg.c -- hkt-plan --svg: two panels of stacked bars, the memory of each stage of the best plan by class, and the
 * time of the best plans by where it goes.
 */
#include "plan.h"
#include "svg.h"

#include <math.h>
#include <stdlib.h>

enum {
    MARGIN     = 32,
    WIDTH      = 520,
    HEIGHT     = 300,
    GAP        = 60,
    LEFT       = 64,
    TOP        = 120,
    LEGEND     = 18,
    MOST_BARS  = 24,
    MOST_PLANS = 8
};

/* Okabe and Ito's colours again, by part. */
static const char *const colours[] = {"#0072b2", "#56b4e9", "#5f6b7a", "#d55e00", "#cc79a7",
                                      "#e69f00", "#b3a100", "#009e73", "#c9d1d9"};

struct bars {
    const char *title;
    double      x, most, base; /* left edge of the panel; the value at its top; units are powers of `base` */
    int         count, parts;
    double      value[MOST_BARS][HKT_PLAN_PARTS];
    char        label[MOST_BARS][24];
    const char *name[HKT_PLAN_PARTS];
    char *(*print)(char text[PLAN_TEXT], double value);
};

static double height_of(const struct bars *b, double value)
{
    return value / b->most * HEIGHT;
}

/* Between ticks: 1, 2 or 5 times a power of ten of the unit that the greatest value is printed in. */
static double tick_step(const struct bars *b)
{
    const double unit = pow(b->base, floor(log(b->most) / log(b->base) + 1e-9)), raw = b->most / unit / 5;
    const double power = pow(10, floor(log10(raw)));

    return unit * power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
}

static void draw_axes(FILE *f, const struct bars *b)
{
    const double step = tick_step(b);
    char         text[PLAN_TEXT];

    svg_text(f, b->x, TOP - 24, "class=\"panel\"", b->title);
    for (double at = 0; at <= b->most; at += step) {
        const double y = TOP + HEIGHT - height_of(b, at);

        fprintf(f, "<path d=\"M%.1f %.1f h%d\" stroke=\"#dfe3e8\"/>\n", b->x + LEFT, y, WIDTH - LEFT);
        svg_text(f, b->x + LEFT - 8, y + 4, "class=\"tick\" text-anchor=\"end\"", at > 0 ? b->print(text, at) : "0");
    }
}

static void draw_bars(FILE *f, const struct bars *b)
{
    const double each = (double)(WIDTH - LEFT) / b->count, wide = each * 0.72;

    draw_axes(f, b);
    for (int i = 0; i < b->count; i++) {
        const double x = b->x + LEFT + each * i + (each - wide) / 2;
        double       y = TOP + HEIGHT;

        for (int part = 0; part < b->parts; part++) {
            const double h = height_of(b, b->value[i][part]);

            if (h < 0.05)
                continue;
            y -= h;
            fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.2f\" fill=\"%s\"/>\n", x, y, wide, h,
                    colours[part]);
        }
        svg_text(f, x + wide / 2, TOP + HEIGHT + 16, "class=\"tick\" text-anchor=\"middle\"", b->label[i]);
    }
    for (int part = 0; part < b->parts; part++) {
        const double x = b->x + LEFT + part % 3 * 150, y = TOP + HEIGHT + 42 + part / 3 * LEGEND;

        fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>\n", x, y - 10, colours[part]);
        svg_text(f, x + 17, y, "class=\"legend\"", b->name[part]);
    }
}

/* Of many stages every k-th, and the last. */
static void draw_memory(FILE *f, const hkt_plan_stage_t *stage, int stages, const hkt_plan_job_t *job)
{
    struct bars  b    = {.title = "Memory of a device, by stage",
                         .x     = MARGIN,
                         .base  = 1024,
                         .parts = HKT_BYTES_CLASSES,
                         .print = plan_bytes};
    const int    step = (stages + MOST_BARS - 2) / (MOST_BARS - 1);
    const double y    = TOP + HEIGHT / 1.1;

    b.most = 1.1 * job->machine.memory;
    for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
        b.name[kind] = hkt_bytes_name((hkt_bytes_t)kind);
    for (int i = 0; i < stages; i++) {
        if (i % step && i != stages - 1)
            continue;
        for (int kind = 0; kind < HKT_BYTES_CLASSES; kind++)
            b.value[b.count][kind] = stage[i].bytes[kind];
        snprintf(b.label[b.count++], sizeof(b.label[0]), "%d", i);
    }
    draw_bars(f, &b);
    fprintf(f, "<path d=\"M%d %.1f h%d\" stroke=\"#cf222e\" stroke-dasharray=\"5 4\"/>\n", MARGIN + LEFT,
            TOP + HEIGHT - HEIGHT / 1.1, WIDTH - LEFT);
    svg_text(f, MARGIN + WIDTH, TOP + TOP + HEIGHT - y - 5, "class=\"tick\" text-anchor=\"end\"",
             "what a plan may use");
}

static void draw_time(FILE *f, const struct plan_view *view)
{
    struct bars b = {.title = "Seconds of a step, by plan: TP, PP, DP",
                     .x     = MARGIN + WIDTH + GAP,
                     .base  = 1000,
                     .parts = HKT_PLAN_PARTS,
                     .print = plan_seconds};

    for (int part = 0; part < HKT_PLAN_PARTS; part++)
        b.name[part] = hkt_plan_part_name(part);
    for (size_t i = 0; i < view->plans && i < MOST_PLANS; i++) {
        const hkt_plan_family_t *p = &view->family[i];

        for (int part = 0; part < HKT_PLAN_PARTS; part++)
            b.value[i][part] = p->time.part[part];
        snprintf(b.label[i], sizeof(b.label[i]), p->layout.cp > 1 ? "%d,%d,%d cp%d" : "%d,%d,%d", p->layout.tp,
                 p->layout.pp, p->layout.dp, p->layout.cp);
        b.most = p->time.step > b.most ? p->time.step : b.most;
        b.count++;
    }
    draw_bars(f, &b);
}

void plan_svg(FILE *f, const struct plan_view *view)
{
    const hkt_plan_layout_t *l     = &view->family[0].layout;
    hkt_plan_stage_t        *stage = calloc((size_t)l->pp, sizeof(*stage));
    char                     title[160], name[PLAN_TEXT];

    if (stage && hkt_plan_memory(stage, &view->job, l) == 0) {
        svg_begin(f, 2 * MARGIN + 2 * WIDTH + GAP, TOP + HEIGHT + 120);
        snprintf(title, sizeof(title), "%s on %s x %d", view->job.model.name, view->job.machine.name, view->job.world);
        svg_text(f, MARGIN, 38, "class=\"title\"", title);
        snprintf(title, sizeof(title), "best plan: %s, %d sequences a step", plan_family_name(name, l),
                 view->job.global_batch);
        svg_text(f, MARGIN, 59, "class=\"sub\"", title);
        draw_memory(f, stage, l->pp, &view->job);
        draw_time(f, view);
        svg_text(f, MARGIN, TOP + HEIGHT + 108, "class=\"note\"", view->command);
        fprintf(f, "</svg>\n");
    }
    free(stage);
}
