/* execute_cuda.c -- the engine for device memory: a call becomes work on a CUDA stream. See gpu.h for what the ranks share.
 *
 *              fused                               staged
 *      piece   copy my IN into my arena            the same
 *              one kernel: wait for all peers;     stream: I am ready; wait until all are
 *                my bound steps; wait for all      on each GPU's first rank one kernel or more: the bound steps of all ranks there
 *                                                  stream: I am done; wait until all are
 *              copy my OUT from my arena           the same
 *
 * The bound steps are those of the direct schedule with every buffer mapped (plan.h): each begins when all have entered and nobody waits for it but to
 * be over, so "all are ready" and "all are done" are all its waits. A small all-reduce where ranks do not share GPUs is one low-latency kernel.
 *
 * Staged flags are binary, one word per pair and phase, taken back by whoever waited: a rank sets "ready" of the next piece only after its wait for
 * "done" of this one, and that needs the other's done, which follows its taking back of ready. So every number that is on the stream is a constant, and
 * a captured call can be replayed. Fused flags count, in device memory.
 */
#include "run/gpu.h"

#include "base/error.h"
#include "device/device.h"
#include "device/kernels/kernel.h"
#include "language/part.h"

#include <string.h>

enum { READY, DONE, BLOCK_BYTES = 1 << 16, UNIT = 16, LOW_BLOCK_BYTES = 8192 };

/* A call on its way to the stream. */
struct work {
    struct hkt_communicator *c;
    struct hkt_gpu          *g;
    const struct hkt_call   *call;
    CUstream                 stream;
    size_t                   at, count, stride; /* the piece: elements of each block; bytes from block to block in the arenas */
    uint32_t                 number;
};

static int blocks_of(const struct work *w, bool out)
{
    const enum hkt_extent kind = out ? hkt_collective[w->call->coll].out : hkt_collective[w->call->coll].in;

    return kind == HKT_BLOCKS ? w->c->size : 1;
}

