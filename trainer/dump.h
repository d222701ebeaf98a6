/* dump.h -- the numbers of a run of one rank in a file, so that a test can compare them with another implementation's.
 *
 * The file is a sequence of records: a line "NAME TYPE ROWS COLS\n" and then the raw values. TYPE is i32, f32 or f64.
 */
#ifndef TRAINER_DUMP_H
#define TRAINER_DUMP_H

#include "engine.h"

#include <stdio.h>

/* NULL path: NULL, and the others then do nothing. */
FILE *dump_open(const char *path, const struct engine *engine);
void  dump_close(FILE *file, const char *path);

/* All tensors of the model, weights or (after engine_passes()) gradients, each named with the prefix. */
void dump_weights(FILE *file, struct engine *engine, const char *prefix);
void dump_gradients(FILE *file, struct engine *engine, const char *prefix);
void dump_tokens(FILE *file, const char *name, const int32_t *tokens, int rows, int cols);
void dump_number(FILE *file, const char *name, double number);

#endif
