/* info_drawing.c -- hkt-info --svg: a machine as a picture. Boxes lie in one another as the objects do: processors above, devices below, GPUs
 * at the bottom, where the links between them run; the class of a link is its colour. Hosts that are alike are drawn once, and the others
 * are tiles in a row, those of one leaf switch next to one another.
 */
#include "info.h"

#include "base/error.h"
#include "setup/graph.h"
#include "setup/topology_value.h"
#include "svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    PAD         = 10,
    GAP         = 8,
    HEAD        = 24,
    CORE_WIDTH  = 25,
    CORE_HEIGHT = 20,
    CARD_WIDTH  = 104,
    CARD_HEIGHT = 50,
    CARD_WIDEST = 150,
    EDGE        = 32,
    TOP         = 104,
    BAR         = 30, /* of a fabric */
    TILE        = 30,
    LIST        = 1024,
    TILES       = 128,
    GPUS        = 256
};

/* In what order the content of a box comes, each part a grid of equal cells. */
enum part { CORES, BOXES, NICS, SWITCHES, CARDS, PARTS };

struct box {
    double width, height;
};

struct place {
    double x, y;
};

struct grid {
    int        list[LIST], count, columns, rows;
    struct box cell, all;
};

/* Where the GPUs of the host have come to be: the middles of their lower edges. */
struct picture {
    FILE                      *f;
    const struct hkt_topology *t;
    int                        gpu[GPUS], gpus;
    double                     x[GPUS], y[GPUS];
};

static const struct {
    const char *fill, *line;
} colour[HKT_OBJECT_KINDS] = {
    [HKT_OBJECT_HOST] = {"#fafbfc", "#b6bfc9"},   [HKT_OBJECT_SOCKET] = {"#eff2f6", "#b6bfc9"}, [HKT_OBJECT_NUMA] = {"#f9fbf4", "#b9c9a6"},
    [HKT_OBJECT_CACHE] = {"#fdf3dc", "#e0c998"},  [HKT_OBJECT_CORE] = {"#d6e6f4", "#a9c4dc"},   [HKT_OBJECT_SWITCH] = {"#f6ebf2", "#cc79a7"},
    [HKT_OBJECT_GPU] = {"#ddf3ea", "#009e73"},    [HKT_OBJECT_NIC] = {"#dcebf7", "#0072b2"},    [HKT_OBJECT_FABRIC] = {"#009e73", "#00775a"}};

static const char *const class_colour[HKT_CLASSES] = {[HKT_CLASS_NVLINK] = "#009e73", [HKT_CLASS_XGMI] = "#d55e00"};

/* ---- what is where ----------------------------------------------------------------------------------------------- */

static int cores(const struct hkt_topology *t, int object)
{
    return hkt_object_count(t, object, HKT_OBJECT_CORE);
}

/* A cache of one core says nothing that the core does not. */
static bool shown(const struct hkt_topology *t, int object)
{
    return t->object[object].kind != HKT_OBJECT_CACHE || cores(t, object) > 1;
}

static enum part part_of(enum hkt_object_kind kind)
{
    switch (kind) {
    case HKT_OBJECT_CORE:
        return CORES;
    case HKT_OBJECT_SWITCH:
        return SWITCHES;
    case HKT_OBJECT_NIC:
        return NICS;
    case HKT_OBJECT_GPU:
        return CARDS;
    case HKT_OBJECT_FABRIC:
        return PARTS;
    default:
        return BOXES;
    }
}

static void list(const struct hkt_topology *t, int object, enum part part, struct grid *g)
{
    for (int o = object + 1; o < t->object[object].end; o = t->object[o].end) {
        if (!shown(t, o))
            list(t, o, part, g);
        else if (part_of(t->object[o].kind) == part && g->count < LIST)
            g->list[g->count++] = o;
    }
}

static struct box size_of(const struct hkt_topology *t, int object);

static int columns_of(const struct grid *g, enum part part)
{
    int columns = 8;

    if (part == CORES)
        columns = g->count <= 8 ? g->count : (int)fmin(16, ceil(sqrt(3.0 * g->count)));
    else if (part == BOXES && g->count > 4) /* about twice as wide as high */
        columns = (int)ceil(sqrt(2.0 * g->count * g->cell.height / g->cell.width));
    return columns < 1 ? 1 : columns > g->count ? g->count : columns;
}

