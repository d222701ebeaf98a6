/* launch.c -- code and launches. Kernels are functions of a shared library built for the processor (FAKECUDA_KERNELS), which register by
 * name; what is "loaded" is only looked at, so a library's real device code can be handed in.
 *
 * A launch copies its parameters; every word of them that looks like device memory must be memory that the device may touch. A kernel
 * launched before it was loaded (cuFuncLoad) waits for the whole context first, as lazy loading may: a source of deadlocks.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 1024, SHARED = 227 << 10, SHARED_NORMAL = 48 << 10, RESIDENT = 1024 /* threads of a multiprocessor */ };

struct kernel { /* also CUkernel and CUfunction */
    struct simt_kernel simt;
    unsigned           loaded; /* bit per device */
    int                shared;
    struct kernel     *next;
};

struct fake_launch {
    const struct kernel *kernel;
    simt_dim3            grid, block;
    unsigned             shared;
    int                  references;
    char                 parameters[] __attribute__((aligned(64)));
};

static struct kernel *kernels; /* of the list's constructors, before any thread */

__attribute__((visibility("default"))) void simt_register(const struct simt_kernel *kernel)
{
    struct kernel *k = calloc(1, sizeof(*k));

    if (!k)
        abort();
    k->simt   = *kernel;
    k->shared = SHARED_NORMAL;
    k->next   = kernels;
    kernels   = k;
}

static struct kernel *of_function(CUfunction f)
{
    return (struct kernel *)(void *)f;
}

static struct kernel *named(const char *name)
{
    struct kernel *k;

    for (k = kernels; k && strcmp(k->simt.name, name); k = k->next) {
    }
    return k;
}

/* ---- loading ------------------------------------------------------------------------------------------------------------------------------------------ */

/* A fat binary with or without its wrapper, an ELF file, PTX, or the text that a library built without a compiler for GPUs has instead. */
static bool is_code(const void *code)
{
    static const uint32_t magics[] = {0x466243b1, 0xba55ed50, 0x464c457f};
    uint32_t              magic;

    memcpy(&magic, code, sizeof(magic));
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++)
        if (magic == magics[i])
            return true;
    return !memcmp(code, "//", 2) || !memcmp(code, ".ver", 4) || !memcmp(code, "hocket: no", 10);
}

static CUresult load(void *handle, const void *code)
{
    void *library;

    if (!is_code(code))
        return CUDA_ERROR_INVALID_IMAGE;
    library = malloc(1);
    if (!library)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(handle, &library, sizeof(library));
    fake_count(FAKE_LIBRARIES, 1);
    return CUDA_SUCCESS;
}

/* callback of the driver's interface */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned noptions,
                           CUlibraryOption *library_options, void **library_values, unsigned nlibrary_options)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    (void)options, (void)values, (void)noptions, (void)library_options, (void)library_values, (void)nlibrary_options;
    return load(library, code);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED | FAKE_UNSAFE));
    free(library);
    fake_count(FAKE_LIBRARIES, -1);
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    FAKE_TRY(fake_enter(__func__, FAKE_INITIALISED));
    *kernel = library ? (CUkernel)(void *)named(name) : NULL;
    return *kernel ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    *function = (CUfunction)(void *)kernel;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    return load(module, image);
}

CUresult cuModuleUnload(CUmodule module)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    free(module);
    fake_count(FAKE_LIBRARIES, -1);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    *function = module ? (CUfunction)(void *)named(name) : NULL;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuFuncLoad(CUfunction function)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT | FAKE_UNSAFE));
    __atomic_or_fetch(&of_function(function)->loaded, 1u << fake_context()->device, __ATOMIC_RELAXED);
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        return CUDA_SUCCESS;
    if (value < 0 || value > SHARED)
        return CUDA_ERROR_INVALID_VALUE;
    of_function(function)->shared = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    *value = attribute == FAKE_FUNCTION_MAX_THREADS                          ? (int)of_function(function)->simt.threads
             : attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? of_function(function)->shared
                                                                            : 0;
    return CUDA_SUCCESS;
}

/* As if each thread used 64 registers of the 65536 that there are. */
static unsigned resident(unsigned threads)
{
    return RESIDENT / threads;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int threads, size_t shared)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    (void)function;
    if (threads <= 0 || threads > THREADS || shared > SHARED)
        return CUDA_ERROR_INVALID_VALUE;
    *blocks = (int)resident((unsigned)threads);
    return CUDA_SUCCESS;
}

