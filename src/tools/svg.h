/* svg.h -- line charts as SVG files: a page with a title, a legend and panels of curves. No library, no script, one
 * font stack. */
#ifndef HKT_SVG_H
#define HKT_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* What an axis measures; it decides scale and labels. Values are in the unit named. */
enum svg_unit {
    SVG_BYTES,     /* logarithmic, 1 KiB, 1 MiB ... */
    SVG_SECONDS,   /* logarithmic, 1 us, 10 us ... */
    SVG_BANDWIDTH, /* GB/s; logarithmic, 1 kB/s, 1 MB/s ... */
    SVG_RATIO,     /* logarithmic, 0.5x 1x 2x ...; a heavier line at 1 */
    SVG_NUMBER     /* linear from the least to the greatest value */
};

struct svg_series {
    const char   *name; /* the legend shows each name once */
    const double *x, *y;
    size_t        count;
    int           colour; /* index into the palette; series of one name have one colour */
    bool          dashed;
};

struct svg_panel {
    const char              *title, *x_label;
    enum svg_unit            x_unit, y_unit;
    const struct svg_series *series;
    size_t                   count;
};

struct svg_page {
    const char             *title, *subtitle;
    const struct svg_panel *panel; /* side by side */
    size_t                  count;
    const char             *note; /* small, at the bottom; or NULL */
};

/* For other drawings in the same style: begin, then any elements, then "</svg>". Text classes are title, sub, panel,
 * tick, legend and note. `style` holds more attributes, or "". */
void svg_begin(FILE *file, double width, double height);
void svg_text(FILE *file, double x, double y, const char *style, const char *words);

void svg_write(FILE *file, const struct svg_page *page);

#endif
