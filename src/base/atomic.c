/* atomic.c -- the heavy half of the asymmetric fence. See atomic.h. */
#include "atomic.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool hkt_asymmetric;

void hkt_fence_init(void)
{
    /* Registering again is harmless. After a fork the child is registered too. */
    hkt_asymmetric = !HKT_THREAD_SANITIZER && syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

void hkt_fence_heavy(void)
{
    if (!hkt_asymmetric || syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
        atomic_thread_fence(memory_order_seq_cst);
}
