/* simulate_svg.c -- pictures of hkt-simulate: time and distance from the bound over size, and one run as lanes of ranks. */
#include "simulate.h"

#include "svg.h"

#include <stdlib.h>
#include <string.h>

enum { CURVES = 9 /* and the bound */, LANES = 64 };

struct curve {
    char   name[64];
    double x[SIMULATE_SIZES], time[SIMULATE_SIZES], ratio[SIMULATE_SIZES];
    size_t count;
};

/* ---- time over size ----------------------------------------------------------------------------------------------- */

static const struct hkt_offer *find(const struct simulate_row *row, const char *name)
{
    char text[64];

    for (int k = 0; k < row->count; k++)
        if (!row->offer[k].why[0] && !strcmp(hkt_offer_name(&row->offer[k], text), name))
            return &row->offer[k];
    return NULL;
}

static bool add_name(struct curve *curve, int *curves, const struct hkt_offer *o)
{
    char name[64];

    hkt_offer_name(o, name);
    for (int i = 0; i < *curves; i++)
        if (!strcmp(curve[i].name, name))
            return true;
    if (*curves == CURVES)
        return false;
    strcpy(curve[(*curves)++].name, name);
    return true;
}

/* The best of every size first, then the second best .., as long as there is room. */
static int choose_curves(const struct simulate_view *view, struct curve *curve)
{
    int curves = 0;

    for (int place = 0; place < HKT_OFFERS_MOST; place++)
        for (int i = 0; i < view->sizes; i++)
            if (place < view->row[i].count && !view->row[i].offer[place].why[0] && !add_name(curve, &curves, &view->row[i].offer[place]))
                return curves;
    return curves;
}

static void fill(const struct simulate_view *view, struct curve *c)
{
    for (int i = 0; i < view->sizes; i++) {
        const struct hkt_offer *o = find(&view->row[i], c->name);

        if (!o)
            continue;
        c->x[c->count]       = view->row[i].bytes;
        c->time[c->count]    = o->result.seconds;
        c->ratio[c->count++] = o->result.seconds / view->row[i].bound;
    }
}

void simulate_svg(FILE *out, const struct simulate_view *view)
{
    struct curve     *curve = calloc(CURVES + 1, sizeof(*curve));
    struct svg_series time[CURVES + 1], ratio[CURVES];
    struct svg_panel  panel[2];
    char              title[128], subtitle[200];
    int               n;

    if (!curve)
        return;
    n = choose_curves(view, curve);
    for (int i = 0; i < n; i++) {
        fill(view, &curve[i]);
        time[i]  = (struct svg_series){curve[i].name, curve[i].x, curve[i].time, curve[i].count, i % 8, i >= 8};
        ratio[i] = (struct svg_series){curve[i].name, curve[i].x, curve[i].ratio, curve[i].count, i % 8, i >= 8};
    }
    strcpy(curve[n].name, "lower bound");
    for (int i = 0; i < view->sizes; i++) {
        curve[n].x[i]    = view->row[i].bytes;
        curve[n].time[i] = view->row[i].bound;
    }
    time[n]  = (struct svg_series){curve[n].name, curve[n].x, curve[n].time, (size_t)view->sizes, 6, true};
    panel[0] = (struct svg_panel){"time", "size", SVG_BYTES, SVG_SECONDS, time, (size_t)n + 1};
    panel[1] = (struct svg_panel){"time / lower bound", "size", SVG_BYTES, SVG_RATIO, ratio, (size_t)n};
    snprintf(title, sizeof(title), "%s over %d ranks, simulated", hkt_coll_name[view->question.coll], hkt_fabric_ranks(&view->fabric));
    snprintf(subtitle, sizeof(subtitle), "%s: %d hosts of %d; %s, %s", view->fabric.name, view->fabric.hosts, view->fabric.per_host,
             view->fabric.window > 1 ? "steps run ahead" : "steps in order", view->fabric.depth ? "FIFOs with an end" : "endless FIFOs");
    svg_write(out, &(struct svg_page){title, subtitle, panel, 2, view->source});
    free(curve);
}

/* ---- lanes -------------------------------------------------------------------------------------------------------- */

enum { LEFT = 70, TOP = 92, WIDTH = 1000, LANE = 26, MARGIN = 32 };

struct spans {
    struct hkt_sim_span *span;
    size_t               count, cap;
    bool                 full;
};

static void keep(void *context, const struct hkt_sim_span *span)
{
    struct spans *s = context;

    if (span->rank >= LANES)
        return;
    if (s->count == s->cap) {
        void *more = s->cap < 1 << 20 ? realloc(s->span, (s->cap ? 2 * s->cap : 256) * sizeof(*s->span)) : NULL;

        if (!more) {
            s->full = true;
            return;
        }
        s->span = more;
        s->cap  = s->cap ? 2 * s->cap : 256;
    }
    s->span[s->count++] = *span;
}

