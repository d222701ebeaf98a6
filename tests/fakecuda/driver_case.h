/* driver_case.h -- what the suites of the fake driver begin with: the driver's prototypes, a context, and short words for what they all do. */
#ifndef FAKECUDA_DRIVER_CASE_H
#define FAKECUDA_DRIVER_CASE_H

#include "more.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define PROTOTYPE(name, version, arguments) CUresult name arguments;
HKT_CUDA_FUNCTIONS(PROTOTYPE)
FAKE_FUNCTIONS(PROTOTYPE)

#define OK(call) ck_assert_int_eq((int)(call), CUDA_SUCCESS)
#define GIVES(call, error) ck_assert_int_eq((int)(call), (int)(error))

enum { MIB = 1 << 20, GRANULE = 2 * MIB };

static inline void start(void)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
}

static inline void start_with(const char *name, const char *value)
{
    setenv(name, value, 1);
    start();
}

static inline CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, bytes));
    return p;
}

static inline uint32_t word_at(CUdeviceptr p)
{
    uint32_t word;

    OK(cuMemcpyDtoH(&word, p, 4));
    return word;
}

static inline CUstream new_stream(void)
{
    CUstream s;

    OK(cuStreamCreateWithPriority(&s, CU_STREAM_NON_BLOCKING, 0));
    return s;
}

#endif
