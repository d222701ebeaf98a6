/* flash.c -- see flash.h. After Dao et al., FlashAttention (2022): the scores of a tile live in cache and are never
 * stored; forward carries the largest score and the sum per row from tile to tile, backward makes each tile's scores
 * again from what forward left, the logarithm of that sum.
 *
 * Heads are views with a stride into what the linear layers wrote, nothing is moved. Tiles that no query of theirs sees
 * (the future, other documents) are skipped. Every head is computed alone and in one order, so splitting heads over
 * ranks changes no bit.
 */
#include "flash.h"

#include "crew.h"

#include <math.h>
#include <string.h>

enum { TILE = FLASH_ROWS * FLASH_COLS, SCRATCH = 3 * TILE + 3 * FLASH_ROWS };

struct scratch {
    float    *scores, *gradient;  /* (FLASH_ROWS, FLASH_COLS) each */
    uint32_t *bits;               /* as many */
    float    *most, *sum, *delta; /* (FLASH_ROWS) each */
};

size_t flash_scratch(size_t threads)
{
    return threads * SCRATCH;
}

static struct scratch scratch_of(float *memory)
{
    return (struct scratch){memory,
                            memory + TILE,
                            (uint32_t *)(void *)(memory + 2 * TILE),
                            memory + 3 * TILE,
                            memory + 3 * TILE + FLASH_ROWS,
                            memory + 3 * TILE + 2 * FLASH_ROWS};
}

/* One head of one sequence. */
struct head {
    struct matrix  query, key, value, mixed; /* (T, D) */
    float         *log_sum;                  /* (T) */
    const int32_t *start;
    struct tile    tile; /* without the places */
    hkt_random_t   random;
    uint64_t       first; /* random element of query 0 and key 0 */
    uint64_t       span;
    bool           drops;
};

static struct head head_of(const struct flash *f, const float *qkv, const float *mixed, int b, int h)
{
    const size_t  row = (size_t)b * (size_t)f->length, D = (size_t)f->size, heads = (size_t)f->heads;
    const size_t  column = (size_t)h * 3 * D;
    const int     stride = f->heads * f->size;
    float        *first  = (float *)qkv + row * 3 * heads * D + column;
    struct matrix view   = {first, f->length, f->size, 3 * stride, false};
    struct head   head   = {.query = view, .key = view, .value = view};

    head.key.data += D;
    head.value.data += 2 * D;
    head.mixed   = (struct matrix){(float *)mixed + row * heads * D + (size_t)h * D, f->length, f->size, stride, false};
    head.log_sum = f->log_sum + ((size_t)h * (size_t)f->batch + (size_t)b) * (size_t)f->length;
    head.start   = f->start ? f->start + row : NULL;
    head.tile    = (struct tile){.start   = head.start,
                                 .scale   = 1.0f / sqrtf((float)f->size),
                                 .slope   = f->slope ? f->slope[h] : 0,
                                 .dropout = f->dropout};
    head.drops   = f->random != NULL;
    if (head.drops) {
        head.random = f->random[b];
        head.span   = (uint64_t)f->span;
        head.first  = (uint64_t)(f->first_head + h) * head.span * head.span;
    }
    return head;
}

static struct matrix rows_of(struct matrix m, int first, int count)
{
    m.data += (size_t)first * (size_t)m.stride;
    m.rows = count;
    return m;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The first tile of keys that the queries `first` .. see: starts never fall within a sequence. */
static int first_tile(const struct head *head, int first)
{
    return head->start ? head->start[first] / FLASH_COLS * FLASH_COLS : 0;
}

struct place {
    int row, col, rows, cols;
};

static struct tile tile_at(const struct head *head, const struct scratch *s, struct place p)
{
    struct tile tile = head->tile;

