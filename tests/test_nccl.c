/* test_nccl.c -- the collectives of libnccl.so.2 on memory of the host: every function, type and operator against values, in place, in groups; what is
 * wrong with a call is said. How communicators live is in test_nccl_life.c, streams are in test_nccl_stream.c.
 */
#include "nccl_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 37, MOST = 8 /* ranks */ };

enum coll { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, COLLS };

/* What a collective has: n blocks or one on either side, an operator, a root; where IN lies in OUT, or OUT in IN, in place: at a block. */
static const struct {
    const char *name;
    bool        ins, outs, op, root, in_at_root, out_at_root, in_place;
} coll[COLLS] = {
    [ALL_REDUCE]     = {"all_reduce", false, false, true, false, false, false, true},
    [BROADCAST]      = {"broadcast", false, false, false, true, true, false, true},
    [REDUCE]         = {"reduce", false, false, true, true, false, true, true},
    [ALL_GATHER]     = {"all_gather", false, true, false, false, false, false, true},
    [REDUCE_SCATTER] = {"reduce_scatter", true, false, true, false, false, false, true},
    [ALL_TO_ALL]     = {"all_to_all", true, true, false, false, false, false, false},
    [GATHER]         = {"gather", false, true, false, true, false, true, true},
    [SCATTER]        = {"scatter", true, false, false, true, true, false, true},
};

struct buffers {
    char in[COUNT * MOST * 8], out[COUNT * MOST * 8];
};

struct job {
    enum coll      coll;
    ncclDataType_t type;
    int            op; /* ncclNumOps: a premultiplied sum */
    int            root;
    bool           in_place, config;
};

/* Element i of block b of rank r: small, so that every type has all results. Averages need a multiple of n, and few of them. */
static double input(const struct job *j, int n, int r, int b, int i)
{
    if (coll[j->coll].op && j->op == ncclAvg)
        return r == (b + i) % n ? n * ((i + b) % 2) : 0;
    return (r + 2 * b + i) % 3 % (n > 4 ? 2 : 3);
}

static double factor(const struct job *j, int r)
{
    return j->op == ncclNumOps ? 1 + r % 2 : 1;
}

static double reduced(const struct job *j, int n, int b, int i)
{
    double value = input(j, n, 0, b, i) * factor(j, 0);

    for (int r = 1; r < n; r++) {
        const double x = input(j, n, r, b, i) * factor(j, r);

        value = j->op == ncclProd ? value * x : j->op == ncclMax ? (x > value ? x : value) : j->op == ncclMin ? (x < value ? x : value) : value + x;
    }
    return j->op == ncclAvg ? value / n : value;
}

/* Element i of block b of what rank r gets. */
static double output(const struct job *j, int n, int r, int b, int i)
{
    switch (j->coll) {
    case ALL_REDUCE: case REDUCE: return reduced(j, n, 0, i);
    case REDUCE_SCATTER: return reduced(j, n, r, i);
    case BROADCAST: return input(j, n, j->root, 0, i);
    case ALL_GATHER: case GATHER: return input(j, n, b, 0, i);
    case ALL_TO_ALL: return input(j, n, b, r, i);
    case SCATTER: return input(j, n, j->root, r, i);
    default: return 0;
    }
}

static ncclResult_t call(const struct job *j, const void *in, void *out, ncclRedOp_t op, ncclComm_t comm)
{
    const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    const ncclDataType_t   t      = j->type;

    switch (j->coll + (j->config ? COLLS : 0)) {
    case ALL_REDUCE: return ncclAllReduce(in, out, COUNT, t, op, comm, NULL);
    case BROADCAST: return in == out ? ncclBcast(out, COUNT, t, j->root, comm, NULL) : ncclBroadcast(in, out, COUNT, t, j->root, comm, NULL);
    case REDUCE: return ncclReduce(in, out, COUNT, t, op, j->root, comm, NULL);
    case ALL_GATHER: return ncclAllGather(in, out, COUNT, t, comm, NULL);
    case REDUCE_SCATTER: return ncclReduceScatter(in, out, COUNT, t, op, comm, NULL);
    case ALL_TO_ALL: return ncclAlltoAll(in, out, COUNT, t, comm, NULL);
    case GATHER: return ncclGather(in, out, COUNT, t, j->root, comm, NULL);
    case SCATTER: return ncclScatter(in, out, COUNT, t, j->root, comm, NULL);
    case COLLS + ALL_REDUCE: return ncclAllReduceConfig(in, out, COUNT, t, op, comm, NULL, &config);
    case COLLS + BROADCAST: return ncclBroadcastConfig(in, out, COUNT, t, j->root, comm, NULL, &config);
    case COLLS + REDUCE: return ncclReduceConfig(in, out, COUNT, t, op, j->root, comm, NULL, &config);
    case COLLS + ALL_GATHER: return ncclAllGatherConfig(in, out, COUNT, t, comm, NULL, &config);
    case COLLS + REDUCE_SCATTER: return ncclReduceScatterConfig(in, out, COUNT, t, op, comm, NULL, &config);
    case COLLS + ALL_TO_ALL: return ncclAlltoAllConfig(in, out, COUNT, t, comm, NULL, &config);
    case COLLS + GATHER: return ncclGatherConfig(in, out, COUNT, t, j->root, comm, NULL, &config);
    default: return ncclScatterConfig(in, out, COUNT, t, j->root, comm, NULL, NULL);
    }
}

