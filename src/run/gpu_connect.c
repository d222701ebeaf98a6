/* gpu_connect.c -- how ranks get at each other's GPU memory, and how that ends. See gpu.h.
 *
 * Whether the ranks connect must be decided alike on all of them, though some may give host calls and only learn later that there is a GPU. Each says
 * in its cell from which operation on it can (hkt_gpu_offer); a collective in which every rank hears every other then shows all of them the same: when
 * all offers are of this operation or an earlier one, they connect. A rank whose offer finds no answer twice takes it back.
 *
 * Connecting is four rounds: what each has; descriptors are handed over; all is mapped and cleared; all are ready. Whoever fails says so in the next
 * round, and nobody connects.
 */
#include "run/gpu.h"

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/device.h"
#include "device/kernels/image.h"
#include "device/kernels/kernel.h"
#include "run/operation.h"
#include "setup/handed.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { ATTEMPTS = 2, FEW_THREADS = 512 };

static const uint64_t WITHDRAWN = UINT64_MAX;

/* What a rank says of itself. */
struct hello {
    int32_t        ok, vmm;
    uint32_t       number;  /* of the descriptor that the reader was handed: per rank in `handed` */
    uint32_t       handed[HKT_GPU_RANKS];
    uint64_t       process[2], base, size, context;
    CUuuid         gpu;
    CUipcMemHandle handle;
};

struct meeting {
    struct hkt_gpu *g;
    struct hello    mine, all[HKT_GPU_RANKS];
    int             fd;
};

bool hkt_gpu_may_connect(const struct hkt_communicator *c, const struct hkt_call *call)
{
    return !c->gpu && !c->gpu_tried && c->size <= HKT_GPU_RANKS && !c->far && call->coll < HKT_COLL_SEND && !call->arrays &&
           !hkt_collective[call->coll].rooted;
}

void hkt_gpu_offer(struct hkt_communicator *c)
{
    _Atomic uint64_t *mine = &c->peer[c->rank].cell->gpu;

    if (hkt_load_relaxed(mine) == 0)
        hkt_store_release(mine, c->number + 1); /* pairs with all_offer(), through the line of the operation */
}

static bool all_offer(const struct hkt_communicator *c)
{
    for (int r = 0; r < c->size; r++) {
        const uint64_t since = hkt_load_acquire(&c->peer[r].cell->gpu); /* pairs with hkt_gpu_offer() there */

        if (!since || since > c->number)
            return false;
    }
    return true;
}

/* ---- what this rank has ------------------------------------------------------------------------------------------ */

static int load_kernels(struct hkt_gpu *g)
{
    static CUlibrary       library; /* for the life of the process */
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    CUresult               error = CUDA_SUCCESS;
    CUkernel               kernel;

    pthread_mutex_lock(&lock);
    if (!library)
        error = hkt_cuda()->cuLibraryLoadData(&library, hkt_kernel_image(), NULL, NULL, 0, NULL, NULL, 0);
    pthread_mutex_unlock(&lock);
    if (error)
        return hkt_cuda_fail(error, "loading the kernels");
    for (int t = 0; t < HKT_TYPES; t++)
        for (int op = 0; op <= HKT_OPS; op++) {
            const hkt_op_t o = op == HKT_OPS ? HKT_PREMUL_SUM : (hkt_op_t)op;

            HKT_CUDA_TRY(cuLibraryGetKernel(&kernel, library, hkt_kernel_move((hkt_type_t)t, o)));
            HKT_CUDA_TRY(cuKernelGetFunction(&g->move[t][op], kernel));
            HKT_CUDA_TRY(cuFuncLoad(g->move[t][op])); /* now: loading beside a kernel that waits could wait for it */
            HKT_CUDA_TRY(cuLibraryGetKernel(&kernel, library, hkt_kernel_low((hkt_type_t)t, o)));
            HKT_CUDA_TRY(cuKernelGetFunction(&g->low[t][op], kernel));
            HKT_CUDA_TRY(cuFuncLoad(g->low[t][op]));
        }
    HKT_CUDA_TRY(cuLibraryGetKernel(&kernel, library, HKT_KERNEL_COPY));
    HKT_CUDA_TRY(cuKernelGetFunction(&g->copy, kernel));
    HKT_CUDA_TRY(cuFuncLoad(g->copy));
    return 0;
}

