/* isa.h -- loops compiled for several instruction sets within one file, and which of them this processor has.
 *
 * A loop is an inline body; ISA_BODY_* give the functions that inline it the right target. All sets must give the same
 * bits: the library is compiled without contraction to fused operations, and sums are kept in a fixed number of lanes
 * by hand.
 */
#ifndef PARALLEL_ISA_H
#define PARALLEL_ISA_H

enum isa { ISA_PORTABLE, ISA_AVX2, ISA_AVX512, ISAS };

#define ISA_BODY static inline __attribute__((always_inline))

#ifdef __x86_64__
#define ISA_TARGET_AVX2 __attribute__((target("avx2")))
#define ISA_TARGET_AVX512 __attribute__((target("avx512f,avx512dq,avx512vl,avx512bw")))

static inline enum isa isa_usable(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return ISA_AVX512;
    return __builtin_cpu_supports("avx2") ? ISA_AVX2 : ISA_PORTABLE;
}
#else
#define ISA_TARGET_AVX2
#define ISA_TARGET_AVX512

static inline enum isa isa_usable(void)
{
    return ISA_PORTABLE;
}
#endif

#endif
