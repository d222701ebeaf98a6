/* product_amx.c -- the bf16 scheme of product.h for the matrix unit of Intel processors (AMX, since Sapphire Rapids).
 *
 * A tile register holds 16 rows of 64 bytes. The result is 32 x 32: four registers of sums, two of a (16 rows of 32
 * bf16 each), two of b (16 pairs of rows, 16 columns). Packing rounds to bf16 and brings two consecutive k together in
 * 32 bits ("pairs"); so for both factors it is the same work, with a transposition of 16 x 16 pairs for the one whose
 * lanes lie the other way. packed a: [k / 32][half][row 16][pair 16]     packed b: [k / 32][half][pair 16][column 16]
 */
#include "product_pairs.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIDE = 32, STEP = 32 /* k of one register */, REGISTER = 16 * 16 /* pairs */, BLOCK = 512 };

/* One panel of m's rows; `by_lane`: [lane][pair] as a wants it, else [pair][lane]. */
static void pack(uint32_t *out, struct matrix m, int lanes, int by_lane)
{
    const size_t stride = (size_t)m.stride;

    for (int k = 0; k < m.cols; k += STEP)
        for (int half = 0; half < SIDE; half += HALF, out += REGISTER) {
            const int left = lanes - half, depth = m.cols - k;
            __m512i   r[HALF];

            if (left <= 0)
                memset(r, 0, sizeof(r));
            else if (m.transposed)
                pairs_across(r, m.data + (size_t)k * stride + half, stride, left, depth);
            else
                pairs_along(r, m.data + (size_t)half * stride + k, stride, left, depth);
            if (left > 0 && m.transposed == (by_lane != 0))
                turn(r);
            for (int i = 0; i < HALF; i++)
                _mm512_store_si512(out + 16 * i, r[i]);
        }
}

static void pack_a(void *out, size_t panel, struct matrix a)
{
    for (int row = 0; row < a.rows; row += SIDE) {
        struct matrix m = a;

        m.data += (size_t)row * (a.transposed ? 1 : (size_t)a.stride);
        pack((uint32_t *)(void *)((char *)out + (size_t)(row / SIDE) * panel), m, a.rows - row, 1);
    }
}

static void pack_b(void *out, struct matrix b)
{
    const struct matrix m = transpose(b);

    pack(out, m, m.rows, 0);
}

static void store(struct matrix c, const float *sum, int keep)
{
    for (int i = 0; i < c.rows; i++, sum += SIDE) {
        float *to = c.data + (size_t)i * (size_t)c.stride;

        for (int j = 0; j < c.cols; j++)
            to[j] = keep ? to[j] + sum[j] : sum[j];
    }
}

static void tile(struct matrix c, const void *packed_a, const void *packed_b, int depth, int keep)
{
    _Alignas(64) float sum[SIDE * SIDE];
    const uint32_t    *a = packed_a, *b = packed_b;
    const size_t       line = SIDE * sizeof(float);

    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int k = 0; k < depth; k += STEP, a += 2 * REGISTER, b += 2 * REGISTER) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + REGISTER, 64);
        _tile_loadd(5, a + REGISTER, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sum, line);
    _tile_stored(1, sum + HALF, line);
    _tile_stored(2, sum + HALF * SIDE, line);
    _tile_stored(3, sum + HALF * SIDE + HALF, line);
    store(c, sum, keep);
}

/* Static, for compilers think that loading it reads eight bytes. */
static const struct {
    uint8_t  palette, start, none[14];
    uint16_t bytes[16];
    uint8_t  rows[16];
} config __attribute__((aligned(64), used)) = {
    1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

static void begin(void)
{
    _tile_loadconfig(&config);
}

static void end(void)
{
    _tile_release();
}

extern const struct product_scheme product_amx;
const struct product_scheme        product_amx = {.name    = "amx in bf16",
                                                  .rows    = SIDE,
                                                  .cols    = SIDE,
                                                  .depth   = STEP,
                                                  .lanes   = HALF,
                                                  .element = sizeof(uint16_t),
                                                  .block   = BLOCK,
                                                  .pack_a  = pack_a,
                                                  .pack_b  = pack_b,
                                                  .tile    = tile,
                                                  .begin   = begin,
                                                  .end     = end};

/* Whether the processor has the unit and bf16 conversions, and Linux lets this process use it: that has to be asked
 * for. */
int product_amx_usable(void);
int product_amx_usable(void)
{
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    unsigned a, b, c, d;

    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 22 & 1) || !(d >> 24 & 1))
        return 0;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a >> 5 & 1))
        return 0;
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}