/* The words of all ranks stand side by side in the communicator's segment. */
static int register_words(struct hkt_gpu *g)
{
    struct hkt_communicator *c    = g->comm;
    char                    *base = (char *)c->shared + c->layout.gpu;
    CUdeviceptr              at   = 0;
    CUresult                 error;

    error = hkt_cuda()->cuMemHostRegister(base, (size_t)c->size * HKT_GPU_PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    if (!error)
        g->registered = base;
    else if (error != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) /* by another rank of this process */
        return hkt_cuda_fail(error, "registering the words that streams wait for");
    HKT_CUDA_TRY(cuMemHostGetDevicePointer(&at, base, 0));
    for (int r = 0; r < c->size; r++) {
        g->words[r]    = (struct hkt_gpu_words *)(void *)(base + (size_t)c->peer[r].seat * HKT_GPU_PAGE);
        g->words_at[r] = at + (CUdeviceptr)c->peer[r].seat * HKT_GPU_PAGE;
    }
    return 0;
}

/* Zeroes what peers look at. On a stream of its own, which also shows that streams can write words. */
static int clear(struct hkt_gpu *g)
{
    CUstream s = NULL;
    CUresult error, done;

    HKT_CUDA_TRY(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
    error = hkt_cuda()->cuMemsetD8Async(g->arena[g->comm->rank].base, 0, HKT_GPU_IN, s);
    if (!error)
        error = hkt_cuda()->cuStreamWriteValue32(s, g->words_at[g->comm->rank] + offsetof(struct hkt_gpu_words, ended), 0, 0);
    done = hkt_cuda()->cuStreamSynchronize(s); /* also when the second was refused: the arena may go next */
    hkt_cuda()->cuStreamDestroy(s);
    error = error ? error : done;
    return error ? hkt_cuda_fail(error, "clearing the words that streams wait for") : 0;
}

static int prepare(struct meeting *m, CUcontext context)
{
    struct hkt_gpu            *g = m->g;
    struct hkt_communicator   *c = g->comm;
    struct hello              *h = &m->mine;
    struct hkt_process_address own;
    CUdevice                   device;
    int                        sms = 1, each = 1;

    g->context = context;
    HKT_TRY(load_kernels(g));
    HKT_TRY(hkt_arena_make(&g->arena[c->rank], HKT_GPU_ARENA));
    g->opened[c->rank] = true;
    HKT_TRY(register_words(g));
    HKT_TRY(clear(g));
    HKT_TRY(hkt_arena_export(&g->arena[c->rank], &m->fd, &h->handle));
    HKT_CUDA_TRY(cuEventCreate(&g->done, CU_EVENT_DISABLE_TIMING));
    HKT_CUDA_TRY(cuCtxGetDevice(&device));
    HKT_CUDA_TRY(cuDeviceGetUuid(&h->gpu, device));
    HKT_CUDA_TRY(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    HKT_CUDA_TRY(cuOccupancyMaxActiveBlocksPerMultiprocessor(&each, g->move[HKT_BFLOAT16][HKT_SUM], FEW_THREADS, 0));
    g->blocks = sms * (each ? each : 1);
    hkt_process_address(&own);
    memcpy(h->process, own.uuid, sizeof(h->process));
    h->base    = g->arena[c->rank].base;
    h->size    = g->arena[c->rank].size;
    h->vmm     = g->arena[c->rank].vmm;
    h->context = (uintptr_t)context;
    return 0;
}

/* ---- what the others have ---------------------------------------------------------------------------------------- */

static int gather(struct meeting *m, int rc)
{
    struct hkt_communicator *c    = m->g->comm;
    struct hkt_call          call = {.coll = HKT_COLL_SPLIT, .send = &m->mine, .recv = m->all, .count = sizeof(m->mine), .element = 1,
                                     .type = HKT_UINT8, .staged = true};

    m->mine.ok = rc == 0;
    HKT_TRY(hkt_operation_run(c, &call, &c->waiter));
    for (int r = 0; r < c->size && !rc; r++)
        if (!m->all[r].ok)
            return HKT_ERR_UNSUPPORTED;
    return rc;
}

static bool same_process(const struct meeting *m, int r)
{
    return !memcmp(m->all[r].process, m->mine.process, sizeof(m->mine.process));
}

static int hand_over(struct meeting *m)
{
    struct hkt_communicator *c = m->g->comm;

    for (int r = 0; r < c->size; r++)
        if (m->mine.vmm && !same_process(m, r))
            HKT_TRY(hkt_hand(&m->mine.handed[r], c->peer[r].process, m->fd));
    return 0;
}

static int open_peer(struct meeting *m, int r)
{
    struct hkt_gpu     *g = m->g;
    const struct hello *h = &m->all[r];
    int                 fd = -1, rc;

    if (r == g->comm->rank)
        return 0;
    if (same_process(m, r)) {
        const struct hkt_arena theirs = {h->base, h->size, h->vmm, false};

        rc = hkt_arena_admit(&g->arena[r], &theirs, (CUcontext)(uintptr_t)h->context);
        g->opened[r] = !rc && h->vmm;
        g->lent      = !h->vmm;
        return rc;
    }
    if (h->vmm) {
        fd = hkt_handed(g->comm->peer[r].process, h->handed[g->comm->rank]);
        if (fd < 0)
            return hkt_fail(HKT_ERR_INTERNAL, "the descriptor of rank %d's device memory has not come", r);
    }
    rc = hkt_arena_open(&g->arena[r], h->size, fd, &h->handle);
    if (fd >= 0)
        close(fd);
    g->opened[r] = !rc;
    return rc;
}

/* What was handed over and not opened. */
static void drop_handed(struct meeting *m)
{
    for (int r = 0; r < m->g->comm->size; r++) {
        const int fd = m->all[r].vmm && !same_process(m, r) ? hkt_handed(m->g->comm->peer[r].process, m->all[r].handed[m->g->comm->rank]) : -1;

        if (fd >= 0)
            close(fd);
    }
}

/* Which way; and whose steps this rank runs. */
static void settle(struct meeting *m)
{
    struct hkt_gpu *g     = m->g;
    const int       n     = g->comm->size, me = g->comm->rank;
    int             first = me;

    g->way = HKT_GPU_FUSED;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++)
            if (!memcmp(&m->all[a].gpu, &m->all[b].gpu, sizeof(CUuuid)))
                g->way = HKT_GPU_STAGED;
    for (int r = n - 1; r >= 0; r--)
        if (!memcmp(&m->all[r].gpu, &m->mine.gpu, sizeof(CUuuid)))
            first = r;
    for (int r = 0; r < n && first == me; r++)
        if (!memcmp(&m->all[r].gpu, &m->mine.gpu, sizeof(CUuuid)))
            g->acts[g->nacts++] = r;
}

static void release(struct hkt_gpu *g)
{
    if (g->watched)
        hkt_gpu_unwatch(g);
    if (g->context && !hkt_cuda_enter(g->context)) {
        for (int r = 0; r < g->comm->size; r++)
            if (g->opened[r] && !(r == g->comm->rank && g->lent && hkt_communicator_state(g->comm))) /* kernels of others may still be there */
                hkt_arena_close(&g->arena[r]);
        if (g->registered)
            hkt_cuda()->cuMemHostUnregister(g->registered);
        if (g->done)
            hkt_cuda()->cuEventDestroy(g->done);
        hkt_cuda_leave();
    }
    for (int coll = 0; coll < HKT_COLLS; coll++)
        for (int root = 0; root < HKT_GPU_RANKS; root++)
            for (int r = 0; r < HKT_GPU_RANKS; r++)
                hkt_plan_free(g->plan[coll][root][r]);
    hkt_free(g);
}

static int meet(struct meeting *m, CUcontext context)
{
    struct hkt_communicator *c  = m->g->comm;
    int                      rc = gather(m, prepare(m, context));

    if (!rc)
        rc = gather(m, hand_over(m));
    for (int r = 0; r < c->size && !rc; r++)
        rc = open_peer(m, r);
    return rc;
}

void hkt_gpu_connect(struct hkt_communicator *c, CUcontext context)
{
    struct meeting *m;
    int             rc;

    if (!all_offer(c)) {
        if (++c->gpu_attempts == ATTEMPTS) {
            c->gpu_tried = true;
            hkt_store_release(&c->peer[c->rank].cell->gpu, WITHDRAWN); /* pairs with all_offer() */
        }
        return;
    }
    c->gpu_tried = true;
    m            = hkt_alloc(sizeof(*m));
    if (m)
        m->g = hkt_alloc(sizeof(*m->g));
    if (!m || !m->g || hkt_cuda_enter(context)) {
        hkt_communicator_blame(c, HKT_ERR_MEMORY, "connecting the GPUs", c->number);
        if (m)
            hkt_free(m->g);
        hkt_free(m);
        return;
    }
    m->g->comm = c;
    m->fd      = -1;
    rc         = meet(m, context);
    if (!rc)
        rc = hkt_gpu_watch(m->g);
    rc = gather(m, rc);
    if (!rc)
        settle(m);
    if (m->fd >= 0)
        close(m->fd);
    hkt_cuda_leave();
    if (rc) {
        hkt_log(HKT_LOG_INFO, "communicator %s: rank %d: GPUs are not connected, calls on device memory go through the host: %s", c->name, c->rank,
                hkt_last_error());
        drop_handed(m);
        release(m->g);
    } else {
        hkt_log(HKT_LOG_INFO, "communicator %s: rank %d: GPUs are connected, %s, %s", c->name, c->rank,
                m->g->way == HKT_GPU_FUSED ? "fused" : "staged", m->mine.vmm ? "file descriptors" : "IPC handles");
        c->gpu = m->g;
    }
    hkt_error_clear();
    hkt_free(m);
}

void hkt_gpu_free(struct hkt_communicator *c)
{
    struct hkt_gpu *g = c->gpu;

    if (!g)
        return;
    if (!hkt_cuda_enter(g->context)) {
        while (g->recorded && hkt_cuda()->cuEventQuery(g->done) == CUDA_ERROR_NOT_READY)
            usleep(100); /* the watcher lets it go when its peers do not come */
        hkt_cuda_leave();
    }
    c->gpu = NULL;
    release(g);
}