struct place {
    const char *in;
    char       *out;
};

/* Fills IN; NULL where the rank has no such side. */
static struct place prepare(const struct job *j, struct buffers *b, int n, int me)
{
    const size_t block = COUNT * nccl_bytes[j->type];
    struct place p     = {b->in, b->out};
    char        *in    = b->in;

    memset(b, 0x5a, sizeof(*b));
    if (j->in_place) {
        in    = coll[j->coll].outs ? b->out + (size_t)me * block : b->out;
        p.in  = in;
        p.out = coll[j->coll].ins ? b->out + (size_t)me * block : b->out;
    }
    if (!coll[j->coll].in_at_root || me == j->root)
        for (int k = 0; k < (coll[j->coll].ins ? n : 1); k++)
            for (int i = 0; i < COUNT; i++)
                nccl_put(in, (size_t)(k * COUNT + i), j->type, input(j, n, me, k, i));
    else if (!j->in_place)
        p.in = NULL;
    if (coll[j->coll].out_at_root && me != j->root && !j->in_place)
        p.out = NULL;
    return p;
}

static void check(const struct job *j, const struct place *p, int n, int me)
{
    if (coll[j->coll].out_at_root && me != j->root)
        return;
    for (int k = 0; k < (coll[j->coll].outs ? n : 1); k++)
        for (int i = 0; i < COUNT; i++) {
            const double got = nccl_get(p->out, (size_t)(k * COUNT + i), j->type), wanted = output(j, n, me, k, i);

            expect(got == wanted, "%s, type %d, op %d, root %d%s%s: element %d of block %d is %g, not %g", coll[j->coll].name, (int)j->type, j->op,
                   j->root, j->in_place ? ", in place" : "", j->config ? ", with a config" : "", i, k, got, wanted);
        }
}

static void run(const struct job *j, ncclComm_t comm, int n, int me)
{
    static _Thread_local struct buffers buffers;
    const struct place                  p  = prepare(j, &buffers, n, me);
    ncclRedOp_t                         op = (ncclRedOp_t)j->op;
    uint64_t                            scalar = 0;
    const bool                          late   = j->root % 2; /* read when it runs */

    doing("%s, type %d, op %d, root %d, in place %d", coll[j->coll].name, (int)j->type, j->op, j->root, j->in_place);
    if (j->op == ncclNumOps) {
        nccl_put(&scalar, 0, j->type, late ? 7 : factor(j, me));
        nccl_ok(ncclRedOpCreatePreMulSum(&op, &scalar, j->type, late ? ncclScalarDevice : ncclScalarHostImmediate, comm));
        nccl_put(&scalar, 0, j->type, late ? factor(j, me) : 5);
    }
    nccl_ok(call(j, p.in, p.out, op, comm));
    if (j->op == ncclNumOps)
        nccl_ok(ncclRedOpDestroy(op, comm));
    check(j, &p, n, me);
}

static void everything(struct rank *me)
{
    ncclComm_t comm = nccl_join(me);
    struct job j;
    int        k = 0;

    for (j.coll = 0; j.coll < COLLS; j.coll++)
        for (j.type = 0; j.type < ncclNumTypes; j.type++)
            for (j.op = 0; j.op <= (coll[j.coll].op ? (int)ncclNumOps : 0); j.op++)
                for (int variant = 0; variant < 4; variant++, k++) {
                    j.in_place = variant % 2 && coll[j.coll].in_place;
                    j.config   = variant / 2;
                    j.root     = k % me->n;
                    run(&j, comm, me->n, me->rank);
                }
    nccl_ok(ncclCommDestroy(comm));
}

