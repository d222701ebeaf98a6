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
    struct matrix  query, key, value, out; /* (queries or keys, D) */
    float         *log_sum;                /* (queries) */
    const int32_t *start;                  /* (queries) */
    int            queries, keys, first_query, first_key;
    struct tile    tile; /* without the places */
    hkt_random_t   random;
    uint64_t       first; /* random element of place 0 and place 0 */
    uint64_t       span;
    bool           drops;
};

/* One head of keys or values. */
static struct matrix keys_of(const hkt_attention_t *a, hkt_heads_t v, int b, int k)
{
    return (struct matrix){v.data + (size_t)b * v.sequence + (size_t)k * v.group, (int)a->keys, (int)a->size,
                           (int)v.row, false};
}

/* One head of the queries or of what is theirs. */
static struct matrix queries_of(const hkt_attention_t *a, hkt_heads_t v, int b, int h)
{
    const size_t m = a->heads / a->key_heads;

    return (struct matrix){v.data + (size_t)b * v.sequence + (size_t)h / m * v.group + (size_t)h % m * v.head,
                           (int)a->queries, (int)a->size, (int)v.row, false};
}

static int key_head(const hkt_attention_t *a, int h)
{
    return h / (int)(a->heads / a->key_heads);
}

static struct head head_of(const hkt_attention_t *a, const struct flash *f, int b, int h)
{
    const size_t row  = (size_t)b * (size_t)f->length + a->own_query;
    const int    k    = key_head(a, h);
    struct head  head = {.query       = queries_of(a, a->query, b, h),
                         .key         = keys_of(a, a->key, b, k),
                         .value       = keys_of(a, a->value, b, k),
                         .out         = queries_of(a, a->out, b, h),
                         .log_sum     = queries_of(a, a->log_sum, b, h).data,
                         .start       = f->start ? f->start + row : NULL,
                         .queries     = (int)a->queries,
                         .keys        = (int)a->keys,
                         .first_query = (int)a->first_query,
                         .first_key   = (int)a->first_key,
                         .drops       = f->random != NULL};

    head.tile = (struct tile){
        .scale = 1.0f / sqrtf((float)a->size), .slope = f->slope ? f->slope[h] : 0, .dropout = f->dropout};
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

/* The first tile of keys that the queries `row` .. see: starts never fall within a sequence. */
static int first_tile(const struct head *head, int row)
{
    const int begin = head->start ? head->start[row] - head->first_key : 0;

    return begin > 0 ? begin / FLASH_COLS * FLASH_COLS : 0;
}

/* Behind the last key that one of the queries up to `end` - 1 sees. */
static int end_of(const struct head *head, int end)
{
    return least(head->first_query + end - head->first_key, head->keys);
}

/* Within the block of queries and keys. */
struct place {
    int row, col, rows, cols;
};

static struct tile tile_at(const struct head *head, const struct scratch *s, struct place p)
{
    struct tile tile = head->tile;

