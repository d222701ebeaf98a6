/* test_device.c -- collectives on device memory give what they give on host memory, to the bit: on CUDA streams and blocking, in graphs, with
 * some buffers of the host; and streams are let go whatever becomes of the peers. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>

static const size_t sizes[] = {1, 63, 700, 4100};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]), LONGEST = 4104 };

static size_t span_bytes(int n)
{
    return (size_t)n * (LONGEST + 4) * 8 + 8192;
}

/* ---- every collective x type x operator */

static void everything(struct rank *me)
{
    struct lab lab;
    struct gpu gpu;

    gpu_open(&gpu, me->rank, 4 * span_bytes(me->n));
    lab_open(&lab, me->comm, span_bytes(me->n));
    gpu_lab(&gpu, &lab);
    gpu.placement = me->arg ? MIXED : ON_DEVICE;
    for (enum coll coll = 0; coll < COLLS; coll++)
        for (hkt_type_t type = 0; type < HKT_TYPES; type++)
            for (int op = 0; op < (coll_reduces(coll) ? OP_COUNT : 1); op++) {
                const uint64_t random = mix((uint64_t)coll << 20 | (uint64_t)type << 12 | (uint64_t)op << 8 | (uint64_t)me->n);
                struct job     j      = job_random(random, coll, type, sizes[random >> 50 & (SIZES - 1)], me->n);

                j.op = op;
                gpu_job(&gpu, &lab, &j, random >> 60 & 3);
            }
    lab_close(&lab);
    gpu_close(&gpu);
}

/* Proves: results of every collective, type and operator on device memory are right to the bit, n = 1 to 8, threads and processes, on a stream and
 * blocking. */
START_TEST(every_collective_type_operator)
{
    world_run(&(struct world){.n = 1 + _i % 8, .kind = _i / 8, .fn = everything, .deadline = 110});
}
END_TEST

/* Proves: a call may have device memory on one rank and host memory on another, or on its two sides. */
START_TEST(mixed_memory)
{
    world_run(&(struct world){.n = 2 + _i % 3, .kind = _i / 3, .fn = everything, .arg = &(int){1}, .deadline = 110});
}
END_TEST

static void add(Suite *s)
{
    ADD(s, every_collective_type_operator, 16, 120);
    ADD(s, mixed_memory, 6, 120);
}

int main(void)
{
    return run_suite("device", add);
}
