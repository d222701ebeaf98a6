/* kernel_case.h -- what the suites of the kernels begin with: the driver, its kernels by name, launches, random numbers. */
#ifndef FAKECUDA_KERNEL_CASE_H
#define FAKECUDA_KERNEL_CASE_H

#include "more.h"

#include "device/kernels/kernel.h"

#define PROTOTYPE(name, version, arguments) CUresult name arguments;
HKT_CUDA_FUNCTIONS(PROTOTYPE)
FAKE_FUNCTIONS(PROTOTYPE)

/* Everything here must work; else the process ends with the line. */
#define MUST(condition) kernel_case_must(condition, #condition, __FILE__, __LINE__)
#define OK(call) MUST((call) == CUDA_SUCCESS)

void kernel_case_must(bool fine, const char *what, const char *file, int line);

void        kernel_case_start(void); /* first device, its context, the library of kernels */
CUdeviceptr kernel_case_allocate(size_t bytes); /* zeroed */
CUfunction  kernel_case_find(const char *name);

struct kernel_launch {
    const char                        *name;
    const struct hkt_kernel_arguments *arguments;
    CUstream                           stream;
    unsigned                           blocks, threads;
};

void kernel_case_launch(const struct kernel_launch *launch);

uint64_t any64(void);
uint32_t below(uint32_t n);

/* An element of some type with random bits; `tame`: of floats, a number of moderate size. */
void any_elements(void *to, hkt_type_t type, size_t count, bool tame);

#endif