static double y_of(int rank)
{
    return TOP + rank * LANE;
}

/* A message: a thin bar on the sender's lane while it leaves and travels, and a line to where it arrives. Work: a thick one. */
static void draw_span(FILE *f, const struct hkt_sim_span *s, double scale, int lanes)
{
    const double x = LEFT + s->begin * scale, width = (s->end - s->begin) * scale;

    if (s->peer < 0) {
        fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"9\" fill=\"#009e73\"/>\n", x, y_of(s->rank) + 1, width > 0.4 ? width : 0.4);
        return;
    }
    fprintf(f, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"7\" fill=\"#56b4e9\" fill-opacity=\"0.55\" stroke=\"#0072b2\" stroke-width=\"0.4\"/>\n", x,
            y_of(s->rank) + 12, width > 0.4 ? width : 0.4);
    if (s->peer < lanes)
        fprintf(f, "<path d=\"M%.2f %.1f L%.2f %.1f\" stroke=\"#8b949e\" stroke-width=\"0.6\" opacity=\"0.7\"/>\n", x, y_of(s->rank) + 15.5, x + width,
                y_of(s->peer) + 5.5);
}

static void draw_lanes(FILE *f, const struct simulate_view *view, const struct hkt_offer *o, const struct spans *s, const struct hkt_sim_result *r)
{
    const int    lanes = r->ranks < LANES ? (int)r->ranks : LANES, height = TOP + lanes * LANE + 64;
    const double scale = r->seconds > 0 ? WIDTH / r->seconds : 0;
    char         text[200], name[64], time[SIMULATE_TEXT], why[200];

    svg_begin(f, LEFT + WIDTH + MARGIN, height);
    snprintf(text, sizeof(text), "%s %s over %d ranks: %s", hkt_offer_name(o, name), hkt_coll_name[view->question.coll],
             hkt_fabric_ranks(&view->fabric), simulate_seconds(r->seconds, time));
    svg_text(f, MARGIN, 38, "class=\"title\"", text);
    svg_text(f, MARGIN, 59, "class=\"sub\"", hkt_offer_reason(&(struct hkt_offer){.result = *r}, why));
    for (int i = 0; i <= 5; i++) {
        fprintf(f, "<path d=\"M%.1f %d V%d\" stroke=\"#dfe3e8\"/>\n", LEFT + i * WIDTH / 5.0, TOP - 8, TOP + lanes * LANE);
        svg_text(f, LEFT + i * WIDTH / 5.0, TOP + lanes * LANE + 16, "class=\"tick\" text-anchor=\"middle\"", simulate_seconds(r->seconds * i / 5, time));
    }
    for (int i = 0; i < lanes; i++) {
        snprintf(text, sizeof(text), "rank %d", i);
        svg_text(f, LEFT - 10, y_of(i) + 14, "class=\"tick\" text-anchor=\"end\"", text);
    }
    for (size_t i = 0; i < s->count; i++)
        draw_span(f, &s->span[i], scale, lanes);
    snprintf(text, sizeof(text), "green: the processor; blue: a message from its first byte on the port until it is there; grey: to whom%s%s",
             (int)r->ranks > lanes ? "; only the first ranks are drawn" : "", s->full ? "; not all is drawn" : "");
    svg_text(f, MARGIN, height - 16, "class=\"note\"", text);
    fprintf(f, "</svg>\n");
}

int simulate_timeline(FILE *out, const struct simulate_view *view, const struct hkt_offer *o, double bytes)
{
    const struct hkt_fabric *f         = &view->fabric;
    int *const               start     = calloc((size_t)f->hosts + 1, sizeof(*start));
    const struct hkt_shape   shape     = {.coll        = view->question.coll,
                                          .size        = hkt_fabric_ranks(f),
                                          .root        = view->question.root,
                                          .ngroups     = f->hosts > 1 && f->per_host > 1 ? f->hosts : 0,
                                          .group_start = start,
                                          .inner       = o->inner,
                                          .outer       = o->outer};
    struct spans              spans    = {0};
    const struct hkt_sim_load load     = {.bytes = bytes, .slices = view->question.slices, .trace = keep, .context = &spans};
    struct hkt_simulator     *sim      = NULL;
    struct hkt_sim_result     result;
    int                       rc;

    for (int h = 0; start && h <= f->hosts; h++)
        start[h] = h * f->per_host;
    rc = hkt_simulator_open(&sim, o->algorithm, &shape, f, shape.size <= LANES);
    if (rc == 0)
        rc = hkt_simulator_run(sim, &load, &result);
    if (rc == 0)
        draw_lanes(out, view, o, &spans, &result);
    hkt_simulator_close(sim);
    free(spans.span);
    free(start);
    return rc;
}
