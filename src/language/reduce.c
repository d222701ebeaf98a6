/* reduce.c -- which kernels run: the instruction set is chosen once, a type and an operator then index a table. */
#include "language/reduce.h"

#include <assert.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* The system's share (saved registers) is part of "supports"; F16C has no name there in every compiler. */
static bool has_avx2(void)
{
    unsigned a, b, c = 0, d;

    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

static bool always(void)
{
    return true;
}

/* Best first. The flags that the kernels are compiled with (Makefile.am) are those that the tests ask for. */
static const struct isa {
    const char               *name;
    bool                    (*usable)(void);
    const struct hkt_kernels *kernels;
} isas[] = {
#if defined(__x86_64__)
    {"avx512", has_avx512, &hkt_kernels_avx512},
    {"avx2", has_avx2, &hkt_kernels_avx2},
#endif
    {"portable", always, &hkt_kernels_portable},
};

enum { ISAS = sizeof(isas) / sizeof(isas[0]) };

static const struct isa *chosen = &isas[ISAS - 1];

const char *hkt_reduce_select(const char *isa)
{
    for (int i = 0; i < ISAS; i++) {
        if ((!isa || !*isa || !strcmp(isa, isas[i].name)) && isas[i].usable()) {
            chosen = &isas[i];
            return chosen->name;
        }
    }
    return NULL;
}

const char *hkt_reduce_isa(void)
{
    return chosen->name;
}

hkt_reduce_fn *hkt_reduce_kernel(hkt_type_t type, hkt_op_t op)
{
    assert((unsigned)type < HKT_TYPES);
    return chosen->kernels->reduce[type][(unsigned)op < HKT_OPS ? (int)op : HKT_PREMUL];
}

void hkt_copy_bytes(void *const *dst, uint32_t ndst, const void *src, size_t bytes, bool stream)
{
    chosen->kernels->copy(&(struct hkt_copy){src, dst, bytes, ndst, stream});
}
