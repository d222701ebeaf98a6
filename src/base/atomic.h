/* atomic.h -- the memory orders used in the library, by name. Every use names its partner in a comment.
 *
 * hkt_fence_light()/hkt_fence_heavy() are the two halves of one asymmetric fence between processes: the side that runs often pays
 * nothing (a compiler fence), the side that runs seldom asks the kernel to run a fence on every core (membarrier). Where the
 * kernel cannot, and under ThreadSanitizer, both are full fences.
 */
#ifndef HKT_ATOMIC_H
#define HKT_ATOMIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is this a build for the thread sanitizer? It does not know membarrier, and takes two mappings of a word for two words. */
#if defined(__SANITIZE_THREAD__)
#define HKT_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HKT_THREAD_SANITIZER 1
#endif
#endif
#ifndef HKT_THREAD_SANITIZER
#define HKT_THREAD_SANITIZER 0
#endif

static inline uint64_t hkt_load_acquire(const _Atomic uint64_t *p)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)p, memory_order_acquire);
}

static inline uint64_t hkt_load_relaxed(const _Atomic uint64_t *p)
{
    return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)p, memory_order_relaxed);
}

static inline void hkt_store_relaxed(_Atomic uint64_t *p, uint64_t v)
{
    atomic_store_explicit(p, v, memory_order_relaxed);
}

static inline void hkt_store_release(_Atomic uint64_t *p, uint64_t v)
{
    atomic_store_explicit(p, v, memory_order_release);
}

/* Asks for bytes that this rank will write soon and others have read: the store then need not wait until their caches have let go. */
static inline void hkt_own(void *p, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64)
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(((char *)p)[i]));
#else
        __builtin_prefetch((char *)p + i, 1);
#endif
}

extern bool hkt_asymmetric; /* membarrier works; set by hkt_fence_init() before any thread waits */

void hkt_fence_init(void);
void hkt_fence_heavy(void);

static inline void hkt_fence_light(void)
{
    if (hkt_asymmetric)
        atomic_signal_fence(memory_order_seq_cst);
    else
        atomic_thread_fence(memory_order_seq_cst);
}

#endif
