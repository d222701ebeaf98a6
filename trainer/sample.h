/* sample.h -- text written by the model. */
#ifndef TRAINER_SAMPLE_H
#define TRAINER_SAMPLE_H

#include "model.h"
#include "settings.h"

/* Prints the prompt and --sample-bytes more bytes to stdout. What is not printable UTF-8 is shown as '?'. */
void sample_print(struct model *model, const struct settings *settings);

#endif
