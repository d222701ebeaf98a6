/* clock.h -- monotonic time, and the pause of a polling loop. */
#ifndef HKT_CLOCK_H
#define HKT_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t hkt_now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void hkt_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
