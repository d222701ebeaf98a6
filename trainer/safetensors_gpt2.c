/* safetensors_gpt2.c -- see safetensors_gpt2.h. One loop copies between the two forms, in either direction: element (r,
 * c) of the trainer's tensor is one element of the file's.
 */
#include "safetensors_gpt2.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How a tensor lies in the file, as against the trainer's. */
enum form {
    PLAIN,  /* the same */
    TURNED, /* transposed */
    THREE   /* transposed, and the trainer's rows go head by head: queries, keys, values of each */
};

/* Rows and columns by letters: 1, C width, F of the MLP, Q 3 C, T length, V vocabulary. */
static const struct row {
    const char *name;
    char        rows, cols;
    enum form   form;
} outside[] = {{"wte.weight", 'V', 'C', PLAIN},
               {"wpe.weight", 'T', 'C', PLAIN},
               {"ln_f.weight", '1', 'C', PLAIN},
               {"ln_f.bias", '1', 'C', PLAIN}},
  block[]   = {
        {"ln_1.weight", '1', 'C', PLAIN},         {"ln_1.bias", '1', 'C', PLAIN},
        {"attn.c_attn.weight", 'Q', 'C', THREE},  {"attn.c_attn.bias", '1', 'Q', THREE},
        {"attn.c_proj.weight", 'C', 'C', TURNED}, {"attn.c_proj.bias", '1', 'C', PLAIN},
        {"ln_2.weight", '1', 'C', PLAIN},         {"ln_2.bias", '1', 'C', PLAIN},
        {"mlp.c_fc.weight", 'F', 'C', TURNED},    {"mlp.c_fc.bias", '1', 'F', PLAIN},
        {"mlp.c_proj.weight", 'C', 'F', TURNED},  {"mlp.c_proj.bias", '1', 'C', PLAIN},
};
enum { OUTSIDE = sizeof(outside) / sizeof(outside[0]), BLOCK = sizeof(block) / sizeof(block[0]) };

size_t gpt2_count(const struct gpt2_shape *shape)
{
    return OUTSIDE + BLOCK * shape->layers;
}

static const struct row *row_of(size_t index)
{
    return index < OUTSIDE ? &outside[index] : &block[(index - OUTSIDE) % BLOCK];
}

static size_t extent(const struct gpt2_shape *s, char letter)
{
    switch (letter) {
    case 'C':
        return s->width;
    case 'F':
        return s->mlp;
    case 'Q':
        return 3 * s->width;
    case 'T':
        return s->length;
    case 'V':
        return s->vocabulary;
    default:
        return 1;
    }
}

struct gpt2_tensor gpt2_tensor(const struct gpt2_shape *shape, size_t index)
{
    const struct row  *row = row_of(index);
    struct gpt2_tensor t   = {.rows = row->rows == 'V' ? shape->padded : extent(shape, row->rows),
                              .cols = extent(shape, row->cols)};

    if (index < OUTSIDE)
        snprintf(t.name, sizeof(t.name), "%s", row->name);
    else
        snprintf(t.name, sizeof(t.name), "h.%zu.%s", (index - OUTSIDE) / BLOCK, row->name);
    return t;
}

/* Where the trainer's output i of c_attn, [head][query, key, value][size], is in the file, [query, key,
 * value][head][size]. */
static size_t output_in_file(const struct gpt2_shape *s, size_t i)
{
    const size_t size = s->width / s->heads, head = i / (3 * size), which = i / size % 3;

    return which * s->width + head * size + i % size;
}

/* The tensor of the file: what it is called, its shape, and how it is turned. */
static void in_file(struct safetensor *t, const struct gpt2_shape *s, size_t index)
{
    const struct row        *row  = row_of(index);
    const size_t             rows = extent(s, row->rows), cols = extent(s, row->cols);
    const struct gpt2_tensor ours = gpt2_tensor(s, index);

    *t = (struct safetensor){
        .type = HKT_FLOAT32, .dims = row->rows == '1' ? 1 : 2, .bytes = rows * cols * sizeof(float)};
    memcpy(t->name, ours.name, sizeof(ours.name));
    t->shape[0] = row->rows == '1' || row->form != PLAIN ? cols : rows;
    t->shape[1] = row->rows == '1' ? 0 : row->form != PLAIN ? rows : cols;
}

/* Place in the file's tensor of the trainer's element (r, c). */
static size_t place(const struct gpt2_shape *s, const struct row *row, size_t r, size_t c)
{
    const size_t rows = extent(s, row->rows), cols = extent(s, row->cols);

    if (row->form == PLAIN)
        return r * cols + c;
    if (row->form == TURNED)
        return c * rows + r;
    return row->rows == '1' ? output_in_file(s, c) : c * rows + output_in_file(s, r);
}

static int check_shape(const struct gpt2_shape *s)
{
    if (!s->layers || !s->width || !s->heads || s->width % s->heads || !s->mlp || !s->length || !s->vocabulary ||
        s->padded < s->vocabulary)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "a GPT-2 of %zu layers, width %zu, %zu heads, MLP %zu, length %zu, vocabulary %zu padded "
                             "to %zu: all are positive, heads divide "
                             "the width, and padding does not shorten",
                             s->layers, s->width, s->heads, s->mlp, s->length, s->vocabulary, s->padded);
    return HKT_OK;
}

/* ---- reading */