    tile.first_row = p.row;
    tile.first_col = p.col;
    if (head->drops) {
        for (int i = 0; i < p.rows; i++)
            hkt_random_fill_bits(s->bits + i * p.cols, head->random,
                                 head->first + (uint64_t)(p.row + i) * head->span + (uint64_t)p.col, (size_t)p.cols);
        tile.bits = s->bits;
    }
    return tile;
}

static void rows_forward(const struct head *head, const struct scratch *s, int row, int rows)
{
    const struct matrix mixed = rows_of(head->mixed, row, rows), query = rows_of(head->query, row, rows);
    const int           end = row + rows, begin = first_tile(head, row);

    for (int i = 0; i < rows; i++) {
        s->most[i] = -INFINITY;
        s->sum[i]  = 0;
    }
    for (int col = begin; col < end; col += FLASH_COLS) {
        const int           cols   = least(end - col, FLASH_COLS);
        const struct matrix scores = matrix_of(s->scores, rows, cols);
        const struct tile   tile   = tile_at(head, s, (struct place){row, col, rows, cols});

        multiply(scores, query, transpose(rows_of(head->key, col, cols)), 0);
        kernels->tile_forward(scores, mixed, s->most, s->sum, &tile);
        multiply(mixed, scores, rows_of(head->value, col, cols), col > begin);
    }
    kernels->tile_end(mixed, head->log_sum + row, s->most, s->sum);
}

/* A pass over all heads of all sequences, numbered sequence by sequence. */
struct work {
    const struct flash *f;
    float              *memory; /* of all threads */
    size_t              share;  /* heads that a thread gets */
    float              *dqkv;
    const float        *dmixed;
};

static void heads_forward(void *arg, size_t first, size_t count)
{
    const struct work   *w = arg;
    const struct flash  *f = w->f;
    const struct scratch s = scratch_of(w->memory + first / w->share * SCRATCH);

    for (size_t i = first; i < first + count; i++) {
        const struct head head = head_of(f, f->qkv, f->mixed, (int)i / f->heads, (int)i % f->heads);

        for (int row = 0; row < f->length; row += FLASH_ROWS)
            rows_forward(&head, &s, row, least(f->length - row, FLASH_ROWS));
    }
}

static void share(struct work *w, void (*heads)(void *arg, size_t first, size_t count))
{
    const size_t total = (size_t)w->f->batch * (size_t)w->f->heads, threads = (size_t)crew_size();

    w->share = (total + threads - 1) / threads;
    crew_run(heads, w, total, w->share);
}

void flash_forward(const struct flash *f, float *memory)
{
    share(&(struct work){.f = f, .memory = memory}, heads_forward);
}

/* grad's keys and values are zero at first, for tiles add to them. */
static void rows_backward(const struct head *grad, const struct head *head, const struct scratch *s, int row, int rows)
{
    const struct matrix query = rows_of(head->query, row, rows), dmixed = rows_of(grad->mixed, row, rows);
    const int           end = row + rows, begin = first_tile(head, row);

    kernels->row_products(s->delta, rows_of(head->mixed, row, rows), dmixed);
    for (int col = begin; col < end; col += FLASH_COLS) {
        const int           cols   = least(end - col, FLASH_COLS);
        const struct matrix scores = matrix_of(s->scores, rows, cols), ds = matrix_of(s->gradient, rows, cols);
        const struct matrix key = rows_of(head->key, col, cols), value = rows_of(head->value, col, cols);
        const struct tile   tile = tile_at(head, s, (struct place){row, col, rows, cols});

        multiply(scores, query, transpose(key), 0);
        multiply(ds, dmixed, transpose(value), 0);
        kernels->tile_backward(ds, scores, head->log_sum + row, s->delta, &tile);
        multiply(rows_of(grad->value, col, cols), transpose(scores), dmixed, 1);
        multiply(rows_of(grad->query, row, rows), ds, key, col > begin);
        multiply(rows_of(grad->key, col, cols), transpose(ds), query, 1);
    }
}

static void heads_backward(void *arg, size_t first, size_t count)
{
    const struct work   *w = arg;
    const struct flash  *f = w->f;
    const struct scratch s = scratch_of(w->memory + first / w->share * SCRATCH);

    for (size_t i = first; i < first + count; i++) {
        const int         b = (int)i / f->heads, h = (int)i % f->heads;
        const struct head head = head_of(f, f->qkv, f->mixed, b, h), grad = head_of(f, w->dqkv, w->dmixed, b, h);

        for (int row = 0; row < f->length; row += FLASH_ROWS)
            rows_backward(&grad, &head, &s, row, least(f->length - row, FLASH_ROWS));
    }
}

void flash_backward(float *dqkv, const float *dmixed, const struct flash *f, float *memory)
{
    memset(dqkv, 0, (size_t)f->batch * (size_t)f->length * 3 * (size_t)f->heads * (size_t)f->size * sizeof(float));
    share(&(struct work){.f = f, .memory = memory, .dqkv = dqkv, .dmixed = dmixed}, heads_backward);
}