/* Sums that do not fit wrap before they are divided, as NCCL's do. */
static void large_averages(struct rank *me)
{
    ncclComm_t comm = nccl_join(me);
    int8_t     small[2] = {100, -100};
    uint64_t   large    = UINT64_MAX / 2 + 2;

    nccl_ok(ncclAllReduce(small, small, 2, ncclInt8, ncclAvg, comm, NULL));
    expect(small[0] == -28 && small[1] == 28, "the averages are %d and %d", small[0], small[1]); /* 200 - 256, halved */
    nccl_ok(ncclReduce(&large, &large, 1, ncclUint64, ncclAvg, 0, comm, NULL));
    expect(large == (me->rank ? UINT64_MAX / 2 + 2 : 1), "the average is %llu", (unsigned long long)large);
    nccl_ok(ncclCommDestroy(comm));
}

START_TEST(averages)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = large_averages, .bare = true});
}
END_TEST

/* Proves: every collective with every type and operator gives the right values, in place and not, with and without a config of the call. */
START_TEST(values)
{
    static const int ranks[] = {1, 2, 3, 4, 8};

    world_run(&(struct world){.n = ranks[_i / 2], .kind = _i % 2, .fn = everything, .bare = true, .deadline = 120});
}
END_TEST

/* ---- point to point, groups -------------------------------------------------------------------------------------------- */

static void exchange(ncclComm_t comm, int n, int me)
{
    int   in[MOST * COUNT], out[MOST * COUNT];
    float sum = (float)me, all[MOST];

    for (int i = 0; i < n * COUNT; i++)
        in[i] = 1000 * me + i;
    memset(out, 0, sizeof(out));
    nccl_ok(ncclGroupStart());
    nccl_ok(ncclAllReduce(&sum, &sum, 1, ncclFloat, ncclSum, comm, NULL));
    for (int r = 0; r < n; r++) {
        nccl_ok(ncclGroupStart());
        nccl_ok(ncclSend(in + r * COUNT, COUNT, ncclInt, r, comm, NULL));
        nccl_ok(ncclRecv(out + r * COUNT, COUNT, ncclInt, r, comm, NULL));
        nccl_ok(ncclGroupEnd());
    }
    expect(out[0] == 0, "a group inside a group has run by itself");
    nccl_ok(ncclSend(NULL, 0, ncclInt, (me + 1) % n, comm, NULL));
    nccl_ok(ncclRecv(NULL, 0, ncclInt, (me + n - 1) % n, comm, NULL));
    nccl_ok(ncclAllGather(&(float){(float)me}, all, 0, ncclFloat, comm, NULL)); /* of nothing */
    nccl_ok(ncclGroupEnd());
    expect(sum == (float)(n * (n - 1) / 2), "the sum is %g", (double)sum);
    for (int r = 0; r < n; r++)
        for (int i = 0; i < COUNT; i++)
            expect(out[r * COUNT + i] == 1000 * r + me * COUNT + i, "from rank %d: element %d is %d", r, i, out[r * COUNT + i]);
}

static void messages(struct rank *me)
{
    ncclComm_t comm = nccl_join(me), other = NULL;
    float      a = 1, b = 2;

    for (int k = 0; k < 50; k++)
        exchange(comm, me->n, me->rank);
    nccl_ok(ncclCommSplit(comm, 0, -me->rank, &other, NULL));
    nccl_ok(ncclGroupStart()); /* two communicators in opposite orders */
    nccl_ok(ncclAllReduce(&a, &a, 1, ncclFloat, ncclSum, me->rank % 2 ? comm : other, NULL));
    nccl_ok(ncclAllReduce(&b, &b, 1, ncclFloat, ncclSum, me->rank % 2 ? other : comm, NULL));
    nccl_ok(ncclGroupEnd());
    expect(a + b == (float)(3 * me->n) || me->n > 1, "the sums are %g and %g", (double)a, (double)b);
    nccl_ok(ncclCommDestroy(other));
    nccl_ok(ncclCommDestroy(comm));
}

/* Proves: sends and receives of a group in any order, to oneself too, with collectives between them, groups in groups, two communicators. */
START_TEST(groups)
{
    world_run(&(struct world){.n = 1 + _i / 2, .kind = _i % 2, .fn = messages, .bare = true});
}
END_TEST