static const struct safetensor *find(const struct safetensors *file, const char *name)
{
    const struct safetensor *t = safetensors_find(file, name);
    char                     longer[80];

    snprintf(longer, sizeof(longer), "transformer.%.60s", name);
    return t ? t : safetensors_find(file, longer);
}

static int look(struct gpt2_shape *s, const struct safetensors *file)
{
    const struct safetensor *tokens = find(file, "wte.weight"), *positions = find(file, "wpe.weight"),
                            *up = find(file, "h.0.mlp.c_fc.weight");
    char name[64];

    if (!tokens || !positions || !up || tokens->dims != 2 || positions->dims != 2 || up->dims != 2)
        return hkt_error_set(HKT_ERR_ARGUMENT,
                             "%s is no GPT-2: it has no matrices wte.weight, wpe.weight and h.0.mlp.c_fc.weight",
                             safetensors_path(file));
    *s = (struct gpt2_shape){
        .width = tokens->shape[1], .mlp = up->shape[1], .length = positions->shape[0], .vocabulary = tokens->shape[0]};
    s->padded = s->vocabulary;
    s->heads  = s->width < 64 ? 1 : s->width / 64;
    do
        snprintf(name, sizeof(name), "h.%zu.ln_1.weight", s->layers);
    while (find(file, name) && ++s->layers);
    return check_shape(s);
}

int gpt2_shape(struct gpt2_shape *shape, const struct safetensors *file)
{
    struct gpt2_shape s;
    const int         rc = look(&s, file);

    if (rc == HKT_OK)
        *shape = s;
    return rc;
}

static void say_shape(char *text, size_t size, const struct safetensor *t)
{
    size_t used = 0;

    text[0] = 0;
    for (int d = 0; d < t->dims && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", d ? "x" : "", t->shape[d]);
}

int gpt2_read(float *out, const struct gpt2_shape *s, size_t index, const struct safetensors *file)
{
    const struct row        *row  = row_of(index);
    const struct gpt2_tensor ours = gpt2_tensor(s, index);
    const size_t             rows = extent(s, row->rows), cols = ours.cols;
    const struct safetensor *t = find(file, ours.name);
    struct safetensor        wanted;
    char                     want[64], have[160];
    float                   *wide;
    int                      rc = check_shape(s);

    if (rc < 0)
        return rc;
    if (!t)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s has no tensor %s", safetensors_path(file), ours.name);
    in_file(&wanted, s, index);
    say_shape(want, sizeof(want), &wanted);
    say_shape(have, sizeof(have), t);
    if (strcmp(want, have) != 0)
        return hkt_error_set(HKT_ERR_ARGUMENT, "%s: tensor %s has shape %s and not %s", safetensors_path(file),
                             ours.name, have, want);
    wide = malloc(rows * cols * sizeof(*wide));
    if (!wide)
        return hkt_error_set(HKT_ERR_MEMORY, "no memory for tensor %s", ours.name);
    rc = hkt_convert(wide, HKT_FLOAT32, t->data, t->type, rows * cols);
    for (size_t r = 0; r < ours.rows && rc == HKT_OK; r++)
        for (size_t c = 0; c < cols; c++)
            out[r * cols + c] = r < rows ? wide[place(s, row, r, c)] : 0;
    free(wide);
    return rc;
}

/* ---- writing */

struct writing {
    const struct gpt2_shape  *shape;
    const struct gpt2_source *source;
    float                    *ours; /* one tensor */
};

static int fill(void *arg, const struct safetensor *tensor, void *out)
{
    const struct writing *w = arg;
    const struct row     *row;
    size_t                index = 0;
    struct gpt2_tensor    t     = gpt2_tensor(w->shape, index);
    int                   rc;

    while (strcmp(t.name, tensor->name) != 0)
        t = gpt2_tensor(w->shape, ++index);
    row = row_of(index);
    rc  = w->source->fetch(w->source->arg, index, w->ours);
    for (size_t r = 0; r < extent(w->shape, row->rows) && rc == HKT_OK; r++)
        for (size_t c = 0; c < t.cols; c++)
            ((float *)out)[place(w->shape, row, r, c)] = w->ours[r * t.cols + c];
    return rc;
}

int gpt2_write(const char *path, const struct gpt2_shape *shape, const struct gpt2_source *source)
{
    const hkt_metadata_t       metadata = {"format", "pt"}; /* transformers wants it */
    const size_t               count    = gpt2_count(shape);
    struct writing             w        = {shape, source, NULL};
    struct safetensors_content content  = {
         .count = count, .metadata = &metadata, .n_metadata = 1, .fill = fill, .arg = &w};
    size_t largest = 0;
    int    rc      = check_shape(shape);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < count; i++) {
        const struct gpt2_tensor t = gpt2_tensor(shape, i);

        largest = t.rows * t.cols > largest ? t.rows * t.cols : largest;
    }
    content.tensor = calloc(count, sizeof(*content.tensor));
    w.ours         = malloc(largest * sizeof(*w.ours));
    if (!content.tensor || !w.ours)
        rc = hkt_error_set(HKT_ERR_MEMORY, "no memory to write %s", path);
    for (size_t i = 0; i < count && rc == HKT_OK; i++)
        in_file(&content.tensor[i], shape, i);
    if (rc == HKT_OK)
        rc = safetensors_write(path, &content);
    free(content.tensor);
    free(w.ours);
    return rc;
}
