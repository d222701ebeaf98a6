/* kernels_choose.c -- picks the kernels for this processor; see kernels.h. */
#include "kernels.h"

extern const struct kernels kernels_portable, kernels_avx2, kernels_avx512;

#ifdef __x86_64__
const struct kernels *const kernels_table[] = {&kernels_portable, &kernels_avx2, &kernels_avx512};

int kernels_usable(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 1;
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
               ? 3
               : 2;
}
#else
const struct kernels *const kernels_table[] = {&kernels_portable};

int kernels_usable(void)
{
    return 1;
}
#endif

const struct kernels *kernels = &kernels_portable;

void kernels_choose(void)
{
    kernels = kernels_table[kernels_usable() - 1];
}
