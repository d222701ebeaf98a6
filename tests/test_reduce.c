/* test_reduce.c -- the reduction kernels, bit for bit, for every instruction set this machine has: docs/numbers.md is what they
 * must do. The reference is in reduce_call.c. */
#include "reduce_call.h"

#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    enum hkt_form in, out;
} forms[] = {{HKT_RAW, HKT_FINISHED},     {HKT_RAW, HKT_PARTIAL},      {HKT_PARTIAL, HKT_PARTIAL},
             {HKT_PARTIAL, HKT_FINISHED}, {HKT_FINISHED, HKT_PARTIAL}, {HKT_FINISHED, HKT_FINISHED}};

enum { FORMS = sizeof(forms) / sizeof(forms[0]), OPS = HKT_OPS + 1, ARENA = 64 << 20 };

static const uint32_t source_counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 40};

enum { SOURCE_COUNTS = sizeof(source_counts) / sizeof(source_counts[0]) };

static const hkt_type_t float_types[] = {HKT_FLOAT16, HKT_BFLOAT16,    HKT_FLOAT32,
                                         HKT_FLOAT64, HKT_FLOAT8_E4M3, HKT_FLOAT8_E5M2};

enum { FLOAT_TYPES = 6 };

static hkt_op_t op_at(int i)
{
    return i < HKT_OPS ? (hkt_op_t)i : HKT_PREMUL_SUM;
}

static void setup(void)
{
    find_isas();
    arena = malloc(ARENA);
    ck_assert_ptr_nonnull(arena);
}

static void teardown(void)
{
    free(arena);
    hkt_reduce_select(NULL);
}

/* ---- two sources, every pair --------------------------------------------------------------------------------------- */

/* All 65536 pairs of an 8-bit type; for the 16-bit floats each value with a random one. */
START_TEST(every_pair)
{
    static const hkt_type_t types[] = {HKT_INT8, HKT_UINT8, HKT_FLOAT8_E4M3, HKT_FLOAT8_E5M2, HKT_FLOAT16, HKT_BFLOAT16};
    const hkt_type_t        t       = types[_i];
    const size_t            size = hkt_type_size(t), n = 65536;
    char                   *a = malloc(n * size), *b = malloc(n * size), *got = malloc(n * size + 128), *want = malloc(n * size);
    const void             *src[]   = {a, b};
    void                   *dst[]   = {got + 64};
    const double            scale[] = {0.75, -3};

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t x = size == 1 ? i >> 8 : i, y = size == 1 ? i : (uint32_t)any64();

        memcpy(a + i * size, &x, size);
        memcpy(b + i * size, &y, size);
    }
    memset(got, 0x5a, n * size + 128);
    for (int o = 0; o < OPS; o++) {
        const struct hkt_reduce r = {.src = src, .dst = dst, .scale = scale, .count = n, .nsrc = 2, .ndst = 1, .divisor = 2,
                                     .in = HKT_RAW, .out = HKT_FINISHED};
        const struct call c = {t, op_at(o), HKT_RAW, HKT_FINISHED, 2, 1, n, 0, 0, 0};

        reference(&r, t, op_at(o), want);
        run_all(&c, &r, want);
    }
    free(a);
    free(b);
    free(got);
    free(want);
}
END_TEST

/* ---- shapes: sources, counts, alignment, places --------------------------------------------------------------------- */

/* One type: every operator, number of sources and small count, each at random alignment; the form, the number of destinations,
 * in place and streaming take turns. */
START_TEST(every_small_count)
{
    const hkt_type_t t    = (hkt_type_t)_i;
    unsigned         turn = 0;

    for (int o = 0; o < OPS; o++) {
        for (int s = 0; s < SOURCE_COUNTS; s++) {
            for (size_t count = 0; count <= 70; count++, turn++) {
                const int  form = (int)(turn % FORMS);
                const bool same = forms[form].in == forms[form].out || (forms[form].in == HKT_RAW && forms[form].out == HKT_FINISHED);

                run_call(&(struct call){t, op_at(o), forms[form].in, forms[form].out, source_counts[s], 1 + turn / 7 % MAX_DSTS,
                                        count, 16, same && turn % 5 == 0, turn % 3 == 0});
            }
        }
    }
}
END_TEST

