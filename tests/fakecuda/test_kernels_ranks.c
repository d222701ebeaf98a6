/* test_kernels_ranks.c -- kernels of several ranks that wait for each other: ranks are streams of one process. The fused all-reduce (barrier,
 * own slice from all to all, barrier) and the low latency one, round after round on changing data, against the host's bits.
 *
 *   test_kernels_ranks                 every scene in a process of its own, with the settings that show what the plain ones hide
 *   test_kernels_ranks SCENE RANKS     one scene here; for ThreadSanitizer and for mutations
 */
#include "kernel_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = HKT_SEGMENT_FAN, ELEMENTS = 3000, LOW_ELEMENTS = 700, GUARD = 16, UNTOUCHED = 0x5a };

static struct rank {
    CUstream    stream;
    CUdeviceptr control, low, in, out;
    char       *host; /* registered: what its stream copies in, and back */
} ranks[MOST];

static int       nranks;
static uint32_t *abort_word;
static bool      is_short; /* under a sanitizer */

static void make_ranks(int n)
{
    nranks     = n;
    abort_word = aligned_alloc(4096, 4096);
    MUST(abort_word != NULL);
    *abort_word = 0;
    OK(cuMemHostRegister(abort_word, 4096, CU_MEMHOSTREGISTER_PORTABLE));
    for (int r = 0; r < n; r++) {
        void *host;

        OK(cuStreamCreateWithPriority(&ranks[r].stream, CU_STREAM_NON_BLOCKING, 0));
        OK(cuMemHostAlloc(&host, 2 * ELEMENTS * 8, 0));
        ranks[r].host    = host;
        ranks[r].control = kernel_case_allocate(sizeof(struct hkt_kernel_control));
        ranks[r].low     = kernel_case_allocate(HKT_LOW_AREA);
        ranks[r].in      = kernel_case_allocate(ELEMENTS * 8);
        ranks[r].out     = kernel_case_allocate(ELEMENTS * 8);
    }
    OK(cuCtxSynchronize());
}

static struct hkt_kernel_arguments arguments_of(int rank, hkt_type_t type, hkt_op_t op)
{
    struct hkt_kernel_arguments a = {.rank    = (uint32_t)rank,
                                     .ranks   = (uint32_t)nranks,
                                     .peers   = (1u << nranks) - 1,
                                     .divisor = (uint32_t)nranks,
                                     .order   = hkt_kernel_order(type, op),
                                     .abort   = (uintptr_t)abort_word};

    for (int r = 0; r < nranks; r++) {
        a.control[r] = ranks[r].control;
        a.low[r]     = ranks[r].low;
    }
    return a;
}

/* The all-reduce of everybody's `host`, by the host. */
static void expect(void *want, hkt_type_t type, hkt_op_t op, size_t count)
{
    const void  *src[MOST];
    void        *dst[]       = {want};
    const double scale[MOST] = {0.5, -2, 3, 0.25, 1, 7, -0.125, 1.5};

    for (int r = 0; r < nranks; r++)
        src[r] = ranks[r].host;
    hkt_reduce_kernel(type, op)(&(struct hkt_reduce){.src     = src,
                                                     .dst     = dst,
                                                     .scale   = scale,
                                                     .count   = count,
                                                     .nsrc    = (uint32_t)nranks,
                                                     .ndst    = 1,
                                                     .divisor = (uint32_t)nranks,
                                                     .in      = HKT_RAW,
                                                     .out     = HKT_FINISHED});
}

/* Premultiplied sums: what expect() has. */
static void set_scales(struct hkt_kernel_segment *s, hkt_type_t type)
{
    static const double scale[MOST] = {0.5, -2, 3, 0.25, 1, 7, -0.125, 1.5};

    for (int r = 0; r < MOST; r++)
        s->scale[r] = hkt_kernel_scale(type, scale[r]);
}

static void copy_in(int r, hkt_type_t type, size_t count)
{
    const size_t bytes = count * hkt_type_size(type);

    any_elements(ranks[r].host, type, count, true);
    OK(cuMemcpyAsync(ranks[r].in, (uintptr_t)ranks[r].host, bytes, ranks[r].stream));
    OK(cuMemsetD8Async(ranks[r].out, UNTOUCHED, bytes + GUARD, ranks[r].stream));
}

