/* plan_measure.c -- this computer as a machine: one core is a device. Floating-point peak by independent fused
 * multiply-adds in registers, memory by copying what no cache holds, the link by two ranks of the library itself. What
 * a large product reaches is taken as 80 % of that peak, which hkt-train's linear layers are held to.
 */
#include "plan.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 100000, SUMS = 8 /* independent: the latency of a multiply-add times how many begin in a cycle */ };

static float work_portable(float x, int *lanes)
{
    float sum[SUMS] = {0};

    *lanes = 1;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < SUMS; i++)
            sum[i] = sum[i] * x + x;
    for (int i = 1; i < SUMS; i++)
        sum[0] += sum[i];
    return sum[0];
}

#ifdef __x86_64__
static __attribute__((target("avx2,fma"))) float work_avx2(float x, int *lanes)
{
    const __m256 v = _mm256_set1_ps(x);
    __m256       a = v, b = v, c = v, d = v, e = v, f = v, g = v, h = v;

    *lanes = 8;
    for (int round = 0; round < ROUNDS; round++) {
        a = _mm256_fmadd_ps(a, v, v);
        b = _mm256_fmadd_ps(b, v, v);
        c = _mm256_fmadd_ps(c, v, v);
        d = _mm256_fmadd_ps(d, v, v);
        e = _mm256_fmadd_ps(e, v, v);
        f = _mm256_fmadd_ps(f, v, v);
        g = _mm256_fmadd_ps(g, v, v);
        h = _mm256_fmadd_ps(h, v, v);
    }
    return _mm256_cvtss_f32(a + b + c + d + e + f + g + h);
}

static __attribute__((target("avx512f"))) float work_avx512(float x, int *lanes)
{
    const __m512 v = _mm512_set1_ps(x);
    __m512       a = v, b = v, c = v, d = v, e = v, f = v, g = v, h = v;

    *lanes = 16;
    for (int round = 0; round < ROUNDS; round++) {
        a = _mm512_fmadd_ps(a, v, v);
        b = _mm512_fmadd_ps(b, v, v);
        c = _mm512_fmadd_ps(c, v, v);
        d = _mm512_fmadd_ps(d, v, v);
        e = _mm512_fmadd_ps(e, v, v);
        f = _mm512_fmadd_ps(f, v, v);
        g = _mm512_fmadd_ps(g, v, v);
        h = _mm512_fmadd_ps(h, v, v);
    }
    return _mm512_cvtss_f32(a + b + c + d + e + f + g + h);
}
#endif

static double measure_peak(void)
{
    float (*work)(float, int *) = work_portable;
    volatile float keep         = 0;
    double         best         = 1e9;
    int            lanes        = 1;

#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f"))
        work = work_avx512;
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        work = work_avx2;
#endif
    for (int i = 0; i < 100; i++) {
        const double start = seconds();

        keep = work(0.5F + keep * 0, &lanes);
        best = best < seconds() - start ? best : seconds() - start;
    }
    return 2.0 * SUMS * lanes * ROUNDS / best;
}

/* ---- memory and link --------------------------------------------------------------------------------------------- */

/* Bytes read and written in a second. */
static double measure_traffic(void)
{
    const size_t bytes = 64 << 20;
    char        *from = malloc(bytes), *to = malloc(bytes);
    double       best = 0;

    for (int i = 0; from && to && i < 6; i++) {
        const double start = seconds();

        memset(from, i, i ? 1 : bytes); /* the first time brings the pages in */
        memcpy(to, from, bytes);
        if (i)
            best = best > 2.0 * (double)bytes / (seconds() - start) ? best : 2.0 * (double)bytes / (seconds() - start);
    }
    free(from);
    free(to);
    return best;
}

struct end {
    pthread_t              thread;
    const hkt_unique_id_t *id;
    int                    rank, rc;
    double                 large, small; /* seconds of an all-gather with LARGE bytes from each, and of the smallest */
};

enum { LARGE = 8 << 20 };

static int time_gather(double *best, size_t count, void *send, void *recv, hkt_comm_t *comm)
{
    *best = 1e9;
    for (int i = 0; i < 20; i++) {
        const double start = seconds();
        const int    rc    = hkt_all_gather(send, recv, count, HKT_UINT8, comm, NULL);

        if (rc)
            return rc;
        *best = *best < seconds() - start ? *best : seconds() - start;
    }
    return 0;
}

static void *run_end(void *arg)
{
    struct end *e = arg;
    hkt_comm_t *comm;
    void       *send = NULL, *recv = NULL;

    e->rc = hkt_comm_init(&comm, 2, e->id, e->rank, NULL);
    if (e->rc)
        return NULL;
    e->rc = hkt_mem_alloc(&send, LARGE);
    if (!e->rc)
        e->rc = hkt_mem_alloc(&recv, 2 * LARGE);
    if (!e->rc)
        e->rc = time_gather(&e->large, LARGE, send, recv, comm);
    if (!e->rc)
        e->rc = time_gather(&e->small, 1, send, recv, comm);
    hkt_mem_free(send);
    hkt_mem_free(recv);
    hkt_comm_destroy(comm);
    return NULL;
}

static int measure_link(hkt_plan_link_t *link)
{
    hkt_unique_id_t id;
    struct end      ends[2] = {{.id = &id, .rank = 0}, {.id = &id, .rank = 1}};
    int             rc      = hkt_unique_id(&id);

    if (rc)
        return rc;
    if (pthread_create(&ends[1].thread, NULL, run_end, &ends[1]))
        return hkt_error_set(HKT_ERR_SYSTEM, "no second thread to measure the link with");
    run_end(&ends[0]);
    pthread_join(ends[1].thread, NULL);
    if (ends[0].rc || ends[1].rc)
        return ends[0].rc ? ends[0].rc : ends[1].rc;
    *link = (hkt_plan_link_t){"memory", 0, LARGE / ends[0].large, ends[0].small};
    return 0;
}

int plan_measure(hkt_plan_machine_t *m)
{
    const double cores  = (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const double peak = measure_peak(), traffic = measure_traffic();
    const int    rc = measure_link(&m->link[0]);

    if (rc)
        return rc;
    *m = (hkt_plan_machine_t){.name     = "cpu-this",
                              .memory   = 0.8 * memory / cores,
                              .peak     = peak,
                              .achieved = 0.8 * peak,
                              .half     = 16,
                              .traffic  = traffic,
                              .launch   = 1e-6,
                              .links    = 1,
                              .link     = {m->link[0]}};
    return 0;
}