/* Counts around vectors, units and blocks, all forms; alignments one by one. */
START_TEST(every_alignment_of_larger_counts)
{
    static const size_t counts[] = {127, 256, 511, 1000, 2048, 4099};
    const hkt_type_t    t        = (hkt_type_t)_i;
    unsigned            turn     = 0;

    for (int o = 0; o < OPS; o++) {
        for (unsigned align = 0; align < 16; align++, turn++) {
            for (int form = 0; form < FORMS; form++) {
                const uint32_t n = 1 + (turn * 7 + (unsigned)form) % 10;

                run_call(&(struct call){t, op_at(o), forms[form].in, forms[form].out, n, 1 + turn % MAX_DSTS,
                                        counts[(turn + (unsigned)form) % 6] / (n > 4 ? 2 : 1), align, 0, align % 2 == 0});
            }
        }
    }
}
END_TEST

/* Many sources, among them every shape of the last group at each level of the tree of groups. */
START_TEST(many_sources)
{
    static const uint32_t n[] = {10, 15, 23, 24, 32, 33, 63, 64, 65, 72, 73, 129, 512, 513, 584, 1000};

    for (unsigned i = 0; i < sizeof(n) / sizeof(n[0]); i++) {
        for (int t = 0; t < HKT_TYPES; t++) {
            const int form = (int)((i + (unsigned)t) % FORMS);

            run_call(&(struct call){(hkt_type_t)t, op_at((int)((i + (unsigned)t) % OPS)), forms[form].in, forms[form].out, n[i], 1,
                                    n[i] < 100 ? 600 : 40, 16, 0, 0});
        }
    }
    for (int t = 0; t < HKT_TYPES; t++) /* more than one block of the widest and of the narrowest type */
        run_call(&(struct call){(hkt_type_t)t, op_at(t % OPS), HKT_RAW, HKT_FINISHED, 17, 2, 9001, 16, t % 2, t % 3 == 0});
}
END_TEST

/* Buffers that end, and buffers that begin, at a page that must not be touched. */
START_TEST(nothing_beyond_the_buffers)
{
    const long       page  = sysconf(_SC_PAGESIZE);
    const hkt_type_t t     = (hkt_type_t)_i;
    const size_t     size  = hkt_type_size(t);
    char            *area  = mmap(NULL, (size_t)page * 9, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const void      *src[3];
    void            *dst[1];

    ck_assert_ptr_ne(area, MAP_FAILED);
    for (int i = 0; i <= 8; i += 2)
        ck_assert_int_eq(mprotect(area + i * page, (size_t)page, PROT_NONE), 0);
    for (int k = 0; k < nisas; k++) {
        hkt_reduce_select(isas[k]);
        for (size_t count = 1; count <= 300; count += count < 70 ? 1 : 23) {
            for (int end = 0; end < 2; end++) {
                const size_t at = end ? (size_t)page - count * size : 0;

                for (int i = 0; i < 3; i++)
                    src[i] = area + (2 * i + 1) * page + at;
                dst[0] = area + 7 * page + at;
                for (int o = 0; o < HKT_OPS; o++)
                    hkt_reduce_kernel(t, op_at(o))(&(struct hkt_reduce){.src = src, .dst = dst, .count = count, .nsrc = 3, .ndst = 1,
                                                                        .divisor = 3, .in = HKT_RAW, .out = HKT_FINISHED,
                                                                        .stream = count % 2 == 0});
                hkt_copy_bytes(dst, 1, src[0], count * size, count % 2 == 0);
            }
        }
    }
    munmap(area, (size_t)page * 9);
}
END_TEST

/* ---- copies ------------------------------------------------------------------------------------------------------- */

/* Every size class and alignment, one to three destinations, one of which may be the source; nothing beside them is written. */
START_TEST(copies)
{
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 1000, 4096, 70001, 300007};
    const size_t        room    = 300007 + 256;
    unsigned char      *from = malloc(room), *to[MAX_DSTS];

    for (int d = 0; d < MAX_DSTS; d++)
        to[d] = malloc(room);
    for (size_t i = 0; i < room; i++)
        from[i] = (unsigned char)any64();
    for (unsigned turn = 0; turn < 21 * 40; turn++) {
        const size_t   n = sizes[turn % 21];
        const uint32_t ndst = 1 + below(MAX_DSTS), same = below(4) ? MAX_DSTS : 0;
        unsigned char *src = from + below(64);
        void          *dst[MAX_DSTS];

        hkt_reduce_select(isas[turn / 21 % (unsigned)nisas]);
        for (uint32_t d = 0; d < MAX_DSTS; d++) {
            memset(to[d], 0x5a, room);
            dst[d] = d == same ? src : to[d] + 64 + below(64);
        }
        hkt_copy_bytes(dst, ndst, src, n, turn % 3 == 0);
        for (uint32_t d = 0; d < MAX_DSTS; d++) {
            unsigned char *p = dst[d];

            if (p == src)
                continue;
            ck_assert_int_eq(memcmp(p, src, d < ndst ? n : 0), 0);
            for (int i = 0; i < 64; i++)
                ck_assert(p[-1 - i] == 0x5a && p[n + (size_t)i] == 0x5a);
        }
    }
    for (int d = 0; d < MAX_DSTS; d++)
        free(to[d]);
    free(from);
}
END_TEST

