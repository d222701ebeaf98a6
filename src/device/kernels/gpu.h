/* gpu.h -- the few words of CUDA that the kernels are written in. Everything else in them is plain C++, which the tests compile for the
 * processor with tests/fakecuda/simt_device.h in the place of this file's body.
 *
 * Loads and stores that ranks synchronise by are spelled out in PTX, with their order and scope; all others are ordinary ones of up to 16
 * bytes, which the compiler may not move across block_barrier(). Addresses are numbers, so no load is taken for one of constant memory.
 */
#ifndef HKT_DEVICE_GPU_H
#define HKT_DEVICE_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "device/kernels/segment.h"

#ifndef __CUDACC__
#include <simt_device.h> /* of the tests */
#else

#define DEVICE    static __device__ __forceinline__
#define UNROLL    _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")

#define KERNEL(name, Arguments) extern "C" __global__ void __launch_bounds__(HKT_KERNEL_THREADS, 1) name(const __grid_constant__ Arguments a)

struct alignas(16) vec16 {
    uint32_t word[4];
};

DEVICE uint32_t this_thread()
{
    return threadIdx.x;
}

DEVICE uint32_t this_block()
{
    return blockIdx.x;
}

DEVICE uint32_t block_threads()
{
    return blockDim.x;
}

DEVICE uint32_t grid_blocks()
{
    return gridDim.x;
}

template <class T> DEVICE T load(uint64_t address)
{
    return *(const T *)address;
}

template <class T> DEVICE void store(uint64_t address, T value)
{
    *(T *)address = value;
}

/* Spelled out, for the compiler would take some apart. */
template <> __device__ __forceinline__ vec16 load<vec16>(uint64_t address)
{
    vec16 v;

    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address)
                 : "memory");
    return v;
}

template <> __device__ __forceinline__ void store<vec16>(uint64_t address, vec16 v)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3])
                 : "memory");
}

/* 16 bytes that travel beside what others write: each half of 8 bytes arrives whole. */
DEVICE vec16 load_line(uint64_t address)
{
    vec16 v;

    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(address)
                 : "memory");
    return v;
}

DEVICE void store_line(uint64_t address, vec16 v)
{
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
                 "r"(v.word[3])
                 : "memory");
}

DEVICE uint32_t load_acquire(uint64_t address)
{
    uint32_t v;

    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
    return v;
}

DEVICE uint32_t load_relaxed(uint64_t address)
{
    uint32_t v;

    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(address) : "memory");
    return v;
}

DEVICE void store_release(uint64_t address, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

/* Between the blocks of one launch. */
DEVICE uint32_t add_in_gpu(uint64_t address, uint32_t value)
{
    uint32_t old;

    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(address), "r"(value) : "memory");
    return old;
}

DEVICE void block_barrier()
{
    __syncthreads();
}

DEVICE uint32_t warp_exchange(uint32_t value, uint32_t mask)
{
    return __shfl_xor_sync(0xffffffffu, value, (int)mask);
}

DEVICE uint32_t warp_vote(bool predicate)
{
    return __ballot_sync(0xffffffffu, predicate);
}

DEVICE void spin()
{
}

DEVICE uint32_t bits_of(float x)
{
    return __float_as_uint(x);
}

DEVICE float float_of(uint32_t bits)
{
    return __uint_as_float(bits);
}

DEVICE uint64_t bits_of(double x)
{
    return (uint64_t)__double_as_longlong(x);
}

DEVICE double double_of(uint64_t bits)
{
    return __longlong_as_double((long long)bits);
}

#endif

DEVICE uint64_t grid_thread()
{
    return (uint64_t)this_block() * block_threads() + this_thread();
}

DEVICE uint64_t grid_threads()
{
    return (uint64_t)grid_blocks() * block_threads();
}

#endif
