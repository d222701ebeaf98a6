/* product_dot.c -- the bf16 scheme of product.h for processors that multiply pairs of bf16 in vectors (AVX-512-BF16: AMD since
 * Zen 4, Intel since Cooper Lake) and have no matrix unit: twice the products of an fp32 vector in the same time.
 *
 * The tile is that of fp32, 8 rows of 3 vectors in 24 registers; one instruction adds both products of a pair to 16 sums.
 * Packed a: [pair][row], packed b: [pair][column]. Numbers below the least normal one count as zero, as in the matrix unit. */
#include "product_pairs.h"

#include <cpuid.h>

enum { ROWS = 8, VECTORS = 3, LANES = 16, COLS = VECTORS * LANES, BLOCK = 512 };

static __m512 dot(__m512 sum, const uint32_t *a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)b, (__m512bh)_mm512_set1_epi32((int)*a));
}

/* Of one tile; the last vector may have fewer columns. */
static void store(struct matrix c, __m512 sum[ROWS][VECTORS], int keep)
{
    for (int v = 0; v * LANES < c.cols; v++) {
        const __mmask16 here = first(c.cols - v * LANES);

        for (int i = 0; i < c.rows; i++) {
            float *to = c.data + (size_t)i * (size_t)c.stride + v * LANES;

            if (keep)
                sum[i][v] = _mm512_add_ps(sum[i][v], _mm512_maskz_loadu_ps(here, to));
            _mm512_mask_storeu_ps(to, here, sum[i][v]);
        }
    }
}

struct factors {
    const uint32_t *a, *b;
    int             pairs;
};

static inline __attribute__((always_inline)) void tile_of(struct matrix c, struct factors f, int keep,
                                                          const int vectors)
{
    const uint32_t *a = f.a, *b = f.b;
    __m512          sum[ROWS][VECTORS];

    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = _mm512_setzero_ps();
    for (int k = 0; k < f.pairs; k++, a += ROWS, b += COLS) {
        __m512i right[VECTORS];

#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            right[v] = _mm512_load_si512(b + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sum[i][v] = dot(sum[i][v], a + i, right[v]);
    }
    store(c, sum, keep);
}

static void tile(struct matrix c, const void *a, const void *b, int depth, int keep)
{
    const struct factors f = {a, b, depth / 2};

    if (c.cols > 2 * LANES)
        tile_of(c, f, keep, VECTORS);
    else if (c.cols > LANES)
        tile_of(c, f, keep, 2);
    else
        tile_of(c, f, keep, 1);
}

/* r[pair] = that pair of 16 rows of m from (row, k) on; how many of the pairs there are. */
static int pairs_at(__m512i r[HALF], struct matrix m, int row, int k)
{
    const size_t stride = (size_t)m.stride;
    const int    lanes = m.rows - row, depth = m.cols - k;

    if (m.transposed) {
        pairs_across(r, m.data + (size_t)k * stride + row, stride, lanes, depth);
    } else {
        pairs_along(r, m.data + (size_t)row * stride + k, stride, lanes, depth);
        turn(r);
    }
    return depth >= 2 * HALF ? HALF : (depth + 1) / 2;
}

/* 16 rows are two panels. */
static void pack_a(void *out, size_t panel, struct matrix a)
{
    __m512i r[HALF];

    for (int row = 0; row < a.rows; row += 2 * ROWS) {
        char *to = (char *)out + (size_t)(row / ROWS) * panel;

        for (int k = 0; k < a.cols; k += 2 * HALF) {
            const int pairs = pairs_at(r, a, row, k);

            for (int i = 0; i < pairs; i++, to += ROWS * sizeof(uint32_t)) {
                _mm256_store_si256((__m256i *)(void *)to, _mm512_castsi512_si256(r[i]));
                if (row + ROWS < a.rows)
                    _mm256_store_si256((__m256i *)(void *)(to + panel), _mm512_extracti64x4_epi64(r[i], 1));
            }
        }
    }
}

static void pack_b(void *out, struct matrix b)
{
    const struct matrix m = transpose(b);
    __m512i             r[HALF];

    for (int lane = 0; lane < m.rows; lane += LANES) {
        uint32_t *to = (uint32_t *)out + lane;

        for (int k = 0; k < m.cols; k += 2 * HALF) {
            const int pairs = pairs_at(r, m, lane, k);

            for (int i = 0; i < pairs; i++, to += COLS)
                _mm512_store_si512(to, r[i]);
        }
    }
}

extern const struct product_scheme product_dot;
const struct product_scheme        product_dot = {.name    = "avx512 in bf16 pairs",
                                                  .rows    = ROWS,
                                                  .cols    = COLS,
                                                  .depth   = 2,
                                                  .lanes   = LANES,
                                                  .element = sizeof(uint16_t),
                                                  .block   = BLOCK,
                                                  .pack_a  = pack_a,
                                                  .pack_b  = pack_b,
                                                  .tile    = tile};

/* Whether the processor has the instruction; the rest of AVX-512 is asked for by kernels_usable(). */
int product_dot_usable(void);
int product_dot_usable(void)
{
    unsigned a, b, c, d;

    return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
}