/* One thread is all ranks. */
static void all_ranks(int n)
{
    ncclComm_t comm[MOST];
    float      in[MOST][COUNT], out[MOST][COUNT], moved[MOST][COUNT];
    int        devices[MOST] = {0}, value;

    for (int r = 0; r < n; r++)
        devices[r] = n - r;
    nccl_ok(ncclCommInitAll(comm, n, devices));
    for (int r = 0; r < n; r++) {
        nccl_ok(ncclCommUserRank(comm[r], &value));
        expect(value == r, "rank %d says it is %d", r, value);
        nccl_ok(ncclCommCount(comm[r], &value));
        expect(value == n, "the size is %d", value);
        nccl_ok(ncclCommCuDevice(comm[r], &value));
        expect(value == n - r, "the device is %d", value);
        for (int i = 0; i < COUNT; i++)
            in[r][i] = (float)(r + i);
    }
    for (int k = 0; k < 20; k++) {
        nccl_ok(ncclGroupStart());
        for (int r = 0; r < n; r++) {
            nccl_ok(ncclAllReduce(in[r], out[r], COUNT, ncclFloat, ncclSum, comm[r], NULL));
            nccl_ok(ncclSend(in[r], COUNT, ncclFloat, (r + 1) % n, comm[r], NULL));
        }
        for (int r = n; r-- > 0;)
            nccl_ok(ncclRecv(moved[r], COUNT, ncclFloat, (r + n - 1) % n, comm[r], NULL));
        nccl_ok(ncclGroupEnd());
        for (int r = 0; r < n; r++)
            for (int i = 0; i < COUNT; i++)
                expect(out[r][i] == (float)(n * i + n * (n - 1) / 2) && moved[r][i] == in[(r + n - 1) % n][i],
                       "rank %d of %d, element %d: the sum is %g, what came is %g", r, n, i, (double)out[r][i], (double)moved[r][i]);
    }
    for (int r = 0; r < n; r++)
        nccl_ok(ncclCommDestroy(comm[r]));
}

/* Proves: one thread can be all ranks: they are made together and their calls of a group run together. */
START_TEST(one_thread)
{
    all_ranks(_i + 1);
}
END_TEST

/* ---- what is wrong ------------------------------------------------------------------------------------------------------- */

/* An error inside a group: its end says it again, and nothing has run. */
static void wrong_group(const struct rank *me, ncclComm_t comm)
{
    float x[4] = {1}, y[4] = {5};

    nccl_ok(ncclGroupStart());
    nccl_ok(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, comm, NULL));
    nccl_gives(ncclBroadcast(x, y, 3, ncclFloat, me->n, comm, NULL), ncclInvalidArgument);
    nccl_ok(ncclBroadcast(x, y, 1, ncclFloat, 0, comm, NULL));
    nccl_gives(ncclGroupEnd(), ncclInvalidArgument);
    nccl_said("is no rank of");
    expect(y[0] == 5, "a call of a group with an error has run");
    nccl_ok(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, comm, NULL)); /* the communicator lives */
    expect(y[0] == (float)me->n, "the sum is %g", (double)y[0]);
}

