/* gpu.h -- jobs (job.h) on device memory: the same inputs and checks, with copies to and from a GPU around the call. The driver is the one of
 * tests/fakecuda, unless TEST_GPU=1 asks for the machine's.
 */
#ifndef TEST_GPU_H
#define TEST_GPU_H

#include "device/cuda.h"
#include "job.h"

/* Which buffers of a job are on the device. */
enum placement { ON_DEVICE, MIXED /* by rank, side and job */ };

/* One rank's GPU. */
struct gpu {
    const struct hkt_cuda *cuda;
    CUcontext              context;
    CUstream               queue;  /* what `stream` is made from */
    hkt_stream_t          *stream;
    enum placement         placement;
    char                  *memory; /* of the device: for jobs in flight */
    size_t                 size, used;
    double                 took;   /* the last call until it returned, seconds */
};

void gpu_driver(void); /* loads the fake driver, if that is the one; before anything of CUDA */
void gpu_open(struct gpu *g, int ordinal, size_t bytes);
void gpu_close(struct gpu *g);

/* Jobs of the lab run on this GPU from now on. Their calls return at once; gpu_finish() before job_check(). */
void gpu_lab(struct gpu *g, struct lab *lab);
void gpu_finish(struct gpu *g); /* all is done; memory of jobs is free */

/* All of a job, on the GPU's stream or blocking. */
void gpu_job(struct gpu *g, struct lab *lab, const struct job *job, bool stream);

#define cuda_ok(call)                                                                                                                      \
    do {                                                                                                                                   \
        const CUresult error_ = hkt_cuda()->call;                                                                                          \
        expect(!error_, "%s gives CUDA error %d", #call, (int)error_);                                                                     \
    } while (0)

#endif
