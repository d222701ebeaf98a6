/* test_numbers.c -- the rule of docs/numbers.md: the bits of a reduction depend on the inputs and the number of ranks and on nothing else;
 * NaN, infinities and zeros; one rounding. And that every algorithm is right for every number of ranks. */
#include "job.h"

#include "language/algorithm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- C53, C51: every algorithm, forced */

static const hkt_config_t any_order = {.size = sizeof(any_order), .blocking = 1, .timeout_s = -1, .order = HKT_ORDER_ANY};
static const hkt_type_t   floats[]  = {HKT_FLOAT16, HKT_BFLOAT16, HKT_FLOAT32, HKT_FLOAT64, HKT_FLOAT8_E4M3, HKT_FLOAT8_E5M2};

enum { FLOATS = sizeof(floats) / sizeof(floats[0]) };

static int algorithm_count(void)
{
    int n = 0;

    while (hkt_algorithms[n])
        n++;
    return n;
}

/* Integers: every order gives the same, so algorithms that do not keep the canonical order are checked to the bit too. */
static void exact_in_any_order(struct lab *lab)
{
    static const size_t counts[] = {1, 700, 9001};
    static const int    ops[]    = {HKT_SUM, HKT_MAX, HKT_AVG, OP_PREMUL};

    for (enum coll coll = 0; coll < PLAIN_COLLS; coll++)
        for (int o = 0; o < (coll_reduces(coll) ? 4 : 1); o++)
            for (int s = 0; s < 3; s++) {
                struct job j = job_random(mix((uint64_t)(coll * 1000 + o * 100 + s * 10)), coll, HKT_INT32, counts[s], lab->n);

                j.op = ops[o];
                job_run(lab, &j);
            }
}

/* Floats in the canonical order: bits as the reference has them, whichever algorithm was asked for. */
static void canonical_bits(struct lab *lab)
{
    static const size_t counts[] = {63, 4097, 9001};

    for (enum coll coll = 0; coll < PLAIN_COLLS; coll++)
        for (int s = 0; coll_reduces(coll) && s < 3; s++) {
            struct job j = job_random(mix((uint64_t)(coll * 1000 + s * 10) + 7), coll, s == 1 ? HKT_BFLOAT16 : HKT_FLOAT32, counts[s], lab->n);

            j.op = s == 2 ? HKT_AVG : HKT_SUM;
            job_run(lab, &j);
        }
}

/* Floats in any order: near the exact sum, and the same bits on every rank. */
static void same_bits_on_every_rank(struct lab *lab)
{
    enum { N = 5000 };
    const struct origin mine = {HKT_FLOAT32, ORDINARY, 77, HKT_SUM, lab->n, lab->rank, 0};
    float              *x    = malloc(N * 4), *all = malloc((size_t)lab->n * N * 4);

    fill(&mine, x, N);
    doing("all_reduce in any order, n = %d", lab->n);
    expect_ok(hkt_all_reduce(x, x, N, HKT_FLOAT32, HKT_SUM, lab->comm, NULL));
    expect_ok(hkt_all_gather(x, all, N, HKT_FLOAT32, lab->comm, NULL));
    for (int r = 0; r < lab->n; r++)
        expect(memcmp(all + (size_t)r * N, x, N * 4) == 0, "rank %d has other bits", r);
    for (size_t i = 0; i < N; i += 7) {
        double exact = 0;

        for (int r = 0; r < lab->n; r++)
            exact += to_double(HKT_FLOAT32, element(HKT_FLOAT32, ORDINARY, 77, r, i));
        expect(fabs((double)x[i] - exact) <= 1e-5 * lab->n, "element %zu is %.9g, not about %.9g", i, (double)x[i], exact);
    }
    free(x);
    free(all);
}

static void forced_in_any_order(struct rank *me)
{
    struct lab lab;

    lab_open(&lab, me->comm, (size_t)me->n * 9001 * 4);
    exact_in_any_order(&lab);
    same_bits_on_every_rank(&lab);
    lab_close(&lab);
}

static void forced_in_canonical_order(struct rank *me)
{
    struct lab lab;

    lab_open(&lab, me->comm, (size_t)me->n * 9001 * 4);
    canonical_bits(&lab);
    lab_close(&lab);
}

