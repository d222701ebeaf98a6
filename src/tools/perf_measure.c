/* perf_measure.c -- one cell of the table: check, warm up, time, check again. Every rank runs this with the same call.
 */
#include "perf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { BATCHES = 25, LEAST_ITERS = 5, MOST_ITERS = 200000 };
static const double CELL_SECONDS = 0.1; /* that an automatic number of iterations takes */

static double seconds(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

char *perf_base(const struct perf_rank *rank, bool recv)
{
    return rank->area[recv] + PERF_LEAD + perf.misalign + rank->slide;
}

char *perf_send(const struct perf_rank *rank, const struct perf_call *call, bool in_place)
{
    return perf_base(rank, in_place) + (in_place ? perf_place(rank, call, false) * hkt_type_size(call->type) : 0);
}

char *perf_recv(const struct perf_rank *rank, const struct perf_call *call, bool in_place)
{
    return perf_base(rank, true) + (in_place ? perf_place(rank, call, true) * hkt_type_size(call->type) : 0);
}

/* The next call works on other memory, so that it finds it cold. */
static void slide(struct perf_rank *rank, size_t bytes)
{
    const size_t stride = (bytes + PERF_GUARD - 1) / PERF_GUARD * PERF_GUARD + PERF_GUARD;

    if (perf.shift)
        rank->slide = rank->slide + stride + bytes <= perf.shift ? rank->slide + stride : 0;
}

static size_t bytes_of(const struct perf_rank *rank, const struct perf_call *call)
{
    return call->count * perf_case_volume(call->what, rank->size) * hkt_type_size(call->type);
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static int finish_stream(const struct perf_rank *rank)
{
    return rank->stream ? hkt_stream_synchronize(rank->stream) : 0;
}

/* `iters` operations; with -m each is a group of several. */
static int run(struct perf_rank *rank, const struct perf_call *call, bool in_place, long iters)
{
    const size_t bytes = bytes_of(rank, call);
    int          rc    = 0;

    for (long i = 0; i < iters && !rc; i++) {
        if (perf.together > 1)
            rc = hkt_group_begin();
        for (long k = 0; k < perf.together && !rc; k++) {
            rc = call->what->run(rank, call, perf_send(rank, call, in_place), perf_recv(rank, call, in_place));
            slide(rank, bytes);
        }
        if (perf.together > 1) {
            const int ended = hkt_group_end();

            rc = rc ? rc : ended;
        }
    }
    return rc ? rc : finish_stream(rank);
}

int perf_reduce(const struct perf_rank *rank, double *values, size_t count, hkt_op_t op)
{
    return hkt_all_reduce(values, values, count, HKT_FLOAT64, op, rank->comm, NULL);
}

/* ---- parts of a cell --------------------------------------------------------------------------------------------- */

static int check(struct perf_rank *rank, const struct perf_call *call, bool in_place, struct perf_cell *cell)
{
    double wrong = 0;
    int    rc    = 0;

    if (perf.check == 0 || call->what->send == SIDE_NONE)
        return 0;
    rank->slide = 0;
    for (long k = 0; k < perf.check && !rc; k++) {
        const uint64_t seed = ++rank->checks;

        perf_prepare(rank, call, in_place, seed);
        rc = call->what->run(rank, call, perf_send(rank, call, in_place), perf_recv(rank, call, in_place));
        rc = rc ? rc : finish_stream(rank);
        if (!rc)
            wrong += (double)perf_wrong(rank, call, in_place, seed);
    }
    rc          = rc ? rc : perf_reduce(rank, &wrong, 1, HKT_SUM);
    cell->wrong = (cell->wrong > 0 ? cell->wrong : 0) + wrong;
    return rc;
}

/* Returns in `iters` how many operations to time: what the user said, or as many as fit the time of a cell. */
static int warm_up(struct perf_rank *rank, const struct perf_call *call, bool in_place, long *iters)
{
    double each = 0, start;
    int    rc   = hkt_barrier(rank->comm, NULL);

    rc     = rc ? rc : run(rank, call, in_place, perf.warmup);
    *iters = perf.iters;
    for (long n = 1; !rc && perf.iters == 0 && each * (double)n < CELL_SECONDS / 20 && n <= MOST_ITERS; n *= 4) {
        start  = seconds(CLOCK_MONOTONIC);
        rc     = run(rank, call, in_place, n);
        each   = (seconds(CLOCK_MONOTONIC) - start) / (double)n;
        rc     = rc ? rc : perf_reduce(rank, &each, 1, HKT_MAX);
        *iters = (long)fmin(fmax(CELL_SECONDS / each, LEAST_ITERS), MOST_ITERS);
    }
    return rc;
}

struct usage {
    double cpu, faults, switches;
};

static struct usage usage_now(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (struct usage){seconds(CLOCK_PROCESS_CPUTIME_ID), (double)(u.ru_minflt + u.ru_majflt),
                          (double)(u.ru_nvcsw + u.ru_nivcsw)};
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* batch[]: seconds of an operation in each, of this rank. */
static int over_ranks_and_batches(struct perf_rank *rank, double *batch, int n, double *time)
{
    static const hkt_op_t op[] = {
        [AVERAGE_RANK0] = HKT_SUM, [AVERAGE_MEAN] = HKT_AVG, [AVERAGE_MIN] = HKT_MIN, [AVERAGE_MAX] = HKT_MAX};
    double sum = 0;
    int    rc;

    if (perf.average == AVERAGE_RANK0 && rank->rank != 0)
        memset(batch, 0, (size_t)n * sizeof(*batch));
    rc = perf_reduce(rank, batch, (size_t)n, op[perf.average]);
    qsort(batch, (size_t)n, sizeof(*batch), by_value);
    for (int b = 0; b < n; b++)
        sum += batch[b];
    *time = perf.statistic == STAT_MEDIAN ? (batch[n / 2] + batch[(n - 1) / 2]) / 2
            : perf.statistic == STAT_MIN  ? batch[0]
                                          : sum / n;
    return rc;
}

static int time_it(struct perf_rank *rank, const struct perf_call *call, bool in_place, struct perf_cell *cell)
{
    const int    n          = perf.statistic == STAT_AVG ? 1 : cell->iters < BATCHES ? (int)cell->iters : BATCHES;
    const long   iters      = cell->iters / n;
    const double operations = (double)iters * (double)perf.together;
    double       batch[BATCHES], used[3];
    struct usage before, after;
    double       begin;
    int          rc = hkt_barrier(rank->comm, NULL);

    cell->iters = iters * n;
    before      = usage_now();
    begin       = seconds(CLOCK_MONOTONIC);
    for (int b = 0; b < n && !rc; b++) {
        double end;

        rc       = run(rank, call, in_place, iters);
        end      = seconds(CLOCK_MONOTONIC);
        batch[b] = (end - begin) / operations * call->what->share;
        begin    = end;
    }
    after   = usage_now();
    used[0] = after.cpu - before.cpu;
    used[1] = after.faults - before.faults;
    used[2] = after.switches - before.switches;
    rc      = rc ? rc : over_ranks_and_batches(rank, batch, n, &cell->time_s);
    rc      = rc ? rc : perf_reduce(rank, used, 3, HKT_AVG);
    if (rc)
        return rc;
    cell->cpu_s    = used[0] / (operations * n) / (double)perf.threads;
    cell->faults   = used[1] / (operations * n) / (double)perf.threads;
    cell->switches = used[2] / (operations * n) / (double)perf.threads;
    return 0;
}

int perf_measure(struct perf_rank *rank, const struct perf_call *call, bool in_place, struct perf_cell *cell)
{
    const double bytes = (double)bytes_of(rank, call);
    int          rc;

    *cell = (struct perf_cell){.wrong = -1};
    if (in_place && !call->what->in_place)
        return 0;
    perf_blocks(rank, call);
    rc          = check(rank, call, in_place, cell);
    rank->slide = 0;
    /* A reduction in place feeds on its results, which would overflow: zeros stay zeros. */
    memset(perf_base(rank, true), 0, perf.shift ? perf.shift : bytes_of(rank, call));
    rc = rc ? rc : warm_up(rank, call, in_place, &cell->iters);
    rc = rc ? rc : time_it(rank, call, in_place, cell);
    rc = rc ? rc : check(rank, call, in_place, cell);
    if (rc)
        return rc;
    cell->valid          = true;
    cell->algorithm_gbps = bytes / cell->time_s * 1e-9;
    cell->bus_gbps       = cell->algorithm_gbps * perf_factor(call->what, rank->size);
    return 0;
}
