/* test_fakecuda_share.c -- a GPU that processes share: while a kernel of one waits, does that of another run? At once where they run side by
 * side, never where one has the GPU until its kernel ends, and after a while where a waiting kernel loses it. */
#include "kernel_case.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seen by all processes; a page. */
static struct common {
    uint32_t copied[16]; /* by the kernel that then waits */
    uint32_t abort;
} *common;

static void nap(void)
{
    const struct timespec moment = {0, 2000000};

    nanosleep(&moment, NULL);
}

static struct hkt_kernel_arguments copy_to(CUdeviceptr to, CUdeviceptr from)
{
    struct hkt_kernel_arguments a = {.segments = 1};

    a.segment[0] = (struct hkt_kernel_segment){.count = 4, .src = {from}, .dst = {to}, .nsrc = 1, .ndst = 1};
    return a;
}

/* Copies a word, then waits for a rank that never comes. */
static void hold(void)
{
    CUdeviceptr                 memory, words;
    struct hkt_kernel_arguments a;

    kernel_case_start();
    memory = kernel_case_allocate(sizeof(struct hkt_kernel_control) + 16);
    OK(cuMemHostRegister(common, 4096, CU_MEMHOSTREGISTER_PORTABLE));
    OK(cuMemHostGetDevicePointer(&words, common, 0));
    OK(cuMemsetD8(memory + sizeof(struct hkt_kernel_control), 1, 16));
    a            = copy_to(words, memory + sizeof(struct hkt_kernel_control));
    a.ranks      = 2;
    a.peers      = 3;
    a.wait       = HKT_KERNEL_AFTER;
    a.abort      = words + offsetof(struct common, abort);
    a.control[0] = memory;
    a.control[1] = memory;
    a.rank       = 0;
    kernel_case_launch(&(struct kernel_launch){HKT_KERNEL_COPY, &a, NULL, 1, 32});
    OK(cuCtxSynchronize());
}

/* Runs a kernel that waits for nothing; 0: it ended by itself, 1: only when the other was let go. */
static int run_beside(void)
{
    CUdeviceptr                 memory;
    struct hkt_kernel_arguments a;
    CUstream                    stream;
    bool                        ended = false;

    kernel_case_start();
    memory = kernel_case_allocate(64);
    a      = copy_to(memory, memory + 16);
    OK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
    kernel_case_launch(&(struct kernel_launch){HKT_KERNEL_COPY, &a, stream, 1, 32});
    for (int i = 0; i < (getenv("PATIENCE") ? 5000 : 100) && !ended; i++) {
        ended = cuStreamQuery(stream) == CUDA_SUCCESS;
        nap();
    }
    __atomic_store_n(&common->abort, 1, __ATOMIC_RELAXED); /* pairs with the kernel's look at it */
    OK(cuStreamSynchronize(stream));
    return !ended;
}

/* Does the second one end before the first is let go? */
static bool goes_on_beside(const char *share, bool patient)
{
    char  session[32];
    int   status, held;
    pid_t holder, other;

    memset(common, 0, sizeof(*common));
    snprintf(session, sizeof(session), "share-%d", (int)getpid());
    setenv("FAKECUDA_SESSION", session, 1);
    setenv("FAKECUDA_SHARE", share, 1);
    if (patient)
        setenv("PATIENCE", "1", 1);
    else
        unsetenv("PATIENCE");
    holder = fork();
    if (!holder) {
        alarm(60);
        hold();
        _exit(0);
    }
    for (int i = 0; i < 10000 && !__atomic_load_n(&common->copied[0], __ATOMIC_RELAXED); i++) /* pairs with the kernel's store */
        nap();
    MUST(common->copied[0]);
    other = fork();
    if (!other) {
        alarm(60);
        _exit(run_beside());
    }
    MUST(waitpid(other, &status, 0) == other && WIFEXITED(status));
    MUST(waitpid(holder, &held, 0) == holder && WIFEXITED(held) && !WEXITSTATUS(held));
    return !WEXITSTATUS(status);
}

int main(void)
{
    common = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(common != MAP_FAILED);
    MUST(goes_on_beside("concurrent", true));
    MUST(!goes_on_beside("exclusive", false));
    MUST(goes_on_beside("slice:2000", true));
    printf("side by side, one after the other, in turns\n");
    return 0;
}
