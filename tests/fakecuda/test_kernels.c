/* test_kernels.c -- the kernel that moves, compiled for the processor, gives the bits of the host's reductions: every type, operator, number
 * of sources and form, at lengths and alignments that take each of its ways; and touches nothing else. Eight segments go into a launch. */
#include "kernel_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES = 256 << 10, PLACES = 256 << 10, OPS = HKT_OPS + 1, UNTOUCHED = 0x5a };

/* The same bytes on the host and on the device. */
static struct arena {
    char       *host, *back;
    CUdeviceptr device;
    size_t      bytes;
} sources, places;

static const size_t counts[] = {0, 1, 2, 3, 5, 8, 15, 16, 31, 64, 100, 257, 600};

/* What the launch under test is, for a message. */
static struct {
    hkt_type_t    type;
    hkt_op_t      op;
    enum hkt_form in, out;
} now;

static const struct {
    enum hkt_form in, out;
} forms[] = {{HKT_RAW, HKT_FINISHED},      {HKT_RAW, HKT_PARTIAL},    {HKT_PARTIAL, HKT_PARTIAL},
             {HKT_PARTIAL, HKT_FINISHED}, {HKT_FINISHED, HKT_PARTIAL}, {HKT_FINISHED, HKT_FINISHED}};

enum { FORMS = sizeof(forms) / sizeof(forms[0]) };

static hkt_op_t op_at(int i)
{
    return i < HKT_OPS ? (hkt_op_t)i : HKT_PREMUL_SUM;
}

static struct arena new_arena(size_t bytes)
{
    struct arena a = {aligned_alloc(64, bytes), malloc(bytes), kernel_case_allocate(bytes), bytes};

    MUST(a.host && a.back);
    return a;
}

/* One segment as the kernel and as the host take it. */
struct pair {
    struct hkt_kernel_segment segment;
    struct hkt_reduce  reduce;
    const void        *src[HKT_SEGMENT_FAN];
    void              *dst[HKT_SEGMENT_FAN];
    double             scale[HKT_SEGMENT_FAN];
};

/* Somewhere in an arena, `askew` elements behind a multiple of 64 bytes. */
static size_t place(size_t from, size_t span, size_t bytes, size_t askew)
{
    const size_t room = span - bytes - askew - 64;

    return from + below((uint32_t)(room / 64)) * 64 + askew;
}

static void make_sources(struct pair *p, size_t size, bool alike)
{
    const size_t askew = below(16) * size % 64;

    for (uint32_t k = 0; k < p->reduce.nsrc; k++) {
        const size_t at = place(0, SOURCES, p->reduce.count * size, alike ? askew : below(16) * size % 64);

        p->src[k]         = sources.host + at;
        p->segment.src[k] = sources.device + at;
        if (now.op == HKT_PREMUL_SUM && now.in == HKT_RAW) {
            static const double scales[] = {1, 0.75, -3, 1e10, 1e-30, 1e300, 0, -0.1};

            p->scale[k]         = scales[below(8)];
            p->segment.scale[k] = hkt_kernel_scale(now.type, p->scale[k]);
            p->segment.scaled |= (uint8_t)(1u << k);
        }
        if (now.in == HKT_PARTIAL)
            p->segment.partial |= (uint8_t)(1u << k);
    }
}

/* Each segment of a launch, and each of its places, has its own stretch. */
static void make_places(struct pair *p, int index, size_t size, size_t askew)
{
    const size_t stretch = PLACES / HKT_KERNEL_SEGMENTS / HKT_SEGMENT_FAN;

    for (uint32_t d = 0; d < p->reduce.ndst; d++) {
        const size_t at = place(((size_t)index * HKT_SEGMENT_FAN + d) * stretch, stretch, p->reduce.count * size, askew);

        p->dst[d]         = places.host + at;
        p->segment.dst[d] = places.device + at;
    }
}

static void make_pair(struct pair *p, int index)
{
    const size_t wide = hkt_wide_size(now.type, now.op), size = hkt_type_size(now.type);
    const size_t in = now.in == HKT_PARTIAL ? wide : size, out = now.out == HKT_PARTIAL ? wide : size;
    const bool   alike = below(4) > 0;

    memset(p, 0, sizeof(*p));
    p->reduce = (struct hkt_reduce){.src = p->src, .dst = p->dst, .scale = p->scale, .divisor = 1 + below(9), .in = (uint8_t)now.in, .out = (uint8_t)now.out};
    p->reduce.nsrc  = 1 + below(HKT_SEGMENT_FAN);
    p->reduce.nsrc += now.in == now.out && p->reduce.nsrc == 1; /* that is a copy */
    p->reduce.ndst  = below(2) ? 1 : 1 + below(HKT_SEGMENT_FAN);
    p->reduce.count = counts[below(sizeof(counts) / sizeof(counts[0]))];
    while (p->reduce.count * out + 256 > PLACES / HKT_KERNEL_SEGMENTS / HKT_SEGMENT_FAN)
        p->reduce.count /= 2;
    make_sources(p, in, alike);
    make_places(p, index, out, alike ? (size_t)(p->segment.src[0] % 16) / in * out % 64 : below(16) * out % 64);
    p->segment.count = p->reduce.count;
    p->segment.nsrc  = (uint8_t)p->reduce.nsrc;
    p->segment.ndst  = (uint8_t)p->reduce.ndst;
    p->segment.out   = now.out == HKT_PARTIAL                                  ? HKT_SEGMENT_PARTIAL
                       : now.op == HKT_AVG && now.in != HKT_FINISHED ? HKT_SEGMENT_DIVIDE
                                                                     : 0;
}