    tile.first_row = head->first_query + p.row;
    tile.first_col = head->first_key + p.col;
    tile.start     = head->start ? head->start + p.row : NULL;
    if (head->drops) {
        for (int i = 0; i < p.rows; i++)
            hkt_random_fill_bits(s->bits + i * p.cols, head->random,
                                 head->first + (uint64_t)(tile.first_row + i) * head->span + (uint64_t)tile.first_col,
                                 (size_t)p.cols);
        tile.bits = s->bits;
    }
    return tile;
}

static void rows_forward(const struct head *head, const struct scratch *s, int row, int rows)
{
    const struct matrix out = rows_of(head->out, row, rows), query = rows_of(head->query, row, rows);
    const int           end = end_of(head, row + rows), begin = first_tile(head, row);

    for (int i = 0; i < rows; i++) {
        s->most[i] = -INFINITY;
        s->sum[i]  = 0;
        if (begin >= end)
            memset(out.data + (size_t)i * (size_t)out.stride, 0, (size_t)out.cols * sizeof(float));
    }
    for (int col = begin; col < end; col += FLASH_COLS) {
        const int           cols   = least(end - col, FLASH_COLS);
        const struct matrix scores = matrix_of(s->scores, rows, cols);
        const struct tile   tile   = tile_at(head, s, (struct place){row, col, rows, cols});

        multiply(scores, query, transpose(rows_of(head->key, col, cols)), 0);
        kernels->tile_forward(scores, out, s->most, s->sum, &tile);
        multiply(out, scores, rows_of(head->value, col, cols), col > begin);
    }
    kernels->tile_end(out, head->log_sum + row, s->most, s->sum);
}

/* A pass over all heads of keys of all sequences, numbered sequence by sequence; the queries that look at one have one
 * order, for they add to its gradients. */
struct work {
    const hkt_attention_t          *a;
    const hkt_attention_gradient_t *g; /* NULL: forward */
    const struct flash             *f;
    float                          *memory; /* of all threads */
    size_t                          share;  /* heads of keys that a thread gets */
};

static void head_forward(const struct work *w, const struct scratch *s, int b, int h)
{
    const struct head head = head_of(w->a, w->f, b, h);

    for (int row = 0; row < head.queries; row += FLASH_ROWS)
        rows_forward(&head, s, row, least(head.queries - row, FLASH_ROWS));
}

/* Gradients of one head, in the order of struct head. */
struct head_gradient {
    struct matrix query, key, value, out;
};

static void rows_backward(const struct head_gradient *grad, const struct head *head, const struct scratch *s, int row,
                          int rows)
{
    const struct matrix query = rows_of(head->query, row, rows), dout = rows_of(grad->out, row, rows);
    const int           end = end_of(head, row + rows), begin = first_tile(head, row);

    kernels->row_products(s->delta, rows_of(head->out, row, rows), dout);
    for (int col = begin; col < end; col += FLASH_COLS) {
        const int           cols   = least(end - col, FLASH_COLS);
        const struct matrix scores = matrix_of(s->scores, rows, cols), ds = matrix_of(s->gradient, rows, cols);
        const struct matrix key = rows_of(head->key, col, cols), value = rows_of(head->value, col, cols);
        const struct tile   tile = tile_at(head, s, (struct place){row, col, rows, cols});

        multiply(scores, query, transpose(key), 0);
        multiply(ds, dout, transpose(value), 0);
        kernels->tile_backward(ds, scores, head->log_sum + row, s->delta, &tile);
        multiply(rows_of(grad->value, col, cols), transpose(scores), dout, 1);
        multiply(rows_of(grad->query, row, rows), ds, key, 1);
        multiply(rows_of(grad->key, col, cols), transpose(ds), query, 1);
    }
}

static void head_backward(const struct work *w, const struct scratch *s, int b, int h)
{
    const hkt_attention_t     *a    = w->a;
    const int                  k    = key_head(a, h);
    const struct head          head = head_of(a, w->f, b, h);
    const struct head_gradient grad = {queries_of(a, w->g->dquery, b, h), keys_of(a, w->g->dkey, b, k),
                                       keys_of(a, w->g->dvalue, b, k), queries_of(a, w->g->dout, b, h)};

    for (int row = 0; row < head.queries; row += FLASH_ROWS)
        rows_backward(&grad, &head, s, row, least(head.queries - row, FLASH_ROWS));
}

static void some_heads(void *arg, size_t first, size_t count)
{
    const struct work   *w    = arg;
    const struct scratch s    = scratch_of(w->memory + first / w->share * SCRATCH);
    const size_t         each = w->a->heads / w->a->key_heads;

    for (size_t i = first * each; i < (first + count) * each; i++)
        (w->g ? head_backward : head_forward)(w, &s, (int)(i / w->a->heads), (int)(i % w->a->heads));
}

static void share(struct work *w)
{
    const size_t total = w->a->batch * w->a->key_heads, threads = (size_t)crew_size();

    w->share = (total + threads - 1) / threads;
    crew_run(some_heads, w, total, w->share);
}

void flash_forward(const hkt_attention_t *a, const struct flash *f, float *memory)
{
    share(&(struct work){.a = a, .f = f, .memory = memory});
}

void flash_backward(const hkt_attention_gradient_t *g, const hkt_attention_t *a, const struct flash *f, float *memory)
{
    share(&(struct work){.a = a, .g = g, .f = f, .memory = memory});
}
