/* product.c -- see product.h: the loops around the tiles, which are the schemes'. */
#include "product.h"

#include "crew.h"
#include "stop.h"

#include <pthread.h>
#include <stdlib.h>

enum { HIGH = 512 /* rows of a that are packed at a time */ };

/* Packed panels of the calling thread; they grow, and end with it. */
struct packed {
    void  *a, *b;
    size_t a_bytes, b_bytes;
};
static _Thread_local struct packed packed;

static pthread_key_t  at_end;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void give(void *arg)
{
    struct packed *p = arg;

    free(p->a);
    free(p->b);
    *p = (struct packed){NULL, NULL, 0, 0};
}

static void begin(void)
{
    if (pthread_key_create(&at_end, give) != 0)
        stop("no key is left for what threads hold");
}

static void *grow(void **memory, size_t *bytes, size_t wanted)
{
    if (*bytes < wanted) {
        pthread_once(&once, begin);
        pthread_setspecific(at_end, &packed);
        free(*memory);
        *memory = aligned_alloc(64, (wanted + 63) / 64 * 64);
        *bytes  = wanted;
        if (!*memory)
            stop("out of memory for packing %zu bytes", wanted);
    }
    return *memory;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

static struct matrix part(struct matrix a, int row, int col, int rows, int cols)
{
    const size_t skip =
        a.transposed ? (size_t)col * (size_t)a.stride + (size_t)row : (size_t)row * (size_t)a.stride + (size_t)col;

    a.data += skip;
    a.rows = least(a.rows - row, rows);
    a.cols = least(a.cols - col, cols);
    return a;
}

/* Columns of the next panel: what is left and is no whole two panels is halved, for a narrow panel keeps few sums in
 * flight. */
static int width(int left, const struct product_scheme *s)
{
    if (left <= s->cols || left >= 2 * s->cols)
        return least(left, s->cols);
    return ((left + 1) / 2 + s->lanes - 1) / s->lanes * s->lanes;
}

static void product_part(const struct product_scheme *s, struct matrix c, struct matrix a, struct matrix b, int keep)
{
    const int block = least(s->block, (a.cols + s->depth - 1) / s->depth * s->depth), high = HIGH / s->rows * s->rows;
    const size_t panel_a = (size_t)block * (size_t)s->rows * s->element,
                 panel_b = (size_t)block * (size_t)s->cols * s->element;
    const int panels     = (least(c.rows, high) + s->rows - 1) / s->rows;
    char     *pa         = grow(&packed.a, &packed.a_bytes, (size_t)panels * panel_a);
    void     *pb         = grow(&packed.b, &packed.b_bytes, panel_b);

    if (s->begin)
        s->begin();
    for (int k = 0; k < a.cols; k += block) {
        const int depth = (least(a.cols - k, block) + s->depth - 1) / s->depth * s->depth;

        for (int i = 0; i < c.rows; i += high) {
            const int end = least(c.rows - i, high);

            s->pack_a(pa, panel_a, part(a, i, k, end, block));
            for (int j = 0, cols; j < c.cols; j += cols) {
                cols = width(c.cols - j, s);
                s->pack_b(pb, part(b, k, j, block, cols));
                for (int ii = 0; ii < end; ii += s->rows)
                    s->tile(part(c, i + ii, j, least(s->rows, end - ii), cols), pa + (size_t)(ii / s->rows) * panel_a,
                            pb, depth, keep || k > 0);
            }
        }
    }
    if (s->end)
        s->end();
}

struct shared {
    const struct product_scheme *scheme;
    struct matrix                c, a, b;
    int                          keep;
};

static void some_rows(void *arg, size_t first, size_t count)
{
    const struct shared *p = arg;

    product_part(p->scheme, part(p->c, (int)first, 0, (int)count, p->c.cols),
                 part(p->a, (int)first, 0, (int)count, p->a.cols), p->b, p->keep);
}

static void some_cols(void *arg, size_t first, size_t count)
{
    const struct shared *p = arg;

    product_part(p->scheme, part(p->c, 0, (int)first, p->c.rows, (int)count), p->a,
                 part(p->b, 0, (int)first, p->b.rows, (int)count), p->keep);
}

void product_run(const struct product_scheme *s, struct matrix c, struct matrix a, struct matrix b, int keep)
{
    struct shared p      = {s, c, a, b, keep};
    const double  work   = 2.0 * c.rows * c.cols * a.cols;
    const bool    by_row = c.rows / s->rows >= c.cols / s->cols;

    if (work < 1e6)
        product_part(s, c, a, b, keep);
    else if (by_row)
        crew_run(some_rows, &p, (size_t)c.rows, (size_t)s->rows);
    else
        crew_run(some_cols, &p, (size_t)c.cols, (size_t)s->cols);
}