static void copy_back(int r, size_t bytes)
{
    OK(cuMemcpyAsync((uintptr_t)ranks[r].host + ELEMENTS * 8, ranks[r].out, bytes + GUARD, ranks[r].stream));
}

static void check_all(const char *what, hkt_type_t type, hkt_op_t op, size_t count)
{
    static char  want[ELEMENTS * 8 + GUARD];
    const size_t bytes = count * hkt_type_size(type);

    expect(want, type, op, count);
    memset(want + bytes, UNTOUCHED, GUARD);
    for (int r = 0; r < nranks; r++) {
        OK(cuStreamSynchronize(ranks[r].stream));
        if (memcmp(ranks[r].host + ELEMENTS * 8, want, bytes + GUARD)) {
            fprintf(stderr, "%s, %d ranks, %s, %s, %zu elements: rank %d has something else\n", what, nranks, hkt_type_name(type), hkt_op_name(op),
                    count, r);
            exit(1);
        }
    }
}

/* ---- scenes ---------------------------------------------------------------------------------------------------------------------------------- */

/* Every rank folds its slice of all inputs into all outputs. */
static void fused_round(hkt_type_t type, hkt_op_t op, size_t count, unsigned blocks)
{
    const size_t size = hkt_type_size(type);

    for (int r = 0; r < nranks; r++)
        copy_in(r, type, count);
    for (int r = 0; r < nranks; r++) {
        struct hkt_kernel_arguments a     = arguments_of(r, type, op);
        const size_t                begin = count * (size_t)r / (size_t)nranks, end = count * (size_t)(r + 1) / (size_t)nranks;

        a.wait       = HKT_KERNEL_BEFORE | HKT_KERNEL_AFTER;
        a.segments   = 1;
        a.segment[0] = (struct hkt_kernel_segment){
            .count = end - begin, .nsrc = (uint8_t)nranks, .ndst = (uint8_t)nranks, .out = op == HKT_AVG ? HKT_SEGMENT_DIVIDE : 0};
        for (int p = 0; p < nranks; p++) {
            a.segment[0].src[p] = ranks[p].in + begin * size;
            a.segment[0].dst[p] = ranks[p].out + begin * size;
        }
        kernel_case_launch(&(struct kernel_launch){hkt_kernel_move(type, op), &a, ranks[r].stream, blocks, 32});
        copy_back(r, count * size);
    }
    check_all("fused", type, op, count);
}

static void fused(void)
{
    for (int round = 0; round < (is_short ? 6 : 40); round++)
        fused_round(round % 2 ? HKT_FLOAT32 : HKT_BFLOAT16, round % 3 ? HKT_SUM : HKT_AVG, 200 + below(ELEMENTS - 200), 1 + (unsigned)round % 3);
}

static void low_round(hkt_type_t type, hkt_op_t op, size_t count, unsigned blocks)
{
    for (int r = 0; r < nranks; r++)
        copy_in(r, type, count);
    for (int r = 0; r < nranks; r++) {
        struct hkt_kernel_arguments a = arguments_of(r, type, op);

        a.segment[0] = (struct hkt_kernel_segment){.count = count, .src = {ranks[r].in}, .dst = {ranks[r].out}, .nsrc = 1, .ndst = 1};
        a.segment[0].out = op == HKT_AVG ? HKT_SEGMENT_DIVIDE : 0;
        set_scales(&a.segment[0], type);
        kernel_case_launch(&(struct kernel_launch){hkt_kernel_low(type, op), &a, ranks[r].stream, blocks, 32});
        copy_back(r, count * hkt_type_size(type));
    }
    check_all("low latency", type, op, count);
}

static void low(void)
{
    for (int round = 0; round < (is_short ? 8 : 60); round++)
        low_round(round % 2 ? HKT_FLOAT32 : HKT_INT8, round % 3 ? HKT_SUM : HKT_MAX, 1 + below(LOW_ELEMENTS), 1 + (unsigned)round % 3);
}