static void measure(const struct hkt_topology *t, int object, enum part part, struct grid *g)
{
    const int gap = part == CORES ? 2 : GAP;

    g->count = 0;
    g->cell = g->all = (struct box){0, 0};
    list(t, object, part, g);
    for (int i = 0; i < g->count; i++) {
        const struct box b = size_of(t, g->list[i]);

        g->cell.width  = fmax(g->cell.width, b.width);
        g->cell.height = fmax(g->cell.height, b.height);
    }
    if (!g->count)
        return;
    g->columns    = columns_of(g, part);
    g->rows       = (g->count + g->columns - 1) / g->columns;
    g->all.width  = g->columns * (g->cell.width + gap) - gap;
    g->all.height = g->rows * (g->cell.height + gap) - gap;
}

static struct box size_of(const struct hkt_topology *t, int object)
{
    const enum hkt_object_kind kind = t->object[object].kind;
    struct box                 box  = {0, HEAD};
    struct grid                g;
    char                       text[HKT_DESCRIPTION];

    if (kind == HKT_OBJECT_CORE)
        return (struct box){CORE_WIDTH, CORE_HEIGHT};
    if (kind == HKT_OBJECT_GPU || kind == HKT_OBJECT_NIC)
        return (struct box){CARD_WIDTH, CARD_HEIGHT};
    for (int part = 0; part < PARTS; part++) {
        measure(t, object, (enum part)part, &g);
        box.width = fmax(box.width, g.all.width);
        box.height += g.count ? g.all.height + GAP : 0;
    }
    hkt_object_describe(&t->object[object], text);
    box.width = fmax(box.width, fmin(230, 6.3 * (double)(strlen(text) + 12)));
    box.width += 2 * PAD;
    box.height += PAD - GAP + (box.height > HEAD ? 0 : GAP);
    return box;
}

/* ---- drawing ----------------------------------------------------------------------------------------------------- */

/* As many characters of the words as fit into the width. */
static void words(FILE *f, struct place at, double width, const char *style, const char *text)
{
    const int room = (int)(width / 6.1);
    char      cut[HKT_DESCRIPTION];

    if ((int)strlen(text) <= room)
        snprintf(cut, sizeof(cut), "%s", text);
    else
        snprintf(cut, sizeof(cut), "%.*s…", room > 1 ? room - 1 : 0, text);
    svg_text(f, at.x, at.y, style, cut);
}

static void rectangle(FILE *f, struct place at, struct box b, const char *fill, const char *line)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"5\" fill=\"%s\" stroke=\"%s\"/>\n", at.x, at.y, b.width, b.height,
            fill, line);
}

static void draw_core(const struct picture *p, const struct hkt_object *o, double x, double y)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", o->number);
    rectangle(p->f, (struct place){x, y}, (struct box){CORE_WIDTH, CORE_HEIGHT}, o->slow ? "#efedf7" : colour[HKT_OBJECT_CORE].fill,
              o->slow ? "#c6c0de" : colour[HKT_OBJECT_CORE].line);
    svg_text(p->f, x + CORE_WIDTH / 2.0, y + CORE_HEIGHT / 2.0 + 3.5, "class=\"tick\" style=\"font-size:9.5px\" text-anchor=\"middle\"", text);
}

/* "gpu 3 H100" above "80 GiB, 63 GB/s"; a NIC its name and bandwidth, and its leaf switch. */
static void draw_card(struct picture *p, int object, double x, double y, double width)
{
    const struct hkt_object *o = &p->t->object[object];
    char                     first[64], second[HKT_DESCRIPTION];
    struct hkt_object        less = *o;

    less.name[0] = less.bus[0] = 0;
    less.leaf                  = HKT_LEAF_UNKNOWN;
    hkt_object_describe(&less, second);
    snprintf(first, sizeof(first), "%s %d", hkt_object_name[o->kind], o->number);
    if (o->leaf >= 0)
        snprintf(first + strlen(first), 20, " · leaf %d", o->leaf);
    rectangle(p->f, (struct place){x, y}, (struct box){width, CARD_HEIGHT}, colour[o->kind].fill, colour[o->kind].line);
    svg_text(p->f, x + 7, y + 15, "class=\"tick\" style=\"font-weight:600;fill:#1f2328\"", first);
    words(p->f, (struct place){x + 7, y + 29}, width - 8, "class=\"tick\"", o->name);
    words(p->f, (struct place){x + 7, y + 43}, width + 4, "class=\"tick\" style=\"font-size:10.5px\"", second);
    if (o->kind == HKT_OBJECT_GPU && p->gpus < GPUS) {
        p->gpu[p->gpus] = object;
        p->x[p->gpus]   = x + width / 2;
        p->y[p->gpus++] = y + CARD_HEIGHT;
    }
}

