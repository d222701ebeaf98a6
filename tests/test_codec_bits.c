/* test_codec_bits.c -- the loops of the codecs bit by bit: conversions in all codes and at all borders, and that every
 * instruction set makes the same bytes. */
#include "codecs.h"

#include <parallel/codec.h>
#include <parallel/isa.h>

extern const struct codec_loops codec_loops_portable, codec_loops_avx2, codec_loops_avx512;

enum { LARGE = 1 << 16 };

/* The instruction sets that this processor has, the narrowest first. */
static int sets(const struct codec_loops *loops[ISAS])
{
    loops[ISA_PORTABLE] = &codec_loops_portable;
#ifdef __x86_64__
    loops[ISA_AVX2]   = &codec_loops_avx2;
    loops[ISA_AVX512] = &codec_loops_avx512;
#endif
    return (int)isa_usable() + 1;
}

static const struct codec *codec_named(const struct codec_loops *loops, const char *name)
{
    for (int i = 0; loops->table[i]; i++)
        if (!strcmp(loops->table[i]->name, name))
            return loops->table[i];
    fail_at(__FILE__, __LINE__, "no codec %s", name);
}

/* ---- conversions */

/* The value of a code by the definition of the format. */
static double value_of(unsigned code, int mantissa, int bias)
{
    const unsigned exponent = code >> mantissa, fraction = code & ((1u << mantissa) - 1);

    return exponent ? ldexp(1 + (double)fraction / (1 << mantissa), (int)exponent - bias)
                    : ldexp((double)fraction / (1 << mantissa), 1 - bias);
}

struct halves {
    const char *name;
    int         mantissa, bias;
    unsigned    infinity, nan;
};
static const struct halves halves[] = {{"fp16", 10, 15, 0x7c00, 0x7e00}, {"bf16", 7, 127, 0x7f80, 0x7fc0}};

static unsigned narrowed(const struct codec *c, float x)
{
    static const double value[4];
    float               in[CODEC_GROUP] = {x};
    uint16_t            out[CODEC_GROUP];

    c->encode((uint8_t *)out, in, 1, &(struct codec_call){value, NULL, 0});
    return out[0];
}

static void every_code(const struct codec *c, const struct halves *h)
{
    static uint16_t code[LARGE], back[LARGE];
    static float    x[LARGE];
    const double    value[4] = {0};

    for (unsigned i = 0; i < LARGE; i++)
        code[i] = (uint16_t)i;
    for (unsigned i = 0; i < LARGE; i += CODEC_TILE) {
        c->decode(x + i, (const uint8_t *)(code + i), CODEC_TILE, value);
        c->encode((uint8_t *)(back + i), x + i, CODEC_TILE, &(struct codec_call){value, NULL, 0});
    }
    for (unsigned i = 0; i < LARGE; i++) {
        const unsigned magnitude = i & 0x7fff;
        const double   wanted = magnitude == h->infinity ? (double)INFINITY : value_of(magnitude, h->mantissa, h->bias);

        if (magnitude > h->infinity) {
            expect(isnan(x[i]) && back[i] == h->nan, "%s %04x is NaN, decoded %g, encoded %04x", c->name, i,
                   (double)x[i], back[i]);
            continue;
        }
        expect((double)x[i] == (i >> 15 ? -wanted : wanted) && !signbit(x[i]) == !(i >> 15), "%s %04x is %g, not %g",
               c->name, i, wanted, (double)x[i]);
        expect(back[i] == i, "%s %04x comes back as %04x", c->name, i, back[i]);
    }
}

/* Between each two neighbours: the middle goes to the even one, its neighbours in fp32 to the nearer. */
static void every_middle(const struct codec *c, const struct halves *h)
{
    for (unsigned i = 0; i < h->infinity; i++) {
        const double below = value_of(i, h->mantissa, h->bias);
        const double above =
            value_of(i + 1, h->mantissa, h->bias); /* beyond the largest: where infinity stands, IEEE 4.3.1 */
        const float mid = (float)(0.5 * below + 0.5 * above);

        if (below + 0.5 * (above - below) != (double)mid)
            continue; /* bf16's least steps: no middle in fp32 */
        expect(narrowed(c, mid) == (i & 1 ? i + 1 : i), "%s: %a between %04x and the next", c->name, (double)mid, i);
        expect(narrowed(c, nextafterf(mid, 0)) == i, "%s: below %a", c->name, (double)mid);
        expect(narrowed(c, -nextafterf(mid, INFINITY)) == (0x8000 | (i + 1)), "%s: above %a, negative", c->name,
               (double)mid);
    }
}

