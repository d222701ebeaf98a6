/* kernel_case.c -- see kernel_case.h. */
#include "kernel_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static CUlibrary library;
static uint64_t  seed = 88172645463325252u;

void kernel_case_must(bool fine, const char *what, const char *file, int line)
{
    if (fine)
        return;
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    exit(1);
}

void kernel_case_start(void)
{
    CUcontext context;

    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuLibraryLoadData(&library, "hocket: no code", NULL, NULL, 0, NULL, NULL, 0));
}

CUdeviceptr kernel_case_allocate(size_t bytes)
{
    CUdeviceptr p;

    OK(cuMemAlloc(&p, bytes));
    OK(cuMemsetD8(p, 0, bytes));
    return p;
}

CUfunction kernel_case_find(const char *name)
{
    CUkernel   kernel;
    CUfunction function;

    if (cuLibraryGetKernel(&kernel, library, name)) {
        fprintf(stderr, "there is no kernel '%s'\n", name);
        exit(1);
    }
    OK(cuKernelGetFunction(&function, kernel));
    OK(cuFuncLoad(function));
    return function;
}

void kernel_case_launch(const struct kernel_launch *l)
{
    void *parameters[] = {(void *)(uintptr_t)l->arguments};

    OK(cuLaunchKernel(kernel_case_find(l->name), l->blocks, 1, 1, l->threads, 1, 1, 0, l->stream, parameters, NULL));
}

uint64_t any64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 2685821657736338717u;
}

uint32_t below(uint32_t n)
{
    return (uint32_t)(any64() >> 33) % n;
}

static uint64_t tame_bits(hkt_type_t type)
{
    const float  x = ((float)below(4096) - 2048) / 64;
    const double d = x;
    uint64_t     bits = 0;

    switch (type) {
    case HKT_FLOAT16:
        return hkt_to_float16(x);
    case HKT_BFLOAT16:
        return hkt_to_bfloat16(x);
    case HKT_FLOAT32:
        memcpy(&bits, &x, sizeof(x));
        return bits;
    case HKT_FLOAT64:
        memcpy(&bits, &d, sizeof(d));
        return bits;
    case HKT_FLOAT8_E4M3:
        return hkt_to_e4m3(x);
    case HKT_FLOAT8_E5M2:
        return hkt_to_e5m2(x);
    default:
        return any64();
    }
}

void any_elements(void *to, hkt_type_t type, size_t count, bool tame)
{
    const size_t size = hkt_type_size(type);

    for (size_t i = 0; i < count; i++) {
        const uint64_t bits = tame ? tame_bits(type) : any64() >> below(64);

        memcpy((char *)to + i * size, &bits, size); /* little-endian */
    }
}