static void with_algorithm(int which, int n, rank_fn *fn, const hkt_config_t *config)
{
    static char option[64];

    snprintf(option, sizeof(option), "HKT_ALGORITHM=%s", hkt_algorithms[which]->name);
    world_run(&(struct world){.n = n, .kind = n % 2 ? THREADS : PROCESSES, .fn = fn, .environment = {option}, .config = config, .deadline = 100});
}

static const int rank_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 40};
enum { RANK_COUNTS = sizeof(rank_counts) / sizeof(rank_counts[0]) };

/* Proves: with every algorithm asked for, every collective is right for every number of ranks: exactly for integers, and for floats near the
 * exact sum and alike on all ranks. */
START_TEST(C53_every_algorithm)
{
    const int many = long_tests() ? 40 : RANK_COUNTS;

    with_algorithm(_i / many, long_tests() ? _i % many + 1 : rank_counts[_i % many], forced_in_any_order, &any_order);
}
END_TEST

/* Proves: in the canonical order, which is the default, the bits are those of the rule whichever algorithm is asked for. */
START_TEST(C51_algorithms_do_not_matter)
{
    static const int few[] = {2, 3, 5, 8, 9};

    with_algorithm(_i / 5, few[_i % 5], forced_in_canonical_order, NULL);
}
END_TEST

/* Proves: the tests above are not idle: every algorithm can run some of the shapes it is asked for. */
START_TEST(C53_every_algorithm_runs)
{
    static const int groups[] = {0, 1, 2};

    for (int a = 0; hkt_algorithms[a]; a++) {
        int runs = 0;

        for (int coll = 0; coll < HKT_COLL_SCHEDULED; coll++)
            for (int hosts = 0; hosts < 2; hosts++) /* two ranks on one host, or on two */
                runs += !hkt_algorithm_refuses(hkt_algorithms[a],
                                               &(struct hkt_shape){.coll = coll, .size = 2, .ngroups = hosts * 2, .group_start = groups});
        ck_assert_msg(runs > 0, "%s runs nothing", hkt_algorithms[a]->name);
    }
}
END_TEST

/* ---- C51: buckets */

static void bucketed(struct rank *me)
{
    const size_t n    = 1 << 20;
    hkt_op_t     ops[] = {HKT_SUM, HKT_AVG, HKT_PROD};
    float       *in = malloc(n * 4), *whole = malloc(n * 4), *parts = malloc(n * 4);

    for (size_t i = 0; i < n; i++) { /* exponents far apart: every order of adding gives other bits */
        const uint64_t r = mix(mix(i) + (uint64_t)me->rank);

        in[i] = ldexpf((r & 1 ? -1.0f : 1.0f) * (1 + (float)(r >> 40) * 0x1p-24f), (int)(r >> 8 & 15) - 8);
    }
    for (int o = 0; o < 3; o++) {
        doing("whole, operator %d", o);
        expect_ok(hkt_all_reduce(in, whole, n, HKT_FLOAT32, ops[o], me->comm, NULL));
        for (size_t bucket = 255; bucket < 2 * n; bucket = bucket * 4 + 1) { /* 1 KiB to 4 MiB, borders anywhere */
            doing("buckets of %zu, operator %d", bucket, o);
            for (size_t at = 0; at < n; at += bucket)
                expect_ok(hkt_all_reduce(in + at, parts + at, n - at < bucket ? n - at : bucket, HKT_FLOAT32, ops[o], me->comm, NULL));
            expect(memcmp(whole, parts, n * 4) == 0, "buckets of %zu elements give other bits", bucket);
        }
        for (size_t count = 4090; count < 4104; count++) { /* about the borders of chunks and vectors */
            expect_ok(hkt_all_reduce(in, parts, count, HKT_FLOAT32, ops[o], me->comm, NULL));
            expect(memcmp(whole, parts, count * 4) == 0, "%zu elements give other bits than the whole", count);
        }
    }
    free(in);
    free(whole);
    free(parts);
}

/* Proves: the bits of each element are the same for every bucket size and for sizes a little more or less. */
START_TEST(C51_buckets_do_not_matter)
{
    world(3 + _i, _i % 2, bucketed, NULL);
}
END_TEST

/* ---- C48: NaN, infinities, zeros */