static void compare(const struct arena *a)
{
    OK(cuMemcpyDtoH(a->back, a->device, a->bytes));
    if (!memcmp(a->host, a->back, a->bytes))
        return;
    for (size_t i = 0; i < a->bytes; i++)
        if (a->host[i] != a->back[i]) {
            fprintf(stderr, "%s, %s, form %d to %d: byte %zu is %02x, not %02x\n", hkt_type_name(now.type), hkt_op_name(now.op), now.in, now.out,
                    i, (unsigned char)a->back[i], (unsigned char)a->host[i]);
            exit(1);
        }
}

static void one_launch(void)
{
    static struct pair          pair[HKT_KERNEL_SEGMENTS];
    struct hkt_kernel_arguments a = {.segments = HKT_KERNEL_SEGMENTS, .order = hkt_kernel_order(now.type, now.op)};
    const uint32_t              divisor = 1 + below(9);

    memset(places.host, UNTOUCHED, PLACES);
    OK(cuMemsetD8(places.device, UNTOUCHED, PLACES));
    a.divisor = divisor;
    for (int i = 0; i < HKT_KERNEL_SEGMENTS; i++) {
        make_pair(&pair[i], i);
        pair[i].reduce.divisor = divisor;
        a.segment[i]           = pair[i].segment;
        if (pair[i].reduce.count)
            hkt_reduce_kernel(now.type, now.op)(&pair[i].reduce);
    }
    kernel_case_launch(&(struct kernel_launch){hkt_kernel_move(now.type, now.op), &a, NULL, 1 + below(3), 32 << below(3)});
    compare(&places);
}

/* What sums of 64 bits can be: the host's average relies on that. */
static void fill_with_sums(bool can_be_negative)
{
    for (size_t i = 0; i < SOURCES / 8; i++) {
        const int64_t sum = (int64_t)(any64() >> 24) - (can_be_negative ? (int64_t)1 << 39 : 0);

        memcpy(sources.host + 8 * i, &sum, sizeof(sum));
    }
}

static void fill(bool tame)
{
    if (now.op == HKT_AVG && now.in == HKT_PARTIAL && now.type < HKT_INT64)
        fill_with_sums(now.type % 2 == HKT_INT8 % 2);
    else
        any_elements(sources.host, now.type, SOURCES / hkt_type_size(now.type), tame);
    OK(cuMemcpyHtoD(sources.device, sources.host, SOURCES));
}

static void every_fold(int launches)
{
    for (int t = 0; t < HKT_TYPES; t++) {
        now.type = (hkt_type_t)t;
        for (int i = 0; i < launches * OPS * FORMS; i++) {
            now.op  = op_at(i / FORMS % OPS);
            now.in  = forms[i % FORMS].in;
            now.out = forms[i % FORMS].out;
            fill(i / FORMS / OPS % 2);
            one_launch();
        }
    }
    compare(&sources);
    printf("every fold is the host's, %d launches of %d segments\n", HKT_TYPES * launches * OPS * FORMS, HKT_KERNEL_SEGMENTS);
}