static void draw(struct picture *p, int object, double x, double y, struct box box);

/* Boxes take the width that there is, cards some of it, and cores as many columns as fit. */
static void draw_grid(struct picture *p, struct grid *g, enum part part, struct place at, double width)
{
    const int gap = part == CORES ? 2 : GAP;
    double    cell;

    if (part == CORES)
        g->columns = (int)fmin(g->count, (width + gap) / (g->cell.width + gap));
    cell = part == CORES ? g->cell.width : fmax(g->cell.width, (width + gap) / g->columns - gap);
    if (part == NICS || part == CARDS)
        cell = fmin(cell, CARD_WIDEST);
    for (int i = 0; i < g->count; i++)
        draw(p, g->list[i], at.x + (i % g->columns) * (cell + gap), at.y + (i / g->columns) * (g->cell.height + gap),
             (struct box){cell, g->cell.height});
}

static void draw_head(const struct picture *p, int object, double x, double y, double width)
{
    const struct hkt_object *o = &p->t->object[object];
    char                     text[HKT_DESCRIPTION], head[HKT_DESCRIPTION + 32];
    struct hkt_object        less = *o;

    less.bus[0] = 0;
    hkt_object_describe(&less, text);
    if (o->kind == HKT_OBJECT_CACHE)
        snprintf(head, sizeof(head), "L%d %s", o->level, text);
    else if (o->kind == HKT_OBJECT_SWITCH)
        snprintf(head, sizeof(head), "%s", o->name[0] ? o->name : "PCIe switch");
    else
        snprintf(head, sizeof(head), "%s %d%s%s", hkt_object_name[o->kind], o->number, text[0] ? "  ·  " : "", text);
    words(p->f, (struct place){x + PAD, y + 16}, width - 2 * PAD + 12, "class=\"tick\"", head);
}

static double devices_height(const struct grid g[PARTS])
{
    double height = 0;

    for (int part = NICS; part < PARTS; part++)
        height += g[part].count ? g[part].all.height + (height > 0 ? GAP : 0) : 0;
    return height;
}

static void draw(struct picture *p, int object, double x, double y, struct box box)
{
    const struct hkt_object *o = &p->t->object[object];
    struct grid              g[PARTS];
    double                   top = y + HEAD, rest = box.height - PAD - HEAD;

    if (o->kind == HKT_OBJECT_CORE) {
        draw_core(p, o, x, y);
        return;
    }
    if (o->kind == HKT_OBJECT_GPU || o->kind == HKT_OBJECT_NIC) {
        draw_card(p, object, x, y, box.width);
        return;
    }
    if (o->kind != HKT_OBJECT_HOST) /* whose box has the links in it, too */
        rectangle(p->f, (struct place){x, y}, box, colour[o->kind].fill, colour[o->kind].line);
    draw_head(p, object, x, y, box.width);
    for (int part = 0; part < PARTS; part++)
        measure(p->t, object, (enum part)part, &g[part]);
    for (int part = 0; part < PARTS; part++)
        rest -= g[part].count && part != BOXES ? g[part].all.height + GAP : 0;
    if (g[BOXES].rows == 1 && g[BOXES].count) /* one row takes all the height that is left */
        g[BOXES].cell.height = g[BOXES].all.height = rest;
    for (int part = 0; part < PARTS; part++) {
        if (part == NICS) /* devices stand at the bottom */
            top = y + box.height - PAD - devices_height(g);
        if (g[part].count)
            draw_grid(p, &g[part], (enum part)part, (struct place){x + PAD, top}, box.width - 2 * PAD);
        top += g[part].count ? g[part].all.height + GAP : 0;
    }
}

/* ---- links ------------------------------------------------------------------------------------------------------- */

static int place_of(const struct picture *p, int object)
{
    for (int i = 0; i < p->gpus; i++)
        if (p->gpu[i] == object)
            return i;
    return -1;
}

/* How far below the host its arcs or fabrics go. */
static double depth_of(const struct hkt_topology *t, int host, double width)
{
    const int fabrics = hkt_object_count(t, host, HKT_OBJECT_FABRIC);

    if (fabrics)
        return 34 + fabrics * (BAR + GAP);
    return t->wires && t->wire[0].a < t->object[host].end ? fmin(150, 40 + width * 0.1) : 0;
}