/* ---- the rule ----------------------------------------------------------------------------------------------------- */

/* One element of each of n ranks, given as bits; returns the bits of the result under the chosen instruction set. */
static uint64_t reduce_bits(hkt_type_t t, hkt_op_t op, const uint64_t *x, uint32_t n)
{
    const void *src[64];
    uint64_t    out = 0;
    void       *dst[] = {&out};

    for (uint32_t i = 0; i < n; i++)
        src[i] = &x[i];
    hkt_reduce_kernel(t, op)(&(struct hkt_reduce){
        .src = src, .dst = dst, .count = 1, .nsrc = n, .ndst = 1, .divisor = n, .in = HKT_RAW, .out = HKT_FINISHED});
    return out;
}

static uint64_t bits_of(hkt_type_t t, double x)
{
    const float f    = (float)x;
    uint64_t    code = 0;

    if (is_small(t))
        return encode_small(t, x);
    memcpy(&code, t == HKT_FLOAT32 ? (const void *)&f : &x, hkt_type_size(t));
    return code;
}

/* Calls check(t, op, x, n) with x in all orders of four values. */
static void all_orders(hkt_type_t t, hkt_op_t op, const double v[4], uint64_t want)
{
    for (int i = 0; i < 256; i++) {
        const int p[4] = {i & 3, i >> 2 & 3, i >> 4 & 3, i >> 6};
        uint64_t  x[4];

        if ((1 << p[0] | 1 << p[1] | 1 << p[2] | 1 << p[3]) != 15)
            continue;
        for (int k = 0; k < 4; k++)
            x[k] = bits_of(t, v[p[k]]);
        ck_assert_msg(reduce_bits(t, op, x, 4) == want, "%s %s of %g %g %g %g is %#llx, not %#llx", hkt_type_name(t),
                      hkt_op_name(op), v[p[0]], v[p[1]], v[p[2]], v[p[3]], (unsigned long long)reduce_bits(t, op, x, 4),
                      (unsigned long long)want);
    }
}

/* C48: NaN wins in every operator, -0 is below +0 and infinities are numbers, whatever the order of the ranks. */
START_TEST(c48_nan_zero_infinity_in_all_orders)
{
    const hkt_type_t t   = float_types[_i];
    const double     inf = formats[t].finite ? 448 : INFINITY;

    for (int k = 0; k < nisas; k++) {
        hkt_reduce_select(isas[k]);
        for (int o = 0; o < HKT_OPS; o++) {
            all_orders(t, op_at(o), (const double[]){1, NAN, 3, 4}, formats[t].nan);
            all_orders(t, op_at(o), (const double[]){inf, NAN, -inf, -0.0}, formats[t].nan);
        }
        all_orders(t, HKT_MIN, (const double[]){0.0, -0.0, 1, 0.0}, bits_of(t, -0.0));
        all_orders(t, HKT_MIN, (const double[]){0.0, 0.0, 1, 0.0}, bits_of(t, 0.0));
        all_orders(t, HKT_MAX, (const double[]){0.0, -0.0, -1, -0.0}, bits_of(t, 0.0));
        all_orders(t, HKT_MAX, (const double[]){-0.0, -0.0, -1, -0.0}, bits_of(t, -0.0));
        all_orders(t, HKT_MIN, (const double[]){inf, 1, -inf, -2}, bits_of(t, -inf));
        all_orders(t, HKT_MAX, (const double[]){inf, 1, -inf, -2}, bits_of(t, inf));
        if (!formats[t].finite)
            all_orders(t, HKT_SUM, (const double[]){inf, 1, -inf, -2}, formats[t].nan);
    }
}
END_TEST