/* ---- launching ------------------------------------------------------------------------------------------------------------------------------------------ */

void fake_launch_keep(struct fake_launch *launch)
{
    __atomic_add_fetch(&launch->references, 1, __ATOMIC_RELAXED);
}

void fake_launch_drop(struct fake_launch *launch)
{
    if (!__atomic_sub_fetch(&launch->references, 1, __ATOMIC_ACQ_REL)) /* pairs with itself: the last one frees */
        free(launch);
}

void fake_launch_run(CUstream stream, struct fake_operation *operation)
{
    const struct fake_launch *l     = operation->launch;
    const unsigned            slots = FAKE_MULTIPROCESSORS * resident(l->block.x * l->block.y * l->block.z);
    const struct simt_launch  run   = {.kernel     = &l->kernel->simt,
                                     .parameters = l->parameters,
                                     .grid       = l->grid,
                                     .block      = l->block,
                                     .shared     = l->shared,
                                     .slots      = fake.slots ? fake.slots : slots,
                                     .seed       = fake.seed,
                                     .pool       = &stream->pool,
                                     .idle       = fake_share_idle,
                                     .argument   = (void *)(intptr_t)operation->device};

    if (simt_run(&run))
        fake_context_fail(operation->device, CUDA_ERROR_LAUNCH_FAILED);
}

/* Every aligned word that is an address of device memory, for the device could be sent there. */
static bool reachable(CUcontext context, const struct fake_launch *l)
{
    bool fine = true;

    for (size_t i = 0; i + 8 <= l->kernel->simt.bytes; i += 8) {
        CUdeviceptr word;

        memcpy(&word, l->parameters + i, 8);
        if ((word >> 48) == (FAKE_TAG >> 48) && fake.tagged)
            fine &= fake_memory_reach(context, word, 1, false);
        else if (!fake.tagged && !fake_memory_pageable(word))
            fine &= fake_memory_reach(context, word, 1, false);
    }
    return fine;
}

static CUresult check(const struct kernel *k, simt_dim3 grid, simt_dim3 block, unsigned shared)
{
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;

    if (!grid.x || !grid.y || !grid.z || !threads || threads > THREADS || (int)shared > k->shared || k->simt.bytes > FAKE_PARAMETER_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    return threads > k->simt.threads ? (CUresult)FAKE_ERROR_LAUNCH_OUT_OF_RESOURCES : CUDA_SUCCESS;
}

static CUresult launch(struct kernel *k, const CUlaunchConfig *c, void **parameters)
{
    const simt_dim3       grid = {c->grid_x, c->grid_y, c->grid_z}, block = {c->block_x, c->block_y, c->block_z};
    CUstream              stream;
    struct fake_launch   *l;
    struct fake_operation o;

    FAKE_TRY(fake_stream_find(&stream, c->stream));
    FAKE_TRY(check(k, grid, block, c->shared));
    if (!(__atomic_fetch_or(&k->loaded, 1u << stream->device, __ATOMIC_RELAXED) >> stream->device & 1) && !fake_captured(stream))
        fake_context_drain(stream->device);
    l = aligned_alloc(64, (sizeof(*l) + k->simt.bytes + 63) / 64 * 64);
    if (!l)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *l = (struct fake_launch){.kernel = k, .grid = grid, .block = block, .shared = c->shared, .references = 1};
    memcpy(l->parameters, parameters[0], k->simt.bytes);
    o = (struct fake_operation){.kind = FAKE_LAUNCH, .device = stream->device, .launch = l};
    if (!reachable(fake_context_of(stream->device), l)) { /* known when it runs, as a fault is */
        o.kind  = FAKE_FAULT;
        o.value = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    return fake_submit(stream, &o);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (!function || extra || !parameters)
        return CUDA_ERROR_INVALID_VALUE;
    return launch(of_function(function), config, parameters);
}

/* callback of the driver's interface */
CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream, void **parameters, void **extra)
{
    const CUlaunchConfig c = {grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream, NULL, 0};

    FAKE_TRY(fake_enter(__func__, FAKE_CONTEXT));
    if (!function || extra || !parameters)
        return CUDA_ERROR_INVALID_VALUE;
    return launch(of_function(function), &c, parameters);
}
