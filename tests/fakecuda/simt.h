/* simt.h -- runs a CUDA kernel on the processor: each of its threads is a fiber, all fibers of a launch share the thread of their stream.
 *
 * Fibers are switched at barriers, shuffles and in loops that wait, nowhere else; with a seed in random order, and then 16-byte
 * stores are torn in two now and then. The words of CUDA for kernels are in simt_device.h.
 */
#ifndef FAKECUDA_SIMT_H
#define FAKECUDA_SIMT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* In every address of device memory, in none of the host's; kernels take it away before they touch memory. */
#define SIMT_TAG (UINT64_C(1) << 50)

typedef struct {
    unsigned x, y, z;
} simt_dim3;

struct simt_fiber;

/* What a thread of a kernel can ask about itself. */
struct simt_thread {
    simt_dim3          thread, block, threads, blocks;
    void              *shared; /* dynamic shared memory of its block */
    struct simt_fiber *fiber;
};

extern __thread struct simt_thread *simt_current;

struct simt_kernel {
    const char *name;
    void (*function)(const void *parameters);
    size_t   bytes;   /* of the parameters */
    unsigned threads; /* most in a block */
};

/* Fibers are kept from launch to launch. Zero at the start. */
struct simt_pool {
    struct simt_fiber *fiber;
    char              *stacks;
    size_t             count;
    unsigned           launches;
};

struct simt_launch {
    const struct simt_kernel *kernel;
    const void               *parameters;
    simt_dim3                 grid, block;
    unsigned                  shared, slots, seed; /* slots: blocks that run at once */
    struct simt_pool         *pool;
    void (*idle)(void *argument); /* every fiber waits for another process or stream */
    void *argument;
};

/* 0; -1: threads wait for a barrier that the others cannot reach, or an address was misaligned. */
int  simt_run(const struct simt_launch *launch);
void simt_pool_free(struct simt_pool *pool);

void     simt_barrier(void);                                /* of the block; threads that have ended count as arrived */
void     simt_warp(void);                                   /* of whole warps */
uint64_t simt_shuffle(uint64_t value, unsigned lane);       /* of the warp's thread `lane` */
unsigned simt_ballot(int predicate);
void     simt_pause(void);                                  /* in every loop that waits */
void     simt_tear(void);                                   /* between the halves of a 16-byte store */
void     simt_misaligned(uint64_t address, unsigned size);  /* what stops a GPU: the launch fails */

void simt_register(const struct simt_kernel *kernel); /* by constructors of the library of kernels */

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
