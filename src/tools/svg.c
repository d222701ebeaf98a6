/* svg.c -- see svg.h. Layout in pixels: heading, legend, a row of panels, note. Text widths are estimated, as nothing
 * here knows fonts. */
#include "svg.h"

#include <math.h>
#include <string.h>

enum {
    MARGIN       = 32,
    PANEL_WIDTH  = 460,
    PANEL_HEIGHT = 330,
    PANEL_GAP    = 36,
    PLOT_LEFT    = 62,
    PLOT_TOP     = 34,
    PLOT_BOTTOM  = 50,
    PLOT_RIGHT   = 14,
    LEGEND_LINE  = 22,
    MAX_TICKS    = 64
};

/* Okabe and Ito's colours, which colour-blind readers can tell apart, in an order that prints well. */
static const char *const palette[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                      "#e69f00", "#56b4e9", "#5f6b7a", "#b3a100"};

enum { COLOURS = sizeof(palette) / sizeof(palette[0]) };

struct axis {
    enum svg_unit unit;
    double        low, high;  /* in data */
    double        begin, end; /* in pixels */
};

struct tick {
    double at;
    bool   labelled;
};

static bool logarithmic(enum svg_unit unit)
{
    return unit != SVG_NUMBER;
}

static double place(const struct axis *axis, double value)
{
    const double part = logarithmic(axis->unit) ? log(value / axis->low) / log(axis->high / axis->low)
                                                : (value - axis->low) / (axis->high - axis->low);

    return axis->begin + part * (axis->end - axis->begin);
}

static bool drawable(const struct axis *axis, double value)
{
    return isfinite(value) && (!logarithmic(axis->unit) || value > 0);
}

/* "8", "64 KiB", "10 µs", "0.5x" */
static void label(enum svg_unit unit, double value, char *text, size_t size)
{
    static const char *const binary[]  = {"B", "KiB", "MiB", "GiB", "TiB"};
    static const char *const decimal[] = {"ns", "µs", "ms", "s"};
    static const char *const rates[]   = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    int                      step      = 0;

    switch (unit) {
    case SVG_BYTES:
        for (; step < 4 && value >= 1024; step++)
            value /= 1024;
        snprintf(text, size, "%.3g %s", value, binary[step]);
        break;
    case SVG_SECONDS:
        value *= 1e9;
        for (; step < 3 && value >= 999.5; step++)
            value /= 1000;
        snprintf(text, size, "%.3g %s", value, decimal[step]);
        break;
    case SVG_RATIO:
        snprintf(text, size, "%.3g×", value);
        break;
    case SVG_BANDWIDTH:
        for (value *= 1e9; step < 4 && value >= 999.5; step++)
            value /= 1000;
        snprintf(text, size, "%.3g %s", value, rates[step]);
        break;
    case SVG_NUMBER:
        snprintf(text, size, "%.4g", value);
        break;
    }
}

void svg_text(FILE *f, double x, double y, const char *style, const char *words)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, style);
    for (const char *c = words; *c; c++) {
        if (*c == '<' || *c == '&')
            fputs(*c == '<' ? "&lt;" : "&amp;", f);
        else
            fputc(*c, f);
    }
    fputs("</text>\n", f);
}

/* ---- axes -------------------------------------------------------------------------------------------------------- */

static void find_range(struct axis *axis, const struct svg_panel *panel, bool vertical)
{
    axis->low  = INFINITY;
    axis->high = -INFINITY;
    for (size_t s = 0; s < panel->count; s++)
        for (size_t i = 0; i < panel->series[s].count; i++) {
            const double value = vertical ? panel->series[s].y[i] : panel->series[s].x[i];

            if (drawable(axis, value)) {
                axis->low  = fmin(axis->low, value);
                axis->high = fmax(axis->high, value);
            }
        }
    if (axis->low > axis->high)
        axis->low = axis->high = 1;
    if (axis->unit == SVG_RATIO) {
        axis->low  = fmin(axis->low, 1);
        axis->high = fmax(axis->high, 1);
    }
    if (logarithmic(axis->unit)) {
        const double room = vertical ? pow(axis->high / axis->low, 0.06) : 1;

        axis->low /= room * (axis->low == axis->high ? 2 : 1);
        axis->high *= room * (axis->low == axis->high ? 2 : 1);
    } else {
        const double room = axis->high > axis->low ? (axis->high - axis->low) * 0.05 : 1;

        axis->low -= vertical ? room : 0;
        axis->high += vertical || axis->high <= axis->low ? room : 0;
    }
    if (logarithmic(axis->unit) && axis->high <= axis->low * 1.01) {
        axis->low /= 2;
        axis->high *= 2;
    }
}

