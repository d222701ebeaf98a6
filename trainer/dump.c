/* dump.c -- see dump.h. */
#include "dump.h"

#include "stop.h"

#include <errno.h>
#include <string.h>

FILE *dump_open(const char *path)
{
    FILE *file = path ? fopen(path, "wb") : NULL;

    if (path && !file)
        stop("--dump %s: %s", path, strerror(errno));
    return file;
}

void dump_close(FILE *file, const char *path)
{
    if (file && (ferror(file) | fclose(file)))
        stop("--dump %s could not be written: %s", path, strerror(errno));
}

void dump_tensors(FILE *file, const struct model *model, const char *prefix, const float *values)
{
    for (int i = 0; file && i < model->tensors; i++) {
        const struct tensor *t = &model->tensor[i];

        fprintf(file, "%s%s f32 %d %d\n", prefix, t->name, t->rows, t->cols);
        fwrite(values + t->offset, sizeof(float), (size_t)t->rows * (size_t)t->cols, file);
    }
}

void dump_tokens(FILE *file, const char *name, const uint8_t *tokens, int rows, int cols)
{
    if (!file)
        return;
    fprintf(file, "%s u8 %d %d\n", name, rows, cols);
    fwrite(tokens, 1, (size_t)rows * (size_t)cols, file);
}

void dump_number(FILE *file, const char *name, double number)
{
    if (!file)
        return;
    fprintf(file, "%s f64 1 1\n", name);
    fwrite(&number, sizeof(number), 1, file);
}
