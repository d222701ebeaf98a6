/* plot.h -- the loss curve as SVG. */
#ifndef TRAINER_PLOT_H
#define TRAINER_PLOT_H

#include <stddef.h>

struct curve {
    const double *step, *loss; /* nats a token */
    size_t        count;
};

/* Stops when the file cannot be written. */
void plot_write(const char *path, const char *subtitle, struct curve training, struct curve held_out);

#endif
