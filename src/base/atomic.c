/* atomic.c -- the heavy half of the asymmetric fence. See atomic.h. */
#include "atomic.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool hkt_asymmetric;

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZER 1
#endif
#endif

void hkt_fence_init(void)
{
#ifndef THREAD_SANITIZER
    /* Registering again is harmless. After a fork the child is registered too. */
    hkt_asymmetric = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
#endif
}

void hkt_fence_heavy(void)
{
    if (!hkt_asymmetric || syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
        atomic_thread_fence(memory_order_seq_cst);
}