/* Raw and partial sources in one segment: the host widens the raw ones first. */
static void mixed_forms(void)
{
    enum { COUNT = 100 };
    const hkt_type_t            type = HKT_BFLOAT16;
    uint16_t                    raw[COUNT];
    float                       partial[COUNT], wide[COUNT], want[COUNT], got[COUNT];
    struct hkt_kernel_arguments a = {.segments = 1};
    const void                 *src[] = {wide, partial};
    void                       *dst[] = {want};
    const CUdeviceptr           device = kernel_case_allocate(8192);

    any_elements(raw, type, COUNT, true);
    any_elements(partial, HKT_FLOAT32, COUNT, true);
    for (int i = 0; i < COUNT; i++)
        wide[i] = hkt_from_bfloat16(raw[i]);
    hkt_reduce_kernel(type, HKT_SUM)(
        &(struct hkt_reduce){.src = src, .dst = dst, .count = COUNT, .nsrc = 2, .ndst = 1, .in = HKT_PARTIAL, .out = HKT_PARTIAL});
    OK(cuMemcpyHtoD(device, raw, sizeof(raw)));
    OK(cuMemcpyHtoD(device + 1024, partial, sizeof(partial)));
    a.segment[0] = (struct hkt_kernel_segment){
        .count = COUNT, .src = {device, device + 1024}, .dst = {device + 4096}, .nsrc = 2, .ndst = 1, .partial = 2, .out = HKT_SEGMENT_PARTIAL};
    kernel_case_launch(&(struct kernel_launch){hkt_kernel_move(type, HKT_SUM), &a, NULL, 1, 32});
    OK(cuMemcpyDtoH(got, device + 4096, sizeof(got)));
    MUST(!memcmp(got, want, sizeof(want)));
    OK(cuMemFree(device));
    printf("raw and partial sources mix\n");
}

/* A place may be a source. */
static void in_place(void)
{
    enum { COUNT = 1000 };
    float                       x[COUNT], y[COUNT], got[COUNT];
    struct hkt_kernel_arguments a      = {.segments = 1};
    const CUdeviceptr           device = kernel_case_allocate(2 * sizeof(x));

    any_elements(x, HKT_FLOAT32, COUNT, true);
    any_elements(y, HKT_FLOAT32, COUNT, true);
    OK(cuMemcpyHtoD(device, x, sizeof(x)));
    OK(cuMemcpyHtoD(device + sizeof(x), y, sizeof(y)));
    a.segment[0] = (struct hkt_kernel_segment){
        .count = COUNT, .src = {device, device + sizeof(x)}, .dst = {device, device + sizeof(x)}, .nsrc = 2, .ndst = 2};
    kernel_case_launch(&(struct kernel_launch){hkt_kernel_move(HKT_FLOAT32, HKT_SUM), &a, NULL, 2, 64});
    for (int i = 0; i < COUNT; i++)
        x[i] += y[i];
    for (int k = 0; k < 2; k++) {
        OK(cuMemcpyDtoH(got, device + (unsigned)k * sizeof(x), sizeof(x)));
        MUST(!memcmp(got, x, sizeof(x)));
    }
    OK(cuMemFree(device));
    printf("in place\n");
}

static void copies(void)
{
    struct hkt_kernel_arguments a = {.segments = HKT_KERNEL_SEGMENTS};

    any_elements(sources.host, HKT_UINT64, SOURCES / 8, false);
    OK(cuMemcpyHtoD(sources.device, sources.host, SOURCES));
    for (int round = 0; round < 60; round++) {
        memset(places.host, UNTOUCHED, PLACES);
        OK(cuMemsetD8(places.device, UNTOUCHED, PLACES));
        for (int i = 0; i < HKT_KERNEL_SEGMENTS; i++) {
            const size_t stretch = PLACES / HKT_KERNEL_SEGMENTS / HKT_SEGMENT_FAN, bytes = below((uint32_t)stretch - 128);
            const size_t from = place(0, SOURCES, bytes, below(16)), unit = 1u << below(5);

            a.segment[i] = (struct hkt_kernel_segment){.count = bytes, .src = {sources.device + from}, .nsrc = 1, .ndst = (uint8_t)(1 + below(HKT_SEGMENT_FAN))};
            for (int d = 0; d < a.segment[i].ndst; d++) {
                const size_t at = ((size_t)i * HKT_SEGMENT_FAN + (size_t)d) * stretch + (from + below(16) * unit) % 16;

                a.segment[i].dst[d] = places.device + at;
                memcpy(places.host + at, sources.host + from, bytes);
            }
        }
        kernel_case_launch(&(struct kernel_launch){HKT_KERNEL_COPY, &a, NULL, 1 + below(3), 32 << below(3)});
        compare(&places);
    }
    printf("copies\n");
}

static void every_kernel_has_its_name(void)
{
    int n = 0;

    for (; hkt_kernel_names[n]; n++)
        kernel_case_find(hkt_kernel_names[n]);
    for (int t = 0; t < HKT_TYPES; t++)
        for (int o = 0; o < OPS; o++) {
            kernel_case_find(hkt_kernel_move((hkt_type_t)t, op_at(o)));
            kernel_case_find(hkt_kernel_low((hkt_type_t)t, op_at(o)));
        }
    printf("%d kernels\n", n);
}

int main(void)
{
    kernel_case_start();
    sources = new_arena(SOURCES);
    places  = new_arena(PLACES);
    every_kernel_has_its_name();
    every_fold(getenv("TEST_LONG") ? 40 : 4);
    mixed_forms();
    in_place();
    copies();
    return 0;
}
