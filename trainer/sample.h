/* sample.h -- text written by the model. */
#ifndef TRAINER_SAMPLE_H
#define TRAINER_SAMPLE_H

#include "engine.h"

/* Prints the prompt and --sample-tokens more tokens to stdout, on rank 0. What is not printable UTF-8 is shown as '?'.
 * Collective. */
void sample_print(struct engine *engine, const struct data *data);

#endif
