/* attention.c -- causal self-attention, exact, a band of rows at a time.
 *
 * A band of ATTENTION_ROWS queries needs only the keys up to its last row, so half of the square is never touched. The
 * products read queries, keys and values where the linear layer left them: heads are views with a stride, nothing is
 * moved.
 */
#include "layers.h"

#include <math.h>

struct head {
    struct matrix query, key, value; /* (T, C / H) */
    struct matrix mixed;             /* (T, C / H) */
    struct matrix chances;           /* (T, T) */
};

static struct matrix rows_of(struct matrix m, int first, int count)
{
    m.data += (size_t)first * (size_t)m.stride;
    m.rows = count;
    return m;
}

/* The first `count` columns. */
static struct matrix columns_of(struct matrix m, int count)
{
    m.cols = count;
    return m;
}

/* Head h of sequence b, in (B,T,3C) qkv and (B,T,C) mixed. */
static struct head head_of(const struct attention *a, float *qkv, const float *mixed, int b, int h)
{
    const int     size = a->width / a->heads;
    const size_t  row = (size_t)b * (size_t)a->length, column = (size_t)h * (size_t)size, width = (size_t)a->width;
    float        *first = qkv + row * 3 * width + column;
    struct matrix view  = {first, a->length, size, 3 * a->width, false};
    struct head   head  = {.query = view, .key = view, .value = view};

    head.key.data += width;
    head.value.data += 2 * width;
    head.mixed = (struct matrix){(float *)mixed + row * width + column, a->length, size, a->width, false};
    head.chances =
        matrix_of(a->chances + ((size_t)b * (size_t)a->heads + (size_t)h) * (size_t)a->length * (size_t)a->length,
                  a->length, a->length);
    return head;
}

static int band_rows(int first, int length)
{
    return length - first < ATTENTION_ROWS ? length - first : ATTENTION_ROWS;
}

static void head_forward(const struct head *head, int length, float scale)
{
    for (int first = 0; first < length; first += ATTENTION_ROWS) {
        const int           rows = band_rows(first, length), seen = first + rows;
        const struct matrix p = columns_of(rows_of(head->chances, first, rows), seen);

        multiply(p, rows_of(head->query, first, rows), transpose(rows_of(head->key, 0, seen)), 0);
        kernels->softmax(p, first, scale);
        multiply(rows_of(head->mixed, first, rows), p, rows_of(head->value, 0, seen), 0);
    }
}

/* From the last band to the first: the last one sees every key, so it can overwrite and the others add. */
static void head_backward(const struct head *grad, const struct head *head, float *scratch, int length, float scale)
{
    for (int first = (length - 1) / ATTENTION_ROWS * ATTENTION_ROWS; first >= 0; first -= ATTENTION_ROWS) {
        const int           rows = band_rows(first, length), seen = first + rows, keep = seen < length;
        const struct matrix p  = columns_of(rows_of(head->chances, first, rows), seen);
        const struct matrix ds = matrix_of(scratch, rows, seen), dmixed = rows_of(grad->mixed, first, rows);

        multiply(ds, dmixed, transpose(rows_of(head->value, 0, seen)), 0);
        multiply(rows_of(grad->value, 0, seen), transpose(p), dmixed, keep);
        kernels->softmax_backward(ds, p, first, scale);
        multiply(rows_of(grad->query, first, rows), ds, rows_of(head->key, 0, seen), 0);
        multiply(rows_of(grad->key, 0, seen), transpose(ds), rows_of(head->query, first, rows), keep);
    }
}

void attention_forward(const struct attention *a)
{
    const float scale = 1.0f / sqrtf((float)(a->width / a->heads));

    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++) {
            const struct head head = head_of(a, a->qkv, a->mixed, b, h);

            head_forward(&head, a->length, scale);
        }
}

void attention_backward(float *dqkv, const float *dmixed, float *scratch, const struct attention *a)
{
    const float scale = 1.0f / sqrtf((float)(a->width / a->heads));

    for (int b = 0; b < a->batch; b++)
        for (int h = 0; h < a->heads; h++) {
            const struct head head = head_of(a, a->qkv, a->mixed, b, h), grad = head_of(a, dqkv, dmixed, b, h);

            head_backward(&grad, &head, scratch, a->length, scale);
        }
}
