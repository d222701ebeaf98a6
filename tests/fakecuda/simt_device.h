/* simt_device.h -- the words of CUDA that kernels use, for a C++ compiler: what src/device/kernels/gpu.h is for nvcc, under the same names.
 *
 * All loads and stores of kernels go through these functions, for an address of device memory is none that the processor can use.
 * Those that ranks or blocks synchronise by are atomics here, so that ThreadSanitizer sees what a GPU would.
 */
#ifndef FAKECUDA_SIMT_DEVICE_H
#define FAKECUDA_SIMT_DEVICE_H

#include "simt.h"

#include <string.h>

#define DEVICE static inline __attribute__((always_inline))
#define __device__
#define UNROLL
#define NO_UNROLL

/* A kernel and its registration. */
#define KERNEL(name, Arguments)                                                                                                            \
    static void name##_body(const Arguments &a);                                                                                           \
    static void name##_run(const void *arguments)                                                                                          \
    {                                                                                                                                      \
        name##_body(*(const Arguments *)arguments);                                                                                        \
    }                                                                                                                                      \
    __attribute__((constructor)) static void name##_register()                                                                             \
    {                                                                                                                                      \
        static const struct simt_kernel kernel = {#name, name##_run, sizeof(Arguments), HKT_KERNEL_THREADS};                               \
        simt_register(&kernel);                                                                                                            \
    }                                                                                                                                      \
    static void name##_body(const Arguments &a)

struct alignas(16) vec16 {
    uint32_t word[4];
};

template <class T> DEVICE T *at(uint64_t address)
{
    if (address % sizeof(T))
        simt_misaligned(address, sizeof(T));
    return (T *)(uintptr_t)(address & ~SIMT_TAG);
}

DEVICE uint32_t this_thread()
{
    return simt_current->thread.x;
}

DEVICE uint32_t this_block()
{
    return simt_current->block.x;
}

DEVICE uint32_t block_threads()
{
    return simt_current->threads.x;
}

DEVICE uint32_t grid_blocks()
{
    return simt_current->blocks.x;
}

template <class T> DEVICE T load(uint64_t address)
{
    return *at<const T>(address);
}

template <class T> DEVICE void store(uint64_t address, T value)
{
    *at<T>(address) = value;
}

/* The halves are what hardware never tears; each has its own flag. */
DEVICE vec16 load_line(uint64_t address)
{
    const uint64_t *p = at<const uint64_t>(address);
    const uint64_t  low = __atomic_load_n(p, __ATOMIC_RELAXED), high = __atomic_load_n(p + 1, __ATOMIC_RELAXED);

    return vec16{{(uint32_t)low, (uint32_t)(low >> 32), (uint32_t)high, (uint32_t)(high >> 32)}};
}

DEVICE void store_line(uint64_t address, vec16 v)
{
    uint64_t *p = at<uint64_t>(address);

    __atomic_store_n(p, v.word[0] | (uint64_t)v.word[1] << 32, __ATOMIC_RELAXED);
    simt_tear();
    __atomic_store_n(p + 1, v.word[2] | (uint64_t)v.word[3] << 32, __ATOMIC_RELAXED);
}

DEVICE uint32_t load_acquire(uint64_t address)
{
    return __atomic_load_n(at<const uint32_t>(address), __ATOMIC_ACQUIRE);
}

DEVICE uint32_t load_relaxed(uint64_t address)
{
    return __atomic_load_n(at<const uint32_t>(address), __ATOMIC_RELAXED);
}

DEVICE void store_release(uint64_t address, uint32_t value)
{
    __atomic_store_n(at<uint32_t>(address), value, __ATOMIC_RELEASE);
}

DEVICE uint32_t add_in_gpu(uint64_t address, uint32_t value)
{
    return __atomic_fetch_add(at<uint32_t>(address), value, __ATOMIC_ACQ_REL);
}

DEVICE void block_barrier()
{
    simt_barrier();
}

DEVICE uint32_t warp_exchange(uint32_t value, uint32_t mask)
{
    return (uint32_t)simt_shuffle(value, (this_thread() ^ mask) & 31);
}

DEVICE uint32_t warp_vote(bool predicate)
{
    return simt_ballot(predicate);
}

DEVICE void spin()
{
    simt_pause();
}

DEVICE uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

DEVICE float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

DEVICE uint64_t bits_of(double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

DEVICE double double_of(uint64_t bits)
{
    double x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

#endif
