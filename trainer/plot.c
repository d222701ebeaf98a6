/* plot.c -- see plot.h; the drawing is the tools'. */
#include "plot.h"

#include "stop.h"
#include "tools/svg.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 400 };

/* A long curve as means of equal runs of steps. Returns how many. */
static size_t thin(double *step, double *bits, struct curve c)
{
    const size_t run = (c.count + POINTS - 1) / POINTS;
    size_t       n   = 0;

    for (size_t i = 0; i < c.count; i += run, n++) {
        const size_t end = i + run < c.count ? i + run : c.count;

        step[n] = bits[n] = 0;
        for (size_t j = i; j < end; j++) {
            step[n] += c.step[j] / (double)(end - i);
            bits[n] += c.loss[j] / (double)(end - i) / 0.6931471805599453;
        }
    }
    return n;
}

void plot_write(const char *path, const char *subtitle, struct curve training, struct curve held_out)
{
    double            step[2][POINTS], bits[2][POINTS];
    struct svg_series series[] = {{"training", step[0], bits[0], thin(step[0], bits[0], training), 0, false},
                                  {"held out", step[1], bits[1], thin(step[1], bits[1], held_out), 1, false}};
    struct svg_panel  panel    = {"Loss, bits a token", "step", SVG_NUMBER, SVG_NUMBER, series, held_out.count ? 2 : 1};
    struct svg_page   page     = {"hkt-train", subtitle, &panel, 1, NULL};
    FILE             *file     = fopen(path, "w");

    if (!file)
        stop("--plot %s: %s", path, strerror(errno));
    svg_write(file, &page);
    if (ferror(file) | fclose(file))
        stop("--plot %s: %s", path, strerror(errno));
}