/* Proves: fp16 and bf16 are exact in all 2^16 codes and round to nearest even at every border, on every instruction
 * set. */
START_TEST(R69_R70_halves_exhaustive)
{
    const struct codec_loops *loops[ISAS];
    const int                 n = sets(loops);

    for (int k = 0; k < n; k++) {
        const struct codec *c = codec_named(loops[k], halves[_i].name);

        every_code(c, &halves[_i]);
        every_middle(c, &halves[_i]);
        expect_true(narrowed(c, NAN) == halves[_i].nan && narrowed(c, float_of_bits(0x7f800001)) == halves[_i].nan &&
                    narrowed(c, float_of_bits(0xffffffff)) == halves[_i].nan);
        expect_true(narrowed(c, INFINITY) == halves[_i].infinity && narrowed(c, -0.0f) == 0x8000);
    }
    const struct codec *half = codec_named(loops[0], "fp16");

    expect_true(narrowed(half, 65504) == 0x7bff && narrowed(half, 65519.99f) == 0x7bff &&
                narrowed(half, 65520) == 0x7c00);
}
END_TEST

/* Proves: E4M3 is exact in all its codes (448 in a block makes the scale 1) and rounds to nearest even. */
START_TEST(fp8_exhaustive)
{
    const struct codec_loops *loops[ISAS];
    const int                 n        = sets(loops);
    const double              value[4] = {256};

    for (int k = 0; k < n; k++) {
        const struct codec *c = codec_named(loops[k], "fp8");
        float               x[256], back[256];
        uint8_t             code[4 + 256];

        for (unsigned i = 0; i < 256; i++) {
            const double v = (i & 0x7f) == 0x7f ? 0 : value_of(i & 0x7f, 3, 7);

            x[i] = (float)(i & 0x80 ? -v : v);
        }
        c->encode(code, x, 256, &(struct codec_call){value, NULL, 0});
        c->decode(back, code, 256, value);
        for (unsigned i = 0; i < 256; i++)
            expect((i & 0x7f) == 0x7f || (code[4 + i] == i && back[i] == x[i]), "code %02x: %g becomes %02x, %g", i,
                   (double)x[i], code[4 + i], (double)back[i]);
        for (unsigned i = 1; i < 0x7e; i++) {
            const float mid = (float)(0.5 * (value_of(i, 3, 7) + value_of(i + 1, 3, 7)));

            x[i]       = mid;
            x[i | 128] = nextafterf(mid, 0);
        }
        c->encode(code, x, 256, &(struct codec_call){value, NULL, 0});
        for (unsigned i = 1; i < 0x7e; i++)
            expect(code[4 + i] == (i & 1 ? i + 1 : i) && code[4 + (i | 128)] == i,
                   "between %02x and the next: %02x, %02x", i, code[4 + i], code[4 + (i | 128)]);
    }
}
END_TEST

/* ---- instruction sets */

static void special(float *x, size_t count)
{
    static const uint32_t bits[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xff812345,
                                    0x00000001, 0x80000000, 0x7f7fffff, 0x00800000};

    for (size_t i = 0; i < count; i++)
        if (mix(i) % 701 == 0)
            x[i] = float_of_bits(bits[mix(i + 1) % 8]);
}

/* Proves: the code, what it decodes to and the feedback are the same bytes from every instruction set, for odd sizes
 * and odd numbers. */
