/* test_random123.c -- the counter-based generator: the known answers of its authors' Random123 library, fills equal to
 * single numbers wherever a range is cut, the moments of what is drawn, streams that differ, shuffles that are
 * permutations.
 */
#include "harness.h"

#include <hocket_train.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* kat_vectors of Random123 1.14, philox4x32 with 10 rounds. */
static const struct {
    uint32_t counter[4], key[2], out[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(known_answers)
{
    uint32_t out[4];

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        hkt_random_philox(out, known[i].counter, known[i].key);
        ck_assert_mem_eq(out, known[i].out, sizeof(out));
    }
    /* The same counters through a stream: its seed is the key, (block, stream) the counter. */
    const hkt_random_t pi = {0x299f31d0a4093822u, 0x0370734413198a2eu};

    for (uint64_t w = 0; w < 4; w++)
        ck_assert_uint_eq(hkt_random_bits((hkt_random_t){0, 0}, w), known[0].out[w]);
    hkt_random_philox(out, (uint32_t[]){0x243f6a88, 0x05a308d3, 0x13198a2e, 0x03707344}, known[2].key);
    ck_assert_uint_eq(hkt_random_bits(pi, 4 * 0x05a308d3243f6a88u + 2), out[2]);
}
END_TEST

/* Every cut of a range gives the numbers of the whole: what layouts rely on. */
START_TEST(parts_are_parts_of_the_whole)
{
    enum { COUNT = 333 };
    const hkt_random_t r = hkt_random_at(11, 3, 2, 1, 7);
    uint32_t           bits[COUNT], part[COUNT];
    float              normal[COUNT], uniform[COUNT], other[COUNT];

    hkt_random_fill_bits(bits, r, 1000, COUNT);
    hkt_random_fill_uniform(uniform, r, 1000, COUNT);
    hkt_random_fill_normal(normal, r, 1000, COUNT, 0.5);
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_uint_eq(bits[i], hkt_random_bits(r, 1000 + i));
        ck_assert(uniform[i] == hkt_random_uniform(r, 1000 + i) && uniform[i] == (float)(bits[i] >> 8) / 16777216);
    }
    for (size_t from = 0; from < 9; from++)
        for (size_t count = 0; count + from <= COUNT; count += 1 + count / 3) {
            hkt_random_fill_bits(part, r, 1000 + from, count);
            ck_assert(memcmp(part, bits + from, count * 4) == 0);
            hkt_random_fill_normal(other, r, 1000 + from, count, 0.5);
            ck_assert(memcmp(other, normal + from, count * 4) == 0);
            hkt_random_fill_uniform(other, r, 1000 + from, count);
            ck_assert(memcmp(other, uniform + from, count * 4) == 0);
        }
}
END_TEST

/* Normals equal the formula computed with the C library, and their moments are those of the normal distribution. */
START_TEST(normals_are_normal)
{
    enum { COUNT = 1 << 20 };
    const hkt_random_t r      = hkt_random_named(5, "wte.weight");
    float             *x      = malloc(COUNT * sizeof(*x));
    double             sum[4] = {0}, worst = 0;

    ck_assert_ptr_nonnull(x);
    hkt_random_fill_normal(x, r, 0, COUNT, 1);
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint64_t pair   = i & ~(uint64_t)1;
        const double   length = sqrt(-2 * log((hkt_random_bits(r, pair) + 0.5) / 4294967296.0));
        const double   angle  = 2 * acos(-1.0) * hkt_random_bits(r, pair + 1) / 4294967296.0;
        const double   exact  = length * (i & 1 ? sin(angle) : cos(angle));
        double         power  = 1;

        worst = fmax(worst, fabs((double)x[i] - exact) / (fabs(exact) + 1e-3));
        for (int k = 0; k < 4; k++)
            sum[k] += power *= (double)x[i];
    }
    ck_assert_double_lt(worst, 1e-7); /* rounding to fp32 is 6e-8 */
    ck_assert_double_lt(fabs(sum[0] / COUNT), 4 * sqrt(1.0 / COUNT));
    ck_assert_double_lt(fabs(sum[1] / COUNT - 1), 4 * sqrt(2.0 / COUNT));
    ck_assert_double_lt(fabs(sum[2] / COUNT), 4 * sqrt(15.0 / COUNT));
    ck_assert_double_lt(fabs(sum[3] / COUNT - 3), 4 * sqrt(96.0 / COUNT));
    free(x);
}
END_TEST

/* One coordinate more or less is another stream, and neighbours in any direction are uncorrelated. */
START_TEST(streams_differ)
{
    enum { STREAMS = 2 * 2 * 2 * 2 * 2, COUNT = 4096 };
    hkt_random_t stream[STREAMS];
    uint32_t     x[COUNT], y[COUNT];

    for (unsigned i = 0; i < STREAMS; i++)
        stream[i] = hkt_random_at(1234 + (i & 1), 1 + (i >> 1 & 1), i >> 2 & 1, i >> 3 & 1, i >> 4);
    for (int i = 0; i < STREAMS; i++) {
        hkt_random_fill_bits(x, stream[i], 0, COUNT);
        for (int j = 0; j < i; j++) {
            int equal = 0;

            hkt_random_fill_bits(y, stream[j], 0, COUNT);
            for (int k = 0; k < COUNT; k++)
                equal += __builtin_popcount(~(x[k] ^ y[k]));
            ck_assert_double_lt(fabs(equal - 16.0 * COUNT), 5 * sqrt(8.0 * COUNT)); /* 32 bits, half of them equal */
        }
    }
    ck_assert(hkt_random_named(1, "a").stream != hkt_random_named(1, "b").stream);
}
END_TEST

START_TEST(shuffles_are_permutations)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 65536, 70001};

    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        unsigned char *seen = calloc(sizes[s], 1);
        uint64_t       kept = 0;

        ck_assert_ptr_nonnull(seen);
        for (uint64_t i = 0; i < sizes[s]; i++) {
            const uint64_t place = hkt_random_shuffle(hkt_random_named(7, "order"), i, sizes[s]);

            ck_assert_uint_lt(place, sizes[s]);
            ck_assert_uint_eq(seen[place]++, 0);
            kept += place == i;
        }
        ck_assert(sizes[s] < 1000 || kept < 10); /* one is expected */
        free(seen);
    }
    ck_assert_uint_lt(hkt_random_shuffle(hkt_random_named(7, "order"), UINT64_MAX - 1, UINT64_MAX), UINT64_MAX);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, known_answers, 1, 10);
    ADD(s, parts_are_parts_of_the_whole, 1, 10);
    ADD(s, normals_are_normal, 1, 20);
    ADD(s, streams_differ, 1, 10);
    ADD(s, shuffles_are_permutations, 1, 10);
}

int main(void)
{
    return run_suite("random123", add);
}