static void permuted(struct rank *me)
{
    static const double values[3][4] = {{1, NAN, 3, 4}, {0.0, -0.0, 0.0, -0.0}, {1, INFINITY, -INFINITY, 2}};
    uint64_t            bits[4], out;
    char                in[24 * 8], result[24 * 8];

    for (int t = 0; t < FLOATS; t++)
        for (int v = 0; v < 3; v++)
            for (int op = 0; op < HKT_OPS; op++) {
                int which[24][4], k = 0;

                for (int p = 0; p < 256; p++) { /* the 24 orders of four things */
                    const int order[4] = {p & 3, p >> 2 & 3, p >> 4 & 3, p >> 6};

                    if ((1 << order[0] | 1 << order[1] | 1 << order[2] | 1 << order[3]) == 15)
                        memcpy(which[k++], order, sizeof(order));
                }
                for (int p = 0; p < 24; p++)
                    store_element(floats[t], in, (size_t)p, from_double(floats[t], values[v][which[p][me->rank]]));
                doing("%s of %s, values %d", name_of_op(op), hkt_type_name(floats[t]), v);
                expect_ok(hkt_all_reduce(in, result, 24, floats[t], (hkt_op_t)op, me->comm, NULL));
                for (int p = 0; p < 24; p++) {
                    for (int r = 0; r < 4; r++)
                        bits[r] = from_double(floats[t], values[v][which[p][r]]);
                    out = load_element(floats[t], result, (size_t)p);
                    expect(out == fold(floats[t], op, bits, 4), "order %d gives %#llx, not %#llx", p, (unsigned long long)out,
                           (unsigned long long)fold(floats[t], op, bits, 4));
                    expect(v || out == canonical_nan(floats[t]), "NaN on one rank gives %#llx", (unsigned long long)out);
                }
            }
}

/* Proves: NaN of any rank comes out as the type's one NaN, whichever rank holds it and whatever the operator; zeros and infinities alike. */
START_TEST(C48_nan_on_any_rank)
{
    world(4, _i, permuted, NULL);
}
END_TEST

static void special_values(struct rank *me)
{
    static const size_t counts[] = {7, 500, 4099, 70001};
    struct lab          lab;

    lab_open(&lab, me->comm, (size_t)me->n * 70001 * 8);
    for (enum coll coll = 0; coll < BARRIER; coll++)
        for (int t = 0; t < FLOATS; t++)
            for (int op = 0; op < (coll_reduces(coll) ? OP_COUNT : 1); op++)
                for (int s = 0; s < (coll_reduces(coll) ? 4 : 2); s++) {
                    struct job j = job_random(mix((uint64_t)(coll * 10000 + t * 1000 + op * 10 + s)), coll, floats[t], counts[s], me->n);

                    j.op     = op;
                    j.values = SPECIAL;
                    job_run(&lab, &j);
                }
    lab_close(&lab);
}

/* Proves: inputs full of NaN with payloads, infinities, subnormals, zeros of both signs and largest numbers give the bits of the rule;
 * collectives that only move data keep every bit. */
START_TEST(C48_special_values)
{
    world(1 + _i, _i % 2, special_values, NULL);
}
END_TEST

/* ---- C49: one rounding */

static void ones(struct rank *me)
{
    uint16_t x[40];

    for (int i = 0; i < 40; i++)
        x[i] = 0x3f80;
    expect_ok(hkt_all_reduce(x, x, 40, HKT_BFLOAT16, HKT_SUM, me->comm, NULL));
    for (int i = 0; i < 40; i++)
        expect(x[i] == 0x4400, "bf16 1.0 over %d ranks sums to %g", me->n, to_double(HKT_BFLOAT16, x[i]));
}

/* Proves: 1.0 in bf16 over 512 ranks is 512 exactly. */
START_TEST(C49_bf16_512_ranks)
{
    world_run(&(struct world){.n = 512, .kind = THREADS, .fn = ones, .deadline = 100});
}
END_TEST

