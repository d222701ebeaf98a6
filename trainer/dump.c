/* dump.c -- see dump.h. */
#include "dump.h"

#include "stop.h"

#include <errno.h>
#include <string.h>

FILE *dump_open(const char *path, const struct engine *engine)
{
    FILE *file = path ? fopen(path, "wb") : NULL;

    if (path && engine->ranks > 1)
        stop("--dump is for one rank, and there are %d", engine->ranks);
    if (path && !file)
        stop("--dump %s: %s", path, strerror(errno));
    return file;
}

void dump_close(FILE *file, const char *path)
{
    if (file && (ferror(file) | fclose(file)))
        stop("--dump %s could not be written: %s", path, strerror(errno));
}

static void write_tensor(FILE *file, const char *prefix, const struct gpt_tensor *t, const float *values)
{
    fprintf(file, "%s%s f32 %d %d\n", prefix, t->name, t->rows, t->cols);
    fwrite(values, sizeof(float), (size_t)t->rows * (size_t)t->cols, file);
}

static void dump_all(FILE *file, struct engine *e, const char *prefix, bool gradients)
{
    for (int i = 0; file && i < e->parts; i++)
        for (int k = 0; k < e->part[i].count; k++) {
            const struct gpt_tensor *t = &e->part[i].tensor[k];
            hkt_reduced_t            reduced;
            void                    *weight;

            if (t->flags & HKT_PARAMETER_COPY) /* its gradient has been added to the original's */
                continue;
            need(hkt_zero_weight(&weight, e->part[i].first + k, e->zero), "dumping weights");
            if (gradients)
                need(hkt_buckets_reduced(&reduced, e->part[i].first + k, hkt_zero_buckets(e->zero)),
                     "dumping gradients");
            write_tensor(file, prefix, t, gradients ? reduced.values : weight);
        }
}

void dump_weights(FILE *file, struct engine *e, const char *prefix)
{
    dump_all(file, e, prefix, false);
}

void dump_gradients(FILE *file, struct engine *e, const char *prefix)
{
    dump_all(file, e, prefix, true);
}

void dump_tokens(FILE *file, const char *name, const int32_t *tokens, int rows, int cols)
{
    if (!file)
        return;
    fprintf(file, "%s i32 %d %d\n", name, rows, cols);
    fwrite(tokens, sizeof(*tokens), (size_t)rows * (size_t)cols, file);
}

void dump_number(FILE *file, const char *name, double number)
{
    if (!file)
        return;
    fprintf(file, "%s f64 1 1\n", name);
    fwrite(&number, sizeof(number), 1, file);
}