/* All types and operators; the two lengths are whole words and not. */
static void low_types(void)
{
    for (int t = 0; t < HKT_TYPES; t++)
        for (int o = 0; o <= HKT_OPS; o++)
            for (size_t count = 61; count <= 64; count += 3)
                low_round((hkt_type_t)t, o < HKT_OPS ? (hkt_op_t)o : HKT_PREMUL_SUM, count, 2);
}

/* Fused and low latency in turn, several before anybody looks. */
static void pipelined(void)
{
    for (int round = 0; round < (is_short ? 8 : 20); round++) {
        for (int i = 0; i < 5; i++)
            for (int r = 0; r < nranks; r++) {
                struct hkt_kernel_arguments a = arguments_of(r, HKT_FLOAT32, HKT_SUM);

                a.segment[0] = (struct hkt_kernel_segment){.count = 100, .src = {ranks[r].in}, .dst = {ranks[r].out}, .nsrc = 1, .ndst = 1};
                kernel_case_launch(&(struct kernel_launch){hkt_kernel_low(HKT_FLOAT32, HKT_SUM), &a, ranks[r].stream, 2, 32});
            }
        low_round(HKT_FLOAT32, HKT_SUM, 100, 2);
        fused_round(HKT_FLOAT32, HKT_SUM, 500, 2);
    }
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Nobody else comes; the host's word ends both kernels, and the next ones do not wait. */
static void aborts(void)
{
    struct hkt_kernel_arguments a = arguments_of(0, HKT_FLOAT32, HKT_SUM);
    double                      begin;

    a.wait       = HKT_KERNEL_BEFORE | HKT_KERNEL_AFTER;
    a.segment[0] = (struct hkt_kernel_segment){.count = 100, .src = {ranks[0].in}, .dst = {ranks[0].out}, .nsrc = 1, .ndst = 1};
    kernel_case_launch(&(struct kernel_launch){hkt_kernel_move(HKT_FLOAT32, HKT_SUM), &a, ranks[0].stream, 2, 32});
    kernel_case_launch(&(struct kernel_launch){hkt_kernel_low(HKT_FLOAT32, HKT_SUM), &a, ranks[0].stream, 2, 32});
    MUST(cuStreamQuery(ranks[0].stream) == CUDA_ERROR_NOT_READY);
    begin = seconds();
    __atomic_store_n(abort_word, 1, __ATOMIC_RELAXED);
    OK(cuStreamSynchronize(ranks[0].stream));
    MUST(seconds() - begin < 10); /* a loaded machine; it takes a tenth of a second */
}

static const struct scene {
    const char *name;
    void (*run)(void);
} scenes[] = {{"fused", fused}, {"low", low}, {"types", low_types}, {"pipelined", pipelined}, {"abort", aborts}};

enum { SCENES = sizeof(scenes) / sizeof(scenes[0]) };

static void run_scene(const struct scene *s, int n)
{
    kernel_case_start();
    make_ranks(n);
    s->run();
    OK(cuCtxSynchronize());
}

static void run_apart(const struct scene *s, int n, const char *seed, const char *jitter)
{
    const pid_t child = fork();
    int         status;

    MUST(child >= 0);
    if (!child) {
        setenv("FAKECUDA_SEED", seed, 1);
        setenv("FAKECUDA_JITTER", jitter, 1);
        alarm(100);
        run_scene(s, n);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status)) {
        fprintf(stderr, "%s with %d ranks, seed %s, jitter %s: failed (%x)\n", s->name, n, seed, jitter, (unsigned)status);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static const int n[] = {2, 3, 4, 8};

    if (argc == 3) {
        is_short = true;
        for (int i = 0; i < SCENES; i++)
            if (!strcmp(argv[1], scenes[i].name))
                return run_scene(&scenes[i], atoi(argv[2])), 0;
        return 2;
    }
    for (int i = 0; i < SCENES; i++) {
        for (int k = 0; k < 4; k++)
            run_apart(&scenes[i], n[k], "0", "0");
        run_apart(&scenes[i], 3, "7", "0");
        run_apart(&scenes[i], 4, "11", "500");
        printf("%s\n", scenes[i].name);
    }
    return 0;
}