/* Arcs whose depth is their width, drawn as heavy as they are fast. */
static void draw_arcs(const struct picture *p, double bottom, double depth)
{
    double widest = 1, slowest = INFINITY;

    for (int w = 0; w < p->t->wires; w++) {
        const int a = place_of(p, p->t->wire[w].a), b = place_of(p, p->t->wire[w].b);

        if (a < 0 || b < 0)
            continue;
        widest  = fmax(widest, fabs(p->x[a] - p->x[b]));
        slowest = fmin(slowest, hkt_gpu_link_bandwidth(p->t, &p->t->wire[w]));
    }
    for (int w = 0; w < p->t->wires; w++) {
        const struct hkt_gpu_link *wire = &p->t->wire[w];
        const int              a = place_of(p, wire->a), b = place_of(p, wire->b);
        double                 reach;

        if (a < 0 || b < 0)
            continue;
        reach = bottom + 10 + (depth - 26) * fabs(p->x[a] - p->x[b]) / widest; /* a Bezier curve comes three quarters of the way */
        reach = (reach - p->y[a] / 4) * 4 / 3;
        fprintf(p->f, "<path d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" opacity=\"0.75\"/>\n",
                p->x[a], p->y[a], p->x[a], reach, p->x[b], reach, p->x[b], p->y[b], class_colour[wire->class],
                fmin(5, 1.6 * hkt_gpu_link_bandwidth(p->t, wire) / slowest));
    }
}