static void half_an_ulp(struct rank *me)
{
    enum { N = 4000 };
    const struct origin mine = {HKT_BFLOAT16, ORDINARY, 5, HKT_SUM, me->n, me->rank, 0};
    uint16_t           *x    = malloc(N * 2);

    fill(&mine, x, N);
    expect_ok(hkt_all_reduce(x, x, N, HKT_BFLOAT16, HKT_SUM, me->comm, NULL));
    for (size_t i = 0; i < N; i++) {
        double exact = 0, ulp;

        for (int r = 0; r < me->n; r++)
            exact += to_double(HKT_BFLOAT16, element(HKT_BFLOAT16, ORDINARY, 5, r, i));
        ulp = ldexp(1, (exact == 0 ? -126 : ilogb(exact)) - 7);
        expect(fabs(to_double(HKT_BFLOAT16, x[i]) - exact) <= 0.5 * ulp + 64 * 0x1p-24 * fabs(exact) + 64 * 0x1p-22, "element %zu is %g, exactly %.9g", i,
               to_double(HKT_BFLOAT16, x[i]), exact);
    }
    free(x);
}

/* Proves: a bf16 sum of 64 ranks is within half a unit of the exact sum (and the rounding of fp32). */
START_TEST(C49_bf16_half_an_ulp)
{
    world(64, THREADS, half_an_ulp, NULL);
}
END_TEST

/* ---- the reference itself */

/* Proves: the conversions and the fold of reference.c on values known from the formats' definitions. */
START_TEST(the_reference_is_right)
{
    const float    third = 1.0f / 3;
    const uint64_t sum[5] = {1, 2, 3, 4, 5};
    uint32_t       bits;

    memcpy(&bits, &third, 4);
    ck_assert_uint_eq(from_double(HKT_FLOAT32, 1.0 / 3), bits);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 1.0), 0x3c00);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 65504), 0x7bff);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 65519.99), 0x7bff);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 65520), 0x7c00);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 0x1p-24), 1);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 0x1p-25), 0);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 0x1.1p-25), 1);
    ck_assert_uint_eq(from_double(HKT_FLOAT16, 0x1.ff8p-15), 0x3ff);
    ck_assert_uint_eq(from_double(HKT_BFLOAT16, 1.00390625), 0x3f80); /* a tie to even */
    ck_assert_uint_eq(from_double(HKT_BFLOAT16, 1.01171875), 0x3f82);
    ck_assert_uint_eq(from_double(HKT_FLOAT8_E4M3, 448), 0x7e);
    ck_assert_uint_eq(from_double(HKT_FLOAT8_E4M3, 464), 0x7e);
    ck_assert_uint_eq(from_double(HKT_FLOAT8_E4M3, 464.1), 0x7f);
    ck_assert_uint_eq(from_double(HKT_FLOAT8_E4M3, -0x1p-9), 0x81);
    ck_assert_uint_eq(from_double(HKT_FLOAT8_E5M2, 57344), 0x7b);
    ck_assert_uint_eq(from_double(HKT_FLOAT8_E5M2, -61440), 0xfc);
    ck_assert_uint_eq(from_double(HKT_INT8, -3), 0xfd);
    for (uint64_t b = 0; b < 0x10000; b++)
        for (int t = 0; t < FLOATS; t++)
            if (size_of(floats[t]) <= 2 && b < (uint64_t)1 << (8 * size_of(floats[t])) && !is_nan(floats[t], b) &&
                !isinf(to_double(floats[t], b)))
                ck_assert_uint_eq(from_double(floats[t], to_double(floats[t], b)), b);
    ck_assert_uint_eq(fold(HKT_UINT8, HKT_SUM, sum, 5), 15);
    ck_assert_uint_eq(fold(HKT_UINT8, HKT_AVG, sum, 5), 3);
    ck_assert_uint_eq(fold(HKT_INT8, HKT_AVG, (const uint64_t[]){0xfd, 0xfc}, 2), 0xfd); /* -3.5 towards zero */
    ck_assert_uint_eq(fold(HKT_FLOAT32, HKT_MIN, (const uint64_t[]){0, 0x80000000}, 2), 0x80000000);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, the_reference_is_right, 1, 30);
    ADD(s, C53_every_algorithm_runs, 1, 30);
    ADD(s, C53_every_algorithm, algorithm_count() * (long_tests() ? 40 : RANK_COUNTS), 120);
    ADD(s, C51_algorithms_do_not_matter, algorithm_count() * 5, 60);
    ADD(s, C51_buckets_do_not_matter, 4, 60);
    ADD(s, C48_nan_on_any_rank, 2, 30);
    ADD(s, C48_special_values, 9, 60);
    ADD(s, C49_bf16_512_ranks, 1, 120);
    ADD(s, C49_bf16_half_an_ulp, 1, 60);
}

int main(void)
{
    return run_suite("numbers", add);
}