/* C48: a NaN of any one of n ranks, n = 1..9, with any sign and payload. */
START_TEST(c48_nan_of_any_rank)
{
    const hkt_type_t t    = float_types[_i];
    const uint64_t   sign = (uint64_t)1 << (formats[t].mantissa + formats[t].exponent);

    for (int k = 0; k < nisas; k++) {
        hkt_reduce_select(isas[k]);
        for (uint32_t n = 1; n <= 9; n++) {
            for (uint32_t where = 0; where < n; where++) {
                uint64_t x[9];

                for (uint32_t i = 0; i < n; i++)
                    x[i] = bits_of(t, i % 3);
                x[where] = (n & 1 ? sign - 1 : formats[t].nan) | (where & 1 ? sign : 0);
                for (int o = 0; o < HKT_OPS; o++)
                    ck_assert_uint_eq(reduce_bits(t, op_at(o), x, n), formats[t].nan);
            }
        }
    }
}
END_TEST

/* C49: 512 ranks of bf16 1.0 make 512; 64 random ones are within half a unit of the exact sum (and of fp32's own error). */
START_TEST(c49_sums_are_wide)
{
    const void *src[512];
    uint16_t    x[512], out;
    void       *dst[] = {&out};

    for (int k = 0; k < nisas; k++) {
        struct hkt_reduce r = {.src = src, .dst = dst, .count = 1, .nsrc = 512, .ndst = 1, .in = HKT_RAW, .out = HKT_FINISHED};

        hkt_reduce_select(isas[k]);
        for (int i = 0; i < 512; i++) {
            src[i] = &x[i];
            x[i]   = 0x3f80;
        }
        hkt_reduce_kernel(HKT_BFLOAT16, HKT_SUM)(&r);
        ck_assert_uint_eq(out, encode_small(HKT_BFLOAT16, 512));
        r.nsrc = 64;
        for (int turn = 0; turn < 1000; turn++) {
            double exact = 0, ulp;

            for (int i = 0; i < 64; i++) {
                x[i] = (uint16_t)(0x3f00 + below(0x100));
                exact += decode_float(HKT_BFLOAT16, x[i]);
            }
            hkt_reduce_kernel(HKT_BFLOAT16, HKT_SUM)(&r);
            ulp = decode_float(HKT_BFLOAT16, out + 1u) - decode_float(HKT_BFLOAT16, out);
            ck_assert_double_le(fabs(decode_float(HKT_BFLOAT16, out) - exact), 0.501 * ulp);
        }
    }
}
END_TEST

/* The caller's floating-point mode (rounding upwards; subnormals flushed) changes no bit, and is the caller's again after. */
START_TEST(mode_of_the_caller)
{
    const uint64_t tiny[] = {1, 1}, third[] = {bits_of(HKT_FLOAT32, 1), bits_of(HKT_FLOAT32, 0x1p-30)};

    for (int k = 0; k < nisas; k++) {
        hkt_reduce_select(isas[k]);
        ck_assert_int_eq(fesetround(FE_UPWARD), 0);
#if defined(__SSE2__)
        __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u); /* flush results, take subnormals as zero */
#endif
        const uint64_t two = reduce_bits(HKT_FLOAT32, HKT_SUM, tiny, 2), one = reduce_bits(HKT_FLOAT32, HKT_SUM, third, 2),
                       half = reduce_bits(HKT_BFLOAT16, HKT_SUM, tiny, 2);
        const int rounding  = fegetround();

#if defined(__SSE2__)
        const unsigned mode = __builtin_ia32_stmxcsr();

        __builtin_ia32_ldmxcsr(mode & ~0x8040u);
        ck_assert_uint_eq(mode & 0x8040u, 0x8040u);
#endif
        fesetround(FE_TONEAREST);
        ck_assert_int_eq(rounding, FE_UPWARD);
        ck_assert_uint_eq(two, 2);
        ck_assert_uint_eq(half, 2);
        ck_assert_uint_eq(one, bits_of(HKT_FLOAT32, 1));
    }
}
END_TEST