/* Bars that all GPUs of a fabric are tied to. */
static void draw_fabrics(const struct picture *p, int host, double y)
{
    for (int n = 0, o; (o = hkt_object_find(p->t, host, HKT_OBJECT_FABRIC, n)) >= 0; n++, y += BAR + GAP) {
        double low = INFINITY, high = 0;

        for (int w = 0; w < p->t->wires; w++) {
            const int g = place_of(p, p->t->wire[w].a == o ? p->t->wire[w].b : p->t->wire[w].a);

            if (g < 0 || (p->t->wire[w].a != o && p->t->wire[w].b != o))
                continue;
            low  = fmin(low, p->x[g]);
            high = fmax(high, p->x[g]);
            fprintf(p->f, "<path d=\"M%.1f %.1f V%.1f\" stroke=\"%s\" stroke-width=\"2.5\"/>\n", p->x[g], p->y[g], y,
                    class_colour[p->t->wire[w].class]);
        }
        if (high <= 0)
            continue;
        rectangle(p->f, (struct place){low - CARD_WIDTH / 2.0, y}, (struct box){high - low + CARD_WIDTH, BAR}, colour[HKT_OBJECT_FABRIC].fill,
                  colour[HKT_OBJECT_FABRIC].line);
        svg_text(p->f, (low + high) / 2, y + 19, "class=\"legend\" style=\"fill:#fff;font-weight:600\" text-anchor=\"middle\"",
                 p->t->object[o].name[0] ? p->t->object[o].name : "fabric");
    }
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

/* A line of the legend at x; where the next one goes. */
static double entry(FILE *f, double x, double y, const char *mark, const char *text)
{
    fprintf(f, "<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"%d\" rx=\"2\" fill=\"%s\"/>\n", x, y - 8, 8, mark);
    svg_text(f, x + 22, y, "class=\"legend\"", text);
    return x + 44 + 6.6 * (double)strlen(text);
}

static void draw_legend(const struct picture *p, int host, double y)
{
    const struct hkt_topology *t = p->t;
    double                     x = EDGE;
    char                       text[96], rate[HKT_VALUE_TEXT];

    for (int class = HKT_CLASS_NVLINK; class <= HKT_CLASS_XGMI; class++) {
        double low = INFINITY, high = 0;

        for (int w = 0; w < t->wires; w++)
            if ((int)t->wire[w].class == class) {
                low  = fmin(low, t->wire[w].bandwidth);
                high = fmax(high, t->wire[w].bandwidth);
            }
        snprintf(text, sizeof(text), "%s", class == HKT_CLASS_NVLINK ? "NVLink" : "xGMI");
        if (low < high)
            snprintf(text + strlen(text), 40, ", %.4g to", low / 1e9);
        if (high > 0)
            snprintf(text + strlen(text), 40, low < high ? " %s" : ", %s", hkt_text_rate(high, false, rate));
        if (low < INFINITY)
            x = entry(p->f, x, y, class_colour[class], text);
    }
    if (hkt_object_count(t, host, HKT_OBJECT_SWITCH))
        x = entry(p->f, x, y, colour[HKT_OBJECT_SWITCH].line, "PCIe switch");
    if (hkt_object_count(t, host, HKT_OBJECT_NIC))
        x = entry(p->f, x, y, colour[HKT_OBJECT_NIC].line, "NIC");
    for (int o = host; o < t->object[host].end; o++)
        if (t->object[o].slow) {
            entry(p->f, x, y, "#c6c0de", "slower core");
            break;
        }
}

static int leaf_of(const struct hkt_topology *t, int host)
{
    const int nic = hkt_object_find(t, host, HKT_OBJECT_NIC, 0);

    return nic < 0 ? HKT_LEAF_UNKNOWN : t->object[nic].leaf;
}

/* A tile for every host, with a gap where another leaf switch begins. Its height; nothing is drawn without a file. */
static double draw_tiles(FILE *f, const struct hkt_topology *t, double y, double width)
{
    const int hosts = hkt_object_count(t, 0, HKT_OBJECT_HOST);
    double    x = EDGE, top = y + 22;
    int       leaf = HKT_LEAF_UNKNOWN, o = 1;
    char      text[64];

    if (hosts < 2)
        return 0;
    snprintf(text, sizeof(text), hosts > TILES ? "the first %2$d of %1$d hosts" : "%d hosts", hosts, TILES);
    if (f)
        svg_text(f, x, y + 10, "class=\"tick\"", text);
    for (int h = 0; h < hosts && h < TILES; h++, o = t->object[o].end) {
        if (h && leaf_of(t, o) != leaf)
            x += 14;
        if (x + TILE > width - EDGE) {
            x = EDGE;
            top += TILE + 4;
        }
        leaf = leaf_of(t, o);
        snprintf(text, sizeof(text), "%d", h);
        if (f) {
            rectangle(f, (struct place){x, top}, (struct box){TILE - 4, TILE - 6}, hkt_objects_alike(t, 1, o) ? "#eff2f6" : "#fdf3dc", "#b6bfc9");
            svg_text(f, x + TILE / 2.0 - 2, top + 16, "class=\"tick\" style=\"font-size:9.5px\" text-anchor=\"middle\"", text);
        }
        x += TILE;
    }
    return top + TILE - y;
}

static void draw_title(const struct picture *p, int host)
{
    static const struct {
        enum hkt_object_kind kind;
        const char          *name;
    } counted[] = {{HKT_OBJECT_CORE, "core"}, {HKT_OBJECT_GPU, "GPU"}, {HKT_OBJECT_NIC, "NIC"}};
    const int hosts = hkt_object_count(p->t, 0, HKT_OBJECT_HOST);
    char      text[160];
    int       n = 0;

    svg_text(p->f, EDGE, 40, "class=\"title\"", p->t->object[host].name[0] ? p->t->object[host].name : "A machine");
    if (hosts > 1)
        n = snprintf(text, sizeof(text), "the first of %d hosts", hosts);
    for (int k = 0; k < 3; k++) {
        const int count = hkt_object_count(p->t, host, counted[k].kind);

        if (count)
            n += snprintf(text + n, sizeof(text) - (size_t)n, "%s%d %s%s", n ? ", " : "", count, counted[k].name, count == 1 ? "" : "s");
    }
    svg_text(p->f, EDGE, 62, "class=\"sub\"", n ? text : "nothing is known of it");
    draw_legend(p, host, 88);
}

int info_drawing(const struct hkt_topology *t, const char *path)
{
    const int      host = 1; /* the first behind the root */
    struct box     box  = size_of(t, host);
    const double   link = depth_of(t, host, box.width), width = fmax(box.width + 2 * EDGE, 460);
    const double   tiles = draw_tiles(NULL, t, 0, width);
    struct picture p = {.f = fopen(path, "we"), .t = t};

    if (!p.f)
        return hkt_fail(HKT_ERR_SYSTEM, "the machine cannot be drawn into %s: %s", path, strerror(errno));
    svg_begin(p.f, width, TOP + box.height + link + (tiles > 0 ? tiles + 24 : 0) + EDGE);
    draw_title(&p, host);
    rectangle(p.f, (struct place){EDGE, TOP}, (struct box){box.width, box.height + link}, colour[HKT_OBJECT_HOST].fill, colour[HKT_OBJECT_HOST].line);
    draw(&p, host, EDGE, TOP, box);
    if (hkt_object_count(t, host, HKT_OBJECT_FABRIC))
        draw_fabrics(&p, host, TOP + box.height + 22);
    else
        draw_arcs(&p, TOP + box.height, link);
    draw_tiles(p.f, t, TOP + box.height + link + 20, width);
    fprintf(p.f, "</svg>\n");
    if (fclose(p.f))
        return hkt_fail(HKT_ERR_SYSTEM, "the machine cannot be drawn into %s: %s", path, strerror(errno));
    return HKT_OK;
}