static void wrong_calls(struct rank *me)
{
    ncclComm_t      comm = nccl_join(me);
    float           x[64] = {1}, y[64];
    ncclRedOp_t     op;
    ncclWindow_t    window;
    void           *handle;
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    ncclConfig_t     bad    = NCCL_CONFIG_INITIALIZER;
    ncclComm_t       none   = (ncclComm_t)&none;

    nccl_gives(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, NULL, NULL), ncclInvalidArgument);
    nccl_said("ncclAllReduce: the communicator is NULL");
    nccl_gives(ncclAllReduce(NULL, y, 3, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
    nccl_said("the send buffer is NULL on rank");
    nccl_gives(ncclAllReduce(x, y, 3, ncclNumTypes, ncclSum, comm, NULL), ncclInvalidArgument);
    nccl_said("datatype 12");
    nccl_gives(ncclAllReduce(x, y, 3, ncclFloat, (ncclRedOp_t)77, comm, NULL), ncclInvalidArgument);
    nccl_said("operator 77");
    nccl_gives(ncclBroadcast(x, y, 3, ncclFloat, 99, comm, NULL), ncclInvalidArgument);
    nccl_said("root 99 is no rank");
    nccl_gives(ncclSend(x, 3, ncclFloat, -1, comm, NULL), ncclInvalidArgument);
    nccl_said("peer -1 is no rank");
    nccl_gives(ncclAllGather(x + 1, x, 8, ncclFloat, comm, NULL), ncclInvalidArgument);
    nccl_said("overlap");
    nccl_ok(ncclRedOpCreatePreMulSum(&op, x, ncclFloat, ncclScalarHostImmediate, comm));
    nccl_gives(ncclAllReduce(x, y, 3, ncclHalf, op, comm, NULL), ncclInvalidArgument);
    nccl_said("was made for float32 and is used with float16");
    nccl_ok(ncclRedOpDestroy(op, comm));
    nccl_gives(ncclRedOpDestroy(op, comm), ncclInvalidArgument);
    nccl_gives(ncclAllReduce(x, y, 3, ncclFloat, op, comm, NULL), ncclInvalidArgument);
    nccl_gives(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
    nccl_gives(ncclGroupEnd(), ncclInvalidUsage);
    nccl_said("there is no group");
    nccl_gives(ncclCommRegister(comm, NULL, 4, &handle), ncclInvalidArgument);
    nccl_gives(ncclCommWindowRegister(comm, x, sizeof(x), &window, 0x100), ncclInvalidUsage);
    nccl_gives(ncclPutSignal(x, 1, ncclFloat, 0, NULL, 0, 0, 0, 0, comm, NULL), ncclInvalidUsage);
    nccl_said("ncclSend() and ncclRecv()");
    config.algSelection = "ring";
    nccl_gives(ncclAllReduceConfig(x, y, 1, ncclFloat, ncclSum, comm, NULL, &config), ncclInvalidUsage);
    config.magic = 1;
    nccl_gives(ncclAllReduceConfig(x, y, 1, ncclFloat, ncclSum, comm, NULL, &config), ncclInvalidArgument);
    nccl_gives(ncclCommSplit(comm, -2, 0, &none, NULL), ncclInvalidArgument);
    bad.blocking = 3;
    nccl_gives(ncclCommSplit(comm, 0, 0, &none, &bad), ncclInvalidArgument);
    nccl_said("config.blocking is 3; it may be 0 to 1");
    expect(none == NULL, "a communicator that could not be made is not NULL");
    nccl_gives(ncclCommCount(comm, NULL), ncclInvalidArgument);
    wrong_group(me, comm);
    nccl_ok(ncclCommDestroy(comm));
    nccl_gives(ncclAllReduce(x, y, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidArgument);
    nccl_said("was destroyed");
    nccl_gives(ncclCommDestroy(comm), ncclInvalidArgument);
    nccl_ok(ncclCommDestroy(NULL));
}

/* Proves: wrong arguments are refused by every rank for itself, in a sentence, and the communicator goes on. */
START_TEST(refusals)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = wrong_calls, .bare = true});
}
END_TEST

static void different_calls(struct rank *me)
{
    ncclComm_t comm = nccl_join(me);
    int        x[8] = {1}, y[8];

    nccl_gives(ncclAllReduce(x, y, me->rank ? 3 : 4, ncclInt, ncclSum, comm, NULL), ncclInvalidUsage);
    nccl_said("3");
    nccl_said("4");
    nccl_ok(ncclCommAbort(comm));
}

/* Proves: ranks that make different calls are told both. */
START_TEST(mismatch)
{
    world_run(&(struct world){.n = 2, .kind = _i, .fn = different_calls, .bare = true});
}
END_TEST

/* ---- memory --------------------------------------------------------------------------------------------------------------- */

enum { LARGE = 1 << 20 };

