/* safetensors_gpt2.h -- GPT-2 between the trainer and the files of Hugging Face's transformers: the same names; there a
 * linear layer keeps its weight as (inputs, outputs), queries, keys and values of all heads lie one after the other,
 * and the vocabulary is not padded.
 *
 * Functions return 0 or a negative HKT_ERR_* with the sentence in hkt_last_error().
 */
#ifndef TRAINER_SAFETENSORS_GPT2_H
#define TRAINER_SAFETENSORS_GPT2_H

#include "safetensors.h"

struct gpt2_shape {
    size_t layers, width, heads, mlp, length;
    size_t vocabulary, padded; /* padded >= vocabulary: rows that the trainer's table has */
};

/* A tensor as the trainer has it. */
struct gpt2_tensor {
    char   name[48];   /* "h.3.mlp.c_fc.weight" */
    size_t rows, cols; /* a vector has one row */
};

size_t             gpt2_count(const struct gpt2_shape *shape);
struct gpt2_tensor gpt2_tensor(const struct gpt2_shape *shape, size_t index);

/* The shape of the model in a file, from its tensors; the number of heads is not in it: width / 64, as all of GPT-2's.
 * padded is the vocabulary. */
int gpt2_shape(struct gpt2_shape *shape, const struct safetensors *file);

/* Tensor `index` from the file (float32, bfloat16 or float16, its name with or without "transformer." before it) in the
 * trainer's form: rows x cols floats; rows of padding are 0. */
int gpt2_read(float *out, const struct gpt2_shape *shape, size_t index, const struct safetensors *file);

/* Writes a file in float32. fetch(arg, index, data) gives tensor `index` in the trainer's form, rows x cols. */
struct gpt2_source {
    int (*fetch)(void *arg, size_t index, float *data);
    void *arg;
};
int gpt2_write(const char *path, const struct gpt2_shape *shape, const struct gpt2_source *source);

#endif