/* ---- docs/numbers.md ---------------------------------------------------------------------------------------------- */

static int type_named(const char *name, hkt_type_t *t)
{
    for (int i = 0; i < HKT_TYPES; i++)
        if (!strcmp(name, hkt_type_name((hkt_type_t)i)))
            return *t = (hkt_type_t)i, 1;
    return 0;
}

static hkt_op_t op_named(const char *name)
{
    int o = 0;

    while (o < HKT_OPS && strcmp(name, hkt_op_name((hkt_op_t)o)))
        o++;
    return op_at(o);
}

/* "| bfloat16 | sum | 3f80 3f80 | 4000 | why |": checks a row of the table of examples; 0 when the line is no such row. */
static int check_example(char *line)
{
    char      *cell[5], *rest = line;
    uint64_t   x[64], want;
    uint32_t   n = 0;
    hkt_type_t t;

    for (int i = 0; i < 5; i++)
        if (!(cell[i] = strtok_r(rest, "|", &rest)))
            return 0;
    if (!type_named(strtok(cell[0], " "), &t))
        return 0;
    for (char *word = strtok(cell[2], " "); word; word = strtok(NULL, " "))
        x[n++] = strtoull(word, NULL, 16);
    want = strtoull(cell[3], NULL, 16);
    for (int k = 0; k < nisas; k++) {
        hkt_reduce_select(isas[k]);
        ck_assert_msg(reduce_bits(t, op_named(strtok(cell[1], " ")), x, n) == want, "%s: numbers.md is wrong: %s", isas[k], cell[4]);
    }
    return 1;
}

/* The examples that the user reads are what the library does. */
START_TEST(examples_of_the_documentation)
{
    const char *top = getenv("srcdir");
    char        path[4096], line[512];
    int         examples = 0;
    FILE       *f;

    snprintf(path, sizeof(path), "%s/docs/numbers.md", top ? top : ".");
    f = fopen(path, "r");
    ck_assert_msg(f != NULL, "%s is missing (run from the top of the source tree or set srcdir)", path);
    while (fgets(line, sizeof(line), f))
        examples += check_example(line);
    fclose(f);
    ck_assert_int_ge(examples, 20);
}
END_TEST

/* Unknown names are refused and change nothing; NULL chooses the best of this machine. */
START_TEST(instruction_sets_are_chosen)
{
    ck_assert_str_eq(hkt_reduce_select("portable"), "portable");
    ck_assert_ptr_null(hkt_reduce_select("mmx"));
    ck_assert_str_eq(hkt_reduce_isa(), "portable");
    ck_assert_str_eq(hkt_reduce_select(NULL), isas[nisas - 1]);
    ck_assert_str_eq(hkt_reduce_isa(), isas[nisas - 1]);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
    TCase *c = tcase_create(name);

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    suite_add_tcase(s, c);
    return c;
}

static Suite *suite(void)
{
    Suite *s = suite_create("reduce");
    TCase *c = add_case(s, "shapes");

    tcase_add_loop_test(c, every_pair, 0, 6);
    tcase_add_loop_test(c, every_small_count, 0, HKT_TYPES);
    tcase_add_loop_test(c, every_alignment_of_larger_counts, 0, HKT_TYPES);
    tcase_add_test(c, many_sources);
    tcase_add_loop_test(c, nothing_beyond_the_buffers, 0, HKT_TYPES);
    tcase_add_test(c, copies);
    c = add_case(s, "rule");
    tcase_add_loop_test(c, c48_nan_zero_infinity_in_all_orders, 0, FLOAT_TYPES);
    tcase_add_loop_test(c, c48_nan_of_any_rank, 0, FLOAT_TYPES);
    tcase_add_test(c, c49_sums_are_wide);
    tcase_add_test(c, mode_of_the_caller);
    tcase_add_test(c, examples_of_the_documentation);
    tcase_add_test(c, instruction_sets_are_chosen);
    return s;
}

int main(void)
{
    SRunner *runner = srunner_create(suite());
    int      failed;

    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
