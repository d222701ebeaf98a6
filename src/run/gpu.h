/* gpu.h -- the ranks of a communicator on their GPUs: what they share there, and collectives that the GPUs run themselves.
 *
 * Up to 8 ranks of one host. Each has an arena on its GPU that all the others have mapped: control words and low-latency lines for waiting in kernels,
 * a place for IN and one for OUT. Calls on a CUDA stream copy in, run the bound steps of the direct schedule as segments of one kernel, copy out; see
 * execute_cuda.c. How ranks wait for one another is one of two ways, the same on all ranks:
 *
 *   fused    every rank has a GPU of its own: in the kernel
 *   staged   some GPU is shared: on the streams (memory operations on flags in host memory, which the host can set too), and the first rank of each
 *            GPU moves the data of all ranks there. No kernel waits for one that may not be able to run.
 *
 * All is set up in the first collective that every rank makes on a CUDA stream (gpu_connect.c). Where that cannot be, calls go through host memory.
 */
#ifndef HKT_GPU_H
#define HKT_GPU_H

#include "device/arena.h"
#include "device/kernels/segment.h"
#include "run/communicator.h"
#include "run/plan.h"

enum hkt_gpu_way { HKT_GPU_STAGED, HKT_GPU_FUSED };
enum { HKT_GPU_RANKS = HKT_SEGMENT_FAN, HKT_GPU_PAGE = 4096 };

/* A rank's arena, bytes from its start. */
enum {
    HKT_GPU_LOW   = 8192, /* after struct hkt_kernel_control */
    HKT_GPU_IN    = HKT_GPU_LOW + HKT_LOW_AREA,
    HKT_GPU_PLACE = 8 << 20, /* of IN and of OUT: longer calls go through in pieces */
    HKT_GPU_OUT   = HKT_GPU_IN + HKT_GPU_PLACE,
    HKT_GPU_ARENA = HKT_GPU_OUT + HKT_GPU_PLACE
};

enum { HKT_GPU_CALLS = 32 };

/* What a rank has put on its stream; the number is written last. */
struct hkt_gpu_call {
    _Atomic uint32_t     number;
    struct hkt_signature signature;
};

/* Words of a rank in host memory, mapped by all ranks and their GPUs. */
struct hkt_gpu_words {
    _Atomic uint32_t flag[2][HKT_GPU_RANKS]; /* set by each peer's stream, taken back by the rank's own; by the host when all is over */
    _Atomic uint32_t abort;                  /* by the rank's host: kernels wait for nothing more */
    _Alignas(64) _Atomic uint32_t begun;     /* by the rank's stream: which operation */
    _Atomic uint32_t              ended;
    struct hkt_gpu_call call[2][HKT_GPU_CALLS]; /* by the rank's host: made directly, captured */
};
_Static_assert(sizeof(struct hkt_gpu_words) <= HKT_GPU_PAGE, "a page for each rank");

/* Numbers of operations in begun and ended: captured ones have this bit, since they run again. */
#define HKT_GPU_CAPTURED 0x80000000u

struct hkt_gpu {
    struct hkt_communicator *comm;
    struct hkt_gpu          *next; /* of those that are watched */
    enum hkt_gpu_way         way;
    CUcontext                context;
    CUfunction               move[HKT_TYPES][HKT_OPS + 1], low[HKT_TYPES][HKT_OPS + 1], copy;
    int                      blocks; /* that the GPU can run at once */

    struct hkt_arena      arena[HKT_GPU_RANKS];  /* as mapped here */
    bool                  opened[HKT_GPU_RANKS]; /* to be closed here */
    bool                  lent; /* ranks of this process use the same mapping of it */
    struct hkt_gpu_words *words[HKT_GPU_RANKS];  /* of every rank */
    CUdeviceptr           words_at[HKT_GPU_RANKS];
    void                 *registered; /* host memory registered with the driver; NULL: another rank of the process did */

    int              acts[HKT_GPU_RANKS], nacts; /* ranks whose steps this one runs */
    struct hkt_plan *plan[HKT_COLLS][HKT_GPU_RANKS][HKT_GPU_RANKS]; /* by root and rank; made at first need */

    uint32_t operations, captured;
    CUstream last; /* of the operation before */
    CUevent  done; /* of that, if it was made directly */
    bool     recorded, watched;

    /* of the watcher */
    uint32_t seen;
    uint64_t since;
};

/* Can the call be the one in which the ranks connect? Nothing else than the call decides. */
bool hkt_gpu_may_connect(const struct hkt_communicator *c, const struct hkt_call *call);

/* Before and after such a call, which has finished on this rank, in its turn. `context` is the stream's. */
void hkt_gpu_offer(struct hkt_communicator *c);
void hkt_gpu_connect(struct hkt_communicator *c, CUcontext context);

/* Does the call run on the GPUs? The same on every rank. */
bool hkt_gpu_runs(const struct hkt_communicator *c, const struct hkt_call *call);

/* Puts it on the stream, whose context is current. */
int hkt_execute_cuda(struct hkt_communicator *c, const struct hkt_call *call, CUstream stream, bool captured);

void hkt_gpu_free(struct hkt_communicator *c); /* finishes its work first */

/* ---- gpu_watch.c ---- */
int  hkt_gpu_watch(struct hkt_gpu *g);   /* from now on: death, deadline and abort let its streams go */
void hkt_gpu_unwatch(struct hkt_gpu *g); /* not while it is looked at */

#endif
