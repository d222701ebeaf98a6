/* product_single.c -- the fp32 scheme of product.h. Compiled once per instruction set, with TRAINER_ISA naming the
 * scheme.
 *
 * A tile is kept in registers as whole vectors: with AVX-512 8 rows of 3 vectors (24 of 32 registers; 48 columns divide
 * the widths that models have), else 6 rows of 2. Narrow edges use fewer vectors. Packed a: [k][row], packed b:
 * [k][column].
 */
#include "product.h"

#include <stdint.h>
#include <string.h>

#ifdef __AVX512F__
#include <immintrin.h>
enum { ROWS = 8, VECTORS = 3, LANES = 16 };
#elif defined(__AVX2__)
enum { ROWS = 6, VECTORS = 2, LANES = 8 };
#else
enum { ROWS = 6, VECTORS = 2, LANES = 4 };
#endif
enum { COLS = VECTORS * LANES, BLOCK = 256 };

typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

static inline vector load(const float *x)
{
    vector v;

    memcpy(&v, x, sizeof(v));
    return v;
}

/* The packed factors of a tile. */
struct factors {
    const float *a, *b;
    int          depth;
};

static inline __attribute__((always_inline)) void tile_of(struct matrix c, struct factors f, int keep,
                                                          const int vectors)
{
    const float *a = f.a, *b = f.b;
    vector       sum[ROWS][VECTORS];
    float        edge[ROWS][COLS];

    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < vectors; v++)
            sum[i][v] = (vector){0};
    for (int k = 0; k < f.depth; k++, a += ROWS, b += COLS) {
        vector right[VECTORS];

#pragma GCC unroll 3
        for (int v = 0; v < vectors; v++)
            right[v] = load(b + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
            for (int v = 0; v < vectors; v++)
                sum[i][v] += a[i] * right[v];
    }
    if (c.rows == ROWS && c.cols == vectors * LANES) {
        for (int i = 0; i < ROWS; i++)
            for (int v = 0; v < vectors; v++) {
                float *to = c.data + (size_t)i * (size_t)c.stride + v * LANES;

                if (keep)
                    sum[i][v] += load(to);
                memcpy(to, &sum[i][v], sizeof(vector));
            }
        return;
    }
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < vectors; v++)
            memcpy(&edge[i][v * LANES], &sum[i][v], sizeof(vector));
    for (int i = 0; i < c.rows; i++) {
        float *to = c.data + (size_t)i * (size_t)c.stride;

        for (int j = 0; j < c.cols; j++)
            to[j] = keep ? to[j] + edge[i][j] : edge[i][j];
    }
}

static void tile(struct matrix c, const void *a, const void *b, int depth, int keep)
{
    const struct factors f = {a, b, depth};

    if (VECTORS > 2 && c.cols > 2 * LANES)
        tile_of(c, f, keep, VECTORS);
    else if (c.cols > LANES)
        tile_of(c, f, keep, 2);
    else
        tile_of(c, f, keep, 1);
}

#ifdef __AVX512F__
/* 16 rows of 16 floats, `stride` apart, become 16 columns `lanes` apart. */
static void transpose_block(float *out, const float *from, size_t stride, size_t lanes)
{
    __m512 r[16], t[16];

    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_ps(from + (size_t)i * stride);
    for (int i = 0; i < 16; i += 2) {
        t[i]     = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]), c = _mm512_castps_pd(t[i + 2]),
                      d = _mm512_castps_pd(t[i + 3]);

        r[i]     = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
        r[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
        r[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
        r[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
    }
    for (int i = 0; i < 4; i++) {
        const __m512 a = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88),
                     b = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        const __m512 c = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd),
                     d = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);

        _mm512_storeu_ps(out + (size_t)i * lanes, _mm512_shuffle_f32x4(a, b, 0x88));
        _mm512_storeu_ps(out + (size_t)(i + 4) * lanes, _mm512_shuffle_f32x4(c, d, 0x88));
        _mm512_storeu_ps(out + (size_t)(i + 8) * lanes, _mm512_shuffle_f32x4(a, b, 0xdd));
        _mm512_storeu_ps(out + (size_t)(i + 12) * lanes, _mm512_shuffle_f32x4(c, d, 0xdd));
    }
}

