/* cuda.h -- the CUDA driver, looked for at run time: nothing links against it, and one build runs with and without a GPU. */
#ifndef HKT_CUDA_H
#define HKT_CUDA_H

#include "device/cuda_api.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Every entry point of the table, under its name. */
struct hkt_cuda {
#define HKT_CUDA_MEMBER(name, version, arguments) CUresult(*name) arguments;
    HKT_CUDA_FUNCTIONS(HKT_CUDA_MEMBER)
#undef HKT_CUDA_MEMBER
};

/* The driver, ready to be called, or NULL: there is none, it is too old, or it sees no device (hkt_cuda_missing() says which). The first call
 * loads it. Any thread. */
const struct hkt_cuda *hkt_cuda(void);
const char            *hkt_cuda_missing(void); /* a sentence; "" when there is a driver */

/* Loads the driver only if the process has it already: a program that never touches a GPU pays nothing for it. */
void hkt_cuda_notice(void);

/* The driver, once hkt_cuda() or hkt_cuda_notice() have found it, else NULL: what a hot path may ask. */
extern const struct hkt_cuda *_Atomic hkt_cuda_found;

static inline const struct hkt_cuda *hkt_cuda_here(void)
{
    return atomic_load_explicit(&hkt_cuda_found, memory_order_acquire); /* pairs with load() */
}

/* hkt_fail() with the driver's own words: "<what>: <its name for the error>, <its sentence>". HKT_ERR_MEMORY where memory is what lacks. */
int hkt_cuda_fail(CUresult error, const char *what);

/* Makes calls that a capture elsewhere in the process would forbid possible until the end; the same two calls in every thread. */
CUstreamCaptureMode hkt_cuda_relax(void);
void                hkt_cuda_restore(CUstreamCaptureMode before);

#define HKT_CUDA_TRY(call)                                                                                                                 \
    do {                                                                                                                                   \
        const CUresult error_ = hkt_cuda()->call;                                                                                          \
        if (error_)                                                                                                                        \
            return hkt_cuda_fail(error_, #call);                                                                                           \
    } while (0)

#endif
