/* dump.h -- the numbers of a run in a file, so that a test can compare them with another implementation's.
 *
 * The file is a sequence of records: a line "NAME TYPE ROWS COLS\n" and then the raw values. TYPE is u8, f32 or f64.
 */
#ifndef TRAINER_DUMP_H
#define TRAINER_DUMP_H

#include "model.h"

#include <stdio.h>

/* NULL path: NULL, and the others then do nothing. */
FILE *dump_open(const char *path);
void  dump_close(FILE *file, const char *path);

/* All tensors of the model that lie in `values` (weights, gradients), each named with the prefix. */
void dump_tensors(FILE *file, const struct model *model, const char *prefix, const float *values);
void dump_tokens(FILE *file, const char *name, const uint8_t *tokens, int rows, int cols);
void dump_number(FILE *file, const char *name, double number);

#endif