/* Packs whole blocks of m's rows, if it has `lanes`; returns how many columns are done. */
static int transpose_blocks(float *out, struct matrix m, int lanes)
{
    const size_t stride = (size_t)m.stride;
    int          k      = 0;

    if (m.rows != lanes || lanes % 16)
        return 0;
    for (; k + 16 <= m.cols; k += 16)
        for (int lane = 0; lane < lanes; lane += 16)
            transpose_block(out + k * lanes + lane, m.data + (size_t)lane * stride + k, stride, (size_t)lanes);
    return k;
}
#else
static int transpose_blocks(float *out, struct matrix m, int lanes)
{
    (void)out, (void)m, (void)lanes;
    return 0;
}
#endif

/* out[k][lane] = from[lane * across + k * along], zero beyond `full` lanes. */
static inline __attribute__((always_inline)) void pack(float *out, struct matrix m, const int lanes)
{
    const float *from = m.data;
    const int    full = m.rows, depth = m.cols;
    int          k = 0;

    if (m.transposed) { /* lanes lie side by side */
        for (; k < depth; k++, out += lanes, from += m.stride) {
            if (full == lanes) {
                memcpy(out, from, (size_t)lanes * sizeof(float));
                continue;
            }
            for (int lane = 0; lane < lanes; lane++)
                out[lane] = lane < full ? from[lane] : 0;
        }
        return;
    }
    k = transpose_blocks(out, m, lanes);
    if (full == lanes) {
        for (; k < depth; k++)
            for (int lane = 0; lane < lanes; lane++)
                out[k * lanes + lane] = from[(size_t)lane * (size_t)m.stride + (size_t)k];
        return;
    }
    for (; k < depth; k++)
        for (int lane = 0; lane < lanes; lane++)
            out[k * lanes + lane] = lane < full ? from[(size_t)lane * (size_t)m.stride + (size_t)k] : 0;
}

/* Where rows lie side by side, several panels are filled at a time, so that whole lines of memory are read. */
static void pack_a(void *out, size_t panel, struct matrix a)
{
    enum { TOGETHER = 4 };
    const int whole = a.transposed ? a.rows / (TOGETHER * ROWS) * (TOGETHER * ROWS) : 0;

    for (int row = 0; row < whole; row += TOGETHER * ROWS) {
        const float *from = a.data + row;
        float       *to   = (float *)(void *)((char *)out + (size_t)(row / ROWS) * panel);

        for (int k = 0; k < a.cols; k++, from += a.stride, to += ROWS)
            for (int p = 0; p < TOGETHER; p++)
                memcpy((char *)to + (size_t)p * panel, from + p * ROWS, ROWS * sizeof(float));
    }
    for (int row = whole; row < a.rows; row += ROWS) {
        struct matrix m = a;

        m.data += (size_t)row * (a.transposed ? 1 : (size_t)a.stride);
        m.rows = a.rows - row < ROWS ? a.rows - row : ROWS;
        pack((float *)(void *)((char *)out + (size_t)(row / ROWS) * panel), m, ROWS);
    }
}

static void pack_b(void *out, struct matrix b)
{
    pack(out, transpose(b), COLS);
}

/* The same with factors rounded to bf16 (to nearest, ties to even; NaN stays NaN): what there is without a matrix unit.
 */
static void round_all(float *x, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &x[i], sizeof(bits));
        bits = (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1);
        bits &= 0xffff0000u;
        memcpy(&x[i], &bits, sizeof(bits));
    }
}

static void pack_a_rounded(void *out, size_t panel, struct matrix a)
{
    pack_a(out, panel, a);
    for (int row = 0; row < a.rows; row += ROWS)
        round_all((float *)(void *)((char *)out + (size_t)(row / ROWS) * panel), (size_t)a.cols * ROWS);
}

static void pack_b_rounded(void *out, struct matrix b)
{
    pack_b(out, b);
    round_all(out, (size_t)b.rows * COLS);
}

#define NAME_OF(isa) product_##isa
#define NAME(isa) NAME_OF(isa)
#define TEXT_OF(isa) #isa
#define TEXT(isa) TEXT_OF(isa)

#define SCHEME(text, a, b)                                                                                             \
    {                                                                                                                  \
        .name = text, .rows = ROWS, .cols = COLS, .depth = 1, .lanes = LANES, .element = sizeof(float),                \
        .block = BLOCK, .pack_a = a, .pack_b = b, .tile = tile                                                         \
    }

/* In fp32, and with rounded factors. */
extern const struct product_scheme NAME(TRAINER_ISA)[2];
const struct product_scheme        NAME(TRAINER_ISA)[2] = {
           SCHEME(TEXT(TRAINER_ISA), pack_a, pack_b), SCHEME(TEXT(TRAINER_ISA) " in bf16", pack_a_rounded, pack_b_rounded)};