START_TEST(same_bytes_on_every_instruction_set)
{
    static float              x[CODEC_TILE], y[2][CODEC_TILE], e[2][CODEC_TILE];
    static uint8_t            code[2][4 * CODEC_TILE + 64];
    static uint16_t           random[CODEC_TILE];
    const struct codec_loops *loops[ISAS];
    const int                 n = sets(loops);

    for (size_t i = 0; i < CODEC_TILE; i++)
        random[i] = (uint16_t)mix(i);
    for (int t = 0; loops[0]->table[t]; t++)
        for (size_t round = 0; round < 40; round++) {
            const struct codec *c     = loops[0]->table[t];
            const size_t        count = round ? 1 + mix(round) % CODEC_TILE : CODEC_TILE;
            double              value[4];

            for (int o = 0; o < 4; o++)
                value[o] = c->option[o].normal;
            fill_gradient(x, round, CODEC_TILE);
            if (round % 2)
                special(x, CODEC_TILE);
            memset(x + count, 0, (CODEC_TILE - count) * sizeof(float));
            for (int k = 0; k < n && !c->linear; k++) {
                const struct codec *mine = loops[k]->table[t];
                struct codec_call   call = {value, random, mine->measure ? mine->measure(x, count, value) : 0};

                mine->encode(code[k > 0], x, count, &call);
                mine->decode(y[k > 0], code[k > 0], count, value);
                loops[k]->keep(e[k > 0], x, y[k > 0], count);
                expect(!memcmp(code[0], code[k > 0], c->bound(count, value)), "%s: code of %s", c->name,
                       loops[k]->name);
                expect(!memcmp(y[0], y[k > 0], count * sizeof(float)), "%s: decoded by %s", c->name, loops[k]->name);
                expect(!memcmp(e[0], e[k > 0], count * sizeof(float)), "%s: feedback by %s", c->name, loops[k]->name);
                expect(loops[k]->bad(x, count) == loops[0]->bad(x, count), "%s: first NaN", loops[k]->name);
            }
        }
}
END_TEST

/* Proves: sums of products and the update of 1-bit Adam have the same bits from every instruction set. */
START_TEST(same_bits_of_the_other_loops)
{
    static float                   a[1000], b[1000], w[2][1000], v[2][1000], y[2][1000];
    const struct hkt_adamw_numbers numbers = {
        .beta1 = 0.9f, .rest1 = 0.1f, .shrink = 0.999f, .length = 0.01f, .root = 1.5f, .epsilon = 1e-8f};
    const struct codec_loops *loops[ISAS];
    const int                 n = sets(loops);

    fill_gradient(a, 1, 1000);
    for (size_t i = 0; i < 1000; i++)
        b[i] = i % 7 ? fabsf(gradient_like(2, i)) : 0;
    for (int k = 0; k < n; k++)
        for (size_t count = 0; count <= 1000; count += 37) {
            const float dot = loops[0]->dot(a, b, count), mine = loops[k]->dot(a, b, count);
            double      exact = 0;

            for (size_t i = 0; i < count; i++)
                exact += (double)a[i] * (double)b[i];
            expect(bits_of_float(dot) == bits_of_float(mine) && fabs(exact - (double)mine) < 1e-4, "%s: %g",
                   loops[k]->name, (double)mine);
            for (int o = 0; o < 2; o++) {
                const struct codec_loops *l = loops[o ? k : 0];

                fill_gradient(w[o], 3, 1000);
                l->add_scaled(w[o], 0.3f, a, count);
                l->add(w[o], b, count);
                l->divide(w[o], 3, count);
                memcpy(v[o], b, sizeof(b));
                l->freeze(w[o], v[o], &numbers, count);
                l->blend(y[o], &(struct codec_moment){w[o], v[o]}, a, &numbers, count);
                l->move(w[o], y[o], v[o], &numbers, count);
            }
            expect(!memcmp(w[0], w[1], sizeof(w[0])), "loops of %s", loops[k]->name);
        }
}
END_TEST

static void add(Suite *s)
{
    ADD(s, R69_R70_halves_exhaustive, 2, 20);
    ADD(s, fp8_exhaustive, 1, 10);
    ADD(s, same_bytes_on_every_instruction_set, 1, 20);
    ADD(s, same_bits_of_the_other_loops, 1, 20);
}

int main(void)
{
    return run_suite("codec_bits", add);
}