/* Ticks of a linear axis: steps of 1, 2 or 5 times a power of ten. */
static int linear_ticks(const struct axis *axis, struct tick *tick)
{
    const double raw   = (axis->high - axis->low) / 5;
    const double power = pow(10, floor(log10(raw)));
    const double step  = power * (raw / power < 1.5 ? 1 : raw / power < 3.5 ? 2 : raw / power < 7.5 ? 5 : 10);
    int          n     = 0;

    for (double at = ceil(axis->low / step) * step; at <= axis->high && n < MAX_TICKS; at += step)
        tick[n++] = (struct tick){fabs(at) < step / 2 ? 0 : at, true};
    return n;
}

/* Powers of `base` that lie on the axis; labelled every `stride`-th. */
static int power_ticks(const struct axis *axis, double base, struct tick *tick)
{
    const int first  = (int)ceil(log(axis->low) / log(base) - 1e-9),
              last   = (int)floor(log(axis->high) / log(base) + 1e-9);
    const int stride = (last - first) / 8 + 1;
    int       n      = 0;

    for (int k = first; k <= last && n < MAX_TICKS; k++)
        tick[n++] = (struct tick){pow(base, k), (k - first) % stride == 0};
    return n;
}

/* Within few decades also 2 and 5 of each. */
static int decimal_ticks(const struct axis *axis, struct tick *tick)
{
    const double decades = log10(axis->high / axis->low);
    int          n       = 0;

    if (decades > 3.2)
        return power_ticks(axis, 10, tick);
    for (int k = (int)floor(log10(axis->low)); k <= (int)ceil(log10(axis->high)); k++)
        for (int m = 1; m <= 9; m++) {
            const double at = m * pow(10, k);

            if (at >= axis->low && at <= axis->high && n < MAX_TICKS)
                tick[n++] = (struct tick){at, m == 1 || (decades < 2.2 && m == 2) || (decades < 1.6 && m == 5)};
        }
    return n;
}

static int find_ticks(const struct axis *axis, struct tick *tick)
{
    switch (axis->unit) {
    case SVG_BYTES:
        return power_ticks(axis, log2(axis->high / axis->low) > 9 ? 8 : 2, tick);
    case SVG_RATIO:
        return power_ticks(axis, 2, tick);
    case SVG_SECONDS:
    case SVG_BANDWIDTH:
        return decimal_ticks(axis, tick);
    case SVG_NUMBER:
        return linear_ticks(axis, tick);
    }
    return 0;
}

static void draw_axis(FILE *f, const struct axis *axis, const struct axis *other, bool vertical)
{
    struct tick tick[MAX_TICKS];
    const int   n = find_ticks(axis, tick);
    char        words[32];

    for (int i = 0; i < n; i++) {
        const double at    = place(axis, tick[i].at);
        const bool   heavy = axis->unit == SVG_RATIO && tick[i].at == 1;

        fprintf(f, "<path d=\"M%.1f %.1f %c%.1f\" stroke=\"%s\" stroke-width=\"%s\"/>\n", vertical ? other->begin : at,
                vertical ? at : other->begin, vertical ? 'H' : 'V', other->end,
                heavy              ? "#8b949e"
                : tick[i].labelled ? "#dfe3e8"
                                   : "#eff1f4",
                heavy ? "1.5" : "1");
        if (!tick[i].labelled)
            continue;
        label(axis->unit, tick[i].at, words, sizeof(words));
        if (vertical)
            svg_text(f, other->begin - 8, at + 4, "class=\"tick\" text-anchor=\"end\"", words);
        else
            svg_text(f, at, other->begin + 18, "class=\"tick\" text-anchor=\"middle\"", words);
    }
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void draw_series(FILE *f, const struct svg_series *series, const struct axis *x, const struct axis *y)
{
    const char *colour = palette[series->colour % COLOURS];
    char        move   = 'M';

    fprintf(f,
            "<path fill=\"none\" stroke=\"%s\" stroke-width=\"2\" stroke-linejoin=\"round\" stroke-linecap=\"round\"%s "
            "d=\"",
            colour, series->dashed ? " stroke-dasharray=\"1 5\"" : "");
    for (size_t i = 0; i < series->count; i++) {
        if (!drawable(x, series->x[i]) || !drawable(y, series->y[i])) {
            move = 'M';
            continue;
        }
        fprintf(f, "%c%.1f %.1f", move, place(x, series->x[i]), place(y, series->y[i]));
        move = 'L';
    }
    fprintf(f, "\"/>\n");
    for (size_t i = 0; i < series->count && series->count <= 40; i++)
        if (drawable(x, series->x[i]) && drawable(y, series->y[i]))
            fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\" fill=\"%s\" stroke=\"%s\" stroke-width=\"1.2\"/>\n",
                    place(x, series->x[i]), place(y, series->y[i]), series->dashed ? "#fff" : colour, colour);
}