static CUdeviceptr place(const struct work *w, uint32_t r, bool out)
{
    return w->g->arena[r].base + (out ? HKT_GPU_OUT : HKT_GPU_IN);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Between the user's buffer and my arena. */
static int copy(const struct work *w, bool out)
{
    const size_t      size  = w->call->element, bytes = w->count * size;
    const int         n     = blocks_of(w, out);
    const CUdeviceptr user  = (CUdeviceptr)(uintptr_t)(out ? w->call->recv : w->call->send) + w->at * size;
    const CUdeviceptr arena = place(w, (uint32_t)w->c->rank, out);
    const bool        whole = n > 1 && w->count == w->call->count && w->stride == w->call->count * size; /* all blocks are one stretch */

    if (out ? !hkt_has_out(w->call, w->c->rank) : !hkt_has_in(w->call, w->c->rank))
        return 0;
    for (int b = 0; b < (whole ? 1 : n); b++) {
        const CUdeviceptr there = user + (size_t)b * w->call->count * size, here = arena + (size_t)b * w->stride;

        HKT_CUDA_TRY(cuMemcpyAsync(out ? there : here, out ? here : there, whole ? (size_t)n * bytes : bytes, w->stream));
    }
    return 0;
}

/* ---- segments ---------------------------------------------------------------------------------------------------- */

static int plan_of(struct work *w, int rank, const struct hkt_plan **out)
{
    struct hkt_plan      **plan  = &w->g->plan[w->call->coll][w->call->root][rank];
    const struct hkt_shape shape = {.coll = w->call->coll, .rank = rank, .size = w->c->size, .root = w->call->root};

    if (!*plan)
        HKT_TRY(hkt_plan_build(plan, hkt_algorithm_find("direct"), &shape, (struct hkt_ground){HKT_REACH_MAP, NULL}));
    *out = *plan;
    return 0;
}

/* Elements and place of a chunk of the piece; the block it is in begins at a multiple of the stride. */
static size_t chunk(const struct work *w, const struct hkt_plan *plan, bool out, uint32_t id, size_t *offset)
{
    const enum hkt_extent kind  = out ? hkt_collective[w->call->coll].out : hkt_collective[w->call->coll].in;
    const uint32_t        block = kind == HKT_BLOCKS ? id / plan->chunks : 0, part = kind == HKT_BLOCKS ? id % plan->chunks : id;
    const size_t          begin = hkt_part_begin(w->count, plan->chunks, part);

    *offset = (size_t)block * w->stride + begin * w->call->element;
    return hkt_part_begin(w->count, plan->chunks, part + 1) - begin;
}

static CUdeviceptr address(const struct work *w, const struct hkt_plan *plan, const struct hkt_bound *o)
{
    size_t offset;

    chunk(w, plan, o->home == HKT_HOME_OUT, o->id, &offset);
    return place(w, o->rank, o->home == HKT_HOME_OUT) + offset;
}

/* False: the step moves nothing. */
static bool segment(const struct work *w, const struct hkt_plan *plan, const struct hkt_bound_step *st, struct hkt_kernel_segment *s)
{
    const bool   reduces = hkt_collective[w->call->coll].reduces;
    size_t       offset;
    const size_t count = chunk(w, plan, st->like.out, st->like.id, &offset);

    memset(s, 0, sizeof(*s));
    s->count = reduces ? count : count * w->call->element;
    s->nsrc  = (uint8_t)st->nsrc;
    s->ndst  = (uint8_t)st->ndst;
    s->out   = w->call->op == HKT_AVG && reduces ? HKT_SEGMENT_DIVIDE : 0;
    for (int i = 0; i < st->nsrc; i++)
        s->src[i] = address(w, plan, &plan->operand[st->first + (uint32_t)i]);
    for (int i = 0; i < st->ndst; i++)
        s->dst[i] = address(w, plan, &plan->operand[st->first + st->nsrc + (uint32_t)i]);
    return count && st->ndst;
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void arguments(const struct work *w, struct hkt_kernel_arguments *a)
{
    const struct hkt_gpu *g = w->g;

    memset(a, 0, sizeof(*a));
    a->rank    = (uint32_t)w->c->rank;
    a->ranks   = (uint32_t)w->c->size;
    a->divisor = (uint32_t)w->c->size;
    a->order   = hkt_kernel_order(w->call->type, w->call->op);
    a->abort   = g->words_at[w->c->rank] + offsetof(struct hkt_gpu_words, abort);
    for (int r = 0; r < w->c->size; r++) {
        a->control[r] = g->arena[r].base;
        a->low[r]     = g->arena[r].base + HKT_GPU_LOW;
    }
}

static unsigned at_most(size_t n, size_t most)
{
    return (unsigned)(n < 1 ? 1 : n < most ? n : most);
}

/* `bytes`: what decides how many blocks there are, the same on all ranks where they wait for one another. */
static int launch(const struct work *w, CUfunction kernel, const struct hkt_kernel_arguments *a, size_t bytes)
{
    const size_t   most    = a->wait ? HKT_KERNEL_BLOCKS : (size_t)w->g->blocks;
    const unsigned blocks  = at_most(bytes / BLOCK_BYTES, most), threads = at_most((bytes / UNIT + 31) / 32, HKT_KERNEL_THREADS / 32) * 32;
    void          *list[1] = {(void *)(uintptr_t)a};

    HKT_CUDA_TRY(cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, w->stream, list, NULL));
    return 0;
}

static CUfunction kernel_of(const struct work *w)
{
    return hkt_collective[w->call->coll].reduces ? w->g->move[w->call->type][w->call->op] : w->g->copy;
}

/* Adds the segments of a rank; launches when there is no more room. */
static int add_steps(struct work *w, int rank, struct hkt_kernel_arguments *a)
{
    const struct hkt_plan *plan;

    HKT_TRY(plan_of(w, rank, &plan));
    for (uint32_t i = 0; i < plan->nsteps; i++) {
        if (a->segments == HKT_KERNEL_SEGMENTS) {
            HKT_TRY(launch(w, kernel_of(w), a, w->stride * HKT_KERNEL_SEGMENTS));
            a->segments = 0;
        }
        a->segments += segment(w, plan, &plan->step[i], &a->segment[a->segments]);
    }
    return 0;
}

static int run_fused(struct work *w)
{
    struct hkt_kernel_arguments a;

    arguments(w, &a);
    a.peers = (1u << w->c->size) - 1;
    a.wait  = HKT_KERNEL_BEFORE | HKT_KERNEL_AFTER;
    HKT_TRY(add_steps(w, w->c->rank, &a)); /* of one rank all fit into one launch */
    return launch(w, kernel_of(w), &a, w->stride);
}

static bool low(const struct work *w)
{
    return w->g->way == HKT_GPU_FUSED && w->call->coll == HKT_COLL_ALL_REDUCE &&
           w->call->count * w->call->element * (size_t)w->c->size <= HKT_LOW_BYTES;
}

/* Memory that a kernel can be pointed at: of the GPU, elements at multiples of their size. */
static bool reaches(const struct work *w, const void *ptr)
{
    return (uintptr_t)ptr % w->call->element == 0 && hkt_device_of(ptr) == &hkt_device_cuda;
}

/* From the user's memory to the user's memory, where the kernel reaches that. */
static int run_low(struct work *w)
{
    const size_t                bytes = w->call->count * w->call->element;
    const bool                  in    = reaches(w, w->call->send), out = reaches(w, w->call->recv);
    const unsigned              blocks = at_most(bytes / LOW_BLOCK_BYTES, 4);
    struct hkt_kernel_arguments a;
    struct hkt_kernel_segment         *s = a.segment;
    void                       *list[1] = {&a};

    arguments(w, &a);
    a.peers    = (1u << w->c->size) - 1;
    a.segments = 1;
    s->count   = w->call->count;
    s->nsrc = s->ndst = 1;
    s->src[0]         = in ? (uintptr_t)w->call->send : place(w, (uint32_t)w->c->rank, false);
    s->dst[0]         = out ? (uintptr_t)w->call->recv : place(w, (uint32_t)w->c->rank, true);
    s->out            = w->call->op == HKT_AVG ? HKT_SEGMENT_DIVIDE : 0;
    if (!in)
        HKT_TRY(copy(w, false));
    HKT_CUDA_TRY(cuLaunchKernel(w->g->low[w->call->type][w->call->op], blocks, 1, 1, at_most((bytes / 8 + 31) / 32, HKT_KERNEL_THREADS / 32) * 32,
                                1, 1, 0, w->stream, list, NULL));
    return out ? 0 : copy(w, true);
}

/* ---- waiting on the stream --------------------------------------------------------------------------------------- */

struct batch {
    CUstreamBatchMemOpParams op[3 * HKT_GPU_RANKS + 4];
    unsigned                 n;
};

static void write_word(struct batch *b, CUdeviceptr at, uint32_t value)
{
    CUstreamBatchMemOpParams *p = &b->op[b->n++];

    memset(p, 0, sizeof(*p));
    p->writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    p->writeValue.address   = at;
    p->writeValue.value     = value;
    p->writeValue.flags     = CU_STREAM_WRITE_VALUE_DEFAULT;
}

static void wait_word(struct batch *b, CUdeviceptr at)
{
    CUstreamBatchMemOpParams *p = &b->op[b->n++];

    memset(p, 0, sizeof(*p));
    p->waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    p->waitValue.address   = at;
    p->waitValue.value     = 1;
    p->waitValue.flags     = CU_STREAM_WAIT_VALUE_EQ;
}

static CUdeviceptr flag(const struct work *w, int of, int phase, int from)
{
    return w->g->words_at[of] + offsetof(struct hkt_gpu_words, flag) + sizeof(uint32_t) * (size_t)(phase * HKT_GPU_RANKS + from);
}

static int enqueue(const struct work *w, struct batch *b)
{
    if (b->n)
        HKT_CUDA_TRY(cuStreamBatchMemOp(w->stream, b->n, b->op, 0));
    return 0;
}

/* All ranks have come here. */
static int meet(const struct work *w, int phase)
{
    const int    n = w->c->size, me = w->c->rank;
    struct batch b = {.n = 0};

    for (int k = 1; k < n; k++)
        write_word(&b, flag(w, (me + k) % n, phase, me), 1);
    for (int k = 1; k < n; k++)
        wait_word(&b, flag(w, me, phase, (me + k) % n));
    for (int k = 1; k < n; k++)
        write_word(&b, flag(w, me, phase, (me + k) % n), 0);
    return enqueue(w, &b);
}

/* For the watcher: which operation the stream is in. */
static int note(const struct work *w, bool begins)
{
    const CUdeviceptr words = w->g->words_at[w->c->rank];
    struct batch      b     = {.n = 0};

    write_word(&b, words + offsetof(struct hkt_gpu_words, ended), begins ? 0 : w->number);
    if (begins)
        write_word(&b, words + offsetof(struct hkt_gpu_words, begun), w->number);
    return enqueue(w, &b);
}

static int run_staged(struct work *w)
{
    struct hkt_kernel_arguments a;

    HKT_TRY(meet(w, READY));
    arguments(w, &a);
    for (int i = 0; i < w->g->nacts; i++)
        HKT_TRY(add_steps(w, w->g->acts[i], &a));
    if (a.segments)
        HKT_TRY(launch(w, kernel_of(w), &a, w->stride * a.segments));
    return meet(w, DONE);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static int run_piece(struct work *w)
{
    w->stride = (w->count * w->call->element + UNIT - 1) / UNIT * UNIT;
    HKT_TRY(copy(w, false));
    HKT_TRY(w->g->way == HKT_GPU_FUSED ? run_fused(w) : run_staged(w));
    return copy(w, true);
}

static int run(struct work *w)
{
    const struct hkt_call *call   = w->call;
    const int              blocks = blocks_of(w, false) > blocks_of(w, true) ? blocks_of(w, false) : blocks_of(w, true);
    const size_t           most   = HKT_GPU_PLACE / (size_t)blocks / UNIT * UNIT / (call->element ? call->element : 1);

    if (call->coll == HKT_COLL_BARRIER) {
        HKT_TRY(meet(w, READY));
        return meet(w, DONE);
    }
    w->count = call->count;
    if (low(w))
        return run_low(w);
    for (; w->at < call->count; w->at += w->count) {
        w->count = call->count - w->at < most ? call->count - w->at : most;
        HKT_TRY(run_piece(w));
    }
    return 0;
}

bool hkt_gpu_runs(const struct hkt_communicator *c, const struct hkt_call *call)
{
    return c->gpu && !call->arrays && call->coll < HKT_COLL_SEND && call->op != HKT_PREMUL_SUM;
}

/* Calls of one communicator on different streams keep their order. What a graph runs is ordered by whoever launches it. */
static int order(struct hkt_gpu *g, CUstream stream)
{
    if (g->recorded && g->last != stream)
        HKT_CUDA_TRY(cuStreamWaitEvent(stream, g->done, 0));
    return 0;
}

/* Shows the others what this rank puts on its stream, and looks at what they have: the last to come finds a difference. */
static int compare(const struct work *w)
{
    const struct hkt_signature mine = hkt_signature_of(w->call);
    const int                  ring = w->number & HKT_GPU_CAPTURED ? 1 : 0, me = w->c->rank;
    struct hkt_gpu_call       *own  = &w->g->words[me]->call[ring][w->number % HKT_GPU_CALLS];
    char                       here[160], there[160], who[128], self[128];

    atomic_store(&own->number, 0);
    own->signature = mine;
    atomic_store(&own->number, w->number); /* pairs with the load below, on other ranks: one of two sees the other's */
    for (int r = 0; r < w->c->size; r++) {
        const struct hkt_gpu_call *theirs = &w->g->words[r]->call[ring][w->number % HKT_GPU_CALLS];
        struct hkt_signature       other;

        if (atomic_load(&theirs->number) != w->number)
            continue;
        other = theirs->signature;
        if (hkt_signature_equal(&mine, &other) || atomic_load(&theirs->number) != w->number)
            continue;
        hkt_signature_print(&mine, here, sizeof(here));
        hkt_signature_print(&other, there, sizeof(there));
        return hkt_communicator_kill(w->c, HKT_ERR_MISMATCH,
                                     "communicator %s, call %u on GPUs: %s called %s, but %s called %s; the communicator cannot go on; make both ranks "
                                     "call the same",
                                     w->c->name, w->number & ~HKT_GPU_CAPTURED, hkt_communicator_who(w->c, me, self, sizeof(self)), here,
                                     hkt_communicator_who(w->c, r, who, sizeof(who)), there);
    }
    return 0;
}

int hkt_execute_cuda(struct hkt_communicator *c, const struct hkt_call *call, CUstream stream, bool captured)
{
    struct hkt_gpu *g = c->gpu;
    struct work     w = {.c = c, .g = g, .call = call, .stream = stream};

    if (!call->count && call->coll != HKT_COLL_BARRIER)
        return 0;
    if (!captured)
        HKT_TRY(order(g, stream));
    w.number = captured ? ++g->captured | HKT_GPU_CAPTURED : ++g->operations & ~HKT_GPU_CAPTURED;
    HKT_TRY(compare(&w));
    HKT_TRY(note(&w, true));
    HKT_TRY(run(&w));
    HKT_TRY(note(&w, false));
    if (captured)
        return 0;
    HKT_CUDA_TRY(cuEventRecord(g->done, stream));
    g->recorded = true;
    g->last     = stream;
    return 0;
}
