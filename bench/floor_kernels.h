/* floor_kernels.h -- the loops of the floors: sum up to MAX_RANKS float sources into up to MAX_RANKS destinations,
 * reading each source and writing each destination once. Compiled for the machine at hand (-march=native), as
 * bench/versus does. */
#ifndef VERSUS_FLOOR_KERNELS_H
#define VERSUS_FLOOR_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VECTOR = 64 };
#elif defined(__AVX__)
enum { VECTOR = 32 };
#else
enum { VECTOR = 16 };
#endif
typedef float vector __attribute__((vector_size(VECTOR), aligned(4), may_alias));

enum copy { COPY_PLAIN, COPY_NT, COPY_MOVS };

#define ALWAYS_INLINE static inline __attribute__((always_inline))

static inline const char *kernel_name(void)
{
    return VECTOR == 64 ? "AVX-512" : VECTOR == 32 ? "AVX" : "128 bits";
}

static inline void kernel_pause(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

ALWAYS_INLINE vector load(const char *from)
{
    return *(const vector *)(const void *)from;
}

ALWAYS_INLINE void store(char *to, vector v, int nt)
{
#if defined(__AVX512F__)
    if (nt) {
        _mm512_stream_ps((void *)to, (__m512)v);
        return;
    }
#elif defined(__AVX__)
    if (nt) {
        _mm256_stream_ps((void *)to, (__m256)v);
        return;
    }
#elif defined(__x86_64__)
    if (nt) {
        _mm_stream_ps((void *)to, (__m128)v);
        return;
    }
#endif
    (void)nt;
    *(vector *)(void *)to = v;
}

ALWAYS_INLINE void reduce(char *const *out, int outs, const char *const *in, int ins, size_t bytes, int nt)
{
    enum { STEP = 4 };
    size_t i = 0;

    for (; i + STEP * VECTOR <= bytes; i += STEP * VECTOR) {
        vector sum[STEP];

        for (int v = 0; v < STEP; v++)
            sum[v] = load(in[0] + i + (size_t)v * VECTOR);
        for (int s = 1; s < ins; s++)
            for (int v = 0; v < STEP; v++)
                sum[v] += load(in[s] + i + (size_t)v * VECTOR);
        for (int d = 0; d < outs; d++)
            for (int v = 0; v < STEP; v++)
                store(out[d] + i + (size_t)v * VECTOR, sum[v], nt);
    }
    for (; i < bytes; i += sizeof(float)) {
        float sum, next;

        memcpy(&sum, in[0] + i, sizeof sum);
        for (int s = 1; s < ins; s++) {
            memcpy(&next, in[s] + i, sizeof next);
            sum += next;
        }
        for (int d = 0; d < outs; d++)
            memcpy(out[d] + i, &sum, sizeof sum);
    }
}

ALWAYS_INLINE void reduce_fixed_outs(char *const *out, int outs, const char *const *in, int ins, size_t bytes, int nt)
{
    switch (outs) {
    case 1:
        reduce(out, 1, in, ins, bytes, nt);
        break;
    case 2:
        reduce(out, 2, in, ins, bytes, nt);
        break;
    case 4:
        reduce(out, 4, in, ins, bytes, nt);
        break;
    default:
        reduce(out, outs, in, ins, bytes, nt);
    }
}

ALWAYS_INLINE void reduce_fixed(char *const *out, int outs, const char *const *in, int ins, size_t bytes, int nt)
{
    switch (ins) {
    case 1:
        reduce_fixed_outs(out, outs, in, 1, bytes, nt);
        break;
    case 2:
        reduce_fixed_outs(out, outs, in, 2, bytes, nt);
        break;
    case 4:
        reduce_fixed_outs(out, outs, in, 4, bytes, nt);
        break;
    default:
        reduce_fixed_outs(out, outs, in, ins, bytes, nt);
    }
}

/* Non-temporal only where every destination is aligned for it. */
static void kernel_reduce(char *const *out, int outs, const char *const *in, int ins, size_t bytes, int nt)
{
    for (int d = 0; d < outs; d++)
        nt = nt && (uintptr_t)out[d] % VECTOR == 0;
    if (!nt) {
        reduce_fixed(out, outs, in, ins, bytes, 0);
        return;
    }
    reduce_fixed(out, outs, in, ins, bytes, 1);
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

static void kernel_copy(char *to, const char *from, size_t bytes, enum copy how)
{
#if defined(__x86_64__)
    if (how == COPY_MOVS) {
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes)::"memory");
        return;
    }
#endif
    kernel_reduce(&to, 1, &from, 1, bytes, how == COPY_NT);
}

#endif