static void draw_panel(FILE *f, const struct svg_panel *panel, double left, double top)
{
    struct axis x = {.unit = panel->x_unit, .begin = left + PLOT_LEFT, .end = left + PANEL_WIDTH - PLOT_RIGHT};
    struct axis y = {.unit = panel->y_unit, .begin = top + PANEL_HEIGHT - PLOT_BOTTOM, .end = top + PLOT_TOP};

    find_range(&x, panel, false);
    find_range(&y, panel, true);
    svg_text(f, left + PLOT_LEFT, top + 16, "class=\"panel\"", panel->title);
    draw_axis(f, &y, &x, true);
    draw_axis(f, &x, &y, false);
    fprintf(f, "<path d=\"M%.1f %.1f H%.1f\" stroke=\"#57606a\"/>\n", x.begin, y.begin, x.end);
    svg_text(f, (x.begin + x.end) / 2, top + PANEL_HEIGHT - 12, "class=\"tick\" text-anchor=\"middle\"",
             panel->x_label);
    for (size_t s = 0; s < panel->count; s++)
        draw_series(f, &panel->series[s], &x, &y);
}

static bool named_before(const struct svg_panel *panel, size_t s)
{
    for (size_t i = 0; i < s; i++)
        if (strcmp(panel->series[i].name, panel->series[s].name) == 0)
            return true;
    return false;
}

/* The names of the first panel's series, in rows. Returns the height used; draws nothing when f is NULL. */
static double draw_legend(FILE *f, const struct svg_panel *panel, double top, double width)
{
    double x = MARGIN, y = top;

    for (size_t s = 0; s < panel->count; s++) {
        const struct svg_series *series = &panel->series[s];
        const double             room   = 46 + 7.0 * (double)strlen(series->name);

        if (named_before(panel, s))
            continue;
        if (x > MARGIN && x + room > width - MARGIN) {
            x = MARGIN;
            y += LEGEND_LINE;
        }
        if (f) {
            fprintf(f, "<path d=\"M%.1f %.1f h24\" stroke=\"%s\" stroke-width=\"2.5\" stroke-linecap=\"round\"%s/>\n",
                    x, y - 4, palette[series->colour % COLOURS], series->dashed ? " stroke-dasharray=\"1 5\"" : "");
            svg_text(f, x + 31, y, "class=\"legend\"", series->name);
        }
        x += room;
    }
    return y - top + LEGEND_LINE;
}

void svg_begin(FILE *f, double width, double height)
{
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\">\n"
            "<style>text{font-family:Inter,'Helvetica Neue',Helvetica,Arial,'DejaVu Sans',sans-serif;fill:#1f2328}"
            ".title{font-size:19px;font-weight:600}.sub{font-size:13px;fill:#57606a}"
            ".panel{font-size:14px;font-weight:600}.tick{font-size:11.5px;fill:#57606a}.legend{font-size:12.5px}"
            ".note{font-size:11px;fill:#6e7781}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
            width, height, width, height);
}

void svg_write(FILE *f, const struct svg_page *page)
{
    const double width  = 2 * MARGIN + (double)page->count * (PANEL_WIDTH + PANEL_GAP) - PANEL_GAP;
    const double legend = draw_legend(NULL, &page->panel[0], 0, width);
    const double top    = 84 + legend;
    const double height = top + PANEL_HEIGHT + (page->note ? 42 : 20);

    svg_begin(f, width, height);
    svg_text(f, MARGIN, 38, "class=\"title\"", page->title);
    svg_text(f, MARGIN, 59, "class=\"sub\"", page->subtitle);
    draw_legend(f, &page->panel[0], 88, width);
    for (size_t p = 0; p < page->count; p++)
        draw_panel(f, &page->panel[p], MARGIN + (double)p * (PANEL_WIDTH + PANEL_GAP), top);
    if (page->note)
        svg_text(f, MARGIN, height - 18, "class=\"note\"", page->note);
    fprintf(f, "</svg>\n");
}