static void own_memory(struct rank *me)
{
    ncclComm_t   comm = nccl_join(me);
    float       *a, *b = aligned_alloc(4096, LARGE * sizeof(float)), *c = malloc(LARGE * sizeof(float));
    void        *handle, *again, *ptr;
    ncclWindow_t window;

    nccl_ok(ncclMemAlloc((void **)&a, LARGE * sizeof(float)));
    for (int i = 0; i < LARGE; i++)
        a[i] = b[i] = c[i] = (float)(me->rank + i % 5);
    nccl_ok(ncclCommRegister(comm, b, LARGE * sizeof(float), &handle));
    nccl_ok(ncclCommRegister(comm, a, LARGE * sizeof(float), &again)); /* shared already */
    nccl_ok(ncclCommWindowRegister(comm, c, LARGE * sizeof(float), &window, NCCL_WIN_COLL_SYMMETRIC));
    nccl_ok(ncclWinGetUserPtr(comm, window, &ptr));
    expect(ptr == c, "the window is at %p, not %p", ptr, (void *)c);
    for (int k = 0; k < 3; k++) {
        float *x = k == 0 ? a : k == 1 ? b : c;

        nccl_ok(ncclAllReduce(x, x, LARGE, ncclFloat, ncclSum, comm, NULL));
        for (int i = 0; i < LARGE; i += 997)
            expect(x[i] == (float)(me->n * (i % 5) + me->n * (me->n - 1) / 2), "buffer %d, element %d is %g", k, i, (double)x[i]);
    }
    nccl_ok(ncclCommDeregister(comm, again));
    nccl_ok(ncclCommDeregister(comm, handle));
    nccl_gives(ncclCommDeregister(comm, handle), ncclInvalidArgument);
    nccl_ok(ncclCommWindowDeregister(comm, window));
    nccl_gives(ncclCommWindowDeregister(comm, window), ncclInvalidArgument);
    nccl_ok(ncclCommDestroy(comm));
    nccl_ok(ncclMemFree(a));
    nccl_gives(ncclMemFree(b), ncclInvalidArgument);
    free(c);
    free(b);
}

/* Proves: memory of the library, registered buffers and windows. */
START_TEST(memory)
{
    world_run(&(struct world){.n = 3, .kind = _i, .fn = own_memory, .bare = true});
}
END_TEST

/* ---- the rest ------------------------------------------------------------------------------------------------------------- */

/* Proves: versions, error texts, parameters, simulation; what needs no other rank. */
START_TEST(questions)
{
    ncclSimInfo_t     sim = NCCL_SIM_INFO_INITIALIZER;
    ncclParamHandle_t handle;
    ncclComm_t        comm;
    const char       *text, **keys;
    int64_t           i64;
    uint64_t          stat;
    int               version = 0, n;
    float             x = 1, y = 0;

    nccl_ok(ncclGetVersion(&version));
    expect(version == NCCL_VERSION_CODE && version == NCCL_VERSION(2, 27, 7), "the version is %d", version);
    expect(NCCL_VERSION(2, 8, 3) == 2803 && NCCL_VERSION(2, 9, 0) == 20900, "versions are counted wrong");
    for (int k = 0; k <= ncclNumResults; k++)
        expect(ncclGetErrorString((ncclResult_t)k)[0], "error %d has no text", k);
    nccl_ok(ncclCommInitAll(&comm, 1, NULL));
    nccl_ok(ncclGroupStart());
    nccl_ok(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, NULL));
    nccl_ok(ncclGroupSimulateEnd(&sim));
    expect(y == 0, "a simulated group has run");
    sim.magic = 0;
    nccl_ok(ncclGroupStart());
    nccl_gives(ncclGroupSimulateEnd(&sim), ncclInvalidArgument);
    nccl_ok(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
    nccl_gives(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage);
    nccl_ok(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &stat));
    expect(stat == 1, "suspended is %d", (int)stat);
    nccl_ok(ncclCommResume(comm));
    nccl_ok(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, NULL));
    expect(y == 1, "the sum is %g", (double)y);
    nccl_ok(ncclCommFinalize(comm));
    nccl_gives(ncclAllReduce(&x, &y, 1, ncclFloat, ncclSum, comm, NULL), ncclInvalidUsage);
    nccl_said("finalized");
    nccl_ok(ncclCommDestroy(comm));
    nccl_ok(ncclParamGetAllParameterKeys(&keys, &n));
    nccl_ok(ncclParamBind(&handle, keys[0]));
    nccl_ok(ncclParamGetI64(handle, &i64));
    nccl_ok(ncclParamGetStr(handle, &text));
    nccl_gives(ncclParamBind(&handle, "NCCL_NOTHING"), ncclInvalidArgument);
    nccl_gives(pncclGetVersion(NULL), ncclInvalidArgument);
}
END_TEST

static void add(Suite *s)
{
    ADD(s, values, 10, 150);
    ADD(s, averages, KINDS, 60);
    ADD(s, groups, 8, 60);
    ADD(s, one_thread, MOST, 60);
    ADD(s, refusals, KINDS, 60);
    ADD(s, mismatch, KINDS, 60);
    ADD(s, memory, KINDS, 60);
    ADD(s, questions, 1, 60);
}

int main(void)
{
    return run_suite("nccl", add);
}
